// SPDX-License-Identifier: Apache-2.0

package did_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mr-tron/base58"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

const webDID = "did:web:example.com"

// doc returns a document of webDID with one method and further members.
func doc(method, members string) []byte {
	return fmt.Appendf(nil, `{"id":%q,"verificationMethod":[%s]%s}`, webDID, method, members)
}

func method(typ, material string) string {
	return fmt.Sprintf(`{"id":"%s#k","type":%q,"controller":%q,%s}`, webDID, typ, webDID, material)
}

func jwkMember(t *testing.T, k did.PublicKey, extra string) string {
	t.Helper()
	encoded, err := canon.Marshal(k.JWK())
	if err != nil {
		t.Fatal(err)
	}
	return `"publicKeyJwk":` + strings.TrimSuffix(string(encoded), "}") + extra + "}"
}

func raw58(k did.PublicKey) string { return base58.FastBase58Encoding(k.Bytes()) }

func TestVerificationMethodTypes(t *testing.T) {
	ed, k1, p256, x := testKey(t, did.Ed25519, 1).Public(), testKey(t, did.Secp256k1, 1).Public(), testKey(t, did.P256, 1).Public(), testKey(t, did.X25519, 1).Public()
	multi := func(k did.PublicKey) string { return `"publicKeyMultibase":"` + k.Multibase() + `"` }
	raw := func(k did.PublicKey) string { return `"publicKeyMultibase":"z` + raw58(k) + `"` }
	base := func(k did.PublicKey) string { return `"publicKeyBase58":"` + raw58(k) + `"` }
	for _, tc := range []struct {
		typ, material string
		want          did.PublicKey
	}{
		{"Multikey", multi(ed), ed},
		{"Multikey", multi(k1), k1},
		{"Multikey", multi(p256), p256},
		{"Multikey", multi(x), x},
		{"JsonWebKey2020", jwkMember(t, ed, ""), ed},
		{"JsonWebKey2020", jwkMember(t, k1, `,"kid":"a","alg":"ES256K","use":"sig"`), k1},
		{"JsonWebKey2020", jwkMember(t, p256, ""), p256},
		{"JsonWebKey2020", jwkMember(t, x, ""), x},
		{"JsonWebKey", jwkMember(t, ed, ""), ed},
		{"Ed25519VerificationKey2018", base(ed), ed},
		{"Ed25519VerificationKey2018", raw(ed), ed},
		{"Ed25519VerificationKey2018", jwkMember(t, ed, ""), ed},
		{"Ed25519VerificationKey2020", multi(ed), ed},
		{"EcdsaSecp256k1VerificationKey2019", jwkMember(t, k1, ""), k1},
		{"EcdsaSecp256k1VerificationKey2019", multi(k1), k1},
		{"EcdsaSecp256k1VerificationKey2019", raw(k1), k1},
		{"EcdsaSecp256k1VerificationKey2019", base(k1), k1},
		{"EcdsaSecp256r1VerificationKey2019", jwkMember(t, p256, ""), p256},
		{"EcdsaSecp256r1VerificationKey2019", multi(p256), p256},
		{"X25519KeyAgreementKey2019", multi(x), x},
		{"X25519KeyAgreementKey2019", raw(x), x},
		{"X25519KeyAgreementKey2019", base(x), x},
		{"X25519KeyAgreementKey2020", multi(x), x},
		{"X25519KeyAgreementKey2020", raw(x), x},
		{"X25519KeyAgreementKey2020", jwkMember(t, x, ""), x},
	} {
		d, err := did.ParseDocument(doc(method(tc.typ, tc.material), ""))
		if err != nil {
			t.Errorf("%s %s: %v", tc.typ, tc.material, err)
			continue
		}
		m, ok := d.Method("#k")
		if !ok || !m.Key.Equal(tc.want) || m.Type != tc.typ || m.ID != webDID+"#k" || m.Controller != webDID {
			t.Errorf("%s %s: %+v", tc.typ, tc.material, m)
		}
	}
}

