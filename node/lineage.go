// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/store"
)

// The DIDs that the node has had. A binding key cannot change under its DID, so the identity moves from one to the next; all of
// them stay the node's own: their documents stay published, and what was said and signed under them stands.

// formerDocuments reads the documents of the DIDs that came before agent's, and holds the record against them: each names the
// next as its successor.
func formerDocuments(rec *store.Identity, agent *did.Document) ([]*did.Document, error) {
	var docs []*did.Document
	for _, f := range rec.Former {
		doc, err := did.ParseDocument([]byte(f.Document))
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrIdentity, f.DID, err)
		}
		if doc.ID().String() != f.DID || !doc.Deactivated() {
			return nil, fmt.Errorf("%w: the document kept of %s is not its last one", ErrIdentity, f.DID)
		}
		docs = append(docs, doc)
	}
	for i, doc := range docs {
		next := agent
		if i+1 < len(docs) {
			next = docs[i+1]
		}
		if doc.SuccessorDID() != next.ID() {
			return nil, fmt.Errorf("%w: %s names %s as its successor and not %s", ErrIdentity, doc.ID(), doc.SuccessorDID(), next.ID())
		}
	}
	return docs, nil
}

// owns says whether a DID is the node's own: the one in use, or one that it has moved on from.
func (id *identity) owns(d did.DID) bool {
	if d == id.agent.ID() {
		return true
	}
	for _, doc := range id.former {
		if d == doc.ID() {
			return true
		}
	}
	return false
}

// formerOf is the last document of a DID that the node has moved on from, nil for others.
func (id *identity) formerOf(d did.DID) *did.Document {
	for _, doc := range id.former {
		if d == doc.ID() {
			return doc
		}
	}
	return nil
}

// names are the DIDs that the node has had, the one in use first.
func (id *identity) names() []string {
	names := []string{id.agent.ID().String()}
	for i := len(id.former) - 1; i >= 0; i-- {
		names = append(names, id.former[i].ID().String())
	}
	return names
}

// findConversation looks for a task or a context under each DID that the node has had.
func findConversation(tx store.Conversations, names []string, id string) (c store.Conversation, err error) {
	for _, own := range names {
		if c, err = tx.FindConversation(own, id); !errors.Is(err, store.ErrNotFound) {
			return c, err
		}
	}
	return c, err
}

// conversationsOf lists the conversations of each DID that the node has had, those updated last first.
func conversationsOf(tx store.Conversations, names []string, f store.ConversationFilter) (all []store.Conversation, err error) {
	for _, f.Own = range names {
		list, err := tx.ListConversations(f)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	slices.SortStableFunc(all, func(a, b store.Conversation) int { return b.Updated.Compare(a.Updated) })
	return all, nil
}

// graceOf is when the last key of a former DID ends, zero when none is in use.
func graceOf(f store.Former) (until time.Time) {
	for _, k := range f.Keys {
		if k.State == store.KeyRetiring && k.Until.After(until) {
			until = k.Until
		}
	}
	return until
}
