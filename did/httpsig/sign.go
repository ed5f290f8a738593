// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/treaty-node/treaty/did"
)

// DefaultLifetime is how long a signed request is valid.
const DefaultLifetime = 60 * time.Second

// SignOptions holds the parameters of a signature.
type SignOptions struct {
	Created  time.Time     // required; whole seconds are signed
	Lifetime time.Duration // whole seconds, 1 s to 300 s; default 60 s
	Nonce    string        // printable ASCII, at most 256 octets; default: 128 random bits
}

// SignRequest signs a request that is about to be sent with the given content:
// it covers @method, @target-uri, @authority and, with content, content-digest,
// and sets Content-Digest, Signature-Input and Signature (label sig1). Fields
// of an earlier signature are replaced.
func SignRequest(ctx context.Context, r *http.Request, body []byte, s did.Signer, o SignOptions) error {
	target, err := targetURI(r)
	if err != nil {
		return err
	}
	method := r.Method
	if method == "" {
		method = http.MethodGet
	}
	components := requestComponents[:3]
	var digest string
	if len(body) > 0 {
		components = requestComponents[:]
		digest = ContentDigest(body)
	}
	input, signature, err := sign(ctx, &Message{Method: method, TargetURI: target}, components, digest, s, o)
	if err != nil {
		return err
	}
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	if digest != "" {
		r.Header["Content-Digest"] = []string{digest}
	} else {
		delete(r.Header, "Content-Digest")
	}
	r.Header["Signature-Input"] = []string{input}
	r.Header["Signature"] = []string{signature}
	return nil
}

// What the sender covers: the order in which the SDKs' verifiers expect it.
var (
	requestComponents  = [...]Component{{Name: "@method"}, {Name: "@target-uri"}, {Name: "@authority"}, {Name: "content-digest"}}
	carriageComponents = [...]Component{{Name: "@method"}, {Name: "@target-uri"}, {Name: "content-digest"}}
)

// sign returns the values of Signature-Input and Signature.
func sign(ctx context.Context, m *Message, components []Component, digest string, s did.Signer, o SignOptions) (input, signature string, err error) {
	if o.Created.IsZero() || o.Created.Unix() < 0 {
		return "", "", errors.New("httpsig: SignOptions.Created is required")
	}
	if o.Lifetime == 0 {
		o.Lifetime = DefaultLifetime
	}
	if o.Lifetime < time.Second || o.Lifetime > DefaultMaxLifetime {
		return "", "", fmt.Errorf("httpsig: lifetime %v out of range", o.Lifetime)
	}
	if o.Nonce == "" {
		o.Nonce = newNonce()
	}
	keyid := s.KeyID()
	if !printable(o.Nonce, maxNonceBytes) || !printable(keyid, maxKeyIDBytes) {
		return "", "", errors.New("httpsig: nonce or key id cannot be sent")
	}

	const label = "sig1="
	created := o.Created.Unix()
	buf := make([]byte, 0, 512)
	buf = append(buf, label...)
	for i, c := range components {
		buf = append(buf, "( "[min(i, 1)], '"')
		buf = append(append(buf, c.Name...), '"')
	}
	buf = append(buf, ");created="...)
	buf = strconv.AppendInt(buf, created, 10)
	buf = append(buf, ";expires="...)
	buf = strconv.AppendInt(buf, created+int64(o.Lifetime/time.Second), 10)
	buf = append(buf, ";nonce="...)
	buf = appendString(buf, o.Nonce)
	buf = append(buf, ";keyid="...)
	buf = appendString(buf, keyid)
	input = string(buf)

	if digest != "" {
		m.Header = http.Header{"Content-Digest": {digest}}
	}
	in := Input{Components: components, params: input[len(label):]}
	base, err := in.AppendBase(make([]byte, 0, 1024), m)
	if err != nil {
		return "", "", err
	}
	sig, err := s.Sign(ctx, base)
	if err != nil {
		return "", "", fmt.Errorf("httpsig: signing: %w", err)
	}
	buf = append(buf[:0], label...)
	buf = append(buf, ':')
	buf = base64.StdEncoding.AppendEncode(buf, sig)
	return input, string(append(buf, ':')), nil
}

func newNonce() string {
	var raw [16]byte
	rand.Read(raw[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

func printable(s string, maxLen int) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return s != "" && len(s) <= maxLen
}

// targetURI is @target-uri of an outgoing request: what the server will see
// after scheme and authority are made canonical.
func targetURI(r *http.Request) (string, error) {
	u := r.URL
	if u == nil || u.Opaque != "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return "", errors.New("httpsig: only plain http and https URLs can be signed")
	}
	host := r.Host
	if host == "" {
		host = u.Host
	}
	target := u.RequestURI()
	if !printable(host, maxFieldBytes) || !printable(target, maxFieldBytes) || strings.ContainsAny(host, "/?#@ ") {
		return "", errors.New("httpsig: URL cannot be signed")
	}
	return u.Scheme + "://" + normalAuthority(u.Scheme, host) + target, nil
}
