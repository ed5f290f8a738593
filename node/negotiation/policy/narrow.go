// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/internal/text"
)

// Check says whether code alone refuses the ask, before any decider sees it: a
// malformed ask, an unknown dataset or column, a dataset not on offer, a purpose
// or a row filter that cannot be granted. Unknown names come first (C4).
func (v *Vendor) Check(ask contract.Scope, t Terms) (refusal Outcome, refused bool) {
	if t.Schema == nil || t.Schema.Dataset != ask.Dataset {
		return reject(CodeUnknownDataset, "there is no dataset "+contract.Echo(ask.Dataset)+" here"), true
	}
	if name, found := ask.UnknownColumn(t.Schema); found {
		return reject(CodeUnknownColumn, "column "+contract.Echo(name)+" is not in the published schema of dataset "+contract.Echo(ask.Dataset)), true
	}
	if err := ask.Validate(); err != nil {
		return reject(CodeMalformed, err.Error()), true
	}
	r, ok := v.Datasets[ask.Dataset]
	if !ok {
		return reject(CodeNotOffered, "dataset "+contract.Echo(ask.Dataset)+" is published but not on offer"), true
	}
	if !r.AnyPurpose && !slices.Contains(r.Purposes, ask.Purpose) {
		return reject(CodePurpose, "the purpose "+contract.Echo(ask.Purpose)+" is not allowed on dataset "+contract.Echo(ask.Dataset)+"; allowed are "+quoted(r.Purposes)), true
	}
	if !ask.Amends.IsZero() && ask.Amends != t.Replaces {
		return reject(CodeNotReplaceable, "no contract "+contract.Echo(ask.Amends.ID)+" with this digest is in force between us, so that nothing can replace it"), true
	}
	own := contract.Scope{RowFilter: r.RowFilter}
	for i := range ask.RowFilter {
		if own.HasCondition(ask.RowFilter[i]) {
			continue // the vendor's own, as an earlier offer showed it
		}
		if why := r.conditionRefused(ask.RowFilter[i], t); why != "" {
			// Leaving a condition out would grant more rows than were asked for.
			return reject(CodeRowFilter, "the row filter on "+contract.Echo(ask.RowFilter[i].Column)+" cannot be granted: "+why), true
		}
	}
	return Outcome{}, false
}

// Narrow turns a draft into an offer. The draft is what a decider, any decider,
// would grant; the offer grants nothing that is not in the ask, in the draft and
// within the policy, and keeps the ask's purpose and row filter. What cannot be
// made an offer is rejected.
func (v *Vendor) Narrow(ask, draft contract.Scope, t Terms) Outcome {
	if refusal, refused := v.Check(ask, t); refused {
		return refusal
	}
	n := narrowing{rules: v.Datasets[ask.Dataset], ask: ask, draft: draft, terms: t, removed: []contract.Removal{}}
	granted := contract.Scope{Dataset: ask.Dataset, Purpose: ask.Purpose}
	granted.Columns = n.columns()
	granted.Operations = n.operations()
	if why := useless(granted, t.Schema); why != "" {
		return n.reject(CodeNothingLeft, why)
	}
	filter, why := n.rowFilter()
	if why != "" {
		return n.reject(CodeDeciderFailed, why)
	}
	granted.RowFilter = filter
	granted.RetentionDays = int(n.cap("retentionDays", "retention_days", int64(ask.RetentionDays), int64(draft.RetentionDays), int64(n.rules.RetentionDays), 0))
	granted.MinGroupSize = n.groupSize()
	granted.CallBudget = n.cap("callBudget", "call_budget", ask.CallBudget, draft.CallBudget, n.rules.CallBudget, 1)
	if why := n.laterTerms(&granted); why != "" {
		return n.reject(CodeNotOffered, why)
	}
	n.overrule(granted)
	return n.offer(granted)
}

// narrowing is one run of Narrow.
type narrowing struct {
	rules      Rules
	ask, draft contract.Scope
	terms      Terms
	removed    []contract.Removal
	overruled  []contract.Removal
}

func (n *narrowing) reject(code, why string) Outcome {
	lines := make([]string, 0, 8)
	for _, r := range n.removed {
		if len(lines) == cap(lines) {
			lines = append(lines, "and "+strconv.Itoa(len(n.removed)-len(lines))+" more")
			break
		}
		lines = append(lines, RemovalLine(r))
	}
	if len(lines) > 0 {
		why += ": " + strings.Join(lines, "; ")
	}
	out := reject(code, why)
	out.Overruled = n.overruled
	return out
}

func reject(code, reason string) Outcome { return Outcome{Code: code, Reason: clip(reason)} }

// clip keeps a reason within what a message may carry.
func clip(s string) string { return text.Clip(s, contract.MaxText) }

func (n *narrowing) remove(what, asked, offered, rule, why string) {
	n.removed = append(n.removed, contract.Removal{What: what, Asked: asked, Offered: offered, Rule: rule, Why: why})
}

// ruleDecider is the rule of what the draft left out and the policy would allow.
const ruleDecider = "decider"

