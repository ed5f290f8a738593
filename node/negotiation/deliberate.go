// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation/message"
	"github.com/treaty-node/treaty/node/negotiation/policy"
	"github.com/treaty-node/treaty/node/store"
)

// Somebody slow, such as a model, can be asked what to offer and what to answer. It only ever wishes: a [Wish] is narrowed by
// the vendor's code (see [Narrower]), a [policy.Advice] is held to the buyer's needs, what a [Reader] reads orders a
// counter-proposal. It is asked outside of every transaction. A vendor stores the proposal before it asks, so that the peer's
// retry finds it; the answer goes into the store once, by compare-and-swap, whoever else was asked meanwhile.

// ErrNotNow is what somebody slow answers who may be asked again later.
var ErrNotNow = errors.New("negotiation: not now")

// Narrower is a vendor's decider that turns anybody's draft into what policy lets it offer. Like Decide it is code alone.
type Narrower interface {
	Narrow(ask Ask, draft contract.Scope, now time.Time) policy.Outcome
}

// Drafter says what a vendor would like to offer.
type Drafter interface {
	// Admit returns an error when nothing more is to be asked about the peer for now. It asks nobody, and is quick.
	Admit(peer did.DID, now time.Time) error
	// Draft may take its time. most is the most that policy would offer. An error other than [ErrNotNow] ends the conversation.
	Draft(ctx context.Context, ask Ask, most *contract.Offer) (Wish, error)
}

// Wish is a draft of an offer.
type Wish struct {
	Declined bool           // offer nothing
	Scope    contract.Scope // else: columns, operations, retention, group size and budget. The rest is the ask's
}

// Adviser says what a buyer would like to do about an offer that its needs leave open.
type Adviser interface {
	// Advise may take its time. An error other than [ErrNotNow] ends the conversation.
	Advise(ctx context.Context, q Standing) (policy.Advice, error)
}

// Standing is an offer that stands, and what it answers.
type Standing struct {
	policy.Received
	Peer      did.DID
	ContextID string
	Needs     *policy.Needs
	Schema    *contract.Schema // as the vendor publishes it, nil when it does not
	Plain     policy.Reply     // what the needs say without advice
	AsksLeft  int
}

// Reader reads texts in which a peer says how it would talk. What it returns is a guess.
type Reader interface {
	Read(ctx context.Context, peer did.DID, contextID, text string) ([]metaproto.Candidate, error)
}

// interpret has the text of a round read that holds nothing else. Without a reader, or when it fails, the round is answered as
// if nobody could read.
func (s *Service) interpret(ctx context.Context, in *inbound, ses *Session) []metaproto.Candidate {
	if s.cfg.Reader == nil || in.kind != envelope.TypeMetaproto || ses.Phase != PhaseMeta {
		return nil
	}
	m, err := metaproto.ParseMessage(in.content)
	if err != nil || len(m.Candidates) > 0 || m.Status != metaproto.StatusNegotiating || m.CandidateProtocols == "" {
		return nil
	}
	read, err := s.cfg.Reader.Read(ctx, ses.Peer, ses.ContextID, m.CandidateProtocols)
	if err != nil {
		s.cfg.Log.Warn("the peer's text about protocols was not read", "peer", ses.Peer.String(), "contextId", ses.ContextID, "err", err)
		return nil
	}
	return read
}

// Undecided lists the vendor's conversations that wait for [Service.Conclude].
func (s *Service) Undecided(ctx context.Context) (ids []string, err error) {
	err = s.cfg.Store.View(ctx, func(tx store.Tx) error {
		owns, err := tx.Lineage(s.self().String())
		for _, own := range owns {
			list, err := tx.ListConversations(store.ConversationFilter{Own: own, Role: string(message.Vendor), Phase: string(PhaseDeciding), Oldest: true})
			if err != nil {
				return err
			}
			for _, conv := range list {
				ids = append(ids, conv.ContextID)
			}
		}
		return err
	})
	return ids, err
}

