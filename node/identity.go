// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
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
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/wellknown"
)

// Files of the published documents, inside DocumentsDir.
const (
	agentDocument   = "agent.json"
	serviceDocument = "service.json"
)

// ErrIdentity wraps every reason not to start because of keys or documents.
var ErrIdentity = errors.New("identity")

// identity is who the node is: its documents as published and the keys that it may use.
type identity struct {
	agent, service *did.Document
	own            *ownKeys
	keys           negotiation.Keys
}

// loadIdentity reads documents and keys and refuses anything that peers would refuse too: a wrong proof, a binding that
// does not hold, mixed key roles, keys that are not the document's. Documents proved in another dialect than configured are
// proved anew.
func loadIdentity(ctx context.Context, dir string, cfg *Config, o Options, now time.Time) (*identity, error) {
	agent, err := loadDocument(filepath.Join(dir, DocumentsDir, agentDocument), now)
	if err != nil {
		return nil, err
	}
	service, err := loadDocument(filepath.Join(dir, DocumentsDir, serviceDocument), now)
	if err != nil {
		return nil, err
	}
	if agent.ID().Host() != cfg.Domain || service.ID().Host() != cfg.Domain {
		return nil, fmt.Errorf("%w: the documents are of %s, the configuration says domain %s", ErrIdentity, agent.ID().Host(), cfg.Domain)
	}
	own, err := loadKeys(dir, cfg, o)
	if err != nil {
		return nil, err
	}
	if err := own.connect(ctx, agent); err != nil {
		return nil, err
	}
	id := &identity{agent: agent, service: service, own: own, keys: negotiation.Keys{Document: agent}}
	binding, err := agent.BindingKeyID()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	if id.keys.Binding, err = own.signer(binding); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	if id.keys.Binding == nil {
		return nil, fmt.Errorf("%w: keys/ has no binding key %s", ErrIdentity, binding)
	}
	ring := map[string]did.PrivateKey{}
	for _, k := range own.files[keystore.Kex] {
		ring[k.KID] = k.Private
	}
	kid, _, err := hpke.SelectKey(agent, hpke.SuiteX25519, now)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	if _, ok := ring[kid]; !ok {
		return nil, fmt.Errorf("%w: keys/ has no key-agreement key %s", ErrIdentity, kid)
	}
	id.keys.KeyAgreementKID, id.keys.Opener = kid, hpke.NewKeyring(ring)
	dialect := did.Dialect(cfg.ProofDialect)
	if id.agent, err = prove(ctx, dir, agentDocument, agent, own, dialect, now); err != nil {
		return nil, err
	}
	id.keys.Document = id.agent
	id.service, err = prove(ctx, dir, serviceDocument, service, own, dialect, now)
	return id, err
}

// prove gives a published document a proof in the wanted dialect, if it has one in another. It says the same as before with
// a newer proof, which is what peers take for an update. Proofs by secp256k1 keys have one form only.
func prove(ctx context.Context, dir, name string, doc *did.Document, own *ownKeys, dialect did.Dialect, now time.Time) (*did.Document, error) {
	v, err := doc.Verify(now)
	if err != nil || v.Dialect == "" || v.Dialect == dialect || v.Profile == did.ProfileK1 || doc.Deactivated() {
		return doc, err
	}
	signer, err := own.signer(v.ProofKeyID)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	if signer == nil {
		return nil, fmt.Errorf("%w: %s has a proof of dialect %s; keys/ has no key %s to prove it anew as proof_dialect %s says", ErrIdentity, name, v.Dialect, v.ProofKeyID, dialect)
	}
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(doc.Raw(), &members); err != nil { // strictly parsed before
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	delete(members, "proof")
	unsigned, err := canon.Marshal(members)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	if earliest := doc.ProofCreated().Add(time.Second); now.Before(earliest) {
		now = earliest
	}
	raw, err := did.SignDocument(ctx, unsigned, signer, now, dialect)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	path := filepath.Join(dir, DocumentsDir, name)
	if err := replace(path, raw); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	return loadDocument(path, now)
}

// replace puts data in place of a file: at any moment there is the old one or the new one.
func replace(path string, data []byte) error {
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := writeNew(next, data, 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}

func loadDocument(path string, now time.Time) (*did.Document, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is missing; `treaty init` makes it, and it is never made again silently", ErrIdentity, path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	doc, err := did.ParseDocument(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrIdentity, path, err)
	}
	if _, err := doc.Verify(now); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrIdentity, path, err)
	}
	if err := doc.CheckRoles(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrIdentity, path, err)
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
	made := map[keystore.Role]did.MethodSpec{}
	for _, k := range []struct {
		role keystore.Role
		typ  did.KeyType
		id   did.DID
	}{{keystore.Kex, did.X25519, n.id}, {keystore.Human, did.Ed25519, n.id}, {keystore.Recovery, did.Ed25519, n.id}, {keystore.Service, did.Ed25519, service}} {
		key, err := newKey(k.role, k.typ, now, func(did.PublicKey) (did.DID, error) { return k.id, nil })
		if err != nil {
			return nil, err
		}
		n.keys = append(n.keys, key)
		made[k.role] = did.MethodSpec{ID: key.KID, Key: key.Private.Public()}
	}
	origin, dialect := "https://"+cfg.Domain, did.Dialect(cfg.ProofDialect)
	n.agent, err = document(ctx, did.DocumentSpec{
		ID: n.id, Binding: did.MethodSpec{ID: remote.KeyID(), Key: remote.PublicKey()},
		KeyAgreement: []did.MethodSpec{made[keystore.Kex]}, Human: []did.MethodSpec{made[keystore.Human]}, Recovery: []did.MethodSpec{made[keystore.Recovery]},
		Services: []did.Service{
			{ID: "#ad", Type: "AgentDescription", Endpoint: origin + descriptionPath(cfg)},
			{ID: "#anp", Type: "ANPMessageService", Endpoint: origin + anp.Path, ServiceDID: service.String()},
		},
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
		ID: service, Binding: made[keystore.Service],
		Services: []did.Service{{ID: "#ads", Type: "AgentDescription", Endpoint: origin + wellknown.PathDescriptions}},
	}, own, now, dialect)
	return n, err
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
