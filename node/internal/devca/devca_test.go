// SPDX-License-Identifier: Apache-2.0

package devca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func newCA(t *testing.T, o Options) *CA {
	t.Helper()
	ca, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func TestIssueNamesHosts(t *testing.T) {
	ca := newCA(t, Options{})
	pair, err := ca.Issue(Leaf{Names: []string{"vendorcorp.test", "data.vendorcorp.test"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, ok := range map[string]bool{
		"vendorcorp.test": true, "data.vendorcorp.test": true, "other.test": false,
	} {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: ca.Pool()})
		if (err == nil) != ok {
			t.Errorf("%s: verified = %v, want %v (%v)", name, err == nil, ok, err)
		}
	}
	if key, ok := pair.PrivateKey.(*ecdsa.PrivateKey); !ok || key.Curve != elliptic.P256() {
		t.Errorf("key is %T, want ECDSA P-256", pair.PrivateKey)
	}
	if _, err := ca.Issue(Leaf{}); err == nil {
		t.Error("a certificate without names was issued")
	}
}

func TestDomainsConstrainTheAuthority(t *testing.T) {
	ca := newCA(t, Options{Domains: []string{"test"}})
	for name, ok := range map[string]bool{"vendorcorp.test": true, "bank.example": false} {
		pair, err := ca.Issue(Leaf{Names: []string{name}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: ca.Pool()})
		if (err == nil) != ok {
			t.Errorf("%s: verified = %v, want %v (%v)", name, err == nil, ok, err)
		}
	}
}

func TestLeafStaysWithinTheAuthority(t *testing.T) {
	ca := newCA(t, Options{Lifetime: time.Hour})
	pair, err := ca.Issue(Leaf{Names: []string{"a.test"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, limit := pair.Leaf.NotAfter, ca.Certificate().NotAfter; got.After(limit) {
		t.Errorf("leaf ends %v, after its authority (%v)", got, limit)
	}
}

func TestSaveLoadIssueFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Load of nothing: %v, want fs.ErrNotExist", err)
	}
	ca := newCA(t, Options{Name: "A CA"})
	if err := ca.Save(dir); err != nil {
		t.Fatal(err)
	}
	if err := ca.Save(dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second Save: %v, want fs.ErrExist", err)
	}
	loaded, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !loaded.Certificate().Equal(ca.Certificate()) {
		t.Error("the loaded authority is another one")
	}
	cert, key := filepath.Join(dir, "leaf.pem"), filepath.Join(dir, "leaf-key.pem")
	if err := loaded.IssueFiles(cert, key, "a.test"); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: "a.test", Roots: ca.Pool()}); err != nil {
		t.Errorf("issued from files: %v", err)
	}
	for path, mode := range map[string]fs.FileMode{
		filepath.Join(dir, CertFile): 0o644, filepath.Join(dir, KeyFile): 0o600, cert: 0o644, key: 0o600,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got&^mode != 0 {
			t.Errorf("%s has mode %o, want at most %o", path, got, mode)
		}
	}
}

func TestFailedWriteLeavesNoLoneKey(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "leaf.pem"), filepath.Join(dir, "leaf-key.pem")
	if err := os.WriteFile(cert, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := newCA(t, Options{}).IssueFiles(cert, key, "a.test"); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("IssueFiles: %v, want fs.ErrExist", err)
	}
	if _, err := os.Stat(key); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key without a certificate was left behind (%v)", err)
	}
}

func TestLoadRefusesALeaf(t *testing.T) {
	dir := t.TempDir()
	if err := newCA(t, Options{}).IssueFiles(filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile), "a.test"); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil {
		t.Error("a server certificate was loaded as an authority")
	}
}
