// SPDX-License-Identifier: Apache-2.0

package sqlitefile

import (
	"cmp"
	"database/sql/driver"
	"errors"
	"math"
	"math/big"
	"slices"
	"strings"

	"modernc.org/sqlite"
)

// What a function of ours says when it fails. SQLite passes the words on; they have no values in them.
var (
	errValue  = errors.New("treaty:value")
	errRange  = errors.New("treaty:range")
	errMemory = errors.New("treaty:memory")
)

// maxCollected bounds what one aggregate keeps: 160 MB.
const maxCollected = 10_000_000

type args = []driver.Value

// newDriver is a driver of this package's own, so that its functions are on no other connection of the process.
func newDriver() (*sqlite.Driver, error) {
	d := &sqlite.Driver{}
	scalar := func(name string, n int32, f func(args) (driver.Value, error)) error {
		return d.RegisterDeterministicScalarFunction(name, n, func(_ *sqlite.FunctionContext, a args) (driver.Value, error) {
			for _, v := range a {
				if v == nil {
					return nil, nil
				}
			}
			return f(a)
		})
	}
	collect := func(name string, n int32, final func([]driver.Value, args) (driver.Value, error)) error {
		return d.RegisterFunction(name, &sqlite.FunctionImpl{NArgs: n, Deterministic: true, MakeAggregate: func(sqlite.FunctionContext) (sqlite.AggregateFunction, error) {
			return &collector{final: final}, nil
		}})
	}
	return d, errors.Join(
		scalar("treaty_text", 1, as[string]), scalar("treaty_integer", 1, as[int64]),
		scalar("treaty_double", 1, toDouble), scalar("treaty_boolean", 1, toBoolean), scalar("treaty_decimal", 3, toDecimal),
		scalar("treaty_date", 1, parsed(days)), scalar("treaty_timestamp", 1, parsed(micros)), scalar("treaty_instant", 1, parsed(instant)),
		scalar("treaty_prefix", 2, func(a args) (driver.Value, error) {
			x, ok1 := a[0].(string)
			p, ok2 := a[1].(string)
			if !ok1 || !ok2 {
				return nil, errValue
			}
			return strings.HasPrefix(x, p), nil
		}),
		scalar("treaty_trunc_time", 2, func(a args) (driver.Value, error) {
			unit, ok1 := a[0].(string)
			us, ok2 := a[1].(int64)
			if !ok1 || !ok2 {
				return nil, errValue
			}
			return truncate(unit, us)
		}),
		scalar("treaty_trunc_date", 2, func(a args) (driver.Value, error) {
			unit, ok1 := a[0].(string)
			n, ok2 := a[1].(int64)
			if !ok1 || !ok2 {
				return nil, errValue
			}
			us, err := truncate(unit, n*int64(day))
			return floor(us, int64(day)), err
		}),
		d.RegisterFunction("treaty_sum", &sqlite.FunctionImpl{NArgs: 1, Deterministic: true, MakeAggregate: func(sqlite.FunctionContext) (sqlite.AggregateFunction, error) {
			return &exactSum{}, nil
		}}),
		collect("treaty_dsum", 1, func(values []driver.Value, _ args) (driver.Value, error) {
			sum := 0.0
			for _, v := range values {
				x, ok := v.(float64)
				if !ok {
					return nil, errValue
				}
				sum += x
			}
			return finite(sum)
		}),
		collect("treaty_quantile", 3, func(values []driver.Value, rest args) (driver.Value, error) {
			p, _ := rest[0].(string)
			i, err := place(p, int64(len(values)))
			if err != nil {
				return nil, err
			}
			if rest[1] == int64(1) {
				i = int64(len(values)) + 1 - i
			}
			return values[i-1], nil
		}),
		collect("treaty_stddev", 2, stddev),
	)
}

// as passes values of one type on and refuses all others: a column of SQLite can hold anything.
func as[T any](a args) (driver.Value, error) {
	v, ok := a[0].(T)
	if !ok {
		return nil, errValue
	}
	return v, nil
}

func toDouble(a args) (driver.Value, error) {
	switch v := a[0].(type) {
	case float64:
		return v, nil
	case int64:
		return float64(v), nil
	}
	return nil, errValue
}

func toBoolean(a args) (driver.Value, error) {
	if v, ok := a[0].(int64); ok && (v == 0 || v == 1) {
		return v, nil
	}
	return nil, errValue
}

