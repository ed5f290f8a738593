// SPDX-License-Identifier: Apache-2.0

package anp

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/metaproto"
)

// bargain is an agent that can be negotiated with.
func bargain(t testing.TB) (Negotiation, party, party) {
	t.Helper()
	vendor, buyer := newParty(t, "vendorcorp.test"), newParty(t, "buyercorp.test")
	way := func(capability, name, kind, protocol, profile, content, mode string, tags ...string) Way {
		return Way{
			Selected: Selected{
				Capability: capability, Interface: name, Protocol: protocol, Profile: profile, SecurityProfile: TransportProtected, ContentType: content, URL: "https://vendorcorp.test/" + name,
			},
			Type: kind, Tags: tags, Execution: Execution{Mode: mode}, NegotiatesHow: capability == "cap.contract",
		}
	}
	return Negotiation{
		Agent: func() did.DID { return vendor.doc.ID() },
		Paths: func() []Way {
			return []Way{
				way("cap.contract", "contract.rpc", "StructuredInterface", metaproto.TransportJSONRPC, "x.contract.v1", "application/json", "async_task", "data.contract"),
				way("cap.contract", "contract.http", "StructuredInterface", metaproto.TransportHTTPJSON, "x.contract.v1", "application/json", "async_task", "data.contract"),
				way("cap.query", "data", "StructuredInterface", "MCP", "mcp", "application/json", "direct_structured_call", "data.query"),
				way("cap.question", "talk", naturalLanguage, "A2A", "a2a", "text/plain", "natural_language", "data.question"),
			}
		},
		Admit: func(id did.DID) error {
			if strings.Contains(id.String(), "evil") {
				return errors.New("denied")
			}
			return nil
		},
		Policy: metaproto.DefaultPolicy,
		Sign: func(ctx context.Context, object []byte) (did.Proof, error) {
			return did.SignObject(ctx, object, vendor, start)
		},
		Lifetime: 10 * time.Minute, Now: func() time.Time { return start },
	}, vendor, buyer
}

func ask(n Negotiation, body string, change func(*Call), caller did.DID) (*Result, error) {
	raw, err := canon.Canonicalize([]byte(body), canon.Limits{})
	if err != nil {
		raw = []byte(body)
	}
	c := Call{Method: NegotiateMethod, Body: raw, Sender: &httpsig.Caller{DID: caller}, Meta: Meta{CreatedAt: start.Format(time.RFC3339)}}
	if change != nil {
		change(&c)
	}
	v, err := Negotiate(n).Handle(context.Background(), c)
	if err != nil {
		return nil, err
	}
	r, _ := v.(*Result)
	return r, nil
}

const tagged = `"intent":{"intentTags":["data.contract"]}`

