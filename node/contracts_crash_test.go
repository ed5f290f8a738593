// SPDX-License-Identifier: Apache-2.0

//go:build treaty_crash

package node_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/lifecycle"
	"github.com/treaty-node/treaty/node/store"
)

const crashContract = "TREATY_TEST_CRASH_CONTRACT"

// TestCrash_EndProcess is what is killed: it opens the node, revokes a contract and deletes what was received under it.
func TestCrash_EndProcess(t *testing.T) {
	id := os.Getenv(crashContract)
	if id == "" {
		return // the other test runs it
	}
	end(t, open(t, os.Getenv(crashDir), &shifted{}), id)
}

// end revokes and deletes what is left to be revoked and deleted.
func end(t *testing.T, n *node.Node, id string) {
	t.Helper()
	_, revoking := n.Revoke(t.Context(), id, httpapi.RevokeRequest{Reason: "over"})
	_, deleting := n.DeleteData(t.Context(), id)
	for _, err := range []error{revoking, deleting} {
		var e *httpapi.Error
		if err != nil && (!errors.As(err, &e) || e.Code != lifecycle.CodeRevoked && e.Code != lifecycle.CodeNothingHeld) {
			t.Fatal(err)
		}
	}
}

// TestCrash_End kills a buyer at every point that a revocation and a deletion pass: between the statement and its notice, before
// and after every commit. Afterwards there is either all of it or nothing, and the vendor learns of all of it.
func TestCrash_End(t *testing.T) {
	buyerDir, vendorDir := initPair(t, nil)
	vendor, buyer := start(t, vendorDir), start(t, buyerDir)
	points := []string{"revocation.stored", "deletion.stored", "store.commit.before", "store.commit.after"}
	var ids []string
	for i := range points {
		id := agree(t, buyer)
		give(t, id, "rows "+strconv.Itoa(i), byte(i+1), buyer, vendor, time.Now().Add(time.Hour))
		ids = append(ids, id)
	}
	buyer.stop(t)
	vendor.stop(t)
	kills := 0
	for i, point := range points {
		for pass := 1; pass < 20; pass++ {
			at := point + ":" + strconv.Itoa(pass)
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrash_EndProcess$")
			cmd.Env = append(os.Environ(), crashDir+"="+buyerDir, crashContract+"="+ids[i], node.CrashEnv+"="+at)
			killed := runToKill(t, cmd, at)
			whole(t, buyerDir, ids[i], at)
			if !killed {
				if pass == 1 {
					t.Errorf("%s is not passed", at)
				}
				break
			}
			kills++
		}
	}
	t.Logf("%d kills", kills)
	buyer, vendor = start(t, buyerDir), start(t, vendorDir)
	for _, id := range ids {
		end(t, buyer.Node, id)
	}
	for _, id := range ids {
		four := func(k httpapi.Contract) bool { return len(k.Statements) == 4 }
		buyer.until(t, id, four)
		if v := vendor.until(t, id, four); v.State != store.Revoked {
			t.Errorf("contract %s is %s at the vendor", id, v.State)
		}
		buyer.verified(t, id, "revoked", "deleted")
	}
}

// whole checks that a contract of a node that was killed is in a state before or after, and in none between.
func whole(t *testing.T, dir, id, at string) {
	t.Helper()
	n := open(t, dir, &shifted{})
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	k, err := n.Contract(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	d, err := n.Deletions(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	stated, events, pending := map[string]int{}, map[string]int{}, map[string]int{}
	for _, s := range k.Statements {
		stated[s.Type]++
	}
	err = n.Store().View(t.Context(), func(tx store.Tx) error {
		for _, typ := range []string{ledger.ContractRevoked, ledger.DataDeleted} {
			list, err := tx.FindEvents(store.EventFilter{Contract: id, Type: typ})
			if err != nil {
				return err
			}
			events[typ] = len(list)
		}
		notices, err := tx.ListNotices(store.NoticeFilter{})
		for _, x := range notices {
			var about struct {
				ContractID string `json:"contractId"`
			}
			if json.Unmarshal(x.Data, &about) == nil && about.ContractID == id {
				pending[x.Kind]++
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	revoked := map[bool]int{true: 1}[k.State == store.Revoked]
	deleted := map[bool]int{true: 1}[!d.Results[0].Held]
	if stated[contract.RevocationType] != revoked || events[ledger.ContractRevoked] != revoked || pending[lifecycle.KindRevocation] != revoked {
		t.Errorf("%s: %s with %v, events %v, notices %v", at, k.State, stated, events, pending)
	}
	if stated[contract.DeletionType] != deleted || events[ledger.DataDeleted] != deleted || pending[lifecycle.KindDeletion] != deleted {
		t.Errorf("%s: held %t with %v, events %v, notices %v", at, d.Results[0].Held, stated, events, pending)
	}
}
