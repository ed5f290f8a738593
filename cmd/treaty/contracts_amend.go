// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node/httpapi"
)

func (c *cli) contractsAmendCmd() *cobra.Command {
	var req httpapi.AmendRequest
	var needsFile string
	var retention int
	var calls int64
	cmd := &cobra.Command{
		Use: "amend CONTRACT_ID", Short: "Negotiate a contract with other terms that replaces one in force, as its buyer",
		Long: "Negotiate a contract with other terms that replaces one in force, as its buyer. The terms are those of the needs file, or the old\n" +
			"ones with what the flags change. The vendor ends the old contract in the moment in which the new one comes into force; until then,\n" +
			"and when there is no agreement, the old one stays. Exit code 3: one side decided otherwise.",
		Example: "  treaty contracts amend ctr_x1Yz --calls 500\n  treaty contracts amend ctr_x1Yz --needs needs.yaml", Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringVar(&needsFile, "needs", "", "needs file (YAML) with all terms")
	f.StringSliceVar(&req.Columns, "columns", nil, "columns instead of the contract's")
	f.StringSliceVar(&req.Operations, "operations", nil, "aggregates instead of the contract's")
	f.StringVar(&req.Purpose, "purpose", "", "another purpose of record")
	f.IntVar(&retention, "retention-days", 0, "how long results are to be kept")
	f.Int64Var(&calls, "calls", 0, "how many queries are wanted")
	f.StringVar(&req.Rationale, "rationale", "", "why, for the people over there")
	c.replaces(cmd, func(ctx context.Context, id string, n *httpapi.Negotiation) error {
		if f.Changed("retention-days") {
			req.RetentionDays = &retention
		}
		if f.Changed("calls") {
			req.Calls = &calls
		}
		if needsFile != "" {
			text, err := readBounded(needsFile)
			if err != nil {
				return usage("--needs: %v", err)
			}
			req.Needs = string(text)
		}
		return c.admin().Post(ctx, "/contracts/"+url.PathEscape(id)+"/amend", req, n)
	})
	return cmd
}

func (c *cli) contractsRenewCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "renew CONTRACT_ID", Short: "Negotiate the terms of a contract in force again, with a new validity, as its buyer",
		Long: "Negotiate the terms of a contract in force again, with a new validity, as its buyer. The new contract replaces the old one in the\n" +
			"moment in which it comes into force. Exit code 3: the vendor does not offer these terms any more; the old contract stays.",
		Example: "  treaty contracts renew ctr_x1Yz", Args: cobra.ExactArgs(1),
	}
	c.replaces(cmd, func(ctx context.Context, id string, n *httpapi.Negotiation) error {
		return c.admin().Post(ctx, "/contracts/"+url.PathEscape(id)+"/renew", struct{}{}, n)
	})
	return cmd
}

// replaces completes a verb that starts a negotiation: it waits for its end, as negotiate does.
func (c *cli) replaces(cmd *cobra.Command, start func(ctx context.Context, id string, n *httpapi.Negotiation) error) {
	var noWait bool
	var timeout time.Duration
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when the negotiation has started")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait; the node goes on after it")
	cmd.RunE = verb(func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		var n httpapi.Negotiation
		if err := start(ctx, args[0], &n); err != nil {
			return err
		}
		if !noWait {
			var err error
			if n, err = c.follow(ctx, n.ContextID); err != nil {
				return err
			}
		}
		if err := c.print(n, func(w io.Writer) { printNegotiation(w, n) }); err != nil {
			return err
		}
		return outcome(n, noWait)
	})
}
