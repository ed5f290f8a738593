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
func replaceable(tb testing.TB, dir string) (*world, contract.Reference) {
	tb.Helper()
	w := newWorldIn(tb, dir)
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
	id, err := w.buyer.svc.StartAmending(context.Background(), w.vendor.doc, v, buyerNeeds, old)
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

// TestC15_Amend_BothOrNeither crashes each side at each of its commits, before and after it: at every moment either the old contract
// is in force or the new one, and in the end the new one at both.
func TestC15_Amend_BothOrNeither(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"buyer", "vendor"} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after commit %v", side, after), func(t *testing.T) {
				t.Parallel()
				for n, hit := 1, true; hit; n++ {
					w, old := replaceable(t, t.TempDir())
					id := w.amend(old)
					p := w.buyer
					if side == "vendor" {
						p = w.vendor
					}
					commits, down := 0, false
					hit = false
					p.store = &fragile{p.db, func() (bool, bool) {
						commits++
						now := commits == n
						hit, down = hit || now, down || now
						return now && !after, now && after
					}}
					w.serve(p)
					w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
						reply, err := deliver(raw)
						if down && side == "vendor" {
							down = false
							w.vendor.standing(t, old)
							w.restart(w.vendor)
						}
						return reply, err
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					if err := w.buyer.svc.Drive(ctx, id); err != nil {
						if !down || side != "buyer" {
							t.Fatal(err)
						}
						w.buyer.standing(t, old)
						w.restart(w.buyer)
						fatal(t, w.buyer.svc.Drive(ctx, id))
					}
					cancel()
					if ses := w.buyer.session(t, id); ses.Phase != negotiation.PhaseInForce {
						t.Fatalf("commit %d: %s %s %s", n, ses.Phase, ses.Code, ses.Reason)
					}
					if !w.buyer.standing(t, old) || !w.vendor.standing(t, old) {
						t.Errorf("commit %d: the old contract stays", n)
					}
				}
			})
		}
	}
}

// TestC15_Amend_Refused: what is not in force between the two is not replaced, whenever that shows, and the old contract stays as it is.
func TestC15_Amend_Refused(t *testing.T) {
	t.Parallel()
	ended := func(w *world, old contract.Reference) {
		fatal(t, w.vendor.db.Update(context.Background(), func(tx store.Tx) error {
			return replacing{}.Replaced(context.Background(), tx, &contract.Contract{Scope: contract.Scope{Amends: old}})
		}))
	}
	for name, change := range map[string]func(w *world, old *contract.Reference){
		"another digest": func(_ *world, old *contract.Reference) { old.Digest = canon.Sum([]byte("other terms")) },
		"unknown":        func(_ *world, old *contract.Reference) { old.ID = contract.ID(canon.Sum([]byte("nothing"))) },
		"ended before":   func(w *world, old *contract.Reference) { ended(w, *old) },
		"a vendor that replaces none": func(w *world, _ *contract.Reference) {
			w.vendor.amendments = nil
			w.serve(w.vendor)
		},
		"ended before the activation": func(w *world, old *contract.Reference) {
			at := *old
			w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
				for _, rec := range w.vendor.contractRecords(t) {
					list := w.vendor.count(t, "contract.built")
					if rec.ID == at.ID && rec.State == store.InForce && list == 2 {
						ended(w, at) // the draft is out, and the buyer's proof comes
					}
				}
				return deliver(raw)
			}
		},
		"a vendor of version 2": func(w *world, _ *contract.Reference) { speaks(w.vendor, "2", "1") },
		"a buyer of version 1":  func(w *world, _ *contract.Reference) { speaks(w.buyer, "1") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, old := replaceable(t, t.TempDir())
			named := old
			change(w, &named)
			ses := w.drive(w.amend(named))
			if ses.Phase != negotiation.PhaseRejected || ses.Code != policy.CodeNotReplaceable {
				t.Fatalf("%s: %s %s", ses.Phase, ses.Code, ses.Reason)
			}
			if strings.Contains(name, "version") && !strings.Contains(ses.Reason, "version 3 can") {
				t.Errorf("reason: %s", ses.Reason)
			}
			for _, p := range []*party{w.buyer, w.vendor} {
				if recs := p.contractRecords(t); len(recs) != 1 {
					t.Errorf("%d contracts", len(recs))
				}
			}
			if w.buyer.contractRecords(t)[0].State != store.InForce {
				t.Error("the buyer's old contract has ended")
			}
		})
	}
}
