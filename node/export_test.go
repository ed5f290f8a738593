// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"net/http"
	"path/filepath"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/gateway/mcp"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/notice"
	"github.com/treaty-node/treaty/node/store"
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

// Store is the node's store.
func (n *Node) Store() store.Store { return n.db }

// RefusedBy logs a refusal of the data plane.
func (n *Node) RefusedBy(ctx context.Context, c *contract.Contract, plane *did.Document, req contract.Request, r *mcp.Refused) error {
	return n.refusedBy(ctx, c, plane, req, r, ledger.Entry{Type: ledger.QueryRefused, Contract: c.ID, Data: ledger.QueryRefusal{Code: r.Code, Text: r.Text}})
}

// AskNotice sends a notice and waits for its answer.
func (n *Node) AskNotice(ctx context.Context, to did.DID, kind string, data any) (notice.Answer, error) {
	return n.notices.Ask(ctx, notice.Outgoing{Peer: to, Kind: kind, Data: data})
}

// SpeaksAs says whether the node may sign as that DID in a transaction.
func (n *Node) SpeaksAs(tx store.Tx, id did.DID) error { return n.speaksAs(tx, id) }

// Entitled says whether the node deals with a DID.
func (n *Node) Entitled(ctx context.Context, id did.DID) error { return n.entitled(ctx, id) }

// Signed is the client whose requests the node signs.
func (n *Node) Signed() *http.Client { return n.signed }

// Public is what the internet sees.
func (n *Node) Public() http.Handler { return n.public }

// Replaceable says why a contract of buyer may not replace old.
func (n *Node) Replaceable(tx store.Tx, old contract.Reference, buyer did.DID) (string, error) {
	return n.ending.Replaceable(tx, old, buyer)
}

// KeepSchedule runs the drills that are due.
func (n *Node) KeepSchedule(ctx context.Context) { n.drills.keepSchedule(ctx) }
