// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/wellknown"
)

// peerClient is a client whose peer is the given handler.
func peerClient(t *testing.T, binding string, h http.HandlerFunc, change ...func(*ClientConfig)) *Client {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	raw := must(wellknown.BuildCard(t.Context(), wellknown.CardSpec{Agent: vendor.id, Name: "V", Description: "V", Origin: origin}, vendor.signer))
	cfg := ClientConfig{
		Card: must(wellknown.VerifyCard(raw, vendor.doc, start)), Binding: binding,
		HTTP: &http.Client{Transport: dialing(server)},
	}
	for _, c := range change {
		c(&cfg)
	}
	return must(NewClient(cfg))
}

// answered wraps a result of SendMessage for the binding.
func answered(binding, result string) string {
	if binding == wellknown.BindingJSONRPC {
		return `{"jsonrpc":"2.0","id":"1","result":` + result + `}`
	}
	return result
}

const goodTask = `{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}`

func TestClientTransportFaults(t *testing.T) {
	send := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	const app = "application/json"
	part := func(raw string) string {
		return fmt.Sprintf(`{"raw":%q,"mediaType":%q}`, raw, wellknown.EnvelopeMediaType)
	}
	artifact := fmt.Sprintf(`{"artifactId":"a","extensions":[%q],"parts":[%s]}`, wellknown.ExtensionURI, part("YQ=="))
	task := func(members string) string {
		return `{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}` + members + `}}`
	}
	for _, binding := range bindings {
		body := func(result string) string { return answered(binding, result) }
		for name, test := range map[string]struct {
			peer   http.HandlerFunc
			want   error
			status int
			code   string
		}{
			"redirect": {func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "https://evil.example.com/", http.StatusTemporaryRedirect)
			}, ErrRedirect, 307, ""},
			"redirect to itself": {func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, r.URL.Path, http.StatusPermanentRedirect)
			}, ErrRedirect, 308, ""},
			"too large":          {send(200, app, strings.Repeat(" ", 1<<20)), ErrResponseTooLarge, 200, ""},
			"not JSON":           {send(200, "text/html", "<p>"), ErrBadAnswer, 200, ""},
			"broken JSON":        {send(200, app, `{"jsonrpc"`), ErrBadAnswer, 200, ""},
			"duplicate member":   {send(200, app, `{"a":1,"a":2}`), canon.ErrDuplicateMember, 200, ""},
			"too deep":           {send(200, app, strings.Repeat("[", 10_000)), canon.ErrTooDeep, 200, ""},
			"a gateway's error":  {send(502, "text/html", "<p>"), ErrStatus, 502, ""},
			"JSON without error": {send(503, app, `{"message":"busy"}`), ErrStatus, 503, ""},
			"401": {func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", `DIDWba realm="h", error="invalid_signature", error_description="no"`)
				w.WriteHeader(401)
			}, ErrStatus, 401, "invalid_signature"},
			"superseded":          {send(409, app, `{"code":"did_superseded","currentDid":"x"}`), ErrStatus, 409, "did_superseded"},
			"nothing":             {send(200, app, `{}`), ErrBadAnswer, 0, ""},
			"message, not task":   {send(200, app, body(`{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]}}`)), ErrBadAnswer, 0, ""},
			"unknown state":       {send(200, app, body(`{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_DONE"}}}`)), ErrBadAnswer, 0, ""},
			"state without place": {send(200, app, body(`{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_AUTH_REQUIRED"}}}`)), ErrBadAnswer, 0, ""},
			"no task id":          {send(200, app, body(`{"task":{"contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}`)), ErrBadAnswer, 0, ""},
			"other context":       {send(200, app, body(strings.Replace(goodTask, `"c"`, `"d"`, 1))), ErrBadAnswer, 0, ""},
			"other task":          {send(200, app, body(strings.Replace(goodTask, `"t"`, `"u"`, 1))), ErrBadAnswer, 0, ""},
			"two artifacts":       {send(200, app, body(task(`,"artifacts":[`+artifact+`,`+artifact+`]`))), ErrBadAnswer, 0, ""},
			"two envelopes":       {send(200, app, body(task(`,"artifacts":[`+strings.Replace(artifact, "[{", "["+part("Yg==")+",{", 1)+`]`))), ErrBadAnswer, 0, ""},
			"connection cut":      {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil, 0, ""},
		} {
			t.Run(binding+" "+name, func(t *testing.T) {
				c := peerClient(t, binding, test.peer, func(c *ClientConfig) { c.MaxResponse = 64 << 10 })
				_, err := c.SendEnvelope(t.Context(), "c", "t", []byte("x"))
				var e *TransportError
				if !errors.As(err, &e) || test.want != nil && !errors.Is(err, test.want) {
					t.Fatalf("got %v", err)
				}
				if e.Status != test.status || e.Code != test.code {
					t.Errorf("status %d, code %q", e.Status, e.Code)
				}
			})
		}
		good := peerClient(t, binding, send(200, app, body(task(`,"artifacts":[{"artifactId":"x","parts":[{"text":"y"}]},`+artifact+`]`))))
		if r, err := good.SendEnvelope(t.Context(), "c", "t", []byte("x")); err != nil || string(r.Envelope) != "a" || !r.Artifact {
			t.Errorf("good answer: %+v, %v", r, err)
		}
	}
}

