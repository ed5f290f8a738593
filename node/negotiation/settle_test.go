// SPDX-License-Identifier: Apache-2.0

package negotiation_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/negotiation/message"
)

func (p *puppet) withdraw(seq int64, prev canon.Digest) []byte {
	p.tb.Helper()
	d := p.next(envelope.TypeNegotiation, p.body(message.Body{Intent: message.Withdraw, Reason: "Not needed any more."}))
	d.Seq, d.Prev = seq, prev
	return p.sign(d, p.me.binding)
}

func (w *world) phase(p *party, id string, want negotiation.Phase) {
	w.tb.Helper()
	if ses := p.session(w.tb, id); ses.Phase != want {
		w.tb.Fatalf("phase %s (%s %s), want %s", ses.Phase, ses.Code, ses.Reason, want)
	}
}

// TestInvariant6_LateProofIsRejectedInWriting: whatever the reason that a proof no longer counts, the buyer gets the vendor's signed
// word that there is no contract, and again the same when it asks again.
func TestInvariant6_LateProofIsRejectedInWriting(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		code  string
		late  func(p *puppet) []byte // makes the proof late, and returns it
		phase negotiation.Phase
	}{
		{"past acceptBy", "LATE_ACTIVATION", func(p *puppet) []byte {
			p.w.Advance(601 * time.Second)
			return p.proof(p.contract, p.me.binding)
		}, negotiation.PhaseRejected},
		{"signed in time, delivered late", "LATE_ACTIVATION", func(p *puppet) []byte {
			raw := p.proof(p.contract, p.me.binding)
			p.w.Advance(601 * time.Second)
			return raw
		}, negotiation.PhaseRejected},
		{"an envelope that expired before acceptBy", "LATE_ACTIVATION", func(p *puppet) []byte {
			raw := p.proofWith(func(d *envelope.Draft) { d.Lifetime = time.Minute })
			p.w.Advance(2 * time.Minute)
			return raw
		}, negotiation.PhaseRejected},
		{"past the deadline", "CONVERSATION_ENDED", func(p *puppet) []byte {
			p.w.Advance(deadline)
			return p.proof(p.contract, p.me.binding)
		}, negotiation.PhaseRejected},
		{"past the deadline, swept", "CONVERSATION_ENDED", func(p *puppet) []byte {
			p.w.Advance(deadline)
			fatal(p.tb, p.w.vendor.svc.Sweep(context.Background()))
			return p.proof(p.contract, p.me.binding)
		}, negotiation.PhaseExpired},
		{"after the vendor's withdrawal", "CONVERSATION_ENDED", func(p *puppet) []byte {
			fatal(p.tb, p.w.vendor.svc.Withdraw(context.Background(), p.ctx, "no"))
			return p.proof(p.contract, p.me.binding)
		}, negotiation.PhaseWithdrawn},
		{"after the buyer's own withdrawal", "CONVERSATION_ENDED", func(p *puppet) []byte {
			raw := p.proof(p.contract, p.me.binding)
			seq, head := p.seq, p.head
			p.say(p.withdraw(seq+2, head))
			return raw
		}, negotiation.PhaseWithdrawn},
		{"no longer trusted", "NOT_TRUSTED", func(p *puppet) []byte {
			p.w.vendor.contracts = func(did.DID) error { return errors.New("denied") }
			return p.proof(p.contract, p.me.binding)
		}, negotiation.PhaseRejected},
		{"below today's floor", "NO_AGREEMENT", func(p *puppet) []byte {
			p.w.vendor.changeMeta = func(m *metaproto.Policy) {
				m.Floor.LimitsMin.MaxOffers = 20
				for i := range m.Preferences {
					m.Preferences[i].Limits.MaxOffers = 20
				}
			}
			return p.proof(p.contract, p.me.binding)
		}, negotiation.PhaseRejected},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPuppet(t).agree().ask().take()
			raw := tt.late(p)
			res, err := p.receive(raw)
			fatal(t, err)
			if code := rejected(t, p.open(res.Reply)); code != tt.code {
				t.Errorf("code %s, want %s", code, tt.code)
			}
			p.w.phase(p.w.vendor, p.ctx, tt.phase)
			if n := len(p.w.vendor.contractRecords(t)); n != 0 {
				t.Fatalf("%d contracts", n)
			}
			before := p.w.vendor.dump(t)
			p.w.Advance(time.Hour)
			again, err := p.receive(raw)
			if err != nil || !bytes.Equal(again.Reply, res.Reply) || p.w.vendor.dump(t) != before {
				t.Errorf("asked again: %v", err)
			}
		})
	}
}

