-- SPDX-License-Identifier: Apache-2.0
-- Times are microseconds since 1970 in UTC, 0 for none. Digests are 32 bytes.

-- +goose Up

-- "TRTY": a file that is not a treaty store is recognised before anything is read from it.
PRAGMA application_id = 1414681689;

CREATE TABLE identity (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    node TEXT NOT NULL CHECK (node <> '')
);

CREATE TABLE conversations (
    own        TEXT NOT NULL,
    peer       TEXT NOT NULL,
    context_id TEXT NOT NULL,
    role       TEXT NOT NULL,
    task_id    TEXT NOT NULL,
    phase      TEXT NOT NULL,
    version    INTEGER NOT NULL,
    state      BLOB,
    created    INTEGER NOT NULL,
    updated    INTEGER NOT NULL,
    PRIMARY KEY (own, peer, context_id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX conversations_task ON conversations (own, task_id, peer) WHERE task_id <> '';
CREATE INDEX conversations_context ON conversations (own, context_id);
CREATE INDEX conversations_updated ON conversations (updated);
CREATE INDEX conversations_phase ON conversations (own, phase, peer);

CREATE TABLE envelopes (
    own        TEXT NOT NULL,
    digest     BLOB NOT NULL,
    peer       TEXT NOT NULL,
    context_id TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    direction  TEXT NOT NULL CHECK (direction IN ('in', 'out')),
    bytes      BLOB NOT NULL,
    reply_to   BLOB,
    created    INTEGER NOT NULL,
    plaintext  BLOB,
    salt       BLOB,
    UNIQUE (own, digest),
    UNIQUE (own, peer, context_id, seq, direction)
);
CREATE UNIQUE INDEX envelopes_reply ON envelopes (own, reply_to) WHERE reply_to IS NOT NULL;

CREATE TABLE contracts (
    id         TEXT PRIMARY KEY,
    digest     BLOB NOT NULL,
    role       TEXT NOT NULL,
    bytes      BLOB NOT NULL,
    activation BLOB,
    state      TEXT NOT NULL,
    context_id TEXT NOT NULL,
    peer       TEXT NOT NULL,
    created    INTEGER NOT NULL
);
CREATE INDEX contracts_created ON contracts (created);

CREATE TABLE revocations (
    contract_id TEXT PRIMARY KEY,
    by_did      TEXT NOT NULL,
    bytes       BLOB NOT NULL,
    created     INTEGER NOT NULL
);

CREATE TABLE usage (
    contract_id TEXT PRIMARY KEY,
    calls       INTEGER NOT NULL CHECK (calls > 0)
) WITHOUT ROWID;

CREATE TABLE receipts (
    n           INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    contract_id TEXT NOT NULL,
    bytes       BLOB NOT NULL,
    created     INTEGER NOT NULL
);
CREATE INDEX receipts_contract ON receipts (contract_id);

CREATE TABLE answers (
    contract_id  TEXT NOT NULL,
    digest       BLOB NOT NULL,
    bytes        BLOB NOT NULL,
    created      INTEGER NOT NULL,
    delete_after INTEGER NOT NULL,
    PRIMARY KEY (contract_id, digest)
);
CREATE INDEX answers_delete ON answers (delete_after);

CREATE TABLE events (
    seq      INTEGER PRIMARY KEY CHECK (seq > 0),
    time     TEXT NOT NULL,
    node     TEXT NOT NULL,
    process  TEXT NOT NULL,
    type     TEXT NOT NULL,
    context  TEXT NOT NULL,
    contract TEXT NOT NULL,
    peer     TEXT NOT NULL,
    data     BLOB NOT NULL,
    prev     BLOB NOT NULL UNIQUE,
    hash     BLOB NOT NULL UNIQUE
);
CREATE INDEX events_context ON events (context) WHERE context <> '';
CREATE INDEX events_contract ON events (contract) WHERE contract <> '';

CREATE TABLE settings (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE tasks (
    id         TEXT PRIMARY KEY,
    owner      TEXT NOT NULL,
    context_id TEXT NOT NULL,
    version    INTEGER NOT NULL,
    bytes      BLOB NOT NULL,
    updated    INTEGER NOT NULL
);
CREATE INDEX tasks_owner ON tasks (owner, updated);

CREATE TABLE equivocations (
    own        TEXT NOT NULL,
    peer       TEXT NOT NULL,
    context_id TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    first      BLOB NOT NULL,
    second     BLOB NOT NULL,
    created    INTEGER NOT NULL,
    UNIQUE (own, peer, context_id, seq, first, second)
);

CREATE TABLE nonces (
    id      BLOB PRIMARY KEY,
    did     TEXT NOT NULL,
    domain  TEXT NOT NULL,
    expires INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX nonces_expires ON nonces (expires);

CREATE TABLE nonce_owners (
    name TEXT PRIMARY KEY,
    live INTEGER NOT NULL CHECK (live >= 0)
) WITHOUT ROWID;

CREATE TABLE pins (
    n             INTEGER PRIMARY KEY,
    did           TEXT NOT NULL,
    hash          BLOB NOT NULL,
    raw           BLOB NOT NULL,
    proof_created INTEGER NOT NULL,
    deactivated   INTEGER NOT NULL,
    first_seen    INTEGER NOT NULL,
    UNIQUE (did, hash)
);

CREATE TABLE pins_held (
    did           TEXT PRIMARY KEY,
    hash          BLOB NOT NULL,
    raw           BLOB NOT NULL,
    proof_created INTEGER NOT NULL,
    deactivated   INTEGER NOT NULL,
    first_seen    INTEGER NOT NULL
);

-- What is written once is held by the database too, so that a mistake in a statement cannot undo it.
-- +goose StatementBegin
CREATE TRIGGER events_only_grow_u BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events only grow'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER events_only_grow_d BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events only grow'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER envelopes_once BEFORE UPDATE OF own, digest, peer, context_id, seq, direction, bytes, reply_to ON envelopes BEGIN SELECT RAISE(ABORT, 'envelopes are written once'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER revocations_once_u BEFORE UPDATE ON revocations BEGIN SELECT RAISE(ABORT, 'revocations are written once'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER revocations_once_d BEFORE DELETE ON revocations BEGIN SELECT RAISE(ABORT, 'revocations are written once'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER receipts_once_u BEFORE UPDATE ON receipts BEGIN SELECT RAISE(ABORT, 'receipts are written once'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER receipts_once_d BEFORE DELETE ON receipts BEGIN SELECT RAISE(ABORT, 'receipts are written once'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER identity_once BEFORE UPDATE ON identity BEGIN SELECT RAISE(ABORT, 'the identity is written once'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER pins_once_u BEFORE UPDATE ON pins BEGIN SELECT RAISE(ABORT, 'pins are written once'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER pins_once_d BEFORE DELETE ON pins BEGIN SELECT RAISE(ABORT, 'pins are written once'); END;
-- +goose StatementEnd
