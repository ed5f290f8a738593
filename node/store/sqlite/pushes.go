// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"fmt"
	"time"

	"github.com/treaty-node/treaty/node/store"
)

const pushColumns = "owner, task_id, id, bytes, told, failed, due, created"

func scanPush(r row) (p store.Push, err error) {
	var due, created int64
	err = r.Scan(&p.Owner, &p.TaskID, &p.ID, &p.Bytes, &p.Told, &p.Failed, &due, &created)
	p.Due, p.Created = instant(due), instant(created)
	return p, err
}

func (t *tx) PutPush(p store.Push) error {
	_, err := t.exec("INSERT INTO pushes ("+pushColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (owner, task_id, id) DO UPDATE
		SET bytes = excluded.bytes, told = excluded.told, failed = excluded.failed, due = excluded.due`,
		p.Owner, p.TaskID, p.ID, p.Bytes, p.Told, p.Failed, micros(p.Due), micros(p.Created))
	if err != nil {
		return err
	}
	for _, q := range []struct {
		where string
		args  []any
		most  int64
	}{
		{"owner = ? AND task_id = ?", []any{p.Owner, p.TaskID}, store.MaxPushesOfTask},
		{"owner = ?", []any{p.Owner}, store.MaxPushesOfOwner},
		{"true", nil, store.MaxPushes},
	} {
		n, err := one(t, integer, "SELECT count(*) FROM pushes WHERE "+q.where, q.args...)
		if err != nil {
			return err
		}
		if n > q.most {
			// A replaced one adds nothing, so what is too many is the one just put.
			_, err := t.exec("DELETE FROM pushes WHERE owner = ? AND task_id = ? AND id = ?", p.Owner, p.TaskID, p.ID)
			if err == nil {
				err = fmt.Errorf("%w: %d push notification configurations", store.ErrTooMany, q.most)
			}
			return err
		}
	}
	return nil
}

func (t *tx) GetPush(owner, taskID, id string) (store.Push, error) {
	return one(t, scanPush, "SELECT "+pushColumns+" FROM pushes WHERE owner = ? AND task_id = ? AND id = ?", owner, taskID, id)
}

func (t *tx) ListPushes(owner, taskID string) ([]store.Push, error) {
	return all(t, scanPush, "SELECT "+pushColumns+" FROM pushes WHERE owner = ? AND task_id = ? ORDER BY id", owner, taskID)
}

func (t *tx) DeletePush(owner, taskID, id string) error {
	_, err := t.exec("DELETE FROM pushes WHERE owner = ? AND task_id = ? AND id = ?", owner, taskID, id)
	return err
}

func (t *tx) DuePushes(at time.Time, n int) ([]store.Push, error) {
	return all(t, scanPush, "SELECT "+pushColumns+" FROM pushes WHERE due <= ? ORDER BY due, owner, task_id, id LIMIT ?", micros(at), limit(n))
}

func (t *tx) MarkPush(p store.Push) error {
	n, err := t.exec("UPDATE pushes SET told = ?, failed = ?, due = ? WHERE owner = ? AND task_id = ? AND id = ? AND bytes = ?",
		p.Told, p.Failed, micros(p.Due), p.Owner, p.TaskID, p.ID, p.Bytes)
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	return err
}
