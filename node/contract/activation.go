// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"context"
	"fmt"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// The type members of the statements about a contract.
const (
	ActivationType = "TreatyActivation"
	RevocationType = "TreatyRevocation"
)

// Activation is the vendor's signed statement that a contract is in force,
// made and logged in the transaction that adds the vendor's proof.
type Activation struct {
	Type           string       `json:"type"` // ActivationType
	ContractID     string       `json:"contractId"`
	ContractDigest canon.Digest `json:"contractDigest"`
	ActivatedAt    string       `json:"activatedAt"`
	LogHead        canon.Digest `json:"logHead"` // of the vendor's log before this entry
	Proof          did.Proof    `json:"proof,omitzero"`
}

// Activate makes and signs the activation of c with the vendor's binding key.
// It refuses with ErrLate after acceptBy. logHead may be zero for an empty log.
func Activate(ctx context.Context, c *Contract, at time.Time, logHead canon.Digest, vendor did.Signer) (*Activation, error) {
	d, err := c.Digest()
	if err != nil {
		return nil, err
	}
	a := &Activation{Type: ActivationType, ContractID: c.ID, ContractDigest: d, ActivatedAt: FormatTime(at), LogHead: logHead}
	if err := a.inTime(c); err != nil {
		return nil, err
	}
	if err := signStatement(ctx, a, vendor, a.ActivatedAt); err != nil {
		return nil, err
	}
	return a, nil
}

// ParseActivation reads an activation. Errors match ErrInvalid.
func ParseActivation(data []byte) (*Activation, error) {
	a := new(Activation)
	if err := parseStatement(data, a); err != nil {
		return nil, err
	}
	return a, nil
}

// Marshal returns the canonical JSON, proof included.
func (a *Activation) Marshal() ([]byte, error) { return canon.Marshal(a) }

// Verify checks that a is about c (ErrMismatch), was made no later than
// acceptBy (ErrLate), and is signed by the vendor's
// binding key (ErrProof).
func (a *Activation) Verify(c *Contract, vendor *did.Document) error {
	if err := matches(c, a.ContractID, a.ContractDigest); err != nil {
		return err
	}
	if err := a.inTime(c); err != nil {
		return err
	}
	if vendor == nil || vendor.ID().String() != c.Parties.Vendor {
		return fmt.Errorf("%w: the document is not the vendor's", ErrProof)
	}
	b, err := statementObject(a)
	if err != nil {
		return err
	}
	created, err := verifyBinding(b, &a.Proof, vendor)
	if err != nil {
		return err
	}
	if FormatTime(created) != a.ActivatedAt {
		return fmt.Errorf("%w: not created when it says the contract was activated", ErrProof)
	}
	return nil
}

// Validate checks every field and the proof's form, not its signature.
func (a *Activation) Validate() error {
	if err := a.check(); err != nil {
		return err
	}
	return within("proof", checkProofForm(&a.Proof))
}

func (a *Activation) inTime(c *Contract) error {
	at, err := ParseTime(a.ActivatedAt)
	if err != nil {
		return within("activatedAt", err)
	}
	acceptBy, err := ParseTime(c.AcceptBy)
	if err != nil {
		return within("acceptBy", err)
	}
	if at.After(acceptBy) {
		return fmt.Errorf("%w: at %s, acceptBy is %s", ErrLate, a.ActivatedAt, c.AcceptBy)
	}
	return nil
}

func (a *Activation) unsigned() any     { bare := *a; bare.Proof = did.Proof{}; return &bare }
func (a *Activation) proof() *did.Proof { return &a.Proof }

func (a *Activation) check() error {
	if a.Type != ActivationType {
		return invalid("type", "want "+ActivationType)
	}
	if _, err := ParseTime(a.ActivatedAt); err != nil {
		return within("activatedAt", err)
	}
	return checkReference(a.ContractID, a.ContractDigest)
}

