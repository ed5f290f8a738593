// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/datatools"
)

var at = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

type party struct {
	doc    *did.Document
	signer did.Signer
}

func (p party) id() string { return p.doc.ID().String() }

func newParty(t *testing.T, domain string, seed byte, bare bool) party {
	t.Helper()
	key, err := did.NewPrivateKey(did.Ed25519, bytes.Repeat([]byte{seed}, did.SeedSize))
	must(t, err)
	text := "did:wba:" + domain
	if !bare {
		text += ":agents:a:e1_" + key.Public().Thumbprint()
	}
	id, err := did.Parse(text)
	must(t, err)
	raw, err := did.BuildDocument(did.DocumentSpec{ID: id, Binding: did.MethodSpec{Key: key.Public()}})
	must(t, err)
	s, err := did.NewSigner(did.KeyID(id, "signing", key.Public()), key)
	must(t, err)
	raw, err = did.SignDocument(t.Context(), raw, s, at, did.DialectSpec)
	must(t, err)
	doc, err := did.ParseDocument(raw)
	must(t, err)
	return party{doc, s}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a contract and a data plane that answers as the test says.
type world struct {
	buyer, plane, other party
	c                   *contract.Contract
	req                 contract.Request
	client              *http.Client
}

// newWorld serves tool results of answer over real MCP.
func newWorld(t *testing.T, answer func(w *world) *sdk.CallToolResult) *world {
	t.Helper()
	w := &world{buyer: newParty(t, "buyercorp.test", 1, false), plane: newParty(t, "data.vendorcorp.test", 2, true), other: newParty(t, "evil.test", 3, true)}
	server := sdk.NewServer(&sdk.Implementation{Name: "plane", Version: "1"}, nil)
	server.AddTool(&sdk.Tool{Name: datatools.QueryRecords, InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return answer(w), nil })
	h := httptest.NewTLSServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true}))
	t.Cleanup(h.Close)
	w.client = h.Client()

	vendor := newParty(t, "vendorcorp.test", 4, false)
	offer := &contract.Offer{
		Type:      contract.OfferType,
		Scope:     contract.Scope{Dataset: "orders", Columns: []string{"region"}, Operations: []string{"count"}, RowFilter: []contract.Condition{}, Purpose: "review", RetentionDays: 30, MinGroupSize: 1, CallBudget: 5},
		ValidFrom: contract.FormatTime(at), ValidUntil: contract.FormatTime(at.Add(24 * time.Hour)), AcceptBy: contract.FormatTime(at.Add(time.Hour)), ExpiresAt: contract.FormatTime(at.Add(time.Minute)),
		DataPlane: contract.DataPlane{DID: w.plane.id(), URL: h.URL + "/mcp"}, SchemaDigest: canon.Sum([]byte("schema")), Removed: []contract.Removal{},
	}
	var err error
	w.c, err = contract.Build(offer, contract.Parties{Buyer: w.buyer.id(), Vendor: vendor.id()}, canon.Sum([]byte("agreement")), canon.Sum([]byte("transcript")))
	must(t, err)
	w.req = datatools.Input(contract.Request{ContractID: w.c.ID, Purpose: "review", Dataset: "orders", Aggregates: []contract.Aggregate{{Op: "count"}}}).Request(w.buyer.id())
	return w
}

func (w *world) query(ctx context.Context) (*Answer, error) {
	return Query(ctx, w.client, w.c, w.plane.doc, w.req)
}

// result is a true answer, before a test changes it.
func (w *world) result(t *testing.T, change func(r *contract.Receipt), signer did.Signer) *sdk.CallToolResult {
	t.Helper()
	raw, err := canon.Marshal(datatools.Result{Columns: []datatools.Column{{Name: "count", Type: "integer"}}, Rows: [][]any{{7}}, UsedRows: 7, TotalRows: 9})
	must(t, err)
	cd, err := w.c.Digest()
	must(t, err)
	qd, err := w.req.Digest()
	must(t, err)
	r := &contract.Receipt{
		ID: contract.ReceiptID([16]byte{1}), ContractID: w.c.ID, ContractDigest: cd, QueryDigest: qd, ResultDigest: canon.Sum(raw), Rows: 1, UsedRows: 7, TotalRows: 9,
		Time: contract.FormatTime(at), Caller: w.buyer.id(), DataPlane: w.plane.id(),
	}
	if change != nil {
		change(r)
	}
	must(t, r.Sign(t.Context(), signer))
	receipt, err := r.Marshal()
	must(t, err)
	return &sdk.CallToolResult{StructuredContent: datatools.QueryOutput{Result: raw, Receipt: receipt}, Content: []sdk.Content{}}
}

func TestAnswerIsVerified(t *testing.T) {
	w := newWorld(t, func(w *world) *sdk.CallToolResult { return w.result(t, nil, w.plane.signer) })
	a, err := w.query(t.Context())
	if err != nil || len(a.Result.Rows) != 1 || a.Result.UsedRows != 7 {
		t.Fatalf("%+v, %v", a, err)
	}
}