func TestUnknownKindsOfKeyAreCarried(t *testing.T) {
	for _, m := range []string{
		method("FutureKey2030", `"publicKeyMultibase":"zABC"`),
		method("Multikey", `"publicKeyMultibase":"z`+base58.FastBase58Encoding(append([]byte{0x8a, 0x24}, make([]byte, 78)...))+`"`),
		method("Multikey", `"publicKeyMultibase":"z`+base58.FastBase58Encoding(append([]byte{0x8a, 0x24}, make([]byte, 1216)...))+`"`), // as long as X-Wing
		method("JsonWebKey2020", `"publicKeyJwk":{"kty":"RSA","n":"AQAB","e":"AQAB"}`),
		method("JsonWebKey2020", `"publicKeyJwk":{"kty":"OKP","crv":"Ed448","x":"AA"}`),
	} {
		d, err := did.ParseDocument(doc(m, `,"authentication":["#k"]`))
		if err != nil {
			t.Errorf("%s: %v", m, err)
			continue
		}
		if got, ok := d.Method("#k"); !ok || !got.Key.IsZero() || !d.In("#k", did.Authentication) || len(d.Keys(did.Authentication)) != 0 {
			t.Errorf("%s: %+v", m, got)
		}
		if _, err := d.KeyFor("#k", did.Authentication, testTime); !errors.Is(err, did.ErrKeyNotFound) {
			t.Errorf("%s: %v", m, err)
		}
	}
}

