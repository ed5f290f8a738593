// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/testvectors"
)

// fixedTime is the time at which the fixtures were signed.
var fixedTime = time.Date(2026, 9, 7, 8, 0, 0, 0, time.UTC)

type identity struct {
	DID      string          `json:"did"`
	Document json.RawMessage `json:"document"`
}

var loadIdentities = sync.OnceValues(func() (map[string]identity, error) {
	file, err := testvectors.Load[struct {
		Identities map[string]identity `json:"identities"`
	}]("anp-authentication/identities.json")
	return file.Identities, err
})

func identities(t testing.TB) map[string]identity {
	t.Helper()
	ids, err := loadIdentities()
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// fixtureSigner returns the signer for a key of a published identity; the file
// says how its secret is derived.
func fixtureSigner(t testing.TB, name, id, fragment string) did.Signer {
	t.Helper()
	seed := sha256.Sum256([]byte("ANP02-PUBLIC-TEST-ONLY:" + name + ":" + fragment))
	return newSigner(t, id+"#"+fragment, did.Ed25519, seed[:])
}

func newSigner(t testing.TB, keyid string, typ did.KeyType, seed []byte) did.Signer {
	t.Helper()
	key, err := did.NewPrivateKey(typ, seed)
	if err != nil {
		t.Fatal(err)
	}
	s, err := did.NewSigner(keyid, key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func parseDID(t testing.TB, s string) did.DID {
	t.Helper()
	id, err := did.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func parseDocument(t testing.TB, raw []byte) *did.Document {
	t.Helper()
	doc, err := did.ParseDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// documents is a Resolver over given documents that counts its calls.
type documents struct {
	byDID map[string]*did.Document
	calls atomic.Int64
}

var errUnreachable = errors.New("dial tcp 10.0.0.1:443: connection refused")

func (d *documents) Resolve(_ context.Context, id did.DID) (*did.Document, error) {
	d.calls.Add(1)
	if doc, ok := d.byDID[id.String()]; ok {
		return doc, nil
	}
	return nil, errUnreachable
}

// parsedIdentities parses each document once; documents do not change.
var parsedIdentities = sync.OnceValues(func() (map[string]*did.Document, error) {
	ids, err := loadIdentities()
	docs := map[string]*did.Document{}
	for _, i := range ids {
		doc, parseErr := did.ParseDocument(i.Document)
		docs[i.DID], err = doc, errors.Join(err, parseErr)
	}
	return docs, err
})

func fixtureDocuments(t testing.TB) *documents {
	t.Helper()
	docs, err := parsedIdentities()
	if err != nil {
		t.Fatal(err)
	}
	return &documents{byDID: maps.Clone(docs)}
}

// countingNonces counts the nonces that were recorded.
type countingNonces struct {
	*MemoryNonces
	used atomic.Int64
}

func (c *countingNonces) Use(ctx context.Context, keyid, nonce string, expires time.Time) (bool, error) {
	c.used.Add(1)
	return c.MemoryNonces.Use(ctx, keyid, nonce, expires)
}

func newNonces(now func() time.Time) *countingNonces {
	return &countingNonces{MemoryNonces: NewMemoryNonces(MemoryNonceOptions{Now: now})}
}

func at(t time.Time) func() time.Time { return func() time.Time { return t } }

// rawSign signs a base without any of the sender's rules.
func rawSign(t testing.TB, s did.Signer, base []byte) string {
	t.Helper()
	sig, err := s.Sign(context.Background(), base)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(sig)
}

func k1Seed(n byte) []byte { return append(make([]byte, 31), n) }

// k1Document returns the document of a k1_ DID without proof, with a second
// authentication key #added, and the signer for the binding key.
func k1Document(t testing.TB) (binding did.Signer, raw []byte) {
	t.Helper()
	var jwks []did.JWK
	var id string
	for _, n := range []byte{7, 8} {
		key, err := did.NewPrivateKey(did.Secp256k1, k1Seed(n))
		if err != nil {
			t.Fatal(err)
		}
		if id == "" {
			id = "did:wba:identity-wba.example:agent:k1_" + key.Public().Thumbprint()
		}
		jwks = append(jwks, key.Public().JWK())
	}
	raw, err := json.Marshal(map[string]any{
		"@context": []string{"https://www.w3.org/ns/did/v1"},
		"id":       id,
		"verificationMethod": []map[string]any{
			{"id": id + "#binding", "type": "EcdsaSecp256k1VerificationKey2019", "controller": id, "publicKeyJwk": jwks[0]},
			{"id": id + "#added", "type": "EcdsaSecp256k1VerificationKey2019", "controller": id, "publicKeyJwk": jwks[1]},
		},
		"authentication":  []string{id + "#binding", id + "#added"},
		"assertionMethod": []string{id + "#binding"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return newSigner(t, id+"#binding", did.Secp256k1, k1Seed(7)), raw
}
