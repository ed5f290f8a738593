// SPDX-License-Identifier: Apache-2.0

package hpke

import (
	"fmt"
	"time"

	"github.com/treaty-node/treaty/did"
)

// SelectKey picks the key to seal to from a document's keyAgreement
// relationship: of the document's own keys that fit the suite and have not
// ended at the time given, the first one without an end of life, or else the
// one that ends last. It returns its key id. [ErrKey] says that there is none.
func SelectKey(doc *did.Document, suite Suite, at time.Time) (string, did.PublicKey, error) {
	if suite.KeyType() == "" {
		return "", did.PublicKey{}, fmt.Errorf("%w: %q", ErrSuite, clip(string(suite)))
	}
	var best *did.VerificationMethod
	methods := doc.Keys(did.KeyAgreement)
	for i := range methods {
		m := &methods[i]
		if _, err := NamedKey(doc, m.ID, suite, at); err != nil {
			continue
		}
		switch {
		case best == nil,
			!best.Expires.IsZero() && m.Expires.IsZero(),
			!best.Expires.IsZero() && m.Expires.After(best.Expires):
			best = m
		}
	}
	if best == nil {
		return "", did.PublicKey{}, fmt.Errorf("%w: %s has no key agreement key for it", ErrKey, doc.ID())
	}
	return best.ID, best.Key, nil
}

// NamedKey returns the key-agreement key kid of the document if it is the
// document's own, fits the suite and has not ended at the time given. This is
// how a key id that a peer named is checked.
func NamedKey(doc *did.Document, kid string, suite Suite, at time.Time) (did.PublicKey, error) {
	if !keyOf(doc.ID(), kid) {
		return did.PublicKey{}, fmt.Errorf("%w: key id of another DID", ErrKey)
	}
	key, err := doc.KeyFor(kid, did.KeyAgreement, at)
	if err != nil {
		return did.PublicKey{}, fmt.Errorf("%w: %w", ErrKey, err)
	}
	if err := checkKey(suite, key); err != nil {
		return did.PublicKey{}, err
	}
	return key, nil
}

// SessionKeyID is the key id that an envelope names when it is sealed to a session key of owner: a key that was made for one
// conversation, stands in its signed rounds and in no document. It follows from the key, and from whose it is.
func SessionKeyID(owner did.DID, key did.PublicKey) string {
	return did.KeyID(owner, "session", key)
}
