-- SPDX-License-Identifier: Apache-2.0

-- +goose Up

-- Signed documents about contracts: revocations, acknowledgements, deletion statements.
CREATE TABLE statements (
    n           INTEGER PRIMARY KEY,
    contract_id TEXT NOT NULL,
    digest      BLOB NOT NULL,
    kind        TEXT NOT NULL,
    by_did      TEXT NOT NULL,
    bytes       BLOB NOT NULL,
    created     INTEGER NOT NULL,
    UNIQUE (contract_id, digest)
);

-- Which result a receipt is about, as receipts write it: '' for a refusal.
ALTER TABLE receipts ADD COLUMN result TEXT NOT NULL DEFAULT '';
DROP TRIGGER receipts_once_u;
UPDATE receipts SET result = coalesce(json_extract(CAST(bytes AS TEXT), '$.resultDigest'), '') WHERE json_valid(CAST(bytes AS TEXT));
CREATE INDEX receipts_result ON receipts (contract_id, result);

-- +goose StatementBegin
CREATE TRIGGER receipts_once_u BEFORE UPDATE ON receipts BEGIN SELECT RAISE(ABORT, 'receipts are written once'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER statements_once_u BEFORE UPDATE ON statements BEGIN SELECT RAISE(ABORT, 'statements are written once'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER statements_once_d BEFORE DELETE ON statements BEGIN SELECT RAISE(ABORT, 'statements are written once'); END;
-- +goose StatementEnd
