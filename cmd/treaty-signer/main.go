// SPDX-License-Identifier: Apache-2.0

// Command treaty-signer signs for a node with keys that are in a PKCS#11 token and never leave it.
//
// It is a process of its own, and the only one that knows the token's PIN. It links the token's library through cgo. Nodes
// reach it over a Unix socket (package node/signer says what it signs and what not).
//
// Exit codes: 0 done, 1 unexpected failure, 2 usage or configuration, including a wrong PIN or a key that is not there.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/cmd/treaty-signer/internal/token"
	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/harden"
	"github.com/treaty-node/treaty/node/signer"
)

// version names the build; the Makefile sets it.
var version = "development"

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

const (
	exitFailure = 1
	exitUsage   = 2
)

// failure marks an error from a verb that is not the operator's to mend; all other errors are about usage or configuration.
type failure struct{ error }

func (f *failure) Unwrap() error { return f.error }

func classed(err error) error {
	for _, known := range []error{signer.ErrConfig, signer.ErrSocket, signer.ErrWrongKey, token.ErrModule, token.ErrToken, token.ErrPIN, token.ErrKey} {
		if err == nil || errors.Is(err, known) {
			return err
		}
	}
	return &failure{err}
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
	fmt.Fprintln(stderr, "treaty-signer: "+err.Error())
	var f *failure
	if errors.As(err, &f) {
		return exitFailure
	}
	return exitUsage
}

func (c *cli) root() *cobra.Command {
	dir := os.Getenv("TREATY_SIGNER_DIR")
	if dir == "" {
		dir = "."
	}
	root := &cobra.Command{
		Use:   "treaty-signer",
		Short: "Sign for a node with keys in a PKCS#11 token",
		Long: "treaty-signer holds a session with a PKCS#11 token and signs for nodes over a Unix socket. Keys never leave the token.\n\n" +
			"Exit codes: 0 done, 1 unexpected failure, 2 usage or configuration, including a wrong PIN or a key that is not there.",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&c.dir, "dir", dir, "folder with "+signer.ConfigFile+" (or TREATY_SIGNER_DIR)")
	root.PersistentFlags().BoolVar(&c.json, "json", false, "print JSON")
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(c.serveCmd(), c.generateCmd(), c.listCmd(), c.versionCmd())
	return root
}

// open reads the configuration and opens the token. The process is closed to debuggers and core dumps before it holds a PIN.
func (c *cli) open() (*signer.Config, *token.Token, error) {
	if err := harden.Process(); err != nil {
		return nil, nil, err
	}
	cfg, err := signer.LoadConfig(c.dir)
	if err != nil {
		return nil, nil, err
	}
	if _, err := cfg.ReadPIN(); err != nil { // said before the library is loaded, and as what it is
		return nil, nil, fmt.Errorf("%w: pin: %w", signer.ErrConfig, err)
	}
	t, err := token.Open(cfg.Module, cfg.Token, cfg.ReadPIN)
	return cfg, t, err
}

// keys looks up every configured key in the token and checks that its id is that key's.
func keys(ctx context.Context, cfg *signer.Config, t *token.Token) ([]signer.Key, error) {
	var out []signer.Key
	for _, k := range cfg.Keys {
		id, err := k.TokenID()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", signer.ErrConfig, err)
		}
		s, err := t.Signer(ctx, k.KID, token.Ref{Label: k.Label, ID: id})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.KID, err)
		}
		out = append(out, signer.Key{Role: k.Role, Signer: s})
	}
	return out, nil
}

func (c *cli) serveCmd() *cobra.Command {
	return &cobra.Command{
		Use: "serve", Short: "Sign until told to stop", Example: "  treaty-signer serve --dir /etc/treaty-signer", Args: cobra.NoArgs,
		Long: "serve checks that every configured key is in the token and cannot leave it, and then signs for whoever may open the\n" +
			"socket. Every signature is a line of the audit log: key, form and digest of the message, never the message.",
		RunE: func(cmd *cobra.Command, _ []string) error { return classed(c.serve(cmd.Context())) },
	}
}

func (c *cli) serve(ctx context.Context) (err error) {
	cfg, t, err := c.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	if len(cfg.Keys) == 0 {
		return fmt.Errorf("%w: keys: there are none; make one with `treaty-signer generate`", signer.ErrConfig)
	}
	list, err := keys(ctx, cfg, t)
	if err != nil {
		return err
	}
	audit, closeAudit, err := cfg.OpenAudit(c.stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAudit()) }()
	s, err := signer.New(signer.Options{Keys: list, Audit: audit, Now: time.Now, Log: slog.New(slog.NewTextHandler(c.stderr, nil))})
	if err != nil {
		return err
	}
	gid, err := cfg.GroupID()
	if err != nil {
		return err
	}
	socket := cfg.Path(cfg.Socket)
	l, err := signer.Listen(ctx, socket, gid)
	if err != nil {
		return err
	}
	ready := map[string]any{"ready": true, "socket": socket, "keys": len(list)}
	if err := c.print(ready, func(w io.Writer) { fmt.Fprintf(w, "ready: %d keys at %s\n", len(list), socket) }); err != nil {
		return errors.Join(err, l.Close())
	}
	return s.Serve(ctx, l)
}

