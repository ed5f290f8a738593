// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/resolver/fetch"
	"github.com/treaty-node/treaty/node/delegation"
	"github.com/treaty-node/treaty/node/internal/keystore"
	"github.com/treaty-node/treaty/node/internal/trust"
)

// Names of files inside a node's folder (design, section 7).
const (
	ConfigFile   = "treaty.yaml"
	StoreFile    = "treaty.db"
	AdminSocket  = "admin.sock"
	KeysDir      = "keys"
	DocumentsDir = "did"
)

// Config is treaty.yaml. Unknown and duplicate keys are errors; relative paths are relative to the node's folder.
type Config struct {
	// Domain is the company's domain, in lower case and without a port: all its DIDs and URLs stand under it.
	Domain string `yaml:"domain"`
	// Name is how the company's agent is called in its card.
	Name string `yaml:"name"`
	// Agent is the path of the contracting identity before its fingerprint, for example [agents, steward].
	Agent []string `yaml:"agent"`
	// Listen is the address of the public listener.
	Listen string `yaml:"listen"`
	TLS    TLS    `yaml:"tls"`
	// CA names a PEM file of certificate authorities trusted beside the system's, for a development CA.
	CA string `yaml:"ca,omitempty"`
	// Hosts maps "host:port" to the address to dial instead; it changes no name, certificate check or URL.
	Hosts map[string]string `yaml:"hosts,omitempty"`
	Keys  Keys              `yaml:"keys"`
	// ProofDialect is how published documents are proved: spec (default), sdk or w3c.
	ProofDialect string       `yaml:"proof_dialect,omitempty"`
	Trust        trust.Policy `yaml:"trust"`
	Resolver     Resolver     `yaml:"resolver,omitempty"`
	// Datasets names the file that lists the datasets on offer (vendor).
	Datasets string `yaml:"datasets,omitempty"`
	// Policy names the vendor's policy file: what may be granted.
	Policy string `yaml:"policy,omitempty"`
	// Cedar names a file of Cedar policies that narrow every offer further (vendor).
	Cedar string `yaml:"cedar,omitempty"`
	// Needs names the buyer's needs file, used when a negotiation names none.
	Needs     string    `yaml:"needs,omitempty"`
	DataPlane DataPlane `yaml:"data_plane,omitempty"`
	Metaproto Metaproto `yaml:"metaproto,omitempty"`
	Decider   Decider   `yaml:"decider,omitempty"`
	Limits    Limits    `yaml:"limits,omitempty"`
	Rotation  Rotation  `yaml:"rotation,omitempty"`
	// Delegation says whom this node asks when a question is to be handed on.
	Delegation Delegation `yaml:"delegation,omitempty"`
	Drill      Drill      `yaml:"drill,omitempty"`
	Compat     Compat     `yaml:"compat,omitempty"`
}

// Drill says in which drills of rotations this node takes part, and which it runs by itself.
type Drill struct {
	// Allow names who may propose drills beside those with whom there is a contract in force.
	Allow []trust.Pattern `yaml:"allow,omitempty"`
	// Live lets them be about the proposer's real keys (default: rehearsals only).
	Live bool `yaml:"live,omitempty"`
	// MinGrace is the shortest grace that this node consents to (default 5s).
	MinGrace time.Duration `yaml:"min_grace,omitempty"`
	// MaxQueries is the largest load, in queries over a whole drill, that this node puts on a contract of which it is the buyer
	// because a peer proposes it (default 100).
	MaxQueries int `yaml:"max_queries,omitempty"`
	// Schedule lists rehearsals that this node proposes by itself, one at a time.
	Schedule []ScheduledDrill `yaml:"schedule,omitempty"`
}

// ScheduledDrill is a rehearsal that comes again and again.
type ScheduledDrill struct {
	Kind string `yaml:"kind"`
	// Peer is a DID or a domain.
	Peer string `yaml:"peer"`
	// Every is the time between two, give or take a tenth; at least 1m.
	Every time.Duration `yaml:"every"`
}

