// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/internal/crashpoint"
	"github.com/treaty-node/treaty/node/internal/pace"
	"github.com/treaty-node/treaty/node/negotiation/message"
	"github.com/treaty-node/treaty/node/negotiation/policy"
	"github.com/treaty-node/treaty/node/store"
)

// Keys are what the node talks with.
type Keys struct {
	Binding         did.Signer // signs envelopes, contracts and activations
	KeyAgreementKID string     // the X25519 key that new conversations name
	HybridKID       string     // the X-Wing key that they name beside it; "" for none
	Vault           Vault      // seals session keys; nil: none are offered, and none can be opened
	Opener          hpke.Opener
	Document        *did.Document // the node's own, as published
	// Owns says whether a DID is this node's own: the document's, or one that it has moved on from. Nil: only the document's.
	Owns func(did.DID) bool
	// Former is the last document of a DID that this node has moved on from, nil for others.
	Former func(did.DID) *did.Document
}

// Resolver returns verified documents only; it fails closed (invariant 12).
type Resolver interface {
	Resolve(ctx context.Context, id did.DID) (*did.Document, error)
}

// Route is a way to a verified counterparty.
type Route interface {
	// Send delivers one envelope over the transport (as metaproto names it, or "" for any) and returns the answer. A
	// refusal is an *envelope.Refusal; every other error is a transport fault.
	Send(ctx context.Context, transport, contextID, taskID string, env []byte) (Answer, error)
	// Schema is the published schema of a dataset, nil when there is none.
	Schema(dataset string) *contract.Schema
}

// Answer is what a counterparty's node said to an envelope.
type Answer struct {
	Envelope []byte // nil: none
	TaskID   string
	Working  bool // it has the message and will answer when it is sent again
}

// Connector finds and verifies a counterparty.
type Connector interface {
	Connect(ctx context.Context, peer did.DID) (Route, error)
}

// Ask is a proposal to be decided by the vendor.
type Ask struct {
	Peer      did.DID
	ContextID string
	Scope     contract.Scope
	Version   int    // of the contract schema that was agreed on; 0 counts as 1
	Offers    int    // made so far in this conversation
	Rationale string // the peer's text: for who reads texts
	// Replaces is the contract that Scope amends, if the peer may replace it as far as is known; zero otherwise.
	Replaces contract.Reference
}

// Decider is the vendor's side of a negotiation. Whatever it is, code has narrowed what it returns.
type Decider interface {
	Decide(ctx context.Context, ask Ask, now time.Time) (policy.Outcome, error)
}

// Amendments is what becomes of a contract when another one, which names it, comes into force.
type Amendments interface {
	// Replaceable says why a contract of buyer may not replace old, as of tx; "" when it may.
	Replaceable(tx store.Tx, old contract.Reference, buyer did.DID) (why string, err error)
	// Replaced ends the contract that c amends, in the transaction that stores c as in force.
	Replaced(ctx context.Context, tx store.Tx, c *contract.Contract) error
}

// Config sets up a Service. All fields are needed except Lines (nobody moves), Amendments (no contract replaces another), Decider
// (no dataset on offer), Drafter and Adviser (code decides alone), Reader (texts are not read), Connector (never a buyer), MaxOpen,
// PerHour, Sleep and Log.
type Config struct {
	Keys func() Keys
	// Speaks says, in the transaction that stores a signed message, whether the node still speaks under that DID with the keys
	// that Keys returned last; store.ErrConflict when not. nil: it always does.
	Speaks    func(tx store.Tx, self did.DID) error
	Store     store.Store
	Resolver  Resolver
	Lines     Lines
	Contracts func(did.DID) error // trust policy: may it contract?
	Meta      func() metaproto.Policy
	Decider   Decider
	Drafter   Drafter // needs a Decider that is a Narrower
	Adviser   Adviser
	Reader    Reader
	// Later is told of each conversation that waits for [Service.Conclude]; it must not wait for it.
	Later     func(contextID string)
	Connector Connector
	// Amendments ends contracts that are replaced.
	Amendments Amendments
	Now        func() time.Time
	Skew       time.Duration
	Lifetime   time.Duration                                    // of a message
	Deadline   time.Duration                                    // of a conversation
	MaxOpen    int                                              // conversations that one buyer may have open at a time; 0: 64
	PerHour    int                                              // conversations that one buyer may open in an hour; 0: 240
	Sleep      func(ctx context.Context, d time.Duration) error // between the buyer's retries; nil: time passes
	Log        *slog.Logger
}

