// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/query"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/store"
)

// rowsOf grants rows of two columns.
func rowsOf(o *contract.Offer) {
	o.Version, o.Rows, o.CallBudget = contract.Version3, contract.RowGrant{RowBudget: 100}, 1000
	o.ColumnGrants = []contract.ColumnGrant{
		{Column: "region", Uses: []string{"read", "filter", "group"}, Operations: []string{}},
		{Column: "order_date", Uses: []string{"read"}, Operations: []string{}},
	}
}

func (f *fixture) selection(limit int, columns ...string) datatools.SelectInput {
	return datatools.SelectInput{ContractID: f.contract.ID, Purpose: purpose, Dataset: "orders", Columns: columns, Limit: limit}
}

func (f *fixture) drawn(t testing.TB) (d store.Drawn) {
	t.Helper()
	if err := f.db.View(context.Background(), func(tx store.Tx) (err error) { d, err = tx.GetDrawn(f.contract.ID); return err }); err != nil {
		t.Fatal(err)
	}
	return d
}

func rowsFixture(t *testing.T) *fixture {
	f := newFixture(t, rowsOf)
	f.opts.Ceiling.AllowRows = true
	f.rebuild(t)
	day := start.UTC().Truncate(24 * time.Hour)
	f.src.rows = source.Rows{{"North", day, int64(624)}, {"South", day, int64(624)}}
	return f
}

func TestSelect(t *testing.T) {
	f := rowsFixture(t)
	out, err := f.svc.Select(t.Context(), f.buyer.caller(), f.selection(10, "region", "order_date"))
	if err != nil {
		t.Fatal(err)
	}
	res, rcp, err := datatools.ParseOutput(mustJSON(t, out))
	if err != nil || len(res.Rows) != 2 || res.UsedRows != 2 || res.TotalRows != 624 || res.Rows[0][1] != "2026-11-30" {
		t.Fatalf("%+v, %v", res, err)
	}
	if err := rcp.VerifyFor(f.contract, f.plane.doc); err != nil {
		t.Error(err)
	}
	// Ten were taken, eight came back with the receipt.
	if got := f.drawn(t).Rows; got != 2 {
		t.Errorf("%d rows are drawn, want 2", got)
	}
	reads := f.src.count()
	for name, c := range map[string]struct {
		in   datatools.SelectInput
		code contract.Code
		text string
	}{
		"a column that may be aggregated": {f.selection(1, "order_value"), contract.ScopeDenied, "for reading"},
		"a column that is not granted":    {f.selection(1, "channel"), contract.ScopeDenied, "not granted"},
		"an unknown column":               {f.selection(1, "Region"), contract.UnknownColumn, "there is"},
		"without a limit":                 {f.selection(0, "region"), contract.InvalidQuery, "limit"},
		"more rows than are left":         {f.selection(99, "region"), contract.BudgetExhausted, "98 of 100 rows"},
		"filter on a column only for read": {func() datatools.SelectInput {
			in := f.selection(1, "region")
			in.Filters = []contract.Condition{{Column: "order_date", Op: "is_null"}}
			return in
		}(), contract.ScopeDenied, "use filter"},
	} {
		_, err := f.svc.Select(t.Context(), f.buyer.caller(), c.in)
		if r := refused(t, err, c.code); !strings.Contains(r.Decision.Text, c.text) {
			t.Errorf("%s: %s", name, r.Decision.Text)
		}
	}
	if f.src.count() != reads {
		t.Error("rows were read for a refused call")
	}
	// A fault keeps what was taken.
	f.src.err = source.ErrEngine
	if _, err := f.svc.Select(t.Context(), f.buyer.caller(), f.selection(8, "region")); err == nil {
		t.Error("no fault")
	}
	if got := f.drawn(t).Rows; got != 10 {
		t.Errorf("%d rows are drawn after a fault, want 10", got)
	}
}

