// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/treaty-node/treaty/node/store"
)

func step(from, to string) store.Succession {
	return store.Succession{Old: from, New: to, Assurance: store.Verified, OldHash: sum(from), NewHash: sum(to), At: at(1)}
}

func successions(t *testing.T, s store.Store) {
	put := func(v store.Succession) func(store.Tx) error {
		return func(tx store.Tx) error { return tx.PutSuccession(v) }
	}
	overrule := func(v store.Succession) func(store.Tx) error {
		return func(tx store.Tx) error { return tx.OverruleSuccession(v) }
	}
	get := func(old string) store.Succession {
		return read(t, s, func(tx store.Tx) (store.Succession, error) { return tx.GetSuccession(old) })
	}
	lineage := func(id string, want ...string) {
		t.Helper()
		if got := read(t, s, func(tx store.Tx) ([]string, error) { return tx.Lineage(id) }); !reflect.DeepEqual(got, want) {
			t.Errorf("lineage of %s is %q, want %q", id, got, want)
		}
	}

	if _, err := try(t, s, func(tx store.Tx) (store.Succession, error) { return tx.GetSuccession("a") }); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	lineage("a", "a")
	own := step("b", "c")
	own.Own, own.Assurance = true, store.RecoveryVerified
	must(t, s, put(own)) // the later step first: a node may learn of them in any order
	must(t, s, put(step("a", "b")))
	if got := get("b"); !reflect.DeepEqual(got, own) {
		t.Errorf("got %+v, want %+v", got, own)
	}
	for _, id := range []string{"a", "b", "c"} {
		lineage(id, "a", "b", "c")
	}

	// The same again keeps what was first said.
	again := step("a", "b")
	again.At, again.Assurance = at(9), store.RecoveryVerified
	must(t, s, put(again))
	if got := get("a"); !reflect.DeepEqual(got, step("a", "b")) {
		t.Errorf("got %+v", got)
	}
	// A compromise is taken up, and moves to an earlier time only.
	for _, c := range []struct{ said, want int }{{30, 30}, {40, 30}, {20, 20}} {
		again.CompromisedSince = at(c.said)
		must(t, s, put(again))
		if got := get("a").CompromisedSince; !got.Equal(at(c.want)) {
			t.Errorf("compromised since %v, want %v", got, at(c.want))
		}
	}
	must(t, s, put(step("a", "b")))
	if got := get("a").CompromisedSince; !got.Equal(at(20)) {
		t.Errorf("compromised since %v", got)
	}

	unproved := step("x", "y")
	unproved.Assurance = "provider_asserted"
	for name, bad := range map[string]store.Succession{
		"a fork": step("a", "z"), "two predecessors": step("z", "b"), "a circle": step("c", "a"), "itself": step("z", "z"),
		"no assurance": {Old: "x", New: "y"}, "one that moves nothing": unproved, "from nobody": step("", "y"),
	} {
		t.Run(name, func(t *testing.T) { fails(t, s, store.ErrConflict, put(bad)) })
	}
	lineage("a", "a", "b", "c")

	// A recovery key overrules a binding key, and nothing else does.
	won := step("a", "d")
	fails(t, s, store.ErrConflict, overrule(won))
	won.Assurance = store.RecoveryVerified
	fails(t, s, store.ErrConflict, put(won))
	must(t, s, overrule(won))
	must(t, s, overrule(won))
	lineage("a", "a", "d")
	lineage("b", "b", "c")
	lost := step("a", "b")
	lost.Assurance = store.RecoveryVerified
	fails(t, s, store.ErrConflict, overrule(lost))

	// Nine DIDs at most.
	for i := range store.MaxLineage - 1 {
		must(t, s, put(step(fmt.Sprint("n", i), fmt.Sprint("n", i+1))))
	}
	last := store.MaxLineage - 1
	fails(t, s, store.ErrConflict, put(step(fmt.Sprint("n", last), "end")))
	fails(t, s, store.ErrConflict, put(step("start", "n0")))
	if got := read(t, s, func(tx store.Tx) ([]string, error) { return tx.Lineage("n4") }); len(got) != store.MaxLineage || got[0] != "n0" || got[last] != fmt.Sprint("n", last) {
		t.Errorf("got %q", got)
	}
}
