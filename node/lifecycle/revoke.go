// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/internal/crashpoint"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

// DefaultReason stands in a revocation whose operator gave none: a revocation says why.
const DefaultReason = "no reason was given"

// Revoke ends a contract in force, by this party. When it returns, the data plane refuses, and the other party is being told.
// The error is a *Refusal when there is nothing to end, and store.ErrNotFound when there is no such contract.
func (s *Service) Revoke(ctx context.Context, id, reason string) (*contract.Revocation, error) {
	if reason == "" {
		reason = DefaultReason
	}
	var r *contract.Revocation
	err := s.cfg.Store.Update(ctx, func(tx store.Tx) error {
		h, err := load(tx, id)
		if err != nil {
			return err
		}
		if err := h.endable(tx); err != nil {
			return err
		}
		r, err = s.revoke(ctx, tx, h, reason, "")
		return err
	})
	if err == nil {
		crashpoint.Hit(crashpoint.RevocationStored)
	}
	return r, err
}

// endable refuses what has ended or never began.
func (h *held) endable(tx store.Tx) error {
	old, err := tx.GetRevocation(h.rec.ID)
	switch {
	case err == nil:
		return refuse(CodeRevoked, "contract %s was revoked by %s at %s", h.rec.ID, old.By, old.Created.UTC().Format("2006-01-02 15:04:05Z"))
	case !errors.Is(err, store.ErrNotFound):
		return err
	case h.rec.State != store.InForce:
		return refuse(CodeNotInForce, "contract %s is %s; only a contract in force is revoked", h.rec.ID, h.rec.State)
	}
	return nil
}

// revoke signs, ends, and puts the notice into the outbox.
func (s *Service) revoke(ctx context.Context, tx store.Tx, h *held, reason, replaced string) (*contract.Revocation, error) {
	self, err := s.own(h)
	if err != nil {
		return nil, err
	}
	r, err := contract.RevokeAs(ctx, h.c, self, reason, s.cfg.Now(), s.cfg.Binding())
	if err != nil {
		return nil, err
	}
	signed, err := r.Marshal()
	if err != nil {
		return nil, err
	}
	if err := s.end(tx, h, r, signed, replaced); err != nil {
		return nil, err
	}
	peer, err := h.peer()
	if err != nil {
		return nil, err
	}
	return r, s.cfg.Notices.Send(ctx, tx, peer, KindRevocation, json.RawMessage(signed))
}

// end stores a revocation with its effect and its event.
func (s *Service) end(tx store.Tx, h *held, r *contract.Revocation, signed []byte, replaced string) error {
	if err := tx.PutRevocation(store.Revocation{ContractID: h.rec.ID, By: r.By, Bytes: signed, Created: s.cfg.Now()}); err != nil {
		return err
	}
	if h.rec.State == store.InForce {
		// A contract that is still on its way keeps its state: it is revoked by the document, whatever it becomes.
		h.rec.State = store.Revoked
		if err := tx.PutContract(h.rec); err != nil {
			return err
		}
	}
	return s.revoked(tx, h, r, signed, replaced, true)
}

func (s *Service) revoked(tx store.Tx, h *held, r *contract.Revocation, signed []byte, replaced string, effective bool) error {
	d, err := s.statement(tx, h.rec.ID, contract.RevocationType, r.By, signed)
	if err != nil {
		return err
	}
	return h.log(tx, ledger.ContractRevoked, ledger.Revocation{
		Statement: d, By: r.By, Reason: r.Reason, RevokedAt: r.RevokedAt, Effective: effective, Replaced: replaced,
	})
}

// Revocation takes the other party's revocation, which a notice brought, and acknowledges it. Where this party's own was
// first, both are kept and the acknowledgement says so.
func (s *Service) Revocation(ctx context.Context, tx store.Tx, from did.DID, data []byte) (*contract.Acknowledgement, error) {
	r, err := contract.ParseRevocation(data)
	if err != nil {
		return nil, refuse(CodeMalformed, "%v", err)
	}
	h, err := loadFor(tx, r.ContractID, from)
	var no *Refusal
	if errors.As(err, &no) && no.Code == CodeUnknownContract {
		coming, err := s.coming(tx, from)
		if err != nil {
			return nil, err
		}
		if coming {
			return nil, ErrNotYet
		}
	}
	if err != nil {
		return nil, err
	}
	signed, err := s.verified(ctx, h, r.By, from, r)
	if err != nil {
		return nil, err
	}
	outcome := contract.OutcomeRevoked
	switch old, err := tx.GetRevocation(h.rec.ID); {
	case errors.Is(err, store.ErrNotFound):
		if h.rec.State == store.Void {
			return nil, refuse(CodeNotInForce, "contract %s never came into force", h.rec.ID)
		}
		replaced, err := Successor(tx, h.rec.ID)
		if err == nil {
			err = s.end(tx, h, r, signed, replaced)
		}
		if err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	case string(old.Bytes) != string(signed):
		outcome = contract.OutcomeEnded
		if err := s.revoked(tx, h, r, signed, "", false); err != nil {
			return nil, err
		}
	}
	return s.acknowledge(ctx, tx, h, canon.Sum(signed), outcome)
}

// document is a statement of the other party about a contract.
type document interface {
	About(c *contract.Contract) error
	VerifySignature(party *did.Document) error
	Marshal() ([]byte, error)
}

// verified checks that d is about the contract and signed by who sent it, and returns its canonical bytes.
func (s *Service) verified(ctx context.Context, h *held, by string, from did.DID, d document) ([]byte, error) {
	if by != from.String() {
		return nil, refuse(CodeWrongParty, "the statement is not by who sent it")
	}
	if err := d.About(h.c); err != nil {
		return nil, refuse(CodeMismatch, "contract %s has another digest here", h.rec.ID)
	}
	doc, err := s.cfg.Documents.Resolve(ctx, from)
	if err != nil {
		return nil, err
	}
	if err := d.VerifySignature(doc); err != nil {
		return nil, refuse(CodeProof, "%v", err)
	}
	return d.Marshal()
}
