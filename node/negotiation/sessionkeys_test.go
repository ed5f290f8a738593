// SPDX-License-Identifier: Apache-2.0

package negotiation_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/store"
)

// vault is one under a key that its name makes.
type vault string

func (v vault) aead() cipher.AEAD {
	key := sha256.Sum256([]byte(v))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return aead
}

func (v vault) Seal(plaintext, aad []byte) ([]byte, error) {
	return v.aead().Seal(nil, nil, plaintext, aad), nil
}

func (v vault) Open(sealed, aad []byte) ([]byte, error) { return v.aead().Open(nil, nil, sealed, aad) }

func (p *party) sealedKeys(t *testing.T, id string) []byte {
	t.Helper()
	var sealed []byte
	err := p.db.View(t.Context(), func(tx store.Tx) (err error) { sealed, err = tx.GetSessionKeys(id); return err })
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	return sealed
}

// files is everything that the party's store has on disk.
func (p *party) files(t *testing.T) []byte {
	t.Helper()
	var all []byte
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(p.path + suffix)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

// sent are the sealed payloads of a conversation.
func (p *party) payloads(t *testing.T, id string) (out []*envelope.Envelope) {
	t.Helper()
	err := p.db.View(t.Context(), func(tx store.Tx) error {
		peer := p.session(t, id).Peer
		list, err := tx.ListEnvelopes(p.id.String(), peer.String(), id)
		for _, rec := range list {
			env, err := envelope.Parse(rec.Bytes, 0)
			if err != nil {
				return err
			}
			if env.Sealed != nil {
				out = append(out, env)
			}
		}
		return err
	})
	fatal(t, err)
	return out
}

// Contract payloads are sealed to keys that are nowhere after the conversation: not in the store, and not in its files.
func TestSessionKeys_AreDestroyedAtTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var kept [2][]byte
	var seeds [2][]string
	w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
		reply, err := deliver(raw)
		env, _ := envelope.Parse(raw, 0)
		if env.Seq == 1 {
			for i, p := range []*party{w.buyer, w.vendor} {
				kept[i] = p.sealedKeys(t, env.ContextID)
				plain, err := p.vault.Open(kept[i], []byte(env.ContextID))
				fatal(t, err)
				for _, s := range strings.Split(string(plain), `"`) {
					if b, err := base64.RawURLEncoding.DecodeString(s); err == nil && len(b) == did.SeedSize {
						seeds[i] = append(seeds[i], s, string(b))
					}
				}
				if !bytes.Contains(p.files(t), kept[i]) || len(seeds[i]) != 4 {
					t.Errorf("the sealed keys are not where this test looks for them; %d seeds", len(seeds[i])/2)
				}
				for _, s := range seeds[i] {
					if bytes.Contains(p.files(t), []byte(s)) {
						t.Error("invariant 10: a private session key is in the store in the clear")
					}
				}
			}
		}
		return reply, err
	}
	id := w.begin()
	if ses := w.drive(id); ses.Phase != negotiation.PhaseInForce {
		t.Fatalf("%s: %s", ses.Phase, ses.Reason)
	}
	w.agreed()
	for i, p := range []*party{w.buyer, w.vendor} {
		if p.sealedKeys(t, id) != nil {
			t.Error("the store still has the session keys")
		}
		fatal(t, p.db.Scrub(t.Context()))
		if bytes.Contains(p.files(t), kept[i]) {
			t.Error("the store's files still have the session keys")
		}
		ses := p.session(t, id)
		a := ses.Agreement()
		if a.Candidate.HPKESuite != hpke.SuiteXWing || a.Candidate.SessionKeys != metaproto.SessionKeysFresh {
			t.Errorf("agreed on %s, session keys %s", a.Candidate.HPKESuite, a.Candidate.SessionKeys)
		}
		for _, env := range p.payloads(t, id) {
			if env.Sealed.Suite != hpke.SuiteXWing || !strings.HasPrefix(env.Sealed.RecipientKID, env.To.String()+"#session-") {
				t.Errorf("message %d is sealed to %s", env.Seq, env.Sealed.RecipientKID)
			}
			// The keys of the documents, which a thief may get later, open none of it.
			ring := hpke.NewKeyring(map[string]did.PrivateKey{env.Sealed.RecipientKID: w.parties[env.To].hybrid})
			if _, err := envelope.Open(t.Context(), verified(t, w, env), ring, envelope.OpenWith{Suite: hpke.SuiteXWing, RecipientKID: env.Sealed.RecipientKID}); envelope.CodeOf(err) != envelope.CodeCannotOpen {
				t.Errorf("the document's key: %v", err)
			}
		}
	}
}