func (c *cli) generateCmd() *cobra.Command {
	var label, id, role, subject string
	cmd := &cobra.Command{
		Use: "generate --label LABEL", Short: "Make an Ed25519 key in the token", Args: cobra.NoArgs,
		Long: "generate makes a key pair inside the token that cannot leave it, and prints its public half and what to add to\n" +
			signer.ConfigFile + ". With --subject, the path DID without its fingerprint, it says the key's id as well.",
		Example: "  treaty-signer generate --label binding --subject did:wba:buyercorp.test:agents:steward",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return classed(c.generate(cmd.Context(), label, id, role, subject))
		},
	}
	cmd.Flags().StringVar(&label, "label", "", "label of the new key (CKA_LABEL)")
	cmd.Flags().StringVar(&id, "id", "", "id of the new key in hexadecimal (CKA_ID; default: random)")
	cmd.Flags().StringVar(&role, "role", "signing", "what the key is for: signing, service or receipt")
	cmd.Flags().StringVar(&subject, "subject", "", "DID of the holder; for role signing without the fingerprint, which is the key's")
	_ = cmd.MarkFlagRequired("label") // the flag exists
	return cmd
}

type generated struct {
	KID        string `json:"kid,omitempty"`
	Role       string `json:"role"`
	Label      string `json:"label"`
	Thumbprint string `json:"thumbprint"`
	PublicKey  string `json:"publicKeyMultibase"`
}

func (c *cli) generate(ctx context.Context, label, id, role, subject string) (err error) {
	raw, err := hex.DecodeString(id)
	if err != nil {
		return fmt.Errorf("%w: --id is not hexadecimal", signer.ErrConfig)
	}
	if subject != "" { // before anything is made
		if _, err := did.Parse(subject); err != nil {
			return fmt.Errorf("%w: --subject: %w", signer.ErrConfig, err)
		}
	}
	_, t, err := c.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	public, err := t.Generate(ctx, token.Ref{Label: label, ID: raw})
	if err != nil {
		return err
	}
	g := generated{Role: role, Label: label, Thumbprint: public.Thumbprint(), PublicKey: public.Multibase()}
	if subject != "" {
		if role == "signing" {
			subject += ":e1_" + g.Thumbprint
		}
		holder, err := did.Parse(subject)
		if err != nil {
			return fmt.Errorf("the key was made, but is no key of --subject: %w", err)
		}
		g.KID = did.KeyID(holder, role, public)
	}
	return c.print(g, func(w io.Writer) {
		kid := g.KID
		if kid == "" {
			kid = "<did>#" + role + "-" + g.Thumbprint[:8]
		}
		fmt.Fprintf(w, "made an Ed25519 key in the token\n  label       %s\n  public key  %s\n  thumbprint  %s\nadd to %s:\n  keys:\n    - {kid: %q, role: %s, label: %q}\n",
			g.Label, g.PublicKey, g.Thumbprint, signer.ConfigFile, kid, g.Role, g.Label)
	})
}

func (c *cli) listCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "Check the configured keys against the token", Example: "  treaty-signer list --json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			defer func() { err = classed(err) }()
			cfg, t, err := c.open()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, t.Close()) }()
			list, err := keys(cmd.Context(), cfg, t)
			if err != nil {
				return err
			}
			out := []generated{}
			for i, k := range list {
				p := k.Signer.PublicKey()
				out = append(out, generated{KID: k.Signer.KeyID(), Role: k.Role, Label: cfg.Keys[i].Label, Thumbprint: p.Thumbprint(), PublicKey: p.Multibase()})
			}
			return c.print(out, func(w io.Writer) {
				tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
				fmt.Fprintln(tw, strings.Join([]string{"ROLE", "LABEL", "THUMBPRINT", "KID"}, "\t"))
				for _, k := range out {
					fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", k.Role, k.Label, k.Thumbprint, k.KID)
				}
				_ = tw.Flush()
			})
		},
	}
}

func (c *cli) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the build", Example: "  treaty-signer version --json", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := map[string]string{"version": version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH}
			return c.print(v, func(w io.Writer) {
				fmt.Fprintf(w, "treaty-signer %s (%s %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			})
		},
	}
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
