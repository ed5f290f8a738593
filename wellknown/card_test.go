// SPDX-License-Identifier: Apache-2.0

package wellknown

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/gowebpki/jcs"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

func TestBuildCardGolden(t *testing.T) {
	a := newAgent(t, "vendorcorp.test", 1)
	card, err := BuildCard(context.Background(), vendorSpec(a), a.signer)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "agent-card.json", card)
	again := must(BuildCard(context.Background(), vendorSpec(a), a.signer))
	if !bytes.Equal(card, again) {
		t.Error("two builds differ")
	}
	if canonical := must(canon.Canonicalize(card, canon.Limits{})); !bytes.Equal(canonical, card) {
		t.Error("the card is not canonical")
	}
}

func TestVerifyCard(t *testing.T) {
	a := newAgent(t, "vendorcorp.test", 1)
	raw := must(BuildCard(context.Background(), vendorSpec(a), a.signer))
	card, err := VerifyCard(raw, a.doc, at)
	if err != nil {
		t.Fatal(err)
	}
	if card.Agent != a.id || card.KeyID != a.signer.KeyID() || card.Digest != canon.Sum(raw) || !bytes.Equal(card.Raw(), raw) {
		t.Errorf("verified card: agent %s, key %s", card.Agent, card.KeyID)
	}
	n, err := card.Negotiation()
	if err != nil {
		t.Fatal(err)
	}
	if n.Agent != a.id || len(n.Schemas) != 1 || n.Schemas[0].Columns[1] != (Column{"order_value", "decimal(12,2)"}) ||
		n.DataPlane.URL != "https://data.vendorcorp.test/mcp" || n.DataPlane.Protocol != "MCP" || n.DataPlane.Tools[0].Name != "query_records" {
		t.Errorf("negotiation parameters: %+v", n)
	}
	for binding, want := range map[string]string{
		BindingJSONRPC: "https://vendorcorp.test/a2a", BindingHTTPJSON: "https://vendorcorp.test/a2a/v1",
	} {
		if i, err := card.Interface(binding); err != nil || i.URL != want {
			t.Errorf("%s interface: %v, %v", binding, i, err)
		}
	}
	if _, err := card.Interface("GRPC"); !errors.Is(err, ErrNoInterface) {
		t.Errorf("GRPC: %v", err)
	}
}

// The signature is checked with nothing of ours: another canonicalizer, the standard library's Ed25519, and both ways in which
// SDKs read section 8.4 (dropping only defaults; dropping every empty value).
func TestCardSignatureCrossCheck(t *testing.T) {
	a := newAgent(t, "vendorcorp.test", 1)
	raw := must(BuildCard(context.Background(), vendorSpec(a), a.signer))
	var sig struct{ Protected, Signature string }
	for name, prepare := range map[string]func(map[string]any) any{
		"as received":  func(m map[string]any) any { return m },
		"empties gone": func(m map[string]any) any { return withoutEmpties(m) },
		"through the Go SDK's types": func(m map[string]any) any {
			var card sdk.AgentCard
			if err := json.Unmarshal(must(json.Marshal(m)), &card); err != nil {
				t.Fatal(err)
			}
			return card
		},
	} {
		t.Run(name, func(t *testing.T) {
			var payload any
			edit(t, raw, func(m map[string]any) {
				first := m["signatures"].([]any)[0].(map[string]any)
				sig.Protected, sig.Signature = first["protected"].(string), first["signature"].(string)
				delete(m, "signatures")
				payload = prepare(m)
			})
			canonical := must(jcs.Transform(must(json.Marshal(payload))))
			input := sig.Protected + "." + base64.RawURLEncoding.EncodeToString(canonical)
			key := ed25519.PublicKey(a.signer.PublicKey().Bytes())
			if !ed25519.Verify(key, []byte(input), must(base64.RawURLEncoding.DecodeString(sig.Signature))) {
				t.Error("signature does not verify")
			}
		})
	}
	header := must(base64.RawURLEncoding.DecodeString(sig.Protected))
	if want := fmt.Sprintf(`{"alg":"EdDSA","kid":%q,"typ":"JOSE"}`, a.signer.KeyID()); string(header) != want {
		t.Errorf("protected header %s, want %s", header, want)
	}
}

