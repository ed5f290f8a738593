// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

func TestAnswer(t *testing.T) {
	f := newFixture(t)
	f.src.while = func(context.Context) error {
		if n := f.usage(t); n != 1 {
			t.Errorf("%d calls counted when the engine reads, want 1", n)
		}
		return nil
	}
	out, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
	if err != nil {
		t.Fatal(err)
	}
	structured, err := canon.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	res, rcp, err := datatools.ParseOutput(structured)
	if err != nil {
		t.Fatal(err)
	}
	want := &datatools.Result{
		Columns: []datatools.Column{{Name: "region", Type: "text"}, {Name: "avg_order_value", Type: "decimal(38,6)"}, {Name: "count", Type: "integer"}},
		Rows:    [][]any{{"North", "111.444000", float64(60)}}, UsedRows: 60, TotalRows: 624,
	}
	if !reflect.DeepEqual(res, want) {
		t.Errorf("result %+v, want %+v", res, want)
	}
	if err := rcp.VerifyFor(f.contract, f.plane.doc); err != nil {
		t.Error(err)
	}
	req := f.input().Request(f.buyer.id())
	if d, err := req.Digest(); err != nil || !d.Equal(rcp.QueryDigest) {
		t.Errorf("query digest %v, %v", d, err)
	}
	// The receipt is on record, and the event beside it.
	err = f.db.View(t.Context(), func(tx store.Tx) error {
		stored, err := tx.GetReceipt(rcp.ID)
		if err == nil && string(stored.Bytes) != string(out.Receipt) {
			t.Error("another receipt is on record")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	events := f.events(t, ledger.CallAnswered)
	var call ledger.Call
	if len(events) != 1 || json.Unmarshal(events[0].Data, &call) != nil || call.UsedRows != 60 || call.ResultDigest != rcp.ResultDigest || events[0].Contract != f.contract.ID {
		t.Errorf("events %+v", events)
	}
}

// TestInvariant7_NoReadBeforeYes: whatever is refused before the engine runs reads nothing and counts nothing, and the caller
// gets the code, the contract's terms where it is a party, and that nothing was read (C10).
func TestInvariant7_NoReadBeforeYes(t *testing.T) {
	agg := func(op, col string) []datatools.AggregateInput {
		return []datatools.AggregateInput{{Op: op, Column: col}}
	}
	tests := []struct {
		name   string
		change func(*datatools.QueryInput)
		before func(t *testing.T, f *fixture)
		who    func(*fixture) company
		code   contract.Code
		says   string
	}{
		{name: "unknown column", change: func(in *datatools.QueryInput) { in.Aggregates = agg("avg", "salary") }, code: contract.UnknownColumn, says: `"salary"`},
		{name: "no such contract", change: func(in *datatools.QueryInput) { in.ContractID = "ctr_none" }, code: contract.NoContract, says: `"ctr_none"`},
		{name: "stranger", who: func(f *fixture) company { return f.other }, code: contract.NoContract},
		{name: "the vendor itself", who: func(f *fixture) company { return f.vendor }, code: contract.NoContract},
		{name: "revoked", before: func(t *testing.T, f *fixture) { f.revoke(t) }, code: contract.ContractRevoked},
		{name: "expired", before: func(_ *testing.T, f *fixture) { f.clock.Advance(25 * time.Hour) }, code: contract.ContractExpired},
		{name: "column not granted", change: func(in *datatools.QueryInput) { in.Aggregates = agg("count", "customer_email") }, code: contract.ScopeDenied, says: `"customer_email"`},
		{name: "operation not granted", change: func(in *datatools.QueryInput) { in.Aggregates = agg("max", "order_value") }, code: contract.ScopeDenied, says: `"max"`},
		{name: "filter on a column that is not granted", change: func(in *datatools.QueryInput) {
			in.Filters = []contract.Condition{{Column: "channel", Op: "=", Value: contract.TextValue("web")}}
		}, code: contract.ScopeDenied},
		{name: "order by a column that is not granted", change: func(in *datatools.QueryInput) { in.OrderBy = []datatools.OrderInput{{By: "channel"}} }, code: contract.ScopeDenied},
		{name: "another purpose", change: func(in *datatools.QueryInput) { in.Purpose = "marketing" }, code: contract.PurposeMismatch},
		{name: "another dataset", change: func(in *datatools.QueryInput) { in.Dataset = "people" }, code: contract.ScopeDenied},
		{name: "no aggregate", change: func(in *datatools.QueryInput) { in.Aggregates = nil }, code: contract.InvalidQuery},
		{name: "budget used up", before: func(t *testing.T, f *fixture) {
			f.update(t, func(tx store.Tx) error {
				for range 10 {
					if _, err := tx.Reserve(f.contract.ID, 10); err != nil {
						return err
					}
				}
				return nil
			})
		}, code: contract.BudgetExhausted},
		{name: "not activated", before: func(t *testing.T, f *fixture) {
			f.contract = f.agree(t, "second")
			f.put(t, f.contract, store.AwaitingActivation)
		}, code: contract.NoContract},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			if tt.before != nil {
				tt.before(t, f)
			}
			who, in := f.buyer, f.input()
			if tt.change != nil {
				tt.change(&in)
			}
			if tt.who != nil {
				who = tt.who(f)
			}
			used := f.usage(t)
			_, err := f.svc.Query(t.Context(), who.caller(), in)
			r := refused(t, err, tt.code)
			text := r.Error()
			if !strings.HasPrefix(text, string(tt.code)+": ") || !strings.Contains(text, tt.says) || !strings.HasSuffix(text, "Nothing was read.") {
				t.Errorf("text %q", text)
			}
			party := who.id() == f.buyer.id() && in.ContractID == f.contract.ID
			for _, told := range []string{purpose, `"order_value"`, "grants"} {
				if strings.Contains(text, told) != party {
					t.Errorf("party %v is told %q: %q", party, told, text)
				}
			}
			if f.src.count() != 0 || f.usage(t) != used {
				t.Errorf("%d reads, %d calls counted (before: %d)", f.src.count(), f.usage(t), used)
			}
			rcp, err := contract.ParseReceipt(r.Receipt)
			if err != nil || rcp.Code != tt.code || rcp.Verify(f.plane.doc) != nil || rcp.ContractDigest.IsZero() == party {
				t.Errorf("receipt %+v, %v", rcp, err)
			}
			events := f.events(t, ledger.CallRefused)
			var logged ledger.CallRefusal
			if len(events) != 1 || json.Unmarshal(events[0].Data, &logged) != nil || logged.Code != string(tt.code) || logged.Caller != who.id() {
				t.Errorf("events %+v", events)
			}
		})
	}
}

// The log knows what a stranger is not told.
func TestStrangerLearnsNothing(t *testing.T) {
	f := newFixture(t)
	_, errMine := f.svc.Query(t.Context(), f.other.caller(), f.input())
	_, errNone := f.svc.Query(t.Context(), f.other.caller(), f.input(func(in *datatools.QueryInput) { in.ContractID = "ctr_AAAAAAAAAAAAAAAAAAAAAA" }))
	a, b := refused(t, errMine, contract.NoContract).Error(), refused(t, errNone, contract.NoContract).Error()
	if strings.ReplaceAll(a, f.contract.ID, "ctr_AAAAAAAAAAAAAAAAAAAAAA") != b {
		t.Errorf("an existing contract is told apart: %q and %q", a, b)
	}
	if logged := string(f.events(t, ledger.CallRefused)[0].Data); !strings.Contains(logged, "somebody else's") {
		t.Errorf("log %s", logged)
	}
	if _, err := f.svc.Describe(t.Context(), f.other.caller(), f.contract.ID); refused(t, err, contract.NoContract).Error() != a {
		t.Errorf("describe_contract says otherwise: %v", err)
	}
	list, err := f.svc.List(t.Context(), f.other.caller())
	if err != nil || len(list.Datasets) != 1 || list.Datasets[0].Columns != nil || list.Datasets[0].ContractIDs != nil {
		t.Errorf("list %+v, %v", list, err)
	}
}

// A compromised node's store: the data plane believes signatures, not records.
func TestAlteredStoreIsRefused(t *testing.T) {
	tests := map[string]func(t *testing.T, f *fixture, rec *store.ContractRecord){
		"wider columns": func(t *testing.T, _ *fixture, rec *store.ContractRecord) {
			reencode(t, rec, func(c *contract.Contract) { c.Columns = append(c.Columns, "customer_email") })
		},
		"raised budget": func(t *testing.T, _ *fixture, rec *store.ContractRecord) {
			reencode(t, rec, func(c *contract.Contract) { c.CallBudget = 1_000_000 })
		},
		"longer validity": func(t *testing.T, _ *fixture, rec *store.ContractRecord) {
			reencode(t, rec, func(c *contract.Contract) { c.ValidUntil = "2036-01-01T00:00:00Z" })
		},
		"one bit": func(_ *testing.T, _ *fixture, rec *store.ContractRecord) {
			rec.Bytes[len(rec.Bytes)/2] ^= 1
		},
		"one proof": func(t *testing.T, _ *fixture, rec *store.ContractRecord) {
			reencode(t, rec, func(c *contract.Contract) { c.Proofs = c.Proofs[:1] })
		},
		"no proofs": func(t *testing.T, _ *fixture, rec *store.ContractRecord) {
			reencode(t, rec, func(c *contract.Contract) { c.Proofs = nil })
		},
		"another digest":   func(_ *testing.T, _ *fixture, rec *store.ContractRecord) { rec.Digest[0] ^= 1 },
		"no activation":    func(_ *testing.T, _ *fixture, rec *store.ContractRecord) { rec.Activation = nil },
		"bought, not sold": func(_ *testing.T, _ *fixture, rec *store.ContractRecord) { rec.Role = "buyer" },
		"activation of another contract": func(t *testing.T, f *fixture, rec *store.ContractRecord) {
			rec.Activation = f.record(t, f.agree(t, "another"), f.vendor, store.InForce).Activation
		},
		"activation by somebody else": func(t *testing.T, f *fixture, rec *store.ContractRecord) {
			rec.Activation = f.record(t, f.contract, f.other, store.InForce).Activation
		},
		"invented contract of a vendor that is not served": func(t *testing.T, f *fixture, rec *store.ContractRecord) {
			c := f.agreeAs(t, "accept", f.buyer, f.other)
			*rec = f.record(t, c, f.other, store.InForce)
		},
		"proof by somebody else's key": func(t *testing.T, f *fixture, rec *store.ContractRecord) {
			forged := f.agreeAs(t, "accept", f.buyer, f.other)
			reencode(t, rec, func(c *contract.Contract) { c.Proofs[1].ProofValue = forged.Proofs[1].ProofValue })
		},
		"another data plane's contract": func(t *testing.T, f *fixture, rec *store.ContractRecord) {
			c := f.agree(t, "accept", func(o *contract.Offer) { o.DataPlane.DID = f.other.id() })
			*rec = f.record(t, c, f.vendor, store.InForce)
		},
	}
	for name, alter := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			altered := &alteredStore{Store: f.db}
			f.opts.Store = altered
			f.rebuild(t)
			// First a good call, so that a verdict is remembered that must not help the altered record.
			if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); err != nil {
				t.Fatal(err)
			}
			altered.contract = func(rec *store.ContractRecord) { alter(t, f, rec) }
			_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
			r := refused(t, err, contract.NoContract)
			if f.src.count() != 1 {
				t.Error("rows were read under an altered record")
			}
			if strings.Contains(r.Error(), "order_value") {
				t.Errorf("the altered record's terms are told: %s", r.Error())
			}
		})
	}
}

