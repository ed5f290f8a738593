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
	"github.com/treaty-node/treaty/node/internal/keystore"
)

const identityFile = "identity.txt"

// Init makes a data plane's folder: an age identity, a receipt key sealed to it, and the configuration f with both named in it.
// It never replaces anything. Paths in f are written as given: relative ones are relative to dir. It returns the data plane's
// DID.
func Init(dir string, f File, now time.Time) (did.DID, error) {
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
	f.Key, f.Identity = filepath.Join("keys", key.FileName()), identityFile
	data, err := yaml.Marshal(f)
	if err != nil {
		return did.DID{}, err
	}
	return id, os.WriteFile(file, data, 0o600)
}
