// SPDX-License-Identifier: Apache-2.0

package hpke

import (
	"bytes"
	stdlib "crypto/hpke"
	"crypto/sha3"
	"encoding/base64"
	"errors"
	"testing"

	"github.com/cloudflare/circl/kem/xwing"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/testvectors"
)

func xwingKey(t testing.TB, seed []byte) did.PrivateKey {
	t.Helper()
	return privateKey(t, did.XWing, seed)
}

// The draft's vectors of the KEM itself.
func TestXWingDraft(t *testing.T) {
	vectors, err := testvectors.List[struct{ Seed, ESeed, SS, SK, PK, CT string }]("xwing/test-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range vectors {
		key := xwingKey(t, unhex(t, v.Seed))
		if !bytes.Equal(key.Public().Bytes(), unhex(t, v.PK)) {
			t.Errorf("vector %d: public key", i)
		}
		ss, ct, err := xwing.Encapsulate(key.Public().Bytes(), unhex(t, v.ESeed))
		if err != nil || !bytes.Equal(ct, unhex(t, v.CT)) || !bytes.Equal(ss, unhex(t, v.SS)) {
			t.Errorf("vector %d: encapsulation, %v", i, err)
		}
		if got := xwing.Decapsulate(unhex(t, v.CT), unhex(t, v.SK)); !bytes.Equal(got, unhex(t, v.SS)) {
			t.Errorf("vector %d: decapsulation", i)
		}
		if len(ct) != SuiteXWing.encSize() || len(unhex(t, v.PK)) != did.XWingSize {
			t.Errorf("vector %d: sizes %d, %d", i, len(ct), len(unhex(t, v.PK)))
		}
	}
}

// The published vector of exactly our suite, X-Wing in HPKE.
func TestXWingHPKE(t *testing.T) {
	raw, err := testvectors.List[struct {
		Mode        int    `json:"mode"`
		KEM         int    `json:"kem_id"`
		KDF         int    `json:"kdf_id"`
		AEAD        int    `json:"aead_id"`
		Info        string `json:"info"`
		IkmE        string `json:"ikmE"`
		SkRm        string `json:"skRm"`
		PkRm        string `json:"pkRm"`
		Enc         string `json:"enc"`
		Encryptions []struct {
			AAD string `json:"aad"`
			PT  string `json:"pt"`
			CT  string `json:"ct"`
		} `json:"encryptions"`
	}]("rfc9180/hpke-pq.json")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, v := range raw {
		if v.Mode != 0 || v.KEM != 0x647a || v.KDF != 1 || v.AEAD != 3 {
			continue
		}
		key := xwingKey(t, unhex(t, v.SkRm))
		if !bytes.Equal(key.Public().Bytes(), unhex(t, v.PkRm)) {
			t.Fatal("pkRm")
		}
		enc, sealer, err := newSealer(bytes.NewReader(unhex(t, v.IkmE)), SuiteXWing, key.Public(), unhex(t, v.Info))
		if err != nil || !bytes.Equal(enc, unhex(t, v.Enc)) {
			t.Fatalf("enc: %v", err)
		}
		ring := NewKeyring(map[string]did.PrivateKey{"k": key})
		opener, err := newOpener(SuiteXWing, ring.keys["k"].key, enc, unhex(t, v.Info))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range v.Encryptions {
			ct, err := sealer.Seal(unhex(t, e.PT), unhex(t, e.AAD))
			if err != nil || !bytes.Equal(ct, unhex(t, e.CT)) {
				t.Fatalf("ct: %v", err)
			}
			if pt, err := opener.Open(ct, unhex(t, e.AAD)); err != nil || !bytes.Equal(pt, unhex(t, e.PT)) {
				t.Fatalf("open: %v", err)
			}
			n++
		}
	}
	if n == 0 {
		t.Fatal("no vector of the suite")
	}
}

