// SPDX-License-Identifier: Apache-2.0

// Package ledger is a company's event log: what happened, in one order, in a form that shows when it was altered.
//
// Every process of a company (node, data plane, command line) appends to one log in the company's store, each event in the
// same transaction as the effect it records (invariant 15). An event's hash covers its canonical form and the hash
// before it; the first names a genesis value bound to the node's DID. [VerifyChain] therefore finds any event that was
// altered, dropped, inserted or moved, and, against a [Head] that somebody else kept, a log that was cut short.
//
// The hash is over the hash before and a digest of the content, so that a segment can be shown with events of other
// negotiations left out: [Redacted] has the digest in the content's place and the chain can still be followed.
//
// What this does not do: whoever holds the whole log and no head of it was ever shown to anybody can write another one.
// Heads leave the company inside signed activations, which is what makes the log evidence.
//
// Views are derived: [Runs] folds events into negotiations, and each row names the events it came from (invariant 14).
// Nothing here reads a clock, a disk or a network.
package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/treaty-node/treaty/did/canon"
)

// Bounds of one event.
const (
	MaxEventBytes = 64 << 10 // canonical form, hash excluded
	maxDepth      = 8
	maxSeq        = 1<<53 - 1 // what a JSON number carries exactly
	timeLayout    = "2006-01-02T15:04:05.000Z"
)

// Labels that separate the digests of this package from all others.
const (
	genesisLabel = "treaty event log genesis v1"
	contentLabel = "treaty event content v1"
	eventLabel   = "treaty event v1"
)

var (
	// ErrChain is wrapped by every finding of [VerifyChain] and [VerifyTo].
	ErrChain = errors.New("ledger: the event chain does not hold")
	// ErrEntry is wrapped when an entry cannot become an event: unknown type, members its type does not have, or too large.
	ErrEntry = errors.New("ledger: entry refused")
)

// Entry is what a caller wants recorded. The log adds order, time, node and process.
type Entry struct {
	Type     string // one of the constants of this package
	Context  string // contextId of the conversation, if any
	Contract string // contract id, if any
	Peer     string // DID of the other party, if any
	Data     any    // the type's data structure (see the constants), or anything that encodes to exactly its members
}

// Event is one entry in its place in the log.
type Event struct {
	Seq      uint64          `json:"seq"`  // 1, 2, 3, … without gaps
	Time     string          `json:"time"` // UTC, RFC 3339 with milliseconds and Z
	Node     string          `json:"node"` // DID of the company whose log this is
	Process  string          `json:"process"`
	Type     string          `json:"type"`
	Context  string          `json:"contextId,omitempty"`
	Contract string          `json:"contract,omitempty"`
	Peer     string          `json:"peer,omitempty"`
	Data     json.RawMessage `json:"data"` // canonical JSON object
	Prev     canon.Digest    `json:"prev"`
	Hash     canon.Digest    `json:"hash"` // over prev and the digest of all other members
}

// Head is a place in a log: the last event's sequence number and hash. It commits to everything before it.
type Head struct {
	Seq  uint64       `json:"seq"`
	Hash canon.Digest `json:"hash"`
}

// Genesis is the head of node's empty log.
func Genesis(node string) Head {
	return Head{Hash: canon.Hash(genesisLabel, []byte(node))}
}

// Head is the place right after e.
func (e Event) Head() Head { return Head{Seq: e.Seq, Hash: e.Hash} }

// Next makes the event that follows prev. It refuses ([ErrEntry]) a type it does not know and data that is not what the
// type declares, so that every event in a log can be read back and described.
func Next(prev Head, node, process string, at time.Time, e Entry) (Event, error) {
	if node == "" || process == "" {
		return Event{}, fmt.Errorf("%w: node and process must be named", ErrEntry)
	}
	if prev.Seq >= maxSeq {
		return Event{}, fmt.Errorf("%w: the log is full", ErrEntry)
	}
	data, err := encodeData(e.Type, e.Data)
	if err != nil {
		return Event{}, err
	}
	ev := Event{
		Seq: prev.Seq + 1, Time: at.UTC().Format(timeLayout), Node: node, Process: process,
		Type: e.Type, Context: e.Context, Contract: e.Contract, Peer: e.Peer, Data: data, Prev: prev.Hash,
	}
	if ev.Hash, err = ev.digest(); err != nil {
		return Event{}, fmt.Errorf("%w: %s: %w", ErrEntry, e.Type, err)
	}
	return ev, nil
}

// content is the digest of everything in e but its place in the chain.
func (e *Event) content() (canon.Digest, error) {
	// The same members as Event, without prev and hash, in canonical order, so that the work is one encoding.
	body, err := canon.Marshal(struct {
		Context  string          `json:"contextId,omitempty"`
		Contract string          `json:"contract,omitempty"`
		Data     json.RawMessage `json:"data"`
		Node     string          `json:"node"`
		Peer     string          `json:"peer,omitempty"`
		Process  string          `json:"process"`
		Seq      uint64          `json:"seq"`
		Time     string          `json:"time"`
		Type     string          `json:"type"`
	}{e.Context, e.Contract, e.Data, e.Node, e.Peer, e.Process, e.Seq, e.Time, e.Type})
	if err != nil {
		return canon.Digest{}, err
	}
	if len(body) > MaxEventBytes {
		return canon.Digest{}, fmt.Errorf("%d bytes, at most %d", len(body), MaxEventBytes)
	}
	return canon.Hash(contentLabel, body), nil
}

// digest is the hash the event must carry.
func (e *Event) digest() (canon.Digest, error) {
	content, err := e.content()
	if err != nil {
		return canon.Digest{}, err
	}
	return link(e.Prev, content), nil
}

// link is the hash of an event with this content after prev.
func link(prev, content canon.Digest) canon.Digest {
	return canon.Hash(eventLabel, prev[:], content[:])
}

// At is the event's time; the zero time when it is not one this package wrote.
func (e Event) At() time.Time {
	t, err := time.Parse(timeLayout, e.Time)
	if err != nil {
		return time.Time{}
	}
	return t
}
