// SPDX-License-Identifier: Apache-2.0

package did_test

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"strings"
	"testing"

	"github.com/c2sp/wycheproof"
	"pgregory.net/rapid"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/testvectors"
)

var keyTypes = []did.KeyType{did.Ed25519, did.Secp256k1, did.P256, did.X25519}

func unhex(tb testing.TB, s string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func unb64(tb testing.TB, s string) []byte {
	tb.Helper()
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestKeysRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := rapid.SampledFrom(keyTypes).Draw(t, "type")
		seed := rapid.SliceOfN(rapid.Byte(), did.SeedSize, did.SeedSize).Draw(t, "seed")
		key, err := did.NewPrivateKey(typ, seed)
		if err != nil {
			if typ == did.P256 || typ == did.Secp256k1 {
				return // not a scalar of the curve
			}
			t.Fatal(err)
		}
		public := key.Public()
		for name, form := range map[string]func() (did.PublicKey, error){
			"bytes": func() (did.PublicKey, error) { return did.NewPublicKey(typ, public.Bytes()) },
			"JWK":   func() (did.PublicKey, error) { return public.JWK().PublicKey() },
			"seed": func() (did.PublicKey, error) {
				again, err := did.NewPrivateKey(typ, key.Seed())
				return again.Public(), err
			},
		} {
			if back, err := form(); err != nil || !back.Equal(public) || back.Thumbprint() != public.Thumbprint() || back.Multibase() != public.Multibase() {
				t.Fatalf("%s by %s: %v, %v", typ, name, back, err)
			}
		}
		if len(public.Thumbprint()) != 43 || public.Type() != typ || public.IsZero() {
			t.Fatalf("%v", public)
		}
	})
}

func TestSignAndVerify(t *testing.T) {
	message := []byte("message")
	for _, typ := range []did.KeyType{did.Ed25519, did.Secp256k1, did.P256} {
		key := testKey(t, typ, 9)
		signer, err := did.NewSigner("did:wba:example.com#key-1", key)
		if err != nil {
			t.Fatal(err)
		}
		sig, err := signer.Sign(t.Context(), message)
		if err != nil || len(sig) != 64 {
			t.Fatalf("%s: %d bytes, %v", typ, len(sig), err)
		}
		if again, _ := signer.Sign(t.Context(), message); !bytes.Equal(again, sig) {
			t.Errorf("%s: signatures are not deterministic", typ)
		}
		public := signer.PublicKey()
		if err := public.Verify(message, sig); err != nil {
			t.Errorf("%s: %v", typ, err)
		}
		other := testKey(t, typ, 10).Public()
		zero := make([]byte, 64)
		for name, err := range map[string]error{
			"other message": public.Verify([]byte("massage"), sig), "other key": other.Verify(message, sig), "empty": public.Verify(message, nil),
			"short": public.Verify(message, sig[:63]), "long": public.Verify(message, append(bytes.Clone(sig), 0)), "zero": public.Verify(message, zero),
			"flipped": public.Verify(message, append([]byte{sig[0] ^ 1}, sig[1:]...)),
		} {
			if !errors.Is(err, did.ErrBadSignature) {
				t.Errorf("%s, %s: %v", typ, name, err)
			}
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := signer.Sign(cancelled, message); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: signed after cancellation: %v", typ, err)
		}
	}
}

// secp256k1Order is n of SEC 2 section 2.4.1.
var secp256k1Order, _ = new(big.Int).SetString("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141", 16)

func negateS(sig []byte) []byte {
	out := bytes.Clone(sig)
	s := new(big.Int).SetBytes(sig[32:])
	new(big.Int).Sub(secp256k1Order, s).FillBytes(out[32:])
	return out
}

func TestSecp256k1IsLowSBothWays(t *testing.T) {
	half := new(big.Int).Rsh(secp256k1Order, 1)
	key := testKey(t, did.Secp256k1, 9)
	signer, err := did.NewSigner("did:wba:example.com#key-1", key)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 64 {
		message := []byte{byte(i)}
		sig, err := signer.Sign(t.Context(), message)
		if err != nil {
			t.Fatal(err)
		}
		if new(big.Int).SetBytes(sig[32:]).Cmp(half) > 0 {
			t.Fatalf("signature %d has a high S", i)
		}
		if err := key.Public().Verify(message, negateS(sig)); !errors.Is(err, did.ErrBadSignature) {
			t.Fatalf("the high-S twin of signature %d: %v", i, err)
		}
	}
}

