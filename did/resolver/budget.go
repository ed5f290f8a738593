// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// Budget allows Burst events at once and another one each Every.
type Budget struct {
	Burst int
	Every time.Duration
}

// Defaults for the zero budgets in Options.
var (
	defaultSourceBudget = Budget{Burst: 30, Every: 2 * time.Second}
	defaultHostBudget   = Budget{Burst: 60, Every: time.Second}
	// versionBudget bounds what a host that changes its document all the time can
	// make the pin store keep: some 160 versions in the first day.
	versionBudget = Budget{Burst: 16, Every: 10 * time.Minute}
)

type sourceKey struct{}

// WithSource returns a context whose look-ups of unknown DIDs are charged to
// source: whoever made this node look, for example [SourceOf] the client's
// address, or the DID that has authenticated. Look-ups without a source share
// one budget.
func WithSource(ctx context.Context, source string) context.Context {
	return context.WithValue(ctx, sourceKey{}, source)
}

func sourceFrom(ctx context.Context) string {
	source, _ := ctx.Value(sourceKey{}).(string)
	return source
}

// SourceOf returns the source for a client's address: the address itself, or for
// IPv6 its /64, which is what one subscriber has.
func SourceOf(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if p, err := a.Prefix(64); a.Is6() && err == nil {
		return p.String()
	}
	return a.String()
}

// ChargeClients charges the look-ups that a request causes to the address it came
// from, as the connection has it. Behind a proxy that is the proxy's: let the
// proxy be the one source, or wrap the handler with another WithSource.
func ChargeClients(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
			r = r.WithContext(WithSource(r.Context(), SourceOf(a.Addr())))
		}
		next.ServeHTTP(w, r)
	})
}

// maxMeters bounds the memory for meters. A meter that is forgotten starts full;
// who has that many addresses meets the budgets of the hosts.
const maxMeters = 10_000

// meters are token buckets, one for each key. The caller locks.
type meters struct {
	budget  Budget
	buckets *simplelru.LRU[string, *rate.Limiter]
}

func newMeters(b, otherwise Budget) *meters {
	if b == (Budget{}) {
		b = otherwise
	}
	buckets, err := simplelru.NewLRU[string, *rate.Limiter](maxMeters, nil)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return &meters{budget: b, buckets: buckets}
}

func (m *meters) bucket(key string) *rate.Limiter {
	b, ok := m.buckets.Get(key)
	if !ok {
		b = rate.NewLimiter(rate.Every(m.budget.Every), m.budget.Burst)
		m.buckets.Add(key, b)
	}
	return b
}

// left reports whether there is something to take.
func (m *meters) left(key string, now time.Time) bool {
	return m.bucket(key).TokensAt(now) >= 1
}

// take takes one, if there is one.
func (m *meters) take(key string, now time.Time) bool {
	return m.bucket(key).AllowN(now, 1)
}
