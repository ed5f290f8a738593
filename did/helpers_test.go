// SPDX-License-Identifier: Apache-2.0

package did_test

import (
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
)

var testTime = time.Date(2026, 9, 7, 8, 0, 0, 0, time.UTC)

// identity is a company's agent with all the roles, from fixed seeds.
type identity struct {
	id       did.DID
	key      did.PrivateKey // binding
	kex      did.PrivateKey
	human    did.PrivateKey
	recovery did.PrivateKey
	signer   did.Signer
	spec     did.DocumentSpec
}

func testKey(tb testing.TB, typ did.KeyType, label byte) did.PrivateKey {
	tb.Helper()
	seed := make([]byte, did.SeedSize)
	for i := range seed {
		seed[i] = label + byte(i)
	}
	k, err := did.NewPrivateKey(typ, seed)
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

// newIdentity returns an e1_ or k1_ identity.
func newIdentity(tb testing.TB, typ did.KeyType) *identity {
	tb.Helper()
	prefix := map[did.KeyType]string{did.Ed25519: "e1_", did.Secp256k1: "k1_"}[typ]
	key := testKey(tb, typ, 1)
	return newIdentityAs(tb, "did:wba:vendorcorp.example:agents:steward:"+prefix+key.Public().Thumbprint(), key)
}

func newIdentityAs(tb testing.TB, name string, key did.PrivateKey) *identity {
	tb.Helper()
	i := &identity{
		id: mustParse(tb, name), key: key,
		kex: testKey(tb, did.X25519, 2), human: testKey(tb, did.Ed25519, 3), recovery: testKey(tb, did.Ed25519, 4),
	}
	var err error
	if i.signer, err = did.NewSigner(did.KeyID(i.id, "signing", key.Public()), key); err != nil {
		tb.Fatal(err)
	}
	i.spec = did.DocumentSpec{
		ID:           i.id,
		Binding:      did.MethodSpec{Key: key.Public()},
		KeyAgreement: []did.MethodSpec{{Key: i.kex.Public()}},
		Human:        []did.MethodSpec{{Key: i.human.Public()}},
		Recovery:     []did.MethodSpec{{Key: i.recovery.Public()}},
		Services: []did.Service{
			{ID: "#ad", Type: "AgentDescription", Endpoint: "https://vendorcorp.example/agents/steward/ad.json"},
			{ID: "#anp", Type: "ANPMessageService", Endpoint: "https://vendorcorp.example/anp", ServiceDID: "did:wba:vendorcorp.example"},
		},
	}
	return i
}

func (i *identity) unsigned(tb testing.TB) []byte {
	tb.Helper()
	unsigned, err := did.BuildDocument(i.spec)
	if err != nil {
		tb.Fatal(err)
	}
	return unsigned
}

func (i *identity) sign(tb testing.TB, d did.Dialect) []byte {
	tb.Helper()
	return signAs(tb, i.unsigned(tb), i.signer, d)
}

func signAs(tb testing.TB, unsigned []byte, s did.Signer, d did.Dialect) []byte {
	tb.Helper()
	signed, err := did.SignDocument(tb.Context(), unsigned, s, testTime, d)
	if err != nil {
		tb.Fatal(err)
	}
	return signed
}

func mustParse(tb testing.TB, s string) did.DID {
	tb.Helper()
	id, err := did.Parse(s)
	if err != nil {
		tb.Fatal(err)
	}
	return id
}

func mustDocument(tb testing.TB, raw []byte) *did.Document {
	tb.Helper()
	doc, err := did.ParseDocument(raw)
	if err != nil {
		tb.Fatal(err)
	}
	return doc
}
