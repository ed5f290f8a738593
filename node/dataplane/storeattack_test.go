// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/store"
)

// TestInvariant7_CompromisedStore rewrites the real store's file under a data plane that serves from it.
func TestInvariant7_CompromisedStore(t *testing.T) {
	set := func(t *testing.T, f *fixture, rec store.ContractRecord) {
		f.rewrite(t, fmt.Sprintf("UPDATE contracts SET digest = x'%x', bytes = x'%x', activation = x'%x', role = '%s', state = '%s' WHERE id = '%s'",
			rec.Digest[:], rec.Bytes, rec.Activation, rec.Role, rec.State, rec.ID))
	}
	// As signed, but for one thing, with a digest that fits.
	change := func(change func(*contract.Contract)) func(*testing.T, *fixture) {
		return func(t *testing.T, f *fixture) {
			rec := f.record(t, f.contract, f.vendor, store.InForce)
			reencode(t, &rec, change)
			set(t, f, rec)
		}
	}
	for name, attack := range map[string]func(*testing.T, *fixture){
		"columns with pii":   change(func(c *contract.Contract) { c.Columns = append(c.Columns, "customer_email") }),
		"a raised budget":    change(func(c *contract.Contract) { c.CallBudget = contract.MaxCallBudget }),
		"no minimum group":   change(func(c *contract.Contract) { c.MinGroupSize = 1 }),
		"another schema":     change(func(c *contract.Contract) { c.SchemaDigest = canon.Sum([]byte("another")) }),
		"another operation":  change(func(c *contract.Contract) { c.Operations = append(c.Operations, "max") }),
		"another buyer":      change(func(c *contract.Contract) { c.Parties.Buyer = "did:wba:rival.test" }),
		"one that is longer": change(func(c *contract.Contract) { c.ValidUntil = "2099-01-01T00:00:00Z" }),
		"another vendor's activation": func(t *testing.T, f *fixture) {
			rec := f.record(t, f.contract, f.vendor, store.InForce)
			rec.Activation = f.record(t, f.contract, f.other, store.InForce).Activation
			set(t, f, rec)
		},
		"an invented contract between its own": func(t *testing.T, f *fixture) {
			c := f.agreeAs(t, "accept", f.buyer, f.other)
			set(t, f, f.record(t, c, f.other, store.InForce))
		},
		"an invented contract for this vendor": func(t *testing.T, f *fixture) {
			forged := f.agreeAs(t, "accept", f.buyer, f.other)
			change(func(c *contract.Contract) {
				c.CallBudget, c.Proofs[1].ProofValue = 1000, forged.Proofs[1].ProofValue
			})(t, f)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); err != nil {
				t.Fatal(err)
			}
			attack(t, f)
			for range 2 {
				_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
				refused(t, err, contract.NoContract)
			}
			if f.src.count() != 1 || f.usage(t) != 1 {
				t.Errorf("%d reads, %d calls", f.src.count(), f.usage(t))
			}
		})
	}
}

