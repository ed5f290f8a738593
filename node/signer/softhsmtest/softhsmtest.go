// SPDX-License-Identifier: Apache-2.0

// Package softhsmtest gives tests a real PKCS#11 token: one of SoftHSM's, in a folder of its own.
package softhsmtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// PIN and Label of the token.
const (
	PIN   = "8152-for-tests"
	Label = "treaty-test"
)

// modules are where distributions put the library.
var modules = []string{
	"/usr/lib/softhsm/libsofthsm2.so", "/usr/lib64/softhsm/libsofthsm2.so", "/usr/lib64/pkcs11/libsofthsm2.so",
	"/usr/local/lib/softhsm/libsofthsm2.so", "/opt/homebrew/lib/softhsm/libsofthsm2.so",
}

// Token is a folder with a token in it and, in Dir, room for a signer's configuration. Paths in it are short enough for
// Unix sockets.
type Token struct {
	Dir    string
	Module string
}

// New makes a token for this test and the processes that it starts: it sets SOFTHSM2_CONF. A machine without SoftHSM fails
// the test, since without a token it would show nothing.
func New(t testing.TB) Token {
	t.Helper()
	dir, err := os.MkdirTemp("", "hsm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	token := Token{Dir: dir}
	for _, m := range modules {
		if _, err := os.Stat(m); err == nil {
			token.Module = m
			break
		}
	}
	if token.Module == "" {
		t.Fatal("SoftHSM is not installed: run `make tools-softhsm`")
	}
	tokens := filepath.Join(dir, "tokens")
	if err := os.Mkdir(tokens, 0o700); err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(dir, "softhsm2.conf")
	token.Write(t, "softhsm2.conf", fmt.Sprintf("directories.tokendir = %s\nobjectstore.backend = file\nlog.level = ERROR\n", tokens))
	t.Setenv("SOFTHSM2_CONF", conf)
	//nolint:gosec // fixed arguments
	out, err := exec.Command("softhsm2-util", "--init-token", "--free", "--label", Label, "--so-pin", PIN+"-so", "--pin", PIN).CombinedOutput()
	if err != nil {
		t.Fatalf("softhsm2-util: %v: %s", err, out)
	}
	token.Write(t, "pin", PIN+"\n")
	return token
}

// Write writes a file into Dir, mode 0600.
func (k Token) Write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(k.Dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Configure writes treaty-signer.yaml with these lines below `keys:`.
func (k Token) Configure(t testing.TB, keys string) {
	t.Helper()
	k.Write(t, "treaty-signer.yaml", fmt.Sprintf("module: %s\ntoken: %s\npin: {file: pin}\naudit: audit.log\nkeys:\n%s", k.Module, Label, keys))
}
