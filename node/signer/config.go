// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/internal/keystore"
)

// ConfigFile is the name of the configuration in a signer's folder.
const ConfigFile = "treaty-signer.yaml"

// ErrConfig is matched by every error about the configuration.
var ErrConfig = errors.New("configuration")

// Config is treaty-signer.yaml. Unknown and duplicate keys are errors; relative paths are relative to the folder.
type Config struct {
	// Module is the PKCS#11 library, Token the label of the token.
	Module string `yaml:"module"`
	Token  string `yaml:"token"`
	// PIN is where the user PIN is: a file that only its owner may read, or a systemd credential. Never the PIN itself.
	PIN keystore.Secret `yaml:"pin"`
	// Socket is where nodes reach the signer (default signer.sock, mode 0600). With SocketGroup it is open to that group too
	// (0660), for a node that runs as another user.
	Socket      string `yaml:"socket,omitempty"`
	SocketGroup string `yaml:"socket_group,omitempty"`
	// Audit is a file that gets a line for every signature (default: standard error).
	Audit string `yaml:"audit,omitempty"`
	// Keys are the keys that are signed with. There may be none while the first is being made.
	Keys []ConfigKey `yaml:"keys,omitempty"`

	dir string
}

// ConfigKey says which of the token's keys a key id is. Label, ID or both must find exactly one private key.
type ConfigKey struct {
	KID   string `yaml:"kid"`
	Role  string `yaml:"role"`            // signing, service or receipt
	Label string `yaml:"label,omitempty"` // CKA_LABEL
	ID    string `yaml:"id,omitempty"`    // CKA_ID in hexadecimal
}

// LoadConfig reads and checks treaty-signer.yaml in dir.
func LoadConfig(dir string) (*Config, error) {
	path := filepath.Join(dir, ConfigFile)
	data, err := os.ReadFile(path) //nolint:gosec // the operator names the folder
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	c, err := parseConfig(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
	}
	c.dir = dir
	return c, nil
}

func parseConfig(data []byte) (*Config, error) {
	var c Config
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil {
		return nil, err
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one YAML document")
	}
	if c.Socket == "" {
		c.Socket = "signer.sock"
	}
	switch {
	case c.Module == "":
		return nil, errors.New("module: name the PKCS#11 library, such as /usr/lib/softhsm/libsofthsm2.so")
	case c.Token == "":
		return nil, errors.New("token: name the token by its label")
	case len(c.Keys) > MaxKeys:
		return nil, fmt.Errorf("keys: at most %d", MaxKeys)
	}
	if err := c.PIN.Validate(); err != nil {
		return nil, fmt.Errorf("pin: %w", err)
	}
	seen := map[string]bool{}
	for i, k := range c.Keys {
		if seen[k.KID] {
			return nil, fmt.Errorf("keys[%d]: %s is named twice", i, k.KID)
		}
		seen[k.KID] = true
		if _, _, err := did.SplitKeyID(k.KID); err != nil {
			return nil, fmt.Errorf("keys[%d].kid: %w", i, err)
		}
		if !roles[k.Role] {
			return nil, fmt.Errorf("keys[%d].role: signing, service or receipt; keys of people and recovery keys stay offline", i)
		}
		if _, err := k.TokenID(); err != nil || k.Label == "" && k.ID == "" {
			return nil, fmt.Errorf("keys[%d]: give label, id (hexadecimal) or both, as the token has them", i)
		}
	}
	return &c, nil
}

// TokenID is ID in bytes.
func (k ConfigKey) TokenID() ([]byte, error) { return hex.DecodeString(k.ID) }

// Path makes a configured path relative to the signer's folder.
func (c *Config) Path(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(c.dir, p)
}

// ReadPIN reads the PIN where it is kept; what holds it must be open to its owner only.
func (c *Config) ReadPIN() (string, error) {
	return c.PIN.Read(keystore.Environment{Dir: c.dir, Credentials: os.Getenv(keystore.CredentialsEnv)})
}

// GroupID is the number of SocketGroup, -1 for none.
func (c *Config) GroupID() (int, error) {
	if c.SocketGroup == "" {
		return -1, nil
	}
	g, err := user.LookupGroup(c.SocketGroup)
	if err != nil {
		return -1, fmt.Errorf("%w: socket_group: %w", ErrConfig, err)
	}
	return strconv.Atoi(g.Gid)
}

// OpenAudit opens the audit log for appending, mode 0600, or returns stderr when none is configured.
func (c *Config) OpenAudit(stderr io.Writer) (io.Writer, func() error, error) {
	if c.Audit == "" {
		return stderr, func() error { return nil }, nil
	}
	f, err := os.OpenFile(c.Path(c.Audit), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: audit: %w", ErrConfig, err)
	}
	return f, f.Close, nil
}
