-- SPDX-License-Identifier: Apache-2.0
-- Steps from a DID to its direct successor that were verified. Times as in 00001.

-- +goose Up

CREATE TABLE successions (
    old               TEXT PRIMARY KEY,
    new               TEXT NOT NULL UNIQUE,
    assurance         TEXT NOT NULL CHECK (assurance IN ('verified', 'recovery_verified')),
    old_hash          BLOB NOT NULL,
    new_hash          BLOB NOT NULL,
    at                INTEGER NOT NULL,
    own               INTEGER NOT NULL CHECK (own IN (0, 1)),
    compromised_since INTEGER NOT NULL
) WITHOUT ROWID;
