// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/notice"
	"github.com/treaty-node/treaty/node/store"
)

// TestAmendment_TwoNodes: a contract is renewed, and the new one amended; each time the old one ends at both sides, with the vendor's
// signed revocation, and each names the other. What nobody can replace stays as it is.
func TestAmendment_TwoNodes(t *testing.T) {
	buyerDir, vendorDir := initPair(t, nil)
	vendor, buyer := start(t, vendorDir), start(t, buyerDir)
	first := agree(t, buyer)
	calls := int64(7)
	replace := func(old string, start func() (httpapi.Negotiation, error)) string {
		t.Helper()
		n, err := start()
		if err != nil {
			t.Fatal(err)
		}
		if n = buyer.wait(t, n.ContextID); n.Phase != "in_force" {
			t.Fatalf("phase %s: %s %s", n.Phase, n.Code, n.Reason)
		}
		for _, side := range []*company{buyer, vendor} {
			k := side.until(t, old, has("TreatyRevocation", "TreatyAcknowledgement"))
			if k.State != store.Revoked || k.ReplacedBy != n.ContractID || k.End == nil || k.End.Replaced != n.ContractID || k.End.By != vendor.Status().DID {
				t.Errorf("the old one: %+v, end %+v", k, k.End)
			}
			now, err := side.Contract(t.Context(), n.ContractID)
			if err != nil || now.State != store.InForce || now.Amends.ID != old || now.Amends.Digest != k.Digest || now.ReplacedBy != "" {
				t.Errorf("the new one: %+v %v", now, err)
			}
			side.verified(t, old, "revoked")
			side.verified(t, n.ContractID, "instead of "+old+" of digest "+k.Digest.String())
		}
		return n.ContractID
	}
	second := replace(first, func() (httpapi.Negotiation, error) { return buyer.Renew(t.Context(), first) })
	third := replace(second, func() (httpapi.Negotiation, error) {
		return buyer.Amend(t.Context(), second, httpapi.AmendRequest{Calls: &calls, Columns: []string{"region", "order_value"}, Operations: []string{"avg"}})
	})
	scopes := map[string]contract.Scope{}
	for _, id := range []string{first, second, third} {
		c := buyer.signed(t, id)
		c.Amends = contract.Reference{}
		scopes[id] = c.Scope
	}
	if a, b := scopes[first], scopes[second]; !a.Within(&b) || !b.Within(&a) {
		t.Errorf("renewed: %+v\nwas:     %+v", b, a)
	}
	if s := scopes[third]; s.CallBudget != 7 || strings.Join(s.Columns, " ") != "region order_value" || strings.Join(s.Operations, " ") != "avg" {
		t.Errorf("amended: %+v", s)
	}
	for name, tt := range map[string]struct {
		call func() (httpapi.Negotiation, error)
		code string
		kind httpapi.Kind
	}{
		"replaced already": {func() (httpapi.Negotiation, error) { return buyer.Renew(t.Context(), first) }, "NOT_IN_FORCE", httpapi.KindRefused},
		"by the vendor":    {func() (httpapi.Negotiation, error) { return vendor.Renew(t.Context(), third) }, "WRONG_PARTY", httpapi.KindRefused},
		"nothing new":      {func() (httpapi.Negotiation, error) { return buyer.Amend(t.Context(), third, httpapi.AmendRequest{}) }, "", httpapi.KindUsage},
		"file and terms": {func() (httpapi.Negotiation, error) {
			return buyer.Amend(t.Context(), third, httpapi.AmendRequest{Needs: needsYAML, Purpose: "x"})
		}, "", httpapi.KindUsage},
	} {
		var e *httpapi.Error
		if _, err := tt.call(); !errors.As(err, &e) || e.Code != tt.code || e.Kind != tt.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Run("replaceable", func(t *testing.T) { replaceable(t, buyer, vendor, third, second) })
	t.Run("revocation before the contract", func(t *testing.T) { earlyRevocation(t, buyer, vendor, third) })

	buyer.stop(t)
	vendor.stop(t)
	later := clock.NewFake(time.Now().AddDate(0, 0, 91))
	vendor, buyer = startAt(t, vendorDir, later), startAt(t, buyerDir, later)
	t.Run("expired", func(t *testing.T) { expired(t, buyer, vendor, third) })
}

// expired: what is over is replaced by neither side, though no document says that it is over.
func expired(t *testing.T, buyer, vendor *company, id string) {
	k, err := vendor.Contract(t.Context(), id)
	if err != nil || k.State != store.InForce || !k.Expired {
		t.Fatalf("%+v %v", k, err)
	}
	var e *httpapi.Error
	if _, err := buyer.Renew(t.Context(), id); !errors.As(err, &e) || e.Code != "NOT_IN_FORCE" {
		t.Errorf("the buyer: %v", err)
	}
	self, err := did.Parse(buyer.Status().DID)
	if err != nil {
		t.Fatal(err)
	}
	err = vendor.Store().View(t.Context(), func(tx store.Tx) error {
		why, err := vendor.Replaceable(tx, contract.Reference{ID: id, Digest: k.Digest}, self)
		if why == "" {
			t.Error("the vendor lets it be replaced")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// replaceable: a vendor lets only a contract in force with the very same company be replaced, and says no in the same words whatever
// is the matter with another one.
func replaceable(t *testing.T, buyer, vendor *company, id, over string) {
	of := func(id string) contract.Reference {
		k, err := vendor.Contract(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return contract.Reference{ID: id, Digest: k.Digest}
	}
	self, err := did.Parse(buyer.Status().DID)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := did.Parse(vendor.Status().DID)
	if err != nil {
		t.Fatal(err)
	}
	forged, unknown := of(id), of(id)
	forged.Digest, unknown.ID = canon.Sum([]byte("other terms")), contract.ID(canon.Sum([]byte("nothing")))
	for name, tt := range map[string]struct {
		at    *company
		old   contract.Reference
		buyer did.DID
		ok    bool
	}{
		"its own":                  {vendor, of(id), self, true},
		"another digest":           {vendor, forged, self, false},
		"unknown":                  {vendor, unknown, self, false},
		"replaced before":          {vendor, of(over), self, false},
		"somebody else's":          {vendor, of(id), stranger, false},
		"in which this node buys":  {buyer, of(id), self, false},
		"in which this node buys,": {buyer, of(id), stranger, false},
	} {
		err := tt.at.Store().View(t.Context(), func(tx store.Tx) error {
			why, err := tt.at.Replaceable(tx, tt.old, tt.buyer)
			if want := "no contract " + contract.Echo(tt.old.ID) + " with this digest is in force between us"; (why == "") != tt.ok || !tt.ok && why != want {
				t.Errorf("%s: %q", name, why)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// earlyRevocation: while a buyer waits for the vendor's word about a contract, a revocation of one that it does not know is taken later.
func earlyRevocation(t *testing.T, buyer, vendor *company, id string) {
	c := vendor.signed(t, id)
	c.ID = contract.ID(canon.Sum([]byte("on its way")))
	r, err := contract.RevokeAs(t.Context(), c, vendor.Status().DID, "over", time.Now(), vendor.Talking().Binding)
	if err != nil {
		t.Fatal(err)
	}
	conv := store.Conversation{
		Own: buyer.Status().DID, Peer: vendor.Status().DID, ContextID: "waiting", Role: "buyer", Phase: store.AwaitingActivation,
		State: []byte("{}"), Created: time.Now(), Updated: time.Now(),
	}
	put := func(version int64) {
		t.Helper()
		if err := buyer.Store().Update(t.Context(), func(tx store.Tx) error { return tx.PutConversation(conv, version) }); err != nil {
			t.Fatal(err)
		}
	}
	put(0)
	to, err := did.Parse(buyer.Status().DID)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan notice.Answer, 1)
	go func() {
		a, _ := vendor.AskNotice(t.Context(), to, "revocation", r)
		answered <- a
	}()
	refused := func() (found bool) {
		err := buyer.Store().View(t.Context(), func(tx store.Tx) error {
			list, err := tx.FindEvents(store.EventFilter{Type: ledger.MessageRefused, Peer: vendor.Status().DID})
			for _, e := range list {
				var d ledger.MessageRefusal
				if e.Decode(&d) == nil && d.Code == "UNAVAILABLE" {
					found = true
				}
			}
			return err
		})
		return found || err != nil
	}
	for i := 0; !refused(); i++ {
		if i > 400 {
			t.Fatal("the notice was not put off")
		}
		time.Sleep(25 * time.Millisecond)
	}
	select {
	case a := <-answered:
		t.Fatalf("answered for good: %+v", a)
	default:
	}
	conv.Phase = "rejected"
	put(1)
	if a := <-answered; a.OK || a.Code != "UNKNOWN_CONTRACT" {
		t.Errorf("%+v", a)
	}
}
