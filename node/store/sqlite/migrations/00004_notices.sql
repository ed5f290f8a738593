-- SPDX-License-Identifier: Apache-2.0
-- The outbox of notices, and whom this company knows.

-- +goose Up

CREATE TABLE notices (
    id         TEXT PRIMARY KEY,
    version    INTEGER NOT NULL,
    peer       TEXT NOT NULL,
    kind       TEXT NOT NULL,
    data       BLOB NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('pending', 'answered', 'failed')),
    context_id TEXT NOT NULL,
    envelope   BLOB,
    attempts   INTEGER NOT NULL,
    due        INTEGER NOT NULL,
    expires    INTEGER NOT NULL,
    created    INTEGER NOT NULL,
    answer     BLOB,
    code       TEXT NOT NULL,
    reason     TEXT NOT NULL
);
CREATE INDEX notices_due ON notices (state, due);
CREATE INDEX notices_peer ON notices (peer, state);
CREATE INDEX contracts_peer ON contracts (peer);
CREATE INDEX conversations_peer ON conversations (peer);
