// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"context"
	"fmt"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// AcknowledgementType is the type member of an acknowledgement.
const AcknowledgementType = "TreatyAcknowledgement"

// Outcomes of a statement at the other party.
const (
	OutcomeRevoked = "revoked"         // the contract ended there by this statement
	OutcomeEnded   = "already_revoked" // it had ended there before, by another statement
	OutcomeKept    = "kept"            // a statement that changes nothing was stored
)

// Acknowledgement is a party's signed statement that it has, and what it did
// with, a statement of the other party about a contract.
type Acknowledgement struct {
	Type       string       `json:"type"` // AcknowledgementType
	ContractID string       `json:"contractId"`
	Statement  canon.Digest `json:"statement"` // SHA-256 of the canonical statement, proof included
	Outcome    string       `json:"outcome"`   // OutcomeRevoked, OutcomeEnded or OutcomeKept
	By         string       `json:"by"`        // DID of the acknowledging party
	At         string       `json:"at"`
	LogHead    canon.Digest `json:"logHead"` // of the acknowledging party's log before this entry
	Proof      did.Proof    `json:"proof,omitzero"`
}

// Acknowledge makes and signs an acknowledgement. statement is the digest of the
// statement's canonical bytes, logHead may be zero for an empty log.
func Acknowledge(ctx context.Context, contractID string, statement canon.Digest, outcome, by string, at time.Time, logHead canon.Digest, party did.Signer) (*Acknowledgement, error) {
	a := &Acknowledgement{
		Type: AcknowledgementType, ContractID: contractID, Statement: statement, Outcome: outcome, By: by, At: FormatTime(at), LogHead: logHead,
	}
	if err := signStatement(ctx, a, party, a.At); err != nil {
		return nil, err
	}
	return a, nil
}

// ParseAcknowledgement reads an acknowledgement. Errors match ErrInvalid.
func ParseAcknowledgement(data []byte) (*Acknowledgement, error) {
	a := new(Acknowledgement)
	if err := parseStatement(data, a); err != nil {
		return nil, err
	}
	return a, nil
}

// Marshal returns the canonical JSON, proof included.
func (a *Acknowledgement) Marshal() ([]byte, error) { return canon.Marshal(a) }

// Verify checks that a is about the statement with this digest (ErrMismatch) and
// signed by the binding key of the party it names (ErrProof). Who may be that
// party is the caller's to know.
func (a *Acknowledgement) Verify(contractID string, statement canon.Digest, party *did.Document) error {
	if a.ContractID != contractID || !a.Statement.Equal(statement) {
		return ErrMismatch
	}
	return verifyBy(a, a.By, party)
}

func (a *Acknowledgement) unsigned() any     { bare := *a; bare.Proof = did.Proof{}; return &bare }
func (a *Acknowledgement) proof() *did.Proof { return &a.Proof }

func (a *Acknowledgement) check() error {
	if a.Type != AcknowledgementType {
		return invalid("type", "want "+AcknowledgementType)
	}
	switch a.Outcome {
	case OutcomeRevoked, OutcomeEnded, OutcomeKept:
	default:
		return invalid("outcome", "want revoked, already_revoked or kept")
	}
	if a.Statement.IsZero() {
		return invalid("statement", "is zero")
	}
	if err := checkDID("by", a.By); err != nil {
		return err
	}
	if _, err := ParseTime(a.At); err != nil {
		return within("at", err)
	}
	return checkID("contractId", a.ContractID)
}

// verifyBy checks a statement's signature by the binding key of by, whose
// document is party.
func verifyBy(s statement, by string, party *did.Document) error {
	if party == nil || party.ID().String() != by {
		return fmt.Errorf("%w: the document is not the signing party's", ErrProof)
	}
	b, err := statementObject(s)
	if err != nil {
		return err
	}
	_, err = verifyBinding(b, s.proof(), party)
	return err
}
