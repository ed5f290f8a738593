// SPDX-License-Identifier: Apache-2.0

package succession_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/store/sqlite"
	"github.com/treaty-node/treaty/node/succession"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// subject is a company under one DID.
type subject struct {
	doc           *did.Document
	key, recovery did.PrivateKey
}

func (s subject) id() did.DID { return s.doc.ID() }

// world is the documents that domains serve, and a resolver's cache before them.
type world struct {
	t      *testing.T
	clock  *clock.Fake
	db     *sqlite.DB
	docs   map[did.DID]*did.Document // as served
	active map[did.DID]*did.Document // as pinned while in use
	cached map[did.DID]*did.Document // served instead until evicted
	away   bool
	svc    *succession.Service
	cfg    succession.Config
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, clock: clock.NewFake(start), docs: map[did.DID]*did.Document{}, active: map[did.DID]*did.Document{}, cached: map[did.DID]*did.Document{}}
	var err error
	w.db, err = sqlite.Create(t.Context(), filepath.Join(t.TempDir(), "treaty.db"), sqlite.Options{Node: "did:wba:vendorcorp.test", Process: "node", Clock: w.clock})
	w.ok(err)
	t.Cleanup(func() { w.ok(w.db.Close()) })
	w.cfg = succession.Config{Walker: w, Store: w.db, Now: w.clock.Now}
	w.svc = succession.New(w.cfg)
	return w
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) Evict(id did.DID) { delete(w.cached, id) }

// Walk is the resolver's walk over these documents.
func (w *world) Walk(_ context.Context, id did.DID) (*resolver.Chain, error) {
	if w.away {
		return nil, &resolver.Error{Code: resolver.CodeUnreachable, DID: id}
	}
	var stations []did.Station
	for at := id; ; {
		doc := w.docs[at]
		if c := w.cached[at]; c != nil {
			doc = c
		}
		if doc == nil {
			return nil, &resolver.Error{Code: resolver.CodeNotFound, DID: at}
		}
		if !doc.Deactivated() {
			if a := w.active[at]; a != nil && a != doc && w.docs[at] == doc {
				return nil, &resolver.Error{Code: resolver.CodeReactivated, DID: at}
			}
			stations = append(stations, did.Station{Document: doc})
			break
		}
		if err := did.CheckSuccessor(at, doc.SuccessorDID()); err != nil {
			return nil, &resolver.Error{Code: resolver.CodeTransitionInvalid, DID: at, Err: err}
		}
		stations = append(stations, did.Station{Document: w.active[at], Gone: doc})
		at = doc.SuccessorDID()
	}
	line, err := did.VerifyLine(stations, w.clock.Now())
	if err != nil {
		return nil, &resolver.Error{Code: resolver.CodeTransitionInvalid, DID: id, Err: err}
	}
	return &resolver.Chain{Start: id, Current: line.Current(), Line: line, Assurance: line.Assurance(), Hops: make([]did.Hop, len(stations)-1)}, nil
}

func (w *world) signer(id did.DID, role string, key did.PrivateKey) did.Signer {
	w.t.Helper()
	s, err := did.NewSigner(did.KeyID(id, role, key.Public()), key)
	w.ok(err)
	return s
}

// subject makes a company, after another one if old is given.
func (w *world) subject(domain string, old *subject) subject {
	w.t.Helper()
	key, err := did.GenerateKey(did.Ed25519)
	w.ok(err)
	recovery, err := did.GenerateKey(did.Ed25519)
	w.ok(err)
	id, err := did.Parse("did:wba:" + domain + ":agents:steward:e1_" + key.Public().Thumbprint())
	w.ok(err)
	spec := did.DocumentSpec{ID: id, Binding: did.MethodSpec{Key: key.Public()}, Recovery: []did.MethodSpec{{Key: recovery.Public()}}}
	if old != nil && did.SameSubject(old.id(), id) {
		spec, err = spec.Succeeding(old.id())
		w.ok(err)
	}
	unsigned, err := did.BuildDocument(spec)
	w.ok(err)
	raw, err := did.SignDocument(w.t.Context(), unsigned, w.signer(id, "signing", key), w.clock.Now(), did.DialectSpec)
	w.ok(err)
	doc, err := did.ParseDocument(raw)
	w.ok(err)
	w.docs[id] = doc
	return subject{doc, key, recovery}
}