// Service runs negotiations for one node. It is safe for concurrent use, also by several processes over one store.
type Service struct {
	cfg      Config
	driven   inFlight
	refusals refusals
	openings *pace.Hourly
}

// ErrUnproven: a document without proof, in which whoever serves it can have put any key.
var ErrUnproven = errors.New("the document has no proof by the key in its DID")

// Bounds of what one buyer opens. An ended conversation stays in the store with its messages, as evidence; a buyer that opens and
// withdraws without end must not be able to fill the disk with that.
const (
	defaultMaxOpen     = 64
	defaultOpenPerHour = 240
)

// New makes a Service.
func New(cfg Config) *Service {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxOpen <= 0 {
		cfg.MaxOpen = defaultMaxOpen
	}
	if cfg.PerHour <= 0 {
		cfg.PerHour = defaultOpenPerHour
	}
	if cfg.Sleep == nil {
		cfg.Sleep = clock.Sleep
	}
	return &Service{cfg: cfg, driven: inFlight{running: map[string]bool{}}, openings: pace.NewHourly(cfg.PerHour)}
}

// Result is what a received envelope led to.
type Result struct {
	TaskID, ContextID string
	Phase             Phase
	Role              message.Role
	Reply             []byte // envelope for the peer, nil for none
	Artifact          bool   // the reply is the finished contract
	Updated           time.Time
}

const maxAttempts = 5 // at one message, when other messages of the conversation come between

// TaskID is the A2A task of a conversation: derived, so that a retried first message finds the same one.
func TaskID(vendor, buyer did.DID, contextID string) string {
	h := canon.Hash("treaty task id v1", []byte(vendor.String()+"\n"+buyer.String()+"\n"+contextID))
	return "neg-" + base64.RawURLEncoding.EncodeToString(h[:16])
}

func (s *Service) self() did.DID { return s.cfg.Keys().Document.ID() }

// inbound is a verified message on its way into the conversation.
type inbound struct {
	env     *envelope.Envelope
	raw     []byte
	peer    *did.Document // of from: what it was signed under
	opened  envelope.Opened
	kind    envelope.Type // what it is, or carries when it is a move
	content []byte        // its body, or what that carries
	body    *message.Body
	step    *message.Step

	moved     *message.Moved // its sender goes on under another DID
	line      *did.Line      // of the sender, from the DID that the conversation began with; verified
	successor *did.Document  // from has one by now, and this is its document

	read []metaproto.Candidate // what the text of a round without candidates was taken to mean

	inOrder bool    // the signed message is the next one of its conversation, whatever else is wrong with it
	ending  *ending // it is a proof that can only be answered with a signed rejection
}

// ending is why.
type ending struct{ code, reason string }

// Receive takes one envelope that caller, verified by its HTTP signature, has sent. When it returns without error, the
// effect, its events and the reply are durable. The same bytes again get the same reply. Errors that wrap an
// *envelope.Refusal are for the peer; others are internal.
func (s *Service) Receive(ctx context.Context, caller did.DID, raw []byte) (Result, error) {
	env, err := envelope.Parse(raw, 0)
	if err != nil {
		return Result{}, s.refused(ctx, caller, nil, err)
	}
	if env.Signer() != env.From {
		return Result{}, s.refused(ctx, caller, env, refuse(envelope.CodeWrongSender, "sent by %s, signed by %s, called by %s", env.From, env.Signer(), caller))
	}
	in := &inbound{env: env, raw: raw}
	if err := s.sender(ctx, in, caller); err != nil {
		return Result{}, s.refused(ctx, caller, env, err)
	}
	if err := s.authentic(in); err != nil {
		return Result{}, s.refused(ctx, caller, env, err)
	}
	for range maxAttempts {
		found, err := s.look(ctx, in)
		if err != nil {
			return Result{}, s.refused(ctx, caller, env, err)
		}
		if found.known != nil {
			return *found.known, nil
		}
		res, err := s.receive(ctx, in, found)
		if errors.Is(err, store.ErrConflict) {
			continue // another message of this conversation, or this one again, came between
		}
		if err != nil {
			return Result{}, s.refused(ctx, caller, env, err)
		}
		return res, nil
	}
	return Result{}, refuse(envelope.CodeUnavailable, "the conversation is busy; send the same message again")
}

