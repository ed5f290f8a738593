// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/mux"

	"github.com/treaty-node/treaty/node/internal/inflight"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

// fakeAdmin answers what the tests ask; everything else is a nil method and panics.
type fakeAdmin struct {
	Admin
	err    error
	events []ledger.Event
	ended  string
	failAt int // the sequence number from which on err counts for events
}

func (f *fakeAdmin) Calls(context.Context) (store.CallsUnderWay, error) {
	return store.CallsUnderWay{Calls: []store.CallUnderWay{{ID: "A"}}}, nil
}

func (f *fakeAdmin) CancelCall(_ context.Context, id string) error {
	if id != "A" {
		return store.ErrNotFound
	}
	f.ended = id
	return nil
}

func (f *fakeAdmin) Status() Status { return Status{Service: "treaty"} }
func (f *fakeAdmin) Negotiate(context.Context, NegotiateRequest) (Negotiation, error) {
	return Negotiation{ContextID: "c"}, f.err
}
func (f *fakeAdmin) Negotiation(context.Context, string) (Negotiation, error) {
	return Negotiation{ContextID: "c"}, f.err
}
func (f *fakeAdmin) Events(_ context.Context, after uint64, _ int) ([]ledger.Event, error) {
	if int(after) >= f.failAt && f.err != nil {
		return nil, f.err
	}
	return f.events[min(int(after), len(f.events)):], nil
}

// templates lists "METHOD path" of every route, "* path" where any method is taken.
func templates(t *testing.T, r *mux.Router) []string {
	t.Helper()
	var out []string
	err := r.Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		if route.GetHandler() == nil {
			return nil
		}
		path, err := route.GetPathTemplate()
		if err != nil {
			return err
		}
		methods, err := route.GetMethods()
		if err != nil {
			methods = []string{"*"}
		}
		for _, m := range methods {
			out = append(out, m+" "+path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPublicRoutes holds the whole public surface: a route that is not in the table fails, and so does one that is gone.
func TestPublicRoutes(t *testing.T) {
	answer := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
	}
	p := Public{
		Site: answer("site"), Published: func(r *http.Request) bool { return r.URL.Path == "/.well-known/did.json" }, A2A: answer("a2a"), ANP: answer("anp"),
		Health: func() Health { return Health{Service: "treaty", Build: "b", DID: "did:wba:x.test"} }, Ready: func(context.Context) error { return nil },
	}
	want := []string{"* /", "* /a2a", "* /a2a/", "* /anp", "GET /healthz", "GET /readyz"}
	if got := templates(t, publicRouter(p)); !slices.Equal(got, want) {
		t.Fatalf("routes %q, the table has %q", got, want)
	}
	h := PublicHandler(p)
	for _, c := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/.well-known/did.json", 200, "site"},
		{"POST", "/a2a", 200, "a2a"},
		{"POST", "/a2a/", 200, "a2a"},
		{"GET", "/a2a/v1/tasks", 200, "a2a"},
		{"POST", "/anp", 200, "anp"},
		{"GET", "/healthz", 200, `{"service":"treaty","build":"b","did":"did:wba:x.test"}`},
		{"POST", "/healthz", 405, ""},
		{"GET", "/readyz", 200, `{"ready":true}`},
		{"GET", "/", 404, ""},
		{"GET", "/v1/status", 404, ""}, // the admin interface is not here
		{"GET", "/.well-known/", 404, ""},
		{"GET", "/.well-known/did.json/", 404, ""},
		{"GET", "//.well-known/did.json", 404, ""}, // nothing is cleaned or redirected
		{"GET", "/a/../.well-known/did.json", 404, ""},
		{"GET", "/.well-known%2fdid.json", 404, ""},
		{"GET", "/metrics", 404, ""},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, "https://x.test"+c.path, nil))
		if w.Code != c.status || c.status == 200 && strings.TrimSpace(w.Body.String()) != c.body {
			t.Errorf("%s %s: %d %q, want %d %q", c.method, c.path, w.Code, w.Body, c.status, c.body)
		}
	}
	p.Ready = func(context.Context) error { return errors.New("disk of /var/lib/secret is gone") }
	w := httptest.NewRecorder()
	PublicHandler(p).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil))
	if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "secret") || !strings.Contains(w.Body.String(), "store") {
		t.Errorf("not ready: %d %s", w.Code, w.Body)
	}
}

