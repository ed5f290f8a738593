// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
)

func TestLifetime(t *testing.T) {
	const most = 5 * time.Minute
	header := func(lines ...string) http.Header {
		h := http.Header{}
		for _, l := range lines {
			name, value, _ := strings.Cut(l, ": ")
			h.Add(name, value)
		}
		return h
	}
	at := func(d time.Duration) string { return start.Add(d).Format(http.TimeFormat) }
	for _, c := range []struct {
		name string
		h    http.Header
		want time.Duration
	}{
		{"nothing said", header(), most},
		{"empty", header("Cache-Control: "), most},
		{"less", header("Cache-Control: max-age=60"), time.Minute},
		{"more", header("Cache-Control: max-age=3600"), most},
		{"far more", header("Cache-Control: max-age=18446744073709551615"), most},
		{"out of range", header("Cache-Control: max-age=99999999999999999999"), 0},
		{"negative", header("Cache-Control: max-age=-1"), 0},
		{"no number", header("Cache-Control: max-age=soon"), 0},
		{"no value", header("Cache-Control: max-age"), 0},
		{"quoted", header(`Cache-Control: max-age="60"`), time.Minute},
		{"among others", header("Cache-Control: public, Max-Age=60, must-revalidate"), time.Minute},
		{"twice, the lesser counts", header("Cache-Control: max-age=60, max-age=30"), 30 * time.Second},
		{"two lines", header("Cache-Control: max-age=60", "Cache-Control: no-store"), 0},
		{"no-store", header("Cache-Control: no-store"), 0},
		{"no-cache", header("Cache-Control: max-age=60, NO-CACHE"), 0},
		{"for shared caches", header("Cache-Control: s-maxage=10"), most},
		{"spent on the way", header("Cache-Control: max-age=60", "Age: 20"), 40 * time.Second},
		{"all spent", header("Cache-Control: max-age=60", "Age: 61"), 0},
		{"spent, nothing said", header("Age: 60"), most - time.Minute},
		{"Age is no number", header("Cache-Control: max-age=60", "Age: x"), time.Minute},
		{"Expires", header("Expires: " + at(time.Minute)), time.Minute},
		{"Expires after another clock", header("Date: "+at(-time.Hour), "Expires: "+at(time.Minute-time.Hour)), time.Minute},
		{"Expires passed", header("Expires: " + at(-time.Minute)), 0},
		{"Expires is no time", header("Expires: 0"), 0},
		{"max-age beats Expires", header("Cache-Control: max-age=60", "Expires: 0"), time.Minute},
	} {
		if got := lifetime(c.h, start, most); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func FuzzLifetime(f *testing.F) {
	f.Add("max-age=60", "5", "Mon, 30 Nov 2026 12:00:00 GMT")
	f.Add(`no-store, max-age="1`, "-1", "0")
	f.Fuzz(func(t *testing.T, control, age, expires string) {
		h := http.Header{"Cache-Control": {control}, "Age": {age}, "Expires": {expires}}
		if got := lifetime(h, start, MaxAge); got < 0 || got > MaxAge {
			t.Errorf("lifetime = %v", got)
		}
	})
}

func cached(id did.DID, size int) *entry {
	e := &entry{from: start, until: start.Add(time.Minute), size: size}
	if size == 0 {
		e.err = &Error{Code: CodeNotFound, DID: id, Err: fmt.Errorf("%s", strings.Repeat("x", 10_000))}
	}
	return e
}

func TestCacheIsBounded(t *testing.T) {
	id := func(n int) did.DID { return parse(t, fmt.Sprintf("did:wba:a.example:n%d", n)) }
	t.Run("entries", func(t *testing.T) {
		c := newCache(10, 1<<30)
		for n := range 100 {
			c.put(id(n), cached(id(n), 1000))
		}
		if c.docs.Len() != 10 || c.get(id(99), start) == nil || c.get(id(89), start) != nil {
			t.Errorf("%d entries", c.docs.Len())
		}
	})
	t.Run("least recently used goes", func(t *testing.T) {
		c := newCache(2, 1<<30)
		c.put(id(1), cached(id(1), 1))
		c.put(id(2), cached(id(2), 1))
		c.get(id(1), start)
		c.put(id(3), cached(id(3), 1))
		if c.get(id(1), start) == nil || c.get(id(2), start) != nil {
			t.Error("another one went")
		}
	})
	t.Run("bytes", func(t *testing.T) {
		c := newCache(1000, 1<<20)
		for n := range 100 {
			c.put(id(n), cached(id(n), 64<<10))
			c.put(id(n), cached(id(n), 64<<10)) // replaced, not counted twice
		}
		var sum int64
		for _, e := range c.docs.Values() {
			sum += e.weight()
		}
		if c.weight != sum || c.weight > 1<<20 || c.docs.Len() < 2 {
			t.Errorf("%d entries of %d bytes, counted as %d", c.docs.Len(), sum, c.weight)
		}
		for n := range 100 {
			c.drop(id(n))
		}
		if c.weight != 0 {
			t.Errorf("%d bytes in an empty cache", c.weight)
		}
	})
	t.Run("failures push no document out", func(t *testing.T) {
		c := newCache(10, 1<<20)
		c.put(id(0), cached(id(0), 1000))
		for n := range 10_000 {
			c.put(id(n+1), cached(id(n+1), 0))
		}
		if c.get(id(0), start) == nil || c.failures.Len() > 10 {
			t.Errorf("%d documents, %d failures", c.docs.Len(), c.failures.Len())
		}
		if e := c.get(id(10_000), start); e == nil || e.err.Code != CodeNotFound || len(e.err.Err.Error()) > 512 {
			t.Errorf("remembered %v", e)
		}
	})
	t.Run("what ran out is let go", func(t *testing.T) {
		c := newCache(10, 1<<20)
		c.put(id(0), cached(id(0), 1000))
		if c.get(id(0), start.Add(time.Minute)) != nil || c.docs.Len() != 0 || c.weight != 0 {
			t.Error("it is still there")
		}
	})
}

func TestMetersAreBounded(t *testing.T) {
	m := newMeters(Budget{Burst: 1, Every: time.Hour}, Budget{})
	for n := range 2 * maxMeters {
		m.take(fmt.Sprint(n), start)
	}
	if n := m.buckets.Len(); n != maxMeters {
		t.Errorf("%d meters", n)
	}
	if m.take(fmt.Sprint(2*maxMeters-1), start.Add(time.Hour-1)) || !m.take(fmt.Sprint(2*maxMeters-1), start.Add(time.Hour)) {
		t.Error("a meter does not refill as its budget says")
	}
}

func TestSourceOf(t *testing.T) {
	for addr, want := range map[string]string{
		"203.0.113.7":              "203.0.113.7",
		"::ffff:203.0.113.7":       "203.0.113.7",
		"2001:db8:1:2:3:4:5:6":     "2001:db8:1:2::/64",
		"2001:db8:1:2::1":          "2001:db8:1:2::/64",
		"fe80::1%eth0":             "fe80::/64",
		"2001:db8:1:3:ffff:ffff::": "2001:db8:1:3::/64",
	} {
		if got := SourceOf(netip.MustParseAddr(addr)); got != want {
			t.Errorf("SourceOf(%s) = %s, want %s", addr, got, want)
		}
	}
	if got := SourceOf(netip.Addr{}); got != (netip.Addr{}).String() {
		t.Errorf("SourceOf of nothing: %q", got)
	}
}

func TestChargeClients(t *testing.T) {
	for addr, want := range map[string]string{
		"203.0.113.7:4711":           "203.0.113.7",
		"[2001:db8:1:2:3:4:5:6]:443": "2001:db8:1:2::/64",
		"@":                          "", // a Unix socket's peer shares the one budget
	} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = addr
		got := "not called"
		ChargeClients(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = sourceFrom(r.Context()) })).ServeHTTP(httptest.NewRecorder(), r)
		if got != want {
			t.Errorf("a request from %s is charged to %q, want %q", addr, got, want)
		}
	}
}
