// SPDX-License-Identifier: Apache-2.0

package did_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lestrrat-go/jwx/v2/jwa"
	"github.com/lestrrat-go/jwx/v2/jwk"
	"github.com/lestrrat-go/jwx/v2/jws"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/testvectors"
)

const joseDID = "did:web:example.com#key-1"

func joseSigner(tb testing.TB, typ did.KeyType) did.Signer {
	tb.Helper()
	s, err := did.NewSigner(joseDID, testKey(tb, typ, 1))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func signJWS(tb testing.TB, typ did.KeyType, payload string) []byte {
	tb.Helper()
	wire, err := did.SignJWS(tb.Context(), []byte(payload), "treaty-envelope+json", joseSigner(tb, typ))
	if err != nil {
		tb.Fatal(err)
	}
	return wire
}

// parts are the members of a flattened JWS.
type jwsParts struct {
	Payload   string `json:"payload"`
	Protected string `json:"protected"`
	Signature string `json:"signature"`
}

func splitJWS(tb testing.TB, wire []byte) jwsParts {
	tb.Helper()
	var p jwsParts
	if err := json.Unmarshal(wire, &p); err != nil {
		tb.Fatal(err)
	}
	return p
}

func (p jwsParts) join() []byte {
	return fmt.Appendf(nil, `{"payload":%q,"protected":%q,"signature":%q}`, p.Payload, p.Protected, p.Signature)
}

func TestJWS(t *testing.T) {
	for typ, alg := range map[did.KeyType]string{did.Ed25519: "EdDSA", did.Secp256k1: "ES256K", did.P256: "ES256"} {
		payload := `{"v":1,"text":"é"}`
		wire := signJWS(t, typ, payload)
		if err := canon.CheckCanonical(wire, canon.Limits{}); err != nil {
			t.Errorf("%s: %v", typ, err)
		}
		p := splitJWS(t, wire)
		j, err := did.ParseJWS(wire, len(wire))
		if err != nil {
			t.Fatal(err)
		}
		if j.Alg != alg || j.KeyID != joseDID || j.Type != "treaty-envelope+json" || string(j.Payload) != payload ||
			string(j.SigningInput()) != p.Protected+"."+p.Payload {
			t.Errorf("%s: %+v", typ, j)
		}
		if err := j.Verify(testKey(t, typ, 1).Public()); err != nil {
			t.Errorf("%s: %v", typ, err)
		}
		if err := j.Verify(testKey(t, typ, 2).Public()); !errors.Is(err, did.ErrBadSignature) {
			t.Errorf("%s: another key: %v", typ, err)
		}
		for _, other := range keyTypes {
			if err := j.Verify(testKey(t, other, 1).Public()); other != typ && !errors.Is(err, did.ErrKeyType) {
				t.Errorf("%s: a key of type %s: %v", typ, other, err)
			}
		}
		if err := j.Verify(did.PublicKey{}); !errors.Is(err, did.ErrKeyType) {
			t.Errorf("%s: no key: %v", typ, err)
		}
		// Every byte of what is signed counts.
		for _, change := range []func(*jwsParts){
			func(p *jwsParts) { p.Payload = b64([]byte(`{"v":2,"text":"é"}`)) },
			func(p *jwsParts) {
				p.Protected = b64([]byte(`{"alg":"` + alg + `","kid":"` + joseDID + `","typ":"other"}`))
			},
			func(p *jwsParts) {
				p.Protected = b64([]byte(`{"alg":"` + alg + `","typ":"treaty-envelope+json","kid":"` + joseDID + `"}`))
			},
			func(p *jwsParts) { p.Signature = b64(make([]byte, 64)) },
		} {
			q := p
			change(&q)
			j, err := did.ParseJWS(q.join(), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if err := j.Verify(testKey(t, typ, 1).Public()); !errors.Is(err, did.ErrBadSignature) {
				t.Errorf("%s: altered: %v", typ, err)
			}
		}
	}
}

func TestHighSJWSIsRefused(t *testing.T) {
	p := splitJWS(t, signJWS(t, did.Secp256k1, "{}"))
	p.Signature = b64(negateS(unb64(t, p.Signature)))
	j, err := did.ParseJWS(p.join(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Verify(testKey(t, did.Secp256k1, 1).Public()); !errors.Is(err, did.ErrBadSignature) {
		t.Errorf("%v", err)
	}
}

// Other JOSE implementations read what we write.
func TestJWSOracle(t *testing.T) {
	key := testKey(t, did.Ed25519, 1).Public()
	encoded, err := canon.Marshal(key.JWK())
	if err != nil {
		t.Fatal(err)
	}
	oracle, err := jwk.ParseKey(encoded)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := jws.Verify(signJWS(t, did.Ed25519, "payload"), jws.WithKey(jwa.EdDSA, oracle), jws.WithJSON())
	if err != nil || string(payload) != "payload" {
		t.Errorf("%s, %v", payload, err)
	}
	for _, typ := range []did.KeyType{did.Ed25519, did.P256, did.X25519} {
		key := testKey(t, typ, 1).Public()
		encoded, err := canon.Marshal(key.JWK())
		if err != nil {
			t.Fatal(err)
		}
		oracle, err := jwk.ParseKey(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if sum, err := oracle.Thumbprint(crypto.SHA256); err != nil || b64(sum) != key.Thumbprint() {
			t.Errorf("%s: thumbprint %s, %v, want %s", typ, b64(sum), err, key.Thumbprint())
		}
	}
}

func TestParseJWSRefuses(t *testing.T) {
	wire := signJWS(t, did.Ed25519, `{"v":1}`)
	p := splitJWS(t, wire)
	compact := p.Protected + "." + p.Payload + "." + p.Signature
	general := fmt.Sprintf(`{"payload":%q,"signatures":[{"protected":%q,"signature":%q}]}`, p.Payload, p.Protected, p.Signature)
	edit := func(change func(*jwsParts)) []byte { q := p; change(&q); return q.join() }
	header := func(h string) []byte { return edit(func(p *jwsParts) { p.Protected = b64([]byte(h)) }) }
	more := func(s string) []byte { return append(bytes.TrimSuffix(bytes.Clone(wire), []byte("}")), s+"}"...) }
	standard := base64.StdEncoding.EncodeToString([]byte{0xfb, 0xff, 0xfe}) // "+//+"
	for name, data := range map[string][]byte{
		"empty":                      nil,
		"compact form":               []byte(compact),
		"compact form as a string":   []byte(`"` + compact + `"`),
		"general form":               []byte(general),
		"general and flattened":      more(`,"signatures":[]`),
		"unprotected header":         more(`,"header":{"kid":"did:web:evil.example#k"}`),
		"second payload":             more(`,"payload":"e30"`),
		"second payload by escape":   more(`,"\u0070ayload":"e30"`),
		"case variant":               more(`,"Payload":"e30"`),
		"unknown member":             more(`,"x":1`),
		"list":                       []byte("[" + string(wire) + "]"),
		"trailing data":              append(bytes.Clone(wire), '}'),
		"two of them":                append(bytes.Clone(wire), wire...),
		"no signature":               []byte(fmt.Sprintf(`{"payload":%q,"protected":%q}`, p.Payload, p.Protected)),
		"no payload":                 []byte(fmt.Sprintf(`{"protected":%q,"signature":%q}`, p.Protected, p.Signature)),
		"no header":                  []byte(fmt.Sprintf(`{"payload":%q,"signature":%q}`, p.Payload, p.Signature)),
		"payload is a number":        []byte(fmt.Sprintf(`{"payload":1,"protected":%q,"signature":%q}`, p.Protected, p.Signature)),
		"detached payload":           edit(func(p *jwsParts) { p.Payload = "" }),
		"padded payload":             edit(func(p *jwsParts) { p.Payload = "e30=" }),
		"standard base64 payload":    edit(func(p *jwsParts) { p.Payload = standard }),
		"payload with trailing bits": edit(func(p *jwsParts) { p.Payload = "e31" }),
		"payload with a line break":  []byte(strings.Replace(string(wire), `"payload":"`, `"payload":"\n`, 1)),
		"payload with a space":       edit(func(p *jwsParts) { p.Payload = " " + p.Payload }),
		"payload of one character":   edit(func(p *jwsParts) { p.Payload = "e" }),
		"padded signature":           edit(func(p *jwsParts) { p.Signature += "==" }),
		"short signature":            edit(func(p *jwsParts) { p.Signature = p.Signature[:84] }),
		"long signature":             edit(func(p *jwsParts) { p.Signature += "AAAA" }),
		"empty signature":            edit(func(p *jwsParts) { p.Signature = "" }),
		"signature trailing bits":    edit(func(p *jwsParts) { p.Signature = p.Signature[:85] + "B" }),
		"padded header":              edit(func(p *jwsParts) { p.Protected += "=" }),
		"header too large":           header(`{"alg":"EdDSA","kid":"` + joseDID + `","typ":"` + strings.Repeat("x", 2000) + `"}`),
		"header empty":               header(``),
		"header a list":              header(`[]`),
		"header without alg":         header(`{"kid":"` + joseDID + `","typ":"x"}`),
		"header without kid":         header(`{"alg":"EdDSA","typ":"x"}`),
		"header without typ":         header(`{"alg":"EdDSA","kid":"` + joseDID + `"}`),
		"header with crit":           header(`{"alg":"EdDSA","crit":["b64"],"kid":"` + joseDID + `","typ":"x"}`),
		"header with b64":            header(`{"alg":"EdDSA","b64":false,"kid":"` + joseDID + `","typ":"x"}`),
		"header with jwk":            header(`{"alg":"EdDSA","jwk":{},"kid":"` + joseDID + `","typ":"x"}`),
		"header with alg twice":      header(`{"alg":"EdDSA","alg":"none","kid":"` + joseDID + `","typ":"x"}`),
		"header with Alg":            header(`{"Alg":"none","alg":"EdDSA","kid":"` + joseDID + `","typ":"x"}`),
		"header with trailing data":  header(`{"alg":"EdDSA","kid":"` + joseDID + `","typ":"x"}{}`),
		"alg none":                   header(`{"alg":"none","kid":"` + joseDID + `","typ":"x"}`),
		"alg HS256":                  header(`{"alg":"HS256","kid":"` + joseDID + `","typ":"x"}`),
		"alg RS256":                  header(`{"alg":"RS256","kid":"` + joseDID + `","typ":"x"}`),
		"alg in another case":        header(`{"alg":"eddsa","kid":"` + joseDID + `","typ":"x"}`),
		"kid relative":               header(`{"alg":"EdDSA","kid":"#key-1","typ":"x"}`),
		"kid without fragment":       header(`{"alg":"EdDSA","kid":"did:web:example.com","typ":"x"}`),
		"kid of an IP address":       header(`{"alg":"EdDSA","kid":"did:web:127.0.0.1#k","typ":"x"}`),
		"kid a number":               header(`{"alg":"EdDSA","kid":1,"typ":"x"}`),
		"10 MB":                      bytes.Repeat([]byte("a"), 10<<20),
		"10 000 deep":                bytes.Repeat([]byte("["), 10_000),
	} {
		if j, err := did.ParseJWS(data, 1<<20); !errors.Is(err, did.ErrJWS) || j != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := did.ParseJWS(wire, len(wire)-1); !errors.Is(err, canon.ErrTooLarge) {
		t.Errorf("one byte too many: %v", err)
	}
	spaced := strings.ReplaceAll(string(wire), ",", ",\n ")
	if _, err := did.ParseJWS([]byte(spaced), 1<<20); err != nil {
		t.Errorf("white space between members: %v", err)
	}
}

func TestSignJWSRefuses(t *testing.T) {
	s := joseSigner(t, did.Ed25519)
	if _, err := did.SignJWS(t.Context(), []byte("x"), "", s); !errors.Is(err, did.ErrJWS) {
		t.Errorf("no typ: %v", err)
	}
	if _, err := did.SignJWS(t.Context(), nil, "x", s); !errors.Is(err, did.ErrJWS) {
		t.Errorf("no payload: %v", err)
	}
	if _, err := did.SignJWS(t.Context(), []byte("x"), strings.Repeat("x", 4096), s); !errors.Is(err, did.ErrJWS) {
		t.Errorf("header too large: %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := did.SignJWS(cancelled, []byte("x"), "x", s); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestDetached(t *testing.T) {
	payload := []byte(`{"name":"agent"}`)
	for _, typ := range []did.KeyType{did.Ed25519, did.Secp256k1, did.P256} {
		s, key := joseSigner(t, typ), testKey(t, typ, 1).Public()
		protected, signature, err := did.SignDetached(t.Context(), payload, map[string]string{"typ": "JOSE", "jku": "https://example.com/jwks"}, s)
		if err != nil {
			t.Fatal(err)
		}
		header, err := did.VerifyDetached(payload, protected, signature, key)
		if err != nil || header["alg"] != key.Algorithm() || header["kid"] != joseDID || header["typ"] != "JOSE" || header["jku"] != "https://example.com/jwks" || len(header) != 4 {
			t.Errorf("%s: %v, %v", typ, header, err)
		}
		if peek, err := did.DetachedHeader(protected); err != nil || peek["kid"] != joseDID {
			t.Errorf("%s: %v, %v", typ, peek, err)
		}
		algs := map[did.KeyType]did.KeyType{did.Ed25519: did.P256, did.Secp256k1: did.Ed25519, did.P256: did.Secp256k1}
		for name, err := range map[string]error{
			"payload":           second(did.VerifyDetached([]byte(`{"name":"other"}`), protected, signature, key)),
			"signature":         second(did.VerifyDetached(payload, protected, b64(make([]byte, 64)), key)),
			"signature, padded": second(did.VerifyDetached(payload, protected, signature+"==", key)),
			"header":            second(did.VerifyDetached(payload, b64([]byte(`{"alg":"`+key.Algorithm()+`","kid":"x"}`)), signature, key)),
			"header, none":      second(did.VerifyDetached(payload, "", signature, key)),
			"header, alg":       second(did.VerifyDetached(payload, b64([]byte(`{"alg":"none"}`)), signature, key)),
			"header, no alg":    second(did.VerifyDetached(payload, b64([]byte(`{}`)), signature, key)),
			"header, alg list":  second(did.VerifyDetached(payload, b64([]byte(`{"alg":["`+key.Algorithm()+`"]}`)), signature, key)),
			"key":               second(did.VerifyDetached(payload, protected, signature, testKey(t, typ, 2).Public())),
			"type of key":       second(did.VerifyDetached(payload, protected, signature, testKey(t, algs[typ], 1).Public())),
			"no key":            second(did.VerifyDetached(payload, protected, signature, did.PublicKey{})),
		} {
			if err == nil {
				t.Errorf("%s: another %s was accepted", typ, name)
			}
		}
		for _, name := range []string{"crit", "b64", "jwk", "x5c"} {
			bad := b64([]byte(`{"alg":"` + key.Algorithm() + `","` + name + `":true}`))
			sig, err := s.Sign(t.Context(), []byte(bad+"."+b64(payload)))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := did.VerifyDetached(payload, bad, b64(sig), key); !errors.Is(err, did.ErrJWS) {
				t.Errorf("%s: header with %s: %v", typ, name, err)
			}
			if _, _, err := did.SignDetached(t.Context(), payload, map[string]string{name: "x"}, s); !errors.Is(err, did.ErrJWS) {
				t.Errorf("%s: signed a header with %s: %v", typ, name, err)
			}
		}
	}
	if _, _, err := did.SignDetached(t.Context(), payload, map[string]string{"kid": "x"}, joseSigner(t, did.Ed25519)); !errors.Is(err, did.ErrJWS) {
		t.Errorf("a kid of the caller's own: %v", err)
	}
}

func second(_ map[string]any, err error) error { return err }

func TestRFC8037Signature(t *testing.T) {
	type vector struct{ Source, D, X, Protected, Payload, Signature string }
	vectors, err := testvectors.List[vector]("rfc7638/thumbprints.json", "jws")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		key, err := did.NewPrivateKey(did.Ed25519, unb64(t, v.D))
		if err != nil || key.Public().JWK().X != v.X {
			t.Fatalf("%s: %v, %v", v.Source, key, err)
		}
		if header, err := did.VerifyDetached(unb64(t, v.Payload), v.Protected, v.Signature, key.Public()); err != nil || header["alg"] != "EdDSA" {
			t.Errorf("%s: %v, %v", v.Source, header, err)
		}
		if sig := ed25519.Sign(ed25519.NewKeyFromSeed(key.Seed()), []byte(v.Protected+"."+v.Payload)); b64(sig) != v.Signature {
			t.Errorf("%s: the vector is not what the primitive makes", v.Source)
		}
	}
}

// FuzzParseJWS: what parses is one spelling, from which the same bytes were signed, and no header beyond the
// three members.
func FuzzParseJWS(f *testing.F) {
	for _, typ := range []did.KeyType{did.Ed25519, did.Secp256k1, did.P256} {
		f.Add(signJWS(f, typ, `{"v":1}`))
	}
	f.Add([]byte(`{"payload":"e30","protected":"e30","signature":""}`))
	f.Add([]byte(`{"payload":"e30=","protected":"e30","signature":"AA","header":{}}`))
	keys := map[string]did.PublicKey{
		"EdDSA": testKey(f, did.Ed25519, 1).Public(), "ES256K": testKey(f, did.Secp256k1, 1).Public(), "ES256": testKey(f, did.P256, 1).Public(),
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := did.ParseJWS(data, 1<<16)
		if err != nil {
			if j != nil || !errors.Is(err, did.ErrJWS) {
				t.Fatalf("%v, %v", j, err)
			}
			return
		}
		p := splitJWS(t, data)
		if string(j.SigningInput()) != p.Protected+"."+p.Payload || b64(j.Payload) != p.Payload || len(j.Payload) == 0 {
			t.Fatal("not the bytes that were received")
		}
		var header map[string]any
		if err := json.Unmarshal(unb64(t, p.Protected), &header); err != nil || len(header) != 3 ||
			header["alg"] != j.Alg || header["kid"] != j.KeyID || header["typ"] != j.Type {
			t.Fatalf("header %v, %v", header, err)
		}
		if _, _, err := did.SplitKeyID(j.KeyID); err != nil {
			t.Fatal(err)
		}
		key, ok := keys[j.Alg]
		if !ok {
			t.Fatalf("alg %q", j.Alg)
		}
		if j.Verify(key) == nil && key.Verify(j.SigningInput(), unb64(t, p.Signature)) != nil {
			t.Fatal("the library took what the key refuses")
		}
	})
}
