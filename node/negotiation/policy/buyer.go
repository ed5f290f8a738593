// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
)

// Wanted is a list of names, those without which the answer is useless and
// those that would be nice.
type Wanted struct{ Required, Optional []string }

func (w Wanted) all() []string { return append(slices.Clone(w.Required), w.Optional...) }

// Needs are what a buyer wants, and the least that helps.
type Needs struct {
	Dataset          string
	Columns          Wanted
	Operations       Wanted
	Purpose          string
	RetentionWanted  int // days
	RetentionMinimum int
	BudgetWanted     int64 // calls
	BudgetMinimum    int64
	MaxMinGroupSize  int // the largest minimum group size that still helps
	RowFilter        []contract.Condition
	AddedFilters     Added         // the vendor's own row filters
	ValidityMinimum  int           // days that a contract runs at least, from now or from its later start; 0: no bound
	ValidityMaximum  int           // and at most, from its start; 0: no bound
	StartWithin      int           // days until it starts, at most
	MinRate          contract.Rate // fewer calls a second do not help; zero: any rate
	Read             []string      // columns whose rows are wanted
	RowsWanted       int64
	RowsMinimum      int64
	Statements       []string   // retention statements that may be promised
	Noise            NoiseNeeds // what noise still helps
	Rationale        string     // sent with every ask
	Alternatives     []Needs    // asked for in turn when an offer does not meet the needs; they have none of their own

	amends  contract.Reference // see Amending
	terms   *contract.Scope    // see Amending
	version int                // of the contract schema; 0: the latest, see In
}

// Added says which row filters a vendor may put into an offer beside those asked for. The zero value lets all in.
type Added struct {
	Limited bool     // only filters on Columns
	Columns []string // none: no filter at all
}

func (a Added) allows(c contract.Condition) bool {
	return !a.Limited || slices.Contains(a.Columns, c.Column)
}

// maxAlternatives bounds the rounds of a buyer.
const maxAlternatives = 20

// ParseNeeds reads a buyer's needs file. An alternative inherits what it does
// not say. Errors match ErrFile and name the line.
func ParseNeeds(data []byte) (*Needs, error) {
	root, err := load(data)
	if err != nil {
		return nil, err
	}
	n := &Needs{
		RetentionWanted: defaultRetention, BudgetWanted: 100, BudgetMinimum: 1,
		MaxMinGroupSize: contract.MaxMinGroupSize, RowFilter: []contract.Condition{}, ValidityMinimum: 1, StartWithin: 1,
	}
	var alternatives []node
	h := n.handlers()
	h["version"] = versionOne
	h["alternatives"] = func(list node) (err error) {
		if alternatives, err = list.items(); err == nil && len(alternatives) > maxAlternatives {
			err = list.fail("has more than %d entries", maxAlternatives)
		}
		return err
	}
	if err := root.fields(h, "version", "dataset", "columns", "operations", "purpose"); err != nil {
		return nil, err
	}
	if err := n.check(root); err != nil {
		return nil, err
	}
	for _, a := range alternatives {
		alt := *n
		alt.Alternatives = nil
		if err := a.fields(alt.handlers()); err != nil {
			return nil, err
		}
		if err := alt.check(a); err != nil {
			return nil, err
		}
		n.Alternatives = append(n.Alternatives, alt)
	}
	return n, nil
}

func (n *Needs) handlers() handlers {
	h := n.termHandlers()
	maps.Copy(h, handlers{
		"dataset":    textTo(&n.Dataset, contract.MaxDataset),
		"columns":    wantedTo(&n.Columns, func(dst *[]string) func(node) error { return textsTo(dst, contract.MaxColumns) }),
		"operations": wantedTo(&n.Operations, operationsTo),
		"purpose":    textTo(&n.Purpose, contract.MaxPurpose),
		"retention_days": func(v node) error {
			return v.fields(handlers{
				"wanted":  intTo(&n.RetentionWanted, 0, contract.MaxRetention),
				"minimum": intTo(&n.RetentionMinimum, 0, contract.MaxRetention),
			})
		},
		"call_budget": func(v node) error {
			return v.fields(handlers{
				"wanted":  int64To(&n.BudgetWanted, 1, contract.MaxCallBudget),
				"minimum": int64To(&n.BudgetMinimum, 1, contract.MaxCallBudget),
			})
		},
		"max_min_group_size": intTo(&n.MaxMinGroupSize, 1, contract.MaxMinGroupSize),
		"row_filter":         conditionsTo(&n.RowFilter),
		"row_filters":        addedTo(&n.AddedFilters),
		"validity_days": func(v node) error {
			return v.fields(handlers{
				"minimum":      intTo(&n.ValidityMinimum, 0, contract.MaxRetention),
				"maximum":      intTo(&n.ValidityMaximum, 1, contract.MaxRetention),
				"start_within": intTo(&n.StartWithin, 0, contract.MaxRetention),
			})
		},
		"rationale": textTo(&n.Rationale, contract.MaxText),
	})
	return h
}

