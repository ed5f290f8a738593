// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/did/resolver/fetch"
)

const (
	ourHost    = "treaty.interop.test"
	ourOrigin  = "https://" + ourHost
	peerOrigin = "https://peer.interop.test"
)

var (
	ourHosts  = []string{ourHost, "bare.treaty.interop.test", "old.treaty.interop.test", "web.treaty.interop.test"}
	nodeHosts = []string{"vendor.interop.test", "vendor-k1.interop.test"} // real nodes, see a2a_test.go
	peerHosts = []string{"peer.interop.test", "bare.interop.test", "old.interop.test", "older.interop.test", "web.interop.test"}
)

// world is this side: DID documents, a service with every kind of authentication, clients.
type world struct {
	ours     map[string]*identity
	byURL    map[string]*identity // host and path of the documents
	peer     *peer
	guarded  http.RoundTripper // knows the peer's names, trusts the test's authority
	resolver *resolver.Resolver
	trace    trace // what our service answered

	mu                            sync.Mutex
	verifier, lenient, challenged *httpsig.Verifier
	sessions                      *httpsig.Sessions

	table
}

type identity struct {
	id       did.DID
	signer   did.Signer
	document []byte
}

func newWorld(t *testing.T) *world {
	folder := t.TempDir()
	w, roots, hosts := newSide(t, folder)
	w.peer = startPeer(t, folder, hosts)
	w.table = table{name: "anp", peers: map[string]string{toUs: "anp " + w.peer.Version, fromUs: "anp " + w.peer.Version}}
	for _, host := range peerHosts {
		hosts[host+":443"], hosts[host+":8443"] = w.peer.Address, w.peer.Address
	}
	config := fetch.Config{Hosts: hosts, RootCAs: roots, AllowedPorts: []int{443, 8443}}
	w.guarded = fetch.NewTransport(config)
	everyone := func(did.DID) error { return nil }
	w.resolver = resolver.New(resolver.Options{Client: fetch.NewClient(config), Pins: resolver.NewMemoryPins(), Admit: everyone})

	options := httpsig.Options{Origins: []string{ourOrigin}, Resolver: w.resolver, Nonces: httpsig.NewMemoryNonces(httpsig.MemoryNonceOptions{})}
	w.verifier = must(httpsig.NewVerifier(options))
	options.HighS = true
	w.lenient = must(httpsig.NewVerifier(options))
	options.RequireChallenge = true
	w.challenged = must(httpsig.NewVerifier(options))
	w.restartSessions(t)
	return w
}

// newSide makes identities and the service that publishes them. It returns the test's authority, which is also in folder, and
// where the names lead.
func newSide(t *testing.T, folder string) (*world, *x509.CertPool, map[string]string) {
	w := &world{ours: map[string]*identity{}, byURL: map[string]*identity{}}
	w.makeIdentities(t)
	roots, certificate := makeAuthority(t, folder)
	server := httptest.NewUnstartedServer(http.HandlerFunc(w.serve))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)

	hosts := map[string]string{}
	for _, host := range ourHosts {
		hosts[host+":443"], hosts[host+":8443"] = server.Listener.Addr().String(), server.Listener.Addr().String()
	}
	return w, roots, hosts
}

// restartSessions does to tokens what a restart of the service does.
func (w *world) restartSessions(t *testing.T) {
	s, err := httpsig.NewSessions(w.verifier, httpsig.SessionOptions{Tokens: true, Legacy: true})
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.sessions = s
	w.mu.Unlock()
}

