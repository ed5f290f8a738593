// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node/ledger"
)

func (c *cli) eventsCmd() *cobra.Command {
	var follow bool
	var after uint64
	cmd := &cobra.Command{
		Use:     "events",
		Short:   "Print the company's event log",
		Long:    "Print the company's event log: one line an event, in order. With --json each line is the event as it is\nchained, so that the log can be checked by whoever keeps a copy.",
		Example: "  treaty events\n  treaty events --follow --json --after 120",
		Args:    cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			enc := json.NewEncoder(c.stdout)
			enc.SetEscapeHTML(false)
			return c.admin().Events(cmd.Context(), after, follow, func(e ledger.Event) error {
				if c.json {
					return enc.Encode(e)
				}
				_, err := fmt.Fprintf(c.stdout, "%5d  %s  %-16s  %s\n", e.Seq, e.Time, e.Process, ledger.Describe(e))
				return err
			})
		}),
	}
	cmd.Flags().BoolVar(&follow, "follow", false, "go on as events are appended")
	cmd.Flags().Uint64Var(&after, "after", 0, "only events after this sequence number")
	return cmd
}
