// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"errors"
	"fmt"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/store"
)

const conversationColumns = "own, peer, context_id, role, task_id, phase, version, state, created, updated"

func scanConversation(r row) (c store.Conversation, err error) {
	var created, updated int64
	err = r.Scan(&c.Own, &c.Peer, &c.ContextID, &c.Role, &c.TaskID, &c.Phase, &c.Version, &c.State, &created, &updated)
	c.Created, c.Updated = instant(created), instant(updated)
	return c, err
}

func (t *tx) GetConversation(own, peer, contextID string) (store.Conversation, error) {
	return one(t, scanConversation, "SELECT "+conversationColumns+" FROM conversations WHERE own = ? AND peer = ? AND context_id = ?", own, peer, contextID)
}

func (t *tx) FindConversation(own, id string) (store.Conversation, error) {
	if id == "" {
		return store.Conversation{}, store.ErrNotFound
	}
	for _, column := range []string{"task_id", "context_id"} {
		found, err := all(t, scanConversation, "SELECT "+conversationColumns+" FROM conversations WHERE own = ? AND "+column+" = ? LIMIT 2", own, id)
		switch {
		case err != nil:
			return store.Conversation{}, err
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			return store.Conversation{}, fmt.Errorf("%w: several peers have a conversation %.80q: name the peer", store.ErrConflict, id)
		}
	}
	return store.Conversation{}, store.ErrNotFound
}

func (t *tx) PutConversation(c store.Conversation, expect int64) error {
	var n int64
	var err error
	if expect == 0 {
		n, err = t.exec(`INSERT INTO conversations (`+conversationColumns+`) VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?, ?)`,
			c.Own, c.Peer, c.ContextID, c.Role, c.TaskID, c.Phase, c.State, micros(c.Created), micros(c.Updated))
	} else {
		n, err = t.exec(`UPDATE conversations SET role = ?, task_id = ?, phase = ?, version = version + 1, state = ?, updated = ?
			WHERE own = ? AND peer = ? AND context_id = ? AND version = ?`,
			c.Role, c.TaskID, c.Phase, c.State, micros(c.Updated), c.Own, c.Peer, c.ContextID, expect)
	}
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: the conversation is not at version %d", store.ErrConflict, expect)
	}
	return err
}

func (t *tx) ListConversations(f store.ConversationFilter) ([]store.Conversation, error) {
	// "?1 = '' OR" keeps SQLite from using an index, so the filters that are asked often, and while others wait for the
	// write lock, are spelled out.
	where := "(?1 = '' OR own = ?1) AND (?2 = '' OR peer = ?2) AND (?4 = '' OR phase = ?4)"
	switch {
	case f.Own != "" && f.Phase != "" && f.Peer != "":
		where = "own = ?1 AND phase = ?4 AND peer = ?2"
	case f.Own != "" && f.Phase != "":
		where = "own = ?1 AND phase = ?4 AND ?2 = ''"
	}
	order := "DESC"
	if f.Oldest {
		order = "ASC"
	}
	return all(t, scanConversation, "SELECT "+conversationColumns+" FROM conversations WHERE "+where+` AND (?3 = '' OR role = ?3)
		ORDER BY updated `+order+`, own, peer, context_id LIMIT ?5`, f.Own, f.Peer, f.Role, f.Phase, limit(f.Limit))
}

const envelopeColumns = "digest, own, peer, context_id, seq, direction, bytes, reply_to, created, plaintext, salt"

func scanEnvelope(r row) (e store.EnvelopeRecord, err error) {
	var created int64
	err = r.Scan((*digest)(&e.Digest), &e.Own, &e.Peer, &e.ContextID, &e.Seq, &e.Direction, &e.Bytes, (*digest)(&e.ReplyTo), &created, &e.Plaintext, &e.Salt)
	e.Created = instant(created)
	return e, err
}

func (t *tx) PutEnvelope(e store.EnvelopeRecord) error {
	_, err := t.exec("INSERT INTO envelopes ("+envelopeColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		e.Digest[:], e.Own, e.Peer, e.ContextID, e.Seq, e.Direction, e.Bytes, nullable(e.ReplyTo), micros(e.Created), e.Plaintext, e.Salt)
	return err
}

func (t *tx) GetEnvelope(own string, d canon.Digest) (store.EnvelopeRecord, error) {
	return one(t, scanEnvelope, "SELECT "+envelopeColumns+" FROM envelopes WHERE own = ? AND digest = ?", own, d[:])
}

