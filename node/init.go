// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/internal/devca"
	"github.com/treaty-node/treaty/node/internal/keystore"
	"github.com/treaty-node/treaty/node/store/sqlite"
)

// InitOptions say what node to make. Domain, Listen, HumanKeyOut, RecoveryKeyOut and Passphrase are needed, and either DevCA or
// Cert and Key.
type InitOptions struct {
	Dir    string
	Domain string
	Name   string
	Listen string
	// DevCA is the folder of a development CA, made if it is missing; it issues the listener's certificate.
	DevCA     string
	Cert, Key string
	CA        string            // PEM of further authorities to trust
	Hosts     map[string]string // see Config.Hosts
	Open      bool              // first contact open instead of closed
	Allow     []string          // trust patterns
	// HumanKeyOut and RecoveryKeyOut are where the two keys go that the node must not be able to use, sealed with
	// Passphrase. They must not lie in Dir.
	HumanKeyOut, RecoveryKeyOut string
	Passphrase                  string
	WorkFactor                  int // of the passphrase's scrypt; 0: a safe default
	// How the node's own keys are sealed. Without any of these: to an identity file in Dir.
	UnlockCredential     string // name of a systemd credential; the identity goes to IdentityOut, outside of Dir
	IdentityOut          string
	UnlockPassphrase     string // typed at every start
	UnlockPassphraseFile string // read at every start
	// SignerSocket and SignerKID name a remote signer's key to bind the identity to, instead of making one.
	SignerSocket, SignerKID string
	// Datasets and Policy are files to copy into Dir (vendor); DataPlane is where the data is queried.
	Datasets, Policy string
	DataPlane        DataPlane
	// Profile of the contracting identity: e1 (Ed25519, the default) or k1 (secp256k1).
	Profile string
	// ProofDialect is how the documents are proved; see Config.ProofDialect.
	ProofDialect string
	Needs        string   // file to copy into Dir (buyer)
	Transports   []string // preferred first
}

// InitResult is what Init made.
type InitResult struct {
	DID      string   `json:"did"`
	Service  string   `json:"serviceDid"`
	Dir      string   `json:"dir"`
	Document string   `json:"document"` // URL where peers will look
	Files    []string `json:"files"`
}

const (
	identityFile = "unlock.age-identity"
	datasetsFile = "datasets.yaml"
	policyFile   = "policy.yaml"
	needsFile    = "needs.yaml"
)

