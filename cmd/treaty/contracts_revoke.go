// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node/httpapi"
)

func (c *cli) contractsRevokeCmd() *cobra.Command {
	var req httpapi.RevokeRequest
	cmd := &cobra.Command{
		Use: "revoke CONTRACT_ID", Short: "End a contract, by either party",
		Long: "End a contract. The signed revocation is stored, and the vendor's data plane refuses from then on; the other party is told as soon\n" +
			"as it can be reached, and its signed acknowledgement is kept. `treaty contracts show` says what the data plane answered last, and\n" +
			"how soon after the revocation it refused. Exit code 3: there is nothing to end.",
		Example: "  treaty contracts revoke ctr_x1Yz --reason 'the report is finished'", Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			var k httpapi.Contract
			if err := c.admin().Post(cmd.Context(), "/contracts/"+url.PathEscape(args[0])+"/revoke", req, &k); err != nil {
				return err
			}
			return c.print(k, func(w io.Writer) {
				fmt.Fprintf(w, "contract %s is revoked\n", k.ID)
				printEnd(w, &k)
				fmt.Fprintf(w, "  %s is being told; treaty contracts show %s has its acknowledgement once it is here\n", k.Peer, k.ID)
			})
		}),
	}
	cmd.Flags().StringVar(&req.Reason, "reason", "", "why, for both parties' records")
	return cmd
}

// printEnd says how a contract ended and what the data plane did.
func printEnd(w io.Writer, k *httpapi.Contract) {
	e := k.End
	if e == nil {
		return
	}
	const clock = "2006-01-02 15:04:05.000Z"
	fmt.Fprintf(w, "  ended   by %s: %s\n", e.By, line(e.Reason))
	fmt.Fprintf(w, "  refused from event %d on (%s)\n", e.Event, e.Time.Format(clock))
	if k.Role != "vendor" {
		fmt.Fprintln(w, "  at the vendor from when it has the revocation; its acknowledgement names the position in its log")
		return
	}
	if e.LastAnswer.Event > 0 {
		fmt.Fprintf(w, "  last call answered: event %d (%s)\n", e.LastAnswer.Event, e.LastAnswer.Time.Format(clock))
	} else {
		fmt.Fprintln(w, "  no call was ever answered")
	}
	if e.FirstRefusal.Event > 0 {
		fmt.Fprintf(w, "  first call refused: event %d, %s after the revocation\n", e.FirstRefusal.Event, e.RefusedAfter)
	} else {
		fmt.Fprintln(w, "  nobody has called since")
	}
}
