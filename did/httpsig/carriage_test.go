// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/testvectors"
)

func TestVerifyJSON(t *testing.T) {
	ctx := context.Background()
	for _, test := range []struct {
		name   string
		edit   func(s string) string
		code   Code // "" if accepted
		target string
	}{
		{name: "as sent", edit: func(s string) string { return s }},
		{name: "written differently", edit: func(s string) string {
			return strings.Replace(s, `"payload":{"a":1,`, "\n\"payload\" : { \"a\" : 1 ,", 1)
		}},
		{name: "payload changed", edit: func(s string) string { return strings.Replace(s, `"a":1`, `"a":2`, 1) }, code: InvalidContentDigest},
		{name: "payload removed", edit: func(s string) string { return s[:strings.Index(s, `,"payload"`)] + "}" }, code: InvalidContentDigest},
		{name: "digest removed", edit: func(s string) string { return strings.Replace(s, `"contentDigest"`, `"signature"`, 1) }, code: InvalidRequest},
		{name: "unknown member", edit: func(s string) string { return strings.Replace(s, `{"auth"`, `{"x":1,"auth"`, 1) }, code: InvalidRequest},
		{name: "payload twice", edit: func(s string) string { return strings.Replace(s, `"payload":`, `"payload":{},"payload":`, 1) }, code: InvalidRequest},
		{name: "member in another case", edit: func(s string) string { return strings.Replace(s, `"payload"`, `"Payload"`, 1) }, code: InvalidRequest},
		{name: "duplicate inside the payload", edit: func(s string) string { return strings.Replace(s, `{"a":1,`, `{"a":1,"a":1,`, 1) }, code: InvalidRequest},
		{name: "trailing data", edit: func(s string) string { return s + "{}" }, code: InvalidRequest},
		{name: "no object", edit: func(string) string { return "[]" }, code: InvalidRequest},
		{name: "no auth", edit: func(string) string { return `{"payload":{}}` }, code: InvalidRequest},
		{name: "other target", edit: func(s string) string { return s }, target: "/admin", code: InvalidSignature},
		{name: "ten megabytes", edit: func(string) string { return `{"payload":"` + strings.Repeat("a", 10<<20) + `"}` }, code: InvalidRequest},
		{name: "deep", edit: func(string) string { return `{"payload":` + strings.Repeat("[", 10_000) }, code: InvalidRequest},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(t, "web", "wba")
			s.start(t)
			signer := fixtureSigner(t, s.callerName, s.caller, "root")
			sent, err := SignJSON(ctx, "POST", s.origin+"/orders", []byte(`{ "b": "é", "a": 1 }`), signer, SignOptions{Created: fixedTime})
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest("POST", "/", nil)
			r.RequestURI = "/orders"
			if test.target != "" {
				r.RequestURI = test.target
			}
			caller, payload, err := s.verifier.VerifyJSON(ctx, r, []byte(test.edit(string(sent))))
			if test.code != "" {
				if !isCode(err, test.code) || s.nonces.used.Load() != 0 {
					t.Errorf("%v, %d nonces, want %s", err, s.nonces.used.Load(), test.code)
				}
				return
			}
			if err != nil || caller.DID.String() != s.caller || string(payload) != `{"a":1,"b":"é"}` {
				t.Errorf("%+v %s %v", caller, payload, err)
			}
		})
	}
	// Without payload, and what cannot be signed.
	s := newStage(t, "web", "wba")
	s.start(t)
	signer := fixtureSigner(t, s.callerName, s.caller, "root")
	sent, err := SignJSON(ctx, "GET", s.origin+"/orders", nil, signer, SignOptions{Created: fixedTime})
	if err != nil || strings.Contains(string(sent), "payload") {
		t.Fatalf("%s, %v", sent, err)
	}
	r := httptest.NewRequest("GET", "/orders", nil)
	if _, payload, err := s.verifier.VerifyJSON(ctx, r, sent); err != nil || payload != nil {
		t.Errorf("without payload: %s, %v", payload, err)
	}
	if _, err := SignJSON(ctx, "POST", s.origin, []byte(`{"a":1,"a":2}`), signer, SignOptions{Created: fixedTime}); err == nil {
		t.Error("signed a payload with a duplicate member")
	}
}

