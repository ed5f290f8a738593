// SPDX-License-Identifier: Apache-2.0

package did

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/testvectors"
)

func vector(t *testing.T, name string) []byte {
	t.Helper()
	data, err := testvectors.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// fixedSigner is a signer of another DID method, which NewSigner would not make.
type fixedSigner struct {
	memorySigner
}

// Every intermediate value of the W3C vectors of eddsa-jcs-2022, byte for byte.
func TestW3CVectors(t *testing.T) {
	const folder = "w3c-vc-di-eddsa/eddsa-jcs-2022/"
	text := func(name string) string { return string(vector(t, folder+name)) }

	var pair struct{ PublicKeyMultibase, PrivateKeyMultibase string }
	if err := json.Unmarshal(vector(t, "w3c-vc-di-eddsa/keyPair.json"), &pair); err != nil {
		t.Fatal(err)
	}
	private, err := decodeMultibase(pair.PrivateKeyMultibase)
	if err != nil || len(private) != 34 {
		t.Fatalf("%d bytes, %v", len(private), err)
	}
	key, err := NewPrivateKey(Ed25519, private[2:]) // after the multicodec of a private key
	if err != nil || key.Public().Multibase() != pair.PublicKeyMultibase {
		t.Fatalf("%v, %v", key, err)
	}

	var signed struct{ Proof Proof }
	if err := json.Unmarshal([]byte(text("signedJCS.json")), &signed); err != nil {
		t.Fatal(err)
	}
	unsigned := vector(t, "w3c-vc-di-eddsa/unsigned.json")
	options, document, err := signed.Proof.covered(unsigned)
	if err != nil {
		t.Fatal(err)
	}
	optionsHash, documentHash := hash(options), hash(document)
	proof, err := SignObject(t.Context(), unsigned, &fixedSigner{memorySigner{signed.Proof.VerificationMethod, key}},
		time.Date(2023, 2, 24, 23, 36, 38, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	signature, err := decodeMultibase(proof.ProofValue)
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]string{
		"canonDocJCS.txt":     string(document),
		"docHashJCS.txt":      hex.EncodeToString(documentHash[:]),
		"proofCanonJCS.txt":   string(options),
		"proofHashJCS.txt":    hex.EncodeToString(optionsHash[:]),
		"combinedHashJCS.txt": hex.EncodeToString(hashes(optionsHash, documentHash)),
		"sigHexJCS.txt":       hex.EncodeToString(signature),
		"sigBTC58JCS.txt":     proof.ProofValue,
	} {
		if want := text(name); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
		}
	}
	if proof != signed.Proof {
		t.Errorf("got %+v, want %+v", proof, signed.Proof)
	}
	if err := VerifyObject(unsigned, signed.Proof, key.Public()); err != nil {
		t.Error(err)
	}
	// The whole signed document, as a document proof in the W3C dialect.
	parts, canonical := mustSplit(t, []byte(text("signedJCS.json")))
	w3c, ok := optionsFor(DialectW3C, parts.options, parts.context)
	if !ok || string(w3c.join()) != text("proofCanonJCS.txt") {
		t.Errorf("options of the signed document: %v", ok)
	}
	if got := string(canonical[:parts.start]) + string(canonical[parts.end:]); got != text("canonDocJCS.txt") {
		t.Errorf("the document without proof: %s", got)
	}
}

func mustSplit(t *testing.T, document []byte) (proofParts, []byte) {
	t.Helper()
	canonical, err := canon.Canonicalize(document, documentLimits)
	if err != nil {
		t.Fatal(err)
	}
	parts, err := splitProof(canonical)
	if err != nil || !parts.present {
		t.Fatalf("proof: %v, %v", parts.present, err)
	}
	return parts, canonical
}

// Proof sets and chains are of a suite that needs RDF: refused, and never mistaken for ours.
func TestW3CProofSetsAndChainsAreRefused(t *testing.T) {
	for _, name := range []string{"signedProofSet1", "signedProofSet2", "signedProofChain1", "signedProofChain2"} {
		data := vector(t, "w3c-vc-di-eddsa/proof-set-chain/"+name+".json")
		canonical, err := canon.Canonicalize(data, documentLimits)
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Proof json.RawMessage }
		if err := json.Unmarshal(data, &list); err != nil {
			t.Fatal(err)
		}
		if list.Proof[0] == '[' {
			if _, err := splitProof(canonical); !errors.Is(err, ErrProof) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		parts, err := splitProof(canonical)
		if err != nil || parts.suite != "eddsa-rdfc-2022" {
			t.Errorf("%s: %q, %v", name, parts.suite, err)
		}
	}
}

type anpIdentity struct {
	DID, Method, Kind           string
	RootKid                     string `json:"root_kid"`
	AdditionalAuthenticationKid string `json:"additional_authentication_kid"`
	Document                    json.RawMessage
}

func anpIdentities(t *testing.T) map[string]anpIdentity {
	t.Helper()
	file, err := testvectors.Load[struct{ Identities map[string]anpIdentity }]("anp-authentication/identities.json")
	if err != nil || len(file.Identities) != 10 {
		t.Fatalf("%d identities, %v", len(file.Identities), err)
	}
	return file.Identities
}

// Every intermediate value of the document proofs of the ANP vectors, byte for byte.
func TestANPDocumentProofVectors(t *testing.T) {
	type positive struct {
		ID              string
		Kind            string
		IdentityFixture string `json:"identity_fixture"`
		Keyid           string
		PublicKeyJWK    JWK `json:"public_key_jwk"`
		Object          json.RawMessage
		ProofConfigJCS  string `json:"proof_config_jcs"`
		DocumentJCS     string `json:"document_jcs"`
		HashDataHex     string `json:"hash_data_hex"`
	}
	positives, err := testvectors.List[positive]("anp-authentication/byte-vectors-positive.json", "positives")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, v := range positives {
		if v.Kind != "data-integrity" {
			continue
		}
		n++
		t.Run(v.ID, func(t *testing.T) {
			parts, canonical := mustSplit(t, v.Object)
			options, ok := optionsFor(DialectSpec, parts.options, parts.context)
			if !ok || string(options.join()) != v.ProofConfigJCS {
				t.Errorf("options %s\nwant %s", options.join(), v.ProofConfigJCS)
			}
			unsecured := append(bytes.Clone(canonical[:parts.start]), canonical[parts.end:]...)
			if string(unsecured) != v.DocumentJCS {
				t.Errorf("document %s\nwant %s", unsecured, v.DocumentJCS)
			}
			if got := hashes(sha256.Sum256(options.join()), sha256.Sum256(unsecured)); hex.EncodeToString(got) != v.HashDataHex {
				t.Errorf("hashes %x\nwant %s", got, v.HashDataHex)
			}
			key, err := v.PublicKeyJWK.PublicKey()
			if err != nil {
				t.Fatal(err)
			}
			doc, err := ParseDocument(v.Object)
			if err != nil {
				t.Fatal(err)
			}
			got, err := doc.Verify(time.Date(2026, 9, 7, 8, 0, 0, 0, time.UTC))
			if want := (Verification{ProfileE1, DialectSpec, v.Keyid, time.Date(2026, 9, 7, 8, 0, 0, 0, time.UTC)}); err != nil || got != want {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
			if kid, err := doc.BindingKeyID(); err != nil || kid != v.Keyid {
				t.Errorf("binding key %s, %v", kid, err)
			}
			if got, err := doc.KeyFor(v.Keyid, AssertionMethod, time.Now()); err != nil || !got.Equal(key) {
				t.Errorf("key %v, %v", got, err)
			}

			// The secret of the test key is published, so the signature can be made again.
			seed := sha256.Sum256([]byte("ANP02-PUBLIC-TEST-ONLY:" + v.IdentityFixture + ":root"))
			private, err := NewPrivateKey(Ed25519, seed[:])
			if err != nil || !private.Public().Equal(key) {
				t.Fatalf("the published secret gives %v, %v", private, err)
			}
			signed, err := SignDocument(t.Context(), unsecured, &memorySigner{v.Keyid, private}, parts.created, DialectSpec)
			if err != nil || !bytes.Equal(signed, canonical) {
				t.Errorf("signed %s, %v\nwant %s", signed, err, canonical)
			}
		})
	}
	if n != 4 {
		t.Errorf("%d vectors, want 4", n)
	}
}

// All ten identities parse, and verify as their method wants it.
func TestANPIdentities(t *testing.T) {
	at := time.Date(2026, 9, 7, 8, 0, 0, 0, time.UTC)
	for name, v := range anpIdentities(t) {
		doc, err := ParseDocument(v.Document)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := doc.Verify(at)
		if err != nil || doc.ID().String() != v.DID || doc.ID().Method() != v.Method {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		want := Verification{Profile: doc.ID().Profile()}
		if want.Profile == ProfileE1 {
			want = Verification{ProfileE1, DialectSpec, v.RootKid, at}
		}
		if got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
		if v.Kind != "group" {
			if _, err := doc.KeyFor(v.AdditionalAuthenticationKid, Authentication, at); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := doc.CheckRoles(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Documents published before fingerprints: they parse, and nothing binds them.
func TestANPPublishedDocuments(t *testing.T) {
	for _, name := range []string{"anp/did_a.json", "anp/did_b.json"} {
		doc, err := ParseDocument(vector(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if v, err := doc.Verify(time.Now()); err != nil || v != (Verification{Profile: ProfilePath}) {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
		keys := doc.Keys(Authentication)
		if len(keys) != 1 || keys[0].Key.Type() != Secp256k1 {
			t.Errorf("%s: %+v", name, keys)
		}
		if _, err := doc.BindingKeyID(); !errors.Is(err, ErrBinding) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The builder's fixture documents carry neither a real fingerprint nor real keys: half of the made-up Ed25519
// keys are no points of the curve. The device manifests' document holds a method of another DID. All is found out.
func TestANPBuilderDocumentsAreRefused(t *testing.T) {
	for _, test := range []struct {
		file  string
		names []string
		want  error
	}{
		{"anp/vnext_did_builder_fixtures.json", []string{"expected_build", "expected_add", "expected_update", "expected_remove"}, ErrKey},
		{"anp/vnext_device_manifest_fixtures.json", []string{"base_did_document"}, ErrDocument},
	} {
		file, err := testvectors.Load[map[string]json.RawMessage](test.file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range test.names {
			raw := file[name]
			if _, err := ParseDocument(raw); !errors.Is(err, ErrSyntax) {
				t.Errorf("%s: %v", name, err)
			}
			raw = bytes.ReplaceAll(raw, []byte("e1_fixture"), []byte("e1_TzEBgIcHmLjwuFomfsQSV6cifXvw-DW5MpIl4Q2I6ik"))
			if _, err := ParseDocument(raw); !errors.Is(err, test.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
