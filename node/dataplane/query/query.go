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
//   - A percentile is not its group's minimum or maximum where those are hidden.
//
// Definitions
//
//   - Total rows: the rows of the dataset that the contract's row filter lets through.
//   - Used rows: the rows in the groups that the answer shows, after the caller's filters and limit.
//
// What it does not stop: answers over overlapping filters can be subtracted from each other, which [Overlap] finds for two of them,
// and the difference between total and used rows shows how many rows were filtered out or withheld together. Call budgets and
// row filters bound that; they do not prevent it.
package query

import (
	"errors"
	"fmt"
	"math"
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
	rows      bool // of the dataset, rather than of groups
	page      bool // a page after the first, which may be empty
	noise     *Noise

	// Values that a group must have for its percentiles to be neither minimum nor maximum; 0 where that is no matter.
	Values int64
}

// output is one column of the answer, made from one or two columns of the statement's rows.
type output struct {
	name   string
	typ    string // type in the answer
	op     string // "" for a group column
	source string // the column it is computed over; "" for rows
	col    dataset.Type
	from   int // first column in the row
	n      int // columns in the row
}

// Spec is everything a plan is made from. The request has been allowed by [contract.Evaluate].
type Spec struct {
	Dialect   source.Dialect
	From      string // what names the dataset in its engine, quoted: [source.Table]
	Request   contract.Request
	Schema    *contract.Schema
	RowFilter []contract.Condition
	MinGroup  int    // subjects a group must have; below 1 counts as 1
	Subject   string // column that counts people; empty: every row is one
	MaxRows   int    // most rows of an answer
	Noise     *Noise // nil: none

	// Hides says of min and max over a column that the answer must not show them; nil: it may. A percentile whose place is the
	// first or the last of its group is one of them: such groups are left out.
	Hides func(op, column string) bool
}

type builder struct {
	spec  Spec
	types map[string]dataset.Type
	args  []any
}

// Build makes the plan. Errors match ErrInvalid.
func Build(s Spec) (*Plan, error) {
	b, err := newBuilder(s)
	if err != nil {
		return nil, err
	}
	if s.Request.Rows() {
		return b.rows()
	}
	return b.build()
}

func newBuilder(s Spec) (*builder, error) {
	b := &builder{spec: s, types: make(map[string]dataset.Type, len(s.Schema.Columns))}
	for _, c := range s.Schema.Columns {
		t, err := dataset.ParseType(c.Type)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		b.types[c.Name] = t
	}
	return b, nil
}

func (b *builder) build() (*Plan, error) {
	req, d := b.spec.Request, b.spec.Dialect
	if len(req.Aggregates) == 0 {
		return nil, fmt.Errorf("%w: at least one aggregate", ErrInvalid)
	}
	if b.spec.Subject != "" {
		if _, err := b.column(b.spec.Subject); err != nil {
			return nil, err
		}
	}
	if b.spec.Noise != nil {
		if err := b.spec.Noise.check(d); err != nil {
			return nil, err
		}
	}
	// Parameters are numbered in the order of the text. The select list has none.
	used, err := b.used(b.spec.RowFilter, &req)
	if err != nil {
		return nil, err
	}

	var groups, inner []string // SQL of the group expressions; select list of the grouped query
	var types []dataset.Type
	p := &Plan{page: req.Offset > 0, noise: b.spec.Noise}
	names := map[string]int{} // name in the answer → output
	addOutput := func(o output) error {
		if _, dup := names[o.name]; dup {
			return fmt.Errorf("%w: %s is there twice", ErrInvalid, contract.Echo(o.name))
		}
		names[o.name] = len(p.columns)
		p.columns = append(p.columns, o)
		return nil
	}
	add := func(e expr) int {
		types = append(types, e.typ)
		inner = append(inner, fmt.Sprintf("%s AS c%d", e.sql, len(inner)))
		return len(inner) - 1
	}
	for _, name := range req.GroupBy {
		t, err := b.column(name)
		if err != nil {
			return nil, err
		}
		c := d.Column(name, t)
		groups = append(groups, c)
		if err := addOutput(output{name: name, typ: dataset.TypeName(t), col: t, from: add(expr{c, t}), n: 1}); err != nil {
			return nil, err
		}
	}
	for _, g := range req.GroupByDate {
		c, t, err := b.date(g)
		if err != nil {
			return nil, err
		}
		groups = append(groups, c)
		if err := addOutput(output{name: g.Name(), typ: dataset.TypeName(t), col: t, from: add(expr{c, t}), n: 1}); err != nil {
			return nil, err
		}
	}
	contributors := []string{b.subjects("")}
	var enough []string
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
			if n := b.inner(a); n > 1 {
				p.Values = max(p.Values, n)
				enough = append(enough, fmt.Sprintf("count(%s) >= %d", b.sql(a.Column), n))
			}
			if c := b.subjects(a.Column); !slices.Contains(contributors, c) {
				contributors = append(contributors, c)
			}
		}
	}
	order, err := p.order(d, req, names)
	if err != nil {
		return nil, err
	}

	minGroup := max(b.spec.MinGroup, 1)
	for _, c := range contributors {
		enough = append(enough, fmt.Sprintf("%s >= %d", c, minGroup))
	}
	limit := b.spec.MaxRows
	if req.Limit > 0 && req.Limit <= limit {
		limit = req.Limit
	} else {
		limit++ // one more than allowed tells that there are more
	}
	visible, err := b.where(b.spec.RowFilter) // again, in the place that it has in the text
	if err != nil {
		return nil, err
	}
	shown, err := b.having(p, names)
	if err != nil {
		return nil, err
	}
	// Each part names the columns it uses and no others, and reads the table itself: engines that keep the rows of a common
	// table expression would keep all of them.
	from := b.spec.From + " AS " + source.Alias
	var q strings.Builder
	fmt.Fprintf(&q, "WITH released AS (SELECT %s, count(*) AS used FROM %s WHERE %s", strings.Join(inner, ", "), from, used)
	if len(groups) > 0 {
		fmt.Fprintf(&q, " GROUP BY %s", strings.Join(groups, ", "))
	}
	fmt.Fprintf(&q, " HAVING %s) ", strings.Join(enough, " AND "))
	fmt.Fprintf(&q, "SELECT released.*, (SELECT count(*) FROM %s WHERE %s) AS total FROM released%s", from, visible, shown)
	if len(order) > 0 {
		fmt.Fprintf(&q, " ORDER BY %s", strings.Join(order, ", "))
	}
	q.WriteString(" " + d.Limit(limit, req.Offset))
	integer := dataset.Type{Kind: dataset.Integer}
	p.Statement = source.Statement{Dataset: req.Dataset, SQL: q.String(), Args: b.args, Types: append(types, integer, integer), MaxRows: b.spec.MaxRows}
	return p, nil
}

