// SPDX-License-Identifier: Apache-2.0

package negotiation_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/negotiation/message"
	"github.com/treaty-node/treaty/node/store"
)

var errCrash = errors.New("the process is gone")

// fragile is a store that a crash can hit before or after a commit.
type fragile struct {
	store.Store
	crash func() (before, after bool)
}

func (f *fragile) Update(ctx context.Context, fn func(store.Tx) error) error {
	before, after := f.crash()
	if before {
		return errCrash
	}
	if err := f.Store.Update(ctx, fn); err != nil {
		return err
	}
	if after {
		return errCrash
	}
	return nil
}

// TestInvariant8_RestartInEveryPhase crashes each side at each of its commits, before and after it, and starts it anew on
// the same store. The negotiation always comes to the same conclusion.
func TestInvariant8_RestartInEveryPhase(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"buyer", "vendor"} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after commit %v", side, after), func(t *testing.T) {
				t.Parallel()
				for n := 1; ; n++ {
					w := newWorld(t)
					id := w.begin()
					p := w.buyer
					if side == "vendor" {
						p = w.vendor
					}
					commits := 0
					crashed := false
					p.store = &fragile{p.db, func() (bool, bool) {
						commits++
						hit := commits == n
						crashed = crashed || hit
						return hit && !after, hit && after
					}}
					w.serve(p)
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
						reply, err := deliver(raw)
						if crashed && side == "vendor" {
							crashed = false
							w.restart(w.vendor)
						}
						return reply, err
					}
					err := w.buyer.svc.Drive(ctx, id)
					cancel()
					if side == "buyer" && crashed {
						w.restart(w.buyer)
						ids, err := w.buyer.svc.Unfinished(t.Context())
						if err != nil || len(ids) > 1 {
							t.Fatalf("unfinished %v (%v)", ids, err)
						}
					} else if err != nil {
						t.Fatal(err)
					}
					if ses := w.drive(id); ses.Phase != negotiation.PhaseInForce {
						t.Fatalf("crash at commit %d: %s %s", n, ses.Phase, ses.Reason)
					}
					w.agreed()
					w.oneEffect(id)
					if commits < n {
						if n < 5 {
							t.Fatalf("only %d commits", commits)
						}
						return // n was past the last commit
					}
				}
			})
		}
	}
}

// taken are the conversations in which a need was negotiated: the first, and those that took it up again.
func (w *world) taken(id string) (ids []string) {
	for ; id != ""; id = w.buyer.session(w.tb, id).ReopenedAs {
		ids = append(ids, id)
	}
	return ids
}

// oneEffect checks that every message that was kept had its effect once, and that the log's chain holds.
func (w *world) oneEffect(ids ...string) {
	w.tb.Helper()
	for _, p := range []*party{w.buyer, w.vendor} {
		want := map[string]int{}
		var kept []store.EnvelopeRecord
		for _, id := range ids {
			kept = append(kept, p.envelopes(w.tb, id)...)
		}
		for _, e := range kept {
			sender, in := message.Buyer, e.Direction == store.In
			if (p == w.buyer) == in {
				sender = message.Vendor
			}
			body := e.Plaintext
			if env, err := envelope.Parse(e.Bytes, 0); err == nil && env.Type == envelope.TypeMoved {
				m, err := message.ParseMoved(body, env.From)
				fatal(w.tb, err)
				body = m.Body
			}
			if b, err := message.Parse(body, sender); err == nil {
				switch kind := string(b.Intent); {
				case (kind == "propose" || kind == "counter") && sender == message.Buyer && in:
					want[ledger.ProposalReceived]++
				case (kind == "propose" || kind == "counter") && sender == message.Buyer:
					want[ledger.ProposalSent]++
				case kind == "counter" && in:
					want[ledger.OfferReceived]++
				case kind == "counter":
					want[ledger.OfferMade]++
				case kind == "accept" && in:
					want[ledger.AcceptReceived]++
				case kind == "accept":
					want[ledger.AcceptSent]++
				}
			}
		}
		for _, kind := range []string{ledger.ProposalReceived, ledger.ProposalSent, ledger.OfferReceived, ledger.OfferMade, ledger.AcceptReceived, ledger.AcceptSent} {
			if got := p.count(w.tb, kind); got != want[kind] {
				w.tb.Fatalf("%s: %d times in the log, %d messages", kind, got, want[kind])
			}
		}
		for kind, most := range map[string]int{ledger.NegotiationEnded: len(ids), ledger.ContractInForce: 1, ledger.ContractActivated: 1, ledger.ContractBuilt: len(ids)} {
			if n := p.count(w.tb, kind); n > most {
				w.tb.Fatalf("%s: %d times in the log", kind, n)
			}
		}
		if _, err := ledger.VerifyChain(ledger.Genesis(p.born.String()), p.events(w.tb)); err != nil {
			w.tb.Fatal(err)
		}
	}
}

