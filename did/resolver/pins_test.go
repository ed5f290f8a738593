// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// step is a version that the peer serves, and what becomes of it.
type step struct {
	name string
	doc  []byte
	want Code
}

// walk serves one version after another, each time with an empty cache and,
// every time, also with a new resolver over the same pins: what is remembered is
// remembered in the store.
func walk(t *testing.T, id did.DID, steps []step, edits ...func(*world)) *world {
	t.Helper()
	w := newWorld(t, edits...)
	for n, s := range steps {
		w.publish(id, s.doc)
		for range 2 {
			if _, err := w.r.Resolve(t.Context(), id); codeOf(err) != s.want {
				t.Fatalf("step %d (%s): %v, want %q", n, s.name, err, s.want)
			}
			w.restart()
		}
		w.fresh()
	}
	return w
}

func codeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func ago(d time.Duration) time.Time { return start.Add(-d) }

func TestRollbackIsRefused(t *testing.T) {
	e1, k1, bare := newE1(t), newK1(t), named(t, "did:wba:"+domain)
	v1, v2 := e1.signed(t, ago(2*time.Hour)), e1.signed(t, ago(time.Hour))
	t.Run("e1", func(t *testing.T) {
		w := walk(t, e1.id, []step{
			{"the first version", v1, ""},
			{"a newer one", v2, ""},
			{"the first again", v1, CodeRollback},
			{"an older one, never seen", e1.signed(t, ago(3*time.Hour)), CodeRollback},
			{"another of the same time", e1.signed(t, ago(time.Hour), alias("https://a.test")), CodeRollback},
			{"one from the future", e1.signed(t, start.AddDate(1, 0, 0)), CodeRollback},
			{"the newer one is still good", v2, ""},
			{"with other white space", append([]byte("\n "), v2...), ""},
			{"and a newer one still", e1.signed(t, start), ""},
		})
		accepted, held, err := w.r.History(t.Context(), e1.id)
		if err != nil || len(accepted) != 3 || held != nil || accepted[0].Hash != hashOf(t, v1) || accepted[1].Hash != hashOf(t, v2) {
			t.Errorf("History: %d versions, held %v, %v", len(accepted), held, err)
		}
	})
	t.Run("proof taken away", func(t *testing.T) {
		walk(t, k1.id, []step{
			{"with a proof", k1.signed(t, ago(time.Hour)), ""},
			{"without", k1.unsigned(t), CodeRollback},
		})
	})
	t.Run("without proofs", func(t *testing.T) {
		walk(t, bare.id, []step{
			{"the first version", bare.unsigned(t), ""},
			{"another", bare.unsigned(t, alias("https://b.test")), ""},
			{"the first again", bare.unsigned(t), CodeRollback},
			{"a third", bare.unsigned(t, alias("https://c.test")), ""},
			{"with a proof at last", bare.signed(t, start), ""},
			{"and without again", bare.unsigned(t, alias("https://d.test")), CodeRollback},
		})
	})
}

