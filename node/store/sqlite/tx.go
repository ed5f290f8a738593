// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/internal/crashpoint"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

// conn is one connection with its prepared statements. One goroutine uses it at a time.
type conn struct {
	*sql.Conn
	stmts map[string]*sql.Stmt
	sync  synchronous
	group *group // of the connection that writes: what is open on it; nil: nothing
}

// commits says how the connection commits from now on. It must be outside of a transaction. SQLite does this while it prepares
// the statement, so that it cannot be a prepared one.
func (c *conn) commits(how synchronous) error {
	if c.sync == how {
		return nil
	}
	_, err := c.ExecContext(context.Background(), "PRAGMA synchronous = "+string(how))
	if err == nil {
		c.sync = how
	}
	return classify(err)
}

func (c *conn) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if s, ok := c.stmts[query]; ok {
		return s, nil
	}
	s, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	c.stmts[query] = s // every query is a constant of this package: the map is bounded
	return s, nil
}

// Close finalizes the statements first: SQLite keeps a connection that has some, and with it the write-ahead log, which the
// last connection to leave should have moved into the file.
func (c *conn) Close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, c.Conn.Close())...)
}

// pool hands out a fixed number of connections, made when first needed. A nil in the channel is one not made yet.
type pool struct {
	handle *sql.DB
	idle   chan *conn
}

func newPool(handle *sql.DB, n int) *pool {
	p := &pool{handle, make(chan *conn, n)}
	for range n {
		p.idle <- nil
	}
	return p
}

func (p *pool) get(ctx context.Context) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err // select would choose at random
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case c, open := <-p.idle:
		if !open {
			return nil, errors.New("sqlite: the store is closed")
		}
		if c != nil {
			return c, nil
		}
		made, err := p.handle.Conn(ctx)
		if err != nil {
			p.idle <- nil
			return nil, classify(err)
		}
		return &conn{Conn: made, stmts: map[string]*sql.Stmt{}, sync: full}, nil
	}
}

// put gives c back; one that is broken is closed and made anew when needed.
func (p *pool) put(c *conn, broken bool) {
	if broken {
		_ = c.Close()
		c = nil
	}
	p.idle <- c
}

// close waits until all connections are back.
func (p *pool) close() error {
	var errs []error
	for range cap(p.idle) {
		c, open := <-p.idle
		if !open {
			return nil // closed before
		}
		if c != nil {
			if c.group != nil {
				_ = c.commit() // whose it is learn what became of it
			}
			errs = append(errs, c.Close())
		}
	}
	close(p.idle)
	return errors.Join(errs...)
}

// tx implements store.Tx.
type tx struct {
	ctx   context.Context //nolint:containedctx // a transaction is bound to the context it was opened with
	db    *DB
	c     *conn
	write bool
	err   error // the first error after which nothing more may happen

	head     *ledger.Head // of the log with this transaction's events, once known
	headTime string
}

// Update implements store.Store.
func (db *DB) Update(ctx context.Context, fn func(store.Tx) error) error {
	return db.update(ctx, false, func(t *tx) error { return fn(t) })
}

// UpdateRelaxed implements store.Store.
func (db *DB) UpdateRelaxed(ctx context.Context, fn func(store.Tx) error) error {
	return db.update(ctx, true, func(t *tx) error { return fn(t) })
}

// View implements store.Store.
func (db *DB) View(ctx context.Context, fn func(store.Tx) error) error {
	return db.run(ctx, db.read, false, func(t *tx) error { return fn(t) })
}

// run is one transaction on a connection of p that nobody shares.
func (db *DB) run(ctx context.Context, p *pool, write bool, fn func(*tx) error) error {
	c, err := p.get(ctx)
	if err != nil {
		return err
	}
	return db.on(ctx, c, p, write, fn)
}

