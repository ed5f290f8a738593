// SPDX-License-Identifier: Apache-2.0

package wellknown

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// Bounds on a received agent description.
const (
	MaxDescriptionBytes = 256 << 10
	maxADInterfaces     = 128
)

var descriptionLimits = canon.Limits{MaxBytes: MaxDescriptionBytes, MaxDepth: 32}

// Types of interfaces in an agent description (ANP-07). MetaProtocolInterface is where a protocol is negotiated (ANP-06).
const (
	NaturalLanguageInterface = "NaturalLanguageInterface"
	StructuredInterface      = "StructuredInterface"
	MetaProtocolInterface    = "MetaProtocolInterface"
)

// ADInterface is one interface of an agent description.
type ADInterface struct {
	ID                 string `json:"id,omitempty"`
	Type               string `json:"type"`
	Protocol           string `json:"protocol,omitempty"`
	Version            string `json:"version,omitempty"`
	URL                string `json:"url,omitempty"`
	Description        string `json:"description,omitempty"`
	HumanAuthorization bool   `json:"humanAuthorization,omitzero"`

	// Of a MetaProtocolInterface of ANP-06 (section 5.2).
	Profile          string   `json:"profile,omitempty"`
	Binding          string   `json:"binding,omitempty"`
	Methods          []string `json:"methods,omitempty"`
	SecurityProfiles []string `json:"securityProfiles,omitempty"`
	Negotiates       []string `json:"negotiates,omitempty"`
}

// ADOwner is who runs an agent.
type ADOwner struct {
	Type string `json:"type,omitempty"`
	Name string `json:"name,omitempty"`
	URL  string `json:"url,omitempty"`
}

// AgentDescription is an ANP-07 document. Its fields are for reading; what is verified is the raw form.
type AgentDescription struct {
	ProtocolType        string          `json:"protocolType"`
	ProtocolVersion     string          `json:"protocolVersion"`
	Type                string          `json:"type"`
	URL                 string          `json:"url,omitempty"`
	Name                string          `json:"name"`
	DID                 string          `json:"did,omitempty"`
	Owner               *ADOwner        `json:"owner,omitempty"`
	Description         string          `json:"description,omitempty"`
	Created             string          `json:"created,omitempty"`
	SecurityDefinitions json.RawMessage `json:"securityDefinitions,omitempty"`
	Security            string          `json:"security,omitempty"`
	Interfaces          []ADInterface   `json:"interfaces,omitempty"`
	Proof               json.RawMessage `json:"proof,omitempty"`

	raw []byte
}

// ADSpec is what an agent description is built from.
type ADSpec struct {
	Agent               did.DID
	URL                 string // where it will stand, on the agent's own origin
	Name, Description   string
	OwnerName, OwnerURL string    // optional
	Created             time.Time // of the description; also of its proof
	Interfaces          []ADInterface
}

// pathANP is where the ANPMessageService answers; node/gateway/anp has it too.
const pathANP = "/anp"

// Interfaces returns the interfaces of a Treaty node: natural language and structured over A2A, the data plane over MCP when
// it has one, the meta-protocol, which is spoken in envelopes over A2A, and ANP-06's negotiation.
func Interfaces(origin string, plane *DataPlane) []ADInterface {
	list := []ADInterface{
		{Type: NaturalLanguageInterface, Protocol: "A2A", Version: A2AVersion, URL: origin + PathAgentCard,
			Description: "Plain questions: what can be negotiated here?"},
		{Type: StructuredInterface, Protocol: "A2A", Version: A2AVersion, URL: origin + PathAgentCard,
			Description: "Negotiation of data contracts; the agent card names the extension and the schemas."},
		{Type: MetaProtocolInterface, Protocol: ExtensionURI, Version: "1", URL: origin + PathJSONRPC,
			Description: "protocolNegotiation rounds in signed envelopes."},
		{ID: "interface.negotiation.default", Type: MetaProtocolInterface, Protocol: "ANP", Version: "1.0", URL: origin + pathANP,
			Profile: "anp.meta.negotiation.v1", Binding: "jsonrpc-2.0", Methods: []string{"anp.get_capabilities", "anp.negotiate"},
			SecurityProfiles: []string{"transport-protected"},
			Negotiates:       []string{"profiles", "interfaces", "security_profiles", "content_types", "execution_modes", "protocol_artifacts"},
			Description:      "Which of these interfaces to use, by a signed answer (ANP-06)."},
	}
	if plane != nil {
		list = append(list, ADInterface{Type: StructuredInterface, Protocol: "MCP", URL: plane.URL,
			Description: "Data plane: queries under a contract in force."})
	}
	return list
}

