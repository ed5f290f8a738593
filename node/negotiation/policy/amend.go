// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"slices"

	"github.com/treaty-node/treaty/node/contract"
)

// Amending is the needs for a contract that replaces another one; zero: none. Every ask then names it, where the version has a word for that.
func (n *Needs) Amending(old contract.Reference) *Needs {
	out := *n
	out.amends = old
	out.Alternatives = slices.Clone(n.Alternatives)
	for i := range out.Alternatives {
		out.Alternatives[i].amends = old
	}
	return &out
}

// NeedsFor is a needs file that asks for the terms of a contract again, no more and, for what has a number, no less. A column whose
// uses the contract narrows is asked for as optional: how its class is granted is the vendor's to say.
func NeedsFor(s contract.Scope, rationale string) ([]byte, error) {
	type object = map[string]any
	read := s.Readable()
	usual := usesWithoutRule()
	var required, optional []string
	for _, name := range s.Columns {
		if g, _ := s.Grant(name); covers(g.Uses, usual) {
			required = append(required, name)
		} else {
			optional = append(optional, name)
		}
	}
	columns := object{}
	if len(required) > 0 {
		columns["required"] = required
	}
	if len(optional) > 0 {
		columns["optional"] = optional
	}
	exactly := func(n int64) object { return object{"wanted": n, "minimum": n} }
	out := object{
		"version": 1, "dataset": s.Dataset, "columns": columns, "operations": s.Operations, "purpose": s.Purpose,
		"retention_days": exactly(int64(s.RetentionDays)), "call_budget": exactly(s.CallBudget), "max_min_group_size": s.MinGroupSize,
		"row_filters": "refuse",
	}
	if len(s.RowFilter) > 0 {
		out["row_filter"] = s.RowFilter
	}
	if !s.Rate.IsZero() {
		out["min_rate"] = s.Rate
	}
	if !s.Rows.IsZero() {
		out["read"], out["row_budget"] = read, exactly(s.Rows.RowBudget)
	}
	if s.RetentionStatement != "" {
		out["retention_statements"] = []string{s.RetentionStatement}
	}
	if s.Noise != nil {
		out["noise"] = object{"min_epsilon": json.Number(s.Noise.EpsilonPerQuery)}
	}
	if rationale != "" {
		out["rationale"] = rationale
	}
	return json.Marshal(out) // JSON is YAML
}
