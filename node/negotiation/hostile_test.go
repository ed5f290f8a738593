// SPDX-License-Identifier: Apache-2.0

package negotiation_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/negotiation/message"
	"github.com/treaty-node/treaty/node/store"
)

// reply is an answer of the honest vendor on its way to the buyer, with what is needed to make another one of it.
type reply struct {
	w    *world
	tb   testing.TB
	rec  store.EnvelopeRecord
	env  *envelope.Envelope
	body *message.Body // one of the two, or none for a round
	step *message.Step
	ses  negotiation.Session // the vendor's
}

func (w *world) readReply(raw []byte) *reply {
	w.tb.Helper()
	env, err := envelope.Parse(raw, 0)
	fatal(w.tb, err)
	r := &reply{w: w, tb: w.tb, env: env}
	w.vendor.view(w.tb, func(tx store.Tx) error {
		r.rec, err = tx.GetEnvelope(w.vendor.id.String(), env.Digest())
		return err
	})
	r.ses = w.vendor.session(w.tb, env.ContextID)
	switch env.Type {
	case envelope.TypeNegotiation:
		r.body, err = message.Parse(r.rec.Plaintext, message.Vendor)
	case envelope.TypeContract:
		r.step, err = message.ParseStep(r.rec.Plaintext, message.Vendor)
	}
	fatal(w.tb, err)
	return r
}

func (r *reply) is(i message.Intent) bool       { return r.body != nil && r.body.Intent == i }
func (r *reply) isStep(s message.StepKind) bool { return r.step != nil && r.step.Step == s }

// made is the reply with another content, signed by the vendor or whom the test says, in place.
func (r *reply) made(t envelope.Type, v any, by did.Signer, change ...func(*envelope.Draft)) []byte {
	r.tb.Helper()
	data, err := canon.Marshal(v)
	fatal(r.tb, err)
	d := envelope.Draft{
		Type: t, To: r.w.buyer.id, ContextID: r.env.ContextID, Seq: r.env.Seq, CreatedAt: r.w.Now(), Prev: r.env.Prev,
		Agreement: r.ses.AgreementDigest(), Body: data,
	}
	for _, c := range change {
		c(&d)
	}
	to := r.w.parties[d.To]
	env, _, err := envelope.Build(context.Background(), d, by, &envelope.SealTo{Suite: hpke.SuiteX25519, RecipientKID: to.kexID, Key: to.kex.Public()})
	fatal(r.tb, err)
	return env.Raw()
}

func (r *reply) say(b message.Body) []byte {
	r.tb.Helper()
	b.From = r.w.vendor.id.String()
	return r.made(envelope.TypeNegotiation, b, r.w.vendor.binding)
}

func (r *reply) offer(change func(*contract.Offer)) []byte {
	r.tb.Helper()
	o := *r.body.Offer
	o.Scope = o.Scope.Clone()
	change(&o)
	return r.say(message.Body{Intent: message.Counter, Offer: &o})
}

func (r *reply) draft(change func(*contract.Contract)) []byte {
	r.tb.Helper()
	c := *r.step.Contract
	c.Scope = c.Scope.Clone()
	change(&c)
	return r.made(envelope.TypeContract, message.Step{From: r.w.vendor.id.String(), Step: message.Draft, Contract: &c, Digest: digestOf(r.tb, &c)}, r.w.vendor.binding)
}

// active is the finished contract with another proof or activation.
func (r *reply) active(change func(c *contract.Contract) (proof, activation did.Signer, at time.Time)) []byte {
	r.tb.Helper()
	c := *r.step.Contract
	c.Scope = c.Scope.Clone()
	buyer := c.Proofs[0]
	c.Proofs = nil
	by, activator, at := change(&c)
	fatal(r.tb, c.AddProof(buyer))
	object, err := c.Canonical()
	fatal(r.tb, err)
	proof, err := did.SignObject(context.Background(), object, by, r.w.Now())
	fatal(r.tb, err)
	c.Proofs = append(c.Proofs, proof)
	a := contract.Activation{
		Type: contract.ActivationType, ContractID: c.ID, ContractDigest: digestOf(r.tb, &c), ActivatedAt: contract.FormatTime(at), LogHead: r.step.Activation.LogHead,
	}
	bare, err := canon.Marshal(&a)
	fatal(r.tb, err)
	a.Proof, err = did.SignObject(context.Background(), bare, activator, at)
	fatal(r.tb, err)
	return r.made(envelope.TypeContract, message.Step{From: r.w.vendor.id.String(), Step: message.Active, Contract: &c, Activation: &a}, r.w.vendor.binding)
}

