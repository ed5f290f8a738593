// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"time"

	"github.com/treaty-node/treaty/node/contract"
)

// ClassPII is the class that never leaves, whatever a policy file says.
const ClassPII = "pii"

// The codes of a rejection, beside UNKNOWN_COLUMN and UNKNOWN_DATASET.
const (
	CodeMalformed       = "MALFORMED"
	CodeUnknownDataset  = "UNKNOWN_DATASET"
	CodeUnknownColumn   = "UNKNOWN_COLUMN"
	CodeNotOffered      = "NOT_OFFERED"       // the policy has no entry for the dataset
	CodePurpose         = "PURPOSE_DENIED"    // not among the allowed purposes
	CodeRowFilter       = "ROW_FILTER_DENIED" // a condition cannot be granted, and leaving it out would widen
	CodeNotReplaceable  = "NOT_REPLACEABLE"   // the contract to be amended is not in force between the two, or cannot be named
	CodeNothingLeft     = "NOTHING_GRANTABLE" // nothing useful remains
	CodeTooManyRounds   = "TOO_MANY_ROUNDS"
	CodeOfferWider      = "OFFER_WIDER" // an offer grants more than was asked
	CodeOfferExpired    = "OFFER_EXPIRED"
	CodeSchemaChanged   = "SCHEMA_CHANGED" // an offer is about another schema than the published one
	CodeNeedsNotMet     = "NEEDS_NOT_MET"
	CodeDeclined        = "DECLINED"       // whoever decides does not want to, for reasons of its own
	CodeDeciderFailed   = "DECIDER_FAILED" // a draft cannot be turned into an offer
	defaultMaxOffers    = 5
	defaultRetention    = 90
	defaultGroupSize    = 5
	defaultBudget       = 1000
	defaultValidityDays = 90
	defaultOfferTTL     = 600 * time.Second
	defaultAcceptWithin = 300 * time.Second
)

// Vendor is a vendor's policy: what may be granted, by dataset id.
type Vendor struct {
	MaxOffers int // offers in one conversation, 1 to 50
	Datasets  map[string]Rules
}

// Rules are what may be granted on one dataset.
type Rules struct {
	Never         []string // classes that never leave; ClassPII is always among them
	AnyPurpose    bool
	Purposes      []string // unless AnyPurpose; compared exactly
	Operations    []string
	RetentionDays int   // cap
	MinGroupSize  int   // floor
	CallBudget    int64 // cap
	ValidityDays  int
	OfferTTL      time.Duration // an accept must arrive within
	AcceptWithin  time.Duration // and the contract be active within this after it
	RowFilter     []contract.Condition

	// Terms of later contract schemas. A dataset whose rules want terms that the agreed version does not have is not offered.
	Rate               contract.Rate // version 2: at most; zero: no limit
	Classes            map[string]ClassRule
	RowBudget          int64 // version 3: at most; 0: no rows
	RetentionStatement string
	Noise              *contract.Noise // version 3: at least as much
}

// ParseVendor reads a vendor's policy file. Errors match ErrFile and name the
// line.
func ParseVendor(data []byte) (*Vendor, error) {
	root, err := load(data)
	if err != nil {
		return nil, err
	}
	v := &Vendor{MaxOffers: defaultMaxOffers, Datasets: map[string]Rules{}}
	err = root.fields(handlers{
		"version":    versionOne,
		"max_offers": intTo(&v.MaxOffers, 1, 50),
		"datasets": func(n node) error {
			return n.each(func(id string, n node) error {
				r, err := parseRules(n)
				v.Datasets[id] = r
				return err
			})
		},
	}, "version", "datasets")
	if err != nil {
		return nil, err
	}
	return v, nil
}

func parseRules(n node) (Rules, error) {
	r := Rules{
		Never: []string{ClassPII}, RetentionDays: defaultRetention, MinGroupSize: defaultGroupSize,
		CallBudget: defaultBudget, ValidityDays: defaultValidityDays,
		OfferTTL: defaultOfferTTL, AcceptWithin: defaultAcceptWithin, RowFilter: []contract.Condition{},
	}
	ttl, accept := int(r.OfferTTL/time.Second), int(r.AcceptWithin/time.Second)
	err := n.fields(handlers{
		"never": textsTo(&r.Never, 64),
		"purposes": func(n node) error {
			if s, err := n.text(); err == nil && s == "any" {
				r.AnyPurpose = true
				return nil
			}
			if err := textsTo(&r.Purposes, 256)(n); err != nil {
				return n.fail("want the word any, or a list of texts")
			}
			return nil
		},
		"operations":        operationsTo(&r.Operations),
		"retention_days":    intTo(&r.RetentionDays, 0, contract.MaxRetention),
		"min_group_size":    intTo(&r.MinGroupSize, 1, contract.MaxMinGroupSize),
		"call_budget":       int64To(&r.CallBudget, 1, contract.MaxCallBudget),
		"validity_days":     intTo(&r.ValidityDays, 1, contract.MaxRetention),
		"offer_ttl_seconds": intTo(&ttl, 1, maxSeconds),
		"accept_by_seconds": intTo(&accept, 1, maxSeconds),
		"row_filter":        conditionsTo(&r.RowFilter),

		"rate":                rateTo(&r.Rate),
		"classes":             classesTo(&r.Classes),
		"row_budget":          int64To(&r.RowBudget, 0, contract.MaxRowBudget),
		"retention_statement": textTo(&r.RetentionStatement, contract.MaxText),
		"noise":               noiseTo(&r.Noise),
	}, "purposes", "operations")
	if err != nil {
		return Rules{}, err
	}
	r.OfferTTL, r.AcceptWithin = time.Duration(ttl)*time.Second, time.Duration(accept)*time.Second
	if !slices.Contains(r.Never, ClassPII) {
		r.Never = append(r.Never, ClassPII)
	}
	if r.OfferTTL+r.AcceptWithin > time.Duration(r.ValidityDays)*24*time.Hour {
		return Rules{}, n.fail("offer_ttl_seconds and accept_by_seconds reach beyond validity_days")
	}
	return r, nil
}

// Terms are the facts that a decision rests on beside the policy.
type Terms struct {
	Schema    *contract.Schema  // of the dataset asked for; nil if there is none
	Classes   map[string]string // class of each column; a column without one is never granted
	Version   int               // of the contract schema that was agreed on; 0 counts as 1
	DataPlane contract.DataPlane
	Replaces  contract.Reference // the contract that this buyer may replace: in force between the two. Zero: none
	Now       time.Time
}

// Outcome is what a vendor answers: an offer or a rejection. The zero Outcome
// is a rejection.
type Outcome struct {
	Offer  *contract.Offer // nil: rejected
	Code   string          // of the rejection
	Reason string          // of the rejection, for a person
	// Overruled is what the draft would have granted and code took away. It is
	// for the own log; the offer's Removed is about what was asked.
	Overruled []contract.Removal
}

// Rejected says whether there is no offer.
func (o Outcome) Rejected() bool { return o.Offer == nil }

// Decide is the deterministic decider of a vendor: the ask, narrowed. offers is
// how many offers this conversation has seen already.
func (v *Vendor) Decide(ask contract.Scope, t Terms, offers int) Outcome {
	out := v.Narrow(ask, ask, t)
	if out.Rejected() || offers < v.MaxOffers {
		return out
	}
	return reject(CodeTooManyRounds, "this conversation has seen as many offers as the vendor makes")
}
