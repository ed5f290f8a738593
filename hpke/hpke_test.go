// SPDX-License-Identifier: Apache-2.0

package hpke

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
)

var update = flag.Bool("update", false, "rewrite golden files")

// party is a company with keys from a seed, so that vectors are stable.
type party struct {
	id     did.DID
	sign   did.PrivateKey
	kex    did.PrivateKey
	signID string
	kexID  string
	ring   *Keyring
}

func newParty(t testing.TB, name string) party {
	t.Helper()
	var p party
	var err error
	seed := func(role string) []byte { s := sha256.Sum256([]byte(name + " " + role)); return s[:] }
	if p.sign, err = did.NewPrivateKey(did.Ed25519, seed("signing")); err != nil {
		t.Fatal(err)
	}
	if p.kex, err = did.NewPrivateKey(did.X25519, seed("kex")); err != nil {
		t.Fatal(err)
	}
	if p.id, err = did.Parse("did:wba:" + name + ".example:agents:steward:e1_" + p.sign.Public().Thumbprint()); err != nil {
		t.Fatal(err)
	}
	p.signID, p.kexID = did.KeyID(p.id, "signing", p.sign.Public()), did.KeyID(p.id, "kex", p.kex.Public())
	p.ring = NewKeyring(map[string]did.PrivateKey{p.kexID: p.kex, p.signID: p.sign})
	return p
}

func contextOf(from, to party) Context {
	return Context{
		Protocol: "treaty-envelope", Version: 1, From: from.id, To: to.id,
		SenderKID: from.signID, RecipientKID: to.kexID,
	}
}

func sealedOf(suite Suite, kid string, enc, ct []byte) Sealed {
	return Sealed{
		Suite: suite, RecipientKID: kid,
		Enc: base64.RawURLEncoding.EncodeToString(enc), Ciphertext: base64.RawURLEncoding.EncodeToString(ct),
	}
}

func TestSealOpen(t *testing.T) {
	from, to := newParty(t, "buyer"), newParty(t, "vendor")
	for _, size := range []int{0, 1, 4096, MaxPlaintext} {
		plaintext, aad := bytes.Repeat([]byte{'x'}, size), []byte(`{"v":1}`)
		s, err := Seal(SuiteX25519, to.kex.Public(), contextOf(from, to), aad, plaintext)
		if err != nil {
			t.Fatal(err)
		}
		got, err := to.ring.Open(t.Context(), SuiteX25519, s, contextOf(from, to), aad)
		if err != nil || !bytes.Equal(got, plaintext) {
			t.Fatalf("%d bytes: %v", size, err)
		}
		again, err := Seal(SuiteX25519, to.kex.Public(), contextOf(from, to), aad, plaintext)
		if err != nil || again.Enc == s.Enc || again.Ciphertext == s.Ciphertext {
			t.Fatalf("sealing twice gives the same: %v", err)
		}
	}
}

