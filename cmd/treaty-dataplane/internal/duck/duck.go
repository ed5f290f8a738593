// SPDX-License-Identifier: Apache-2.0

// Package duck is the data plane's engine: DuckDB in memory, locked down once the datasets are loaded.
//
// Guarantees
//
//   - Rows of CSV files come from csvimport with their types settled; the engine never looks at such a file and guesses
//     nothing. Rows of Parquet files are read by each query, with the types that the files declare.
//   - After [Engine.Lock] no statement can write files, read any but the Parquet files of its datasets, reach the network,
//     attach databases, load extensions or change a setting.
//   - A Parquet file that changes after it was loaded is a fault of every query that reads it.
//   - Every query has a time limit, and all of them together a memory and a thread limit; there is no spilling to disk.
//     An answer is at most a 32nd of the memory limit of cells, in Go beside the engine, and is read row by row: beyond it, or
//     its rows, the engine is stopped. A query ends when its caller's context does, and the engine stays usable.
//   - Nothing that the engine says about a failure leaves this package, not even into the log: its messages quote rows, paths
//     and SQL. The log gets the kind of error only.
package duck

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/duckdb/duckdb-go/v2"

	"github.com/treaty-node/treaty/node/dataplane/csvimport"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
)

var (
	// ErrLocked: loading after Lock.
	ErrLocked = errors.New("duck: the engine is locked")
	// ErrNotLocked: a query before Lock.
	ErrNotLocked = errors.New("duck: the engine is not locked yet")
)

// Limits bound the engine. Zero fields take the defaults.
type Limits struct {
	source.Limits     // MaxBytes: a 32nd of the memory
	MemoryMB      int // of the engine; default 1024
	Threads       int // default 2
}

func (l Limits) withDefaults() Limits {
	if l.MemoryMB <= 0 {
		l.MemoryMB = 1024
	}
	if l.Threads <= 0 {
		l.Threads = 2
	}
	l.Limits = l.WithDefaults()
	l.MaxBytes = int64(l.MemoryMB) << 20 / 32
	return l
}

// Engine is a [source.Source].
type Engine struct {
	connector *duckdb.Connector
	db        *sql.DB
	limits    Limits
	log       *slog.Logger
	slots     chan struct{}

	mu     sync.RWMutex
	tables map[string]source.Table
	files  map[string][]source.File // that queries read
	locked bool
}

var _ source.Source = (*Engine)(nil)

// Open starts an empty engine. log may be nil.
func Open(ctx context.Context, l Limits, log *slog.Logger) (*Engine, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	connector, err := duckdb.NewConnector("", nil)
	if err != nil {
		return nil, fmt.Errorf("duck: the engine did not start: %w", err)
	}
	l = l.withDefaults()
	e := &Engine{
		connector: connector, db: sql.OpenDB(connector), limits: l, log: log,
		slots: make(chan struct{}, l.Concurrent), tables: map[string]source.Table{}, files: map[string][]source.File{},
	}
	e.db.SetMaxOpenConns(l.Concurrent)
	for _, set := range []string{
		fmt.Sprintf("SET memory_limit = '%dMiB'", l.MemoryMB),
		fmt.Sprintf("SET threads = %d", l.Threads),
		"SET temp_directory = ''",
		"SET TimeZone = 'UTC'",
	} {
		if _, err := e.db.ExecContext(ctx, set); err != nil && !strings.HasPrefix(set, "SET TimeZone") {
			_ = e.db.Close()
			return nil, fmt.Errorf("duck: %s: %w", set, err)
		}
	}
	return e, nil
}

// Close ends the engine and forgets all rows.
func (e *Engine) Close() error { return e.db.Close() }

// sqlType is how a column is kept. Instants are kept in UTC as timestamps, so that no zone setting matters.
func sqlType(t dataset.Type) string {
	switch t.Kind {
	case dataset.Integer:
		return "BIGINT"
	case dataset.DecimalKind:
		return fmt.Sprintf("DECIMAL(%d,%d)", t.Precision, t.Scale)
	case dataset.Double:
		return "DOUBLE"
	case dataset.Boolean:
		return "BOOLEAN"
	case dataset.Date:
		return "DATE"
	case dataset.Timestamp, dataset.TimestampTZ:
		return "TIMESTAMP"
	default:
		return "VARCHAR"
	}
}

func quote(name string) string { return source.DuckDB{}.Ident(name) }

