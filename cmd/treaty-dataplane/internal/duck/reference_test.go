// SPDX-License-Identifier: Apache-2.0

package duck

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/query"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataplane/source/postgres"
	"github.com/treaty-node/treaty/node/dataplane/source/sqlitefile"
	"github.com/treaty-node/treaty/node/dataplane/source/trino"
	"github.com/treaty-node/treaty/node/dataset"
)

// The reference: rows in memory, and the request language over them in plain Go, without SQL.

// cellOf is a value of the reference: nil, string (texts and dates, which order as they are written) or *big.Rat.
type cellOf any

type refRow map[string]cellOf

var refColumns = map[string]string{"grp": "text", "who": "text", "n": "integer", "amount": "decimal(10,2)", "day": "date", "secret": "integer"}

// refData makes a file and the same rows.
func refData() (string, []refRow) {
	var b strings.Builder
	b.WriteString("grp,who,n,amount,day,secret\n")
	var rows []refRow
	x := uint32(7)
	next := func(n uint32) uint32 { x = x*1664525 + 1013904223; return (x >> 8) % n }
	for i := range 240 {
		grp, who := []string{"A", "AB", "b", "ü"}[next(4)], fmt.Sprintf("p%02d", next(40))
		n, cents := int64(next(21))-10, int64(next(200_00))-3000
		day := time.Date(2024, 11, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, int(next(150)))
		row := refRow{"grp": grp, "who": who, "n": new(big.Rat).SetInt64(n), "amount": big.NewRat(cents, 100), "day": day.Format(time.DateOnly), "secret": new(big.Rat).SetInt64(int64(i))}
		text := map[string]string{"grp": grp, "who": who, "n": strconv.FormatInt(n, 10), "amount": big.NewRat(cents, 100).FloatString(2), "day": day.Format(time.DateOnly), "secret": strconv.Itoa(i)}
		for _, name := range []string{"grp", "n", "amount", "day"} {
			if next(11) == 0 {
				row[name], text[name] = nil, ""
			}
		}
		fmt.Fprintf(&b, "%s,%s,%s,%s,%s,%s\n", text["grp"], text["who"], text["n"], text["amount"], text["day"], text["secret"])
		rows = append(rows, row)
	}
	return b.String(), rows
}

// compareCells orders two values of one column.
func compareCells(a, b cellOf) int {
	if x, ok := a.(*big.Rat); ok {
		return x.Cmp(b.(*big.Rat))
	}
	return cmp.Compare(a.(string), b.(string))
}

func refValue(column string, v contract.Value) cellOf {
	s, _ := v.Text()
	if t := refColumns[column]; t == "integer" || strings.HasPrefix(t, "decimal") {
		r, _ := new(big.Rat).SetString(s)
		return r
	}
	return s
}

// truth is three-valued: -1 no, 0 unknown, 1 yes.
func truth(b bool) int {
	if b {
		return 1
	}
	return -1
}

func refCondition(c contract.Condition, v cellOf) int {
	switch c.Op {
	case contract.OpIsNull:
		return truth(v == nil)
	case contract.OpIsNotNull:
		return truth(v != nil)
	}
	if v == nil {
		return 0
	}
	at := func(x contract.Value) int { return compareCells(v, refValue(c.Column, x)) }
	switch c.Op {
	case contract.OpEqual:
		return truth(at(c.Value) == 0)
	case contract.OpNotEqual:
		return truth(at(c.Value) != 0)
	case contract.OpLess:
		return truth(at(c.Value) < 0)
	case contract.OpLessEqual:
		return truth(at(c.Value) <= 0)
	case contract.OpGreater:
		return truth(at(c.Value) > 0)
	case contract.OpGreaterEqual:
		return truth(at(c.Value) >= 0)
	case contract.OpBetween:
		return truth(at(c.Values[0]) >= 0 && at(c.Values[1]) <= 0)
	case contract.OpIn:
		return truth(slices.ContainsFunc(c.Values, func(x contract.Value) bool { return at(x) == 0 }))
	case contract.OpPrefix:
		p, _ := c.Value.Text()
		return truth(strings.HasPrefix(v.(string), p))
	}
	panic(c.Op)
}

func refFilter(f *contract.Filter, r refRow) int {
	switch {
	case f.Leaf():
		return refCondition(f.Condition(), r[f.Column])
	case f.Not != nil:
		return -refFilter(f.Not, r)
	case f.And != nil:
		out := 1
		for i := range f.And {
			out = min(out, refFilter(&f.And[i], r))
		}
		return out
	}
	out := -1
	for i := range f.Or {
		out = max(out, refFilter(&f.Or[i], r))
	}
	return out
}