func TestClientTimesOut(t *testing.T) {
	block := make(chan struct{})
	for _, binding := range bindings {
		silent := func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-block:
			case <-r.Context().Done():
			}
		}
		c := peerClient(t, binding, silent, func(c *ClientConfig) { c.Timeout = 50 * time.Millisecond })
		var e *TransportError
		if _, err := c.SendEnvelope(t.Context(), "", "", []byte("x")); !errors.As(err, &e) {
			t.Errorf("silent peer: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.SendEnvelope(ctx, "", "", []byte("x")); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	}
	close(block)
}

// A peer's words are bounded and cannot break a log line; a code that is not in the table is kept and not retryable.
func TestClientDistrustsWords(t *testing.T) {
	answer := func(reason string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":"1","error":{"code":-32600,"message":"m\u001b[31m\n","data":[{"@type":"type.googleapis.com/google.protobuf.Struct","reason":%q,"domain":%q,"text":"a\nb\u2028c%s","retryable":"true"}]}}`,
				reason, wellknown.ExtensionURI, strings.Repeat("x", 2000))
		}
	}
	_, err := peerClient(t, wellknown.BindingJSONRPC, answer("FROM_LATER")).SendEnvelope(t.Context(), "", "", []byte("x"))
	var r *envelope.Refusal
	if !errors.As(err, &r) || r.Code != "FROM_LATER" || r.Code.Retryable() || len(r.Reason) > maxRefusalText || !strings.HasPrefix(r.Reason, "a b c") {
		t.Errorf("%#v", err)
	}
	_, err = peerClient(t, wellknown.BindingJSONRPC, answer("no code")).SendEnvelope(t.Context(), "", "", []byte("x"))
	var p *PeerError
	if !errors.As(err, &p) || !errors.Is(err, sdk.ErrInvalidRequest) || strings.ContainsAny(p.Text, "\n\x1b") {
		t.Errorf("%#v", err)
	}
}

// A probe learns whether the peer lets its caller in, and leaves nothing behind.
func TestClientProbe(t *testing.T) {
	for _, binding := range bindings {
		b := newBench(t)
		if err := b.client(t, &buyer, binding).Probe(t.Context()); err != nil {
			t.Errorf("%s: %v", binding, err)
		}
		unknown := newParty("unknown.example.com", 9)
		var e *TransportError
		if err := b.client(t, &unknown, binding).Probe(t.Context()); !errors.As(err, &e) || e.Code == "" {
			t.Errorf("%s, unknown DID: %v", binding, err)
		}
		if len(b.received) != 0 {
			t.Errorf("%s: a probe was taken for an envelope", binding)
		}
	}
}