func TestVerifyOrigin(t *testing.T) {
	ctx := context.Background()
	const target = "did:wba:b.example%3A8443:x"
	meta := func(sender string) json.RawMessage {
		return json.RawMessage(`{"sender_did":"` + sender + `","target":{"kind":"agent","did":"` + target + `"},"x_note":1}`)
	}
	for _, test := range []struct {
		name string
		edit func(s *stage, q *OriginRequest, a *Auth)
		code Code
	}{
		{name: "as sent", edit: func(*stage, *OriginRequest, *Auth) {}},
		{name: "members in another order", edit: func(s *stage, q *OriginRequest, _ *Auth) {
			q.Meta = json.RawMessage(`{"x_note":1, "target":{"did":"` + target + `","kind":"agent"}, "sender_did":"` + s.caller + `"}`)
		}},
		{name: "SDK: expired", edit: func(s *stage, _ *OriginRequest, _ *Auth) { s.now = fixedTime.Add(92 * time.Second) }, code: InvalidTimestamp},
		{name: "method changed", edit: func(_ *stage, q *OriginRequest, _ *Auth) { q.Method = "direct.delete" }, code: InvalidContentDigest},
		{name: "method in another case", edit: func(_ *stage, q *OriginRequest, _ *Auth) { q.Method = "Direct.send" }, code: InvalidContentDigest},
		{name: "body changed", edit: func(_ *stage, q *OriginRequest, _ *Auth) { q.Body = json.RawMessage(`{"text":"x"}`) }, code: InvalidContentDigest},
		{name: "meta changed", edit: func(s *stage, q *OriginRequest, _ *Auth) {
			q.Meta = json.RawMessage(strings.Replace(string(q.Meta), `"x_note":1`, `"x_note":2`, 1))
		}, code: InvalidContentDigest},
		{name: "target's kind changed, digest made to fit", edit: func(_ *stage, q *OriginRequest, a *Auth) {
			q.Meta = json.RawMessage(strings.Replace(string(q.Meta), `"agent"`, `"group"`, 1))
			_, canonical, _, _ := q.message()
			a.ContentDigest = ContentDigest(canonical)
		}, code: InvalidSignature},
		{name: "sender is another", edit: func(_ *stage, q *OriginRequest, _ *Auth) { q.Meta = meta("did:web:mallory.example") }, code: InvalidDID},
		{name: "no sender", edit: func(_ *stage, q *OriginRequest, _ *Auth) { q.Meta = meta("") }, code: InvalidRequest},
		{name: "no target", edit: func(s *stage, q *OriginRequest, _ *Auth) {
			q.Meta = json.RawMessage(`{"sender_did":"` + s.caller + `"}`)
		}, code: InvalidRequest},
		{name: "unknown kind of target", edit: func(_ *stage, q *OriginRequest, _ *Auth) {
			q.Meta = json.RawMessage(strings.Replace(string(q.Meta), `"agent"`, `"device"`, 1))
		}, code: InvalidRequest},
		{name: "meta is no object", edit: func(_ *stage, q *OriginRequest, _ *Auth) { q.Meta = json.RawMessage(`[]`) }, code: InvalidRequest},
		{name: "meta absent", edit: func(_ *stage, q *OriginRequest, _ *Auth) { q.Meta = nil }, code: InvalidRequest},
		{name: "no proof", edit: func(_ *stage, _ *OriginRequest, a *Auth) { *a = Auth{} }, code: InvalidRequest},
		{name: "digest absent", edit: func(_ *stage, _ *OriginRequest, a *Auth) { a.ContentDigest = "" }, code: InvalidRequest},
		{name: "another label", edit: func(_ *stage, _ *OriginRequest, a *Auth) {
			a.SignatureInput = strings.Replace(a.SignatureInput, "sig1", "sig2", 1)
			a.Signature = strings.Replace(a.Signature, "sig1", "sig2", 1)
		}, code: InvalidRequest},
		{name: "components in another order", edit: func(_ *stage, _ *OriginRequest, a *Auth) {
			a.SignatureInput = strings.Replace(a.SignatureInput, `"@method" "@target-uri"`, `"@target-uri" "@method"`, 1)
		}, code: InvalidRequest},
		{name: "a component more", edit: func(_ *stage, _ *OriginRequest, a *Auth) {
			a.SignatureInput = strings.Replace(a.SignatureInput, `"@target-uri"`, `"@target-uri" "@authority"`, 1)
		}, code: InvalidRequest},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(t, "wba", "web")
			s.start(t)
			q := OriginRequest{Method: "direct.send", Meta: meta(s.caller), Body: json.RawMessage(`{"text":"hello"}`)}
			a, err := SignOrigin(ctx, q, fixtureSigner(t, s.callerName, s.caller, "root"), SignOptions{Created: fixedTime})
			if err != nil {
				t.Fatal(err)
			}
			test.edit(s, &q, &a)
			caller, err := s.verifier.VerifyOrigin(ctx, q, a)
			if test.code == "" {
				if err != nil || caller.DID.String() != s.caller {
					t.Errorf("%+v, %v", caller, err)
				}
			} else if !isCode(err, test.code) || s.nonces.used.Load() != 0 {
				t.Errorf("%v, %d nonces, want %s", err, s.nonces.used.Load(), test.code)
			}
		})
	}

	s := newStage(t, "wba", "web")
	signer := fixtureSigner(t, s.callerName, s.caller, "root")
	if _, err := SignOrigin(ctx, OriginRequest{Method: "a.b", Meta: meta("did:web:other.example"), Body: json.RawMessage(`{}`)}, signer, SignOptions{Created: fixedTime}); err == nil {
		t.Error("signed for another sender")
	}
	q := OriginRequest{Method: "a.b", Meta: meta(s.caller), Body: json.RawMessage(`{}`)}
	if m, _, _, err := q.message(); err != nil || m.TargetURI != "anp://agent/did%3Awba%3Ab.example%253A8443%3Ax" {
		t.Errorf("target %+v, %v", m, err)
	}
}