// TestInvariant4_HostileVendor: what a vendor can sign instead of the honest answer. Either the buyer ends the conversation
// and the vendor is told, or, when the proof is out, it goes on waiting; in no case does it hold a contract.
func TestInvariant4_HostileVendor(t *testing.T) {
	t.Parallel()
	offer := func(r *reply) bool { return r.is(message.Counter) }
	draft := func(r *reply) bool { return r.isStep(message.Draft) }
	active := func(r *reply) bool { return r.isStep(message.Active) }
	for _, tt := range []struct {
		name  string
		when  func(*reply) bool
		make  func(*reply) []byte
		phase negotiation.Phase
		code  string
	}{
		{"offer of a column nobody asked for", offer, func(r *reply) []byte {
			return r.offer(func(o *contract.Offer) { o.Columns = append(o.Columns, "order_date") })
		}, negotiation.PhaseRejected, "OFFER_WIDER"},
		{"offer of another purpose", offer, func(r *reply) []byte {
			return r.offer(func(o *contract.Offer) { o.Purpose = "Resale" })
		}, negotiation.PhaseRejected, "OFFER_WIDER"},
		{"offer about another schema", offer, func(r *reply) []byte {
			return r.offer(func(o *contract.Offer) { o.SchemaDigest = canon.Sum([]byte("x")) })
		}, negotiation.PhaseRejected, "SCHEMA_CHANGED"},
		{"offer that has expired", offer, func(r *reply) []byte {
			return r.offer(func(o *contract.Offer) { o.ExpiresAt = contract.FormatTime(r.w.Now().Add(-time.Second)) })
		}, negotiation.PhaseFailed, "OFFER_EXPIRED"},
		{"offer without what is required", offer, func(r *reply) []byte {
			return r.offer(func(o *contract.Offer) { o.Columns = []string{"region"} })
		}, negotiation.PhaseRejected, "NEEDS_NOT_MET"},
		{"request without end", func(r *reply) bool { return r.body != nil }, func(r *reply) []byte {
			return r.say(message.Body{Intent: message.Request, Rationale: "Tell us more."})
		}, negotiation.PhaseFailed, "REQUEST"},
		{"draft instead of an offer", offer, func(r *reply) []byte {
			c, err := contract.Build(r.body.Offer, contract.Parties{Buyer: r.w.buyer.id.String(), Vendor: r.w.vendor.id.String()}, r.ses.AgreementDigest(), r.env.Prev)
			fatal(r.tb, err)
			return r.made(envelope.TypeContract, message.Step{From: r.w.vendor.id.String(), Step: message.Draft, Contract: c, Digest: digestOf(r.tb, c)}, r.w.vendor.binding)
		}, negotiation.PhaseFailed, "UNEXPECTED_TYPE"},
		{"offer instead of a draft", draft, func(r *reply) []byte {
			return r.say(message.Body{Intent: message.Counter, Offer: r.ses.Offer})
		}, negotiation.PhaseFailed, "UNEXPECTED_TYPE"},
		{"draft of a longer retention", draft, func(r *reply) []byte {
			return r.draft(func(c *contract.Contract) { c.RetentionDays++ })
		}, negotiation.PhaseFailed, "CONTRACT_MISMATCH"},
		{"draft with another acceptBy", draft, func(r *reply) []byte {
			return r.draft(func(c *contract.Contract) { c.AcceptBy = contract.FormatTime(r.w.Now().Add(time.Hour)) })
		}, negotiation.PhaseFailed, "CONTRACT_MISMATCH"},
		{"draft of another transcript", draft, func(r *reply) []byte {
			return r.draft(func(c *contract.Contract) { c.Transcript = canon.Sum([]byte("x")); c.ID = contract.ID(c.Transcript) })
		}, negotiation.PhaseFailed, "CONTRACT_MISMATCH"},
		{"draft under another agreement", draft, func(r *reply) []byte {
			return r.draft(func(c *contract.Contract) { c.Agreement = canon.Sum([]byte("x")) })
		}, negotiation.PhaseFailed, "CONTRACT_MISMATCH"},
		{"draft with another data plane", draft, func(r *reply) []byte {
			return r.draft(func(c *contract.Contract) { c.Parties.DataPlane.URL = "https://elsewhere.test/mcp" })
		}, negotiation.PhaseFailed, "CONTRACT_MISMATCH"},
		{"draft with an outsider for a buyer", draft, func(r *reply) []byte {
			return r.draft(func(c *contract.Contract) { c.Parties.Buyer = r.w.third.id.String() })
		}, negotiation.PhaseFailed, "CONTRACT_MISMATCH"},
		{"a body that speaks for the buyer", offer, func(r *reply) []byte {
			b := *r.body
			b.From = r.w.buyer.id.String()
			return r.made(envelope.TypeNegotiation, b, r.w.vendor.binding)
		}, negotiation.PhaseFailed, "WRONG_SENDER"},
		{"a body of no form", offer, func(r *reply) []byte {
			return r.made(envelope.TypeNegotiation, map[string]string{"intent": "counter"}, r.w.vendor.binding)
		}, negotiation.PhaseFailed, "MALFORMED"},
		{"another agreement", offer, func(r *reply) []byte {
			return r.made(envelope.TypeNegotiation, r.body, r.w.vendor.binding, func(d *envelope.Draft) { d.Agreement = canon.Sum([]byte("x")) })
		}, negotiation.PhaseFailed, "AGREEMENT_MISMATCH"},
		{"an expired answer", offer, func(r *reply) []byte {
			return r.made(envelope.TypeNegotiation, r.body, r.w.vendor.binding, func(d *envelope.Draft) { d.CreatedAt, d.Lifetime = r.w.Now().Add(-time.Hour), time.Minute })
		}, negotiation.PhaseFailed, "EXPIRED"},

		// Not the vendor's signed next message: no answer at all. The deadline ends it.
		{"signed by an outsider", offer, func(r *reply) []byte {
			return r.made(envelope.TypeNegotiation, r.body, r.w.third.binding)
		}, negotiation.PhaseExpired, "DEADLINE"},
		{"signed by the human key", offer, func(r *reply) []byte {
			return r.made(envelope.TypeNegotiation, r.body, r.w.vendor.human)
		}, negotiation.PhaseExpired, "DEADLINE"},
		{"of another conversation", offer, func(r *reply) []byte {
			return r.made(envelope.TypeNegotiation, r.body, r.w.vendor.binding, func(d *envelope.Draft) { d.ContextID = envelope.NewID() })
		}, negotiation.PhaseExpired, "DEADLINE"},
		{"for somebody else", offer, func(r *reply) []byte {
			return r.made(envelope.TypeNegotiation, r.body, r.w.vendor.binding, func(d *envelope.Draft) { d.To = r.w.third.id })
		}, negotiation.PhaseExpired, "DEADLINE"},
		{"out of order", offer, func(r *reply) []byte {
			return r.made(envelope.TypeNegotiation, r.body, r.w.vendor.binding, func(d *envelope.Draft) { d.Seq += 2 })
		}, negotiation.PhaseExpired, "DEADLINE"},
		{"from the future", offer, func(r *reply) []byte {
			return r.made(envelope.TypeNegotiation, r.body, r.w.vendor.binding, func(d *envelope.Draft) { d.CreatedAt = r.w.Now().Add(time.Hour) })
		}, negotiation.PhaseExpired, "DEADLINE"},
		{"garbage", offer, func(*reply) []byte { return []byte("<html>Bad gateway</html>") }, negotiation.PhaseExpired, "DEADLINE"},
		{"an answer given before", draft, func(r *reply) []byte {
			return r.w.vendor.envelopes(r.tb, r.env.ContextID)[1].Bytes
		}, negotiation.PhaseExpired, "DEADLINE"},

		// The proof is out: only a conclusion ends it.
		{"activation of another contract", active, func(r *reply) []byte {
			return r.active(func(c *contract.Contract) (did.Signer, did.Signer, time.Time) {
				c.CallBudget++
				return r.w.vendor.binding, r.w.vendor.binding, r.w.Now()
			})
		}, negotiation.PhaseActivating, ""},
		{"vendor's proof by its second key", active, func(r *reply) []byte {
			return r.active(func(*contract.Contract) (did.Signer, did.Signer, time.Time) {
				return r.w.vendor.second, r.w.vendor.binding, r.w.Now()
			})
		}, negotiation.PhaseActivating, ""},
		{"vendor's proof by its recovery key", active, func(r *reply) []byte {
			return r.active(func(*contract.Contract) (did.Signer, did.Signer, time.Time) {
				return r.w.vendor.recovery, r.w.vendor.binding, r.w.Now()
			})
		}, negotiation.PhaseActivating, ""},
		{"vendor's proof by an outsider", active, func(r *reply) []byte {
			return r.active(func(*contract.Contract) (did.Signer, did.Signer, time.Time) {
				return r.w.third.binding, r.w.vendor.binding, r.w.Now()
			})
		}, negotiation.PhaseActivating, ""},
		{"activation by the second key", active, func(r *reply) []byte {
			return r.active(func(*contract.Contract) (did.Signer, did.Signer, time.Time) {
				return r.w.vendor.binding, r.w.vendor.second, r.w.Now()
			})
		}, negotiation.PhaseActivating, ""},
		{"activation after acceptBy", active, func(r *reply) []byte {
			return r.active(func(*contract.Contract) (did.Signer, did.Signer, time.Time) {
				return r.w.vendor.binding, r.w.vendor.binding, r.w.Now().Add(20 * time.Minute)
			})
		}, negotiation.PhaseActivating, ""},
		{"activation that was not asked for", draft, func(r *reply) []byte {
			c := *r.step.Contract
			return r.made(envelope.TypeContract, message.Step{From: r.w.vendor.id.String(), Step: message.Draft, Contract: &c, Digest: canon.Sum([]byte("x"))}, r.w.vendor.binding)
		}, negotiation.PhaseFailed, "MALFORMED"},
		{"a new offer instead of the activation", active, func(r *reply) []byte {
			return r.say(message.Body{Intent: message.Counter, Offer: r.ses.Offer})
		}, negotiation.PhaseActivating, ""},
		{"a request instead of the activation", active, func(r *reply) []byte {
			return r.say(message.Body{Intent: message.Request, Rationale: "One more thing."})
		}, negotiation.PhaseActivating, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t).plain()
			id := w.begin()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			met, sent := 0, 0
			var told *message.Body
			w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
				if sent++; sent > 400 {
					t.Error("the buyer sends without end")
					cancel()
				}
				if b := w.buyer.lastSaid(t, id, raw); b != nil && (b.Intent == message.Reject || b.Intent == message.Withdraw) {
					told = b
					return nil, nil
				}
				honest, err := deliver(raw)
				if err != nil || honest == nil {
					return honest, err
				}
				r := w.readReply(honest)
				if !tt.when(r) {
					return honest, nil
				}
				if met++; met == 30 && tt.phase == negotiation.PhaseActivating {
					cancel()
				}
				return tt.make(r), nil
			}
			err := w.buyer.svc.Drive(ctx, id)
			ses := w.buyer.session(t, id)
			if ses.Phase != tt.phase || ses.Code != tt.code {
				t.Fatalf("%s %s (%s); want %s %s; Drive: %v", ses.Phase, ses.Code, ses.Reason, tt.phase, tt.code, err)
			}
			if met == 0 {
				t.Fatal("the case was not met")
			}
			if (err != nil) != (tt.phase == negotiation.PhaseActivating) {
				t.Fatalf("Drive: %v", err)
			}
			if n := len(w.buyer.contractRecords(t)); n != 0 {
				t.Fatalf("the buyer holds %d contracts", n)
			}
			if ended := tt.phase == negotiation.PhaseRejected || tt.phase == negotiation.PhaseFailed; ended != (told != nil) {
				t.Errorf("the vendor was told %+v", told)
			} else if ended && told.Intent == message.Reject && told.Code != tt.code || ended && told.Intent == message.Withdraw && !strings.HasPrefix(told.Reason, tt.code) {
				t.Errorf("the vendor was told %+v", told)
			}
			if tt.phase != negotiation.PhaseActivating {
				return
			}
			// The honest word is still heard, however late.
			w.wire = nil
			w.Advance(72 * time.Hour)
			w.restart(w.buyer)
			if ses := w.drive(id); ses.Phase != negotiation.PhaseInForce {
				t.Errorf("%s %s", ses.Phase, ses.Reason)
			}
			w.agreed()
		})
	}
}

