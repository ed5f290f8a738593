// SPDX-License-Identifier: Apache-2.0

package query

import (
	"fmt"
	"strings"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
)

// rows makes the plan of a request for rows: the selected columns of the rows that the contract's filter and the caller's let
// through, in the caller's order and then in that of the selected columns, so that two pages never disagree about what comes
// first: rows that are equal in every selected column are the same to the caller.
func (b *builder) rows() (*Plan, error) {
	req, d := b.spec.Request, b.spec.Dialect
	if b.spec.Noise != nil || len(req.Aggregates)+len(req.GroupBy)+len(req.GroupByDate)+len(req.Having) > 0 {
		return nil, fmt.Errorf("%w: rows have no aggregates", ErrInvalid)
	}
	if req.Limit < 1 || req.Limit > b.spec.MaxRows {
		return nil, fmt.Errorf("%w: rows want a limit of 1 to %d", ErrInvalid, b.spec.MaxRows)
	}
	p := &Plan{rows: true}
	list := make([]string, 0, len(req.Select)+2)
	types := make([]dataset.Type, 0, len(req.Select)+2)
	names := map[string]int{}
	for i, name := range req.Select {
		t, err := b.column(name)
		if err != nil {
			return nil, err
		}
		if _, dup := names[name]; dup {
			return nil, fmt.Errorf("%w: %s is there twice", ErrInvalid, contract.Echo(name))
		}
		names[name] = i
		list, types = append(list, fmt.Sprintf("%s AS c%d", b.sql(name), i)), append(types, t)
		p.columns = append(p.columns, output{name: name, typ: dataset.TypeName(t), col: t, from: i, n: 1})
	}
	// Parameters are numbered in the order of the text: the count of visible rows comes first.
	visible, err := b.where(b.spec.RowFilter)
	if err != nil {
		return nil, err
	}
	used, err := b.used(b.spec.RowFilter, &req)
	if err != nil {
		return nil, err
	}
	order := make([]string, 0, len(req.OrderBy)+len(req.Select))
	term := func(i int, desc bool) {
		order = append(order, fmt.Sprintf("c%d%s NULLS LAST", i, source.Order(desc)))
	}
	ordered := map[int]bool{}
	for _, o := range req.OrderBy {
		i, ok := names[o.By]
		if !ok || ordered[i] {
			return nil, fmt.Errorf("%w: order by %s, which is not in the answer, or is there twice", ErrInvalid, contract.Echo(o.By))
		}
		ordered[i] = true
		term(i, o.Desc)
	}
	for i := range req.Select {
		if !ordered[i] {
			term(i, false)
		}
	}
	from := b.spec.From + " AS " + source.Alias
	sql := fmt.Sprintf("SELECT %s, (SELECT count(*) FROM %s WHERE %s) AS total FROM %s WHERE %s ORDER BY %s %s",
		strings.Join(list, ", "), from, visible, from, used, strings.Join(order, ", "), d.Limit(req.Limit, req.Offset))
	p.Statement = source.Statement{Dataset: req.Dataset, SQL: sql, Args: b.args, Types: append(types, dataset.Type{Kind: dataset.Integer}), MaxRows: req.Limit}
	return p, nil
}
