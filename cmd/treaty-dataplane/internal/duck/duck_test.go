// SPDX-License-Identifier: Apache-2.0

package duck

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/query"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataplane/source/sourcetest"
	"github.com/treaty-node/treaty/node/dataset"
)

const testdata = "../../../../node/dataplane/csvimport/testdata"

func open(t *testing.T, l Limits) *Engine {
	t.Helper()
	e, err := Open(t.Context(), l, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// loaded returns a locked engine with one dataset "d" made from the file's bytes.
func loaded(t *testing.T, l Limits, data string, d dataset.Dataset) *Engine {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "d.csv"), []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Path = "d.csv"
	e := open(t, l)
	if _, err := e.Load(t.Context(), "d", d, dir); err != nil {
		t.Fatal(err)
	}
	if err := e.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

func ask(t *testing.T, e *Engine, d dataset.Dataset, s query.Spec) (*query.Answer, error) {
	t.Helper()
	if s.MaxRows == 0 {
		s.MaxRows = 1000
	}
	return sourcetest.Ask(t.Context(), e, "d", d, s)
}

func columns(m map[string]string) map[string]dataset.Column {
	out := map[string]dataset.Column{}
	for name, typ := range m {
		out[name] = dataset.Column{Type: typ}
	}
	return out
}

// TestC15_AggregatesEqualAnIndependentComputation imports unlike CSV files and compares every aggregate with the same one
// computed in Go, exactly, from the file as encoding/csv reads it.
func TestC15_AggregatesEqualAnIndependentComputation(t *testing.T) {
	tests := []struct {
		file    string
		enc     encoding.Encoding // how the reference reads the file
		comma   rune
		names   []string // header for the reference, when the file has none to use
		fix     func(string) string
		group   string
		value   string
		scale   int
		columns map[string]string
		csv     dataset.CSV
	}{
		{file: "plain.csv", group: "region", value: "amount", scale: 2, columns: map[string]string{"region": "text", "amount": "decimal(10,2)", "day": "date"}},
		{file: "bom_crlf_quoted.csv", group: "region", value: "amount", scale: 2, columns: map[string]string{"region": "text", "amount": "decimal(10,2)", "active": "boolean"}},
		{file: "bom_crlf_quoted.csv", group: "active", value: "amount", scale: 2, columns: map[string]string{"amount": "decimal(10,2)", "active": "boolean"}},
		{file: "semicolon_decimal_comma.csv", comma: ';', group: "Region", value: "Betrag", scale: 2,
			fix:     func(s string) string { return strings.Replace(strings.ReplaceAll(s, ".", ""), ",", ".", 1) },
			columns: map[string]string{"Region": "text", "Betrag": "decimal(10,2)", "Datum": "date"},
			csv:     dataset.CSV{Decimal: ",", Thousands: ".", DateFormat: "DD.MM.YYYY"}},
		{file: "tab.tsv", comma: '\t', group: "region", value: "qty", scale: 0, columns: map[string]string{"region": "text", "qty": "integer"}},
		{file: "pipe_timestamps.csv", comma: '|', group: "region", value: "amount", scale: 3, columns: map[string]string{"region": "text", "amount": "decimal(12,3)", "local": "timestamp", "instant": "timestamptz"}},
		{file: "utf16.csv", enc: unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), group: "region", value: "amount", scale: 2,
			columns: map[string]string{"region": "text", "amount": "decimal(10,2)"}, csv: dataset.CSV{Encoding: "utf-16"}},
		{file: "windows1252.csv", enc: charmap.Windows1252, comma: ';', group: "région", value: "montant", scale: 2,
			columns: map[string]string{"région": "text", "montant": "decimal(10,2)"}, csv: dataset.CSV{Encoding: "windows-1252"}},
		{file: "embedded.csv", group: "comment", value: "amount", scale: 2, columns: map[string]string{"region": "text", "comment": "text", "amount": "decimal(10,2)"}},
		{file: "leading_zeros.csv", group: "postcode", value: "amount", scale: 2, columns: map[string]string{"postcode": "text", "amount": "decimal(10,2)"}},
		{file: "big_numbers.csv", group: "grp", value: "big", scale: 0, columns: map[string]string{"grp": "text", "big": "decimal(38,0)"}},
		{file: "big_numbers.csv", group: "grp", value: "exact", scale: 19, columns: map[string]string{"grp": "text", "exact": "decimal(38,19)"}},
		{file: "beyond_2_53.csv", group: "grp", value: "id", scale: 0, columns: map[string]string{"grp": "text", "id": "integer"}},
		{file: "ambiguous_dates.csv", group: "region", value: "amount", scale: 2, columns: map[string]string{"region": "text", "amount": "decimal(10,2)", "when": "date"}, csv: dataset.CSV{DateFormat: "DD/MM/YYYY"}},
		{file: "nulls.csv", group: "region", value: "amount", scale: 2, columns: map[string]string{"region": "text", "amount": "decimal(10,2)"}},
		{file: "missing_words.csv", group: "region", value: "amount", scale: 2, fix: func(s string) string { return strings.Replace(s, "NA", "", 1) },
			columns: map[string]string{"region": "text", "amount": "decimal(10,2)"}, csv: dataset.CSV{Nulls: []string{"NA"}}},
		{file: "no_header.csv", names: []string{"grp", "amount"}, group: "grp", value: "amount", scale: 2,
			columns: map[string]string{"grp": "integer", "amount": "decimal(10,2)"}, csv: dataset.CSV{NoHeader: true, Header: []string{"grp", "amount"}}},
		{file: "hostile_names.csv", group: "select", value: "amount", scale: 2, columns: map[string]string{"select": "text", `a "b" c`: "integer", "x; DROP TABLE t --": "integer", "amount": "decimal(10,2)"}},
		{file: "exponents.csv", group: "grp", value: "x", scale: 3, columns: map[string]string{"grp": "text", "x": "decimal(10,3)"}},
	}
	for _, tt := range tests {
		t.Run(tt.file+" "+tt.value, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join(testdata, tt.file))
			if err != nil {
				t.Fatal(err)
			}
			d := dataset.Dataset{Columns: columns(tt.columns), CSV: tt.csv}
			e := loaded(t, Limits{}, string(raw), d)

			groups, total := reference(t, raw, tt.enc, tt.comma, tt.names, tt.group, tt.value, tt.fix)
			ops := []string{contract.OpSum, contract.OpAvg, contract.OpMin, contract.OpMax, contract.OpCount, contract.OpCountDistinct, contract.OpMedian}
			req := contract.Request{GroupBy: []string{tt.group}, Aggregates: []contract.Aggregate{{Op: contract.OpCount}}}
			for _, op := range ops {
				req.Aggregates = append(req.Aggregates, contract.Aggregate{Op: op, Column: tt.value, As: "a_" + op})
			}
			a, err := ask(t, e, d, query.Spec{Request: req})
			if err != nil {
				t.Fatal(err)
			}
			if len(a.Rows) != len(groups) {
				t.Fatalf("%d groups, want %d", len(a.Rows), len(groups))
			}
			if a.TotalRows != total || a.UsedRows != total {
				t.Errorf("%d of %d rows, want all of %d", a.UsedRows, a.TotalRows, total)
			}
			for _, row := range a.Rows {
				key := ""
				if row[0] != nil {
					key = fmt.Sprint(row[0])
				}
				g, ok := groups[key]
				if !ok {
					t.Fatalf("group %q is not in the file", key)
				}
				want := g.aggregates(tt.scale)
				for i, w := range want {
					if got := fmt.Sprint(row[i+1]); got != w {
						t.Errorf("group %q, %s: %s, want %s", key, a.Columns[i+1].Name, got, w)
					}
				}
			}
		})
	}
}

