// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/resolver/fetch"
	"github.com/treaty-node/treaty/node/cedar"
	"github.com/treaty-node/treaty/node/dataplane"
	"github.com/treaty-node/treaty/node/dataset"
	"github.com/treaty-node/treaty/node/internal/keystore"
	"github.com/treaty-node/treaty/node/internal/trust"
)

// ConfigFile is the name of the configuration in a data plane's folder.
const ConfigFile = "dataplane.yaml"

// File is dataplane.yaml. Unknown and duplicate keys are errors; relative paths are relative to the folder.
type File struct {
	// URL is where buyers reach the MCP endpoint, as contracts name it. Its host is the data plane's domain and gives its
	// DID, did:wba:<host>.
	URL    string `yaml:"url"`
	Listen string `yaml:"listen"`
	TLS    TLS    `yaml:"tls"`
	// CA names a PEM file of authorities trusted beside the system's; Hosts maps "host:port" to the address dialled instead.
	CA    string            `yaml:"ca,omitempty"`
	Hosts map[string]string `yaml:"hosts,omitempty"`
	// Store is the company's store, which the vendor's node writes.
	Store string `yaml:"store"`
	// Key is the sealed receipt key. Exactly one of identity, credential, passphrase and passphrase_file unseals it.
	Key             string `yaml:"key"`
	keystore.Unlock `yaml:",inline"`
	// Vendors are whose contracts are served, with this process's own copies of their DID documents.
	Vendors []Vendor `yaml:"vendors"`
	// Datasets are the datasets, or the name of the file that lists them.
	Datasets Datasets `yaml:"datasets"`
	// Ceiling is what no contract can lift.
	Ceiling dataplane.Ceiling `yaml:"ceiling,omitempty"`
	// NoiseSecret names the file whose content seeds the noise of contracts that want it; made when it is not there. Without
	// one, nothing leaves under such contracts.
	NoiseSecret string `yaml:"noise_secret,omitempty"`
	// Cedar names a file of Cedar policies that stand beside the ceiling, read at the start.
	Cedar string `yaml:"cedar,omitempty"`
	// Trust says whose calls are looked at; without it everybody's, since a contract decides.
	Trust  *trust.Policy `yaml:"trust,omitempty"`
	Limits Limits        `yaml:"limits,omitempty"`
}

// TLS names the listener's certificate chain and key (PEM).
type TLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// Vendor is a company whose contracts are served.
type Vendor struct {
	DID      string `yaml:"did"`
	Document string `yaml:"document"`
}

// Limits bound calls; zero means the default.
type Limits struct {
	QueryTime  time.Duration `yaml:"query_time,omitempty"`
	MemoryMB   int           `yaml:"memory_mb,omitempty"`
	Threads    int           `yaml:"threads,omitempty"`
	Concurrent int           `yaml:"concurrent,omitempty"`
	PerBuyer   int           `yaml:"per_buyer,omitempty"` // of concurrent, for one buyer; default half
	MaxRows    int           `yaml:"max_rows,omitempty"`
	PerMinute  int           `yaml:"calls_per_minute,omitempty"`
}

// queryTime is the time of one query, default 30 s as in the engines.
func (l Limits) queryTime() time.Duration {
	if l.QueryTime <= 0 {
		return 30 * time.Second
	}
	return l.QueryTime
}

// writeTime is how long a request may take until its answer is written: waiting for a place, the query, and half a minute for a
// reader that is slow.
func (l Limits) writeTime() time.Duration { return 2*l.queryTime() + 30*time.Second }

// Datasets is a mapping as [dataset.Config] has it, or the name of a file with one.
type Datasets struct {
	File string
	Sets dataset.Config
}

// UnmarshalYAML takes either form.
func (d *Datasets) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return n.Decode(&d.File)
	}
	// Encoded again so that the decoder that refuses unknown keys reads it.
	data, err := yaml.Marshal(n)
	if err != nil {
		return err
	}
	d.Sets, err = dataset.ParseConfig(data)
	return err
}

// MarshalYAML writes the form that was read.
func (d Datasets) MarshalYAML() (any, error) {
	if d.File != "" {
		return d.File, nil
	}
	return d.Sets, nil
}

// Config is a configuration with everything it names but the keys, checked and ready.
type Config struct {
	File
	Dir     string
	DID     did.DID        // the data plane's: the bare DID of the url's host
	Sets    dataset.Config // the datasets, wherever they were listed
	DataDir string         // folder that the datasets' paths are relative to: that of the file that lists them
	origin  string
	vendors []*did.Document
	roots   *x509.CertPool
}