// proofWith is the right proof in a changed envelope.
func (p *puppet) proofWith(change func(*envelope.Draft)) []byte {
	p.tb.Helper()
	object, err := p.contract.Canonical()
	fatal(p.tb, err)
	proof, err := did.SignObject(context.Background(), object, p.me.binding, p.w.Now())
	fatal(p.tb, err)
	body, err := canon.Marshal(message.Step{From: p.me.id.String(), Step: message.Proof, Digest: digestOf(p.tb, p.contract), Proof: &proof})
	fatal(p.tb, err)
	d := p.next(envelope.TypeContract, body)
	change(&d)
	return p.sign(d, p.me.binding)
}

// TestInvariant13_SettlementIsForTheProofAlone: nothing else is let into a conversation that has ended.
func TestInvariant13_SettlementIsForTheProofAlone(t *testing.T) {
	t.Parallel()
	p := newPuppet(t).agree().ask().take()
	w := p.w
	fatal(t, w.vendor.svc.Withdraw(t.Context(), p.ctx, "no"))
	state := w.vendor.session(t, p.ctx)
	proof := p.proofWith(func(*envelope.Draft) {})
	p.refuseAll(t, []bad{
		{name: "a proposal", want: envelope.CodeConversationEnded, raw: p.propose(scope())},
		{name: "a withdrawal", want: envelope.CodeConversationEnded, raw: p.withdraw(p.seq+1, p.head)},
		{name: "a proof after another message", want: envelope.CodeConversationEnded, raw: p.proofWith(func(d *envelope.Draft) { d.Prev = canon.Sum([]byte("x")) })},
		{name: "a proof in another place", want: envelope.CodeOutOfOrder, raw: p.proofWith(func(d *envelope.Draft) { d.Seq += 2 })},
		{name: "a proof under another agreement", want: envelope.CodeAgreementMismatch, raw: p.proofWith(func(d *envelope.Draft) { d.Agreement = canon.Sum([]byte("x")) })},
		{name: "a proof from the future", want: envelope.CodeNotYetValid, raw: p.proofWith(func(d *envelope.Draft) { d.CreatedAt = w.Now().Add(time.Hour) })},
		{name: "a broken proof", want: envelope.CodeBadSignature, raw: breakSignature(t, proof)},
	})
	p.say(proof)
	if after := w.vendor.session(t, p.ctx); after.Phase != state.Phase || after.Head != state.Head || after.Seq != state.Seq {
		t.Error("the state of an ended conversation changed")
	}
	// A second proof in the place of the first is a second word.
	_, err := p.receive(p.proofAgain(proof))
	w.code(err, envelope.CodeEquivocation)
}

// proofAgain is another proof in the place of raw.
func (p *puppet) proofAgain(raw []byte) []byte {
	p.tb.Helper()
	return resign(p.tb, raw, p.me.binding, func(m map[string]any) { m["messageId"] = envelope.NewID() })
}

