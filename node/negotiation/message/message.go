// SPDX-License-Identifier: Apache-2.0

// Package message reads and writes the bodies of negotiation and contract
// envelopes: what a decider says, and the steps in which a contract is built,
// proven and activated.
//
// The schema is strict (requirement C2). Parse refuses an unknown, missing,
// duplicate or case-variant key, a value of the wrong type, a member that does
// not belong to the intent, and every value out of bounds; there is no best
// effort. Bodies are decoded, encoded again and compared.
//
// A rationale is free text of the other side. It is bounded and kept as it is,
// control characters included, because it is only ever data: show it escaped,
// and decide nothing by it. The package checks that `from` is a DID, not whose:
// that it is the signer's is for the caller to check (C3).
package message

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
)

// Bounds on bodies.
const (
	MaxRationale = 2000 // characters of a rationale
	MaxReason    = 2000 // characters of a reason
	MaxCode      = 64   // bytes of a code
)

// ErrBody is matched by every error about a body.
var ErrBody = errors.New("message: body refused")

// Intent is what a negotiation message wants.
type Intent string

// The intents of C2, and withdraw, which may come out of turn.
const (
	Propose  Intent = "propose"  // buyer: scope
	Counter  Intent = "counter"  // buyer: scope; vendor: offer
	Accept   Intent = "accept"   // buyer: offerDigest
	Reject   Intent = "reject"   // either: code, reason; ends the conversation
	Request  Intent = "request"  // either: asks for something in its rationale
	Withdraw Intent = "withdraw" // either: reason; ends the conversation
)

// Role is a side of a negotiation.
type Role string

// The roles.
const (
	Buyer  Role = "buyer"
	Vendor Role = "vendor"
)

// Body is a negotiation message. From, Intent and Rationale are always there;
// what else is depends on the intent, and everything else is absent.
type Body struct {
	From        string          `json:"from"` // DID
	Intent      Intent          `json:"intent"`
	Scope       *contract.Scope `json:"scope,omitzero"`
	Offer       *contract.Offer `json:"offer,omitzero"`
	OfferDigest canon.Digest    `json:"offerDigest,omitzero"`
	Code        string          `json:"code,omitzero"`   // upper-case letters and '_'
	Reason      string          `json:"reason,omitzero"` // for a person; never empty where it belongs
	Rationale   string          `json:"rationale"`       // may be empty, except in a request
}

// member is a bit for each member that not every intent has.
type member uint8

const (
	hasScope member = 1 << iota
	hasOffer
	hasOfferDigest
	hasCode
	hasReason
)

// forms lists what each role may say and which members it then has, no more and
// no less.
var forms = map[Role]map[Intent]member{
	Buyer: {
		Propose: hasScope, Counter: hasScope, Accept: hasOfferDigest,
		Reject: hasCode | hasReason, Request: 0, Withdraw: hasReason,
	},
	Vendor: {
		Counter: hasOffer, Reject: hasCode | hasReason, Request: 0, Withdraw: hasReason,
	},
}

// Parse reads the body of a negotiation message that the given role sent.
// Errors match ErrBody.
func Parse(data []byte, sender Role) (*Body, error) {
	b := new(Body)
	if err := contract.Decode(data, b); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBody, err)
	}
	if err := b.Validate(sender); err != nil {
		return nil, err
	}
	return b, nil
}

// Marshal validates the body and returns its canonical JSON.
func (b *Body) Marshal(sender Role) ([]byte, error) {
	if err := b.Validate(sender); err != nil {
		return nil, err
	}
	return canon.Marshal(b)
}

// Validate checks the body for the role that sends it.
func (b *Body) Validate(sender Role) error {
	want, ok := forms[sender][b.Intent]
	if !ok {
		return refuse("intent", contract.Echo(string(b.Intent))+" is not something the "+contract.Echo(string(sender))+" can say")
	}
	if have := b.members(); have != want {
		return refuse("intent", string(b.Intent)+" wants other members: "+mismatch(have, want))
	}
	if err := checkFrom(b.From); err != nil {
		return err
	}
	if err := checkLength("rationale", b.Rationale, MaxRationale); err != nil {
		return err
	}
	if b.Intent == Request && b.Rationale == "" {
		return refuse("rationale", "a request says in it what is wanted")
	}
	if err := checkLength("reason", b.Reason, MaxReason); err != nil {
		return err
	}
	if want&hasCode != 0 {
		if err := checkCode(b.Code); err != nil {
			return err
		}
	}
	if b.Scope != nil {
		if err := b.Scope.Validate(); err != nil {
			return fmt.Errorf("%w: scope: %w", ErrBody, err)
		}
	}
	if b.Offer != nil {
		if err := b.Offer.Validate(); err != nil {
			return fmt.Errorf("%w: offer: %w", ErrBody, err)
		}
	}
	return nil
}

func (b *Body) members() member {
	var m member
	for _, p := range []struct {
		there bool
		bit   member
	}{
		{b.Scope != nil, hasScope},
		{b.Offer != nil, hasOffer},
		{!b.OfferDigest.IsZero(), hasOfferDigest},
		{b.Code != "", hasCode},
		{b.Reason != "", hasReason},
	} {
		if p.there {
			m |= p.bit
		}
	}
	return m
}

// mismatch names the members that are missing or do not belong.
func mismatch(have, want member) string {
	text := ""
	for i, name := range []string{"scope", "offer", "offerDigest", "code", "reason"} {
		switch bit := member(1) << i; {
		case want&^have&bit != 0:
			text += " " + name + " is missing or empty;"
		case have&^want&bit != 0:
			text += " " + name + " does not belong;"
		}
	}
	return text
}

func checkFrom(s string) error {
	d, err := did.Parse(s)
	if err != nil || d.String() != s {
		return refuse("from", "is not a DID")
	}
	return nil
}

// checkLength counts characters; bytes first, so that a long text is not walked.
func checkLength(field, s string, limit int) error {
	if len(s) > 4*limit || utf8.RuneCountInString(s) > limit {
		return refuse(field, "is longer than "+strconv.Itoa(limit)+" characters")
	}
	return nil
}

func checkCode(s string) error {
	if len(s) > MaxCode {
		return refuse("code", "is too long")
	}
	for i := range len(s) {
		if (s[i] < 'A' || s[i] > 'Z') && (s[i] != '_' || i == 0) {
			return refuse("code", "want upper-case letters and '_'")
		}
	}
	return nil
}

func refuse(field, why string) error {
	return fmt.Errorf("%w: %s: %s", ErrBody, field, why)
}
