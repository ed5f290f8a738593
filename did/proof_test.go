// SPDX-License-Identifier: Apache-2.0

package did_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

var dialects = []did.Dialect{did.DialectSpec, did.DialectSDK, did.DialectW3C}

// edit decodes a document, changes it and encodes it again, canonically.
func edit(t *testing.T, raw []byte, change func(doc map[string]any)) []byte {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	change(m)
	out, err := canon.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func editProof(change func(proof map[string]any)) func(map[string]any) {
	return func(doc map[string]any) { change(doc["proof"].(map[string]any)) }
}

func TestDialectsOfEveryProfile(t *testing.T) {
	bare := newIdentityAs(t, "did:wba:vendorcorp.example", testKey(t, did.Ed25519, 1))
	for name, id := range map[string]*identity{
		"e1":                 newIdentity(t, did.Ed25519),
		"k1":                 newIdentity(t, did.Secp256k1),
		"bare":               bare,
		"path":               newIdentityAs(t, "did:wba:vendorcorp.example:agents:steward", testKey(t, did.Ed25519, 1)),
		"web":                newIdentityAs(t, "did:web:vendorcorp.example%3A8443:agents", testKey(t, did.Ed25519, 1)),
		"web with secp256k1": newIdentityAs(t, "did:web:vendorcorp.example", testKey(t, did.Secp256k1, 1)),
	} {
		for _, dialect := range dialects {
			t.Run(name+"/"+string(dialect), func(t *testing.T) {
				signed := id.sign(t, dialect)
				if err := canon.CheckCanonical(signed, canon.Limits{}); err != nil {
					t.Fatal(err)
				}
				want := did.Verification{Profile: id.id.Profile(), Dialect: dialect, ProofKeyID: id.signer.KeyID(), Created: testTime}
				if id.key.Public().Type() == did.Secp256k1 {
					want.Dialect = did.DialectSDK // appendix A.5 knows one way
				}
				// However it is spelt and indented.
				var indented bytes.Buffer
				if err := json.Indent(&indented, signed, "", "   "); err != nil {
					t.Fatal(err)
				}
				for _, raw := range [][]byte{signed, indented.Bytes()} {
					d := mustDocument(t, raw)
					if got, err := d.Verify(testTime); err != nil || got != want {
						t.Errorf("got %+v, %v, want %+v", got, err, want)
					}
					if !d.ProofCreated().Equal(testTime) {
						t.Errorf("created %v", d.ProofCreated())
					}
				}
				var proof struct {
					Proof struct {
						ProofValue, Cryptosuite string
						Context                 json.RawMessage `json:"@context"`
					}
				}
				if err := json.Unmarshal(signed, &proof); err != nil {
					t.Fatal(err)
				}
				if isBase64 := len(proof.Proof.ProofValue) == 86; isBase64 != (want.Dialect == did.DialectSDK) {
					t.Errorf("proofValue %s", proof.Proof.ProofValue)
				}
				if hasContext := proof.Proof.Context != nil; hasContext != (want.Dialect == did.DialectW3C) {
					t.Errorf("context in the proof: %s", proof.Proof.Context)
				}
			})
		}
	}
}

func TestDocumentWithoutProof(t *testing.T) {
	for name, tc := range map[string]struct {
		id   *identity
		want error
	}{
		"e1":   {newIdentity(t, did.Ed25519), did.ErrNoProof},
		"k1":   {newIdentity(t, did.Secp256k1), nil},
		"bare": {newIdentityAs(t, "did:wba:vendorcorp.example", testKey(t, did.Ed25519, 1)), nil},
		"web":  {newIdentityAs(t, "did:web:vendorcorp.example", testKey(t, did.Ed25519, 1)), nil},
	} {
		d := mustDocument(t, tc.id.unsigned(t))
		v, err := d.Verify(testTime)
		if !errors.Is(err, tc.want) || v.Dialect != "" || v.ProofKeyID != "" || err == nil && v.Profile != tc.id.id.Profile() {
			t.Errorf("%s: %+v, %v, want %v", name, v, err, tc.want)
		}
	}
}

// What SDKs accept and nobody should: any change anywhere in the document or its proof.
func TestTamperedDocuments(t *testing.T) {
	other := testKey(t, did.Ed25519, 77)
	otherMethod := func(id *identity) map[string]any {
		return map[string]any{"id": id.id.String() + "#evil", "type": "Multikey", "controller": id.id.String(), "publicKeyMultibase": other.Public().Multibase()}
	}
	appendTo := func(doc map[string]any, name string, v any) {
		list, _ := doc[name].([]any)
		doc[name] = append(list, v)
	}
	for _, typ := range []did.KeyType{did.Ed25519, did.Secp256k1} {
		id := newIdentity(t, typ)
		id.spec.Extra = map[string]any{"unknown": map[string]any{"deep": []any{1, "two"}}}
		evil, err := did.NewSigner(id.id.String()+"#evil", other)
		if err != nil {
			t.Fatal(err)
		}
		for _, dialect := range dialects {
			signed := id.sign(t, dialect)
			for name, tc := range map[string]struct {
				change func(doc map[string]any)
				want   error
			}{
				"unknown member changed": {func(d map[string]any) { d["unknown"].(map[string]any)["deep"] = []any{1, "three"} }, did.ErrProof},
				"unknown member added":   {func(d map[string]any) { d["another"] = nil }, did.ErrProof},
				"unknown member removed": {func(d map[string]any) { delete(d, "unknown") }, did.ErrProof},
				"service added by the host": {func(d map[string]any) {
					appendTo(d, "service", map[string]any{"id": "#x", "type": "ANPMessageService", "serviceEndpoint": "https://evil.example"})
				}, did.ErrProof},
				"key added by the host": {func(d map[string]any) {
					appendTo(d, "verificationMethod", otherMethod(id))
					appendTo(d, "authentication", "#evil")
				}, did.ErrProof},
				"key embedded by the host":           {func(d map[string]any) { appendTo(d, "keyAgreement", otherMethod(id)) }, did.ErrProof},
				"deactivated":                        {func(d map[string]any) { d["deactivated"] = true }, did.ErrProof},
				"context changed":                    {func(d map[string]any) { d["@context"] = []any{"https://www.w3.org/ns/did/v1"} }, did.ErrProof},
				"context removed":                    {func(d map[string]any) { delete(d, "@context") }, did.ErrProof},
				"binding key out of authentication":  {func(d map[string]any) { d["authentication"] = []any{} }, did.ErrBinding},
				"binding key out of assertionMethod": {func(d map[string]any) { d["assertionMethod"] = []any{} }, did.ErrRelationship},
				"binding key of another controller": {func(d map[string]any) {
					d["verificationMethod"].([]any)[0].(map[string]any)["controller"] = "did:web:evil.example"
				}, did.ErrBinding},
				"binding key expired": {func(d map[string]any) {
					d["verificationMethod"].([]any)[0].(map[string]any)["expires"] = "2026-01-01T00:00:00Z"
				}, did.ErrProof},
				"proof without value":        {editProof(func(p map[string]any) { delete(p, "proofValue") }), did.ErrProof},
				"proof of zeros":             {editProof(func(p map[string]any) { p["proofValue"] = strings.Repeat("A", 86) }), did.ErrProof},
				"proof padded":               {editProof(func(p map[string]any) { p["proofValue"] = p["proofValue"].(string) + "==" }), did.ErrProof},
				"proof value cut":            {editProof(func(p map[string]any) { p["proofValue"] = p["proofValue"].(string)[:80] }), did.ErrProof},
				"proof of another time":      {editProof(func(p map[string]any) { p["created"] = "2026-09-07T07:59:59Z" }), did.ErrProof},
				"proof without time":         {editProof(func(p map[string]any) { delete(p, "created") }), did.ErrProof},
				"proof from the future":      {editProof(func(p map[string]any) { p["created"] = "2026-09-07T09:00:00Z" }), did.ErrProofTime},
				"proof expired":              {editProof(func(p map[string]any) { p["expires"] = "2026-09-07T08:00:00Z" }), did.ErrProofTime},
				"proof of another type":      {editProof(func(p map[string]any) { p["type"] = "Ed25519Signature2020" }), did.ErrProof},
				"proof of another suite":     {editProof(func(p map[string]any) { p["cryptosuite"] = "eddsa-rdfc-2022" }), did.ErrProof},
				"proof of another purpose":   {editProof(func(p map[string]any) { p["proofPurpose"] = "authentication" }), did.ErrProof},
				"proof with a member more":   {editProof(func(p map[string]any) { p["domain"] = "evil.example" }), did.ErrProof},
				"proof with another context": {editProof(func(p map[string]any) { p["@context"] = []any{"https://www.w3.org/ns/did/v1"} }), did.ErrProof},
				"proof by a recovery key":    {editProof(func(p map[string]any) { p["verificationMethod"] = did.KeyID(id.id, "recovery", id.recovery.Public()) }), did.ErrProof},
				"proof by another DID's key": {editProof(func(p map[string]any) { p["verificationMethod"] = "did:web:evil.example#k" }), did.ErrProof},
				"proof without key":          {editProof(func(p map[string]any) { delete(p, "verificationMethod") }), did.ErrProof},
			} {
				d := mustDocument(t, edit(t, signed, tc.change))
				if v, err := d.Verify(testTime); !errors.Is(err, tc.want) || v != (did.Verification{}) {
					t.Errorf("%s, %s, %s: %+v, %v, want %v", typ, dialect, name, v, err, tc.want)
				}
			}

			// A host that signs with a key of its own, which it added: properly made, but not by the binding
			// key.
			unsigned := edit(t, id.unsigned(t), func(d map[string]any) {
				appendTo(d, "verificationMethod", otherMethod(id))
				appendTo(d, "authentication", "#evil")
				appendTo(d, "assertionMethod", "#evil")
			})
			if _, err := mustDocument(t, signAs(t, unsigned, evil, dialect)).Verify(testTime); !errors.Is(err, did.ErrProof) {
				t.Errorf("%s, %s: a proof by an added key: %v", typ, dialect, err)
			}
		}

		// A document whose DID belongs to another key.
		stranger := newIdentityAs(t, id.id.String(), testKey(t, typ, 1))
		stolen := edit(t, stranger.unsigned(t), func(d map[string]any) {
			d["verificationMethod"] = []any{otherMethod(id)}
			d["authentication"], d["assertionMethod"] = []any{"#evil"}, []any{"#evil"}
			delete(d, "humanAuthorization")
			delete(d, "recovery")
			delete(d, "keyAgreement")
		})
		if _, err := mustDocument(t, signAs(t, stolen, evil, did.DialectSpec)).Verify(testTime); !errors.Is(err, did.ErrBinding) {
			t.Errorf("%s: a document by another key: %v", typ, err)
		}
	}
}

func TestE1BindingKeyIsAMultikey(t *testing.T) {
	id := newIdentity(t, did.Ed25519)
	unsigned := edit(t, id.unsigned(t), func(d map[string]any) {
		m := d["verificationMethod"].([]any)[0].(map[string]any)
		delete(m, "publicKeyMultibase")
		m["type"], m["publicKeyJwk"] = "JsonWebKey2020", id.key.Public().JWK()
	})
	if _, err := mustDocument(t, signAs(t, unsigned, id.signer, did.DialectSpec)).Verify(testTime); !errors.Is(err, did.ErrBinding) {
		t.Errorf("%v", err)
	}
}

// In a bare or did:web document a proof is optional, but a wrong one is not ignored.
func TestOptionalProofsMustBeValid(t *testing.T) {
	for _, name := range []string{"did:wba:vendorcorp.example", "did:web:vendorcorp.example", "did:wba:vendorcorp.example:path"} {
		id := newIdentityAs(t, name, testKey(t, did.Ed25519, 1))
		signed := id.sign(t, did.DialectSpec)
		for what, change := range map[string]func(map[string]any){
			"tampered":     func(d map[string]any) { d["x"] = 1 },
			"empty":        func(d map[string]any) { d["proof"] = map[string]any{} },
			"of other key": editProof(func(p map[string]any) { p["verificationMethod"] = did.KeyID(id.id, "human", id.human.Public()) }),
		} {
			if _, err := mustDocument(t, edit(t, signed, change)).Verify(testTime); !errors.Is(err, did.ErrProof) {
				t.Errorf("%s, proof %s: %v", name, what, err)
			}
		}
	}
}

func TestHighSDocumentProofIsRefused(t *testing.T) {
	id := newIdentity(t, did.Secp256k1)
	signed := id.sign(t, did.DialectSDK)
	high := edit(t, signed, editProof(func(p map[string]any) {
		p["proofValue"] = b64(negateS(unb64(t, p["proofValue"].(string))))
	}))
	if _, err := mustDocument(t, high).Verify(testTime); !errors.Is(err, did.ErrBadSignature) {
		t.Errorf("%v", err)
	}
}

// A base64url proof may begin with the "z" that marks multibase. Of the documents made here some do.
func TestBase64ProofThatLooksLikeMultibase(t *testing.T) {
	id := newIdentity(t, did.Ed25519)
	seen := 0
	for i := range 400 {
		signed, err := did.SignDocument(t.Context(), id.unsigned(t), id.signer, testTime.Add(-time.Duration(i)*time.Second), did.DialectSDK)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(signed, []byte(`"proofValue":"z`)) {
			continue
		}
		seen++
		if v, err := mustDocument(t, signed).Verify(testTime); err != nil || v.Dialect != did.DialectSDK {
			t.Errorf("%+v, %v", v, err)
		}
	}
	if seen == 0 {
		t.Error("no such proof among them")
	}
}

func TestSignDocumentRefuses(t *testing.T) {
	id := newIdentity(t, did.Ed25519)
	p256, err := did.NewSigner(id.id.String()+"#p", testKey(t, did.P256, 1))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		unsigned []byte
		signer   did.Signer
		dialect  did.Dialect
		want     error
	}{
		"signed already":           {id.sign(t, did.DialectSpec), id.signer, did.DialectSpec, did.ErrDocument},
		"no JSON":                  {nil, id.signer, did.DialectSpec, canon.ErrSyntax},
		"no object":                {[]byte("[]"), id.signer, did.DialectSpec, did.ErrDocument},
		"P-256":                    {id.unsigned(t), p256, did.DialectSpec, did.ErrKeyType},
		"unknown dialect":          {id.unsigned(t), id.signer, "other", did.ErrProof},
		"too large with its proof": {[]byte(`{"id":"` + strings.Repeat("a", did.MaxDocumentBytes-20) + `"}`), id.signer, did.DialectSpec, did.ErrDocument},
	} {
		if out, err := did.SignDocument(t.Context(), tc.unsigned, tc.signer, testTime, tc.dialect); !errors.Is(err, tc.want) || out != nil {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := did.SignDocument(cancelled, id.unsigned(t), id.signer, testTime, did.DialectSpec); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestRecovery(t *testing.T) {
	id := newIdentity(t, did.Ed25519)
	pinned := mustDocument(t, id.sign(t, did.DialectSpec))
	recovery, err := did.NewSigner(did.KeyID(id.id, "recovery", id.recovery.Public()), id.recovery)
	if err != nil {
		t.Fatal(err)
	}
	spec := id.spec
	spec.Deactivated = true
	spec.SuccessorDID = mustParse(t, "did:wba:vendorcorp.example:agents:steward:e1_"+testKey(t, did.Ed25519, 50).Public().Thumbprint())
	unsigned, err := did.BuildDocument(spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, dialect := range dialects {
		moved := mustDocument(t, signAs(t, unsigned, recovery, dialect))
		want := did.Verification{Profile: did.ProfileE1, Dialect: dialect, ProofKeyID: recovery.KeyID(), Created: testTime}
		if v, err := moved.VerifyRecovery(pinned, testTime); err != nil || v != want {
			t.Errorf("%s: %+v, %v", dialect, v, err)
		}
		if _, err := moved.Verify(testTime); !errors.Is(err, did.ErrProof) {
			t.Errorf("%s: without the pinned document: %v", dialect, err)
		}
	}

	bySigner := func(s did.Signer) *did.Document { return mustDocument(t, signAs(t, unsigned, s, did.DialectSpec)) }
	human, err := did.NewSigner(did.KeyID(id.id, "human", id.human.Public()), id.human)
	if err != nil {
		t.Fatal(err)
	}
	unpinned := mustDocument(t, edit(t, id.unsigned(t), func(d map[string]any) { delete(d, "recovery") }))
	unasserted := mustDocument(t, edit(t, id.unsigned(t), func(d map[string]any) { d["assertionMethod"] = d["authentication"] }))
	active := mustDocument(t, signAs(t, id.unsigned(t), recovery, did.DialectSpec))
	other := mustDocument(t, newIdentityAs(t, "did:wba:other.example", testKey(t, did.Ed25519, 1)).unsigned(t))
	tampered := mustDocument(t, edit(t, signAs(t, unsigned, recovery, did.DialectSpec), func(d map[string]any) { d["successorDid"] = "did:web:evil.example" }))
	for name, tc := range map[string]struct {
		doc, pinned *did.Document
		want        error
	}{
		"an active document":      {active, pinned, did.ErrProof},
		"the human key":           {bySigner(human), pinned, did.ErrRelationship},
		"the binding key":         {bySigner(id.signer), pinned, did.ErrRelationship},
		"not pinned as recovery":  {bySigner(recovery), unpinned, did.ErrRelationship},
		"not pinned as assertion": {bySigner(recovery), unasserted, did.ErrRelationship},
		"nothing pinned":          {bySigner(recovery), nil, did.ErrProof},
		"another document pinned": {bySigner(recovery), other, did.ErrProof},
		"tampered":                {tampered, pinned, did.ErrBadSignature},
		"no proof":                {mustDocument(t, unsigned), pinned, did.ErrNoProof},
	} {
		if v, err := tc.doc.VerifyRecovery(tc.pinned, testTime); !errors.Is(err, tc.want) || v != (did.Verification{}) {
			t.Errorf("%s: %+v, %v, want %v", name, v, err, tc.want)
		}
	}
	// For other purposes a recovery key does not count, although it stands in assertionMethod.
	if _, err := pinned.KeyFor(recovery.KeyID(), did.AssertionMethod, testTime); !errors.Is(err, did.ErrRelationship) {
		t.Errorf("a recovery key asserts: %v", err)
	}
	if !pinned.In(recovery.KeyID(), did.AssertionMethod) {
		t.Error("other implementations want it there")
	}
}

func TestObjectProofs(t *testing.T) {
	object := []byte(`{"type":"TreatyContract","n":[1,2.5],"text":"é"}`)
	for _, typ := range []did.KeyType{did.Ed25519, did.Secp256k1} {
		id := newIdentity(t, typ)
		for _, object := range [][]byte{object, []byte(`{ "@context": ["https://www.w3.org/ns/credentials/v2"], "b": 1, "a": 2 }`), []byte(`{}`)} {
			p, err := did.SignObject(t.Context(), object, id.signer, testTime.Add(999*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			suite := map[did.KeyType]string{did.Ed25519: "eddsa-jcs-2022", did.Secp256k1: "didwba-jcs-ecdsa-secp256k1-2025"}[typ]
			if p.Type != "DataIntegrityProof" || p.Cryptosuite != suite || p.VerificationMethod != id.signer.KeyID() || p.ProofPurpose != "assertionMethod" ||
				p.Created != "2026-09-07T08:00:00Z" || p.ProofValue[0] != 'z' {
				t.Errorf("%+v", p)
			}
			if at, err := p.CreatedAt(); err != nil || !at.Equal(testTime) {
				t.Errorf("created %v, %v", at, err)
			}
			// As it was signed, and in any other spelling of the same object.
			var indented bytes.Buffer
			if err := json.Indent(&indented, object, " ", "\t"); err != nil {
				t.Fatal(err)
			}
			for _, o := range [][]byte{object, indented.Bytes()} {
				if err := did.VerifyObject(o, p, id.key.Public()); err != nil {
					t.Errorf("%s: %v", o, err)
				}
			}
		}
		p, err := did.SignObject(t.Context(), object, id.signer, testTime)
		if err != nil {
			t.Fatal(err)
		}
		with := func(change func(*did.Proof)) did.Proof { q := p; change(&q); return q }
		key := id.key.Public()
		other := map[did.KeyType]did.KeyType{did.Ed25519: did.Secp256k1, did.Secp256k1: did.Ed25519}[typ]
		for name, err := range map[string]error{
			"object changed":    did.VerifyObject([]byte(`{"type":"TreatyContract","n":[1,2.6],"text":"é"}`), p, key),
			"member added":      did.VerifyObject([]byte(`{"type":"TreatyContract","n":[1,2.5],"text":"é","x":null}`), p, key),
			"context added":     did.VerifyObject([]byte(`{"@context":"x","type":"TreatyContract","n":[1,2.5],"text":"é"}`), p, key),
			"not an object":     did.VerifyObject([]byte(`[]`), p, key),
			"not JSON":          did.VerifyObject(nil, p, key),
			"with its proof":    did.VerifyObject([]byte(`{"type":"TreatyContract","n":[1,2.5],"text":"é","proof":{}}`), p, key),
			"with its proofs":   did.VerifyObject([]byte(`{"type":"TreatyContract","n":[1,2.5],"text":"é","proofs":[]}`), p, key),
			"other key":         did.VerifyObject(object, p, testKey(t, typ, 88).Public()),
			"key of other type": did.VerifyObject(object, p, testKey(t, other, 1).Public()),
			"agreement key":     did.VerifyObject(object, p, testKey(t, did.X25519, 1).Public()),
			"no key":            did.VerifyObject(object, p, did.PublicKey{}),
			"no proof":          did.VerifyObject(object, did.Proof{}, key),
			"type":              did.VerifyObject(object, with(func(p *did.Proof) { p.Type = "x" }), key),
			"suite":             did.VerifyObject(object, with(func(p *did.Proof) { p.Cryptosuite = "eddsa-rdfc-2022" }), key),
			"purpose":           did.VerifyObject(object, with(func(p *did.Proof) { p.ProofPurpose = "authentication" }), key),
			"method":            did.VerifyObject(object, with(func(p *did.Proof) { p.VerificationMethod += "x" }), key),
			"created":           did.VerifyObject(object, with(func(p *did.Proof) { p.Created = "2026-09-07T08:00:01Z" }), key),
			"created, offset":   did.VerifyObject(object, with(func(p *did.Proof) { p.Created = "2026-09-07T10:00:00+02:00" }), key),
			"created, fraction": did.VerifyObject(object, with(func(p *did.Proof) { p.Created = "2026-09-07T08:00:00.0Z" }), key),
			"created, none":     did.VerifyObject(object, with(func(p *did.Proof) { p.Created = "" }), key),
			"value, none":       did.VerifyObject(object, with(func(p *did.Proof) { p.ProofValue = "" }), key),
			"value, base64url":  did.VerifyObject(object, with(func(p *did.Proof) { p.ProofValue = strings.Repeat("A", 86) }), key),
			"value, spaced":     did.VerifyObject(object, with(func(p *did.Proof) { p.ProofValue += " " }), key),
			"value, cut":        did.VerifyObject(object, with(func(p *did.Proof) { p.ProofValue = p.ProofValue[:80] }), key),
		} {
			if err == nil {
				t.Errorf("%s, %s: accepted", typ, name)
			}
		}
		if _, err := did.SignObject(t.Context(), []byte(`{"proof":1}`), id.signer, testTime); !errors.Is(err, did.ErrProof) {
			t.Errorf("an object with a proof was signed: %v", err)
		}
	}
}

// A proof of an object cannot stand for a proof of a document, nor the other way round, unless the object is
// that document.
func TestProofKindsDoNotMix(t *testing.T) {
	id := newIdentity(t, did.Ed25519)
	p, err := did.SignObject(t.Context(), []byte(`{"id":"`+id.id.String()+`"}`), id.signer, testTime)
	if err != nil {
		t.Fatal(err)
	}
	forged := edit(t, id.unsigned(t), func(d map[string]any) { d["proof"] = p })
	if _, err := mustDocument(t, forged).Verify(testTime); !errors.Is(err, did.ErrProof) {
		t.Errorf("%v", err)
	}
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
