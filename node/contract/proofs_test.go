// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"errors"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
)

func sign(tb testing.TB, c *contract.Contract, s did.Signer, at time.Time) did.Proof {
	tb.Helper()
	b, err := c.Canonical()
	if err != nil {
		tb.Fatal(err)
	}
	p, err := did.SignObject(tb.Context(), b, s, at)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func TestInvariant6_ExactlyTwoProofsByBindingKeys(t *testing.T) {
	w := newWorld(t)
	good := w.proven(t)
	if err := good.VerifyProofs(w.buyer.doc, w.vendor.doc); err != nil {
		t.Fatalf("a proven contract: %v", err)
	}
	buyer, vendor := good.Proofs[0], good.Proofs[1]
	at := now.Add(time.Minute)
	for name, proofs := range map[string][]did.Proof{
		"none":                  {},
		"buyer only":            {buyer},
		"vendor only":           {vendor},
		"wrong order":           {vendor, buyer},
		"buyer twice":           {buyer, buyer},
		"three":                 {buyer, vendor, vendor},
		"buyer's second key":    {sign(t, good, w.buyer.second, at), vendor},
		"buyer's recovery key":  {sign(t, good, w.buyer.recovery, at), vendor},
		"vendor's second key":   {buyer, sign(t, good, w.vendor.second, at)},
		"vendor's recovery key": {buyer, sign(t, good, w.vendor.recovery, at)},
		"a third party":         {buyer, sign(t, good, w.plane.signer, at)},
		"created too late":      {buyer, sign(t, good, w.vendor.signer, now.Add(time.Hour))},
		"purpose":               {buyer, func() did.Proof { p := vendor; p.ProofPurpose = "authentication"; return p }()},
		"redated":               {buyer, func() did.Proof { p := vendor; p.Created = buyer.Created; return p }()},
		"other suite":           {buyer, func() did.Proof { p := vendor; p.Cryptosuite = "eddsa-rdfc-2022"; return p }()},
		"other value":           {buyer, func() did.Proof { p := vendor; p.ProofValue = buyer.ProofValue; return p }()},
		"empty value":           {buyer, func() did.Proof { p := vendor; p.ProofValue = "z"; return p }()},
	} {
		t.Run(name, func(t *testing.T) {
			c := w.build(t)
			c.Proofs = proofs
			if err := c.VerifyProofs(w.buyer.doc, w.vendor.doc); !errors.Is(err, contract.ErrProof) {
				t.Errorf("got %v, want ErrProof", err)
			}
		})
	}
	for name, docs := range map[string][2]*did.Document{
		"no documents": {nil, nil}, "no vendor": {w.buyer.doc, nil}, "swapped": {w.vendor.doc, w.buyer.doc}, "buyer twice": {w.buyer.doc, w.buyer.doc},
	} {
		if err := good.VerifyProofs(docs[0], docs[1]); !errors.Is(err, contract.ErrProof) {
			t.Errorf("%s: got %v, want ErrProof", name, err)
		}
	}
}

func TestInvariant6_AlteredContractFailsItsProofs(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(c *contract.Contract){
		"columns":    func(c *contract.Contract) { c.Columns = append(c.Columns, "customer_email") },
		"operations": func(c *contract.Contract) { c.Operations = append(c.Operations, "max") },
		"row filter": func(c *contract.Contract) { c.RowFilter = c.RowFilter[:1] },
		"purpose":    func(c *contract.Contract) { c.Purpose = "resale" },
		"retention":  func(c *contract.Contract) { c.RetentionDays = 3650 },
		"group size": func(c *contract.Contract) { c.MinGroupSize = 1 },
		"budget":     func(c *contract.Contract) { c.CallBudget = 1_000_000 },
		"until":      func(c *contract.Contract) { c.ValidUntil = "2036-11-30T12:00:00Z" },
		"acceptBy":   func(c *contract.Contract) { c.AcceptBy = "2026-11-30T13:15:00Z" },
		"data plane": func(c *contract.Contract) { c.Parties.DataPlane.URL = "https://evil.test/mcp" },
		"schema":     func(c *contract.Contract) { c.SchemaDigest = canon.Sum(nil) },
		"agreement":  func(c *contract.Contract) { c.Agreement = canon.Sum(nil) },
		"transcript": func(c *contract.Contract) { c.Transcript = canon.Sum(nil); c.ID = contract.ID(c.Transcript) },
	} {
		t.Run(name, func(t *testing.T) {
			c := w.proven(t)
			change(c)
			if err := c.Validate(); err != nil {
				t.Fatalf("the altered contract should be well-formed: %v", err)
			}
			if err := c.VerifyProofs(w.buyer.doc, w.vendor.doc); !errors.Is(err, contract.ErrProof) {
				t.Errorf("got %v, want ErrProof", err)
			}
		})
	}
}

func TestInvariant6_BuyerProvesFirst(t *testing.T) {
	w := newWorld(t)
	c := w.build(t)
	if _, err := c.Prove(t.Context(), w.vendor.signer, now); !errors.Is(err, contract.ErrProof) {
		t.Errorf("vendor first: %v", err)
	}
	buyer := sign(t, c, w.buyer.signer, now)
	if err := c.VerifyProof(buyer, w.buyer.doc); err != nil {
		t.Errorf("a received proof, before it is added: %v", err)
	}
	if err := c.VerifyProof(buyer, w.plane.doc); !errors.Is(err, contract.ErrProof) {
		t.Errorf("by somebody who is not a party: %v", err)
	}
	if err := c.VerifyProof(buyer, nil); !errors.Is(err, contract.ErrProof) {
		t.Errorf("without a document: %v", err)
	}
	if err := c.AddProof(buyer); err != nil {
		t.Fatal(err)
	}
	if c.Complete() {
		t.Error("one proof is not two")
	}
	if err := c.AddProof(buyer); !errors.Is(err, contract.ErrProof) {
		t.Errorf("the buyer in the vendor's place: %v", err)
	}
	if err := c.AddProof(sign(t, c, w.vendor.signer, now)); err != nil {
		t.Fatal(err)
	}
	if err := c.AddProof(buyer); !errors.Is(err, contract.ErrProof) {
		t.Errorf("a third proof: %v", err)
	}
}

func TestProofsOfDIDsWithoutFingerprint(t *testing.T) {
	w := newWorld(t)
	for name, tc := range map[string]struct {
		did string
		ok  bool
	}{
		"bare domain": {"did:wba:buyercorp.test", true},
		"did:web":     {"did:web:buyercorp.test", true},
		"plain path":  {"did:wba:buyercorp.test:agents:buyer", false},
	} {
		t.Run(name, func(t *testing.T) {
			id, err := did.Parse(tc.did)
			if err != nil {
				t.Fatal(err)
			}
			signing, recovery := key(t, 50), key(t, 51)
			raw, err := did.BuildDocument(did.DocumentSpec{
				ID: id, Binding: did.MethodSpec{Key: signing.Public()}, Recovery: []did.MethodSpec{{Key: recovery.Public()}},
			})
			if err != nil {
				t.Fatal(err)
			}
			doc, err := did.ParseDocument(raw)
			if err != nil {
				t.Fatal(err)
			}
			w := w
			w.parties.Buyer = tc.did
			c := w.build(t)
			for _, m := range doc.Methods() {
				k, ok := signing, tc.ok
				if m.Key.Equal(recovery.Public()) {
					k, ok = recovery, false // signs successions and nothing else
				}
				s, err := did.NewSigner(m.ID, k)
				if err != nil {
					t.Fatal(err)
				}
				if err := c.VerifyProof(sign(t, c, s, now), doc); (err == nil) != ok {
					t.Errorf("by %s: %v", m.ID, err)
				}
			}
		})
	}
}

func TestInvariant6_Activation(t *testing.T) {
	w := newWorld(t)
	c := w.proven(t)
	a := w.activation(t, c)
	if err := a.Verify(c, w.vendor.doc); err != nil {
		t.Fatal(err)
	}
	acceptBy, err := contract.ParseTime(c.AcceptBy)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := contract.Activate(t.Context(), c, acceptBy, canon.Digest{}, w.vendor.signer); err != nil {
		t.Errorf("in the last second: %v", err)
	}
	if _, err := contract.Activate(t.Context(), c, acceptBy.Add(time.Second), canon.Digest{}, w.vendor.signer); !errors.Is(err, contract.ErrLate) {
		t.Errorf("late: %v", err)
	}
	other := w.build(t)
	other.Purpose = "resale"
	if err := a.Verify(other, w.vendor.doc); !errors.Is(err, contract.ErrMismatch) {
		t.Errorf("of another contract: %v", err)
	}
	if err := a.Verify(nil, w.vendor.doc); !errors.Is(err, contract.ErrMismatch) {
		t.Errorf("of no contract: %v", err)
	}
	for name, tc := range map[string]struct {
		change func(a *contract.Activation)
		doc    *did.Document
	}{
		"no document":      {func(*contract.Activation) {}, nil},
		"buyer's document": {func(*contract.Activation) {}, w.buyer.doc},
		"earlier":          {func(a *contract.Activation) { a.ActivatedAt = "2026-11-30T12:00:00Z" }, w.vendor.doc},
		"other head":       {func(a *contract.Activation) { a.LogHead = canon.Digest{} }, w.vendor.doc},
		"redated proof":    {func(a *contract.Activation) { a.Proof.Created = "2026-11-30T12:01:00Z" }, w.vendor.doc},
		"no proof":         {func(a *contract.Activation) { a.Proof = did.Proof{} }, w.vendor.doc},
	} {
		b := *a
		tc.change(&b)
		if err := b.Verify(c, tc.doc); !errors.Is(err, contract.ErrProof) {
			t.Errorf("%s: got %v, want ErrProof", name, err)
		}
	}
	for name, s := range map[string]did.Signer{"buyer": w.buyer.signer, "second key": w.vendor.second} {
		b, err := contract.Activate(t.Context(), c, now, canon.Digest{}, s)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Verify(c, w.vendor.doc); !errors.Is(err, contract.ErrProof) {
			t.Errorf("by %s: got %v, want ErrProof", name, err)
		}
	}
}

func TestReceipt(t *testing.T) {
	w := newWorld(t)
	c := w.proven(t)
	r := w.receipt(t, c)
	if err := r.VerifyFor(c, w.plane.doc); err != nil {
		t.Fatal(err)
	}
	if r.Refused() {
		t.Error("an answer is no refusal")
	}
	for name, change := range map[string]func(r *contract.Receipt){
		"rows":   func(r *contract.Receipt) { r.Rows++ },
		"used":   func(r *contract.Receipt) { r.UsedRows-- },
		"result": func(r *contract.Receipt) { r.ResultDigest = canon.Sum(nil) },
		"query":  func(r *contract.Receipt) { r.QueryDigest = canon.Sum(nil) },
		"time":   func(r *contract.Receipt) { r.Time = "2026-11-30T12:00:00Z" },
		"refused": func(r *contract.Receipt) {
			r.ResultDigest, r.Code, r.Rows, r.UsedRows = canon.Digest{}, contract.ScopeDenied, 0, 0
		},
	} {
		b := *r
		change(&b)
		if err := b.Verify(w.plane.doc); !errors.Is(err, contract.ErrProof) {
			t.Errorf("%s: got %v, want ErrProof", name, err)
		}
	}
	for name, change := range map[string]func(r *contract.Receipt){
		"answer and code":        func(r *contract.Receipt) { r.Code = contract.ScopeDenied },
		"neither":                func(r *contract.Receipt) { r.ResultDigest = canon.Digest{} },
		"unknown code":           func(r *contract.Receipt) { r.ResultDigest, r.Code, r.Rows, r.UsedRows = canon.Digest{}, "OK", 0, 0 },
		"refusal with rows":      func(r *contract.Receipt) { r.ResultDigest, r.Code = canon.Digest{}, contract.ScopeDenied },
		"answer of no contract":  func(r *contract.Receipt) { r.ContractDigest = canon.Digest{} },
		"more used than present": func(r *contract.Receipt) { r.TotalRows = 1 },
		"negative":               func(r *contract.Receipt) { r.Rows = -1 },
		"own id":                 func(r *contract.Receipt) { r.ID = "rcp_1" },
		"hostile contract id":    func(r *contract.Receipt) { r.ContractID = "a\x1b[2J" },
	} {
		b := *r
		change(&b)
		if err := b.Sign(t.Context(), w.plane.signer); !errors.Is(err, contract.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
	// A stranger's refusal names no contract of ours.
	s := *r
	s.ContractID, s.ContractDigest, s.ResultDigest, s.Code, s.Rows, s.UsedRows = "whatever", canon.Digest{}, canon.Digest{}, contract.NoContract, 0, 0
	if err := s.Sign(t.Context(), w.plane.signer); err != nil {
		t.Fatal(err)
	}
	b, err := s.Marshal()
	parsed, err2 := contract.ParseReceipt(must(t, b, err))
	if err2 != nil || !parsed.Refused() || parsed.Verify(w.plane.doc) != nil {
		t.Errorf("a refusal's receipt: %v %+v", err2, parsed)
	}
	if err := parsed.VerifyFor(c, w.plane.doc); !errors.Is(err, contract.ErrMismatch) {
		t.Errorf("it is not about the contract: %v", err)
	}
	if err := r.Verify(w.vendor.doc); !errors.Is(err, contract.ErrProof) {
		t.Errorf("the vendor's document for the data plane's: %v", err)
	}
	forged := *r
	if err := forged.Sign(t.Context(), w.plane.recovery); err != nil {
		t.Fatal(err)
	}
	if err := forged.Verify(w.plane.doc); !errors.Is(err, contract.ErrProof) {
		t.Errorf("by a recovery key: %v", err)
	}
}

func TestRevocation(t *testing.T) {
	w := newWorld(t)
	c := w.proven(t)
	r := w.revocation(t, c)
	if err := r.Verify(c, w.buyer.doc); err != nil {
		t.Fatal(err)
	}
	if err := r.Verify(c, w.vendor.doc); !errors.Is(err, contract.ErrProof) {
		t.Errorf("checked against the other party: %v", err)
	}
	other := *r
	other.Reason = "no reason"
	if err := other.Verify(c, w.buyer.doc); !errors.Is(err, contract.ErrProof) {
		t.Errorf("altered: %v", err)
	}
	if _, err := contract.Revoke(t.Context(), c, w.plane.id, "x", now, w.plane.signer); !errors.Is(err, contract.ErrInvalid) {
		t.Errorf("by a third party: %v", err)
	}
	forged, err := contract.Revoke(t.Context(), c, w.buyer.id, "x", now, w.vendor.signer)
	if err != nil {
		t.Fatal(err)
	}
	if err := forged.Verify(c, w.buyer.doc); !errors.Is(err, contract.ErrProof) {
		t.Errorf("in the other party's name: %v", err)
	}
	c.Purpose = "resale"
	if err := r.Verify(c, w.buyer.doc); !errors.Is(err, contract.ErrMismatch) {
		t.Errorf("of another contract: %v", err)
	}
}