// What is revoked or ends while the query runs is not released.
func TestRecheckBeforeRelease(t *testing.T) {
	for name, tt := range map[string]struct {
		while func(t *testing.T, f *fixture)
		code  contract.Code
	}{
		"revoked": {func(t *testing.T, f *fixture) { f.revoke(t) }, contract.ContractRevoked},
		"expired": {func(_ *testing.T, f *fixture) { f.clock.Advance(48 * time.Hour) }, contract.ContractExpired},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.src.while = func(context.Context) error { tt.while(t, f); return nil }
			out, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
			refused(t, err, tt.code)
			if out != nil || len(f.events(t, ledger.CallAnswered)) != 0 {
				t.Error("the answer was released")
			}
			if f.usage(t) != 1 {
				t.Error("the call is not counted")
			}
		})
	}
}

func TestRevokedBetweenDecisionAndReservation(t *testing.T) {
	f := newFixture(t)
	f.opts.Store = &revokingStore{Store: f.db, revoke: sync.OnceFunc(func() { f.revoke(t) })}
	f.rebuild(t)
	_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
	refused(t, err, contract.ContractRevoked)
	if f.src.count() != 0 || f.usage(t) != 0 {
		t.Errorf("%d reads, %d calls", f.src.count(), f.usage(t))
	}
}