func TestParseDocumentRefuses(t *testing.T) {
	ed, k1, x := testKey(t, did.Ed25519, 1).Public(), testKey(t, did.Secp256k1, 1).Public(), testKey(t, did.X25519, 1).Public()
	good := method("Multikey", `"publicKeyMultibase":"`+ed.Multibase()+`"`)
	material := `"publicKeyMultibase":"` + ed.Multibase() + `"`
	small := "z" + base58.FastBase58Encoding(append([]byte{0xed, 1, 1}, make([]byte, 31)...))
	many := func(n int, s string) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }
	for name, tc := range map[string]struct {
		raw  []byte
		kind error
	}{
		"empty":                      {nil, canon.ErrSyntax},
		"array":                      {[]byte(`[]`), canon.ErrType},
		"no id":                      {[]byte(`{}`), did.ErrSyntax},
		"id of an IP address":        {[]byte(`{"id":"did:web:127.0.0.1"}`), did.ErrSyntax},
		"id of another method":       {[]byte(`{"id":"did:key:z6Mk"}`), did.ErrMethod},
		"id is a number":             {[]byte(`{"id":1}`), canon.ErrType},
		"duplicate member":           {[]byte(`{"id":"did:web:example.com","id":"did:web:example.com"}`), canon.ErrDuplicateMember},
		"case variant":               {[]byte(`{"id":"did:web:example.com","Id":"did:web:evil.example"}`), canon.ErrCaseVariant},
		"case variant in a method":   {doc(method("Multikey", `"PublicKeyMultibase":"z",`+material), ""), canon.ErrCaseVariant},
		"case variant in a service":  {doc(good, `,"service":[{"id":"#s","Type":"x","type":"x","serviceEndpoint":"https://x"}]`), canon.ErrCaseVariant},
		"case variant in the proof":  {doc(good, `,"proof":{"Type":"DataIntegrityProof"}`), canon.ErrCaseVariant},
		"number out of range":        {doc(good, `,"x":1e400`), canon.ErrNumber},
		"trailing data":              {append(doc(good, ""), '{'), canon.ErrSyntax},
		"too large":                  {doc(good, `,"x":"`+strings.Repeat("a", did.MaxDocumentBytes)+`"`), canon.ErrTooLarge},
		"too deep":                   {doc(good, `,"x":`+strings.Repeat("[", 20)+strings.Repeat("]", 20)), canon.ErrTooDeep},
		"method twice":               {doc(good+","+good, ""), did.ErrDocument},
		"method twice, embedded":     {doc(good, `,"authentication":[`+good+`]`), did.ErrDocument},
		"method of another DID":      {doc(strings.ReplaceAll(good, `"id":"did:web:example.com`, `"id":"did:web:evil.example`), ""), did.ErrDocument},
		"method without id":          {doc(`{"type":"Multikey","controller":"did:web:example.com",`+material+`}`, ""), did.ErrDocument},
		"method with empty fragment": {doc(strings.Replace(good, "#k", "#", 1), ""), did.ErrDocument},
		"method without type":        {doc(strings.Replace(good, `"type":"Multikey",`, "", 1), ""), did.ErrDocument},
		"method without controller":  {doc(strings.Replace(good, `"controller":"did:web:example.com",`, "", 1), ""), did.ErrDocument},
		"method is a string":         {doc(`"#k"`, ""), canon.ErrType},
		"65 methods":                 {doc(many(65, good), ""), did.ErrDocument},
		"65 references":              {doc(good, `,"authentication":[`+many(65, `"#k"`)+`]`), did.ErrDocument},
		"empty reference":            {doc(good, `,"authentication":[""]`), did.ErrDocument},
		"reference is a number":      {doc(good, `,"authentication":[1]`), did.ErrDocument},
		"reference in a list":        {doc(good, `,"authentication":[["#k"]]`), did.ErrDocument},
		"no key material":            {doc(method("Multikey", `"x":1`), ""), did.ErrKey},
		"no JWK":                     {doc(method("JsonWebKey2020", `"x":1`), ""), did.ErrKey},
		"two keys":                   {doc(method("Multikey", material+","+jwkMember(t, ed, "")), ""), did.ErrKey},
		"small-order key":            {doc(method("Multikey", `"publicKeyMultibase":"`+small+`"`), ""), did.ErrWeakKey},
		"small-order JWK":            {doc(method("JsonWebKey2020", `"publicKeyJwk":{"kty":"OKP","crv":"X25519","x":"`+strings.Repeat("A", 43)+`"}`), ""), did.ErrWeakKey},
		"private JWK":                {doc(method("JsonWebKey2020", jwkMember(t, ed, `,"d":"AAAA"`)), ""), did.ErrKey},
		"JWK case variant":           {doc(method("JsonWebKey2020", jwkMember(t, ed, `,"Crv":"X25519"`)), ""), canon.ErrCaseVariant},
		"X25519 called Ed25519":      {doc(method("Ed25519VerificationKey2020", `"publicKeyMultibase":"`+x.Multibase()+`"`), ""), did.ErrKey},
		"Ed25519 called X25519":      {doc(method("X25519KeyAgreementKey2019", `"publicKeyMultibase":"`+ed.Multibase()+`"`), ""), did.ErrKey},
		"JWK called another":         {doc(method("EcdsaSecp256r1VerificationKey2019", jwkMember(t, k1, "")), ""), did.ErrKey},
		"Multikey without codec":     {doc(method("Multikey", `"publicKeyMultibase":"z`+raw58(ed)+`"`), ""), nil}, // an unknown codec, or a malformed key
		"Multikey of wrong length":   {doc(method("Multikey", `"publicKeyMultibase":"z`+base58.FastBase58Encoding(append([]byte{0xed, 1}, make([]byte, 31)...))+`"`), ""), did.ErrKey},
		"multibase of another base":  {doc(method("Multikey", `"publicKeyMultibase":"u7QE"`), ""), did.ErrKey},
		"multibase not base58":       {doc(method("Multikey", `"publicKeyMultibase":"z0OIl"`), ""), did.ErrKey},
		"multibase too long":         {doc(method("X25519KeyAgreementKey2019", `"publicKeyMultibase":"z`+strings.Repeat("2", 200)+`"`), ""), did.ErrKey},
		"expires not a time":         {doc(method("Multikey", material+`,"expires":"soon"`), ""), did.ErrDocument},
		"service is a string":        {doc(good, `,"service":["x"]`), canon.ErrType},
		"service type is a number":   {doc(good, `,"service":[{"type":1}]`), did.ErrDocument},
		"alias is a number":          {doc(good, `,"alsoKnownAs":[1]`), did.ErrDocument},
		"65 aliases":                 {doc(good, `,"alsoKnownAs":[`+many(65, `"x"`)+`]`), did.ErrDocument},
		"successor is no DID":        {doc(good, `,"successorDid":"x"`), did.ErrSyntax},
		"previous is no DID":         {doc(good, `,"previousDid":"x"`), did.ErrSyntax},
		"deactivated is a string":    {doc(good, `,"deactivated":"true"`), canon.ErrType},
		"proof is a list":            {doc(good, `,"proof":[{}]`), did.ErrProof},
		"proof is a string":          {doc(good, `,"proof":"x"`), did.ErrProof},
		"proof with a bad time":      {doc(good, `,"proof":{"created":"yesterday"}`), did.ErrProof},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := did.ParseDocument(tc.raw)
			if tc.kind == nil {
				if err == nil && !d.Methods()[0].Key.IsZero() {
					t.Error("the key is usable")
				}
				return
			}
			if !errors.Is(err, tc.kind) || !errors.Is(err, did.ErrDocument) || d != nil {
				t.Errorf("%v, want %v and ErrDocument", err, tc.kind)
			}
		})
	}
}

