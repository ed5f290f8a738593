// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/url"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node/httpapi"
)

func (c *cli) contractsDeletionsCmd() *cobra.Command {
	return &cobra.Command{
		Use: "deletions CONTRACT_ID", Short: "What was given under a contract, until when it may be kept, and the statements that it was deleted",
		Long: "What was given under a contract: each result, until when the buyer may keep it, and the signed statement that it was deleted.\n" +
			"docs/contracts.md says what a deletion statement proves and what not.",
		Example: "  treaty contracts deletions ctr_x1Yz", Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			var d httpapi.Deletions
			if err := c.admin().Get(cmd.Context(), "/contracts/"+url.PathEscape(args[0])+"/deletions", &d); err != nil {
				return err
			}
			return c.print(d, func(w io.Writer) {
				tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
				fmt.Fprintln(tw, "RESULT\tRECEIPTS\tLAST GIVEN\tDELETE BY\tSTATE")
				for _, r := range d.Results {
					fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%s\n", r.ResultDigest, r.Receipts, r.Last.Format("2006-01-02 15:04:05Z"), r.Due.Format("2006-01-02 15:04:05Z"), resultState(d.Role, r))
				}
				tw.Flush()
				for _, s := range d.Statements {
					fmt.Fprintf(w, "%s by %s, stored %s, %s\n", s.Type, s.By, s.Stored.Format("2006-01-02 15:04:05Z"), s.Digest)
				}
			})
		}),
	}
}

func resultState(role string, r httpapi.Result) string {
	switch {
	case !r.Statement.IsZero():
		return "deleted, stated in " + r.Statement.String()[:20] + "…"
	case r.Overdue:
		return "OVERDUE: no statement has come"
	case role == "buyer" && r.Held:
		return "held here"
	case role == "buyer":
		return "not held"
	}
	return "with the buyer"
}

func (c *cli) contractsDeleteDataCmd() *cobra.Command {
	return &cobra.Command{
		Use: "delete-data CONTRACT_ID", Short: "Delete what this buyer holds under a contract before its time, and state it to the vendor",
		Example: "  treaty contracts delete-data ctr_x1Yz", Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			var res struct {
				Deleted int `json:"deleted"`
			}
			if err := c.admin().Post(cmd.Context(), "/contracts/"+url.PathEscape(args[0])+"/delete-data", struct{}{}, &res); err != nil {
				return err
			}
			return c.print(res, func(w io.Writer) {
				fmt.Fprintf(w, "deleted %d results; the vendor is being told (treaty contracts deletions %s)\n", res.Deleted, args[0])
			})
		}),
	}
}
