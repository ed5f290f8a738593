// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
)

var update = flag.Bool("update", false, "write golden files")

// now is when everything in these tests happens.
var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// company is a DID with its keys, all from fixed seeds.
type company struct {
	id                       string
	doc                      *did.Document
	signer, second, recovery did.Signer
}

func key(tb testing.TB, seed byte) did.PrivateKey {
	tb.Helper()
	k, err := did.NewPrivateKey(did.Ed25519, bytes.Repeat([]byte{seed}, 32))
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

func newCompany(tb testing.TB, subject string, seed byte) company {
	tb.Helper()
	binding, second, recovery := key(tb, seed), key(tb, seed+1), key(tb, seed+2)
	id, err := did.Parse("did:wba:" + subject + ":e1_" + binding.Public().Thumbprint())
	if err != nil {
		tb.Fatal(err)
	}
	raw, err := did.BuildDocument(did.DocumentSpec{
		ID:       id,
		Binding:  did.MethodSpec{Key: binding.Public()},
		Signing:  []did.MethodSpec{{Key: second.Public()}},
		Recovery: []did.MethodSpec{{Key: recovery.Public()}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	doc, err := did.ParseDocument(raw)
	if err != nil {
		tb.Fatal(err)
	}
	signer := func(k did.PrivateKey) did.Signer {
		for _, m := range doc.Methods() {
			if m.Key.Equal(k.Public()) {
				s, err := did.NewSigner(m.ID, k)
				if err != nil {
					tb.Fatal(err)
				}
				return s
			}
		}
		tb.Fatal("key is not in the document")
		return nil
	}
	return company{id: id.String(), doc: doc, signer: signer(binding), second: signer(second), recovery: signer(recovery)}
}

type world struct {
	buyer, vendor, plane company
	schema               *contract.Schema
	offer                *contract.Offer
	parties              contract.Parties
	agreement            canon.Digest
	transcript           canon.Digest
}

func newWorld(tb testing.TB) world {
	tb.Helper()
	w := world{
		buyer:      newCompany(tb, "buyercorp.test:agents:buyer", 10),
		vendor:     newCompany(tb, "vendorcorp.test:agents:steward", 20),
		plane:      newCompany(tb, "data.vendorcorp.test:agents:dataplane", 30),
		agreement:  canon.Sum([]byte("agreement")),
		transcript: canon.Sum([]byte("transcript")),
	}
	var err error
	w.schema, err = contract.NewSchema("orders", "Orders of the web shop.", []contract.Column{
		{Name: "region", Type: "text"}, {Name: "order_id", Type: "integer"}, {Name: "order_date", Type: "date"},
		{Name: "order_value", Type: "decimal(10,2)"}, {Name: "customer_email", Type: "text"},
		{Name: "gift", Type: "boolean"}, {Name: "created", Type: "timestamptz"},
	})
	if err != nil {
		tb.Fatal(err)
	}
	sd, err := w.schema.Digest()
	if err != nil {
		tb.Fatal(err)
	}
	w.offer = &contract.Offer{
		Type: contract.OfferType,
		Scope: contract.Scope{
			Dataset: "orders", Columns: []string{"region", "order_value", "order_date", "gift"},
			Operations: []string{"avg", "count"},
			RowFilter: []contract.Condition{
				{Column: "order_date", Op: contract.OpBetween, Values: []contract.Value{contract.TextValue("2025-07-01"), contract.TextValue("2025-09-30")}},
				{Column: "gift", Op: contract.OpEqual, Value: contract.BoolValue(false)},
			},
			Purpose: "quarterly market report", RetentionDays: 90, MinGroupSize: 5, CallBudget: 100,
		},
		ValidFrom: "2026-11-30T12:00:00Z", ValidUntil: "2027-02-28T12:00:00Z",
		AcceptBy: "2026-11-30T12:15:00Z", ExpiresAt: "2026-11-30T12:10:00Z",
		DataPlane:    contract.DataPlane{DID: w.plane.id, URL: "https://data.vendorcorp.test/mcp"},
		SchemaDigest: sd,
		Removed: []contract.Removal{{
			What: "column", Asked: "customer_email", Rule: "never", Why: "columns of class \"pii\" never leave",
		}},
	}
	w.parties = contract.Parties{Buyer: w.buyer.id, Vendor: w.vendor.id}
	return w
}

func (w world) build(tb testing.TB) *contract.Contract {
	tb.Helper()
	c, err := contract.Build(w.offer, w.parties, w.agreement, w.transcript)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// proven returns the contract with both proofs.
func (w world) proven(tb testing.TB) *contract.Contract {
	tb.Helper()
	c := w.build(tb)
	for i, s := range []did.Signer{w.buyer.signer, w.vendor.signer} {
		if _, err := c.Prove(tb.Context(), s, now.Add(time.Duration(i+1)*time.Minute)); err != nil {
			tb.Fatal(err)
		}
	}
	return c
}

func (w world) activation(tb testing.TB, c *contract.Contract) *contract.Activation {
	tb.Helper()
	a, err := contract.Activate(tb.Context(), c, now.Add(2*time.Minute), canon.Sum([]byte("head")), w.vendor.signer)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

func (w world) receipt(tb testing.TB, c *contract.Contract) *contract.Receipt {
	tb.Helper()
	d, err := c.Digest()
	if err != nil {
		tb.Fatal(err)
	}
	q, err := (&contract.Request{ContractID: c.ID, Dataset: "orders"}).Digest()
	if err != nil {
		tb.Fatal(err)
	}
	r := &contract.Receipt{
		ID: contract.ReceiptID([16]byte{1, 2, 3}), ContractID: c.ID, ContractDigest: d, QueryDigest: q,
		ResultDigest: canon.Sum([]byte("result")), Rows: 4, UsedRows: 156, TotalRows: 624,
		Time: contract.FormatTime(now.Add(time.Hour)), Caller: w.buyer.id, DataPlane: w.plane.id,
	}
	if err := r.Sign(tb.Context(), w.plane.second); err != nil {
		tb.Fatal(err)
	}
	return r
}

func (w world) revocation(tb testing.TB, c *contract.Contract) *contract.Revocation {
	tb.Helper()
	r, err := contract.Revoke(tb.Context(), c, w.buyer.id, "the report is finished", now.Add(time.Hour), w.buyer.signer)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func must(tb testing.TB, b []byte, err error) []byte {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.TrimSuffix(want, []byte("\n")), got) {
		t.Errorf("%s differs:\n got %s\nwant %s", name, got, want)
	}
}
