// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/treaty-node/treaty/node/store"
)

func sessionKeys(t *testing.T, s store.Store) {
	err := s.Update(t.Context(), func(tx store.Tx) error {
		return errors.Join(tx.PutSessionKeys("a", []byte("sealed")), tx.PutSessionKeys("b", []byte("others")))
	})
	if err != nil {
		t.Fatal(err)
	}
	put := func(id string, sealed []byte) error {
		return s.Update(t.Context(), func(tx store.Tx) error { return tx.PutSessionKeys(id, sealed) })
	}
	if err := put("a", []byte("again")); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a second time: %v", err)
	}
	if err := put("c", make([]byte, store.MaxSessionKeys+1)); err == nil {
		t.Error("too much was kept")
	}
	err = s.Update(t.Context(), func(tx store.Tx) error {
		if got, err := tx.GetSessionKeys("a"); err != nil || !bytes.Equal(got, []byte("sealed")) {
			t.Errorf("%q, %v", got, err)
		}
		return errors.Join(tx.DeleteSessionKeys("a"), tx.DeleteSessionKeys("a"), tx.DeleteSessionKeys("nobody's"))
	})
	if err != nil {
		t.Fatal(err)
	}
	err = s.View(t.Context(), func(tx store.Tx) error {
		if _, err := tx.GetSessionKeys("a"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("deleted: %v", err)
		}
		if got, err := tx.GetSessionKeys("b"); err != nil || string(got) != "others" {
			t.Errorf("another conversation's: %q, %v", got, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
