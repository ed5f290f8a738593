// SPDX-License-Identifier: Apache-2.0

package did

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did/canon"
)

// Succession: the binding key of an e1_ or k1_ DID cannot change, so a subject that changes it moves to a new DID
// under the same stable subject (ANP-03 1.2 draft, sections 2.5.3 to 2.5.5 and 2.6). The old document stays
// where it was, deactivated, and names its direct successor.

// Assurance says how well a succession is proved (ANP-03 1.2 draft, section 2.5.5). The zero value is none.
type Assurance string

const (
	// AssuranceVerified: the old DID's binding key signed the deactivation and the successor's name.
	AssuranceVerified Assurance = "verified"
	// AssuranceRecoveryVerified: a recovery key that an earlier, trusted version of the old document lists did.
	AssuranceRecoveryVerified Assurance = "recovery_verified"
	// AssuranceProviderAsserted: nobody signed, but every document of a complete chain came over HTTPS from the
	// domain of the DIDs, and the last one is proved. A single hop never has it.
	AssuranceProviderAsserted Assurance = "provider_asserted"
	// AssuranceUnverified: a claim.
	AssuranceUnverified Assurance = "unverified"
)

// strength orders assurances; what is unknown is worth nothing.
func (a Assurance) strength() int {
	return 1 + slices.Index([]Assurance{
		AssuranceUnverified, AssuranceProviderAsserted, AssuranceRecoveryVerified, AssuranceVerified,
	}, a)
}

// Moves reports whether contracts, conversations and trust may follow the succession.
func (a Assurance) Moves() bool {
	return a == AssuranceVerified || a == AssuranceRecoveryVerified
}

// Weakest returns the weaker of the two.
func (a Assurance) Weakest(b Assurance) Assurance {
	if a.strength() < b.strength() {
		return a
	}
	return b
}

var (
	// ErrSuccession: not a succession, or one that breaks a rule.
	ErrSuccession = errors.New("did: not a valid succession")
	// ErrConflict: two documents of one DID name different successors. The error that carries the facts is a
	// [*Conflict].
	ErrConflict = errors.New("did: conflicting successions")
)

// Hop is a step from a DID to its direct successor.
type Hop struct {
	From, To  DID
	Assurance Assurance
	// ProofKeyID is the key, by its absolute id, that signed the deactivation of From, "" if none did.
	ProofKeyID string
	Created    time.Time    // when that proof says it was made, zero without one
	Document   canon.Digest // [Document.Hash] of the deactivated document
}

// Conflict is two deactivated documents of one DID that name different successors. Either is proved.
type Conflict struct {
	DID DID
	// Pinned is the successor that was accepted first, Observed the other. Zero: a document that names none.
	Pinned, Observed     DID
	PinnedBy, ObservedBy Assurance
}

func (c *Conflict) Error() string {
	return fmt.Sprintf("%v: of %s, %q (%s) and now %q (%s)", ErrConflict, c.DID, c.Pinned, c.PinnedBy, c.Observed, c.ObservedBy)
}

// Unwrap returns [ErrConflict].
func (c *Conflict) Unwrap() error { return ErrConflict }

// RecoveryWins reports whether the observed document is signed by a recovery key and the pinned one is not: the
// mark of a subject that takes its identity back from whoever has the binding key. Even then nothing moves
// before an operator has confirmed it.
func (c *Conflict) RecoveryWins() bool {
	return c.ObservedBy == AssuranceRecoveryVerified && c.PinnedBy != AssuranceRecoveryVerified
}

// Confirmable reports whether an operator may put the observed successor in the pinned one's place. What a
// recovery key has signed gives way only to what a recovery key has signed.
func (c *Conflict) Confirmable() bool {
	return c.PinnedBy != AssuranceRecoveryVerified || c.ObservedBy == AssuranceRecoveryVerified
}

// CheckSuccessor checks that next can be the direct successor of old by the identifiers alone, before anything is
// fetched: both did:wba with a fingerprint, the same domain, port and path before it, another fingerprint, and no
// k1_ after e1_, whose documents need no proof. It returns [ErrSuccession].
func CheckSuccessor(old, next DID) error {
	why := ""
	switch {
	case old.Fingerprint() == "" || next.Fingerprint() == "":
		why = "only DIDs that carry a fingerprint have successors"
	case old == next:
		why = "it would follow itself"
	case old.StableSubject() != next.StableSubject():
		why = "another subject"
	case old.Profile() == ProfileE1 && next.Profile() != ProfileE1:
		why = "a weaker profile"
	default:
		return nil
	}
	return fmt.Errorf("%w: %s to %q: %s", ErrSuccession, old, next, why)
}

