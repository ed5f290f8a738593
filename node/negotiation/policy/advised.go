// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strconv"

	"github.com/treaty-node/treaty/node/contract"
)

// Advice is what somebody, such as a model, would do about an offer. It is a wish: see [Needs.Advised].
type Advice struct {
	Action Action
	// Scope is what a Counter would ask for: columns, operations, retention, group size and budget. The rest is not read.
	Scope contract.Scope
}

// ruleNeeds is the rule of what an adviser wanted and the needs do not.
const ruleNeeds = "needs"

// Open says whether an adviser has a say about the offer: it is valid, stands, and is within the ask. What else is offered is
// rejected by code alone.
func (n *Needs) Open(r Received) bool {
	base := n.DecideOffer(r)
	return base.Action != Reject || base.Code == CodeNeedsNotMet
}

// Advised turns an advice into an answer that the needs allow, and says what it overruled. Only an offer that meets the needs is
// accepted; a rejection is always possible; a counter asks for nothing beyond what the needs want and for no less than they
// require, and for something else than was asked last. Where that cannot be had the answer is that of DecideOffer.
func (n *Needs) Advised(r Received, a Advice) (Reply, []contract.Removal) {
	base := n.DecideOffer(r)
	overruled := func(why string) (Reply, []contract.Removal) {
		return base, []contract.Removal{{What: "intent", Asked: contract.Echo(string(a.Action)), Offered: string(base.Action), Rule: ruleNeeds, Why: why}}
	}
	if base.Action == Reject && base.Code != CodeNeedsNotMet {
		if a.Action == Reject {
			return base, nil
		}
		return overruled("the offer cannot be answered otherwise")
	}
	switch a.Action {
	case Accept:
		if base.Action == Accept {
			return base, nil
		}
		return overruled("the offer does not meet the needs")
	case Reject:
		if base.Action == Reject {
			return base, nil
		}
		return Reply{Action: Reject, Code: CodeDeclined, Reason: "the buyer does not want what is offered", Lines: base.Lines}, nil
	case Counter:
		for i := max(r.Asks-1, 0); i <= len(n.Alternatives); i++ {
			scope, removed := n.at(i).hold(a.Scope)
			if len(Diff(r.Ask, scope)) > 0 {
				return Reply{Action: Counter, Scope: &scope, Next: i, Reason: "the buyer asks for something else", Lines: base.Lines}, removed
			}
		}
		return overruled("this was asked already")
	}
	return overruled("this is no answer to an offer")
}

// hold brings a draft of an ask within what is wanted and what is required. It says what the draft had beyond that.
func (n *Needs) hold(draft contract.Scope) (contract.Scope, []contract.Removal) {
	var removed []contract.Removal
	over := func(what, drafted, got, why string) {
		if len(removed) < contract.MaxRemovals {
			removed = append(removed, contract.Removal{What: what, Asked: drafted, Offered: got, Rule: ruleNeeds, Why: why})
		}
	}
	names := func(what string, w Wanted, drafted []string) []string {
		kept := slices.DeleteFunc(w.all(), func(s string) bool {
			return !slices.Contains(w.Required, s) && !slices.Contains(drafted, s)
		})
		for _, s := range drafted {
			if !slices.Contains(kept, s) {
				over(what, contract.Echo(s), "", "the needs do not want it")
			}
		}
		return kept
	}
	number := func(what string, drafted, low, high int64) int64 {
		got := min(max(drafted, low), high)
		if got != drafted {
			over(what, strconv.FormatInt(drafted, 10), strconv.FormatInt(got, 10), "outside of what the needs want")
		}
		return got
	}
	s := n.scope()
	s.Columns = names("column", n.Columns, draft.Columns)
	s.Operations = names("operation", n.Operations, draft.Operations)
	s.RetentionDays = int(number("retentionDays", int64(draft.RetentionDays), int64(n.RetentionMinimum), int64(n.RetentionWanted)))
	s.MinGroupSize = int(number("minGroupSize", int64(draft.MinGroupSize), 1, int64(n.MaxMinGroupSize)))
	s.CallBudget = number("callBudget", draft.CallBudget, n.BudgetMinimum, n.BudgetWanted)
	s = n.withTerms(s)
	if s.Validate() != nil { // nothing optional was left and nothing is required
		return n.scope(), removed
	}
	return s, removed
}
