// SPDX-License-Identifier: Apache-2.0

package keystore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"go.yaml.in/yaml/v3"

	"github.com/treaty-node/treaty/did"
)

// TestUnlock_ExactlyOne: no way and two ways are refused, and a passphrase in the wrong place is not repeated.
func TestUnlock_ExactlyOne(t *testing.T) {
	for name, tc := range map[string]struct {
		u    Unlock
		want string // "" = valid
	}{
		"identity":             {Unlock{Identity: "f"}, ""},
		"credential":           {Unlock{Credential: "treaty-keys"}, ""},
		"prompt":               {Unlock{Passphrase: "prompt"}, ""},
		"passphrase file":      {Unlock{PassphraseFile: "f"}, ""},
		"none":                 {Unlock{}, "exactly one"},
		"two":                  {Unlock{Identity: "f", PassphraseFile: "g"}, "exactly one"},
		"all":                  {Unlock{"a", "b", "prompt", "d"}, "exactly one"},
		"the passphrase":       {Unlock{Passphrase: "correct horse"}, "never stands in the configuration"},
		"credential as a path": {Unlock{Credential: "../x"}, "a name, not a path"},
		"credential dot":       {Unlock{Credential: ".."}, "a name, not a path"},
	} {
		err := tc.u.Validate()
		if (err == nil) != (tc.want == "") || err != nil && (!errors.Is(err, ErrUnlock) || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "horse")) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := tc.u.Open(Environment{}); err == nil {
			t.Errorf("%s: opened out of nothing", name)
		}
	}
}

// TestUnlock_Open unseals one key file in each of the four ways, and says of each way that fails why.
func TestUnlock_Open(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	identity, err := NewIdentityFile(filepath.Join(dir, "identity"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "identity"))
	if err != nil {
		t.Fatal(err)
	}
	pass, err := PassphraseRecipient("correct horse", MinWorkFactor)
	if err != nil {
		t.Fatal(err)
	}
	sealed := func(sub string, r age.Recipient) string {
		path, err := Save(filepath.Join(dir, sub), newKey(t, Kex, did.X25519, time.Unix(1e9, 0)), r)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	byIdentity, byPassphrase := sealed("a", identity.Recipient()), sealed("b", pass)

	file("cred", string(text), 0o440) // systemd's access control lists show as group permissions
	file("cred-open", string(text), 0o444)
	file("pass", "correct horse\n", 0o600)
	file("pass-open", "correct horse\n", 0o640)
	file("pass-wrong", "battery staple\n", 0o600)
	file("pass-empty", "\n", 0o600)
	file("identity-open", string(text), 0o604)
	typed := func(answer string, err error) func(string) (string, error) {
		return func(question string) (string, error) {
			if question == "" {
				t.Error("no question")
			}
			return answer, err
		}
	}
	env := Environment{Dir: dir, Credentials: dir, Prompt: typed("correct horse", nil)}
	for name, tc := range map[string]struct {
		u    Unlock
		env  Environment
		key  string
		want error
		text string
	}{
		"identity":              {Unlock{Identity: "identity"}, env, byIdentity, nil, ""},
		"absolute":              {Unlock{Identity: filepath.Join(dir, "identity")}, Environment{Dir: "/nowhere"}, byIdentity, nil, ""},
		"identity for others":   {Unlock{Identity: "identity-open"}, env, byIdentity, ErrMode, "chmod 600"},
		"identity is none":      {Unlock{Identity: "pass"}, env, byIdentity, ErrKey, "not an age identity"},
		"no identity":           {Unlock{Identity: "none"}, env, byIdentity, os.ErrNotExist, "none"},
		"credential":            {Unlock{Credential: "cred"}, env, byIdentity, nil, ""},
		"credential for others": {Unlock{Credential: "cred-open"}, env, byIdentity, ErrMode, "0444"},
		"no credential":         {Unlock{Credential: "none"}, env, byIdentity, ErrCredential, "LoadCredential="},
		"not a service":         {Unlock{Credential: "cred"}, Environment{Dir: dir}, byIdentity, ErrCredential, "CREDENTIALS_DIRECTORY is not set"},
		"passphrase file":       {Unlock{PassphraseFile: "pass"}, env, byPassphrase, nil, ""},
		"passphrase for group":  {Unlock{PassphraseFile: "pass-open"}, env, byPassphrase, ErrMode, "chmod 600"},
		"wrong passphrase":      {Unlock{PassphraseFile: "pass-wrong"}, env, byPassphrase, ErrSealed, ""},
		"empty passphrase":      {Unlock{PassphraseFile: "pass-empty"}, env, byPassphrase, errAny, "not one line"},
		"typed":                 {Unlock{Passphrase: "prompt"}, env, byPassphrase, nil, ""},
		"typed wrongly":         {Unlock{Passphrase: "prompt"}, Environment{Prompt: typed("battery staple", nil)}, byPassphrase, ErrSealed, ""},
		"no terminal":           {Unlock{Passphrase: "prompt"}, Environment{}, byPassphrase, ErrPrompt, "passphrase_file"},
		"typing given up":       {Unlock{Passphrase: "prompt"}, Environment{Prompt: typed("", errors.New("EOF"))}, byPassphrase, ErrPrompt, "EOF"},
		"another's key":         {Unlock{Identity: "identity"}, env, byPassphrase, ErrSealed, ""},
	} {
		i, err := tc.u.Open(tc.env)
		if err == nil {
			_, err = Load(tc.key, i)
		}
		switch {
		case tc.want == nil && err != nil, tc.want != nil && err == nil,
			tc.want != nil && tc.want != errAny && !errors.Is(err, tc.want),
			err != nil && !strings.Contains(err.Error(), tc.text):
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && (strings.Contains(err.Error(), "horse") || strings.Contains(err.Error(), "battery") || strings.Contains(err.Error(), "SECRET-KEY")) {
			t.Errorf("%s: invariant 10: %v", name, err)
		}
	}
}

var errAny = errors.New("any")

// TestSecret_YAML: a secret in the wrong place is refused without being repeated.
func TestSecret_YAML(t *testing.T) {
	for text, ok := range map[string]bool{
		"{file: pin}": true, "{credential: pin}": true, "{}": false, "{file: a, credential: b}": false,
		"4711": false, "[4711]": false, "{pin: 4711}": false, "{file: [4711]}": false, "{file: 4711, file: 4711}": false,
	} {
		var s Secret
		err := yaml.Unmarshal([]byte(text), &s)
		if err == nil {
			err = s.Validate()
		}
		if (err == nil) != ok || err != nil && strings.Contains(err.Error(), "4711") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
