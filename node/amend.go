// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/lifecycle"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/negotiation/policy"
	"github.com/treaty-node/treaty/node/store"
)

// replacing hands negotiations on to the lifecycle, which is made after them.
type replacing struct{ n *Node }

// Replaceable implements [negotiation.Amendments].
func (r replacing) Replaceable(tx store.Tx, old contract.Reference, buyer did.DID) (string, error) {
	return r.n.ending.Replaceable(tx, old, buyer)
}

// Replaced implements [negotiation.Amendments].
func (r replacing) Replaced(ctx context.Context, tx store.Tx, c *contract.Contract) error {
	return r.n.ending.Replaced(ctx, tx, c)
}

// Amend implements [httpapi.LifecycleAdmin].
func (n *Node) Amend(ctx context.Context, id string, req httpapi.AmendRequest) (httpapi.Negotiation, error) {
	c, peer, err := n.amendable(ctx, id)
	if err != nil {
		return httpapi.Negotiation{}, err
	}
	if req.Needs != "" {
		if req.Changes() {
			return httpapi.Negotiation{}, &httpapi.Error{Kind: httpapi.KindUsage, Message: "a needs file says everything; leave the other terms out, or the file"}
		}
		return n.replace(ctx, c, peer, req.Needs, nil)
	}
	if !req.Changes() {
		return httpapi.Negotiation{}, &httpapi.Error{Kind: httpapi.KindUsage, Message: "nothing is to be changed", Hint: "treaty contracts renew asks for the same terms again"}
	}
	scope := overlaid(c.Scope, req)
	if err := scope.Validate(); err != nil {
		return httpapi.Negotiation{}, &httpapi.Error{Kind: httpapi.KindUsage, Message: strings.TrimPrefix(err.Error(), "contract: "), Hint: "treaty contracts show " + id + " shows the terms"}
	}
	return n.again(ctx, c, peer, scope, req.Rationale)
}

// Renew implements [httpapi.LifecycleAdmin].
func (n *Node) Renew(ctx context.Context, id string) (httpapi.Negotiation, error) {
	c, peer, err := n.amendable(ctx, id)
	if err != nil {
		return httpapi.Negotiation{}, err
	}
	return n.again(ctx, c, peer, c.Scope, "renewal of contract "+c.ID)
}

// again asks for these terms and no others.
func (n *Node) again(ctx context.Context, c *contract.Contract, peer string, terms contract.Scope, rationale string) (httpapi.Negotiation, error) {
	text, err := policy.NeedsFor(terms, rationale)
	if err != nil {
		return httpapi.Negotiation{}, err
	}
	return n.replace(ctx, c, peer, string(text), &terms)
}

func (n *Node) replace(ctx context.Context, c *contract.Contract, peer, needs string, terms *contract.Scope) (httpapi.Negotiation, error) {
	digest, err := c.Digest()
	if err != nil {
		return httpapi.Negotiation{}, err
	}
	old := contract.Reference{ID: c.ID, Digest: digest}
	started, err := n.negotiate(ctx, httpapi.NegotiateRequest{Peer: peer, Needs: needs}, negotiation.Instead{Of: old, Terms: terms})
	if said := new(httpapi.Error); errors.As(err, &said) && said.Kind == httpapi.KindUnreachable && said.Hint == "" {
		said.Hint = "contract " + c.ID + " stays as it is; try again when the vendor's node answers"
	}
	return started, err
}

// amendable is a contract that this node, as its buyer, can ask to replace, and where its vendor is reached.
func (n *Node) amendable(ctx context.Context, id string) (c *contract.Contract, peer string, err error) {
	var rec store.ContractRecord
	err = n.db.View(ctx, func(tx store.Tx) error {
		if rec, err = tx.GetContract(id); err != nil {
			return err
		}
		if c, err = contract.Parse(rec.Bytes); err != nil {
			return err
		}
		line, err := tx.Lineage(c.Parties.Vendor)
		if err == nil {
			peer = line[len(line)-1]
		}
		return err
	})
	if err != nil {
		return nil, "", err
	}
	refuse := func(code, format string, args ...any) (*contract.Contract, string, error) {
		return nil, "", lifecycleError(&lifecycle.Refusal{Code: code, Text: fmt.Sprintf(format, args...)})
	}
	if rec.Role != lifecycle.Buyer {
		return refuse(lifecycle.CodeWrongParty, "in contract %s this company is the vendor; the buyer asks for another contract", id)
	}
	until, err := contract.ParseTime(c.ValidUntil)
	if err != nil {
		return nil, "", err
	}
	if rec.State != store.InForce || !n.clock.Now().Before(until) {
		return refuse(lifecycle.CodeNotInForce, "contract %s is not in force any more, so that nothing can replace it; treaty negotiate makes a new one", id)
	}
	return c, peer, nil
}

// overlaid is a contract's scope with what a request changes.
func overlaid(s contract.Scope, req httpapi.AmendRequest) contract.Scope {
	s = s.Clone()
	if len(req.Columns) > 0 {
		s.Columns = req.Columns
	}
	if len(req.Operations) > 0 {
		s.Operations = req.Operations
	}
	if req.Purpose != "" {
		s.Purpose = req.Purpose
	}
	if req.RetentionDays != nil {
		s.RetentionDays = *req.RetentionDays
	}
	if req.Calls != nil {
		s.CallBudget = *req.Calls
	}
	// Grants of columns and operations that are not asked for any more go with them.
	kept := s.ColumnGrants[:0]
	for _, g := range s.ColumnGrants {
		if !slices.Contains(s.Columns, g.Column) {
			continue
		}
		ops := g.Operations[:0]
		for _, op := range g.Operations {
			if slices.Contains(s.Operations, op) {
				ops = append(ops, op)
			}
		}
		g.Operations = ops
		if len(ops) == 0 {
			g.Uses = slices.DeleteFunc(g.Uses, func(u string) bool { return u == contract.UseAggregate })
		}
		if len(g.Uses) > 0 {
			kept = append(kept, g)
		}
	}
	if s.Noise != nil {
		s.Noise.Bounds = slices.DeleteFunc(s.Noise.Bounds, func(b contract.Bound) bool { return !slices.Contains(s.Columns, b.Column) })
	}
	if s.ColumnGrants = kept; len(s.Readable()) == 0 {
		s.Rows = contract.RowGrant{}
	}
	return s
}