// TestCeilingOverTerms: what a signed contract grants, and a store that says more, stay below the operator's ceiling.
func TestCeilingOverTerms(t *testing.T) {
	f := rowsFixture(t)
	f.opts.Ceiling.AllowRows = false
	f.rebuild(t)
	_, err := f.svc.Select(t.Context(), f.buyer.caller(), f.selection(1, "region"))
	if r := refused(t, err, contract.ScopeDenied); !strings.Contains(r.Decision.Text, "rows never leave") {
		t.Error(r.Decision.Text)
	}
	f.opts.Ceiling.AllowRows, f.opts.Ceiling.MaxRows = true, 5
	f.rebuild(t)
	_, err = f.svc.Select(t.Context(), f.buyer.caller(), f.selection(6, "region"))
	refused(t, err, contract.BudgetExhausted)

	// PII in scope: signed by the vendor, for every use there is.
	pii := f.agree(t, "pii", rowsOf, func(o *contract.Offer) {
		o.Columns = append(o.Columns, "customer_email")
		o.ColumnGrants = append(o.ColumnGrants, contract.ColumnGrant{Column: "customer_email", Uses: contract.Uses(), Operations: []string{"count"}})
	})
	f.put(t, pii, store.InForce)
	leaf := contract.Where(contract.Condition{Column: "customer_email", Op: contract.OpPrefix, Value: contract.TextValue("a")})
	reads := f.src.count()
	sel := f.selection(1, "customer_email")
	sel.ContractID = pii.ID
	_, err = f.svc.Select(t.Context(), f.buyer.caller(), sel)
	refused(t, err, contract.ScopeDenied)
	_, err = f.svc.Query(t.Context(), f.buyer.caller(), f.input(func(in *datatools.QueryInput) {
		in.ContractID, in.Where, in.Aggregates = pii.ID, &contract.Filter{Not: &contract.Filter{Or: []contract.Filter{leaf}}}, in.Aggregates[1:]
	}))
	refused(t, err, contract.ScopeDenied)
	if f.src.count() != reads {
		t.Error("a column that never leaves was read")
	}

	// A store in which the row budget was raised: the contract is not the signed one any more, and there is none.
	f.opts.Store = &alteredStore{Store: f.db, contract: func(r *store.ContractRecord) {
		r.Bytes = []byte(strings.Replace(string(r.Bytes), `"rowBudget":100`, `"rowBudget":10000`, 1))
	}}
	f.rebuild(t)
	_, err = f.svc.Select(t.Context(), f.buyer.caller(), f.selection(1, "region"))
	refused(t, err, contract.NoContract)
}

// TestRateLimited: the window's calls pass, the next is refused with the time to wait and not counted, and the next window is open.
func TestRateLimited(t *testing.T) {
	f := newFixture(t, func(o *contract.Offer) { o.Version, o.Rate = contract.Version2, contract.Rate{Calls: 2, Seconds: 60} })
	ask := func() error {
		_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
		return err
	}
	f.clock.Advance(15 * time.Second)
	for range 2 {
		if err := ask(); err != nil {
			t.Fatal(err)
		}
	}
	if r := refused(t, ask(), contract.RateLimited); !strings.Contains(r.Decision.Text, "retry after 45 s") || r.Receipt == nil {
		t.Errorf("%s", r.Decision.Text)
	}
	if n := f.usage(t); n != 2 {
		t.Errorf("%d calls are counted", n)
	}
	f.clock.Advance(45 * time.Second)
	if err := ask(); err != nil {
		t.Error(err)
	}
}