// rapidTB lets a world report to a property.
type rapidTB struct {
	testing.TB
	r *rapid.T
}

func (r rapidTB) Helper()                      {}
func (r rapidTB) Fatal(args ...any)            { r.r.Fatal(args...) }
func (r rapidTB) Fatalf(f string, args ...any) { r.r.Fatalf(f, args...) }
func (r rapidTB) Errorf(f string, args ...any) { r.r.Errorf(f, args...) }
func (r rapidTB) Context() context.Context     { return context.Background() }
func (r rapidTB) Cleanup(func())               {} // the property closes what it opens

// What happens to one message on its way.
var fates = []string{
	"ok", "ok", "ok", "lose request", "lose answer", "twice", "an old request first", "an old answer", "garble request", "garble answer",
	"delay", "long delay", "buyer withdraws", "vendor withdraws", "refused", "sweep",
}

// TestInvariant8_AnyFaultsBothSidesAgree: whatever is lost, doubled, reordered, garbled, late, crashed or withdrawn, the
// negotiation ends, and both sides hold the same contract or none.
func TestInvariant8_AnyFaultsBothSidesAgree(t *testing.T) {
	t.Parallel()
	// A schedule writes to two disks a dozen times. 25 of them is what a run of all tests can spend; a longer look is
	// go test -run AnyFaults -rapid.checks=2000 ./node/negotiation
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := flag.Set("rapid.checks", "25"); err != nil {
			t.Fatal(err)
		}
	}
	root, n := t.TempDir(), 0
	outcomes := map[negotiation.Phase]int{}
	rapid.Check(t, func(r *rapid.T) {
		n++
		dir := filepath.Join(root, fmt.Sprint(n))
		if err := os.Mkdir(dir, 0o700); err != nil {
			r.Fatal(err)
		}
		defer os.RemoveAll(dir)
		w := newWorldIn(rapidTB{t, r}, dir)
		defer w.close() // before the next one is made: files are scarce
		id := w.begin()
		faults := rapid.IntRange(0, 12).Draw(r, "faults") // then the world is in order again
		hit := rapid.SampledFrom([]string{"no", "no", "no", "no", "before", "after"})
		busy := false
		for _, p := range []*party{w.buyer, w.vendor} {
			p.store = &fragile{p.db, func() (bool, bool) {
				if faults == 0 || busy {
					return false, false
				}
				h := hit.Draw(r, "crash")
				if h != "no" {
					faults--
				}
				return h == "before", h == "after"
			}}
			w.serve(p)
		}
		var requests, answers [][]byte
		w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
			send := func(raw []byte) ([]byte, error) {
				reply, err := deliver(raw)
				if errors.Is(err, errCrash) || err != nil && envelope.CodeOf(err) == envelope.CodeInternal {
					w.serve(w.vendor)
				}
				if reply != nil {
					answers = append(answers, reply)
				}
				return reply, err
			}
			requests = append(requests, raw)
			if faults == 0 || busy {
				return send(raw)
			}
			fate := rapid.SampledFrom(fates).Draw(r, "fate")
			if fate != "ok" {
				faults--
			}
			switch fate {
			case "lose request":
				return nil, errors.New("lost")
			case "lose answer":
				_, _ = send(raw)
				return nil, errors.New("lost")
			case "twice":
				first, err := send(raw)
				again, _ := send(raw)
				if err == nil && again != nil && !bytes.Equal(first, again) {
					r.Fatal("two answers to one message")
				}
				return first, err
			case "an old request first":
				_, _ = send(requests[rapid.IntRange(0, len(requests)-1).Draw(r, "which")])
			case "an old answer":
				if len(answers) > 0 {
					return answers[rapid.IntRange(0, len(answers)-1).Draw(r, "which")], nil
				}
			case "garble request":
				bad := bytes.Clone(raw)
				bad[rapid.IntRange(0, len(bad)-1).Draw(r, "where")] ^= 1
				return send(bad)
			case "garble answer":
				if good, err := send(raw); err == nil && len(good) > 0 {
					bad := bytes.Clone(good)
					bad[rapid.IntRange(0, len(bad)-1).Draw(r, "where")] ^= 1
					return bad, nil
				}
			case "delay":
				w.Advance(time.Duration(rapid.IntRange(1, 120).Draw(r, "seconds")) * time.Second)
			case "long delay":
				w.Advance(time.Duration(rapid.IntRange(2, 30).Draw(r, "minutes")) * time.Minute)
			case "buyer withdraws", "vendor withdraws":
				busy = true
				svc := w.buyer.svc
				if fate == "vendor withdraws" {
					svc = w.vendor.svc
				}
				_ = svc.Withdraw(context.Background(), id, "Changed our mind.")
				busy = false
			case "refused":
				return nil, &envelope.Refusal{Code: rapid.SampledFrom(envelope.Codes()).Draw(r, "code"), Reason: "no"}
			case "sweep":
				_ = w.vendor.svc.Sweep(context.Background())
			}
			return send(raw)
		}
		for tries := 0; ; tries++ {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			err := w.buyer.svc.Drive(ctx, id)
			cancel()
			if err == nil {
				break
			}
			if !errors.Is(err, errCrash) || tries > 50 {
				r.Fatalf("Drive: %v after %d tries", err, tries)
			}
			w.serve(w.buyer)
		}
		faults = 0
		w.Advance(24 * time.Hour)
		fatal(w.tb, w.vendor.svc.Sweep(context.Background()))
		fatal(w.tb, w.buyer.svc.Sweep(context.Background()))

		taken := w.taken(id)
		ses := w.buyer.session(w.tb, taken[len(taken)-1])
		outcomes[ses.Phase]++
		if ids, err := w.buyer.svc.Unfinished(context.Background()); err != nil || len(ids) > 0 {
			r.Fatalf("unfinished: %v (%v)", ids, err)
		}
		if ses.Phase == negotiation.PhaseInForce {
			c := w.agreed()
			if slices.Contains(c.Columns, "customer_email") {
				r.Fatal("personal data was granted")
			}
			acceptBy, err := contract.ParseTime(c.AcceptBy)
			fatal(w.tb, err)
			if rec := w.vendor.contractRecords(w.tb)[0]; rec.Created.After(acceptBy.Add(time.Second)) {
				r.Fatal("in force after acceptBy")
			}
		} else {
			w.noContract()
		}
		for _, id := range taken {
			for _, e := range w.vendor.envelopes(w.tb, id) {
				if e.Direction == store.In && w.buyer.sent(w.tb, e) == 0 {
					r.Fatalf("the vendor keeps a message with seq %d that the buyer never made", e.Seq)
				}
			}
		}
		if n := len(w.buyer.equivocations(w.tb)) + len(w.vendor.equivocations(w.tb)); n > 0 {
			r.Fatalf("honest parties equivocated %d times", n)
		}
		w.oneEffect(taken...)
	})
	t.Logf("outcomes: %v", outcomes)
}

