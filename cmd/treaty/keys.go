// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node/httpapi"
)

func (c *cli) keysCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "keys", Short: "Show the node's keys, by their public parts", Example: "  treaty keys list"}
	cmd.AddCommand(&cobra.Command{
		Use: "list", Short: "List keys: role, state, where the private half is, thumbprint; never a secret",
		Long: "List what the node's documents publish and what the node holds.\n\n" +
			"State: active; retiring (published until its end of life); expired; unpublished (held, in no document).\n" +
			"Location: file (sealed, in the node's folder); token (behind treaty-signer); offline (keys of people and recovery keys,\n" +
			"which the node must not reach); missing (published, but not here).",
		Example: "  treaty keys list\n  treaty keys list --json", Args: cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			var all []httpapi.Key
			if err := c.admin().Get(cmd.Context(), "/keys", &all); err != nil {
				return err
			}
			status, err := c.status(cmd.Context())
			if err != nil {
				return err
			}
			return c.print(all, func(w io.Writer) {
				tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
				fmt.Fprintln(tw, "ROLE\tSTATE\tLOCATION\tCREATED\tTHUMBPRINT\tKID")
				for _, k := range all {
					where, created := string(k.Location), k.Created
					if k.Where != "" {
						where += " " + k.Where
					}
					if created == "" {
						created = "-"
					}
					state := string(k.State)
					if k.Expires != "" {
						state += " " + k.Expires
					}
					fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", k.Role, state, where, created, k.Thumbprint, k.KID)
				}
				_ = tw.Flush()
				for _, f := range status.Former {
					fmt.Fprintf(w, "formerly %s, moved to %s", f.DID, f.Successor)
					if f.Until != "" {
						fmt.Fprintf(w, "; what is sealed to its keys is opened until %s", f.Until)
					}
					if f.CompromisedSince != "" {
						fmt.Fprintf(w, "; somebody else may have had its key since %s", f.CompromisedSince)
					}
					fmt.Fprintln(w)
				}
			})
		}),
	})
	return cmd
}