// wantedTo reads either a list, all of it required, or required and optional.
func wantedTo(dst *Wanted, list func(*[]string) func(node) error) func(node) error {
	return func(v node) error {
		var w Wanted
		var err error
		if _, isList := v.items(); isList == nil {
			err = list(&w.Required)(v)
		} else {
			err = v.fields(handlers{"required": list(&w.Required), "optional": list(&w.Optional)})
		}
		*dst = w
		return err
	}
}

// addedTo reads accept, refuse, or the columns that a vendor may filter by.
func addedTo(dst *Added) func(node) error {
	return func(v node) error {
		word, err := v.text()
		switch {
		case err == nil && word == "accept":
			*dst = Added{}
			return nil
		case err == nil && word == "refuse":
			*dst = Added{Limited: true}
			return nil
		}
		columns, err := v.texts()
		if err != nil || len(columns) > contract.MaxColumns {
			return v.fail("want accept, refuse, or a list of columns")
		}
		*dst = Added{Limited: true, Columns: columns}
		return nil
	}
}

// check validates the ask that the needs lead to, at the line of n.
func (n *Needs) check(at node) error {
	switch {
	case n.RetentionMinimum > n.RetentionWanted:
		return at.fail("retention_days: minimum is more than wanted")
	case n.BudgetMinimum > n.BudgetWanted:
		return at.fail("call_budget: minimum is more than wanted")
	case n.ValidityMaximum != 0 && n.ValidityMinimum > n.ValidityMaximum:
		return at.fail("validity_days: minimum is more than maximum")
	}
	if err := n.checkTerms(at); err != nil {
		return err
	}
	ask := n.scope()
	if err := ask.Validate(); err != nil {
		return at.fail("%s", strings.TrimPrefix(err.Error(), "contract: "))
	}
	return nil
}

func (n *Needs) scope() contract.Scope {
	if n.terms == nil {
		return n.withTerms(n.base())
	}
	s := n.terms.Clone()
	s.Amends = n.amends
	return s
}

// base is what every version can ask for.
func (n *Needs) base() contract.Scope {
	return contract.Scope{
		Dataset: n.Dataset, Columns: n.Columns.all(), Operations: n.Operations.all(),
		RowFilter: n.RowFilter, Purpose: n.Purpose,
		RetentionDays: n.RetentionWanted, MinGroupSize: 1, CallBudget: n.BudgetWanted,
	}.Clone()
}

// at returns the needs behind the i-th ask, counted from 0.
func (n *Needs) at(i int) *Needs {
	if i < 1 || i > len(n.Alternatives) {
		return n
	}
	return &n.Alternatives[i-1]
}

// Ask returns the i-th ask, counted from 0, and whether there is one.
func (n *Needs) Ask(i int) (contract.Scope, bool) {
	if i < 0 || i > len(n.Alternatives) {
		return contract.Scope{}, false
	}
	return n.at(i).scope(), true
}

// Check says whether the i-th ask fits a published schema, before anything is
// sent. The error matches contract.ErrUnknownColumn for an unknown column.
func (n *Needs) Check(i int, schema *contract.Schema) error {
	ask, ok := n.Ask(i)
	if !ok || schema == nil || schema.Dataset != ask.Dataset {
		return &FileError{Key: "dataset", Why: "the peer publishes no dataset " + contract.Echo(ask.Dataset)}
	}
	if name, found := ask.UnknownColumn(schema); found {
		return fmt.Errorf("%w: %s is not in the published schema", contract.ErrUnknownColumn, contract.Echo(name))
	}
	for _, c := range ask.RowFilter {
		if err := contract.CheckCondition(schema, c); err != nil {
			return err
		}
	}
	return nil
}

// Action is what a buyer does about an offer.
type Action string

// The actions.
const (
	Accept  Action = "accept"
	Counter Action = "counter"
	Reject  Action = "reject"
)

// Reply is a buyer's answer to an offer. A Reply without an Action is to be
// treated as a rejection.
type Reply struct {
	Action Action
	Digest canon.Digest    // accept: of the offer
	Scope  *contract.Scope // counter: the next ask
	Next   int             // counter: which of the needs Scope comes from, as for Ask
	Code   string          // reject
	Reason string          // counter and reject: for a person
	Lines  []string        // the differences between ask and offer, explained
}

// Received is an offer and what it answers.
type Received struct {
	Offer  *contract.Offer
	Ask    contract.Scope // what the offer answers
	Asks   int            // 1 + the number of the needs, as for Ask, that Ask comes from
	Schema canon.Digest   // of the schema as the vendor publishes it; zero: unknown
	Now    time.Time
}

