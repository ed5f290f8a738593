// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node/httpapi"
)

func (c *cli) contractsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "contracts",
		Short:   "List, show and export contracts",
		Example: "  treaty contracts list\n  treaty contracts show CONTRACT_ID\n  treaty contracts export CONTRACT_ID --out evidence.json",
	}
	list := &cobra.Command{
		Use: "list", Short: "List contracts, newest first", Example: "  treaty contracts list --json", Args: cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			var all []httpapi.Contract
			if err := c.admin().Get(cmd.Context(), "/contracts", &all); err != nil {
				return err
			}
			return c.print(all, func(w io.Writer) {
				tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
				fmt.Fprintln(tw, "CONTRACT\tROLE\tSTATE\tPEER\tCREATED")
				for _, k := range all {
					fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", k.ID, k.Role, k.State, k.Peer, k.Created.Format("2006-01-02 15:04:05Z"))
				}
				tw.Flush()
			})
		}),
	}
	show := &cobra.Command{
		Use: "show CONTRACT_ID", Short: "Show one contract as it was signed", Example: "  treaty contracts show ctr_x1Yz", Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			var k httpapi.Contract
			if err := c.admin().Get(cmd.Context(), "/contracts/"+url.PathEscape(args[0]), &k); err != nil {
				return err
			}
			return c.print(k, func(w io.Writer) {
				fmt.Fprintf(w, "contract %s (%s) with %s: %s\n  digest  %s\n", k.ID, k.Role, k.Peer, k.State, k.Digest)
				var pretty bytes.Buffer
				if json.Indent(&pretty, k.Contract, "  ", "  ") == nil {
					fmt.Fprintf(w, "  %s\n", pretty.String())
				}
			})
		}),
	}
	var out string
	export := &cobra.Command{
		Use: "export CONTRACT_ID", Short: "Write the evidence bundle: documents, messages, contract, proofs and events, checkable offline",
		Example: "  treaty contracts export ctr_x1Yz --out evidence.json && treaty verify evidence.json", Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			var bundle []byte
			if err := c.admin().Get(cmd.Context(), "/contracts/"+url.PathEscape(args[0])+"/evidence", &bundle); err != nil {
				return err
			}
			if out == "" {
				_, err := fmt.Fprintln(c.stdout, string(bundle))
				return err
			}
			if err := os.WriteFile(out, append(bundle, '\n'), 0o600); err != nil {
				return err
			}
			return c.print(map[string]any{"path": out, "bytes": len(bundle)}, func(w io.Writer) { fmt.Fprintf(w, "wrote %s (%d bytes)\n", out, len(bundle)) })
		}),
	}
	export.Flags().StringVar(&out, "out", "", "file to write (default: standard output)")
	cmd.AddCommand(list, show, export)
	return cmd
}
