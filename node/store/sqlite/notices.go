// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"fmt"
	"time"

	"github.com/treaty-node/treaty/node/store"
)

const noticeColumns = "id, version, peer, kind, data, state, context_id, envelope, attempts, due, expires, created, answer, code, reason"

func scanNotice(r row) (n store.Notice, err error) {
	var due, expires, created int64
	err = r.Scan(&n.ID, &n.Version, &n.Peer, &n.Kind, &n.Data, &n.State, &n.ContextID, &n.Envelope, &n.Attempts, &due, &expires, &created, &n.Answer, &n.Code, &n.Reason)
	n.Due, n.Expires, n.Created = instant(due), instant(expires), instant(created)
	return n, err
}

func (t *tx) PutNotice(n store.Notice, expect int64) error {
	if expect == 0 {
		pending, err := one(t, integer, "SELECT count(*) FROM notices WHERE peer = ? AND state = ?", n.Peer, store.NoticePending)
		if err != nil {
			return err
		}
		if pending >= store.MaxNotices {
			return fmt.Errorf("%w: %d notices to %.200s are pending", store.ErrFull, pending, n.Peer)
		}
		_, err = t.exec("INSERT INTO notices ("+noticeColumns+") VALUES (?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			n.ID, n.Peer, n.Kind, n.Data, n.State, n.ContextID, n.Envelope, n.Attempts, micros(n.Due), micros(n.Expires), micros(n.Created), n.Answer, n.Code, n.Reason)
		return err
	}
	changed, err := t.exec(`UPDATE notices SET version = version + 1, state = ?, context_id = ?, envelope = ?, attempts = ?, due = ?, expires = ?, answer = ?, code = ?, reason = ?
		WHERE id = ? AND version = ? AND state = ?`,
		n.State, n.ContextID, n.Envelope, n.Attempts, micros(n.Due), micros(n.Expires), n.Answer, n.Code, n.Reason, n.ID, expect, store.NoticePending)
	if err == nil && changed == 0 {
		err = fmt.Errorf("%w: the notice is not pending at version %d", store.ErrConflict, expect)
	}
	return err
}

func (t *tx) GetNotice(id string) (store.Notice, error) {
	return one(t, scanNotice, "SELECT "+noticeColumns+" FROM notices WHERE id = ?", id)
}

func (t *tx) ListNotices(f store.NoticeFilter) ([]store.Notice, error) {
	where := "(?1 = '' OR state = ?1)"
	if f.State != "" {
		where = "state = ?1" // so that an index is used: this is asked again and again
	}
	return all(t, scanNotice, "SELECT "+noticeColumns+" FROM notices WHERE "+where+` AND (?2 = '' OR peer = ?2) AND (?3 = '' OR kind = ?3)
		AND (?4 = 0 OR due <= ?4) ORDER BY due, id LIMIT ?5`, f.State, f.Peer, f.Kind, micros(f.DueBy), limit(f.Limit))
}

func (t *tx) DeleteNoticesBefore(before time.Time) (int64, error) {
	return t.exec("DELETE FROM notices WHERE state <> ? AND created < ?", store.NoticePending, micros(before))
}

func (t *tx) KnowsPeer(peer, subject string) (bool, error) {
	// ';' follows ':' in the order of bytes: the range is everything that begins with subject and a colon.
	n, err := one(t, integer, `SELECT EXISTS (SELECT 1 FROM contracts WHERE peer = ?1 OR peer >= ?2 || ':' AND peer < ?2 || ';')
		OR EXISTS (SELECT 1 FROM conversations WHERE peer = ?1 OR peer >= ?2 || ':' AND peer < ?2 || ';')`, peer, subject)
	return n != 0, err
}
