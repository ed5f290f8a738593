// SPDX-License-Identifier: Apache-2.0

//go:build treaty_crash

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation"
)

func init() { buildTags = "treaty_crash" }

// unreachable says why a process never passes a point. What is not here must be hit, and what is here must not.
var unreachable = map[string]map[string]string{
	buyer: {
		"contract.activate": "the vendor activates", "contract.activated": "the vendor activates",
		"call.reserved": noCalls, "call.executed": noCalls, "call.receipt": noCalls,
	},
	vendor: {
		"envelope.sending": "the vendor answers, it sends nothing of itself", "envelope.answered": "the vendor answers, it is not answered",
		"contract.proof": "the buyer proves first", "contract.received": "the buyer receives the artifact",
		"call.reserved": noCalls, "call.executed": noCalls, "call.receipt": noCalls,
	},
	plane: {
		"envelope.verified": noTalk, "envelope.stored": noTalk, "envelope.sending": noTalk, "envelope.answered": noTalk,
		"contract.proof": noTalk, "contract.activate": noTalk, "contract.activated": noTalk, "contract.received": noTalk,
	},
}

const (
	noCalls = "the data plane answers queries"
	noTalk  = "the data plane does not negotiate"
	maxHits = 40 // of one point in one run; it is passed far less often
	endTime = 45 * time.Second

	deathTime = 5 * time.Second // for the end of a process to be noticed
)

