// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/internal/devca"
	"github.com/treaty-node/treaty/node/internal/keystore"
)

const identityFile = "identity.txt"

// InitOptions are what Init needs beside the configuration.
type InitOptions struct {
	VendorDocument string // file of the vendor's DID document; its content is verified and copied into the folder
	DevCA          string // folder of a development CA that issues the certificate; empty when f.TLS names one
}

// vendorFile is the data plane's own copy of the vendor's document: what the node's folder says later does not reach it.
const vendorFile = "vendor-did.json"

// Init makes a data plane's folder: an age identity, a receipt key sealed to it, its own copy of the vendor's DID document, a
// certificate where a development CA is to issue one, an empty list of revoked contracts, and the configuration f with all of them
// named in it. It never replaces anything. Paths in f are written as given: relative ones are relative to dir. It returns the data
// plane's DID.
func Init(dir string, f File, o InitOptions, now time.Time) (did.DID, error) {
	u, err := url.Parse(f.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.Path != Path {
		return did.DID{}, configError("url: want https://<host>%s", Path)
	}
	id, err := serviceDID(u.Host)
	if err != nil {
		return did.DID{}, configError("url: %w", err)
	}
	file := filepath.Join(dir, ConfigFile)
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		return did.DID{}, fmt.Errorf("%s is there already", file)
	}
	keys := filepath.Join(dir, "keys")
	if err := os.MkdirAll(keys, 0o700); err != nil {
		return did.DID{}, err
	}
	identity, err := keystore.NewIdentityFile(filepath.Join(dir, identityFile))
	if err != nil {
		return did.DID{}, err
	}
	private, err := did.GenerateKey(did.Ed25519)
	if err != nil {
		return did.DID{}, err
	}
	key := keystore.Key{
		Role: keystore.Receipt, KID: id.String() + "#" + keystore.Fragment(keystore.Receipt, private.Public()),
		Created: now.UTC().Truncate(time.Second), Private: private,
	}
	if _, err := keystore.Save(keys, key, identity.Recipient()); err != nil {
		return did.DID{}, err
	}
	if f.Vendors, err = ownCopy(dir, o.VendorDocument, now); err != nil {
		return did.DID{}, err
	}
	if o.DevCA != "" {
		if f.TLS.Cert, f.TLS.Key, f.CA, err = issue(dir, o.DevCA, u.Hostname()); err != nil {
			return did.DID{}, err
		}
	}
	f.Key, f.Identity = filepath.Join("keys", key.FileName()), identityFile
	data, err := yaml.Marshal(f)
	if err != nil {
		return did.DID{}, err
	}
	// Later the folder may be read-only but for this file.
	revoked, err := openRevocations(filepath.Join(dir, revokedFile))
	if err != nil {
		return did.DID{}, err
	}
	if err := revoked.Close(); err != nil {
		return did.DID{}, err
	}
	return id, os.WriteFile(file, data, 0o600)
}

// ownCopy verifies the vendor's document and copies it.
func ownCopy(dir, from string, now time.Time) ([]Vendor, error) {
	raw, err := os.ReadFile(from) //nolint:gosec // the operator names it
	if err != nil {
		return nil, configError("vendor document: %w", err)
	}
	doc, err := did.ParseDocument(raw)
	if err == nil {
		_, err = doc.Verify(now)
	}
	if err != nil {
		return nil, configError("vendor document %s: %w", from, err)
	}
	return []Vendor{{DID: doc.ID().String(), Document: vendorFile}}, os.WriteFile(filepath.Join(dir, vendorFile), raw, 0o600)
}

// issue has the development CA sign a certificate for host.
func issue(dir, caDir, host string) (cert, key, roots string, err error) {
	ca, err := devca.LoadOrNew(caDir)
	if err != nil {
		return "", "", "", err
	}
	if roots, err = filepath.Abs(filepath.Join(caDir, devca.CertFile)); err != nil {
		return "", "", "", err
	}
	cert, key = "cert.pem", "key.pem"
	return cert, key, roots, ca.IssueFiles(filepath.Join(dir, cert), filepath.Join(dir, key), host)
}
