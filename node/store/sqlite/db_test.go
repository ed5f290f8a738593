// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

// raw runs SQL on the file behind the store's back.
func raw(t *testing.T, path string, statements ...string) error {
	t.Helper()
	handle, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	for _, s := range statements {
		if _, err := handle.ExecContext(t.Context(), s); err != nil {
			return err
		}
	}
	return nil
}

func TestCreateAndOpenAreDifferent(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a b%20?#.db") // the path is no part of a query
	if _, err := OpenExisting(t.Context(), path, Options{Process: "node"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing store: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opening left something: %v", err)
	}
	db := create(t, path, Options{})
	put(t, db, "key")
	for _, f := range []string{path, path + "-wal", path + "-shm"} {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f, info, err)
		}
	}
	if _, err := Create(t.Context(), path, Options{Node: node, Process: "node"}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("created over a store: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	again := reopen(t, path, Options{Node: node})
	if again.Node() != node {
		t.Errorf("node %s", again.Node())
	}
	if head, err := again.Check(t.Context()); err != nil || head.Seq != 1 {
		t.Errorf("%d, %v", head.Seq, err)
	}
	for name, o := range map[string]Options{"no node": {Process: "node"}, "no process": {Node: node}} {
		if _, err := Create(t.Context(), filepath.Join(dir, name), o); err == nil {
			t.Errorf("%s: created", name)
		}
	}
	if _, err := Create(t.Context(), filepath.Join(dir, "no", "folder"), Options{Node: node, Process: "node"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, content string, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign := file("foreign.db", "", 0o600)
	if err := raw(t, foreign, "CREATE TABLE t (x)"); err != nil {
		t.Fatal(err)
	}
	shared := filepath.Join(dir, "shared.db")
	if err := create(t, shared, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shared, 0o644); err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(dir, "newer.db")
	if err := create(t, newer, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	if err := raw(t, newer, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)"); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other.db")
	if err := create(t, other, Options{Node: "did:wba:other.test"}).Close(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		file("empty.db", "", 0o600):                                    ErrNotStore,
		file("text.db", strings.Repeat("not a database", 1000), 0o600): ErrNotStore,
		foreign: ErrNotStore,
		dir:     ErrNotStore,
		shared:  ErrMode,
		newer:   ErrTooNew,
		other:   ErrWrongNode,
	} {
		if _, err := OpenExisting(t.Context(), path, Options{Node: node, Process: "node"}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", filepath.Base(path), err, want)
		}
	}
}

// TestMigrationRace: several connections find an empty file and migrate it at once.
func TestMigrationRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "treaty.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			handle, err := sql.Open("sqlite", dsn(path, 0))
			if err != nil {
				t.Error(err)
				return
			}
			defer handle.Close()
			if err := migrate(t.Context(), handle); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := raw(t, path, "INSERT INTO identity (one, node) VALUES (1, 'did:wba:x.test')"); err != nil {
		t.Error(err)
	}
}

// TestWrittenOnce: the database itself refuses what no method does.
func TestWrittenOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "treaty.db")
	db := create(t, path, Options{})
	err := db.Update(t.Context(), func(tx store.Tx) error {
		_, err := tx.Append(started(""))
		return errors.Join(err,
			tx.PutReceipt(store.Receipt{ID: "r", ContractID: "c", Bytes: []byte("x")}),
			tx.PutRevocation(store.Revocation{ContractID: "c", Bytes: []byte("x")}),
			tx.PutEnvelope(store.EnvelopeRecord{Own: "o", Direction: store.In, Bytes: []byte("x")}))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"UPDATE events SET type = 'x'", "DELETE FROM events", "UPDATE receipts SET bytes = 'y'", "DELETE FROM receipts",
		"UPDATE revocations SET bytes = 'y'", "DELETE FROM revocations", "UPDATE envelopes SET bytes = 'y'",
		"UPDATE identity SET node = 'x'", "INSERT INTO identity VALUES (2, 'x')",
	} {
		if err := raw(t, path, statement); err == nil {
			t.Errorf("passed: %s", statement)
		}
	}
}

func TestEventTimesDoNotDecrease(t *testing.T) {
	c := clock.NewFake(start)
	db := create(t, filepath.Join(t.TempDir(), "treaty.db"), Options{Clock: c})
	for _, step := range []time.Duration{0, time.Hour, -2 * time.Hour, 30 * time.Minute, time.Hour} {
		c.Advance(step)
		put(t, db, step.String())
	}
	err := db.View(t.Context(), func(tx store.Tx) error {
		events, err := tx.Events(0, 0)
		var last time.Time
		for _, e := range events {
			if e.At().Before(last) {
				t.Errorf("event %d is before the one before it", e.Seq)
			}
			last = e.At()
		}
		if want := start.Add(time.Hour); !last.Equal(want) {
			t.Errorf("last at %v, want %v", last, want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDiskFull: an update that does not fit is refused as such, leaves nothing, and what fits still works.
func TestDiskFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "treaty.db")
	if err := create(t, path, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	db := reopen(t, path, Options{MaxBytes: info.Size() + 64<<10})
	put(t, db, "before")
	big := string(bytes.Repeat([]byte("x"), 1<<20))
	for name, fn := range map[string]func(store.Tx) error{
		"reported": func(tx store.Tx) error {
			_, err := tx.Append(started("half"))
			return errors.Join(err, tx.PutSetting("half", "x"), tx.PutSetting("big", big))
		},
		// SQLite has rolled back by then: what comes after must not stand alone.
		"ignored": func(tx store.Tx) error {
			_, _ = tx.Append(started("half"))
			_ = tx.PutSetting("big", big)
			_ = tx.PutSetting("half", "x")
			_, _ = tx.Append(started("half"))
			return nil
		},
	} {
		if err := db.Update(t.Context(), fn); !errors.Is(err, store.ErrFull) {
			t.Errorf("%s: %v", name, err)
		}
		err := db.View(t.Context(), func(tx store.Tx) error {
			for _, key := range []string{"half", "big"} {
				if _, err := tx.GetSetting(key); !errors.Is(err, store.ErrNotFound) {
					t.Errorf("%s: %s is there: %v", name, key, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if head, err := db.Check(t.Context()); err != nil || head.Seq != 1 {
			t.Errorf("%s: head %d, %v", name, head.Seq, err)
		}
	}
	put(t, db, "after")
	if head, err := db.Check(t.Context()); err != nil || head.Seq != 2 {
		t.Errorf("head %d, %v", head.Seq, err)
	}
}

// TestInterruptedWrite: SQLite rolls back a transaction whose writing statement is interrupted; an update that goes on
// must not commit its second half.
func TestInterruptedWrite(t *testing.T) {
	db := fresh(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := db.Update(ctx, func(tx store.Tx) error {
		_ = tx.PutSetting("first", "x")
		cancel()
		_ = tx.PutSetting("second", "x")
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	put(t, db, "later")
	err = db.View(t.Context(), func(tx store.Tx) error {
		for _, key := range []string{"first", "second"} {
			if _, err := tx.GetSetting(key); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s is there", key)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestWaitingForTheLock: a context ends the wait for another process's transaction.
func TestWaitingForTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "treaty.db")
	holder := create(t, path, Options{})
	waiter := reopen(t, path, Options{}) // another handle stands for another process
	err := holder.Update(t.Context(), func(store.Tx) error {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := waiter.Update(ctx, func(store.Tx) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		// Readers do not wait.
		return waiter.View(t.Context(), func(tx store.Tx) error { _, err := tx.Head(); return err })
	})
	if err != nil {
		t.Fatal(err)
	}
	put(t, waiter, "later")
}

func TestBackupAndRestore(t *testing.T) {
	dir := t.TempDir()
	path, copy1, back := filepath.Join(dir, "treaty.db"), filepath.Join(dir, "backup.db"), filepath.Join(dir, "restored.db")
	db := create(t, path, Options{})
	for _, key := range []string{"a", "b", "c"} {
		put(t, db, key)
	}
	// Updates go on while the backup is made.
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := db.Update(t.Context(), func(tx store.Tx) error { _, err := tx.Append(started("meanwhile")); return err }); err != nil {
				t.Error(err)
				return
			}
		}
	})
	head, err := db.Backup(t.Context(), copy1)
	close(stop)
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Backup(t.Context(), copy1); !errors.Is(err, fs.ErrExist) {
		t.Errorf("replaced a backup: %v", err)
	}
	put(t, db, "later")

	got, err := Restore(t.Context(), copy1, back)
	if err != nil || got != head || head.Seq < 3 {
		t.Fatalf("%+v, want %+v, %v", got, head, err)
	}
	restored := reopen(t, back, Options{Node: node})
	err = restored.View(t.Context(), func(tx store.Tx) error {
		for key, want := range map[string]error{"a": nil, "b": nil, "c": nil, "later": store.ErrNotFound} {
			if _, err := tx.GetSetting(key); !errors.Is(err, want) {
				t.Errorf("%s: %v", key, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	put(t, restored, "goes on")
	for _, f := range []string{copy1, back} {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f, info.Mode(), err)
		}
	}
	if _, err := Restore(t.Context(), copy1, path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("restored over a store: %v", err)
	}
}

// TestRestoreRefuses: a backup that was damaged or altered does not become a store.
func TestRestoreRefuses(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.db")
	db := create(t, filepath.Join(dir, "treaty.db"), Options{})
	for range 40 {
		put(t, db, strings.Repeat("k", 200))
	}
	if _, err := db.Backup(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(name string, want error, change func(path string)) {
		t.Helper()
		bad, out := filepath.Join(dir, name+".bad"), filepath.Join(dir, name+".db")
		if err := os.WriteFile(bad, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		change(bad)
		if _, err := Restore(t.Context(), bad, out); err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: a store was left: %v", name, err)
		}
	}
	sqlOn := func(statements ...string) func(string) {
		return func(path string) {
			if err := raw(t, path, statements...); err != nil {
				t.Fatal(err)
			}
		}
	}
	const triggers = "DROP TRIGGER events_only_grow_u; DROP TRIGGER events_only_grow_d"
	refuse("altered", ledger.ErrChain, sqlOn(triggers, `UPDATE events SET data = '{"build":"other"}' WHERE seq = 7`))
	refuse("dropped", ledger.ErrChain, sqlOn(triggers, "DELETE FROM events WHERE seq = 7"))
	refuse("renumbered", ledger.ErrChain, sqlOn(triggers, "DELETE FROM events WHERE seq = 7", "UPDATE events SET seq = seq - 1 WHERE seq > 7"))
	refuse("digest", store.ErrCorrupt, sqlOn(triggers, "UPDATE events SET hash = 'short' WHERE seq = 7"))
	refuse("cut", nil, func(path string) {
		if err := os.Truncate(path, int64(len(whole)/2)); err != nil {
			t.Fatal(err)
		}
	})
	refuse("open wal", nil, func(path string) {
		if err := os.WriteFile(path+"-wal", []byte("commits"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	refuse("not a store", ErrNotStore, func(path string) {
		if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	refuse("missing", fs.ErrNotExist, func(path string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := Restore(t.Context(), good, filepath.Join(dir, "control.db")); err != nil {
		t.Errorf("the control: %v", err)
	}
}

func TestNonces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "treaty.db")
	c := clock.NewFake(start)
	o := Options{Clock: c, Nonces: NonceLimits{Max: 8, PerDomain: 6, PerDID: 4}}
	db := create(t, path, o)
	minute := start.Add(time.Minute)
	use := func(keyid, nonce string, expires time.Time) (bool, error) {
		return db.Use(t.Context(), keyid, nonce, expires)
	}
	expect := func(keyid, nonce string, expires time.Time, fresh bool, want error) {
		t.Helper()
		got, err := use(keyid, nonce, expires)
		if got != fresh || !errors.Is(err, want) {
			t.Errorf("%s %s: %v, %v", keyid, nonce, got, err)
		}
	}
	const a, b, other = "did:wba:a.test:x#k", "did:wba:a.test%3A8443:y#k", "did:web:b.test#k"
	for _, n := range []string{"1", "2", "3", "4"} {
		expect(a, n, minute, true, nil)
		expect(a, n, minute, false, nil)
	}
	expect(a, "5", minute, false, httpsig.ErrNonceQuota)
	expect(b, "1", minute, true, nil) // another caller's
	expect(b, "2", minute, true, nil)
	expect(b, "3", minute, false, httpsig.ErrNonceQuota) // of the domain, whatever the port
	expect(other, "1", minute, true, nil)
	expect(other, "2", minute, true, nil)
	expect(other, "3", minute, false, httpsig.ErrNoncesFull)
	if fresh, err := use(a, "1", start); fresh || err == nil {
		t.Error("an expired nonce was recorded")
	}
	if fresh, err := use(a, "9", start.Add(time.Hour)); fresh || err == nil {
		t.Error("a nonce beyond the horizon was recorded")
	}

	// They survive a restart, and make room when they have expired, all at once if need be.
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = reopen(t, path, o)
	expect(a, "1", minute, false, nil)
	c.Set(minute)
	later := minute.Add(time.Minute)
	for _, n := range []string{"1", "2", "3", "4"} {
		expect(a, n, later, true, nil)
	}
	var rows, owners, live int
	if err := db.handle.QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM nonces), (SELECT count(*) FROM nonce_owners), (SELECT live FROM nonce_owners WHERE name = '*')").Scan(&rows, &owners, &live); err != nil {
		t.Fatal(err)
	}
	if rows != 4 || owners != 3 || live != 4 {
		t.Errorf("%d rows, %d owners, %d live", rows, owners, live)
	}
}

func TestNoncesConcurrently(t *testing.T) {
	db := fresh(t)
	expires := time.Now().Add(time.Minute)
	var wg sync.WaitGroup
	results := make(chan bool, 32)
	for range 32 {
		wg.Go(func() {
			fresh, err := db.Use(t.Context(), node+"#k", "one", expires)
			if err != nil {
				t.Error(err)
			}
			results <- fresh
		})
	}
	wg.Wait()
	close(results)
	n := 0
	for fresh := range results {
		if fresh {
			n++
		}
	}
	if n != 1 {
		t.Errorf("fresh %d times", n)
	}
}

// Updates are synced when they commit, relaxed ones are not; a pragma that a connection forgot would be seen by nobody else.
func TestSynchronous(t *testing.T) {
	db, err := Create(t.Context(), filepath.Join(t.TempDir(), "treaty.db"), Options{Node: node, Process: "node"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for name, tt := range map[string]struct {
		update func(context.Context, func(store.Tx) error) error
		want   int
	}{"Update": {db.Update, 2}, "UpdateRelaxed": {db.UpdateRelaxed, 1}} {
		err := tt.update(t.Context(), func(s store.Tx) error {
			var level int
			err := s.(*tx).c.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&level)
			if level != tt.want {
				t.Errorf("%s: synchronous is %d", name, level)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkUpdate(b *testing.B) {
	db, err := Create(b.Context(), filepath.Join(b.TempDir(), "treaty.db"), Options{Node: node, Process: "node"})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	for i := 0; b.Loop(); i++ {
		err := db.Update(b.Context(), func(tx store.Tx) error {
			if _, err := tx.Append(started("x")); err != nil {
				return err
			}
			return tx.PutConversation(store.Conversation{Own: "a", Peer: "b", ContextID: "c", State: []byte(`{}`)}, int64(i))
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFsync is the floor of BenchmarkUpdate: one write of the same size and one sync.
func BenchmarkFsync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "file"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	page := make([]byte, 4*4096)
	for b.Loop() {
		if _, err := f.Write(page); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkView(b *testing.B) {
	db, err := Create(b.Context(), filepath.Join(b.TempDir(), "treaty.db"), Options{Node: node, Process: "node"})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(b.Context(), func(tx store.Tx) error { return tx.PutSetting("k", "v") }); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := db.View(b.Context(), func(tx store.Tx) error { _, err := tx.GetSetting("k"); return err }); err != nil {
			b.Fatal(err)
		}
	}
}