func checkReference(id string, d canon.Digest) error {
	if err := checkID("contractId", id); err != nil {
		return err
	}
	if d.IsZero() {
		return invalid("contractDigest", "is zero")
	}
	return nil
}

// matches says whether id and digest are c's.
func matches(c *Contract, id string, d canon.Digest) error {
	if c == nil {
		return ErrMismatch
	}
	own, err := c.Digest()
	if err != nil {
		return err
	}
	if id != c.ID || !own.Equal(d) {
		return ErrMismatch
	}
	return nil
}

// Revocation is a party's signed statement that it ends a contract. It takes
// effect at its position in the vendor's log, not at the time it names.
type Revocation struct {
	Type           string       `json:"type"` // RevocationType
	ContractID     string       `json:"contractId"`
	ContractDigest canon.Digest `json:"contractDigest"`
	By             string       `json:"by"`     // DID of a party
	Reason         string       `json:"reason"` // text, not empty
	RevokedAt      string       `json:"revokedAt"`
	Proof          did.Proof    `json:"proof,omitzero"`
}

// Revoke makes and signs a revocation of c by a party's binding key.
func Revoke(ctx context.Context, c *Contract, by, reason string, at time.Time, party did.Signer) (*Revocation, error) {
	if by != c.Parties.Buyer && by != c.Parties.Vendor {
		return nil, invalid("by", "is not a party")
	}
	return RevokeAs(ctx, c, by, reason, at, party)
}

// RevokeAs is Revoke by a party's verified successor: that by is one is the
// caller's to know.
func RevokeAs(ctx context.Context, c *Contract, by, reason string, at time.Time, party did.Signer) (*Revocation, error) {
	d, err := c.Digest()
	if err != nil {
		return nil, err
	}
	r := &Revocation{Type: RevocationType, ContractID: c.ID, ContractDigest: d, By: by, Reason: reason, RevokedAt: FormatTime(at)}
	if err := signStatement(ctx, r, party, r.RevokedAt); err != nil {
		return nil, err
	}
	return r, nil
}

// ParseRevocation reads a revocation. Errors match ErrInvalid.
func ParseRevocation(data []byte) (*Revocation, error) {
	r := new(Revocation)
	if err := parseStatement(data, r); err != nil {
		return nil, err
	}
	return r, nil
}

// Marshal returns the canonical JSON, proof included.
func (r *Revocation) Marshal() ([]byte, error) { return canon.Marshal(r) }

// Verify checks that r is about c (ErrMismatch) and signed by the binding key of
// the party it names (ErrProof).
func (r *Revocation) Verify(c *Contract, party *did.Document) error {
	if err := matches(c, r.ContractID, r.ContractDigest); err != nil {
		return err
	}
	if r.By != c.Parties.Buyer && r.By != c.Parties.Vendor {
		return fmt.Errorf("%w: by nobody who could", ErrProof)
	}
	return verifyBy(r, r.By, party)
}

// VerifySignature checks only that the party which r names signed it (ErrProof).
func (r *Revocation) VerifySignature(party *did.Document) error { return verifyBy(r, r.By, party) }

// About says whether r is about c (ErrMismatch).
func (r *Revocation) About(c *Contract) error { return matches(c, r.ContractID, r.ContractDigest) }

func (r *Revocation) unsigned() any     { bare := *r; bare.Proof = did.Proof{}; return &bare }
func (r *Revocation) proof() *did.Proof { return &r.Proof }

func (r *Revocation) check() error {
	if r.Type != RevocationType {
		return invalid("type", "want "+RevocationType)
	}
	if err := checkDID("by", r.By); err != nil {
		return err
	}
	if r.Reason == "" {
		return invalid("reason", "is empty")
	}
	if err := checkText("reason", r.Reason, MaxText); err != nil {
		return err
	}
	if _, err := ParseTime(r.RevokedAt); err != nil {
		return within("revokedAt", err)
	}
	return checkReference(r.ContractID, r.ContractDigest)
}
