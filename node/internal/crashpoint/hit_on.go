// SPDX-License-Identifier: Apache-2.0

//go:build treaty_crash

package crashpoint

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Enabled says whether this binary can be made to crash.
const Enabled = true

// armed is read from the environment once; hits counts how often its point was passed.
var (
	armed = sync.OnceValues(func() (Point, int64) { return parse(os.Getenv(Env)) })
	hits  atomic.Int64
)

// Hit kills the process when p is armed and this is the hit asked for.
func Hit(p Point) {
	point, at := armed()
	if point != p || hits.Add(1) != at {
		return
	}
	fmt.Fprintf(os.Stderr, "crashpoint: %s hit %d: killing this process\n", p, at)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way: do nothing more
}

// parse reads "name" or "name:n". A name that does not exist is a mistake in the test that must not pass for a run
// without a crash.
func parse(v string) (Point, int64) {
	if v == "" {
		return "", 0
	}
	name, n, counted := strings.Cut(v, ":")
	at := int64(1)
	if counted {
		var err error
		if at, err = strconv.ParseInt(n, 10, 64); err != nil || at < 1 {
			panic("crashpoint: " + Env + ": count is not a positive number: " + v)
		}
	}
	if !slices.Contains(All(), Point(name)) {
		panic("crashpoint: " + Env + ": no such point: " + name)
	}
	return Point(name), at
}
