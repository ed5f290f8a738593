// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/hpke"
)

// Draft is a message to be built. The sender is the signer's DID.
type Draft struct {
	Type      Type
	To        did.DID
	ContextID string
	Seq       int64
	MessageID string        // "": a new one
	CreatedAt time.Time     // truncated to the second
	Lifetime  time.Duration // 0: DefaultLifetime; whole seconds
	Prev      canon.Digest
	Agreement canon.Digest // zero: none
	Body      []byte       // JSON; it is brought into canonical form
}

// SealTo says how to seal: by the agreement, never by the peer's message.
type SealTo struct {
	Suite        hpke.Suite
	RecipientKID string
	Key          did.PublicKey // of RecipientKID
}

// Build seals and signs a message; seal is nil for one in the clear. The
// result counts as verified. Errors of a draft that breaks the form are
// [*Refusal]s, as [Parse] would give.
//
// Two envelopes for one seq of a conversation are evidence against whoever
// signed them ([Equivocation]): store a built envelope before it is sent, and
// send the stored one again rather than building another.
func Build(ctx context.Context, d Draft, signer did.Signer, seal *SealTo) (*Envelope, Opened, error) {
	env, opened, err := build(ctx, d, signer, seal)
	if err != nil {
		return nil, Opened{}, fmt.Errorf("envelope: build: %w", err)
	}
	return env, opened, nil
}

func build(ctx context.Context, d Draft, signer did.Signer, seal *SealTo) (*Envelope, Opened, error) {
	kid := signer.KeyID()
	from, _, err := did.SplitKeyID(kid)
	if err != nil {
		return nil, Opened{}, err
	}
	opened := Opened{}
	if opened.Body, err = canon.Canonicalize(d.Body, canon.Limits{MaxBytes: hpke.MaxPlaintext, MaxDepth: maxDepth - 1}); err != nil {
		return nil, Opened{}, Refuse(CodeMalformed, "body: %w", err)
	}
	if opened.Body[0] != '{' {
		return nil, Opened{}, Refuse(CodeMalformed, "the body is not an object")
	}
	_, _ = rand.Read(opened.Salt[:]) // never fails
	if d.MessageID == "" {
		d.MessageID = NewID()
	}
	if d.Lifetime == 0 {
		d.Lifetime = DefaultLifetime
	}
	created := d.CreatedAt.UTC().Truncate(time.Second)
	e := &Envelope{
		Header: Header{
			Version: Version, Type: d.Type, From: from, To: d.To, ContextID: d.ContextID,
			Seq: d.Seq, MessageID: d.MessageID,
			CreatedAt: created.Format(timeLayout), ExpiresAt: created.Add(d.Lifetime).Format(timeLayout),
			Prev: d.Prev, Agreement: d.Agreement, BodyDigest: BodyDigest(opened.Salt, opened.Body),
		},
		signer: from, verified: true,
	}
	if seal == nil {
		e.Body = &Clear{Body: opened.Body, Salt: opened.Salt}
	} else {
		e.Sealed = &hpke.Sealed{}
	}
	if err := e.checkHeader(); err != nil {
		return nil, Opened{}, err
	}
	if seal != nil {
		if *e.Sealed, err = e.seal(kid, *seal, opened); err != nil {
			return nil, Opened{}, err
		}
	}
	data, err := canon.Marshal(payload{Header: e.Header, Body: e.Body, Sealed: e.Sealed})
	if err != nil {
		return nil, Opened{}, err
	}
	if e.raw, err = did.SignJWS(ctx, data, TokenType, signer); err != nil {
		return nil, Opened{}, err
	}
	if e.jws, err = did.ParseJWS(e.raw, len(e.raw)); err != nil {
		return nil, Opened{}, err
	}
	e.digest = canon.Sum(e.jws.SigningInput())
	return e, opened, nil
}

func (e *Envelope) seal(senderKID string, to SealTo, opened Opened) (hpke.Sealed, error) {
	plaintext, err := canon.Marshal(sealedBody{
		Body: opened.Body, ContextID: e.ContextID, From: e.From, Salt: opened.Salt, To: e.To,
	})
	if err != nil {
		return hpke.Sealed{}, err
	}
	aad, err := e.aad()
	if err != nil {
		return hpke.Sealed{}, err
	}
	return hpke.Seal(to.Suite, to.Key, e.sealContext(senderKID, to.RecipientKID), aad, plaintext)
}
