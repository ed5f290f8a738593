// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/store"
)

var (
	// ErrBusy: the engine's places, or this buyer's share of them, are taken, and so are the places to wait. Nothing was read
	// or charged.
	ErrBusy = errors.New("dataplane: too many calls are under way")
	// ErrCancelled: an operator ended the call.
	ErrCancelled = errors.New("dataplane: the call was cancelled by an operator")
	// ErrNoCall: no such call is under way.
	ErrNoCall = errors.New("dataplane: no such call is under way")
)

// Slots bound the calls that the engine works on. Zero fields take the defaults.
type Slots struct {
	Concurrent int           // calls at a time; default 4
	PerBuyer   int           // of them for one buyer; default half of them, at least 1
	Waiting    int           // calls of one buyer that may wait for a place; default 64
	Wait       time.Duration // how long one waits; default 30 s
}

// maxWaiting bounds the calls of all buyers that wait.
const maxWaiting = 1024

func (s Slots) withDefaults() Slots {
	if s.Concurrent <= 0 {
		s.Concurrent = 4
	}
	if s.PerBuyer <= 0 || s.PerBuyer > s.Concurrent {
		s.PerBuyer = max(s.Concurrent/2, 1)
	}
	if s.Waiting <= 0 {
		s.Waiting = 64
	}
	if s.Wait <= 0 {
		s.Wait = 30 * time.Second
	}
	return s
}

// UnderWay is a call that waits for a place or that the engine works on.
type UnderWay = store.CallUnderWay

// slots hands out places. Each buyer queues for its own share first, so that whoever has many calls waits behind itself, and the
// first of each buyer's queue for one of all places.
type slots struct {
	limits Slots
	now    func() time.Time
	all    chan struct{}

	mu      sync.Mutex
	buyers  map[string]*share
	calls   map[string]*entry
	waiting int
	entered uint64
}

type share struct {
	places chan struct{}
	calls  int // that wait or run; the share goes with the last
}

type entry struct {
	UnderWay
	cancel context.CancelCauseFunc
	order  uint64 // of coming: times can be equal
}

func newSlots(l Slots, now func() time.Time) *slots {
	l = l.withDefaults()
	return &slots{limits: l, now: now, all: make(chan struct{}, l.Concurrent), buyers: map[string]*share{}, calls: map[string]*entry{}}
}

// enter waits for a place. The context ends with ErrCancelled when an operator says so; leave gives the place back, must be
// called when err is nil, and may be called again.
func (s *slots) enter(ctx context.Context, c UnderWay) (_ context.Context, leave func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	c.ID, c.Since = reference(), s.now()
	e := &entry{UnderWay: c, cancel: cancel}
	s.mu.Lock()
	b := s.buyers[c.Buyer]
	if b == nil {
		b = &share{places: make(chan struct{}, s.limits.PerBuyer)}
	}
	if b.calls >= s.limits.PerBuyer+s.limits.Waiting || s.waiting >= maxWaiting {
		s.mu.Unlock()
		cancel(ErrBusy)
		return nil, nil, ErrBusy
	}
	b.calls++
	s.entered++
	e.order = s.entered
	s.waiting++
	s.buyers[c.Buyer], s.calls[c.ID] = b, e
	s.mu.Unlock()
	gone := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !e.Running {
			s.waiting--
		}
		if b.calls--; b.calls == 0 {
			delete(s.buyers, c.Buyer)
		}
		delete(s.calls, c.ID)
		cancel(context.Canceled)
	}
	wait, stop := context.WithTimeoutCause(ctx, s.limits.Wait, ErrBusy)
	defer stop()
	if err := take(wait, b.places); err != nil {
		gone()
		return nil, nil, err
	}
	if err := take(wait, s.all); err != nil {
		<-b.places
		gone()
		return nil, nil, err
	}
	s.mu.Lock()
	e.Running = true
	s.waiting--
	s.mu.Unlock()
	return ctx, sync.OnceFunc(func() {
		<-s.all
		<-b.places
		gone()
	}), nil
}

func take(ctx context.Context, places chan struct{}) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // select would choose at random
	}
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// list returns the calls under way, oldest first.
func (s *slots) list() []UnderWay {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries := slices.SortedFunc(maps.Values(s.calls), func(a, b *entry) int { return cmp.Compare(a.order, b.order) })
	out := make([]UnderWay, len(entries))
	for i, e := range entries {
		out[i] = e.UnderWay
	}
	return out
}

// Calls lists what is under way, oldest first.
func (s *Service) Calls() []UnderWay { return s.slots.list() }

// Cancel ends a call that waits or runs, with ErrNoCall when there is none. One that ran stays charged.
func (s *Service) Cancel(id string) error {
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	e, ok := s.slots.calls[id]
	if !ok {
		return ErrNoCall
	}
	e.cancel(ErrCancelled)
	return nil
}

// run asks the engine, and gives the place back as soon as the rows are there.
func (s *Service) run(ctx context.Context, leave func(), st source.Statement) (source.Rows, error) {
	defer leave()
	rows, err := s.opts.Source.Query(ctx, st)
	if err != nil && errors.Is(context.Cause(ctx), ErrCancelled) {
		return nil, ErrCancelled
	}
	return rows, err
}
