// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	sdklog "github.com/a2aproject/a2a-go/v2/log"

	"github.com/treaty-node/treaty/wellknown"
)

// call is what the layers around the library tell each other about one request.
type call struct {
	extension   bool        // the client declared ours in A2A-Extensions
	reached     atomic.Bool // the request was decoded and reached the gateway
	activated   atomic.Bool // the extension was used
	failedFirst atomic.Bool // a stream's first item is an error
}

type callKey struct{}

func callFrom(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{}
}

// Server stands before the library's transports and holds requests to what they do not check. It is safe for concurrent use.
type Server struct {
	cfg               Config
	gateway           *gateway
	rpc, rest, legacy http.Handler
}

// New returns the server for /a2a, /a2a/ (JSON-RPC) and /a2a/v1/… (HTTP+JSON). Mount it without stripping the path, behind
// httpsig's Optional middleware. The error is that of an incomplete configuration.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return newServer(cfg, &answerer{describe: cfg.Describe, delegate: cfg.Delegate, now: cfg.Now})
}

// newServer answers plain questions with the executor.
func newServer(cfg Config, executor a2asrv.AgentExecutor) (*Server, error) {
	tasks, err := newPlainTasks(cfg.Tasks, cfg.Now)
	if err != nil {
		return nil, err
	}
	onPanic := func(r any) error {
		cfg.Logger.Error("a2a handler panicked", "panic", r, "stack", string(debug.Stack()))
		return sdk.ErrInternalError
	}
	g := &gateway{cfg: cfg, tasks: tasks, plain: a2asrv.NewHandler(
		executor,
		a2asrv.WithTaskStore(tasks),
		a2asrv.WithLogger(cfg.Logger),
		a2asrv.WithAgentInactivityTimeout(inactivity),
		a2asrv.WithExecutionPanicHandler(onPanic),
	)}
	s := &Server{
		cfg:     cfg,
		gateway: g,
		rpc:     a2asrv.NewJSONRPCHandler(g, a2asrv.WithTransportPanicHandler(onPanic)),
		rest:    a2asrv.NewRESTHandler(g, a2asrv.WithTransportPanicHandler(onPanic)),
	}
	if cfg.Legacy {
		s.legacy = a2av0.NewJSONRPCHandler(g, a2asrv.WithTransportPanicHandler(onPanic))
	}
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	binding, next, path := wellknown.BindingJSONRPC, s.rpc, r.URL.Path
	switch {
	case path == wellknown.PathJSONRPC || path == wellknown.PathJSONRPC+"/":
		path = "/"
	default:
		binding, next = wellknown.BindingHTTPJSON, s.rest
		rest, ok := strings.CutPrefix(path, wellknown.PathHTTPJSON+"/")
		path = "/" + strings.TrimSuffix(rest, "/")
		// The library's router would answer an unclean path with a redirect, which no signature survives.
		if !ok || strings.Contains(path, "//") || strings.Contains(path+"/", "/./") || strings.Contains(path+"/", "/../") {
			writeError(w, binding, nil, 0, errMethod)
			return
		}
	}
	if binding == wellknown.BindingJSONRPC && r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		writeError(w, binding, nil, http.StatusMethodNotAllowed, errMethod)
		return
	}
	body, id, status, err := s.read(r, binding)
	if err == nil {
		if s.legacy != nil && binding == wellknown.BindingJSONRPC && isLegacy(r) {
			next = s.legacy
		} else {
			err = checkVersion(r)
		}
	}
	if err != nil {
		writeError(w, binding, id, status, err)
		return
	}

	extensions := splitExtensions(r.Header.Values(sdk.SvcParamExtensions))
	c := &call{}
	for _, uri := range extensions {
		c.extension = c.extension || uri == wellknown.ExtensionURI
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.Timeout)
	defer cancel()
	ctx = sdklog.AttachLogger(context.WithValue(ctx, callKey{}, c), s.cfg.Logger)
	inner := r.Clone(ctx)
	inner.URL.Path, inner.URL.RawPath = path, ""
	inner.Body = io.NopCloser(bytes.NewReader(body))
	inner.ContentLength = int64(len(body))
	inner.Header[http.CanonicalHeaderKey(sdk.SvcParamExtensions)] = extensions

	out := &response{w: w, call: c, binding: binding, id: id}
	defer func() {
		if p := recover(); p != nil {
			if out.committed {
				panic(http.ErrAbortHandler)
			}
			s.cfg.Logger.Error("a2a handler panicked", "panic", p, "stack", string(debug.Stack()))
			writeError(w, binding, id, 0, sdk.ErrInternalError)
			return
		}
		out.finish()
	}()
	next.ServeHTTP(out, inner)
}

