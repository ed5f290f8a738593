// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/node/internal/keystore"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/store"
)

const (
	identityEvery = time.Second // between looks at what other processes have rotated
	maxRetired    = 64          // keys that are remembered after they have gone
)

// refresh looks whether the identity in the store is still the one in use here, and takes over the store's if not: another
// process of this node, or this one, has rotated a key. When it returns without error, what the node uses next is no older
// than what the store held when it was called.
func (n *Node) refresh(ctx context.Context) error {
	var version int64
	err := n.db.View(ctx, func(tx store.Tx) (err error) { version, err = store.IdentityVersion(tx); return err })
	if err != nil || version == n.id().rec.Version {
		return err
	}
	n.changing.Lock()
	defer n.changing.Unlock()
	last := n.id()
	var rec store.Identity
	err = n.db.View(ctx, func(tx store.Tx) (err error) { rec, err = store.GetIdentity(tx); return err })
	if err != nil || rec.Version <= last.rec.Version {
		return err
	}
	doc, err := did.ParseDocument([]byte(rec.Agent))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	own, err := last.own.load(n.dir, doc)
	if err != nil {
		return err
	}
	if err := own.connect(ctx, doc); err != nil {
		return err
	}
	id, err := newSnapshot(rec, own, n.clock.Now())
	if err != nil {
		return err
	}
	if err := n.publish(ctx, id, last); err != nil {
		return err
	}
	n.live.Store(id)
	return nil
}