// refGroup holds one group's values, exactly.
type refGroup struct {
	rows   int64
	values []*big.Rat
}

// reference groups a file's values without any of our code.
func reference(t *testing.T, raw []byte, enc encoding.Encoding, comma rune, names []string, group, value string, fix func(string) string) (map[string]*refGroup, int64) {
	t.Helper()
	var in io.Reader = bytes.NewReader(bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf")))
	if enc != nil {
		in = enc.NewDecoder().Reader(bytes.NewReader(raw))
	}
	r := csv.NewReader(in)
	if comma != 0 {
		r.Comma = comma
	}
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if names == nil {
		names, rows = rows[0], rows[1:]
	}
	gi, vi := slices.Index(names, group), slices.Index(names, value)
	if gi < 0 || vi < 0 {
		t.Fatalf("columns %q", names)
	}
	groups := map[string]*refGroup{}
	for _, row := range rows {
		key := row[gi]
		if strings.EqualFold(key, "true") || strings.EqualFold(key, "false") {
			key = strings.ToLower(key)
		}
		// encoding/csv turns CRLF inside quotes into LF; the importer keeps what the file says.
		if strings.HasPrefix(key, "line one") {
			key = strings.Replace(key, "more\n", "more\r\n", 1)
		}
		g := groups[key]
		if g == nil {
			g = &refGroup{}
			groups[key] = g
		}
		g.rows++
		text := row[vi]
		if fix != nil {
			text = fix(text)
		}
		if text == "" {
			continue
		}
		v, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatalf("no number in %s", value)
		}
		g.values = append(g.values, v)
	}
	return groups, int64(len(rows))
}

