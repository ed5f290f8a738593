// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/hpke"
)

// Parse reads an envelope: the one form of JWS, the one form of payload, every
// member in range. It verifies nothing; maxBytes 0 stands for [MaxBytes].
// Errors are [*Refusal]s.
func Parse(raw []byte, maxBytes int) (*Envelope, error) {
	if maxBytes <= 0 {
		maxBytes = MaxBytes
	}
	if len(raw) > maxBytes {
		return nil, Refuse(CodeTooLarge, "message of %d bytes, limit %d", len(raw), maxBytes)
	}
	jws, err := did.ParseJWS(raw, maxBytes)
	if err != nil {
		return nil, Refuse(CodeMalformed, "%w", err)
	}
	if jws.Type != TokenType {
		return nil, Refuse(CodeMalformed, "typ of the protected header is not %q", TokenType)
	}
	signer, _, err := did.SplitKeyID(jws.KeyID)
	if err != nil {
		return nil, Refuse(CodeMalformed, "kid of the protected header: %w", err)
	}
	lim := canon.Limits{MaxBytes: maxBytes, MaxDepth: maxDepth}
	if err := canon.CheckCanonical(jws.Payload, lim); err != nil {
		return nil, Refuse(CodeMalformed, "payload: %w", err)
	}
	var p payload
	if err := canon.Unmarshal(jws.Payload, &p, lim); err != nil {
		return nil, Refuse(CodeMalformed, "payload: %w", err)
	}
	e := &Envelope{
		Header: p.Header, Body: p.Body, Sealed: p.Sealed,
		raw: bytes.Clone(raw), jws: jws, digest: canon.Sum(jws.SigningInput()), signer: signer,
	}
	if err := e.checkHeader(); err != nil {
		return nil, err
	}
	if e.Body != nil {
		if err := checkContent(e.Body.Salt, e.Body.Body); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// VerifySignature verifies the signature with key, which the caller has found
// by [Envelope.KeyID] in the document of [Envelope.Signer].
func (e *Envelope) VerifySignature(key did.PublicKey) error {
	if err := e.jws.Verify(key); err != nil {
		return Refuse(CodeBadSignature, "%w", err)
	}
	e.verified = true
	return nil
}

// VerifyWith verifies the signature with the key that doc, the sender's
// verified document, lists under authentication for the time given.
func (e *Envelope) VerifyWith(doc *did.Document, at time.Time) error {
	if doc.ID() != e.From || e.signer != e.From {
		return Refuse(CodeWrongSender, "signed by %s, sent by %s", e.signer, e.From)
	}
	key, err := doc.KeyFor(e.KeyID(), did.Authentication, at)
	if err != nil {
		return Refuse(CodeBadSignature, "%w", err)
	}
	return e.VerifySignature(key)
}

// OpenWith says what the sealed body must be sealed with and to. It comes from
// the agreement.
type OpenWith struct {
	Suite        hpke.Suite
	RecipientKID string // own key
}

// Open returns the content of a verified envelope after it was found to belong
// to it. For one in the clear, opener is not asked. Errors are [*Refusal]s,
// save those of ctx.
func Open(ctx context.Context, e *Envelope, opener hpke.Opener, with OpenWith) (Opened, error) {
	if !e.verified {
		return Opened{}, Refuse(CodeBadSignature, "the signature has not been verified")
	}
	if e.Body != nil {
		return e.opened(e.Body.Salt, e.Body.Body)
	}
	if err := e.Sealed.Check(with.Suite, with.RecipientKID); err != nil {
		return Opened{}, refuseSealed(err)
	}
	aad, err := e.aad()
	if err != nil {
		return Opened{}, Refuse(CodeInternal, "%w", err)
	}
	plaintext, err := opener.Open(ctx, with.Suite, *e.Sealed, e.sealContext(e.KeyID(), with.RecipientKID), aad)
	if err != nil {
		if ctx.Err() != nil {
			return Opened{}, ctx.Err()
		}
		return Opened{}, refuseSealed(err)
	}
	inner, err := parseSealedBody(plaintext)
	if err != nil {
		return Opened{}, err
	}
	if inner.From != e.From || inner.To != e.To || inner.ContextID != e.ContextID {
		return Opened{}, Refuse(CodeBodyMismatch, "the sealed content was made for another message")
	}
	return e.opened(inner.Salt, inner.Body)
}

func (e *Envelope) opened(salt Salt, body []byte) (Opened, error) {
	if !BodyDigest(salt, body).Equal(e.BodyDigest) {
		return Opened{}, Refuse(CodeBodyMismatch, "bodyDigest is of another content")
	}
	return Opened{Body: bytes.Clone(body), Salt: salt}, nil
}

func refuseSealed(err error) error {
	switch {
	case errors.Is(err, hpke.ErrSuite), errors.Is(err, hpke.ErrRecipient):
		return Refuse(CodeSuiteMismatch, "%w", err)
	case errors.Is(err, hpke.ErrTooLarge):
		return Refuse(CodeTooLarge, "%w", err)
	case errors.Is(err, hpke.ErrEncoding):
		return Refuse(CodeMalformed, "%w", err)
	}
	if errors.Is(err, hpke.ErrRetired) {
		return Refuse(CodeKeyRetired, "%w", err)
	}
	return Refuse(CodeCannotOpen, "%w", err)
}

// checkContent demands an object and a salt; one that is missing reads as zero.
func checkContent(salt Salt, body []byte) error {
	if salt == (Salt{}) {
		return Refuse(CodeMalformed, "the body has no salt")
	}
	if len(body) == 0 || body[0] != '{' {
		return Refuse(CodeMalformed, "the body is not an object")
	}
	return nil
}

// parseSealedBody reads the plaintext of a sealed body as strictly as the rest.
func parseSealedBody(plaintext []byte) (sealedBody, error) {
	lim := canon.Limits{MaxBytes: hpke.MaxPlaintext, MaxDepth: maxDepth}
	if err := canon.CheckCanonical(plaintext, lim); err != nil {
		return sealedBody{}, Refuse(CodeMalformed, "sealed content: %w", err)
	}
	var b sealedBody
	if err := canon.Unmarshal(plaintext, &b, lim); err != nil {
		return sealedBody{}, Refuse(CodeMalformed, "sealed content: %w", err)
	}
	if b.From.IsZero() || b.To.IsZero() || b.ContextID == "" {
		return sealedBody{}, Refuse(CodeMalformed, "sealed content: a member is missing")
	}
	return b, checkContent(b.Salt, b.Body)
}
