// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/httpapi"
)

// hostile sets the title, writes the clipboard, clears the screen (in one byte and in two), turns the direction, and begins a
// line of its own.
const hostile = "a\x1b]0;owned\a\x1b]52;c;aGk=\a\x1b[2J\u009b2J\u202egnp\u2066\x7f\r\nfaked: 1000 rows\tx"

func wantPlain(t *testing.T, what, s string) {
	t.Helper()
	if i := strings.IndexFunc(s, func(r rune) bool { return r != '\n' && acts(r) }); i >= 0 {
		t.Errorf("%s: a terminal acts on %q", what, s[i:min(i+8, len(s))])
	}
	if strings.Contains(s, "\nfaked") {
		t.Errorf("%s: has a line that is not its own: %q", what, s)
	}
}

// What the other party wrote is shown and does nothing: the data, and what it says about an offer and an end.
func TestPeersTextIsOnlyShown(t *testing.T) {
	var b bytes.Buffer
	printResult(&b, httpapi.QueryResult{Columns: []string{"region", hostile}, Rows: [][]any{{hostile, nil}, {1.5, hostile}}})
	wantPlain(t, "result", b.String())
	b.Reset()
	printNegotiation(&b, httpapi.Negotiation{
		Peer: hostile, Role: "buyer", Phase: "rejected", Code: hostile, Reason: hostile, DryRun: []string{hostile},
		Offer: &contract.Offer{
			Scope: contract.Scope{Operations: []string{hostile}, Columns: []string{hostile}}, ValidUntil: hostile,
			Removed: []contract.Removal{{What: hostile, Asked: hostile, Offered: hostile, Rule: hostile, Why: hostile}},
		},
	})
	wantPlain(t, "negotiation", b.String())
}

// The last resort, for all that is printed: what it changes in JSON, JSON takes for the same.
func TestPlainWriter(t *testing.T) {
	for _, s := range []string{hostile, "plain ü 日本 \U0001f600", "tag \U000e0041", "\xff\xfe", "e\u0301"} {
		want, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		w := &plainWriter{out: &b}
		for i := range want { // a byte at a time: characters come in parts
			if n, err := w.Write(want[i : i+1]); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		var same string
		if err := json.Unmarshal(b.Bytes(), &same); err != nil || same != strings.ToValidUTF8(s, "\ufffd\ufffd") && same != s {
			t.Errorf("%q: %q, %v", s, same, err)
		}
		b.Reset()
		if _, err := w.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(b.String(), func(r rune) bool { return r != '\n' && r != '\t' && acts(r) }) {
			t.Errorf("%q", b.String())
		}
	}
}
