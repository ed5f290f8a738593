// SPDX-License-Identifier: Apache-2.0

package notice

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/internal/pace"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

// Suite is what notices are sealed with: the one that every node has.
const Suite = hpke.SuiteX25519

// Keys are what the node talks with.
type Keys struct {
	Binding  did.Signer
	Opener   hpke.Opener
	Document *did.Document // the node's own, as published
	// Owns says whether a DID is one that the node had before: what was sent to it and is under way is still taken, if the
	// opener still opens it. nil: there was none.
	Owns func(id did.DID) bool
}

// Resolver returns verified documents only; it fails closed (invariant 12).
type Resolver interface {
	Resolve(ctx context.Context, id did.DID) (*did.Document, error)
}

// Route is a way to a verified peer. A refusal is an *envelope.Refusal; every other error is a transport fault.
type Route interface {
	Deliver(ctx context.Context, contextID string, env []byte) (answer []byte, err error)
}

// Handler takes a notice of one kind, in the transaction that stores the answer. from is who signed it; data is canonical and
// bounded, and otherwise not checked. The answer is an object (nil: the empty one). An error that is a [*Refused] is answered
// with its code and text, signed, for good; with any other one nothing is stored, and the peer may send the same notice again.
type Handler func(ctx context.Context, tx store.Tx, from did.DID, data []byte) (answer any, err error)

// AnswerHandler takes the peer's signed answer to a notice that was sent, in the transaction that stores it.
type AnswerHandler func(ctx context.Context, tx store.Tx, to did.DID, data []byte, a Answer) error

// Refused is a handler's no.
type Refused struct {
	Code string // upper-case letters, digits and underscores, at most 64
	Text string // for people; cut to 1000 bytes
}

func (r *Refused) Error() string { return r.Code + ": " + r.Text }

// Config sets up a Service. Admit, Successor, Refused and Log may be nil.
type Config struct {
	Keys     func() Keys
	Store    store.Store
	Resolver Resolver
	// Admit says whether a DID may send notices here, before its document is fetched. nil: everybody.
	Admit func(ctx context.Context, from did.DID) error
	// Successor is the DID that a verified succession has put in another one's place, or that one itself.
	Successor func(ctx context.Context, id did.DID) did.DID
	Connect   func(ctx context.Context, peer did.DID) (Route, error)
	// Opener opens what one sender has sealed in one context; nil: the keys' opener opens everything.
	Opener func(from did.DID, contextID string) hpke.Opener
	// Refused logs the refusal of a received notice, within bounds, and returns what the peer is told.
	Refused  func(ctx context.Context, from did.DID, env *envelope.Envelope, err error) error
	Now      func() time.Time
	Skew     time.Duration
	Lifetime time.Duration // of an envelope
	PerHour  int           // notices that one peer may send in an hour; 0: 1200
	Log      *slog.Logger
}

// Service sends and receives one node's notices. It is safe for concurrent use, also by several processes over one store.
type Service struct {
	cfg      Config
	mu       sync.Mutex
	handlers map[string]Handler
	answers  map[string]AnswerHandler
	flying   map[string]bool
	arrivals *pace.Hourly
}

// New makes a Service.
func New(cfg Config) *Service {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.PerHour <= 0 {
		cfg.PerHour = defaultPerHour
	}
	return &Service{
		cfg: cfg, handlers: map[string]Handler{}, answers: map[string]AnswerHandler{}, flying: map[string]bool{}, arrivals: pace.NewHourly(cfg.PerHour),
	}
}

// Handle registers who takes notices of a kind. It panics on a kind that has a handler or is not one.
func (s *Service) Handle(kind string, h Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !kindForm.MatchString(kind) || s.handlers[kind] != nil {
		panic("notice: kind " + kind)
	}
	s.handlers[kind] = h
}

// Answered registers who is told of answers to notices of a kind. It panics on a kind that has one.
func (s *Service) Answered(kind string, h AnswerHandler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !kindForm.MatchString(kind) || s.answers[kind] != nil {
		panic("notice: kind " + kind)
	}
	s.answers[kind] = h
}

func (s *Service) handler(kind string) Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handlers[kind]
}

// Keys are what this service talks with now.
func (s *Service) Keys() Keys { return s.cfg.Keys() }

func (s *Service) self() did.DID { return s.cfg.Keys().Document.ID() }

