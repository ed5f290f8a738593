// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/node/internal/trust"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/notice"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/succession"
)

// Counterparties that move to another DID are followed by their documents (package succession). This file is where that meets the
// trust policy, the notices and the connections.

const followTimeout = 15 * time.Second

func (n *Node) newLines() *succession.Service {
	return succession.New(succession.Config{Walker: n.resolver, Store: n.db, Accepts: n.trust.AcceptsSuccession, Admit: n.trust.AdmitLine, Now: n.clock.Now})
}

// mayContract is the trust policy, for successors too: what is allowed to a DID is allowed to the one that verifiably followed it,
// and what is denied is denied.
func (n *Node) mayContract(id did.DID) error {
	err := n.trust.MayContract(id)
	policy := n.trust.Load()
	known, claims := policy.Claimed(id)
	var refusal *trust.Refusal
	switch {
	case !claims, err != nil && (!errors.As(err, &refusal) || refusal.Rule != trust.RuleFirstContact):
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), followTimeout)
	defer cancel()
	line, lineErr := n.lines.Stands(ctx, known, id)
	var denied *trust.Refusal
	switch {
	case lineErr != nil && errors.As(lineErr, &denied):
		return denied
	case lineErr != nil || err == nil:
		return err
	case !policy.Contracts(line.Current().ID().Profile()):
		return err
	}
	return nil
}

// successorOf is the DID that verifiably stands for another one now, or that one itself.
func (n *Node) successorOf(ctx context.Context, id did.DID) did.DID {
	if line, err := n.lines.Follow(ctx, id); err == nil {
		return line.Current().ID()
	}
	return id
}

// resolveCurrent resolves a DID, or the one that stands for it now.
func (n *Node) resolveCurrent(ctx context.Context, id did.DID) (*resolver.Result, error) {
	result, err := n.resolver.ResolveResult(ctx, id)
	if !errors.Is(err, resolver.CodeDeactivated) {
		return result, err
	}
	if next := n.successorOf(ctx, id); next != id {
		return n.resolver.ResolveResult(ctx, next)
	}
	return result, err
}

// errNotFollowed makes the sender of a notice send it again: the documents that it is about were not looked at yet.
var errNotFollowed = errors.New("the succession is being verified; send the same notice again")

// noticeOfMove takes a counterparty's word that it has moved, as the hint that it is: the documents are fetched and verified outside
// of the transaction, and the sender's next attempt finds the step on record. From when the old key may have been somebody
// else's is its owner's to say, and is taken from the verified successor only.
func (n *Node) noticeOfMove(_ context.Context, tx store.Tx, from did.DID, data []byte) (any, error) {
	var m successorNotice
	if err := canon.Unmarshal(data, &m, canon.Limits{}); err != nil {
		return nil, &notice.Refused{Code: "MALFORMED", Text: "the notice's data: " + err.Error()}
	}
	old, err := did.Parse(m.Old)
	if err != nil || m.New != from.String() || old == from || !did.SameSubject(old, from) {
		return nil, &notice.Refused{Code: "MALFORMED", Text: "a notice of a move comes from the successor, about a DID of the same subject"}
	}
	var since time.Time
	if m.Since != "" {
		if since, err = time.Parse(time.RFC3339, m.Since); err != nil || since.After(n.clock.Now().Add(skew)) {
			return nil, &notice.Refused{Code: "MALFORMED", Text: "since is not a time in the past"}
		}
	}
	n.resolver.Evict(old) // also when the step is on record: somebody may have met the successor first
	step, err := tx.GetSuccession(m.Old)
	if errors.Is(err, store.ErrNotFound) {
		n.driving.Go(func() {
			if _, err := n.lines.Hint(n.life, old); err != nil && n.life.Err() == nil {
				n.log.Warn("a counterparty says that it has moved, and is not followed", "old", old, "new", from, "err", err)
			}
		})
		return nil, errNotFollowed
	}
	if err != nil {
		return nil, err
	}
	if step.New != m.New {
		return nil, &notice.Refused{Code: "UNVERIFIED", Text: "the documents lead from " + m.Old + " to another DID"}
	}
	if since.IsZero() {
		return nil, nil
	}
	if !step.CompromisedSince.IsZero() && !since.Before(step.CompromisedSince) {
		return nil, nil
	}
	step.CompromisedSince = since
	if err := tx.PutSuccession(step); err != nil {
		return nil, err
	}
	_, err = tx.Append(ledger.Entry{Type: ledger.DIDCompromised, Peer: m.New, Data: ledger.Compromise{DID: m.Old, Since: stamp(since)}})
	return nil, err
}

// lineOnRecord are the DIDs of a line up to id, as this node has verified them, oldest first.
func (n *Node) lineOnRecord(ctx context.Context, id did.DID) (line []did.DID, err error) {
	err = n.db.View(ctx, func(tx store.Tx) (err error) { line, err = succession.Earlier(tx, id); return err })
	return append(line, id), err
}

// entitled says whether this node deals with a DID: the trust policy, whose rules for one DID go on to its successors. A DID that
// claims to follow one that a rule names is followed up first.
func (n *Node) entitled(ctx context.Context, id did.DID) error {
	named, claims := n.trust.Load().Claimed(id)
	if !claims {
		return n.trust.Admit(id)
	}
	line, err := n.lineOnRecord(ctx, id)
	if err != nil {
		return err
	}
	if len(line) == 1 {
		// Also of one that would be admitted by itself: a rule that denies the DID before it goes on to it.
		_, err := n.lines.Stands(ctx, named, id)
		var denied *trust.Refusal
		if err != nil && (errors.As(err, &denied) || n.trust.Admit(id) != nil) {
			return err
		}
		if line, err = n.lineOnRecord(ctx, id); err != nil {
			return err
		}
	}
	return n.trust.AdmitLine(line)
}

// known lets verified callers through that the trust policy deals with. The verifier of requests asks the policy about a DID as a
// text; here it is known whose it is.
func (n *Node) known(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, signed := httpsig.CallerFrom(r.Context())
		if !signed {
			next.ServeHTTP(w, r)
			return
		}
		err := n.entitled(r.Context(), caller.DID)
		switch {
		case err == nil:
			next.ServeHTTP(w, r)
		case errors.Is(err, succession.ErrRefused) || errors.Is(err, trust.ErrNotTrusted):
			n.verifier.WriteError(w, &httpsig.Error{Code: httpsig.ForbiddenDID, Status: http.StatusForbidden, Description: "The DID may not use this service."})
		default:
			n.log.Warn("a caller's succession could not be verified", "did", caller.DID.String(), "err", err)
			n.verifier.WriteError(w, err) // as not available: the same request may pass later
		}
	})
}