// A call goes by what the one before it found, and the transaction that reserves it finds out what has changed.
func TestWhatIsKnownIsLookedUpAgain(t *testing.T) {
	lost := func(t *testing.T, f *fixture, id string) {
		f.update(t, func(tx store.Tx) error {
			return tx.PutSuccession(store.Succession{
				Old: id, New: f.other.id(), Assurance: store.Verified, OldHash: canon.Sum(nil), NewHash: canon.Sum(nil), At: start, CompromisedSince: start.Add(-time.Hour),
			})
		})
	}
	for name, tt := range map[string]struct {
		change func(t *testing.T, f *fixture)
		code   contract.Code // none: the call is answered
	}{
		"nothing": {change: func(*testing.T, *fixture) {}},
		"revoked": {func(t *testing.T, f *fixture) { f.revoke(t) }, contract.ContractRevoked},
		"another is revoked": {change: func(t *testing.T, f *fixture) {
			f.update(t, func(tx store.Tx) error {
				return tx.PutRevocation(store.Revocation{ContractID: "ctr_other", By: f.vendor.id(), Bytes: []byte("{}"), Created: start})
			})
		}},
		"expired":          {func(_ *testing.T, f *fixture) { f.clock.Advance(48 * time.Hour) }, contract.ContractExpired},
		"the caller's key": {func(t *testing.T, f *fixture) { lost(t, f, f.buyer.id()) }, contract.NoContract},
		"the vendor's key": {func(t *testing.T, f *fixture) { lost(t, f, f.vendor.id()) }, contract.NoContract},
		"moved to another state": {func(t *testing.T, f *fixture) {
			f.update(t, func(tx store.Tx) error {
				rec, err := tx.GetContract(f.contract.ID)
				if err != nil {
					return err
				}
				rec.State = store.Revoked
				return tx.PutContract(rec)
			})
		}, contract.ContractRevoked},
		"used up": {func(t *testing.T, f *fixture) {
			f.update(t, func(tx store.Tx) error {
				for range f.contract.CallBudget - 1 {
					if _, err := tx.Reserve(f.contract.ID, f.contract.CallBudget); err != nil {
						return err
					}
				}
				return nil
			})
		}, contract.BudgetExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); err != nil {
				t.Fatal(err)
			}
			if f.svc.known.Len() != 1 {
				t.Fatal("nothing is known")
			}
			tt.change(t, f)
			reads, used := f.src.count(), f.usage(t)
			for call := range 2 {
				entered := f.svc.slots.entered
				_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
				if tt.code == "" {
					if err != nil {
						t.Fatal(err)
					}
					continue
				}
				refused(t, err, tt.code)
				if f.src.count() != reads || f.usage(t) != used {
					t.Error("a refused call was read for or charged")
				}
				if call > 0 && f.svc.slots.entered != entered {
					t.Error("a call waited for a place before it was refused")
				}
			}
		})
	}
}

