// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/internal/keystore"
)

// vault seals the private session keys of negotiations for the store, under a key that is derived from one of the node's own
// X25519 keys: what it sealed is worth nothing without the key files, and opens for as long as that key is within its grace. The
// DID does not enter, so that a conversation survives the node's move to another one. It implements negotiation.Vault.
type vault []keystore.Key

const vaultLabel = "treaty session vault v1"

var errVault = errors.New("node: sealed under a key that is not held any more, or damaged")

// name tells keys apart in what is sealed.
func vaultName(k did.PublicKey) [sha256.Size]byte { return sha256.Sum256(k.Bytes()) }

func vaultAEAD(k did.PrivateKey) (cipher.AEAD, error) {
	seed := k.Seed()
	defer clear(seed)
	key, err := hkdf.Key(sha256.New, seed, nil, vaultLabel, 32)
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	defer clear(key)
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Seal implements negotiation.Vault. The newest key seals.
func (v vault) Seal(plaintext, aad []byte) ([]byte, error) {
	var best *keystore.Key
	for i := range v {
		if k := &v[i]; k.Private.Public().Type() == did.X25519 && (best == nil || k.Created.After(best.Created)) {
			best = k
		}
	}
	if best == nil {
		return nil, errVault
	}
	aead, err := vaultAEAD(best.Private)
	if err != nil {
		return nil, err
	}
	name := vaultName(best.Private.Public())
	return aead.Seal(name[:], nil, plaintext, aad), nil
}

// Open implements negotiation.Vault.
func (v vault) Open(sealed, aad []byte) ([]byte, error) {
	if len(sealed) < sha256.Size {
		return nil, errVault
	}
	name := [sha256.Size]byte(sealed)
	for _, k := range v {
		if public := k.Private.Public(); public.Type() != did.X25519 || vaultName(public) != name {
			continue
		}
		aead, err := vaultAEAD(k.Private)
		if err != nil {
			return nil, err
		}
		plaintext, err := aead.Open(nil, nil, sealed[sha256.Size:], aad)
		if err != nil {
			return nil, errVault
		}
		return plaintext, nil
	}
	return nil, errVault
}
