// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/hpke"
)

func TestRoundTrip(t *testing.T) {
	buyer, vendor := newParty(t, "buyer"), newParty(t, "vendor")
	for name, tc := range map[string]struct {
		d    Draft
		seal *SealTo
	}{
		"sealed": {draft(buyer, vendor), vendor.sealTo()},
		"clear":  {roundDraft(buyer, vendor), nil},
	} {
		t.Run(name, func(t *testing.T) {
			built, content := build1(t, tc.d, buyer, tc.seal)
			e, err := Parse(built.Raw(), 0)
			if err != nil {
				t.Fatal(err)
			}
			if !e.Digest().Equal(built.Digest()) || e.Header != built.Header || !bytes.Equal(e.Raw(), built.Raw()) {
				t.Fatal("parsing gives another envelope than was built")
			}
			if err := e.VerifyWith(vendor.document(t), start); !errors.Is(err, CodeWrongSender) {
				t.Fatalf("verified with another document: %v", err)
			}
			if err := e.VerifyWith(buyer.document(t), start); err != nil {
				t.Fatal(err)
			}
			x := expect(buyer, vendor)
			x.Seq = tc.d.Seq
			if err := e.Check(x); err != nil {
				t.Fatal(err)
			}
			got, err := Open(t.Context(), e, vendor.ring, vendor.openWith())
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Body, tc.d.Body) || got.Salt != content.Salt || !bytes.Equal(content.Body, got.Body) {
				t.Fatalf("opened %s", got.Body)
			}
			// Evidence: plaintext and salt are checked without any key.
			if !BodyDigest(got.Salt, got.Body).Equal(e.BodyDigest) {
				t.Fatal("the content cannot be disclosed")
			}
			if tc.seal != nil && bytes.Contains(built.Raw(), []byte("order_value")) {
				t.Fatal("the sealed body shows")
			}
			if tc.seal != nil && strings.Contains(fmt.Sprint(payloadOf(t, built.Raw())), "propose") {
				t.Fatal("the intent shows")
			}
		})
	}
}

func TestBodyIsBroughtIntoCanonicalForm(t *testing.T) {
	buyer, vendor := newParty(t, "buyer"), newParty(t, "vendor")
	d := draft(buyer, vendor)
	d.Body = []byte(` { "b" : 1.0, "a" : "\u00e9" } `)
	_, o := build1(t, d, buyer, vendor.sealTo())
	if string(o.Body) != `{"a":"é","b":1}` {
		t.Fatalf("%s", o.Body)
	}
}