// Init makes a node's folder: configuration, keys, documents, certificate and an empty store. It never replaces anything: a
// folder that holds a node already is refused.
func Init(ctx context.Context, o InitOptions) (*InitResult, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	// Whatever can be wrong with what was asked for shows before the first file is made: an init that is refused can be
	// repeated.
	if err := o.certificatePaths(); err != nil {
		return nil, err
	}
	text, err := o.yaml()
	if err != nil {
		return nil, err
	}
	var cfg Config
	if err := DecodeYAML([]byte(text), &cfg); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	cfg.defaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	now := clock.System{}.Now().Truncate(time.Second)
	var remote did.Signer
	if o.SignerSocket != "" {
		if remote, err = remoteBinding(ctx, &cfg, &o); err != nil {
			return nil, err
		}
	}
	made, err := newIdentity(ctx, &cfg, did.Profile(o.Profile), remote, now)
	if err != nil {
		return nil, err
	}
	write := map[string][]byte{
		filepath.Join(DocumentsDir, agentDocument):   made.agent,
		filepath.Join(DocumentsDir, serviceDocument): made.service,
	}
	for name, from := range map[string]string{datasetsFile: o.Datasets, policyFile: o.Policy, needsFile: o.Needs} {
		if from == "" {
			continue
		}
		if write[name], err = os.ReadFile(from); err != nil {
			return nil, err
		}
	}
	for _, d := range []string{o.Dir, filepath.Join(o.Dir, DocumentsDir), filepath.Join(o.Dir, KeysDir), filepath.Join(o.Dir, "tls")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	if err := o.certificate(); err != nil {
		return nil, err
	}
	files, err := o.saveKeys(made.keys)
	if err != nil {
		return nil, err
	}
	for name, data := range write {
		path := filepath.Join(o.Dir, name)
		if err := writeNew(path, data, 0o644); err != nil {
			return nil, err
		}
		files = append(files, path)
	}
	id := made.id
	db, err := sqlite.Create(ctx, filepath.Join(o.Dir, StoreFile), sqlite.Options{Node: id.String(), Process: "treaty"})
	if err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	// The configuration comes last: a folder without it holds no node, so that an interrupted init can be cleared away.
	if err := writeNew(filepath.Join(o.Dir, ConfigFile), []byte(text), 0o600); err != nil {
		return nil, err
	}
	files = append(files, filepath.Join(o.Dir, StoreFile), filepath.Join(o.Dir, ConfigFile))
	service1, _ := cfg.ServiceDID()
	return &InitResult{DID: id.String(), Service: service1.String(), Dir: o.Dir, Document: id.DocumentURL(), Files: files}, nil
}

func (o *InitOptions) check() error {
	switch did.Profile(o.Profile) {
	case "":
		o.Profile = string(did.ProfileE1)
	case did.ProfileE1, did.ProfileK1:
	default:
		return fmt.Errorf("%w: --profile %q is neither e1 nor k1", ErrConfig, o.Profile)
	}
	if _, err := os.Lstat(filepath.Join(o.Dir, ConfigFile)); err == nil {
		return fmt.Errorf("%w: %s holds a node already; nothing was changed", ErrConfig, o.Dir)
	}
	if o.HumanKeyOut == "" || o.RecoveryKeyOut == "" {
		return fmt.Errorf("%w: say where the human and the recovery key go (--human-key-out, --recovery-key-out): out of the node's reach", ErrConfig)
	}
	if o.Passphrase == "" {
		return fmt.Errorf("%w: the human and the recovery key need a passphrase (--passphrase-file)", ErrConfig)
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return err
	}
	if err := o.checkKeys(); err != nil {
		return err
	}
	for _, p := range []string{o.HumanKeyOut, o.RecoveryKeyOut, o.IdentityOut} {
		if p == "" {
			continue
		}
		abs, err := filepath.Abs(p)
		if err != nil {
			return err
		}
		if strings.HasPrefix(abs, dir+string(filepath.Separator)) {
			return fmt.Errorf("%w: %s lies in the node's folder; the node must not hold that key", ErrConfig, p)
		}
		if _, err := os.Lstat(abs); err == nil {
			return fmt.Errorf("%w: %s exists; nothing was changed", ErrConfig, p)
		}
		if info, err := os.Stat(filepath.Dir(abs)); err == nil && info.Mode().Perm()&0o077 != 0 {
			return fmt.Errorf("%w: %s is open to others; run chmod 700 %[2]s", ErrConfig, filepath.Dir(p))
		}
	}
	if o.DevCA == "" && (o.Cert == "" || o.Key == "") {
		return fmt.Errorf("%w: give the listener's certificate (--tls-cert, --tls-key), or --dev-ca for a try on one machine", ErrConfig)
	}
	return nil
}

// certificatePaths says where the development CA's certificates stand, and where the node finds itself with it. It comes before
// the configuration is written, which has both.
func (o *InitOptions) certificatePaths() error {
	if o.DevCA == "" {
		return nil
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return err
	}
	o.Cert, o.Key = filepath.Join(dir, "tls", "cert.pem"), filepath.Join(dir, "tls", "key.pem")
	// A development CA means that there is no DNS either: the node has to find itself, for `treaty doctor`.
	host, port, err := net.SplitHostPort(o.Listen)
	if own := o.Domain + ":443"; err == nil && port != "0" && o.Hosts[own] == "" {
		if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
			host = "127.0.0.1"
		}
		hosts := maps.Clone(o.Hosts)
		if hosts == nil {
			hosts = map[string]string{}
		}
		hosts[own] = net.JoinHostPort(host, port)
		o.Hosts = hosts
	}
	o.CA, err = filepath.Abs(filepath.Join(o.DevCA, devca.CertFile))
	return err
}

// certificate issues the listener's certificate from the development CA, which it makes if there is none.
func (o *InitOptions) certificate() error {
	if o.DevCA == "" {
		return nil
	}
	ca, err := devca.LoadOrNew(o.DevCA)
	if err != nil {
		return err
	}
	return ca.IssueFiles(o.Cert, o.Key, o.Domain)
}

// saveKeys seals the node's own keys to its identity file, and the two others with the passphrase, elsewhere.
func (o *InitOptions) saveKeys(keys []keystore.Key) (files []string, err error) {
	own, files, err := o.recipient()
	if err != nil {
		return nil, err
	}
	factor := o.WorkFactor
	if factor == 0 {
		factor = keystore.DefaultWorkFactor
	}
	people, err := keystore.PassphraseRecipient(o.Passphrase, factor)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		var path string
		switch k.Role {
		case keystore.Human:
			path, err = o.HumanKeyOut, keystore.SaveAs(o.HumanKeyOut, k, people)
		case keystore.Recovery:
			path, err = o.RecoveryKeyOut, keystore.SaveAs(o.RecoveryKeyOut, k, people)
		case keystore.Signing, keystore.Kex, keystore.Service, keystore.Receipt:
			path, err = keystore.Save(filepath.Join(o.Dir, KeysDir), k, own)
		}
		if err != nil {
			return nil, err
		}
		files = append(files, path)
	}
	return files, nil
}

