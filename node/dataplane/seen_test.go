// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"database/sql"
	"errors"
	"testing"

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
