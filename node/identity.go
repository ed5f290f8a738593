// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/node/gateway/anp"
	"github.com/treaty-node/treaty/node/internal/keystore"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/wellknown"
)

// Files of the published documents, inside DocumentsDir.
const (
	agentDocument   = "agent.json"
	serviceDocument = "service.json"
)

// ErrIdentity wraps every reason not to start because of keys or documents.
var ErrIdentity = errors.New("identity")

// identity is one consistent state of who the node is: the documents as published and the keys that it may use. It does not
// change; a rotation puts another in its place.
type identity struct {
	rec            store.Identity
	agent, service *did.Document
	former         []*did.Document // DIDs that the node had before, deactivated, oldest first
	own            *ownKeys
	binding        did.Signer
	ring           *hpke.Keyring
	site           *wellknown.Site  // the public documents; nil before they are built
	described      *selfDescription // the ones among them that say what the agent does
}

// folder is what the node's folder says: the documents as they were published last, and the keys.
type folder struct {
	agent, service *did.Document
	former         map[did.DID]*did.Document // deactivated documents
	own            *ownKeys
}

// loadFolder reads the documents in the folder and unseals the keys.
func loadFolder(dir string, cfg *Config, o Options, now time.Time) (f *folder, err error) {
	f = &folder{}
	if f.agent, err = loadDocument(filepath.Join(dir, DocumentsDir, agentDocument), now); err != nil {
		return nil, err
	}
	if f.service, err = loadDocument(filepath.Join(dir, DocumentsDir, serviceDocument), now); err != nil {
		return nil, err
	}
	if f.agent.ID().Host() != cfg.Domain || f.service.ID().Host() != cfg.Domain {
		return nil, fmt.Errorf("%w: the documents are of %s, the configuration says domain %s", ErrIdentity, f.agent.ID().Host(), cfg.Domain)
	}
	if f.former, err = loadFormer(dir); err != nil {
		return nil, err
	}
	f.own, err = loadKeys(dir, cfg, o)
	return f, err
}

// newSnapshot refuses anything that peers would refuse too: a wrong proof, a binding that does not hold, mixed key roles, keys
// that are not the document's.
func newSnapshot(rec store.Identity, own *ownKeys, now time.Time) (*identity, error) {
	id, err := snapshot(rec, own, now)
	if err != nil {
		return nil, err
	}
	if id.binding == nil {
		binding, _ := id.agent.BindingKeyID() // snapshot has found it
		return nil, noBindingKey(own, id.agent.ID(), binding)
	}
	kid, _, err := hpke.SelectKey(id.agent, hpke.SuiteX25519, now)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	for _, k := range id.own.files[keystore.Kex] {
		if k.KID == kid {
			return id, nil
		}
	}
	return nil, fmt.Errorf("%w: keys/ has no key-agreement key %s", ErrIdentity, kid)
}

// snapshot is newSnapshot for an identity whose keys may be lost: what a recovery begins with.
func snapshot(rec store.Identity, own *ownKeys, now time.Time) (*identity, error) {
	id := &identity{rec: rec}
	var err error
	if id.agent, err = checkDocument([]byte(rec.Agent), now); err != nil {
		return nil, err
	}
	if id.service, err = checkDocument([]byte(rec.Service), now); err != nil {
		return nil, err
	}
	if id.former, err = formerDocuments(&rec, id.agent); err != nil {
		return nil, err
	}
	id.own = own.holding(id.agent, &rec)
	binding, err := id.agent.BindingKeyID()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	if id.binding, err = id.own.signer(binding); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	ring := map[string]did.PrivateKey{}
	for _, k := range id.own.files[keystore.Kex] {
		ring[k.KID] = k.Private
	}
	id.ring = hpke.NewKeyring(ring)
	return id, nil
}

