// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/internal/keystore"
)

// TestReceiptKey_Unlock unseals the receipt key in every way that the configuration knows, and refuses keys that are not this
// data plane's.
func TestReceiptKey_Unlock(t *testing.T) {
	dir := t.TempDir()
	own, err := did.Parse("did:wba:data.vendorcorp.test")
	if err != nil {
		t.Fatal(err)
	}
	identity, err := keystore.NewIdentityFile(filepath.Join(dir, "identity.txt"))
	if err != nil {
		t.Fatal(err)
	}
	pass, err := keystore.PassphraseRecipient("correct horse", keystore.MinWorkFactor)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pass"), []byte("correct horse\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	key := func(role keystore.Role, of did.DID) keystore.Key {
		private, err := did.GenerateKey(did.Ed25519)
		if err != nil {
			t.Fatal(err)
		}
		return keystore.Key{Role: role, KID: did.KeyID(of, string(role), private.Public()), Created: time.Unix(1e9, 0), Private: private}
	}
	other, err := did.Parse("did:wba:data.other.test")
	if err != nil {
		t.Fatal(err)
	}
	for name, k := range map[string]keystore.Key{"own": key(keystore.Receipt, own), "signing": key(keystore.Signing, own), "other": key(keystore.Receipt, other)} {
		if err := errors.Join(keystore.SaveAs(filepath.Join(dir, "keys", name), k, identity.Recipient()), keystore.SaveAs(filepath.Join(dir, "sealed", name), k, pass)); err != nil {
			t.Fatal(err)
		}
	}
	typed := func(string) (string, error) { return "correct horse", nil }
	t.Setenv(keystore.CredentialsEnv, dir)
	for name, tc := range map[string]struct {
		key    string
		unlock keystore.Unlock
		prompt func(string) (string, error)
		want   string
	}{
		"identity":              {"keys/own", keystore.Unlock{Identity: "identity.txt"}, nil, ""},
		"credential":            {"keys/own", keystore.Unlock{Credential: "identity.txt"}, nil, ""},
		"passphrase file":       {"sealed/own", keystore.Unlock{PassphraseFile: "pass"}, nil, ""},
		"passphrase":            {"sealed/own", keystore.Unlock{Passphrase: "prompt"}, typed, ""},
		"passphrase, no prompt": {"sealed/own", keystore.Unlock{Passphrase: "prompt"}, nil, "no terminal"},
		"sealed otherwise":      {"sealed/own", keystore.Unlock{Identity: "identity.txt"}, nil, "cannot be unsealed"},
		"two ways":              {"keys/own", keystore.Unlock{Identity: "identity.txt", Credential: "x"}, nil, "exactly one"},
		"a signing key":         {"keys/signing", keystore.Unlock{Identity: "identity.txt"}, nil, "want a receipt key"},
		"another's key":         {"keys/other", keystore.Unlock{Identity: "identity.txt"}, nil, "want a receipt key"},
	} {
		c := &Config{File: File{Key: tc.key, Unlock: tc.unlock}, Dir: dir, DID: own}
		_, s, err := c.receiptKey(tc.prompt)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) || err == nil && s == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
