// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// Expect is what the next message of a conversation has to be, as the state of
// the conversation says.
type Expect struct {
	Self      did.DID       // this node
	Caller    did.DID       // who signed the HTTP request; for a reply, the peer
	KeyID     string        // the key the peer signs with by the agreement; "": any of its own
	Seq       int64         // the next number
	Prev      canon.Digest  // the digest of the last message, or FirstPrev
	Agreement canon.Digest  // the agreement in force; zero: none yet
	Now       time.Time     //
	Skew      time.Duration // allowance for the clocks, both ways
}

// CheckParties makes the first checks of invariant 1: a verified signature,
// from = signer = caller, to = self. After it, and before [Envelope.Check], a
// stored message of the same digest may be answered from the record, however
// old it is.
func (e *Envelope) CheckParties(self, caller did.DID) error {
	switch {
	case !e.verified:
		return Refuse(CodeBadSignature, "the signature has not been verified")
	case e.From != e.signer:
		return Refuse(CodeWrongSender, "sent by %s, signed by %s", e.From, e.signer)
	case e.From != caller:
		return Refuse(CodeWrongSender, "sent by %s, called by %s", e.From, caller)
	case e.To != self:
		return Refuse(CodeWrongRecipient, "the message is for %s", e.To)
	}
	return nil
}

// Check makes the checks of invariant 1 in this order: signature verified,
// parties, sequence, prev, time window, key, agreement. It changes nothing. Errors
// are [*Refusal]s.
func (e *Envelope) Check(x Expect) error {
	if err := e.CheckParties(x.Self, x.Caller); err != nil {
		return err
	}
	switch {
	case e.Seq < x.Seq:
		return Refuse(CodeReplayed, "seq %d was taken, the next is %d", e.Seq, x.Seq)
	case e.Seq > x.Seq:
		return Refuse(CodeOutOfOrder, "seq %d, the next is %d", e.Seq, x.Seq)
	case x.Prev.IsZero() || !e.Prev.Equal(x.Prev):
		return Refuse(CodeOutOfOrder, "prev is not the digest of the last message")
	case e.Created().After(x.Now.Add(x.Skew)):
		return Refuse(CodeNotYetValid, "createdAt %s is in the future", e.CreatedAt)
	case !x.Now.Before(e.Expires().Add(x.Skew)):
		return Refuse(CodeExpired, "expired at %s", e.ExpiresAt)
	case x.KeyID != "" && x.KeyID != e.KeyID():
		return Refuse(CodeAgreementMismatch, "signed with another key than agreed")
	}
	return e.checkAgreement(x.Agreement)
}

// checkAgreement is invariant 3. Which types need an agreement is settled by
// the form; here it is compared.
func (e *Envelope) checkAgreement(inForce canon.Digest) error {
	switch {
	case e.Agreement.IsZero():
		return nil
	case inForce.IsZero():
		return Refuse(CodeNoAgreement, "no agreement is in force in this conversation")
	case !e.Agreement.Equal(inForce):
		return Refuse(CodeAgreementMismatch, "the agreement in force is %s", inForce)
	}
	return nil
}
