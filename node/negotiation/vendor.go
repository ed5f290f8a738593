// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"context"
	"errors"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation/message"
)

// asked takes the buyer's proposal. What is offered is decided afterwards, see [Session.Offered].
func (s Session) asked(b *message.Body) (Session, Effects, error) {
	var fx Effects
	if s.Phase != PhaseAsking && s.Phase != PhaseOffered {
		return s, fx, refuse(envelope.CodeUnexpectedType, "%s does not fit phase %s", b.Intent, s.Phase)
	}
	within := s.mayAsk()
	s.Ask, s.Asks = b.Scope, s.Asks+1
	fx.log(&s, ledger.ProposalReceived, proposal(b.Scope, b.Rationale))
	if !within {
		return s.Rejected("LIMIT", "the agreed number of proposals and offers is used up", fx)
	}
	return s, fx, nil
}

// Offered makes the offer that now stands; it replaces every earlier one.
func (s Session) Offered(o *contract.Offer, rationale string, fx Effects) (Session, Effects, error) {
	d, err := s.body(message.Body{Intent: message.Counter, Offer: o, Rationale: rationale})
	if err != nil {
		return s, fx, err
	}
	digest, err := o.Digest()
	if err != nil {
		return s, fx, err
	}
	s.Offer, s.Offers, s.Phase = o, s.Offers+1, PhaseOffered
	fx.Reply = d
	fx.log(&s, ledger.OfferMade, offerEvent(o, digest))
	return s, fx, nil
}

// Deciding leaves the proposal to somebody slow: there is no answer yet, and the peer's next word is a withdrawal or none.
func (s Session) Deciding(fx Effects) (Session, Effects) {
	s.Phase = PhaseDeciding
	return s, fx
}

// Rejected answers the buyer's message with the end of the conversation.
func (s Session) Rejected(code, reason string, fx Effects) (Session, Effects, error) {
	return s.decline(PhaseRejected, code, reason, fx)
}

// accept takes the buyer's accept: of exactly the last unexpired offer, or it changes nothing (invariant 4, C7).
func (s Session) accept(b *message.Body, accept *envelope.Envelope, now time.Time) (Session, Effects, error) {
	var fx Effects
	if s.Phase != PhaseOffered {
		return s, fx, refuse(envelope.CodeNotLastOffer, "there is no offer to accept in phase %s", s.Phase)
	}
	digest, err := s.Offer.Digest()
	if err != nil {
		return s, fx, err
	}
	if !b.OfferDigest.Equal(digest) {
		return s, fx, refuse(envelope.CodeNotLastOffer, "only the last offer, %s, can be accepted", digest)
	}
	if s.Offer.Expired(now) {
		return s, fx, refuse(envelope.CodeOfferExpired, "the offer expired at %s; propose again for a new one", s.Offer.ExpiresAt)
	}
	fx.log(&s, ledger.AcceptReceived, ledger.Accept{OfferDigest: digest})
	c, err := s.build(accept.Digest(), accept.From, accept.To)
	if err != nil {
		return s, fx, err
	}
	cd, err := c.Digest()
	if err != nil {
		return s, fx, err
	}
	if fx.Reply, err = s.step(message.Step{Step: message.Draft, Contract: c, Digest: cd}); err != nil {
		return s, fx, err
	}
	s.Contract, s.Transcript, s.Phase = c, accept.Digest(), PhaseAccepted
	fx.log(&s, ledger.ContractBuilt, ledger.Built{Digest: cd})
	return s, fx, nil
}

// proven takes the buyer's proof, adds the vendor's and activates. It runs inside the transaction that stores the result,
// so that now and logHead are the transaction's. After acceptBy it answers with a signed rejection: both sides then hold
// the proof that there is no contract.
func (s Session) proven(ctx context.Context, st *message.Step, buyer *did.Line, signer did.Signer, now time.Time, logHead canon.Digest) (Session, Effects, error) {
	var fx Effects
	if s.Phase != PhaseAccepted || st.Step != message.Proof {
		return s, fx, refuse(envelope.CodeUnexpectedType, "contract step %s does not fit phase %s", st.Step, s.Phase)
	}
	c := *s.Contract
	digest, err := c.Digest()
	if err != nil {
		return s, fx, err
	}
	if !digest.Equal(st.Digest) {
		return s, fx, refuse(envelope.CodeContractMismatch, "the proof is about another contract than %s", digest)
	}
	if acceptBy, err := contract.ParseTime(c.AcceptBy); err != nil || now.After(acceptBy) {
		return s.late(fx) // whatever the proof is worth
	}
	if err := c.VerifyProofOf(*st.Proof, buyer); err != nil {
		return s, fx, refuse(envelope.CodeProofInvalid, "%v", err)
	}
	if err := c.AddProof(*st.Proof); err != nil {
		return s, fx, refuse(envelope.CodeProofInvalid, "%v", err)
	}
	fx.log(&s, ledger.ContractProof, ledger.ProofAdded{By: s.listener().String(), KeyID: st.Proof.VerificationMethod, Digest: digest})
	activation, err := contract.Activate(ctx, &c, now, logHead, signer)
	if errors.Is(err, contract.ErrLate) {
		return s.late(fx)
	}
	if err != nil {
		return s, fx, err
	}
	if _, err := c.Prove(ctx, signer, now); err != nil {
		return s, fx, err
	}
	d, err := s.step(message.Step{Step: message.Active, Contract: &c, Activation: activation})
	if err != nil {
		return s, fx, err
	}
	if s, err = s.inForce(&c, activation, now, &fx); err != nil {
		return s, fx, err
	}
	fx.Reply = d
	return s, fx, nil
}

// late is the vendor's signed word that the contract did not come into force in time.
func (s Session) late(fx Effects) (Session, Effects, error) {
	return s.Rejected(string(envelope.CodeLateActivation), "the contract had to be active by "+s.Contract.AcceptBy+"; nothing is in force", fx)
}

// vendorBody takes a negotiation message of the buyer other than a proposal.
func (s Session) vendorBody(b *message.Body, env *envelope.Envelope, now time.Time) (Session, Effects, error) {
	var fx Effects
	switch b.Intent {
	case message.Propose, message.Counter:
		return s.asked(b)
	case message.Accept:
		return s.accept(b, env, now)
	case message.Reject:
		return s.end(PhaseRejected, b.Code, b.Reason, &fx), fx, nil
	case message.Withdraw:
		s, fx = s.withdrawn(b, fx)
		return s, fx, nil
	case message.Request:
	}
	return s, fx, refuse(envelope.CodeUnexpectedType, "%s: ask by message/send without an envelope; the agent card says what can be negotiated", b.Intent)
}
