// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

// Bounds on what refused messages add to the event log, which only grows. Beyond them refusals are counted, and the number
// is logged when the window is over.
const (
	refusalWindow = time.Minute
	maxRefusals   = 20   // of one peer in a window
	maxTallies    = 1024 // peers counted one by one; further ones share a tally
)

// codeSuppressed is the code of the event that stands for refusals which were not logged one by one.
const codeSuppressed = "SUPPRESSED"

// refusals counts refusals by peer.
type refusals struct {
	mu    sync.Mutex
	peers map[did.DID]*tally
}

type tally struct {
	start           time.Time
	logged, dropped int
}

// note counts one refusal. It says whether it is to be logged, and returns the summaries that are due.
func (r *refusals) note(peer did.DID, now time.Time) (log bool, due []ledger.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.peers[peer]
	if t != nil && now.Sub(t.start) >= refusalWindow || t == nil && len(r.peers) >= maxTallies {
		due = r.flush(now)
		t = r.peers[peer]
	}
	if t == nil {
		if len(r.peers) >= maxTallies {
			peer = did.DID{}
		}
		if r.peers == nil {
			r.peers = map[did.DID]*tally{}
		}
		if t = r.peers[peer]; t == nil {
			t = &tally{start: now}
			r.peers[peer] = t
		}
	}
	if t.logged < maxRefusals {
		t.logged++
		return true, due
	}
	t.dropped++
	return false, due
}

// flush ends the windows that are over.
func (r *refusals) flush(now time.Time) (due []ledger.Entry) {
	for peer, t := range r.peers {
		if now.Sub(t.start) < refusalWindow {
			continue
		}
		delete(r.peers, peer)
		if t.dropped > 0 {
			entry := ledger.Entry{Type: ledger.MessageRefused, Data: ledger.MessageRefusal{
				Code: codeSuppressed, Reason: fmt.Sprintf("%d more messages were refused since %s and not logged one by one", t.dropped, t.start.UTC().Format(time.RFC3339)),
			}}
			if !peer.IsZero() {
				entry.Peer = peer.String()
			}
			due = append(due, entry)
		}
	}
	return due
}

// due returns the summaries of all windows that are over.
func (r *refusals) due(now time.Time) []ledger.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.flush(now)
}

func refusalEntry(peer did.DID, env *envelope.Envelope, r *envelope.Refusal) ledger.Entry {
	data := ledger.MessageRefusal{Code: string(r.Code), Reason: clip(r.Reason)}
	entry := ledger.Entry{Type: ledger.MessageRefused, Peer: peer.String()}
	if env != nil {
		entry.Context, data.Type, data.Seq = env.ContextID, string(env.Type), env.Seq
	}
	entry.Data = data
	return entry
}

// Refused is for messages that others take in this node's name: it logs a refusal within the same bounds.
func (s *Service) Refused(ctx context.Context, caller did.DID, env *envelope.Envelope, err error) error {
	return s.refused(ctx, caller, env, err)
}

// refused records a refusal and returns it; anything else is internal and stays here, but for a signer that is away, which
// the peer may wait for.
func (s *Service) refused(ctx context.Context, caller did.DID, env *envelope.Envelope, err error) error {
	var r *envelope.Refusal
	if !errors.As(err, &r) {
		s.cfg.Log.Error("negotiation message not handled", "peer", caller.String(), "err", err)
		if errors.Is(err, did.ErrSignerUnavailable) {
			// Nothing changed and nobody decided anything. What exactly is wrong here is none of the peer's business.
			return refuse(envelope.CodeUnavailable, "this node cannot sign now; send the same message again")
		}
		return err
	}
	log, entries := s.refusals.note(caller, s.cfg.Now())
	if log {
		entries = append(entries, refusalEntry(caller, env, r))
	}
	if len(entries) == 0 {
		return err
	}
	if logErr := s.cfg.Store.Update(ctx, func(tx store.Tx) error { return appendAll(tx, entries) }); logErr != nil {
		s.cfg.Log.Error("refusal not logged", "err", logErr)
	}
	return err
}
