// SPDX-License-Identifier: Apache-2.0

// Package mcphttp is the HTTP stack that every MCP server of this project stands on: Streamable HTTP without sessions, one
// JSON-RPC message a request, answers as one JSON body, and no requests from pages of other origins.
//
// There are no sessions because a session outlives the request that opened it, and with that request's caller. Servers that
// stand on this stack can send nothing but answers: no sampling, no elicitation, no notifications. Authentication is not part
// of it.
package mcphttp

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// DefaultMaxBody is the most bytes of a request unless an option says otherwise.
const DefaultMaxBody = 256 << 10

// Options of Messages.
type Options struct {
	MaxBody int64 // bytes of a request; default DefaultMaxBody
	// Signed: a request counts only when it is signed for an origin of this server, so that a name that is rebound to this
	// machine gains nothing. Without it a request that comes in on a loopback address has to name a loopback host.
	Signed bool
}

// Messages serves MCP messages. Batches are refused, so that one request is one message. The context of a tool call ends
// with its HTTP request when the tool asks for it with [UntilGone].
func Messages(srv *mcp.Server, o Options) http.Handler {
	if o.MaxBody <= 0 {
		o.MaxBody = DefaultMaxBody
	}
	next := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, &mcp.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, MaxRequestBodyBytes: o.MaxBody, PropagateRequestCancellation: true,
		DisableLocalhostProtection: o.Signed,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, o.MaxBody))
			if err != nil {
				http.Error(w, "the request could not be read, or is too large", http.StatusRequestEntityTooLarge)
				return
			}
			if b := bytes.TrimLeft(body, " \t\r\n"); len(b) == 0 || b[0] != '{' {
				http.Error(w, "one JSON-RPC message, and no batch, is expected", http.StatusBadRequest)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), goneKey{}, r.Context())))
	})
}

// Pages refuses requests that a browser sends for a page of an origin that is not in the list (MCP 2025-06-18, transports,
// security warning), and bodies that say that they are longer than maxBody.
func Pages(origins []string, maxBody int64, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o := r.Header.Values("Origin"); len(o) > 1 || len(o) == 1 && !slices.Contains(origins, o[0]) {
			http.Error(w, "requests from pages of other origins are refused", http.StatusForbidden)
			return
		}
		if r.ContentLength > maxBody {
			http.Error(w, "the request is too large", http.StatusRequestEntityTooLarge)
			return
		}
		next.ServeHTTP(w, r)
	})
}

type goneKey struct{}

// UntilGone ends the context of a tool call with the HTTP request that it belongs to: the SDK itself does so only in its
// newest protocol version. The function that it returns frees what that takes.
func UntilGone(ctx context.Context) (context.Context, func()) {
	gone, ok := ctx.Value(goneKey{}).(context.Context)
	if !ok {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(gone, func() { cancel(context.Cause(gone)) })
	return ctx, func() { stop(); cancel(nil) }
}
