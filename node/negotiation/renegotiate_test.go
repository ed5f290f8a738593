// SPDX-License-Identifier: Apache-2.0

package negotiation_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation"
)

// TestInvariant3_AgreementIsHeldToTheFloorOfTheMoment: when an agreement does not hold any more, in the middle of a conversation,
// nothing is accepted under it, and the buyer takes its need up
// in a conversation that agrees anew.
func TestInvariant3_AgreementIsHeldToTheFloorOfTheMoment(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before, then func(w *world)
		after        func(c metaproto.Candidate) bool
	}{
		"it has expired": {
			func(w *world) {
				w.buyer.changeMeta = func(m *metaproto.Policy) {
					for i := range m.Preferences {
						m.Preferences[i].Limits.AgreementSeconds, m.Preferences[i].Limits.MaxOffers = 600, 8
					}
				}
			},
			func(w *world) { w.Advance(11 * time.Minute) },
			func(metaproto.Candidate) bool { return true },
		},
		"a side wants session keys now": {
			func(w *world) { w.plain() },
			func(w *world) {
				raise(w.vendor, func(m *metaproto.Policy) { m.Floor.SessionKeys = []string{metaproto.SessionKeysFresh} })
				w.buyer.vault = vault("buyer")
			},
			func(c metaproto.Candidate) bool { return c.SessionKeys == metaproto.SessionKeysFresh },
		},
		"a side wants X-Wing now": {
			func(w *world) { w.buyer.hybridID = "" },
			func(w *world) {
				raise(w.vendor, func(m *metaproto.Policy) { m.Floor.HPKESuites = []hpke.Suite{hpke.SuiteXWing} })
				w.buyer.hybridID = hybridOf(w.buyer)
			},
			func(c metaproto.Candidate) bool { return c.HPKESuite == hpke.SuiteXWing },
		},
		"a version is not spoken any more": {
			func(*world) {},
			func(w *world) {
				raise(w.vendor, func(m *metaproto.Policy) {
					m.Floor.ContractSchemas = []string{metaproto.ContractSchemaV1}
					for i := range m.Preferences {
						m.Preferences[i].ContractSchema = metaproto.ContractSchemaV1
					}
				})
			},
			func(c metaproto.Candidate) bool { return c.ContractSchema == metaproto.ContractSchemaV1 },
		},
		"the agreed key has gone": {
			func(w *world) { w.plain(); w.buyer.hybridID, w.vendor.hybridID = "", "" },
			func(w *world) { w.vendor.newKex(w.tb) },
			func(metaproto.Candidate) bool { return true },
		},
		"the buyer's agreed key has gone": {
			func(w *world) { w.plain(); w.buyer.hybridID, w.vendor.hybridID = "", "" },
			func(w *world) { w.buyer.newKex(w.tb) },
			func(metaproto.Candidate) bool { return true },
		},
		"a transport is not spoken any more": {
			func(*world) {},
			func(w *world) {
				raise(w.vendor, func(m *metaproto.Policy) {
					m.Floor.Transports = []string{metaproto.TransportHTTPJSON}
					for i := range m.Preferences {
						m.Preferences[i].Transport = metaproto.TransportHTTPJSON
					}
				})
			},
			func(c metaproto.Candidate) bool { return c.Transport == metaproto.TransportHTTPJSON },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tc.before(w)
			w.serve(w.buyer)
			done := false
			w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
				if env, _ := envelope.Parse(raw, 0); env.Type == envelope.TypeNegotiation && !done {
					done = true
					tc.then(w)
				}
				return deliver(raw)
			}
			id := w.begin()
			first := w.drive(id)
			if first.Phase == negotiation.PhaseInForce || !done {
				t.Fatalf("went on under an agreement that does not hold: %s", first.Phase)
			}
			second := w.reopened(id, 1)
			if second.Phase != negotiation.PhaseInForce {
				t.Fatalf("the next conversation: %s: %s", second.Phase, second.Reason)
			}
			w.agreed()
			if c := second.Agreement().Candidate; !tc.after(c) {
				t.Errorf("%+v", c)
			}
		})
	}
}

