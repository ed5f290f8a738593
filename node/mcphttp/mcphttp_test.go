// SPDX-License-Identifier: Apache-2.0

package mcphttp

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func server(f mcp.ToolHandler) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "tool", InputSchema: map[string]any{"type": "object"}}, f)
	return s
}

const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`

func TestWhatIsLetThrough(t *testing.T) {
	s := server(func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{}, nil
	})
	const own = "https://data.vendorcorp.test"
	for _, tt := range []struct {
		name, method, body string
		signed             bool
		host               string
		origins            []string
		want               int
	}{
		{name: "a message", body: list, want: 200},
		{name: "space before it", body: " \r\n\t" + list, want: 200},
		{name: "a batch", body: "[" + list + "]", want: 400},
		{name: "nothing", want: 400},
		{name: "a stream", method: http.MethodGet, want: 405},
		{name: "the end of a session", method: http.MethodDelete, want: 405},
		{name: "too large", body: `{"x":"` + strings.Repeat("x", 2000) + `"}`, want: 413},
		{name: "own page", body: list, origins: []string{own}, want: 200},
		{name: "another page", body: list, origins: []string{"https://evil.test"}, want: 403},
		{name: "no page", body: list, origins: []string{"null"}, want: 403},
		{name: "two pages", body: list, origins: []string{own, own}, want: 403},
		{name: "a rebound name", body: list, host: "evil.test", want: 403},
		{name: "a name that a signature covers", body: list, host: "data.vendorcorp.test", signed: true, want: 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(Pages([]string{own}, 1000, Messages(s, Options{MaxBody: 1000, Signed: tt.signed})))
			defer srv.Close()
			method := tt.method
			if method == "" {
				method = http.MethodPost
			}
			// Once with a length in the header and once without.
			for _, body := range []io.Reader{strings.NewReader(tt.body), io.MultiReader(strings.NewReader(tt.body))} {
				req, err := http.NewRequestWithContext(t.Context(), method, srv.URL, body)
				if err != nil {
					t.Fatal(err)
				}
				req.Host = tt.host
				req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Origin": tt.origins}
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				answer, err := io.ReadAll(res.Body)
				if err != nil || res.Body.Close() != nil || res.StatusCode != tt.want || strings.Contains(string(answer), `"tool"`) != (tt.want == 200) {
					t.Errorf("%d %s, %v", res.StatusCode, answer, err)
				}
			}
		})
	}
}

// A client that leaves ends its tool call, in a version of the protocol in which the SDK does not see to it.
func TestUntilGone(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	s := server(func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ctx, stop := UntilGone(ctx)
		defer stop()
		close(started)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	})
	srv := httptest.NewServer(Messages(s, Options{}))
	defer srv.Close()
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tool","arguments":{}}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2025-06-18"}}
	go func() { <-started; leave() }()
	if res, err := http.DefaultClient.Do(req); err == nil {
		_ = res.Body.Close()
		t.Errorf("answered: %d", res.StatusCode)
	}
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the call goes on without its client")
	}

	// Elsewhere the context is left as it is.
	same, stop := UntilGone(t.Context())
	stop()
	if same.Err() != nil {
		t.Error("a context that belongs to no request has ended")
	}
}
