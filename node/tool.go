// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

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
// that the data plane has for them.
func (n *Node) Tool(ctx context.Context, q httpapi.ToolRequest) (json.RawMessage, error) {
	c, err := n.ownContract(ctx, q.ContractID)
	if err != nil {
		return nil, err
	}
	res, err := n.tool(ctx, c, q.Tool, q.Arguments)
	var refused *mcp.Refused
	switch {
	case errors.As(err, &refused):
		res, err = refused.Result()
	case errors.Is(err, datatools.ErrArguments):
		res, err = (&mcp.Refused{Text: contract.Refusal(contract.InvalidQuery, nil, err.Error()).String()}).Result()
	case err != nil:
		return nil, queryError(err)
	}
	return res, err
}

func (n *Node) tool(ctx context.Context, c *contract.Contract, tool string, arguments json.RawMessage) ([]byte, error) {
	switch tool {
	case datatools.ListDatasets:
		var in datatools.ListInput
		if err := datatools.ParseArguments(arguments, &in); err != nil {
			return nil, err
		}
		return mcp.Call(ctx, n.data, c, tool, in)
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
		if err := ofContract(c, in.ContractID); err != nil {
			return nil, err
		}
		a, err := n.ask(ctx, c, in.Request(n.self().String()))
		if err != nil {
			return nil, err
		}
		receipt, err := a.Receipt.Marshal()
		if err != nil {
			return nil, err
		}
		structured, err := canon.Marshal(datatools.QueryOutput{Result: a.Raw, Receipt: receipt})
		if err != nil {
			return nil, err
		}
		return mcp.Result(structured)
	}
	return nil, &httpapi.Error{Kind: httpapi.KindUsage, Message: fmt.Sprintf("the data plane has no tool %.80q", tool)}
}

// ofContract keeps a client that was given one contract from using another.
func ofContract(c *contract.Contract, id string) error {
	if id != c.ID {
		return fmt.Errorf("%w: contract_id: this client was given contract %s", datatools.ErrArguments, c.ID)
	}
	return nil
}
