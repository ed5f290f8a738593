// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/store/sqlite"
)

// TestC10_OddQuestions: what is too much, too deep, no number, no time or no name is refused before anything is read or charged.
func TestC10_OddQuestions(t *testing.T) {
	s := newSite(t, newFixture(t), HandlerOptions{PerMinute: 10_000})
	good, err := json.Marshal(s.input())
	if err != nil {
		t.Fatal(err)
	}
	leaf := `{"column":"region","op":"=","value":"x"}`
	filter := func(column, op, value string) string {
		return fmt.Sprintf(`"filters":[{"column":%q,"op":%q,"value":%s}]`, column, op, value)
	}
	var sent []string
	for _, f := range []struct{ column, value string }{
		{"order_value", `"NaN"`}, {"order_value", `"Infinity"`}, {"order_value", `"-Inf"`}, {"order_value", `"1e400"`}, {"order_value", `1e400`},
		{"order_value", `"9223372036854775808"`}, {"order_value", `"-9223372036854775809"`}, {"order_value", `"` + strings.Repeat("9", 1100) + `"`},
		{"order_date", `"0000-01-01"`}, {"order_date", `"10000-01-01"`}, {"order_date", `"-0001-01-01"`}, {"order_date", `"2025-02-30"`},
		{"order_date", `"2025-07-01T00:00:00+02:00"`}, {"order_date", `"now"`}, {"order_date", `null`}, {"region", `"a\u0000b"`}, {"region", `"\ud800"`}, {"region", `{}`},
		{"Region", `"x"`}, {"REGION", `"x"`}, {" region", `"x"`}, {"region ", `"x"`}, {"regi\u200bon", `"x"`}, {"rеgion", `"x"`}, {"ｒegion", `"x"`}, {"", `"x"`}, {`region" --`, `"x"`},
	} {
		sent = append(sent, filter(f.column, "=", f.value))
	}
	sent = append(sent,
		`"filters":[`+leaf+strings.Repeat(","+leaf, 999)+`]`,
		`"where":{"and":[`+leaf+strings.Repeat(","+leaf, 999)+`]}`,
		`"where":`+strings.Repeat(`{"not":`, 9)+leaf+strings.Repeat("}", 9),
		`"where":`+strings.Repeat(`{"or":[`, 5000)+leaf+strings.Repeat("]}", 5000),
		`"where":{"and":[]}`, `"where":{"and":[`+leaf+`],"or":[`+leaf+`]}`, `"where":{"not":{"not":{}}}`, `"where":{}`,
		`"filters":[{"column":"region","op":"=","op":"!=","value":"x"}]`, `"filters":[{"column":"region","Op":"=","value":"x"}]`,
		`"limit":1e400`, `"limit":9223372036854775808`, `"limit":-1`, `"limit":10001`, `"limit":1e2000000000`, `"offset":10000001`, `"offset":-1`,
		`"having":[{"column":"count","op":">","value":"NaN"}]`, `"having":[{"column":"count","op":">","value":"9223372036854775808"}]`,
		`"having":[{"column":"region","op":"=","value":"x"}]`, `"group_by_date":[{"column":"order_date","unit":"hour"}]`, `"group_by_date":[{"column":"order_date","unit":"minute'"}]`,
		`"order_by":[{"by":"customer_email"}]`, `"order_by":[{"by":"1"}]`,
	)
	rest := strings.TrimPrefix(string(good), "{")
	coded := 0
	for _, member := range sent {
		name, _, _ := strings.Cut(strings.TrimPrefix(member, `"`), `"`)
		args := "{" + member + "," + strings.Replace(rest, fmt.Sprintf("%q:[],", name), "", 1)
		_, got := s.post(t, s.buyer, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"query_records","arguments":`+args+`}}`, nil)
		var msg struct {
			Result *struct {
				IsError bool
				Content []struct{ Text string }
			}
			Error json.RawMessage
		}
		if err := json.Unmarshal([]byte(got), &msg); err != nil && !strings.Contains(got, "JSON") && !strings.Contains(got, "malformed") {
			t.Errorf("%.80s: %.200s", member, got)
			continue
		}
		if msg.Result == nil { // the SDK or the handler found that it is no JSON
			continue
		}
		if code, _, _ := strings.Cut(msg.Result.Content[0].Text, ":"); !msg.Result.IsError || code != "INVALID_QUERY" && code != "UNKNOWN_COLUMN" && code != "SCOPE_DENIED" {
			t.Errorf("%.80s: %.300s", member, got)
		}
		coded++
	}
	if coded < len(sent)*2/3 {
		t.Errorf("%d of %d reached the decision", coded, len(sent))
	}
	if s.src.count() != 0 || s.usage(t) != 0 {
		t.Errorf("%d reads, %d calls", s.src.count(), s.usage(t))
	}
	if strings.Contains(s.log.String(), "panic") {
		t.Error(s.log.String())
	}
}

// TestDatasetGone: a contract whose dataset is not served any more, or that fails the engine, reads nothing and says nothing of it.
func TestDatasetGone(t *testing.T) {
	f := newFixture(t)
	f.opts.Datasets = dataset.Config{}
	f.rebuild(t)
	_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
	refused(t, err, contract.ScopeDenied)
	if info, err := f.svc.Describe(t.Context(), f.buyer.caller(), f.contract.ID); err != nil || len(info.Columns) != 0 && info.Columns[0].Type != "" {
		t.Errorf("%+v, %v", info, err)
	}
	g := newFixture(t)
	g.src.err = source.ErrNoDataset
	if _, err := g.svc.Query(t.Context(), g.buyer.caller(), g.input()); !errors.Is(err, source.ErrNoDataset) || g.usage(t) != 1 || len(g.events(t, ledger.CallAnswered)) != 0 {
		t.Errorf("%v, %d calls", err, g.usage(t))
	}
}

// TestInvariant8_TwoDataPlanes: two services over two handles of one store's file, 64 callers: nothing is overspent by one.
func TestInvariant8_TwoDataPlanes(t *testing.T) {
	type plane struct {
		f   *fixture
		svc [2]*Service
	}
	two := func(t *testing.T, f *fixture) plane {
		db, err := sqlite.OpenExisting(t.Context(), f.path, sqlite.Options{Process: "dataplane", Clock: f.clock})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		opts := f.opts
		opts.Store = db
		other, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		return plane{f, [2]*Service{f.svc, other}}
	}
	run := func(t *testing.T, p plane, call func(s *Service) error) int64 {
		var passed atomic.Int64
		var all sync.WaitGroup
		for i := range 64 {
			all.Go(func() {
				err := call(p.svc[i%2])
				switch {
				case err == nil:
					passed.Add(1)
				case !errors.As(err, new(*Refusal)):
					t.Error(err)
				}
			})
		}
		all.Wait()
		return passed.Load()
	}
	ask := func(p plane, change ...asked) func(*Service) error {
		return func(s *Service) error {
			_, err := s.Query(context.Background(), p.f.buyer.caller(), p.f.input(change...))
			return err
		}
	}
	t.Run("calls", func(t *testing.T) {
		p := two(t, newFixture(t, func(o *contract.Offer) { o.CallBudget = 37 }))
		if n := run(t, p, ask(p)); n != 37 || p.f.usage(t) != 37 {
			t.Errorf("%d of 37 passed", n)
		}
	})
	t.Run("rate", func(t *testing.T) {
		p := two(t, newFixture(t, func(o *contract.Offer) {
			o.Version, o.CallBudget, o.Rate = contract.Version2, 1000, contract.Rate{Calls: 29, Seconds: 3600}
		}))
		if n := run(t, p, ask(p)); n != 29 {
			t.Errorf("%d of 29 passed", n)
		}
	})
	t.Run("epsilon", func(t *testing.T) {
		f := newFixture(t, noisy, func(o *contract.Offer) { o.Noise.EpsilonPerQuery, o.Noise.EpsilonTotal = "0.3", "10" })
		f.opts.NoiseSecret = []byte("a secret of this test")
		f.src.rows = source.Rows{{"North", int64(60), int64(60), int64(624)}}
		f.rebuild(t)
		p := two(t, f)
		n := run(t, p, ask(p, what(datatools.AggregateInput{Op: "count"})))
		if n != 33 || f.drawn(t).Epsilon != 9_900_000 {
			t.Errorf("%d of 33 passed, %d millionths", n, f.drawn(t).Epsilon)
		}
	})
	t.Run("rows", func(t *testing.T) {
		p := two(t, rowsFixture(t)) // 100 rows
		n := run(t, p, func(s *Service) error {
			_, err := s.Select(context.Background(), p.f.buyer.caller(), p.f.selection(2, "region", "order_date"))
			return err
		})
		if n != 50 || p.f.drawn(t).Rows != 100 {
			t.Errorf("%d of 50 passed, %d rows", n, p.f.drawn(t).Rows)
		}
	})
}

// hangingUp is a store whose caller goes away when it is used for the n-th time.
type hangingUp struct {
	Store
	left   atomic.Int64
	hangUp context.CancelFunc
	before bool // what is asked for then is done
}

func (s *hangingUp) around(do func() error) error {
	last := s.left.Add(-1) == 0
	if last && s.before {
		s.hangUp()
	}
	err := do()
	if last {
		s.hangUp()
	}
	return err
}

func (s *hangingUp) View(ctx context.Context, fn func(store.Tx) error) error {
	return s.around(func() error { return s.Store.View(ctx, fn) })
}

func (s *hangingUp) Update(ctx context.Context, fn func(store.Tx) error) error {
	return s.around(func() error { return s.Store.Update(ctx, fn) })
}

func (s *hangingUp) UpdateRelaxed(ctx context.Context, fn func(store.Tx) error) error {
	return s.around(func() error { return s.Store.UpdateRelaxed(ctx, fn) })
}

// TestInvariant8_HangingUp: whenever a caller goes away, a call that was reserved stays charged, an answer has its receipt, and
// nothing stays taken that another needs.
func TestInvariant8_HangingUp(t *testing.T) {
	f := newFixture(t, func(o *contract.Offer) { o.Version, o.CallBudget = contract.Version3, 1000 })
	f.src.reply = func(s source.Statement) source.Rows {
		if strings.Contains(s.SQL, "flags") {
			return source.Rows{{int64(0)}}
		}
		return oneGroup()
	}
	hung := &hangingUp{Store: f.db}
	f.opts.Store = hung
	stages := 0
	for n := range 6 {
		for _, before := range []bool{true, false} {
			for _, engine := range []bool{false, true} {
				f.rebuild(t) // nothing is known: every stage is passed
				ctx, cancel := context.WithCancel(t.Context())
				hung.left.Store(int64(n))
				hung.before, hung.hangUp, f.src.while = before, cancel, nil
				if engine {
					hung.left.Store(0)
					f.src.while = func(ctx context.Context) error { cancel(); return context.Cause(ctx) }
				}
				used, answers := f.usage(t), len(f.events(t, ledger.CallAnswered))
				out, err := f.svc.Query(ctx, f.buyer.caller(), f.input(only(is("order_value", ">", fmt.Sprintf("%d.00", n)))))
				cancel()
				answered := len(f.events(t, ledger.CallAnswered)) - answers
				charged := f.usage(t) - used
				if (out != nil) != (err == nil) || out != nil && answered != 1 || answered == 1 && charged != 1 || charged > 1 {
					t.Errorf("at %d (%t, %t): %v, %d answered, %d charged", n, before, engine, err, answered, charged)
				}
				if ctx.Err() != nil {
					stages++
				}
				if len(f.svc.Calls()) != 0 || len(f.svc.flights.m) != 0 {
					t.Errorf("at %d: %d calls and %d shapes are under way", n, len(f.svc.Calls()), len(f.svc.flights.m))
				}
			}
		}
	}
	if stages == 0 {
		t.Error("nobody hung up")
	}
	f.src.while = nil
	if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); err != nil {
		t.Error(err)
	}
}

// TestClockGoesBack: before the beginning there is no contract, and after the end none, whichever way the clock came.
func TestClockGoesBack(t *testing.T) {
	f := newFixture(t)
	ask := func() error {
		_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		to   time.Duration
		code contract.Code
	}{{-2 * time.Minute, contract.NoContract}, {24 * time.Hour, contract.ContractExpired}, {-time.Hour, contract.NoContract}, {24*time.Hour - time.Second, ""}} {
		f.clock.Set(start.Add(step.to))
		if err := ask(); step.code != "" {
			refused(t, err, step.code)
		} else if err != nil {
			t.Errorf("%v: %v", step.to, err)
		}
	}
	f.src.while = func(context.Context) error { f.clock.Set(start.Add(24 * time.Hour)); return nil }
	refused(t, ask(), contract.ContractExpired)
}
