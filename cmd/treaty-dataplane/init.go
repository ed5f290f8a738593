// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node/dataplane/server"
)

func (c *cli) initCmd() *cobra.Command {
	var cfg server.File
	var vendorDID, vendorDoc, sets string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a data plane's folder: its receipt key and " + server.ConfigFile,
		Long: "init makes an age identity and a receipt key sealed to it, and writes " + server.ConfigFile + " from the flags. It never replaces\n" +
			"anything. The data plane's DID is did:wba:<host of --url>; name it and the url in the vendor node's configuration.",
		Example: "  treaty-dataplane init --dir vendor-data --url https://data.vendorcorp.test/mcp --listen 127.0.0.1:18444 \\\n" +
			"    --cert data.pem --key data-key.pem --ca ca.pem --store ../vendor/treaty.db --datasets ../vendor/datasets.yaml \\\n" +
			"    --vendor did:wba:vendorcorp.test:agents:steward:e1_… --vendor-document ../vendor/did/steward.json",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg.Datasets = server.Datasets{File: sets}
			cfg.Vendors = []server.Vendor{{DID: vendorDID, Document: vendorDoc}}
			id, err := server.Init(c.dir, cfg, time.Now())
			if err != nil {
				return failure(err)
			}
			return failure(c.print(map[string]string{"did": id.String(), "url": cfg.URL, "dir": c.dir}, func(w io.Writer) {
				fmt.Fprintf(w, "data plane %s in %s\nname it in the vendor node's treaty.yaml: data_plane: {did: %q, url: %q}\n", id, c.dir, id, cfg.URL)
			}))
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.URL, "url", "", "where buyers reach it: https://<host>"+server.Path)
	f.StringVar(&cfg.Listen, "listen", "", "address to listen on")
	f.StringVar(&cfg.TLS.Cert, "cert", "", "certificate chain, PEM")
	f.StringVar(&cfg.TLS.Key, "key", "", "private key of the certificate, PEM")
	f.StringVar(&cfg.CA, "ca", "", "authorities trusted beside the system's, PEM")
	f.StringToStringVar(&cfg.Hosts, "host", nil, "host:port=address to dial instead; repeatable")
	f.StringVar(&cfg.Store, "store", "", "the vendor node's store (treaty.db)")
	f.StringVar(&sets, "datasets", "", "file that lists the datasets")
	f.StringVar(&vendorDID, "vendor", "", "DID whose contracts are served")
	f.StringVar(&vendorDoc, "vendor-document", "", "copy of its DID document")
	f.StringSliceVar(&cfg.Ceiling.DenyClasses, "deny-class", []string{"pii"}, "classes of columns that never leave")
	f.IntVar(&cfg.Ceiling.MinGroupSize, "min-group-size", 5, "smallest group that is released")
	for _, name := range []string{"url", "listen", "cert", "key", "store", "datasets", "vendor", "vendor-document"} {
		_ = cmd.MarkFlagRequired(name) // the flag exists
	}
	return cmd
}
