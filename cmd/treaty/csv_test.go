// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/did/resolver/fetch"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/wellknown"
)

// What the files hold, summed up by another program (Python's csv and decimal).
const (
	ordersRows = `[["East","15591.24",12],["North","16953.02",18],["South","13322.45",14],["West","14929.43",16]]`
	frenchRows = `[["East","15591.24",12],["North","16953.02",18],["Orléans – €","14929.43",16],["South","13322.45",14]]`
	zurichRows = `[["East","15591.24",12],["North","16953.02",18],["South","13322.45",14],["Zürich","14929.43",16]]`
)

// csvFile is a file that is unlike the others, and what the sum of value by group over it is.
type csvFile struct {
	file, group, value string
	columns            []string // name, type, name, type
	csv                string   // how to read it, in YAML
	rows               string
}

var csvFiles = []csvFile{
	{"plain.csv", "region", "amount", []string{"region", "text", "amount", "decimal(10,2)", "day", "date"}, "", ordersRows},
	{"bom_crlf_quoted.csv", "region", "amount", []string{"region", "text", "amount", "decimal(10,2)", "active", "boolean"}, "", ordersRows},
	{"semicolon_decimal_comma.csv", "Region", "Betrag", []string{"Region", "text", "Betrag", "decimal(10,2)", "Datum", "date"}, `decimal_separator: ",", thousands_separator: ".", date_format: DD.MM.YYYY`, ordersRows},
	{"pipe_timestamps.csv", "region", "amount", []string{"region", "text", "amount", "decimal(10,2)", "local", "timestamp", "instant", "timestamptz"}, "", ordersRows},
	{"embedded.csv", "region", "amount", []string{"region", "text", "comment", "text", "amount", "decimal(10,2)"}, "", ordersRows},
	{"ambiguous_dates.csv", "region", "amount", []string{"region", "text", "when", "date", "amount", "decimal(10,2)"}, `date_format: MM/DD/YYYY`, ordersRows},
	{"sep_line.csv", "region", "amount", []string{"region", "text", "amount", "decimal(10,2)"}, "", ordersRows},
	{"cr_only.csv", "region", "amount", []string{"region", "text", "amount", "decimal(10,2)"}, "", ordersRows},
	{"hostile_names.csv", "select", "amount", []string{"select", "text", "amount", "decimal(10,2)"}, "", ordersRows},
	{"utf16.csv", "region", "amount", []string{"region", "text", "amount", "decimal(10,2)"}, `encoding: utf-16`, zurichRows},
	{"windows1252.csv", "région", "montant", []string{"région", "text", "montant", "decimal(10,2)"}, `encoding: windows-1252`, frenchRows},
	{"leading_zeros.csv", "postcode", "amount", []string{"postcode", "text", "amount", "decimal(10,2)"}, "",
		`[["01067","19406.85",22],["04109","12793.61",13],["10115","14463.02",13],["80331","14132.66",12]]`},
	{"no_header.csv", "grp", "amount", []string{"grp", "text", "amount", "decimal(10,2)"}, `no_header: true, header: [grp, amount]`,
		`[["1","24673.08",26],["2","21361.11",21],["3","14761.95",13]]`},
	{"missing_words.csv", "region", "amount", []string{"region", "text", "amount", "decimal(10,2)"}, `nulls: [NA]`,
		`[["East","9381.22",12],["North","16734.64",18],["South","9241.62",14],["West","11350.44",16]]`},
	{"tab.tsv", "region", "qty", []string{"region", "text", "qty", "integer", "note", "text"}, "", `[["East","699",12],["North","830",18],["South","559",14],["West","618",16]]`},
}

// TestAnyCSV puts unlike CSV files on offer and makes a contract on each and asks for its sums, through the real programs. What
// the vendor publishes of them is names and types.
func TestAnyCSV(t *testing.T) {
	w := newWorld(t)
	var sets, rules strings.Builder
	rules.WriteString("version: 1\ndatasets:\n")
	for i, f := range csvFiles {
		data, err := os.ReadFile(filepath.Join("..", "..", "node", "dataplane", "csvimport", "testdata", f.file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(w.path(plane, f.file), data, 0o600); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&sets, "set%d:\n  path: %s\n  columns:\n", i, f.file)
		for c := 0; c < len(f.columns); c += 2 {
			fmt.Fprintf(&sets, "    %q: {type: %q, class: business}\n", f.columns[c], f.columns[c+1])
		}
		if f.csv != "" {
			fmt.Fprintf(&sets, "  csv: {%s}\n", f.csv)
		}
		fmt.Fprintf(&rules, "  set%d: {purposes: any, operations: [sum, count], retention_days: 30, min_group_size: 5}\n", i)
	}
	for path, text := range map[string]string{
		w.path(plane, "datasets.yaml"): sets.String(), w.path(vendor, "datasets.yaml"): sets.String(), w.path(vendor, "policy.yaml"): rules.String(),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.start(vendor, plane, buyer)

	card, _, err := fetch.Get(t.Context(), w.client, "https://"+domains[vendor]+wellknown.PathAgentCard, wellknown.MaxCardBytes)
	if err != nil {
		t.Fatal(err)
	}
	for _, published := range []string{string(card), w.must(0, vendor, "datasets", "show").stdout} {
		for _, name := range []string{"Betrag", "région", "postcode"} {
			if !strings.Contains(published, name) {
				t.Errorf("the column %s is not published", name)
			}
		}
		for _, value := range []string{"2434.77", "Zürich", "Orléans", "01067", "East"} {
			if strings.Contains(published, value) {
				t.Errorf("the value %s is published", value)
			}
		}
	}
	for i, f := range csvFiles {
		made := decodeInto[httpapi.Negotiation](t, w.must(0, buyer, "negotiate", "--peer", domains[vendor], "--json", "--dataset", fmt.Sprintf("set%d", i),
			"--columns", f.group+","+f.value, "--operations", "sum,count", "--purpose", "Totals").stdout)
		got := decodeInto[httpapi.QueryResult](t, w.must(0, buyer, "query", "--contract", made.ContractID, "--json",
			"--aggregate", "sum("+f.value+")", "--aggregate", "count()", "--group-by", f.group, "--order-by", f.group).stdout)
		rows, err := json.Marshal(got.Rows)
		if err != nil || string(rows) != f.rows || got.UsedRows != 60 || got.TotalRows != 60 {
			t.Errorf("%s: %s from %d of %d rows (%v), want %s from all 60", f.file, rows, got.UsedRows, got.TotalRows, err, f.rows)
		}
	}
}
