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
	"strings"
	"time"

	"filippo.io/age"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/keystore"
	"github.com/treaty-node/treaty/node/signer"
	"github.com/treaty-node/treaty/node/store"
)

// ownKeys are the keys that the node may use: those of its files and, if so configured, one behind a remote signer.
type ownKeys struct {
	files  map[keystore.Role][]keystore.Key
	remote did.Signer // the binding key; nil when it is a file's
	client *signer.Client
	unlock age.Identity
	seal   keystore.Seal
}

// loadKeys unseals the key files.
func loadKeys(dir string, cfg *Config, o Options) (*ownKeys, error) {
	unlock, seal, err := cfg.Keys.OpenSeal(keystore.Environment{Dir: dir, Credentials: os.Getenv(keystore.CredentialsEnv), Prompt: o.Prompt})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	files, err := keystore.LoadDir(filepath.Join(dir, KeysDir), unlock)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	k := &ownKeys{files: files, unlock: unlock, seal: seal}
	if s := cfg.Keys.Signer; s != nil {
		k.client = signer.NewClient(Path(dir, s.Socket))
	}
	return k, nil
}

// load returns the keys with those of the document that stand in the folder since the last look at it.
func (k *ownKeys) load(dir string, doc *did.Document) (*ownKeys, error) {
	out := *k
	out.files = maps.Clone(k.files)
	for _, m := range doc.Methods() {
		_, fragment, err := did.SplitKeyID(m.ID)
		if err != nil || k.holds(m.ID) {
			continue
		}
		role, _, _ := strings.Cut(fragment, "-")
		if role != string(keystore.Kex) && role != string(keystore.Signing) {
			continue
		}
		key, err := keystore.Load(keyFile(dir, fragment), k.unlock)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && key.KID != m.ID {
			err = fmt.Errorf("%w: it holds %s and not %s", keystore.ErrKey, key.KID, m.ID)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
		}
		out.files[key.Role] = append([]keystore.Key{key}, out.files[key.Role]...)
	}
	return &out, nil
}

// keyFile is where a key is kept, by the fragment of its id.
func keyFile(dir, fragment string) string { return filepath.Join(dir, KeysDir, fragment+".age") }

func (k *ownKeys) holds(kid string) bool {
	for _, list := range k.files {
		for _, f := range list {
			if f.KID == kid {
				return true
			}
		}
	}
	return k.remote != nil && k.remote.KeyID() == kid
}

// holding returns the keys without those that have retired.
func (k *ownKeys) holding(doc *did.Document, rec *store.Identity) *ownKeys {
	out := *k
	out.files = map[keystore.Role][]keystore.Key{}
	for role, list := range k.files {
		out.files[role] = slices.DeleteFunc(slices.Clone(list), func(f keystore.Key) bool {
			_, published := doc.Method(f.KID)
			return rec.Key(f.KID).State == store.KeyRetired && !published
		})
	}
	return &out
}

// connect finds the document's binding key at the remote signer, if there is to be one. What the signer has under that id
// must be the document's key, and no file may hold it as well: a copy would make the token pointless.
func (k *ownKeys) connect(ctx context.Context, doc *did.Document) error {
	if k.client == nil {
		return nil
	}
	kid, err := doc.BindingKeyID()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	method, ok := doc.Method(kid)
	if !ok {
		return fmt.Errorf("%w: the document has no key %s", ErrIdentity, kid)
	}
	if k.remote != nil && k.remote.KeyID() == kid {
		return nil
	}
	for _, f := range k.files[keystore.Signing] {
		if f.KID == kid {
			return fmt.Errorf("%w: %s holds the binding key that keys.signer is to sign with; take the file away or remove keys.signer", ErrIdentity, filepath.Join(KeysDir, f.FileName()))
		}
	}
	if k.remote, err = k.client.Signer(ctx, kid, method.Key); err != nil {
		return fmt.Errorf("%w: keys.signer: %w", ErrIdentity, err)
	}
	return nil
}

// signer returns the signer of a key, nil when the node does not have it.
func (k *ownKeys) signer(kid string) (did.Signer, error) {
	if k.remote != nil && k.remote.KeyID() == kid {
		return k.remote, nil
	}
	for _, role := range []keystore.Role{keystore.Signing, keystore.Service} {
		for _, f := range k.files[role] {
			if f.KID == kid {
				return did.NewSigner(f.KID, f.Private)
			}
		}
	}
	return nil, nil //nolint:nilnil // no such key is no fault
}

// ready says whether the node could sign now.
func (k *ownKeys) ready(ctx context.Context) error {
	if k.client == nil {
		return nil
	}
	_, err := k.client.Key(ctx, k.remote.KeyID())
	return err
}