func TestChangedKeysAreHeld(t *testing.T) {
	second := newKey(t, did.Ed25519)
	kex := func(s *did.DocumentSpec) {
		s.KeyAgreement = []did.MethodSpec{{Key: newKey(t, did.X25519).Public()}}
	}
	bare, web, k1, e1 := named(t, "did:wba:"+domain), named(t, "did:web:"+domain), newK1(t), newE1(t)
	for _, c := range []struct {
		name  string
		id    did.DID
		steps []step
	}{
		{"bare domain, another key", bare.id, []step{
			{"first", bare.unsigned(t), ""},
			{"second", identity{bare.id, second}.unsigned(t), CodeKeyChanged},
			{"back to the first", bare.unsigned(t), ""},
		}},
		{"bare domain, a key more, signed by the pinned one", bare.id, []step{
			{"first", bare.signed(t, ago(time.Hour)), ""},
			{"second", bare.signed(t, start, signingToo(second)), CodeKeyChanged},
		}},
		{"bare domain, a key agreement key more", bare.id, []step{
			{"first", bare.unsigned(t), ""},
			{"second", bare.unsigned(t, kex), CodeKeyChanged},
		}},
		{"bare domain, a key less", bare.id, []step{
			{"first", bare.unsigned(t, signingToo(second)), ""},
			{"second", bare.unsigned(t), ""},
		}},
		{"bare domain, something else", bare.id, []step{
			{"first", bare.unsigned(t), ""},
			{"second", bare.unsigned(t, alias("https://a.test")), ""},
		}},
		{"did:web", web.id, []step{
			{"first", web.unsigned(t), ""},
			{"second", identity{web.id, second}.unsigned(t), CodeKeyChanged},
		}},
		{"k1 without a proof: only the web server vouches for the others", k1.id, []step{
			{"first", k1.unsigned(t), ""},
			{"second", k1.unsigned(t, kex), CodeKeyChanged},
		}},
		{"k1 with a proof", k1.id, []step{
			{"first", k1.signed(t, ago(time.Hour)), ""},
			{"second", k1.signed(t, start, kex), ""},
		}},
		{"e1: the binding key vouches for the others", e1.id, []step{
			{"first", e1.signed(t, ago(time.Hour)), ""},
			{"second", e1.signed(t, start, kex, signingToo(second)), ""},
		}},
	} {
		t.Run(c.name, func(t *testing.T) { walk(t, c.id, c.steps) })
	}
}

func TestConfirm(t *testing.T) {
	ctx := t.Context()
	w := newWorld(t)
	old, changed := named(t, "did:wba:"+domain), named(t, "did:wba:"+domain)
	first, second := old.unsigned(t), changed.unsigned(t)
	w.publish(old.id, first)
	w.want(old.id, "")
	w.fresh()
	w.publish(old.id, second)
	e := w.want(old.id, CodeKeyChanged)
	if e.Hash != hashOf(t, second) || e.Temporary() {
		t.Errorf("%+v does not say which version is held", e)
	}
	if _, held, err := w.r.History(ctx, old.id); err != nil || held == nil || held.Hash != e.Hash || held.State != PinHeld {
		t.Errorf("held: %+v, %v", held, err)
	}
	for _, wrong := range []canon.Digest{{}, hashOf(t, first), canon.Sum(nil)} {
		if err := w.r.Confirm(ctx, old.id, wrong); !errors.Is(err, ErrNotHeld) {
			t.Errorf("Confirm of %s: %v", wrong, err)
		}
	}
	w.want(old.id, CodeKeyChanged)
	if err := w.r.Confirm(ctx, old.id, e.Hash); err != nil {
		t.Fatal(err)
	}
	w.want(old.id, "") // at once: the failure is forgotten
	if err := w.r.Confirm(ctx, old.id, e.Hash); !errors.Is(err, ErrNotHeld) {
		t.Errorf("second Confirm: %v", err)
	}
	accepted, held, err := w.r.History(ctx, old.id)
	if err != nil || len(accepted) != 2 || held != nil {
		t.Errorf("History: %d versions, held %v, %v", len(accepted), held, err)
	}
	w.fresh()
	w.publish(old.id, first)
	w.want(old.id, CodeKeyChanged) // the confirmed keys are the pinned ones now
}

// What an operator confirms late must still be newer than what was accepted
// meanwhile.
func TestConfirmIsNoWayBack(t *testing.T) {
	bare := named(t, "did:wba:"+domain)
	more := bare.signed(t, ago(time.Hour), signingToo(newKey(t, did.Ed25519)))
	w := walk(t, bare.id, []step{
		{"first", bare.signed(t, ago(2*time.Hour)), ""},
		{"with a key more", more, CodeKeyChanged},
		{"newer, with the old keys", bare.signed(t, start), ""},
	})
	if err := w.r.Confirm(t.Context(), bare.id, hashOf(t, more)); !errors.Is(err, CodeRollback) {
		t.Errorf("Confirm: %v, want %s", err, CodeRollback)
	}
}

