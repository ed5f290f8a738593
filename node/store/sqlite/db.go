// SPDX-License-Identifier: Apache-2.0

// Package sqlite is node/store in one SQLite file, through the pure Go driver modernc.org/sqlite.
//
// Guarantees, beside those of node/store: several processes may open one file at once; it is in WAL mode with
// synchronous=FULL, so a commit of Update is on disk when it returns; one of UpdateRelaxed is with the next of Update, since
// both are in one WAL, in order, and a sync covers all of it; updates that wait at one time share one commit, and one that fails
// takes nothing of the others with it; the file is created complete or not at all, with mode 0600;
// a missing or foreign file is an error and never becomes an empty store.
//
// What it does not do: the file is not encrypted. Do not put it on a network file system: WAL needs shared memory between
// the processes, and locks that work.
package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/store"
)

var (
	// ErrNotStore: the file is not a store of this program.
	ErrNotStore = errors.New("sqlite: not a treaty store")
	// ErrTooNew: the file was written by a newer version of this program.
	ErrTooNew = errors.New("sqlite: the store was written by a newer version")
	// ErrWrongNode: the store belongs to another node.
	ErrWrongNode = errors.New("sqlite: the store belongs to another node")
	// ErrMode: others may read the file.
	ErrMode = errors.New("sqlite: the store is open to others")
)

const (
	applicationID = 0x54525459 // "TRTY", as in the first migration
	readers       = 4
	// busyTimeout is how long a transaction waits for those of other processes. A commit takes a quarter of a millisecond,
	// rarely a second on a bad disk.
	busyTimeout = 20 * time.Second
)

//go:embed migrations/*.sql
var migrations embed.FS

// Options of a store. Process must be set; for Create, Node too.
type Options struct {
	Node    string      // DID of the company's node. OpenExisting: "" accepts any, else it must be the store's
	Process string      // name of this process in the event log: node, dataplane, cli
	Clock   clock.Clock // nil: the machine's
	// MaxBytes bounds the size of the file; 0: no bound but the disk. Beyond it, updates fail with store.ErrFull. It holds
	// for this process only.
	MaxBytes int64
	Nonces   NonceLimits
}

// DB is an open store. It implements store.Store, resolver.Pins and httpsig.NonceStore.
type DB struct {
	path, node, process string
	clock               clock.Clock
	nonces              NonceLimits

	handle *sql.DB
	scrub  atomic.Bool // see Scrub
	write  *pool       // one connection: updates of this process queue here and not in SQLite's busy handler
	read   *pool
}

var _ store.Store = (*DB)(nil)

// Create makes a new store at path and opens it. It fails with fs.ErrExist when path exists; of several processes that
// create one path at once, exactly one succeeds.
func Create(ctx context.Context, path string, o Options) (*DB, error) {
	if o.Node == "" {
		return nil, errors.New("sqlite: a new store needs the node's DID")
	}
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("sqlite: %s: %w", path, fs.ErrExist)
	}
	// The store is made under another name and linked to its own when it is complete: a crash leaves a file with an odd
	// name, never a half store.
	tmp, err := emptyFile(path)
	if err != nil {
		return nil, err
	}
	defer removeAll(tmp)
	if err := initialise(ctx, tmp, o.Node); err != nil {
		return nil, err
	}
	if err := publish(tmp, path); err != nil {
		return nil, err
	}
	return OpenExisting(ctx, path, o)
}

// OpenExisting opens the store at path, and brings an older one up to date. A missing file is an error (fs.ErrNotExist):
// a node whose history is gone must not start as if it had none.
func OpenExisting(ctx context.Context, path string, o Options) (*DB, error) {
	if o.Process == "" {
		return nil, errors.New("sqlite: the process must be named")
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if err := checkFile(path); err != nil {
		return nil, err
	}
	handle, err := sql.Open("sqlite", dsn(path, o.MaxBytes))
	if err != nil {
		return nil, fmt.Errorf("sqlite: %s: %w", path, err)
	}
	db := &DB{
		path: path, process: o.Process, clock: o.Clock, nonces: o.Nonces.withDefaults(), handle: handle,
		write: newPool(handle, 1), read: newPool(handle, readers),
	}
	if err := db.open(ctx, o.Node); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("sqlite: %s: %w", path, err)
	}
	return db, nil
}

func (db *DB) open(ctx context.Context, node string) error {
	var id int64
	if err := db.handle.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id); err != nil {
		return notStore(err)
	}
	if id != applicationID {
		return ErrNotStore
	}
	if err := migrate(ctx, db.handle); err != nil {
		return err
	}
	if err := db.handle.QueryRowContext(ctx, "SELECT node FROM identity").Scan(&db.node); err != nil {
		return notStore(err)
	}
	if node != "" && node != db.node {
		return fmt.Errorf("%w: %s", ErrWrongNode, db.node)
	}
	return nil
}

