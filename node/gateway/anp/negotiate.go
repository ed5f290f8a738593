// SPDX-License-Identifier: Apache-2.0

package anp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/metaproto"
)

// Names of ANP-06, the semantic negotiation profile.
const (
	NegotiationProfile = "anp.meta.negotiation.v1"
	NegotiateMethod    = "anp.negotiate"
	// ResultType is the exact type of a result, so that its proof can stand for nothing else.
	ResultType = "TreatyNegotiationResult"
	// CandidatesType is a protocol artifact in candidateProtocols: {"type", "candidates": [...]} of package metaproto.
	CandidatesType = "TreatyCandidates"

	modeSelection   = "structured_selection"
	naturalLanguage = "NaturalLanguageInterface"
)

// Statuses of a result.
const (
	StatusAccepted  = "accepted"
	StatusRejected  = "rejected"
	StatusNeedsMore = "needs_more_information"
)

// Way is one way to deal with an agent that can be selected.
type Way struct {
	Selected
	Type          string   // of the interface: StructuredInterface, NaturalLanguageInterface
	Tags          []string // intents that it serves
	Execution     Execution
	Schemas       *Schemas
	NegotiatesHow bool // the candidates of package metaproto are about it
}

// Selected is a result's member of that name (ANP-06 section 8.3), and an alternative.
type Selected struct {
	Capability       string `json:"capability,omitempty"`
	Interface        string `json:"interface,omitempty"`
	Protocol         string `json:"protocol,omitempty"`
	Profile          string `json:"profile,omitempty"`
	SecurityProfile  string `json:"securityProfile,omitempty"`
	ContentType      string `json:"contentType,omitempty"`
	URL              string `json:"url,omitempty"`
	ProtocolArtifact string `json:"protocolArtifact,omitempty"` // digest of the candidate that was chosen
}

// Execution says how the selected interface is used (section 8.4).
type Execution struct {
	Mode                       string `json:"mode"`
	RequiresHumanAuthorization bool   `json:"requiresHumanAuthorization"`
	TimeoutMs                  int    `json:"timeoutMs,omitempty"`
}

// Schemas are URLs of JSON Schemas.
type Schemas struct {
	RequestSchema  string `json:"requestSchema,omitempty"`
	ResponseSchema string `json:"responseSchema,omitempty"`
}

// Result is a NegotiationResult (section 8), signed. It describes how to go on and grants nothing.
type Result struct {
	Type              string     `json:"type"` // ResultType
	NegotiationID     string     `json:"negotiationId"`
	Status            string     `json:"status"`
	Selected          *Selected  `json:"selected,omitempty"`
	Execution         *Execution `json:"execution,omitempty"`
	Schemas           *Schemas   `json:"schemas,omitempty"`
	ValidUntil        string     `json:"validUntil"` // RFC 3339, UTC
	Alternatives      []Selected `json:"alternatives,omitempty"`
	Reason            string     `json:"reason,omitempty"`
	Treaty            Bound      `json:"x_treaty"`
	NegotiationDigest string     `json:"negotiationDigest,omitempty"` // of the result without this member and the next
	Proof             *did.Proof `json:"proof,omitempty"`             // by the target's binding key
}

// Bound is what a result holds for: it is no answer to anybody else, nor to another question.
type Bound struct {
	Caller        string       `json:"caller"`
	Target        string       `json:"target"`
	RequestDigest canon.Digest `json:"requestDigest"`
	// Candidate is what of the caller's candidates suits the target best; Counter, where none does, what would.
	Candidate *metaproto.Candidate  `json:"candidate,omitempty"`
	Counter   []metaproto.Candidate `json:"counter,omitempty"`
}

// Negotiation sets up anp.negotiate. All members are needed but Admit.
type Negotiation struct {
	Agent    func() did.DID
	Paths    func() []Way // best first
	Admit    func(did.DID) error
	Policy   func() metaproto.Policy
	Sign     func(ctx context.Context, object []byte) (did.Proof, error)
	Lifetime time.Duration // of a result, and the age at which a request has expired
	Now      func() time.Time
}