// A look-up that began before a confirmation must not bring the old failure back.
func TestConfirmDisownsLookupsUnderWay(t *testing.T) {
	bare, changed := named(t, "did:wba:"+domain), named(t, "did:wba:"+domain)
	w := newWorld(t)
	w.publish(bare.id, bare.unsigned(t))
	w.want(bare.id, "")
	w.fresh()
	w.publish(bare.id, changed.unsigned(t))
	e := w.want(bare.id, CodeKeyChanged)
	w.fresh()
	w.o.Observe = func(ctx context.Context, id did.DID, _ *Result, err *Error) {
		if err != nil { // judged already, not yet remembered
			if err := w.r.Confirm(ctx, id, e.Hash); err != nil {
				t.Errorf("Confirm: %v", err)
			}
		}
	}
	w.restart()
	w.want(bare.id, CodeKeyChanged)
	w.want(bare.id, "")
}

func TestKeyChangesAcceptedByPolicy(t *testing.T) {
	bare := named(t, "did:wba:"+domain)
	w := walk(t, bare.id, []step{{"first", bare.unsigned(t), ""}}, func(w *world) { w.o.AcceptKeyChanges = true })
	w.publish(bare.id, named(t, "did:wba:"+domain).unsigned(t))
	result, err := w.r.ResolveResult(t.Context(), bare.id)
	if err != nil || !result.New || !result.KeyChanged || result.Previous != hashOf(t, bare.unsigned(t)) {
		t.Errorf("%+v, %v; want a new version with KeyChanged", result, err)
	}
	again, err := w.r.ResolveResult(t.Context(), bare.id)
	if err != nil || again.KeyChanged {
		t.Errorf("told again: %+v, %v", again, err)
	}
}

func TestDeactivationIsFinal(t *testing.T) {
	e1, next, evil := newE1(t), newE1(t), newE1(t)
	active := e1.signed(t, ago(3*time.Hour))
	gone := e1.signed(t, ago(2*time.Hour), deactivated(next.id))
	w := walk(t, e1.id, []step{
		{"active", active, ""},
		{"deactivated", gone, CodeDeactivated},
		{"active again, newer", e1.signed(t, ago(time.Hour)), CodeReactivated},
		{"active again, the old one", active, CodeReactivated},
		{"another successor", e1.signed(t, ago(time.Hour), deactivated(evil.id)), CodeSuccessorChanged},
		{"no successor", e1.signed(t, ago(time.Hour), deactivated(did.DID{})), CodeSuccessorChanged},
		{"deactivated as before", gone, CodeDeactivated},
		{"said once more", e1.signed(t, ago(time.Hour), deactivated(next.id), alias("https://a.test")), CodeDeactivated},
		{"the earlier words", gone, CodeRollback},
	}, func(w *world) { w.o.AcceptKeyChanges = true }) // which is not about successors

	w.publish(e1.id, e1.signed(t, start, deactivated(next.id)))
	e := w.want(e1.id, CodeDeactivated)
	if e.Document == nil || e.Document.ID() != e1.id || e.Successor != next.id || !errors.Is(e, ErrDeactivated) || e.Temporary() {
		t.Errorf("%+v does not carry the document and the successor", e)
	}
	n := w.fetches(e1.id)
	if e := w.want(e1.id, CodeDeactivated); e.Document == nil || w.fetches(e1.id) != n {
		t.Errorf("the deactivated document was not cached: %+v", e)
	}

	// An operator can settle between two successors.
	w.fresh()
	w.publish(e1.id, e1.signed(t, start.Add(time.Minute), deactivated(evil.id)))
	e = w.want(e1.id, CodeSuccessorChanged)
	if err := w.r.Confirm(t.Context(), e1.id, e.Hash); err != nil {
		t.Fatal(err)
	}
	if e := w.want(e1.id, CodeDeactivated); e.Successor != evil.id {
		t.Errorf("successor %s after Confirm", e.Successor)
	}
}

func TestDeactivatedAtFirstSight(t *testing.T) {
	e1, next := newE1(t), newE1(t)
	walk(t, e1.id, []step{
		{"deactivated", e1.signed(t, ago(time.Hour), deactivated(next.id)), CodeDeactivated},
		{"active", e1.signed(t, start), CodeReactivated},
	})
}

