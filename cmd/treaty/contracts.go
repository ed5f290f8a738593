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
		Short:   "List, show, export and end contracts; what became of data",
		Example: "  treaty contracts list\n  treaty contracts show CONTRACT_ID\n  treaty contracts export CONTRACT_ID --out evidence.json\n  treaty contracts revoke CONTRACT_ID --reason 'the report is finished'",
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
					fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", k.ID, k.Role, contractState(&k), k.Peer, k.Created.Format("2006-01-02 15:04:05Z"))
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
			return c.print(k, func(w io.Writer) { printContract(w, &k) })
		}),
	}
	var out string
	var asODCS bool
	export := &cobra.Command{
		Use: "export CONTRACT_ID", Short: "Write the evidence bundle: documents, messages, contract, proofs, statements and events, checkable offline",
		Long: "Write the evidence bundle: documents, messages, contract, proofs, revocation and deletion statements with their acknowledgements, and\n" +
			"events, checkable offline. With --odcs, a description for catalogues (Open Data Contract Standard) instead.",
		Example: "  treaty contracts export ctr_x1Yz --out evidence.json && treaty verify evidence.json", Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			if asODCS {
				var res struct {
					Document string `json:"document"`
				}
				if err := c.admin().Get(cmd.Context(), "/contracts/"+url.PathEscape(args[0])+"/odcs", &res); err != nil {
					return err
				}
				return c.document(out, []byte(res.Document))
			}
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
	export.Flags().BoolVar(&asODCS, "odcs", false, "write a data contract of the Open Data Contract Standard instead")
	cmd.AddCommand(list, show, export, c.contractsRevokeCmd(), c.contractsAmendCmd(), c.contractsRenewCmd(), c.contractsReceiptsCmd(), c.contractsDeletionsCmd(), c.contractsDeleteDataCmd())
	return cmd
}

// contractState is a contract's state for people.
func contractState(k *httpapi.Contract) string {
	if k.Expired && k.State == "in_force" {
		return "expired"
	}
	return k.State
}

func printContract(w io.Writer, k *httpapi.Contract) {
	fmt.Fprintf(w, "contract %s (%s) with %s: %s\n  digest  %s\n  until   %s\n", k.ID, k.Role, k.Peer, contractState(k), k.Digest, k.ValidUntil)
	for _, now := range [][2]string{{"buyer", k.BuyerNow}, {"vendor", k.VendorNow}} {
		if now[1] != "" {
			fmt.Fprintf(w, "  the %s is now %s\n", now[0], now[1])
		}
	}
	if !k.Amends.IsZero() {
		fmt.Fprintf(w, "  instead of %s\n", k.Amends.ID)
	}
	if k.ReplacedBy != "" {
		fmt.Fprintf(w, "  replaced by %s\n", k.ReplacedBy)
	}
	printEnd(w, k)
	for _, s := range k.Statements {
		fmt.Fprintf(w, "  %s by %s, stored %s, %s\n", s.Type, s.By, s.Stored.Format("2006-01-02 15:04:05Z"), s.Digest)
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, k.Contract, "  ", "  ") == nil {
		fmt.Fprintf(w, "  %s\n", pretty.String())
	}
}