// revokingStore revokes after the contract was read.
type revokingStore struct {
	Store
	revoke func()
}

func (s *revokingStore) View(ctx context.Context, fn func(store.Tx) error) error {
	defer s.revoke()
	return s.Store.View(ctx, fn)
}

// However often other contracts are revoked, a call waits for one place only and is answered.
func TestOtherRevocations(t *testing.T) {
	f := newFixture(t)
	n := 0
	f.opts.Store = &revokingStore{Store: f.db, revoke: func() {
		n++
		f.update(t, func(tx store.Tx) error {
			return tx.PutRevocation(store.Revocation{ContractID: fmt.Sprint("ctr_", n), By: f.vendor.id(), Bytes: []byte("{}"), Created: start})
		})
	}}
	f.rebuild(t)
	for i := range uint64(3) {
		if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); err != nil {
			t.Fatal(err)
		}
		if f.svc.slots.entered != i+1 || n != int(i+1) {
			t.Errorf("after %d calls, %d places were taken, and the contract was read %d times", i+1, f.svc.slots.entered, n)
		}
	}
	if len(f.svc.slots.calls)+len(f.svc.slots.buyers)+len(f.svc.slots.all)+len(f.svc.flights.m) != 0 {
		t.Error("a place is left taken")
	}
}

func TestGroupTooSmallCounts(t *testing.T) {
	f := newFixture(t)
	f.src.rows = nil
	_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
	r := refused(t, err, contract.GroupTooSmall)
	if !strings.HasSuffix(r.Error(), "Nothing was released.") || !strings.Contains(r.Error(), "at least 5 subjects") {
		t.Errorf("text %q", r.Error())
	}
	if f.usage(t) != 1 {
		t.Error("probing is free")
	}
}

