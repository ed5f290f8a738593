// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/treaty-node/treaty/did/canon"
)

// data is what every event type's structure can do: say itself in one line.
type data interface {
	line(b *line, e *Event)
}

// kinds is the one table of event types: a new type is a constant, a structure and a row.
var kinds = map[string]func() data{
	NodeStarted:          func() data { return new(Started) },
	DIDResolved:          func() data { return new(Resolved) },
	DIDVerified:          func() data { return new(Verified) },
	DIDRefused:           func() data { return new(DIDRefusal) },
	CardVerified:         func() data { return new(Card) },
	DIDSucceeded:         func() data { return new(Succession) },
	DIDSuccessionRefused: func() data { return new(SuccessionRefusal) },
	DIDCompromised:       func() data { return new(Compromise) },
	ConversationMoved:    func() data { return new(ConversationMove) },
	MetaprotoSent:        func() data { return new(Round) },
	MetaprotoReceived:    func() data { return new(Round) },
	MetaprotoAgreed:      func() data { return new(Agreement) },
	ProposalSent:         func() data { return new(Proposal) },
	ProposalReceived:     func() data { return new(Proposal) },
	OfferMade:            func() data { return new(Offer) },
	OfferReceived:        func() data { return new(Offer) },
	AcceptSent:           func() data { return new(Accept) },
	AcceptReceived:       func() data { return new(Accept) },
	ModelAsked:           func() data { return new(Question) },
	ModelAnswered:        func() data { return new(ModelAnswer) },
	ModelNarrowed:        func() data { return new(Narrowing) },
	MessageRefused:       func() data { return new(MessageRefusal) },
	NegotiationEnded:     func() data { return new(Ended) },
	NegotiationWithdrawn: func() data { return new(Withdrawn) },
	NegotiationReopened:  func() data { return new(Reopening) },
	ContractBuilt:        func() data { return new(Built) },
	ContractProof:        func() data { return new(ProofAdded) },
	ContractActivated:    func() data { return new(Activated) },
	ContractInForce:      func() data { return new(InForce) },
	ContractRevoked:      func() data { return new(Revocation) },
	ContractReplaced:     func() data { return new(Replacement) },
	ContractAcknowledged: func() data { return new(Acknowledgement) },
	DataDeleted:          func() data { return new(Deletion) },
	DeletionReceived:     func() data { return new(Deletion) },
	QuerySent:            func() data { return new(Query) },
	QueryAnswered:        func() data { return new(Answer) },
	QueryRefused:         func() data { return new(QueryRefusal) },
	QueryFailed:          func() data { return new(QueryFailure) },
	CallAnswered:         func() data { return new(Call) },
	CallRefused:          func() data { return new(CallRefusal) },
	DatasetImported:      func() data { return new(Imported) },
	TrustChanged:         func() data { return new(TrustChange) },
	KeyConfirmed:         func() data { return new(KeyConfirmation) },
	QuestionDelegated:    func() data { return new(Delegation) },
	KeyRotated:           func() data { return new(Rotation) },
	KeyRetired:           func() data { return new(Retirement) },
	NoticeSent:           func() data { return new(Notice) },
	NoticeReceived:       func() data { return new(NoticeReply) },
	NoticeAnswered:       func() data { return new(NoticeReply) },
	NoticeFailed:         func() data { return new(NoticeReply) },
	DrillStarted:         func() data { return new(Drill) },
	DrillStep:            func() data { return new(DrillCheck) },
	DrillFinished:        func() data { return new(DrillResult) },
	IdentityMoved:        func() data { return new(Move) },
}

var limits = canon.Limits{MaxBytes: MaxEventBytes, MaxDepth: maxDepth}

// encodeData brings v into the canonical form of typ's data. Going through the type's own structure gives every event of a
// type the same members, whatever the caller passed.
func encodeData(typ string, v any) (json.RawMessage, error) {
	newData, ok := kinds[typ]
	if !ok {
		return nil, fmt.Errorf("%w: unknown type %.80q", ErrEntry, typ)
	}
	raw, err := canon.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrEntry, typ, err)
	}
	if raw[0] != '{' {
		return nil, fmt.Errorf("%w: %s: data is not an object", ErrEntry, typ)
	}
	d := newData()
	if t := reflect.TypeOf(d); reflect.TypeOf(v) == t || reflect.TypeOf(v) == t.Elem() {
		return raw, nil
	}
	if err := canon.Unmarshal(raw, d, limits); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrEntry, typ, err)
	}
	if raw, err = canon.Marshal(d); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrEntry, typ, err)
	}
	return raw, nil
}

// decode reads the event's data back.
func (e *Event) decode() (data, bool) {
	newData, ok := kinds[e.Type]
	if !ok {
		return nil, false
	}
	d := newData()
	return d, canon.Unmarshal(e.Data, d, limits) == nil
}

// Decode reads e's data into v, a pointer to the structure of its type.
func (e *Event) Decode(v any) error {
	if err := canon.Unmarshal(e.Data, v, limits); err != nil {
		return fmt.Errorf("ledger: event %d (%.80q): %w", e.Seq, e.Type, err)
	}
	return nil
}
