// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/internal/text"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation/message"
	"github.com/treaty-node/treaty/node/store"
)

// Phase is where a conversation stands.
type Phase string

// Phases. The last five are final (invariant 13).
const (
	PhaseMeta       Phase = "meta"                // the rounds are going on
	PhaseAsking     Phase = "asking"              // agreed on how to talk; the buyer proposes next
	PhaseDeciding   Phase = "deciding"            // vendor: the proposal is stored, and somebody slow is asked what to offer
	PhaseOffered    Phase = "offered"             // the vendor's offer stands
	PhaseAccepted   Phase = "accepted"            // the buyer accepted; buyer: waits for the draft, vendor: for the buyer's proof
	PhaseActivating Phase = "awaiting_activation" // buyer: its proof is out; the vendor activates or not
	PhaseInForce    Phase = "in_force"
	PhaseRejected   Phase = "rejected"
	PhaseWithdrawn  Phase = "withdrawn"
	PhaseExpired    Phase = "expired"
	PhaseFailed     Phase = "failed"
)

// Terminal says whether the phase is final.
func (p Phase) Terminal() bool {
	switch p {
	case PhaseInForce, PhaseRejected, PhaseWithdrawn, PhaseExpired, PhaseFailed:
		return true
	case PhaseMeta, PhaseAsking, PhaseDeciding, PhaseOffered, PhaseAccepted, PhaseActivating:
	}
	return false
}

// Session is one party's view of one conversation: everything the next step depends on, and nothing else. It is a value;
// every method that moves it returns a new one, so that a step that fails leaves nothing behind. It survives JSON.
type Session struct {
	Version   int          `json:"version"`
	Role      message.Role `json:"role"`
	Self      did.DID      `json:"self"`
	Peer      did.DID      `json:"peer"`
	ContextID string       `json:"contextId"`
	Phase     Phase        `json:"phase"`
	Code      string       `json:"code,omitempty"`   // why it ended, for programs
	Reason    string       `json:"reason,omitempty"` // and for people

	Seq     int64        `json:"seq"`     // of the last envelope, either side's
	Head    canon.Digest `json:"head"`    // its digest; the first prev before there is one
	PeerSeq int64        `json:"peerSeq"` // of the peer's last envelope
	Acked   canon.Digest `json:"acked"`   // last envelope that both sides are known to hold

	Meta       metaproto.State    `json:"meta"`
	Ask        *contract.Scope    `json:"ask,omitempty"`
	Asks       int                `json:"asks"`
	Needs      string             `json:"needs,omitempty"` // buyer: the needs file, so that a restart decides alike
	Amends     contract.Reference `json:"amends,omitzero"` // buyer: the contract that the new one is to replace
	Terms      *contract.Scope    `json:"terms,omitempty"` // buyer: what alone is asked for and taken; absent: what Needs says
	Need       int                `json:"need,omitempty"`  // buyer: which of its needs the last ask comes from
	Offer      *contract.Offer    `json:"offer,omitempty"`
	Offers     int                `json:"offers"`
	Contract   *contract.Contract `json:"contract,omitempty"`
	Transcript canon.Digest       `json:"transcript,omitzero"` // digest of the accept
	// Leaving: the buyer withdrew when its proof was out already. The vendor's commit order decides; its signed word ends it.
	Leaving bool `json:"leaving,omitempty"`

	// Buyer: the conversation whose need this one takes up, the one that takes up this one's, how many went before, and when the
	// first message may go out.
	Reopens    string    `json:"reopens,omitempty"`
	ReopenedAs string    `json:"reopenedAs,omitempty"`
	Reopened   int       `json:"reopened,omitempty"`
	NotBefore  time.Time `json:"notBefore,omitzero"`

	// A side that has moved to another DID since the beginning: its address, and the DID of its last message here.
	SelfNow  *Address `json:"selfNow,omitempty"`
	PeerNow  *Address `json:"peerNow,omitempty"`
	SelfSaid did.DID  `json:"selfSaid,omitzero"`
	PeerSaid did.DID  `json:"peerSaid,omitzero"`

	Started  time.Time `json:"started"`
	Deadline time.Time `json:"deadline"`

	sealedKeys []byte // of a conversation that is not stored yet: its private session keys, for the store

	agreed canon.Digest // of the agreement, which never changes; zero until it is asked for
}

const sessionVersion = 1