// Every error of the table, by a request that deserves it.
func TestNegotiate_Errors(t *testing.T) {
	n, _, buyer := bargain(t)
	evil := newParty(t, "evil.test")
	seen := map[Code]bool{}
	for name, tc := range map[string]struct {
		body   string
		change func(*Call)
		want   Code
	}{
		"denied":                     {`{` + tagged + `}`, func(c *Call) { c.Sender.DID = evil.doc.ID() }, NegotiationRejected},
		"unknown tag":                {`{"intent":{"intentTags":["hotel.booking"]}}`, nil, NoMatchingInterface},
		"unknown capability":         {`{` + tagged + `,"requiredCapabilities":["cap.hotel"]}`, nil, NoMatchingInterface},
		"unknown interface":          {`{` + tagged + `,"candidateInterfaceRefs":["none"]}`, nil, NoMatchingInterface},
		"talk, which is not allowed": {`{"intent":{"intentTags":["data.question"]}}`, nil, NoMatchingInterface},
		"no such execution":          {`{` + tagged + `,"callerCapabilities":{"supportedExecutionModes":["stream"]}}`, nil, NoMatchingInterface},
		"drafting":                   {`{` + tagged + `,"mode":"natural_language_protocol_drafting"}`, nil, UnsupportedNegotiationMode},
		"unknown mode":               {`{` + tagged + `,"mode":"vote"}`, nil, UnsupportedNegotiationMode},
		"unknown profile":            {`{` + tagged + `,"callerCapabilities":{"supportedProfiles":["anp.rpc.v1"]}}`, nil, UnsupportedCandidateProfile},
		"unknown protocol":           {`{` + tagged + `,"candidateProtocols":["https://example.com/p/1.0",{"protocol_id":"p"}]}`, nil, UnsupportedCandidateProfile},
		"end to end required":        {`{` + tagged + `,"constraints":{"requiredSecurityProfile":"direct-e2ee"}}`, nil, UnsupportedCandidateSecPro},
		"end to end only":            {`{` + tagged + `,"callerCapabilities":{"supportedSecurityProfiles":["direct-e2ee"]}}`, nil, UnsupportedCandidateSecPro},
		"content type":               {`{` + tagged + `,"callerCapabilities":{"supportedContentTypes":["application/xml"]}}`, nil, UnsupportedCandidateContent},
		"nothing said":               {`{"intent":{"description":"Do what I mean."}}`, nil, MoreInformationRequired},
		"nobody":                     {`{` + tagged + `}`, func(c *Call) { c.Sender = nil }, AuthorizationRequired},
		"too old":                    {`{` + tagged + `}`, func(c *Call) { c.Meta.CreatedAt = start.Add(-time.Hour).Format(time.RFC3339) }, NegotiationExpired},
		"no intent":                  {`{}`, nil, InvalidParamsShape},
		"wrong types":                {`{"intent":{"intentTags":"data.contract"}}`, nil, InvalidParamsShape},
		"too many":                   {`{"intent":{"intentTags":["` + strings.Repeat(`x","`, maxAskList) + `x"]}}`, nil, InvalidParamsShape},
		"no candidates":              {`{` + tagged + `,"candidateProtocols":[{"type":"TreatyCandidates","candidates":[]}]}`, nil, InvalidParamsShape},
		"a number for a protocol":    {`{` + tagged + `,"candidateProtocols":[7]}`, nil, InvalidParamsShape},
	} {
		r, err := ask(n, tc.body, tc.change, buyer.doc.ID())
		var e *Error
		if !errors.As(err, &e) || e.Code != tc.want {
			t.Errorf("%s: %+v, %v; want %d", name, r, err, tc.want)
			continue
		}
		seen[e.Code] = true
	}
	for c := NegotiationRejected; c <= NegotiationExpired; c++ {
		if !seen[c] || !strings.HasPrefix(c.Name(), "meta.") || codes[c].message == "" {
			t.Errorf("%d: %q is never met", c, c.Name())
		}
	}
}

func candidates(t *testing.T, change func(*metaproto.Candidate)) string {
	t.Helper()
	c := metaproto.DefaultPolicy().Preferences[0]
	change(&c)
	b, err := canon.Marshal([]metaproto.Candidate{c})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestNegotiate_Selects(t *testing.T) {
	n, vendor, buyer := bargain(t)
	over := candidates(t, func(c *metaproto.Candidate) { c.Transport = metaproto.TransportHTTPJSON })
	below := candidates(t, func(c *metaproto.Candidate) { c.HPKESuite = "NULL" })
	for name, tc := range map[string]struct{ body, status, selected string }{
		"by tag":               {`{` + tagged + `}`, StatusAccepted, "contract.rpc"},
		"by name":              {`{"intent":{"name":"data.query"},"candidateInterfaceRefs":["data"]}`, StatusAccepted, "data"},
		"by reference":         {`{` + tagged + `,"candidateInterfaceRefs":["contract.http"]}`, StatusAccepted, "contract.http"},
		"talk":                 {`{"intent":{"intentTags":["data.question"]},"constraints":{"allowNaturalLanguageFallback":true}}`, StatusAccepted, "talk"},
		"unknown name":         {`{"intent":{"name":"sell_me_something"}}`, StatusNeedsMore, ""},
		"candidates":           {`{` + tagged + `,"candidateProtocols":[{"type":"TreatyCandidates","candidates":` + over + `}]}`, StatusAccepted, "contract.http"},
		"none that is allowed": {`{` + tagged + `,"candidateProtocols":[{"type":"TreatyCandidates","candidates":` + below + `}]}`, StatusRejected, ""},
		"with extensions":      {`{` + tagged + `,"x-vendor":{"a":1},"constraints":{"maxLatencyMs":3000,"requiresHumanAuthorization":true}}`, StatusAccepted, "contract.rpc"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := ask(n, tc.body, nil, buyer.doc.ID())
			if err != nil || r.Status != tc.status || tc.selected != "" && r.Selected.Interface != tc.selected || tc.selected == "" && len(r.Alternatives) == 0 {
				t.Fatalf("%+v, %v", r, err)
			}
			raw, err := canon.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			got, err := CheckResult(raw, vendor.doc, buyer.doc.ID(), []byte(tc.body), start.Add(time.Minute))
			if err != nil || got.NegotiationDigest != r.NegotiationDigest || !strings.HasPrefix(got.NegotiationDigest, "sha-256:") {
				t.Fatalf("the caller's check: %v", err)
			}
			if r.Status == StatusRejected && len(r.Treaty.Counter) == 0 || strings.HasPrefix(name, "candidates") && (r.Treaty.Candidate == nil || r.Selected.ProtocolArtifact == "") {
				t.Errorf("%+v", r.Treaty)
			}
			again, err := ask(n, tc.body, nil, buyer.doc.ID())
			if err != nil || again.NegotiationDigest != r.NegotiationDigest {
				t.Error("the same question has another answer")
			}
			var wire map[string]any // as the Python SDK's model reads it
			if err := json.Unmarshal(raw, &wire); err != nil || wire["negotiationId"] == "" || wire["status"] != tc.status {
				t.Errorf("%v", wire)
			}
		})
	}
}

