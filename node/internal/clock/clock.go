// SPDX-License-Identifier: Apache-2.0

// Package clock is the node's one source of time.
//
// [System] is the machine's clock. [Secure] is the clock for security decisions: it never shows a time before one it has
// shown, across restarts too, so that winding the machine back revives neither an expired message nor an expired contract.
// [Fake] is for tests.
//
// What Secure does not do: it cannot tell a clock that runs ahead from one that is right. A jump forward is believed, and
// what expired because of it stays expired; [Secure.Ahead] says by how much the machine is behind the time shown.
package clock

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Clock tells the time, in UTC.
type Clock interface {
	Now() time.Time
}

// System is the machine's clock.
type System struct{}

// Now is the machine's time, without the monotonic reading: it will be compared with times from elsewhere.
func (System) Now() time.Time { return time.Now().UTC().Round(0) }

// Floor keeps the highest time seen, across restarts and across the processes of one company.
type Floor interface {
	// Load returns the time kept, the zero time when there is none.
	Load(ctx context.Context) (time.Time, error)
	// Raise keeps t if it is later than what is kept, and returns what is kept then.
	Raise(ctx context.Context, t time.Time) (time.Time, error)
}

// persistEvery bounds how far a restart can fall behind the highest time shown before it. Raising the floor costs a durable
// write, so it is done once in this time and not at every reading.
const persistEvery = 10 * time.Second

// Secure is a clock that does not run backwards. It is safe for concurrent use.
type Secure struct {
	base  Clock
	floor Floor

	mu      sync.Mutex
	highest time.Time // shown so far; never decreases
	kept    time.Time // known to be in floor
}

// NewSecure starts from the persisted maximum. It fails when that cannot be read: without it an old time could pass.
func NewSecure(ctx context.Context, base Clock, floor Floor) (*Secure, error) {
	kept, err := floor.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("clock: reading the highest time seen: %w", err)
	}
	return &Secure{base: base, floor: floor, highest: kept.UTC(), kept: kept}, nil
}

// Now is the later of the machine's time and the highest time shown before.
func (s *Secure) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now()
}

func (s *Secure) now() time.Time {
	if t := s.base.Now().UTC(); t.After(s.highest) {
		s.highest = t
	}
	return s.highest
}

// Ahead is how far the time shown is ahead of the machine's clock: zero in normal operation.
func (s *Secure) Ahead() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.base.Now().UTC()
	return max(0, s.now().Sub(t))
}

// Persist raises the floor to the time shown, if the floor lags by ten seconds or more or now is set, and adopts a higher
// one that another process left there. Call it from a ticker, and with now set before the process ends. After a crash, time
// can fall back by what was not persisted, which is within the skew that verifiers allow anyway.
func (s *Secure) Persist(ctx context.Context, now bool) error {
	s.mu.Lock()
	t, kept := s.now(), s.kept
	s.mu.Unlock()
	if !t.After(kept) || !now && t.Sub(kept) < persistEvery {
		return nil
	}
	kept, err := s.floor.Raise(ctx, t) // outside the lock: a slow disk must not stop Now
	if err != nil {
		return fmt.Errorf("clock: keeping the highest time seen: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if kept.After(s.kept) {
		s.kept = kept
	}
	if kept.After(s.highest) {
		s.highest = kept.UTC()
	}
	return nil
}

// Fake is a clock that stands still until it is told to move. It is safe for concurrent use.
type Fake struct {
	mu sync.Mutex
	t  time.Time
}

// NewFake starts at t.
func NewFake(t time.Time) *Fake { return &Fake{t: t.UTC()} }

// Now is the time it was last set to.
func (f *Fake) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.t
}

// Set moves it to t, forwards or backwards.
func (f *Fake) Set(t time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.t = t.UTC()
}

// Advance moves it by d and returns the new time.
func (f *Fake) Advance(d time.Duration) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.t = f.t.Add(d)
	return f.t
}
