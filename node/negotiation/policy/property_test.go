// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/negotiation/policy"
)

var (
	columnNames = []string{"region", "order_id", "order_date", "order_value", "customer_name", "customer_email", "margin", "test_order"}
	classNames  = []string{"", "public", "internal", "commercial", "secret", "pii"}
	purposes    = []string{"report", "research", "resale"}

	// The draws below lean to what can be granted, or nearly every negotiation
	// would end at once.
	class   = rapid.OneOf(rapid.Just("public"), rapid.Just("commercial"), rapid.Just("public"), rapid.SampledFrom(classNames))
	usually = rapid.SampledFrom([]bool{true, true, true, false})
)

func subset(names []string, low int) *rapid.Generator[[]string] {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(names), low, len(names), rapid.ID[string])
}

var conditions = rapid.SampledFrom([]contract.Condition{
	{Column: "region", Op: "=", Value: contract.TextValue("north")},
	{Column: "order_date", Op: ">=", Value: contract.TextValue("2025-07-01")},
	{Column: "test_order", Op: "=", Value: contract.BoolValue(false)},
	{Column: "customer_email", Op: "is_not_null"},
})

// filter draws distinct conditions; they are equal only if their columns are.
func filter(t *rapid.T, label string) []contract.Condition {
	if usually.Draw(t, "no "+label) {
		return []contract.Condition{}
	}
	return rapid.SliceOfNDistinct(conditions, 0, 2, func(c contract.Condition) string { return c.Column }).Draw(t, label)
}

// later adds terms of later contract schemas, each now and then.
func later(t *rapid.T, r *policy.Rules) {
	if !usually.Draw(t, "no rate") {
		r.Rate = contract.Rate{Calls: rapid.Int64Range(1, 50).Draw(t, "calls"), Seconds: rapid.SampledFrom([]int64{1, 7, 60}).Draw(t, "seconds")}
	}
	if !usually.Draw(t, "no statement") {
		r.RetentionStatement = "Deleted everywhere."
	}
	r.RowBudget = rapid.Int64Range(0, 500).Draw(t, "row cap")
	for _, class := range classNames[1:4] {
		if usually.Draw(t, "rule for "+class) {
			continue
		}
		rule := policy.ClassRule{Uses: subset(contract.Uses(), 0).Draw(t, "uses")}
		if rapid.Bool().Draw(t, "some operations") {
			rule.Operations = subset(contract.AllOperations(), 0).Draw(t, "class operations")
		}
		if r.Classes == nil {
			r.Classes = map[string]policy.ClassRule{}
		}
		r.Classes[class] = rule
	}
	if !usually.Draw(t, "no noise") {
		r.Noise = &contract.Noise{EpsilonPerQuery: "0.5", EpsilonTotal: "5", Bounds: []contract.Bound{{Column: "order_value", Low: "0", High: "100"}}}
		r.Operations = append(r.Operations[:0:0], contract.OpCount, contract.OpSum)
	}
}

// rules are those that contracts of version 1 can express, allRules of any.
func allRules(t *rapid.T) policy.Rules {
	r := rules(t)
	later(t, &r)
	return r
}

func rules(t *rapid.T) policy.Rules {
	return policy.Rules{
		// Not even a policy that forgot to list pii lets it out.
		Never:      subset(classNames[2:5], 0).Draw(t, "never"),
		AnyPurpose: usually.Draw(t, "any purpose"), Purposes: subset(purposes, 0).Draw(t, "purposes"),
		Operations:    subset(contract.Operations(), 4).Draw(t, "allowed operations"),
		RetentionDays: rapid.IntRange(0, 90).Draw(t, "retention cap"), MinGroupSize: rapid.IntRange(1, 20).Draw(t, "group floor"),
		CallBudget: rapid.Int64Range(1, 1000).Draw(t, "budget cap"), ValidityDays: rapid.IntRange(1, 100).Draw(t, "validity"),
		OfferTTL: time.Minute, AcceptWithin: time.Minute, RowFilter: filter(t, "policy filter"),
	}
}

// allNeed wants rows now and then, and accepts terms of later versions; need is of version 1.
func allNeed(t *rapid.T) policy.Needs {
	n := need(t)
	if rapid.Bool().Draw(t, "rows") {
		all := append(slices.Clone(n.Columns.Required), n.Columns.Optional...)
		n.Read, n.RowsWanted = subset(all, 1).Draw(t, "read"), rapid.Int64Range(1, 900).Draw(t, "rows wanted")
		n.RowsMinimum = rapid.Int64Range(0, 3).Draw(t, "rows needed")
	}
	if usually.Draw(t, "statement") {
		n.Statements = []string{"Deleted everywhere."}
	}
	n.Noise.Accepted = usually.Draw(t, "noise will do")
	return n
}

