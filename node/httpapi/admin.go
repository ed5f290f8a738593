// SPDX-License-Identifier: Apache-2.0

// Package httpapi holds the node's HTTP surfaces: the public listener's routes, the admin interface on the node's Unix
// socket, and the one table that turns errors into statuses and exit codes.
//
// The admin interface is for the node's own operator: whoever may open the socket (mode 0600) may make the node sign. It
// is never mounted on the public listener. Requests are JSON, bounded, with unknown members refused.
package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/gorilla/mux"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

// Status says who this node is.
type Status struct {
	Service string `json:"service"` // "treaty"
	Build   string `json:"build"`
	DID     string `json:"did"`
	Domain  string `json:"domain"`
	// Document is the hash of the agent's DID document as published now.
	Document canon.Digest `json:"document"`
	// Former are the DIDs that the node had before, oldest first.
	Former []Former `json:"former,omitempty"`
}

// Former is a DID from which the node has moved on.
type Former struct {
	DID       string `json:"did"`
	Successor string `json:"successor"`
	// Until is when the last of its keys ends, RFC 3339; "" when none opens anything any more.
	Until            string `json:"until,omitempty"`
	CompromisedSince string `json:"compromisedSince,omitempty"` // RFC 3339
}

// ResolveRequest names what to resolve: a DID, or a domain whose agents are looked up first.
type ResolveRequest struct {
	Target string `json:"target"`
}

// ResolveResult is one verified DID document and how it was verified.
type ResolveResult struct {
	DID          string          `json:"did"`
	URL          string          `json:"url"`
	Profile      string          `json:"profile"`
	Dialect      string          `json:"dialect"`
	ProofKey     string          `json:"proofKey"`
	ProofCreated string          `json:"proofCreated"`
	Hash         canon.Digest    `json:"hash"`
	FirstSeen    string          `json:"firstSeen"`
	KeyChanged   bool            `json:"keyChanged,omitempty"` // accepted by configuration though keys were added that nothing binds to the DID
	MayContract  bool            `json:"mayContract"`
	Reason       string          `json:"reason,omitempty"` // why not
	Keys         []KeyInfo       `json:"keys"`
	Document     json.RawMessage `json:"document"`
}

// KeyInfo is one verification method and what it may be used for.
type KeyInfo struct {
	ID            string   `json:"id"`
	Type          string   `json:"type"`
	Thumbprint    string   `json:"thumbprint"`
	Relationships []string `json:"relationships"`
}

// Key is one of the node's own keys, by its public parts. There is no secret in it.
type Key struct {
	Role       string      `json:"role"` // signing, kex, service, human, recovery
	KID        string      `json:"kid"`
	Type       string      `json:"type"`
	Thumbprint string      `json:"thumbprint"`        // RFC 7638
	Created    string      `json:"created,omitempty"` // RFC 3339; known for keys in files
	Expires    string      `json:"expires,omitempty"` // end of life in the document
	State      KeyState    `json:"state"`
	Location   KeyLocation `json:"location"`
	Where      string      `json:"where,omitempty"` // the file in the node's folder, or the signer's socket
}

// KeyState is where a key is in its life.
type KeyState string

// States of keys.
const (
	KeyActive      KeyState = "active"      // in the document, with no end
	KeyRetiring    KeyState = "retiring"    // in the document until its end of life
	KeyExpired     KeyState = "expired"     // still in the document, past its end of life
	KeyUnpublished KeyState = "unpublished" // held, and in no document
)

// KeyLocation is where the private half is.
type KeyLocation string

// Locations of keys.
const (
	KeyInFile  KeyLocation = "file"
	KeyInToken KeyLocation = "token"   // behind a remote signer
	KeyOffline KeyLocation = "offline" // keys of people and recovery keys: out of the node's reach
	KeyMissing KeyLocation = "missing" // published, but this node does not have it
)

// NegotiateRequest starts a negotiation as buyer. Peer is a DID or a domain.
type NegotiateRequest struct {
	Peer   string `json:"peer"`
	Needs  string `json:"needs,omitempty"` // text of a needs file; empty: the node's own
	DryRun bool   `json:"dryRun,omitempty"`
}

