// SPDX-License-Identifier: Apache-2.0

package metaproto

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/treaty-node/treaty/did/canon"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestParseMessageRefuses(t *testing.T) {
	p := DefaultPolicy()
	_, open := must(t, newState(t, Initiator, p), Begin{}, p, start)
	raw, err := open.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	good := string(raw)
	text := `{"action":"protocolNegotiation","candidateProtocols":"JSON over HTTPS","modificationSummary":"","sequenceId":0,"status":"negotiating"}`
	for name, in := range map[string]string{"structured": good, "text only": text, "white space": " " + text} {
		if _, err := ParseMessage([]byte(in)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	replace := func(s, old, with string) string {
		if !strings.Contains(s, old) {
			t.Fatalf("%q is not in the message", old)
		}
		return strings.Replace(s, old, with, 1)
	}
	for name, in := range map[string]string{
		"empty":                     ``,
		"not an object":             `[]`,
		"truncated":                 good[:len(good)-1],
		"trailing data":             good + `{}`,
		"unknown member":            replace(text, `{`, `{"extra":1,`),
		"unknown candidate member":  replace(good, `"approval"`, `"extra":1,"approval"`),
		"duplicate member":          replace(text, `{`, `{"action":"protocolNegotiation",`),
		"case variant":              replace(text, `"action"`, `"Action"`),
		"case variant in candidate": replace(good, `"hpkeSuite"`, `"HPKESuite"`),
		"no action":                 replace(text, `"action":"protocolNegotiation",`, ``),
		"another action":            replace(text, `protocolNegotiation`, `codeGeneration`),
		"no sequenceId":             replace(text, `,"sequenceId":0`, ``),
		"no modificationSummary":    replace(text, `"modificationSummary":"",`, ``),
		"no candidateProtocols":     replace(text, `"candidateProtocols":"JSON over HTTPS",`, ``),
		"no status":                 replace(text, `,"status":"negotiating"`, ``),
		"unknown status":            replace(text, `"negotiating"`, `"agreed"`),
		"negative sequenceId":       replace(text, `"sequenceId":0`, `"sequenceId":-1`),
		"large sequenceId":          replace(text, `"sequenceId":0`, `"sequenceId":99`),
		"fractional sequenceId":     replace(text, `"sequenceId":0`, `"sequenceId":0.5`),
		"sequenceId a string":       replace(text, `"sequenceId":0`, `"sequenceId":"0"`),
		"null candidates":           replace(text, `{`, `{"candidates":null,`),
		"empty candidates":          replace(text, `{`, `{"candidates":[],`),
		"candidates without key":    replace(good, `"keyAgreementKid":"`+open.KeyAgreementKID+`",`, ``),
		"key without candidates":    replace(text, `{`, `{"keyAgreementKid":"x",`),
		"missing limit":             replace(good, `"maxOffers":16,`, ``),
		"limit zero":                replace(good, `"maxOffers":16`, `"maxOffers":0`),
		"limit huge":                replace(good, `"maxOffers":16`, `"maxOffers":1000001`),
		"missing term":              replace(good, `"approval":"none",`, ``),
		"empty term":                replace(good, `"approval":"none"`, `"approval":""`),
		"term with markup":          replace(good, `"approval":"none"`, `"approval":"<b>"`),
		"proposal with acceptance":  replace(text, `{`, `{"acceptedAt":"2026-03-01T12:00:00Z",`),
		"end with acceptance":       replace(replace(text, `negotiating`, `rejected`), `{`, `{"acceptedAt":"2026-03-01T12:00:00Z",`),
		"accepting without date":    replace(good, `"status":"negotiating"`, `"status":"accepted"`),
		"agreement malformed":       replace(text, `{`, `{"agreement":"sha-256:AA",`),
		"agreement empty":           replace(text, `{`, `{"agreement":"",`),
		"control characters":        replace(text, `JSON over`, `JSON\u0007over`),
		"direction override":        replace(text, `JSON over`, `JSON\u202eover`),
		"text too long":             replace(text, `JSON over HTTPS`, strings.Repeat("a", MaxText+1)),
		"10 MB":                     replace(text, `JSON over HTTPS`, strings.Repeat("a", 10<<20)),
		"10 000 deep":               strings.Repeat(`{"candidates":[`, 5000) + strings.Repeat(`]}`, 5000),
		"invalid UTF-8":             replace(text, `JSON over`, "JSON\xffover"),
		"byte order mark":           "\ufeff" + text,
	} {
		if m, err := ParseMessage([]byte(in)); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: got %+v, %v", name, m, err)
		}
	}
	many := *open
	for len(many.Candidates) <= MaxCandidates {
		many.Candidates = append(many.Candidates, many.Candidates[0])
	}
	raw, err = many.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseMessage(raw); !errors.Is(err, ErrMessage) {
		t.Errorf("too many candidates: %v", err)
	}
}

