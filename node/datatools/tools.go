// SPDX-License-Identifier: Apache-2.0

package datatools

import (
	"encoding/json"
	"slices"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
)

// Tool is the public definition of one MCP tool.
type Tool struct {
	Name         string
	Title        string
	Description  string
	InputSchema  json.RawMessage // JSON Schema 2020-12, an object
	OutputSchema json.RawMessage
}

// Grant is what one contract lets its buyer use.
type Grant struct {
	ContractID, Dataset, Purpose string
	Columns, Operations          []string
}

// GrantOf is the grant of a contract.
func GrantOf(c *contract.Contract) Grant {
	return Grant{ContractID: c.ID, Dataset: c.Dataset, Purpose: c.Purpose, Columns: c.Columns, Operations: c.Operations}
}

// Tools returns the data plane's tools in order of name, as anybody may know them: they are published in agent cards. The
// caller may keep and change what it gets.
func Tools() []Tool { return define(names{operations: operations}) }

// ToolsFor returns the tools as somebody with these contracts can use them: with the contracts, datasets, purposes, operations
// and columns that they grant, and no others. Without a contract that is the tools' names.
//
// What is shown decides nothing: [contract.Evaluate] does.
func ToolsFor(grants ...Grant) []Tool {
	if len(grants) == 0 {
		out := Tools()
		for i, t := range out {
			out[i] = Tool{Name: t.Name, InputSchema: json.RawMessage(`{"type":"object"}`)}
		}
		return out
	}
	var n names
	for _, g := range grants {
		n.contracts, n.datasets, n.purposes = append(n.contracts, g.ContractID), append(n.datasets, g.Dataset), append(n.purposes, g.Purpose)
		n.columns, n.operations = append(n.columns, g.Columns...), append(n.operations, g.Operations...)
	}
	for _, list := range []*[]string{&n.contracts, &n.datasets, &n.purposes, &n.columns, &n.operations} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return define(n)
}

// operations are all there are.
var operations = []string{"avg", "sum", "min", "max", "count", "count_distinct", "median"}

// names are the strings that a definition admits; an empty list admits every string.
type names struct{ contracts, datasets, purposes, columns, operations []string }

// text is the schema of a string, one of a list unless that is empty. more are further members.
func text(list []string, more string) string {
	s := `{"type":"string"`
	if len(list) > 0 {
		b, err := canon.Marshal(list)
		if err != nil { // strings that a contract holds have a canonical form
			b = []byte(`[]`)
		}
		s += `,"enum":` + string(b)
	}
	return s + more + "}"
}

func condition(columns []string) string {
	return `{"type":"object","properties":{` +
		`"column":` + text(columns, "") + `,` +
		`"op":{"type":"string","enum":["=","!=","<","<=",">",">=","in","between","is_null","is_not_null"]},` +
		`"value":{"type":["string","boolean"],"description":"For = != < <= > >=. Numbers and dates are strings: 12.50, 2025-07-01."},` +
		`"values":{"type":"array","items":{"type":["string","boolean"]},"description":"For in (1 to 256) and between (exactly 2, both included)."}},` +
		`"required":["column","op"],"additionalProperties":false}`
}

const schemaColumns = `{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"type":{"type":"string"}},"required":["name","type"],"additionalProperties":false}}`

func schemaContract() string {
	return `{"type":"object","properties":{` +
		`"contract_id":{"type":"string"},"digest":{"type":"string"},"state":{"type":"string"},"dataset":{"type":"string"},` +
		`"columns":` + schemaColumns + `,"operations":{"type":"array","items":{"type":"string"}},"row_filter":{"type":"array","items":` + condition(nil) + `},` +
		`"purpose":{"type":"string"},"retention_days":{"type":"integer"},"min_group_size":{"type":"integer"},"call_budget":{"type":"integer"},"calls_used":{"type":"integer"},` +
		`"valid_from":{"type":"string"},"valid_until":{"type":"string"}},` +
		`"required":["contract_id","digest","state","dataset","columns","operations","row_filter","purpose","retention_days","min_group_size","call_budget","calls_used","valid_from","valid_until"],"additionalProperties":false}`
}

