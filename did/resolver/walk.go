// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// MaxHops is the longest chain of successions that Walk follows.
const MaxHops = 8

// Chain is the way from a DID to the one that its subject uses now. Chains are
// shared: do not change them.
type Chain struct {
	Start did.DID
	Hops  []did.Hop // oldest first; none if Start is in use itself
	// Current is the verified document at the end.
	Current *did.Document
	// Assurance is the weakest of the hops', did.AssuranceVerified without any.
	// Nothing may follow the chain unless Assurance.Moves().
	Assurance did.Assurance
	// Line are the same DIDs with the documents that verify the steps.
	Line   *did.Line
	Cached bool // the steps were verified earlier and are not out of date yet
}

// station is a DID on the way: its document, and until when that may be relied on.
type station struct {
	doc         *did.Document // as it is now
	earlier     *did.Document // the newest pinned version that was active, nil if none was
	from, until time.Time
}

// Walk follows the successions of id, step by step, to the document in use (ANP-03
// 1.2 draft, sections 2.5 and 2.6). Each DID on the way is resolved as Resolve
// does it: the policy is asked, the budgets are charged, the document is
// fetched from its domain, verified and pinned. Each step is judged by
// did.VerifyHop. It does not take anybody's word for where the chain ends, and a
// document that cannot be fetched now ends the walk, whatever is pinned.
//
// The error is an *Error that names the DID at which the walk ended: what
// Resolve returns there (CodeDeactivated means that the subject has ended without
// a successor), CodeTransitionInvalid, or CodeTransitionConflict.
//
// A chain without error need not move anything, see Chain.Assurance. An unsigned
// step (k1_ only: an e1_ document without proof does not resolve) is
// did.AssuranceProviderAsserted if the document at the end is proved.
func (r *Resolver) Walk(ctx context.Context, id did.DID) (*Chain, error) {
	r.mu.Lock()
	known := r.chains.get(id, r.o.Now())
	epoch := r.chains.epoch
	r.mu.Unlock()
	if known != nil {
		if c, err := r.walkAgain(ctx, id, known); c != nil || err != nil {
			return c, err
		}
	}
	stations, err := r.collect(ctx, id)
	if err != nil {
		return nil, err
	}
	c, err := r.verifyChain(id, stations)
	if err != nil {
		return nil, err
	}
	if len(c.Hops) > 0 && c.Assurance.Moves() {
		known := &knownChain{hops: c.Hops, line: c.Line, end: c.Current.Hash(), from: stations[0].from, until: stations[0].until}
		for _, s := range stations[1:] {
			if s.from.After(known.from) {
				known.from = s.from
			}
			if s.until.Before(known.until) {
				known.until = s.until
			}
		}
		r.mu.Lock()
		r.chains.put(id, known, epoch)
		r.mu.Unlock()
	}
	return c, nil
}

// walkAgain answers from a chain verified earlier, nil if its end is not what it
// was. The policy may have changed, and the last document may have a newer
// version: both are asked.
func (r *Resolver) walkAgain(ctx context.Context, id did.DID, known *knownChain) (*Chain, error) {
	assurance := did.AssuranceVerified
	for _, hop := range known.hops {
		if err := r.o.Admit(hop.From); err != nil {
			return nil, &Error{Code: CodeNotAdmitted, DID: hop.From, Err: err}
		}
		assurance = assurance.Weakest(hop.Assurance)
	}
	e, _, err := r.resolve(ctx, known.hops[len(known.hops)-1].To)
	if errors.Is(err, CodeDeactivated) {
		return nil, nil // one step more
	}
	if err != nil {
		return nil, err
	}
	if !e.result.Document.Hash().Equal(known.end) {
		return nil, nil
	}
	return &Chain{
		Start: id, Hops: known.hops, Current: e.result.Document, Assurance: assurance, Line: known.line, Cached: true,
	}, nil
}

// collect resolves the DIDs from id on until one is in use.
func (r *Resolver) collect(ctx context.Context, id did.DID) ([]station, error) {
	var stations []station
	seen := map[did.DID]bool{}
	for at := id; ; {
		if seen[at] {
			return nil, &Error{Code: CodeTransitionConflict, DID: at, Err: fmt.Errorf("%w: the steps lead in a circle", did.ErrConflict)}
		}
		if len(stations) > MaxHops {
			return nil, &Error{Code: CodeTransitionInvalid, DID: at, Err: fmt.Errorf("%w: more than %d steps from %s", did.ErrSuccession, MaxHops, id)}
		}
		seen[at] = true
		st, err := r.arrive(ctx, at)
		if err != nil {
			return nil, err
		}
		stations = append(stations, st)
		if !st.doc.Deactivated() {
			return stations, nil
		}
		next := st.doc.SuccessorDID()
		if err := did.CheckSuccessor(at, next); err != nil { // before anything of it is fetched
			return nil, &Error{Code: CodeTransitionInvalid, DID: at, Err: err}
		}
		at = next
	}
}

