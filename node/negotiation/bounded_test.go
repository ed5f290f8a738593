// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/ledger"
)

// TestInvariant11_EventsHaveRoom: what a peer may say is more than an entry of the log may hold, and a message whose entry
// does not fit could never be taken: an offer for a wide dataset, or a hostile one, would leave the conversation hanging.
func TestInvariant11_EventsHaveRoom(t *testing.T) {
	long := func(n int) string { return strings.Repeat("\"", n) } // each is two bytes in JSON
	scope := contract.Scope{Operations: contract.Operations(), Purpose: long(contract.MaxPurpose)}
	for i := range contract.MaxColumns {
		scope.Columns = append(scope.Columns, fmt.Sprintf("%04d", i)+long(contract.MaxName-4))
	}
	offer := &contract.Offer{Scope: scope, ExpiresAt: "2026-11-30T12:00:00Z"}
	for range contract.MaxRemovals {
		text := long(contract.MaxText)
		offer.Removed = append(offer.Removed, contract.Removal{What: long(contract.MaxName), Asked: text, Offered: text, Rule: long(contract.MaxName), Why: text})
	}
	const node = "did:wba:vendorcorp.test:agents:steward:e1_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, e := range []ledger.Entry{
		{Type: ledger.OfferReceived, Data: offerEvent(offer, canon.Sum(nil))},
		{Type: ledger.ProposalReceived, Data: proposal(&scope, long(contract.MaxText))},
	} {
		e.Context, e.Peer = strings.Repeat("c", 86), node
		if _, err := ledger.Next(ledger.Genesis(node), node, "treaty", at, e); err != nil {
			t.Errorf("%s: %v", e.Type, err)
		}
	}
	// What fits is all there.
	small := &contract.Offer{Scope: contract.Scope{Columns: []string{"region"}}, Removed: []contract.Removal{{What: "column", Asked: "email", Why: "pii"}}}
	if got := offerEvent(small, canon.Sum(nil)); len(got.Removed) != 1 || len(got.Columns) != 1 || got.Removed[0].Asked != "email" {
		t.Errorf("%+v", got)
	}
	if last := offerEvent(offer, canon.Sum(nil)).Removed; !strings.Contains(last[len(last)-1].Why, "more") {
		t.Errorf("%+v", last[len(last)-1])
	}
}
