// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/signer"
	"github.com/treaty-node/treaty/node/signer/softhsmtest"
)

const mainEnv = "TREATY_SIGNER_TEST_MAIN"

// TestMain is also the program itself, so that tests can start it as a process.
func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" {
		main()
	}
	os.Exit(m.Run())
}

func command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), mainEnv+"=1")
	return cmd
}

// treatySigner runs one command line. No output ever holds the PIN.
func treatySigner(t testing.TB, hsm softhsmtest.Token, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := command(append([]string{"--dir", hsm.Dir}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if strings.Contains(out.String()+errs.String(), softhsmtest.PIN) {
		t.Errorf("%q shows the PIN", args)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

const subject = "did:wba:buyercorp.test:agents:steward"

func generateKey(t testing.TB, hsm softhsmtest.Token, label string) generated {
	t.Helper()
	code, out, errs := treatySigner(t, hsm, "generate", "--label", label, "--subject", subject, "--json")
	var g generated
	if err := json.Unmarshal([]byte(out), &g); code != 0 || err != nil {
		t.Fatalf("generate: %d %s %v", code, errs, err)
	}
	return g
}

type served struct {
	cmd    *exec.Cmd
	socket string
	stderr *bytes.Buffer
}

func start(t testing.TB, hsm softhsmtest.Token) *served {
	t.Helper()
	s := &served{cmd: command("--dir", hsm.Dir, "serve"), socket: filepath.Join(hsm.Dir, "signer.sock"), stderr: new(bytes.Buffer)}
	s.cmd.Stderr = s.stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "ready: ") {
		_ = s.cmd.Wait()
		t.Fatalf("%q %v: %s", line, err, s.stderr)
	}
	return s
}

// TestServe_TokenKey makes a key in a real token, serves it, signs with it, and survives being killed.
func TestServe_TokenKey(t *testing.T) {
	hsm := softhsmtest.New(t)
	hsm.Configure(t, "  []\n")
	g := generateKey(t, hsm, "binding")
	hsm.Configure(t, fmt.Sprintf("  - {kid: %q, role: signing, label: binding}\n", g.KID))
	if code, out, errs := treatySigner(t, hsm, "list"); code != 0 || !strings.Contains(out, g.Thumbprint) {
		t.Fatalf("list: %d %s %s", code, out, errs)
	}
	s := start(t, hsm)
	remote, err := signer.NewClient(s.socket).Signer(t.Context(), g.KID, did.PublicKey{})
	if err != nil {
		t.Fatal(err)
	}
	if remote.PublicKey().Multibase() != g.PublicKey || remote.PublicKey().Thumbprint() != g.Thumbprint {
		t.Fatalf("%s is not %s", remote.PublicKey(), g.Thumbprint)
	}
	jws, err := did.SignJWS(t.Context(), []byte(`{"content":"confidential"}`), "treaty-envelope+json", remote)
	if err != nil {
		t.Fatal(err)
	}
	if parsed, err := did.ParseJWS(jws, 1<<16); err != nil || parsed.Verify(remote.PublicKey()) != nil {
		t.Fatalf("%v", err)
	}
	if _, err := remote.Sign(t.Context(), []byte("anything else")); !errors.Is(err, signer.ErrForm) {
		t.Errorf("another form: %v", err)
	}
	if runtime.GOOS == "linux" {
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", s.cmd.Process.Pid))
		if err != nil || !regexp.MustCompile(`Max core file size +0 +0 `).Match(limits) {
			t.Errorf("invariant 10: core dumps are on (%v):\n%s", err, limits)
		}
	}
	if code, _, errs := treatySigner(t, hsm, "serve"); code != exitUsage || !strings.Contains(errs, "another signer answers") {
		t.Errorf("a second one: %d %s", code, errs)
	}

	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	if _, err := did.SignJWS(t.Context(), []byte(`{}`), "x", remote); !errors.Is(err, did.ErrSignerUnavailable) {
		t.Errorf("killed: %v", err)
	}
	s = start(t, hsm)
	if _, err := did.SignJWS(t.Context(), []byte(`{}`), "x", remote); err != nil {
		t.Errorf("back: %v", err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("told to stop: %v %s", err, s.stderr)
	}
	if _, err := os.Lstat(s.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}

	path := filepath.Join(hsm.Dir, "audit.log")
	audit, err := os.ReadFile(path)
	if err != nil || strings.Count(string(audit), `"outcome":"signed"`) != 2 || strings.Contains(string(audit), "confidential") {
		t.Errorf("audit log (%v):\n%s", err, audit)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("audit log: %v %v", info.Mode(), err)
	}
	if strings.Contains(s.stderr.String(), softhsmtest.PIN) {
		t.Error("the PIN is in the log")
	}
}

// TestServe_Refuses: every way to start it wrongly ends with exit code 2 and says what to do.
func TestServe_Refuses(t *testing.T) {
	hsm := softhsmtest.New(t)
	hsm.Configure(t, "  []\n")
	one, two := generateKey(t, hsm, "one"), generateKey(t, hsm, "two")
	key := func(kid, rest string) string { return fmt.Sprintf("  - {kid: %q, %s}\n", kid, rest) }
	good := key(one.KID, "role: signing, label: one")
	config := func(text string) func() {
		return func() {
			hsm.Write(t, signer.ConfigFile, strings.NewReplacer("MODULE", hsm.Module, "TOKEN", softhsmtest.Label).Replace(text))
		}
	}
	for name, tc := range map[string]struct {
		prepare func()
		want    string
	}{
		"no keys":               {func() { hsm.Configure(t, "  []\n") }, "treaty-signer generate"},
		"another key's id":      {func() { hsm.Configure(t, key(two.KID, "role: signing, label: one")) }, "the id of this key is"},
		"no such label":         {func() { hsm.Configure(t, key(one.KID, "role: signing, label: three")) }, "no Ed25519 public key"},
		"human key":             {func() { hsm.Configure(t, key(one.KID, "role: human, label: one")) }, "offline"},
		"role of another":       {func() { hsm.Configure(t, key(one.KID, "role: service, label: one")) }, "the id of this key is"},
		"neither label nor id":  {func() { hsm.Configure(t, key(one.KID, "role: signing")) }, "label"},
		"id not hexadecimal":    {func() { hsm.Configure(t, key(one.KID, "role: signing, id: xyz")) }, "hexadecimal"},
		"twice":                 {func() { hsm.Configure(t, good+good) }, "twice"},
		"unknown member":        {config("module: MODULE\ntoken: TOKEN\npin: {file: pin}\npins: 1\n"), "pins"},
		"PIN in the clear":      {config("module: MODULE\ntoken: TOKEN\npin: " + softhsmtest.PIN + "\n"), "never stands in the configuration"},
		"PIN from two places":   {config("module: MODULE\ntoken: TOKEN\npin: {file: pin, credential: pin}\n"), "exactly one"},
		"no credential":         {config("module: MODULE\ntoken: TOKEN\npin: {credential: pin}\nkeys:\n" + good), "CREDENTIALS_DIRECTORY"},
		"no module":             {config("token: TOKEN\npin: {file: pin}\n"), "module"},
		"module is not one":     {config("module: /dev/null\ntoken: TOKEN\npin: {file: pin}\nkeys:\n" + good), "cannot be loaded"},
		"another token":         {config("module: MODULE\ntoken: other\npin: {file: pin}\nkeys:\n" + good), "label"},
		"group that is not one": {config("module: MODULE\ntoken: TOKEN\npin: {file: pin}\nsocket_group: no-such-group\nkeys:\n" + good), "socket_group"},
		"PIN file for all": {func() {
			hsm.Configure(t, good)
			if err := os.Chmod(filepath.Join(hsm.Dir, "pin"), 0o644); err != nil {
				t.Fatal(err)
			}
		}, "chmod 600"},
		"wrong PIN": {func() {
			hsm.Configure(t, good)
			hsm.Write(t, "pin", "another-pin-6612\n")
		}, "not tried again"},
		"PIN file of two lines": {func() {
			hsm.Configure(t, good)
			hsm.Write(t, "pin", "a\nb\n")
		}, "not one line"},
		"socket is a file": {func() {
			hsm.Configure(t, good)
			hsm.Write(t, "signer.sock", "")
		}, "not a socket"},
	} {
		tc.prepare()
		code, out, errs := treatySigner(t, hsm, "serve")
		if code != exitUsage || !strings.Contains(errs, tc.want) || out != "" || strings.Contains(errs, "6612") || strings.Contains(errs, softhsmtest.PIN[:4]) {
			t.Errorf("%s: exit %d: %s%s", name, code, out, errs)
		}
		if err := errors.Join(os.Chmod(filepath.Join(hsm.Dir, "pin"), 0o600), os.RemoveAll(filepath.Join(hsm.Dir, "signer.sock"))); err != nil {
			t.Fatal(err)
		}
		hsm.Write(t, "pin", softhsmtest.PIN+"\n")
	}
	for _, args := range [][]string{
		{"generate", "--label", "x", "--id", "zz"}, {"generate", "--label", "x", "--subject", "not a DID"}, {"generate"}, {"serve", "more"}, {"nonsense"},
	} {
		if code, _, _ := treatySigner(t, hsm, args...); code != exitUsage {
			t.Errorf("%q: exit %d", args, code)
		}
	}
}

// BenchmarkSign is one signature through socket, audit log and a real (software) token.
func BenchmarkSign(b *testing.B) {
	hsm := softhsmtest.New(b)
	hsm.Configure(b, "  []\n")
	g := generateKey(b, hsm, "binding")
	hsm.Configure(b, fmt.Sprintf("  - {kid: %q, role: signing, label: binding}\n", g.KID))
	s, err := signer.NewClient(start(b, hsm).socket).Signer(b.Context(), g.KID, did.PublicKey{})
	if err != nil {
		b.Fatal(err)
	}
	message := make([]byte, 64)
	for b.Loop() {
		if _, err := s.Sign(b.Context(), message); err != nil {
			b.Fatal(err)
		}
	}
}
