// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/did/resolver/fetch"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/node/gateway/a2a"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/wellknown"
)

const theyMend = "the counterparty must "

// peer examines a counterparty, named by its DID or its domain. Errors are about the question; what is wrong with the
// counterparty is a failed check.
func (e *examination) peer(ctx context.Context, target string) error {
	n := e.n
	if !strings.HasPrefix(target, "did:") {
		ids, err := n.find(ctx, target)
		var he *httpapi.Error
		switch {
		case errors.As(err, &he) && he.Kind == httpapi.KindUsage:
			return err
		case errors.As(err, &he) && he.Kind == httpapi.KindRefused:
			e.fail("trust", "`treaty trust allow "+target+"`, if you mean to deal with it", "%s", he.Message)
			return nil
		case err != nil:
			e.undiscovered(ctx, target, err)
			return nil
		}
		e.ok("discovery", "%s lists %d agent(s) whose DID and description verify", target, len(ids))
		for _, id := range ids {
			e.agent(ctx, id)
		}
		return nil
	}
	id, err := did.Parse(target)
	if err != nil {
		return usageError(err)
	}
	e.agent(ctx, id)
	return nil
}

// undiscovered says why a domain's agents were not found: whether its server can be reached at all comes first.
func (e *examination) undiscovered(ctx context.Context, domain string, cause error) {
	where := "https://" + domain + wellknown.PathDescriptions
	s, err := e.n.look(ctx, where, wellknown.MaxPageBytes)
	if err != nil {
		if !e.certificate("certificate", theyMend, nil, err) {
			e.fail("reachability", "check the domain's spelling, DNS, and hosts in "+ConfigFile, "%s: %v", where, err)
		}
		return
	}
	e.certificate("certificate", theyMend, s, nil)
	e.skew("clock", s)
	e.fail("discovery", theyMend+"publish "+where+", or name its DID instead", "%v", cause)
}

// agent examines one DID, step by step as a negotiation would depend on them.
func (e *examination) agent(ctx context.Context, id did.DID) {
	n := e.n
	if err := n.mayContract(id); err != nil {
		e.fail("trust", "`treaty trust list` shows the policy; `treaty trust allow "+id.Domain()+"` or contract_profiles in "+ConfigFile+" changes it", "%v", err)
		if n.trust.Admit(id) != nil {
			return // and nothing is fetched
		}
	} else {
		e.ok("trust", "%s is admitted and may contract", id)
	}

	s, err := n.look(ctx, id.DocumentURL(), did.MaxDocumentBytes)
	if err != nil {
		if !e.certificate("certificate", theyMend, nil, err) {
			e.fail("reachability", "check DNS, and hosts in "+ConfigFile+"; then ask the counterparty whether its node runs", "%s: %v", id.DocumentURL(), err)
		}
		return
	}
	e.certificate("certificate", theyMend, s, nil)
	e.skew("clock", s)

	r, err := n.resolver.ResolveResult(ctx, id)
	if err != nil {
		e.fail("DID document", mendResolution(id, err), "%v", err)
		return
	}
	dialect := "no proof"
	if r.Verification.Dialect != "" {
		dialect = "proof dialect " + string(r.Verification.Dialect)
	}
	e.ok("DID document", "profile %s, %s, %s", r.Verification.Profile, dialect, r.Document.Hash())
	if err := r.Document.CheckRoles(); err != nil {
		e.fail("key roles", theyMend+"give each role a key of its own", "%v", err)
	} else {
		e.ok("key roles", "no key has two roles")
	}
	if kid, _, err := hpke.SelectKey(r.Document, hpke.SuiteX25519, n.clock.Now()); err != nil {
		e.fail("sealing", theyMend+"publish an X25519 key in keyAgreement", "%v", err)
	} else {
		e.ok("sealing", "to %s", kid)
	}
	e.card(ctx, r.Document)
}

func mendResolution(id did.DID, err error) string {
	var r *resolver.Error
	if !errors.As(err, &r) {
		return "see the reason"
	}
	switch r.Code {
	case resolver.CodeKeyChanged, resolver.CodeSuccessorChanged:
		return "compare the new keys with the counterparty over another channel, then `treaty resolve --confirm " + r.Hash.String() + " " + id.String() + "`"
	case resolver.CodeDeactivated:
		return "the counterparty has another DID now: " + r.Successor.String()
	case resolver.CodeRollback, resolver.CodeReactivated:
		return theyMend + "serve its newest document; until then somebody may be replaying an old one (`treaty resolve --history " + id.String() + "`)"
	case resolver.CodeNotFound:
		return "check the DID; " + theyMend + "serve its document at " + id.DocumentURL()
	case resolver.CodeBudget, resolver.CodeTimeout, resolver.CodeUnreachable:
		return "try again later"
	case resolver.CodeForbiddenAddress, resolver.CodeForbiddenURL:
		return "the name leads to an address that is not public; hosts in " + ConfigFile + " permits one that is meant"
	}
	return theyMend + "mend its DID document"
}

