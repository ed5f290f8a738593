// SPDX-License-Identifier: Apache-2.0

package negotiation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/succession"
)

// walker is the other side's resolver: the world's documents, or an older one that it has in its cache.
type walker struct {
	w *world
	p *party
}

func (k walker) Evict(id did.DID) {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	delete(k.p.stale, id)
}

func (k walker) Walk(_ context.Context, id did.DID) (*resolver.Chain, error) {
	now := k.w.Now()
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	var stations []did.Station
	at := id
	for gone := k.w.gone[at]; gone != nil && !k.p.stale[at]; gone = k.w.gone[at] {
		stations = append(stations, *gone)
		at = gone.Gone.SuccessorDID()
	}
	last := k.w.parties[at]
	if last == nil {
		return nil, &resolver.Error{Code: resolver.CodeNotFound, DID: at}
	}
	doc := last.doc
	if k.w.gone[at] != nil {
		doc = k.w.gone[at].Document
	}
	line, err := did.VerifyLine(append(stations, did.Station{Document: doc}), now)
	if err != nil {
		return nil, &resolver.Error{Code: resolver.CodeTransitionInvalid, DID: at, Err: err}
	}
	c := &resolver.Chain{Start: id, Current: doc, Assurance: line.Assurance(), Line: line}
	c.Hops = make([]did.Hop, len(stations))
	return c, nil
}

func (w *world) lines(p *party) *succession.Service {
	return succession.New(succession.Config{Walker: walker{w, p}, Store: p.db, Now: w.Now})
}

// move gives a party another DID: the old document names it, everybody who asks sees it. With cached, the other side does not see
// it before somebody tells it to look again.
func (w *world) move(p *party, cached bool) {
	w.tb.Helper()
	ctx, at := context.Background(), w.Now()
	key, err := did.GenerateKey(did.Ed25519)
	fatal(w.tb, err)
	kex, err := did.GenerateKey(did.X25519)
	fatal(w.tb, err)
	next, err := did.SuccessorID(p.id, key.Public())
	fatal(w.tb, err)
	raw, err := did.Deactivate(ctx, p.doc.Raw(), next, p.binding, at, did.DialectSpec)
	fatal(w.tb, err)
	gone, err := did.ParseDocument(raw)
	fatal(w.tb, err)
	spec, err := did.DocumentSpec{ID: next, Binding: did.MethodSpec{Key: key.Public()}, KeyAgreement: []did.MethodSpec{{Key: kex.Public()}}}.Succeeding(p.id)
	fatal(w.tb, err)
	unsigned, err := did.BuildDocument(spec)
	fatal(w.tb, err)
	binding, err := did.NewSigner(did.KeyID(next, "signing", key.Public()), key)
	fatal(w.tb, err)
	raw, err = did.SignDocument(ctx, unsigned, binding, at, did.DialectSpec)
	fatal(w.tb, err)
	doc, err := did.ParseDocument(raw)
	fatal(w.tb, err)

	old := p.id
	fatal(w.tb, p.db.Update(ctx, func(tx store.Tx) error {
		return tx.PutSuccession(store.Succession{Old: old.String(), New: next.String(), Assurance: store.Verified, OldHash: gone.Hash(), NewHash: doc.Hash(), At: at, Own: true})
	}))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone[old] = &did.Station{Document: p.doc, Gone: gone}
	if p.former == nil {
		p.former, p.oldKex = map[did.DID]*did.Document{}, map[string]did.PrivateKey{}
	}
	p.former[old], p.oldKex[p.kexID], p.oldKex[p.hybridID] = gone, p.kex, p.hybrid
	p.hybridID = "" // the new document has no X-Wing key
	p.id, p.doc, p.binding, p.signing, p.kex, p.kexID = next, doc, binding, key, kex, did.KeyID(next, "kex", kex.Public())
	w.parties[next] = p
	for _, other := range []*party{w.buyer, w.vendor} {
		if other != p && cached {
			if other.stale == nil {
				other.stale = map[did.DID]bool{}
			}
			other.stale[old] = true
		}
	}
}

