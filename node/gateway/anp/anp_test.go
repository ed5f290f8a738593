// SPDX-License-Identifier: Apache-2.0

package anp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/node/internal/clock"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

const service = "did:wba:vendorcorp.test"

// party can make origin proofs.
type party struct {
	did.Signer
	doc *did.Document
}

func newParty(t testing.TB, domain string) party {
	t.Helper()
	key, err := did.GenerateKey(did.Ed25519)
	if err != nil {
		t.Fatal(err)
	}
	id := parse(t, "did:wba:"+domain+":agents:analyst:e1_"+key.Public().Thumbprint())
	signer, err := did.NewSigner(did.KeyID(id, "signing", key.Public()), key)
	if err != nil {
		t.Fatal(err)
	}
	unsigned, err := did.BuildDocument(did.DocumentSpec{ID: id, Binding: did.MethodSpec{ID: signer.KeyID(), Key: key.Public()}})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := did.SignDocument(t.Context(), unsigned, signer, start, did.DialectSpec)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := did.ParseDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	return party{signer, doc}
}

func parse(t testing.TB, s string) did.DID {
	t.Helper()
	id, err := did.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// world is a handler with two parties that it can look up.
type world struct {
	*clock.Fake
	t            testing.TB
	buyer, other party
	agent        did.DID
	handler      http.Handler
	lookups      atomic.Int64
	calls        atomic.Int64
	denied       string
	nonce        string              // of the next proof, "" for one of the caller's own
	do           func() (any, error) // what x.write does
}

func (w *world) Resolve(_ context.Context, id did.DID) (*did.Document, error) {
	w.lookups.Add(1)
	for _, p := range []party{w.buyer, w.other} {
		if p.doc.ID() == id {
			return p.doc, nil
		}
	}
	return nil, errors.New("no such DID on 10.0.0.7")
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, buyer: newParty(t, "buyercorp.test"), other: newParty(t, "othercorp.test"), Fake: clock.NewFake(start), agent: parse(t, service+":agents:steward:x")}
	w.do = func() (any, error) { return map[string]int64{"call": w.calls.Load()}, nil }
	v, err := httpsig.NewVerifier(httpsig.Options{
		Origins: []string{"https://vendorcorp.test"}, Resolver: w, Now: w.Now,
		Nonces: httpsig.NewMemoryNonces(httpsig.MemoryNonceOptions{Now: w.Now}),
		Admit: func(id did.DID) error {
			if id.Host() == w.denied {
				return errors.New("denied")
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.handler, err = Handler(Config{
		Service: parse(t, service), Agents: func(id did.DID) (did.DID, bool) {
			return w.agent, id == w.agent || id.String() == service+":agents:steward:old"
		}, Verifier: v, Now: w.Now,
		Speaks: func() any { return map[string]string{"extension": "x"} },
		Methods: []Method{
			{Name: "x.write", Profile: "x.test.v1", Handle: func(context.Context, Call) (any, error) { w.calls.Add(1); return w.do() }},
			{Name: "x.agent", Profile: "x.test.v1", Target: AgentAddressed, Anonymous: true, Handle: func(_ context.Context, c Call) (any, error) {
				return map[string]bool{"known": c.Sender != nil}, nil
			}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

type object1 = map[string]any

// write is a good x.write request without its proof.
func (w *world) write() object1 {
	return object1{"jsonrpc": "2.0", "id": "1", "method": "x.write", "params": object1{
		"meta": object1{
			"profile": "x.test.v1", "security_profile": "transport-protected", "sender_did": w.buyer.doc.ID().String(),
			"target": object1{"kind": "service", "did": service}, "operation_id": "op-1", "created_at": "2026-11-30T12:00:00Z",
		},
		"body": object1{"n": "1"},
	}}
}

func capabilities() object1 {
	return object1{"jsonrpc": "2.0", "id": "1", "method": "anp.get_capabilities", "params": object1{
		"meta": object1{"profile": CoreProfile, "security_profile": "transport-protected"}, "body": object1{},
	}}
}

func params(q object1) object1 { return q["params"].(object1) }
func meta(q object1) object1   { return params(q)["meta"].(object1) }

// sign adds an origin proof.
func (w *world) sign(q object1, s did.Signer) object1 {
	w.t.Helper()
	raw := func(v any) json.RawMessage {
		b, err := json.Marshal(v)
		if err != nil {
			w.t.Fatal(err)
		}
		return b
	}
	proof, err := httpsig.SignOrigin(w.t.Context(), httpsig.OriginRequest{Method: q["method"].(string), Meta: raw(meta(q)), Body: raw(params(q)["body"])}, s, httpsig.SignOptions{Created: w.Now(), Nonce: w.nonce})
	if err != nil {
		w.t.Fatal(err)
	}
	params(q)["auth"] = object1{"scheme": httpsig.OriginScheme, "origin_proof": raw(proof)}
	return q
}

type answer struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      *string         `json:"id"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    struct {
			Name      string            `json:"anp_code"`
			Retryable bool              `json:"retryable"`
			Details   map[string]string `json:"details"`
		} `json:"data"`
	} `json:"error"`
}

func (w *world) post(body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "https://vendorcorp.test/anp", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, r)
	return rec
}

func (w *world) send(q any) answer {
	w.t.Helper()
	body, ok := q.(string)
	if !ok {
		b, err := json.Marshal(q)
		if err != nil {
			w.t.Fatal(err)
		}
		body = string(b)
	}
	rec := w.post([]byte(body))
	var a answer
	if rec.Code != http.StatusOK || json.Unmarshal(rec.Body.Bytes(), &a) != nil || a.JSONRPC != "2.0" || (a.Error == nil) == (a.Result == nil) {
		w.t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	if rec.Header().Get("Cache-Control") != "no-store" {
		w.t.Error("the answer may be cached")
	}
	return a
}

func TestCapabilities(t *testing.T) {
	w := newWorld(t)
	a := w.send(capabilities())
	var c Capabilities
	if a.Error != nil || json.Unmarshal(a.Result, &c) != nil {
		t.Fatalf("%+v", a)
	}
	if c.ServiceDID != service || fmt.Sprint(c.Profiles) != "[anp.core.binding.v1 anp.identity.discovery.v1 x.test.v1]" || fmt.Sprint(c.SecurityProfiles) != "[transport-protected]" ||
		c.Limits["max_request_bytes"] != "1048576" || fmt.Sprint(c.Methods) != "[anp.get_capabilities x.write x.agent]" || c.Treaty == nil {
		t.Errorf("%s", a.Result)
	}
	if w.lookups.Load() != 0 {
		t.Error("an anonymous call made a look-up")
	}
	// With a proof it must hold, though none is asked for.
	q := capabilities()
	meta(q)["sender_did"], meta(q)["target"], meta(q)["operation_id"] = w.buyer.doc.ID().String(), object1{"kind": "service", "did": service}, "op"
	if a := w.send(w.sign(q, w.buyer)); a.Error != nil {
		t.Errorf("signed: %+v", a.Error)
	}
	meta(q)["operation_id"] = "op-2" // no longer what was signed
	if a := w.send(q); a.Error == nil || a.Error.Code != 1005 {
		t.Errorf("a proof that does not hold: %+v", a)
	}
}

// TestRefusals sends one damaged request each. Nothing is done, and before the proof nobody is looked up.
func TestRefusals(t *testing.T) {
	type change = func(w *world, q object1)
	set := func(at string, v any) change {
		return func(_ *world, q object1) {
			switch name, member, _ := strings.Cut(at, "."); {
			case name == "meta" && v == nil:
				delete(meta(q), member)
			case name == "meta":
				meta(q)[member] = v
			case name == "params":
				params(q)[member] = v
			case v == nil:
				delete(q, name)
			default:
				q[name] = v
			}
		}
	}
	damaged := []struct {
		name   string
		before change // before it is signed
		after  change
		code   int
		anp    string
	}{
		{name: "id: a number", after: set("id", 7), code: 1000, anp: "anp.invalid_request_id"},
		{name: "id: null", after: func(_ *world, q object1) { q["id"] = nil }, code: 1000, anp: "anp.invalid_request_id"},
		{name: "id: empty", after: set("id", ""), code: 1000, anp: "anp.invalid_request_id"},
		{name: "id: an object", after: set("id", object1{}), code: 1000, anp: "anp.invalid_request_id"},
		{name: "id: too long", after: set("id", strings.Repeat("x", 257)), code: 1000, anp: "anp.invalid_request_id"},
		{name: "jsonrpc: 1.0", after: set("jsonrpc", "1.0"), code: -32600},
		{name: "jsonrpc: missing", after: set("jsonrpc", nil), code: -32600},
		{name: "jsonrpc: a number", after: set("jsonrpc", 2.0), code: -32600},
		{name: "an unknown member", after: set("extra", 1), code: -32600},
		{name: "method: a number", after: set("method", 1), code: -32600},
		{name: "method: upper case", after: set("method", "X.write"), code: -32600},
		{name: "method: an empty section", after: set("method", "x..write"), code: -32600},
		{name: "method: a space", after: set("method", "x.wri te"), code: -32600},
		{name: "method: rpc.", after: set("method", "rpc.write"), code: -32600},
		{name: "method: unknown", after: set("method", "x.read"), code: -32601},
		{name: "method: anp.negotiate", after: func(_ *world, q object1) {
			q["method"] = "anp.negotiate"
			meta(q)["profile"] = "anp.meta.negotiation.v1"
		}, code: -32601},
		{name: "params: an array", after: set("params", []any{1}), code: 1003, anp: "anp.invalid_params_shape"},
		{name: "params: missing", after: func(_ *world, q object1) { delete(q, "params") }, code: 1003, anp: "anp.invalid_params_shape"},
		{name: "params: an unknown member", after: set("params.client", object1{}), code: 1003, anp: "anp.invalid_params_shape"},
		{name: "body: missing", after: func(_ *world, q object1) { delete(params(q), "body") }, code: 1003, anp: "anp.invalid_params_shape"},
		{name: "body: an array", after: set("params.body", []any{}), code: 1003, anp: "anp.invalid_params_shape"},
		{name: "meta: missing", after: func(_ *world, q object1) { delete(params(q), "meta") }, code: 1003, anp: "anp.invalid_params_shape"},
		{name: "meta: an unknown member", before: set("meta.priority", "high"), code: 1003, anp: "anp.invalid_params_shape"},
		{name: "meta: a member in another case", before: set("meta.Profile", "x.test.v1"), code: 1003, anp: "anp.invalid_params_shape"},
		{name: "meta: a member of another type", after: set("meta.profile", 1), code: 1003, anp: "anp.invalid_params_shape"},
		{name: "meta: created_at is no time", before: set("meta.created_at", "yesterday"), code: 1003, anp: "anp.invalid_params_shape"},
		{name: "meta: a long operation_id", before: set("meta.operation_id", strings.Repeat("x", 257)), code: 1003, anp: "anp.invalid_params_shape"},
		{name: "profile: missing", before: set("meta.profile", nil), code: 1003, anp: "anp.invalid_params_shape"},
		{name: "profile: another", before: set("meta.profile", "anp.direct.base.v1"), code: 1001, anp: "anp.unsupported_profile"},
		{name: "security profile: missing", before: set("meta.security_profile", nil), code: 1003, anp: "anp.invalid_params_shape"},
		{name: "security profile: end to end", before: set("meta.security_profile", "direct-e2ee"), code: 1002, anp: "anp.unsupported_security_profile"},
		{name: "content type: another", before: set("meta.content_type", "text/plain"), code: 1009, anp: "anp.unsupported_content_type"},
		{name: "device: sender", before: set("meta.sender_device_id", "dev"), code: 1003, anp: "anp.invalid_params_shape"},
		{name: "device: recipient", before: set("meta.recipient_device_id", "dev"), code: 1003, anp: "anp.invalid_params_shape"},
		{name: "target: missing", after: set("meta.target", nil), code: 1014, anp: "anp.invalid_target_binding"},
		{name: "target: of kind device", after: set("meta.target", object1{"kind": "device", "did": service}), code: 1014, anp: "anp.invalid_target_binding"},
		{name: "target: a URL", after: set("meta.target", object1{"kind": "service", "did": "https://vendorcorp.test"}), code: 1014, anp: "anp.invalid_target_binding"},
		{name: "target: an unknown member", after: set("meta.target", object1{"kind": "service", "did": service, "url": "x"}), code: 1014, anp: "anp.invalid_target_binding"},
		{name: "target: an agent for a service's method", before: set("meta.target", object1{"kind": "agent", "did": service}), code: 1014, anp: "anp.invalid_target_binding"},
		{name: "target: another service", before: set("meta.target", object1{"kind": "service", "did": "did:wba:othercorp.test"}), code: 1007, anp: "anp.target_not_found"},
		{name: "sender: missing", after: set("meta.sender_did", nil), code: 1003, anp: "anp.invalid_params_shape"},
		{name: "sender: no DID", after: set("meta.sender_did", "buyercorp.test"), code: 1003, anp: "anp.invalid_params_shape"},
		{name: "operation_id: missing", before: set("meta.operation_id", nil), code: 1003, anp: "anp.invalid_params_shape"},
		{name: "auth: missing", after: func(_ *world, q object1) { delete(params(q), "auth") }, code: 1005, anp: "anp.unauthorized"},
		{name: "auth: another scheme", after: func(_ *world, q object1) { params(q)["auth"].(object1)["scheme"] = "bearer" }, code: 1005, anp: "anp.unauthorized"},
		{name: "auth: an unknown member", after: func(_ *world, q object1) { params(q)["auth"].(object1)["token"] = "t" }, code: 1003, anp: "anp.invalid_params_shape"},
		{name: "auth: another shape", after: func(_ *world, q object1) { params(q)["auth"].(object1)["origin_proof"] = "x" }, code: 1003, anp: "anp.invalid_params_shape"},
		{name: "proof: empty", after: func(_ *world, q object1) { params(q)["auth"].(object1)["origin_proof"] = object1{} }, code: 1005, anp: "anp.unauthorized"},
		{name: "proof: body changed", after: set("params.body", object1{"n": "2"}), code: 1005, anp: "anp.unauthorized"},
		{name: "proof: meta changed", after: set("meta.message_id", "m"), code: 1005, anp: "anp.unauthorized"},
		{name: "proof: an x_ member added", after: set("meta.x_note", "m"), code: 1005, anp: "anp.unauthorized"},
		{name: "proof: of another sender", after: func(w *world, q object1) { meta(q)["sender_did"] = w.other.doc.ID().String() }, code: 1005, anp: "anp.unauthorized"},
		{name: "proof: expired", after: func(w *world, _ object1) { w.Advance(5 * time.Minute) }, code: 1005, anp: "anp.unauthorized"},
		{name: "proof: from the future", after: func(w *world, _ object1) { w.Advance(-5 * time.Minute) }, code: 1005, anp: "anp.unauthorized"},
		{name: "sender denied", after: func(w *world, _ object1) { w.denied = "buyercorp.test" }, code: 1006, anp: "anp.forbidden"},
	}
	for _, c := range damaged {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			q := w.write()
			if c.before != nil {
				c.before(w, q)
			}
			w.sign(q, w.buyer)
			if c.after != nil {
				c.after(w, q)
			}
			a := w.send(q)
			if a.Error == nil || a.Error.Code != c.code || a.Error.Data.Name != c.anp || a.Error.Message == "" {
				t.Fatalf("%+v, error %+v", a, a.Error)
			}
			if id, ok := q["id"].(string); ok && id != "" && len(id) <= 256 && (a.ID == nil || *a.ID != id) {
				t.Errorf("the answer's id is %v", a.ID)
			}
			if w.calls.Load() != 0 || w.lookups.Load() != 0 && !strings.HasPrefix(c.name, "proof: ") {
				t.Errorf("%d calls, %d look-ups", w.calls.Load(), w.lookups.Load())
			}
			if strings.Contains(fmt.Sprint(a.Error), "10.0.0") {
				t.Error("the answer tells internals")
			}
		})
	}
	for _, c := range []struct {
		name, body string
		code       int
	}{
		{"empty", "", -32700},
		{"not JSON", "{", -32700},
		{"two values", `{} {}`, -32700},
		{"a member twice", `{"jsonrpc":"2.0","id":"1","id":"2","method":"x.write","params":{}}`, -32700},
		{"too deep", `{"jsonrpc":"2.0","id":"1","method":"x.write","params":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, -32700},
		{"too large", `{"jsonrpc":"2.0","id":"1","method":"` + strings.Repeat("x", MaxRequestBytes) + `","params":{}}`, -32700},
		{"a number", "7", -32600},
		{"a string", `"x"`, -32600},
		{"null", "null", -32600},
		{"a batch", `[{"jsonrpc":"2.0","id":"1","method":"anp.get_capabilities","params":{}}]`, 1004},
		{"an empty batch", `[]`, 1004},
		{"no method and no id", `{"jsonrpc":"2.0"}`, -32600},
	} {
		t.Run(c.name, func(t *testing.T) {
			if a := newWorld(t).send(c.body); a.Error == nil || a.Error.Code != c.code || a.ID != nil {
				t.Errorf("%+v", a.Error)
			}
		})
	}
}

func TestHTTP(t *testing.T) {
	w := newWorld(t)
	good, _ := json.Marshal(capabilities())
	for _, c := range []struct {
		name, method, mediaType string
		body                    []byte
		status                  int
	}{
		{"GET", http.MethodGet, "application/json", nil, http.StatusMethodNotAllowed},
		{"text", http.MethodPost, "text/plain", good, http.StatusUnsupportedMediaType},
		{"no type", http.MethodPost, "", good, http.StatusUnsupportedMediaType},
		{"a notification", http.MethodPost, "application/json", bytes.Replace(good, []byte(`"id":"1",`), nil, 1), http.StatusNoContent},
	} {
		r := httptest.NewRequest(c.method, "https://vendorcorp.test/anp", bytes.NewReader(c.body))
		r.Header.Set("Content-Type", c.mediaType)
		rec := httptest.NewRecorder()
		w.handler.ServeHTTP(rec, r)
		if rec.Code != c.status || c.status == http.StatusNoContent && rec.Body.Len() != 0 {
			t.Errorf("%s: status %d %q", c.name, rec.Code, rec.Body)
		}
	}
	// A notification of a method that changes state does nothing either.
	q := w.sign(w.write(), w.buyer)
	delete(q, "id")
	body, _ := json.Marshal(q)
	if rec := w.post(body); rec.Code != http.StatusNoContent || w.calls.Load() != 0 {
		t.Errorf("status %d, %d calls", rec.Code, w.calls.Load())
	}
}

// TestExtensions: x_ members are ignored; deprecated ones decide nothing.
func TestExtensions(t *testing.T) {
	w := newWorld(t)
	q := w.write()
	meta(q)["x_trace_id"], meta(q)["anp_version"], meta(q)["trace_id"], meta(q)["content_type"] = object1{"a": []int{1}}, "9.9", "t", "application/json"
	if a := w.send(w.sign(q, w.buyer)); a.Error != nil || w.calls.Load() != 1 {
		t.Errorf("%+v", a.Error)
	}
	for _, c := range []struct {
		target any
		code   int
	}{{object1{"kind": "agent", "did": w.agent.String()}, 0}, {object1{"kind": "service", "did": service}, 1014}, {object1{"kind": "agent", "did": service}, 1007}, {nil, 1014}, {object1{"kind": "agent", "did": service + ":agents:steward:old"}, 1019}} {
		q := w.write()
		q["method"] = "x.agent"
		meta(q)["target"] = c.target
		if c.target == nil {
			delete(meta(q), "target")
		}
		// A sender that proves nothing is nobody.
		a := w.send(q)
		if (a.Error == nil) != (c.code == 0) || a.Error != nil && a.Error.Code != c.code || a.Error == nil && string(a.Result) != `{"known":false}` {
			t.Errorf("target %v: %+v %s", c.target, a.Error, a.Result)
		}
	}
}

// TestOperations: one operation is done once, whoever repeats it and how.
func TestOperations(t *testing.T) {
	w := newWorld(t)
	first := w.sign(w.write(), w.buyer)
	want := w.send(first)
	if want.Error != nil {
		t.Fatalf("%+v", want.Error)
	}
	expect := func(name string, q object1, calls int64, code int) {
		t.Helper()
		a := w.send(q)
		if code == 0 && (a.Error != nil || calls == 1 && string(a.Result) != string(want.Result)) || code != 0 && (a.Error == nil || a.Error.Code != code) {
			t.Errorf("%s: %s %+v", name, a.Result, a.Error)
		}
		if n := w.calls.Load(); n != calls {
			t.Errorf("%s: %d calls, want %d", name, n, calls)
		}
	}
	expect("the very request", first, 1, 0)
	again := maps.Clone(first)
	again["id"] = "another"
	expect("under another id", again, 1, 0)
	expect("with a fresh proof", w.sign(w.write(), w.buyer), 1, 0)
	later := w.write()
	meta(later)["created_at"], meta(later)["x_attempt"] = "2026-11-30T12:00:05Z", "2"
	expect("later", w.sign(later, w.buyer), 1, 0)
	other := w.write()
	params(other)["body"] = object1{"n": "2"}
	expect("another body under the same operation", w.sign(other, w.buyer), 1, 1008)
	stolen := w.sign(w.write(), w.buyer)
	params(stolen)["auth"].(object1)["origin_proof"] = json.RawMessage(`{"contentDigest":"x","signatureInput":"y","signature":"z"}`)
	expect("asked for without a proof", stolen, 1, 1005)
	theirs := w.write()
	meta(theirs)["sender_did"] = w.other.doc.ID().String()
	expect("another sender's operation of that name", w.sign(theirs, w.other), 2, 0)
	next := w.write()
	meta(next)["operation_id"] = "op-2"
	expect("another operation", w.sign(next, w.buyer), 3, 0)
	// The proof of an operation is not good for another one.
	replay := w.write()
	meta(replay)["operation_id"] = "op-3"
	params(replay)["auth"] = params(next)["auth"]
	expect("with another operation's proof", replay, 3, 1005)
	// What its own sender has repeated long after its proof expired is still the same operation.
	w.Advance(time.Hour)
	expect("an hour later", first, 3, 0)
	w.Advance(OperationAge)
	expect("a day later it is forgotten, and its proof is expired", first, 3, 1005)
}

// TestReplay_IsAnsweredWithANonce: where the caller's own nonce is not accepted, the answer brings one that is.
func TestReplay_IsAnsweredWithANonce(t *testing.T) {
	w := newWorld(t)
	q := capabilities()
	meta(q)["sender_did"], meta(q)["target"] = w.buyer.doc.ID().String(), object1{"kind": "service", "did": service}
	w.sign(q, w.buyer)
	if a := w.send(q); a.Error != nil { // without an operation_id nothing is remembered but the nonce
		t.Fatalf("%+v", a.Error)
	}
	a := w.send(q)
	if a.Error == nil || a.Error.Code != 1005 || a.Error.Data.Details["code"] != "invalid_nonce" {
		t.Fatalf("a replay: %+v", a.Error)
	}
	w.nonce = a.Error.Data.Details["nonce"]
	if a := w.send(w.sign(q, w.buyer)); a.Error != nil {
		t.Errorf("with the nonce of the answer: %+v", a.Error)
	}
}

func TestOperations_FailuresThatMayPassAreTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.do = func() (any, error) { return nil, errors.New("the disk at /secret is full") }
	a := w.send(w.sign(w.write(), w.buyer))
	if a.Error == nil || a.Error.Code != -32603 || !a.Error.Data.Retryable || len(a.Error.Data.Details) != 0 {
		t.Fatalf("%+v", a.Error)
	}
	w.do = func() (any, error) { return nil, Refuse(DeliveryRejected, "no") }
	for range 2 {
		if a := w.send(w.sign(w.write(), w.buyer)); a.Error == nil || a.Error.Code != 1010 || a.Error.Data.Retryable {
			t.Errorf("%+v", a.Error)
		}
	}
	if n := w.calls.Load(); n != 2 {
		t.Errorf("%d calls: a decision is not made twice, a failure is", n)
	}
}

// TestOperations_Concurrent: of many that arrive at once, one is done and all get its answer.
func TestOperations_Concurrent(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	w.do = func() (any, error) { <-release; return "done", nil }
	var wg sync.WaitGroup
	results := make(chan string, 16)
	for range 16 {
		body, err := json.Marshal(w.sign(w.write(), w.buyer))
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { results <- w.post(body).Body.String() })
	}
	for w.calls.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	close(release)
	wg.Wait()
	close(results)
	for r := range results {
		if !strings.Contains(r, `"result":"done"`) {
			t.Error(r)
		}
	}
	if n := w.calls.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
}

func TestOperations_AreBounded(t *testing.T) {
	now := start
	o := newOperations(func() time.Time { return now })
	begin := func(sender, id string) *Error {
		op, first, err := o.begin(Scope{Sender: sender, OperationID: id}, canon.Digest{}, canon.Digest{})
		if first {
			o.end(op, outcome{result: []byte("1")})
		}
		return err
	}
	for i := range maxOperationsPerSender {
		if err := begin("a", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := begin("a", "one more"); err == nil || err.Code != RateLimited {
		t.Errorf("%v", err)
	}
	if err := begin("a", "0"); err != nil {
		t.Errorf("a repetition: %v", err)
	}
	for i := range maxOperations - maxOperationsPerSender {
		if err := begin(fmt.Sprint("b", i), "1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := begin("c", "1"); err == nil || err.Code != TemporarilyUnavailable {
		t.Errorf("%v", err)
	}
	now = now.Add(OperationAge)
	if err := begin("a", "one more"); err != nil || o.byScope.Len() != 1 || len(o.senders) != 1 {
		t.Errorf("%v; %d operations, %d senders", err, o.byScope.Len(), len(o.senders))
	}
}

func TestErrorTable(t *testing.T) {
	seen := map[string]bool{}
	for c := Code(1000); c <= 1021; c++ {
		if name := c.Name(); !strings.HasPrefix(name, "anp.") || seen[name] || codes[c].message == "" {
			t.Errorf("%d: %q", c, name)
		}
		seen[c.Name()] = true
	}
	requested, current := parse(t, "did:wba:a.test"), parse(t, "did:wba:b.test")
	for _, c := range []struct {
		err  error
		want Code
	}{
		{&httpsig.Error{Code: httpsig.InvalidNonce}, Unauthorized},
		{&httpsig.Error{Code: httpsig.ForbiddenDID}, Forbidden},
		{&httpsig.Error{Code: httpsig.Unavailable}, TemporarilyUnavailable},
		{fmt.Errorf("%w: %w", httpsig.ErrNonceQuota, &httpsig.Error{Code: httpsig.Unavailable}), RateLimited},
		{&httpsig.Error{Code: httpsig.DIDSuperseded, Requested: requested, Current: current}, DIDSuperseded},
		{fmt.Errorf("%w: %w", &httpsig.Error{Code: httpsig.InvalidDID}, &resolver.Error{Code: resolver.CodeSuccessorChanged}), DIDTransitionConflict},
		{fmt.Errorf("%w: %w", &httpsig.Error{Code: httpsig.InvalidDID}, &resolver.Error{Code: resolver.CodeTransitionConflict}), DIDTransitionConflict},
		{fmt.Errorf("%w: %w", &httpsig.Error{Code: httpsig.InvalidDID}, &resolver.Error{Code: resolver.CodeReactivated}), DIDTransitionInvalid},
		{errors.New("x"), InternalError},
		{fmt.Errorf("x: %w", Refuse(Forbidden, "no")), Forbidden},
	} {
		e := asError(c.err)
		if e.Code != c.want {
			t.Errorf("%v is %d", c.err, e.Code)
		}
		if e.Code == DIDSuperseded && (e.Details["requested_did"] != requested.String() || e.Details["current_did"] != current.String()) {
			t.Errorf("%v", e.Details)
		}
	}
}

func TestHandler_Configuration(t *testing.T) {
	method := Method{Name: "x.y", Profile: "x.v1", Handle: func(context.Context, Call) (any, error) { return nil, nil }}
	for name, c := range map[string]Config{
		"no service":        {Verifier: &httpsig.Verifier{}},
		"no verifier":       {Service: parse(t, service)},
		"a method twice":    {Service: parse(t, service), Verifier: &httpsig.Verifier{}, Methods: []Method{method, method}},
		"a standard method": {Service: parse(t, service), Verifier: &httpsig.Verifier{}, Methods: []Method{{Name: "anp.get_capabilities", Profile: "x", Handle: method.Handle}}},
		"no handler":        {Service: parse(t, service), Verifier: &httpsig.Verifier{}, Methods: []Method{{Name: "x.y", Profile: "x"}}},
	} {
		if _, err := Handler(c); err == nil {
			t.Error(name)
		}
	}
}

// FuzzParseRequest: whatever is posted, a request that is accepted keeps what the package promises.
func FuzzParseRequest(f *testing.F) {
	for _, q := range []object1{capabilities(), {"jsonrpc": "2.0", "id": "1", "method": "x.write", "params": object1{
		"meta": object1{"profile": "p", "sender_did": "did:wba:a.test", "target": object1{"kind": "agent", "did": "did:wba:b.test"}, "x_a": 1},
		"auth": object1{"scheme": httpsig.OriginScheme, "origin_proof": object1{"contentDigest": "d", "signatureInput": "i", "signature": "s"}}, "body": object1{"a": 1},
	}}} {
		b, err := json.Marshal(q)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`[]`))
	f.Add([]byte(` {"id":null}`))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"a.b","params":{"meta":{"Profile":"x"},"body":{}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		q, err := ParseRequest(raw)
		if q == nil {
			t.Fatal("no request")
		}
		if err != nil {
			if e := asError(err); e.Code == InternalError || codes[e.Code].message == "" {
				t.Fatalf("%v", err)
			}
			return
		}
		if (q.ID == "") != q.Notification || !validMethod(q.Method) || q.Body[0] != '{' {
			t.Fatalf("%+v", q)
		}
		if again, err := canon.Canonicalize(q.Body, limits); err != nil || !bytes.Equal(again, q.Body) {
			t.Fatalf("body %s (%v)", q.Body, err)
		}
		if q.Meta.Target != nil {
			if _, err := did.Parse(q.Meta.Target.DID); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := q.digests(); err != nil {
			t.Fatal(err)
		}
	})
}
