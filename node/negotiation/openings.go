// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/treaty-node/treaty/did"
)

// openings bounds how fast conversations are opened here. An ended one stays in the store with its messages, as evidence; a
// buyer that opens and withdraws without end must not be able to fill the disk with that. The count is this process's own
// and begins anew with it.
type openings struct {
	perHour int // of one buyer; everybody together may open sixteen times as many

	mu    sync.Mutex
	all   *rate.Limiter
	peers map[did.DID]*rate.Limiter
}

const (
	defaultOpenPerHour = 240
	openShare          = 16
	maxOpeners         = 4096 // buyers that are told apart
)

// allow takes one opening of peer, if there is one left.
func (o *openings) allow(peer did.DID, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil || len(o.peers) >= maxOpeners {
		o.peers = map[did.DID]*rate.Limiter{}
	}
	if o.all == nil {
		o.all = hourly(o.perHour * openShare)
	}
	l := o.peers[peer]
	if l == nil {
		l = hourly(o.perHour)
		o.peers[peer] = l
	}
	return l.AllowN(now, 1) && o.all.AllowN(now, 1)
}

// hourly lets n pass in an hour, a quarter of them at once.
func hourly(n int) *rate.Limiter { return rate.NewLimiter(rate.Limit(float64(n)/3600), max(n/4, 1)) }
