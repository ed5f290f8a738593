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
	"go.yaml.in/yaml/v3"
)

var (
	// ErrUnlock: the configuration does not say in exactly one way how keys are unsealed.
	ErrUnlock = errors.New("keystore: how keys are unsealed")
	// ErrCredential: the service manager did not hand over the credential.
	ErrCredential = errors.New("keystore: credential")
	// ErrPrompt: a passphrase has to be typed, and there is no terminal.
	ErrPrompt = errors.New("keystore: no terminal to ask for the passphrase")
)

// CredentialsEnv is the variable in which systemd names the folder of a service's credentials (systemd.exec(5)).
const CredentialsEnv = "CREDENTIALS_DIRECTORY"

// PassphrasePrompt is the one value of Unlock.Passphrase.
const PassphrasePrompt = "prompt"

// Unlock says how key files are unsealed. Exactly one member is set.
type Unlock struct {
	// Identity is an age identity file that only its owner may read.
	Identity string `yaml:"identity,omitempty"`
	// Credential is the name of a systemd credential that holds an age identity.
	Credential string `yaml:"credential,omitempty"`
	// Passphrase is "prompt": the passphrase of the key files is typed at start.
	Passphrase string `yaml:"passphrase,omitempty"`
	// PassphraseFile is a file with the passphrase of the key files, which only its owner may read.
	PassphraseFile string `yaml:"passphrase_file,omitempty"`
}

// Validate says whether exactly one way is named, and properly.
func (u Unlock) Validate() error {
	n := 0
	for _, s := range []string{u.Identity, u.Credential, u.Passphrase, u.PassphraseFile} {
		if s != "" {
			n++
		}
	}
	switch {
	case n != 1:
		return fmt.Errorf("%w: name exactly one of identity (a file), credential (of systemd), passphrase (prompt) and passphrase_file; there are %d", ErrUnlock, n)
	case u.Passphrase != "" && u.Passphrase != PassphrasePrompt:
		// The value is not repeated: it may be somebody's passphrase.
		return fmt.Errorf("%w: passphrase can only be %q; a passphrase itself never stands in the configuration (passphrase_file names a file that holds it)", ErrUnlock, PassphrasePrompt)
	case u.Credential != "" && (u.Credential != filepath.Base(u.Credential) || strings.HasPrefix(u.Credential, ".")):
		return fmt.Errorf("%w: credential is a name, not a path", ErrUnlock)
	}
	return nil
}

// Environment is what unsealing takes from the process that does it.
type Environment struct {
	// Dir is what relative paths are relative to.
	Dir string
	// Credentials is the folder of the service's credentials, the value of CredentialsEnv.
	Credentials string
	// Prompt asks a person and returns what was typed; nil when there is no terminal.
	Prompt func(question string) (string, error)
}

// Seal returns what a new key file is sealed to, so that what Unlock unseals unseals it too.
type Seal func() (age.Recipient, error)

// Open returns what unseals the key files.
func (u Unlock) Open(env Environment) (age.Identity, error) {
	identity, _, err := u.OpenSeal(env)
	return identity, err
}

// OpenSeal is Open, and returns what seals new key files too.
func (u Unlock) OpenSeal(env Environment) (age.Identity, Seal, error) {
	opened, err := u.open(env)
	if err != nil {
		return nil, nil, err
	}
	switch o := opened.(type) {
	case *Identity:
		return o, func() (age.Recipient, error) { return o.Recipient(), nil }, nil
	case passphrase:
		unsealing, err := PassphraseIdentity(o.text)
		return unsealing, func() (age.Recipient, error) { return PassphraseRecipient(o.text, DefaultWorkFactor) }, err
	}
	return nil, nil, ErrUnlock
}

// passphrase is one that does not show itself when formatted.
type passphrase struct{ text string }

func (passphrase) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "passphrase") }

