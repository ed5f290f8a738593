// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/treaty-node/treaty/node/cedar"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/server"
	"github.com/treaty-node/treaty/node/dataset"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/negotiation/policy"
)

func (c *cli) policyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "policy", Short: "Check policy files, and explain why something is allowed or not",
		Example: "  treaty policy check policy.cedar\n  treaty policy explain --contract ctr_x1Yz --aggregate 'avg(order_value)' --group-by region",
	}
	cmd.AddCommand(c.policyCheckCmd(), c.policyExplainCmd())
	return cmd
}

// policyReport is what `policy check` found.
type policyReport struct {
	File     string          `json:"file"`
	Kind     string          `json:"kind"` // vendor or cedar
	Policies []string        `json:"policies,omitempty"`
	Findings []cedar.Finding `json:"findings"`
}

func (c *cli) policyCheckCmd() *cobra.Command {
	var datasets string
	cmd := &cobra.Command{
		Use: "check FILE", Short: "Check a policy.yaml or a Cedar file, and that every dataset, column and class in it exists",
		Long: "Check a policy.yaml (by its name's ending .yaml or .yml) or a Cedar file: syntax, types, and that every dataset, column and class\n" +
			"in it exists in the datasets that treaty.yaml names (or --datasets). Needs no running node. Exit code 2 when something is wrong.",
		Example: "  treaty policy check policy.cedar --datasets datasets.yaml", Args: cobra.ExactArgs(1),
		RunE: verb(func(_ *cobra.Command, args []string) error {
			data, err := readBounded(args[0])
			if err != nil {
				return usage("%v", err)
			}
			sets, err := c.datasetsFor(datasets)
			if err != nil {
				return err
			}
			r, err := checkPolicy(args[0], data, sets)
			if err != nil {
				return usage("%v", err)
			}
			if err := c.print(r, func(w io.Writer) {
				for _, f := range r.Findings {
					fmt.Fprintln(w, line(f.String()))
				}
				if len(r.Findings) == 0 {
					fmt.Fprintf(w, "%s holds: %s\n", r.File, line(strings.Join(r.Policies, ", ")))
				}
			}); err != nil {
				return err
			}
			if n := len(r.Findings); n > 0 {
				return usage("%s names %d things that are not there", args[0], n)
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&datasets, "datasets", "", "datasets.yaml to check against (default: the one that treaty.yaml names)")
	return cmd
}

func checkPolicy(path string, data []byte, sets dataset.Config) (policyReport, error) {
	r := policyReport{File: path, Kind: "cedar", Findings: []cedar.Finding{}}
	if ext := filepath.Ext(path); ext == ".yaml" || ext == ".yml" {
		r.Kind = "vendor"
		v, err := policy.ParseVendor(data)
		if err != nil {
			return r, err
		}
		r.Policies = slices.Sorted(maps.Keys(v.Datasets))
		r.Findings = append(r.Findings, checkVendor(v, sets)...)
		return r, nil
	}
	p, err := cedar.Parse(filepath.Base(path), data)
	if err != nil {
		return r, err
	}
	r.Policies, r.Findings = p.IDs(), p.Check(sets)
	return r, nil
}

// checkVendor finds datasets, columns and classes of a policy.yaml that are not there.
func checkVendor(v *policy.Vendor, sets dataset.Config) []cedar.Finding {
	var out []cedar.Finding
	add := func(id, format string, args ...any) {
		out = append(out, cedar.Finding{Policy: "datasets." + id, Text: fmt.Sprintf(format, args...)})
	}
	for _, id := range slices.Sorted(maps.Keys(v.Datasets)) {
		d, ok := sets[id]
		if !ok {
			add(id, "there is no such dataset")
			continue
		}
		for _, cond := range v.Datasets[id].RowFilter {
			if _, ok := d.Columns[cond.Column]; !ok {
				add(id, "row_filter: there is no column %s", contract.Echo(cond.Column))
			}
		}
		for _, class := range v.Datasets[id].Never {
			if class != policy.ClassPII && !slices.ContainsFunc(slices.Collect(maps.Values(d.Columns)), func(c dataset.Column) bool { return c.Class == class }) {
				add(id, "never: no column has the class %s", contract.Echo(class))
			}
		}
	}
	return out
}

func (c *cli) datasetsFor(path string) (dataset.Config, error) {
	if path == "" {
		return c.datasetsOfFolder()
	}
	data, err := os.ReadFile(path) //nolint:gosec // the operator names it
	if err != nil {
		return nil, usage("%v", err)
	}
	sets, err := dataset.ParseConfig(data)
	if err != nil {
		return nil, usage("%s: %v", path, err)
	}
	return sets, nil
}

func (c *cli) policyExplainCmd() *cobra.Command {
	var q queryFlags
	var file, plane string
	cmd := &cobra.Command{
		Use: "explain --contract ID (--query FILE | --aggregate OP(COLUMN) …)", Short: "Say why a query is allowed or not, with the rule that decides",
		Long: "Say why a query under a contract is allowed or not: by the contract (the decision that the data plane makes, with its refusal code),\n" +
			"by this node's Cedar policies (what it would offer today), and, with --data-plane DIR, by that data plane's ceiling and Cedar\n" +
			"policies. Nothing is sent and no call is counted. Exit code 3 when it is not allowed.",
		Example: "  treaty policy explain --contract ctr_x1Yz --aggregate 'max(order_value)' --data-plane /var/lib/treaty-dataplane", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ask := q.request
			if file != "" {
				ask = func() (httpapi.QueryRequest, error) { return queryFile(file, q.req.ContractID) }
			}
			req, err := ask()
			if err != nil {
				return err
			}
			return c.explain(cmd, req, plane)
		},
	}
	f := cmd.Flags()
	q.add(f)
	f.StringVar(&file, "query", "", "file with the query as JSON (aggregates, groupBy, filters, orderBy, groupByDate, where, having, select) instead of flags, - for standard input")
	f.StringVar(&plane, "data-plane", "", "folder of the data plane whose ceiling is asked as well")
	_ = cmd.MarkFlagRequired("contract")
	f.VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "contract" && flag.Name != "query" && flag.Name != "data-plane" {
			cmd.MarkFlagsMutuallyExclusive("query", flag.Name) // a file says all of it
		}
	})
	cmd.MarkFlagsOneRequired("query", "aggregate", "select")
	return cmd
}

