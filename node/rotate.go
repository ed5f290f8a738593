// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/crashpoint"
	"github.com/treaty-node/treaty/node/internal/keystore"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

// Rotation inside a DID. The order makes every crash harmless: first the new key's file, synced; then the new document, signed
// and checked; then, in one transaction, the document in the place of the one that it was made from, with the event; and only
// then is it published. A crash before the transaction leaves a file that no document names, one after it is completed by the
// next start.

// Codes of refused rotations.
const (
	codeRotating = "ROTATION_UNDER_WAY"
	codeRotated  = "ROTATION_CONFLICT"
	codeTooOften = "TOO_MANY_MOVES"
	codeOutdated = "IDENTITY_OUTDATED" // at the start: peers have seen a later document
)

// maxRetiring bounds the keys of one role and type that are in their grace at a time: documents are small.
const maxRetiring = 8

var rotations = map[string]struct {
	role  keystore.Role
	rel   did.Relationship
	types []did.KeyType // one key of each is made
}{
	httpapi.RotateKeyAgreement: {keystore.Kex, did.KeyAgreement, []did.KeyType{did.X25519, did.XWing}},
	httpapi.RotateSigning:      {keystore.Signing, did.Authentication, []did.KeyType{did.Ed25519}},
	httpapi.RotateHuman:        {keystore.Human, did.HumanAuthorization, []did.KeyType{did.Ed25519}},
	httpapi.RotateRecovery:     {keystore.Recovery, did.Recovery, []did.KeyType{did.Ed25519}},
}

// Rotate implements [httpapi.Admin].
func (n *Node) Rotate(ctx context.Context, req httpapi.RotateRequest) (httpapi.Rotation, error) {
	kind, ok := rotations[req.Kind]
	switch {
	case !ok && req.Kind != httpapi.RotateBinding:
		return httpapi.Rotation{}, &httpapi.Error{Kind: httpapi.KindUsage, Message: fmt.Sprintf("%q is not a kind of key that rotates; there are binding, key-agreement, signing, human and recovery", req.Kind)}
	case ok && kind.role.Offline() != (len(req.PublicKey) > 0):
		return httpapi.Rotation{}, &httpapi.Error{Kind: httpapi.KindUsage, Message: "a public key is given for kinds human and recovery, whose private keys the node must not reach, and for no other"}
	case !n.rotating.TryLock():
		return httpapi.Rotation{}, &httpapi.Error{Kind: httpapi.KindRefused, Code: codeRotating, Message: "another rotation is under way; nothing was changed"}
	}
	defer n.rotating.Unlock()
	err := n.refresh(ctx)
	if err != nil {
		return httpapi.Rotation{}, err
	}
	id, now := n.id(), n.clock.Now().Truncate(time.Second)
	if req.Document != "" && req.Document != id.agent.Hash().String() {
		return httpapi.Rotation{}, conflict()
	}
	if req.Kind == httpapi.RotateBinding {
		return n.rotateBinding(ctx, id, req, now)
	}
	var add []did.Addition
	var saved []string
	for _, typ := range kind.types {
		public, path, keyErr := n.newOwnKey(id, kind.role, typ, req.PublicKey, now)
		if path != "" {
			saved = append(saved, path)
		}
		if err = keyErr; err != nil {
			break
		}
		add = append(add, did.Addition{Relationship: kind.rel, Key: did.MethodSpec{Key: public}})
	}
	var out httpapi.Rotation
	if err == nil {
		crashpoint.Hit(crashpoint.RotationKey)
		out, err = n.replaceKey(ctx, id, req, add, now)
	}
	if err != nil {
		if !errors.Is(err, errUncertain) { // nobody knows the keys: the document that would have named them is not there
			for _, path := range saved {
				if rmErr := os.Remove(path); rmErr != nil {
					err = errors.Join(err, rmErr)
				}
			}
		}
		return httpapi.Rotation{}, err
	}
	out.Note = n.take(ctx)
	return out, nil
}

