// SPDX-License-Identifier: Apache-2.0

package metaproto

import (
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/hpke"
)

// The model: both sides and every message that was ever sent. A message in the
// set can be delivered at any time and any number of times, or never: that is
// loss, duplication and reordering. Time is before the deadline, after it, or
// after the end of every agreement; it never goes back. At any moment, once,
// both sides' floors may rise.
type world struct {
	i, r   State
	sent   []flight
	late   int
	raised int
}

// sides are the policies of both, before and after their floors rise.
type sides [2]struct{ I, R Policy }

func same(i, r Policy) sides { return sides{{i, r}, {i, r}} }

// moves are the transitions that a walk has met: role, phase, event and what came of it.
type moves map[string]bool

type flight struct {
	toResponder bool
	msg         Message
}

func (w world) key(t testing.TB) string {
	sent := make([]string, len(w.sent))
	for k, f := range w.sent {
		sent[k] = fmt.Sprint(f.toResponder, f.msg.Digest())
	}
	sort.Strings(sent)
	return fmt.Sprintf("%d|%d|%s|%s|%s", w.late, w.raised, encode(t, w.i), encode(t, w.r), strings.Join(sent, ","))
}

func (w world) now() time.Time {
	return start.Add([]time.Duration{time.Second, time.Hour, 60 * 24 * time.Hour}[w.late])
}

func (w world) with(toResponder bool, m *Message) world {
	if m == nil {
		return w
	}
	for _, f := range w.sent {
		if f.toResponder == toResponder && f.msg.Digest().Equal(m.Digest()) {
			return w
		}
	}
	w.sent = append(append([]flight(nil), w.sent...), flight{toResponder, *m})
	return w
}

func TestInvariant3_ModelOfAllInterleavings(t *testing.T) {
	json, http := TransportJSONRPC, TransportHTTPJSON
	n, o, x := DataPlane20260728, DataPlane20251125, DataPlane20250618
	for name, tc := range map[string]struct {
		i, r Policy
		want Phase // what a perfect channel gives
	}{
		"same wishes":                 {policy([]string{json}, []string{n}), policy([]string{json}, []string{n}), PhaseAgreed},
		"responder counters":          {policy([]string{json}, []string{n, o}), policy([]string{json}, []string{o}), PhaseAgreed},
		"both counter":                {policy([]string{json, http}, []string{n, x}), policy([]string{"mqtt", http}, []string{o, x}), PhaseAgreed},
		"no common data plane":        {policy([]string{json}, []string{n}), policy([]string{json}, []string{o}), PhaseRejected},
		"no common ground at all":     {policy([]string{json}, []string{n}), policy([]string{http}, []string{o, x}), PhaseRejected},
		"two rounds are not enough":   {bounded(policy([]string{json}, []string{n, o}), 2), policy([]string{json}, []string{o}), PhaseRejected},
		"three are not enough either": {bounded(policy([]string{json}, []string{n, o}), 3), policy([]string{json}, []string{o}), PhaseRejected},
		"four are":                    {bounded(policy([]string{json}, []string{n, o}), 4), bounded(policy([]string{json}, []string{o}), 4), PhaseAgreed},
	} {
		t.Run(name, func(t *testing.T) {
			i, r, _ := converse(t, tc.i, tc.r)
			if got := outcome(t, i, r); got != tc.want {
				t.Fatalf("over a perfect channel: %s, want %s", got, tc.want)
			}
			met := moves{}
			walk(t, newState(t, Initiator, tc.i), newState(t, Responder, tc.r), same(tc.i, tc.r), met)
		})
	}
}

// Floors rise in the middle, and both have session keys: still nobody accepts what its floor of that moment does not allow.
func TestInvariant3_ModelWithFloorsThatRise(t *testing.T) {
	n, o := DataPlane20260728, DataPlane20251125
	before := policy([]string{TransportJSONRPC}, []string{n, o})
	only := policy([]string{TransportJSONRPC}, []string{o})
	fresh := before
	fresh.Floor.SessionKeys = []string{SessionKeysFresh}
	keyed := func(role Role) State { return stateWith(t, role, before, without(hpke.SuiteXWing)) }
	plain := func(role Role) State { return newState(t, role, before) }
	for name, tc := range map[string]struct {
		i, r State
		p    sides
	}{
		"the initiator's":                {plain(Initiator), plain(Responder), sides{{before, before}, {only, before}}},
		"the responder's":                {plain(Initiator), plain(Responder), sides{{before, before}, {before, only}}},
		"both, to nothing in common":     {plain(Initiator), plain(Responder), sides{{before, before}, {policy([]string{TransportJSONRPC}, []string{n}), only}}},
		"session keys, the responder":    {keyed(Initiator), keyed(Responder), sides{{before, before}, {before, fresh}}},
		"session keys, and one has none": {plain(Initiator), keyed(Responder), sides{{before, before}, {before, fresh}}},
	} {
		t.Run(name, func(t *testing.T) { walk(t, tc.i, tc.r, tc.p, moves{}) })
	}
}

