// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/gorilla/mux"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/node/internal/inflight"
)

// Health is what GET /healthz answers: who this is, so that a port that merely answers is not taken for the service.
type Health struct {
	Service string `json:"service"`
	Build   string `json:"build"`
	DID     string `json:"did"`
}

// Public is what the public listener serves.
type Public struct {
	Site http.Handler // public documents
	// Published says whether there is a public document at exactly that path. Documents come while the node runs: an identity
	// that moves has another DID.
	Published func(r *http.Request) bool
	A2A       http.Handler // /a2a, /a2a/ and below, verified by its own middleware
	ANP       http.Handler // /anp, likewise
	Health    func() Health
	Ready     func(ctx context.Context) error // nil error: ready
}

const (
	maxConcurrent   = 256
	maxOfClient     = 64
	readyTimeout    = 2 * time.Second
	maxHeaderBytes  = 32 << 10
	headerTimeout   = 5 * time.Second
	requestTimeout  = 30 * time.Second
	responseTimeout = 90 * time.Second
	idleTimeout     = 2 * time.Minute
)

// PublicHandler routes the public listener. Paths are matched as they are sent: nothing is cleaned or redirected, since no
// signature survives a redirect.
func PublicHandler(p Public) http.Handler {
	return inflight.Limit(maxConcurrent, maxOfClient, resolver.ChargeClients(publicRouter(p)))
}

func publicRouter(p Public) *mux.Router {
	r := mux.NewRouter().SkipClean(true).UseEncodedPath()
	r.PathPrefix("/").MatcherFunc(func(req *http.Request, _ *mux.RouteMatch) bool {
		return req.URL.EscapedPath() == req.URL.Path && p.Published(req)
	}).Handler(p.Site)
	r.Path("/a2a").Handler(p.A2A)
	r.PathPrefix("/a2a/").Handler(p.A2A)
	r.Path("/anp").Handler(p.ANP)
	r.Path("/healthz").Methods(http.MethodGet).HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { WriteJSON(w, http.StatusOK, p.Health()) })
	r.Path("/readyz").Methods(http.MethodGet).HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithTimeout(req.Context(), readyTimeout)
		defer cancel()
		if err := p.Ready(ctx); err != nil {
			missing := "store"
			if errors.Is(err, did.ErrSignerUnavailable) {
				missing = "signer"
			}
			WriteJSON(w, http.StatusServiceUnavailable, map[string]any{"ready": false, "missing": []string{missing}})
			return
		}
		WriteJSON(w, http.StatusOK, map[string]any{"ready": true})
	})
	return r
}

// Server is an HTTP server with the limits that every listener has.
func Server(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: responseTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
