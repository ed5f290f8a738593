// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
)

// A document can be signed anew after the contract: in another dialect, or with a service more. The version that is at hand
// then has a proof from after the activation, by the same binding key, and the contract is worth what it was.
func TestDocumentSignedAnewAfterTheActivation(t *testing.T) {
	d := newDeal(t)
	unsigned, err := did.BuildDocument(did.DocumentSpec{
		ID: d.vendor.id, Binding: did.MethodSpec{Key: d.vendor.signer.PublicKey()}, KeyAgreement: []did.MethodSpec{{Key: d.vendor.kex.Public()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	sign := func(at time.Time) {
		doc, err := did.SignDocument(t.Context(), unsigned, d.vendor.signer, at, did.DialectSDK)
		if err != nil {
			t.Fatal(err)
		}
		d.in.Documents = [][]byte{d.buyer.doc, doc}
	}
	sign(start.Add(90 * 24 * time.Hour))
	if rep := verify(t, d.build(d.vendor.signer)); !rep.OK() {
		t.Errorf("%+v", rep.Checks)
	}
}

// A DID without a fingerprint is worth what its web server says. In a bundle nobody asks the server: its compiler can have made
// the other party up, documents, messages, proofs and all.
func TestInventedPartyWithoutFingerprint(t *testing.T) {
	for _, text := range []string{"did:wba:bigcorp.example", "did:web:bigcorp.example"} {
		d := newDealWith(t, func(p *party) {
			key, err := did.NewPrivateKey(did.Ed25519, bytes.Repeat([]byte{7}, 32))
			if err != nil {
				t.Fatal(err)
			}
			if p.id, err = did.Parse(text); err != nil {
				t.Fatal(err)
			}
			if p.signer, err = did.NewSigner(did.KeyID(p.id, "signing", key.Public()), key); err != nil {
				t.Fatal(err)
			}
			p.kexID = did.KeyID(p.id, "kex", p.kex.Public())
			unsigned, err := did.BuildDocument(did.DocumentSpec{
				ID: p.id, Binding: did.MethodSpec{Key: key.Public()}, KeyAgreement: []did.MethodSpec{{Key: p.kex.Public()}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if p.doc, err = did.SignDocument(t.Context(), unsigned, p.signer, start.Add(-time.Hour), did.DialectSpec); err != nil {
				t.Fatal(err)
			}
		})
		data := d.build(d.vendor.signer)
		if r := verify(t, data); r.OK() || status(r, "buyer's document") != Failed {
			t.Errorf("%s: %+v", text, r.Checks)
		}
		for raw, want := range map[string]bool{string(d.buyer.doc): true, string(d.vendor.doc): false} {
			known, err := did.ParseDocument([]byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			if r, err := VerifyBundle(data, known); err != nil || r.OK() != want {
				t.Errorf("%s: %+v, %v", text, r.Checks, err)
			}
		}
	}
}
