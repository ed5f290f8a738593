// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/gateway/mcp"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/text"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

// Query implements [httpapi.Admin]: it asks the data plane that the contract names, directly. What was asked and what came
// of it is logged; the data itself is kept apart, until the contract's retention ends.
func (n *Node) Query(ctx context.Context, q httpapi.QueryRequest) (httpapi.QueryResult, error) {
	c, err := n.ownContract(ctx, q.ContractID)
	if err != nil {
		return httpapi.QueryResult{}, err
	}
	ask := requestOf(c, q)
	if ask.Rows() && (len(q.Aggregates)+len(q.GroupBy)+len(q.GroupByDate)+len(q.Having) > 0) {
		return httpapi.QueryResult{}, &httpapi.Error{Kind: httpapi.KindUsage, Message: "a query asks for rows or for aggregates, not for both"}
	}
	req := asSent(ask, n.self().String())
	a, err := n.ask(ctx, c, req)
	if err != nil {
		return httpapi.QueryResult{}, n.ended(ctx, c.ID, queryError(err))
	}
	receipt, err := a.Receipt.Marshal()
	if err != nil {
		return httpapi.QueryResult{}, err
	}
	out := httpapi.QueryResult{
		ContractID: c.ID, Columns: []string{}, Rows: a.Result.Rows, UsedRows: a.Result.UsedRows, TotalRows: a.Result.TotalRows,
		ResultDigest: a.Receipt.ResultDigest, Receipt: json.RawMessage(receipt),
	}
	if a.Result.Noise != nil {
		out.Noise = a.Result.Noise.Epsilon
	}
	for _, col := range a.Result.Columns {
		out.Columns = append(out.Columns, col.Name)
	}
	return out, nil
}

// requestOf is a query under a contract; what it leaves open is as the contract says.
func requestOf(c *contract.Contract, q httpapi.QueryRequest) contract.Request {
	if q.Purpose == "" {
		q.Purpose = c.Purpose
	}
	if q.Dataset == "" {
		q.Dataset = c.Dataset
	}
	return contract.Request{
		ContractID: c.ID, Purpose: q.Purpose, Dataset: q.Dataset, Aggregates: q.Aggregates, GroupBy: q.GroupBy, Filters: q.Filters, OrderBy: q.OrderBy, Limit: q.Limit,
		GroupByDate: q.GroupByDate, Where: q.Where, Having: q.Having, Offset: q.Offset, Select: q.Select,
	}
}

// asSent is a request in the form in which the data plane gets it.
func asSent(r contract.Request, caller string) contract.Request {
	if r.Rows() {
		return datatools.Selection(r).Request(caller)
	}
	return datatools.Input(r).Request(caller)
}

// queryError says who decided what, if anybody did.
func queryError(err error) error {
	var refused *mcp.Refused
	if errors.As(err, &refused) {
		return errors.Join(&httpapi.Error{Kind: httpapi.KindRefused, Message: refused.Text}, err)
	}
	kind := httpapi.KindUnreachable
	switch {
	case errors.Is(err, mcp.ErrAnswer):
		kind = httpapi.KindVerification
	case !errors.Is(err, mcp.ErrTransport):
		return err
	}
	return errors.Join(&httpapi.Error{Kind: kind, Message: err.Error(), Hint: "nobody decided anything: the data plane did not answer, or not with something that can be verified"}, err)
}

// ended explains why a query came to nothing where this company's own records say that the contract has ended: which one took its
// place, and that a data plane which no contract in force names any more is nobody this node deals with.
func (n *Node) ended(ctx context.Context, id string, err error) error {
	k, unknown := n.Contract(ctx, id)
	if unknown != nil || k.State != store.Revoked {
		return err
	}
	var hint string
	if k.ReplacedBy != "" {
		hint = "contract " + k.ReplacedBy + " took its place"
	}
	var said *httpapi.Error
	var refused *mcp.Refused
	switch {
	case !errors.As(err, &said):
	case errors.As(err, &refused):
		if refused.Code == string(contract.ContractRevoked) {
			said.Hint = hint
		}
	case said.Code == codeNotTrusted:
		return &httpapi.Error{
			Kind: httpapi.KindRefused, Code: string(contract.ContractRevoked), Hint: hint,
			Message: "by this company's own records contract " + id + " has ended, and no other contract names its data plane, so that nothing was sent",
		}
	}
	return err
}

// ask puts a query to the data plane of c, logs it and what came of it, and keeps the answer. The error is a *mcp.Refused
// when the data owner refuses.
func (n *Node) ask(ctx context.Context, c *contract.Contract, req contract.Request) (*mcp.Answer, error) {
	log := func(kind string, data any) ledger.Entry {
		return ledger.Entry{Type: kind, Contract: c.ID, Peer: c.Parties.Vendor, Data: data}
	}
	if err := n.record(ctx, log(ledger.QuerySent, queryEvent(req))); err != nil {
		return nil, err
	}
	plane, err := did.Parse(c.Parties.DataPlane.DID)
	if err != nil {
		return nil, err
	}
	doc, err := n.resolver.Resolve(ctx, plane)
	if err != nil {
		err = resolveError(err)
		return nil, errors.Join(err, n.record(ctx, log(ledger.QueryFailed, ledger.QueryFailure{Error: bounded(err)})))
	}
	answer, err := n.asOne(ctx, c, doc, req)
	var refused *mcp.Refused
	switch {
	case errors.As(err, &refused):
		return nil, errors.Join(err, n.refusedBy(ctx, c, doc, req, refused, log(ledger.QueryRefused, ledger.QueryRefusal{Code: refused.Code, Text: refused.Text})))
	case err != nil:
		// The caller may be gone; what happened is recorded all the same.
		return nil, errors.Join(err, n.record(context.WithoutCancel(ctx), log(ledger.QueryFailed, ledger.QueryFailure{Error: bounded(err)})))
	}
	return answer, n.answered(ctx, c, answer, log)
}

