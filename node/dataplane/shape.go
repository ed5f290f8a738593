// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"fmt"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/query"
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
	fresh   bool // remembered by this call
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
	c.shape.fresh = true
	for _, e := range earlier {
		if e.Digest.Equal(c.shape.digest) {
			c.shape.fresh = false // asked before, and kept apart from all others then
		}
	}
	if c.shape.fresh {
		c.shape.earlier = earlier
	}
	return tx.PutShape(store.Shape{Buyer: buyer, Dataset: set, Digest: c.shape.digest, Bytes: c.shape.bytes}, query.MaxShapes)
}

// apart refuses a query whose groups of people differ from those of an earlier one by fewer than the minimum: see
// [query.Overlap].
func (c *call) apart(ctx context.Context) error {
	if c.shape == nil {
		return nil
	}
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
	if err != nil {
		return false, fmt.Errorf("comparing with an earlier query: %w", err)
	}
	return query.Close(rows)
}

// forget takes back what remember added, for a call that released nothing. It must not depend on a caller that hangs up.
func (c *call) forget(ctx context.Context) error {
	if c.shape == nil || !c.shape.fresh {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	return c.s.opts.Store.Update(ctx, func(tx store.Tx) error {
		return tx.DeleteShape(c.v.contract.Parties.Buyer, c.req.Dataset, c.shape.digest)
	})
}
