// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/treaty-node/treaty/did"
)

// After a restart with an empty nonce store the client is challenged, and
// Transport answers by itself.
func TestTransportAnswersChallenge(t *testing.T) {
	s := newSite(t, (*Verifier).Middleware, func(o *Options) { o.NotBefore = fixedTime })
	for range 2 {
		if status, body, _ := post(t, s.client(t), s.server.URL+"/a", strings.NewReader("hello")); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	if len(s.served) != 2 || s.nonces.used.Load() != 2 {
		t.Errorf("served %q, %d nonces", s.served, s.nonces.used.Load())
	}
}

// It answers once, and only a refusal that says so.
func TestTransportGivesUp(t *testing.T) {
	for challenge, want := range map[string]int64{
		`DIDWba realm="h", error="invalid_nonce", nonce="abc"`:           2,
		`didwba error=invalid_nonce,nonce=abc`:                           2,
		`DIDWba realm="h", error="invalid_nonce"`:                        1,
		`DIDWba realm="h", error="invalid_signature", nonce="abc"`:       1,
		`DIDWba realm="h", nonce="abc"`:                                  1,
		`Bearer realm="h", error="invalid_nonce", nonce="abc"`:           1,
		`DIDWba error="invalid_nonce", nonce="` + "\u00e9" + `"`:         1,
		`DIDWba error="invalid_nonce", nonce="abc`:                       1,
		`DIDWba error="invalid_nonce", nonce="` + longNonce + `"`:        1,
		`DIDWba realm="a\"b", error="invalid_nonce", nonce="a\"b\\c \d"`: 2,
	} {
		var calls atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			w.Header().Set("WWW-Authenticate", challenge)
			w.WriteHeader(http.StatusUnauthorized)
			w.Write([]byte("no"))
		}))
		s := newStage(t, "web", "web")
		status, body, _ := post(t, (&site{stage: s}).client(t), server.URL, strings.NewReader("x"))
		server.Close()
		if status != 401 || body != "no" || calls.Load() != want {
			t.Errorf("%s: %d %q after %d calls, want %d", challenge, status, body, calls.Load(), want)
		}
	}
}

var longNonce = strings.Repeat("n", maxNonceBytes+1)

// A redirect is signed anew inside the origin and not followed outside it.
func TestTransportRedirects(t *testing.T) {
	s := newSite(t, func(v *Verifier, next http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/same", http.RedirectHandler("/target", http.StatusTemporaryRedirect))
		mux.Handle("/again", http.RedirectHandler("/again", http.StatusPermanentRedirect))
		mux.Handle("/away", http.RedirectHandler("http://other.example/target", http.StatusTemporaryRedirect))
		mux.Handle("/port", http.RedirectHandler("http://127.0.0.1:1/target", http.StatusTemporaryRedirect))
		mux.Handle("/", next)
		return v.Middleware(mux)
	}, nil)
	status, body, _ := post(t, s.client(t), s.server.URL+"/same", strings.NewReader("hello"))
	if status != 200 || len(s.served) != 1 || s.served[0] != "POST /target "+s.caller+" hello" {
		t.Errorf("within the origin: %d %s, served %q", status, body, s.served)
	}
	for _, path := range []string{"/away", "/port"} {
		resp, err := s.client(t).Post(s.server.URL+path, "text/plain", strings.NewReader("hello"))
		if err == nil {
			resp.Body.Close()
		}
		if !errors.Is(err, ErrRedirect) {
			t.Errorf("%s: %v, want ErrRedirect", path, err)
		}
	}
	if resp, err := s.client(t).Post(s.server.URL+"/again", "text/plain", strings.NewReader("hello")); err == nil {
		resp.Body.Close()
		t.Error("a loop ended well")
	}
	if len(s.served) != 1 {
		t.Errorf("served %q", s.served)
	}
}

