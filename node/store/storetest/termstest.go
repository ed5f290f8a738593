// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/treaty-node/treaty/node/store"
)

func draws(t *testing.T, s store.Store) {
	drawn := func(id string) store.Drawn {
		return read(t, s, func(tx store.Tx) (store.Drawn, error) { return tx.GetDrawn(id) })
	}
	draw := func(d store.Draw) error {
		return s.Update(t.Context(), func(tx store.Tx) error { return tx.Draw("ctr_1", d) })
	}
	equal(t, drawn("ctr_1"), store.Drawn{})
	for _, c := range []struct {
		name string
		d    store.Draw
		err  error
		want store.Drawn
	}{
		{"no term", store.Draw{Rows: 5, Epsilon: 5, Window: 60}, nil, store.Drawn{}},
		{"first of a window", store.Draw{Window: 60, WindowLimit: 2}, nil, store.Drawn{Window: 60, WindowCalls: 1}},
		{"second, with rows", store.Draw{Window: 60, WindowLimit: 2, Rows: 7, RowLimit: 10}, nil, store.Drawn{Window: 60, WindowCalls: 2, Rows: 7}},
		{"one too many", store.Draw{Window: 60, WindowLimit: 2, Rows: 1, RowLimit: 10}, store.ErrRate, store.Drawn{Window: 60, WindowCalls: 2, Rows: 7}},
		{"a clock set back", store.Draw{Window: 0, WindowLimit: 2}, store.ErrRate, store.Drawn{Window: 60, WindowCalls: 2, Rows: 7}},
		{"more rows than are left", store.Draw{Window: 120, WindowLimit: 2, Rows: 4, RowLimit: 10}, store.ErrRows, store.Drawn{Window: 60, WindowCalls: 2, Rows: 7}},
		{"the last rows, next window", store.Draw{Window: 120, WindowLimit: 2, Rows: 3, RowLimit: 10}, nil, store.Drawn{Window: 120, WindowCalls: 1, Rows: 10}},
		{"privacy", store.Draw{Epsilon: 600, EpsilonLimit: 1000}, nil, store.Drawn{Window: 120, WindowCalls: 1, Rows: 10, Epsilon: 600}},
		{"privacy is short", store.Draw{Window: 120, WindowLimit: 2, Epsilon: 401, EpsilonLimit: 1000}, store.ErrEpsilon, store.Drawn{Window: 120, WindowCalls: 1, Rows: 10, Epsilon: 600}},
	} {
		if err := draw(c.d); !errors.Is(err, c.err) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.err)
		}
		if got := drawn("ctr_1"); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	if err := draw(store.Draw{Rows: -1, RowLimit: 10}); err == nil {
		t.Error("a negative draw")
	}
	must(t, s, func(tx store.Tx) error { return tx.ReturnRows("ctr_1", 4) })
	if got := drawn("ctr_1").Rows; got != 6 {
		t.Errorf("after 4 of 10 came back: %d", got)
	}
	must(t, s, func(tx store.Tx) error { return tx.ReturnRows("ctr_1", 100) })
	must(t, s, func(tx store.Tx) error { return tx.ReturnRows("ctr_2", 1) })
	if drawn("ctr_1").Rows != 0 || drawn("ctr_2") != (store.Drawn{}) {
		t.Error("more came back than was drawn")
	}
}

// drawRace: 64 callers overspend no term by one.
func drawRace(t *testing.T, s store.Store) {
	const callers, most = 64, 40
	for name, d := range map[string]store.Draw{
		"rate":    {Window: 60, WindowLimit: most},
		"rows":    {Rows: 10, RowLimit: 10 * most},
		"privacy": {Epsilon: 10, EpsilonLimit: 10*most + 9},
	} {
		var granted atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				err := s.Update(t.Context(), func(tx store.Tx) error { return tx.Draw("ctr_"+name, d) })
				switch {
				case err == nil:
					granted.Add(1)
				case !errors.Is(err, store.ErrRate) && !errors.Is(err, store.ErrRows) && !errors.Is(err, store.ErrEpsilon):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if granted.Load() != most {
			t.Errorf("%s: granted %d of %d", name, granted.Load(), most)
		}
	}
}

func shapes(t *testing.T, s store.Store) {
	list := func(buyer, dataset string) (names []string) {
		for _, v := range read(t, s, func(tx store.Tx) ([]store.Shape, error) { return tx.ListShapes(buyer, dataset) }) {
			if v.Buyer != buyer || v.Dataset != dataset || v.Digest != sum(string(v.Bytes)) {
				t.Errorf("%+v", v)
			}
			names = append(names, string(v.Bytes))
		}
		return names
	}
	put := func(buyer, dataset, name string, keep int) {
		must(t, s, func(tx store.Tx) error {
			return tx.PutShape(store.Shape{Buyer: buyer, Dataset: dataset, Digest: sum(name), Bytes: []byte(name)}, keep)
		})
	}
	put(peer, "orders", "one", 3)
	put(peer, "orders", "two", 3)
	put(peer, "orders", "three", 3)
	put(peer, "orders", "one", 3) // again: the newest now
	put(peer, "people", "one", 3)
	put(stranger, "orders", "one", 3)
	equal(t, list(peer, "orders"), []string{"one", "three", "two"})
	put(peer, "orders", "four", 3)
	equal(t, list(peer, "orders"), []string{"four", "one", "three"})
	must(t, s, func(tx store.Tx) error { return tx.DeleteShape(peer, "orders", sum("one")) })
	must(t, s, func(tx store.Tx) error { return tx.DeleteShape(peer, "orders", sum("one")) })
	equal(t, list(peer, "orders"), []string{"four", "three"})
	equal(t, list(peer, "people"), []string{"one"})
	equal(t, list(stranger, "orders"), []string{"one"})
}