// TLS names the public listener's certificate chain and key (PEM).
type TLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// Keys says how the node unseals its own key files, and where its binding key is if not among them.
type Keys struct {
	keystore.Unlock `yaml:",inline"`
	// Signer is a process that signs with the binding key, which then is in no file. Key-agreement keys always are in files.
	Signer *SignerConfig `yaml:"signer,omitempty"`
}

// SignerConfig says where a remote signer is (see package node/signer and treaty-signer).
type SignerConfig struct {
	// Socket is the signer's Unix socket.
	Socket string `yaml:"socket"`
}

// Resolver says how names are looked up.
type Resolver struct {
	// DNSOverHTTPS is the https URL of a resolver (RFC 8484) that is asked for every name a peer brings up, instead of the
	// system's. The resolver itself is found by the system's.
	DNSOverHTTPS string `yaml:"dns_over_https,omitempty"`
	// AcceptKeyChanges lets changed keys of a DID that only its web server vouches for (bare domains, did:web) pass without
	// `treaty resolve --confirm`. `treaty resolve` still reports them.
	AcceptKeyChanges bool `yaml:"accept_key_changes,omitempty"`
}

// DataPlane is where this vendor's data is queried: a process of its own, with an identity of its own.
type DataPlane struct {
	DID string `yaml:"did"`
	URL string `yaml:"url"`
}

// Limits bound what one exchange may take. Zero means the default.
type Limits struct {
	// MessageLifetime is how long an envelope may travel (default 5m, at most 1h).
	MessageLifetime time.Duration `yaml:"message_lifetime,omitempty"`
	// PeerTimeout bounds one request to a peer (default 20s).
	PeerTimeout time.Duration `yaml:"peer_timeout,omitempty"`
	// NegotiationTimeout ends a negotiation that has not concluded (default 15m).
	NegotiationTimeout time.Duration `yaml:"negotiation_timeout,omitempty"`
}

// Rotation says how keys change inside the DID. Zero means the default.
type Rotation struct {
	// Grace is how long a key still counts after another has taken its place (default 168h).
	Grace time.Duration `yaml:"grace,omitempty"`
	// Settle is how long a new key is published before this node uses it, so that no peer meets it with an older document in
	// its cache (default 5m, the longest that a node caches).
	Settle time.Duration `yaml:"settle,omitempty"`
}

// ErrConfig wraps every error about treaty.yaml.
var ErrConfig = errors.New("configuration")

// DecodeYAML decodes data strictly into v: unknown and duplicate keys and a second document are errors.
func DecodeYAML(data []byte, v any) error {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(v); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var more any
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return errors.New("more than one YAML document")
	}
	return nil
}

// LoadConfig reads and validates treaty.yaml in dir.
func LoadConfig(dir string) (*Config, error) {
	path := filepath.Join(dir, ConfigFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no %s: make a node with `treaty init --dir %s`", ErrConfig, path, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	var c Config
	if err := DecodeYAML(data, &c); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
	}
	c.defaults()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
	}
	return &c, nil
}