// What was changed on the way, or is for somebody else, is not believed; a downgrade that the target itself signs neither.
func TestNegotiate_CheckResult(t *testing.T) {
	n, vendor, buyer := bargain(t)
	body := `{` + tagged + `,"callerCapabilities":{"supportedSecurityProfiles":["transport-protected"]}}`
	good, err := ask(n, body, nil, buyer.doc.ID())
	if err != nil {
		t.Fatal(err)
	}
	signed := func(change func(*Result)) *Result {
		r := *good
		r.Proof, r.NegotiationDigest = nil, ""
		sel := *good.Selected
		r.Selected = &sel
		change(&r)
		if err := n.seal(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
		return &r
	}
	unsigned := *good
	unsigned.Proof = nil
	altered := *good
	altered.ValidUntil = start.Add(24 * time.Hour).Format(time.RFC3339)
	for name, tc := range map[string]struct {
		r      *Result
		caller did.DID
		body   string
		now    time.Time
		want   error
	}{
		"good":              {good, buyer.doc.ID(), body, start, nil},
		"no proof":          {&unsigned, buyer.doc.ID(), body, start, ErrResult},
		"altered":           {&altered, buyer.doc.ID(), body, start, ErrResult},
		"for somebody else": {good, vendor.doc.ID(), body, start, ErrResult},
		"another question":  {good, buyer.doc.ID(), `{` + tagged + `}`, start, ErrResult},
		"expired":           {good, buyer.doc.ID(), body, start.Add(time.Hour), ErrExpired},
		"weaker security":   {signed(func(r *Result) { r.Selected.SecurityProfile = "none" }), buyer.doc.ID(), body, start, ErrDowngraded},
		"accepted nothing":  {signed(func(r *Result) { r.Selected = nil }), buyer.doc.ID(), body, start, ErrResult},
		"another type":      {signed(func(r *Result) { r.Type = "TreatyContract" }), buyer.doc.ID(), body, start, ErrResult},
	} {
		raw, err := canon.Marshal(tc.r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := CheckResult(raw, vendor.doc, tc.caller, []byte(tc.body), tc.now); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

func FuzzParseAsk(f *testing.F) {
	n, vendor, buyer := bargain(f)
	f.Add([]byte(`{` + tagged + `}`))
	f.Add([]byte(`{"intent":{"name":"x"},"candidateProtocols":["a",{"protocol_id":"b"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, err := canon.Canonicalize(body, canon.Limits{}); err != nil {
			return
		}
		r, err := ask(n, string(body), nil, buyer.doc.ID())
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Code == InternalError {
				t.Fatal(err)
			}
			return
		}
		raw, err := canon.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := CheckResult(raw, vendor.doc, buyer.doc.ID(), body, start); err != nil {
			t.Fatalf("an own answer does not pass: %v", err)
		}
	})
}
