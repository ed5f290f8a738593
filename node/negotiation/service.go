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
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/internal/crashpoint"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation/message"
	"github.com/treaty-node/treaty/node/negotiation/policy"
	"github.com/treaty-node/treaty/node/store"
)

// Keys are what the node talks with.
type Keys struct {
	Binding         did.Signer // signs envelopes, contracts and activations
	KeyAgreementKID string
	Opener          hpke.Opener
	Document        *did.Document // the node's own, as published
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
}

// Connector finds and verifies a counterparty.
type Connector interface {
	Connect(ctx context.Context, peer did.DID) (Route, error)
}

// Ask is a proposal to be decided by the vendor.
type Ask struct {
	Peer   did.DID
	Scope  contract.Scope
	Offers int // made so far in this conversation
}

// Decider is the vendor's side of a negotiation. Whatever it is, code has narrowed what it returns.
type Decider interface {
	Decide(ctx context.Context, ask Ask, now time.Time) (policy.Outcome, error)
}

// Config sets up a Service. All fields are needed except Decider (no dataset on offer) and Connector (never a buyer).
type Config struct {
	Keys      func() Keys
	Store     store.Store
	Resolver  Resolver
	Contracts func(did.DID) error // trust policy: may it contract?
	Meta      func() metaproto.Policy
	Decider   Decider
	Connector Connector
	Now       func() time.Time
	Skew      time.Duration
	Lifetime  time.Duration // of a message
	Deadline  time.Duration // of a conversation
	Log       *slog.Logger
}

// Service runs negotiations for one node. It is safe for concurrent use, also by several processes over one store.
type Service struct {
	cfg    Config
	driven inFlight
}

// New makes a Service.
func New(cfg Config) *Service {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{cfg: cfg, driven: inFlight{running: map[string]bool{}}}
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
	env    *envelope.Envelope
	raw    []byte
	peer   *did.Document
	opened envelope.Opened
	body   *message.Body
	step   *message.Step
}

