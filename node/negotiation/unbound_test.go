// SPDX-License-Identifier: Apache-2.0

package negotiation_test

import (
	"bytes"
	"testing"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/envelope"
)

// TestInvariant12_UnprovenDocumentsDoNotContract: ANP lets a k1_ document go without proof. Its binding key holds then, and
// nothing else in it does: whoever serves it can put a key-agreement key of its own there, and read what is sealed to it, or
// an authentication key, and answer in the vendor's name.
func TestInvariant12_UnprovenDocumentsDoNotContract(t *testing.T) {
	w := newWorld(t)
	key, err := did.NewPrivateKey(did.Secp256k1, bytes.Repeat([]byte{9}, 32))
	fatal(t, err)
	id, err := did.Parse("did:wba:vendor.test:agents:steward:k1_" + key.Public().Thumbprint())
	fatal(t, err)
	unsigned, err := did.BuildDocument(did.DocumentSpec{ID: id, Binding: did.MethodSpec{Key: key.Public()}, KeyAgreement: []did.MethodSpec{{Key: w.third.kex.Public()}}})
	fatal(t, err)
	signer, err := did.NewSigner(did.KeyID(id, "signing", key.Public()), key)
	fatal(t, err)
	proved, err := did.SignDocument(t.Context(), unsigned, signer, start, did.DialectSpec)
	fatal(t, err)

	for raw, want := range map[string]envelope.Code{string(unsigned): envelope.CodeNotTrusted, string(proved): ""} {
		doc, err := did.ParseDocument([]byte(raw))
		fatal(t, err)
		v, err := doc.Verify(start) // ANP accepts both
		fatal(t, err)
		if _, err := w.buyer.svc.Start(t.Context(), doc, v, buyerNeeds); envelope.CodeOf(err) != want {
			t.Errorf("proof %q: %v", v.ProofKeyID, err)
		}
	}
}
