// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os"
	"time"

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
	return c, nil
}

// Decide implements [negotiation.Decider].
func (c *catalogue) Decide(_ context.Context, ask negotiation.Ask, now time.Time) (policy.Outcome, error) {
	return c.policy.Decide(ask.Scope, c.terms(ask, now), ask.Offers), nil
}

func (c *catalogue) terms(ask negotiation.Ask, now time.Time) policy.Terms {
	id := ask.Scope.Dataset
	return policy.Terms{Schema: c.schemas[id], Classes: c.classes[id], Version: ask.Version, DataPlane: c.plane, Now: now}
}