// newKex replaces the party's X25519 key at once: neither document nor keyring has the old one any more.
func (p *party) newKex(tb testing.TB) {
	tb.Helper()
	kex, err := did.NewPrivateKey(did.X25519, bytes.Repeat([]byte("n"), 32))
	fatal(tb, err)
	unsigned, err := did.BuildDocument(did.DocumentSpec{
		ID: p.id, Binding: did.MethodSpec{Key: p.signing.Public()}, KeyAgreement: []did.MethodSpec{{Key: kex.Public()}},
	})
	fatal(tb, err)
	raw, err := did.SignDocument(tb.Context(), unsigned, p.binding, start, did.DialectSpec)
	fatal(tb, err)
	doc, err := did.ParseDocument(raw)
	fatal(tb, err)
	p.doc, p.kex, p.kexID = doc, kex, did.KeyID(p.id, "kex", kex.Public())
}

// reopened follows a conversation to the one that takes up its need in the end, and checks every link on the way: one successor each,
// named by both and by both logs.
func (w *world) reopened(id string, times int) negotiation.Session {
	w.tb.Helper()
	ses := w.buyer.session(w.tb, id)
	for n := 1; n <= times; n++ {
		if ses.ReopenedAs == "" {
			w.tb.Fatalf("not taken up: %s %s %s", ses.Phase, ses.Code, ses.Reason)
		}
		next := w.buyer.session(w.tb, ses.ReopenedAs)
		if next.Reopens != ses.ContextID || next.Reopened != n || next.Needs != ses.Needs || next.NotBefore.Before(ses.Started) {
			w.tb.Fatalf("%s (%s %s) was taken up as %+v", ses.ContextID, ses.Code, ses.Reason, next)
		}
		links := map[string]int{}
		for _, e := range w.buyer.events(w.tb) {
			var d ledger.Reopening
			if e.Type != ledger.NegotiationReopened {
				continue
			}
			fatal(w.tb, e.Decode(&d))
			if d.From == ses.ContextID && d.To == next.ContextID && d.Code == ses.Code && d.Attempt == n {
				links[e.Context]++
			}
		}
		if len(links) != 2 || links[ses.ContextID] != 1 || links[next.ContextID] != 1 {
			w.tb.Fatalf("the log's links from %s to %s: %v", ses.ContextID, next.ContextID, links)
		}
		ses = next
	}
	if ses.ReopenedAs != "" {
		w.tb.Fatalf("taken up more than %d times: %s", times, ses.Code)
	}
	return ses
}

// TestReopen_CrashAtEveryCommit: the end of the old conversation and the beginning of the new one are one transaction, and a new
// process goes on with whichever there is. It ends with the second crash in the new conversation, which is one like any other from
// there on: TestInvariant8_RestartInEveryPhase.
func TestReopen_CrashAtEveryCommit(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for n, beyond := 1, 0; beyond < 2; n++ {
			w := newWorld(t)
			changed := false
			w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
				if env, _ := envelope.Parse(raw, 0); env.Type == envelope.TypeNegotiation && !changed {
					changed = true
					raise(w.vendor, func(m *metaproto.Policy) {
						m.Floor.ContractSchemas = []string{metaproto.ContractSchemaV1}
						for i := range m.Preferences {
							m.Preferences[i].ContractSchema = metaproto.ContractSchemaV1
						}
					})
				}
				return deliver(raw)
			}
			id := w.begin()
			commits := 0
			w.buyer.store = &fragile{w.buyer.db, func() (bool, bool) {
				commits++
				return commits == n && !after, commits == n && after
			}}
			w.serve(w.buyer)
			_ = w.buyer.svc.Drive(t.Context(), id) // it may have survived the fault, too
			w.restart(w.buyer)
			ids, err := w.buyer.svc.Unfinished(t.Context())
			fatal(t, err)
			if first := w.buyer.session(t, id); len(ids) > 1 || len(ids) == 0 && first.ReopenedAs == "" || !first.Phase.Terminal() != (first.ReopenedAs == "") {
				t.Fatalf("commit %d, after it %v: unfinished %v, the first %s, taken up as %q", n, after, ids, first.Phase, first.ReopenedAs)
			}
			if w.buyer.session(t, id).ReopenedAs != "" {
				beyond++
			}
			for _, id := range ids {
				w.drive(id)
			}
			if last := w.reopened(id, 1); last.Phase != negotiation.PhaseInForce {
				t.Fatalf("commit %d: %s %s", n, last.Phase, last.Reason)
			}
			w.agreed()
			if commits < n {
				t.Fatalf("there is no commit %d", n)
			}
			w.close()
		}
	}
}

