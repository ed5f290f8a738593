// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// ErrPinConflict is what Pins.Add returns when the latest version is not the one
// that the caller saw.
var ErrPinConflict = errors.New("resolver: pin changed meanwhile")

// ErrNotHeld is returned by Confirm for a version that is not waiting.
var ErrNotHeld = errors.New("resolver: no such version is held")

// PinState tells whether a version counts.
type PinState string

const (
	// PinAccepted: the version was verified and stands in the history.
	PinAccepted PinState = "accepted"
	// PinHeld: the version was verified, but waits for an operator's confirmation.
	PinHeld PinState = "held"
)

// Pin is one version of a DID document, as it was accepted or is being held.
type Pin struct {
	DID          did.DID
	Hash         canon.Digest // did.Document.Hash
	Raw          []byte       // the document as received, at most 64 KiB
	ProofCreated time.Time    // of the document's proof; zero if it has none
	Deactivated  bool
	FirstSeen    time.Time // by this node
	State        PinState
}

// Pins stores what this node has accepted of other DIDs' documents. It is the
// memory that makes rollback and un-deactivation visible, so its guarantees are
// part of the resolver's:
//
//   - Durability: when Add returns nil, the version survives a crash. The
//     document is not used before that.
//   - Compare-and-swap: Add succeeds only if, in the same transaction, the latest
//     accepted version is the one that the caller compared with. Of two
//     processes that accept different documents at once, one gets ErrPinConflict.
//   - Order: versions of one DID are kept in the order of Add, whatever their
//     times say, and none is ever changed or removed.
//
// An implementation is safe for concurrent use. It copies Raw. An error other
// than ErrPinConflict makes the resolution fail (closed).
type Pins interface {
	// Latest returns the newest accepted version of id, nil if there is none.
	Latest(ctx context.Context, id did.DID) (*Pin, error)
	// Add appends an accepted version (State PinAccepted) after the version with
	// hash prev, the zero digest if p is to be the first. It returns
	// ErrPinConflict if prev is not the latest, or p.Hash is already in the
	// history of the DID. If the DID's held version has this hash, it is no longer
	// held; the two happen together or not at all.
	Add(ctx context.Context, p Pin, prev canon.Digest) error
	// Hold keeps p (State PinHeld) for an operator. There is at most one held
	// version of a DID: a new one replaces it, and one with the same hash keeps
	// its first FirstSeen.
	Hold(ctx context.Context, p Pin) error
	// Held returns the held version of id, nil if there is none.
	Held(ctx context.Context, id did.DID) (*Pin, error)
	// History returns the accepted versions of id, oldest first.
	History(ctx context.Context, id did.DID) ([]Pin, error)
}

// MemoryPins are Pins that last as long as the process. A node that forgets its
// pins trusts on first use again after each start: use them in tests and in
// commands that look at a document once.
type MemoryPins struct {
	mu   sync.Mutex
	pins map[did.DID]*memoryPin
}

type memoryPin struct {
	accepted []Pin
	held     *Pin
}

// NewMemoryPins returns an empty store.
func NewMemoryPins() *MemoryPins { return &MemoryPins{pins: map[did.DID]*memoryPin{}} }

var _ Pins = (*MemoryPins)(nil)

func (m *MemoryPins) of(id did.DID) *memoryPin {
	if m.pins[id] == nil {
		m.pins[id] = &memoryPin{}
	}
	return m.pins[id]
}

// Latest implements Pins.
func (m *MemoryPins) Latest(_ context.Context, id did.DID) (*Pin, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pins[id]; p != nil && len(p.accepted) > 0 {
		return new(p.accepted[len(p.accepted)-1]).clone(), nil
	}
	return nil, nil
}

// Add implements Pins.
func (m *MemoryPins) Add(_ context.Context, p Pin, prev canon.Digest) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	entry := m.of(p.DID)
	var latest canon.Digest
	if n := len(entry.accepted); n > 0 {
		latest = entry.accepted[n-1].Hash
	}
	known := slices.ContainsFunc(entry.accepted, func(v Pin) bool { return v.Hash == p.Hash })
	if latest != prev || known {
		return ErrPinConflict
	}
	entry.accepted = append(entry.accepted, *p.clone())
	if entry.held != nil && entry.held.Hash == p.Hash {
		entry.held = nil
	}
	return nil
}

// Hold implements Pins.
func (m *MemoryPins) Hold(_ context.Context, p Pin) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	entry := m.of(p.DID)
	if entry.held == nil || entry.held.Hash != p.Hash {
		entry.held = p.clone()
	}
	return nil
}

// Held implements Pins.
func (m *MemoryPins) Held(_ context.Context, id did.DID) (*Pin, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pins[id]; p != nil && p.held != nil {
		return p.held.clone(), nil
	}
	return nil, nil
}

// History implements Pins.
func (m *MemoryPins) History(_ context.Context, id did.DID) ([]Pin, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Pin
	if p := m.pins[id]; p != nil {
		for i := range p.accepted {
			out = append(out, *p.accepted[i].clone())
		}
	}
	return out, nil
}

func (p *Pin) clone() *Pin {
	c := *p
	c.Raw = bytes.Clone(p.Raw)
	return &c
}