// aggregates: count of rows, then sum, avg, min, max, count, count distinct, median, written as answers write them.
func (g *refGroup) aggregates(scale int) []string {
	v := slices.Clone(g.values)
	sort.Slice(v, func(i, j int) bool { return v[i].Cmp(v[j]) < 0 })
	sum, distinct := new(big.Rat), map[string]bool{}
	for _, x := range v {
		sum.Add(sum, x)
		distinct[x.RatString()] = true
	}
	n := len(v)
	avg := new(big.Rat).Quo(sum, big.NewRat(int64(n), 1))
	med := new(big.Rat).Quo(new(big.Rat).Add(v[(n-1)/2], v[n/2]), big.NewRat(2, 1))
	return []string{
		strconv.FormatInt(g.rows, 10), sum.FloatString(scale), avg.FloatString(scale + query.AvgDigits),
		v[0].FloatString(scale), v[n-1].FloatString(scale), strconv.Itoa(n), strconv.Itoa(len(distinct)), med.FloatString(scale + 1),
	}
}

var people = dataset.Dataset{
	Subject: "who",
	Columns: columns(map[string]string{"who": "text", "grp": "text", "amount": "decimal(8,2)", "n": "integer", "x": "double", "ok": "boolean", "day": "date", "at": "timestamp", "instant": "timestamptz"}),
}

// peopleCSV: group A has three people in five rows, B two people of whom one has an amount, C one person in four rows.
const peopleCSV = `who,grp,amount,n,x,ok,day,at,instant
p1,A,10.00,1,0.5,true,2025-07-01,2025-07-01 10:00:00,2025-07-01T10:00:00Z
p1,A,20.00,2,0.25,true,2025-07-02,2025-07-02 10:00:00,2025-07-02T10:00:00+02:00
p2,A,30.00,3,1e-3,false,2025-08-01,2025-08-01 10:00:00,2025-08-01T10:00:00Z
p3,A,40.00,4,4,false,2025-09-30,2025-09-30 23:59:59.999999,2025-09-30T23:59:59.999999Z
p3,A,0.01,5,5,,2025-10-01,2025-10-01 00:00:00,2025-10-01T00:00:00Z
p4,B,50.00,6,6,true,2025-07-01,2025-07-01 10:00:00,2025-07-01T10:00:00Z
p5,B,,7,7,true,2025-07-01,2025-07-01 10:00:00,2025-07-01T10:00:00Z
p6,C,1.00,8,8,true,2025-07-01,2025-07-01 10:00:00,2025-07-01T10:00:00Z
p6,C,2.00,9,9,true,2025-07-01,2025-07-01 10:00:00,2025-07-01T10:00:00Z
p6,C,3.00,9007199254740993,10,true,2025-07-01,2025-07-01 10:00:00,2025-07-01T10:00:00Z
p6,C,4.00,11,11,true,2025-07-01,2025-07-01 10:00:00,2025-07-01T10:00:00Z
`

func count(as string) contract.Aggregate { return contract.Aggregate{Op: contract.OpCount, As: as} }

