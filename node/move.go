// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/crashpoint"
	"github.com/treaty-node/treaty/node/internal/keystore"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/signer"
	"github.com/treaty-node/treaty/node/store"
)

// A new binding key: the identity moves to another DID under the same stable subject. The order is that of a rotation inside the
// DID: the new keys' files, synced; then both documents, signed and held against each other as a peer will; then, in one
// transaction, the record in the place of the one that it was made from, the succession and the events; and only then is it
// published. The old document is deactivated by the old binding key, or by a recovery key that the node never sees.

// move is one step from a DID to the next.
type move struct {
	store.Succession

	until time.Time // what is sealed to the old keys is opened until then
}

// successor is the DID that follows, with its keys, before anything is published of it.
type successor struct {
	id      did.DID
	binding did.Signer
	kex     []did.PublicKey
	files   []string // of the keys; gone when nothing comes of it
}

// discard takes the key files away. No document names the keys.
func (s *successor) discard() (err error) {
	for _, f := range s.files {
		if rmErr := os.Remove(f); rmErr != nil && !errors.Is(rmErr, os.ErrNotExist) {
			err = errors.Join(err, rmErr)
		}
	}
	return err
}

// rotateBinding moves the identity, or prepares the move for a recovery key to sign. The caller holds the rotations' lock and has
// refreshed the identity.
func (n *Node) rotateBinding(ctx context.Context, id *identity, req httpapi.RotateRequest, now time.Time) (httpapi.Rotation, error) {
	if err := checkMove(id, req, now); err != nil {
		return httpapi.Rotation{}, err
	}
	var next *successor
	var err error
	if req.Successor != "" {
		next, err = n.preparedSuccessor(ctx, id, req.Successor)
	} else {
		next, err = n.newSuccessor(ctx, id, req.SignerKID, now)
	}
	if err != nil {
		return httpapi.Rotation{}, err
	}
	crashpoint.Hit(crashpoint.RotationKey)
	if req.Prepare {
		return httpapi.Rotation{
			Kind: req.Kind, KID: next.binding.KeyID(), DID: next.id.String(), PreviousDID: id.agent.ID().String(), Previous: []string{},
			Document: id.agent.Hash(), Active: id.agent.Raw(), Dialect: n.cfg.ProofDialect,
		}, nil
	}
	out, err := n.move(ctx, id, next, req, now)
	if err != nil {
		if !errors.Is(err, errUncertain) {
			err = errors.Join(err, next.discard())
		}
		return httpapi.Rotation{}, err
	}
	out.Note = n.take(ctx)
	return out, nil
}

func checkMove(id *identity, req httpapi.RotateRequest, now time.Time) error {
	switch {
	case len(req.PublicKey) > 0 || req.Now:
		return &httpapi.Error{Kind: httpapi.KindUsage, Message: "a binding key is replaced at once, and made by the node; a key that somebody else may have is --compromised"}
	case !req.Compromised && !req.Since.IsZero():
		return &httpapi.Error{Kind: httpapi.KindUsage, Message: "--since says from when somebody else may have had the key; it goes with --compromised"}
	case req.Since.After(now):
		return &httpapi.Error{Kind: httpapi.KindUsage, Message: "--since lies in the future"}
	case (req.Successor == "") != (len(req.Deactivated) == 0) || req.Successor != "" && req.Prepare:
		return &httpapi.Error{Kind: httpapi.KindUsage, Message: "a recovery key signs what was prepared: the prepared DID and the signed document come together"}
	case len(id.former) >= resolver.MaxHops:
		return &httpapi.Error{
			Kind: httpapi.KindRefused, Code: codeTooOften, Message: fmt.Sprintf("this identity has moved %d times, and nobody follows a longer chain; nothing was changed", len(id.former)),
			Hint: "make a new identity under another agent path (`treaty init`) and agree on it with your counterparties",
		}
	}
	return nil
}

