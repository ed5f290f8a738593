// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/treaty-node/treaty/did/canon"
)

// Effects of a trust rule, and what an operator can do about one.
const (
	TrustAllow  = "allow"
	TrustDeny   = "deny"
	TrustForget = "forget" // drop what allow or deny changed; the configuration's word counts again
)

// Sources of a trust rule.
const (
	TrustFromConfig   = "configuration"
	TrustFromOperator = "operator"
)

// Trust is the trust policy in force: the configuration's, with the operator's changes on top of it.
type Trust struct {
	FirstContact     string      `json:"firstContact"`
	Methods          []string    `json:"methods"`
	ContractProfiles []string    `json:"contractProfiles"`
	Rules            []TrustRule `json:"rules"`
	// Note says what the change just made does not do, such as an allowed domain that a wider rule still denies.
	Note string `json:"note,omitempty"`
}

// TrustRule is one pattern with what it does. A rule of the configuration that the operator's word replaces is not in
// force.
type TrustRule struct {
	Effect  string    `json:"effect"` // TrustAllow or TrustDeny
	Pattern string    `json:"pattern"`
	Source  string    `json:"source"`
	InForce bool      `json:"inForce"`
	Since   time.Time `json:"since,omitzero"` // of the operator's changes
}

// TrustRequest changes the trust policy.
type TrustRequest struct {
	Action  string `json:"action"` // TrustAllow, TrustDeny or TrustForget
	Pattern string `json:"pattern"`
}

// History is what this node has accepted of a DID, oldest first, and what waits for an operator's confirmation. Nothing is
// fetched for it.
type History struct {
	DID      string    `json:"did"`
	Versions []Version `json:"versions"`
}

// Version is one version of a DID document.
type Version struct {
	Hash         canon.Digest `json:"hash"`
	State        string       `json:"state"` // accepted or held
	ProofCreated time.Time    `json:"proofCreated,omitzero"`
	FirstSeen    time.Time    `json:"firstSeen"`
	Deactivated  bool         `json:"deactivated"`
	Keys         []KeyInfo    `json:"keys"`
}

// ConfirmRequest accepts the held version of a DID document with that hash.
type ConfirmRequest struct {
	DID  string `json:"did"`
	Hash string `json:"hash"`
}

// Verdicts of a check.
const (
	CheckOK   = "ok"
	CheckWarn = "warn" // works, but not for long, or not as it should
	CheckFail = "fail" // contracting would not work
)

// Check is one thing that the doctor looked at.
type Check struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Detail string `json:"detail"`         // what was found
	Mend   string `json:"mend,omitempty"` // what to do about it
}

// Diagnosis is the doctor's report on this node, or on a counterparty.
type Diagnosis struct {
	Subject string  `json:"subject"` // DID or domain
	Checks  []Check `json:"checks"`
	// WouldContract: no check failed.
	WouldContract bool `json:"wouldContract"`
}

// DoctorRequest names the counterparty to examine; empty: this node.
type DoctorRequest struct {
	Peer string `json:"peer,omitempty"`
}

// Kinds of rotation.
const (
	RotateKeyAgreement = "key-agreement"
	RotateSigning      = "signing" // the secondary key that signs requests; the binding key is not touched
	RotateHuman        = "human"
	RotateRecovery     = "recovery"
	RotateBinding      = "binding" // the identity moves to another DID
)