// recipient is what the node's own keys are sealed to, and the file that this made.
func (o *InitOptions) recipient() (age.Recipient, []string, error) {
	switch {
	case o.UnlockPassphrase != "" || o.UnlockPassphraseFile != "":
		p := o.UnlockPassphrase
		if o.UnlockPassphraseFile != "" {
			var err error
			if p, err = keystore.ReadPassphrase(o.UnlockPassphraseFile); err != nil {
				return nil, nil, err
			}
		}
		r, err := keystore.PassphraseRecipient(p, o.WorkFactor)
		return r, nil, err
	case o.UnlockCredential != "":
		i, err := keystore.NewIdentityFile(o.IdentityOut)
		if err != nil {
			return nil, nil, err
		}
		return i.Recipient(), []string{o.IdentityOut}, nil
	}
	path := filepath.Join(o.Dir, identityFile)
	i, err := keystore.NewIdentityFile(path)
	if err != nil {
		return nil, nil, err
	}
	return i.Recipient(), []string{path}, nil
}

// keysYAML is the configuration of keys.
func (o *InitOptions) keysYAML() (string, error) {
	var parts []string
	switch {
	case o.UnlockPassphraseFile != "":
		abs, err := filepath.Abs(o.UnlockPassphraseFile)
		if err != nil {
			return "", err
		}
		parts = append(parts, fmt.Sprintf("passphrase_file: %q", abs))
	case o.UnlockPassphrase != "":
		parts = append(parts, "passphrase: "+keystore.PassphrasePrompt)
	case o.UnlockCredential != "":
		parts = append(parts, fmt.Sprintf("credential: %q", o.UnlockCredential))
	default:
		parts = append(parts, fmt.Sprintf("identity: %q", identityFile))
	}
	if o.SignerSocket != "" {
		abs, err := filepath.Abs(o.SignerSocket)
		if err != nil {
			return "", err
		}
		parts = append(parts, fmt.Sprintf("signer: {socket: %q}", abs))
	}
	return "keys: {" + strings.Join(parts, ", ") + "}", nil
}

// checkKeys says whether the options about the node's own keys fit together.
func (o *InitOptions) checkKeys() error {
	ways := 0
	for _, s := range []string{o.UnlockCredential, o.UnlockPassphrase, o.UnlockPassphraseFile} {
		if s != "" {
			ways++
		}
	}
	switch {
	case ways > 1:
		return fmt.Errorf("%w: the node's keys are unsealed in one way: a credential, a passphrase that is typed, or a passphrase file", ErrConfig)
	case (o.UnlockCredential == "") != (o.IdentityOut == ""):
		return fmt.Errorf("%w: --unlock-credential and --identity-out go together: the identity is written there once, for systemd-creds to encrypt", ErrConfig)
	case (o.SignerSocket == "") != (o.SignerKID == ""):
		return fmt.Errorf("%w: --signer-socket and --signer-kid go together", ErrConfig)
	case o.SignerSocket != "" && o.Profile == string(did.ProfileK1):
		return fmt.Errorf("%w: keys in tokens are Ed25519: --signer-socket makes e1 identities", ErrConfig)
	}
	return nil
}

// writeNew writes a file that must not exist, and has it on disk when it returns.
func writeNew(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// yaml is the configuration as it is written: short, with what an operator will want to change.
func (o *InitOptions) yaml() (string, error) {
	keys, err := o.keysYAML()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Treaty node configuration. Unknown keys are errors; docs/configuration.md has every key.")
	line("domain: %s", o.Domain)
	if o.Name != "" {
		line("name: %q", o.Name)
	}
	line("agent: [agents, steward]")
	line("listen: %q", o.Listen)
	line("tls: {cert: %q, key: %q}", o.Cert, o.Key)
	if o.CA != "" {
		line("ca: %q", o.CA)
	}
	if len(o.Hosts) > 0 {
		line("# Where a name is dialled, for machines without DNS. Changes no name, URL or certificate check.")
		line("hosts:")
		for _, k := range sorted(o.Hosts) {
			line("  %q: %q", k, o.Hosts[k])
		}
	}
	line("# How the node unseals its keys: identity, credential, passphrase or passphrase_file; docs/keys.md says which is for whom.")
	line("%s", keys)
	if o.ProofDialect != "" {
		line("proof_dialect: %s", o.ProofDialect)
	}
	line("# Who this node deals with. closed: only the allow list; open: anybody who verifies. Deny beats allow.")
	line("trust:")
	if o.Open {
		line("  first_contact: open")
	} else {
		line("  first_contact: closed")
	}
	if len(o.Allow) > 0 {
		line("  allow:")
		for _, p := range o.Allow {
			line("    - %q", p)
		}
	}
	if o.Datasets != "" {
		line("datasets: %s", datasetsFile)
		line("policy: %s", policyFile)
		line("data_plane: {did: %q, url: %q}", o.DataPlane.DID, o.DataPlane.URL)
	}
	if o.Needs != "" {
		line("needs: %s", needsFile)
	}
	if len(o.Transports) > 0 {
		line("metaproto: {transports: [%s]}", strings.Join(o.Transports, ", "))
	}
	return b.String(), nil
}
