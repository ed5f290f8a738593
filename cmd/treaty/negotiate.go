// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation"
)

// wish is a needs file as the flags spell it.
type wish struct {
	Version    int            `yaml:"version"`
	Dataset    string         `yaml:"dataset"`
	Columns    wanted         `yaml:"columns"`
	Operations wanted         `yaml:"operations"`
	Purpose    string         `yaml:"purpose"`
	Retention  map[string]int `yaml:"retention_days"`
	Budget     map[string]int `yaml:"call_budget"`
	Rationale  string         `yaml:"rationale,omitempty"`
}

type wanted struct {
	Required []string `yaml:"required"`
	Optional []string `yaml:"optional,omitempty"`
}

func (c *cli) negotiateCmd() *cobra.Command {
	var peer, needsFile string
	var dryRun, noWait bool
	var timeout time.Duration
	var retention, budget int
	w := wish{Version: 1}
	cmd := &cobra.Command{
		Use:   "negotiate --peer DID|DOMAIN",
		Short: "Negotiate a data contract as buyer",
		Long: "Negotiate a data contract as buyer. A domain is enough: its agent is found, verified by DID, and its signed card read.\n" +
			"What is wanted comes from --needs, from the flags, or from the node's needs file. The command prints the node's\n" +
			"log as the negotiation goes, and exits with 0 when a contract is in force, 3 when one side decided otherwise.",
		Example: "  treaty negotiate --peer vendorcorp.test --needs needs.yaml\n" +
			"  treaty negotiate --peer vendorcorp.test --dataset orders --columns region,order_value --optional-columns customer_email \\\n" +
			"    --operations avg,count --purpose 'Regional pricing review' --retention-days 30\n" +
			"  treaty negotiate --peer vendorcorp.test --needs needs.yaml --dry-run",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := needsText(needsFile, w, retention, budget)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return verb(func(*cobra.Command, []string) error {
				var n httpapi.Negotiation
				if err := c.admin().Post(ctx, "/negotiations", httpapi.NegotiateRequest{Peer: peer, Needs: text, DryRun: dryRun}, &n); err != nil {
					return err
				}
				if !dryRun && !noWait {
					if n, err = c.follow(ctx, n.ContextID); err != nil {
						return err
					}
				}
				if err := c.print(n, func(w io.Writer) { printNegotiation(w, n) }); err != nil {
					return err
				}
				return outcome(n, dryRun || noWait)
			})(cmd, nil)
		},
	}
	f := cmd.Flags()
	f.StringVar(&peer, "peer", "", "the counterparty: a DID or a domain")
	f.StringVar(&needsFile, "needs", "", "needs file (YAML)")
	f.StringVar(&w.Dataset, "dataset", "", "dataset, as the counterparty's card names it")
	f.StringSliceVar(&w.Columns.Required, "columns", nil, "columns that are needed")
	f.StringSliceVar(&w.Columns.Optional, "optional-columns", nil, "columns that would be nice")
	f.StringSliceVar(&w.Operations.Required, "operations", nil, "aggregates that are needed: avg, sum, min, max, count, count_distinct, median")
	f.StringVar(&w.Purpose, "purpose", "", "what the data is for, one line; it becomes the purpose of record")
	f.IntVar(&retention, "retention-days", 30, "how long results are to be kept")
	f.IntVar(&budget, "calls", 100, "how many queries are wanted")
	f.StringVar(&w.Rationale, "rationale", "", "why, for the people over there")
	f.BoolVar(&dryRun, "dry-run", false, "find and verify the counterparty, check the ask, say what policy would make of it; send nothing")
	f.BoolVar(&noWait, "no-wait", false, "return when the negotiation has started")
	f.DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait; the node goes on after it")
	_ = cmd.MarkFlagRequired("peer")
	return cmd
}

// needsText is the needs file's text: as it is, or as the flags spell it; empty for the node's own.
func needsText(file string, w wish, retention, budget int) (string, error) {
	switch {
	case file != "" && w.Dataset != "":
		return "", usage("--needs and --dataset exclude each other")
	case file != "":
		data, err := os.ReadFile(file)
		if err != nil {
			return "", usage("--needs: %v", err)
		}
		return string(data), nil
	case w.Dataset == "":
		return "", nil
	case len(w.Columns.Required)+len(w.Columns.Optional) == 0 || len(w.Operations.Required) == 0 || w.Purpose == "":
		return "", usage("--dataset needs --optional-columns or --columns, --operations and --purpose beside it")
	}
	w.Retention, w.Budget = map[string]int{"wanted": retention}, map[string]int{"wanted": budget}
	text, err := yaml.Marshal(w)
	return string(text), err
}

// follow prints the log's lines of one negotiation until it has ended, and of those that take up its need.
func (c *cli) follow(ctx context.Context, contextID string) (n httpapi.Negotiation, err error) {
	watch, stop := context.WithCancel(ctx)
	defer stop()
	go func(watched string) {
		_ = c.admin().Events(watch, 0, true, func(e ledger.Event) error {
			var again ledger.Reopening
			if e.Type == ledger.NegotiationReopened && e.Decode(&again) == nil && again.To == e.Context && again.From == watched {
				watched = e.Context
			}
			if e.Context == watched && !c.json {
				fmt.Fprintf(c.stdout, "%5d  %s\n", e.Seq, ledger.Describe(e))
			}
			return nil
		})
	}(contextID)
	for {
		if err := c.admin().Get(ctx, "/negotiations/"+url.PathEscape(contextID), &n); err != nil {
			return n, timedOut(ctx, contextID, err)
		}
		if n.ReopenedAs != "" {
			contextID = n.ReopenedAs
			n = httpapi.Negotiation{}
			continue
		}
		if negotiation.Phase(n.Phase).Terminal() {
			time.Sleep(lastLines)
			return n, nil
		}
		select {
		case <-ctx.Done():
			return n, timedOut(ctx, contextID, ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

const (
	pollEvery = 100 * time.Millisecond
	lastLines = 250 * time.Millisecond // for the log's follower to catch up
)

func timedOut(ctx context.Context, contextID string, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &httpapi.Error{
			Kind: httpapi.KindUnreachable, Message: "the negotiation has not ended within --timeout; the node goes on with it",
			Hint: "treaty negotiations show " + contextID,
		}
	}
	return err
}

// outcome turns the end of a negotiation into the command's.
func outcome(n httpapi.Negotiation, open bool) error {
	p := negotiation.Phase(n.Phase)
	switch {
	case open || p == negotiation.PhaseInForce:
		return nil
	case p == negotiation.PhaseFailed || p == negotiation.PhaseExpired:
		return &httpapi.Error{Kind: httpapi.KindRefused, Code: n.Code, Message: "the negotiation " + n.Phase + ": " + n.Reason}
	}
	return &httpapi.Error{Kind: httpapi.KindRefused, Code: n.Code, Message: "no contract: " + n.Reason}
}
