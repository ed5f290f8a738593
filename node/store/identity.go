// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"
)

// Settings that keep the node's own identity. The version stands by itself: processes look at it often.
const (
	identityKey        = "identity"
	identityVersionKey = "identity.version"
)

// KeyState is where one of the node's own keys is in its life.
type KeyState string

// States of keys. They only move down this list.
const (
	KeyActive   KeyState = "active"
	KeyRetiring KeyState = "retiring" // published until its end
	KeyRetired  KeyState = "retired"  // in no document any more
)

// OwnKey is what the node remembers of a key that was rotated in or out.
type OwnKey struct {
	Role  string    `json:"role"`
	State KeyState  `json:"state"`
	Since time.Time `json:"since,omitzero"` // when it was published by a rotation
	Until time.Time `json:"until,omitzero"` // its end, for keys that retire or have retired
}

// Identity is who the company's node is: the documents that it publishes, byte for byte, and the keys that were rotated, by
// their ids. A key that is in a document and not in Keys is active, and always was.
type Identity struct {
	Version int64             `json:"version"` // 1 after the first Put
	Agent   string            `json:"agent"`
	Service string            `json:"service"`
	Keys    map[string]OwnKey `json:"keys"`
	// Former are the DIDs that the identity had before, oldest first; each was followed by the next, the last one by Agent's.
	Former []Former `json:"former,omitempty"`
}

// Former is a DID from which the identity has moved on.
type Former struct {
	DID string `json:"did"`
	// Document is deactivated and names the successor. It stays published for ever, byte for byte.
	Document string `json:"document"`
	// Active is the last version in which the DID was in use; "" when only Document has come down.
	Active string `json:"active,omitempty"`
	// Keys are the keys that are not retired yet, and those that are: what is sealed to them is opened, or refused.
	Keys map[string]OwnKey `json:"keys,omitempty"`
	// CompromisedSince is from when somebody else may have had the binding key; zero: never.
	CompromisedSince time.Time `json:"compromisedSince,omitzero"`
}

// Key is what is remembered of an own key, of whichever DID; the zero value when nothing is.
func (i *Identity) Key(kid string) OwnKey {
	if k, ok := i.Keys[kid]; ok {
		return k
	}
	for _, f := range i.Former {
		if k, ok := f.Keys[kid]; ok {
			return k
		}
	}
	return OwnKey{}
}

// AllKeys are the keys of every DID that the identity has had.
func (i *Identity) AllKeys() iter.Seq2[string, OwnKey] {
	return func(yield func(string, OwnKey) bool) {
		for _, f := range i.Former {
			for kid, k := range f.Keys {
				if !yield(kid, k) {
					return
				}
			}
		}
		for kid, k := range i.Keys {
			if !yield(kid, k) {
				return
			}
		}
	}
}

// GetIdentity returns the identity in force, or ErrNotFound.
func GetIdentity(tx Settings) (Identity, error) {
	v, err := tx.GetSetting(identityKey)
	if err != nil {
		return Identity{}, err
	}
	var id Identity
	if err := json.Unmarshal([]byte(v), &id); err != nil || id.Version < 1 {
		return Identity{}, fmt.Errorf("%w: setting %s is not an identity", ErrCorrupt, identityKey)
	}
	return id, nil
}

// IdentityVersion is the version of the identity in force, 0 if there is none.
func IdentityVersion(tx Settings) (int64, error) {
	v, err := tx.GetSetting(identityVersionKey)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%w: setting %s is not a version", ErrCorrupt, identityVersionKey)
	}
	return n, nil
}

// PutIdentity is a compare-and-swap: expect is the version that the caller read (0: there must be none), the stored version
// becomes expect+1 whatever id.Version says. ErrConflict otherwise.
func PutIdentity(tx Settings, id Identity, expect int64) error {
	have, err := IdentityVersion(tx)
	if err != nil {
		return err
	}
	if have != expect {
		return fmt.Errorf("%w: the identity has version %d and not %d", ErrConflict, have, expect)
	}
	id.Version = expect + 1
	v, err := json.Marshal(id)
	if err != nil {
		return err
	}
	if err := tx.PutSetting(identityKey, string(v)); err != nil {
		return err
	}
	return tx.PutSetting(identityVersionKey, strconv.FormatInt(id.Version, 10))
}
