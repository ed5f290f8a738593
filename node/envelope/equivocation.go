// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"encoding/json"
	"errors"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// EquivocationType is the type member of an [Equivocation].
const EquivocationType = "TreatyEquivocation"

// Equivocation is the proof that one sender signed two different messages for
// one place of a conversation. It convinces whoever has the sender's key.
type Equivocation struct {
	Type   string          `json:"type"`
	First  json.RawMessage `json:"first"`  // envelopes
	Second json.RawMessage `json:"second"` //
}

// Equivocates says whether a and b are two different messages that one sender
// signed for the same seq of the same conversation. Both must be verified.
func Equivocates(a, b *Envelope) bool {
	return a.verified && b.verified &&
		a.From == a.signer && b.From == b.signer &&
		a.From == b.From && a.To == b.To && a.ContextID == b.ContextID && a.Seq == b.Seq &&
		!a.digest.Equal(b.digest)
}

// NewEquivocation returns the proof as JSON, or an error if there is none.
func NewEquivocation(a, b *Envelope) ([]byte, error) {
	if !Equivocates(a, b) {
		return nil, errNoEquivocation
	}
	return json.Marshal(Equivocation{Type: EquivocationType, First: a.raw, Second: b.raw})
}

var errNoEquivocation = errors.New("envelope: not two messages for one place")

// VerifyEquivocation checks a proof. key returns the sender's public key for
// a key id, from a document that is trusted. It returns the two envelopes.
func VerifyEquivocation(proof []byte, key func(kid string) (did.PublicKey, error)) (first, second *Envelope, err error) {
	var q Equivocation
	if err := canon.Unmarshal(proof, &q, canon.Limits{MaxBytes: 2*MaxBytes + 1024, MaxDepth: 4}); err != nil {
		return nil, nil, Refuse(CodeMalformed, "%w", err)
	}
	if q.Type != EquivocationType {
		return nil, nil, Refuse(CodeMalformed, "not an equivocation proof")
	}
	var envs [2]*Envelope
	for i, raw := range [][]byte{q.First, q.Second} {
		e, err := Parse(raw, MaxBytes)
		if err != nil {
			return nil, nil, err
		}
		k, err := key(e.KeyID())
		if err != nil {
			return nil, nil, Refuse(CodeBadSignature, "%w", err)
		}
		if err := e.VerifySignature(k); err != nil {
			return nil, nil, err
		}
		envs[i] = e
	}
	if !Equivocates(envs[0], envs[1]) {
		return nil, nil, errNoEquivocation
	}
	return envs[0], envs[1], nil
}
