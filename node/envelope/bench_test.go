// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/hpke"
)

// A body of the size of a contract.
var benchBody = []byte(`{"rationale":"` + strings.Repeat("x", 2000) + `"}`)

func benchEnvelope(b *testing.B) (buyer, vendor party, e *Envelope) {
	b.Helper()
	buyer, vendor = newParty(b, "buyer"), newParty(b, "vendor")
	d := draft(buyer, vendor)
	d.Body = benchBody
	e, _ = build1(b, d, buyer, vendor.sealTo())
	return buyer, vendor, e
}

func BenchmarkBuild(b *testing.B) {
	buyer, vendor, _ := benchEnvelope(b)
	d := draft(buyer, vendor)
	d.Body = benchBody
	for b.Loop() {
		if _, _, err := Build(b.Context(), d, buyer.signer, vendor.sealTo()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBuildFloor is what nobody can leave out of [Build]: one signature,
// one sealing, the digests.
func BenchmarkBuildFloor(b *testing.B) {
	buyer, vendor, e := benchEnvelope(b)
	key := ed25519.NewKeyFromSeed(buyer.sign.Seed())
	c := e.sealContext(e.KeyID(), vendor.kexID)
	aad, err := e.aad()
	if err != nil {
		b.Fatal(err)
	}
	input := e.jws.SigningInput()
	for b.Loop() {
		ed25519.Sign(key, input)
		if _, err := hpke.Seal(hpke.SuiteX25519, vendor.kex.Public(), c, aad, benchBody); err != nil {
			b.Fatal(err)
		}
		sha256.Sum256(input)
		sha256.Sum256(benchBody)
	}
}

func BenchmarkReceive(b *testing.B) {
	buyer, vendor, e := benchEnvelope(b)
	raw, key := e.Raw(), buyer.sign.Public()
	x := expect(buyer, vendor)
	for b.Loop() {
		got, err := Parse(raw, 0)
		if err != nil {
			b.Fatal(err)
		}
		if err := got.VerifySignature(key); err != nil {
			b.Fatal(err)
		}
		if err := got.Check(x); err != nil {
			b.Fatal(err)
		}
		if _, err := Open(b.Context(), got, vendor.ring, vendor.openWith()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReceiveFloor is what nobody can leave out of receiving: one
// signature, one opening, the digests.
func BenchmarkReceiveFloor(b *testing.B) {
	buyer, vendor, e := benchEnvelope(b)
	key := ed25519.PublicKey(buyer.sign.Public().Bytes())
	c := e.sealContext(e.KeyID(), vendor.kexID)
	aad, err := e.aad()
	if err != nil {
		b.Fatal(err)
	}
	var jws struct{ Signature string }
	if err := json.Unmarshal(e.Raw(), &jws); err != nil {
		b.Fatal(err)
	}
	sig, err := base64.RawURLEncoding.DecodeString(jws.Signature)
	if err != nil {
		b.Fatal(err)
	}
	input := e.jws.SigningInput()
	for b.Loop() {
		if !ed25519.Verify(key, input, sig) {
			b.Fatal("signature")
		}
		if _, err := vendor.ring.Open(b.Context(), hpke.SuiteX25519, *e.Sealed, c, aad); err != nil {
			b.Fatal(err)
		}
		sha256.Sum256(input)
		sha256.Sum256(benchBody)
	}
}

func BenchmarkParse(b *testing.B) {
	_, _, e := benchEnvelope(b)
	raw := e.Raw()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, err := Parse(raw, 0); err != nil {
			b.Fatal(err)
		}
	}
}