// replaceKey publishes new keys, one of each type, and an end for those that they replace.
func (n *Node) replaceKey(ctx context.Context, id *identity, req httpapi.RotateRequest, add []did.Addition, now time.Time) (httpapi.Rotation, error) {
	role := rotations[req.Kind].role
	out := httpapi.Rotation{Kind: req.Kind, KID: did.KeyID(id.agent.ID(), string(role), add[0].Key.Key), Previous: []string{}, UsedFrom: stamp(now.Add(n.cfg.Rotation.Settle))}
	until := now.Add(n.cfg.Rotation.Grace)
	if req.Now {
		until = now
	}
	next := id.rec
	if next.Keys = maps.Clone(next.Keys); next.Keys == nil {
		next.Keys = map[string]store.OwnKey{}
	}
	for _, a := range add {
		next.Keys[did.KeyID(id.agent.ID(), string(role), a.Key.Key)] = store.OwnKey{Role: string(role), Since: now}
	}
	rev := did.Revision{Add: add, Expire: map[string]time.Time{}}
	retiring := 0
	for _, m := range id.agent.Keys(add[0].Relationship) {
		switch {
		case m.ID == id.binding.KeyID():
			continue
		case req.Now:
			rev.Remove = append(rev.Remove, m.ID)
			next.Keys[m.ID] = store.OwnKey{Role: string(role), State: store.KeyRetired, Since: next.Keys[m.ID].Since, Until: now}
		case m.Expires.IsZero():
			rev.Expire[m.ID] = until
		default:
			retiring++
			continue
		}
		out.Previous, out.Until = append(out.Previous, m.ID), stamp(until)
	}
	if retiring+len(rev.Expire) > maxRetiring*len(add) {
		return out, &httpapi.Error{
			Kind: httpapi.KindRefused, Code: codeRotating, Message: fmt.Sprintf("%d keys of this kind are in their grace period already; nothing was changed", retiring),
			Hint: "`treaty keys list` says until when",
		}
	}
	err := n.revise(ctx, id, next, rev, now, func(doc *did.Document) []ledger.Entry {
		out.Document = doc.Hash()
		return append([]ledger.Entry{{Type: ledger.KeyRotated, Data: ledger.Rotation{
			Role: string(role), KeyID: out.KID, Previous: out.Previous, Until: out.Until, Hash: doc.Hash(),
		}}}, retirements(next.Keys, rev.Remove, doc)...)
	})
	return out, err
}

func retirements(keys map[string]store.OwnKey, kids []string, doc *did.Document) (entries []ledger.Entry) {
	for _, kid := range kids {
		entries = append(entries, ledger.Entry{Type: ledger.KeyRetired, Data: ledger.Retirement{Role: keys[kid].Role, KeyID: kid, Hash: doc.Hash()}})
	}
	return entries
}

func conflict() error {
	return &httpapi.Error{
		Kind: httpapi.KindRefused, Code: codeRotated, Message: "somebody else has changed this node's document meanwhile; nothing was changed by this rotation",
		Hint: "`treaty keys list` shows the keys there are now",
	}
}

// newOwnKey makes the new key and has it on disk, or takes the public half of one that is kept elsewhere.
func (n *Node) newOwnKey(id *identity, role keystore.Role, typ did.KeyType, given []byte, now time.Time) (did.PublicKey, string, error) {
	if role.Offline() {
		public, err := did.NewPublicKey(typ, given)
		if err != nil {
			return did.PublicKey{}, "", &httpapi.Error{Kind: httpapi.KindUsage, Message: "public key: " + err.Error()}
		}
		return public, "", nil
	}
	key, err := newKey(role, typ, now, func(did.PublicKey) (did.DID, error) { return id.agent.ID(), nil })
	if err != nil {
		return did.PublicKey{}, "", err
	}
	recipient, err := id.own.seal()
	if err != nil {
		return did.PublicKey{}, "", err
	}
	path, err := keystore.Save(filepath.Join(n.dir, KeysDir), key, recipient)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		_ = os.Remove(path) // the link may be there though its folder could not be synced
		path = ""
	}
	return key.Private.Public(), path, err
}

