// SPDX-License-Identifier: Apache-2.0

//go:build treaty_crash

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDemoDrill_BindingUnderLoad is the figure: a binding key rotates under load, with real processes, and no request is lost. `make
// demo-drill` runs the other kinds too.
func TestDemoDrill_BindingUnderLoad(t *testing.T) {
	t.Parallel()
	b, err := built()
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp("", "treaty")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, b.treaty, "demo-drill", "--workdir", filepath.Join(root, "d"), "--kinds", "binding", "--grace", "1s", "--load", "2", "--query-every", "1s").CombinedOutput() //nolint:gosec // our own
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if last := lines[len(lines)-1]; last != "lost requests: 0" {
		t.Errorf("the last line is %q\n%s", last, out)
	}
	for _, want := range []string{"drill started: binding, live", "identity moved", "0 broken", "during-grace"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q\n%s", want, out)
		}
	}
	reports, err := filepath.Glob(filepath.Join(root, "d", "reports", "*.json"))
	if err != nil || len(reports) != 1 {
		t.Fatalf("%v, %v", reports, err)
	}
	if text, err := exec.CommandContext(ctx, b.treaty, "verify", reports[0]).CombinedOutput(); err != nil { //nolint:gosec // our own
		t.Errorf("%v\n%s", err, text)
	}
}
