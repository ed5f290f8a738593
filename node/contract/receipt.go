// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// ReceiptType is the type member of a receipt.
const ReceiptType = "TreatyReceipt"

const receiptPrefix = "rcp_"

// ReceiptID makes a receipt id of 128 random bits.
func ReceiptID(random [16]byte) string {
	return receiptPrefix + base64.RawURLEncoding.EncodeToString(random[:])
}

// Receipt is the data plane's signed statement about one call: what was asked,
// by whom, and either the digest of what was given or the code of the refusal.
type Receipt struct {
	// The members are in canonical order, which saves sorting them for every call.
	Caller         string       `json:"caller"`                  // DID
	Code           Code         `json:"code,omitzero"`           // of the refusal; absent on an answer
	ContractDigest canon.Digest `json:"contractDigest,omitzero"` // absent when no contract of the caller was found
	ContractID     string       `json:"contractId"`
	DataPlane      string       `json:"dataPlane"` // DID of the signer
	ID             string       `json:"id"`        // ReceiptID
	Proof          did.Proof    `json:"proof,omitzero"`
	QueryDigest    canon.Digest `json:"queryDigest"`           // Request.Digest
	ResultDigest   canon.Digest `json:"resultDigest,omitzero"` // of the result's canonical JSON; absent on refusal
	Rows           int64        `json:"rows"`                  // rows of the result
	Time           string       `json:"time"`
	TotalRows      int64        `json:"totalRows"` // rows of the dataset
	Type           string       `json:"type"`      // ReceiptType
	UsedRows       int64        `json:"usedRows"`  // dataset rows that entered it
}

// Sign sets the type, signs the receipt with the data plane's key and keeps the
// proof, created at the receipt's time.
func (r *Receipt) Sign(ctx context.Context, s did.Signer) error {
	r.Type = ReceiptType
	return signStatement(ctx, r, s, r.Time)
}

// ParseReceipt reads a receipt. Errors match ErrInvalid.
func ParseReceipt(data []byte) (*Receipt, error) {
	r := new(Receipt)
	if err := parseStatement(data, r); err != nil {
		return nil, err
	}
	return r, nil
}

// Marshal returns the canonical JSON, proof included.
func (r *Receipt) Marshal() ([]byte, error) { return canon.Marshal(r) }

// Refused says whether the receipt is about a refusal.
func (r *Receipt) Refused() bool { return r.Code != "" }

// Verify checks that the receipt is signed by an assertionMethod key of the
// data plane's document (ErrProof).
func (r *Receipt) Verify(dataPlane *did.Document) error {
	if dataPlane == nil || dataPlane.ID().String() != r.DataPlane {
		return fmt.Errorf("%w: the document is not the data plane's", ErrProof)
	}
	b, err := statementObject(r)
	if err != nil {
		return err
	}
	_, err = verifyAssertion(b, &r.Proof, dataPlane)
	return err
}

// VerifyFor is Verify, and that the receipt is about c: its digest, its data
// plane and its buyer (ErrMismatch).
func (r *Receipt) VerifyFor(c *Contract, dataPlane *did.Document) error {
	if err := matches(c, r.ContractID, r.ContractDigest); err != nil {
		return err
	}
	if r.DataPlane != c.Parties.DataPlane.DID || r.Caller != c.Parties.Buyer {
		return ErrMismatch
	}
	return r.Verify(dataPlane)
}

func (r *Receipt) unsigned() any     { bare := *r; bare.Proof = did.Proof{}; return &bare }
func (r *Receipt) proof() *did.Proof { return &r.Proof }

func (r *Receipt) check() error {
	if r.Type != ReceiptType {
		return invalid("type", "want "+ReceiptType)
	}
	if !isReceiptID(r.ID) {
		return invalid("id", "is not a receipt id")
	}
	// A stranger's contract id is whatever it sent, bounded.
	if len(r.ContractID) > MaxID || !printable(r.ContractID) {
		return invalid("contractId", "is too long or not printable")
	}
	if r.QueryDigest.IsZero() {
		return invalid("queryDigest", "is zero")
	}
	switch {
	case (r.Code == "") == r.ResultDigest.IsZero():
		return invalid("code", "want either a result digest or the code of a refusal")
	case r.Code != "" && !r.Code.Known():
		return invalid("code", "unknown code "+Echo(string(r.Code)))
	case r.Code == "" && r.ContractDigest.IsZero():
		return invalid("contractDigest", "is missing from an answer")
	case r.Code != "" && (r.Rows != 0 || r.UsedRows != 0):
		return invalid("rows", "a refusal gives none")
	}
	for _, n := range []int64{r.Rows, r.UsedRows, r.TotalRows} {
		if n < 0 || n > 1<<53 {
			return invalid("rows", "want 0 to 2^53")
		}
	}
	if r.UsedRows > r.TotalRows {
		return invalid("usedRows", "more than totalRows")
	}
	if _, err := ParseTime(r.Time); err != nil {
		return within("time", err)
	}
	if err := checkDID("caller", r.Caller); err != nil {
		return err
	}
	return checkDID("dataPlane", r.DataPlane)
}

func isReceiptID(s string) bool {
	rest, ok := strings.CutPrefix(s, receiptPrefix)
	return ok && len(rest) == 22 && base64url(rest)
}