// Negotiation is one conversation as this node sees it. Events cites the log entries it was derived from.
type Negotiation struct {
	ContextID  string          `json:"contextId"`
	TaskID     string          `json:"taskId,omitempty"`
	Role       string          `json:"role"`
	Peer       string          `json:"peer"`
	Phase      string          `json:"phase"`
	Code       string          `json:"code,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Ask        *contract.Scope `json:"ask,omitempty"`
	Offer      *contract.Offer `json:"offer,omitempty"`
	ContractID string          `json:"contractId,omitempty"`
	Transcript string          `json:"transcript,omitempty"`
	// Reopens is the conversation whose need this one takes up, because its agreement held no longer; ReopenedAs the one that takes
	// up this one's.
	Reopens    string    `json:"reopens,omitempty"`
	ReopenedAs string    `json:"reopenedAs,omitempty"`
	Created    time.Time `json:"created"`
	Updated    time.Time `json:"updated"`
	Events     []uint64  `json:"events"`
	// DryRun holds what policy would make of the ask, one line each; nothing was sent.
	DryRun []string `json:"dryRun,omitempty"`
}

// Contract is a contract record, with the signed documents as they are.
type Contract struct {
	ID         string             `json:"id"`
	Digest     canon.Digest       `json:"digest"`
	Role       string             `json:"role"`
	Peer       string             `json:"peer"`
	State      string             `json:"state"`
	ContextID  string             `json:"contextId"`
	Contract   json.RawMessage    `json:"contract"`
	Activation json.RawMessage    `json:"activation,omitempty"`
	ValidUntil string             `json:"validUntil"`          // as signed
	BuyerNow   string             `json:"buyerNow,omitempty"`  // DID of today of a buyer that has moved since
	VendorNow  string             `json:"vendorNow,omitempty"` // likewise
	Expired    bool               `json:"expired,omitempty"`
	Amends     contract.Reference `json:"amends,omitzero"`      // the contract that this one replaced
	ReplacedBy string             `json:"replacedBy,omitempty"` // the contract that came into force instead
	End        *End               `json:"end,omitempty"`
	Statements []Statement        `json:"statements,omitempty"` // with one contract, not in lists
	Created    time.Time          `json:"created"`
	Events     []uint64           `json:"events"`
}

// QueryRequest asks the data plane that a contract names. Purpose is the purpose of record when empty.
type QueryRequest struct {
	ContractID string               `json:"contractId"`
	Purpose    string               `json:"purpose,omitempty"`
	Dataset    string               `json:"dataset,omitempty"`
	Aggregates []contract.Aggregate `json:"aggregates"`
	GroupBy    []string             `json:"groupBy"`
	Filters    []contract.Condition `json:"filters"`
	OrderBy    []contract.Order     `json:"orderBy"`
	Limit      int                  `json:"limit,omitempty"`

	GroupByDate []contract.DateGroup `json:"groupByDate,omitempty"`
	Where       *contract.Filter     `json:"where,omitempty"`
	Having      []contract.Condition `json:"having,omitempty"`
	Offset      int                  `json:"offset,omitempty"`
	Select      []string             `json:"select,omitempty"` // rows rather than aggregates
}

// QueryResult is a data plane's answer.
type QueryResult struct {
	ContractID   string          `json:"contractId"`
	Columns      []string        `json:"columns"`
	Rows         [][]any         `json:"rows"`
	UsedRows     int64           `json:"usedRows"`
	TotalRows    int64           `json:"totalRows"`
	ResultDigest canon.Digest    `json:"resultDigest"`
	Receipt      json.RawMessage `json:"receipt,omitempty"`
	Noise        string          `json:"noise,omitempty"` // epsilon, when noise was added
}

// ToolRequest is one call of a tool of the data plane that a contract names, as an MCP client makes it.
type ToolRequest struct {
	ContractID string          `json:"contractId"`
	Tool       string          `json:"tool"`
	Arguments  json.RawMessage `json:"arguments,omitempty"`
}

// Admin is what the node does for its operator.
type Admin interface {
	Status() Status
	Resolve(ctx context.Context, target string) ([]ResolveResult, error)
	Negotiate(ctx context.Context, req NegotiateRequest) (Negotiation, error)
	Negotiations(ctx context.Context) ([]Negotiation, error)
	Negotiation(ctx context.Context, id string) (Negotiation, error)
	Withdraw(ctx context.Context, id, reason string) (Negotiation, error)
	Contracts(ctx context.Context) ([]Contract, error)
	Contract(ctx context.Context, id string) (Contract, error)
	Evidence(ctx context.Context, contractID string) ([]byte, error)
	Query(ctx context.Context, req QueryRequest) (QueryResult, error)
	// Tool returns the tool's result as MCP writes it; a refusal is one.
	Tool(ctx context.Context, req ToolRequest) (json.RawMessage, error)
	Datasets(ctx context.Context) ([]json.RawMessage, error)
	Keys(ctx context.Context) ([]Key, error)
	Events(ctx context.Context, after uint64, limit int) ([]ledger.Event, error)
	Backup(ctx context.Context, path string) error
	IdentityAdmin
	LifecycleAdmin
	AskAdmin
	PolicyAdmin
	CallsAdmin
}

const (
	maxAdminBody = 1 << 20
	followEvery  = 100 * time.Millisecond
)

// AdminHandler serves the admin interface.
func AdminHandler(a Admin) http.Handler { return adminRouter(a) }

func adminRouter(a Admin) *mux.Router {
	r := mux.NewRouter()
	v1 := r.PathPrefix("/v1").Subrouter()
	get := func(path string, f func(r *http.Request) (any, error)) {
		v1.HandleFunc(path, reply(f)).Methods(http.MethodGet)
	}
	post := func(path string, f func(r *http.Request) (any, error)) {
		v1.HandleFunc(path, reply(f)).Methods(http.MethodPost)
	}
	get("/status", func(*http.Request) (any, error) { return a.Status(), nil })
	post("/resolve", body(func(r *http.Request, req ResolveRequest) (any, error) {
		return a.Resolve(r.Context(), req.Target)
	}))
	identityRoutes(a, get, post)
	lifecycleRoutes(a, get, post)
	policyRoutes(a, post)
	post("/negotiations", body(func(r *http.Request, req NegotiateRequest) (any, error) {
		return a.Negotiate(r.Context(), req)
	}))
	get("/negotiations", func(r *http.Request) (any, error) { return a.Negotiations(r.Context()) })
	get("/negotiations/{id}", func(r *http.Request) (any, error) { return a.Negotiation(r.Context(), mux.Vars(r)["id"]) })
	post("/negotiations/{id}/withdraw", func(r *http.Request) (any, error) {
		var req struct {
			Reason string `json:"reason"`
		}
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		return a.Withdraw(r.Context(), mux.Vars(r)["id"], req.Reason)
	})
	get("/contracts", func(r *http.Request) (any, error) { return a.Contracts(r.Context()) })
	get("/contracts/{id}", func(r *http.Request) (any, error) { return a.Contract(r.Context(), mux.Vars(r)["id"]) })
	get("/contracts/{id}/evidence", func(r *http.Request) (any, error) {
		b, err := a.Evidence(r.Context(), mux.Vars(r)["id"])
		return json.RawMessage(b), err
	})
	post("/query", body(func(r *http.Request, req QueryRequest) (any, error) {
		return a.Query(r.Context(), req)
	}))
	post("/tool", body(func(r *http.Request, req ToolRequest) (any, error) {
		return a.Tool(r.Context(), req)
	}))
	askRoute(a, post)
	callsRoutes(a, get, post)
	get("/keys", func(r *http.Request) (any, error) { return a.Keys(r.Context()) })
	get("/datasets", func(r *http.Request) (any, error) { return a.Datasets(r.Context()) })
	post("/backup", func(r *http.Request) (any, error) {
		var req struct {
			Path string `json:"path"`
		}
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		return map[string]string{"path": req.Path}, a.Backup(r.Context(), req.Path)
	})
	v1.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) { events(a, w, r) }).Methods(http.MethodGet)
	return r
}

func reply(f func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if errors.Is(err, store.ErrNotFound) {
			what := "no such record"
			if id := mux.Vars(r)["id"]; id != "" {
				what = "there is no " + contract.Echo(id) + " here"
			}
			err = &Error{Kind: KindNotFound, Message: what, Hint: "list what there is: treaty negotiations list, treaty contracts list"}
		}
		if err != nil {
			WriteError(w, err)
			return
		}
		WriteJSON(w, http.StatusOK, v)
	}
}

func decode(r *http.Request, v any) error {
	data, err := io.ReadAll(io.LimitReader(r.Body, maxAdminBody+1))
	if err == nil {
		err = canon.Unmarshal(data, v, canon.Limits{MaxBytes: maxAdminBody})
	}
	if err != nil {
		return &Error{Kind: KindUsage, Message: "request body: " + err.Error()}
	}
	return nil
}

// events streams the log as lines of JSON. With follow=1 it goes on until the caller leaves.
func events(a Admin, w http.ResponseWriter, r *http.Request) {
	var after uint64
	if s := r.URL.Query().Get("after"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			WriteError(w, &Error{Kind: KindUsage, Message: fmt.Sprintf("after: %q is not a sequence number", s)})
			return
		}
		after = n
	}
	follow, begun := r.URL.Query().Get("follow") == "1", false
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	rc := http.NewResponseController(w)
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		list, err := a.Events(r.Context(), after, store.MaxList)
		switch {
		case err != nil && !begun:
			WriteError(w, err)
			return
		case err != nil: // the reader must not take what it has for the whole log
			panic(http.ErrAbortHandler)
		}
		begun = true
		for _, e := range list {
			if enc.Encode(e) != nil {
				return
			}
			after = e.Seq
		}
		_ = rc.Flush()
		if len(list) == store.MaxList {
			continue
		}
		if !follow {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}
