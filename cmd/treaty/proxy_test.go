// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/ledger"
)

// proxy runs `treaty proxy` over HTTP until the function that it returns is called.
func (w *world) proxy(contractID string) (info proxyInfo, stop func()) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), w.treaty, w.proxyArgs(contractID, "--json")...) //nolint:gosec // our own
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	if err := json.NewDecoder(out).Decode(&info); err != nil {
		w.t.Errorf("treaty proxy says: %v", err)
	}
	return info, func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			w.t.Errorf("treaty proxy ended with %v", err)
		}
	}
}

func (w *world) proxyArgs(contractID string, more ...string) []string {
	return append([]string{"proxy", "--contract", contractID, "--dir", w.path(buyer)}, more...)
}

// toolQuestion is [question] as an MCP client puts it.
func toolQuestion(c *contract.Contract) datatools.QueryInput {
	return datatools.QueryInput{
		ContractID: c.ID, Purpose: c.Purpose, Dataset: c.Dataset, GroupBy: []string{"region"}, OrderBy: []datatools.OrderInput{{By: "region"}},
		Aggregates: []datatools.AggregateInput{{Op: "avg", Column: "order_value"}, {Op: "count"}},
		Filters:    []contract.Condition{{Column: "order_date", Op: contract.OpBetween, Values: []contract.Value{contract.TextValue("2025-07-01"), contract.TextValue("2025-09-30")}}},
	}
}

// agreed is the contract that a company has.
func (w *world) agreed(name, id string) *contract.Contract {
	w.t.Helper()
	for _, rec := range w.contracts(name, "") {
		if rec.ID == id {
			c, err := contract.Parse(rec.Contract)
			if err != nil {
				w.t.Fatal(err)
			}
			return c
		}
	}
	w.t.Fatalf("%s has no contract %s", name, id)
	return nil
}

// bearer shows a token.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// throughProxy: an MCP client that cannot sign uses the contract through `treaty proxy`, both ways; what the data owner says
// reaches it word for word, and the node's log has it all.
func throughProxy(w *world, id string) {
	info, stop := w.proxy(id)
	defer stop()
	client := sdk.NewClient(&sdk.Implementation{Name: "desktop", Version: "1"}, nil)
	for name, transport := range map[string]sdk.Transport{
		"http":  &sdk.StreamableClientTransport{Endpoint: info.URL, HTTPClient: &http.Client{Transport: bearer(info.Token)}, MaxRetries: -1},
		"stdio": &sdk.CommandTransport{Command: exec.CommandContext(w.t.Context(), w.treaty, w.proxyArgs(id, "--stdio")...)}, //nolint:gosec // our own
	} {
		outer := w.t
		outer.Run(name, func(t *testing.T) {
			w.t = t
			session, err := client.Connect(t.Context(), transport, nil)
			if err != nil {
				t.Fatal(err)
			}
			useContract(t, w, session, w.agreed(buyer, id))
			if err := session.Close(); err != nil {
				t.Error(err)
			}
		})
		w.t = outer
	}

	// Without the token, and for contracts that are not this node's to use.
	for _, token := range []string{"", "wrong"} {
		if _, err := client.Connect(w.t.Context(), &sdk.StreamableClientTransport{Endpoint: info.URL, HTTPClient: &http.Client{Transport: bearer(token)}, MaxRetries: -1}, nil); err == nil {
			w.t.Errorf("the token %q is taken", token)
		}
	}
	w.must(4, buyer, "proxy", "--contract", "ctr_none")
	if r := w.must(2, vendor, "proxy", "--contract", id); !strings.Contains(r.stderr, "the vendor") {
		w.t.Errorf("%v", r)
	}
	for _, addr := range []string{"0.0.0.0:0", "localhost:0", ":0"} {
		w.must(2, buyer, "proxy", "--contract", id, "--listen", addr)
	}
	w.must(2, buyer, "proxy", "--contract", id, "--listen", "127.0.0.1:0", "--stdio")
	w.must(2, buyer, "proxy")
}

