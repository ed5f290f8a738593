// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
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

	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/node/store/sqlite"
	"github.com/treaty-node/treaty/wellknown"
)

// The vendor's domain is one for which httptest's certificate is made.
const (
	vendorDomain = "vendor.example.com"
	origin       = "https://" + vendorDomain
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func now() time.Time { return start }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

type party struct {
	id     did.DID
	signer did.Signer
	doc    *did.Document
}

func newParty(domain string, seed byte) party {
	key := must(did.NewPrivateKey(did.Ed25519, bytes.Repeat([]byte{seed}, 32)))
	kex := must(did.NewPrivateKey(did.X25519, bytes.Repeat([]byte{seed + 100}, 32)))
	id := must(did.Parse("did:wba:" + domain + ":agents:steward:e1_" + key.Public().Thumbprint()))
	signer := must(did.NewSigner(did.KeyID(id, "signing", key.Public()), key))
	unsigned := must(did.BuildDocument(did.DocumentSpec{
		ID: id, Binding: did.MethodSpec{Key: key.Public()}, KeyAgreement: []did.MethodSpec{{Key: kex.Public()}},
	}))
	raw := must(did.SignDocument(context.Background(), unsigned, signer, start, did.DialectSpec))
	return party{id: id, signer: signer, doc: must(did.ParseDocument(raw))}
}

var (
	vendor   = newParty(vendorDomain, 1)
	buyer    = newParty("buyer.example.com", 2)
	stranger = newParty("stranger.example.com", 3)
)

// resolver knows the parties.
type resolver struct{}

func (resolver) Resolve(_ context.Context, id did.DID) (*did.Document, error) {
	for _, p := range []party{vendor, buyer, stranger} {
		if p.id == id {
			return p.doc, nil
		}
	}
	return nil, errors.New("no such DID")
}

// negotiator answers from a table, remembers what it was given, and tells callers apart.
type negotiator struct {
	mu       sync.Mutex
	received [][]byte
	answer   func(caller did.DID, envelope []byte) (Reply, error)
	replies  map[did.DID][]Reply // newest first
}

func (n *negotiator) Receive(_ context.Context, caller did.DID, envelope []byte) (Reply, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.received = append(n.received, bytes.Clone(envelope))
	reply, err := n.answer(caller, envelope)
	if err == nil {
		n.replies[caller] = slices.Insert(slices.DeleteFunc(n.replies[caller], func(r Reply) bool { return r.TaskID == reply.TaskID }), 0, reply)
	}
	return reply, err
}

func (n *negotiator) Lookup(_ context.Context, caller did.DID, id string) (Reply, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.replies[caller] {
		if r.TaskID == id {
			return r, nil
		}
	}
	return Reply{}, ErrNotFound
}

func (n *negotiator) List(_ context.Context, caller did.DID, f ListFilter) ([]Reply, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []Reply
	for _, r := range n.replies[caller] {
		if f.ContextID == "" || r.ContextID == f.ContextID {
			out = append(out, r)
		}
	}
	return out[:min(len(out), f.Limit)], nil
}

// bench is a vendor's gateway on a real TLS server, behind the real verifier, over the real store.
type bench struct {
	*negotiator
	handler http.Handler // without the verifier: callers come from WithCaller
	server  *httptest.Server
	card    *wellknown.VerifiedCard
	config  Config
	db      *sqlite.DB
}

func newBench(tb testing.TB, change ...func(*Config)) *bench {
	tb.Helper()
	return newBenchWith(tb, nil, change...)
}

// newBenchWith lets an executor answer plain questions.
func newBenchWith(tb testing.TB, executor a2asrv.AgentExecutor, change ...func(*Config)) *bench {
	tb.Helper()
	ctx := context.Background()
	raw := must(wellknown.BuildCard(ctx, wellknown.CardSpec{
		Agent: vendor.id, Name: "Vendor", Description: "Sells.", Origin: origin,
		Schemas: []wellknown.Schema{{Dataset: "orders", Columns: []wellknown.Column{{Name: "region", Type: "text"}}}},
	}, vendor.signer))
	b := &bench{
		negotiator: &negotiator{replies: map[did.DID][]Reply{}, answer: func(did.DID, []byte) (Reply, error) {
			return Reply{TaskID: "task-1", ContextID: "ctx-1", State: InputRequired, Envelope: []byte(`{"reply":1}`), Updated: start}, nil
		}},
		card: must(wellknown.VerifyCard(raw, vendor.doc, start)),
	}
	db, err := sqlite.Create(ctx, filepath.Join(tb.TempDir(), "treaty.db"), sqlite.Options{Node: vendor.id.String(), Process: "node"})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	b.db = db
	b.config = Config{
		Negotiator: b.negotiator, Tasks: StoreTasks(db), Now: now,
		Describe: func(context.Context) (Answer, error) {
			return DescribeNegotiation(must(b.card.Negotiation()), origin)
		},
	}
	for _, c := range change {
		c(&b.config)
	}
	b.handler = must(New(b.config))
	if executor != nil {
		b.handler = must(newServer(must(b.config.withDefaults()), executor))
	}
	verifier := must(httpsig.NewVerifier(httpsig.Options{
		Origins: []string{origin}, Resolver: resolver{}, Nonces: httpsig.NewMemoryNonces(httpsig.MemoryNonceOptions{}),
		MaxBody: DefaultMaxBody + 1<<16,
	}))
	b.server = httptest.NewUnstartedServer(verifier.Optional(b.handler))
	b.server.EnableHTTP2 = false
	b.server.StartTLS()
	tb.Cleanup(b.server.Close)
	return b
}

// transport dials the test server whatever the host is.
func (b *bench) transport() *http.Transport { return dialing(b.server) }

func dialing(s *httptest.Server) *http.Transport {
	base, _ := s.Client().Transport.(*http.Transport)
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: base.TLSClientConfig.RootCAs, MinVersion: tls.VersionTLS13}, MaxIdleConnsPerHost: 64}
	t.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, s.Listener.Addr().String())
	}
	return t
}

// as is an HTTP client that signs as a party; anonymous when the party is nil.
func (b *bench) as(p *party) *http.Client {
	if p == nil {
		return &http.Client{Transport: b.transport()}
	}
	return &http.Client{Transport: &httpsig.Transport{Base: b.transport(), Signer: func() did.Signer { return p.signer }}}
}

func (b *bench) client(tb testing.TB, p *party, binding string) *Client {
	tb.Helper()
	c, err := NewClient(ClientConfig{Card: b.card, HTTP: b.as(p), Binding: binding})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// ask hands one request to the handler as the caller, nil for an anonymous one.
func (b *bench) ask(caller *party, method, target, body string, header http.Header) *httptest.ResponseRecorder {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, reader)
	r.Header.Set("A2A-Version", "1.0")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, values := range header {
		if values == nil {
			r.Header.Del(name)
		} else {
			r.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	if caller != nil {
		r = r.WithContext(httpsig.WithCaller(r.Context(), httpsig.Caller{DID: caller.id, KeyID: caller.signer.KeyID(), Document: caller.doc}))
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return w
}

var bindings = []string{wellknown.BindingJSONRPC, wellknown.BindingHTTPJSON}
