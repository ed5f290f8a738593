// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/datatools"
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

// BenchmarkDecide is the decision alone, the verdict remembered.
func BenchmarkDecide(b *testing.B) {
	f := newFixture(b)
	facts := facts{record: f.record(b, f.contract, f.vendor, "in_force"), found: true}
	c := &call{s: f.svc, caller: f.buyer.caller(), req: f.input().Request(f.buyer.id()), facts: facts}
	for b.Loop() {
		c.v, _ = f.svc.judge(b.Context(), c.facts, c.caller)
		if _, d := c.decide(); !d.Allowed {
			b.Fatal(d)
		}
	}
}

// BenchmarkMCPGuarded is a whole call: request signature, contract, budget, receipt and durable writes, over TLS.
func BenchmarkMCPGuarded(b *testing.B) {
	f := newFixture(b, func(o *contract.Offer) { o.CallBudget = contract.MaxCallBudget })
	s := newSite(b, f, HandlerOptions{PerMinute: 1 << 30})
	session, args := s.session(b, f.buyer), f.input()
	b.ResetTimer()
	for range b.N {
		res, err := session.CallTool(b.Context(), &mcp.CallToolParams{Name: datatools.QueryRecords, Arguments: args})
		if err != nil || res.IsError {
			b.Fatal(err, res)
		}
	}
}

// BenchmarkMCPBare is the same call to the bare library: no signature, no contract, no writes, the same answer.
func BenchmarkMCPBare(b *testing.B) {
	f := newFixture(b)
	out, err := f.svc.Query(b.Context(), f.buyer.caller(), f.input())
	if err != nil {
		b.Fatal(err)
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "bare", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: datatools.QueryRecords}, func(context.Context, *mcp.CallToolRequest, map[string]any) (*mcp.CallToolResult, any, error) {
		return nil, out, nil
	})
	h := httptest.NewTLSServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}))
	defer h.Close()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(b.Context(), &mcp.StreamableClientTransport{
		Endpoint: h.URL, HTTPClient: h.Client(), MaxRetries: -1, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer session.Close()
	args := f.input()
	b.ResetTimer()
	for range b.N {
		res, err := session.CallTool(b.Context(), &mcp.CallToolParams{Name: datatools.QueryRecords, Arguments: args})
		if err != nil || res.IsError {
			b.Fatal(err, res)
		}
	}
}
