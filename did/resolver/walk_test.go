// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
)

// line is a subject's DIDs one after the other, with the documents that each of
// them has while it is active and afterwards.
type line struct {
	t        testing.TB
	recovery did.PrivateKey
	ids      []identity
	active   [][]byte
}

// newLine makes n e1_ DIDs that follow one another, on top of first if it is
// given.
func newLine(t testing.TB, n int, first ...identity) *line {
	t.Helper()
	l := &line{t: t, recovery: newKey(t, did.Ed25519)}
	for len(l.ids) < n {
		i := newE1(t)
		if k := len(l.ids); k < len(first) {
			i = first[k]
		}
		var edits []func(*did.DocumentSpec)
		if k := len(l.ids); k > 0 {
			edits = append(edits, succeeding(t, l.ids[k-1].id))
		}
		edits = append(edits, func(s *did.DocumentSpec) { s.Recovery = []did.MethodSpec{{Key: l.recovery.Public()}} })
		l.ids = append(l.ids, i)
		l.active = append(l.active, i.signed(t, ago(3*time.Hour), edits...))
	}
	return l
}

func succeeding(t testing.TB, old did.DID) func(*did.DocumentSpec) {
	return func(s *did.DocumentSpec) {
		next, err := s.Succeeding(old)
		if err != nil {
			t.Fatal(err)
		}
		*s = next
	}
}

func (l *line) id(k int) did.DID { return l.ids[k].id }

// gone is document k, deactivated in favour of next, by the binding key or the
// recovery key.
func (l *line) gone(k int, next did.DID, by string, created time.Time) []byte {
	l.t.Helper()
	key := l.ids[k].key
	if by == "recovery" {
		key = l.recovery
	}
	s, err := did.NewSigner(did.KeyID(l.id(k), by, key.Public()), key)
	if err != nil {
		l.t.Fatal(err)
	}
	raw, err := did.Deactivate(l.t.Context(), l.active[k], next, s, created, did.DialectSpec)
	if err != nil {
		l.t.Fatal(err)
	}
	return raw
}

// publish serves every document of the line: all but the last deactivated.
func (l *line) publish(w *world) {
	l.t.Helper()
	last := len(l.ids) - 1
	for k := range last {
		w.publish(l.id(k), l.gone(k, l.id(k+1), "signing", ago(2*time.Hour)))
	}
	w.publish(l.id(last), l.active[last])
}

// pin shows the resolver every document of the line while it was active.
func (l *line) pin(w *world) {
	l.t.Helper()
	for k := range l.ids {
		w.publish(l.id(k), l.active[k])
		w.want(l.id(k), "")
	}
	w.fresh()
}

// wantChain walks from id and expects to arrive at end.
func (w *world) wantChain(id, end did.DID, hops int, want did.Assurance) *Chain {
	w.t.Helper()
	c, err := w.r.Walk(w.t.Context(), id)
	if err != nil {
		w.t.Fatalf("Walk: %v", err)
	}
	if c.Start != id || c.Current.ID() != end || len(c.Hops) != hops || c.Assurance != want {
		w.t.Fatalf("Walk: %d hops from %s to %s, %q; want %d to %s, %q", len(c.Hops), c.Start, c.Current.ID(), c.Assurance, hops, end, want)
	}
	at := id
	for _, hop := range c.Hops {
		if hop.From != at || hop.Assurance == "" {
			w.t.Fatalf("Walk: %+v does not begin at %s", hop, at)
		}
		at = hop.To
	}
	if at != end {
		w.t.Fatalf("Walk: the hops end at %s", at)
	}
	return c
}

// wantNoChain walks from id and expects the code at the DID.
func (w *world) wantNoChain(id, at did.DID, code Code) *Error {
	w.t.Helper()
	before := w.remembered()
	c, err := w.r.Walk(w.t.Context(), id)
	var e *Error
	if c != nil || !errors.As(err, &e) || e.Code != code || e.DID != at {
		w.t.Fatalf("Walk: %+v, %v; want %s at %s", c, err, code, at)
	}
	if after := w.remembered(); after > before {
		w.t.Fatalf("a chain that failed is remembered")
	}
	return e
}