func refKeep(rows []refRow, conds []contract.Condition, tree *contract.Filter) []refRow {
	var out []refRow
	for _, r := range rows {
		keep := tree == nil || refFilter(tree, r) == 1
		for _, c := range conds {
			keep = keep && refCondition(c, r[c.Column]) == 1
		}
		if keep {
			out = append(out, r)
		}
	}
	return out
}

func refTruncate(day cellOf, unit string) cellOf {
	if day == nil {
		return nil
	}
	t, _ := time.Parse(time.DateOnly, day.(string))
	y, m, d := t.Date()
	switch unit {
	case contract.UnitYear:
		t = time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC)
	case contract.UnitQuarter:
		t = time.Date(y, (m-1)/3*3+1, 1, 0, 0, 0, 0, time.UTC)
	case contract.UnitMonth:
		t = time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
	case contract.UnitWeek:
		t = time.Date(y, m, d-(int(t.Weekday())+6)%7, 0, 0, 0, 0, time.UTC)
	}
	return t.Format(time.DateOnly)
}

// rounded writes a rational with a number of digits, half away from zero.
func rounded(r *big.Rat, scale int) string { return r.FloatString(scale) }

// refAggregate returns the cell as an answer writes it, and the number that having compares.
func refAggregate(a contract.Aggregate, rows []refRow) (any, any) {
	var values []cellOf
	for _, r := range rows {
		if a.Column == "" || r[a.Column] != nil {
			values = append(values, r[a.Column])
		}
	}
	scale := 0
	if a.Column == "amount" {
		scale = 2
	}
	if a.Op == contract.OpCount {
		n := float64(len(values))
		return n, new(big.Rat).SetInt64(int64(len(values)))
	}
	slices.SortFunc(values, compareCells)
	if a.Op == contract.OpCountDistinct {
		n := len(slices.CompactFunc(slices.Clone(values), func(x, y cellOf) bool { return compareCells(x, y) == 0 }))
		return float64(n), new(big.Rat).SetInt64(int64(n))
	}
	n := len(values)
	show := func(v cellOf) any {
		r, ok := v.(*big.Rat)
		switch {
		case !ok:
			return v
		case a.Column == "amount":
			return rounded(r, 2)
		}
		f, _ := r.Float64()
		return f
	}
	sum := new(big.Rat)
	if _, ok := values[0].(*big.Rat); ok {
		for _, v := range values {
			sum.Add(sum, v.(*big.Rat))
		}
	}
	switch a.Op {
	case contract.OpMin:
		return show(values[0]), values[0]
	case contract.OpMax:
		return show(values[n-1]), values[n-1]
	case contract.OpPercentile:
		p, _ := new(big.Rat).SetString(a.P)
		at, _ := new(big.Rat).Mul(p, new(big.Rat).SetInt64(int64(n))).Float64()
		v := values[max(int(math.Ceil(at-1e-9)), 1)-1]
		return show(v), v
	case contract.OpSum:
		return rounded(sum, scale), sum
	case contract.OpAvg:
		avg := new(big.Rat).Quo(sum, new(big.Rat).SetInt64(int64(n)))
		return rounded(avg, scale+query.AvgDigits), avg
	case contract.OpMedian:
		mid := new(big.Rat).Add(values[(n-1)/2].(*big.Rat), values[n/2].(*big.Rat))
		mid.Quo(mid, new(big.Rat).SetInt64(2))
		return rounded(mid, scale+1), mid
	case contract.OpStddev:
		if n < 2 {
			return nil, nil
		}
		mean, _ := new(big.Rat).Quo(sum, new(big.Rat).SetInt64(int64(n))).Float64()
		total := 0.0
		for _, v := range values {
			x, _ := v.(*big.Rat).Float64()
			total += (x - mean) * (x - mean)
		}
		sd := math.Sqrt(total / float64(n-1))
		return sd, new(big.Rat).SetFloat64(sd)
	}
	panic(a.Op)
}

