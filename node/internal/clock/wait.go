// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"context"
	"time"
)

// Sleep waits for d of the machine's time, whatever a [Clock] shows, or until ctx ends: the error is that of ctx. Where d is not
// above zero there is nothing to wait for.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Every calls f once in d of the machine's time, the first time after d, until ctx ends: one call at a time, and none in place of
// those that a slow one has missed.
func Every(ctx context.Context, d time.Duration, f func(context.Context)) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f(ctx)
		}
	}
}
