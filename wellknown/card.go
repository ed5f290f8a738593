// SPDX-License-Identifier: Apache-2.0

package wellknown

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// Names on the wire.
const (
	// ExtensionURI names the negotiation extension, version 1 (A2A section 4.6). A breaking change gets a new URI.
	ExtensionURI = "https://github.com/treaty-node/treaty/ext/negotiation/v1"
	// EnvelopeMediaType is the media type of the one raw part that carries an envelope.
	EnvelopeMediaType = "application/vnd.treaty.envelope+json"
	// SchemaType is the exact type of a published schema.
	SchemaType = "TreatySchema"

	// A2AVersion is the A2A protocol version of both interfaces.
	A2AVersion = "1.0"
	// BindingJSONRPC and BindingHTTPJSON are A2A's names of the two bindings.
	BindingJSONRPC  = "JSONRPC"
	BindingHTTPJSON = "HTTP+JSON"

	// PathDID, PathAgentCard and PathDescriptions are fixed by the specifications, PathLegacyCard by those of A2A before 0.3;
	// PathJSONRPC and PathHTTPJSON are ours.
	PathDID          = "/.well-known/did.json"
	PathAgentCard    = "/.well-known/agent-card.json"
	PathDescriptions = "/.well-known/agent-descriptions"
	PathLegacyCard   = "/.well-known/agent.json"
	PathJSONRPC      = "/a2a"
	PathHTTPJSON     = "/a2a/v1"
)

// Bounds on a received card.
const (
	MaxCardBytes  = 512 << 10
	maxCardDepth  = 32
	maxInterfaces = 16
	maxSkills     = 256
	maxExtensions = 64
	maxSignatures = 8
	maxSchemas    = 256
	maxColumns    = 4096
	maxTools      = 64
)

var cardLimits = canon.Limits{MaxBytes: MaxCardBytes, MaxDepth: maxCardDepth}

// Column is one column of a published schema: its name and its type, never a value.
type Column struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// Schema is what can be negotiated over: one dataset and its columns. Its JSON form is that of the contract's schema.
type Schema struct {
	Type        string   `json:"type"` // always SchemaType
	Dataset     string   `json:"dataset"`
	Description string   `json:"description,omitempty"`
	Columns     []Column `json:"columns"`
}

// Tool is the signature of one tool of a data plane: what it takes and what it returns, as JSON schemas.
type Tool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
}

// DataPlane is where a contract, once in force, is used.
type DataPlane struct {
	DID      did.DID `json:"did"`
	URL      string  `json:"url"`      // absolute https
	Protocol string  `json:"protocol"` // "MCP"
	Tools    []Tool  `json:"tools,omitempty"`
}

// Negotiation is the params object of the negotiation extension: who negotiates, over what, and where the data then is.
// A node that only buys publishes no schemas and no data plane.
type Negotiation struct {
	Agent     did.DID    `json:"agent"`
	MediaType string     `json:"mediaType"` // EnvelopeMediaType
	Schemas   []Schema   `json:"schemas,omitempty"`
	DataPlane *DataPlane `json:"dataPlane,omitempty"`
}

// Provider is the organization behind an agent.
type Provider struct {
	Organization string `json:"organization"`
	URL          string `json:"url"`
}

// Interface is one address at which an agent is reached.
type Interface struct {
	URL             string `json:"url"`
	ProtocolBinding string `json:"protocolBinding"`
	ProtocolVersion string `json:"protocolVersion"`
	Tenant          string `json:"tenant,omitempty"`
}

// Skill is one thing an agent can do.
type Skill struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
	Examples    []string `json:"examples,omitempty"`
	InputModes  []string `json:"inputModes,omitempty"`
	OutputModes []string `json:"outputModes,omitempty"`
}

// Extension is a declared protocol extension; Params is its configuration as received.
type Extension struct {
	URI         string          `json:"uri"`
	Description string          `json:"description,omitempty"`
	Required    bool            `json:"required,omitzero"`
	Params      json.RawMessage `json:"params,omitempty"`
}

// Capabilities are the optional parts of A2A that an agent supports.
type Capabilities struct {
	Streaming         bool        `json:"streaming,omitzero"`
	PushNotifications bool        `json:"pushNotifications,omitzero"`
	ExtendedAgentCard bool        `json:"extendedAgentCard,omitzero"`
	Extensions        []Extension `json:"extensions,omitempty"`
}

// CardSignature is one JWS over a card, its payload detached (A2A section 8.4.2). The unprotected header is not read.
type CardSignature struct {
	Protected string `json:"protected"`
	Signature string `json:"signature"`
}

