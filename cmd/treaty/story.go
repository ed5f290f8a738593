// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/ledger"
)

// told are the events that make the story, each with the side that tells it: what one side sends, the other receives, and
// once is enough. Every one of them has to happen.
var told = map[string][]string{
	ledger.DIDResolved:       {"BuyerCorp", "VendorCorp"},
	ledger.DIDVerified:       {"BuyerCorp", "VendorCorp"},
	ledger.CardVerified:      {"BuyerCorp"},
	ledger.MetaprotoSent:     {"BuyerCorp", "VendorCorp"},
	ledger.MetaprotoAgreed:   {"BuyerCorp", "VendorCorp"},
	ledger.ProposalSent:      {"BuyerCorp"},
	ledger.OfferMade:         {"VendorCorp"},
	ledger.AcceptSent:        {"BuyerCorp"},
	ledger.ContractBuilt:     {"BuyerCorp", "VendorCorp"},
	ledger.ContractProof:     {"VendorCorp"},
	ledger.ContractActivated: {"VendorCorp"},
	ledger.ContractInForce:   {"BuyerCorp", "VendorCorp"},
	ledger.QuerySent:         {"BuyerCorp"},
	ledger.CallAnswered:      {"data plane"},
	ledger.QueryAnswered:     {"BuyerCorp"},
	ledger.CallRefused:       {"data plane"},
	ledger.QueryRefused:      {"BuyerCorp"},
}

// story prints the companies' logs as they grow, in order of time.
type story struct {
	out   io.Writer
	logs  map[string]*httpapi.AdminClient
	told  map[string][]string
	mu    sync.Mutex
	after map[string]uint64
	queue []scene
	seen  []scene
	lines int
}

type scene struct {
	who   string
	event ledger.Event
}

func newStory(out io.Writer, logs map[string]*httpapi.AdminClient) *story {
	return &story{out: out, logs: logs, told: told, after: map[string]uint64{}}
}

const (
	storyPoll   = 100 * time.Millisecond
	storySettle = 300 * time.Millisecond // how long an event waits for earlier ones of the other log
)

// start follows the logs until the returned function is called.
func (s *story) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			s.poll(ctx, time.Now().Add(-storySettle))
			select {
			case <-ctx.Done():
			case <-time.After(storyPoll):
			}
		}
	}()
	return func() { cancel(); <-done }
}

// poll reads what is new and tells what happened up to the given time.
func (s *story) poll(ctx context.Context, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for company, log := range s.logs {
		_ = log.Events(ctx, s.after[company], false, func(e ledger.Event) error {
			s.after[company] = e.Seq
			who := company
			if e.Process == "dataplane" {
				who = "data plane"
			}
			s.queue = append(s.queue, scene{who, e})
			return nil
		})
	}
	slices.SortStableFunc(s.queue, func(a, b scene) int { return a.event.At().Compare(b.event.At()) })
	for len(s.queue) > 0 && !s.queue[0].event.At().After(until) {
		sc := s.queue[0]
		s.queue = s.queue[1:]
		s.seen = append(s.seen, sc)
		if slices.Contains(s.told[sc.event.Type], sc.who) {
			s.lines++
			fmt.Fprintf(s.out, "%3d  %-10s  %s\n", s.lines, sc.who, ledger.Describe(sc.event))
		}
	}
}

// await tells everything up to the first event of the type.
func (s *story) await(ctx context.Context, kind string) (ledger.Event, error) {
	for {
		s.poll(ctx, time.Now().Add(-storySettle))
		s.mu.Lock()
		i := slices.IndexFunc(s.seen, func(sc scene) bool { return sc.event.Type == kind })
		s.mu.Unlock()
		if i >= 0 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.seen[i].event, nil
		}
		select {
		case <-ctx.Done():
			return ledger.Event{}, fmt.Errorf("no %s in the log: %w", kind, ctx.Err())
		case <-time.After(storyPoll):
		}
	}
}

// rest tells everything that there is by now.
func (s *story) rest(ctx context.Context) { s.poll(ctx, time.Now()) }

// complete says which part of the story is missing: each event told by each side, and at least one counter-proposal.
func (s *story) complete() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var missing []string
	for kind, sides := range s.told {
		for _, who := range sides {
			if !slices.ContainsFunc(s.seen, func(sc scene) bool { return sc.event.Type == kind && sc.who == who }) {
				missing = append(missing, who+": "+kind)
			}
		}
	}
	counter := slices.ContainsFunc(s.seen, func(sc scene) bool {
		var r ledger.Round
		return sc.who == "VendorCorp" && sc.event.Type == ledger.MetaprotoSent && sc.event.Decode(&r) == nil && r.Status == "negotiating"
	})
	if !counter {
		missing = append(missing, "VendorCorp: a counter-proposal in the rounds")
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("missing from the logs: %s", strings.Join(missing, ", "))
	}
	return nil
}