// leave deactivates old in favour of next, by the binding or the recovery key.
func (w *world) leave(old subject, next did.DID, role string) {
	w.t.Helper()
	key := old.key
	if role == "recovery" {
		key = old.recovery
	}
	raw, err := did.Deactivate(w.t.Context(), old.doc.Raw(), next, w.signer(old.id(), role, key), w.clock.Now(), did.DialectSpec)
	w.ok(err)
	gone, err := did.ParseDocument(raw)
	w.ok(err)
	w.docs[old.id()], w.active[old.id()] = gone, old.doc
}

func (w *world) events(kind string) (list []ledger.Event) {
	w.t.Helper()
	w.ok(w.db.View(w.t.Context(), func(tx store.Tx) (err error) {
		list, err = tx.FindEvents(store.EventFilter{Type: kind})
		return err
	}))
	return list
}

func (w *world) lineage(id did.DID) (line []string) {
	w.t.Helper()
	w.ok(w.db.View(w.t.Context(), func(tx store.Tx) (err error) { line, err = tx.Lineage(id.String()); return err }))
	return line
}

func TestFollow(t *testing.T) {
	for _, role := range []string{"signing", "recovery"} {
		t.Run(role, func(t *testing.T) {
			w := newWorld(t)
			a := w.subject("buyercorp.test", nil)
			if line, err := w.svc.Follow(t.Context(), a.id()); err != nil || !line.IsCurrent(a.id()) || len(w.lineage(a.id())) != 1 {
				t.Fatalf("%v", err)
			}
			w.clock.Advance(time.Minute)
			b := w.subject("buyercorp.test", &a)
			w.leave(a, b.id(), role)
			for range 3 {
				line, err := w.svc.Stands(t.Context(), a.id(), b.id())
				if err != nil || !line.IsCurrent(b.id()) || line.IsCurrent(a.id()) {
					t.Fatalf("%v", err)
				}
			}
			if got := w.lineage(b.id()); len(got) != 2 || len(w.events(ledger.DIDSucceeded)) != 1 {
				t.Errorf("%q, %d events", got, len(w.events(ledger.DIDSucceeded)))
			}
			if _, err := w.svc.Stands(t.Context(), a.id(), a.id()); !errors.Is(err, succession.ErrRefused) {
				t.Errorf("the old DID stands for itself: %v", err)
			}
			// The policy's word on how well it has to be proved.
			w.cfg.Accepts = func(a did.Assurance) bool { return a == did.AssuranceVerified }
			_, err := succession.New(w.cfg).Follow(t.Context(), a.id())
			if want := role == "recovery"; errors.Is(err, succession.ErrRefused) != want {
				t.Errorf("verified only: %v", err)
			}
			w.cfg.Accepts, w.cfg.Admit = nil, func(line []did.DID) error {
				if len(line) == 2 && line[0] == a.id() && line[1] == b.id() {
					return errors.New("denied")
				}
				return nil
			}
			if _, err := succession.New(w.cfg).Follow(t.Context(), a.id()); !errors.Is(err, succession.ErrRefused) {
				t.Errorf("denied: %v", err)
			}
		})
	}
}

// TestRefused: what is claimed and not so moves nothing, is an event, and is not on record.
func TestRefused(t *testing.T) {
	for name, forge := range map[string]func(w *world, a subject) did.DID{
		"the old document does not say so": func(w *world, a subject) did.DID { return w.subject("buyercorp.test", &a).id() },
		"another domain": func(w *world, a subject) did.DID {
			return w.subject("elsewhere.test", &a).id()
		},
		"the successor does not agree": func(w *world, a subject) did.DID {
			b := w.subject("buyercorp.test", nil)
			w.leave(a, b.id(), "signing")
			return b.id()
		},
		"a key that came with the deactivation": func(w *world, a subject) did.DID {
			b := w.subject("buyercorp.test", &a)
			a.recovery = b.key
			w.leaveForged(a, b.id())
			return b.id()
		},
		"the old document came back": func(w *world, a subject) did.DID {
			b := w.subject("buyercorp.test", &a)
			w.leave(a, b.id(), "signing")
			again, err := did.ParseDocument(a.doc.Raw())
			w.ok(err)
			w.docs[a.id()] = again
			return b.id()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := w.subject("buyercorp.test", nil)
			w.clock.Advance(time.Minute)
			claimed := forge(w, a)
			for range 3 {
				if _, err := w.svc.Stands(t.Context(), a.id(), claimed); err == nil {
					t.Fatal("followed")
				}
			}
			if len(w.lineage(claimed)) != 1 || len(w.events(ledger.DIDSucceeded)) != 0 || len(w.events(ledger.DIDSuccessionRefused)) != 1 {
				t.Errorf("%q, %d refusals in the log", w.lineage(claimed), len(w.events(ledger.DIDSuccessionRefused)))
			}
		})
	}
}

