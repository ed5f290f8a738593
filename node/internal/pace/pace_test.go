// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"fmt"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
)

func peer(t *testing.T, n int) did.DID {
	t.Helper()
	id, err := did.Parse(fmt.Sprintf("did:wba:peer%d.test", n))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestHourly(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	allowed := func(h *Hourly, peer did.DID, tries int) (n int) {
		for range tries {
			if h.Allow(peer, now) {
				n++
			}
		}
		return n
	}
	h := NewHourly(40)
	if n := allowed(h, peer(t, 0), 50); n != 10 {
		t.Errorf("%d at once", n)
	}
	now = now.Add(30 * time.Minute)
	if n := allowed(h, peer(t, 0), 50); n != 10 {
		t.Errorf("%d after a while", n)
	}
	all := 0
	now = now.Add(time.Hour)
	for i := range 100 {
		all += allowed(h, peer(t, i), 10)
	}
	if all != 160 {
		t.Errorf("%d of everybody", all)
	}
	// However many there are, no more than so many are remembered, and all together get no more.
	for i := range 2*maxPeers + 1 {
		if h.Allow(peer(t, i), now) || len(h.peers) > maxPeers {
			t.Fatalf("peer %d; %d are remembered", i, len(h.peers))
		}
	}
}
