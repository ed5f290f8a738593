// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"errors"
	"sync"
	"testing"

	"github.com/treaty-node/treaty/node/store"
)

// relaxed: an update whose durability may wait is an update in every other way, and takes turns with the others.
func relaxed(t *testing.T, s store.Store) {
	ctx := t.Context()
	boom := errors.New("boom")
	if err := s.UpdateRelaxed(ctx, func(tx store.Tx) error {
		return errors.Join(tx.PutSetting("a", "1"), boom)
	}); !errors.Is(err, boom) {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	const each = 20
	for i := range 4 {
		update := s.Update
		if i%2 == 0 {
			update = s.UpdateRelaxed
		}
		done.Go(func() {
			for range each {
				if err := update(ctx, func(tx store.Tx) error { _, err := tx.Reserve("c", 4*each); return err }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
	if err := s.UpdateRelaxed(ctx, func(tx store.Tx) error { _, err := tx.Reserve("c", 4*each); return err }); !errors.Is(err, store.ErrBudget) {
		t.Errorf("one more than the budget: %v", err)
	}
	if err := s.View(ctx, func(tx store.Tx) error {
		used, err := tx.GetUsage("c")
		if used != 4*each {
			t.Errorf("%d used", used)
		}
		if _, missing := tx.GetSetting("a"); !errors.Is(missing, store.ErrNotFound) {
			t.Errorf("what was rolled back is there: %v", missing)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