func (n *narrowing) columns() []string {
	out := make([]string, 0, len(n.ask.Columns))
	for _, name := range n.ask.Columns {
		rule, why := n.rules.columnRefused(name, n.terms.Classes)
		if why == "" {
			rule, why = n.classRefused(name)
		}
		if why == "" && !slices.Contains(n.draft.Columns, name) {
			rule, why = ruleDecider, "the vendor does not offer it"
		}
		if why != "" {
			n.remove("column", name, "", rule, why)
			continue
		}
		out = append(out, name)
	}
	return out
}

// columnRefused says by which rule a column cannot be granted; "" if it can.
func (r *Rules) columnRefused(name string, classes map[string]string) (rule, why string) {
	class := classes[name]
	switch {
	case class == "":
		return "unclassified", "the column has no class, and such columns are never granted"
	case class == ClassPII || slices.Contains(r.Never, class):
		return "never", "columns of class " + contract.Echo(class) + " never leave"
	}
	return "", ""
}

func (n *narrowing) operations() []string {
	out := make([]string, 0, len(n.ask.Operations))
	for _, op := range n.ask.Operations {
		switch {
		case !slices.Contains(n.rules.Operations, op):
			n.remove("operation", op, "", "operations", "the operation is not allowed on this dataset")
		case n.rules.Noise != nil && !contract.Noisy(op):
			n.remove("operation", op, "", "noise", "the vendor adds noise, and this operation cannot be given any")
		case !slices.Contains(n.draft.Operations, op):
			n.remove("operation", op, "", ruleDecider, "the vendor does not offer it")
		default:
			out = append(out, op)
		}
	}
	return out
}

// useless says why a grant would help nobody; "" if it would.
func useless(s contract.Scope, schema *contract.Schema) string {
	switch {
	case len(s.Columns) == 0:
		return "no column remains"
	case len(s.Operations) == 0:
		return "no operation remains"
	}
	for _, name := range s.Columns {
		col, _ := schema.Column(name)
		t, ok := contract.ParseType(col.Type)
		for _, op := range s.Operations {
			if ok && contract.OperationFits(op, t) {
				return ""
			}
		}
	}
	return "none of the remaining operations can be applied to a remaining column"
}

// conditionRefused says why a condition cannot stand in a grant. A filter on a
// column that never leaves would be a way to ask about it.
func (r *Rules) conditionRefused(c contract.Condition, t Terms) string {
	var refused *contract.ConditionError
	if errors.As(contract.CheckCondition(t.Schema, c), &refused) {
		return refused.Why
	}
	_, why := r.columnRefused(c.Column, t.Classes)
	return why
}

// rowFilter is the ask's conditions, then the policy's, then the draft's own.
// The policy's may name any published column: the vendor limits itself by them.
func (n *narrowing) rowFilter() (filter []contract.Condition, why string) {
	s := contract.Scope{RowFilter: n.ask.RowFilter}.Clone()
	add := func(c contract.Condition, rule, reason string) {
		if !s.HasCondition(c) {
			s.RowFilter = append(s.RowFilter, c)
			n.remove("rowFilter", "", c.String(), rule, reason)
		}
	}
	for _, c := range n.rules.RowFilter {
		if err := contract.CheckCondition(n.terms.Schema, c); err != nil {
			return nil, "the policy's row filter does not fit the published schema"
		}
		add(c, "row_filter", "the vendor offers only these rows")
	}
	for _, c := range n.draft.RowFilter {
		if !s.HasCondition(c) && n.rules.conditionRefused(c, n.terms) != "" {
			// The decider wanted a restriction; without it the offer would be wider.
			return nil, "the vendor's decider wants a row filter that cannot be applied"
		}
		add(c, ruleDecider, "the vendor offers only these rows")
	}
	if len(s.RowFilter) > contract.MaxConditions {
		return nil, "the row filters together have more than " + strconv.Itoa(contract.MaxConditions) + " conditions"
	}
	return s.Clone().RowFilter, ""
}

// cap is the least of ask, draft and limit, at least low.
func (n *narrowing) cap(what, rule string, ask, draft, limit, low int64) int64 {
	draft = max(draft, low)
	got := min(ask, draft, limit)
	if got < ask {
		why := "the policy's limit is " + strconv.FormatInt(limit, 10)
		if draft < limit {
			rule, why = ruleDecider, "the vendor offers no more"
		}
		n.remove(what, strconv.FormatInt(ask, 10), strconv.FormatInt(got, 10), rule, why)
	}
	return got
}

// groupSize is the largest of ask, draft and floor.
func (n *narrowing) groupSize() int {
	draft := min(n.draft.MinGroupSize, contract.MaxMinGroupSize)
	got := max(n.ask.MinGroupSize, draft, n.rules.MinGroupSize)
	if got > n.ask.MinGroupSize {
		rule, why := "min_group_size", "groups of fewer than "+strconv.Itoa(n.rules.MinGroupSize)+" are not released"
		if draft > n.rules.MinGroupSize {
			rule, why = ruleDecider, "the vendor wants larger groups"
		}
		n.remove("minGroupSize", strconv.Itoa(n.ask.MinGroupSize), strconv.Itoa(got), rule, why)
	}
	return got
}

