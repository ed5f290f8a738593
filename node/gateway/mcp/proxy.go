// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/mcphttp"
)

// ProxyPath is where a proxy serves MCP over HTTP.
const ProxyPath = "/mcp"

// Forward performs one tool call and returns its result as MCP writes it. A *Refused error is a decision; every other error
// means that nobody decided anything.
type Forward func(ctx context.Context, tool string, arguments json.RawMessage) ([]byte, error)

// Proxy is an MCP server for clients on this machine that cannot sign. It shows the data plane's tools as one contract lets
// them be used and hands every call on; it holds no key and decides nothing. Refusals reach the client word for word as
// tool errors, faults as protocol errors (C11).
type Proxy struct {
	forward Forward
	server  *sdk.Server
}

// NewProxy makes a proxy for a contract. build is shown to clients.
func NewProxy(c *contract.Contract, forward Forward, build string) *Proxy {
	p := &Proxy{forward: forward}
	p.server = sdk.NewServer(&sdk.Implementation{Name: "treaty-proxy", Title: "Treaty contract " + c.ID, Version: build}, &sdk.ServerOptions{
		Instructions: fmt.Sprintf("Queries under data contract %s on the dataset %s. Every query states its purpose, which has to be the purpose of record: %q. "+
			"The data is for that purpose only and is to be deleted after %d days. A result with isError is a decision of the data owner; its text begins with a code.",
			c.ID, c.Dataset, c.Purpose, c.RetentionDays),
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
	})
	closed := false
	for _, t := range datatools.ToolsFor(datatools.GrantOf(c)) {
		p.server.AddTool(&sdk.Tool{
			Name: t.Name, Title: t.Title, Description: t.Description, InputSchema: t.InputSchema, OutputSchema: t.OutputSchema,
			Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &closed},
		}, p.tool(t.Name))
	}
	return p
}

func (p *Proxy) tool(name string) sdk.ToolHandler {
	return func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		ctx, stop := mcphttp.UntilGone(ctx)
		defer stop()
		raw, err := p.forward(ctx, name, req.Params.Arguments)
		var refused *Refused
		if errors.As(err, &refused) {
			raw, err = refused.Result()
		}
		var res *sdk.CallToolResult
		if err == nil {
			res, err = parseResult(raw)
		}
		if err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
		}
		return res, nil
	}
}

// parseResult reads a result and keeps its structured content as it came, since a receipt covers it.
func parseResult(raw []byte) (*sdk.CallToolResult, error) {
	var all sdk.CallToolResult
	var kept struct {
		StructuredContent json.RawMessage `json:"structuredContent"`
	}
	if err := errors.Join(json.Unmarshal(raw, &all), json.Unmarshal(raw, &kept)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	res := &sdk.CallToolResult{Meta: all.Meta, Content: all.Content, IsError: all.IsError}
	if kept.StructuredContent != nil {
		res.StructuredContent = kept.StructuredContent
	}
	return res, nil
}

// Serve talks to one client over a pair of streams, a JSON message a line, until the client leaves or ctx ends.
func (p *Proxy) Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	err := p.server.Run(ctx, &sdk.IOTransport{Reader: in, Writer: out})
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Handler serves clients over HTTP that show the token. Nobody else gets further than a 401, and pages in a browser not even
// there.
func (p *Proxy) Handler(token string) http.Handler {
	messages := mcphttp.Messages(p.server, mcphttp.Options{})
	want := sha256.Sum256([]byte(token))
	return mcphttp.Pages(nil, mcphttp.DefaultMaxBody, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(strings.TrimSpace(shown)))
		if token == "" || !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", `Bearer realm="treaty proxy"`)
			http.Error(w, "the token that treaty proxy printed is needed", http.StatusUnauthorized)
			return
		}
		if r.URL.Path != ProxyPath {
			http.NotFound(w, r)
			return
		}
		messages.ServeHTTP(w, r)
	}))
}

// ErrNotLoopback: a proxy listens on this machine only.
var ErrNotLoopback = errors.New("a proxy listens on a loopback address only, such as 127.0.0.1:0")

// CheckListen takes addresses that nobody else's machine reaches. Names are not looked up, so "localhost" is none.
func CheckListen(addr string) error {
	a, err := netip.ParseAddrPort(addr)
	if err != nil || !a.Addr().Unmap().IsLoopback() {
		return fmt.Errorf("%w: %.80q", ErrNotLoopback, addr)
	}
	return nil
}
