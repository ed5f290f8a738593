// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/store"
)

// directory resolves the fixture's companies.
type directory map[did.DID]*did.Document

func (d directory) Resolve(_ context.Context, id did.DID) (*did.Document, error) {
	if doc, ok := d[id]; ok {
		return doc, nil
	}
	return nil, errors.New("no such DID")
}

// site is the endpoint behind real request signatures.
type site struct {
	*fixture
	server  *httptest.Server
	handler *Handler
	log     *bytes.Buffer
}

func newSite(t testing.TB, f *fixture, o HandlerOptions) *site {
	t.Helper()
	s := &site{fixture: f, log: &bytes.Buffer{}}
	f.opts.Log = slog.New(slog.NewTextHandler(&lockedWriter{w: s.log}, nil))
	f.rebuild(t)
	s.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			s.handler.Healthz(w, r)
			return
		}
		s.handler.ServeHTTP(w, r)
	}))
	s.server.StartTLS()
	t.Cleanup(s.server.Close)
	v, err := httpsig.NewVerifier(httpsig.Options{
		Origins: []string{s.server.URL}, Nonces: httpsig.NewMemoryNonces(httpsig.MemoryNonceOptions{}),
		Resolver: directory{f.buyer.doc.ID(): f.buyer.doc, f.other.doc.ID(): f.other.doc, f.vendor.doc.ID(): f.vendor.doc},
	})
	if err != nil {
		t.Fatal(err)
	}
	o.Authenticate, o.Origins, o.Build = v.Middleware, []string{s.server.URL}, "test"
	if s.handler, err = NewHandler(f.svc, o); err != nil {
		t.Fatal(err)
	}
	return s
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// client signs as a company.
func (s *site) client(c company) *http.Client {
	return &http.Client{Transport: &httpsig.Transport{Base: s.server.Client().Transport, Signer: func() did.Signer { return c.signer }}}
}

