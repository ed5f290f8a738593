// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/negotiation/policy"
)

// TestNeedsFor: terms that are asked for again are asked for as they are, by whatever version 3 can say, and an offer of anything
// else, or one that leaves a time with neither contract, is not taken.
func TestNeedsFor(t *testing.T) {
	old := contract.Reference{ID: contract.ID(canon.Sum([]byte("old"))), Digest: canon.Sum([]byte("terms"))}
	at := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	plain := contract.Scope{
		Dataset: "orders", Columns: []string{"region", "order_value"}, Operations: []string{"count", "sum"}, RowFilter: []contract.Condition{},
		Purpose: "regional-pricing", RetentionDays: 30, MinGroupSize: 5, CallBudget: 100, Rate: contract.Rate{Calls: 10, Seconds: 60},
	}
	granted := plain.Clone()
	granted.ColumnGrants = []contract.ColumnGrant{
		{Column: "region", Uses: []string{contract.UseGroup, contract.UseRead}, Operations: []string{}},
		{Column: "order_value", Uses: []string{contract.UseAggregate}, Operations: []string{"sum"}},
	}
	granted.Rows, granted.RetentionStatement = contract.RowGrant{RowBudget: 50}, "Everything is deleted."
	noisy := plain.Clone()
	noisy.Noise = &contract.Noise{EpsilonPerQuery: "0.5", EpsilonTotal: "5", Bounds: []contract.Bound{{Column: "order_value", Low: "0", High: "100"}}}
	for name, scope := range map[string]contract.Scope{"plain": plain, "column grants": granted, "noise": noisy} {
		t.Run(name, func(t *testing.T) {
			text, err := policy.NeedsFor(scope, "again")
			if err != nil {
				t.Fatal(err)
			}
			needs, err := policy.ParseNeeds(text)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			needs = needs.In(contract.Version3).Amending(old, &scope)
			ask, ok := needs.Ask(0)
			if want := named(scope, old); !ok || !ask.Within(&want) || !want.Within(&ask) || len(policy.Diff(want, ask)) > 0 {
				t.Errorf("asked for %+v", ask)
			}
			decide := func(change func(*contract.Offer)) policy.Reply {
				o := &contract.Offer{
					Type: contract.OfferType, Version: contract.Version3, Scope: ask.Clone(), ValidFrom: contract.FormatTime(at),
					ValidUntil: contract.FormatTime(at.AddDate(0, 0, 90)), AcceptBy: contract.FormatTime(at.Add(time.Hour)), ExpiresAt: contract.FormatTime(at.Add(time.Minute)),
					DataPlane: contract.DataPlane{DID: "did:wba:data.vendor.test", URL: "https://data.vendor.test/mcp"}, SchemaDigest: canon.Sum([]byte("schema")), Removed: []contract.Removal{},
				}
				change(o)
				return needs.DecideOffer(policy.Received{Offer: o, Ask: ask, Asks: 1, Now: at})
			}
			if r := decide(func(*contract.Offer) {}); r.Action != policy.Accept {
				t.Errorf("the terms themselves: %+v", r)
			}
			for what, change := range map[string]func(*contract.Offer){
				"callBudget":   func(o *contract.Offer) { o.CallBudget-- },
				"minGroupSize": func(o *contract.Offer) { o.MinGroupSize++ },
				"rate":         func(o *contract.Offer) { o.Rate = contract.Rate{Calls: 9, Seconds: 60} },
				"columnGrant": func(o *contract.Offer) {
					o.ColumnGrants = []contract.ColumnGrant{{Column: "order_value", Uses: []string{contract.UseAggregate}, Operations: []string{"sum"}}}
					if name == "column grants" {
						o.ColumnGrants = append(o.ColumnGrants, contract.ColumnGrant{Column: "region", Uses: []string{contract.UseRead}, Operations: []string{}})
					}
				},
				"later": func(o *contract.Offer) { o.ValidFrom = contract.FormatTime(at.Add(time.Hour)) },
			} {
				if r := decide(change); r.Action != policy.Reject || r.Code != policy.CodeNeedsNotMet || !strings.Contains(r.Reason, what) {
					t.Errorf("%s: %+v", what, r)
				}
			}
			for what, change := range map[string]func(*contract.Offer){
				"unlinked":    func(o *contract.Offer) { o.Amends = contract.Reference{} },
				"another one": func(o *contract.Offer) { o.Amends.Digest = canon.Sum([]byte("other")) },
				"no rate":     func(o *contract.Offer) { o.Rate = contract.Rate{} },
			} {
				if r := decide(change); r.Action != policy.Reject || r.Code != policy.CodeOfferWider {
					t.Errorf("%s: %+v", what, r)
				}
			}
		})
	}
}

func named(s contract.Scope, old contract.Reference) contract.Scope {
	s = s.Clone()
	s.Amends = old
	return s
}
