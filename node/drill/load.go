// SPDX-License-Identifier: Apache-2.0

package drill

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/treaty-node/treaty/node/internal/clock"
)

// MaxLoad bounds the queries a second under a drill.
const MaxLoad = 50

// Bounds of a load.
const (
	maxUnderWay = 16     // queries at a time: a slow data plane is not buried
	maxSamples  = 10_000 // latencies that are kept of one phase
	attempts    = 5      // at one query
	pause       = 250 * time.Millisecond
	maxPause    = 2 * time.Second
)

// ErrAgain wraps the error of a query that nobody has decided about: it may be asked again, as a client does.
var ErrAgain = errors.New("drill: nobody decided")

// Load puts a steady number of queries under a drill and counts what becomes of them.
type Load struct {
	perSecond int
	most      int
	ask       func(ctx context.Context) error

	mu     sync.Mutex
	phase  Phase
	asked  int
	result LoadResult
	times  map[Phase][]time.Duration

	stop  context.CancelFunc
	ended chan struct{}
}

// NewLoad makes a load. ask makes one query; nil means that the right answer came. After most queries no other begins, where a
// repetition counts as one and 0 is no bound; what is under way then is finished.
func NewLoad(perSecond, most int, ask func(ctx context.Context) error) *Load {
	return &Load{perSecond: perSecond, most: most, ask: ask, phase: Before, result: LoadResult{PerSecond: perSecond, Latencies: []Latency{}}, times: map[Phase][]time.Duration{}}
}

// Start begins, until Stop or the end of ctx.
func (l *Load) Start(ctx context.Context) {
	ticking, stop := context.WithCancel(ctx)
	l.stop, l.ended = stop, make(chan struct{})
	go func() {
		defer close(l.ended)
		var asking sync.WaitGroup
		defer asking.Wait()
		slots := make(chan struct{}, maxUnderWay)
		tick := time.NewTicker(time.Second / time.Duration(l.perSecond))
		defer tick.Stop()
		for {
			select {
			case <-ticking.Done():
				return
			case <-tick.C:
			}
			select {
			case <-ticking.Done():
				return
			case slots <- struct{}{}:
			}
			// A query counts to the phase in which it began. What has begun is finished, also when the load ends.
			phase, ok := l.next()
			if !ok {
				return
			}
			asking.Go(func() {
				defer func() { <-slots }()
				l.one(ctx, phase)
			})
		}
	}()
}

// Enter says which phase it is now.
func (l *Load) Enter(p Phase) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase = p
}

// next counts a query, and says in which phase it is or that there have been enough.
func (l *Load) next() (Phase, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.most > 0 && l.asked >= l.most {
		return "", false
	}
	l.asked++
	return l.phase, true
}

// one asks until there is an answer, a decision, or enough.
func (l *Load) one(ctx context.Context, phase Phase) {
	began, wait, repeated := time.Now(), pause, false
	var err error
	for i := range attempts {
		if err = l.ask(ctx); !errors.Is(err, ErrAgain) || i+1 == attempts || clock.Sleep(ctx, wait) != nil {
			break
		}
		repeated, wait = true, min(2*wait, maxPause)
		l.mu.Lock()
		l.asked++
		l.mu.Unlock()
	}
	took := time.Since(began)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.result.Requests++
	if repeated {
		l.result.Repeated++
	}
	if err != nil {
		if l.result.Lost++; l.result.Lost == 1 {
			l.result.FirstLoss = Clip(string(phase) + ": " + err.Error())
		}
		return
	}
	if len(l.times[phase]) < maxSamples {
		l.times[phase] = append(l.times[phase], took)
	}
}

// Stop ends the load, waits for what is under way, and returns what became of it.
func (l *Load) Stop() LoadResult {
	l.stop()
	<-l.ended
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range []Phase{Before, Grace, After} {
		if len(l.times[p]) > 0 {
			l.result.Latencies = append(l.result.Latencies, summarise(p, l.times[p]))
		}
	}
	return l.result
}

// summarise sorts times and reads the percentiles off: the smallest value that so many are not above.
func summarise(p Phase, times []time.Duration) Latency {
	times = slices.Sorted(slices.Values(times))
	at := func(percent int) int64 { return times[(len(times)*percent+99)/100-1].Microseconds() }
	return Latency{Phase: p, Count: len(times), P50: at(50), P99: at(99), Max: times[len(times)-1].Microseconds()}
}
