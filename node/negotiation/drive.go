// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/internal/crashpoint"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation/message"
	"github.com/treaty-node/treaty/node/negotiation/policy"
	"github.com/treaty-node/treaty/node/store"
)

// inFlight keeps one driver for each conversation of this process. Several processes are kept apart by the store.
type inFlight struct {
	mu      sync.Mutex
	running map[string]bool
}

func (f *inFlight) start(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running[id] {
		return false
	}
	f.running[id] = true
	return true
}

func (f *inFlight) done(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.running, id)
}

// ErrBusy: this process drives the conversation already.
var ErrBusy = errors.New("negotiation: the conversation is being driven")

// Retry bounds of the buyer, while the vendor does not answer.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// Start opens a conversation with a verified peer: state and first message are durable when it returns. Nothing is sent
// before [Service.Drive]. seen is what else was learned about the peer, for the log.
func (s *Service) Start(ctx context.Context, peer *did.Document, v did.Verification, needs string, seen ...ledger.Entry) (contextID string, err error) {
	if _, err := policy.ParseNeeds([]byte(needs)); err != nil {
		return "", err
	}
	if err := s.mayContract(peer); err != nil {
		return "", err
	}
	keys, now, contextID := s.cfg.Keys(), s.cfg.Now(), envelope.NewID()
	meta, err := metaproto.New(metaproto.Config{
		Role: metaproto.Initiator, ContextID: contextID, Self: s.self(), Peer: peer.ID(),
		SigningKID: keys.Binding.KeyID(), KeyAgreementKID: keys.KeyAgreementKID,
	}, s.cfg.Meta(), now)
	if err != nil {
		return "", err
	}
	ses := NewSession(message.Buyer, s.self(), peer.ID(), contextID, meta, now, s.cfg.Deadline)
	ses.Needs = needs
	next, fx, err := ses.Begin(s.cfg.Meta(), now)
	if err != nil {
		return "", err
	}
	for i := range seen {
		seen[i].Context = contextID
	}
	fx.Events = slices.Concat(Introduce(peer, v, contextID), seen, fx.Events)
	conv := s.conversation(ses)
	err = s.cfg.Store.Update(ctx, func(tx store.Tx) error {
		_, _, err := s.commit(ctx, tx, &conv, ses, next, fx, nil, now)
		return err
	})
	return contextID, err
}

// Drive takes a buyer's conversation to its end: sends what is due, stores what comes back, decides. It can be called again
// after a crash or an error, and goes on where the store says. It returns nil when the conversation has ended, however it
// ended; an error means that it has not (ctx ended, or something internal).
func (s *Service) Drive(ctx context.Context, contextID string) error {
	if !s.driven.start(contextID) {
		return ErrBusy
	}
	defer s.driven.done(contextID)
	wait := firstRetry
	var route Route
	for {
		conv, ses, err := s.find(ctx, contextID)
		if err != nil {
			return err
		}
		if ses.Phase.Terminal() {
			return nil
		}
		if ses.Role != message.Buyer {
			return fmt.Errorf("negotiation: the vendor answers; it does not drive %s", contextID)
		}
		if late, err := s.expire(ctx, conv, ses); errors.Is(err, store.ErrConflict) || late && err == nil {
			continue
		} else if err != nil {
			return err
		}
		if route == nil {
			route, err = s.cfg.Connector.Connect(ctx, ses.Peer)
		}
		if err == nil {
			err = s.turn(ctx, route, conv, ses)
		}
		var refusal *envelope.Refusal
		switch {
		case err == nil:
			wait = firstRetry
			continue
		case errors.Is(err, store.ErrConflict):
			continue
		case errors.As(err, &refusal) && !refusal.Code.Retryable():
			if err := s.failed(ctx, route, ses, refusal); err != nil && !errors.Is(err, store.ErrConflict) {
				return err
			}
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errInternal):
			return err
		}
		// A transport fault, or a peer that cannot answer now: nobody decided anything, so the same bytes are sent again.
		s.cfg.Log.Warn("counterparty does not answer", "peer", ses.Peer.String(), "contextId", contextID, "err", err, "retry_in", wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		wait = min(2*wait, lastRetry)
		route = nil
	}
}

var errInternal = errors.New("internal")

func internal(err error) error {
	if err == nil || errors.Is(err, store.ErrConflict) {
		return err
	}
	return fmt.Errorf("negotiation: %w: %w", errInternal, err)
}

func (s *Service) find(ctx context.Context, id string) (conv store.Conversation, ses Session, err error) {
	err = s.cfg.Store.View(ctx, func(tx store.Tx) error {
		if conv, err = tx.FindConversation(s.self().String(), id); err != nil {
			return err
		}
		ses, err = decodeSession(conv)
		return err
	})
	return conv, ses, err
}