func (w *world) remembered() int {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	return w.r.chains.lru.Len()
}

func TestWalk(t *testing.T) {
	for n := range MaxHops + 1 {
		for _, pinned := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d hops, pinned %v", n, pinned), func(t *testing.T) {
				w, l := newWorld(t), newLine(t, n+1)
				if pinned {
					l.pin(w)
				}
				l.publish(w)
				c := w.wantChain(l.id(0), l.id(n), n, did.AssuranceVerified)
				if c.Cached {
					t.Error("cached at first")
				}
				for k, hop := range c.Hops {
					if hop.ProofKeyID != did.KeyID(l.id(k), "signing", l.ids[k].key.Public()) || hop.Created != ago(2*time.Hour) || hop.Document.IsZero() {
						t.Errorf("%+v", hop)
					}
				}
				before := w.total.Load()
				if c := w.wantChain(l.id(0), l.id(n), n, did.AssuranceVerified); c.Cached != (n > 0) || w.total.Load() != before {
					t.Errorf("again: cached %v, %d fetches", c.Cached, w.total.Load()-before)
				}
				if n > 0 {
					w.wantChain(l.id(n-1), l.id(n), 1, did.AssuranceVerified) // from half-way
				}
			})
		}
	}
}

func TestWalkFromK1(t *testing.T) {
	k1 := newK1(t)
	w, l := newWorld(t), newLine(t, 3, k1)
	l.publish(w)
	w.wantChain(k1.id, l.id(2), 2, did.AssuranceVerified)
}

// Nobody signed, but the domain says so all along: shown, never remembered, and
// it moves nothing.
func TestWalkUnsigned(t *testing.T) {
	a, b := newK1(t), newK1(t)
	w, l := newWorld(t), newLine(t, 3, a, b)
	l.publish(w)
	w.publish(a.id, a.unsigned(t, deactivated(b.id)))
	if c := w.wantChain(a.id, l.id(2), 2, did.AssuranceProviderAsserted); c.Hops[0].Assurance.Moves() || !c.Hops[1].Assurance.Moves() || c.Hops[0].ProofKeyID != "" {
		t.Errorf("%+v", c.Hops)
	}
	if w.remembered() != 0 {
		t.Error("remembered")
	}
	// With nothing proved at the end either, it is a claim.
	w, l = newWorld(t), newLine(t, 2, a, b)
	w.publish(a.id, a.unsigned(t, deactivated(b.id)))
	w.publish(b.id, b.unsigned(t, succeeding(t, a.id)))
	w.wantChain(a.id, b.id, 1, did.AssuranceUnverified)
	w.publish(a.id, l.gone(0, b.id, "signing", ago(time.Hour)))
	w.fresh()
	w.wantChain(a.id, b.id, 1, did.AssuranceUnverified)
	if w.remembered() != 0 {
		t.Error("remembered")
	}
	// An e1_ document needs its proof, deactivated or not.
	w, l = newWorld(t), newLine(t, 2)
	l.publish(w)
	w.publish(l.id(0), l.ids[0].unsigned(t, deactivated(l.id(1))))
	w.wantNoChain(l.id(0), l.id(0), CodeBadProof)
}

