// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did/canon"
)

// Assurances of a succession that are kept: the two that move anything (did.Assurance).
const (
	Verified         = "verified"
	RecoveryVerified = "recovery_verified"
)

// MaxLineage is the number of DIDs in the longest chain: one, and eight successors.
const MaxLineage = 9

// Succession is one step from a DID to its direct successor, as this company has verified it. It is a memory of what was found,
// for lists and for addressing; whoever grants something by it verifies the documents again.
type Succession struct {
	Old, New         string // DIDs
	Assurance        string // Verified or RecoveryVerified
	OldHash, NewHash canon.Digest
	At               time.Time // first verified here
	Own              bool      // a step of this company's own
	CompromisedSince time.Time // from when somebody else may have had Old's key, as its owner says; zero: never
}

// Successions keeps the steps that were verified. The chain of a DID is a line: one successor of each, one predecessor of each.
type Successions interface {
	// PutSuccession adds s. The same step again is nil and keeps what the first said, but that a CompromisedSince is taken up if
	// there was none or a later one. ErrConflict when Old has another successor or New another predecessor, when the step would
	// close a circle, make a chain longer than MaxLineage, or has an assurance that moves nothing.
	PutSuccession(s Succession) error
	// OverruleSuccession is PutSuccession, and puts s in the place of another successor of Old: what a recovery key has signed in
	// the place of what the binding key has, after an operator confirmed it. ErrConflict in every other case.
	OverruleSuccession(s Succession) error
	// GetSuccession returns the step from old. ErrNotFound.
	GetSuccession(old string) (Succession, error)
	// Lineage returns the whole chain that did belongs to, oldest first, at most MaxLineage; [did] when there is none.
	Lineage(did string) ([]string, error)
}

// CheckSuccession says whether s may be added to the chains that its two DIDs are in already. It is what every
// implementation's PutSuccession asks of a new step, and wraps ErrConflict.
func CheckSuccession(s Succession, oldLineage, newLineage []string) error {
	why := ""
	switch {
	case s.Old == "" || s.New == "":
		why = "a DID is missing"
	case s.Assurance != Verified && s.Assurance != RecoveryVerified:
		why = fmt.Sprintf("assurance %.40q moves nothing", s.Assurance)
	case slices.Contains(oldLineage, s.New) || slices.Contains(newLineage, s.Old):
		why = "the steps would lead in a circle"
	case len(oldLineage) == 0 || oldLineage[len(oldLineage)-1] != s.Old:
		why = "it has another successor"
	case len(newLineage) == 0 || newLineage[0] != s.New:
		why = "the successor has another predecessor"
	case len(oldLineage)+len(newLineage) > MaxLineage:
		why = "the chain would be too long"
	default:
		return nil
	}
	return fmt.Errorf("%w: succession of %.200q: %s", ErrConflict, s.Old, why)
}