// leaveForged deactivates with a key that the document did not list before.
func (w *world) leaveForged(old subject, next did.DID) {
	w.t.Helper()
	unsigned, err := did.BuildDocument(did.DocumentSpec{
		ID: old.id(), Binding: did.MethodSpec{Key: old.key.Public()}, Recovery: []did.MethodSpec{{Key: old.recovery.Public()}}, Deactivated: true, SuccessorDID: next,
	})
	w.ok(err)
	raw, err := did.SignDocument(w.t.Context(), unsigned, w.signer(old.id(), "recovery", old.recovery), w.clock.Now(), did.DialectSpec)
	w.ok(err)
	gone, err := did.ParseDocument(raw)
	w.ok(err)
	w.docs[old.id()], w.active[old.id()] = gone, old.doc
}

// TestCachedAndAway: a claim makes a cached document be looked up again, once in a while; what cannot be had decides nothing.
func TestCachedAndAway(t *testing.T) {
	w := newWorld(t)
	a := w.subject("buyercorp.test", nil)
	w.clock.Advance(time.Minute)
	b := w.subject("buyercorp.test", &a)
	w.leave(a, b.id(), "signing")
	w.cached[a.id()] = a.doc
	if _, err := w.svc.Stands(t.Context(), a.id(), b.id()); err != nil {
		t.Fatal(err)
	}
	w.cached[a.id()] = a.doc
	var later *resolver.Error
	if _, err := w.svc.Stands(t.Context(), a.id(), b.id()); !errors.As(err, &later) || !later.Temporary() || errors.Is(err, succession.ErrRefused) {
		t.Errorf("a second claim at once: %v", err)
	}
	w.clock.Advance(time.Minute)
	if _, err := w.svc.Stands(t.Context(), a.id(), b.id()); err != nil {
		t.Error(err)
	}
	w.cached[a.id()] = a.doc
	w.clock.Advance(time.Minute)
	if line, err := w.svc.Hint(t.Context(), a.id()); err != nil || !line.IsCurrent(b.id()) {
		t.Errorf("a hint: %v", err)
	}
	w.away = true
	if _, err := w.svc.Stands(t.Context(), a.id(), b.id()); !errors.As(err, &later) || errors.Is(err, succession.ErrRefused) {
		t.Errorf("away: %v", err)
	}
	w.away = false
	delete(w.docs, a.id()) // the old document is gone: nothing is followed from it any more
	if _, err := w.svc.Stands(t.Context(), a.id(), b.id()); err == nil {
		t.Error("followed from a document that is not there")
	}
	if len(w.events(ledger.DIDSuccessionRefused)) != 0 {
		t.Error("what cannot be had is no refusal")
	}
}

// TestRecoveryOverrules: a thief with the binding key was first; the owner's recovery key, which an operator has confirmed in the
// resolver, takes the place in the record, with an event that says so.
func TestRecoveryOverrules(t *testing.T) {
	w := newWorld(t)
	a := w.subject("buyercorp.test", nil)
	w.clock.Advance(time.Minute)
	thief := w.subject("buyercorp.test", &a)
	w.leave(a, thief.id(), "signing")
	if _, err := w.svc.Follow(t.Context(), a.id()); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(time.Minute)
	owner := w.subject("buyercorp.test", &a)
	w.leave(a, owner.id(), "recovery")
	if _, err := w.svc.Stands(t.Context(), a.id(), owner.id()); err != nil {
		t.Fatal(err)
	}
	if got := w.lineage(thief.id()); len(got) != 1 {
		t.Errorf("the thief's line: %q", got)
	}
	if got := w.lineage(owner.id()); len(got) != 2 {
		t.Errorf("the owner's line: %q", got)
	}
	var last ledger.Succession
	list := w.events(ledger.DIDSucceeded)
	w.ok(list[len(list)-1].Decode(&last))
	if len(list) != 2 || last.Overruled != thief.id().String() || last.New != owner.id().String() {
		t.Errorf("%+v", last)
	}
	if _, err := w.svc.Stands(t.Context(), a.id(), thief.id()); !errors.Is(err, succession.ErrRefused) {
		t.Errorf("the thief stands: %v", err)
	}
}
