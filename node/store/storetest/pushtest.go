// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"testing"

	"github.com/treaty-node/treaty/node/store"
)

func pushes(t *testing.T, s store.Store) {
	push := func(owner, task, id string, due int) store.Push {
		return store.Push{Owner: owner, TaskID: task, ID: id, Bytes: []byte(id), Due: at(due), Created: at(0)}
	}
	get := func(owner, task, id string) func(store.Tx) (store.Push, error) {
		return func(tx store.Tx) (store.Push, error) { return tx.GetPush(owner, task, id) }
	}
	due := func(n int) []store.Push {
		return read(t, s, func(tx store.Tx) ([]store.Push, error) { return tx.DuePushes(at(n), 10) })
	}
	put := func(p store.Push) { t.Helper(); must(t, s, func(tx store.Tx) error { return tx.PutPush(p) }) }

	missing(t, s, get(peer, "t", "a"))
	a, b := push(peer, "t", "a", 2), push(peer, "t", "b", 1)
	put(a)
	put(b)
	equal(t, read(t, s, get(peer, "t", "a")), a)
	missing(t, s, get(stranger, "t", "a"))
	equal(t, read(t, s, func(tx store.Tx) ([]store.Push, error) { return tx.ListPushes(peer, "t") }), []store.Push{a, b})
	equal(t, due(0), []store.Push{})
	equal(t, due(2), []store.Push{b, a})

	b.Told, b.Failed, b.Due = "working", 1, at(9)
	must(t, s, func(tx store.Tx) error { return tx.MarkPush(b) })
	equal(t, due(2), []store.Push{a})
	equal(t, read(t, s, get(peer, "t", "b")), b)
	replaced := b
	replaced.Bytes, replaced.Told, replaced.Failed, replaced.Due = []byte("elsewhere"), "", 0, at(3)
	put(replaced)
	fails(t, s, store.ErrNotFound, func(tx store.Tx) error { return tx.MarkPush(b) }) // told at the old address
	equal(t, read(t, s, get(peer, "t", "b")), replaced)

	for range 2 { // the second finds none
		must(t, s, func(tx store.Tx) error { return tx.DeletePush(peer, "t", "b") })
	}
	missing(t, s, get(peer, "t", "b"))

	for i := range store.MaxPushesOfTask {
		put(push(stranger, "many", fmt.Sprint(i), 1))
	}
	put(push(stranger, "many", "0", 2)) // one that is there can be replaced
	fails(t, s, store.ErrTooMany, func(tx store.Tx) error { return tx.PutPush(push(stranger, "many", "more", 1)) })
	missing(t, s, get(stranger, "many", "more"))
	for i := range store.MaxPushesOfOwner - store.MaxPushesOfTask {
		put(push(stranger, fmt.Sprint("task", i), "a", 1))
	}
	fails(t, s, store.ErrTooMany, func(tx store.Tx) error { return tx.PutPush(push(stranger, "another", "a", 1)) })
}
