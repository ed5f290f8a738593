// SPDX-License-Identifier: Apache-2.0

// Package harden keeps what is in a process's memory from leaving it by way of a core dump (invariant 10).
//
// On every Unix the limit of core files becomes zero, for this process and those that it starts, and cannot be raised again
// without privilege. On Linux the process also becomes undumpable: no core reaches a dump handler either, which ignores
// that limit, and other processes of the same user can neither attach to it nor read its memory.
//
// It does not keep memory from being swapped or read by root.
package harden

import (
	"fmt"
	"syscall"
)

// Process applies it to the whole process, for good. An error means that the process must not handle keys.
func Process() error {
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("harden: core dumps cannot be turned off: %w", err)
	}
	return undumpable()
}
