// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/gorilla/mux"
)

// DrillRequest runs a drill of a rotation against a counterparty, which has to agree.
type DrillRequest struct {
	Peer string `json:"peer"` // DID or domain
	Kind string `json:"kind"` // key-agreement, signing, binding, compromise, recovery
	// Live rotates the node's own keys; else an identity that is made for the drill is rotated.
	Live bool `json:"live,omitempty"`
	// Load is the number of queries a second under the contract between the two, 0 for none.
	Load int `json:"load,omitempty"`
	// GraceSeconds is the grace of the drill's own messages; 0: 10 s.
	GraceSeconds int `json:"graceSeconds,omitempty"`
}

// DrillSummary is one line of the list of drills.
type DrillSummary struct {
	ID           string `json:"id"`
	Kind         string `json:"kind"`
	Mode         string `json:"mode"`
	Subject      string `json:"subject"`
	Counterparty string `json:"counterparty"`
	Finished     string `json:"finished"` // RFC 3339
	Held         int    `json:"held"`
	Broken       int    `json:"broken"`
	NotChecked   int    `json:"notChecked"`
}

// DrillAdmin is the part of [Admin] about drills. Reports are canonical JSON, see package drill.
type DrillAdmin interface {
	Drill(ctx context.Context, req DrillRequest) (json.RawMessage, error)
	Drills(ctx context.Context) ([]DrillSummary, error)
	DrillReport(ctx context.Context, id string) (json.RawMessage, error)
}

func drillRoutes(a DrillAdmin, get, post route) {
	post("/drills", body(func(r *http.Request, req DrillRequest) (any, error) {
		return a.Drill(r.Context(), req)
	}))
	get("/drills", func(r *http.Request) (any, error) { return a.Drills(r.Context()) })
	get("/drills/{id}", func(r *http.Request) (any, error) { return a.DrillReport(r.Context(), mux.Vars(r)["id"]) })
}
