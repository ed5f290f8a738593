// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/gateway/a2a"
	"github.com/treaty-node/treaty/wellknown"
)

// describe builds and signs the public documents that describe the agent. They depend on its DID and the catalogue and stay
// when keys rotate inside the DID. Only names and types of columns are in them.
func (n *Node) describe(ctx context.Context, origin string) ([]wellknown.Document, *wellknown.Card, error) {
	cfg, signer := n.cfg, n.id().binding
	var plane *wellknown.DataPlane
	var schemas []wellknown.Schema
	if n.offer != nil {
		id, err := did.Parse(cfg.DataPlane.DID)
		if err != nil {
			return nil, nil, usageError(fmt.Errorf("data_plane.did: %w", err))
		}
		plane = &wellknown.DataPlane{DID: id, URL: cfg.DataPlane.URL, Protocol: "MCP", Tools: tools()}
		for _, id := range sorted(n.offer.schemas) {
			s := n.offer.schemas[id]
			out := wellknown.Schema{Type: s.Type, Dataset: s.Dataset, Description: s.Description}
			for _, c := range s.Columns {
				out.Columns = append(out.Columns, wellknown.Column{Name: c.Name, Type: c.Type})
			}
			schemas = append(schemas, out)
		}
	}
	spec := wellknown.CardSpec{
		Agent: n.self(), Name: cfg.Name, Description: "Negotiates data contracts for " + cfg.Domain + ".", Version: Version,
		Organization: cfg.Name, OrganizationURL: origin, Origin: origin, Schemas: schemas, DataPlane: plane, Push: true, Extended: true,
	}
	n.cardSpec.Store(&spec)
	raw, err := wellknown.BuildCard(ctx, spec, signer)
	if err != nil {
		return nil, nil, err
	}
	card, err := wellknown.ParseCard(raw)
	if err != nil {
		return nil, nil, err
	}
	adURL := origin + descriptionPath(cfg)
	ad, err := wellknown.BuildAgentDescription(ctx, wellknown.ADSpec{
		Agent: n.self(), URL: adURL, Name: cfg.Name, Description: card.Description, OwnerName: cfg.Name, OwnerURL: origin,
		Created: n.id().agent.ProofCreated(), Interfaces: wellknown.Interfaces(origin, plane),
	}, signer)
	if err != nil {
		return nil, nil, err
	}
	description, err := wellknown.AgentDescriptionDocument(ad)
	if err != nil {
		return nil, nil, err
	}
	pages, err := wellknown.DescriptionPages(origin, []wellknown.Item{{ID: adURL, Name: cfg.Name}}, 1)
	if err == nil && cfg.Compat.A2AV03 {
		var old wellknown.Document
		old, err = a2a.LegacyDocument(raw)
		pages = append(pages, old)
	}
	return append(pages, wellknown.CardDocument(raw), description), card, err
}

// site is every public document: those of an identity and those that describe it.
func (n *Node) site(id *identity) (*wellknown.Site, error) {
	docs := slices.Clone(n.described)
	for _, d := range []*did.Document{id.agent, id.service} {
		doc, err := wellknown.DIDDocument(d.Raw())
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
	return wellknown.NewSite(documentAge, docs...)
}

// tools are the signatures of the data plane's tools, as the card publishes them.
func tools() []wellknown.Tool {
	var out []wellknown.Tool
	for _, t := range datatools.Tools() {
		out = append(out, wellknown.Tool{Name: t.Name, Description: t.Description, InputSchema: json.RawMessage(t.InputSchema), OutputSchema: json.RawMessage(t.OutputSchema)})
	}
	return out
}

// What this build speaks. A peer may want more; it cannot get less.
const (
	maxMessageBytes  = 256 << 10
	agreementSeconds = 24 * 60 * 60
	roundsTimeLimit  = 2 * time.Minute
)

// MetaPolicy is what this node prefers and what it puts up with when two nodes agree on how to talk.
func (c *Config) MetaPolicy() metaproto.Policy {
	limits := metaproto.Limits{MaxOffers: c.Metaproto.MaxOffers, MaxRounds: c.Metaproto.MaxOffers, MaxMessageBytes: maxMessageBytes, AgreementSeconds: agreementSeconds}
	return metaproto.Policy{
		// One candidate opens the rounds: what this node likes best. What else it could live with shows when the peer counters.
		Preferences: []metaproto.Candidate{{
			ContractSchema: metaproto.ContractSchemaV1, Encoding: metaproto.EncodingJSON, HPKESuite: hpke.SuiteX25519, SessionKeys: metaproto.SessionKeysNone,
			Transport: c.Metaproto.Transports[0], DataPlane: metaproto.DataPlane20251125, Approval: metaproto.ApprovalNone, Limits: limits,
		}},
		Floor: metaproto.Floor{
			ContractSchemas: []string{metaproto.ContractSchemaV1}, Encodings: []string{metaproto.EncodingJSON}, HPKESuites: []hpke.Suite{hpke.SuiteX25519},
			SessionKeys: []string{metaproto.SessionKeysNone}, Transports: c.Metaproto.Transports,
			DataPlanes: []string{metaproto.DataPlane20251125, metaproto.DataPlane20250618}, Approvals: []string{metaproto.ApprovalNone},
			LimitsMin: metaproto.Limits{MaxOffers: 1, MaxRounds: 1, MaxMessageBytes: 64 << 10, AgreementSeconds: 5 * 60},
			LimitsMax: metaproto.Limits{MaxOffers: c.Metaproto.MaxOffers, MaxRounds: max(c.Metaproto.MaxOffers, 8), MaxMessageBytes: maxMessageBytes, AgreementSeconds: 7 * 24 * 60 * 60},
		},
		TimeLimit: roundsTimeLimit,
	}
}

// spoken is what anp.get_capabilities tells of this node beside what ANP asks for: what two nodes can agree on.
type spoken struct {
	Agent           string       `json:"agent"`
	Extension       string       `json:"extension"` // of A2A, in which contracts are negotiated
	ContractSchemas []string     `json:"contract_schemas"`
	Encodings       []string     `json:"encodings"`
	HPKESuites      []hpke.Suite `json:"hpke_suites"`
	Transports      []string     `json:"transports"`
	DataPlanes      []string     `json:"data_planes"`
}

func (n *Node) speaks() spoken {
	f := n.cfg.MetaPolicy().Floor
	return spoken{
		Agent: n.self().String(), Extension: wellknown.ExtensionURI, ContractSchemas: f.ContractSchemas, Encodings: f.Encodings,
		HPKESuites: f.HPKESuites, Transports: f.Transports, DataPlanes: f.DataPlanes,
	}
}