// Load imports a dataset's CSV files, or makes its Parquet files known. Paths are relative to dir. Only configured columns are
// loaded. The report is there whenever a file could be read; when it has errors nothing is loaded and Load returns them. For
// several files the report is that of the last one, with the rows of all.
func (e *Engine) Load(ctx context.Context, id string, d dataset.Dataset, dir string) (*csvimport.Report, error) {
	if d.KindOf() == dataset.ParquetFiles {
		rep, err := e.parquet(ctx, id, d, dir)
		if err != nil {
			return nil, fmt.Errorf("dataset %s: %w", id, err)
		}
		return &csvimport.Report{Rows: rep.Rows}, nil
	}
	files, err := source.Files(dir, d.Path, ".csv")
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", id, err)
	}
	names := d.ColumnNames()
	types := make(map[string]dataset.Type, len(names))
	for _, name := range names {
		t, err := dataset.ParseType(d.Columns[name].Type)
		if err != nil {
			return nil, fmt.Errorf("dataset %s: %w", id, err)
		}
		types[name] = t
	}
	var rep *csvimport.Report
	total := int64(0)
	feed := func(add func([]any) error) error {
		for _, f := range files {
			var err error
			if rep, err = e.loadFile(ctx, d, f.Path, names, add); err != nil {
				return err
			}
			total += rep.Rows
		}
		return nil
	}
	err = e.load(ctx, id, names, types, &total, feed)
	if rep != nil {
		rep.Rows = total
	}
	if err != nil {
		return rep, fmt.Errorf("dataset %s: %w", id, err)
	}
	return rep, nil
}

// loadFile checks one CSV file and hands out its rows.
func (e *Engine) loadFile(ctx context.Context, d dataset.Dataset, path string, names []string, add func([]any) error) (*csvimport.Report, error) {
	f, err := os.Open(path) //nolint:gosec // the operator's own configuration names it
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	rep, err := csvimport.Inspect(ctx, f, csvimport.OptionsFor(d))
	if err != nil {
		return nil, err
	}
	if err := rep.Err(); err != nil {
		return rep, err
	}
	return rep, rep.Load(ctx, f, names, add)
}

// load makes a table and fills it with what feed hands out; rows is how many that were, known when feed has returned.
func (e *Engine) load(ctx context.Context, id string, names []string, types map[string]dataset.Type, rows *int64, feed func(add func([]any) error) error) (err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.locked {
		return ErrLocked
	}
	columns := make([]string, len(names))
	for i, name := range names {
		columns[i] = quote(name) + " " + sqlType(types[name])
	}
	conn, err := e.connector.Connect(ctx)
	if err != nil {
		return e.failed("connect", err)
	}
	defer func() { err = errors.Join(err, e.failed("close", conn.Close())) }()
	if _, err := e.db.ExecContext(ctx, "CREATE TABLE "+quote(id)+" ("+strings.Join(columns, ", ")+")"); err != nil {
		return e.failed("create table", err)
	}
	app, err := duckdb.NewAppenderFromConn(conn, "", id)
	if err != nil {
		return e.failed("appender", err)
	}
	row := make([]driver.Value, len(names))
	n := int64(0)
	err = feed(func(values []any) error {
		for i, v := range values {
			if d, ok := v.(dataset.Decimal); ok {
				t := types[names[i]]
				v = duckdb.Decimal{Width: uint8(t.Precision), Scale: uint8(t.Scale), Value: d.Unscaled} //nolint:gosec // at most 38
			}
			row[i] = v
		}
		n++
		return e.failed("append", app.AppendRow(row...))
	})
	if cerr := app.Close(); err == nil && cerr != nil {
		err = e.failed("append", cerr)
	}
	if err == nil && n != *rows {
		err = csvimport.ErrChanged
	}
	if err != nil {
		_, derr := e.db.ExecContext(context.WithoutCancel(ctx), "DROP TABLE "+quote(id))
		return errors.Join(err, e.failed("drop table", derr))
	}
	e.tables[id] = source.Table{From: quote(id), Rows: n, Columns: types}
	return nil
}

// lockdown is the order that works: the last statement forbids all that come after it.
var lockdown = []string{
	"SET autoinstall_known_extensions = false",
	"SET autoload_known_extensions = false",
	"SET allow_community_extensions = false",
	"SET enable_external_access = false",
	"SET lock_configuration = true",
}