// refusedBy logs a refusal, and keeps its receipt where that holds: signed by the data plane, about this query and this code.
func (n *Node) refusedBy(ctx context.Context, c *contract.Contract, plane *did.Document, req contract.Request, r *mcp.Refused, e ledger.Entry) error {
	receipt, err := contract.ParseReceipt(r.Receipt)
	digest, bad := req.Digest()
	holds := err == nil && bad == nil && receipt.Code == contract.Code(r.Code) && receipt.QueryDigest.Equal(digest) &&
		(receipt.Caller == req.Caller || receipt.Caller == n.self().String()) && receipt.VerifyCall(c, receipt.Caller, plane) == nil
	return n.db.Update(context.WithoutCancel(ctx), func(tx store.Tx) error {
		if holds {
			_, err := tx.GetReceipt(receipt.ID)
			if errors.Is(err, store.ErrNotFound) { // else it was given before
				err = tx.PutReceipt(store.Receipt{ID: receipt.ID, ContractID: c.ID, Bytes: r.Receipt, Created: n.clock.Now()})
			}
			if err != nil {
				return err
			}
		}
		_, err := tx.Append(e)
		return err
	})
}

// asOne puts the query under one identity: the caller that its receipt has to name is who signs every request of it, also when the
// node moves to another DID meanwhile. What is refused because it has moved has had no effect, and is asked again under the DID in use.
func (n *Node) asOne(ctx context.Context, c *contract.Contract, plane *did.Document, req contract.Request) (*mcp.Answer, error) {
	for again := true; ; again = false {
		s := n.requestSigner()
		caller, _, err := did.SplitKeyID(s.KeyID())
		if err != nil {
			return nil, err
		}
		req.Caller = caller.String()
		answer, err := mcp.Query(ctx, signedBy(n.data, s), c, plane, req)
		if !again || !errors.Is(err, mcp.ErrTransport) || n.self() == caller {
			return answer, err
		}
	}
}

// signedBy is a client of the node's with one signer for all that it sends.
func signedBy(client *http.Client, s did.Signer) *http.Client {
	t, ok := client.Transport.(*httpsig.Transport)
	if !ok {
		return client
	}
	return &http.Client{Transport: &httpsig.Transport{Base: t.Base, Signer: func() did.Signer { return s }, Now: t.Now}, Timeout: client.Timeout}
}

// ownContract is a contract in force in which this node is the buyer.
func (n *Node) ownContract(ctx context.Context, id string) (*contract.Contract, error) {
	var rec store.ContractRecord
	err := n.db.View(ctx, func(tx store.Tx) (err error) {
		rec, err = tx.GetContract(id)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, &httpapi.Error{Kind: httpapi.KindNotFound, Message: fmt.Sprintf("there is no contract %q here", id), Hint: "treaty contracts list"}
	}
	if err != nil {
		return nil, err
	}
	if rec.Role != "buyer" {
		return nil, &httpapi.Error{Kind: httpapi.KindUsage, Message: "in this contract this node is the vendor; the buyer queries"}
	}
	return contract.Parse(rec.Bytes)
}

// answered stores the data with its deletion date, and logs what came.
func (n *Node) answered(ctx context.Context, c *contract.Contract, a *mcp.Answer, log func(string, any) ledger.Entry) error {
	receipt, err := a.Receipt.Marshal()
	if err != nil {
		return err
	}
	now := n.clock.Now()
	return n.db.Update(context.WithoutCancel(ctx), func(tx store.Tx) error {
		if err := tx.PutAnswer(store.Answer{
			Digest: a.Receipt.ResultDigest, ContractID: c.ID, Bytes: a.Raw, Created: now, DeleteAfter: now.Add(time.Duration(c.RetentionDays) * 24 * time.Hour),
		}); err != nil {
			return err
		}
		if err := tx.PutReceipt(store.Receipt{ID: a.Receipt.ID, ContractID: c.ID, Result: a.Receipt.ResultDigest, Bytes: receipt, Created: now}); err != nil {
			return err
		}
		_, err := tx.Append(log(ledger.QueryAnswered, ledger.Answer{
			Rows: a.Receipt.Rows, UsedRows: a.Receipt.UsedRows, TotalRows: a.Receipt.TotalRows, ResultDigest: a.Receipt.ResultDigest, Receipt: a.Receipt.ID,
		}))
		return err
	})
}

func queryEvent(r contract.Request) ledger.Query {
	q := ledger.Query{Dataset: r.Dataset, Purpose: r.Purpose, Aggregates: []string{}, GroupBy: r.GroupBy, Filters: []string{}}
	for _, a := range r.Aggregates {
		q.Aggregates = append(q.Aggregates, a.Op+"("+a.Column+")")
	}
	for _, name := range r.Select {
		q.Aggregates = append(q.Aggregates, "rows("+name+")")
	}
	for _, g := range r.GroupByDate {
		q.GroupBy = append(q.GroupBy[:len(q.GroupBy):len(q.GroupBy)], g.Name())
	}
	for _, f := range r.Filters {
		q.Filters = append(q.Filters, f.String())
	}
	if r.Where != nil {
		q.Filters = append(q.Filters, r.Where.String())
	}
	for _, h := range r.Having {
		q.Filters = append(q.Filters, "having "+h.String())
	}
	return q
}

// bounded is an error's text as it may enter the log.
func bounded(err error) string { return text.Clip(err.Error(), 1000) }
