// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/resolver/fetch"
	"github.com/treaty-node/treaty/did/resolver/internal/tlstest"
)

const domain = "vendorcorp.test"

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// clock is set by the test.
type clock struct{ ns atomic.Int64 }

func (c *clock) now() time.Time          { return start.Add(time.Duration(c.ns.Load())) }
func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }

// world is one web server for every domain the test names, and a resolver.
type world struct {
	t     testing.TB
	ca    *tlstest.CA
	clock clock
	pins  Pins
	fetch fetch.Config
	o     Options
	r     *Resolver

	mu      sync.Mutex
	answers map[string]http.HandlerFunc // by URL
	hits    map[string]int
	total   atomic.Int64
}

func newWorld(t testing.TB, edits ...func(*world)) *world {
	t.Helper()
	w := &world{t: t, ca: tlstest.NewCA(t), pins: NewMemoryPins(), answers: map[string]http.HandlerFunc{}, hits: map[string]int{}}
	addr := tlstest.Serve(t, w.ca.Cert(t, domain), w)
	w.fetch = fetch.Config{
		RootCAs:      w.ca.Pool(),
		Hosts:        map[string]string{domain + ":443": addr, domain + ":8443": addr},
		MaxRedirects: 3,
		AllowedPorts: []int{443, 8443},
	}
	w.o = Options{Admit: func(did.DID) error { return nil }, Now: w.clock.now}
	for _, edit := range edits {
		edit(w)
	}
	w.restart()
	return w
}

// restart makes a new resolver over the same pins.
func (w *world) restart() {
	if w.r != nil {
		w.o.Client.CloseIdleConnections()
	}
	w.o.Client, w.o.Pins = fetch.NewClient(w.fetch), w.pins
	w.r = New(w.o)
	w.t.Cleanup(w.o.Client.CloseIdleConnections)
}

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	url := "https://" + r.Host + r.URL.Path
	w.mu.Lock()
	h := w.answers[url]
	w.hits[url]++
	w.mu.Unlock()
	w.total.Add(1)
	if h == nil {
		http.NotFound(rw, r)
		return
	}
	h(rw, r)
}

func (w *world) serve(id did.DID, h http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[id.DocumentURL()] = h
}

// publish serves doc with Cache-Control values.
func (w *world) publish(id did.DID, doc []byte, control ...string) {
	w.serve(id, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header()["Cache-Control"] = control
		_, _ = rw.Write(doc)
	})
}

func (w *world) fetches(id did.DID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hits[id.DocumentURL()]
}

// want resolves id and compares the code of the error, "" for none.
func (w *world) want(id did.DID, code Code) *Error {
	w.t.Helper()
	return w.wantCtx(w.t.Context(), id, code)
}

func (w *world) wantCtx(ctx context.Context, id did.DID, code Code) *Error {
	w.t.Helper()
	doc, err := w.r.Resolve(ctx, id)
	var e *Error
	if err != nil && !errors.As(err, &e) {
		w.t.Fatalf("Resolve: %v is no *Error", err)
	}
	if code == "" {
		if err != nil || doc == nil || doc.ID() != id {
			w.t.Errorf("Resolve: %v, %v; want the document", doc, err)
		}
		return nil
	}
	if e == nil {
		w.t.Fatalf("Resolve: no error, want %s", code)
	}
	if doc != nil || e.Code != code || !errors.Is(err, code) || e.DID != id {
		w.t.Fatalf("Resolve: %v, %v; want %s", doc, err, code)
	}
	return e
}

// fresh lets every cached answer run out.
func (w *world) fresh() { w.clock.advance(MaxAge) }

func parse(t testing.TB, s string) did.DID {
	t.Helper()
	id, err := did.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func newKey(t testing.TB, typ did.KeyType) did.PrivateKey {
	t.Helper()
	key, err := did.GenerateKey(typ)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// identity is a DID with its signing key.
type identity struct {
	id  did.DID
	key did.PrivateKey
}

func newE1(t testing.TB) identity {
	t.Helper()
	key := newKey(t, did.Ed25519)
	return identity{parse(t, "did:wba:"+domain+":agents:steward:e1_"+key.Public().Thumbprint()), key}
}

func newK1(t testing.TB) identity {
	t.Helper()
	key := newKey(t, did.Secp256k1)
	return identity{parse(t, "did:wba:"+domain+":agents:steward:k1_"+key.Public().Thumbprint()), key}
}

func named(t testing.TB, s string) identity {
	t.Helper()
	return identity{parse(t, s), newKey(t, did.Ed25519)}
}

// unsigned builds the document without a proof.
func (i identity) unsigned(t testing.TB, edits ...func(*did.DocumentSpec)) []byte {
	t.Helper()
	spec := did.DocumentSpec{ID: i.id, Binding: did.MethodSpec{Key: i.key.Public()}}
	for _, edit := range edits {
		edit(&spec)
	}
	raw, err := did.BuildDocument(spec)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// signed builds the document with a proof by the signing key.
func (i identity) signed(t testing.TB, created time.Time, edits ...func(*did.DocumentSpec)) []byte {
	t.Helper()
	return sign(t, i.unsigned(t, edits...), i.id, i.key, "signing", created)
}

func sign(t testing.TB, unsigned []byte, id did.DID, key did.PrivateKey, role string, created time.Time) []byte {
	t.Helper()
	signer, err := did.NewSigner(did.KeyID(id, role, key.Public()), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := did.SignDocument(t.Context(), unsigned, signer, created, did.DialectSpec)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func deactivated(successor did.DID) func(*did.DocumentSpec) {
	return func(s *did.DocumentSpec) { s.Deactivated, s.SuccessorDID = true, successor }
}

func alias(name string) func(*did.DocumentSpec) {
	return func(s *did.DocumentSpec) { s.AlsoKnownAs = []string{name} }
}

func signingToo(key did.PrivateKey) func(*did.DocumentSpec) {
	return func(s *did.DocumentSpec) { s.Signing = []did.MethodSpec{{Key: key.Public()}} }
}

func hashOf(t testing.TB, raw []byte) canon.Digest {
	t.Helper()
	doc, err := did.ParseDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	return doc.Hash()
}
