// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/store"
)

// BenchmarkQuery is the guard's own cost: decision, reservation, receipt and the durable writes, without HTTP and engine.
func BenchmarkQuery(b *testing.B) {
	f := newFixture(b, func(o *contract.Offer) { o.CallBudget = contract.MaxCallBudget })
	caller, in := f.buyer.caller(), f.input()
	for b.Loop() {
		if _, err := f.svc.Query(b.Context(), caller, in); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGuard is the guard's own cost of a call: the request's signature, the decision, the reservation, the receipt, the
// records. The proofs' verdict is remembered, and there is no engine. Its floor, measured in turn with it, is what cannot be
// saved: two Ed25519 operations, the digests of request, query and result, and one write that is synced.
func BenchmarkGuard(b *testing.B) {
	f := newFixture(b, func(o *contract.Offer) { o.CallBudget = contract.MaxCallBudget })
	caller, in := f.buyer.caller(), f.input()
	const origin = "https://data.vendorcorp.test"
	v, err := httpsig.NewVerifier(httpsig.Options{
		Origins: []string{origin}, Nonces: httpsig.NewMemoryNonces(httpsig.MemoryNonceOptions{}), Resolver: directory{f.buyer.doc.ID(): f.buyer.doc},
	})
	if err != nil {
		b.Fatal(err)
	}
	body, err := json.Marshal(in)
	if err != nil {
		b.Fatal(err)
	}
	file, err := os.Create(filepath.Join(b.TempDir(), "floor"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		b.Fatal(err)
	}
	base, page := make([]byte, 512), make([]byte, 4*4096) // a signature base, and what a commit writes
	sig := ed25519.Sign(private, base)
	floor := func() {
		if !ed25519.Verify(public, base, sig) {
			b.Fatal("not verified")
		}
		sha256.Sum256(body)
		sha256.Sum256(body)
		sha256.Sum256(base)
		ed25519.Sign(private, base)
		if _, err := file.WriteAt(page, 0); err != nil {
			b.Fatal(err)
		}
		if err := file.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	var ours, least []float64
	for range b.N {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, origin+"/mcp", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		if err := httpsig.SignRequest(b.Context(), r, body, f.buyer.signer, httpsig.SignOptions{Created: time.Now()}); err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		if _, err := v.Verify(b.Context(), r, body); err != nil {
			b.Fatal(err)
		}
		if _, err := f.svc.Query(b.Context(), caller, in); err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		floor()
		ours, least = append(ours, float64(middle.Sub(start))), append(least, float64(time.Since(middle)))
	}
	slices.Sort(ours)
	slices.Sort(least)
	own, lowest := ours[len(ours)/2], least[len(least)/2]
	b.ReportMetric(own, "ns/op")
	b.ReportMetric(lowest, "floor_ns/op")
	b.ReportMetric(own/lowest, "ratio")
}

// BenchmarkCallers is 64 callers at once over TLS, each with many calls, in turn with 64 callers of the bare library: no signature,
// no contract, no writes, the same answer. An error is a failure; the 99th percentile is printed.
func BenchmarkCallers(b *testing.B) { benchmarkMCP(b, 64) }

// BenchmarkMCP is one caller: whole calls with request signature, contract, budget, receipt and durable writes, beside bare ones.
func BenchmarkMCP(b *testing.B) { benchmarkMCP(b, 1) }

func benchmarkMCP(b *testing.B, callers int) {
	f := newFixture(b, func(o *contract.Offer) { o.CallBudget = contract.MaxCallBudget })
	f.opts.Slots = Slots{Concurrent: callers, PerBuyer: callers} // there is no engine to spare
	f.rebuild(b)
	out, err := f.svc.Query(b.Context(), f.buyer.caller(), f.input())
	if err != nil {
		b.Fatal(err)
	}
	bare := mcp.NewServer(&mcp.Implementation{Name: "bare", Version: "1"}, nil)
	mcp.AddTool(bare, &mcp.Tool{Name: datatools.QueryRecords}, func(context.Context, *mcp.CallToolRequest, map[string]any) (*mcp.CallToolResult, any, error) {
		return nil, out, nil
	})
	h := httptest.NewTLSServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return bare }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}))
	defer h.Close()
	s := newSite(b, f, HandlerOptions{PerMinute: 1 << 30})
	sessions := func(endpoint string, client *http.Client) (all []*mcp.ClientSession) {
		for range callers {
			session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(b.Context(), &mcp.StreamableClientTransport{
				Endpoint: endpoint, HTTPClient: client, MaxRetries: -1, DisableStandaloneSSE: true,
			}, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = session.Close() })
			all = append(all, session)
		}
		return all
	}
	for _, c := range []*http.Client{h.Client(), s.server.Client()} {
		c.Transport.(*http.Transport).MaxIdleConnsPerHost = callers // the default of 2 makes handshakes of it
	}
	signed, plain := sessions(s.server.URL+"/mcp", s.client(f.buyer)), sessions(h.URL, h.Client())
	args := f.input()
	var mu sync.Mutex
	round := func(sessions []*mcp.ClientSession) (took time.Duration, times []float64) {
		start := time.Now()
		var all sync.WaitGroup
		for _, session := range sessions {
			all.Go(func() {
				for range 16 {
					start := time.Now()
					res, err := session.CallTool(b.Context(), &mcp.CallToolParams{Name: datatools.QueryRecords, Arguments: args})
					if err != nil || res.IsError {
						b.Error(err, res)
						return
					}
					mu.Lock()
					times = append(times, float64(time.Since(start)))
					mu.Unlock()
				}
			})
		}
		all.Wait()
		return time.Since(start), times
	}
	var ours, least time.Duration
	var times []float64
	rounds := 0
	b.ResetTimer()
	for n := 0; n < b.N; n += 16 * callers {
		t, _ := round(plain)
		least += t
		t, list := round(signed)
		ours, times = ours+t, append(times, list...)
		rounds++
	}
	if len(times) == 0 {
		return
	}
	calls := float64(rounds * 16 * callers)
	slices.Sort(times)
	b.ReportMetric(float64(ours)/calls, "ns/op")
	b.ReportMetric(float64(least)/calls, "floor_ns/op")
	b.ReportMetric(float64(ours)/float64(least), "ratio")
	b.ReportMetric(times[len(times)*99/100]/1e6, "p99_ms")
}

// BenchmarkDecide is the decision alone, the verdict remembered.
func BenchmarkDecide(b *testing.B) {
	f := newFixture(b)
	facts := facts{Standing: store.Standing{Contract: f.record(b, f.contract, f.vendor, "in_force")}, found: true}
	c := &call{s: f.svc, caller: f.buyer.caller(), req: f.input().Request(f.buyer.id()), facts: facts}
	for b.Loop() {
		c.v, _ = f.svc.judge(b.Context(), c.facts, c.caller)
		if d := c.decide(); !d.Allowed {
			b.Fatal(d)
		}
	}
}