func need(t *rapid.T) policy.Needs {
	split := func(names []string, label string) policy.Wanted {
		all := subset(names, 1).Draw(t, label)
		i := rapid.IntRange(0, min(2, len(all))).Draw(t, label+" required")
		return policy.Wanted{Required: all[:i], Optional: all[i:]}
	}
	n := policy.Needs{
		Dataset: "orders", Columns: split(columnNames, "columns"), Operations: split(contract.Operations(), "operations"),
		Purpose:         rapid.SampledFrom(purposes).Draw(t, "purpose"),
		RetentionWanted: rapid.IntRange(0, 400).Draw(t, "retention"), BudgetWanted: rapid.Int64Range(1, 2000).Draw(t, "budget"),
		MaxMinGroupSize: rapid.IntRange(1, 30).Draw(t, "group"), RowFilter: filter(t, "filter"),
	}
	n.RetentionMinimum = rapid.IntRange(0, min(n.RetentionWanted, 60)).Draw(t, "least retention")
	n.BudgetMinimum = rapid.Int64Range(1, min(n.BudgetWanted, 200)).Draw(t, "least budget")
	return n
}

// TestC6_NegotiationsConverge lets random needs meet random policies: every
// negotiation ends within the vendor's offers, and what is agreed is within the
// ask and the policy, never PII and never without a class.
func TestC6_NegotiationsConverge(t *testing.T) {
	base := terms(t)
	outcomes := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		tm := base
		tm.Classes = map[string]string{}
		for _, name := range columnNames {
			tm.Classes[name] = class.Draw(t, "class of "+name)
		}
		r := allRules(t)
		v := &policy.Vendor{MaxOffers: rapid.IntRange(1, 4).Draw(t, "max offers"), Datasets: map[string]policy.Rules{"orders": r}}
		n := allNeed(t)
		for range rapid.IntRange(0, 4).Draw(t, "alternatives") {
			n.Alternatives = append(n.Alternatives, allNeed(t))
		}
		tm.Version = rapid.SampledFrom([]int{0, 1, 2, 3, 3}).Draw(t, "version")
		n = *n.In(tm.Version)
		ask, _ := n.Ask(0)
		for offers := 0; ; offers++ {
			if offers > v.MaxOffers {
				t.Fatalf("%d offers, the vendor makes at most %d", offers, v.MaxOffers)
			}
			out := v.Decide(ask, tm, offers)
			if out.Rejected() {
				if out.Code == "" || out.Reason == "" {
					t.Fatal("a rejection without code or reason")
				}
				if out.Code == policy.CodeDeciderFailed || out.Code == policy.CodeMalformed {
					t.Fatalf("%s: %s", out.Code, out.Reason)
				}
				outcomes["vendor rejects"]++
				return
			}
			within(t, ask, ask, r, tm, out.Offer)
			asks := offers + 1
			reply := n.DecideOffer(policy.Received{Offer: out.Offer, Ask: ask, Asks: asks, Schema: out.Offer.SchemaDigest, Now: now})
			outcomes[string(reply.Action)]++
			switch reply.Action {
			case policy.Accept:
				return
			case policy.Counter:
				ask = *reply.Scope
			case policy.Reject:
				if reply.Code != policy.CodeNeedsNotMet {
					t.Fatalf("the deterministic vendor made a bad offer: %s %s", reply.Code, reply.Reason)
				}
				return
			default:
				t.Fatalf("no action: %+v", reply)
			}
		}
	})
	t.Log(outcomes)
	for _, k := range []string{"vendor rejects", "accept", "counter", "reject"} {
		if outcomes[k] == 0 {
			t.Errorf("%q never happened: %v", k, outcomes)
		}
	}
}

