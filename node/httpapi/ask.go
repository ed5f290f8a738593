// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"net/http"

	"github.com/treaty-node/treaty/node/delegation"
)

// AskRequest is a plain question to other agents.
type AskRequest struct {
	Text      string               `json:"text"`
	Skill     string               `json:"skill,omitempty"`     // id or tag of a skill that an agent must offer
	Agents    []string             `json:"agents,omitempty"`    // DIDs or domains; none: those of the configuration
	Depth     int                  `json:"depth,omitempty"`     // hops, 1 (default) to 3
	OnFailure delegation.OnFailure `json:"onFailure,omitempty"` // default: partial
}

// AskAdmin asks other agents for the operator.
type AskAdmin interface {
	Ask(ctx context.Context, req AskRequest) ([]delegation.Answer, error)
}

func askRoute(a AskAdmin, post route) {
	post("/ask", body(func(r *http.Request, req AskRequest) (any, error) {
		return a.Ask(r.Context(), req)
	}))
}