// expr is an expression of the select list and the type of its values.
type expr struct {
	sql string
	typ dataset.Type
}

func (b *builder) column(name string) (dataset.Type, error) {
	t, ok := b.types[name]
	if !ok {
		return t, fmt.Errorf("%w: no column %s", ErrInvalid, contract.Echo(name))
	}
	return t, nil
}

// sql reads a published column.
func (b *builder) sql(name string) string { return b.spec.Dialect.Column(name, b.types[name]) }

// subjects counts the distinct subjects of a group that have a value in column; without a column, all of them.
func (b *builder) subjects(column string) string {
	switch {
	case b.spec.Subject == "" && column == "":
		return "count(*)"
	case b.spec.Subject == "":
		return "count(" + b.sql(column) + ")"
	case column == "" || column == b.spec.Subject:
		return "count(DISTINCT " + b.sql(b.spec.Subject) + ")"
	}
	return fmt.Sprintf("count(DISTINCT %s) FILTER (WHERE %s IS NOT NULL)", b.sql(b.spec.Subject), b.sql(column))
}

// aggregate returns what one aggregate is called and typed, and the expressions it is made from.
func (b *builder) aggregate(a contract.Aggregate) (output, []expr, error) {
	o := output{name: a.Name(), op: a.Op}
	integer := dataset.Type{Kind: dataset.Integer}
	if a.Column == "" {
		if a.Op != contract.OpCount {
			return o, nil, fmt.Errorf("%w: %s needs a column", ErrInvalid, contract.Echo(a.Op))
		}
		o.typ = "integer"
		return o, []expr{{"count(*)", integer}}, nil
	}
	t, err := b.column(a.Column)
	if err != nil {
		return o, nil, err
	}
	if !contract.OperationFits(a.Op, t) {
		return o, nil, fmt.Errorf("%w: %s does not apply to %s", ErrInvalid, contract.Echo(a.Op), dataset.TypeName(t))
	}
	o.col, o.typ, o.source = t, dataset.TypeName(t), a.Column
	d, c := b.spec.Dialect, b.sql(a.Column)
	exact := func(scale int) string {
		if t.Kind == dataset.Double {
			return "double"
		}
		return contract.DecimalType(dataset.MaxPrecision, min(scale, dataset.MaxPrecision))
	}
	count := expr{"count(" + c + ")", integer}
	switch a.Op {
	case contract.OpCount:
		o.typ = "integer"
		return o, []expr{count}, nil
	case contract.OpCountDistinct:
		o.typ = "integer"
		return o, []expr{{"count(DISTINCT " + c + ")", integer}}, nil
	case contract.OpMin, contract.OpMax:
		return o, []expr{{a.Op + "(" + c + ")", t}}, nil
	case contract.OpSum:
		if b.spec.Noise != nil {
			var err error
			if c, err = b.spec.Noise.clamp(c, a.Column, t); err != nil {
				return o, nil, err
			}
		}
		o.typ = exact(t.Scale)
		return o, []expr{{d.Sum(c, t), source.SumType(t)}}, nil
	case contract.OpStddev:
		double := dataset.Type{Kind: dataset.Double}
		o.typ = "double"
		return o, []expr{{d.Stddev(c, t), double}}, nil
	case contract.OpPercentile:
		if !source.CheckFraction(a.P) {
			return o, nil, fmt.Errorf("%w: percentile wants p", ErrInvalid)
		}
		return o, []expr{{d.Quantile(c, a.P, false, t), t}}, nil
	case contract.OpAvg:
		o.typ = exact(t.Scale + AvgDigits)
		return o, []expr{{d.Sum(c, t), source.SumType(t)}, count}, nil
	case contract.OpMedian:
		o.typ = exact(t.Scale + 1)
		return o, []expr{{d.Quantile(c, "0.5", false, t), t}, {d.Quantile(c, "0.5", true, t), t}}, nil
	}
	return o, nil, fmt.Errorf("%w: unknown operation %s", ErrInvalid, contract.Echo(a.Op))
}

