// SPDX-License-Identifier: Apache-2.0

package duck

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/duckdb/duckdb-go/v2"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/csvimport"
	"github.com/treaty-node/treaty/node/dataplane/query"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
)

// hook is a function of SQL that does something once and returns its argument.
type hook struct{ do func() }

func (h hook) Config() duckdb.ScalarFuncConfig {
	t, err := duckdb.NewTypeInfo(duckdb.TYPE_BIGINT)
	if err != nil {
		panic(err)
	}
	return duckdb.ScalarFuncConfig{InputTypeInfos: []duckdb.TypeInfo{t}, ResultTypeInfo: t, Volatile: true}
}

func (h hook) Executor() duckdb.ScalarFuncExecutor {
	return duckdb.ScalarFuncExecutor{RowExecutor: func(v []driver.Value) (any, error) {
		h.do()
		return v[0], nil
	}}
}

// TestDiesInMidQuery: a Parquet file is cut, goes, or becomes another while a query reads it.
func TestDiesInMidQuery(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"cut":     func(path string) error { return os.Truncate(path, 4096) },
		"gone":    os.Remove,
		"another": func(path string) error { return os.WriteFile(path, []byte("PAR1value-of-a-row"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, log := t.TempDir(), bytes.Buffer{}
			path := filepath.Join(dir, "d.parquet")
			write(t, path, "SELECT i AS n, 'value-of-a-row' || (i * 2654435761) AS text FROM range(400000) r(i)")
			e, err := Open(t.Context(), Limits{Threads: 1}, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			conn, err := e.db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var once sync.Once
			if err := duckdb.RegisterScalarUDF(conn, "change", hook{func() {
				once.Do(func() {
					if err := change(path); err != nil {
						t.Error(err)
					}
				})
			}}); err != nil {
				t.Fatal(err)
			}
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
			d := dataset.Dataset{Path: "d.parquet", Source: &dataset.Source{Kind: dataset.ParquetFiles}, Columns: columns(map[string]string{"n": "integer", "text": "text"})}
			if _, err := e.Load(t.Context(), "d", d, dir); err != nil {
				t.Fatal(err)
			}
			if err := e.Lock(t.Context()); err != nil {
				t.Fatal(err)
			}
			rows, err := e.Query(t.Context(), source.Statement{Dataset: "d", SQL: "SELECT sum(change(n)), max(text) FROM d", MaxRows: 1})
			if !errors.Is(err, source.ErrEngine) || rows != nil || strings.Contains(err.Error()+log.String(), "value-of-a-row") {
				t.Errorf("%v, %v\n%s", rows, err, log.String())
			}
		})
	}
}

// TestChangedWhileLoading: rows of a file that turns out to have changed are gone again, and the dataset can be loaded anew.
func TestChangedWhileLoading(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "d.csv")
	const rows = 60_000 // far more than is read ahead
	if err := os.WriteFile(path, []byte("n\n"+strings.Repeat("7\n", rows)), 0o600); err != nil {
		t.Fatal(err)
	}
	e, d := open(t, Limits{}), dataset.Dataset{Path: "d.csv", Columns: columns(map[string]string{"n": "integer"})}
	names, types := []string{"n"}, map[string]dataset.Type{"n": {Kind: dataset.Integer}}
	total := int64(0)
	err := e.load(t.Context(), "d", names, types, &total, func(add func([]any) error) error {
		rep, err := e.loadFile(t.Context(), d, path, names, func(row []any) error {
			if total++; total == 1 {
				if err := os.Truncate(path, 20); err != nil {
					return err
				}
			}
			return add(row)
		})
		if rep == nil || rep.Rows != rows {
			t.Errorf("%+v", rep)
		}
		return err
	})
	if !errors.Is(err, csvimport.ErrChanged) || total == 0 {
		t.Errorf("%d rows, %v", total, err)
	}
	if _, err := e.Table("d"); !errors.Is(err, source.ErrNoDataset) {
		t.Errorf("a table was left: %v", err)
	}
	if _, err := e.Load(t.Context(), "d", d, dir); err != nil {
		t.Fatal(err)
	}
	if err := e.Lock(context.Background()); err != nil {
		t.Fatal(err)
	}
	if a, err := ask(t, e, d, query.Spec{Request: contract.Request{Aggregates: []contract.Aggregate{agg("sum", "n"), count("")}}}); err != nil || a.Rows[0][0] != "63" || a.Rows[0][1] != int64(9) {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestUnwritableInstants: what Parquet can hold and a contract cannot write is out of range.
func TestUnwritableInstants(t *testing.T) {
	for _, sql := range []string{"DATE '10000-01-01'", "DATE 'infinity'", "DATE '-infinity'", "TIMESTAMP '10000-01-01 00:00:00'", "TIMESTAMP 'infinity'", "DATE '0044-03-15 (BC)'"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "d.parquet"), "SELECT "+sql+" AS x")
		typ := map[bool]string{true: "date", false: "timestamp"}[strings.HasPrefix(sql, "DATE")]
		d := dataset.Dataset{Path: "d.parquet", Columns: columns(map[string]string{"x": typ})}
		e, err := parquetEngine(t, d, dir)
		if err != nil {
			t.Fatal(err)
		}
		if a, err := ask(t, e, d, query.Spec{Request: contract.Request{Aggregates: []contract.Aggregate{agg("max", "x")}}}); !errors.Is(err, source.ErrRange) {
			t.Errorf("%s: %+v, %v", sql, a, err)
		}
	}
}
