// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/httpapi"
)

const termsPolicy = `version: 1
datasets:
  orders:
    purposes: any
    operations: [avg, count, min, percentile, stddev]
    retention_days: 90
    min_group_size: 5
    call_budget: 100
    validity_days: 90
    row_filter: [{column: channel, op: "!=", value: partner}]
    row_budget: 50
    rate: {calls: 50, seconds: 60}
    retention_statement: Deleted everywhere, backups too.
    classes:
      business: {uses: [read, filter, group, aggregate]}
`

const termsNeeds = `version: 1
dataset: orders
columns: [region, order_value, order_date, channel]
operations: [count, min, percentile, stddev]
purpose: Pricing, by order
read: [region, order_date]
row_budget: {wanted: 20, minimum: 10}
retention_statements: [ "Deleted everywhere, backups too." ]
`

// TestTermsOfVersion3 is a contract with all that version 3 has, from two files to the end of the contract, through the real programs:
// the language of queries on the command line, rows, what the buyer holds and deletes, and how soon a revocation counts.
func TestTermsOfVersion3(t *testing.T) {
	w := newWorld(t)
	if err := os.WriteFile(w.path(vendor, "policy.yaml"), []byte(termsPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.path("terms.yaml"), []byte(termsNeeds), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(w.path(plane, "dataplane.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	allowed := strings.Replace(string(config), "ceiling:\n", "ceiling:\n    allow_rows: true\n", 1)
	if err := os.WriteFile(w.path(plane, "dataplane.yaml"), []byte(allowed), 0o600); err != nil || allowed == string(config) {
		t.Fatal(err)
	}
	w.start(vendor, plane, buyer)
	n := decodeInto[httpapi.Negotiation](t, w.must(0, buyer, "negotiate", "--peer", domains[vendor], "--needs", w.path("terms.yaml"), "--json").stdout)
	c := w.agreed(buyer, n.ContractID)
	if c.Version != 3 || c.Rows.RowBudget != 20 || c.Rate.Calls != 50 || c.RetentionStatement == "" || len(c.RowFilter) != 1 || !slices.Equal(c.Readable(), []string{"region", "order_date"}) {
		t.Fatalf("%+v", c.Scope)
	}
	query := func(args ...string) []string { return append([]string{"query", "--contract", c.ID, "--json"}, args...) }

	// Nobody is found by asking for what the row filter leaves out.
	w.refused("GROUP_TOO_SMALL", buyer, query("--aggregate", "count()", "--filter", "channel = partner")...)
	seen := w.aggregates(query)
	w.rows(query, seen)

	// Why, with the rules of both processes; and for a catalogue.
	plan := []string{"policy", "explain", "--contract", c.ID, "--data-plane", w.path(plane), "--aggregate"}
	if said := w.must(0, vendor, append(plan, "percentile(order_value, 0.5)")...).stdout; !strings.Contains(said, "allowed  ceiling  vendors") || strings.Contains(said, "DENIED") {
		t.Error(said)
	}
	if said := w.must(3, vendor, append(plan, "count(customer_email)")...).stdout; !strings.Contains(said, "DENIED   contract") || !strings.Contains(said, "DENIED   ceiling") {
		t.Error(said)
	}
	if said := w.must(0, vendor, "contracts", "export", c.ID, "--odcs").stdout; !strings.Contains(said, "kind: DataContract") || !strings.Contains(said, "order_value") || strings.Contains(said, "customer_email") {
		t.Error(said)
	}

	// Both sides have the same receipts: of two answers, and of what was refused.
	receipts := w.must(0, buyer, "contracts", "receipts", c.ID, "--json").stdout
	if theirs := w.must(0, vendor, "contracts", "receipts", c.ID, "--json").stdout; theirs != receipts {
		t.Errorf("the buyer has %s, the vendor %s", receipts, theirs)
	}
	codes := map[string]int{}
	for _, raw := range decodeInto[[]json.RawMessage](t, receipts) {
		r, err := contract.ParseReceipt(raw)
		if err != nil || r.Caller != c.Parties.Buyer {
			t.Fatalf("%v in %s", err, raw)
		}
		codes[string(r.Code)]++
		if err := os.WriteFile(w.path("receipt.json"), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want := map[string]int{"": 2, "GROUP_TOO_SMALL": 1, "BUDGET_EXHAUSTED": 1, "SCOPE_DENIED": 2}; !maps.Equal(codes, want) {
		t.Errorf("receipts of %v, want %v", codes, want)
	}
	if said := w.must(0, vendor, "contracts", "receipts", c.ID).stdout; !strings.Contains(said, "GROUP_TOO_SMALL") || !strings.Contains(said, "12 rows") {
		t.Error(said)
	}
	w.must(4, vendor, "contracts", "receipts", "ctr_none")
	res, err := w.client.Get("https://" + domains[plane] + "/.well-known/did.json")
	if err != nil {
		t.Fatal(err)
	}
	document, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close(), os.WriteFile(w.path("plane.json"), document, 0o600)); err != nil {
		t.Fatal(err)
	}
	w.must(0, buyer, "verify", w.path("receipt.json"), "--document", w.path("plane.json"))

	if got := decodeInto[struct{ Calls []any }](t, w.must(0, vendor, "query", "--running", "--json").stdout); len(got.Calls) != 0 {
		t.Errorf("under way: %+v", got)
	}
	w.must(4, vendor, "query", "--cancel", "AAAAAAAAAAAA")

	// What the buyer has, it deletes and says so.
	deletions := func(name string) httpapi.Deletions {
		return decodeInto[httpapi.Deletions](t, w.must(0, name, "contracts", "deletions", c.ID, "--json").stdout)
	}
	if d := deletions(buyer); len(d.Results) != 2 || !d.Results[0].Held || !d.Results[1].Held {
		t.Fatalf("%+v", d)
	}
	if out := w.must(0, buyer, "contracts", "delete-data", c.ID).stdout; !strings.Contains(out, "deleted 2 results") {
		t.Error(out)
	}
	for deadline := time.Now().Add(startTime); ; time.Sleep(50 * time.Millisecond) {
		d := deletions(vendor)
		if len(d.Results) == 2 && !d.Results[0].Statement.IsZero() && !d.Results[1].Statement.IsZero() {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the vendor has no statement: %+v", d)
		}
	}

	// The end, and how long it took until a call was refused.
	w.must(0, vendor, "contracts", "revoke", c.ID, "--reason", "enough")
	w.refused("CONTRACT_REVOKED", buyer, query("--select", "region", "--limit", "1")...)
	said := w.must(0, vendor, "contracts", "show", c.ID).stdout
	for _, want := range []string{"last call answered: event ", "first call refused: event ", " after the revocation", "enough"} {
		if !strings.Contains(said, want) {
			t.Errorf("contracts show does not say %q: %s", want, said)
		}
	}
	end := decodeInto[httpapi.Contract](t, w.must(0, vendor, "contracts", "show", c.ID, "--json").stdout).End
	if took, err := time.ParseDuration(end.RefusedAfter); err != nil || took <= 0 || end.LastAnswer.Event >= end.Event || end.FirstRefusal.Event <= end.Event {
		t.Errorf("%+v, %v", end, err)
	}
	for _, name := range []string{buyer, vendor} {
		w.verifyEvidence(name, c.ID)
	}
}

// order is a row of the file that the row filter lets through.
type order struct {
	region, day, channel string
	cents                int
}

// aggregates asks with every part of the language, and returns the rows that count, from the file.
func (w *world) aggregates(query func(...string) []string) (seen []order) {
	w.t.Helper()
	f, err := os.Open(w.path(plane, "orders.csv"))
	if err != nil {
		w.t.Fatal(err)
	}
	all, err := csv.NewReader(f).ReadAll()
	if err := errors.Join(err, f.Close()); err != nil {
		w.t.Fatal(err)
	}
	for _, r := range all[1:] {
		cents, err := strconv.Atoi(strings.Replace(r[3], ".", "", 1))
		if err != nil {
			w.t.Fatal(err)
		}
		if r[6] != "partner" {
			seen = append(seen, order{r[0], r[2], r[6], cents})
		}
	}
	type group struct {
		region, quarter string
		cents           []int
	}
	groups := map[string]*group{}
	used := 0
	for _, o := range seen {
		if o.channel != "web" || o.cents < 4000 {
			continue
		}
		month, _ := strconv.Atoi(o.day[5:7])
		quarter := "2025-" + []string{"01", "04", "07", "10"}[(month-1)/3] + "-01"
		g := groups[o.region+quarter]
		if g == nil {
			g = &group{region: o.region, quarter: quarter}
			groups[o.region+quarter] = g
		}
		g.cents = append(g.cents, o.cents)
	}
	var want [][]any
	for _, g := range groups {
		if len(g.cents) < 15 {
			continue
		}
		slices.Sort(g.cents)
		used += len(g.cents)
		p50 := g.cents[(len(g.cents)+1)/2-1] // at place ⌈n/2⌉
		want = append(want, []any{g.region, g.quarter, strconv.FormatFloat(float64(p50)/100, 'f', 2, 64), float64(len(g.cents))})
	}
	slices.SortFunc(want, func(a, b []any) int {
		x, _ := strconv.ParseFloat(a[2].(string), 64)
		y, _ := strconv.ParseFloat(b[2].(string), 64)
		return cmp.Or(cmp.Compare(y, x), strings.Compare(a[0].(string), b[0].(string)), strings.Compare(a[1].(string), b[1].(string)))
	})
	if len(want) < 5 {
		w.t.Fatalf("too few groups to page through: %v", want)
	}
	got := decodeInto[httpapi.QueryResult](w.t, w.must(0, buyer, query("--aggregate", "percentile(order_value, 0.5) as p50", "--aggregate", "count() as n", "--group-by", "region",
		"--group-by-date", "order_date quarter", "--where", "(channel in (web, 'shop 1') or channel is null) and not order_value < 40", "--having", "n >= 15",
		"--order-by", "p50 desc", "--limit", "3", "--offset", "1")...).stdout)
	for i, row := range got.Rows {
		if !slices.Equal(row, want[1+i]) {
			w.t.Errorf("row %d: %v, want %v", i, row, want[1+i])
		}
	}
	if len(got.Rows) != 3 || got.TotalRows != int64(len(seen)) {
		w.t.Errorf("%+v, want 3 rows of %d; %d in all groups", got, len(seen), used)
	}
	return seen
}

// rows reads what may be read, a page at a time, until the budget is used up.
func (w *world) rows(query func(...string) []string, seen []order) {
	w.t.Helper()
	var want []string
	for _, o := range seen {
		if o.region == "East" {
			want = append(want, o.day)
		}
	}
	slices.Sort(want)
	read := func(more ...string) []string {
		return query(append([]string{"--select", "order_date,region", "--filter", "region = East", "--order-by", "order_date"}, more...)...)
	}
	got := decodeInto[httpapi.QueryResult](w.t, w.must(0, buyer, read("--limit", "12", "--offset", "3")...).stdout)
	for i, row := range got.Rows {
		if row[0] != want[3+i] || row[1] != "East" {
			w.t.Errorf("row %d: %v, want %s", i, row, want[3+i])
		}
	}
	var receipt struct{ Rows, TotalRows int }
	if err := json.Unmarshal(got.Receipt, &receipt); err != nil || len(got.Rows) != 12 || receipt.Rows != 12 || receipt.TotalRows != len(seen) {
		w.t.Errorf("%+v, %+v, %v", got, receipt, err)
	}
	if said := w.refused("BUDGET_EXHAUSTED", buyer, read("--limit", "9")...); !strings.Contains(said, "8 of 20 rows") {
		w.t.Error(said)
	}
	w.refused("SCOPE_DENIED", buyer, query("--select", "order_value", "--limit", "1")...)
	w.refused("SCOPE_DENIED", buyer, query("--select", "customer_email", "--limit", "1")...)
	w.must(2, buyer, query("--select", "region", "--aggregate", "count()", "--limit", "1")...)
}
