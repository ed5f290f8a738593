// SPDX-License-Identifier: Apache-2.0

// Package evidence builds and verifies the file that convinces somebody who was not there: what two companies agreed, how
// they came to it, and when.
//
// A bundle holds the contract with its proofs, the vendor's activation, what was signed about the contract since (revocations,
// deletion statements, their acknowledgements), the DID documents of that time, every envelope of the conversation as it was signed, the plaintext of those that the compiler of the bundle discloses, and a segment of the
// compiler's event log in which everything about others is redacted.
//
// [VerifyBundle] needs no network, no clock and no key. Guarantees: when every check of its report is ok, then the DIDs
// named in it (bound to their keys by fingerprint) signed each message, in this order, with nothing left out between the
// first and the last; the disclosed plaintexts are what was signed; both parties proved exactly this contract, and the
// vendor activated it in time.
//
// What it does not say: that a company is who its domain suggests (the auditor judges the DID), that DID documents are the
// newest, that undisclosed messages say anything in particular, or that times are right: each is the signer's word. The log
// segment is the compiler's own; it is worth as much as a head of it that the other party holds, such as the one in the
// activation.
package evidence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/ledger"
)

// Type and Version of a bundle.
const (
	Type    = "TreatyEvidence"
	Version = 1
)

// Bounds of a bundle.
const (
	MaxBytes     = 16 << 20
	MaxDocuments = 64 // two parties of nine DIDs, each with two versions, and some that were signed anew
	MaxEnvelopes = 1000
	MaxEvents    = 20000

	MaxStatements = 2000
	maxDepth      = 32
)

// ErrBundle is wrapped when something is not a bundle, or cannot become one.
var ErrBundle = errors.New("evidence: not a valid bundle")

// Bundle is the file, as canonical JSON.
type Bundle struct {
	Type        string            `json:"type"`
	Version     int               `json:"version"`
	Node        string            `json:"node"`                // DID of who compiled it, whose log the events are from
	Contract    json.RawMessage   `json:"contract"`            // with both proofs
	Activation  json.RawMessage   `json:"activation"`          //
	Agreement   json.RawMessage   `json:"agreement,omitempty"` // of the meta-protocol, which never travels
	Documents   []string          `json:"documents"`           // DID documents, each as the text it was received as
	Envelopes   []json.RawMessage `json:"envelopes"`           // in order of seq
	Disclosures []Disclosure      `json:"disclosures"`
	Statements  []json.RawMessage `json:"statements,omitempty"`  // revocations, acknowledgements, deletion statements, as stored
	Compromised []Compromise      `json:"compromised,omitempty"` // DIDs of the parties whose key somebody else may have had
	From        ledger.Head       `json:"from"`                  // before the first event
	Events      []ledger.Link     `json:"events"`
	Head        ledger.Head       `json:"head"` // after the last event
	Proof       *did.Proof        `json:"proof,omitempty"`
}

// Disclosure is the content of a sealed envelope. Salt and body give its bodyDigest.
type Disclosure struct {
	Envelope canon.Digest    `json:"envelope"`
	Salt     envelope.Salt   `json:"salt"`
	Body     json.RawMessage `json:"body"`
}

// Message is an envelope for a bundle.
type Message struct {
	Raw  []byte
	Salt []byte // with Body: to be disclosed; both nil: not
	Body []byte
}

// Input is what a bundle is compiled from.
type Input struct {
	Node                  string // DID of the compiling node
	Contract, Activation  []byte
	Agreement             []byte    // canonical meta-protocol agreement; nil to leave it out
	Documents             [][]byte  // as received, in the versions that were in force at the activation
	Messages              []Message // in order of seq
	Compromised           []Compromise
	Statements            [][]byte // signed documents about the contract, in the order in which they were stored
	From                  ledger.Head
	Events                []ledger.Event // without gaps, after From
	ContextID, ContractID string         // events of either are shown
}

