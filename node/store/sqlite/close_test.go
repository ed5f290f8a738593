// SPDX-License-Identifier: Apache-2.0

package sqlite_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/store/sqlite"
)

// TestCloseLeavesOneFile: a store that was closed is one file, with every commit in it.
func TestCloseLeavesOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "treaty.db")
	o := sqlite.Options{Node: "did:wba:vendorcorp.test", Process: "node"}
	db, err := sqlite.Create(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(t.Context(), func(tx store.Tx) error {
		_, err := tx.Append(ledger.Entry{Type: ledger.NodeStarted, Data: ledger.Started{Build: "1"}})
		return err
	})
	if err == nil {
		err = db.View(t.Context(), func(tx store.Tx) error {
			_, err := tx.Events(0, 10)
			return err
		})
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 1 || files[0].Name() != "treaty.db" {
		t.Errorf("%v, %v", files, err)
	}
}

// TestNoStoreBesideAnothersLog: SQLite would replay what is left of another store on the new one.
func TestNoStoreBesideAnothersLog(t *testing.T) {
	dir := t.TempDir()
	o := sqlite.Options{Node: "did:wba:vendorcorp.test", Process: "node"}
	db, err := sqlite.Create(t.Context(), filepath.Join(dir, "treaty.db"), o)
	if err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(dir, "backup.db")
	_, err = db.Backup(t.Context(), backup)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"-wal", "-shm", "-journal"} {
		path := filepath.Join(dir, "new"+suffix+".db")
		left := path + suffix
		if err := os.WriteFile(left, []byte("commits"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := sqlite.Restore(t.Context(), backup, path)
		if !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), left) {
			t.Errorf("restore: %v", err)
		}
		if _, err = sqlite.Create(t.Context(), path, o); !errors.Is(err, fs.ErrExist) {
			t.Errorf("create: %v", err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a store was made: %v", err)
		}
		if err := os.Remove(left); err != nil {
			t.Fatal(err)
		}
		if _, err := sqlite.Restore(t.Context(), backup, path); err != nil {
			t.Error(err)
		}
	}
}
