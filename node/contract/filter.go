// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"strconv"
	"strings"
)

// Filter is a tree of conditions: exactly one of And, Or and Not, or a condition
// written as [Condition] is. At most MaxFilterDepth levels, and together with
// the request's list of filters at most MaxConditions conditions.
//
// A condition on a null is neither true nor false, and so is its negation; a
// row counts only where the whole tree is true (SQL's three-valued logic).
type Filter struct {
	And    []Filter `json:"and,omitempty"`
	Or     []Filter `json:"or,omitempty"`
	Not    *Filter  `json:"not,omitempty"`
	Column string   `json:"column,omitempty"`
	Op     string   `json:"op,omitempty"`
	Value  Value    `json:"value,omitzero"`
	Values []Value  `json:"values,omitempty"`
}

// Where makes a leaf of a condition.
func Where(c Condition) Filter {
	return Filter{Column: c.Column, Op: c.Op, Value: c.Value, Values: c.Values}
}

// Condition is the condition of a leaf. It shares Values.
func (f *Filter) Condition() Condition {
	return Condition{Column: f.Column, Op: f.Op, Value: f.Value, Values: f.Values}
}

// Leaf says whether f is a condition.
func (f *Filter) Leaf() bool { return f.And == nil && f.Or == nil && f.Not == nil }

// Conditions calls yield for every condition of the tree, from left to right,
// until it returns false. A nil tree has none.
func (f *Filter) Conditions(yield func(Condition) bool) bool {
	if f == nil {
		return true
	}
	for _, list := range [][]Filter{f.And, f.Or} {
		for i := range list {
			if !list[i].Conditions(yield) {
				return false
			}
		}
	}
	if f.Not != nil {
		return f.Not.Conditions(yield)
	}
	return !f.Leaf() || yield(f.Condition())
}

// String is for people: bounded, and cut where it is long.
func (f *Filter) String() string {
	var b strings.Builder
	f.write(&b, MaxFilterDepth)
	if s := b.String(); len(s) > MaxText {
		return strings.ToValidUTF8(s[:MaxText-len("…")], "") + "…"
	}
	return b.String()
}

func (f *Filter) write(b *strings.Builder, depth int) {
	switch {
	case depth == 0 || b.Len() > MaxText:
		b.WriteString("…")
	case f.Leaf():
		b.WriteString(f.Condition().String())
	case f.Not != nil:
		b.WriteString("not (")
		f.Not.write(b, depth-1)
		b.WriteString(")")
	default:
		list, word := f.And, " and "
		if f.Or != nil {
			list, word = f.Or, " or "
		}
		b.WriteString("(")
		for i := range list {
			if i > 0 {
				b.WriteString(word)
			}
			list[i].write(b, depth-1)
		}
		b.WriteString(")")
	}
}

// shape checks form and bounds, and counts conditions. It does not allocate
// when it returns "".
func (f *Filter) shape(depth int, leaves *int) string {
	if depth > MaxFilterDepth {
		return "where has more than " + strconv.Itoa(MaxFilterDepth) + " levels"
	}
	forms := 0
	for _, there := range [...]bool{f.And != nil, f.Or != nil, f.Not != nil, f.Column != "" || f.Op != "" || !f.Value.IsZero() || f.Values != nil} {
		if there {
			forms++
		}
	}
	if forms != 1 || f.And != nil && len(f.And) == 0 || f.Or != nil && len(f.Or) == 0 {
		return "where wants one of and, or (lists that are not empty), not, or a condition"
	}
	if f.Leaf() {
		if *leaves++; *leaves > MaxConditions {
			return "more than " + strconv.Itoa(MaxConditions) + " filters"
		}
		c := f.Condition()
		if err := c.checkForm(); err != nil {
			return "the filter on " + Echo(f.Column) + ": " + err.Error()
		}
		return ""
	}
	if f.Not != nil {
		return f.Not.shape(depth+1, leaves)
	}
	list := f.And
	if f.Or != nil {
		list = f.Or
	}
	for i := range list {
		if why := list[i].shape(depth+1, leaves); why != "" {
			return why
		}
	}
	return ""
}

// resolve looks up the columns of the conditions, in the order of fits.
func (f *Filter) resolve(u *columns, schema *Schema) (unknown string, ok bool) {
	switch {
	case f == nil:
		return "", true
	case f.Leaf():
		return f.Column, u.add(f.Column, useFilter, schema)
	case f.Not != nil:
		return f.Not.resolve(u, schema)
	}
	for i := range f.And {
		if name, ok := f.And[i].resolve(u, schema); !ok {
			return name, false
		}
	}
	for i := range f.Or {
		if name, ok := f.Or[i].resolve(u, schema); !ok {
			return name, false
		}
	}
	return "", true
}

// fits checks the conditions against the types of their columns, whose places
// begin at *next.
func (f *Filter) fits(schema *Schema, used *columns, next *int) string {
	switch {
	case f == nil:
		return ""
	case f.Leaf():
		c := f.Condition()
		why := c.checkType(schema.Columns[used.at[*next]].Type)
		*next++
		if why != nil {
			return "the filter on " + Echo(f.Column) + ": " + why.Error()
		}
		return ""
	case f.Not != nil:
		return f.Not.fits(schema, used, next)
	}
	for i := range f.And {
		if why := f.And[i].fits(schema, used, next); why != "" {
			return why
		}
	}
	for i := range f.Or {
		if why := f.Or[i].fits(schema, used, next); why != "" {
			return why
		}
	}
	return ""
}
