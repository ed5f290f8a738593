// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/ledger/evidence"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/store"
)

// Evidence implements [httpapi.Admin]: it compiles and signs the evidence bundle of a contract in force.
func (n *Node) Evidence(ctx context.Context, contractID string) ([]byte, error) {
	// The log is that of the DID that the node began with, whichever it has now.
	id, log := n.id(), n.db.Node()
	in := evidence.Input{Node: log, ContractID: contractID, From: ledger.Genesis(log)}
	var rec store.ContractRecord
	err := n.db.View(ctx, func(tx store.Tx) (err error) {
		if rec, err = tx.GetContract(contractID); err != nil {
			return err
		}
		in.Contract, in.Activation, in.ContextID = rec.Bytes, rec.Activation, rec.ContextID
		conv, err := conversationOf(tx, id.names(), rec)
		if err != nil {
			return err
		}
		if in.Agreement, err = agreementOf(conv); err != nil {
			return err
		}
		if in.Messages, err = messagesOf(tx, conv); err != nil {
			return err
		}
		stated, err := tx.ListStatements(rec.ID, "", 0)
		if err != nil {
			return err
		}
		for _, s := range stated {
			in.Statements = append(in.Statements, s.Bytes)
		}
		in.Events, err = segment(tx, rec)
		return err
	})
	if err != nil {
		return nil, err
	}
	if rec.Activation == nil {
		return nil, &httpapi.Error{Kind: httpapi.KindUsage, Message: fmt.Sprintf("contract %s is %s; evidence is compiled of contracts that came into force", rec.ID, rec.State)}
	}
	if len(in.Events) > 0 {
		if in.From, err = n.headBefore(ctx, in.Events[0].Seq); err != nil {
			return nil, err
		}
	}
	if in.Documents, in.Compromised, err = n.documentsOf(ctx, id, rec); err != nil {
		return nil, err
	}
	return evidence.Build(ctx, in, id.binding, n.clock.Now())
}

// conversationOf is the conversation that a contract came from, under whichever of its DIDs the node had it.
func conversationOf(tx store.Conversations, names []string, rec store.ContractRecord) (c store.Conversation, err error) {
	for _, own := range names {
		if c, err = tx.GetConversation(own, rec.Peer, rec.ContextID); !errors.Is(err, store.ErrNotFound) {
			return c, err
		}
	}
	return c, err
}

func agreementOf(conv store.Conversation) ([]byte, error) {
	var s negotiation.Session
	if err := json.Unmarshal(conv.State, &s); err != nil {
		return nil, err
	}
	a := s.Agreement()
	if a == nil {
		return nil, fmt.Errorf("conversation %s holds a contract and no agreement", conv.ContextID)
	}
	return a.Canonical()
}

func messagesOf(tx store.Envelopes, conv store.Conversation) ([]evidence.Message, error) {
	list, err := tx.ListEnvelopes(conv.Own, conv.Peer, conv.ContextID)
	if err != nil {
		return nil, err
	}
	var out []evidence.Message
	for _, e := range list {
		out = append(out, evidence.Message{Raw: e.Bytes, Salt: e.Salt, Body: e.Plaintext})
	}
	return out, nil
}

// segment is the part of the log from the conversation's first event to the contract's last one so far.
func segment(tx store.Tx, rec store.ContractRecord) ([]ledger.Event, error) {
	first, err := tx.FindEvents(store.EventFilter{Context: rec.ContextID, Limit: 1})
	if err != nil || len(first) == 0 {
		return nil, err
	}
	last := first[0].Seq
	for _, f := range []store.EventFilter{{Context: rec.ContextID}, {Contract: rec.ID}} {
		list, err := tx.FindEvents(f)
		if err != nil {
			return nil, err
		}
		if len(list) > 0 {
			last = max(last, list[len(list)-1].Seq)
		}
	}
	var out []ledger.Event
	for after := first[0].Seq - 1; after < last; {
		batch, err := tx.Events(after, int(min(last-after, store.MaxList)))
		if err != nil || len(batch) == 0 {
			return out, err
		}
		out = append(out, batch...)
		after = out[len(out)-1].Seq
	}
	return out, nil
}

func (n *Node) headBefore(ctx context.Context, seq uint64) (ledger.Head, error) {
	if seq <= 1 {
		return ledger.Genesis(n.db.Node()), nil
	}
	list, err := n.Events(ctx, seq-2, 1)
	if err != nil {
		return ledger.Head{}, err
	}
	if len(list) != 1 {
		return ledger.Head{}, fmt.Errorf("event %d is missing", seq-1)
	}
	return list[0].Head(), nil
}

// documentsOf are the documents of both parties: of each DID that either has had, the version pinned when the contract was made, or
// later where there was none, and the deactivated one; and which of the DIDs somebody else may have had the key of.
func (n *Node) documentsOf(ctx context.Context, own *identity, rec store.ContractRecord) (docs [][]byte, lost []evidence.Compromise, err error) {
	c, err := contract.Parse(rec.Bytes)
	if err != nil {
		return nil, nil, err
	}
	for _, party := range []string{c.Parties.Buyer, c.Parties.Vendor} {
		var line []string
		err := n.db.View(ctx, func(tx store.Tx) (err error) {
			if line, err = tx.Lineage(party); err != nil {
				return err
			}
			for _, name := range line {
				step, err := tx.GetSuccession(name)
				if errors.Is(err, store.ErrNotFound) {
					continue
				}
				if err != nil {
					return err
				}
				if !step.CompromisedSince.IsZero() {
					lost = append(lost, evidence.Compromise{DID: name, Since: stamp(step.CompromisedSince)})
				}
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
		for _, name := range line {
			d, err := did.Parse(name)
			if err != nil {
				return nil, nil, err
			}
			if own.owns(d) {
				docs = append(docs, own.documentsUnder(d)...)
				continue
			}
			pins, err := n.db.History(ctx, d)
			if err != nil {
				return nil, nil, err
			}
			docs = append(docs, pinnedAt(pins, rec.Created)...)
		}
	}
	return docs, lost, nil
}

// pinnedAt are the version of a document that was pinned at a time, the first one where that is later, and the last one where that
// is a deactivated one.
func pinnedAt(pins []resolver.Pin, at time.Time) (docs [][]byte) {
	for i := len(pins) - 1; i >= 0; i-- {
		if pins[i].Deactivated {
			if len(docs) == 0 {
				docs = append(docs, pins[i].Raw)
			}
			continue
		}
		if i == 0 || !pins[i].FirstSeen.After(at) {
			return append(docs, pins[i].Raw)
		}
	}
	return docs
}

// documentsUnder are this node's own documents of one of its DIDs.
func (id *identity) documentsUnder(d did.DID) (docs [][]byte) {
	if d == id.agent.ID() {
		return [][]byte{id.agent.Raw()}
	}
	for _, f := range id.rec.Former {
		if f.DID != d.String() {
			continue
		}
		if docs = append(docs, []byte(f.Document)); f.Active != "" {
			docs = append(docs, []byte(f.Active))
		}
	}
	return docs
}