// current lets a request through when this process knows the identity in force; else it would answer for keys that another
// process has retired.
func (n *Node) current(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := n.refresh(r.Context()); err != nil {
			n.log.Error("own identity", "err", err)
			w.Header().Set("Cache-Control", "no-store")
			w.Header().Set("Retry-After", "1")
			http.Error(w, "not available", http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// keepIdentity follows rotations by other processes, retires keys whose grace is over, and brings the folder up to date.
func (n *Node) keepIdentity() func(context.Context) {
	last := ""
	return func(ctx context.Context) {
		err, text := n.Tend(ctx), ""
		if err != nil {
			text = err.Error()
		}
		if text != "" && text != last && ctx.Err() == nil { // once, and not every second
			n.log.Error("own identity; it is tried again every second", "err", err)
		}
		last = text
	}
}

// Tend does once what a running node does every second about its own identity.
func (n *Node) Tend(ctx context.Context) error {
	if err := n.refresh(ctx); err != nil {
		return err
	}
	return errors.Join(n.retire(ctx), n.tidy(n.id()))
}

// tidy makes the folder say what the store says: documents, and no file of a key that has retired.
func (n *Node) tidy(id *identity) error {
	err := n.export(id)
	if err != nil {
		return err // the folder may still need a key that has retired, to start with
	}
	for kid, k := range id.rec.AllKeys() {
		if k.State != store.KeyRetired || keystore.Role(k.Role).Offline() {
			continue
		}
		if _, fragment, splitErr := did.SplitKeyID(kid); splitErr == nil {
			if rmErr := os.Remove(keyFile(n.dir, fragment)); rmErr != nil && !errors.Is(rmErr, os.ErrNotExist) {
				err = errors.Join(err, rmErr)
			}
		}
	}
	return err
}

// keys is what negotiations talk with now.
func (n *Node) keys() negotiation.Keys {
	if n.stale.Swap(false) {
		if err := n.refresh(n.life); err != nil { // signing will be refused again
			n.log.Error("own identity", "err", err)
		}
	}
	id := n.id()
	return negotiation.Keys{
		Binding: id.binding, KeyAgreementKID: id.keyAgreement(hpke.SuiteX25519, n.clock.Now(), n.cfg.Rotation.Settle),
		HybridKID: id.keyAgreement(hpke.SuiteXWing, n.clock.Now(), n.cfg.Rotation.Settle), Vault: vault(id.own.files[keystore.Kex]),
		Opener: opener{n, id, 0}, Document: id.agent,
		Owns: id.owns, Former: id.formerOf,
	}
}

// speaksAs says, in a transaction that stores what the node signs, whether the keys that this process has are those in force: no
// other process can retire them before the transaction ends. store.ErrConflict when they are not.
func (n *Node) speaksAs(tx store.Tx, self did.DID) error {
	version, err := store.IdentityVersion(tx)
	if err != nil {
		return err
	}
	if id := n.id(); version != id.rec.Version || self != id.agent.ID() {
		n.stale.Store(true)
		return fmt.Errorf("%w: another process has changed this node's identity", store.ErrConflict)
	}
	return nil
}

// settled says whether a key has been published for long enough to be used.
func (id *identity) settled(kid string, now time.Time, settle time.Duration) bool {
	return !now.Before(id.rec.Keys[kid].Since.Add(settle)) || id.rec.Keys[kid].Since.IsZero()
}

// keyAgreement is the key that new negotiations name for a suite: one that does not end and that peers know by now; else, right
// after a rotation, the one that it replaces. "" when there is none, which newSnapshot excludes for X25519.
func (id *identity) keyAgreement(suite hpke.Suite, now time.Time, settle time.Duration) string {
	fallback, _, _ := hpke.SelectKey(id.agent, suite, now)
	if !id.own.holds(fallback) {
		fallback = ""
	}
	var ending did.VerificationMethod
	for _, m := range id.agent.Keys(did.KeyAgreement) {
		if _, err := hpke.NamedKey(id.agent, m.ID, suite, now); err != nil || !id.own.holds(m.ID) || !id.settled(m.ID, now, settle) {
			continue
		}
		if m.Expires.IsZero() {
			return m.ID
		}
		if m.Expires.After(ending.Expires) {
			ending = m
		}
	}
	if ending.ID != "" {
		return ending.ID
	}
	return fallback
}

// opener opens with the keys of one identity, and says of a key that it is past its grace.
type opener struct {
	n     *Node
	id    *identity
	ahead time.Duration // of the clock: in a drill, its messages meet the end of the grace earlier
}

// Open implements [hpke.Opener].
func (o opener) Open(ctx context.Context, suite hpke.Suite, s hpke.Sealed, c hpke.Context, aad []byte) ([]byte, error) {
	k := o.id.rec.Key(c.RecipientKID)
	if k.State == store.KeyRetired || k.State == store.KeyRetiring && !o.n.clock.Now().Add(o.ahead).Before(k.Until) {
		return nil, fmt.Errorf("%w: %s, at %s", hpke.ErrRetired, c.RecipientKID, k.Until.Format(time.RFC3339))
	}
	return o.id.ring.Open(ctx, suite, s, c, aad)
}

// requestSigner signs the next request: the newest secondary signing key that peers know by now, or the binding key. It looks
// first whether another process has retired that key.
func (n *Node) requestSigner() did.Signer {
	if err := n.refresh(n.life); err != nil {
		return unsure{n.id().binding, err}
	}
	id, now := n.id(), n.clock.Now()
	best := id.binding
	var since time.Time
	for _, f := range id.own.files[keystore.Signing] {
		k, known := id.rec.Keys[f.KID]
		if !known || k.State != store.KeyActive || !k.Since.After(since) || !id.settled(f.KID, now, n.cfg.Rotation.Settle) {
			continue
		}
		if _, err := id.agent.KeyFor(f.KID, did.Authentication, now); err != nil {
			continue
		}
		if s, err := did.NewSigner(f.KID, f.Private); err == nil {
			best, since = s, k.Since
		}
	}
	return best
}

// unsure stands for a signer when the node does not know whether its keys still count.
type unsure struct {
	did.Signer
	err error
}

// Sign implements [did.Signer].
func (u unsure) Sign(context.Context, []byte) ([]byte, error) { return nil, u.err }

// keyStates is what the store remembers of keys after a document has been replaced.
func keyStates(before map[string]store.OwnKey, text string, now time.Time) (map[string]store.OwnKey, error) {
	doc, err := did.ParseDocument([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	after := maps.Clone(before)
	if after == nil {
		after = map[string]store.OwnKey{}
	}
	for kid, k := range after {
		if _, ok := doc.Method(kid); !ok && k.State != store.KeyRetired {
			if k.State = store.KeyRetired; k.Until.IsZero() {
				k.Until = now
			}
			after[kid] = k
		}
	}
	for _, m := range doc.Methods() {
		k, known := after[m.ID]
		switch {
		case !m.Expires.IsZero():
			k.State, k.Until = store.KeyRetiring, m.Expires
		case known:
			k.State, k.Until = store.KeyActive, time.Time{}
		default:
			continue
		}
		k.Role = string(roleIn(doc, did.DID{}, m.ID))
		after[m.ID] = k
	}
	var gone []string
	for kid, k := range after {
		if k.State == store.KeyRetired {
			gone = append(gone, kid)
		}
	}
	slices.SortFunc(gone, func(a, b string) int { return after[b].Until.Compare(after[a].Until) })
	for _, kid := range gone[min(len(gone), maxRetired):] {
		delete(after, kid)
	}
	return after, nil
}