// reconcile brings the folder's documents and the store's together. The store's count, unless the folder's have a newer proof,
// or are of a DID that followed the store's: then the store is a backup from before, and peers have seen the newer ones.
// Documents proved in another dialect than configured are proved anew.
func (n *Node) reconcile(ctx context.Context, f *folder, now time.Time) (*identity, error) {
	for {
		id, err := n.reconcileOnce(ctx, f, now)
		if !errors.Is(err, store.ErrConflict) { // else another process was faster
			return id, err
		}
	}
}

func (n *Node) reconcileOnce(ctx context.Context, f *folder, now time.Time) (*identity, error) {
	var rec store.Identity
	err := n.db.View(ctx, func(tx store.Tx) (err error) { rec, err = store.GetIdentity(tx); return err })
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	next := rec
	var moves []move
	if moves, err = n.newest(&next, f, now); err != nil {
		return nil, err
	}
	agent, err := did.ParseDocument([]byte(next.Agent))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	own, err := f.own.load(n.dir, agent)
	if err != nil {
		return nil, err
	}
	if err := own.connect(ctx, agent); err != nil && !n.recovering {
		return nil, err
	}
	for _, doc := range []*string{&next.Agent, &next.Service} {
		if *doc, err = reproved(ctx, *doc, own, did.Dialect(n.cfg.ProofDialect), now); err != nil {
			return nil, err
		}
	}
	if next.Agent != rec.Agent || next.Service != rec.Service {
		if next.Keys, err = keyStates(next.Keys, next.Agent, now); err != nil {
			return nil, err
		}
		err := n.db.Update(ctx, func(tx store.Tx) error {
			if err := store.PutIdentity(tx, next, rec.Version); err != nil {
				return err
			}
			return n.putMoves(tx, moves)
		})
		if err != nil {
			return nil, err
		}
		next.Version = rec.Version + 1
	}
	take := newSnapshot
	if n.recovering {
		take = snapshot
	}
	id, err := take(next, own, now)
	if err != nil {
		return nil, err
	}
	return id, n.export(id)
}

// newest puts the newer documents into rec, and returns the moves that the store does not know.
func (n *Node) newest(rec *store.Identity, f *folder, now time.Time) ([]move, error) {
	if rec.Service == "" {
		rec.Service = string(f.service.Raw())
	} else if err := newer(&rec.Service, f.service, now); err != nil {
		return nil, err
	}
	if rec.Agent == "" {
		rec.Agent = string(f.agent.Raw())
		if f.agent.ID().String() == n.db.Node() {
			return nil, nil
		}
		// The store was never opened under the DID that its log began with.
		return nil, fmt.Errorf("%w: the store's log is of %s and knows no document of it, the folder has one of %s", ErrIdentity, n.db.Node(), f.agent.ID())
	}
	agent, err := checkDocument([]byte(rec.Agent), now)
	if err != nil {
		return nil, err
	}
	if agent.ID() == f.agent.ID() {
		return nil, newer(&rec.Agent, f.agent, now)
	}
	for _, past := range rec.Former {
		if past.DID == f.agent.ID().String() {
			return nil, nil // the folder is from before the move
		}
	}
	return n.catchUp(rec, f, now)
}

// newer puts the folder's version into the place of the stored one, if it was made later.
func newer(stored *string, file *did.Document, now time.Time) error {
	doc, err := checkDocument([]byte(*stored), now)
	if err != nil {
		return err
	}
	if doc.ID() != file.ID() {
		return fmt.Errorf("%w: the store has a document of %s, the folder one of %s", ErrIdentity, doc.ID(), file.ID())
	}
	if file.ProofCreated().After(doc.ProofCreated()) {
		*stored = string(file.Raw())
	}
	return nil
}

