// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node/httpapi"
)

func (c *cli) resolveCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "resolve DID|DOMAIN",
		Short:   "Fetch and verify a DID document, or every agent of a domain",
		Example: "  treaty resolve vendorcorp.test\n  treaty resolve did:wba:vendorcorp.test --json",
		Args:    cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			var results []httpapi.ResolveResult
			if err := c.admin().Post(cmd.Context(), "/resolve", httpapi.ResolveRequest{Target: args[0]}, &results); err != nil {
				return err
			}
			return c.print(results, func(w io.Writer) {
				for _, r := range results {
					fmt.Fprintf(w, "%s\n  document   %s\n  profile    %s, proof dialect %s, by %s at %s\n  hash       %s, first seen %s\n",
						r.DID, r.URL, r.Profile, r.Dialect, r.ProofKey, r.ProofCreated, r.Hash, r.FirstSeen)
					for _, k := range r.Keys {
						fmt.Fprintf(w, "  key        %s %s (%s)\n", k.ID, k.Type, strings.Join(k.Relationships, ", "))
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
}
