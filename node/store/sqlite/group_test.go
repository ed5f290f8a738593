// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/treaty-node/treaty/node/store"
)

// open is a group with one update in it that nobody has committed yet.
func open(t *testing.T, db *DB, key string) *group {
	t.Helper()
	c, err := db.write.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.control("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	g := &group{kept: 1, over: make(chan struct{})}
	c.group = g
	first := &tx{ctx: t.Context(), db: db, c: c, write: true}
	if _, err := first.Append(started(key)); err != nil {
		t.Fatal(err)
	}
	if err := first.PutSetting(key, "1"); err != nil {
		t.Fatal(err)
	}
	db.write.put(c, false)
	return g
}

// setting is what a later reader finds.
func setting(t *testing.T, db *DB, key string) bool {
	t.Helper()
	err := db.View(t.Context(), func(tx store.Tx) error { _, err := tx.GetSetting(key); return err })
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// What fails in a shared transaction is undone alone, in whatever way it fails, and its caller alone learns of it.
func TestGroupUndoesOne(t *testing.T) {
	boom := errors.New("boom")
	for name, fail := range map[string]func(context.CancelFunc) error{
		"error":  func(context.CancelFunc) error { return boom },
		"panic":  func(context.CancelFunc) error { panic(boom) },
		"cancel": func(cancel context.CancelFunc) error { cancel(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			db := fresh(t)
			g := open(t, db, "first")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			failed := make(chan error, 1)
			go func() {
				defer func() {
					if p := recover(); p != nil {
						failed <- p.(error)
					}
				}()
				failed <- db.Update(ctx, func(tx store.Tx) error {
					if _, err := tx.Append(started("failed")); err != nil {
						return err
					}
					return errors.Join(tx.PutSetting("failed", "1"), fail(cancel))
				})
			}()
			// Its turn is over when somebody else can have the next; the group is still open.
			for ran := false; !ran; {
				c, err := db.write.get(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				seen := &tx{ctx: t.Context(), db: db, c: c}
				if _, err := seen.GetSetting("first"); c.group != g || err != nil {
					t.Fatal("the group is lost", err)
				}
				ran = c.stmts["ROLLBACK TO one"] != nil
				db.write.put(c, false)
			}
			if setting(t, db, "first") {
				t.Error("seen before it is committed")
			}
			if err := db.UpdateRelaxed(t.Context(), func(tx store.Tx) error {
				_, err := tx.Append(started("last"))
				return errors.Join(err, tx.PutSetting("last", "1"))
			}); err != nil {
				t.Fatal(err)
			}
			if err := <-failed; !errors.Is(err, boom) && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if !setting(t, db, "first") || setting(t, db, "failed") || !setting(t, db, "last") {
				t.Error("not exactly the two that succeeded are there")
			}
			if head, err := db.Check(t.Context()); err != nil || head.Seq != 2 {
				t.Error(head.Seq, err)
			}
		})
	}
}

// A group that is lost is lost for all of it, and the store goes on.
func TestGroupLost(t *testing.T) {
	db := fresh(t)
	g := open(t, db, "first")
	err := db.Update(t.Context(), func(s store.Tx) error {
		return errors.Join(s.(*tx).c.control("ROLLBACK"), errors.New("the disk is gone"))
	})
	if <-g.over; err == nil || g.err == nil {
		t.Fatal(err, g.err)
	}
	if setting(t, db, "first") {
		t.Error("a lost update is there")
	}
	put(t, db, "next")
	if head, err := db.Check(t.Context()); err != nil || head.Seq != 1 {
		t.Error(head.Seq, err)
	}
}

// Closing the store and scrubbing it end the group that is open.
func TestGroupEndedByOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "treaty.db")
	db := create(t, path, Options{})
	g := open(t, db, "first")
	db.scrub.Store(true)
	if err := db.Scrub(t.Context()); err != nil {
		t.Fatal(err)
	}
	if <-g.over; g.err != nil || !setting(t, db, "first") {
		t.Error(g.err)
	}
	c, err := db.write.get(t.Context())
	if err != nil || c.group != nil {
		t.Fatal(err)
	}
	db.write.put(c, false)
	g = open(t, db, "again")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if <-g.over; g.err != nil || !setting(t, reopen(t, path, Options{}), "again") {
		t.Error(g.err)
	}
}

// Many at once, some of which fail: each sees what it was told, and the log has exactly those that succeeded.
func TestGroupMany(t *testing.T) {
	db := fresh(t)
	const callers, each = 3 * maxGroup / 2, 8
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for j := range each {
				key, bad := fmt.Sprint(i, " ", j), (i+j)%3 == 0
				update := db.Update
				if j%2 == 0 {
					update = db.UpdateRelaxed
				}
				err := update(t.Context(), func(tx store.Tx) error {
					if _, err := tx.Append(started(key)); err != nil {
						return err
					}
					if err := tx.PutSetting(key, "1"); err != nil || bad {
						return errors.Join(err, errors.New("bad"))
					}
					return nil
				})
				if (err != nil) != bad || setting(t, db, key) == bad {
					t.Error(key, bad, err)
				}
			}
		})
	}
	all.Wait()
	if head, err := db.Check(t.Context()); err != nil || head.Seq != callers*each*2/3 {
		t.Error(head.Seq, err)
	}
}

// BenchmarkUpdates is what an update costs when 64 callers have one each.
func BenchmarkUpdates(b *testing.B) {
	db, err := Create(b.Context(), filepath.Join(b.TempDir(), "treaty.db"), Options{Node: node, Process: "node"})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := db.Update(b.Context(), func(tx store.Tx) error { _, err := tx.Append(started("x")); return err }); err != nil {
				b.Error(err)
			}
		}
	})
}
