// SPDX-License-Identifier: Apache-2.0

package query

import (
	"errors"
	"math/big"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
)

func schema(t interface{ Fatal(...any) }) *contract.Schema {
	s, err := contract.NewSchema("orders", "", []contract.Column{
		{Name: "region", Type: "text"}, {Name: "who", Type: "text"}, {Name: "value", Type: "decimal(10,2)"},
		{Name: "x", Type: "double"}, {Name: "day", Type: "date"}, {Name: `a "b" c`, Type: "integer"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The statement is a contract with the engine: a change of it should be seen.
func TestStatement(t *testing.T) {
	p, err := Build(Spec{
		Dialect: source.DuckDB{}, From: `"orders"`, Schema: schema(t), MinGroup: 5, Subject: "who", MaxRows: 100,
		RowFilter: []contract.Condition{{Column: "region", Op: "in", Values: []contract.Value{contract.TextValue("N"), contract.TextValue("S")}}},
		Request: contract.Request{
			Dataset: "orders", GroupBy: []string{"region", `a "b" c`}, Limit: 10,
			Aggregates: []contract.Aggregate{{Op: "avg", Column: "value"}, {Op: "count", As: "n"}},
			Filters:    []contract.Condition{{Column: "day", Op: ">=", Value: contract.TextValue("2025-07-01")}, {Column: "value", Op: "<", Value: contract.TextValue("10.50")}},
			OrderBy:    []contract.Order{{By: "avg_value", Desc: true}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `WITH released AS (SELECT t."region" AS c0, t."a ""b"" c" AS c1, sum(t."value") AS c2, count(t."value") AS c3, count(*) AS c4, count(*) AS used ` +
		`FROM "orders" AS t WHERE (t."region" IN (?, ?)) AND (t."day" >= CAST(? AS DATE) AND t."value" < CAST(? AS DECIMAL(10,2))) GROUP BY t."region", t."a ""b"" c" ` +
		`HAVING count(DISTINCT t."who") >= 5 AND count(DISTINCT t."who") FILTER (WHERE t."value" IS NOT NULL) >= 5) ` +
		`SELECT released.*, (SELECT count(*) FROM "orders" AS t WHERE (t."region" IN (?, ?))) AS total FROM released ` +
		`ORDER BY CAST(c2 AS DOUBLE) / c3 DESC NULLS LAST, c0 NULLS LAST, c1 NULLS LAST LIMIT 10`
	if p.Statement.SQL != want {
		t.Errorf("got  %s\nwant %s", p.Statement.SQL, want)
	}
	args := []any{"N", "S", "2025-07-01", "10.50", "N", "S"}
	if !reflect.DeepEqual(p.Statement.Args, args) || p.Statement.MaxRows != 100 {
		t.Errorf("args %v", p.Statement.Args)
	}
}

var (
	identifier = regexp.MustCompile(`"(?:[^"]|"")*"`)
	skeleton   = regexp.MustCompile(`^[A-Za-z0-9_ (),.*?<>=:]*$`)
)

// TestInvariant5_OnlyPublishedNames: whatever is asked, a statement holds published identifiers, our own words, and nothing
// of the caller's text.
func TestInvariant5_OnlyPublishedNames(t *testing.T) {
	s := schema(t)
	allowed := map[string]bool{`"orders"`: true}
	var names []string
	for _, c := range s.Columns {
		allowed[source.DuckDB{}.Ident(c.Name)] = true
		names = append(names, c.Name)
	}
	evil := []string{`"; DROP TABLE orders; --`, `x' OR '1'='1`, "value ", "VALUE", "", "c0", "used", "*"}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(append(append([]string{}, names...), evil...))
		word := rapid.OneOf(rapid.String(), rapid.SampledFrom(evil))
		ops := rapid.SampledFrom(append(contract.Operations(), "eval", ""))
		cond := rapid.Custom(func(t *rapid.T) contract.Condition {
			c := contract.Condition{Column: name.Draw(t, "column"), Op: rapid.SampledFrom([]string{"=", "!=", "<", "in", "between", "is_null", "; --"}).Draw(t, "op")}
			switch c.Op {
			case "in", "between":
				c.Values = []contract.Value{contract.TextValue(word.Draw(t, "v")), contract.TextValue("2025-01-01")}
			case "is_null":
			default:
				c.Value = contract.TextValue(word.Draw(t, "v"))
			}
			return c
		})
		req := contract.Request{
			Dataset: "orders", GroupBy: rapid.SliceOfN(name, 0, 3).Draw(t, "group"), Filters: rapid.SliceOfN(cond, 0, 3).Draw(t, "filters"),
			Aggregates: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) contract.Aggregate {
				return contract.Aggregate{Op: ops.Draw(t, "agg"), Column: name.Draw(t, "of"), As: word.Draw(t, "as")}
			}), 0, 3).Draw(t, "aggregates"),
			OrderBy: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) contract.Order { return contract.Order{By: word.Draw(t, "by")} }), 0, 2).Draw(t, "order"),
		}
		p, err := Build(Spec{Dialect: source.DuckDB{}, From: `"orders"`, Request: req, Schema: s, RowFilter: rapid.SliceOfN(cond, 0, 2).Draw(t, "row filter"), Subject: "who", MinGroup: 3, MaxRows: 10})
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		for _, id := range identifier.FindAllString(p.Statement.SQL, -1) {
			if !allowed[id] {
				t.Fatalf("identifier %s in %s", id, p.Statement.SQL)
			}
		}
		if rest := identifier.ReplaceAllString(p.Statement.SQL, ""); !skeleton.MatchString(rest) {
			t.Fatalf("words of the caller's: %s", rest)
		}
		if n := strings.Count(identifier.ReplaceAllString(p.Statement.SQL, ""), "?"); n != len(p.Statement.Args) {
			t.Fatalf("%d parameters, %d arguments", n, len(p.Statement.Args))
		}
	})
}

func TestAnswerRefusesUnexpectedRows(t *testing.T) {
	p, err := Build(Spec{Dialect: source.DuckDB{}, From: `"orders"`, Schema: schema(t), MaxRows: 10, Request: contract.Request{
		Dataset: "orders", GroupBy: []string{"region"}, Aggregates: []contract.Aggregate{{Op: "avg", Column: "value"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	d := dataset.Decimal{Unscaled: big.NewInt(1000), Scale: 2}
	for name, row := range map[string][]any{
		"too few cells":     {"N", d, int64(1), int64(1)},
		"used is no number": {"N", d, int64(1), "1", int64(1)},
		"sum is a text":     {"N", "10", int64(1), int64(1), int64(1)},
		"count of zero":     {"N", d, int64(0), int64(1), int64(1)},
		"unknown cell":      {time.Second, d, int64(1), int64(1), int64(1)},
		"too many digits":   {"N", dataset.Decimal{Unscaled: big.NewInt(1001), Scale: 3}, int64(1), int64(1), int64(1)},
	} {
		if a, err := p.Answer(source.Rows{row}); !errors.Is(err, ErrRows) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	if _, err := p.Answer(nil); !errors.Is(err, ErrGroups) {
		t.Errorf("no rows: %v", err)
	}
}
