// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/store"
)

func contract(id string) store.ContractRecord {
	return store.ContractRecord{
		ID: id, Digest: sum(id), Role: "vendor", Bytes: []byte("contract"), State: store.AwaitingActivation,
		ContextID: "A", Peer: peer, Created: at(1),
	}
}

func contracts(t *testing.T, s store.Store) {
	get := func(tx store.Tx) (store.ContractRecord, error) { return tx.GetContract("ctr_1") }
	missing(t, s, get)
	c := contract("ctr_1")
	must(t, s, func(tx store.Tx) error { return tx.PutContract(c) })
	equal(t, read(t, s, get), c)

	c.Bytes, c.Activation, c.State = []byte("with proofs"), []byte("activation"), store.InForce
	again := c
	again.Created = at(9)
	must(t, s, func(tx store.Tx) error { return tx.PutContract(again) })
	equal(t, read(t, s, get), c)
	must(t, s, func(tx store.Tx) error { return tx.PutContract(c) }) // the same once more: no change

	for name, change := range map[string]func(*store.ContractRecord){
		"another contract":     func(c *store.ContractRecord) { c.Digest = sum("x") },
		"another role":         func(c *store.ContractRecord) { c.Role = "buyer" },
		"another peer":         func(c *store.ContractRecord) { c.Peer = stranger },
		"another conversation": func(c *store.ContractRecord) { c.ContextID = "B" },
		"another activation":   func(c *store.ContractRecord) { c.Activation = []byte("x") },
		"no activation":        func(c *store.ContractRecord) { c.Activation = nil },
		"back":                 func(c *store.ContractRecord) { c.State = store.AwaitingActivation },
	} {
		x := c
		change(&x)
		t.Run(name, func(t *testing.T) {
			fails(t, s, store.ErrConflict, func(tx store.Tx) error { return tx.PutContract(x) })
			equal(t, read(t, s, get), c)
		})
	}

	other := contract("ctr_2")
	other.Created, other.Role, other.ContextID = at(2), "buyer", "B"
	must(t, s, func(tx store.Tx) error { return tx.PutContract(other) })
	list := func(f store.ContractFilter) []store.ContractRecord {
		return read(t, s, func(tx store.Tx) ([]store.ContractRecord, error) { return tx.ListContracts(f) })
	}
	equal(t, list(store.ContractFilter{}), []store.ContractRecord{other, c})
	equal(t, list(store.ContractFilter{Limit: 1}), []store.ContractRecord{other})
	equal(t, list(store.ContractFilter{Role: "vendor", Peer: peer, State: store.InForce, ContextID: "A"}), []store.ContractRecord{c})
	for _, f := range []store.ContractFilter{{Role: "x"}, {Peer: "x"}, {State: "x"}, {ContextID: "x"}} {
		equal(t, list(f), []store.ContractRecord{})
	}
}

// contractStates walks every pair of states (invariant 13: what is final is not left).
func contractStates(t *testing.T, s store.Store) {
	states := []string{store.AwaitingApproval, store.AwaitingActivation, store.InForce, store.Void, store.Revoked}
	allowed := map[[2]string]bool{
		{store.AwaitingApproval, store.AwaitingActivation}: true,
		{store.AwaitingApproval, store.InForce}:            true,
		{store.AwaitingApproval, store.Void}:               true,
		{store.AwaitingActivation, store.InForce}:          true,
		{store.AwaitingActivation, store.Void}:             true,
		{store.InForce, store.Revoked}:                     true,
	}
	rolledBack := errors.New("rolled back")
	for _, from := range states {
		for _, to := range append(states, "", "made up") {
			fails(t, s, rolledBack, func(tx store.Tx) error {
				c := contract("ctr_" + from)
				c.State = from
				if from == store.Revoked {
					c.State = store.InForce
				}
				if err := tx.PutContract(c); err != nil {
					t.Errorf("first %s: %v", from, err)
				}
				if c.State = from; from == store.Revoked {
					if err := tx.PutContract(c); err != nil {
						t.Errorf("revoking: %v", err)
					}
				}
				c.State = to
				err := tx.PutContract(c)
				if want := from == to || allowed[[2]string{from, to}]; (err == nil) != want || err != nil && !errors.Is(err, store.ErrConflict) {
					t.Errorf("from %s to %q: %v", from, to, err)
				}
				return rolledBack
			})
		}
	}
	c := contract("ctr_new")
	c.State = store.Revoked
	fails(t, s, store.ErrConflict, func(tx store.Tx) error { return tx.PutContract(c) })
}

