// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/http"

	"github.com/treaty-node/treaty/did/httpsig"
)

// Compat accepts what other implementations of ANP do beside signing requests as ANP-02 wants it. Everything is off by
// default. Tokens and the legacy header let plain questions in under a name; negotiation and data plane need a signature
// whatever stands here, since they ask for the caller, which neither makes.
type Compat struct {
	// AccessTokens issues a bearer token in the answer to a signed request, and accepts it until it expires, trust in its DID
	// ends or the node restarts.
	AccessTokens bool `yaml:"access_tokens,omitempty"`
	// LegacyHeader accepts Authorization: DIDWba.
	LegacyHeader bool `yaml:"legacy_header,omitempty"`
	// HighS accepts request signatures of secp256k1 keys with high S, as the Python and TypeScript SDKs make them.
	HighS bool `yaml:"high_s,omitempty"`
	// A2AV03 lets clients of A2A 0.3 ask plain questions over JSON-RPC, and serves the card that they read at /.well-known/agent.json.
	A2AV03 bool `yaml:"a2a_0_3,omitempty"`
}

// optional is the middleware of an endpoint that answers strangers too.
func (c Compat) optional(v *httpsig.Verifier, next http.Handler) (http.Handler, error) {
	if !c.AccessTokens && !c.LegacyHeader {
		return v.Optional(next), nil
	}
	sessions, err := httpsig.NewSessions(v, httpsig.SessionOptions{Tokens: c.AccessTokens, Legacy: c.LegacyHeader})
	if err != nil {
		return nil, err
	}
	return sessions.Optional(next), nil
}
