// SPDX-License-Identifier: Apache-2.0

package metaproto

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// Role is the side a [State] belongs to.
type Role string

// The initiator (the buyer) speaks first, the responder (the vendor) last.
const (
	Initiator Role = "initiator"
	Responder Role = "responder"
)

// Phase is where the negotiation stands for one side.
type Phase string

// The phases. Agreed, rejected and timeout are terminal.
const (
	// PhaseNew: the initiator has not spoken yet.
	PhaseNew Phase = "new"
	// PhaseNegotiating: the peer speaks next.
	PhaseNegotiating Phase = "negotiating"
	// PhaseConfirming: the initiator has accepted and waits for the confirmation.
	PhaseConfirming Phase = "confirming"
	// PhaseAccepted: the responder has accepted. The agreement holds for it and
	// takes effect with the initiator's first message that names it ([Cited]).
	PhaseAccepted Phase = "accepted"
	// PhaseAgreed: both sides are known to hold the agreement.
	PhaseAgreed   Phase = "agreed"
	PhaseRejected Phase = "rejected"
	PhaseTimeout  Phase = "timeout"
)

// Terminal says whether the phase is final.
func (p Phase) Terminal() bool {
	return p == PhaseAgreed || p == PhaseRejected || p == PhaseTimeout
}

// State is one side's view of one negotiation. It is a value: [Step] returns a
// new one and leaves its argument as it was. It survives encoding as JSON.
// Callers read it and do not write to it.
type State struct {
	Version   int       `json:"version"`
	Role      Role      `json:"role"`
	ContextID string    `json:"contextId"`
	Self      Party     `json:"self"`
	Peer      Party     `json:"peer"` // key ids as the peer's messages brought them
	Phase     Phase     `json:"phase"`
	Reason    string    `json:"reason"` // why it ended without agreement, for people
	Deadline  time.Time `json:"deadline"`
	Started   time.Time `json:"started"`
	NextSeq   int       `json:"nextSeq"` // sequenceId of the next message, whoever sends it

	Rounds  []canon.Digest `json:"rounds"`  // digests of all messages so far
	Offered []Candidate    `json:"offered"` // this side's last list
	Seen    []canon.Digest `json:"seen"`    // what the peer has proposed so far
	LastIn  canon.Digest   `json:"lastIn,omitzero"`
	LastOut *Message       `json:"lastOut,omitempty"`

	// Keys of this side by suite, which never change, and whether the peer has
	// been told all of them; and what the peer has told of its own.
	Keys     []SuiteKey `json:"keys,omitempty"`
	KeysSent bool       `json:"keysSent,omitempty"`
	PeerKeys []SuiteKey `json:"peerKeys,omitempty"`

	Agreement *Agreement `json:"agreement,omitempty"`
}

const stateVersion = 1

// Config is what a negotiation starts from.
type Config struct {
	Role            Role
	ContextID       string // of the conversation; not empty
	Self, Peer      did.DID
	SigningKID      string // own keys: key ids of Self
	KeyAgreementKID string // an X25519 key
	// Keys are the keys by suite, where there are others than that one or where
	// there are session keys: then the X25519 key stands here too. A side
	// proposes and accepts only suites that it has a key for, and session keys
	// only where all its keys have one.
	Keys []SuiteKey
}

// Errors to branch on. With each of them the state is unchanged.
var (
	ErrConfig     = errors.New("metaproto: unusable configuration")
	ErrOutOfOrder = errors.New("metaproto: message out of order")
	ErrSigner     = errors.New("metaproto: signed with another key than this negotiation began with")
	ErrEnded      = errors.New("metaproto: negotiation has ended")
	ErrEvent      = errors.New("metaproto: event does not fit the state")
)

// New returns the state before the first message.
func New(cfg Config, p Policy, now time.Time) (State, error) {
	if err := p.Validate(); err != nil {
		return State{}, err
	}
	switch {
	case cfg.Role != Initiator && cfg.Role != Responder:
		return State{}, fmt.Errorf("%w: role", ErrConfig)
	case cfg.ContextID == "":
		return State{}, fmt.Errorf("%w: no contextId", ErrConfig)
	case cfg.Self.IsZero() || cfg.Peer.IsZero() || cfg.Self == cfg.Peer:
		return State{}, fmt.Errorf("%w: two different DIDs are needed", ErrConfig)
	case !keyOf(cfg.Self, cfg.SigningKID) || !keyOf(cfg.Self, cfg.KeyAgreementKID):
		return State{}, fmt.Errorf("%w: own key ids", ErrConfig)
	}
	if err := cfg.checkKeys(); err != nil {
		return State{}, fmt.Errorf("%w: own keys: %w", ErrConfig, err)
	}
	if err := p.within(ownKeys(cfg.Keys, cfg.KeyAgreementKID)).Validate(); err != nil {
		return State{}, fmt.Errorf("%w; this side has keys for no more", err)
	}
	now = now.UTC().Round(0)
	s := State{
		Version: stateVersion, Role: cfg.Role, ContextID: cfg.ContextID,
		Self:  Party{DID: cfg.Self, SigningKID: cfg.SigningKID, KeyAgreementKID: cfg.KeyAgreementKID},
		Peer:  Party{DID: cfg.Peer},
		Keys:  cfg.Keys,
		Phase: PhaseNegotiating, Started: now, Deadline: now.Add(p.timeLimit()),
	}
	if cfg.Role == Initiator {
		s.Phase = PhaseNew
	}
	return s, nil
}

// keyOf says whether kid is a key id of the DID.
func keyOf(id did.DID, kid string) bool {
	fragment, ok := strings.CutPrefix(kid, id.String()+"#")
	return ok && fragment != "" && !strings.Contains(fragment, "#")
}

// Event is what happens to a negotiation: [Begin], [Receive], [Interpreted],
// [Tick] or [Cited].
type Event interface{ event() }

type (
	// Begin makes the initiator speak.
	Begin struct{}
	// Receive is a message of the peer. SignerKID is the key that verifiably
	// signed it.
	Receive struct {
		Message   Message
		SignerKID string
	}
	// Interpreted is a Receive whose text somebody, a person or a model, has
	// read. When the message holds no candidates, Read orders our
	// counter-proposal; it is never taken for something that the peer said.
	Interpreted struct {
		Receive
		Read []Candidate
	}
	// Tick lets time pass: past the deadline the negotiation ends. It never
	// makes a message, because it comes when the peer is to speak.
	Tick struct{}
	// Cited says that a signed message of the peer named the agreement with
	// this digest; with the right one the responder's agreement is final.
	Cited struct{ Agreement canon.Digest }
)

func (Begin) event()   {}
func (Receive) event() {}
func (Tick) event()    {}
func (Cited) event()   {}

// clone returns a state that shares nothing which Step changes.
func (s State) clone() State {
	s.Rounds = slices.Clone(s.Rounds)
	s.Seen = slices.Clone(s.Seen)
	s.Offered = slices.Clone(s.Offered)
	s.PeerKeys = slices.Clone(s.PeerKeys)
	return s
}

// Concluded returns the agreement once this side holds one: in the phases
// accepted and agreed.
func (s State) Concluded() (*Agreement, bool) {
	if s.Phase == PhaseAccepted || s.Phase == PhaseAgreed {
		return s.Agreement, s.Agreement != nil
	}
	return nil, false
}