func TestWalkRecovery(t *testing.T) {
	gone := func(l *line, k int) []byte { return l.gone(k, l.id(k+1), "recovery", ago(time.Hour)) }
	t.Run("pinned", func(t *testing.T) {
		w, l := newWorld(t), newLine(t, 2)
		l.pin(w)
		l.publish(w)
		w.publish(l.id(0), gone(l, 0))
		w.wantChain(l.id(0), l.id(1), 1, did.AssuranceRecoveryVerified)
		w.fresh()
		w.restart() // now the deactivated version is the pinned one
		w.wantChain(l.id(0), l.id(1), 1, did.AssuranceRecoveryVerified)
	})
	t.Run("in the middle", func(t *testing.T) {
		w, l := newWorld(t), newLine(t, 4)
		l.pin(w)
		l.publish(w)
		w.publish(l.id(1), gone(l, 1))
		c := w.wantChain(l.id(0), l.id(3), 3, did.AssuranceRecoveryVerified)
		for k, want := range []did.Assurance{did.AssuranceVerified, did.AssuranceRecoveryVerified, did.AssuranceVerified} {
			if c.Hops[k].Assurance != want {
				t.Errorf("hop %d: %s", k, c.Hops[k].Assurance)
			}
		}
		if !w.wantChain(l.id(0), l.id(3), 3, did.AssuranceRecoveryVerified).Cached {
			t.Error("not remembered")
		}
	})
	t.Run("never seen before", func(t *testing.T) {
		w, l := newWorld(t), newLine(t, 2)
		l.publish(w)
		w.publish(l.id(0), gone(l, 0))
		w.wantNoChain(l.id(0), l.id(0), CodeBadProof)
	})
	t.Run("a key that came with the deactivation", func(t *testing.T) {
		w, l := newWorld(t), newLine(t, 2)
		l.publish(w) // pinned in this form, recovery key and all
		w.wantChain(l.id(0), l.id(1), 1, did.AssuranceVerified)
		w.fresh()
		w.publish(l.id(0), gone(l, 0))
		w.wantNoChain(l.id(0), l.id(0), CodeBadProof)
	})
	t.Run("a key that was pinned once", func(t *testing.T) {
		w, l := newWorld(t), newLine(t, 2)
		l.pin(w)
		w.publish(l.id(0), l.ids[0].signed(t, ago(150*time.Minute))) // without it
		w.want(l.id(0), "")
		w.fresh()
		l.publish(w)
		w.publish(l.id(0), gone(l, 0))
		w.wantNoChain(l.id(0), l.id(0), CodeBadProof)
	})
}

