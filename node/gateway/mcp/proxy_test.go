// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/treaty-node/treaty/node/datatools"
)

// bearer shows a token.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// proxied is a session with a proxy over HTTP.
func proxied(t *testing.T, forward Forward) (*sdk.ClientSession, *world) {
	t.Helper()
	w := newWorld(t, nil)
	server := httptest.NewServer(NewProxy(w.c, forward, "test").Handler("s3cret"))
	t.Cleanup(server.Close)
	session, err := sdk.NewClient(&sdk.Implementation{Name: "desktop", Version: "1"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: server.URL + ProxyPath, HTTPClient: &http.Client{Transport: bearer("Bearer s3cret")}, MaxRetries: -1,
	}, nil)
	must(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return session, w
}

// Every call is handed on as it came, and its result comes back as it was given: digits, receipt and words.
func TestProxyForwards(t *testing.T) {
	type call struct{ tool, arguments string }
	var calls []call
	answers := map[string]func() ([]byte, error){
		datatools.QueryRecords: func() ([]byte, error) {
			return Result([]byte(`{"result":{"rows":[[0.1,1e-7,123456789012345678901234567890]]},"receipt":{}}`))
		},
		datatools.ListDatasets: func() ([]byte, error) {
			r := &Refused{Code: "NO_CONTRACT", Text: "NO_CONTRACT: \"<word>\" for word.\n Nothing was read.", Receipt: json.RawMessage(`{"id":"rcp_1"}`)}
			return r.Result()
		},
		datatools.DescribeContract: func() ([]byte, error) { return nil, &Refused{Text: "NOT_TRUSTED: by our own policy"} },
	}
	session, w := proxied(t, func(_ context.Context, tool string, arguments json.RawMessage) ([]byte, error) {
		calls = append(calls, call{tool, string(arguments)})
		return answers[tool]()
	})
	list, err := session.ListTools(t.Context(), nil)
	must(t, err)
	b, err := json.Marshal(list.Tools)
	must(t, err)
	if len(list.Tools) != 3 || !strings.Contains(string(b), w.c.ID) || !strings.Contains(string(b), `"enum":["count"]`) {
		t.Errorf("tools %s", b)
	}
	if in := session.InitializeResult().Instructions; !strings.Contains(in, w.c.ID) || !strings.Contains(in, w.c.Purpose) {
		t.Errorf("instructions %q", in)
	}
	ask := func(tool, arguments string) *sdk.CallToolResult {
		t.Helper()
		res, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})
		must(t, err)
		return res
	}
	said := func(r *sdk.CallToolResult) string {
		var s string
		for _, c := range r.Content {
			s += c.(*sdk.TextContent).Text
		}
		return s
	}
	if r := ask(datatools.QueryRecords, `{"contract_id":"x","limit":3}`); r.IsError || !strings.Contains(said(r), "[0.1,1e-7,123456789012345678901234567890]") || r.StructuredContent == nil {
		t.Errorf("answer %+v", r)
	}
	if r := ask(datatools.ListDatasets, `{}`); !r.IsError || said(r) != "NO_CONTRACT: \"<word>\" for word.\n Nothing was read." || r.StructuredContent != nil || r.Meta[datatools.MetaReceipt] == nil {
		t.Errorf("refusal %+v", r)
	}
	if r := ask(datatools.DescribeContract, `{}`); !r.IsError || said(r) != "NOT_TRUSTED: by our own policy" {
		t.Errorf("refusal %+v", r)
	}
	want := []call{{datatools.QueryRecords, `{"contract_id":"x","limit":3}`}, {datatools.ListDatasets, `{}`}, {datatools.DescribeContract, `{}`}}
	if !slices.Equal(calls, want) {
		t.Errorf("handed on %q", calls)
	}
	if _, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "drop_table"}); err == nil || len(calls) != 3 {
		t.Errorf("unknown tool: %v", err)
	}
}

