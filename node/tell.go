// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/store"
)

// Kinds of notices about this node's own moves.
const (
	noticeSuccessor   = "successor"
	noticeCompromised = "compromised"
)

// successorNotice tells a counterparty that this node has another DID. It is a hint: whoever gets it looks at the documents.
type successorNotice struct {
	Old  string       `json:"old"`
	New  string       `json:"new"`
	Hash canon.Digest `json:"hash"` // of the new document's canonical form
	// Since is from when somebody else may have had the old key, RFC 3339; "" when nobody had.
	Since string `json:"since,omitempty"`
}

// tell puts a notice of a move into the outbox for each counterparty with a contract or an open conversation, and returns whom it
// goes to.
func (n *Node) tell(ctx context.Context, tx store.Tx, own []string, m move) ([]string, error) {
	peers, err := counterparties(tx, own)
	if err != nil {
		return nil, err
	}
	kind := noticeSuccessor
	if !m.CompromisedSince.IsZero() {
		kind = noticeCompromised
	}
	told := []string{}
	for _, peer := range peers {
		to, err := did.Parse(peer)
		if err != nil {
			return nil, fmt.Errorf("%w: peer %q: %w", store.ErrCorrupt, peer, err)
		}
		err = n.notices.Send(ctx, tx, to, kind, successorNotice{Old: m.Old, New: m.New, Hash: m.NewHash, Since: stamp(m.CompromisedSince)})
		if errors.Is(err, store.ErrFull) {
			continue // too much waits for it already; it finds out by itself, and the move comes first
		}
		if err != nil {
			return nil, err
		}
		told = append(told, peer)
	}
	return told, nil
}

// counterparties are those with whom there is a contract or an open conversation, sorted.
func counterparties(tx store.Tx, own []string) ([]string, error) {
	peers := map[string]bool{}
	for _, state := range []string{store.AwaitingApproval, store.AwaitingActivation, store.InForce, store.Revoked} {
		contracts, err := tx.ListContracts(store.ContractFilter{State: state})
		if err != nil {
			return nil, err
		}
		for _, c := range contracts {
			peers[c.Peer] = true
		}
	}
	conversations, err := conversationsOf(tx, own, store.ConversationFilter{})
	if err != nil {
		return nil, err
	}
	for _, c := range conversations {
		if !negotiation.Phase(c.Phase).Terminal() {
			peers[c.Peer] = true
		}
	}
	return slices.Sorted(maps.Keys(peers)), nil
}

// putMoves records steps of this node's own.
func (n *Node) putMoves(tx store.Tx, moves []move) error {
	for _, m := range moves {
		if err := tx.PutSuccession(m.Succession); err != nil {
			return err
		}
		if _, err := tx.Append(ledger.Entry{Type: ledger.IdentityMoved, Data: ledger.Move{
			Old: m.Old, New: m.New, Assurance: m.Assurance, OldHash: m.OldHash, NewHash: m.NewHash, Until: stamp(m.until), CompromisedSince: stamp(m.CompromisedSince),
		}}); err != nil {
			return err
		}
	}
	return nil
}