// Received is what a notice led to.
type Received struct {
	ContextID string
	Reply     []byte // the answer's envelope
	At        time.Time
}

// Receive takes one envelope that caller, verified by its HTTP signature, has sent. When it returns without error, the effect,
// its events and the answer are durable. Errors that wrap an *envelope.Refusal are for the peer; others are internal.
func (s *Service) Receive(ctx context.Context, caller did.DID, raw []byte) (Received, error) {
	env, err := envelope.Parse(raw, 0)
	if err == nil {
		var r Received
		if r, err = s.receive(ctx, caller, env); err == nil {
			return r, nil
		}
	}
	if s.cfg.Refused != nil {
		err = s.cfg.Refused(ctx, caller, env, err)
	}
	return Received{}, err
}

func (s *Service) receive(ctx context.Context, caller did.DID, env *envelope.Envelope) (Received, error) {
	switch {
	case env.Type != envelope.TypeNotice:
		return Received{}, envelope.Refuse(envelope.CodeUnexpectedType, "not a notice")
	case env.Sealed == nil || !env.Agreement.IsZero():
		return Received{}, envelope.Refuse(envelope.CodeMalformed, "a notice is sealed and names no agreement")
	case env.From != caller || env.Signer() != caller:
		return Received{}, envelope.Refuse(envelope.CodeWrongSender, "sent by %s, signed by %s, called by %s", env.From, env.Signer(), caller)
	}
	if s.cfg.Admit != nil {
		if err := s.cfg.Admit(ctx, caller); err != nil {
			return Received{}, err
		}
	}
	doc, err := s.cfg.Resolver.Resolve(ctx, caller)
	if err != nil {
		return Received{}, unresolved(err)
	}
	if err := env.VerifyWith(doc, s.cfg.Now()); err != nil {
		return Received{}, err
	}
	self := s.self()
	if owns := s.cfg.Keys().Owns; owns != nil && owns(env.To) {
		self = env.To
	}
	if err := env.CheckParties(self, caller); err != nil {
		return Received{}, err
	}
	if known, err := s.known(ctx, env); err != nil || known != nil {
		if known == nil {
			known = &Received{}
		}
		return *known, err
	}
	if !s.arrivals.Allow(caller, s.cfg.Now()) {
		return Received{}, envelope.Refuse(envelope.CodeUnavailable, "too many notices in the last hour; send the same one again later")
	}
	now := s.cfg.Now()
	x := envelope.Expect{Self: env.To, Caller: caller, Seq: 1, Prev: envelope.FirstPrev(caller, env.To, env.ContextID), Now: now, Skew: s.cfg.Skew}
	if err := env.Check(x); err != nil {
		return Received{}, err
	}
	opened, err := s.open(ctx, env)
	if err != nil {
		return Received{}, err
	}
	body, err := ParseNotice(opened.Body)
	if err != nil {
		return Received{}, err
	}
	return s.apply(ctx, env, doc, opened, body)
}

// known finds the answer to an exact repetition.
func (s *Service) known(ctx context.Context, env *envelope.Envelope) (r *Received, err error) {
	err = s.cfg.Store.View(ctx, func(tx store.Tx) error {
		rec, err := tx.GetEnvelope(env.To.String(), env.Digest())
		if errors.Is(err, store.ErrNotFound) || err == nil && (rec.Direction != store.In || !bytes.Equal(rec.Bytes, env.Raw())) {
			return nil
		}
		if err != nil {
			return err
		}
		reply, err := tx.ReplyOf(env.To.String(), env.Digest())
		if errors.Is(err, store.ErrNotFound) {
			return envelope.Refuse(envelope.CodeReplayed, "the message was answered elsewhere")
		}
		r = &Received{ContextID: env.ContextID, Reply: reply.Bytes, At: reply.Created}
		return err
	})
	return r, err
}

// open opens a body that was sealed to one of our own keys. Which one, the message says: there is no agreement. The opener
// knows which still count.
func (s *Service) open(ctx context.Context, env *envelope.Envelope) (envelope.Opened, error) {
	opener := s.cfg.Keys().Opener
	if s.cfg.Opener != nil {
		opener = s.cfg.Opener(env.From, env.ContextID)
	}
	return envelope.Open(ctx, env, opener, envelope.OpenWith{Suite: Suite, RecipientKID: env.Sealed.RecipientKID})
}

