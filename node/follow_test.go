// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/ledger/evidence"
	"github.com/treaty-node/treaty/node/store"
)

// TestFollow_EachSideMovesUnderLoad: two nodes that trust each other's DID and nobody else; negotiations run while first the buyer,
// then the vendor, then both move. None is lost, the trust goes on, and each contract's evidence holds.
func TestFollow_EachSideMovesUnderLoad(t *testing.T) {
	buyerDir, vendorDir := initPair(t, func(b, v *node.InitOptions) { b.Allow, v.Allow = []string{}, []string{} })
	vendor, buyer := start(t, vendorDir), start(t, buyerDir)
	for _, c := range []struct {
		who  *company
		peer string
	}{{buyer, vendor.Status().DID}, {vendor, buyer.Status().DID}} {
		if _, err := c.who.ChangeTrust(t.Context(), httpapi.TrustRequest{Action: httpapi.TrustAllow, Pattern: c.peer}); err != nil {
			t.Fatal(err)
		}
	}
	first := vendor.Status().DID // what the buyer's operator knows
	var ids []string
	negotiate := func(n int) {
		t.Helper()
		for range n {
			neg, err := buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: first})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, neg.ContextID)
		}
	}
	for _, move := range []func(){
		func() { rotate(t, buyer.Node, httpapi.RotateBinding) },
		func() { rotate(t, vendor.Node, httpapi.RotateBinding) },
		func() {
			rotate(t, vendor.Node, httpapi.RotateBinding)
			rotate(t, buyer.Node, httpapi.RotateBinding)
		},
	} {
		negotiate(2)
		move()
		negotiate(1)
		time.Sleep(1100 * time.Millisecond) // documents are proved to the second: the next move is a later one
	}
	for _, id := range ids {
		n := buyer.wait(t, id)
		if n.Phase != "in_force" {
			buyer.dump(t)
			vendor.dump(t)
			t.Fatalf("%s: %s %s %s", id, n.Phase, n.Code, n.Reason)
		}
		for _, c := range []*company{buyer, vendor} {
			raw, err := c.Evidence(t.Context(), n.ContractID)
			if err != nil {
				t.Fatal(err)
			}
			r, err := evidence.VerifyBundle(raw)
			if err != nil || !r.OK() {
				t.Errorf("evidence: %v %+v", err, r.Checks)
			}
		}
	}
	for _, c := range []*company{buyer, vendor} {
		if len(eventsOf(t, c.Node, ledger.DIDSucceeded)) == 0 {
			t.Error("the log does not tell of the moves")
		}
		for _, e := range eventsOf(t, c.Node, ledger.MessageRefused) {
			var r ledger.MessageRefusal
			if err := e.Decode(&r); err != nil || r.Type != "notice" { // one that was under way at a second move
				t.Errorf("refused: %+v", r)
			}
		}
	}
	// Somebody else of the same subject is nobody.
	stranger := must[did.DID](t)(did.Parse(must[did.DID](t)(did.Parse(first)).StableSubject() + ":e1_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"))
	if _, err := buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: stranger.String()}); err == nil {
		t.Error("a DID of the same subject was taken for a successor")
	}
}

// TestFollow_DeniedThatMoves: who is denied stays denied under its next DID, also where that one would be admitted by itself and
// nobody has looked at the succession before.
func TestFollow_DeniedThatMoves(t *testing.T) {
	buyerDir, vendorDir := initPair(t, nil) // each allows the other's whole domain
	vendor, buyer := start(t, vendorDir), start(t, buyerDir)
	old := must[did.DID](t)(did.Parse(buyer.Status().DID))
	if err := vendor.Entitled(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if _, err := vendor.ChangeTrust(t.Context(), httpapi.TrustRequest{Action: httpapi.TrustDeny, Pattern: old.String()}); err != nil {
		t.Fatal(err)
	}
	rotate(t, buyer.Node, httpapi.RotateBinding)
	next := must[did.DID](t)(did.Parse(buyer.Status().DID))
	for _, id := range []did.DID{old, next} {
		if err := vendor.Entitled(t.Context(), id); err == nil {
			t.Errorf("%s is dealt with", id)
		}
	}
}

// TestFollow_MovesUnderNegotiation: both companies replace their binding keys while they negotiate. The conversation comes to its contract;
// each has verified and recorded the other's move, and the next contract is made under the new DIDs.
func TestFollow_MovesUnderNegotiation(t *testing.T) {
	buyerDir, vendorDir := initPair(t, nil)
	c := &shifted{}
	vendor, buyer := startAt(t, vendorDir, c), startAt(t, buyerDir, c)
	before := conclude(t, buyer, vendor) // caches are warm
	n := must[httpapi.Negotiation](t)(buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: "vendorcorp.test"}))
	v := rotate(t, vendor.Node, httpapi.RotateBinding)
	first := rotate(t, buyer.Node, httpapi.RotateBinding)
	if n = buyer.wait(t, n.ContextID); n.Phase != "in_force" {
		buyer.dump(t)
		vendor.dump(t)
		t.Fatalf("phase %s: %s %s", n.Phase, n.Code, n.Reason)
	}
	// The notices get there, and each side has the other's step, with what its owner says of the old key.
	step := func(of *company, r httpapi.Rotation) (s store.Succession) {
		t.Helper()
		for range 400 {
			err := of.Store().View(t.Context(), func(tx store.Tx) (err error) { s, err = tx.GetSuccession(r.PreviousDID); return err })
			if err == nil && s.New == r.DID && s.CompromisedSince.IsZero() == (r.Suspects == nil) {
				return s
			}
			time.Sleep(50 * time.Millisecond)
		}
		buyer.dump(t)
		vendor.dump(t)
		t.Fatalf("no step %+v, but %+v", r, s)
		return s
	}
	step(buyer, v)
	step(vendor, first)
	last := conclude(t, buyer, vendor) // under the DIDs of now
	b := must[httpapi.Rotation](t)(buyer.Rotate(t.Context(), httpapi.RotateRequest{Kind: httpapi.RotateBinding, Compromised: true, Since: c.Now().Add(-time.Minute).Truncate(time.Second)}))
	if s := step(vendor, b); s.Own || s.CompromisedSince.Format(time.RFC3339) != b.Suspects.Since {
		t.Errorf("%+v", s)
	}
	if s := step(buyer, b); !s.Own {
		t.Errorf("%+v", s)
	}
	// What the DID of the lost key signed holds and is to be judged; what the buyer signed under the one before it is what it was.
	for id, want := range map[string]bool{before: false, last: true} {
		for _, of := range []*company{buyer, vendor} {
			report, suspect := must[evidence.Report](t)(evidence.VerifyBundle(must[[]byte](t)(of.Evidence(t.Context(), id)))), false
			for _, check := range report.Checks {
				suspect = suspect || check.Status == evidence.Suspect
				if check.Status == evidence.Failed {
					t.Errorf("%+v", check)
				}
			}
			if suspect != want || report.OK() == want {
				t.Errorf("the bundle of %s from %s: %+v", id, of.dir, report.Checks)
			}
		}
	}
	for _, id := range []string{before, n.ContractID} {
		if k := must[httpapi.Contract](t)(vendor.Contract(t.Context(), id)); k.State != "in_force" {
			t.Errorf("%+v", k)
		}
	}
	conclude(t, buyer, vendor)
	// Who still has the old DID finds the one of today.
	if n := must[httpapi.Negotiation](t)(buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: v.PreviousDID})); buyer.wait(t, n.ContextID).Phase != "in_force" {
		t.Error("the old DID leads nowhere")
	}
}