// Lock ends loading and opens the engine for queries.
func (e *Engine) Lock(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.locked {
		return nil
	}
	var paths []string
	for _, files := range e.files {
		for _, f := range files {
			paths = append(paths, literal(f.Path))
		}
	}
	slices.Sort(paths)
	if _, err := e.db.ExecContext(ctx, "SET allowed_paths = ["+strings.Join(paths, ", ")+"]"); err != nil {
		return fmt.Errorf("%w: allowed_paths", e.failed("lock", err))
	}
	for _, set := range lockdown {
		if _, err := e.db.ExecContext(ctx, set); err != nil {
			return fmt.Errorf("%w: %s", e.failed("lock", err), set)
		}
	}
	e.locked = true
	return nil
}

// Table implements [source.Source].
func (e *Engine) Table(id string) (source.Table, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	t, ok := e.tables[id]
	if !ok {
		return t, source.ErrNoDataset
	}
	return t, nil
}

// Dialect implements [source.Source].
func (e *Engine) Dialect(id string) (source.Dialect, error) {
	if _, err := e.Table(id); err != nil {
		return nil, err
	}
	return source.DuckDB{}, nil
}

// Query implements [source.Source].
func (e *Engine) Query(ctx context.Context, s source.Statement) (source.Rows, error) {
	e.mu.RLock()
	locked := e.locked
	_, known := e.tables[s.Dataset]
	files := e.files[s.Dataset]
	e.mu.RUnlock()
	switch {
	case !locked:
		return nil, ErrNotLocked
	case !known:
		return nil, source.ErrNoDataset
	}
	return e.limits.Within(ctx, func(ctx context.Context) (source.Rows, error) {
		select {
		case e.slots <- struct{}{}:
			defer func() { <-e.slots }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !source.Unchanged(files) {
			e.log.Error("a dataset's files are not those of the start; restart to read them", "dataset", s.Dataset)
			return nil, e.failed("open", errFilesChanged)
		}
		rows, err := e.run(ctx, s)
		if err == nil && !source.Unchanged(files) { // half of the rows may be those of another file
			return nil, e.failed("read", errFilesChanged)
		}
		return rows, err
	})
}

func (e *Engine) run(ctx context.Context, s source.Statement) (_ source.Rows, err error) {
	conn, err := e.db.Conn(ctx)
	if err != nil {
		return nil, e.failed("connect", err)
	}
	defer func() { _ = conn.Close() }() // back to the pool
	if _, err := conn.ExecContext(ctx, "BEGIN TRANSACTION READ ONLY"); err != nil {
		return nil, e.failed("begin", err)
	}
	defer func() {
		if _, rerr := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK"); err == nil {
			err = e.failed("rollback", rerr)
		}
	}()
	rows, err := conn.QueryContext(ctx, s.SQL, s.Args...)
	if err != nil {
		return nil, e.failed("query", err)
	}
	defer func() {
		if cerr := rows.Close(); err == nil {
			err = e.failed("close", cerr)
		}
	}()
	names, err := rows.Columns()
	if err != nil {
		return nil, e.failed("columns", err)
	}
	answer := e.limits.Collect(s)
	for rows.Next() {
		cells, err := source.Scan(rows, len(names))
		if err != nil {
			return nil, e.failed("scan", err)
		}
		for i, c := range cells {
			if cells[i], err = cell(c); err != nil {
				return nil, e.failed("scan", err)
			}
		}
		if err := answer.Add(cells); err != nil {
			return nil, err
		}
	}
	if err := rows.Err(); err != nil {
		return nil, e.failed("rows", err)
	}
	return answer.Rows(), nil
}

var errCell = errors.New("a cell of an unknown type")

// cell gives a driver's value the type that [source.Rows] names.
func cell(c any) (any, error) {
	switch v := c.(type) {
	case nil, string, int64, float64, bool, time.Time, *big.Int:
		return v, nil
	case duckdb.Decimal:
		return dataset.Decimal{Unscaled: v.Value, Scale: int(v.Scale)}, nil
	}
	return nil, errCell
}

// failed keeps an engine's error here: the log learns the step and the kind, the caller one of source's errors.
func (e *Engine) failed(step string, err error) error {
	if err == nil {
		return nil
	}
	var de *duckdb.Error
	kind := -1
	out := source.ErrEngine
	if errors.As(err, &de) {
		kind = int(de.Type)
		switch de.Type {
		case duckdb.ErrorTypeOutOfMemory:
			out = source.ErrMemory
		case duckdb.ErrorTypeOutOfRange, duckdb.ErrorTypeConversion:
			out = source.ErrRange
		case duckdb.ErrorTypeInterrupt:
			return out // the caller went away or the time is up
		}
	}
	e.log.Error("engine error", "step", step, "kind", kind, "class", fmt.Sprintf("%T", err))
	return out
}