// Most SDKs write origin proofs that do not say when they expire (ANP-02: SHOULD).
// Those last 60 s, and no other request does.
func TestVerifyOriginWithoutExpires(t *testing.T) {
	ctx := context.Background()
	for age, want := range map[time.Duration]Code{
		-30 * time.Second: "", -31 * time.Second: InvalidTimestamp, 90 * time.Second: "", 91 * time.Second: InvalidTimestamp,
	} {
		s := newStage(t, "wba", "web")
		s.start(t)
		s.now = fixedTime.Add(age)
		q := OriginRequest{Method: "anp.negotiate", Body: json.RawMessage(`{}`),
			Meta: json.RawMessage(`{"sender_did":"` + s.caller + `","target":{"kind":"agent","did":"did:wba:b.example"}}`)}
		m, canonical, _, err := q.message()
		if err != nil {
			t.Fatal(err)
		}
		signer := fixtureSigner(t, s.callerName, s.caller, "root")
		a := Auth{
			ContentDigest:  ContentDigest(canonical),
			SignatureInput: fmt.Sprintf(`sig1=("@method" "@target-uri" "content-digest");created=%d;nonce="n";keyid="%s"`, fixedTime.Unix(), signer.KeyID()),
		}
		in, err := ParseSignatureInput([]string{a.SignatureInput})
		if err != nil {
			t.Fatal(err)
		}
		m.Header = map[string][]string{"Content-Digest": {a.ContentDigest}}
		base, err := in.AppendBase(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		a.Signature = "sig1=:" + rawSign(t, signer, base) + ":"
		if _, err := s.verifier.VerifyOrigin(ctx, q, a); want == "" && err != nil || want != "" && !isCode(err, want) {
			t.Errorf("age %v: %v, want %q", age, err, want)
		}
		if want == "" {
			if _, err := s.verifier.VerifyOrigin(ctx, q, a); !isCode(err, InvalidNonce) {
				t.Errorf("age %v, repeated: %v", age, err)
			}
		}
	}
}

// Nobody makes a new signed object out of those that were published: what is accepted says what one of them says.
func FuzzVerifyJSON(f *testing.F) {
	all, err := testvectors.List[anpVector]("anp-authentication/byte-vectors-positive.json", "positives")
	if err != nil {
		f.Fatal(err)
	}
	published := map[string]bool{}
	var vectors []anpVector
	for _, v := range all {
		if v.Transport == "http-json-metadata" {
			canonical, err := canon.Canonicalize(v.Envelope, canon.Limits{})
			if err != nil {
				f.Fatal(err)
			}
			published[string(canonical)] = true
			vectors = append(vectors, v)
			f.Add([]byte(v.Envelope))
		}
	}
	if len(vectors) == 0 {
		f.Fatal("no vectors")
	}
	f.Add([]byte(`{"auth":{"contentDigest":"","signature":"","signatureInput":""},"payload":null}`))
	docs, now := fixtureDocuments(f), at(fixedTime)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, v := range vectors {
			nonces := newNonces(now)
			verifier, err := NewVerifier(Options{Origins: []string{"https://api.example"}, Resolver: docs, Nonces: nonces, Now: now})
			if err != nil {
				t.Fatal(err)
			}
			_, payload, err := verifier.VerifyJSON(context.Background(), httptest.NewRequest(v.Method, v.TargetURI, nil), data)
			if e := (*Error)(nil); err != nil && (!errors.As(err, &e) || nonces.used.Load() != 0) {
				t.Fatalf("%v, %d nonces", err, nonces.used.Load())
			}
			if err != nil {
				continue
			}
			if canonical, err := canon.Canonicalize(data, canon.Limits{}); err != nil || !published[string(canonical)] {
				t.Fatalf("accepted with payload %s: %s (%v)", payload, data, err)
			}
		}
	})
}
