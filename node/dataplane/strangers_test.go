// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/ledger"
)

// TestInvariant11_StrangersDoNotFillTheRecords: each recorded refusal is a signature, a receipt and an event for ever. Somebody
// without a contract, under any number of DIDs, must not decide how many there are. The buyer's own are all kept.
func TestInvariant11_StrangersDoNotFillTheRecords(t *testing.T) {
	f := newFixture(t)
	receipts := 0
	ask := func(c company) {
		_, err := f.svc.Query(t.Context(), c.caller(), f.input())
		if refused(t, err, contract.NoContract).Receipt != nil {
			receipts++
		}
	}
	for range strangerBurst + 30 {
		ask(f.other)
	}
	if n := len(f.events(t, ledger.CallRefused)); n != strangerBurst || receipts != n {
		t.Errorf("%d events and %d receipts for one stranger, want %d", n, receipts, strangerBurst)
	}
	f.clock.Advance(strangerEvery)
	ask(f.other)
	events := f.events(t, ledger.CallRefused)
	if last := string(events[len(events)-1].Data); len(events) != strangerBurst+1 || !strings.Contains(last, "30 more refusals") {
		t.Errorf("%d events, the last %s", len(events), last)
	}
	for range strangerBurst + 10 {
		_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input(func(in *datatools.QueryInput) { in.Purpose = "another" }))
		if refused(t, err, contract.PurposeMismatch).Receipt == nil {
			t.Error("a refusal to the buyer without receipt")
		}
	}
}

// Many DIDs share one budget.
func TestStrangersShareABudget(t *testing.T) {
	s, err := newStrangers()
	if err != nil {
		t.Fatal(err)
	}
	recorded := 0
	for i := range 10 * strangersBurst {
		if ok, _ := s.note(fmt.Sprintf("did:wba:stranger%d.test", i), start.Add(time.Duration(i)*time.Millisecond)); ok {
			recorded++
		}
	}
	if recorded < strangersBurst || recorded > strangersBurst+1 {
		t.Errorf("%d recorded, want %d", recorded, strangersBurst)
	}
}
