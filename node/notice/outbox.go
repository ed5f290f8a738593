// SPDX-License-Identifier: Apache-2.0

package notice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

// Bounds of the outbox.
const (
	// Keep is how long a notice is tried when the sender says nothing else, and how long it is kept when it is done.
	Keep = 7 * 24 * time.Hour

	firstRetry = 500 * time.Millisecond
	lastRetry  = 10 * time.Minute
	lookEvery  = 500 * time.Millisecond
	sweepEvery = time.Hour
	maxFlying  = 8 // deliveries at a time
)

// Outgoing is a notice to be sent.
type Outgoing struct {
	Peer   did.DID
	Kind   string
	Data   any           // an object; nil: the empty one
	Within time.Duration // no attempt is made after; 0: Keep
}

// Send is Post without choices.
func (s *Service) Send(ctx context.Context, tx store.Tx, peer did.DID, kind string, data any) error {
	_, err := s.Post(ctx, tx, Outgoing{Peer: peer, Kind: kind, Data: data})
	return err
}

// Post puts a notice into the outbox, in the caller's transaction, and returns its id. store.ErrFull when too many are
// pending for this peer.
func (s *Service) Post(_ context.Context, tx store.Tx, o Outgoing) (id string, err error) {
	if !kindForm.MatchString(o.Kind) || o.Peer.IsZero() {
		return "", fmt.Errorf("notice: kind %q to %s", o.Kind, o.Peer)
	}
	data, err := canonical(o.Data)
	if err != nil {
		return "", err
	}
	if o.Within <= 0 {
		o.Within = Keep
	}
	now := s.cfg.Now()
	n := store.Notice{
		ID: "ntc_" + envelope.NewID(), Peer: o.Peer.String(), Kind: o.Kind, Data: data, State: store.NoticePending,
		Due: now, Expires: now.Add(o.Within), Created: now,
	}
	if err := tx.PutNotice(n, 0); err != nil {
		return "", err
	}
	_, err = tx.Append(ledger.Entry{Type: ledger.NoticeSent, Peer: n.Peer, Data: ledger.Notice{ID: n.ID, Kind: n.Kind}})
	return n.ID, err
}

// Failed says that a notice was not answered and will not be.
type Failed struct{ Code, Reason string }

func (f *Failed) Error() string { return "notice: " + f.Code + ": " + f.Reason }

// Ask posts a notice and waits for its answer, at most as long as ctx and within. The notice stays in the outbox, so that an
// answer which comes too late for the caller is still stored. The error is a [*Failed] where the notice failed for good.
func (s *Service) Ask(ctx context.Context, o Outgoing) (Answer, error) {
	var id string
	err := s.cfg.Store.Update(ctx, func(tx store.Tx) (err error) { id, err = s.Post(ctx, tx, o); return err })
	if err != nil {
		return Answer{}, err
	}
	return s.Wait(ctx, id)
}

// Wait delivers a notice until it is done. See Ask.
func (s *Service) Wait(ctx context.Context, id string) (Answer, error) {
	for wait := firstRetry / 4; ; wait = min(2*wait, 2*time.Second) {
		n, err := s.Deliver(ctx, id)
		if err != nil {
			return Answer{}, err
		}
		switch n.State {
		case store.NoticeAnswered:
			a, err := ParseAnswer(n.Answer)
			if err != nil {
				return Answer{}, err
			}
			return *a, nil
		case store.NoticeFailed:
			return Answer{}, &Failed{n.Code, n.Reason}
		}
		if err := clock.Sleep(ctx, wait); err != nil {
			return Answer{}, fmt.Errorf("notice: no answer yet (%s): %w", n.Reason, err)
		}
	}
}

// Run delivers what is due until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	var flying sync.WaitGroup
	defer flying.Wait()
	slots := make(chan struct{}, maxFlying)
	swept, last := time.Time{}, ""
	clock.Every(ctx, lookEvery, func(ctx context.Context) {
		var due []store.Notice
		err := s.cfg.Store.View(ctx, func(tx store.Tx) (err error) {
			due, err = tx.ListNotices(store.NoticeFilter{State: store.NoticePending, DueBy: s.cfg.Now(), Limit: 4 * maxFlying})
			return err
		})
		if now := s.cfg.Now(); err == nil && now.Sub(swept) > sweepEvery {
			swept = now
			err = s.cfg.Store.Update(ctx, func(tx store.Tx) error { _, err := tx.DeleteNoticesBefore(now.Add(-Keep)); return err })
		}
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != last && text != "" && ctx.Err() == nil {
			s.cfg.Log.Error("outbox of notices", "err", err)
		}
		last = text
		for _, n := range due {
			select {
			case slots <- struct{}{}:
			default:
				continue
			}
			flying.Go(func() {
				defer func() { <-slots }()
				if _, err := s.Deliver(ctx, n.ID); err != nil && ctx.Err() == nil {
					s.cfg.Log.Error("notice not delivered", "id", n.ID, "err", err)
				}
			})
		}
	})
	return nil
}

