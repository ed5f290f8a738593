// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"context"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation/message"
	"github.com/treaty-node/treaty/node/store"
)

// An agreement on how to talk is never changed: a conversation whose agreement holds no longer ends. A buyer whose conversation ends
// so, and who has signed nothing that could still bind it, takes the same needs up in a new one, with rounds of their own, by
// itself. The transaction that ends the old conversation opens the new one: there is never neither, and never two.

// maxReopened is how often one need is taken up again. The pause before each lets a rotation, a restart or a change of configuration
// over there come to its end, and is far shorter than a message lives.
const maxReopened = 2

var reopenPauses = [maxReopened]time.Duration{2 * time.Second, 10 * time.Second}

// renegotiable are the codes which say that the way of talking does not hold any more, as ANP-06 section 10.1 lists the
// reasons to negotiate again. None of them judges who is asking, or what for.
var renegotiable = map[envelope.Code]bool{
	envelope.CodeNoAgreement:       true, // the agreement has expired or is below a floor of now, or the peer has lost it
	envelope.CodeAgreementMismatch: true, // the peer goes by another one
	envelope.CodeSuiteMismatch:     true, // a key that it names has gone from a document, or a suite is not spoken any more
	envelope.CodeKeyRetired:        true, // the key's grace after a rotation is over
	envelope.CodeCannotOpen:        true, // the key has gone: a node was restored without its session keys
	envelope.CodeVersionMismatch:   true, // the peer speaks another contract schema than was agreed
	envelope.CodeUnknownColumn:     true, // the peer publishes another schema of the dataset now
	envelope.CodeUnknownDataset:    true,
}

// reopens says whether the need of a conversation that has ended is taken up again. A rejection by the peer is one only where its
// signed word says that the agreement does not hold (our proof came when it did not): everything else it rejects is its decision.
func (s *Session) reopens(floor metaproto.Floor, now time.Time) bool {
	code, a := envelope.Code(s.Code), s.Agreement()
	if s.Role != message.Buyer || s.Needs == "" || s.Leaving || s.Reopened >= maxReopened {
		return false
	}
	switch {
	case code == envelope.CodeNoAgreement && a == nil:
		return false // the rounds found nothing that both sides can live with
	case code == envelope.CodeExpired && (a == nil || a.Usable(floor, now) == nil):
		return false // a message was under way for too long, and the agreement still holds
	case !renegotiable[code] && code != envelope.CodeExpired:
		return false
	}
	switch s.Phase {
	case PhaseFailed:
		return true
	case PhaseRejected:
		return code == envelope.CodeNoAgreement
	case PhaseMeta, PhaseAsking, PhaseDeciding, PhaseOffered, PhaseAccepted, PhaseActivating, PhaseInForce, PhaseWithdrawn, PhaseExpired:
	}
	return false
}

// openTalk is a buyer's new conversation with its first round, not stored yet.
func (s *Service) openTalk(peer did.DID, needs string, instead Instead, now time.Time) (Session, Effects, error) {
	keys, contextID := s.cfg.Keys(), envelope.NewID()
	fresh, err := keys.newTalk(contextID)
	if err != nil {
		return Session{}, Effects{}, err
	}
	meta, err := metaproto.New(metaproto.Config{
		Role: metaproto.Initiator, ContextID: contextID, Self: s.self(), Peer: peer,
		SigningKID: keys.Binding.KeyID(), KeyAgreementKID: keys.KeyAgreementKID, Keys: fresh.keys,
	}, s.cfg.Meta(), now)
	if err != nil {
		return Session{}, Effects{}, err
	}
	ses := NewSession(message.Buyer, s.self(), peer, contextID, meta, now, s.cfg.Deadline)
	ses.Needs, ses.Amends, ses.Terms, ses.sealedKeys = needs, instead.Of, instead.Terms, fresh.sealed
	return ses.Begin(s.cfg.Meta(), now)
}

// again prepares the conversation that takes up the need of one that has ended. It returns nil when there is to be none: the old
// one's end does not depend on it.
func (s *Service) again(old *Session, now time.Time) (*Session, Effects) {
	if !old.reopens(s.cfg.Meta().Floor, now) || s.cfg.Contracts(old.listener()) != nil {
		return nil, Effects{}
	}
	next, fx, err := s.openTalk(old.listener(), old.Needs, Instead{old.Amends, old.Terms}, now)
	if err != nil {
		s.cfg.Log.Error("the negotiation is not taken up again", "contextId", old.ContextID, "err", err)
		return nil, Effects{}
	}
	next.Reopens, next.Reopened = old.ContextID, old.Reopened+1
	next.NotBefore = now.UTC().Add(reopenPauses[old.Reopened])
	old.ReopenedAs = next.ContextID
	link := ledger.Reopening{From: old.ContextID, To: next.ContextID, Attempt: next.Reopened, Code: old.Code, Reason: clip(old.Reason)}
	var linked Effects
	linked.log(old, ledger.NegotiationReopened, link)
	linked.log(&next, ledger.NegotiationReopened, link)
	fx.Events = append(linked.Events, fx.Events...)
	return &next, fx
}

// openAgain stores it, in the transaction that has just stored the old one's end.
func (s *Service) openAgain(ctx context.Context, tx store.Tx, next *Session, fx Effects, now time.Time) error {
	if next == nil {
		return nil
	}
	conv := s.conversation(*next)
	_, _, err := s.commit(ctx, tx, &conv, *next, fx, nil, nil, now)
	return err
}
