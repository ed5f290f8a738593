// SPDX-License-Identifier: Apache-2.0

package duck

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/query"
	"github.com/treaty-node/treaty/node/dataplane/source"
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
	e, err := Open(b.Context(), Limits{Limits: source.Limits{Time: time.Minute}}, nil)
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

// BenchmarkLargeResult asks for the largest answers there may be, of rows and of groups, over a source and over one of ten times the
// rows. It fails where the process needs more memory for the larger source, at its peak, than for the smaller.
func BenchmarkLargeResult(b *testing.B) {
	const rows = 500_000
	for _, request := range []contract.Request{
		{Dataset: "d", Select: []string{"n", "text"}, OrderBy: []contract.Order{{By: "text"}}, Limit: contract.MaxLimit},
		{Dataset: "d", GroupBy: []string{"g"}, Aggregates: []contract.Aggregate{agg("min", "text"), count("n_")}, Limit: contract.MaxLimit},
	} {
		name := "groups"
		if request.Rows() {
			name = "rows"
		}
		b.Run(name, func(b *testing.B) {
			var small, large, heap float64
			for range b.N {
				small, _ = answerPeak(b, rows, request)
				large, heap = answerPeak(b, 10*rows, request)
			}
			b.ReportMetric(small, "peak_MiB")
			b.ReportMetric(large, "peak10x_MiB")
			b.ReportMetric(heap, "heap_MiB")
			if large > 1.25*small+32 {
				b.Errorf("the process needs %.0f MiB over %d rows, and %.0f MiB over ten times as many", small, rows, large)
			}
		})
	}
}

// answerPeak is how much memory the process has at most while it answers, three times, over so many rows: resident, and of Go's heap.
func answerPeak(b *testing.B, rows int, request contract.Request) (resident, heap float64) {
	dir := b.TempDir()
	write(b, filepath.Join(dir, "d.parquet"), fmt.Sprintf("SELECT i AS n, i %% 10000 AS g, repeat('x', 60) || (i * 7919 %% 1000003) AS text FROM range(%d) r(i)", rows))
	d := dataset.Dataset{Path: "d.parquet", Source: &dataset.Source{Kind: dataset.ParquetFiles}, Columns: columns(map[string]string{"n": "integer", "g": "integer", "text": "text"})}
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
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // begins a new peak
		b.Fatal(err)
	}
	for range 3 {
		p, err := query.Build(query.Spec{Dialect: must(e.Dialect("d")), From: must(e.Table("d")).From, Schema: schema, MaxRows: contract.MaxLimit, Request: request})
		if err != nil {
			b.Fatal(err)
		}
		got, err := e.Query(b.Context(), p.Statement)
		if err != nil || len(got) != contract.MaxLimit {
			b.Fatal(len(got), err)
		}
		a, err := p.Answer(got)
		if err != nil || len(a.Rows) != contract.MaxLimit || a.TotalRows != int64(rows) {
			b.Fatal(err)
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		heap = max(heap, float64(m.HeapAlloc)/(1<<20))
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(rest, &resident); err != nil {
		b.Fatal(err)
	}
	return resident / 1024, heap
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