// Deliver makes one attempt at a pending notice and returns it as it stands then. That nobody answered is no error; an error is
// internal.
func (s *Service) Deliver(ctx context.Context, id string) (store.Notice, error) {
	get := func() (n store.Notice, err error) {
		err = s.cfg.Store.View(ctx, func(tx store.Tx) error { n, err = tx.GetNotice(id); return err })
		return n, err
	}
	if !s.take(id) { // another attempt is under way
		return get()
	}
	defer s.leave(id)
	n, err := get()
	if err != nil || n.State != store.NoticePending {
		return n, err
	}
	err = s.attempt(ctx, n)
	if err != nil && !errors.Is(err, store.ErrConflict) { // else another process was faster
		return n, err
	}
	return get()
}

func (s *Service) take(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flying[id] {
		return false
	}
	s.flying[id] = true
	return true
}

func (s *Service) leave(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.flying, id)
}

// attempt sends the notice once and stores what comes of it.
func (s *Service) attempt(ctx context.Context, n store.Notice) error {
	if now := s.cfg.Now(); !now.Before(n.Expires) {
		return s.fail(ctx, n, string(envelope.CodeExpired), "no answer in time; the last attempt: "+n.Reason)
	}
	env, peer, n, err := s.seal(ctx, n)
	if err == nil {
		var route Route
		if route, err = s.cfg.Connect(ctx, env.To); err == nil {
			var raw []byte
			if raw, err = route.Deliver(ctx, env.ContextID, env.Raw()); err == nil {
				err = s.answered(ctx, n, env, peer, raw)
			}
		}
	}
	if err == nil || ctx.Err() != nil || errors.Is(err, store.ErrConflict) {
		return err
	}
	var r *envelope.Refusal
	if errors.As(err, &r) {
		switch r.Code { //nolint:exhaustive // all others: again, the same bytes
		case envelope.CodeMalformed, envelope.CodeTooLarge, envelope.CodeNotTrusted, envelope.CodeUnexpectedType, envelope.CodeVersionMismatch:
			return s.fail(ctx, n, string(r.Code), r.Reason)
		case envelope.CodeWrongSender, // this node moved between the envelope and the request that carried it
			envelope.CodeExpired, envelope.CodeReplayed, envelope.CodeSuiteMismatch, envelope.CodeCannotOpen, envelope.CodeKeyRetired, envelope.CodeWrongRecipient, envelope.CodeOutOfOrder:
			// The peer never took this envelope, and will not. A new one is sealed to what its document says by then.
			n.Envelope, n.ContextID = nil, ""
		}
	}
	n.Reason = clip(err.Error())
	n.Due = s.cfg.Now().Add(min(firstRetry<<min(n.Attempts, 20), lastRetry))
	n.Attempts++
	return s.cfg.Store.Update(ctx, func(tx store.Tx) error { return tx.PutNotice(n, n.Version) })
}

// seal returns the envelope of a notice: the one it has, if it still is from and to the right DIDs, else a new one, stored
// before it is sent.
func (s *Service) seal(ctx context.Context, n store.Notice) (*envelope.Envelope, *did.Document, store.Notice, error) {
	to, err := did.Parse(n.Peer)
	if err != nil {
		return nil, nil, n, err
	}
	if s.cfg.Successor != nil {
		to = s.cfg.Successor(ctx, to)
	}
	peer, err := s.cfg.Resolver.Resolve(ctx, to)
	if err != nil {
		return nil, nil, n, err
	}
	if n.Envelope != nil {
		env, err := envelope.Parse(n.Envelope, 0)
		if err != nil || env.To == to && env.From == s.self() {
			return env, peer, n, err
		}
	}
	body, err := canonical(Notice{Type: BodyType, Kind: n.Kind, Data: json.RawMessage(n.Data)})
	if err != nil {
		return nil, nil, n, err
	}
	self, id, now := s.self(), envelope.NewID(), s.cfg.Now()
	env, opened, err := s.build(ctx, peer, envelope.Draft{To: to, ContextID: id, Seq: 1, Prev: envelope.FirstPrev(self, to, id), CreatedAt: now, Body: body})
	if err != nil {
		return nil, nil, n, err
	}
	n.ContextID, n.Envelope = id, env.Raw()
	err = s.cfg.Store.Update(ctx, func(tx store.Tx) error {
		if err := tx.PutEnvelope(record(env, store.Out, env.From, to, opened, now)); err != nil {
			return err
		}
		return tx.PutNotice(n, n.Version)
	})
	n.Version++
	return env, peer, n, err
}

