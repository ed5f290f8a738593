// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/drill"
	"github.com/treaty-node/treaty/node/gateway/mcp"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/store"
)

// contractBuyer asks under a contract what it grants, and what it does not.
type contractBuyer struct {
	n               *Node
	granted, denied httpapi.QueryRequest
}

// sharedContract is the newest contract in force between this node and the peer, under whichever DIDs of theirs, with this
// node's role in it: one that it is the buyer of, if there is one. The id is "" when there is none.
func (n *Node) sharedContract(tx store.Tx, peer did.DID) (id, role string, err error) {
	line, err := tx.Lineage(peer.String())
	if err != nil {
		return "", "", err
	}
	for _, who := range line {
		list, err := tx.ListContracts(store.ContractFilter{Peer: who, State: store.InForce})
		if err != nil {
			return "", "", err
		}
		for _, c := range list {
			if parsed, err := contract.Parse(c.Bytes); err != nil || n.clock.Now().Format(contractTime) >= parsed.ValidUntil {
				continue
			}
			if id == "" || role != "buyer" && c.Role == "buyer" {
				id, role = c.ID, c.Role
			}
		}
	}
	return id, role, nil
}

const contractTime = "2006-01-02T15:04:05Z"

func (n *Node) newContractBuyer(ctx context.Context, id string) (*contractBuyer, error) {
	c, err := n.ownContract(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(c.Operations) == 0 || len(c.Columns) == 0 {
		return nil, fmt.Errorf("contract %s grants nothing that a drill could ask for", id)
	}
	b := &contractBuyer{n: n}
	ask := func(op, column string) httpapi.QueryRequest {
		return httpapi.QueryRequest{ContractID: id, GroupBy: []string{}, Filters: []contract.Condition{}, OrderBy: []contract.Order{}, Aggregates: []contract.Aggregate{{Op: op, Column: column}}}
	}
	switch {
	case slices.Contains(c.Operations, contract.OpCount):
		b.granted = ask(contract.OpCount, "")
	default:
		// Which column an operation makes sense for, the data plane says: any answer but a fault is one.
		b.granted = ask(c.Operations[0], c.Columns[len(c.Columns)-1])
	}
	vendor, err := did.Parse(c.Parties.Vendor)
	if err != nil {
		return nil, err
	}
	if p, err := n.connect(ctx, n.successorOf(ctx, vendor)); err == nil {
		if schema := p.Schema(c.Dataset); schema != nil {
			for _, col := range schema.Columns {
				if !slices.Contains(c.Columns, col.Name) {
					b.denied = b.granted
					b.denied.GroupBy = []string{col.Name}
					return b, nil
				}
			}
		}
	}
	for _, op := range []string{contract.OpMin, contract.OpMax, contract.OpCountDistinct, contract.OpSum, contract.OpAvg, contract.OpMedian} {
		if !slices.Contains(c.Operations, op) {
			b.denied = ask(op, c.Columns[len(c.Columns)-1])
			return b, nil
		}
	}
	return nil, fmt.Errorf("contract %s grants everything: there is nothing that has to be refused", id)
}

// Granted implements [drill.Buyer].
func (b *contractBuyer) Granted(ctx context.Context) error {
	_, err := b.n.Query(ctx, b.granted)
	return undecided(err)
}

// OutOfScope implements [drill.Buyer].
func (b *contractBuyer) OutOfScope(ctx context.Context) error {
	_, err := b.n.Query(ctx, b.denied)
	var no *mcp.Refused
	switch {
	case errors.As(err, &no) && no.Code == string(contract.ScopeDenied):
		return nil
	case err == nil:
		return errors.New("it was answered")
	}
	return undecided(err)
}

// undecided marks what nobody has decided about: a client may ask again.
func undecided(err error) error {
	var no *mcp.Refused
	if err == nil || errors.As(err, &no) {
		return err
	}
	if e := httpapi.AsError(err); e.Kind == httpapi.KindUnreachable {
		return fmt.Errorf("%w: %w", drill.ErrAgain, err)
	}
	return err
}