// DecideOffer is the deterministic decider of a buyer. It accepts an offer that
// is within the ask and meets the needs behind it; otherwise it asks for the
// next alternative, and rejects when there is none. An offer that is invalid,
// expired, about another schema or wider than the ask is rejected at once: an
// honest vendor makes none.
func (n *Needs) DecideOffer(r Received) Reply {
	if r.Offer == nil {
		return Reply{Action: Reject, Code: CodeMalformed, Reason: "there is no offer"}
	}
	if err := r.Offer.Validate(); err != nil {
		return Reply{Action: Reject, Code: CodeMalformed, Reason: clip(err.Error())}
	}
	lines := Explain(r.Ask, r.Offer.Scope, r.Offer.Removed)
	refuse := func(code, reason string) Reply {
		return Reply{Action: Reject, Code: code, Reason: clip(reason), Lines: lines}
	}
	switch {
	case r.Offer.Expired(r.Now):
		return refuse(CodeOfferExpired, "the offer expired at "+r.Offer.ExpiresAt)
	case !r.Schema.IsZero() && !r.Schema.Equal(r.Offer.SchemaDigest):
		return refuse(CodeSchemaChanged, "the offer is about another schema than the published one")
	case !r.Offer.Scope.Within(&r.Ask):
		return refuse(CodeOfferWider, "the offer is not within what was asked: "+strings.Join(lines, "; "))
	}
	missing := n.at(r.Asks-1).unmet(r.Offer, &r.Ask, r.Now)
	if len(missing) == 0 {
		d, err := r.Offer.Digest()
		if err != nil {
			return refuse(CodeMalformed, "the offer cannot be digested")
		}
		return Reply{Action: Accept, Digest: d, Lines: lines}
	}
	why := "the offer does not meet the needs: " + strings.Join(missing, "; ")
	if next, ok := n.Ask(max(r.Asks, 1)); ok {
		return Reply{Action: Counter, Scope: &next, Next: max(r.Asks, 1), Reason: clip(why), Lines: lines}
	}
	return refuse(CodeNeedsNotMet, why)
}

// unmet lists which of the needs an offer within ask does not meet, each with the key of the needs file that wants it.
func (n *Needs) unmet(s *contract.Offer, ask *contract.Scope, now time.Time) []string {
	if n.terms != nil {
		return append(Explain(*ask, s.Scope, s.Removed), n.untimely(s, now)...) // any difference
	}
	var out []string
	for _, c := range n.Columns.Required {
		if !slices.Contains(s.Columns, c) {
			out = append(out, "column "+contract.Echo(c)+" is required (rule columns)")
		}
	}
	for _, op := range n.Operations.Required {
		if !slices.Contains(s.Operations, op) {
			out = append(out, "operation "+op+" is required (rule operations)")
		}
	}
	if s.RetentionDays < n.RetentionMinimum {
		out = append(out, "retention of "+strconv.Itoa(s.RetentionDays)+" days is less than "+strconv.Itoa(n.RetentionMinimum)+" (rule retention_days.minimum)")
	}
	if s.CallBudget < n.BudgetMinimum {
		out = append(out, strconv.FormatInt(s.CallBudget, 10)+" calls are fewer than "+strconv.FormatInt(n.BudgetMinimum, 10)+" (rule call_budget.minimum)")
	}
	if s.MinGroupSize > n.MaxMinGroupSize {
		out = append(out, "groups of at least "+strconv.Itoa(s.MinGroupSize)+" are larger than "+strconv.Itoa(n.MaxMinGroupSize)+" (rule max_min_group_size)")
	}
	for _, c := range s.RowFilter {
		if !ask.HasCondition(c) && !n.AddedFilters.allows(c) {
			out = append(out, "the row filter "+plain(c.String())+" was added (rule row_filters)")
		}
	}
	out = append(out, n.unmetTerms(&s.Scope)...)
	return append(out, n.untimely(s, now)...)
}

// untimely lists what is wrong with when the contract would run.
func (n *Needs) untimely(o *contract.Offer, now time.Time) (out []string) {
	from, errFrom := contract.ParseTime(o.ValidFrom)
	until, errUntil := contract.ParseTime(o.ValidUntil)
	if errFrom != nil || errUntil != nil {
		return []string{"the validity cannot be read"} // Validate refused it before
	}
	const clocks = 5 * time.Minute // what two companies' clocks may differ by
	if from.After(now.AddDate(0, 0, n.StartWithin).Add(clocks)) {
		out = append(out, "it would start at "+o.ValidFrom+", later than in "+strconv.Itoa(n.StartWithin)+" days (rule validity_days.start_within)")
	}
	starts := from
	if now.After(from) {
		starts = now
	}
	if until.Before(starts.AddDate(0, 0, n.ValidityMinimum).Add(-clocks)) {
		out = append(out, "it would run until "+o.ValidUntil+", less than "+strconv.Itoa(n.ValidityMinimum)+" days (rule validity_days.minimum)")
	}
	if n.ValidityMaximum != 0 && until.After(from.AddDate(0, 0, n.ValidityMaximum)) {
		out = append(out, "it would run until "+o.ValidUntil+", more than "+strconv.Itoa(n.ValidityMaximum)+" days (rule validity_days.maximum)")
	}
	return out
}
