// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/ledger"
)

// endpoint is a model that is first unclear and then wants everything.
func endpoint(t *testing.T, calls *atomic.Int64) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sk-of-the-test" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/models") {
			w.Write([]byte(`{"data":[{"id":"m-1"}]}`))
			return
		}
		var body struct {
			Messages []struct{ Content string } `json:"messages"`
		}
		json.NewDecoder(r.Body).Decode(&body)
		intent := "accept"
		if strings.Contains(body.Messages[1].Content, `"at_most"`) {
			intent = "counter"
		}
		answer := `{"intent":"` + intent + `","scope":{"columns":["region","order_value","order_date","customer_email"],"operations":["avg","count"],"retention_days":60,"min_group_size":8,"call_budget":99999},"rationale":""}`
		if calls.Add(1)%2 == 1 {
			answer = "Sure! Here it is: " + answer
		}
		json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"finish_reason": "stop", "message": map[string]any{"content": answer}}}})
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

// TestC16_ModelsOnBothSides runs a negotiation between two nodes, each of which asks a model: the vendor's task is working until
// there is an answer, both models answer unusably once, and what they agree on is within policy and needs.
func TestC16_ModelsOnBothSides(t *testing.T) {
	buyerDir, vendorDir := initPair(t, nil)
	var calls [2]atomic.Int64
	for i, dir := range []string{buyerDir, vendorDir} {
		key := filepath.Join(dir, "model.key")
		if err := os.WriteFile(key, []byte("sk-of-the-test\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		config := filepath.Join(dir, node.ConfigFile)
		text, err := os.ReadFile(config)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, "\ndecider: {kind: openai, base_url: \""+endpoint(t, &calls[i])+"\", model: m-1, api_key_file: model.key, read_text: true}\n"...)
		if err := os.WriteFile(config, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	vendor, buyer := start(t, vendorDir), start(t, buyerDir)
	n, err := buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: "vendorcorp.test"})
	if err != nil {
		t.Fatal(err)
	}
	n = buyer.wait(t, n.ContextID)
	if n.Phase != "in_force" || n.Offer.RetentionDays != 60 || n.Offer.MinGroupSize != 8 || len(n.Offer.Columns) != 3 {
		buyer.dump(t)
		vendor.dump(t)
		t.Fatalf("phase %s: %s %s, offer %+v", n.Phase, n.Code, n.Reason, n.Offer)
	}
	for i, c := range []*company{buyer, vendor} {
		events, err := c.Events(t.Context(), 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for _, e := range events {
			seen[e.Type]++
			if strings.Contains(string(e.Data), "sk-of-the-test") || strings.Contains(string(e.Data), "Sure!") {
				t.Errorf("event %d keeps what it should not: %s", e.Seq, e.Data)
			}
		}
		if calls[i].Load() != 2 || seen[ledger.ModelAsked] != 2 || seen[ledger.ModelAnswered] != 2 || seen[ledger.ModelNarrowed] != i {
			t.Errorf("%s: %d calls, events %v", filepath.Base(c.dir), calls[i].Load(), seen)
		}
		d, err := c.Doctor(t.Context(), httpapi.DoctorRequest{})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, check := range d.Checks {
			found = found || check.Name == "decider" && check.Status == httpapi.CheckOK && strings.Contains(check.Detail, "m-1")
		}
		if !found {
			t.Errorf("doctor says %+v", d.Checks)
		}
	}
}

// TestDeciderConfiguration: what is wrong with it is said at start, and never with the key in it.
func TestDeciderConfiguration(t *testing.T) {
	t.Setenv("TREATY_TEST_EMPTY", "")
	buyerDir, _ := initPair(t, nil)
	config := filepath.Join(buyerDir, node.ConfigFile)
	good, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(buyerDir, "open.key")
	if err := os.WriteFile(open, []byte("sk-of-the-test"), 0o644); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"{kind: oracle}": "kind",
		"{model: m}":     "kind: openai",
		"{kind: openai, model: m, base_url: \"http://models.example/v1\"}":                                        "https",
		"{kind: openai, model: m, base_url: \"https://m.example\", api_key_file: open.key}":                       "chmod 600",
		"{kind: openai, model: m, base_url: \"https://m.example\", api_key_env: TREATY_TEST_EMPTY}":               "holds no key",
		"{kind: openai, model: m, base_url: \"https://m.example\", api_key_env: A, api_key_file: b}":              "exclude",
		"{kind: openai, model: m, base_url: \"https://m.example\", record: all}":                                  "record",
		"{kind: openai, model: m, base_url: \"https://m.example\", timeout: 1h}":                                  "timeout",
		"{kind: openai, model: m, base_url: \"https://m.example\", max_tokens: 999999}":                           "max_tokens",
		"{kind: openai, model: m, base_url: \"https://m.example\", api_key_env: TREATY_TEST_EMPTY, unknown: key}": "unknown",
	} {
		if err := os.WriteFile(config, append(good[:len(good):len(good)], "\ndecider: "+text+"\n"...), 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := node.Open(t.Context(), buyerDir, node.Options{Process: "treaty"})
		if err == nil {
			n.Close()
			t.Errorf("%s: a node starts with it", text)
			continue
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sk-of") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
