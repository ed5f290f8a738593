// SPDX-License-Identifier: Apache-2.0

// Package succession follows counterparties that have moved to a new DID.
//
// A subject whose binding key changes goes on under a new DID. Whoever says so, an answer with status 409, a notice, a DID that
// calls and claims a known subject, gives a hint and no more: what counts is what the documents say, from the old DID that this
// company has known, step by step, to the one in use (package did, [did.VerifyHop], and the resolver, which fetches and pins).
//
// What it guarantees:
//
//   - A [did.Line] that is returned without error was verified in the documents themselves, moves what follows it
//     (did.AssuranceVerified or did.AssuranceRecoveryVerified), and is one that the operator's policy takes.
//   - Each step that is followed for the first time is on record, with its event, before anything follows it; a step that is
//     refused is an event too, though not more often than once in a while for each subject.
//   - A binding-signed step gives way to a recovery-signed one only where the resolver was told so by an operator.
//   - The record is a memory for lists and addresses. It grants nothing: each answer comes from documents.
//
// What it does not do: it does not remember a step whose old document cannot be had any more. A subject that stops publishing
// its old documents cannot be followed from them.
package succession

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/node/internal/text"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

// ErrRefused is matched by every refusal: the documents, or the operator's policy, say no. Other errors mean that the
// documents cannot be had at the moment; either way nothing follows.
var ErrRefused = errors.New("succession: refused")

// Refusal says what was not followed, and why.
type Refusal struct {
	From   did.DID // where the walk began
	At     did.DID // the DID that does not hold
	Code   string  // upper-case; of the resolver, or NOT_CURRENT, ASSURANCE, NOT_TRUSTED
	Reason string
	Err    error // the cause; may be nil
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("%v: %s: %s", ErrRefused, r.At, r.Reason)
}

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// Is makes errors.Is(err, ErrRefused) true.
func (r *Refusal) Is(target error) bool { return target == ErrRefused }

// Codes of refusals that are not the resolver's.
const (
	CodeNotCurrent = "NOT_CURRENT" // the DID is not the one that the subject uses now
	CodeAssurance  = "ASSURANCE"   // the steps are proved less well than the operator wants
	CodeNotTrusted = "NOT_TRUSTED" // a DID of the line is denied
)

// Walker verifies chains of documents. [resolver.Resolver] is one.
type Walker interface {
	Walk(ctx context.Context, id did.DID) (*resolver.Chain, error)
	Evict(id did.DID)
}

// Config of a Service. Walker, Store and Now are needed.
type Config struct {
	Walker Walker
	Store  interface {
		View(ctx context.Context, fn func(store.Tx) error) error
		Update(ctx context.Context, fn func(store.Tx) error) error
	}
	// Accepts says whether a line proved so well moves anything; nil: all do that can ([did.Assurance.Moves]).
	Accepts func(did.Assurance) bool
	// Admit is asked about every line of more than one DID, with those before it that are on record; nil: all are admitted.
	Admit func(line []did.DID) error
	Now   func() time.Time
}

// Service follows successions. It is safe for concurrent use.
type Service struct {
	cfg Config

	mu      sync.Mutex
	logged  map[did.DID]told      // refusals, by where the walk began
	evicted map[did.DID]time.Time // when a claim has last led to a look-up
}

// told is a refusal that the log has.
type told struct {
	reason string
	at     time.Time
}

const (
	maxTold   = 1024      // subjects whose refusals are told apart
	toldAgain = time.Hour // until the same refusal is logged again; another one of the subject: a minute
)

// New returns a Service.
func New(cfg Config) *Service {
	return &Service{cfg: cfg, logged: map[did.DID]told{}, evicted: map[did.DID]time.Time{}}
}

// Follow verifies the way from a DID to the one that its subject uses now, which is the same one for most. New steps are on
// record when it returns. The error is a [*Refusal], or says that the documents cannot be had.
func (s *Service) Follow(ctx context.Context, from did.DID) (*did.Line, error) {
	line, err := s.follow(ctx, from)
	if err == nil {
		return line, s.remember(ctx, line)
	}
	var r *Refusal
	if errors.As(err, &r) && (r.At != from || slices.Contains(aboutMoves, r.Code)) {
		return nil, errors.Join(err, s.tell(ctx, r))
	}
	return nil, err
}

