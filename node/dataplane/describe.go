// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/store"
)

// Describe tells a buyer what its contract grants. For anybody else there is no such contract. Nothing is read from the
// dataset and nothing is counted or recorded.
func (s *Service) Describe(ctx context.Context, caller httpsig.Caller, id string) (*datatools.ContractInfo, error) {
	var f facts
	err := s.opts.Store.View(ctx, func(tx store.Tx) (err error) {
		f, err = readFacts(tx, id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the contract: %w", err)
	}
	v := s.judge(f, caller)
	c := v.contract
	if c == nil || c.Parties.Buyer != caller.DID.String() {
		return nil, &Refusal{Decision: contract.Refusal(contract.NoContract, nil, "you have no contract "+contract.Echo(id)+" here")}
	}
	return &datatools.ContractInfo{
		ContractID: c.ID, Digest: v.digest, State: s.state(f, v), Dataset: c.Dataset, Columns: s.columns(c.Dataset, c.Columns),
		Operations: c.Operations, RowFilter: c.RowFilter, Purpose: c.Purpose, RetentionDays: c.RetentionDays,
		MinGroupSize: s.opts.Ceiling.minGroup(c.MinGroupSize), CallBudget: s.opts.Ceiling.budget(c.CallBudget), CallsUsed: f.calls,
		ValidFrom: c.ValidFrom, ValidUntil: c.ValidUntil,
	}, nil
}

// state is the contract's state as the caller would find it.
func (s *Service) state(f facts, v *verdict) string {
	until, err := contract.ParseTime(v.contract.ValidUntil)
	switch {
	case f.revoked:
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

// List shows the datasets served. A caller sees columns, and the ids of its contracts, only where it has one in force.
func (s *Service) List(ctx context.Context, caller httpsig.Caller) (*datatools.ListOutput, error) {
	mine := map[string][]string{}
	err := s.opts.Store.View(ctx, func(tx store.Tx) error {
		records, err := tx.ListContracts(store.ContractFilter{Role: "vendor", Peer: caller.DID.String(), State: store.InForce})
		if err != nil {
			return err
		}
		for _, rec := range records {
			f, err := readFacts(tx, rec.ID)
			if err != nil {
				return err
			}
			v := s.judge(f, caller)
			if v.contract != nil && v.contract.Parties.Buyer == caller.DID.String() && s.state(f, v) == string(contract.InForce) {
				mine[v.contract.Dataset] = append(mine[v.contract.Dataset], v.contract.ID)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading contracts: %w", err)
	}
	out := &datatools.ListOutput{Datasets: []datatools.DatasetInfo{}}
	for _, id := range slices.Sorted(maps.Keys(s.schemas)) {
		info := datatools.DatasetInfo{Dataset: id, Description: s.schemas[id].Description, ContractIDs: mine[id]}
		if len(mine[id]) > 0 {
			for _, c := range s.schemas[id].Columns {
				info.Columns = append(info.Columns, datatools.Column(c))
			}
		}
		out.Datasets = append(out.Datasets, info)
	}
	return out, nil
}
