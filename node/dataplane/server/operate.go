// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/treaty-node/treaty/node/dataplane"
	"github.com/treaty-node/treaty/node/store"
)

// Calls that have been under way for a while are written where the node's operator finds them, and the operator's word is read
// there. Short calls cost nothing: a look happens at most every second, and writes only what has changed.
const (
	operateEvery = time.Second
	operateAfter = time.Second
)

// calls are what an operator sees and ends: [dataplane.Service].
type calls interface {
	Calls() []dataplane.UnderWay
	Cancel(id string) error
}

// operator carries calls to the store and cancellations back.
type operator struct {
	db    store.Store
	calls calls
	now   func() time.Time
	log   *slog.Logger
	said  []dataplane.UnderWay // what the store has
}

// run looks again and again until ctx ends.
func (o *operator) run(ctx context.Context) {
	ticker := time.NewTicker(operateEvery)
	defer ticker.Stop()
	if err := o.say(ctx, nil); err != nil && ctx.Err() == nil { // what a process before this one said is over
		o.log.Error("telling the operator of calls", "error", err)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := o.look(ctx); err != nil && ctx.Err() == nil {
				o.log.Error("telling the operator of calls", "error", err)
			}
		}
	}
}

// look tells what has changed and ends what is to be ended.
func (o *operator) look(ctx context.Context) error {
	before := o.now().Add(-operateAfter)
	long := slices.DeleteFunc(o.calls.Calls(), func(c dataplane.UnderWay) bool { return c.Since.After(before) })
	if len(long) == 0 && len(o.said) == 0 {
		return nil
	}
	if !slices.Equal(long, o.said) {
		if err := o.say(ctx, long); err != nil {
			return err
		}
	}
	var ids []string
	err := o.db.View(ctx, func(tx store.Tx) (err error) {
		ids, err = store.CancelledCalls(tx)
		return err
	})
	if err != nil || len(ids) == 0 {
		return err
	}
	err = o.db.Update(ctx, func(tx store.Tx) (err error) {
		if ids, err = store.CancelledCalls(tx); err != nil { // again: one that came meanwhile would be forgotten unheard
			return err
		}
		return store.ForgetCancelledCalls(tx)
	})
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := o.calls.Cancel(id); err == nil {
			o.log.Info("call ended by an operator", "id", id)
		}
	}
	return nil
}

func (o *operator) say(ctx context.Context, long []dataplane.UnderWay) error {
	err := o.db.Update(ctx, func(tx store.Tx) error {
		return store.PutCallsUnderWay(tx, store.CallsUnderWay{At: o.now(), Calls: long})
	})
	if err == nil {
		o.said = long
	}
	return err
}