// refAnswer answers a grouped request: the rows of the answer as texts, in any order, before limit and offset.
func refAnswer(all []refRow, rowFilter []contract.Condition, r contract.Request, minGroup int) (answer [][]any, used, total int) {
	visible := refKeep(all, rowFilter, nil)
	groups := map[string][]refRow{}
	keys := map[string][]any{}
	for _, row := range refKeep(visible, r.Filters, r.Where) {
		var key []any
		for _, g := range r.GroupBy {
			v := row[g]
			if x, ok := v.(*big.Rat); ok {
				if g == "amount" {
					v = rounded(x, 2)
				} else {
					v, _ = x.Float64()
				}
			}
			key = append(key, v)
		}
		for _, g := range r.GroupByDate {
			key = append(key, refTruncate(row[g.Column], g.Unit))
		}
		id := fmt.Sprintf("%#v", key)
		groups[id], keys[id] = append(groups[id], row), key
	}
	for id, rows := range groups {
		enough := true
		for _, column := range append([]string{""}, columnsOf(r)...) {
			people := map[cellOf]bool{}
			for _, row := range rows {
				if column == "" || row[column] != nil {
					people[row["who"]] = true
				}
			}
			enough = enough && len(people) >= minGroup
		}
		if !enough {
			continue
		}
		out := slices.Clone(keys[id])
		keep := true
		for _, a := range r.Aggregates {
			shown, value := refAggregate(a, rows)
			out = append(out, shown)
			for _, h := range r.Having {
				if h.Column == a.Name() {
					keep = keep && refHaving(h, value) == 1
				}
			}
		}
		if keep {
			answer, used = append(answer, out), used+len(rows)
		}
	}
	return answer, used, len(visible)
}

// refGranted is the plain statement of what columns may be used for.
func refGranted(c *contract.Contract, r *contract.Request) bool {
	may := func(column, use, op string) bool {
		if !slices.Contains(c.Columns, column) {
			return false
		}
		for _, g := range c.ColumnGrants {
			if g.Column == column {
				return slices.Contains(g.Uses, use) && (op == "" || slices.Contains(g.Operations, op))
			}
		}
		single := op == "min" || op == "max" || op == "median" || op == "percentile"
		return use != "read" && !(single && len(c.ColumnGrants) > 0)
	}
	ok := true
	var walk func(f *contract.Filter)
	walk = func(f *contract.Filter) {
		switch {
		case f == nil:
		case f.Leaf():
			ok = ok && may(f.Column, "filter", "")
		default:
			walk(f.Not)
			for i := range f.And {
				walk(&f.And[i])
			}
			for i := range f.Or {
				walk(&f.Or[i])
			}
		}
	}
	walk(r.Where)
	for _, f := range r.Filters {
		ok = ok && may(f.Column, "filter", "")
	}
	for _, name := range r.GroupBy {
		ok = ok && may(name, "group", "")
	}
	for _, g := range r.GroupByDate {
		ok = ok && may(g.Column, "group", "")
	}
	for _, name := range r.Select {
		ok = ok && may(name, "read", "")
	}
	for _, a := range r.Aggregates {
		ok = ok && slices.Contains(c.Operations, a.Op) && (a.Column == "" || may(a.Column, "aggregate", a.Op))
	}
	return ok
}

func refHaving(h contract.Condition, v any) int {
	if v == nil {
		return 0
	}
	text, _ := h.Value.Text()
	var bound cellOf = text
	if _, ok := v.(*big.Rat); ok {
		bound, _ = new(big.Rat).SetString(text)
	}
	if h.Op == contract.OpLess {
		return truth(compareCells(v, bound) < 0)
	}
	return truth(compareCells(v, bound) > 0)
}

func columnsOf(r contract.Request) (out []string) {
	for _, a := range r.Aggregates {
		if a.Column != "" {
			out = append(out, a.Column)
		}
	}
	return out
}

// same compares cells; doubles to 12 digits.
func same(a, b any) bool {
	x, ok1 := a.(float64)
	y, ok2 := b.(float64)
	if ok1 && ok2 {
		return math.Abs(x-y) <= 1e-9*max(1, math.Abs(x), math.Abs(y))
	}
	return a == b
}

var quotedName = regexp.MustCompile(`"(?:[^"]|"")*"`)

