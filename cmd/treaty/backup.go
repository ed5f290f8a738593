// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node"
)

func (c *cli) backupCmd() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "backup --out FILE",
		Short: "Write a consistent copy of the store of the running node",
		Long: "Write a consistent copy of the running node's store: conversations, contracts, receipts and the event log.\n" +
			"Keys and configuration are files of their own (keys/, treaty.yaml); copy them where you keep secrets.",
		Example: "  treaty backup --out /backup/treaty-2026-11-30.db",
		Args:    cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			abs, err := filepath.Abs(out)
			if err != nil {
				return err
			}
			var res map[string]string
			if err := c.admin().Post(cmd.Context(), "/backup", map[string]string{"path": abs}, &res); err != nil {
				return err
			}
			return c.print(res, func(w io.Writer) { fmt.Fprintf(w, "wrote %s\n", res["path"]) })
		}),
	}
	cmd.Flags().StringVar(&out, "out", "", "file to write; it must not exist")
	_ = cmd.MarkFlagRequired("out")
	return cmd
}

func (c *cli) restoreCmd() *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:   "restore --from FILE",
		Short: "Put a backup in place of a missing store, after checking its event chain",
		Long: "Put a backup in place of a missing store. The node must be stopped; an existing store is never overwritten.\n" +
			"The backup's integrity and its event chain are checked first.",
		Example: "  treaty restore --dir /var/lib/treaty --from /backup/treaty-2026-11-30.db",
		Args:    cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			n, err := node.Restore(cmd.Context(), c.dir, from)
			if err != nil {
				return err
			}
			return c.print(map[string]any{"events": n}, func(w io.Writer) {
				fmt.Fprintf(w, "restored %s: the chain of %d events holds\n", filepath.Join(c.dir, node.StoreFile), n)
			})
		}),
	}
	cmd.Flags().StringVar(&from, "from", "", "backup file")
	_ = cmd.MarkFlagRequired("from")
	return cmd
}