func (c *Config) defaults() {
	if c.Name == "" {
		c.Name = c.Domain
	}
	if len(c.Agent) == 0 {
		c.Agent = []string{"agents", "steward"}
	}
	if c.ProofDialect == "" {
		c.ProofDialect = "spec"
	}
	c.Metaproto.defaults()
	setDefault(&c.Limits.MessageLifetime, 5*time.Minute)
	setDefault(&c.Limits.PeerTimeout, 20*time.Second)
	setDefault(&c.Limits.NegotiationTimeout, 15*time.Minute)
	setDefault(&c.Rotation.Grace, 7*24*time.Hour)
	setDefault(&c.Rotation.Settle, 5*time.Minute)
	setDefault(&c.Drill.MinGrace, 5*time.Second)
	setDefault(&c.Drill.MaxQueries, 100)
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Validate says the first thing that is wrong and what to do about it.
func (c *Config) Validate() error {
	if id, err := did.Parse("did:wba:" + c.Domain); err != nil || id.Port() != 0 || len(id.Path()) != 0 {
		return fmt.Errorf("domain: %q is not a plain domain name in lower case (a deployment's names carry no port; map addresses with hosts)", c.Domain)
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("listen: %q is not host:port", c.Listen)
	}
	if c.TLS.Cert == "" || c.TLS.Key == "" {
		return errors.New("tls: cert and key are both needed; `treaty init --dev-ca DIR` makes them for a try on one machine")
	}
	if err := c.Keys.Validate(); err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	if c.Keys.Signer != nil && c.Keys.Signer.Socket == "" {
		return errors.New("keys.signer.socket: name the signer's Unix socket")
	}
	switch did.Dialect(c.ProofDialect) {
	case did.DialectSpec, did.DialectSDK, did.DialectW3C:
	default:
		return fmt.Errorf("proof_dialect: %q is none of spec, sdk, w3c", c.ProofDialect)
	}
	if (c.Datasets == "") != (c.Policy == "") {
		return errors.New("datasets and policy go together: what is on offer, and what may be granted of it")
	}
	if c.Datasets != "" && (c.DataPlane.DID == "" || !strings.HasPrefix(c.DataPlane.URL, "https://")) {
		return errors.New("data_plane: did and an https url are needed when datasets are on offer")
	}
	if err := c.Metaproto.validate(); err != nil {
		return err
	}
	if l := c.Limits.MessageLifetime; l < 0 || l > time.Hour {
		return fmt.Errorf("limits.message_lifetime: %s is not between 0 and 1h", l)
	}
	if c.Limits.PeerTimeout < 0 || c.Limits.NegotiationTimeout < 0 {
		return errors.New("limits: durations are not negative")
	}
	if d := c.Delegation; d.Timeout < 0 || d.Timeout > maxDelegation || len(d.Agents) > delegation.MaxFanOut {
		return fmt.Errorf("%w: delegation: at most %d agents, and a timeout of at most %s", ErrConfig, delegation.MaxFanOut, maxDelegation)
	}
	if least := c.Rotation.Settle + c.Limits.NegotiationTimeout; c.Rotation.Settle < 0 || c.Rotation.Grace < least {
		return fmt.Errorf("rotation: grace is at least settle and limits.negotiation_timeout together (%s), so that what began with the old key can end with it", least)
	}
	if err := c.Decider.validate(); err != nil {
		return err
	}
	if err := c.Drill.validate(); err != nil {
		return err
	}
	for from, to := range c.Hosts {
		if _, _, err := net.SplitHostPort(from); err != nil {
			return fmt.Errorf("hosts: %q is not host:port", from)
		}
		if _, _, err := net.SplitHostPort(to); err != nil {
			return fmt.Errorf("hosts: %q is not address:port", to)
		}
	}
	return c.Trust.Validate()
}

// AgentDID is the contracting identity for a binding key with this thumbprint: a did:wba of the e1 or the k1 profile.
func (c *Config) AgentDID(profile did.Profile, thumbprint string) (did.DID, error) {
	return did.Parse("did:wba:" + c.Domain + ":" + strings.Join(c.Agent, ":") + ":" + string(profile) + "_" + thumbprint)
}

// ServiceDID is the bare-domain identity (serviceDid of the agent's services).
func (c *Config) ServiceDID() (did.DID, error) { return did.Parse("did:wba:" + c.Domain) }

// Path resolves p against the node's folder.
func Path(dir, p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(dir, p)
}

// FetchConfig is what the guarded client needs from this configuration.
func (c *Config) FetchConfig(dir string) (fetch.Config, error) {
	roots, err := LoadRoots(Path(dir, c.CA))
	if err != nil {
		return fetch.Config{}, err
	}
	guard := fetch.Config{Hosts: c.Hosts, RootCAs: roots, Timeout: c.Limits.PeerTimeout}
	if c.Resolver.DNSOverHTTPS != "" {
		if guard.Lookup, err = fetch.DNSOverHTTPS(fetch.NewClient(guard), c.Resolver.DNSOverHTTPS); err != nil {
			return fetch.Config{}, fmt.Errorf("%w: resolver.dns_over_https: %w", ErrConfig, err)
		}
	}
	return guard, nil
}

// LoadRoots returns the system's certificate authorities and those in the PEM file, or nil for no file.
func LoadRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // nil roots mean the system's
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: ca: %w", ErrConfig, err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%w: ca: %s holds no certificate", ErrConfig, file)
	}
	return roots, nil
}
