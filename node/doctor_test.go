// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/devca"
	"github.com/treaty-node/treaty/wellknown"
)

// stranger is a counterparty whose every answer can be spoilt.
type stranger struct {
	cert       devca.Leaf
	clock      time.Duration // how far ahead its Date is
	id         did.DID
	key        did.PrivateKey
	spec       did.DocumentSpec
	document   func([]byte) []byte // what becomes of the signed document
	card       func([]byte) []byte // of the unsigned card
	signedCard func([]byte) []byte
	a2a        http.HandlerFunc // what its A2A interface answers
	plane      bool             // its data plane runs
	planeDID   string
	health     string // DID in the health answer
	tool       string
	hits       atomic.Int64
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newStranger(t *testing.T) *stranger {
	t.Helper()
	s := &stranger{a2a: noSuchTask, plane: true, planeDID: "did:wba:data.vendorcorp.test", tool: "query_records", cert: devca.Leaf{Names: []string{"vendorcorp.test"}}}
	s.health = s.planeDID
	key := must[did.PrivateKey](t)
	s.key = key(did.GenerateKey(did.Ed25519))
	s.id = must[did.DID](t)(did.Parse("did:wba:vendorcorp.test:agents:steward:e1_" + s.key.Public().Thumbprint()))
	s.spec = did.DocumentSpec{
		ID: s.id, Binding: did.MethodSpec{Key: s.key.Public()},
		KeyAgreement: []did.MethodSpec{{Key: key(did.GenerateKey(did.X25519)).Public()}},
	}
	return s
}

func same(b []byte) []byte { return b }

// noSuchTask is the answer of an A2A server (HTTP+JSON) that was asked for a task which it does not have.
func noSuchTask(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, "/a2a/v1/tasks/") || r.Header.Get("Signature") == "" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, `{"error":{"code":404,"status":"NOT_FOUND","message":"there is no such task","details":[
		{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org"}]}}`)
}

// rewrite changes a JSON object.
func rewrite(t *testing.T, f func(map[string]any)) func([]byte) []byte {
	return func(b []byte) []byte {
		t.Helper()
		var m map[string]any
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		f(m)
		return must[[]byte](t)(json.Marshal(m))
	}
}

func listenTLS(t *testing.T, addr string, cert tls.Certificate, h http.Handler) {
	t.Helper()
	l := must[net.Listener](t)(tls.Listen("tcp", addr, &tls.Config{Certificates: []tls.Certificate{cert}})) //nolint:gosec // a test's server
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
}

// serve answers at the vendor's and its data plane's addresses.
func (s *stranger) serve(t *testing.T, ca *devca.CA, addr, planeAddr string) {
	t.Helper()
	signer := must[did.Signer](t)(did.NewSigner(did.KeyID(s.id, "signing", s.key.Public()), s.key))
	raw := must[[]byte](t)(did.SignDocument(t.Context(), must[[]byte](t)(did.BuildDocument(s.spec)), signer, time.Now(), did.DialectSpec))
	planeID := must[did.DID](t)(did.Parse(s.planeDID))
	card := must[[]byte](t)(wellknown.BuildCard(t.Context(), wellknown.CardSpec{
		Agent: s.id, Name: "Steward", Description: "Negotiates.", Origin: "https://vendorcorp.test",
		Schemas:   []wellknown.Schema{{Dataset: "orders", Columns: []wellknown.Column{{Name: "region", Type: "text"}}}},
		DataPlane: &wellknown.DataPlane{DID: planeID, URL: "https://data.vendorcorp.test/mcp", Tools: []wellknown.Tool{{Name: "query_records", InputSchema: json.RawMessage(`{"type":"object"}`)}}},
	}, signer))
	if s.card != nil {
		unsigned := rewrite(t, func(m map[string]any) { delete(m, "signatures") })(card)
		card = must[[]byte](t)(wellknown.SignCard(t.Context(), s.card(unsigned), signer))
	}
	answers := map[string][]byte{strings.TrimPrefix(s.id.DocumentURL(), "https://vendorcorp.test"): s.document(raw), wellknown.PathAgentCard: s.signedCard(card)}
	listenTLS(t, addr, must[tls.Certificate](t)(ca.Issue(s.cert)), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.hits.Add(1)
		w.Header().Set("Date", time.Now().Add(s.clock).UTC().Format(http.TimeFormat))
		body, ok := answers[r.URL.Path]
		if strings.HasPrefix(r.URL.Path, "/a2a") {
			s.a2a(w, r)
			return
		}
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(body)
	}))
	if s.plane {
		servePlane(t, ca, planeAddr, s.health, s.tool)
	}
}

