// SPDX-License-Identifier: Apache-2.0

// Command treaty-dataplane serves a vendor's datasets to buyers that hold a contract, and to nobody else.
//
// It is a process of its own with an identity of its own: it reads contracts from the company's store and cannot be
// negotiated with. DuckDB is linked here and nowhere else.
//
// Exit codes: 0 done, 1 unexpected failure, 2 usage or configuration, 6 a source cannot be imported as it is.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node/dataplane/server"
)

// version names the build; the Makefile sets it.
var version = ""

// build is the version, or the revision that the Go tool recorded.
func build() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return s.Value[:12]
			}
		}
	}
	return "development"
}

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

const (
	exitFailure = 1
	exitUsage   = 2
	exitImport  = 6
)

// exitError carries an exit code.
type exitError struct {
	code int
	error
}

func (e *exitError) Unwrap() error { return e.error }

// failure marks an error from a verb; all other errors come from parsing its arguments.
func failure(err error) error {
	var e *exitError
	switch {
	case err == nil || errors.As(err, &e):
		return err
	case errors.Is(err, server.ErrConfig):
		return &exitError{exitUsage, err}
	}
	return &exitError{exitFailure, err}
}

type cli struct {
	dir            string
	json           bool
	stdout, stderr io.Writer
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := &cli{stdout: stdout, stderr: stderr}
	root := c.root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	code := exitUsage
	var e *exitError
	if errors.As(err, &e) {
		code = e.code
	}
	fmt.Fprintln(stderr, "treaty-dataplane: "+err.Error())
	return code
}

func (c *cli) root() *cobra.Command {
	dir := os.Getenv("TREATY_DIR")
	if dir == "" {
		dir = "."
	}
	root := &cobra.Command{
		Use:   "treaty-dataplane",
		Short: "Serve datasets under data contracts, over MCP",
		Long: "treaty-dataplane answers queries of buyers that hold a contract, as far as the contract and the operator's own\n" +
			"ceiling allow, and signs a receipt for every answer and refusal.\n\n" +
			"Exit codes: 0 done, 1 unexpected failure, 2 usage or configuration, 6 a source cannot be imported as it is.",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&c.dir, "dir", dir, "folder with "+server.ConfigFile+" (or TREATY_DIR)")
	root.PersistentFlags().BoolVar(&c.json, "json", false, "print JSON")
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(c.initCmd(), c.serveCmd(), c.importCmd(), c.versionCmd())
	return root
}

// print writes v as JSON with --json, or lets text write it for people.
func (c *cli) print(v any, text func(io.Writer)) error {
	if !c.json {
		text(c.stdout)
		return nil
	}
	enc := json.NewEncoder(c.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func (c *cli) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the build", Example: "  treaty-dataplane version --json", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := map[string]string{"version": build(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH}
			return failure(c.print(v, func(w io.Writer) {
				fmt.Fprintf(w, "treaty-dataplane %s (%s %s/%s)\n", build(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			}))
		},
	}
}
