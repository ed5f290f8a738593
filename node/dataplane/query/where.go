// SPDX-License-Identifier: Apache-2.0

package query

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/treaty-node/treaty/node/contract"
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

// condition writes one checked condition. The operator is written by us, never copied.
func (b *builder) condition(c contract.Condition) (string, error) {
	t, err := b.column(c.Column)
	if err != nil {
		return "", err
	}
	d := b.spec.Dialect
	col := d.Column(c.Column, t)
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
	case contract.OpIsNull:
		return col + " IS NULL", nil
	case contract.OpIsNotNull:
		return col + " IS NOT NULL", nil
	}
	return "", fmt.Errorf("%w: unknown operator", ErrInvalid)
}