// TestInvariant5_AnyDraftIsNarrowed draws drafts that have nothing to do with
// the ask.
func TestInvariant5_AnyDraftIsNarrowed(t *testing.T) {
	base := terms(t)
	offered := 0
	rapid.Check(t, func(t *rapid.T) {
		tm := base
		tm.Classes = map[string]string{}
		for _, name := range columnNames {
			tm.Classes[name] = class.Draw(t, "class of "+name)
		}
		r := allRules(t)
		v := &policy.Vendor{MaxOffers: 1, Datasets: map[string]policy.Rules{"orders": r}}
		n := allNeed(t)
		tm.Version = rapid.SampledFrom([]int{0, 2, 3, 3}).Draw(t, "version")
		n = *n.In(tm.Version)
		ask, _ := n.Ask(0)
		names := rapid.OneOf(rapid.SampledFrom(ask.Columns), rapid.SampledFrom(columnNames), rapid.String())
		operations := rapid.OneOf(rapid.SampledFrom(ask.Operations), rapid.SampledFrom(contract.Operations()), rapid.String())
		draft := contract.Scope{
			Dataset: rapid.String().Draw(t, "dataset"), Purpose: rapid.String().Draw(t, "draft purpose"),
			Columns:       rapid.SliceOfN(names, 0, 20).Draw(t, "draft columns"),
			Operations:    rapid.SliceOfN(operations, 0, 10).Draw(t, "draft operations"),
			RowFilter:     filter(t, "draft filter"),
			RetentionDays: rapid.Int().Draw(t, "draft retention"), MinGroupSize: rapid.Int().Draw(t, "draft group"),
			CallBudget: rapid.Int64().Draw(t, "draft budget"),
		}
		if rapid.Bool().Draw(t, "draft of the ask's terms") {
			draft.ColumnGrants, draft.Rows = ask.Clone().ColumnGrants, ask.Rows
			draft.Rows.RowBudget += rapid.Int64Range(-5, 5).Draw(t, "draft rows")
		}
		if out := v.Narrow(ask, draft, tm); !out.Rejected() {
			offered++
			within(t, ask, draft, r, tm, out.Offer)
		}
	})
	t.Logf("%d offers", offered)
	if offered == 0 {
		t.Error("nothing was ever offered")
	}
}

// within checks granted ⊆ asked ∩ drafted ∩ policy, and that every difference
// from the ask is explained.
func within(t *rapid.T, ask, draft contract.Scope, r policy.Rules, tm policy.Terms, o *contract.Offer) {
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	if !o.Scope.Within(&ask) {
		t.Fatalf("offered %+v\n  asked %+v", o.Scope, ask)
	}
	for _, c := range o.Columns {
		class := tm.Classes[c]
		if class == "" || class == policy.ClassPII || slices.Contains(r.Never, class) {
			t.Fatalf("column %s of class %q is offered", c, class)
		}
		if !slices.Contains(draft.Columns, c) {
			t.Fatalf("column %s was not in the draft", c)
		}
	}
	for _, op := range o.Operations {
		if !slices.Contains(r.Operations, op) || !slices.Contains(draft.Operations, op) {
			t.Fatalf("operation %s is offered", op)
		}
	}
	for _, c := range slices.Concat(r.RowFilter, draft.RowFilter) {
		if !o.HasCondition(c) {
			t.Fatalf("the condition %v is missing", c)
		}
	}
	if o.RetentionDays > r.RetentionDays || o.MinGroupSize < r.MinGroupSize || o.CallBudget > r.CallBudget ||
		!r.AnyPurpose && !slices.Contains(r.Purposes, o.Purpose) {
		t.Fatalf("beyond the policy: %+v", o.Scope)
	}
	if o.ContractVersion() != max(tm.Version, 1) || o.Rows.RowBudget > min(ask.Rows.RowBudget, max(draft.Rows.RowBudget, 0), r.RowBudget) ||
		r.RetentionStatement != "" && o.RetentionStatement != r.RetentionStatement || r.Noise != nil && o.Noise == nil || !r.Rate.IsZero() && o.Rate.IsZero() {
		t.Fatalf("version %d, beyond the policy: %+v", o.ContractVersion(), o.Scope)
	}
	for _, c := range o.Columns {
		rule, ok := r.Classes[tm.Classes[c]]
		if !ok {
			rule.Uses = []string{"filter", "group", "aggregate"}
		}
		g, _ := o.Grant(c)
		for _, u := range g.Uses {
			if !slices.Contains(rule.Uses, u) {
				t.Fatalf("column %s of class %q may be used for %s", c, tm.Classes[c], u)
			}
		}
		for _, op := range g.Operations {
			if rule.Operations != nil && !slices.Contains(rule.Operations, op) {
				t.Fatalf("column %s of class %q may be given %s", c, tm.Classes[c], op)
			}
		}
	}
	diffs := policy.Diff(ask, o.Scope)
	if len(diffs) != len(o.Removed) {
		t.Fatalf("%d differences, %d explanations:\n%v\n%v", len(diffs), len(o.Removed), diffs, o.Removed)
	}
	for _, d := range diffs {
		if !slices.ContainsFunc(o.Removed, func(x contract.Removal) bool {
			return x.What == d.What && x.Asked == d.Asked && x.Offered == d.Offered && x.Rule != "" && x.Why != ""
		}) {
			t.Fatalf("unexplained: %v", d)
		}
	}
}
