// SPDX-License-Identifier: Apache-2.0

// Package keystore keeps private keys in files sealed with age (https://age-encryption.org/v1).
//
// Guarantees
//
//   - A key is on disk only sealed, to the recipient of an identity file or to a passphrase.
//   - A file or folder that anybody but its owner may use is refused, with the command that mends it.
//   - What is loaded is what was saved: the key's own thumbprint must fit its id and role and, in a node's folder, the
//     file's name.
//   - No error, and no value of this package when formatted or encoded, shows a secret.
//   - Keys of people and recovery keys are not loaded from a node's folder, whatever they are sealed to.
//
// What it does not do: an identity file in the clear beside the keys protects backups of the keys and nothing else; whoever
// reads both has the keys. Loaded keys are in the process's memory, which Go does not let us lock or reliably wipe.
package keystore

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

var (
	// ErrMode: group or others may use a file or folder that holds keys.
	ErrMode = errors.New("keystore: open to others")
	// ErrSealed: none of the identities, or not this passphrase, opens the file.
	ErrSealed = errors.New("keystore: cannot be unsealed with what was given")
	// ErrKey: the file is not a key file, or holds another key than it says.
	ErrKey = errors.New("keystore: not a valid key file")
	// ErrOffline: a human or recovery key lies in a node's folder.
	ErrOffline = errors.New("keystore: this key must not be within the node's reach")
)

// Role is what a key is for. A key has one role.
type Role string

// Roles, as they begin the fragment of a key id.
const (
	Signing  Role = "signing"
	Kex      Role = "kex"
	Human    Role = "human"
	Recovery Role = "recovery"
	Service  Role = "service"
	Receipt  Role = "receipt"
)

// Offline says whether keys of this role are kept out of the node's reach.
func (r Role) Offline() bool { return r == Human || r == Recovery }

func (r Role) valid() bool {
	switch r {
	case Signing, Kex, Human, Recovery, Service, Receipt:
		return true
	default:
		return false
	}
}

// Key is a private key with its place. Formatting it shows its id only.
type Key struct {
	Role    Role
	KID     string // absolute key id, <did>#<Fragment(role, public key)>
	Created time.Time
	Private did.PrivateKey
}

// Fragment is the fragment of the id of a key: the role and the first 8 characters of the thumbprint.
func Fragment(r Role, k did.PublicKey) string {
	t := k.Thumbprint()
	return string(r) + "-" + t[:min(8, len(t))]
}

// FileName is the name of the file that keeps k: its id's fragment and ".age".
func (k Key) FileName() string { return Fragment(k.Role, k.Private.Public()) + suffix }

// String is the key id.
func (k Key) String() string { return k.KID }

// Format writes the key id, whatever the verb.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.KID) }

const (
	suffix   = ".age"
	fileType = "TreatyKey"
	maxFile  = 16 << 10
	maxKeys  = 256 // in one folder
)

// content is the sealed plaintext, as canonical JSON.
type content struct {
	Type    string      `json:"type"`
	Role    Role        `json:"role"`
	KID     string      `json:"kid"`
	KeyType did.KeyType `json:"keyType"`
	Created string      `json:"created"` // RFC 3339, UTC, seconds
	Seed    string      `json:"seed"`    // base64url without padding
}

// check says whether role, id and key fit together.
func (k Key) check() error {
	if !k.Role.valid() {
		return fmt.Errorf("%w: unknown role %.40q", ErrKey, string(k.Role))
	}
	_, fragment, err := did.SplitKeyID(k.KID)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrKey, err)
	}
	if k.Private.IsZero() || fragment != Fragment(k.Role, k.Private.Public()) {
		return fmt.Errorf("%w: the key does not belong to the id %s", ErrKey, k.KID)
	}
	return nil
}

// Save seals k to recipient and writes it into dir under its FileName. It returns the file's path; else it is SaveAs.
func Save(dir string, k Key, recipient age.Recipient) (string, error) {
	path := filepath.Join(dir, k.FileName())
	return path, SaveAs(path, k, recipient)
}

// SaveAs seals k to recipient and writes it to path, whose folder it makes if it is missing. It never replaces a file
// (fs.ErrExist). When it returns, the key is on disk.
func SaveAs(path string, k Key, recipient age.Recipient) error {
	if err := k.check(); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("keystore: %w", err)
	}
	if err := checkDir(dir); err != nil {
		return err
	}
	seed := k.Private.Seed()
	plain, err := canon.Marshal(content{
		Type: fileType, Role: k.Role, KID: k.KID, KeyType: k.Private.Public().Type(),
		Created: k.Created.UTC().Format(time.RFC3339), Seed: base64.RawURLEncoding.EncodeToString(seed),
	})
	clear(seed)
	if err != nil {
		return fmt.Errorf("keystore: encoding %s: %w", k.KID, err)
	}
	defer clear(plain)

	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, recipient)
	if err != nil {
		return fmt.Errorf("keystore: sealing %s: %w", k.KID, err)
	}
	_, err = w.Write(plain)
	if err := errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("keystore: sealing %s: %w", k.KID, err)
	}
	return writeNew(path, sealed.Bytes())
}

