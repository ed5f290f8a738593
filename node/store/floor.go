// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/treaty-node/treaty/node/internal/clock"
)

// floorKey is the setting that keeps the highest security time seen.
const floorKey = "clock.highest"

// ClockFloor keeps a secure clock's maximum in s, for all processes of the company.
func ClockFloor(s Store) clock.Floor { return floor{s} }

type floor struct{ s Store }

func (f floor) Load(ctx context.Context) (t time.Time, err error) {
	err = f.s.View(ctx, func(tx Tx) error { t, err = loadFloor(tx); return err })
	return t, err
}

func (f floor) Raise(ctx context.Context, t time.Time) (kept time.Time, err error) {
	err = f.s.Update(ctx, func(tx Tx) error {
		if kept, err = loadFloor(tx); err != nil || !t.After(kept) {
			return err
		}
		kept = t.UTC().Round(0)
		return tx.PutSetting(floorKey, kept.Format(time.RFC3339Nano))
	})
	return kept, err
}

func loadFloor(tx Tx) (time.Time, error) {
	v, err := tx.GetSetting(floorKey)
	if errors.Is(err, ErrNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	t, err := time.Parse(time.RFC3339Nano, v)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: setting %s is not a time", ErrCorrupt, floorKey)
	}
	return t, nil
}