// lastSaid is the body of our own message raw, if it is a negotiation message.
func (p *party) lastSaid(tb testing.TB, id string, raw []byte) *message.Body {
	tb.Helper()
	env, err := envelope.Parse(raw, 0)
	fatal(tb, err)
	if env.Type != envelope.TypeNegotiation {
		return nil
	}
	for _, rec := range p.envelopes(tb, id) {
		if rec.Digest.Equal(env.Digest()) {
			b, err := message.Parse(rec.Plaintext, message.Buyer)
			fatal(tb, err)
			return b
		}
	}
	return nil
}

// TestInvariant6_HintsDoNotSettle: a refusal is no signed word, whatever it says, once the proof is out.
func TestInvariant6_HintsDoNotSettle(t *testing.T) {
	t.Parallel()
	for _, code := range envelope.Codes() {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			id := w.begin()
			lies := 0
			w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
				honest, err := deliver(raw)
				if w.buyer.session(t, id).Phase == negotiation.PhaseActivating && lies < 3 {
					lies++
					return nil, &envelope.Refusal{Code: code, Reason: "no"}
				}
				return honest, err
			}
			if ses := w.drive(id); ses.Phase != negotiation.PhaseInForce || lies != 3 {
				t.Fatalf("%s after %d lies", ses.Phase, lies)
			}
			w.agreed()
		})
	}
}

