// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"errors"
	"fmt"
	"time"

	"github.com/treaty-node/treaty/did"
)

// maxSkew is how far a proof may be dated ahead of this node's clock.
const maxSkew = 30 * time.Second

// verdict is what the pins say about a verified document. The zero value
// refuses.
type verdict struct {
	accept bool // may be used
	same   bool // is the pinned version
	hold   bool // refused, but an operator may confirm it
	code   Code // why refused; with accept: what was accepted all the same
	reason string

	conflict *did.Conflict // with CodeSuccessorChanged and CodeTransitionConflict
}

func (v *verdict) cause() error {
	if v.conflict != nil {
		return v.conflict
	}
	return errors.New(v.reason)
}

// candidate is a verified document on its way to being accepted.
type candidate struct {
	doc          *did.Document
	verification did.Verification
	// bound: a proof by the key that the DID itself names, or by a recovery key of
	// the pinned version, covers the whole document. Otherwise only the web server
	// vouches for its keys.
	bound bool
	// confirmed: an operator has looked at this version.
	confirmed bool
}

// judge compares a verified document with the newest accepted version, nil if
// there is none. It changes nothing.
func judge(pin *Pin, c candidate, acceptKeyChanges bool) verdict {
	if pin == nil {
		return verdict{accept: true}
	}
	if c.doc.Hash().Equal(pin.Hash) {
		return verdict{accept: true, same: true}
	}
	created := c.doc.ProofCreated()
	switch {
	case pin.Deactivated && !c.doc.Deactivated():
		return verdict{code: CodeReactivated, reason: "deactivation is final"}
	case created.IsZero() && !pin.ProofCreated.IsZero():
		return verdict{code: CodeRollback, reason: "the pinned version has a proof, this one has none"}
	case created.Before(pin.ProofCreated):
		return verdict{code: CodeRollback, reason: fmt.Sprintf("the proof is of %s, the pinned version's of %s", stamp(created), stamp(pin.ProofCreated))}
	case !created.IsZero() && created.Equal(pin.ProofCreated):
		return verdict{code: CodeRollback, reason: fmt.Sprintf("two versions with a proof of %s", stamp(created))}
	}
	old, err := did.ParseDocument(pin.Raw)
	if err != nil {
		return verdict{code: CodeStore, reason: fmt.Sprintf("the pinned version cannot be read: %v", err)}
	}
	if pin.Deactivated && old.SuccessorDID() != c.doc.SuccessorDID() {
		// Whoever stole the old key would lead peers to another successor. A recovery
		// key overrules it, after an operator has looked, and is not overruled by it.
		conflict := &did.Conflict{
			DID: c.doc.ID(), Pinned: old.SuccessorDID(), Observed: c.doc.SuccessorDID(),
			PinnedBy: old.DeactivatedBy(), ObservedBy: c.doc.DeactivatedBy(),
		}
		switch {
		case !conflict.Confirmable():
			return verdict{code: CodeTransitionConflict, conflict: conflict}
		case !c.confirmed:
			return verdict{hold: true, code: CodeSuccessorChanged, conflict: conflict}
		}
	}
	if added := addedKey(old, c.doc); added != "" && !c.bound {
		ok := c.confirmed || acceptKeyChanges
		return verdict{accept: ok, hold: !ok, code: CodeKeyChanged, reason: "a key that the pinned version does not have: " + added}
	}
	return verdict{accept: true}
}

// addedKey describes a key that now has a purpose which it did not have before.
// A key that is gone takes nothing from anybody.
func addedKey(old, now *did.Document) string {
	for _, rel := range []did.Relationship{did.Authentication, did.AssertionMethod, did.KeyAgreement, did.HumanAuthorization, did.Recovery} {
		before := map[string]bool{}
		for _, m := range old.Keys(rel) {
			before[m.Key.Thumbprint()] = true
		}
		for _, m := range now.Keys(rel) {
			if !before[m.Key.Thumbprint()] {
				return fmt.Sprintf("%s in %s", m.ID, rel)
			}
		}
	}
	return ""
}

// isBound tells whether a proof by the key in the DID covers the document.
func isBound(v did.Verification) bool {
	return (v.Profile == did.ProfileE1 || v.Profile == did.ProfileK1) && v.ProofKeyID != ""
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