func TestBuildRefuses(t *testing.T) {
	buyer, vendor := newParty(t, "buyer"), newParty(t, "vendor")
	for name, tc := range map[string]struct {
		change func(*Draft)
		clear  bool
		want   Code
	}{
		"unknown type":              {func(d *Draft) { d.Type = "x" }, false, CodeUnexpectedType},
		"to oneself":                {func(d *Draft) { d.To = buyer.id }, false, CodeMalformed},
		"to nobody":                 {func(d *Draft) { d.To = did.DID{} }, false, CodeMalformed},
		"short contextId":           {func(d *Draft) { d.ContextID = "AAAA" }, false, CodeMalformed},
		"messageId with characters": {func(d *Draft) { d.MessageID = strings.Repeat("!", 22) }, false, CodeMalformed},
		"seq zero":                  {func(d *Draft) { d.Seq = 0 }, false, CodeMalformed},
		"no prev":                   {func(d *Draft) { d.Prev = canon.Digest{} }, false, CodeMalformed},
		"no agreement":              {func(d *Draft) { d.Agreement = canon.Digest{} }, false, CodeNoAgreement},
		"lives too long":            {func(d *Draft) { d.Lifetime = MaxLifetime + time.Second }, false, CodeMalformed},
		"negative life":             {func(d *Draft) { d.Lifetime = -time.Second }, false, CodeMalformed},
		"body malformed":            {func(d *Draft) { d.Body = []byte(`{`) }, false, CodeMalformed},
		"body with duplicates":      {func(d *Draft) { d.Body = []byte(`{"a":1,"a":2}`) }, false, CodeMalformed},
		"body is no object":         {func(d *Draft) { d.Body = []byte(`[]`) }, false, CodeMalformed},
		"negotiation in the clear":  {func(*Draft) {}, true, CodeMalformed},
		"sealed round":              {func(d *Draft) { d.Type = TypeMetaproto }, false, CodeMalformed},
		"round with agreement":      {func(d *Draft) { d.Type = TypeMetaproto }, true, CodeMalformed},
		"sealed move, no terms":     {func(d *Draft) { d.Type, d.Agreement = TypeMoved, canon.Digest{} }, false, CodeNoAgreement},
	} {
		t.Run(name, func(t *testing.T) {
			d, seal := draft(buyer, vendor), vendor.sealTo()
			tc.change(&d)
			if tc.clear {
				seal = nil
			}
			if e, _, err := Build(t.Context(), d, buyer.signer, seal); CodeOf(err) != tc.want || e != nil {
				t.Fatalf("got %v, want %s", err, tc.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Build(ctx, draft(buyer, vendor), buyer.signer, vendor.sealTo()); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
}

// Everything that can be wrong with the bytes, whoever signed them.
func TestParseRefuses(t *testing.T) {
	buyer, vendor := newParty(t, "buyer"), newParty(t, "vendor")
	good, _ := build1(t, draft(buyer, vendor), buyer, vendor.sealTo())
	raw := string(good.Raw())
	var jws struct{ Payload, Protected, Signature string }
	if err := json.Unmarshal(good.Raw(), &jws); err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	form := func(payload, protected, signature string) string {
		return fmt.Sprintf(`{"payload":%q,"protected":%q,"signature":%q}`, payload, protected, signature)
	}
	header := func(h string) string { return form(jws.Payload, b64([]byte(h)), jws.Signature) }
	kid := buyer.signer.KeyID()
	plain, err := base64.RawURLEncoding.DecodeString(jws.Payload)
	if err != nil {
		t.Fatal(err)
	}
	text := string(plain)
	signed := func(payload string) string { return string(signAny(t, buyer, []byte(payload))) }
	edit := func(old, with string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("%q is not in the payload", old)
		}
		return signed(strings.Replace(text, old, with, 1))
	}
	set := func(name string, v any) string {
		return string(resign(t, buyer, good.Raw(), func(m map[string]any) {
			if v == nil {
				delete(m, name)
			} else {
				m[name] = v
			}
		}))
	}
	setSealed := func(name string, v any) string {
		return string(resign(t, buyer, good.Raw(), func(m map[string]any) {
			s, _ := m["sealed"].(map[string]any)
			s[name] = v
		}))
	}

	for name, tc := range map[string]struct {
		in   string
		want Code
	}{
		"empty":                        {``, CodeMalformed},
		"null":                         {`null`, CodeMalformed},
		"truncated":                    {raw[:len(raw)-10], CodeMalformed},
		"truncated to the payload":     {raw[:len(jws.Payload)], CodeMalformed},
		"trailing data":                {raw + raw, CodeMalformed},
		"unsigned":                     {`{"payload":"` + jws.Payload + `"}`, CodeMalformed},
		"empty signature":              {form(jws.Payload, jws.Protected, ""), CodeMalformed},
		"compact form":                 {jws.Protected + "." + jws.Payload + "." + jws.Signature, CodeMalformed},
		"compact form as a string":     {`"` + jws.Protected + "." + jws.Payload + "." + jws.Signature + `"`, CodeMalformed},
		"general form":                 {`{"payload":"` + jws.Payload + `","signatures":[{"protected":"` + jws.Protected + `","signature":"` + jws.Signature + `"}]}`, CodeMalformed},
		"unprotected header":           {strings.Replace(raw, `{`, `{"header":{"kid":"`+kid+`"},`, 1), CodeMalformed},
		"extra member":                 {strings.Replace(raw, `{`, `{"extra":1,`, 1), CodeMalformed},
		"second payload":               {strings.Replace(raw, `{`, `{"payload":"`+jws.Payload+`",`, 1), CodeMalformed},
		"case variant of payload":      {strings.Replace(raw, `"payload"`, `"Payload"`, 1), CodeMalformed},
		"payload padded":               {form(jws.Payload+"=", jws.Protected, jws.Signature), CodeMalformed},
		"signature padded":             {form(jws.Payload, jws.Protected, jws.Signature+"=="), CodeMalformed},
		"payload with line break":      {form(jws.Payload[:8]+"\n"+jws.Payload[8:], jws.Protected, jws.Signature), CodeMalformed},
		"payload in standard base64":   {form("+/"+jws.Payload, jws.Protected, jws.Signature), CodeMalformed},
		"header with crit":             {header(`{"alg":"EdDSA","crit":["b64"],"kid":"` + kid + `","typ":"` + TokenType + `"}`), CodeMalformed},
		"header without typ":           {header(`{"alg":"EdDSA","kid":"` + kid + `"}`), CodeMalformed},
		"header with other typ":        {header(`{"alg":"EdDSA","kid":"` + kid + `","typ":"JWT"}`), CodeMalformed},
		"alg none":                     {header(`{"alg":"none","kid":"` + kid + `","typ":"` + TokenType + `"}`), CodeMalformed},
		"alg HS256":                    {header(`{"alg":"HS256","kid":"` + kid + `","typ":"` + TokenType + `"}`), CodeMalformed},
		"kid relative":                 {header(`{"alg":"EdDSA","kid":"#signing","typ":"` + TokenType + `"}`), CodeMalformed},
		"header with two kids":         {header(`{"alg":"EdDSA","kid":"` + kid + `","kid":"` + kid + `","typ":"` + TokenType + `"}`), CodeMalformed},
		"10 MB":                        {`{"payload":"` + strings.Repeat("A", 10<<20) + `"}`, CodeTooLarge},
		"10 000 deep":                  {strings.Repeat(`{"payload":`, 10000), CodeMalformed},
		"10 000 deep payload":          {signed(strings.Repeat(`[`, 10000) + strings.Repeat(`]`, 10000)), CodeMalformed},
		"payload not JSON":             {signed(`hello`), CodeMalformed},
		"payload not an object":        {signed(`[]`), CodeMalformed},
		"payload not canonical: space": {signed(strings.Replace(text, `,`, `, `, 1)), CodeMalformed},
		"payload not canonical: order": {signed(`{"v":1,` + strings.Replace(text[1:], `,"v":1`, ``, 1)), CodeMalformed},
		"payload not canonical: text":  {edit(`"negotiation"`, `"negoti\u0061tion"`), CodeMalformed},
		"duplicate member":             {signed(`{"agreement":"` + agreement.String() + `",` + text[1:]), CodeMalformed},
		"unknown member":               {set("zzz", 1), CodeMalformed},
		"case variant of from":         {set("From", buyer.id.String()), CodeMalformed},
		"both bodies":                  {set("body", map[string]any{"body": map[string]any{}, "salt": b64(make([]byte, 32))}), CodeMalformed},
		"no body":                      {set("sealed", nil), CodeMalformed},
		"no from":                      {set("from", nil), CodeMalformed},
		"from malformed":               {set("from", "did:example:x"), CodeMalformed},
		"to oneself":                   {set("to", buyer.id.String()), CodeMalformed},
		"no v":                         {set("v", nil), CodeVersionMismatch},
		"other v":                      {set("v", 2), CodeVersionMismatch},
		"v a string":                   {set("v", "1"), CodeMalformed},
		"unknown type":                 {set("type", "query"), CodeUnexpectedType},
		"type in capitals":             {set("type", "Negotiation"), CodeUnexpectedType},
		"contextId 120 bits":           {set("contextId", b64(make([]byte, 15))), CodeMalformed},
		"contextId huge":               {set("contextId", b64(make([]byte, 65))), CodeMalformed},
		"contextId padded":             {set("contextId", contextID+"=="), CodeMalformed},
		"contextId a UUID":             {set("contextId", "7a1f3c2e-9f44-4f0e-8f43-0f6f0a5c9d11"), ""},
		"contextId with stray bits":    {set("contextId", contextID[:21]+"x"), CodeMalformed},
		"no messageId":                 {set("messageId", nil), CodeMalformed},
		"seq zero":                     {set("seq", 0), CodeMalformed},
		"seq negative":                 {set("seq", -1), CodeMalformed},
		"seq fractional":               {set("seq", 1.5), CodeMalformed},
		"seq above the limit":          {set("seq", MaxSeq+1), CodeMalformed},
		"seq not exact":                {edit(`"seq":3`, `"seq":9007199254740993`), CodeMalformed},
		"createdAt with offset":        {set("createdAt", "2026-03-01T12:00:00+00:00"), CodeMalformed},
		"createdAt with fraction":      {set("createdAt", "2026-03-01T12:00:00.5Z"), CodeMalformed},
		"createdAt impossible":         {set("createdAt", "2026-02-30T12:00:00Z"), CodeMalformed},
		"createdAt a number":           {set("createdAt", 1), CodeMalformed},
		"expires before created":       {set("expiresAt", "2026-03-01T11:59:59Z"), CodeMalformed},
		"lives too long":               {set("expiresAt", "2026-03-03T12:00:00Z"), CodeMalformed},
		"prev in hex":                  {set("prev", strings.Repeat("0", 64)), CodeMalformed},
		"prev of another hash":         {set("prev", strings.Replace(agreement.String(), "256", "512", 1)), CodeMalformed},
		"prev zero":                    {set("prev", canon.Digest{}.String()), CodeMalformed},
		"no prev":                      {set("prev", nil), CodeMalformed},
		"no bodyDigest":                {set("bodyDigest", nil), CodeMalformed},
		"no agreement":                 {set("agreement", nil), CodeNoAgreement},
		"agreement empty":              {set("agreement", ""), CodeMalformed},
		"negotiation in the clear": {string(resign(t, buyer, good.Raw(), func(m map[string]any) {
			delete(m, "sealed")
			m["body"] = map[string]any{"body": map[string]any{}, "salt": b64(make([]byte, 32))}
		})), CodeMalformed},
		"sealed with extra member": {setSealed("zzz", 1), CodeMalformed},
		"sealed a string":          {set("sealed", "x"), CodeMalformed},
		"round sealed":             {set("type", "metaproto"), CodeMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := Parse([]byte(tc.in), 0)
			if tc.want == "" {
				// A UUID is base64url text of 27 bytes; it is up to those who use it.
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			if e != nil || CodeOf(err) != tc.want {
				t.Fatalf("got %v, want %s", err, tc.want)
			}
			if refusal := (*Refusal)(nil); !errors.As(err, &refusal) || len(refusal.Reason) > 1024 {
				t.Fatalf("no bounded refusal: %v", err)
			}
		})
	}
}

func TestClearBodyRefuses(t *testing.T) {
	buyer, vendor := newParty(t, "buyer"), newParty(t, "vendor")
	good, _ := build1(t, roundDraft(buyer, vendor), buyer, nil)
	for name, change := range map[string]func(map[string]any){
		"salt short":   func(b map[string]any) { b["salt"] = "AAAA" },
		"salt padded":  func(b map[string]any) { b["salt"] = b["salt"].(string) + "=" }, //nolint:forcetypeassert // built above
		"no salt":      func(b map[string]any) { delete(b, "salt") },
		"no body":      func(b map[string]any) { delete(b, "body") },
		"salt zero":    func(b map[string]any) { b["salt"] = strings.Repeat("A", 43) },
		"body a list":  func(b map[string]any) { b["body"] = []int{} },
		"extra member": func(b map[string]any) { b["zzz"] = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			raw := resign(t, buyer, good.Raw(), func(m map[string]any) {
				b, _ := m["body"].(map[string]any)
				change(b)
			})
			if _, err := Parse(raw, 0); !errors.Is(err, CodeMalformed) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func TestInvariant1_NothingBeforeTheSignature(t *testing.T) {
	buyer, vendor := newParty(t, "buyer"), newParty(t, "vendor")
	good, _ := build1(t, draft(buyer, vendor), buyer, vendor.sealTo())
	for name, tamper := range map[string]func(s string) string{
		"signature altered": func(s string) string { return flip(s, `"signature":"`) },
		"payload altered":   func(s string) string { return s },
	} {
		t.Run(name, func(t *testing.T) {
			raw := []byte(tamper(string(good.Raw())))
			key := buyer.sign.Public()
			if name == "payload altered" {
				// Another payload under the old signature.
				other, _ := build1(t, draft(buyer, vendor), buyer, vendor.sealTo())
				var a, b map[string]string
				_ = json.Unmarshal(good.Raw(), &a)
				_ = json.Unmarshal(other.Raw(), &b)
				a["payload"] = b["payload"]
				raw, _ = json.Marshal(a)
			}
			e, err := Parse(raw, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := e.VerifySignature(key); !errors.Is(err, CodeBadSignature) || !errors.Is(err, did.ErrBadSignature) {
				t.Fatalf("verified: %v", err)
			}
			if err := e.Check(expect(buyer, vendor)); !errors.Is(err, CodeBadSignature) {
				t.Fatalf("checked: %v", err)
			}
			if _, err := Open(t.Context(), e, vendor.ring, vendor.openWith()); !errors.Is(err, CodeBadSignature) {
				t.Fatalf("opened: %v", err)
			}
		})
	}
	e, err := Parse(good.Raw(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]did.PublicKey{"another key": vendor.sign.Public(), "a key of another type": buyer.kex.Public(), "no key": {}} {
		if err := e.VerifySignature(key); !errors.Is(err, CodeBadSignature) || e.Verified() {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// flip changes the first character after the marker into another one.
func flip(s, marker string) string {
	i := strings.Index(s, marker) + len(marker)
	c := byte('A')
	if s[i] == c {
		c = 'B'
	}
	return s[:i] + string(c) + s[i+1:]
}

func TestInvariant2_FromIsSignerAndCaller(t *testing.T) {
	buyer, vendor, third := newParty(t, "buyer"), newParty(t, "vendor"), newParty(t, "third")
	good, _ := build1(t, draft(buyer, vendor), buyer, vendor.sealTo())

	// Signed by a third party in the buyer's name.
	forged, err := Parse(resign(t, third, good.Raw(), func(map[string]any) {}), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := forged.VerifyWith(buyer.document(t), start); !errors.Is(err, CodeWrongSender) {
		t.Fatalf("with the buyer's document: %v", err)
	}
	if err := forged.VerifyWith(third.document(t), start); !errors.Is(err, CodeWrongSender) {
		t.Fatalf("with the signer's document: %v", err)
	}
	if err := forged.VerifySignature(third.sign.Public()); err != nil {
		t.Fatal(err)
	}
	for _, caller := range []party{buyer, third} {
		x := expect(buyer, vendor)
		x.Caller = caller.id
		if err := forged.Check(x); !errors.Is(err, CodeWrongSender) {
			t.Fatalf("called by %s: %v", caller.id, err)
		}
	}

	// The buyer's own message, brought by somebody else.
	x := expect(buyer, vendor)
	x.Caller = third.id
	if err := good.Check(x); !errors.Is(err, CodeWrongSender) {
		t.Fatalf("carried by another: %v", err)
	}
}

func TestInvariant1_CheckInOrder(t *testing.T) {
	buyer, vendor, third := newParty(t, "buyer"), newParty(t, "vendor"), newParty(t, "third")
	good, _ := build1(t, draft(buyer, vendor), buyer, vendor.sealTo())
	if err := good.Check(expect(buyer, vendor)); err != nil {
		t.Fatal(err)
	}
	// Each row breaks one thing more than the row below it and is refused for
	// the first one in order.
	steps := []struct {
		name  string
		spoil func(*Expect)
		want  Code
	}{
		{"caller", func(x *Expect) { x.Caller = third.id }, CodeWrongSender},
		{"recipient", func(x *Expect) { x.Self = third.id }, CodeWrongRecipient},
		{"sequence", func(x *Expect) { x.Seq = 4 }, CodeReplayed},
		{"prev", func(x *Expect) { x.Prev = canon.Sum([]byte("other")) }, CodeOutOfOrder},
		{"time", func(x *Expect) { x.Now = start.Add(time.Hour) }, CodeExpired},
		{"key", func(x *Expect) { x.KeyID = buyer.kexID }, CodeAgreementMismatch},
		{"agreement", func(x *Expect) { x.Agreement = canon.Digest{} }, CodeNoAgreement},
	}
	for i, step := range steps {
		x := expect(buyer, vendor)
		for _, s := range steps[i:] {
			s.spoil(&x)
		}
		if err := good.Check(x); CodeOf(err) != step.want {
			t.Errorf("%s: got %v, want %s", step.name, err, step.want)
		}
	}
	for name, tc := range map[string]struct {
		change func(*Expect)
		want   Code
	}{
		"a gap":                    {func(x *Expect) { x.Seq = 2 }, CodeOutOfOrder},
		"no prev known":            {func(x *Expect) { x.Prev = canon.Digest{} }, CodeOutOfOrder},
		"first prev of other side": {func(x *Expect) { x.Prev = FirstPrev(vendor.id, buyer.id, contextID) }, CodeOutOfOrder},
		"dated in the future":      {func(x *Expect) { x.Now = start.Add(-31 * time.Second) }, CodeNotYetValid},
		"just within the skew":     {func(x *Expect) { x.Now = start.Add(-30 * time.Second) }, ""},
		"expired":                  {func(x *Expect) { x.Now = start.Add(DefaultLifetime + 30*time.Second) }, CodeExpired},
		"just not expired":         {func(x *Expect) { x.Now = start.Add(DefaultLifetime + 29*time.Second) }, ""},
		"expired without skew":     {func(x *Expect) { x.Skew, x.Now = 0, start.Add(DefaultLifetime) }, CodeExpired},
		"other agreement":          {func(x *Expect) { x.Agreement = canon.Sum([]byte("weaker")) }, CodeAgreementMismatch},
		"any key of the peer":      {func(x *Expect) { x.KeyID = "" }, ""},
		"expects nothing":          {func(x *Expect) { *x = Expect{} }, CodeWrongSender},
	} {
		x := expect(buyer, vendor)
		tc.change(&x)
		if err := good.Check(x); CodeOf(err) != tc.want {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	buyer, vendor, third := newParty(t, "buyer"), newParty(t, "vendor"), newParty(t, "third")
	good, content := build1(t, draft(buyer, vendor), buyer, vendor.sealTo())
	parse := func(raw []byte) *Envelope {
		e, err := Parse(raw, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.VerifySignature(buyer.sign.Public()); err != nil {
			t.Fatal(err)
		}
		return e
	}
	changed := func(change func(map[string]any)) *Envelope {
		return parse(resign(t, buyer, good.Raw(), change))
	}
	sealed := func(change func(map[string]any)) *Envelope {
		return changed(func(m map[string]any) { s, _ := m["sealed"].(map[string]any); change(s) })
	}
	// inner seals another plaintext into an otherwise right envelope.
	inner := func(plaintext string) *Envelope {
		e := *good
		aad, err := e.aad()
		if err != nil {
			t.Fatal(err)
		}
		s, err := hpke.Seal(hpke.SuiteX25519, vendor.kex.Public(), e.sealContext(e.KeyID(), vendor.kexID), aad, []byte(plaintext))
		if err != nil {
			t.Fatal(err)
		}
		return changed(func(m map[string]any) { m["sealed"] = s })
	}
	salt, err := content.Salt.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	plaintext := fmt.Sprintf(`{"body":%s,"contextId":%q,"from":%q,"salt":%q,"to":%q}`, proposal, contextID, buyer.id, salt, vendor.id)
	if _, err := Open(t.Context(), inner(plaintext), vendor.ring, vendor.openWith()); err != nil {
		t.Fatal(err)
	}
	replace := func(old, with string) *Envelope {
		if !strings.Contains(plaintext, old) {
			t.Fatalf("%q is not in the plaintext", old)
		}
		return inner(strings.Replace(plaintext, old, with, 1))
	}
	for name, tc := range map[string]struct {
		e    *Envelope
		ring hpke.Opener
		with OpenWith
		want Code
	}{
		"agreed on another suite":    {good, vendor.ring, OpenWith{"other", vendor.kexID}, CodeSuiteMismatch},
		"agreed on another key":      {good, vendor.ring, OpenWith{hpke.SuiteX25519, vendor.kexID + "x"}, CodeSuiteMismatch},
		"nothing agreed":             {good, vendor.ring, OpenWith{}, CodeSuiteMismatch},
		"payload names other suite":  {sealed(func(s map[string]any) { s["suite"] = "NULL" }), vendor.ring, vendor.openWith(), CodeSuiteMismatch},
		"payload names other key":    {sealed(func(s map[string]any) { s["recipientKid"] = third.kexID }), vendor.ring, vendor.openWith(), CodeSuiteMismatch},
		"key past its grace":         {good, retired{}, vendor.openWith(), CodeKeyRetired},
		"key not held":               {good, third.ring, vendor.openWith(), CodeCannotOpen},
		"enc zero":                   {sealed(func(s map[string]any) { s["enc"] = strings.Repeat("A", 43) }), vendor.ring, vendor.openWith(), CodeCannotOpen},
		"enc malformed":              {sealed(func(s map[string]any) { s["enc"] = "A" }), vendor.ring, vendor.openWith(), CodeMalformed},
		"ciphertext padded":          {sealed(func(s map[string]any) { s["ciphertext"] = "AAAA==" }), vendor.ring, vendor.openWith(), CodeMalformed},
		"header altered: seq":        {changed(func(m map[string]any) { m["seq"] = 4 }), vendor.ring, vendor.openWith(), CodeCannotOpen},
		"header altered: agreement":  {changed(func(m map[string]any) { m["agreement"] = canon.Sum(nil) }), vendor.ring, vendor.openWith(), CodeCannotOpen},
		"header altered: type":       {changed(func(m map[string]any) { m["type"] = TypeContract }), vendor.ring, vendor.openWith(), CodeCannotOpen},
		"header altered: bodyDigest": {changed(func(m map[string]any) { m["bodyDigest"] = canon.Sum(nil) }), vendor.ring, vendor.openWith(), CodeCannotOpen},
		"inner from":                 {replace(`"from":"`+buyer.id.String(), `"from":"`+third.id.String()), vendor.ring, vendor.openWith(), CodeBodyMismatch},
		"inner to":                   {replace(`"to":"`+vendor.id.String(), `"to":"`+third.id.String()), vendor.ring, vendor.openWith(), CodeBodyMismatch},
		"inner contextId":            {replace(contextID, messageID), vendor.ring, vendor.openWith(), CodeBodyMismatch},
		"inner salt":                 {replace(string(salt), "B"+strings.Repeat("A", 42)), vendor.ring, vendor.openWith(), CodeBodyMismatch},
		"inner salt zero":            {replace(string(salt), strings.Repeat("A", 43)), vendor.ring, vendor.openWith(), CodeMalformed},
		"inner without salt":         {replace(fmt.Sprintf(`,"salt":%q`, salt), ``), vendor.ring, vendor.openWith(), CodeMalformed},
		"inner without from":         {replace(`"from":"`+buyer.id.String()+`",`, ``), vendor.ring, vendor.openWith(), CodeMalformed},
		"inner body":                 {replace("Q3 report", "Q4 report"), vendor.ring, vendor.openWith(), CodeBodyMismatch},
		"inner unknown member":       {replace(`{`, `{"aaa":1,`), vendor.ring, vendor.openWith(), CodeMalformed},
		"inner duplicate member":     {replace(`{"body"`, `{"body":{},"body"`), vendor.ring, vendor.openWith(), CodeMalformed},
		"inner case variant":         {replace(`"body"`, `"Body"`), vendor.ring, vendor.openWith(), CodeMalformed},
		"inner not canonical":        {replace(`,"from"`, `, "from"`), vendor.ring, vendor.openWith(), CodeMalformed},
		"inner without body":         {replace(`"body":`+proposal+`,`, ``), vendor.ring, vendor.openWith(), CodeMalformed},
		"inner body a string":        {replace(`"body":`+proposal, `"body":"x"`), vendor.ring, vendor.openWith(), CodeMalformed},
		"inner not JSON":             {inner("hello"), vendor.ring, vendor.openWith(), CodeMalformed},
		"inner 10 000 deep":          {inner(strings.Repeat("[", 10000) + strings.Repeat("]", 10000)), vendor.ring, vendor.openWith(), CodeMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Open(t.Context(), tc.e, tc.ring, tc.with)
			if CodeOf(err) != tc.want || got.Body != nil {
				t.Fatalf("got %s, %v; want %s", got.Body, err, tc.want)
			}
			if strings.Contains(err.Error(), "report") {
				t.Fatalf("the refusal shows the content: %v", err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, good, vendor.ring, vendor.openWith()); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
}

// A ciphertext of one message put into another by the same two parties.
func TestSealedBodyCannotMove(t *testing.T) {
	buyer, vendor := newParty(t, "buyer"), newParty(t, "vendor")
	one, _ := build1(t, draft(buyer, vendor), buyer, vendor.sealTo())
	d := draft(buyer, vendor)
	d.Seq = 5
	two, _ := build1(t, d, buyer, vendor.sealTo())
	raw := resign(t, buyer, two.Raw(), func(m map[string]any) {
		m["sealed"], m["bodyDigest"] = payloadOf(t, one.Raw())["sealed"], one.BodyDigest
	})
	e, err := Parse(raw, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.VerifySignature(buyer.sign.Public()); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), e, vendor.ring, vendor.openWith()); !errors.Is(err, CodeCannotOpen) {
		t.Fatalf("got %v", err)
	}
}

func TestFirstPrev(t *testing.T) {
	buyer, vendor := newParty(t, "buyer"), newParty(t, "vendor")
	base := FirstPrev(buyer.id, vendor.id, contextID)
	if base.IsZero() || !base.Equal(FirstPrev(buyer.id, vendor.id, contextID)) {
		t.Fatal("not a function of its arguments")
	}
	for name, other := range map[string]canon.Digest{
		"orientation": FirstPrev(vendor.id, buyer.id, contextID),
		"context":     FirstPrev(buyer.id, vendor.id, messageID),
		"party":       FirstPrev(buyer.id, newParty(t, "third").id, contextID),
	} {
		if base.Equal(other) {
			t.Errorf("%s does not count", name)
		}
	}
}

func TestNewID(t *testing.T) {
	seen := map[string]bool{}
	for range 2000 { // an id that begins with a dash would be taken for an option where a person names it
		id := NewID()
		if !ValidID(id) || id[0] == '-' || seen[id] {
			t.Fatalf("%q", id)
		}
		seen[id] = true
	}
}

func TestEquivocation(t *testing.T) {
	buyer, vendor, third := newParty(t, "buyer"), newParty(t, "vendor"), newParty(t, "third")
	one, _ := build1(t, draft(buyer, vendor), buyer, vendor.sealTo())
	two, _ := build1(t, draft(buyer, vendor), buyer, vendor.sealTo())
	proof, err := NewEquivocation(one, two)
	if err != nil {
		t.Fatal(err)
	}
	key := func(kid string) (did.PublicKey, error) {
		if kid != buyer.signer.KeyID() {
			return did.PublicKey{}, errors.New("unknown key")
		}
		return buyer.sign.Public(), nil
	}
	a, b, err := VerifyEquivocation(proof, key)
	if err != nil || !a.Digest().Equal(one.Digest()) || !b.Digest().Equal(two.Digest()) {
		t.Fatalf("%v", err)
	}
	other := func(change func(*Draft)) *Envelope {
		d := draft(buyer, vendor)
		d.Type = TypeNotice
		change(&d)
		e, _ := build1(t, d, buyer, nil)
		return e
	}
	d := draft(third, vendor)
	d.Prev = one.Prev
	byThird, _ := build1(t, d, third, vendor.sealTo())
	unverified, err := Parse(two.Raw(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string]*Envelope{
		"itself":               one,
		"not verified":         unverified,
		"another seq":          other(func(d *Draft) { d.Seq++ }),
		"another conversation": other(func(d *Draft) { d.ContextID = messageID }),
		"another recipient":    other(func(d *Draft) { d.To = third.id }),
		"another sender":       byThird,
	} {
		if _, err := NewEquivocation(one, e); err == nil || Equivocates(one, e) {
			t.Errorf("%s: taken for equivocation", name)
		}
	}
	same, err := json.Marshal(Equivocation{Type: EquivocationType, First: one.Raw(), Second: one.Raw()})
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"twice the same": same,
		"other type":     bytes.Replace(proof, []byte(EquivocationType), []byte("X"), 1),
		"tampered":       []byte(flip(string(proof), `"signature":"`)),
		"empty":          nil,
	} {
		if _, _, err := VerifyEquivocation(bad, key); err == nil {
			t.Errorf("%s: verified", name)
		}
	}
}

func TestCodesAreOneTable(t *testing.T) {
	form := regexp.MustCompile(`^[A-Z]+(_[A-Z]+)*$`)
	seen := map[Code]bool{}
	for _, c := range Codes() {
		if seen[c] || !form.MatchString(string(c)) || c.Text() == "" || !c.Known() {
			t.Errorf("%s", c)
		}
		seen[c] = true
	}
	if len(seen) != 30 {
		t.Errorf("%d codes", len(seen))
	}
	for _, c := range []Code{CodeNotYetValid, CodeUnavailable, CodeInternal} {
		if !c.Retryable() {
			t.Errorf("%s is retryable", c)
		}
	}
	if unknown := Code("X"); unknown.Known() || unknown.Retryable() || unknown.Text() == "" {
		t.Error("an unknown code has properties")
	}
	err := fmt.Errorf("service: %w", Refuse(CodeExpired, "cause: %w", io.EOF))
	var r *Refusal
	if !errors.Is(err, CodeExpired) || !errors.Is(err, io.EOF) || errors.Is(err, CodeReplayed) ||
		!errors.As(err, &r) || r.Reason != "cause: EOF" || CodeOf(err) != CodeExpired {
		t.Errorf("%v", err)
	}
	if CodeOf(nil) != "" || CodeOf(io.EOF) != CodeInternal || CodeOf(CodeReplayed) != CodeReplayed {
		t.Error("CodeOf")
	}
}

// retired is an opener whose key has been retired.
type retired struct{}

func (retired) Open(context.Context, hpke.Suite, hpke.Sealed, hpke.Context, []byte) ([]byte, error) {
	return nil, fmt.Errorf("%w: since yesterday", hpke.ErrRetired)
}