// TestAnswerThatDoesNotHold: whatever a data plane says beside the truth is neither an answer nor a refusal.
func TestAnswerThatDoesNotHold(t *testing.T) {
	cases := map[string]func(w *world) *sdk.CallToolResult{
		"receipt by another key": func(w *world) *sdk.CallToolResult {
			return w.result(t, nil, w.other.signer)
		},
		"receipt of another query": func(w *world) *sdk.CallToolResult {
			return w.result(t, func(r *contract.Receipt) { r.QueryDigest = canon.Sum([]byte("other")) }, w.plane.signer)
		},
		"receipt of another caller": func(w *world) *sdk.CallToolResult {
			return w.result(t, func(r *contract.Receipt) { r.Caller = w.other.id() }, w.plane.signer)
		},
		"receipt of another contract": func(w *world) *sdk.CallToolResult {
			return w.result(t, func(r *contract.Receipt) { r.ContractDigest = canon.Sum([]byte("other")) }, w.plane.signer)
		},
		"receipt of another result": func(w *world) *sdk.CallToolResult {
			return w.result(t, func(r *contract.Receipt) { r.ResultDigest = canon.Sum([]byte("other")) }, w.plane.signer)
		},
		"receipt with other counts": func(w *world) *sdk.CallToolResult {
			return w.result(t, func(r *contract.Receipt) { r.UsedRows = 8 }, w.plane.signer)
		},
		"no receipt": func(*world) *sdk.CallToolResult {
			return &sdk.CallToolResult{StructuredContent: map[string]any{"result": map[string]any{"columns": []any{}, "rows": []any{}, "used_rows": 0, "total_rows": 0}}, Content: []sdk.Content{}}
		},
		"nothing": func(*world) *sdk.CallToolResult { return &sdk.CallToolResult{Content: []sdk.Content{}} },
	}
	for name, answer := range cases {
		t.Run(name, func(t *testing.T) {
			if a, err := newWorld(t, answer).query(t.Context()); !errors.Is(err, ErrAnswer) || a != nil {
				t.Errorf("got %+v, %v", a, err)
			}
		})
	}
}

// TestC11_RefusalsComeWordForWord: a decision is told apart from a fault, and its text is not touched.
func TestC11_RefusalsComeWordForWord(t *testing.T) {
	const words = "SCOPE_DENIED: column \"customer_email\" is not granted.\n  Nothing was read."
	w := newWorld(t, func(*world) *sdk.CallToolResult {
		return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: words}}}
	})
	_, err := w.query(t.Context())
	var refused *Refused
	if !errors.As(err, &refused) || refused.Text != words || refused.Code != "SCOPE_DENIED" || errors.Is(err, ErrTransport) {
		t.Errorf("got %v", err)
	}
}

// What a data plane says is its own. It must neither be too much for the log, which keeps it, nor pass for a code of ours.
func TestRefusalsAreBounded(t *testing.T) {
	for words, code := range map[string]string{
		"SCOPE_DENIED: " + strings.Repeat("ü", 8<<20): "SCOPE_DENIED",
		"\x1b[2J: no":            "",
		"no":                     "",
		"":                       "",
		"SCOPE_DENIED":           "SCOPE_DENIED",
		strings.Repeat("A", 1e5): "",
	} {
		w := newWorld(t, func(*world) *sdk.CallToolResult {
			return &sdk.CallToolResult{
				IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: words}}, Meta: sdk.Meta{datatools.MetaReceipt: strings.Repeat("r", 1<<20)},
			}
		})
		_, err := w.query(t.Context())
		var refused *Refused
		if !errors.As(err, &refused) || refused.Code != code || len(refused.Text) > MaxRefusal+3 || !utf8.ValidString(refused.Text) || refused.Receipt != nil {
			t.Errorf("%.20q: %.200q", words, err)
		}
	}
}

// TestC12_FaultsAreFaults: a data plane that is gone, answers nonsense or never answers is a transport fault, within the
// caller's time.
func TestC12_FaultsAreFaults(t *testing.T) {
	for name, h := range map[string]http.Handler{
		"500":        http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) }),
		"not MCP":    http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }),
		"empty JSON": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "application/json") }),
		"silence": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then does the server see that the client has gone
			<-r.Context().Done()
		}),
		"drop": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(*world) *sdk.CallToolResult { return nil })
			server := httptest.NewTLSServer(h)
			defer server.Close()
			w.c.Parties.DataPlane.URL, w.client = server.URL, server.Client()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := w.query(ctx)
			var refused *Refused
			if !errors.Is(err, ErrTransport) || errors.As(err, &refused) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("gone", func(t *testing.T) {
		w := newWorld(t, func(*world) *sdk.CallToolResult { return nil })
		w.c.Parties.DataPlane.URL = strings.Replace(w.c.Parties.DataPlane.URL, "127.0.0.1:", "127.0.0.1:1", 1)
		if _, err := w.query(t.Context()); !errors.Is(err, ErrTransport) {
			t.Errorf("got %v", err)
		}
	})
}
