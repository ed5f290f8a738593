// SPDX-License-Identifier: Apache-2.0

//go:build tck

package a2a

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/wellknown"
)

// What does not pass, and why. Anything else that fails, and anything here that passes, fails the test.
var tckExpected = map[string]string{
	"CARD-CACHE-003": "Last-Modified is optional beside a strong ETag, and the documents of a node have no date of their own.",
	"CORE-SEND-003":  "Defect of the TCK: it asks for ContentTypeNotSupportedError, gets it, and counts every error as a failure.",
	"CORE-HIST-005":  "The TCK sends three messages of one task under the same messageId; the SDK takes the second and third for repetitions and keeps one (A2A section 3.3.1).",
	"CORE-HIST-006":  "As CORE-HIST-005.",
}

const (
	tckDocument = "../../../docs/tck.md"
	tckBegin    = "<!-- begin (make tck TCK_DIR=… ARGS=-update writes it) -->\n"
	tckEnd      = "<!-- end -->\n"
)

var update = flag.Bool("update", false, "write docs/tck.md")

// TestTCK runs the official A2A TCK in TCK_DIR against this gateway with an agent that behaves as the TCK's scenarios want. The
// TCK signs nothing, so every request counts as one caller's; everything else is as in a node.
func TestTCK(t *testing.T) {
	b := newBench(t)
	cfg := must(b.config.withDefaults())
	cfg.Now, cfg.Poll = time.Now, 50*time.Millisecond
	// The TCK's webhook is on this machine and without TLS, which no node would call.
	cfg.Push = &Push{Store: b.db, Client: &http.Client{Timeout: 5 * time.Second}, CheckURL: func(*url.URL) error { return nil }}
	origin := ""
	build := func(ctx context.Context) ([]byte, error) {
		return wellknown.BuildCard(ctx, wellknown.CardSpec{Agent: vendor.id, Name: "Vendor", Description: "Sells.", Origin: origin, Push: true, Extended: true}, vendor.signer)
	}
	cfg.Extended = func(ctx context.Context, _ did.DID) ([]byte, error) { return build(ctx) }
	gateway := must(newServer(cfg, scenarioAgent{}))
	mux := http.NewServeMux()
	server := httptest.NewTLSServer(mux)
	defer server.Close()
	origin = server.URL
	card := must(build(t.Context()))
	go func() {
		for t.Context().Err() == nil {
			if err := gateway.Notify(t.Context()); err != nil && t.Context().Err() == nil {
				t.Error(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	mux.Handle("/.well-known/", must(wellknown.NewSite(time.Minute, wellknown.CardDocument(card))))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		gateway.ServeHTTP(w, r.WithContext(httpsig.WithCaller(r.Context(), httpsig.Caller{DID: buyer.id, Document: buyer.doc})))
	})

	folder := t.TempDir()
	ca := filepath.Join(folder, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Getenv("TCK_PYTHON"), "-m", "pytest", "tests/compatibility", "-q", "--tb=no", "-p", "no:cacheprovider",
		"--sut-host="+server.URL, "--transport=jsonrpc,http_json", "--compatibility-report="+filepath.Join(folder, "report"))
	cmd.Dir, cmd.Stdout, cmd.Stderr = os.Getenv("TCK_DIR"), os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+ca, "PYTHONDONTWRITEBYTECODE=1")
	var failed *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &failed) { // what failed is in the report
		t.Fatal(err)
	}
	var report struct {
		Requirements map[string]tckRequirement `json:"per_requirement"`
	}
	if err := json.Unmarshal(must(os.ReadFile(filepath.Join(folder, "report.json"))), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Requirements) < 100 {
		t.Fatalf("only %d requirements were tested", len(report.Requirements))
	}
	for id, r := range report.Requirements {
		if (r.failed() != "") != (tckExpected[id] != "") {
			t.Errorf("%s (%s): failed on %q: %q; expected: %q", id, r.Level, r.failed(), r.Errors, tckExpected[id])
		}
	}
	old := string(must(os.ReadFile(tckDocument)))
	head, rest, _ := strings.Cut(old, tckBegin)
	_, tail, ok := strings.Cut(rest, tckEnd)
	if !ok {
		t.Fatalf("%s has no place for the summary", tckDocument)
	}
	now := head + tckBegin + tckSummary(report.Requirements) + tckEnd + tail
	switch {
	case t.Failed() || now == old:
	case *update:
		if err := os.WriteFile(tckDocument, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s does not say what was seen: run make tck TCK_DIR=… ARGS=-update", tckDocument)
	}
}

type tckRequirement struct {
	Level      string
	Transports map[string]string
	Errors     []string
}

// failed names the transports on which the requirement is not met.
func (r tckRequirement) failed() string {
	var on []string
	for transport, result := range r.Transports {
		if result == "FAIL" {
			on = append(on, transport)
		}
	}
	slices.Sort(on)
	return strings.Join(on, ", ")
}

// tckSummary counts requirements by level and what is tested, and lists what does not pass.
func tckSummary(requirements map[string]tckRequirement) string {
	transports := []string{"agent_card", "jsonrpc", "http_json"}
	var b strings.Builder
	b.WriteString("\n| | " + strings.Join(transports, " | ") + " |\n|---|---|---|---|\n")
	for _, level := range []string{"MUST", "SHOULD", "MAY"} {
		b.WriteString("| " + level)
		for _, transport := range transports {
			count := map[string]int{}
			for _, r := range requirements {
				if r.Level == level && r.Transports[transport] != "" {
					count[r.Transports[transport]]++
				}
			}
			fmt.Fprintf(&b, " | %d passed, %d failed, %d skipped", count["PASS"], count["FAIL"], count["SKIPPED"])
		}
		b.WriteString(" |\n")
	}
	b.WriteString("\n| not passed | level | on | why |\n|---|---|---|---|\n")
	for _, id := range slices.Sorted(maps.Keys(tckExpected)) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", id, requirements[id].Level, requirements[id].failed(), tckExpected[id])
	}
	b.WriteString("\n")
	return b.String()
}