// Draft is a message to be built, signed and sealed.
type Draft struct {
	Type    envelope.Type
	Body    []byte
	Expires time.Time    // zero: the configured lifetime
	Prev    canon.Digest // zero: the conversation's last message

	carries envelope.Type // of a moved message: what it carries
}

// Effects are what a step wants recorded and sent, beside the new state.
type Effects struct {
	Events []ledger.Entry
	Reply  *Draft
	// Answers is the message that Reply answers when it came in an earlier step.
	Answers canon.Digest
	Aside   bool // Reply is said out of turn, and does not become the message that the conversation waits on
	Record  *store.ContractRecord
}

func (e *Effects) log(s *Session, kind string, data any) {
	entry := ledger.Entry{Type: kind, Context: s.ContextID, Peer: s.Peer.String(), Data: data}
	if s.Contract != nil {
		entry.Contract = s.Contract.ID
	}
	e.Events = append(e.Events, entry)
}

// NewSession starts a conversation before its first message.
func NewSession(role message.Role, self, peer did.DID, contextID string, meta metaproto.State, now time.Time, lifetime time.Duration) Session {
	initiator, responder := self, peer
	if role == message.Vendor {
		initiator, responder = peer, self
	}
	first := envelope.FirstPrev(initiator, responder, contextID)
	return Session{
		Version: sessionVersion, Role: role, Self: self, Peer: peer, ContextID: contextID, Phase: PhaseMeta,
		Head: first, Acked: first, Meta: meta, Started: now.UTC(), Deadline: now.UTC().Add(lifetime),
	}
}

// Agreement is the concluded meta-protocol agreement, nil before.
func (s *Session) Agreement() *metaproto.Agreement {
	a, _ := s.Meta.Concluded()
	return a
}

// AgreementDigest is what the next message must name: the agreement's digest, zero before there is one.
func (s *Session) AgreementDigest() canon.Digest {
	a := s.Agreement()
	if a == nil {
		return canon.Digest{}
	}
	if s.agreed.IsZero() {
		s.agreed = a.Digest()
	}
	return s.agreed
}

// refuse makes the refusal of one message: nothing changed.
func refuse(code envelope.Code, format string, args ...any) error {
	return envelope.Refuse(code, format, args...)
}

// end moves to a final phase.
func (s Session) end(p Phase, code, reason string, fx *Effects) Session {
	s.Phase, s.Code, s.Reason = p, code, reason
	fx.log(&s, ledger.NegotiationEnded, ledger.Ended{Outcome: outcome(p), Code: code, Reason: clip(reason)})
	return s
}

func outcome(p Phase) string {
	if p == PhaseInForce {
		return "agreed"
	}
	return string(p)
}

// clip bounds a text that goes into the log.
func clip(s string) string { return text.Clip(s, 1000) }

// decline ends the conversation in phase p, in our turn, with a rejection that the peer is told.
func (s Session) decline(p Phase, code, reason string, fx Effects) (Session, Effects, error) {
	reason = clip(reason)
	d, err := s.body(message.Body{Intent: message.Reject, Code: code, Reason: reason})
	if err != nil {
		return s, fx, err
	}
	fx.Reply = d
	return s.end(p, code, reason, &fx), fx, nil
}

// cited makes the agreement final: the peer's signed message named it.
func (s Session) cited(digest canon.Digest, p metaproto.Policy, now time.Time) (Session, error) {
	if s.Meta.Phase != metaproto.PhaseAccepted {
		return s, nil
	}
	meta, _, err := metaproto.Step(s.Meta, metaproto.Cited{Agreement: digest}, p, now)
	if err != nil {
		return s, refuse(envelope.CodeAgreementMismatch, "%v", err)
	}
	s.Meta = meta
	return s, nil
}

// received notes that the peer's envelope is the conversation's last.
func (s Session) received(seq int64, digest canon.Digest) Session {
	s.Seq, s.PeerSeq, s.Head, s.Acked = seq, seq, digest, digest
	return s
}

// Sent notes our own envelope as the conversation's last.
func (s Session) Sent(seq int64, digest canon.Digest) Session {
	s.Seq, s.Head = seq, digest
	return s
}

