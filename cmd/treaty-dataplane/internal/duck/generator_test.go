// SPDX-License-Identifier: Apache-2.0

package duck

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"time"

	"pgregory.net/rapid"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
)

// refGenerator draws contracts over the reference's columns, and questions under them.
type refGenerator struct {
	*rapid.T
	columns []string // of conditions
}

func (g refGenerator) value(column string) contract.Value {
	var s string
	switch refColumns[column] {
	case "integer":
		s = strconv.Itoa(rapid.IntRange(-11, 11).Draw(g.T, "integer"))
	case "decimal(10,2)":
		s = big.NewRat(rapid.Int64Range(-4000, 18000).Draw(g.T, "cents"), 100).FloatString(2)
	case "date":
		s = time.Date(2024, 11, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, rapid.IntRange(-5, 155).Draw(g.T, "day")).Format(time.DateOnly)
	default:
		s = rapid.SampledFrom([]string{"A", "AB", "b", "ü", "p0", "p1", "p17", "'; DROP TABLE d; --"}).Draw(g.T, "text")
	}
	return contract.TextValue(s)
}

func (g refGenerator) condition() contract.Condition {
	c := contract.Condition{Column: rapid.SampledFrom(g.columns).Draw(g.T, "column")}
	c.Op = rapid.SampledFrom([]string{"=", "!=", "<", "<=", ">", ">=", "in", "between", "is_null", "is_not_null", "prefix"}).Draw(g.T, "op")
	switch c.Op {
	case "is_null", "is_not_null":
	case "in", "between":
		c.Values = []contract.Value{g.value(c.Column), g.value(c.Column)}
	case "prefix":
		if refColumns[c.Column] != "text" {
			c.Op = contract.OpEqual
		}
		c.Value = g.value(c.Column)
	default:
		c.Value = g.value(c.Column)
	}
	return c
}

func (g refGenerator) tree(depth int) contract.Filter {
	kind := "leaf"
	if depth < 4 {
		kind = rapid.SampledFrom([]string{"leaf", "and", "or", "not"}).Draw(g.T, "kind")
	}
	list := func() (out []contract.Filter) {
		for range rapid.IntRange(1, 3).Draw(g.T, "length") {
			out = append(out, g.tree(depth+1))
		}
		return out
	}
	switch kind {
	case "and":
		return contract.Filter{And: list()}
	case "or":
		return contract.Filter{Or: list()}
	case "not":
		f := g.tree(depth + 1)
		return contract.Filter{Not: &f}
	}
	return contract.Where(g.condition())
}

func (g refGenerator) list(most int) []contract.Condition {
	out := []contract.Condition{}
	for range rapid.IntRange(0, most).Draw(g.T, "conditions") {
		if c := g.condition(); !slices.ContainsFunc(out, c.Equal) {
			out = append(out, c)
		}
	}
	return out
}

func (g refGenerator) contract(schema *contract.Schema) *contract.Contract {
	s := contract.Scope{
		Dataset: "d", Operations: contract.AllOperations(), Purpose: "p", MinGroupSize: rapid.IntRange(1, 6).Draw(g.T, "minimum"), CallBudget: 10,
		Columns:   rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"grp", "who", "n", "amount", "day"}), 4, 5, rapid.ID[string]).Draw(g.T, "columns"),
		RowFilter: g.list(1),
	}
	for _, name := range s.Columns {
		if rapid.IntRange(0, 3).Draw(g.T, "own grant") > 0 {
			continue
		}
		uses := rapid.SliceOfNDistinct(rapid.SampledFrom(contract.Uses()), 1, 4, rapid.ID[string]).Draw(g.T, "uses")
		ops := []string{}
		if slices.Contains(uses, contract.UseAggregate) {
			ops = rapid.SliceOfNDistinct(rapid.SampledFrom(s.Operations), 3, 9, rapid.ID[string]).Draw(g.T, "operations")
		}
		s.ColumnGrants = append(s.ColumnGrants, contract.ColumnGrant{Column: name, Uses: uses, Operations: ops})
	}
	if len(s.Readable()) > 0 {
		s.Rows = contract.RowGrant{RowBudget: 100_000}
	}
	if err := s.Validate(); err != nil {
		g.Fatal(err)
	}
	transcript := canon.Sum([]byte("t"))
	return &contract.Contract{
		Type: contract.DocumentType, Version: contract.Version3, ID: contract.ID(transcript), Transcript: transcript, Scope: s,
		Parties:   contract.Parties{Buyer: "did:wba:buyer.test", Vendor: "did:wba:vendor.test"},
		ValidFrom: "2026-01-01T00:00:00Z", ValidUntil: "2027-01-01T00:00:00Z",
	}
}

func (g refGenerator) request(c *contract.Contract) contract.Request {
	g.columns = c.Columns
	r := contract.Request{
		ContractID: c.ID, Caller: c.Parties.Buyer, Purpose: "p", Dataset: "d",
		GroupBy: []string{}, Filters: g.list(1), OrderBy: []contract.Order{}, Aggregates: []contract.Aggregate{},
	}
	if rapid.Bool().Draw(g.T, "tree") {
		f := g.tree(1)
		r.Where = &f
	}
	column := rapid.Map(rapid.IntRange(0, 39), func(i int) string {
		if i == 0 {
			return "secret"
		}
		return c.Columns[i%len(c.Columns)]
	})
	if len(c.Readable()) > 0 && rapid.IntRange(0, 3).Draw(g.T, "rows") == 0 {
		r.Select = rapid.SliceOfNDistinct(rapid.SampledFrom(c.Readable()), 1, len(c.Readable()), rapid.ID[string]).Draw(g.T, "select")
		r.Limit = rapid.IntRange(1, 300).Draw(g.T, "limit")
		r.Offset = rapid.IntRange(0, 50).Draw(g.T, "offset")
		return r
	}
	for i := range rapid.IntRange(1, 3).Draw(g.T, "aggregates") {
		a := contract.Aggregate{Op: rapid.SampledFrom(contract.AllOperations()).Draw(g.T, "operation"), As: fmt.Sprintf("a%d", i)}
		if a.Op != contract.OpCount || rapid.Bool().Draw(g.T, "of a column") {
			a.Column = column.Draw(g.T, "aggregated")
		}
		if t, ok := contract.ParseType(refColumns[a.Column]); ok && !contract.OperationFits(a.Op, t) && rapid.IntRange(0, 9).Draw(g.T, "unfit") > 0 {
			a.Column = "amount"
		}
		if a.Op == contract.OpPercentile {
			a.P = rapid.SampledFrom([]string{"0.1", "0.25", "0.5", "0.9", "0.999"}).Draw(g.T, "p")
		}
		r.Aggregates = append(r.Aggregates, a)
	}
	if rapid.Bool().Draw(g.T, "grouped") {
		r.GroupBy = rapid.SliceOfNDistinct(rapid.SampledFrom(c.Columns), 1, 2, rapid.ID[string]).Draw(g.T, "groups")
	}
	if rapid.IntRange(0, 2).Draw(g.T, "by date") == 0 {
		r.GroupByDate = []contract.DateGroup{{Column: "day", Unit: rapid.SampledFrom(contract.Units()[:5]).Draw(g.T, "unit")}}
	}
	if rapid.IntRange(0, 2).Draw(g.T, "having") == 0 {
		r.Having = []contract.Condition{{Column: "a0", Op: rapid.SampledFrom([]string{"<", ">"}).Draw(g.T, "having op"), Value: contract.TextValue(strconv.Itoa(rapid.IntRange(-5, 40).Draw(g.T, "bound")))}}
	}
	return r
}