// errNoAnswer: what came back is not the peer's signed answer, and counts as none.
var errNoAnswer = errors.New("notice: not an answer of the peer")

// answered verifies the peer's answer and stores it.
func (s *Service) answered(ctx context.Context, n store.Notice, sent *envelope.Envelope, peer *did.Document, raw []byte) error {
	none := func(err error) error { return fmt.Errorf("%w: %v", errNoAnswer, err) } //nolint:errorlint // no refusal any more
	env, err := envelope.Parse(raw, 0)
	if err != nil {
		return none(err)
	}
	opened, err := s.verified(ctx, sent, peer, env)
	if err != nil {
		return err
	}
	a, err := ParseAnswer(opened.Body)
	if err == nil && a.Kind != n.Kind {
		err = malformed("an answer of another kind")
	}
	if err != nil {
		return none(err)
	}
	n.State, n.Answer, n.Code, n.Reason = store.NoticeAnswered, opened.Body, a.Code, a.Text
	n.Attempts++
	s.mu.Lock()
	tell := s.answers[n.Kind]
	s.mu.Unlock()
	return s.cfg.Store.Update(ctx, func(tx store.Tx) error {
		if err := tx.PutNotice(n, n.Version); err != nil {
			return err
		}
		if err := tx.PutEnvelope(record(env, store.In, sent.From, sent.To, opened, s.cfg.Now())); err != nil {
			return err
		}
		if _, err := tx.Append(ledger.Entry{
			Type: ledger.NoticeAnswered, Context: n.ContextID, Peer: sent.To.String(),
			Data: ledger.NoticeReply{ID: n.ID, Kind: n.Kind, OK: a.OK, Code: a.Code, Text: a.Text},
		}); err != nil || tell == nil {
			return err
		}
		return tell(ctx, tx, sent.To, n.Data, *a)
	})
}

// verified checks that env is the answer of peer, whose document it is, to what was sent, and opens it. The error is an
// *envelope.Refusal only when it was sealed to a key that has retired meanwhile: a new envelope gets a new answer.
func (s *Service) verified(ctx context.Context, sent *envelope.Envelope, peer *did.Document, env *envelope.Envelope) (envelope.Opened, error) {
	none := func(err error) (envelope.Opened, error) {
		return envelope.Opened{}, fmt.Errorf("%w: %v", errNoAnswer, err)
	} //nolint:errorlint // no refusal any more
	if env.Type != envelope.TypeNotice || env.Sealed == nil || !env.Agreement.IsZero() || env.ContextID != sent.ContextID {
		return none(errors.New("not an answer to this notice"))
	}
	if err := env.VerifyWith(peer, s.cfg.Now()); err != nil {
		return none(err)
	}
	// An answer from the record can be old; prev binds it to this very notice.
	x := envelope.Expect{Self: sent.From, Caller: peer.ID(), Seq: 2, Prev: sent.Digest(), Now: env.Created(), Skew: s.cfg.Skew}
	if err := env.Check(x); err != nil {
		return none(err)
	}
	return s.open(ctx, env)
}

func (s *Service) fail(ctx context.Context, n store.Notice, code, reason string) error {
	n.State, n.Code, n.Reason = store.NoticeFailed, code, clip(reason)
	return s.cfg.Store.Update(ctx, func(tx store.Tx) error {
		if err := tx.PutNotice(n, n.Version); err != nil {
			return err
		}
		_, err := tx.Append(ledger.Entry{
			Type: ledger.NoticeFailed, Context: n.ContextID, Peer: n.Peer,
			Data: ledger.NoticeReply{ID: n.ID, Kind: n.Kind, Code: n.Code, Text: n.Reason},
		})
		return err
	})
}

// unresolved tells a peer that is refused from one whose document cannot be had at the moment.
func unresolved(err error) error {
	var e *resolver.Error
	if errors.As(err, &e) {
		switch e.Code { //nolint:exhaustive // all others are decisions
		case resolver.CodeBudget, resolver.CodeUnreachable, resolver.CodeTimeout, resolver.CodeStore, resolver.CodeCanceled:
			return envelope.Refuse(envelope.CodeUnavailable, "the sender's DID document: %w", err)
		}
	}
	return envelope.Refuse(envelope.CodeNotTrusted, "the sender's DID document: %w", err)
}

const defaultPerHour = 1200 // notices stay in the store, as evidence