// card examines the agent card: signature, extension, transports, data plane.
func (e *examination) card(ctx context.Context, doc *did.Document) {
	n := e.n
	where := "https://" + doc.ID().Domain() + wellknown.PathAgentCard
	raw, _, err := fetch.Get(ctx, n.client, where, wellknown.MaxCardBytes)
	if err != nil {
		e.fail("agent card", theyMend+"publish its card", "%v", err)
		return
	}
	card, err := wellknown.VerifyCard(raw, doc, n.clock.Now())
	if err != nil {
		e.fail("agent card", theyMend+"sign its card with a key of "+doc.ID().String(), "%s: %v", where, err)
		return
	}
	e.ok("agent card", "%.100q, signed by %s", card.Name, card.KeyID)
	params, err := card.Negotiation()
	if err != nil {
		e.fail("extension", theyMend+"run a node that negotiates contracts ("+wellknown.ExtensionURI+")", "%v", err)
		return
	}
	e.ok("extension", "%s, %d dataset(s) published", wellknown.ExtensionURI, len(params.Schemas))
	if common := e.transports(card); common != "" {
		e.endpoint(ctx, card, common)
	}
	if params.DataPlane == nil {
		if len(params.Schemas) > 0 {
			e.fail("data plane", theyMend+"name its data plane in the card", "datasets are published, and no data plane")
		} else {
			e.ok("data plane", "none: this counterparty only buys")
		}
		return
	}
	if params.DataPlane.Protocol != "MCP" {
		e.fail("meta-protocol", theyMend+"serve its data over MCP", "the data plane speaks %.40q; this node accepts %v", params.DataPlane.Protocol, n.cfg.MetaPolicy().Floor.DataPlanes)
		return
	}
	e.ok("meta-protocol", "nothing in the card is below this node's floor: envelopes %s, sealing %s, data over MCP", params.MediaType, hpke.SuiteX25519)
	e.plane(ctx, params.DataPlane.DID, params.DataPlane.URL, theyMend)
}

// transports compares the card's interfaces with what this node can live with, and returns the one it prefers.
func (e *examination) transports(card *wellknown.VerifiedCard) string {
	var common, theirs []string
	for _, i := range card.Interfaces {
		theirs = append(theirs, fmt.Sprintf("%.40s %.10s", i.ProtocolBinding, i.ProtocolVersion))
	}
	for _, t := range e.n.cfg.Metaproto.Transports {
		if _, err := card.Interface(bindings[t]); err == nil {
			common = append(common, t)
		}
	}
	if len(common) == 0 {
		slices.Sort(theirs)
		e.fail("transports", "metaproto.transports in "+ConfigFile+" names one that the counterparty has", "this node takes %v, the card offers %v", e.n.cfg.Metaproto.Transports, theirs)
		return ""
	}
	e.ok("transports", "%v in common", common)
	return common[0]
}

// endpoint asks where the rounds and the negotiation would go, as this node: whether it answers, verifies this node's DID and
// lets it in.
func (e *examination) endpoint(ctx context.Context, card *wellknown.VerifiedCard, transport string) {
	const name = "meta-protocol endpoint"
	n := e.n
	client, err := a2a.NewClient(a2a.ClientConfig{Card: card, HTTP: n.signed, Binding: bindings[transport], Timeout: n.cfg.Limits.PeerTimeout})
	if err != nil {
		e.fail(name, theyMend+"publish a usable interface", "%v", err)
		return
	}
	url := client.Interface().URL
	err = client.Probe(ctx)
	var refused *a2a.TransportError
	switch {
	case err == nil:
		e.ok(name, "%s answers this node's signed request", url)
	case errors.As(err, &refused) && refused.Code == string(httpsig.ForbiddenDID):
		e.fail(name, theyMend+"admit this node: `treaty trust allow "+n.self().Domain()+"` on its side", "%s: its trust policy does not admit this node", url)
	case errors.As(err, &refused) && refused.Code != "":
		e.fail(name, "`treaty doctor` says whether others can verify this node", "%s does not accept this node's signature: %v", url, err)
	default:
		e.fail(name, theyMend+"answer at the address in its card", "%s: %v", url, err)
	}
}

// health is what a health endpoint of ours answers.
type health struct{ Service, Build, DID, Problem string }

func parseHealth(body []byte) (h health, err error) {
	if err := json.Unmarshal(body, &h); err != nil || h.Service == "" {
		return h, errors.New("this is not a health answer")
	}
	return h, nil
}
