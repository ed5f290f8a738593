// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"fmt"

	"github.com/treaty-node/treaty/node/cedar"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataset"
)

// asking is who asks under a contract, for policies: by its line, of which the contract names one DID.
func asking(caller string, c *contract.Contract) cedar.Company {
	return cedar.Company{DID: caller, Domain: cedar.Domain(caller), Lineage: []string{c.Parties.Buyer, caller}}
}

func termsOf(c *contract.Contract) cedar.Terms {
	return cedar.Terms{Purpose: c.Purpose, RetentionDays: c.RetentionDays, MinGroupSize: c.MinGroupSize}
}

func classesOf(d dataset.Dataset) func(column string) string {
	return func(name string) string { return d.Columns[name].Class }
}

// forbids holds every use of a column against the ceiling's policies, if it has any: "" when none is denied.
func (c *Ceiling) forbids(d dataset.Dataset, req *contract.Request, granted *contract.Contract) string {
	if c.Cedar == nil {
		return ""
	}
	use, r := c.Cedar.Request(asking(req.Caller, granted), req, &granted.Scope, classesOf(d), termsOf(granted))
	if r.Allowed {
		return ""
	}
	if use.Column == "" {
		return "rows may not be counted at this data plane, because no column may be: " + r.Why()
	}
	return fmt.Sprintf("column %s may not be used for %s at this data plane: %s", contract.Echo(use.Column), use.Use, r.Why())
}

// useless says whether the ceiling's policies leave a buyer no use of a column.
func (c *Ceiling) useless(d dataset.Dataset, name string, granted *contract.Contract) bool {
	if c.Cedar == nil {
		return false
	}
	who, col := asking(granted.Parties.Buyer, granted), cedar.Column{Dataset: granted.Dataset, Name: name, Class: d.Columns[name].Class}
	for _, use := range append([]string{cedar.Read, cedar.Filter, cedar.Group}, granted.Operations...) {
		if c.Cedar.Decide(who, use, col, termsOf(granted)).Allowed {
			return false
		}
	}
	return true
}

// Step is one question that is asked about a call, and its answer.
type Step struct {
	Stage   string `json:"stage"` // contract, ceiling or cedar
	Allowed bool   `json:"allowed"`
	Rule    string `json:"rule"` // refusal code, the ceiling's word, or cedar:<policy id>
	Text    string `json:"text"`
}

// Explain answers what this ceiling says about a request under a contract, use by use, whatever the contract itself says.
func (c *Ceiling) Explain(sets dataset.Config, req *contract.Request, granted *contract.Contract) []Step {
	d := sets[req.Dataset]
	steps := []Step{}
	if req.Rows() && !c.AllowRows {
		steps = append(steps, Step{Stage: "ceiling", Rule: "ceiling", Text: "rows never leave this data plane"})
	}
	uses := req.ColumnUses()
	for _, f := range granted.RowFilter {
		uses = append(uses, contract.ColumnUse{Use: cedar.Filter, Column: f.Column})
	}
	seen := map[contract.ColumnUse]bool{}
	for _, u := range uses {
		if seen[u] {
			continue
		}
		seen[u] = true
		what := u.Use + " of " + contract.Echo(u.Column)
		if why := c.why(d, req.Dataset, u.Column); why != "" {
			steps = append(steps, Step{Stage: "ceiling", Rule: "ceiling", Text: what + ": " + why})
			continue
		}
		if c.Cedar != nil {
			r := c.Cedar.Decide(asking(req.Caller, granted), u.Use, cedar.Column{Dataset: req.Dataset, Name: u.Column, Class: d.Columns[u.Column].Class}, termsOf(granted))
			steps = append(steps, Step{Stage: "cedar", Allowed: r.Allowed, Rule: r.Name(), Text: what + ": " + r.Why()})
		}
	}
	if c.Cedar != nil && cedar.CountsRows(req) {
		r := c.Cedar.CountRows(asking(req.Caller, granted), &granted.Scope, classesOf(d), termsOf(granted))
		steps = append(steps, Step{Stage: "cedar", Allowed: r.Allowed, Rule: r.Name(), Text: "count of rows: " + r.Why()})
	}
	if len(steps) == 0 || !anyDenied(steps) {
		steps = append(steps, Step{Stage: "ceiling", Allowed: true, Rule: "ceiling", Text: fmt.Sprintf("nothing is kept back; groups of at least %d, at most %d calls", c.minGroup(granted.MinGroupSize), c.budget(granted.CallBudget))})
	}
	return steps
}

func anyDenied(steps []Step) bool {
	for _, s := range steps {
		if !s.Allowed {
			return true
		}
	}
	return false
}
