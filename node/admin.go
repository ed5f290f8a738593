// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/lifecycle"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/negotiation/policy"
	"github.com/treaty-node/treaty/node/store"
)

var _ httpapi.Admin = (*Node)(nil)

// Status implements [httpapi.Admin].
func (n *Node) Status() httpapi.Status {
	id := n.id()
	s := httpapi.Status{Service: Service, Build: Version, DID: id.agent.ID().String(), Domain: n.cfg.Domain, Document: id.agent.Hash()}
	for i, f := range id.rec.Former {
		s.Former = append(s.Former, httpapi.Former{DID: f.DID, Successor: id.former[i].SuccessorDID().String(), Until: stamp(graceOf(f)), CompromisedSince: stamp(f.CompromisedSince)})
	}
	return s
}

// Resolve implements [httpapi.Admin].
func (n *Node) Resolve(ctx context.Context, target string) ([]httpapi.ResolveResult, error) {
	ids, err := n.find(ctx, target)
	if err != nil {
		return nil, err
	}
	var out []httpapi.ResolveResult
	for _, id := range ids {
		r, err := n.resolver.ResolveResult(ctx, id)
		if err != nil {
			_ = n.record(ctx, ledger.Entry{Type: ledger.DIDRefused, Peer: id.String(), Data: ledger.DIDRefusal{DID: id.String(), Reason: err.Error()}})
			return nil, resolveError(err)
		}
		res := httpapi.ResolveResult{
			DID: id.String(), URL: r.URL, Profile: string(r.Verification.Profile), Dialect: string(r.Verification.Dialect), ProofKey: r.Verification.ProofKeyID,
			ProofCreated: stamp(r.Verification.Created), Hash: r.Document.Hash(), FirstSeen: r.FirstSeen.UTC().Format(time.RFC3339),
			KeyChanged: r.KeyChanged, MayContract: true, Keys: keyInfos(r.Document), Document: r.Document.Raw(),
		}
		unproven := error(nil)
		if id.Fingerprint() != "" && !r.Document.Bound() {
			unproven = negotiation.ErrUnproven
		}
		if err := errors.Join(n.mayContract(id), r.Document.CheckRoles(), unproven); err != nil {
			res.MayContract, res.Reason = false, err.Error()
		}
		if err := n.record(ctx, negotiation.Introduce(r.Document, r.Verification, "")...); err != nil {
			return nil, err
		}
		out = append(out, res)
	}
	return out, nil
}

// stamp is a time as text, "" for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// Negotiate implements [httpapi.Admin]: it finds and verifies the peer, stores the conversation and its first message, and
// returns while the conversation goes on.
func (n *Node) Negotiate(ctx context.Context, req httpapi.NegotiateRequest) (httpapi.Negotiation, error) {
	return n.negotiate(ctx, req, negotiation.Instead{})
}

// negotiate is Negotiate for a contract that may replace another one.
func (n *Node) negotiate(ctx context.Context, req httpapi.NegotiateRequest, instead negotiation.Instead) (httpapi.Negotiation, error) {
	needs, err := n.needs(req.Needs)
	if err != nil {
		return httpapi.Negotiation{}, err
	}
	parsed, err := policy.ParseNeeds([]byte(needs))
	if err != nil {
		return httpapi.Negotiation{}, usageError(err)
	}
	ids, err := n.find(ctx, req.Peer)
	if err != nil {
		return httpapi.Negotiation{}, err
	}
	p, err := n.chooseAgent(ctx, ids, parsed.Dataset)
	if err != nil {
		return httpapi.Negotiation{}, err
	}
	ask, _ := parsed.Ask(0)
	schema := p.Schema(ask.Dataset)
	if err := parsed.Check(0, schema); err != nil {
		return httpapi.Negotiation{}, &httpapi.Error{Kind: httpapi.KindRefused, Code: checkCode(err), Message: err.Error(), Hint: offeredColumns(schema) + "nothing was sent"}
	}
	if req.DryRun {
		return n.dryRun(p, ask), nil
	}
	card := ledger.Entry{Type: ledger.CardVerified, Peer: p.card.Agent.String(), Data: ledger.Card{URL: p.url, KID: p.card.KeyID, Name: p.card.Name}}
	id, err := n.nego.StartAmending(ctx, p.result.Document, p.result.Verification, needs, instead, card)
	if err != nil {
		return httpapi.Negotiation{}, refusalError(err)
	}
	n.drive(id)
	return n.Negotiation(ctx, id)
}

