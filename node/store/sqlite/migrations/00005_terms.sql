-- SPDX-License-Identifier: Apache-2.0

-- +goose Up

-- What calls have taken out of a contract beside their number: calls in the newest window of its rate, rows, and millionths of
-- epsilon.
CREATE TABLE drawn (
    contract_id  TEXT PRIMARY KEY,
    window_start INTEGER NOT NULL,
    window_calls INTEGER NOT NULL CHECK (window_calls >= 0),
    row_count    INTEGER NOT NULL CHECK (row_count >= 0),
    epsilon      INTEGER NOT NULL CHECK (epsilon >= 0)
) WITHOUT ROWID;

-- The shapes of queries that were answered, by who asked and what was asked, the newest few of each.
CREATE TABLE shapes (
    n       INTEGER PRIMARY KEY,
    buyer   TEXT NOT NULL,
    dataset TEXT NOT NULL,
    digest  BLOB NOT NULL,
    bytes   BLOB NOT NULL,
    UNIQUE (buyer, dataset, digest)
);
