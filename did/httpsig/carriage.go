// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// Auth holds the three signature fields where they travel as JSON members
// instead of header fields (ANP-02 section 4.1.1). An origin proof has the same
// shape.
type Auth struct {
	ContentDigest  string `json:"contentDigest,omitempty"`
	SignatureInput string `json:"signatureInput"`
	Signature      string `json:"signature"`
}

// carriage is the JSON object that carries Auth beside the payload it covers.
type carriage struct {
	Auth    Auth            `json:"auth"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// SignJSON returns {"auth":…,"payload":…} for a JSON payload that is sent by
// method to targetURI. The digest is over the payload's canonical form
// (RFC 8785), which is what the result holds. An empty payload is left out.
func SignJSON(ctx context.Context, method, targetURI string, payload []byte, s did.Signer, o SignOptions) ([]byte, error) {
	c := carriage{}
	components := carriageComponents[:2]
	if len(payload) > 0 {
		canonical, err := canon.Canonicalize(payload, canon.Limits{})
		if err != nil {
			return nil, fmt.Errorf("httpsig: payload: %w", err)
		}
		c.Payload, c.Auth.ContentDigest, components = canonical, ContentDigest(canonical), carriageComponents[:]
	}
	var err error
	m := &Message{Method: method, TargetURI: targetURI}
	if c.Auth.SignatureInput, c.Auth.Signature, err = sign(ctx, m, components, c.Auth.ContentDigest, s, o); err != nil {
		return nil, err
	}
	return canon.Marshal(c)
}

// VerifyJSON checks a request whose content is {"auth":…,"payload":…} as
// [Verifier.Verify] checks one with header fields, and returns the payload in
// canonical form. The signature cannot cover header fields. The object is
// closed: other members are refused.
func (v *Verifier) VerifyJSON(ctx context.Context, r *http.Request, content []byte) (Caller, []byte, error) {
	var body carriage
	if err := canon.Unmarshal(content, &body, canon.Limits{}); err != nil {
		return Caller{}, nil, refuse(InvalidRequest, "The content is not a JSON object of auth and payload.", err)
	}
	var payload []byte
	if len(body.Payload) > 0 {
		var err error
		if payload, err = canon.Canonicalize(body.Payload, canon.Limits{}); err != nil {
			return Caller{}, nil, refuse(InvalidRequest, "The payload is malformed.", err)
		}
	}
	c, err := v.inspectAuth(body.Auth, 0)
	if err != nil {
		return Caller{}, nil, err
	}
	c.message.Method = r.Method
	if c.origins, c.target, err = v.targetOf(r); err != nil {
		return Caller{}, nil, err
	}
	caller, err := v.authenticate(ctx, c, payload)
	if err != nil {
		return Caller{}, nil, err
	}
	return caller, payload, nil
}

func (v *Verifier) inspectAuth(a Auth, implied time.Duration) (*claim, error) {
	line := func(s string) []string {
		if s == "" {
			return nil
		}
		return []string{s}
	}
	c, err := v.inspect(fields{input: line(a.SignatureInput), signature: line(a.Signature), digest: line(a.ContentDigest), implied: implied})
	if err != nil {
		return nil, err
	}
	c.message.Header = http.Header{"Content-Digest": c.digest}
	return c, nil
}

// OriginScheme is the auth.scheme of an origin proof (P1 appendix A.1).
const OriginScheme = "anp-rfc9421-origin-proof-v1"

// OriginRequest is the Signed Request Object of P1 appendix A.3: what an origin
// proof covers of a JSON-RPC request. Meta and Body are JSON objects.
type OriginRequest struct {
	Method string          `json:"method"`
	Meta   json.RawMessage `json:"meta"`
	Body   json.RawMessage `json:"body"`
}

// SignOrigin returns the origin proof of q. The signer's DID must be
// meta.sender_did.
func SignOrigin(ctx context.Context, q OriginRequest, s did.Signer, o SignOptions) (Auth, error) {
	m, canonical, sender, err := q.message()
	if err != nil {
		return Auth{}, err
	}
	if id, _, err := did.SplitKeyID(s.KeyID()); err != nil || id.String() != sender {
		return Auth{}, errors.New("httpsig: signer is not meta.sender_did")
	}
	a := Auth{ContentDigest: ContentDigest(canonical)}
	if a.SignatureInput, a.Signature, err = sign(ctx, m, carriageComponents[:], a.ContentDigest, s, o); err != nil {
		return Auth{}, err
	}
	return a, nil
}

// VerifyOrigin checks the origin proof of q (P1 appendix A.6): exactly the
// components @method, @target-uri and content-digest in this order, label sig1,
// by an authentication key of meta.sender_did, in time, and not seen before. A
// proof that does not say when it expires, as most SDKs write them, lasts 60 s. The
// idempotent retry of P1 section 9 repeats the proof: look the operation up
// before calling this.
func (v *Verifier) VerifyOrigin(ctx context.Context, q OriginRequest, proof Auth) (Caller, error) {
	m, canonical, sender, err := q.message()
	if err != nil {
		return Caller{}, refuse(InvalidRequest, "The request has no origin that could be proved.", err)
	}
	c, err := v.inspectAuth(proof, min(DefaultLifetime, v.opts.MaxLifetime))
	if err != nil {
		return Caller{}, err
	}
	if c.in.Label != "sig1" || len(c.in.Components) != len(carriageComponents) ||
		[len(carriageComponents)]Component(c.in.Components) != carriageComponents {
		return Caller{}, refuse(InvalidRequest, "An origin proof covers exactly @method, @target-uri and content-digest.", nil)
	}
	if c.id.String() != sender {
		return Caller{}, refuse(InvalidDID, "The origin proof is not by the sender.", nil)
	}
	m.Header = c.message.Header
	c.message, c.origins, c.target = *m, []string{""}, m.TargetURI
	return v.authenticate(ctx, c, canonical)
}

// message maps q to the components of P1 appendix A.4.
func (q OriginRequest) message() (m *Message, canonical []byte, sender string, err error) {
	var meta struct {
		Sender string `json:"sender_did"`
		Target struct {
			Kind string `json:"kind"`
			DID  string `json:"did"`
		} `json:"target"`
	}
	if err := canon.UnmarshalOpen(q.Meta, &meta, canon.Limits{}); err != nil {
		return nil, nil, "", fmt.Errorf("httpsig: meta: %w", err)
	}
	switch meta.Target.Kind {
	case "agent", "group", "service":
	default:
		return nil, nil, "", errors.New("httpsig: meta.target.kind is none of agent, group, service")
	}
	if meta.Target.DID == "" || meta.Sender == "" || !printable(q.Method, maxNonceBytes) {
		return nil, nil, "", errors.New("httpsig: method, meta.sender_did and meta.target.did are required")
	}
	if canonical, err = canon.Marshal(q); err != nil {
		return nil, nil, "", fmt.Errorf("httpsig: signed request object: %w", err)
	}
	uri := append([]byte("anp://"), meta.Target.Kind...)
	uri = append(uri, '/')
	for i := 0; i < len(meta.Target.DID); i++ { // RFC 3986 section 2.3
		c := meta.Target.DID[i]
		if isLower(c) || isDigit(c) || 'A' <= c && c <= 'Z' || c == '-' || c == '.' || c == '_' || c == '~' {
			uri = append(uri, c)
		} else {
			uri = append(uri, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return &Message{Method: q.Method, TargetURI: string(uri)}, canonical, meta.Sender, nil
}
