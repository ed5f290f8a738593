// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"context"
	"fmt"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/store"
)

// A contract may name one that it replaces (contract schema version 3). The vendor looks whether that one is in force
// between the two for the offer, and again in the transaction that activates, which also ends it. There is never a moment with both
// in force, nor, where one was, with neither.

// Instead is what a buyer wants to replace, and by what. The zero value: a contract of its own.
type Instead struct {
	Of    contract.Reference
	Terms *contract.Scope // exactly these, and nothing else; nil: what the needs say
}

// noAmendments is why a node that replaces no contracts takes none.
const noAmendments = "this node replaces no contracts"

// replaceable completes an ask: which contract the peer may replace, as far as is known before an offer.
func (s *Service) replaceable(ctx context.Context, ask *Ask) error {
	if ask.Scope.Amends.IsZero() || s.cfg.Amendments == nil {
		return nil
	}
	return s.cfg.Store.View(ctx, func(tx store.Tx) error {
		why, err := s.cfg.Amendments.Replaceable(tx, ask.Scope.Amends, ask.Peer)
		if err == nil && why == "" {
			ask.Replaces = ask.Scope.Amends
		}
		return err
	})
}

// irreplaceable is why the vendor does not activate a contract: the one that it amends has ended since the offer. "" otherwise.
func (s *Service) irreplaceable(tx store.Tx, ses *Session) (why string, err error) {
	switch {
	case ses.Contract == nil || ses.Contract.Amends.IsZero():
		return "", nil
	case s.cfg.Amendments == nil:
		return noAmendments, nil
	}
	return s.cfg.Amendments.Replaceable(tx, ses.Contract.Amends, ses.Peer)
}

// replace ends the contract that c, which has just come into force, amends.
func (s *Service) replace(ctx context.Context, tx store.Tx, c *contract.Contract) error {
	switch {
	case c.Amends.IsZero():
		return nil
	case s.cfg.Amendments == nil:
		return fmt.Errorf("negotiation: contract %s: %s", c.ID, noAmendments)
	}
	return s.cfg.Amendments.Replaced(ctx, tx, c)
}
