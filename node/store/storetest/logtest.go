// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

// whole reads the log and checks it from genesis to head.
func whole(t *testing.T, s store.Store) []ledger.Event {
	t.Helper()
	var events []ledger.Event
	var head ledger.Head
	err := s.View(t.Context(), func(tx store.Tx) (err error) {
		if head, err = tx.Head(); err != nil {
			return err
		}
		for {
			page, err := tx.Events(uint64(len(events)), 7)
			if err != nil || len(page) == 0 {
				return err
			}
			events = append(events, page...)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(events) == 0 {
		return nil
	}
	if err := ledger.VerifyTo(ledger.Genesis(events[0].Node), events, head); err != nil {
		t.Fatal(err)
	}
	return events
}

func log(t *testing.T, s store.Store) {
	empty := read(t, s, store.Tx.Head)
	if empty.Seq != 0 || empty.Hash.IsZero() {
		t.Errorf("head of an empty log: %+v", empty)
	}
	var appended []ledger.Event
	must(t, s, func(tx store.Tx) error {
		for i := range 3 {
			e, err := tx.Append(entry(fmt.Sprint(i)))
			if err != nil {
				return err
			}
			appended = append(appended, e)
			// The transaction sees its own events.
			if head, err := tx.Head(); err != nil || head != e.Head() {
				t.Errorf("head %+v, %v", head, err)
			}
		}
		return nil
	})
	must(t, s, func(tx store.Tx) error {
		e, err := tx.Append(entry("3"))
		appended = append(appended, e)
		return err
	})
	equal(t, whole(t, s), appended)
	if ledger.Genesis(appended[0].Node) != empty {
		t.Error("the empty log's head is not the genesis of its node")
	}
	page := func(after uint64, n int) []ledger.Event {
		return read(t, s, func(tx store.Tx) ([]ledger.Event, error) { return tx.Events(after, n) })
	}
	equal(t, page(1, 2), appended[1:3])
	equal(t, page(4, 10), []ledger.Event{})
	equal(t, page(1<<63, 10), []ledger.Event{})
}

func logSelections(t *testing.T, s store.Store) {
	var all []ledger.Event
	must(t, s, func(tx store.Tx) error {
		for i := range 24 {
			e := ledger.Entry{Type: ledger.NodeStarted, Data: ledger.Started{}}
			if i%2 == 0 {
				e.Type, e.Data = ledger.NegotiationEnded, ledger.Ended{Outcome: "failed"}
			}
			if i%3 > 0 {
				e.Context = fmt.Sprint("ctx", i%3)
			}
			if i%4 > 0 {
				e.Contract = fmt.Sprint("ctr", i%4)
			}
			if i%5 > 0 {
				e.Peer = fmt.Sprint("peer", i%5)
			}
			ev, err := tx.Append(e)
			if err != nil {
				return err
			}
			all = append(all, ev)
		}
		return nil
	})
	for _, f := range []store.EventFilter{
		{}, {After: 5}, {Limit: 3}, {Context: "ctx1"}, {Contract: "ctr2"}, {Peer: "peer3"}, {Type: ledger.NegotiationEnded},
		{Context: "ctx1", Contract: "ctr1"}, {Context: "ctx2", Peer: "peer1", Type: ledger.NodeStarted}, {Contract: "ctr3", After: 8, Limit: 2},
		{Context: "nothing"}, {Context: "ctx1", Contract: "ctr1", Peer: "peer1", Type: ledger.NodeStarted, After: 1, Limit: 1},
	} {
		want := []ledger.Event{}
		for _, e := range all {
			if e.Seq > f.After && (f.Context == "" || f.Context == e.Context) && (f.Contract == "" || f.Contract == e.Contract) &&
				(f.Peer == "" || f.Peer == e.Peer) && (f.Type == "" || f.Type == e.Type) && (f.Limit == 0 || len(want) < f.Limit) {
				want = append(want, e)
			}
		}
		t.Run(fmt.Sprintf("%+v", f), func(t *testing.T) {
			equal(t, read(t, s, func(tx store.Tx) ([]ledger.Event, error) { return tx.FindEvents(f) }), want)
		})
	}
}

// logRace: any number of writers make one chain.
func logRace(t *testing.T, s store.Store) {
	const writers, each = 16, 8
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				err := s.Update(t.Context(), func(tx store.Tx) error {
					if _, err := tx.Append(entry(fmt.Sprintf("%d/%d", w, i))); err != nil {
						return err
					}
					_, err := tx.Append(entry(fmt.Sprintf("%d/%d+", w, i)))
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	events := whole(t, s)
	if len(events) != 2*writers*each {
		t.Fatalf("%d events", len(events))
	}
	for i := 0; i < len(events); i += 2 { // a transaction's events stand together
		if events[i].Context+"+" != events[i+1].Context {
			t.Errorf("events %d and %d: %s and %s", i, i+1, events[i].Context, events[i+1].Context)
		}
	}
}

// together: half of the writers fail after they wrote. The log has exactly the events of the others, and their effects.
func together(t *testing.T, s store.Store) {
	broken := errors.New("broken")
	var wg sync.WaitGroup
	for w := range 32 {
		wg.Go(func() {
			key := fmt.Sprintf("w%02d", w)
			err := s.Update(t.Context(), func(tx store.Tx) error {
				if _, err := tx.Append(entry(key)); err != nil {
					return err
				}
				if err := tx.PutSetting(key, "done"); err != nil {
					return err
				}
				if w%2 == 1 {
					return broken
				}
				return nil
			})
			if w%2 == 0 && err != nil || w%2 == 1 && !errors.Is(err, broken) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	logged := map[string]bool{}
	for _, e := range whole(t, s) {
		logged[e.Context] = true
	}
	for w := range 32 {
		key := fmt.Sprintf("w%02d", w)
		_, err := try(t, s, func(tx store.Tx) (string, error) { return tx.GetSetting(key) })
		if effect := err == nil; effect != (w%2 == 0) || logged[key] != effect {
			t.Errorf("%s: effect %v, event %v", key, effect, logged[key])
		}
	}
}