// Ask is the body of a request (section 7.3). Members that are not known are kept out of every decision.
type Ask struct {
	NegotiationID string   `json:"negotiation_id"`
	Mode          string   `json:"mode"`
	Intent        *Intent  `json:"intent"`
	Capabilities  []string `json:"requiredCapabilities"`
	Caller        struct {
		Profiles         []string `json:"supportedProfiles"`
		SecurityProfiles []string `json:"supportedSecurityProfiles"`
		ContentTypes     []string `json:"supportedContentTypes"`
		ExecutionModes   []string `json:"supportedExecutionModes"`
	} `json:"callerCapabilities"`
	Constraints struct {
		InterfaceTypes  []string `json:"preferredInterfaceTypes"`
		NaturalLanguage *bool    `json:"allowNaturalLanguageFallback"`
		SecurityProfile string   `json:"requiredSecurityProfile"`
		ContentTypes    []string `json:"preferredContentTypes"`
	} `json:"constraints"`
	Interfaces []string          `json:"candidateInterfaceRefs"`
	Protocols  []json.RawMessage `json:"candidateProtocols"`

	names      []string // of candidateProtocols
	candidates []metaproto.Candidate
}

// Intent is what the caller wants (section 7.4). The description is for people: nothing is decided by it.
type Intent struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"intentTags"`
}

// Bounds of a request's body.
const (
	maxAskBytes = 128 << 10
	maxAskList  = 64
	maxAskText  = 4096
)

// ParseAsk reads a body. Errors are *Error.
func ParseAsk(body []byte) (*Ask, error) {
	var a Ask
	if err := canon.UnmarshalOpen(body, &a, canon.Limits{MaxBytes: maxAskBytes, MaxDepth: 16}); err != nil {
		return nil, Refuse(InvalidParamsShape, "the body is not a negotiation request")
	}
	if a.Intent == nil {
		return nil, Refuse(InvalidParamsShape, "intent is required")
	}
	lists := [][]string{
		a.Capabilities, a.Caller.Profiles, a.Caller.SecurityProfiles, a.Caller.ContentTypes, a.Caller.ExecutionModes,
		a.Constraints.InterfaceTypes, a.Constraints.ContentTypes, a.Interfaces, a.Intent.Tags, {a.NegotiationID, a.Mode, a.Intent.Name, a.Constraints.SecurityProfile},
	}
	for _, list := range lists {
		if len(list) > maxAskList || slices.ContainsFunc(list, func(s string) bool { return len(s) > maxName }) {
			return nil, Refuse(InvalidParamsShape, "a list or a name is too long")
		}
	}
	if len(a.Protocols) > maxAskList || len(a.Intent.Description) > maxAskText {
		return nil, Refuse(InvalidParamsShape, "a list or a text is too long")
	}
	for _, raw := range a.Protocols {
		if err := a.protocol(raw); err != nil {
			return nil, err
		}
	}
	return &a, nil
}

// protocol reads one of candidateProtocols: a name or URI, or an artifact.
func (a *Ask) protocol(raw json.RawMessage) error {
	lim := canon.Limits{MaxBytes: maxAskBytes, MaxDepth: 16}
	if raw = bytes.TrimSpace(raw); len(raw) > 0 && raw[0] == '"' {
		var name string
		if err := canon.Unmarshal(raw, &name, lim); err != nil || len(name) > maxAskText {
			return Refuse(InvalidParamsShape, "candidateProtocols: a name is too long")
		}
		a.names = append(a.names, name)
		return nil
	}
	var artifact struct {
		Type       string          `json:"type"`
		ID         string          `json:"protocol_id"`
		URI        string          `json:"protocol_uri"`
		Candidates json.RawMessage `json:"candidates"`
	}
	if err := canon.UnmarshalOpen(raw, &artifact, lim); err != nil {
		return Refuse(InvalidParamsShape, "candidateProtocols holds names and artifacts")
	}
	if artifact.Type != CandidatesType {
		a.names = append(a.names, artifact.ID, artifact.URI)
		return nil
	}
	list, err := metaproto.ParseCandidates(artifact.Candidates)
	if err != nil || a.candidates != nil {
		return Refuse(InvalidParamsShape, "candidateProtocols: the candidates cannot be read")
	}
	a.candidates = list
	return nil
}

// Negotiate is the method. It demands an origin proof: what can be selected depends on who asks.
func Negotiate(n Negotiation) Method {
	return Method{
		Name: NegotiateMethod, Profile: NegotiationProfile, Target: AgentAddressed, Anonymous: true,
		Handle: func(ctx context.Context, c Call) (any, error) { return n.answer(ctx, c) },
	}
}

func (n *Negotiation) answer(ctx context.Context, c Call) (*Result, error) {
	now := n.Now().UTC().Truncate(time.Second)
	if c.Sender == nil {
		return nil, Refuse(AuthorizationRequired, "an origin proof is required")
	}
	if n.Admit != nil && n.Admit(c.Sender.DID) != nil {
		return nil, Refuse(NegotiationRejected, "this agent does not deal with the sender")
	}
	if at, err := time.Parse(time.RFC3339, c.Meta.CreatedAt); c.Meta.CreatedAt != "" && (err != nil || now.Sub(at) > n.Lifetime) {
		return nil, Refuse(NegotiationExpired, "the request was created too long ago")
	}
	ask, err := ParseAsk(c.Body)
	if err != nil {
		return nil, err
	}
	res := &Result{
		Type: ResultType, NegotiationID: ask.NegotiationID, ValidUntil: now.Add(n.Lifetime).Format(time.RFC3339),
		Treaty: Bound{Caller: c.Sender.DID.String(), Target: n.Agent().String(), RequestDigest: askDigest(c.Body)},
	}
	if res.NegotiationID == "" {
		res.NegotiationID = "neg-" + res.Treaty.RequestDigest.String()[len("sha-256:"):]
	}
	if err := ask.decide(n.Paths(), n.Policy(), res); err != nil {
		return nil, err
	}
	return res, n.seal(ctx, res)
}

// seal adds digest and proof.
func (n *Negotiation) seal(ctx context.Context, res *Result) error {
	unsigned, err := canon.Marshal(res)
	if err != nil {
		return err
	}
	res.NegotiationDigest = canon.Sum(unsigned).String()
	if unsigned, err = canon.Marshal(res); err != nil {
		return err
	}
	proof, err := n.Sign(ctx, unsigned)
	if err != nil {
		return err
	}
	res.Proof = &proof
	return nil
}

func askDigest(body []byte) canon.Digest { return canon.Hash("treaty anp negotiate v1", body) }

// decide fills in status and selection, or says why there is none. Each wish narrows; nothing is dropped without a word.
func (a *Ask) decide(paths []Way, policy metaproto.Policy, res *Result) error {
	if a.Mode != "" && a.Mode != modeSelection {
		return Refuse(UnsupportedNegotiationMode, "only %s is offered", modeSelection)
	}
	left := paths
	keep := func(ok func(*Way) bool) bool {
		left = slices.DeleteFunc(slices.Clone(left), func(p Way) bool { return !ok(&p) })
		return len(left) > 0
	}
	one := func(list []string, of func(*Way) string) func(*Way) bool {
		return func(p *Way) bool { return len(list) == 0 || slices.Contains(list, of(p)) }
	}
	security := func(p *Way) string { return p.SecurityProfile }
	required := []string{}
	if s := a.Constraints.SecurityProfile; s != "" {
		required = []string{s}
	}
	switch {
	case !keep(one(required, security)) || !keep(one(a.Caller.SecurityProfiles, security)):
		return Refuse(UnsupportedCandidateSecPro, "nothing is offered with a security profile that was asked for, and nothing weaker is put in its place")
	case !keep(one(a.Caller.ContentTypes, func(p *Way) string { return p.ContentType })):
		return Refuse(UnsupportedCandidateContent, "nothing is offered with a content type that was asked for")
	case !keep(one(a.Caller.Profiles, func(p *Way) string { return p.Profile })):
		return Refuse(UnsupportedCandidateProfile, "nothing is offered with a profile that was asked for")
	case !keep(func(p *Way) bool {
		return len(a.names) == 0 || a.candidates != nil || slices.Contains(a.names, p.Profile) || slices.Contains(a.names, p.Protocol)
	}):
		return Refuse(UnsupportedCandidateProfile, "none of candidateProtocols is known here")
	}
	return a.choose(keep, one, &left, policy, res)
}

func (a *Ask) choose(keep func(func(*Way) bool) bool, one func([]string, func(*Way) string) func(*Way) bool, left *[]Way, policy metaproto.Policy, res *Result) error {
	if len(a.Capabilities)+len(a.Interfaces)+len(a.Intent.Tags) == 0 && a.Intent.Name == "" && a.candidates == nil {
		return Refuse(MoreInformationRequired, "say what is wanted: intentTags, requiredCapabilities or candidateInterfaceRefs")
	}
	known := func(p *Way) bool {
		return slices.Contains(p.Tags, a.Intent.Name) || slices.ContainsFunc(a.Intent.Tags, func(t string) bool { return slices.Contains(p.Tags, t) })
	}
	talk := a.Constraints.NaturalLanguage != nil && *a.Constraints.NaturalLanguage
	if !keep(func(p *Way) bool { return talk || p.Type != naturalLanguage }) ||
		!keep(func(p *Way) bool {
			return !slices.ContainsFunc(a.Capabilities, func(c string) bool { return c != p.Capability })
		}) ||
		!keep(one(a.Interfaces, func(p *Way) string { return p.Interface })) ||
		!keep(one(a.Caller.ExecutionModes, func(p *Way) string { return p.Execution.Mode })) ||
		!keep(func(p *Way) bool { return len(a.Intent.Tags) == 0 || known(p) }) ||
		!keep(func(p *Way) bool { return a.candidates == nil || p.NegotiatesHow }) {
		return Refuse(NoMatchingInterface, "no interface satisfies intent and constraints")
	}
	if len(a.Capabilities)+len(a.Interfaces)+len(a.Intent.Tags) == 0 && a.candidates == nil && !slices.ContainsFunc(*left, func(p Way) bool { return known(&p) }) {
		res.Status, res.Reason = StatusNeedsMore, "the intent's name is not known here; name one of the alternatives in candidateInterfaceRefs"
		res.Alternatives = selectedOf(*left)
		return nil
	}
	rank := func(list []string, v string) int {
		if i := slices.Index(list, v); i >= 0 {
			return i
		}
		return len(list)
	}
	slices.SortStableFunc(*left, func(x, y Way) int {
		if d := rank(a.Constraints.InterfaceTypes, x.Type) - rank(a.Constraints.InterfaceTypes, y.Type); d != 0 {
			return d
		}
		return rank(a.Constraints.ContentTypes, x.ContentType) - rank(a.Constraints.ContentTypes, y.ContentType)
	})
	if a.candidates != nil {
		best, ok := policy.Choose(a.candidates)
		if !ok {
			res.Status, res.Reason = StatusRejected, "none of the candidates is within this agent's floor; counter has what it proposes"
			res.Treaty.Counter, res.Alternatives = policy.Preferences, selectedOf(*left)
			return nil
		}
		// The path is the one over the chosen transport, where there is one.
		slices.SortStableFunc(*left, func(x, y Way) int {
			return rank([]string{best.Transport}, x.Protocol) - rank([]string{best.Transport}, y.Protocol)
		})
		best = best.Terms()
		res.Treaty.Candidate = &best
	}
	first := (*left)[0]
	selected, execution := first.Selected, first.Execution
	if res.Treaty.Candidate != nil {
		text, err := canon.Marshal(res.Treaty.Candidate)
		if err != nil {
			return err
		}
		selected.ProtocolArtifact = canon.Sum(text).String()
	}
	res.Status, res.Selected, res.Execution, res.Schemas = StatusAccepted, &selected, &execution, first.Schemas
	res.Alternatives = selectedOf((*left)[1:])
	return nil
}

func selectedOf(paths []Way) (out []Selected) {
	for _, p := range paths {
		out = append(out, p.Selected)
	}
	return out
}

// Errors of [CheckResult].
var (
	ErrResult     = errors.New("anp: not a valid negotiation result")
	ErrDowngraded = errors.New("anp: the result selects what was not asked for")
	ErrExpired    = errors.New("anp: the negotiation result has expired")
)
