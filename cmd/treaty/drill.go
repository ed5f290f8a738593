// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node/drill"
	"github.com/treaty-node/treaty/node/httpapi"
)

func (c *cli) drillCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drill",
		Short: "Practise rotations with a counterparty, and keep what was seen",
		Long: "Practise a rotation with a counterparty's node, which has to agree. Both nodes check, before, during the grace and after it,\n" +
			"what a rotation promises; the report says what each of them saw, and both sign it. See docs/drills.md.",
		Example: "  treaty drill rotation --peer vendorcorp.example --kind binding\n  treaty drill list\n  treaty drill show drl_…",
	}
	cmd.AddCommand(c.drillRotationCmd(), c.drillListCmd(), c.drillShowCmd())
	return cmd
}

func (c *cli) drillRotationCmd() *cobra.Command {
	var req httpapi.DrillRequest
	var rehearse bool
	var grace time.Duration
	var out string
	cmd := &cobra.Command{
		Use:   "rotation",
		Short: "Rotate keys in a drill with a counterparty",
		Long: "Rotate keys in a drill with a counterparty. A rehearsal (the default) rotates an identity that is made for it, with keys and\n" +
			"documents of its own under the node's domain; the node's own keys are not touched. --live rotates the node's own keys, as\n" +
			"`treaty rotate` does. The grace of the drill is for the drill's own messages; real traffic has rotation.grace.\n" +
			"Exit codes: 0 every promise that was looked at held, 3 the counterparty does not agree, 5 the drill could not be gone\n" +
			"through, 6 a promise was broken (the report says which).",
		Example: "  treaty drill rotation --peer vendorcorp.example --kind key-agreement\n  treaty drill rotation --peer vendorcorp.example --kind binding --live --load 5 --out reports/",
		Args:    cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			switch {
			case req.Peer == "":
				return usage("name the counterparty: --peer DID or domain")
			case req.Live && rehearse:
				return usage("--live and --rehearse exclude each other")
			case grace%time.Second != 0:
				return usage("--grace is in whole seconds")
			}
			req.GraceSeconds = int(grace / time.Second)
			rep, raw, err := c.drill(cmd.Context(), req)
			if err != nil {
				return err
			}
			if out != "" {
				if err := writeReport(out, rep, raw); err != nil {
					return err
				}
			}
			if err := c.printReport(rep, raw); err != nil {
				return err
			}
			if !rep.Passed() {
				return &httpapi.Error{Kind: httpapi.KindVerification, Code: "PROMISE_BROKEN", Message: fmt.Sprintf("%d promises were broken", rep.Broken), Hint: "treaty drill show " + rep.ID}
			}
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringVar(&req.Peer, "peer", "", "the counterparty: a DID or a domain")
	f.StringVar(&req.Kind, "kind", string(drill.KeyAgreement), "key-agreement, signing, binding, compromise or recovery")
	f.BoolVar(&req.Live, "live", false, "rotate the node's own keys")
	f.BoolVar(&rehearse, "rehearse", false, "rotate an identity made for the drill (default)")
	f.IntVar(&req.Load, "load", 0, "queries a second under the contract with the counterparty; they use up its budget")
	f.DurationVar(&grace, "grace", 0, "grace of the drill's messages (default 10s)")
	f.StringVar(&out, "out", "", "folder to write the report to as well, as JSON and Markdown")
	return cmd
}

// drill runs a drill on the node and checks the report that comes back as anybody would.
func (c *cli) drill(ctx context.Context, req httpapi.DrillRequest) (*drill.Report, []byte, error) {
	var raw json.RawMessage
	if err := c.admin().Post(ctx, "/drills", req, &raw); err != nil {
		return nil, nil, err
	}
	rep, err := drill.Parse(raw)
	if err == nil {
		err = rep.VerifyProofs(2)
	}
	if err != nil {
		return nil, nil, &httpapi.Error{Kind: httpapi.KindVerification, Message: err.Error()}
	}
	return rep, raw, nil
}

func writeReport(dir string, rep *drill.Report, raw []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return usage("--out: %v", err)
	}
	path := filepath.Join(dir, rep.ID)
	if err := errors.Join(os.WriteFile(path+".json", raw, 0o600), os.WriteFile(path+".md", []byte(rep.Markdown()), 0o600)); err != nil {
		return usage("--out: %v", err)
	}
	return nil
}

// printReport prints the signed bytes as they are, or the report for people.
func (c *cli) printReport(rep *drill.Report, raw []byte) error {
	if c.json {
		_, err := fmt.Fprintln(c.stdout, string(raw))
		return err
	}
	_, err := io.WriteString(&plainWriter{out: c.stdout}, rep.Markdown())
	return err
}

func (c *cli) drillListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the drills this node has taken part in, the newest first", Example: "  treaty drill list", Args: cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			var list []httpapi.DrillSummary
			if err := c.admin().Get(cmd.Context(), "/drills", &list); err != nil {
				return err
			}
			return c.print(list, func(w io.Writer) {
				for _, d := range list {
					fmt.Fprintf(w, "%s  %s  %-13s  %-9s  %d held, %d broken, %d not checked  %s → %s\n", d.ID, d.Finished, d.Kind, d.Mode, d.Held, d.Broken, d.NotChecked, d.Subject, d.Counterparty)
				}
			})
		}),
	}
}

func (c *cli) drillShowCmd() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show the report of a drill; with --json, the signed bytes", Example: "  treaty drill show drl_…\n  treaty drill show drl_… --json > report.json && treaty verify report.json", Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			var raw json.RawMessage
			if err := c.admin().Get(cmd.Context(), "/drills/"+args[0], &raw); err != nil {
				return err
			}
			rep, err := drill.Parse(raw)
			if err != nil {
				return &httpapi.Error{Kind: httpapi.KindVerification, Message: err.Error()}
			}
			return c.printReport(rep, raw)
		}),
	}
}

// verifyDrill checks a drill's report: its form, its counts, and both nodes' signatures.
func verifyDrill(data []byte, r *report) (*report, error) {
	rep, err := drill.Parse(data)
	r.check("form", err, "the checks are those of the plan, and are counted right")
	if err != nil {
		return r, nil
	}
	r.About = fmt.Sprintf("drill %s, %s, %s, of %s with %s: %d held, %d broken, %d not checked", rep.ID, rep.Terms.Kind, rep.Terms.Mode, rep.Subject, rep.Counterparty, rep.Held, rep.Broken, rep.NotChecked)
	r.check("signatures", rep.VerifyProofs(2), "the subject's, then the counterparty's, by the keys that their DIDs are bound to")
	return r, nil
}
