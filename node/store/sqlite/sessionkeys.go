// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"fmt"

	"github.com/treaty-node/treaty/node/store"
)

func (t *tx) PutSessionKeys(contextID string, sealed []byte) error {
	if len(sealed) == 0 || len(sealed) > store.MaxSessionKeys {
		return fmt.Errorf("sqlite: session keys of %d bytes", len(sealed))
	}
	_, err := t.exec("INSERT INTO session_keys (context_id, sealed) VALUES (?, ?)", contextID, sealed)
	return err
}

func (t *tx) GetSessionKeys(contextID string) ([]byte, error) {
	return one(t, func(r row) (v []byte, err error) { err = r.Scan(&v); return v, err }, "SELECT sealed FROM session_keys WHERE context_id = ?", contextID)
}

// DeleteSessionKeys relies on secure_delete, which has SQLite overwrite what it deletes. Older pages stay in the write-ahead log
// until Scrub.
func (t *tx) DeleteSessionKeys(contextID string) error {
	n, err := t.exec("DELETE FROM session_keys WHERE context_id = ?", contextID)
	if err == nil && n > 0 {
		t.db.scrub.Store(true)
	}
	return err
}

// Scrub empties the write-ahead log if session keys were deleted since it last did: with that they are in none of the store's
// files any more. It waits for running transactions, for as long as a transaction of another process may take.
func (db *DB) Scrub(ctx context.Context) error {
	if !db.scrub.Swap(false) {
		return nil
	}
	c, err := db.alone(ctx)
	if err != nil {
		db.scrub.Store(true)
		return err
	}
	defer db.write.put(c, false)
	var busy, logged, moved int
	err = c.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &logged, &moved)
	if err != nil || busy != 0 {
		db.scrub.Store(true) // the next call tries again
	}
	return classify(err)
}
