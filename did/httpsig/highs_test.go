// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"

	"github.com/treaty-node/treaty/did"
)

// flipS makes the other valid signature out of one.
func flipS(t *testing.T, signature []byte) []byte {
	t.Helper()
	var s secp256k1.ModNScalar
	if len(signature) != 64 || s.SetByteSlice(signature[32:]) {
		t.Fatal("not a secp256k1 signature")
	}
	other := s.Negate().Bytes()
	return append(append([]byte{}, signature[:32]...), other[:]...)
}

// Both halves of S are accepted where that is switched on, and still only one
// of the two signatures gets through.
func TestHighS(t *testing.T) {
	for _, on := range []bool{false, true} {
		l := newLobby(t, SessionOptions{Legacy: true}, func(o *Options) { o.HighS = on })
		k1, raw := k1Document(t)
		id, _, _ := strings.Cut(k1.KeyID(), "#")
		l.docs.byDID[id] = parseDocument(t, raw)

		r := l.signed(t, "")
		if err := SignRequest(t.Context(), r, nil, k1, SignOptions{Created: l.now}); err != nil {
			t.Fatal(err)
		}
		low := r.Header.Get("Signature")
		sig, err := base64.StdEncoding.DecodeString(low[len("sig1=:") : len(low)-1])
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Signature", "sig1=:"+base64.StdEncoding.EncodeToString(flipS(t, sig))+":")
		header, err := LegacyAuthorization(t.Context(), l.host(), k1, SignOptions{Created: l.now})
		if err != nil {
			t.Fatal(err)
		}
		at := strings.Index(header, `signature="`) + len(`signature="`)
		if sig, err = base64.RawURLEncoding.DecodeString(header[at : len(header)-1]); err != nil {
			t.Fatal(err)
		}
		legacy := l.authorized(header[:at] + base64.RawURLEncoding.EncodeToString(flipS(t, sig)) + `"`)

		if !on {
			l.refused(t, "high S", r, InvalidSignature)
			l.refused(t, "high S in the legacy header", legacy, InvalidSignature)
			continue
		}
		if l.serve(r); l.seen != "caller "+id {
			t.Errorf("high S: saw %s", l.seen)
		}
		r.Header.Set("Signature", low)
		l.refused(t, "then the same with low S", r, InvalidNonce)
		if l.serve(legacy); l.seen != "legacy "+id {
			t.Errorf("high S in the legacy header: saw %s", l.seen)
		}
	}
	// Nothing else is touched.
	v := &Verifier{opts: Options{HighS: true}}
	k1, _ := k1Document(t)
	ed := newSigner(t, "did:web:a.example#k", did.Ed25519, make([]byte, 32))
	over := bytes.Repeat([]byte{0xff}, 64)
	for name, got := range map[string][]byte{
		"over the order": v.normal(k1.PublicKey(), over), "Ed25519": v.normal(ed.PublicKey(), over), "short": v.normal(k1.PublicKey(), over[:63]),
	} {
		if !bytes.Equal(got, over[:len(got)]) {
			t.Errorf("%s was changed", name)
		}
	}
}
