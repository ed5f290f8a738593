// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
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

func fixtureDocuments(t testing.TB) *documents {
	t.Helper()
	d := &documents{byDID: map[string]*did.Document{}}
	for name, i := range identities(t) {
		if strings.HasPrefix(name, "alice") || strings.HasPrefix(name, "api") {
			d.byDID[i.DID] = parseDocument(t, i.Document)
		}
	}
	return d
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
