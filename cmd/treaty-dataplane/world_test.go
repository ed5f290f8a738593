// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/did/resolver/fetch"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataset"
	"github.com/treaty-node/treaty/node/dataset/sample"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/store/sqlite"
	"github.com/treaty-node/treaty/wellknown"
)

const (
	mcpURL  = "https://data.vendorcorp.test/mcp"
	purpose = "quarterly market report"
)

// company is a DID with its document and binding key.
type company struct {
	doc    *did.Document
	signer did.Signer
}

func (c company) id() string { return c.doc.ID().String() }

func newCompany(t *testing.T, domain string) company {
	t.Helper()
	key, err := did.GenerateKey(did.Ed25519)
	if err != nil {
		t.Fatal(err)
	}
	id, err := did.Parse("did:wba:" + domain + ":agents:a:e1_" + key.Public().Thumbprint())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := did.BuildDocument(did.DocumentSpec{ID: id, Binding: did.MethodSpec{Key: key.Public()}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := did.NewSigner(did.KeyID(id, "signing", key.Public()), key)
	if err != nil {
		t.Fatal(err)
	}
	if raw, err = did.SignDocument(t.Context(), raw, s, time.Now().Add(-time.Minute), did.DialectSpec); err != nil {
		t.Fatal(err)
	}
	doc, err := did.ParseDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	return company{doc, s}
}

// authority issues certificates for one test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func certificate(t *testing.T, template, parent *x509.Certificate, signer *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	return der, key
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	der, key := certificate(t, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (a authority) issue(t *testing.T, host string) (certPEM, keyPEM []byte) {
	t.Helper()
	der, key := certificate(t, &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, a.cert, a.key)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// world is a vendor's store with one contract in force, two companies on the web, and a data plane's folder. There is no
// vendor node: the data plane needs none.
type world struct {
	dir, storePath, addr string
	buyer, other, vendor company
	ca                   authority
	hosts                map[string]string
	csv                  []byte
	contract             *contract.Contract
	plane                did.DID
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), ca: newAuthority(t), buyer: newCompany(t, "buyercorp.test"), other: newCompany(t, "othercorp.test"), vendor: newCompany(t, "vendorcorp.test")}
	w.addr = freeAddress(t)
	w.hosts = map[string]string{"data.vendorcorp.test:443": w.addr, "buyercorp.test:443": w.publish(t, w.buyer), "othercorp.test:443": w.publish(t, w.other)}
	var csv bytes.Buffer
	if err := sample.Write(&csv, sample.Seed); err != nil {
		t.Fatal(err)
	}
	w.csv = csv.Bytes()
	cert, key := w.ca.issue(t, "data.vendorcorp.test")
	vendorRaw := w.vendor.doc.Raw()
	for name, data := range map[string][]byte{
		"orders.csv": w.csv, "datasets.yaml": []byte(sample.Config), "ca.pem": w.ca.pem, "tls.pem": cert, "tls-key.pem": key, "vendor.json": vendorRaw,
	} {
		if err := os.WriteFile(filepath.Join(w.dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.storePath = filepath.Join(w.dir, "treaty.db")
	db, err := sqlite.Create(t.Context(), w.storePath, sqlite.Options{Node: w.vendor.id(), Process: "node"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	in := func(name string) string { return filepath.Join(w.dir, name) }
	if code, _, stderr := command(t.Context(), "init", "--dir", w.dir, "--url", mcpURL, "--listen", w.addr, "--cert", in("tls.pem"), "--key", in("tls-key.pem"), "--ca", in("ca.pem"),
		"--store", in("treaty.db"), "--datasets", in("datasets.yaml"), "--vendor-document", in("vendor.json"),
		"--host", "buyercorp.test:443="+w.hosts["buyercorp.test:443"], "--host", "othercorp.test:443="+w.hosts["othercorp.test:443"]); code != 0 {
		t.Fatalf("init: %d %s", code, stderr)
	}
	if w.plane, err = did.Parse("did:wba:data.vendorcorp.test"); err != nil {
		t.Fatal(err)
	}
	w.contract = w.agree(t, db, "transcript")
	return w
}

// agree puts a contract into the store: the demonstration's, but for what is changed.
func (w *world) agree(t *testing.T, db *sqlite.DB, transcript string, change ...func(*contract.Offer)) *contract.Contract {
	t.Helper()
	now := time.Now()
	offer := &contract.Offer{
		Type: contract.OfferType,
		Scope: contract.Scope{
			Dataset: "orders", Columns: []string{"region", "order_id", "order_value", "order_date"}, Operations: []string{"avg", "count", "sum", "median"},
			RowFilter: []contract.Condition{}, Purpose: purpose, RetentionDays: 90, MinGroupSize: 5, CallBudget: 100,
		},
		ValidFrom: contract.FormatTime(now.Add(-time.Minute)), ValidUntil: contract.FormatTime(now.Add(time.Hour)),
		AcceptBy: contract.FormatTime(now.Add(15 * time.Minute)), ExpiresAt: contract.FormatTime(now.Add(10 * time.Minute)),
		DataPlane: contract.DataPlane{DID: w.plane.String(), URL: mcpURL}, Removed: []contract.Removal{},
	}
	for _, f := range change {
		f(offer)
	}
	config, err := os.ReadFile(filepath.Join(w.dir, "datasets.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	sets, err := dataset.ParseConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := sets.Schema(offer.Dataset)
	if err != nil {
		t.Fatal(err)
	}
	if offer.SchemaDigest, err = schema.Digest(); err != nil {
		t.Fatal(err)
	}
	c, err := contract.Build(offer, contract.Parties{Buyer: w.buyer.id(), Vendor: w.vendor.id()}, canon.Sum([]byte("agreement")), canon.Sum([]byte(transcript)))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []did.Signer{w.buyer.signer, w.vendor.signer} {
		if _, err := c.Prove(t.Context(), s, now); err != nil {
			t.Fatal(err)
		}
	}
	a, err := contract.Activate(t.Context(), c, now, canon.Sum([]byte("head")), w.vendor.signer)
	if err != nil {
		t.Fatal(err)
	}
	activation, err := a.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	cd, err := c.Digest()
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(t.Context(), func(tx store.Tx) error {
		return tx.PutContract(store.ContractRecord{ID: c.ID, Digest: cd, Role: "vendor", Bytes: raw, Activation: activation, State: store.InForce, ContextID: "ctx-1", Peer: w.buyer.id(), Created: now})
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// publish serves a company's document on its domain and returns the address behind it.
func (w *world) publish(t *testing.T, c company) string {
	t.Helper()
	doc, err := wellknown.DIDDocument(c.doc.Raw())
	if err != nil {
		t.Fatal(err)
	}
	site, err := wellknown.NewSite(time.Minute, doc)
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM := w.ca.issue(t, c.doc.ID().Host())
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(site)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// client dials by the hosts map and signs as c; a zero company does not sign.
func (w *world) client(t *testing.T, c company) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(w.ca.cert)
	client := fetch.NewClient(fetch.Config{Hosts: w.hosts, RootCAs: pool, Timeout: 20 * time.Second})
	if c.signer != nil {
		client.Transport = &httpsig.Transport{Base: client.Transport, Signer: func() did.Signer { return c.signer }}
	}
	return client
}

// command runs one command line in this process.
func command(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errOut lockedBuffer
	code = run(ctx, args, &out, &errOut)
	return code, out.String(), errOut.String()
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
