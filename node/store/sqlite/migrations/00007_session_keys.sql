-- SPDX-License-Identifier: Apache-2.0

-- +goose Up

-- The private session keys of conversations under way, sealed. A row goes when its conversation ends.
CREATE TABLE session_keys (
    context_id TEXT PRIMARY KEY,
    sealed     BLOB NOT NULL
) WITHOUT ROWID;
