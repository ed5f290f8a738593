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
	"github.com/treaty-node/treaty/node/contract"
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
	return s.StartAmending(ctx, peer, v, needs, Instead{}, seen...)
}

// StartAmending is Start for a contract that replaces another one. Where the agreement that the rounds lead to has no word for
// that (contract schema versions before 3), the conversation ends with policy.CodeNotReplaceable: nothing is asked for without it.
func (s *Service) StartAmending(
	ctx context.Context, peer *did.Document, v did.Verification, needs string, instead Instead, seen ...ledger.Entry,
) (contextID string, err error) {
	if _, err := policy.ParseNeeds([]byte(needs)); err != nil {
		return "", err
	}
	if err := s.mayContract(peer); err != nil {
		return "", err
	}
	now := s.cfg.Now()
	next, fx, err := s.openTalk(peer.ID(), needs, instead, now)
	if err != nil {
		return "", err
	}
	contextID = next.ContextID
	for i := range seen {
		seen[i].Context = contextID
	}
	fx.Events = slices.Concat(Introduce(peer, v, contextID), seen, fx.Events)
	conv := s.conversation(next)
	err = s.cfg.Store.Update(ctx, func(tx store.Tx) error {
		_, _, err := s.commit(ctx, tx, &conv, next, fx, nil, peer, now)
		return err
	})
	return contextID, err
}

// Drive takes a buyer's conversation to its end: sends what is due, stores what comes back, decides. It can be called again
// after a crash or an error, and goes on where the store says. It returns nil when the conversation has ended, however it
// ended; an error means that it has not (ctx ended, or something internal).
//
// An answer that is not the vendor's signed next message counts as no answer: the same bytes are sent again, less and less
// often, until the deadline. A buyer whose proof is out has no deadline: only the vendor's signed word says whether the
// contract came into force, and it asks for it until it hears it.
//
// A conversation that was reopened is driven on as the one that takes up its need.
func (s *Service) Drive(ctx context.Context, contextID string) (err error) {
	for contextID != "" && err == nil {
		contextID, err = s.drive(ctx, contextID)
	}
	return err
}

// drive takes one conversation to its end, and returns the one that takes up its need, if there is one.
func (s *Service) drive(ctx context.Context, contextID string) (reopenedAs string, err error) {
	if !s.driven.start(contextID) {
		return "", ErrBusy
	}
	defer s.driven.done(contextID)
	wait, conflicts := firstRetry, 0
	var route Route
	for {
		conv, ses, err := s.find(ctx, contextID)
		if err != nil {
			return "", err
		}
		if ses.Phase.Terminal() {
			return ses.ReopenedAs, nil
		}
		if ses.Role != message.Buyer {
			return "", fmt.Errorf("negotiation: the vendor answers; it does not drive %s", contextID)
		}
		late, err := s.expire(ctx, conv, ses)
		if late && err == nil {
			continue
		}
		if pause := ses.NotBefore.Sub(s.cfg.Now()); err == nil && pause > 0 {
			if err := s.cfg.Sleep(ctx, pause); err != nil {
				return "", err
			}
			continue
		}
		if err == nil && route == nil {
			var at Session
			if at, _, err = s.reach(ctx, ses); err == nil {
				route, err = s.cfg.Connector.Connect(ctx, at.listener())
			}
		}
		if err == nil {
			err = s.turn(ctx, route, conv, ses)
		}
		var refusal *envelope.Refusal
		switch {
		case err == nil:
			wait, conflicts = firstRetry, 0
			continue
		case ctx.Err() != nil:
			return "", ctx.Err()
		case errors.Is(err, store.ErrConflict) && conflicts < maxAttempts:
			conflicts++ // somebody else moved the conversation on
			continue
		case errors.As(err, &refusal) && !refusal.Code.Retryable() && ses.Phase != PhaseActivating:
			if err = s.giveUp(ctx, route, ses, refusal); err == nil {
				continue
			}
		case errors.Is(err, errInternal):
			return "", err
		}
		// A transport fault, a decider that is busy, a peer that cannot answer now, or an answer that is none: nobody decided anything.
		what := "counterparty does not answer"
		if errors.Is(err, did.ErrSignerUnavailable) {
			what = "this node cannot sign"
		}
		if errors.Is(err, errWorking) {
			what = "the counterparty is deciding"
		}
		if errors.Is(err, ErrNotNow) {
			what = "the decider cannot be asked now"
		}
		s.cfg.Log.Warn(what, "peer", ses.Peer.String(), "contextId", contextID, "err", err, "retry_in", wait)
		if err := s.cfg.Sleep(ctx, wait); err != nil {
			return "", err
		}
		wait, conflicts, route = min(2*wait, lastRetry), 0, nil
	}
}

