// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

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

// names are the DIDs that the node has had, the one in use first.
func (id *identity) names() []string {
	names := []string{id.agent.ID().String()}
	for i := len(id.former) - 1; i >= 0; i-- {
		names = append(names, id.former[i].ID().String())
	}
	return names
}
