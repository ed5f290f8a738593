// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/cmd/internal/terminal"
	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/harden"
)

func (c *cli) serveCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "serve",
		Short:   "Run the node",
		Long:    "Run the node in the foreground until it is interrupted. It says \"ready\" when its listeners answer.",
		Example: "  treaty serve --dir /var/lib/treaty",
		Args:    cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			// Before there is a key in memory.
			if err := harden.Process(); err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(c.stderr, nil))
			n, err := node.Open(cmd.Context(), c.dir, node.Options{Log: log, Process: "treaty", Prompt: terminal.Prompt(os.Stdin, c.stderr)})
			if err != nil {
				return err
			}
			return n.Run(cmd.Context(), func() {
				_ = c.print(n.Status(), func(w io.Writer) { fmt.Fprintf(w, "ready: %s\n", n.Status().DID) })
			})
		}),
	}
}