// line is a party's, from a DID of its on.
func (w *world) line(p *party, from string) *did.Line {
	w.tb.Helper()
	id, err := did.Parse(from)
	fatal(w.tb, err)
	c, err := walker{w, &party{}}.Walk(context.Background(), id)
	fatal(w.tb, err)
	return c.Line
}

// agreedByLines is agreed, for parties that have moved.
func (w *world) agreedByLines() *contract.Contract {
	w.tb.Helper()
	b, v := w.buyer.contractRecords(w.tb), w.vendor.contractRecords(w.tb)
	if len(b) != 1 || len(v) != 1 || b[0].State != store.InForce || v[0].State != store.InForce || string(b[0].Bytes) != string(v[0].Bytes) {
		w.tb.Fatalf("the buyer holds %d contracts, the vendor %d, or they differ", len(b), len(v))
	}
	c, err := contract.Parse(b[0].Bytes)
	fatal(w.tb, err)
	buyer, vendor := w.line(w.buyer, c.Parties.Buyer), w.line(w.vendor, c.Parties.Vendor)
	fatal(w.tb, c.VerifyProofsOf(buyer, vendor))
	a, err := contract.ParseActivation(b[0].Activation)
	fatal(w.tb, err)
	fatal(w.tb, a.VerifyOf(c, vendor))
	return c
}

// TestC9_EitherSideMovesInAnyPhase: at each message of the buyer, the buyer, the vendor or both move; before the message is
// delivered, or after it was taken and the answer lost. Each time the negotiation comes to the same conclusion, each message has
// one effect, and nobody has to be told by anything but the documents.
func TestC9_EitherSideMovesInAnyPhase(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"buyer", "vendor", "both"} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, answer lost %v", who, lost), func(t *testing.T) {
				t.Parallel()
				for n := 1; ; n++ {
					cached := n%2 == 0
					w := newWorld(t)
					id := w.begin()
					sent := 0
					w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
						if sent++; sent != n {
							return deliver(raw)
						}
						w.Advance(2 * time.Second)
						if lost {
							if _, err := deliver(raw); err != nil {
								t.Errorf("before the move: %v", err)
							}
						}
						if who != "vendor" {
							w.move(w.buyer, cached)
						}
						if who != "buyer" {
							w.move(w.vendor, cached)
						}
						if lost {
							return nil, errors.New("the answer is lost")
						}
						return deliver(raw)
					}
					if ses := w.drive(id); ses.Phase != negotiation.PhaseInForce {
						t.Fatalf("move at message %d: %s %s %s", n, ses.Phase, ses.Code, ses.Reason)
					}
					if sent < n {
						if n < 5 {
							t.Fatalf("only %d messages", sent)
						}
						return
					}
					w.agreedByLines()
					w.oneEffect(id)
					if len(w.buyer.equivocations(t))+len(w.vendor.equivocations(t)) > 0 {
						t.Fatal("a move is no equivocation")
					}
				}
			})
		}
	}
}

// TestC9_AgainAndAgain: both sides move at every message.
func TestC9_AgainAndAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.begin()
	moves := 0
	w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
		w.Advance(2 * time.Second)
		if moves++; moves < succMax {
			w.move(w.buyer, true)
			w.move(w.vendor, true)
		}
		return deliver(raw)
	}
	if ses := w.drive(id); ses.Phase != negotiation.PhaseInForce {
		t.Fatalf("%s %s %s", ses.Phase, ses.Code, ses.Reason)
	}
	w.agreedByLines()
	w.oneEffect(id)
	for _, p := range []*party{w.buyer, w.vendor} {
		if p.count(t, ledger.ConversationMoved) == 0 || p.count(t, ledger.DIDSucceeded) == 0 {
			t.Error("the log does not tell of the moves")
		}
	}
}

// succMax is how many successors a line has room for.
const succMax = did.MaxLine

