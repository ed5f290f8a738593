// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/treaty-node/treaty/did/canon"
)

// Form is the kind of thing that a signature is about.
type Form string

// The forms that are signed, and no others.
const (
	// FormHTTP is the signature base of an HTTP request (RFC 9421 section 2.5) whose keyid is the key.
	FormHTTP Form = "http-request"
	// FormJWS is the signing input of a JWS (RFC 7515 section 5.1) whose kid is the key: envelopes and agent cards.
	FormJWS Form = "jws"
	// FormObject is the two SHA-256 digests that an object's proof signs (eddsa-jcs-2022: options, then object).
	FormObject Form = "object-proof"
)

const objectBytes = 64

// maxHeader bounds a JWS's protected header, in base64url.
const maxHeader = 8 << 10

// FormOf says which form message has, or ErrForm. In the forms that say who signs, that must be kid.
func FormOf(kid string, message []byte) (Form, error) {
	switch {
	case len(message) == objectBytes:
		return FormObject, nil
	case bytes.HasPrefix(message, []byte(`"`)):
		return FormHTTP, checkHTTP(kid, string(message))
	}
	return FormJWS, checkJWS(kid, message)
}

// checkHTTP wants lines that each begin with a quoted component name, @method the first, and the parameters at the end.
func checkHTTP(kid, base string) error {
	lines := strings.Split(base, "\n")
	last := lines[len(lines)-1]
	for _, l := range lines {
		if !strings.HasPrefix(l, `"`) || !strings.Contains(l, `": `) {
			return fmt.Errorf("%w: a line of the signature base is not a component", ErrForm)
		}
	}
	if !strings.HasPrefix(base, `"@method": `) || !strings.HasPrefix(last, `"@signature-params": (`) {
		return fmt.Errorf("%w: not the signature base of a request", ErrForm)
	}
	_, params, ok := strings.Cut(last, ")")
	// A key id holds neither quotes nor semicolons, so a parameter is what stands between those.
	const name = `keyid="`
	for p := range strings.SplitSeq(params, ";") {
		if rest, found := strings.CutPrefix(p, name); found {
			if !ok || rest != kid+`"` || strings.Count(params, name) != 1 {
				return fmt.Errorf("%w: the request names another keyid", ErrForm)
			}
			return nil
		}
	}
	return fmt.Errorf("%w: the request names no keyid", ErrForm)
}

func checkJWS(kid string, message []byte) error {
	protected, payload, ok := bytes.Cut(message, []byte("."))
	if !ok || len(protected) > maxHeader {
		return fmt.Errorf("%w: none of the forms that are signed", ErrForm)
	}
	header, err := b64.DecodeString(string(protected))
	if err != nil {
		return fmt.Errorf("%w: none of the forms that are signed", ErrForm)
	}
	for _, c := range payload {
		if !(c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return fmt.Errorf("%w: payload is not base64url", ErrForm)
		}
	}
	var h struct {
		Alg string `json:"alg"`
		KID string `json:"kid"`
	}
	if err := canon.UnmarshalOpen(header, &h, canon.Limits{MaxBytes: maxHeader, MaxDepth: 8}); err != nil {
		return fmt.Errorf("%w: protected header: %w", ErrForm, err)
	}
	if h.KID != kid || h.Alg == "" {
		return fmt.Errorf("%w: the header names another kid", ErrForm)
	}
	return nil
}
