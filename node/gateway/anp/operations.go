// SPDX-License-Identifier: Apache-2.0

package anp

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/treaty-node/treaty/did/canon"
)

// Scope is what makes an operation the same one (P1 section 9.1): who asks whom for what, under which id. Sender has been
// verified before anything is remembered under it.
type Scope struct{ Sender, Target, Method, OperationID string }

// Bounds of the memory for operations.
const (
	OperationAge           = 24 * time.Hour // how long a repetition gets the same answer
	maxOperations          = 20_000
	maxOperationsPerSender = 200
)

// outcome is an answer that was given.
type outcome struct {
	result json.RawMessage
	err    *Error
}

// operation is one that is under way or done. What follows done is set before done is closed.
type operation struct {
	scope   Scope
	meaning canon.Digest // of everything that decides what the operation does
	proof   canon.Digest // of the whole request with its proof
	at      time.Time

	done    chan struct{}
	outcome outcome
}

// operations remembers what was answered, for as long as the process runs. It is bounded: each sender has a quota, which
// other senders cannot use up, and when the whole is full new operations are refused rather than old ones forgotten.
type operations struct {
	now func() time.Time

	mu      sync.Mutex
	byScope *simplelru.LRU[Scope, *operation] // in the order of their beginning: Peek never moves one
	senders map[string]int
}

func newOperations(now func() time.Time) *operations {
	o := &operations{now: now, senders: map[string]int{}}
	var err error
	if o.byScope, err = simplelru.NewLRU[Scope, *operation](maxOperations, nil); err != nil {
		panic(err) // only for a size that is not positive
	}
	return o
}

// find returns the operation of a scope, nil if there is none.
func (o *operations) find(s Scope) *operation {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sweep()
	op, _ := o.byScope.Peek(s)
	return op
}

// begin returns the operation of the scope, and whether it is new: then the caller must end it.
func (o *operations) begin(s Scope, meaning, proof canon.Digest) (*operation, bool, *Error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sweep()
	if op, ok := o.byScope.Peek(s); ok {
		return op, false, nil
	}
	if o.senders[s.Sender] >= maxOperationsPerSender {
		return nil, false, Refuse(RateLimited, "too many operations in %s", OperationAge)
	}
	if o.byScope.Len() >= maxOperations {
		return nil, false, Refuse(TemporarilyUnavailable, "")
	}
	op := &operation{scope: s, meaning: meaning, proof: proof, at: o.now(), done: make(chan struct{})}
	o.byScope.Add(s, op)
	o.senders[s.Sender]++
	return op, true, nil
}

// end publishes an outcome. One that the same request may do better than later is not kept.
func (o *operations) end(op *operation, out outcome) {
	op.outcome = out
	close(op.done)
	if out.err != nil && out.err.Code.Retryable() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.drop(op)
	}
}

// wait returns the outcome.
func (op *operation) wait(ctx context.Context) outcome {
	select {
	case <-op.done:
		return op.outcome
	case <-ctx.Done():
		return outcome{err: Refuse(TemporarilyUnavailable, "the operation is still under way")}
	}
}

func (o *operations) drop(op *operation) {
	if kept, ok := o.byScope.Peek(op.scope); !ok || kept != op {
		return
	}
	o.byScope.Remove(op.scope)
	if o.senders[op.scope.Sender]--; o.senders[op.scope.Sender] == 0 {
		delete(o.senders, op.scope.Sender)
	}
}

// sweep lets go of what is too old, the oldest first. The caller locks.
func (o *operations) sweep() {
	for {
		_, op, ok := o.byScope.GetOldest()
		if !ok || o.now().Sub(op.at) < OperationAge {
			return
		}
		select {
		case <-op.done:
			o.drop(op)
		default:
			return // under way: it ends by its context
		}
	}
}
