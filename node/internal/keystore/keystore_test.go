// SPDX-License-Identifier: Apache-2.0

package keystore

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

var created = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func newKey(t *testing.T, role Role, typ did.KeyType, at time.Time) Key {
	t.Helper()
	private, err := did.GenerateKey(typ)
	if err != nil {
		t.Fatal(err)
	}
	return Key{Role: role, KID: "did:wba:vendorcorp.test#" + Fragment(role, private.Public()), Created: at, Private: private}
}

func newIdentity(t *testing.T) *Identity {
	t.Helper()
	id, err := NewIdentityFile(filepath.Join(t.TempDir(), "sub", "identity.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func save(t *testing.T, dir string, k Key, r age.Recipient) string {
	t.Helper()
	path, err := Save(dir, k, r)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func TestSaveAndLoad(t *testing.T) {
	id := newIdentity(t)
	for _, typ := range []did.KeyType{did.Ed25519, did.X25519, did.Secp256k1, did.P256} {
		dir := filepath.Join(t.TempDir(), "keys")
		k := newKey(t, Signing, typ, created)
		path := save(t, dir, k, id.Recipient())
		if path != filepath.Join(dir, k.FileName()) || mode(t, path) != 0o600 || mode(t, dir) != 0o700 {
			t.Errorf("%s: %s %o %o", typ, path, mode(t, path), mode(t, dir))
		}
		got, err := Load(path, id)
		if err != nil {
			t.Fatal(err)
		}
		if got.KID != k.KID || got.Role != k.Role || !got.Created.Equal(created) || !bytes.Equal(got.Private.Seed(), k.Private.Seed()) {
			t.Errorf("%s: came back as another key", typ)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if seed := k.Private.Seed(); bytes.Contains(raw, seed) || bytes.Contains(raw, []byte(base64.RawURLEncoding.EncodeToString(seed))) {
			t.Errorf("%s: the secret is in the file", typ)
		}
		if _, err := Save(dir, k, id.Recipient()); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: saved over itself: %v", typ, err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			t.Errorf("%s: %d files left, %v", typ, len(entries), err)
		}
	}
}

func TestPassphrase(t *testing.T) {
	r, err := PassphraseRecipient("correct horse", MinWorkFactor)
	if err != nil {
		t.Fatal(err)
	}
	k := newKey(t, Human, did.Ed25519, created)
	path := save(t, t.TempDir()+"/human", k, r)
	right, err := PassphraseIdentity("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, right); err != nil {
		t.Error(err)
	}
	wrong, err := PassphraseIdentity("battery staple")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, wrong); !errors.Is(err, ErrSealed) {
		t.Errorf("wrong passphrase: %v", err)
	}
	for _, factor := range []int{1, MinWorkFactor - 1, MaxWorkFactor + 1, -3} {
		if _, err := PassphraseRecipient("x", factor); err == nil {
			t.Errorf("work factor %d passed", factor)
		}
	}
	if _, err := PassphraseRecipient(" \n", MinWorkFactor); err == nil {
		t.Error("an empty passphrase passed")
	}
}

// TestModes: anything that group or others could use is refused, and the text says what to do.
func TestModes(t *testing.T) {
	id := newIdentity(t)
	dir := filepath.Join(t.TempDir(), "keys")
	path := save(t, dir, newKey(t, Kex, did.X25519, created), id.Recipient())
	idFile := filepath.Join(t.TempDir(), "id")
	if _, err := NewIdentityFile(idFile); err != nil {
		t.Fatal(err)
	}
	refused := func(path string, bad fs.FileMode, hint string, f func() error) {
		t.Helper()
		good := mode(t, path)
		if err := os.Chmod(path, bad); err != nil {
			t.Fatal(err)
		}
		if err := f(); !errors.Is(err, ErrMode) || !strings.Contains(err.Error(), hint+" "+path) {
			t.Errorf("%s with mode %o: %v", path, bad, err)
		}
		if err := os.Chmod(path, good); err != nil {
			t.Fatal(err)
		}
		if err := f(); err != nil {
			t.Errorf("%s with mode %o: %v", path, good, err)
		}
	}
	for _, bad := range []fs.FileMode{0o640, 0o604, 0o660, 0o644, 0o620, 0o602, 0o610} {
		refused(path, bad, "chmod 600", func() error { _, err := Load(path, id); return err })
		refused(path, bad, "chmod 600", func() error { _, err := LoadDir(dir, id); return err })
		refused(idFile, bad, "chmod 600", func() error { _, err := ReadIdentityFile(idFile); return err })
	}
	for _, bad := range []fs.FileMode{0o750, 0o755, 0o711, 0o770} {
		refused(dir, bad, "chmod 700", func() error { _, err := LoadDir(dir, id); return err })
		refused(dir, bad, "chmod 700", func() error {
			_, err := Save(dir, newKey(t, Kex, did.X25519, created), id.Recipient())
			return err
		})
	}
}

func TestLoadDir(t *testing.T) {
	id := newIdentity(t)
	dir := filepath.Join(t.TempDir(), "keys")
	signing := newKey(t, Signing, did.Ed25519, created)
	older, newer := newKey(t, Kex, did.X25519, created), newKey(t, Kex, did.X25519, created.Add(time.Hour))
	for _, k := range []Key{signing, older, newer} {
		save(t, dir, k, id.Recipient())
	}
	if err := os.WriteFile(filepath.Join(dir, tmpPrefix+"left"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := LoadDir(dir, id)
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) != 2 || len(keys[Signing]) != 1 || len(keys[Kex]) != 2 || keys[Kex][0].KID != newer.KID || keys[Kex][1].KID != older.KID {
		t.Errorf("%v", keys)
	}
	if _, err := LoadDir(dir, newIdentity(t)); !errors.Is(err, ErrSealed) {
		t.Errorf("another identity: %v", err)
	}
	if _, err := LoadDir(dir); !errors.Is(err, ErrSealed) {
		t.Errorf("no identity: %v", err)
	}
	if _, err := LoadDir(dir+"x", id); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadDir(dir, id); !errors.Is(err, ErrKey) {
		t.Errorf("a foreign file: %v", err)
	}
}

// TestOfflineKeysAreNotLoaded: even one that the node's own identity could unseal.
func TestOfflineKeysAreNotLoaded(t *testing.T) {
	id := newIdentity(t)
	for _, role := range []Role{Human, Recovery} {
		dir := filepath.Join(t.TempDir(), "keys")
		save(t, dir, newKey(t, role, did.Ed25519, created), id.Recipient())
		if _, err := LoadDir(dir, id); !errors.Is(err, ErrOffline) {
			t.Errorf("%s: %v", role, err)
		}
	}
}

// seal puts any plaintext into a key file.
func seal(t *testing.T, path string, plain []byte, r age.Recipient) {
	t.Helper()
	var b bytes.Buffer
	w, err := age.Encrypt(&b, r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestBadContent(t *testing.T) {
	id := newIdentity(t)
	k := newKey(t, Signing, did.Ed25519, created)
	good := map[string]any{
		"type": "TreatyKey", "role": "signing", "kid": k.KID, "keyType": "Ed25519", "created": "2026-11-30T12:00:00Z",
		"seed": base64.RawURLEncoding.EncodeToString(k.Private.Seed()),
	}
	secret := good["seed"].(string)
	other := newKey(t, Signing, did.Ed25519, created)
	for name, change := range map[string]func(map[string]any){
		"type":           func(m map[string]any) { m["type"] = "TreatyContract" },
		"no role":        func(m map[string]any) { delete(m, "role") },
		"another role":   func(m map[string]any) { m["role"] = "receipt" },
		"unknown role":   func(m map[string]any) { m["role"] = "admin" },
		"another kid":    func(m map[string]any) { m["kid"] = other.KID },
		"kid no DID URL": func(m map[string]any) { m["kid"] = "signing" },
		"key type":       func(m map[string]any) { m["keyType"] = "X25519" },
		"unknown type":   func(m map[string]any) { m["keyType"] = "RSA" },
		"created":        func(m map[string]any) { m["created"] = "yesterday" },
		"short seed":     func(m map[string]any) { m["seed"] = secret[:20] },
		"padded seed":    func(m map[string]any) { m["seed"] = secret + "=" },
		"another seed":   func(m map[string]any) { m["seed"] = base64.RawURLEncoding.EncodeToString(other.Private.Seed()) },
		"more":           func(m map[string]any) { m["comment"] = "x" },
		"case":           func(m map[string]any) { m["Seed"] = m["seed"]; delete(m, "seed") },
	} {
		m := map[string]any{}
		for key, v := range good {
			m[key] = v
		}
		change(m)
		plain, err := canon.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), k.FileName())
		seal(t, path, plain, id.Recipient())
		_, err = Load(path, id)
		if !errors.Is(err, ErrKey) {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), secret[:20]) {
			t.Errorf("%s: the error shows the secret", name)
		}
	}
	// The control: unchanged, it loads.
	plain, err := canon.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), k.FileName())
	seal(t, path, plain, id.Recipient())
	if _, err := Load(path, id); err != nil {
		t.Error(err)
	}
	renamed := filepath.Join(filepath.Dir(path), other.FileName())
	if err := os.Rename(path, renamed); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(renamed, id); err != nil {
		t.Errorf("by itself, under any name: %v", err)
	}
	if err := os.Chmod(filepath.Dir(renamed), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadDir(filepath.Dir(renamed), id); !errors.Is(err, ErrKey) {
		t.Errorf("in a node's folder, under another key's name: %v", err)
	}
}

func TestDamagedFiles(t *testing.T) {
	id := newIdentity(t)
	path := save(t, filepath.Join(t.TempDir(), "keys"), newKey(t, Signing, did.Ed25519, created), id.Recipient())
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-1] ^= 1
	for name, data := range map[string][]byte{
		"empty": nil, "cut": whole[:len(whole)-1], "flipped": flipped, "text": []byte("hello"), "large": make([]byte, maxFile+1),
	} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path, id); !errors.Is(err, ErrKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Load(filepath.Dir(path), id); err == nil {
		t.Error("a folder loaded")
	}
}