func TestSealRefuses(t *testing.T) {
	from, to := newParty(t, "buyer"), newParty(t, "vendor")
	good := contextOf(from, to)
	with := func(f func(*Context)) Context { c := good; f(&c); return c }
	for name, tc := range map[string]struct {
		suite Suite
		key   did.PublicKey
		c     Context
		size  int
		want  error
	}{
		"unknown suite":              {"DHKEM-X25519-HKDF-SHA256/HKDF-SHA256/AES128GCM", to.kex.Public(), good, 1, ErrSuite},
		"no suite":                   {"", to.kex.Public(), good, 1, ErrSuite},
		"signing key":                {SuiteX25519, to.sign.Public(), good, 1, ErrKey},
		"no key":                     {SuiteX25519, did.PublicKey{}, good, 1, ErrKey},
		"too large":                  {SuiteX25519, to.kex.Public(), good, MaxPlaintext + 1, ErrTooLarge},
		"no protocol":                {SuiteX25519, to.kex.Public(), with(func(c *Context) { c.Protocol = "" }), 1, ErrContext},
		"no version":                 {SuiteX25519, to.kex.Public(), with(func(c *Context) { c.Version = 0 }), 1, ErrContext},
		"no sender":                  {SuiteX25519, to.kex.Public(), with(func(c *Context) { c.From = did.DID{} }), 1, ErrContext},
		"sender key of another DID":  {SuiteX25519, to.kex.Public(), with(func(c *Context) { c.SenderKID = to.signID }), 1, ErrContext},
		"recipient key of other DID": {SuiteX25519, to.kex.Public(), with(func(c *Context) { c.RecipientKID = from.kexID }), 1, ErrContext},
		"key id without fragment":    {SuiteX25519, to.kex.Public(), with(func(c *Context) { c.RecipientKID = to.id.String() + "#" }), 1, ErrContext},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Seal(tc.suite, tc.key, tc.c, nil, make([]byte, tc.size)); !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	from, to, third := newParty(t, "buyer"), newParty(t, "vendor"), newParty(t, "third")
	c, aad := contextOf(from, to), []byte("aad")
	sealed, err := Seal(SuiteX25519, to.kex.Public(), c, aad, []byte("plaintext"))
	if err != nil {
		t.Fatal(err)
	}
	sealedWith := func(f func(*Sealed)) Sealed { s := sealed; f(&s); return s }
	contextWith := func(f func(*Context)) Context { c := c; f(&c); return c }
	encOf := func(b []byte) Sealed {
		return sealedWith(func(s *Sealed) { s.Enc = base64.RawURLEncoding.EncodeToString(b) })
	}
	flipped := func(s string) string {
		b, _ := base64.RawURLEncoding.DecodeString(s)
		b[0] ^= 1
		return base64.RawURLEncoding.EncodeToString(b)
	}
	prime := bytes.Repeat([]byte{0xff}, 32) // 2^255-1 with the top bit set: the value 18
	prime[0] = 0xff
	order8, _ := hex.DecodeString("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")

	for name, tc := range map[string]struct {
		suite Suite
		s     Sealed
		c     Context
		aad   string
		ring  *Keyring
		want  error
	}{
		"agreed suite unknown":       {"other", sealed, c, "aad", to.ring, ErrSuite},
		"payload names other suite":  {SuiteX25519, sealedWith(func(s *Sealed) { s.Suite = "other" }), c, "aad", to.ring, ErrSuite},
		"both name unknown suite":    {"other", sealedWith(func(s *Sealed) { s.Suite = "other" }), c, "aad", to.ring, ErrSuite},
		"payload names other key":    {SuiteX25519, sealedWith(func(s *Sealed) { s.RecipientKID = to.signID }), c, "aad", to.ring, ErrRecipient},
		"key not held":               {SuiteX25519, sealed, c, "aad", third.ring, ErrUnknownKey},
		"key of another type":        {SuiteX25519, sealedWith(func(s *Sealed) { s.RecipientKID = to.signID }), contextWith(func(c *Context) { c.RecipientKID = to.signID }), "aad", to.ring, ErrKey},
		"other aad":                  {SuiteX25519, sealed, c, "AAD", to.ring, ErrOpen},
		"other sender":               {SuiteX25519, sealed, contextWith(func(c *Context) { c.From, c.SenderKID = third.id, third.signID }), "aad", to.ring, ErrOpen},
		"other sender key":           {SuiteX25519, sealed, contextWith(func(c *Context) { c.SenderKID = from.kexID }), "aad", to.ring, ErrOpen},
		"other protocol":             {SuiteX25519, sealed, contextWith(func(c *Context) { c.Protocol = "x" }), "aad", to.ring, ErrOpen},
		"other version":              {SuiteX25519, sealed, contextWith(func(c *Context) { c.Version = 2 }), "aad", to.ring, ErrOpen},
		"no context":                 {SuiteX25519, sealed, Context{}, "aad", to.ring, ErrContext},
		"enc altered":                {SuiteX25519, sealedWith(func(s *Sealed) { s.Enc = flipped(s.Enc) }), c, "aad", to.ring, ErrOpen},
		"ciphertext altered":         {SuiteX25519, sealedWith(func(s *Sealed) { s.Ciphertext = flipped(s.Ciphertext) }), c, "aad", to.ring, ErrOpen},
		"enc zero":                   {SuiteX25519, encOf(make([]byte, 32)), c, "aad", to.ring, ErrKey},
		"enc one":                    {SuiteX25519, encOf(append([]byte{1}, make([]byte, 31)...)), c, "aad", to.ring, ErrKey},
		"enc of order 8":             {SuiteX25519, encOf(order8), c, "aad", to.ring, ErrKey},
		"enc not canonical":          {SuiteX25519, encOf(prime), c, "aad", to.ring, ErrKey},
		"enc short":                  {SuiteX25519, encOf(make([]byte, 31)), c, "aad", to.ring, ErrEncoding},
		"enc long":                   {SuiteX25519, encOf(make([]byte, 33)), c, "aad", to.ring, ErrEncoding},
		"enc padded":                 {SuiteX25519, sealedWith(func(s *Sealed) { s.Enc += "=" }), c, "aad", to.ring, ErrEncoding},
		"enc with stray bits":        {SuiteX25519, sealedWith(func(s *Sealed) { s.Enc = s.Enc[:42] + "_" }), c, "aad", to.ring, ErrEncoding},
		"enc with line break":        {SuiteX25519, sealedWith(func(s *Sealed) { s.Enc = s.Enc[:42] + "\n" }), c, "aad", to.ring, ErrEncoding},
		"ciphertext empty":           {SuiteX25519, sealedWith(func(s *Sealed) { s.Ciphertext = "" }), c, "aad", to.ring, ErrEncoding},
		"ciphertext below a tag":     {SuiteX25519, sealedWith(func(s *Sealed) { s.Ciphertext = "AAAA" }), c, "aad", to.ring, ErrEncoding},
		"ciphertext padded":          {SuiteX25519, sealedWith(func(s *Sealed) { s.Ciphertext += "==" }), c, "aad", to.ring, ErrEncoding},
		"ciphertext line break":      {SuiteX25519, sealedWith(func(s *Sealed) { s.Ciphertext += "\r\n" }), c, "aad", to.ring, ErrEncoding},
		"ciphertext standard base64": {SuiteX25519, sealedWith(func(s *Sealed) { s.Ciphertext = "++++" + s.Ciphertext }), c, "aad", to.ring, ErrEncoding},
		"ciphertext too large":       {SuiteX25519, sealedWith(func(s *Sealed) { s.Ciphertext = strings.Repeat("A", 10<<20) }), c, "aad", to.ring, ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			pt, err := tc.ring.Open(t.Context(), tc.suite, tc.s, tc.c, []byte(tc.aad))
			if !errors.Is(err, tc.want) || pt != nil {
				t.Fatalf("got %q, %v; want %v", pt, err, tc.want)
			}
		})
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := to.ring.Open(ctx, SuiteX25519, sealed, c, aad); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
}

// Two contexts that differ anywhere have different infos, also where the
// characters move from one member to the next.
func TestInfoIsInjective(t *testing.T) {
	from, to := newParty(t, "buyer"), newParty(t, "vendor")
	base := contextOf(from, to)
	seen := map[string]int{}
	for i, c := range []Context{
		base,
		{base.Protocol + "x", 1, base.From, base.To, base.SenderKID, base.RecipientKID},
		{base.Protocol, 2, base.From, base.To, base.SenderKID, base.RecipientKID},
		{base.Protocol, 1, base.To, base.From, base.SenderKID, base.RecipientKID},
		{base.Protocol, 1, base.From, base.To, base.SenderKID + "d", base.RecipientKID[1:]},
		{base.Protocol, 1, base.From, base.To, base.SenderKID, base.RecipientKID + "x"},
		{base.Protocol, 1, base.From, base.To, base.SenderKID + base.RecipientKID, ""},
	} {
		info := string(c.Info())
		if j, ok := seen[info]; ok {
			t.Errorf("contexts %d and %d have the same info", i, j)
		}
		seen[info] = i
	}
}

func TestSelectKey(t *testing.T) {
	p := newParty(t, "vendor")
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	key := func(n byte) did.PublicKey {
		return x25519Key(t, bytes.Repeat([]byte{n}, 32)).Public()
	}
	for name, tc := range map[string]struct {
		keys []did.MethodSpec
		want int // index, or -1
	}{
		"one":                    {[]did.MethodSpec{{Key: key(1)}}, 0},
		"first of two":           {[]did.MethodSpec{{Key: key(1)}, {Key: key(2)}}, 0},
		"the one that stays":     {[]did.MethodSpec{{Key: key(1), Expires: now.Add(time.Hour)}, {Key: key(2)}}, 1},
		"the one that lasts":     {[]did.MethodSpec{{Key: key(1), Expires: now.Add(time.Hour)}, {Key: key(2), Expires: now.Add(2 * time.Hour)}}, 1},
		"not one that has ended": {[]did.MethodSpec{{Key: key(1), Expires: now}, {Key: key(2), Expires: now.Add(time.Second)}}, 1},
		"all ended":              {[]did.MethodSpec{{Key: key(1), Expires: now.Add(-time.Second)}}, -1},
		"none":                   {nil, -1},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := did.BuildDocument(did.DocumentSpec{ID: p.id, Binding: did.MethodSpec{Key: p.sign.Public()}, KeyAgreement: tc.keys})
			if err != nil {
				t.Fatal(err)
			}
			doc, err := did.ParseDocument(raw)
			if err != nil {
				t.Fatal(err)
			}
			kid, got, err := SelectKey(doc, SuiteX25519, now)
			if tc.want < 0 {
				if !errors.Is(err, ErrKey) {
					t.Fatalf("got %s, %v", kid, err)
				}
				return
			}
			if err != nil || !got.Equal(tc.keys[tc.want].Key) || kid != did.KeyID(p.id, "kex", got) {
				t.Fatalf("got %s, %v", kid, err)
			}
			if named, err := NamedKey(doc, kid, SuiteX25519, now); err != nil || !named.Equal(got) {
				t.Fatalf("by name: %v", err)
			}
			for _, bad := range []string{p.signID, kid + "x", "#kex", strings.Replace(kid, "vendor", "buyer", 1)} {
				if _, err := NamedKey(doc, bad, SuiteX25519, now); !errors.Is(err, ErrKey) {
					t.Errorf("%s: %v", bad, err)
				}
			}
			if _, _, err := SelectKey(doc, "other", now); !errors.Is(err, ErrSuite) {
				t.Errorf("other suite: %v", err)
			}
		})
	}
}

