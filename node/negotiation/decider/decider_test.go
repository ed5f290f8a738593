// SPDX-License-Identifier: Apache-2.0

package decider_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/negotiation/decider"
	"github.com/treaty-node/treaty/node/negotiation/policy"
)

const (
	secret = "sk-test-0123456789-SECRET"
	good   = `{"intent":"counter","scope":{"columns":["region"],"operations":["avg"],"retention_days":30,"min_group_size":5,"call_budget":10},"rationale":"enough"}`
)

var at = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// reply is one scripted answer of the endpoint.
type reply func(w http.ResponseWriter, r *http.Request, body map[string]any)

// words is a chat completion with these words in it.
func words(text string) reply {
	return func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		json.NewEncoder(w).Encode(map[string]any{
			"id": "x", "object": "chat.completion", "created": 1, "model": "m",
			"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": text}}},
			"usage":   map[string]any{"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
		})
	}
}

func raw(body string) reply {
	return func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { io.WriteString(w, body) }
}

func choice(message string) reply {
	return raw(`{"choices":[` + message + `]}`)
}

func status(code int, header ...string) reply {
	return func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		// As some do: the key in the error.
		fmt.Fprintf(w, `{"error":{"message":"bad key %s"}}`, r.Header.Get("Authorization"))
	}
}

func hang(w http.ResponseWriter, r *http.Request, _ map[string]any) { <-r.Context().Done() }

func cut(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
	w.Header().Set("Content-Length", "5000")
	io.WriteString(w, `{"choices":[`)
}

// script is an endpoint that answers by a list; the last entry goes on for ever.
type script struct {
	*httptest.Server
	mu     sync.Mutex
	list   []reply
	bodies []map[string]any
}

func serve(t testing.TB, list ...reply) *script {
	t.Helper()
	s := &script{list: list}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		data, _ := io.ReadAll(r.Body)
		json.Unmarshal(data, &body)
		s.mu.Lock()
		next := s.list[0]
		if len(s.list) > 1 {
			s.list = s.list[1:]
		}
		s.bodies = append(s.bodies, body)
		s.mu.Unlock()
		next(w, r, body)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *script) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.bodies)
}

// bench is a model at a script, its log and how long it slept.
type bench struct {
	*decider.Model
	events []ledger.Entry
	slept  time.Duration
}

