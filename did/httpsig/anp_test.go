// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/testvectors"
)

type anpVector struct {
	ID              string          `json:"id"`
	Kind            string          `json:"kind"`
	Transport       string          `json:"transport"`
	Fixture         string          `json:"identity_fixture"`
	Subject         string          `json:"subject_did"`
	KeyID           string          `json:"keyid"`
	Method          string          `json:"method"`
	TargetURI       string          `json:"target_uri"`
	Payload         *string         `json:"payload_utf8"`
	SignatureParams string          `json:"signature_params"`
	Base            string          `json:"signature_base_utf8"`
	ContentDigest   string          `json:"content_digest"`
	SignatureInput  string          `json:"signature_input"`
	Signature       string          `json:"signature"`
	Envelope        json.RawMessage `json:"envelope"`
	Signed          OriginRequest   `json:"signed_request_object"`
}

// Every intermediate value of the published positive vectors, and the vectors
// as requests that the verifier accepts.
func TestANPRequestVectors(t *testing.T) {
	all, err := testvectors.List[anpVector]("anp-authentication/byte-vectors-positive.json", "positives")
	if err != nil {
		t.Fatal(err)
	}
	ran := map[string]int{}
	for _, v := range all {
		if v.Kind != "request-signature" {
			continue // document proofs: package did
		}
		ran[v.Transport]++
		t.Run(v.ID, func(t *testing.T) {
			var body []byte
			if v.Payload != nil {
				body = []byte(*v.Payload)
			}
			auth := Auth{ContentDigest: v.ContentDigest, SignatureInput: v.SignatureInput, Signature: v.Signature}
			checkIntermediates(t, v, body)

			now := at(fixedTime)
			verifier, err := NewVerifier(Options{
				Origins: []string{"https://api.example"}, Resolver: fixtureDocuments(t), Nonces: newNonces(now), Now: now,
				NonceOptional: strings.Contains(v.ID, "NONCELESS"),
			})
			if err != nil {
				t.Fatal(err)
			}
			verify := func() (Caller, error) {
				switch v.Transport {
				case "http-headers":
					r := httptest.NewRequest(v.Method, v.TargetURI, bytes.NewReader(body))
					r.Header.Set("Signature-Input", v.SignatureInput)
					r.Header.Set("Signature", v.Signature)
					if v.ContentDigest != "" {
						r.Header.Set("Content-Digest", v.ContentDigest)
					}
					return verifier.Verify(context.Background(), r, body)
				case "http-json-metadata":
					r := httptest.NewRequest(v.Method, v.TargetURI, nil)
					caller, payload, err := verifier.VerifyJSON(context.Background(), r, v.Envelope)
					if err == nil && string(payload) != *v.Payload {
						t.Errorf("payload %s, want %s", payload, *v.Payload)
					}
					return caller, err
				case "p1-origin":
					return verifier.VerifyOrigin(context.Background(), v.Signed, auth)
				}
				t.Fatalf("unknown transport %q", v.Transport)
				return Caller{}, nil
			}
			caller, err := verify()
			if err != nil || caller.DID.String() != v.Subject || caller.KeyID != v.KeyID || !caller.Created.Equal(fixedTime) {
				t.Fatalf("caller %+v, %v", caller, err)
			}
			if _, err := verify(); !isCode(err, InvalidNonce) {
				t.Fatalf("second time: %v, want invalid_nonce", err)
			}

			// What we would send for the same request.
			signer := fixtureSigner(t, v.Fixture, v.Subject, strings.TrimPrefix(v.KeyID, v.Subject+"#"))
			o := SignOptions{Created: fixedTime, Nonce: v.ID}
			switch v.Transport {
			case "http-json-metadata":
				got, err := SignJSON(context.Background(), v.Method, v.TargetURI, body, signer, o)
				want, err2 := canon.Canonicalize(v.Envelope, canon.Limits{})
				if err != nil || err2 != nil || !bytes.Equal(got, want) {
					t.Errorf("SignJSON\n%s, %v\nwant\n%s, %v", got, err, want, err2)
				}
			case "p1-origin":
				got, err := SignOrigin(context.Background(), v.Signed, signer, o)
				if err != nil || got != auth {
					t.Errorf("SignOrigin %v\n%s", err, cmp.Diff(got, auth))
				}
			}
		})
	}
	if ran["http-headers"] != 8 || ran["http-json-metadata"] != 2 || ran["p1-origin"] != 8 {
		t.Fatalf("ran %v, want 8 header, 2 JSON and 8 origin vectors", ran)
	}
}

func checkIntermediates(t *testing.T, v anpVector, body []byte) {
	t.Helper()
	in, err := ParseSignatureInput([]string{v.SignatureInput})
	if err != nil {
		t.Fatal(err)
	}
	if in.params != v.SignatureParams || in.KeyID != v.KeyID {
		t.Errorf("parameters %s, want %s", in.params, v.SignatureParams)
	}
	m := &Message{Method: v.Method, TargetURI: v.TargetURI}
	if body != nil {
		if got := ContentDigest(body); got != v.ContentDigest {
			t.Errorf("digest %s, want %s", got, v.ContentDigest)
		}
		m.Header = map[string][]string{"Content-Digest": {v.ContentDigest}}
	}
	base, err := in.AppendBase(nil, m)
	if err != nil || string(base) != v.Base {
		t.Errorf("base, %v\n%s", err, cmp.Diff(string(base), v.Base))
	}
	signer := fixtureSigner(t, v.Fixture, v.Subject, strings.TrimPrefix(v.KeyID, v.Subject+"#"))
	if got := "sig1=:" + rawSign(t, signer, base) + ":"; got != v.Signature {
		t.Errorf("signature %s, want %s", got, v.Signature)
	}
	if v.Transport == "p1-origin" {
		m, canonical, _, err := v.Signed.message()
		if err != nil || m.TargetURI != v.TargetURI || !bytes.Equal(canonical, body) {
			t.Errorf("origin: %v, target %s, object %s", err, m.TargetURI, canonical)
		}
	}
}
