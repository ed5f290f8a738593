// SPDX-License-Identifier: Apache-2.0

package harden

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func undumpable() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("harden: the process cannot be made undumpable: %w", err)
	}
	return nil
}