// TestInvariant8_NoTermIsOverspent: 64 callers at once over the real store.
func TestInvariant8_NoTermIsOverspent(t *testing.T) {
	const callers = 64
	run := func(f *fixture, call func() error) (passed int64) {
		var n atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				err := call()
				var r *Refusal
				switch {
				case err == nil:
					n.Add(1)
				case !errors.As(err, &r):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		return n.Load()
	}
	t.Run("rows", func(t *testing.T) {
		f := rowsFixture(t)
		if n := run(f, func() error {
			_, err := f.svc.Select(context.Background(), f.buyer.caller(), f.selection(2, "region", "order_date"))
			return err
		}); n != 50 || f.drawn(t).Rows != 100 {
			t.Errorf("%d calls of 2 rows passed, %d of 100 rows", n, f.drawn(t).Rows)
		}
	})
	t.Run("rate", func(t *testing.T) {
		f := newFixture(t, func(o *contract.Offer) {
			o.Version, o.CallBudget, o.Rate = 2, 1000, contract.Rate{Calls: 40, Seconds: 3600}
		})
		if n := run(f, func() error {
			_, err := f.svc.Query(context.Background(), f.buyer.caller(), f.input())
			return err
		}); n != 40 || f.usage(t) != 40 {
			t.Errorf("%d calls passed, %d are counted", n, f.usage(t))
		}
	})
}

func noisy(o *contract.Offer) {
	o.Version, o.Operations, o.CallBudget = contract.Version3, []string{"count", "sum"}, 1000
	o.Noise = &contract.Noise{EpsilonPerQuery: "0.5", EpsilonTotal: "1.2", Bounds: []contract.Bound{{Column: "order_value", Low: "0", High: "500"}}}
}

func TestPrivacyBudget(t *testing.T) {
	f := newFixture(t, noisy)
	f.src.rows = source.Rows{{"North", int64(60), int64(60), int64(624)}}
	in := f.input(func(in *datatools.QueryInput) { in.Aggregates = in.Aggregates[1:] })
	_, err := f.svc.Query(t.Context(), f.buyer.caller(), in)
	if r := refused(t, err, contract.ScopeDenied); !strings.Contains(r.Decision.Text, "not set up to add noise") || f.src.count() != 0 {
		t.Errorf("without a secret: %s", r.Decision.Text)
	}
	f.opts.NoiseSecret = []byte("a secret of this test")
	f.rebuild(t)
	var first string
	for range 2 {
		out, err := f.svc.Query(t.Context(), f.buyer.caller(), in)
		if err != nil {
			t.Fatal(err)
		}
		res, _, err := datatools.ParseOutput(mustJSON(t, out))
		if err != nil || res.Noise == nil || res.UsedRows != 0 || res.TotalRows != 0 {
			t.Fatalf("%+v, %v", res, err)
		}
		if first == "" {
			first = string(out.Result)
		} else if first != string(out.Result) {
			t.Error("the same question has another answer")
		}
	}
	_, err = f.svc.Query(t.Context(), f.buyer.caller(), in)
	refused(t, err, contract.PrivacyExhausted)
	if got := f.drawn(t).Epsilon; got != 1_000_000 {
		t.Errorf("%d millionths are drawn", got)
	}
	for name, change := range map[string]func(*datatools.QueryInput){
		"having": func(in *datatools.QueryInput) {
			in.Having = []contract.Condition{{Column: "count", Op: ">", Value: contract.TextValue("1")}}
		},
		"order by a number": func(in *datatools.QueryInput) { in.OrderBy = []datatools.OrderInput{{By: "count"}} },
		"another sum": func(in *datatools.QueryInput) {
			in.Aggregates[0] = datatools.AggregateInput{Op: "avg", Column: "order_value"}
		},
	} {
		in := f.input(func(in *datatools.QueryInput) { in.Aggregates = in.Aggregates[1:] }, change)
		_, err := f.svc.Query(t.Context(), f.buyer.caller(), in)
		if r := refused(t, err, contract.ScopeDenied); r.Decision.Text == "" {
			t.Errorf("%s", name)
		}
	}
}

// TestOverlappingQueries: what an engine says of two shapes decides; a refused query is forgotten, an answered one is not, and the
// same question again needs no comparison.
func TestOverlappingQueries(t *testing.T) {
	f := newFixture(t, func(o *contract.Offer) { o.Version, o.CallBudget = contract.Version3, 1000 })
	var near atomic.Int64
	compared := 0
	f.src.reply = func(s source.Statement) source.Rows {
		if strings.Contains(s.SQL, "flags") {
			compared++
			return source.Rows{{near.Load()}}
		}
		return oneGroup()
	}
	region := func(name string) func(*datatools.QueryInput) {
		return func(in *datatools.QueryInput) {
			in.Filters = []contract.Condition{{Column: "region", Op: "!=", Value: contract.TextValue(name)}}
		}
	}
	ask := func(change ...func(*datatools.QueryInput)) error {
		_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input(change...))
		return err
	}
	shapes := func() (n int) {
		if err := f.db.View(t.Context(), func(tx store.Tx) error {
			all, err := tx.ListShapes(f.buyer.id(), "orders")
			n = len(all)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := ask(); err != nil || compared != 0 || shapes() != 1 {
		t.Fatalf("the first: %v, %d compared, %d remembered", err, compared, shapes())
	}
	near.Store(1)
	if r := refused(t, ask(region("North")), contract.GroupTooSmall); !strings.Contains(r.Decision.Text, "fewer than 5 subjects") || strings.Contains(r.Decision.Text, "Nothing was read") {
		t.Error(r.Decision.Text)
	}
	if compared != 1 || shapes() != 1 {
		t.Errorf("%d compared, %d remembered", compared, shapes())
	}
	if err := ask(); err != nil || compared != 1 {
		t.Errorf("the first again: %v, %d compared", err, compared)
	}
	// Other aggregates over the same groups are the same shape.
	if err := ask(func(in *datatools.QueryInput) { in.Aggregates[1].As = "n" }); err != nil || compared != 1 {
		t.Errorf("other aggregates: %v, %d compared", err, compared)
	}
	near.Store(0)
	if err := ask(region("South")); err != nil || compared != 2 || shapes() != 2 {
		t.Errorf("far enough: %v, %d compared, %d remembered", err, compared, shapes())
	}
	// The memory is the buyer's on the dataset, whatever its contract; contracts of version 1 have none.
	other := f.agree(t, "other", func(o *contract.Offer) { o.Version = contract.Version3 })
	f.put(t, other, store.InForce)
	if err := ask(region("East"), func(in *datatools.QueryInput) { in.ContractID = other.ID }); err != nil || compared != 4 {
		t.Errorf("under another contract: %v, %d compared", err, compared)
	}
	old := f.agree(t, "old")
	f.put(t, old, store.InForce)
	if err := ask(region("West"), func(in *datatools.QueryInput) { in.ContractID = old.ID }); err != nil || compared != 4 || shapes() != 3 {
		t.Errorf("version 1: %v, %d compared, %d remembered", err, compared, shapes())
	}
	// An engine that fails says nothing, and nothing is remembered of what it did not answer.
	f.src.err = source.ErrEngine
	if err := ask(region("Nowhere")); err == nil || shapes() != 3 {
		t.Errorf("a fault: %v, %d remembered", err, shapes())
	}
	if query.MaxShapes < 3 {
		t.Error("too few are remembered for this test")
	}
}

// TestOverlappingQueries_Time: comparing with many earlier queries takes no longer than one query may.
func TestOverlappingQueries_Time(t *testing.T) {
	f := newFixture(t, func(o *contract.Offer) { o.Version, o.CallBudget = contract.Version3, 1000 })
	f.opts.Slots.Wait = 50 * time.Millisecond
	f.rebuild(t)
	ask := func(region string) error {
		_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input(only(is("region", "!=", region))))
		return err
	}
	if err := ask("North"); err != nil {
		t.Fatal(err)
	}
	f.src.while = func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	if err := ask("South"); !errors.Is(err, source.ErrTime) {
		t.Errorf("err = %v, want ErrTime", err)
	}
	if n := len(f.svc.Calls()); n != 0 {
		t.Errorf("%d calls are under way", n)
	}
}

// TestOverlappingQueries_AtOnce: of two calls of one shape, one neither relies on what the other has only begun, nor is forgotten
// with it.
func TestOverlappingQueries_AtOnce(t *testing.T) {
	f := newFixture(t, func(o *contract.Offer) { o.Version, o.CallBudget = contract.Version3, 1000 })
	var near atomic.Int64
	f.src.reply = func(s source.Statement) source.Rows {
		if strings.Contains(s.SQL, "flags") {
			return source.Rows{{near.Load()}}
		}
		return oneGroup()
	}
	ask := func(region string) error {
		_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input(func(in *datatools.QueryInput) {
			if region != "" {
				in.Filters = []contract.Condition{{Column: "region", Op: "!=", Value: contract.TextValue(region)}}
			}
		}))
		return err
	}
	var within func() error // runs once, inside the next query of the engine
	var once atomic.Pointer[func() error]
	f.src.while = func(context.Context) error {
		if fn := once.Swap(nil); fn != nil {
			return (*fn)()
		}
		return nil
	}
	if err := ask(""); err != nil {
		t.Fatal(err)
	}
	near.Store(1)
	var second error
	within = func() error { second = ask("North"); return nil }
	once.Store(&within)
	refused(t, ask("North"), contract.GroupTooSmall)
	refused(t, second, contract.GroupTooSmall)
	near.Store(0)
	within = func() error { // while the first is compared
		within = func() error { second = ask("South"); return source.ErrEngine } // while the first is answered
		once.Store(&within)
		return nil
	}
	once.Store(&within)
	if err := ask("South"); err == nil || second != nil {
		t.Fatalf("%v, %v", err, second)
	}
	near.Store(1)
	refused(t, ask("East"), contract.GroupTooSmall)
	if err := f.db.View(t.Context(), func(tx store.Tx) error {
		all, err := tx.ListShapes(f.buyer.id(), "orders")
		if len(all) != 2 {
			t.Errorf("%d shapes are remembered, want that of each answer", len(all))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestDescribeTerms(t *testing.T) {
	f := rowsFixture(t)
	info, err := f.svc.Describe(t.Context(), f.buyer.caller(), f.contract.ID)
	if err != nil || info.Version != 3 || info.RowBudget != 100 || len(info.ColumnGrants) != 2 || info.Noise != nil || info.Rate != nil {
		t.Fatalf("%+v, %v", info, err)
	}
	tools := datatools.ToolsFor(f.svc.grant(f.contract))
	names := make([]string, len(tools))
	for i, tool := range tools {
		names[i] = tool.Name
	}
	if len(names) != 4 || names[3] != datatools.SelectRecords || !strings.Contains(string(tools[3].InputSchema), `"enum":["order_date","region"]`) {
		t.Errorf("%v: %s", names, tools[len(tools)-1].InputSchema)
	}
	if _, err := f.svc.Describe(t.Context(), f.other.caller(), f.contract.ID); err == nil {
		t.Error("a stranger is told the terms")
	}
}

// mustJSON is an answer as it leaves.
func mustJSON(t *testing.T, out *datatools.QueryOutput) []byte {
	t.Helper()
	b, err := canon.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
