// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/store"
)

const contractColumns = "id, digest, role, bytes, activation, state, context_id, peer, created"

func scanContract(r row) (c store.ContractRecord, err error) {
	var created int64
	err = r.Scan(&c.ID, (*digest)(&c.Digest), &c.Role, &c.Bytes, &c.Activation, &c.State, &c.ContextID, &c.Peer, &created)
	c.Created = instant(created)
	return c, err
}

func (t *tx) PutContract(c store.ContractRecord) error {
	old, err := t.GetContract(c.ID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		if err := store.CheckContract(nil, &c); err != nil {
			return err
		}
		_, err = t.exec("INSERT INTO contracts ("+contractColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
			c.ID, c.Digest[:], c.Role, c.Bytes, c.Activation, c.State, c.ContextID, c.Peer, micros(c.Created))
		return err
	case err != nil:
		return err
	}
	if err := store.CheckContract(&old, &c); err != nil {
		return err
	}
	// Nobody can have changed it since it was read: this transaction holds the write lock.
	_, err = t.exec("UPDATE contracts SET bytes = ?, activation = ?, state = ? WHERE id = ?", c.Bytes, c.Activation, c.State, c.ID)
	return err
}

func (t *tx) GetContract(id string) (store.ContractRecord, error) {
	return one(t, scanContract, "SELECT "+contractColumns+" FROM contracts WHERE id = ?", id)
}

func (t *tx) ListContracts(f store.ContractFilter) ([]store.ContractRecord, error) {
	return all(t, scanContract, "SELECT "+contractColumns+` FROM contracts
		WHERE (?1 = '' OR role = ?1) AND (?2 = '' OR peer = ?2) AND (?3 = '' OR state = ?3) AND (?4 = '' OR context_id = ?4)
		ORDER BY created DESC, id LIMIT ?5`, f.Role, f.Peer, f.State, f.ContextID, limit(f.Limit))
}

func scanRevocation(r row) (v store.Revocation, err error) {
	var created int64
	err = r.Scan(&v.ContractID, &v.By, &v.Bytes, &created)
	v.Created = instant(created)
	return v, err
}

func (t *tx) PutRevocation(v store.Revocation) error {
	n, err := t.exec("INSERT INTO revocations (contract_id, by_did, bytes, created) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
		v.ContractID, v.By, v.Bytes, micros(v.Created))
	if err != nil || n == 1 {
		return err
	}
	old, err := t.GetRevocation(v.ContractID)
	if err == nil && !bytes.Equal(old.Bytes, v.Bytes) {
		err = fmt.Errorf("%w: contract %s is revoked by another document", store.ErrConflict, v.ContractID)
	}
	return err
}

func (t *tx) GetRevocation(contractID string) (store.Revocation, error) {
	return one(t, scanRevocation, "SELECT contract_id, by_did, bytes, created FROM revocations WHERE contract_id = ?", contractID)
}

func (t *tx) Revoked(contractID string) (bool, error) {
	n, err := one(t, integer, "SELECT EXISTS (SELECT 1 FROM revocations WHERE contract_id = ?)", contractID)
	return n == 1, err
}

// RevokedAfter and GetStanding take the row number for the epoch: revocations are never deleted, so that the highest grows with each.
func (t *tx) RevokedAfter(epoch uint64) (ids []string, last uint64, err error) {
	ids, err = all(t, func(r row) (id string, err error) { err = r.Scan(&id, &last); return id, err },
		"SELECT contract_id, rowid FROM revocations WHERE rowid > ? ORDER BY rowid LIMIT ?", number(epoch), store.MaxList)
	return ids, last, err
}

