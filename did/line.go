// SPDX-License-Identifier: Apache-2.0

package did

import (
	"fmt"
	"slices"
	"time"
)

// MaxLine is the number of DIDs in the longest line: one and eight successors.
const MaxLine = 9

// Station is one DID of a line with the documents that verify its place in it.
type Station struct {
	// Document is the newest version of which the verifier knows that it was in force: while the DID was in use,
	// before its deactivation. nil if it knows none; of the last DID it is the current one, and there.
	Document *Document
	// Gone is the deactivated document. nil for the last DID.
	Gone *Document
	// Assurance is that of the step to the next DID, "" for the last. [VerifyLine] sets it.
	Assurance Assurance
}

// ID is the DID of the station.
func (s Station) ID() DID {
	switch {
	case s.Document != nil:
		return s.Document.id
	case s.Gone != nil:
		return s.Gone.id
	}
	return DID{}
}

// Keys is the document that signatures by the DID are verified with: the one that was in force, or the deactivated
// one where that is all there is. The binding key is the same in both.
func (s Station) Keys() *Document {
	if s.Document != nil {
		return s.Document
	}
	return s.Gone
}

// Ended is when the DID was deactivated by the word of its subject, zero for one in use.
func (s Station) Ended() time.Time {
	if s.Gone == nil {
		return time.Time{}
	}
	return s.Gone.ProofCreated()
}

// endSlack is for what is signed while a deactivation is: it is dated when it is begun, and in force when it is published.
const endSlack = 30 * time.Second

// Signs reports whether a signature dated at the time given can be from before the DID was deactivated. It takes the
// signer's word for the time.
func (s Station) Signs(at time.Time) bool {
	ended := s.Ended()
	return ended.IsZero() || !at.After(ended.Add(endSlack))
}

// Line is a subject's DIDs, oldest first, each the direct successor of the one before. A Line that holds anything was
// made by [VerifyLine] or [Alone]: whoever has one need not verify the steps again. The zero Line and nil hold no DID.
// Lines are shared: do not change what they return.
type Line struct {
	stations  []Station
	assurance Assurance
}

// LineError says at which DID of a line the verification failed.
type LineError struct {
	At  DID
	Err error
}

func (e *LineError) Error() string { return fmt.Sprintf("at %s: %v", e.At, e.Err) }

// Unwrap returns the cause, an [ErrSuccession] or a [*Conflict].
func (e *LineError) Unwrap() error { return e.Err }

// Alone is the line of a DID that has no successor. It verifies nothing: doc is what the caller holds for its document.
func Alone(doc *Document) *Line {
	if doc == nil {
		return nil
	}
	return &Line{stations: []Station{{Document: doc}}, assurance: AssuranceVerified}
}

// VerifyLine verifies each step with [VerifyHop], in the documents given and in nothing else. Where a recovery key has
// signed a step, the earlier document that lists it must itself be proved by the key in its DID: what a verifier
// remembers is no better than the place it is kept in. The error is a [*LineError].
//
// A line without error need not move anything, see [Line.Moves].
func VerifyLine(stations []Station, now time.Time) (*Line, error) {
	if len(stations) == 0 || len(stations) > MaxLine {
		return nil, &LineError{Err: fmt.Errorf("%w: %d DIDs in a line", ErrSuccession, len(stations))}
	}
	l := &Line{stations: slices.Clone(stations), assurance: AssuranceVerified}
	seen := map[DID]bool{}
	for i := range l.stations {
		s, last := &l.stations[i], i == len(l.stations)-1
		fail := func(err error) (*Line, error) { return nil, &LineError{At: s.ID(), Err: err} }
		s.Assurance = ""
		switch {
		case last && (s.Document == nil || s.Gone != nil || s.Document.deactivated):
			return fail(fmt.Errorf("%w: a line ends with a DID in use", ErrSuccession))
		case !last && s.Gone == nil:
			return fail(fmt.Errorf("%w: a document is missing", ErrSuccession))
		case s.Document != nil && s.Document.deactivated || s.Document != nil && s.Gone != nil && s.Document.id != s.Gone.id:
			return fail(fmt.Errorf("%w: the earlier document is another's, or not one in force", ErrSuccession))
		case seen[s.ID()]:
			return fail(fmt.Errorf("%w: the steps lead in a circle", ErrConflict))
		}
		if seen[s.ID()] = true; last {
			break
		}
		var err error
		if s.Assurance, err = VerifyHop(s.Document, s.Gone, l.stations[i+1].proven(), now); err != nil {
			return fail(err)
		}
		if s.Assurance == AssuranceRecoveryVerified {
			if err := vouched(s.Document, now); err != nil {
				return fail(err)
			}
		}
		l.assurance = l.assurance.Weakest(s.Assurance)
	}
	return l, nil
}

// proven is the document that shows that the DID agrees to be a successor.
func (s Station) proven() *Document {
	if s.Gone == nil || s.Document != nil && s.Gone.DeactivatedBy() == AssuranceRecoveryVerified {
		return s.Document // what a recovery key has signed is not by the DID's own key; the version before is
	}
	return s.Gone
}

// vouched says whether the key in its DID has proved a document that a verifier kept.
func vouched(doc *Document, now time.Time) error {
	if doc.parts.created.After(now) {
		now = doc.parts.created
	}
	if _, err := doc.Verify(now); err != nil {
		return fmt.Errorf("%w: the earlier document: %w", ErrSuccession, err)
	}
	if !doc.Bound() {
		return fmt.Errorf("%w: the earlier document has no proof by the key in its DID", ErrSuccession)
	}
	return nil
}

// Moves reports whether contracts, conversations and trust may follow the line to its end.
func (l *Line) Moves() bool { return l != nil && len(l.stations) > 0 && l.assurance.Moves() }

// Assurance is the weakest of the steps', [AssuranceVerified] without any.
func (l *Line) Assurance() Assurance {
	if l == nil {
		return ""
	}
	return l.assurance
}

// Stations returns the DIDs with their documents, oldest first.
func (l *Line) Stations() []Station {
	if l == nil {
		return nil
	}
	return l.stations
}

// Start is the oldest DID, zero for an empty line.
func (l *Line) Start() DID {
	if l == nil || len(l.stations) == 0 {
		return DID{}
	}
	return l.stations[0].ID()
}

// Current is the document in use, nil for an empty line.
func (l *Line) Current() *Document {
	if l == nil || len(l.stations) == 0 {
		return nil
	}
	return l.stations[len(l.stations)-1].Document
}

// Of returns the station of a DID.
func (l *Line) Of(id DID) (Station, bool) {
	for _, s := range l.Stations() {
		if s.ID() == id {
			return s, true
		}
	}
	return Station{}, false
}

// IsCurrent reports whether id is the line's DID in use, and may stand for every other of the line.
func (l *Line) IsCurrent(id DID) bool {
	doc := l.Current()
	return l.Moves() && doc != nil && doc.id == id
}

// SameSubject reports whether b claims the subject of a: both carry a fingerprint under the same stable subject. It is a
// claim and moves nothing.
func SameSubject(a, b DID) bool {
	return a.Fingerprint() != "" && b.Fingerprint() != "" && a.StableSubject() == b.StableSubject()
}
