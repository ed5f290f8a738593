// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// One buyer with many calls leaves places to others, and waits behind itself.
func TestSlots(t *testing.T) {
	s := newSlots(Slots{Concurrent: 4, PerBuyer: 2, Waiting: 3, Wait: time.Minute}, time.Now)
	enter := func(ctx context.Context, buyer string) (func(), error) {
		_, leave, err := s.enter(ctx, UnderWay{Buyer: buyer})
		return leave, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	var leaves []func()
	for range 2 {
		leave, err := enter(ctx, "greedy")
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	var waiting sync.WaitGroup
	failed := make(chan error, 3)
	for range 3 {
		waiting.Go(func() {
			_, err := enter(ctx, "greedy")
			failed <- err
		})
	}
	for len(s.list()) < 5 {
		time.Sleep(time.Millisecond)
	}
	if _, err := enter(ctx, "greedy"); !errors.Is(err, ErrBusy) {
		t.Fatalf("a sixth call: %v", err)
	}
	for range 2 {
		leave, err := enter(t.Context(), "modest") // does not wait
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
	}
	running := 0
	for _, c := range s.list() {
		if c.Running {
			running++
		}
	}
	if running != 4 || len(s.list()) != 7 {
		t.Errorf("%d of %d run", running, len(s.list()))
	}
	cancel()
	waiting.Wait()
	for range 3 {
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that went while it waited: %v", err)
		}
	}
	for _, leave := range leaves {
		leave()
	}
	if len(s.list()) != 2 || s.waiting != 0 || len(s.buyers) != 1 {
		t.Errorf("left behind: %v, %d waiting, %d buyers", s.list(), s.waiting, len(s.buyers))
	}
	if leave, err := enter(t.Context(), "greedy"); err != nil {
		t.Error(err)
	} else {
		leave()
	}
}

// A call that waits in vain is not charged; one that an operator ends is, when it ran.
func TestCancelAndBusy(t *testing.T) {
	f := newFixture(t)
	f.opts.Slots = Slots{Concurrent: 1, Waiting: 1, Wait: time.Minute}
	f.rebuild(t)
	entered := make(chan struct{}, 4)
	f.src.while = func(ctx context.Context) error {
		entered <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	result := make(chan error, 2)
	ask := func() {
		_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
		result <- err
	}
	go ask()
	<-entered
	go ask()
	for len(f.svc.Calls()) < 2 {
		time.Sleep(time.Millisecond)
	}
	if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); !errors.Is(err, ErrBusy) {
		t.Fatalf("no place to wait: %v", err)
	}
	calls := f.svc.Calls()
	if c := calls[0]; !c.Running || c.Buyer != f.buyer.id() || c.ContractID != f.contract.ID || c.Dataset != "orders" || calls[1].Running {
		t.Errorf("%+v", calls)
	}
	if err := f.svc.Cancel(calls[1].ID); err != nil { // it waits
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, ErrCancelled) {
		t.Errorf("cancelled while it waited: %v", err)
	}
	if err := f.svc.Cancel(calls[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, ErrCancelled) {
		t.Errorf("cancelled while it ran: %v", err)
	}
	if err := f.svc.Cancel(calls[0].ID); !errors.Is(err, ErrNoCall) {
		t.Errorf("a call that is over: %v", err)
	}
	info, err := f.svc.Describe(t.Context(), f.buyer.caller(), f.contract.ID)
	if err != nil || info.CallsUsed != 1 {
		t.Errorf("%+v, %v: the call that ran is charged and no other", info, err)
	}
	f.src.while = nil
	if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
