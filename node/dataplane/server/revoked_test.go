// SPDX-License-Identifier: Apache-2.0

package server

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
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
	// Two that open such a file at once both end its line, and one that meets a full disk may leave half of one.
	if err := os.WriteFile(path, []byte("ctr_a\n\n\nctr_b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = open()
	if !slices.Equal(r.ids, []string{"ctr_a", "ctr_b"}) {
		t.Errorf("%q", r.ids)
	}
	whole := r.f
	readOnly, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	r.f = readOnly
	if err := r.remember("ctr_c"); err == nil {
		t.Error("kept in a file that cannot be written")
	}
	r.f = whole
	if _, err := whole.WriteString("ctr"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"ctr_c", "ctr_d"} {
		if err := r.remember(id); err != nil {
			t.Fatal(err)
		}
	}
	if r = open(); !slices.Equal(r.ids, []string{"ctr_a", "ctr_b", "ctr", "ctr_c", "ctr_d"}) {
		t.Errorf("%q", r.ids)
	}
	if err := os.WriteFile(path, []byte("ctr_a\n\x00\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openRevocations(path); err == nil {
		t.Error("a file of something else was read")
	}
}

// Init makes the file, in a folder that may be read-only later.
func TestRevocationsFile_Init(t *testing.T) {
	dir := t.TempDir()
	key, err := did.GenerateKey(did.Ed25519)
	if err != nil {
		t.Fatal(err)
	}
	id, err := did.Parse("did:wba:vendorcorp.test:agents:a:e1_" + key.Public().Thumbprint())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := did.BuildDocument(did.DocumentSpec{ID: id, Binding: did.MethodSpec{Key: key.Public()}})
	if err != nil {
		t.Fatal(err)
	}
	signer, err := did.NewSigner(did.KeyID(id, "signing", key.Public()), key)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	if raw, err = did.SignDocument(t.Context(), raw, signer, now.Add(-time.Hour), did.DialectSpec); err != nil {
		t.Fatal(err)
	}
	document := filepath.Join(dir, "agent.json")
	if err := os.WriteFile(document, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Init(dir, File{URL: "https://data.vendorcorp.test" + Path}, InitOptions{VendorDocument: document}, now); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, revokedFile)); err != nil || info.Size() != 0 || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// The unit of deploy/ shows the data plane its folder read-only but for this file, which has to be there for that.
func TestRevocationsFile_Unit(t *testing.T) {
	unit, err := os.ReadFile("../../../deploy/treaty-dataplane.service")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(unit), "\n")
	_, dir, ok := strings.Cut(string(unit), "serve --dir ")
	dir, _, _ = strings.Cut(dir, "\n")
	if !ok || !slices.Contains(lines, "ProtectSystem=strict") || !slices.Contains(lines, "ReadWritePaths="+filepath.Join(dir, revokedFile)) {
		t.Errorf("%q is not written under the unit", filepath.Join(dir, revokedFile))
	}
}
