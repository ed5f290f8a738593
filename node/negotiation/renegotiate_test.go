// SPDX-License-Identifier: Apache-2.0

package negotiation_test

import (
	"testing"
	"time"

	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/negotiation"
)

// TestInvariant3_AgreementIsHeldToTheFloorOfTheMoment: when an agreement does not hold any more, in the middle of a conversation,
// nothing is accepted under it, and the next conversation agrees anew.
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
			func(w *world) { w.advance(11 * time.Minute) },
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
			first := w.drive(w.begin())
			if first.Phase == negotiation.PhaseInForce || !done {
				t.Fatalf("went on under an agreement that does not hold: %s", first.Phase)
			}
			second := w.drive(w.begin())
			if second.Phase != negotiation.PhaseInForce {
				t.Fatalf("the next conversation: %s: %s", second.Phase, second.Reason)
			}
			if c := second.Agreement().Candidate; !tc.after(c) {
				t.Errorf("%+v", c)
			}
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
		w.advance(time.Minute)
	}
	b.ReportMetric(float64(messages)/float64(b.N), "messages")
	b.ReportMetric(float64(bytes)/float64(b.N), "B")
	b.ReportMetric(100*float64(share)/float64(total), "%_of_negotiation")
}
