// SPDX-License-Identifier: Apache-2.0

package drill_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/drill"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// every is every terms there can be.
func every() (all []drill.Terms) {
	for _, kind := range drill.Kinds() {
		for _, mode := range []drill.Mode{drill.Live, drill.Rehearsal} {
			for _, buyer := range []drill.Side{"", drill.Subject, drill.Counterparty} {
				for _, load := range []int{0, 5} {
					if t := (drill.Terms{Kind: kind, Mode: mode, Buyer: buyer, Load: load}); t.Check() == nil {
						all = append(all, t)
					}
				}
			}
		}
	}
	return all
}

// Every plan looks at the old and the new keys in each phase, from both sides, and at the contract where there is one.
func TestPlans(t *testing.T) {
	for _, terms := range every() {
		seen := map[string]bool{}
		for _, p := range drill.Plan(terms) {
			key := string(p.Phase) + " " + p.Name
			if seen[key] || drill.Text(p.Name) == "" {
				t.Errorf("%+v: %s", terms, key)
			}
			seen[key] = true
			seen[string(p.Phase)+" by "+string(p.Side)] = true
		}
		for _, phase := range []drill.Phase{drill.Before, drill.Grace, drill.After} {
			for _, side := range []drill.Side{drill.Subject, drill.Counterparty} {
				if !seen[string(phase)+" by "+string(side)] {
					t.Errorf("%+v: the %s sees nothing %s", terms, side, phase)
				}
			}
			if seen[string(phase)+" "+drill.GrantedQuery] != (terms.Buyer != "") {
				t.Errorf("%+v: queries %s", terms, phase)
			}
		}
		if seen["whole "+drill.NothingLost] != (terms.Buyer != "" && terms.Load > 0) || seen["after-grace "+drill.OldKeyRefused] == (terms.Kind == drill.Signing) || drill.Proves(terms) == "" {
			t.Errorf("%+v", terms)
		}
	}
}

// party is a node that signs reports.
func party(t testing.TB, name string) (did.Signer, string) {
	t.Helper()
	key, err := did.NewPrivateKey(did.Ed25519, bytes.Repeat([]byte(name[:2]), 16))
	fatal(t, err)
	id, err := did.Parse("did:wba:" + name + ".test:agents:steward:e1_" + key.Public().Thumbprint())
	fatal(t, err)
	kex, err := did.NewPrivateKey(did.X25519, bytes.Repeat([]byte(name[:2]), 16))
	fatal(t, err)
	unsigned, err := did.BuildDocument(did.DocumentSpec{ID: id, Binding: did.MethodSpec{Key: key.Public()}, KeyAgreement: []did.MethodSpec{{Key: kex.Public()}}})
	fatal(t, err)
	s, err := did.NewSigner(did.KeyID(id, "signing", key.Public()), key)
	fatal(t, err)
	doc, err := did.SignDocument(t.Context(), unsigned, s, start, did.DialectSpec)
	fatal(t, err)
	return s, string(doc)
}

// sides is both sides of a drill without a wire: what has to be seen is seen, but for what is broken.
type sides struct {
	t       testing.TB
	doc     *did.Document
	broken  string
	refuses bool
	rotated bool
	over    bool
	adds    []drill.Check // to the observations of every phase
	load    *drill.LoadResult
	calls   atomic.Int64
}

func (s *sides) Document() *did.Document        { return s.doc }
func (s *sides) KeyAgreement() string           { return s.doc.ID().String() + "#kex" }
func (s *sides) Rotate(context.Context) error   { s.rotated = true; return nil }
func (s *sides) EndGrace(context.Context) error { s.over = true; return nil }
func (s *sides) Call(_ context.Context, old bool) error {
	if old && s.over {
		return &drill.Refused{Code: "invalid_signature"}
	}
	return nil
}

func (s *sides) Propose(context.Context, drill.Proposal) error {
	if s.refuses {
		return errors.New("no")
	}
	return nil
}

func (s *sides) Observe(_ context.Context, step drill.Step) (*drill.Observations, error) {
	o := &drill.Observations{Drill: step.Drill, Phase: step.Phase}
	terms := drill.Terms{Kind: drill.Signing, Mode: drill.Rehearsal, Buyer: drill.Subject, Load: 50}
	for _, p := range drill.Of(drill.Plan(terms), step.Phase, drill.Counterparty) {
		c := drill.Check{Phase: p.Phase, Name: p.Name, Side: p.Side, Result: drill.Held, At: drill.Stamp(start)}
		if s.broken == string(p.Phase)+" "+p.Name {
			continue // nobody has seen it
		}
		o.Checks = append(o.Checks, c)
	}
	o.Checks, o.Load = append(o.Checks, s.adds...), s.load
	return o, nil
}

func (s *sides) Countersign(context.Context, *drill.Report) (*drill.Report, error) { return nil, nil }

