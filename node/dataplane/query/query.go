// SPDX-License-Identifier: Apache-2.0

// Package query turns an allowed request into one SQL statement and the engine's rows into an answer. It is pure.
//
// Guarantees
//
//   - Identifiers come from the published schema and are quoted; a caller's text is only ever an argument, or an alias that is
//     kept out of the SQL altogether.
//   - The contract's row filter is applied before everything else, and the caller cannot see around it.
//   - Minimum group size is a predicate of the statement, before order and limit. A group counts for an aggregated column only
//     the distinct subjects that have a value there, so that nine nulls do not hide one person's salary. A group below the
//     minimum is not in the answer at all; nothing tells whether it exists.
//   - Answers can be recomputed. Sums and counts are exact. An average is the exact sum divided by the exact count, with four
//     digits more than the column has, rounded half away from zero. A median is the lower and upper middle value, averaged
//     exactly. Over a double column, sums add the values in ascending order, so that threads do not change the result.
//
// Definitions
//
//   - Total rows: the rows of the dataset that the contract's row filter lets through.
//   - Used rows: the rows in the groups that the answer shows, after the caller's filters and limit.
//
// What it does not stop: several answers over overlapping filters can be subtracted from each other, and the difference
// between total and used rows shows how many rows were filtered out or withheld together. Call budgets and row filters bound
// that; they do not prevent it.
package query

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
)

var (
	// ErrInvalid: the request cannot be asked of the schema.
	ErrInvalid = errors.New("query: invalid request")
	// ErrGroups: no group is large enough.
	ErrGroups = errors.New("query: no group is large enough to be released")
	// ErrRows: the engine's rows are not what the statement asks for.
	ErrRows = errors.New("query: unexpected rows")
)

// AvgDigits is how many digits an average has beyond those of its column.
const AvgDigits = 4

// Plan is a statement and what its columns mean.
type Plan struct {
	Statement source.Statement
	columns   []output
}

// output is one column of the answer, made from one or two columns of the statement's rows.
type output struct {
	name string
	typ  string // type in the answer
	op   string // "" for a group column
	col  dataset.Type
	from int // first column in the row
	n    int // columns in the row
}

// Spec is everything a plan is made from. The request has been allowed by [contract.Evaluate].
type Spec struct {
	Request   contract.Request
	Schema    *contract.Schema
	RowFilter []contract.Condition
	MinGroup  int    // subjects a group must have; below 1 counts as 1
	Subject   string // column that counts people; empty: every row is one
	MaxRows   int    // most rows of an answer
}

type builder struct {
	spec  Spec
	types map[string]dataset.Type
	args  []any
}

// Build makes the plan. Errors match ErrInvalid.
func Build(s Spec) (*Plan, error) {
	b := &builder{spec: s, types: make(map[string]dataset.Type, len(s.Schema.Columns))}
	for _, c := range s.Schema.Columns {
		t, err := dataset.ParseType(c.Type)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		b.types[c.Name] = t
	}
	return b.build()
}

func (b *builder) build() (*Plan, error) {
	req := b.spec.Request
	if len(req.Aggregates) == 0 {
		return nil, fmt.Errorf("%w: at least one aggregate", ErrInvalid)
	}
	if b.spec.Subject != "" {
		if _, err := b.column(b.spec.Subject); err != nil {
			return nil, err
		}
	}
	rowFilter, err := b.where(b.spec.RowFilter)
	if err != nil {
		return nil, err
	}
	filters, err := b.where(req.Filters)
	if err != nil {
		return nil, err
	}

	var groups, inner []string // SQL of the group expressions; select list of the grouped query
	p := &Plan{}
	names := map[string]int{} // name in the answer → output
	addOutput := func(o output) error {
		if _, dup := names[o.name]; dup {
			return fmt.Errorf("%w: %s is there twice", ErrInvalid, contract.Echo(o.name))
		}
		names[o.name] = len(p.columns)
		p.columns = append(p.columns, o)
		return nil
	}
	add := func(sql string) int {
		inner = append(inner, fmt.Sprintf("%s AS c%d", sql, len(inner)))
		return len(inner) - 1
	}
	for _, name := range req.GroupBy {
		t, err := b.column(name)
		if err != nil {
			return nil, err
		}
		groups = append(groups, quote(name))
		if err := addOutput(output{name: name, typ: dataset.TypeName(t), col: t, from: add(quote(name)), n: 1}); err != nil {
			return nil, err
		}
	}
	contributors := []string{b.subjects("")}
	for _, a := range req.Aggregates {
		o, exprs, err := b.aggregate(a)
		if err != nil {
			return nil, err
		}
		for i, e := range exprs {
			if n := add(e); i == 0 {
				o.from = n
			}
		}
		o.n = len(exprs)
		if err := addOutput(o); err != nil {
			return nil, err
		}
		if a.Column != "" {
			if c := b.subjects(a.Column); !slices.Contains(contributors, c) {
				contributors = append(contributors, c)
			}
		}
	}
	order, err := p.order(req, names)
	if err != nil {
		return nil, err
	}

	minGroup := int64(max(b.spec.MinGroup, 1))
	having := make([]string, len(contributors))
	for i, c := range contributors {
		having[i] = c + " >= ?"
		b.args = append(b.args, minGroup)
	}
	limit := b.spec.MaxRows
	if req.Limit > 0 && req.Limit <= limit {
		limit = req.Limit
	} else {
		limit++ // one more than allowed tells that there are more
	}
	b.args = append(b.args, int64(limit))

	var q strings.Builder
	fmt.Fprintf(&q, "WITH visible AS (SELECT * FROM %s WHERE %s), ", quote(req.Dataset), rowFilter)
	fmt.Fprintf(&q, "released AS (SELECT %s, count(*) AS used FROM visible WHERE %s", strings.Join(inner, ", "), filters)
	if len(groups) > 0 {
		fmt.Fprintf(&q, " GROUP BY %s", strings.Join(groups, ", "))
	}
	fmt.Fprintf(&q, " HAVING %s) ", strings.Join(having, " AND "))
	fmt.Fprintf(&q, "SELECT *, (SELECT count(*) FROM visible) AS total FROM released")
	if len(order) > 0 {
		fmt.Fprintf(&q, " ORDER BY %s", strings.Join(order, ", "))
	}
	q.WriteString(" LIMIT ?")
	p.Statement = source.Statement{Dataset: req.Dataset, SQL: q.String(), Args: b.args, MaxRows: b.spec.MaxRows}
	return p, nil
}

