// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node/httpapi"
)

func (c *cli) trustCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trust",
		Short: "Say whom this node deals with",
		Long: "Say whom this node deals with. PATTERN is a DID, a domain (vendorcorp.example, vendorcorp.example:8443) or the domains\n" +
			"below one (*.vendorcorp.example). Deny beats allow. Changes count at once and survive a restart; they stand in the\n" +
			"node's store and in its event log, on top of trust in treaty.yaml, which stays as it was written.",
		Example: "  treaty trust list\n  treaty trust allow vendorcorp.test\n  treaty trust deny '*.vendorcorp.test'\n  treaty trust forget vendorcorp.test",
	}
	list := &cobra.Command{
		Use: "list", Short: "Show the trust policy in force and where each rule comes from", Example: "  treaty trust list --json", Args: cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			var t httpapi.Trust
			if err := c.admin().Get(cmd.Context(), "/trust", &t); err != nil {
				return err
			}
			return c.print(t, func(w io.Writer) { printTrust(w, t) })
		}),
	}
	cmd.AddCommand(list)
	for _, v := range []struct{ action, short, example string }{
		{httpapi.TrustAllow, "Deal with PATTERN", "  treaty trust allow did:wba:vendorcorp.test"},
		{httpapi.TrustDeny, "Refuse PATTERN, whatever else is said", "  treaty trust deny '*.vendorcorp.test'"},
		{httpapi.TrustForget, "Drop an earlier allow or deny of PATTERN", "  treaty trust forget vendorcorp.test"},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: v.action + " PATTERN", Short: v.short, Example: v.example, Args: cobra.ExactArgs(1),
			RunE: verb(func(cmd *cobra.Command, args []string) error {
				var t httpapi.Trust
				if err := c.admin().Post(cmd.Context(), "/trust", httpapi.TrustRequest{Action: v.action, Pattern: args[0]}, &t); err != nil {
					return err
				}
				return c.print(t, func(w io.Writer) { printTrust(w, t) })
			}),
		})
	}
	return cmd
}

func printTrust(w io.Writer, t httpapi.Trust) {
	fmt.Fprintf(w, "first contact %s; methods %v; may contract: %v\n", t.FirstContact, t.Methods, t.ContractProfiles)
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, r := range t.Rules {
		where := r.Source
		switch {
		case !r.Since.IsZero():
			where += " since " + r.Since.Format("2006-01-02 15:04:05Z")
		case !r.InForce:
			where += ", overruled by the operator"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", r.Effect, r.Pattern, where)
	}
	_ = tw.Flush()
	if t.Note != "" {
		fmt.Fprintln(w, "note: "+t.Note)
	}
}
