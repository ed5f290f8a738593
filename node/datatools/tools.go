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
	Readable                     []string // columns of select_records; none: no rows are granted
}

// GrantOf is the grant of a contract.
func GrantOf(c *contract.Contract) Grant {
	g := Grant{ContractID: c.ID, Dataset: c.Dataset, Purpose: c.Purpose, Columns: c.Columns, Operations: c.Operations}
	if !c.Rows.IsZero() {
		g.Readable = c.Readable()
	}
	return g
}

// Tools returns the data plane's tools in order of name, as anybody may know them: they are published in agent cards. The
// caller may keep and change what it gets.
func Tools() []Tool { return define(names{operations: contract.AllOperations()}) }

// ToolsFor returns the tools as somebody with these contracts can use them: with the contracts, datasets, purposes, operations
// and columns that they grant, and no others, and select_records only where one grants rows. Without a contract that is the
// tools' names.
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
		if len(g.Readable) > 0 {
			n.readable, n.rowContracts = append(n.readable, g.Readable...), append(n.rowContracts, g.ContractID)
		}
	}
	for _, list := range []*[]string{&n.contracts, &n.datasets, &n.purposes, &n.columns, &n.operations, &n.readable, &n.rowContracts} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	tools := define(n)
	if len(n.readable) == 0 {
		tools = slices.DeleteFunc(tools, func(t Tool) bool { return t.Name == SelectRecords })
	}
	return tools
}

// names are the strings that a definition admits; an empty list admits every string.
type names struct {
	contracts, datasets, purposes, columns, operations []string

	readable, rowContracts []string // of select_records
}

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

// conditionMembers are the properties of a condition.
func conditionMembers(columns, operators []string) string {
	return `"column":` + text(columns, "") + `,` +
		`"op":` + text(operators, "") + `,` +
		`"value":{"type":["string","boolean"],"description":"For = != < <= > >= prefix. Numbers and dates are strings: 12.50, 2025-07-01."},` +
		`"values":{"type":"array","items":{"type":["string","boolean"]},"description":"For in (1 to 256) and between (exactly 2, both included)."}`
}

var operators = []string{
	contract.OpEqual, contract.OpNotEqual, contract.OpLess, contract.OpLessEqual, contract.OpGreater, contract.OpGreaterEqual,
	contract.OpIn, contract.OpBetween, contract.OpIsNull, contract.OpIsNotNull, contract.OpPrefix,
}

func condition(columns []string) string {
	return `{"type":"object","properties":{` + conditionMembers(columns, operators) + `},"required":["column","op"],"additionalProperties":false}`
}

// having is a condition on an aggregate, by its name.
func having() string {
	return `{"type":"object","properties":{` + conditionMembers(nil, operators[:len(operators)-1]) + `},"required":["column","op"],"additionalProperties":false}`
}

// where is a tree of conditions; it refers to itself.
func where(columns []string) string {
	return `{"type":"object","description":"Exactly one of and, or, not, or a condition (column, op, value or values).","properties":{` +
		`"and":{"type":"array","minItems":1,"items":{"$ref":"#/$defs/filter"}},"or":{"type":"array","minItems":1,"items":{"$ref":"#/$defs/filter"}},` +
		`"not":{"$ref":"#/$defs/filter"},` + conditionMembers(columns, operators) + `},"additionalProperties":false}`
}

const (
	schemaWhere  = `{"$ref":"#/$defs/filter","description":"Must hold beside filters: a tree of at most 8 levels and, with filters, 64 conditions."}`
	schemaOffset = `{"type":"integer","minimum":0,"maximum":10000000,"description":"Leave out so many first. The order is the same for every page; each page is a call of its own."}`
)

func orderBy(description string) string {
	return `{"type":"array","maxItems":24,"items":{"type":"object","properties":{"by":{"type":"string","description":"` + description +
		`"},"desc":{"type":"boolean"}},"required":["by"],"additionalProperties":false}}`
}

const schemaColumns = `{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"type":{"type":"string"}},"required":["name","type"],"additionalProperties":false}}`

func schemaContract() string {
	return `{"type":"object","properties":{` +
		`"contract_id":{"type":"string"},"digest":{"type":"string"},"state":{"type":"string"},"dataset":{"type":"string"},` +
		`"columns":` + schemaColumns + `,"operations":{"type":"array","items":{"type":"string"}},"row_filter":{"type":"array","items":` + condition(nil) + `},` +
		`"purpose":{"type":"string"},"retention_days":{"type":"integer"},"min_group_size":{"type":"integer"},"call_budget":{"type":"integer"},"calls_used":{"type":"integer"},` +
		`"valid_from":{"type":"string"},"valid_until":{"type":"string"},` +
		`"contract_version":{"type":"integer"},"rate":{"type":"object"},"calls_in_window":{"type":"integer"},` +
		`"column_grants":{"type":"array","items":{"type":"object"}},"row_budget":{"type":"integer"},"rows_used":{"type":"integer"},` +
		`"retention_statement":{"type":"string"},"noise":{"type":"object"},"epsilon_used":{"type":"string"},"amends":{"type":"object"}},` +
		`"required":["contract_id","digest","state","dataset","columns","operations","row_filter","purpose","retention_days","min_group_size","call_budget","calls_used","valid_from","valid_until"],"additionalProperties":false}`
}

