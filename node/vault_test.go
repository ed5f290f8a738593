// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/internal/keystore"
)

func vaultKey(t *testing.T, typ did.KeyType, created time.Time) keystore.Key {
	t.Helper()
	k, err := did.GenerateKey(typ)
	if err != nil {
		t.Fatal(err)
	}
	return keystore.Key{Role: keystore.Kex, Created: created, Private: k}
}

// TestVault: what is sealed opens with the same key, after another has come beside it, and for the same conversation only.
func TestVault(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	old, hybrid, next := vaultKey(t, did.X25519, now), vaultKey(t, did.XWing, now.Add(time.Hour)), vaultKey(t, did.X25519, now.Add(time.Minute))
	secret, aad := []byte("a private session key"), []byte("a conversation")
	sealed, err := vault{hybrid, old}.Seal(secret, aad)
	if err != nil || bytes.Contains(sealed, secret) || bytes.Contains(sealed, old.Private.Public().Bytes()) {
		t.Fatalf("%x, %v", sealed, err)
	}
	for name, v := range map[string]vault{"the same": {old}, "after a rotation": {next, hybrid, old}} {
		if got, err := v.Open(sealed, aad); err != nil || !bytes.Equal(got, secret) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	later, err := vault{old, next}.Seal(secret, aad)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (vault{next}).Open(later, aad); err != nil {
		t.Errorf("the newest key does not seal: %v", err)
	}
	damaged := bytes.Clone(sealed)
	damaged[len(damaged)-1] ^= 1
	for name, tc := range map[string]struct {
		v           vault
		sealed, aad []byte
	}{
		"without the key":      {vault{next, hybrid}, sealed, aad},
		"another conversation": {vault{old}, sealed, []byte("another")},
		"damaged":              {vault{old}, damaged, aad},
		"cut short":            {vault{old}, sealed[:20], aad},
		"nothing":              {vault{old}, nil, aad},
	} {
		if got, err := tc.v.Open(tc.sealed, tc.aad); !errors.Is(err, errVault) || got != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := (vault{hybrid}).Seal(secret, aad); !errors.Is(err, errVault) {
		t.Errorf("sealed without an X25519 key: %v", err)
	}
}