// The table in the documentation of Step is complete: what two sides can meet is in it, and all of it is met. (A hostile peer can
// do more: see TestInvariant11_HostilePeer.)
func TestTransitionTable(t *testing.T) {
	n, o, x := DataPlane20260728, DataPlane20251125, DataPlane20250618
	met := moves{}
	for _, p := range []sides{
		same(policy([]string{TransportJSONRPC}, []string{n, o}), policy([]string{TransportJSONRPC}, []string{o})),
		same(policy([]string{TransportJSONRPC}, []string{n}), policy([]string{TransportJSONRPC}, []string{n})),
		same(policy([]string{TransportJSONRPC}, []string{n}), policy([]string{TransportJSONRPC}, []string{x})),
		same(bounded(policy([]string{TransportJSONRPC}, []string{n}), 2), policy([]string{TransportJSONRPC}, []string{o})),
		{
			{policy([]string{TransportJSONRPC}, []string{n, o}), policy([]string{TransportJSONRPC}, []string{o})},
			{policy([]string{TransportJSONRPC}, []string{n}), policy([]string{TransportJSONRPC}, []string{o})},
		},
		{
			{policy([]string{TransportJSONRPC}, []string{n, o}), policy([]string{TransportJSONRPC}, []string{o, n})},
			{policy([]string{TransportJSONRPC}, []string{n}), policy([]string{TransportJSONRPC}, []string{o})},
		},
	} {
		walk(t, newState(t, Initiator, p[0].I), newState(t, Responder, p[0].R), p, met)
	}
	table := map[string]string{
		"initiator new Begin":               "negotiating timeout",
		"initiator new Tick":                "new timeout",
		"initiator negotiating negotiating": "negotiating confirming rejected timeout",
		"initiator negotiating accepted":    "agreed rejected",
		"initiator negotiating rejected":    "rejected",
		"initiator negotiating timeout":     "timeout",
		"initiator negotiating Tick":        "negotiating timeout",
		"initiator confirming accepted":     "agreed rejected",
		"initiator confirming rejected":     "rejected",
		"initiator confirming timeout":      "timeout",
		"initiator confirming Tick":         "confirming timeout",
		"responder negotiating negotiating": "negotiating accepted rejected timeout",
		"responder negotiating accepted":    "accepted rejected timeout",
		"responder negotiating rejected":    "rejected",
		"responder negotiating timeout":     "timeout",
		"responder negotiating Tick":        "negotiating timeout",
		"responder accepted Cited":          "agreed",
		"responder accepted Tick":           "accepted timeout",
		"responder accepted rejected":       "rejected",
		"responder agreed Cited":            "agreed",
	}
	for m := range met {
		at, to, _ := strings.Cut(m, " → ")
		if !strings.Contains(" "+table[at]+" ", " "+to+" ") {
			t.Errorf("not in the table: %s", m)
		}
	}
	for at, list := range table {
		for _, to := range strings.Fields(list) {
			if !met[at+" → "+to] {
				t.Errorf("never met: %s → %s", at, to)
			}
		}
	}
}

func bounded(p Policy, rounds int) Policy {
	p.MaxRounds = rounds
	return p
}

// outcome is the common one of two sides that have stopped speaking.
func outcome(t testing.TB, i, r State) Phase {
	t.Helper()
	ai, okI := i.Concluded()
	ar, okR := r.Concluded()
	if okI != okR {
		t.Fatalf("one side only has an agreement: %s, %s", i.Phase, r.Phase)
	}
	if okI {
		if !ai.Digest().Equal(ar.Digest()) {
			t.Fatalf("different agreements:\n%s\n%s", encode(t, ai), encode(t, ar))
		}
		return PhaseAgreed
	}
	if i.Phase != r.Phase {
		t.Fatalf("initiator %s, responder %s", i.Phase, r.Phase)
	}
	return i.Phase
}

