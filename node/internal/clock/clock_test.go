// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// memoryFloor is a floor that counts its writes and can be made to fail.
type memoryFloor struct {
	mu     sync.Mutex
	t      time.Time
	raises int
	err    error
}

func (m *memoryFloor) Load(context.Context) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.t, m.err
}

func (m *memoryFloor) Raise(_ context.Context, t time.Time) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return time.Time{}, m.err
	}
	m.raises++
	if t.After(m.t) {
		m.t = t
	}
	return m.t, nil
}

func secure(t *testing.T, base Clock, floor Floor) *Secure {
	t.Helper()
	s, err := NewSecure(t.Context(), base, floor)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func expect(t *testing.T, c Clock, want time.Time) {
	t.Helper()
	if got := c.Now(); !got.Equal(want) || got.Location() != time.UTC {
		t.Errorf("Now() = %v, want %v", got, want)
	}
}

func TestSecureNeverRunsBackwards(t *testing.T) {
	base, floor := NewFake(start), &memoryFloor{}
	s := secure(t, base, floor)
	expect(t, s, start)
	base.Advance(time.Hour)
	expect(t, s, start.Add(time.Hour))

	base.Set(start) // wound back
	expect(t, s, start.Add(time.Hour))
	if got := s.Ahead(); got != time.Hour {
		t.Errorf("Ahead() = %v, want 1h", got)
	}
	if err := s.Persist(t.Context(), true); err != nil {
		t.Fatal(err)
	}

	again := secure(t, base, floor) // restarted, still wound back
	expect(t, again, start.Add(time.Hour))
	base.Advance(2 * time.Hour)
	expect(t, again, start.Add(2*time.Hour))
	if got := again.Ahead(); got != 0 {
		t.Errorf("Ahead() = %v, want 0", got)
	}
}

func TestPersistWritesSeldom(t *testing.T) {
	base, floor := NewFake(start), &memoryFloor{t: start}
	s := secure(t, base, floor)
	for range 9 {
		base.Advance(time.Second)
		if err := s.Persist(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	if floor.raises != 0 {
		t.Errorf("%d writes within ten seconds", floor.raises)
	}
	base.Advance(time.Second)
	for range 3 {
		if err := s.Persist(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	if floor.raises != 1 || !floor.t.Equal(start.Add(10*time.Second)) {
		t.Errorf("%d writes, floor %v", floor.raises, floor.t)
	}
	base.Advance(time.Second)
	if err := s.Persist(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if floor.raises != 2 {
		t.Errorf("asked to persist now: %d writes, want 2", floor.raises)
	}
}

func TestPersistAdoptsAnotherProcessesTime(t *testing.T) {
	base, floor := NewFake(start), &memoryFloor{}
	s := secure(t, base, floor)
	floor.t = start.Add(time.Minute)
	if err := s.Persist(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	expect(t, s, start.Add(time.Minute))
}

func TestFloorFailures(t *testing.T) {
	broken := errors.New("disk gone")
	if _, err := NewSecure(t.Context(), NewFake(start), &memoryFloor{err: broken}); !errors.Is(err, broken) {
		t.Errorf("NewSecure: %v", err)
	}
	floor := &memoryFloor{}
	s := secure(t, NewFake(start), floor)
	floor.err = broken
	if err := s.Persist(t.Context(), true); !errors.Is(err, broken) {
		t.Errorf("Persist: %v", err)
	}
	expect(t, s, start)
}

func TestSecureConcurrently(t *testing.T) {
	base, floor := NewFake(start), &memoryFloor{}
	s := secure(t, base, floor)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			last := time.Time{}
			for j := range 200 {
				base.Set(start.Add(time.Duration((j*7+i)%50) * time.Minute))
				now := s.Now()
				if now.Before(last) {
					t.Errorf("went from %v to %v", last, now)
				}
				last = now
				if err := s.Persist(context.Background(), false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestSystemIsUTCWithoutMonotonicReading(t *testing.T) {
	now := System{}.Now()
	if now.Location() != time.UTC || now != now.Round(0) {
		t.Errorf("%#v", now)
	}
}
