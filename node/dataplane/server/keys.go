// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"os"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/internal/keystore"
)

// receiptKey unseals the receipt key and checks that it is this data plane's.
func (c *Config) receiptKey(prompt func(string) (string, error)) (keystore.Key, did.Signer, error) {
	identity, err := c.Unlock.Open(keystore.Environment{Dir: c.Dir, Credentials: os.Getenv(keystore.CredentialsEnv), Prompt: prompt})
	if err != nil {
		return keystore.Key{}, nil, err
	}
	key, err := keystore.Load(c.Path(c.Key), identity)
	if err != nil {
		return keystore.Key{}, nil, err
	}
	id, _, err := did.SplitKeyID(key.KID)
	if err != nil {
		return keystore.Key{}, nil, err
	}
	if key.Role != keystore.Receipt || id != c.DID {
		return keystore.Key{}, nil, configError("%s is a %s key of %s; want a receipt key of %s, the DID of the url's host", c.Key, key.Role, id, c.DID)
	}
	s, err := did.NewSigner(key.KID, key.Private)
	return key, s, err
}

// document is the data plane's own DID document: its bare DID with the receipt key. It is proved at the key's own time, so
// that it is the same document after every start.
func document(ctx context.Context, id did.DID, mcpURL string, key keystore.Key, s did.Signer) ([]byte, error) {
	unsigned, err := did.BuildDocument(did.DocumentSpec{
		ID:       id,
		Binding:  did.MethodSpec{ID: key.KID, Key: key.Private.Public()},
		Services: []did.Service{{ID: "#mcp", Type: "TreatyDataPlane", Endpoint: mcpURL}},
	})
	if err != nil {
		return nil, fmt.Errorf("building the DID document: %w", err)
	}
	raw, err := did.SignDocument(ctx, unsigned, s, key.Created, did.DialectSpec)
	if err != nil {
		return nil, fmt.Errorf("signing the DID document: %w", err)
	}
	return raw, nil
}