func open(t testing.TB, s *script, change func(*decider.Config)) *bench {
	t.Helper()
	b := &bench{}
	cfg := decider.Config{
		BaseURL: s.URL + "/v1", Model: "m-1", Key: secret, Transport: decider.Transport(http.DefaultTransport.(*http.Transport)), Timeout: 30 * time.Second,
		Log: func(_ context.Context, e ledger.Entry) error { b.events = append(b.events, e); return nil },
		Now: func() time.Time { return at },
		Sleep: func(ctx context.Context, d time.Duration) error {
			b.slept += d
			return ctx.Err()
		},
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if b.Model, err = decider.New(cfg); err != nil {
		t.Fatal(err)
	}
	return b
}

func schema(t testing.TB) *contract.Schema {
	t.Helper()
	s, err := contract.NewSchema("orders", "Orders.", []contract.Column{{Name: "region", Type: "text"}, {Name: "email", Type: "text"}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var peer = func() did.DID {
	id, err := did.Parse("did:wba:buyer.test")
	if err != nil {
		panic(err)
	}
	return id
}()

func (b *bench) draft(ctx context.Context, t testing.TB) (negotiation.Wish, error) {
	t.Helper()
	s := schema(t)
	ask := contract.Scope{Dataset: "orders", Columns: []string{"region", "email"}, Operations: []string{"avg"}, Purpose: "p", RetentionDays: 90, MinGroupSize: 1, CallBudget: 10}
	return decider.Vendor{Model: b.Model, Schema: func(string) *contract.Schema { return s }}.Draft(
		ctx, negotiation.Ask{Peer: peer, ContextID: "ctx", Scope: ask, Rationale: "because"}, &contract.Offer{Scope: ask},
	)
}

// TestC5_MisbehavingModels has an endpoint do everything it should not. One unusable answer is asked about again with what was
// wrong; a second one ends the question. Nothing of it shows the key.
func TestC5_MisbehavingModels(t *testing.T) {
	replace := func(old, with string) reply { return words(strings.Replace(good, old, with, 1)) }
	long := strings.Repeat("x", 3000)
	unusable := map[string]reply{
		"prose":                 words("I would offer the region."),
		"fenced":                words("```json\n" + good + "\n```"),
		"text behind":           words(good + " Hope this helps!"),
		"two objects":           words(good + good),
		"unknown key":           replace(`"rationale"`, `"grant":true,"rationale"`),
		"unknown key below":     replace(`"columns"`, `"dataset":"x","columns"`),
		"missing key":           replace(`,"rationale":"enough"`, ``),
		"missing key below":     replace(`,"call_budget":10`, ``),
		"doubled key":           replace(`"intent":"counter"`, `"intent":"reject","intent":"counter"`),
		"another case":          replace(`"intent"`, `"Intent"`),
		"null":                  replace(`["region"]`, `null`),
		"object for text":       replace(`"counter"`, `{"value":"counter"}`),
		"object in a list":      replace(`["region"]`, `[{"name":"region"}]`),
		"text for a number":     replace(`"retention_days":30`, `"retention_days":"30"`),
		"fraction":              replace(`"retention_days":30`, `"retention_days":30.5`),
		"negative":              replace(`"retention_days":30`, `"retention_days":-1`),
		"no group":              replace(`"min_group_size":5`, `"min_group_size":0`),
		"huge":                  replace(`"call_budget":10`, `"call_budget":1e30`),
		"unknown intent":        replace(`"counter"`, `"grant"`),
		"intent of the other":   replace(`"counter"`, `"accept"`),
		"long rationale":        replace(`"enough"`, `"`+long+`"`),
		"long name":             replace(`"region"`, `"`+long+`"`),
		"list":                  words("[" + good + "]"),
		"empty":                 words(""),
		"white space":           words(" \n "),
		"content null":          choice(`{"finish_reason":"stop","message":{"content":null}}`),
		"content an object":     choice(`{"finish_reason":"stop","message":{"content":` + good + `}}`),
		"content a list":        choice(`{"finish_reason":"stop","message":{"content":[{"type":"text","text":"x"}]}}`),
		"refusal":               choice(`{"finish_reason":"stop","message":{"content":null,"refusal":"I cannot"}}`),
		"refusal beside words":  choice(`{"finish_reason":"stop","message":{"content":"{}","refusal":"I cannot"}}`),
		"filtered":              choice(`{"finish_reason":"content_filter","message":{"content":"{}"}}`),
		"tool call":             choice(`{"finish_reason":"tool_calls","message":{"content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"grant","arguments":"{}"}}]}}`),
		"old function call":     choice(`{"finish_reason":"function_call","message":{"content":null,"function_call":{"name":"grant","arguments":"{}"}}}`),
		"cut off":               choice(`{"finish_reason":"length","message":{"content":"{\"intent\":\"coun"}}`),
		"no choice":             raw(`{"choices":[]}`),
		"two choices":           choice(`{"message":{"content":"a"}},{"message":{"content":"b"}}`),
		"no completion":         raw(`{}`),
		"not JSON":              raw(`<html>502</html>`),
		"more than may be read": raw(`{"choices":[{"message":{"content":"` + strings.Repeat("a", 2<<20) + `"}}]}`),
	}
	for name, bad := range unusable {
		t.Run(name, func(t *testing.T) {
			s := serve(t, bad, words(good))
			b := open(t, s, nil)
			w, err := b.draft(t.Context(), t)
			if err != nil || w.Declined || len(w.Scope.Columns) != 1 || s.calls() != 2 {
				t.Fatalf("after one bad answer: %+v, %v, %d calls", w, err, s.calls())
			}
			if msgs := s.bodies[1]["messages"].([]any); len(msgs) != 4 || !strings.Contains(fmt.Sprint(msgs[3]), "cannot be used") {
				t.Errorf("the model was not told what was wrong: %v", msgs)
			}
			s = serve(t, bad)
			b = open(t, s, nil)
			if w, err = b.draft(t.Context(), t); !errors.Is(err, decider.ErrAnswer) || s.calls() != 2 || len(w.Scope.Columns) != 0 {
				t.Fatalf("after two bad answers: %+v, %v, %d calls", w, err, s.calls())
			}
			if len(b.events) != 4 || b.events[3].Data.(ledger.ModelAnswer).Error == "" {
				t.Errorf("the log has %+v", b.events)
			}
			b.quiet(t, err)
		})
	}
}

// quiet checks that nobody learns the key.
func (b *bench) quiet(t *testing.T, err error) {
	t.Helper()
	if all := fmt.Sprintf("%v %+v %+v %#v", err, b.events, b.Model, b.Model); strings.Contains(all, "SECRET") {
		t.Errorf("the key shows in %s", all)
	}
}

// TestEndpointFaults: a busy endpoint is asked again a bounded number of times; what cannot get better is not.
func TestEndpointFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		list  []reply
		calls int
		ok    bool
		slept time.Duration
	}{
		"busy once":        {[]reply{status(429, "Retry-After", "7"), words(good)}, 2, true, 7 * time.Second},
		"busy for long":    {[]reply{status(429, "Retry-After", "3600"), words(good)}, 1, false, 0},
		"nonsense to wait": {[]reply{status(429, "Retry-After", "soon"), words(good)}, 2, true, time.Second},
		"always busy":      {[]reply{status(429)}, 3, false, 3 * time.Second},
		"broken":           {[]reply{status(500), status(503), words(good)}, 3, true, 3 * time.Second},
		"always broken":    {[]reply{status(502)}, 3, false, 3 * time.Second},
		"breaks off":       {[]reply{cut, words(good)}, 2, true, time.Second},
		"key refused":      {[]reply{status(401)}, 1, false, 0},
		"redirect":         {[]reply{status(307, "Location", "http://127.0.0.1:1/steal")}, 1, false, 0},
		"no schema":        {[]reply{status(400), words(good)}, 2, true, 0},
		"no such model":    {[]reply{status(404)}, 2, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, tc.list...)
			b := open(t, s, nil)
			w, err := b.draft(t.Context(), t)
			if ok := err == nil && len(w.Scope.Columns) == 1; ok != tc.ok || s.calls() != tc.calls || b.slept != tc.slept {
				t.Fatalf("%+v, %v; %d calls, slept %s", w, err, s.calls(), b.slept)
			}
			if !tc.ok && (!errors.Is(err, decider.ErrEndpoint) || errors.Is(err, negotiation.ErrNotNow)) {
				t.Errorf("%v", err)
			}
			b.quiet(t, err)
		})
	}
}

