// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/node/delegation"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/ledger"
)

// A question travels from a buyer to a vendor, which would ask the buyer in turn and does not, since it asked already.
func TestAsk(t *testing.T) {
	buyerDir, vendorDir := initPair(t, nil)
	edit(t, vendorDir, "domain:", "delegation: {agents: [buyercorp.test], serve: true}\ndomain:")
	vendor, buyer := start(t, vendorDir), start(t, buyerDir)
	ask := func(r httpapi.AskRequest) ([]delegation.Answer, error) {
		r.Text = "What can be negotiated?"
		return buyer.Ask(t.Context(), r)
	}
	for _, c := range []struct {
		name    string
		req     httpapi.AskRequest
		outcome delegation.Outcome
		inner   int
	}{
		{"one hop", httpapi.AskRequest{Agents: []string{"vendorcorp.test"}}, delegation.Answered, 0},
		{"by skill", httpapi.AskRequest{Agents: []string{"vendorcorp.test"}, Skill: "negotiation"}, delegation.Answered, 0},
		{"no such skill", httpapi.AskRequest{Agents: []string{"vendorcorp.test"}, Skill: "cooking"}, delegation.Skipped, 0},
		{"two hops", httpapi.AskRequest{Agents: []string{"vendorcorp.test"}, Depth: 2}, delegation.Answered, 1},
	} {
		got, err := ask(c.req)
		if err != nil || len(got) != 1 || got[0].Outcome != c.outcome || len(got[0].Branches) != c.inner || (c.outcome == delegation.Answered) != strings.Contains(got[0].Text, "orders") {
			t.Errorf("%s: %+v %v", c.name, got, err)
			continue
		}
		if c.inner == 1 && got[0].Branches[0].Outcome != delegation.Skipped {
			t.Errorf("%s: asked in a circle: %+v", c.name, got[0].Branches)
		}
	}
	both := httpapi.AskRequest{Agents: []string{"vendorcorp.test", "nobody.test"}}
	if got, err := ask(both); err != nil || len(got) != 2 || got[0].Outcome != delegation.Answered || got[1].Outcome != delegation.Failed {
		t.Errorf("one of two: %+v %v", got, err)
	}
	both.OnFailure = delegation.Fail
	var e *httpapi.Error
	if _, err := ask(both); !errors.As(err, &e) || e.Kind != httpapi.KindUnreachable || !strings.Contains(e.Message, "nobody.test") {
		t.Errorf("one of two has to: %v", err)
	}
	if _, err := ask(httpapi.AskRequest{}); !errors.As(err, &e) || e.Kind != httpapi.KindUsage {
		t.Errorf("nobody to ask: %v", err)
	}
	if _, err := ask(httpapi.AskRequest{Agents: []string{"vendorcorp.test"}, Depth: 9}); !errors.As(err, &e) || e.Kind != httpapi.KindUsage {
		t.Errorf("too deep: %v", err)
	}
	events, err := vendor.Events(t.Context(), 0, 1000)
	told := 0
	for _, ev := range events {
		if ev.Type == ledger.QuestionDelegated {
			told++
		}
	}
	if err != nil || told != 1 {
		t.Errorf("the vendor's log tells of %d questions handed on (%v)", told, err)
	}
}
