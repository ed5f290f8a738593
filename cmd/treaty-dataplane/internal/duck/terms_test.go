// SPDX-License-Identifier: Apache-2.0

package duck

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/query"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
)

// staff: 6 people in team A, one of them (p5) on a Friday contract; 5 in B; 2 in C; nobody knows p99's team.
const staff = `team,who,day,pay
A,p0,2025-01-01,100.00
A,p1,2025-01-02,110.00
A,p2,2025-01-03,120.00
A,p3,2025-02-01,130.00
A,p4,2025-02-02,140.00
A,p5,2025-03-01,900.00
B,p6,2025-01-01,100.00
B,p7,2025-01-02,100.00
B,p8,2025-02-01,100.00
B,p9,2025-02-02,100.00
B,p10,2025-03-01,100.00
C,p11,2025-01-01,100.00
C,p12,2025-01-02,100.00
,p99,2025-01-03,100.00
`

// TestOverlap: queries that can be subtracted from each other to a few people.
func TestOverlap(t *testing.T) {
	d := dataset.Dataset{Columns: columns(map[string]string{"team": "text", "who": "text", "day": "date", "pay": "decimal(10,2)"}), Subject: "who"}
	e := loaded(t, Limits{}, staff, d)
	schema, err := dataset.Config{"d": d}.Schema("d")
	if err != nil {
		t.Fatal(err)
	}
	all := contract.Request{}
	but := contract.Request{Filters: []contract.Condition{{Column: "who", Op: "!=", Value: contract.TextValue("p5")}}}
	teams := contract.Request{GroupBy: []string{"team"}}
	teamsBut := contract.Request{GroupBy: []string{"team"}, Filters: but.Filters}
	few := contract.Request{Filters: []contract.Condition{{Column: "pay", Op: "<", Value: contract.TextValue("130.00")}}}
	months := contract.Request{GroupByDate: []contract.DateGroup{{Column: "day", Unit: "month"}}}
	monthsOfTeams := contract.Request{GroupBy: []string{"team"}, GroupByDate: months.GroupByDate}
	filtered := func(conds ...contract.Condition) contract.Request { return contract.Request{Filters: conds} }
	justA, notP5 := where("team", "=", "A"), where("who", "!=", "p5")
	notTree := contract.Request{Where: &contract.Filter{Not: &contract.Filter{Or: []contract.Filter{contract.Where(where("team", "!=", "A")), contract.Where(where("who", "=", "p5"))}}}}
	days := contract.Request{GroupByDate: []contract.DateGroup{{Column: "day", Unit: "day"}}}
	weeks := contract.Request{GroupByDate: []contract.DateGroup{{Column: "day", Unit: "week"}}}
	for _, tt := range []struct {
		name string
		a, b contract.Request
		min  int
		rows []contract.Condition // the row filter of b
		want bool
	}{
		{"the same", all, all, 3, nil, false},
		{"all but one", all, but, 3, nil, true},
		{"the other way round", but, all, 3, nil, true},
		{"all but one, by team", teams, teamsBut, 3, nil, true},
		{"all but one, and by team: four are hidden together", all, teamsBut, 3, nil, false},
		{"and too few for a larger minimum", all, teamsBut, 5, nil, true},
		{"all but enough", all, few, 3, nil, false},
		{"no common group, and what is withheld is large enough", all, teams, 3, nil, false},
		{"what is withheld by team is too little", all, teams, 4, nil, true},
		{"months against all: two people are withheld in March", all, months, 3, nil, true},
		{"months of teams against teams", teams, monthsOfTeams, 3, nil, false},
		{"months of teams against teams, for a smaller minimum", teams, monthsOfTeams, 2, nil, true},
		{"a filter for a group, but one", teams, filtered(justA, notP5), 3, nil, true},
		{"the other way round, and the group is made by two columns", filtered(justA, notP5), contract.Request{GroupBy: []string{"team", "pay"}}, 1, nil, false},
		{"by a range", teams, filtered(where("team", ">=", "A"), where("team", "<", "B"), notP5), 3, nil, true},
		{"by a beginning", teams, filtered(where("team", "prefix", "A"), notP5), 3, nil, true},
		{"by NOT and OR", teams, notTree, 3, nil, true},
		{"two groups but one", teams, filtered(where("team", "in", "A", "B"), notP5), 3, nil, true},
		{"a filter for a group", teams, filtered(justA), 3, nil, false},
		{"what no team is known of", all, filtered(where("team", "is_not_null")), 3, nil, true},
		{"a week is days, one of which is withheld", days, weeks, 3, nil, true},
		{"days against days of one month", days, contract.Request{GroupByDate: days.GroupByDate, Filters: []contract.Condition{where("day", "<", "2025-02-01")}}, 3, nil, false},
		{"another row filter", all, all, 3, []contract.Condition{{Column: "team", Op: "!=", Value: contract.TextValue("C")}}, false},
		{"another row filter that hides too few", all, all, 4, []contract.Condition{{Column: "team", Op: "!=", Value: contract.TextValue("C")}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := query.Spec{Dialect: source.DuckDB{}, From: `"d"`, Request: contract.Request{Dataset: "d"}, Schema: schema, Subject: "who", MinGroup: tt.min}
			first := query.ShapeOf(&tt.a, nil, tt.min)
			raw, _, err := first.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if first, err = query.ParseShape(raw); err != nil {
				t.Fatal(err)
			}
			st, err := query.Overlap(spec, first, query.ShapeOf(&tt.b, tt.rows, tt.min))
			if err != nil {
				t.Fatal(err)
			}
			rows, err := e.Query(t.Context(), st)
			if err != nil {
				t.Fatalf("%v: %s", err, st.SQL)
			}
			if got, err := query.Close(rows); err != nil || got != tt.want {
				t.Errorf("%t, %v; want %t: %s", got, err, tt.want, st.SQL)
			}
		})
	}
}