// authentic checks the signature, and that the message is for this node. Who may speak for its sender was checked before.
func (s *Service) authentic(in *inbound) error {
	env, at := in.env, s.cfg.Now()
	if in.successor != nil {
		at = env.Created() // its keys have ended since
	}
	if err := env.VerifyWith(in.peer, at); err != nil {
		return err
	}
	self := s.self()
	if s.cfg.Keys().owns(env.To) {
		self = env.To
	}
	return env.CheckParties(self, env.From)
}

// unresolved tells a peer that is refused from one whose document cannot be had at the moment. Either way nothing is
// accepted (invariant 12), but the second may send the same message again.
func unresolved(err error) error {
	var e *resolver.Error
	if errors.As(err, &e) {
		switch e.Code {
		case resolver.CodeBudget, resolver.CodeUnreachable, resolver.CodeTimeout, resolver.CodeStore, resolver.CodeCanceled:
			return refuse(envelope.CodeUnavailable, "the sender's DID document: %w", err)
		}
	}
	return refuse(envelope.CodeNotTrusted, "the sender's DID document: %w", err)
}

// found is what the store says about a message: the answer to an exact repetition, or where its conversation stands.
type found struct {
	known *Result
	conv  store.Conversation // Version 0: there is none
	ses   Session
}

// look finds the answer to an exact repetition in the record, however old it is, or else the conversation.
func (s *Service) look(ctx context.Context, in *inbound) (f found, err error) {
	err = s.cfg.Store.View(ctx, func(tx store.Tx) error {
		f.conv, err = conversationOf(tx, in.env)
		if errors.Is(err, store.ErrNotFound) {
			f.conv, f.ses, err = s.fresh(in, s.cfg.Now())
			return err
		}
		if err != nil {
			return err
		}
		if f.ses, err = decodeSession(f.conv); err != nil || in.env.Seq > f.ses.PeerSeq && !f.ses.Phase.Terminal() {
			return err // not taken yet
		}
		rec, err := tx.GetEnvelope(f.conv.Own, in.env.Digest())
		if errors.Is(err, store.ErrNotFound) || err == nil && (rec.Direction != store.In || !bytes.Equal(rec.Bytes, in.raw)) {
			return nil
		}
		if err != nil {
			return err
		}
		res := result(f.conv, f.ses)
		reply, err := tx.ReplyOf(f.conv.Own, rec.Digest)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		res.Reply, res.Artifact = reply.Bytes, f.ses.Phase == PhaseInForce && len(reply.Bytes) > 0 && reply.Seq == f.ses.Seq
		f.known = &res
		return nil
	})
	return f, err
}

func decodeSession(c store.Conversation) (Session, error) {
	var ses Session
	if err := json.Unmarshal(c.State, &ses); err != nil {
		return ses, fmt.Errorf("negotiation: state of conversation %s: %w", c.ContextID, err)
	}
	if ses.Version != sessionVersion {
		return ses, fmt.Errorf("negotiation: conversation %s has state version %d", c.ContextID, ses.Version)
	}
	ses.AgreementDigest() // once for all copies of it
	return ses, nil
}

func result(c store.Conversation, ses Session) Result {
	return Result{TaskID: c.TaskID, ContextID: c.ContextID, Phase: ses.Phase, Role: ses.Role, Updated: c.Updated}
}