// Without a signature, or with a wrong one, the verifier answers; the client says so.
func TestClientUnsigned(t *testing.T) {
	for _, binding := range bindings {
		b := newBench(t)
		_, err := b.client(t, nil, binding).SendEnvelope(t.Context(), "", "", []byte("x"))
		if !errors.Is(err, sdk.ErrUnauthenticated) {
			t.Errorf("unsigned: %v", err)
		}
		unknown := newParty("unknown.example.com", 9)
		_, err = b.client(t, &unknown, binding).SendEnvelope(t.Context(), "", "", []byte("x"))
		var e *TransportError
		if !errors.As(err, &e) || e.Status < 400 || e.Code == "" {
			t.Errorf("unknown DID: %v", err)
		}
		if len(b.received) != 0 {
			t.Error("an envelope of nobody was received")
		}
	}
}

func TestNewClientRefusals(t *testing.T) {
	hc := &http.Client{Transport: &httpsig.Transport{}}
	raw := must(wellknown.BuildCard(t.Context(), wellknown.CardSpec{Agent: vendor.id, Name: "V", Description: "V", Origin: origin}, vendor.signer))
	verified := must(wellknown.VerifyCard(raw, vendor.doc, start))
	plain := *verified.Card
	plain.Capabilities.Extensions = nil
	for name, test := range map[string]struct {
		cfg  ClientConfig
		want error
	}{
		"no card":         {ClientConfig{HTTP: hc}, nil},
		"unverified card": {ClientConfig{Card: &wellknown.VerifiedCard{Card: &plain}, HTTP: hc}, nil},
		"no transport":    {ClientConfig{Card: verified, HTTP: http.DefaultClient}, nil},
		"no extension":    {ClientConfig{Card: &wellknown.VerifiedCard{Card: &plain, Agent: vendor.id}, HTTP: hc}, wellknown.ErrNoExtension},
		"other binding":   {ClientConfig{Card: verified, HTTP: hc, Binding: "GRPC"}, wellknown.ErrNoInterface},
	} {
		if _, err := NewClient(test.cfg); err == nil || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// body answers every request with the same content.
type body []byte

func (b body) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(bytes.NewReader(b)), ContentLength: int64(len(b)),
	}, nil
}

// Whatever a peer answers is a reply within its bounds or one of three errors.
func FuzzReply(f *testing.F) {
	raw := must(wellknown.BuildCard(f.Context(), wellknown.CardSpec{Agent: vendor.id, Name: "V", Description: "V", Origin: origin}, vendor.signer))
	card := must(wellknown.VerifyCard(raw, vendor.doc, start))
	artifact := fmt.Sprintf(`{"artifactId":"a","extensions":[%q],"parts":[{"raw":"YQ==","mediaType":%q}]}`, wellknown.ExtensionURI, envelope.MediaType)
	for _, result := range []string{goodTask, strings.Replace(goodTask, `"}}}`, `"},"artifacts":[`+artifact+`]}}`, 1)} {
		f.Add([]byte(answered(wellknown.BindingJSONRPC, result)))
		f.Add([]byte(answered(wellknown.BindingHTTPJSON, result)))
	}
	f.Add([]byte(`{"jsonrpc":"2.0","id":"1","error":{"code":-32001,"message":"x"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, binding := range bindings {
			c := must(NewClient(ClientConfig{Card: card, Binding: binding, HTTP: &http.Client{Transport: body(data)}, MaxResponse: 64 << 10}))
			r, err := c.SendEnvelope(t.Context(), "c", "t", []byte("x"))
			var refusal *envelope.Refusal
			var peer *PeerError
			var transport *TransportError
			switch {
			case err == nil && (r.TaskID != "t" || r.ContextID != "c" || r.State == "" || r.Artifact && r.Envelope == nil):
				t.Fatalf("%s: %+v", binding, r)
			case err != nil && !errors.As(err, &refusal) && !errors.As(err, &peer) && !errors.As(err, &transport):
				t.Fatalf("%s: %#v", binding, err)
			}
		}
	})
}