// overrule records what the draft would have granted beyond the result (C6).
func (n *narrowing) overrule(granted contract.Scope) {
	add := func(what, drafted, got, rule, why string) {
		if len(n.overruled) < contract.MaxRemovals {
			n.overruled = append(n.overruled, contract.Removal{What: what, Asked: drafted, Offered: got, Rule: rule, Why: why})
		}
	}
	for _, name := range n.draft.Columns {
		if slices.Contains(granted.Columns, name) {
			continue
		}
		if !slices.Contains(n.ask.Columns, name) {
			add("column", contract.Echo(name), "", "not_asked", "the buyer did not ask for it")
		} else if rule, why := n.rules.columnRefused(name, n.terms.Classes); why != "" {
			add("column", name, "", rule, why)
		}
	}
	for _, op := range n.draft.Operations {
		if slices.Contains(granted.Operations, op) {
			continue
		}
		if !slices.Contains(n.ask.Operations, op) {
			add("operation", contract.Echo(op), "", "not_asked", "the buyer did not ask for it")
		} else {
			add("operation", op, "", "operations", "the operation is not allowed on this dataset")
		}
	}
	for i := range n.ask.RowFilter {
		if c := n.ask.RowFilter[i]; !n.draft.HasCondition(c) {
			add("rowFilter", "", c.String(), "not_asked", "the buyer asked for these rows only")
		}
	}
	if n.draft.Purpose != granted.Purpose || n.draft.Dataset != granted.Dataset {
		add("purpose", contract.Echo(n.draft.Purpose), granted.Purpose, "not_asked", "an offer keeps the dataset and the purpose that were asked")
	}
	for _, f := range []struct {
		what       string
		draft, got int64
		wider      bool
	}{
		{"retentionDays", int64(n.draft.RetentionDays), int64(granted.RetentionDays), n.draft.RetentionDays > granted.RetentionDays},
		{"minGroupSize", int64(n.draft.MinGroupSize), int64(granted.MinGroupSize), n.draft.MinGroupSize < granted.MinGroupSize},
		{"callBudget", n.draft.CallBudget, granted.CallBudget, n.draft.CallBudget > granted.CallBudget},
	} {
		if f.wider {
			add(f.what, strconv.FormatInt(f.draft, 10), strconv.FormatInt(f.got, 10), "limits", "beyond what was asked or what the policy allows")
		}
	}
}

func (n *narrowing) offer(granted contract.Scope) Outcome {
	digest, err := n.terms.Schema.Digest()
	if err != nil {
		return n.reject(CodeDeciderFailed, "the published schema cannot be digested")
	}
	now := n.terms.Now.UTC().Truncate(time.Second)
	expires := now.Add(n.rules.OfferTTL)
	o := &contract.Offer{
		Type: contract.OfferType, Version: n.version(), Scope: granted,
		ValidFrom:  contract.FormatTime(now),
		ValidUntil: contract.FormatTime(now.AddDate(0, 0, n.rules.ValidityDays)),
		AcceptBy:   contract.FormatTime(expires.Add(n.rules.AcceptWithin)),
		ExpiresAt:  contract.FormatTime(expires),
		DataPlane:  n.terms.DataPlane, SchemaDigest: digest, Removed: n.removed,
	}
	// The last word: an offer that is not within the ask never leaves.
	if err := o.Validate(); err != nil {
		return n.reject(CodeDeciderFailed, "the offer would be invalid")
	}
	if !o.Scope.Within(&n.ask) {
		return n.reject(CodeDeciderFailed, "the offer would be wider than the ask")
	}
	return Outcome{Offer: o, Overruled: n.overruled}
}

// version is the offer's member: absent for version 1.
func (n *narrowing) version() int {
	if n.terms.Version > contract.Version1 {
		return n.terms.Version
	}
	return 0
}

// Reduce makes the offer of an outcome that grants only scope, which is narrower than what it
// granted, for the reasons given. What is left must still be of use.
func (o Outcome) Reduce(scope contract.Scope, removed []contract.Removal, schema *contract.Schema) Outcome {
	if o.Rejected() || len(removed) == 0 {
		return o
	}
	n := narrowing{removed: append(slices.Clone(o.Offer.Removed), removed...), overruled: o.Overruled}
	if why := useless(scope, schema); why != "" {
		return n.reject(CodeNothingLeft, why)
	}
	offer := *o.Offer
	offer.Scope, offer.Removed = scope, n.removed[:min(len(n.removed), contract.MaxRemovals)]
	if err := offer.Validate(); err != nil || !offer.Scope.Within(&o.Offer.Scope) {
		return n.reject(CodeDeciderFailed, "the offer would be invalid")
	}
	return Outcome{Offer: &offer, Overruled: o.Overruled}
}

func quoted(names []string) string {
	const shown = 10
	out := make([]string, 0, shown)
	for i, s := range names {
		if i == shown {
			out = append(out, "and "+strconv.Itoa(len(names)-shown)+" more")
			break
		}
		out = append(out, contract.Echo(s))
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}
