// SPDX-License-Identifier: Apache-2.0

// Command treaty is a company's trust node and the command line that operates it.
//
// Verbs that need the node's keys or state talk to the running node over its admin socket, so that signing keys stay in one
// process; `verify`, `version`, `init` and `restore` work without one. Exit codes: 0 done, 1 unexpected failure, 2 usage or
// configuration, 3 refused (a decision), 4 not found, 5 unreachable (a transport fault), 6 verification failed, 7 no node is
// running on this folder.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node/httpapi"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// exitNoNode: nothing answers on the admin socket.
const exitNoNode = 7

// cli carries what every verb shares.
type cli struct {
	dir    string
	json   bool
	stdout io.Writer
	stderr io.Writer
}

// run executes one command line and returns its exit code.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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
	if errors.Is(err, errUnfit) {
		return httpapi.KindVerification.ExitCode() // the report said everything
	}
	e := asError(err)
	code := e.Kind.ExitCode()
	if errors.Is(err, httpapi.ErrNoNode) {
		e, code = &httpapi.Error{Kind: "no_node", Message: err.Error()}, exitNoNode
	}
	if c.json {
		_ = json.NewEncoder(&plainWriter{out: stdout}).Encode(map[string]any{"error": e})
	}
	fmt.Fprintln(&plainWriter{out: stderr}, "treaty: "+e.Error())
	return code
}

// asError takes errors that cobra makes (flags, arguments) for usage errors: every other error a verb returns is typed or
// wrapped by the verb.
func asError(err error) *httpapi.Error {
	var e *httpapi.Error
	if errors.As(err, &e) {
		return e
	}
	var v *verbError
	if errors.As(err, &v) {
		return &httpapi.Error{Kind: httpapi.KindInternal, Message: v.Error()}
	}
	return &httpapi.Error{Kind: httpapi.KindUsage, Message: err.Error()}
}

// verbError marks an untyped error that came out of a verb, not out of parsing its arguments.
type verbError struct{ error }

func (e *verbError) Unwrap() error { return e.error }

func usage(format string, args ...any) error {
	return &httpapi.Error{Kind: httpapi.KindUsage, Message: fmt.Sprintf(format, args...)}
}

func (c *cli) root() *cobra.Command {
	dir := os.Getenv("TREATY_DIR")
	if dir == "" {
		dir = "."
	}
	root := &cobra.Command{
		Use:           "treaty",
		Short:         "Let another company's agent at your data, and say exactly how far",
		Long:          "treaty runs a company's trust node and operates it.\n\nExit codes: 0 done, 1 unexpected failure, 2 usage or configuration, 3 refused (a decision by policy or\nby the counterparty), 4 not found, 5 unreachable (a transport fault), 6 verification failed, 7 no node runs on this folder.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&c.dir, "dir", dir, "the node's folder (or TREATY_DIR)")
	root.PersistentFlags().BoolVar(&c.json, "json", false, "print JSON")
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(
		c.initCmd(), c.serveCmd(), c.resolveCmd(), c.trustCmd(), c.doctorCmd(), c.negotiateCmd(), c.negotiationsCmd(), c.contractsCmd(), c.queryCmd(), c.proxyCmd(),
		c.askCmd(), c.datasetsCmd(), c.policyCmd(), c.keysCmd(), c.rotateCmd(), c.eventsCmd(), c.verifyCmd(), c.backupCmd(), c.restoreCmd(), c.demoCmd(), c.versionCmd(),
	)
	root.AddCommand(c.drillCmd(), c.demoDrillCmd())
	for _, sub := range root.Commands() {
		group(sub)
	}
	return root
}

// group makes a verb that only holds others show its help when it stands alone, and refuse what it does not hold: cobra
// would show the help for anything, and exit with 0.
func group(cmd *cobra.Command) {
	if !cmd.HasSubCommands() || cmd.Runnable() {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage("unknown command %q for %q", args[0], cmd.CommandPath())
		}
		return cmd.Help()
	}
}

// verb wraps RunE so that errors from it are told apart from errors of the argument parser.
func verb(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := f(cmd, args); err != nil {
			return &verbError{err}
		}
		return nil
	}
}

// print writes v as JSON with --json, or lets text write it for people; in either there is nothing that a terminal acts on.
func (c *cli) print(v any, text func(w io.Writer)) error {
	if c.json {
		enc := json.NewEncoder(&plainWriter{out: c.stdout})
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	text(&plainWriter{out: c.stdout})
	return nil
}

func (c *cli) admin() *httpapi.AdminClient { return httpapi.NewAdminClient(c.dir) }
