// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node/httpapi"
)

func (c *cli) negotiationsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "negotiations",
		Short:   "List, show and withdraw negotiations",
		Example: "  treaty negotiations list\n  treaty negotiations show CONTEXT_ID\n  treaty negotiations withdraw CONTEXT_ID --reason 'no longer needed'",
	}
	list := &cobra.Command{
		Use: "list", Short: "List negotiations, newest first", Example: "  treaty negotiations list --json", Args: cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			var all []httpapi.Negotiation
			if err := c.admin().Get(cmd.Context(), "/negotiations", &all); err != nil {
				return err
			}
			return c.print(all, func(w io.Writer) {
				tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
				fmt.Fprintln(tw, "CONTEXT\tROLE\tPHASE\tPEER\tCONTRACT\tUPDATED")
				for _, n := range all {
					fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", n.ContextID, n.Role, n.Phase, n.Peer, n.ContractID, n.Updated.Format("2006-01-02 15:04:05Z"))
				}
				tw.Flush()
			})
		}),
	}
	show := &cobra.Command{
		Use: "show CONTEXT_ID", Short: "Show one negotiation", Example: "  treaty negotiations show 3q2-7wAAAAAAAAAAAAAAAA", Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			var n httpapi.Negotiation
			if err := c.admin().Get(cmd.Context(), "/negotiations/"+url.PathEscape(args[0]), &n); err != nil {
				return err
			}
			return c.print(n, func(w io.Writer) { printNegotiation(w, n) })
		}),
	}
	var reason string
	withdraw := &cobra.Command{
		Use: "withdraw CONTEXT_ID", Short: "End a negotiation that is not in force yet, and tell the other side",
		Example: "  treaty negotiations withdraw 3q2-7wAAAAAAAAAAAAAAAA --reason 'no longer needed'", Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			var n httpapi.Negotiation
			if err := c.admin().Post(cmd.Context(), "/negotiations/"+url.PathEscape(args[0])+"/withdraw", map[string]string{"reason": reason}, &n); err != nil {
				return err
			}
			return c.print(n, func(w io.Writer) { printNegotiation(w, n) })
		}),
	}
	withdraw.Flags().StringVar(&reason, "reason", "withdrawn by the operator", "what the other side is told")
	cmd.AddCommand(list, show, withdraw)
	return cmd
}

func printNegotiation(w io.Writer, n httpapi.Negotiation) {
	fmt.Fprintf(w, "negotiation with %s (%s)\n", line(n.Peer), n.Role)
	if n.ContextID != "" {
		fmt.Fprintf(w, "  context     %s\n", n.ContextID)
	}
	if n.Reopens != "" {
		fmt.Fprintf(w, "  takes up    %s\n", n.Reopens)
	}
	fmt.Fprintf(w, "  phase       %s\n", n.Phase)
	if n.Code != "" || n.Reason != "" {
		fmt.Fprintf(w, "  reason      %s %s\n", line(n.Code), line(n.Reason))
	}
	if n.ReopenedAs != "" {
		fmt.Fprintf(w, "  goes on as  %s\n", n.ReopenedAs)
	}
	if a := n.Ask; a != nil {
		fmt.Fprintf(w, "  asked       %s of %s: %s for %q, %d days\n", strings.Join(a.Operations, ", "), a.Dataset, strings.Join(a.Columns, ", "), a.Purpose, a.RetentionDays)
	}
	if o := n.Offer; o != nil {
		fmt.Fprintf(w, "  offered     %s of %s, %d days, groups of at least %d, %d calls, until %s\n",
			line(strings.Join(o.Operations, ", ")), line(strings.Join(o.Columns, ", ")), o.RetentionDays, o.MinGroupSize, o.CallBudget, line(o.ValidUntil))
		for _, r := range o.Removed {
			fmt.Fprintf(w, "  narrowed    %s: asked %s, offered %s (%s)\n", line(r.What), line(orNone(r.Asked)), line(orNone(r.Offered)), line(r.Why))
		}
	}
	if n.ContractID != "" {
		fmt.Fprintf(w, "  contract    %s\n", n.ContractID)
	}
	if n.Transcript != "" {
		fmt.Fprintf(w, "  transcript  %s\n", n.Transcript)
	}
	for _, said := range n.DryRun {
		fmt.Fprintf(w, "  %s\n", line(said))
	}
	if len(n.Events) > 0 {
		fmt.Fprintf(w, "  events      %d to %d of the log\n", n.Events[0], n.Events[len(n.Events)-1])
	}
}

func orNone(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}