func TestAcceptanceNamesExactlyOneCandidate(t *testing.T) {
	c := DefaultPolicy().Preferences
	m := Message{Action: Action, Status: StatusAccepted, Candidates: c[:2], KeyAgreementKID: "k", AcceptedAt: formatTime(start)}
	raw, err := m.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseMessage(raw); !errors.Is(err, ErrMessage) {
		t.Fatalf("two candidates accepted: %v", err)
	}
}

// The sides want different things: the vendor counters, the buyer accepts, the
// vendor confirms. The files pin every byte of it.
func TestGoldenRounds(t *testing.T) {
	pi := policy([]string{TransportJSONRPC}, []string{DataPlane20260728, DataPlane20251125})
	pr := policy([]string{TransportJSONRPC}, []string{DataPlane20251125})
	i, r := newState(t, Initiator, pi), newState(t, Responder, pr)
	var rounds [][]byte
	add := func(m *Message) {
		raw, err := m.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		rounds = append(rounds, raw)
	}
	i, open := must(t, i, Begin{}, pi, start)
	add(open)
	r, counter := must(t, r, from(i, open), pr, start.Add(time.Second))
	add(counter)
	i, accept := must(t, i, from(r, counter), pi, start.Add(2*time.Second))
	add(accept)
	r, confirm := must(t, r, from(i, accept), pr, start.Add(3*time.Second))
	add(confirm)
	i, none := must(t, i, from(r, confirm), pi, start.Add(4*time.Second))
	if none != nil || i.Phase != PhaseAgreed || r.Phase != PhaseAccepted {
		t.Fatalf("%s, %s, %v", i.Phase, r.Phase, none)
	}
	if open.Status != StatusNegotiating || counter.Status != StatusNegotiating ||
		accept.Status != StatusAccepted || confirm.Status != StatusAccepted || confirm.Agreement.IsZero() {
		t.Fatal("not the expected rounds")
	}
	a, _ := i.Concluded()
	if len(a.Rounds) != 3 {
		t.Fatalf("%d rounds in the agreement, want those up to the first acceptance", len(a.Rounds))
	}
	if !confirm.Agreement.Equal(a.Digest()) {
		t.Fatal("the confirmation names another digest")
	}
	raw, err := a.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	rounds = append(rounds, raw, []byte(`"`+a.Digest().String()+`"`))
	got := append(bytes.Join(rounds, []byte("\n")), '\n')
	path := filepath.Join("testdata", "rounds.jsonl")
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s differs from\n%s", path, got)
	}
	if r, _ = must(t, r, Cited{a.Digest()}, pr, start.Add(5*time.Second)); r.Phase != PhaseAgreed {
		t.Fatalf("after the citation: %s", r.Phase)
	}
}

func TestResponderTakesItsBest(t *testing.T) {
	pi, pr := DefaultPolicy(), DefaultPolicy()
	slices.Reverse(pr.Preferences)
	i, r, n := converse(t, pi, pr)
	a, ok := r.Concluded()
	if !ok || n != 2 || !a.Candidate.Equal(pr.within(ownKeys(nil, "x")).Preferences[0]) || outcome(t, i, r) != PhaseAgreed {
		t.Fatalf("%d messages, %+v", n, a)
	}
}