func TestWeakKeysAreRefused(t *testing.T) {
	for _, tc := range []struct {
		typ       did.KeyType
		name, hex string
	}{
		{did.Ed25519, "identity", "0100000000000000000000000000000000000000000000000000000000000000"},
		{did.Ed25519, "identity with sign", "0100000000000000000000000000000000000000000000000000000000000080"},
		{did.Ed25519, "order 2", "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
		{did.Ed25519, "order 2 with sign", "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"},
		{did.Ed25519, "order 4", "0000000000000000000000000000000000000000000000000000000000000000"},
		{did.Ed25519, "order 4 with sign", "0000000000000000000000000000000000000000000000000000000000000080"},
		{did.Ed25519, "order 8", "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"},
		{did.Ed25519, "order 8 with sign", "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85"},
		{did.Ed25519, "the other of order 8", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"},
		{did.Ed25519, "the other of order 8 with sign", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"},
		{did.Ed25519, "p, which is 0", "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
		{did.Ed25519, "p+1, which is 1", "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
		{did.Ed25519, "p+3", "f0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
		{did.Ed25519, "2^255-1", "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
		{did.X25519, "0", "0000000000000000000000000000000000000000000000000000000000000000"},
		{did.X25519, "1", "0100000000000000000000000000000000000000000000000000000000000000"},
		{did.X25519, "order 8", "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"},
		{did.X25519, "the other of order 8", "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"},
		{did.X25519, "p-1", "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
		{did.X25519, "p", "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
		{did.X25519, "p+1", "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
		{did.X25519, "9 with the top bit", "0900000000000000000000000000000000000000000000000000000000000080"},
		{did.X25519, "all ones", "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"},
	} {
		if k, err := did.NewPublicKey(tc.typ, unhex(t, tc.hex)); !errors.Is(err, did.ErrWeakKey) || !k.IsZero() {
			t.Errorf("%s %s: %v, %v", tc.typ, tc.name, k, err)
		}
	}
	hybrid := testKey(t, did.Secp256k1, 1).Public()
	point := unhex(t, "04"+hex.EncodeToString(unb64(t, hybrid.JWK().X))+hex.EncodeToString(unb64(t, hybrid.JWK().Y)))
	point[0] = 6 + point[64]&1
	for name, tc := range map[string]struct {
		typ did.KeyType
		key []byte
	}{
		"Ed25519 off the curve": {did.Ed25519, append([]byte{2}, make([]byte, 31)...)},
		"Ed25519 short":         {did.Ed25519, make([]byte, 31)},
		"X25519 long":           {did.X25519, make([]byte, 33)},
		"secp256k1 empty":       {did.Secp256k1, nil},
		"secp256k1 infinity":    {did.Secp256k1, []byte{0}},
		"secp256k1 hybrid":      {did.Secp256k1, point},
		"secp256k1 off curve":   {did.Secp256k1, append([]byte{4}, bytes.Repeat([]byte{1}, 64)...)},
		"secp256k1 x too large": {did.Secp256k1, append([]byte{2}, bytes.Repeat([]byte{255}, 32)...)},
		"P-256 off the curve":   {did.P256, append([]byte{4}, bytes.Repeat([]byte{1}, 64)...)},
		"P-256 x too large":     {did.P256, append([]byte{2}, bytes.Repeat([]byte{255}, 32)...)},
		"P-256 infinity":        {did.P256, []byte{0}},
	} {
		if k, err := did.NewPublicKey(tc.typ, tc.key); !errors.Is(err, did.ErrKey) || !k.IsZero() {
			t.Errorf("%s: %v, %v", name, k, err)
		}
	}
	if _, err := did.NewPublicKey("RSA", make([]byte, 32)); !errors.Is(err, did.ErrKeyType) {
		t.Errorf("unknown type: %v", err)
	}
}

func TestThumbprintVectors(t *testing.T) {
	type vector struct {
		Source     string
		JWK        map[string]string
		Required   []string
		Thumbprint string
	}
	vectors, err := testvectors.List[vector]("rfc7638/thumbprints.json", "thumbprints")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		required := map[string]string{}
		for _, name := range v.Required {
			required[name] = v.JWK[name]
		}
		canonical, err := canon.Marshal(required)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(canonical)
		if got := base64.RawURLEncoding.EncodeToString(sum[:]); got != v.Thumbprint {
			t.Errorf("%s: %s", v.Source, got)
		}
		if v.JWK["kty"] == "RSA" { // not a key that this module uses
			continue
		}
		key, err := did.JWK{KeyType: v.JWK["kty"], Curve: v.JWK["crv"], X: v.JWK["x"], Y: v.JWK["y"]}.PublicKey()
		if err != nil || key.Thumbprint() != v.Thumbprint {
			t.Errorf("%s: %s, %v", v.Source, key.Thumbprint(), err)
		}
	}
	// The same, by hand, for the elliptic curves, which the RFCs have no example for.
	for _, typ := range []did.KeyType{did.Secp256k1, did.P256} {
		key := testKey(t, typ, 1).Public()
		j := key.JWK()
		sum := sha256.Sum256([]byte(fmt.Sprintf(`{"crv":%q,"kty":"EC","x":%q,"y":%q}`, typ, j.X, j.Y)))
		if got := base64.RawURLEncoding.EncodeToString(sum[:]); got != key.Thumbprint() {
			t.Errorf("%s: %s, want %s", typ, key.Thumbprint(), got)
		}
	}
}

func TestJWKRefuses(t *testing.T) {
	ed, k1 := testKey(t, did.Ed25519, 1).Public().JWK(), testKey(t, did.Secp256k1, 1).Public().JWK()
	with := func(j did.JWK, change func(*did.JWK)) did.JWK { change(&j); return j }
	for name, j := range map[string]did.JWK{
		"empty":             {},
		"wrong kty":         with(ed, func(j *did.JWK) { j.KeyType = "EC" }),
		"y with OKP":        with(ed, func(j *did.JWK) { j.Y = j.X }),
		"padded x":          with(ed, func(j *did.JWK) { j.X += "=" }),
		"line break in x":   with(ed, func(j *did.JWK) { j.X = j.X[:10] + "\n" + j.X[10:] }),
		"short x":           with(ed, func(j *did.JWK) { j.X = j.X[:40] }),
		"unknown curve":     with(ed, func(j *did.JWK) { j.Curve = "Ed448" }),
		"no y":              with(k1, func(j *did.JWK) { j.Y = "" }),
		"y of another x":    with(k1, func(j *did.JWK) { j.Y = ed.X }),
		"curve of another":  with(k1, func(j *did.JWK) { j.Curve = "P-256" }),
		"short coordinates": with(k1, func(j *did.JWK) { j.X, j.Y = "AQ", "AQ" }),
	} {
		if k, err := j.PublicKey(); err == nil || !k.IsZero() {
			t.Errorf("%s: %v, %v", name, k, err)
		}
	}
}

type wycheproofTest struct {
	TcID           int    `json:"tcId"`
	Comment        string `json:"comment"`
	Flags          []string
	Msg, Sig       string
	Public         string
	Private        string
	Shared, Result string
}

func (c wycheproofTest) flagged(names ...string) bool {
	for _, f := range c.Flags {
		for _, n := range names {
			if f == n {
				return true
			}
		}
	}
	return false
}

type wycheproofGroup struct {
	PublicKey struct {
		Pk, Uncompressed string
	}
	Tests []wycheproofTest
}

func wycheproofGroups(t *testing.T, name string) []wycheproofGroup {
	t.Helper()
	data, err := fs.ReadFile(wycheproof.TestVectors, name)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		NumberOfTests int
		TestGroups    []wycheproofGroup
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, g := range file.TestGroups {
		n += len(g.Tests)
	}
	if n == 0 || n != file.NumberOfTests {
		t.Fatalf("%s: %d tests of %d", name, n, file.NumberOfTests)
	}
	return file.TestGroups
}

func TestWycheproofSignatures(t *testing.T) {
	for _, file := range []struct {
		name string
		typ  did.KeyType
	}{
		{"ed25519_test.json", did.Ed25519},
		{"ecdsa_secp256k1_sha256_p1363_test.json", did.Secp256k1},
		{"ecdsa_secp256r1_sha256_p1363_test.json", did.P256},
	} {
		t.Run(string(file.typ), func(t *testing.T) {
			highS := 0
			for _, g := range wycheproofGroups(t, file.name) {
				key, err := did.NewPublicKey(file.typ, unhex(t, g.PublicKey.Pk+g.PublicKey.Uncompressed))
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range g.Tests {
					want := c.Result == "valid"
					sig := unhex(t, c.Sig)
					if file.typ == did.Secp256k1 && want && new(big.Int).SetBytes(sig[32:]).Cmp(new(big.Int).Rsh(secp256k1Order, 1)) > 0 {
						highS++ // valid ECDSA, refused here: see the low-S twin
						if err := key.Verify(unhex(t, c.Msg), negateS(sig)); err != nil {
							t.Errorf("%d (%s): the low-S twin: %v", c.TcID, c.Comment, err)
						}
						want = false
					}
					if err := key.Verify(unhex(t, c.Msg), sig); (err == nil) != want || err != nil && !errors.Is(err, did.ErrBadSignature) {
						t.Errorf("%d (%s): %v, want valid: %v", c.TcID, c.Comment, err, want)
					}
				}
			}
			if (highS > 0) != (file.typ == did.Secp256k1) {
				t.Errorf("%d high-S signatures", highS)
			}
		})
	}
}

// Keys that the vectors flag as weak never become a PublicKey; with all others the agreement gives the shared
// secret.
func TestWycheproofX25519(t *testing.T) {
	refused := 0
	for _, g := range wycheproofGroups(t, "x25519_test.json") {
		for _, c := range g.Tests {
			key, err := did.NewPublicKey(did.X25519, unhex(t, c.Public))
			if c.flagged("LowOrderPublic", "NonCanonicalPublic", "ZeroSharedSecret") {
				refused++
				if !errors.Is(err, did.ErrWeakKey) {
					t.Errorf("%d (%s): %v", c.TcID, c.Comment, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%d (%s): %v", c.TcID, c.Comment, err)
				continue
			}
			private, err := did.NewPrivateKey(did.X25519, unhex(t, c.Private))
			if err != nil {
				t.Fatal(err)
			}
			ours, err := ecdh.X25519().NewPrivateKey(private.Seed())
			if err != nil {
				t.Fatal(err)
			}
			theirs, err := ecdh.X25519().NewPublicKey(key.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if shared, err := ours.ECDH(theirs); err != nil || hex.EncodeToString(shared) != c.Shared {
				t.Errorf("%d (%s): %x, %v", c.TcID, c.Comment, shared, err)
			}
		}
	}
	if refused < 20 {
		t.Errorf("only %d weak keys in the vectors", refused)
	}
}

func TestInvariant10_PrivateKeysNeverPrintTheirSecret(t *testing.T) {
	for _, typ := range keyTypes {
		key := testKey(t, typ, 0x41) // a seed of letters: it would show in any encoding
		signer, err := did.NewSigner("did:wba:example.com#k", testKey(t, did.Ed25519, 0x41))
		if err != nil {
			t.Fatal(err)
		}
		type holder struct {
			hidden  did.PrivateKey
			Shown   did.PrivateKey
			Pointer *did.PrivateKey
			signer  did.Signer
			list    []did.PrivateKey
		}
		h := holder{key, key, &key, signer, []did.PrivateKey{key}}
		var out strings.Builder
		for _, v := range []any{key, &key, h, &h, signer, map[string]any{"k": key}, []any{h}, fmt.Errorf("wrapped: %v", key)} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T"} {
				fmt.Fprintf(&out, verb+"\n", v)
			}
			if encoded, err := json.Marshal(v); err == nil {
				out.Write(encoded)
			}
			if encoded, err := canon.Marshal(v); err == nil {
				out.Write(encoded)
			}
			slog.New(slog.NewTextHandler(&out, nil)).Info("text", "v", v)
			slog.New(slog.NewJSONHandler(&out, nil)).Info("json", "v", v)
		}
		seed := key.Seed()
		text := strings.ToLower(out.String())
		for name, leak := range map[string]string{
			"text": string(seed[:8]), "hex": hex.EncodeToString(seed[:8]), "decimal": strings.Trim(fmt.Sprint(seed[:8]), "[]"),
			"base64": base64.RawURLEncoding.EncodeToString(seed[:6]), "Go": strings.Trim(strings.TrimPrefix(fmt.Sprintf("%#v", seed[:8]), "[]byte"), "{}"),
		} {
			if strings.Contains(text, strings.ToLower(leak)) {
				t.Errorf("%s: the secret shows as %s", typ, name)
			}
		}
		if _, err := json.Marshal(key); err == nil {
			t.Errorf("%s: was encoded", typ)
		}
	}
}

func TestSeedIsACopy(t *testing.T) {
	key := testKey(t, did.Ed25519, 1)
	clear(key.Seed())
	clear(key.Public().Bytes())
	if !bytes.Equal(key.Seed(), testKey(t, did.Ed25519, 1).Seed()) || !key.Public().Equal(testKey(t, did.Ed25519, 1).Public()) {
		t.Error("callers can change a key")
	}
}

func TestZeroKeys(t *testing.T) {
	var public did.PublicKey
	var private did.PrivateKey
	if !public.IsZero() || public.Equal(did.PublicKey{}) || public.Thumbprint() != "" || public.Multibase() != "" || public.JWK() != (did.JWK{}) ||
		len(public.Bytes()) != 0 || public.Algorithm() != "" || public.Verify(nil, make([]byte, 64)) == nil {
		t.Error("the zero public key is something")
	}
	if !private.IsZero() || private.Seed() != nil || !private.Public().IsZero() {
		t.Error("the zero private key is something")
	}
	if _, err := did.NewSigner("did:wba:example.com#k", private); !errors.Is(err, did.ErrKeyType) {
		t.Errorf("a signer without key: %v", err)
	}
	if _, err := did.NewSigner("did:wba:example.com#k", testKey(t, did.X25519, 1)); !errors.Is(err, did.ErrKeyType) {
		t.Errorf("a signer with an agreement key: %v", err)
	}
	if _, err := did.NewSigner("key-1", testKey(t, did.Ed25519, 1)); !errors.Is(err, did.ErrSyntax) {
		t.Errorf("a signer with a relative key id: %v", err)
	}
	if err := testKey(t, did.X25519, 1).Public().Verify(nil, make([]byte, 64)); !errors.Is(err, did.ErrKeyType) {
		t.Errorf("X25519 verifies: %v", err)
	}
}

func TestGenerateKey(t *testing.T) {
	for _, typ := range keyTypes {
		a, err := did.GenerateKey(typ)
		if err != nil {
			t.Fatal(err)
		}
		b, err := did.GenerateKey(typ)
		if err != nil || a.Public().Equal(b.Public()) || a.Public().Type() != typ {
			t.Errorf("%s: %v, %v, %v", typ, a, b, err)
		}
	}
	if _, err := did.GenerateKey("RSA"); !errors.Is(err, did.ErrKeyType) {
		t.Errorf("unknown type: %v", err)
	}
	for _, seed := range [][]byte{nil, make([]byte, 31), make([]byte, 33)} {
		if _, err := did.NewPrivateKey(did.Ed25519, seed); !errors.Is(err, did.ErrKey) {
			t.Errorf("secret of %d bytes: %v", len(seed), err)
		}
	}
	for _, typ := range []did.KeyType{did.P256, did.Secp256k1} {
		for _, b := range []byte{0, 0xff} {
			if _, err := did.NewPrivateKey(typ, bytes.Repeat([]byte{b}, 32)); !errors.Is(err, did.ErrKey) {
				t.Errorf("%s with scalar %x…: %v", typ, b, err)
			}
		}
	}
}
