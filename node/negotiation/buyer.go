// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"bytes"
	"context"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation/message"
)

// Propose asks for a scope; the first time, or again instead of the standing offer. need is which of the needs it comes from.
func (s Session) Propose(ask contract.Scope, need int, rationale string) (Session, Effects, error) {
	var fx Effects
	intent := message.Propose
	if s.Phase == PhaseOffered {
		intent = message.Counter
	}
	ask = ask.Clone()
	d, err := s.body(message.Body{Intent: intent, Scope: &ask, Rationale: rationale})
	if err != nil {
		return s, fx, err
	}
	s.Ask, s.Asks, s.Need = &ask, s.Asks+1, need
	fx.Reply = d
	fx.log(&s, ledger.ProposalSent, proposal(&ask, rationale))
	return s, fx, nil
}

// Accept accepts exactly the standing offer (invariant 4).
func (s Session) Accept(rationale string) (Session, Effects, error) {
	var fx Effects
	digest, err := s.Offer.Digest()
	if err != nil {
		return s, fx, err
	}
	d, err := s.body(message.Body{Intent: message.Accept, OfferDigest: digest, Rationale: rationale})
	if err != nil {
		return s, fx, err
	}
	s.Phase = PhaseAccepted
	fx.Reply = d
	fx.log(&s, ledger.AcceptSent, ledger.Accept{OfferDigest: digest})
	return s, fx, nil
}

// Reject ends the conversation with a reason the vendor is told.
func (s Session) Reject(code, reason string) (Session, Effects, error) {
	return s.decline(PhaseRejected, code, reason, Effects{})
}

// accepted builds the contract once the accept's envelope, and with it the transcript, is known.
func (s Session) accepted(accept *envelope.Envelope) (Session, error) {
	c, err := s.build(accept.Digest(), accept.From, accept.To)
	if err != nil {
		return s, err
	}
	s.Contract, s.Transcript = c, accept.Digest()
	return s, nil
}

// buyerBody takes a negotiation message of the vendor. Whether the buyer accepts an offer is decided afterwards.
func (s Session) buyerBody(b *message.Body, now time.Time) (Session, Effects, error) {
	var fx Effects
	switch b.Intent {
	case message.Counter:
		if s.Phase != PhaseAsking && s.Phase != PhaseOffered {
			return s, fx, refuse(envelope.CodeUnexpectedType, "an offer does not fit phase %s", s.Phase)
		}
		if b.Offer.Expired(now) {
			return s, fx, refuse(envelope.CodeOfferExpired, "the offer had expired at %s when it came", b.Offer.ExpiresAt)
		}
		digest, err := b.Offer.Digest()
		if err != nil {
			return s, fx, err
		}
		s.Offer, s.Offers, s.Phase = b.Offer, s.Offers+1, PhaseOffered
		fx.log(&s, ledger.OfferReceived, offerEvent(b.Offer, digest))
		return s, fx, nil
	case message.Reject:
		if s.Leaving {
			return s.end(PhaseWithdrawn, "WITHDRAWN", b.Reason, &fx), fx, nil
		}
		return s.end(PhaseRejected, b.Code, b.Reason, &fx), fx, nil
	case message.Withdraw:
		s, fx = s.withdrawn(b, fx)
		return s, fx, nil
	case message.Request:
		if s.Phase == PhaseActivating {
			break // our proof is out: only a conclusion is an answer to it
		}
		return s.decline(PhaseFailed, "REQUEST", "what the vendor asks for needs a person: "+b.Rationale, fx)
	case message.Propose, message.Accept:
	}
	return s, fx, refuse(envelope.CodeUnexpectedType, "%s does not fit phase %s", b.Intent, s.Phase)
}

// draft takes the vendor's contract and signs it only when it is, byte for byte, the one we built ourselves.
func (s Session) draft(ctx context.Context, st *message.Step, signer did.Signer, now time.Time) (Session, Effects, error) {
	var fx Effects
	if s.Phase != PhaseAccepted || st.Step != message.Draft || s.Contract == nil {
		return s, fx, refuse(envelope.CodeUnexpectedType, "contract step %s does not fit phase %s", st.Step, s.Phase)
	}
	own, err := s.Contract.Canonical()
	if err != nil {
		return s, fx, err
	}
	theirs, err := st.Contract.Canonical()
	if err != nil {
		return s, fx, err
	}
	if !bytes.Equal(own, theirs) {
		return s.decline(PhaseFailed, string(envelope.CodeContractMismatch), "the vendor's contract is not the one that this conversation led to", fx)
	}
	acceptBy, err := contract.ParseTime(s.Contract.AcceptBy)
	if err != nil {
		return s, fx, err
	}
	if now.After(acceptBy) {
		return s.decline(PhaseExpired, string(envelope.CodeLateActivation), "the draft came after "+s.Contract.AcceptBy, fx)
	}
	c := *s.Contract
	proof, err := c.Prove(ctx, signer, now)
	if err != nil {
		return s, fx, err
	}
	digest, err := c.Digest()
	if err != nil {
		return s, fx, err
	}
	d, err := s.step(message.Step{Step: message.Proof, Digest: digest, Proof: &proof})
	if err != nil {
		return s, fx, err
	}
	d.Expires = acceptBy
	s.Contract, s.Phase = &c, PhaseActivating
	fx.Reply = d
	fx.log(&s, ledger.ContractBuilt, ledger.Built{Digest: digest})
	fx.log(&s, ledger.ContractProof, ledger.ProofAdded{By: s.speaker().String(), KeyID: proof.VerificationMethod, Digest: digest})
	return s, fx, nil
}

// active takes the finished contract: our own proof as we made it, and the vendor's proof and activation, checked against the
// documents of the vendor's line.
func (s Session) active(st *message.Step, vendor *did.Line, now time.Time) (Session, Effects, error) {
	var fx Effects
	if s.Phase != PhaseActivating || st.Step != message.Active {
		return s, fx, refuse(envelope.CodeUnexpectedType, "contract step %s does not fit phase %s", st.Step, s.Phase)
	}
	ours, err := s.Contract.Canonical()
	if err != nil {
		return s, fx, err
	}
	theirs, err := st.Contract.Canonical()
	if err != nil {
		return s, fx, err
	}
	if !bytes.Equal(ours, theirs) {
		return s, fx, refuse(envelope.CodeContractMismatch, "the finished contract is not the one that was signed here")
	}
	if len(s.Contract.Proofs) != 1 || !st.Contract.Complete() || st.Contract.Proofs[0] != s.Contract.Proofs[0] {
		return s, fx, refuse(envelope.CodeProofInvalid, "the buyer's proof is not the one that was made here")
	}
	if err := st.Contract.VerifyProofOf(st.Contract.Proofs[1], vendor); err != nil {
		return s, fx, refuse(envelope.CodeProofInvalid, "%v", err)
	}
	if err := st.Activation.VerifyOf(st.Contract, vendor); err != nil {
		return s, fx, refuse(envelope.CodeProofInvalid, "activation: %v", err)
	}
	s, err = s.inForce(st.Contract, st.Activation, now, &fx)
	return s, fx, err
}
