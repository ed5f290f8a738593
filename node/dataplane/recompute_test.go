// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"testing"
)

// TestResultsAreRecomputed: the same query over the same rows gives the same bytes, and each receipt's digest is that of a
// canonical form that is made here, of the JSON answer, without the node's code.
func TestResultsAreRecomputed(t *testing.T) {
	f := smallGroups(t)
	var first []byte
	for range 2 {
		out, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input(by("region")))
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Receipt struct {
				ID           string `json:"id"`
				ResultDigest string `json:"resultDigest"`
			} `json:"receipt"`
			Result map[string]any `json:"result"`
		}
		if err := json.Unmarshal(mustJSON(t, out), &answer); err != nil {
			t.Fatal(err)
		}
		// With names of ASCII and texts without control characters, encoding/json sorts and writes as RFC 8785 wants.
		var own bytes.Buffer
		enc := json.NewEncoder(&own)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(answer.Result); err != nil {
			t.Fatal(err)
		}
		result := bytes.TrimSpace(own.Bytes())
		sum := sha256.Sum256(result)
		if want := "sha-256:" + base64.RawURLEncoding.EncodeToString(sum[:]); answer.Receipt.ResultDigest != want || answer.Receipt.ID == "" {
			t.Errorf("receipt %+v, want %s of %s", answer.Receipt, want, result)
		}
		if first == nil {
			first = out.Result
		} else if !bytes.Equal(first, out.Result) {
			t.Errorf("asked twice:\n%s\n%s", first, out.Result)
		}
	}
}
