// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"bytes"
	"errors"
	"testing"

	"github.com/treaty-node/treaty/did/canon"
)

// What parses has one payload: encoding it again gives the same bytes.
func FuzzParseEnvelope(f *testing.F) {
	buyer, vendor := newParty(f, "buyer"), newParty(f, "vendor")
	sealed, _ := build1(f, draft(buyer, vendor), buyer, vendor.sealTo())
	clear1, _ := build1(f, roundDraft(buyer, vendor), buyer, nil)
	for _, e := range []*Envelope{sealed, clear1} {
		f.Add(e.Raw())
		f.Add(e.jws.Payload)
	}
	f.Add([]byte(`{"payload":"e30","protected":"e30","signature":""}`))
	tricky := *sealed.Sealed
	tricky.RecipientKID = `"},"seq":1,"sealed":{"x":"` + "\\"
	if b, err := canon.Marshal(payload{Header: sealed.Header, Sealed: &tricky}); err == nil {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		// Both as an envelope and, so that the fuzzer gets behind the base64
		// and the signature, as the payload of one.
		for _, raw := range [][]byte{data, signAnyOrNil(t, buyer, data)} {
			e, err := Parse(raw, 0)
			if err != nil {
				if r := (*Refusal)(nil); !errors.As(err, &r) || !r.Code.Known() {
					t.Fatalf("no refusal: %v", err)
				}
				continue
			}
			again, err := canon.Marshal(payload{Header: e.Header, Body: e.Body, Sealed: e.Sealed})
			if err != nil || !bytes.Equal(again, e.jws.Payload) {
				t.Fatalf("%s\n%s\n%v", e.jws.Payload, again, err)
			}
			if e.Sealed != nil {
				want, err := canon.Marshal(e.Header)
				if aad, ok := cutSealed(e.jws.Payload); err != nil || !ok || !bytes.Equal(aad, want) {
					t.Fatalf("cut out %s\nencoded %s", aad, want)
				}
			}
			if e.Check(Expect{}) == nil {
				t.Fatal("an unverified message passed")
			}
			if e.VerifySignature(buyer.sign.Public()) == nil {
				_, _ = Open(t.Context(), e, vendor.ring, vendor.openWith())
				if e.Check(Expect{}) == nil {
					t.Fatal("a message nobody expected passed")
				}
			}
		}
	})
}

func signAnyOrNil(t *testing.T, p party, data []byte) []byte {
	t.Helper()
	if len(data) == 0 {
		return nil
	}
	return signAny(t, p, data)
}

// What parses as sealed content has one spelling.
func FuzzParseSealed(f *testing.F) {
	f.Add([]byte(`{"body":{},"contextId":"AAECAwQFBgcICQoLDA0ODw","from":"did:wba:a.example","salt":"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE","to":"did:wba:b.example"}`))
	f.Add([]byte(`{"body":{"a":[1,2,{}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := parseSealedBody(data)
		if err != nil {
			return
		}
		again, err := canon.Marshal(b)
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("%s\n%s\n%v", data, again, err)
		}
	})
}