// read takes the body whole and holds it to strict JSON.
func (s *Server) read(r *http.Request, binding string) (body, id []byte, status int, err error) {
	if r.Body != nil {
		body, err = io.ReadAll(io.LimitReader(r.Body, int64(s.cfg.MaxBody)+1))
		if err != nil {
			var tooLarge *http.MaxBytesError
			if !errors.As(err, &tooLarge) {
				return nil, nil, http.StatusBadRequest, refuse(sdk.ErrInvalidRequest, "the request body could not be read")
			}
			body = make([]byte, s.cfg.MaxBody+1)
		}
	}
	if len(body) > s.cfg.MaxBody {
		return nil, nil, http.StatusRequestEntityTooLarge, refuse(sdk.ErrInvalidRequest, "the request is too large")
	}
	if len(body) == 0 && binding == wellknown.BindingHTTPJSON {
		return nil, nil, 0, nil
	}
	if !jsonContent(r.Header.Values("Content-Type"), binding) {
		if binding == wellknown.BindingHTTPJSON {
			status = http.StatusUnsupportedMediaType
		}
		return nil, nil, status, errContentType
	}
	body, id, err = checkJSON(body, s.cfg.MaxBody)
	if err != nil {
		status, err = jsonError(err)
		return nil, nil, status, err
	}
	return body, id, 0, nil
}

// jsonContent accepts application/json, and application/a2a+json on HTTP+JSON (A2A section 11.1), in UTF-8.
func jsonContent(values []string, binding string) bool {
	if len(values) != 1 {
		return false
	}
	kind, params, err := mime.ParseMediaType(values[0])
	if err != nil {
		return false
	}
	if charset, ok := params["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return false
	}
	return kind == "application/json" || (kind == "application/a2a+json" && binding == wellknown.BindingHTTPJSON)
}

// isLegacy: a client of A2A 0.3 says so, or says nothing (A2A section 3.6.2).
func isLegacy(r *http.Request) bool {
	versions := append(r.Header.Values(sdk.SvcParamVersion), r.URL.Query()[sdk.SvcParamVersion]...)
	if len(versions) == 0 || len(versions) == 1 && versions[0] == "" {
		return true
	}
	v := strings.TrimSpace(versions[0])
	return len(versions) == 1 && (v == LegacyVersion || strings.HasPrefix(v, LegacyVersion+".") && len(v) <= 8)
}

// checkVersion accepts 1.0 with or without a patch number, in the header or in the query (A2A section 3.6). No version means
// 0.3, which is spoken where it is configured.
func checkVersion(r *http.Request) error {
	versions := r.Header.Values(sdk.SvcParamVersion)
	if len(versions) == 0 {
		versions = r.URL.Query()[sdk.SvcParamVersion]
	}
	if len(versions) != 1 {
		return errVersion
	}
	version := strings.TrimSpace(versions[0])
	patch, ok := strings.CutPrefix(version, wellknown.A2AVersion+".")
	if version == wellknown.A2AVersion || ok && patch != "" && len(patch) <= 4 && strings.Trim(patch, "0123456789") == "" {
		return nil
	}
	return errVersion
}

// splitExtensions reads the comma-separated list of URIs (A2A section 3.2.6), which the library takes for one.
func splitExtensions(values []string) []string {
	var uris []string
	for _, v := range values {
		for uri := range strings.SplitSeq(v, ",") {
			if uri = strings.TrimSpace(uri); uri != "" && len(uris) < maxExtensions {
				uris = append(uris, uri)
			}
		}
	}
	return uris
}
