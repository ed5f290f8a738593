// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
)

// third gives an offer every term of version 3 but noise.
func third(o *contract.Offer) {
	o.Version = contract.Version3
	o.Operations = []string{"avg", "count", "min", "percentile"}
	o.Rate = contract.Rate{Calls: 10, Seconds: 60}
	o.ColumnGrants = []contract.ColumnGrant{
		{Column: "region", Uses: []string{"read", "filter", "group"}, Operations: []string{}},
		{Column: "order_value", Uses: []string{"aggregate"}, Operations: []string{"avg", "min"}},
	}
	o.Rows = contract.RowGrant{RowBudget: 1000}
	o.RetentionStatement = "Deleted from every system and backup."
	o.Amends = contract.Reference{ID: contract.ID(canon.Sum([]byte("old"))), Digest: canon.Sum([]byte("old contract"))}
}

func TestK6_VersionsSideBySide(t *testing.T) {
	if !slices.Equal(contract.Versions(), []int{1, 2, 3}) {
		t.Fatalf("versions %v", contract.Versions())
	}
	w := newWorld(t)
	for version, change := range map[int]func(*contract.Offer){
		1: func(*contract.Offer) {},
		2: func(o *contract.Offer) { o.Version, o.Rate = 2, contract.Rate{Calls: 10, Seconds: 60} },
		3: third,
	} {
		o := *w.offer
		o.Scope = o.Scope.Clone()
		change(&o)
		raw := must2(t, o.Canonical)
		back, err := contract.ParseOffer(raw)
		if err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		c, err := contract.Build(back, w.parties, w.agreement, w.transcript)
		if err != nil || c.Version != version || c.Needs() != version {
			t.Fatalf("version %d: %v %+v", version, err, c)
		}
		again, err := contract.Parse(must2(t, c.Canonical))
		if err != nil || string(must2(t, again.Canonical)) != string(must2(t, c.Canonical)) {
			t.Errorf("version %d: %v", version, err)
		}
		// No version takes the terms of a later one, and no unknown version anything.
		for _, v := range []int{-1, 0, 1, 2, 3, 4} {
			c.Version = v
			if err := c.Validate(); (err == nil) != (v >= version && v <= 3) {
				t.Errorf("terms of version %d in a document of version %d: %v", version, v, err)
			}
		}
	}
}

func must2(t *testing.T, f func() ([]byte, error)) []byte {
	t.Helper()
	b, err := f()
	return must(t, b, err)
}