// newSuccessor makes the keys of the next DID and has them on disk: a binding key, unless it is behind the remote signer, and a
// key-agreement key of each kind that there is now.
func (n *Node) newSuccessor(ctx context.Context, id *identity, signerKID string, now time.Time) (s *successor, err error) {
	s = &successor{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.discard())
		}
	}()
	old := id.agent.ID()
	if client := id.own.client; client != nil || signerKID != "" {
		if s.binding, err = remoteSuccessor(ctx, client, old, signerKID); err != nil {
			return s, err
		}
	} else {
		key, err := newKey(keystore.Signing, did.Ed25519, now, func(k did.PublicKey) (did.DID, error) { return did.SuccessorID(old, k) })
		if err != nil {
			return s, err
		}
		if err := s.save(n.dir, id.own, key); err != nil {
			return s, err
		}
		if s.binding, err = did.NewSigner(key.KID, key.Private); err != nil {
			return s, err
		}
	}
	if s.id, err = did.SuccessorID(old, s.binding.PublicKey()); err != nil {
		return s, err
	}
	types := map[did.KeyType]bool{}
	for _, m := range id.agent.Keys(did.KeyAgreement) {
		if types[m.Key.Type()] || !m.Expires.IsZero() {
			continue
		}
		types[m.Key.Type()] = true
		key, err := newKey(keystore.Kex, m.Key.Type(), now, func(did.PublicKey) (did.DID, error) { return s.id, nil })
		if err != nil {
			return s, err
		}
		if err := s.save(n.dir, id.own, key); err != nil {
			return s, err
		}
		s.kex = append(s.kex, key.Private.Public())
	}
	return s, nil
}

func (s *successor) save(dir string, own *ownKeys, key keystore.Key) error {
	recipient, err := own.seal()
	if err != nil {
		return err
	}
	path, err := keystore.Save(filepath.Join(dir, KeysDir), key, recipient)
	if err == nil || !errors.Is(err, os.ErrExist) { // the link may be there though its folder could not be synced
		s.files = append(s.files, path)
	}
	return err
}

// remoteSuccessor finds the next binding key behind the remote signer.
func remoteSuccessor(ctx context.Context, client *signer.Client, old did.DID, kid string) (did.Signer, error) {
	if client == nil {
		return nil, &httpapi.Error{Kind: httpapi.KindUsage, Message: "--signer-kid names a key behind a remote signer, and " + ConfigFile + " has no keys.signer"}
	}
	if kid == "" {
		return nil, &httpapi.Error{
			Kind: httpapi.KindUsage, Message: "the binding key is behind keys.signer, which makes no keys for the node; nothing was changed",
			Hint: "make the next key in the token (`treaty-signer generate --label binding-2 --subject " + old.StableSubject() + "`), name it in the signer's configuration, restart the signer, then `treaty rotate binding --signer-kid KID`",
		}
	}
	k, err := client.Key(ctx, kid)
	if err != nil {
		return nil, err
	}
	next, err := did.SuccessorID(old, k.Public)
	if err != nil || k.Public.Type() != did.Ed25519 || k.Role != string(keystore.Signing) || k.KID != did.KeyID(next, string(keystore.Signing), k.Public) {
		return nil, errors.Join(&httpapi.Error{Kind: httpapi.KindUsage, Message: fmt.Sprintf("--signer-kid: %s is not an Ed25519 key of role signing that a DID under %s can be bound to; nothing was changed", kid, old.StableSubject())}, err)
	}
	return client.Signer(ctx, k.KID, k.Public)
}

// preparedSuccessor finds the keys that were made for a recovery key to sign for.
func (n *Node) preparedSuccessor(ctx context.Context, id *identity, text string) (*successor, error) {
	usage := func(format string, args ...any) error {
		return &httpapi.Error{Kind: httpapi.KindUsage, Message: fmt.Sprintf(format, args...) + "; nothing was changed"}
	}
	next, err := did.Parse(text)
	if err != nil {
		return nil, usage("%v", err)
	}
	if err := did.CheckSuccessor(id.agent.ID(), next); err != nil {
		return nil, usage("%v", err)
	}
	files, err := keystore.LoadDir(filepath.Join(n.dir, KeysDir), id.own.unlock)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	s := &successor{id: next}
	for _, k := range append(slices.Clone(files[keystore.Signing]), files[keystore.Kex]...) {
		if of, _, err := did.SplitKeyID(k.KID); err != nil || of != next {
			continue
		}
		if k.Role == keystore.Kex {
			s.kex = append(s.kex, k.Private.Public())
		} else if s.binding, err = did.NewSigner(k.KID, k.Private); err != nil {
			return nil, err
		}
		s.files = append(s.files, filepath.Join(n.dir, KeysDir, k.FileName()))
	}
	if s.binding == nil && id.own.client != nil {
		if s.binding, err = n.preparedRemote(ctx, id, next); err != nil {
			return nil, err
		}
	}
	if s.binding == nil || len(s.kex) == 0 {
		return nil, usage("keys/ does not have the keys that were prepared for %s", next)
	}
	return s, nil
}

