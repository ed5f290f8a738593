// SPDX-License-Identifier: Apache-2.0

// Package storetest is the one test suite that every implementation of store.Store passes.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

// Run runs the suite. open returns a new, empty store, which the suite closes.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, c := range []struct {
		name string
		test func(*testing.T, store.Store)
	}{
		{"Conversations", conversations},
		{"FindConversation", findConversation},
		{"ConversationRace", conversationRace},
		{"Envelopes", envelopes},
		{"Contracts", contracts},
		{"ContractStates", contractStates},
		{"Revocations", revocations},
		{"Reserve", reserve},
		{"ReserveRace", reserveRace},
		{"Draws", draws},
		{"DrawRace", drawRace},
		{"Shapes", shapes},
		{"Receipts", receipts},
		{"Answers", answers},
		{"Statements", statements},
		{"Invariant9_Log", log},
		{"LogSelections", logSelections},
		{"LogRace", logRace},
		{"Invariant15_EventAndEffectTogether", together},
		{"Settings", settings},
		{"Identity", identity},
		{"ClockFloor", clockFloor},
		{"Tasks", tasks},
		{"Pushes", pushes},
		{"Equivocations", equivocations},
		{"Successions", successions},
		{"Notices", notices},
		{"SessionKeys", sessionKeys},
		{"Relaxed", relaxed},
		{"Rollback", rollback},
		{"AfterTheEnd", afterTheEnd},
		{"ViewIsReadOnly", viewIsReadOnly},
		{"ViewIsOneState", viewIsOneState},
		{"Cancelled", cancelled},
		{"Closed", closed},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() { _ = s.Close() })
			c.test(t, s)
		})
	}
}

const (
	own      = "did:wba:buyercorp.test:agents:analyst:e1_B"
	peer     = "did:wba:vendorcorp.test:agents:steward:e1_V"
	stranger = "did:wba:stranger.test:e1_S"
)

// at is a time with the precision that a store keeps.
func at(n int) time.Time {
	return time.Date(2026, 11, 30, 12, 0, n, 123_456_000, time.UTC)
}

func sum(s string) canon.Digest { return canon.Sum([]byte(s)) }

