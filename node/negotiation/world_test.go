// SPDX-License-Identifier: Apache-2.0

package negotiation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/negotiation/policy"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/store/sqlite"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

const (
	vendorPolicy = `
version: 1
max_offers: 4
datasets:
  orders:
    purposes: any
    operations: [avg, sum, count]
    retention_days: 90
    min_group_size: 5
    call_budget: 1000
    offer_ttl_seconds: 300
    accept_by_seconds: 300
`
	buyerNeeds = `
version: 1
dataset: orders
columns: {required: [region, order_value], optional: [customer_email]}
operations: [avg, count]
purpose: Regional pricing review
retention_days: {wanted: 365, minimum: 30}
`
	lifetime = 4 * time.Minute
	deadline = 20 * time.Minute
	skew     = 30 * time.Second
)

// party is a company: keys from a seed, a document, a store of its own, and a service over it.
type party struct {
	id, born                         did.DID // of now, and of the beginning
	doc                              *did.Document
	binding, second, human, recovery did.Signer
	kex, hybrid                      did.PrivateKey
	kexID, hybridID                  string
	vault                            negotiation.Vault
	path                             string
	db                               *sqlite.DB
	store                            store.Store // db, or what a test puts before it
	svc                              *negotiation.Service
	decider                          negotiation.Decider
	drafter                          negotiation.Drafter
	adviser                          negotiation.Adviser
	reader                           negotiation.Reader
	amendments                       negotiation.Amendments
	contracts                        func(did.DID) error
	maxOpen, perHour                 int
	changeMeta                       func(*metaproto.Policy)
	resolving                        func(did.DID) error
	decisions                        int
	signing                          did.PrivateKey
	former                           map[did.DID]*did.Document // deactivated, see move
	oldKex                           map[string]did.PrivateKey
	stale                            map[did.DID]bool // cached as it was before the move
}

// world is two companies and an outsider, a clock that stands still, and a wire between them.
type world struct {
	*clock.Fake
	tb                   testing.TB
	mu                   sync.Mutex
	parties              map[did.DID]*party
	gone                 map[did.DID]*did.Station // of DIDs with a successor
	buyer, vendor, third *party
	first                did.DID // a party had it before it moved
	// wire carries a message of the buyer; deliver hands bytes to the vendor. nil: faithfully.
	wire func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error)
}

func (w *world) sleep(ctx context.Context, d time.Duration) error {
	w.Advance(d)
	return ctx.Err()
}

// Resolve implements negotiation.Resolver with real documents.
type resolverOf struct {
	w  *world
	of *party
}

func (r resolverOf) Resolve(_ context.Context, id did.DID) (*did.Document, error) {
	if r.of.resolving != nil {
		if err := r.of.resolving(id); err != nil {
			return nil, err
		}
	}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if gone := r.w.gone[id]; gone != nil && !r.of.stale[id] {
		return nil, &resolver.Error{Code: resolver.CodeDeactivated, DID: id, Document: gone.Gone, Successor: gone.Gone.SuccessorDID()}
	} else if gone != nil {
		return gone.Document, nil
	}
	if p := r.w.parties[id]; p != nil {
		return p.doc, nil
	}
	return nil, errors.New("no such DID")
}