// aboutMoves are the codes that are about a succession when they are the first DID's own: all others say that its document does
// not hold, as it would not without any succession.
var aboutMoves = []string{
	strings.ToUpper(string(resolver.CodeTransitionInvalid)), strings.ToUpper(string(resolver.CodeTransitionConflict)), strings.ToUpper(string(resolver.CodeSuccessorChanged)),
	strings.ToUpper(string(resolver.CodeReactivated)), CodeAssurance, CodeNotTrusted, CodeNotCurrent,
}

// Stands verifies that id is who stands for the DID from now: the same DID, or the successor that its line ends with.
func (s *Service) Stands(ctx context.Context, from, id did.DID) (*did.Line, error) {
	refuse := func(reason string) (*did.Line, error) {
		r := &Refusal{From: from, At: id, Code: CodeNotCurrent, Reason: reason}
		return nil, errors.Join(r, s.tell(ctx, r))
	}
	if from != id && !did.SameSubject(from, id) {
		return refuse("it is not of the same subject as " + from.String()) // before anything is fetched
	}
	var asked did.DID
	for {
		line, err := s.Follow(ctx, from)
		if err != nil || line.IsCurrent(id) {
			return line, err
		}
		// What is cached of the DID in use may be older than its move: each look-up anew shows one more step.
		switch end := line.Current().ID(); {
		case end == asked:
			return refuse("the successor of " + from.String() + " is " + end.String())
		case !s.mayEvict(end):
			return nil, &resolver.Error{Code: resolver.CodeBudget, DID: end, Err: errors.New("it was looked up for such a claim a moment ago")}
		default:
			asked = end
			s.cfg.Walker.Evict(end)
		}
	}
}

// evictAgain is how long an answer that somebody's word has made us ask for stands: who claims what is not so decides about one
// request in that time, and no more.
const evictAgain = 2 * time.Second

// mayEvict says whether a DID may be looked up anew because of a claim.
func (s *Service) mayEvict(id did.DID) bool {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.evicted[id]
	if known && now.Sub(last) < evictAgain && !now.Before(last) {
		return false
	}
	if !known && len(s.evicted) >= maxTold {
		for id, at := range s.evicted {
			if now.Sub(at) >= evictAgain {
				delete(s.evicted, id)
			}
		}
		if len(s.evicted) >= maxTold {
			return false
		}
	}
	s.evicted[id] = now
	return true
}

// Hint is Follow for somebody's word that a DID has a successor: what is cached of it is forgotten first, unless such words come
// too often.
func (s *Service) Hint(ctx context.Context, from did.DID) (*did.Line, error) {
	if s.mayEvict(from) {
		s.cfg.Walker.Evict(from)
	}
	return s.Follow(ctx, from)
}

func (s *Service) follow(ctx context.Context, from did.DID) (*did.Line, error) {
	chain, err := s.cfg.Walker.Walk(ctx, from)
	var failed *resolver.Error
	switch {
	case errors.As(err, &failed) && !failed.Temporary() && failed.Code != resolver.CodeNotFound:
		return nil, &Refusal{From: from, At: failed.DID, Code: strings.ToUpper(string(failed.Code)), Reason: failed.Error(), Err: err}
	case err != nil:
		return nil, err
	case len(chain.Hops) == 0:
		return chain.Line, nil
	}
	end := chain.Current.ID()
	if !chain.Assurance.Moves() || !chain.Line.Moves() || s.cfg.Accepts != nil && !s.cfg.Accepts(chain.Assurance) {
		return nil, &Refusal{From: from, At: end, Code: CodeAssurance, Reason: fmt.Sprintf("the succession is %s, which is not enough here", chain.Assurance)}
	}
	if s.cfg.Admit != nil {
		// A rule may name a DID from before the one at which this walk began.
		var line []did.DID
		err := s.cfg.Store.View(ctx, func(tx store.Tx) (err error) { line, err = Earlier(tx, from); return err })
		if err != nil {
			return nil, err
		}
		if err := s.cfg.Admit(append(line, dids(chain.Line)...)); err != nil {
			return nil, &Refusal{From: from, At: end, Code: CodeNotTrusted, Reason: err.Error(), Err: err}
		}
	}
	return chain.Line, nil
}

