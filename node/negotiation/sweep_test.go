// SPDX-License-Identifier: Apache-2.0

package negotiation_test

import (
	"context"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/store"
)

// A conversation that cannot be read is told, and the others are ended all the same.
func TestSweepPassesByWhatItCannotRead(t *testing.T) {
	w := newWorld(t)
	id := w.begin()
	fatal(t, w.buyer.db.Update(context.Background(), func(tx store.Tx) error {
		return tx.PutConversation(store.Conversation{
			Own: w.buyer.id.String(), Peer: w.third.id.String(), ContextID: "unreadable", Role: "buyer", Phase: string(negotiation.PhaseMeta), State: []byte("{}"), Created: start.Add(-1), Updated: start.Add(-1),
		}, 0)
	}))
	w.Advance(2 * deadline)
	if err := w.buyer.svc.Sweep(t.Context()); err == nil || !strings.Contains(err.Error(), "unreadable") {
		t.Errorf("%v", err)
	}
	if p := w.buyer.session(t, id).Phase; p != negotiation.PhaseExpired {
		t.Errorf("phase %s", p)
	}
}
