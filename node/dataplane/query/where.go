// SPDX-License-Identifier: Apache-2.0

package query

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataset"
)

// where writes conditions joined by AND, in parentheses; no condition is TRUE.
func (b *builder) where(conds []contract.Condition) (string, error) {
	if len(conds) == 0 {
		return "(TRUE)", nil
	}
	terms := make([]string, len(conds))
	for i, c := range conds {
		if err := contract.CheckCondition(b.spec.Schema, c); err != nil {
			return "", fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		term, err := b.condition(c)
		if err != nil {
			return "", err
		}
		terms[i] = term
	}
	return "(" + strings.Join(terms, " AND ") + ")", nil
}

// used writes the rows that are used: those that the contract's filter and the caller's conditions let through.
func (b *builder) used(rowFilter []contract.Condition, req *contract.Request) (string, error) {
	own, err := b.where(rowFilter)
	if err != nil {
		return "", err
	}
	theirs, err := b.filters(req)
	return own + " AND " + theirs, err
}

// filters writes the caller's conditions: the list, and the tree beside it.
func (b *builder) filters(req *contract.Request) (string, error) {
	sql, err := b.where(req.Filters)
	if err != nil || req.Where == nil {
		return sql, err
	}
	tree, err := b.tree(req.Where, contract.MaxFilterDepth)
	if err != nil {
		return "", err
	}
	return sql + " AND " + tree, nil
}

// tree writes a filter in parentheses.
func (b *builder) tree(f *contract.Filter, depth int) (string, error) {
	switch {
	case depth == 0:
		return "", fmt.Errorf("%w: where has too many levels", ErrInvalid)
	case f.Leaf():
		return b.where([]contract.Condition{f.Condition()})
	case f.Not != nil:
		sql, err := b.tree(f.Not, depth-1)
		return "(NOT " + sql + ")", err
	}
	list, word := f.And, " AND "
	if f.Or != nil {
		list, word = f.Or, " OR "
	}
	terms := make([]string, len(list))
	for i := range list {
		var err error
		if terms[i], err = b.tree(&list[i], depth-1); err != nil {
			return "", err
		}
	}
	if len(terms) == 0 {
		return "", fmt.Errorf("%w: an empty list in where", ErrInvalid)
	}
	return "(" + strings.Join(terms, word) + ")", nil
}

// condition writes one checked condition. The operator is written by us, never copied.
func (b *builder) condition(c contract.Condition) (string, error) {
	t, err := b.column(c.Column)
	if err != nil {
		return "", err
	}
	return b.compare(b.spec.Dialect.Column(c.Column, t), t, c)
}

// compare writes a condition on an expression of type t. The number and form of its values have been checked.
func (b *builder) compare(col string, t dataset.Type, c contract.Condition) (string, error) {
	d := b.spec.Dialect
	values := c.Values
	if !c.Value.IsZero() {
		values = []contract.Value{c.Value}
	}
	holes := make([]string, len(values))
	for i, v := range values {
		text, ok := v.Text()
		if x, isBool := v.Bool(); isBool {
			text, ok = strconv.FormatBool(x), true
		}
		if !ok {
			return "", fmt.Errorf("%w: column %s: no value", ErrInvalid, contract.Echo(c.Column))
		}
		arg, err := d.Arg(text, t)
		if err != nil {
			return "", fmt.Errorf("%w: column %s: %w", ErrInvalid, contract.Echo(c.Column), err)
		}
		b.args = append(b.args, arg)
		holes[i] = d.Param(len(b.args), t)
	}
	switch c.Op {
	case contract.OpEqual:
		return col + " = " + holes[0], nil
	case contract.OpNotEqual:
		return col + " <> " + holes[0], nil
	case contract.OpLess:
		return col + " < " + holes[0], nil
	case contract.OpLessEqual:
		return col + " <= " + holes[0], nil
	case contract.OpGreater:
		return col + " > " + holes[0], nil
	case contract.OpGreaterEqual:
		return col + " >= " + holes[0], nil
	case contract.OpBetween:
		return "(" + col + " >= " + holes[0] + " AND " + col + " <= " + holes[1] + ")", nil
	case contract.OpIn:
		return col + " IN (" + strings.Join(holes, ", ") + ")", nil
	case contract.OpPrefix:
		return d.Prefix(col, holes[0]), nil
	case contract.OpIsNull:
		return col + " IS NULL", nil
	case contract.OpIsNotNull:
		return col + " IS NOT NULL", nil
	}
	return "", fmt.Errorf("%w: unknown operator", ErrInvalid)
}
