// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/gateway/anp"
	"github.com/treaty-node/treaty/wellknown"
)

// negotiationLifetime is how long a result of anp.negotiate says that it holds.
const negotiationLifetime = 10 * time.Minute

// negotiable is anp.negotiate: which of this node's interfaces to use, and what the rounds would agree on.
func (n *Node) negotiable() anp.Method {
	return anp.Negotiate(anp.Negotiation{
		Agent: func() did.DID { return n.id().agent.ID() }, Paths: n.ways, Admit: n.trust.MayContract, Policy: n.cfg.MetaPolicy,
		Sign: func(ctx context.Context, object []byte) (did.Proof, error) {
			p, err := did.SignObject(ctx, object, n.id().binding, n.clock.Now())
			if err != nil {
				return p, fmt.Errorf("signing the result: %w", err)
			}
			return p, nil
		},
		Lifetime: negotiationLifetime, Now: n.clock.Now,
	})
}

// ways are the interfaces as an agent description names them, those for contracts first.
func (n *Node) ways() []anp.Way {
	origin := "https://" + n.cfg.Domain
	selected := func(capability, name, protocol, profile, url string) anp.Selected {
		return anp.Selected{
			Capability: capability, Interface: name, Protocol: protocol, Profile: profile, SecurityProfile: anp.TransportProtected,
			ContentType: "application/json", URL: url,
		}
	}
	timeout := int(n.cfg.Limits.PeerTimeout / time.Millisecond)
	structured := anp.Way{Type: wellknown.StructuredInterface, Tags: []string{"data.contract", "data.contract.negotiate"}, NegotiatesHow: true}
	structured.Execution = anp.Execution{Mode: "async_task", TimeoutMs: timeout}
	var list []anp.Way
	for _, t := range n.cfg.Metaproto.Transports {
		w := structured
		url := origin + wellknown.PathJSONRPC
		if t == metaproto.TransportHTTPJSON {
			url = origin + wellknown.PathHTTPJSON
		}
		w.Selected = selected("cap.data.contract", "interface.contract."+t, t, wellknown.ExtensionURI, url)
		list = append(list, w)
	}
	if n.cfg.DataPlane.URL != "" {
		list = append(list, anp.Way{
			Selected: selected("cap.data.query", "interface.data.mcp", "MCP", n.cfg.Metaproto.DataPlanes[0], n.cfg.DataPlane.URL),
			Type:     wellknown.StructuredInterface, Tags: []string{"data.query"},
			Execution: anp.Execution{Mode: "direct_structured_call", TimeoutMs: timeout},
		})
	}
	return append(list, anp.Way{
		Selected: selected("cap.data.question", "interface.question.a2a", "A2A", "a2a-"+wellknown.A2AVersion, origin+wellknown.PathJSONRPC),
		Type:     wellknown.NaturalLanguageInterface, Tags: []string{"data.question"},
		Execution: anp.Execution{Mode: "natural_language", TimeoutMs: timeout},
	})
}
