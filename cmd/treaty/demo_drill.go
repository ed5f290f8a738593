// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/drill"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation"
)

const (
	drillDemoTimeout = 8 * time.Minute
	drillDemoConfig  = "\ndrill: {live: true, min_grace: 1s}\n"
)

func (c *cli) demoDrillCmd() *cobra.Command {
	var dir string
	var p pressure
	var grace time.Duration
	var kinds []string
	cmd := &cobra.Command{
		Use:   "demo-drill",
		Short: "Rotate keys of a company that is at work, on this machine, and count what was lost",
		Long: "Rotate keys of a company that is at work. A buyer node, a vendor node and the vendor's data plane start as separate processes\n" +
			"and are put under a steady load of negotiations and queries. Meanwhile the buyer runs live drills with the vendor: its\n" +
			"binding key, its key-agreement key, and its binding key again as if somebody else had it. The last line counts the requests\n" +
			"that never got their right answer. Exit code 0 only if every promise held and nothing was lost.",
		Example: "  treaty demo-drill\n  treaty demo-drill --kinds binding --negotiate-every 5s",
		Args:    cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			d, err := newDemo(dir, c.stdout)
			if err != nil {
				return err
			}
			defer d.stop()
			ctx, cancel := context.WithTimeout(cmd.Context(), drillDemoTimeout)
			defer cancel()
			lost, err := d.drills(ctx, &p, grace, kinds)
			if err != nil {
				return fmt.Errorf("the drill demo did not get through: %w (logs: %s/*.log)", err, d.dir)
			}
			fmt.Fprintf(d.out, "lost requests: %d\n", lost)
			if lost > 0 {
				return &httpapi.Error{Kind: httpapi.KindVerification, Code: "REQUESTS_LOST", Message: fmt.Sprintf("%d requests were lost", lost)}
			}
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringVar(&dir, "workdir", ".demo-drill", "folder for the companies' folders; made anew each time")
	f.StringSliceVar(&kinds, "kinds", []string{string(drill.Binding), string(drill.KeyAgreement), string(drill.Compromise)}, "live drills to run, in this order")
	f.DurationVar(&grace, "grace", 4*time.Second, "grace of the drills' messages")
	f.IntVar(&p.queries, "load", 4, "queries a second under each drill, which the reports measure")
	f.DurationVar(&p.queryEvery, "query-every", 500*time.Millisecond, "time between queries of the steady load beside them")
	f.DurationVar(&p.negotiateEvery, "negotiate-every", 2*time.Second, "time between negotiations")
	return cmd
}

// pressure is a steady, bounded load of one company, through its own node.
type pressure struct {
	queries                    int
	queryEvery, negotiateEvery time.Duration

	buyer    *httpapi.AdminClient
	contract string

	rushing             atomic.Int32 // negotiations to be made without a pause: a rotation is about to come
	mu                  sync.Mutex
	asked, agreed, lost int
	losses              []string
	acrossASwitch       int // negotiations that began under one DID and were concluded under another
	cut                 int // negotiations that a compromise ended, and that were made again
	compromises         atomic.Int32
}

const (
	endNegotiation = time.Minute // then one that has not concluded is lost
	askAttempts    = 5
	maxLosses      = 10 // that are told
	maxRush        = 12 // negotiations before one rotation: a buyer may open only so many in an hour
)

// run works until working ends, finishes what has begun, and returns.
func (p *pressure) run(ctx context.Context, working context.Context) { //nolint:revive // two ends: of the load, and of everything
	var wg sync.WaitGroup
	every := func(name string, d time.Duration, f func(context.Context)) {
		wg.Go(func() {
			tick := time.NewTicker(d)
			defer tick.Stop()
			for {
				select {
				case <-working.Done():
					return
				case <-tick.C:
					f(ctx) // one at a time
				}
				for name == "negotiate" && p.rushing.Add(-1) >= 0 && working.Err() == nil {
					f(ctx)
				}
			}
		})
	}
	every("query", p.queryEvery, p.query)
	every("negotiate", p.negotiateEvery, p.negotiate)
	wg.Wait()
}

// follow makes sure that negotiations are under way when keys rotate: when a drill has seen everything that there is to see before
// it, they are made one after the other until it has.
func (p *pressure) follow(ctx context.Context) {
	_ = p.buyer.Events(ctx, 0, true, func(e ledger.Event) error {
		var c ledger.DrillCheck
		switch e.Type {
		case ledger.DrillStep:
			if e.Decode(&c) == nil && c.Phase == string(drill.Before) && c.Check == drill.OutOfScope {
				p.rushing.Store(maxRush)
			}
		case ledger.IdentityMoved, ledger.KeyRotated:
			p.rushing.Store(0)
			var m ledger.Move
			if e.Type == ledger.IdentityMoved && e.Decode(&m) == nil && m.CompromisedSince != "" {
				p.compromises.Add(1)
			}
		}
		return nil
	})
}

func (p *pressure) done(count *int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*count++
	if err != nil {
		if p.lost++; len(p.losses) < maxLosses {
			p.losses = append(p.losses, err.Error())
		}
	}
}

// query asks what the contract grants, again where nobody decided.
func (p *pressure) query(ctx context.Context) {
	ask := httpapi.QueryRequest{
		ContractID: p.contract, GroupBy: []string{"region"}, Filters: []contract.Condition{}, OrderBy: []contract.Order{{By: "region"}}, Aggregates: []contract.Aggregate{{Op: contract.OpCount}},
	}
	var err error
	for i := range askAttempts {
		var res httpapi.QueryResult
		if err = p.buyer.Post(ctx, "/query", ask, &res); err == nil && len(res.Rows) != 4 {
			err = fmt.Errorf("%d rows and not 4", len(res.Rows))
			break
		}
		if err == nil || asError(err).Kind != httpapi.KindUnreachable {
			break
		}
		time.Sleep(time.Duration(i+1) * 250 * time.Millisecond)
	}
	if err != nil {
		err = fmt.Errorf("query: %w", err)
	}
	p.done(&p.asked, err)
}

// negotiate takes one negotiation to its end, which has to be a contract in force.
func (p *pressure) negotiate(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endNegotiation)
	defer cancel()
	under := func() string {
		var s httpapi.Status
		_ = p.buyer.Get(ctx, "/status", &s)
		return s.DID
	}
	before, compromises := under(), p.compromises.Load()
	n, err := p.conclude(ctx)
	if err == nil && n.ContractID == "" {
		// A compromise ends what is under way: it is sealed to keys that somebody else may have. Its buyer begins anew. Whatever
		// else ends a negotiation loses it.
		time.Sleep(storySettle) // until the log's follower knows
		if p.compromises.Load() != compromises {
			p.mu.Lock()
			p.cut++
			p.mu.Unlock()
			n, err = p.conclude(ctx)
		}
	}
	switch {
	case err != nil:
		err = fmt.Errorf("negotiation %s: %w", n.ContextID, err)
	case n.ContractID == "":
		err = fmt.Errorf("negotiation %s ended as %s: %s %s", n.ContextID, n.Phase, n.Code, n.Reason)
	case under() != before:
		p.mu.Lock()
		p.acrossASwitch++
		p.mu.Unlock()
	}
	p.done(&p.agreed, err)
}

