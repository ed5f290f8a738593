// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"context"
	"errors"
	"math/big"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
	"github.com/treaty-node/treaty/node/dataset/sample"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/store/sqlite"
)

// start is when these tests begin.
var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

const purpose = "quarterly market report"

// company is a DID with its document and binding key.
type company struct {
	doc    *did.Document
	signer did.Signer
}

func (c company) id() string { return c.doc.ID().String() }

func (c company) caller() httpsig.Caller {
	return httpsig.Caller{DID: c.doc.ID(), KeyID: c.signer.KeyID(), Document: c.doc}
}

func newCompany(t testing.TB, domain string, seed byte, bare bool) company {
	t.Helper()
	key, err := did.NewPrivateKey(did.Ed25519, bytes.Repeat([]byte{seed}, 32))
	if err != nil {
		t.Fatal(err)
	}
	text := "did:wba:" + domain
	if !bare {
		text += ":agents:a:e1_" + key.Public().Thumbprint()
	}
	id, err := did.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := did.BuildDocument(did.DocumentSpec{ID: id, Binding: did.MethodSpec{Key: key.Public()}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := did.NewSigner(did.KeyID(id, "signing", key.Public()), key)
	if err != nil {
		t.Fatal(err)
	}
	if raw, err = did.SignDocument(t.Context(), raw, s, start.Add(-time.Hour), did.DialectSpec); err != nil {
		t.Fatal(err)
	}
	doc, err := did.ParseDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	return company{doc, s}
}

// fakeSource is the engine: it records every read and answers one group, unless told otherwise.
type fakeSource struct {
	mu     sync.Mutex
	reads  []source.Statement
	rows   source.Rows
	err    error
	reply  func(source.Statement) source.Rows // instead of rows, when it is set
	while  func(ctx context.Context) error    // runs inside the query
	tables map[string]source.Table
}

func (f *fakeSource) Query(ctx context.Context, s source.Statement) (source.Rows, error) {
	f.mu.Lock()
	f.reads = append(f.reads, s)
	rows, err, while := f.rows, f.err, f.while
	if f.reply != nil {
		rows = f.reply(s)
	}
	f.mu.Unlock()
	if while != nil {
		if err := while(ctx); err != nil {
			return nil, err
		}
	}
	return rows, err
}

func (f *fakeSource) Table(id string) (source.Table, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t, ok := f.tables[id]; ok {
		return t, nil
	}
	sets, err := dataset.ParseConfig([]byte(sample.Config))
	if err != nil {
		return source.Table{}, err
	}
	d, ok := sets[id]
	if !ok {
		return source.Table{}, source.ErrNoDataset
	}
	t := source.Table{From: `"orders"`, Rows: sample.Orders, Columns: map[string]dataset.Type{}}
	for name := range d.Columns {
		t.Columns[name], _ = d.ColumnType(name)
	}
	if f.tables == nil {
		f.tables = map[string]source.Table{}
	}
	f.tables[id] = t
	return t, nil
}

func (f *fakeSource) Dialect(string) (source.Dialect, error) { return source.DuckDB{}, nil }

func (f *fakeSource) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.reads)
}

// oneGroup is a row for the query of fixture.input: region, sum, count, count of rows, used, total.
func oneGroup() source.Rows {
	return source.Rows{{"North", dataset.Decimal{Unscaled: big.NewInt(668664), Scale: 2}, int64(60), int64(60), int64(60), int64(624)}}
}

type fixture struct {
	buyer, other, vendor, plane company
	clock                       *clock.Fake
	db                          *sqlite.DB
	src                         *fakeSource
	opts                        Options
	svc                         *Service
	contract                    *contract.Contract
	path                        string // of the store
}

func newFixture(t testing.TB, change ...func(*contract.Offer)) *fixture {
	t.Helper()
	f := &fixture{
		buyer: newCompany(t, "buyercorp.test", 1, false), other: newCompany(t, "othercorp.test", 2, false),
		vendor: newCompany(t, "vendorcorp.test", 3, false), plane: newCompany(t, "data.vendorcorp.test", 4, true),
		clock: clock.NewFake(start), src: &fakeSource{rows: oneGroup()},
	}
	var err error
	f.path = filepath.Join(t.TempDir(), "treaty.db")
	f.db, err = sqlite.Create(t.Context(), f.path, sqlite.Options{Node: f.vendor.id(), Process: "dataplane", Clock: f.clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.db.Close(); err != nil {
			t.Error(err)
		}
	})
	sets, err := dataset.ParseConfig([]byte(sample.Config))
	if err != nil {
		t.Fatal(err)
	}
	f.opts = Options{
		Store: f.db, Source: f.src, Datasets: sets, Signer: f.plane.signer, Vendors: []*did.Document{f.vendor.doc},
		Ceiling: Ceiling{DenyClasses: []string{"pii"}, MinGroupSize: 3}, Now: f.clock.Now,
	}
	f.rebuild(t)
	f.contract = f.agree(t, "accept", change...)
	f.put(t, f.contract, store.InForce)
	return f
}

func (f *fixture) rebuild(t testing.TB) {
	t.Helper()
	var err error
	if f.svc, err = New(f.opts); err != nil {
		t.Fatal(err)
	}
}

// agree makes a contract with both proofs.
func (f *fixture) agree(t testing.TB, transcript string, change ...func(*contract.Offer)) *contract.Contract {
	t.Helper()
	return f.agreeAs(t, transcript, f.buyer, f.vendor, change...)
}

