// SPDX-License-Identifier: Apache-2.0

package wellknown

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
)

var update = flag.Bool("update", false, "rewrite golden files")

var at = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// agent is an e1_ agent with keys from a fixed seed.
type agent struct {
	id     did.DID
	signer did.Signer
	kex    did.PublicKey
	doc    *did.Document
}

func newAgent(tb testing.TB, domain string, seed byte, change ...func(*did.DocumentSpec)) agent {
	tb.Helper()
	key := must(did.NewPrivateKey(did.Ed25519, bytes.Repeat([]byte{seed}, 32)))
	kex := must(did.NewPrivateKey(did.X25519, bytes.Repeat([]byte{seed + 100}, 32))).Public()
	id := must(did.Parse("did:wba:" + domain + ":agents:steward:e1_" + key.Public().Thumbprint()))
	signer := must(did.NewSigner(did.KeyID(id, "signing", key.Public()), key))
	spec := did.DocumentSpec{ID: id, Binding: did.MethodSpec{Key: key.Public()}, KeyAgreement: []did.MethodSpec{{Key: kex}}}
	for _, c := range change {
		c(&spec)
	}
	unsigned := must(did.BuildDocument(spec))
	raw := must(did.SignDocument(context.Background(), unsigned, signer, at, did.DialectSpec))
	return agent{id: id, signer: signer, kex: kex, doc: must(did.ParseDocument(raw))}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func vendorSpec(a agent) CardSpec {
	return CardSpec{
		Agent: a.id, Name: "Vendor Corp data steward", Description: "Negotiates access to sales data.",
		Organization: "Vendor Corp", OrganizationURL: "https://vendorcorp.test", Origin: "https://vendorcorp.test",
		Schemas: []Schema{{Dataset: "orders", Description: "Orders of 2025", Columns: []Column{
			{"region", "text"}, {"order_value", "decimal(12,2)"}, {"customer_email", "text"},
		}}},
		DataPlane: &DataPlane{DID: must(did.Parse("did:wba:data.vendorcorp.test")), URL: "https://data.vendorcorp.test/mcp",
			Tools: []Tool{{Name: "query_records", Description: "Aggregates <records> & filters",
				InputSchema:  json.RawMessage(`{"type":"object","properties":{"limit":{"type":"integer","minimum":1}},"additionalProperties":false}`),
				OutputSchema: json.RawMessage(`{"type":"object","properties":{"rows":{"type":"array","items":true}}}`)}}},
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs:\n got %s\nwant %s", name, got, want)
	}
}

// edit decodes a JSON object, lets f change it, and encodes it again.
func edit(t testing.TB, raw []byte, f func(map[string]any)) []byte {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	f(v)
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
