// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/store"
)

// Documents of DIDs on hosts without a contract that are fetched: anybody can sign a request with a DID of its own making.
const (
	strangerFetches = 60
	strangerEvery   = time.Second
	refreshEvery    = 5 * time.Second
)

// errStrangers: too many documents of strangers were fetched.
var errStrangers = errors.New("documents of strangers are being fetched too often")

// fetching is the RoundTripper that documents are fetched with. The hosts of contracts' parties are always fetched from (within
// the resolver's own budgets); all others together, a few.
type fetching struct {
	base      http.RoundTripper
	contracts func(ctx context.Context) ([]string, error) // DIDs that are parties of contracts
	strangers *rate.Limiter
	now       func() time.Time

	mu    sync.Mutex
	hosts map[string]bool
	read  time.Time
}

func newFetching(base http.RoundTripper, db store.Store, now func() time.Time) *fetching {
	return &fetching{base: base, now: now, strangers: rate.NewLimiter(rate.Every(strangerEvery), strangerFetches), contracts: func(ctx context.Context) (out []string, err error) {
		err = db.View(ctx, func(tx store.Tx) error {
			list, err := tx.ListContracts(store.ContractFilter{State: store.InForce})
			for _, c := range list {
				out = append(out, c.Peer)
			}
			return err
		})
		return out, err
	}}
}

// RoundTrip implements [http.RoundTripper].
func (f *fetching) RoundTrip(r *http.Request) (*http.Response, error) {
	known, err := f.known(r.Context(), strings.ToLower(r.URL.Hostname()))
	if err != nil {
		return nil, err
	}
	if !known && !f.strangers.AllowN(f.now(), 1) {
		return nil, errStrangers
	}
	return f.base.RoundTrip(r)
}

// known reports whether a party of a contract has its document on host. A host that is not known is looked for in the store
// again, at most every few seconds.
func (f *fetching) known(ctx context.Context, host string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	if f.hosts[host] || f.hosts != nil && now.Sub(f.read) < refreshEvery {
		return f.hosts[host], nil
	}
	parties, err := f.contracts(ctx)
	if err != nil {
		return false, err
	}
	f.hosts, f.read = map[string]bool{}, now
	for _, p := range parties {
		if id, err := did.Parse(p); err == nil {
			name, _, _ := strings.Cut(strings.ToLower(id.Host()), ":")
			f.hosts[name] = true
		}
	}
	return f.hosts[host], nil
}