// TestFallback: an endpoint that does not know schemas is asked for any JSON object, from then on at once.
func TestFallback(t *testing.T) {
	s := serve(t, status(400), words(good))
	b := open(t, s, nil)
	for range 2 {
		if _, err := b.draft(t.Context(), t); err != nil {
			t.Fatal(err)
		}
	}
	kind := func(i int) string { return fmt.Sprint(s.bodies[i]["response_format"].(map[string]any)["type"]) }
	if s.calls() != 3 || kind(0) != "json_schema" || kind(1) != "json_object" || kind(2) != "json_object" {
		t.Errorf("%d calls: %v", s.calls(), s.bodies)
	}
	if s.bodies[0]["max_completion_tokens"] == nil || s.bodies[1]["max_tokens"] == nil {
		t.Error("an answer has no bound")
	}
}

// TestTimeLimit: an endpoint that hangs costs the configured time and no more, and a node that stops has decided nothing.
func TestTimeLimit(t *testing.T) {
	b := open(t, serve(t, hang), func(c *decider.Config) { c.Timeout = 50 * time.Millisecond })
	if _, err := b.draft(t.Context(), t); !errors.Is(err, decider.ErrEndpoint) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b = open(t, serve(t, func(w http.ResponseWriter, r *http.Request, m map[string]any) { cancel(); hang(w, r, m) }), nil)
	if _, err := b.draft(ctx, t); !errors.Is(err, negotiation.ErrNotNow) {
		t.Errorf("%v", err)
	}
}

// TestInvariant11_ModelCallsAreBounded: calls about one peer in an hour, whatever they lead to.
func TestInvariant11_ModelCallsAreBounded(t *testing.T) {
	now := at
	s := serve(t, words("no"))
	b := open(t, s, func(c *decider.Config) { c.PerHour = 8; c.Now = func() time.Time { return now } })
	v := decider.Vendor{Model: b.Model}
	if err := v.Admit(peer, now); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		b.draft(t.Context(), t)
	}
	if s.calls() != 2 {
		t.Errorf("%d calls at once, 8 an hour may be", s.calls())
	}
	if err := v.Admit(peer, now); !errors.Is(err, negotiation.ErrNotNow) {
		t.Errorf("the budget is used up: %v", err)
	}
	now = now.Add(time.Hour)
	if err := v.Admit(peer, now); err != nil {
		t.Errorf("an hour later: %v", err)
	}
}

// TestRecord: what of a question the log keeps.
func TestRecord(t *testing.T) {
	for record, want := range map[decider.Record]int{decider.RecordNone: 0, "": 2, decider.RecordDigests: 2, decider.RecordFull: 2} {
		b := open(t, serve(t, words(good)), func(c *decider.Config) { c.Record = record })
		if _, err := b.draft(t.Context(), t); err != nil {
			t.Fatal(err)
		}
		if len(b.events) != want {
			t.Errorf("%q: %d events", record, len(b.events))
		}
		if want == 0 {
			continue
		}
		q, a := b.events[0].Data.(ledger.Question), b.events[1].Data.(ledger.ModelAnswer)
		if q.PromptDigest.IsZero() || a.AnswerDigest.IsZero() || a.PromptTokens != 100 || a.CompletionTokens != 10 || b.events[0].Context != "ctx" || b.events[0].Peer != peer.String() {
			t.Errorf("%q: %+v %+v", record, q, a)
		}
		if full := strings.Contains(q.Prompt, "because") && a.Answer == good; full != (record == decider.RecordFull) {
			t.Errorf("%q: prompt %q, answer %q", record, q.Prompt, a.Answer)
		}
		if record != decider.RecordFull && q.Prompt+a.Answer != "" {
			t.Errorf("%q keeps texts", record)
		}
	}
}