// preparedRemote finds the binding key of a prepared DID behind the signer, by the id that it must have.
func (n *Node) preparedRemote(ctx context.Context, id *identity, next did.DID) (did.Signer, error) {
	kid := next.String() + "#" + string(keystore.Signing) + "-" + next.Fingerprint()[:8]
	return remoteSuccessor(ctx, id.own.client, id.agent.ID(), kid)
}

// succeeding is the successor's first document: the new keys, and the keys of people and recovery keys of the old one.
func (n *Node) succeeding(ctx context.Context, id *identity, s *successor, now time.Time) (*did.Document, error) {
	carried := func(rel did.Relationship, role keystore.Role) (list []did.MethodSpec) {
		for _, m := range id.agent.Keys(rel) {
			if m.Expires.IsZero() || now.Before(m.Expires) {
				list = append(list, did.MethodSpec{ID: did.KeyID(s.id, string(role), m.Key), Key: m.Key, Expires: m.Expires})
			}
		}
		return list
	}
	spec := did.DocumentSpec{
		ID: s.id, Binding: did.MethodSpec{ID: s.binding.KeyID(), Key: s.binding.PublicKey()},
		Human: carried(did.HumanAuthorization, keystore.Human), Recovery: carried(did.Recovery, keystore.Recovery), Services: agentServices(n.cfg, id.service.ID()),
	}
	for _, k := range s.kex {
		spec.KeyAgreement = append(spec.KeyAgreement, did.MethodSpec{ID: did.KeyID(s.id, string(keystore.Kex), k), Key: k})
	}
	spec, err := spec.Succeeding(id.agent.ID())
	if err != nil {
		return nil, err
	}
	raw, err := document(ctx, spec, s.binding, now, did.Dialect(n.cfg.ProofDialect))
	if err != nil {
		return nil, err
	}
	return checkDocument(raw, now)
}

// deactivated is the old DID's last document: signed here by the binding key, or elsewhere by a recovery key.
func (n *Node) deactivated(ctx context.Context, id *identity, s *successor, given []byte, now time.Time) (*did.Document, error) {
	if len(given) == 0 {
		created := now
		if earliest := id.agent.ProofCreated().Add(time.Second); created.Before(earliest) {
			created = earliest
		}
		var err error
		if given, err = did.Deactivate(ctx, id.agent.Raw(), s.id, id.binding, created, did.Dialect(n.cfg.ProofDialect)); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
		}
	}
	return did.ParseDocument(given)
}

