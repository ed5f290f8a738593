// SPDX-License-Identifier: Apache-2.0

//go:build mcpclients

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/datatools"
)

// TestStockMCPClients: the official TypeScript SDK client and the MCP Inspector, as published, use a contract through
// `treaty proxy`, over HTTP and over standard input and output. MCP_CLIENTS names the folder that tools/conformance/setup.sh
// made.
func TestStockMCPClients(t *testing.T) {
	npm := os.Getenv("MCP_CLIENTS")
	if npm == "" {
		t.Fatal("MCP_CLIENTS is not set; make test-mcp sets it")
	}
	w := newWorld(t)
	w.start(vendor, plane, buyer)
	c := w.agreed(buyer, w.negotiate().ContractID)
	info, stop := w.proxy(c.ID)
	defer stop()
	refused := strings.TrimPrefix(strings.TrimSpace(w.must(3, buyer, "query", "--contract", c.ID, "--aggregate", "count()", "--group-by", "customer_email").stderr), "treaty: ")

	t.Run("TypeScript SDK", func(t *testing.T) {
		for name, plan := range map[string]sdkPlan{
			"http":  {URL: info.URL, Token: info.Token},
			"stdio": {Command: w.treaty, Args: w.proxyArgs(c.ID, "--stdio")},
		} {
			t.Run(name, func(t *testing.T) { typeScript(t, npm, plan, c, refused) })
		}
		if out := runSDK(t, npm, sdkPlan{URL: info.URL}); out.Thrown == nil {
			t.Error("no token is needed")
		}
	})
	t.Run("Inspector", func(t *testing.T) {
		for name, target := range map[string][]string{
			"http":  {info.URL, "--transport", "http", "--header", "Authorization: Bearer " + info.Token},
			"stdio": append([]string{w.treaty}, w.proxyArgs(c.ID, "--stdio")...),
		} {
			t.Run(name, func(t *testing.T) { inspector(t, npm, name == "stdio", target, c, refused) })
		}
	})
	t.Run("nobody answers", func(t *testing.T) {
		w.kill(plane)
		out := runSDK(t, npm, sdkPlan{URL: info.URL, Token: info.Token, Calls: []sdkCall{{datatools.QueryRecords, toolQuestion(c)}}})
		if out.Thrown != nil || len(out.Results) != 1 || out.Results[0].Thrown == nil || out.Results[0].Content != nil {
			t.Errorf("%+v", out)
		}
	})
}

type sdkCall struct {
	Name      string `json:"name"`
	Arguments any    `json:"arguments"`
}

type sdkPlan struct {
	URL     string    `json:"url,omitempty"`
	Token   string    `json:"token,omitempty"`
	Command string    `json:"command,omitempty"`
	Args    []string  `json:"args,omitempty"`
	Calls   []sdkCall `json:"calls"`
}

type thrown struct {
	Code    any    `json:"code"`
	Message string `json:"message"`
}

type stockResult struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	StructuredContent json.RawMessage            `json:"structuredContent"`
	IsError           bool                       `json:"isError"`
	Meta              map[string]json.RawMessage `json:"_meta"`
	Thrown            *thrown                    `json:"thrown"`
}

type sdkOut struct {
	Instructions string            `json:"instructions"`
	Tools        []json.RawMessage `json:"tools"`
	Results      []stockResult     `json:"results"`
	Thrown       *thrown           `json:"thrown"`
}

func runSDK(t *testing.T, npm string, plan sdkPlan) (out sdkOut) {
	t.Helper()
	if plan.Calls == nil {
		plan.Calls = []sdkCall{}
	}
	in, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	return decodeInto[sdkOut](t, string(runNode(t, 0, npm, in, "../../tools/conformance/client.mjs", npm)))
}

// runNode runs a script and returns its standard output.
func runNode(t *testing.T, code int, npm string, in []byte, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(npm, "node"), args...) //nolint:gosec // our own
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &errs
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		t.Fatalf("%v, exit code %d is wanted\n%s%s", err, code, out.Bytes(), errs.Bytes())
	}
	return out.Bytes()
}

func typeScript(t *testing.T, npm string, plan sdkPlan, c *contract.Contract, refused string) {
	other := toolQuestion(c)
	other.Aggregates, other.GroupBy, other.Filters, other.OrderBy = []datatools.AggregateInput{{Op: "count"}}, []string{"customer_email"}, nil, nil
	plan.Calls = []sdkCall{
		{datatools.QueryRecords, toolQuestion(c)}, {datatools.QueryRecords, other},
		{datatools.DescribeContract, datatools.DescribeInput{ContractID: c.ID}}, {datatools.ListDatasets, datatools.ListInput{}},
	}
	out := runSDK(t, npm, plan)
	if out.Thrown != nil || len(out.Tools) != 3 || len(out.Results) != len(plan.Calls) || !strings.Contains(out.Instructions, c.ID) {
		t.Fatalf("%+v", out)
	}
	checkStockAnswer(t, out.Results[0])
	checkStockRefusal(t, out.Results[1], refused)
	for i, want := range []string{c.Purpose, "region"} {
		if r := out.Results[2+i]; r.Thrown != nil || r.IsError || !strings.Contains(string(r.StructuredContent), want) {
			t.Errorf("%s: %+v", plan.Calls[2+i].Name, r)
		}
	}
}

func checkStockAnswer(t *testing.T, r stockResult) {
	t.Helper()
	if r.IsError || r.Thrown != nil {
		t.Fatalf("%+v", r)
	}
	// The receipt still covers what came through two programs and another language's numbers.
	answer, _, err := datatools.ParseOutput(r.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	if rows, err := json.Marshal(answer.Rows); err != nil || string(rows) != answerRows {
		t.Errorf("answered %s (%v), want %s", rows, err, answerRows)
	}
}

func checkStockRefusal(t *testing.T, r stockResult, want string) {
	t.Helper()
	if !r.IsError || len(r.Content) != 1 || r.Content[0].Text != want || r.StructuredContent != nil || r.Meta[datatools.MetaReceipt] == nil {
		t.Errorf("got %+v, want the refusal %q", r, want)
	}
}

func inspector(t *testing.T, npm string, stdio bool, target []string, c *contract.Contract, refused string) {
	run := func(code int, args ...string) []byte {
		t.Helper()
		line := []string{filepath.Join(npm, "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"), "--cli"}
		if stdio {
			line = append(append(append(line, args...), "--"), target...)
		} else {
			line = append(append(line, target...), args...)
		}
		return runNode(t, code, npm, nil, line...)
	}
	list := decodeInto[sdkOut](t, string(run(0, "--method", "tools/list")))
	if len(list.Tools) != 3 {
		t.Errorf("%+v", list)
	}
	query := func(in datatools.QueryInput) []string {
		args := []string{"--method", "tools/call", "--tool-name", datatools.QueryRecords}
		raw, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range decodeInto[map[string]json.RawMessage](t, string(raw)) {
			args = append(args, "--tool-arg", name+"="+strings.Trim(string(value), `"`))
		}
		return args
	}
	checkStockAnswer(t, decodeInto[stockResult](t, string(run(0, query(toolQuestion(c))...))))
	other := toolQuestion(c)
	other.Aggregates, other.GroupBy, other.Filters, other.OrderBy = []datatools.AggregateInput{{Op: "count"}}, []string{"customer_email"}, nil, nil
	checkStockRefusal(t, decodeInto[stockResult](t, string(run(5, query(other)...))), refused)
}
