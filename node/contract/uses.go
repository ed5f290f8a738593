// SPDX-License-Identifier: Apache-2.0

package contract

// ColumnUse is what a request does with a column: UseRead, UseFilter, UseGroup,
// or the operation of an aggregate.
type ColumnUse struct{ Use, Column string }

// ColumnUses lists every use of a column, in the order selected columns,
// aggregates, groups, filters. An order and having name only what is selected,
// grouped or computed, and are no use of their own. Whoever holds requests against rules about columns asks here, so that no
// part of a request is overlooked.
func (r *Request) ColumnUses() []ColumnUse {
	out := make([]ColumnUse, 0, 16)
	add := func(use, column string) {
		if column != "" { // a count of rows
			out = append(out, ColumnUse{use, column})
		}
	}
	for _, c := range r.Select {
		add(UseRead, c)
	}
	for i := range r.Aggregates {
		add(r.Aggregates[i].Op, r.Aggregates[i].Column)
	}
	for _, g := range r.GroupBy {
		add(UseGroup, g)
	}
	for i := range r.GroupByDate {
		add(UseGroup, r.GroupByDate[i].Column)
	}
	for i := range r.Filters {
		add(UseFilter, r.Filters[i].Column)
	}
	r.Where.Conditions(func(c Condition) bool {
		add(UseFilter, c.Column)
		return true
	})
	return out
}