func TestWalkRefuses(t *testing.T) {
	elsewhere := func(path string) identity {
		key := newKey(t, did.Ed25519)
		return identity{parse(t, "did:wba:"+path+":e1_"+key.Public().Thumbprint()), key}
	}
	otherPath, otherDomain, otherPort := elsewhere(domain+":agents:other"), elsewhere("evil.test:agents:steward"), elsewhere(domain+"%3A8443:agents:steward")
	k1 := newK1(t)
	// leads makes document 0 name id as its successor, whatever the builders say.
	leads := func(l *line, id did.DID) []byte { return l.ids[0].signed(t, ago(time.Hour), deactivated(id)) }
	for name, tc := range map[string]struct {
		change func(w *world, l *line)
		at     int
		want   Code
	}{
		"another path":        {func(w *world, l *line) { w.publish(l.id(0), leads(l, otherPath.id)) }, 0, CodeTransitionInvalid},
		"another domain":      {func(w *world, l *line) { w.publish(l.id(0), leads(l, otherDomain.id)) }, 0, CodeTransitionInvalid},
		"another port":        {func(w *world, l *line) { w.publish(l.id(0), leads(l, otherPort.id)) }, 0, CodeTransitionInvalid},
		"a weaker profile":    {func(w *world, l *line) { w.publish(l.id(0), leads(l, k1.id)) }, 0, CodeTransitionInvalid},
		"the bare domain":     {func(w *world, l *line) { w.publish(l.id(0), leads(l, parse(t, "did:wba:"+domain))) }, 0, CodeTransitionInvalid},
		"itself":              {func(w *world, l *line) { w.publish(l.id(0), leads(l, l.id(0))) }, 0, CodeTransitionInvalid},
		"skipping one":        {func(w *world, l *line) { w.publish(l.id(0), leads(l, l.id(2))) }, 0, CodeTransitionInvalid},
		"a circle":            {func(w *world, l *line) { w.publish(l.id(2), l.gone(2, l.id(0), "signing", ago(time.Hour))) }, 0, CodeTransitionConflict},
		"a circle further on": {func(w *world, l *line) { w.publish(l.id(2), l.gone(2, l.id(1), "signing", ago(time.Hour))) }, 1, CodeTransitionConflict},
		"no end":              {func(w *world, l *line) { w.publish(l.id(2), l.gone(2, did.DID{}, "signing", ago(time.Hour))) }, 2, CodeDeactivated},
		"the first is gone":   {func(w *world, l *line) { w.serve(l.id(0), http.NotFound) }, 0, CodeNotFound},
		"one is gone":         {func(w *world, l *line) { w.serve(l.id(1), http.NotFound) }, 1, CodeNotFound},
		"the last is gone":    {func(w *world, l *line) { w.serve(l.id(2), http.NotFound) }, 2, CodeNotFound},
		"active again": {func(w *world, l *line) {
			w.want(l.id(0), CodeDeactivated)
			w.fresh()
			w.publish(l.id(0), l.ids[0].signed(t, ago(time.Hour)))
		}, 0, CodeReactivated},
		"an older document": {func(w *world, l *line) {
			w.want(l.id(0), CodeDeactivated)
			w.fresh()
			w.publish(l.id(0), l.gone(0, l.id(1), "signing", ago(150*time.Minute)))
		}, 0, CodeRollback},
		"proof by another": {func(w *world, l *line) {
			w.publish(l.id(0), sign(t, l.ids[0].unsigned(t, deactivated(l.id(1))), l.id(0), l.ids[1].key, "signing", ago(time.Hour)))
		}, 0, CodeBadProof},
		"a silent successor": {func(w *world, l *line) { w.publish(l.id(2), l.ids[2].signed(t, ago(time.Hour))) }, 1, CodeTransitionInvalid},
		"successor of another": {func(w *world, l *line) {
			w.publish(l.id(1), l.ids[1].signed(t, ago(time.Hour), succeeding(t, newE1(t).id)))
		}, 0, CodeTransitionInvalid},
		"successor unproved": {func(w *world, l *line) { w.publish(l.id(2), l.ids[2].unsigned(t, succeeding(t, l.id(1)))) }, 2, CodeBadProof},
		"policy": {func(w *world, l *line) {
			w.r.o.Admit = func(id did.DID) error {
				if id == l.id(1) {
					return errors.New("denied")
				}
				return nil
			}
		}, 1, CodeNotAdmitted},
	} {
		t.Run(name, func(t *testing.T) {
			w, l := newWorld(t), newLine(t, 3)
			l.publish(w)
			tc.change(w, l)
			e := w.wantNoChain(l.id(0), l.id(tc.at), tc.want)
			if tc.want == CodeTransitionInvalid && !errors.Is(e, did.ErrSuccession) || tc.want == CodeTransitionConflict && !errors.Is(e, did.ErrConflict) {
				t.Errorf("%v", e)
			}
			if tc.want == CodeNotAdmitted && w.fetches(l.id(1)) != 0 {
				t.Error("asked before the policy was")
			}
			for _, i := range []identity{otherPath, otherDomain, otherPort, k1} {
				if w.fetches(i.id) != 0 {
					t.Errorf("%s was fetched", i.id)
				}
			}
			if tc.want != CodeDeactivated && w.remembered() != 0 {
				t.Error("part of the chain is remembered")
			}
		})
	}
}

func TestWalkIsBounded(t *testing.T) {
	w, l := newWorld(t), newLine(t, MaxHops+2)
	l.publish(w)
	e := w.wantNoChain(l.id(0), l.id(MaxHops+1), CodeTransitionInvalid)
	if !errors.Is(e, did.ErrSuccession) || w.fetches(l.id(MaxHops+1)) != 0 {
		t.Errorf("%v, %d fetches of the ninth successor", e, w.fetches(l.id(MaxHops+1)))
	}
	w.wantChain(l.id(1), l.id(MaxHops+1), MaxHops, did.AssuranceVerified)
}

