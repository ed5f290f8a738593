// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"
	"time"

	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/store"
)

// A conversation whose state cannot be read keeps nothing else from going on after a restart.
func TestStartsWithAnUnreadableConversation(t *testing.T) {
	buyerDir, vendorDir := initPair(t, nil)
	start(t, vendorDir)
	buyer := start(t, buyerDir)
	err := buyer.Store().Update(t.Context(), func(tx store.Tx) error {
		return tx.PutConversation(store.Conversation{
			Own: buyer.Status().DID, Peer: "did:wba:vendorcorp.test", ContextID: "AAAAAAAAAAAAAAAAAAAAAA", Role: "buyer",
			Phase: "asking", State: []byte("{"), Created: time.Now(), Updated: time.Now(),
		}, 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	buyer.stop(t)
	buyer = start(t, buyerDir)
	n, err := buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: "vendorcorp.test"})
	if err != nil {
		t.Fatal(err)
	}
	if n = buyer.wait(t, n.ContextID); n.Phase != "in_force" {
		t.Errorf("phase %s: %s %s", n.Phase, n.Code, n.Reason)
	}
}
