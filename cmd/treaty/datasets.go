// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func (c *cli) datasetsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "datasets", Short: "Show what this node publishes about its datasets; read and write data contracts (ODCS)",
		Example: "  treaty datasets show\n  treaty datasets import orders.odcs.yaml --out datasets.yaml",
	}
	cmd.AddCommand(c.datasetsImportCmd(), c.datasetsExportCmd())
	cmd.AddCommand(&cobra.Command{
		Use: "show", Short: "Print exactly the schemas that peers see: names and types, no values",
		Example: "  treaty datasets show --json", Args: cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			var all []json.RawMessage
			if err := c.admin().Get(cmd.Context(), "/datasets", &all); err != nil {
				return err
			}
			return c.print(all, func(w io.Writer) {
				if len(all) == 0 {
					fmt.Fprintln(w, "this node publishes no dataset (datasets and policy in treaty.yaml put one on offer)")
				}
				for _, s := range all {
					var pretty bytes.Buffer
					_ = json.Indent(&pretty, s, "", "  ")
					fmt.Fprintln(w, pretty.String())
				}
			})
		}),
	})
	return cmd
}