func TestInvariant10_KeyringShowsNoKey(t *testing.T) {
	p := newParty(t, "vendor")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q", "%d"} {
		for _, v := range []any{p.ring, map[string]any{"ring": p.ring}} {
			out := fmt.Sprintf(verb, v)
			for _, secret := range [][]byte{p.kex.Seed(), p.sign.Seed()} {
				for _, form := range []string{hex.EncodeToString(secret), string(secret), fmt.Sprint(secret)} {
					if strings.Contains(out, form) {
						t.Fatalf("%s shows a key", verb)
					}
				}
			}
		}
	}
}

func TestKeyringConcurrently(t *testing.T) {
	from, to := newParty(t, "buyer"), newParty(t, "vendor")
	c := contextOf(from, to)
	s, err := Seal(SuiteX25519, to.kex.Public(), c, nil, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := to.ring.Open(t.Context(), SuiteX25519, s, c, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// golden is a vector of the profile, for other implementations.
type golden struct {
	Comment      string `json:"comment"`
	Protocol     string `json:"protocol"`
	Version      int    `json:"version"`
	From         string `json:"from"`
	To           string `json:"to"`
	SenderKID    string `json:"senderKid"`
	RecipientKID string `json:"recipientKid"`
	PrivateKey   string `json:"recipientPrivateKeyHex"`
	PublicKey    string `json:"recipientPublicKeyHex"`
	IkmE         string `json:"ikmEHex"`
	Info         string `json:"infoHex"`
	AAD          string `json:"aadHex"`
	Plaintext    string `json:"plaintextHex"`
	Sealed       Sealed `json:"sealed"`
}

func TestGoldenProfile(t *testing.T) {
	from, to := newParty(t, "buyer"), newParty(t, "vendor")
	c := contextOf(from, to)
	var vectors []golden
	for i, plaintext := range []string{"", "{}", strings.Repeat("{\"column\":\"order_value\"}", 40)} {
		ikm, aad := sha256.Sum256([]byte{byte(i)}), fmt.Sprintf(`{"seq":%d,"v":1}`, i+1)
		enc, sealer, err := newSealer(bytes.NewReader(ikm[:]), SuiteX25519, to.kex.Public(), c.Info())
		if err != nil {
			t.Fatal(err)
		}
		ct, err := sealer.Seal([]byte(plaintext), []byte(aad))
		if err != nil {
			t.Fatal(err)
		}
		vectors = append(vectors, golden{
			Comment:  "RFC 9180 Base mode, single shot; ikmE is the input of DeriveKeyPair for the ephemeral key",
			Protocol: c.Protocol, Version: c.Version, From: c.From.String(), To: c.To.String(),
			SenderKID: c.SenderKID, RecipientKID: c.RecipientKID,
			PrivateKey: hex.EncodeToString(to.kex.Seed()), PublicKey: hex.EncodeToString(to.kex.Public().Bytes()),
			IkmE: hex.EncodeToString(ikm[:]), Info: hex.EncodeToString(c.Info()), AAD: hex.EncodeToString([]byte(aad)),
			Plaintext: hex.EncodeToString([]byte(plaintext)), Sealed: sealedOf(SuiteX25519, c.RecipientKID, enc, ct),
		})
	}
	got, err := json.MarshalIndent(vectors, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	path := filepath.Join("testdata", "profile-v1.json")
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s does not match; a change of the profile needs a new version", path)
	}
	for i, v := range vectors {
		pt, err := to.ring.Open(t.Context(), SuiteX25519, v.Sealed, c, unhex(t, v.AAD))
		if err != nil || hex.EncodeToString(pt) != v.Plaintext {
			t.Fatalf("vector %d: %v", i, err)
		}
	}
}

func FuzzParseSealed(f *testing.F) {
	from, to := newParty(f, "buyer"), newParty(f, "vendor")
	c := contextOf(from, to)
	s, err := Seal(SuiteX25519, to.kex.Public(), c, nil, []byte("x"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(s.Suite), s.RecipientKID, s.Enc, s.Ciphertext)
	f.Add("", "", "", "")
	f.Add(string(s.Suite), s.RecipientKID, s.Enc+"\n", s.Ciphertext+"=")
	f.Fuzz(func(t *testing.T, suite, kid, enc, ct string) {
		in := Sealed{Suite: Suite(suite), RecipientKID: kid, Enc: enc, Ciphertext: ct}
		rawEnc, rawCT, err := in.decode(SuiteX25519, to.kexID)
		if err != nil {
			return
		}
		if out := sealedOf(SuiteX25519, to.kexID, rawEnc, rawCT); out != in {
			t.Fatalf("%+v has a second spelling", in)
		}
		if pt, err := to.ring.Open(t.Context(), SuiteX25519, in, c, nil); err == nil && string(pt) != "x" {
			t.Fatal("opened to something that was never sealed")
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	from, to := newParty(b, "buyer"), newParty(b, "vendor")
	c, pt := contextOf(from, to), make([]byte, 4096)
	b.SetBytes(int64(len(pt)))
	for b.Loop() {
		if _, err := Seal(SuiteX25519, to.kex.Public(), c, nil, pt); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	from, to := newParty(b, "buyer"), newParty(b, "vendor")
	c, pt := contextOf(from, to), make([]byte, 4096)
	s, err := Seal(SuiteX25519, to.kex.Public(), c, nil, pt)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(pt)))
	for b.Loop() {
		if _, err := to.ring.Open(b.Context(), SuiteX25519, s, c, nil); err != nil {
			b.Fatal(err)
		}
	}
}