// move publishes the successor and deactivates the old DID, if the identity still is id. Nothing is stored when it fails.
func (n *Node) move(ctx context.Context, id *identity, s *successor, req httpapi.RotateRequest, now time.Time) (httpapi.Rotation, error) {
	none := httpapi.Rotation{}
	doc, err := n.succeeding(ctx, id, s, now)
	if err != nil {
		return none, err
	}
	old, err := n.deactivated(ctx, id, s, req.Deactivated, now)
	if err != nil {
		return none, err
	}
	at := now
	if old.ProofCreated().After(at) {
		at = old.ProofCreated()
	}
	if at.After(now.Add(skew)) {
		return none, &httpapi.Error{Kind: httpapi.KindUsage, Message: fmt.Sprintf("the deactivation is dated %s; peers refuse what is more than %s ahead of their clocks; nothing was changed", stamp(at), skew)}
	}
	assurance, err := did.VerifyHop(id.agent, old, doc, at)
	if err != nil {
		return none, &httpapi.Error{Kind: httpapi.KindVerification, Message: err.Error(), Hint: "nothing was changed"}
	}
	if !assurance.Moves() {
		return none, &httpapi.Error{Kind: httpapi.KindVerification, Message: fmt.Sprintf("the step from %s would be %s; nothing was changed", id.agent.ID(), assurance)}
	}
	since := req.Since
	if req.Compromised && since.IsZero() {
		since = now
	}
	m := move{
		Succession: store.Succession{
			Old: old.ID().String(), New: doc.ID().String(), Assurance: string(assurance), OldHash: old.Hash(), NewHash: doc.Hash(), At: now, Own: true, CompromisedSince: since,
		},
		until: now.Add(n.cfg.Rotation.Grace),
	}
	if req.Compromised {
		m.until = now
	}
	next := id.rec
	next.Agent, next.Keys = string(doc.Raw()), nil
	next.Former = append(slices.Clone(next.Former), store.Former{
		DID: m.Old, Document: string(old.Raw()), Active: string(id.agent.Raw()), Keys: pastKeys(id.rec.Keys, id.agent, m.until, now), CompromisedSince: since,
	})
	if next.Keys, err = keyStates(nil, next.Agent, now); err != nil {
		return none, err
	}
	if req.Compromised {
		endAll(next.Former, now)
	}
	if _, err := formerDocuments(&next, doc); err != nil {
		return none, err
	}
	out := httpapi.Rotation{
		Kind: req.Kind, KID: s.binding.KeyID(), DID: m.New, PreviousDID: m.Old, Assurance: m.Assurance, Until: stamp(m.until), UsedFrom: stamp(now), Document: doc.Hash(), Previous: []string{},
	}
	for _, k := range id.agent.Keys(did.KeyAgreement) {
		out.Previous = append(out.Previous, k.ID)
	}
	crashpoint.Hit(crashpoint.RotationProved)
	err = n.db.Update(ctx, func(tx store.Tx) error {
		if err := store.PutIdentity(tx, next, id.rec.Version); err != nil {
			return err
		}
		if err := n.putMoves(tx, []move{m}); err != nil {
			return err
		}
		if out.Told, err = n.tell(ctx, tx, id.names(), m); err != nil {
			return err
		}
		if req.Compromised {
			if out.Suspects, err = suspects(tx, id.names(), since); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, store.ErrConflict):
		return none, conflict()
	case err != nil && !errors.Is(err, store.ErrFull):
		return none, fmt.Errorf("%w: %w", errUncertain, err)
	case err == nil:
		crashpoint.Hit(crashpoint.RotationCommitted)
	}
	return out, err
}

// pastKeys is what is remembered of the keys of a DID that has been moved on from. Its signing keys are of no use from now on;
// its key-agreement keys open what is under way until the end of the grace.
func pastKeys(states map[string]store.OwnKey, doc *did.Document, until, now time.Time) map[string]store.OwnKey {
	past := map[string]store.OwnKey{}
	for kid, k := range states {
		if k.State == store.KeyRetired && k.Role == string(keystore.Kex) {
			past[kid] = k
		}
	}
	for _, m := range doc.Keys(did.Authentication) {
		past[m.ID] = store.OwnKey{Role: string(keystore.Signing), State: store.KeyRetired, Until: now}
	}
	for _, m := range doc.Keys(did.KeyAgreement) {
		k := store.OwnKey{Role: string(keystore.Kex), State: store.KeyRetiring, Since: states[m.ID].Since, Until: until}
		if !m.Expires.IsZero() && m.Expires.Before(until) {
			k.Until = m.Expires
		}
		if !now.Before(k.Until) {
			k.State = store.KeyRetired
		}
		past[m.ID] = k
	}
	return past
}

// endAll ends the keys of all former DIDs: whoever has one of this node's keys may have the others.
func endAll(former []store.Former, now time.Time) {
	for i := range former {
		former[i].Keys = maps.Clone(former[i].Keys)
		for kid, k := range former[i].Keys {
			if k.State == store.KeyRetiring {
				k.State, k.Until = store.KeyRetired, now
				former[i].Keys[kid] = k
			}
		}
	}
}

// catchUp follows the folder's documents from the store's DID to the folder's: the store is a backup from before the moves. What
// is sealed to the old keys is not opened any more: nothing here says whether somebody else had them.
func (n *Node) catchUp(rec *store.Identity, f *folder, now time.Time) ([]move, error) {
	var moves []move
	at, err := did.ParseDocument([]byte(rec.Agent))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	active := rec.Agent
	for at.ID() != f.agent.ID() {
		gone := f.former[at.ID()]
		if gone == nil || len(rec.Former) >= resolver.MaxHops {
			return nil, fmt.Errorf("%w: the store has a document of %s, the folder one of %s, and nothing in %s leads from one to the other", ErrIdentity, at.ID(), f.agent.ID(), filepath.Join(DocumentsDir, formerDir))
		}
		next := f.agent
		if gone.SuccessorDID() != next.ID() {
			next = f.former[gone.SuccessorDID()]
		}
		assurance, err := did.VerifyHop(at, gone, next, now.Add(skew))
		if err == nil && !assurance.Moves() {
			err = fmt.Errorf("it is %s", assurance)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: the step from %s in %s: %w", ErrIdentity, at.ID(), filepath.Join(DocumentsDir, formerDir), err)
		}
		rec.Former = append(slices.Clone(rec.Former), store.Former{
			DID: gone.ID().String(), Document: string(gone.Raw()), Active: active, Keys: pastKeys(rec.Keys, at, now, now),
		})
		moves = append(moves, move{
			Succession: store.Succession{Old: gone.ID().String(), New: next.ID().String(), Assurance: string(assurance), OldHash: gone.Hash(), NewHash: next.Hash(), At: now, Own: true},
			until:      now,
		})
		at, active, rec.Keys = next, "", nil
	}
	rec.Agent = string(f.agent.Raw())
	return moves, nil
}

// formerDir is the folder of the documents of DIDs that the node has moved on from, inside DocumentsDir.
const formerDir = "former"

func formerFile(id string) (string, error) {
	d, err := did.Parse(id)
	if err != nil || d.Fingerprint() == "" {
		return "", fmt.Errorf("%w: %q was never this node's", ErrIdentity, id)
	}
	path := d.Path()
	return filepath.Join(formerDir, path[len(path)-1]+".json"), nil
}

// loadFormer reads the documents in formerDir. Whether they lead anywhere is decided where they are followed.
func loadFormer(dir string) (map[did.DID]*did.Document, error) {
	out := map[did.DID]*did.Document{}
	names, err := filepath.Glob(filepath.Join(dir, DocumentsDir, formerDir, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		raw, err := os.ReadFile(name) //nolint:gosec // in the node's own folder
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
		}
		doc, err := did.ParseDocument(raw)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrIdentity, name, err)
		}
		out[doc.ID()] = doc
	}
	return out, nil
}

