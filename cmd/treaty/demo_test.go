// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/csv"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/dataset/sample"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/store/sqlite"
)

// TestDemo runs `treaty demo` as a newcomer does and holds it to its word: every numbered line is an entry of one of the two
// logs, the table is what the data says, and the evidence verifies.
func TestDemo(t *testing.T) {
	b, err := built()
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp("", "treaty")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	dir := filepath.Join(root, "demo")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, b.treaty, "demo", "--workdir", dir).CombinedOutput() //nolint:gosec // our own
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	logged := append(descriptions(t, filepath.Join(dir, "buyer")), descriptions(t, filepath.Join(dir, "vendor"))...)
	numbered := regexp.MustCompile(`(?m)^ *\d+  (?:BuyerCorp|VendorCorp|data plane) +(.*)$`).FindAllStringSubmatch(string(out), -1)
	if len(numbered) < 20 {
		t.Fatalf("%d lines\n%s", len(numbered), out)
	}
	for _, line := range numbered {
		if !slices.Contains(logged, line[1]) {
			t.Errorf("not in any log: %s", line[1])
		}
	}
	for _, row := range regionAverages(t) {
		if !regexp.MustCompile(`(?m)^ *` + row[0] + ` +` + regexp.QuoteMeta(row[1]) + ` +` + row[2] + ` *$`).Match(out) {
			t.Errorf("the table lacks %v\n%s", row, out)
		}
	}
	for _, want := range []string{"of 624 rows", "SCOPE_DENIED: column \"customer_email\" is not granted", "Nothing was read.", "removed customer_email", "transcript  sha-256:"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q\n%s", want, out)
		}
	}
	verify := exec.CommandContext(ctx, b.treaty, "verify", filepath.Join(dir, "evidence.json")) //nolint:gosec // our own
	if text, err := verify.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	// A folder that is not a demo's is never cleared away.
	other := t.TempDir()
	if text, err := exec.CommandContext(ctx, b.treaty, "demo", "--workdir", other).CombinedOutput(); err == nil || !strings.Contains(string(text), "not a demo's folder") { //nolint:gosec // our own
		t.Errorf("%v\n%s", err, text)
	}
}

// descriptions are the lines of a company's log.
func descriptions(t *testing.T, dir string) (lines []string) {
	t.Helper()
	db, err := sqlite.OpenExisting(t.Context(), filepath.Join(dir, node.StoreFile), sqlite.Options{Process: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(t.Context(), func(tx store.Tx) error {
		events, err := tx.Events(0, store.MaxList)
		for _, e := range events {
			lines = append(lines, ledger.Describe(e))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// regionAverages computes the demo's question from the sample itself, without any of the data plane's code.
func regionAverages(t *testing.T) (rows [][3]string) {
	t.Helper()
	var text strings.Builder
	if err := sample.Write(&text, demoSeed); err != nil {
		t.Fatal(err)
	}
	records, err := csv.NewReader(strings.NewReader(text.String())).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := func(name string) int { return slices.Index(records[0], name) }
	sums, counts := map[string]*big.Rat{}, map[string]int64{}
	for _, r := range records[1:] {
		if day := r[column("order_date")]; day < "2025-07-01" || day > "2025-09-30" {
			continue
		}
		v, ok := new(big.Rat).SetString(r[column("order_value")])
		if !ok {
			t.Fatal(r)
		}
		region := r[column("region")]
		if sums[region] == nil {
			sums[region] = new(big.Rat)
		}
		sums[region].Add(sums[region], v)
		counts[region]++
	}
	for region, sum := range sums {
		avg := new(big.Rat).Quo(sum, big.NewRat(counts[region], 1))
		rows = append(rows, [3]string{region, avg.FloatString(6), big.NewInt(counts[region]).String()})
	}
	return rows
}