// TestNoise: answers are the same again, unlike under another secret, right on average, and values are cut to their bounds.
func TestNoise(t *testing.T) {
	d := dataset.Dataset{Columns: columns(map[string]string{"team": "text", "who": "text", "day": "date", "pay": "decimal(10,2)"}), Subject: "who"}
	e := loaded(t, Limits{}, staff, d)
	terms := &contract.Noise{EpsilonPerQuery: "1", EpsilonTotal: "10", Bounds: []contract.Bound{{Column: "pay", Low: "0", High: "200"}}}
	spec := func(secret int) query.Spec {
		return query.Spec{
			MinGroup: 3, Subject: "who",
			Noise: &query.Noise{Terms: terms, Seed: query.NoiseSeed([]byte(fmt.Sprint("secret ", secret)), "ctr_1", canon.Sum([]byte("query")))},
			Request: contract.Request{
				GroupBy: []string{"team"}, Filters: []contract.Condition{{Column: "team", Op: "=", Value: contract.TextValue("A")}},
				Aggregates: []contract.Aggregate{{Op: "count"}, {Op: "sum", Column: "pay"}},
			},
		}
	}
	first, err := ask(t, e, d, spec(0))
	if err != nil {
		t.Fatal(err)
	}
	again, err := ask(t, e, d, spec(0))
	if err != nil || !reflect.DeepEqual(first, again) {
		t.Errorf("the same query: %v and %v, %v", first.Rows, again.Rows, err)
	}
	if first.Noise == nil || first.Noise.Epsilon != "1" || first.UsedRows != 0 || first.TotalRows != 0 {
		t.Errorf("%+v", first)
	}
	// Two aggregates share an epsilon of 1: the scale is 2 for the count and 2·200 for the sum. The mean of 300 is within 5 of its
	// standard deviations, 5·√2·scale/√300.
	counts, sums, different := 0.0, 0.0, 0
	const n = 300
	for i := range n {
		a, err := ask(t, e, d, spec(i))
		if err != nil {
			t.Fatal(err)
		}
		c, s := a.Rows[0][1].(int64), a.Rows[0][2].(string)
		var sum float64
		if _, err := fmt.Sscan(s, &sum); err != nil {
			t.Fatal(err)
		}
		if c != 6 {
			different++
		}
		counts, sums = counts+float64(c), sums+sum
	}
	exact := 100.0 + 110 + 120 + 130 + 140 + 200
	if within := 5 * math.Sqrt2 * 2 / math.Sqrt(n); math.Abs(counts/n-6) > within || different < n/3 {
		t.Errorf("counts are %v on average, %d of %d differ from 6", counts/n, different, n)
	}
	if within := 5 * math.Sqrt2 * 400 / math.Sqrt(n); math.Abs(sums/n-exact) > within {
		t.Errorf("sums are %v on average, want %v", sums/n, exact)
	}
	for name, change := range map[string]func(*query.Spec){
		"an average":      func(s *query.Spec) { s.Request.Aggregates[1].Op = "avg" },
		"a sum unbounded": func(s *query.Spec) { s.Noise.Terms = &contract.Noise{EpsilonPerQuery: "1", EpsilonTotal: "1"} },
		"rows":            func(s *query.Spec) { s.Request = contract.Request{Select: []string{"team"}, Limit: 1} },
		"bounds of no digit": func(s *query.Spec) {
			s.Noise.Terms = &contract.Noise{EpsilonPerQuery: "1", EpsilonTotal: "1", Bounds: []contract.Bound{{Column: "pay", Low: "0", High: "1) --"}}}
		},
	} {
		s := spec(0)
		change(&s)
		if a, err := ask(t, e, d, s); err == nil {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// TestDeepAndWide: the largest tree that Evaluate lets pass runs, and a statement never grows with what it does not.
func TestDeepAndWide(t *testing.T) {
	d := dataset.Dataset{Columns: columns(map[string]string{"team": "text", "who": "text", "day": "date", "pay": "decimal(10,2)"}), Subject: "who"}
	e := loaded(t, Limits{}, staff, d)
	leaf := contract.Where(contract.Condition{Column: "team", Op: "=", Value: contract.TextValue("A")})
	tree := leaf
	for range contract.MaxFilterDepth - 1 {
		tree = contract.Filter{Or: []contract.Filter{tree, leaf}}
	}
	count := []contract.Aggregate{{Op: "count"}}
	a, err := ask(t, e, d, query.Spec{Request: contract.Request{Aggregates: count, Where: &tree}})
	if err != nil || a.Rows[0][0] != int64(6) {
		t.Errorf("%+v, %v", a, err)
	}
	deeper := contract.Filter{Not: &contract.Filter{Not: &tree}}
	if _, err := ask(t, e, d, query.Spec{Request: contract.Request{Aggregates: count, Where: &deeper}}); err == nil || !strings.Contains(err.Error(), "levels") {
		t.Errorf("too deep: %v", err)
	}
}
