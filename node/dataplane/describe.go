// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"slices"

	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataset"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/store"
)

// Describe tells a buyer what its contract grants. For anybody else there is no such contract. Nothing is read from the
// dataset and nothing is counted or recorded.
func (s *Service) Describe(ctx context.Context, caller httpsig.Caller, id string) (*datatools.ContractInfo, error) {
	var f facts
	floor := s.seen.floor()
	err := s.opts.Store.View(ctx, func(tx store.Tx) (err error) {
		f, err = s.readFacts(tx, id, caller.DID, floor)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the contract: %w", err)
	}
	v, err := s.judge(ctx, f, caller)
	if err != nil {
		return nil, fmt.Errorf("verifying the contract: %w", err)
	}
	c := v.contract
	if c == nil || !v.buyer {
		return nil, &Refusal{Decision: contract.Refusal(contract.NoContract, nil, "you have no contract "+contract.Echo(id)+" here")}
	}
	info := &datatools.ContractInfo{
		ContractID: c.ID, Digest: v.digest, State: s.state(f, v), Dataset: c.Dataset, Columns: s.columns(c.Dataset, s.grant(c).Columns),
		Operations: c.Operations, RowFilter: c.RowFilter, Purpose: c.Purpose, RetentionDays: c.RetentionDays,
		MinGroupSize: s.opts.Ceiling.minGroup(c.MinGroupSize), CallBudget: s.opts.Ceiling.budget(c.CallBudget), CallsUsed: f.Calls,
		ValidFrom: c.ValidFrom, ValidUntil: c.ValidUntil,
	}
	s.describeTerms(info, f, c)
	return info, nil
}

// describeTerms adds what contracts of later versions have, as it is in force here.
func (s *Service) describeTerms(info *datatools.ContractInfo, f facts, c *contract.Contract) {
	if c.Version > contract.Version1 {
		info.Version = c.Version
	}
	if !c.Rate.IsZero() {
		info.Rate = &c.Rate
		info.CallsInWindow = s.usage(f, &verdict{contract: c}, "").WindowCalls
	}
	for _, g := range c.ColumnGrants {
		if s.opts.Ceiling.why(s.opts.Datasets[c.Dataset], c.Dataset, g.Column) == "" {
			info.ColumnGrants = append(info.ColumnGrants, g)
		}
	}
	if !c.Rows.IsZero() {
		info.RowBudget, info.RowsUsed = s.opts.Ceiling.rows(c.Rows.RowBudget), f.Drawn.Rows
	}
	info.RetentionStatement, info.Noise = c.RetentionStatement, c.Noise
	if c.Noise != nil {
		info.EpsilonUsed = dataset.Decimal{Unscaled: big.NewInt(f.Drawn.Epsilon), Scale: 6}.String()
	}
	if !c.Amends.IsZero() {
		info.Amends = &c.Amends
	}
}

// state is the contract's state as the caller would find it.
func (s *Service) state(f facts, v *verdict) string {
	until, err := contract.ParseTime(v.contract.ValidUntil)
	switch {
	case f.Revoked:
		return string(contract.Revoked)
	case v.state == contract.InForce && (err != nil || !s.opts.Now().Before(until)):
		return "expired"
	case v.state == "":
		return store.Void
	}
	return string(v.state)
}

// columns gives granted names their published types; a name that is not published any more has none.
func (s *Service) columns(id string, names []string) []datatools.Column {
	out := make([]datatools.Column, len(names))
	for i, name := range names {
		col, _ := s.schemas[id].Column(name)
		out[i] = datatools.Column{Name: name, Type: col.Type}
	}
	return out
}

// inForce are the contracts in force in which the caller buys.
func (s *Service) inForce(ctx context.Context, caller httpsig.Caller) (mine []*contract.Contract, err error) {
	var found []facts
	floor := s.seen.floor()
	err = s.opts.Store.View(ctx, func(tx store.Tx) error {
		names, err := tx.Lineage(caller.DID.String()) // under which of them the records are; whether it is theirs is judged
		if err != nil {
			return err
		}
		for _, name := range names {
			records, err := tx.ListContracts(store.ContractFilter{Role: "vendor", Peer: name, State: store.InForce})
			if err != nil {
				return err
			}
			for _, rec := range records {
				f, err := s.readFacts(tx, rec.ID, caller.DID, floor)
				if err != nil {
					return err
				}
				found = append(found, f)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading contracts: %w", err)
	}
	for _, f := range found {
		v, err := s.judge(ctx, f, caller)
		if err != nil {
			return nil, fmt.Errorf("verifying a contract: %w", err)
		}
		if v.contract != nil && v.buyer && s.state(f, v) == string(contract.InForce) {
			mine = append(mine, v.contract)
		}
	}
	return mine, nil
}

// grant is what a contract lets its buyer use here: a column that the ceiling keeps back is not shown.
func (s *Service) grant(c *contract.Contract) datatools.Grant {
	g := datatools.GrantOf(c)
	set := s.opts.Datasets[c.Dataset]
	kept := func(name string) bool {
		return s.opts.Ceiling.why(set, c.Dataset, name) != "" || s.opts.Ceiling.useless(set, name, c)
	}
	g.Columns, g.Readable = slices.DeleteFunc(slices.Clone(g.Columns), kept), slices.DeleteFunc(slices.Clone(g.Readable), kept)
	if !s.opts.Ceiling.AllowRows {
		g.Readable = nil
	}
	return g
}

// List shows the datasets served. A caller sees their names; where it has a contract in force also the description, the
// columns that its contracts grant, and their ids.
func (s *Service) List(ctx context.Context, caller httpsig.Caller) (*datatools.ListOutput, error) {
	contracts, err := s.inForce(ctx, caller)
	if err != nil {
		return nil, err
	}
	out := &datatools.ListOutput{Datasets: []datatools.DatasetInfo{}}
	for _, id := range slices.Sorted(maps.Keys(s.schemas)) {
		info, granted := datatools.DatasetInfo{Dataset: id}, map[string]bool{}
		for _, c := range contracts {
			if c.Dataset != id {
				continue
			}
			info.Description, info.ContractIDs = s.schemas[id].Description, append(info.ContractIDs, c.ID)
			for _, name := range s.grant(c).Columns {
				granted[name] = true
			}
		}
		for _, c := range s.schemas[id].Columns {
			if granted[c.Name] {
				info.Columns = append(info.Columns, datatools.Column(c))
			}
		}
		out.Datasets = append(out.Datasets, info)
	}
	return out, nil
}