// Unknown DIDs on the way cost the source that asks as much as any others.
func TestWalkHasABudget(t *testing.T) {
	w := newWorld(t, func(w *world) { w.o.SourceBudget = Budget{Burst: 2, Every: time.Hour} })
	l := newLine(t, 3)
	l.publish(w)
	w.wantNoChain(l.id(0), l.id(2), CodeBudget)
}

// A 409 body, wherever it comes from, is never where a walk goes.
func TestWalkIgnoresHints(t *testing.T) {
	w, l, evil := newWorld(t), newLine(t, 2), newE1(t)
	hint, err := did.SupersededBody(l.id(0), evil.id)
	if err != nil {
		t.Fatal(err)
	}
	w.publish(evil.id, evil.signed(t, ago(time.Hour), succeeding(t, l.id(0))))
	w.serve(l.id(0), func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusConflict)
		_, _ = rw.Write(hint)
	})
	w.wantNoChain(l.id(0), l.id(0), CodeUnreachable)
	w.fresh()
	l.publish(w)
	w.wantChain(l.id(0), l.id(1), 1, did.AssuranceVerified)
	// Not even of the one who claims to follow.
	w.wantChain(evil.id, evil.id, 0, did.AssuranceVerified)
	if n := w.fetches(evil.id); n != 1 {
		t.Errorf("%d fetches of the hinted DID", n)
	}
}

// One DID with two successors: nothing moves until an operator has chosen, and the
// chain walked before is forgotten when they have.
func TestWalkFork(t *testing.T) {
	w, l, other := newWorld(t), newLine(t, 2), newE1(t)
	l.publish(w)
	w.publish(other.id, other.signed(t, ago(time.Hour), succeeding(t, l.id(0))))
	w.wantChain(l.id(0), l.id(1), 1, did.AssuranceVerified)

	w.publish(l.id(0), l.gone(0, other.id, "signing", ago(time.Hour)))
	w.fresh()
	e := w.wantNoChain(l.id(0), l.id(0), CodeSuccessorChanged)
	want := did.Conflict{DID: l.id(0), Pinned: l.id(1), Observed: other.id, PinnedBy: did.AssuranceVerified, ObservedBy: did.AssuranceVerified}
	if e.Conflict == nil || *e.Conflict != want || e.Conflict.RecoveryWins() || !errors.Is(e, did.ErrConflict) || e.Hash.IsZero() {
		t.Errorf("%+v, %+v", e, e.Conflict)
	}
	if e := w.wantNoChain(l.id(0), l.id(0), CodeSuccessorChanged); e.Conflict == nil || *e.Conflict != want {
		t.Errorf("from the cache: %+v", e)
	}
	if w.fetches(other.id) != 0 {
		t.Error("the other successor was fetched")
	}
	if err := w.r.Confirm(t.Context(), l.id(0), e.Hash); err != nil {
		t.Fatal(err)
	}
	w.wantChain(l.id(0), other.id, 1, did.AssuranceVerified)
}

