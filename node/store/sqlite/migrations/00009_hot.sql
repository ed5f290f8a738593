-- SPDX-License-Identifier: Apache-2.0

-- +goose Up

-- Every answer of the data plane writes a receipt and an event, durably, and each index is a page more to write.

-- receipts_result begins with the contract too.
DROP INDEX receipts_contract;

-- The sequence number alone is what makes the log one line: two events cannot have one place, and which of them follows which is
-- in the hashes, which who reads the log checks. Nobody looks an event up by a hash.
CREATE TABLE events_new (
    seq      INTEGER PRIMARY KEY CHECK (seq > 0),
    time     TEXT NOT NULL,
    node     TEXT NOT NULL,
    process  TEXT NOT NULL,
    type     TEXT NOT NULL,
    context  TEXT NOT NULL,
    contract TEXT NOT NULL,
    peer     TEXT NOT NULL,
    data     BLOB NOT NULL,
    prev     BLOB NOT NULL,
    hash     BLOB NOT NULL
);
INSERT INTO events_new SELECT * FROM events;
DROP TABLE events;
ALTER TABLE events_new RENAME TO events;
CREATE INDEX events_context ON events (context) WHERE context <> '';
CREATE INDEX events_contract ON events (contract) WHERE contract <> '';
-- +goose StatementBegin
CREATE TRIGGER events_only_grow_u BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events only grow'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER events_only_grow_d BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events only grow'); END;
-- +goose StatementEnd

-- Whether there is any at all is asked with every call.
CREATE INDEX successions_compromised ON successions (old) WHERE compromised_since <> 0;
