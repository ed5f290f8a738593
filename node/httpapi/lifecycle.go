// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/gorilla/mux"

	"github.com/treaty-node/treaty/did/canon"
)

// Statement is a signed document about a contract, as it is: a revocation, an acknowledgement or a deletion statement.
type Statement struct {
	Type     string          `json:"type"`
	Digest   canon.Digest    `json:"digest"` // of the document with its proof
	By       string          `json:"by"`     // DID
	Stored   time.Time       `json:"stored"`
	Document json.RawMessage `json:"document"`
}

// End says how a contract ended, and what the data plane did then. Times are the log's.
type End struct {
	By        string    `json:"by"` // DID
	Reason    string    `json:"reason"`
	RevokedAt string    `json:"revokedAt"` // as signed
	Event     uint64    `json:"event"`     // from here on every call is refused
	Time      time.Time `json:"time"`
	Replaced  string    `json:"replacedBy,omitempty"` // contract that came into force in its place
	// LastAnswer and FirstRefusal are events of the data plane's calls; zero: there is none in this log.
	LastAnswer   Moment `json:"lastAnswer,omitzero"`
	FirstRefusal Moment `json:"firstRefusal,omitzero"`
	// RefusedAfter is the time from the revocation's event to FirstRefusal: at most, until somebody called.
	RefusedAfter string `json:"refusedAfter,omitempty"`
}

// Moment is an event and its time.
type Moment struct {
	Event uint64    `json:"event"`
	Time  time.Time `json:"time"`
}

// RevokeRequest ends a contract.
type RevokeRequest struct {
	Reason string `json:"reason,omitempty"`
}

// AmendRequest asks for a contract that replaces another one: either Needs, a needs file, or what is to change of the terms.
type AmendRequest struct {
	Needs         string   `json:"needs,omitempty"`
	Columns       []string `json:"columns,omitempty"`
	Operations    []string `json:"operations,omitempty"`
	Purpose       string   `json:"purpose,omitempty"`
	RetentionDays *int     `json:"retentionDays,omitempty"`
	Calls         *int64   `json:"calls,omitempty"`
	Rationale     string   `json:"rationale,omitempty"` // for the people over there
}

// Changes says whether any term is to change.
func (r *AmendRequest) Changes() bool {
	return len(r.Columns)+len(r.Operations) > 0 || r.Purpose != "" || r.RetentionDays != nil || r.Calls != nil
}

// Deletions is what was given under a contract, and what became of it.
type Deletions struct {
	ContractID string      `json:"contractId"`
	Role       string      `json:"role"`
	Results    []Result    `json:"results"`
	Statements []Statement `json:"statements"` // deletion statements, and what acknowledges them
}

// Result is one result that was given under a contract.
type Result struct {
	ResultDigest canon.Digest `json:"resultDigest"`
	Receipts     int64        `json:"receipts"`
	Last         time.Time    `json:"last"` // when it was last given
	Due          time.Time    `json:"due"`  // when it is to be deleted
	Held         bool         `json:"held"` // the buyer's store has it
	Overdue      bool         `json:"overdue"`
	// Statement is the deletion statement that covers it; zero for none.
	Statement canon.Digest `json:"statement,omitzero"`
}

// MaxReceipts bounds the receipts of one answer.
const MaxReceipts = 10_000

// LifecycleAdmin is the part of [Admin] about contracts once they are in force.
type LifecycleAdmin interface {
	Revoke(ctx context.Context, id string, req RevokeRequest) (Contract, error)
	// Amend and Renew start the negotiation of a contract that replaces one in force, and return while it goes on.
	Amend(ctx context.Context, id string, req AmendRequest) (Negotiation, error)
	Renew(ctx context.Context, id string) (Negotiation, error)
	Deletions(ctx context.Context, id string) (Deletions, error)
	// Receipts returns the signed receipts of calls under a contract in the order they came, at most MaxReceipts.
	Receipts(ctx context.Context, id string) ([]json.RawMessage, error)
	// DeleteData deletes what is held under a contract and returns how many results went.
	DeleteData(ctx context.Context, id string) (int, error)
	// ContractODCS writes the contract as a document of the Open Data Contract Standard.
	ContractODCS(ctx context.Context, id string) (string, error)
}

func lifecycleRoutes(a LifecycleAdmin, get, post route) {
	post("/contracts/{id}/revoke", body(func(r *http.Request, req RevokeRequest) (any, error) {
		return a.Revoke(r.Context(), mux.Vars(r)["id"], req)
	}))
	post("/contracts/{id}/amend", body(func(r *http.Request, req AmendRequest) (any, error) {
		return a.Amend(r.Context(), mux.Vars(r)["id"], req)
	}))
	post("/contracts/{id}/renew", body(func(r *http.Request, _ struct{}) (any, error) {
		return a.Renew(r.Context(), mux.Vars(r)["id"])
	}))
	get("/contracts/{id}/deletions", func(r *http.Request) (any, error) { return a.Deletions(r.Context(), mux.Vars(r)["id"]) })
	get("/contracts/{id}/receipts", func(r *http.Request) (any, error) { return a.Receipts(r.Context(), mux.Vars(r)["id"]) })
	post("/contracts/{id}/delete-data", body(func(r *http.Request, _ struct{}) (any, error) {
		n, err := a.DeleteData(r.Context(), mux.Vars(r)["id"])
		return map[string]int{"deleted": n}, err
	}))
	get("/contracts/{id}/odcs", func(r *http.Request) (any, error) {
		doc, err := a.ContractODCS(r.Context(), mux.Vars(r)["id"])
		return map[string]string{"document": doc}, err
	})
}