// on is run on a connection that was taken from p.
func (db *DB) on(ctx context.Context, c *conn, p *pool, write bool, fn func(*tx) error) error {
	t := &tx{ctx: ctx, db: db, c: c, write: write}
	begin := "BEGIN"
	if write {
		begin = "BEGIN IMMEDIATE" // see join
	}
	if err := t.control(ctx, begin); err != nil {
		p.put(c, true)
		return fmt.Errorf("sqlite: beginning: %w", err)
	}
	done := false
	defer func() {
		t.err = errOver
		if done {
			p.put(c, false)
			return
		}
		// fn failed or panicked, or the commit did. After some errors SQLite has rolled back already and ROLLBACK fails;
		// the connection is dropped then, which rolls back whatever is left.
		p.put(c, c.control("ROLLBACK") != nil)
	}()
	if err := fn(t); err != nil {
		return err
	}
	if t.err != nil {
		return t.err // see join
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if write {
		crashpoint.Hit(crashpoint.StoreCommitBefore)
	}
	if err := c.control("COMMIT"); err != nil { // see commit
		return fmt.Errorf("sqlite: committing: %w", err)
	}
	if write {
		crashpoint.Hit(crashpoint.StoreCommitAfter)
	}
	done = true
	return nil
}

// control runs BEGIN, COMMIT or ROLLBACK.
func (t *tx) control(ctx context.Context, query string) error {
	s, err := t.c.prepare(ctx, query)
	if err == nil {
		_, err = s.ExecContext(ctx)
	}
	return classify(err)
}

// statement is the context of one statement. The transaction's own is looked at between statements: each is short, and one that
// can be interrupted costs two goroutines of the driver's, many times what the statement does.
func (t *tx) statement() (context.Context, error) {
	if err := t.ctx.Err(); err != nil {
		t.err = err
		return nil, err
	}
	return context.WithoutCancel(t.ctx), nil
}

// exec runs a writing statement and returns how many rows it changed.
func (t *tx) exec(query string, args ...any) (int64, error) {
	if t.err != nil {
		return 0, t.err
	}
	if !t.write {
		return 0, store.ErrReadOnly
	}
	ctx, err := t.statement()
	if err != nil {
		return 0, err
	}
	s, err := t.c.prepare(ctx, query)
	if err != nil {
		return 0, t.fail(err)
	}
	r, err := s.ExecContext(ctx, args...)
	if err != nil {
		return 0, t.fail(err)
	}
	n, err := r.RowsAffected()
	if err != nil {
		return 0, t.fail(err)
	}
	return n, nil
}

// fail remembers an error after which the transaction cannot go on.
func (t *tx) fail(err error) error {
	err = classify(err)
	if poisons(err) {
		t.err = err
	}
	return err
}

// row is what a scan function reads from.
type row interface{ Scan(dest ...any) error }

// all runs a reading statement and scans every row.
func all[T any](t *tx, scan func(row) (T, error), query string, args ...any) ([]T, error) {
	if t.err != nil {
		return nil, t.err
	}
	ctx, err := t.statement()
	if err != nil {
		return nil, err
	}
	s, err := t.c.prepare(ctx, query)
	if err != nil {
		return nil, t.fail(err)
	}
	rows, err := s.QueryContext(ctx, args...)
	if err != nil {
		return nil, t.fail(err)
	}
	defer rows.Close()
	list := []T{}
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, t.fail(err)
		}
		list = append(list, v)
	}
	if err := rows.Err(); err != nil {
		return nil, t.fail(err)
	}
	return list, nil
}

// one runs a reading statement and scans its first row, or returns store.ErrNotFound.
func one[T any](t *tx, scan func(row) (T, error), query string, args ...any) (T, error) {
	var zero T
	list, err := all(t, scan, query, args...)
	if err != nil {
		return zero, err
	}
	if len(list) == 0 {
		return zero, store.ErrNotFound
	}
	return list[0], nil
}

func integer(r row) (n int64, err error) { err = r.Scan(&n); return n, err }

// micros and instant are how a time is stored.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func instant(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// digest scans 32 bytes; NULL is the zero digest.
type digest canon.Digest

func (d *digest) Scan(src any) error {
	switch b := src.(type) {
	case nil:
		*d = digest{}
		return nil
	case []byte:
		if len(b) == len(d) {
			copy(d[:], b)
			return nil
		}
	}
	return fmt.Errorf("%w: a digest is not 32 bytes", store.ErrCorrupt)
}

// nullable is d, or NULL for the zero digest.
func nullable(d canon.Digest) any {
	if d.IsZero() {
		return nil
	}
	return d[:]
}

// limit is the row count of a list.
func limit(n int) int {
	if n <= 0 || n > store.MaxList {
		return store.MaxList
	}
	return n
}
