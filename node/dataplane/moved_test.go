// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/succession"
)

// web is where documents are: a walker over them.
type web struct {
	f       *fixture
	current map[did.DID]*did.Document
	gone    map[did.DID]did.Station
	away    bool
	walks   int
}

func (w *web) Evict(did.DID) {}

func (w *web) Walk(_ context.Context, id did.DID) (*resolver.Chain, error) {
	if w.walks++; w.away {
		return nil, &resolver.Error{Code: resolver.CodeUnreachable, DID: id}
	}
	var stations []did.Station
	at := id
	for {
		s, ok := w.gone[at]
		if !ok {
			break
		}
		stations, at = append(stations, s), s.Gone.SuccessorDID()
	}
	line, err := did.VerifyLine(append(stations, did.Station{Document: w.current[at]}), w.f.clock.Now())
	if err != nil {
		return nil, &resolver.Error{Code: resolver.CodeTransitionInvalid, DID: at, Err: err}
	}
	return &resolver.Chain{Start: id, Current: line.Current(), Assurance: line.Assurance(), Line: line, Hops: make([]did.Hop, len(stations))}, nil
}

// successor makes the company that follows another one; signer deactivates the old document.
func (w *web) successor(t *testing.T, old company, seed byte, signer did.Signer, at time.Time) company {
	t.Helper()
	key := newCompany(t, "x.test", seed, false).signer.PublicKey()
	next, err := did.SuccessorID(old.doc.ID(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := did.Deactivate(t.Context(), old.doc.Raw(), next, signer, at, did.DialectSpec)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := did.ParseDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	private, err := did.NewPrivateKey(did.Ed25519, bytesOf(seed))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := did.DocumentSpec{ID: next, Binding: did.MethodSpec{Key: key}}.Succeeding(old.doc.ID())
	if err != nil {
		t.Fatal(err)
	}
	unsigned, err := did.BuildDocument(spec)
	if err != nil {
		t.Fatal(err)
	}
	s, err := did.NewSigner(did.KeyID(next, "signing", key), private)
	if err != nil {
		t.Fatal(err)
	}
	if raw, err = did.SignDocument(t.Context(), unsigned, s, at, did.DialectSpec); err != nil {
		t.Fatal(err)
	}
	doc, err := did.ParseDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	w.gone[old.doc.ID()], w.current[next] = did.Station{Document: old.doc, Gone: gone}, doc
	return company{doc, s}
}

func bytesOf(seed byte) []byte {
	b := make([]byte, 32)
	for i := range b {
		b[i] = seed
	}
	return b
}

func newWeb(t *testing.T, f *fixture) *web {
	t.Helper()
	w := &web{f: f, current: map[did.DID]*did.Document{}, gone: map[did.DID]did.Station{}}
	for _, c := range []company{f.buyer, f.other, f.vendor} {
		w.current[c.doc.ID()] = c.doc
	}
	f.opts.Lines = succession.New(succession.Config{Walker: w, Store: f.db, Now: f.clock.Now})
	f.rebuild(t)
	return w
}

// TestC9_BuyerMoved: a contract signed under the old DID is in force for the verified successor, and for nobody else.
func TestC9_BuyerMoved(t *testing.T) {
	f := newFixture(t)
	w := newWeb(t, f)
	f.clock.Advance(time.Minute)
	if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); err != nil || w.walks != 0 {
		t.Fatalf("before the move: %v, %d documents asked for", err, w.walks)
	}
	moved := w.successor(t, f.buyer, 9, f.buyer.signer, f.clock.Now())
	out, err := f.svc.Query(t.Context(), moved.caller(), f.input())
	if err != nil {
		t.Fatal(err)
	}
	rcp, err := contract.ParseReceipt(out.Receipt)
	if err != nil {
		t.Fatal(err)
	}
	if err := rcp.VerifyCall(f.contract, moved.id(), f.plane.doc); err != nil {
		t.Error(err)
	}
	if f.usage(t) != 2 {
		t.Errorf("%d calls counted: a move is not a new budget", f.usage(t))
	}
	// A refusal tells the party what it has.
	in := f.input()
	in.Purpose = "something else"
	_, err = f.svc.Query(t.Context(), moved.caller(), in)
	if r := refused(t, err, contract.PurposeMismatch); r.Receipt == nil {
		t.Error("no receipt")
	}
	if info, err := f.svc.Describe(t.Context(), moved.caller(), f.contract.ID); err != nil || info.State != "in_force" {
		t.Errorf("%+v, %v", info, err)
	}
	if list, err := f.svc.List(t.Context(), moved.caller()); err != nil || len(list.Datasets) != 1 || len(list.Datasets[0].ContractIDs) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	// Documents that cannot be had decide nothing, and are not remembered as a no.
	w.away = true
	_, err = f.svc.Query(t.Context(), moved.caller(), f.input())
	var refusal *Refusal
	if err == nil || errors.As(err, &refusal) {
		t.Errorf("got %v, want a fault", err)
	}
	w.away = false
	if _, err := f.svc.Query(t.Context(), moved.caller(), f.input()); err != nil {
		t.Error(err)
	}
}

// TestC9_StoreIsNoGrant: a succession that only the store tells of moves nothing: not to a DID of the same subject, with a document
// that names the old one, nor to anybody else.
func TestC9_StoreIsNoGrant(t *testing.T) {
	f := newFixture(t)
	w := newWeb(t, f)
	f.clock.Advance(time.Minute)
	thief := w.successor(t, f.buyer, 9, f.buyer.signer, f.clock.Now())
	delete(w.gone, f.buyer.doc.ID()) // the buyer's document says nothing of it
	f.update(t, func(tx store.Tx) error {
		for _, next := range []string{thief.id()} {
			if err := tx.PutSuccession(store.Succession{Old: f.buyer.id(), New: next, Assurance: store.Verified, OldHash: canon.Sum(nil), NewHash: canon.Sum(nil), At: start}); err != nil {
				return err
			}
		}
		return nil
	})
	for _, c := range []company{thief, f.other} {
		_, err := f.svc.Query(t.Context(), c.caller(), f.input())
		refused(t, err, contract.NoContract)
		f.clock.Advance(time.Minute) // a claim is looked into only so often
		if _, err := f.svc.Describe(t.Context(), c.caller(), f.contract.ID); err == nil {
			t.Error("described")
		}
		f.clock.Advance(time.Minute)
		if list, err := f.svc.List(t.Context(), c.caller()); err != nil || len(list.Datasets[0].ContractIDs) != 0 {
			t.Errorf("%+v, %v", list, err)
		}
	}
	if f.src.count() != 0 {
		t.Error("something was read")
	}
}

// TestC9_OldKeyOfAThief: once its owner has said that somebody else may have a DID's key, it is let in no more, whatever is cached.
func TestC9_OldKeyOfAThief(t *testing.T) {
	f := newFixture(t)
	w := newWeb(t, f)
	f.clock.Advance(time.Minute)
	moved := w.successor(t, f.buyer, 9, f.buyer.signer, f.clock.Now())
	mark := func(old, next company, since time.Time) {
		f.update(t, func(tx store.Tx) error {
			return tx.PutSuccession(store.Succession{Old: old.id(), New: next.id(), Assurance: store.Verified, OldHash: canon.Sum(nil), NewHash: canon.Sum(nil), At: start, CompromisedSince: since})
		})
	}
	mark(f.buyer, moved, f.clock.Now())
	_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
	refused(t, err, contract.NoContract)
	if _, err := f.svc.Query(t.Context(), moved.caller(), f.input()); err != nil {
		t.Error(err)
	}
	// The vendor's key: contracts from before stay in force, later ones never were.
	next := w.successor(t, f.vendor, 8, f.vendor.signer, f.clock.Now())
	mark(f.vendor, next, start.Add(time.Second))
	if _, err := f.svc.Query(t.Context(), moved.caller(), f.input()); err != nil {
		t.Error(err)
	}
	mark(f.vendor, next, start)
	_, err = f.svc.Query(t.Context(), moved.caller(), f.input())
	refused(t, err, contract.NoContract)
}

// TestC9_VendorMoved: what the vendor signed before it moved stays; what names it and was signed by its successor counts, and what
// its old key has signed since does not.
func TestC9_VendorMoved(t *testing.T) {
	f := newFixture(t)
	w := newWeb(t, f)
	f.clock.Advance(time.Minute)
	next := w.successor(t, f.vendor, 8, f.vendor.signer, start)
	if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); err != nil {
		t.Fatal(err)
	}
	ask := func(c *contract.Contract, activated company, want contract.Code) {
		t.Helper()
		f.update(t, func(tx store.Tx) error { return tx.PutContract(f.record(t, c, activated, store.InForce)) })
		in := f.input()
		in.ContractID = c.ID
		_, err := f.svc.Query(t.Context(), f.buyer.caller(), in)
		if want != "" {
			refused(t, err, want)
		} else if err != nil {
			t.Error(err)
		}
	}
	ask(f.agreeAs(t, "with the successor", f.buyer, next), next, "")
	mixed := f.agree(t, "moved before it signed")
	mixed.Proofs = mixed.Proofs[:1]
	if _, err := mixed.Prove(t.Context(), next.signer, start); err != nil {
		t.Fatal(err)
	}
	ask(mixed, next, "")
	stranger := newCompany(t, "vendorcorp.test", 7, false) // the same subject, and no successor
	ask(f.agreeAs(t, "with a stranger", f.buyer, stranger), stranger, contract.NoContract)
	late := f.agree(t, "signed by the old key afterwards")
	late.Proofs = late.Proofs[:1]
	if _, err := late.Prove(t.Context(), f.vendor.signer, start.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	ask(late, next, contract.NoContract)
	// What the successor has activated is good, also when the key before it was lost: that is why there is a successor. What was
	// activated with the lost key is not, whoever the contract names.
	lose := func(c, next company) {
		f.update(t, func(tx store.Tx) error {
			return tx.PutSuccession(store.Succession{Old: c.id(), New: next.id(), Assurance: store.Verified, OldHash: canon.Sum(nil), NewHash: canon.Sum(nil), At: start, CompromisedSince: start})
		})
	}
	lose(f.vendor, next)
	ask(mixed, next, "")
	third := w.successor(t, next, 6, next.signer, start.Add(time.Second))
	lose(next, third)
	ask(mixed, next, contract.NoContract)
}