// offeredColumns names what can be asked for, as far as a line has room; nil: nothing is known of the dataset.
func offeredColumns(s *contract.Schema) string {
	if s == nil {
		return ""
	}
	const most = 40
	var names []string
	for i := range s.Columns[:min(most, len(s.Columns))] {
		names = append(names, contract.Echo(s.Columns[i].Name))
	}
	if len(s.Columns) > most {
		names = append(names, "…")
	}
	return "dataset " + contract.Echo(s.Dataset) + " has the columns " + strings.Join(names, ", ") + "; "
}

func checkCode(err error) string {
	if errors.Is(err, contract.ErrUnknownColumn) {
		return string(envelope.CodeUnknownColumn)
	}
	return "NEEDS"
}

// needs is the text of the request, or of the node's needs file.
func (n *Node) needs(text string) (string, error) {
	if text != "" {
		return text, nil
	}
	if n.cfg.Needs == "" {
		return "", &httpapi.Error{Kind: httpapi.KindUsage, Message: "nothing says what is needed: give --needs FILE or --dataset, --columns, --operations and --purpose"}
	}
	data, err := os.ReadFile(Path(n.dir, n.cfg.Needs))
	return string(data), err
}

// chooseAgent picks the one agent among those found that offers the dataset and may contract.
func (n *Node) chooseAgent(ctx context.Context, ids []did.DID, dataset string) (*peer, error) {
	var chosen []*peer
	var last error
	for _, id := range ids {
		if err := n.mayContract(id); err != nil {
			last = trustError(err)
			continue
		}
		p, err := n.connect(ctx, id)
		if err != nil {
			last = err
			continue
		}
		if len(ids) == 1 || p.Schema(dataset) != nil {
			chosen = append(chosen, p)
		}
	}
	switch {
	case len(chosen) == 1:
		return chosen[0], nil
	case len(chosen) > 1:
		return nil, &httpapi.Error{Kind: httpapi.KindUsage, Message: fmt.Sprintf("%d agents of that domain offer %q; name one by its DID", len(chosen), dataset)}
	case last != nil:
		return nil, last
	}
	return nil, &httpapi.Error{Kind: httpapi.KindNotFound, Message: fmt.Sprintf("no agent of that domain offers a dataset %q", dataset)}
}

// dryRun says what would be asked and what this node's own policy would make of it, and sends nothing.
func (n *Node) dryRun(p *peer, ask contract.Scope) httpapi.Negotiation {
	out := httpapi.Negotiation{Role: "buyer", Peer: p.card.Agent.String(), Phase: "dry_run", Ask: &ask, Events: []uint64{}}
	out.DryRun = append(out.DryRun, "the counterparty's DID and agent card verify, and trust policy lets it contract", "the ask fits the schema that the counterparty publishes")
	if n.offer != nil && n.offer.schemas[ask.Dataset] != nil {
		outcome, _ := n.offer.Decide(context.Background(), negotiation.Ask{Peer: n.self(), Scope: ask, Version: ask.Needs()}, n.clock.Now())
		if outcome.Rejected() {
			out.DryRun = append(out.DryRun, "this node's own policy would reject the same ask: "+outcome.Code+" "+outcome.Reason)
		} else {
			out.DryRun = append(out.DryRun, policy.Explain(ask, outcome.Offer.Scope, outcome.Offer.Removed)...)
		}
	}
	out.DryRun = append(out.DryRun, "nothing was sent")
	return out
}

// refusalError turns an envelope's refusal into an error for the operator.
func refusalError(err error) error {
	var r *envelope.Refusal
	if errors.As(err, &r) {
		return &httpapi.Error{Kind: httpapi.KindRefused, Code: string(r.Code), Message: r.Reason}
	}
	return err
}

// Negotiations implements [httpapi.Admin].
func (n *Node) Negotiations(ctx context.Context) (list []httpapi.Negotiation, err error) {
	list = []httpapi.Negotiation{}
	err = n.db.View(ctx, func(tx store.Tx) error {
		all, err := conversationsOf(tx, n.id().names(), store.ConversationFilter{})
		if err != nil {
			return err
		}
		for _, c := range all {
			v, err := view(tx, c)
			if err != nil {
				return err
			}
			list = append(list, v)
		}
		return nil
	})
	return list, err
}

// Negotiation implements [httpapi.Admin].
func (n *Node) Negotiation(ctx context.Context, id string) (v httpapi.Negotiation, err error) {
	err = n.db.View(ctx, func(tx store.Tx) error {
		c, err := findConversation(tx, n.id().names(), id)
		if err != nil {
			return err
		}
		v, err = view(tx, c)
		return err
	})
	return v, err
}