func (t *tx) ReplyOf(own string, d canon.Digest) (store.EnvelopeRecord, error) {
	return one(t, scanEnvelope, "SELECT "+envelopeColumns+" FROM envelopes WHERE own = ? AND reply_to = ?", own, d[:])
}

func (t *tx) ListEnvelopes(own, peer, contextID string) ([]store.EnvelopeRecord, error) {
	return all(t, scanEnvelope, "SELECT "+envelopeColumns+" FROM envelopes WHERE own = ? AND peer = ? AND context_id = ? ORDER BY seq, direction", own, peer, contextID)
}

func scanEquivocation(r row) (e store.Equivocation, err error) {
	var created int64
	err = r.Scan(&e.Own, &e.Peer, &e.ContextID, &e.Seq, &e.First, &e.Second, &created)
	e.Created = instant(created)
	return e, err
}

func (t *tx) PutEquivocation(e store.Equivocation) error {
	_, err := t.exec(`INSERT INTO equivocations (own, peer, context_id, seq, first, second, created) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT DO NOTHING`, e.Own, e.Peer, e.ContextID, e.Seq, e.First, e.Second, micros(e.Created))
	return err
}

func (t *tx) ListEquivocations(own, peer string) ([]store.Equivocation, error) {
	return all(t, scanEquivocation, `SELECT own, peer, context_id, seq, first, second, created FROM equivocations
		WHERE own = ?1 AND (?2 = '' OR peer = ?2) ORDER BY rowid LIMIT ?3`, own, peer, store.MaxList)
}

const taskColumns = "id, owner, context_id, version, bytes, updated"

func scanTask(r row) (k store.Task, err error) {
	var updated int64
	err = r.Scan(&k.ID, &k.Owner, &k.ContextID, &k.Version, &k.Bytes, &updated)
	k.Updated = instant(updated)
	return k, err
}

func (t *tx) PutTask(k store.Task, expect int64) error {
	var n int64
	var err error
	if expect == 0 {
		n, err = t.exec("INSERT INTO tasks ("+taskColumns+") VALUES (?, ?, ?, 1, ?, ?)", k.ID, k.Owner, k.ContextID, k.Bytes, micros(k.Updated))
	} else {
		n, err = t.exec("UPDATE tasks SET version = version + 1, bytes = ?, updated = ? WHERE id = ? AND owner = ? AND context_id = ? AND version = ?",
			k.Bytes, micros(k.Updated), k.ID, k.Owner, k.ContextID, expect)
	}
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: the task is not at version %d", store.ErrConflict, expect)
	}
	if err == nil && expect == 0 {
		err = t.pruneTasks(k)
	}
	return err
}

// pruneTasks makes room for a task that was just added, and is kept whatever its time.
func (t *tx) pruneTasks(added store.Task) error {
	for _, q := range []struct {
		where string
		args  []any
		keep  int
	}{
		{"owner = ?", []any{added.Owner}, store.MaxTasksOfOwner},
		{"true", nil, store.MaxTasks},
	} {
		n, err := one(t, func(r row) (n int, err error) { err = r.Scan(&n); return n, err }, "SELECT count(*) FROM tasks WHERE "+q.where, q.args...)
		if err == nil && n <= q.keep {
			continue
		}
		if err != nil {
			return err
		}
		_, err = t.exec("DELETE FROM tasks WHERE rowid IN (SELECT rowid FROM tasks WHERE "+q.where+" AND id <> ? ORDER BY updated DESC, id LIMIT -1 OFFSET ?)",
			append(q.args, added.ID, q.keep-1)...)
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) GetTask(owner, id string) (store.Task, error) {
	return one(t, scanTask, "SELECT "+taskColumns+" FROM tasks WHERE id = ? AND owner = ?", id, owner)
}

func (t *tx) ListTasks(f store.TaskFilter) ([]store.Task, error) {
	if f.Offset < 0 {
		return nil, errors.New("sqlite: negative offset")
	}
	return all(t, scanTask, "SELECT "+taskColumns+` FROM tasks WHERE owner = ?1 AND (?2 = '' OR context_id = ?2)
		ORDER BY updated DESC, id LIMIT ?3 OFFSET ?4`, f.Owner, f.ContextID, limit(f.Limit), f.Offset)
}

func (t *tx) GetSetting(key string) (string, error) {
	return one(t, func(r row) (v string, err error) { err = r.Scan(&v); return v, err }, "SELECT value FROM settings WHERE key = ?", key)
}

func (t *tx) PutSetting(key, value string) error {
	_, err := t.exec("INSERT INTO settings (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", key, value)
	return err
}
