// SPDX-License-Identifier: Apache-2.0

package text

import (
	"strings"
	"testing"
)

func TestClip(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "",
		"ten bytes.":               "ten bytes.",
		"eleven byte":              "eleven …",
		"ünüzün":                   "ünüzün",
		"ünüzünü":                  "ünüz…", // not in the midst of a character
		"a\xffb":                   "a\ufffdb",
		strings.Repeat("\xff", 30): "\ufffd", // one for a run of them
		"\xe2\x80":                 "\ufffd",
	} {
		if got := Clip(in, 10); got != want || len(got) > 10 {
			t.Errorf("%q: %q", in, got)
		}
	}
}