// round logs one meta-protocol message.
func round(fx *Effects, s *Session, kind string, m *metaproto.Message) {
	names := make([]string, 0, len(m.Candidates))
	for _, c := range m.Candidates {
		names = append(names, c.Transport+", "+c.DataPlane+", contract schema "+c.ContractSchema)
	}
	summary := m.ModificationSummary
	if m.Status == metaproto.StatusAccepted {
		summary = "" // says the candidate again, in words
	}
	fx.log(s, kind, ledger.Round{Round: m.SequenceID + 1, Status: string(m.Status), Candidates: names, Summary: clip(summary)})
}

// Begin makes the buyer's first round.
func (s Session) Begin(p metaproto.Policy, now time.Time) (Session, Effects, error) {
	var fx Effects
	if s.Role != message.Buyer || s.Seq != 0 {
		return s, fx, fmt.Errorf("negotiation: a conversation begins once, by the buyer")
	}
	meta, m, err := metaproto.Step(s.Meta, metaproto.Begin{}, p, now)
	if err != nil {
		return s, fx, err
	}
	s.Meta = meta
	return s.sendRound(m, fx)
}

func (s Session) sendRound(m *metaproto.Message, fx Effects) (Session, Effects, error) {
	if m == nil {
		return s, fx, nil
	}
	body, err := m.Canonical()
	if err != nil {
		return s, fx, err
	}
	round(&fx, &s, ledger.MetaprotoSent, m)
	fx.Reply = &Draft{Type: envelope.TypeMetaproto, Body: body}
	return s, fx, nil
}

// Round takes the peer's meta-protocol message: signed by kid, verified, in order. read is what its text was taken to mean, if
// anybody read it.
func (s Session) Round(body []byte, kid string, read []metaproto.Candidate, p metaproto.Policy, now time.Time) (Session, Effects, error) {
	var fx Effects
	if s.Phase != PhaseMeta {
		return s, fx, refuse(envelope.CodeUnexpectedType, "the rounds have ended; this conversation is in phase %s", s.Phase)
	}
	m, err := metaproto.ParseMessage(body)
	if err != nil {
		return s, fx, refuse(envelope.CodeMalformed, "meta-protocol message: %v", err)
	}
	if d := m.Digest(); d.Equal(s.Meta.LastIn) {
		// An exact repetition is answered from the record before it comes here; in a new envelope it would make the rounds endless.
		return s, fx, refuse(envelope.CodeReplayed, "this round was made already")
	}
	meta, reply, err := metaproto.Step(s.Meta, metaproto.Interpreted{Receive: metaproto.Receive{Message: m, SignerKID: kid}, Read: read}, p, now)
	switch {
	case errors.Is(err, metaproto.ErrOutOfOrder):
		return s, fx, refuse(envelope.CodeOutOfOrder, "meta-protocol: %v", err)
	case errors.Is(err, metaproto.ErrSigner):
		return s, fx, refuse(envelope.CodeAgreementMismatch, "meta-protocol: %v", err)
	case err != nil:
		return s, fx, refuse(envelope.CodeMalformed, "meta-protocol: %v", err)
	}
	s.Meta = meta
	round(&fx, &s, ledger.MetaprotoReceived, &m)
	s, fx, err = s.sendRound(reply, fx)
	if err != nil {
		return s, fx, err
	}
	switch {
	case s.Agreement() != nil:
		s.Phase = PhaseAsking
		a := s.Agreement()
		fx.log(&s, ledger.MetaprotoAgreed, ledger.Agreement{
			Digest: a.Digest(), ContractSchema: a.Candidate.ContractSchema, Suite: string(a.Candidate.HPKESuite),
			SessionKeys: a.Candidate.SessionKeys, Transport: a.Candidate.Transport, DataPlane: a.Candidate.DataPlane, Rounds: len(a.Rounds),
		})
	case meta.Phase == metaproto.PhaseRejected:
		s = s.end(PhaseRejected, "NO_AGREEMENT", meta.Reason, &fx)
	case meta.Phase == metaproto.PhaseTimeout:
		s = s.end(PhaseExpired, "NO_AGREEMENT", meta.Reason, &fx)
	}
	return s, fx, nil
}

// mayAsk says whether a proposal fits the phase and the agreed number of them.
func (s *Session) mayAsk() bool {
	if s.Phase != PhaseAsking && s.Phase != PhaseOffered {
		return false
	}
	limits := s.Agreement().Candidate.Limits
	return s.Asks < limits.MaxRounds && s.Offers < limits.MaxOffers
}