// arrive resolves one DID of a chain: to a document in use, or to a deactivated
// one that names a successor.
func (r *Resolver) arrive(ctx context.Context, at did.DID) (station, error) {
	for range 2 {
		e, _, err := r.resolve(ctx, at)
		if err == nil {
			return station{doc: e.result.Document, from: e.from, until: e.until}, nil
		}
		var failure *Error
		if !errors.As(err, &failure) || failure.Code != CodeDeactivated || failure.Successor.IsZero() {
			return station{}, err
		}
		latest, err := r.o.Pins.Latest(ctx, at)
		if err != nil {
			return station{}, &Error{Code: CodeStore, DID: at, Err: err}
		}
		if latest == nil || !latest.Hash.Equal(failure.Document.Hash()) {
			r.Evict(at) // another process has accepted other words since
			continue
		}
		earlier, failed := r.lastActive(ctx, at, latest)
		if failed != nil {
			return station{}, failed
		}
		return station{doc: failure.Document, earlier: earlier, from: e.from, until: e.until}, nil
	}
	return station{}, &Error{Code: CodeStore, DID: at, Err: errors.New("the pin kept changing")}
}

// verifyChain judges every step.
func (r *Resolver) verifyChain(id did.DID, stations []station) (*Chain, error) {
	end := stations[len(stations)-1].doc
	steps := make([]did.Station, 0, len(stations))
	for _, s := range stations[:len(stations)-1] {
		steps = append(steps, did.Station{Document: s.earlier, Gone: s.doc})
	}
	line, err := did.VerifyLine(append(steps, did.Station{Document: end}), r.o.Now())
	var failed *did.LineError
	if errors.As(err, &failed) {
		code := CodeTransitionInvalid
		if errors.Is(err, did.ErrConflict) {
			code = CodeTransitionConflict
		}
		return nil, &Error{Code: code, DID: failed.At, Err: failed.Err}
	}
	if err != nil {
		return nil, &Error{Code: CodeTransitionInvalid, DID: id, Err: err}
	}
	c := &Chain{Start: id, Current: end, Line: line, Assurance: did.AssuranceVerified}
	for i, s := range line.Stations()[:len(stations)-1] {
		assurance := s.Assurance
		if assurance == did.AssuranceUnverified && end.ProofKeyID() != "" {
			assurance = did.AssuranceProviderAsserted
		}
		c.Hops = append(c.Hops, did.Hop{
			From: s.ID(), To: stations[i+1].doc.ID(), Assurance: assurance,
			ProofKeyID: s.Gone.ProofKeyID(), Created: s.Gone.ProofCreated(), Document: s.Gone.Hash(),
		})
		c.Assurance = c.Assurance.Weakest(assurance)
	}
	return c, nil
}

// maxChains bounds how many chains are remembered.
const maxChains = 1000

// knownChain is a chain that has passed as a whole.
type knownChain struct {
	hops        []did.Hop
	line        *did.Line
	end         canon.Digest // of the last document
	from, until time.Time    // of all its documents
}

// chains remembers chains that move things, by the DID they start from. Those
// that do not are never here. The caller locks.
type chains struct {
	lru *simplelru.LRU[did.DID, *knownChain]
	// epoch counts drops: what was walked before one is not remembered after it.
	epoch uint64
}

func newChains() *chains {
	lru, err := simplelru.NewLRU[did.DID, *knownChain](maxChains, nil)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return &chains{lru: lru}
}

func (c *chains) get(id did.DID, now time.Time) *knownChain {
	known, ok := c.lru.Get(id)
	if !ok {
		return nil
	}
	if now.Before(known.from) || !now.Before(known.until) {
		c.lru.Remove(id)
		return nil
	}
	return known
}

func (c *chains) put(id did.DID, known *knownChain, epoch uint64) {
	if epoch == c.epoch {
		c.lru.Add(id, known)
	}
}

// drop forgets the chains that id is in.
func (c *chains) drop(id did.DID) {
	c.epoch++
	for _, start := range c.lru.Keys() {
		known, _ := c.lru.Peek(start)
		if slices.ContainsFunc(known.hops, func(h did.Hop) bool { return h.From == id || h.To == id }) {
			c.lru.Remove(start)
		}
	}
}