// VerifyHop checks one step: deactivated is the old DID's document as it is now, successor a document of the DID
// that it names. pinnedOld is the newest version of the old document that was trusted before, nil if there was
// none. The rules (ANP-03 1.2 draft, section 2.5.5):
//
//   - The DIDs pass [CheckSuccessor], and the successor is the one that the deactivated document names.
//   - The deactivated document still has its binding key. A proof, if it has one, is over the whole document and
//     by that key, or by a recovery key that pinnedOld lists while it was active: one introduced at deactivation
//     never counts. A proof that is neither, or is bad, is an error and not a weaker assurance.
//   - It is not older than pinnedOld, and does not name another successor than it ([*Conflict]).
//   - The successor's document verifies by itself and names the old DID in alsoKnownAs, and in previousDid
//     if it has that: nobody is followed who does not agree. (The specification lets successors be silent.)
//
// Without a proof of the deactivated document, or of a k1_ successor, the hop is [AssuranceUnverified], with no
// error. With an error the assurance is "".
func VerifyHop(pinnedOld, deactivated, successor *Document, now time.Time) (Assurance, error) {
	if deactivated == nil || successor == nil {
		return "", fmt.Errorf("%w: a document is missing", ErrSuccession)
	}
	old, next := deactivated.id, successor.id
	switch {
	case !deactivated.deactivated:
		return "", fmt.Errorf("%w: %s is active", ErrSuccession, old)
	case deactivated.successor != next:
		return "", fmt.Errorf("%w: the successor of %s is %q and not %s", ErrSuccession, old, deactivated.successor, next)
	}
	if err := CheckSuccessor(old, next); err != nil {
		return "", err
	}
	assurance, err := verifyDeactivation(pinnedOld, deactivated, now)
	if err != nil {
		return "", err
	}
	if err := checkAgainst(pinnedOld, deactivated, assurance); err != nil {
		return "", err
	}
	v, err := successor.Verify(now)
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrSuccession, next, err)
	}
	if !slices.Contains(successor.alsoKnownAs, old.String()) {
		return "", fmt.Errorf("%w: %s does not name %s in alsoKnownAs", ErrSuccession, next, old)
	}
	if !successor.previous.IsZero() && successor.previous != old {
		return "", fmt.Errorf("%w: %s names %s in previousDid and not %s", ErrSuccession, next, successor.previous, old)
	}
	if v.ProofKeyID == "" {
		return AssuranceUnverified, nil
	}
	return assurance, nil
}

// verifyDeactivation says who signed the deactivated document.
func verifyDeactivation(pinnedOld, d *Document, now time.Time) (Assurance, error) {
	if _, err := d.binding(); err != nil {
		return "", fmt.Errorf("%w: %w", ErrSuccession, err)
	}
	if !d.parts.present {
		return AssuranceUnverified, nil
	}
	_, err := d.Verify(now)
	if err == nil {
		return AssuranceVerified, nil
	}
	if pinnedOld != nil && !pinnedOld.deactivated {
		if _, rerr := d.VerifyRecovery(pinnedOld, now); rerr == nil {
			return AssuranceRecoveryVerified, nil
		}
	}
	return "", fmt.Errorf("%w: %w", ErrSuccession, err)
}

// checkAgainst compares the deactivated document with an earlier version.
func checkAgainst(pinned, d *Document, by Assurance) error {
	if pinned == nil || pinned.hash.Equal(d.hash) {
		return nil
	}
	created := pinned.parts.created
	switch {
	case pinned.id != d.id:
		return fmt.Errorf("%w: the earlier version is of %s", ErrSuccession, pinned.id)
	case pinned.deactivated && pinned.successor != d.successor:
		return &Conflict{
			DID: d.id, Pinned: pinned.successor, Observed: d.successor,
			PinnedBy: pinned.DeactivatedBy(), ObservedBy: by,
		}
	case !created.IsZero() && !d.parts.created.After(created):
		return fmt.Errorf("%w: %w: not newer than the version of %s", ErrSuccession, ErrProofTime, formatTime(created))
	}
	return nil
}

// DeactivatedBy tells by whose key the deactivation of a document that was accepted before is signed: it looks at
// the name of the key only and verifies nothing. It is "" for an active document.
func (d *Document) DeactivatedBy() Assurance {
	switch binding, err := d.binding(); {
	case !d.deactivated:
		return ""
	case !d.parts.present || err != nil:
		return AssuranceUnverified
	case d.ProofKeyID() == binding.ID:
		return AssuranceVerified
	default:
		return AssuranceRecoveryVerified
	}
}

// ProofKeyID returns the absolute id of the key that the document's proof names, "" without a proof.
func (d *Document) ProofKeyID() string { return absolute(d.id, d.parts.method) }