// TestC11_RefusedBuyerEndsAndSaysSo: a refusal for good ends the buyer's conversation, and the vendor hears of it.
func TestC11_RefusedBuyerEndsAndSaysSo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		code  envelope.Code
		buyer negotiation.Phase
	}{
		{envelope.CodeOfferExpired, negotiation.PhaseFailed},
		{envelope.CodeMalformed, negotiation.PhaseFailed},
		{envelope.CodeUnavailable, negotiation.PhaseInForce},
		{envelope.CodeInternal, negotiation.PhaseInForce},
		{envelope.CodeNotYetValid, negotiation.PhaseInForce},
		{"SOMETHING_NEW", negotiation.PhaseFailed},
	} {
		t.Run(string(tt.code), func(t *testing.T) {
			w := newWorld(t)
			id := w.begin()
			refused := false
			w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
				if w.buyer.session(t, id).Phase == negotiation.PhaseAccepted && !refused {
					refused = true
					return nil, &envelope.Refusal{Code: tt.code, Reason: "no"}
				}
				return deliver(raw)
			}
			ses := w.drive(id)
			if ses.Phase != tt.buyer {
				t.Fatalf("%s: %s", ses.Phase, ses.Reason)
			}
			if tt.buyer == negotiation.PhaseInForce {
				w.agreed()
				return
			}
			w.noContract()
			w.phase(w.vendor, id, negotiation.PhaseWithdrawn)
		})
	}
}

