// SPDX-License-Identifier: Apache-2.0

package duck

import (
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/query"
	"github.com/treaty-node/treaty/node/dataset"
)

// BenchmarkParquet is a query over ten million rows of Parquet, which the engine itself has written: built, run with all limits
// and locks, and read. Its floor is the same question written by hand and asked of a bare engine, over the same file and with
// as many threads. The two run in turn; the best of each counts.
func BenchmarkParquet(b *testing.B) {
	const rows = 10_000_000
	dir := b.TempDir()
	path := filepath.Join(dir, "orders.parquet")
	write(b, path, `SELECT 'R' || (i % 16) AS region, 'c' || (i * 2654435761 % 100000) AS who, ((i * 7919) % 1000000 / 100)::DECIMAL(10,2) AS value,
		DATE '2025-01-01' + (i % 365)::INTEGER AS day, i AS n FROM range(10000000) r(i)`)
	d := dataset.Dataset{Path: "orders.parquet", Source: &dataset.Source{Kind: dataset.ParquetFiles}, Columns: columns(map[string]string{
		"region": "text", "who": "text", "value": "decimal(10,2)", "day": "date", "n": "integer",
	})}
	e, err := Open(b.Context(), Limits{Time: time.Minute}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Load(b.Context(), "d", d, dir); err != nil {
		b.Fatal(err)
	}
	if err := e.Lock(b.Context()); err != nil {
		b.Fatal(err)
	}
	bare, err := Open(b.Context(), Limits{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer bare.Close()
	schema, err := dataset.Config{"d": d}.Schema("d")
	if err != nil {
		b.Fatal(err)
	}
	table, err := e.Table("d")
	if err != nil {
		b.Fatal(err)
	}
	dialect, err := e.Dialect("d")
	if err != nil {
		b.Fatal(err)
	}
	spec := query.Spec{
		Dialect: dialect, From: table.From, Schema: schema, MinGroup: 5, MaxRows: 1000,
		Request: contract.Request{
			Dataset: "d", GroupBy: []string{"region"}, Aggregates: []contract.Aggregate{agg("sum", "value"), count("calls")},
			Filters: []contract.Condition{where("day", "between", "2025-07-01", "2025-09-30")},
		},
	}
	ours := func() {
		p, err := query.Build(spec)
		if err != nil {
			b.Fatal(err)
		}
		got, err := e.Query(b.Context(), p.Statement)
		if err != nil {
			b.Fatal(err)
		}
		if a, err := p.Answer(got); err != nil || len(a.Rows) != 16 || a.TotalRows != rows {
			b.Fatal(a, err)
		}
	}
	const sql = `SELECT region, sum(value), count(*) FROM read_parquet(?) WHERE day BETWEEN DATE '2025-07-01' AND DATE '2025-09-30' GROUP BY region ORDER BY region`
	floor := func() {
		got, err := bare.db.QueryContext(b.Context(), sql, path)
		if err != nil {
			b.Fatal(err)
		}
		defer got.Close()
		n := 0
		for got.Next() {
			n++
		}
		if err := got.Err(); err != nil || n != 16 {
			b.Fatal(n, err)
		}
	}
	timed := func(f func()) float64 {
		start := time.Now()
		f()
		return float64(time.Since(start))
	}
	ours()
	floor()
	var own, least []float64
	for range max(b.N, 5) {
		own, least = append(own, timed(ours)), append(least, timed(floor))
	}
	b.ReportMetric(slices.Min(own), "ns/op")
	b.ReportMetric(slices.Min(least), "floor_ns/op")
	b.ReportMetric(slices.Min(own)/slices.Min(least), "ratio")
}

// BenchmarkLargeResult reads the largest answer there may be, again and again: what the process holds afterwards is what it held
// before.
func BenchmarkLargeResult(b *testing.B) {
	dir := b.TempDir()
	write(b, filepath.Join(dir, "d.parquet"), "SELECT i AS n, repeat('x', 200) || i AS text FROM range(1000000) r(i)")
	d := dataset.Dataset{Path: "d.parquet", Source: &dataset.Source{Kind: dataset.ParquetFiles}, Columns: columns(map[string]string{"n": "integer", "text": "text"})}
	e, err := Open(b.Context(), Limits{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Load(b.Context(), "d", d, dir); err != nil {
		b.Fatal(err)
	}
	if err := e.Lock(b.Context()); err != nil {
		b.Fatal(err)
	}
	schema, err := dataset.Config{"d": d}.Schema("d")
	if err != nil {
		b.Fatal(err)
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var before uint64
	peak := uint64(0)
	for i := range max(b.N, 5) {
		if i == 1 {
			before = heap()
		}
		p, err := query.Build(query.Spec{
			Dialect: must(e.Dialect("d")), From: `"d"`, Schema: schema, MaxRows: contract.MaxLimit,
			Request: contract.Request{Dataset: "d", GroupBy: []string{"text"}, Aggregates: []contract.Aggregate{count("n_")}, Limit: contract.MaxLimit},
		})
		if err != nil {
			b.Fatal(err)
		}
		rows, err := e.Query(b.Context(), p.Statement)
		if err != nil || len(rows) != contract.MaxLimit {
			b.Fatal(len(rows), err)
		}
		peak = max(peak, heap())
		runtime.KeepAlive(rows)
	}
	after := heap()
	b.ReportMetric(float64(peak)/(1<<20), "peak_MiB")
	b.ReportMetric(float64(int64(after)-int64(before))/(1<<20), "left_MiB")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
