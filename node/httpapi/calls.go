// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"net/http"

	"github.com/treaty-node/treaty/node/store"
)

// CallsAdmin is what an operator does about the calls that buyers have under way in this company's data plane.
type CallsAdmin interface {
	// Calls returns what the data plane last said: calls that have been under way for more than a second.
	Calls(ctx context.Context) (store.CallsUnderWay, error)
	// CancelCall asks the data plane to end a call, which it does within about a second.
	CancelCall(ctx context.Context, id string) error
}

// CancelCallRequest names a call under way.
type CancelCallRequest struct {
	ID string `json:"id"`
}

func callsRoutes(a CallsAdmin, get, post route) {
	get("/calls", func(r *http.Request) (any, error) { return a.Calls(r.Context()) })
	post("/calls/cancel", body(func(r *http.Request, req CancelCallRequest) (any, error) {
		return req, a.CancelCall(r.Context(), req.ID)
	}))
}
