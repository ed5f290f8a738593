// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
)

// BenchmarkResolveCached is what each verified request pays for its caller's
// document.
func BenchmarkResolveCached(b *testing.B) {
	w := newWorld(b)
	w.o.Now = time.Now
	w.restart()
	i := newE1(b)
	w.publish(i.id, i.signed(b, start.AddDate(0, 0, -1)))
	ctx := b.Context()
	if _, err := w.r.Resolve(ctx, i.id); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.r.Resolve(ctx, i.id); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkResolveCachedParallel is the same with every processor asking.
func BenchmarkResolveCachedParallel(b *testing.B) {
	w := newWorld(b)
	i := newE1(b)
	w.publish(i.id, i.signed(b, start))
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := w.r.Resolve(ctx, i.id); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkAccept is what a fetched document costs beside the network: parse,
// verify, judge against the pin.
func BenchmarkAccept(b *testing.B) {
	w := newWorld(b)
	i := newE1(b)
	raw := i.signed(b, start)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		latest, err := w.pins.Latest(ctx, i.id)
		if err != nil {
			b.Fatal(err)
		}
		c, failure := w.r.verify(ctx, i.id, raw, latest, start)
		if failure != nil {
			b.Fatal(failure)
		}
		if _, failure := w.r.pin(ctx, i.id, c, latest, start); failure != nil {
			b.Fatal(failure)
		}
	}
}

// BenchmarkCacheMemory fills the cache with 100 000 documents of the usual kind
// and reports the memory for each.
func BenchmarkCacheMemory(b *testing.B) {
	const n = 100_000
	key := newKey(b, did.Ed25519)
	bare := identity{parse(b, "did:wba:"+domain), key}
	raw := bare.signed(b, start)
	for b.Loop() {
		c := newCache(n, 1<<40)
		before := heap()
		for k := range n {
			doc, err := did.ParseDocument(raw)
			if err != nil {
				b.Fatal(err)
			}
			id := parse(b, fmt.Sprintf("did:wba:a.example:n%d", k))
			c.put(id, &entry{result: &Result{Document: doc}, from: start, until: start.Add(MaxAge), size: len(raw)})
		}
		b.ReportMetric(float64(heap()-before)/n, "B/entry")
		b.ReportMetric(float64(c.weight)/n, "counted-B/entry")
		runtime.KeepAlive(c)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkResolveMerged is 1 000 callers who ask for one unknown DID at once; fetches/op is how often the document was
// fetched for them.
func BenchmarkResolveMerged(b *testing.B) {
	const callers = 1000
	fetches := 0
	for b.Loop() {
		w := newWorld(b)
		i := newE1(b)
		w.publish(i.id, i.signed(b, start))
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				if _, err := w.r.Resolve(b.Context(), i.id); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		fetches += w.fetches(i.id)
	}
	b.ReportMetric(float64(fetches)/float64(b.N), "fetches/op")
}