func TestDeactivationByRecoveryKey(t *testing.T) {
	e1, next := newE1(t), newE1(t)
	recovery, other := newKey(t, did.Ed25519), newKey(t, did.Ed25519)
	with := func(key did.PrivateKey) func(*did.DocumentSpec) {
		return func(s *did.DocumentSpec) { s.Recovery = []did.MethodSpec{{Key: key.Public()}} }
	}
	active := e1.signed(t, ago(time.Hour), with(recovery))
	// The document lists the key that signs it; only the pinned one counts.
	byRecovery := func(key did.PrivateKey, edits ...func(*did.DocumentSpec)) []byte {
		return sign(t, e1.unsigned(t, append(edits, with(key))...), e1.id, key, "recovery", start)
	}
	gone := deactivated(next.id)
	walk(t, e1.id, []step{
		{"active", active, ""},
		{"a recovery key only deactivates", byRecovery(recovery), CodeBadProof},
		{"a recovery key that was not pinned", byRecovery(other, gone), CodeBadProof},
		{"the pinned one", byRecovery(recovery, gone), CodeDeactivated},
		{"and that is final", e1.signed(t, start.Add(time.Second), with(recovery)), CodeReactivated},
	})
	walk(t, e1.id, []step{{"nothing pinned, nothing to go by", byRecovery(recovery, gone), CodeBadProof}})
}

func TestVersionsAreBounded(t *testing.T) {
	bare := named(t, "did:wba:"+domain)
	w := newWorld(t)
	refused := 0
	for n := range 40 {
		w.publish(bare.id, bare.unsigned(t, alias(fmt.Sprintf("https://%d.test", n))), "no-store")
		if _, err := w.r.Resolve(t.Context(), bare.id); errors.Is(err, CodeBudget) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
		w.clock.advance(15 * time.Second)
	}
	accepted, _, err := w.r.History(t.Context(), bare.id)
	if err != nil || refused == 0 || len(accepted) > 1+versionBudget.Burst+1 {
		t.Errorf("%d versions kept, %d refused (%v)", len(accepted), refused, err)
	}
	// An operator who confirms a version is not who changes it all the time.
	changed := named(t, "did:wba:"+domain).unsigned(t)
	w.publish(bare.id, changed)
	e := w.want(bare.id, CodeKeyChanged)
	for w.r.mayAppend(bare.id, w.clock.now()) {
	}
	if err := w.r.Confirm(t.Context(), bare.id, e.Hash); err != nil {
		t.Errorf("Confirm: %v", err)
	}
}

// faulty are Pins with an error to give, and something that happens between
// looking and adding.
type faulty struct {
	Pins
	latest, add, hold, held, history error
	beforeLatest                     func()
	beforeAdd                        func(prev canon.Digest)
}

func (f *faulty) Latest(ctx context.Context, id did.DID) (*Pin, error) {
	if f.beforeLatest != nil {
		f.beforeLatest()
	}
	if f.latest != nil {
		return nil, f.latest
	}
	return f.Pins.Latest(ctx, id)
}

func (f *faulty) Add(ctx context.Context, p Pin, prev canon.Digest) error {
	if f.beforeAdd != nil {
		f.beforeAdd(prev)
	}
	if f.add != nil {
		return f.add
	}
	return f.Pins.Add(ctx, p, prev)
}

func (f *faulty) Hold(ctx context.Context, p Pin) error {
	if f.hold != nil {
		return f.hold
	}
	return f.Pins.Hold(ctx, p)
}

func (f *faulty) Held(ctx context.Context, id did.DID) (*Pin, error) {
	if f.held != nil {
		return nil, f.held
	}
	return f.Pins.Held(ctx, id)
}

func (f *faulty) History(ctx context.Context, id did.DID) ([]Pin, error) {
	if f.history != nil {
		return nil, f.history
	}
	return f.Pins.History(ctx, id)
}

