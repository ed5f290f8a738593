// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/treaty-node/treaty/node/store"
)

// classify gives an error of the driver the meaning that node/store defines.
func classify(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, sql.ErrNoRows) {
		return store.ErrNotFound
	}
	var e *driver.Error
	if !errors.As(err, &e) {
		return err
	}
	var kind error
	switch e.Code() & 0xff { // the primary code; the rest says where
	case lib.SQLITE_CONSTRAINT:
		kind = store.ErrConflict
	case lib.SQLITE_FULL:
		kind = store.ErrFull
	case lib.SQLITE_READONLY:
		kind = store.ErrReadOnly
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		kind = store.ErrCorrupt
	case lib.SQLITE_INTERRUPT:
		kind = context.Canceled
	default:
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// notStore is for reading the first page.
func notStore(err error) error {
	if err = classify(err); errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%w: %w", ErrNotStore, err)
	}
	return err
}

// poisons says whether SQLite may have rolled the transaction back by itself: everything but a constraint.
// https://www.sqlite.org/lang_transaction.html#response_to_errors_within_a_transaction
func poisons(err error) bool {
	return !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound)
}
