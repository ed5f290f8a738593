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

// condition writes one checked condition. The operator is written by us, never copied.
func (b *builder) condition(c contract.Condition) (string, error) {
	t, err := b.column(c.Column)
	if err != nil {
		return "", err
	}
	col, hole := quote(c.Column), placeholder(t)
	values := c.Values
	if !c.Value.IsZero() {
		values = []contract.Value{c.Value}
	}
	for _, v := range values {
		arg, err := argument(v, t)
		if err != nil {
			return "", fmt.Errorf("%w: column %s: %w", ErrInvalid, contract.Echo(c.Column), err)
		}
		b.args = append(b.args, arg)
	}
	switch c.Op {
	case contract.OpEqual:
		return col + " = " + hole, nil
	case contract.OpNotEqual:
		return col + " <> " + hole, nil
	case contract.OpLess:
		return col + " < " + hole, nil
	case contract.OpLessEqual:
		return col + " <= " + hole, nil
	case contract.OpGreater:
		return col + " > " + hole, nil
	case contract.OpGreaterEqual:
		return col + " >= " + hole, nil
	case contract.OpBetween:
		return "(" + col + " >= " + hole + " AND " + col + " <= " + hole + ")", nil
	case contract.OpIn:
		return col + " IN (" + hole + strings.Repeat(", "+hole, len(values)-1) + ")", nil
	case contract.OpIsNull:
		return col + " IS NULL", nil
	case contract.OpIsNotNull:
		return col + " IS NOT NULL", nil
	}
	return "", fmt.Errorf("%w: unknown operator", ErrInvalid)
}

// placeholder gives a parameter the column's type, so that no conversion is left to the engine's own rules. Instants are kept
// in UTC without a zone.
func placeholder(t dataset.Type) string {
	switch t.Kind {
	case dataset.DecimalKind:
		return fmt.Sprintf("CAST(? AS DECIMAL(%d,%d))", t.Precision, t.Scale)
	case dataset.Date:
		return "CAST(? AS DATE)"
	case dataset.Timestamp, dataset.TimestampTZ:
		return "CAST(? AS TIMESTAMP)"
	default:
		return "?"
	}
}

// argument gives a checked value the Go type that its placeholder takes.
func argument(v contract.Value, t dataset.Type) (any, error) {
	if x, ok := v.Bool(); ok {
		return x, nil
	}
	s, _ := v.Text()
	switch t.Kind {
	case dataset.Text, dataset.DecimalKind, dataset.Date:
		return s, nil
	case dataset.Integer:
		return strconv.ParseInt(s, 10, 64)
	case dataset.Double:
		return strconv.ParseFloat(s, 64)
	case dataset.Timestamp, dataset.TimestampTZ:
		return strings.Replace(strings.TrimSuffix(s, "Z"), "T", " ", 1), nil
	default:
		return nil, fmt.Errorf("no value of type %s", dataset.TypeName(t))
	}
}
