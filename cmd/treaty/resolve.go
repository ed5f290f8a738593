// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node/httpapi"
)

func (c *cli) resolveCmd() *cobra.Command {
	var history bool
	var confirm string
	cmd := &cobra.Command{
		Use:   "resolve DID|DOMAIN",
		Short: "Fetch and verify a DID document, or every agent of a domain",
		Long: "Fetch and verify a DID document, or every agent of a domain.\n\n" +
			"Where only a web server vouches for keys (bare domains, did:web), changed keys are held and the DID is refused until an\n" +
			"operator has compared them with the counterparty over another channel: --history shows every version this node has\n" +
			"accepted and the one it holds, --confirm accepts that one by its hash.",
		Example: "  treaty resolve vendorcorp.test\n  treaty resolve did:wba:vendorcorp.test --json\n" +
			"  treaty resolve --history did:wba:vendorcorp.test\n" +
			"  treaty resolve --confirm sha-256:47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU did:wba:vendorcorp.test",
		Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			switch {
			case confirm != "":
				return c.history(cmd, "/resolve/confirm", httpapi.ConfirmRequest{DID: args[0], Hash: confirm})
			case history:
				return c.history(cmd, "/resolve/history", httpapi.ResolveRequest{Target: args[0]})
			}
			var results []httpapi.ResolveResult
			if err := c.admin().Post(cmd.Context(), "/resolve", httpapi.ResolveRequest{Target: args[0]}, &results); err != nil {
				return err
			}
			return c.print(results, func(w io.Writer) {
				for _, r := range results {
					dialect := "no proof"
					if r.Dialect != "" {
						dialect = fmt.Sprintf("proof dialect %s, by %s at %s", r.Dialect, r.ProofKey, r.ProofCreated)
					}
					fmt.Fprintf(w, "%s\n  document   %s\n  profile    %s, %s\n  hash       %s, first seen %s\n", r.DID, r.URL, r.Profile, dialect, r.Hash, r.FirstSeen)
					printKeys(w, r.Keys)
					if r.KeyChanged {
						fmt.Fprintln(w, "  changed    keys were added since the last version; accepted by resolver.accept_key_changes")
					}
					if r.MayContract {
						fmt.Fprintln(w, "  contracts  allowed by trust policy")
					} else {
						fmt.Fprintf(w, "  contracts  not allowed: %s\n", r.Reason)
					}
				}
			})
		}),
	}
	cmd.Flags().BoolVar(&history, "history", false, "show the versions of DID that this node has accepted or holds; nothing is fetched")
	cmd.Flags().StringVar(&confirm, "confirm", "", "accept the held version of DID with this hash, after comparing its keys over another channel")
	cmd.MarkFlagsMutuallyExclusive("history", "confirm")
	return cmd
}

// history asks for a history, which a confirmation answers with as well.
func (c *cli) history(cmd *cobra.Command, path string, req any) error {
	var h httpapi.History
	if err := c.admin().Post(cmd.Context(), path, req, &h); err != nil {
		return err
	}
	return c.print(h, func(w io.Writer) {
		fmt.Fprintln(w, h.DID)
		if len(h.Versions) == 0 {
			fmt.Fprintln(w, "  never seen by this node")
		}
		for _, v := range h.Versions {
			state := v.State
			if v.Deactivated {
				state += ", deactivated"
			}
			fmt.Fprintf(w, "  %s  %s, first seen %s", v.Hash, state, v.FirstSeen.UTC().Format(time.RFC3339))
			if !v.ProofCreated.IsZero() {
				fmt.Fprintf(w, ", proof of %s", v.ProofCreated.UTC().Format(time.RFC3339))
			}
			fmt.Fprintln(w)
			printKeys(w, v.Keys)
		}
	})
}

func printKeys(w io.Writer, keys []httpapi.KeyInfo) {
	for _, k := range keys {
		fmt.Fprintf(w, "  key        %s %s %s (%s)\n", k.ID, k.Type, k.Thumbprint, strings.Join(k.Relationships, ", "))
	}
}
