// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"time"
)

// NonceStore remembers the nonces of verified requests.
type NonceStore interface {
	// Use records that the key keyid used nonce, until expires at least, and
	// reports whether that was the first time. Of any number of concurrent calls
	// with the same pair exactly one returns true. A call that cannot record
	// the nonce returns an error, never true.
	Use(ctx context.Context, keyid, nonce string, expires time.Time) (fresh bool, err error)
}

// Errors of a NonceStore that has no room. A full store refuses requests; it
// never forgets a nonce early.
var (
	ErrNonceQuota = errors.New("httpsig: too many live nonces of this caller")
	ErrNoncesFull = errors.New("httpsig: too many live nonces")
)

// MemoryNonceOptions bounds a MemoryNonces. Zero fields have defaults.
type MemoryNonceOptions struct {
	Max       int              // live nonces in all; default 262144, about 30 MB
	PerDomain int              // of the DIDs under one domain; default Max/2
	PerDID    int              // of one DID; default Max/4
	Horizon   time.Duration    // longest time a nonce is kept, at least MaxLifetime + 3 Skew of the verifier; default 15 minutes
	Now       func() time.Time // default time.Now
}

// MemoryNonces is a NonceStore in memory, for a single process. Its contents are
// lost with the process: see [Options.NotBefore]. Each call costs the same
// whatever the number of live nonces.
type MemoryNonces struct {
	opts MemoryNonceOptions

	mu     sync.Mutex
	live   map[nonceKey]struct{}
	owners map[string]*nonceOwner // DIDs and domains
	wheel  [][]nonceEntry         // by second of expiry, modulo its length
	swept  int64                  // all entries that expire up to here are gone
}

// nonceKey is a truncated SHA-256 over keyid and nonce: 128 bits, of which a
// caller can only make those of its own key collide.
type nonceKey [16]byte

type nonceEntry struct {
	key   nonceKey
	owner *nonceOwner // of the DID
}

// nonceOwner counts the live nonces of a DID, or of a domain (parent == nil).
type nonceOwner struct {
	name   string
	count  int
	parent *nonceOwner
}

// NewMemoryNonces returns an empty store.
func NewMemoryNonces(o MemoryNonceOptions) *MemoryNonces {
	if o.Max <= 0 {
		o.Max = 1 << 18
	}
	if o.PerDomain <= 0 {
		o.PerDomain = max(o.Max/2, 1)
	}
	if o.PerDID <= 0 {
		o.PerDID = max(o.Max/4, 1)
	}
	if o.Horizon <= 0 {
		o.Horizon = 15 * time.Minute
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &MemoryNonces{
		opts:   o,
		live:   make(map[nonceKey]struct{}),
		owners: make(map[string]*nonceOwner),
		wheel:  make([][]nonceEntry, int64(o.Horizon/time.Second)+4),
	}
}

// Len returns the number of nonces held.
func (m *MemoryNonces) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.live)
}

// Use implements [NonceStore].
func (m *MemoryNonces) Use(_ context.Context, keyid, nonce string, expires time.Time) (bool, error) {
	key := newNonceKey(keyid, nonce)
	now := m.opts.Now()
	until := expires.Unix() + 1 // round up: kept until expires at least
	if expires.After(now.Add(m.opts.Horizon)) {
		return false, errors.New("httpsig: nonce expires beyond the store's horizon")
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	// Each call adds at most one entry and removes up to eight expired ones, so
	// that a backlog shrinks and no single call pays for it.
	m.sweep(now.Unix(), 8)
	if until <= m.swept {
		return false, errors.New("httpsig: nonce has expired")
	}
	if _, seen := m.live[key]; seen {
		return false, nil
	}
	did, domain := m.owner(keyid)
	if m.room(did, domain) != nil || until-m.swept >= int64(len(m.wheel)) {
		// Expired entries may still take the room, or stand in the slot that
		// this one needs. Every entry is removed once, so this too is paid for.
		m.sweep(now.Unix(), len(m.live))
		did, domain = m.owner(keyid)
		if err := m.room(did, domain); err != nil {
			return false, err
		}
	}
	if did.count == 0 {
		m.owners[did.name] = did
	}
	if domain.count == 0 {
		m.owners[domain.name] = domain
	}
	did.count++
	domain.count++
	m.live[key] = struct{}{}
	slot := &m.wheel[until%int64(len(m.wheel))]
	*slot = append(*slot, nonceEntry{key, did})
	return true, nil
}

func (m *MemoryNonces) room(did, domain *nonceOwner) error {
	if len(m.live) >= m.opts.Max {
		return ErrNoncesFull
	}
	if did.count >= m.opts.PerDID || domain.count >= m.opts.PerDomain {
		return ErrNonceQuota
	}
	return nil
}

// owner returns the counters for keyid's DID and domain; those that are not in
// use yet are not recorded.
func (m *MemoryNonces) owner(keyid string) (did, domain *nonceOwner) {
	name, _, _ := strings.Cut(keyid, "#")
	if did = m.owners[name]; did != nil {
		return did, did.parent
	}
	// did:method:domain[:path]; the port (%3A…) does not make another domain,
	// and the method does not either.
	host := name
	if parts := strings.SplitN(name, ":", 4); len(parts) >= 3 {
		host, _, _ = strings.Cut(strings.ToLower(parts[2]), "%3a")
	}
	if domain = m.owners["domain "+host]; domain == nil {
		domain = &nonceOwner{name: "domain " + strings.Clone(host)}
	}
	return &nonceOwner{name: strings.Clone(name), parent: domain}, domain
}

// sweep removes up to budget entries that expired before now.
func (m *MemoryNonces) sweep(now int64, budget int) {
	if len(m.live) == 0 {
		m.swept = max(m.swept, now-1) // nothing to walk over, however long ago
		return
	}
	for m.swept < now-1 {
		slot := &m.wheel[(m.swept+1)%int64(len(m.wheel))]
		for ; len(*slot) > 0 && budget > 0; budget-- {
			last := len(*slot) - 1
			m.forget((*slot)[last])
			*slot = (*slot)[:last]
		}
		if len(*slot) > 0 {
			return
		}
		*slot = nil
		m.swept++
	}
}

func (m *MemoryNonces) forget(e nonceEntry) {
	delete(m.live, e.key)
	for o := e.owner; o != nil; o = o.parent {
		if o.count--; o.count == 0 {
			delete(m.owners, o.name)
		}
	}
}

func newNonceKey(keyid, nonce string) (key nonceKey) {
	// The length in front keeps (ab, c) and (a, bc) apart.
	var stack [256]byte
	buf := binary.BigEndian.AppendUint32(stack[:0], uint32(len(keyid)))
	buf = append(buf, keyid...)
	buf = append(buf, nonce...)
	sum := sha256.Sum256(buf)
	copy(key[:], sum[:])
	return key
}
