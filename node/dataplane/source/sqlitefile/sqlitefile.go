// SPDX-License-Identifier: Apache-2.0

// Package sqlitefile answers statements from tables and views of SQLite files.
//
// Guarantees
//
//   - The file is opened read-only, connections are query_only, and no other file can be attached.
//   - A column of SQLite can hold values of any type whatever it was declared as. Every value is checked when it is read, at the
//     start and by each statement; one of another type is a fault and never a number.
//   - Decimals are exact: from whole numbers and texts, with at most 18 digits. SQLite itself keeps a number with a fraction as a
//     binary floating-point one; such a column is refused as a decimal.
//   - What SQLite says about a failure stays here: the log gets the result code and nothing else.
package sqlitefile

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
)

// Source is a [source.Source] over any number of files. It is safe for concurrent use.
type Source struct {
	source.Tables[opened]

	limits source.Limits
	log    *slog.Logger
	driver *sqlite.Driver
}

type opened struct {
	db    *sql.DB
	fixed []source.File // files that must not change
}

var _ source.Source = (*Source)(nil)

// New makes a source without datasets. log may be nil.
func New(l source.Limits, log *slog.Logger) (*Source, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d, err := newDriver()
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	return &Source{limits: l.WithDefaults(), log: log, driver: d}, nil
}

// Close closes the files.
func (s *Source) Close() error {
	var errs []error
	for _, f := range s.Clear() {
		errs = append(errs, f.db.Close())
	}
	return errors.Join(errs...)
}

// connector opens connections of one file with a driver of our own.
type connector struct {
	driver *sqlite.Driver
	dsn    string
}

func (c connector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c connector) Driver() driver.Driver                        { return c.driver }

// Load opens the dataset's file, which is relative to dir, and reads every configured column once. Without columns it only
// looks at the table.
func (s *Source) Load(ctx context.Context, id string, d dataset.Dataset, dir string) (*source.Report, error) {
	files, err := source.Files(dir, d.Path, ".db")
	if err != nil {
		return nil, err
	}
	if len(files) != 1 {
		return nil, fmt.Errorf("%w: one file, not %d", source.ErrSchema, len(files))
	}
	q := url.Values{"mode": {"ro"}, "_pragma": {"query_only(1)", "trusted_schema(0)", "cell_size_check(1)", "temp_store(memory)", "busy_timeout(5000)"}}
	f := opened{}
	if d.Source.Immutable {
		q.Set("immutable", "1")
		f.fixed = files
	}
	dsn := (&url.URL{Scheme: "file", OmitHost: true, Path: files[0].Path, RawQuery: q.Encode()}).String()
	f.db = sql.OpenDB(connector{s.driver, dsn})
	f.db.SetMaxOpenConns(s.limits.Concurrent)
	rep, table, err := s.load(ctx, f.db, d)
	if err != nil || len(d.Columns) == 0 {
		return rep, errors.Join(err, f.db.Close())
	}
	s.Put(id, source.Loaded[opened]{Table: table, Dialect: Dialect{}, Own: f})
	return rep, nil
}

func (s *Source) load(ctx context.Context, db *sql.DB, d dataset.Dataset) (rep *source.Report, t source.Table, err error) {
	rep = &source.Report{Kind: dataset.SQLite, Files: 1}
	rows, err := db.QueryContext(ctx, "SELECT name, type FROM pragma_table_xinfo(?) WHERE hidden <> 1 ORDER BY cid", d.Source.Table)
	if err != nil {
		_ = s.failed("columns", err)
		return nil, t, fmt.Errorf("%w: the file cannot be read as a SQLite database (one in WAL mode on a read-only disk needs source.immutable)", source.ErrSchema)
	}
	defer func() { _ = rows.Close() }() // read to its end
	for rows.Next() {
		var c source.Found
		if err := rows.Scan(&c.Name, &c.Native); err != nil {
			return nil, t, s.failed("columns", err)
		}
		c.Type, c.Advice = declared(c.Native)
		if col, ok := d.Columns[c.Name]; ok { // what is declared says nothing about the values: they are read below
			if want, err := dataset.ParseType(col.Type); err == nil {
				c.Type = want
			}
		}
		rep.Columns = append(rep.Columns, c)
	}
	if err := rows.Err(); err != nil {
		return nil, t, s.failed("columns", err)
	}
	if len(rep.Columns) == 0 {
		return nil, t, fmt.Errorf("%w: there is no table %s", source.ErrSchema, contract.Echo(d.Source.Table))
	}
	from := Dialect{}.Ident(d.Source.Table)
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM "+from).Scan(&rep.Rows); err != nil {
		return nil, t, s.failed("count", err)
	}
	types, err := source.Fit(d, rep.Columns)
	if err != nil {
		return rep, t, err
	}
	for _, name := range d.ColumnNames() {
		typ := types[name]
		if typ.Kind == dataset.DecimalKind && typ.Precision > MaxPrecision {
			return rep, t, fmt.Errorf("%w: column %s: a decimal has at most %d digits here", source.ErrSchema, contract.Echo(name), MaxPrecision)
		}
		var n int64
		err := db.QueryRowContext(ctx, "SELECT count("+Dialect{}.Column(name, typ)+") FROM "+from+" AS "+source.Alias).Scan(&n)
		if err != nil {
			_ = s.failed("values", err)
			return rep, t, fmt.Errorf("%w: column %s holds values that are no %s%s", source.ErrSchema, contract.Echo(name), dataset.TypeName(typ), advice[typ.Kind])
		}
	}
	return rep, source.Table{From: from, Rows: rep.Rows, Columns: types}, nil
}