// export writes the documents into the folder, for the next start and for web servers that publish files. Those of former DIDs
// come first: a folder has the way to the DID that it is of.
func (n *Node) export(id *identity) error {
	type file struct{ name, text string }
	var files []file
	for _, f := range id.rec.Former {
		name, err := formerFile(f.DID)
		if err != nil {
			return err
		}
		files = append(files, file{name, f.Document})
	}
	if len(files) > 0 {
		if err := os.MkdirAll(filepath.Join(n.dir, DocumentsDir, formerDir), 0o700); err != nil {
			return fmt.Errorf("%w: %w", ErrIdentity, err)
		}
	}
	for _, f := range append(files, file{agentDocument, id.rec.Agent}, file{serviceDocument, id.rec.Service}) {
		path := filepath.Join(n.dir, DocumentsDir, f.name)
		if have, err := os.ReadFile(path); err == nil && string(have) == f.text {
			continue
		}
		if err := replace(path, []byte(f.text)); err != nil {
			return fmt.Errorf("%w: %w", ErrIdentity, err)
		}
	}
	return nil
}

// reproved gives a published document a proof in the wanted dialect, if it has one in another. It says the same as before with
// a newer proof, which is what peers take for an update. Proofs by secp256k1 keys have one form only.
func reproved(ctx context.Context, text string, own *ownKeys, dialect did.Dialect, now time.Time) (string, error) {
	doc, err := checkDocument([]byte(text), now)
	if err != nil {
		return "", err
	}
	v, err := doc.Verify(now)
	if err != nil || v.Dialect == "" || v.Dialect == dialect || v.Profile == did.ProfileK1 || doc.Deactivated() {
		return text, err
	}
	signer, err := own.signer(v.ProofKeyID)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	if signer == nil {
		return "", fmt.Errorf("%w: %s has a proof of dialect %s; keys/ has no key %s to prove it anew as proof_dialect %s says", ErrIdentity, doc.ID(), v.Dialect, v.ProofKeyID, dialect)
	}
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(doc.Raw(), &members); err != nil { // strictly parsed before
		return "", fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	delete(members, "proof")
	unsigned, err := canon.Marshal(members)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	raw, err := proved(ctx, doc, unsigned, signer, dialect, now)
	return string(raw), err
}

// proved signs the next version of a document and checks it as a peer will. Its proof is newer than the last one's, whatever
// the clock says: peers refuse rollbacks.
func proved(ctx context.Context, last *did.Document, unsigned []byte, signer did.Signer, dialect did.Dialect, now time.Time) ([]byte, error) {
	if earliest := last.ProofCreated().Add(time.Second); now.Before(earliest) {
		now = earliest
	}
	raw, err := did.SignDocument(ctx, unsigned, signer, now, dialect)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	_, err = checkDocument(raw, now)
	return raw, err
}

// checkDocument reads a document of ours as a peer does.
func checkDocument(raw []byte, now time.Time) (*did.Document, error) {
	doc, err := did.ParseDocument(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	if _, err := doc.Verify(now); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrIdentity, doc.ID(), err)
	}
	if err := doc.CheckRoles(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrIdentity, doc.ID(), err)
	}
	return doc, nil
}

// replace puts data in place of a file: at any moment there is the old one or the new one, and whoever does so at the same time,
// another process too, has a name of its own for what is not in place yet. What a crash has left of that goes with the next one.
func replace(path string, data []byte) error {
	left, err := filepath.Glob(path + ".new*")
	if err != nil {
		return err
	}
	for _, name := range left {
		if info, err := os.Stat(name); err == nil && time.Since(info.ModTime()) > time.Minute {
			if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	next := path + ".new-" + rand.Text()[:8]
	err = writeNew(next, data, 0o644)
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next)
	}
	return err
}

func loadDocument(path string, now time.Time) (*did.Document, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is missing; `treaty init` makes it, and it is never made again silently", ErrIdentity, path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	doc, err := checkDocument(raw, now)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return doc, nil
}

// newKey makes a key with an id under the DID that the key itself may determine.
func newKey(role keystore.Role, typ did.KeyType, now time.Time, of func(did.PublicKey) (did.DID, error)) (keystore.Key, error) {
	private, err := did.GenerateKey(typ)
	if err != nil {
		return keystore.Key{}, err
	}
	id, err := of(private.Public())
	if err != nil {
		return keystore.Key{}, err
	}
	return keystore.Key{Role: role, KID: did.KeyID(id, string(role), private.Public()), Created: now, Private: private}, nil
}