func (w *world) makeIdentities(t *testing.T) {
	key := func(typ did.KeyType) did.PrivateKey { return must(did.GenerateKey(typ)) }
	add := func(name, id string, k did.PrivateKey, spec did.DocumentSpec, dialect did.Dialect) {
		spec.ID, spec.Binding = must(did.Parse(id)), did.MethodSpec{Key: k.Public()}
		own := &identity{id: spec.ID, signer: must(did.NewSigner(did.KeyID(spec.ID, "signing", k.Public()), k))}
		own.document = must(did.BuildDocument(spec))
		if dialect != "" {
			own.document = must(did.SignDocument(t.Context(), own.document, own.signer, time.Now(), dialect))
		}
		w.ours[name] = own
		w.byURL[strings.Replace(spec.ID.DocumentURL(), ":8443", "", 1)] = own
	}
	// The documents of real nodes: every role, services.
	full := func() did.DocumentSpec {
		return did.DocumentSpec{
			KeyAgreement: []did.MethodSpec{{Key: key(did.X25519).Public()}},
			Human:        []did.MethodSpec{{Key: key(did.Ed25519).Public()}},
			Recovery:     []did.MethodSpec{{Key: key(did.Ed25519).Public()}},
			Services:     []did.Service{{ID: "#ad", Type: "AgentDescription", Endpoint: ourOrigin + "/agents/steward/ad.json"}},
		}
	}
	e1 := func(name, domain string, spec did.DocumentSpec, dialect did.Dialect) {
		k := key(did.Ed25519)
		add(name, "did:wba:"+domain+":agents:steward:e1_"+k.Public().Thumbprint(), k, spec, dialect)
	}
	e1("e1", ourHost, full(), did.DialectSpec)
	e1("e1 sdk", ourHost, full(), did.DialectSDK)
	e1("e1 w3c", ourHost, full(), did.DialectW3C)
	e1("e1 port", ourHost+"%3A8443", full(), did.DialectSpec)
	gone := full()
	gone.Deactivated = true
	e1("e1 deactivated", ourHost, gone, did.DialectSpec)
	k := key(did.Secp256k1)
	add("k1", "did:wba:"+ourHost+":agents:steward:k1_"+k.Public().Thumbprint(), k, did.DocumentSpec{}, did.DialectSpec)
	add("bare", "did:wba:bare."+ourHost, key(did.Ed25519), did.DocumentSpec{}, did.DialectSpec)
	add("bare secp256k1", "did:wba:old."+ourHost, key(did.Secp256k1), did.DocumentSpec{}, did.DialectSpec)
	add("did:web", "did:web:web."+ourHost+":agents:steward", key(did.Ed25519), did.DocumentSpec{}, "")
}

// serve is our service. The path says how callers are authenticated.
func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	host, _, _ := strings.Cut(r.Host, ":")
	if own, ok := w.byURL["https://"+host+r.URL.Path]; ok {
		rw.Header().Set("Content-Type", "application/did+json")
		rw.Write(own.document)
		return
	}
	w.mu.Lock()
	sessions := w.sessions
	w.mu.Unlock()
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	handler := map[string]http.Handler{
		"/strict":     w.verifier.Middleware(ok),
		"/lenient":    w.lenient.Middleware(ok),
		"/challenged": w.challenged.Middleware(ok),
		"/session":    sessions.Middleware(ok),
		"/json":       http.HandlerFunc(w.serveJSON),
		"/origin":     http.HandlerFunc(w.serveOrigin),
	}[r.URL.Path]
	if handler == nil {
		http.NotFound(rw, r)
		return
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	w.trace.add(r.Header, recorder.Code, recorder.Header())
	for name, values := range recorder.Header() {
		rw.Header()[name] = values
	}
	rw.WriteHeader(recorder.Code)
	rw.Write(recorder.Body.Bytes())
}

func (w *world) serveJSON(rw http.ResponseWriter, r *http.Request) {
	content, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err == nil {
		_, _, err = w.verifier.VerifyJSON(r.Context(), r, content)
	}
	if err != nil {
		w.verifier.WriteError(rw, err)
	}
}

func (w *world) serveOrigin(rw http.ResponseWriter, r *http.Request) {
	var envelope struct {
		Request httpsig.OriginRequest `json:"request"`
		Auth    httpsig.Auth          `json:"auth"`
	}
	content, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err == nil {
		err = canon.Unmarshal(content, &envelope, canon.Limits{})
	}
	if err == nil {
		_, err = w.verifier.VerifyOrigin(r.Context(), envelope.Request, envelope.Auth)
	}
	if err != nil {
		w.verifier.WriteError(rw, err)
	}
}