// peerSpokeLast: it is our turn.
func (s *Session) peerSpokeLast() bool { return s.Seq > 0 && s.Seq == s.PeerSeq }

// body makes a negotiation message of our own.
func (s *Session) body(b message.Body) (*Draft, error) {
	b.From = s.speaker().String()
	if err := s.checkVersion(&b); err != nil {
		return nil, err
	}
	data, err := b.Marshal(s.Role)
	if err != nil {
		return nil, err
	}
	return &Draft{Type: envelope.TypeNegotiation, Body: data}, nil
}

// checkVersion refuses terms of another contract schema than the agreed one, by name. A proposal may leave terms out, an
// offer names its version exactly.
func (s *Session) checkVersion(b *message.Body) error {
	agreed, ok := s.ContractVersion()
	if !ok || b.Scope == nil && b.Offer == nil {
		return nil
	}
	switch {
	case b.Offer != nil && b.Offer.ContractVersion() != agreed:
		return refuse(envelope.CodeVersionMismatch, "an offer of contract schema version %d; agreed is version %d", b.Offer.ContractVersion(), agreed)
	case b.Scope != nil && b.Scope.Needs() > agreed:
		return refuse(envelope.CodeVersionMismatch, "the terms need contract schema version %d; agreed is version %d", b.Scope.Needs(), agreed)
	}
	return nil
}

// ContractVersion is the agreed version of the contract schema, and whether there is one that this node builds.
func (s *Session) ContractVersion() (int, bool) {
	a := s.Agreement()
	if a == nil {
		return 0, false
	}
	return contract.ParseVersion(a.Candidate.ContractSchema)
}

// step makes a contract message of our own.
func (s *Session) step(st message.Step) (*Draft, error) {
	st.From = s.speaker().String()
	data, err := st.Marshal(s.Role)
	if err != nil {
		return nil, err
	}
	return &Draft{Type: envelope.TypeContract, Body: data}, nil
}

// Withdraw ends the conversation from this side. A buyer whose proof is out asks for the end and goes on waiting: the vendor
// may have activated the contract already, and its commit order decides.
func (s Session) Withdraw(reason string) (Session, Effects, error) {
	if s.Phase.Terminal() {
		return s, Effects{}, refuse(envelope.CodeConversationEnded, "the conversation has ended: %s", s.Phase)
	}
	if s.Phase != PhaseActivating {
		return s.leave(PhaseWithdrawn, "WITHDRAWN", reason)
	}
	var fx Effects
	d, err := s.body(message.Body{Intent: message.Withdraw, Reason: reason})
	if err != nil {
		return s, fx, err
	}
	s.Leaving, d.Prev = true, s.Acked
	fx.Reply, fx.Aside = d, true
	fx.log(&s, ledger.NegotiationWithdrawn, ledger.Withdrawn{By: s.speaker().String(), Reason: clip(reason)})
	return s, fx, nil
}

// leave ends the conversation in phase p with a withdrawal, which may be sent out of turn.
func (s Session) leave(p Phase, code, reason string) (Session, Effects, error) {
	var fx Effects
	d, err := s.body(message.Body{Intent: message.Withdraw, Reason: reason})
	if err != nil {
		return s, fx, err
	}
	fx.Reply, d.Prev = d, s.Acked // it follows the last message that both sides are known to hold
	fx.log(&s, ledger.NegotiationWithdrawn, ledger.Withdrawn{By: s.speaker().String(), Reason: clip(reason)})
	return s.end(p, code, reason, &fx), fx, nil
}

// withdrawn takes the peer's withdrawal, which may come out of turn.
func (s Session) withdrawn(b *message.Body, fx Effects) (Session, Effects) {
	fx.log(&s, ledger.NegotiationWithdrawn, ledger.Withdrawn{By: s.listener().String(), Reason: clip(b.Reason)})
	return s.end(PhaseWithdrawn, "WITHDRAWN", b.Reason, &fx), fx
}

// Expire ends a conversation whose deadline has passed. A buyer whose proof is out stays: only the vendor's signed answer
// says whether the contract came into force.
func (s Session) Expire(now time.Time) (Session, Effects, bool) {
	var fx Effects
	if s.Phase.Terminal() || s.Phase == PhaseActivating || now.Before(s.Deadline) {
		return s, fx, false
	}
	return s.end(PhaseExpired, "DEADLINE", "no conclusion by "+s.Deadline.Format(time.RFC3339), &fx), fx, true
}

