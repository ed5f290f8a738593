// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataset/odcs"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/lifecycle"
	"github.com/treaty-node/treaty/node/notice"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/store/sqlite"
)

// newLifecycle is what happens to contracts once they are in force, and who takes the notices about it.
func (n *Node) newLifecycle() *lifecycle.Service {
	s := lifecycle.New(lifecycle.Config{
		Self: n.self, Binding: func() did.Signer { return n.id().binding }, Store: n.db, Notices: n.notices, Documents: pinned{n.db}, Now: n.clock.Now,
	})
	type take func(ctx context.Context, tx store.Tx, from did.DID, data []byte) (*contract.Acknowledgement, error)
	for kind, take := range map[string]take{lifecycle.KindRevocation: s.Revocation, lifecycle.KindDeletion: s.Deletion} {
		n.notices.Handle(kind, func(ctx context.Context, tx store.Tx, from did.DID, data []byte) (any, error) {
			a, err := take(ctx, tx, from, data)
			var r *lifecycle.Refusal
			if errors.As(err, &r) {
				return nil, &notice.Refused{Code: r.Code, Text: r.Text}
			}
			if errors.Is(err, lifecycle.ErrNotYet) {
				return nil, envelope.Refuse(envelope.CodeUnavailable, "%w", err)
			}
			if err != nil {
				return nil, err
			}
			return a, nil
		})
		n.notices.Answered(kind, func(ctx context.Context, tx store.Tx, to did.DID, data []byte, a notice.Answer) error {
			if !a.OK {
				return nil // the answer's event says so
			}
			err := s.Acknowledged(ctx, tx, to, data, a.Data)
			if r := new(lifecycle.Refusal); errors.As(err, &r) {
				n.log.Error("an answer that is no acknowledgement", "kind", kind, "peer", to.String(), "err", err)
				return nil
			}
			return err
		})
	}
	return s
}

// pinned returns documents as they were last resolved, and verified then. Inside a transaction nothing is fetched: the envelope
// that brought a statement was verified with this very document.
type pinned struct{ db *sqlite.DB }

// Resolve implements [lifecycle.Documents].
func (p pinned) Resolve(ctx context.Context, id did.DID) (*did.Document, error) {
	pin, err := p.db.Latest(ctx, id)
	if err != nil {
		return nil, err
	}
	if pin == nil {
		return nil, fmt.Errorf("no document of %s was ever resolved", id)
	}
	return did.ParseDocument(pin.Raw)
}

// lifecycleError is a refusal as the operator sees it.
func lifecycleError(err error) error {
	var r *lifecycle.Refusal
	if errors.As(err, &r) {
		hint := "treaty contracts list shows the states"
		if r.Code == lifecycle.CodeNothingHeld {
			hint = "treaty contracts deletions shows what was given and what is held"
		}
		return &httpapi.Error{Kind: httpapi.KindRefused, Code: r.Code, Message: r.Text, Hint: hint}
	}
	return err
}

// Revoke implements [httpapi.LifecycleAdmin]. When it returns, the data plane refuses; the other party is told as soon as it
// can be reached.
func (n *Node) Revoke(ctx context.Context, id string, req httpapi.RevokeRequest) (httpapi.Contract, error) {
	if _, err := n.ending.Revoke(ctx, id, req.Reason); err != nil {
		return httpapi.Contract{}, lifecycleError(err)
	}
	return n.Contract(ctx, id)
}

// Receipts implements [httpapi.LifecycleAdmin].
func (n *Node) Receipts(ctx context.Context, id string) ([]json.RawMessage, error) {
	out := []json.RawMessage{}
	err := n.db.View(ctx, func(tx store.Tx) error {
		if _, err := tx.GetContract(id); err != nil {
			return err
		}
		for last := ""; len(out) < httpapi.MaxReceipts; {
			list, err := tx.ListReceipts(id, last, httpapi.MaxReceipts-len(out))
			if err != nil || len(list) == 0 {
				return err
			}
			for _, r := range list {
				out, last = append(out, r.Bytes), r.ID
			}
		}
		return nil
	})
	return out, err
}

// DeleteData implements [httpapi.LifecycleAdmin].
func (n *Node) DeleteData(ctx context.Context, id string) (int, error) {
	k, err := n.ending.DeleteData(ctx, id)
	return k, lifecycleError(err)
}

// Deletions implements [httpapi.LifecycleAdmin].
func (n *Node) Deletions(ctx context.Context, id string) (d httpapi.Deletions, err error) {
	err = n.db.View(ctx, func(tx store.Tx) error {
		rec, err := tx.GetContract(id)
		if err != nil {
			return err
		}
		d = httpapi.Deletions{ContractID: id, Role: rec.Role, Results: []httpapi.Result{}, Statements: []httpapi.Statement{}}
		results, err := n.ending.Results(tx, id)
		if err != nil {
			return err
		}
		now := n.clock.Now()
		for _, r := range results {
			d.Results = append(d.Results, httpapi.Result{
				ResultDigest: r.Digest, Receipts: r.Receipts, Last: r.Last, Due: r.Due, Held: r.Held, Statement: r.Deleted,
				Overdue: r.Deleted.IsZero() && now.After(r.Due.Add(overdueAfter)),
			})
		}
		all, err := statements(tx, id)
		deletions := map[string]bool{}
		for _, s := range all {
			switch s.Type {
			case contract.DeletionType:
				deletions[s.Digest.String()] = true
			case contract.AcknowledgementType:
				if a, err := contract.ParseAcknowledgement(s.Document); err != nil || !deletions[a.Statement.String()] {
					continue
				}
			default:
				continue
			}
			d.Statements = append(d.Statements, s)
		}
		return err
	})
	return d, err
}

