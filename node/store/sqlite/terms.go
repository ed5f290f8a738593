// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"errors"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/store"
)

func (t *tx) Draw(contractID string, d store.Draw) error {
	if d.WindowLimit < 0 || d.Rows < 0 || d.RowLimit < 0 || d.Epsilon < 0 || d.EpsilonLimit < 0 {
		return errors.New("sqlite: a negative draw")
	}
	if !t.write {
		return store.ErrReadOnly
	}
	if d.WindowLimit == 0 && d.RowLimit == 0 && d.EpsilonLimit == 0 {
		return nil
	}
	if _, err := t.exec(`INSERT INTO drawn (contract_id, window_start, window_calls, row_count, epsilon) VALUES (?, 0, 0, 0, 0)
		ON CONFLICT DO NOTHING`, contractID); err != nil {
		return err
	}
	call, rows, epsilon := int64(0), int64(0), int64(0)
	if d.WindowLimit > 0 {
		call = 1
	}
	if d.RowLimit > 0 {
		rows = d.Rows
	}
	if d.EpsilonLimit > 0 {
		epsilon = d.Epsilon
	}
	// One statement with all conditions: of any number of callers, in any number of processes, no more pass than the limits let.
	n, err := t.exec(`UPDATE drawn SET
		window_calls = CASE WHEN ?2 = 0 THEN window_calls WHEN window_start < ?3 THEN 1 ELSE window_calls + 1 END,
		window_start = CASE WHEN ?2 = 0 THEN window_start ELSE max(window_start, ?3) END,
		row_count = row_count + ?5, epsilon = epsilon + ?7
		WHERE contract_id = ?1
		AND (?2 = 0 OR window_start < ?3 OR window_calls < ?4)
		AND (?6 = 0 OR row_count <= ?6 - ?5)
		AND (?8 = 0 OR epsilon <= ?8 - ?7)`,
		contractID, call, d.Window, d.WindowLimit, rows, d.RowLimit, epsilon, d.EpsilonLimit)
	if err != nil || n == 1 {
		return err
	}
	was, err := t.GetDrawn(contractID)
	switch {
	case err != nil:
		return err
	case d.RowLimit > 0 && was.Rows > d.RowLimit-rows:
		return store.ErrRows
	case d.WindowLimit > 0 && was.Window >= d.Window && was.WindowCalls >= d.WindowLimit:
		return store.ErrRate
	}
	return store.ErrEpsilon
}

func scanDrawn(r row) (d store.Drawn, err error) {
	err = r.Scan(&d.Window, &d.WindowCalls, &d.Rows, &d.Epsilon)
	return d, err
}

func (t *tx) GetDrawn(contractID string) (store.Drawn, error) {
	d, err := one(t, scanDrawn, "SELECT window_start, window_calls, row_count, epsilon FROM drawn WHERE contract_id = ?", contractID)
	if errors.Is(err, store.ErrNotFound) {
		return store.Drawn{}, nil
	}
	return d, err
}

func (t *tx) ReturnRows(contractID string, n int64) error {
	if n < 0 {
		return errors.New("sqlite: a negative return")
	}
	_, err := t.exec("UPDATE drawn SET row_count = max(0, row_count - ?) WHERE contract_id = ?", n, contractID)
	return err
}

func (t *tx) PutShape(s store.Shape, keep int) error {
	if err := t.DeleteShape(s.Buyer, s.Dataset, s.Digest); err != nil {
		return err
	}
	if _, err := t.exec("INSERT INTO shapes (buyer, dataset, digest, bytes) VALUES (?, ?, ?, ?)", s.Buyer, s.Dataset, s.Digest[:], s.Bytes); err != nil {
		return err
	}
	_, err := t.exec(`DELETE FROM shapes WHERE buyer = ?1 AND dataset = ?2 AND n NOT IN
		(SELECT n FROM shapes WHERE buyer = ?1 AND dataset = ?2 ORDER BY n DESC LIMIT ?3)`, s.Buyer, s.Dataset, max(keep, 1))
	return err
}

func (t *tx) DeleteShape(buyer, dataset string, d canon.Digest) error {
	_, err := t.exec("DELETE FROM shapes WHERE buyer = ? AND dataset = ? AND digest = ?", buyer, dataset, d[:])
	return err
}

func scanShape(r row) (s store.Shape, err error) {
	err = r.Scan(&s.Buyer, &s.Dataset, (*digest)(&s.Digest), &s.Bytes)
	return s, err
}

func (t *tx) ListShapes(buyer, dataset string) ([]store.Shape, error) {
	return all(t, scanShape, "SELECT buyer, dataset, digest, bytes FROM shapes WHERE buyer = ? AND dataset = ? ORDER BY n DESC", buyer, dataset)
}