// revise publishes the agent's document with other keys, if it still is the one of id. next is the record to come, but for
// document and states. Nothing is stored when it fails; signing, which may wait for a remote signer, comes before the
// transaction.
func (n *Node) revise(ctx context.Context, id *identity, next store.Identity, rev did.Revision, now time.Time, log func(*did.Document) []ledger.Entry) error {
	unsigned, err := id.agent.Revise(rev)
	if err != nil {
		return err
	}
	raw, err := proved(ctx, id.agent, unsigned, id.binding, did.Dialect(n.cfg.ProofDialect), now)
	if err != nil {
		return err
	}
	doc, err := did.ParseDocument(raw)
	if err != nil {
		return err
	}
	next.Agent = string(raw)
	if next.Keys, err = keyStates(next.Keys, next.Agent, now); err != nil {
		return err
	}
	crashpoint.Hit(crashpoint.RotationProved)
	return n.putIdentity(ctx, next, id.rec.Version, log(doc))
}

// putIdentity stores the next identity in the place of exactly the version that it was made from.
func (n *Node) putIdentity(ctx context.Context, next store.Identity, version int64, log []ledger.Entry) error {
	err := n.db.Update(ctx, func(tx store.Tx) error {
		if err := store.PutIdentity(tx, next, version); err != nil {
			return err
		}
		for _, e := range log {
			if _, err := tx.Append(e); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, store.ErrConflict):
		return conflict()
	case err != nil && !errors.Is(err, store.ErrFull):
		return fmt.Errorf("%w: %w", errUncertain, err)
	case err == nil:
		crashpoint.Hit(crashpoint.RotationCommitted)
	}
	return err
}

// errUncertain: a failing disk may still show the document after the next start (see package sqlite), so the key stays.
var errUncertain = errors.New("storing the new document")

// take brings into use what is in the store now. It is decided: what fails here is done again by the node itself, every
// second.
func (n *Node) take(ctx context.Context) (note string) {
	ctx = context.WithoutCancel(ctx)
	err := n.refresh(ctx)
	if err == nil {
		err = n.export(n.id())
		crashpoint.Hit(crashpoint.RotationExported)
		if err == nil {
			err = n.tidy(n.id())
		}
	}
	if err == nil {
		return ""
	}
	n.log.Error("after a rotation; it is tried again", "err", err)
	return "the new document is in force; not done yet, and tried again every second: " + err.Error()
}

// retire takes the keys out of the document whose grace is over, and their files away.
func (n *Node) retire(ctx context.Context) error {
	id, now := n.id(), n.clock.Now()
	var due []string
	for kid, k := range id.rec.Keys {
		if k.State == store.KeyRetiring && !now.Before(k.Until) && kid != id.binding.KeyID() {
			due = append(due, kid)
		}
	}
	past, entries, err := retireFormer(id.rec, now)
	if err != nil || len(due)+len(entries) == 0 || !n.rotating.TryLock() {
		return err
	}
	defer n.rotating.Unlock()
	if len(entries) > 0 {
		if err := n.putIdentity(ctx, past, id.rec.Version, entries); err != nil || len(due) == 0 {
			return n.retired(ctx, err)
		}
		return n.refresh(ctx) // and what is due in the document, at the next look
	}
	slices.Sort(due)
	return n.retired(ctx, n.revise(ctx, id, id.rec, did.Revision{Remove: due}, now.Truncate(time.Second), func(doc *did.Document) []ledger.Entry {
		return retirements(id.rec.Keys, due, doc)
	}))
}

// retired brings into use what a retirement has stored.
func (n *Node) retired(ctx context.Context, err error) error {
	var e *httpapi.Error
	if errors.As(err, &e) && e.Code == codeRotated {
		return nil // another process was faster; the next look shows what is left to do
	}
	if err == nil {
		n.take(ctx)
	}
	return err
}