// apply runs the handler and answers.
func (s *Service) apply(ctx context.Context, env *envelope.Envelope, peer *did.Document, opened envelope.Opened, body *Notice) (r Received, err error) {
	own := env.To.String()
	err = s.cfg.Store.Update(ctx, func(tx store.Tx) error {
		now := s.cfg.Now()
		switch _, err := tx.FindConversation(own, env.ContextID); {
		case err == nil || errors.Is(err, store.ErrConflict):
			return envelope.Refuse(envelope.CodeMalformed, "the contextId is taken; choose one at random")
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
		if err := tx.PutEnvelope(record(env, store.In, env.To, env.From, opened, now)); errors.Is(err, store.ErrConflict) {
			return envelope.Refuse(envelope.CodeReplayed, "another message of yours has this place")
		} else if err != nil {
			return err
		}
		answer, err := s.answer(ctx, tx, env.From, body)
		if err != nil {
			return err
		}
		text, err := canonical(answer)
		if err != nil {
			return err
		}
		reply, sealed, err := s.build(ctx, peer, envelope.Draft{
			To: env.From, ContextID: env.ContextID, Seq: 2, Prev: env.Digest(), CreatedAt: now, Body: text,
		})
		if err != nil {
			return err
		}
		rec := record(reply, store.Out, env.To, env.From, sealed, now)
		rec.ReplyTo = env.Digest()
		if err := tx.PutEnvelope(rec); err != nil {
			return err
		}
		r = Received{ContextID: env.ContextID, Reply: reply.Raw(), At: now}
		_, err = tx.Append(ledger.Entry{
			Type: ledger.NoticeReceived, Context: env.ContextID, Peer: env.From.String(),
			Data: ledger.NoticeReply{Kind: body.Kind, OK: answer.OK, Code: answer.Code, Text: answer.Text},
		})
		return err
	})
	return r, err
}

// answer is the handler's.
func (s *Service) answer(ctx context.Context, tx store.Tx, from did.DID, body *Notice) (Answer, error) {
	a := Answer{Type: AnswerType, Kind: body.Kind, OK: true, Data: json.RawMessage("{}")}
	h := s.handler(body.Kind)
	if h == nil {
		a.OK, a.Code, a.Text = false, CodeUnknownKind, "notices of this kind are not known here"
		return a, nil
	}
	data, err := h(ctx, tx, from, body.Data)
	var no *Refused
	switch {
	case errors.As(err, &no):
		a.OK, a.Code, a.Text = false, no.Code, clip(no.Text)
		if a.Code == "" || len(a.Code) > MaxCode || !codeForm.MatchString(a.Code) {
			return a, fmt.Errorf("notice: the handler of %s refuses with code %q", body.Kind, no.Code)
		}
		return a, nil
	case err != nil:
		return a, err
	default:
		a.Data, err = canonical(data)
	}
	return a, err
}

// build signs an envelope of type notice and seals it to the peer.
func (s *Service) build(ctx context.Context, peer *did.Document, d envelope.Draft) (*envelope.Envelope, envelope.Opened, error) {
	kid, key, err := hpke.SelectKey(peer, Suite, d.CreatedAt)
	if err != nil {
		return nil, envelope.Opened{}, envelope.Refuse(envelope.CodeSuiteMismatch, "%w", err)
	}
	return s.sealTo(ctx, d, kid, key)
}

func (s *Service) sealTo(ctx context.Context, d envelope.Draft, kid string, key did.PublicKey) (*envelope.Envelope, envelope.Opened, error) {
	d.Type, d.Lifetime = envelope.TypeNotice, s.cfg.Lifetime
	return envelope.Build(ctx, d, s.cfg.Keys().Binding, &envelope.SealTo{Suite: Suite, RecipientKID: kid, Key: key})
}

func record(env *envelope.Envelope, way string, own, peer did.DID, o envelope.Opened, now time.Time) store.EnvelopeRecord {
	return store.EnvelopeRecord{
		Digest: env.Digest(), Own: own.String(), Peer: peer.String(), ContextID: env.ContextID, Seq: env.Seq, Direction: way,
		Bytes: env.Raw(), Created: now, Plaintext: o.Body, Salt: o.Salt[:],
	}
}