// SuccessorID returns the DID under the same stable subject that is bound to the key: e1_ for Ed25519, k1_ for
// secp256k1. It fails where [CheckSuccessor] does, and with [ErrKeyType] for other keys.
func SuccessorID(old DID, binding PublicKey) (DID, error) {
	prefix, ok := map[KeyType]string{Ed25519: "e1_", Secp256k1: "k1_"}[binding.Type()]
	if !ok {
		return DID{}, fmt.Errorf("%w: %q binds no DID", ErrKeyType, binding.Type())
	}
	next, err := Parse(old.StableSubject() + ":" + prefix + binding.Thumbprint())
	if err != nil {
		return DID{}, err
	}
	return next, CheckSuccessor(old, next)
}

// Succeeding returns the spec of a document that follows the one of old: it names old, and of its line only old,
// in alsoKnownAs and previousDid. ID and keys are the new DID's. It returns [ErrSuccession].
func (spec DocumentSpec) Succeeding(old DID) (DocumentSpec, error) {
	if err := CheckSuccessor(old, spec.ID); err != nil {
		return DocumentSpec{}, err
	}
	also := []string{old.String()}
	for _, name := range spec.AlsoKnownAs {
		if other, err := Parse(name); err != nil || other.StableSubject() != old.StableSubject() {
			also = append(also, name)
		}
	}
	spec.AlsoKnownAs, spec.PreviousDID = also, old
	spec.Deactivated, spec.SuccessorDID = false, DID{}
	return spec, nil
}

// Deactivate returns the current document again, deactivated, naming its direct successor and signed anew; all
// other members stay. A zero successor ends the subject. The signer is the document's binding key or one of its
// recovery keys. created must be later than the current proof's, or peers will take the result for a rollback.
//
// A document that is deactivated already is refused, since a successor is never rewritten. To answer a stolen
// binding key with the recovery key, start from the last version that was the subject's own, with a time after
// the thief's.
func Deactivate(ctx context.Context, current []byte, successor DID, s Signer, created time.Time, dialect Dialect) ([]byte, error) {
	doc, err := ParseDocument(current)
	if err != nil {
		return nil, err
	}
	created = created.UTC().Truncate(time.Second)
	switch {
	case doc.deactivated || !doc.successor.IsZero():
		return nil, fmt.Errorf("%w: %s is deactivated already", ErrSuccession, doc.id)
	case !doc.parts.created.IsZero() && !created.After(doc.parts.created):
		return nil, fmt.Errorf("%w: %s is not after the current proof of %s", ErrProofTime, formatTime(created), formatTime(doc.parts.created))
	}
	if !successor.IsZero() {
		if err := CheckSuccessor(doc.id, successor); err != nil {
			return nil, err
		}
	}
	o, err := splitObject(doc.canonical)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	o = o.without("proof").without("deactivated").with("deactivated", []byte("true")).without("successorDid")
	if !successor.IsZero() {
		o = o.with("successorDid", []byte(`"`+successor.String()+`"`))
		if contexts := o.find("@context"); contexts != nil {
			defined, err := defineSuccessor(contexts)
			if err != nil {
				return nil, err
			}
			o = o.without("@context").with("@context", defined)
		}
	}
	signed, err := SignDocument(ctx, o.join(), s, created, dialect)
	if err != nil {
		return nil, err
	}
	// Read it as a peer will who has the current document.
	out, err := ParseDocument(signed)
	if err != nil {
		return nil, err
	}
	if _, err := verifyDeactivation(doc, out, created); err != nil {
		return nil, err
	}
	return signed, nil
}

// defineSuccessor adds the term successorDid to a document's @context, in canonical form: to its last inline
// object, or as a new one, so that the result is what [BuildDocument] would write.
func defineSuccessor(contexts []byte) ([]byte, error) {
	list, err := elements(contexts, "@context", maxMethods)
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		if terms, err := splitObject(c); err == nil && terms.find("successorDid") != nil {
			return contexts, nil
		}
	}
	term, err := canon.Marshal(linkTerm("successorDid"))
	if err != nil {
		return nil, err
	}
	var terms object
	if n := len(list) - 1; n >= 0 && list[n].Kind() == '{' {
		if terms, err = splitObject(list[n]); err != nil {
			return nil, fmt.Errorf("%w: @context: %w", ErrDocument, err)
		}
		list = list[:n]
	}
	list = append(list, terms.with("successorDid", term).join())
	parts := make([][]byte, len(list))
	for i, c := range list {
		parts[i] = c
	}
	return slices.Concat([]byte("["), bytes.Join(parts, []byte(",")), []byte("]")), nil
}