func TestTextOnlyPeerGetsStructuredCounterProposal(t *testing.T) {
	p := DefaultPolicy()
	r := newState(t, Responder, p)
	peer := signerOf(r.Peer.DID)
	say := func(s State, text string, status Status) (State, *Message) {
		m := Message{Action: Action, SequenceID: s.NextSeq, Status: status, CandidateProtocols: text}
		return must(t, s, Receive{m, peer}, p, start.Add(time.Second))
	}
	r, reply := say(r, "Could we speak SOAP?", StatusNegotiating)
	if reply.Status != StatusNegotiating || len(reply.Candidates) == 0 || reply.CandidateProtocols != Describe(reply.Candidates) {
		t.Fatalf("no structured counter-proposal: %+v", reply)
	}
	again, end := say(r, "Could we speak SOAP?", StatusNegotiating)
	if end.Status != StatusRejected || again.Phase != PhaseRejected {
		t.Fatalf("repetition: %+v", end)
	}
	// Text alone accepts nothing, and other words do not go on for ever.
	s := r
	for n := range MaxRounds {
		var m *Message
		s, m = say(s, strings.Repeat("Yes! ", n+1), StatusAccepted)
		if _, ok := s.Concluded(); ok {
			t.Fatal("text was taken for an acceptance")
		}
		if m.Status != StatusNegotiating {
			break
		}
	}
	if s.Phase != PhaseRejected {
		t.Fatalf("phase %s", s.Phase)
	}
	// The peer can still turn to the structured list.
	c := reply.Candidates[1]
	m := Message{
		Action: Action, SequenceID: r.NextSeq, Status: StatusAccepted, Candidates: []Candidate{c},
		KeyAgreementKID: r.Peer.DID.String() + "#kex", AcceptedAt: formatTime(start),
	}
	if s, _ := must(t, r, Receive{m, peer}, p, start.Add(time.Second)); s.Phase != PhaseAccepted || !s.Agreement.Candidate.Equal(c) {
		t.Fatalf("phase %s", s.Phase)
	}
}

// accepting returns a responder that has countered and an acceptance for it.
func accepting(t *testing.T) (State, Policy, Message) {
	t.Helper()
	p := policy([]string{TransportJSONRPC}, []string{DataPlane20251125})
	s := newState(t, Responder, p)
	s, counter := must(t, s, Receive{Message{Action: Action, Status: StatusNegotiating}, signerOf(s.Peer.DID)}, p, start)
	return s, p, Message{
		Action: Action, SequenceID: s.NextSeq, Status: StatusAccepted, Candidates: counter.Candidates[:1],
		KeyAgreementKID: s.Peer.DID.String() + "#kex", AcceptedAt: formatTime(start),
	}
}

func TestInvariant3_AcceptanceIsBound(t *testing.T) {
	s, p, good := accepting(t)
	peer := signerOf(s.Peer.DID)
	if next, _ := must(t, s, Receive{good, peer}, p, start); next.Phase != PhaseAccepted {
		t.Fatalf("phase %s", next.Phase)
	}
	for name, change := range map[string]func(m *Message, p *Policy){
		"other data plane": func(m *Message, _ *Policy) { m.Candidates[0].DataPlane = DataPlane20250618 },
		"other suite":      func(m *Message, _ *Policy) { m.Candidates[0].HPKESuite = "NULL" },
		"other limit":      func(m *Message, _ *Policy) { m.Candidates[0].Limits.MaxOffers++ },
		"floor was raised": func(_ *Message, p *Policy) {
			p.Floor.DataPlanes = []string{DataPlane20260728}
			p.Preferences = []Candidate{p.Preferences[0]}
			p.Preferences[0].DataPlane = DataPlane20260728
		},
		"dated long ago":            func(m *Message, _ *Policy) { m.AcceptedAt = formatTime(start.Add(-time.Hour)) },
		"dated in the future":       func(m *Message, _ *Policy) { m.AcceptedAt = formatTime(start.Add(time.Hour)) },
		"names an agreement itself": func(m *Message, _ *Policy) { m.Agreement = canon.Sum([]byte("x")) },
		"key of another DID":        func(m *Message, _ *Policy) { m.KeyAgreementKID = s.Self.KeyAgreementKID },
	} {
		t.Run(name, func(t *testing.T) {
			m, p := good, p
			m.Candidates = slices.Clone(good.Candidates)
			change(&m, &p)
			next, reply := must(t, s, Receive{m, peer}, p, start)
			if next.Phase != PhaseRejected || reply.Status != StatusRejected || next.Agreement != nil {
				t.Fatalf("phase %s, reply %+v", next.Phase, reply)
			}
		})
	}
}