func (s *site) session(t testing.TB, c company) *mcp.ClientSession {
	t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: s.server.URL + "/mcp", HTTPClient: s.client(c), MaxRetries: -1, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

func (s *site) post(t *testing.T, c company, body string, header map[string]string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.server.URL+"/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range header {
		req.Header.Set(k, v)
	}
	res, err := s.client(c).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func callTool(t *testing.T, session *mcp.ClientSession, tool string, args any) (*mcp.CallToolResult, error) {
	t.Helper()
	return session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
}

func text(t *testing.T, res *mcp.CallToolResult) string {
	t.Helper()
	if len(res.Content) != 1 {
		t.Fatalf("content %+v", res.Content)
	}
	c, ok := res.Content[0].(*mcp.TextContent)
	if !ok {
		t.Fatalf("content %+v", res.Content)
	}
	return c.Text
}

func TestMCPAnswersMatchTheirSchemas(t *testing.T) {
	s := newSite(t, newFixture(t), HandlerOptions{})
	session := s.session(t, s.buyer)
	list, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	args := map[string]any{datatools.QueryRecords: s.input(), datatools.DescribeContract: datatools.DescribeInput{ContractID: s.contract.ID}, datatools.ListDatasets: nil}
	if len(list.Tools) != len(args) {
		t.Fatalf("%d tools", len(list.Tools))
	}
	for _, tool := range list.Tools {
		res, err := callTool(t, session, tool.Name, args[tool.Name])
		if err != nil || res.IsError {
			t.Fatalf("%s: %+v, %v", tool.Name, res, err)
		}
		compile := func(name string, schema any) *jsonschema.Schema {
			c := jsonschema.NewCompiler()
			if err := c.AddResource(name, schema); err != nil {
				t.Fatal(err)
			}
			compiled, err := c.Compile(name)
			if err != nil {
				t.Fatal(err)
			}
			return compiled
		}
		if err := compile("out.json", tool.OutputSchema).Validate(res.StructuredContent); err != nil {
			t.Errorf("%s: %v", tool.Name, err)
		}
		var in any
		raw, err := json.Marshal(args[tool.Name])
		if err != nil || json.Unmarshal(raw, &in) != nil {
			t.Fatal(err)
		}
		if in == nil {
			in = map[string]any{}
		}
		if err := compile("in.json", tool.InputSchema).Validate(in); err != nil {
			t.Errorf("%s: %v", tool.Name, err)
		}
		// The text says the same as the structured content.
		var again any
		if json.Unmarshal([]byte(text(t, res)), &again) != nil || fmt.Sprint(again) != fmt.Sprint(res.StructuredContent) {
			t.Errorf("%s: text and structure differ", tool.Name)
		}
	}
}

// A caller is shown what its own contracts let it use: nobody else's ids and purposes, no column and no operation beyond.
func TestToolsListShowsWhatIsGranted(t *testing.T) {
	s := newSite(t, newFixture(t), HandlerOptions{})
	show := func(c company) string {
		t.Helper()
		list, err := s.session(t, c).ListTools(t.Context(), nil)
		if err != nil || len(list.Tools) < len(datatools.Tools())-1 {
			t.Fatalf("%+v, %v", list, err)
		}
		if list.CacheScope != "private" {
			t.Errorf("others may be given this list from a cache: %q", list.CacheScope)
		}
		b, err := json.Marshal(list.Tools)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	mine := show(s.buyer)
	for _, want := range append(slices.Clone(s.contract.Columns), s.contract.ID, purpose, `"enum":["avg","count"]`) {
		if !strings.Contains(mine, want) {
			t.Errorf("the buyer is not shown %s", want)
		}
	}
	for _, c := range s.svc.schemas["orders"].Columns {
		if !slices.Contains(s.contract.Columns, c.Name) && strings.Contains(mine, `"`+c.Name+`"`) {
			t.Errorf("the buyer is shown the column %s", c.Name)
		}
	}
	if strings.Contains(mine, datatools.SelectRecords) {
		t.Error("the buyer is shown a tool that its contracts do not let it use")
	}
	if strings.Contains(mine, "median") {
		t.Error("the buyer is shown an operation that is not granted")
	}

	names := show(s.other)
	if strings.Contains(names, "orders") || strings.Contains(names, "enum") || strings.Contains(names, "description") || strings.Contains(names, s.contract.ID) {
		t.Errorf("without a contract: %s", names)
	}
	// With the caller's first contract, that one and not the other company's.
	theirs := s.agreeAs(t, "theirs", s.other, s.vendor, func(o *contract.Offer) { o.Purpose, o.Columns = "Another review", []string{"region"} })
	s.put(t, theirs, store.InForce)
	their := show(s.other)
	if !strings.Contains(their, theirs.ID) || !strings.Contains(their, "Another review") || strings.Contains(their, s.contract.ID) || strings.Contains(their, purpose) || strings.Contains(their, "order_value") {
		t.Errorf("the other company: %s", their)
	}
	if again := show(s.buyer); again != mine {
		t.Errorf("the buyer is shown something else now: %s", again)
	}
	// What the ceiling keeps back is not shown, whatever the contract says.
	s.svc.opts.Ceiling.DenyColumns = map[string][]string{"orders": {"order_value"}}
	if less := show(s.buyer); strings.Contains(less, "order_value") || !strings.Contains(less, `"region"`) {
		t.Errorf("beyond the ceiling: %s", less)
	}
	s.revoke(t)
	if none := show(s.buyer); none != names {
		t.Errorf("after the revocation: %s", none)
	}
}

// TestC11_RefusalsAndFaults: a refusal reaches the caller word for word as a tool error; a fault is a protocol error.
func TestC11_RefusalsAndFaults(t *testing.T) {
	s := newSite(t, newFixture(t), HandlerOptions{})
	session := s.session(t, s.buyer)
	in := s.input(func(in *datatools.QueryInput) { in.GroupBy = []string{"customer_email"} })
	_, direct := s.svc.Query(t.Context(), s.buyer.caller(), in)
	res, err := callTool(t, session, datatools.QueryRecords, in)
	if err != nil || !res.IsError || text(t, res) != direct.Error() {
		t.Fatalf("%+v, %v", res, err)
	}
	if res.StructuredContent != nil {
		t.Errorf("a refusal carries structured content: %v", res.StructuredContent)
	}
	raw, err := json.Marshal(res.Meta[datatools.MetaReceipt])
	if err != nil {
		t.Fatal(err)
	}
	if rcp, err := contract.ParseReceipt(raw); err != nil || rcp.Code != contract.ScopeDenied || rcp.VerifyFor(s.contract, s.plane.doc) != nil {
		t.Errorf("receipt %s, %v", raw, err)
	}

	for name, tt := range map[string]struct {
		err  error
		code int64
	}{
		"engine": {source.ErrEngine, CodeInternal}, "time": {source.ErrTime, CodeLimit}, "memory": {source.ErrMemory, CodeLimit},
	} {
		s.src.err = tt.err
		res, err := callTool(t, session, datatools.QueryRecords, s.input())
		var wire *jsonrpc.Error
		if !errors.As(err, &wire) || wire.Code != tt.code {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	s.src.err, s.src.while = nil, func(context.Context) error { panic("s3cr3t row") }
	_, err = callTool(t, session, datatools.QueryRecords, s.input())
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) || wire.Code != CodeInternal || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("panic: %v", err)
	}
	if strings.Contains(s.log.String(), "s3cr3t row") || !strings.Contains(s.log.String(), "ref=") {
		t.Errorf("log %q", s.log.String())
	}
	if _, err := callTool(t, session, "drop_table", nil); !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInvalidParams {
		t.Errorf("unknown tool: %v", err)
	}
}

func TestArgumentsAreStrict(t *testing.T) {
	s := newSite(t, newFixture(t), HandlerOptions{PerMinute: 10_000})
	good, err := json.Marshal(s.input())
	if err != nil {
		t.Fatal(err)
	}
	rest := strings.TrimPrefix(string(good), "{")
	tests := map[string]string{
		"unknown member":     `{"sql":"SELECT 1",` + rest,
		"duplicate member":   `{"purpose":"x",` + rest,
		"case variant":       `{"Purpose":"x",` + rest,
		"number as value":    strings.Replace(string(good), `"group_by"`, `"filters":[{"column":"order_value","op":">","value":10}],"group_by"`, 1),
		"wrong type":         `{"limit":"10",` + rest,
		"fraction":           `{"limit":1.5,` + rest,
		"beyond 2^53":        `{"limit":9007199254740993,` + rest,
		"not an object":      `[]`,
		"too deep":           `{"filters":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `,` + rest,
		"rows are no option": `{"select":["customer_email"],` + rest,
	}
	for name, args := range tests {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"query_records","arguments":` + args + `}}`
		status, got := s.post(t, s.buyer, body, nil)
		var msg struct {
			Result *struct {
				IsError           bool
				Content           []struct{ Text string }
				StructuredContent json.RawMessage
			}
			Error json.RawMessage
		}
		if err := json.Unmarshal([]byte(got), &msg); err != nil {
			t.Fatalf("%s: %d %s", name, status, got)
		}
		refusedBySDK := msg.Result == nil && msg.Error != nil
		if !refusedBySDK && (msg.Result == nil || !msg.Result.IsError || !strings.HasPrefix(msg.Result.Content[0].Text, "INVALID_QUERY: ") || msg.Result.StructuredContent != nil) {
			t.Errorf("%s: %d %s", name, status, got)
		}
	}
	if s.src.count() != 0 || s.usage(t) != 0 {
		t.Errorf("%d reads, %d calls", s.src.count(), s.usage(t))
	}
}

// Two callers at once: each tool call runs as whoever signed the request that carries it.
func TestCallersNeverMix(t *testing.T) {
	f := newFixture(t, func(o *contract.Offer) { o.CallBudget = 1000 })
	s := newSite(t, f, HandlerOptions{PerMinute: 100_000})
	second := f.agreeAs(t, "second", f.other, f.vendor, func(o *contract.Offer) { o.CallBudget = 1000 })
	f.put(t, second, store.InForce)
	ids := map[string]string{f.buyer.id(): f.contract.ID, f.other.id(): second.ID}
	var wg sync.WaitGroup
	for _, who := range []company{f.buyer, f.other, f.buyer, f.other} {
		session := s.session(t, who)
		wg.Go(func() {
			for i := range 12 {
				for owner, id := range ids {
					res, err := session.CallTool(context.Background(), &mcp.CallToolParams{Name: datatools.QueryRecords, Arguments: f.input(func(in *datatools.QueryInput) { in.ContractID = id })})
					if err != nil {
						t.Error(err)
						return
					}
					if mine := owner == who.id(); res.IsError == mine {
						t.Errorf("call %d of %s under %s's contract: isError %v", i, who.id(), owner, res.IsError)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestHTTPBounds(t *testing.T) {
	s := newSite(t, newFixture(t), HandlerOptions{MaxBody: 64 << 10})
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	unsigned, err := s.server.Client().Post(s.server.URL+"/mcp", "application/json", strings.NewReader(list))
	if err != nil {
		t.Fatal(err)
	}
	defer unsigned.Body.Close()
	if unsigned.StatusCode != http.StatusUnauthorized || unsigned.Header.Get("WWW-Authenticate") == "" {
		t.Errorf("unsigned: %d %v", unsigned.StatusCode, unsigned.Header)
	}
	for name, tt := range map[string]struct {
		body   string
		header map[string]string
		want   int
	}{
		"good":           {list, nil, 200},
		"own origin":     {list, map[string]string{"Origin": s.server.URL}, 200},
		"foreign origin": {list, map[string]string{"Origin": "https://evil.example"}, 403},
		"null origin":    {list, map[string]string{"Origin": "null"}, 403},
		"batch":          {"[" + list + "," + list + "]", nil, 400},
		"empty":          {"", nil, 400},
		"no JSON":        {"hello", nil, 400},
		"too large":      {`{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("a", 70<<10) + `"}`, nil, 413},
		"wrong type":     {list, map[string]string{"Content-Type": "text/plain"}, 415},
	} {
		if got, body := s.post(t, s.buyer, tt.body, tt.header); got != tt.want {
			t.Errorf("%s: %d %s, want %d", name, got, body, tt.want)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL+"/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.client(s.buyer).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", res.StatusCode)
	}
}

func TestRateOfOneCaller(t *testing.T) {
	s := newSite(t, newFixture(t), HandlerOptions{PerMinute: 10}) // a burst of one
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	first, _ := s.post(t, s.buyer, list, nil)
	second, _ := s.post(t, s.buyer, list, nil)
	else_, _ := s.post(t, s.other, list, nil)
	if first != 200 || second != http.StatusTooManyRequests || else_ != 200 {
		t.Errorf("%d, %d; another caller %d", first, second, else_)
	}
}

// A caller that hangs up ends its query.
func TestQueryEndsWithItsClient(t *testing.T) {
	s := newSite(t, newFixture(t), HandlerOptions{})
	ended := make(chan error, 1)
	begun := make(chan struct{})
	s.src.while = func(ctx context.Context) error {
		close(begun)
		select {
		case <-ctx.Done():
			ended <- nil
			return context.Cause(ctx)
		case <-time.After(20 * time.Second):
			ended <- errors.New("the query went on")
			return nil
		}
	}
	session := s.session(t, s.buyer)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	if _, err := session.CallTool(ctx, &mcp.CallToolParams{Name: datatools.QueryRecords, Arguments: s.input()}); err == nil {
		t.Error("a cancelled call was answered")
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestHealthz(t *testing.T) {
	s := newSite(t, newFixture(t), HandlerOptions{})
	get := func() (int, Health) {
		res, err := s.server.Client().Get(s.server.URL + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var h Health
		if err := json.NewDecoder(res.Body).Decode(&h); err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, h
	}
	status, h := get()
	if status != 200 || h.Service != ServerName || h.Build != "test" || h.DID != s.plane.id() || len(h.Tools) != 4 || len(h.Datasets) != 1 {
		t.Errorf("%d %+v", status, h)
	}
	// A store that cannot be read, and no answer from memory.
	s.handler.checked = time.Time{}
	s.fixture.svc.opts.Store = unreadableStore{}
	if status, h = get(); status != http.StatusServiceUnavailable || h.Status == "ok" || h.Problem == "" {
		t.Errorf("%d %+v", status, h)
	}
}

type unreadableStore struct{ Store }

func (unreadableStore) View(context.Context, func(store.Tx) error) error { return errDisk }

// The published definitions are complete, and what ParseArguments takes is what they say.
func TestToolDefinitions(t *testing.T) {
	for _, tool := range datatools.Tools() {
		for _, schema := range []json.RawMessage{tool.InputSchema, tool.OutputSchema} {
			doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
			if err != nil {
				t.Fatalf("%s: %v", tool.Name, err)
			}
			c := jsonschema.NewCompiler()
			if err := c.AddResource("s.json", doc); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Compile("s.json"); err != nil {
				t.Errorf("%s: %v", tool.Name, err)
			}
		}
	}
}

func FuzzArguments(f *testing.F) {
	f.Add([]byte(`{"contract_id":"ctr_x","purpose":"p","dataset":"orders","aggregates":[{"op":"count"}],"filters":[{"column":"a","op":"in","values":["1",true]}]}`))
	f.Add([]byte(`{"contract_id":"","limit":-1}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var in datatools.QueryInput
		if datatools.ParseArguments(data, &in) != nil {
			return
		}
		req := in.Request("did:wba:x.test")
		if req.GroupBy == nil || req.Filters == nil || req.Aggregates == nil || req.OrderBy == nil {
			t.Fatal("a list is nil")
		}
		again := datatools.Input(req).Request(req.Caller)
		a, errA := req.Digest()
		b, errB := again.Digest()
		if (errA == nil) != (errB == nil) || a != b {
			t.Fatalf("digests differ: %v %v, %v %v", a, b, errA, errB)
		}
	})
}