func (t *tx) GetStanding(contractID string) (store.Standing, error) {
	return one(t, func(r row) (s store.Standing, err error) {
		c, d := &s.Contract, &s.Drawn
		var created int64
		err = r.Scan(&c.ID, (*digest)(&c.Digest), &c.Role, &c.Bytes, &c.Activation, &c.State, &c.ContextID, &c.Peer, &created,
			&s.Revoked, &s.Epoch, &s.Calls, &d.Window, &d.WindowCalls, &d.Rows, &d.Epsilon, &s.Compromises)
		c.Created = instant(created)
		return s, err
	}, `SELECT c.id, c.digest, c.role, c.bytes, c.activation, c.state, c.context_id, c.peer, c.created,
		EXISTS (SELECT 1 FROM revocations WHERE contract_id = ?1),
		coalesce((SELECT max(rowid) FROM revocations), 0), coalesce(u.calls, 0),
		coalesce(d.window_start, 0), coalesce(d.window_calls, 0), coalesce(d.row_count, 0), coalesce(d.epsilon, 0),
		EXISTS (SELECT 1 FROM successions WHERE compromised_since <> 0)
		FROM contracts c LEFT JOIN usage u ON u.contract_id = ?1 LEFT JOIN drawn d ON d.contract_id = ?1 WHERE c.id = ?1`, contractID)
}

func (t *tx) Reserve(contractID string, budget int64) (int64, error) {
	if budget < 1 {
		used, err := t.GetUsage(contractID)
		if err == nil {
			err = store.ErrBudget
		}
		return used, err
	}
	// One statement, one condition: of any number of callers, in any number of processes, no more than budget pass.
	used, err := t.returning(`INSERT INTO usage (contract_id, calls) VALUES (?1, 1)
		ON CONFLICT (contract_id) DO UPDATE SET calls = calls + 1 WHERE calls < ?2
		RETURNING calls`, contractID, budget)
	if errors.Is(err, store.ErrNotFound) {
		if used, err = t.GetUsage(contractID); err == nil {
			err = store.ErrBudget
		}
	}
	return used, err
}

// returning runs a writing statement that returns one number.
func (t *tx) returning(query string, args ...any) (int64, error) {
	if !t.write {
		return 0, store.ErrReadOnly
	}
	return one(t, integer, query, args...)
}

func (t *tx) GetUsage(contractID string) (int64, error) {
	return one(t, integer, "SELECT coalesce((SELECT calls FROM usage WHERE contract_id = ?), 0)", contractID)
}

const receiptColumns = "id, contract_id, result, bytes, created"

func scanReceipt(r row) (v store.Receipt, err error) {
	var created int64
	err = r.Scan(&v.ID, &v.ContractID, (*digestText)(&v.Result), &v.Bytes, &created)
	v.Created = instant(created)
	return v, err
}

func (t *tx) PutReceipt(v store.Receipt) error {
	_, err := t.exec("INSERT INTO receipts ("+receiptColumns+") VALUES (?, ?, ?, ?, ?)", v.ID, v.ContractID, digestOrNone(v.Result), v.Bytes, micros(v.Created))
	return err
}

func (t *tx) GetReceipt(id string) (store.Receipt, error) {
	return one(t, scanReceipt, "SELECT "+receiptColumns+" FROM receipts WHERE id = ?", id)
}

func (t *tx) ListReceipts(contractID, after string, n int) ([]store.Receipt, error) {
	return all(t, scanReceipt, "SELECT "+receiptColumns+` FROM receipts
		WHERE contract_id = ?1 AND n > coalesce((SELECT n FROM receipts WHERE id = ?2), 0) ORDER BY n LIMIT ?3`, contractID, after, limit(n))
}

func (t *tx) ReceiptsOf(contractID string, result canon.Digest, n int) ([]store.Receipt, error) {
	if result.IsZero() {
		return []store.Receipt{}, nil // refusals have no result
	}
	return all(t, scanReceipt, "SELECT "+receiptColumns+" FROM receipts WHERE contract_id = ? AND result = ? ORDER BY n LIMIT ?", contractID, result.String(), limit(n))
}

func scanResult(r row) (v store.Result, err error) {
	var first, last int64
	err = r.Scan((*digestText)(&v.Digest), &v.Receipts, &first, &last)
	v.First, v.Last = instant(first), instant(last)
	return v, err
}

func (t *tx) ListResults(contractID string, n int) ([]store.Result, error) {
	return all(t, scanResult, `SELECT result, count(*), min(created), max(created) FROM receipts WHERE contract_id = ? AND result <> ''
		GROUP BY result ORDER BY min(n) LIMIT ?`, contractID, limit(n))
}

// digestText scans the text form of a digest; "" is the zero digest.
type digestText canon.Digest

