// SPDX-License-Identifier: Apache-2.0

package anp

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/httpsig"
)

// Bounds of what a request may hold.
const (
	MaxRequestBytes = 1 << 20
	maxDepth        = 32
	maxName         = 256 // bytes of an id, a method's name, a member of meta
)

// Request is a parsed request: well formed, and nothing more. Who sent it is not yet known.
type Request struct {
	ID           string
	Notification bool // no id: nothing is done and nothing answered
	Method       string
	Meta         Meta
	Auth         *Auth           // nil without one
	Body         json.RawMessage // canonical JSON object
	meta         json.RawMessage // as the origin proof covers it, x_ members included
}

// Meta is the params' meta object (P1 section 6.2), without members whose names begin with x_, which are ignored.
type Meta struct {
	ANPVersion        string  `json:"anp_version,omitempty"` // deprecated: never decided upon
	Profile           string  `json:"profile,omitempty"`
	SecurityProfile   string  `json:"security_profile,omitempty"`
	SenderDID         string  `json:"sender_did,omitempty"`
	SenderDeviceID    string  `json:"sender_device_id,omitempty"`
	RecipientDeviceID string  `json:"recipient_device_id,omitempty"`
	Target            *Target `json:"target,omitempty"`
	OperationID       string  `json:"operation_id,omitempty"`
	MessageID         string  `json:"message_id,omitempty"`
	CreatedAt         string  `json:"created_at,omitempty"`
	TraceID           string  `json:"trace_id,omitempty"` // no longer standard: never decided upon
	ContentType       string  `json:"content_type,omitempty"`
}

// Target is whom an operation is for.
type Target struct {
	Kind string `json:"kind"` // agent, group or service
	DID  string `json:"did"`
}

// Auth is the params' auth object: an origin proof (P1 appendix A).
type Auth struct {
	Scheme      string       `json:"scheme"`
	OriginProof httpsig.Auth `json:"origin_proof"`
}

// metaMembers are the names that meta may have beside those that begin with x_.
var metaMembers = []string{
	"anp_version", "profile", "security_profile", "sender_did", "sender_device_id", "recipient_device_id", "target",
	"operation_id", "message_id", "created_at", "trace_id", "content_type",
}

var limits = canon.Limits{MaxBytes: MaxRequestBytes, MaxDepth: maxDepth}

// ParseRequest reads one request (P1 sections 4 to 6). The error, an *Error, goes into an answer with the returned request's
// id, which is there as soon as it could be read. The request is not nil.
func ParseRequest(raw []byte) (*Request, error) {
	q := &Request{}
	if err := canon.Check(raw, limits); err != nil {
		return q, &Error{Code: ParseError, Reason: kindOf(err), cause: err}
	}
	trimmed := bytes.TrimLeft(raw, " \t\r\n")
	if trimmed[0] == '[' {
		return q, Refuse(BatchNotSupported, "send one request at a time")
	}
	members, err := object(raw)
	if err != nil {
		return q, Refuse(InvalidRequest, "a request is an object")
	}
	if q.ID, q.Notification, err = readID(members); err != nil {
		return q, err
	}
	for name := range members {
		switch name {
		case "jsonrpc", "id", "method", "params":
		default:
			return q, Refuse(InvalidRequest, "unknown member of the request")
		}
	}
	if version, ok := text(members["jsonrpc"]); !ok || version != "2.0" {
		return q, Refuse(InvalidRequest, "jsonrpc is not 2.0")
	}
	var ok bool
	if q.Method, ok = text(members["method"]); !ok || !validMethod(q.Method) {
		return q, Refuse(InvalidRequest, "method is not a method's name")
	}
	return q, q.readParams(members["params"])
}

// readID reads the id: a string that is not empty (P1 section 5.2). Without the member it is a notification.
func readID(members map[string]json.RawMessage) (id string, notification bool, err error) {
	raw, there := members["id"]
	if !there {
		return "", true, nil
	}
	id, ok := text(raw)
	if !ok || id == "" || len(id) > maxName {
		return "", false, Refuse(InvalidRequestID, "an id is a string of 1 to %d bytes", maxName)
	}
	return id, false, nil
}

