// SPDX-License-Identifier: Apache-2.0

package sqlitefile

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"modernc.org/sqlite" // its own driver writes the test's files

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/query"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataplane/source/sourcetest"
	"github.com/treaty-node/treaty/node/dataset"
)

func file(t *testing.T, statements ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop?.db")
	db, err := sql.Open("sqlite", "file:"+strings.ReplaceAll(path, "?", "%3f"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	return path
}

func suite() []string {
	q := Dialect{}.Ident
	native := map[string]string{"text": "TEXT COLLATE NOCASE", "integer": "INTEGER", "decimal(12,2)": "TEXT", "double": "REAL", "boolean": "INTEGER", "date": "TEXT", "timestamp": "TEXT", "timestamptz": "TEXT"}
	var columns []string
	for _, c := range sourcetest.Columns() {
		columns = append(columns, q(c.Name)+" "+native[c.Type])
	}
	out := []string{"CREATE TABLE " + q(sourcetest.Table) + " (" + strings.Join(columns, ", ") + ")"}
	for _, row := range sourcetest.Rows() {
		var cells []string
		for i, v := range row {
			switch v := v.(type) {
			case nil:
				cells = append(cells, "NULL")
			case bool:
				cells = append(cells, map[bool]string{true: "1", false: "0"}[v])
			case string:
				cell := "'" + strings.ReplaceAll(v, "'", "''") + "'"
				if c := sourcetest.Columns()[i]; c.Type == "integer" || c.Type == "double" {
					cell = v
					if v == "-9223372036854775808" {
						cell = "(-9223372036854775807 - 1)"
					}
				}
				cells = append(cells, cell)
			}
		}
		out = append(out, "INSERT INTO "+q(sourcetest.Table)+" VALUES ("+strings.Join(cells, ", ")+")")
	}
	return out
}

func open(t *testing.T, l source.Limits, log *slog.Logger) *Source {
	t.Helper()
	s, err := New(l, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestSuite(t *testing.T) {
	s, d := open(t, source.Limits{}, nil), sourcetest.Dataset()
	d.Path, d.Source = file(t, suite()...), &dataset.Source{Kind: dataset.SQLite, Table: sourcetest.Table}
	rep, err := s.Load(t.Context(), "orders", d, "")
	if err != nil || rep.Rows != 7 {
		t.Fatal(rep, err)
	}
	sourcetest.Run(t, s, "orders")
	if _, err := s.Query(t.Context(), source.Statement{Dataset: "orders", SQL: "ATTACH DATABASE '" + filepath.Join(t.TempDir(), "x") + "' AS x", MaxRows: 1}); err == nil {
		t.Error("another file was attached")
	}
}

func TestValues(t *testing.T) {
	path := file(t, "CREATE TABLE t (n INTEGER, price DECIMAL(10,2), units INTEGER, day TEXT, at TEXT, tz TEXT, b INTEGER, x REAL, blob BLOB, secret TEXT, many INTEGER, e TEXT)",
		"INSERT INTO t VALUES (1, 0.1, 12, '2025-01-01', '2025-01-01 00:00:00', '2025-01-01 02:00:00+02:00', 1, 9e999, x'00', 'value-of-a-row', 9223372036854775807, '1e400')",
		"INSERT INTO t VALUES ('abc', 0.2, 13, '2025-13-01', '2025-01-01 00:00:00.1234567', 'yesterday', 2, 1, x'00', 'y', 9223372036854775807, '1')",
		"CREATE VIEW v AS SELECT printf('%.2f', price) AS price FROM t", "CREATE TABLE empty (n INTEGER)")
	var log bytes.Buffer
	s := open(t, source.Limits{}, slog.New(slog.NewTextHandler(&log, nil)))
	load := func(table string, columns map[string]string) (dataset.Dataset, error) {
		d := dataset.Dataset{Path: path, Source: &dataset.Source{Kind: dataset.SQLite, Table: table}, Columns: map[string]dataset.Column{}}
		for name, typ := range columns {
			d.Columns[name] = dataset.Column{Type: typ}
		}
		_, err := s.Load(t.Context(), table, d, "")
		return d, err
	}
	for name, tt := range map[string]struct{ table, column, typ, says string }{
		"text in integers": {"t", "n", "integer", "no integer"}, "binary decimals": {"t", "price", "decimal(10,2)", "printf"}, "month 13": {"t", "day", "date", "2025-12-31"},
		"seven digits": {"t", "at", "timestamp", "23:59:59"}, "no instant": {"t", "tz", "timestamptz", "59Z"}, "two is no boolean": {"t", "b", "boolean", "0 and 1"},
		"bytes": {"t", "blob", "text", "no text"}, "19 digits": {"t", "units", "decimal(19,2)", "18 digits"}, "no table": {"nothing", "n", "integer", "no table"},
		"case": {"t", "N", "integer", "differs by case"}, "too large": {"t", "many", "decimal(18,0)", "no decimal"}, "an exponent": {"t", "e", "decimal(10,2)", "no decimal"},
	} {
		if _, err := load(tt.table, map[string]string{tt.column: tt.typ}); !errors.Is(err, source.ErrSchema) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if d, err := load("v", map[string]string{"price": "decimal(10,2)"}); err != nil {
		t.Error(err)
	} else if a, err := sourcetest.Ask(t.Context(), s, "v", d, query.Spec{Request: contract.Request{Aggregates: []contract.Aggregate{{Op: "sum", Column: "price"}}}}); err != nil || a.Rows[0][0] != "0.30" {
		t.Errorf("%v, %v", a, err)
	}
	d, err := load("t", map[string]string{"x": "double", "many": "integer", "units": "decimal(10,2)", "secret": "text"})
	if err != nil {
		t.Fatal(err)
	}
	for col, want := range map[string]error{"x": source.ErrRange, "many": source.ErrRange, "units": nil} {
		if _, err := sourcetest.Ask(t.Context(), s, "t", d, query.Spec{Request: contract.Request{Aggregates: []contract.Aggregate{{Op: "sum", Column: col}}}}); !errors.Is(err, want) {
			t.Errorf("sum of %s: %v", col, err)
		}
	}
	if d, err := load("empty", map[string]string{"n": "integer"}); err != nil {
		t.Error(err)
	} else if _, err := sourcetest.Ask(t.Context(), s, "empty", d, query.Spec{Request: contract.Request{Aggregates: []contract.Aggregate{{Op: "count"}}}}); !errors.Is(err, query.ErrGroups) {
		t.Error(err)
	}
	// An error that quotes a row.
	const quotes = "SELECT json_extract('{}', secret) FROM t"
	loaded, err := s.Get("t")
	if err != nil {
		t.Fatal(err)
	}
	var x any
	if raw := loaded.Own.db.QueryRowContext(t.Context(), quotes).Scan(&x); raw == nil || !strings.Contains(raw.Error(), "value-of-a-row") {
		t.Fatalf("SQLite no longer quotes rows, so this proves nothing: %v", raw)
	}
	_, err = s.Query(t.Context(), source.Statement{Dataset: "t", SQL: quotes, MaxRows: 1})
	if !errors.Is(err, source.ErrEngine) || strings.Contains(err.Error()+log.String(), "value-of-a-row") {
		t.Errorf("%v\n%s", err, log.String())
	}
}

// The file is cut while a query reads it.
func TestDiesInMidQuery(t *testing.T) {
	for _, immutable := range []bool{false, true} {
		var log bytes.Buffer
		s := open(t, source.Limits{}, slog.New(slog.NewTextHandler(&log, nil)))
		path := file(t, "CREATE TABLE t (n INTEGER, secret TEXT)",
			"WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM r WHERE i < 2000) INSERT INTO t SELECT i, printf('value-of-a-row%03000d', i) FROM r")
		if err := s.driver.RegisterScalarFunction("cut", 1, func(_ *sqlite.FunctionContext, a []driver.Value) (driver.Value, error) {
			if a[0] == int64(3) {
				return a[0], os.Truncate(path, 8192)
			}
			return a[0], nil
		}); err != nil {
			t.Fatal(err)
		}
		d := dataset.Dataset{Path: path, Source: &dataset.Source{Kind: dataset.SQLite, Table: "t", Immutable: immutable}, Columns: map[string]dataset.Column{"n": {Type: "integer"}}}
		if _, err := s.Load(t.Context(), "t", d, ""); err != nil {
			t.Fatal(err)
		}
		rows, err := s.Query(t.Context(), source.Statement{Dataset: "t", SQL: "SELECT cut(n), secret FROM t", MaxRows: 5000})
		if !errors.Is(err, source.ErrEngine) || rows != nil || strings.Contains(err.Error()+log.String(), "value-of-a-row") {
			t.Errorf("immutable %t: %d rows, %v\n%s", immutable, len(rows), err, log.String())
		}
	}
}

func TestTimeAndCallers(t *testing.T) {
	slow := source.Statement{Dataset: "t", SQL: "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM r) SELECT count(*) FROM r", MaxRows: 1}
	s := open(t, source.Limits{Time: 100 * time.Millisecond}, nil)
	d := dataset.Dataset{Path: file(t, "CREATE TABLE t (n INTEGER)"), Source: &dataset.Source{Kind: dataset.SQLite, Table: "t", Immutable: true}, Columns: map[string]dataset.Column{"n": {Type: "integer"}}}
	if _, err := s.Load(t.Context(), "t", d, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Query(t.Context(), slow); !errors.Is(err, source.ErrTime) {
		t.Errorf("out of time: %v", err)
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(gone) })
	if _, err := s.Query(ctx, slow); !errors.Is(err, gone) {
		t.Errorf("caller gone: %v", err)
	}
	if rows, err := s.Query(t.Context(), source.Statement{Dataset: "t", SQL: "SELECT count(*) FROM t", MaxRows: 1}); err != nil || rows[0][0] != int64(0) {
		t.Errorf("%v, %v", rows, err)
	}
	if err := os.Truncate(d.Path, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Query(t.Context(), source.Statement{Dataset: "t", SQL: "SELECT count(*) FROM t", MaxRows: 1}); !errors.Is(err, source.ErrEngine) {
		t.Errorf("an immutable file that changed: %v", err)
	}
	if _, err := open(t, source.Limits{}, nil).Load(t.Context(), "t", d, ""); !errors.Is(err, source.ErrSchema) {
		t.Errorf("a truncated file: %v", err)
	}
}
