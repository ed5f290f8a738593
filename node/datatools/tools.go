// SPDX-License-Identifier: Apache-2.0

package datatools

import "encoding/json"

// Tool is the public definition of one MCP tool.
type Tool struct {
	Name         string
	Title        string
	Description  string
	InputSchema  json.RawMessage // JSON Schema 2020-12, an object
	OutputSchema json.RawMessage
}

// Tools returns the data plane's tools in order of name. The caller may keep and change what it gets.
func Tools() []Tool {
	out := make([]Tool, len(tools))
	for i, t := range tools {
		t.InputSchema = append(json.RawMessage(nil), t.InputSchema...)
		t.OutputSchema = append(json.RawMessage(nil), t.OutputSchema...)
		out[i] = t
	}
	return out
}

const (
	schemaColumns = `{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"type":{"type":"string"}},"required":["name","type"],"additionalProperties":false}}`

	schemaCondition = `{"type":"object","properties":{` +
		`"column":{"type":"string"},` +
		`"op":{"type":"string","enum":["=","!=","<","<=",">",">=","in","between","is_null","is_not_null"]},` +
		`"value":{"type":["string","boolean"],"description":"For = != < <= > >=. Numbers and dates are strings: 12.50, 2025-07-01."},` +
		`"values":{"type":"array","items":{"type":["string","boolean"]},"description":"For in (1 to 256) and between (exactly 2, both included)."}},` +
		`"required":["column","op"],"additionalProperties":false}`

	schemaContract = `{"type":"object","properties":{` +
		`"contract_id":{"type":"string"},"digest":{"type":"string"},"state":{"type":"string"},"dataset":{"type":"string"},` +
		`"columns":` + schemaColumns + `,"operations":{"type":"array","items":{"type":"string"}},"row_filter":{"type":"array","items":` + schemaCondition + `},` +
		`"purpose":{"type":"string"},"retention_days":{"type":"integer"},"min_group_size":{"type":"integer"},"call_budget":{"type":"integer"},"calls_used":{"type":"integer"},` +
		`"valid_from":{"type":"string"},"valid_until":{"type":"string"}},` +
		`"required":["contract_id","digest","state","dataset","columns","operations","row_filter","purpose","retention_days","min_group_size","call_budget","calls_used","valid_from","valid_until"],"additionalProperties":false}`
)

var tools = []Tool{
	{
		Name: DescribeContract, Title: "Describe a contract",
		Description:  "What one of your contracts grants: dataset, columns, operations, row filter, purpose of record, minimum group size, budget and validity.",
		InputSchema:  json.RawMessage(`{"type":"object","properties":{"contract_id":{"type":"string"}},"required":["contract_id"],"additionalProperties":false}`),
		OutputSchema: json.RawMessage(schemaContract),
	},
	{
		Name: ListDatasets, Title: "List datasets",
		Description: "The datasets served here. Columns and contract ids are shown for datasets that you have a contract on.",
		InputSchema: json.RawMessage(`{"type":"object","additionalProperties":false}`),
		OutputSchema: json.RawMessage(`{"type":"object","properties":{"datasets":{"type":"array","items":{"type":"object","properties":{` +
			`"dataset":{"type":"string"},"description":{"type":"string"},"columns":` + schemaColumns + `,"contract_ids":{"type":"array","items":{"type":"string"}}},` +
			`"required":["dataset","description"],"additionalProperties":false}}},"required":["datasets"],"additionalProperties":false}`),
	},
	{
		Name: QueryRecords, Title: "Query a dataset under a contract",
		Description: "Aggregates over a dataset, as far as your contract grants them. The purpose must be the contract's purpose of record. " +
			"Groups below the contract's minimum size are left out. A refusal is the data owner's decision: its text begins with a code, " +
			"and a call that was refused after it ran (GROUP_TOO_SMALL) counts against the budget.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{` +
			`"contract_id":{"type":"string"},"purpose":{"type":"string"},"dataset":{"type":"string"},` +
			`"aggregates":{"type":"array","minItems":1,"maxItems":16,"items":{"type":"object","properties":{` +
			`"op":{"type":"string","enum":["avg","sum","min","max","count","count_distinct","median"]},` +
			`"column":{"type":"string","description":"Left out to count rows."},"as":{"type":"string","description":"Name in the answer; default op_column."}},` +
			`"required":["op"],"additionalProperties":false}},` +
			`"group_by":{"type":"array","maxItems":8,"items":{"type":"string"}},` +
			`"filters":{"type":"array","maxItems":64,"items":` + schemaCondition + `,"description":"All must hold."},` +
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
