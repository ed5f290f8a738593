// SPDX-License-Identifier: Apache-2.0

package metaproto

import (
	"fmt"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did/canon"
)

// clockSkew is how far the peer's clock may be ahead when it dates an acceptance.
const clockSkew = 30 * time.Second

// Step applies one event. It returns the next state and the message to send,
// if there is one. With an error the state is returned as it was and nothing
// is to be sent.
//
// The transitions, where "in time" means before the deadline:
//
//	phase        event                                      next         reply
//	new          Begin in time                              negotiating  negotiating
//	negotiating  negotiating or text, one acceptable        initiator: confirming, responder: accepted; accepted
//	             ..., none acceptable, rounds left, news    negotiating  negotiating
//	             ..., none acceptable otherwise             rejected     rejected
//	             accepted, as offered and acceptable        initiator: agreed, none; responder: accepted, accepted
//	             accepted, anything else                    rejected     rejected
//	confirming   accepted with the same agreement           agreed       none
//	             anything else in order                     rejected     rejected
//	accepted     Cited with the agreement's digest          agreed       none
//	             negotiating or accepted                    (error)
//	all of these rejected or timeout                        the same     initiator: none, responder: the same
//	             message, too late                          timeout      timeout
//	             Tick past the deadline                     timeout      none
//	terminal     anything                                   (error)
//	any          the last message again                     unchanged    the last reply again
//	any          another sequenceId                         (error)
//
// An acceptance by the responder counts by its own date, not by its arrival:
// the responder holds the agreement since then. In phase accepted the deadline
// is the end of the agreement.
func Step(s State, ev Event, p Policy, now time.Time) (State, *Message, error) {
	next, reply, err := step(s.clone(), ev, p, now.UTC().Round(0))
	if err != nil {
		return s, nil, err
	}
	return next, reply, nil
}

func step(s State, ev Event, p Policy, now time.Time) (State, *Message, error) {
	if s.Version != stateVersion {
		return s, nil, fmt.Errorf("%w: state version %d", ErrConfig, s.Version)
	}
	if err := p.Validate(); err != nil {
		return s, nil, err
	}
	if p = p.within(ownKeys(s.Keys, s.Self.KeyAgreementKID)); len(p.Preferences) == 0 || p.Validate() != nil {
		return s, nil, fmt.Errorf("%w: this side has no key for what its policy allows", ErrConfig)
	}
	switch ev := ev.(type) {
	case Begin:
		if s.Phase != PhaseNew {
			return s, nil, fmt.Errorf("%w: begin in phase %s", ErrEvent, s.Phase)
		}
		if s.late(now) {
			return s.end(PhaseTimeout, "not begun in time"), nil, nil
		}
		return s.propose(p.opening(), "Opening: what this side can use.")
	case Tick:
		if s.Phase.Terminal() || !s.late(now) {
			return s, nil, nil
		}
		return s.end(PhaseTimeout, "no answer within the time limit"), nil, nil
	case Cited:
		a, ok := s.Concluded()
		if !ok {
			return s, nil, fmt.Errorf("%w: no agreement in phase %s", ErrEvent, s.Phase)
		}
		if d := a.Digest(); d.IsZero() || !d.Equal(ev.Agreement) {
			return s, nil, fmt.Errorf("%w: another agreement", ErrEvent)
		}
		s.Phase = PhaseAgreed
		return s, nil, nil
	case Receive:
		return s.receive(ev, nil, p, now)
	case Interpreted:
		return s.receive(ev.Receive, ev.Read, p, now)
	}
	return s, nil, fmt.Errorf("%w: %T", ErrEvent, ev)
}

func (s State) late(now time.Time) bool { return !now.Before(s.Deadline) }