func walk(t *testing.T, i, r State, p sides, met moves) {
	first := world{i: i, r: r}
	queue, seen := []world{first}, map[string]bool{first.key(t): true}
	outcomes := map[string]bool{}
	for len(queue) > 0 {
		w := queue[0]
		queue = queue[1:]
		checkWorld(t, w, p[0].I, p[0].R)
		outcomes[string(w.i.Phase)+"/"+string(w.r.Phase)] = true
		for _, next := range successors(t, w, p, met) {
			if k := next.key(t); !seen[k] {
				seen[k] = true
				queue = append(queue, next)
			}
		}
		if len(seen) > 200_000 {
			t.Fatal("the state space does not end")
		}
	}
	if !outcomes["timeout/timeout"] {
		t.Error("the walk never came to a timeout")
	}
	t.Logf("%d states, ends %v", len(seen), outcomes)
}

func successors(t *testing.T, w world, all sides, met moves) []world {
	var out []world
	if w.raised == 0 && encode(t, all[0]) != encode(t, all[1]) {
		next := w
		next.raised = 1
		out = append(out, next)
	}
	if w.late < 2 {
		next := w
		next.late++
		out = append(out, next)
	}
	side := func(initiator bool, ev Event) {
		s, p := w.r, all[w.raised].R
		if initiator {
			s, p = w.i, all[w.raised].I
		}
		next, reply, err := checked(t, s, ev, p, w.now())
		if s.Phase.Terminal() && encode(t, next) != encode(t, s) {
			t.Fatalf("invariant 13: terminal phase %s changed by %T", s.Phase, ev)
		}
		if err != nil {
			return
		}
		again := false
		kind := strings.TrimPrefix(fmt.Sprintf("%T", ev), "metaproto.")
		if rec, ok := ev.(Receive); ok {
			kind, again = string(rec.Message.Status), rec.Message.Digest().Equal(s.LastIn)
		}
		if !again && (!s.Phase.Terminal() || s.Phase == PhaseAgreed && kind == "Cited") {
			met[fmt.Sprintf("%s %s %s → %s", s.Role, s.Phase, kind, next.Phase)] = true
		}
		if _, before := s.Concluded(); !before {
			if a, ok := next.Concluded(); ok {
				if err := p.Floor.Allows(a.Candidate); err != nil {
					t.Fatalf("%s accepted below its floor of the moment: %v", s.Role, err)
				}
			}
		}
		after := w
		if initiator {
			after.i = next
		} else {
			after.r = next
		}
		out = append(out, after.with(initiator, reply))
	}
	side(true, Begin{})
	side(true, Tick{})
	side(false, Tick{})
	for _, f := range w.sent {
		if f.toResponder {
			side(false, from(w.i, &f.msg))
		} else {
			side(true, from(w.r, &f.msg))
		}
	}
	if a, ok := w.i.Concluded(); ok { // the initiator's next message names it
		side(false, Cited{a.Digest()})
	}
	return out
}

// checkWorld holds what must be true in every reachable state.
func checkWorld(t *testing.T, w world, pi, pr Policy) {
	t.Helper()
	ai, okI := w.i.Concluded()
	ar, okR := w.r.Concluded()
	if okI {
		if err := pi.Floor.Allows(ai.Candidate); err != nil {
			t.Fatalf("initiator accepted: %v", err)
		}
		if w.r.Phase == PhaseRejected || w.r.Phase == PhaseNegotiating {
			t.Fatalf("initiator agreed, responder %s", w.r.Phase)
		}
		if w.r.Phase == PhaseTimeout && w.late < 2 {
			t.Fatal("initiator agreed, responder timed out within the agreement's life")
		}
	}
	if okR {
		if err := pr.Floor.Allows(ar.Candidate); err != nil {
			t.Fatalf("responder accepted: %v", err)
		}
		if w.r.Phase == PhaseAgreed && !okI {
			t.Fatalf("responder agreed, initiator %s", w.i.Phase)
		}
	}
	if okI && okR && !ai.Digest().Equal(ar.Digest()) {
		t.Fatalf("different agreements:\n%s\n%s", encode(t, ai), encode(t, ar))
	}
	if w.i.Phase == PhaseRejected && w.r.Phase == PhaseAgreed {
		t.Fatal("responder agreed, initiator rejected")
	}
	if n := len(w.sent); n > maxSequence+1 {
		t.Fatalf("%d messages", n)
	}
	// From everywhere, time alone leads to an end.
	end := start.Add(365 * 24 * time.Hour)
	for _, side := range []struct {
		s State
		p Policy
	}{{w.i, pi}, {w.r, pr}} {
		s, _ := must(t, side.s, Tick{}, side.p, end)
		if !s.Phase.Terminal() {
			t.Fatalf("phase %s does not end by time", side.s.Phase)
		}
		if !side.s.Phase.Terminal() && s.Agreement != nil {
			t.Fatal("an agreement outlives its timeout")
		}
	}
}

