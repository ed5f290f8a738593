// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"slices"

	"github.com/treaty-node/treaty/node/contract"
)

// Amending is the needs for a contract that replaces another one; zero: none. Every ask then names it, where the version has a word for
// that, and the new one must begin at once: the old one ends with it. Where there are terms, exactly they are asked for, and nothing
// else is taken.
func (n *Needs) Amending(old contract.Reference, terms *contract.Scope) *Needs {
	out := *n
	out.Alternatives = slices.Clone(n.Alternatives)
	amend := func(n *Needs) {
		if n.amends = old; !old.IsZero() {
			n.StartWithin = 0
		}
	}
	for i := range out.Alternatives {
		amend(&out.Alternatives[i])
	}
	amend(&out)
	if terms != nil {
		out.terms, out.Alternatives = terms, nil
	}
	return &out
}

// NeedsFor is a needs file that asks for the terms of a contract again, as far as such a file has words for them; see
// [Needs.Amending].
func NeedsFor(s contract.Scope, rationale string) ([]byte, error) {
	type object = map[string]any
	exactly := func(n int64) object { return object{"wanted": n, "minimum": n} }
	out := object{
		"version": 1, "dataset": s.Dataset, "columns": s.Columns, "operations": s.Operations, "purpose": s.Purpose,
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
		out["read"], out["row_budget"] = s.Readable(), exactly(s.Rows.RowBudget)
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
