// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataset/sample"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/ledger"
)

const (
	demoMarker  = ".treaty-demo" // a folder with this file may be made anew
	demoSeed    = 2025
	demoTimeout = 3 * time.Minute
)

const demoDatasets = `# What VendorCorp has on offer. Columns without a class can never be granted.
orders:
  path: orders.csv
  description: Customer orders of 2025.
  columns:
    region: {type: text, class: business}
    order_id: {type: text, class: business}
    order_date: {type: date, class: business}
    order_value: {type: "decimal(10,2)", class: business}
    customer_name: {type: text, class: pii}
    customer_email: {type: text, class: pii}
    channel: {type: text, class: business}
`

const demoPolicy = `# What VendorCorp may grant of it. Code applies this after any decider.
version: 1
datasets:
  orders:
    purposes: any
    operations: [avg, sum, count, count_distinct]
    retention_days: 90
    min_group_size: 5
    call_budget: 100
    validity_days: 90
`

const demoNeeds = `# What BuyerCorp wants: one figure. It asks for a column too many, and can live without it.
version: 1
dataset: orders
columns:
  required: [region, order_value, order_date]
  optional: [customer_email]
operations: [avg, count]
purpose: Regional pricing review Q3 2025
retention_days: {wanted: 365, minimum: 30}
call_budget: {wanted: 20, minimum: 2}
rationale: We want the average order value by region for Q3 2025.
`

func (c *cli) demoCmd() *cobra.Command {
	var keep bool
	var dir string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the whole job on this machine: two companies, three processes, one contract",
		Long: "Run the whole job on this machine. A buyer node, a vendor node and the vendor's data plane start as separate processes\n" +
			"on separate domains (mapped to loopback), with folders, keys and stores of their own. The buyer asks for the average\n" +
			"order value by region for Q3 2025. Every numbered line is an entry of one of the two companies' event logs.",
		Example: "  treaty demo\n  treaty demo --keep",
		Args:    cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			d, err := newDemo(dir, c.stdout)
			if err != nil {
				return err
			}
			defer d.stop()
			run, stop := context.WithTimeout(ctx, demoTimeout)
			err = d.run(run)
			stop()
			if err != nil {
				return fmt.Errorf("the demo did not get through: %w (logs: %s/*.log)", err, d.dir)
			}
			if keep {
				d.next()
				<-ctx.Done()
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "leave everything running and say what to try next")
	cmd.Flags().StringVar(&dir, "workdir", ".demo", "folder for the companies' folders; made anew each time")
	return cmd
}

// demo is one run of the main job.
type demo struct {
	dir       string
	out       io.Writer
	treaty    string // this binary
	dataplane string
	addr      map[string]string // name → loopback address
	policy    string            // the vendor's
	needs     string            // the buyer's
	processes []*process
	story     *story
}

func newDemo(dir string, out io.Writer) (*demo, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	d := &demo{dir: dir, out: out, treaty: self, addr: map[string]string{}, policy: demoPolicy, needs: demoNeeds}
	if d.dataplane, err = findDataplane(self); err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); err == nil {
		if _, err := os.Stat(filepath.Join(dir, demoMarker)); err != nil {
			return nil, usage("%s is not a demo's folder; name another with --workdir", dir)
		}
		if err := os.RemoveAll(dir); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, demoMarker), nil, 0o600); err != nil {
		return nil, err
	}
	for _, name := range []string{"buyercorp.test", "vendorcorp.test", "data.vendorcorp.test"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		d.addr[name] = l.Addr().String()
		if err := l.Close(); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *demo) path(elem ...string) string { return filepath.Join(append([]string{d.dir}, elem...)...) }

func (d *demo) hosts() map[string]string {
	m := map[string]string{}
	for name, addr := range d.addr {
		m[name+":443"] = addr
	}
	return m
}

