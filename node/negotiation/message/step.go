// SPDX-License-Identifier: Apache-2.0

package message

import (
	"fmt"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
)

// StepKind is a step of making a contract.
type StepKind string

// The steps, in their order.
const (
	Draft  StepKind = "draft"  // vendor: contract without proofs, digest
	Proof  StepKind = "proof"  // buyer: digest, proof
	Active StepKind = "active" // vendor: contract with both proofs, activation
)

// Step is the body of a contract envelope. From and Step are always there.
type Step struct {
	From       string               `json:"from"` // DID
	Step       StepKind             `json:"step"`
	Contract   *contract.Contract   `json:"contract,omitzero"`
	Digest     canon.Digest         `json:"digest,omitzero"` // of the contract
	Proof      *did.Proof           `json:"proof,omitzero"`
	Activation *contract.Activation `json:"activation,omitzero"`
}

// ParseStep reads the body of a contract envelope that the given role sent. It
// checks that the members belong together: the digest is the draft's, the
// activation names the contract. Signatures are for the caller to verify.
// Errors match ErrBody.
func ParseStep(data []byte, sender Role) (*Step, error) {
	s := new(Step)
	if err := contract.Decode(data, s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBody, err)
	}
	if err := s.Validate(sender); err != nil {
		return nil, err
	}
	return s, nil
}

// Marshal validates the step and returns its canonical JSON.
func (s *Step) Marshal(sender Role) ([]byte, error) {
	if err := s.Validate(sender); err != nil {
		return nil, err
	}
	return canon.Marshal(s)
}

// Validate checks the step for the role that sends it.
func (s *Step) Validate(sender Role) error {
	if err := checkFrom(s.From); err != nil {
		return err
	}
	have := [4]bool{s.Contract != nil, !s.Digest.IsZero(), s.Proof != nil, s.Activation != nil}
	var want [4]bool
	role := Vendor
	switch s.Step {
	case Draft:
		want = [4]bool{true, true, false, false}
	case Proof:
		role, want = Buyer, [4]bool{false, true, true, false}
	case Active:
		want = [4]bool{true, false, false, true}
	default:
		return refuse("step", "unknown step "+contract.Echo(string(s.Step)))
	}
	if sender != role {
		return refuse("step", string(s.Step)+" is not something the "+contract.Echo(string(sender))+" can send")
	}
	if have != want {
		return refuse("step", string(s.Step)+" wants other members (draft: contract, digest; proof: digest, proof; active: contract, activation)")
	}
	if s.Contract == nil {
		return nil
	}
	if err := s.Contract.Validate(); err != nil {
		return fmt.Errorf("%w: contract: %w", ErrBody, err)
	}
	d, err := s.Contract.Digest()
	if err != nil {
		return fmt.Errorf("%w: contract: %w", ErrBody, err)
	}
	if s.Activation != nil {
		if err := s.Activation.Validate(); err != nil {
			return fmt.Errorf("%w: activation: %w", ErrBody, err)
		}
	}
	switch {
	case s.Step == Draft && len(s.Contract.Proofs) > 0:
		return refuse("contract", "a draft has no proofs")
	case s.Step == Draft && !d.Equal(s.Digest):
		return refuse("digest", "is not the contract's")
	case s.Step == Active && !s.Contract.Complete():
		return refuse("contract", "an active contract has both proofs")
	case s.Step == Active && (s.Activation.ContractID != s.Contract.ID || !d.Equal(s.Activation.ContractDigest)):
		return refuse("activation", "is about another contract")
	}
	return nil
}
