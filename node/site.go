// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/gateway/a2a"
	"github.com/treaty-node/treaty/wellknown"
)

// selfDescription is how an identity describes itself in public. It depends on its DID and the catalogue and stays when keys rotate inside
// the DID.
type selfDescription struct {
	documents []wellknown.Document // agent card and descriptions
	card      wellknown.CardSpec   // what the card says
	answer    a2a.Answer           // to plain questions
}

// publish makes the public documents of an identity. It is described anew when its DID is not the last one's.
func (n *Node) publish(ctx context.Context, id, last *identity) (err error) {
	if last != nil && last.described != nil && last.agent.ID() == id.agent.ID() {
		id.described = last.described
	} else if id.described, err = n.describe(ctx, id); err != nil {
		return err
	}
	docs := slices.Clone(id.described.documents)
	for _, d := range append([]*did.Document{id.agent, id.service}, id.former...) {
		doc, err := wellknown.DIDDocument(d.Raw())
		if err != nil {
			return err
		}
		docs = append(docs, doc)
	}
	id.site, err = wellknown.NewSite(documentAge, docs...)
	return err
}

// describe builds and signs what describes the agent. Only names and types of columns are in it.
func (n *Node) describe(ctx context.Context, id *identity) (*selfDescription, error) {
	cfg, origin, agent := n.cfg, "https://"+n.cfg.Domain, id.agent.ID()
	var plane *wellknown.DataPlane
	var schemas []wellknown.Schema
	if n.offer != nil {
		planeDID, err := did.Parse(cfg.DataPlane.DID)
		if err != nil {
			return nil, usageError(fmt.Errorf("data_plane.did: %w", err))
		}
		plane = &wellknown.DataPlane{DID: planeDID, URL: cfg.DataPlane.URL, Protocol: "MCP", Tools: tools()}
		for _, name := range sorted(n.offer.schemas) {
			s := n.offer.schemas[name]
			out := wellknown.Schema{Type: s.Type, Dataset: s.Dataset, Description: s.Description}
			for _, c := range s.Columns {
				out.Columns = append(out.Columns, wellknown.Column{Name: c.Name, Type: c.Type})
			}
			schemas = append(schemas, out)
		}
	}
	spec := wellknown.CardSpec{
		Agent: agent, Name: cfg.Name, Description: "Negotiates data contracts for " + cfg.Domain + ".", Version: Version,
		Organization: cfg.Name, OrganizationURL: origin, Origin: origin, Schemas: schemas, DataPlane: plane, Push: true, Extended: true,
	}
	raw, err := wellknown.BuildCard(ctx, spec, id.binding)
	if err != nil {
		return nil, err
	}
	card, err := wellknown.ParseCard(raw)
	if err != nil {
		return nil, err
	}
	params, err := card.Negotiation()
	if err != nil {
		return nil, err
	}
	answer, err := a2a.DescribeNegotiation(params, origin)
	if err != nil {
		return nil, err
	}
	adURL := origin + descriptionPath(cfg)
	ad, err := wellknown.BuildAgentDescription(ctx, wellknown.ADSpec{
		Agent: agent, URL: adURL, Name: cfg.Name, Description: card.Description, OwnerName: cfg.Name, OwnerURL: origin,
		Created: id.agent.ProofCreated(), Interfaces: wellknown.Interfaces(origin, plane),
	}, id.binding)
	if err != nil {
		return nil, err
	}
	description, err := wellknown.AgentDescriptionDocument(ad)
	if err != nil {
		return nil, err
	}
	pages, err := wellknown.DescriptionPages(origin, []wellknown.Item{{ID: adURL, Name: cfg.Name}}, 1)
	if err != nil {
		return nil, err
	}
	if cfg.Compat.A2AV03 {
		old, err := a2a.LegacyDocument(raw)
		if err != nil {
			return nil, err
		}
		pages = append(pages, old)
	}
	return &selfDescription{append(pages, wellknown.CardDocument(raw), description), spec, answer}, nil
}

// published says whether there is a public document at the path of a request. A DID document that this process does not know may
// be what another process of this node has published.
func (n *Node) published(r *http.Request) bool {
	if n.id().site.Has(r.URL.Path) {
		return true
	}
	return strings.HasSuffix(r.URL.Path, "/did.json") && n.refresh(r.Context()) == nil && n.id().site.Has(r.URL.Path)
}

// tools are the signatures of the data plane's tools, as the card publishes them.
func tools() []wellknown.Tool {
	var out []wellknown.Tool
	for _, t := range datatools.Tools() {
		out = append(out, wellknown.Tool{Name: t.Name, Description: t.Description, InputSchema: json.RawMessage(t.InputSchema), OutputSchema: json.RawMessage(t.OutputSchema)})
	}
	return out
}

// spoken is what anp.get_capabilities tells of this node beside what ANP asks for: what two nodes can agree on.
type spoken struct {
	Agent           string       `json:"agent"`
	Extension       string       `json:"extension"` // of A2A, in which contracts are negotiated
	ContractSchemas []string     `json:"contract_schemas"`
	Encodings       []string     `json:"encodings"`
	HPKESuites      []hpke.Suite `json:"hpke_suites"`
	SessionKeys     []string     `json:"session_keys"`
	Transports      []string     `json:"transports"`
	DataPlanes      []string     `json:"data_planes"`
}

func (n *Node) speaks() spoken {
	f := n.cfg.MetaPolicy().Floor
	return spoken{
		Agent: n.self().String(), Extension: wellknown.ExtensionURI, ContractSchemas: f.ContractSchemas, Encodings: f.Encodings,
		HPKESuites: f.HPKESuites, SessionKeys: f.SessionKeys, Transports: f.Transports, DataPlanes: f.DataPlanes,
	}
}
