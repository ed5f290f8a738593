// SPDX-License-Identifier: Apache-2.0

// Package lifecycle is what happens to a contract once it is in force: its revocation by either party, its replacement, and
// the deletion of what was received under it.
//
// Guarantees
//
//   - A statement, its effect and its event commit in one transaction, with the notice that tells the other party in the
//     outbox: after a crash there is either all of it or nothing (invariants 8 and 15).
//   - A revocation is written once. The data plane refuses from the commit on; the other party learns of it when it can be
//     reached, and what it answers, signed, is kept.
//   - Where a contract replaces another, the old one ends in the transaction that stores the new one: never both, never neither.
//   - Nothing about a contract is taken from who is not a party to it, and a stranger cannot learn that it exists: to it,
//     every contract is unknown. Parties are known by their line of verified DIDs.
//   - A deletion statement names only what this transaction deleted, and a vendor keeps only statements about results that
//     its own receipts show it gave.
//
// What it does not do: it checks no envelope, which is the business of who delivers the notices, and it cannot know what
// became of data outside of this store.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

// Kinds of notices.
const (
	KindRevocation = "revocation"
	KindDeletion   = "deletion"
)

// Roles of this company in a contract.
const (
	Buyer  = "buyer"
	Vendor = "vendor"
)

// Notices delivers signed messages outside of conversations; what is sent goes out once tx is committed.
type Notices interface {
	Send(ctx context.Context, tx store.Tx, peer did.DID, kind string, data any) error
}

// Documents returns verified documents only; it fails closed (invariant 12).
type Documents interface {
	Resolve(ctx context.Context, id did.DID) (*did.Document, error)
}

// Config sets up a Service. All fields are needed.
type Config struct {
	Self      func() did.DID
	Binding   func() did.Signer // of Self
	Store     store.Store
	Notices   Notices
	Documents Documents
	Now       func() time.Time
}

// Service ends contracts and deletes data. It is safe for concurrent use.
type Service struct{ cfg Config }

// New makes a service.
func New(cfg Config) *Service { return &Service{cfg} }

// Codes of refusals: to the operator and, in a notice's answer, to the other party.
const (
	CodeMalformed       = "MALFORMED"
	CodeUnknownContract = "UNKNOWN_CONTRACT"  // none here that the asking party has a part in
	CodeMismatch        = "CONTRACT_MISMATCH" // the statement is about another contract of this id
	CodeProof           = "PROOF_INVALID"
	CodeWrongParty      = "WRONG_PARTY"    // the other side of the contract would have to say that
	CodeNotInForce      = "NOT_IN_FORCE"   // there is nothing to end
	CodeRevoked         = "REVOKED"        // it has ended already
	CodeUnknownResult   = "UNKNOWN_RESULT" // a deletion of what was never given
	CodeNothingHeld     = "NOTHING_HELD"
)

// Refusal is a decision not to do what was asked.
type Refusal struct{ Code, Text string }

func (r *Refusal) Error() string { return r.Code + ": " + r.Text }

func refuse(code, format string, args ...any) error {
	return &Refusal{Code: code, Text: fmt.Sprintf(format, args...)}
}

// held is a contract with its record, and the lines of its parties.
type held struct {
	rec           store.ContractRecord
	c             *contract.Contract
	buyer, vendor []string // lines of DIDs, oldest first
}

// line returns the line of a role's party.
func (h *held) line(role string) []string {
	if role == Buyer {
		return h.buyer
	}
	return h.vendor
}

// other is the role that this company does not have.
func (h *held) other() string {
	if h.rec.Role == Buyer {
		return Vendor
	}
	return Buyer
}

// peer is where the other party is reached: the newest DID of its line.
func (h *held) peer() (did.DID, error) {
	line := h.line(h.other())
	return did.Parse(line[len(line)-1])
}