func TestDocumentRelationships(t *testing.T) {
	a, b, c := testKey(t, did.Ed25519, 1).Public(), testKey(t, did.Ed25519, 2).Public(), testKey(t, did.X25519, 3).Public()
	m := func(id, controller string, k did.PublicKey, extra string) string {
		return fmt.Sprintf(`{"id":%q,"type":"Multikey","controller":%q,"publicKeyMultibase":%q%s}`, id, controller, k.Multibase(), extra)
	}
	raw := fmt.Sprintf(`{
		"id": "did:web:example.com",
		"verificationMethod": [%s, %s, %s],
		"authentication": ["#a", "did:web:example.com#expired", "#foreign", "did:web:other.example#x", "#dangling"],
		"assertionMethod": "#a",
		"keyAgreement": %s,
		"humanAuthorization": [%s, "#a"],
		"recovery": []
	}`, m("#a", webDID, a, `,"note":"kept"`), m(webDID+"#expired", webDID, b, `,"expires":"2026-01-01T00:00:00Z"`), m("#foreign", "did:web:other.example", b, ""),
		m("#kex", webDID, c, ""), m("#human", webDID, b, `,"revoked":"2026-06-01T00:00:00+02:00"`))
	d := mustDocument(t, []byte(raw))
	ids := func(rel did.Relationship) (out []string) {
		for _, m := range d.Keys(rel) {
			out = append(out, strings.TrimPrefix(m.ID, webDID))
		}
		return out
	}
	for rel, want := range map[did.Relationship][]string{
		did.Authentication: {"#a", "#expired"}, did.AssertionMethod: {"#a"}, did.KeyAgreement: {"#kex"},
		did.HumanAuthorization: {"#human", "#a"}, did.Recovery: nil, "other": nil,
	} {
		if got := ids(rel); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", rel, got, want)
		}
	}
	jan, may, dec := date(2025, 12, 31), date(2026, 5, 31), date(2026, 12, 31)
	for _, tc := range []struct {
		kid  string
		rel  did.Relationship
		at   time.Time
		want error
	}{
		{"#a", did.Authentication, dec, nil},
		{webDID + "#a", did.AssertionMethod, dec, nil},
		{"#a", did.KeyAgreement, dec, did.ErrRelationship},
		{"#expired", did.Authentication, jan, nil},
		{"#expired", did.Authentication, date(2026, 1, 1), did.ErrKeyExpired},
		{"#expired", did.AssertionMethod, jan, did.ErrRelationship},
		{"#foreign", did.Authentication, jan, did.ErrRelationship},
		{"#dangling", did.Authentication, jan, did.ErrKeyNotFound},
		{"did:web:other.example#x", did.Authentication, jan, did.ErrKeyNotFound},
		{"did:web:other.example#a", did.Authentication, jan, did.ErrKeyNotFound},
		{"a", did.Authentication, jan, did.ErrKeyNotFound},
		{"", did.Authentication, jan, did.ErrKeyNotFound},
		{"#kex", did.KeyAgreement, jan, nil},
		{"#kex", did.Authentication, jan, did.ErrRelationship},
		{"#human", did.HumanAuthorization, may, nil},
		{"#human", did.HumanAuthorization, dec, did.ErrKeyExpired},
		{"#human", did.Authentication, may, did.ErrRelationship},
	} {
		if _, err := d.KeyFor(tc.kid, tc.rel, tc.at); !errors.Is(err, tc.want) {
			t.Errorf("%s for %s at %s: %v, want %v", tc.kid, tc.rel, tc.at, err, tc.want)
		}
	}
	// A method that is embedded in one relationship serves no other, even if another names it.
	stolen := mustDocument(t, []byte(strings.Replace(raw, `"assertionMethod": "#a"`, `"assertionMethod": "#human"`, 1)))
	if _, err := stolen.KeyFor("#human", did.AssertionMethod, may); !errors.Is(err, did.ErrRelationship) || stolen.In("#human", did.AssertionMethod) {
		t.Errorf("an embedded method was used elsewhere: %v", err)
	}
}

func date(y int, m time.Month, d int) time.Time { return time.Date(y, m, d, 0, 0, 0, 0, time.UTC) }