// Fail ends the conversation because of an error that no further message can mend.
func (s Session) Fail(code, reason string) (Session, Effects) {
	var fx Effects
	if s.Phase.Terminal() {
		return s, fx
	}
	return s.end(PhaseFailed, code, reason, &fx), fx
}

// build makes the contract that accepting the standing offer leads to. Its parties are the DIDs in the header of the accept: both
// sides have the same bytes of it, however often either has moved before or moves afterwards.
func (s *Session) build(transcript canon.Digest, buyer, vendor did.DID) (*contract.Contract, error) {
	return contract.Build(s.Offer, contract.Parties{Buyer: buyer.String(), Vendor: vendor.String()}, s.AgreementDigest(), transcript)
}

// inForce records a complete contract.
func (s Session) inForce(c *contract.Contract, a *contract.Activation, now time.Time, fx *Effects) (Session, error) {
	digest, err := c.Digest()
	if err != nil {
		return s, err
	}
	bytes, err := c.Marshal()
	if err != nil {
		return s, err
	}
	activation, err := a.Marshal()
	if err != nil {
		return s, err
	}
	s.Contract = c
	fx.Record = &store.ContractRecord{
		ID: c.ID, Digest: digest, Role: string(s.Role), Bytes: bytes, Activation: activation, State: store.InForce,
		ContextID: s.ContextID, Peer: s.Peer.String(), Created: now.UTC(),
	}
	vendorProof := c.Proofs[1]
	fx.log(&s, ledger.ContractProof, ledger.ProofAdded{By: c.Parties.Vendor, KeyID: vendorProof.VerificationMethod, Digest: digest})
	fx.log(&s, ledger.ContractActivated, ledger.Activated{Digest: digest, ActivatedAt: a.ActivatedAt})
	fx.log(&s, ledger.ContractInForce, ledger.InForce{Digest: digest, Dataset: c.Dataset, Purpose: c.Purpose, ValidUntil: c.ValidUntil})
	return s.end(PhaseInForce, "", "", fx), nil
}

// What entries of the log hold of lists that a peer has written, in bytes of JSON text before escapes, which at most double
// it: ledger.MaxEventBytes has room for all of them. The envelope holds the rest.
const (
	maxLoggedColumns = 8 << 10
	maxLoggedRemoved = 16 << 10
)

// fitting is how many of n items, of these sizes, go into limit.
func fitting(n, limit int, size func(i int) int) int {
	for i := range n {
		if limit -= size(i); limit < 0 {
			return i
		}
	}
	return n
}

func loggedColumns(names []string) []string {
	n := fitting(len(names), maxLoggedColumns, func(i int) int { return len(`"",`) + len(names[i]) })
	if n == len(names) {
		return names
	}
	return append(slices.Clone(names[:n]), fmt.Sprintf("… and %d more", len(names)-n))
}

func proposal(sc *contract.Scope, rationale string) ledger.Proposal {
	return ledger.Proposal{Columns: loggedColumns(sc.Columns), Operations: sc.Operations, Purpose: sc.Purpose, RetentionDays: sc.RetentionDays, Rationale: clip(rationale)}
}

func offerEvent(o *contract.Offer, digest canon.Digest) ledger.Offer {
	return ledger.Offer{
		Digest: digest, Columns: loggedColumns(o.Columns), Operations: o.Operations, RetentionDays: o.RetentionDays, MinGroupSize: o.MinGroupSize,
		CallBudget: o.CallBudget, ExpiresAt: o.ExpiresAt, Removed: loggedRemovals(o.Removed),
	}
}

func loggedRemovals(all []contract.Removal) []ledger.Removal {
	n := fitting(len(all), maxLoggedRemoved, func(i int) int {
		r := &all[i]
		return len(`{"asked":"","offered":"","rule":"","what":"","why":""},`) + len(r.What) + len(r.Asked) + len(r.Offered) + len(r.Rule) + len(r.Why)
	})
	removed := make([]ledger.Removal, 0, n+1)
	for _, r := range all[:n] {
		removed = append(removed, ledger.Removal(r))
	}
	if more := len(all) - n; more > 0 {
		removed = append(removed, ledger.Removal{What: "more", Why: fmt.Sprintf("%d more differences are not shown here", more)})
	}
	return removed
}