// Granted fails for good now and then, if it is to; every eleventh time nobody decides.
func (s *sides) Granted(context.Context) error {
	n := s.calls.Add(1)
	if s.broken == drill.NothingLost && n%7 == 0 {
		return errors.New("refused")
	}
	if n%11 == 0 {
		return fmt.Errorf("%w: connection reset", drill.ErrAgain)
	}
	return nil
}

func (s *sides) OutOfScope(context.Context) error { return nil }

func run(t testing.TB, s *sides) (*drill.Report, error) {
	_, text := party(t, "buyer")
	doc, err := did.ParseDocument([]byte(text))
	fatal(t, err)
	s.t, s.doc = t, doc
	r := &drill.Runner{
		Proposal: drill.Proposal{Drill: "drl_1", Terms: drill.Terms{Kind: drill.Signing, Mode: drill.Rehearsal, Buyer: drill.Subject, Load: 50}, GraceSeconds: 1, Identity: doc.ID().String()},
		Rotating: s, Peer: s, Buyer: s, Now: time.Now, Dwell: 150 * time.Millisecond,
	}
	return r.Run(t.Context())
}

func TestRun(t *testing.T) {
	t.Parallel()
	rep, err := run(t, &sides{})
	fatal(t, err)
	if !rep.Passed() || rep.Broken != 0 || rep.Held != len(rep.Checks) || rep.Load.Requests < 10 || rep.Load.Lost != 0 || len(rep.Load.Latencies) < 2 {
		t.Errorf("%s", rep.Markdown())
	}
	for _, l := range rep.Load.Latencies {
		if l.Count == 0 || l.P50 > l.P99 || l.P99 > l.Max {
			t.Errorf("%+v", l)
		}
	}
}

// What nobody has seen is broken, and what is lost is counted.
func TestRunBroken(t *testing.T) {
	t.Parallel()
	for _, broken := range []string{"during-grace " + drill.NewKeyOpened, drill.NothingLost} {
		rep, err := run(t, &sides{broken: broken})
		fatal(t, err)
		if rep.Passed() || rep.Broken < 1 || broken == drill.NothingLost && (rep.Load.Lost == 0 || rep.Load.FirstLoss == "") {
			t.Errorf("%s: %s", broken, rep.Markdown())
		}
	}
	s := &sides{refuses: true}
	if _, err := run(t, s); err == nil || s.rotated {
		t.Error("rotated without the counterparty's consent")
	}
}

// A counterparty speaks for itself, and about the phase that it was asked about.
func TestRunForeignObservations(t *testing.T) {
	t.Parallel()
	forged := drill.Check{Phase: "no-such-phase", Name: "x", Side: drill.Counterparty, Result: drill.Held}
	s := &sides{adds: []drill.Check{forged}, load: &drill.LoadResult{Lost: 1000}}
	for _, p := range []drill.Phase{drill.Before, drill.Grace, drill.After} {
		for _, pr := range drill.Of(drill.Plan(drill.Terms{Kind: drill.Signing, Mode: drill.Rehearsal, Buyer: drill.Subject, Load: 50}), p, drill.Subject) {
			for _, side := range []drill.Side{drill.Subject, drill.Counterparty} {
				s.adds = append(s.adds, drill.Check{Phase: p, Name: pr.Name, Side: side, Result: drill.Broken, Observed: "forged"})
			}
		}
	}
	rep, err := run(t, s)
	fatal(t, err)
	if !rep.Passed() || rep.Load.Lost != 0 {
		t.Errorf("%s", rep.Markdown())
	}
}

func signed(t testing.TB) *drill.Report {
	rep, err := run(t, &sides{})
	fatal(t, err)
	for i, name := range []string{"buyer", "vendor"} {
		s, doc := party(t, name)
		rep.Documents = append(rep.Documents, doc)
		id, _, err := did.SplitKeyID(s.KeyID())
		fatal(t, err)
		*[]*string{&rep.Subject, &rep.Counterparty}[i] = id.String()
	}
	for _, name := range []string{"buyer", "vendor"} {
		s, _ := party(t, name)
		fatal(t, rep.Sign(t.Context(), s, start.Add(time.Hour)))
	}
	return rep
}

// A load ends at its bound, however long the drill lasts.
func TestLoadIsBounded(t *testing.T) {
	asked := make(chan struct{}, drill.MaxLoad)
	l := drill.NewLoad(drill.MaxLoad, 7, func(context.Context) error { asked <- struct{}{}; return nil })
	l.Start(t.Context())
	for range 7 {
		<-asked
	}
	time.Sleep(10 * time.Second / drill.MaxLoad) // there would be ten more
	if r := l.Stop(); r.Requests != 7 || r.Lost != 0 || len(asked) != 0 {
		t.Errorf("%+v, %d more", r, len(asked))
	}
}

// Reports are files that are called like their drill: no peer chooses the folder.
func TestReportNames(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"drl_1": true, "drl_AZaz09-_": true, "": false, "drl_": false, "1": false, "../treaty": false, "drl_../../x": false, "drl_a/b": false, `drl_a\b`: false, "drl_.": false, "drl_a\n": false,
		"drl_" + strings.Repeat("a", 61): false,
	} {
		if drill.ValidID(id) != want {
			t.Errorf("%q: %v", id, !want)
		}
	}
	rep := signed(t)
	rep.ID = "drl_../../x"
	raw, err := rep.Marshal()
	fatal(t, err)
	if _, err := drill.Parse(raw); err == nil {
		t.Error("parsed")
	}
}

