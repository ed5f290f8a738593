// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/store"
)

// running lists the calls of buyers that the company's data plane works on.
func (c *cli) running(ctx context.Context) error {
	var calls store.CallsUnderWay
	if err := c.admin().Get(ctx, "/calls", &calls); err != nil {
		return &verbError{err}
	}
	return c.print(calls, func(w io.Writer) { printCalls(w, calls) })
}

// cancelCall has the data plane end a call.
func (c *cli) cancelCall(ctx context.Context, id string) error {
	var res httpapi.CancelCallRequest
	if err := c.admin().Post(ctx, "/calls/cancel", httpapi.CancelCallRequest{ID: id}, &res); err != nil {
		return &verbError{err}
	}
	return c.print(res, func(w io.Writer) {
		fmt.Fprintf(w, "the data plane is told to end call %s; treaty query --running shows when it is gone\n", line(res.ID))
	})
}

func printCalls(w io.Writer, c store.CallsUnderWay) {
	if len(c.Calls) == 0 {
		fmt.Fprintln(w, "no call has been under way for more than a second")
		return
	}
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "ID\tSTATE\tSINCE\tDATASET\tCONTRACT\tBUYER")
	for _, u := range c.Calls {
		state := "waits"
		if u.Running {
			state = "runs"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", line(u.ID), state, u.Since.UTC().Format(time.RFC3339), line(u.Dataset), line(u.ContractID), line(u.Buyer))
	}
	tw.Flush()
	fmt.Fprintf(w, "as the data plane said at %s\n", c.At.UTC().Format(time.RFC3339))
}
