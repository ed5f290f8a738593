// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/store/sqlite"
)

// Receipts are given out beyond what one list of the store holds, in their order, up to the bound that is documented.
func TestReceipts_AllPages(t *testing.T) {
	db, err := sqlite.Create(t.Context(), filepath.Join(t.TempDir(), "treaty.db"), sqlite.Options{Node: "did:wba:vendorcorp.test", Process: "node"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	now := time.Unix(1_780_000_000, 0).UTC()
	const most = httpapi.MaxReceipts + 5
	err = db.Update(t.Context(), func(tx store.Tx) error {
		rec := store.ContractRecord{ID: "ctr_1", Digest: canon.Sum(nil), Role: "vendor", Bytes: []byte("{}"), State: store.AwaitingActivation, ContextID: "c", Peer: "p", Created: now}
		if err := tx.PutContract(rec); err != nil {
			return err
		}
		for i := range most {
			if err := tx.PutReceipt(store.Receipt{ID: fmt.Sprint(most - i), ContractID: "ctr_1", Bytes: fmt.Append(nil, i), Created: now}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := (&Node{db: db}).Receipts(t.Context(), "ctr_1")
	if err != nil || len(got) != httpapi.MaxReceipts {
		t.Fatalf("%d receipts, %v", len(got), err)
	}
	for i, r := range got {
		if string(r) != fmt.Sprint(i) {
			t.Fatalf("receipt %d is %s", i, r)
		}
	}
}