// Load reads one key file, whatever its name. Several identities may be given; the first that fits is used.
func Load(path string, identities ...age.Identity) (Key, error) {
	sealed, err := readPrivate(path)
	if err != nil {
		return Key{}, err
	}
	k, err := open(sealed, identities)
	if err != nil {
		return Key{}, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

func open(sealed []byte, identities []age.Identity) (Key, error) {
	if len(identities) == 0 {
		return Key{}, ErrSealed
	}
	r, err := age.Decrypt(bytes.NewReader(sealed), identities...)
	if err != nil {
		// The library's text is left out: it may repeat parts of the file.
		if _, ok := errors.AsType[*age.NoIdentityMatchError](err); ok {
			return Key{}, ErrSealed
		}
		return Key{}, fmt.Errorf("%w: not an intact age file", ErrKey)
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxFile))
	defer clear(plain)
	if err != nil {
		return Key{}, fmt.Errorf("%w: not an intact age file", ErrKey)
	}
	var c content
	// Errors of the decoder name a place and quote nothing.
	if err := canon.Unmarshal(plain, &c, canon.Limits{MaxBytes: maxFile, MaxDepth: 2}); err != nil {
		return Key{}, fmt.Errorf("%w: %w", ErrKey, err)
	}
	if c.Type != fileType {
		return Key{}, fmt.Errorf("%w: type is not %s", ErrKey, fileType)
	}
	created, err := time.Parse(time.RFC3339, c.Created)
	if err != nil {
		return Key{}, fmt.Errorf("%w: created is not a time", ErrKey)
	}
	seed, err := base64.RawURLEncoding.Strict().DecodeString(c.Seed)
	if err != nil {
		return Key{}, fmt.Errorf("%w: seed is not base64url", ErrKey)
	}
	defer clear(seed)
	private, err := did.NewPrivateKey(c.KeyType, seed)
	if err != nil {
		return Key{}, fmt.Errorf("%w: %w", ErrKey, err)
	}
	k := Key{Role: c.Role, KID: c.KID, Created: created.UTC(), Private: private}
	return k, k.check()
}

// LoadDir reads every key of a node's folder, by role, each role's newest key first. Any file in it that is not a key,
// cannot be unsealed, or is a human or recovery key is an error: a node does not start on a guess about its keys.
func LoadDir(dir string, identities ...age.Identity) (map[Role][]Key, error) {
	if err := checkDir(dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("keystore: %w", err)
	}
	if len(entries) > maxKeys {
		return nil, fmt.Errorf("keystore: %s holds more than %d files", dir, maxKeys)
	}
	keys := map[Role][]Key{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !strings.HasSuffix(e.Name(), suffix) {
			if strings.HasPrefix(e.Name(), tmpPrefix) {
				continue // a crash while saving left it, and what it would have been saved as does not exist
			}
			return nil, fmt.Errorf("%s: %w", path, ErrKey)
		}
		if role, _, _ := strings.Cut(e.Name(), "-"); Role(role).Offline() {
			return nil, fmt.Errorf("%s: %w: move it to where the node's user cannot read it", path, ErrOffline)
		}
		k, err := Load(path, identities...)
		if err != nil {
			return nil, err
		}
		if e.Name() != k.FileName() { // a human key renamed, two copies of one key, …
			return nil, fmt.Errorf("%s: %w: it holds %s", path, ErrKey, k.KID)
		}
		keys[k.Role] = append(keys[k.Role], k)
	}
	for _, list := range keys {
		slices.SortFunc(list, func(a, b Key) int {
			return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.KID, b.KID))
		})
	}
	return keys, nil
}

// readPrivate reads a small file that only its owner may use. The mode is that of the opened file, not of the name.
func readPrivate(path string) ([]byte, error) { return readSecret(path, 0o077) }

func readSecret(path string, forbidden fs.FileMode) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("keystore: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("keystore: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: %w", path, ErrKey)
	case info.Mode().Perm()&forbidden != 0:
		return nil, fmt.Errorf("%w: %s has mode %04o; run chmod 600 %[2]s", ErrMode, path, info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("keystore: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: %w: larger than %d bytes", path, ErrKey, maxFile)
	}
	return data, nil
}

func checkDir(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("keystore: %w", err)
	case !info.IsDir():
		return fmt.Errorf("keystore: %s is not a folder", dir)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%w: %s has mode %04o; run chmod 700 %[2]s", ErrMode, dir, info.Mode().Perm())
	}
	return nil
}

const tmpPrefix = ".new-"

// writeNew writes a file that does not exist yet, whole or not at all, durably, with mode 0600.
func writeNew(path string, data []byte) error {
	tmp := filepath.Join(filepath.Dir(path), tmpPrefix+rand.Text())
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("keystore: %w", err)
	}
	defer os.Remove(tmp)
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("keystore: %w", err)
	}
	if err := os.Link(tmp, path); err != nil { // unlike a rename, it never replaces a key
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("keystore: %s: %w", path, fs.ErrExist)
		}
		return fmt.Errorf("keystore: %w", err)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("keystore: %w", err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("keystore: %w", err)
	}
	return nil
}
