// SPDX-License-Identifier: Apache-2.0

package negotiation_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/store/sqlite"
)

// BenchmarkReceive is a proposal from its bytes to the durable offer, below the A2A library. The floor, measured in turn with
// it, is what nobody can leave out: to verify, open and digest the proposal, to seal, sign and digest the answer, and to
// commit both with as many bytes of state and events in one synced transaction. Medians are reported. The floor is what the
// goal allows: 1.5 times the cryptography, and the commit.
func BenchmarkReceive(b *testing.B) {
	w := newWorld(b)
	w.vendor.maxOpen = 1 << 20 // they stay open
	w.serve(w.vendor)
	f := newFloor(b, w)
	const batch = 50
	var ready [][]byte
	var ours, crypto, commit []time.Duration
	for i := range b.N {
		if len(ready) == 0 {
			for range min(batch, b.N-i) {
				p := w.puppet(w.buyer).agree()
				ready = append(ready, p.propose(scope()))
			}
		}
		ours = append(ours, timed(func() {
			res, err := w.vendor.svc.Receive(context.Background(), w.buyer.id, ready[0])
			if err != nil || res.Reply == nil {
				b.Fatal(err)
			}
		}))
		ready = ready[1:]
		crypto = append(crypto, timed(func() { f.crypto(b) }))
		commit = append(commit, timed(func() { f.commit(b) }))
	}
	our, sum, floor := median(ours), median(crypto)+median(commit), 1.5*median(crypto)+median(commit)
	b.ReportMetric(our, "ns/op")
	b.ReportMetric(floor, "floor_ns/op")
	b.ReportMetric(our/floor, "ratio")
	b.ReportMetric(median(crypto), "crypto_ns")
	b.ReportMetric(median(commit), "commit_ns")
	b.ReportMetric(our/sum, "of-sum")
}

func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Nanoseconds())
}

// floor is the bare work on the same bytes.
type floor struct {
	w           *world
	db          *sqlite.DB
	public      ed25519.PublicKey
	private     ed25519.PrivateKey
	input, sig  []byte
	ring        *hpke.Keyring
	there, back hpke.Context
	aad         []byte
	sealed      hpke.Sealed
	in, out     store.EnvelopeRecord
	conv        store.Conversation
	entries     []entry
}

func newFloor(b *testing.B, w *world) *floor {
	b.Helper()
	p := w.puppet(w.buyer).agree()
	raw := p.propose(scope())
	state := func() (conv store.Conversation) {
		w.vendor.view(b, func(tx store.Tx) (err error) {
			conv, err = tx.FindConversation(w.vendor.id.String(), p.ctx)
			return err
		})
		return conv
	}
	logged := len(w.vendor.events(b))
	_, err := w.vendor.svc.Receive(context.Background(), w.buyer.id, raw)
	fatal(b, err)
	records := w.vendor.envelopes(b, p.ctx)
	f := &floor{w: w, in: records[len(records)-2], out: records[len(records)-1], conv: state()}
	for _, e := range w.vendor.events(b)[logged:] {
		f.entries = append(f.entries, entry{e.Type, e.Data})
	}
	var jws struct{ Protected, Payload, Signature string }
	fatal(b, json.Unmarshal(raw, &jws))
	f.sig, err = base64.RawURLEncoding.DecodeString(jws.Signature)
	fatal(b, err)
	f.input = []byte(jws.Protected + "." + jws.Payload)
	f.public, f.private = ed25519.PublicKey(w.buyer.signing.Public().Bytes()), ed25519.NewKeyFromSeed(w.vendor.signing.Seed())
	f.ring = hpke.NewKeyring(map[string]did.PrivateKey{w.vendor.kexID: w.vendor.kex})
	f.there = hpke.Context{Protocol: "floor", Version: 1, From: w.buyer.id, To: w.vendor.id, SenderKID: w.buyer.binding.KeyID(), RecipientKID: w.vendor.kexID}
	f.back = hpke.Context{Protocol: "floor", Version: 1, From: w.vendor.id, To: w.buyer.id, SenderKID: w.vendor.binding.KeyID(), RecipientKID: w.buyer.kexID}
	f.aad = make([]byte, 600)
	f.sealed, err = hpke.Seal(hpke.SuiteX25519, w.vendor.kex.Public(), f.there, f.aad, f.in.Plaintext)
	fatal(b, err)
	f.db, err = sqlite.Create(context.Background(), filepath.Join(b.TempDir(), "floor.db"), sqlite.Options{Node: w.vendor.id.String(), Process: "node", Clock: w})
	fatal(b, err)
	b.Cleanup(func() { f.db.Close() })
	return f
}

func (f *floor) crypto(b *testing.B) {
	if !ed25519.Verify(f.public, f.input, f.sig) {
		b.Fatal("signature")
	}
	if _, err := f.ring.Open(context.Background(), hpke.SuiteX25519, f.sealed, f.there, f.aad); err != nil {
		b.Fatal(err)
	}
	if _, err := hpke.Seal(hpke.SuiteX25519, f.w.buyer.kex.Public(), f.back, f.aad, f.out.Plaintext); err != nil {
		b.Fatal(err)
	}
	ed25519.Sign(f.private, f.out.Bytes)
	for _, data := range [][]byte{f.input, f.in.Plaintext, f.out.Bytes, f.out.Plaintext} {
		sha256.Sum256(data)
	}
}

// commit writes rows of the same number and size.
func (f *floor) commit(b *testing.B) {
	id := envelope.NewID()
	in, out, conv := f.in, f.out, f.conv
	in.ContextID, out.ContextID, conv.ContextID, conv.TaskID = id, id, id, id
	in.Digest, out.Digest = sha256.Sum256([]byte(id)), sha256.Sum256([]byte(id+"o"))
	out.ReplyTo = in.Digest
	err := f.db.Update(context.Background(), func(tx store.Tx) error {
		if err := errors.Join(tx.PutEnvelope(in), tx.PutEnvelope(out), tx.PutConversation(conv, 0)); err != nil {
			return err
		}
		for _, e := range f.entries {
			if _, err := tx.Append(ledger.Entry{Type: e.kind, Context: id, Data: e.data}); err != nil {
				return err
			}
		}
		return nil
	})
	fatal(b, err)
}

type entry struct {
	kind string
	data json.RawMessage
}
