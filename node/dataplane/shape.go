// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/query"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/store"
)

// shape is what a grouped query shows people by, and the earlier ones of this buyer on this dataset that it must be kept apart
// from.
type shape struct {
	spec    query.Spec
	own     query.Shape
	bytes   []byte
	digest  canon.Digest
	earlier []store.Shape
	flight  *flight
	shared  bool // another call of this shape was under way, and had released nothing, when this one began
}

// flights are the calls under way by shape. What one call of a shape remembered is nothing that another may rely on before it
// was kept apart and released, and the first must not take it back where another released.
type flights struct {
	mu sync.Mutex
	m  map[flightKey]*flight
}

type flightKey struct {
	buyer, dataset string
	digest         canon.Digest
}

type flight struct {
	calls    int
	fresh    atomic.Bool // one of them remembered the shape, which was not known before
	released bool        // one of them released an answer
}

// board joins the calls of the shape that are under way.
func (c *call) board() {
	if c.shape == nil {
		return
	}
	fs, key := &c.s.flights, c.flightKey()
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.m == nil {
		fs.m = map[flightKey]*flight{}
	}
	f := fs.m[key]
	if f == nil {
		f = new(flight)
		fs.m[key] = f
	}
	c.shape.flight, c.shape.shared = f, f.calls > 0 && !f.released
	f.calls++
}

// land leaves them, and has the shape forgotten with the last where it was new and none of them released anything.
func (c *call) land(ctx context.Context, released bool) error {
	if c.shape == nil {
		return nil
	}
	fs, f := &c.s.flights, c.shape.flight
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.released = f.released || released
	var err error
	if f.calls == 1 && f.fresh.Load() && !f.released {
		err = c.forget(ctx) // before another call of the shape begins
	}
	if f.calls--; f.calls == 0 {
		delete(fs.m, c.flightKey())
	}
	return err
}

func (c *call) flightKey() flightKey {
	return flightKey{c.v.contract.Parties.Buyer, c.req.Dataset, c.shape.digest}
}

// newShape returns nil where no shapes are remembered: under contracts before version 3, which say nothing of it, where every
// single person may be shown anyway, for rows, and where noise takes its place.
func newShape(spec query.Spec, c *contract.Contract) (*shape, error) {
	if c.Version < contract.Version3 || spec.MinGroup <= 1 || spec.Request.Rows() || spec.Noise != nil {
		return nil, nil
	}
	s := &shape{spec: spec, own: query.ShapeOf(&spec.Request, spec.RowFilter, spec.MinGroup)}
	var err error
	s.bytes, s.digest, err = s.own.Marshal()
	return s, err
}

// remember reads the earlier shapes and adds this one, in the transaction that reserves the call: of two queries at one time
// the second sees the first.
func (c *call) remember(tx store.Tx) error {
	if c.shape == nil {
		return nil
	}
	buyer, set := c.v.contract.Parties.Buyer, c.req.Dataset
	earlier, err := tx.ListShapes(buyer, set)
	if err != nil {
		return err
	}
	known := false
	others := make([]store.Shape, 0, len(earlier))
	for _, e := range earlier {
		if e.Digest.Equal(c.shape.digest) {
			known = true
		} else {
			others = append(others, e)
		}
	}
	if !known {
		c.shape.flight.fresh.Store(true)
	}
	// One that was answered before was kept apart from all others then.
	if !known || c.shape.shared {
		c.shape.earlier = others
	}
	return tx.PutShape(store.Shape{Buyer: buyer, Dataset: set, Digest: c.shape.digest, Bytes: c.shape.bytes}, query.MaxShapes)
}

// apart refuses a query whose groups of people differ from those of an earlier one by fewer than the minimum: see
// [query.Overlap].
func (c *call) apart(ctx context.Context) error {
	if c.shape == nil {
		return nil
	}
	// All of them together have the time of one query: each has its own limit in the source, and there may be many.
	ctx, cancel := context.WithTimeoutCause(ctx, c.s.slots.limits.Wait, source.ErrTime)
	defer cancel()
	for _, e := range c.shape.earlier {
		near, err := c.near(ctx, e)
		if err != nil {
			return err
		}
		if near {
			return c.refuse(ctx, contract.Refusal(contract.GroupTooSmall, c.v.contract,
				fmt.Sprintf("with an earlier answer of yours, this one would tell about fewer than %d subjects", c.shape.own.MinGroup)))
		}
	}
	return nil
}

func (c *call) near(ctx context.Context, e store.Shape) (bool, error) {
	other, err := query.ParseShape(e.Bytes)
	if err != nil {
		return false, fmt.Errorf("an earlier query: %w", err)
	}
	st, err := query.Overlap(c.shape.spec, other, c.shape.own)
	if errors.Is(err, query.ErrInvalid) {
		return false, nil // about columns that are no longer published: nothing of it can be asked again
	}
	if err != nil {
		return false, fmt.Errorf("an earlier query: %w", err)
	}
	rows, err := c.s.opts.Source.Query(ctx, st)
	if err != nil && errors.Is(context.Cause(ctx), ErrCancelled) {
		return false, ErrCancelled
	}
	if err != nil {
		return false, fmt.Errorf("comparing with an earlier query: %w", err)
	}
	return query.Close(rows)
}

// forget takes back what remember added, for a call that released nothing. It must not depend on a caller that hangs up.
func (c *call) forget(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	return c.s.opts.Store.Update(ctx, func(tx store.Tx) error {
		return tx.DeleteShape(c.v.contract.Parties.Buyer, c.req.Dataset, c.shape.digest)
	})
}