// BuildAgentDescription makes an agent description with an object proof by the signer. The result is canonical JSON and is
// to be served as it is. Errors: ErrSpec, the signer's.
func BuildAgentDescription(ctx context.Context, spec ADSpec, s did.Signer) ([]byte, error) {
	owner, _, err := did.SplitKeyID(s.KeyID())
	if err != nil || spec.Agent.IsZero() || owner != spec.Agent {
		return nil, fmt.Errorf("%w: the description's signer must be a key of its agent", ErrSpec)
	}
	if spec.Name == "" || checkURL(spec.URL) != nil {
		return nil, fmt.Errorf("%w: an agent description needs a name and a plain https URL", ErrSpec)
	}
	ad := AgentDescription{
		ProtocolType: "ANP", ProtocolVersion: "1.0.0", Type: "AgentDescription",
		URL: spec.URL, Name: spec.Name, DID: spec.Agent.String(), Description: spec.Description,
		Created:             spec.Created.UTC().Format(time.RFC3339),
		SecurityDefinitions: json.RawMessage(`{"didwba_sc":{"in":"header","name":"Signature","scheme":"didwba"}}`),
		Security:            "didwba_sc",
		Interfaces:          spec.Interfaces,
	}
	if spec.OwnerName != "" {
		ad.Owner = &ADOwner{Type: "Organization", Name: spec.OwnerName, URL: spec.OwnerURL}
	}
	unsigned, err := canon.Marshal(ad)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	proof, err := did.SignObject(ctx, unsigned, s, spec.Created)
	if err != nil {
		return nil, fmt.Errorf("sign agent description: %w", err)
	}
	if ad.Proof, err = canon.Marshal(proof); err != nil {
		return nil, err
	}
	return canon.Marshal(ad)
}

// AgentDescriptionDocument places an agent description at the path its url names.
func AgentDescriptionDocument(raw []byte) (Document, error) {
	ad, err := ParseAgentDescription(raw)
	if err != nil {
		return Document{}, err
	}
	return atURL(ad.URL, raw)
}

// ParseAgentDescription reads a received agent description without checking its proof. Errors: canon's, ErrMalformed,
// ErrTooMany.
func ParseAgentDescription(raw []byte) (*AgentDescription, error) {
	var ad AgentDescription
	if err := canon.UnmarshalOpen(raw, &ad, descriptionLimits); err != nil {
		return nil, fmt.Errorf("agent description: %w", err)
	}
	if ad.Name == "" && ad.DID == "" {
		return nil, fmt.Errorf("%w: agent description names nobody", ErrMalformed)
	}
	if len(ad.Interfaces) > maxADInterfaces {
		return nil, fmt.Errorf("agent description: %w", ErrTooMany)
	}
	ad.raw = append([]byte(nil), raw...)
	return &ad, nil
}

// Raw returns the description as received. The caller must not change it.
func (ad *AgentDescription) Raw() []byte { return ad.raw }

// Verify checks the description's proof against the verified document of the agent it names and returns the key id. The
// proof must be an object proof (eddsa-jcs-2022 or the k1_ suite) of purpose assertionMethod by a key of that DID; proofs of
// other kinds, which ANP-07 leaves open, are ErrBadSignature. Errors: ErrNotSigned, ErrWrongAgent, ErrBadSignature.
func (ad *AgentDescription) Verify(agent *did.Document, at time.Time) (string, error) {
	if len(ad.Proof) == 0 {
		return "", ErrNotSigned
	}
	var p did.Proof
	if err := canon.Unmarshal(ad.Proof, &p, descriptionLimits); err != nil {
		return "", fmt.Errorf("%w: proof of another kind: %w", ErrBadSignature, err)
	}
	owner, _, err := did.SplitKeyID(p.VerificationMethod)
	if err != nil || owner != agent.ID() || ad.DID != agent.ID().String() {
		return "", ErrWrongAgent
	}
	if agent.Deactivated() {
		return "", fmt.Errorf("%w: the agent's DID is deactivated", ErrBadSignature)
	}
	if p.ProofPurpose != string(did.AssertionMethod) {
		return "", fmt.Errorf("%w: purpose %q", ErrBadSignature, clip(p.ProofPurpose))
	}
	key, err := agent.KeyFor(p.VerificationMethod, did.AssertionMethod, at)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrBadSignature, err)
	}
	tree, err := object(ad.raw, descriptionLimits)
	if err != nil {
		return "", err
	}
	delete(tree, "proof")
	unsigned, err := canonicalValue(tree, descriptionLimits)
	if err != nil {
		return "", err
	}
	if err := did.VerifyObject(unsigned, p, key); err != nil {
		return "", fmt.Errorf("%w: %w", ErrBadSignature, err)
	}
	return p.VerificationMethod, nil
}