// toDecimal takes a whole number or a text. A floating-point number is refused: what was meant is lost already.
func toDecimal(a args) (driver.Value, error) {
	precision, ok1 := a[1].(int64)
	scale, ok2 := a[2].(int64)
	if !ok1 || !ok2 {
		return nil, errValue
	}
	var u int64
	switch v := a[0].(type) {
	case int64:
		limit := int64(math.Pow10(MaxPrecision - int(scale)))
		if v >= limit || v <= -limit {
			return nil, errValue
		}
		u = v * int64(math.Pow10(int(scale)))
	case string:
		var err error
		if u, err = units(v, int(scale)); err != nil {
			return nil, err
		}
	default:
		return nil, errValue
	}
	if limit := int64(math.Pow10(int(precision))); u >= limit || u <= -limit {
		return nil, errValue
	}
	return u, nil
}

func parsed(parse func(string) (int64, error)) func(args) (driver.Value, error) {
	return func(a args) (driver.Value, error) {
		s, ok := a[0].(string)
		if !ok {
			return nil, errValue
		}
		return parse(s)
	}
}

func finite(x float64) (driver.Value, error) {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return nil, errRange
	}
	return x, nil
}

// stddev is the sample's, by Welford's recurrence over the ascending values.
func stddev(values []driver.Value, rest args) (driver.Value, error) {
	if len(values) < 2 {
		return nil, nil
	}
	scale, _ := rest[0].(int64)
	unit := math.Pow10(int(scale))
	mean, m2 := 0.0, 0.0
	for i, v := range values {
		x, ok := v.(float64)
		if n, isInt := v.(int64); isInt {
			x, ok = float64(n)/unit, true
		}
		if !ok {
			return nil, errValue
		}
		delta := x - mean
		mean += delta / float64(i+1)
		m2 += delta * (x - mean)
	}
	return finite(math.Sqrt(m2 / float64(len(values)-1)))
}

// exactSum adds integers of any size; what does not fit 64 bits at the end is out of range.
type exactSum struct {
	sum  *big.Int
	term big.Int
}

func (s *exactSum) Step(_ *sqlite.FunctionContext, a []driver.Value) error {
	if a[0] == nil {
		return nil
	}
	v, ok := a[0].(int64)
	if !ok {
		return errValue
	}
	if s.sum == nil {
		s.sum = new(big.Int)
	}
	s.sum.Add(s.sum, s.term.SetInt64(v))
	return nil
}

func (s *exactSum) WindowInverse(*sqlite.FunctionContext, []driver.Value) error { return errValue }

func (s *exactSum) WindowValue(*sqlite.FunctionContext) (driver.Value, error) {
	switch {
	case s.sum == nil:
		return nil, nil
	case !s.sum.IsInt64():
		return nil, errRange
	}
	return s.sum.Int64(), nil
}

func (s *exactSum) Final(*sqlite.FunctionContext) {}

// collector keeps a group's values and gives them, in ascending order, to a function.
type collector struct {
	values []driver.Value
	rest   []driver.Value
	final  func([]driver.Value, args) (driver.Value, error)
}

func (c *collector) Step(_ *sqlite.FunctionContext, a []driver.Value) error {
	if a[0] == nil {
		return nil
	}
	if len(c.values) >= maxCollected {
		return errMemory
	}
	if c.rest == nil {
		c.rest = slices.Clone(a[1:])
	}
	c.values = append(c.values, a[0])
	return nil
}

func (c *collector) WindowInverse(*sqlite.FunctionContext, []driver.Value) error { return errValue }

func (c *collector) WindowValue(*sqlite.FunctionContext) (driver.Value, error) {
	if len(c.values) == 0 {
		return nil, nil
	}
	slices.SortFunc(c.values, compare)
	return c.final(c.values, c.rest)
}

func (c *collector) Final(*sqlite.FunctionContext) {}

// compare orders values of one column, which have one type.
func compare(a, b driver.Value) int {
	switch x := a.(type) {
	case int64:
		if y, ok := b.(int64); ok {
			return cmp.Compare(x, y)
		}
	case float64:
		if y, ok := b.(float64); ok {
			return cmp.Compare(x, y)
		}
	case string:
		if y, ok := b.(string); ok {
			return cmp.Compare(x, y)
		}
	}
	return 0
}