// open returns an *Identity or a passphrase.
func (u Unlock) open(env Environment) (any, error) {
	if err := u.Validate(); err != nil {
		return nil, err
	}
	switch {
	case u.Identity != "":
		return ReadIdentityFile(env.path(u.Identity))
	case u.Credential != "":
		data, path, err := env.credential(u.Credential)
		if err != nil {
			return nil, err
		}
		return parseIdentity(path, data)
	case u.PassphraseFile != "":
		p, err := ReadPassphrase(env.path(u.PassphraseFile))
		return passphrase{p}, err
	}
	if env.Prompt == nil {
		return nil, fmt.Errorf("%w: start it on a terminal, or use credential or passphrase_file for unattended starts", ErrPrompt)
	}
	p, err := env.Prompt("Passphrase of the node's keys: ")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPrompt, err)
	}
	return passphrase{p}, nil
}

func (e Environment) path(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(e.Dir, p)
}

// credential reads a credential of the service manager. systemd lets a service's user in by an access control list, which
// shows as group permissions, and guards the folder itself: here only others are refused.
func (e Environment) credential(name string) (data []byte, path string, err error) {
	if e.Credentials == "" {
		return nil, "", fmt.Errorf("%w %q: %s is not set: start it as a systemd service with LoadCredential=%[2]s:… or LoadCredentialEncrypted=%[2]s:…", ErrCredential, name, CredentialsEnv)
	}
	path = filepath.Join(e.Credentials, name)
	data, err = readSecret(path, 0o007)
	if errors.Is(err, os.ErrNotExist) {
		return nil, "", fmt.Errorf("%w %q: not among those that the service was given (LoadCredential= in its unit)", ErrCredential, name)
	}
	return data, path, err
}

// Secret is one line in a file or a credential, such as a token's PIN. Exactly one member is set.
type Secret struct {
	File       string `yaml:"file,omitempty"`
	Credential string `yaml:"credential,omitempty"`
}

// UnmarshalYAML implements yaml.Unmarshaler. Its errors quote nothing: what stands in the wrong place may be the secret.
func (s *Secret) UnmarshalYAML(n *yaml.Node) error {
	wrong := fmt.Errorf("line %d: %w: want {file: …} or {credential: …}; a secret itself never stands in the configuration", n.Line, ErrUnlock)
	if n.Kind != yaml.MappingNode {
		return wrong
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		to := map[string]*string{"file": &s.File, "credential": &s.Credential}[n.Content[i].Value]
		if to == nil || *to != "" || n.Content[i+1].Kind != yaml.ScalarNode {
			return wrong
		}
		*to = n.Content[i+1].Value
	}
	return nil
}

// Validate says whether exactly one place is named.
func (s Secret) Validate() error {
	if (s.File == "") == (s.Credential == "") {
		return fmt.Errorf("%w: name exactly one of file and credential", ErrUnlock)
	}
	return Unlock{Identity: s.File, Credential: s.Credential}.Validate()
}

// Read returns the secret without the end of its line. It is an error if there is none, or more than one line.
func (s Secret) Read(env Environment) (string, error) {
	if err := s.Validate(); err != nil {
		return "", err
	}
	if s.File != "" {
		return ReadPassphrase(env.path(s.File))
	}
	data, path, err := env.credential(s.Credential)
	if err != nil {
		return "", err
	}
	return oneLine(path, data)
}

// ReadPassphrase reads a file of one line that only its owner may read.
func ReadPassphrase(path string) (string, error) {
	data, err := readPrivate(path)
	if err != nil {
		return "", err
	}
	return oneLine(path, data)
}

func oneLine(path string, data []byte) (string, error) {
	defer clear(data)
	line := bytes.TrimRight(data, "\r\n")
	if len(bytes.TrimSpace(line)) == 0 || bytes.ContainsAny(line, "\r\n\x00") {
		return "", fmt.Errorf("%s: not one line with a secret", path)
	}
	return string(line), nil
}