// The subject takes its identity back from the thief of its binding key.
func TestWalkRecoveryWins(t *testing.T) {
	w, l, thief := newWorld(t), newLine(t, 2), newE1(t)
	l.pin(w)
	l.publish(w)
	w.publish(thief.id, thief.signed(t, ago(time.Hour), succeeding(t, l.id(0))))
	w.publish(l.id(0), l.gone(0, thief.id, "signing", ago(time.Hour)))
	w.wantChain(l.id(0), thief.id, 1, did.AssuranceVerified)

	w.publish(l.id(0), l.gone(0, l.id(1), "recovery", ago(30*time.Minute)))
	w.fresh()
	e := w.wantNoChain(l.id(0), l.id(0), CodeSuccessorChanged)
	if e.Conflict == nil || !e.Conflict.RecoveryWins() || e.Hash.IsZero() {
		t.Fatalf("%+v, %+v", e, e.Conflict)
	}
	if err := w.r.Confirm(t.Context(), l.id(0), e.Hash); err != nil {
		t.Fatal(err)
	}
	w.wantChain(l.id(0), l.id(1), 1, did.AssuranceRecoveryVerified)

	// The thief tries again. That is nothing an operator could confirm.
	w.publish(l.id(0), l.gone(0, thief.id, "signing", ago(10*time.Minute)))
	w.fresh()
	e = w.wantNoChain(l.id(0), l.id(0), CodeTransitionConflict)
	if e.Conflict == nil || e.Conflict.Confirmable() || !e.Hash.IsZero() {
		t.Errorf("%+v, %+v", e, e.Conflict)
	}
	if held, err := w.pins.Held(t.Context(), l.id(0)); held != nil || err != nil {
		t.Errorf("held: %+v, %v", held, err)
	}
	// Signing for the same successor with the other key is no conflict.
	w.publish(l.id(0), l.gone(0, l.id(1), "signing", ago(5*time.Minute)))
	w.fresh()
	w.wantChain(l.id(0), l.id(1), 1, did.AssuranceVerified)
}

// What was confirmed from the list of held versions while it could be is refused
// once a recovery key has spoken.
func TestConfirmGivesWayToRecovery(t *testing.T) {
	w, l, thief := newWorld(t), newLine(t, 2), newE1(t)
	l.pin(w)
	l.publish(w)
	w.want(l.id(0), CodeDeactivated)
	w.publish(l.id(0), l.gone(0, thief.id, "signing", ago(10*time.Minute)))
	w.fresh()
	held := w.want(l.id(0), CodeSuccessorChanged).Hash
	w.publish(l.id(0), l.gone(0, l.id(1), "recovery", ago(20*time.Minute)))
	w.fresh()
	w.want(l.id(0), CodeDeactivated)
	if err := w.r.Confirm(t.Context(), l.id(0), held); codeOf(err) != CodeTransitionConflict {
		t.Errorf("Confirm: %v", err)
	}
}

func TestWalkAfterItsTime(t *testing.T) {
	w, l := newWorld(t), newLine(t, 3)
	l.publish(w)
	w.wantChain(l.id(0), l.id(2), 2, did.AssuranceVerified)
	w.serve(l.id(0), http.NotFound)
	w.clock.advance(MaxAge - time.Second)
	if !w.wantChain(l.id(0), l.id(2), 2, did.AssuranceVerified).Cached {
		t.Error("forgotten early")
	}
	w.clock.advance(time.Second)
	w.wantNoChain(l.id(0), l.id(0), CodeNotFound) // though all of it is pinned

	l.publish(w)
	w.fresh()
	w.wantChain(l.id(0), l.id(2), 2, did.AssuranceVerified)
	w.clock.advance(-time.Hour) // the clock is set back
	if w.wantChain(l.id(0), l.id(2), 2, did.AssuranceVerified).Cached {
		t.Error("served before its time")
	}
}

func TestWalkAgain(t *testing.T) {
	w, l := newWorld(t), newLine(t, 3)
	l.publish(w)
	// The last document is reused for a shorter time than the others.
	w.publish(l.id(2), l.active[2], "no-store")
	w.wantChain(l.id(0), l.id(2), 2, did.AssuranceVerified)
	if !w.wantChain(l.id(0), l.id(2), 2, did.AssuranceVerified).Cached {
		t.Error("not remembered")
	}
	w.clock.advance(2 * time.Second)
	if w.wantChain(l.id(0), l.id(2), 2, did.AssuranceVerified).Cached {
		t.Error("remembered for longer than its last document")
	}

	// Before that, the policy counts, and what the last DID's document says.
	w.r.o.Admit = func(id did.DID) error {
		if id == l.id(1) {
			return errors.New("denied")
		}
		return nil
	}
	w.wantNoChain(l.id(0), l.id(1), CodeNotAdmitted)
	w.r.o.Admit = func(did.DID) error { return nil }
	w.r.mu.Lock()
	w.r.cache.drop(l.id(2))
	w.r.mu.Unlock()
	w.publish(l.id(2), l.ids[2].signed(t, ago(time.Hour))) // no longer names the one before
	w.wantNoChain(l.id(0), l.id(1), CodeTransitionInvalid)

	w, l = newWorld(t), newLine(t, 3)
	l.publish(w)
	w.publish(l.id(1), l.active[1])
	w.wantChain(l.id(0), l.id(1), 1, did.AssuranceVerified)
	w.publish(l.id(1), l.gone(1, l.id(2), "signing", ago(time.Hour)))
	w.r.mu.Lock()
	w.r.cache.drop(l.id(1))
	w.r.mu.Unlock()
	w.wantChain(l.id(0), l.id(2), 2, did.AssuranceVerified) // one step more
	w.r.mu.Lock()
	w.r.cache.drop(l.id(2))
	w.r.mu.Unlock()
	w.serve(l.id(2), http.NotFound)
	w.wantNoChain(l.id(0), l.id(2), CodeNotFound)
}