// TestC15_RandomContractsAndQueries: Evaluate lets pass what the plain statement of the grants does, which names only granted columns
// when it reaches an engine, of whatever dialect, and gives the numbers that the reference computes over the same rows.
func TestC15_RandomContractsAndQueries(t *testing.T) {
	data, rows := refData()
	d := dataset.Dataset{Columns: columns(refColumns), Subject: "who"}
	e := loaded(t, Limits{}, data, d)
	schema, err := dataset.Config{"d": d}.Schema("d")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	allowed, denied, released, selected := 0, 0, 0, 0
	check := func(rt *rapid.T) {
		g := refGenerator{rt, []string{"grp", "who", "n", "amount", "day"}}
		c := g.contract(schema)
		r := g.request(c)
		if d := contract.Evaluate(r, schema, c, contract.Usage{State: contract.InForce}, now); !d.Allowed {
			denied++
			if d.Code != contract.ScopeDenied && d.Code != contract.InvalidQuery || d.Code == contract.ScopeDenied && refGranted(c, &r) {
				rt.Fatal(d)
			}
			return
		}
		allowed++
		if !refGranted(c, &r) {
			rt.Fatalf("allowed: %+v under %+v", r, c.Scope)
		}
		spec := query.Spec{
			Dialect: source.DuckDB{}, From: `"d"`, Request: r, Schema: schema, RowFilter: c.RowFilter, MinGroup: c.MinGroupSize, Subject: "who", MaxRows: 10_000,
		}
		p, err := query.Build(spec)
		if err != nil {
			rt.Fatal(err)
		}
		names := append(slices.Clone(c.Columns), "d", "who")
		for _, f := range c.RowFilter {
			names = append(names, f.Column)
		}
		for _, other := range []source.Dialect{source.DuckDB{}, postgres.Dialect{}, sqlitefile.Dialect{}, trino.Dialect{}} {
			spec.Dialect = other
			q, err := query.Build(spec)
			if err != nil {
				rt.Fatalf("%s: %v", other.Name(), err)
			}
			sql := strings.ReplaceAll(q.Statement.SQL, ` COLLATE "C"`, "") // the one name that is PostgreSQL's
			for _, id := range quotedName.FindAllString(sql, -1) {
				if !slices.Contains(names, strings.Trim(id, `"`)) {
					rt.Fatalf("%s: %s in %s", other.Name(), id, sql)
				}
			}
			if bare := quotedName.ReplaceAllString(sql, ""); strings.Contains(bare, "secret") || strings.Contains(bare, "amount") {
				rt.Fatalf("%s: a name without quotes in %s", other.Name(), sql)
			}
		}
		got, err := e.Query(t.Context(), p.Statement)
		if err != nil {
			rt.Fatalf("%v: %s %v", err, p.Statement.SQL, p.Statement.Args)
		}
		answer, err := p.Answer(got)
		if r.Rows() {
			selected++
			if err != nil {
				rt.Fatal(err)
			}
			refSelected(rt, r, refKeep(refKeep(rows, c.RowFilter, nil), r.Filters, r.Where), answer)
			return
		}
		want, used, total := refAnswer(rows, c.RowFilter, r, c.MinGroupSize)
		if len(want) == 0 {
			if err == nil {
				rt.Fatalf("want no group, got %v", answer.Rows)
			}
			return
		}
		if err != nil {
			rt.Fatalf("want %v: %v", want, err)
		}
		released++
		refEqual(rt, answer, want)
		if answer.UsedRows != int64(used) || answer.TotalRows != int64(total) {
			rt.Fatalf("used %d of %d, want %d of %d", answer.UsedRows, answer.TotalRows, used, total)
		}
	}
	for range 4 { // few are allowed
		rapid.Check(t, check)
	}
	t.Logf("%d denied, %d allowed: %d released groups, %d rows", denied, allowed, released, selected)
	if denied == 0 || released == 0 || selected == 0 {
		t.Error("one kind of case was not seen")
	}
}

// decoded is an answer's rows as JSON has them.
func decoded(t *rapid.T, a *query.Answer) (rows [][]any) {
	b, err := json.Marshal(a.Rows)
	if err != nil || json.Unmarshal(b, &rows) != nil {
		t.Fatal(err)
	}
	return rows
}

func refEqual(t *rapid.T, a *query.Answer, want [][]any) {
	got := decoded(t, a)
	if len(got) != len(want) {
		t.Fatalf("%d rows %v, want %d %v", len(got), got, len(want), want)
	}
	for _, w := range want {
		if !slices.ContainsFunc(got, func(g []any) bool { return slices.EqualFunc(g, w, same) }) {
			t.Fatalf("%v is missing from %v", w, got)
		}
	}
}

// refSelected compares a page of rows: ordered by the selected columns, nulls last.
func refSelected(t *rapid.T, r contract.Request, rows []refRow, a *query.Answer) {
	sort.SliceStable(rows, func(i, j int) bool {
		for _, name := range r.Select {
			x, y := rows[i][name], rows[j][name]
			switch {
			case x == nil && y == nil:
				continue
			case x == nil || y == nil:
				return y == nil
			}
			if c := compareCells(x, y); c != 0 {
				return c < 0
			}
		}
		return false
	})
	rows = rows[min(r.Offset, len(rows)):]
	rows = rows[:min(r.Limit, len(rows))]
	got := decoded(t, a)
	if len(got) != len(rows) || a.UsedRows != int64(len(rows)) {
		t.Fatalf("%d rows, want %d", len(got), len(rows))
	}
	for i, row := range rows {
		for j, name := range r.Select {
			want := any(row[name])
			if x, ok := want.(*big.Rat); ok {
				if name == "amount" {
					want = rounded(x, 2)
				} else {
					want, _ = x.Float64()
				}
			}
			if !same(got[i][j], want) {
				t.Fatalf("row %d, %s: %v, want %v", i, name, got[i][j], want)
			}
		}
	}
}
