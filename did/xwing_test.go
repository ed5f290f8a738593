// SPDX-License-Identifier: Apache-2.0

package did_test

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
)

func TestXWingKey(t *testing.T) {
	private := testKey(t, did.XWing, 1)
	key := private.Public()
	if len(key.Bytes()) != did.XWingSize || !did.XWing.Agreement() || did.Ed25519.Agreement() {
		t.Fatalf("%d bytes", len(key.Bytes()))
	}
	if key.Algorithm() != "" || key.Multibase() != "" || !errors.Is(key.Verify([]byte("m"), make([]byte, 64)), did.ErrKeyType) {
		t.Error("a key that signs, or has a multicodec")
	}
	if _, err := did.NewSigner("did:wba:example.com#k", private); !errors.Is(err, did.ErrKeyType) {
		t.Errorf("signer: %v", err)
	}
	j := key.JWK()
	again, err := j.PublicKey()
	if err != nil || !again.Equal(key) {
		t.Fatalf("JWK: %v", err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, `{"alg":"X-Wing","kty":"AKP","pub":%q}`, base64.RawURLEncoding.EncodeToString(key.Bytes())))
	if got := base64.RawURLEncoding.EncodeToString(sum[:]); got != key.Thumbprint() {
		t.Errorf("thumbprint %s, want %s", key.Thumbprint(), got)
	}
	weak := key.Bytes()
	clear(weak[did.XWingSize-32:])
	big := key.Bytes()
	for i := range 384 { // coefficients of ML-KEM that are not reduced
		big[i] = 0xff
	}
	for name, b := range map[string][]byte{"X25519 of small order": weak, "ML-KEM not reduced": big} {
		if _, err := did.NewPublicKey(did.XWing, b); !errors.Is(err, did.ErrWeakKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := did.NewPublicKey(did.XWing, key.Bytes()[1:]); !errors.Is(err, did.ErrKey) {
		t.Errorf("short: %v", err)
	}
	with := func(change func(*did.JWK)) did.JWK { c := j; change(&c); return c }
	for name, bad := range map[string]did.JWK{
		"another algorithm": with(func(j *did.JWK) { j.Algorithm = "ML-DSA-65" }),
		"no key":            with(func(j *did.JWK) { j.Public = "" }),
		"padded":            with(func(j *did.JWK) { j.Public = j.Public[:len(j.Public)-1] + "=" }),
		"a curve too":       with(func(j *did.JWK) { j.Curve = "X25519" }),
	} {
		if k, err := bad.PublicKey(); err == nil || !k.IsZero() {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An X-Wing key stands beside the X25519 key, as a JsonWebKey; other kinds of AKP keys are carried and not used.
func TestXWingInDocument(t *testing.T) {
	binding, kex, hybrid := testKey(t, did.Ed25519, 1).Public(), testKey(t, did.X25519, 2).Public(), testKey(t, did.XWing, 3).Public()
	id, err := did.Parse("did:wba:example.com:a:e1_" + binding.Thumbprint())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := did.BuildDocument(did.DocumentSpec{
		ID: id, Binding: did.MethodSpec{Key: binding}, KeyAgreement: []did.MethodSpec{{Key: kex}, {Key: hybrid}},
	})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := did.ParseDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	keys := doc.Keys(did.KeyAgreement)
	if len(keys) != 2 || keys[0].Key.Type() != did.X25519 || !keys[1].Key.Equal(hybrid) || keys[1].Type != did.TypeJSONWebKeyV1 {
		t.Fatalf("%+v", keys)
	}
	if !strings.Contains(string(raw), "https://w3id.org/security/jwk/v1") {
		t.Error("the document's contexts do not define JsonWebKey")
	}
	if k, err := doc.KeyFor(keys[1].ID, did.KeyAgreement, time.Unix(1, 0)); err != nil || !k.Equal(hybrid) {
		t.Errorf("%v", err)
	}
	other, err := did.ParseDocument([]byte(strings.Replace(string(raw), `"alg":"X-Wing"`, `"alg":"ML-KEM-768"`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := other.Method(keys[1].ID); !ok || !m.Key.IsZero() {
		t.Errorf("a kind of key that is unknown here: %v", m.Key)
	}
	for name, damaged := range map[string]string{
		"a secret":  strings.Replace(string(raw), `"alg":"X-Wing"`, `"alg":"X-Wing","priv":"AA"`, 1),
		"cut short": strings.Replace(string(raw), `"pub":"`, `"pub":"A`, 1),
	} {
		if _, err := did.ParseDocument([]byte(damaged)); !errors.Is(err, did.ErrKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
