// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
)

// Step is one question about a query, and what decides it.
type Step struct {
	Stage   string `json:"stage"` // contract, or node's policy
	Allowed bool   `json:"allowed"`
	Rule    string `json:"rule"` // a refusal's code, or cedar:<policy id>
	Text    string `json:"text"`
}

// Explanation says why a query under a contract is allowed or not, as this node can tell: by the contract, and by what its own
// Cedar policies would say to an offer today. The data plane's own ceiling is in its own folder.
type Explanation struct {
	ContractID string          `json:"contractId"`
	Role       string          `json:"role"`
	Allowed    bool            `json:"allowed"` // by the contract
	Steps      []Step          `json:"steps"`
	Contract   json.RawMessage `json:"contract"`
	Caller     string          `json:"caller"` // for whom it was explained
}

// PolicyAdmin explains decisions.
type PolicyAdmin interface {
	// Explain decides about a query as the data plane does, and asks nobody.
	Explain(ctx context.Context, q QueryRequest) (Explanation, error)
}

func policyRoutes(a PolicyAdmin, post route) {
	post("/policy/explain", body(func(r *http.Request, req QueryRequest) (any, error) {
		return a.Explain(r.Context(), req)
	}))
}