// Conclude asks the drafter about the proposal that a conversation waits on, narrows what it says, and stores the answer for the
// peer to fetch by sending its message again. It does nothing where no proposal waits. After a crash or an error it can be called
// again: the drafter is then asked again, and the first answer that is stored is the only one.
func (s *Service) Conclude(ctx context.Context, contextID string) error {
	if !s.driven.start(contextID) {
		return ErrBusy
	}
	defer s.driven.done(contextID)
	conv, ses, err := s.find(ctx, contextID)
	if err != nil || ses.Phase != PhaseDeciding || ses.Role != message.Vendor {
		return err
	}
	if late, err := s.expire(ctx, conv, ses); late || err != nil {
		return settled(err)
	}
	ses, peer, err := s.reach(ctx, ses.present(s.cfg.Keys()))
	if err != nil {
		return err
	}
	next, fx, err := s.conclusion(ctx, ses, peer)
	if err != nil {
		return err
	}
	fx.Answers = ses.Head
	return settled(s.cfg.Store.Update(ctx, func(tx store.Tx) error {
		_, _, err := s.commit(ctx, tx, &conv, next, fx, nil, peer, s.cfg.Now())
		return err
	}))
}

// settled: a conversation that moved on meanwhile needs nothing more from us.
func settled(err error) error {
	if errors.Is(err, store.ErrConflict) {
		return nil
	}
	return err
}

// conclusion is what the vendor answers to a stored proposal.
func (s *Service) conclusion(ctx context.Context, ses Session, peer *did.Document) (Session, Effects, error) {
	ask, err := s.askOf(ctx, ses)
	if err != nil {
		return ses, Effects{}, err
	}
	outcome, err := s.drafted(ctx, ask)
	if errors.Is(err, ErrNotNow) || ctx.Err() != nil {
		return ses, Effects{}, err
	}
	if err != nil {
		s.cfg.Log.Error("nothing was decided", "peer", ses.Peer.String(), "contextId", ses.ContextID, "err", err)
		return ses.decline(PhaseFailed, policy.CodeDeciderFailed, "the vendor came to no decision", Effects{})
	}
	// What may have changed while it was thought about.
	unusable := s.usable(ses, s.cfg.Now())
	if unusable == nil {
		unusable = s.mayContract(peer)
	}
	if unusable != nil {
		return ses.Rejected(string(envelope.CodeOf(unusable)), unusable.Error(), Effects{})
	}
	var fx Effects
	narrowed(&fx, &ses, outcome.Overruled)
	if outcome.Rejected() {
		return ses.Rejected(outcome.Code, outcome.Reason, fx)
	}
	return ses.Offered(outcome.Offer, "", fx)
}

// askOf is the proposal that the conversation waits on, with the words that came with it.
func (s *Service) askOf(ctx context.Context, ses Session) (Ask, error) {
	rec, err := s.ofConversation(ctx, ses, ses.Head)
	if err != nil {
		return Ask{}, err
	}
	said, err := content(rec)
	if err != nil {
		return Ask{}, err
	}
	body, err := message.Parse(said, message.Buyer)
	if err != nil {
		return Ask{}, err
	}
	if body.Scope == nil {
		return Ask{}, fmt.Errorf("negotiation: conversation %s waits on a message that asks for nothing", ses.ContextID)
	}
	version, _ := ses.ContractVersion()
	ask := Ask{Peer: ses.Peer, ContextID: ses.ContextID, Scope: *body.Scope, Version: version, Offers: ses.Offers, Rationale: body.Rationale}
	return ask, s.replaceable(ctx, &ask)
}

// drafted asks, and holds the draft to what code alone would offer, which is looked up before and after.
func (s *Service) drafted(ctx context.Context, ask Ask) (policy.Outcome, error) {
	narrower, ok := s.cfg.Decider.(Narrower)
	if s.cfg.Drafter == nil || !ok {
		return policy.Outcome{}, errors.New("negotiation: there is nobody left to ask")
	}
	most, err := s.most(ctx, ask)
	if err != nil || most.Rejected() {
		return most, err
	}
	wish, err := s.cfg.Drafter.Draft(ctx, ask, most.Offer)
	if err != nil {
		return policy.Outcome{}, err
	}
	if wish.Declined {
		return policy.Outcome{Code: policy.CodeDeclined, Reason: "the vendor does not want to offer this"}, nil
	}
	if most, err = s.most(ctx, ask); err != nil || most.Rejected() {
		return most, err
	}
	draft, w := ask.Scope.Clone(), &wish.Scope
	draft.Columns, draft.Operations = w.Columns, w.Operations
	draft.RetentionDays, draft.MinGroupSize, draft.CallBudget = w.RetentionDays, w.MinGroupSize, w.CallBudget
	outcome := sound(narrower.Narrow(ask, draft, s.cfg.Now()), &ask.Scope)
	if !outcome.Rejected() && !outcome.Offer.Scope.Within(&most.Offer.Scope) {
		return policy.Outcome{Code: policy.CodeDeciderFailed, Reason: "what would be offered is more than policy offers"}, nil
	}
	return outcome, nil
}

