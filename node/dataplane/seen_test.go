// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/store"
)

// rewrite changes the store's file as who owns the machine could, without the triggers that hold everybody else.
func (f *fixture) rewrite(t *testing.T, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", f.path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// What this process has found on record stays so for it: a revocation that is taken out of the store, or out of its view of it, and
// calls and epsilon that are given back there.
func TestInvariant7_TheStoreCannotTakeBack(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*contract.Offer)
		before func(t *testing.T, f *fixture)
		after  []string
		code   contract.Code // none: nothing is served
	}{
		"a revocation": {
			before: func(t *testing.T, f *fixture) {
				f.revoke(t)
				_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
				refused(t, err, contract.ContractRevoked)
				f.update(t, func(tx store.Tx) error {
					return tx.PutRevocation(store.Revocation{ContractID: "ctr_other", By: f.vendor.id(), Bytes: []byte("{}"), Created: start})
				})
			},
			after: []string{"DROP TRIGGER revocations_once_d", "DELETE FROM revocations WHERE contract_id <> 'ctr_other'"},
			code:  contract.ContractRevoked,
		},
		"the newest revocation": {
			before: func(t *testing.T, f *fixture) {
				f.update(t, func(tx store.Tx) error {
					return tx.PutRevocation(store.Revocation{ContractID: "ctr_other", By: f.vendor.id(), Bytes: []byte("{}"), Created: start})
				})
				if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); err != nil {
					t.Fatal(err)
				}
			},
			after: []string{"DROP TRIGGER revocations_once_d", "DELETE FROM revocations"},
		},
		"calls": {
			change: func(o *contract.Offer) { o.CallBudget = 2 },
			before: func(t *testing.T, f *fixture) {
				for range 2 {
					if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); err != nil {
						t.Fatal(err)
					}
				}
			},
			after: []string{"DELETE FROM usage"},
			code:  contract.BudgetExhausted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var change []func(*contract.Offer)
			if tt.change != nil {
				change = append(change, tt.change)
			}
			f := newFixture(t, change...)
			tt.before(t, f)
			reads := f.src.count()
			f.rewrite(t, tt.after...)
			for range 2 {
				_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
				if tt.code != "" {
					refused(t, err, tt.code)
				} else if !errors.Is(err, errBackwards) {
					t.Errorf("err = %v, want errBackwards", err)
				}
			}
			if _, err := f.svc.Describe(t.Context(), f.buyer.caller(), f.contract.ID); (err == nil) != (tt.code != "") {
				t.Errorf("describe: %v", err)
			}
			if f.src.count() != reads {
				t.Error("rows were read")
			}
		})
	}
}

// besideStore does something else between a read of a contract's standing and what is made of it, once.
type besideStore struct {
	Store
	beside func()
}

type besideTx struct {
	store.Tx
	s *besideStore
}

func (s *besideStore) View(ctx context.Context, fn func(store.Tx) error) error {
	return s.Store.View(ctx, func(tx store.Tx) error { return fn(besideTx{tx, s}) })
}

func (t besideTx) GetStanding(id string) (store.Standing, error) {
	st, err := t.Tx.GetStanding(id)
	if f := t.s.beside; f != nil {
		t.s.beside = nil
		f()
	}
	return st, err
}

// A call that reads while a revocation is committed, which another call sees first, has not seen the store go backwards.
func TestSeen_ReadBesideARevocation(t *testing.T) {
	f := newFixture(t)
	s := &besideStore{Store: f.db}
	f.opts.Store = s
	f.rebuild(t)
	s.beside = func() {
		f.update(t, func(tx store.Tx) error {
			return tx.PutRevocation(store.Revocation{ContractID: "ctr_other", By: f.vendor.id(), Bytes: []byte("{}"), Created: start})
		})
		if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); err != nil {
			t.Error(err)
		}
	}
	if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); err != nil {
		t.Error(err)
	}
	if f.usage(t) != 2 {
		t.Errorf("%d calls were counted", f.usage(t))
	}
}