// TestInvariant6_Withdrawal in and out of turn. What the vendor commits first decides.
func TestInvariant6_Withdrawal(t *testing.T) {
	t.Parallel()
	t.Run("in turn", func(t *testing.T) {
		p := newPuppet(t).agree().ask()
		p.say(p.withdraw(p.seq+1, p.head))
		p.w.phase(p.w.vendor, p.ctx, negotiation.PhaseWithdrawn)
	})
	t.Run("before the accept that it overtakes", func(t *testing.T) {
		p := newPuppet(t).agree().ask()
		accept := p.accept(digestOf(t, p.offer))
		p.say(p.withdraw(p.seq+2, p.head))
		p.w.phase(p.w.vendor, p.ctx, negotiation.PhaseWithdrawn)
		_, err := p.receive(accept)
		p.w.code(err, envelope.CodeConversationEnded)
	})
	t.Run("after the accept", func(t *testing.T) {
		p := newPuppet(t).agree().ask()
		seq, head := p.seq, p.head
		p.take()
		p.say(p.withdraw(seq+2, head)) // its sender has not seen the draft
		p.w.phase(p.w.vendor, p.ctx, negotiation.PhaseWithdrawn)
	})
	t.Run("after the activation", func(t *testing.T) {
		p := newPuppet(t).agree().ask().take()
		seq, head := p.seq, p.head
		p.say(p.proof(p.contract, p.me.binding))
		_, err := p.receive(p.withdraw(seq+2, head))
		p.w.code(err, envelope.CodeConversationEnded)
		p.w.vendor.contractInForce(t)
	})
	t.Run("out of turn with another's prev, or in a place that was used", func(t *testing.T) {
		p := newPuppet(t).agree().ask()
		q := p.w.puppet(p.me).agree()
		p.refuseAll(t, []bad{
			{name: "another's prev", want: envelope.CodeOutOfOrder, raw: p.withdraw(p.seq+1, q.head)},
			{name: "in no order", want: envelope.CodeOutOfOrder, raw: p.withdraw(p.seq+3, canon.Sum([]byte("x")))},
		})
	})
	t.Run("anything else out of turn", func(t *testing.T) {
		p := newPuppet(t).agree().ask()
		d := p.next(envelope.TypeNegotiation, p.body(message.Body{Intent: message.Reject, Code: "NO", Reason: "no"}))
		d.Seq += 2
		p.refuseAll(t, []bad{{name: "reject", want: envelope.CodeOutOfTurn, raw: p.sign(d, p.me.binding)}})
	})
	for _, tt := range []struct {
		name          string
		phase         negotiation.Phase // of the buyer, when it withdraws
		buyer, vendor negotiation.Phase
		delivered     bool // the message in flight reaches the vendor before the withdrawal
	}{
		{"buyer withdraws with its accept in flight", negotiation.PhaseAccepted, negotiation.PhaseWithdrawn, negotiation.PhaseWithdrawn, false},
		{"buyer withdraws with its accept delivered", negotiation.PhaseAccepted, negotiation.PhaseWithdrawn, negotiation.PhaseWithdrawn, true},
		{"buyer withdraws with its proof in flight", negotiation.PhaseActivating, negotiation.PhaseWithdrawn, negotiation.PhaseWithdrawn, false},
		{"buyer withdraws with its proof delivered", negotiation.PhaseActivating, negotiation.PhaseInForce, negotiation.PhaseInForce, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			id := w.begin()
			done := false
			w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
				if done || w.buyer.session(t, id).Phase != tt.phase {
					return deliver(raw)
				}
				done = true
				if tt.delivered {
					_, err := deliver(raw)
					fatal(t, err)
				}
				fatal(t, w.buyer.svc.Withdraw(t.Context(), id, "Changed our mind."))
				fatal(t, ignoreEnded(w.buyer.svc.Withdraw(t.Context(), id, "Changed our mind.")))
				return nil, errors.New("lost")
			}
			w.drive(id)
			w.phase(w.buyer, id, tt.buyer)
			w.phase(w.vendor, id, tt.vendor)
			if tt.buyer == negotiation.PhaseInForce {
				w.agreed()
			} else {
				w.noContract()
			}
		})
	}
	t.Run("vendor withdraws while the accept is in flight", func(t *testing.T) {
		w := newWorld(t)
		id := w.begin()
		w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
			if w.buyer.session(t, id).Phase == negotiation.PhaseAccepted {
				fatal(t, ignoreEnded(w.vendor.svc.Withdraw(t.Context(), id, "Not to you.")))
			}
			return deliver(raw)
		}
		w.drive(id)
		w.phase(w.buyer, id, negotiation.PhaseWithdrawn)
		w.phase(w.vendor, id, negotiation.PhaseWithdrawn)
		w.noContract()
	})
}

func ignoreEnded(err error) error {
	if envelope.CodeOf(err) == envelope.CodeConversationEnded {
		return nil
	}
	return err
}

// TestN3_EquivocationIsKeptAndEndsTheConversation: once for each place, however many the peer signs.
func TestN3_EquivocationIsKeptAndEndsTheConversation(t *testing.T) {
	t.Parallel()
	p := newPuppet(t).agree()
	w := p.w
	first, d := p.propose(scope()), p.next(envelope.TypeNegotiation, p.body(message.Body{Intent: message.Propose, Scope: scope(), Rationale: "other"}))
	second := p.sign(d, p.me.binding)
	p.say(first)
	for range 3 {
		_, err := p.receive(second)
		w.code(err, envelope.CodeEquivocation)
		second = resign(t, second, p.me.binding, func(m map[string]any) { m["messageId"] = envelope.NewID() })
	}
	w.phase(w.vendor, p.ctx, negotiation.PhaseFailed)
	kept := w.vendor.equivocations(t)
	if len(kept) != 1 || !bytes.Equal(kept[0].First, first) {
		t.Fatalf("%d proofs kept", len(kept))
	}
	a, err := envelope.Parse(kept[0].First, 0)
	fatal(t, err)
	b, err := envelope.Parse(kept[0].Second, 0)
	fatal(t, err)
	fatal(t, a.VerifyWith(w.buyer.doc, w.Now()))
	fatal(t, b.VerifyWith(w.buyer.doc, w.Now()))
	if !envelope.Equivocates(a, b) {
		t.Error("what is kept proves nothing")
	}
	_, err = p.receive(p.accept(canon.Sum([]byte("x"))))
	w.code(err, envelope.CodeConversationEnded)
	// The first message is still answered from the record.
	if res, err := p.receive(first); err != nil || res.Reply == nil {
		t.Errorf("%v", err)
	}
}

