// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/treaty-node/treaty/node/cedar"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/lifecycle"
	"github.com/treaty-node/treaty/node/store"
)

// Explain implements [httpapi.PolicyAdmin]: the contract's decision, by the function that the data plane decides with, and what
// this node's own Cedar policies say to each use of a column.
func (n *Node) Explain(ctx context.Context, q httpapi.QueryRequest) (httpapi.Explanation, error) {
	var rec store.ContractRecord
	u := contract.Usage{}
	err := n.db.View(ctx, func(tx store.Tx) (err error) {
		if rec, err = tx.GetContract(q.ContractID); err != nil {
			return err
		}
		if u.Revoked, err = tx.Revoked(rec.ID); err != nil {
			return err
		}
		u.State = contract.State(rec.State)
		if u.Calls, err = tx.GetUsage(rec.ID); err != nil {
			return err
		}
		drawn, err := tx.GetDrawn(rec.ID)
		u.Rows, u.MicroEpsilon = drawn.Rows, drawn.Epsilon
		return err
	})
	if err != nil {
		return httpapi.Explanation{}, err
	}
	c, err := contract.Parse(rec.Bytes)
	if err != nil {
		return httpapi.Explanation{}, err
	}
	req := asSent(requestOf(c, q), c.Parties.Buyer)
	out := httpapi.Explanation{ContractID: c.ID, Role: rec.Role, Contract: rec.Bytes, Caller: c.Parties.Buyer}
	schema := n.schemaOf(ctx, c, rec.Role)
	if schema == nil {
		out.Steps = append(out.Steps, httpapi.Step{Stage: "contract", Rule: "SCHEMA", Text: "the published schema that the contract names is not to be had here any more; a data plane that has another refuses"})
		return out, nil
	}
	d := contract.Evaluate(req, schema, c, u, n.clock.Now())
	out.Allowed = d.Allowed
	step := httpapi.Step{Stage: "contract", Allowed: d.Allowed, Rule: string(d.Code), Text: d.Text}
	if d.Allowed {
		step.Rule, step.Text = "EVALUATE", "in force, and every column, operation, purpose and budget is within the contract"
	}
	out.Steps = append(out.Steps, step)
	if rec.Role == lifecycle.Vendor && n.offer != nil && n.offer.cedar != nil {
		out.Steps = append(out.Steps, n.explainCedar(&req, c)...)
	}
	return out, nil
}

// explainCedar says what the node's policies would say to each use, had it to be offered today. A contract in force does not
// change by it.
func (n *Node) explainCedar(req *contract.Request, c *contract.Contract) []httpapi.Step {
	lineage, err := n.lineage(c.Parties.Buyer)
	if err != nil {
		return []httpapi.Step{{Stage: "offer", Rule: "cedar", Text: err.Error()}}
	}
	who := cedar.Company{DID: c.Parties.Buyer, Domain: cedar.Domain(c.Parties.Buyer), Lineage: lineage}
	terms := cedar.Terms{Purpose: c.Purpose, RetentionDays: c.RetentionDays, MinGroupSize: c.MinGroupSize}
	var out []httpapi.Step
	for _, u := range req.ColumnUses() {
		if _, there := n.offer.classes[req.Dataset][u.Column]; !there {
			out = append(out, httpapi.Step{Stage: "offer", Rule: string(contract.UnknownColumn), Text: u.Use + " of " + contract.Echo(u.Column) + ": there is no such column"})
			continue
		}
		r := n.offer.cedar.Decide(who, u.Use, cedar.Column{Dataset: req.Dataset, Name: u.Column, Class: n.offer.classes[req.Dataset][u.Column]}, terms)
		out = append(out, httpapi.Step{Stage: "offer", Allowed: r.Allowed, Rule: r.Name(), Text: u.Use + " of " + contract.Echo(u.Column) + ": " + r.Why()})
	}
	if cedar.CountsRows(req) {
		r := n.offer.cedar.CountRows(who, &c.Scope, func(name string) string { return n.offer.classes[req.Dataset][name] }, terms)
		out = append(out, httpapi.Step{Stage: "offer", Allowed: r.Allowed, Rule: r.Name(), Text: "count of rows: " + r.Why()})
	}
	return out
}
