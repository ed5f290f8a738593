// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node/dataplane/server"
)

func (c *cli) initCmd() *cobra.Command {
	var cfg server.File
	var o server.InitOptions
	var sets string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a data plane's folder: its receipt key and " + server.ConfigFile,
		Long: "init makes an age identity and a receipt key sealed to it, copies the vendor's DID document, and writes " + server.ConfigFile + " from\n" +
			"the flags. It never replaces anything. The data plane's DID is did:wba:<host of --url>; name it and the url in the vendor\n" +
			"node's configuration.",
		Example: "  treaty-dataplane init --dir vendor-data --url https://data.vendorcorp.test/mcp --listen 127.0.0.1:18444 --dev-ca ca \\\n" +
			"    --store vendor/treaty.db --datasets datasets.yaml --vendor-document vendor/did/agent.json",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			// Flags name files as the shell does; the configuration names them from its own folder, so that the folders can be
			// moved together.
			for _, path := range []*string{&cfg.TLS.Cert, &cfg.TLS.Key, &cfg.CA, &cfg.Store, &sets} {
				if err := fromFolder(c.dir, path); err != nil {
					return failure(err)
				}
			}
			cfg.Datasets = server.Datasets{File: sets}
			id, err := server.Init(c.dir, cfg, o, time.Now())
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
	f.StringVar(&o.VendorDocument, "vendor-document", "", "DID document of the vendor whose contracts are served (treaty init writes it: did/agent.json)")
	f.StringVar(&o.DevCA, "dev-ca", "", "folder of a development CA that issues the certificate: for a try on one machine")
	f.StringSliceVar(&cfg.Ceiling.DenyClasses, "deny-class", []string{"pii"}, "classes of columns that never leave")
	f.IntVar(&cfg.Ceiling.MinGroupSize, "min-group-size", 5, "smallest group that is released")
	for _, name := range []string{"url", "listen", "store", "datasets", "vendor-document"} {
		_ = cmd.MarkFlagRequired(name) // the flag exists
	}
	cmd.MarkFlagsRequiredTogether("cert", "key")
	cmd.MarkFlagsOneRequired("cert", "dev-ca")
	cmd.MarkFlagsMutuallyExclusive("cert", "dev-ca")
	return cmd
}

// fromFolder makes a path that is relative to the working directory relative to dir; an absolute one stays.
func fromFolder(dir string, path *string) error {
	if *path == "" || filepath.IsAbs(*path) && !strings.HasPrefix(*path, dir+string(filepath.Separator)) {
		return nil
	}
	folder, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	abs, err := filepath.Abs(*path)
	if err != nil {
		return err
	}
	*path, err = filepath.Rel(folder, abs)
	return err
}
