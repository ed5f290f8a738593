// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"slices"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

// ErrNotYet: a revocation came before the contract that it may be about: this buyer's proof of one is out, and whether that is in
// force it has yet to hear. The same notice is taken later.
var ErrNotYet = errors.New("lifecycle: a contract is on its way; send the same message again")

// coming says whether a contract that the vendor may have activated is on its way from it.
func (s *Service) coming(tx store.Tx, vendor did.DID) (bool, error) {
	line, err := tx.Lineage(vendor.String())
	for _, peer := range line {
		list, err := tx.ListConversations(store.ConversationFilter{Peer: peer, Role: Buyer, Phase: store.AwaitingActivation, Limit: 1})
		if err != nil || len(list) > 0 {
			return len(list) > 0, err
		}
	}
	return false, err
}

// Replaceable says why a new contract of buyer may not replace old, as of tx; "" when it may: old is a contract with that digest,
// of this vendor with that buyer (whoever both are by now), in force and not over. One text for all: who is no party learns nothing.
func (s *Service) Replaceable(tx store.Tx, old contract.Reference, buyer did.DID) (why string, err error) {
	no := "no contract " + contract.Echo(old.ID) + " with this digest is in force between us"
	h, err := load(tx, old.ID)
	if errors.Is(err, store.ErrNotFound) {
		return no, nil
	}
	if err != nil {
		return "", err
	}
	until, err := contract.ParseTime(h.c.ValidUntil)
	if err != nil {
		return "", err
	}
	if h.rec.Role != Vendor || !h.rec.Digest.Equal(old.Digest) || !slices.Contains(h.buyer, buyer.String()) ||
		!slices.Contains(h.vendor, s.cfg.Self().String()) || !s.cfg.Now().Before(until) {
		return no, nil
	}
	var ended *Refusal
	if err := h.endable(tx); errors.As(err, &ended) {
		return no, nil
	} else if err != nil {
		return "", err
	}
	return "", nil
}

// Replaced ends the contract that next amends, in the transaction that stores next as in force. The vendor revokes it; the buyer's
// record ends with what the vendor signed about next, and the vendor's revocation follows.
func (s *Service) Replaced(ctx context.Context, tx store.Tx, next *contract.Contract) error {
	h, err := load(tx, next.Amends.ID)
	if err != nil {
		return err
	}
	digest, err := next.Digest()
	if err != nil {
		return err
	}
	if h.rec.Role == Vendor {
		if err := h.endable(tx); err != nil {
			return err
		}
		if _, err := s.revoke(ctx, tx, h, "replaced by contract "+next.ID, next.ID); err != nil {
			return err
		}
	} else if h.rec.State == store.InForce {
		h.rec.State = store.Revoked
		if err := tx.PutContract(h.rec); err != nil {
			return err
		}
	}
	return h.log(tx, ledger.ContractReplaced, ledger.Replacement{By: next.ID, Digest: digest})
}

// Successor is the contract that came into force instead of id; "" when there is none.
func Successor(tx store.Tx, id string) (string, error) {
	list, err := tx.FindEvents(store.EventFilter{Contract: id, Type: ledger.ContractReplaced, Limit: 1})
	if err != nil || len(list) == 0 {
		return "", err
	}
	var r ledger.Replacement
	err = list[0].Decode(&r)
	return r.By, err
}
