// SPDX-License-Identifier: Apache-2.0

package negotiation_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/negotiation/policy"
	"github.com/treaty-node/treaty/node/store"
)

// replacing ends the old contract's record and no more.
type replacing struct{}

func (replacing) Replaceable(tx store.Tx, old contract.Reference, buyer did.DID) (string, error) {
	rec, err := tx.GetContract(old.ID)
	if err != nil || rec.State != store.InForce || rec.Digest != old.Digest || rec.Peer != buyer.String() {
		return "it is not in force", nil //nolint:nilerr // an unknown contract is none
	}
	return "", nil
}

func (replacing) Replaced(_ context.Context, tx store.Tx, c *contract.Contract) error {
	rec, err := tx.GetContract(c.Amends.ID)
	if err != nil {
		return err
	}
	rec.State = store.Revoked
	return tx.PutContract(rec)
}

// replaceable is a world with a contract in force that can be replaced.
func replaceable(tb testing.TB) (*world, contract.Reference) {
	tb.Helper()
	w := newWorld(tb)
	for _, p := range []*party{w.buyer, w.vendor} {
		p.amendments = replacing{}
		w.serve(p)
	}
	if ses := w.drive(w.begin()); ses.Phase != negotiation.PhaseInForce {
		tb.Fatalf("%s: %s %s", ses.Phase, ses.Code, ses.Reason)
	}
	rec := w.buyer.contractRecords(tb)[0]
	return w, contract.Reference{ID: rec.ID, Digest: rec.Digest}
}

func (w *world) amend(old contract.Reference) string {
	w.tb.Helper()
	v, err := w.vendor.doc.Verify(w.Now())
	fatal(w.tb, err)
	id, err := w.buyer.svc.StartAmending(context.Background(), w.vendor.doc, v, buyerNeeds, negotiation.Instead{Of: old})
	fatal(w.tb, err)
	return id
}

// standing says which contract is in force at a party, and fails when it is not exactly one of the two.
func (p *party) standing(tb testing.TB, old contract.Reference) (replaced bool) {
	tb.Helper()
	var oldIn, newIn bool
	for _, rec := range p.contractRecords(tb) {
		in := rec.State == store.InForce
		if rec.ID == old.ID {
			oldIn = in
			continue
		}
		c, err := contract.Parse(rec.Bytes)
		fatal(tb, err)
		if c.Amends != old || c.Version != contract.Version3 {
			tb.Errorf("version %d amends %+v", c.Version, c.Amends)
		}
		newIn = newIn || in
	}
	if oldIn == newIn {
		tb.Errorf("%s: the old contract in force: %v, the new one: %v", p.id, oldIn, newIn)
	}
	return newIn
}

// replacingStore is a store that a crash hits before or after the commit that ends the old contract and stores the new one.
type replacingStore struct {
	store.Store
	after bool
	down  *bool
	died  func()
}

func (f replacingStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	hit := false
	err := f.Store.Update(ctx, func(tx store.Tx) error {
		if err := fn(puttingTx{tx, &hit}); err != nil {
			return err
		}
		if hit && !f.after {
			return errCrash
		}
		return nil
	})
	if hit {
		*f.down = true
		f.died()
	}
	if err == nil && hit {
		return errCrash
	}
	return err
}

type puttingTx struct {
	store.Tx
	hit *bool
}

func (t puttingTx) PutContract(c store.ContractRecord) error {
	*t.hit = true
	return t.Tx.PutContract(c)
}

// TestC15_Amend_BothOrNeither crashes each side before and after the commit in which one contract takes the other's place: at that
// moment either the old one is in force or the new one, and in the end the new one at both. (Every other commit of a negotiation is
// crashed by TestInvariant8_RestartInEveryPhase.)
func TestC15_Amend_BothOrNeither(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"buyer", "vendor"} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after commit %v", side, after), func(t *testing.T) {
				t.Parallel()
				w, old := replaceable(t)
				id := w.amend(old)
				p := w.buyer
				if side == "vendor" {
					p = w.vendor
				}
				down, crashes := false, 0
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				died := func() {}
				if side == "buyer" {
					died = cancel
				}
				p.store = replacingStore{p.db, after, &down, died}
				w.serve(p)
				revive := func() {
					if !down {
						return
					}
					down = false
					crashes++
					if replaced := p.standing(t, old); replaced != after {
						t.Errorf("replaced: %v", replaced)
					}
					w.restart(p)
				}
				if side == "vendor" {
					w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
						reply, err := deliver(raw)
						revive()
						return reply, err
					}
				}
				if err := w.buyer.svc.Drive(ctx, id); err != nil && !down {
					t.Fatal(err)
				}
				revive()
				if ses := w.drive(id); ses.Phase != negotiation.PhaseInForce || crashes != 1 {
					t.Fatalf("%s: %s %s after %d crashes", ses.Phase, ses.Code, ses.Reason, crashes)
				}
				if !w.buyer.standing(t, old) || !w.vendor.standing(t, old) {
					t.Error("the old contract stays")
				}
			})
		}
	}
}

