// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/httpapi"
)

func (c *cli) queryCmd() *cobra.Command {
	var req httpapi.QueryRequest
	var aggs, filters, order []string
	cmd := &cobra.Command{
		Use:   "query --contract ID --aggregate OP(COLUMN) …",
		Short: "Ask the data plane of a contract",
		Long: "Ask the data plane of a contract. The node signs the request; the data plane decides by the contract.\n" +
			"A refusal is the data owner's decision (exit code 3) and is printed word for word; a transport fault exits with 5.",
		Example: "  treaty query --contract ctr_x1Yz --aggregate 'avg(order_value)' --aggregate 'count()' --group-by region \\\n" +
			"    --filter 'order_date between 2025-07-01 and 2025-09-30' --order-by region",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if req.Aggregates, err = parseAll(aggs, parseAggregate); err != nil {
				return err
			}
			if req.Filters, err = parseAll(filters, parseCondition); err != nil {
				return err
			}
			if req.OrderBy, err = parseAll(order, parseOrder); err != nil {
				return err
			}
			var res httpapi.QueryResult
			if err := c.admin().Post(cmd.Context(), "/query", req, &res); err != nil {
				return &verbError{err}
			}
			return c.print(res, func(w io.Writer) { printResult(w, res) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.ContractID, "contract", "", "contract id")
	f.StringArrayVar(&aggs, "aggregate", nil, "avg, sum, min, max, count, count_distinct or median of a column, as 'avg(order_value)' or 'avg(order_value) as mean'; repeatable")
	f.StringSliceVar(&req.GroupBy, "group-by", []string{}, "columns to group by")
	f.StringArrayVar(&filters, "filter", nil, "condition on rows, as 'region = EU', 'order_date between A and B', 'channel in web,store', 'x is null'; repeatable, all must hold")
	f.StringArrayVar(&order, "order-by", nil, "a group column or aggregate, with ' desc' to reverse; repeatable")
	f.IntVar(&req.Limit, "limit", 0, "most rows to return (0: the data plane's limit)")
	f.StringVar(&req.Purpose, "purpose", "", "purpose of this query (default: the contract's purpose of record)")
	f.StringVar(&req.Dataset, "dataset", "", "dataset (default: the contract's)")
	_ = cmd.MarkFlagRequired("contract")
	_ = cmd.MarkFlagRequired("aggregate")
	return cmd
}

// parseAll parses every string; the result is never nil, since lists are always sent as lists.
func parseAll[T any](in []string, parse func(string) (T, error)) ([]T, error) {
	out := make([]T, 0, len(in))
	for _, s := range in {
		v, err := parse(s)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func parseAggregate(s string) (contract.Aggregate, error) {
	body, as, _ := strings.Cut(s, " as ")
	op, rest, ok := strings.Cut(strings.TrimSpace(body), "(")
	col, closed := strings.CutSuffix(rest, ")")
	if !ok || !closed {
		return contract.Aggregate{}, usage("--aggregate %q: write it as OP(COLUMN), for example 'avg(order_value)'", s)
	}
	return contract.Aggregate{Op: strings.TrimSpace(op), Column: strings.TrimSpace(col), As: strings.TrimSpace(as)}, nil
}

func parseOrder(s string) (contract.Order, error) {
	by, desc := strings.CutSuffix(strings.TrimSpace(s), " desc")
	by = strings.TrimSuffix(by, " asc")
	if by == "" {
		return contract.Order{}, usage("--order-by: empty")
	}
	return contract.Order{By: by, Desc: desc}, nil
}

// parseCondition reads a condition as people write it. Column names with spaces and values with commas or " and " go
// through the JSON of the admin interface instead.
func parseCondition(s string) (contract.Condition, error) {
	col, rest, ok := strings.Cut(strings.TrimSpace(s), " ")
	rest = strings.TrimSpace(rest)
	if !ok {
		return contract.Condition{}, usage("condition %q: write it as COLUMN OP VALUE", s)
	}
	switch strings.ToLower(rest) {
	case "is null":
		return contract.Condition{Column: col, Op: contract.OpIsNull}, nil
	case "is not null":
		return contract.Condition{Column: col, Op: contract.OpIsNotNull}, nil
	}
	op, val, ok := strings.Cut(rest, " ")
	val = strings.TrimSpace(val)
	if !ok || val == "" {
		return contract.Condition{}, usage("condition %q: the value is missing", s)
	}
	switch strings.ToLower(op) {
	case "in":
		var vals []contract.Value
		for v := range strings.SplitSeq(val, ",") {
			vals = append(vals, contract.TextValue(strings.TrimSpace(v)))
		}
		return contract.Condition{Column: col, Op: contract.OpIn, Values: vals}, nil
	case "between":
		lo, hi, ok := strings.Cut(val, " and ")
		if !ok {
			return contract.Condition{}, usage("condition %q: write it as COLUMN between A and B", s)
		}
		return contract.Condition{Column: col, Op: contract.OpBetween, Values: []contract.Value{contract.TextValue(strings.TrimSpace(lo)), contract.TextValue(strings.TrimSpace(hi))}}, nil
	case "=", "!=", "<", "<=", ">", ">=":
		return contract.Condition{Column: col, Op: op, Value: contract.TextValue(val)}, nil
	}
	return contract.Condition{}, usage("condition %q: %q is not one of = != < <= > >= in between, is null, is not null", s, op)
}

func printResult(w io.Writer, r httpapi.QueryResult) {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	names := make([]string, len(r.Columns))
	for i, name := range r.Columns {
		names[i] = line(name)
	}
	fmt.Fprintln(tw, strings.Join(names, "\t"))
	for _, row := range r.Rows {
		cells := make([]string, len(row))
		for i, v := range row {
			cells[i] = "null"
			if v != nil {
				cells[i] = line(fmt.Sprint(v))
			}
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	tw.Flush()
	fmt.Fprintf(w, "%d rows, from %d of %d rows of the dataset\n", len(r.Rows), r.UsedRows, r.TotalRows)
}