func (q *Request) readParams(raw json.RawMessage) error {
	params, err := object(raw)
	if err != nil {
		return Refuse(InvalidParamsShape, "params is an object of meta, auth and body")
	}
	for name := range params {
		if name != "meta" && name != "auth" && name != "body" {
			return Refuse(InvalidParamsShape, "params has a member other than meta, auth and body")
		}
	}
	if err := q.readMeta(params["meta"]); err != nil {
		return err
	}
	if _, err := object(params["body"]); err != nil {
		return Refuse(InvalidParamsShape, "body is not an object")
	}
	if q.Body, err = canon.Canonicalize(params["body"], limits); err != nil {
		return Refuse(InvalidParamsShape, "body: %s", kindOf(err))
	}
	auth, there := params["auth"]
	if !there {
		return nil
	}
	q.Auth = &Auth{}
	if err := canon.Unmarshal(auth, q.Auth, limits); err != nil {
		return Refuse(InvalidParamsShape, "auth is not an object of scheme and origin_proof")
	}
	return nil
}

func (q *Request) readMeta(raw json.RawMessage) error {
	members, err := object(raw)
	if err != nil {
		return Refuse(InvalidParamsShape, "meta is not an object")
	}
	for name := range members {
		if !strings.HasPrefix(name, "x_") && !slices.Contains(metaMembers, name) {
			return Refuse(InvalidParamsShape, "unknown member of meta")
		}
	}
	if err := canon.UnmarshalOpen(raw, &q.Meta, limits); err != nil {
		return Refuse(InvalidParamsShape, "meta: %s", kindOf(err))
	}
	q.meta = raw
	m := &q.Meta
	for _, s := range []string{m.ANPVersion, m.Profile, m.SecurityProfile, m.OperationID, m.MessageID, m.TraceID, m.ContentType} {
		if len(s) > maxName {
			return Refuse(InvalidParamsShape, "a member of meta is longer than %d bytes", maxName)
		}
	}
	if m.CreatedAt != "" {
		if _, err := time.Parse(time.RFC3339, m.CreatedAt); err != nil {
			return Refuse(InvalidParamsShape, "created_at is not an RFC 3339 time")
		}
	}
	if _, there := members["sender_did"]; there {
		if _, err := did.Parse(m.SenderDID); err != nil {
			return Refuse(InvalidParamsShape, "sender_did is not a DID")
		}
	}
	if _, there := members["target"]; !there {
		return nil
	}
	if err := checkTarget(members["target"]); err != nil {
		return err
	}
	return nil
}

// checkTarget: target is a closed object of kind and did.
func checkTarget(raw json.RawMessage) error {
	var t Target
	if err := canon.Unmarshal(raw, &t, limits); err != nil {
		return Refuse(InvalidTargetBinding, "target is not an object of kind and did")
	}
	switch t.Kind {
	case "agent", "group", "service":
	default:
		return Refuse(InvalidTargetBinding, "target.kind is none of agent, group, service")
	}
	if _, err := did.Parse(t.DID); err != nil {
		return Refuse(InvalidTargetBinding, "target.did is not a DID")
	}
	return nil
}

// validMethod: lower-case start, sections parted by dots (P1 section 5.5). Names that begin with rpc. are JSON-RPC's.
func validMethod(name string) bool {
	if name == "" || len(name) > maxName || strings.HasPrefix(name, "rpc.") {
		return false
	}
	for section := range strings.SplitSeq(name, ".") {
		if section == "" {
			return false
		}
	}
	for i, c := range []byte(name) {
		lower := 'a' <= c && c <= 'z'
		if !lower && (i == 0 || c != '.' && c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z')) {
			return false
		}
	}
	return true
}

// object reads the members of an object that was strictly checked before.
func object(raw json.RawMessage) (map[string]json.RawMessage, error) {
	if len(raw) == 0 || bytes.TrimLeft(raw, " \t\r\n")[0] != '{' {
		return nil, errors.New("not an object")
	}
	members := map[string]json.RawMessage{}
	return members, json.Unmarshal(raw, &members)
}

// text reads a JSON string, false for anything else.
func text(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	var s string
	return s, json.Unmarshal(raw, &s) == nil
}

// kindOf says what is wrong with JSON in words of ours.
func kindOf(err error) string {
	for kind, words := range map[error]string{
		canon.ErrTooLarge: "too large", canon.ErrTooDeep: "too deep", canon.ErrDuplicateMember: "a member twice",
		canon.ErrCaseVariant: "a member in another case", canon.ErrNumber: "a number that JSON cannot carry exactly", canon.ErrType: "a member of another type",
	} {
		if errors.Is(err, kind) {
			return words
		}
	}
	return "not JSON"
}
