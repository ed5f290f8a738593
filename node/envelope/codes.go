// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"errors"
	"fmt"
)

// Code says to the peer why a message was refused. Codes are errors, so that
// errors.Is(err, envelope.CodeExpired) works on a [*Refusal].
type Code string

// The codes on the wire. The table below says what they mean.
const (
	CodeMalformed         Code = "MALFORMED"
	CodeTooLarge          Code = "TOO_LARGE"
	CodeBadSignature      Code = "BAD_SIGNATURE"
	CodeWrongSender       Code = "WRONG_SENDER"
	CodeWrongRecipient    Code = "WRONG_RECIPIENT"
	CodeExpired           Code = "EXPIRED"
	CodeNotYetValid       Code = "NOT_YET_VALID"
	CodeOutOfOrder        Code = "OUT_OF_ORDER"
	CodeReplayed          Code = "REPLAYED"
	CodeEquivocation      Code = "EQUIVOCATION"
	CodeNoAgreement       Code = "NO_AGREEMENT"
	CodeAgreementMismatch Code = "AGREEMENT_MISMATCH"
	CodeSuiteMismatch     Code = "SUITE_MISMATCH"
	CodeCannotOpen        Code = "CANNOT_OPEN"
	CodeKeyRetired        Code = "KEY_RETIRED"
	CodeBodyMismatch      Code = "BODY_MISMATCH"
	CodeVersionMismatch   Code = "VERSION_MISMATCH"
	CodeUnexpectedType    Code = "UNEXPECTED_TYPE"
	CodeOutOfTurn         Code = "OUT_OF_TURN"
	CodeConversationEnded Code = "CONVERSATION_ENDED"
	CodeUnknownColumn     Code = "UNKNOWN_COLUMN"
	CodeUnknownDataset    Code = "UNKNOWN_DATASET"
	CodeNotLastOffer      Code = "NOT_LAST_OFFER"
	CodeOfferExpired      Code = "OFFER_EXPIRED"
	CodeContractMismatch  Code = "CONTRACT_MISMATCH"
	CodeProofInvalid      Code = "PROOF_INVALID"
	CodeLateActivation    Code = "LATE_ACTIVATION"
	CodeNotTrusted        Code = "NOT_TRUSTED"
	CodeUnavailable       Code = "UNAVAILABLE"
	CodeInternal          Code = "INTERNAL"
)

// codes is the one table. Retryable means that the very same message may be
// accepted when it is sent again later.
var codes = []struct {
	code      Code
	retryable bool
	text      string
}{
	{CodeMalformed, false, "the message is not in the one form that is accepted"},
	{CodeTooLarge, false, "the message is larger than the limit"},
	{CodeBadSignature, false, "the signature is missing or wrong, or its key may not sign for the sender"},
	{CodeWrongSender, false, "the sender, the signer and the caller are not the same DID"},
	{CodeWrongRecipient, false, "the message is for somebody else"},
	{CodeExpired, false, "the message has expired"},
	{CodeNotYetValid, true, "the message is dated in the future"},
	{CodeOutOfOrder, false, "the message does not follow the last one of this conversation"},
	{CodeReplayed, false, "the place of this message in the conversation is taken"},
	{CodeEquivocation, false, "two different messages were signed for one place in the conversation"},
	{CodeNoAgreement, false, "no agreement on how to talk has been reached yet"},
	{CodeAgreementMismatch, false, "the message names another agreement than the one in force"},
	{CodeSuiteMismatch, false, "the message is sealed with another suite, or to another key, than agreed"},
	{CodeCannotOpen, false, "the sealed content does not open"},
	{CodeKeyRetired, false, "the message is sealed to a key whose grace after a rotation is over"},
	{CodeBodyMismatch, false, "the content does not belong to this message"},
	{CodeVersionMismatch, false, "the version is not the agreed one"},
	{CodeUnexpectedType, false, "a message of this type is not expected here"},
	{CodeOutOfTurn, false, "it is the other side's turn"},
	{CodeConversationEnded, false, "the conversation has ended"},
	{CodeUnknownColumn, false, "a column is not in the published schema"},
	{CodeUnknownDataset, false, "the dataset is not offered here"},
	{CodeNotLastOffer, false, "only the last offer of this conversation can be accepted"},
	{CodeOfferExpired, false, "the offer has expired"},
	{CodeContractMismatch, false, "the contract differs from the one built here"},
	{CodeProofInvalid, false, "the proof is not one by the party's binding key over this contract"},
	{CodeLateActivation, false, "the contract was not activated in time"},
	{CodeNotTrusted, false, "the trust policy here does not admit this party"},
	{CodeUnavailable, true, "not available at the moment"},
	{CodeInternal, true, "an internal fault; nothing was changed"},
}

// Codes returns all codes in the order of the table.
func Codes() []Code {
	out := make([]Code, len(codes))
	for i, c := range codes {
		out[i] = c.code
	}
	return out
}

// Known says whether c stands in the table.
func (c Code) Known() bool {
	for _, e := range codes {
		if e.code == c {
			return true
		}
	}
	return false
}

// Retryable says whether the very same message may be accepted later. It is
// false for codes that are not known.
func (c Code) Retryable() bool {
	for _, e := range codes {
		if e.code == c {
			return e.retryable
		}
	}
	return false
}

// Text is the sentence of the table, or "refused" for codes that are not known.
func (c Code) Text() string {
	for _, e := range codes {
		if e.code == c {
			return e.text
		}
	}
	return "refused"
}

// Error makes a code a sentinel.
func (c Code) Error() string { return string(c) + ": " + c.Text() }

// Refusal is a message refused. Reason is for people, may be sent to the peer,
// and never holds a secret or the content of a sealed body. The cause, where
// there is one, is for errors.Is and not part of the text.
type Refusal struct {
	Code   Code
	Reason string
	cause  error
}

// Refuse returns a refusal with a formatted reason. An argument of %w is its
// cause.
func Refuse(c Code, format string, args ...any) *Refusal {
	err := fmt.Errorf(format, args...)
	return &Refusal{Code: c, Reason: err.Error(), cause: errors.Unwrap(err)}
}

// Error names the code and the reason.
func (r *Refusal) Error() string {
	if r.Reason == "" {
		return r.Code.Error()
	}
	return string(r.Code) + ": " + r.Reason
}

// Unwrap returns the code and the cause.
func (r *Refusal) Unwrap() []error {
	if r.cause == nil {
		return []error{r.Code}
	}
	return []error{r.Code, r.cause}
}

// CodeOf returns the code that err carries, and [CodeInternal] for an error
// without one; "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var r *Refusal
	if errors.As(err, &r) {
		return r.Code
	}
	var c Code
	if errors.As(err, &c) {
		return c
	}
	return CodeInternal
}