func fatal(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func newParty(tb testing.TB, name string) *party {
	tb.Helper()
	key := func(typ did.KeyType, role string) did.PrivateKey {
		seed := bytes.Repeat([]byte(name[:1]+role[:1]), 16)
		k, err := did.NewPrivateKey(typ, seed)
		fatal(tb, err)
		return k
	}
	signing, second, human, recovery := key(did.Ed25519, "signing"), key(did.Ed25519, "extra"), key(did.Ed25519, "human"), key(did.Ed25519, "recovery")
	p := &party{kex: key(did.X25519, "kex"), hybrid: key(did.XWing, "xwing"), vault: vault(name), signing: signing}
	var err error
	p.id, err = did.Parse("did:wba:" + name + ".test:agents:steward:e1_" + signing.Public().Thumbprint())
	fatal(tb, err)
	unsigned, err := did.BuildDocument(did.DocumentSpec{
		ID: p.id, Binding: did.MethodSpec{Key: signing.Public()}, Signing: []did.MethodSpec{{Key: second.Public()}},
		KeyAgreement: []did.MethodSpec{{Key: p.kex.Public()}, {Key: p.hybrid.Public()}}, Human: []did.MethodSpec{{Key: human.Public()}}, Recovery: []did.MethodSpec{{Key: recovery.Public()}},
	})
	fatal(tb, err)
	signer := func(role string, k did.PrivateKey) did.Signer {
		s, err := did.NewSigner(did.KeyID(p.id, role, k.Public()), k)
		fatal(tb, err)
		return s
	}
	p.binding, p.second, p.human, p.recovery = signer("signing", signing), signer("signing", second), signer("human", human), signer("recovery", recovery)
	raw, err := did.SignDocument(tb.Context(), unsigned, p.binding, start.Add(-time.Hour), did.DialectSpec)
	fatal(tb, err)
	p.doc, err = did.ParseDocument(raw)
	fatal(tb, err)
	_, err = p.doc.Verify(start)
	fatal(tb, err)
	p.kexID, p.hybridID = did.KeyID(p.id, "kex", p.kex.Public()), did.KeyID(p.id, "kex", p.hybrid.Public())
	p.born = p.id
	return p
}

// catalogue is the vendor's decider: the policy of vendorPolicy over one schema.
type catalogue struct {
	w      *world
	policy *policy.Vendor
	schema *contract.Schema
}

func (c *catalogue) Decide(_ context.Context, ask negotiation.Ask, now time.Time) (policy.Outcome, error) {
	c.w.vendor.decisions++
	return c.policy.Decide(ask.Scope, c.terms(ask, now), ask.Offers), nil
}

func (c *catalogue) Narrow(ask negotiation.Ask, draft contract.Scope, now time.Time) policy.Outcome {
	return c.policy.Narrow(ask.Scope, draft, c.terms(ask, now))
}

func (c *catalogue) terms(ask negotiation.Ask, now time.Time) policy.Terms {
	t := policy.Terms{
		Classes:   map[string]string{"region": "public", "order_value": "business", "order_date": "public", "customer_email": "pii"},
		DataPlane: contract.DataPlane{DID: "did:wba:data.vendor.test", URL: "https://data.vendor.test/mcp"}, Version: ask.Version, Replaces: ask.Replaces, Now: now,
	}
	if ask.Scope.Dataset == "orders" {
		t.Schema = c.schema
	}
	return t
}

func newWorld(tb testing.TB) *world { return newWorldIn(tb, tb.TempDir()) }

func newWorldIn(tb testing.TB, dir string) *world {
	tb.Helper()
	w := &world{tb: tb, Fake: clock.NewFake(start), parties: map[did.DID]*party{}, gone: map[did.DID]*did.Station{}}
	w.buyer, w.vendor, w.third = newParty(tb, "buyer"), newParty(tb, "vendor"), newParty(tb, "other")
	rules, err := policy.ParseVendor([]byte(vendorPolicy))
	fatal(tb, err)
	schema, err := contract.NewSchema("orders", "", []contract.Column{
		{Name: "region", Type: "text"}, {Name: "order_value", Type: "decimal(10,2)"}, {Name: "order_date", Type: "date"}, {Name: "customer_email", Type: "text"},
	})
	fatal(tb, err)
	w.vendor.decider = &catalogue{w, rules, schema}
	// The two sides want different things, so that a counter-proposal is needed.
	w.vendor.changeMeta = func(m *metaproto.Policy) {
		m.Floor.LimitsMax.MaxOffers = 8
		for i := range m.Preferences {
			m.Preferences[i].Limits.MaxOffers = 8
		}
	}
	for name, p := range map[string]*party{"buyer": w.buyer, "vendor": w.vendor, "other": w.third} {
		w.parties[p.id] = p
		p.path = filepath.Join(dir, name+".db")
	}
	for _, p := range []*party{w.buyer, w.vendor} {
		p.db, err = sqlite.Create(tb.Context(), p.path, sqlite.Options{Node: p.id.String(), Process: "node", Clock: w})
		fatal(tb, err)
		p.store = p.db
		w.serve(p)
	}
	tb.Cleanup(w.close)
	return w
}

func (w *world) close() {
	w.buyer.db.Close()
	w.vendor.db.Close()
}

// keys are those of the moment.
func (p *party) keys() negotiation.Keys {
	ring := map[string]did.PrivateKey{p.kexID: p.kex, p.hybridID: p.hybrid}
	maps.Copy(ring, p.oldKex)
	return negotiation.Keys{
		Binding: p.binding, KeyAgreementKID: p.kexID, HybridKID: p.hybridID, Vault: p.vault, Document: p.doc, Opener: hpke.NewKeyring(ring),
		Owns:   func(id did.DID) bool { return p.former[id] != nil },
		Former: func(id did.DID) *did.Document { return p.former[id] },
	}
}

// serve makes a new service over the party's store, as a restart does.
func (w *world) serve(p *party) { p.svc = w.another(p) }

// another is one more service over the party's store.
func (w *world) another(p *party) *negotiation.Service {
	return negotiation.New(negotiation.Config{
		Keys:  p.keys,
		Store: p.store, Resolver: resolverOf{w, p}, Lines: w.lines(p),
		Contracts: func(id did.DID) error {
			if p.contracts != nil {
				return p.contracts(id)
			}
			return nil
		},
		Meta: func() metaproto.Policy {
			m := metaproto.DefaultPolicy()
			if p.changeMeta != nil {
				p.changeMeta(&m)
			}
			return m
		},
		Decider: p.decider, Drafter: p.drafter, Adviser: p.adviser, Reader: p.reader, Connector: w, Amendments: p.amendments, Now: w.Now, Skew: skew, Lifetime: lifetime, Deadline: deadline, Sleep: w.sleep, MaxOpen: p.maxOpen, PerHour: p.perHour,
	})
}

// restart closes the store and opens it again.
func (w *world) restart(p *party) {
	w.tb.Helper()
	fatal(w.tb, p.db.Close())
	var err error
	p.db, err = sqlite.OpenExisting(context.Background(), p.path, sqlite.Options{Node: p.id.String(), Process: "node", Clock: w})
	fatal(w.tb, err)
	p.store = p.db
	w.serve(p)
}

// Connect implements negotiation.Connector: whoever is not the peer sends.
func (w *world) Connect(_ context.Context, peer did.DID) (negotiation.Route, error) {
	if did.SameSubject(peer, w.buyer.id) {
		return &route{w, w.vendor, w.buyer}, nil
	}
	return &route{w, w.buyer, w.vendor}, nil
}

type route struct {
	w        *world
	from, to *party
}

func (r *route) Schema(dataset string) *contract.Schema {
	if dataset != "orders" {
		return nil
	}
	if c, ok := r.w.vendor.decider.(*catalogue); ok {
		return c.schema
	}
	return nil
}

func (r *route) Send(ctx context.Context, _, _, _ string, raw []byte) (negotiation.Answer, error) {
	deliver := func(raw []byte) ([]byte, error) {
		res, err := r.to.svc.Receive(ctx, r.from.id, raw)
		if err != nil {
			return nil, carried(err)
		}
		if res.Phase == negotiation.PhaseDeciding && res.Reply == nil {
			return nil, r.to.svc.Conclude(ctx, res.ContextID)
		}
		return res.Reply, nil
	}
	if r.w.wire == nil || r.from != r.w.buyer {
		reply, err := deliver(raw)
		return negotiation.Answer{Envelope: reply}, err
	}
	reply, err := r.w.wire(raw, deliver)
	return negotiation.Answer{Envelope: reply}, err
}

// carried is what is left of an error on the other side of a network.
func carried(err error) error {
	var r *envelope.Refusal
	if errors.As(err, &r) {
		return &envelope.Refusal{Code: r.Code, Reason: r.Reason}
	}
	return errors.New("internal error over there")
}

// begin starts a negotiation of the buyer's service.
func (w *world) begin() string {
	w.tb.Helper()
	v, err := w.vendor.doc.Verify(w.Now())
	fatal(w.tb, err)
	id, err := w.buyer.svc.Start(context.Background(), w.vendor.doc, v, buyerNeeds)
	fatal(w.tb, err)
	return id
}

// drive runs the buyer's side to its end.
func (w *world) drive(id string) negotiation.Session {
	w.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fatal(w.tb, w.buyer.svc.Drive(ctx, id))
	return w.buyer.session(w.tb, id)
}

func (p *party) view(tb testing.TB, f func(store.Tx) error) {
	tb.Helper()
	fatal(tb, p.db.View(context.Background(), f))
}

// find looks for a conversation under every DID that the party has had.
func (p *party) find(tx store.Tx, id string) (c store.Conversation, err error) {
	owns, err := tx.Lineage(p.id.String())
	for _, own := range owns {
		if c, err = tx.FindConversation(own, id); err == nil {
			return c, nil
		}
	}
	return c, err
}

func (p *party) session(tb testing.TB, id string) (ses negotiation.Session) {
	tb.Helper()
	p.view(tb, func(tx store.Tx) error {
		conv, err := p.find(tx, id)
		if err != nil {
			return err
		}
		return json.Unmarshal(conv.State, &ses)
	})
	return ses
}

func (p *party) envelopes(tb testing.TB, id string) (list []store.EnvelopeRecord) {
	tb.Helper()
	p.view(tb, func(tx store.Tx) error {
		conv, err := p.find(tx, id)
		if errors.Is(err, store.ErrNotFound) {
			return nil // it never heard of it
		}
		if err != nil {
			return err
		}
		list, err = tx.ListEnvelopes(conv.Own, conv.Peer, conv.ContextID)
		return err
	})
	return list
}

func (p *party) contractRecords(tb testing.TB) (list []store.ContractRecord) {
	tb.Helper()
	p.view(tb, func(tx store.Tx) (err error) {
		list, err = tx.ListContracts(store.ContractFilter{})
		return err
	})
	return list
}

func (p *party) equivocations(tb testing.TB) (list []store.Equivocation) {
	tb.Helper()
	p.view(tb, func(tx store.Tx) (err error) {
		list, err = tx.ListEquivocations(p.id.String(), "")
		return err
	})
	return list
}

func (p *party) events(tb testing.TB) (list []ledger.Event) {
	tb.Helper()
	p.view(tb, func(tx store.Tx) (err error) {
		list, err = tx.Events(0, store.MaxList)
		return err
	})
	return list
}

func (p *party) count(tb testing.TB, kind string) (n int) {
	tb.Helper()
	for _, e := range p.events(tb) {
		if e.Type == kind {
			n++
		}
	}
	return n
}

// dump is everything the party holds, and its log but for refusals.
func (p *party) dump(tb testing.TB) string {
	tb.Helper()
	b := bytes.NewBufferString(p.holdings(tb))
	for _, e := range p.events(tb) {
		if e.Type != ledger.MessageRefused {
			fmt.Fprintf(b, "%s %s %s\n", e.Type, e.Context, e.Data)
		}
	}
	return b.String()
}

// holdings is everything the party holds beside its log.
func (p *party) holdings(tb testing.TB) string {
	tb.Helper()
	var b bytes.Buffer
	p.view(tb, func(tx store.Tx) error {
		convs, err := tx.ListConversations(store.ConversationFilter{})
		if err != nil {
			return err
		}
		for _, c := range convs {
			fmt.Fprintf(&b, "%+v\n", c)
			list, err := tx.ListEnvelopes(c.Own, c.Peer, c.ContextID)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "%+v\n", list)
		}
		contracts, err := tx.ListContracts(store.ContractFilter{})
		fmt.Fprintf(&b, "%+v\n", contracts)
		return err
	})
	fmt.Fprintf(&b, "%+v\n", p.equivocations(tb))
	return b.String()
}

