// SPDX-License-Identifier: Apache-2.0

package did_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
)

// TestRevise: keys come, get an end and go; everything else of the document stays.
func TestRevise(t *testing.T) {
	i := newIdentity(t, did.Ed25519)
	i.spec.Extra = map[string]any{"note": map[string]any{"kept": true}}
	doc := mustDocument(t, i.sign(t, did.DialectSpec))
	kid := func(role string, k did.PrivateKey) string { return did.KeyID(i.id, role, k.Public()) }
	end := testTime.Add(time.Hour)
	add := func(d *did.Document, r did.Revision) *did.Document {
		t.Helper()
		unsigned, err := d.Revise(r)
		if err != nil {
			t.Fatal(err)
		}
		next := mustDocument(t, signAs(t, unsigned, i.signer, did.DialectSpec))
		if _, err := next.Verify(testTime); err != nil {
			t.Fatal(err)
		}
		return next
	}
	fresh := map[did.Relationship]struct {
		role string
		old  did.PrivateKey
		key  did.PrivateKey
	}{
		did.KeyAgreement:       {"kex", i.kex, testKey(t, did.X25519, 40)},
		did.HumanAuthorization: {"human", i.human, testKey(t, did.Ed25519, 41)},
		did.Recovery:           {"recovery", i.recovery, testKey(t, did.Ed25519, 42)},
	}
	for rel, f := range fresh {
		next := add(doc, did.Revision{
			Add: []did.Addition{{Relationship: rel, Key: did.MethodSpec{Key: f.key.Public()}}}, Expire: map[string]time.Time{kid(f.role, f.old): end},
		})
		old, _ := next.Method(kid(f.role, f.old))
		if !next.In(kid(f.role, f.key), rel) || !old.Expires.Equal(end) || !next.In(old.ID, rel) || len(next.Methods()) != len(doc.Methods())+1 {
			t.Errorf("%s: %s", rel, next.Raw())
		}
		last := add(next, did.Revision{Remove: []string{old.ID}})
		if _, ok := last.Method(old.ID); ok || last.In(old.ID, rel) || last.In(old.ID, did.AssertionMethod) || !last.In(kid(f.role, f.key), rel) {
			t.Errorf("%s: %s", rel, last.Raw())
		}
		var members struct {
			Note json.RawMessage `json:"note"`
		}
		if err := json.Unmarshal(last.Raw(), &members); err != nil || string(members.Note) != `{"kept":true}` || len(last.Services("")) != len(doc.Services("")) {
			t.Errorf("%s: other members changed: %s", rel, last.Raw())
		}
	}
	second := testKey(t, did.Ed25519, 43)
	next := add(doc, did.Revision{Add: []did.Addition{{Relationship: did.Authentication, Key: did.MethodSpec{Key: second.Public()}}}})
	if !next.In(kid("signing", second), did.Authentication) || next.In(kid("signing", second), did.AssertionMethod) {
		t.Errorf("%s", next.Raw())
	}
}

func TestReviseRefuses(t *testing.T) {
	i := newIdentity(t, did.Ed25519)
	doc := mustDocument(t, i.sign(t, did.DialectSpec))
	i.spec.Human = nil
	without := mustDocument(t, i.sign(t, did.DialectSpec))
	binding := i.signer.KeyID()
	human := func(k did.PrivateKey) did.Revision {
		return did.Revision{Add: []did.Addition{{Relationship: did.HumanAuthorization, Key: did.MethodSpec{Key: k.Public()}}}}
	}
	for name, c := range map[string]struct {
		doc  *did.Document
		rev  did.Revision
		want error
	}{
		"binding key ends":       {doc, did.Revision{Expire: map[string]time.Time{binding: testTime}}, did.ErrDocument},
		"binding key goes":       {doc, did.Revision{Remove: []string{binding}}, did.ErrDocument},
		"unknown key goes":       {doc, did.Revision{Remove: []string{i.id.String() + "#x"}}, did.ErrDocument},
		"key of another role":    {doc, human(i.key), did.ErrDocument},
		"key that cannot sign":   {doc, human(i.kex), did.ErrKeyType},
		"first of a role":        {without, human(testKey(t, did.Ed25519, 50)), did.ErrDocument},
		"to every signing place": {doc, did.Revision{Add: []did.Addition{{Relationship: did.AssertionMethod}}}, did.ErrDocument},
	} {
		if _, err := c.doc.Revise(c.rev); !errors.Is(err, c.want) && !errors.Is(err, did.ErrMixedRoles) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