// Build compiles a bundle and, unless signer is nil, signs it. Events that are not about the conversation or the contract
// are redacted, and cut off where they are first or last. It is a pure function and does not judge what it is given: look
// at the result with [VerifyBundle].
func Build(ctx context.Context, in Input, signer did.Signer, at time.Time) ([]byte, error) {
	b := Bundle{
		Type: Type, Version: Version, Node: in.Node, Contract: in.Contract, Activation: in.Activation, Agreement: in.Agreement,
		Documents: []string{}, Envelopes: []json.RawMessage{}, Disclosures: []Disclosure{}, Compromised: in.Compromised,
	}
	for _, d := range in.Documents {
		b.Documents = append(b.Documents, string(d))
	}
	for _, st := range in.Statements {
		b.Statements = append(b.Statements, st)
	}
	for i, m := range in.Messages {
		b.Envelopes = append(b.Envelopes, m.Raw)
		e, err := envelope.Parse(m.Raw, 0)
		if err != nil {
			return nil, fmt.Errorf("%w: envelope %d: %w", ErrBundle, i+1, err)
		}
		if m.Body == nil || e.Sealed == nil {
			continue // one in the clear discloses itself
		}
		if len(m.Salt) != envelope.SaltSize {
			return nil, fmt.Errorf("%w: envelope %d: a salt has %d bytes", ErrBundle, i+1, envelope.SaltSize)
		}
		b.Disclosures = append(b.Disclosures, Disclosure{Envelope: e.Digest(), Salt: envelope.Salt(m.Salt), Body: m.Body})
	}
	if err := b.cut(in); err != nil {
		return nil, err
	}
	if err := b.bounded(); err != nil {
		return nil, err
	}
	if signer != nil {
		object, err := canon.Marshal(b)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBundle, err)
		}
		p, err := did.SignObject(ctx, object, signer, at)
		if err != nil {
			return nil, err
		}
		b.Proof = &p
	}
	data, err := canon.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBundle, err)
	}
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrBundle, len(data), MaxBytes)
	}
	return data, nil
}

// cut takes the segment from the first to the last event that belongs to the bundle.
func (b *Bundle) cut(in Input) error {
	show := func(e *ledger.Event) bool {
		return in.ContextID != "" && e.Context == in.ContextID || in.ContractID != "" && e.Contract == in.ContractID
	}
	events, from := in.Events, in.From
	for len(events) > 0 && !show(&events[0]) {
		from, events = events[0].Head(), events[1:]
	}
	for len(events) > 0 && !show(&events[len(events)-1]) {
		events = events[:len(events)-1]
	}
	links, err := ledger.Show(events, show)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBundle, err)
	}
	b.From, b.Events, b.Head = from, links, from
	if n := len(events); n > 0 {
		b.Head = events[n-1].Head()
	}
	return nil
}

func (b *Bundle) bounded() error {
	for _, c := range []struct {
		what   string
		n, max int
	}{{"documents", len(b.Documents), MaxDocuments}, {"envelopes", len(b.Envelopes), MaxEnvelopes}, {"disclosures", len(b.Disclosures), MaxEnvelopes}, {"statements", len(b.Statements), MaxStatements}, {"events", len(b.Events), MaxEvents}, {"compromised keys", len(b.Compromised), MaxDocuments}} {
		if c.n > c.max {
			return fmt.Errorf("%w: %d %s, at most %d", ErrBundle, c.n, c.what, c.max)
		}
	}
	return nil
}

// Parse reads a bundle strictly. It verifies nothing.
func Parse(data []byte) (*Bundle, error) {
	var b Bundle
	if err := canon.Unmarshal(data, &b, canon.Limits{MaxBytes: MaxBytes, MaxDepth: maxDepth}); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBundle, err)
	}
	switch {
	case b.Type != Type:
		return nil, fmt.Errorf("%w: type is not %s", ErrBundle, Type)
	case b.Version != Version:
		return nil, fmt.Errorf("%w: version %d, this program reads %d", ErrBundle, b.Version, Version)
	}
	return &b, b.bounded()
}
