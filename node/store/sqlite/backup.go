// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

// Backup writes a consistent snapshot of the store to path, which must not exist, and checks it. Updates go on meanwhile;
// the snapshot has all those that were committed when it began and none that came later. It returns the snapshot's head,
// which belongs beside the backup, in a place that a thief of the backup cannot change.
func (db *DB) Backup(ctx context.Context, path string) (ledger.Head, error) {
	tmp, err := emptyFile(path)
	if err != nil {
		return ledger.Head{}, err
	}
	defer removeAll(tmp)
	c, err := db.read.get(ctx)
	if err != nil {
		return ledger.Head{}, err
	}
	_, err = c.ExecContext(ctx, "VACUUM INTO ?", tmp)
	db.read.put(c, err != nil)
	if err != nil {
		return ledger.Head{}, fmt.Errorf("sqlite: backup: %w", classify(err))
	}
	head, err := check(ctx, tmp, db.node)
	if err != nil {
		return ledger.Head{}, fmt.Errorf("sqlite: backup: %w", err)
	}
	return head, publish(tmp, path)
}

// Restore makes a new store at path from a backup, after checking it: the file's integrity, and the whole event chain. It
// returns the head that the restored log ends at. Compare it with the newest head anybody outside has seen: a backup does
// not know what happened after it.
func Restore(ctx context.Context, backup, path string) (ledger.Head, error) {
	if err := checkFile(backup); err != nil {
		return ledger.Head{}, err
	}
	if _, err := os.Lstat(path); err == nil {
		return ledger.Head{}, fmt.Errorf("sqlite: restore: %s: %w", path, fs.ErrExist)
	}
	if info, err := os.Stat(backup + "-wal"); err == nil && info.Size() > 0 {
		return ledger.Head{}, fmt.Errorf("sqlite: restore: %s is in use, or was not closed: its last commits are in %[1]s-wal; make a backup of it instead of copying it", backup)
	}
	tmp, err := emptyFile(path)
	if err != nil {
		return ledger.Head{}, err
	}
	defer removeAll(tmp)
	if err := copyFile(backup, tmp); err != nil {
		return ledger.Head{}, fmt.Errorf("sqlite: restore: %w", err)
	}
	// The copy is checked and not the backup, so that what was checked is what is used.
	head, err := check(ctx, tmp, "")
	if err != nil {
		return ledger.Head{}, fmt.Errorf("sqlite: restore: %w", err)
	}
	return head, publish(tmp, path)
}

// check opens the file at path as a store, checks it, and closes it.
func check(ctx context.Context, path, node string) (head ledger.Head, err error) {
	db, err := OpenExisting(ctx, path, Options{Node: node, Process: "check"})
	if err != nil {
		return ledger.Head{}, err
	}
	head, err = db.Check(ctx)
	return head, errors.Join(err, db.Close())
}

// Check verifies that SQLite finds the file whole and that the event chain holds from its genesis on, and returns the
// chain's head. Errors wrap store.ErrCorrupt or ledger.ErrChain.
func (db *DB) Check(ctx context.Context) (ledger.Head, error) {
	head := ledger.Genesis(db.node)
	err := db.run(ctx, db.read, false, func(t *tx) error {
		findings, err := all(t, func(r row) (s string, err error) { err = r.Scan(&s); return s, err }, "PRAGMA integrity_check(10)")
		if err != nil {
			return err
		}
		if len(findings) != 1 || findings[0] != "ok" {
			return fmt.Errorf("%w: %q", store.ErrCorrupt, findings)
		}
		for {
			events, err := t.Events(head.Seq, store.MaxList)
			if err != nil || len(events) == 0 {
				return err
			}
			if head, err = ledger.VerifyChain(head, events); err != nil {
				return err
			}
		}
	})
	if err != nil {
		return ledger.Head{}, err
	}
	return head, nil
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Sync(), dst.Close())
}