// TestAdminRoutes holds the whole admin surface.
func TestAdminRoutes(t *testing.T) {
	want := []string{
		"GET /v1/calls", "GET /v1/contracts", "GET /v1/contracts/{id}", "GET /v1/contracts/{id}/deletions", "GET /v1/contracts/{id}/evidence", "GET /v1/contracts/{id}/odcs", "GET /v1/contracts/{id}/receipts", "GET /v1/datasets", "GET /v1/events", "GET /v1/keys",
		"GET /v1/negotiations", "GET /v1/negotiations/{id}", "GET /v1/status", "GET /v1/trust",
		"POST /v1/ask", "POST /v1/backup", "POST /v1/calls/cancel", "POST /v1/contracts/{id}/amend", "POST /v1/contracts/{id}/delete-data", "POST /v1/contracts/{id}/renew", "POST /v1/contracts/{id}/revoke", "POST /v1/doctor", "POST /v1/negotiations", "POST /v1/negotiations/{id}/withdraw", "POST /v1/policy/explain", "POST /v1/query", "POST /v1/resolve",
		"POST /v1/resolve/confirm", "POST /v1/resolve/history", "POST /v1/rotate", "POST /v1/tool", "POST /v1/trust",
	}
	want = append(want, "GET /v1/drills", "GET /v1/drills/{id}", "POST /v1/drills")
	slices.Sort(want)
	got := templates(t, adminRouter(&fakeAdmin{}))
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("routes\n%q, the table has\n%q", got, want)
	}
}

// An operator sees the calls under way and ends one; the error about one that is over says so.
func TestCalls(t *testing.T) {
	f := &fakeAdmin{}
	ask := func(method, path, body string) (int, string) {
		w := httptest.NewRecorder()
		AdminHandler(f).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
	if code, body := ask("GET", "/v1/calls", ""); code != 200 || !strings.Contains(body, `"id":"A"`) {
		t.Errorf("%d %s", code, body)
	}
	if code, body := ask("POST", "/v1/calls/cancel", `{"id":"A"}`); code != 200 || f.ended != "A" {
		t.Errorf("%d %s, ended %q", code, body, f.ended)
	}
	if code, body := ask("POST", "/v1/calls/cancel", `{"id":"B"}`); code != 404 {
		t.Errorf("%d %s", code, body)
	}
}

func TestAdminErrors(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status int
		kind   Kind
	}{
		"typed":     {&Error{Kind: KindRefused, Code: "NOT_TRUSTED", Message: "no"}, 403, KindRefused},
		"wrapped":   {fmt.Errorf("x: %w", &Error{Kind: KindUnreachable, Message: "gone"}), 502, KindUnreachable},
		"not found": {fmt.Errorf("x: %w", store.ErrNotFound), 404, KindNotFound},
		"other":     {errors.New("odd"), 500, KindInternal},
	} {
		w := httptest.NewRecorder()
		AdminHandler(&fakeAdmin{err: c.err}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/v1/negotiations/x", nil))
		var e Error
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Code != c.status || e.Kind != c.kind {
			t.Errorf("%s: %d %s %v", name, w.Code, w.Body, err)
		}
	}
}

func TestAdminRequestsAreStrict(t *testing.T) {
	for name, body := range map[string]string{
		"empty": "", "not JSON": "x", "unknown member": `{"peer":"a.test","extra":1}`, "case variant": `{"Peer":"a.test"}`, "twice": `{"peer":"a","peer":"b"}`,
		"wrong type": `{"peer":1}`, "trailing": `{"peer":"a"}{}`, "deep": strings.Repeat("[", 10000), "huge": `{"peer":"` + strings.Repeat("a", 2<<20) + `"}`,
	} {
		w := httptest.NewRecorder()
		AdminHandler(&fakeAdmin{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/v1/negotiations", strings.NewReader(body)))
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// TestKinds: every kind has a status and an exit code of its own, beside internal.
func TestKinds(t *testing.T) {
	seen := map[int]Kind{}
	for _, k := range []Kind{KindInternal, KindUsage, KindRefused, KindNotFound, KindUnreachable, KindVerification} {
		if prev, twice := seen[k.ExitCode()]; twice {
			t.Errorf("%s and %s exit alike", k, prev)
		}
		seen[k.ExitCode()] = k
		if k != KindInternal && k.Status() == http.StatusInternalServerError {
			t.Errorf("%s has no status", k)
		}
	}
}

// One client's slow requests, in any number of streams and from all of its network, leave room for others.
func TestLimitOfOneClient(t *testing.T) {
	entered, hold := make(chan struct{}, 8), make(chan struct{})
	h := inflight.Limit(8, 2, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { entered <- struct{}{}; <-hold }))
	var done sync.WaitGroup
	send := func(from string) int {
		r, w := httptest.NewRequest(http.MethodPost, "/a2a", http.NoBody), httptest.NewRecorder()
		r.RemoteAddr = from
		h.ServeHTTP(w, r)
		return w.Code
	}
	begin := func(from string) { done.Go(func() { send(from) }); <-entered }
	begin("192.0.2.1:1")
	begin("192.0.2.1:2")
	begin("[2001:db8::1]:1")
	begin("[2001:db8::2]:1")
	for _, from := range []string{"192.0.2.1:3", "[2001:db8::3]:1"} {
		if code := send(from); code != http.StatusServiceUnavailable {
			t.Errorf("%s: %d", from, code)
		}
	}
	begin("192.0.2.2:1")
	begin("[2001:db8:1::1]:1")
	close(hold)
	done.Wait()
	if code := send("192.0.2.1:4"); code != http.StatusOK { // nothing is held any more
		t.Errorf("afterwards %d", code)
	}
}

func TestLimit(t *testing.T) {
	hold, held := make(chan struct{}), make(chan struct{})
	h := inflight.Limit(1, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(held); <-hold }))
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}()
	<-held
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("got %d", w.Code)
	}
	close(hold)
	<-done
}

