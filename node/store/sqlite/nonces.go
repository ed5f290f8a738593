// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"github.com/treaty-node/treaty/did/httpsig"
)

// NonceLimits bounds what the store remembers of callers' nonces. Zero fields have defaults.
type NonceLimits struct {
	Max       int           // live nonces in all; default 262144
	PerDomain int           // of the DIDs under one domain; default half of Max
	PerDID    int           // of one DID; default a quarter of Max
	Horizon   time.Duration // longest time a nonce is kept; default 15 minutes
}

func (l NonceLimits) withDefaults() NonceLimits {
	if l.Max <= 0 {
		l.Max = 1 << 18
	}
	if l.PerDomain <= 0 {
		l.PerDomain = max(l.Max/2, 1)
	}
	if l.PerDID <= 0 {
		l.PerDID = max(l.Max/4, 1)
	}
	if l.Horizon <= 0 {
		l.Horizon = 15 * time.Minute
	}
	return l
}

// everybody is the owner that counts all nonces; no DID or domain is spelled so.
const everybody = "*"

// Use implements httpsig.NonceStore for several processes, and across restarts. It commits durably, which costs a sync: a
// node that is alone behind its address can keep nonces in memory instead.
func (db *DB) Use(ctx context.Context, keyid, nonce string, expires time.Time) (fresh bool, err error) {
	now := db.clock.Now()
	if !expires.After(now) {
		return false, errors.New("sqlite: nonce has expired")
	}
	if expires.After(now.Add(db.nonces.Horizon)) {
		return false, errors.New("sqlite: nonce expires beyond the store's horizon")
	}
	id := nonceID(keyid, nonce)
	did, domain := nonceOwners(keyid)
	err = db.update(ctx, false, func(t *tx) error {
		// Each call adds one row and removes a few expired ones: a backlog shrinks and no single call pays for it.
		if err := t.sweepNonces(now, 8); err != nil {
			return err
		}
		n, err := t.exec("INSERT INTO nonces (id, did, domain, expires) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", id, did, domain, micros(expires))
		if err != nil || n == 0 {
			return err
		}
		if err := t.countNonce(did, domain); errors.Is(err, httpsig.ErrNonceQuota) || errors.Is(err, httpsig.ErrNoncesFull) {
			// Expired ones may still take the room.
			if err := t.sweepNonces(now, db.nonces.Max); err != nil {
				return err
			}
			if err := t.checkNonceRoom(did, domain); err != nil {
				return err
			}
		} else if err != nil {
			return err
		}
		fresh = true
		return nil
	})
	return fresh && err == nil, err
}

// countNonce adds one nonce to its owners, then looks whether they have room for it.
func (t *tx) countNonce(did, domain string) error {
	for _, owner := range []string{everybody, domain, did} {
		if _, err := t.exec("INSERT INTO nonce_owners (name, live) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET live = live + 1", owner); err != nil {
			return err
		}
	}
	return t.checkNonceRoom(did, domain)
}

func (t *tx) checkNonceRoom(did, domain string) error {
	for _, c := range []struct {
		owner string
		max   int
		err   error
	}{{everybody, t.db.nonces.Max, httpsig.ErrNoncesFull}, {domain, t.db.nonces.PerDomain, httpsig.ErrNonceQuota}, {did, t.db.nonces.PerDID, httpsig.ErrNonceQuota}} {
		live, err := one(t, integer, "SELECT live FROM nonce_owners WHERE name = ?", c.owner)
		if err != nil {
			return err
		}
		if live > int64(c.max) {
			return c.err // rolls the transaction back, and the row with it
		}
	}
	return nil
}

// sweepNonces removes up to n expired nonces.
func (t *tx) sweepNonces(now time.Time, n int) error {
	type gone struct{ did, domain string }
	list, err := all(t, func(r row) (g gone, err error) { err = r.Scan(&g.did, &g.domain); return g, err },
		"DELETE FROM nonces WHERE id IN (SELECT id FROM nonces WHERE expires <= ? ORDER BY expires LIMIT ?) RETURNING did, domain", micros(now), n)
	if err != nil || len(list) == 0 {
		return err
	}
	counts := map[string]int{everybody: len(list)}
	for _, g := range list {
		counts[g.did]++
		counts[g.domain]++
	}
	for owner, k := range counts {
		if _, err := t.exec("UPDATE nonce_owners SET live = live - ? WHERE name = ?", k, owner); err != nil {
			return err
		}
	}
	_, err = t.exec("DELETE FROM nonce_owners WHERE live = 0")
	return err
}

// nonceOwners are the DID of a key id and its domain, without port and method, in a spelling of its own.
func nonceOwners(keyid string) (did, domain string) {
	did, _, _ = strings.Cut(keyid, "#")
	domain = did
	if parts := strings.SplitN(did, ":", 4); len(parts) >= 3 {
		domain, _, _ = strings.Cut(strings.ToLower(parts[2]), "%3a")
	}
	return did, "domain " + domain
}

func nonceID(keyid, nonce string) []byte {
	// The length in front keeps (ab, c) and (a, bc) apart.
	buf := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(keyid)+len(nonce)), uint32(len(keyid))) //nolint:gosec // a bounded header
	buf = append(buf, keyid...)
	buf = append(buf, nonce...)
	sum := sha256.Sum256(buf)
	return sum[:]
}