// However many contracts are revoked and whenever they were made, each revocation is noticed, and the store cannot go back behind it.
func TestWatch_NoticesAllRevocations(t *testing.T) {
	f := newFixture(t)
	var kept []string
	f.opts.Remember = func(id string) error { kept = append(kept, id); return nil }
	f.rebuild(t)
	f.update(t, func(tx store.Tx) error {
		for i := range store.MaxList + 1 {
			id := fmt.Sprintf("ctr_new%d", i)
			rec := store.ContractRecord{
				ID: id, Digest: canon.Sum([]byte(id)), Role: "vendor", Bytes: []byte("{}"), State: store.InForce, ContextID: "ctx-2",
				Peer: f.other.id(), Created: start.Add(time.Hour),
			}
			if err := tx.PutContract(rec); err != nil {
				return err
			}
			rec.State = store.Revoked
			if err := tx.PutContract(rec); err != nil {
				return err
			}
			if err := tx.PutRevocation(store.Revocation{ContractID: id, By: f.vendor.id(), Bytes: []byte("{}"), Created: start}); err != nil {
				return err
			}
		}
		return nil
	})
	f.revoke(t)
	f.update(t, func(tx store.Tx) error {
		rec := f.record(t, f.contract, f.vendor, store.InForce)
		rec.State = store.Revoked
		return tx.PutContract(rec)
	})
	known, err := f.svc.notice(t.Context(), 0)
	if err != nil || len(kept) != store.MaxList+2 || !f.svc.seen.isRevoked(f.contract.ID) {
		t.Fatalf("%d are kept, this one is revoked: %v, %v", len(kept), f.svc.seen.isRevoked(f.contract.ID), err)
	}
	if again, err := f.svc.notice(t.Context(), known); err != nil || again != known || len(kept) != store.MaxList+2 {
		t.Errorf("%d after %d, %d are kept, %v", again, known, len(kept), err)
	}
	f.rewrite(t, "DROP TRIGGER revocations_once_d", "DELETE FROM revocations")
	if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); !errors.Is(err, errBackwards) {
		t.Errorf("err = %v, want errBackwards", err)
	}
}

// What could not be written is written later, and what does not fit into memory is not written again and again.
func TestSeen_RemembersAgain(t *testing.T) {
	full, tries := true, 0
	var kept []string
	s, err := newSeen(nil, func(id string) error {
		tries++
		if full {
			return errors.New("no space left on device")
		}
		kept = append(kept, id)
		return nil
	}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	s.revoke("ctr_a")
	s.revoke("ctr_b")
	s.again()
	if tries != 3 {
		t.Errorf("%d tries to write on a full disk", tries)
	}
	full = false
	s.again()
	s.again()
	if !slices.Equal(kept, []string{"ctr_a", "ctr_b"}) {
		t.Errorf("kept %q", kept)
	}
	s.most = 2
	s.revoke("ctr_c")
	s.again()
	if len(kept) != 2 {
		t.Errorf("kept %q", kept)
	}
}

// The operator's ceiling counts what was seen as well, where it is lower than the contract's budget.
func TestInvariant7_TheStoreCannotLiftTheCeiling(t *testing.T) {
	f := rowsFixture(t)
	f.opts.Ceiling.MaxRows = 10
	f.rebuild(t)
	sel := f.selection(10, "region", "order_date")
	f.src.rows = nil
	for i := range 10 {
		f.src.rows = append(f.src.rows, []any{fmt.Sprint("region ", i), start.Truncate(24 * time.Hour), int64(624)})
	}
	if _, err := f.svc.Select(t.Context(), f.buyer.caller(), sel); err != nil {
		t.Fatal(err)
	}
	f.rewrite(t, "DELETE FROM drawn")
	_, err := f.svc.Select(t.Context(), f.buyer.caller(), sel)
	if r := refused(t, err, contract.BudgetExhausted); !strings.Contains(r.Error(), "0 of 100 rows") {
		t.Error(r)
	}
}