// receive applies a message that was never seen before.
func (s *Service) receive(ctx context.Context, in *inbound, f found) (Result, error) {
	now := s.cfg.Now()
	conv, ses := f.conv, f.ses
	in.inOrder, in.ending, in.body, in.step, in.moved = false, nil, nil, nil, nil
	if err := s.check(ctx, in, conv.Version > 0, ses, now); err != nil {
		return Result{}, err
	}
	crashpoint.Hit(crashpoint.EnvelopeVerified)
	ses = ses.present(s.cfg.Keys())

	outcome, err := s.decide(ctx, in, &ses, now)
	if err != nil {
		return Result{}, err
	}
	in.read = s.interpret(ctx, in, &ses)
	var res Result
	err = s.cfg.Store.Update(ctx, func(tx store.Tx) error {
		// Everything that depends on the time, and the place in the log, is the transaction's own.
		at := s.cfg.Now()
		if ses.Phase.Terminal() {
			reply, err := s.settle(ctx, tx, ses, in, at)
			res = result(conv, ses)
			res.Reply = reply
			return err
		}
		if conv.Version == 0 {
			if err := s.admit(tx, conv); err != nil {
				return err
			}
		}
		next, fx, err := s.apply(ctx, tx, ses, in, outcome, at)
		if err != nil {
			return err
		}
		next, reply, err := s.commit(ctx, tx, &conv, next, fx, in, in.replyTo(), at)
		if err != nil {
			return err
		}
		res = result(conv, next)
		res.Reply, res.Artifact = reply, next.Phase == PhaseInForce && next.Role == message.Vendor
		return nil
	})
	if err != nil {
		return Result{}, err
	}
	crashpoint.Hit(crashpoint.EnvelopeStored)
	if res.Artifact {
		crashpoint.Hit(crashpoint.ContractActivated)
	}
	if res.Phase == PhaseDeciding && s.cfg.Later != nil {
		s.cfg.Later(res.ContextID)
	}
	return res, nil
}

// decide asks the decider about a proposal. It runs before the transaction, on a state that the compare-and-swap protects, and
// not for a proposal that will not be answered with an offer anyway. Where there is a drafter, what the decider would offer is
// the most that can come of it.
func (s *Service) decide(ctx context.Context, in *inbound, ses *Session, now time.Time) (policy.Outcome, error) {
	if in.body == nil || in.body.Scope == nil || ses.Role != message.Vendor || !ses.mayAsk() {
		return policy.Outcome{}, nil
	}
	if s.cfg.Decider == nil {
		return policy.Outcome{}, refuse(envelope.CodeUnknownDataset, "this node offers no dataset")
	}
	version, _ := ses.ContractVersion()
	ask := Ask{Peer: ses.Peer, ContextID: ses.ContextID, Scope: *in.body.Scope, Version: version, Offers: ses.Offers, Rationale: in.body.Rationale}
	if err := s.replaceable(ctx, &ask); err != nil {
		return policy.Outcome{}, err
	}
	outcome, err := s.cfg.Decider.Decide(ctx, ask, now)
	if err != nil {
		return outcome, err
	}
	outcome = sound(outcome, in.body.Scope)
	if code := envelope.Code(outcome.Code); outcome.Rejected() && (code == envelope.CodeUnknownColumn || code == envelope.CodeUnknownDataset) {
		return outcome, refuse(code, "%s", outcome.Reason)
	}
	if s.cfg.Drafter != nil && !outcome.Rejected() {
		if err := s.cfg.Drafter.Admit(ses.Peer, now); err != nil {
			return outcome, refuse(envelope.CodeUnavailable, "too much is to be decided at the moment; propose again later")
		}
	}
	return outcome, nil
}

// sound holds what a decider says to what was asked; no decision is a rejection.
func sound(o policy.Outcome, ask *contract.Scope) policy.Outcome {
	switch {
	case !o.Rejected() && !o.Offer.Scope.Within(ask):
		return policy.Outcome{Code: policy.CodeDeciderFailed, Reason: "what would be offered is not within what was asked"}
	case o.Rejected() && (o.Code == "" || o.Reason == ""):
		return policy.Outcome{Code: policy.CodeDeciderFailed, Reason: "there was no decision"}
	}
	return o
}

