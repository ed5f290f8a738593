// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node/contract"
)

func (c *cli) contractsReceiptsCmd() *cobra.Command {
	return &cobra.Command{
		Use: "receipts CONTRACT_ID", Short: "The data plane's signed receipts of calls under a contract, answered and refused",
		Long: "The data plane's signed receipts of calls under a contract, answered and refused, in the order they came: what was asked (its digest),\n" +
			"and what was given. With --json, as they were signed: each by itself is a file for treaty verify. The first 10000.",
		Example: "  treaty contracts receipts ctr_x1Yz --json", Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			var all []json.RawMessage
			if err := c.admin().Get(cmd.Context(), "/contracts/"+url.PathEscape(args[0])+"/receipts", &all); err != nil {
				return err
			}
			return c.print(all, func(w io.Writer) {
				tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
				fmt.Fprintln(tw, "RECEIPT\tTIME\tQUERY\tGIVEN\tRESULT")
				for _, raw := range all {
					r, err := contract.ParseReceipt(raw)
					switch {
					case err != nil:
						fmt.Fprintf(tw, "%s\n", line(err.Error()))
					case r.Refused():
						fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t\n", r.ID, r.Time, r.QueryDigest, r.Code)
					default:
						fmt.Fprintf(tw, "%s\t%s\t%s\t%d rows\t%s\n", r.ID, r.Time, r.QueryDigest, r.Rows, r.ResultDigest)
					}
				}
				_ = tw.Flush() // to the terminal
			})
		}),
	}
}
