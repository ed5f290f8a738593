// SPDX-License-Identifier: Apache-2.0

package negotiation_test

import (
	"context"
	"slices"
	"testing"

	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/negotiation/policy"
)

// speaks makes a party speak these versions of the contract schema, best first.
func speaks(p *party, versions ...string) {
	before := p.changeMeta
	p.changeMeta = func(m *metaproto.Policy) {
		if before != nil {
			before(m)
		}
		m.Floor.ContractSchemas = versions
		var all []metaproto.Candidate
		for _, v := range versions {
			for _, c := range m.Preferences {
				c.ContractSchema = v
				if !slices.Contains(all, c) {
					all = append(all, c)
				}
			}
		}
		m.Preferences = all
	}
}

// TestK6_ContractOfTheAgreedVersion: the same needs meet the same rules under each version. A side that speaks version 1 only
// still reaches a contract.
func TestK6_ContractOfTheAgreedVersion(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		buyer, vendor []string
		want          int
	}{
		{"the buyer speaks version 1 only", []string{"1"}, []string{"3", "2", "1"}, 1},
		{"the vendor speaks version 1 only", []string{"3", "2", "1"}, []string{"1"}, 1},
		{"version 2", []string{"2"}, []string{"3", "2"}, 2},
		{"version 3", []string{"3", "1"}, []string{"3", "2", "1"}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			speaks(w.buyer, tt.buyer...)
			speaks(w.vendor, tt.vendor...)
			rules := w.vendor.decider.(*catalogue).policy
			r := rules.Datasets["orders"]
			r.RowBudget, r.Classes = 100, map[string]policy.ClassRule{"public": {Uses: contract.Uses()}}
			rules.Datasets["orders"] = r
			v, err := w.vendor.doc.Verify(w.Now())
			fatal(t, err)
			id, err := w.buyer.svc.Start(context.Background(), w.vendor.doc, v, buyerNeeds+"read: [region]\nrow_budget: {wanted: 500}\n")
			fatal(t, err)
			if ses := w.drive(id); ses.Phase != negotiation.PhaseInForce {
				t.Fatalf("%s: %s %s", ses.Phase, ses.Code, ses.Reason)
			}
			c := w.agreed()
			if c.Version != tt.want {
				t.Errorf("a contract of version %d, want %d", c.Version, tt.want)
			}
			if rows := c.Rows.RowBudget; (tt.want == 3) != (rows == 100) || tt.want < 3 && c.Needs() != 1 {
				t.Errorf("version %d with %d rows: %+v", c.Version, rows, c.Scope)
			}
			if tt.want == 3 && !slices.Equal(c.Readable(), []string{"region"}) {
				t.Errorf("readable are %v", c.Readable())
			}
		})
	}
}

// TestK6_TermsOfAnotherVersion: under version 1 a term of version 2 is refused by name and changes nothing; the ask without it is
// answered.
func TestK6_TermsOfAnotherVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	speaks(w.vendor, "1")
	p := w.puppet(w.buyer).agree()
	s := scope()
	s.Rate = contract.Rate{Calls: 1, Seconds: 1}
	p.refuseAll(t, []bad{{name: "a term of a later contract schema", want: envelope.CodeVersionMismatch, raw: p.propose(s)}})
	if c := p.ask().take().contract; c.Version != 1 {
		t.Errorf("a contract of version %d", c.Version)
	}
}
