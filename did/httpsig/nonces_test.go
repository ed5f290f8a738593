// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// memory is a MemoryNonces with a clock that the test moves.
type memory struct {
	*MemoryNonces
	now time.Time
}

func newMemory(o MemoryNonceOptions) *memory {
	m := &memory{now: fixedTime}
	o.Now = func() time.Time { return m.now }
	m.MemoryNonces = NewMemoryNonces(o)
	return m
}

func (m *memory) use(t *testing.T, keyid, nonce string, life time.Duration) bool {
	t.Helper()
	fresh, err := m.Use(context.Background(), keyid, nonce, m.now.Add(life))
	if err != nil {
		t.Fatal(err)
	}
	return fresh
}

func TestMemoryNoncesKeepsUntilExpiry(t *testing.T) {
	for _, life := range []time.Duration{1, time.Second, 1500 * time.Millisecond, time.Minute, 15 * time.Minute} {
		m := newMemory(MemoryNonceOptions{})
		expires := m.now.Add(life)
		if !m.use(t, "did:web:a.example#k", "n", life) {
			t.Fatal("not fresh")
		}
		for m.now = fixedTime; !m.now.After(expires); m.now = m.now.Add(life/7 + 1) {
			fresh, err := m.Use(context.Background(), "did:web:a.example#k", "n", expires)
			if fresh || err != nil {
				t.Fatalf("life %v, after %v: fresh %v, %v", life, m.now.Sub(fixedTime), fresh, err)
			}
		}
		m.now = expires.Add(3 * time.Second)
		if !m.use(t, "did:web:a.example#k", "m", time.Second) || m.Len() != 1 {
			t.Fatalf("life %v: %d live after expiry, want 1", life, m.Len())
		}
	}
}

func TestMemoryNoncesKeys(t *testing.T) {
	m := newMemory(MemoryNonceOptions{})
	for _, pair := range [][2]string{{"did:web:a.example#k", "n"}, {"did:web:a.example#k", "m"}, {"did:web:a.example#kn", ""}, {"did:web:a.example#", "kn"}, {"did:web:b.example#k", "n"}} {
		if !m.use(t, pair[0], pair[1], time.Minute) {
			t.Errorf("%v is not told apart", pair)
		}
	}
	if _, err := m.Use(context.Background(), "did:web:a.example#k", "x", m.now.Add(time.Hour)); err == nil {
		t.Error("accepted a nonce beyond the horizon")
	}
	if _, err := m.Use(context.Background(), "did:web:a.example#k", "x", m.now.Add(-time.Hour)); err == nil {
		t.Error("accepted a nonce that is over")
	}
	m.now = m.now.Add(10 * time.Minute)
	m.use(t, "did:web:a.example#k", "later", time.Minute)
	m.now = fixedTime // a clock that is set back forgets nothing and accepts nothing that it forgot
	if fresh, err := m.Use(context.Background(), "did:web:a.example#k", "n", fixedTime.Add(time.Minute)); fresh || err == nil {
		t.Errorf("after the clock was set back: fresh %v, %v", fresh, err)
	}
}

func TestMemoryNoncesQuotas(t *testing.T) {
	m := newMemory(MemoryNonceOptions{Max: 10, PerDomain: 6, PerDID: 4})
	use := func(keyid string, n int) error {
		_, err := m.Use(context.Background(), keyid, fmt.Sprint(n), m.now.Add(time.Minute))
		return err
	}
	want := func(keyid string, want error) {
		t.Helper()
		for n := 0; ; n++ {
			if err := use(keyid, n+m.Len()*100); err != nil {
				if !errors.Is(err, want) {
					t.Fatalf("%s: %v, want %v", keyid, err, want)
				}
				return
			}
			if n > 20 {
				t.Fatalf("%s: no limit", keyid)
			}
		}
	}
	want("did:web:a.example:one#k", ErrNonceQuota)
	if m.Len() != 4 {
		t.Fatalf("%d live, want the 4 of one DID", m.Len())
	}
	// Other keys of the DID, other DIDs, ports and methods share the domain.
	want("did:web:a.example:one#other", ErrNonceQuota)
	want("did:wba:A.example%3A8443:two#k", ErrNonceQuota)
	if m.Len() != 6 {
		t.Fatalf("%d live, want the 6 of one domain", m.Len())
	}
	want("did:web:b.example#k", ErrNoncesFull)
	if m.Len() != 10 {
		t.Fatalf("%d live, want 10", m.Len())
	}
	want("did:web:c.example#k", ErrNoncesFull)

	// A refused nonce is not recorded; a known one is still known.
	if fresh, err := m.Use(context.Background(), "did:web:a.example:one#k", "0", m.now.Add(time.Minute)); fresh || err != nil {
		t.Errorf("known nonce in a full store: %v, %v", fresh, err)
	}
	m.now = m.now.Add(2 * time.Minute)
	want("did:web:c.example#k", ErrNonceQuota)
	if m.Len() != 4 || len(m.owners) != 2 {
		t.Errorf("%d live of %d owners after expiry, want 4 of 2", m.Len(), len(m.owners))
	}
}