var (
	errInternal = errors.New("internal")
	errNoAnswer = errors.New("negotiation: not an answer of the counterparty")
	errWorking  = errors.New("negotiation: the counterparty has not answered yet")
)

func internal(err error) error {
	if err == nil || errors.Is(err, store.ErrConflict) || errors.Is(err, did.ErrSignerUnavailable) || errors.Is(err, ErrNotNow) {
		return err // worth another try
	}
	return fmt.Errorf("negotiation: %w: %w", errInternal, err)
}

func (s *Service) find(ctx context.Context, id string) (conv store.Conversation, ses Session, err error) {
	err = s.cfg.Store.View(ctx, func(tx store.Tx) error {
		if conv, err = findOwn(tx, s.self(), id); err != nil {
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
	crashpoint.Hit(crashpoint.EnvelopeSending)
	answer, err := route.Send(ctx, transport(ses), ses.ContextID, conv.TaskID, pending)
	if err != nil {
		return err
	}
	crashpoint.Hit(crashpoint.EnvelopeAnswered)
	if answer.Envelope == nil {
		if answer.Working {
			return errWorking
		}
		return errNoAnswer
	}
	res, err := s.answered(ctx, ses, answer.Envelope)
	if err == nil && res.Phase.Terminal() {
		s.tell(ctx, route, conv, ses, res.Reply)
	}
	return err
}

// transport is the agreed one, or any before there is an agreement.
func transport(ses Session) string {
	if a := ses.Agreement(); a != nil && ses.Phase != PhaseMeta {
		return a.Candidate.Transport
	}
	return ""
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

// answered applies the vendor's answer as any received message: verified, in order, stored in one transaction. An answer
// that is not the vendor's signed next message changes nothing and is no refusal either (invariant 1): whoever garbled it,
// the vendor's own word can still come.
func (s *Service) answered(ctx context.Context, ses Session, raw []byte) (Result, error) {
	in := &inbound{raw: raw}
	none := func(err error) (Result, error) {
		return Result{}, fmt.Errorf("%w: %v", errNoAnswer, s.refused(ctx, ses.Peer, in.env, err)) //nolint:errorlint // not a refusal any more
	}
	var err error
	if in.env, err = envelope.Parse(raw, 0); err != nil {
		return none(err)
	}
	if in.env.From != ses.Peer && in.env.From != ses.listener() && !did.SameSubject(ses.Peer, in.env.From) || in.env.Signer() != in.env.From {
		return none(refuse(envelope.CodeWrongSender, "answered by %s, signed by %s", in.env.From, in.env.Signer()))
	}
	if err := s.sender(ctx, in, did.DID{}); err != nil {
		return none(err)
	}
	if err := s.authentic(in); err != nil {
		return none(err)
	}
	if in.env.ContextID != ses.ContextID {
		return none(refuse(envelope.CodeOutOfOrder, "the answer belongs to another conversation"))
	}
	f, err := s.look(ctx, in)
	if err != nil {
		return Result{}, err
	}
	if f.ses.Head != ses.Head {
		return Result{}, store.ErrConflict // it came on another way
	}
	if f.known != nil {
		return none(refuse(envelope.CodeReplayed, "the answer was given before, to another message"))
	}
	res, err := s.receive(ctx, in, f)
	switch {
	case err == nil || errors.Is(err, store.ErrConflict):
		return res, err
	case !in.inOrder:
		return none(err)
	}
	return res, s.refused(ctx, ses.Peer, in.env, err)
}

// next decides and stores the buyer's next message.
func (s *Service) next(ctx context.Context, route Route, conv store.Conversation, ses Session) error {
	needs, err := policy.ParseNeeds([]byte(ses.Needs))
	if version, ok := ses.ContractVersion(); ok && err == nil {
		needs = needs.In(version).Amending(ses.Amends, ses.Terms)
	}
	if err != nil {
		return internal(err)
	}
	ses, peer, err := s.reach(ctx, ses.present(s.cfg.Keys()))
	if err != nil {
		return err
	}
	now := s.cfg.Now()
	var next Session
	var fx Effects
	if unusable := s.usable(ses, now); unusable != nil {
		next, fx, err = ses.Reject(string(envelope.CodeOf(unusable)), unusable.Error())
	} else {
		next, fx, err = s.decideNext(ctx, route, needs, ses, now)
	}
	if err != nil {
		return internal(err)
	}
	var raw []byte
	err = s.cfg.Store.Update(ctx, func(tx store.Tx) error {
		_, raw, err = s.commit(ctx, tx, &conv, next, fx, nil, peer, now)
		return err
	})
	if err == nil {
		crashpoint.Hit(crashpoint.EnvelopeStored)
		if next.Phase.Terminal() {
			s.tell(ctx, route, conv, next, raw)
		}
	}
	return internal(err)
}

// decideNext is the buyer's decision.
func (s *Service) decideNext(ctx context.Context, route Route, needs *policy.Needs, ses Session, now time.Time) (Session, Effects, error) {
	switch ses.Phase {
	case PhaseAsking:
		if version, _ := ses.ContractVersion(); !ses.Amends.IsZero() && version < contract.Version3 {
			return ses.Reject(policy.CodeNotReplaceable, fmt.Sprintf("contract schema version %d was agreed on, in which a contract cannot name the one that it replaces "+
				"(version 3 can): contract %s stays as it is; a contract without the link is negotiated like any other, and the old one revoked", version, ses.Amends.ID))
		}
		ask, ok := needs.Ask(ses.Asks)
		if !ok {
			return ses.Reject(policy.CodeNeedsNotMet, "nothing is left to ask for")
		}
		if unfit := needs.Check(ses.Asks, route.Schema(ask.Dataset)); unfit != nil {
			return ses.Reject(policy.CodeNeedsNotMet, unfit.Error())
		}
		return ses.Propose(ask, ses.Asks, needs.Rationale)
	case PhaseOffered:
		return s.decideOffer(ctx, route.Schema(ses.Ask.Dataset), needs, ses, now)
	case PhaseMeta, PhaseDeciding, PhaseAccepted, PhaseActivating, PhaseInForce, PhaseRejected, PhaseWithdrawn, PhaseExpired, PhaseFailed:
	}
	return ses, Effects{}, fmt.Errorf("nothing to send in phase %s", ses.Phase)
}

// tell delivers the last message of a conversation that we ended, once: the peer's own deadline covers the rest.
func (s *Service) tell(ctx context.Context, route Route, conv store.Conversation, ses Session, raw []byte) {
	if raw == nil {
		return
	}
	var err error
	if route == nil {
		if s.cfg.Connector == nil {
			return
		}
		if ses, _, err = s.reach(ctx, ses); err == nil {
			route, err = s.cfg.Connector.Connect(ctx, ses.listener())
		}
	}
	if err == nil {
		_, err = route.Send(ctx, transport(ses), ses.ContextID, conv.TaskID, raw)
	}
	if err != nil {
		s.cfg.Log.Warn("the counterparty was not told that the negotiation has ended", "contextId", ses.ContextID, "err", err)
	}
}

// giveUp ends a conversation that the vendor's refusal of our message, or a signed answer that does not hold, has made
// impossible to go on with. The vendor is told by a withdrawal, unless it has ended the conversation itself.
func (s *Service) giveUp(ctx context.Context, route Route, ses Session, r *envelope.Refusal) error {
	conv, cur, err := s.find(ctx, ses.ContextID)
	if err != nil || cur.Phase.Terminal() || cur.Head != ses.Head {
		return err // it has moved on meanwhile
	}
	code, reason := string(r.Code), clip(r.Error())
	if !r.Code.Known() {
		code = "REFUSED" // the vendor's word for it is a peer's text, and stays in the reason
	}
	now := s.cfg.Now()
	next, fx := cur.Fail(code, reason)
	var peer *did.Document
	if cur.Agreement() != nil && r.Code != envelope.CodeConversationEnded && r.Code != envelope.CodeEquivocation {
		if cur, peer, err = s.reach(ctx, cur.present(s.cfg.Keys())); err == nil {
			if _, unsealable := s.sealing(cur, peer, now); unsealable != nil {
				next, fx = cur.Fail(code, reason) // the key to seal to has gone: there is no telling the vendor
			} else if next, fx, err = cur.leave(PhaseFailed, code, reason); err != nil {
				return internal(err)
			}
		}
	}
	var raw []byte
	err = s.cfg.Store.Update(ctx, func(tx store.Tx) error {
		_, raw, err = s.commit(ctx, tx, &conv, next, fx, nil, peer, now)
		return err
	})
	if err == nil {
		s.tell(ctx, route, conv, next, raw)
	}
	return internal(err)
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
	return ids, s.each(ctx, message.Buyer, func(conv store.Conversation, ses Session) error {
		if !ses.Phase.Terminal() {
			ids = append(ids, conv.ContextID)
		}
		return nil
	})
}

// Sweep ends every conversation whose deadline has passed, and logs how many refusals were not logged one by one; call it
// now and then.
func (s *Service) Sweep(ctx context.Context) error {
	if due := s.refusals.due(s.cfg.Now()); len(due) > 0 {
		if err := s.cfg.Store.Update(ctx, func(tx store.Tx) error { return appendAll(tx, due) }); err != nil {
			return err
		}
	}
	return s.each(ctx, "", func(conv store.Conversation, ses Session) error {
		if _, err := s.expire(ctx, conv, ses); err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
		return nil
	})
}

var openPhases = []Phase{PhaseMeta, PhaseAsking, PhaseDeciding, PhaseOffered, PhaseAccepted, PhaseActivating}

// each calls f for every conversation of a role that has not ended, outside of a transaction. The store lists only so many at a
// time, those that have waited longest: however many a peer keeps opening, it is the others' turn.
func (s *Service) each(ctx context.Context, role message.Role, f func(store.Conversation, Session) error) error {
	var open []store.Conversation
	err := s.cfg.Store.View(ctx, func(tx store.Tx) error {
		owns, err := tx.Lineage(s.self().String())
		if err != nil {
			return err
		}
		for _, own := range owns {
			for _, p := range openPhases {
				list, err := tx.ListConversations(store.ConversationFilter{Own: own, Role: string(role), Phase: string(p), Oldest: true})
				if err != nil {
					return err
				}
				open = append(open, list...)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	// One that cannot be read or moved does not keep the others from their turn.
	var errs []error
	for _, conv := range open {
		ses, err := decodeSession(conv)
		if err == nil {
			err = f(conv, ses)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Withdraw ends a conversation from this side and tells the peer. It is durable when it returns, told or not. A buyer whose
// proof is out goes on waiting: the vendor may have activated the contract before it hears of the withdrawal.
func (s *Service) Withdraw(ctx context.Context, id, reason string) error {
	for range maxAttempts {
		conv, ses, err := s.find(ctx, id)
		if err != nil {
			return err
		}
		if ses.Leaving && !ses.Phase.Terminal() {
			return nil // said already
		}
		ses = ses.present(s.cfg.Keys())
		reached, peer, unreachable := s.reach(ctx, ses)
		if unreachable == nil {
			ses = reached
		}
		next, fx, err := ses.Withdraw(reason)
		if err != nil {
			return err
		}
		if ses.Agreement() == nil {
			fx.Reply = nil // before there is an agreement nothing can be sealed; the rounds simply time out over there
		} else if err = unreachable; err != nil {
			if !fx.Aside {
				fx.Reply = nil // nobody to tell; what ended here cannot go on there
			} else {
				return err
			}
		}
		var raw []byte
		now := s.cfg.Now()
		err = s.cfg.Store.Update(ctx, func(tx store.Tx) error {
			_, raw, err = s.commit(ctx, tx, &conv, next, fx, nil, peer, now)
			return err
		})
		if errors.Is(err, store.ErrConflict) {
			continue
		}
		if err == nil {
			s.tell(ctx, nil, conv, ses, raw)
		}
		return err
	}
	return refuse(envelope.CodeUnavailable, "the conversation moved on each time; try again")
}
