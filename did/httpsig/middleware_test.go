// SPDX-License-Identifier: Apache-2.0

package httpsig

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

	"github.com/treaty-node/treaty/did"
)

// site is a service behind the middleware, reached through a real listener.
type site struct {
	*stage
	server *httptest.Server
	served []string // what the handler saw
}

func newSite(t *testing.T, wrap func(v *Verifier, next http.Handler) http.Handler, configs func(o *Options)) *site {
	t.Helper()
	s := &site{stage: newStage(t, "wba", "web")}
	s.options.MaxBody = 1000
	if configs != nil {
		configs(s.options)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		caller, ok := CallerFrom(r.Context())
		who := "anonymous"
		if ok {
			who = caller.DID.String()
		}
		s.served = append(s.served, r.Method+" "+r.URL.Path+" "+who+" "+string(body))
		if ok && r.ContentLength != int64(len(body)) {
			t.Errorf("ContentLength %d of %d octets", r.ContentLength, len(body))
		}
	})
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wrap(s.verifier, handler).ServeHTTP(w, r)
	}))
	t.Cleanup(s.server.Close)
	s.options.Origins = []string{s.origin, s.server.URL}
	s.start(t)
	return s
}

func (s *site) client(t *testing.T) *http.Client {
	signer := fixtureSigner(t, s.callerName, s.caller, "root")
	return &http.Client{Transport: &Transport{
		Base: http.DefaultTransport, Signer: func() did.Signer { return signer }, Now: func() time.Time { return s.now },
	}}
}

func post(t *testing.T, c *http.Client, url string, body io.Reader) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data), resp.Header
}

func TestMiddleware(t *testing.T) {
	s := newSite(t, (*Verifier).Middleware, nil)
	status, _, _ := post(t, s.client(t), s.server.URL+"/a?b=c", strings.NewReader("hello"))
	if status != 200 || len(s.served) != 1 || s.served[0] != "POST /a "+s.caller+" hello" {
		t.Fatalf("signed: %d, served %q", status, s.served)
	}
	// Content of unknown length is signed too.
	if status, _, _ := post(t, s.client(t), s.server.URL+"/stream", io.MultiReader(strings.NewReader("he"), strings.NewReader("llo"))); status != 200 {
		t.Fatalf("streamed: %d", status)
	}

	status, body, h := post(t, http.DefaultClient, s.server.URL+"/a", strings.NewReader("hello"))
	if status != 401 || len(s.served) != 2 {
		t.Fatalf("unsigned: %d, served %q", status, s.served)
	}
	if h.Get("Cache-Control") != "no-store" || h.Get("Accept-Signature") != acceptSignature {
		t.Errorf("header %v", h)
	}
	c, ok := ParseChallenge(h)
	if !ok || c.Code != InvalidRequest || c.Realm != strings.TrimPrefix(s.origin, "https://") || c.Description == "" {
		t.Errorf("challenge %+v", c)
	}
	if _, ok := s.verifier.challenges.issued(c.Nonce); !ok {
		t.Errorf("nonce %q is not a challenge", c.Nonce)
	}
	var reply map[string]any
	if err := json.Unmarshal([]byte(body), &reply); err != nil || reply["code"] != 401.0 || reply["error"] != "invalid_request" || reply["nonce"] != c.Nonce || reply["error_description"] != c.Description {
		t.Errorf("body %s, %v", body, err)
	}
}