// admit says whether a buyer may open one more conversation: with a contextId that nobody else uses here (C9), and while it
// has not too many open ones.
func (s *Service) admit(tx store.Tx, conv store.Conversation) error {
	switch _, err := tx.FindConversation(conv.Own, conv.ContextID); {
	case err == nil || errors.Is(err, store.ErrConflict):
		return refuse(envelope.CodeMalformed, "the contextId is taken; choose one at random")
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	open := 0
	for _, p := range openPhases {
		list, err := tx.ListConversations(store.ConversationFilter{Own: conv.Own, Peer: conv.Peer, Role: conv.Role, Phase: string(p), Limit: s.cfg.MaxOpen})
		if err != nil {
			return err
		}
		if open += len(list); open >= s.cfg.MaxOpen {
			return refuse(envelope.CodeUnavailable, "%d conversations are open already; conclude some first", open)
		}
	}
	if peer, err := did.Parse(conv.Peer); err != nil || !s.openings.Allow(peer, s.cfg.Now()) {
		return refuse(envelope.CodeUnavailable, "too many conversations were opened in the last hour; try again later")
	}
	return nil
}

// fresh starts the vendor's side of a conversation that a first round opens.
func (s *Service) fresh(in *inbound, now time.Time) (store.Conversation, Session, error) {
	env, keys := in.env, s.cfg.Keys()
	if env.Type != envelope.TypeMetaproto {
		return store.Conversation{}, Session{}, refuse(envelope.CodeNoAgreement, "a conversation begins with the meta-protocol rounds")
	}
	binding, kex := keys.Binding.KeyID(), keys.KeyAgreementKID
	if env.To != keys.Document.ID() {
		// The buyer did not know yet that this node has moved. The rounds begin under the DID that it knows.
		former := keys.former(env.To)
		if former == nil {
			return store.Conversation{}, Session{}, refuse(envelope.CodeWrongRecipient, "the message is for %s", env.To)
		}
		var err error
		if binding, err = former.BindingKeyID(); err == nil {
			kex, _, err = hpke.SelectKey(former, hpke.SuiteX25519, former.ProofCreated())
		}
		if err != nil {
			return store.Conversation{}, Session{}, refuse(envelope.CodeWrongRecipient, "%w", err)
		}
	}
	if err := s.mayContract(in.replyTo()); err != nil {
		return store.Conversation{}, Session{}, err
	}
	var fresh talk // under a former DID, with the key that everybody has
	if env.To == keys.Document.ID() {
		var err error
		if fresh, err = keys.newTalk(env.ContextID); err != nil {
			return store.Conversation{}, Session{}, err
		}
	}
	meta, err := metaproto.New(metaproto.Config{
		Role: metaproto.Responder, ContextID: env.ContextID, Self: env.To, Peer: env.From,
		SigningKID: binding, KeyAgreementKID: kex, Keys: fresh.keys,
	}, s.cfg.Meta(), now)
	if err != nil {
		return store.Conversation{}, Session{}, err
	}
	ses := NewSession(message.Vendor, env.To, env.From, env.ContextID, meta, now, s.cfg.Deadline)
	ses.sealedKeys = fresh.sealed
	return s.conversation(ses), ses, nil
}

func (s *Service) conversation(ses Session) store.Conversation {
	vendor, buyer := ses.Self, ses.Peer
	if ses.Role == message.Buyer {
		vendor, buyer = ses.Peer, ses.Self
	}
	return store.Conversation{
		Own: ses.Self.String(), Peer: ses.Peer.String(), ContextID: ses.ContextID, Role: string(ses.Role),
		TaskID: TaskID(vendor, buyer, ses.ContextID),
	}
}

// mayContract is the trust policy's word, and two rules: a document which mixes key roles never contracts, nor one for which
// the key in its DID does not vouch, as a k1_ document without proof. (Where policy lets DIDs without such a key contract, the
// domain's word is what it decided to take.)
func (s *Service) mayContract(doc *did.Document) error {
	if err := s.cfg.Contracts(doc.ID()); err != nil {
		return refuse(envelope.CodeNotTrusted, "%w", err)
	}
	if err := doc.CheckRoles(); err != nil {
		return refuse(envelope.CodeNotTrusted, "the document mixes key roles: %w", err)
	}
	if doc.ID().Fingerprint() != "" && !doc.Bound() {
		return refuse(envelope.CodeNotTrusted, "%w", ErrUnproven)
	}
	return nil
}