// overdueAfter is how late a deletion statement may come before its absence is said: the other node may be away.
const overdueAfter = 24 * time.Hour

// statements are the signed documents about a contract, in the order in which they were stored.
func statements(tx store.Tx, id string) ([]httpapi.Statement, error) {
	list, err := tx.ListStatements(id, "", 0)
	out := []httpapi.Statement{}
	for _, s := range list {
		out = append(out, httpapi.Statement{Type: s.Kind, Digest: s.Digest, By: s.By, Stored: s.Created, Document: s.Bytes})
	}
	return out, err
}

// contractEnd says how a contract ended, from the log; nil when it has not. calls says whether to look for the data plane's
// calls around it.
func contractEnd(tx store.Tx, id string, calls bool) (*httpapi.End, error) {
	revoked, err := tx.FindEvents(store.EventFilter{Contract: id, Type: ledger.ContractRevoked})
	if err != nil {
		return nil, err
	}
	for _, e := range revoked {
		var r ledger.Revocation
		if err := e.Decode(&r); err != nil {
			return nil, err
		}
		if !r.Effective {
			continue
		}
		m, err := moment(e)
		if err != nil {
			return nil, err
		}
		end := &httpapi.End{By: r.By, Reason: r.Reason, RevokedAt: r.RevokedAt, Event: m.Event, Time: m.Time, Replaced: r.Replaced}
		if calls {
			err = callsAround(tx, id, end)
		}
		return end, err
	}
	return nil, nil //nolint:nilnil // it has not ended
}

// callsAround finds the last call that was answered and the first that was refused because of the revocation.
func callsAround(tx store.Tx, id string, end *httpapi.End) error {
	err := eachEvent(tx, store.EventFilter{Contract: id, Type: ledger.CallAnswered}, func(e ledger.Event) (_ bool, err error) {
		end.LastAnswer, err = moment(e)
		return true, err
	})
	if err != nil {
		return err
	}
	return eachEvent(tx, store.EventFilter{Contract: id, Type: ledger.CallRefused, After: end.Event}, func(e ledger.Event) (more bool, err error) {
		var r ledger.CallRefusal
		if err := e.Decode(&r); err != nil || r.Code != string(contract.ContractRevoked) {
			return true, err
		}
		if end.FirstRefusal, err = moment(e); err == nil {
			end.RefusedAfter = end.FirstRefusal.Time.Sub(end.Time).String()
		}
		return false, err
	})
}

// eachEvent calls f with every matching event, in order, until it says that it needs no more.
func eachEvent(tx store.Tx, f store.EventFilter, each func(ledger.Event) (bool, error)) error {
	for {
		list, err := tx.FindEvents(f)
		if err != nil || len(list) == 0 {
			return err
		}
		for _, e := range list {
			if more, err := each(e); err != nil || !more {
				return err
			}
		}
		f.After = list[len(list)-1].Seq
	}
}

func moment(e ledger.Event) (httpapi.Moment, error) {
	at, err := time.Parse(time.RFC3339, e.Time)
	return httpapi.Moment{Event: e.Seq, Time: at}, err
}

// ContractODCS implements [httpapi.LifecycleAdmin].
func (n *Node) ContractODCS(ctx context.Context, id string) (string, error) {
	var rec store.ContractRecord
	if err := n.db.View(ctx, func(tx store.Tx) (err error) { rec, err = tx.GetContract(id); return err }); err != nil {
		return "", err
	}
	c, err := contract.Parse(rec.Bytes)
	if err != nil {
		return "", err
	}
	doc, err := odcs.Contract(c, rec.State, n.schemaOf(ctx, c, rec.Role))
	if err != nil {
		return "", usageError(fmt.Errorf("contract %s: %w", id, err))
	}
	return string(doc), nil
}

// schemaOf is the published schema that a contract names, nil where it is not to be had: the vendor's own, or what the vendor
// publishes now, if that is still the same.
func (n *Node) schemaOf(ctx context.Context, c *contract.Contract, role string) *contract.Schema {
	var s *contract.Schema
	if role == lifecycle.Vendor && n.offer != nil {
		s = n.offer.schemas[c.Dataset]
	} else if vendor, err := did.Parse(c.Parties.Vendor); role == lifecycle.Buyer && err == nil {
		if p, err := n.connect(ctx, vendor); err == nil {
			s = p.Schema(c.Dataset)
		}
	}
	if s == nil {
		return nil
	}
	if d, err := s.Digest(); err != nil || !d.Equal(c.SchemaDigest) {
		return nil
	}
	return s
}

// lineage is the verified line of a DID.
func (n *Node) lineage(id string) (line []string, err error) {
	err = n.db.View(n.life, func(tx store.Tx) (err error) { line, err = tx.Lineage(id); return err })
	return line, err
}
