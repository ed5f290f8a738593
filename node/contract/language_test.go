// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
)

// granting is a contract of version 3 with every kind of grant, and a request that it allows.
func granting(tb testing.TB) (world, *contract.Contract, contract.Request) {
	tb.Helper()
	w := newWorld(tb)
	o := w.offer
	o.Version = contract.Version3
	o.Columns = []string{"region", "order_id", "order_date", "order_value", "gift", "created"}
	o.Operations = contract.AllOperations()
	o.RowFilter = []contract.Condition{{Column: "region", Op: contract.OpPrefix, Value: text("E")}}
	o.Rate, o.Rows = contract.Rate{Calls: 10, Seconds: 60}, contract.RowGrant{RowBudget: 100}
	o.ColumnGrants = []contract.ColumnGrant{
		{Column: "region", Uses: []string{"read", "filter", "group"}, Operations: []string{}},
		{Column: "order_id", Uses: []string{"filter"}, Operations: []string{}},
		{Column: "order_date", Uses: []string{"group", "aggregate"}, Operations: []string{"max"}},
		{Column: "order_value", Uses: []string{"aggregate", "filter"}, Operations: []string{"avg", "percentile", "stddev"}},
	}
	c := w.build(tb)
	leaf := contract.Where(contract.Condition{Column: "order_id", Op: "<", Value: text("9223372036854775807")})
	return w, c, contract.Request{
		ContractID: c.ID, Caller: w.buyer.id, Purpose: c.Purpose, Dataset: "orders",
		Aggregates:  []contract.Aggregate{{Op: "percentile", Column: "order_value", P: "0.95"}, {Op: "count"}, {Op: "stddev", Column: "order_value"}},
		GroupBy:     []string{"region"},
		GroupByDate: []contract.DateGroup{{Column: "order_date", Unit: contract.UnitMonth}},
		Filters:     []contract.Condition{{Column: "order_value", Op: ">", Value: text("1.50")}},
		Where:       &contract.Filter{Or: []contract.Filter{leaf, {Not: &contract.Filter{And: []contract.Filter{leaf, contract.Where(contract.Condition{Column: "region", Op: "prefix", Value: text("E")})}}}}},
		Having:      []contract.Condition{{Column: "count", Op: ">", Value: text("20")}, {Column: "stddev_order_value", Op: "<", Value: text("1e3")}, {Column: "percentile_order_value", Op: ">=", Value: text("10.25")}},
		OrderBy:     []contract.Order{{By: "order_date_month"}, {By: "region"}}, Limit: 5, Offset: 10,
	}
}