// 64 callers cannot overspend a budget by one.
func TestBudgetUnderConcurrency(t *testing.T) {
	f := newFixture(t)
	var answered, exhausted atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			_, err := f.svc.Query(context.Background(), f.buyer.caller(), f.input())
			var r *Refusal
			switch {
			case err == nil:
				answered.Add(1)
			case errors.As(err, &r) && r.Decision.Code == contract.BudgetExhausted:
				exhausted.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if answered.Load() != 10 || exhausted.Load() != 54 || f.src.count() != 10 {
		t.Errorf("%d answered, %d exhausted, %d reads", answered.Load(), exhausted.Load(), f.src.count())
	}
}

func TestCeiling(t *testing.T) {
	email := func(o *contract.Offer) {
		o.Columns = append(o.Columns, "customer_email")
		o.Operations = append(o.Operations, "count_distinct")
	}
	count := func(in *datatools.QueryInput) {
		in.Aggregates = []datatools.AggregateInput{{Op: "count_distinct", Column: "customer_email"}}
	}
	tests := []struct {
		name    string
		ceiling Ceiling
		offer   func(*contract.Offer)
		input   func(*datatools.QueryInput)
		says    string // "": allowed
	}{
		{"a class that never leaves", Ceiling{DenyClasses: []string{"pii"}}, email, count, `class "pii"`},
		{"without it", Ceiling{}, email, count, ""},
		{"a column that never leaves", Ceiling{DenyColumns: map[string][]string{"orders": {"order_date"}}}, nil, func(in *datatools.QueryInput) { in.GroupBy = []string{"order_date"} }, `"order_date" never leaves`},
		{"in a filter", Ceiling{DenyColumns: map[string][]string{"orders": {"order_date"}}}, nil, func(in *datatools.QueryInput) {
			in.Filters = []contract.Condition{{Column: "order_date", Op: "=", Value: contract.TextValue("2025-07-01")}}
		}, `"order_date" never leaves`},
		{"in the contract's row filter", Ceiling{DenyClasses: []string{"pii"}}, func(o *contract.Offer) {
			o.RowFilter = []contract.Condition{{Column: "customer_name", Op: "=", Value: contract.TextValue("Ada Albers")}}
		}, nil, `"customer_name" is of class`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var changes []func(*contract.Offer)
			if tt.offer != nil {
				changes = append(changes, tt.offer)
			}
			f := newFixture(t, changes...)
			f.opts.Ceiling = tt.ceiling
			f.rebuild(t)
			f.src.rows = nil
			in := f.input()
			if tt.input != nil {
				tt.input(&in)
			}
			_, err := f.svc.Query(t.Context(), f.buyer.caller(), in)
			if tt.says == "" {
				refused(t, err, contract.GroupTooSmall) // it ran
				return
			}
			if r := refused(t, err, contract.ScopeDenied); !strings.Contains(r.Error(), tt.says) || f.src.count() != 0 {
				t.Errorf("%q, %d reads", r.Error(), f.src.count())
			}
		})
	}
	t.Run("a column without a class", func(t *testing.T) {
		f := newFixture(t)
		set := f.opts.Datasets["orders"]
		col := set.Columns["order_value"]
		col.Class = ""
		set.Columns["order_value"] = col
		f.rebuild(t)
		_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
		refused(t, err, contract.ScopeDenied)
	})
	t.Run("group size and calls", func(t *testing.T) {
		f := newFixture(t)
		f.opts.Ceiling = Ceiling{MinGroupSize: 50, MaxCalls: 1}
		f.rebuild(t)
		if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); err != nil {
			t.Fatal(err)
		}
		if sql := f.src.reads[0].SQL; !strings.Contains(sql, "HAVING count(*) >= 50 ") && !strings.Contains(sql, ">= 50)") {
			t.Errorf("the statement asks for other groups: %s", sql)
		}
		_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
		refused(t, err, contract.BudgetExhausted)
		info, err := f.svc.Describe(t.Context(), f.buyer.caller(), f.contract.ID)
		if err != nil || info.MinGroupSize != 50 || info.CallBudget != 1 || info.CallsUsed != 1 {
			t.Errorf("described as %+v, %v", info, err)
		}
	})
	t.Run("a misspelt name", func(t *testing.T) {
		f := newFixture(t)
		f.opts.Ceiling = Ceiling{DenyColumns: map[string][]string{"orders": {"custommer_email"}}}
		if _, err := New(f.opts); !errors.Is(err, ErrOptions) {
			t.Errorf("accepted: %v", err)
		}
	})
}

