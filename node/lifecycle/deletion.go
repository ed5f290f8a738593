// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/internal/crashpoint"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

// Forget deletes received data whose retention has ended, states that it did, and returns how many results went.
func (s *Service) Forget(ctx context.Context) (int, error) {
	return s.deleteAll(ctx, contract.DeletedRetention, func(tx store.Tx) ([]store.Answer, error) {
		due, err := tx.DueAnswers(s.cfg.Now(), contract.MaxDeleted)
		for i := range due {
			if due[i].ContractID != due[0].ContractID {
				return due[:i], err // one statement is about one contract
			}
		}
		return due, err
	})
}

// DeleteData deletes what is held under a contract before its time. The error is a *Refusal when nothing is held, and
// store.ErrNotFound when there is no such contract.
func (s *Service) DeleteData(ctx context.Context, id string) (int, error) {
	if err := s.cfg.Store.View(ctx, func(tx store.Tx) error { _, err := tx.GetContract(id); return err }); err != nil {
		return 0, err
	}
	n, err := s.deleteAll(ctx, contract.DeletedEarly, func(tx store.Tx) ([]store.Answer, error) {
		return tx.ListAnswers(id, contract.MaxDeleted)
	})
	if err == nil && n == 0 {
		return 0, refuse(CodeNothingHeld, "nothing that was received under contract %s is held here", id)
	}
	return n, err
}

// deleteAll deletes what pick returns, one transaction and one statement after the other, until there is nothing.
func (s *Service) deleteAll(ctx context.Context, reason string, pick func(store.Tx) ([]store.Answer, error)) (total int, err error) {
	for {
		var next []store.Answer
		// Most times there is nothing, and looking takes no lock.
		err := s.cfg.Store.View(ctx, func(tx store.Tx) (err error) { next, err = pick(tx); return err })
		if err != nil || len(next) == 0 {
			return total, err
		}
		n := 0
		err = s.cfg.Store.Update(ctx, func(tx store.Tx) error {
			due, err := pick(tx)
			if err != nil || len(due) == 0 {
				return err
			}
			n, err = s.delete(ctx, tx, due, reason)
			return err
		})
		if err != nil || n == 0 {
			return total, err
		}
		crashpoint.Hit(crashpoint.DeletionStored)
		total += n
	}
}