func (s State) receive(ev Receive, read []Candidate, p Policy, now time.Time) (State, *Message, error) {
	m := ev.Message
	if err := m.check(); err != nil {
		return s, nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	digest := m.Digest()
	if digest.IsZero() {
		return s, nil, ErrMessage
	}
	switch {
	case !keyOf(s.Peer.DID, ev.SignerKID),
		s.Peer.SigningKID != "" && ev.SignerKID != s.Peer.SigningKID:
		return s, nil, ErrSigner
	case digest.Equal(s.LastIn):
		return s, s.LastOut, nil // again: the same answer, no second effect
	case s.Phase.Terminal():
		if m.SequenceID == s.NextSeq && string(m.Status) == string(s.Phase) && s.Phase != PhaseAgreed {
			return s, nil, nil // the responder repeats the end that we sent
		}
		return s, nil, ErrEnded
	case s.Phase == PhaseNew || m.SequenceID != s.NextSeq:
		return s, nil, fmt.Errorf("%w: sequenceId %d, expected %d", ErrOutOfOrder, m.SequenceID, s.NextSeq)
	case s.Phase == PhaseAccepted && m.Status != StatusRejected && m.Status != StatusTimeout:
		return s, nil, fmt.Errorf("%w: %s after the acceptance", ErrEvent, m.Status)
	}

	s.Peer.SigningKID = ev.SignerKID
	s.LastIn, s.LastOut = digest, nil
	s.NextSeq++
	s.Rounds = append(s.Rounds, digest)
	switch m.Status {
	case StatusRejected:
		return s.ended(PhaseRejected, "the peer rejected: "+m.ModificationSummary)
	case StatusTimeout:
		return s.ended(PhaseTimeout, "the peer ran out of time")
	case StatusAccepted, StatusNegotiating:
	}
	if !s.told(m) {
		return s.refuse(PhaseRejected, "a key is not the peer's, or keys changed between rounds")
	}
	if m.Status == StatusAccepted && len(m.Candidates) == 1 {
		return s.accepted(m, p, now)
	}
	return s.proposed(m, read, p, now)
}

// proposed answers a list of candidates, or text, which somebody may have read.
func (s State) proposed(m Message, read []Candidate, p Policy, now time.Time) (State, *Message, error) {
	if s.Phase == PhaseConfirming {
		return s.refuse(PhaseRejected, "a proposal came where a confirmation was due")
	}
	if s.late(now) {
		return s.refuse(PhaseTimeout, "the time limit has passed")
	}
	// Messages left, ours included. The initiator's acceptance needs one more
	// for the confirmation, and a proposal one more than an acceptance by the
	// other side: nobody makes a proposal that could not be taken up.
	left := p.maxRounds() - s.NextSeq
	toAccept, toPropose := 1, 3
	if s.Role == Initiator {
		toAccept, toPropose = 2, 2
	}
	usable := slices.DeleteFunc(slices.Clone(m.Candidates), func(c Candidate) bool { return !s.sealable(c) })
	if c, ok := p.Choose(usable); ok && left >= toAccept {
		return s.accept(c, now)
	}
	news := proposalDigest(m)
	if news.IsZero() || slices.Contains(s.Seen, news) {
		return s.refuse(PhaseRejected, "the peer repeats a proposal that holds nothing acceptable")
	}
	s.Seen = append(s.Seen, news)
	if left < toPropose {
		return s.refuse(PhaseRejected, fmt.Sprintf("no common ground within %d rounds", p.maxRounds()))
	}
	if len(m.Candidates) > 0 {
		read = nil // who says it in a form that code reads is not interpreted
	}
	return s.propose(p.counter(m.Candidates, read), "Nothing in the proposal can be used here; this can.")
}

// accept takes one of the peer's candidates.
func (s State) accept(c Candidate, now time.Time) (State, *Message, error) {
	m := s.message(StatusAccepted, "Accepted: "+c.Describe()+".")
	m.Candidates = []Candidate{c}
	s.tell(&m, c.HPKESuite)
	m.AcceptedAt = formatTime(now)
	s, reply, err := s.send(m)
	if err != nil {
		return s, nil, err
	}
	if err := s.conclude(c, now, len(s.Rounds)); err != nil {
		return s, nil, err
	}
	if s.Role == Initiator {
		s.Phase = PhaseConfirming
		return s, reply, nil
	}
	s.Phase, s.Deadline = PhaseAccepted, s.Agreement.Expires()
	return s, reply, nil
}

// accepted handles the peer's acceptance, or its confirmation of ours.
func (s State) accepted(m Message, p Policy, now time.Time) (State, *Message, error) {
	if s.Phase == PhaseConfirming {
		return s.confirmed(m, p)
	}
	c := m.Candidates[0]
	if !m.Agreement.IsZero() || !slices.ContainsFunc(s.Offered, c.Equal) {
		return s.refuse(PhaseRejected, "the acceptance names nothing that was offered")
	}
	if err := p.Floor.Allows(c); err != nil {
		return s.refuse(PhaseRejected, "what was offered is no longer acceptable: "+err.Error())
	}
	if !s.sealable(c) {
		return s.refuse(PhaseRejected, "the acceptance comes without the key that it takes")
	}
	at, err := parseTime(m.AcceptedAt)
	if err != nil || at.After(now.Add(clockSkew)) || at.Before(s.Started.Add(-clockSkew)) ||
		!now.Before(at.Add(c.Limits.Lifetime())) {
		return s.refuse(PhaseRejected, "the acceptance is dated outside this negotiation, or has expired")
	}
	if s.Role == Initiator {
		if err := s.conclude(c, at, len(s.Rounds)); err != nil {
			return s, nil, err
		}
		s.Phase = PhaseAgreed
		return s, nil, nil
	}
	if s.late(now) {
		return s.refuse(PhaseTimeout, "the time limit has passed")
	}
	if err := s.conclude(c, at, len(s.Rounds)); err != nil {
		return s, nil, err
	}
	confirmation := s.message(StatusAccepted, "Confirmed: "+c.Describe()+".")
	confirmation.Candidates = []Candidate{c}
	s.tell(&confirmation, c.HPKESuite)
	confirmation.AcceptedAt = m.AcceptedAt
	confirmation.Agreement = s.Agreement.Digest()
	s, reply, err := s.send(confirmation)
	if err != nil {
		return s, nil, err
	}
	s.Phase, s.Deadline = PhaseAccepted, s.Agreement.Expires()
	return s, reply, nil
}

// confirmed compares the responder's confirmation with our own acceptance.
func (s State) confirmed(m Message, p Policy) (State, *Message, error) {
	a := s.Agreement
	if d := a.Digest(); d.IsZero() || !d.Equal(m.Agreement) ||
		!a.Candidate.Equal(m.Candidates[0]) || a.ConcludedAt != m.AcceptedAt {
		return s.refuse(PhaseRejected, "the confirmation is of another agreement")
	}
	if err := p.Floor.Allows(a.Candidate); err != nil {
		return s.refuse(PhaseRejected, "what was accepted is no longer acceptable: "+err.Error())
	}
	s.Phase = PhaseAgreed
	return s, nil, nil
}

// conclude builds the agreement from the rounds up to the first acceptance.
func (s *State) conclude(c Candidate, at time.Time, rounds int) error {
	if !s.sealable(c) || s.Peer.SigningKID == "" {
		return fmt.Errorf("%w: the peer's keys are not known", ErrEvent)
	}
	a := &Agreement{
		Type: AgreementType, Version: 1, ContextID: s.ContextID,
		Initiator: agreed(s.Self, s.Keys, c), Responder: agreed(s.Peer, s.PeerKeys, c), Candidate: c.Terms(),
		Rounds:      slices.Clone(s.Rounds[:rounds]),
		ConcludedAt: formatTime(at), ExpiresAt: formatTime(at.Add(c.Limits.Lifetime())),
	}
	if s.Role == Responder {
		a.Initiator, a.Responder = a.Responder, a.Initiator
	}
	if a.Digest().IsZero() {
		return fmt.Errorf("%w: agreement cannot be encoded", ErrEvent)
	}
	s.Agreement = a
	return nil
}

func (s State) propose(list []Candidate, summary string) (State, *Message, error) {
	m := s.message(StatusNegotiating, summary)
	m.Candidates = list
	m.CandidateProtocols = Describe(list)
	s.tell(&m, "")
	s.Offered, s.Phase = list, PhaseNegotiating
	return s.send(m)
}

// refuse ends the negotiation with a message that says so. The two ends are
// spelled alike as phase and as status.
func (s State) refuse(ph Phase, reason string) (State, *Message, error) {
	s = s.end(ph, reason)
	return s.send(s.message(Status(ph), clipText(reason)))
}

// ended follows the peer's end. The responder, who always speaks last, repeats it.
func (s State) ended(ph Phase, reason string) (State, *Message, error) {
	s = s.end(ph, reason)
	if s.Role == Initiator {
		return s, nil, nil
	}
	return s.send(s.message(Status(ph), "Noted."))
}

// end drops what no terminal phase but agreed may hold.
func (s State) end(ph Phase, reason string) State {
	s.Phase, s.Reason, s.Agreement = ph, reason, nil
	return s
}

func (s State) message(status Status, summary string) Message {
	return Message{Action: Action, SequenceID: s.NextSeq, Status: status, ModificationSummary: summary}
}

// send makes m the last message out.
func (s State) send(m Message) (State, *Message, error) {
	if err := m.check(); err != nil {
		return s, nil, fmt.Errorf("%w: own: %w", ErrMessage, err)
	}
	s.Rounds = append(s.Rounds, m.Digest())
	s.NextSeq++
	s.LastOut = &m
	return s, &m, nil
}

const proposalLabel = "treaty metaproto proposal v1"

// proposalDigest identifies what a message proposes, whatever its number.
func proposalDigest(m Message) canon.Digest {
	b, err := canon.Marshal(struct {
		Text       string      `json:"text"`
		Candidates []Candidate `json:"candidates"`
	}{m.CandidateProtocols, m.Candidates})
	if err != nil {
		return canon.Digest{}
	}
	return canon.Hash(proposalLabel, b)
}

// clipText bounds a reason to what a summary may hold.
func clipText(s string) string {
	if len(s) > MaxSummary/2 {
		return s[:MaxSummary/2]
	}
	return s
}