// What both have signed is read only as what the plan and the numbers say.
func TestReportFollowsItsPlan(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*drill.Report){
		"left out": func(r *drill.Report) { r.Checks[0].Result, r.Held, r.NotChecked = drill.NotChecked, r.Held-1, 1 },
		"lost":     func(r *drill.Report) { r.Load.Lost = 1 },
		"nothing":  func(r *drill.Report) { r.Load.Requests = 0 },
		"no load":  func(r *drill.Report) { r.Load = nil },
	} {
		rep := signed(t)
		change(rep)
		raw, err := rep.Marshal()
		fatal(t, err)
		if _, err := drill.Parse(raw); err == nil {
			t.Errorf("%s: parsed", name)
		}
	}
}

// One node that signs for both sides shows nothing.
func TestReportOfOne(t *testing.T) {
	t.Parallel()
	rep := signed(t)
	s, _ := party(t, "buyer")
	rep.Counterparty, rep.Documents[1], rep.Proofs = rep.Subject, rep.Documents[0], nil
	for range 2 {
		fatal(t, rep.Sign(t.Context(), s, start.Add(time.Hour)))
	}
	if err := rep.VerifyProofs(2); err == nil {
		t.Error("one signer counts for two")
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	rep := signed(t)
	raw, err := rep.Marshal()
	fatal(t, err)
	again, err := drill.Parse(raw)
	fatal(t, err)
	fatal(t, again.VerifyProofs(2))
	second, err := again.Marshal()
	fatal(t, err)
	if !bytes.Equal(raw, second) {
		t.Error("it does not come out as it went in")
	}
	for name, change := range map[string]func(string) string{
		"another result":    func(s string) string { return strings.Replace(s, `"result":"held"`, `"result":"broken"`, 1) },
		"another count":     func(s string) string { return strings.Replace(s, `"broken":0`, `"broken":1`, 1) },
		"another kind":      func(s string) string { return strings.Replace(s, `"kind":"signing"`, `"kind":"binding"`, 1) },
		"an unknown member": func(s string) string { return `{"x":1,` + s[1:] },
		"a check less": func(s string) string {
			i := strings.Index(s, `{"at"`)
			return s[:i] + s[i+strings.Index(s[i:], "},")+2:]
		},
		"an observation": func(s string) string { return strings.Replace(s, `"observed":"accepted"`, `"observed":"refused"`, 1) },
		"lost":           func(s string) string { return strings.Replace(s, `"lost":0`, `"lost":1`, 1) },
		"the other side": func(s string) string {
			return strings.Replace(s, `"counterparty":"did:wba:vendor`, `"counterparty":"did:wba:wendor`, 1)
		},
	} {
		text := change(string(raw))
		if text == string(raw) {
			t.Fatalf("%s: nothing changed", name)
		}
		if bad, err := drill.Parse([]byte(text)); err == nil && bad.VerifyProofs(2) == nil {
			t.Errorf("%s: it verifies", name)
		}
	}
	swapped := *rep
	swapped.Proofs = []did.Proof{rep.Proofs[1], rep.Proofs[0]}
	if swapped.VerifyProofs(2) == nil || rep.VerifyProofs(1) == nil {
		t.Error("proofs in another order or number verify")
	}
}

func TestExpect(t *testing.T) {
	p := drill.Promise{Phase: drill.After, Name: drill.OldKeyRefused, Side: drill.Counterparty}
	for _, c := range []struct {
		err  error
		want string
		held bool
	}{
		{nil, "opened", true}, {errors.New("x"), "opened", false}, {&drill.Refused{Code: "A"}, "opened", false},
		{nil, "refused A", false}, {errors.New("timeout"), "refused A", false}, {&drill.Refused{Code: "B"}, "refused A", false},
		{&drill.Refused{Code: "A"}, "refused A", true}, {&drill.Refused{Code: "A"}, "refused", true},
	} {
		if got := drill.Expect(p, start, c.err, c.want); (got.Result == drill.Held) != c.held || got.Observed == "" {
			t.Errorf("%v, want %s: %+v", c.err, c.want, got)
		}
	}
	if got := drill.Clip(strings.Repeat("ü", 1000)); len(got) > drill.MaxText {
		t.Errorf("%d bytes", len(got))
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"type":"TreatyDrillReport","version":1}`))
	f.Add([]byte(`{"drill":"d","phase":"before","checks":[{"phase":"before","name":"x","side":"subject","result":"held","observed":"","at":""}],"load":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := drill.Parse(data); err == nil {
			_ = r.Markdown()
			if r.VerifyProofs(2) == nil {
				t.Fatal("signed by nobody")
			}
		}
		_, _ = drill.ParseObservations(data)
	})
}
