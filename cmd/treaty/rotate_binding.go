// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/cmd/internal/terminal"
	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/httpapi"
)

// move is what the command was asked for.
type move struct {
	compromised          bool
	since, after         string
	signerKID            string
	recovery, passphrase string // files
}

func (c *cli) rotateBindingCmd(now *bool) *cobra.Command {
	var m move
	cmd := &cobra.Command{
		Use:   httpapi.RotateBinding,
		Short: "New binding key: the identity moves to another DID, and contracts and conversations with it",
		Long: "Put a new binding key in the place of the old one. The DID is the key's fingerprint, so the identity moves to another DID under\n" +
			"the same path; the old document stays, deactivated, and names it. Counterparties follow by these documents alone. What is\n" +
			"sealed to the old keys is opened until the end of the grace period (rotation.grace).\n\n" +
			"--compromised: somebody else may have the old key. There is no grace; what was first logged since then is marked as suspect.\n" +
			"--recovery-key: the binding key is lost, or a thief may move the identity too. The recovery key signs the move, in this\n" +
			"process; the node need not run, nor be able to. Its file must be out of the node's reach.",
		Example: "  treaty rotate binding\n  treaty rotate binding --compromised --since 2026-11-28T00:00:00Z\n" +
			"  treaty rotate binding --recovery-key offline/recovery.age --passphrase-file pass.txt",
		Args: cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			if *now {
				return usage("a binding key that somebody else may have is replaced with --compromised, not with --now")
			}
			return c.rotateBinding(cmd.Context(), m)
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&m.compromised, "compromised", false, "somebody else may have the old key: no grace period, and counterparties are told so")
	f.StringVar(&m.since, "since", "", "from when they may have had it, RFC 3339 (with --compromised; default: now)")
	f.StringVar(&m.recovery, "recovery-key", "", "file of the recovery key, which signs the move in the place of the binding key")
	f.StringVar(&m.passphrase, "passphrase-file", "", "file whose first line opens the recovery key")
	f.StringVar(&m.after, "after", "", "date of the newest document that a thief has published, RFC 3339 (with --recovery-key): the move is dated later")
	f.StringVar(&m.signerKID, "signer-kid", "", "id of the next binding key, when it is behind keys.signer")
	return cmd
}

func (c *cli) rotateBinding(ctx context.Context, m move) error {
	req := httpapi.RotateRequest{Kind: httpapi.RotateBinding, Compromised: m.compromised, SignerKID: m.signerKID}
	for _, t := range []struct {
		flag, text string
		to         *time.Time
	}{{"--since", m.since, &req.Since}, {"--after", m.after, new(time.Time)}} {
		if t.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, t.text)
		if err != nil {
			return usage("%s: %q is not a time such as 2026-11-28T00:00:00Z", t.flag, t.text)
		}
		*t.to = at.UTC()
	}
	if m.recovery == "" {
		if m.after != "" || m.passphrase != "" {
			return usage("--after and --passphrase-file go with --recovery-key")
		}
		status, err := c.status(ctx)
		if err != nil {
			return err
		}
		req.Document = status.Document.String()
		return c.rotate(ctx, req, "")
	}
	key, err := recoveryKey(m)
	if err != nil {
		return err
	}
	status, err := c.status(ctx)
	if errors.Is(err, httpapi.ErrNoNode) {
		r, err := node.Recover(ctx, c.dir, node.Options{Process: "treaty", Prompt: terminal.Prompt(os.Stdin, c.stderr)}, req, key)
		if err != nil {
			return err
		}
		return c.print(r, func(w io.Writer) { printMove(w, r) })
	}
	if err != nil {
		return err
	}
	return c.rotateRecovered(ctx, status, req, key)
}

func recoveryKey(m move) (k node.RecoveryKey, err error) {
	if m.passphrase == "" {
		return k, usage("say what opens the recovery key (--passphrase-file)")
	}
	data, err := os.ReadFile(m.passphrase)
	if err != nil {
		return k, usage("--passphrase-file: %v", err)
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	k = node.RecoveryKey{File: m.recovery, Passphrase: string(bytes.TrimRight(line, "\r"))}
	if m.after != "" {
		k.After, err = time.Parse(time.RFC3339, m.after)
	}
	return k, err
}

// rotateRecovered has the running node prepare the move, signs it here, and hands the result to the node.
func (c *cli) rotateRecovered(ctx context.Context, status httpapi.Status, req httpapi.RotateRequest, key node.RecoveryKey) error {
	id, err := did.Parse(status.DID)
	if err != nil {
		return err
	}
	if published := node.PublishedProof(ctx, c.dir, id); published.After(key.After) {
		key.After = published
	}
	prepare := req
	prepare.Prepare, prepare.Document = true, status.Document.String()
	var prepared httpapi.Rotation
	if err := c.admin().Post(ctx, "/rotate", prepare, &prepared); err != nil {
		return err
	}
	if req.Deactivated, err = node.SignMove(ctx, c.dir, prepared, key); err != nil {
		return err
	}
	req.Successor, req.Document = prepared.DID, prepare.Document
	return c.rotate(ctx, req, "")
}

func printMove(w io.Writer, r httpapi.Rotation) {
	fmt.Fprintf(w, "%s\n  is now  %s\n", r.PreviousDID, r.DID)
	fmt.Fprintf(w, "  binding key  %s\n", r.KID)
	fmt.Fprintf(w, "  assurance    %s\n", r.Assurance)
	fmt.Fprintf(w, "  document     %s\n", r.Document)
	fmt.Fprintf(w, "  what is sealed to the old keys is opened until %s\n", r.Until)
	if len(r.Told) > 0 {
		fmt.Fprintf(w, "  told         %d counterparties; `treaty events` shows who has answered\n", len(r.Told))
	}
	if s := r.Suspects; s != nil {
		fmt.Fprintf(w, "somebody else may have had the old key since %s. Look at what was first logged since then:\n", s.Since)
		fmt.Fprintf(w, "  %d contracts, %d receipts, %d conversations\n", len(s.Contracts), s.Receipts, len(s.Conversations))
		for _, id := range s.Contracts {
			fmt.Fprintf(w, "  treaty contracts show %s\n", id)
		}
		for _, id := range s.Conversations {
			fmt.Fprintf(w, "  treaty negotiations show %s\n", id)
		}
		fmt.Fprintln(w, "  compare with what your counterparties have; the old key's machine and backups, and who could read them; other keys there")
	}
	if r.Note != "" {
		fmt.Fprintln(w, "note: "+r.Note)
	}
}