// A peer that says anything at all, in any order, gets no agreement below the
// floor, no unending conversation, and nothing that was not offered.
func TestInvariant11_HostilePeer(t *testing.T) {
	mine := policy([]string{TransportJSONRPC}, []string{DataPlane20260728, DataPlane20251125})
	good := mine.Preferences[0]
	second := good
	second.DataPlane = DataPlane20251125
	below := good
	below.DataPlane = DataPlane20250618
	greedy := good
	greedy.Limits.MaxMessageBytes = maxMessageSize
	greedy.Limits.MaxOffers = maxCount

	for _, role := range []Role{Initiator, Responder} {
		peer := config(t, role).Peer
		kid := peer.String() + "#kex-9"
		var alphabet []Message
		for _, list := range [][]Candidate{nil, {good}, {below}, {greedy}, {below, second}} {
			m := Message{Action: Action, Status: StatusNegotiating, Candidates: list}
			if list != nil {
				m.KeyAgreementKID = kid
			}
			alphabet = append(alphabet, m)
			if len(list) == 1 {
				m.Status, m.AcceptedAt = StatusAccepted, formatTime(start)
				alphabet = append(alphabet, m)
			}
		}
		dated, forged := alphabet[2], alphabet[2] // the acceptance of a good candidate
		dated.AcceptedAt = formatTime(start.Add(-time.Hour))
		forged.Agreement = canon.Sum([]byte("forged"))
		alphabet = append(alphabet, dated, forged,
			Message{Action: Action, Status: StatusAccepted, CandidateProtocols: "fine, let us just talk"},
			Message{Action: Action, Status: StatusNegotiating, CandidateProtocols: "any protocol you like"},
			Message{Action: Action, Status: StatusNegotiating, Candidates: []Candidate{good}, KeyAgreementKID: config(t, role).KeyAgreementKID},
			Message{Action: Action, Status: StatusRejected}, Message{Action: Action, Status: StatusTimeout})

		first := newState(t, role, mine)
		if role == Initiator {
			first, _ = must(t, first, Begin{}, mine, start)
		}
		seen, queue := map[string]bool{}, []State{first}
		for len(queue) > 0 {
			s := queue[0]
			queue = queue[1:]
			if a, ok := s.Concluded(); ok {
				if err := mine.Floor.Allows(a.Candidate); err != nil {
					t.Fatalf("%s accepted %v", role, err)
				}
				if a.Initiator.DID == a.Responder.DID {
					t.Fatal("an agreement with oneself")
				}
			}
			for _, m := range alphabet {
				for _, seq := range []int{s.NextSeq, s.NextSeq - 1} {
					if m.SequenceID = seq; seq < 0 {
						continue
					}
					next, _, err := Step(s, Receive{Message: m, SignerKID: signerOf(peer)}, mine, start.Add(time.Second))
					if err != nil {
						continue
					}
					if next.NextSeq > maxSequence+1 || next.NextSeq < s.NextSeq {
						t.Fatalf("nextSeq %d after %d", next.NextSeq, s.NextSeq)
					}
					if k := shape(next); !seen[k] {
						seen[k] = true
						queue = append(queue, next)
					}
				}
			}
		}
		if len(seen) < 50 || alphabet[2].Status != StatusAccepted {
			t.Fatalf("%s: only %d states seen", role, len(seen))
		}
		t.Logf("%s: %d states", role, len(seen))
	}
}

// shape is a state without the digests of its history, which would tell apart
// states that behave the same.
func shape(s State) string {
	seen := make([]string, len(s.Seen))
	for i, d := range s.Seen {
		seen[i] = d.String()
	}
	sort.Strings(seen)
	agreed := ""
	if s.Agreement != nil {
		agreed = fmt.Sprint(s.Agreement.Candidate, s.Agreement.ConcludedAt)
	}
	return fmt.Sprint(s.Phase, s.NextSeq, s.Peer.KeyAgreementKID, s.Offered, seen, agreed)
}
