// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// DeletionType is the type member of a deletion statement.
const DeletionType = "TreatyDeletion"

// MaxDeleted is the most results that one deletion statement names.
const MaxDeleted = 500

// MaxDeletedReceipts is the most receipts that one deletion statement names, in
// all: repeated queries give the same data.
const MaxDeletedReceipts = 2000

// Why data was deleted.
const (
	DeletedRetention = "retention_ended" // the contract's retention was over
	DeletedEarly     = "early"           // an operator asked for it before
)

// Deleted is one result that is gone. The receipts are those under which it was
// received, in the order in which they came.
type Deleted struct {
	ResultDigest canon.Digest `json:"resultDigest"`
	Receipts     []string     `json:"receipts"`
}

// Deletion is the buyer's signed statement that it deleted results it received
// under a contract. It says what its store deleted and when; it cannot show that
// no copy exists elsewhere.
type Deletion struct {
	Type           string       `json:"type"` // DeletionType
	ContractID     string       `json:"contractId"`
	ContractDigest canon.Digest `json:"contractDigest"`
	By             string       `json:"by"`     // DID of the buyer
	Reason         string       `json:"reason"` // DeletedRetention or DeletedEarly
	Deleted        []Deleted    `json:"deleted"`
	DeletedAt      string       `json:"deletedAt"`
	Proof          did.Proof    `json:"proof,omitzero"`
}

// Delete makes and signs a deletion statement. by is the buyer or who succeeded
// it; that the data is gone, or goes in the same transaction, is the caller's to
// see to.
func Delete(ctx context.Context, c *Contract, by, reason string, gone []Deleted, at time.Time, buyer did.Signer) (*Deletion, error) {
	d, err := c.Digest()
	if err != nil {
		return nil, err
	}
	s := &Deletion{Type: DeletionType, ContractID: c.ID, ContractDigest: d, By: by, Reason: reason, Deleted: gone, DeletedAt: FormatTime(at)}
	if err := signStatement(ctx, s, buyer, s.DeletedAt); err != nil {
		return nil, err
	}
	return s, nil
}

// ParseDeletion reads a deletion statement. Errors match ErrInvalid.
func ParseDeletion(data []byte) (*Deletion, error) {
	s := new(Deletion)
	if err := parseStatement(data, s); err != nil {
		return nil, err
	}
	return s, nil
}

// Marshal returns the canonical JSON, proof included.
func (s *Deletion) Marshal() ([]byte, error) { return canon.Marshal(s) }

// Verify checks that s is about c (ErrMismatch) and signed by the binding key of
// the buyer (ErrProof).
func (s *Deletion) Verify(c *Contract, buyer *did.Document) error {
	if err := matches(c, s.ContractID, s.ContractDigest); err != nil {
		return err
	}
	if s.By != c.Parties.Buyer {
		return fmt.Errorf("%w: not by the buyer", ErrProof)
	}
	return s.VerifySignature(buyer)
}

// About says whether s is about c (ErrMismatch).
func (s *Deletion) About(c *Contract) error { return matches(c, s.ContractID, s.ContractDigest) }

// VerifySignature checks only that the party which s names signed it (ErrProof).
func (s *Deletion) VerifySignature(party *did.Document) error { return verifyBy(s, s.By, party) }

func (s *Deletion) unsigned() any     { bare := *s; bare.Proof = did.Proof{}; return &bare }
func (s *Deletion) proof() *did.Proof { return &s.Proof }

func (s *Deletion) check() error {
	if s.Type != DeletionType {
		return invalid("type", "want "+DeletionType)
	}
	if s.Reason != DeletedRetention && s.Reason != DeletedEarly {
		return invalid("reason", "want "+DeletedRetention+" or "+DeletedEarly)
	}
	if len(s.Deleted) == 0 || len(s.Deleted) > MaxDeleted {
		return invalid("deleted", "want 1 to "+strconv.Itoa(MaxDeleted)+" results")
	}
	results, receipts := map[canon.Digest]bool{}, map[string]bool{}
	for i, d := range s.Deleted {
		field := "deleted[" + strconv.Itoa(i) + "]"
		if d.ResultDigest.IsZero() || results[d.ResultDigest] {
			return invalid(field+".resultDigest", "is zero or there twice")
		}
		results[d.ResultDigest] = true
		if len(d.Receipts) == 0 || len(receipts)+len(d.Receipts) > MaxDeletedReceipts {
			return invalid(field+".receipts", "want at least one, and "+strconv.Itoa(MaxDeletedReceipts)+" in all at most")
		}
		for _, id := range d.Receipts {
			if !isReceiptID(id) || receipts[id] {
				return invalid(field+".receipts", "is no receipt id or there twice: "+Echo(id))
			}
			receipts[id] = true
		}
	}
	if err := checkDID("by", s.By); err != nil {
		return err
	}
	if _, err := ParseTime(s.DeletedAt); err != nil {
		return within("deletedAt", err)
	}
	return checkReference(s.ContractID, s.ContractDigest)
}