// TestC11_ProxyFaultsAreProtocolErrors: where nobody decided anything there is no tool result.
func TestC11_ProxyFaultsAreProtocolErrors(t *testing.T) {
	for name, forward := range map[string]Forward{
		"fault":       func(context.Context, string, json.RawMessage) ([]byte, error) { return nil, ErrTransport },
		"not MCP":     func(context.Context, string, json.RawMessage) ([]byte, error) { return []byte(`<html>`), nil },
		"no contents": func(context.Context, string, json.RawMessage) ([]byte, error) { return []byte(`[]`), nil },
	} {
		t.Run(name, func(t *testing.T) {
			session, _ := proxied(t, forward)
			res, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: datatools.ListDatasets})
			var wire *jsonrpc.Error
			if !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInternalError {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}

// TestProxyNeedsItsToken: other users of this machine, and pages in this user's browser, get nothing.
func TestProxyNeedsItsToken(t *testing.T) {
	w := newWorld(t, nil)
	p := NewProxy(w.c, func(context.Context, string, json.RawMessage) ([]byte, error) { return nil, errors.New("called") }, "test")
	for _, tt := range []struct {
		name, token, path string
		header            map[string]string
		host              string
		want              int
	}{
		{"right", "s3cret", ProxyPath, map[string]string{"Authorization": "Bearer s3cret"}, "", 200},
		{"scheme in small letters", "s3cret", ProxyPath, map[string]string{"Authorization": "bearer s3cret"}, "", 200},
		{"none", "s3cret", ProxyPath, nil, "", 401},
		{"wrong", "s3cret", ProxyPath, map[string]string{"Authorization": "Bearer s3cres"}, "", 401},
		{"prefix", "s3cret", ProxyPath, map[string]string{"Authorization": "Bearer s3cre"}, "", 401},
		{"longer", "s3cret", ProxyPath, map[string]string{"Authorization": "Bearer s3cret0"}, "", 401},
		{"basic", "s3cret", ProxyPath, map[string]string{"Authorization": "Basic s3cret"}, "", 401},
		{"bare", "s3cret", ProxyPath, map[string]string{"Authorization": "s3cret"}, "", 401},
		{"no token at all", "", ProxyPath, map[string]string{"Authorization": "Bearer "}, "", 401},
		{"in the address", "s3cret", ProxyPath + "?token=s3cret", nil, "", 401},
		{"another path", "s3cret", "/", map[string]string{"Authorization": "Bearer s3cret"}, "", 404},
		{"a page", "s3cret", ProxyPath, map[string]string{"Authorization": "Bearer s3cret", "Origin": "https://evil.test"}, "", 403},
		{"a page of this machine", "s3cret", ProxyPath, map[string]string{"Authorization": "Bearer s3cret", "Origin": "http://localhost:3000"}, "", 403},
		{"a rebound name", "s3cret", ProxyPath, map[string]string{"Authorization": "Bearer s3cret"}, "evil.test", 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(p.Handler(tt.token))
			defer server.Close()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+tt.path, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
			must(t, err)
			req.Host = tt.host
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json, text/event-stream")
			for k, v := range tt.header {
				req.Header.Set(k, v)
			}
			res, err := http.DefaultClient.Do(req)
			must(t, err)
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			must(t, err)
			if res.StatusCode != tt.want || strings.Contains(string(body), "query_records") != (tt.want == 200) || (tt.want == 401) != (res.Header.Get("WWW-Authenticate") != "") {
				t.Errorf("%d %s", res.StatusCode, body)
			}
		})
	}
}

func TestProxyOverStreams(t *testing.T) {
	w := newWorld(t, nil)
	p := NewProxy(w.c, func(context.Context, string, json.RawMessage) ([]byte, error) {
		return Result([]byte(`{"datasets":[]}`))
	}, "test")
	toProxy, fromClient := io.Pipe()
	toClient, fromProxy := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(t.Context(), toProxy, fromProxy) }()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "desktop", Version: "1"}, nil).Connect(t.Context(), &sdk.IOTransport{Reader: toClient, Writer: fromClient}, nil)
	must(t, err)
	res, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: datatools.ListDatasets})
	if err != nil || res.IsError {
		t.Errorf("%+v, %v", res, err)
	}
	must(t, session.Close())
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}

// A call ends with its client, whichever version of the protocol that speaks.
func TestProxyCallEndsWithItsClient(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	session, _ := proxied(t, func(ctx context.Context, _ string, _ json.RawMessage) ([]byte, error) {
		close(started)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	if _, err := session.CallTool(ctx, &sdk.CallToolParams{Name: datatools.ListDatasets}); err == nil {
		t.Error("answered")
	}
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the call goes on without its client")
	}
}

func TestCheckListen(t *testing.T) {
	for addr, ok := range map[string]bool{
		"127.0.0.1:0": true, "127.0.0.2:8765": true, "[::1]:8765": true, "[::ffff:127.0.0.1]:1": true,
		"": false, ":8765": false, "0.0.0.0:8765": false, "[::]:0": false, "192.168.1.2:1": false, "localhost:8765": false, "127.0.0.1": false,
		"localhost.evil.test:1": false, "[fe80::1%lo]:1": false, "10.0.0.1:70000": false,
	} {
		if err := CheckListen(addr); (err == nil) != ok || err != nil && !errors.Is(err, ErrNotLoopback) {
			t.Errorf("%q: %v", addr, err)
		}
	}
}