// TestReopen_Bounds: a need is taken up at most twice, and not at all when somebody has decided.
func TestReopen_Bounds(t *testing.T) {
	t.Parallel()
	refuseAll := func(code envelope.Code) func(w *world) {
		return func(w *world) {
			w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
				if env, _ := envelope.Parse(raw, 0); env.Type == envelope.TypeNegotiation {
					return nil, &envelope.Refusal{Code: code, Reason: "refused"}
				}
				return deliver(raw)
			}
		}
	}
	for name, tc := range map[string]struct {
		prepare func(w *world)
		times   int
	}{
		"a key that is gone each time": {refuseAll(envelope.CodeKeyRetired), 2},
		"not trusted":                  {refuseAll(envelope.CodeNotTrusted), 0},
		"malformed":                    {refuseAll(envelope.CodeMalformed), 0},
		"a code of its own":            {refuseAll("POLICY"), 0},
		"nothing in common": {func(w *world) {
			raise(w.vendor, func(m *metaproto.Policy) { m.Floor.ContractSchemas, m.Preferences = []string{"9"}, nil })
		}, 0},
		"trust is gone as well": {func(w *world) {
			refuseAll(envelope.CodeKeyRetired)(w)
			deliver := w.wire
			w.wire = func(raw []byte, on func([]byte) ([]byte, error)) ([]byte, error) {
				if env, _ := envelope.Parse(raw, 0); env.Type == envelope.TypeNegotiation {
					w.buyer.contracts = func(did.DID) error { return errors.New("denied") }
				}
				return deliver(raw, on)
			}
		}, 0},
		"withdrawn": {func(w *world) {
			w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
				env, _ := envelope.Parse(raw, 0)
				if env.Type == envelope.TypeNegotiation {
					fatal(w.tb, w.vendor.svc.Withdraw(context.Background(), env.ContextID, "enough"))
				}
				return nil, errors.New("no answer")
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tc.prepare(w)
			id, began := w.begin(), w.Now()
			w.drive(id)
			last := w.reopened(id, tc.times)
			if !last.Phase.Terminal() || last.Phase == negotiation.PhaseInForce {
				t.Errorf("%s", last.Phase)
			}
			if tc.times == 2 && w.Now().Sub(began) < 12*time.Second {
				t.Errorf("taken up twice within %s", w.Now().Sub(began))
			}
			w.noContract()
		})
	}
}

func hybridOf(p *party) string {
	for _, m := range p.doc.Methods() {
		if m.Key.Equal(p.hybrid.Public()) {
			return m.ID
		}
	}
	return ""
}

// raise puts another change of the policy after those there are.
func raise(p *party, more func(*metaproto.Policy)) {
	before := p.changeMeta
	p.changeMeta = func(m *metaproto.Policy) {
		if before != nil {
			before(m)
		}
		more(m)
	}
}

// BenchmarkRounds is what agreeing on how to talk takes, beside a whole negotiation between two stores on disk.
func BenchmarkRounds(b *testing.B) {
	w := newWorld(b)
	w.vendor.maxOpen, w.vendor.perHour = 1<<20, 1<<20
	w.serve(w.vendor)
	var messages, bytes int
	var meta, start time.Time
	var share time.Duration
	w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
		env, _ := envelope.Parse(raw, 0)
		round := env.Type == envelope.TypeMetaproto
		if !round && meta.IsZero() {
			meta = time.Now()
		}
		reply, err := deliver(raw)
		if round {
			messages, bytes = messages+2, bytes+len(raw)+len(reply)
		}
		return reply, err
	}
	var total time.Duration
	for b.Loop() {
		meta, start = time.Time{}, time.Now()
		id := w.begin()
		if ses := w.drive(id); ses.Phase != negotiation.PhaseInForce {
			b.Fatalf("%s: %s", ses.Phase, ses.Reason)
		}
		share, total = share+meta.Sub(start), total+time.Since(start)
		w.Advance(time.Minute)
	}
	b.ReportMetric(float64(messages)/float64(b.N), "messages")
	b.ReportMetric(float64(bytes)/float64(b.N), "B")
	b.ReportMetric(100*float64(share)/float64(total), "%_of_negotiation")
}