// TestRevocationsAreWrittenOnce: the store itself lets nobody change or delete one, unless he takes its triggers away first.
func TestRevocationsAreWrittenOnce(t *testing.T) {
	f := newFixture(t)
	f.revoke(t)
	db, err := sql.Open("sqlite", f.path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range []string{"DELETE FROM revocations", "UPDATE revocations SET contract_id = 'ctr_other'"} {
		if _, err := db.ExecContext(t.Context(), s); err == nil || !strings.Contains(err.Error(), "written once") {
			t.Errorf("%s: %v", s, err)
		}
	}
}

const unrevoke = "DROP TRIGGER revocations_once_d; DELETE FROM revocations"

// TestInvariant7_RevocationSeenOnce: a revocation that this data plane has seen at any time stays in force, also for the process
// after it.
func TestInvariant7_RevocationSeenOnce(t *testing.T) {
	for name, see := range map[string]func(t *testing.T, f *fixture){
		"before the answer left": func(t *testing.T, f *fixture) {
			f.src.while = func(context.Context) error { f.src.while = nil; f.revoke(t); return nil }
			_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
			refused(t, err, contract.ContractRevoked)
		},
		"in between two calls": func(t *testing.T, f *fixture) {
			if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); err != nil {
				t.Fatal(err)
			}
			f.revoke(t)
			f.update(t, func(tx store.Tx) error {
				rec, err := tx.GetContract(f.contract.ID)
				if err != nil {
					return err
				}
				rec.State = store.Revoked
				return tx.PutContract(rec)
			})
			if _, err := f.svc.notice(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		},
		"by a stranger's call": func(t *testing.T, f *fixture) {
			f.revoke(t)
			_, err := f.svc.Query(t.Context(), f.other.caller(), f.input())
			refused(t, err, contract.NoContract)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			var kept []string
			f.opts.Remember = func(id string) error { kept = append(kept, id); return nil }
			f.rebuild(t)
			see(t, f)
			if !slices.Equal(kept, []string{f.contract.ID}) {
				t.Fatalf("remembered %v", kept)
			}
			f.rewrite(t, unrevoke, "INSERT INTO revocations VALUES ('ctr_other', 'did:wba:x.test', '{}', 0)", "UPDATE contracts SET state = 'in_force'")
			reads := f.src.count()
			for i := range 2 {
				_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
				refused(t, err, contract.ContractRevoked)
				if i == 0 { // started again
					f.opts.Revoked = kept
					f.rebuild(t)
				}
			}
			if f.src.count() != reads {
				t.Error("rows were read")
			}
		})
	}
}

// TestInvariant7_RevocationUnderWay: a revocation that one call has seen, and that is gone when another is about to answer.
func TestInvariant7_RevocationUnderWay(t *testing.T) {
	f := newFixture(t)
	f.src.while = func(context.Context) error {
		f.revoke(t)
		_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
		refused(t, err, contract.ContractRevoked)
		f.rewrite(t, unrevoke)
		return nil
	}
	_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
	refused(t, err, contract.ContractRevoked)
}

// TestInvariant7_CountersGivenBack: what calls have taken of a rate's window and of the row budget stays taken.
func TestInvariant7_CountersGivenBack(t *testing.T) {
	t.Run("rate", func(t *testing.T) {
		f := newFixture(t, func(o *contract.Offer) { o.Version, o.Rate = contract.Version2, contract.Rate{Calls: 2, Seconds: 60} })
		for range 2 {
			if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); err != nil {
				t.Fatal(err)
			}
		}
		f.rewrite(t, "DELETE FROM drawn")
		_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
		refused(t, err, contract.RateLimited)
		f.clock.Advance(time.Minute)
		if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); err != nil {
			t.Errorf("in the next window: %v", err)
		}
		f.clock.Set(start) // a clock that goes back opens no window again
		if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); err != nil {
			t.Errorf("the second call of the newest window: %v", err)
		}
		_, err = f.svc.Query(t.Context(), f.buyer.caller(), f.input())
		refused(t, err, contract.RateLimited)
	})
	t.Run("rows", func(t *testing.T) {
		f := rowsFixture(t) // each answer has 2 of the 100
		for range 3 {
			if _, err := f.svc.Select(t.Context(), f.buyer.caller(), f.selection(2, "region", "order_date")); err != nil {
				t.Fatal(err)
			}
		}
		f.rewrite(t, "DELETE FROM drawn")
		_, err := f.svc.Select(t.Context(), f.buyer.caller(), f.selection(95, "region", "order_date"))
		refused(t, err, contract.BudgetExhausted)
	})
	t.Run("by many other contracts", func(t *testing.T) {
		f := newFixture(t, func(o *contract.Offer) { o.CallBudget = 1 })
		if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); err != nil {
			t.Fatal(err)
		}
		f.rewrite(t, "DELETE FROM usage")
		for i := range maxVerdicts + 1 { // that the store shows, and that nobody has signed
			f.svc.seen.standing(&facts{Standing: store.Standing{Contract: store.ContractRecord{ID: fmt.Sprint("ctr_", i)}}, found: true})
		}
		_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
		refused(t, err, contract.BudgetExhausted)
	})
}