// agreed checks that both hold the same contract in force.
func (w *world) agreed() *contract.Contract {
	w.tb.Helper()
	b, v := w.buyer.contractRecords(w.tb), w.vendor.contractRecords(w.tb)
	if len(b) != 1 || len(v) != 1 || b[0].State != store.InForce || v[0].State != store.InForce ||
		!bytes.Equal(b[0].Bytes, v[0].Bytes) || !bytes.Equal(b[0].Activation, v[0].Activation) {
		w.tb.Fatalf("the buyer holds %d contracts, the vendor %d, or they differ", len(b), len(v))
	}
	c, err := contract.Parse(b[0].Bytes)
	fatal(w.tb, err)
	fatal(w.tb, c.VerifyProofs(w.buyer.doc, w.vendor.doc))
	a, err := contract.ParseActivation(b[0].Activation)
	fatal(w.tb, err)
	fatal(w.tb, a.Verify(c, w.vendor.doc))
	return c
}

func (w *world) noContract() {
	w.tb.Helper()
	if b, v := w.buyer.contractRecords(w.tb), w.vendor.contractRecords(w.tb); len(b)+len(v) != 0 {
		w.tb.Fatalf("the buyer holds %d contracts, the vendor %d; want none", len(b), len(v))
	}
}

func (w *world) code(err error, want envelope.Code) {
	w.tb.Helper()
	if got := envelope.CodeOf(err); got != want {
		w.tb.Fatalf("got %q (%v), want %s", got, err, want)
	}
}