// advice about values that are not of a type.
var advice = map[contract.Kind]string{
	dataset.DecimalKind: ": want whole numbers, or texts such as 12.50; SQLite keeps other numbers as binary floating-point ones. A view can write them: printf('%.2f', column)",
	dataset.Date:        ": want texts such as 2025-12-31",
	dataset.Timestamp:   ": want texts such as 2025-12-31 23:59:59.123456",
	dataset.TimestampTZ: ": want texts such as 2025-12-31T23:59:59Z",
	dataset.Boolean:     ": want 0 and 1",
}

var decimalType = regexp.MustCompile(`^(?:DECIMAL|NUMERIC)\((\d+),\s*(\d+)\)$`)

// declared is the type to suggest for a column's declaration.
func declared(native string) (dataset.Type, string) {
	up := strings.ToUpper(native)
	switch {
	case decimalType.MatchString(up):
		m := decimalType.FindStringSubmatch(up)
		if t, err := dataset.ParseType("decimal(" + m[1] + "," + m[2] + ")"); err == nil && t.Precision <= MaxPrecision {
			return t, ""
		}
		return dataset.Type{}, source.AdviceDecimal
	case up == "DATE":
		return dataset.Type{Kind: dataset.Date}, ""
	case up == "DATETIME" || up == "TIMESTAMP":
		return dataset.Type{Kind: dataset.Timestamp}, ""
	case strings.HasPrefix(up, "BOOL"):
		return dataset.Type{Kind: dataset.Boolean}, ""
	case strings.Contains(up, "INT"):
		return dataset.Type{Kind: dataset.Integer}, ""
	case strings.Contains(up, "CHAR") || strings.Contains(up, "TEXT") || strings.Contains(up, "CLOB"):
		return dataset.Type{Kind: dataset.Text}, ""
	case strings.Contains(up, "REAL") || strings.Contains(up, "FLOA") || strings.Contains(up, "DOUB"):
		return dataset.Type{Kind: dataset.Double}, ""
	}
	return dataset.Type{}, source.AdviceText
}

var errChanged = errors.New("the file changed")

// Query implements [source.Source].
func (s *Source) Query(ctx context.Context, st source.Statement) (source.Rows, error) {
	t, err := s.Get(st.Dataset)
	if err != nil {
		return nil, err
	}
	if !source.Unchanged(t.Own.fixed) {
		return nil, s.failed("open", errChanged)
	}
	rows, err := s.limits.Within(ctx, func(ctx context.Context) (source.Rows, error) { return s.run(ctx, t.Own.db, st) })
	if err == nil && !source.Unchanged(t.Own.fixed) {
		return nil, s.failed("read", errChanged)
	}
	return rows, err
}

func (s *Source) run(ctx context.Context, db *sql.DB, st source.Statement) (source.Rows, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, s.failed("connect", err)
	}
	defer func() { _ = conn.Close() }() // back to the pool
	if _, err := sqlite.Limit(conn, sqlite3.SQLITE_LIMIT_ATTACHED, 0); err != nil {
		return nil, s.failed("limit", err)
	}
	rows, err := conn.QueryContext(ctx, st.SQL, st.Args...)
	if err != nil {
		return nil, s.failed("query", err)
	}
	defer func() { _ = rows.Close() }() // its error was seen in Err
	names, err := rows.Columns()
	if err != nil {
		return nil, s.failed("columns", err)
	}
	answer := s.limits.Collect(st)
	for rows.Next() {
		cells, err := source.Scan(rows, len(names))
		if err != nil {
			return nil, s.failed("scan", err)
		}
		for i, c := range cells {
			if i < len(st.Types) {
				if cells[i], err = cell(c, st.Types[i]); err != nil {
					return nil, err
				}
			}
		}
		if err := answer.Add(cells); err != nil {
			return nil, err
		}
	}
	if err := rows.Err(); err != nil {
		return nil, s.failed("rows", err)
	}
	return answer.Rows(), nil
}

// cell undoes what [Dialect.Column] did to a value.
func cell(v any, t dataset.Type) (any, error) {
	n, isInt := v.(int64)
	switch {
	case v == nil:
		return nil, nil
	case t.Kind == dataset.DecimalKind && isInt:
		return dataset.Decimal{Unscaled: big.NewInt(n), Scale: t.Scale}, nil
	case t.Kind == dataset.Boolean && isInt:
		return n == 1, nil
	case t.Kind == dataset.Date && isInt:
		return time.UnixMicro(n * int64(day)).UTC(), nil
	case (t.Kind == dataset.Timestamp || t.Kind == dataset.TimestampTZ) && isInt:
		return time.UnixMicro(n).UTC(), nil
	case t.Kind == dataset.Integer && isInt:
		return n, nil
	}
	switch x := v.(type) {
	case string:
		if t.Kind == dataset.Text {
			return x, nil
		}
	case float64:
		if t.Kind == dataset.Double {
			return x, nil
		}
	}
	return nil, source.ErrEngine
}

// failed keeps SQLite's words here.
func (s *Source) failed(step string, err error) error {
	out, code := source.ErrEngine, 0
	var se *sqlite.Error
	if errors.As(err, &se) {
		code = se.Code()
		words := se.Error()
		i := slices.IndexFunc([]error{errRange, errMemory}, func(e error) bool { return strings.Contains(words, e.Error()) })
		switch {
		case i == 0 && code&0xff == sqlite3.SQLITE_ERROR:
			out = source.ErrRange
		case i == 1 && code&0xff == sqlite3.SQLITE_ERROR, code&0xff == sqlite3.SQLITE_NOMEM, code&0xff == sqlite3.SQLITE_TOOBIG:
			out = source.ErrMemory
		}
	}
	s.log.Error("engine error", "engine", "sqlite", "step", step, "code", code, "class", fmt.Sprintf("%T", err))
	return out
}