func (s *Service) most(ctx context.Context, ask Ask) (policy.Outcome, error) {
	outcome, err := s.cfg.Decider.Decide(ctx, ask, s.cfg.Now())
	return sound(outcome, &ask.Scope), err
}

// decideOffer is the buyer's answer to the standing offer: what its needs say, or what an adviser says within them.
func (s *Service) decideOffer(ctx context.Context, published *contract.Schema, needs *policy.Needs, ses Session, now time.Time) (Session, Effects, error) {
	var schema canon.Digest
	if published != nil {
		var err error
		if schema, err = published.Digest(); err != nil {
			return ses, Effects{}, err
		}
	}
	r := policy.Received{Offer: ses.Offer, Ask: *ses.Ask, Asks: ses.Need + 1, Schema: schema, Now: now}
	reply := needs.DecideOffer(r)
	var overruled []contract.Removal
	if s.cfg.Adviser != nil && needs.Open(r) {
		limits := ses.Agreement().Candidate.Limits
		advice, err := s.cfg.Adviser.Advise(ctx, Standing{
			Received: r, Peer: ses.Peer, ContextID: ses.ContextID, Needs: needs, Schema: published, Plain: reply,
			AsksLeft: max(min(limits.MaxRounds-ses.Asks, limits.MaxOffers-ses.Offers), 0),
		})
		if errors.Is(err, ErrNotNow) {
			return ses, Effects{}, err
		}
		if ctx.Err() != nil {
			return ses, Effects{}, fmt.Errorf("%w: %w", ErrNotNow, ctx.Err())
		}
		if err != nil {
			s.cfg.Log.Error("nothing was decided", "peer", ses.Peer.String(), "contextId", ses.ContextID, "err", err)
			return ses.decline(PhaseFailed, policy.CodeDeciderFailed, "the buyer came to no decision", Effects{})
		}
		r.Now = s.cfg.Now() // the offer may have expired meanwhile
		if reply, overruled = needs.Advised(r, advice); reply.Action == policy.Counter && !ses.mayAsk() && needs.DecideOffer(r).Action == policy.Accept {
			overruled = append(overruled, contract.Removal{What: "intent", Asked: string(policy.Counter), Offered: string(policy.Accept), Rule: "limits", Why: "the agreed number of proposals is used up"})
			reply = needs.DecideOffer(r)
		}
	}
	next, fx, err := answerOffer(ses, reply)
	if err == nil {
		narrowed(&fx, &ses, overruled)
	}
	return next, fx, err
}

func answerOffer(ses Session, r policy.Reply) (Session, Effects, error) {
	switch r.Action {
	case policy.Accept:
		return ses.Accept("")
	case policy.Counter:
		if !ses.mayAsk() {
			return ses.Reject(policy.CodeNeedsNotMet, "the agreed number of proposals is used up: "+r.Reason)
		}
		return ses.Propose(*r.Scope, r.Next, r.Reason)
	case policy.Reject:
		return ses.Reject(r.Code, r.Reason)
	}
	return ses.Reject(policy.CodeNeedsNotMet, "there was no decision")
}

// narrowed logs what was wished for and code took away, before what came of it.
func narrowed(fx *Effects, s *Session, overruled []contract.Removal) {
	if len(overruled) == 0 {
		return
	}
	var e Effects
	e.log(s, ledger.ModelNarrowed, ledger.Narrowing{Removed: loggedRemovals(overruled)})
	fx.Events = slices.Concat(e.Events, fx.Events)
}