// Node is the DID of the node whose store this is.
func (db *DB) Node() string { return db.node }

// Close waits for running transactions and closes the store.
func (db *DB) Close() error {
	return errors.Join(db.write.close(), db.read.close(), db.handle.Close())
}

// dsn spells the connection. Pragmas are per connection, which is why they are here and not run once.
//
// mode=rw: SQLite itself must not create what is missing. synchronous: see synchronous. trusted_schema=OFF and
// cell_size_check: the file may come from a backup that others had. secure_delete=ON: deleted answers and session keys are
// overwritten, not only forgotten; the write-ahead log holds older pages until its next checkpoint, or Scrub.
func dsn(path string, maxBytes int64) string {
	q := url.Values{"mode": {"rw"}, "_pragma": {
		fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()),
		"journal_mode(WAL)",
		"synchronous(" + string(full) + ")",
		"foreign_keys(ON)",
		"trusted_schema(OFF)",
		"secure_delete(ON)",
		"cell_size_check(ON)",
	}}
	if maxBytes > 0 {
		q.Add("_pragma", fmt.Sprintf("max_page_count(%d)", max(1, maxBytes/pageSize)))
	}
	return (&url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: q.Encode()}).String()
}

// synchronous is how a connection commits. All begin with full.
type synchronous string

const (
	full   synchronous = "FULL"   // the WAL is on disk when COMMIT returns, with all commits before, of whatever connection
	normal synchronous = "NORMAL" // in WAL mode, the last commits may be lost in a power cut; never the order or a part of one
)

const pageSize = 4096 // SQLite's default, which we do not change

// initialise fills the empty file at path.
func initialise(ctx context.Context, path, node string) error {
	handle, err := sql.Open("sqlite", dsn(path, 0))
	if err != nil {
		return fmt.Errorf("sqlite: %s: %w", path, err)
	}
	err = migrate(ctx, handle)
	if err == nil {
		_, err = handle.ExecContext(ctx, "INSERT INTO identity (one, node) VALUES (1, ?)", node)
	}
	// Closing the last connection moves the WAL into the file and removes it.
	if err := errors.Join(err, handle.Close()); err != nil {
		return fmt.Errorf("sqlite: creating a store: %w", classify(err))
	}
	return nil
}

// migrate applies what is missing. Several processes may do that at once after an update: each migration is one
// transaction, so the loser fails on what the winner did, looks again and finds nothing left.
func migrate(ctx context.Context, handle *sql.DB) error {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, handle, sub, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	for attempt := range 5 {
		var current, target int64
		if current, target, err = p.GetVersions(ctx); err == nil {
			if current == target {
				return nil
			}
			if current > target {
				return fmt.Errorf("%w: schema %d, this one knows %d", ErrTooNew, current, target)
			}
			if _, err = p.Up(ctx); err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(attempt+1) * 50 * time.Millisecond):
		}
	}
	return fmt.Errorf("migrating: %w", classify(err))
}

// emptyFile makes an empty file with mode 0600 beside path, for a store that will be published as path. What another store
// may have left there has to go first: SQLite would replay its log on the new one.
func emptyFile(path string) (string, error) {
	for _, suffix := range []string{"-wal", "-shm", "-journal"} {
		if _, err := os.Lstat(path + suffix); err == nil {
			return "", fmt.Errorf("sqlite: %s%s belongs to a store that was here; move it away with that store: %w", path, suffix, fs.ErrExist)
		}
	}
	tmp := path + ".new-" + rand.Text()[:8]
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("sqlite: %w", err)
	}
	return tmp, f.Close()
}

// publish gives the complete file tmp its name, durably, unless the name is taken.
func publish(tmp, path string) error {
	f, err := os.OpenFile(tmp, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	// A link, because a rename would replace a store that another process made meanwhile.
	if err := os.Link(tmp, path); err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	return nil
}

func removeAll(tmp string) {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		_ = os.Remove(tmp + suffix)
	}
}

func checkFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("sqlite: there is no store at %s: %w", path, fs.ErrNotExist)
	case err != nil:
		return fmt.Errorf("sqlite: %w", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: %s is not a regular file", ErrNotStore, path)
	case info.Mode().Perm()&0o007 != 0:
		return fmt.Errorf("%w: %s has mode %04o; run chmod 600 %s", ErrMode, path, info.Mode().Perm(), path)
	}
	return nil
}