// What circl seals the standard library opens, and the other way round.
func TestXWingAgainstStandardLibrary(t *testing.T) {
	from, to := newParty(t, "buyer"), newParty(t, "vendor")
	key := xwingKey(t, bytes.Repeat([]byte{7}, did.SeedSize))
	kdf, aead := stdlib.HKDFSHA256(), stdlib.ChaCha20Poly1305()
	sk, err := stdlib.MLKEM768X25519().NewPrivateKey(key.Seed())
	if err != nil {
		t.Fatal(err)
	}
	c := contextOf(from, to)
	ring := NewKeyring(map[string]did.PrivateKey{c.RecipientKID: key})
	source := sha3.NewSHAKE128()
	for range 20 {
		aad, plaintext := draw(source), draw(source)
		s, err := Seal(SuiteXWing, key.Public(), c, aad, plaintext)
		if err != nil {
			t.Fatal(err)
		}
		enc, ct, err := s.decode(SuiteXWing, c.RecipientKID)
		if err != nil || len(enc) != 1120 {
			t.Fatal(err)
		}
		r, err := stdlib.NewRecipient(enc, sk, kdf, aead, c.Info())
		if err != nil {
			t.Fatal(err)
		}
		if pt, err := r.Open(aad, ct); err != nil || !bytes.Equal(pt, plaintext) {
			t.Fatalf("standard library: %v", err)
		}
		stdEnc, sender, err := stdlib.NewSender(sk.PublicKey(), kdf, aead, c.Info())
		if err != nil {
			t.Fatal(err)
		}
		stdCT, err := sender.Seal(aad, plaintext)
		if err != nil {
			t.Fatal(err)
		}
		s = sealedOf(SuiteXWing, c.RecipientKID, stdEnc, stdCT)
		if pt, err := ring.Open(t.Context(), SuiteXWing, s, c, aad); err != nil || !bytes.Equal(pt, plaintext) {
			t.Fatalf("circl: %v", err)
		}
	}
}

func TestXWingRefuses(t *testing.T) {
	from, to := newParty(t, "buyer"), newParty(t, "vendor")
	key := xwingKey(t, bytes.Repeat([]byte{7}, did.SeedSize))
	c := contextOf(from, to)
	ring := NewKeyring(map[string]did.PrivateKey{c.RecipientKID: key})
	good, err := Seal(SuiteXWing, key.Public(), c, nil, []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	enc, _ := base64.RawURLEncoding.DecodeString(good.Enc)
	changed := func(change func([]byte)) string {
		b := bytes.Clone(enc)
		change(b)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	for name, tc := range map[string]struct {
		enc  string
		want error
	}{
		"another ML-KEM ciphertext": {changed(func(b []byte) { b[0] ^= 1 }), ErrOpen},
		"another X25519 key":        {changed(func(b []byte) { b[1100] ^= 1 }), ErrOpen},
		"X25519 of small order":     {changed(func(b []byte) { clear(b[mlkemEncSize:]) }), ErrKey},
		"X25519 not canonical": {changed(func(b []byte) {
			for i := mlkemEncSize; i < len(b); i++ {
				b[i] = 0xff
			}
		}), ErrKey},
		"an X25519 encapsulation": {base64.RawURLEncoding.EncodeToString(enc[mlkemEncSize:]), ErrEncoding},
		"a byte more":             {base64.RawURLEncoding.EncodeToString(append(bytes.Clone(enc), 0)), ErrEncoding},
	} {
		s := good
		s.Enc = tc.enc
		if _, err := ring.Open(t.Context(), SuiteXWing, s, c, nil); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The suite is the agreed one, whatever the payload says; a key of one suite opens nothing of the other.
	if _, err := ring.Open(t.Context(), SuiteX25519, good, c, nil); !errors.Is(err, ErrSuite) {
		t.Errorf("another suite agreed: %v", err)
	}
	if _, err := Seal(SuiteX25519, key.Public(), c, nil, nil); !errors.Is(err, ErrKey) {
		t.Errorf("X-Wing key for X25519: %v", err)
	}
	if _, err := Seal(SuiteXWing, to.kex.Public(), c, nil, nil); !errors.Is(err, ErrKey) {
		t.Errorf("X25519 key for X-Wing: %v", err)
	}
	if kid := SessionKeyID(to.id, key.Public()); !keyOf(to.id, kid) {
		t.Errorf("session key id %q", kid)
	}
}

func BenchmarkXWingSeal(b *testing.B) {
	from, to := newParty(b, "buyer"), newParty(b, "vendor")
	key, c := xwingKey(b, bytes.Repeat([]byte{7}, did.SeedSize)), contextOf(from, to)
	plaintext := make([]byte, 4096)
	for b.Loop() {
		if _, err := Seal(SuiteXWing, key.Public(), c, nil, plaintext); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkXWingOpen(b *testing.B) {
	from, to := newParty(b, "buyer"), newParty(b, "vendor")
	key, c := xwingKey(b, bytes.Repeat([]byte{7}, did.SeedSize)), contextOf(from, to)
	ring := NewKeyring(map[string]did.PrivateKey{c.RecipientKID: key})
	s, err := Seal(SuiteXWing, key.Public(), c, nil, make([]byte, 4096))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := ring.Open(b.Context(), SuiteXWing, s, c, nil); err != nil {
			b.Fatal(err)
		}
	}
}