func TestSchemaChangedSinceTheContract(t *testing.T) {
	f := newFixture(t)
	set := f.opts.Datasets["orders"]
	set.Description = "something else"
	f.opts.Datasets["orders"] = set
	f.rebuild(t)
	_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
	if r := refused(t, err, contract.ScopeDenied); !strings.Contains(r.Error(), "negotiate again") || f.src.count() != 0 {
		t.Errorf("%q", r.Error())
	}
}

// Faults are no refusals, say nothing about data and count.
func TestFaultsAreNotRefusals(t *testing.T) {
	for name, tt := range map[string]struct{ given, want error }{
		"engine": {source.ErrEngine, source.ErrEngine}, "time": {source.ErrTime, source.ErrTime}, "range": {source.ErrRange, source.ErrRange}, "caller gone": {context.Canceled, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.src.err = tt.given
			_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
			var r *Refusal
			if errors.As(err, &r) || !errors.Is(err, tt.want) {
				t.Fatalf("err = %v", err)
			}
			if f.usage(t) != 1 || len(f.events(t, ledger.CallAnswered)) != 0 {
				t.Error("not counted, or answered")
			}
		})
	}
	t.Run("too many groups", func(t *testing.T) {
		f := newFixture(t)
		f.src.err = source.ErrTooManyRows
		_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
		refused(t, err, contract.InvalidQuery)
	})
	t.Run("store", func(t *testing.T) {
		f := newFixture(t)
		f.opts.Store = brokenStore{f.db}
		f.rebuild(t)
		_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
		var r *Refusal
		if !errors.Is(err, errDisk) || errors.As(err, &r) {
			t.Fatalf("err = %v", err)
		}
		if f.src.count() != 0 {
			t.Error("rows were read although the call could not be counted")
		}
	})
}

