// SPDX-License-Identifier: Apache-2.0

package did_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"testing"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// BenchmarkDocumentK1 does the same for a k1_ document, whose floor is an ECDSA verification over secp256k1.
func BenchmarkDocumentK1(b *testing.B) {
	id := newIdentity(b, did.Secp256k1)
	signed := id.sign(b, did.DialectSDK)
	doc, err := did.ParseDocument(signed)
	if err != nil {
		b.Fatal(err)
	}
	sig, err := id.signer.Sign(b.Context(), make([]byte, 64))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("floor", func(b *testing.B) {
		var r, s secp256k1.ModNScalar
		r.SetByteSlice(sig[:32])
		s.SetByteSlice(sig[32:])
		pub, err := secp256k1.ParsePubKey(id.key.Public().Bytes())
		if err != nil {
			b.Fatal(err)
		}
		digest := sha256.Sum256(make([]byte, 64))
		options := make([]byte, 300)
		for b.Loop() {
			_ = sha256.Sum256(signed)
			_ = sha256.Sum256(options)
			if !ecdsa.NewSignature(&r, &s).Verify(digest[:], pub) {
				b.Fatal("floor")
			}
		}
	})
	b.Run("verify", func(b *testing.B) {
		for b.Loop() {
			if _, err := doc.Verify(testTime); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkDocument compares the document proof check with its floor: one Ed25519 verification and two SHA-256,
// of the document and of the proof options.
func BenchmarkDocument(b *testing.B) {
	id := newIdentity(b, did.Ed25519)
	signed := id.sign(b, did.DialectSpec)
	doc, err := did.ParseDocument(signed)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("floor", func(b *testing.B) {
		sig := ed25519.Sign(ed25519.NewKeyFromSeed(id.key.Seed()), make([]byte, 64))
		pub := ed25519.PublicKey(id.key.Public().Bytes())
		options := make([]byte, 700)
		b.ReportAllocs()
		for b.Loop() {
			_ = sha256.Sum256(signed)
			_ = sha256.Sum256(options)
			if !ed25519.Verify(pub, make([]byte, 64), sig) {
				b.Fatal("floor")
			}
		}
	})
	b.Run("verify", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := doc.Verify(testTime); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parse", func(b *testing.B) {
		b.SetBytes(int64(len(signed)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := did.ParseDocument(signed); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("canonicalize", func(b *testing.B) {
		b.SetBytes(int64(len(signed)))
		for b.Loop() {
			if _, err := canon.Canonicalize(signed, canon.Limits{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkJWS(b *testing.B) {
	id := newIdentity(b, did.Ed25519)
	wire, err := did.SignJWS(b.Context(), make([]byte, 4096), "bench+json", id.signer)
	if err != nil {
		b.Fatal(err)
	}
	j, err := did.ParseJWS(wire, 1<<20)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("floor", func(b *testing.B) {
		sig := ed25519.Sign(ed25519.NewKeyFromSeed(id.key.Seed()), j.SigningInput())
		pub := ed25519.PublicKey(id.key.Public().Bytes())
		for b.Loop() {
			if !ed25519.Verify(pub, j.SigningInput(), sig) {
				b.Fatal("floor")
			}
		}
	})
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := did.ParseJWS(wire, 1<<20); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("verify", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := j.Verify(id.key.Public()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkVerifyObject(b *testing.B) {
	id := newIdentity(b, did.Ed25519)
	object := []byte(`{"a":"` + string(make2k()) + `"}`)
	proof, err := did.SignObject(b.Context(), object, id.signer, testTime)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("floor", func(b *testing.B) {
		sig := ed25519.Sign(ed25519.NewKeyFromSeed(id.key.Seed()), make([]byte, 64))
		pub := ed25519.PublicKey(id.key.Public().Bytes())
		options := make([]byte, 300)
		for b.Loop() {
			_ = sha256.Sum256(object)
			_ = sha256.Sum256(options)
			if !ed25519.Verify(pub, make([]byte, 64), sig) {
				b.Fatal("floor")
			}
		}
	})
	b.Run("verify", func(b *testing.B) {
		for b.Loop() {
			if err := did.VerifyObject(object, proof, id.key.Public()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func make2k() []byte {
	b := make([]byte, 2048)
	for i := range b {
		b[i] = 'x'
	}
	return b
}