// servePlane is a data plane as far as a doctor looks at it.
func servePlane(t *testing.T, ca *devca.CA, addr, health, tool string) {
	t.Helper()
	key := must[did.PrivateKey](t)(did.GenerateKey(did.Ed25519))
	id := must[did.DID](t)(did.Parse("did:wba:data.vendorcorp.test"))
	signer := must[did.Signer](t)(did.NewSigner(did.KeyID(id, "receipt", key.Public()), key))
	unsigned := must[[]byte](t)(did.BuildDocument(did.DocumentSpec{ID: id, Binding: did.MethodSpec{ID: signer.KeyID(), Key: key.Public()}}))
	raw := must[[]byte](t)(did.SignDocument(t.Context(), unsigned, signer, time.Now(), did.DialectSpec))
	server := mcp.NewServer(&mcp.Implementation{Name: "plane", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: tool, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, errors.New("a doctor calls no tool")
	})
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/did.json", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(raw) })
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"service": "treaty-dataplane", "build": "1", "did": health, "status": "ok"})
	})
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true, DisableLocalhostProtection: true}))
	listenTLS(t, addr, must[tls.Certificate](t)(ca.Issue(devca.Leaf{Names: []string{"data.vendorcorp.test"}})), mux)
}

func statuses(d httpapi.Diagnosis, status string) []string {
	out := []string{}
	for _, c := range d.Checks {
		if c.Status == status {
			out = append(out, c.Name)
		}
	}
	return out
}

func explain(t *testing.T, d httpapi.Diagnosis) {
	t.Helper()
	for _, c := range d.Checks {
		t.Logf("%-4s %s: %s (%s)", c.Status, c.Name, c.Detail, c.Mend)
	}
}