// schemaAnswer is the output of both queries.
const schemaAnswer = `{"type":"object","properties":{` +
	`"result":{"type":"object","properties":{"columns":` + schemaColumns + `,` +
	`"rows":{"type":"array","items":{"type":"array","items":{"type":["null","boolean","number","string"]}}},` +
	`"used_rows":{"type":"integer","description":"Rows of the dataset in the groups shown."},` +
	`"total_rows":{"type":"integer","description":"Rows of the dataset that the contract's row filter lets through."},` +
	`"noise":{"type":"object","description":"Present when noise was added to counts and sums; used_rows and total_rows are then 0.","properties":{"epsilon":{"type":"string"}},"required":["epsilon"],"additionalProperties":false}},` +
	`"required":["columns","rows","used_rows","total_rows"],"additionalProperties":false},` +
	`"receipt":{"type":"object","description":"Signed by the data plane; resultDigest covers result."}},` +
	`"required":["result","receipt"],"additionalProperties":false}`

func define(n names) []Tool {
	return []Tool{
		{
			Name: DescribeContract, Title: "Describe a contract",
			Description:  "What one of your contracts grants: dataset, columns and their uses, operations, row filter, rows, purpose of record, minimum group size, budgets, rate, noise and validity, and what is used up.",
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
				`"column":` + text(n.columns, `,"description":"Left out to count rows."`) + `,"as":{"type":"string","description":"Name in the answer; default op_column."},` +
				`"p":{"type":"string","description":"Of percentile: the fraction, such as 0.95."}},` +
				`"required":["op"],"additionalProperties":false}},` +
				`"group_by":{"type":"array","maxItems":8,"items":` + text(n.columns, "") + `},` +
				`"filters":{"type":"array","maxItems":64,"items":` + condition(n.columns) + `,"description":"All must hold."},` +
				`"where":` + schemaWhere + `,` +
				`"group_by_date":{"type":"array","maxItems":8,"items":{"type":"object","properties":{"column":` + text(n.columns, "") + `,` +
				`"unit":` + text(contract.Units(), "") + `},"required":["column","unit"],"additionalProperties":false},"description":"Groups by the beginning of a unit of time; named column_unit in the answer."},` +
				`"having":{"type":"array","maxItems":64,"items":` + having() + `,"description":"On aggregates, by their names; all must hold."},` +
				`"order_by":` + orderBy("A group_by column, column_unit of a group_by_date, or an aggregate's name.") + `,` +
				`"limit":{"type":"integer","minimum":0,"maximum":10000,"description":"0: as many groups as the data plane allows."},` +
				`"offset":` + schemaOffset + `},` +
				`"required":["contract_id","purpose","dataset","aggregates"],"additionalProperties":false,"$defs":{"filter":` + where(n.columns) + `}}`),
			OutputSchema: json.RawMessage(schemaAnswer),
		},
		{
			Name: SelectRecords, Title: "Read rows of a dataset under a contract",
			Description: "Rows of a dataset, where your contract grants rows: the columns that may be read, of the rows that its row filter lets through. " +
				"The limit is taken out of the contract's row budget, and what did not come is put back. The purpose must be the contract's purpose of record.",
			InputSchema: json.RawMessage(`{"type":"object","properties":{` +
				`"contract_id":` + text(n.rowContracts, "") + `,"purpose":` + text(n.purposes, "") + `,"dataset":` + text(n.datasets, "") + `,` +
				`"columns":{"type":"array","minItems":1,"maxItems":64,"items":` + text(n.readable, "") + `},` +
				`"filters":{"type":"array","maxItems":64,"items":` + condition(n.columns) + `,"description":"All must hold."},` +
				`"where":` + schemaWhere + `,` +
				`"order_by":` + orderBy("One of columns.") + `,` +
				`"limit":{"type":"integer","minimum":1,"maximum":10000},"offset":` + schemaOffset + `},` +
				`"required":["contract_id","purpose","dataset","columns","limit"],"additionalProperties":false,"$defs":{"filter":` + where(n.columns) + `}}`),
			OutputSchema: json.RawMessage(schemaAnswer),
		},
	}
}