// inner is how many values a percentile needs for its place, ⌈p·n⌉ of n, to be none that is hidden: more than 1/p for it not to
// be the first, at least 1/(1-p) for it not to be the last. 0 where nothing is hidden.
func (b *builder) inner(a contract.Aggregate) (n int64) {
	if a.Op != contract.OpPercentile || b.spec.Hides == nil {
		return 0
	}
	const one = 1_000_000
	p, ok := contract.MicroEpsilon(a.P) // the same notation: six digits after the point
	if !ok || p >= one {
		return math.MaxInt64 // Quantile has refused it
	}
	if b.spec.Hides(contract.OpMin, a.Column) {
		n = one/p + 1
	}
	if b.spec.Hides(contract.OpMax, a.Column) {
		n = max(n, (one+one-p-1)/(one-p))
	}
	return n
}

// date cuts a date or timestamp to the beginning of a unit.
func (b *builder) date(g contract.DateGroup) (sql string, t dataset.Type, err error) {
	if t, err = b.column(g.Column); err != nil {
		return "", t, err
	}
	if !slices.Contains(source.Units(), g.Unit) || !t.Dated() || t.Kind == dataset.Date && g.Unit == contract.UnitHour {
		return "", t, fmt.Errorf("%w: %s cannot be grouped by %s", ErrInvalid, contract.Echo(g.Column), contract.Echo(g.Unit))
	}
	return b.spec.Dialect.Truncate(g.Unit, b.sql(g.Column), t), t, nil
}

// having writes the caller's conditions on aggregates. They come after the minimum group size, over the groups that are
// released: a group that is too small cannot be found by them.
func (b *builder) having(p *Plan, names map[string]int) (string, error) {
	if len(b.spec.Request.Having) == 0 {
		return "", nil
	}
	terms := make([]string, 0, len(b.spec.Request.Having))
	for _, h := range b.spec.Request.Having {
		i, ok := names[h.Column]
		if !ok || p.columns[i].op == "" {
			return "", fmt.Errorf("%w: having %s, which is no aggregate", ErrInvalid, contract.Echo(h.Column))
		}
		o := p.columns[i]
		term, err := b.compare(p.value(b.spec.Dialect, o), contract.CompareType(o.op, o.col), h)
		if err != nil {
			return "", err
		}
		terms = append(terms, term)
	}
	return " WHERE " + strings.Join(terms, " AND "), nil
}

// value is an output as an expression that can be compared. Averages and medians are their quotient in double precision.
func (p *Plan) value(d source.Dialect, o output) string {
	e := fmt.Sprintf("c%d", o.from)
	switch o.op {
	case contract.OpAvg:
		return fmt.Sprintf("%s / c%d", d.Double(e), o.from+1)
	case contract.OpMedian:
		return fmt.Sprintf("(%s + %s) / 2", d.Double(e), d.Double(fmt.Sprintf("c%d", o.from+1)))
	}
	return e
}

// order writes the caller's order, and the group columns after it, so that the answer has one order. Averages and medians
// are ordered by their quotient in double precision.
func (p *Plan) order(d source.Dialect, req contract.Request, names map[string]int) ([]string, error) {
	var order []string
	term := func(o output, desc bool) {
		e := fmt.Sprintf("c%d", o.from)
		switch o.op {
		case contract.OpAvg:
			e = fmt.Sprintf("%s / c%d", d.Double(e), o.from+1)
		case contract.OpMedian:
			e = d.Double(e) + " + " + d.Double(fmt.Sprintf("c%d", o.from+1))
		}
		order = append(order, e+source.Order(desc)+" NULLS LAST")
	}
	for _, t := range req.OrderBy {
		i, ok := names[t.By]
		if !ok {
			return nil, fmt.Errorf("%w: order by %s, which is not in the answer", ErrInvalid, contract.Echo(t.By))
		}
		term(p.columns[i], t.Desc)
	}
	for _, o := range p.columns[:len(req.GroupBy)+len(req.GroupByDate)] {
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