func verified(t *testing.T, w *world, env *envelope.Envelope) *envelope.Envelope {
	t.Helper()
	fatal(t, env.VerifyWith(w.parties[env.From].doc, w.Now()))
	return env
}

// What one side has no key for is not agreed upon; what both have is.
func TestSessionKeys_WithALesserPeer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(w *world)
		suite  hpke.Suite
		keys   string
	}{
		"vendor without X-Wing":       {func(w *world) { w.vendor.hybridID = "" }, hpke.SuiteX25519, metaproto.SessionKeysFresh},
		"buyer without X-Wing":        {func(w *world) { w.buyer.hybridID = "" }, hpke.SuiteX25519, metaproto.SessionKeysFresh},
		"vendor without session keys": {func(w *world) { w.vendor.vault = nil }, hpke.SuiteXWing, metaproto.SessionKeysNone},
		"buyer with neither":          {func(w *world) { w.buyer.vault, w.buyer.hybridID = nil, "" }, hpke.SuiteX25519, metaproto.SessionKeysNone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tc.change(w)
			w.serve(w.buyer)
			w.serve(w.vendor)
			ses := w.drive(w.begin())
			if ses.Phase != negotiation.PhaseInForce {
				t.Fatalf("%s: %s", ses.Phase, ses.Reason)
			}
			if c := ses.Agreement().Candidate; c.HPKESuite != tc.suite || c.SessionKeys != tc.keys {
				t.Errorf("%s, session keys %s", c.HPKESuite, c.SessionKeys)
			}
		})
	}
}

// A floor of session keys or of X-Wing ends the rounds with a peer that has none.
func TestSessionKeys_Floor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.buyer.vault = nil
	w.vendor.changeMeta = func(m *metaproto.Policy) { m.Floor.SessionKeys = []string{metaproto.SessionKeysFresh} }
	w.serve(w.buyer)
	w.serve(w.vendor)
	if ses := w.drive(w.begin()); ses.Phase != negotiation.PhaseRejected || ses.Code != "NO_AGREEMENT" {
		t.Errorf("%s: %s %s", ses.Phase, ses.Code, ses.Reason)
	}
}

// A node whose session key is lost (restored from a copy without it) refuses by name and grants nothing.
func TestSessionKeys_Lost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var refusal error
	w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
		env, _ := envelope.Parse(raw, 0)
		if env.Type == envelope.TypeNegotiation {
			fatal(t, w.vendor.db.Update(t.Context(), func(tx store.Tx) error { return tx.DeleteSessionKeys(env.ContextID) }))
		}
		reply, err := deliver(raw)
		if err != nil {
			refusal = err
		}
		return reply, err
	}
	if ses := w.drive(w.begin()); ses.Phase != negotiation.PhaseFailed {
		t.Errorf("%s: %s", ses.Phase, ses.Reason)
	}
	if envelope.CodeOf(refusal) != envelope.CodeCannotOpen {
		t.Errorf("refused with %v", refusal)
	}
}

// plain takes session keys and X-Wing from the buyer, for tests in which somebody else seals with the keys of the documents.
func (w *world) plain() *world {
	w.buyer.vault, w.buyer.hybridID = nil, ""
	w.serve(w.buyer)
	return w
}
