// SPDX-License-Identifier: Apache-2.0

package metaproto

import (
	"errors"
	"fmt"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// AgreementType is the type member of an [Agreement].
const AgreementType = "TreatyAgreement"

// Party is one side of an agreement and the keys it talks with.
type Party struct {
	DID             did.DID `json:"did"`
	SigningKID      string  `json:"signingKid"`      // signs its envelopes
	KeyAgreementKID string  `json:"keyAgreementKid"` // key of its document for the suite; payloads to it are sealed to this key
	// SessionKey is the key that payloads to it are sealed to instead, in
	// base64url, where session keys were agreed. It is of the type that the
	// agreed suite seals to.
	SessionKey string `json:"sessionKey,omitempty"`
}

// Session returns the party's session key, or false if there is none, or none
// that the agreed suite can seal to.
func (a Agreement) Session(p Party) (did.PublicKey, bool) {
	if p.SessionKey == "" {
		return did.PublicKey{}, false
	}
	k, err := parseSessionKey(a.Candidate.HPKESuite, p.SessionKey)
	return k, err == nil
}

// Agreement is the outcome of the rounds. Both sides build it from the rounds
// they saw; it never travels.
type Agreement struct {
	Type        string         `json:"type"` // AgreementType
	Version     int            `json:"version"`
	ContextID   string         `json:"contextId"` // of the conversation that concluded it
	Initiator   Party          `json:"initiator"`
	Responder   Party          `json:"responder"`
	Candidate   Candidate      `json:"candidate"` // without label
	Rounds      []canon.Digest `json:"rounds"`    // up to and including the first acceptance
	ConcludedAt string         `json:"concludedAt"`
	ExpiresAt   string         `json:"expiresAt"`
}

const agreementLabel = "treaty agreement v1"

// Canonical returns the agreement in canonical JSON, the same on both sides.
func (a Agreement) Canonical() ([]byte, error) { return canon.Marshal(a) }

// Digest identifies the agreement: canon.Hash of its canonical bytes under the
// label "treaty agreement v1". Every later message names it. It is zero, which
// no message may name, if the agreement cannot be encoded.
func (a Agreement) Digest() canon.Digest {
	b, err := a.Canonical()
	if err != nil {
		return canon.Digest{}
	}
	return canon.Hash(agreementLabel, b)
}

// Expires returns ExpiresAt; the zero time, which is long past, if it cannot
// be read.
func (a Agreement) Expires() time.Time {
	t, err := parseTime(a.ExpiresAt)
	if err != nil {
		return time.Time{}
	}
	return t
}

// Errors of [Agreement.Usable], beside [ErrBelowFloor].
var ErrExpired = errors.New("metaproto: agreement has expired")

// Usable says whether the agreement may still be used at now: it has not
// expired and the floor, as it stands today, allows it.
func (a Agreement) Usable(f Floor, now time.Time) error {
	if !now.Before(a.Expires()) {
		return fmt.Errorf("%w at %s", ErrExpired, a.ExpiresAt)
	}
	return f.Allows(a.Candidate)
}

// Sides returns the parties as seen by self, or false if it is neither.
func (a Agreement) Sides(self did.DID) (own, peer Party, ok bool) {
	switch self {
	case a.Initiator.DID:
		return a.Initiator, a.Responder, true
	case a.Responder.DID:
		return a.Responder, a.Initiator, true
	}
	return Party{}, Party{}, false
}
