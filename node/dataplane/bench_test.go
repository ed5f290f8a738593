// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"testing"

	"github.com/treaty-node/treaty/node/contract"
)

// BenchmarkQuery is the guard's own cost: decision, reservation, receipt and the durable writes, without HTTP and engine.
func BenchmarkQuery(b *testing.B) {
	f := newFixture(b, func(o *contract.Offer) { o.CallBudget = contract.MaxCallBudget })
	caller, in := f.buyer.caller(), f.input()
	for b.Loop() {
		if _, err := f.svc.Query(b.Context(), caller, in); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecide is the decision alone, the verdict remembered.
func BenchmarkDecide(b *testing.B) {
	f := newFixture(b)
	facts := facts{record: f.record(b, f.contract, f.vendor, "in_force"), found: true}
	c := &call{s: f.svc, caller: f.buyer.caller(), req: f.input().Request(f.buyer.id()), facts: facts}
	for b.Loop() {
		c.v = f.svc.judge(c.facts, c.caller)
		if _, d := c.decide(); !d.Allowed {
			b.Fatal(d)
		}
	}
}
