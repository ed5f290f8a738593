// SPDX-License-Identifier: Apache-2.0

package duck

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/query"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
)

// write has the engine itself write a Parquet file.
func write(t testing.TB, path, sql string) {
	t.Helper()
	e, err := Open(t.Context(), Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.db.ExecContext(t.Context(), "COPY ("+sql+") TO "+literal(path)+" (FORMAT parquet)"); err != nil {
		t.Fatal(err)
	}
}

const everyType = `SELECT 'N' AS region, 9223372036854775807::BIGINT AS big, (i*3)::INTEGER AS small, 18446744073709551615::UBIGINT AS huge,
	(i/7)::DECIMAL(12,3) AS money, i/4::DOUBLE AS x, i % 2 = 0 AS flag, DATE '9999-12-31' AS day, TIMESTAMP '2025-06-01 12:00:00.000001' AS at,
	CAST('2025-06-01 12:00:00+02' AS TIMESTAMPTZ) AS instant, NULL::BIGINT AS nothing, [1, 2] AS list, TIME '10:00:00' AS clock FROM range(10) r(i)`

var everyColumn = map[string]string{
	"region": "text", "big": "integer", "small": "integer", "huge": "decimal(20,0)", "money": "decimal(12,3)", "x": "double", "flag": "boolean",
	"day": "date", "at": "timestamp", "instant": "timestamptz", "nothing": "integer",
}

func parquetEngine(t *testing.T, d dataset.Dataset, dir string) (*Engine, error) {
	t.Helper()
	e := open(t, Limits{})
	d.Source = &dataset.Source{Kind: dataset.ParquetFiles}
	if _, err := e.Load(t.Context(), "d", d, dir); err != nil {
		return nil, err
	}
	return e, e.Lock(t.Context())
}

func TestParquet(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "it's 1.parquet"), everyType)
	write(t, filepath.Join(dir, "2.parquet"), everyType)
	d := dataset.Dataset{Path: ".", Columns: columns(everyColumn)}
	e, err := parquetEngine(t, d, dir)
	if err != nil {
		t.Fatal(err)
	}
	ask1 := func(req contract.Request) (*query.Answer, error) {
		return ask(t, e, d, query.Spec{Request: req})
	}
	a, err := ask1(contract.Request{
		GroupBy:    []string{"region", "day"},
		Aggregates: []contract.Aggregate{agg("max", "big"), agg("sum", "big"), agg("max", "huge"), agg("sum", "money"), agg("avg", "x"), agg("min", "at"), agg("min", "instant"), count("flag")},
		Filters: []contract.Condition{
			{Column: "day", Op: "=", Value: contract.TextValue("9999-12-31")}, {Column: "flag", Op: "=", Value: contract.BoolValue(true)}, where("small", "<=", "24"),
			{Column: "instant", Op: "=", Value: contract.TextValue("2025-06-01T10:00:00Z")},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []any{"N", "9999-12-31", "9223372036854775807", "92233720368547758070", "18446744073709551615", "5.714", 1.0,
		"2025-06-01T12:00:00.000001", "2025-06-01T10:00:00Z", int64(10)}
	if len(a.Rows) != 1 || !reflect.DeepEqual(a.Rows[0], want) || a.TotalRows != 20 {
		t.Fatalf("%v\nwant %v", a, want)
	}
	// Locked: these files and no others, and no writing.
	for _, sql := range []string{
		"SELECT count(*) FROM read_parquet('/etc/passwd')", "SELECT * FROM read_text(" + literal(filepath.Join(dir, "..", "x")) + ")",
		"COPY (SELECT 1) TO " + literal(filepath.Join(dir, "new.parquet")), "SELECT * FROM glob(" + literal(dir+"/../*") + ")",
	} {
		if _, err := e.Query(t.Context(), source.Statement{Dataset: "d", SQL: sql, MaxRows: 10}); !errors.Is(err, source.ErrEngine) {
			t.Errorf("%s: %v", sql, err)
		}
	}
	// A file that changes is a fault, not another answer.
	write(t, filepath.Join(dir, "2.parquet"), everyType+" UNION ALL "+everyType)
	if _, err := ask1(contract.Request{Aggregates: []contract.Aggregate{count("")}}); !errors.Is(err, source.ErrEngine) {
		t.Errorf("a changed file: %v", err)
	}
}

func TestParquetRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "all.parquet"), everyType)
	write(t, filepath.Join(dir, "case.parquet"), `SELECT 1 AS "Amount", 2 AS "a mount", 3 AS "аmount"`)
	whole, err := os.ReadFile(filepath.Join(dir, "all.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"cut.parquet": whole[:len(whole)-9], "half.parquet": whole[:len(whole)/2], "empty.parquet": nil, "text.parquet": []byte("a,b\n1,2\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	one := func(name, typ string) map[string]string { return map[string]string{name: typ} }
	for name, tt := range map[string]struct {
		path    string
		columns map[string]string
		says    string
	}{
		"truncated":       {"cut.parquet", one("big", "integer"), "complete Parquet"},
		"half":            {"half.parquet", one("big", "integer"), "complete Parquet"},
		"empty file":      {"empty.parquet", one("big", "integer"), "complete Parquet"},
		"text":            {"text.parquet", one("big", "integer"), "complete Parquet"},
		"no file":         {"no.parquet", one("big", "integer"), "no such file"},
		"no match":        {"x*.parquet", one("big", "integer"), "0 files"},
		"other columns":   {"", one("big", "integer"), "other columns"},
		"case":            {"case.parquet", one("amount", "integer"), "differs by case"},
		"a look-alike":    {"case.parquet", one("amount ", "integer"), "no column"},
		"another type":    {"all.parquet", one("big", "text"), "configured as text"},
		"list":            {"all.parquet", one("list", "text"), "make a view"},
		"a time of a day": {"all.parquet", one("clock", "text"), "timestamp"},
	} {
		path := tt.path
		if name == "other columns" {
			path = "[ac]a*.parquet"
			write(t, filepath.Join(dir, "aa.parquet"), everyType)
		}
		_, err := parquetEngine(t, dataset.Dataset{Path: path, Columns: columns(tt.columns)}, dir)
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A folder of CSV files is one dataset.
func TestCSVFolder(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string]string{"a.csv": "n,v\na,1\n", "b.csv": "v,n\n41,b\n", "note.txt": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := dataset.Dataset{Path: ".", Columns: columns(map[string]string{"n": "text", "v": "integer"})}
	e := open(t, Limits{})
	rep, err := e.Load(t.Context(), "d", d, dir)
	if err != nil || rep.Rows != 2 {
		t.Fatal(rep, err)
	}
	if err := e.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, err := ask(t, e, d, query.Spec{Request: contract.Request{Aggregates: []contract.Aggregate{agg("sum", "v"), count("")}}})
	if err != nil || a.Rows[0][0] != "42" || a.Rows[0][1] != int64(2) {
		t.Fatal(a, err)
	}
}