// suspects is what somebody who had the old binding key may have had a hand in: what was first logged at since or later.
func suspects(tx store.Tx, own []string, since time.Time) (*httpapi.Suspects, error) {
	s := &httpapi.Suspects{Since: stamp(since), Contracts: []string{}, Conversations: []string{}}
	contracts, err := tx.ListContracts(store.ContractFilter{})
	if err != nil {
		return nil, err
	}
	for _, c := range contracts {
		if !c.Created.Before(since) {
			s.Contracts = append(s.Contracts, c.ID)
		}
		receipts, err := tx.ListReceipts(c.ID, "", store.MaxList)
		if err != nil {
			return nil, err
		}
		for _, r := range receipts {
			if !r.Created.Before(since) {
				s.Receipts++
			}
		}
	}
	conversations, err := conversationsOf(tx, own, store.ConversationFilter{})
	if err != nil {
		return nil, err
	}
	for _, c := range conversations {
		if !c.Updated.Before(since) {
			s.Conversations = append(s.Conversations, c.ContextID)
		}
	}
	return s, nil
}

// retireFormer ends the keys of former DIDs whose grace is over. Their documents stay as they are.
func retireFormer(rec store.Identity, now time.Time) (next store.Identity, entries []ledger.Entry, err error) {
	next = rec
	next.Former = slices.Clone(rec.Former)
	for i, f := range next.Former {
		keys := maps.Clone(f.Keys)
		doc, err := did.ParseDocument([]byte(f.Document))
		if err != nil {
			return rec, nil, fmt.Errorf("%w: %w", ErrIdentity, err)
		}
		for _, kid := range sorted(keys) {
			k := keys[kid]
			if k.State != store.KeyRetiring || now.Before(k.Until) {
				continue
			}
			k.State = store.KeyRetired
			keys[kid] = k
			entries = append(entries, ledger.Entry{Type: ledger.KeyRetired, Data: ledger.Retirement{Role: k.Role, KeyID: kid, Hash: doc.Hash()}})
		}
		next.Former[i].Keys = keys
	}
	return next, entries, nil
}

// noBindingKey says what is missing, and what that may come from.
func noBindingKey(own *ownKeys, id did.DID, kid string) error {
	for _, f := range own.files[keystore.Signing] {
		if of, _, err := did.SplitKeyID(f.KID); err == nil && of != id && of.StableSubject() == id.StableSubject() {
			return fmt.Errorf("%w: keys/ has no binding key %s, but one of %s: if this node has moved there, its documents and store are from before; restore did/ and the store from a backup made after the move", ErrIdentity, kid, of)
		}
	}
	return fmt.Errorf("%w: keys/ has no binding key %s (if it is lost: `treaty rotate binding --recovery-key FILE`)", ErrIdentity, kid)
}