func withoutEmpties(v any) any {
	switch v := v.(type) {
	case string:
		if v == "" {
			return nil
		}
	case []any:
		var out []any
		for _, e := range v {
			if e = withoutEmpties(e); e != nil {
				out = append(out, e)
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if e = withoutEmpties(e); e != nil {
				out[k] = e
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	}
	return v
}

func TestCanonicalCard(t *testing.T) {
	for _, test := range []struct{ name, in, want string }{
		{"the example of section 8.4.1",
			`{"name":"Example Agent","description":"","capabilities":{"streaming":false,"pushNotifications":false,"extensions":[]},"skills":[]}`,
			`{"capabilities":{"pushNotifications":false,"streaming":false},"description":"","name":"Example Agent","skills":[]}`},
		{"signatures are left out", `{"name":"a","signatures":[{"protected":"x","signature":"y"}]}`, `{"name":"a"}`},
		{"optional strings stay when set", `{"documentationUrl":"","iconUrl":""}`, `{"documentationUrl":"","iconUrl":""}`},
		{"null is absent", `{"name":"a","provider":null,"skills":null}`, `{"name":"a"}`},
		{"implicit fields inside lists and messages",
			`{"supportedInterfaces":[{"url":"u","tenant":""}],"capabilities":{"extensions":[{"uri":"","required":false,"description":"","params":{}}]}}`,
			`{"capabilities":{"extensions":[{"params":{}}]},"supportedInterfaces":[{"url":"u"}]}`},
		{"a Struct is opaque", `{"capabilities":{"extensions":[{"params":{"a":"","b":[],"c":{},"d":false,"e":null}}]}}`,
			`{"capabilities":{"extensions":[{"params":{"a":"","b":[],"c":{},"d":false,"e":null}}]}}`},
		{"skills", `{"skills":[{"id":"","tags":[],"examples":[],"inputModes":["x"],"outputModes":[]}]}`,
			`{"skills":[{"id":"","inputModes":["x"],"tags":[]}]}`},
		{"maps: empty ones go, their values are messages",
			`{"securitySchemes":{"a":{"httpAuthSecurityScheme":{"scheme":"","description":"","bearerFormat":""}}},"securityRequirements":[{"schemes":{"a":{"list":[]}}},{"schemes":{}}]}`,
			`{"securityRequirements":[{"schemes":{"a":{}}},{}],"securitySchemes":{"a":{"httpAuthSecurityScheme":{"scheme":""}}}}`},
		{"empty map", `{"name":"a","securitySchemes":{}}`, `{"name":"a"}`},
		{"unknown members are covered", `{"name":"a","x":"","y":{"z":[]}}`, `{"name":"a","x":"","y":{"z":[]}}`},
		{"OAuth scopes are required", `{"securitySchemes":{"o":{"oauth2SecurityScheme":{"flows":{"clientCredentials":{"tokenUrl":"t","refreshUrl":"","scopes":{}}}}}}}`,
			`{"securitySchemes":{"o":{"oauth2SecurityScheme":{"flows":{"clientCredentials":{"scopes":{},"tokenUrl":"t"}}}}}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := CanonicalCard([]byte(test.in))
			if err != nil || string(got) != test.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, test.want)
			}
		})
	}
}

func TestVerifyCardRefusals(t *testing.T) {
	ctx := context.Background()
	a, other := newAgent(t, "vendorcorp.test", 1), newAgent(t, "othercorp.test", 2)
	raw := must(BuildCard(ctx, vendorSpec(a), a.signer))
	unsigned := edit(t, raw, func(m map[string]any) { delete(m, "signatures") })
	first := func(m map[string]any) map[string]any { return m["signatures"].([]any)[0].(map[string]any) }
	header := func(h string) []byte {
		return edit(t, raw, func(m map[string]any) {
			first(m)["protected"] = base64.RawURLEncoding.EncodeToString([]byte(h))
		})
	}
	kid := a.signer.KeyID()
	kexKID := did.KeyID(a.id, "kex", a.kex)

	// A second signing key, once valid, once expired.
	second := must(did.NewPrivateKey(did.Ed25519, bytes.Repeat([]byte{77}, 32)))
	secondSigner := must(did.NewSigner(did.KeyID(a.id, "signing", second.Public()), second))
	bySecond := must(SignCard(ctx, unsigned, secondSigner))
	expired := newAgent(t, "vendorcorp.test", 1, func(s *did.DocumentSpec) {
		s.Signing = []did.MethodSpec{{Key: second.Public(), Expires: at.Add(-time.Hour)}}
	})
	foreignParams := must(SignCard(ctx, bytes.ReplaceAll(unsigned, []byte(a.id.String()), []byte(other.id.String())), a.signer))

	for _, test := range []struct {
		name string
		raw  []byte
		doc  *did.Document
		want error
	}{
		{"no signature", unsigned, a.doc, ErrNotSigned},
		{"signed by another agent", raw, other.doc, ErrNotSigned},
		{"name changed", edit(t, raw, func(m map[string]any) { m["name"] = "Evil" }), a.doc, ErrBadSignature},
		{"member added", edit(t, raw, func(m map[string]any) { m["iconUrl"] = "" }), a.doc, ErrBadSignature},
		{"unknown member added", edit(t, raw, func(m map[string]any) { m["x"] = 1 }), a.doc, ErrBadSignature},
		{"interface moved", bytes.Replace(raw, []byte("https://vendorcorp.test/a2a/v1"), []byte("https://evilcorp.test/a2a/v1"), 1), a.doc, ErrBadSignature},
		{"column added", bytes.Replace(raw, []byte(`{"name":"region"`), []byte(`{"name":"ssn","type":"text"},{"name":"region"`), 1), a.doc, ErrBadSignature},
		{"signature damaged", edit(t, raw, func(m map[string]any) { first(m)["signature"] = strings.Repeat("A", 86) }), a.doc, ErrBadSignature},
		{"signature padded", edit(t, raw, func(m map[string]any) { first(m)["signature"] = first(m)["signature"].(string) + "==" }), a.doc, ErrBadSignature},
		{"alg none", header(`{"alg":"none","kid":"` + kid + `"}`), a.doc, ErrBadSignature},
		{"alg of another key type", header(`{"alg":"ES256K","kid":"` + kid + `"}`), a.doc, ErrBadSignature},
		{"crit header", header(`{"alg":"EdDSA","kid":"` + kid + `","crit":["x"],"x":1}`), a.doc, ErrNotSigned},
		{"unencoded payload", header(`{"alg":"EdDSA","kid":"` + kid + `","b64":false}`), a.doc, ErrNotSigned},
		{"key brought along", header(`{"alg":"EdDSA","kid":"` + kid + `","jwk":{}}`), a.doc, ErrNotSigned},
		{"other typ", header(`{"alg":"EdDSA","kid":"` + kid + `","typ":"treaty-envelope+json"}`), a.doc, ErrNotSigned},
		{"duplicate kid", header(`{"alg":"EdDSA","kid":"` + kid + `","kid":"x"}`), a.doc, ErrNotSigned},
		{"no kid", header(`{"alg":"EdDSA"}`), a.doc, ErrNotSigned},
		{"kid that is no DID URL", header(`{"alg":"EdDSA","kid":"key-1"}`), a.doc, ErrNotSigned},
		{"kid not in the document", header(`{"alg":"EdDSA","kid":"` + a.id.String() + `#signing-xxxxxxxx"}`), a.doc, ErrBadSignature},
		{"key agreement key", header(`{"alg":"EdDSA","kid":"` + kexKID + `"}`), a.doc, ErrBadSignature},
		{"key that the document does not list", bySecond, a.doc, ErrBadSignature},
		{"expired key", bySecond, expired.doc, ErrBadSignature},
		{"params name another agent", foreignParams, a.doc, ErrWrongAgent},
		{"duplicate member", append([]byte(`{"name":"x",`), raw[1:]...), a.doc, canon.ErrDuplicateMember},
		{"case variant", append([]byte(`{"NAME":"x",`), raw[1:]...), a.doc, canon.ErrCaseVariant},
		{"trailing data", append(bytes.Clone(raw), '{'), a.doc, canon.ErrSyntax},
		{"too large", append(bytes.Clone(raw), bytes.Repeat([]byte(" "), MaxCardBytes)...), a.doc, canon.ErrTooLarge},
		{"too deep", []byte(strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000)), a.doc, canon.ErrTooDeep},
		{"too many signatures", edit(t, raw, func(m map[string]any) {
			s := m["signatures"].([]any)
			for len(s) <= maxSignatures {
				s = append(s, s[0])
			}
			m["signatures"] = s
		}), a.doc, ErrTooMany},
		{"no interface", edit(t, raw, func(m map[string]any) { m["supportedInterfaces"] = []any{} }), a.doc, ErrMalformed},
		{"a list", []byte(`[]`), a.doc, canon.ErrType},
	} {
		t.Run(test.name, func(t *testing.T) {
			card, err := VerifyCard(test.raw, test.doc, at)
			if !errors.Is(err, test.want) || card != nil {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestVerifyCardDeactivatedAgent(t *testing.T) {
	a, next := newAgent(t, "vendorcorp.test", 1), newAgent(t, "vendorcorp.test", 3)
	raw := must(BuildCard(context.Background(), vendorSpec(a), a.signer))
	gone := newAgent(t, "vendorcorp.test", 1, func(s *did.DocumentSpec) { s.Deactivated, s.SuccessorDID = true, next.id })
	if _, err := VerifyCard(raw, gone.doc, at); !errors.Is(err, ErrBadSignature) {
		t.Errorf("got %v", err)
	}
}

// During a rotation a card carries two signatures; either verifies, in either order, whatever stands beside it.
func TestVerifyCardSecondSignature(t *testing.T) {
	ctx := context.Background()
	a, other := newAgent(t, "vendorcorp.test", 1), newAgent(t, "othercorp.test", 2)
	raw := must(BuildCard(ctx, vendorSpec(a), a.signer))
	both := must(SignCard(ctx, raw, other.signer))
	reversed := edit(t, both, func(m map[string]any) {
		s := m["signatures"].([]any)
		s[0], s[1] = s[1], s[0]
	})
	foreign := edit(t, reversed, func(m map[string]any) {
		m["signatures"] = append([]any{map[string]any{"protected": "e30", "signature": "AA", "header": map[string]any{"x": 1}}}, m["signatures"].([]any)...)
	})
	for _, card := range [][]byte{both, reversed, foreign} {
		if v, err := VerifyCard(card, a.doc, at); err != nil || v.Agent != a.id {
			t.Errorf("%v", err)
		}
	}
}

func TestBuildCardRefusals(t *testing.T) {
	a, other := newAgent(t, "vendorcorp.test", 1), newAgent(t, "othercorp.test", 2)
	for name, test := range map[string]struct {
		change func(*CardSpec)
		signer did.Signer
		want   error
	}{
		"signer of another agent": {func(*CardSpec) {}, other.signer, ErrSpec},
		"origin with a path":      {func(s *CardSpec) { s.Origin += "/x" }, a.signer, ErrSpec},
		"origin not https":        {func(s *CardSpec) { s.Origin = "http://vendorcorp.test" }, a.signer, ErrSpec},
		"origin with user":        {func(s *CardSpec) { s.Origin = "https://u@vendorcorp.test" }, a.signer, ErrSpec},
		"no name":                 {func(s *CardSpec) { s.Name = "" }, a.signer, ErrEmptyMember},
		"empty object in a tool": {func(s *CardSpec) {
			s.DataPlane.Tools[0].InputSchema = json.RawMessage(`{"type":"object","properties":{}}`)
		}, a.signer, ErrEmptyMember},
		"schema without columns": {func(s *CardSpec) { s.Schemas[0].Columns = nil }, a.signer, ErrEmptyMember},
		"data plane on http":     {func(s *CardSpec) { s.DataPlane.URL = "http://data.vendorcorp.test/mcp" }, a.signer, ErrSpec},
	} {
		t.Run(name, func(t *testing.T) {
			spec := vendorSpec(a)
			test.change(&spec)
			if _, err := BuildCard(context.Background(), spec, test.signer); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// A node that only buys has a card too.
func TestBuyerCard(t *testing.T) {
	a := newAgent(t, "buyercorp.test", 5)
	raw, err := BuildCard(context.Background(), CardSpec{
		Agent: a.id, Name: "Buyer", Description: "Buys data.", Origin: "https://buyercorp.test",
	}, a.signer)
	if err != nil {
		t.Fatal(err)
	}
	card := must(VerifyCard(raw, a.doc, at))
	n := must(card.Negotiation())
	if len(n.Schemas) != 0 || n.DataPlane != nil || len(card.Skills) != 1 {
		t.Errorf("%+v", n)
	}
}

func TestCardInterfaceRefusesUnsafeURLs(t *testing.T) {
	for _, u := range []string{
		"http://vendorcorp.test/a2a", "https://user@vendorcorp.test/a2a", "https:vendorcorp.test", "//vendorcorp.test/a2a",
		"https://vendorcorp.test/a2a?x=1", "https://vendorcorp.test/a2a#x", "https://", "file:///etc/passwd", "https://vendorcorp.test\\@evil.test/",
	} {
		card := Card{Interfaces: []Interface{{URL: u, ProtocolBinding: BindingJSONRPC, ProtocolVersion: "1.0"}}}
		if i, err := card.Interface(BindingJSONRPC); !errors.Is(err, ErrNoInterface) {
			t.Errorf("%q was taken: %v", u, i)
		}
	}
	old := Card{Interfaces: []Interface{{URL: "https://vendorcorp.test/a2a", ProtocolBinding: BindingJSONRPC, ProtocolVersion: "0.3"}}}
	if _, err := old.Interface(BindingJSONRPC); !errors.Is(err, ErrNoInterface) {
		t.Error("an 0.3 interface was taken")
	}
}

func FuzzParseCard(f *testing.F) {
	a := newAgent(f, "vendorcorp.test", 1)
	raw := must(BuildCard(context.Background(), vendorSpec(a), a.signer))
	f.Add(raw)
	f.Add([]byte(`{"name":"a","supportedInterfaces":[{}],"capabilities":{"extensions":[{"uri":"` + ExtensionURI + `","params":{}}]},"signatures":[{}]}`))
	f.Add([]byte(`{"name":"a","NAME":"b"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		card, err := VerifyCard(data, a.doc, at)
		if err != nil {
			if parsed, perr := ParseCard(data); perr == nil {
				_, _ = parsed.Negotiation()
				_, _ = parsed.Interface(BindingJSONRPC)
			}
			return
		}
		// Whatever verifies says what the signed card said.
		if !bytes.Equal(must(CanonicalCard(data)), must(CanonicalCard(raw))) {
			t.Fatalf("another card verifies: %s", card.Raw())
		}
	})
}

func BenchmarkVerifyCard(b *testing.B) {
	a := newAgent(b, "vendorcorp.test", 1)
	raw := must(BuildCard(context.Background(), vendorSpec(a), a.signer))
	for b.Loop() {
		if _, err := VerifyCard(raw, a.doc, at); err != nil {
			b.Fatal(err)
		}
	}
}