// ErrConfig is matched by every error about the configuration.
var ErrConfig = errors.New("configuration")

func configError(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...)
}

// Path makes a configured path relative to the folder.
func (c *Config) Path(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(c.Dir, p)
}

// Load reads dataplane.yaml in dir and what it names, keys apart. The vendors' documents are verified at now.
func Load(dir string, now time.Time) (*Config, error) {
	file := filepath.Join(dir, ConfigFile)
	data, err := os.ReadFile(file) //nolint:gosec // the operator names the folder
	if errors.Is(err, os.ErrNotExist) {
		return nil, configError("there is no %s: make one with treaty-dataplane init --dir %s", file, dir)
	}
	if err != nil {
		return nil, configError("%w", err)
	}
	c := &Config{Dir: dir}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&c.File); err != nil && !errors.Is(err, io.EOF) {
		return nil, configError("%s: %w", file, err)
	}
	if err := c.check(now); err != nil {
		return nil, configError("%s: %w", file, err)
	}
	return c, nil
}

func (c *Config) check(now time.Time) error {
	for name, value := range map[string]string{
		"url": c.URL, "listen": c.Listen, "tls.cert": c.TLS.Cert, "tls.key": c.TLS.Key, "store": c.Store, "key": c.Key,
	} {
		if value == "" {
			return fmt.Errorf("%s is missing", name)
		}
	}
	if err := c.Unlock.Validate(); err != nil {
		return err
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.Path != Path || u.RawQuery != "" || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("url: want https://<host>%s", Path)
	}
	c.origin = "https://" + u.Host
	if c.DID, err = serviceDID(u.Host); err != nil {
		return fmt.Errorf("url: %w", err)
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if c.roots, err = c.authorities(); err != nil {
		return fmt.Errorf("ca: %w", err)
	}
	if err := (fetch.Config{Hosts: c.Hosts}).Validate(); err != nil {
		return fmt.Errorf("hosts: %w", err)
	}
	if c.Trust != nil {
		if err := c.Trust.Validate(); err != nil {
			return err
		}
	}
	c.DataDir = c.Dir
	if c.Sets = c.Datasets.Sets; c.Datasets.File != "" {
		c.DataDir = filepath.Dir(c.Path(c.Datasets.File))
		data, err := os.ReadFile(c.Path(c.Datasets.File))
		if err != nil {
			return fmt.Errorf("datasets: %w", err)
		}
		if c.Sets, err = dataset.ParseConfig(data); err != nil {
			return fmt.Errorf("%s: %w", c.Datasets.File, err)
		}
	}
	if len(c.Sets) == 0 {
		return errors.New("datasets: there is none")
	}
	if c.Cedar != "" {
		rules, err := os.ReadFile(c.Path(c.Cedar))
		if err != nil {
			return fmt.Errorf("cedar: %w", err)
		}
		if c.Ceiling.Cedar, err = cedar.Parse(c.Cedar, rules); err != nil {
			return err
		}
	}
	if len(c.Vendors) == 0 {
		return errors.New("vendors: at least one is needed")
	}
	for _, v := range c.Vendors {
		doc, err := vendorDocument(v.DID, c.Path(v.Document), now)
		if err != nil {
			return fmt.Errorf("vendors: %s: %w", v.DID, err)
		}
		c.vendors = append(c.vendors, doc)
	}
	return nil
}

// serviceDID is the bare DID of a host and port as a URL has them (did:wba writes the colon as %3A).
func serviceDID(hostport string) (did.DID, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return did.Parse("did:wba:" + hostport)
	}
	return did.Parse("did:wba:" + host + "%3A" + port)
}

func (c *Config) authorities() (*x509.CertPool, error) {
	if c.CA == "" {
		return nil, nil //nolint:nilnil // nil is the system's
	}
	pem, err := os.ReadFile(c.Path(c.CA))
	if err != nil {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", c.CA)
	}
	return pool, nil
}

// maxDocument bounds a DID document's file.
const maxDocument = 64 << 10

// vendorDocument reads this process's own copy of a vendor's DID document and verifies it.
func vendorDocument(id, path string, now time.Time) (*did.Document, error) {
	want, err := did.Parse(id)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path) //nolint:gosec // the operator names it
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	raw, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err != nil {
		return nil, err
	}
	doc, err := did.ParseDocument(raw)
	if err != nil {
		return nil, err
	}
	if doc.ID() != want {
		return nil, fmt.Errorf("the document is %s's", doc.ID())
	}
	if _, err := doc.Verify(now); err != nil {
		return nil, err
	}
	return doc, doc.CheckRoles()
}
