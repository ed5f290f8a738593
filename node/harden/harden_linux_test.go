// SPDX-License-Identifier: Apache-2.0

package harden_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/treaty-node/treaty/node/harden"
)

const childEnv = "TREATY_HARDEN_CHILD"

// TestMain is also the child, which hardens itself and says with its exit code what it finds.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	if d, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || d != 1 {
		os.Exit(2) // nothing to harden: the test would show nothing
	}
	if err := harden.Process(); err != nil {
		os.Exit(3)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_CORE, &limit); err != nil || limit.Cur != 0 || limit.Max != 0 {
		os.Exit(4)
	}
	if d, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || d != 0 {
		os.Exit(5)
	}
	os.Exit(0)
}

// TestInvariant10_NoCoreDumps: limit and dumpable flag are set for the whole process.
func TestInvariant10_NoCoreDumps(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
}
