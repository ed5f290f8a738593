// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/store"
)

// Session keys: each side makes fresh keys for a conversation and names their public halves in its signed rounds. Where both do,
// and agree on it, every payload after the rounds is sealed to them. The private halves are in the store, sealed by a [Vault],
// from the transaction that opens the conversation to the one that ends it.

// Vault seals private session keys for the store. What it seals it opens again after a restart, and nobody else does. aad is
// bound to the result.
type Vault interface {
	Seal(plaintext, aad []byte) ([]byte, error)
	Open(sealed, aad []byte) ([]byte, error)
}

// talk is what a conversation is opened with: our keys by suite, and the sealed private halves of the fresh ones.
type talk struct {
	keys   []metaproto.SuiteKey
	sealed []byte // nil: there are none
}

// newTalk makes the keys of one conversation.
func (k *Keys) newTalk(contextID string) (talk, error) {
	kids := map[hpke.Suite]string{hpke.SuiteX25519: k.KeyAgreementKID, hpke.SuiteXWing: k.HybridKID}
	var t talk
	seeds := map[hpke.Suite]string{}
	for _, suite := range hpke.Suites() {
		if kids[suite] == "" {
			continue
		}
		var public did.PublicKey
		if k.Vault != nil {
			private, err := did.GenerateKey(suite.KeyType())
			if err != nil {
				return talk{}, err
			}
			public = private.Public()
			seeds[suite] = base64.RawURLEncoding.EncodeToString(private.Seed())
		}
		t.keys = append(t.keys, metaproto.NewSuiteKey(suite, kids[suite], public))
	}
	if k.Vault == nil {
		return t, nil
	}
	plaintext, err := json.Marshal(seeds)
	if err != nil {
		return talk{}, err
	}
	defer clear(plaintext)
	t.sealed, err = k.Vault.Seal(plaintext, []byte(contextID))
	return t, err
}

// errDestroyed: the conversation has ended, or was restored from a copy that has no session keys.
var errDestroyed = errors.New("the session key has been destroyed")

// sessionOpener opens with the conversation's session key.
func (s *Service) sessionOpener(ctx context.Context, contextID string, suite hpke.Suite, kid string) (hpke.Opener, error) {
	var sealed []byte
	err := s.cfg.Store.View(ctx, func(tx store.Tx) (err error) {
		sealed, err = tx.GetSessionKeys(contextID)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, errDestroyed
	}
	if err != nil {
		return nil, err
	}
	vault := s.cfg.Keys().Vault
	if vault == nil {
		return nil, fmt.Errorf("%w: there is nothing here to unseal it with", errDestroyed)
	}
	plaintext, err := vault.Open(sealed, []byte(contextID))
	if err != nil {
		return nil, fmt.Errorf("the session key cannot be unsealed: %w", err)
	}
	defer clear(plaintext)
	seeds := map[hpke.Suite]string{}
	if err := json.Unmarshal(plaintext, &seeds); err != nil {
		return nil, errors.New("the session keys are not readable")
	}
	seed, err := base64.RawURLEncoding.DecodeString(seeds[suite])
	if err != nil {
		return nil, errors.New("the session keys are not readable")
	}
	private, err := did.NewPrivateKey(suite.KeyType(), seed)
	if err != nil {
		return nil, fmt.Errorf("the session key: %w", err)
	}
	return hpke.NewKeyring(map[string]did.PrivateKey{kid: private}), nil
}

// opening is with what a message of this conversation is opened: our session key if one was agreed, else our document's.
func (s *Service) opening(ctx context.Context, env *envelope.Envelope, ses Session) (hpke.Opener, envelope.OpenWith, error) {
	opener, a := s.cfg.Keys().Opener, ses.Agreement()
	if a == nil {
		return opener, envelope.OpenWith{}, nil
	}
	own, _, _ := a.Sides(ses.Self)
	with := envelope.OpenWith{Suite: a.Candidate.HPKESuite, RecipientKID: ses.recipient(env, own.KeyAgreementKID)}
	if key, ok := a.Session(own); ok {
		with.RecipientKID = hpke.SessionKeyID(env.To, key)
		var err error
		if opener, err = s.sessionOpener(ctx, ses.ContextID, with.Suite, with.RecipientKID); err != nil {
			return nil, with, refuse(envelope.CodeCannotOpen, "%w", err)
		}
	}
	return opener, with, nil
}

// sealing is what a message of ours is sealed to: the peer's session key if one was agreed, which a move does not change, else the
// key of its document.
func (s *Service) sealing(ses Session, peer *did.Document, now time.Time) (*envelope.SealTo, error) {
	a := ses.Agreement()
	if a == nil || peer == nil {
		return nil, errors.New("negotiation: nothing is sealed without an agreement and the peer's document")
	}
	_, party, _ := a.Sides(ses.Self)
	if key, ok := a.Session(party); ok {
		return &envelope.SealTo{Suite: a.Candidate.HPKESuite, RecipientKID: hpke.SessionKeyID(ses.listener(), key), Key: key}, nil
	}
	kid, key, err := ses.sealedTo(peer, party.KeyAgreementKID, now)
	if err != nil {
		return nil, refuse(envelope.CodeSuiteMismatch, "the peer's key-agreement key: %w", err)
	}
	return &envelope.SealTo{Suite: a.Candidate.HPKESuite, RecipientKID: kid, Key: key}, nil
}