// TestClient: no node, a follower of events, and errors that keep their kind.
func TestClient(t *testing.T) {
	dir := t.TempDir()
	if err := NewAdminClient(dir).Get(t.Context(), "/status", &Status{}); !errors.Is(err, ErrNoNode) {
		t.Errorf("no node: %v", err)
	}
	f := &fakeAdmin{events: []ledger.Event{{Seq: 1, Type: "a"}, {Seq: 2, Type: "b"}}}
	server := httptest.NewUnstartedServer(AdminHandler(f))
	l, err := net.Listen("unix", filepath.Join(dir, SocketName))
	if err != nil {
		t.Fatal(err)
	}
	server.Listener = l
	server.Start()
	defer server.Close()
	c := NewAdminClient(dir)
	var s Status
	if err := c.Get(t.Context(), "/status", &s); err != nil || s.Service != "treaty" {
		t.Errorf("%+v %v", s, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var seen []uint64
	err = c.Events(ctx, 0, true, func(e ledger.Event) error {
		if seen = append(seen, e.Seq); len(seen) == 2 {
			return io.EOF
		}
		return nil
	})
	if !errors.Is(err, io.EOF) || !slices.Equal(seen, []uint64{1, 2}) {
		t.Errorf("followed %v: %v", seen, err)
	}
	f.err = &Error{Kind: KindRefused, Code: "X", Message: "no", Hint: "do"}
	var e *Error
	if err := c.Get(t.Context(), "/negotiations/x", &Negotiation{}); !errors.As(err, &e) || *e != *f.err.(*Error) {
		t.Errorf("got %v", err)
	}
	// A log that cannot be read is an error, wherever the reader stands, and never a log that ends there.
	for after := range uint64(3) {
		if err := c.Events(ctx, after, false, func(ledger.Event) error { return nil }); !errors.As(err, &e) || *e != *f.err.(*Error) {
			t.Errorf("events after %d: %v", after, err)
		}
	}
	f.failAt = 2
	seen = nil
	err = c.Events(ctx, 0, true, func(e ledger.Event) error { seen = append(seen, e.Seq); return nil })
	if !errors.As(err, &e) || e.Kind != KindUnreachable || !slices.Equal(seen, []uint64{1, 2}) {
		t.Errorf("a log that breaks off: %v after %v", err, seen)
	}
}
