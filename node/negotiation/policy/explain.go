// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strconv"

	"github.com/treaty-node/treaty/node/contract"
)

// Diff lists the differences between two scopes, without reasons: What, Asked
// and Offered as in a Removal. An offered side that is empty was removed, an
// asked side that is empty was added.
func Diff(asked, offered contract.Scope) []contract.Removal {
	var out []contract.Removal
	add := func(what, a, o string) {
		if a != o {
			out = append(out, contract.Removal{What: what, Asked: a, Offered: o})
		}
	}
	lists := func(what string, a, o []string) {
		for _, s := range a {
			if !slices.Contains(o, s) {
				add(what, s, "")
			}
		}
		for _, s := range o {
			if !slices.Contains(a, s) {
				add(what, "", s)
			}
		}
	}
	add("dataset", asked.Dataset, offered.Dataset)
	lists("column", asked.Columns, offered.Columns)
	lists("operation", asked.Operations, offered.Operations)
	for _, c := range asked.RowFilter {
		if !offered.HasCondition(c) {
			add("rowFilter", c.String(), "")
		}
	}
	for _, c := range offered.RowFilter {
		if !asked.HasCondition(c) {
			add("rowFilter", "", c.String())
		}
	}
	add("purpose", asked.Purpose, offered.Purpose)
	add("retentionDays", strconv.Itoa(asked.RetentionDays), strconv.Itoa(offered.RetentionDays))
	add("minGroupSize", strconv.Itoa(asked.MinGroupSize), strconv.Itoa(offered.MinGroupSize))
	add("callBudget", strconv.FormatInt(asked.CallBudget, 10), strconv.FormatInt(offered.CallBudget, 10))
	diffTerms(&asked, &offered, add)
	return out
}

// Explain renders the differences between what was asked and what is offered,
// one line each, with the rule and the reason where removed has them. The
// result is empty when nothing differs. The lines are about the two scopes; a
// reason that explains no difference is not shown.
func Explain(asked, offered contract.Scope, removed []contract.Removal) []string {
	diffs := Diff(asked, offered)
	lines := make([]string, 0, len(diffs))
	for _, d := range diffs {
		for _, r := range removed {
			if r.What == d.What && r.Asked == d.Asked && r.Offered == d.Offered {
				d = r
				break
			}
		}
		lines = append(lines, RemovalLine(d))
	}
	return lines
}

// RemovalLine renders one difference: printable, one line.
func RemovalLine(r contract.Removal) string {
	var s string
	switch {
	case r.What == "rowFilter" && r.Asked == "":
		s = "rows: only where " + plain(r.Offered)
	case r.What == "rowFilter":
		s = "rows: the condition " + plain(r.Asked) + " is gone"
	case r.Offered == "":
		s = r.What + " " + contract.Echo(r.Asked) + ": removed"
	case r.Asked == "":
		s = r.What + " " + contract.Echo(r.Offered) + ": added, not asked for"
	default:
		s = r.What + ": asked " + plain(r.Asked) + ", offered " + plain(r.Offered)
	}
	if r.Why != "" {
		s += " (" + plain(r.Why)
		if r.Rule != "" {
			s += "; rule " + plain(r.Rule)
		}
		s += ")"
	}
	return s
}

// plain leaves a printable text as it is and quotes any other: removals come
// from the other side.
func plain(s string) string {
	if isPrintable(s) && len(s) <= contract.MaxText {
		return s
	}
	return contract.Echo(s)
}

func isPrintable(s string) bool {
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return false
		}
	}
	return true
}
