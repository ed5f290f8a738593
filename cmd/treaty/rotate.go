// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/httpapi"
)

func (c *cli) rotateCmd() *cobra.Command {
	var now bool
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Put a new key in the place of an old one, on the running node",
		Long: "Put a new key in the place of an old one, on the running node. All but the binding key change inside the DID; a new binding\n" +
			"key moves the identity to another DID (see `treaty rotate binding --help`). The old key counts until the end of the\n" +
			"grace period (rotation.grace) and is then retired by the node itself. `treaty keys list` shows where each key is.\n" +
			"Exit code 3: another rotation was faster, and nothing was changed by this one.",
		Example: "  treaty rotate key-agreement\n  treaty rotate recovery --key-out offline/recovery-2.age --passphrase-file pass.txt",
	}
	cmd.AddCommand(c.rotateBindingCmd(&now))
	cmd.PersistentFlags().BoolVar(&now, "now", false, "end the old key at once: somebody else may have it. What is under way with it fails")
	for _, k := range []struct{ kind, short string }{
		{httpapi.RotateKeyAgreement, "New key that peers seal messages to"},
		{httpapi.RotateSigning, "New secondary key that signs requests; the binding key stays"},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: k.kind, Short: k.short, Example: "  treaty rotate " + k.kind, Args: cobra.NoArgs,
			RunE: verb(func(cmd *cobra.Command, _ []string) error {
				status, err := c.status(cmd.Context())
				if err != nil {
					return err
				}
				return c.rotate(cmd.Context(), httpapi.RotateRequest{Kind: k.kind, Document: status.Document.String(), Now: now}, "")
			}),
		})
	}
	for _, k := range []struct{ kind, short string }{
		{httpapi.RotateHuman, "New key of the person who approves"},
		{httpapi.RotateRecovery, "New key that moves the identity if the binding key is lost"},
	} {
		var out, passphraseFile string
		var factor int
		sub := &cobra.Command{
			Use: k.kind, Short: k.short, Args: cobra.NoArgs,
			Long: k.short + ". This command makes the key, seals it with the passphrase and writes it to --key-out; the node gets the\n" +
				"public half only. Run it where --key-out is out of the reach of the node's user, or move the file there.",
			Example: "  treaty rotate " + k.kind + " --key-out offline/" + k.kind + "-2.age --passphrase-file pass.txt",
			RunE: verb(func(cmd *cobra.Command, _ []string) error {
				return c.rotateOffline(cmd.Context(), httpapi.RotateRequest{Kind: k.kind, Now: now}, out, passphraseFile, factor)
			}),
		}
		sub.Flags().StringVar(&out, "key-out", "", "file for the new private key, out of the node's reach")
		sub.Flags().StringVar(&passphraseFile, "passphrase-file", "", "file whose first line seals it")
		sub.Flags().IntVar(&factor, "scrypt-work-factor", 0, "work factor of the passphrase (0: a safe default)")
		cmd.AddCommand(sub)
	}
	return cmd
}

func (c *cli) status(ctx context.Context) (s httpapi.Status, err error) {
	err = c.admin().Get(ctx, "/status", &s)
	return s, err
}

// rotateOffline makes the key in this process. It is on disk before the node publishes its public half; a key that the node
// refuses is taken away again.
func (c *cli) rotateOffline(ctx context.Context, req httpapi.RotateRequest, out, passphraseFile string, factor int) error {
	if out == "" || passphraseFile == "" {
		return usage("say where the new key goes (--key-out) and what seals it (--passphrase-file)")
	}
	data, err := os.ReadFile(passphraseFile)
	if err != nil {
		return usage("--passphrase-file: %v", err)
	}
	passphrase, _, _ := bytes.Cut(data, []byte("\n"))
	status, err := c.status(ctx)
	if err != nil {
		return err
	}
	public, err := node.NewOfflineKey(node.OfflineKey{
		Kind: req.Kind, DID: status.DID, Dir: c.dir, Out: out, Passphrase: string(bytes.TrimRight(passphrase, "\r")), WorkFactor: factor,
	})
	if err != nil {
		return usage("%v", err)
	}
	req.Document, req.PublicKey = status.Document.String(), public
	err = c.rotate(ctx, req, out)
	var e *httpapi.Error
	if errors.As(err, &e) && (e.Kind == httpapi.KindRefused || e.Kind == httpapi.KindUsage) {
		if rmErr := os.Remove(out); rmErr != nil { // the node has not published it
			err = errors.Join(err, rmErr)
		}
	}
	return err
}

func (c *cli) rotate(ctx context.Context, req httpapi.RotateRequest, file string) error {
	var r httpapi.Rotation
	if err := c.admin().Post(ctx, "/rotate", req, &r); err != nil {
		return err
	}
	return c.print(r, func(w io.Writer) {
		if r.DID != "" {
			printMove(w, r)
			return
		}
		fmt.Fprintf(w, "new %s key  %s\n", r.Kind, r.KID)
		if file != "" {
			fmt.Fprintf(w, "  written to  %s\n", file)
		} else {
			fmt.Fprintf(w, "  used from   %s\n", r.UsedFrom)
		}
		for _, kid := range r.Previous {
			fmt.Fprintf(w, "  until %s  %s\n", r.Until, kid)
		}
		fmt.Fprintf(w, "  document    %s\n", r.Document)
		if r.Note != "" {
			fmt.Fprintln(w, "note: "+r.Note)
		}
	})
}