// TestC15_Amend_Refused: what is not in force between the two is not replaced, whenever that shows, and the old contract stays as it is.
func TestC15_Amend_Refused(t *testing.T) {
	t.Parallel()
	w, old := replaceable(t)
	refused := func(name string, named contract.Reference, reason string) {
		t.Helper()
		ses := w.drive(w.amend(named))
		if ses.Phase != negotiation.PhaseRejected || ses.Code != policy.CodeNotReplaceable || !strings.Contains(ses.Reason, reason) {
			t.Fatalf("%s: %s: %s %s", name, ses.Phase, ses.Code, ses.Reason)
		}
		for _, p := range []*party{w.buyer, w.vendor} {
			if recs := p.contractRecords(t); len(recs) != 1 {
				t.Errorf("%s: %d contracts", name, len(recs))
			}
		}
		if w.buyer.contractRecords(t)[0].State != store.InForce {
			t.Errorf("%s: the buyer's old contract has ended", name)
		}
	}
	const notBetween = "no contract"
	refused("another digest", contract.Reference{ID: old.ID, Digest: canon.Sum([]byte("other terms"))}, notBetween)
	refused("unknown", contract.Reference{ID: contract.ID(canon.Sum([]byte("nothing"))), Digest: old.Digest}, notBetween)

	w.vendor.amendments = nil
	w.serve(w.vendor)
	refused("a vendor that replaces none", old, notBetween)
	w.vendor.amendments = replacing{}
	w.serve(w.vendor)

	meta := w.vendor.changeMeta
	speaks(w.vendor, "2", "1")
	refused("a vendor of version 2", old, "version 3 can")
	w.vendor.changeMeta = meta
	speaks(w.buyer, "1")
	refused("a buyer of version 1", old, "version 3 can")
	w.buyer.changeMeta = nil

	drafts := w.vendor.count(t, ledger.ContractBuilt)
	w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
		if w.vendor.count(t, ledger.ContractBuilt) > drafts { // the draft is out, and this is the buyer's proof
			w.wire = nil
			fatal(t, w.vendor.db.Update(t.Context(), func(tx store.Tx) error {
				return replacing{}.Replaced(t.Context(), tx, &contract.Contract{Scope: contract.Scope{Amends: old}})
			}))
		}
		return deliver(raw)
	}
	refused("ended before the activation", old, "nothing new is in force")
	refused("ended before the offer", old, notBetween)
}

// TestC15_Amend_TwoAtOnce: of two negotiations about replacing one contract, the vendor's commits decide. The second comes too late
// with its proof, and one contract is in force at both.
func TestC15_Amend_TwoAtOnce(t *testing.T) {
	t.Parallel()
	w, old := replaceable(t)
	drafts := w.vendor.count(t, ledger.ContractBuilt)
	var won negotiation.Session
	w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
		if w.vendor.count(t, ledger.ContractBuilt) > drafts { // the draft is out, and this is the buyer's proof
			w.wire = nil
			won = w.drive(w.amend(old))
		}
		return deliver(raw)
	}
	lost := w.drive(w.amend(old))
	if won.Phase != negotiation.PhaseInForce || lost.Phase != negotiation.PhaseRejected || lost.Code != policy.CodeNotReplaceable {
		t.Errorf("%s; %s: %s %s", won.Phase, lost.Phase, lost.Code, lost.Reason)
	}
	for _, p := range []*party{w.buyer, w.vendor} {
		if n := len(p.contractRecords(t)); n != 2 || !p.standing(t, old) {
			t.Errorf("%s: %d contracts", p.id, n)
		}
	}
}
