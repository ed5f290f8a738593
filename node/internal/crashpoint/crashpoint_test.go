// SPDX-License-Identifier: Apache-2.0

package crashpoint

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
)

// TestAllListsEveryConstant reads the source: a constant that All forgets would never be crashed at.
func TestAllListsEveryConstant(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "points.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []Point
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := spec.Type.(*ast.Ident); ok && id.Name == "Point" {
			lit, ok := spec.Values[0].(*ast.BasicLit)
			if !ok {
				t.Fatalf("%s is not a literal", spec.Names[0])
			}
			name, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			declared = append(declared, Point(name))
		}
		return true
	})
	all := All()
	slices.Sort(declared)
	slices.Sort(all)
	if len(declared) == 0 || !slices.Equal(declared, all) {
		t.Errorf("declared %v\nlisted   %v", declared, all)
	}
	if len(slices.Compact(all)) != len(declared) {
		t.Error("a point is listed twice")
	}
}

// The program that the next tests build both ways: it passes one point twice and says so.
const program = `package main

import (
	"fmt"

	"github.com/treaty-node/treaty/node/internal/crashpoint"
)

func main() {
	for i := 1; i <= 2; i++ {
		crashpoint.Hit(crashpoint.StoreCommitBefore)
		fmt.Println("passed", i)
	}
}
`

func build(t *testing.T, tags string) string {
	t.Helper()
	// Inside the module, so that the internal package may be imported; the name keeps it out of ./... patterns.
	dir, err := os.MkdirTemp(".", "_program")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), "program")
	out, err := exec.Command("go", "build", "-tags", tags, "-o", bin, filepath.Join(dir, "main.go")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

func run(t *testing.T, bin, env string) (stdout string, err error) {
	t.Helper()
	cmd := exec.Command(bin)
	cmd.Env = append(os.Environ(), Env+"="+env)
	var out bytes.Buffer
	cmd.Stdout = &out
	err = cmd.Run()
	return out.String(), err
}

func TestWithTheTagTheProcessIsKilled(t *testing.T) {
	bin := build(t, "treaty_crash")
	for _, c := range []struct {
		env, out string
		killed   bool
	}{
		{"", "passed 1\npassed 2\n", false},
		{"store.commit.before", "", true},
		{"store.commit.before:2", "passed 1\n", true},
		{"store.commit.before:3", "passed 1\npassed 2\n", false},
		{"store.commit.after", "passed 1\npassed 2\n", false},
	} {
		out, err := run(t, bin, c.env)
		if out != c.out {
			t.Errorf("%q: printed %q, want %q", c.env, out, c.out)
		}
		if killed := killedBy(err) == syscall.SIGKILL; killed != c.killed || !killed && err != nil {
			t.Errorf("%q: ended with %v", c.env, err)
		}
	}
	for _, bad := range []string{"no.such.point", "store.commit.before:0", "store.commit.before:x"} {
		if out, err := run(t, bin, bad); err == nil || out != "" {
			t.Errorf("%q: ran on: %q", bad, out)
		}
	}
}

func TestWithoutTheTagTheEnvironmentIsIgnored(t *testing.T) {
	out, err := run(t, build(t, ""), "store.commit.before")
	if err != nil || out != "passed 1\npassed 2\n" {
		t.Errorf("printed %q, ended with %v", out, err)
	}
}

func killedBy(err error) syscall.Signal {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return 0
	}
	return status.Signal()
}