func revocations(t *testing.T, s store.Store) {
	revoked := func(id string) bool {
		return read(t, s, func(tx store.Tx) (bool, error) { return tx.Revoked(id) })
	}
	epoch := func() uint64 {
		return read(t, s, func(tx store.Tx) (uint64, error) { _, last, err := tx.RevokedAfter(0); return last, err })
	}
	if revoked("ctr_1") || epoch() != 0 {
		t.Error("revoked before anything was")
	}
	missing(t, s, func(tx store.Tx) (store.Revocation, error) { return tx.GetRevocation("ctr_1") })
	r := store.Revocation{ContractID: "ctr_1", By: peer, Bytes: []byte("signed"), Created: at(1)}
	must(t, s, func(tx store.Tx) error { return tx.PutRevocation(r) })
	if !revoked("ctr_1") || revoked("ctr_2") {
		t.Error("the wrong contract is revoked")
	}
	first := epoch()
	must(t, s, func(tx store.Tx) error { return tx.PutRevocation(r) })
	other := r
	other.Bytes = []byte("another")
	fails(t, s, store.ErrConflict, func(tx store.Tx) error { return tx.PutRevocation(other) })
	equal(t, read(t, s, func(tx store.Tx) (store.Revocation, error) { return tx.GetRevocation("ctr_1") }), r)
	if epoch() != first {
		t.Error("the epoch grew without a revocation")
	}
	r.ContractID = "ctr_2"
	must(t, s, func(tx store.Tx) error { return tx.PutRevocation(r) })
	if epoch() <= first {
		t.Error("the epoch did not grow")
	}
	for after, want := range map[uint64][]string{0: {"ctr_1", "ctr_2"}, first: {"ctr_2"}, epoch(): {}} {
		last := uint64(0)
		equal(t, read(t, s, func(tx store.Tx) (ids []string, err error) { ids, last, err = tx.RevokedAfter(after); return ids, err }), want)
		if len(want) > 0 && last != epoch() {
			t.Errorf("the last after %d is %d", after, last)
		}
	}
}

func reserve(t *testing.T, s store.Store) {
	used := func(id string) int64 {
		return read(t, s, func(tx store.Tx) (int64, error) { return tx.GetUsage(id) })
	}
	take := func(id string, budget int64) (n int64, err error) {
		err = s.Update(t.Context(), func(tx store.Tx) error { n, err = tx.Reserve(id, budget); return err })
		return n, err
	}
	for want := int64(1); want <= 3; want++ {
		if n, err := take("ctr_1", 3); err != nil || n != want {
			t.Errorf("call %d: %d, %v", want, n, err)
		}
	}
	if n, err := take("ctr_1", 3); !errors.Is(err, store.ErrBudget) || n != 3 {
		t.Errorf("beyond the budget: %d, %v", n, err)
	}
	for _, none := range []int64{0, -1} {
		if n, err := take("ctr_2", none); !errors.Is(err, store.ErrBudget) || n != 0 {
			t.Errorf("budget %d: %d, %v", none, n, err)
		}
	}
	if used("ctr_1") != 3 || used("ctr_2") != 0 {
		t.Errorf("used %d and %d", used("ctr_1"), used("ctr_2"))
	}
	// A call that comes to nothing is given back by the rollback.
	refused := errors.New("refused")
	fails(t, s, refused, func(tx store.Tx) error {
		if n, err := tx.Reserve("ctr_2", 5); err != nil || n != 1 {
			t.Errorf("%d, %v", n, err)
		}
		return refused
	})
	if used("ctr_2") != 0 {
		t.Error("a rolled back call counts")
	}
}

