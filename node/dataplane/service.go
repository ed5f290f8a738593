// SPDX-License-Identifier: Apache-2.0

// Package dataplane answers queries under contracts, and refuses everything else.
//
// Guarantees
//
//   - No row is read before [contract.Evaluate] says yes (invariant 7): the engine is called at one place, after the decision
//     and after a call was taken out of the contract's budget. That is on disk at the latest with the receipt: a power cut in
//     between gives the call back, and nothing was released.
//   - The store is trusted for freshness and not for grants. A contract counts only when its bytes have the recorded digest,
//     the buyer's and the vendor's binding keys signed it, and the vendor's activation, made in time, is there. All of it is
//     checked here against the caller's own verified document and this process's own copy of the vendor's. A party that has
//     moved to another DID is followed in the documents, fetched and verified by this process: a succession in the store grants
//     nothing, but one with a compromise takes away. A verdict is remembered for exactly these bytes, documents and revocations.
//   - A revocation that this process has found on record, calls, epsilon and the calls of a rate's window that were used, and rows
//     that left, stay so for it whatever becomes of the store; one that holds fewer revocations than before is not served from at all.
//   - The operator's [Ceiling] stands above every contract, and nothing in the store can lift it.
//   - Revocation and expiry are checked again in the transaction that records the signed receipt and the event, and only after
//     it is durable does the first byte of a result leave.
//   - One buyer cannot take all places of the engine, and waiting calls are bounded; a call waits before it is charged.
//   - Who has no contract can make the records grow only so fast, however many DIDs it has.
//   - A refusal is a [*Refusal] with a code and a text for the caller; any other error is a fault and says nothing about data.
//
// A call that ran and was then refused (GROUP_TOO_SMALL, or revoked meanwhile), failed or was interrupted stays taken out of
// the budget: otherwise probing would be free.
//
// What it does not do: it does not negotiate, and imports nothing that does. It cannot enforce purpose and retention after the
// release; the receipt is the evidence.
package dataplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
	"github.com/treaty-node/treaty/node/store"
)

// Store is what the service needs of the company's store.
type Store interface {
	Update(ctx context.Context, fn func(store.Tx) error) error
	UpdateRelaxed(ctx context.Context, fn func(store.Tx) error) error
	View(ctx context.Context, fn func(store.Tx) error) error
}

// Options of a Service. All fields but Lines, Ceiling, MaxRows, Revoked, Remember, Slots, Log and Now are needed.
type Options struct {
	Store    Store
	Source   source.Source
	Datasets dataset.Config
	Signer   did.Signer      // the receipt key; its DID is the data plane's identity
	Vendors  []*did.Document // whose contracts are served; verified copies of this process's own
	Lines    Lines           // follows parties to their successors; nil: nobody moves
	Ceiling  Ceiling
	// NoiseSecret seeds the noise of contracts that want it; without one, nothing leaves under them. It must stay here: whoever
	// has it can take the noise off.
	NoiseSecret []byte
	// Revoked are contracts that an earlier process has found revoked, and Remember keeps one more for the next; nil: they are known
	// to this process only. Both are this process's own: what is taken out of the store stays here.
	Revoked  []string
	Remember func(contractID string) error
	MaxRows  int // most rows of an answer; default and limit contract.MaxLimit
	Slots    Slots
	Log      *slog.Logger
	Now      func() time.Time
}

// Lines verifies successions in the documents themselves. [succession.Service] is one.
type Lines interface {
	Follow(ctx context.Context, from did.DID) (*did.Line, error)
	Stands(ctx context.Context, from, id did.DID) (*did.Line, error)
}

// Service decides about calls and answers them. It is safe for concurrent use.
type Service struct {
	opts     Options
	id       string // own DID
	schemas  map[string]*contract.Schema
	digests  map[string]canon.Digest // of the schemas
	vendors  map[string]*did.Document
	verdicts *lru.Cache[canon.Digest, *verdict]
	known    *lru.Cache[party, known]
	seen     *seen

	strangers *strangers
	slots     *slots
	flights   flights
}

// ErrOptions: the service cannot be built from what was given.
var ErrOptions = errors.New("dataplane: options")

// maxVerdicts bounds the verdicts that are remembered.
const maxVerdicts = 4096

// New checks the options against each other: every dataset must be loaded with the types that it publishes.
func New(o Options) (*Service, error) {
	if o.Store == nil || o.Source == nil || o.Signer == nil || len(o.Vendors) == 0 {
		return nil, fmt.Errorf("%w: store, source, signer and at least one vendor are needed", ErrOptions)
	}
	id, _, err := did.SplitKeyID(o.Signer.KeyID())
	if err != nil {
		return nil, fmt.Errorf("%w: the receipt key: %w", ErrOptions, err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxRows <= 0 || o.MaxRows > contract.MaxLimit {
		o.MaxRows = contract.MaxLimit
	}
	s := &Service{
		opts: o, id: id.String(), schemas: map[string]*contract.Schema{}, digests: map[string]canon.Digest{}, vendors: map[string]*did.Document{},
	}
	if s.verdicts, err = lru.New[canon.Digest, *verdict](maxVerdicts); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if s.known, err = lru.New[party, known](maxVerdicts); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if s.seen, err = newSeen(o.Revoked, o.Remember, func(err error) { o.Log.Error("remembering a revocation", "error", err) }); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if s.strangers, err = newStrangers(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	for _, doc := range o.Vendors {
		s.vendors[doc.ID().String()] = doc
	}
	s.slots = newSlots(o.Slots, o.Now)
	for _, name := range slices.Sorted(maps.Keys(o.Datasets)) {
		if err := s.publish(name); err != nil {
			return nil, fmt.Errorf("%w: dataset %s: %w", ErrOptions, name, err)
		}
	}
	return s, o.Ceiling.check(o.Datasets)
}

// publish makes a dataset's schema and holds it against what is loaded.
func (s *Service) publish(name string) error {
	schema, err := s.opts.Datasets.Schema(name)
	if err != nil {
		return err
	}
	table, err := s.opts.Source.Table(name)
	if err != nil {
		return err
	}
	for _, c := range schema.Columns {
		if t, ok := table.Columns[c.Name]; !ok || dataset.TypeName(t) != c.Type {
			return fmt.Errorf("column %q is not loaded as %s", c.Name, c.Type)
		}
	}
	if s.digests[name], err = schema.Digest(); err != nil {
		return err
	}
	s.schemas[name] = schema
	return nil
}

// DID is the data plane's own identity.
func (s *Service) DID() string { return s.id }

// Refusal is a decision of the data owner. Its Error is "CODE: text" and goes to the caller word for word.
type Refusal struct {
	Decision contract.Decision
	Receipt  []byte // signed receipt of the refusal; nil for a stranger that was refused too often to be recorded
}

func (r *Refusal) Error() string { return r.Decision.String() }
