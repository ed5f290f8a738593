// SPDX-License-Identifier: Apache-2.0

package anp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/httpsig"
)

// NewNegotiate makes the JSON-RPC request of anp.negotiate with an origin proof by the signer. body is a JSON object as ANP-06
// section 7.3 has it. It is posted to the target's ANPMessageService; the answer's result is for [CheckResult].
func NewNegotiate(ctx context.Context, s did.Signer, target did.DID, operation string, body []byte, o httpsig.SignOptions) ([]byte, error) {
	from, _, err := did.SplitKeyID(s.KeyID())
	if err != nil {
		return nil, err
	}
	if body, err = canon.Canonicalize(body, canon.Limits{MaxBytes: maxAskBytes, MaxDepth: 16}); err != nil {
		return nil, fmt.Errorf("anp: %w", err)
	}
	meta, err := canon.Marshal(Meta{
		Profile: NegotiationProfile, SecurityProfile: TransportProtected, SenderDID: from.String(), OperationID: operation,
		Target: &Target{Kind: "agent", DID: target.String()}, CreatedAt: o.Created.UTC().Format(time.RFC3339), ContentType: "application/json",
	})
	if err != nil {
		return nil, fmt.Errorf("anp: %w", err)
	}
	proof, err := httpsig.SignOrigin(ctx, httpsig.OriginRequest{Method: NegotiateMethod, Meta: meta, Body: body}, s, o)
	if err != nil {
		return nil, err
	}
	return canon.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": operation, "method": NegotiateMethod,
		"params": map[string]any{
			"meta": json.RawMessage(meta), "body": json.RawMessage(body), "auth": map[string]any{"scheme": httpsig.OriginScheme, "origin_proof": proof},
		},
	})
}

const maxResult = 256 << 10

// CheckResult reads the answer to a request of caller's with this body, and believes nothing of it before it is shown to be the
// target's own word on exactly that request: proof by an assertionMethod key of doc, digest, parties, question, time. A result that
// selects another security profile, content type, profile or interface than was asked for is [ErrDowngraded].
func CheckResult(raw []byte, doc *did.Document, caller did.DID, body []byte, now time.Time) (*Result, error) {
	lim := canon.Limits{MaxBytes: maxResult, MaxDepth: 16}
	var r Result
	if err := canon.Unmarshal(raw, &r, lim); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrResult, err)
	}
	asked, err := canon.Canonicalize(body, canon.Limits{MaxBytes: maxAskBytes, MaxDepth: 16})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrResult, err)
	}
	if err := r.proved(doc, now); err != nil {
		return nil, err
	}
	until, err := time.Parse(time.RFC3339, r.ValidUntil)
	switch {
	case r.Type != ResultType || r.Treaty.Target != doc.ID().String() || r.Treaty.Caller != caller.String():
		return nil, fmt.Errorf("%w: it is not for this caller by this agent", ErrResult)
	case !r.Treaty.RequestDigest.Equal(askDigest(asked)):
		return nil, fmt.Errorf("%w: it answers another request", ErrResult)
	case err != nil:
		return nil, fmt.Errorf("%w: validUntil", ErrResult)
	case !now.Before(until):
		return nil, fmt.Errorf("%w at %s", ErrExpired, r.ValidUntil)
	case r.Status != StatusAccepted && r.Status != StatusRejected && r.Status != StatusNeedsMore, (r.Status == StatusAccepted) != (r.Selected != nil):
		return nil, fmt.Errorf("%w: status", ErrResult)
	}
	ask, err := ParseAsk(asked)
	if err != nil || r.Selected == nil {
		return &r, err
	}
	if err := r.fits(ask); err != nil {
		return nil, err
	}
	return &r, nil
}

// proved checks digest and proof.
func (r *Result) proved(doc *did.Document, now time.Time) error {
	if r.Proof == nil {
		return fmt.Errorf("%w: no proof", ErrResult)
	}
	bare := *r
	bare.Proof = nil
	signed, err := canon.Marshal(bare)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrResult, err)
	}
	bare.NegotiationDigest = ""
	unsigned, err := canon.Marshal(bare)
	if err != nil || canon.Sum(unsigned).String() != r.NegotiationDigest {
		return fmt.Errorf("%w: negotiationDigest", ErrResult)
	}
	key, err := doc.KeyFor(r.Proof.VerificationMethod, did.AssertionMethod, now)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrResult, err)
	}
	if err := did.VerifyObject(signed, *r.Proof, key); err != nil {
		return fmt.Errorf("%w: %w", ErrResult, err)
	}
	return nil
}

// fits says whether the selection is one of what was asked for.
func (r *Result) fits(a *Ask) error {
	within := func(list []string, v string) bool { return len(list) == 0 || slices.Contains(list, v) }
	s := r.Selected
	switch {
	case a.Constraints.SecurityProfile != "" && s.SecurityProfile != a.Constraints.SecurityProfile, !within(a.Caller.SecurityProfiles, s.SecurityProfile):
		return fmt.Errorf("%w: security profile %q", ErrDowngraded, clip(s.SecurityProfile))
	case !within(a.Caller.ContentTypes, s.ContentType):
		return fmt.Errorf("%w: content type %q", ErrDowngraded, clip(s.ContentType))
	case !within(a.Caller.Profiles, s.Profile):
		return fmt.Errorf("%w: profile %q", ErrDowngraded, clip(s.Profile))
	case !within(a.Interfaces, s.Interface):
		return fmt.Errorf("%w: interface %q", ErrDowngraded, clip(s.Interface))
	case a.candidates != nil && (r.Treaty.Candidate == nil || !slices.ContainsFunc(a.candidates, r.Treaty.Candidate.Equal)):
		return fmt.Errorf("%w: a candidate that was not among ours", ErrDowngraded)
	}
	return nil
}

func clip(s string) string {
	const limit = 100
	if len(s) > limit {
		return s[:limit] + "…"
	}
	return s
}
