// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
)

// A document can be signed anew after the contract: in another dialect, or with a service more. The version that is at hand
// then has a proof from after the activation, by the same binding key, and the contract is worth what it was.
func TestDocumentSignedAnewAfterTheActivation(t *testing.T) {
	d := newDeal(t)
	unsigned, err := did.BuildDocument(did.DocumentSpec{
		ID: d.vendor.id, Binding: did.MethodSpec{Key: d.vendor.signer.PublicKey()}, KeyAgreement: []did.MethodSpec{{Key: d.vendor.kex.Public()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	sign := func(at time.Time) {
		doc, err := did.SignDocument(t.Context(), unsigned, d.vendor.signer, at, did.DialectSDK)
		if err != nil {
			t.Fatal(err)
		}
		d.in.Documents = [][]byte{d.buyer.doc, doc}
	}
	sign(start.Add(90 * 24 * time.Hour))
	if rep := verify(t, d.build(d.vendor.signer)); !rep.OK() {
		t.Errorf("%+v", rep.Checks)
	}
}

// Messages can be signed with a secondary key, which has been retired since: the newest document does not list it. What they are
// worth is in the version from then.
func TestMessagesOfARetiredSecondaryKey(t *testing.T) {
	var now []byte
	d := newDealWith(t, func(p *party) {
		key, err := did.NewPrivateKey(did.Ed25519, bytes.Repeat([]byte{7}, 32))
		if err != nil {
			t.Fatal(err)
		}
		if p.talks, err = did.NewSigner(did.KeyID(p.id, "signing", key.Public()), key); err != nil {
			t.Fatal(err)
		}
		document := func(at time.Time, signing ...did.MethodSpec) []byte {
			unsigned, err := did.BuildDocument(did.DocumentSpec{
				ID: p.id, Binding: did.MethodSpec{Key: p.signer.PublicKey()}, Signing: signing, KeyAgreement: []did.MethodSpec{{Key: p.kex.Public()}},
			})
			if err != nil {
				t.Fatal(err)
			}
			doc, err := did.SignDocument(t.Context(), unsigned, p.signer, at, did.DialectSpec)
			if err != nil {
				t.Fatal(err)
			}
			return doc
		}
		p.doc, now = document(start.Add(-time.Hour), did.MethodSpec{Key: key.Public()}), document(start.Add(24*time.Hour))
	})
	for name, c := range map[string]struct {
		docs [][]byte
		want Status
	}{
		"the version of then": {[][]byte{d.buyer.doc}, OK},
		"both":                {[][]byte{now, d.buyer.doc}, OK},
		"today's alone":       {[][]byte{now}, Failed},
	} {
		d.in.Documents = append(c.docs, d.vendor.doc)
		r := verify(t, d.build(d.vendor.signer))
		if got := status(r, "messages are signed and chained"); got != c.want || r.OK() != (c.want == OK) || status(r, "both parties' proofs") != OK {
			t.Errorf("%s: %s\n%+v", name, got, r.Checks)
		}
	}
}

// TestCompromise: what was signed after somebody else may have had a party's key holds, and is for an auditor to judge: a bundle
// with it is not ok. The contract counts as of when the log first tells of it, not as of what its signers say.
func TestCompromise(t *testing.T) {
	const name = "signed while nobody else had the key"
	d := newDeal(t) // messages are a second apart; the log tells of everything at start
	n := len(d.in.Messages)
	at := func(after time.Duration) string { return start.Add(after).Format(time.RFC3339) }
	buyer, vendor := d.buyer.id.String(), d.vendor.id.String()
	last := time.Duration(n-1) * time.Second // the vendor's; the buyer's last is the accept before it
	for what, c := range map[string]struct {
		lost   []Compromise
		noLog  bool
		want   Status
		detail string
	}{
		"nobody's":               {nil, false, "none of this name", ""},
		"long after":             {[]Compromise{{buyer, at(time.Hour)}, {vendor, at(time.Hour)}}, false, OK, "2 keys were lost later"},
		"before the last":        {[]Compromise{{vendor, at(last)}}, false, Suspect, fmt.Sprintf("message %d of %s", n, at(last))},
		"of who was silent then": {[]Compromise{{buyer, at(last)}}, false, OK, "1 keys were lost later"},
		"before the proofs, by their word": {[]Compromise{{buyer, at(last)}}, true, Suspect,
			"the contract, first logged at " + at(11*time.Second)},
		"from the beginning":   {[]Compromise{{buyer, at(0)}}, false, Suspect, "the contract, first logged at " + at(0)},
		"of a stranger":        {[]Compromise{{"did:wba:stranger.test", at(time.Hour)}}, false, Failed, ""},
		"of no DID":            {[]Compromise{{"buyer", at(time.Hour)}}, false, Failed, ""},
		"at no time":           {[]Compromise{{buyer, "yesterday"}}, false, Failed, ""},
		"a stranger's as well": {[]Compromise{{vendor, at(0)}, {"did:wba:stranger.test", at(0)}}, false, Failed, ""},
	} {
		in := d.in
		d.in.Compromised = c.lost
		if c.noLog {
			d.in.Events = nil
		}
		r := verify(t, d.build(d.vendor.signer))
		d.in = in
		if got := status(r, name); got != c.want || r.OK() != (c.want != Suspect && c.want != Failed) {
			t.Errorf("%s: %s\n%+v", what, got, r.Checks)
		}
		for _, k := range r.Checks {
			if k.Name != name && k.Status == Failed {
				t.Errorf("%s: %+v", what, k)
			}
			if k.Name == name && !strings.Contains(k.Detail, c.detail) {
				t.Errorf("%s: %q does not say %q", what, k.Detail, c.detail)
			}
		}
	}
}

// A DID without a fingerprint is worth what its web server says. In a bundle nobody asks the server: its compiler can have made
// the other party up, documents, messages, proofs and all.
func TestInventedPartyWithoutFingerprint(t *testing.T) {
	for _, text := range []string{"did:wba:bigcorp.example", "did:web:bigcorp.example"} {
		d := newDealWith(t, func(p *party) {
			key, err := did.NewPrivateKey(did.Ed25519, bytes.Repeat([]byte{7}, 32))
			if err != nil {
				t.Fatal(err)
			}
			if p.id, err = did.Parse(text); err != nil {
				t.Fatal(err)
			}
			if p.signer, err = did.NewSigner(did.KeyID(p.id, "signing", key.Public()), key); err != nil {
				t.Fatal(err)
			}
			p.kexID = did.KeyID(p.id, "kex", p.kex.Public())
			unsigned, err := did.BuildDocument(did.DocumentSpec{
				ID: p.id, Binding: did.MethodSpec{Key: key.Public()}, KeyAgreement: []did.MethodSpec{{Key: p.kex.Public()}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if p.doc, err = did.SignDocument(t.Context(), unsigned, p.signer, start.Add(-time.Hour), did.DialectSpec); err != nil {
				t.Fatal(err)
			}
		})
		data := d.build(d.vendor.signer)
		if r := verify(t, data); r.OK() || status(r, "buyer's document") != Failed {
			t.Errorf("%s: %+v", text, r.Checks)
		}
		for raw, want := range map[string]bool{string(d.buyer.doc): true, string(d.vendor.doc): false} {
			known, err := did.ParseDocument([]byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			if r, err := VerifyBundle(data, known); err != nil || r.OK() != want {
				t.Errorf("%s: %+v, %v", text, r.Checks, err)
			}
		}
	}
}