func TestC10_RequestLanguage(t *testing.T) {
	w, c, req := granting(t)
	eval := func(r contract.Request, u contract.Usage) contract.Decision {
		return contract.Evaluate(r, w.schema, c, u, now)
	}
	if d := eval(req, inForce); !d.Allowed {
		t.Fatal(d)
	}
	if n := testing.AllocsPerRun(50, func() { eval(req, inForce) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	rows := contract.Request{
		ContractID: c.ID, Caller: w.buyer.id, Purpose: c.Purpose, Dataset: "orders", Select: []string{"region"}, Limit: 10,
		Filters: req.Filters, Where: req.Where, OrderBy: []contract.Order{{By: "region", Desc: true}},
	}
	if d := eval(rows, inForce); !d.Allowed {
		t.Fatal(d)
	}
	deep := contract.Where(contract.Condition{Column: "order_id", Op: "is_null"})
	for range contract.MaxFilterDepth {
		deep = contract.Filter{Not: &deep}
	}
	wide := contract.Filter{}
	for range 1000 {
		wide.Or = append(wide.Or, contract.Where(contract.Condition{Column: "order_id", Op: "is_null"}))
	}
	cond := func(column, op, value string) []contract.Condition {
		return []contract.Condition{{Column: column, Op: op, Value: text(value)}}
	}
	for name, tt := range map[string]struct {
		change func(*contract.Request)
		code   contract.Code
		says   string
	}{
		"min without a grant of its own": {func(r *contract.Request) {
			r.Aggregates[0] = contract.Aggregate{Op: "min", Column: "created", As: "x"}
			r.Having = nil
		}, contract.ScopeDenied, "min"},
		"an operation beyond the column's": {func(r *contract.Request) {
			r.Aggregates[0] = contract.Aggregate{Op: "sum", Column: "order_value"}
			r.Having = nil
		}, contract.ScopeDenied, `"sum" is not granted on column "order_value"`},
		"aggregate of a filter column": {func(r *contract.Request) { r.Aggregates[0] = contract.Aggregate{Op: "count", Column: "order_id"} }, contract.ScopeDenied, "use aggregate"},
		"filter by a group column":     {func(r *contract.Request) { r.Filters = cond("order_date", "=", "2025-01-01") }, contract.ScopeDenied, "use filter"},
		"the same in the tree": {func(r *contract.Request) {
			r.Where = &contract.Filter{Not: &contract.Filter{Column: "order_date", Op: "is_null"}}
		}, contract.ScopeDenied, "use filter"},
		"group by a value column":    {func(r *contract.Request) { r.GroupBy = []string{"order_value"}; r.OrderBy = nil }, contract.ScopeDenied, "use group"},
		"unknown column in the tree": {func(r *contract.Request) { r.Where = &contract.Filter{Column: "Region", Op: "is_null"} }, contract.UnknownColumn, "Region"},
		"too deep":                   {func(r *contract.Request) { r.Where = &deep }, contract.InvalidQuery, "levels"},
		"1000 filters":               {func(r *contract.Request) { r.Where = &wide }, contract.InvalidQuery, "64"},
		"two forms at once": {func(r *contract.Request) {
			r.Where = &contract.Filter{Or: []contract.Filter{deep}, Column: "region", Op: "is_null"}
		}, contract.InvalidQuery, "one of"},
		"no form":     {func(r *contract.Request) { r.Where = &contract.Filter{} }, contract.InvalidQuery, "one of"},
		"an empty or": {func(r *contract.Request) { r.Where = &contract.Filter{Or: []contract.Filter{}} }, contract.InvalidQuery, "not empty"},
		"2^63": {func(r *contract.Request) {
			r.Where = &contract.Filter{Column: "order_id", Op: "<", Value: text("9223372036854775808")}
		}, contract.InvalidQuery, "64-bit"},
		"NaN":                      {func(r *contract.Request) { r.Having = cond("stddev_order_value", "<", "NaN") }, contract.InvalidQuery, "finite"},
		"prefix of a number":       {func(r *contract.Request) { r.Filters = cond("order_id", "prefix", "1") }, contract.InvalidQuery, "prefix"},
		"empty prefix":             {func(r *contract.Request) { r.Filters = cond("region", "prefix", "") }, contract.InvalidQuery, "prefix"},
		"having a group":           {func(r *contract.Request) { r.Having = cond("region", "=", "E") }, contract.InvalidQuery, "name of an aggregate"},
		"having a text":            {func(r *contract.Request) { r.Having = cond("count", ">", "many") }, contract.InvalidQuery, "64-bit"},
		"percentile without p":     {func(r *contract.Request) { r.Aggregates[0].P = "" }, contract.InvalidQuery, "p belongs"},
		"percentile of 1":          {func(r *contract.Request) { r.Aggregates[0].P = "1.0" }, contract.InvalidQuery, "0."},
		"p of a count":             {func(r *contract.Request) { r.Aggregates[1].P = "0.5" }, contract.InvalidQuery, "p belongs"},
		"SQL for p":                {func(r *contract.Request) { r.Aggregates[0].P = "0.5) --" }, contract.InvalidQuery, "0."},
		"unknown unit":             {func(r *contract.Request) { r.GroupByDate[0].Unit = "minute'" }, contract.InvalidQuery, "unit"},
		"hours of a date":          {func(r *contract.Request) { r.GroupByDate[0].Unit = "hour"; r.OrderBy = nil }, contract.InvalidQuery, "hour"},
		"months of a text":         {func(r *contract.Request) { r.GroupByDate[0].Column = "region"; r.OrderBy = nil }, contract.InvalidQuery, "month"},
		"a date group twice":       {func(r *contract.Request) { r.GroupByDate = append(r.GroupByDate, r.GroupByDate[0]) }, contract.InvalidQuery, "twice"},
		"an alias of a date group": {func(r *contract.Request) { r.Aggregates[1].As = "ORDER_date_month" }, contract.InvalidQuery, "date group"},
		"negative offset":          {func(r *contract.Request) { r.Offset = -1 }, contract.InvalidQuery, "offset"},
		"rows and aggregates":      {func(r *contract.Request) { r.Select = []string{"region"} }, contract.InvalidQuery, "no aggregates"},
	} {
		r := req
		r.Aggregates, r.Filters, r.GroupByDate = slices.Clone(req.Aggregates), slices.Clone(req.Filters), slices.Clone(req.GroupByDate)
		tt.change(&r)
		if d := eval(r, inForce); d.Code != tt.code || !strings.Contains(d.Text, tt.says) {
			t.Errorf("%s: %v, want %s with %q", name, d, tt.code, tt.says)
		}
	}
	for name, tt := range map[string]struct {
		change func(*contract.Request)
		use    contract.Usage
		code   contract.Code
		says   string
	}{
		"a column that may not be read": {func(r *contract.Request) { r.Select = []string{"order_value"}; r.OrderBy = nil }, inForce, contract.ScopeDenied, "use read"},
		"a column without its own":      {func(r *contract.Request) { r.Select = []string{"gift"}; r.OrderBy = nil }, inForce, contract.ScopeDenied, "for reading"},
		"order by another":              {func(r *contract.Request) { r.OrderBy[0].By = "order_id" }, inForce, contract.InvalidQuery, "selected"},
		"no limit":                      {func(r *contract.Request) { r.Limit = 0 }, inForce, contract.InvalidQuery, "limit"},
		"rows are short":                {func(*contract.Request) {}, contract.Usage{State: contract.InForce, Rows: 91}, contract.BudgetExhausted, "9 of 100"},
		"the window is full":            {func(*contract.Request) {}, contract.Usage{State: contract.InForce, Calls: 50, WindowCalls: 10}, contract.RateLimited, "retry after 60 s"},
		"calls come before the window":  {func(*contract.Request) {}, contract.Usage{State: contract.InForce, Calls: 100, WindowCalls: 10}, contract.BudgetExhausted, "all 100 calls"},
	} {
		r := rows
		r.OrderBy = slices.Clone(rows.OrderBy)
		tt.change(&r)
		if d := eval(r, tt.use); d.Code != tt.code || !strings.Contains(d.Text, tt.says) {
			t.Errorf("rows: %s: %v, want %s with %q", name, d, tt.code, tt.says)
		}
	}
	if got := c.RateRefusal(now.Add(59500 * time.Millisecond)).Text; !strings.Contains(got, "retry after 1 s") {
		t.Error(got)
	}
	// Version 1 knows none of it, and rows least of all.
	old := newWorld(t)
	first := old.build(t)
	rows.ContractID = first.ID
	if d := contract.Evaluate(rows, old.schema, first, inForce, now); d.Code != contract.ScopeDenied || !strings.Contains(d.Text, "rows are not granted") {
		t.Errorf("rows under version 1: %v", d)
	}
}

// TestRequestDigestIsStable: what was asked before there was more to ask has the digest that it had.
func TestRequestDigestIsStable(t *testing.T) {
	r := contract.Request{ContractID: "ctr_x", Purpose: "p", Dataset: "d", Aggregates: []contract.Aggregate{{Op: "count"}}, GroupBy: []string{}, Filters: []contract.Condition{}, OrderBy: []contract.Order{}}
	want := canon.Sum([]byte(`{"aggregates":[{"as":"","column":"","op":"count"}],"contractId":"ctr_x","dataset":"d","filters":[],"groupBy":[],"limit":0,"orderBy":[],"purpose":"p","type":"TreatyQuery"}`))
	if got, err := r.Digest(); err != nil || got != want {
		t.Errorf("%v, %v", got, err)
	}
}

// FuzzFilter: whatever parses as a tree is bounded, printed and decided upon without a panic, and says the same when written.
func FuzzFilter(f *testing.F) {
	f.Add([]byte(`{"or":[{"column":"region","op":"=","value":"EU"},{"not":{"and":[{"column":"order_id","op":"in","values":["1"]}]}}]}`))
	f.Add([]byte(`{"not":{"not":{"not":{"column":"a","op":"is_null"}}}}`))
	w, c, req := granting(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var tree contract.Filter
		if canon.Unmarshal(data, &tree, canon.Limits{MaxBytes: 1 << 16, MaxDepth: 20}) != nil {
			return
		}
		r := req
		r.Where = &tree
		d := contract.Evaluate(r, w.schema, c, inForce, now)
		if len(d.Text) > 4000 || len(tree.String()) > contract.MaxText {
			t.Errorf("%d and %d bytes", len(d.Text), len(tree.String()))
		}
		if !d.Allowed {
			return
		}
		b, err := json.Marshal(&tree)
		if err != nil {
			t.Fatal(err)
		}
		var again contract.Filter
		if err := json.Unmarshal(b, &again); err != nil || again.String() != tree.String() {
			t.Errorf("%v: %s", err, b)
		}
	})
}