// TestC9_MoveRefused: what is not a verified succession moves nothing, and the conversation stays where it was.
func TestC9_MoveRefused(t *testing.T) {
	t.Parallel()
	// instead puts another document in the place of the one that the buyer's old DID left.
	instead := func(w *world, signer did.Signer, next did.DID) {
		w.tb.Helper()
		raw, err := did.Deactivate(t.Context(), w.gone[w.first].Document.Raw(), next, signer, w.Now(), did.DialectSpec)
		fatal(w.tb, err)
		gone, err := did.ParseDocument(raw)
		fatal(w.tb, err)
		w.gone[w.first] = &did.Station{Document: w.gone[w.first].Document, Gone: gone}
	}
	for name, forge := range map[string]func(w *world, old party){
		"the old DID is in use": func(w *world, old party) {
			delete(w.gone, w.first)
			w.parties[w.first] = &old
		},
		"the old DID names another successor": func(w *world, old party) {
			other := newParty(w.tb, "xbuyer")
			next, err := did.SuccessorID(w.first, other.signing.Public())
			fatal(w.tb, err)
			instead(w, old.binding, next)
			w.parties[next] = other
		},
		"the old document was deleted": func(w *world, old party) {
			delete(w.gone, w.first)
			delete(w.parties, w.first)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			id := w.begin()
			n := 0
			var got error
			before := ""
			w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
				if n++; n != 3 {
					return deliver(raw)
				}
				old := *w.buyer
				w.first = old.id
				w.move(w.buyer, false)
				forge(w, old)
				before = w.vendor.holdings(t)
				_, got = deliver(raw)
				if after := w.vendor.holdings(t); after != before {
					t.Error("the vendor holds something else than before")
				}
				return nil, got
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_ = w.buyer.svc.Drive(ctx, id) // it ends one way or the other
			w.code(got, envelope.CodeNotTrusted)
			if before == "" || w.vendor.count(t, ledger.ConversationMoved) > 0 {
				t.Error("the vendor followed")
			}
			w.noContract()
		})
	}
}

// TestC9_OldKeyOfAThief: once the owner has said that somebody else may have the old key, nothing more that it has signed is taken,
// and what was taken before is still answered.
func TestC9_OldKeyOfAThief(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.begin()
	n := 0
	var first []byte
	w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
		if n++; n != 3 {
			first = raw
			return deliver(raw)
		}
		old := w.buyer.id
		w.move(w.buyer, false)
		if _, err := w.vendor.svc.Receive(t.Context(), w.buyer.id, first); err != nil {
			t.Errorf("an accepted message again: %v", err)
		}
		fatal(t, w.vendor.db.Update(t.Context(), func(tx store.Tx) error {
			step, err := tx.GetSuccession(old.String())
			if err != nil {
				return err
			}
			step.CompromisedSince = start
			return tx.PutSuccession(step)
		}))
		if _, err := w.vendor.svc.Receive(t.Context(), w.buyer.id, first); err != nil {
			t.Errorf("an accepted message again: %v", err)
		}
		_, err := deliver(raw)
		w.code(err, envelope.CodeNotTrusted)
		// Nor from whoever is not the successor.
		_, err = w.vendor.svc.Receive(t.Context(), w.third.id, raw)
		w.code(err, envelope.CodeWrongSender)
		return nil, err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_ = w.buyer.svc.Drive(ctx, id)
	w.noContract()
}

// TestC9_OfflineForTheWholeGrace: the vendor was away while the buyer moved and its old key-agreement key was destroyed. What waits
// for it is taken all the same, and answered to the key of today.
func TestC9_OfflineForTheWholeGrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.begin()
	n := 0
	w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
		if n++; n == 3 {
			w.Advance(2 * time.Second)
			w.move(w.buyer, true)
			w.buyer.oldKex = nil
		}
		return deliver(raw)
	}
	if ses := w.drive(id); ses.Phase != negotiation.PhaseInForce {
		t.Fatalf("%s %s %s", ses.Phase, ses.Code, ses.Reason)
	}
	w.agreedByLines()
}
