// SPDX-License-Identifier: Apache-2.0

package wellknown

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sort"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// CardSpec is what an agent card is built from.
type CardSpec struct {
	Agent                         did.DID // the contracting identity; it must own the signer's key
	Name, Description             string
	Version                       string // of the software; "" = "1.0"
	DocumentationURL              string // optional
	Organization, OrganizationURL string // optional, both or neither
	Origin                        string // public origin of the node: https://host, no path
	Schemas                       []Schema
	DataPlane                     *DataPlane // optional; needs DID, URL and tools
	Skills                        []Skill    // nil: what every node can do
	MoreSkills                    []Skill    // beside those
	Push, Extended                bool       // optional parts of A2A that the node supports
}

// BuildCard makes and signs the agent card. The result is canonical JSON and is to be served as it is.
// Errors: ErrSpec, ErrEmptyMember, the signer's.
func BuildCard(ctx context.Context, spec CardSpec, s did.Signer) ([]byte, error) {
	if err := checkOrigin(spec.Origin); err != nil {
		return nil, err
	}
	owner, _, err := did.SplitKeyID(s.KeyID())
	if err != nil || spec.Agent.IsZero() || owner != spec.Agent {
		return nil, fmt.Errorf("%w: the card's signer must be a key of its agent", ErrSpec)
	}
	for i := range spec.Schemas {
		spec.Schemas[i].Type = SchemaType
	}
	if spec.Version == "" {
		spec.Version = "1.0"
	}
	if spec.Skills == nil {
		spec.Skills = defaultSkills(len(spec.Schemas) > 0)
	}
	spec.Skills = append(slices.Clip(spec.Skills), spec.MoreSkills...)
	if spec.DataPlane != nil && spec.DataPlane.Protocol == "" {
		plane := *spec.DataPlane
		plane.Protocol = "MCP"
		spec.DataPlane = &plane
	}
	params, err := canon.Marshal(Negotiation{
		Agent: spec.Agent, MediaType: EnvelopeMediaType, Schemas: spec.Schemas, DataPlane: spec.DataPlane,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	card := Card{
		Name: spec.Name, Description: spec.Description, Version: spec.Version, DocumentationURL: spec.DocumentationURL,
		Interfaces: []Interface{
			{URL: spec.Origin + PathJSONRPC, ProtocolBinding: BindingJSONRPC, ProtocolVersion: A2AVersion},
			{URL: spec.Origin + PathHTTPJSON, ProtocolBinding: BindingHTTPJSON, ProtocolVersion: A2AVersion},
		},
		Capabilities: Capabilities{Streaming: true, PushNotifications: spec.Push, ExtendedAgentCard: spec.Extended, Extensions: []Extension{{
			URI:         ExtensionURI,
			Description: "Negotiates data contracts in signed and sealed envelopes. Plain questions do not need it.",
			Params:      params,
		}}},
		SecuritySchemes:    json.RawMessage(`{"didwba":{"httpAuthSecurityScheme":{"description":"HTTP message signature (RFC 9421) by an authentication key of the caller's DID, as ANP-02 profiles it.","scheme":"DIDWba"}}}`),
		DefaultInputModes:  []string{"text/plain", EnvelopeMediaType},
		DefaultOutputModes: []string{"text/plain", "application/json", EnvelopeMediaType},
		Skills:             spec.Skills,
	}
	if spec.Organization != "" {
		card.Provider = &Provider{Organization: spec.Organization, URL: spec.OrganizationURL}
	}
	unsigned, err := canon.Marshal(card)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	signed, err := SignCard(ctx, unsigned, s)
	if err != nil {
		return nil, err
	}
	// What we would refuse from others, we do not publish.
	parsed, err := ParseCard(signed)
	if err == nil {
		_, err = parsed.Negotiation()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	return signed, nil
}

// SignCard adds a signature to a card and returns it in canonical form. Signatures already there are kept, so that two keys
// can sign during a rotation. Errors: ErrEmptyMember, canon's, the signer's.
func SignCard(ctx context.Context, card []byte, s did.Signer) ([]byte, error) {
	payload, err := CanonicalCard(card)
	if err != nil {
		return nil, err
	}
	tree, err := object(card, cardLimits)
	if err != nil {
		return nil, err
	}
	if path := emptyMember(tree, ""); path != "" {
		return nil, fmt.Errorf("%w: %s", ErrEmptyMember, path)
	}
	protected, signature, err := did.SignDetached(ctx, payload, map[string]string{"typ": cardTyp}, s)
	if err != nil {
		return nil, fmt.Errorf("sign agent card: %w", err)
	}
	list, _ := tree["signatures"].([]any)
	tree["signatures"] = append(list, CardSignature{Protected: protected, Signature: signature})
	return canonicalValue(tree, cardLimits)
}

// cardTyp is the typ header of card signatures (section 8.4.2).
const cardTyp = "JOSE"

// VerifiedCard is a card whose signature by a key of Agent was checked. Only [VerifyCard] makes a usable one.
type VerifiedCard struct {
	*Card
	Agent  did.DID
	KeyID  string       // whose signature was accepted
	Digest canon.Digest // of the card as received
}

// VerifyCard parses a received card and checks that the agent whose verified document is given has signed it, with a key that
// stands in its assertionMethod or authentication and has not expired at the given time. Other signatures are ignored; when
// the card declares the negotiation extension, that must name the same agent.
//
// Errors: those of [ParseCard]; ErrNotSigned when no signature names a key of the agent; ErrBadSignature; ErrWrongAgent.
func VerifyCard(raw []byte, agent *did.Document, at time.Time) (*VerifiedCard, error) {
	card, err := ParseCard(raw)
	if err != nil {
		return nil, err
	}
	payload, err := CanonicalCard(raw)
	if err != nil {
		return nil, err
	}
	if agent.Deactivated() {
		return nil, fmt.Errorf("%w: the agent's DID is deactivated", ErrBadSignature)
	}
	refusal := error(ErrNotSigned)
	for _, sig := range card.Signatures {
		kid, err := signatureKeyID(sig)
		if err != nil {
			continue // a signature of a form we do not read is nobody's
		}
		if owner, _, err := did.SplitKeyID(kid); err != nil || owner != agent.ID() {
			continue
		}
		if err := verifySignature(sig, kid, payload, agent, at); err != nil {
			refusal = err
			continue
		}
		n, err := card.Negotiation()
		if err != nil && !errors.Is(err, ErrNoExtension) {
			return nil, err
		}
		if n != nil && n.Agent != agent.ID() {
			return nil, ErrWrongAgent
		}
		return &VerifiedCard{Card: card, Agent: agent.ID(), KeyID: kid, Digest: canon.Sum(raw)}, nil
	}
	return nil, refusal
}

func verifySignature(sig CardSignature, kid string, payload []byte, agent *did.Document, at time.Time) error {
	key, err := agent.KeyFor(kid, did.AssertionMethod, at)
	if err != nil {
		key, err = agent.KeyFor(kid, did.Authentication, at)
	}
	if err != nil {
		return fmt.Errorf("%w: key is neither for assertion nor for authentication: %w", ErrBadSignature, err)
	}
	if _, err := did.VerifyDetached(payload, sig.Protected, sig.Signature, key); err != nil {
		return fmt.Errorf("%w: %w", ErrBadSignature, err)
	}
	return nil
}

// signatureKeyID reads the key id out of a protected header; a header of another type is nobody's.
func signatureKeyID(sig CardSignature) (string, error) {
	header, err := did.DetachedHeader(sig.Protected)
	if err != nil {
		return "", err
	}
	kid, _ := header["kid"].(string)
	if typ, present := header["typ"]; kid == "" || present && typ != cardTyp {
		return "", ErrMalformed
	}
	return kid, nil
}

// emptyMember returns the path of the first empty string, list, object or null, or "".
func emptyMember(value any, path string) string {
	switch v := value.(type) {
	case nil:
		return path
	case string:
		if v == "" {
			return path
		}
	case []any:
		if len(v) == 0 {
			return path
		}
		for i, e := range v {
			if p := emptyMember(e, fmt.Sprintf("%s/%d", path, i)); p != "" {
				return p
			}
		}
	case map[string]any:
		if len(v) == 0 {
			return path + "/"
		}
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range names {
			if p := emptyMember(v[name], path+"/"+name); p != "" {
				return p
			}
		}
	}
	return ""
}

func checkOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err != nil || checkURL(origin) != nil || u.Path != "" {
		return fmt.Errorf("%w: origin must be https://host without a path", ErrSpec)
	}
	return nil
}

func defaultSkills(sells bool) []Skill {
	skills := []Skill{{
		ID:          "describe",
		Name:        "Say what can be negotiated",
		Description: "Answers a plain question with the datasets, columns and types that can be negotiated here, and how.",
		Tags:        []string{"data-contract", "discovery"},
		Examples:    []string{"What data can I negotiate for here?"},
		InputModes:  []string{"text/plain"},
		OutputModes: []string{"text/plain", "application/json"},
	}}
	if sells {
		skills = append(skills, Skill{
			ID:          "negotiate-data-contract",
			Name:        "Negotiate a data contract",
			Description: "Negotiates columns, operations, purpose and retention in signed and sealed envelopes; ends in a contract signed by both sides.",
			Tags:        []string{"data-contract", "negotiation"},
			InputModes:  []string{EnvelopeMediaType},
			OutputModes: []string{EnvelopeMediaType},
		})
	}
	return skills
}