func (d *digestText) Scan(src any) error {
	s, ok := src.(string)
	if ok && s == "" {
		*d = digestText{}
		return nil
	}
	v, err := canon.ParseDigest(s)
	if err != nil {
		return fmt.Errorf("%w: a digest is not in its text form", store.ErrCorrupt)
	}
	*d = digestText(v)
	return nil
}

// digestOrNone is d as text, "" for the zero digest.
func digestOrNone(d canon.Digest) string {
	if d.IsZero() {
		return ""
	}
	return d.String()
}

func scanAnswer(r row) (a store.Answer, err error) {
	var created, deleteAfter int64
	err = r.Scan((*digest)(&a.Digest), &a.ContractID, &a.Bytes, &created, &deleteAfter)
	a.Created, a.DeleteAfter = instant(created), instant(deleteAfter)
	return a, err
}

func (t *tx) PutAnswer(a store.Answer) error {
	if a.DeleteAfter.IsZero() {
		return errors.New("sqlite: an answer without an end of its retention would stay for ever")
	}
	_, err := t.exec(`INSERT INTO answers (contract_id, digest, bytes, created, delete_after) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET delete_after = min(delete_after, excluded.delete_after)`,
		a.ContractID, a.Digest[:], a.Bytes, micros(a.Created), micros(a.DeleteAfter))
	return err
}

func (t *tx) GetAnswer(contractID string, d canon.Digest) (store.Answer, error) {
	return one(t, scanAnswer, "SELECT digest, contract_id, bytes, created, delete_after FROM answers WHERE contract_id = ? AND digest = ?", contractID, d[:])
}

func (t *tx) DeleteAnswer(contractID string, d canon.Digest) error {
	n, err := t.exec("DELETE FROM answers WHERE contract_id = ? AND digest = ?", contractID, d[:])
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	return err
}

// scanHeld scans an answer without its bytes.
func scanHeld(r row) (a store.Answer, err error) {
	var created, deleteAfter int64
	err = r.Scan((*digest)(&a.Digest), &a.ContractID, &created, &deleteAfter)
	a.Created, a.DeleteAfter = instant(created), instant(deleteAfter)
	return a, err
}

func (t *tx) ListAnswers(contractID string, n int) ([]store.Answer, error) {
	return all(t, scanHeld, "SELECT digest, contract_id, created, delete_after FROM answers WHERE contract_id = ? ORDER BY delete_after, created, digest LIMIT ?", contractID, limit(n))
}

func (t *tx) DueAnswers(at time.Time, n int) ([]store.Answer, error) {
	return all(t, scanHeld, "SELECT digest, contract_id, created, delete_after FROM answers WHERE delete_after <= ? ORDER BY contract_id, delete_after, created, digest LIMIT ?", micros(at), limit(n))
}

func scanStatement(r row) (s store.Statement, err error) {
	var created int64
	err = r.Scan(&s.ContractID, (*digest)(&s.Digest), &s.Kind, &s.By, &s.Bytes, &created)
	s.Created = instant(created)
	return s, err
}

func (t *tx) PutStatement(s store.Statement) error {
	n, err := t.exec("INSERT INTO statements (contract_id, digest, kind, by_did, bytes, created) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
		s.ContractID, s.Digest[:], s.Kind, s.By, s.Bytes, micros(s.Created))
	if err != nil || n == 1 {
		return err
	}
	old, err := one(t, scanStatement, "SELECT contract_id, digest, kind, by_did, bytes, created FROM statements WHERE contract_id = ? AND digest = ?", s.ContractID, s.Digest[:])
	if err == nil && !bytes.Equal(old.Bytes, s.Bytes) {
		err = fmt.Errorf("%w: contract %s has another statement with this digest", store.ErrConflict, s.ContractID)
	}
	return err
}

func (t *tx) ListStatements(contractID, kind string, n int) ([]store.Statement, error) {
	return all(t, scanStatement, `SELECT contract_id, digest, kind, by_did, bytes, created FROM statements
		WHERE contract_id = ?1 AND (?2 = '' OR kind = ?2) ORDER BY n LIMIT ?3`, contractID, kind, limit(n))
}
