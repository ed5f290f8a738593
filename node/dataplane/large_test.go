// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/datatools"
)

// BenchmarkLargestAnswer is an answer of as many rows and bytes as a source may give, from its rows to the caller over TLS, and what
// the process has on its heap meanwhile.
func BenchmarkLargestAnswer(b *testing.B) {
	f := newFixture(b, rowsOf, func(o *contract.Offer) { o.Rows.RowBudget = contract.MaxRowBudget })
	f.opts.Ceiling.AllowRows = true
	f.rebuild(b)
	day := start.UTC().Truncate(24 * time.Hour)
	rows := make(source.Rows, contract.MaxLimit)
	text := strings.Repeat("x", 32<<20/contract.MaxLimit-64)
	for i := range rows {
		rows[i] = []any{text, day, int64(len(rows))}
	}
	f.src.rows = rows
	s := newSite(b, f, HandlerOptions{PerMinute: 1 << 30})
	args, err := json.Marshal(f.selection(contract.MaxLimit, "region", "order_date"))
	if err != nil {
		b.Fatal(err)
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, datatools.SelectRecords, args)
	stop, peaks := make(chan struct{}), make(chan uint64)
	go func() {
		peak := uint64(0)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
			select {
			case <-stop:
				peaks <- peak
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	for b.Loop() {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, s.server.URL+"/mcp", strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		res, err := s.client(f.buyer).Do(req)
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, res.Body); err != nil || n < 60<<20 { // the answer as data, and as text
			b.Fatal(n, err)
		}
		_ = res.Body.Close()
	}
	close(stop)
	b.ReportMetric(float64(<-peaks)/(1<<20), "peak_MiB")
}