// run is the job. It returns nil only if all of it happened.
func (d *demo) run(ctx context.Context) error {
	if err := d.setUp(ctx); err != nil {
		return err
	}
	if err := d.startAll(ctx); err != nil {
		return err
	}
	buyer, vendor := httpapi.NewAdminClient(d.path("buyer")), httpapi.NewAdminClient(d.path("vendor"))
	d.story = newStory(d.out, map[string]*httpapi.AdminClient{"BuyerCorp": buyer, "VendorCorp": vendor})
	stopStory := d.story.start(ctx)
	defer stopStory()

	var n httpapi.Negotiation
	if err := buyer.Post(ctx, "/negotiations", httpapi.NegotiateRequest{Peer: "vendorcorp.test"}, &n); err != nil {
		return err
	}
	n, err := (&cli{dir: d.path("buyer"), json: true, stdout: io.Discard}).follow(ctx, n.ContextID)
	if err != nil {
		return err
	}
	if err := outcome(n, false); err != nil {
		return err
	}
	quarter := contract.Condition{Column: "order_date", Op: contract.OpBetween, Values: []contract.Value{contract.TextValue("2025-07-01"), contract.TextValue("2025-09-30")}}
	ask := httpapi.QueryRequest{
		ContractID: n.ContractID, GroupBy: []string{"region"}, Filters: []contract.Condition{quarter}, OrderBy: []contract.Order{{By: "region"}},
		Aggregates: []contract.Aggregate{{Op: contract.OpAvg, Column: "order_value"}, {Op: contract.OpCount}},
	}
	var res httpapi.QueryResult
	if err := buyer.Post(ctx, "/query", ask, &res); err != nil {
		return err
	}
	answered, err := d.story.await(ctx, ledger.QueryAnswered)
	if err != nil {
		return err
	}
	var a ledger.Answer
	if err := answered.Decode(&a); err != nil || !a.ResultDigest.Equal(res.ResultDigest) {
		return errors.New("the log's answer is not the result that came back")
	}
	var table bytes.Buffer
	printResult(&table, res)
	fmt.Fprintf(d.out, "\n%s\n", indent(table.String()))

	greedy := ask
	greedy.GroupBy, greedy.OrderBy = []string{"customer_email"}, []contract.Order{}
	err = buyer.Post(ctx, "/query", greedy, &httpapi.QueryResult{})
	if e := asError(err); err == nil || e.Kind != httpapi.KindRefused {
		return fmt.Errorf("a query for customer_email was not refused: %v", err)
	}
	refused, err := d.story.await(ctx, ledger.QueryRefused)
	if err != nil {
		return err
	}
	var r ledger.QueryRefusal
	if err := refused.Decode(&r); err != nil || r.Code != string(contract.ScopeDenied) {
		return fmt.Errorf("refused with %s, not %s", r.Code, contract.ScopeDenied)
	}
	if err := d.story.complete(); err != nil {
		return err
	}
	return d.summary(ctx, buyer, n)
}

// summary exports the evidence, verifies it as a third party would, and says where everything is.
func (d *demo) summary(ctx context.Context, buyer *httpapi.AdminClient, n httpapi.Negotiation) error {
	var bundle []byte
	if err := buyer.Get(ctx, "/contracts/"+n.ContractID+"/evidence", &bundle); err != nil {
		return err
	}
	path := d.path("evidence.json")
	if err := os.WriteFile(path, bundle, 0o600); err != nil {
		return err
	}
	report, err := verifyData(bundle)
	if err != nil {
		return err
	}
	if !report.OK {
		return fmt.Errorf("the evidence does not hold: %s", report.firstProblem())
	}
	fmt.Fprintf(d.out, "\ncontract    %s\ntranscript  %s\nevidence    %s (%d checks hold offline: treaty verify %s)\nlogs        treaty events --dir %s | --dir %s\n",
		n.ContractID, n.Transcript, path, len(report.Checks), path, d.path("buyer"), d.path("vendor"))
	return nil
}

