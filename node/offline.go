// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/internal/keystore"
)

// OfflineKey says what key to make that the node must not be able to use.
type OfflineKey struct {
	Kind       string // httpapi.RotateHuman or httpapi.RotateRecovery
	DID        string // the identity that it is for
	Dir        string // the node's folder, where Out must not lie
	Out        string // file to write; never replaced
	Passphrase string
	WorkFactor int // of the passphrase's scrypt; 0: a safe default
}

// NewOfflineKey makes the key in this process, has it on disk, sealed, when it returns, and returns the public half.
func NewOfflineKey(o OfflineKey) ([]byte, error) {
	kind, ok := rotations[o.Kind]
	if !ok || !kind.role.Offline() {
		return nil, fmt.Errorf("%w: %q is not a kind of key that is kept offline", ErrConfig, o.Kind)
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	out, err := filepath.Abs(o.Out)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(out, dir+string(filepath.Separator)) {
		return nil, fmt.Errorf("%w: %s lies in the node's folder; the node must not hold that key", ErrConfig, o.Out)
	}
	id, err := did.Parse(o.DID)
	if err != nil {
		return nil, err
	}
	recipient, err := keystore.PassphraseRecipient(o.Passphrase, o.WorkFactor)
	if err != nil {
		return nil, err
	}
	key, err := newKey(kind.role, kind.types[0], clock.System{}.Now().Truncate(time.Second), func(did.PublicKey) (did.DID, error) { return id, nil })
	if err != nil {
		return nil, err
	}
	return key.Private.Public().Bytes(), keystore.SaveAs(out, key, recipient)
}
