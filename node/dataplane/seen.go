// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/treaty-node/treaty/node/store"
)

var (
	// errBackwards: the store holds fewer revocations than it did before, which no update of this program makes.
	errBackwards = errors.New("the store holds fewer revocations than before: it was altered or replaced under this process; nothing is served until the process is started again")
	// errFull: the store names more revoked contracts than can be remembered.
	errFull = errors.New("the store holds more revocations than this process can remember; nothing is served")
)

// maxRevoked bounds the revoked contracts that are remembered.
const maxRevoked = 1 << 20

// seen is what this process has found on record and what may never become less: revocations, and what calls have used. Whoever can
// write the store's file can take them out of it, and not out of here. Revocations outlive the process where it has a place to
// write them to, see Options.Remember; the rest ends with it.
type seen struct {
	remember func(contractID string) error
	failed   func(error) // remember's

	mu      sync.Mutex
	epoch   uint64
	revoked map[string]struct{}
	most    int                      // of revoked
	unkept  []string                 // of revoked: remember failed
	used    *lru.Cache[string, used] // of contracts that were verified
}

// used is what calls under one contract have taken, at least.
type used struct {
	calls, epsilon      int64
	window, windowCalls int64
	rows                int64 // that left; how many are reserved in between goes up and down
}

func newSeen(revoked []string, remember func(string) error, failed func(error)) (*seen, error) {
	c, err := lru.New[string, used](maxVerdicts)
	s := &seen{remember: remember, failed: failed, revoked: make(map[string]struct{}, len(revoked)), most: maxRevoked, used: c}
	for _, id := range revoked {
		s.revoked[id] = struct{}{}
	}
	return s, err
}

// floor is the epoch that a transaction that begins now cannot be behind. One that has begun may be: others see a revocation first.
func (s *seen) floor() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

// hold makes the facts at least what was seen. floor is from before their transaction began.
func (s *seen) hold(f *facts, floor uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !f.found:
		return nil
	case f.Epoch < floor:
		return errBackwards
	case len(s.revoked) >= s.most:
		return errFull
	}
	if _, ok := s.revoked[f.Contract.ID]; ok {
		f.Revoked = true
	}
	if was, ok := s.used.Get(f.Contract.ID); ok {
		d := &f.Drawn
		f.Calls, d.Epsilon, d.Rows = max(f.Calls, was.calls), max(d.Epsilon, was.epsilon), max(d.Rows, was.rows)
		if was.window > d.Window || was.window == d.Window && was.windowCalls > d.WindowCalls {
			d.Window, d.WindowCalls = was.window, was.windowCalls
		}
	}
	return nil
}

// standing remembers the revocations of facts that are committed.
func (s *seen) standing(f *facts) {
	if !f.found {
		return
	}
	s.reached(f.Epoch)
	if f.Revoked || f.Contract.State == store.Revoked {
		s.revoke(f.Contract.ID)
	}
}

// reached remembers an epoch that is committed.
func (s *seen) reached(epoch uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch = max(s.epoch, epoch)
}

// revoke remembers that a contract is revoked. One too many is not kept either, or each look at it would write it again.
func (s *seen) revoke(id string) {
	s.mu.Lock()
	_, known := s.revoked[id]
	added := !known && len(s.revoked) < s.most
	if added {
		s.revoked[id] = struct{}{}
	}
	s.mu.Unlock()
	if added {
		s.keep([]string{id})
	}
}

// keep writes ids to where they outlive the process. Those from the first on that cannot be written are for again.
func (s *seen) keep(ids []string) {
	if s.remember == nil {
		return
	}
	for i, id := range ids {
		if err := s.remember(id); err != nil {
			s.mu.Lock()
			s.unkept = append(s.unkept, ids[i:]...)
			s.mu.Unlock()
			s.failed(err)
			return
		}
	}
}

// again keeps what could not be kept before.
func (s *seen) again() {
	s.mu.Lock()
	ids := s.unkept
	s.unkept = nil
	s.mu.Unlock()
	s.keep(ids)
}

func (s *seen) isRevoked(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.revoked[id]
	return ok
}

// spent remembers the facts by which a call was reserved, with what it took. The contract was verified: who fills the store with
// others does not push this one out.
func (s *seen) spent(f *facts, d store.Draw) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, _ := s.used.Get(f.Contract.ID)
	was.calls, was.epsilon = max(was.calls, f.Calls+1), max(was.epsilon, f.Drawn.Epsilon+d.Epsilon)
	if d.WindowLimit > 0 {
		n := int64(1)
		if f.Drawn.Window >= d.Window {
			n += f.Drawn.WindowCalls
		}
		if was.window < d.Window || n > was.windowCalls {
			was.window, was.windowCalls = max(f.Drawn.Window, d.Window), n
		}
	}
	s.used.Add(f.Contract.ID, was)
}

// left remembers rows that leave.
func (s *seen) left(id string, rows int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was, ok := s.used.Get(id); ok {
		was.rows += rows
		s.used.Add(id, was)
	}
}

// Watch looks for revocations again and again until ctx ends, so that one is remembered whether or not a call comes between it and
// somebody who takes it out of the store.
func (s *Service) Watch(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	known := uint64(0)
	for {
		epoch, err := s.notice(ctx, known)
		if err == nil {
			known = epoch
		} else if ctx.Err() == nil {
			s.opts.Log.Error("looking for revocations", "error", err)
		}
		s.seen.again()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// notice remembers the revocations on record after the epoch known, and returns that of the last one.
func (s *Service) notice(ctx context.Context, known uint64) (uint64, error) {
	for {
		var ids []string
		var epoch uint64
		err := s.opts.Store.View(ctx, func(tx store.Tx) (err error) {
			ids, epoch, err = tx.RevokedAfter(known)
			return err
		})
		if err != nil {
			return known, fmt.Errorf("reading revocations: %w", err)
		}
		if len(ids) == 0 {
			return known, nil
		}
		for _, id := range ids {
			s.seen.revoke(id)
		}
		s.seen.reached(epoch)
		known = epoch
	}
}
