// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/treaty-node/treaty/node/internal/crashpoint"
)

// maxGroup is how many updates share one commit: what one transaction of this process may hold up those of others.
const maxGroup = 64

// group is a write transaction that the updates waiting at one time share, so that one sync serves all of them. Each runs on
// its caller's goroutine, in turn, and each but the first within a savepoint: what fails is undone alone. Who has the
// connection has the group that is open on it.
type group struct {
	kept int           // updates that will be committed; while the group is open, the goroutine of each of them can end it
	over chan struct{} // closed when it has ended
	err  error         // once over: why nothing of it is there
}

var errOver = errors.New("sqlite: the transaction is over")

// update runs fn in a transaction of its own or, where others wait as well, in one that they share. A relaxed one that has no
// group to join commits without a sync. All use one connection, whose cache the commit of another one would empty.
func (db *DB) update(ctx context.Context, relaxed bool, fn func(*tx) error) error {
	c, err := db.write.get(ctx)
	if err != nil {
		return err
	}
	if c.group != nil {
		return db.join(ctx, c, fn)
	}
	how := full
	if relaxed {
		how = normal
	}
	if err := c.commits(how); err != nil {
		db.write.put(c, true)
		return fmt.Errorf("sqlite: beginning: %w", err)
	}
	if relaxed {
		return db.on(ctx, c, db.write, true, fn)
	}
	return db.join(ctx, c, fn)
}

// join runs fn in the group that is open on c, or in a new one, and returns when that has been committed.
func (db *DB) join(ctx context.Context, c *conn, fn func(*tx) error) (err error) {
	t := &tx{ctx: ctx, db: db, c: c, write: true}
	first := c.group == nil
	if first {
		// Taking the write lock at once makes updates serializable across processes, and is what busy_timeout can wait for: a
		// transaction that turns from reading to writing later fails instead.
		if err := t.control(ctx, "BEGIN IMMEDIATE"); err != nil {
			db.write.put(c, true)
			return fmt.Errorf("sqlite: beginning: %w", err)
		}
		c.group = &group{over: make(chan struct{})}
	} else if err := t.control(context.WithoutCancel(ctx), "SAVEPOINT one"); err != nil {
		c.end(err)
		db.write.put(c, true)
		return fmt.Errorf("sqlite: beginning: %w", err)
	}
	g, kept := c.group, false
	defer func() {
		if kept {
			return
		}
		// fn failed or panicked. A refusal may rest on what the group did before it, and is said when that is on disk.
		cause := t.err
		t.err = errOver
		db.undo(c, first, cause)
		<-g.over
		if g.err != nil && err != nil {
			err = errors.Join(g.err, err)
		}
	}()
	if err := fn(t); err != nil {
		return err
	}
	if t.err != nil {
		// fn went on after an error that may have ended the transaction. What it did since may stand outside of any
		// transaction, had tx not refused it; committing now could keep the second half of its work only.
		return t.err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if !first {
		if err := t.control(context.WithoutCancel(ctx), "RELEASE one"); err != nil {
			t.err = err
			return fmt.Errorf("sqlite: ending: %w", err)
		}
	}
	kept, t.err = true, errOver
	g.kept++
	return db.await(c)
}

// await passes the turn on to who waits for it and takes it again after them: they are in the group then, and it is committed.
// It is too late for a context to say no.
func (db *DB) await(c *conn) error {
	g := c.group
	if g.kept < maxGroup {
		db.write.put(c, false)
		select {
		case <-g.over:
			return g.err
		case next, open := <-db.write.idle:
			if !open || next == nil || next.group != g { // another one of the group has ended it
				if open {
					db.write.idle <- next
				}
				<-g.over
				return g.err
			}
		}
	}
	err := c.commit()
	db.write.put(c, err != nil)
	return err
}

// undo takes back what an update did, and only that. Where SQLite has rolled back everything by itself, there is no savepoint
// any more: the group is lost then, and all of it learn why.
func (db *DB) undo(c *conn, first bool, cause error) {
	if first {
		err := c.control("ROLLBACK")
		c.end(nil) // nobody else was in it
		db.write.put(c, err != nil)
		return
	}
	err := c.control("ROLLBACK TO one")
	if err == nil {
		err = c.control("RELEASE one")
	}
	if err != nil {
		c.end(fmt.Errorf("sqlite: an update that shared the transaction ended it: %w", errors.Join(cause, err)))
	}
	db.write.put(c, err != nil) // closing the connection rolls back whatever is left
}

// alone waits for the connection that writes, and ends the group that is open on it.
func (db *DB) alone(ctx context.Context) (*conn, error) {
	c, err := db.write.get(ctx)
	if err != nil || c.group == nil {
		return c, err
	}
	if err := c.commit(); err != nil {
		db.write.put(c, true)
		return nil, err
	}
	return c, nil
}

// commit is the commit point of the group that is open on c. After an error the connection is not to be used again.
//
// Until COMMIT, everything this transaction wrote is in this connection's cache and, uncommitted, perhaps in the WAL.
// Another process cannot see it, and recovery ignores WAL frames that no commit frame follows: a crash here leaves the
// state before, effects and events alike. COMMIT appends the last frames, the commit mark with their running checksum,
// and (synchronous=FULL) syncs the WAL before it returns. A crash within it leaves either a commit mark whose checksum
// holds, then recovery takes the whole transaction, or not, then none of it. When it has returned, the state after is on
// disk, and a crash before the callers learn of it is met by each asking again: every record has a unique key or a
// version, so doing the same once more has no second effect.
//
// When COMMIT itself fails (disk full, I/O error), SQLite takes the transaction back and the next writer overwrites its
// frames. Only if the machine dies between a failed sync and that next write could recovery find them complete: the
// caller then sees, after the restart, the effect of an update whose error it had been told. That is the one case where
// an error means "unknown", and asking again resolves it.
func (c *conn) commit() error {
	crashpoint.Hit(crashpoint.StoreCommitBefore)
	err := c.control("COMMIT")
	if err != nil {
		err = fmt.Errorf("sqlite: committing: %w", err)
		_ = c.control("ROLLBACK") // which may have happened
	} else {
		crashpoint.Hit(crashpoint.StoreCommitAfter)
	}
	c.end(err)
	return err
}

// end tells the group what became of it.
func (c *conn) end(err error) {
	c.group.err = err
	close(c.group.over)
	c.group = nil
}

// control runs a statement that belongs to no caller.
func (c *conn) control(query string) error {
	return (&tx{c: c}).control(context.Background(), query)
}