func (f *fixture) agreeAs(t testing.TB, transcript string, buyer, vendor company, change ...func(*contract.Offer)) *contract.Contract {
	t.Helper()
	schema, err := f.opts.Datasets.Schema("orders")
	if err != nil {
		t.Fatal(err)
	}
	digest, err := schema.Digest()
	if err != nil {
		t.Fatal(err)
	}
	offer := &contract.Offer{
		Type: contract.OfferType,
		Scope: contract.Scope{
			Dataset: "orders", Columns: []string{"region", "order_value", "order_date"}, Operations: []string{"avg", "count"},
			RowFilter: []contract.Condition{}, Purpose: purpose, RetentionDays: 90, MinGroupSize: 5, CallBudget: 10,
		},
		ValidFrom: contract.FormatTime(start.Add(-time.Minute)), ValidUntil: contract.FormatTime(start.Add(24 * time.Hour)),
		AcceptBy: contract.FormatTime(start.Add(15 * time.Minute)), ExpiresAt: contract.FormatTime(start.Add(10 * time.Minute)),
		DataPlane: contract.DataPlane{DID: f.plane.id(), URL: "https://data.vendorcorp.test/mcp"}, SchemaDigest: digest, Removed: []contract.Removal{},
	}
	for _, ch := range change {
		ch(offer)
	}
	c, err := contract.Build(offer, contract.Parties{Buyer: buyer.id(), Vendor: vendor.id()}, canon.Sum([]byte("agreement")), canon.Sum([]byte(transcript)))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []did.Signer{buyer.signer, vendor.signer} {
		if _, err := c.Prove(t.Context(), s, start); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// record is the store's record of a contract in force.
func (f *fixture) record(t testing.TB, c *contract.Contract, vendor company, state string) store.ContractRecord {
	t.Helper()
	raw, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := c.Digest()
	if err != nil {
		t.Fatal(err)
	}
	rec := store.ContractRecord{
		ID: c.ID, Digest: digest, Role: "vendor", Bytes: raw, State: state, ContextID: "ctx-1", Peer: c.Parties.Buyer, Created: start,
	}
	if state == store.InForce {
		a, err := contract.Activate(t.Context(), c, start, canon.Sum([]byte("head")), vendor.signer)
		if err != nil {
			t.Fatal(err)
		}
		if rec.Activation, err = a.Marshal(); err != nil {
			t.Fatal(err)
		}
	}
	return rec
}

func (f *fixture) put(t testing.TB, c *contract.Contract, state string) {
	t.Helper()
	f.update(t, func(tx store.Tx) error { return tx.PutContract(f.record(t, c, f.vendor, state)) })
}

func (f *fixture) update(t testing.TB, fn func(store.Tx) error) {
	t.Helper()
	if err := f.db.Update(context.Background(), fn); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) revoke(t testing.TB) {
	t.Helper()
	r, err := contract.Revoke(context.Background(), f.contract, f.vendor.id(), "test", f.clock.Now(), f.vendor.signer)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := r.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	f.update(t, func(tx store.Tx) error {
		return tx.PutRevocation(store.Revocation{ContractID: f.contract.ID, By: f.vendor.id(), Bytes: raw, Created: f.clock.Now()})
	})
}

// input is a query that the contract allows.
func (f *fixture) input(change ...func(*datatools.QueryInput)) datatools.QueryInput {
	in := datatools.QueryInput{
		ContractID: f.contract.ID, Purpose: purpose, Dataset: "orders", GroupBy: []string{"region"},
		Aggregates: []datatools.AggregateInput{{Op: "avg", Column: "order_value"}, {Op: "count"}},
	}
	for _, ch := range change {
		ch(&in)
	}
	return in
}

func (f *fixture) usage(t testing.TB) (n int64) {
	t.Helper()
	err := f.db.View(context.Background(), func(tx store.Tx) (err error) { n, err = tx.GetUsage(f.contract.ID); return err })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (f *fixture) events(t testing.TB, typ string) []ledger.Event {
	t.Helper()
	var out []ledger.Event
	err := f.db.View(context.Background(), func(tx store.Tx) (err error) {
		out, err = tx.FindEvents(store.EventFilter{Type: typ})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// refused checks that err is a refusal with the code and returns it.
func refused(t testing.TB, err error, code contract.Code) *Refusal {
	t.Helper()
	var r *Refusal
	if !errors.As(err, &r) || r.Decision.Code != code {
		t.Fatalf("err = %v, want %s", err, code)
	}
	return r
}

// alteredStore shows records otherwise than they are, as a compromised node would.
type alteredStore struct {
	Store
	contract func(*store.ContractRecord)
}

type alteredTx struct {
	store.Tx
	s *alteredStore
}

func (s *alteredStore) View(ctx context.Context, fn func(store.Tx) error) error {
	return s.Store.View(ctx, func(tx store.Tx) error { return fn(alteredTx{tx, s}) })
}

func (s *alteredStore) UpdateRelaxed(ctx context.Context, fn func(store.Tx) error) error {
	return s.Store.UpdateRelaxed(ctx, func(tx store.Tx) error { return fn(alteredTx{tx, s}) })
}

func (t alteredTx) GetStanding(id string) (store.Standing, error) {
	st, err := t.Tx.GetStanding(id)
	if err == nil && t.s.contract != nil {
		st.Contract.Bytes, st.Contract.Activation = bytes.Clone(st.Contract.Bytes), bytes.Clone(st.Contract.Activation)
		t.s.contract(&st.Contract)
	}
	return st, err
}

// reencode changes the contract of a record, with a digest that fits and the signatures that were there.
func reencode(t *testing.T, rec *store.ContractRecord, change func(*contract.Contract)) {
	t.Helper()
	c, err := contract.Parse(rec.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	change(c)
	if rec.Bytes, err = c.Marshal(); err != nil {
		t.Fatal(err)
	}
	if rec.Digest, err = c.Digest(); err != nil {
		t.Fatal(err)
	}
}
