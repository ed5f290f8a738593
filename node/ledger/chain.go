// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"

	"github.com/treaty-node/treaty/did/canon"
)

// ChainError says where a chain breaks. It wraps [ErrChain].
type ChainError struct {
	Seq    uint64 // of the first event that is wrong, or that is missing
	Reason string
}

func (e *ChainError) Error() string {
	return fmt.Sprintf("%v: event %d: %s", ErrChain, e.Seq, e.Reason)
}

func (e *ChainError) Unwrap() error { return ErrChain }

// Redacted stands for an event that is not shown: the digest of its content, which tells nothing to who cannot guess the
// content. Its place in the chain is where it stands.
type Redacted struct {
	Content canon.Digest `json:"content"`
}

// Link is one place of a chain that is shown in part: exactly one of the two is there.
type Link struct {
	Event    *Event    `json:"event,omitempty"`
	Redacted *Redacted `json:"redacted,omitempty"`
}

// Show makes a chain that can be given away: events for which show is false are redacted.
func Show(events []Event, show func(*Event) bool) ([]Link, error) {
	links := make([]Link, len(events))
	for i := range events {
		e := &events[i]
		if show(e) {
			links[i].Event = e
			continue
		}
		content, err := e.content()
		if err != nil {
			return nil, &ChainError{e.Seq, err.Error()}
		}
		links[i].Redacted = &Redacted{content}
	}
	return links, nil
}

// VerifyChain checks that events follow after one another and after from, and returns the head they lead to. For a whole
// log, from is [Genesis] of the node; for a segment, it is the head before it.
//
// An event of a type this version does not know is part of the chain like any other: the hash covers it as it is.
func VerifyChain(from Head, events []Event) (Head, error) {
	c := checker{at: from}
	for i := range events {
		if err := c.event(&events[i]); err != nil {
			return Head{}, err
		}
	}
	return c.at, nil
}

// VerifyLinks is [VerifyChain] for a chain that is shown in part. Nothing is known of a redacted event but that there was
// exactly one in its place.
func VerifyLinks(from Head, links []Link) (Head, error) {
	c := checker{at: from}
	for _, l := range links {
		switch {
		case (l.Event == nil) == (l.Redacted == nil):
			return Head{}, &ChainError{c.at.Seq + 1, "must be shown or redacted"}
		case l.Event != nil:
			if err := c.event(l.Event); err != nil {
				return Head{}, err
			}
		default:
			c.at = Head{c.at.Seq + 1, link(c.at.Hash, l.Redacted.Content)}
		}
	}
	return c.at, nil
}

// checker walks along a chain.
type checker struct {
	at   Head
	node string
}

func (c *checker) event(e *Event) error {
	switch {
	case e.Seq != c.at.Seq+1 || e.Seq > maxSeq:
		return &ChainError{c.at.Seq + 1, fmt.Sprintf("found event %d in its place", e.Seq)}
	case !e.Prev.Equal(c.at.Hash):
		return &ChainError{e.Seq, "does not continue the event before it"}
	case c.node != "" && e.Node != c.node:
		return &ChainError{e.Seq, "belongs to another node's log"}
	}
	hash, err := e.digest()
	if err != nil {
		return &ChainError{e.Seq, err.Error()}
	}
	if !e.Hash.Equal(hash) {
		return &ChainError{e.Seq, "was altered: its hash does not fit its content"}
	}
	c.at, c.node = e.Head(), e.Node
	return nil
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

// After is the hash of the event at this place, given the hash before it. It checks nothing.
func (l Link) After(prev canon.Digest) canon.Digest {
	if l.Event != nil {
		return l.Event.Hash
	}
	if l.Redacted != nil {
		return link(prev, l.Redacted.Content)
	}
	return canon.Digest{}
}
