// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataplane/source/sqlitefile"
	"github.com/treaty-node/treaty/node/dataset"
	"github.com/treaty-node/treaty/node/datatools"
)

// smallGroups serves a real table: 20 people in North and in South, with one order each on the 1st to 20th of January, of 100 to 119; 2
// in Tiny and 3 without a region, in March, of 900. One of North's, on the 31st, ordered by the channel "fax" for 5.
func smallGroups(t *testing.T) *fixture {
	f := newFixture(t, func(o *contract.Offer) {
		o.Version, o.CallBudget = contract.Version3, 1000
		o.Columns = []string{"region", "order_value", "order_date", "channel"}
		o.Operations = []string{"avg", "count", "sum", "median", "percentile", "stddev"}
	})
	serveTable(t, f, func(order func(region any, day string, value int, channel string)) {
		for i := range 20 {
			order("North", fmt.Sprintf("2025-01-%02d", i+1), 100+i, "web")
			order("South", fmt.Sprintf("2025-01-%02d", i+1), 100+i, "web")
		}
		order("North", "2025-01-31", 5, "fax")
		for range 2 {
			order("Tiny", "2025-03-01", 900, "web")
		}
		for range 3 {
			order(nil, "2025-03-02", 900, "web")
		}
	})
	return f
}