func TestStepErrorsLeaveTheState(t *testing.T) {
	s, p, good := accepting(t)
	peer := signerOf(s.Peer.DID)
	with := func(f func(*Message)) Message { m := good; f(&m); return m }
	done, _ := must(t, s, Receive{good, peer}, p, start)
	ended, _ := must(t, s, Receive{Message{Action: Action, SequenceID: s.NextSeq, Status: StatusRejected}, peer}, p, start)
	fresh, unknown := newState(t, Initiator, p), s
	unknown.Version = 9
	for name, tc := range map[string]struct {
		s    State
		ev   Event
		want error
	}{
		"own signer":             {s, Receive{good, s.Self.SigningKID}, ErrSigner},
		"another key of the DID": {s, Receive{good, s.Peer.DID.String() + "#other"}, ErrSigner},
		"no signer":              {s, Receive{good, ""}, ErrSigner},
		"too early":              {s, Receive{with(func(m *Message) { m.SequenceID++ }), peer}, ErrOutOfOrder},
		"too late":               {s, Receive{with(func(m *Message) { m.SequenceID-- }), peer}, ErrOutOfOrder},
		"malformed":              {s, Receive{with(func(m *Message) { m.Action = "x" }), peer}, ErrMessage},
		"responder begins":       {s, Begin{}, ErrEvent},
		"nothing to cite":        {s, Cited{canon.Sum(nil)}, ErrEvent},
		"cites another":          {done, Cited{canon.Sum(nil)}, ErrEvent},
		"cites nothing":          {done, Cited{}, ErrEvent},
		"goes on after the end":  {ended, Receive{with(func(m *Message) { m.SequenceID = ended.NextSeq }), peer}, ErrEnded},
		"goes on after agreeing": {done, Receive{with(func(m *Message) { m.SequenceID = done.NextSeq }), peer}, ErrEvent},
		"speaks before we do":    {fresh, Receive{Message{Action: Action, Status: StatusNegotiating}, signerOf(fresh.Peer.DID)}, ErrOutOfOrder},
		"no event":               {s, nil, ErrEvent},
		"unknown state version":  {unknown, Tick{}, ErrConfig},
	} {
		t.Run(name, func(t *testing.T) {
			if _, reply, err := checked(t, tc.s, tc.ev, p, start); !errors.Is(err, tc.want) || reply != nil {
				t.Fatalf("got %v, %v; want %v", reply, err, tc.want)
			}
		})
	}
	if _, _, err := Step(s, Tick{}, Policy{}, start); err == nil {
		t.Fatal("a policy without preferences was used")
	}
}

func TestInvariant8_DuplicateGetsTheSameAnswer(t *testing.T) {
	s, p, good := accepting(t)
	ev := Receive{good, signerOf(s.Peer.DID)}
	once, first := must(t, s, ev, p, start)
	twice, second := must(t, once, ev, p, start.Add(time.Hour))
	if encode(t, once) != encode(t, twice) || !first.Digest().Equal(second.Digest()) {
		t.Fatal("a second delivery had an effect")
	}
}

func TestTimeLimit(t *testing.T) {
	p := DefaultPolicy()
	p.TimeLimit = time.Minute
	i, r := newState(t, Initiator, p), newState(t, Responder, p)
	if s, _ := must(t, i, Begin{}, p, start.Add(time.Minute)); s.Phase != PhaseTimeout {
		t.Fatalf("begun too late: %s", s.Phase)
	}
	i, open := must(t, i, Begin{}, p, start.Add(time.Minute-time.Nanosecond))
	if s, _ := must(t, i, Tick{}, p, start.Add(time.Minute-time.Nanosecond)); s.Phase != PhaseNegotiating {
		t.Fatalf("ended early: %s", s.Phase)
	}
	s, reply := must(t, r, from(i, open), p, start.Add(time.Minute))
	if s.Phase != PhaseTimeout || reply.Status != StatusTimeout {
		t.Fatalf("answered too late: %s, %+v", s.Phase, reply)
	}
	if i, none := must(t, i, from(s, reply), p, start.Add(time.Minute)); i.Phase != PhaseTimeout || none != nil {
		t.Fatalf("initiator: %s", i.Phase)
	}
}

