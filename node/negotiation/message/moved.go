// SPDX-License-Identifier: Apache-2.0

package message

import (
	"encoding/json"
	"fmt"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
)

// MovedType is the type member of a [Moved].
const MovedType = "TreatyMoved"

// Moved is the body of a moved envelope: the first message of a side under another DID than its last one in the conversation.
// The envelope's header says the rest: from is the new DID, whose binding key signs; seq and prev are the conversation's
// last message, plus one and by digest. It carries the message with which the conversation goes on.
type Moved struct {
	Type     string       `json:"type"`     // MovedType
	Old      string       `json:"old"`      // DID of the side's last message in the conversation, or of its beginning
	Document canon.Digest `json:"document"` // of the new DID's document as the side publishes it
	// KeyAgreementKID is the new DID's key that answers are sealed to, where no session keys were agreed.
	KeyAgreementKID string          `json:"keyAgreementKid"`
	Carries         string          `json:"carries"` // metaproto, negotiation or contract: what body is
	Body            json.RawMessage `json:"body"`    // as it would be the body of an envelope of that type
}

// Carried are the types of what a moved message can carry.
const (
	CarriesMetaproto   = "metaproto"
	CarriesNegotiation = "negotiation"
	CarriesContract    = "contract"
)

// ParseMoved reads the body of a moved envelope from a DID. What it carries is not looked into. Errors match ErrBody.
func ParseMoved(data []byte, from did.DID) (*Moved, error) {
	m := new(Moved)
	if err := contract.Decode(data, m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBody, err)
	}
	return m, m.Validate(from)
}

// Marshal validates the body and returns its canonical JSON.
func (m *Moved) Marshal(from did.DID) ([]byte, error) {
	if err := m.Validate(from); err != nil {
		return nil, err
	}
	return canon.Marshal(m)
}

// Validate checks the body of a message from a DID: whether it can be a successor of the old one, not whether it is.
func (m *Moved) Validate(from did.DID) error {
	old, err := did.Parse(m.Old)
	switch {
	case m.Type != MovedType:
		return refuse("type", "want "+MovedType)
	case err != nil || old.String() != m.Old:
		return refuse("old", "is not a DID")
	case old == from || !did.SameSubject(old, from):
		return refuse("old", "is not another DID of the sender's subject")
	case m.Document.IsZero():
		return refuse("document", "is zero")
	case len(m.Body) == 0 || m.Body[0] != '{':
		return refuse("body", "is not an object")
	}
	if id, _, err := did.SplitKeyID(m.KeyAgreementKID); err != nil || id != from {
		return refuse("keyAgreementKid", "is not a key of the sender")
	}
	switch m.Carries {
	case CarriesMetaproto, CarriesNegotiation, CarriesContract:
		return nil
	}
	return refuse("carries", contract.Echo(m.Carries)+" cannot be carried")
}
