// SPDX-License-Identifier: Apache-2.0

package source

import "testing"

func TestCheckFraction(t *testing.T) {
	for p, want := range map[string]bool{
		"0.5": true, "0.95": true, "0.000001": true, "0.999999": true,
		"": false, "0": false, "0.": false, "0.0": false, "1.0": false, ".5": false, "0.5e1": false, "0.5 ": false, "0.1234567": false, "0.5)": false, "-0.5": false, "0.５": false,
	} {
		if got := CheckFraction(p); got != want {
			t.Errorf("%q: %v", p, got)
		}
	}
}
