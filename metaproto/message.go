// SPDX-License-Identifier: Apache-2.0

package metaproto

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/hpke"
)

// Action is the action member of every round.
const Action = "protocolNegotiation"

// Status is the status member of a round.
type Status string

// ANP's four.
const (
	StatusNegotiating Status = "negotiating"
	StatusAccepted    Status = "accepted"
	StatusRejected    Status = "rejected"
	StatusTimeout     Status = "timeout"
)

// Bounds of a message, in bytes.
const (
	MaxMessageBytes = 64 << 10
	MaxText         = 16 << 10 // candidateProtocols
	MaxSummary      = 2 << 10  // modificationSummary
)

// maxSequence leaves room after the last round for an end and its repetition.
const maxSequence = MaxRounds + 1

// Message is one round as it travels.
type Message struct {
	Action              string `json:"action"`
	SequenceID          int    `json:"sequenceId"` // 0 for the first message, one more for each that follows, of either side
	CandidateProtocols  string `json:"candidateProtocols"`
	ModificationSummary string `json:"modificationSummary"`
	Status              Status `json:"status"`

	// Candidates: what is proposed, best first; on acceptance exactly the one
	// that is accepted. None: the peer speaks in text only.
	Candidates []Candidate `json:"candidates,omitempty"`
	// KeyAgreementKID: the X25519 key of the sender's document that payloads to
	// it shall be sealed to. There whenever there are candidates.
	KeyAgreementKID string `json:"keyAgreementKid,omitempty"`
	// Keys: what payloads to the sender can be sealed to beside that, by suite.
	// They are said once and do not change between rounds.
	Keys []SuiteKey `json:"keys,omitempty"`
	// AcceptedAt: when the acceptance was made, RFC 3339 in UTC, to the second.
	AcceptedAt string `json:"acceptedAt,omitempty"`
	// Agreement: its digest, where the responder confirms the initiator's acceptance.
	Agreement canon.Digest `json:"agreement,omitzero"`
}

// ErrMessage says that a message is not one of the protocol. Errors of
// [ParseMessage] wrap it.
var ErrMessage = errors.New("metaproto: malformed message")

var messageLimits = canon.Limits{MaxBytes: MaxMessageBytes, MaxDepth: 8}

// ParseMessage reads a round strictly: a closed object in which the five
// members of ANP are there, every value in range, and nothing that would not
// be written the same way again.
func ParseMessage(data []byte) (Message, error) {
	var m Message
	if err := canon.Unmarshal(data, &m, messageLimits); err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	if err := m.check(); err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	// Members that are missing, null or empty where they must be absent do not
	// come out as they went in.
	got, err := canon.Canonicalize(data, messageLimits)
	if err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	want, err := m.Canonical()
	if err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	if !bytes.Equal(got, want) {
		return Message{}, fmt.Errorf("%w: a member is missing, null, or empty where it must be left out", ErrMessage)
	}
	return m, nil
}

// Canonical returns the message in canonical JSON: the bytes that travel.
func (m Message) Canonical() ([]byte, error) { return canon.Marshal(m) }

const roundLabel = "treaty metaproto round v1"

// Digest identifies the round: canon.Hash of its canonical bytes under the
// label "treaty metaproto round v1". It is zero for a message that cannot be
// encoded, which [ParseMessage] and [Step] never return.
func (m Message) Digest() canon.Digest {
	b, err := m.Canonical()
	if err != nil {
		return canon.Digest{}
	}
	return canon.Hash(roundLabel, b)
}

func (m Message) check() error {
	switch {
	case m.Action != Action:
		return fmt.Errorf("action is not %q", Action)
	case m.SequenceID < 0 || m.SequenceID > maxSequence:
		return fmt.Errorf("sequenceId is outside 0 to %d", maxSequence)
	case !isText(m.CandidateProtocols, MaxText):
		return errors.New("candidateProtocols is too long or not printable text")
	case !isText(m.ModificationSummary, MaxSummary):
		return errors.New("modificationSummary is too long or not printable text")
	case len(m.Candidates) > MaxCandidates:
		return fmt.Errorf("more than %d candidates", MaxCandidates)
	case (len(m.Candidates) > 0) != (m.KeyAgreementKID != ""):
		return errors.New("candidates and keyAgreementKid come together")
	case len(m.KeyAgreementKID) > maxKID:
		return errors.New("keyAgreementKid is too long")
	case len(m.Keys) > 0 && len(m.Candidates) == 0:
		return errors.New("keys come with candidates")
	}
	if err := checkKeys(m.Keys); err != nil {
		return err
	}
	if k, ok := keyFor(m.Keys, hpke.SuiteX25519); ok && k.KID != m.KeyAgreementKID {
		return errors.New("keys and keyAgreementKid name two X25519 keys")
	}
	for i, c := range m.Candidates {
		if err := c.check(); err != nil {
			return fmt.Errorf("candidate %d: %w", i+1, err)
		}
	}
	switch m.Status {
	case StatusNegotiating:
		if m.AcceptedAt != "" || !m.Agreement.IsZero() {
			return errors.New("a proposal cannot carry an acceptance")
		}
	case StatusAccepted:
		if len(m.Candidates) == 0 { // text only
			if m.AcceptedAt != "" || !m.Agreement.IsZero() {
				return errors.New("an acceptance names its candidate")
			}
			return nil
		}
		if len(m.Candidates) > 1 {
			return errors.New("an acceptance names exactly one candidate")
		}
		if _, err := parseTime(m.AcceptedAt); err != nil {
			return errors.New("acceptedAt is not RFC 3339 in UTC to the second")
		}
	case StatusRejected, StatusTimeout:
		if len(m.Candidates) > 0 || m.AcceptedAt != "" || !m.Agreement.IsZero() {
			return errors.New("an end carries no candidates")
		}
	default:
		return errors.New("unknown status")
	}
	return nil
}

// isText: valid UTF-8 without control characters other than line breaks and
// tabs, and without the invisible direction marks that make text lie.
func isText(s string, limit int) bool {
	if len(s) > limit || !utf8.ValidString(s) {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
	}) < 0
}

const timeLayout = "2006-01-02T15:04:05Z"

func formatTime(t time.Time) string { return t.UTC().Format(timeLayout) }

func parseTime(s string) (time.Time, error) {
	t, err := time.Parse(timeLayout, s)
	if err != nil {
		return time.Time{}, err
	}
	if formatTime(t) != s {
		return time.Time{}, errors.New("not canonical")
	}
	return t, nil
}