// must runs an update that has to succeed.
func must(t *testing.T, s store.Store, fn func(store.Tx) error) {
	t.Helper()
	if err := s.Update(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

// fails runs an update that has to fail with want.
func fails(t *testing.T, s store.Store, want error, fn func(store.Tx) error) {
	t.Helper()
	if err := s.Update(t.Context(), fn); !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// read returns what fn reads.
func read[T any](t *testing.T, s store.Store, fn func(store.Tx) (T, error)) T {
	t.Helper()
	v, err := try(t, s, fn)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func try[T any](t *testing.T, s store.Store, fn func(store.Tx) (T, error)) (v T, err error) {
	t.Helper()
	err = s.View(t.Context(), func(tx store.Tx) error { v, err = fn(tx); return err })
	return v, err
}

func missing[T any](t *testing.T, s store.Store, fn func(store.Tx) (T, error)) {
	t.Helper()
	if v, err := try(t, s, fn); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %+v, %v, want not found", v, err)
	}
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\ngot  %+v\nwant %+v", got, want)
	}
}

func entry(typ string) ledger.Entry {
	return ledger.Entry{Type: ledger.NodeStarted, Context: typ, Data: ledger.Started{Build: "test"}}
}

func conversation(peer, context string) store.Conversation {
	return store.Conversation{
		Own: own, Peer: peer, ContextID: context, Role: "buyer", Phase: "talking",
		State: []byte(`{"n":1}`), Created: at(0), Updated: at(0),
	}
}

func conversations(t *testing.T, s store.Store) {
	get := func(tx store.Tx) (store.Conversation, error) { return tx.GetConversation(own, peer, "A") }
	missing(t, s, get)
	fails(t, s, store.ErrConflict, func(tx store.Tx) error { return tx.PutConversation(conversation(peer, "A"), 1) })

	c := conversation(peer, "A")
	c.Version = 77 // is not the caller's to say
	must(t, s, func(tx store.Tx) error { return tx.PutConversation(c, 0) })
	c.Version = 1
	equal(t, read(t, s, get), c)
	fails(t, s, store.ErrConflict, func(tx store.Tx) error { return tx.PutConversation(c, 0) })
	fails(t, s, store.ErrConflict, func(tx store.Tx) error { return tx.PutConversation(c, 2) })
	equal(t, read(t, s, get), c)

	c.Phase, c.State, c.TaskID, c.Updated = "agreed", []byte(`{"n":2}`), "task-1", at(1)
	changed := c
	changed.Created = at(9) // is kept from the first
	must(t, s, func(tx store.Tx) error { return tx.PutConversation(changed, 1) })
	c.Version = 2
	equal(t, read(t, s, get), c)
	fails(t, s, store.ErrConflict, func(tx store.Tx) error { return tx.PutConversation(c, 1) })

	// The key is all three.
	other := conversation(stranger, "A")
	other.Updated = at(5)
	must(t, s, func(tx store.Tx) error { return tx.PutConversation(other, 0) })
	other.Version = 1
	equal(t, read(t, s, get), c)
	missing(t, s, func(tx store.Tx) (store.Conversation, error) { return tx.GetConversation(peer, own, "A") })

	list := func(f store.ConversationFilter) []store.Conversation {
		return read(t, s, func(tx store.Tx) ([]store.Conversation, error) { return tx.ListConversations(f) })
	}
	equal(t, list(store.ConversationFilter{}), []store.Conversation{other, c})
	equal(t, list(store.ConversationFilter{Limit: 1}), []store.Conversation{other})
	equal(t, list(store.ConversationFilter{Limit: 1, Oldest: true}), []store.Conversation{c})
	equal(t, list(store.ConversationFilter{Own: own, Peer: peer, Role: "buyer", Phase: "agreed"}), []store.Conversation{c})
	for _, f := range []store.ConversationFilter{{Own: peer}, {Peer: "x"}, {Role: "vendor"}, {Phase: "x"}} {
		equal(t, list(f), []store.Conversation{})
	}
}

func findConversation(t *testing.T, s store.Store) {
	a, b, c := conversation(peer, "A"), conversation(stranger, "A"), conversation(stranger, "C")
	a.TaskID, b.TaskID, c.TaskID = "task", "task-b", "A" // a stranger's task is named like a context
	must(t, s, func(tx store.Tx) error {
		return errors.Join(tx.PutConversation(a, 0), tx.PutConversation(b, 0), tx.PutConversation(c, 0))
	})
	find := func(id string) (store.Conversation, error) {
		return try(t, s, func(tx store.Tx) (store.Conversation, error) { return tx.FindConversation(own, id) })
	}
	for id, want := range map[string]string{"task": peer, "task-b": stranger, "C": stranger, "A": stranger} {
		if got, err := find(id); err != nil || got.Peer != want {
			t.Errorf("%s: %+v, %v", id, got, err)
		}
	}
	for _, id := range []string{"", "nothing"} {
		if _, err := find(id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
	// Two peers with one context id: nobody is guessed. The same task id twice under one peer: never stored.
	must(t, s, func(tx store.Tx) error {
		return errors.Join(tx.PutConversation(conversation(peer, "D"), 0), tx.PutConversation(conversation(stranger, "D"), 0))
	})
	if _, err := find("D"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("ambiguous: %v", err)
	}
	again := conversation(peer, "E")
	again.TaskID = "task"
	fails(t, s, store.ErrConflict, func(tx store.Tx) error { return tx.PutConversation(again, 0) })
}

// conversationRace: of any number of writers that read one version, one wins.
func conversationRace(t *testing.T, s store.Store) {
	must(t, s, func(tx store.Tx) error { return tx.PutConversation(conversation(peer, "A"), 0) })
	var won atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			err := s.Update(t.Context(), func(tx store.Tx) error { return tx.PutConversation(conversation(peer, "A"), 1) })
			switch {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, store.ErrConflict):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d writers won", won.Load())
	}
}

func envelopes(t *testing.T, s store.Store) {
	in := store.EnvelopeRecord{
		Digest: sum("in"), Own: own, Peer: peer, ContextID: "A", Seq: 1, Direction: store.In,
		Bytes: []byte("received"), Created: at(1), Plaintext: []byte("opened"), Salt: []byte("salt"),
	}
	out := store.EnvelopeRecord{
		Digest: sum("out"), Own: own, Peer: peer, ContextID: "A", Seq: 2, Direction: store.Out,
		Bytes: []byte("sent"), ReplyTo: in.Digest, Created: at(2),
	}
	missing(t, s, func(tx store.Tx) (store.EnvelopeRecord, error) { return tx.GetEnvelope(own, in.Digest) })
	must(t, s, func(tx store.Tx) error { return errors.Join(tx.PutEnvelope(out), tx.PutEnvelope(in)) })
	get := func(d canon.Digest) store.EnvelopeRecord {
		return read(t, s, func(tx store.Tx) (store.EnvelopeRecord, error) { return tx.GetEnvelope(own, d) })
	}
	equal(t, get(in.Digest), in)
	equal(t, get(out.Digest), out)
	equal(t, read(t, s, func(tx store.Tx) (store.EnvelopeRecord, error) { return tx.ReplyOf(own, in.Digest) }), out)
	missing(t, s, func(tx store.Tx) (store.EnvelopeRecord, error) { return tx.ReplyOf(own, out.Digest) })
	missing(t, s, func(tx store.Tx) (store.EnvelopeRecord, error) { return tx.ReplyOf(own, canon.Digest{}) })
	equal(t, read(t, s, func(tx store.Tx) ([]store.EnvelopeRecord, error) { return tx.ListEnvelopes(own, peer, "A") }), []store.EnvelopeRecord{in, out})
	equal(t, read(t, s, func(tx store.Tx) ([]store.EnvelopeRecord, error) { return tx.ListEnvelopes(own, stranger, "A") }), []store.EnvelopeRecord{})
	equal(t, read(t, s, func(tx store.Tx) (store.EnvelopeRecord, error) { return tx.LastEnvelope(own, peer, "A") }), out)
	missing(t, s, func(tx store.Tx) (store.EnvelopeRecord, error) { return tx.LastEnvelope(own, stranger, "A") })

	// Invariant 8: the same message a second time finds the first.
	for name, change := range map[string]func(*store.EnvelopeRecord){
		"the same":      func(*store.EnvelopeRecord) {},
		"same place":    func(e *store.EnvelopeRecord) { e.Digest = sum("another") },
		"same digest":   func(e *store.EnvelopeRecord) { e.Seq = 9 },
		"not in or out": func(e *store.EnvelopeRecord) { e.Digest, e.Seq, e.Direction = sum("x"), 9, "up" },
		"two answers to one": func(e *store.EnvelopeRecord) {
			e.Digest, e.Seq, e.Direction, e.ReplyTo = sum("x"), 4, store.Out, in.Digest
		},
	} {
		e := in
		change(&e)
		t.Run(name, func(t *testing.T) {
			fails(t, s, store.ErrConflict, func(tx store.Tx) error { return tx.PutEnvelope(e) })
		})
	}
	// Both ends of one conversation can live in one store, and a withdrawal can cross an answer.
	mirror := in
	mirror.Own, mirror.Peer, mirror.Direction = peer, own, store.Out
	crossed := out
	crossed.Digest, crossed.Seq, crossed.ReplyTo = sum("withdraw"), 1, canon.Digest{}
	must(t, s, func(tx store.Tx) error { return errors.Join(tx.PutEnvelope(mirror), tx.PutEnvelope(crossed)) })
}

func settings(t *testing.T, s store.Store) {
	get := func(tx store.Tx) (string, error) { return tx.GetSetting("key") }
	missing(t, s, get)
	for _, v := range []string{"one", "", "two"} {
		must(t, s, func(tx store.Tx) error { return tx.PutSetting("key", v) })
		equal(t, read(t, s, get), v)
	}
}

// identity: only who read the version in force replaces it, and all of it.
func identity(t *testing.T, s store.Store) {
	missing(t, s, func(tx store.Tx) (store.Identity, error) { return store.GetIdentity(tx) })
	version := func(tx store.Tx) (int64, error) { return store.IdentityVersion(tx) }
	equal(t, read(t, s, version), int64(0))
	id := store.Identity{Version: 99, Agent: "{}", Service: "{ }", Keys: map[string]store.OwnKey{"k": {Role: "kex", State: store.KeyRetiring, Until: at(5)}}}
	for expect := range int64(3) {
		for _, wrong := range []int64{expect - 1, expect + 1} {
			err := s.Update(t.Context(), func(tx store.Tx) error { return store.PutIdentity(tx, store.Identity{Agent: "other"}, wrong) })
			if !errors.Is(err, store.ErrConflict) {
				t.Errorf("at version %d, expecting %d: %v", expect, wrong, err)
			}
		}
		must(t, s, func(tx store.Tx) error { return store.PutIdentity(tx, id, expect) })
		equal(t, read(t, s, version), expect+1)
		got := read(t, s, func(tx store.Tx) (store.Identity, error) { return store.GetIdentity(tx) })
		if k := got.Keys["k"]; got.Version != expect+1 || got.Agent != id.Agent || got.Service != id.Service || len(got.Keys) != 1 || !k.Until.Equal(at(5)) || k.State != store.KeyRetiring {
			t.Errorf("%+v", got)
		}
	}
	must(t, s, func(tx store.Tx) error {
		return errors.Join(tx.PutSetting("identity", "{"), tx.PutSetting("identity.version", "x"))
	})
	err := s.View(t.Context(), func(tx store.Tx) error {
		_, err1 := store.GetIdentity(tx)
		_, err2 := store.IdentityVersion(tx)
		if !errors.Is(err1, store.ErrCorrupt) {
			t.Errorf("%v", err1)
		}
		return err2
	})
	if !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("%v", err)
	}
}

func clockFloor(t *testing.T, s store.Store) {
	f := store.ClockFloor(s)
	if got, err := f.Load(t.Context()); err != nil || !got.IsZero() {
		t.Errorf("%v, %v", got, err)
	}
	for _, c := range []struct{ raise, want time.Time }{{at(5), at(5)}, {at(3), at(5)}, {at(5), at(5)}, {at(6), at(6)}} {
		got, err := f.Raise(t.Context(), c.raise)
		if err != nil || !got.Equal(c.want) {
			t.Errorf("raise %v: %v, %v", c.raise, got, err)
		}
		if got, err := f.Load(t.Context()); err != nil || !got.Equal(c.want) {
			t.Errorf("load: %v, %v", got, err)
		}
	}
	must(t, s, func(tx store.Tx) error { return tx.PutSetting("clock.highest", "yesterday") })
	if _, err := f.Load(t.Context()); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a floor that is no time: %v", err)
	}
}

func tasks(t *testing.T, s store.Store) {
	task := func(id, owner, context string, n int) store.Task {
		return store.Task{ID: id, Owner: owner, ContextID: context, Bytes: []byte(id), Updated: at(n)}
	}
	get := func(owner, id string) func(store.Tx) (store.Task, error) {
		return func(tx store.Tx) (store.Task, error) { return tx.GetTask(owner, id) }
	}
	missing(t, s, get(peer, "t1"))
	one, two := task("t1", peer, "A", 1), task("t2", peer, "B", 2)
	must(t, s, func(tx store.Tx) error {
		return errors.Join(tx.PutTask(one, 0), tx.PutTask(two, 0), tx.PutTask(task("t3", stranger, "A", 3), 0), tx.PutTask(task("t4", "", "", 4), 0))
	})
	one.Version, two.Version = 1, 1
	equal(t, read(t, s, get(peer, "t1")), one)
	for _, owner := range []string{stranger, ""} { // for others it does not exist
		missing(t, s, get(owner, "t1"))
		fails(t, s, store.ErrConflict, func(tx store.Tx) error { return tx.PutTask(task("t1", owner, "A", 9), 0) })
		fails(t, s, store.ErrConflict, func(tx store.Tx) error { return tx.PutTask(task("t1", owner, "A", 9), 1) })
	}
	fails(t, s, store.ErrConflict, func(tx store.Tx) error { return tx.PutTask(one, 2) })
	one.Bytes, one.Updated = []byte("more"), at(5)
	must(t, s, func(tx store.Tx) error { return tx.PutTask(one, 1) })
	one.Version = 2
	equal(t, read(t, s, get(peer, "t1")), one)

	list := func(f store.TaskFilter) []store.Task {
		return read(t, s, func(tx store.Tx) ([]store.Task, error) { return tx.ListTasks(f) })
	}
	equal(t, list(store.TaskFilter{Owner: peer}), []store.Task{one, two})
	equal(t, list(store.TaskFilter{Owner: peer, Limit: 1, Offset: 1}), []store.Task{two})
	equal(t, list(store.TaskFilter{Owner: peer, ContextID: "B"}), []store.Task{two})
	if got := list(store.TaskFilter{}); len(got) != 1 || got[0].ID != "t4" {
		t.Errorf("nobody's tasks: %+v", got)
	}

	// There are only so many, of one owner and in all; the newest stay, and one that is new whatever its time.
	count := func(owner string) int { return len(list(store.TaskFilter{Owner: owner, Limit: store.MaxList})) }
	must(t, s, func(tx store.Tx) error {
		for i := range store.MaxTasksOfOwner + 5 {
			if err := tx.PutTask(task(fmt.Sprintf("many-%d", i), peer, "C", 10+i), 0); err != nil {
				return err
			}
		}
		return nil
	})
	missing(t, s, get(peer, "t1"))
	equal(t, count(peer), store.MaxTasksOfOwner)
	must(t, s, func(tx store.Tx) error { return tx.PutTask(task("old", peer, "C", 0), 0) })
	read(t, s, get(peer, "old"))
	must(t, s, func(tx store.Tx) error {
		for i := range store.MaxTasks {
			if err := tx.PutTask(task(fmt.Sprintf("all-%d", i), fmt.Sprintf("owner %d", i), "C", 1000+i), 0); err != nil {
				return err
			}
		}
		return nil
	})
	equal(t, count(peer)+count(stranger), 0)
	equal(t, count(fmt.Sprintf("owner %d", 0)), 1)
}

func equivocations(t *testing.T, s store.Store) {
	e := store.Equivocation{Own: own, Peer: peer, ContextID: "A", Seq: 3, First: []byte("one"), Second: []byte("two"), Created: at(1)}
	other := e
	other.Peer = stranger
	must(t, s, func(tx store.Tx) error {
		return errors.Join(tx.PutEquivocation(e), tx.PutEquivocation(e), tx.PutEquivocation(other))
	})
	list := func(own, peer string) []store.Equivocation {
		return read(t, s, func(tx store.Tx) ([]store.Equivocation, error) { return tx.ListEquivocations(own, peer) })
	}
	equal(t, list(own, peer), []store.Equivocation{e})
	equal(t, list(own, ""), []store.Equivocation{e, other})
	equal(t, list(peer, ""), []store.Equivocation{})
}

func rollback(t *testing.T, s store.Store) {
	broken := errors.New("broken")
	write := func(tx store.Tx) {
		if err := tx.PutSetting("key", "value"); err != nil {
			t.Error(err)
		}
		if _, err := tx.Append(entry("x")); err != nil {
			t.Error(err)
		}
	}
	fails(t, s, broken, func(tx store.Tx) error { write(tx); return broken })
	func() {
		defer func() {
			if recover() != "help" {
				t.Error("the panic was swallowed")
			}
		}()
		_ = s.Update(t.Context(), func(tx store.Tx) error { write(tx); panic("help") })
	}()
	missing(t, s, func(tx store.Tx) (string, error) { return tx.GetSetting("key") })
	equal(t, read(t, s, func(tx store.Tx) ([]ledger.Event, error) { return tx.Events(0, 0) }), []ledger.Event{})

	// A conflict that the function handles does not spoil the rest.
	must(t, s, func(tx store.Tx) error {
		write(tx)
		if err := tx.PutConversation(conversation(peer, "A"), 7); !errors.Is(err, store.ErrConflict) {
			t.Errorf("%v", err)
		}
		if _, err := tx.GetSetting("nothing"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%v", err)
		}
		if _, err := tx.Append(ledger.Entry{Type: "made.up"}); !errors.Is(err, ledger.ErrEntry) {
			t.Errorf("%v", err)
		}
		return nil
	})
	equal(t, read(t, s, func(tx store.Tx) (string, error) { return tx.GetSetting("key") }), "value")
}

func afterTheEnd(t *testing.T, s store.Store) {
	var kept store.Tx
	must(t, s, func(tx store.Tx) error { kept = tx; return nil })
	if err := kept.PutSetting("key", "late"); err == nil {
		t.Error("a transaction was used after its end")
	}
	if _, err := kept.GetSetting("key"); err == nil || errors.Is(err, store.ErrNotFound) {
		t.Errorf("a transaction was read after its end: %v", err)
	}
	missing(t, s, func(tx store.Tx) (string, error) { return tx.GetSetting("key") })
}

func viewIsReadOnly(t *testing.T, s store.Store) {
	for name, write := range map[string]func(store.Tx) error{
		"PutConversation": func(tx store.Tx) error { return tx.PutConversation(conversation(peer, "A"), 0) },
		"PutEnvelope":     func(tx store.Tx) error { return tx.PutEnvelope(store.EnvelopeRecord{Direction: store.In}) },
		"PutContract":     func(tx store.Tx) error { return tx.PutContract(contract("ctr_1")) },
		"PutRevocation":   func(tx store.Tx) error { return tx.PutRevocation(store.Revocation{ContractID: "ctr_1"}) },
		"Reserve":         func(tx store.Tx) error { _, err := tx.Reserve("ctr_1", 3); return err },
		"PutReceipt":      func(tx store.Tx) error { return tx.PutReceipt(store.Receipt{ID: "x"}) },
		"PutAnswer":       func(tx store.Tx) error { return tx.PutAnswer(store.Answer{DeleteAfter: at(1)}) },
		"DeleteAnswer":    func(tx store.Tx) error { return tx.DeleteAnswer("ctr_1", sum("x")) },
		"PutStatement":    func(tx store.Tx) error { return tx.PutStatement(store.Statement{ContractID: "x", Digest: sum("x")}) },
		"Append":          func(tx store.Tx) error { _, err := tx.Append(entry("x")); return err },
		"PutSetting":      func(tx store.Tx) error { return tx.PutSetting("key", "value") },
		"PutTask":         func(tx store.Tx) error { return tx.PutTask(store.Task{ID: "x"}, 0) },
		"PutEquivocation": func(tx store.Tx) error { return tx.PutEquivocation(store.Equivocation{}) },
		"Draw":            func(tx store.Tx) error { return tx.Draw("ctr_1", store.Draw{WindowLimit: 1}) },
		"ReturnRows":      func(tx store.Tx) error { return tx.ReturnRows("ctr_1", 1) },
		"PutShape":        func(tx store.Tx) error { return tx.PutShape(store.Shape{Buyer: "b", Dataset: "d"}, 1) },
		"DeleteShape":     func(tx store.Tx) error { return tx.DeleteShape("b", "d", sum("x")) },
	} {
		if err := s.View(t.Context(), write); !errors.Is(err, store.ErrReadOnly) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// viewIsOneState: what commits while a view reads is not seen by it.
func viewIsOneState(t *testing.T, s store.Store) {
	set := func(v string) func(store.Tx) error {
		return func(tx store.Tx) error { return errors.Join(tx.PutSetting("a", v), tx.PutSetting("b", v)) }
	}
	must(t, s, set("old"))
	err := s.View(t.Context(), func(tx store.Tx) error {
		a, err := tx.GetSetting("a")
		if err != nil {
			return err
		}
		must(t, s, set("new"))
		b, err := tx.GetSetting("b")
		if a != "old" || b != "old" {
			t.Errorf("saw %s and %s", a, b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, read(t, s, func(tx store.Tx) (string, error) { return tx.GetSetting("b") }), "new")
}

func cancelled(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	err := s.Update(ctx, func(tx store.Tx) error {
		err := tx.PutSetting("key", "value")
		cancel()
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before the commit: %v", err)
	}
	missing(t, s, func(tx store.Tx) (string, error) { return tx.GetSetting("key") })
	ran := false
	for _, run := range []func(context.Context, func(store.Tx) error) error{s.Update, s.View} {
		if err := run(ctx, func(store.Tx) error { ran = true; return nil }); !errors.Is(err, context.Canceled) || ran {
			t.Errorf("cancelled before the begin: %v, ran %v", err, ran)
		}
	}
	must(t, s, func(tx store.Tx) error { return tx.PutSetting("key", "value") }) // and the store goes on
}

func closed(t *testing.T, s store.Store) {
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, run := range []func(context.Context, func(store.Tx) error) error{s.Update, s.View} {
		if err := run(t.Context(), func(store.Tx) error { return nil }); err == nil {
			t.Error("a closed store works")
		}
	}
}