func define(n names) []Tool {
	return []Tool{
		{
			Name: DescribeContract, Title: "Describe a contract",
			Description:  "What one of your contracts grants: dataset, columns, operations, row filter, purpose of record, minimum group size, budget and validity.",
			InputSchema:  json.RawMessage(`{"type":"object","properties":{"contract_id":` + text(n.contracts, "") + `},"required":["contract_id"],"additionalProperties":false}`),
			OutputSchema: json.RawMessage(schemaContract()),
		},
		{
			Name: ListDatasets, Title: "List datasets",
			Description: "The datasets served here. Of a dataset that you have a contract on, also its description, the columns that the contract grants, and the contract's id.",
			InputSchema: json.RawMessage(`{"type":"object","additionalProperties":false}`),
			OutputSchema: json.RawMessage(`{"type":"object","properties":{"datasets":{"type":"array","items":{"type":"object","properties":{` +
				`"dataset":{"type":"string"},"description":{"type":"string"},"columns":` + schemaColumns + `,"contract_ids":{"type":"array","items":{"type":"string"}}},` +
				`"required":["dataset"],"additionalProperties":false}}},"required":["datasets"],"additionalProperties":false}`),
		},
		{
			Name: QueryRecords, Title: "Query a dataset under a contract",
			Description: "Aggregates over a dataset, as far as your contract grants them. The purpose must be the contract's purpose of record. " +
				"Groups below the contract's minimum size are left out. A refusal is the data owner's decision: its text begins with a code, " +
				"and a call that was refused after it ran (GROUP_TOO_SMALL) counts against the budget.",
			InputSchema: json.RawMessage(`{"type":"object","properties":{` +
				`"contract_id":` + text(n.contracts, "") + `,"purpose":` + text(n.purposes, "") + `,"dataset":` + text(n.datasets, "") + `,` +
				`"aggregates":{"type":"array","minItems":1,"maxItems":16,"items":{"type":"object","properties":{` +
				`"op":` + text(n.operations, "") + `,` +
				`"column":` + text(n.columns, `,"description":"Left out to count rows."`) + `,"as":{"type":"string","description":"Name in the answer; default op_column."}},` +
				`"required":["op"],"additionalProperties":false}},` +
				`"group_by":{"type":"array","maxItems":8,"items":` + text(n.columns, "") + `},` +
				`"filters":{"type":"array","maxItems":64,"items":` + condition(n.columns) + `,"description":"All must hold."},` +
				`"order_by":{"type":"array","maxItems":24,"items":{"type":"object","properties":{"by":{"type":"string","description":"A group_by column or an aggregate's name."},"desc":{"type":"boolean"}},"required":["by"],"additionalProperties":false}},` +
				`"limit":{"type":"integer","minimum":0,"maximum":10000,"description":"0: as many groups as the data plane allows."}},` +
				`"required":["contract_id","purpose","dataset","aggregates"],"additionalProperties":false}`),
			OutputSchema: json.RawMessage(`{"type":"object","properties":{` +
				`"result":{"type":"object","properties":{"columns":` + schemaColumns + `,` +
				`"rows":{"type":"array","items":{"type":"array","items":{"type":["null","boolean","number","string"]}}},` +
				`"used_rows":{"type":"integer","description":"Rows of the dataset in the groups shown."},` +
				`"total_rows":{"type":"integer","description":"Rows of the dataset that the contract's row filter lets through."}},` +
				`"required":["columns","rows","used_rows","total_rows"],"additionalProperties":false},` +
				`"receipt":{"type":"object","description":"Signed by the data plane; resultDigest covers result."}},` +
				`"required":["result","receipt"],"additionalProperties":false}`),
		},
	}
}
