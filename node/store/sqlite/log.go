// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"errors"
	"math"

	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

const eventColumns = "seq, time, node, process, type, context, contract, peer, data, prev, hash"

func scanEvent(r row) (e ledger.Event, err error) {
	err = r.Scan(&e.Seq, &e.Time, &e.Node, &e.Process, &e.Type, &e.Context, &e.Contract, &e.Peer, (*[]byte)(&e.Data), (*digest)(&e.Prev), (*digest)(&e.Hash))
	return e, err
}

// last reads the log's head and its time, once for a transaction: while it holds the write lock nobody else can append.
func (t *tx) last() error {
	if t.head != nil {
		return nil
	}
	head := ledger.Genesis(t.db.node)
	type last struct {
		ledger.Head
		time string
	}
	l, err := one(t, func(r row) (l last, err error) { err = r.Scan(&l.Seq, (*digest)(&l.Hash), &l.time); return l, err },
		"SELECT seq, hash, time FROM events ORDER BY seq DESC LIMIT 1")
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return err
	default:
		head, t.headTime = l.Head, l.time
	}
	t.head = &head
	return nil
}

func (t *tx) Head() (ledger.Head, error) {
	if err := t.last(); err != nil {
		return ledger.Head{}, err
	}
	return *t.head, nil
}

// Append makes the next event while this transaction holds the write lock of the file: whoever comes next, in whatever
// process, reads a head that includes it or, if this transaction does not commit, one that does not.
func (t *tx) Append(entry ledger.Entry) (ledger.Event, error) {
	if t.err != nil {
		return ledger.Event{}, t.err
	}
	if !t.write {
		return ledger.Event{}, store.ErrReadOnly
	}
	if err := t.last(); err != nil {
		return ledger.Event{}, err
	}
	// Times do not decrease along the log, even when the machine's clock was set back.
	now := t.db.clock.Now()
	if before := (ledger.Event{Time: t.headTime}).At(); before.After(now) {
		now = before
	}
	e, err := ledger.Next(*t.head, t.db.node, t.db.process, now, entry)
	if err != nil {
		return ledger.Event{}, err
	}
	_, err = t.exec("INSERT INTO events ("+eventColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		int64(e.Seq), e.Time, e.Node, e.Process, e.Type, e.Context, e.Contract, e.Peer, []byte(e.Data), e.Prev[:], e.Hash[:]) //nolint:gosec // below 2^53
	if err != nil {
		return ledger.Event{}, err
	}
	*t.head, t.headTime = e.Head(), e.Time
	return e, nil
}

func (t *tx) Events(after uint64, n int) ([]ledger.Event, error) {
	return all(t, scanEvent, "SELECT "+eventColumns+" FROM events WHERE seq > ? ORDER BY seq LIMIT ?", number(after), limit(n))
}

// FindEvents leaves the choice of an index to a query without OR for the two common questions.
func (t *tx) FindEvents(f store.EventFilter) ([]ledger.Event, error) {
	where := "seq > ?1"
	switch {
	case f.Context != "":
		where += " AND context = ?2 AND context <> '' AND (?3 = '' OR contract = ?3)"
	case f.Contract != "":
		where += " AND ?2 = '' AND contract = ?3 AND contract <> ''"
	default:
		where += " AND ?2 = ?3"
	}
	return all(t, scanEvent, "SELECT "+eventColumns+" FROM events WHERE "+where+" AND (?4 = '' OR peer = ?4) AND (?5 = '' OR type = ?5) ORDER BY seq LIMIT ?6",
		number(f.After), f.Context, f.Contract, f.Peer, f.Type, limit(f.Limit))
}

// number is a sequence number as SQLite has them.
func number(seq uint64) int64 { return int64(min(seq, math.MaxInt64)) } //nolint:gosec // bounded here