// TestDoctor_Peer examines counterparties with one thing wrong each: exactly that is found, and how to mend it is said.
func TestDoctor_Peer(t *testing.T) {
	now := time.Now()
	cases := []struct {
		name       string
		spoil      func(t *testing.T, s *stranger)
		fail, warn []string
		says       string // in the detail or the remedy of the failure
	}{
		{name: "nothing wrong"},
		{name: "expired certificate", spoil: func(_ *testing.T, s *stranger) {
			s.cert.NotBefore, s.cert.NotAfter = now.Add(-48*time.Hour), now.Add(-24*time.Hour)
		}, fail: []string{"certificate"}, says: "expired"},
		{name: "certificate of another host", spoil: func(_ *testing.T, s *stranger) { s.cert.Names = []string{"other.test"} }, fail: []string{"certificate"}, says: "dNSName"},
		{name: "certificate that ends soon", spoil: func(_ *testing.T, s *stranger) { s.cert.NotAfter = now.Add(72 * time.Hour) }, warn: []string{"certificate"}},
		{name: "clock two minutes behind", spoil: func(_ *testing.T, s *stranger) { s.clock = -2 * time.Minute }, fail: []string{"clock"}, says: "behind"},
		{name: "clock an hour ahead", spoil: func(_ *testing.T, s *stranger) { s.clock = time.Hour }, fail: []string{"clock"}, says: "ahead"},
		{name: "clock twenty seconds ahead", spoil: func(_ *testing.T, s *stranger) { s.clock = 20 * time.Second }, warn: []string{"clock"}},
		{name: "document changed after signing", spoil: func(t *testing.T, s *stranger) {
			s.document = rewrite(t, func(m map[string]any) { m["alsoKnownAs"] = []string{"did:wba:evil.test"} })
		}, fail: []string{"DID document"}, says: "bad_proof"},
		{name: "document of another DID", spoil: func(t *testing.T, s *stranger) {
			s.document = rewrite(t, func(m map[string]any) { m["id"] = "did:wba:vendorcorp.test" })
		}, fail: []string{"DID document"}},
		{name: "no key to seal to", spoil: func(_ *testing.T, s *stranger) { s.spec.KeyAgreement = nil }, fail: []string{"sealing"}, says: "keyAgreement"},
		{name: "card changed after signing", spoil: func(t *testing.T, s *stranger) {
			s.signedCard = rewrite(t, func(m map[string]any) { m["name"] = "Somebody else" })
		}, fail: []string{"agent card"}, says: "signature"},
		{name: "card without a signature", spoil: func(t *testing.T, s *stranger) {
			s.signedCard = rewrite(t, func(m map[string]any) { delete(m, "signatures") })
		}, fail: []string{"agent card"}},
		{name: "no extension", spoil: func(t *testing.T, s *stranger) {
			s.card = rewrite(t, func(m map[string]any) { m["capabilities"] = map[string]any{"streaming": true} })
		}, fail: []string{"extension"}, says: wellknown.ExtensionURI},
		{name: "no transport in common", spoil: func(t *testing.T, s *stranger) {
			s.card = rewrite(t, func(m map[string]any) {
				m["supportedInterfaces"] = []any{map[string]string{"url": "https://vendorcorp.test/grpc", "protocolBinding": "GRPC", "protocolVersion": "1.0"}}
			})
		}, fail: []string{"transports"}, says: "GRPC"},
		{name: "nothing at the endpoint", spoil: func(_ *testing.T, s *stranger) { s.a2a = http.NotFound }, fail: []string{"meta-protocol endpoint"}, says: "404"},
		{name: "does not admit us", spoil: func(_ *testing.T, s *stranger) {
			s.a2a = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", `DIDWba realm="vendorcorp.test", error="forbidden_did", error_description="no"`)
				w.WriteHeader(http.StatusForbidden)
			}
		}, fail: []string{"meta-protocol endpoint"}, says: "treaty trust allow buyercorp.test"},
		{name: "cannot verify us", spoil: func(_ *testing.T, s *stranger) {
			s.a2a = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", `DIDWba realm="vendorcorp.test", error="invalid_did", error_description="no"`)
				w.WriteHeader(http.StatusUnauthorized)
			}
		}, fail: []string{"meta-protocol endpoint"}, says: "invalid_did"},
		{name: "data plane down", spoil: func(_ *testing.T, s *stranger) { s.plane = false }, fail: []string{"data plane"}, says: "start the data plane"},
		{name: "something else in the data plane's place", spoil: func(_ *testing.T, s *stranger) { s.health = "did:wba:evil.test" }, fail: []string{"data plane health"}, says: "did:wba:evil.test"},
		{name: "data plane with another identity", spoil: func(_ *testing.T, s *stranger) {
			s.planeDID, s.health = "did:wba:data.vendorcorp.test:x", "did:wba:data.vendorcorp.test:x"
		}, fail: []string{"data plane identity"}, says: "status 404"},
		{name: "data plane without the tool", spoil: func(_ *testing.T, s *stranger) { s.tool = "drop_table" }, fail: []string{"data plane tools"}, says: "query_records"},
	}
	plane := ""
	buyerDir, vendorDir := initPair(t, func(b, v *node.InitOptions) {
		plane = freePort(t)
		b.Hosts["data.vendorcorp.test:443"] = plane
	})
	ca := must[*devca.CA](t)(devca.Load(filepath.Join(filepath.Dir(buyerDir), "ca")))
	cfg := must[*node.Config](t)(node.LoadConfig(vendorDir))
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newStranger(t)
			s.document, s.signedCard = same, same
			if c.spoil != nil {
				c.spoil(t, s)
			}
			s.serve(t, ca, cfg.Listen, plane)
			buyer := start(t, buyerDir)
			d, err := buyer.Doctor(t.Context(), httpapi.DoctorRequest{Peer: s.id.String()})
			if err != nil {
				t.Fatal(err)
			}
			if c.fail == nil {
				c.fail = []string{}
			}
			if c.warn == nil {
				c.warn = []string{}
			}
			if fails, warns := statuses(d, httpapi.CheckFail), statuses(d, httpapi.CheckWarn); !slices.Equal(fails, c.fail) || !slices.Equal(warns, c.warn) || d.WouldContract != (len(c.fail) == 0) {
				explain(t, d)
				t.Fatalf("failed %q, warned of %q, would contract: %t", fails, warns, d.WouldContract)
			}
			for _, k := range d.Checks {
				if k.Status == httpapi.CheckFail && (k.Mend == "" || !strings.Contains(k.Detail+k.Mend, c.says)) {
					t.Errorf("%s: %q, to mend it: %q", k.Name, k.Detail, k.Mend)
				}
			}
		})
	}
}

