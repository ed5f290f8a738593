// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/mcphttp"
	"github.com/treaty-node/treaty/node/store"
)

// HandlerOptions of the MCP endpoint.
type HandlerOptions struct {
	// Authenticate lets only verified requests through, with the caller in the context: [httpsig.Verifier.Middleware].
	Authenticate func(http.Handler) http.Handler
	Origins      []string // own public origins; a browser's page from elsewhere is refused
	MaxBody      int64    // bytes of a request; default 256 KiB
	PerMinute    int      // calls of one DID; default 600
	Build        string   // shown to clients and in the health answer
}

// Handler is the MCP endpoint (Streamable HTTP, stateless) and its health check.
type Handler struct {
	s    *Service
	opts HandlerOptions
	mcp  http.Handler // without authentication
	all  http.Handler

	mu       sync.Mutex // of limiters
	limiters *lru.Cache[string, *rate.Limiter]

	health  sync.Mutex // of what follows; calls never wait for a health check
	checked time.Time
	status  Health
}

// maxLimiters bounds the callers whose rate is remembered.
const maxLimiters = 10_000

// NewHandler builds the endpoint. Authenticate is needed.
func NewHandler(s *Service, o HandlerOptions) (*Handler, error) {
	if o.Authenticate == nil {
		return nil, errors.New("dataplane: NewHandler without Authenticate")
	}
	if o.MaxBody <= 0 {
		o.MaxBody = 2 * datatools.MaxArguments
	}
	if o.PerMinute <= 0 {
		o.PerMinute = 600
	}
	limiters, err := lru.New[string, *rate.Limiter](maxLimiters)
	if err != nil {
		return nil, err
	}
	h := &Handler{s: s, opts: o, limiters: limiters}
	h.mcp = mcphttp.Messages(s.server(o.Build), mcphttp.Options{MaxBody: o.MaxBody, Signed: true})
	h.all = mcphttp.Pages(o.Origins, o.MaxBody, o.Authenticate(h.limit(h.mcp)))
	return h, nil
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.all.ServeHTTP(w, r) }

// limit bounds how often one DID calls.
func (h *Handler) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, ok := httpsig.CallerFrom(r.Context())
		if !ok {
			http.Error(w, "a signed request is needed", http.StatusUnauthorized)
			return
		}
		if !h.limiter(caller.DID.String()).Allow() {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (h *Handler) limiter(id string) *rate.Limiter {
	h.mu.Lock()
	defer h.mu.Unlock()
	l, ok := h.limiters.Get(id)
	if !ok {
		l = rate.NewLimiter(rate.Limit(float64(h.opts.PerMinute)/60), max(h.opts.PerMinute/10, 1))
		h.limiters.Add(id, l)
	}
	return l
}

func reference() string { return rand.Text()[:12] }

// Health is the answer of GET /healthz.
type Health struct {
	Service  string   `json:"service"` // ServerName
	Build    string   `json:"build"`
	DID      string   `json:"did"`
	Status   string   `json:"status"` // ok or failing
	Tools    []string `json:"tools"`  // from a real tools/list
	Datasets []string `json:"datasets"`
	Problem  string   `json:"problem,omitempty"`
}

// healthAge is how long a health answer is reused: the endpoint is open to anybody.
const healthAge = 2 * time.Second

// Check asks the MCP endpoint itself for its tools, over the same handler that clients reach, and reads the store.
func (h *Handler) Check(ctx context.Context) Health {
	h.health.Lock()
	defer h.health.Unlock()
	if now := time.Now(); h.status.Service == "" || now.Sub(h.checked) >= healthAge {
		h.status, h.checked = h.check(ctx), now
	}
	return h.status
}

func (h *Handler) check(ctx context.Context) Health {
	out := Health{Service: ServerName, Build: h.opts.Build, DID: h.s.id, Status: "ok", Tools: []string{}, Datasets: []string{}}
	for id := range h.s.schemas {
		out.Datasets = append(out.Datasets, id)
	}
	slices.Sort(out.Datasets)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	problem := func(what string, err error) Health {
		h.s.opts.Log.Error("unhealthy", "what", what, "error", err)
		out.Status, out.Problem = "failing", what
		return out
	}
	if err := h.s.opts.Store.View(ctx, func(tx store.Tx) error { _, err := tx.Head(); return err }); err != nil {
		return problem("the store cannot be read", err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "healthz", Version: h.opts.Build}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: "http://localhost/mcp", HTTPClient: &http.Client{Transport: inProcess{h.mcp}}, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		return problem("the tools endpoint does not answer", err)
	}
	defer func() { _ = session.Close() }() // in process, stateless
	list, err := session.ListTools(ctx, nil)
	if err != nil {
		return problem("tools/list failed", err)
	}
	for _, t := range list.Tools {
		out.Tools = append(out.Tools, t.Name)
	}
	if len(out.Tools) != len(datatools.Tools()) {
		return problem("tools are missing", nil)
	}
	return out
}

// Healthz serves [Health]: 200 when ok, else 503.
func (h *Handler) Healthz(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	status := h.Check(r.Context())
	body, err := json.Marshal(status)
	if err != nil {
		http.Error(w, "health could not be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if status.Status != "ok" {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(append(body, '\n')) // the client's loss
}

// inProcess is a RoundTripper that calls a handler.
type inProcess struct{ h http.Handler }

func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &recorder{header: http.Header{}, status: http.StatusOK}
	t.h.ServeHTTP(w, r)
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r,
	}, nil
}

type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header         { return w.header }
func (w *recorder) WriteHeader(status int)      { w.status = status }
func (w *recorder) Write(p []byte) (int, error) { return w.body.Write(p) }
func (w *recorder) Flush()                      {}