// newborn is a new identity: its keys, the one behind a remote signer excepted, and both documents.
type newborn struct {
	id             did.DID
	keys           []keystore.Key
	agent, service []byte
}

// newIdentity makes the keys and both documents of a node. remote, if there is one, is the binding key. Keys of the roles
// human and recovery are returned with the others; the caller keeps them out of the node's reach.
func newIdentity(ctx context.Context, cfg *Config, profile did.Profile, remote did.Signer, now time.Time) (*newborn, error) {
	service, err := cfg.ServiceDID()
	if err != nil {
		return nil, err
	}
	n := &newborn{}
	if remote == nil {
		typ := did.Ed25519
		if profile == did.ProfileK1 {
			typ = did.Secp256k1
		}
		binding, err := newKey(keystore.Signing, typ, now, func(k did.PublicKey) (did.DID, error) { return cfg.AgentDID(profile, k.Thumbprint()) })
		if err != nil {
			return nil, err
		}
		if remote, err = did.NewSigner(binding.KID, binding.Private); err != nil {
			return nil, err
		}
		n.keys = append(n.keys, binding)
	}
	if n.id, err = cfg.AgentDID(profile, remote.PublicKey().Thumbprint()); err != nil {
		return nil, err
	}
	made := map[keystore.Role][]did.MethodSpec{}
	for _, k := range []struct {
		role keystore.Role
		typ  did.KeyType
		id   did.DID
	}{{keystore.Kex, did.X25519, n.id}, {keystore.Kex, did.XWing, n.id}, {keystore.Human, did.Ed25519, n.id}, {keystore.Recovery, did.Ed25519, n.id}, {keystore.Service, did.Ed25519, service}} {
		key, err := newKey(k.role, k.typ, now, func(did.PublicKey) (did.DID, error) { return k.id, nil })
		if err != nil {
			return nil, err
		}
		n.keys = append(n.keys, key)
		made[k.role] = append(made[k.role], did.MethodSpec{ID: key.KID, Key: key.Private.Public()})
	}
	origin, dialect := "https://"+cfg.Domain, did.Dialect(cfg.ProofDialect)
	n.agent, err = document(ctx, did.DocumentSpec{
		ID: n.id, Binding: did.MethodSpec{ID: remote.KeyID(), Key: remote.PublicKey()},
		KeyAgreement: made[keystore.Kex], Human: made[keystore.Human], Recovery: made[keystore.Recovery],
		Services: agentServices(cfg, service),
	}, remote, now, dialect)
	if err != nil {
		return nil, err
	}
	last := n.keys[len(n.keys)-1]
	own, err := did.NewSigner(last.KID, last.Private)
	if err != nil {
		return nil, err
	}
	n.service, err = document(ctx, did.DocumentSpec{
		ID: service, Binding: made[keystore.Service][0],
		Services: []did.Service{{ID: "#ads", Type: "AgentDescription", Endpoint: origin + wellknown.PathDescriptions}},
	}, own, now, dialect)
	return n, err
}

// agentServices are what an agent's document says about where to find it.
func agentServices(cfg *Config, service did.DID) []did.Service {
	origin := "https://" + cfg.Domain
	return []did.Service{
		{ID: "#ad", Type: "AgentDescription", Endpoint: origin + descriptionPath(cfg)},
		{ID: "#anp", Type: "ANPMessageService", Endpoint: origin + anp.Path, ServiceDID: service.String()},
	}
}

func document(ctx context.Context, spec did.DocumentSpec, s did.Signer, now time.Time, dialect did.Dialect) ([]byte, error) {
	unsigned, err := did.BuildDocument(spec)
	if err != nil {
		return nil, err
	}
	return did.SignDocument(ctx, unsigned, s, now, dialect)
}

// descriptionPath is where the agent's description stands.
func descriptionPath(cfg *Config) string {
	return "/agents/" + cfg.Agent[len(cfg.Agent)-1] + "/ad.json"
}
