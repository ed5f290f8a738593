// SPDX-License-Identifier: Apache-2.0

package ledger

import "fmt"

// ChainError says where a chain breaks. It wraps [ErrChain].
type ChainError struct {
	Seq    uint64 // of the first event that is wrong, or that is missing
	Reason string
}

func (e *ChainError) Error() string {
	return fmt.Sprintf("%v: event %d: %s", ErrChain, e.Seq, e.Reason)
}

func (e *ChainError) Unwrap() error { return ErrChain }

// VerifyChain checks that events follow after one another and after from, and returns the head they lead to. For a whole
// log, from is [Genesis] of the node; for a segment, it is the head before it.
//
// An event of a type this version does not know is part of the chain like any other: the hash covers it as it is.
func VerifyChain(from Head, events []Event) (Head, error) {
	at := from
	for i := range events {
		e := &events[i]
		switch {
		case e.Seq != at.Seq+1 || e.Seq > maxSeq:
			return Head{}, &ChainError{at.Seq + 1, fmt.Sprintf("found event %d in its place", e.Seq)}
		case !e.Prev.Equal(at.Hash):
			return Head{}, &ChainError{e.Seq, "does not continue the event before it"}
		case i > 0 && e.Node != events[i-1].Node:
			return Head{}, &ChainError{e.Seq, "belongs to another node's log"}
		}
		hash, err := e.digest()
		if err != nil {
			return Head{}, &ChainError{e.Seq, err.Error()}
		}
		if !e.Hash.Equal(hash) {
			return Head{}, &ChainError{e.Seq, "was altered: its hash does not fit its content"}
		}
		at = e.Head()
	}
	return at, nil
}

// VerifyTo is [VerifyChain] and demands that the events end exactly at want: a log that was cut short, continued or
// rewritten since want was kept is found.
func VerifyTo(from Head, events []Event, want Head) error {
	got, err := VerifyChain(from, events)
	switch {
	case err != nil:
		return err
	case got.Seq < want.Seq:
		return &ChainError{got.Seq + 1, fmt.Sprintf("missing: the log was cut short of %d", want.Seq)}
	case got.Seq > want.Seq:
		return &ChainError{want.Seq + 1, "stands after the head"}
	case !got.Hash.Equal(want.Hash):
		return &ChainError{got.Seq, "is not the one the head names: the log was rewritten"}
	}
	return nil
}