// TestCrash_EveryPoint is invariant 8: at every named commit point, in every process that passes it, and for each time that it
// is passed in one negotiation and one query, the process is killed with SIGKILL and started again. Then the conversation
// goes on to its end, both companies hold the same contract and exactly one, the query can be repeated, both logs verify, and
// the evidence of both sides does.
func TestCrash_EveryPoint(t *testing.T) {
	if _, err := built(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	hits := map[string]map[string]int{}
	t.Run("processes", func(t *testing.T) {
		points := talkPoints()
		for _, w := range []struct {
			victim string
			points []string
		}{{buyer, points[:2]}, {buyer, points[2:]}, {vendor, points}, {plane, points}} {
			t.Run(w.victim, func(t *testing.T) {
				t.Parallel() // each in a world of its own
				victim, c := w.victim, newCrash(t, w.victim)
				for _, point := range w.points {
					n := c.point(point)
					mu.Lock()
					if hits[point] == nil {
						hits[point] = map[string]int{}
					}
					hits[point][victim] = n
					mu.Unlock()
				}
				c.finish()
			})
		}
	})
	printPoints(t, hits)
}

// talkPoints are the points that negotiations and queries pass. Rotations, revocations and deletions pass the others; package node
// crashes there.
func talkPoints() []string {
	return slices.DeleteFunc(node.CrashPoints(), func(p string) bool {
		return strings.HasPrefix(p, "rotation.") || strings.HasPrefix(p, "revocation.") || strings.HasPrefix(p, "deletion.")
	})
}

// printPoints prints every point with what became of it.
func printPoints(t *testing.T, hits map[string]map[string]int) {
	var out strings.Builder
	tw := tabwriter.NewWriter(&out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "POINT\tPROCESS\tRESULT")
	total := 0
	for _, point := range talkPoints() {
		nowhere := true
		for _, victim := range []string{buyer, vendor, plane} {
			n, why := hits[point][victim], unreachable[victim][point]
			switch {
			case n > 0 && why == "":
				fmt.Fprintf(tw, "%s\t%s\tkilled %d times, once at each pass; the companies agree each time\n", point, victim, n)
			case n == 0 && why != "":
				fmt.Fprintf(tw, "%s\t%s\tnot passed: %s\n", point, victim, why)
			default:
				fmt.Fprintf(tw, "%s\t%s\tkilled %d times, expected %q\n", point, victim, n, why)
				t.Errorf("%s in %s: killed %d times; said of it: %q", point, victim, n, why)
			}
			nowhere = nowhere && n == 0
			total += n
		}
		if nowhere {
			t.Errorf("%s is passed nowhere", point)
		}
	}
	_ = tw.Flush()
	t.Logf("%d kills\n%s", total, out.String())
}

// crash is one world in which one process is killed again and again.
type crash struct {
	*world
	victim string
	heads  map[string]ledger.Head
	made   int // contracts so far
}

func newCrash(t *testing.T, victim string) *crash {
	c := &crash{world: newWorld(t), victim: victim, heads: map[string]ledger.Head{}}
	c.start(vendor, plane, buyer)
	for _, name := range []string{buyer, vendor} {
		c.heads[name] = c.genesis(name)
	}
	return c
}

// point kills the victim at each pass of a point, until it is not passed any more, and returns how often it was.
func (c *crash) point(point string) int {
	for n := 1; n <= maxHits; n++ {
		if !c.once(fmt.Sprintf("%s:%d", point, n)) {
			return n - 1
		}
		if c.t.Failed() {
			c.t.FailNow()
		}
	}
	c.t.Fatalf("%s: passed more than %d times in one run", point, maxHits)
	return 0
}

// once arms the victim, makes a contract and asks a question whatever happens to the victim meanwhile, and checks what is
// left. It reports whether the victim was killed.
func (c *crash) once(at string) bool {
	c.t.Helper()
	began := time.Now()
	if err := c.stop(c.victim); err != nil {
		c.t.Fatalf("%s: stopping the %s before it is armed: %v", at, c.victim, err)
	}
	p := c.launch(c.victim, node.CrashEnv+"="+at)
	died, restarted := make(chan struct{}), make(chan error, 1)
	go func() {
		err := <-p.done
		p.done <- err
		close(died)
	}()
	// The victim is up, or has died on the way.
	upErr := c.up(c.victim)
	// From here on, somebody starts it again as soon as it dies.
	end := make(chan struct{})
	go func() {
		select {
		case <-died:
			restarted <- c.again(p)
		case <-end:
			restarted <- nil
		}
	}()
	recovered := func(r ran, what string) {
		c.t.Helper()
		select {
		case <-died:
		case <-time.After(deathTime):
			c.t.Fatalf("%s: %s fails though the %s lives: %v", at, what, c.victim, r)
		}
		if err := <-restarted; err != nil {
			c.t.Fatalf("%s: %v", at, err)
		}
		restarted <- nil
	}
	if upErr != nil {
		recovered(ran{stderr: upErr.Error()}, "starting")
	}

	n := c.conclude(at, recovered)
	first := c.run(buyer, question(n.ContractID)...)
	if first.code != 0 {
		recovered(first, "the query")
	}
	close(end)
	if err := <-restarted; err != nil {
		c.t.Fatalf("%s: %v", at, err)
	}
	killed := c.running[c.victim] != p
	if !killed { // a point can also be passed on the way down
		err := c.stop(c.victim)
		if killed = wasKilled(err); err != nil && !killed {
			c.t.Fatalf("%s: stopping: %v", at, err)
		}
		c.start(c.victim)
	}
	c.ask(n.ContractID)
	c.agree(at, n)
	if killed {
		c.t.Logf("%-24s %s: the companies agree on %s (%v)", at, c.victim, n.ContractID, time.Since(began).Round(10*time.Millisecond))
	}
	return killed
}

// again checks how the process ended and starts it anew, not armed.
func (c *crash) again(p *process) error {
	err := <-p.done
	p.done <- err
	if !wasKilled(err) {
		return fmt.Errorf("the %s ended with %v and not by SIGKILL", c.victim, err)
	}
	delete(c.running, c.victim)
	c.launch(c.victim)
	if err := c.up(c.victim); err != nil {
		return fmt.Errorf("the %s does not start again: %w", c.victim, err)
	}
	return nil
}

func wasKilled(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// conclude negotiates. When the command is cut off, the buyer's node goes on with what it has stored; when it had stored
// nothing yet, the operator asks again.
func (c *crash) conclude(at string, recovered func(ran, string)) httpapi.Negotiation {
	c.t.Helper()
	known := map[string]bool{}
	for _, n := range c.negotiations(buyer) {
		known[n.ContextID] = true
	}
	r := c.run(buyer, "negotiate", "--peer", domains[vendor], "--json")
	if r.code == 0 {
		return c.concluded(at, decodeInto[httpapi.Negotiation](c.t, r.stdout).ContextID)
	}
	recovered(r, "the negotiation")
	for _, n := range c.negotiations(buyer) {
		if !known[n.ContextID] {
			return c.concluded(at, n.ContextID)
		}
	}
	return c.concluded(at, c.negotiate().ContextID)
}

// concluded waits until the buyer's conversation has ended; it has to end with a contract in force.
func (c *crash) concluded(at, contextID string) (n httpapi.Negotiation) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), endTime)
	defer cancel()
	for {
		// The victim may be the buyer, and on its way down or up.
		err := c.admin(buyer).Get(ctx, "/negotiations/"+contextID, &n)
		if err == nil && negotiation.Phase(n.Phase).Terminal() {
			break
		}
		select {
		case <-ctx.Done():
			c.t.Fatalf("%s: the conversation %s has not ended: phase %q (%v)", at, contextID, n.Phase, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	if n.Phase != string(negotiation.PhaseInForce) {
		c.t.Fatalf("%s: the conversation %s ended as %s: %s %s", at, contextID, n.Phase, n.Code, n.Reason)
	}
	return n
}

// agree checks that both companies hold the same contract of this conversation, exactly one, and tell the same of it.
func (c *crash) agree(at string, n httpapi.Negotiation) {
	c.t.Helper()
	c.made++
	b, v := c.contracts(buyer, n.ContextID), c.contracts(vendor, n.ContextID)
	if len(b) != 1 || len(v) != 1 {
		c.t.Fatalf("%s: of conversation %s the buyer has %d contracts, the vendor %d", at, n.ContextID, len(b), len(v))
	}
	if b[0].ID != n.ContractID || v[0].ID != n.ContractID || b[0].State != v[0].State || b[0].State != "in_force" || !b[0].Digest.Equal(v[0].Digest) {
		c.t.Errorf("%s: the buyer holds %s, %s, %s; the vendor %s, %s, %s", at, b[0].ID, b[0].State, b[0].Digest, v[0].ID, v[0].State, v[0].Digest)
	}
	if !bytes.Equal(b[0].Contract, v[0].Contract) || !bytes.Equal(b[0].Activation, v[0].Activation) {
		c.t.Errorf("%s: the two hold different bytes:\n%s%s\n%s%s", at, b[0].Contract, b[0].Activation, v[0].Contract, v[0].Activation)
	}
	if x, y := len(c.contracts(buyer, "")), len(c.contracts(vendor, "")); x != c.made || y != c.made {
		c.t.Errorf("%s: %d contracts were made; the buyer has %d, the vendor %d", at, c.made, x, y)
	}
	for _, name := range []string{buyer, vendor} {
		var list []ledger.Event
		list, c.heads[name] = c.events(name, c.heads[name])
		for _, kind := range []string{ledger.ContractActivated, ledger.ContractInForce, ledger.NegotiationEnded} {
			got := len(slices.DeleteFunc(slices.Clone(list), func(e ledger.Event) bool { return e.Type != kind || e.Context != n.ContextID }))
			if got != 1 {
				c.t.Errorf("%s: the %s's log has %d events %s, want 1", at, name, got, kind)
			}
		}
		c.verifyEvidence(name, n.ContractID)
	}
}

// finish checks both logs from their beginning, and that every call is counted, logged and has its receipt.
func (c *crash) finish() {
	c.t.Helper()
	c.events(buyer, c.genesis(buyer))
	list, _ := c.events(vendor, c.genesis(vendor))
	calls := 0
	for _, e := range list {
		if e.Type == ledger.CallAnswered || e.Type == ledger.CallRefused {
			calls++
		}
	}
	if receipts := count(c.t, c.path(vendor, node.StoreFile), "SELECT count(*) FROM receipts"); receipts != calls {
		c.t.Errorf("%d calls in the vendor's log, %d receipts", calls, receipts)
	}
	if counted := count(c.t, c.path(vendor, node.StoreFile), "SELECT sum(calls) FROM usage"); counted < calls {
		c.t.Errorf("%d calls in the vendor's log, %d taken out of budgets", calls, counted)
	}
}

// TestCrash_Withdraw: with the vendor gone in the middle, the buyer's operator can end the conversation; the vendor learns it,
// or ends by itself, and neither side has a contract.
func TestCrash_Withdraw(t *testing.T) {
	w := newWorld(t)
	w.start(vendor, plane, buyer)
	for _, at := range []string{"envelope.verified:1", "envelope.verified:3", "envelope.stored:3", "envelope.stored:4"} {
		if err := w.stop(vendor); err != nil {
			t.Fatal(err)
		}
		p := w.launch(vendor, node.CrashEnv+"="+at)
		if err := w.up(vendor); err != nil {
			t.Fatal(err)
		}
		n := decodeInto[httpapi.Negotiation](t, w.must(0, buyer, "negotiate", "--peer", domains[vendor], "--no-wait", "--json").stdout)
		err := <-p.done
		p.done <- err
		if !wasKilled(err) {
			t.Fatalf("%s: the vendor ended with %v", at, err)
		}
		delete(w.running, vendor)
		got := decodeInto[httpapi.Negotiation](t, w.must(0, buyer, "negotiations", "withdraw", n.ContextID, "--reason", "no longer needed", "--json").stdout)
		if got.Phase != "withdrawn" || got.Reason != "no longer needed" {
			t.Errorf("%s: phase %s: %s", at, got.Phase, got.Reason)
		}
		w.must(3, buyer, "negotiations", "withdraw", n.ContextID) // final states are final
		w.start(vendor)
		for _, name := range []string{buyer, vendor} {
			if got := w.contracts(name, ""); len(got) != 0 {
				t.Errorf("%s: the %s holds %d contracts", at, name, len(got))
			}
		}
	}
	w.ask(w.negotiate().ContractID)
}

// TestCrash_Replace: wherever a process is killed around the commit in which one contract takes another one's place, one of the two is in
// force at the vendor when it is up again, never both and never neither; in the end it is the new one, at both, and the data plane
// refuses the old one.
func TestCrash_Replace(t *testing.T) {
	w := newWorld(t)
	w.start(vendor, plane, buyer)
	id := w.negotiate().ContractID
	for _, kill := range []struct{ victim, at string }{
		{vendor, "contract.activate:1"}, {vendor, "contract.activated:1"}, {buyer, "contract.proof:1"}, {buyer, "contract.received:1"},
	} {
		if err := w.stop(kill.victim); err != nil {
			t.Fatal(err)
		}
		p := w.launch(kill.victim, node.CrashEnv+"="+kill.at)
		if err := w.up(kill.victim); err != nil {
			t.Fatal(err)
		}
		w.run(buyer, "contracts", "renew", id, "--no-wait")
		err := <-p.done
		p.done <- err
		if !wasKilled(err) {
			t.Fatalf("%v: ended with %v", kill, err)
		}
		delete(w.running, kill.victim)
		stands := "SELECT count(*) FROM contracts c WHERE state = 'in_force' AND NOT EXISTS (SELECT 1 FROM revocations WHERE contract_id = c.id)"
		if n := count(t, w.path(vendor, node.StoreFile), stands); n != 1 {
			t.Errorf("%v: %d contracts are in force at the vendor", kill, n)
		}
		w.start(kill.victim)
		c := &crash{world: w}
		n := c.concluded(kill.at, w.negotiations(buyer)[0].ContextID)
		w.refused("CONTRACT_REVOKED", buyer, question(id)...)
		w.ask(n.ContractID)
		for _, name := range []string{buyer, vendor} {
			old := decodeInto[httpapi.Contract](t, w.must(0, name, "contracts", "show", id, "--json").stdout)
			if old.State != "revoked" || old.ReplacedBy != n.ContractID {
				t.Errorf("%v: %s: the old contract is %s, replaced by %q", kill, name, old.State, old.ReplacedBy)
			}
			w.verifyEvidence(name, id)
			w.verifyEvidence(name, n.ContractID)
		}
		id = n.ContractID
	}
}

func count(t *testing.T, path, query string) (n int) {
	t.Helper()
	if err := openStore(t, path).QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
