// SPDX-License-Identifier: Apache-2.0

package main

import (
	"database/sql"
	"testing"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// openStore opens a company's store past everything that guards it, as an intruder on its machine can.
func openStore(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
