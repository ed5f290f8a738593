// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/hpke"
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
	keys           negotiation.Keys
}

// loadIdentity reads documents and keys and refuses anything that peers would refuse too: a wrong proof, a binding that
// does not hold, mixed key roles, keys that are not the document's. Documents proved in another dialect than configured are
// proved anew.
func loadIdentity(ctx context.Context, dir string, cfg *Config, now time.Time) (*identity, error) {
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
	unlock, err := keystore.ReadIdentityFile(Path(dir, cfg.Keys.Identity))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	keys, err := keystore.LoadDir(filepath.Join(dir, KeysDir), unlock)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	id := &identity{agent: agent, service: service, keys: negotiation.Keys{Document: agent}}
	binding, err := agent.BindingKeyID()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	ring := map[string]did.PrivateKey{}
	for _, k := range keys[keystore.Signing] {
		if k.KID == binding {
			if id.keys.Binding, err = did.NewSigner(k.KID, k.Private); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
			}
		}
	}
	if id.keys.Binding == nil {
		return nil, fmt.Errorf("%w: keys/ has no binding key %s", ErrIdentity, binding)
	}
	for _, k := range keys[keystore.Kex] {
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
	if id.agent, err = prove(ctx, dir, agentDocument, agent, keys[keystore.Signing], dialect, now); err != nil {
		return nil, err
	}
	id.keys.Document = id.agent
	id.service, err = prove(ctx, dir, serviceDocument, service, keys[keystore.Service], dialect, now)
	return id, err
}

// prove gives a published document a proof in the wanted dialect, if it has one in another. It says the same as before with
// a newer proof, which is what peers take for an update. Proofs by secp256k1 keys have one form only.
func prove(ctx context.Context, dir, name string, doc *did.Document, keys []keystore.Key, dialect did.Dialect, now time.Time) (*did.Document, error) {
	v, err := doc.Verify(now)
	if err != nil || v.Dialect == "" || v.Dialect == dialect || v.Profile == did.ProfileK1 || doc.Deactivated() {
		return doc, err
	}
	i := slices.IndexFunc(keys, func(k keystore.Key) bool { return k.KID == v.ProofKeyID })
	if i < 0 {
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
	signer, err := did.NewSigner(keys[i].KID, keys[i].Private)
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

// newIdentity makes all keys and both documents of a node. Keys of the roles human and recovery are returned with the
// others; the caller keeps them out of the node's reach.
func newIdentity(ctx context.Context, cfg *Config, profile did.Profile, now time.Time) (keys []keystore.Key, agent, service []byte, err error) {
	service1, err := cfg.ServiceDID()
	if err != nil {
		return nil, nil, nil, err
	}
	typ := did.Ed25519
	if profile == did.ProfileK1 {
		typ = did.Secp256k1
	}
	binding, err := newKey(keystore.Signing, typ, now, func(k did.PublicKey) (did.DID, error) { return cfg.AgentDID(profile, k.Thumbprint()) })
	if err != nil {
		return nil, nil, nil, err
	}
	agentID, err := cfg.AgentDID(profile, binding.Private.Public().Thumbprint())
	if err != nil {
		return nil, nil, nil, err
	}
	keys = []keystore.Key{binding}
	for _, k := range []struct {
		role keystore.Role
		typ  did.KeyType
		id   did.DID
	}{{keystore.Kex, did.X25519, agentID}, {keystore.Human, did.Ed25519, agentID}, {keystore.Recovery, did.Ed25519, agentID}, {keystore.Service, did.Ed25519, service1}} {
		key, err := newKey(k.role, k.typ, now, func(did.PublicKey) (did.DID, error) { return k.id, nil })
		if err != nil {
			return nil, nil, nil, err
		}
		keys = append(keys, key)
	}
	spec := func(k keystore.Key) did.MethodSpec { return did.MethodSpec{ID: k.KID, Key: k.Private.Public()} }
	origin := "https://" + cfg.Domain
	agent, err = document(ctx, did.DocumentSpec{
		ID: agentID, Binding: spec(keys[0]),
		KeyAgreement: []did.MethodSpec{spec(keys[1])}, Human: []did.MethodSpec{spec(keys[2])}, Recovery: []did.MethodSpec{spec(keys[3])},
		Services: []did.Service{{ID: "#ad", Type: "AgentDescription", Endpoint: origin + descriptionPath(cfg)}},
	}, keys[0], now, did.Dialect(cfg.ProofDialect))
	if err != nil {
		return nil, nil, nil, err
	}
	service, err = document(ctx, did.DocumentSpec{
		ID: service1, Binding: spec(keys[4]),
		Services: []did.Service{{ID: "#ads", Type: "AgentDescription", Endpoint: origin + wellknown.PathDescriptions}},
	}, keys[4], now, did.Dialect(cfg.ProofDialect))
	return keys, agent, service, err
}

func document(ctx context.Context, spec did.DocumentSpec, k keystore.Key, now time.Time, dialect did.Dialect) ([]byte, error) {
	unsigned, err := did.BuildDocument(spec)
	if err != nil {
		return nil, err
	}
	signer, err := did.NewSigner(k.KID, k.Private)
	if err != nil {
		return nil, err
	}
	return did.SignDocument(ctx, unsigned, signer, now, dialect)
}

// descriptionPath is where the agent's description stands.
func descriptionPath(cfg *Config) string {
	return "/agents/" + cfg.Agent[len(cfg.Agent)-1] + "/ad.json"
}
