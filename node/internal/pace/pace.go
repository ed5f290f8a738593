// SPDX-License-Identifier: Apache-2.0

// Package pace bounds how often peers may do what leaves something in the store. The count is the process's own, and begins anew
// with it.
package pace

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/treaty-node/treaty/did"
)

const (
	everybody = 16   // times as many from all peers together
	maxPeers  = 4096 // that are told apart
)

// Hourly lets each peer do something so many times in an hour, a quarter of them at once, and all together sixteen times as often.
// It is safe for concurrent use.
type Hourly struct {
	n     int
	mu    sync.Mutex
	all   *rate.Limiter
	peers map[did.DID]*rate.Limiter
}

// NewHourly allows n in an hour, at least 1.
func NewHourly(n int) *Hourly {
	return &Hourly{n: n, all: hourly(n * everybody), peers: map[did.DID]*rate.Limiter{}}
}

// Allow takes one time of peer, if there is one left.
func (h *Hourly) Allow(peer did.DID, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.peers[peer]
	if l == nil {
		if len(h.peers) >= maxPeers {
			clear(h.peers)
		}
		l = hourly(h.n)
		h.peers[peer] = l
	}
	return l.AllowN(now, 1) && h.all.AllowN(now, 1)
}

func hourly(n int) *rate.Limiter { return rate.NewLimiter(rate.Limit(float64(n)/3600), max(n/4, 1)) }