func TestInvariant12_FaultsOfTheStoreFailClosed(t *testing.T) {
	full := errors.New("disk full")
	bare := named(t, "did:wba:"+domain)
	for name, set := range map[string]func(*faulty){
		"latest": func(f *faulty) { f.latest = full },
		"add":    func(f *faulty) { f.add = full },
		"hold":   func(f *faulty) { f.hold = full },
	} {
		t.Run(name, func(t *testing.T) {
			f := &faulty{Pins: NewMemoryPins()}
			w := newWorld(t, func(w *world) { w.pins = f })
			w.publish(bare.id, bare.unsigned(t))
			if name == "hold" {
				w.want(bare.id, "")
				w.fresh()
				w.publish(bare.id, named(t, "did:wba:"+domain).unsigned(t))
			}
			set(f)
			if e := w.want(bare.id, CodeStore); !errors.Is(e, full) || !e.Temporary() {
				t.Errorf("%v", e)
			}
		})
	}
	t.Run("for the operator", func(t *testing.T) {
		f := &faulty{Pins: NewMemoryPins()}
		w := newWorld(t, func(w *world) { w.pins = f })
		if err := f.Hold(t.Context(), Pin{DID: bare.id, Hash: canon.Sum(nil), Raw: []byte("{"), State: PinHeld}); err != nil {
			t.Fatal(err)
		}
		if err := w.r.Confirm(t.Context(), bare.id, canon.Sum(nil)); !errors.Is(err, CodeBadDocument) {
			t.Errorf("Confirm of what is no document: %v", err)
		}
		for name, set := range map[string]func(){
			"latest":  func() { f.latest = full },
			"held":    func() { f.held = full },
			"history": func() { f.history = full },
		} {
			set()
			if _, _, err := w.r.History(t.Context(), bare.id); name != "latest" && (!errors.Is(err, full) || !errors.Is(err, CodeStore)) {
				t.Errorf("History without %s: %v", name, err)
			}
			if err := w.r.Confirm(t.Context(), bare.id, canon.Sum(nil)); name != "history" && (!errors.Is(err, full) || !errors.Is(err, CodeStore)) {
				t.Errorf("Confirm without %s: %v", name, err)
			}
			f.latest, f.held, f.history = nil, nil, nil
		}
	})
	t.Run("an unreadable pin", func(t *testing.T) {
		w := newWorld(t)
		doc := bare.unsigned(t)
		if err := w.pins.Add(t.Context(), Pin{DID: bare.id, Hash: canon.Sum(nil), Raw: []byte("{"), State: PinAccepted}, canon.Digest{}); err != nil {
			t.Fatal(err)
		}
		w.publish(bare.id, doc)
		w.want(bare.id, CodeStore)
	})
}

// Another process accepts a version between the look and the append.
func TestPinRace(t *testing.T) {
	e1 := newE1(t)
	v1, v2, v3 := e1.signed(t, ago(3*time.Hour)), e1.signed(t, ago(2*time.Hour)), e1.signed(t, ago(time.Hour))
	pin := func(raw []byte, created time.Time) Pin {
		return Pin{DID: e1.id, Hash: hashOf(t, raw), Raw: raw, ProofCreated: created, FirstSeen: start, State: PinAccepted}
	}
	for _, c := range []struct {
		name  string
		ours  []byte
		other Pin
		want  Code
	}{
		{"the other accepted the same", v2, pin(v2, ago(2*time.Hour)), ""},
		{"the other accepted an older one", v3, pin(v2, ago(2*time.Hour)), ""},
		{"the other accepted a newer one", v2, pin(v3, ago(time.Hour)), CodeRollback},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &faulty{Pins: NewMemoryPins()}
			w := newWorld(t, func(w *world) { w.pins = f })
			w.publish(e1.id, v1)
			w.want(e1.id, "")
			w.fresh()
			f.beforeAdd = func(prev canon.Digest) {
				f.beforeAdd = nil
				if err := f.Pins.Add(t.Context(), c.other, prev); err != nil {
					t.Error(err)
				}
			}
			w.publish(e1.id, c.ours)
			w.want(e1.id, c.want)
		})
	}
	t.Run("the pin keeps changing", func(t *testing.T) {
		f := &faulty{Pins: NewMemoryPins()}
		w := newWorld(t, func(w *world) { w.pins = f })
		n := 0
		f.beforeAdd = func(prev canon.Digest) {
			n++
			raw := e1.signed(t, ago(time.Duration(100-n)*time.Hour))
			if err := f.Pins.Add(t.Context(), pin(raw, ago(time.Duration(100-n)*time.Hour)), prev); err != nil {
				t.Error(err)
			}
		}
		w.publish(e1.id, v3)
		w.want(e1.id, CodeStore)
	})
}