func TestMiddlewareBounds(t *testing.T) {
	s := newSite(t, (*Verifier).Middleware, nil)
	big := bytes.Repeat([]byte("x"), 1001)
	for name, body := range map[string]io.Reader{"known length": bytes.NewReader(big), "unknown length": io.MultiReader(bytes.NewReader(big))} {
		if status, reply, _ := post(t, s.client(t), s.server.URL+"/", body); status != 413 || !strings.Contains(reply, `"invalid_request"`) {
			t.Errorf("%s: %d %s", name, status, reply)
		}
	}
	if status, _, _ := post(t, s.client(t), s.server.URL+"/", bytes.NewReader(big[:1000])); status != 200 {
		t.Errorf("at the limit: %d", status)
	}
	// An unsigned request is refused without reading its content.
	r := httptest.NewRequest("POST", "/", unreadable{t})
	w := httptest.NewRecorder()
	s.verifier.Middleware(http.NotFoundHandler()).ServeHTTP(w, r)
	if w.Code != 401 {
		t.Errorf("unsigned: %d", w.Code)
	}
	if n := s.nonces.Len(); n != 1 {
		t.Errorf("%d nonces recorded, want that of the one good request", n)
	}
	// Content that breaks off.
	req := s.newRequest(t, "n")
	req.sign()
	broken := req.http()
	broken.Body = io.NopCloser(io.MultiReader(strings.NewReader(testBody[:5]), failingReader{}))
	w = httptest.NewRecorder()
	s.verifier.Middleware(http.NotFoundHandler()).ServeHTTP(w, broken)
	if w.Code != 400 || s.docs.calls.Load() != 1 {
		t.Errorf("broken content: %d, %d documents fetched", w.Code, s.docs.calls.Load())
	}
}

type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("content was read")
	return 0, io.EOF
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

func TestOptional(t *testing.T) {
	s := newSite(t, (*Verifier).Optional, nil)
	if status, _, _ := post(t, http.DefaultClient, s.server.URL+"/a", strings.NewReader("hello")); status != 200 || s.served[0] != "POST /a anonymous hello" {
		t.Errorf("unsigned: %d, served %q", status, s.served)
	}
	if status, _, _ := post(t, s.client(t), s.server.URL+"/a", strings.NewReader("hello")); status != 200 || s.served[1] != "POST /a "+s.caller+" hello" {
		t.Errorf("signed: %d, served %q", status, s.served)
	}
	for _, field := range []string{"Signature", "Signature-Input"} {
		r := httptest.NewRequest("POST", "/a", strings.NewReader("hello"))
		r.Header.Set(field, "")
		w := httptest.NewRecorder()
		s.verifier.Optional(http.NotFoundHandler()).ServeHTTP(w, r)
		if w.Code != 401 {
			t.Errorf("%s alone: %d, want 401", field, w.Code)
		}
	}
}

// Every code reaches the caller with the headers that its status asks for.
func TestWriteError(t *testing.T) {
	s := newStage(t, "wba", "web")
	s.start(t)
	for code, def := range codes {
		e := refuse(code, "", errUnreachable)
		e.Requested, e.Current = parseDID(t, s.caller), parseDID(t, "did:web:next.example")
		w := httptest.NewRecorder()
		s.verifier.WriteError(w, e)
		h := w.Header()
		if w.Code != def.status || h.Get("Cache-Control") != "no-store" || strings.Contains(w.Body.String(), "10.0.0.1") {
			t.Errorf("%s: %d %v %s", code, w.Code, h, w.Body)
		}
		c, ok := ParseChallenge(h)
		if is401 := def.status == 401; ok != is401 || is401 && (c.Code != code || c.Description != def.text) {
			t.Errorf("%s: challenge %+v", code, c)
		}
		if got := h.Get("Retry-After") != ""; got != (def.status == 503) {
			t.Errorf("%s: Retry-After %v", code, got)
		}
	}
	w := httptest.NewRecorder()
	s.verifier.WriteError(w, errUnreachable)
	if w.Code != 503 || strings.Contains(w.Body.String(), "10.0.0.1") {
		t.Errorf("any other error: %d %s", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	e := refuse(DIDSuperseded, "", nil)
	e.Requested, e.Current = parseDID(t, s.caller), parseDID(t, "did:web:next.example")
	s.verifier.WriteError(w, e)
	want := `{"code":"did_superseded","requestedDid":"` + s.caller + `","currentDid":"did:web:next.example","stableSubjectId":"` + strings.TrimPrefix(e.Requested.StableSubject(), "did:wba:") + `"}`
	if got := strings.TrimSpace(w.Body.String()); got != want {
		t.Errorf("superseded\n%s\nwant\n%s", got, want)
	}
}

func TestCallerFrom(t *testing.T) {
	if _, ok := CallerFrom(context.Background()); ok {
		t.Error("a caller out of nothing")
	}
	want := Caller{KeyID: "k"}
	if got, ok := CallerFrom(WithCaller(context.Background(), want)); !ok || got != want {
		t.Errorf("got %+v", got)
	}
}
