// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// Refusals that are recorded for callers who are not the buyer of the contract they name: of one caller, and of all of them
// together, since a stranger makes as many DIDs as it likes. Each costs a signature and a durable write, and the records only
// grow.
const (
	strangerBurst, strangersBurst = 20, 200
	strangerEvery, strangersEvery = 30 * time.Second, 3 * time.Second
)

// strangers decides which of their refusals are recorded.
type strangers struct {
	mu      sync.Mutex
	callers *lru.Cache[string, *rate.Limiter]
	all     *rate.Limiter
	dropped int // since the last one that was recorded
}

func newStrangers() (*strangers, error) {
	callers, err := lru.New[string, *rate.Limiter](maxLimiters)
	return &strangers{callers: callers, all: rate.NewLimiter(rate.Every(strangersEvery), strangersBurst)}, err
}

// note says whether a refusal is to be recorded, and what to record beside it about those that were not.
func (s *strangers) note(caller string, now time.Time) (record bool, also string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, ok := s.callers.Get(caller)
	if !ok {
		own = rate.NewLimiter(rate.Every(strangerEvery), strangerBurst)
		s.callers.Add(caller, own)
	}
	if !own.AllowN(now, 1) || !s.all.AllowN(now, 1) {
		s.dropped++
		return false, ""
	}
	if s.dropped > 0 {
		also = fmt.Sprintf(" [%d more refusals to callers without a contract were not recorded]", s.dropped)
		s.dropped = 0
	}
	return true, also
}
