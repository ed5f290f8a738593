// SPDX-License-Identifier: Apache-2.0

package hpke

import (
	"bytes"
	"crypto/ecdh"
	stdlib "crypto/hpke"
	"crypto/sha3"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"slices"
	"testing"

	"github.com/c2sp/wycheproof"
	circl "github.com/cloudflare/circl/hpke"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/testvectors"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func privateKey(t testing.TB, typ did.KeyType, seed []byte) did.PrivateKey {
	t.Helper()
	k, err := did.NewPrivateKey(typ, seed)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func x25519Key(t testing.TB, seed []byte) did.PrivateKey {
	t.Helper()
	return privateKey(t, did.X25519, seed)
}

// The vectors of RFC 9180 appendix A for our suite, in the accumulated form of
// Go's standard library: 1000 messages drawn from SHAKE128, hashed.
func TestRFC9180(t *testing.T) {
	type vector struct {
		Mode, KEM, KDF, AEAD                    uint16
		Info, IkmE, SkRm, PkRm, Enc, Encryption string
	}
	raw, err := testvectors.List[map[string]any]("rfc9180/rfc9180.json")
	if err != nil {
		t.Fatal(err)
	}
	text := func(m map[string]any, name string) string { s, _ := m[name].(string); return s }
	number := func(m map[string]any, name string) uint16 { f, _ := m[name].(float64); return uint16(f) }
	var vectors []vector
	for _, m := range raw {
		v := vector{
			number(m, "mode"), number(m, "kem_id"), number(m, "kdf_id"), number(m, "aead_id"),
			text(m, "info"), text(m, "ikmE"), text(m, "skRm"), text(m, "pkRm"), text(m, "enc"), text(m, "encryptions_accumulated"),
		}
		if v.Mode == 0 && v.KEM == 0x20 && v.KDF == 1 && v.AEAD == 3 {
			vectors = append(vectors, v)
		}
	}
	if len(vectors) != 1 {
		t.Fatalf("%d vectors for the suite, want 1", len(vectors))
	}
	v := vectors[0]
	key := x25519Key(t, unhex(t, v.SkRm))
	if got := key.Public().Bytes(); !bytes.Equal(got, unhex(t, v.PkRm)) {
		t.Fatalf("pkRm: got %x", got)
	}
	enc, sealer, err := newSealer(bytes.NewReader(unhex(t, v.IkmE)), SuiteX25519, key.Public(), unhex(t, v.Info))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(enc, unhex(t, v.Enc)) {
		t.Fatalf("enc: got %x", enc)
	}
	opener := openerFor(t, key, enc, unhex(t, v.Info))
	source, sink := sha3.NewSHAKE128(), sha3.NewSHAKE128()
	for range 1000 {
		aad, plaintext := draw(source), draw(source)
		ct, err := sealer.Seal(plaintext, aad)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = sink.Write(ct)
		pt, err := opener.Open(ct, aad)
		if err != nil || !bytes.Equal(pt, plaintext) {
			t.Fatalf("open: %x, %v", pt, err)
		}
	}
	got := make([]byte, 16)
	_, _ = sink.Read(got)
	if !bytes.Equal(got, unhex(t, v.Encryption)) {
		t.Fatalf("ciphertexts: got %x, want %s", got, v.Encryption)
	}
}

func draw(r io.Reader) []byte {
	var n [1]byte
	_, _ = r.Read(n[:])
	b := make([]byte, n[0])
	_, _ = r.Read(b)
	return b
}

func openerFor(t *testing.T, key did.PrivateKey, enc, info []byte) circl.Opener {
	t.Helper()
	ring := NewKeyring(map[string]did.PrivateKey{"k": key})
	o, err := newOpener(SuiteX25519, ring.keys["k"].key, enc, info)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// What circl seals the standard library opens, and the other way round.
func TestDifferentialAgainstStandardLibrary(t *testing.T) {
	from, to := newParty(t, "buyer"), newParty(t, "vendor")
	kdf, aead := stdlib.HKDFSHA256(), stdlib.ChaCha20Poly1305()
	sk, err := stdlib.DHKEM(ecdh.X25519()).NewPrivateKey(to.kex.Seed())
	if err != nil {
		t.Fatal(err)
	}
	c := contextOf(from, to)
	source := sha3.NewSHAKE128()
	for range 50 {
		aad, plaintext := draw(source), draw(source)
		s, err := Seal(SuiteX25519, to.kex.Public(), c, aad, plaintext)
		if err != nil {
			t.Fatal(err)
		}
		enc, ct, err := s.decode(SuiteX25519, to.kexID)
		if err != nil {
			t.Fatal(err)
		}
		r, err := stdlib.NewRecipient(enc, sk, kdf, aead, c.Info())
		if err != nil {
			t.Fatal(err)
		}
		if pt, err := r.Open(aad, ct); err != nil || !bytes.Equal(pt, plaintext) {
			t.Fatalf("standard library: %x, %v", pt, err)
		}

		stdEnc, sender, err := stdlib.NewSender(sk.PublicKey(), kdf, aead, c.Info())
		if err != nil {
			t.Fatal(err)
		}
		stdCT, err := sender.Seal(aad, plaintext)
		if err != nil {
			t.Fatal(err)
		}
		s = sealedOf(SuiteX25519, to.kexID, stdEnc, stdCT)
		if pt, err := to.ring.Open(t.Context(), SuiteX25519, s, c, aad); err != nil || !bytes.Equal(pt, plaintext) {
			t.Fatalf("circl: %x, %v", pt, err)
		}
	}
}

// Wycheproof's X25519 cases as encapsulated keys: those of low order or in a
// second encoding are refused, all others give the same key schedule as the
// standard library's.
func TestWycheproofX25519(t *testing.T) {
	data, err := fs.ReadFile(wycheproof.TestVectors, "x25519_test.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		TestGroups []struct {
			Tests []struct {
				TcID                    int
				Public, Private, Shared string
				Flags                   []string
			}
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	accepted, refused := 0, 0
	for _, g := range file.TestGroups {
		for _, tc := range g.Tests {
			key := x25519Key(t, unhex(t, tc.Private))
			enc, info := unhex(t, tc.Public), []byte("info")
			ring := NewKeyring(map[string]did.PrivateKey{"k": key})
			opener, err := newOpener(SuiteX25519, ring.keys["k"].key, enc, info)
			if bad := slices.Contains(tc.Flags, "ZeroSharedSecret") || slices.Contains(tc.Flags, "NonCanonicalPublic"); bad {
				if err == nil {
					t.Errorf("case %d %v: accepted", tc.TcID, tc.Flags)
				}
				refused++
				continue
			}
			if err != nil {
				t.Errorf("case %d %v: %v", tc.TcID, tc.Flags, err)
				continue
			}
			accepted++
			sk, err := stdlib.DHKEM(ecdh.X25519()).NewPrivateKey(unhex(t, tc.Private))
			if err != nil {
				t.Fatal(err)
			}
			r, err := stdlib.NewRecipient(enc, sk, stdlib.HKDFSHA256(), stdlib.ChaCha20Poly1305(), info)
			if err != nil {
				t.Fatal(err)
			}
			want, err := r.Export("check", 32)
			if err != nil {
				t.Fatal(err)
			}
			if got := opener.Export([]byte("check"), 32); !bytes.Equal(got, want) {
				t.Errorf("case %d: exporter secret differs", tc.TcID)
			}
		}
	}
	if accepted < 400 || refused < 40 {
		t.Fatalf("%d accepted and %d refused: vectors are missing", accepted, refused)
	}
}
