// SPDX-License-Identifier: Apache-2.0

// Package datatools is the data plane's public face: the names, descriptions and JSON schemas of its MCP tools, and the Go
// types of their arguments and results. The data plane serves them, a vendor's node publishes them in its agent card, and a
// buyer's node calls them; so both sides compute the same digests of what was asked and given.
//
// The package is pure. It decides nothing: whether a query may run is [contract.Evaluate]'s to say.
package datatools

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
)

// Names of the tools.
const (
	ListDatasets     = "list_datasets"
	DescribeContract = "describe_contract"
	QueryRecords     = "query_records"
	SelectRecords    = "select_records"
)

// MetaReceipt is the member of a refused call's _meta that holds the signed receipt of the refusal, when there is one.
const MetaReceipt = "treaty/receipt"

// MaxArguments is the largest size of a tool's arguments, in bytes of JSON.
const MaxArguments = 128 << 10

// ErrArguments: the arguments of a call are not what the tool takes.
var ErrArguments = errors.New("invalid arguments")

// QueryInput is the argument object of query_records. Lists may be left out when they are empty.
type QueryInput struct {
	ContractID string               `json:"contract_id"`
	Purpose    string               `json:"purpose"`
	Dataset    string               `json:"dataset"`
	Aggregates []AggregateInput     `json:"aggregates"`
	GroupBy    []string             `json:"group_by,omitempty"`
	Filters    []contract.Condition `json:"filters,omitempty"`
	OrderBy    []OrderInput         `json:"order_by,omitempty"`
	Limit      int                  `json:"limit,omitempty"`

	GroupByDate []DateGroupInput     `json:"group_by_date,omitempty"`
	Where       *contract.Filter     `json:"where,omitempty"`
	Having      []contract.Condition `json:"having,omitempty"`
	Offset      int                  `json:"offset,omitempty"`
}

// DateGroupInput groups by the beginning of a unit of time.
type DateGroupInput struct {
	Column string `json:"column"`
	Unit   string `json:"unit"`
}

// SelectInput is the argument object of select_records.
type SelectInput struct {
	ContractID string               `json:"contract_id"`
	Purpose    string               `json:"purpose"`
	Dataset    string               `json:"dataset"`
	Columns    []string             `json:"columns"`
	Filters    []contract.Condition `json:"filters,omitempty"`
	Where      *contract.Filter     `json:"where,omitempty"`
	OrderBy    []OrderInput         `json:"order_by,omitempty"`
	Limit      int                  `json:"limit"`
	Offset     int                  `json:"offset,omitempty"`
}

// Selection makes the arguments of select_records that ask r, which asks for rows.
func Selection(r contract.Request) SelectInput {
	q := Input(r)
	return SelectInput{
		ContractID: q.ContractID, Purpose: q.Purpose, Dataset: q.Dataset, Columns: r.Select, Filters: q.Filters, Where: q.Where,
		OrderBy: q.OrderBy, Limit: q.Limit, Offset: q.Offset,
	}
}

// Request is what the arguments ask, by a verified caller. Lists that every request has are empty and never nil.
func (in SelectInput) Request(caller string) contract.Request {
	r := QueryInput{
		ContractID: in.ContractID, Purpose: in.Purpose, Dataset: in.Dataset, Filters: in.Filters, Where: in.Where,
		OrderBy: in.OrderBy, Limit: in.Limit, Offset: in.Offset,
	}.Request(caller)
	r.Select = append([]string{}, in.Columns...)
	return r
}

// AggregateInput is one aggregate. Column is left out to count rows, As to take the default name.
type AggregateInput struct {
	Op     string `json:"op"`
	Column string `json:"column,omitempty"`
	As     string `json:"as,omitempty"`
	P      string `json:"p,omitempty"` // of percentile
}

// OrderInput is one term of an order.
type OrderInput struct {
	By   string `json:"by"`
	Desc bool   `json:"desc,omitempty"`
}

// Input makes the arguments that ask r.
func Input(r contract.Request) QueryInput {
	in := QueryInput{
		ContractID: r.ContractID, Purpose: r.Purpose, Dataset: r.Dataset,
		Aggregates: make([]AggregateInput, len(r.Aggregates)), GroupBy: r.GroupBy, Filters: r.Filters, Limit: r.Limit,
	}
	for i, a := range r.Aggregates {
		in.Aggregates[i] = AggregateInput(a)
	}
	for _, o := range r.OrderBy {
		in.OrderBy = append(in.OrderBy, OrderInput(o))
	}
	for _, g := range r.GroupByDate {
		in.GroupByDate = append(in.GroupByDate, DateGroupInput(g))
	}
	in.Where, in.Having, in.Offset = r.Where, r.Having, r.Offset
	return in
}

// Request is what the arguments ask, by a verified caller. Lists are empty and never nil, so that both sides compute the same
// [contract.Request.Digest].
func (in QueryInput) Request(caller string) contract.Request {
	r := contract.Request{
		ContractID: in.ContractID, Caller: caller, Purpose: in.Purpose, Dataset: in.Dataset, Limit: in.Limit,
		Aggregates: make([]contract.Aggregate, len(in.Aggregates)), GroupBy: append([]string{}, in.GroupBy...),
		Filters: append([]contract.Condition{}, in.Filters...), OrderBy: make([]contract.Order, len(in.OrderBy)),
	}
	for i, a := range in.Aggregates {
		r.Aggregates[i] = contract.Aggregate(a)
	}
	for i, o := range in.OrderBy {
		r.OrderBy[i] = contract.Order(o)
	}
	for _, g := range in.GroupByDate {
		r.GroupByDate = append(r.GroupByDate, contract.DateGroup(g))
	}
	r.Where, r.Having, r.Offset = in.Where, in.Having, in.Offset
	return r
}

