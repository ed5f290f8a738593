// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/node/store"
)

var _ resolver.Pins = (*DB)(nil)

const pinColumns = "did, hash, raw, proof_created, deactivated, first_seen"

func scanPin(state resolver.PinState) func(row) (*resolver.Pin, error) {
	return func(r row) (*resolver.Pin, error) {
		p := &resolver.Pin{State: state}
		var id string
		var created, seen int64
		if err := r.Scan(&id, (*digest)(&p.Hash), &p.Raw, &created, &p.Deactivated, &seen); err != nil {
			return nil, err
		}
		var err error
		if p.DID, err = did.Parse(id); err != nil {
			return nil, fmt.Errorf("%w: pin: %w", store.ErrCorrupt, err)
		}
		p.ProofCreated, p.FirstSeen = instant(created), instant(seen)
		return p, nil
	}
}

func (t *tx) latestPin(id did.DID) (*resolver.Pin, error) {
	return orNil(one(t, scanPin(resolver.PinAccepted), "SELECT "+pinColumns+" FROM pins WHERE did = ? ORDER BY n DESC LIMIT 1", id.String()))
}

// orNil is how resolver.Pins spells "none".
func orNil(p *resolver.Pin, err error) (*resolver.Pin, error) {
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return p, err
}

// Latest implements resolver.Pins.
func (db *DB) Latest(ctx context.Context, id did.DID) (p *resolver.Pin, err error) {
	err = db.run(ctx, db.read, false, func(t *tx) error { p, err = t.latestPin(id); return err })
	return p, err
}

// Held implements resolver.Pins.
func (db *DB) Held(ctx context.Context, id did.DID) (p *resolver.Pin, err error) {
	err = db.run(ctx, db.read, false, func(t *tx) error {
		p, err = orNil(one(t, scanPin(resolver.PinHeld), "SELECT "+pinColumns+" FROM pins_held WHERE did = ?", id.String()))
		return err
	})
	return p, err
}

// History implements resolver.Pins.
func (db *DB) History(ctx context.Context, id did.DID) (list []resolver.Pin, err error) {
	err = db.run(ctx, db.read, false, func(t *tx) error {
		pins, err := all(t, scanPin(resolver.PinAccepted), "SELECT "+pinColumns+" FROM pins WHERE did = ? ORDER BY n", id.String())
		for _, p := range pins {
			list = append(list, *p)
		}
		return err
	})
	return list, err
}

// Add implements resolver.Pins: the comparison and the write are one transaction under the write lock.
func (db *DB) Add(ctx context.Context, p resolver.Pin, prev canon.Digest) error {
	return db.update(ctx, false, func(t *tx) error {
		latest, err := t.latestPin(p.DID)
		if err != nil {
			return err
		}
		var have canon.Digest
		if latest != nil {
			have = latest.Hash
		}
		if have != prev {
			return resolver.ErrPinConflict
		}
		n, err := t.exec("INSERT INTO pins ("+pinColumns+") VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", pinValues(p)...)
		if err != nil {
			return err
		}
		if n == 0 {
			return resolver.ErrPinConflict // this version is in the history
		}
		_, err = t.exec("DELETE FROM pins_held WHERE did = ? AND hash = ?", p.DID.String(), p.Hash[:])
		return err
	})
}

// Hold implements resolver.Pins.
func (db *DB) Hold(ctx context.Context, p resolver.Pin) error {
	return db.update(ctx, false, func(t *tx) error {
		_, err := t.exec("INSERT INTO pins_held ("+pinColumns+`) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (did) DO UPDATE SET hash = excluded.hash, raw = excluded.raw, proof_created = excluded.proof_created,
				deactivated = excluded.deactivated, first_seen = excluded.first_seen
			WHERE hash <> excluded.hash`, pinValues(p)...)
		return err
	})
}

func pinValues(p resolver.Pin) []any {
	return []any{p.DID.String(), p.Hash[:], p.Raw, micros(p.ProofCreated), p.Deactivated, micros(p.FirstSeen)}
}