// next says what to try while it runs.
func (d *demo) next() {
	b := d.path("buyer")
	fmt.Fprintf(d.out, "\nIt keeps running; Ctrl-C ends it. In another terminal:\n")
	for _, line := range []string{
		"contracts list --dir " + b,
		"query --dir " + b + " --contract $(" + d.treaty + " contracts list --dir " + b + " --json | grep -o 'ctr_[^\"]*' | head -1) --aggregate 'count()' --group-by channel   # channel was never granted",
		"resolve --dir " + b + " vendorcorp.test",
		"negotiate --dir " + b + " --peer vendorcorp.test --dataset orders --columns region,order_value --operations sum --purpose 'Budget 2026'",
		"datasets show --dir " + d.path("vendor"),
		"events --dir " + d.path("vendor") + " --follow",
	} {
		fmt.Fprintf(d.out, "  %s %s\n", d.treaty, line)
	}
}

// setUp makes both companies' folders, the data plane's and the data.
func (d *demo) setUp(ctx context.Context) error {
	secret := make([]byte, 24)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	passphrase := base64.RawURLEncoding.EncodeToString(secret)
	for name, text := range map[string]string{"datasets.yaml": demoDatasets, "policy.yaml": d.policy, "needs.yaml": d.needs, "offline/passphrase.txt": passphrase + "\n"} {
		if err := os.MkdirAll(filepath.Dir(d.path(name)), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(d.path(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	options := func(name, domain string) node.InitOptions {
		return node.InitOptions{
			Dir: d.path(name), Domain: domain, Listen: d.addr[domain], DevCA: d.path("ca"), Hosts: d.hosts(),
			HumanKeyOut: d.path("offline", name+"-human.age"), RecoveryKeyOut: d.path("offline", name+"-recovery.age"), Passphrase: passphrase,
			WorkFactor: 14, // a random passphrase of 192 bits needs no stretching
		}
	}
	buyer, vendor := options("buyer", "buyercorp.test"), options("vendor", "vendorcorp.test")
	// The two prefer different transports, so that the rounds have something to settle.
	buyer.Name, buyer.Needs, buyer.Allow, buyer.Transports = "BuyerCorp", d.path("needs.yaml"), []string{"vendorcorp.test"}, []string{"a2a-http+json", "a2a-jsonrpc"}
	vendor.Name, vendor.Datasets, vendor.Policy, vendor.Allow, vendor.Transports = "VendorCorp", d.path("datasets.yaml"), d.path("policy.yaml"), []string{"buyercorp.test"}, []string{"a2a-jsonrpc"}
	vendor.DataPlane = node.DataPlane{DID: "did:wba:data.vendorcorp.test", URL: "https://data.vendorcorp.test/mcp"}
	if _, err := node.Init(ctx, buyer); err != nil {
		return err
	}
	if _, err := node.Init(ctx, vendor); err != nil {
		return err
	}
	return d.setUpDataplane(ctx)
}

// setUpDataplane makes the data plane's folder, with copies of its own of the vendor's document and of the datasets.
func (d *demo) setUpDataplane(ctx context.Context) error {
	plane := d.path("vendor-data")
	if err := os.MkdirAll(plane, 0o700); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(plane, "orders.csv"))
	if err != nil {
		return err
	}
	if err := errors.Join(sample.Write(f, demoSeed), f.Close()); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(plane, "datasets.yaml"), []byte(demoDatasets), 0o600); err != nil {
		return err
	}
	args := []string{
		"init", "--dir", plane, "--url", "https://data.vendorcorp.test/mcp", "--listen", d.addr["data.vendorcorp.test"], "--dev-ca", d.path("ca"),
		"--store", d.path("vendor", node.StoreFile), "--datasets", filepath.Join(plane, "datasets.yaml"), "--vendor-document", d.path("vendor", node.DocumentsDir, "agent.json"),
	}
	for name, addr := range d.hosts() {
		args = append(args, "--host", name+"="+addr)
	}
	return runQuietly(ctx, d.dataplane, args...)
}
