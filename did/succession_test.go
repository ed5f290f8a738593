// SPDX-License-Identifier: Apache-2.0

package did_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
)

// later is when the successions of the tests are signed.
var later = testTime.Add(time.Hour)

const stable = "did:wba:vendorcorp.example:agents:steward:"

// generation is an identity of the same subject with another binding key.
func generation(tb testing.TB, typ did.KeyType, label byte) *identity {
	tb.Helper()
	key := testKey(tb, typ, label)
	prefix := map[did.KeyType]string{did.Ed25519: "e1_", did.Secp256k1: "k1_"}[typ]
	return newIdentityAs(tb, stable+prefix+key.Public().Thumbprint(), key)
}

func (i *identity) signerFor(tb testing.TB, role string, key did.PrivateKey) did.Signer {
	tb.Helper()
	s, err := did.NewSigner(did.KeyID(i.id, role, key.Public()), key)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func (i *identity) recoverer(tb testing.TB) did.Signer {
	return i.signerFor(tb, "recovery", i.recovery)
}

// following returns the published document of i as the successor of old.
func (i *identity) following(tb testing.TB, old did.DID) []byte {
	tb.Helper()
	spec, err := i.spec.Succeeding(old)
	if err != nil {
		tb.Fatal(err)
	}
	unsigned, err := did.BuildDocument(spec)
	if err != nil {
		tb.Fatal(err)
	}
	return signAs(tb, unsigned, i.signer, did.DialectSpec)
}

func deactivate(tb testing.TB, current []byte, successor did.DID, s did.Signer, d did.Dialect) []byte {
	tb.Helper()
	out, err := did.Deactivate(tb.Context(), current, successor, s, later, d)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// resign changes a document and signs it again, later.
func resign(t *testing.T, raw []byte, s did.Signer, change func(map[string]any)) []byte {
	t.Helper()
	unsigned := edit(t, raw, func(d map[string]any) { delete(d, "proof"); change(d) })
	signed, err := did.SignDocument(t.Context(), unsigned, s, later, did.DialectSpec)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func TestAssurance(t *testing.T) {
	order := []did.Assurance{"", did.AssuranceUnverified, did.AssuranceProviderAsserted, did.AssuranceRecoveryVerified, did.AssuranceVerified}
	for i, a := range order {
		if moves := i >= 3; a.Moves() != moves {
			t.Errorf("%q moves: %v", a, !moves)
		}
		for j, b := range order {
			if got := a.Weakest(b); got != order[min(i, j)] {
				t.Errorf("weaker of %q and %q: %q", a, b, got)
			}
		}
	}
	if did.Assurance("Verified").Moves() || did.AssuranceVerified.Weakest("trust me").Moves() {
		t.Error("an unknown word moves")
	}
}

func TestCheckSuccessor(t *testing.T) {
	e1 := "e1_" + testKey(t, did.Ed25519, 50).Public().Thumbprint()
	e2 := "e1_" + testKey(t, did.Ed25519, 51).Public().Thumbprint()
	k1 := "k1_" + testKey(t, did.Secp256k1, 50).Public().Thumbprint()
	for name, tc := range map[string]struct {
		old, next string
		ok        bool
	}{
		"e1 to e1":           {stable + e1, stable + e2, true},
		"k1 to e1":           {stable + k1, stable + e1, true},
		"k1 to k1":           {stable + k1, stable + "k1_" + e1[3:], true},
		"e1 to k1":           {stable + e1, stable + k1, false},
		"itself":             {stable + e1, stable + e1, false},
		"another path":       {stable + e1, "did:wba:vendorcorp.example:agents:other:" + e2, false},
		"a longer path":      {stable + e1, stable + "more:" + e2, false},
		"a shorter path":     {stable + e1, "did:wba:vendorcorp.example:agents:" + e2, false},
		"another domain":     {stable + e1, "did:wba:evil.example:agents:steward:" + e2, false},
		"another port":       {stable + e1, "did:wba:vendorcorp.example%3A8443:agents:steward:" + e2, false},
		"a sub-domain":       {stable + e1, "did:wba:a.vendorcorp.example:agents:steward:" + e2, false},
		"another method":     {stable + e1, "did:web:vendorcorp.example:agents:steward:" + e2, false},
		"web to wba":         {"did:web:vendorcorp.example:agents:steward:" + e1, stable + e2, false},
		"to the bare domain": {stable + e1, "did:wba:vendorcorp.example", false},
		"from a bare domain": {"did:wba:vendorcorp.example", stable + e1, false},
		"no fingerprint":     {stable + e1, "did:wba:vendorcorp.example:agents:steward", false},
	} {
		err := did.CheckSuccessor(mustParse(t, tc.old), mustParse(t, tc.next))
		if (err == nil) != tc.ok || err != nil && !errors.Is(err, did.ErrSuccession) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := did.CheckSuccessor(did.DID{}, did.DID{}); !errors.Is(err, did.ErrSuccession) {
		t.Errorf("no DIDs: %v", err)
	}
}

func TestVerifyHop(t *testing.T) {
	old, next, third := generation(t, did.Ed25519, 1), generation(t, did.Ed25519, 60), generation(t, did.Ed25519, 61)
	active := old.sign(t, did.DialectSpec)
	gone := deactivate(t, active, next.id, old.signer, did.DialectSpec)
	recovered := deactivate(t, active, next.id, old.recoverer(t), did.DialectSpec)
	new := next.following(t, old.id)

	k1 := generation(t, did.Secp256k1, 1)
	k1Gone := deactivate(t, k1.sign(t, did.DialectSpec), next.id, k1.signer, did.DialectSpec)
	unsigned := func(raw []byte) []byte { return edit(t, raw, func(d map[string]any) { delete(d, "proof") }) }
	k2 := generation(t, did.Secp256k1, 62)
	k1ToK2 := deactivate(t, k1.sign(t, did.DialectSpec), k2.id, k1.signer, did.DialectSpec)

	// A recovery key that is in the deactivated document, and not in the one before it.
	late := testKey(t, did.Ed25519, 70)
	lateSigner := old.signerFor(t, "recovery", late)
	withLate := old.spec
	withLate.Recovery = []did.MethodSpec{{Key: late.Public()}}
	withLate.Deactivated, withLate.SuccessorDID = true, next.id
	lateUnsigned, err := did.BuildDocument(withLate)
	if err != nil {
		t.Fatal(err)
	}
	byLate := resign(t, lateUnsigned, lateSigner, func(map[string]any) {})
	lateByBinding := signAs(t, lateUnsigned, old.signer, did.DialectSpec) // a pin that was never active

	other := newIdentityAs(t, "did:wba:vendorcorp.example:agents:other:e1_"+next.key.Public().Thumbprint(), next.key)
	otherDomain := newIdentityAs(t, "did:wba:evil.example:agents:steward:e1_"+next.key.Public().Thumbprint(), next.key)
	to := func(d *identity) []byte {
		return resign(t, active, old.signer, func(m map[string]any) { m["deactivated"], m["successorDid"] = true, d.id.String() })
	}
	naming := func(i *identity, change func(map[string]any)) []byte {
		return resign(t, i.unsigned(t), i.signer, func(m map[string]any) { m["alsoKnownAs"] = []string{old.id.String()}; change(m) })
	}
	nothing := func(map[string]any) {}

	for name, tc := range map[string]struct {
		pinned, gone, next []byte
		want               did.Assurance
		err                error // with want ""
	}{
		"by the binding key":           {active, gone, new, did.AssuranceVerified, nil},
		"never seen before":            {nil, gone, new, did.AssuranceVerified, nil},
		"pinned as it is":              {gone, gone, new, did.AssuranceVerified, nil},
		"without previousDid":          {active, gone, naming(next, nothing), did.AssuranceVerified, nil},
		"k1 to e1":                     {nil, k1Gone, next.following(t, k1.id), did.AssuranceVerified, nil},
		"by a pinned recovery key":     {active, recovered, new, did.AssuranceRecoveryVerified, nil},
		"the successor moved on":       {active, gone, deactivate(t, new, third.id, next.signer, did.DialectSpec), did.AssuranceVerified, nil},
		"unsigned":                     {nil, unsigned(gone), new, did.AssuranceUnverified, nil},
		"unsigned k1":                  {nil, unsigned(k1Gone), next.following(t, k1.id), did.AssuranceUnverified, nil},
		"to an unsigned k1":            {nil, k1ToK2, unsigned(k2.following(t, k1.id)), did.AssuranceUnverified, nil},
		"recovery key, nothing pinned": {nil, recovered, new, "", did.ErrProof},
		"recovery key not pinned":      {active, byLate, new, "", did.ErrProof},
		"recovery key pinned too late": {lateByBinding, byLate, new, "", did.ErrProof},
		"human key":                    {active, resign(t, gone, old.signerFor(t, "human", old.human), nothing), new, "", did.ErrProof},
		"the successor's key":          {active, resign(t, gone, next.signer, nothing), new, "", did.ErrProof},
		"tampered":                     {active, edit(t, gone, func(m map[string]any) { m["alsoKnownAs"] = []string{"https://a.test"} }), new, "", did.ErrBadSignature},
		"binding key gone":             {active, resign(t, gone, old.recoverer(t), func(m map[string]any) { m["authentication"] = []string{} }), new, "", did.ErrBinding},
		"still active":                 {active, active, new, "", did.ErrSuccession},
		"no successor named":           {active, deactivate(t, active, did.DID{}, old.signer, did.DialectSpec), new, "", did.ErrSuccession},
		"another one named":            {active, gone, third.following(t, old.id), "", did.ErrSuccession},
		"another path":                 {active, to(other), naming(other, nothing), "", did.ErrSuccession},
		"another domain":               {active, to(otherDomain), naming(otherDomain, nothing), "", did.ErrSuccession},
		"itself":                       {active, to(old), to(old), "", did.ErrSuccession},
		"to a weaker profile":          {active, to(k1), naming(k1, nothing), "", did.ErrSuccession},
		"successor silent":             {active, gone, next.sign(t, did.DialectSpec), "", did.ErrSuccession},
		"successor names another":      {active, gone, next.following(t, third.id), "", did.ErrSuccession},
		"previousDid of another":       {active, gone, naming(next, func(m map[string]any) { m["previousDid"] = third.id.String() }), "", did.ErrSuccession},
		"successor unsigned":           {active, gone, unsigned(new), "", did.ErrNoProof},
		"successor tampered":           {active, gone, edit(t, new, func(m map[string]any) { m["service"] = []any{} }), "", did.ErrBadSignature},
		"successor by another key":     {active, gone, resign(t, new, next.signerFor(t, "recovery", next.recovery), nothing), "", did.ErrProof},
		"older than the pinned":        {resign(t, active, old.signer, nothing), resign(t, gone, old.signer, nothing), new, "", did.ErrProofTime},
		"unsigned, the pinned was not": {k1.sign(t, did.DialectSpec), unsigned(k1Gone), next.following(t, k1.id), "", did.ErrProofTime},
		"the pinned is of another":     {new, gone, new, "", did.ErrSuccession},
		"rewritten":                    {gone, to(third), third.following(t, old.id), "", did.ErrConflict},
		"rewritten to skip one":        {nil, to(third), third.following(t, next.id), "", did.ErrSuccession},
		"from the future":              {active, future(t, old, gone), new, "", did.ErrProofTime},
		"no deactivated document":      {active, nil, new, "", did.ErrSuccession},
		"no document of the successor": {active, gone, nil, "", did.ErrSuccession},
	} {
		parse := func(raw []byte) *did.Document {
			if raw == nil {
				return nil
			}
			return mustDocument(t, raw)
		}
		got, err := did.VerifyHop(parse(tc.pinned), parse(tc.gone), parse(tc.next), later)
		if got != tc.want || !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
			t.Errorf("%s: %q, %v; want %q, %v", name, got, err, tc.want, tc.err)
		}
		if err != nil && !errors.Is(err, did.ErrSuccession) && !errors.Is(err, did.ErrConflict) {
			t.Errorf("%s: %v is neither ErrSuccession nor ErrConflict", name, err)
		}
	}
}

func future(t *testing.T, i *identity, raw []byte) []byte {
	t.Helper()
	unsigned := edit(t, raw, func(m map[string]any) { delete(m, "proof") })
	signed, err := did.SignDocument(t.Context(), unsigned, i.signer, later.Add(time.Hour), did.DialectSpec)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func TestConflict(t *testing.T) {
	old, mine, thief := generation(t, did.Ed25519, 1), generation(t, did.Ed25519, 60), generation(t, did.Ed25519, 61)
	active := old.sign(t, did.DialectSpec)
	stolen := mustDocument(t, deactivate(t, active, thief.id, old.signer, did.DialectSpec))
	mineRaw := deactivate(t, active, mine.id, old.recoverer(t), did.DialectSpec)
	if by := stolen.DeactivatedBy(); by != did.AssuranceVerified {
		t.Errorf("by the binding key: %q", by)
	}
	if by := mustDocument(t, mineRaw).DeactivatedBy(); by != did.AssuranceRecoveryVerified {
		t.Errorf("by the recovery key: %q", by)
	}
	if by := mustDocument(t, active).DeactivatedBy(); by != "" {
		t.Errorf("an active document: %q", by)
	}
	again := resign(t, mineRaw, old.signer, func(map[string]any) {})
	_, err := did.VerifyHop(stolen, mustDocument(t, again), mustDocument(t, mine.following(t, old.id)), later)
	var c *did.Conflict
	if !errors.As(err, &c) || !errors.Is(err, did.ErrConflict) {
		t.Fatalf("%v", err)
	}
	want := did.Conflict{DID: old.id, Pinned: thief.id, Observed: mine.id, PinnedBy: did.AssuranceVerified, ObservedBy: did.AssuranceVerified}
	if *c != want || !strings.Contains(c.Error(), mine.id.String()) {
		t.Errorf("%+v, want %+v", *c, want)
	}

	v, r, u := did.AssuranceVerified, did.AssuranceRecoveryVerified, did.AssuranceUnverified
	for _, tc := range []struct {
		pinned, observed  did.Assurance
		wins, confirmable bool
	}{
		{v, r, true, true}, {u, r, true, true}, {v, v, false, true}, {r, r, false, true}, {u, v, false, true},
		{r, v, false, false}, {r, u, false, false},
	} {
		c := did.Conflict{PinnedBy: tc.pinned, ObservedBy: tc.observed}
		if c.RecoveryWins() != tc.wins || c.Confirmable() != tc.confirmable {
			t.Errorf("%s then %s: wins %v, confirmable %v", tc.pinned, tc.observed, c.RecoveryWins(), c.Confirmable())
		}
	}
}

// The published form of a succession, which other implementations read.
func TestSuccessionGolden(t *testing.T) {
	old, next := generation(t, did.Ed25519, 1), generation(t, did.Ed25519, 60)
	k1 := generation(t, did.Secp256k1, 1)
	active, k1Active := old.sign(t, did.DialectSpec), k1.sign(t, did.DialectSpec)
	body, err := did.SupersededBody(old.id, next.id)
	if err != nil {
		t.Fatal(err)
	}
	for name, doc := range map[string][]byte{
		"1-active.json":               active,
		"1-deactivated.json":          deactivate(t, active, next.id, old.signer, did.DialectSpec),
		"1-deactivated-sdk.json":      deactivate(t, active, next.id, old.signer, did.DialectSDK),
		"1-deactivated-w3c.json":      deactivate(t, active, next.id, old.signer, did.DialectW3C),
		"1-deactivated-recovery.json": deactivate(t, active, next.id, old.recoverer(t), did.DialectSpec),
		"2-active.json":               next.following(t, old.id),
		"k1-deactivated.json":         deactivate(t, k1Active, next.id, k1.signer, did.DialectSpec),
		"k1-successor.json":           next.following(t, k1.id),
		"superseded.json":             body,
	} {
		var indented bytes.Buffer
		if err := json.Indent(&indented, doc, "", "  "); err != nil {
			t.Fatal(err)
		}
		golden(t, "succession/"+name, append(indented.Bytes(), '\n'))
	}
}

// What Deactivate makes of a document is what BuildDocument makes of its spec, for documents with and without
// inline contexts.
func TestDeactivateIsBuildDocument(t *testing.T) {
	plain := generation(t, did.Ed25519, 1)
	plain.spec.Human, plain.spec.Recovery = nil, nil
	next := generation(t, did.Ed25519, 60)
	for name, i := range map[string]*identity{"plain": plain, "full": generation(t, did.Ed25519, 1), "k1": generation(t, did.Secp256k1, 1)} {
		got := deactivate(t, i.sign(t, did.DialectSpec), next.id, i.signer, did.DialectSpec)
		spec := i.spec
		spec.Deactivated, spec.SuccessorDID = true, next.id
		unsigned, err := did.BuildDocument(spec)
		if err != nil {
			t.Fatal(err)
		}
		want, err := did.SignDocument(t.Context(), unsigned, i.signer, later, did.DialectSpec)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v\n%s\n%s", name, err, got, want)
		}
	}
}

func TestDeactivateForeignDocuments(t *testing.T) {
	i, next := generation(t, did.Ed25519, 1), generation(t, did.Ed25519, 60)
	const term = `"successorDid":{"@id":"https://github.com/treaty-node/treaty/ext/identity/v1#successorDid","@type":"@id"}`
	for before, after := range map[string]string{
		`"https://www.w3.org/ns/did/v1"`:   `["https://www.w3.org/ns/did/v1",{` + term + `}]`,
		`["https://www.w3.org/ns/did/v1"]`: `["https://www.w3.org/ns/did/v1",{` + term + `}]`,
		`[]`:                               `[{` + term + `}]`,
		`{"x":"https://a.test/x"}`:         `[{` + term + `,"x":"https://a.test/x"}]`,
		`[{"x":"https://a.test/x"},"https://www.w3.org/ns/did/v1"]`:            `[{"x":"https://a.test/x"},"https://www.w3.org/ns/did/v1",{` + term + `}]`,
		`["https://www.w3.org/ns/did/v1",{"successorDid":"https://a.test/s"}]`: `["https://www.w3.org/ns/did/v1",{"successorDid":"https://a.test/s"}]`,
		"": "",
	} {
		raw := resign(t, i.unsigned(t), i.signer, func(m map[string]any) {
			m["unknown"], m["deactivated"] = map[string]any{"é": 1, "z": "\u0007"}, false
			if m["@context"] = json.RawMessage(before); before == "" {
				delete(m, "@context")
			}
		})
		out, err := did.Deactivate(t.Context(), raw, next.id, i.signer, later.Add(time.Minute), did.DialectSpec)
		if err != nil {
			t.Errorf("%s: %v", before, err)
			continue
		}
		var got map[string]json.RawMessage
		if err := json.Unmarshal(out, &got); err != nil || string(got["@context"]) != after ||
			string(got["unknown"]) != `{"z":"\u0007","é":1}` || string(got["deactivated"]) != "true" {
			t.Errorf("%s: %v\n%s", before, err, out)
		}
	}
}

func TestDeactivateRefuses(t *testing.T) {
	i, next := generation(t, did.Ed25519, 1), generation(t, did.Ed25519, 60)
	active := i.sign(t, did.DialectSpec)
	gone := deactivate(t, active, next.id, i.signer, did.DialectSpec)
	elsewhere := mustParse(t, "did:wba:vendorcorp.example:agents:other:e1_"+next.key.Public().Thumbprint())
	for name, tc := range map[string]struct {
		current   []byte
		successor did.DID
		signer    did.Signer
		created   time.Time
		want      error
	}{
		"no document":             {[]byte("{}"), next.id, i.signer, later, did.ErrDocument},
		"deactivated already":     {gone, generation(t, did.Ed25519, 61).id, i.signer, later.Add(time.Hour), did.ErrSuccession},
		"successor named already": {resign(t, active, i.signer, func(m map[string]any) { m["successorDid"] = next.id.String() }), next.id, i.signer, later.Add(time.Hour), did.ErrSuccession},
		"another path":            {active, elsewhere, i.signer, later, did.ErrSuccession},
		"itself":                  {active, i.id, i.signer, later, did.ErrSuccession},
		"the human key":           {active, next.id, i.signerFor(t, "human", i.human), later, did.ErrProof},
		"the successor's key":     {active, next.id, next.signer, later, did.ErrProof},
		"a key under its name":    {active, next.id, fakeSigner{i.signer.KeyID(), next.signer}, later, did.ErrBadSignature},
		"the same second":         {active, next.id, i.signer, testTime.Add(999 * time.Millisecond), did.ErrProofTime},
		"no such dialect":         {active, next.id, i.signer, later, did.ErrProof},
	} {
		dialect := did.DialectSpec
		if name == "no such dialect" {
			dialect = "x"
		}
		if out, err := did.Deactivate(t.Context(), tc.current, tc.successor, tc.signer, tc.created, dialect); !errors.Is(err, tc.want) || out != nil {
			t.Errorf("%s: %s, %v; want %v", name, out, err, tc.want)
		}
	}
}

// fakeSigner signs with another key than its name says.
type fakeSigner struct {
	keyID string
	did.Signer
}

func (f fakeSigner) KeyID() string { return f.keyID }

func (f fakeSigner) Sign(ctx context.Context, message []byte) ([]byte, error) {
	return f.Signer.Sign(ctx, message)
}

func TestSucceeding(t *testing.T) {
	first, second, third := generation(t, did.Ed25519, 1), generation(t, did.Ed25519, 60), generation(t, did.Ed25519, 61)
	names := []string{first.id.String(), "https://vendorcorp.example", second.id.String()}
	third.spec.AlsoKnownAs = names
	third.spec.Deactivated, third.spec.SuccessorDID = true, first.id
	spec, err := third.spec.Succeeding(second.id)
	if err != nil || !slices.Equal(spec.AlsoKnownAs, []string{second.id.String(), "https://vendorcorp.example"}) ||
		spec.PreviousDID != second.id || spec.Deactivated || !spec.SuccessorDID.IsZero() {
		t.Errorf("%+v, %v", spec, err)
	}
	if !slices.Equal(names, []string{first.id.String(), "https://vendorcorp.example", second.id.String()}) {
		t.Error("the names of the caller have changed")
	}
	if _, err := third.spec.Succeeding(third.id); !errors.Is(err, did.ErrSuccession) {
		t.Errorf("itself: %v", err)
	}

	for _, typ := range []did.KeyType{did.Ed25519, did.Secp256k1} {
		k := testKey(t, typ, 90).Public()
		id, err := did.SuccessorID(generation(t, did.Secp256k1, 1).id, k)
		if err != nil || id.Fingerprint() != k.Thumbprint() || id.StableSubject()+":" != stable {
			t.Errorf("%s: %s, %v", typ, id, err)
		}
	}
	for name, tc := range map[string]struct {
		old  did.DID
		key  did.PublicKey
		want error
	}{
		"x25519":      {first.id, first.kex.Public(), did.ErrKeyType},
		"the same":    {first.id, first.key.Public(), did.ErrSuccession},
		"weaker":      {first.id, testKey(t, did.Secp256k1, 1).Public(), did.ErrSuccession},
		"path":        {mustParse(t, "did:wba:vendorcorp.example:agents"), first.key.Public(), did.ErrSuccession},
		"bare domain": {mustParse(t, "did:wba:vendorcorp.example"), first.key.Public(), did.ErrSyntax},
	} {
		if id, err := did.SuccessorID(tc.old, tc.key); !errors.Is(err, tc.want) {
			t.Errorf("%s: %s, %v", name, id, err)
		}
	}
}

// Whatever the builders make verifies, with the assurance of its signer; and nothing that was changed
// afterwards moves anything.
func TestSuccessionProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	elsewhere := generation(t, did.Ed25519, 100).id.String()
	pick := func(n int) int { return rng.IntN(n) }
	for round := range 16 {
		oldType := []did.KeyType{did.Ed25519, did.Secp256k1}[pick(2)]
		nextType := did.Ed25519
		if oldType == did.Secp256k1 {
			nextType = []did.KeyType{did.Ed25519, did.Secp256k1}[pick(2)]
		}
		old, next := generation(t, oldType, 1), generation(t, nextType, byte(60+pick(20)))
		if pick(2) == 0 {
			old.spec.Services = nil
		}
		if pick(2) == 0 {
			old.spec.AlsoKnownAs = []string{"https://vendorcorp.example"}
		}
		active := old.sign(t, dialects[pick(len(dialects))])
		signer, want := old.signer, did.AssuranceVerified
		if pick(2) == 0 {
			signer, want = old.recoverer(t), did.AssuranceRecoveryVerified
		}
		gone := deactivate(t, active, next.id, signer, dialects[pick(len(dialects))])
		pinned, successor := mustDocument(t, active), mustDocument(t, next.following(t, old.id))
		if got, err := did.VerifyHop(pinned, mustDocument(t, gone), successor, later); got != want || err != nil {
			t.Fatalf("round %d: %q, %v; want %q", round, got, err, want)
		}
		if got, _ := did.VerifyHop(nil, mustDocument(t, gone), successor, later); got.Moves() != (want == did.AssuranceVerified) {
			t.Fatalf("round %d: %q with nothing pinned", round, got)
		}

		// One member changed, or gone.
		var members map[string]any
		if err := json.Unmarshal(gone, &members); err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(members)) {
			for what, change := range map[string]func(map[string]any){
				"without": func(m map[string]any) { delete(m, name) },
				"other":   func(m map[string]any) { m[name] = elsewhere },
			} {
				wantNothing(t, pinned, edit(t, gone, change), successor, what+" "+name)
			}
		}
		// One byte changed.
		for range 20 {
			flipped := bytes.Clone(gone)
			flipped[pick(len(flipped))] ^= 1 << pick(7)
			wantNothing(t, pinned, flipped, successor, "one bit flipped")
		}
	}
}

// wantNothing fails if the document parses, and moves something.
func wantNothing(t *testing.T, pinned *did.Document, raw []byte, successor *did.Document, what string) {
	t.Helper()
	doc, err := did.ParseDocument(raw)
	if err != nil {
		return
	}
	if got, err := did.VerifyHop(pinned, doc, successor, later); got.Moves() {
		t.Errorf("%s: %q, %v\n%s", what, got, err, raw)
	}
}

func TestSuperseded(t *testing.T) {
	old, next := generation(t, did.Ed25519, 1).id, generation(t, did.Ed25519, 60).id
	body, err := did.SupersededBody(old, next)
	if err != nil {
		t.Fatal(err)
	}
	if err := did.CheckSuperseded(body, old); err != nil {
		t.Error(err)
	}
	if _, err := did.SupersededBody(old, mustParse(t, "did:wba:evil.example")); !errors.Is(err, did.ErrSuccession) {
		t.Errorf("another domain: %v", err)
	}
	for name, tc := range map[string]struct {
		body string
		id   did.DID
	}{
		"of another":     {string(body), next},
		"no DID":         {`{"code":"did_superseded","requestedDid":""}`, did.DID{}},
		"another code":   {strings.Replace(string(body), "did_superseded", "conflict", 1), old},
		"a case variant": {strings.Replace(string(body), "requestedDid", "requesteddid", 1), old},
		"twice":          {`{"code":"did_superseded","code":"did_superseded","requestedDid":"` + old.String() + `"}`, old},
		"no JSON":        {"did_superseded", old},
		"empty":          {"", old},
		"too large":      {string(body) + strings.Repeat(" ", 4<<10), old},
	} {
		if err := did.CheckSuperseded([]byte(tc.body), tc.id); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

func FuzzCheckSuperseded(f *testing.F) {
	old, next := generation(f, did.Ed25519, 1).id, generation(f, did.Ed25519, 60).id
	body, err := did.SupersededBody(old, next)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(`{"code":"did_superseded","requestedDid":"x"}`))
	f.Add([]byte(`{"code":null}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if did.CheckSuperseded(body, old) == nil && !bytes.Contains(body, []byte("superseded")) && !bytes.Contains(body, []byte(`\u`)) {
			t.Errorf("passes: %s", body)
		}
	})
}
