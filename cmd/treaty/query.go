// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/httpapi"
)

func (c *cli) queryCmd() *cobra.Command {
	var q queryFlags
	var cancel string
	var running bool
	cmd := &cobra.Command{
		Use:   "query --contract ID --aggregate OP(COLUMN) … | --running | --cancel CALL",
		Short: "Ask the data plane of a contract",
		Long: "Ask the data plane of a contract. The node signs the request; the data plane decides by the contract.\n" +
			"A refusal is the data owner's decision (exit code 3) and is printed word for word; a transport fault exits with 5.\n\n" +
			"On the vendor's side, --running lists the calls that buyers have had under way for more than a second, and --cancel ends one:\n" +
			"the buyer gets an error that is no decision, and the call stays counted if it ran.",
		Example: "  treaty query --contract ctr_x1Yz --aggregate 'avg(order_value)' --aggregate 'count()' --group-by region \\\n" +
			"    --filter 'order_date between 2025-07-01 and 2025-09-30' --order-by region\n" +
			"  treaty query --running\n  treaty query --cancel K5Q2X7ZPAB3M",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case running:
				return c.running(cmd.Context())
			case cancel != "":
				return c.cancelCall(cmd.Context(), cancel)
			}
			req, err := q.request()
			if err != nil {
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
	q.add(f)
	f.BoolVar(&running, "running", false, "list the calls under way in this company's data plane")
	f.StringVar(&cancel, "cancel", "", "end a call of that list")
	cmd.MarkFlagsOneRequired("contract", "running", "cancel")
	cmd.MarkFlagsMutuallyExclusive("contract", "running", "cancel")
	return cmd
}

// queryFlags are a query as flags say it.
type queryFlags struct {
	req                                 httpapi.QueryRequest
	aggs, filters, order, dates, having []string
	where                               string
}

func (q *queryFlags) add(f *pflag.FlagSet) {
	f.StringVar(&q.req.ContractID, "contract", "", "contract id")
	f.StringArrayVar(&q.aggs, "aggregate", nil, "avg, sum, min, max, count, count_distinct, median, stddev or percentile of a column, as 'avg(order_value)', 'avg(order_value) as mean' or 'percentile(order_value, 0.95)'; repeatable")
	f.StringSliceVar(&q.req.GroupBy, "group-by", []string{}, "columns to group by")
	f.StringArrayVar(&q.filters, "filter", nil, "condition on rows, as 'region = EU', 'order_date between A and B', 'channel in web,store', 'name prefix A', 'x is null'; repeatable, all must hold")
	f.StringVar(&q.where, "where", "", "condition with and, or, not and parentheses, as \"region = EU and not (channel in (web, 'shop 1') or x is null)\"")
	f.StringArrayVar(&q.dates, "group-by-date", nil, "date or timestamp to group by and its unit, as 'order_date month' (year quarter month week day hour); repeatable")
	f.StringArrayVar(&q.having, "having", nil, "condition on an aggregate by its name, as 'count > 10'; repeatable, all must hold")
	f.StringSliceVar(&q.req.Select, "select", nil, "columns of rows to read, where the contract grants rows; instead of --aggregate, with --limit")
	f.StringArrayVar(&q.order, "order-by", nil, "a group column or aggregate, with ' desc' to reverse; repeatable")
	f.IntVar(&q.req.Offset, "offset", 0, "leave out so many of the answer first; each page is a call of its own")
	f.IntVar(&q.req.Limit, "limit", 0, "most rows to return (0: the data plane's limit)")
	f.StringVar(&q.req.Purpose, "purpose", "", "purpose of this query (default: the contract's purpose of record)")
	f.StringVar(&q.req.Dataset, "dataset", "", "dataset (default: the contract's)")
}

// request is the query that was said.
func (q *queryFlags) request() (req httpapi.QueryRequest, err error) {
	req = q.req
	if len(q.aggs) == 0 && len(req.Select) == 0 {
		return req, usage("want --aggregate, or --select for rows")
	}
	if req.Aggregates, err = parseAll(q.aggs, parseAggregate); err != nil {
		return req, err
	}
	if req.Filters, err = parseAll(q.filters, parseCondition); err != nil {
		return req, err
	}
	if req.GroupByDate, err = parseAll(q.dates, parseDateGroup); err != nil {
		return req, err
	}
	if req.Having, err = parseAll(q.having, parseCondition); err != nil {
		return req, err
	}
	if q.where != "" {
		if req.Where, err = parseWhere(q.where); err != nil {
			return req, err
		}
	}
	req.OrderBy, err = parseAll(q.order, parseOrder)
	return req, err
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
	a := contract.Aggregate{Op: strings.TrimSpace(op), Column: strings.TrimSpace(col), As: strings.TrimSpace(as)}
	if at := strings.LastIndexByte(col, ','); a.Op == contract.OpPercentile && at >= 0 {
		a.Column, a.P = strings.TrimSpace(col[:at]), strings.TrimSpace(col[at+1:])
	}
	return a, nil
}

func parseDateGroup(s string) (contract.DateGroup, error) {
	s = strings.TrimSpace(s)
	at := strings.LastIndexByte(s, ' ')
	if at < 0 {
		return contract.DateGroup{}, usage("--group-by-date %q: write it as COLUMN UNIT, for example 'order_date month'", s)
	}
	return contract.DateGroup{Column: strings.TrimSpace(s[:at]), Unit: s[at+1:]}, nil
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
	case "=", "!=", "<", "<=", ">", ">=", contract.OpPrefix:
		op = strings.ToLower(op)
		return contract.Condition{Column: col, Op: op, Value: contract.TextValue(val)}, nil
	}
	return contract.Condition{}, usage("condition %q: %q is not one of = != < <= > >= in between prefix, is null, is not null", s, op)
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
	if r.Noise != "" {
		fmt.Fprintf(w, "%d rows; noise was added to every number (epsilon %s)\n", len(r.Rows), line(r.Noise))
		return
	}
	fmt.Fprintf(w, "%d rows, from %d of %d rows of the dataset\n", len(r.Rows), r.UsedRows, r.TotalRows)
}