// Receive takes one envelope that caller, verified by its HTTP signature, has sent. When it returns without error, the
// effect, its events and the reply are durable. The same bytes again get the same reply. Errors that wrap an
// *envelope.Refusal are for the peer; others are internal.
func (s *Service) Receive(ctx context.Context, caller did.DID, raw []byte) (Result, error) {
	env, err := envelope.Parse(raw, 0)
	if err != nil {
		return Result{}, s.refused(ctx, caller, nil, err)
	}
	if env.From != caller || env.Signer() != caller {
		return Result{}, s.refused(ctx, caller, env, refuse(envelope.CodeWrongSender, "sent by %s, signed by %s, called by %s", env.From, env.Signer(), caller))
	}
	in := &inbound{env: env, raw: raw}
	if in.peer, err = s.cfg.Resolver.Resolve(ctx, caller); err != nil {
		return Result{}, s.refused(ctx, caller, env, refuse(envelope.CodeNotTrusted, "the sender's DID document: %w", err))
	}
	if err := env.VerifyWith(in.peer, s.cfg.Now()); err != nil {
		return Result{}, s.refused(ctx, caller, env, err)
	}
	if err := env.CheckParties(s.self(), caller); err != nil {
		return Result{}, s.refused(ctx, caller, env, err)
	}
	for range maxAttempts {
		if res, ok, err := s.recorded(ctx, env, raw); err != nil || ok {
			return res, err
		}
		res, err := s.receive(ctx, in)
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

// recorded answers an exact repetition from the record, however old it is.
func (s *Service) recorded(ctx context.Context, env *envelope.Envelope, raw []byte) (res Result, ok bool, err error) {
	err = s.cfg.Store.View(ctx, func(tx store.Tx) error {
		rec, err := tx.GetEnvelope(s.self().String(), env.Digest())
		if errors.Is(err, store.ErrNotFound) || err == nil && (rec.Direction != store.In || !bytes.Equal(rec.Bytes, raw)) {
			return nil
		}
		if err != nil {
			return err
		}
		conv, err := tx.GetConversation(rec.Own, rec.Peer, rec.ContextID)
		if err != nil {
			return err
		}
		ses, err := decodeSession(conv)
		if err != nil {
			return err
		}
		res, ok = result(conv, ses), true
		reply, err := tx.ReplyOf(rec.Own, rec.Digest)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		res.Reply = reply.Bytes
		res.Artifact = ses.Phase == PhaseInForce && reply.Seq == ses.Seq
		return nil
	})
	return res, ok, err
}

func decodeSession(c store.Conversation) (Session, error) {
	var ses Session
	if err := json.Unmarshal(c.State, &ses); err != nil {
		return ses, fmt.Errorf("negotiation: state of conversation %s: %w", c.ContextID, err)
	}
	if ses.Version != sessionVersion {
		return ses, fmt.Errorf("negotiation: conversation %s has state version %d", c.ContextID, ses.Version)
	}
	return ses, nil
}

func result(c store.Conversation, ses Session) Result {
	return Result{TaskID: c.TaskID, ContextID: c.ContextID, Phase: ses.Phase, Role: ses.Role, Updated: c.Updated}
}

// receive applies a message that was never seen before.
func (s *Service) receive(ctx context.Context, in *inbound) (Result, error) {
	now := s.cfg.Now()
	conv, ses, err := s.load(ctx, in.env)
	if errors.Is(err, store.ErrNotFound) {
		conv, ses, err = s.fresh(in, now)
	}
	if err != nil {
		return Result{}, err
	}
	if err := s.check(ctx, in, conv, ses, now); err != nil {
		return Result{}, err
	}
	crashpoint.Hit(crashpoint.EnvelopeVerified)

	var outcome policy.Outcome
	if in.body != nil && ses.Role == message.Vendor && in.body.Scope != nil {
		// The decider may be slow; it runs before the transaction, on a state that the compare-and-swap protects.
		if s.cfg.Decider == nil {
			return Result{}, refuse(envelope.CodeUnknownDataset, "this node offers no dataset")
		}
		outcome, err = s.cfg.Decider.Decide(ctx, Ask{Peer: ses.Peer, Scope: *in.body.Scope, Offers: ses.Offers}, now)
		if err != nil {
			return Result{}, err
		}
		if code := envelope.Code(outcome.Code); outcome.Rejected() && (code == envelope.CodeUnknownColumn || code == envelope.CodeUnknownDataset) {
			return Result{}, refuse(code, "%s", outcome.Reason)
		}
	}
	var res Result
	err = s.cfg.Store.Update(ctx, func(tx store.Tx) error {
		// Everything that depends on the time, and the place in the log, is the transaction's own.
		at := s.cfg.Now()
		next, fx, err := s.apply(ctx, tx, ses, in, outcome, at)
		if err != nil {
			return err
		}
		next, reply, err := s.commit(ctx, tx, &conv, ses, next, fx, in, at)
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
	return res, nil
}

func (s *Service) load(ctx context.Context, env *envelope.Envelope) (conv store.Conversation, ses Session, err error) {
	err = s.cfg.Store.View(ctx, func(tx store.Tx) error {
		if conv, err = tx.GetConversation(env.To.String(), env.From.String(), env.ContextID); err != nil {
			return err
		}
		ses, err = decodeSession(conv)
		return err
	})
	return conv, ses, err
}

// fresh starts the vendor's side of a conversation that a first round opens.
func (s *Service) fresh(in *inbound, now time.Time) (store.Conversation, Session, error) {
	env, keys := in.env, s.cfg.Keys()
	if env.Type != envelope.TypeMetaproto {
		return store.Conversation{}, Session{}, refuse(envelope.CodeNoAgreement, "a conversation begins with the meta-protocol rounds")
	}
	if err := s.mayContract(in.peer); err != nil {
		return store.Conversation{}, Session{}, err
	}
	meta, err := metaproto.New(metaproto.Config{
		Role: metaproto.Responder, ContextID: env.ContextID, Self: env.To, Peer: env.From,
		SigningKID: keys.Binding.KeyID(), KeyAgreementKID: keys.KeyAgreementKID,
	}, s.cfg.Meta(), now)
	if err != nil {
		return store.Conversation{}, Session{}, err
	}
	ses := NewSession(message.Vendor, env.To, env.From, env.ContextID, meta, now, s.cfg.Deadline)
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

// mayContract is the trust policy's word, and the rule that a document which mixes key roles never contracts.
func (s *Service) mayContract(doc *did.Document) error {
	if err := s.cfg.Contracts(doc.ID()); err != nil {
		return refuse(envelope.CodeNotTrusted, "%w", err)
	}
	if err := doc.CheckRoles(); err != nil {
		return refuse(envelope.CodeNotTrusted, "the document mixes key roles: %w", err)
	}
	return nil
}

// check makes every check that comes before a change of state (invariant 1), opens the message and reads it strictly.
func (s *Service) check(ctx context.Context, in *inbound, conv store.Conversation, ses Session, now time.Time) error {
	env := in.env
	if conv.Version > 0 {
		if proven, err := s.equivocation(ctx, in, ses, now); err != nil {
			return err
		} else if proven {
			return refuse(envelope.CodeEquivocation, "another message of yours has seq %d; both are kept as proof, and the conversation is over", in.env.Seq)
		}
	}
	if ses.Phase.Terminal() {
		return refuse(envelope.CodeConversationEnded, "the conversation has ended: %s", ses.Phase)
	}
	err := env.Check(s.expect(env, ses, now))
	if err != nil {
		if !s.lateProof(err, env, ses) && !s.outOfTurn(ctx, err, in, ses, now) {
			return err
		}
	}
	if err := s.open(ctx, in, ses); err != nil {
		return err
	}
	return s.read(in, ses, err != nil && !s.lateProof(err, env, ses))
}

func (s *Service) expect(env *envelope.Envelope, ses Session, now time.Time) envelope.Expect {
	x := envelope.Expect{
		Self: ses.Self, Caller: ses.Peer, Seq: ses.Seq + 1, Prev: ses.Head, Agreement: ses.AgreementDigest(), Now: now, Skew: s.cfg.Skew,
	}
	if a := ses.Agreement(); a != nil && env.Type != envelope.TypeMetaproto {
		if _, peer, ok := a.Sides(ses.Self); ok {
			x.KeyID = peer.SigningKID
		}
	}
	return x
}

// lateProof: a proof that comes after its time is in order otherwise, and gets the vendor's signed rejection, which
// settles on both sides that there is no contract. Nothing comes into force by it.
func (s *Service) lateProof(err error, env *envelope.Envelope, ses Session) bool {
	return envelope.CodeOf(err) == envelope.CodeExpired && ses.Role == message.Vendor && ses.Phase == PhaseAccepted &&
		env.Type == envelope.TypeContract && env.Agreement.Equal(ses.AgreementDigest())
}

// outOfTurn: only a withdrawal may come out of turn. It names an envelope of this conversation as prev and a seq that its
// sender has not used; everything else is checked as always. Whether it is a withdrawal shows when it is opened.
func (s *Service) outOfTurn(ctx context.Context, err error, in *inbound, ses Session, now time.Time) bool {
	code := envelope.CodeOf(err)
	if code != envelope.CodeOutOfOrder && code != envelope.CodeReplayed || in.env.Type != envelope.TypeNegotiation || in.env.Seq <= ses.PeerSeq {
		return false
	}
	known := s.cfg.Store.View(ctx, func(tx store.Tx) error {
		rec, err := tx.GetEnvelope(ses.Self.String(), in.env.Prev)
		if err == nil && (rec.Peer != ses.Peer.String() || rec.ContextID != ses.ContextID) {
			return store.ErrNotFound
		}
		return err
	})
	if known != nil {
		return false
	}
	x := s.expect(in.env, ses, now)
	x.Seq, x.Prev = in.env.Seq, in.env.Prev
	return in.env.Check(x) == nil
}

func (s *Service) open(ctx context.Context, in *inbound, ses Session) error {
	var with envelope.OpenWith
	if a := ses.Agreement(); a != nil {
		own, _, _ := a.Sides(ses.Self)
		with = envelope.OpenWith{Suite: a.Candidate.HPKESuite, RecipientKID: own.KeyAgreementKID}
	}
	var err error
	in.opened, err = envelope.Open(ctx, in.env, s.cfg.Keys().Opener, with)
	return err
}

// read decodes the body strictly and checks that it speaks for its sender alone (invariant 2, C3).
func (s *Service) read(in *inbound, ses Session, onlyWithdraw bool) error {
	peerRole := message.Vendor
	if ses.Role == message.Vendor {
		peerRole = message.Buyer
	}
	var err error
	var from string
	switch in.env.Type {
	case envelope.TypeMetaproto:
		return nil
	case envelope.TypeNegotiation:
		if in.body, err = message.Parse(in.opened.Body, peerRole); err == nil {
			from = in.body.From
		}
	case envelope.TypeContract:
		if in.step, err = message.ParseStep(in.opened.Body, peerRole); err == nil {
			from = in.step.From
		}
	case envelope.TypeNotice, envelope.TypeMoved:
		return refuse(envelope.CodeUnexpectedType, "%s messages are not part of a negotiation", in.env.Type)
	}
	if err != nil {
		return refuse(envelope.CodeMalformed, "%w", err)
	}
	if from != in.env.From.String() {
		return refuse(envelope.CodeWrongSender, "the body speaks for %s", contract.Echo(from))
	}
	if onlyWithdraw && (in.body == nil || in.body.Intent != message.Withdraw) {
		return refuse(envelope.CodeOutOfTurn, "only a withdrawal may come out of turn")
	}
	return nil
}

// equivocation keeps the proof that the peer signed two different messages for one place, and ends the conversation.
func (s *Service) equivocation(ctx context.Context, in *inbound, ses Session, now time.Time) (proven bool, err error) {
	if in.env.Seq > ses.PeerSeq {
		return false, nil
	}
	err = s.cfg.Store.Update(ctx, func(tx store.Tx) error {
		all, err := tx.ListEnvelopes(ses.Self.String(), ses.Peer.String(), ses.ContextID)
		if err != nil {
			return err
		}
		for _, rec := range all {
			if rec.Direction != store.In || rec.Seq != in.env.Seq || rec.Digest.Equal(in.env.Digest()) {
				continue
			}
			if err := tx.PutEquivocation(store.Equivocation{
				Own: ses.Self.String(), Peer: ses.Peer.String(), ContextID: ses.ContextID, Seq: rec.Seq, First: rec.Bytes, Second: in.raw, Created: now,
			}); err != nil {
				return err
			}
			conv, err := tx.GetConversation(ses.Self.String(), ses.Peer.String(), ses.ContextID)
			if err != nil {
				return err
			}
			cur, err := decodeSession(conv)
			if err != nil {
				return err
			}
			if !cur.Phase.Terminal() {
				next, fx := cur.Fail(string(envelope.CodeEquivocation), fmt.Sprintf("two different messages with seq %d; both are kept", rec.Seq))
				if err := s.put(tx, &conv, next, now); err != nil {
					return err
				}
				if err := appendAll(tx, fx.Events); err != nil {
					return err
				}
			}
			proven = true
			return nil
		}
		return nil
	})
	return proven, err
}

// apply is the step itself: a pure function of session, message and time, but for the vendor's signatures.
func (s *Service) apply(ctx context.Context, tx store.Tx, ses Session, in *inbound, outcome policy.Outcome, now time.Time) (Session, Effects, error) {
	next := ses.received(in.env.Seq, in.env.Digest())
	if in.env.Type == envelope.TypeMetaproto {
		next, fx, err := next.Round(in.opened.Body, in.env.KeyID(), s.cfg.Meta(), now)
		if err == nil && ses.Seq == 0 {
			fx.Events = append(s.introduction(in, now), fx.Events...)
		}
		if err == nil && next.Agreement() != nil {
			err = s.peerKey(next, in.peer, now)
		}
		return next, fx, err
	}
	next, err := next.cited(in.env.Agreement, s.cfg.Meta(), now)
	if err != nil {
		return ses, Effects{}, err
	}
	switch {
	case in.step != nil && next.Role == message.Vendor:
		head, err := tx.Head()
		if err != nil {
			return ses, Effects{}, err
		}
		next, fx, err := next.proven(ctx, in.step, in.peer, s.cfg.Keys().Binding, now, head.Hash)
		if err == nil {
			crashpoint.Hit(crashpoint.ContractActivate)
		}
		return next, fx, err
	case in.step != nil && in.step.Step == message.Draft:
		next, fx, err := next.draft(ctx, in.step, s.cfg.Keys().Binding, now)
		if err == nil {
			crashpoint.Hit(crashpoint.ContractProof)
		}
		return next, fx, err
	case in.step != nil:
		crashpoint.Hit(crashpoint.ContractReceived)
		return next.active(in.step, s.cfg.Keys().Document, in.peer, now)
	case next.Role == message.Buyer:
		return next.buyerBody(in.body, now)
	}
	next, fx, err := next.vendorBody(in.body, in.env.Digest(), now)
	if err != nil || in.body.Scope == nil || next.Phase.Terminal() {
		return next, fx, err
	}
	if outcome.Rejected() {
		return next.Rejected(outcome.Code, outcome.Reason, fx)
	}
	return next.Offered(outcome.Offer, "", fx)
}

// peerKey refuses an agreement whose key-agreement key is not in the peer's document.
func (s *Service) peerKey(ses Session, doc *did.Document, now time.Time) error {
	a := ses.Agreement()
	_, peer, ok := a.Sides(ses.Self)
	if !ok {
		return refuse(envelope.CodeAgreementMismatch, "the agreement is not ours")
	}
	if _, err := hpke.NamedKey(doc, peer.KeyAgreementKID, a.Candidate.HPKESuite, now); err != nil {
		return refuse(envelope.CodeSuiteMismatch, "the peer's key-agreement key: %w", err)
	}
	return nil
}

// introduction logs who a new counterparty is.
func (s *Service) introduction(in *inbound, now time.Time) []ledger.Entry {
	v, err := in.peer.Verify(now)
	if err != nil {
		return nil // the resolver returned it verified; a proof that expired since shows at the next look-up
	}
	return Introduce(in.peer, v, in.env.ContextID)
}

// Introduce is how a verified counterparty enters the log.
func Introduce(doc *did.Document, v did.Verification, contextID string) []ledger.Entry {
	id := doc.ID().String()
	return []ledger.Entry{
		{Type: ledger.DIDResolved, Context: contextID, Peer: id, Data: ledger.Resolved{DID: id, URL: doc.ID().DocumentURL(), Hash: doc.Hash()}},
		{Type: ledger.DIDVerified, Context: contextID, Peer: id, Data: ledger.Verified{DID: id, Profile: string(v.Profile), Dialect: string(v.Dialect), KeyID: v.ProofKeyID}},
	}
}

// commit writes everything a message led to: the message, the answer, the state, the contract and the events, in one
// transaction. After a crash before it, the conversation stands where it stood and the peer's retry is a new message;
// after it, the retry is answered from the record. Nothing is in between (invariants 8 and 15).
func (s *Service) commit(ctx context.Context, tx store.Tx, conv *store.Conversation, old, next Session, fx Effects, in *inbound, now time.Time) (Session, []byte, error) {
	if in != nil {
		if err := tx.PutEnvelope(store.EnvelopeRecord{
			Digest: in.env.Digest(), Own: conv.Own, Peer: conv.Peer, ContextID: conv.ContextID, Seq: in.env.Seq, Direction: store.In,
			Bytes: in.raw, Created: now, Plaintext: in.opened.Body, Salt: in.opened.Salt[:],
		}); err != nil {
			return old, nil, err
		}
	}
	var reply []byte
	if fx.Reply != nil {
		env, opened, err := s.build(ctx, next, *fx.Reply, in, now)
		if err != nil {
			return old, nil, err
		}
		next = next.Sent(env.Seq, env.Digest())
		if next.Role == message.Buyer && next.Phase == PhaseAccepted && next.Contract == nil {
			if next, err = next.accepted(env.Digest()); err != nil {
				return old, nil, err
			}
		}
		rec := store.EnvelopeRecord{
			Digest: env.Digest(), Own: conv.Own, Peer: conv.Peer, ContextID: conv.ContextID, Seq: env.Seq, Direction: store.Out,
			Bytes: env.Raw(), Created: now, Plaintext: opened.Body, Salt: opened.Salt[:],
		}
		if in != nil && next.Role == message.Vendor {
			rec.ReplyTo = in.env.Digest()
		}
		if err := tx.PutEnvelope(rec); err != nil {
			return old, nil, err
		}
		reply = env.Raw()
	}
	if fx.Record != nil {
		if err := tx.PutContract(*fx.Record); err != nil {
			return old, nil, err
		}
	}
	if err := s.put(tx, conv, next, now); err != nil {
		return old, nil, err
	}
	return next, reply, appendAll(tx, fx.Events)
}

func (s *Service) put(tx store.Tx, conv *store.Conversation, next Session, now time.Time) error {
	state, err := json.Marshal(next)
	if err != nil {
		return err
	}
	expect := conv.Version
	conv.State, conv.Phase, conv.Updated = state, string(next.Phase), now.UTC()
	if conv.Created.IsZero() {
		conv.Created = now.UTC()
	}
	if err := tx.PutConversation(*conv, expect); err != nil {
		return err
	}
	conv.Version = expect + 1
	return nil
}

func appendAll(tx store.Tx, entries []ledger.Entry) error {
	for _, e := range entries {
		if _, err := tx.Append(e); err != nil {
			return err
		}
	}
	return nil
}

// build signs and seals our next message: to the peer, by the agreement.
func (s *Service) build(ctx context.Context, ses Session, d Draft, in *inbound, now time.Time) (*envelope.Envelope, envelope.Opened, error) {
	draft := envelope.Draft{
		Type: d.Type, To: ses.Peer, ContextID: ses.ContextID, Seq: ses.Seq + 1, CreatedAt: now, Lifetime: s.cfg.Lifetime, Prev: ses.Head, Body: d.Body,
	}
	if !d.Expires.IsZero() {
		draft.Lifetime = min(max(d.Expires.Sub(now).Truncate(time.Second), time.Second), envelope.MaxLifetime)
	}
	var seal *envelope.SealTo
	if d.Type != envelope.TypeMetaproto {
		a := ses.Agreement()
		if a == nil {
			return nil, envelope.Opened{}, errors.New("negotiation: nothing is sealed before there is an agreement")
		}
		_, peer, _ := a.Sides(ses.Self)
		var doc *did.Document
		if in != nil {
			doc = in.peer
		} else {
			var err error
			if doc, err = s.cfg.Resolver.Resolve(ctx, ses.Peer); err != nil {
				return nil, envelope.Opened{}, err
			}
		}
		key, err := hpke.NamedKey(doc, peer.KeyAgreementKID, a.Candidate.HPKESuite, now)
		if err != nil {
			return nil, envelope.Opened{}, refuse(envelope.CodeSuiteMismatch, "the peer's key-agreement key: %w", err)
		}
		draft.Agreement = a.Digest()
		seal = &envelope.SealTo{Suite: a.Candidate.HPKESuite, RecipientKID: peer.KeyAgreementKID, Key: key}
	}
	return envelope.Build(ctx, draft, s.cfg.Keys().Binding, seal)
}

// refused records a refusal and returns it; anything else is internal and stays here.
func (s *Service) refused(ctx context.Context, caller did.DID, env *envelope.Envelope, err error) error {
	var r *envelope.Refusal
	if !errors.As(err, &r) {
		s.cfg.Log.Error("negotiation message not handled", "peer", caller.String(), "err", err)
		return err
	}
	entry := ledger.Entry{Type: ledger.MessageRefused, Peer: caller.String(), Data: ledger.MessageRefusal{Code: string(r.Code), Reason: clip(r.Reason)}}
	if env != nil {
		entry.Context = env.ContextID
		entry.Data = ledger.MessageRefusal{Code: string(r.Code), Reason: clip(r.Reason), Type: string(env.Type), Seq: env.Seq}
	}
	if logErr := s.cfg.Store.Update(ctx, func(tx store.Tx) error { return appendAll(tx, []ledger.Entry{entry}) }); logErr != nil {
		s.cfg.Log.Error("refusal not logged", "err", logErr)
	}
	return err
}
