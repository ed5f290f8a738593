// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/httpapi"
)

// running makes a node's folder and runs the node in this process.
func running(t *testing.T, profile string) (dir string) {
	t.Helper()
	root, err := os.MkdirTemp("", "treaty") // a Unix socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(root, "n")
	pass := filepath.Join(root, "pass")
	if err := os.WriteFile(pass, []byte("a passphrase for tests\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := command("init", "--dir", dir, "--domain", "buyercorp.test", "--listen", addr, "--dev-ca", filepath.Join(root, "ca"),
		"--human-key-out", filepath.Join(root, "human.age"), "--recovery-key-out", filepath.Join(root, "recovery.age"), "--passphrase-file", pass,
		"--scrypt-work-factor", "10", "--host", "buyercorp.test:443="+addr, "--profile", profile); code != 0 {
		t.Fatalf("init: %d %s %s", code, out, errs)
	}
	n, err := node.Open(t.Context(), dir, node.Options{Process: "treaty"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- n.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return dir
}

func command(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestTrustCommand(t *testing.T) {
	dir := running(t, "k1")
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"trust list", 0, "first contact closed"},
		{"trust allow vendorcorp.test", 0, "allow  vendorcorp.test  operator since"},
		{"trust deny *.test", 0, "deny   *.test"},
		{"trust allow data.vendorcorp.test", 0, `note: "data.vendorcorp.test" is not trusted: it is denied by "*.test"`},
		{"trust forget *.test", 0, "allow  data.vendorcorp.test"},
		{"trust forget *.test", 4, "was not changed here"},
		{"trust deny UPPER.test", 2, "malformed pattern"},
		{"trust allow", 2, "accepts 1 arg"},
		{"trust list --json", 0, `"source": "operator"`},
		{"resolve --history did:wba:vendorcorp.test", 0, "never seen by this node"},
		{"resolve --confirm nonsense did:wba:vendorcorp.test", 2, "treaty resolve --history"},
		{"resolve --history --confirm x did:wba:vendorcorp.test", 2, "none of the others can be"},
		{"resolve did:wba:stranger.test", 3, "treaty trust allow PATTERN"},
	} {
		code, out, errs := command(append(strings.Fields(c.args), "--dir", dir)...)
		if code != c.code || !strings.Contains(out+errs, c.says) {
			t.Errorf("treaty %s: exit code %d\n%s%s", c.args, code, out, errs)
		}
	}
}

// TestDoctorCommand: the exit code says whether contracting would work, and --json prints one report and nothing else.
func TestDoctorCommand(t *testing.T) {
	dir := running(t, "e1")
	code, out, errs := command("doctor", "--dir", dir)
	if code != 0 || !strings.Contains(out, "contracting would work") || errs != "" {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	code, out, _ = command("doctor", "--dir", dir, "--peer", "vendorcorp.test")
	if code != 6 || !strings.Contains(out, "fail  trust:") || !strings.Contains(out, "to mend it: `treaty trust allow vendorcorp.test`") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	code, out, _ = command("doctor", "--dir", dir, "--peer", "vendorcorp.test", "--json")
	var d httpapi.Diagnosis
	if err := json.Unmarshal([]byte(out), &d); code != 6 || err != nil || d.WouldContract || d.Checks[0].Status != httpapi.CheckFail {
		t.Errorf("exit code %d (%v)\n%s", code, err, out)
	}
	empty := t.TempDir()
	if code, out, _ = command("doctor", "--dir", empty); code != 6 || !strings.Contains(out, "treaty serve --dir") || !strings.Contains(out, "treaty init") {
		t.Errorf("without a node: exit code %d\n%s", code, out)
	}
	if code, _, errs = command("doctor", "--dir", empty, "--peer", "vendorcorp.test"); code != exitNoNode {
		t.Errorf("a counterparty without a node: exit code %d\n%s", code, errs)
	}
}
