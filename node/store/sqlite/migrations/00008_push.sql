-- SPDX-License-Identifier: Apache-2.0
-- Where callers want to be told what becomes of their tasks. Times as in 00001.

-- +goose Up
CREATE TABLE pushes (
    owner   TEXT NOT NULL,
    task_id TEXT NOT NULL,
    id      TEXT NOT NULL,
    bytes   BLOB NOT NULL,
    told    TEXT NOT NULL,
    failed  INTEGER NOT NULL,
    due     INTEGER NOT NULL,
    created INTEGER NOT NULL,
    PRIMARY KEY (owner, task_id, id)
) WITHOUT ROWID;
CREATE INDEX pushes_due ON pushes (due);
