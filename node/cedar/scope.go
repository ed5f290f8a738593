// SPDX-License-Identifier: Apache-2.0

package cedar

import (
	"slices"
	"strings"

	"github.com/treaty-node/treaty/node/contract"
)

// Question is a scope that would be granted to a company.
type Question struct {
	Who     Company
	Schema  *contract.Schema  // of the scope's dataset
	Classes map[string]string // of its columns
}

// Narrow takes out of a scope what the policies do not permit, and says what, with the policy that decided. Per-use grants lose
// single uses and operations. Where the scope has none, a column stands for every use: an operation goes where no column that
// it fits may be used with it, and a column goes where any remaining use of it is denied. scope is not changed.
func (p *Policy) Narrow(scope contract.Scope, q Question) (contract.Scope, []contract.Removal) {
	if p == nil {
		return scope, nil
	}
	s := scope.Clone()
	n := &narrowing{p: p, q: q, s: &s, terms: Terms{s.Purpose, s.RetentionDays, s.MinGroupSize}}
	n.operations()
	s.Columns = slices.DeleteFunc(s.Columns, n.column)
	s.ColumnGrants = slices.DeleteFunc(s.ColumnGrants, func(g contract.ColumnGrant) bool { return !slices.Contains(s.Columns, g.Column) })
	return s, n.removed
}

type narrowing struct {
	p       *Policy
	q       Question
	s       *contract.Scope
	terms   Terms
	removed []contract.Removal
}

func (n *narrowing) ask(use, column string) Ruling {
	return n.p.Decide(n.q.Who, use, Column{n.s.Dataset, column, n.q.Classes[column]}, n.terms)
}

func (n *narrowing) remove(what, asked string, r Ruling, why string) {
	n.removed = append(n.removed, contract.Removal{What: what, Asked: asked, Rule: r.Name(), Why: why})
}

// fits says whether an operation can be applied to a column at all.
func (n *narrowing) fits(op, column string) bool {
	c, ok := n.q.Schema.Column(column)
	if !ok {
		return false
	}
	t, ok := contract.ParseType(c.Type)
	return ok && contract.OperationFits(op, t)
}

// operations takes away what no column may be used with.
func (n *narrowing) operations() {
	n.s.Operations = slices.DeleteFunc(n.s.Operations, func(op string) bool {
		var last Ruling
		for _, column := range n.s.Columns {
			if n.fits(op, column) {
				if last = n.ask(op, column); last.Allowed {
					return false
				}
			}
		}
		if last == (Ruling{}) && !slices.ContainsFunc(n.s.Columns, func(c string) bool { return n.fits(op, c) }) {
			return false // no column to ask about: what it cannot be applied to it does not reveal
		}
		n.remove("operation", op, last, "no column may be used with it")
		return true
	})
	for i := range n.s.ColumnGrants {
		g := &n.s.ColumnGrants[i]
		g.Operations = slices.DeleteFunc(g.Operations, func(op string) bool { return !slices.Contains(n.s.Operations, op) })
	}
}

// column narrows one column and says whether it goes.
func (n *narrowing) column(name string) bool {
	if i := slices.IndexFunc(n.s.ColumnGrants, func(g contract.ColumnGrant) bool { return g.Column == name }); i >= 0 {
		return n.grant(&n.s.ColumnGrants[i])
	}
	g, _ := n.s.Grant(name)
	for _, use := range append([]string{Filter, Group}, g.Operations...) {
		if use != Filter && use != Group && !n.fits(use, name) {
			continue
		}
		if r := n.ask(use, name); !r.Allowed {
			n.remove("column", name, r, "the column may not be used for "+use)
			return true
		}
	}
	return false
}

// grant narrows a column's own grant and says whether nothing remains of it.
func (n *narrowing) grant(g *contract.ColumnGrant) bool {
	var last Ruling
	denied := []string{}
	g.Operations = slices.DeleteFunc(g.Operations, func(op string) bool {
		r := n.ask(op, g.Column)
		if !r.Allowed {
			last, denied = r, append(denied, op)
		}
		return !r.Allowed
	})
	g.Uses = slices.DeleteFunc(g.Uses, func(use string) bool {
		if use == contract.UseAggregate {
			return len(g.Operations) == 0
		}
		r := n.ask(use, g.Column)
		if !r.Allowed {
			last, denied = r, append(denied, use)
		}
		return !r.Allowed
	})
	switch {
	case len(g.Uses) == 0:
		n.remove("column", g.Column, last, "the column may not be used for "+strings.Join(denied, ", "))
		return true
	case len(denied) > 0:
		n.removed = append(n.removed, contract.Removal{
			What: "column", Asked: g.Column, Offered: g.Column, Rule: last.Name(), Why: "the column may not be used for " + strings.Join(denied, ", "),
		})
	}
	return false
}

// CountRows rules on a count of rows, which uses no column: it is permitted where one of the columns that are granted may be
// counted. Who may count none of them may not count the rows that they are in.
func (p *Policy) CountRows(who Company, granted *contract.Scope, classes func(column string) string, t Terms) (last Ruling) {
	for _, name := range granted.Columns {
		if last = p.Decide(who, contract.OpCount, Column{granted.Dataset, name, classes(name)}, t); last.Allowed {
			return last
		}
	}
	return last
}

// CountsRows says whether a request counts rows rather than values of a column.
func CountsRows(req *contract.Request) bool {
	return slices.ContainsFunc(req.Aggregates, func(a contract.Aggregate) bool { return a.Column == "" })
}

// Request rules on every use of a column by a request under a scope that was granted, and by its row filter: what that lets
// through tells about the column. It stops at the first that is denied, and returns that use; one without a column is a count
// of rows.
func (p *Policy) Request(who Company, req *contract.Request, granted *contract.Scope, classes func(column string) string, t Terms) (contract.ColumnUse, Ruling) {
	last := Ruling{Allowed: true}
	if p == nil {
		return contract.ColumnUse{}, last
	}
	if CountsRows(req) {
		if r := p.CountRows(who, granted, classes, t); !r.Allowed {
			return contract.ColumnUse{Use: contract.OpCount}, r
		}
	}
	uses := req.ColumnUses()
	for _, f := range granted.RowFilter {
		uses = append(uses, contract.ColumnUse{Use: Filter, Column: f.Column})
	}
	for i, u := range uses {
		if slices.Contains(uses[:i], u) {
			continue
		}
		if last = p.Decide(who, u.Use, Column{req.Dataset, u.Column, classes(u.Column)}, t); !last.Allowed {
			return u, last
		}
	}
	return contract.ColumnUse{}, last
}
