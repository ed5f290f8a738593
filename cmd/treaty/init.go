// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/cmd/internal/terminal"
	"github.com/treaty-node/treaty/node"
)

func (c *cli) initCmd() *cobra.Command {
	o := node.InitOptions{}
	var passphraseFile string
	var askPassphrase bool
	cmd := &cobra.Command{
		Use:   "init --domain DOMAIN",
		Short: "Make a node's folder: keys, DID documents, configuration, store",
		Long: "Make a node's folder. The node's own keys are sealed to an identity file in the folder, or as --unlock-… says. With\n" +
			"--signer-socket the binding key is one in a token, and the identity is derived from it. The human and the recovery\n" +
			"key are sealed with a passphrase and written where the node's user should not be able to read them: keep them offline.\n" +
			"Nothing is ever overwritten.",
		Example: "  treaty init --dir buyer --domain buyercorp.test --listen 127.0.0.1:18442 --dev-ca ca \\\n" +
			"    --human-key-out offline/buyer-human.age --recovery-key-out offline/buyer-recovery.age --passphrase-file pass.txt \\\n" +
			"    --host vendorcorp.test:443=127.0.0.1:18443 --allow vendorcorp.test",
		Args: cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			o.Dir = c.dir
			if passphraseFile != "" {
				data, err := os.ReadFile(passphraseFile)
				if err != nil {
					return usage("--passphrase-file: %v", err)
				}
				o.Passphrase = string(bytes.TrimRight(data, "\r\n"))
			}
			if askPassphrase {
				prompt := terminal.Prompt(os.Stdin, c.stderr)
				if prompt == nil {
					return usage("--unlock-passphrase asks on a terminal, and there is none; --unlock-passphrase-file FILE reads it")
				}
				var err error
				if o.UnlockPassphrase, err = terminal.Twice(prompt, "New passphrase of the node's keys: "); err != nil {
					return usage("--unlock-passphrase: %v", err)
				}
			}
			res, err := node.Init(cmd.Context(), o)
			if err != nil {
				return usage("init: %v", err)
			}
			return c.print(res, func(w io.Writer) {
				fmt.Fprintf(w, "made %s\n  DID       %s\n  service   %s\n  document  %s\n", res.Dir, res.DID, res.Service, res.Document)
				for _, f := range res.Files {
					fmt.Fprintf(w, "  wrote     %s\n", f)
				}
				fmt.Fprintf(w, "next: take the human and the recovery key offline, then `treaty serve --dir %s`\n", res.Dir)
			})
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.Domain, "domain", "", "the company's domain, lower case, no port")
	f.StringVar(&o.Name, "name", "", "name in the agent card (default: the domain)")
	f.StringVar(&o.Profile, "profile", "e1", "profile of the contracting identity: e1 (Ed25519) or k1 (secp256k1)")
	f.StringVar(&o.ProofDialect, "proof-dialect", "", "how documents are proved: spec (default), sdk or w3c")
	f.StringVar(&o.Listen, "listen", ":443", "address of the public listener")
	f.StringVar(&o.Cert, "tls-cert", "", "certificate chain (PEM)")
	f.StringVar(&o.Key, "tls-key", "", "certificate's key (PEM)")
	f.StringVar(&o.DevCA, "dev-ca", "", "folder of a development CA, made if missing: for a try on one machine")
	f.StringVar(&o.CA, "ca", "", "PEM of certificate authorities to trust beside the system's")
	f.StringToStringVar(&o.Hosts, "host", nil, "where a name is dialled, as name:443=address:port; repeatable")
	f.BoolVar(&o.Open, "open", false, "deal with anybody who verifies (default: only the allow list)")
	f.StringSliceVar(&o.Allow, "allow", nil, "DID, domain or *.domain to deal with; repeatable")
	f.StringVar(&o.HumanKeyOut, "human-key-out", "", "file for the human authorization key, outside of --dir")
	f.StringVar(&o.RecoveryKeyOut, "recovery-key-out", "", "file for the recovery key, outside of --dir")
	f.StringVar(&passphraseFile, "passphrase-file", "", "file whose first line seals those two keys")
	f.IntVar(&o.WorkFactor, "scrypt-work-factor", 0, "work factor of the passphrase (0: a safe default)")
	f.StringVar(&o.UnlockCredential, "unlock-credential", "", "systemd credential that will unseal the node's keys; needs --identity-out")
	f.StringVar(&o.IdentityOut, "identity-out", "", "where that credential's content is written once, outside of --dir")
	f.BoolVar(&askPassphrase, "unlock-passphrase", false, "seal the node's keys with a passphrase that is typed at every start")
	f.StringVar(&o.UnlockPassphraseFile, "unlock-passphrase-file", "", "seal the node's keys with the passphrase in this file, which is read at every start")
	f.StringVar(&o.SignerSocket, "signer-socket", "", "socket of a treaty-signer whose key --signer-kid is the binding key")
	f.StringVar(&o.SignerKID, "signer-kid", "", "id of that key, as treaty-signer.yaml has it")
	f.StringVar(&o.Datasets, "datasets", "", "vendor: datasets file to copy into the folder")
	f.StringVar(&o.Policy, "policy", "", "vendor: policy file to copy into the folder")
	f.StringVar(&o.DataPlane.DID, "data-plane-did", "", "vendor: DID of the data plane")
	f.StringVar(&o.DataPlane.URL, "data-plane-url", "", "vendor: URL of the data plane")
	f.StringVar(&o.Needs, "needs", "", "buyer: needs file to copy into the folder")
	f.StringSliceVar(&o.Transports, "transports", nil, "transports, preferred first: a2a-jsonrpc, a2a-http+json")
	_ = cmd.MarkFlagRequired("domain")
	return cmd
}
