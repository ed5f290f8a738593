// SPDX-License-Identifier: Apache-2.0

// Package inflight bounds the requests that a server works on at one time.
package inflight

import (
	"net/http"
	"net/netip"
	"sync"

	"github.com/treaty-node/treaty/did/resolver"
)

// Limit answers 503 while more than n requests are under way, or more than each of one client's, before anything is read of
// them: whoever sends its requests slowly does not keep all others out. A client is an address, or a /64 of IPv6.
func Limit(n, each int, next http.Handler) http.Handler {
	l := limiter{n: n, each: each, clients: map[string]int{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client := clientOf(r)
		if !l.enter(client) {
			w.Header().Set("Retry-After", "1")
			w.Header().Set("Cache-Control", "no-store")
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		defer l.leave(client)
		next.ServeHTTP(w, r)
	})
}

type limiter struct {
	n, each int
	mu      sync.Mutex
	all     int
	clients map[string]int
}

func (l *limiter) enter(client string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= l.n || l.clients[client] >= l.each {
		return false
	}
	l.all++
	l.clients[client]++
	return true
}

func (l *limiter) leave(client string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.clients[client]--; l.clients[client] == 0 {
		delete(l.clients, client)
	}
}

// clientOf is who is charged for a request: what names no address, such as a Unix socket, is one client.
func clientOf(r *http.Request) string {
	a, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return resolver.SourceOf(a.Addr())
}
