// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"fmt"
	"slices"

	"github.com/treaty-node/treaty/did"
)

// A rule for one DID is about a company, and follows it to the successor of that DID: when the succession was verified, never
// because of the path that the two DIDs have in common.

// AcceptsSuccession reports whether a succession that is proved so well moves anything here: every one that can
// (did.Assurance.Moves), or with Succession "verified" only those that the old binding key signed.
func (p Policy) AcceptsSuccession(a did.Assurance) bool {
	return a.Moves() && (p.Succession != did.AssuranceVerified || a == did.AssuranceVerified)
}

func (p Policy) checkSuccession() error {
	switch p.Succession {
	case "", did.AssuranceVerified, did.AssuranceRecoveryVerified:
		return nil
	}
	return fmt.Errorf("trust: succession %q is neither %s nor %s", p.Succession, did.AssuranceVerified, did.AssuranceRecoveryVerified)
}

// Claimed returns a DID that a rule names and whose subject id claims without being it: with whom to begin in order to find
// out whether id is its successor.
func (p Policy) Claimed(id did.DID) (did.DID, bool) {
	for _, pattern := range slices.Concat(p.Allow, p.Deny) {
		if pattern.id != id && did.SameSubject(pattern.id, id) {
			return pattern.id, true
		}
	}
	return did.DID{}, false
}

// AdmitClaim is Admit for looking a DID up: one that claims the subject of an allowed DID may be looked at, so that the claim can be
// verified. Whether it is dealt with, AdmitLine says.
func (p Policy) AdmitClaim(id did.DID) error {
	err := p.Admit(id)
	if r, ok := err.(*Refusal); ok && r.Rule == RuleFirstContact && p.allowsSubject(id) { //nolint:errorlint // Admit returns nothing else
		return nil
	}
	return err
}

func (p Policy) allowsSubject(id did.DID) bool {
	return slices.ContainsFunc(p.Allow, func(pattern Pattern) bool { return did.SameSubject(pattern.id, id) })
}

// AdmitLine is Admit for the last of several DIDs, of which each is the verified successor of the one before. What is denied to one
// is denied to those after it, and what is allowed to one is allowed to them. The error is a *Refusal.
func (p Policy) AdmitLine(line []did.DID) error {
	if len(line) == 0 {
		return &Refusal{Rule: RuleIdentifier}
	}
	last := line[len(line)-1]
	allowed := false
	for _, id := range line {
		err := p.Admit(id)
		if err == nil {
			allowed = true
			continue
		}
		r, ok := err.(*Refusal) //nolint:errorlint // Admit returns nothing else
		if !ok || r.Rule != RuleFirstContact {
			return err
		}
	}
	if allowed {
		return nil
	}
	return p.Admit(last)
}

// AdmitClaim is Policy.AdmitClaim of the policy now in force.
func (l *Live) AdmitClaim(id did.DID) error { return l.Load().AdmitClaim(id) }

// AdmitLine is Policy.AdmitLine of the policy now in force.
func (l *Live) AdmitLine(line []did.DID) error { return l.Load().AdmitLine(line) }

// AcceptsSuccession is Policy.AcceptsSuccession of the policy now in force.
func (l *Live) AcceptsSuccession(a did.Assurance) bool { return l.Load().AcceptsSuccession(a) }
