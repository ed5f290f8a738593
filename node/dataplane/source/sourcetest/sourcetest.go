// SPDX-License-Identifier: Apache-2.0

// Package sourcetest is the one suite that every engine passes: the same rows, the same questions, the same numbers.
package sourcetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/query"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
	"github.com/treaty-node/treaty/node/datatools"
)

// Table is a name that tries to be SQL.
const Table = `or"ders'; DROP TABLE t; --`

// Evil is a column's name that tries to be SQL.
const Evil = `we"ird'; --`

// Column of the suite's table, in the order of Rows.
type Column struct{ Name, Type string }

// Columns are named to get in the way: quotes, key words, the statement's own words, look-alikes that differ by case or letter.
func Columns() []Column {
	return []Column{
		{"grp", "text"}, {"who", "text"}, {"n", "integer"}, {"m", "decimal(12,2)"}, {"x", "double"}, {"flag", "boolean"}, {"day", "date"},
		{"at", "timestamp"}, {"instant", "timestamptz"}, {"c0", "integer"}, {"used", "integer"}, {Evil, "text"}, {"select", "text"}, {"Größe 1", "integer"}, {"сount", "integer"},
	}
}

// Rows are written as contracts write values; nil is null.
func Rows() [][]any {
	return [][]any{
		{"A", "ann", "9223372036854775807", "0.10", "0.1", true, "0001-01-01", "0001-01-01T00:00:00", "0001-01-01T00:00:00Z", "7", "1", "x", "s", "1", "1"},
		{"A", "bob", "9223372036854775806", "0.20", "0.2", false, "2024-02-29", "2025-06-01T12:30:00.000001", "2025-06-01T10:00:00Z", "7", "1", "y", "s", "2", "1"},
		{"A", "cid", "-9223372036854775808", "0.30", "0.3", true, "9999-12-31", "9999-12-31T23:59:59.999999", "9999-12-31T23:59:59.999999Z", "8", "1", "' OR 1=1 --", "t", "3", "1"},
		{"B", "dan", "1", "9999999999.99", "1e300", nil, "2025-01-01", nil, "2025-01-01T00:00:00Z", "7", "1", "%", "t", nil, "1"},
		{"B", "dan", "2", "-9999999999.99", "-1e300", nil, "2025-01-02", nil, "2025-03-31T23:59:59.5Z", "7", "1", `\`, "t", nil, "1"},
		{"ä", "eve", nil, nil, nil, nil, nil, nil, nil, nil, "1", nil, "t", nil, "1"},
		{"Z", "fay", "9007199254740993", "1.00", "2.5", true, "2025-07-14", "2025-07-14T00:00:00", "2025-07-14T00:00:00Z", "9", "1", "é", "ünï", "4", "1"},
	}
}

// Dataset is the configuration of the suite's table.
func Dataset() dataset.Dataset {
	d := dataset.Dataset{Description: "suite", Columns: map[string]dataset.Column{}}
	for _, c := range Columns() {
		d.Columns[c.Name] = dataset.Column{Type: c.Type, Class: "public"}
	}
	return d
}

// Ask builds a statement and runs it.
func Ask(ctx context.Context, s source.Source, id string, d dataset.Dataset, spec query.Spec) (*query.Answer, error) {
	schema, err := dataset.Config{id: d}.Schema(id)
	if err != nil {
		return nil, err
	}
	table, err := s.Table(id)
	if err != nil {
		return nil, err
	}
	if spec.Dialect, err = s.Dialect(id); err != nil {
		return nil, err
	}
	spec.Schema, spec.Request.Dataset, spec.From = schema, id, table.From
	if spec.MaxRows == 0 {
		spec.MaxRows = 100
	}
	p, err := query.Build(spec)
	if err != nil {
		return nil, err
	}
	rows, err := s.Query(ctx, p.Statement)
	if err != nil {
		return nil, err
	}
	return p.Answer(rows)
}

// Agg is an aggregate over a column, or over rows.
func Agg(op, column string) contract.Aggregate { return contract.Aggregate{Op: op, Column: column} }

// Where is a condition: in and between take all values, others the first.
func Where(column, op string, values ...string) contract.Condition {
	c := contract.Condition{Column: column, Op: op}
	if op == contract.OpIn || op == contract.OpBetween {
		for _, v := range values {
			c.Values = append(c.Values, contract.TextValue(v))
		}
	} else if len(values) == 1 {
		c.Value = contract.TextValue(values[0])
	}
	return c
}

// Run asks a source over the suite's table, loaded as id, everything.
func Run(t *testing.T, s source.Source, id string) {
	t.Helper()
	d := Dataset()
	t.Run("same numbers", func(t *testing.T) { same(t, s, id, d) })
	t.Run("filters", func(t *testing.T) { filters(t, s, id, d) })
	t.Run("functions", func(t *testing.T) { functions(t, s, id) })
	t.Run("overlap", func(t *testing.T) { overlap(t, s, id, d) })
	t.Run("injection", func(t *testing.T) { injection(t, s, id, d) })
	t.Run("recomputed", func(t *testing.T) { recomputed(t, s, id, d) })
	t.Run("limits", func(t *testing.T) { limits(t, s, id, d) })
}

func same(t *testing.T, s source.Source, id string, d dataset.Dataset) {
	a, err := Ask(t.Context(), s, id, d, query.Spec{Request: contract.Request{
		GroupBy: []string{"grp"}, Filters: []contract.Condition{Where("grp", "!=", "ä")},
		Aggregates: []contract.Aggregate{
			Agg("sum", "n"), Agg("avg", "n"), Agg("min", "n"), Agg("max", "n"), Agg("median", "n"), Agg("sum", "m"), Agg("avg", "m"), Agg("median", "m"), Agg("max", "m"),
			Agg("sum", "x"), Agg("median", "x"), Agg("count", ""), Agg("count_distinct", "who"), Agg("min", "day"), Agg("max", "instant"), Agg("max", Evil), Agg("sum", "c0"), Agg("sum", "used"),
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := [][]any{
		{"A", "9223372036854775805", "3074457345618258601.6667", "-9223372036854775808", "9223372036854775807", "9223372036854775806.0",
			"0.60", "0.200000", "0.200", "0.30", 0.6000000000000001, 0.2, int64(3), int64(3), "0001-01-01", "9999-12-31T23:59:59.999999Z", "y", "22", "3"},
		{"B", "3", "1.5000", int64(1), int64(2), "1.5", "0.00", "0.000000", "0.000", "9999999999.99", 0.0, 0.0, int64(2), int64(1), "2025-01-01", "2025-03-31T23:59:59.5Z", `\`, "14", "2"},
		{"Z", "9007199254740993", "9007199254740993.0000", "9007199254740993", "9007199254740993", "9007199254740993.0",
			"1.00", "1.000000", "1.000", "1.00", 2.5, 2.5, int64(1), int64(1), "2025-07-14", "2025-07-14T00:00:00Z", "é", "9", "1"},
	}
	for i, row := range a.Rows {
		for j, v := range row {
			if i < len(want) && !reflect.DeepEqual(v, want[i][j]) {
				t.Errorf("row %d, %s: %#v, want %#v", i, a.Columns[j].Name, v, want[i][j])
			}
		}
	}
	if len(a.Rows) != len(want) || a.TotalRows != 7 || a.UsedRows != 6 {
		t.Errorf("%d rows, %d of %d", len(a.Rows), a.UsedRows, a.TotalRows)
	}
	// Ordered by a sum and by an average, nulls last, groups of at least two people.
	a, err = Ask(t.Context(), s, id, d, query.Spec{MinGroup: 1, Subject: "who", Request: contract.Request{
		GroupBy: []string{"flag"}, Aggregates: []contract.Aggregate{Agg("avg", "m"), Agg("sum", "m")}, OrderBy: []contract.Order{{By: "avg_m", Desc: true}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if want := [][]any{{true, "0.466667", "1.40"}, {false, "0.200000", "0.20"}, {nil, "0.000000", "0.00"}}; !reflect.DeepEqual(a.Rows, want) {
		t.Errorf("%v, want %v", a.Rows, want)
	}
	if _, err := Ask(t.Context(), s, id, d, query.Spec{MinGroup: 2, Subject: "who", Request: contract.Request{
		Filters: []contract.Condition{Where("grp", "=", "B")}, Aggregates: []contract.Aggregate{Agg("count", "")},
	}}); !errors.Is(err, query.ErrGroups) {
		t.Errorf("two rows of one person: %v", err)
	}
}

func filters(t *testing.T, s source.Source, id string, d dataset.Dataset) {
	flag := contract.Condition{Column: "flag", Op: "=", Value: contract.BoolValue(true)}
	for _, tt := range []struct {
		c    contract.Condition
		want int64
	}{
		{Where("grp", ">=", "Z"), 2}, {Where("grp", "<", "a"), 6}, {Where("grp", "in", "A", "ä"), 4}, {Where("n", "=", "9223372036854775807"), 1},
		{Where("n", ">", "9007199254740992"), 3}, {Where("n", "between", "1", "2"), 2}, {Where("m", "=", "0.20"), 1}, {Where("m", "<", "0.30"), 3},
		{Where("x", ">=", "0.3"), 3}, {flag, 3}, {Where("flag", "is_null"), 3}, {Where("flag", "is_not_null"), 4}, {Where("day", "=", "0001-01-01"), 1},
		{Where("day", "<=", "9999-12-31"), 6}, {Where("day", "=", "2024-02-29"), 1}, {Where("at", "=", "2025-06-01T12:30:00.000001"), 1},
		{Where("instant", "=", "2025-06-01T10:00:00Z"), 1}, {Where("instant", ">", "2025-03-31T23:59:59Z"), 4}, {Where("c0", "!=", "7"), 2},
		{Where(Evil, "=", "' OR 1=1 --"), 1}, {Where(Evil, "=", "%"), 1}, {Where(Evil, "=", `\`), 1}, {Where("Größe 1", ">", "1"), 3}, {Where("select", "=", "ünï"), 1},
	} {
		a, err := Ask(t.Context(), s, id, d, query.Spec{Request: contract.Request{Filters: []contract.Condition{tt.c}, Aggregates: []contract.Aggregate{Agg("count", "")}}})
		if err != nil || a.Rows[0][0] != tt.want {
			t.Errorf("%v: %v, %v, want %d", tt.c, a, err, tt.want)
		}
	}
}

// functions are what the builder uses in some requests only.
func functions(t *testing.T, s source.Source, id string) {
	d, err := s.Dialect(id)
	if err != nil {
		t.Fatal(err)
	}
	table, err := s.Table(id)
	if err != nil {
		t.Fatal(err)
	}
	typ := func(name string) dataset.Type { return table.Columns[name] }
	col := func(name string) string { return d.Column(name, typ(name)) }
	one := func(x string, t dataset.Type, cond string, args ...any) (any, error) {
		sql := fmt.Sprintf("SELECT %s AS c0 FROM %s AS %s WHERE %s %s", x, table.From, source.Alias, cond, d.Limit(1, 0))
		rows, err := s.Query(context.Background(), source.Statement{Dataset: id, SQL: sql, Args: args, Types: []dataset.Type{t}, MaxRows: 1})
		if err != nil || len(rows) != 1 {
			return nil, fmt.Errorf("%d rows: %w", len(rows), err)
		}
		return rows[0][0], nil
	}
	bob := d.Column("who", typ("who")) + " = " + d.Param(1, typ("who"))
	zed := d.Column("grp", typ("grp")) + " = " + d.Param(1, typ("grp"))
	for unit, want := range map[string]string{
		"year": "2025-01-01 00:00:00", "quarter": "2025-04-01 00:00:00", "month": "2025-06-01 00:00:00", "week": "2025-05-26 00:00:00",
		"day": "2025-06-01 00:00:00", "hour": "2025-06-01 12:00:00", "minute": "2025-06-01 12:30:00",
	} {
		v, err := one(d.Truncate(unit, col("at"), typ("at")), typ("at"), bob, "bob")
		if at, ok := v.(time.Time); err != nil || !ok || at.Format(time.DateTime) != want {
			t.Errorf("%s of a timestamp: %v, %v, want %s", unit, v, err, want)
		}
	}
	for unit, want := range map[string]string{"year": "2025-01-01", "quarter": "2025-07-01", "month": "2025-07-01", "week": "2025-07-14", "day": "2025-07-14"} {
		v, err := one(d.Truncate(unit, col("day"), typ("day")), typ("day"), zed, "Z")
		if at, ok := v.(time.Time); err != nil || !ok || at.Format(time.DateOnly) != want {
			t.Errorf("%s of a date: %v, %v, want %s", unit, v, err, want)
		}
	}
	if v, err := one(d.Truncate("hour", col("instant"), typ("instant")), typ("instant"), bob, "bob"); err != nil || v.(time.Time).UTC().Format(time.DateTime) != "2025-06-01 10:00:00" {
		t.Errorf("hour of an instant: %v, %v", v, err)
	}
	double := dataset.Type{Kind: dataset.Double}
	if v, err := one(d.Stddev(col("x"), typ("x")), double, zed, "A"); err != nil || v.(float64) < 0.0999999 || v.(float64) > 0.1000001 {
		t.Errorf("stddev: %v, %v", v, err)
	}
	if v, err := one(d.Stddev(col("m"), typ("m")), double, zed, "A"); err != nil || v.(float64) < 0.0999999 || v.(float64) > 0.1000001 {
		t.Errorf("stddev of decimals: %v, %v", v, err)
	}
	for p, want := range map[string]float64{"0.01": 0.1, "0.33": 0.1, "0.34": 0.2, "0.5": 0.2, "0.9": 0.3} {
		if v, err := one(d.Quantile(col("x"), p, false, typ("x")), double, zed, "A"); err != nil || v != want {
			t.Errorf("quantile %s: %v, %v, want %v", p, v, err, want)
		}
	}
	if v, err := one(d.Quantile(col("n"), "0.5", true, typ("n")), typ("n"), zed, "Z"); err != nil || v != int64(9007199254740993) {
		t.Errorf("median of one: %v, %v", v, err)
	}
	count := dataset.Type{Kind: dataset.Integer}
	for prefix, want := range map[string]int64{"ü": 1, "t": 4, "T": 0, "": 7, "%": 0, "ünï!": 0} {
		if v, err := one("count(*)", count, d.Prefix(col("select"), d.Param(1, typ("select"))), prefix); err != nil || v != want {
			t.Errorf("prefix %q: %v, %v, want %d", prefix, v, err, want)
		}
	}
	// Two rows from the second one on.
	sql := fmt.Sprintf("SELECT %s AS c0 FROM %s AS %s WHERE %s IS NOT NULL ORDER BY c0 %s", col("n"), table.From, source.Alias, col("n"), d.Limit(2, 1))
	rows, err := s.Query(context.Background(), source.Statement{Dataset: id, SQL: sql, Types: []dataset.Type{count}, MaxRows: 10})
	if want := (source.Rows{{int64(1)}, {int64(2)}}); err != nil || !reflect.DeepEqual(rows, want) {
		t.Errorf("a page: %v, %v", rows, err)
	}
}

// overlap compares the groups of two queries, in the engine.
func overlap(t *testing.T, s source.Source, id string, d dataset.Dataset) {
	schema, err := dataset.Config{id: d}.Schema(id)
	if err != nil {
		t.Fatal(err)
	}
	table, err := s.Table(id)
	if err != nil {
		t.Fatal(err)
	}
	dialect, err := s.Dialect(id)
	if err != nil {
		t.Fatal(err)
	}
	groups, instants := contract.Request{GroupBy: []string{"grp"}}, contract.Request{GroupByDate: []contract.DateGroup{{Column: "instant", Unit: "year"}}}
	for _, tt := range []struct {
		name, subject string
		a, b          contract.Request
		min           int
		want          bool
	}{
		{"a filter for a group, but one", "", groups, contract.Request{Filters: []contract.Condition{Where("grp", "=", "A"), Where("n", "!=", "9223372036854775807")}}, 2, true},
		{"of people", "who", groups, contract.Request{Filters: []contract.Condition{Where("grp", "=", "A"), Where("who", "!=", "ann")}}, 2, true},
		{"the group", "who", groups, contract.Request{Filters: []contract.Condition{Where("grp", "=", "A")}}, 2, false},
		{"all but those of whom a number is null", "who", contract.Request{}, contract.Request{Filters: []contract.Condition{Where("n", "is_not_null")}}, 2, true},
		{"years and groups of years", "who", instants, contract.Request{GroupBy: []string{"grp", "flag"}, GroupByDate: instants.GroupByDate}, 1, false},
	} {
		spec := query.Spec{Dialect: dialect, From: table.From, Request: contract.Request{Dataset: id}, Schema: schema, Subject: tt.subject, MinGroup: tt.min}
		st, err := query.Overlap(spec, query.ShapeOf(&tt.a, nil, tt.min), query.ShapeOf(&tt.b, nil, tt.min))
		if err != nil {
			t.Fatal(err)
		}
		rows, err := s.Query(t.Context(), st)
		if err != nil {
			t.Errorf("%s: %v: %s", tt.name, err, st.SQL)
			continue
		}
		if got, err := query.Close(rows); err != nil || got != tt.want {
			t.Errorf("%s: %t, %v, want %t", tt.name, got, err, tt.want)
		}
	}
}

// Attempts are texts that try to be more than a name or a value.
func Attempts() []string {
	return []string{
		`"; DROP TABLE t; --`, `' OR '1'='1`, `x') OR 1=1 --`, "`", `\'; --`, `n" FROM t --`, `$1`, `?`, `:a`, `$$; DROP TABLE t; $$`, `/* */`, "n\x00", "N", " n", "n ", "ｎ", `U&"\006e"`, "E'\\x'", "%s",
		`''; DROP TABLE t; --`, `""; --`, `' USING 1 --`, "a\nb; --", "\u02bc OR 1=1 --", `\`,
	}
}

// injection uses every name and value as an attempt. Names that are not published never reach an engine.
func injection(t *testing.T, s source.Source, id string, d dataset.Dataset) {
	for _, evil := range Attempts() {
		for name, req := range map[string]contract.Request{
			"group":     {GroupBy: []string{evil}, Aggregates: []contract.Aggregate{Agg("count", "")}},
			"column":    {Aggregates: []contract.Aggregate{Agg("sum", evil)}},
			"operation": {Aggregates: []contract.Aggregate{Agg(evil, "n")}},
			"filter":    {Aggregates: []contract.Aggregate{Agg("count", "")}, Filters: []contract.Condition{Where(evil, "=", "1")}},
			"operator":  {Aggregates: []contract.Aggregate{Agg("count", "")}, Filters: []contract.Condition{Where("n", evil, "1")}},
			"number":    {Aggregates: []contract.Aggregate{Agg("count", "")}, Filters: []contract.Condition{Where("n", "=", evil)}},
			"day":       {Aggregates: []contract.Aggregate{Agg("count", "")}, Filters: []contract.Condition{Where("day", "=", evil)}},
			"order":     {Aggregates: []contract.Aggregate{Agg("count", "")}, OrderBy: []contract.Order{{By: evil}}},
		} {
			if _, err := Ask(t.Context(), s, id, d, query.Spec{Request: req}); !errors.Is(err, query.ErrInvalid) {
				t.Errorf("%s %q: %v", name, evil, err)
			}
		}
		// As a text value and as an alias they are allowed, and are nothing but text.
		req := contract.Request{Aggregates: []contract.Aggregate{{Op: "count", As: evil}}, Filters: []contract.Condition{Where("who", "=", evil)}}
		if _, err := Ask(t.Context(), s, id, d, query.Spec{Request: req}); !errors.Is(err, query.ErrGroups) && !errors.Is(err, query.ErrInvalid) {
			t.Errorf("value %q: %v", evil, err)
		}
		tree := contract.Filter{Not: &contract.Filter{Or: []contract.Filter{contract.Where(Where("who", "prefix", evil)), contract.Where(Where("grp", "in", evil, evil))}}}
		everywhere := contract.Request{
			Filters: []contract.Condition{Where("who", "!=", evil)}, Where: &tree, GroupBy: []string{"used"},
			Aggregates: []contract.Aggregate{Agg("max", "who")}, Having: []contract.Condition{Where("max_who", "!=", evil)},
		}
		a, err := Ask(t.Context(), s, id, d, query.Spec{RowFilter: []contract.Condition{Where("who", "!=", evil)}, Request: everywhere})
		if errors.Is(err, query.ErrInvalid) && strings.ContainsRune(evil, 0) {
			continue // no text
		}
		if err != nil || a.UsedRows != 7 || a.TotalRows != 7 {
			t.Errorf("values %q in every place: %+v, %v", evil, a, err)
		}
	}
	readBack(t, s, id)
	if a, err := Ask(t.Context(), s, id, d, query.Spec{Request: contract.Request{Aggregates: []contract.Aggregate{Agg("count", "")}}}); err != nil || a.TotalRows != 7 {
		t.Fatalf("the table has changed: %v, %v", a, err)
	}
	// Whatever reached the engine as SQL would not have written.
	table, _ := s.Table(id)
	for _, sql := range []string{"DELETE FROM " + table.From, "DROP TABLE " + table.From, "SELECT 1; DELETE FROM " + table.From, "CREATE TABLE x (a integer)"} {
		if _, err := s.Query(t.Context(), source.Statement{Dataset: id, SQL: sql, MaxRows: 10}); err == nil {
			t.Errorf("%s ran", sql)
		}
	}
	if a, err := Ask(t.Context(), s, id, d, query.Spec{Request: contract.Request{Aggregates: []contract.Aggregate{Agg("count", "")}}}); err != nil || a.TotalRows != 7 {
		t.Fatalf("the table has changed: %v, %v", a, err)
	}
}

// readBack has the engine itself say what it understood: an argument is the text that it was, and a column is found by its name.
func readBack(t *testing.T, s source.Source, id string) {
	d, err := s.Dialect(id)
	if err != nil {
		t.Fatal(err)
	}
	text, integer := dataset.Type{Kind: dataset.Text}, dataset.Type{Kind: dataset.Integer}
	for _, evil := range append(Attempts(), Evil, Table) {
		if strings.ContainsRune(evil, 0) {
			continue // neither texts nor names have one: see contract.CheckColumnName
		}
		arg, err := d.Arg(evil, text)
		if err != nil {
			t.Errorf("%q: %v", evil, err)
			continue
		}
		rows, err := s.Query(t.Context(), source.Statement{Dataset: id, SQL: "SELECT " + d.Param(1, text) + " AS c0", Args: []any{arg}, Types: []dataset.Type{text}, MaxRows: 1})
		if err != nil || len(rows) != 1 || rows[0][0] != evil {
			t.Errorf("the value %q is read back as %q, %v", evil, rows, err)
		}
		sql := fmt.Sprintf("SELECT %s AS c0 FROM (SELECT CAST(42 AS bigint) AS %s, 0 AS other) AS %s", d.Column(evil, integer), d.Ident(evil), source.Alias)
		rows, err = s.Query(t.Context(), source.Statement{Dataset: id, SQL: sql, Types: []dataset.Type{integer}, MaxRows: 1})
		if err != nil || len(rows) != 1 || rows[0][0] != int64(42) {
			t.Errorf("the column %q is read as %v, %v", evil, rows, err)
		}
	}
}

// recomputed asks twice: the answers are the same to the byte, and their digest is that of their canonical form, which is made
// here again without the node's code.
func recomputed(t *testing.T, s source.Source, id string, d dataset.Dataset) {
	for name, req := range map[string]contract.Request{
		"groups": {GroupBy: []string{"grp", "flag"}, Filters: []contract.Condition{Where("grp", "!=", "B")}, OrderBy: []contract.Order{{By: "avg_x", Desc: true}}, Aggregates: []contract.Aggregate{
			Agg("avg", "x"), Agg("sum", "x"), Agg("stddev", "x"), Agg("stddev", "m"), Agg("avg", "m"), Agg("median", "n"), Agg("count", ""), Agg("max", Evil), Agg("min", "at"), {Op: "percentile", Column: "x", P: "0.9", As: "p"},
		}},
		"rows": {Select: []string{Evil, "x", "n", "m", "flag", "day", "at", "instant", "Größe 1"}, Limit: 7},
	} {
		var first []byte
		for range 2 {
			a, err := Ask(t.Context(), s, id, d, query.Spec{Request: req})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got := CheckDigest(t, a)
			if first == nil {
				first = got
			} else if !bytes.Equal(got, first) {
				t.Errorf("%s: asked twice:\n%s\n%s", name, first, got)
			}
		}
	}
}

// CheckDigest compares an answer's canonical JSON and digest, as a receipt has it, with those that encoding/json and
// crypto/sha256 make of any JSON form of the answer. It returns the canonical JSON.
func CheckDigest(t *testing.T, a *query.Answer) []byte {
	t.Helper()
	canonical, err := canon.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	loose, err := json.MarshalIndent(a, "", "\t") // members in the order of the struct, white space, <>& escaped
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(loose, &v); err != nil {
		t.Fatal(err)
	}
	// For names of ASCII, texts without control characters and line separators, and finite doubles, encoding/json sorts and
	// writes as RFC 8785 wants.
	var own bytes.Buffer
	enc := json.NewEncoder(&own)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	independent := bytes.TrimSuffix(own.Bytes(), []byte("\n"))
	if !bytes.Equal(canonical, independent) {
		t.Errorf("the canonical form is not what encoding/json makes of it:\n%s\n%s", canonical, independent)
	}
	digest, err := datatools.ResultDigest(loose)
	if err != nil || !digest.Equal(canon.Sum(canonical)) || digest.String() != canon.Digest(sha256.Sum256(independent)).String() {
		t.Errorf("digest %s, %v", digest, err)
	}
	return canonical
}

func limits(t *testing.T, s source.Source, id string, d dataset.Dataset) {
	req := contract.Request{GroupBy: []string{"who"}, Aggregates: []contract.Aggregate{Agg("count", "")}}
	if _, err := Ask(t.Context(), s, id, d, query.Spec{MaxRows: 2, Request: req}); !errors.Is(err, source.ErrTooManyRows) {
		t.Errorf("more rows than allowed: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Ask(ctx, s, id, d, query.Spec{Request: req}); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that is gone: %v", err)
	}
	for range 3 { // the source goes on working
		if a, err := Ask(t.Context(), s, id, d, query.Spec{Request: req}); err != nil || len(a.Rows) != 6 {
			t.Errorf("%v, %v", a, err)
		}
	}
	if _, err := s.Query(t.Context(), source.Statement{Dataset: "other", SQL: "SELECT 1", MaxRows: 1}); !errors.Is(err, source.ErrNoDataset) {
		t.Errorf("another dataset: %v", err)
	}
	if _, err := s.Dialect("other"); !errors.Is(err, source.ErrNoDataset) {
		t.Errorf("the dialect of another dataset: %v", err)
	}
}