// reserveRace: 64 callers cannot overspend by one.
func reserveRace(t *testing.T, s store.Store) {
	const callers, budget = 64, 40
	var granted, refused atomic.Int64
	var seen sync.Map
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			var n int64
			err := s.Update(t.Context(), func(tx store.Tx) (err error) { n, err = tx.Reserve("ctr_1", budget); return err })
			switch {
			case err == nil:
				granted.Add(1)
				if _, twice := seen.LoadOrStore(n, true); twice {
					t.Errorf("call %d was granted twice", n)
				}
			case errors.Is(err, store.ErrBudget):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if granted.Load() != budget || refused.Load() != callers-budget {
		t.Errorf("granted %d of %d, refused %d", granted.Load(), budget, refused.Load())
	}
}

func receipts(t *testing.T, s store.Store) {
	get := func(tx store.Tx) (store.Receipt, error) { return tx.GetReceipt("rcp_1") }
	missing(t, s, get)
	a := store.Receipt{ID: "rcp_1", ContractID: "ctr_1", Result: sum("rows"), Bytes: []byte("one"), Created: at(2)}
	b := store.Receipt{ID: "rcp_0", ContractID: "ctr_1", Bytes: []byte("two"), Created: at(1)}
	c := store.Receipt{ID: "rcp_2", ContractID: "ctr_2", Bytes: []byte("three"), Created: at(3)}
	must(t, s, func(tx store.Tx) error { return errors.Join(tx.PutReceipt(a), tx.PutReceipt(b), tx.PutReceipt(c)) })
	equal(t, read(t, s, get), a)
	fails(t, s, store.ErrConflict, func(tx store.Tx) error { return tx.PutReceipt(a) })
	list := func(n int) []store.Receipt {
		return read(t, s, func(tx store.Tx) ([]store.Receipt, error) { return tx.ListReceipts("ctr_1", "", n) })
	}
	equal(t, list(0), []store.Receipt{a, b})
	equal(t, list(1), []store.Receipt{a})
	for after, want := range map[string][]store.Receipt{"rcp_1": {b}, "rcp_0": {}, "rcp_2": {}, "no such": {a, b}} {
		equal(t, read(t, s, func(tx store.Tx) ([]store.Receipt, error) { return tx.ListReceipts("ctr_1", after, 0) }), want)
	}

	d := store.Receipt{ID: "rcp_3", ContractID: "ctr_1", Result: sum("rows"), Bytes: []byte("one again"), Created: at(4)}
	e := store.Receipt{ID: "rcp_4", ContractID: "ctr_1", Result: sum("other rows"), Bytes: []byte("other"), Created: at(5)}
	f := store.Receipt{ID: "rcp_5", ContractID: "ctr_2", Result: sum("rows"), Bytes: []byte("of another"), Created: at(6)}
	must(t, s, func(tx store.Tx) error { return errors.Join(tx.PutReceipt(d), tx.PutReceipt(e), tx.PutReceipt(f)) })
	of := func(result canon.Digest, n int) []store.Receipt {
		return read(t, s, func(tx store.Tx) ([]store.Receipt, error) { return tx.ReceiptsOf("ctr_1", result, n) })
	}
	equal(t, of(sum("rows"), 0), []store.Receipt{a, d})
	equal(t, of(sum("rows"), 1), []store.Receipt{a})
	equal(t, of(sum("nothing"), 0), []store.Receipt{})
	equal(t, of(canon.Digest{}, 0), []store.Receipt{}) // refusals are no result
	equal(t, read(t, s, func(tx store.Tx) ([]store.Result, error) { return tx.ListResults("ctr_1", 0) }), []store.Result{
		{Digest: sum("rows"), Receipts: 2, First: at(2), Last: at(4)}, {Digest: sum("other rows"), Receipts: 1, First: at(5), Last: at(5)},
	})
}

func statements(t *testing.T, s store.Store) {
	list := func(kind string, n int) []store.Statement {
		return read(t, s, func(tx store.Tx) ([]store.Statement, error) { return tx.ListStatements("ctr_1", kind, n) })
	}
	equal(t, list("", 0), []store.Statement{})
	a := store.Statement{ContractID: "ctr_1", Digest: sum("a"), Kind: "TreatyRevocation", By: peer, Bytes: []byte("a"), Created: at(2)}
	b := store.Statement{ContractID: "ctr_1", Digest: sum("b"), Kind: "TreatyDeletion", By: stranger, Bytes: []byte("b"), Created: at(1)}
	c := store.Statement{ContractID: "ctr_2", Digest: sum("a"), Kind: "TreatyRevocation", By: peer, Bytes: []byte("a"), Created: at(3)}
	must(t, s, func(tx store.Tx) error {
		return errors.Join(tx.PutStatement(a), tx.PutStatement(b), tx.PutStatement(c))
	})
	must(t, s, func(tx store.Tx) error { return tx.PutStatement(a) })
	other := a
	other.Bytes = []byte("x")
	fails(t, s, store.ErrConflict, func(tx store.Tx) error { return tx.PutStatement(other) })
	equal(t, list("", 0), []store.Statement{a, b})
	equal(t, list("", 1), []store.Statement{a})
	equal(t, list("TreatyDeletion", 0), []store.Statement{b})
}

func answers(t *testing.T, s store.Store) {
	put := func(contract string, until time.Time) store.Answer {
		a := store.Answer{Digest: sum("rows"), ContractID: contract, Bytes: []byte("rows"), Created: at(1), DeleteAfter: until}
		must(t, s, func(tx store.Tx) error { return tx.PutAnswer(a) })
		return a
	}
	get := func(contract string) func(store.Tx) (store.Answer, error) {
		return func(tx store.Tx) (store.Answer, error) { return tx.GetAnswer(contract, sum("rows")) }
	}
	missing(t, s, get("ctr_1"))
	a, b := put("ctr_1", at(10)), put("ctr_2", at(20)) // the same rows under two contracts have two retentions
	equal(t, read(t, s, get("ctr_1")), a)
	put("ctr_1", at(30)) // extends nothing
	equal(t, read(t, s, get("ctr_1")), a)
	a = put("ctr_1", at(5))
	equal(t, read(t, s, get("ctr_1")), a)
	if err := s.Update(t.Context(), func(tx store.Tx) error {
		return tx.PutAnswer(store.Answer{Digest: sum("x"), ContractID: "ctr_1", Bytes: []byte("x"), Created: at(1)})
	}); err == nil {
		t.Error("an answer without an end was stored")
	}
	due := func(when time.Time, n int) []store.Answer {
		return read(t, s, func(tx store.Tx) ([]store.Answer, error) { return tx.DueAnswers(when, n) })
	}
	bare := func(a store.Answer) store.Answer { a.Bytes = nil; return a }
	equal(t, due(at(4), 0), []store.Answer{})
	equal(t, due(at(5), 0), []store.Answer{bare(a)})
	equal(t, due(at(20), 0), []store.Answer{bare(a), bare(b)})
	equal(t, due(at(20), 1), []store.Answer{bare(a)})
	held := func(contract string) []store.Answer {
		return read(t, s, func(tx store.Tx) ([]store.Answer, error) { return tx.ListAnswers(contract, 0) })
	}
	equal(t, held("ctr_1"), []store.Answer{bare(a)})
	must(t, s, func(tx store.Tx) error { return tx.DeleteAnswer("ctr_1", sum("rows")) })
	equal(t, held("ctr_1"), []store.Answer{})
	missing(t, s, get("ctr_1"))
	equal(t, read(t, s, get("ctr_2")), b)
	must(t, s, func(tx store.Tx) error { return tx.DeleteAnswer("ctr_2", sum("rows")) })
	missing(t, s, get("ctr_2"))
	fails(t, s, store.ErrNotFound, func(tx store.Tx) error { return tx.DeleteAnswer("ctr_2", sum("rows")) })
}