// dids are the DIDs of a line, oldest first.
func dids(l *did.Line) (ids []did.DID) {
	for _, s := range l.Stations() {
		ids = append(ids, s.ID())
	}
	return ids
}

// Steps are the successions of a verified line, as they are recorded.
func Steps(l *did.Line, at time.Time) (steps []store.Succession) {
	stations := l.Stations()
	for i, s := range stations {
		if i+1 == len(stations) || !s.Assurance.Moves() {
			break
		}
		next := stations[i+1]
		steps = append(steps, store.Succession{
			Old: s.ID().String(), New: next.ID().String(), Assurance: string(s.Assurance), OldHash: s.Gone.Hash(), NewHash: next.Keys().Hash(), At: at,
		})
	}
	return steps
}

// remember records the steps that are new, each with its event.
func (s *Service) remember(ctx context.Context, l *did.Line) error {
	steps := Steps(l, s.cfg.Now())
	if len(steps) == 0 {
		return nil
	}
	known := true
	err := s.cfg.Store.View(ctx, func(tx store.Tx) error {
		for _, step := range steps {
			have, err := tx.GetSuccession(step.Old)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			known = known && err == nil && have.New == step.New
		}
		return nil
	})
	if err != nil || known {
		return err
	}
	return s.cfg.Store.Update(ctx, func(tx store.Tx) error { return Record(tx, steps) })
}

// Record puts verified steps on record, with an event for each that is new. What a recovery key has signed takes the place of
// what a binding key had: the resolver accepts such a document only after an operator has.
func Record(tx store.Tx, steps []store.Succession) error {
	for _, step := range steps {
		have, err := tx.GetSuccession(step.Old)
		if err == nil && have.New == step.New {
			continue
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if err := tx.OverruleSuccession(step); err != nil {
			return err
		}
		if _, err := tx.Append(ledger.Entry{Type: ledger.DIDSucceeded, Peer: step.New, Data: ledger.Succession{
			Old: step.Old, New: step.New, Assurance: step.Assurance, OldHash: step.OldHash, NewHash: step.NewHash, Overruled: have.New,
		}}); err != nil {
			return err
		}
	}
	return nil
}

// tell logs a refusal, unless it was said a while ago: whoever claims what is not so could fill the log with it.
func (s *Service) tell(ctx context.Context, r *Refusal) error {
	now := s.cfg.Now()
	s.mu.Lock()
	last, known := s.logged[r.From]
	wait := toldAgain
	if last.reason != r.Code {
		wait = time.Minute
	}
	if known && now.Sub(last.at) < wait || !known && len(s.logged) >= maxTold && !s.forget(now) {
		s.mu.Unlock()
		return nil
	}
	s.logged[r.From] = told{r.Code, now}
	s.mu.Unlock()
	return s.cfg.Store.Update(context.WithoutCancel(ctx), func(tx store.Tx) error {
		_, err := tx.Append(ledger.Entry{Type: ledger.DIDSuccessionRefused, Peer: r.From.String(), Data: ledger.SuccessionRefusal{
			From: r.From.String(), At: r.At.String(), Code: r.Code, Reason: clip(r.Reason),
		}})
		return err
	})
}

// forget makes room, if a refusal is old enough to be forgotten. The caller locks.
func (s *Service) forget(now time.Time) bool {
	for id, t := range s.logged {
		if now.Sub(t.at) >= toldAgain {
			delete(s.logged, id)
		}
	}
	return len(s.logged) < maxTold
}

// clip bounds a text that enters the log.
func clip(s string) string { return text.Clip(s, 1000) }

// Earlier are the DIDs that came before id in its line, as they are on record, oldest first.
func Earlier(tx store.Successions, id did.DID) ([]did.DID, error) {
	names, err := tx.Lineage(id.String())
	if err != nil {
		return nil, err
	}
	var earlier []did.DID
	for _, name := range names[:max(slices.Index(names, id.String()), 0)] {
		d, err := did.Parse(name)
		if err != nil {
			return nil, fmt.Errorf("%w: a line of DIDs: %w", store.ErrCorrupt, err)
		}
		earlier = append(earlier, d)
	}
	return earlier, nil
}