// Column is one column of a result, its type in the words of published schemas.
type Column struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// Result is what was released. A cell is null, a boolean, a text, or: an integer, as a number up to 2^53 and as a string
// beyond; a decimal, as a string with all its digits; a double, as a number; a date or timestamp, as an ISO 8601 string.
//
// TotalRows are the dataset's rows that the contract's row filter lets through; UsedRows are the rows in the groups that the
// result shows, after the query's filters and limit. Groups below the contract's minimum size are in neither the rows nor
// UsedRows.
type Result struct {
	Columns   []Column   `json:"columns"`
	Noise     *NoiseInfo `json:"noise,omitempty"` // present when noise was added; UsedRows and TotalRows are then 0
	Rows      [][]any    `json:"rows"`
	TotalRows int64      `json:"total_rows"`
	UsedRows  int64      `json:"used_rows"`
}

// NoiseInfo says that noise was added, and what the answer took out of the privacy budget.
type NoiseInfo struct {
	Epsilon string `json:"epsilon"`
}

// QueryOutput is the structured content of an answered query_records. Both members are kept as they came: the receipt's
// resultDigest is [ResultDigest] of Result.
type QueryOutput struct {
	Receipt json.RawMessage `json:"receipt"` // a contract.Receipt
	Result  json.RawMessage `json:"result"`  // a Result
}

// ResultDigest is the digest of a result in any JSON form of it.
func ResultDigest(result []byte) (canon.Digest, error) {
	b, err := canon.Canonicalize(result, resultLimits)
	if err != nil {
		return canon.Digest{}, err
	}
	return canon.Sum(b), nil
}

var resultLimits = canon.Limits{MaxBytes: 32 << 20}

// ParseOutput reads an answer and checks that its receipt is about its result. It verifies no signature: see
// [contract.Receipt.VerifyFor].
func ParseOutput(structured []byte) (*Result, *contract.Receipt, error) {
	var out QueryOutput
	if err := canon.Unmarshal(structured, &out, resultLimits); err != nil {
		return nil, nil, fmt.Errorf("datatools: answer: %w", err)
	}
	var res Result
	if err := canon.Unmarshal(out.Result, &res, resultLimits); err != nil {
		return nil, nil, fmt.Errorf("datatools: result: %w", err)
	}
	rcp, err := contract.ParseReceipt(out.Receipt)
	if err != nil {
		return nil, nil, fmt.Errorf("datatools: receipt: %w", err)
	}
	d, err := ResultDigest(out.Result)
	if err != nil {
		return nil, nil, fmt.Errorf("datatools: result: %w", err)
	}
	if !d.Equal(rcp.ResultDigest) || rcp.Rows != int64(len(res.Rows)) || rcp.UsedRows != res.UsedRows || rcp.TotalRows != res.TotalRows {
		return nil, nil, errors.New("datatools: the receipt is about another result")
	}
	return &res, rcp, nil
}

// DescribeInput is the argument object of describe_contract.
type DescribeInput struct {
	ContractID string `json:"contract_id"`
}

// ListInput is the argument object of list_datasets.
type ListInput struct{}

// ContractInfo is a contract as its buyer sees it.
type ContractInfo struct {
	ContractID    string               `json:"contract_id"`
	Digest        canon.Digest         `json:"digest"`
	State         string               `json:"state"` // in_force, revoked, expired, …
	Dataset       string               `json:"dataset"`
	Columns       []Column             `json:"columns"`
	Operations    []string             `json:"operations"`
	RowFilter     []contract.Condition `json:"row_filter"`
	Purpose       string               `json:"purpose"`
	RetentionDays int                  `json:"retention_days"`
	MinGroupSize  int                  `json:"min_group_size"` // in force here: the data plane's own floor included
	CallBudget    int64                `json:"call_budget"`
	CallsUsed     int64                `json:"calls_used"`
	ValidFrom     string               `json:"valid_from"`
	ValidUntil    string               `json:"valid_until"`

	// What contracts of later versions have; left out where there is no such term.
	Version            int                    `json:"contract_version,omitempty"` // left out for version 1
	Rate               *contract.Rate         `json:"rate,omitempty"`
	CallsInWindow      int64                  `json:"calls_in_window,omitempty"`
	ColumnGrants       []contract.ColumnGrant `json:"column_grants,omitempty"`
	RowBudget          int64                  `json:"row_budget,omitempty"`
	RowsUsed           int64                  `json:"rows_used,omitempty"`
	RetentionStatement string                 `json:"retention_statement,omitempty"`
	Noise              *contract.Noise        `json:"noise,omitempty"`
	EpsilonUsed        string                 `json:"epsilon_used,omitempty"`
	Amends             *contract.Reference    `json:"amends,omitempty"`
}

// DatasetInfo is a dataset as a caller sees it: its name, and for callers with a contract on it the rest.
type DatasetInfo struct {
	Dataset     string   `json:"dataset"`
	Description string   `json:"description,omitempty"`
	Columns     []Column `json:"columns,omitempty"`      // those that the caller's contracts grant
	ContractIDs []string `json:"contract_ids,omitempty"` // the caller's, in force
}

// ListOutput is the structured content of list_datasets.
type ListOutput struct {
	Datasets []DatasetInfo `json:"datasets"`
}

// ParseArguments reads a tool's arguments: closed objects, exact names, no duplicates. Errors match ErrArguments and quote
// nothing but member names.
func ParseArguments(raw []byte, into any) error {
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	if err := canon.Unmarshal(raw, into, canon.Limits{MaxBytes: MaxArguments, MaxDepth: 4 + 2*contract.MaxFilterDepth}); err != nil {
		return fmt.Errorf("%w: %w", ErrArguments, err)
	}
	return nil
}