func TestEvict(t *testing.T) {
	w, l := newWorld(t), newLine(t, 3)
	l.publish(w)
	for k := range 3 {
		w.wantChain(l.id(0), l.id(2), 2, did.AssuranceVerified)
		n := w.fetches(l.id(k))
		w.r.Evict(l.id(k))
		if c := w.wantChain(l.id(0), l.id(2), 2, did.AssuranceVerified); c.Cached || w.fetches(l.id(k)) != n+1 {
			t.Errorf("DID %d: cached %v, fetched %d times more", k, c.Cached, w.fetches(l.id(k))-n)
		}
	}
	w.r.Evict(newE1(t).id)
	if !w.wantChain(l.id(0), l.id(2), 2, did.AssuranceVerified).Cached {
		t.Error("forgotten because of another")
	}
	// What is under way when something is evicted is not remembered.
	w.fresh()
	w.serve(l.id(2), func(rw http.ResponseWriter, _ *http.Request) {
		w.r.Evict(l.id(0))
		_, _ = rw.Write(l.active[2])
	})
	w.wantChain(l.id(0), l.id(2), 2, did.AssuranceVerified)
	if w.remembered() != 0 {
		t.Error("remembered")
	}
}

// Two processes share the pins; what one has accepted, the other does not answer
// from its cache against.
func TestWalkSeesOtherProcesses(t *testing.T) {
	w, l := newWorld(t), newLine(t, 2)
	l.publish(w)
	w.want(l.id(0), CodeDeactivated)
	other := New(w.o)
	w.publish(l.id(0), l.ids[0].signed(t, ago(time.Hour), deactivated(l.id(1)), alias("https://a.test")))
	if _, err := other.Resolve(t.Context(), l.id(0)); codeOf(err) != CodeDeactivated {
		t.Fatal(err)
	}
	n := w.fetches(l.id(0))
	c := w.wantChain(l.id(0), l.id(1), 1, did.AssuranceVerified)
	if w.fetches(l.id(0)) != n+1 || c.Hops[0].Created != ago(time.Hour) {
		t.Errorf("%d fetches more, %+v", w.fetches(l.id(0))-n, c.Hops)
	}
}

// brokenPins fail where the test says.
type brokenPins struct {
	Pins
	latest, history error
	behind          bool // Latest pretends that there is always a newer version
}

func (b *brokenPins) Latest(ctx context.Context, id did.DID) (*Pin, error) {
	p, err := b.Pins.Latest(ctx, id)
	if b.behind && p != nil {
		p.Hash[0]++
	}
	return p, errors.Join(err, b.latest)
}

func (b *brokenPins) History(ctx context.Context, id did.DID) ([]Pin, error) {
	p, err := b.Pins.History(ctx, id)
	return p, errors.Join(err, b.history)
}