// TestInvariant10_NothingPrintsASecret formats and encodes everything that holds one.
func TestInvariant10_NothingPrintsASecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "id")
	id, err := NewIdentityFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	k := newKey(t, Signing, did.Ed25519, created)
	secrets := []string{lines[len(lines)-1], base64.RawURLEncoding.EncodeToString(k.Private.Seed()), string(k.Private.Seed()), fmt.Sprintf("%x", k.Private.Seed())}
	if !strings.HasPrefix(secrets[0], "AGE-SECRET-KEY-1") {
		t.Fatalf("the identity file ends with %.20q", secrets[0])
	}
	var shown []string
	for _, v := range []any{id, *id, k, &k, []Key{k}, map[Role]Key{Signing: k}, struct{ K Key }{k}, struct{ I *Identity }{id}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q", "%d"} {
			shown = append(shown, fmt.Sprintf(verb, v))
		}
		if out, err := json.Marshal(v); err == nil {
			shown = append(shown, string(out))
		}
	}
	for _, s := range shown {
		for _, secret := range secrets {
			if strings.Contains(s, secret) {
				t.Errorf("shows a secret: %.60s", s)
			}
		}
	}
}

func TestIdentityFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "id")
	made, err := NewIdentityFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode(t, path) != 0o600 || mode(t, filepath.Dir(path)) != 0o700 {
		t.Errorf("modes %o %o", mode(t, path), mode(t, filepath.Dir(path)))
	}
	read, err := ReadIdentityFile(path)
	if err != nil || read.String() != made.String() {
		t.Errorf("%v, %v, %v", read, made, err)
	}
	if _, err := NewIdentityFile(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("replaced an identity: %v", err)
	}
	line, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad")
	for name, text := range map[string]string{
		"empty": "", "two": string(line) + string(line), "damaged": strings.Replace(string(line), "AGE-SECRET-KEY-1", "AGE-SECRET-KEY-1X", 1), "text": "hello\n",
	} {
		if err := os.WriteFile(bad, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadIdentityFile(bad)
		if !errors.Is(err, ErrKey) || strings.Contains(err.Error(), "AGE-SECRET-KEY") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
