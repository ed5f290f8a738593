// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/gateway/mcp"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/ledger/evidence"
	"github.com/treaty-node/treaty/node/store"
)

// agree negotiates a contract between two running nodes and returns its id.
func agree(t *testing.T, buyer *company) string {
	t.Helper()
	n, err := buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: "vendorcorp.test"})
	if err != nil {
		t.Fatal(err)
	}
	if n = buyer.wait(t, n.ContextID); n.Phase != "in_force" {
		t.Fatalf("phase %s: %s %s", n.Phase, n.Code, n.Reason)
	}
	return n.ContractID
}

// signed is a contract as the company holds it.
func (c *company) signed(t *testing.T, id string) *contract.Contract {
	t.Helper()
	return must[*contract.Contract](t)(contract.Parse(must[httpapi.Contract](t)(c.Contract(t.Context(), id)).Contract))
}

// until waits until ok says so of the contract.
func (c *company) until(t *testing.T, id string, ok func(httpapi.Contract) bool) httpapi.Contract {
	t.Helper()
	var k httpapi.Contract
	for range 400 {
		var err error
		if k, err = c.Contract(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if ok(k) {
			return k
		}
		time.Sleep(25 * time.Millisecond)
	}
	c.dump(t)
	t.Fatalf("contract %s stays %s with %d statements", id, k.State, len(k.Statements))
	return k
}

func has(types ...string) func(httpapi.Contract) bool {
	return func(k httpapi.Contract) bool {
		var have []string
		for _, s := range k.Statements {
			have = append(have, s.Type)
		}
		return strings.Join(have, " ") == strings.Join(types, " ")
	}
}

// verified checks the evidence bundle of a contract, as a third party would.
func (c *company) verified(t *testing.T, id string, checks ...string) {
	t.Helper()
	bundle, err := c.Evidence(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	r, err := evidence.VerifyBundle(bundle)
	if err != nil || !r.OK() {
		t.Fatalf("%v %+v", err, r.Checks)
	}
	for _, name := range checks {
		found := false
		for _, k := range r.Checks {
			found = found || k.Status == evidence.OK && strings.Contains(k.Name+": "+k.Detail, name)
		}
		if !found {
			t.Errorf("no check %q in %+v", name, r.Checks)
		}
	}
}

// TestRevocation_EitherParty: both stores end with the revocation and its acknowledgement, whoever revoked, and the evidence of
// both sides shows it.
func TestRevocation_EitherParty(t *testing.T) {
	buyerDir, vendorDir := initPair(t, nil)
	vendor, buyer := start(t, vendorDir), start(t, buyerDir)
	for name, who := range map[string]struct{ by, other *company }{"buyer": {buyer, vendor}, "vendor": {vendor, buyer}} {
		t.Run(name, func(t *testing.T) {
			id := agree(t, buyer)
			k, err := who.by.Revoke(t.Context(), id, httpapi.RevokeRequest{Reason: "the report is finished"})
			if err != nil || k.State != store.Revoked || k.End == nil || k.End.Reason != "the report is finished" {
				t.Fatalf("%+v %v", k, err)
			}
			other := who.other.until(t, id, has("TreatyRevocation", "TreatyAcknowledgement"))
			k = who.by.until(t, id, has("TreatyRevocation", "TreatyAcknowledgement"))
			if other.State != store.Revoked || other.End.By != k.End.By {
				t.Errorf("the other side: %+v", other)
			}
			for i, s := range k.Statements {
				if o := other.Statements[i]; o.Digest != s.Digest || string(o.Document) != string(s.Document) {
					t.Errorf("statement %d differs", i)
				}
			}
			a, err := contract.ParseAcknowledgement(k.Statements[1].Document)
			if err != nil || a.Outcome != contract.OutcomeRevoked || a.By == k.End.By {
				t.Errorf("%+v %v", a, err)
			}
			var e *httpapi.Error
			if _, err := who.by.Revoke(t.Context(), id, httpapi.RevokeRequest{}); !errors.As(err, &e) || e.Code != "REVOKED" || e.Kind != httpapi.KindRefused {
				t.Errorf("again: %v", err)
			}
			// No contract names that data plane any more, and the reason is the contract's end, not the trust policy.
			if _, err := buyer.Query(t.Context(), httpapi.QueryRequest{ContractID: id, Aggregates: []contract.Aggregate{{Op: contract.OpCount}}}); !errors.As(err, &e) ||
				e.Code != string(contract.ContractRevoked) || e.Kind != httpapi.KindRefused {
				t.Errorf("a query: %v", err)
			}
			who.by.verified(t, id, "revoked")
			who.other.verified(t, id, "revoked")
		})
	}
	t.Run("refused", func(t *testing.T) { refusedStatements(t, buyer, vendor) })
	t.Run("receipts of refusals", func(t *testing.T) { refusalReceipts(t, buyer) })
	if _, err := buyer.Revoke(t.Context(), "ctr_nothing", httpapi.RevokeRequest{}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown contract: %v", err)
	}
}

// TestRevocation_Offline: the other party is away, and both revoke meanwhile. Each has its own as the one that counts, and both.
func TestRevocation_Offline(t *testing.T) {
	buyerDir, vendorDir := initPair(t, nil)
	vendor, buyer := start(t, vendorDir), start(t, buyerDir)
	id := agree(t, buyer)
	vendor.stop(t)
	b, err := buyer.Revoke(t.Context(), id, httpapi.RevokeRequest{Reason: "by the buyer"})
	if err != nil || b.State != store.Revoked {
		t.Fatalf("%+v %v", b, err)
	}
	buyer.stop(t)
	vendor = start(t, vendorDir)
	if _, err := vendor.Revoke(t.Context(), id, httpapi.RevokeRequest{Reason: "by the vendor"}); err != nil {
		t.Fatal(err)
	}
	buyer = start(t, buyerDir)
	four := func(k httpapi.Contract) bool { return len(k.Statements) == 4 }
	b, v := buyer.until(t, id, four), vendor.until(t, id, four)
	if b.End.Reason != "by the buyer" || v.End.Reason != "by the vendor" {
		t.Errorf("buyer %+v, vendor %+v", b.End, v.End)
	}
	for _, k := range []httpapi.Contract{b, v} {
		for _, s := range k.Statements {
			if a, err := contract.ParseAcknowledgement(s.Document); err == nil && a.Outcome != contract.OutcomeEnded {
				t.Errorf("outcome %s", a.Outcome)
			}
		}
	}
	buyer.verified(t, id, "revoked")
	vendor.verified(t, id, "revoked")
}

// give puts an answer with its receipt into both stores, as a query does.
func give(t *testing.T, id string, result string, last byte, buyer, vendor *company, deleteAfter time.Time) {
	t.Helper()
	var random [16]byte
	random[0] = last
	r := store.Receipt{ID: contract.ReceiptID(random), ContractID: id, Result: canon.Sum([]byte(result)), Bytes: []byte("{}"), Created: time.Now()}
	for _, c := range []*company{buyer, vendor} {
		err := c.Store().Update(t.Context(), func(tx store.Tx) error {
			if c == buyer {
				if err := tx.PutAnswer(store.Answer{Digest: r.Result, ContractID: id, Bytes: []byte(result), Created: r.Created, DeleteAfter: deleteAfter}); err != nil {
					return err
				}
			}
			return tx.PutReceipt(r)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestDeletion: what is due goes by itself, what is not stays until it is asked for, and both sides hold the statements.
func TestDeletion(t *testing.T) {
	buyerDir, vendorDir := initPair(t, nil)
	c := clock.NewFake(time.Now())
	vendor, buyer := start(t, vendorDir), startAt(t, buyerDir, c)
	id := agree(t, buyer)
	give(t, id, "soon", 1, buyer, vendor, c.Now().Add(time.Second))
	give(t, id, "later", 2, buyer, vendor, c.Now().Add(90*24*time.Hour))
	give(t, id, "later", 3, buyer, vendor, c.Now().Add(90*24*time.Hour)) // the same rows once more
	c.Advance(2 * time.Second)
	b := buyer.until(t, id, has("TreatyDeletion", "TreatyAcknowledgement")) // housekeeping comes around
	d, err := contract.ParseDeletion(b.Statements[0].Document)
	if err != nil || len(d.Deleted) != 1 || d.Deleted[0].ResultDigest != canon.Sum([]byte("soon")) || d.Reason != contract.DeletedRetention {
		t.Fatalf("%+v %v", d, err)
	}
	if n, err := buyer.DeleteData(t.Context(), id); err != nil || n != 1 {
		t.Fatalf("%d, %v", n, err)
	}
	buyer.until(t, id, func(k httpapi.Contract) bool { return len(k.Statements) == 4 })
	var e *httpapi.Error
	if _, err := buyer.DeleteData(t.Context(), id); !errors.As(err, &e) || e.Code != "NOTHING_HELD" {
		t.Errorf("again: %v", err)
	}
	for _, side := range []*company{buyer, vendor} {
		d, err := side.Deletions(t.Context(), id)
		if err != nil || len(d.Results) != 2 || len(d.Statements) != 4 {
			t.Fatalf("%+v %v", d, err)
		}
		for _, r := range d.Results {
			if r.Statement.IsZero() || r.Held || r.Overdue {
				t.Errorf("%+v", r)
			}
		}
		side.verified(t, id, "deleted")
	}
}

// refusedStatements: a statement about data that the vendor never gave, or about another contract, is answered with a signed
// refusal, and not kept.
func refusedStatements(t *testing.T, buyer, vendor *company) {
	id := agree(t, buyer)
	c := buyer.signed(t, id)
	s, err := contract.Delete(t.Context(), c, c.Parties.Buyer, contract.DeletedEarly,
		[]contract.Deleted{{ResultDigest: canon.Sum(nil), Receipts: []string{contract.ReceiptID([16]byte{9})}}}, time.Now(), buyer.Talking().Binding)
	if err != nil {
		t.Fatal(err)
	}
	ahead, err := contract.Delete(t.Context(), c, c.Parties.Buyer, contract.DeletedEarly, s.Deleted, time.Now().Add(24*time.Hour), buyer.Talking().Binding)
	if err != nil {
		t.Fatal(err)
	}
	if a := buyer.notify(t, vendor.Status().DID, "deletion", ahead); a.OK || a.Code != "MALFORMED" {
		t.Errorf("a deletion of tomorrow: %+v", a)
	}
	for kind, want := range map[string]string{"deletion": "UNKNOWN_RESULT", "revocation": "MALFORMED"} {
		a := buyer.notify(t, vendor.Status().DID, kind, s)
		if a.OK || a.Code != want {
			t.Errorf("%s: %+v", kind, a)
		}
	}
	// A contract between others is an unknown one, also when it is of this id.
	other, err := contract.RevokeAs(t.Context(), c, buyer.Status().DID, "x", time.Now(), buyer.Talking().Binding)
	if err != nil {
		t.Fatal(err)
	}
	other.ContractID = contract.ID(canon.Sum([]byte("of somebody else")))
	if a := buyer.notify(t, vendor.Status().DID, "revocation", other); a.OK || a.Code != "UNKNOWN_CONTRACT" {
		t.Errorf("%+v", a)
	}
	if v, err := vendor.Contract(t.Context(), id); err != nil || v.State != store.InForce || len(v.Statements) != 0 {
		t.Errorf("%+v %v", v, err)
	}
}

// notify sends a notice and waits for the answer's event.
func (c *company) notify(t *testing.T, to, kind string, data any) ledger.NoticeReply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	id, err := did.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.AskNotice(ctx, id, kind, data)
	if err != nil {
		t.Fatal(err)
	}
	return ledger.NoticeReply{Kind: kind, OK: a.OK, Code: a.Code, Text: a.Text}
}

// TestCedar_NarrowsOffers: what the policy file forbids is not offered, whoever decided, and the rule is named.
func TestCedar_NarrowsOffers(t *testing.T) {
	buyerDir, vendorDir := initPair(t, nil)
	rules := `@id("default") permit (principal, action, resource);
@id("no-dates") forbid (principal in Domain::"buyercorp.test", action == Action::"group", resource == Column::"orders.order_date");`
	if err := os.WriteFile(filepath.Join(vendorDir, "policy.cedar"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := os.OpenFile(filepath.Join(vendorDir, node.ConfigFile), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := config.WriteString("\ncedar: policy.cedar\n"); err != nil || config.Close() != nil {
		t.Fatal(err)
	}
	vendor, buyer := start(t, vendorDir), start(t, buyerDir)
	n, err := buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: "vendorcorp.test", Needs: strings.Replace(needsYAML, "[region, order_value, order_date]", "[region, order_value]", 1) + "\n"})
	if err != nil {
		t.Fatal(err)
	}
	if n = buyer.wait(t, n.ContextID); n.Phase != "in_force" {
		vendor.dump(t)
		t.Fatalf("phase %s: %s %s", n.Phase, n.Code, n.Reason)
	}
	needs := strings.Replace(strings.Replace(needsYAML, "order_value, order_date]", "order_value]", 1), "[customer_email]", "[order_date]", 1)
	if n, err = buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: "vendorcorp.test", Needs: needs}); err != nil {
		t.Fatal(err)
	}
	n = buyer.wait(t, n.ContextID)
	found := false
	for _, r := range n.Offer.Removed {
		found = found || r.What == "column" && r.Asked == "order_date" && r.Rule == "cedar:no-dates"
	}
	if !found || n.Phase != "in_force" {
		t.Errorf("phase %s, removed %+v", n.Phase, n.Offer.Removed)
	}
	// Why, afterwards: the contract decides, and the policy says what would be offered.
	x, err := vendor.Explain(t.Context(), httpapi.QueryRequest{
		ContractID: n.ContractID, Aggregates: []contract.Aggregate{{Op: "count"}}, GroupBy: []string{"order_date"}, Filters: []contract.Condition{}, OrderBy: []contract.Order{},
	})
	if err != nil || x.Allowed || len(x.Steps) != 3 || x.Steps[0].Rule != "SCOPE_DENIED" || x.Steps[1].Rule != "cedar:no-dates" || !x.Steps[2].Allowed {
		t.Errorf("%+v %v", x, err)
	}
	x, err = buyer.Explain(t.Context(), httpapi.QueryRequest{
		ContractID: n.ContractID, Aggregates: []contract.Aggregate{{Op: "count"}}, GroupBy: []string{"region"}, Filters: []contract.Condition{}, OrderBy: []contract.Order{},
	})
	if err != nil || !x.Allowed {
		t.Errorf("%+v %v", x, err)
	}
}

// refusalReceipts: of what a data plane says about its refusals, the buyer keeps what it signed about this very query, once.
func refusalReceipts(t *testing.T, buyer *company) {
	id := agree(t, buyer)
	c := buyer.signed(t, id)
	digest, err := c.Digest()
	if err != nil {
		t.Fatal(err)
	}
	plane, err := did.Parse(c.Parties.DataPlane.DID)
	if err != nil {
		t.Fatal(err)
	}
	key := func() (did.PrivateKey, did.Signer) {
		k, err := did.GenerateKey(did.Ed25519)
		if err != nil {
			t.Fatal(err)
		}
		s, err := did.NewSigner(did.KeyID(plane, "receipt", k.Public()), k)
		if err != nil {
			t.Fatal(err)
		}
		return k, s
	}
	private, signer := key()
	_, thief := key()
	raw, err := did.BuildDocument(did.DocumentSpec{ID: plane, Binding: did.MethodSpec{ID: signer.KeyID(), Key: private.Public()}})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := did.ParseDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	req := contract.Request{ContractID: id, Caller: buyer.Status().DID, Purpose: c.Purpose, Dataset: c.Dataset, Aggregates: []contract.Aggregate{{Op: contract.OpCount}}}
	asked, err := req.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		name   string
		change func(r *contract.Receipt)
		signer did.Signer
		kept   int
	}{
		{"another key", nil, thief, 0},
		{"another query", func(r *contract.Receipt) { r.QueryDigest = canon.Sum(nil) }, signer, 0},
		{"another code", func(r *contract.Receipt) { r.Code = contract.BudgetExhausted }, signer, 0},
		{"another caller", func(r *contract.Receipt) { r.Caller = c.Parties.Vendor }, signer, 0},
		{"another contract", func(r *contract.Receipt) { r.ContractDigest = canon.Sum(nil) }, signer, 0},
		{"good", nil, signer, 1},
		{"good once more", func(r *contract.Receipt) { r.ID = contract.ReceiptID([16]byte{5}) }, signer, 1}, // the id of the one before
		{"another good one", nil, signer, 2},
	} {
		r := &contract.Receipt{
			ID: contract.ReceiptID([16]byte{byte(i)}), ContractID: id, ContractDigest: digest, QueryDigest: asked, Code: contract.ScopeDenied,
			Time: contract.FormatTime(time.Now()), Caller: req.Caller, DataPlane: plane.String(),
		}
		if tt.change != nil {
			tt.change(r)
		}
		if err := r.Sign(t.Context(), tt.signer); err != nil {
			t.Fatal(err)
		}
		signed, err := r.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if err := buyer.RefusedBy(t.Context(), c, doc, req, &mcp.Refused{Code: string(contract.ScopeDenied), Text: tt.name, Receipt: signed}); err != nil {
			t.Fatal(err)
		}
		if kept, err := buyer.Receipts(t.Context(), id); err != nil || len(kept) != tt.kept {
			t.Errorf("%s: %d receipts are kept, want %d: %v", tt.name, len(kept), tt.kept, err)
		}
	}
	if err := buyer.RefusedBy(t.Context(), c, doc, req, &mcp.Refused{Code: string(contract.ScopeDenied)}); err != nil { // without one
		t.Error(err)
	}
}
