// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node"
)

func (c *cli) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the build", Example: "  treaty version --json", Args: cobra.NoArgs,
		RunE: verb(func(*cobra.Command, []string) error {
			v := map[string]string{"version": node.Version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH}
			return c.print(v, func(w io.Writer) {
				fmt.Fprintf(w, "treaty %s (%s %s/%s)\n", node.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			})
		}),
	}
}
