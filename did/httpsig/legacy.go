// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// The header that ANP had before it adopted RFC 9421:
//
//	Authorization: DIDWba v="1.1", did="…", nonce="…", timestamp="…Z",
//	               verification_method="key-1", signature="<base64url>"
//
// signed over SHA-256(JCS {aud, did, nonce, timestamp}). Below version 1.1 aud
// is called service. It says nothing of method, target and content.

// legacyTime is how timestamps are written; fractions of a second are read.
const legacyTime = "2006-01-02T15:04:05Z"

// legacyHeader holds the parameters as they were sent.
type legacyHeader struct{ v, did, nonce, timestamp, method, signature string }

// signed returns what the signature of h is over, for a service on host. ECDSA
// hashes it once more.
func (h *legacyHeader) signed(host string) ([]byte, error) {
	audience := "aud"
	if h.v == "1.0" {
		audience = "service"
	}
	canonical, err := canon.Marshal(map[string]string{
		audience: host, "did": h.did, "nonce": h.nonce, "timestamp": h.timestamp,
	})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(canonical)
	return sum[:], nil
}

// LegacyAuthorization returns the value of the Authorization header of version
// 1.1 for a service on host, which is a name without a port. Services that read
// the signature fields should be sent those: see [SignRequest]. Lifetime is not
// used.
func LegacyAuthorization(ctx context.Context, host string, s did.Signer, o SignOptions) (string, error) {
	if o.Created.IsZero() {
		return "", errors.New("httpsig: SignOptions.Created is required")
	}
	if o.Nonce == "" {
		o.Nonce = newNonce()
	}
	id, fragment, err := did.SplitKeyID(s.KeyID())
	if err != nil {
		return "", err
	}
	if host == "" || strings.ContainsAny(host, ":/ ") || !printable(host, maxFieldBytes) || !printable(o.Nonce, maxNonceBytes) || strings.ContainsAny(o.Nonce, `"\`) {
		return "", errors.New("httpsig: host or nonce cannot be sent in the legacy header")
	}
	h := legacyHeader{v: "1.1", did: id.String(), nonce: o.Nonce, timestamp: o.Created.UTC().Format(legacyTime)}
	message, err := h.signed(strings.ToLower(host))
	if err != nil {
		return "", err
	}
	signature, err := s.Sign(ctx, message)
	if err != nil {
		return "", fmt.Errorf("httpsig: signing: %w", err)
	}
	return fmt.Sprintf(`DIDWba v="%s", did="%s", nonce="%s", timestamp="%s", verification_method="%s", signature="%s"`,
		h.v, h.did, h.nonce, h.timestamp, fragment, base64.RawURLEncoding.EncodeToString(signature)), nil
}

// parseLegacy takes exactly the six parameters, each once, in any order.
func parseLegacy(s string) (h legacyHeader, err error) {
	if len(s) > maxFieldBytes {
		return h, errors.New("too long")
	}
	seen := 0
	ok := eachParam(s, func(name, value string) bool {
		field := map[string]*string{
			"v": &h.v, "did": &h.did, "nonce": &h.nonce, "timestamp": &h.timestamp,
			"verification_method": &h.method, "signature": &h.signature,
		}[name]
		if field == nil || *field != "" || value == "" {
			return false
		}
		*field = value
		seen++
		return true
	})
	if !ok || seen != 6 {
		return h, errors.New("not exactly v, did, nonce, timestamp, verification_method and signature")
	}
	if h.v != "1.1" && h.v != "1.0" {
		return h, errors.New("unknown version")
	}
	return h, nil
}

// verifyLegacy checks the header in the order in which [Verifier] checks a
// signed request: form, time, nonce, DID, document, signature, and last that the
// nonce was not used before. It shares the nonces with signed requests.
func (s *Sessions) verifyLegacy(ctx context.Context, value string) (Session, error) {
	h, err := parseLegacy(value)
	if err != nil {
		return Session{}, refuse(InvalidRequest, "The DIDWba authorization header is malformed.", err)
	}
	signature, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(h.signature, "="))
	if err != nil || len(signature) != 64 {
		return Session{}, refuse(InvalidSignature, "", err)
	}
	created, err := time.Parse(legacyTime, h.timestamp) // reads fractions too
	if err != nil {
		return Session{}, refuse(InvalidTimestamp, "The timestamp is not a UTC time of RFC 3339.", err)
	}
	c := &claim{now: s.v.opts.Now()}
	c.in.Nonce, c.in.Created, c.in.Expires = h.nonce, created, created.Add(s.o.LegacyLifetime)
	if created.After(c.now.Add(s.v.opts.Skew)) || c.now.After(c.in.Expires.Add(s.v.opts.Skew)) {
		return Session{}, refuse(InvalidTimestamp, "", nil)
	}
	if !printable(h.nonce, maxNonceBytes) {
		return Session{}, refuse(InvalidNonce, "", nil)
	}
	if err := s.v.checkNonce(c); err != nil {
		return Session{}, err
	}
	c.in.KeyID = h.did + "#" + h.method
	if c.id, _, err = did.SplitKeyID(c.in.KeyID); err != nil || len(c.in.KeyID) > maxKeyIDBytes {
		return Session{}, refuse(InvalidDID, "did and verification_method do not make a DID URL.", err)
	}
	doc, key, err := s.standing(ctx, c)
	if err != nil {
		return Session{}, err
	}
	signature = s.v.normal(key, signature)
	err = did.ErrBadSignature
	for _, host := range s.hosts {
		var message []byte
		if message, err = h.signed(host); err == nil {
			err = key.Verify(message, signature)
		}
		if err == nil {
			break
		}
	}
	if err != nil {
		return Session{}, refuse(InvalidSignature, "", err)
	}
	if err := s.v.useNonce(ctx, c, nil); err != nil {
		return Session{}, err
	}
	return Session{DID: c.id, KeyID: c.in.KeyID, Document: doc, Scheme: SchemeLegacy, Expires: c.in.Expires}, nil
}