// Card is a received agent card. Its fields are for reading; what is verified is the raw form it was parsed from.
type Card struct {
	Name               string          `json:"name"`
	Description        string          `json:"description"`
	Version            string          `json:"version"`
	DocumentationURL   string          `json:"documentationUrl,omitempty"`
	Provider           *Provider       `json:"provider,omitempty"`
	Interfaces         []Interface     `json:"supportedInterfaces"`
	Capabilities       Capabilities    `json:"capabilities"`
	SecuritySchemes    json.RawMessage `json:"securitySchemes,omitempty"`
	DefaultInputModes  []string        `json:"defaultInputModes"`
	DefaultOutputModes []string        `json:"defaultOutputModes"`
	Skills             []Skill         `json:"skills"`
	Signatures         []CardSignature `json:"signatures,omitempty"`

	raw []byte
}

// ParseCard reads a received card without checking any signature: use [VerifyCard] for anything that is acted upon.
// Errors: canon's for the JSON, ErrMalformed, ErrTooMany.
func ParseCard(raw []byte) (*Card, error) {
	var c Card
	if err := canon.UnmarshalOpen(raw, &c, cardLimits); err != nil {
		return nil, fmt.Errorf("agent card: %w", err)
	}
	switch {
	case c.Name == "":
		return nil, fmt.Errorf("%w: agent card has no name", ErrMalformed)
	case len(c.Interfaces) == 0:
		return nil, fmt.Errorf("%w: agent card lists no interface", ErrMalformed)
	case len(c.Interfaces) > maxInterfaces, len(c.Skills) > maxSkills,
		len(c.Capabilities.Extensions) > maxExtensions, len(c.Signatures) > maxSignatures:
		return nil, fmt.Errorf("agent card: %w", ErrTooMany)
	}
	c.raw = append([]byte(nil), raw...)
	return &c, nil
}

// Raw returns the card as received. The caller must not change it.
func (c *Card) Raw() []byte { return c.raw }

// Interface returns the first listed interface with the given binding and protocol version 1.x whose URL is an absolute
// https URL without user information, query or fragment. Error: ErrNoInterface.
func (c *Card) Interface(binding string) (Interface, error) {
	for _, i := range c.Interfaces {
		major, _, _ := strings.Cut(i.ProtocolVersion, ".")
		if i.ProtocolBinding == binding && major == "1" && checkURL(i.URL) == nil {
			return i, nil
		}
	}
	return Interface{}, fmt.Errorf("%w with binding %q", ErrNoInterface, binding)
}

// Extension returns the declared extension with the given URI.
func (c *Card) Extension(uri string) (Extension, bool) {
	for _, e := range c.Capabilities.Extensions {
		if e.URI == uri {
			return e, true
		}
	}
	return Extension{}, false
}

// Negotiation reads the parameters of the negotiation extension. Errors: ErrNoExtension, ErrMalformed, ErrTooMany, canon's.
func (c *Card) Negotiation() (*Negotiation, error) {
	ext, ok := c.Extension(ExtensionURI)
	if !ok {
		return nil, ErrNoExtension
	}
	if len(ext.Params) == 0 {
		return nil, fmt.Errorf("%w: negotiation extension has no params", ErrMalformed)
	}
	var n Negotiation
	if err := canon.UnmarshalOpen(ext.Params, &n, cardLimits); err != nil {
		return nil, fmt.Errorf("negotiation extension: %w", err)
	}
	if n.Agent.IsZero() {
		return nil, fmt.Errorf("%w: negotiation extension names no agent", ErrMalformed)
	}
	if n.MediaType != EnvelopeMediaType {
		return nil, fmt.Errorf("%w: negotiation media type %q", ErrMalformed, clip(n.MediaType))
	}
	if len(n.Schemas) > maxSchemas {
		return nil, fmt.Errorf("schemas: %w", ErrTooMany)
	}
	for _, s := range n.Schemas {
		if s.Type != SchemaType || s.Dataset == "" || len(s.Columns) == 0 {
			return nil, fmt.Errorf("%w: published schema", ErrMalformed)
		}
		if len(s.Columns) > maxColumns {
			return nil, fmt.Errorf("columns: %w", ErrTooMany)
		}
	}
	if p := n.DataPlane; p != nil {
		if p.DID.IsZero() || checkURL(p.URL) != nil {
			return nil, fmt.Errorf("%w: data plane", ErrMalformed)
		}
		if len(p.Tools) > maxTools {
			return nil, fmt.Errorf("tools: %w", ErrTooMany)
		}
	}
	return &n, nil
}

// checkURL accepts absolute https URLs that name a host and carry neither user information nor query nor fragment.
func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil {
		return fmt.Errorf("%w: URL does not parse", ErrMalformed)
	}
	if u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Opaque != "" ||
		u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.ContainsAny(s, "#\\") {
		return fmt.Errorf("%w: not a plain https URL", ErrMalformed)
	}
	return nil
}

// clip shortens text of a peer before it enters an error.
func clip(s string) string {
	const limit = 64
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}