// TestDoctor_UntrustedPeerIsNotAsked: nothing is fetched from whom the policy does not admit.
func TestDoctor_UntrustedPeerIsNotAsked(t *testing.T) {
	buyerDir, vendorDir := initPair(t, nil)
	ca := must[*devca.CA](t)(devca.Load(filepath.Join(filepath.Dir(buyerDir), "ca")))
	s := newStranger(t)
	s.document, s.signedCard = same, same
	s.serve(t, ca, must[*node.Config](t)(node.LoadConfig(vendorDir)).Listen, freePort(t))
	buyer := start(t, buyerDir)
	buyer.change(t, httpapi.TrustDeny, "vendorcorp.test")
	for _, peer := range []string{s.id.String(), "vendorcorp.test"} {
		d, err := buyer.Doctor(t.Context(), httpapi.DoctorRequest{Peer: peer})
		if err != nil || d.WouldContract || len(d.Checks) != 1 || d.Checks[0].Name != "trust" || !strings.Contains(d.Checks[0].Mend, "treaty trust") {
			t.Errorf("%s: %+v (%v)", peer, d, err)
		}
	}
	if n := s.hits.Load(); n != 0 {
		t.Errorf("%d requests", n)
	}
	for _, peer := range []string{"not a domain", "did:wba:UPPER"} {
		if _, err := buyer.Doctor(t.Context(), httpapi.DoctorRequest{Peer: peer}); kind(err) != httpapi.KindUsage && kind(err) != "" {
			t.Errorf("%s: %v", peer, err)
		}
	}
}

// TestDoctor_Self examines real nodes, whole and with one thing wrong.
func TestDoctor_Self(t *testing.T) {
	plane := ""
	buyerDir, vendorDir := initPair(t, func(b, _ *node.InitOptions) {
		plane = freePort(t)
		b.Hosts["data.vendorcorp.test:443"] = plane // one map for both
	})
	ca := must[*devca.CA](t)(devca.Load(filepath.Join(filepath.Dir(buyerDir), "ca")))
	vendor, buyer := start(t, vendorDir), start(t, buyerDir)
	examine := func(c *company, peer string, want ...string) {
		t.Helper()
		d, err := c.Doctor(t.Context(), httpapi.DoctorRequest{Peer: peer})
		if err != nil {
			t.Fatal(err)
		}
		if got := statuses(d, httpapi.CheckFail); !slices.Equal(got, append([]string{}, want...)) || d.WouldContract != (len(want) == 0) {
			explain(t, d)
			t.Fatalf("failed %q, want %q", got, want)
		}
	}
	examine(vendor, "", "data plane")
	servePlane(t, ca, plane, "did:wba:data.vendorcorp.test", "query_records")
	examine(vendor, "")
	examine(buyer, "")
	examine(buyer, "vendorcorp.test")
	examine(vendor, "buyercorp.test")

	n, err := buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: "vendorcorp.test"})
	if err != nil {
		t.Fatal(err)
	}
	buyer.wait(t, n.ContextID)
	d, err := buyer.Doctor(t.Context(), httpapi.DoctorRequest{})
	if err != nil || !slices.Contains(statuses(d, httpapi.CheckOK), "clock of vendorcorp.test") {
		explain(t, d)
		t.Errorf("the counterparty's clock was not compared (%v)", err)
	}

	for path, mode := range map[string]os.FileMode{node.AdminSocket: 0o600, node.KeysDir: 0o700, "unlock.age-identity": 0o600} {
		file := filepath.Join(buyerDir, path)
		if err := os.Chmod(file, mode|0o044); err != nil {
			t.Fatal(err)
		}
		want := "file modes"
		if path == node.AdminSocket {
			want = "admin socket"
		}
		examine(buyer, "", want)
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	vendor.stop(t)
	d, err = buyer.Doctor(t.Context(), httpapi.DoctorRequest{Peer: "vendorcorp.test"})
	if err != nil || !slices.Equal(statuses(d, httpapi.CheckFail), []string{"reachability"}) {
		explain(t, d)
		t.Errorf("a counterparty that is down: %v", err)
	}
}

func TestDoctor_Offline(t *testing.T) {
	buyerDir, _ := initPair(t, nil)
	d := node.DoctorOffline(buyerDir)
	if !slices.Equal(statuses(d, httpapi.CheckFail), []string{"node"}) || d.WouldContract || d.Subject != "buyercorp.test" {
		t.Errorf("%+v", d)
	}
	edit(t, buyerDir, "domain: buyercorp.test", "domain: other.test")
	if got := statuses(node.DoctorOffline(buyerDir), httpapi.CheckFail); !slices.Equal(got, []string{"node", "certificate file"}) {
		t.Errorf("failed %q", got)
	}
	edit(t, buyerDir, "domain: other.test", "domian: other.test")
	if got := statuses(node.DoctorOffline(buyerDir), httpapi.CheckFail); !slices.Equal(got, []string{"node", "configuration"}) {
		t.Errorf("failed %q", got)
	}
}
