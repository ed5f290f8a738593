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

// NeedsFor is a needs file about the terms of a contract, for who keeps and reads needs; what is asked for and taken are the terms
// themselves, see [Needs.Amending].
func NeedsFor(s contract.Scope, rationale string) ([]byte, error) {
	type object = map[string]any
	exactly := func(n int64) object { return object{"wanted": n, "minimum": n} }
	out := object{
		"version": 1, "dataset": s.Dataset, "columns": s.Columns, "operations": s.Operations, "purpose": s.Purpose,
		"retention_days": exactly(int64(s.RetentionDays)), "call_budget": exactly(s.CallBudget),
	}
	if rationale != "" {
		out["rationale"] = rationale
	}
	return json.Marshal(out) // JSON is YAML
}