// TestInvariant2_VendorSpeaksOnceInItsTurn: the vendor cannot speak again before the buyer has, nor push a second answer.
func TestInvariant2_VendorSpeaksOnceInItsTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t).plain()
	id := w.begin()
	var pushed error
	w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
		honest, err := deliver(raw)
		fatal(t, err)
		r := w.readReply(honest)
		if !r.is(message.Counter) {
			return honest, nil
		}
		// The offer comes on two ways, and a second one right after it.
		_, err = w.buyer.svc.Receive(t.Context(), w.vendor.id, honest)
		fatal(t, err)
		o := *r.body.Offer
		o.CallBudget--
		before := w.buyer.session(t, id)
		_, pushed = w.buyer.svc.Receive(t.Context(), w.vendor.id, r.made(envelope.TypeNegotiation, message.Body{From: w.vendor.id.String(), Intent: message.Counter, Offer: &o},
			w.vendor.binding, func(d *envelope.Draft) { d.Seq, d.Prev = before.Seq+1, before.Head }))
		return honest, nil
	}
	if ses := w.drive(id); ses.Phase != negotiation.PhaseInForce {
		t.Fatalf("%s: %s", ses.Phase, ses.Reason)
	}
	w.code(pushed, envelope.CodeOutOfTurn)
	w.agreed()
	if n := w.buyer.count(t, ledger.OfferReceived); n != 1 {
		t.Errorf("%d offers received", n)
	}
}