func agg(op, col string) contract.Aggregate { return sourcetest.Agg(op, col) }

func where(col, op string, values ...string) contract.Condition {
	return sourcetest.Where(col, op, values...)
}

func TestGroupSize(t *testing.T) {
	e := loaded(t, Limits{}, peopleCSV, people)
	tests := []struct {
		name   string
		spec   query.Spec
		groups []any // first cells of the answer; nil: GROUP_TOO_SMALL
		used   int64
		total  int64
	}{
		{"everything", query.Spec{Request: contract.Request{GroupBy: []string{"grp"}, Aggregates: []contract.Aggregate{count("n_")}}}, []any{"A", "B", "C"}, 11, 11},
		{"distinct people, not rows", query.Spec{MinGroup: 2, Subject: "who", Request: contract.Request{GroupBy: []string{"grp"}, Aggregates: []contract.Aggregate{count("n_")}}}, []any{"A", "B"}, 7, 11},
		{"rows when there is no subject", query.Spec{MinGroup: 4, Request: contract.Request{GroupBy: []string{"grp"}, Aggregates: []contract.Aggregate{count("n_")}}}, []any{"A", "C"}, 9, 11},
		{"nulls hide nobody", query.Spec{MinGroup: 2, Subject: "who", Request: contract.Request{GroupBy: []string{"grp"}, Aggregates: []contract.Aggregate{agg("avg", "amount")}}}, []any{"A"}, 5, 11},
		{"nulls hide no row", query.Spec{MinGroup: 2, Request: contract.Request{GroupBy: []string{"grp"}, Aggregates: []contract.Aggregate{agg("avg", "amount")}}}, []any{"A", "C"}, 9, 11},
		{"before the limit", query.Spec{MinGroup: 3, Subject: "who", Request: contract.Request{GroupBy: []string{"grp"}, Aggregates: []contract.Aggregate{count("n_")}, OrderBy: []contract.Order{{By: "grp", Desc: true}}, Limit: 1}}, []any{"A"}, 5, 11},
		{"grouping by the subject", query.Spec{MinGroup: 2, Subject: "who", Request: contract.Request{GroupBy: []string{"who"}, Aggregates: []contract.Aggregate{count("n_")}}}, nil, 0, 0},
		{"grouping by what is unique", query.Spec{MinGroup: 2, Subject: "who", Request: contract.Request{GroupBy: []string{"n"}, Aggregates: []contract.Aggregate{count("n_")}}}, nil, 0, 0},
		{"one group, too small", query.Spec{MinGroup: 2, Subject: "who", Request: contract.Request{Filters: []contract.Condition{where("grp", "=", "C")}, Aggregates: []contract.Aggregate{agg("sum", "amount")}}}, nil, 0, 0},
		{"nothing matches", query.Spec{Request: contract.Request{Filters: []contract.Condition{where("grp", "=", "Z")}, Aggregates: []contract.Aggregate{count("n_")}}}, nil, 0, 0},
		{"the contract's rows", query.Spec{RowFilter: []contract.Condition{where("grp", "in", "A", "B")}, Request: contract.Request{GroupBy: []string{"grp"}, Filters: []contract.Condition{where("grp", "!=", "A")}, Aggregates: []contract.Aggregate{count("n_")}}}, []any{"B"}, 2, 7},
		{"not around the contract's rows", query.Spec{RowFilter: []contract.Condition{where("grp", "=", "A")}, Request: contract.Request{GroupBy: []string{"grp"}, Filters: []contract.Condition{where("grp", "in", "B", "C")}, Aggregates: []contract.Aggregate{count("n_")}}}, nil, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, err := ask(t, e, people, tt.spec)
			if tt.groups == nil {
				if !errors.Is(err, query.ErrGroups) {
					t.Fatalf("answer %+v, err %v", a, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []any
			for _, r := range a.Rows {
				got = append(got, r[0])
			}
			if !reflect.DeepEqual(got, tt.groups) || a.UsedRows != tt.used || a.TotalRows != tt.total {
				t.Fatalf("groups %v, %d of %d; want %v, %d of %d", got, a.UsedRows, a.TotalRows, tt.groups, tt.used, tt.total)
			}
		})
	}
}

func TestFilters(t *testing.T) {
	e := loaded(t, Limits{}, peopleCSV, people)
	tests := []struct {
		c    contract.Condition
		want int64
	}{
		{where("amount", "=", "10.00"), 1}, {where("amount", "=", "10"), 1}, {where("amount", "!=", "10"), 9},
		{where("amount", "<", "2"), 2}, {where("amount", "<=", "2.00"), 3}, {where("amount", ">", "40"), 1}, {where("amount", ">=", "40"), 2},
		{where("amount", "between", "2", "4"), 3}, {where("amount", "is_null"), 1}, {where("amount", "is_not_null"), 10},
		{where("n", ">", "9007199254740992"), 1}, {where("n", "in", "1", "2", "99"), 2}, {where("x", "<", "0.5"), 2},
		{where("day", "between", "2025-07-01", "2025-09-30"), 10}, {where("day", ">=", "2025-10-01"), 1},
		{where("at", "<", "2025-09-30T23:59:59.999999"), 9}, {where("instant", "=", "2025-07-02T08:00:00Z"), 1},
		{where("who", "=", "p6"), 4}, {where("who", "<", "p2"), 2},
		{contract.Condition{Column: "ok", Op: "=", Value: contract.BoolValue(false)}, 2}, {where("ok", "is_null"), 1},
	}
	for _, tt := range tests {
		t.Run(tt.c.String(), func(t *testing.T) {
			a, err := ask(t, e, people, query.Spec{Request: contract.Request{Filters: []contract.Condition{tt.c}, Aggregates: []contract.Aggregate{count("n_")}}})
			if err != nil || a.Rows[0][0] != tt.want {
				t.Fatalf("%+v, %v; want %d", a, err, tt.want)
			}
		})
	}
}

func TestAnswerTypes(t *testing.T) {
	e := loaded(t, Limits{}, peopleCSV, people)
	req := contract.Request{Filters: []contract.Condition{where("grp", "=", "C")}, Aggregates: []contract.Aggregate{
		agg("max", "n"), agg("min", "n"), agg("sum", "n"), agg("avg", "n"), agg("max", "day"), agg("max", "at"), agg("min", "instant"),
		agg("min", "who"), agg("sum", "x"), agg("avg", "x"), agg("median", "x"), agg("median", "amount"), agg("count_distinct", "ok"),
	}}
	a, err := ask(t, e, people, query.Spec{Request: req})
	if err != nil {
		t.Fatal(err)
	}
	want := []any{
		"9007199254740993", int64(8), "9007199254741021", "2251799813685255.2500", "2025-07-01", "2025-07-01T10:00:00", "2025-07-01T10:00:00Z",
		"p6", 38.0, 9.5, 9.5, "2.500", int64(1),
	}
	if !reflect.DeepEqual(a.Rows[0], want) {
		t.Fatalf("%#v\nwant %#v", a.Rows[0], want)
	}
	types := []string{"integer", "integer", "decimal(38,0)", "decimal(38,4)", "date", "timestamp", "timestamptz", "text", "double", "double", "double", "decimal(38,3)", "integer"}
	for i, c := range a.Columns {
		if c.Type != types[i] {
			t.Errorf("%s is %s, want %s", c.Name, c.Type, types[i])
		}
	}
}

func TestOrderAndLimit(t *testing.T) {
	e := loaded(t, Limits{}, peopleCSV, people)
	for _, tt := range []struct {
		by    string
		desc  bool
		limit int
		want  []any
	}{
		{"avg_amount", false, 0, []any{"C", "A", "B"}}, {"avg_amount", true, 2, []any{"B", "A"}},
		{"median_amount", true, 0, []any{"B", "A", "C"}}, {"count", true, 0, []any{"A", "C", "B"}}, {"grp", true, 1, []any{"C"}},
	} {
		a, err := ask(t, e, people, query.Spec{Request: contract.Request{
			GroupBy: []string{"grp"}, OrderBy: []contract.Order{{By: tt.by, Desc: tt.desc}}, Limit: tt.limit,
			Aggregates: []contract.Aggregate{agg("avg", "amount"), agg("median", "amount"), count("")},
		}})
		if err != nil {
			t.Fatal(err)
		}
		var got []any
		for _, r := range a.Rows {
			got = append(got, r[0])
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("by %s desc %v: %v, want %v", tt.by, tt.desc, got, tt.want)
		}
	}
	_, err := ask(t, e, people, query.Spec{MaxRows: 2, Request: contract.Request{GroupBy: []string{"grp"}, Aggregates: []contract.Aggregate{count("")}}})
	if !errors.Is(err, source.ErrTooManyRows) {
		t.Errorf("more rows than allowed: %v", err)
	}
}

// Results are recomputed to the same digest: many threads must not change a bit, doubles included.
func TestSumsAreDeterministic(t *testing.T) {
	var b strings.Builder
	b.WriteString("x,m\n")
	values := make([]float64, 50_000)
	for i := range values {
		values[i] = 1 / float64(i*7919%9973+1)
		fmt.Fprintf(&b, "%s,%d.%02d\n", strconv.FormatFloat(values[i], 'g', -1, 64), i%977, i%100)
	}
	d := dataset.Dataset{Columns: columns(map[string]string{"x": "double", "m": "decimal(10,2)"})}
	e := loaded(t, Limits{Threads: 4}, b.String(), d)
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	for range 10 {
		a, err := ask(t, e, d, query.Spec{Request: contract.Request{Aggregates: []contract.Aggregate{agg("sum", "x"), agg("avg", "x"), agg("avg", "m")}}})
		if err != nil {
			t.Fatal(err)
		}
		if a.Rows[0][0] != sum || a.Rows[0][1] != sum/float64(len(values)) {
			t.Fatalf("sum %v, want %v", a.Rows[0][0], sum)
		}
	}
}

// SQL in every string that a caller controls is data, or refused.
func TestInvariant5_TextNeverBecomesSQL(t *testing.T) {
	e := loaded(t, Limits{}, peopleCSV, people)
	for _, evil := range []string{
		`'; DROP TABLE d; --`, `" OR 1=1 --`, `p1' OR '1'='1`, `x"; COPY d TO '/tmp/out.csv'; --`, "p1\x00", `\'; SELECT 1`, `$1`, `?`, `{}`, `%s`, `p1"/*`,
	} {
		reqs := map[string]contract.Request{
			"filter value":  {Filters: []contract.Condition{where("who", "=", evil)}, Aggregates: []contract.Aggregate{count("")}},
			"in value":      {Filters: []contract.Condition{where("who", "in", evil, "nobody")}, Aggregates: []contract.Aggregate{count("")}},
			"date value":    {Filters: []contract.Condition{where("day", "=", evil)}, Aggregates: []contract.Aggregate{count("")}},
			"number value":  {Filters: []contract.Condition{where("amount", "=", evil)}, Aggregates: []contract.Aggregate{count("")}},
			"filter column": {Filters: []contract.Condition{where(evil, "=", "x")}, Aggregates: []contract.Aggregate{count("")}},
			"operator":      {Filters: []contract.Condition{where("who", evil, "x")}, Aggregates: []contract.Aggregate{count("")}},
			"group":         {GroupBy: []string{evil}, Aggregates: []contract.Aggregate{count("")}},
			"aggregate":     {Aggregates: []contract.Aggregate{{Op: evil, Column: "n"}}},
			"column":        {Aggregates: []contract.Aggregate{agg("sum", evil)}},
			"order":         {GroupBy: []string{"grp"}, OrderBy: []contract.Order{{By: evil}}, Aggregates: []contract.Aggregate{count("")}},
		}
		for where, req := range reqs {
			a, err := ask(t, e, people, query.Spec{Request: req})
			if err == nil {
				t.Errorf("%s %q was answered: %+v", where, evil, a)
			} else if !errors.Is(err, query.ErrInvalid) && !errors.Is(err, query.ErrGroups) {
				t.Errorf("%s %q reached the engine: %v", where, evil, err)
			}
		}
		// An alias is a name in the answer and never in the statement.
		a, err := ask(t, e, people, query.Spec{Request: contract.Request{Aggregates: []contract.Aggregate{count(evil)}}})
		if err != nil || a.Columns[0].Name != evil || a.Rows[0][0] != int64(11) {
			t.Errorf("alias %q: %+v, %v", evil, a, err)
		}
	}
	if a, err := ask(t, e, people, query.Spec{Request: contract.Request{Aggregates: []contract.Aggregate{count("")}}}); err != nil || a.Rows[0][0] != int64(11) {
		t.Fatalf("the table is not what it was: %+v, %v", a, err)
	}
}

func TestLockdown(t *testing.T) {
	e := loaded(t, Limits{}, peopleCSV, people)
	dir := t.TempDir()
	file := filepath.Join(dir, "f.csv")
	if err := os.WriteFile(file, []byte("a\n1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"SELECT * FROM read_csv('" + file + "')", "SELECT * FROM '" + file + "'", "SELECT * FROM read_text('/etc/hostname')",
		"COPY d TO '" + dir + "/out.csv'", "EXPORT DATABASE '" + dir + "/x'", "ATTACH '" + dir + "/x.db' AS x", "INSTALL httpfs", "LOAD httpfs",
		"SELECT * FROM read_csv('https://example.com/x.csv')", "SET enable_external_access = true", "SET lock_configuration = false",
		"SET memory_limit = '100GB'", "SET threads = 64", "SELECT * FROM glob('/etc/*')", "SET profiling_output = '/tmp/x'", "PRAGMA profiling_output = '/tmp/x'",
	} {
		if rows, err := e.Query(t.Context(), source.Statement{Dataset: "d", SQL: sql, MaxRows: 10}); err == nil {
			t.Errorf("%s ran: %v", sql, rows)
		} else if !errors.Is(err, source.ErrEngine) {
			t.Errorf("%s: %v", sql, err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("files were written: %v %v", left, err)
	}
	if _, err := e.Load(t.Context(), "late", people, "."); err == nil {
		t.Error("a dataset was loaded after the lock")
	}
}

// The engine's own words quote rows: neither the caller nor the log may get them.
func TestEngineErrorsQuoteNothing(t *testing.T) {
	var logged bytes.Buffer
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "d.csv"), []byte("who,amount\ns3cr3t,9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := Open(t.Context(), Limits{}, slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	d := dataset.Dataset{Path: "d.csv", Columns: columns(map[string]string{"who": "text", "amount": "integer"})}
	if _, err := e.Query(t.Context(), source.Statement{Dataset: "d", SQL: "SELECT 1", MaxRows: 1}); !errors.Is(err, ErrNotLocked) {
		t.Fatalf("before the lock: %v", err)
	}
	if _, err := e.Load(t.Context(), "d", d, dir); err != nil {
		t.Fatal(err)
	}
	if err := e.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn := e.db
	var x any
	raw := conn.QueryRowContext(t.Context(), `SELECT CAST(who AS INTEGER) FROM d`).Scan(&x)
	if raw == nil || !strings.Contains(raw.Error(), "s3cr3t") {
		t.Fatalf("the engine no longer quotes rows, so this test proves nothing: %v", raw)
	}
	_, err = e.Query(t.Context(), source.Statement{Dataset: "d", SQL: `SELECT CAST(who AS INTEGER) FROM d`, MaxRows: 1})
	if !errors.Is(err, source.ErrRange) || strings.Contains(err.Error(), "s3cr3t") {
		t.Fatalf("err = %v", err)
	}
	if _, err = e.Query(t.Context(), source.Statement{Dataset: "d", SQL: `SELECT "s3cr3t`, MaxRows: 1}); err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Fatalf("err = %v", err)
	}
	if logged.Len() == 0 || strings.Contains(logged.String(), "s3cr3t") {
		t.Fatalf("log: %q", logged.String())
	}
	if _, err := e.Query(t.Context(), source.Statement{Dataset: "other", SQL: "SELECT 1", MaxRows: 1}); !errors.Is(err, source.ErrNoDataset) {
		t.Fatalf("unknown dataset: %v", err)
	}
}

const slow = "SELECT count(*) FROM range(100000000000) a WHERE a.range % 7 = 3"

func TestCancellationAndLimits(t *testing.T) {
	e := loaded(t, Limits{Limits: source.Limits{Time: 200 * time.Millisecond}, MemoryMB: 64}, peopleCSV, people)
	if _, err := e.Query(t.Context(), source.Statement{Dataset: "d", SQL: slow, MaxRows: 1}); !errors.Is(err, source.ErrTime) {
		t.Errorf("time limit: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	started := time.AfterFunc(20*time.Millisecond, cancel)
	defer started.Stop()
	if _, err := e.Query(ctx, source.Statement{Dataset: "d", SQL: slow, MaxRows: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller went away: %v", err)
	}
	e2 := loaded(t, Limits{MemoryMB: 64}, peopleCSV, people)
	if _, err := e2.Query(t.Context(), source.Statement{Dataset: "d", SQL: "SELECT len(list(range)) FROM range(100000000)", MaxRows: 1}); !errors.Is(err, source.ErrMemory) {
		t.Errorf("memory limit: %v", err)
	}
	for _, x := range []*Engine{e, e2} {
		if _, err := x.Query(t.Context(), source.Statement{Dataset: "d", SQL: "SELECT count(*) FROM d", MaxRows: 1}); err != nil {
			t.Errorf("the engine is not usable afterwards: %v", err)
		}
	}
}

func TestLoadStopsOnErrors(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "d.csv"), []byte("a,b\n1,2\n3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := open(t, Limits{})
	d := dataset.Dataset{Path: "d.csv", Columns: columns(map[string]string{"a": "integer"})}
	rep, err := e.Load(t.Context(), "d", d, dir)
	if err == nil || rep == nil || rep.OK() {
		t.Fatalf("report %+v, err %v", rep, err)
	}
	if _, err := e.Table("d"); !errors.Is(err, source.ErrNoDataset) {
		t.Fatalf("a table was made: %v", err)
	}
	d.CSV.RaggedRows = "skip"
	if _, err = e.Load(t.Context(), "d", d, dir); err != nil {
		t.Fatal(err)
	}
	if tab, err := e.Table("d"); err != nil || tab.Rows != 1 {
		t.Fatalf("table %+v, %v", tab, err)
	}
	d.Path = "missing.csv"
	if _, err = e.Load(t.Context(), "e", d, dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("missing file: %v", err)
	}
}

func TestExtremes(t *testing.T) {
	d := dataset.Dataset{Columns: columns(map[string]string{"i": "integer", "d": "decimal(38,0)", "e": "decimal(38,38)", "day": "date", "at": "timestamp"})}
	nines := strings.Repeat("9", 38)
	e := loaded(t, Limits{}, "i,d,e,day,at\n-9223372036854775808,-"+nines+",-0."+nines+",0001-01-01,0001-01-01 00:00:00\n9223372036854775807,"+nines+",0."+nines+",9999-12-31,9999-12-31 23:59:59.999999\n", d)
	a, err := ask(t, e, d, query.Spec{Request: contract.Request{Aggregates: []contract.Aggregate{
		agg("min", "i"), agg("max", "i"), agg("sum", "i"), agg("min", "d"), agg("max", "d"), agg("min", "e"), agg("max", "e"), agg("min", "day"), agg("max", "day"), agg("min", "at"), agg("max", "at"),
	}}})
	want := []any{"-9223372036854775808", "9223372036854775807", "-1", "-" + nines, nines, "-0." + nines, "0." + nines, "0001-01-01", "9999-12-31", "0001-01-01T00:00:00", "9999-12-31T23:59:59.999999"}
	if err != nil || !reflect.DeepEqual(a.Rows[0], want) {
		t.Fatalf("%v %v\nwant %v", a, err, want)
	}
	// A sum beyond 38 digits is an error, never a wrong number.
	e = loaded(t, Limits{}, "i,d,e,day,at\n1,"+nines+",0.1,2025-01-01,2025-01-01 00:00\n1,"+nines+",0.1,2025-01-01,2025-01-01 00:00\n", d)
	if a, err := ask(t, e, d, query.Spec{Request: contract.Request{Aggregates: []contract.Aggregate{agg("sum", "d")}}}); !errors.Is(err, source.ErrRange) {
		t.Fatalf("%+v, %v", a, err)
	}
}
