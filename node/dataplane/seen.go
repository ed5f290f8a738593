// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"errors"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
)

// errBackwards: the store holds fewer revocations than it did before, which no update of this program makes.
var errBackwards = errors.New("the store holds fewer revocations than before: it was altered or replaced under this process; nothing is served until the process is started again")

// seen is what this process has found on record and what may never become less: revocations, calls used, epsilon used. Whoever can
// write the store's file can take them out of it, and not out of here. It ends with the process.
type seen struct {
	mu        sync.Mutex
	epoch     uint64
	contracts *lru.Cache[string, limits]
}

type limits struct {
	revoked        bool
	calls, epsilon int64
}

func newSeen() (*seen, error) {
	c, err := lru.New[string, limits](maxVerdicts)
	return &seen{contracts: c}, err
}

// hold makes the facts at least what was seen.
func (s *seen) hold(f *facts) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.found && f.Epoch < s.epoch {
		return errBackwards
	}
	if was, ok := s.contracts.Get(f.Contract.ID); ok {
		f.Revoked, f.Calls, f.Drawn.Epsilon = f.Revoked || was.revoked, max(f.Calls, was.calls), max(f.Drawn.Epsilon, was.epsilon)
	}
	return nil
}

// keep remembers facts that are committed, with what a call has taken since.
func (s *seen) keep(f *facts, calls, epsilon int64) {
	if !f.found {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch = max(s.epoch, f.Epoch)
	was, _ := s.contracts.Get(f.Contract.ID)
	s.contracts.Add(f.Contract.ID, limits{was.revoked || f.Revoked, max(was.calls, f.Calls+calls), max(was.epsilon, f.Drawn.Epsilon+epsilon)})
}
