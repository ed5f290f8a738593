// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/cmd/internal/terminal"
	"github.com/treaty-node/treaty/cmd/treaty-dataplane/internal/duck"
	"github.com/treaty-node/treaty/node/dataplane/server"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/harden"
)

func (c *cli) serveCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "serve",
		Short:   "Load the datasets and answer calls until told to stop",
		Example: "  treaty-dataplane serve --dir vendor-data",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Before there is a key in memory.
			if err := harden.Process(); err != nil {
				return failure(err)
			}
			return failure(server.Serve(cmd.Context(), c.dir, server.Options{
				Build: build(), Log: slog.New(slog.NewTextHandler(c.stderr, nil)), Open: open, Prompt: terminal.Prompt(os.Stdin, c.stderr),
			}))
		},
	}
}

func open(ctx context.Context, l server.Limits, log *slog.Logger) (server.Engine, error) {
	return duck.Open(ctx, duck.Limits{Limits: source.Limits{Time: l.QueryTime, Concurrent: l.Concurrent}, MemoryMB: l.MemoryMB, Threads: l.Threads}, log)
}
