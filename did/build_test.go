// SPDX-License-Identifier: Apache-2.0

package did_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/treaty-node/treaty/did"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares got with a file in testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (see -update):\n%s", name, got)
	}
}

// The published form of our documents, which other implementations read.
func TestBuildDocumentGolden(t *testing.T) {
	e1, k1 := newIdentity(t, did.Ed25519), newIdentity(t, did.Secp256k1)
	e1.spec.Signing = []did.MethodSpec{{ID: "#receipt-1", Key: testKey(t, did.P256, 5).Public(), Expires: testTime}}
	e1.spec.AlsoKnownAs = []string{"did:wba:vendorcorp.example:agents:old"}
	e1.spec.PreviousDID = mustParse(t, "did:wba:vendorcorp.example:agents:old")
	e1.spec.Extra = map[string]any{"deviceManifest": map[string]any{"type": "ANPDeviceManifest", "devices": []string{}}}
	k1.spec.Human, k1.spec.Recovery = nil, nil
	k1.spec.Deactivated, k1.spec.SuccessorDID = true, e1.id
	for name, signed := range map[string][]byte{
		"e1-spec.json": e1.sign(t, did.DialectSpec), "e1-sdk.json": e1.sign(t, did.DialectSDK), "e1-w3c.json": e1.sign(t, did.DialectW3C),
		"k1.json": k1.sign(t, did.DialectSpec),
	} {
		var indented bytes.Buffer
		if err := json.Indent(&indented, signed, "", "  "); err != nil {
			t.Fatal(err)
		}
		golden(t, name, append(indented.Bytes(), '\n'))
		d := mustDocument(t, indented.Bytes())
		if _, err := d.Verify(testTime); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := d.CheckRoles(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBuildDocumentRoundTrip(t *testing.T) {
	id := newIdentity(t, did.Ed25519)
	d := mustDocument(t, id.unsigned(t))
	binding, err := d.BindingKeyID()
	if err != nil || binding != did.KeyID(id.id, "signing", id.key.Public()) {
		t.Errorf("binding key %s, %v", binding, err)
	}
	for rel, want := range map[did.Relationship]did.PrivateKey{
		did.Authentication: id.key, did.AssertionMethod: id.key, did.KeyAgreement: id.kex, did.HumanAuthorization: id.human, did.Recovery: id.recovery,
	} {
		keys := d.Keys(rel)
		if len(keys) != 1 || !keys[0].Key.Equal(want.Public()) {
			t.Errorf("%s: %+v", rel, keys)
		}
	}
	if got := d.Services("ANPMessageService"); len(got) != 1 || got[0].ServiceDID != "did:wba:vendorcorp.example" || got[0].ID != id.id.String()+"#anp" {
		t.Errorf("services: %+v", got)
	}
	if kid := did.KeyID(id.id, "kex", id.kex.Public()); kid != id.id.String()+"#kex-"+id.kex.Public().Thumbprint()[:8] {
		t.Errorf("key id %s", kid)
	}
}

func TestBuildDocumentRefuses(t *testing.T) {
	id := newIdentity(t, did.Ed25519)
	with := func(change func(*did.DocumentSpec)) did.DocumentSpec { spec := id.spec; change(&spec); return spec }
	for name, tc := range map[string]struct {
		spec did.DocumentSpec
		want error
	}{
		"empty":                     {did.DocumentSpec{}, did.ErrDocument},
		"no binding key":            {with(func(s *did.DocumentSpec) { s.Binding = did.MethodSpec{} }), did.ErrKeyType},
		"binding key of another":    {with(func(s *did.DocumentSpec) { s.Binding.Key = testKey(t, did.Ed25519, 99).Public() }), did.ErrBinding},
		"binding key for agreement": {with(func(s *did.DocumentSpec) { s.Binding.Key = id.kex.Public() }), did.ErrKeyType},
		"signing key in agreement":  {with(func(s *did.DocumentSpec) { s.KeyAgreement = []did.MethodSpec{{Key: id.key.Public()}} }), did.ErrKeyType},
		"binding key for a human":   {with(func(s *did.DocumentSpec) { s.Human = []did.MethodSpec{{Key: id.key.Public()}} }), did.ErrMixedRoles},
		"recovery key signs":        {with(func(s *did.DocumentSpec) { s.Signing = []did.MethodSpec{{Key: id.recovery.Public()}} }), did.ErrMixedRoles},
		"one id twice": {with(func(s *did.DocumentSpec) {
			s.Signing = []did.MethodSpec{{ID: "#x", Key: testKey(t, did.P256, 1).Public()}, {ID: "#x", Key: testKey(t, did.P256, 2).Public()}}
		}), did.ErrDocument},
		"bad id":             {with(func(s *did.DocumentSpec) { s.Binding.ID = "#" }), did.ErrDocument},
		"id of another DID":  {with(func(s *did.DocumentSpec) { s.Binding.ID = "did:web:evil.example#x" }), did.ErrDocument},
		"extra id":           {with(func(s *did.DocumentSpec) { s.Extra = map[string]any{"id": "x"} }), did.ErrDocument},
		"extra proof":        {with(func(s *did.DocumentSpec) { s.Extra = map[string]any{"proof": "x"} }), did.ErrDocument},
		"extra case variant": {with(func(s *did.DocumentSpec) { s.Extra = map[string]any{"Service": "x"} }), did.ErrDocument},
	} {
		if out, err := did.BuildDocument(tc.spec); !errors.Is(err, tc.want) || out != nil {
			t.Errorf("%s: %s, %v, want %v", name, out, err, tc.want)
		}
	}
}

// One key in two roles, under one id or two, however the document hides it.
func TestCheckRoles(t *testing.T) {
	id := newIdentity(t, did.Ed25519)
	human, recovery, signing, kex := did.KeyID(id.id, "human", id.human.Public()), did.KeyID(id.id, "recovery", id.recovery.Public()),
		id.signer.KeyID(), did.KeyID(id.id, "kex", id.kex.Public())
	alias := func(d map[string]any, id, multibase string) string {
		d["verificationMethod"] = append(d["verificationMethod"].([]any), map[string]any{
			"id": id, "type": "Multikey", "controller": d["id"], "publicKeyMultibase": multibase,
		})
		return d["id"].(string) + id
	}
	for name, tc := range map[string]struct {
		change func(d map[string]any)
		want   error
	}{
		"as built":        {func(map[string]any) {}, nil},
		"no roles at all": {func(d map[string]any) { d["authentication"], d["assertionMethod"] = nil, []any{} }, did.ErrDocument},
		"second signing key": {func(d map[string]any) {
			d["authentication"] = []any{signing, alias(d, "#two", testKey(t, did.P256, 1).Public().Multibase())}
		}, nil},
		"reference to another document":   {func(d map[string]any) { d["authentication"] = []any{signing, "did:web:other.example#k"} }, nil},
		"human authenticates":             {func(d map[string]any) { d["authentication"] = []any{signing, human} }, did.ErrMixedRoles},
		"human asserts":                   {func(d map[string]any) { d["assertionMethod"] = []any{signing, recovery, human} }, did.ErrMixedRoles},
		"recovery authenticates":          {func(d map[string]any) { d["authentication"] = []any{signing, recovery} }, did.ErrMixedRoles},
		"recovery approves":               {func(d map[string]any) { d["humanAuthorization"] = []any{human, recovery} }, did.ErrMixedRoles},
		"signing recovers":                {func(d map[string]any) { d["recovery"] = []any{recovery, signing} }, did.ErrMixedRoles},
		"signing approves, by another id": {func(d map[string]any) { d["humanAuthorization"] = []any{alias(d, "#two", id.key.Public().Multibase())} }, did.ErrMixedRoles},
		"recovery authenticates, by another": {func(d map[string]any) {
			d["authentication"] = []any{signing, alias(d, "#two", id.recovery.Public().Multibase())}
		}, did.ErrMixedRoles},
		"recovery asserts, by another": {func(d map[string]any) {
			d["assertionMethod"] = []any{signing, recovery, alias(d, "#two", id.recovery.Public().Multibase())}
		}, nil},
		"agreement key authenticates": {func(d map[string]any) { d["authentication"] = []any{signing, kex} }, did.ErrMixedRoles},
		"unknown key in two roles": {func(d map[string]any) {
			x := alias(d, "#pq", "zABC")
			d["keyAgreement"] = []any{kex, x}
			d["authentication"] = []any{signing, x}
		}, did.ErrMixedRoles},
		"unknown key beside the agreement": {func(d map[string]any) { d["keyAgreement"] = []any{kex, alias(d, "#pq", "zABC")} }, nil},
		"dangling reference in two roles":  {func(d map[string]any) { d["keyAgreement"] = []any{"#x"}; d["authentication"] = []any{"#x"} }, did.ErrMixedRoles},
	} {
		raw := edit(t, id.unsigned(t), tc.change)
		d, err := did.ParseDocument(raw)
		if err == nil {
			err = d.CheckRoles()
		}
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
		if name == "recovery asserts, by another" && slices.ContainsFunc(d.Keys(did.AssertionMethod), func(m did.VerificationMethod) bool { return m.Key.Equal(id.recovery.Public()) }) {
			t.Error("a recovery key asserts under another id")
		}
	}
}
