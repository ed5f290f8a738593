// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseWhere(t *testing.T) {
	for in, want := range map[string]string{
		`region = EU`: `{"column":"region","op":"=","value":"EU"}`,
		`a = 1 or b != 'it''s' and not "my col" is null`: `{"or":[{"column":"a","op":"=","value":"1"},{"and":[{"column":"b","op":"!=","value":"it's"},{"not":{"column":"my col","op":"is_null"}}]}]}`,
		`(a=1 OR b=2) AND c IS NOT NULL`:                 `{"and":[{"or":[{"column":"a","op":"=","value":"1"},{"column":"b","op":"=","value":"2"}]},{"column":"c","op":"is_not_null"}]}`,
		`d between 2025-07-01 and 2025-09-30 and a <= 3`: `{"and":[{"column":"d","op":"between","values":["2025-07-01","2025-09-30"]},{"column":"a","op":"<=","value":"3"}]}`,
		`c in (web, 'a, b') and gift = true`:             `{"and":[{"column":"c","op":"in","values":["web","a, b"]},{"column":"gift","op":"=","value":true}]}`,
		`name prefix 'A('`:                               `{"column":"name","op":"prefix","value":"A("}`,
		`t = 'true'`:                                     `{"column":"t","op":"=","value":"true"}`,
	} {
		f, err := parseWhere(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		// The encoder escapes < for HTML; documents do not.
		b, err := json.Marshal(f)
		if got := strings.ReplaceAll(string(b), `\u003c`, "<"); err != nil || got != want {
			t.Errorf("%s: got %s\nwant %s", in, got, want)
		}
	}
	for _, in := range []string{
		"", "a", "a =", "= 1", "a = 1 b = 2", "(a = 1", "a = 1)", "a like 'x'", "a in b", "a in ()", "a in (b", "a between 1 or 2", "a is maybe",
		"not", "a = 'x", `a = "x"`, "and", strings.Repeat("(", 1000) + "a = 1" + strings.Repeat(")", 1000), "'a' = 1",
	} {
		if f, err := parseWhere(in); err == nil {
			t.Errorf("%q is %+v", in, f)
		}
	}
}

func FuzzParseWhere(f *testing.F) {
	f.Add(`(a=1 OR b in ('x','y')) AND not c between 1 and 2`)
	f.Fuzz(func(t *testing.T, s string) {
		if w, err := parseWhere(s); (w == nil) != (err != nil) {
			t.Errorf("%+v, %v", w, err)
		}
	})
}
