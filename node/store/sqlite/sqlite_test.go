// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/store/storetest"
)

const node = "did:wba:vendorcorp.test:agents:steward:e1_V"

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func create(t *testing.T, path string, o Options) *DB {
	t.Helper()
	if o.Node == "" {
		o.Node = node
	}
	if o.Process == "" {
		o.Process = "node"
	}
	db, err := Create(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func fresh(t *testing.T) *DB {
	t.Helper()
	return create(t, filepath.Join(t.TempDir(), "treaty.db"), Options{})
}

func reopen(t *testing.T, path string, o Options) *DB {
	t.Helper()
	if o.Process == "" {
		o.Process = "node"
	}
	db, err := OpenExisting(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// put writes one setting and one event.
func put(t *testing.T, db *DB, key string) {
	t.Helper()
	err := db.Update(t.Context(), func(tx store.Tx) error {
		if _, err := tx.Append(started(key)); err != nil {
			return err
		}
		return tx.PutSetting(key, key)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func started(context string) ledger.Entry {
	return ledger.Entry{Type: ledger.NodeStarted, Context: context, Data: ledger.Started{Build: "test"}}
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return fresh(t) })
}