// sent counts an envelope among the party's own.
func (p *party) sent(tb testing.TB, e store.EnvelopeRecord) (n int) {
	tb.Helper()
	p.view(tb, func(tx store.Tx) error {
		rec, err := tx.GetEnvelope(p.id.String(), e.Digest)
		if err == nil && rec.Direction == store.Out && bytes.Equal(rec.Bytes, e.Bytes) {
			n++
		}
		return nil
	})
	return n
}

// witnessed is a store whose every commit is looked at.
type witnessed struct {
	store.Store
	look func(err error, again func() error)
}

func (s *witnessed) Update(ctx context.Context, fn func(store.Tx) error) error {
	err := s.Store.Update(ctx, fn)
	s.look(err, func() error {
		return s.Store.Update(ctx, func(tx store.Tx) error { return errors.Join(fn(tx), errCrash) })
	})
	return err
}

// TestInvariant15_EventAndEffectCommitTogether: in a negotiation no commit changes what a company holds without an event, and
// none appends an event that has no effect. What does not commit leaves neither.
func TestInvariant15_EventAndEffectCommitTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.begin()
	commits := map[*party]int{}
	for _, p := range []*party{w.buyer, w.vendor} {
		held, logged := p.holdings(t), len(p.events(t))
		p.store = &witnessed{p.db, func(err error, again func() error) {
			if err != nil {
				t.Error(err)
			}
			effect, n := p.holdings(t), len(p.events(t))
			if effect == held || n == logged {
				t.Errorf("commit %d: holdings changed: %v, %d events more", commits[p], effect != held, n-logged)
			}
			held, logged = effect, n
			commits[p]++
			// The same once more, broken off just before its commit.
			if err := again(); err == nil {
				t.Errorf("commit %d: broken off without an error", commits[p])
			}
			if p.holdings(t) != held || len(p.events(t)) != logged {
				t.Errorf("commit %d: what was broken off has left something", commits[p])
			}
		}}
		w.serve(p)
	}
	if ses := w.drive(id); ses.Phase != negotiation.PhaseInForce {
		t.Fatalf("%s: %s", ses.Phase, ses.Reason)
	}
	w.agreed()
	if commits[w.buyer] < 5 || commits[w.vendor] < 5 {
		t.Errorf("%d commits of the buyer, %d of the vendor", commits[w.buyer], commits[w.vendor])
	}
}