// useContract does over MCP what the contract grants and what it does not.
func useContract(t *testing.T, w *world, session *sdk.ClientSession, c *contract.Contract) {
	t.Helper()
	_, head := w.events(buyer, w.genesis(buyer))
	call := func(tool string, args any) (*sdk.CallToolResult, error) {
		return session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
	}
	said := func(res *sdk.CallToolResult) string {
		if len(res.Content) != 1 {
			t.Fatalf("content %+v", res.Content)
		}
		return res.Content[0].(*sdk.TextContent).Text
	}
	list, err := session.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}

	res, err := call(datatools.QueryRecords, toolQuestion(c))
	if err != nil || res.IsError {
		t.Fatalf("%+v, %v", res, err)
	}
	answer, receipt, err := datatools.ParseOutput([]byte(said(res)))
	if err != nil {
		t.Fatal(err)
	}
	if rows, err := json.Marshal(answer.Rows); err != nil || string(rows) != answerRows {
		t.Errorf("answered %s (%v), want %s", rows, err, answerRows)
	}

	// A refusal: the same words as `treaty query` prints, and the receipt of it.
	other := toolQuestion(c)
	other.GroupBy, other.OrderBy = []string{"customer_email"}, nil
	res, err = call(datatools.QueryRecords, other)
	if err != nil || !res.IsError || !strings.HasPrefix(said(res), "SCOPE_DENIED: ") || res.StructuredContent != nil || res.Meta[datatools.MetaReceipt] == nil {
		t.Fatalf("%+v, %v", res, err)
	}
	direct := w.must(3, buyer, "query", "--contract", c.ID, "--aggregate", "avg(order_value)", "--aggregate", "count()", "--group-by", "customer_email",
		"--filter", "order_date between 2025-07-01 and 2025-09-30")
	if !strings.Contains(direct.stderr, said(res)) {
		t.Errorf("the proxy says %q, treaty query %q", said(res), direct.stderr)
	}
	// Another contract, and arguments that are none: in the data plane's words, and nobody is asked.
	other = toolQuestion(c)
	other.ContractID = "ctr_another"
	for _, args := range []any{other, json.RawMessage(`{"sql":"SELECT 1"}`), json.RawMessage(`{"contract_id":"` + c.ID + `","contract_id":"x"}`)} {
		res, err = call(datatools.QueryRecords, args)
		if err == nil && (!res.IsError || !strings.HasPrefix(said(res), "INVALID_QUERY: ")) {
			t.Errorf("%v: %+v", args, res)
		}
	}

	var info datatools.ContractInfo
	res, err = call(datatools.DescribeContract, datatools.DescribeInput{ContractID: c.ID})
	if err != nil || res.IsError || json.Unmarshal([]byte(said(res)), &info) != nil || info.State != "in_force" || info.Purpose != c.Purpose {
		t.Errorf("%+v, %v", res, err)
	}
	var sets datatools.ListOutput
	res, err = call(datatools.ListDatasets, nil)
	if err != nil || res.IsError || json.Unmarshal([]byte(said(res)), &sets) != nil || len(sets.Datasets) != 1 || !slices.Equal(sets.Datasets[0].ContractIDs, []string{c.ID}) || len(sets.Datasets[0].Columns) != len(c.Columns) {
		t.Errorf("%+v, %v", res, err)
	}

	// As for `treaty query`: asked and answered; asked and refused twice, once here and once there.
	log, _ := w.events(buyer, head)
	var types []string
	for _, e := range log {
		types = append(types, e.Type)
	}
	if want := []string{ledger.QuerySent, ledger.QueryAnswered, ledger.QuerySent, ledger.QueryRefused, ledger.QuerySent, ledger.QueryRefused}; !slices.Equal(types, want) {
		t.Errorf("the log has %q, want %q", types, want)
	} else if !strings.Contains(string(log[1].Data), receipt.ID) {
		t.Errorf("logged %s, want the receipt %s", log[1].Data, receipt.ID)
	}
}

// proxyWithoutDataPlane: where nobody answers there is no decision, and no tool result.
func proxyWithoutDataPlane(w *world, id string) {
	info, stop := w.proxy(id)
	defer stop()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "desktop", Version: "1"}, nil).Connect(w.t.Context(), &sdk.StreamableClientTransport{
		Endpoint: info.URL, HTTPClient: &http.Client{Transport: bearer(info.Token)}, MaxRetries: -1,
	}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer session.Close()
	c := w.agreed(buyer, id)
	fault := func(what string) {
		res, err := session.CallTool(w.t.Context(), &sdk.CallToolParams{Name: datatools.QueryRecords, Arguments: toolQuestion(c)})
		var wire *jsonrpc.Error
		if !errors.As(err, &wire) {
			w.t.Errorf("%s: %+v, %v", what, res, err)
		}
	}
	w.kill(plane)
	fault("no data plane")
	list, _ := w.events(buyer, w.genesis(buyer))
	if last := list[len(list)-1]; last.Type != ledger.QueryFailed {
		w.t.Errorf("logged as %s", last.Type)
	}
	w.start(plane)
	w.kill(buyer)
	fault("no node")
	w.start(buyer)
	w.ask(id)
}
