// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"path/filepath"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/store/sqlite"
)

// What tests of this package look at.

// Talking is what negotiations talk with now.
func (n *Node) Talking() negotiation.Keys { return n.keys() }

// ExtendedCard is the agent card for one caller.
func (n *Node) ExtendedCard(ctx context.Context, caller did.DID) ([]byte, error) {
	return n.extendedCard(ctx, caller)
}

// RequestSigner signs the next request.
func (n *Node) RequestSigner() did.Signer { return n.requestSigner() }

// Bound puts a store in the node's place that takes no more than the given number of bytes.
func (n *Node) Bound(ctx context.Context, bytes int64) error {
	if err := n.db.Close(); err != nil {
		return err
	}
	db, err := sqlite.OpenExisting(ctx, filepath.Join(n.dir, StoreFile), sqlite.Options{Process: "treaty", MaxBytes: bytes})
	n.db = db
	return err
}