// TestInvariant13_TerminalStatesAreFinal: no message moves a conversation that has ended.
func TestInvariant13_TerminalStatesAreFinal(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(p *puppet){
		"in force": func(p *puppet) { p.take(); p.say(p.proof(p.contract, p.me.binding)) },
		"rejected": func(p *puppet) { p.say(p.msg(message.Body{Intent: message.Reject, Code: "NO", Reason: "no"})) },
		"withdrawn": func(p *puppet) {
			p.say(p.withdraw(p.seq+1, p.head))
			p.seq++
		},
		"expired": func(p *puppet) {
			p.w.Advance(deadline)
			fatal(p.tb, p.w.vendor.svc.Sweep(context.Background()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPuppet(t).agree().ask()
			end(p)
			p.seq += 2
			p.refuseAll(t, []bad{
				{name: "propose", want: envelope.CodeConversationEnded, raw: p.propose(scope())},
				{name: "accept", want: envelope.CodeConversationEnded, raw: p.accept(digestOf(t, p.offer))},
				{name: "withdraw", want: envelope.CodeConversationEnded, raw: p.withdraw(p.seq+1, p.head)},
				{name: "withdraw out of turn", want: envelope.CodeConversationEnded, raw: p.withdraw(p.seq+2, p.head)},
			})
			w := p.w
			w.code(w.vendor.svc.Withdraw(t.Context(), p.ctx, "no"), envelope.CodeConversationEnded)
			before := w.vendor.dump(t)
			w.Advance(24 * time.Hour)
			fatal(t, w.vendor.svc.Sweep(t.Context()))
			if w.vendor.dump(t) != before {
				t.Error("the sweep changed it")
			}
		})
	}
}

// TestInvariant11_DeadlineEndsEveryConversation: also when nobody sweeps.
func TestInvariant11_DeadlineEndsEveryConversation(t *testing.T) {
	t.Parallel()
	p := newPuppet(t).agree().ask()
	p.w.Advance(deadline)
	p.refuseAll(t, []bad{
		{name: "accept", want: envelope.CodeConversationEnded, raw: p.accept(digestOf(t, p.offer))},
		{name: "propose", want: envelope.CodeConversationEnded, raw: p.propose(scope())},
	})
	fatal(t, p.w.vendor.svc.Sweep(t.Context()))
	p.w.phase(p.w.vendor, p.ctx, negotiation.PhaseExpired)
	if p.w.vendor.count(t, ledger.NegotiationEnded) != 1 {
		t.Error("the end is not logged once")
	}
}

// TestInvariant11_ProposalsAreBounded by the agreement: the decider is not even asked.
func TestInvariant11_ProposalsAreBounded(t *testing.T) {
	t.Parallel()
	p := newPuppet(t).agree()
	for range 4 {
		p.ask()
	}
	if code := rejected(t, p.say(p.propose(scope()))); code != "TOO_MANY_ROUNDS" {
		t.Errorf("code %s", code)
	}
	p.w.phase(p.w.vendor, p.ctx, negotiation.PhaseRejected)
}

// TestInvariant12_WhoCannotBeResolvedIsRefused: for good, or for the moment.
func TestInvariant12_WhoCannotBeResolvedIsRefused(t *testing.T) {
	t.Parallel()
	for code, want := range map[resolver.Code]envelope.Code{
		resolver.CodeUnreachable: envelope.CodeUnavailable, resolver.CodeTimeout: envelope.CodeUnavailable,
		resolver.CodeBadProof: envelope.CodeNotTrusted, resolver.CodeDeactivated: envelope.CodeNotTrusted, resolver.CodeKeyChanged: envelope.CodeNotTrusted,
	} {
		t.Run(string(code), func(t *testing.T) {
			p := newPuppet(t).agree().ask()
			p.w.vendor.resolving = func(id did.DID) error { return &resolver.Error{Code: code, DID: id} }
			p.refuseAll(t, []bad{{name: "accept", want: want, raw: p.accept(digestOf(t, p.offer))}})
		})
	}
}