func TestDocumentMembers(t *testing.T) {
	raw := []byte(`{
		"id": "did:web:example.com", "alsoKnownAs": "did:web:old.example", "deactivated": true,
		"successorDid": "did:web:new.example", "previousDid": "did:web:old.example",
		"service": [
			{"id": "#one", "type": ["A", "B"], "serviceEndpoint": "https://one.example/", "serviceDid": "did:web:one.example"},
			{"id": "did:web:example.com#two", "type": "B", "serviceEndpoint": {"uri": "https://two.example/"}, "unknown": [1]}
		],
		"unknown": {"b": 1.50, "a": "\u00e9\ud83d\ude00"}
	}`)
	d := mustDocument(t, raw)
	want := []did.Service{
		{ID: webDID + "#one", Type: "B", Endpoint: "https://one.example/", ServiceDID: "did:web:one.example"},
		{ID: webDID + "#two", Type: "B"},
	}
	if got := d.Services("B"); !slices.Equal(got, want) {
		t.Errorf("services: %+v", got)
	}
	if len(d.Services("")) != 3 || len(d.Services("A")) != 1 || d.Services("C") != nil {
		t.Errorf("services: %+v", d.Services(""))
	}
	if !d.Deactivated() || d.SuccessorDID().String() != "did:web:new.example" || d.PreviousDID().String() != "did:web:old.example" ||
		!slices.Equal(d.AlsoKnownAs(), []string{"did:web:old.example"}) || !d.ProofCreated().IsZero() || d.ID().String() != webDID {
		t.Errorf("members: %+v", d)
	}
	if string(d.Raw()) != string(raw) {
		t.Error("the bytes as received are gone")
	}
	clear(d.Raw())
	canonical, err := canon.Canonicalize(raw, canon.Limits{})
	if err != nil || d.Hash() != canon.Sum(canonical) || string(d.Raw()) != string(raw) {
		t.Errorf("hash %s, %v", d.Hash(), err)
	}
	// Another spelling of the same document has the same hash.
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	spelled, err := json.MarshalIndent(v, "", "\t")
	if err != nil || mustDocument(t, spelled).Hash() != d.Hash() {
		t.Errorf("the hash depends on the spelling: %v", err)
	}
}

func TestParsedDocumentDoesNotAliasItsInput(t *testing.T) {
	id := newIdentity(t, did.Ed25519)
	raw := id.sign(t, did.DialectSpec)
	d := mustDocument(t, raw)
	clear(raw)
	if _, err := d.Verify(testTime); err != nil || len(d.Raw()) == 0 || d.Raw()[0] != '{' {
		t.Errorf("the document changed with its input: %v", err)
	}
}

// FuzzParseDocument: what parses keeps its bytes and its hash, has unique absolute method ids, gives keys only
// for what they are authorised for, and never verifies as e1_ without a proof.
func FuzzParseDocument(f *testing.F) {
	for _, typ := range []did.KeyType{did.Ed25519, did.Secp256k1} {
		id := newIdentity(f, typ)
		f.Add(id.unsigned(f))
		for _, d := range []did.Dialect{did.DialectSpec, did.DialectSDK, did.DialectW3C} {
			f.Add(id.sign(f, d))
		}
	}
	f.Add(doc(`{"id":"#k","type":"X25519KeyAgreementKey2019","controller":"did:web:example.com","publicKeyMultibase":"z9hFgmPVfmBZwRvFEyniQDBkz9LmV7gDEqytWyGZLmDXE"}`, `,"keyAgreement":"#k"`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := did.ParseDocument(raw)
		if err != nil {
			if d != nil {
				t.Fatal("an error with a document")
			}
			return
		}
		canonical, err := canon.Canonicalize(raw, canon.Limits{})
		if err != nil || d.Hash() != canon.Sum(canonical) || string(d.Raw()) != string(raw) {
			t.Fatalf("not what was parsed: %v", err)
		}
		seen := map[string]bool{}
		for _, m := range d.Methods() {
			owner, _, err := did.SplitKeyID(m.ID)
			if err != nil || owner != d.ID() || seen[m.ID] {
				t.Fatalf("method %q: %v", m.ID, err)
			}
			seen[m.ID] = true
		}
		for _, rel := range []did.Relationship{did.Authentication, did.AssertionMethod, did.KeyAgreement, did.HumanAuthorization, did.Recovery} {
			for _, m := range d.Keys(rel) {
				if m.Key.IsZero() || m.Controller != d.ID().String() || !d.In(m.ID, rel) {
					t.Fatalf("%s: %+v", rel, m)
				}
			}
		}
		v, err := d.Verify(testTime)
		if err == nil && d.ID().Profile() == did.ProfileE1 && (v.Dialect == "" || v.ProofKeyID == "") {
			t.Fatal("verified without proof")
		}
		_ = d.CheckRoles()
	})
}
