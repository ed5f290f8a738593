// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// DocumentType is the type member of a contract.
const DocumentType = "TreatyContract"

// idPrefix starts every contract id.
const idPrefix = "ctr_"

// Parties are who agreed and who answers.
type Parties struct {
	Buyer     string    `json:"buyer"`  // DID
	Vendor    string    `json:"vendor"` // DID
	DataPlane DataPlane `json:"dataPlane"`
}

// Approval is reserved: no version has approvals yet, and the list is always
// empty. A term that could not be checked must not look as if it were.
type Approval struct{}

// Contract is the contract document of any of the Versions. In its encoding, proofs is
// absent while there are none.
type Contract struct {
	Type         string       `json:"type"`    // DocumentType
	Version      int          `json:"version"` // one of Versions
	ID           string       `json:"id"`      // ID of the transcript
	Parties      Parties      `json:"parties"`
	SchemaDigest canon.Digest `json:"schemaDigest"` // of the schema as published when offered
	Scope        `json:"scope"`
	ValidFrom    string       `json:"validFrom"`  // first second of validity
	ValidUntil   string       `json:"validUntil"` // first second after it
	AcceptBy     string       `json:"acceptBy"`   // to be activated by then
	Agreement    canon.Digest `json:"agreement"`  // of the meta-protocol agreement
	Transcript   canon.Digest `json:"transcript"` // of the accept's envelope, which covers all before it
	Approvals    []Approval   `json:"approvals"`
	Proofs       []did.Proof  `json:"proofs,omitempty"` // buyer's, then vendor's
}

// ID is the id of the contract that a transcript leads to: one conversation
// cannot lead to two contracts under one id, nor choose its id.
func ID(transcript canon.Digest) string {
	h := canon.Hash("treaty contract id v1", transcript[:])
	return idPrefix + base64.RawURLEncoding.EncodeToString(h[:16])
}

