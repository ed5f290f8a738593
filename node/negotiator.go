// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"slices"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/gateway/a2a"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/notice"
	"github.com/treaty-node/treaty/node/store"
)

// negotiator shows negotiations as A2A tasks. There is no second record: a task is the conversation, seen from outside. Notices
// come in the same way and are answered at once, by a task that nobody can look up.
type negotiator struct {
	service *negotiation.Service
	notices func(to did.DID) *notice.Service // of whom it is for
	db      store.Store
	names   func() []string // the DIDs that this node has had
}

var taskStates = map[negotiation.Phase]a2a.State{
	negotiation.PhaseMeta:       a2a.InputRequired,
	negotiation.PhaseAsking:     a2a.InputRequired,
	negotiation.PhaseDeciding:   a2a.Working,
	negotiation.PhaseOffered:    a2a.InputRequired,
	negotiation.PhaseAccepted:   a2a.InputRequired,
	negotiation.PhaseActivating: a2a.Working,
	negotiation.PhaseInForce:    a2a.Completed,
	negotiation.PhaseRejected:   a2a.Rejected,
	negotiation.PhaseWithdrawn:  a2a.Canceled,
	negotiation.PhaseExpired:    a2a.Failed,
	negotiation.PhaseFailed:     a2a.Failed,
}

// Receive implements [a2a.Negotiator].
func (n negotiator) Receive(ctx context.Context, caller did.DID, raw []byte) (a2a.Reply, error) {
	if env, err := envelope.Parse(raw, 0); err == nil && env.Type == envelope.TypeNotice {
		r, err := n.notices(env.To).Receive(ctx, caller, raw)
		if err != nil {
			return a2a.Reply{}, err
		}
		return a2a.Reply{TaskID: "ntc-" + r.ContextID, ContextID: r.ContextID, State: a2a.Completed, Envelope: r.Reply, Updated: r.At}, nil
	}
	res, err := n.service.Receive(ctx, caller, raw)
	if err != nil {
		return a2a.Reply{}, err
	}
	return a2a.Reply{
		TaskID: res.TaskID, ContextID: res.ContextID, State: taskStates[res.Phase], Envelope: res.Reply, Artifact: res.Artifact, Updated: res.Updated,
	}, nil
}

// Lookup implements [a2a.Negotiator].
func (n negotiator) Lookup(ctx context.Context, caller did.DID, taskID string) (reply a2a.Reply, err error) {
	err = n.db.View(ctx, func(tx store.Tx) error {
		conv, err := findConversation(tx, n.names(), taskID)
		if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrConflict) || err == nil && (!sameLine(tx, conv.Peer, caller) || conv.TaskID != taskID) {
			return a2a.ErrNotFound
		}
		if err != nil {
			return err
		}
		reply, err = n.view(tx, conv)
		return err
	})
	return reply, err
}

// sameLine says whether a conversation's peer is the caller, or one that the caller has followed. Only the last of a line calls:
// the others have a successor.
func sameLine(tx store.Tx, peer string, caller did.DID) bool {
	line, err := tx.Lineage(caller.String())
	return err == nil && slices.Contains(line, peer)
}

// List implements [a2a.Negotiator].
func (n negotiator) List(ctx context.Context, caller did.DID, f a2a.ListFilter) (list []a2a.Reply, err error) {
	err = n.db.View(ctx, func(tx store.Tx) error {
		line, err := tx.Lineage(caller.String())
		if err != nil {
			return err
		}
		var all []store.Conversation
		for _, peer := range line {
			found, err := conversationsOf(tx, n.names(), store.ConversationFilter{Peer: peer})
			if err != nil {
				return err
			}
			all = append(all, found...)
		}
		for _, conv := range all {
			if f.ContextID != "" && conv.ContextID != f.ContextID || len(list) >= f.Limit {
				continue
			}
			reply, err := n.view(tx, conv)
			if err != nil {
				return err
			}
			list = append(list, reply)
		}
		return nil
	})
	return list, err
}

// view is a conversation with the last envelope that went to the caller.
func (n negotiator) view(tx store.Tx, conv store.Conversation) (a2a.Reply, error) {
	phase := negotiation.Phase(conv.Phase)
	reply := a2a.Reply{TaskID: conv.TaskID, ContextID: conv.ContextID, State: taskStates[phase], Updated: conv.Updated}
	// What the caller itself has sent, and how much, costs nothing here.
	switch last, err := tx.LastEnvelope(conv.Own, conv.Peer, conv.ContextID); {
	case err == nil:
		reply.Envelope, reply.Artifact = last.Bytes, phase == negotiation.PhaseInForce
	case !errors.Is(err, store.ErrNotFound):
		return a2a.Reply{}, err
	}
	return reply, nil
}
