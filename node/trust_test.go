// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/ledger"
)

func (c *company) change(t *testing.T, action, pattern string) httpapi.Trust {
	t.Helper()
	v, err := c.ChangeTrust(t.Context(), httpapi.TrustRequest{Action: action, Pattern: pattern})
	if err != nil {
		t.Fatalf("%s %s: %v", action, pattern, err)
	}
	return v
}

func kind(err error) httpapi.Kind {
	if err == nil {
		return ""
	}
	return httpapi.AsError(err).Kind
}

// TestTrust_ChangesCountAtOnceAndSurvive denies and allows a counterparty while both nodes run, over the wire in both
// directions, then restarts.
func TestTrust_ChangesCountAtOnceAndSurvive(t *testing.T) {
	buyerDir, vendorDir := initPair(t, nil)
	vendor, buyer := start(t, vendorDir), start(t, buyerDir)
	vendorDID := vendor.Status().DID
	if _, err := buyer.Resolve(t.Context(), "vendorcorp.test"); err != nil {
		t.Fatal(err)
	}

	// Cached or not: denied is denied, at once.
	buyer.change(t, httpapi.TrustDeny, "vendorcorp.test")
	for _, target := range []string{"vendorcorp.test", vendorDID} {
		if _, err := buyer.Resolve(t.Context(), target); kind(err) != httpapi.KindRefused {
			t.Errorf("resolving %s: %v", target, err)
		}
	}
	// An allowed DID under a denied domain stays denied, and the answer says so.
	if v := buyer.change(t, httpapi.TrustAllow, vendorDID); !strings.Contains(v.Note, "denied") {
		t.Errorf("note %q", v.Note)
	}
	buyer.change(t, httpapi.TrustForget, "vendorcorp.test")
	if _, err := buyer.Resolve(t.Context(), vendorDID); err != nil {
		t.Errorf("after the denial was dropped: %v", err)
	}

	// The vendor's denial is told on the wire: the buyer's signed request is refused.
	vendor.change(t, httpapi.TrustDeny, buyer.Status().DID)
	n, err := buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: vendorDID})
	if err != nil {
		t.Fatal(err)
	}
	if n = buyer.wait(t, n.ContextID); n.Phase != "failed" || n.ContractID != "" {
		t.Fatalf("a denied buyer's negotiation is %s: %s %s", n.Phase, n.Code, n.Reason)
	}
	list, err := vendor.Negotiations(t.Context())
	if err != nil || len(list) != 0 {
		t.Fatalf("the vendor keeps %d conversations with a denied buyer (%v)", len(list), err)
	}

	vendor.stop(t)
	vendor = start(t, vendorDir)
	v, err := vendor.Trust(t.Context())
	if err != nil || len(v.Rules) != 2 || v.Rules[1].Source != httpapi.TrustFromOperator || v.Rules[1].Effect != httpapi.TrustDeny || v.Rules[0].Source != httpapi.TrustFromConfig || !v.Rules[0].InForce {
		t.Fatalf("after a restart: %+v (%v)", v, err)
	}
	if _, err := vendor.Resolve(t.Context(), buyer.Status().DID); kind(err) != httpapi.KindRefused {
		t.Errorf("after a restart the denial is gone: %v", err)
	}
	vendor.change(t, httpapi.TrustAllow, buyer.Status().DID)
	n, err = buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: vendorDID})
	if err != nil {
		t.Fatal(err)
	}
	if n = buyer.wait(t, n.ContextID); n.Phase != "in_force" {
		t.Fatalf("phase %s: %s %s", n.Phase, n.Code, n.Reason)
	}
	events, err := vendor.Events(t.Context(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range events {
		if e.Type == ledger.TrustChanged {
			lines = append(lines, ledger.Describe(e))
		}
	}
	want := []string{"trust policy: operator denies " + buyer.Status().DID, "trust policy: operator allows " + buyer.Status().DID}
	if !slices.Equal(lines, want) {
		t.Errorf("logged %q", lines)
	}
}

func TestTrust_ConfigurationIsOverruledNotRewritten(t *testing.T) {
	buyerDir, _ := initPair(t, nil)
	n, err := node.Open(t.Context(), buyerDir, node.Options{Process: "treaty"})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for _, c := range []struct {
		action, pattern string
		want            httpapi.Kind
	}{
		{"deny", "not a domain", httpapi.KindUsage},
		{"deny", "", httpapi.KindUsage},
		{"trust", "vendorcorp.test", httpapi.KindUsage},
		{"forget", "vendorcorp.test", httpapi.KindNotFound}, // the configuration's rule
		{"deny", "vendorcorp.test", ""},
		{"deny", "vendorcorp.test", ""}, // twice is once
	} {
		if _, err := n.ChangeTrust(t.Context(), httpapi.TrustRequest{Action: c.action, Pattern: c.pattern}); kind(err) != c.want {
			t.Errorf("%s %q: %v", c.action, c.pattern, err)
		}
	}
	v, err := n.Trust(t.Context())
	if err != nil || len(v.Rules) != 2 || v.Rules[0].InForce || !v.Rules[1].InForce || v.FirstContact != "closed" || !slices.Equal(v.ContractProfiles, []string{"e1", "k1"}) {
		t.Errorf("%+v (%v)", v, err)
	}
}

func TestConfirm_NeedsAHeldVersion(t *testing.T) {
	buyerDir, _ := initPair(t, nil)
	n, err := node.Open(t.Context(), buyerDir, node.Options{Process: "treaty"})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	const hash = "sha-256:47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
	for _, c := range []struct {
		did, hash string
		want      httpapi.Kind
	}{
		{"vendorcorp.test", hash, httpapi.KindUsage},
		{"did:wba:vendorcorp.test", "47DEQpj8", httpapi.KindUsage},
		{"did:wba:vendorcorp.test", hash, httpapi.KindNotFound},
	} {
		if _, err := n.Confirm(t.Context(), httpapi.ConfirmRequest{DID: c.did, Hash: c.hash}); kind(err) != c.want {
			t.Errorf("%s %s: %v", c.did, c.hash, err)
		}
	}
	h, err := n.History(t.Context(), "did:wba:vendorcorp.test")
	if err != nil || len(h.Versions) != 0 {
		t.Errorf("%+v (%v)", h, err)
	}
	var e *httpapi.Error
	if _, err := n.History(t.Context(), "vendorcorp.test"); !errors.As(err, &e) || e.Kind != httpapi.KindUsage {
		t.Errorf("a history of a domain: %v", err)
	}
}