// TestInvariant15_NoUpdateWaitsForAnother: nothing is resolved inside a transaction. The resolver's pins are in the same
// store, whose updates happen one after another: it would wait for itself.
func TestInvariant15_NoUpdateWaitsForAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pin := func(p *party) func(did.DID) error {
		return func(did.DID) error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			return p.db.Update(ctx, func(tx store.Tx) error { return tx.PutSetting("pin", "x") })
		}
	}
	w.buyer.resolving, w.vendor.resolving = pin(w.buyer), pin(w.vendor)
	id := w.begin()
	if ses := w.drive(id); ses.Phase != negotiation.PhaseInForce {
		t.Fatalf("%s: %s", ses.Phase, ses.Reason)
	}
	id = w.begin()
	if err := w.buyer.svc.Withdraw(t.Context(), id, "no"); err != nil {
		t.Fatal(err)
	}
}

// TestInvariant8_ConcurrentDeliveriesHaveOneEffect: the same message many times at once, and two drivers.
func TestInvariant8_ConcurrentDeliveriesHaveOneEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.puppet(w.buyer).agree().ask().take()
	raw := p.proof(p.contract, p.me.binding)
	type answer struct {
		reply []byte
		err   error
	}
	got := make(chan answer)
	for range 8 {
		go func() {
			res, err := w.vendor.svc.Receive(context.Background(), w.buyer.id, raw)
			got <- answer{res.Reply, err}
		}()
	}
	var first []byte
	for range 8 {
		a := <-got
		if a.err != nil && envelope.CodeOf(a.err) != envelope.CodeUnavailable {
			t.Fatal(a.err)
		}
		if a.err == nil {
			if first != nil && !bytes.Equal(first, a.reply) {
				t.Fatal("two answers to one message")
			}
			first = a.reply
		}
	}
	w.vendor.contractInForce(t)
	if n := w.vendor.count(t, ledger.ContractInForce); n != 1 {
		t.Errorf("%d times in force", n)
	}
}