// TestN3_VendorsEquivocation is kept; a buyer whose proof is out still waits for the conclusion.
func TestN3_VendorsEquivocation(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		step  message.StepKind
		phase negotiation.Phase
	}{{message.Draft, negotiation.PhaseInForce}, {"", negotiation.PhaseFailed}} {
		t.Run(string(tt.phase), func(t *testing.T) {
			w := newWorld(t).plain()
			id := w.begin()
			w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
				honest, err := deliver(raw)
				if err != nil || honest == nil {
					return honest, err
				}
				r := w.readReply(honest)
				if tt.step == "" && r.is(message.Counter) || tt.step != "" && r.isStep(tt.step) {
					_, err := w.buyer.svc.Receive(t.Context(), w.vendor.id, honest)
					fatal(t, err)
					_, err = w.buyer.svc.Receive(t.Context(), w.vendor.id, resign(t, honest, w.vendor.binding, func(m map[string]any) { m["messageId"] = envelope.NewID() }))
					w.code(err, envelope.CodeEquivocation)
				}
				return honest, nil
			}
			w.drive(id)
			w.phase(w.buyer, id, tt.phase)
			if n := len(w.buyer.equivocations(t)); n != 1 {
				t.Errorf("%d proofs kept", n)
			}
		})
	}
}

// TestInvariant12_BuyerRefusesWhomItMayNotContractWith, also when that changed on the way.
func TestInvariant12_BuyerRefusesWhomItMayNotContractWith(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.begin()
	w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
		if w.buyer.session(t, id).Phase == negotiation.PhaseAccepted {
			w.buyer.contracts = func(did.DID) error { return errors.New("denied") }
		}
		return deliver(raw)
	}
	w.drive(id)
	w.phase(w.buyer, id, negotiation.PhaseFailed)
	w.phase(w.vendor, id, negotiation.PhaseWithdrawn)
	w.noContract()
	v, err := w.vendor.doc.Verify(w.Now())
	fatal(t, err)
	_, err = w.buyer.svc.Start(t.Context(), w.vendor.doc, v, buyerNeeds)
	w.code(err, envelope.CodeNotTrusted)
}

// TestC4_NoCommonGround ends in writing on both sides.
func TestC4_NoCommonGround(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.vendor.changeMeta = func(m *metaproto.Policy) {
		m.Floor.DataPlanes = []string{"mcp-of-tomorrow"}
		for i := range m.Preferences {
			m.Preferences[i].DataPlane = "mcp-of-tomorrow"
		}
		m.Preferences = m.Preferences[:1]
	}
	id := w.begin()
	w.drive(id)
	w.phase(w.buyer, id, negotiation.PhaseRejected)
	w.phase(w.vendor, id, negotiation.PhaseRejected)
}

// TestC13_EventsTellOfEveryStep: what happened can be read from the log alone.
func TestC13_EventsTellOfEveryStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.begin()
	w.drive(id)
	for p, want := range map[*party][]string{
		w.buyer: {
			"did.resolved", "did.verified", "metaproto.sent", "metaproto.received", "metaproto.agreed", "proposal.sent", "offer.received", "accept.sent",
			"contract.built", "contract.proof", "contract.proof", "contract.activated", "contract.inforce", "negotiation.ended",
		},
		w.vendor: {
			"did.resolved", "did.verified", "metaproto.received", "metaproto.sent", "metaproto.agreed", "proposal.received", "offer.made", "accept.received",
			"contract.built", "contract.proof", "contract.proof", "contract.activated", "contract.inforce", "negotiation.ended",
		},
	} {
		var got []string
		for _, e := range p.events(t) {
			if e.Context != id {
				t.Errorf("%s is not of the conversation", e.Type)
			}
			got = append(got, e.Type)
		}
		// Rounds may be several.
		rest := strings.Join(got, " ")
		for _, kind := range want {
			_, after, ok := strings.Cut(rest, kind)
			if !ok {
				t.Fatalf("%s is missing, or not in its place, in %v", kind, got)
			}
			rest = after
		}
		if _, err := ledger.VerifyChain(ledger.Genesis(p.born.String()), p.events(t)); err != nil {
			t.Error(err)
		}
	}
}