// client returns a signing client and a record of what it was answered.
func (w *world) client(own *identity, tokens bool) (*http.Client, *trace) {
	sent := &trace{}
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := w.guarded.RoundTrip(r)
		if err == nil {
			sent.add(r.Header, resp.StatusCode, resp.Header)
		}
		return resp, err
	})
	return &http.Client{Transport: &httpsig.Transport{Base: base, Signer: func() did.Signer { return own.signer }, Tokens: tokens}}, sent
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// trace is a sequence of requests: credentials and outcome.
type trace struct {
	mu   sync.Mutex
	seen []string
}

func (t *trace) reset() {
	t.mu.Lock()
	t.seen = nil
	t.mu.Unlock()
}

func (t *trace) add(request http.Header, status int, response http.Header) {
	kind := "unsigned"
	switch scheme, _, _ := strings.Cut(request.Get("Authorization"), " "); {
	case request.Get("Signature") != "":
		kind = "signature"
	case scheme == "Bearer":
		kind = "bearer"
	case scheme == "DIDWba":
		kind = "legacy"
	}
	t.mu.Lock()
	t.seen = append(t.seen, kind+" "+outcome(status, response))
	t.mu.Unlock()
}

func (t *trace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.seen, ", ")
}

// peer is the other process.
type peer struct {
	Version string
	Address string
	DIDs    map[string]string

	mu  sync.Mutex
	in  io.Writer
	out *bufio.Scanner
}

func startPeer(t *testing.T, folder string, hosts map[string]string) *peer {
	setup := map[string]any{"hosts": hosts, "cert": filepath.Join(folder, "server.pem"), "key": filepath.Join(folder, "server-key.pem")}
	return start(t, filepath.Join(folder, "ca.pem"), setup, os.Getenv("INTEROP_PYTHON"), "-W", "ignore", "peer.py")
}

// start runs another process, which trusts the given authorities, and gives it its first line.
func start(t *testing.T, authorities string, setup any, name string, args ...string) *peer {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+authorities, "NODE_EXTRA_CA_CERTS="+authorities, "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1")
	cmd.Stderr = os.Stderr
	in, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // the end of its commands is the end of the peer
		if err := cmd.Wait(); err != nil {
			t.Errorf("the peer: %v", err)
		}
		cancel()
	})
	p := &peer{in: in, out: bufio.NewScanner(out)}
	p.out.Buffer(nil, 1<<20)
	if err := p.do(setup, p); err != nil {
		t.Fatal(err)
	}
	return p
}

// do sends one command and decodes the answer. The peer's error is returned as it is.
func (p *peer) do(command any, into any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := fmt.Fprintf(p.in, "%s\n", must(json.Marshal(command))); err != nil {
		return err
	}
	if !p.out.Scan() {
		return fmt.Errorf("the peer has ended: %w", errors.Join(p.out.Err(), io.EOF))
	}
	var failed struct{ Error string }
	if err := json.Unmarshal(p.out.Bytes(), &failed); err != nil {
		return err
	}
	if failed.Error != "" {
		return errors.New(failed.Error)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(p.out.Bytes(), into)
}

// makeAuthority writes ca.pem, server.pem and server-key.pem for every name of the test.
func makeAuthority(t *testing.T, folder string) (*x509.CertPool, tls.Certificate) {
	now := time.Now()
	caKey := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "interop test authority"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	caDER := must(x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey))
	ca = must(x509.ParseCertificate(caDER))
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "interop test server"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), DNSNames: slices.Concat(ourHosts, peerHosts, nodeHosts),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der := must(x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey))
	for name, block := range map[string]*pem.Block{
		"ca.pem":         {Type: "CERTIFICATE", Bytes: caDER},
		"server.pem":     {Type: "CERTIFICATE", Bytes: der},
		"server-key.pem": {Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))},
	} {
		if err := os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	return roots, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