// TestCheckURL: the key travels over TLS, or stays on this machine.
func TestCheckURL(t *testing.T) {
	for url, ok := range map[string]bool{
		"https://models.example/v1": true, "http://127.0.0.1:11434/v1": true, "http://[::1]:8080/v1": true, "http://localhost:8080": true,
		"http://models.example/v1": false, "http://10.0.0.7/v1": false, "http://127.0.0.1.evil.test": false, "http://localhost.evil.test": false,
		"ftp://127.0.0.1": false, "https://user:pw@models.example": false, "https://models.example/?key=1": false, "": false, "models.example": false,
	} {
		if err := decider.CheckURL(url); (err == nil) != ok {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := decider.New(decider.Config{BaseURL: "http://models.example", Model: "m"}); !errors.Is(err, decider.ErrEndpoint) {
		t.Errorf("a key would travel in the clear: %v", err)
	}
}

// TestCheck: what doctor finds out.
func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		answer reply
		listed bool
		ok     bool
	}{
		"has it":     {raw(`{"data":[{"id":"m-0"},{"id":"m-1"}]}`), true, true},
		"has others": {raw(`{"data":[{"id":"m-0"}]}`), false, false},
		"no list":    {status(404), false, true},
		"bad key":    {status(401), false, false},
		"not a list": {raw(`hello`), false, false},
	} {
		listed, err := open(t, serve(t, tc.answer), nil).Check(t.Context())
		if listed != tc.listed || (err == nil) != tc.ok {
			t.Errorf("%s: %t, %v", name, listed, err)
		}
		if err != nil && strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: the key shows: %v", name, err)
		}
	}
}

// TestPromptShowsNoMoreThanItSays: classes, policy and values stay here; the peer's words are marked as such.
func TestPromptShowsNoMoreThanItSays(t *testing.T) {
	s := serve(t, words(good))
	if _, err := open(t, s, nil).draft(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	msgs := s.bodies[0]["messages"].([]any)
	user := msgs[1].(map[string]any)["content"].(string)
	var shown map[string]json.RawMessage
	if err := json.Unmarshal([]byte(user), &shown); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"dataset", "asked", "at_most", "removed", "offers_made", "their_words"} {
		delete(shown, k)
	}
	if len(shown) != 0 || strings.Contains(user, secret) || strings.Contains(user, `"class`) {
		t.Errorf("the model is shown %s", user)
	}
}

// TestReader_ReadsKnownValuesOnly: what a model reads in a text is a value of our own floor, or nothing.
func TestReader_ReadsKnownValuesOnly(t *testing.T) {
	p := metaproto.DefaultPolicy()
	for answer, transport := range map[string]string{
		`{"values":["a2a-http+json","DROP TABLE"]}`: metaproto.TransportHTTPJSON,
		`{"values":[]}`:            p.Preferences[0].Transport,
		`{"values":["telepathy"]}`: p.Preferences[0].Transport,
	} {
		r := decider.Reader{Model: open(t, serve(t, words(answer)), nil).Model, Policy: metaproto.DefaultPolicy}
		got, err := r.Read(t.Context(), peer, "ctx", "HTTP with JSON, please")
		if err != nil || len(got) != 1 || got[0].Transport != transport || p.Floor.Allows(got[0]) != nil {
			t.Errorf("%s: %+v, %v", answer, got, err)
		}
	}
	r := decider.Reader{Model: open(t, serve(t, words("{}")), nil).Model, Policy: metaproto.DefaultPolicy}
	if got, err := r.Read(t.Context(), peer, "ctx", "x"); err == nil || got != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestBuyer_Intents: the three things that a buyer can do.
func TestBuyer_Intents(t *testing.T) {
	needs, err := policy.ParseNeeds([]byte("version: 1\ndataset: orders\ncolumns: [region]\noperations: [avg]\npurpose: p\n"))
	if err != nil {
		t.Fatal(err)
	}
	ask, _ := needs.Ask(0)
	for _, intent := range []policy.Action{policy.Accept, policy.Counter, policy.Reject} {
		b := open(t, serve(t, words(strings.Replace(good, "counter", string(intent), 1))), nil)
		got, err := decider.Buyer{Model: b.Model}.Advise(t.Context(), negotiation.Standing{
			Received: policy.Received{Offer: &contract.Offer{Scope: ask}, Ask: ask}, Peer: peer, ContextID: "ctx", Needs: needs, Schema: schema(t),
		})
		if err != nil || got.Action != intent {
			t.Errorf("%s: %+v, %v", intent, got, err)
		}
	}
}