// turn does one thing: sends the message that waits for an answer, or decides and stores the next one.
func (s *Service) turn(ctx context.Context, route Route, conv store.Conversation, ses Session) error {
	pending, err := s.pending(ctx, ses)
	if err != nil {
		return internal(err)
	}
	if pending == nil {
		return s.next(ctx, route, conv, ses)
	}
	transport := ""
	if a := ses.Agreement(); a != nil && ses.Phase != PhaseMeta {
		transport = a.Candidate.Transport
	}
	crashpoint.Hit(crashpoint.EnvelopeSending)
	answer, err := route.Send(ctx, transport, ses.ContextID, conv.TaskID, pending)
	if err != nil {
		return err
	}
	crashpoint.Hit(crashpoint.EnvelopeAnswered)
	if answer.Envelope == nil {
		return errors.New("the counterparty answered without a message")
	}
	return s.answered(ctx, ses, answer.Envelope)
}

// pending is our last message when the peer has not answered it.
func (s *Service) pending(ctx context.Context, ses Session) (raw []byte, err error) {
	err = s.cfg.Store.View(ctx, func(tx store.Tx) error {
		rec, err := tx.GetEnvelope(ses.Self.String(), ses.Head)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err == nil && rec.Direction == store.Out {
			raw = rec.Bytes
		}
		return err
	})
	return raw, err
}

// answered applies the vendor's answer as any received message: verified, in order, stored in one transaction.
func (s *Service) answered(ctx context.Context, ses Session, raw []byte) error {
	env, err := envelope.Parse(raw, 0)
	if err != nil {
		return s.refused(ctx, ses.Peer, nil, err)
	}
	in := &inbound{env: env, raw: raw}
	if in.peer, err = s.cfg.Resolver.Resolve(ctx, ses.Peer); err != nil {
		return err
	}
	if err := env.VerifyWith(in.peer, s.cfg.Now()); err != nil {
		return s.refused(ctx, ses.Peer, env, err)
	}
	if err := env.CheckParties(ses.Self, ses.Peer); err != nil {
		return s.refused(ctx, ses.Peer, env, err)
	}
	if env.ContextID != ses.ContextID {
		return s.refused(ctx, ses.Peer, env, refuse(envelope.CodeOutOfOrder, "the answer belongs to another conversation"))
	}
	if _, err := s.receive(ctx, in); err != nil {
		if errors.Is(err, store.ErrConflict) {
			return err
		}
		return s.refused(ctx, ses.Peer, env, err)
	}
	return nil
}

// next decides and stores the buyer's next message.
func (s *Service) next(ctx context.Context, route Route, conv store.Conversation, ses Session) error {
	needs, err := policy.ParseNeeds([]byte(ses.Needs))
	if err != nil {
		return internal(err)
	}
	now := s.cfg.Now()
	var next Session
	var fx Effects
	switch ses.Phase {
	case PhaseAsking:
		ask, ok := needs.Ask(ses.Asks)
		if !ok {
			next, fx, err = ses.Reject("NEEDS", "nothing is left to ask for")
			break
		}
		if unfit := needs.Check(ses.Asks, route.Schema(ask.Dataset)); unfit != nil {
			next, fx, err = ses.Reject("NEEDS", unfit.Error())
			break
		}
		next, fx, err = ses.Propose(ask, needs.Rationale)
	case PhaseOffered:
		r := needs.DecideOffer(policy.Received{Offer: ses.Offer, Ask: *ses.Ask, Asks: ses.Asks, Now: now})
		switch r.Action {
		case policy.Accept:
			next, fx, err = ses.Accept("")
		case policy.Counter:
			next, fx, err = ses.Propose(*r.Scope, r.Reason)
		case policy.Reject:
			next, fx, err = ses.Reject(r.Code, r.Reason)
		default:
			next, fx, err = ses.Reject("NEEDS", "no decision")
		}
	default:
		err = fmt.Errorf("nothing to send in phase %s", ses.Phase)
	}
	if err != nil {
		return internal(err)
	}
	err = s.cfg.Store.Update(ctx, func(tx store.Tx) error {
		_, _, err := s.commit(ctx, tx, &conv, ses, next, fx, nil, now)
		return err
	})
	if err == nil {
		crashpoint.Hit(crashpoint.EnvelopeStored)
		if next.Phase.Terminal() {
			s.tell(ctx, route, conv, next)
		}
	}
	return internal(err)
}

// tell delivers our last message of an ended conversation, once: the peer's own deadline covers the rest.
func (s *Service) tell(ctx context.Context, route Route, conv store.Conversation, ses Session) {
	raw, err := s.lastOut(ctx, ses)
	if err == nil && raw != nil && route != nil {
		_, err = route.Send(ctx, "", ses.ContextID, conv.TaskID, raw)
	}
	if err != nil {
		s.cfg.Log.Warn("the counterparty was not told that the negotiation has ended", "contextId", ses.ContextID, "err", err)
	}
}