func (p *pressure) conclude(ctx context.Context) (n httpapi.Negotiation, err error) {
	for i := range askAttempts {
		if err = p.buyer.Post(ctx, "/negotiations", httpapi.NegotiateRequest{Peer: "vendorcorp.test"}, &n); err == nil || asError(err).Kind != httpapi.KindUnreachable {
			break
		}
		time.Sleep(time.Duration(i+1) * 250 * time.Millisecond)
	}
	if err != nil {
		return n, err
	}
	id := n.ContextID
	for !negotiation.Phase(n.Phase).Terminal() {
		select {
		case <-ctx.Done():
			return n, errors.New("it has not concluded")
		case <-time.After(pollEvery):
		}
		if err := p.buyer.Get(ctx, "/negotiations/"+url.PathEscape(id), &n); err != nil {
			return n, err
		}
	}
	return n, nil
}

// drillTold are the events that the drill demo tells, see told.
var drillTold = map[string][]string{
	ledger.DrillStarted:  {"BuyerCorp", "VendorCorp"},
	ledger.KeyRotated:    {"BuyerCorp"},
	ledger.IdentityMoved: {"BuyerCorp"},
	ledger.DIDSucceeded:  {"VendorCorp"},
	ledger.DrillStep:     {"BuyerCorp"},
	ledger.DrillFinished: {"BuyerCorp", "VendorCorp"},
}