var errDisk = errors.New("disk full")

// brokenStore can be read and not written.
type brokenStore struct{ Store }

func (brokenStore) Update(context.Context, func(store.Tx) error) error { return errDisk }

func (brokenStore) UpdateRelaxed(context.Context, func(store.Tx) error) error { return errDisk }

// A verdict is remembered, and only for what it was made of.
func TestVerdictsAreRemembered(t *testing.T) {
	f := newFixture(t)
	for range 3 {
		if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.svc.verdicts.Len(); n != 1 {
		t.Errorf("%d verdicts for one contract", n)
	}
	f.revoke(t) // moves the epoch
	_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
	refused(t, err, contract.ContractRevoked)
	if n := f.svc.verdicts.Len(); n != 2 {
		t.Errorf("%d verdicts after the epoch moved", n)
	}
}

func TestDescribeAndList(t *testing.T) {
	f := newFixture(t)
	info, err := f.svc.Describe(t.Context(), f.buyer.caller(), f.contract.ID)
	if err != nil {
		t.Fatal(err)
	}
	if info.State != "in_force" || info.Purpose != purpose || info.MinGroupSize != 5 || len(info.Columns) != 3 || info.Columns[1].Type != "decimal(10,2)" {
		t.Errorf("%+v", info)
	}
	list, err := f.svc.List(t.Context(), f.buyer.caller())
	if err != nil || len(list.Datasets) != 1 || !slices.Equal(list.Datasets[0].Columns, slices.SortedFunc(slices.Values(info.Columns), func(a, b datatools.Column) int { return strings.Compare(a.Name, b.Name) })) || len(list.Datasets[0].ContractIDs) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	// Whoever has no contract sees the names of the datasets, and others' contracts are not there.
	list, err = f.svc.List(t.Context(), f.other.caller())
	if err != nil || !reflect.DeepEqual(list, &datatools.ListOutput{Datasets: []datatools.DatasetInfo{{Dataset: "orders"}}}) {
		t.Errorf("a stranger sees %+v, %v", list, err)
	}
	_, err = f.svc.Describe(t.Context(), f.other.caller(), f.contract.ID)
	refused(t, err, contract.NoContract)
	f.clock.Advance(48 * time.Hour)
	if info, err = f.svc.Describe(t.Context(), f.buyer.caller(), f.contract.ID); err != nil || info.State != "expired" {
		t.Errorf("%+v, %v", info, err)
	}
	if list, err = f.svc.List(t.Context(), f.buyer.caller()); err != nil || !reflect.DeepEqual(list.Datasets, []datatools.DatasetInfo{{Dataset: "orders"}}) {
		t.Errorf("%+v, %v", list, err)
	}
	if f.src.count() != 0 {
		t.Error("rows were read")
	}
}

func TestNewRefuses(t *testing.T) {
	f := newFixture(t)
	for name, change := range map[string]func(*Options){
		"no vendor": func(o *Options) { o.Vendors = nil }, "no store": func(o *Options) { o.Store = nil },
		"dataset not loaded": func(o *Options) { o.Datasets = dataset.Config{"people": o.Datasets["orders"]} },
		"negative ceiling":   func(o *Options) { o.Ceiling.MinGroupSize = -1 },
	} {
		o := f.opts
		change(&o)
		if _, err := New(o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if f.svc.DID() != f.plane.id() {
		t.Errorf("DID %s", f.svc.DID())
	}
}
