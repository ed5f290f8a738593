// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/node/drill"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/notice"
	"github.com/treaty-node/treaty/node/store"
)

// newNotices makes the service for the node's own notices. Who handles which kind is registered beside it.
func (n *Node) newNotices() *notice.Service {
	return n.noticesOf(func() notice.Keys {
		id := n.id()
		return notice.Keys{Binding: id.binding, Opener: opener{n, id, 0}, Document: id.agent, Owns: id.owns}
	}, n.drills.opener)
}

// noticesOf makes the service for notices of an identity.
func (n *Node) noticesOf(keys func() notice.Keys, opens func(did.DID, string) hpke.Opener) *notice.Service {
	return notice.New(notice.Config{
		Keys: keys, Opener: opens, Store: n.db, Resolver: n.resolver, Admit: n.admitNotice, Successor: n.successorOf, Refused: n.nego.Refused,
		Connect: func(ctx context.Context, peer did.DID) (notice.Route, error) {
			p, err := n.connect(ctx, peer)
			if err != nil {
				return nil, err
			}
			return noticeRoute{p}, nil
		},
		Now: n.clock.Now, Skew: skew, Lifetime: n.cfg.Limits.MessageLifetime, Log: n.log,
	})
}

// admitNotice: notices are for those with whom there is something to take notice of: a contract or a conversation, with this
// DID or with one that it may have come after. What the policy denies stays denied.
func (n *Node) admitNotice(ctx context.Context, from did.DID) error {
	if err := n.entitled(ctx, from); err != nil {
		return envelope.Refuse(envelope.CodeNotTrusted, "%w", err)
	}
	subject := ""
	if from.Fingerprint() != "" {
		subject = from.StableSubject()
	}
	var known bool
	err := n.db.View(ctx, func(tx store.Tx) (err error) { known, err = tx.KnowsPeer(from.String(), subject); return err })
	if err == nil && !known && n.mayDrill(from, false, drill.Rehearsal) != nil {
		return envelope.Refuse(envelope.CodeNotTrusted, "there is no contract and no conversation with you")
	}
	return err
}

// noticeRoute sends notices as negotiations are sent.
type noticeRoute struct{ *peer }

// Deliver implements [notice.Route].
func (r noticeRoute) Deliver(ctx context.Context, contextID string, env []byte) ([]byte, error) {
	answer, err := r.Send(ctx, "", contextID, "", env)
	if err == nil && answer.Envelope == nil {
		err = errors.New("the answer holds no envelope")
	}
	return answer.Envelope, err
}
