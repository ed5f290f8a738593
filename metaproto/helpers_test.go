// SPDX-License-Identifier: Apache-2.0

package metaproto

import (
	"crypto/sha256"
	"encoding/json"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const contextID = "AAAAAAAAAAAAAAAAAAAAAA"

func config(t testing.TB, role Role) Config {
	t.Helper()
	id := func(name string) did.DID {
		seed := sha256.Sum256([]byte(name))
		k, err := did.NewPrivateKey(did.Ed25519, seed[:])
		if err != nil {
			t.Fatal(err)
		}
		d, err := did.Parse("did:wba:" + name + ".example:agents:steward:e1_" + k.Public().Thumbprint())
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	c := Config{Role: role, ContextID: contextID, Self: id("buyer"), Peer: id("vendor")}
	if role == Responder {
		c.Self, c.Peer = c.Peer, c.Self
	}
	c.SigningKID, c.KeyAgreementKID = signerOf(c.Self), c.Self.String()+"#kex-1"
	return c
}

func signerOf(d did.DID) string { return d.String() + "#signing-1" }

// policy returns one that allows the given transports and data planes and
// prefers the first of each.
func policy(transports, planes []string) Policy {
	p := DefaultPolicy()
	p.Floor.Transports, p.Floor.DataPlanes = transports, planes
	c := p.Preferences[0]
	c.Transport, c.DataPlane = transports[0], planes[0]
	p.Preferences = []Candidate{c}
	return p
}

func newState(t testing.TB, role Role, p Policy) State {
	t.Helper()
	s, err := New(config(t, role), p, start)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// must applies an event that may not fail, and checks what every step has to
// keep: the argument is untouched, the result survives JSON, the reply parses.
func must(t testing.TB, s State, ev Event, p Policy, now time.Time) (State, *Message) {
	t.Helper()
	next, reply, err := checked(t, s, ev, p, now)
	if err != nil {
		t.Fatalf("%T in phase %s: %v", ev, s.Phase, err)
	}
	return next, reply
}

func checked(t testing.TB, s State, ev Event, p Policy, now time.Time) (State, *Message, error) {
	t.Helper()
	before := encode(t, s)
	next, reply, err := Step(s, ev, p, now)
	if after := encode(t, s); after != before {
		t.Fatalf("%T changed its argument:\n%s\n%s", ev, before, after)
	}
	encoded := encode(t, next)
	if err != nil && encoded != before {
		t.Fatalf("%T failed and changed the state: %v", ev, err)
	}
	var back State
	if err := json.Unmarshal([]byte(encoded), &back); err != nil {
		t.Fatal(err)
	}
	if encode(t, back) != encoded {
		t.Fatalf("state does not survive JSON: %s", encoded)
	}
	if reply != nil {
		raw, err := reply.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := ParseMessage(raw)
		if err != nil {
			t.Fatalf("own message does not parse: %v\n%s", err, raw)
		}
		if !parsed.Digest().Equal(reply.Digest()) {
			t.Fatal("digest changes on the way")
		}
	}
	return back, reply, err
}

func encode(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func from(s State, m *Message) Receive {
	return Receive{Message: *m, SignerKID: s.Self.SigningKID}
}

// converse runs two sides over a perfect channel until both stop speaking.
func converse(t testing.TB, pi, pr Policy) (i, r State, messages int) {
	t.Helper()
	i, r = newState(t, Initiator, pi), newState(t, Responder, pr)
	i, m := must(t, i, Begin{}, pi, start)
	for m != nil {
		messages++
		if messages > maxSequence+1 {
			t.Fatalf("no end after %d messages", messages)
		}
		if r, m = must(t, r, from(i, m), pr, start.Add(time.Second)); m == nil {
			break
		}
		messages++
		i, m = must(t, i, from(r, m), pi, start.Add(time.Second))
	}
	return i, r, messages
}
