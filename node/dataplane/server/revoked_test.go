// SPDX-License-Identifier: Apache-2.0

package server

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestRevocationsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), revokedFile)
	open := func() *revocations {
		t.Helper()
		r, err := openRevocations(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		return r
	}
	r := open()
	for _, id := range []string{"ctr_a", "a line\nof another", "", "ctr_b"} {
		if err := r.remember(id); err != nil {
			t.Fatal(err)
		}
	}
	if r = open(); !slices.Equal(r.ids, []string{"ctr_a", "ctr_b"}) {
		t.Errorf("%q", r.ids)
	}
	// A line that was not written to its end keeps the next one whole.
	if err := os.WriteFile(path, []byte("ctr_a\nctr"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open().remember("ctr_c"); err != nil {
		t.Fatal(err)
	}
	if r = open(); !slices.Equal(r.ids, []string{"ctr_a", "ctr", "ctr_c"}) {
		t.Errorf("%q", r.ids)
	}
	if err := os.WriteFile(path, []byte("ctr_a\n\x00\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openRevocations(path); err == nil {
		t.Error("a file of something else was read")
	}
}
