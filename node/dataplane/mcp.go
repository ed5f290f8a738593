// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/mcphttp"
)

// ServerName is how the data plane names itself over MCP and in its health answer.
const ServerName = "treaty-dataplane"

// server makes the MCP server. Tools take and give exactly what datatools publishes.
func (s *Service) server(build string) *mcp.Server {
	srv := mcp.NewServer(&mcp.Implementation{Name: ServerName, Title: "Treaty data plane", Version: build}, &mcp.ServerOptions{
		Instructions: "Queries under a data contract. describe_contract says what a contract grants; query_records asks for aggregates, select_records for rows where they are granted. " +
			"A result with isError is a decision of the data owner; its text begins with a code.",
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	run := map[string]func(context.Context, httpsig.Caller, json.RawMessage) (any, error){
		datatools.QueryRecords: func(ctx context.Context, caller httpsig.Caller, raw json.RawMessage) (any, error) {
			var in datatools.QueryInput
			if err := datatools.ParseArguments(raw, &in); err != nil {
				return nil, err
			}
			return nonNil(s.Query(ctx, caller, in))
		},
		datatools.SelectRecords: func(ctx context.Context, caller httpsig.Caller, raw json.RawMessage) (any, error) {
			var in datatools.SelectInput
			if err := datatools.ParseArguments(raw, &in); err != nil {
				return nil, err
			}
			return nonNil(s.Select(ctx, caller, in))
		},
		datatools.DescribeContract: func(ctx context.Context, caller httpsig.Caller, raw json.RawMessage) (any, error) {
			var in datatools.DescribeInput
			if err := datatools.ParseArguments(raw, &in); err != nil {
				return nil, err
			}
			return nonNil(s.Describe(ctx, caller, in.ContractID))
		},
		datatools.ListDatasets: func(ctx context.Context, caller httpsig.Caller, raw json.RawMessage) (any, error) {
			var in datatools.ListInput
			if err := datatools.ParseArguments(raw, &in); err != nil {
				return nil, err
			}
			return nonNil(s.List(ctx, caller))
		},
	}
	closed, readOnly := false, true
	for _, t := range datatools.Tools() {
		// What the tool takes and gives is for listing to say. The SDK would read a schema that stands here with every call.
		srv.AddTool(&mcp.Tool{
			Name: t.Name, InputSchema: json.RawMessage(`{"type":"object"}`),
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: readOnly, OpenWorldHint: &closed},
		}, s.tool(t.Name, run[t.Name]))
	}
	srv.AddReceivingMiddleware(s.listing)
	return srv
}

// listing answers tools/list with the definitions that the caller's contracts make. Such an answer is for this caller alone.
func (s *Service) listing(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		list, ok := res.(*mcp.ListToolsResult)
		if err != nil || !ok {
			return res, err
		}
		var grants []datatools.Grant
		if caller, ok := httpsig.CallerFrom(ctx); ok {
			contracts, err := s.inForce(ctx, caller)
			if err != nil {
				return nil, s.fault(ctx, method, err)
			}
			for _, c := range contracts {
				grants = append(grants, s.grant(c))
			}
		}
		defined := map[string]datatools.Tool{}
		for _, t := range datatools.ToolsFor(grants...) {
			defined[t.Name] = t
		}
		own := *list
		own.CacheScope, own.Tools = "private", make([]*mcp.Tool, 0, len(list.Tools))
		for _, t := range list.Tools {
			tool, d := *t, defined[t.Name]
			if d.Name == "" {
				continue // no contract of the caller's lets it use this one
			}
			tool.Title, tool.Description, tool.InputSchema, tool.OutputSchema = d.Title, d.Description, d.InputSchema, nil
			if d.OutputSchema != nil {
				tool.OutputSchema = d.OutputSchema
			}
			own.Tools = append(own.Tools, &tool)
		}
		return &own, nil
	}
}

// nonNil keeps a typed nil out of an interface.
func nonNil[T any](v *T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// errCaller: a tool was called outside a verified request.
var errCaller = errors.New("no verified caller")

// tool gives a tool the caller of the very request that it was called in. The server is stateless, so that a request's
// context reaches its own tools and no others.
func (s *Service) tool(name string, run func(context.Context, httpsig.Caller, json.RawMessage) (any, error)) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (res *mcp.CallToolResult, err error) {
		defer func() {
			if p := recover(); p != nil {
				s.opts.Log.Error("panic in a tool", "tool", name, "stack", string(debug.Stack()))
				res, err = nil, s.fault(ctx, name, fmt.Errorf("panic of type %T", p))
			}
		}()
		caller, ok := httpsig.CallerFrom(ctx)
		if !ok {
			return nil, s.fault(ctx, name, errCaller)
		}
		ctx, stop := mcphttp.UntilGone(ctx)
		defer stop()
		out, err := run(ctx, caller, req.Params.Arguments)
		if err == nil {
			var structured []byte
			if structured, err = canon.Marshal(out); err == nil {
				return &mcp.CallToolResult{
					StructuredContent: json.RawMessage(structured),
					Content:           []mcp.Content{&mcp.TextContent{Text: string(structured)}},
				}, nil
			}
		}
		if refused := refusalResult(err); refused != nil {
			return refused, nil
		}
		return nil, s.fault(ctx, name, err)
	}
}

// refusalResult is a tool error for what is the data owner's decision, and nil for faults. It has no structured content: a
// refusal must not look like an empty answer.
func refusalResult(err error) *mcp.CallToolResult {
	var r *Refusal
	switch {
	case errors.As(err, &r):
	case errors.Is(err, datatools.ErrArguments):
		r = &Refusal{Decision: contract.Refusal(contract.InvalidQuery, nil, err.Error())}
	default:
		return nil
	}
	res := &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: r.Error()}}}
	if r.Receipt != nil {
		res.Meta = mcp.Meta{datatools.MetaReceipt: json.RawMessage(r.Receipt)}
	}
	return res
}

// JSON-RPC codes of faults.
const (
	CodeInternal = -32603 // JSON-RPC 2.0
	CodeLimit    = -32001 // a limit of the data plane ended the call
)

// fault turns an error that is no decision into a protocol error. The caller gets a reference to the local log, which has no
// values either: errors that reach it are this project's own.
func (s *Service) fault(ctx context.Context, tool string, err error) error {
	ref := reference()
	s.opts.Log.LogAttrs(ctx, slog.LevelError, "fault", slog.String("tool", tool), slog.String("ref", ref), slog.String("error", err.Error()))
	e := &jsonrpc.Error{Code: CodeInternal, Message: "the data plane failed; this is no decision about your call (reference " + ref + ")"}
	switch {
	case errors.Is(err, source.ErrTime):
		e.Code, e.Message = CodeLimit, "the query ran longer than the data plane allows"
	case errors.Is(err, source.ErrMemory):
		e.Code, e.Message = CodeLimit, "the query needs more memory than the data plane allows"
	case errors.Is(err, ErrBusy):
		e.Code, e.Message = CodeLimit, "too many of your calls are under way, or the data plane is busy; nothing was read or charged: try again later"
	case errors.Is(err, ErrCancelled):
		e.Code, e.Message = CodeLimit, "an operator of the data plane ended the call"
	case errors.Is(err, source.ErrRange):
		e.Code, e.Message = CodeLimit, "a result is out of the range of exact numbers"
	}
	return e
}
