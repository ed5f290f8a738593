// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/negotiation/policy"
)

// meets is what a policy and needs have in common, said without the deciders' help: "" when it satisfies the needs, else what
// does not.
func meets(n *policy.Needs, r *policy.Rules, tm policy.Terms) string {
	grantable := func(c string) bool {
		class := tm.Classes[c]
		return class != "" && class != policy.ClassPII && !slices.Contains(r.Never, class)
	}
	ask, _ := n.Ask(0)
	usable := false
	for _, c := range ask.Columns {
		col, _ := tm.Schema.Column(c)
		typ, _ := contract.ParseType(col.Type)
		for _, op := range ask.Operations {
			usable = usable || grantable(c) && slices.Contains(r.Operations, op) && contract.OperationFits(op, typ)
		}
	}
	switch {
	case !r.AnyPurpose && !slices.Contains(r.Purposes, n.Purpose):
		return "PURPOSE_DENIED"
	case slices.ContainsFunc(n.RowFilter, func(c contract.Condition) bool {
		own := contract.Scope{RowFilter: r.RowFilter}
		return !own.HasCondition(c) && !grantable(c.Column)
	}):
		return "ROW_FILTER_DENIED"
	case !usable:
		return "NOTHING_GRANTABLE"
	case slices.ContainsFunc(n.Columns.Required, func(c string) bool { return !grantable(c) }):
		return "rule columns"
	case slices.ContainsFunc(n.Operations.Required, func(op string) bool { return !slices.Contains(r.Operations, op) }):
		return "rule operations"
	case r.RetentionDays < n.RetentionMinimum:
		return "rule retention_days.minimum"
	case r.CallBudget < n.BudgetMinimum:
		return "rule call_budget.minimum"
	case r.MinGroupSize > n.MaxMinGroupSize:
		return "rule max_min_group_size"
	case slices.ContainsFunc(r.RowFilter, func(c contract.Condition) bool {
		return !ask.HasCondition(c) && n.AddedFilters.Limited && !slices.Contains(n.AddedFilters.Columns, c.Column)
	}):
		return "rule row_filters"
	case r.ValidityDays < n.ValidityMinimum:
		return "rule validity_days.minimum"
	case n.ValidityMaximum != 0 && r.ValidityDays > n.ValidityMaximum:
		return "rule validity_days.maximum"
	}
	return ""
}

// TestC6_ContractWhenItCan lets random needs meet random policies. Where what the policy allows satisfies the needs, the two
// contract, in one proposal and one offer; where it does not, the end names the rule, whichever side it is of. An adviser who
// wants anything at all changes neither: it can only end the talks, or make them longer by a bounded number of messages.
func TestC6_ContractWhenItCan(t *testing.T) {
	base := terms(t)
	outcomes := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		tm := base
		tm.Classes = map[string]string{}
		for _, name := range columnNames {
			tm.Classes[name] = class.Draw(t, "class of "+name)
		}
		r, n := rules(t), need(t)
		n.AddedFilters = rapid.SampledFrom([]policy.Added{{}, {}, {Limited: true}, {Limited: true, Columns: []string{"region"}}}).Draw(t, "added filters")
		n.ValidityMinimum = rapid.SampledFrom([]int{0, 1, 1, 40}).Draw(t, "least validity")
		n.ValidityMaximum = rapid.SampledFrom([]int{0, 0, 90, 365}).Draw(t, "most validity")
		v := &policy.Vendor{MaxOffers: 4, Datasets: map[string]policy.Rules{"orders": r}}
		want := meets(&n, &r, tm)
		ask, _ := n.Ask(0)
		out := v.Decide(ask, tm, 0)
		if out.Rejected() {
			if out.Code != want {
				t.Fatalf("rejected with %s: %s\nwant %q", out.Code, out.Reason, want)
			}
			outcomes[want]++
			return
		}
		got := policy.Received{Offer: out.Offer, Ask: ask, Asks: 1, Schema: out.Offer.SchemaDigest, Now: now}
		reply := n.DecideOffer(got)
		switch {
		case reply.Action == policy.Accept && want == "":
		case reply.Action == policy.Reject && want != "" && strings.Contains(reply.Reason, "("+want+")"):
		default:
			t.Fatalf("%s %s: %s\nwant %q", reply.Action, reply.Code, reply.Reason, want)
		}
		outcomes[want]++

		advice := policy.Advice{Action: rapid.SampledFrom([]policy.Action{policy.Accept, policy.Counter, policy.Reject, "grant"}).Draw(t, "advice")}
		advice.Scope = contract.Scope{
			Columns: append(subset(columnNames, 0).Draw(t, "advised columns"), "'; DROP TABLE"), Operations: subset(contract.AllOperations(), 0).Draw(t, "advised operations"),
			RetentionDays: rapid.IntRange(-5, 40_000).Draw(t, "advised retention"), MinGroupSize: rapid.IntRange(-5, 50).Draw(t, "advised group"), CallBudget: rapid.Int64().Draw(t, "advised budget"),
		}
		advised, _ := n.Advised(got, advice)
		switch advised.Action {
		case policy.Accept:
			if want != "" {
				t.Fatalf("advised to accept what does not meet the needs: %s", want)
			}
		case policy.Counter:
			if err := advised.Scope.Validate(); err != nil || !advised.Scope.Within(&ask) || len(policy.Diff(ask, *advised.Scope)) == 0 {
				t.Fatalf("advised to ask for %+v\n   the needs are %+v (%v)", advised.Scope, ask, err)
			}
		case policy.Reject:
			if advised.Code == "" || advised.Reason == "" {
				t.Fatalf("%+v", advised)
			}
		default:
			t.Fatalf("%+v", advised)
		}
	})
	t.Log(outcomes)
	for _, k := range []string{"", "NOTHING_GRANTABLE", "ROW_FILTER_DENIED", "rule columns", "rule row_filters", "rule validity_days.minimum"} {
		if outcomes[k] == 0 {
			t.Logf("no negotiation ended with %q", k)
		}
	}
	if outcomes[""] == 0 {
		t.Error("nobody ever contracted")
	}
}