func TestInvariant12_WalkFailsClosed(t *testing.T) {
	for name, breaks := range map[string]func(*brokenPins){
		"latest":  func(b *brokenPins) { b.latest = errors.New("disk") },
		"history": func(b *brokenPins) { b.history = errors.New("disk") },
	} {
		w, l := newWorld(t), newLine(t, 2)
		l.publish(w)
		w.want(l.id(0), CodeDeactivated) // in the cache
		b := &brokenPins{Pins: w.pins}
		breaks(b)
		w.r.o.Pins = b
		if e := w.wantNoChain(l.id(0), l.id(0), CodeStore); !e.Temporary() {
			t.Errorf("%s: %v", name, e)
		}
	}
	w, l := newWorld(t), newLine(t, 2)
	l.publish(w)
	w.want(l.id(0), CodeDeactivated)
	w.r.o.Pins = &brokenPins{Pins: w.pins, behind: true}
	e := w.wantNoChain(l.id(0), l.id(0), CodeRollback) // what is served is not what is pinned
	if e.Temporary() {
		t.Error(e)
	}
}

// A walk ends where its caller does, and says so.
func TestWalkCanceled(t *testing.T) {
	w, l := newWorld(t), newLine(t, 2)
	l.publish(w)
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan struct{})
	defer close(answer)
	w.serve(l.id(1), func(http.ResponseWriter, *http.Request) {
		cancel()
		<-answer
	})
	if c, err := w.r.Walk(ctx, l.id(0)); c != nil || codeOf(err) != CodeCanceled {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestWalkConcurrently(t *testing.T) {
	w, l := newWorld(t), newLine(t, 4)
	l.publish(w)
	var wg sync.WaitGroup
	for n := range 24 {
		wg.Go(func() {
			for range 10 {
				if n%8 == 0 {
					w.r.Evict(l.id(n / 8))
				}
				if c, err := w.r.Walk(t.Context(), l.id(n%4)); err != nil || c.Current.ID() != l.id(3) || c.Assurance != did.AssuranceVerified {
					t.Errorf("%+v, %v", c, err)
				}
			}
		})
	}
	wg.Wait()
}

// Chains of any length, broken or not anywhere: the walk arrives if and only if it
// may, and only then is anything remembered.
func TestWalkProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	breaks := []func(w *world, l *line, k int){
		func(w *world, l *line, k int) { w.serve(l.id(k), http.NotFound) },
		func(w *world, l *line, k int) { w.publish(l.id(k), l.ids[k].unsigned(t)) },
		func(w *world, l *line, k int) {
			w.publish(l.id(k), l.ids[k].signed(t, ago(time.Hour), deactivated(newE1(t).id)))
		},
		func(w *world, l *line, k int) {
			w.publish(l.id(k), l.ids[k].signed(t, ago(time.Hour), deactivated(l.id(0))))
		},
		func(w *world, l *line, k int) { w.publish(l.id(k), l.gone(k, l.ids[0].id, "recovery", ago(time.Hour))) },
	}
	for round := range 30 {
		n := rng.IntN(MaxHops + 3) // hops
		w, l := newWorld(t), newLine(t, n+1)
		pinned := rng.IntN(2) == 0
		if pinned {
			l.pin(w)
		}
		l.publish(w)
		want := did.AssuranceVerified
		broken := rng.IntN(2) == 0 && n > 0
		if broken {
			breaks[rng.IntN(len(breaks))](w, l, 1+rng.IntN(n))
		} else if n > 0 && pinned && rng.IntN(2) == 0 {
			k := rng.IntN(n)
			w.publish(l.id(k), l.gone(k, l.id(k+1), "recovery", ago(time.Hour)))
			want = did.AssuranceRecoveryVerified
		}
		if arrives := n <= MaxHops && !broken; arrives {
			w.wantChain(l.id(0), l.id(n), n, want)
			continue
		}
		if c, err := w.r.Walk(t.Context(), l.id(0)); c != nil || codeOf(err) == "" || w.remembered() != 0 {
			t.Errorf("round %d: %+v, %v, %d remembered", round, c, err, w.remembered())
		}
	}
}