// Build makes the contract, without proofs, that accepting offer leads to. It
// is deterministic: both sides get the same bytes from the same arguments. Its
// version is the offer's.
// p.DataPlane is the offer's, or zero and then taken from it. agreement is the
// digest of the meta-protocol agreement, transcript the digest of the accept's
// envelope.
func Build(offer *Offer, p Parties, agreement, transcript canon.Digest) (*Contract, error) {
	if p.DataPlane == (DataPlane{}) {
		p.DataPlane = offer.DataPlane
	}
	if p.DataPlane != offer.DataPlane {
		return nil, invalid("parties.dataPlane", "is not the offer's")
	}
	if err := offer.Validate(); err != nil {
		return nil, within("offer", err)
	}
	c := &Contract{
		Type: DocumentType, Version: offer.ContractVersion(), ID: ID(transcript),
		Parties: p, SchemaDigest: offer.SchemaDigest, Scope: offer.Scope.Clone(),
		ValidFrom: offer.ValidFrom, ValidUntil: offer.ValidUntil, AcceptBy: offer.AcceptBy,
		Agreement: agreement, Transcript: transcript, Approvals: []Approval{},
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// Parse reads a contract with no, one or two proofs and checks its form; the
// proofs themselves are checked by VerifyProofs. Errors match ErrInvalid.
func Parse(data []byte) (*Contract, error) {
	c := new(Contract)
	if err := Decode(data, c); err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// Canonical returns the canonical JSON without proofs: what is signed, hashed
// and compared.
func (c *Contract) Canonical() ([]byte, error) {
	bare := *c
	bare.Proofs = nil
	return canon.Marshal(&bare)
}

// Marshal returns the canonical JSON with the proofs there are: what is stored
// and sent.
func (c *Contract) Marshal() ([]byte, error) { return canon.Marshal(c) }

// Digest is the SHA-256 of Canonical.
func (c *Contract) Digest() (canon.Digest, error) {
	b, err := c.Canonical()
	if err != nil {
		return canon.Digest{}, err
	}
	return canon.Sum(b), nil
}

// Validate checks every field, and the form and order of the proofs.
func (c *Contract) Validate() error {
	if c.Type != DocumentType {
		return invalid("type", "want "+DocumentType)
	}
	if err := c.Scope.CheckVersion(c.Version); err != nil {
		return err
	}
	if err := checkDID("parties.buyer", c.Parties.Buyer); err != nil {
		return err
	}
	if err := checkDID("parties.vendor", c.Parties.Vendor); err != nil {
		return err
	}
	if c.Parties.Buyer == c.Parties.Vendor {
		return invalid("parties", "buyer and vendor are the same")
	}
	if err := c.Parties.DataPlane.validate(); err != nil {
		return within("parties.dataPlane", err)
	}
	if err := c.Scope.Validate(); err != nil {
		return within("scope", err)
	}
	if err := checkValidity(c.ValidFrom, c.ValidUntil, c.AcceptBy); err != nil {
		return err
	}
	for _, d := range []struct {
		field string
		value canon.Digest
	}{{"schemaDigest", c.SchemaDigest}, {"agreement", c.Agreement}, {"transcript", c.Transcript}} {
		if d.value.IsZero() {
			return invalid(d.field, "is zero")
		}
	}
	if c.ID != ID(c.Transcript) {
		return invalid("id", "is not the transcript's")
	}
	if c.Approvals == nil || len(c.Approvals) > 0 {
		return invalid("approvals", "want the empty list")
	}
	if len(c.Proofs) > 2 {
		return invalid("proofs", "want the buyer's and the vendor's, nothing else")
	}
	for i := range c.Proofs {
		if err := c.checkProofPlace(i, &c.Proofs[i]); err != nil {
			return within("proofs["+strconv.Itoa(i)+"]", err)
		}
	}
	return nil
}

func (c *Contract) checkProofPlace(i int, p *did.Proof) error {
	if err := checkProofForm(p); err != nil {
		return err
	}
	who, id := "buyer", c.Parties.Buyer
	if i == 1 {
		who, id = "vendor", c.Parties.Vendor
	}
	if !ofParty(p.VerificationMethod, id) {
		return invalid("verificationMethod", "is not the "+who+"'s")
	}
	return nil
}

// Complete says whether both proofs are there. It does not verify them.
func (c *Contract) Complete() bool { return len(c.Proofs) == 2 }

// AddProof appends a proof in its place: the buyer's to none, the vendor's to
// the buyer's. It checks form and place; VerifyProof checks the signature.
func (c *Contract) AddProof(p did.Proof) error {
	if len(c.Proofs) >= 2 {
		return fmt.Errorf("%w: both are there", ErrProof)
	}
	if err := c.checkProofPlace(len(c.Proofs), &p); err != nil {
		return fmt.Errorf("%w: %w", ErrProof, err)
	}
	c.Proofs = append(c.Proofs[:len(c.Proofs):len(c.Proofs)], p)
	return nil
}

// Prove signs the contract with a party's binding key, adds the proof and
// returns it.
func (c *Contract) Prove(ctx context.Context, s did.Signer, created time.Time) (did.Proof, error) {
	b, err := c.Canonical()
	if err != nil {
		return did.Proof{}, err
	}
	p, err := did.SignObject(ctx, b, s, created)
	if err != nil {
		return did.Proof{}, err
	}
	return p, c.AddProof(p)
}

// VerifyProof checks one party's proof over this contract: by its binding key,
// not created after acceptBy. It does not look at the contract's own proofs, so
// a received proof can be checked before it is added. Errors match ErrProof.
func (c *Contract) VerifyProof(p did.Proof, party *did.Document) error {
	b, err := c.Canonical()
	if err != nil {
		return err
	}
	return c.verifyProof(b, p, party)
}

func (c *Contract) verifyProof(object []byte, p did.Proof, party *did.Document) error {
	if party == nil {
		return fmt.Errorf("%w: the party's document is missing", ErrProof)
	}
	id := party.ID().String()
	if id != c.Parties.Buyer && id != c.Parties.Vendor {
		return fmt.Errorf("%w: %s is not a party", ErrProof, Echo(id))
	}
	created, err := verifyBinding(object, &p, party)
	if err != nil {
		return err
	}
	if acceptBy, err := ParseTime(c.AcceptBy); err != nil || created.After(acceptBy) {
		return fmt.Errorf("%w: %w: created after acceptBy", ErrProof, ErrLate)
	}
	return nil
}

// VerifyProofs checks that the contract has exactly two proofs, the buyer's and
// then the vendor's, each by the party's binding key. The documents are the
// ones pinned when the proofs were first logged. Errors match ErrProof.
func (c *Contract) VerifyProofs(buyer, vendor *did.Document) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrProof, err)
	}
	if !c.Complete() {
		return fmt.Errorf("%w: want two proofs, have %d", ErrProof, len(c.Proofs))
	}
	if buyer == nil || vendor == nil || buyer.ID().String() != c.Parties.Buyer || vendor.ID().String() != c.Parties.Vendor {
		return fmt.Errorf("%w: the documents are not the parties'", ErrProof)
	}
	b, err := c.Canonical()
	if err != nil {
		return err
	}
	for i, doc := range []*did.Document{buyer, vendor} {
		if err := c.verifyProof(b, c.Proofs[i], doc); err != nil {
			return fmt.Errorf("proof %d: %w", i, err)
		}
	}
	return nil
}

// checkID bounds an id that names a contract. Any such text may name one; only
// ids that ID made do.
func checkID(field, s string) error {
	rest, ok := strings.CutPrefix(s, idPrefix)
	if !ok || len(rest) != 22 || !base64url(rest) {
		return invalid(field, "is not a contract id")
	}
	return nil
}

func base64url(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