// load reads a contract. ErrNotFound of the store when there is none.
func load(tx store.Tx, id string) (*held, error) {
	rec, err := tx.GetContract(id)
	if err != nil {
		return nil, err
	}
	h := &held{rec: rec}
	if h.c, err = contract.Parse(rec.Bytes); err != nil {
		return nil, err
	}
	if h.buyer, err = tx.Lineage(h.c.Parties.Buyer); err != nil {
		return nil, err
	}
	h.vendor, err = tx.Lineage(h.c.Parties.Vendor)
	return h, err
}

// loadFor is load for a notice of from: whoever is not the other party finds nothing.
func loadFor(tx store.Tx, id string, from did.DID) (*held, error) {
	h, err := load(tx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && !slices.Contains(h.line(h.other()), from.String()) {
		return nil, refuse(CodeUnknownContract, "there is no contract %s between us", contract.Echo(id))
	}
	return h, err
}

// own is this company's DID as a party of h; a node that left the contract's line says nothing about it.
func (s *Service) own(h *held) (string, error) {
	self := s.cfg.Self().String()
	if !slices.Contains(h.line(h.rec.Role), self) {
		return "", fmt.Errorf("this node, %s, is in no line of the contract's %s", self, h.rec.Role)
	}
	return self, nil
}

// statement keeps a signed document and returns its digest.
func (s *Service) statement(tx store.Tx, contractID, kind, by string, signed []byte) (canon.Digest, error) {
	d := canon.Sum(signed)
	return d, tx.PutStatement(store.Statement{ContractID: contractID, Digest: d, Kind: kind, By: by, Bytes: signed, Created: s.cfg.Now()})
}

// acknowledge signs that this company has the other's statement, and keeps that.
func (s *Service) acknowledge(ctx context.Context, tx store.Tx, h *held, statement canon.Digest, outcome string) (*contract.Acknowledgement, error) {
	self, err := s.own(h)
	if err != nil {
		return nil, err
	}
	head, err := tx.Head()
	if err != nil {
		return nil, err
	}
	a, err := contract.Acknowledge(ctx, h.rec.ID, statement, outcome, self, s.cfg.Now(), head.Hash, s.cfg.Binding())
	if err != nil {
		return nil, err
	}
	signed, err := a.Marshal()
	if err != nil {
		return nil, err
	}
	_, err = s.statement(tx, h.rec.ID, contract.AcknowledgementType, self, signed)
	return a, err
}

// Acknowledged takes the other party's answer to a statement of ours that a notice carried. sent is the statement. An
// answer that is no acknowledgement of it is a *Refusal, and nothing is kept.
func (s *Service) Acknowledged(ctx context.Context, tx store.Tx, from did.DID, sent, answer []byte) error {
	a, err := contract.ParseAcknowledgement(answer)
	if err != nil {
		return refuse(CodeMalformed, "%v", err)
	}
	h, err := loadFor(tx, a.ContractID, from)
	if err != nil {
		return err
	}
	if a.By != from.String() {
		return refuse(CodeWrongParty, "the acknowledgement is not by who sent it")
	}
	doc, err := s.cfg.Documents.Resolve(ctx, from)
	if err != nil {
		return err
	}
	statement := canon.Sum(sent)
	if err := a.Verify(h.rec.ID, statement, doc); err != nil {
		return refuse(CodeProof, "the acknowledgement does not hold: %v", err)
	}
	signed, err := a.Marshal()
	if err != nil {
		return err
	}
	if _, err := s.statement(tx, h.rec.ID, contract.AcknowledgementType, a.By, signed); err != nil {
		return err
	}
	return h.log(tx, ledger.ContractAcknowledged, ledger.Acknowledgement{Statement: statement, By: a.By, Outcome: a.Outcome, At: a.At})
}

// log appends an event about the contract.
func (h *held) log(tx store.Tx, typ string, data any) error {
	_, err := tx.Append(ledger.Entry{Type: typ, Context: h.rec.ContextID, Contract: h.rec.ID, Peer: h.rec.Peer, Data: data})
	return err
}