func (b *builder) column(name string) (dataset.Type, error) {
	t, ok := b.types[name]
	if !ok {
		return t, fmt.Errorf("%w: no column %s", ErrInvalid, contract.Echo(name))
	}
	return t, nil
}

// quote writes a delimited identifier (SQL:2016 5.2): nothing in a name can end it.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// subjects counts the distinct subjects of a group that have a value in column; without a column, all of them.
func (b *builder) subjects(column string) string {
	switch {
	case b.spec.Subject == "" && column == "":
		return "count(*)"
	case b.spec.Subject == "":
		return "count(" + quote(column) + ")"
	case column == "" || column == b.spec.Subject:
		return "count(DISTINCT " + quote(b.spec.Subject) + ")"
	}
	return fmt.Sprintf("count(DISTINCT %s) FILTER (WHERE %s IS NOT NULL)", quote(b.spec.Subject), quote(column))
}

// aggregate returns what one aggregate is called and typed, and the SQL expressions it is made from.
func (b *builder) aggregate(a contract.Aggregate) (output, []string, error) {
	o := output{name: a.Name(), op: a.Op}
	if a.Column == "" {
		if a.Op != contract.OpCount {
			return o, nil, fmt.Errorf("%w: %s needs a column", ErrInvalid, contract.Echo(a.Op))
		}
		o.typ = "integer"
		return o, []string{"count(*)"}, nil
	}
	t, err := b.column(a.Column)
	if err != nil {
		return o, nil, err
	}
	if !contract.OperationFits(a.Op, t) {
		return o, nil, fmt.Errorf("%w: %s does not apply to %s", ErrInvalid, contract.Echo(a.Op), dataset.TypeName(t))
	}
	o.col, o.typ = t, dataset.TypeName(t)
	c := quote(a.Column)
	exact := func(scale int) string {
		if t.Kind == dataset.Double {
			return "double"
		}
		return contract.DecimalType(dataset.MaxPrecision, min(scale, dataset.MaxPrecision))
	}
	sum := "sum(" + c + ")"
	if t.Kind == dataset.Double {
		sum = "list_sum(list_sort(list(" + c + ") FILTER (WHERE " + c + " IS NOT NULL)))"
	}
	switch a.Op {
	case contract.OpCount:
		o.typ = "integer"
		return o, []string{"count(" + c + ")"}, nil
	case contract.OpCountDistinct:
		o.typ = "integer"
		return o, []string{"count(DISTINCT " + c + ")"}, nil
	case contract.OpMin, contract.OpMax:
		return o, []string{a.Op + "(" + c + ")"}, nil
	case contract.OpSum:
		o.typ = exact(t.Scale)
		return o, []string{sum}, nil
	case contract.OpAvg:
		o.typ = exact(t.Scale + AvgDigits)
		return o, []string{sum, "count(" + c + ")"}, nil
	case contract.OpMedian:
		o.typ = exact(t.Scale + 1)
		return o, []string{
			"quantile_disc(" + c + ", 0.5 ORDER BY " + c + ")",
			"quantile_disc(" + c + ", 0.5 ORDER BY " + c + " DESC)",
		}, nil
	}
	return o, nil, fmt.Errorf("%w: unknown operation %s", ErrInvalid, contract.Echo(a.Op))
}

// order writes the caller's order, and the group columns after it, so that the answer has one order. Averages and medians
// are ordered by their quotient in double precision.
func (p *Plan) order(req contract.Request, names map[string]int) ([]string, error) {
	var order []string
	term := func(o output, desc bool) {
		e := fmt.Sprintf("c%d", o.from)
		switch o.op {
		case contract.OpAvg:
			e = fmt.Sprintf("c%d::DOUBLE / c%d", o.from, o.from+1)
		case contract.OpMedian:
			e = fmt.Sprintf("c%d::DOUBLE + c%d::DOUBLE", o.from, o.from+1)
		}
		if desc {
			e += " DESC"
		}
		order = append(order, e+" NULLS LAST")
	}
	for _, t := range req.OrderBy {
		i, ok := names[t.By]
		if !ok {
			return nil, fmt.Errorf("%w: order by %s, which is not in the answer", ErrInvalid, contract.Echo(t.By))
		}
		term(p.columns[i], t.Desc)
	}
	for _, o := range p.columns[:len(req.GroupBy)] {
		term(o, false)
	}
	return order, nil
}

// number writes cells as exact numbers of one scale.
func number(cell any, scale int) (dataset.Decimal, error) {
	var d dataset.Decimal
	switch v := cell.(type) {
	case int64:
		d = dataset.Decimal{Unscaled: big.NewInt(v)}
	case *big.Int:
		d = dataset.Decimal{Unscaled: v}
	case dataset.Decimal:
		d = v
	default:
		return d, ErrRows
	}
	d, ok := d.Rescale(scale)
	if !ok {
		return d, ErrRows
	}
	return d, nil
}