// serveTable makes a table of orders, each by somebody else, the dataset's source.
func serveTable(t *testing.T, f *fixture, fill func(order func(region any, day string, value int, channel string))) {
	path := filepath.Join(t.TempDir(), "orders.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	n := 0
	exec := func(statement string, args ...any) {
		if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE TABLE orders (region TEXT, order_id INTEGER, order_date TEXT, order_value TEXT, customer_name TEXT, customer_email TEXT, channel TEXT)")
	fill(func(region any, day string, value int, channel string) {
		n++
		exec("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?, ?)", region, n, day, fmt.Sprintf("%d.00", value), "somebody", fmt.Sprintf("p%d@example.com", n), channel)
	})
	engine, err := sqlitefile.New(source.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	d := f.opts.Datasets["orders"]
	d.Path, d.Source = path, &dataset.Source{Kind: dataset.SQLite, Table: "orders"}
	if _, err := engine.Load(t.Context(), "orders", d, ""); err != nil {
		t.Fatal(err)
	}
	f.opts.Source = engine
	f.rebuild(t)
}

// TestDifferencing_SomeGroups: one answer is no way to take one person out of a few groups of another one together, nor the other way
// round; a few groups are asked for together without a person more.
func TestDifferencing_SomeGroups(t *testing.T) {
	f := newFixture(t, func(o *contract.Offer) {
		o.Version, o.CallBudget = contract.Version3, 1000
		o.Columns, o.Operations = []string{"region", "order_value", "order_date", "channel"}, []string{"avg", "count", "sum"}
	})
	serveTable(t, f, func(order func(region any, day string, value int, channel string)) {
		for _, region := range []any{"North", "South"} {
			for i := range 12 {
				order(region, fmt.Sprintf("2025-01-%02d", i+1), 100+i, "web")
				order(region, fmt.Sprintf("2025-02-%02d", i+1), 100+i, "phone")
			}
		}
		order("North", "2025-03-01", 5, "web")
	})
	groups, south, one := by("region", "channel"), is("region", "=", "South"), is("order_date", "=", "2025-03-01")
	for _, tt := range []struct {
		name          string
		first, second asked
		answered      bool
	}{
		{"groups, and some of them", groups, only(south), true},
		{"groups, and some of them and one", groups, either(south, one), false},
		{"some of them and one, and groups", either(south, one), groups, false},
		{"groups, and others", by("region"), by("channel"), true},
	} {
		f.rewrite(t, "DELETE FROM shapes")
		if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input(by(), tt.first)); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input(by(), tt.second))
		if !tt.answered {
			refused(t, err, contract.GroupTooSmall)
		} else if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestEmptyDataset: nobody is too few people, and no rows are an empty answer.
func TestEmptyDataset(t *testing.T) {
	f := newFixture(t, rowsOf)
	f.opts.Ceiling.AllowRows = true
	serveTable(t, f, func(func(any, string, int, string)) {})
	for _, change := range [][]asked{nil, {by()}, {by(), only(is("order_value", ">", "0.00"))}, {by("region"), only(is("region", "=", "North"))}} {
		_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input(change...))
		refused(t, err, contract.GroupTooSmall)
	}
	out, err := f.svc.Select(t.Context(), f.buyer.caller(), f.selection(10, "region", "order_date"))
	if err != nil {
		t.Fatal(err)
	}
	if res, _, err := datatools.ParseOutput(mustJSON(t, out)); err != nil || len(res.Rows) != 0 || res.TotalRows != 0 || f.drawn(t).Rows != 0 {
		t.Errorf("%+v, %v, %d rows are drawn", res, err, f.drawn(t).Rows)
	}
}

type asked = func(*datatools.QueryInput)

func only(conds ...contract.Condition) asked {
	return func(in *datatools.QueryInput) { in.Filters = append(in.Filters, conds...) }
}

func not(conds ...contract.Condition) asked {
	leaves := make([]contract.Filter, len(conds))
	for i, c := range conds {
		leaves[i] = contract.Where(c)
	}
	return func(in *datatools.QueryInput) { in.Where = &contract.Filter{Not: &contract.Filter{And: leaves}} }
}

func either(conds ...contract.Condition) asked {
	leaves := make([]contract.Filter, len(conds))
	for i, c := range conds {
		leaves[i] = contract.Where(c)
	}
	return func(in *datatools.QueryInput) { in.Where = &contract.Filter{Or: leaves} }
}

func by(columns ...string) asked {
	return func(in *datatools.QueryInput) { in.GroupBy = columns }
}

func cut(unit string) asked {
	return func(in *datatools.QueryInput) {
		in.GroupByDate = []datatools.DateGroupInput{{Column: "order_date", Unit: unit}}
	}
}

func what(aggregates ...datatools.AggregateInput) asked {
	return func(in *datatools.QueryInput) { in.Aggregates = aggregates }
}

func is(column, op, value string) contract.Condition {
	return contract.Condition{Column: column, Op: op, Value: contract.TextValue(value)}
}

// TestDifferencing: a few people are not found by one query, nor by the difference of two.
func TestDifferencing(t *testing.T) {
	count, sum := datatools.AggregateInput{Op: "count"}, datatools.AggregateInput{Op: "sum", Column: "order_value"}
	fax := is("channel", "=", "fax")
	list := func(a ...asked) []asked { return a }
	f := smallGroups(t)
	for name, queries := range map[string][][]asked{ // all are answered but the last, which is refused
		"one person's row":                   {list(only(fax))},
		"one person by complement":           {list(not(is("channel", "!=", "fax")))},
		"nobody at all looks the same":       {list(only(is("channel", "=", "telex")))},
		"the null group by name":             {list(only(contract.Condition{Column: "region", Op: "is_null"}))},
		"a small group by its beginning":     {list(only(is("region", "prefix", "Ti")))},
		"a day":                              {list(only(is("order_date", "=", "2025-01-31")))},
		"all, and all but one":               {nil, list(not(fax))},
		"all but one, and all":               {list(not(fax)), nil},
		"all, and all with a region":         {nil, list(only(contract.Condition{Column: "region", Op: "is_not_null"}))},
		"regions, and one of them but one":   {list(by("region")), list(only(is("region", "=", "North")), not(fax))},
		"the same by its beginning":          {list(by("region")), list(only(is("region", "prefix", "No"), is("channel", "!=", "fax")))},
		"the same by a range":                {list(by("region")), list(only(is("region", ">=", "N"), is("region", "<", "O"), is("order_value", ">", "50.00")))},
		"the group after its part":           {list(only(is("region", "=", "North"), is("channel", "!=", "fax"))), list(by("region"))},
		"months, and January but one":        {list(cut("month")), list(only(is("order_date", "<=", "2025-01-30")))},
		"weeks, and their days but one":      {list(cut("year")), list(cut("year"), only(is("order_date", "!=", "2025-01-31")))},
		"two regions, and the first but one": {list(only(contract.Condition{Column: "region", Op: "in", Values: []contract.Value{contract.TextValue("North"), contract.TextValue("South")}})), list(by("region"), only(is("order_value", ">", "5.00")))},
		"a percentile that is the minimum":   {list(what(datatools.AggregateInput{Op: "percentile", Column: "order_value", P: "0.000001"}))},
		"one that is the maximum":            {list(what(datatools.AggregateInput{Op: "percentile", Column: "order_value", P: "0.999999"}))},
	} {
		t.Run(name, func(t *testing.T) {
			f.rewrite(t, "DELETE FROM shapes")
			for i, q := range queries {
				_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input(append([]asked{by(), what(count, sum)}, q...)...))
				if i < len(queries)-1 {
					if err != nil {
						t.Fatalf("query %d: %v", i+1, err)
					}
					continue
				}
				if r := refused(t, err, contract.GroupTooSmall); strings.Contains(r.Error(), "telex") {
					t.Error(r)
				}
			}
		})
	}
}

// TestSmallGroupsStayUnseen: having, order, limit and pages look at groups that are large enough only.
func TestSmallGroupsStayUnseen(t *testing.T) {
	f := smallGroups(t)
	count := datatools.AggregateInput{Op: "count"}
	rows := func(change ...asked) [][]any {
		out, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input(append([]asked{by("region"), what(count)}, change...)...))
		if errors.As(err, new(*Refusal)) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		res, _, err := datatools.ParseOutput(mustJSON(t, out))
		if err != nil {
			t.Fatal(err)
		}
		return res.Rows
	}
	first := func(in *datatools.QueryInput) { in.OrderBy, in.Limit = []datatools.OrderInput{{By: "count"}}, 1 }
	few := func(in *datatools.QueryInput) { in.Having = []contract.Condition{is("count", "<", "5")} }
	if got := rows(); len(got) != 2 {
		t.Errorf("groups %v", got)
	}
	if got := rows(first); len(got) != 1 || got[0][0] != "South" {
		t.Errorf("the smallest is %v", got)
	}
	if got := rows(few); len(got) != 0 {
		t.Errorf("having shows %v", got)
	}
	if got := rows(func(in *datatools.QueryInput) { in.Offset = 2 }); len(got) != 0 {
		t.Errorf("the page after shows %v", got)
	}
	// A percentile within the group is given, and its minimum where min is granted.
	p := func(p string) asked {
		return what(datatools.AggregateInput{Op: "percentile", Column: "order_value", P: p})
	}
	if got := rows(p("0.1")); len(got) != 2 || got[0][1] != "101.00" {
		t.Errorf("percentile %v", got)
	}
	if got := rows(p("0.05")); len(got) != 1 || got[0][0] != "North" {
		t.Errorf("a percentile that is South's minimum: %v", got)
	}
	c := f.agree(t, "minimum", func(o *contract.Offer) {
		o.Version, o.Columns, o.Operations = contract.Version3, []string{"region", "order_value"}, []string{"min", "percentile"}
	})
	f.put(t, c, "in_force")
	if got := rows(p("0.05"), func(in *datatools.QueryInput) { in.ContractID = c.ID }); len(got) != 2 || got[1][1] != "100.00" {
		t.Errorf("with min granted: %v", got)
	}
}