func view(tx store.Tx, c store.Conversation) (httpapi.Negotiation, error) {
	var s negotiation.Session
	if err := json.Unmarshal(c.State, &s); err != nil {
		return httpapi.Negotiation{}, err
	}
	v := httpapi.Negotiation{
		ContextID: c.ContextID, TaskID: c.TaskID, Role: c.Role, Peer: c.Peer, Phase: c.Phase, Code: s.Code, Reason: s.Reason,
		Ask: s.Ask, Offer: s.Offer, Reopens: s.Reopens, ReopenedAs: s.ReopenedAs, Created: c.Created, Updated: c.Updated, Events: []uint64{},
	}
	if s.Contract != nil && s.Phase == negotiation.PhaseInForce {
		v.ContractID = s.Contract.ID
	}
	if !s.Transcript.IsZero() {
		v.Transcript = s.Transcript.String()
	}
	events, err := tx.FindEvents(store.EventFilter{Context: c.ContextID, Peer: c.Peer})
	for _, e := range events {
		v.Events = append(v.Events, e.Seq)
	}
	return v, err
}

// Withdraw implements [httpapi.Admin].
func (n *Node) Withdraw(ctx context.Context, id, reason string) (httpapi.Negotiation, error) {
	if err := n.nego.Withdraw(ctx, id, reason); err != nil {
		return httpapi.Negotiation{}, refusalError(err)
	}
	return n.Negotiation(ctx, id)
}

// Contracts implements [httpapi.Admin].
func (n *Node) Contracts(ctx context.Context) (list []httpapi.Contract, err error) {
	list = []httpapi.Contract{}
	err = n.db.View(ctx, func(tx store.Tx) error {
		all, err := tx.ListContracts(store.ContractFilter{})
		if err != nil {
			return err
		}
		for _, c := range all {
			v, err := n.contractView(tx, c)
			if err != nil {
				return err
			}
			list = append(list, v)
		}
		return nil
	})
	return list, err
}

// Contract implements [httpapi.Admin].
func (n *Node) Contract(ctx context.Context, id string) (v httpapi.Contract, err error) {
	err = n.db.View(ctx, func(tx store.Tx) error {
		c, err := tx.GetContract(id)
		if err != nil {
			return err
		}
		if v, err = n.contractView(tx, c); err != nil {
			return err
		}
		if v.End, err = contractEnd(tx, id, true); err != nil {
			return err
		}
		v.Statements, err = statements(tx, id)
		return err
	})
	return v, err
}

// movedTo is the DID that followed a party's, as far as is on record; "" for one that has not moved.
func movedTo(tx store.Successions, party string) (string, error) {
	line, err := tx.Lineage(party)
	if err != nil || line[len(line)-1] == party {
		return "", err
	}
	return line[len(line)-1], nil
}

func (n *Node) contractView(tx store.Tx, rec store.ContractRecord) (httpapi.Contract, error) {
	v := httpapi.Contract{
		ID: rec.ID, Digest: rec.Digest, Role: rec.Role, Peer: rec.Peer, State: rec.State, ContextID: rec.ContextID,
		Contract: rec.Bytes, Activation: rec.Activation, Created: rec.Created, Events: []uint64{},
	}
	c, err := contract.Parse(rec.Bytes)
	if err != nil {
		return v, err
	}
	v.ValidUntil, v.Amends = c.ValidUntil, c.Amends
	if v.ReplacedBy, err = lifecycle.Successor(tx, rec.ID); err != nil {
		return v, err
	}
	if until, err := contract.ParseTime(c.ValidUntil); err == nil {
		v.Expired = !n.clock.Now().Before(until)
	}
	if v.BuyerNow, err = movedTo(tx, c.Parties.Buyer); err != nil {
		return v, err
	}
	if v.VendorNow, err = movedTo(tx, c.Parties.Vendor); err != nil {
		return v, err
	}
	events, err := tx.FindEvents(store.EventFilter{Contract: rec.ID})
	if err != nil {
		return v, err
	}
	for _, e := range events {
		v.Events = append(v.Events, e.Seq)
	}
	v.End, err = contractEnd(tx, rec.ID, false)
	return v, err
}

// Datasets implements [httpapi.Admin].
func (n *Node) Datasets(context.Context) ([]json.RawMessage, error) {
	out := []json.RawMessage{}
	if n.offer == nil {
		return out, nil
	}
	for _, id := range sorted(n.offer.schemas) {
		b, err := n.offer.schemas[id].Canonical()
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// Events implements [httpapi.Admin].
func (n *Node) Events(ctx context.Context, after uint64, limit int) (list []ledger.Event, err error) {
	err = n.db.View(ctx, func(tx store.Tx) error {
		list, err = tx.Events(after, limit)
		return err
	})
	return list, err
}

// Backup implements [httpapi.Admin].
func (n *Node) Backup(ctx context.Context, path string) error {
	if _, err := n.db.Backup(ctx, path); err != nil {
		return usageError(fmt.Errorf("backup: %w", err))
	}
	return nil
}
