// SPDX-License-Identifier: Apache-2.0

package store

import "time"

// States of a notice in the outbox. A notice that is not pending any more stays as it is.
const (
	NoticePending  = "pending"
	NoticeAnswered = "answered" // the peer's signed answer is there, whatever it says
	NoticeFailed   = "failed"   // refused for good, or nobody answered in time
)

// MaxNotices bounds the notices that may be pending for one peer at a time.
const MaxNotices = 256

// Notice is one notice of this company to another one: from the moment that it was decided until it was answered. See package
// notice.
type Notice struct {
	ID        string // this company's own
	Version   int64  // 1 after the first Put
	Peer      string // DID it was decided for
	Kind      string
	Data      []byte    // canonical JSON
	State     string    // NoticePending, …
	ContextID string    // of the envelope; "" before one was built
	Envelope  []byte    // as it is sent, byte for byte; nil before one was built
	Attempts  int       // since the envelope was built
	Due       time.Time // the next attempt is not before
	Expires   time.Time // and no attempt is after
	Created   time.Time
	Answer    []byte // body of the answer, canonical JSON; nil before
	Code      string // why it failed, or the code of the answer
	Reason    string // the same in words
}

// NoticeFilter selects notices; empty fields match everything.
type NoticeFilter struct {
	Peer, Kind, State string
	DueBy             time.Time // those due by then
	Limit             int
}

// Notices is the outbox.
type Notices interface {
	// PutNotice is a compare-and-swap: expect is the version the caller read (0: there must be none), the stored version becomes
	// expect+1. ID, Peer, Kind, Data and Created are kept from the first Put. ErrConflict when the version is another, or
	// when the notice is not pending any more; ErrFull for a new one when MaxNotices of this peer are pending.
	PutNotice(n Notice, expect int64) error
	GetNotice(id string) (Notice, error)
	// ListNotices is ordered by when they are due, the earliest first.
	ListNotices(f NoticeFilter) ([]Notice, error)
	// DeleteNoticesBefore deletes notices that are not pending and were made before t, and returns how many.
	DeleteNoticesBefore(t time.Time) (int64, error)
	// KnowsPeer says whether there is a contract or a conversation with this DID, or with one whose stable subject is subject
	// (see did.DID.StableSubject; "": none is).
	KnowsPeer(peer, subject string) (bool, error)
}
