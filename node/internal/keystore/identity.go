// SPDX-License-Identifier: Apache-2.0

package keystore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"
)

// Work factors of passphrases: log2 of scrypt's N. The default takes most of a second and a quarter of a gigabyte or more,
// which is the point.
const (
	DefaultWorkFactor = 18
	MinWorkFactor     = 10 // for tests
	MaxWorkFactor     = 22
)

// Identity is what unseals key files: an age X25519 identity. Unlike age's own type it does not show itself when formatted.
type Identity struct{ x *age.X25519Identity }

var _ age.Identity = (*Identity)(nil)

// Unwrap implements age.Identity.
func (i *Identity) Unwrap(stanzas []*age.Stanza) ([]byte, error) { return i.x.Unwrap(stanzas) }

// Recipient is what to seal to.
func (i *Identity) Recipient() age.Recipient { return i.x.Recipient() }

// String is the recipient, which is public.
func (i *Identity) String() string { return "identity of " + i.x.Recipient().String() }

// Format writes String, whatever the verb.
func (i *Identity) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, i.String()) }

// NewIdentityFile makes an identity and writes it to path, with mode 0600, in the format of age-keygen. It never replaces
// a file. The folder is made if it is missing.
func NewIdentityFile(path string) (*Identity, error) {
	x, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, fmt.Errorf("keystore: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("keystore: %w", err)
	}
	if err := writeNew(path, fmt.Appendf(nil, "# public key: %s\n%s\n", x.Recipient(), x)); err != nil {
		return nil, err
	}
	return &Identity{x}, nil
}

// ReadIdentityFile reads a file with exactly one X25519 identity, its mode checked as a key file's.
func ReadIdentityFile(path string) (*Identity, error) {
	data, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	return parseIdentity(path, data)
}

// parseIdentity wipes data.
func parseIdentity(path string, data []byte) (*Identity, error) {
	defer clear(data)
	// The library's errors quote lines of the file: they are not passed on.
	list, err := age.ParseIdentities(bytes.NewReader(data))
	if err != nil || len(list) != 1 {
		return nil, fmt.Errorf("%s: %w: not an age identity file with one identity", path, ErrKey)
	}
	x, ok := list[0].(*age.X25519Identity)
	if !ok {
		return nil, fmt.Errorf("%s: %w: not an X25519 identity", path, ErrKey)
	}
	return &Identity{x}, nil
}

// PassphraseRecipient seals to a passphrase. workFactor 0 is DefaultWorkFactor.
func PassphraseRecipient(passphrase string, workFactor int) (age.Recipient, error) {
	if workFactor == 0 {
		workFactor = DefaultWorkFactor
	}
	if workFactor < MinWorkFactor || workFactor > MaxWorkFactor {
		return nil, fmt.Errorf("keystore: work factor %d is not within %d and %d", workFactor, MinWorkFactor, MaxWorkFactor)
	}
	if strings.TrimSpace(passphrase) == "" {
		return nil, errors.New("keystore: the passphrase is empty")
	}
	r, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return nil, fmt.Errorf("keystore: %w", err)
	}
	r.SetWorkFactor(workFactor)
	return r, nil
}

// PassphraseIdentity unseals what PassphraseRecipient sealed with any work factor up to MaxWorkFactor: a file cannot make
// the process compute for ever.
func PassphraseIdentity(passphrase string) (age.Identity, error) {
	i, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return nil, fmt.Errorf("keystore: %w", err)
	}
	i.SetMaxWorkFactor(MaxWorkFactor)
	return i, nil
}