func TestTransportKeepsItsHands(t *testing.T) {
	s := newSite(t, (*Verifier).Middleware, nil)
	transport := s.client(t).Transport.(*Transport)

	body := &closeCounter{Reader: strings.NewReader("hello")}
	r, err := http.NewRequest("POST", s.server.URL+"/a", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-A", "b")
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || len(r.Header) != 1 || r.Body != io.ReadCloser(body) || body.closed != 1 {
		t.Errorf("%d; the request was changed: %v, closed %d times", resp.StatusCode, r.Header, body.closed)
	}

	transport.MaxBody = 4
	for _, length := range []int64{-1, 0, 5} {
		body := &closeCounter{Reader: strings.NewReader("hello")}
		r := &http.Request{Method: "POST", URL: &url.URL{Scheme: "http", Host: "a.example"}, Header: http.Header{}, Body: body, ContentLength: length}
		if _, err := transport.RoundTrip(r); !errors.Is(err, ErrBodyTooLarge) || body.closed != 1 {
			t.Errorf("length %d: %v, closed %d times", length, err, body.closed)
		}
	}
	for _, bad := range []*Transport{{}, {Base: http.DefaultTransport}, {Signer: transport.Signer}} {
		if _, err := bad.RoundTrip(httptest.NewRequest("GET", "http://a.example/", nil)); err == nil {
			t.Error("an incomplete Transport works")
		}
	}
	failing := &Transport{Base: transport.Base, Signer: func() did.Signer { return brokenSigner{transport.Signer()} }}
	if _, err := failing.RoundTrip(httptest.NewRequest("GET", "http://a.example/", nil)); !errors.Is(err, errUnreachable) {
		t.Errorf("a signer that fails: %v", err)
	}
}

type closeCounter struct {
	io.Reader
	closed int
}

func (c *closeCounter) Close() error { c.closed++; return nil }

type brokenSigner struct{ did.Signer }

func (brokenSigner) Sign(context.Context, []byte) ([]byte, error) { return nil, errUnreachable }

// The MCP SDK's client and server work over signed requests, and a tool sees
// the caller.
func TestTransportUnderMCP(t *testing.T) {
	s := newStage(t, "wba", "web")
	server := mcp.NewServer(&mcp.Implementation{Name: "t", Version: "1"}, nil)
	type none struct{}
	mcp.AddTool(server, &mcp.Tool{Name: "whoami"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, none, error) {
		caller, _ := CallerFrom(ctx)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: caller.DID.String()}}}, none{}, nil
	})
	streamable := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.verifier.Middleware(streamable).ServeHTTP(w, r)
	}))
	defer listener.Close()
	s.options.Origins = []string{listener.URL}
	s.start(t)

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: listener.URL, HTTPClient: (&site{stage: s}).client(t)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "whoami", Arguments: map[string]any{}})
	if err != nil {
		t.Fatal(err)
	}
	if text, ok := result.Content[0].(*mcp.TextContent); !ok || text.Text != s.caller {
		t.Errorf("the tool saw %+v", result.Content[0])
	}
	unsigned := &mcp.StreamableClientTransport{Endpoint: listener.URL, HTTPClient: http.DefaultClient}
	if session, err := client.Connect(ctx, unsigned, nil); err == nil {
		session.Close()
		t.Error("an unsigned client connected")
	}
}

// callerAgent answers with the caller's DID.
type callerAgent struct{}

func (callerAgent) Execute(ctx context.Context, _ *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		caller, _ := CallerFrom(ctx)
		yield(a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart(caller.DID.String())), nil)
	}
}

func (callerAgent) Cancel(context.Context, *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(func(a2a.Event, error) bool) {}
}

// The A2A SDK's client and server do too, over both of its HTTP bindings.
func TestTransportUnderA2A(t *testing.T) {
	s := newStage(t, "web", "wba")
	handler := a2asrv.NewHandler(callerAgent{})
	mux := http.NewServeMux()
	mux.Handle("/a2a", a2asrv.NewJSONRPCHandler(handler))
	mux.Handle("/a2a/v1/", http.StripPrefix("/a2a/v1", a2asrv.NewRESTHandler(handler)))
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.verifier.Middleware(mux).ServeHTTP(w, r)
	}))
	defer listener.Close()
	s.options.Origins = []string{listener.URL}
	s.start(t)

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for path, binding := range map[string]a2a.TransportProtocol{"/a2a": a2a.TransportProtocolJSONRPC, "/a2a/v1": a2a.TransportProtocolHTTPJSON} {
		send := func(c *http.Client) (a2a.SendMessageResult, error) {
			client, err := a2aclient.NewFromEndpoints(ctx, []*a2a.AgentInterface{a2a.NewAgentInterface(listener.URL+path, binding)},
				a2aclient.WithJSONRPCTransport(c), a2aclient.WithRESTTransport(c))
			if err != nil {
				t.Fatal(err)
			}
			return client.SendMessage(ctx, &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart("hello"))})
		}
		result, err := send((&site{stage: s}).client(t))
		if err != nil {
			t.Fatalf("%s: %v", binding, err)
		}
		if m, ok := result.(*a2a.Message); !ok || m.Parts[0].Text() != s.caller {
			t.Errorf("%s: the agent saw %+v", binding, result)
		}
		if _, err := send(http.DefaultClient); err == nil {
			t.Errorf("%s: an unsigned client was answered", binding)
		}
	}
}
