// SPDX-License-Identifier: Apache-2.0

// Package devca makes a certificate authority for development and tests, and
// server certificates under it, so that nodes on one machine can speak real TLS
// to each other under the domain names they would have in production.
//
// What it guarantees: keys are ECDSA P-256 from crypto/rand; certificates name
// their hosts as dNSName (never only in the common name); key files are written
// with mode 0600 and never overwritten; an authority made with Domains can sign
// for nothing outside of them (RFC 5280, section 4.2.1.10), which bounds what a
// thief of its key could do on a machine that trusts it.
//
// What it does not do: revocation, renewal, intermediate authorities, or
// anything else that a public certificate authority is for. Its key lies on disk
// in the clear. It is for names such as *.test, not for production.
package devca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// Names of the files that Save writes and Load reads.
const (
	CertFile = "ca.pem"     // mode 0644
	KeyFile  = "ca-key.pem" // mode 0600
)

const (
	caLifetime   = 365 * 24 * time.Hour
	leafLifetime = 90 * 24 * time.Hour
	// backdate lets a peer whose clock is a little behind accept the certificate.
	backdate = time.Hour
)

// Options says what authority New makes.
type Options struct {
	// Name is the common name of the authority; empty means
	// "Treaty development CA".
	Name string
	// Domains are the DNS domains, with everything below them, that the
	// authority may sign for. Empty means every name.
	Domains []string
	// Now is the time of issue; zero means the time of the call.
	Now time.Time
	// Lifetime is how long the authority is valid; zero means one year.
	Lifetime time.Duration
}

// CA is a development certificate authority with its key. It is immutable and
// safe for concurrent use.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Leaf says what certificate Issue makes.
type Leaf struct {
	// Names are the dNSNames, at least one.
	Names []string
	// NotBefore and NotAfter bound the validity. Zero means from one hour ago
	// until 90 days from now, both kept within the authority's own validity.
	NotBefore, NotAfter time.Time
}

// New makes an authority in memory. Save writes it to disk.
func New(o Options) (*CA, error) {
	if o.Name == "" {
		o.Name = "Treaty development CA"
	}
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	if o.Lifetime <= 0 {
		o.Lifetime = caLifetime
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("devca: generating the authority's key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber:                serial,
		Subject:                     pkix.Name{CommonName: o.Name},
		NotBefore:                   o.Now.Add(-backdate),
		NotAfter:                    o.Now.Add(o.Lifetime),
		KeyUsage:                    x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		IsCA:                        true,
		BasicConstraintsValid:       true,
		MaxPathLenZero:              true,
		PermittedDNSDomainsCritical: len(o.Domains) > 0,
		PermittedDNSDomains:         o.Domains,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("devca: signing the authority's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("devca: %w", err)
	}
	return &CA{cert: cert, key: key}, nil
}

// Load reads the authority that Save wrote into dir. A missing authority is an
// error (fs.ErrNotExist), never a reason to make one.
func Load(dir string) (*CA, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile))
	if err != nil {
		return nil, fmt.Errorf("devca: loading the authority: %w", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("devca: the authority's key is not ECDSA P-256")
	}
	if !pair.Leaf.IsCA {
		return nil, fmt.Errorf("devca: %s is not a certificate authority", filepath.Join(dir, CertFile))
	}
	return &CA{cert: pair.Leaf, key: key}, nil
}

// LoadOrNew is Load, or New and Save where dir holds no authority yet: for a try on one machine, where whoever comes first
// makes it.
func LoadOrNew(dir string) (*CA, error) {
	ca, err := Load(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return ca, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if ca, err = New(Options{}); err != nil {
		return nil, err
	}
	return ca, ca.Save(dir)
}

// Save writes the certificate (0644) and the key (0600) into dir, which must
// exist. It refuses (fs.ErrExist) to overwrite either file.
func (c *CA) Save(dir string) error {
	return writePair(filepath.Join(dir, CertFile), c.CertPEM(), filepath.Join(dir, KeyFile), c.key)
}

// Certificate returns the authority's certificate. The caller must not change it.
func (c *CA) Certificate() *x509.Certificate { return c.cert }

// CertPEM returns the authority's certificate in PEM form.
func (c *CA) CertPEM() []byte { return certPEM(c.cert.Raw) }

// Pool returns a new pool that trusts this authority and nothing else.
func (c *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.cert)
	return pool
}

// Issue makes a server certificate with a fresh key.
func (c *CA) Issue(l Leaf) (tls.Certificate, error) {
	if len(l.Names) == 0 {
		return tls.Certificate{}, errors.New("devca: a certificate needs at least one name")
	}
	now := time.Now()
	if l.NotBefore.IsZero() {
		l.NotBefore = latest(now.Add(-backdate), c.cert.NotBefore)
	}
	if l.NotAfter.IsZero() {
		l.NotAfter = earliest(now.Add(leafLifetime), c.cert.NotAfter)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("devca: generating a key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return tls.Certificate{}, err
	}
	tmpl := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{"Treaty development"}},
		DNSNames:              l.Names,
		NotBefore:             l.NotBefore,
		NotAfter:              l.NotAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, c.cert, key.Public(), c.key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("devca: signing a certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("devca: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// IssueFiles issues a certificate for names and writes it to certPath (0644) and
// its key to keyPath (0600), in the form that tls.LoadX509KeyPair reads. It
// refuses (fs.ErrExist) to overwrite either file.
func (c *CA) IssueFiles(certPath, keyPath string, names ...string) error {
	pair, err := c.Issue(Leaf{Names: names})
	if err != nil {
		return err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return errors.New("devca: issued key is not ECDSA")
	}
	return writePair(certPath, certPEM(pair.Certificate[0]), keyPath, key)
}

func writePair(certPath string, cert []byte, keyPath string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("devca: encoding a key: %w", err)
	}
	// The key first: a certificate without its key would look complete.
	if err := writeNew(keyPath, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		return err
	}
	if err := writeNew(certPath, cert, 0o644); err != nil {
		// Nobody has seen a certificate for the key that was just written.
		return errors.Join(err, os.Remove(keyPath))
	}
	return nil
}

func writeNew(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("devca: %w", err)
	}
	_, werr := f.Write(data)
	if err := errors.Join(werr, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("devca: writing %s: %w", path, errors.Join(err, os.Remove(path)))
	}
	return nil
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("devca: drawing a serial number: %w", err)
	}
	return serial, nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