// delete deletes results of one contract, as many as one statement may name, and states it.
func (s *Service) delete(ctx context.Context, tx store.Tx, due []store.Answer, reason string) (int, error) {
	id, named, left := due[0].ContractID, []contract.Deleted{}, contract.MaxDeletedReceipts
	n := 0
	for _, a := range due {
		list, err := tx.ReceiptsOf(id, a.Digest, 0)
		if err != nil {
			return 0, err
		}
		if len(list) > left {
			break // the next statement's
		}
		if err := tx.DeleteAnswer(id, a.Digest); err != nil {
			return 0, err
		}
		n++
		if len(list) == 0 {
			continue // data that no receipt is about cannot be told of
		}
		d := contract.Deleted{ResultDigest: a.Digest}
		for _, r := range list {
			d.Receipts = append(d.Receipts, r.ID)
		}
		named, left = append(named, d), left-len(list)
	}
	h, err := load(tx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && len(named) == 0 {
		return n, nil // deleted all the same: there is nobody to tell
	}
	if err != nil {
		return 0, err
	}
	return n, s.state(ctx, tx, h, named, reason)
}

// state signs, keeps and sends the statement about what this transaction deleted.
func (s *Service) state(ctx context.Context, tx store.Tx, h *held, gone []contract.Deleted, reason string) error {
	self, err := s.own(h)
	if err != nil {
		return err
	}
	d, err := contract.Delete(ctx, h.c, self, reason, gone, s.cfg.Now(), s.cfg.Binding())
	if err != nil {
		return err
	}
	signed, err := d.Marshal()
	if err != nil {
		return err
	}
	digest, err := s.statement(tx, h.rec.ID, contract.DeletionType, self, signed)
	if err != nil {
		return err
	}
	if err := h.log(tx, ledger.DataDeleted, deletionEvent(d, digest)); err != nil {
		return err
	}
	peer, err := h.peer()
	if err != nil {
		return err
	}
	return s.cfg.Notices.Send(ctx, tx, peer, KindDeletion, json.RawMessage(signed))
}

func deletionEvent(d *contract.Deletion, digest canon.Digest) ledger.Deletion {
	n := 0
	for _, r := range d.Deleted {
		n += len(r.Receipts)
	}
	return ledger.Deletion{Statement: digest, By: d.By, Reason: d.Reason, Results: len(d.Deleted), Receipts: n, DeletedAt: d.DeletedAt}
}

// maxAhead is how far the buyer's clock may be ahead. A statement counts for what was given until then, and a later one could
// be made beforehand.
const maxAhead = 5 * time.Minute

// Deletion takes the buyer's deletion statement, which a notice brought, and acknowledges it. It is kept only when every
// result in it was given under the receipts it names.
func (s *Service) Deletion(ctx context.Context, tx store.Tx, from did.DID, data []byte) (*contract.Acknowledgement, error) {
	d, err := contract.ParseDeletion(data)
	if err != nil {
		return nil, refuse(CodeMalformed, "%v", err)
	}
	h, err := loadFor(tx, d.ContractID, from)
	if err != nil {
		return nil, err
	}
	if h.rec.Role != Vendor {
		return nil, refuse(CodeWrongParty, "in contract %s the buyer deletes, and that is this company", h.rec.ID)
	}
	signed, err := s.verified(ctx, h, d.By, from, d)
	if err != nil {
		return nil, err
	}
	if at, err := contract.ParseTime(d.DeletedAt); err != nil || at.After(s.cfg.Now().Add(maxAhead)) {
		return nil, refuse(CodeMalformed, "data cannot have been deleted in the future, at %s", contract.Echo(d.DeletedAt))
	}
	for _, gone := range d.Deleted {
		for _, id := range gone.Receipts {
			r, err := tx.GetReceipt(id)
			if errors.Is(err, store.ErrNotFound) || err == nil && (r.ContractID != h.rec.ID || !r.Result.Equal(gone.ResultDigest)) {
				return nil, refuse(CodeUnknownResult, "no receipt %s was given for %s under contract %s", id, gone.ResultDigest, h.rec.ID)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	digest, err := s.statement(tx, h.rec.ID, contract.DeletionType, d.By, signed)
	if err != nil {
		return nil, err
	}
	if err := h.log(tx, ledger.DeletionReceived, deletionEvent(d, digest)); err != nil {
		return nil, err
	}
	return s.acknowledge(ctx, tx, h, digest, contract.OutcomeKept)
}

// Result is one result that was given under a contract, as one party sees it.
type Result struct {
	Digest   canon.Digest `json:"resultDigest"`
	Receipts int64        `json:"receipts"`
	Last     time.Time    `json:"last"` // when it was last given or received
	Due      time.Time    `json:"due"`  // when it is to be deleted
	Held     bool         `json:"held"` // buyer: the data is in the store
	// Deleted is the statement that names the result and was made no earlier than it was last given; zero for none.
	Deleted canon.Digest `json:"deleted,omitzero"`
}

// Results lists what was given under a contract and what became of it. For the vendor, Held says nothing.
func (s *Service) Results(tx store.Tx, id string) ([]Result, error) {
	h, err := load(tx, id)
	if err != nil {
		return nil, err
	}
	given, err := tx.ListResults(id, 0)
	if err != nil {
		return nil, err
	}
	held, err := tx.ListAnswers(id, 0)
	if err != nil {
		return nil, err
	}
	due := map[canon.Digest]time.Time{}
	for _, a := range held {
		due[a.Digest] = a.DeleteAfter
	}
	deleted, err := deletedResults(tx, id)
	if err != nil {
		return nil, err
	}
	out := []Result{}
	for _, g := range given {
		r := Result{Digest: g.Digest, Receipts: g.Receipts, Last: g.Last, Due: g.Last.Add(time.Duration(h.c.RetentionDays) * 24 * time.Hour)}
		if t, ok := due[g.Digest]; ok {
			r.Held, r.Due = true, t
		}
		if d, ok := deleted[g.Digest]; ok && !d.at.Before(g.Last.Truncate(time.Second)) {
			r.Deleted = d.statement
		}
		out = append(out, r)
	}
	return out, nil
}

type deletedAt struct {
	statement canon.Digest
	at        time.Time
}

func deletedResults(tx store.Tx, id string) (map[canon.Digest]deletedAt, error) {
	list, err := tx.ListStatements(id, contract.DeletionType, 0)
	if err != nil {
		return nil, err
	}
	out := map[canon.Digest]deletedAt{}
	for _, st := range list {
		d, err := contract.ParseDeletion(st.Bytes)
		if err != nil {
			return nil, err
		}
		at, err := contract.ParseTime(d.DeletedAt)
		if err != nil {
			return nil, err
		}
		for _, r := range d.Deleted {
			out[r.ResultDigest] = deletedAt{st.Digest, at}
		}
	}
	return out, nil
}