// RotateRequest puts a new key in the place of those of its kind, which stay for the grace period.
type RotateRequest struct {
	Kind string `json:"kind"`
	// Document is the hash of the document that the operator means to change; empty: whatever it is.
	Document string `json:"document,omitempty"`
	// PublicKey is the new Ed25519 key of kind human or recovery, whose private half the node never sees.
	PublicKey []byte `json:"publicKey,omitempty"`
	// Now retires the keys that are replaced at once, and all of their kind with them: somebody else may have them. What is sealed to them and under way
	// is lost, and negotiations with peers that have the older document in their cache fail until they look again.
	Now bool `json:"now,omitempty"`

	// Of kind binding only. Compromised: somebody else may have the old key, since that time (zero: now). There is no grace.
	Compromised bool      `json:"compromised,omitempty"`
	Since       time.Time `json:"since,omitzero"`
	// SignerKID is the next binding key, when it is behind a remote signer.
	SignerKID string `json:"signerKid,omitempty"`
	// Prepare makes the next DID's keys and changes nothing: the answer says what a recovery key has to sign. Successor and
	// Deactivated then name the prepared DID and are the old document as the recovery key has deactivated it.
	Prepare     bool   `json:"prepare,omitempty"`
	Successor   string `json:"successor,omitempty"`
	Deactivated []byte `json:"deactivated,omitempty"`
}

// Rotation is what a rotation led to.
type Rotation struct {
	Kind     string       `json:"kind"`
	KID      string       `json:"kid"`
	Previous []string     `json:"previous"`        // keys that it replaces
	Until    string       `json:"until,omitempty"` // RFC 3339; their end
	UsedFrom string       `json:"usedFrom"`        // RFC 3339; when this node begins to use the new key
	Document canon.Digest `json:"document"`        // hash of the document published now
	Note     string       `json:"note,omitempty"`  // what is left to do

	// Of kind binding: the identity has moved from PreviousDID to DID. Until is then the end of what is opened with the old keys.
	DID         string    `json:"did,omitempty"`
	PreviousDID string    `json:"previousDid,omitempty"`
	Assurance   string    `json:"assurance,omitempty"` // verified, recovery_verified
	Suspects    *Suspects `json:"suspects,omitempty"`
	Told        []string  `json:"told,omitempty"` // counterparties to which a notice is on its way
	// Of a prepared move: the last document of PreviousDID in use, and the dialect of its proof.
	Active  []byte `json:"active,omitempty"`
	Dialect string `json:"dialect,omitempty"`
}

// Suspects is what somebody who had the old binding key may have had a hand in: what was first logged at Since or later.
type Suspects struct {
	Since         string   `json:"since"` // RFC 3339
	Contracts     []string `json:"contracts"`
	Receipts      int      `json:"receipts"`
	Conversations []string `json:"conversations"`
}

// IdentityAdmin is the part of [Admin] about who others are and whom this node deals with.
type IdentityAdmin interface {
	Trust(ctx context.Context) (Trust, error)
	ChangeTrust(ctx context.Context, req TrustRequest) (Trust, error)
	History(ctx context.Context, id string) (History, error)
	Confirm(ctx context.Context, req ConfirmRequest) (History, error)
	Doctor(ctx context.Context, req DoctorRequest) (Diagnosis, error)
	Rotate(ctx context.Context, req RotateRequest) (Rotation, error)
	DrillAdmin
}

type route func(path string, f func(r *http.Request) (any, error))

// body is a handler of requests whose body is a T, read strictly.
func body[T any](f func(r *http.Request, req T) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		var req T
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		return f(r, req)
	}
}

func identityRoutes(a IdentityAdmin, get, post route) {
	drillRoutes(a, get, post)
	get("/trust", func(r *http.Request) (any, error) { return a.Trust(r.Context()) })
	post("/trust", body(func(r *http.Request, req TrustRequest) (any, error) {
		return a.ChangeTrust(r.Context(), req)
	}))
	post("/resolve/history", body(func(r *http.Request, req ResolveRequest) (any, error) {
		return a.History(r.Context(), req.Target)
	}))
	post("/resolve/confirm", body(func(r *http.Request, req ConfirmRequest) (any, error) {
		return a.Confirm(r.Context(), req)
	}))
	post("/rotate", body(func(r *http.Request, req RotateRequest) (any, error) {
		return a.Rotate(r.Context(), req)
	}))
	post("/doctor", body(func(r *http.Request, req DoctorRequest) (any, error) {
		return a.Doctor(r.Context(), req)
	}))
}
