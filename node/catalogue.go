// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/cedar"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataset"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/negotiation/policy"
)

// catalogue is what a vendor has on offer: the published schemas, the columns' classes, and the policy that narrows. It is
// the deterministic decider.
type catalogue struct {
	schemas map[string]*contract.Schema
	classes map[string]map[string]string
	policy  *policy.Vendor
	plane   contract.DataPlane
	cedar   *cedar.Policy                      // nil: none
	lineage func(did string) ([]string, error) // a company's verified line; nil: unknown
}

func loadCatalogue(dir string, cfg *Config) (*catalogue, error) {
	data, err := os.ReadFile(Path(dir, cfg.Datasets))
	if err != nil {
		return nil, err
	}
	sets, err := dataset.ParseConfig(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Datasets, err)
	}
	rules, err := os.ReadFile(Path(dir, cfg.Policy))
	if err != nil {
		return nil, err
	}
	c := &catalogue{
		schemas: map[string]*contract.Schema{}, classes: map[string]map[string]string{},
		plane: contract.DataPlane{DID: cfg.DataPlane.DID, URL: cfg.DataPlane.URL},
	}
	if c.policy, err = policy.ParseVendor(rules); err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Policy, err)
	}
	for id, set := range sets {
		if c.schemas[id], err = sets.Schema(id); err != nil {
			return nil, fmt.Errorf("%s: %w", cfg.Datasets, err)
		}
		c.classes[id] = map[string]string{}
		for name, col := range set.Columns {
			c.classes[id][name] = col.Class
		}
	}
	for id := range c.policy.Datasets {
		if c.schemas[id] == nil {
			return nil, fmt.Errorf("%s: datasets.%s: there is no such dataset in %s", cfg.Policy, id, cfg.Datasets)
		}
	}
	return c, c.loadCedar(dir, cfg, sets)
}

// Decide implements [negotiation.Decider].
func (c *catalogue) Decide(_ context.Context, ask negotiation.Ask, now time.Time) (policy.Outcome, error) {
	who, err := c.company(ask.Peer)
	if err != nil {
		return policy.Outcome{}, err
	}
	if refusal, refused := c.filtered(ask, who); refused {
		return refusal, nil
	}
	return c.reduce(ask, who, c.policy.Decide(ask.Scope, c.terms(ask, now), ask.Offers)), nil
}

// Narrow implements [negotiation.Narrower].
func (c *catalogue) Narrow(ask negotiation.Ask, draft contract.Scope, now time.Time) policy.Outcome {
	who, err := c.company(ask.Peer)
	if err != nil {
		return policy.Outcome{Code: policy.CodeDeciderFailed, Reason: "who asks cannot be looked up at the moment"}
	}
	if refusal, refused := c.filtered(ask, who); refused {
		return refusal
	}
	return c.reduce(ask, who, c.policy.Narrow(ask.Scope, draft, c.terms(ask, now)))
}

func (c *catalogue) terms(ask negotiation.Ask, now time.Time) policy.Terms {
	id := ask.Scope.Dataset
	return policy.Terms{Schema: c.schemas[id], Classes: c.classes[id], Version: ask.Version, DataPlane: c.plane, Replaces: ask.Replaces, Now: now}
}

// company is who asks, for policies. A policy about a DID is about its whole line: who cannot be looked up gets no decision.
func (c *catalogue) company(peer did.DID) (who cedar.Company, err error) {
	who = cedar.Company{DID: peer.String(), Domain: cedar.Domain(peer.String())}
	if c.cedar != nil && c.lineage != nil {
		who.Lineage, err = c.lineage(who.DID)
	}
	return who, err
}

// filtered rejects what the Cedar policies do not let the buyer filter by: leaving its condition out would grant more rows.
func (c *catalogue) filtered(ask negotiation.Ask, who cedar.Company) (policy.Outcome, bool) {
	id := ask.Scope.Dataset
	own := contract.Scope{RowFilter: c.policy.Datasets[id].RowFilter}
	for _, cond := range ask.Scope.RowFilter {
		if c.cedar == nil || own.HasCondition(cond) {
			continue
		}
		terms := cedar.Terms{Purpose: ask.Scope.Purpose, RetentionDays: ask.Scope.RetentionDays, MinGroupSize: ask.Scope.MinGroupSize}
		col := cedar.Column{Dataset: id, Name: cond.Column, Class: c.classes[id][cond.Column]}
		if _, there := c.classes[id][cond.Column]; !there {
			continue // an unknown column is refused as such
		}
		if r := c.cedar.Decide(who, cedar.Filter, col, terms); !r.Allowed {
			return policy.Outcome{Code: policy.CodeRowFilter, Reason: "the row filter on " + contract.Echo(cond.Column) + " cannot be granted: " + r.Why()}, true
		}
	}
	return policy.Outcome{}, false
}

// reduce narrows an offer by the Cedar policies: after whoever decided.
func (c *catalogue) reduce(ask negotiation.Ask, who cedar.Company, o policy.Outcome) policy.Outcome {
	if c.cedar == nil || o.Rejected() {
		return o
	}
	id := ask.Scope.Dataset
	scope, removed := c.cedar.Narrow(o.Offer.Scope, cedar.Question{Who: who, Schema: c.schemas[id], Classes: c.classes[id]})
	return o.Reduce(scope, removed, c.schemas[id])
}

// loadCedar reads the Cedar policies, if there are any, and refuses names that no dataset has.
func (c *catalogue) loadCedar(dir string, cfg *Config, sets dataset.Config) error {
	if cfg.Cedar == "" {
		return nil
	}
	rules, err := os.ReadFile(Path(dir, cfg.Cedar))
	if err != nil {
		return err
	}
	if c.cedar, err = cedar.Parse(cfg.Cedar, rules); err != nil {
		return err
	}
	for _, f := range c.cedar.Check(sets) {
		return fmt.Errorf("%s: %s (treaty policy check shows all)", cfg.Cedar, f)
	}
	return nil
}
