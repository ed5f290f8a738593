// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/gateway/mcp"
	"github.com/treaty-node/treaty/node/httpapi"
)

// Tool implements [httpapi.Admin]: it calls one tool of the data plane that a contract names, for an MCP client of this
// company, and returns the result as MCP writes it. A query is logged, verified and kept exactly as [Node.Query] does it.
//
// Arguments that are no arguments of the tool, and those that name another contract, go nowhere and are refused in the words
// that the data plane has for them. What list_datasets says of other contracts is left out.
func (n *Node) Tool(ctx context.Context, q httpapi.ToolRequest) (json.RawMessage, error) {
	c, err := n.ownContract(ctx, q.ContractID)
	if err != nil {
		return nil, err
	}
	structured, err := n.tool(ctx, c, q.Tool, q.Arguments)
	var refused *mcp.Refused
	switch {
	case errors.As(err, &refused):
		return refused.Result()
	case errors.Is(err, datatools.ErrArguments):
		return (&mcp.Refused{Text: contract.Refusal(contract.InvalidQuery, nil, err.Error()).String()}).Result()
	case err != nil:
		return nil, queryError(err)
	}
	return mcp.Result(structured)
}

// tool returns the structured content of a tool's result.
func (n *Node) tool(ctx context.Context, c *contract.Contract, tool string, arguments json.RawMessage) ([]byte, error) {
	switch tool {
	case datatools.ListDatasets:
		var in datatools.ListInput
		if err := datatools.ParseArguments(arguments, &in); err != nil {
			return nil, err
		}
		all, err := mcp.Call(ctx, n.data, c, tool, in)
		if err != nil {
			return nil, err
		}
		return onlyOf(c, all)
	case datatools.DescribeContract:
		var in datatools.DescribeInput
		if err := datatools.ParseArguments(arguments, &in); err != nil {
			return nil, err
		}
		if err := ofContract(c, in.ContractID); err != nil {
			return nil, err
		}
		return mcp.Call(ctx, n.data, c, tool, in)
	case datatools.QueryRecords:
		var in datatools.QueryInput
		if err := datatools.ParseArguments(arguments, &in); err != nil {
			return nil, err
		}
		return n.askTool(ctx, c, in.Request(n.self().String()))
	case datatools.SelectRecords:
		var in datatools.SelectInput
		if err := datatools.ParseArguments(arguments, &in); err != nil {
			return nil, err
		}
		if len(in.Columns) == 0 {
			return nil, fmt.Errorf("%w: columns is empty", datatools.ErrArguments)
		}
		return n.askTool(ctx, c, in.Request(n.self().String()))
	}
	return nil, &httpapi.Error{Kind: httpapi.KindUsage, Message: fmt.Sprintf("the data plane has no tool %.80q", tool)}
}

// askTool answers a query as the data plane's tools do.
func (n *Node) askTool(ctx context.Context, c *contract.Contract, req contract.Request) ([]byte, error) {
	if err := ofContract(c, req.ContractID); err != nil {
		return nil, err
	}
	a, err := n.ask(ctx, c, req)
	if err != nil {
		return nil, err
	}
	receipt, err := a.Receipt.Marshal()
	if err != nil {
		return nil, err
	}
	return canon.Marshal(datatools.QueryOutput{Result: a.Raw, Receipt: receipt})
}

// onlyOf leaves in the answer of list_datasets what contract c grants. The data plane tells this company of all its contracts;
// the client was given one.
func onlyOf(c *contract.Contract, structured []byte) ([]byte, error) {
	var all datatools.ListOutput
	if err := canon.UnmarshalOpen(structured, &all, canon.Limits{}); err != nil {
		return nil, fmt.Errorf("%w: %w", mcp.ErrAnswer, err)
	}
	out := datatools.ListOutput{Datasets: []datatools.DatasetInfo{}}
	for _, d := range all.Datasets {
		own := datatools.DatasetInfo{Dataset: d.Dataset}
		if slices.Contains(d.ContractIDs, c.ID) {
			own.Description, own.ContractIDs = d.Description, []string{c.ID}
			for _, col := range d.Columns {
				if slices.Contains(c.Columns, col.Name) {
					own.Columns = append(own.Columns, col)
				}
			}
		}
		out.Datasets = append(out.Datasets, own)
	}
	return canon.Marshal(out)
}

// ofContract keeps a client that was given one contract from using another.
func ofContract(c *contract.Contract, id string) error {
	if id != c.ID {
		return fmt.Errorf("%w: contract_id: this client was given contract %s", datatools.ErrArguments, c.ID)
	}
	return nil
}