// queryFile reads a query under a contract from a file.
func queryFile(file, contractID string) (req httpapi.QueryRequest, err error) {
	var data []byte
	if file == "-" {
		data, err = io.ReadAll(io.LimitReader(os.Stdin, maxVerify))
	} else {
		data, err = readBounded(file)
	}
	if err != nil {
		return req, usage("--query: %v", err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		return req, usage("--query: %v", err)
	}
	req.ContractID = contractID
	req.Aggregates, req.GroupBy, req.Filters, req.OrderBy = orEmpty(req.Aggregates), orEmpty(req.GroupBy), orEmpty(req.Filters), orEmpty(req.OrderBy)
	return req, nil
}

func (c *cli) explain(cmd *cobra.Command, req httpapi.QueryRequest, plane string) error {
	var x httpapi.Explanation
	if err := c.admin().Post(cmd.Context(), "/policy/explain", req, &x); err != nil {
		return &verbError{err}
	}
	if plane != "" {
		steps, err := ceilingSteps(plane, req, x)
		if err != nil {
			return err
		}
		x.Steps = append(x.Steps, steps...)
	}
	var denied *httpapi.Step
	for i := range x.Steps {
		// What the node would offer today does not change a contract in force.
		if s := &x.Steps[i]; !s.Allowed && s.Stage != "offer" && denied == nil {
			denied = s
		}
	}
	x.Allowed = denied == nil
	if err := c.print(x, func(w io.Writer) {
		for _, s := range x.Steps {
			word := "allowed"
			if !s.Allowed {
				word = "DENIED"
			}
			fmt.Fprintf(w, "  %-8s %-8s %-24s %s\n", word, s.Stage, line(s.Rule), line(s.Text))
		}
	}); err != nil {
		return &verbError{err}
	}
	if denied != nil {
		return &verbError{&httpapi.Error{Kind: httpapi.KindRefused, Code: denied.Rule, Message: denied.Text}}
	}
	return nil
}

// ceilingSteps asks the ceiling of a data plane's folder.
func ceilingSteps(dir string, q httpapi.QueryRequest, x httpapi.Explanation) ([]httpapi.Step, error) {
	cfg, err := server.Load(dir, time.Now())
	if err != nil {
		return nil, usage("--data-plane: %v", err)
	}
	k, err := contract.Parse(x.Contract)
	if err != nil {
		return nil, &verbError{err}
	}
	if q.Dataset == "" {
		q.Dataset = k.Dataset
	}
	served := slices.ContainsFunc(cfg.Vendors, func(v server.Vendor) bool { return v.DID == k.Parties.Vendor })
	out := []httpapi.Step{{Stage: "ceiling", Allowed: served, Rule: "vendors", Text: "the contract's vendor is on the data plane's own list"}}
	if !served {
		out[0].Text = "the contract's vendor is not on the data plane's own list"
	}
	req := contract.Request{
		Caller: x.Caller, ContractID: k.ID, Dataset: q.Dataset, Aggregates: q.Aggregates, GroupBy: q.GroupBy, Filters: q.Filters, OrderBy: q.OrderBy,
		GroupByDate: q.GroupByDate, Where: q.Where, Having: q.Having, Select: q.Select,
	}
	for _, s := range cfg.Ceiling.Explain(cfg.Sets, &req, k) {
		out = append(out, httpapi.Step(s))
	}
	return out, nil
}
