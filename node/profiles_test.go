// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"strings"
	"testing"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/httpapi"
)

// TestProfiles_EveryPairContracts negotiates for real between Ed25519 and secp256k1 parties: request signatures, envelopes,
// card signatures, object proofs and document proofs of both kinds.
func TestProfiles_EveryPairContracts(t *testing.T) {
	for _, c := range []struct{ buyer, vendor string }{{"e1", "k1"}, {"k1", "e1"}, {"k1", "k1"}} {
		t.Run(c.buyer+" buyer and "+c.vendor+" vendor", func(t *testing.T) {
			buyerDir, vendorDir := initPair(t, func(b, v *node.InitOptions) { b.Profile, v.Profile = c.buyer, c.vendor })
			vendor, buyer := start(t, vendorDir), start(t, buyerDir)
			for _, p := range []struct {
				c       *company
				profile string
			}{{buyer, c.buyer}, {vendor, c.vendor}} {
				if id := p.c.Status().DID; !strings.Contains(id, ":"+p.profile+"_") {
					t.Fatalf("%s is not of profile %s", id, p.profile)
				}
			}
			n, err := buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: "vendorcorp.test"})
			if err != nil {
				t.Fatal(err)
			}
			if n = buyer.wait(t, n.ContextID); n.Phase != "in_force" {
				buyer.dump(t)
				vendor.dump(t)
				t.Fatalf("phase %s: %s %s", n.Phase, n.Code, n.Reason)
			}
			rec, err := vendor.Contract(t.Context(), n.ContractID)
			if err != nil {
				t.Fatal(err)
			}
			k, err := contract.Parse(rec.Contract)
			if err != nil {
				t.Fatal(err)
			}
			suites := map[string]string{"e1": "eddsa-jcs-2022", "k1": "didwba-jcs-ecdsa-secp256k1-2025"}
			var got []string
			for _, p := range k.Proofs {
				got = append(got, p.Cryptosuite)
			}
			if len(got) != 2 || got[0] != suites[c.buyer] || got[1] != suites[c.vendor] {
				t.Errorf("proofs by %q", got)
			}
			docs := map[string]*did.Document{}
			for _, id := range []string{k.Parties.Buyer, k.Parties.Vendor} {
				r, err := buyer.Resolve(t.Context(), id)
				if id == buyer.Status().DID {
					r, err = vendor.Resolve(t.Context(), id)
				}
				if err != nil {
					t.Fatal(err)
				}
				if docs[id], err = did.ParseDocument(r[0].Document); err != nil {
					t.Fatal(err)
				}
			}
			if err := k.VerifyProofs(docs[k.Parties.Buyer], docs[k.Parties.Vendor]); err != nil {
				t.Errorf("the contract's proofs: %v", err)
			}
		})
	}
}

// TestProfiles_PolicyDecides excludes k1 on either side.
func TestProfiles_PolicyDecides(t *testing.T) {
	const excluding = "trust:\n  contract_profiles: [e1]"
	t.Run("the buyer does not contract with k1", func(t *testing.T) {
		buyerDir, vendorDir := initPair(t, func(_, v *node.InitOptions) { v.Profile = "k1" })
		edit(t, buyerDir, "trust:", excluding)
		vendor, buyer := start(t, vendorDir), start(t, buyerDir)
		r, err := buyer.Resolve(t.Context(), vendor.Status().DID)
		if err != nil || r[0].MayContract || !strings.Contains(r[0].Reason, "profile") {
			t.Errorf("resolve says %+v (%v)", r, err)
		}
		if _, err := buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: vendor.Status().DID}); kind(err) != httpapi.KindRefused {
			t.Errorf("negotiating: %v", err)
		}
		if list, err := vendor.Negotiations(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("the vendor heard of it: %+v (%v)", list, err)
		}
	})
	t.Run("the vendor does not contract with k1", func(t *testing.T) {
		buyerDir, vendorDir := initPair(t, func(b, _ *node.InitOptions) { b.Profile = "k1" })
		edit(t, vendorDir, "trust:", excluding)
		vendor, buyer := start(t, vendorDir), start(t, buyerDir)
		n, err := buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: vendor.Status().DID})
		if err != nil {
			t.Fatal(err)
		}
		if n = buyer.wait(t, n.ContextID); n.Phase == "in_force" || n.Code != "NOT_TRUSTED" {
			t.Errorf("phase %s: %s %s", n.Phase, n.Code, n.Reason)
		}
		if list, err := vendor.Contracts(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("the vendor holds %+v (%v)", list, err)
		}
	})
	t.Run("bare domains and did:web do not contract by default", func(t *testing.T) {
		buyerDir, vendorDir := initPair(t, nil)
		start(t, vendorDir)
		buyer := start(t, buyerDir)
		r, err := buyer.Resolve(t.Context(), "did:wba:vendorcorp.test")
		if err != nil || r[0].MayContract || r[0].Profile != "bare" {
			t.Errorf("resolve says %+v (%v)", r, err)
		}
		for _, peer := range []string{"did:wba:vendorcorp.test", "did:web:vendorcorp.test", "did:wba:vendorcorp.test:agents:steward"} {
			if _, err := buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: peer}); kind(err) != httpapi.KindRefused || !strings.Contains(err.Error(), "profile") {
				t.Errorf("%s: %v", peer, err)
			}
		}
	})
}

// TestProofDialect_IsPublishedAndSeen changes proof_dialect as an operator does; the counterparty sees which one it is and
// takes the same keys with a newer proof for what it is.
func TestProofDialect_IsPublishedAndSeen(t *testing.T) {
	buyerDir, vendorDir := initPair(t, func(_, v *node.InitOptions) { v.ProofDialect = "sdk" })
	was := "sdk"
	for _, dialect := range []string{"sdk", "w3c", "spec"} {
		if dialect != was {
			edit(t, vendorDir, "proof_dialect: "+was, "proof_dialect: "+dialect)
			was = dialect
		}
		vendor, buyer := start(t, vendorDir), start(t, buyerDir)
		for _, id := range []string{vendor.Status().DID, "did:wba:vendorcorp.test"} {
			r, err := buyer.Resolve(t.Context(), id)
			if err != nil || r[0].Dialect != dialect {
				t.Errorf("%s, dialect %s: %+v (%v)", id, dialect, r, err)
			}
		}
		vendor.stop(t)
		buyer.stop(t)
	}
	edit(t, vendorDir, "proof_dialect: spec", "proof_dialect: jws")
	if _, err := node.Open(t.Context(), vendorDir, node.Options{Process: "treaty"}); kind(err) != httpapi.KindUsage {
		t.Errorf("an unknown dialect: %v", err)
	}
}

func TestInit_UnknownProfile(t *testing.T) {
	_, err := node.Init(t.Context(), node.InitOptions{Dir: t.TempDir(), Domain: "vendorcorp.test", Profile: "web"})
	if err == nil || !strings.Contains(err.Error(), "neither e1 nor k1") {
		t.Errorf("%v", err)
	}
}