func TestTermsOfLaterVersions(t *testing.T) {
	noisy := func(s *contract.Scope) {
		s.Operations, s.ColumnGrants, s.Rows = []string{"count", "sum"}, nil, contract.RowGrant{}
		s.Noise = &contract.Noise{EpsilonPerQuery: "0.1", EpsilonTotal: "2", Bounds: []contract.Bound{{Column: "order_value", Low: "0", High: "500.00"}}}
	}
	for name, change := range map[string]func(*contract.Scope){
		"rate without calls":       func(s *contract.Scope) { s.Rate = contract.Rate{Seconds: 1} },
		"rate beyond a year":       func(s *contract.Scope) { s.Rate.Seconds = contract.MaxRateSeconds + 1 },
		"grant of no column":       func(s *contract.Scope) { s.ColumnGrants[0].Column = "customer_email" },
		"grant twice":              func(s *contract.Scope) { s.ColumnGrants[1] = s.ColumnGrants[0] },
		"unknown use":              func(s *contract.Scope) { s.ColumnGrants[0].Uses = []string{"sell"} },
		"no use":                   func(s *contract.Scope) { s.ColumnGrants[0].Uses = nil },
		"operations without use":   func(s *contract.Scope) { s.ColumnGrants[0].Operations = []string{"avg"} },
		"use without operations":   func(s *contract.Scope) { s.ColumnGrants[1].Operations = []string{} },
		"an operation not granted": func(s *contract.Scope) { s.ColumnGrants[1].Operations = []string{"sum"} },
		"rows of nothing":          func(s *contract.Scope) { s.ColumnGrants = s.ColumnGrants[1:] },
		"negative rows":            func(s *contract.Scope) { s.Rows.RowBudget = -1 },
		"statement with controls":  func(s *contract.Scope) { s.RetentionStatement = "a\x1b[2J" },
		"amends nothing":           func(s *contract.Scope) { s.Amends.Digest = canon.Digest{} },
		"amends another id":        func(s *contract.Scope) { s.Amends.ID = "ctr_x" },
		"noise and rows": func(s *contract.Scope) {
			rows, grants := s.Rows, s.ColumnGrants
			noisy(s)
			s.Rows, s.ColumnGrants, s.Operations = rows, grants[:1], []string{"count"}
		},
		"noise on avg":        func(s *contract.Scope) { noisy(s); s.Operations = []string{"avg"} },
		"noise without bound": func(s *contract.Scope) { noisy(s); s.Noise.Bounds = nil },
		"bounds upside down":  func(s *contract.Scope) { noisy(s); s.Noise.Bounds[0].Low = "501" },
		"bounds of zero":      func(s *contract.Scope) { noisy(s); s.Noise.Bounds[0].High = "0" },
		"bounds that are not": func(s *contract.Scope) { noisy(s); s.Noise.Bounds[0].High = "1e9" },
		"epsilon of zero":     func(s *contract.Scope) { noisy(s); s.Noise.EpsilonPerQuery = "0" },
		"epsilon with sign":   func(s *contract.Scope) { noisy(s); s.Noise.EpsilonPerQuery = "+1" },
		"less in all":         func(s *contract.Scope) { noisy(s); s.Noise.EpsilonTotal = "0.05" },
	} {
		w := newWorld(t)
		third(w.offer)
		if err := w.offer.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&w.offer.Scope)
		if err := w.offer.Validate(); !errors.Is(err, contract.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
	w := newWorld(t)
	third(w.offer)
	noisy(&w.offer.Scope)
	if err := w.offer.Validate(); err != nil {
		t.Errorf("noise: %v", err)
	}
	for s, want := range map[string]int64{"0.1": 100_000, "1": 1_000_000, "0.000001": 1, "1000": 1_000_000_000} {
		if n, ok := contract.MicroEpsilon(s); !ok || n != want {
			t.Errorf("%s is %d, %t", s, n, ok)
		}
	}
	for _, s := range []string{"", "0", "00.1", "1.", ".1", "0.0000001", "1e-1", "-1", "1000.1", "10000", "NaN"} {
		if n, ok := contract.MicroEpsilon(s); ok {
			t.Errorf("%q is %d", s, n)
		}
	}
}

// TestWithinTerms: each change of one term alone makes a scope wider.
func TestWithinTerms(t *testing.T) {
	w := newWorld(t)
	third(w.offer)
	base := w.offer.Scope
	if !base.Within(&base) {
		t.Fatal("a scope is not within itself")
	}
	for name, change := range map[string]func(*contract.Scope){
		"no rate":            func(s *contract.Scope) { s.Rate = contract.Rate{} },
		"more calls":         func(s *contract.Scope) { s.Rate.Calls++ },
		"shorter window":     func(s *contract.Scope) { s.Rate.Seconds-- },
		"no column grant":    func(s *contract.Scope) { s.ColumnGrants = s.ColumnGrants[:1] },
		"another use":        func(s *contract.Scope) { s.ColumnGrants[1].Uses = []string{"aggregate", "read"} },
		"another operation":  func(s *contract.Scope) { s.ColumnGrants[1].Operations = []string{"avg", "min", "count"} },
		"more rows":          func(s *contract.Scope) { s.Rows.RowBudget++ },
		"no statement":       func(s *contract.Scope) { s.RetentionStatement = "" },
		"amends nothing":     func(s *contract.Scope) { s.Amends = contract.Reference{} },
		"value of any group": func(s *contract.Scope) { s.Operations = append(s.Operations, "max") },
	} {
		s := base.Clone()
		change(&s)
		if s.Within(&base) {
			t.Errorf("%s: counts as within", name)
		}
	}
	narrower := base.Clone()
	narrower.Rows, narrower.Rate.Calls = contract.RowGrant{RowBudget: 10}, 5
	narrower.Noise = nil
	if !narrower.Within(&base) {
		t.Error("less of everything is not within")
	}
	if g, ok := base.Grant("order_date"); !ok || slices.Contains(g.Uses, contract.UseRead) || slices.Contains(g.Operations, "min") || !slices.Contains(g.Operations, "avg") {
		t.Errorf("a column without a grant of its own: %+v", g)
	}
}

// TestCheckTerms: what no data plane could enforce over the published schema.
func TestCheckTerms(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*contract.Scope)
		ok     bool
	}{
		"everything":             {func(*contract.Scope) {}, true},
		"a column that is gone":  {func(s *contract.Scope) { s.Columns = append(s.Columns, "salary") }, false},
		"a filter of other type": {func(s *contract.Scope) { s.RowFilter[1].Value = contract.TextValue("no") }, false},
		"operations of no use": {func(s *contract.Scope) {
			s.ColumnGrants[0] = contract.ColumnGrant{Column: "gift", Uses: []string{"aggregate"}, Operations: []string{"avg"}}
		}, false},
		"noise": {func(s *contract.Scope) {
			s.Noise = &contract.Noise{Bounds: []contract.Bound{{Column: "order_value", Low: "0.5", High: "9.990"}}}
		}, true},
		"noise on a text": {func(s *contract.Scope) {
			s.Noise = &contract.Noise{Bounds: []contract.Bound{{Column: "region", Low: "0", High: "1"}}}
		}, false},
		"noise with a third digit": {func(s *contract.Scope) {
			s.Noise = &contract.Noise{Bounds: []contract.Bound{{Column: "order_value", Low: "0", High: "0.001"}}}
		}, false},
	} {
		w := newWorld(t)
		third(w.offer)
		tt.change(&w.offer.Scope)
		if err := w.offer.CheckTerms(w.schema); (err == nil) != tt.ok || err != nil && !errors.Is(err, contract.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