// Keys implements [httpapi.Admin]: what the documents publish and what the node holds, by their public parts.
func (n *Node) Keys(context.Context) ([]httpapi.Key, error) {
	now, id := n.clock.Now(), n.id()
	held := map[string]httpapi.Key{}
	for role, list := range id.own.files {
		for _, k := range list {
			held[k.KID] = httpapi.Key{
				Role: string(role), KID: k.KID, Type: string(k.Private.Public().Type()), Thumbprint: k.Private.Public().Thumbprint(),
				Created: k.Created.UTC().Format(time.RFC3339), Location: httpapi.KeyInFile, Where: filepath.Join(KeysDir, k.FileName()), State: httpapi.KeyUnpublished,
			}
		}
	}
	if r := id.own.remote; r != nil {
		held[r.KeyID()] = httpapi.Key{
			Role: string(keystore.Signing), KID: r.KeyID(), Type: string(r.PublicKey().Type()), Thumbprint: r.PublicKey().Thumbprint(),
			Location: httpapi.KeyInToken, Where: id.own.client.Path(), State: httpapi.KeyUnpublished,
		}
	}
	var out []httpapi.Key
	for _, doc := range []*did.Document{id.agent, id.service} {
		for _, m := range doc.Methods() {
			k, ok := held[m.ID]
			if !ok {
				k = httpapi.Key{Role: string(roleIn(doc, id.service.ID(), m.ID)), KID: m.ID, Location: httpapi.KeyOffline}
				if !m.Key.IsZero() {
					k.Type, k.Thumbprint = string(m.Key.Type()), m.Key.Thumbprint()
				}
				if !keystore.Role(k.Role).Offline() {
					k.Location = httpapi.KeyMissing
				}
			}
			delete(held, m.ID)
			k.State = httpapi.KeyActive
			if !m.Expires.IsZero() {
				k.Expires = m.Expires.UTC().Format(time.RFC3339)
				k.State = httpapi.KeyRetiring
				if !now.Before(m.Expires) {
					k.State = httpapi.KeyExpired
				}
			}
			out = append(out, k)
		}
	}
	for kid, past := range id.rec.AllKeys() { // of former DIDs, in their grace
		if k, ok := held[kid]; ok && past.State == store.KeyRetiring {
			k.State, k.Expires = httpapi.KeyRetiring, stamp(past.Until)
			held[kid] = k
		}
	}
	for _, kid := range sorted(held) { // after a rotation, or before it is published
		out = append(out, held[kid])
	}
	order := []keystore.Role{keystore.Signing, keystore.Kex, keystore.Service, keystore.Receipt, keystore.Human, keystore.Recovery}
	slices.SortStableFunc(out, func(a, b httpapi.Key) int {
		return slices.Index(order, keystore.Role(a.Role)) - slices.Index(order, keystore.Role(b.Role))
	})
	return out, nil
}

// roleIn is the role that a document gives to one of its keys.
func roleIn(doc *did.Document, service did.DID, kid string) keystore.Role {
	switch {
	case doc.In(kid, did.Recovery):
		return keystore.Recovery
	case doc.In(kid, did.HumanAuthorization):
		return keystore.Human
	case doc.In(kid, did.KeyAgreement):
		return keystore.Kex
	case doc.ID() == service:
		return keystore.Service
	}
	return keystore.Signing
}

// remoteBinding looks up the key that a new identity is to be bound to, and the signer for it.
func remoteBinding(ctx context.Context, cfg *Config, o *InitOptions) (did.Signer, error) {
	client := signer.NewClient(o.SignerSocket)
	k, err := client.Key(ctx, o.SignerKID)
	if err != nil {
		return nil, fmt.Errorf("--signer-socket: %w", err)
	}
	if k.Public.Type() != did.Ed25519 || k.Role != string(keystore.Signing) {
		return nil, fmt.Errorf("%w: --signer-kid: %s is a %s key of role %s; an identity is bound to an Ed25519 key of role signing", ErrConfig, k.KID, k.Public.Type(), k.Role)
	}
	id, err := cfg.AgentDID(did.ProfileE1, k.Public.Thumbprint())
	if err != nil {
		return nil, err
	}
	if want := did.KeyID(id, string(keystore.Signing), k.Public); k.KID != want {
		return nil, fmt.Errorf("%w: --signer-kid: the key %s makes the identity %s, so its id is %s; say so in %s", ErrConfig, strings.TrimPrefix(k.Public.String(), "Ed25519:"), id, want, signer.ConfigFile)
	}
	return client.Signer(ctx, k.KID, k.Public)
}