// drills is the demo: companies at work, and drills meanwhile. It returns how many requests were lost in all.
func (d *demo) drills(ctx context.Context, load *pressure, grace time.Duration, kinds []string) (lost int, err error) {
	// A contract that bears the load.
	d.policy = strings.Replace(demoPolicy, "call_budget: 100", "call_budget: 100000", 1)
	d.needs = strings.Replace(demoNeeds, "{wanted: 20, minimum: 2}", "{wanted: 50000, minimum: 2}", 1)
	if err := d.setUp(ctx); err != nil {
		return 0, err
	}
	if err := d.forDrills(); err != nil {
		return 0, err
	}
	if err := d.startAll(ctx); err != nil {
		return 0, err
	}
	buyer, vendor := httpapi.NewAdminClient(d.path("buyer")), httpapi.NewAdminClient(d.path("vendor"))
	d.story = newStory(d.out, map[string]*httpapi.AdminClient{"BuyerCorp": buyer, "VendorCorp": vendor})
	d.story.told = drillTold
	stopStory := d.story.start(ctx)
	defer stopStory()

	load.buyer = buyer
	n, err := load.conclude(ctx)
	if err != nil {
		return 0, err
	}
	if load.contract = n.ContractID; load.contract == "" {
		return 0, fmt.Errorf("no contract: %s %s %s", n.Phase, n.Code, n.Reason)
	}
	fmt.Fprintf(d.out, "%s is in force. The load begins: a query each %s, a negotiation each %s; under each drill %d queries a second more.\n\n",
		load.contract, load.queryEvery, load.negotiateEvery, load.queries)
	working, enough := context.WithCancel(ctx)
	defer enough()
	worked := make(chan struct{})
	go func() { defer close(worked); load.run(ctx, working) }()
	go load.follow(working)

	c := &cli{dir: d.path("buyer")}
	var reports []*drill.Report
	for _, kind := range kinds {
		rep, raw, err := c.drill(ctx, httpapi.DrillRequest{Peer: "vendorcorp.test", Kind: kind, Live: true, Load: load.queries, GraceSeconds: int(grace / time.Second)})
		if err != nil {
			return 0, fmt.Errorf("%s: %w", kind, err)
		}
		if err := writeReport(d.path("reports"), rep, raw); err != nil {
			return 0, err
		}
		reports = append(reports, rep)
	}
	enough()
	<-worked
	stopStory()
	d.story.rest(ctx)
	return d.drillSummary(load, reports)
}

// forDrills changes what setUp has made: live drills are agreed to.
func (d *demo) forDrills() error {
	for _, name := range []string{"buyer", "vendor"} {
		f, err := os.OpenFile(d.path(name, node.ConfigFile), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(drillDemoConfig)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// drillSummary says what the reports say and counts.
func (d *demo) drillSummary(load *pressure, reports []*drill.Report) (lost int, err error) {
	lost = load.lost
	broken := 0
	fmt.Fprintf(d.out, "\nThe reports, signed by both (%s; treaty verify FILE):\n", d.path("reports"))
	for _, r := range reports {
		fmt.Fprintf(d.out, "\n  %-13s  %d promises held, %d broken, %d not checked  %s.md\n", r.Terms.Kind, r.Held, r.Broken, r.NotChecked, r.ID)
		broken += r.Broken
		for _, c := range r.Checks {
			if c.Result == drill.Broken {
				fmt.Fprintf(&plainWriter{out: d.out}, "    BROKEN  %s, %s: %s\n", c.Phase, drill.Text(c.Name), c.Observed)
			}
		}
		if l := r.Load; l != nil {
			lost += l.Lost
			fmt.Fprintf(d.out, "    %d queries, %d repeated, %d lost; latency in ms:  phase         n      p50      p99      max\n", l.Requests, l.Repeated, l.Lost)
			for _, x := range l.Latencies {
				fmt.Fprintf(d.out, "    %62s %4d %8.1f %8.1f %8.1f\n", x.Phase, x.Count, float64(x.P50)/1000, float64(x.P99)/1000, float64(x.Max)/1000)
			}
		}
	}
	fmt.Fprintf(d.out, "\nThe steady load: %d queries and %d negotiations, %d lost; %d negotiations went on under another DID, %d were ended by the compromise and made again.\n",
		load.asked, load.agreed, load.lost, load.acrossASwitch, load.cut)
	for _, l := range load.losses {
		fmt.Fprintf(&plainWriter{out: d.out}, "  lost: %s\n", l)
	}
	if broken > 0 {
		return lost, &httpapi.Error{Kind: httpapi.KindVerification, Code: "PROMISE_BROKEN", Message: fmt.Sprintf("%d promises were broken", broken)}
	}
	if load.asked == 0 || load.agreed == 0 {
		return lost, errors.New("there was no load")
	}
	return lost, nil
}