// Against a plain map, over random times and idle periods.
func TestMemoryNoncesModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	m := newMemory(MemoryNonceOptions{Horizon: 20 * time.Second})
	model := map[string]time.Time{}
	for step := range 20_000 {
		switch rnd.IntN(50) {
		case 0:
			m.now = m.now.Add(time.Duration(rnd.IntN(60_000)) * time.Millisecond)
		default:
			m.now = m.now.Add(time.Duration(rnd.IntN(40)) * time.Millisecond)
		}
		nonce := fmt.Sprint(rnd.IntN(300))
		expires := m.now.Add(time.Duration(rnd.IntN(20_000)) * time.Millisecond)
		old, known := model[nonce]
		fresh, err := m.Use(context.Background(), "did:web:a.example#k", nonce, expires)
		switch {
		case err != nil:
			t.Fatal(err)
		case fresh && known && !old.Before(m.now):
			t.Fatalf("step %d: %s forgotten %v early", step, nonce, old.Sub(m.now))
		case !fresh && (!known || old.Add(time.Hour).Before(m.now)):
			t.Fatalf("step %d: %s never used", step, nonce)
		case fresh:
			model[nonce] = expires
		}
	}
	m.now = m.now.Add(time.Hour)
	for i := range 100 { // a backlog is worked off by the calls that follow
		m.use(t, "did:web:b.example#k", fmt.Sprint(i), time.Second)
	}
	if m.Len() != 100 || len(m.owners) != 2 {
		t.Errorf("%d live of %d owners, want 100 of 2", m.Len(), len(m.owners))
	}
}

// Of many concurrent uses of one nonce exactly one is fresh.
func TestMemoryNoncesRace(t *testing.T) {
	m := NewMemoryNonces(MemoryNonceOptions{})
	for round := range 50 {
		var fresh atomic.Int64
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				ok, err := m.Use(context.Background(), "did:web:a.example#k", fmt.Sprint(round), time.Now().Add(time.Minute))
				if err != nil {
					t.Error(err)
				}
				if ok {
					fresh.Add(1)
				}
			})
		}
		wg.Wait()
		if fresh.Load() != 1 {
			t.Fatalf("round %d: %d were fresh, want 1", round, fresh.Load())
		}
	}
}

// The same, through the verifier: one request, sent many times at once.
func TestVerifyRace(t *testing.T) {
	s := newStage(t, "wba", "wba")
	s.start(t)
	r := s.newRequest(t, "n")
	r.sign()
	var ok atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		in := r.http()
		wg.Go(func() {
			_, err := s.verifier.Verify(context.Background(), in, r.body)
			if err == nil {
				ok.Add(1)
			} else if !isCode(err, InvalidNonce) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if ok.Load() != 1 {
		t.Fatalf("%d accepted, want 1", ok.Load())
	}
}

// What a store without room answers reaches the caller as such.
func TestVerifyWithoutRoom(t *testing.T) {
	for _, test := range []struct {
		err    error
		status int
	}{{ErrNonceQuota, 429}, {ErrNoncesFull, 503}, {errUnreachable, 503}} {
		s := newStage(t, "web", "web")
		s.options.Nonces = failingNonces{test.err}
		s.start(t)
		r := s.newRequest(t, "n")
		r.sign()
		_, err := s.verifier.Verify(context.Background(), r.http(), r.body)
		var e *Error
		if !errors.As(err, &e) || e.Code != Unavailable || e.Status != test.status || !errors.Is(err, test.err) {
			t.Errorf("%v: %v, want %d", test.err, err, test.status)
		}
	}
}

type failingNonces struct{ err error }

func (f failingNonces) Use(context.Context, string, string, time.Time) (bool, error) {
	return false, f.err
}