func (s *Service) lastOut(ctx context.Context, ses Session) (raw []byte, err error) {
	err = s.cfg.Store.View(ctx, func(tx store.Tx) error {
		all, err := tx.ListEnvelopes(ses.Self.String(), ses.Peer.String(), ses.ContextID)
		for _, rec := range all {
			if rec.Direction == store.Out {
				raw = rec.Bytes
			}
		}
		return err
	})
	return raw, err
}

// failed ends a conversation that the peer's refusal, or an answer that does not hold, has made impossible to go on with.
// A buyer whose proof is out does not end it by itself: only the vendor's signed answer settles that.
func (s *Service) failed(ctx context.Context, route Route, ses Session, r *envelope.Refusal) error {
	conv, cur, err := s.find(ctx, ses.ContextID)
	if err != nil || cur.Phase.Terminal() {
		return err
	}
	if cur.Phase == PhaseActivating && r.Code != envelope.CodeConversationEnded && r.Code != envelope.CodeExpired {
		s.cfg.Log.Error("the vendor's answer to our proof does not hold", "contextId", ses.ContextID, "code", r.Code)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lastRetry):
		}
		return nil
	}
	next, fx := cur.Fail(string(r.Code), r.Reason)
	now := s.cfg.Now()
	return s.cfg.Store.Update(ctx, func(tx store.Tx) error {
		if err := s.put(tx, &conv, next, now); err != nil {
			return err
		}
		return appendAll(tx, fx.Events)
	})
}

// expire ends a conversation whose deadline has passed.
func (s *Service) expire(ctx context.Context, conv store.Conversation, ses Session) (late bool, err error) {
	now := s.cfg.Now()
	next, fx, late := ses.Expire(now)
	if !late {
		return false, nil
	}
	return true, s.cfg.Store.Update(ctx, func(tx store.Tx) error {
		if err := s.put(tx, &conv, next, now); err != nil {
			return err
		}
		return appendAll(tx, fx.Events)
	})
}

// Unfinished lists the buyer's conversations that a restart has to drive on.
func (s *Service) Unfinished(ctx context.Context) (ids []string, err error) {
	return ids, s.each(ctx, func(conv store.Conversation, ses Session) error {
		if ses.Role == message.Buyer && !ses.Phase.Terminal() {
			ids = append(ids, conv.ContextID)
		}
		return nil
	})
}

// Sweep ends every conversation whose deadline has passed; call it now and then.
func (s *Service) Sweep(ctx context.Context) error {
	return s.each(ctx, func(conv store.Conversation, ses Session) error {
		if _, err := s.expire(ctx, conv, ses); err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
		return nil
	})
}

var openPhases = []Phase{PhaseMeta, PhaseAsking, PhaseOffered, PhaseAccepted, PhaseActivating}

// each calls f for every conversation that has not ended, outside of a transaction.
func (s *Service) each(ctx context.Context, f func(store.Conversation, Session) error) error {
	var open []store.Conversation
	err := s.cfg.Store.View(ctx, func(tx store.Tx) error {
		for _, p := range openPhases {
			list, err := tx.ListConversations(store.ConversationFilter{Own: s.self().String(), Phase: string(p)})
			if err != nil {
				return err
			}
			open = append(open, list...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, conv := range open {
		ses, err := decodeSession(conv)
		if err != nil {
			return err
		}
		if err := f(conv, ses); err != nil {
			return err
		}
	}
	return nil
}

// Withdraw ends a conversation from this side and tells the peer. It is durable when it returns, told or not.
func (s *Service) Withdraw(ctx context.Context, id, reason string) error {
	for range maxAttempts {
		conv, ses, err := s.find(ctx, id)
		if err != nil {
			return err
		}
		out := ses
		out.Head = ses.Acked // a withdrawal follows the last message that both sides hold
		next, fx, err := out.Withdraw(reason)
		if err != nil {
			return err
		}
		now := s.cfg.Now()
		if ses.Agreement() == nil {
			fx.Reply = nil // before there is an agreement nothing can be sealed; the rounds simply time out over there
		}
		err = s.cfg.Store.Update(ctx, func(tx store.Tx) error {
			_, _, err := s.commit(ctx, tx, &conv, out, next, fx, nil, now)
			return err
		})
		if errors.Is(err, store.ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		if fx.Reply != nil {
			route, err := s.cfg.Connector.Connect(ctx, ses.Peer)
			if err != nil {
				s.cfg.Log.Warn("the counterparty was not told of the withdrawal", "contextId", ses.ContextID, "err", err)
				return nil
			}
			s.tell(ctx, route, conv, next)
		}
		return nil
	}
	return refuse(envelope.CodeUnavailable, "the conversation moved on each time; try again")
}
