// SPDX-License-Identifier: Apache-2.0

// Package mcp is the buyer's way to a vendor's data plane: MCP over Streamable HTTP, every request signed by the transport it
// is given. [Proxy] lends that way to MCP clients on this machine, for one contract.
//
// What it guarantees: a refusal, which is the data owner's decision, and a transport fault, where nobody decided anything, are
// different errors (C11); a refusal's text comes word for word; an answer is returned only with a receipt that the data
// plane's key signed over this contract, this query and this result. Every call ends within its context or its time limit.
package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/datatools"
)

// Timeout bounds a call whose context has no earlier end.
const Timeout = 60 * time.Second

// MaxRefusal is how much of a refusal is taken: an event log has to have room for it. A data plane of ours says far less.
const MaxRefusal = 16 << 10

const maxReceipt = 64 << 10

// Refused is the data plane's decision.
type Refused struct {
	Code string // the code that the text begins with, such as SCOPE_DENIED; empty if it is none that is known
	Text string // word for word, up to MaxRefusal bytes
	// Receipt is the data plane's receipt of the refusal as it came, and nil without one. Nobody has verified it.
	Receipt json.RawMessage
}

func (e *Refused) Error() string { return e.Text }

// ErrTransport wraps every fault in which no decision was received.
var ErrTransport = errors.New("mcp: no answer from the data plane")

// ErrAnswer: what came back is not an answer to this query by this data plane.
var ErrAnswer = errors.New("mcp: the data plane's answer does not hold")

// Answer is a verified answer.
type Answer struct {
	Result  *datatools.Result
	Raw     json.RawMessage // the result as received; its digest is the receipt's
	Receipt *contract.Receipt
}

// Query asks the data plane of c. client signs; plane is the data plane's verified document.
func Query(ctx context.Context, client *http.Client, c *contract.Contract, plane *did.Document, req contract.Request) (*Answer, error) {
	tool, arguments := datatools.QueryRecords, any(datatools.Input(req))
	if req.Rows() {
		tool, arguments = datatools.SelectRecords, datatools.Selection(req)
	}
	res, err := call(ctx, client, c.Parties.DataPlane.URL, tool, arguments)
	if err != nil {
		return nil, err
	}
	return answer(res, c, plane, req)
}

// Call calls a tool that gives no data, at the data plane of c, and returns the structured content of its result: list_datasets
// or describe_contract. client signs. Nothing in the result is signed by anybody.
func Call(ctx context.Context, client *http.Client, c *contract.Contract, tool string, arguments any) ([]byte, error) {
	res, err := call(ctx, client, c.Parties.DataPlane.URL, tool, arguments)
	if err != nil {
		return nil, err
	}
	structured, err := json.Marshal(res.StructuredContent)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return structured, nil
}

// call returns the result of a call that was not refused.
func call(ctx context.Context, client *http.Client, endpoint, tool string, arguments any) (*sdk.CallToolResult, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "treaty", Version: "1"}, nil).Connect(ctx, &sdk.StreamableClientTransport{
		Endpoint: endpoint, HTTPClient: client, MaxRetries: -1, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTransport, err)
	}
	defer session.Close()
	res, err := session.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTransport, err)
	}
	if res.IsError {
		return nil, refusal(res)
	}
	return res, nil
}

func refusal(res *sdk.CallToolResult) error {
	var text strings.Builder
	for _, part := range res.Content {
		if t, ok := part.(*sdk.TextContent); ok {
			text.WriteString(t.Text)
		}
	}
	words := text.String()
	if len(words) > MaxRefusal {
		words = strings.ToValidUTF8(words[:MaxRefusal], "") + "…"
	}
	r := &Refused{Text: words}
	if code, _, _ := strings.Cut(words, ":"); contract.Code(code).Known() {
		r.Code = code
	}
	if receipt, ok := res.Meta[datatools.MetaReceipt]; ok {
		if b, err := json.Marshal(receipt); err == nil && len(b) <= maxReceipt {
			r.Receipt = b
		}
	}
	return r
}

// Result is the result of a tool that gave this structured content, as MCP writes it.
func Result(structured []byte) ([]byte, error) {
	return json.Marshal(&sdk.CallToolResult{
		StructuredContent: json.RawMessage(structured), Content: []sdk.Content{&sdk.TextContent{Text: string(structured)}},
	})
}

// Result is the refusal as MCP writes it.
func (e *Refused) Result() ([]byte, error) {
	res := &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: e.Text}}}
	if e.Receipt != nil {
		res.Meta = sdk.Meta{datatools.MetaReceipt: e.Receipt}
	}
	return json.Marshal(res)
}

func answer(res *sdk.CallToolResult, c *contract.Contract, plane *did.Document, req contract.Request) (*Answer, error) {
	structured, err := json.Marshal(res.StructuredContent)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	result, receipt, err := datatools.ParseOutput(structured)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	query, err := req.Digest()
	if err != nil {
		return nil, err
	}
	if !receipt.QueryDigest.Equal(query) || receipt.Caller != req.Caller {
		return nil, fmt.Errorf("%w: the receipt is about another query", ErrAnswer)
	}
	if err := receipt.VerifyCall(c, req.Caller, plane); err != nil {
		return nil, fmt.Errorf("%w: receipt: %w", ErrAnswer, err)
	}
	var out datatools.QueryOutput
	if err := json.Unmarshal(structured, &out); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return &Answer{Result: result, Raw: out.Result, Receipt: receipt}, nil
}
