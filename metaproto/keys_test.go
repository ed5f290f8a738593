// SPDX-License-Identifier: Apache-2.0

package metaproto

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/hpke"
)

// keysOf are a side's keys for the suites, with session keys.
func keysOf(t testing.TB, c Config, suites ...hpke.Suite) []SuiteKey {
	t.Helper()
	var out []SuiteKey
	for _, s := range suites {
		k, err := did.NewPrivateKey(s.KeyType(), bytes.Repeat([]byte{byte(len(c.Role)), byte(len(s))}, 16))
		if err != nil {
			t.Fatal(err)
		}
		kid := c.KeyAgreementKID
		if s != hpke.SuiteX25519 {
			kid = c.Self.String() + "#kex-2"
		}
		out = append(out, NewSuiteKey(s, kid, k.Public()))
	}
	return out
}

func stateWith(t testing.TB, role Role, p Policy, change func([]SuiteKey) []SuiteKey) State {
	t.Helper()
	c := config(t, role)
	c.Keys = change(keysOf(t, c, hpke.SuiteXWing, hpke.SuiteX25519))
	s, err := New(c, p, start)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func all(k []SuiteKey) []SuiteKey { return k }

func without(suite hpke.Suite) func([]SuiteKey) []SuiteKey {
	return func(k []SuiteKey) []SuiteKey {
		return slices.DeleteFunc(k, func(k SuiteKey) bool { return k.Suite == suite })
	}
}

func documentsOnly(k []SuiteKey) []SuiteKey {
	for i := range k {
		k[i].Session = ""
	}
	return k
}

// The best that both sides have keys for is agreed, with the keys in it, and each key is said once.
func TestKeysAreAgreed(t *testing.T) {
	p := DefaultPolicy()
	for name, tc := range map[string]struct {
		i, r     func([]SuiteKey) []SuiteKey
		suite    hpke.Suite
		sessions string
		messages int
	}{
		"both have all":               {all, all, hpke.SuiteXWing, SessionKeysFresh, 2},
		"responder without X-Wing":    {all, without(hpke.SuiteXWing), hpke.SuiteX25519, SessionKeysFresh, 4},
		"initiator without X-Wing":    {without(hpke.SuiteXWing), all, hpke.SuiteX25519, SessionKeysFresh, 2},
		"responder with documents'":   {all, documentsOnly, hpke.SuiteXWing, SessionKeysNone, 4},
		"initiator with documents'":   {documentsOnly, all, hpke.SuiteXWing, SessionKeysNone, 2},
		"one without, the other none": {without(hpke.SuiteXWing), documentsOnly, hpke.SuiteX25519, SessionKeysNone, 4},
	} {
		t.Run(name, func(t *testing.T) {
			i, r := stateWith(t, Initiator, p, tc.i), stateWith(t, Responder, p, tc.r)
			i, m := must(t, i, Begin{}, p, start)
			said, n := 0, 0
			for toResponder := true; m != nil; toResponder = !toResponder {
				n++
				said += len(m.Keys)
				if toResponder {
					r, m = must(t, r, from(i, m), p, start)
				} else {
					i, m = must(t, i, from(r, m), p, start)
				}
			}
			if outcome(t, i, r) != PhaseAgreed || n != tc.messages {
				t.Fatalf("%s after %d messages: %s %s", i.Phase, n, i.Reason, r.Reason)
			}
			a, _ := i.Concluded()
			if a.Candidate.HPKESuite != tc.suite || a.Candidate.SessionKeys != tc.sessions {
				t.Errorf("%s, %s", a.Candidate.HPKESuite, a.Candidate.SessionKeys)
			}
			for _, party := range []Party{a.Initiator, a.Responder} {
				key, ok := a.Session(party)
				if ok != (tc.sessions == SessionKeysFresh) || ok && key.Type() != tc.suite.KeyType() || party.KeyAgreementKID == "" {
					t.Errorf("%+v: %v", party, key)
				}
			}
			if said > 4 {
				t.Errorf("%d keys were said", said)
			}
		})
	}
}

// A key is its side's own, of the suite's type, and stays what it was.
func TestInvariant3_KeysAreBound(t *testing.T) {
	p := DefaultPolicy()
	i := stateWith(t, Initiator, p, all)
	_, open := must(t, i, Begin{}, p, start)
	change := func(f func(*Message)) *Message {
		m := *open
		m.Keys = slices.Clone(open.Keys)
		f(&m)
		return &m
	}
	for name, m := range map[string]*Message{
		"twice":            change(func(m *Message) { m.Keys = append(m.Keys, m.Keys[0]) }),
		"too many":         change(func(m *Message) { m.Keys = append(m.Keys, make([]SuiteKey, 4)...) }),
		"no kid":           change(func(m *Message) { m.Keys[0].KID = "" }),
		"two X25519":       change(func(m *Message) { m.Keys[1].KID += "x" }),
		"of another suite": change(func(m *Message) { m.Keys[0].Session = m.Keys[1].Session }),
		"padded":           change(func(m *Message) { m.Keys[1].Session += "=" }),
		"small order":      change(func(m *Message) { m.Keys[1].Session = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" }),
		"not with text":    change(func(m *Message) { m.Candidates, m.KeyAgreementKID = nil, "" }),
	} {
		raw, err := m.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseMessage(raw); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A counter-proposal follows, and then an acceptance that exchanges a key, or comes without one.
	strict := policy([]string{TransportJSONRPC}, []string{DataPlane20251125})
	strict.Floor.HPKESuites = []hpke.Suite{hpke.SuiteXWing}
	strict.Preferences[0].HPKESuite = hpke.SuiteXWing
	r := stateWith(t, Responder, strict, all)
	text := Message{Action: Action, Status: StatusNegotiating, CandidateProtocols: "hello"}
	r, counter := must(t, r, Receive{text, signerOf(r.Peer.DID)}, strict, start)
	accept := Message{
		Action: Action, SequenceID: r.NextSeq, Status: StatusAccepted, Candidates: counter.Candidates[:1],
		KeyAgreementKID: open.KeyAgreementKID, Keys: open.Keys[:1], AcceptedAt: formatTime(start),
	}
	if next, _ := must(t, r, Receive{accept, signerOf(r.Peer.DID)}, strict, start); next.Phase != PhaseAccepted {
		t.Fatalf("%s: %s", next.Phase, next.Reason)
	}
	bare, foreign := accept, accept
	bare.Keys = nil
	foreign.Keys = slices.Clone(accept.Keys)
	foreign.Keys[0].KID = r.Self.DID.String() + "#kex-2"
	exchanged := stateWith(t, Responder, strict, all)
	exchanged, _ = must(t, exchanged, Receive{*change(func(m *Message) { m.Candidates[0].Transport = "mqtt"; m.Candidates = m.Candidates[:1] }), signerOf(r.Peer.DID)}, strict, start.Add(time.Second))
	other := accept
	other.Keys = []SuiteKey{NewSuiteKey(hpke.SuiteXWing, accept.Keys[0].KID, did.PublicKey{})}
	for name, tc := range map[string]struct {
		s State
		m Message
	}{"without a key": {r, bare}, "of another DID": {r, foreign}, "exchanged": {exchanged, other}} {
		if next, _ := must(t, tc.s, Receive{tc.m, signerOf(r.Peer.DID)}, strict, start.Add(time.Second)); next.Phase != PhaseRejected || next.Agreement != nil {
			t.Errorf("%s: %s", name, next.Phase)
		}
	}
}

func TestNewRefusesKeys(t *testing.T) {
	p := DefaultPolicy()
	for name, change := range map[string]func(*Config, *Policy){
		"of the peer":            func(c *Config, _ *Policy) { c.Keys[0].KID = c.Peer.String() + "#kex" },
		"without X25519":         func(c *Config, _ *Policy) { c.Keys = c.Keys[:1] },
		"another X25519":         func(c *Config, _ *Policy) { c.Keys[1].KID += "x" },
		"an unknown suite":       func(c *Config, _ *Policy) { c.Keys[0].Suite = "NULL" },
		"none that is allowed":   func(c *Config, p *Policy) { c.Keys = nil; p.Floor.HPKESuites = []hpke.Suite{hpke.SuiteXWing} },
		"no session key allowed": func(c *Config, p *Policy) { c.Keys[1].Session = ""; p.Floor.SessionKeys = []string{SessionKeysFresh} },
	} {
		c, p := config(t, Initiator), p
		c.Keys = keysOf(t, c, hpke.SuiteXWing, hpke.SuiteX25519)
		change(&c, &p)
		if _, err := New(c, p, start); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
