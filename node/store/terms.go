// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"

	"github.com/treaty-node/treaty/did/canon"
)

var (
	// ErrRate: the window of the contract's rate is full.
	ErrRate = errors.New("store: rate exceeded")
	// ErrRows: the row budget holds fewer rows than asked for.
	ErrRows = errors.New("store: row budget exceeded")
	// ErrEpsilon: the privacy budget holds less than the query takes.
	ErrEpsilon = errors.New("store: privacy budget exceeded")
)

// Draw is what one call takes out of a contract beside the call itself. A limit of 0 means that the contract has no such term,
// and nothing is counted.
type Draw struct {
	Window      int64 // beginning of the rate's window, in seconds since 1970
	WindowLimit int64 // calls in it

	Rows, RowLimit        int64
	Epsilon, EpsilonLimit int64 // millionths
}

// Drawn is what calls have taken.
type Drawn struct {
	Window      int64 // the newest window in which there was a call
	WindowCalls int64 // in it
	Rows        int64
	Epsilon     int64 // millionths
}

// Shape is what a query showed people by: see the data plane. Bytes are opaque here.
type Shape struct {
	Buyer, Dataset string
	Digest         canon.Digest
	Bytes          []byte
}

// Terms counts what contracts limit beside their calls, and remembers what was asked.
type Terms interface {
	// Draw takes all of d or nothing: ErrRate, ErrRows or ErrEpsilon. A window before the newest counts as the newest, so
	// that a clock that is set back opens none. Roll the transaction back to give everything back.
	Draw(contractID string, d Draw) error
	// GetDrawn returns the zero Drawn for a contract that nothing was drawn from.
	GetDrawn(contractID string) (Drawn, error)
	// ReturnRows gives back rows that were drawn and did not come, at most those that were drawn.
	ReturnRows(contractID string, n int64) error
	// PutShape remembers a shape as the newest of its buyer and dataset, and forgets the oldest beyond keep.
	PutShape(s Shape, keep int) error
	// DeleteShape forgets one; nil when there is none.
	DeleteShape(buyer, dataset string, d canon.Digest) error
	// ListShapes is ordered from the newest.
	ListShapes(buyer, dataset string) ([]Shape, error)
}
