// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/did/resolver/fetch"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/gateway/a2a"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/trust"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/wellknown"
)

// peer is a counterparty whose DID and card were verified.
type peer struct {
	node   *Node
	result *resolver.Result
	card   *wellknown.VerifiedCard
	params *wellknown.Negotiation
	url    string
}

// bindings says which A2A binding each transport of the meta-protocol is.
var bindings = map[string]string{
	"":                          "",
	metaproto.TransportJSONRPC:  wellknown.BindingJSONRPC,
	metaproto.TransportHTTPJSON: wellknown.BindingHTTPJSON,
}

// Connect implements [negotiation.Connector].
func (n *Node) Connect(ctx context.Context, id did.DID) (negotiation.Route, error) {
	return n.connect(ctx, id)
}

// connect resolves and verifies a DID, fetches its agent card and checks the card's signature by that DID.
func (n *Node) connect(ctx context.Context, id did.DID) (*peer, error) {
	result, err := n.resolveCurrent(ctx, id)
	if err != nil {
		return nil, resolveError(err)
	}
	url := "https://" + id.Domain() + wellknown.PathAgentCard
	raw, _, err := fetch.Get(ctx, n.client, url, wellknown.MaxCardBytes)
	if err != nil {
		return nil, &httpapi.Error{Kind: httpapi.KindUnreachable, Code: "AGENT_CARD", Message: fmt.Sprintf("%s: %v", url, err)}
	}
	card, err := wellknown.VerifyCard(raw, result.Document, n.clock.Now())
	if err != nil && result.Cached {
		// The document may be one from before a move: look again, and follow what it says now.
		n.resolver.Evict(result.Document.ID())
		if again, lookErr := n.resolveCurrent(ctx, result.Document.ID()); lookErr == nil {
			result = again
			card, err = wellknown.VerifyCard(raw, result.Document, n.clock.Now())
		}
	}
	if err != nil {
		return nil, &httpapi.Error{Kind: httpapi.KindVerification, Code: "AGENT_CARD", Message: fmt.Sprintf("%s: %v", url, err)}
	}
	params, err := card.Negotiation()
	if err != nil {
		return nil, &httpapi.Error{Kind: httpapi.KindVerification, Code: "AGENT_CARD", Message: fmt.Sprintf("%s: %v", url, err), Hint: "the counterparty does not offer contract negotiation"}
	}
	return &peer{node: n, result: result, card: card, params: params, url: url}, nil
}

// Send implements [negotiation.Route].
func (p *peer) Send(ctx context.Context, transport, contextID, taskID string, env []byte) (negotiation.Answer, error) {
	binding, ok := bindings[transport]
	if !ok {
		return negotiation.Answer{}, fmt.Errorf("transport %q is not known", transport)
	}
	client, err := a2a.NewClient(a2a.ClientConfig{Card: p.card, HTTP: p.node.signed, Binding: binding, Timeout: p.node.cfg.Limits.PeerTimeout})
	if err != nil {
		return negotiation.Answer{}, err
	}
	// The task exists only after the first answer, so the first message names none; the context finds it all the same.
	reply, err := client.SendEnvelope(ctx, contextID, "", env)
	var status *a2a.TransportError
	if errors.As(err, &status) && status.Code == string(httpsig.ForbiddenDID) {
		// Turned away at the door, by the same policy that would refuse the message: nothing comes of asking again.
		return negotiation.Answer{}, &envelope.Refusal{Code: envelope.CodeNotTrusted, Reason: "the counterparty's trust policy does not admit this node"}
	}
	if status != nil && status.Code == string(httpsig.DIDSuperseded) {
		// Nobody here has moved the DID that signs now. A peer's word proves nothing, but an operator should look.
		who := p.card.Agent.String()
		p.node.outdated.Store(&who)
		p.node.log.Error("a counterparty says that this node's DID has a successor", "peer", who, "did", p.node.self())
	}
	if err != nil {
		return negotiation.Answer{}, err
	}
	return negotiation.Answer{Envelope: reply.Envelope, TaskID: reply.TaskID, Working: reply.State == a2a.Working}, nil
}

// Schema implements [negotiation.Route].
func (p *peer) Schema(dataset string) *contract.Schema {
	for _, s := range p.params.Schemas {
		if s.Dataset != dataset {
			continue
		}
		columns := make([]contract.Column, 0, len(s.Columns))
		for _, c := range s.Columns {
			columns = append(columns, contract.Column{Name: c.Name, Type: c.Type})
		}
		schema, err := contract.NewSchema(s.Dataset, s.Description, columns)
		if err != nil {
			return nil
		}
		return schema
	}
	return nil
}

