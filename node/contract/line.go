// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did"
)

// A party that moves to a new DID stays the party: the contract names the DIDs of the time when the offer was accepted, and a
// successor that was verified signs in their place. Whose successor a DID is, a document cannot say by itself; whoever asks brings
// the verified lines.

// ofParty says whether a key id belongs to a DID, or to one that claims its subject: what can be known without documents.
func ofParty(keyID, party string) bool {
	if keyOf(keyID, party) {
		return true
	}
	signer, _, err := did.SplitKeyID(keyID)
	if err != nil {
		return false
	}
	id, err := did.Parse(party)
	return err == nil && did.SameSubject(id, signer)
}

// signer finds the DID whose key a proof of a party is by: the party's, or a successor in its line.
func signer(p *did.Proof, party string, line *did.Line) (did.Station, error) {
	stations := line.Stations()
	at := func(belongs func(id string) bool) int {
		return slices.IndexFunc(stations, func(s did.Station) bool { return belongs(s.ID().String()) })
	}
	named := at(func(id string) bool { return id == party })
	by := at(func(id string) bool { return keyOf(p.VerificationMethod, id) })
	switch {
	case named < 0:
		return did.Station{}, fmt.Errorf("%w: the documents are not the party's", ErrProof)
	case by < named || by > named && !line.Moves():
		return did.Station{}, fmt.Errorf("%w: by %s, which is neither the party's nor a verified successor's", ErrProof, Echo(p.VerificationMethod))
	}
	return stations[by], nil
}

// verifyOf verifies a proof by the binding key of a party or of its verified successor. One that is dated after its DID was
// deactivated is by whoever has the old key, and refused.
func verifyOf(object []byte, p *did.Proof, party string, line *did.Line) (time.Time, error) {
	s, err := signer(p, party, line)
	if err != nil {
		return time.Time{}, err
	}
	created, err := verifyBinding(object, p, s.Keys())
	if err == nil && !s.Signs(created) {
		err = fmt.Errorf("%w: created at %s, when %s had a successor", ErrProof, FormatTime(created), Echo(s.ID().String()))
	}
	return created, err
}

// VerifyProofOf is [Contract.VerifyProof] for a party that may have moved; line is that party's.
func (c *Contract) VerifyProofOf(p did.Proof, line *did.Line) error {
	object, err := c.Canonical()
	if err != nil {
		return err
	}
	for _, party := range []string{c.Parties.Buyer, c.Parties.Vendor} {
		if ofParty(p.VerificationMethod, party) {
			return c.verifyProofOf(object, p, party, line)
		}
	}
	return fmt.Errorf("%w: %s is of no party", ErrProof, Echo(p.VerificationMethod))
}

func (c *Contract) verifyProofOf(object []byte, p did.Proof, party string, line *did.Line) error {
	created, err := verifyOf(object, &p, party, line)
	if err != nil {
		return err
	}
	if acceptBy, err := ParseTime(c.AcceptBy); err != nil || created.After(acceptBy) {
		return fmt.Errorf("%w: %w: created after acceptBy", ErrProof, ErrLate)
	}
	return nil
}

// VerifyProofsOf is [Contract.VerifyProofs] for parties that may have moved: each proof is by the binding key of the party's DID,
// dated before its deactivation, or by that of a verified successor. Errors match ErrProof.
func (c *Contract) VerifyProofsOf(buyer, vendor *did.Line) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrProof, err)
	}
	if !c.Complete() {
		return fmt.Errorf("%w: want two proofs, have %d", ErrProof, len(c.Proofs))
	}
	object, err := c.Canonical()
	if err != nil {
		return err
	}
	for i, side := range []struct {
		party string
		line  *did.Line
	}{{c.Parties.Buyer, buyer}, {c.Parties.Vendor, vendor}} {
		if err := c.verifyProofOf(object, c.Proofs[i], side.party, side.line); err != nil {
			return fmt.Errorf("proof %d: %w", i, err)
		}
	}
	return nil
}

// VerifyOf is [Activation.Verify] for a vendor that may have moved.
func (a *Activation) VerifyOf(c *Contract, vendor *did.Line) error {
	if err := matches(c, a.ContractID, a.ContractDigest); err != nil {
		return err
	}
	if err := a.inTime(c); err != nil {
		return err
	}
	object, err := statementObject(a)
	if err != nil {
		return err
	}
	created, err := verifyOf(object, &a.Proof, c.Parties.Vendor, vendor)
	if err != nil {
		return err
	}
	if FormatTime(created) != a.ActivatedAt {
		return fmt.Errorf("%w: not created when it says the contract was activated", ErrProof)
	}
	return nil
}

// VerifyCall is [Receipt.VerifyFor] for a buyer that may have moved: caller is the DID under which it called.
func (r *Receipt) VerifyCall(c *Contract, caller string, dataPlane *did.Document) error {
	if err := matches(c, r.ContractID, r.ContractDigest); err != nil {
		return err
	}
	if r.DataPlane != c.Parties.DataPlane.DID || r.Caller != caller {
		return ErrMismatch
	}
	return r.Verify(dataPlane)
}
