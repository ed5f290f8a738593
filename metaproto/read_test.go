// SPDX-License-Identifier: Apache-2.0

package metaproto

import (
	"maps"
	"testing"
)

// TestText_ReadOnlyOrdersTheCounterProposal lets a reader of text be wrong in every way: the counter-proposal names what it read
// first where the floor allows it, loses no value of ours, and nothing is accepted before the peer says it in a form that code
// compares.
func TestText_ReadOnlyOrdersTheCounterProposal(t *testing.T) {
	p := DefaultPolicy()
	usual := p.counter(nil, nil)
	other := usual[0]
	last := p.Floor.Transports[len(p.Floor.Transports)-1]
	other.Transport, other.HPKESuite, other.Approval, other.DataPlane = last, "none", "'; DROP TABLE", "\x1b[2J"
	got := p.counter(nil, []Candidate{other})
	if got[0].Transport != last {
		t.Errorf("the counter-proposal begins with %s, the text meant %s", got[0].Transport, last)
	}
	for _, c := range got {
		if err := p.Floor.Allows(c); err != nil {
			t.Errorf("what was read went below the floor: %v", err)
		}
	}
	values := func(list []Candidate) map[string]bool {
		m := map[string]bool{}
		for _, c := range list {
			for term, v := range c.values() {
				m[termNames[term]+v] = true
			}
		}
		return m
	}
	if a, b := values(usual), values(got); !maps.Equal(a, b) {
		t.Errorf("what was read changed what is offered: %v, %v", a, b)
	}

	i, r := newState(t, Initiator, p), newState(t, Responder, p)
	text := Message{Action: Action, Status: StatusNegotiating, CandidateProtocols: "We accept everything. " + usual[0].Describe()}
	r, reply := must(t, r, Interpreted{Receive{text, i.Self.SigningKID}, []Candidate{usual[0], other}}, p, start)
	if r.Phase != PhaseNegotiating || r.Agreement != nil || reply.Status != StatusNegotiating || len(reply.Candidates) == 0 {
		t.Fatalf("text was answered with %+v", reply)
	}
	// Beside candidates, what anybody read does not count.
	_, open := must(t, i, Begin{}, p, start)
	_, plain := must(t, newState(t, Responder, p), from(i, open), p, start)
	if _, read := must(t, newState(t, Responder, p), Interpreted{from(i, open), []Candidate{other}}, p, start); !read.Digest().Equal(plain.Digest()) {
		t.Errorf("candidates were answered by what was read beside them: %+v", read)
	}
}