// find turns what an operator names, a DID or a domain, into the DIDs that trust policy admits.
func (n *Node) find(ctx context.Context, target string) ([]did.DID, error) {
	if strings.HasPrefix(target, "did:") {
		id, err := did.Parse(target)
		if err != nil {
			return nil, &httpapi.Error{Kind: httpapi.KindUsage, Message: err.Error()}
		}
		return []did.DID{id}, nil
	}
	if err := n.trust.AdmitDomain(target); err != nil {
		return nil, trustError(err)
	}
	get := func(ctx context.Context, url string, limit int64) ([]byte, error) {
		raw, _, err := fetch.Get(ctx, n.client, url, limit)
		return raw, err
	}
	found, err := wellknown.Discover(ctx, get, target)
	if errors.Is(err, wellknown.ErrSpec) {
		return nil, &httpapi.Error{Kind: httpapi.KindUsage, Message: err.Error(), Hint: "name a DID or a domain, such as vendorcorp.example"}
	}
	if err != nil {
		return nil, &httpapi.Error{Kind: httpapi.KindUnreachable, Code: "DISCOVERY", Message: fmt.Sprintf("%s: %v", target, err)}
	}
	var ids []did.DID
	for _, a := range found.Agents {
		// An agent description is a claim like any other: it counts when the DID's own key has proved it.
		doc, err := n.resolver.Resolve(ctx, a.DID)
		if err == nil {
			_, err = a.Description.Verify(doc, n.clock.Now())
		}
		if err != nil {
			n.log.Warn("agent description not used", "url", a.URL, "err", err)
			continue
		}
		ids = append(ids, a.DID)
	}
	if len(ids) == 0 {
		return nil, &httpapi.Error{Kind: httpapi.KindVerification, Code: "DISCOVERY", Message: target + " lists no agent that could be verified"}
	}
	return ids, nil
}

// admit is the trust policy, and beside it the data planes that contracts in force name: signing the contract admitted them.
// What is denied stays denied.
func (n *Node) admit(id did.DID) error {
	err := n.trust.AdmitClaim(id)
	var refusal *trust.Refusal
	if err == nil || !errors.As(err, &refusal) || refusal.Rule != trust.RuleFirstContact {
		return err
	}
	if n.drills.admits(id) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	contracts, dbErr := n.contracts(ctx, store.ContractFilter{State: store.InForce})
	if dbErr != nil {
		return err
	}
	for _, rec := range contracts {
		if c, parseErr := contract.Parse(rec.Bytes); parseErr == nil && c.Parties.DataPlane.DID == id.String() {
			return nil
		}
	}
	return err
}

// admitCaller is the trust policy, and beside it the identity of a rehearsal that this node has agreed to.
func (n *Node) admitCaller(id did.DID) error {
	err := n.trust.AdmitClaim(id)
	var refusal *trust.Refusal
	if errors.As(err, &refusal) && refusal.Rule == trust.RuleFirstContact && n.drills.admits(id) {
		return nil
	}
	return err
}

func (n *Node) contracts(ctx context.Context, f store.ContractFilter) (list []store.ContractRecord, err error) {
	err = n.db.View(ctx, func(tx store.Tx) error {
		list, err = tx.ListContracts(f)
		return err
	})
	return list, err
}

// codeNotTrusted: the operator's trust policy says no.
const codeNotTrusted = "NOT_TRUSTED"

func trustError(err error) error {
	return &httpapi.Error{
		Kind: httpapi.KindRefused, Code: codeNotTrusted, Message: err.Error(),
		Hint: "`treaty trust list` says whom this node deals with; `treaty trust allow PATTERN` adds somebody",
	}
}

// resolveError classes what the resolver says: a decision, a fault of the network, or a document that does not hold.
func resolveError(err error) error {
	var e *resolver.Error
	if !errors.As(err, &e) {
		return err
	}
	out := &httpapi.Error{Kind: httpapi.KindVerification, Code: strings.ToUpper(string(e.Code)), Message: err.Error()}
	switch e.Code {
	case resolver.CodeNotAdmitted:
		return trustError(err)
	case resolver.CodeUnreachable, resolver.CodeTimeout, resolver.CodeNotFound, resolver.CodeCanceled, resolver.CodeBudget:
		out.Kind = httpapi.KindUnreachable
	case resolver.CodeStore:
		out.Kind = httpapi.KindInternal
	case resolver.CodeKeyChanged, resolver.CodeSuccessorChanged:
		out.Hint = "compare the new keys with the counterparty over another channel (`treaty resolve --history " + e.DID.String() + "` shows them), then `treaty resolve --confirm " + e.Hash.String() + " " + e.DID.String() + "`"
	}
	return out
}