func TestAgreementUsable(t *testing.T) {
	i, _, _ := converse(t, DefaultPolicy(), DefaultPolicy())
	a, ok := i.Concluded()
	if !ok {
		t.Fatal("no agreement")
	}
	floor := DefaultPolicy().Floor
	if err := a.Usable(floor, start.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := a.Usable(floor, a.Expires()); !errors.Is(err, ErrExpired) {
		t.Fatalf("expired: %v", err)
	}
	floor.Transports = []string{"pigeon"}
	if err := a.Usable(floor, start); !errors.Is(err, ErrBelowFloor) {
		t.Fatalf("floor raised: %v", err)
	}
	own, peer, ok := a.Sides(i.Self.DID)
	if !ok || own != i.Self || peer != i.Peer {
		t.Fatal("sides are mixed up")
	}
	broken := *a
	broken.ExpiresAt = "soon"
	if err := broken.Usable(floor, start); !errors.Is(err, ErrExpired) {
		t.Fatalf("unreadable end: %v", err)
	}
}

// Every member of an agreement counts in its digest.
func TestInvariant3_AgreementDigestCoversEverything(t *testing.T) {
	i, _, _ := converse(t, DefaultPolicy(), DefaultPolicy())
	a, _ := i.Concluded()
	base := a.Digest()
	for name, change := range map[string]func(*Agreement){
		"contextId":       func(a *Agreement) { a.ContextID = "BBBBBBBBBBBBBBBBBBBBBB" },
		"roles":           func(a *Agreement) { a.Initiator, a.Responder = a.Responder, a.Initiator },
		"signing key":     func(a *Agreement) { a.Responder.SigningKID += "x" },
		"kex key":         func(a *Agreement) { a.Initiator.KeyAgreementKID += "x" },
		"session key":     func(a *Agreement) { a.Initiator.SessionKey = "x" },
		"candidate":       func(a *Agreement) { a.Candidate.Transport = "x" },
		"limits":          func(a *Agreement) { a.Candidate.Limits.MaxRounds++ },
		"a round":         func(a *Agreement) { a.Rounds = slices.Clone(a.Rounds); a.Rounds[0][0] ^= 1 },
		"a round less":    func(a *Agreement) { a.Rounds = a.Rounds[:1] },
		"date":            func(a *Agreement) { a.ConcludedAt = a.ExpiresAt },
		"end":             func(a *Agreement) { a.ExpiresAt = a.ConcludedAt },
		"version of form": func(a *Agreement) { a.Version++ },
	} {
		changed := *a
		change(&changed)
		if changed.Digest().Equal(base) {
			t.Errorf("%s does not count", name)
		}
	}
}

func TestPolicyValidate(t *testing.T) {
	if err := DefaultPolicy().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Policy){
		"no preferences":       func(p *Policy) { p.Preferences = nil },
		"preference below":     func(p *Policy) { p.Floor.Transports = []string{TransportHTTPJSON} },
		"empty term":           func(p *Policy) { p.Floor.Approvals = nil },
		"repeated value":       func(p *Policy) { p.Floor.Encodings = []string{"json", "json"} },
		"value is no token":    func(p *Policy) { p.Floor.Encodings = []string{"json", "a b"} },
		"too many values":      func(p *Policy) { p.Floor.Encodings = tokens(40) },
		"too many rounds":      func(p *Policy) { p.MaxRounds = MaxRounds + 1 },
		"one round":            func(p *Policy) { p.MaxRounds = 1 },
		"negative time":        func(p *Policy) { p.TimeLimit = -1 },
		"endless time":         func(p *Policy) { p.TimeLimit = MaxTimeLimit + 1 },
		"limits outside range": func(p *Policy) { p.Floor.LimitsMax.MaxOffers = 1 },
	} {
		p := DefaultPolicy()
		change(&p)
		if p.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func tokens(n int) []string {
	out := []string{"json"}
	for i := range n {
		out = append(out, strings.Repeat("x", i+1))
	}
	return out
}

// Two sides that can meet do meet, in few rounds; two that cannot, part. The
// result is the same whichever way the policies are drawn.
func TestConvergesWhereFloorsMeet(t *testing.T) {
	values := []string{"a", "b", "c", "d"}
	drawList := func(rt *rapid.T, name string) []string {
		list := rapid.Permutation(values).Draw(rt, name)
		return list[:rapid.IntRange(1, len(list)).Draw(rt, name+" length")]
	}
	drawPolicy := func(rt *rapid.T, name string) Policy {
		p := DefaultPolicy()
		f := &p.Floor
		for i, list := range []*[]string{&f.ContractSchemas, &f.Transports, &f.DataPlanes, &f.Approvals, &f.Encodings} {
			*list = drawList(rt, name+termNames[i])
		}
		lo := rapid.IntRange(1, 50).Draw(rt, name+" low")
		hi := rapid.IntRange(lo, 60).Draw(rt, name+" high")
		f.LimitsMin.MaxOffers, f.LimitsMax.MaxOffers = lo, hi
		for range rapid.IntRange(1, 3).Draw(rt, name+" preferences") {
			limits := p.Preferences[0].Limits
			limits.MaxOffers = rapid.IntRange(lo, hi).Draw(rt, name+" offers")
			var v [numTerms]string
			for t, list := range f.lists() {
				v[t] = rapid.SampledFrom(list).Draw(rt, name+" preference "+termNames[t])
			}
			p.Preferences = append(p.Preferences, candidateOf(v, limits))
		}
		p.Preferences = p.Preferences[len(DefaultPolicy().Preferences):]
		return p
	}
	rapid.Check(t, func(rt *rapid.T) {
		pi, pr := drawPolicy(rt, "initiator "), drawPolicy(rt, "responder ")
		meet := pi.Floor.LimitsMin.MaxOffers <= pr.Floor.LimitsMax.MaxOffers &&
			pr.Floor.LimitsMin.MaxOffers <= pi.Floor.LimitsMax.MaxOffers
		other := pr.Floor.lists()
		for k, list := range pi.Floor.lists() {
			meet = meet && slices.ContainsFunc(list, func(v string) bool { return slices.Contains(other[k], v) })
		}
		i, r, n := converse(t, pi, pr)
		got := outcome(t, i, r)
		if meet && got != PhaseAgreed || !meet && got != PhaseRejected {
			rt.Fatalf("meet %v, outcome %s after %d messages: %s", meet, got, n, i.Reason+" / "+r.Reason)
		}
		if a, ok := i.Concluded(); ok {
			if err := errors.Join(pi.Floor.Allows(a.Candidate), pr.Floor.Allows(a.Candidate)); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

func TestNewRefuses(t *testing.T) {
	good := config(t, Initiator)
	for name, change := range map[string]func(*Config){
		"role":              func(c *Config) { c.Role = "observer" },
		"no context":        func(c *Config) { c.ContextID = "" },
		"same party twice":  func(c *Config) { c.Peer = c.Self },
		"no keys":           func(c *Config) { c.SigningKID = "" },
		"key of the peer's": func(c *Config) { c.KeyAgreementKID = c.Peer.String() + "#kex" },
	} {
		c := good
		change(&c)
		if _, err := New(c, DefaultPolicy(), start); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParseRound(f *testing.F) {
	p := DefaultPolicy()
	i, open := must(f, newState(f, Initiator, p), Begin{}, p, start)
	raw, err := open.Canonical()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	_, answer := must(f, newState(f, Responder, p), from(i, open), p, start)
	if raw, err = answer.Canonical(); err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"action":"protocolNegotiation","candidateProtocols":"","modificationSummary":"","sequenceId":0,"status":"timeout"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseMessage(data)
		if err != nil {
			return
		}
		out, err := m.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseMessage(out)
		if err != nil || !again.Digest().Equal(m.Digest()) {
			t.Fatalf("%s: %v", out, err)
		}
		// Whatever parses can be answered, and never leads below the floor.
		for _, role := range []Role{Initiator, Responder} {
			s := newState(t, role, p)
			if role == Initiator {
				s, _ = must(t, s, Begin{}, p, start)
			}
			s, _, err := checked(t, s, Receive{m, signerOf(s.Peer.DID)}, p, start)
			if a, ok := s.Concluded(); err == nil && ok && p.Floor.Allows(a.Candidate) != nil {
				t.Fatalf("accepted %+v", a.Candidate)
			}
		}
	})
}
