// SPDX-License-Identifier: Apache-2.0

// Package anp is the gateway for ANP's own JSON-RPC: the Core Binding (ANP Messaging P1, profile anp.core.binding.v1) at
// the DID document's ANPMessageService, with anp.get_capabilities. Other methods are added by [Config].
//
// Guarantees
//
//   - A request is one strict JSON object with a string id and params of exactly meta, auth and body; batches, unknown members
//     of meta (but x_…), of auth and of params, and device selectors are refused, before anybody is looked up.
//   - A sender counts as known only by an origin proof (P1 appendix A): by an authentication key of meta.sender_did, over this
//     method, meta and body, for this target, in its time window and not seen before. A proof that is there must hold, also
//     where none is asked for. The profile, the security profile and the target must be the method's before a proof is checked.
//   - One operation of one sender (sender, target, method, operation_id) is done once: a repetition gets the same answer, another
//     request under the same id is a conflict. The exact repetition, proof and all, is recognised before the replay check.
//   - Errors carry P1's codes. Nothing of an internal error is told.
//
// What it does not do: it keeps answers in memory, so that a repetition after a restart is a new operation (its old proof is
// refused by the verifier then). Methods that change state must be idempotent in their own store as well. It does not
// authenticate the hop: that is the middleware's in front of it.
package anp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/httpsig"
)

// Path is where the endpoint stands.
const Path = "/anp"

// Profiles.
const (
	CoreProfile        = "anp.core.binding.v1"
	DiscoveryProfile   = "anp.identity.discovery.v1"
	TransportProtected = "transport-protected"
)

// TargetMode says how a method's target is named (P1 section 6.2.5.1).
type TargetMode int

// Target modes. The zero value demands a target of kind service.
const (
	ServiceScoped  TargetMode = iota // target.kind service, target.did this service's
	AgentAddressed                   // target.kind agent, target.did one of Config.Agents
	EndpointLocal                    // no target; one of the above is accepted
)

// Call is a request that may be answered.
type Call struct {
	Method string
	Meta   Meta
	Body   json.RawMessage
	Sender *httpsig.Caller // verified by an origin proof, nil for an anonymous call
}

// Method is something this service does.
type Method struct {
	Name    string
	Profile string
	Target  TargetMode
	// Anonymous methods may be called without a proof. The others demand one, and an operation_id.
	Anonymous bool
	// Handle answers. Errors are *Error; anything else is told as an internal error.
	Handle func(ctx context.Context, c Call) (any, error)
}

// Verifier checks origin proofs; [httpsig.Verifier] does.
type Verifier interface {
	VerifyOrigin(ctx context.Context, q httpsig.OriginRequest, proof httpsig.Auth) (httpsig.Caller, error)
	// Challenge is a nonce that a proof may be made with where the caller's own is not accepted.
	Challenge() string
}

// Config of a handler. Service and Verifier are needed.
type Config struct {
	Service did.DID // the serviceDid of the ANPMessageService
	// Agents says which agents can be addressed here, and in whose place another is now: a superseded DID is answered with its
	// current one. Either may change while the node runs.
	Agents   func(did.DID) (current did.DID, ok bool)
	Verifier Verifier
	// Speaks is what anp.get_capabilities tells beside the standard members, as its member x_treaty.
	Speaks  func() any
	Methods []Method
	Now     func() time.Time // nil: time.Now
	Logger  *slog.Logger     // nil: none
}

type handler struct {
	cfg     Config
	methods map[string]Method
	ops     *operations
}

// Handler answers POST requests of one JSON-RPC request each.
func Handler(c Config) (http.Handler, error) {
	if c.Service.IsZero() || c.Verifier == nil {
		return nil, errors.New("anp: Service and Verifier are required")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	h := &handler{cfg: c, methods: map[string]Method{}, ops: newOperations(c.Now)}
	for _, m := range append([]Method{h.capabilities()}, c.Methods...) {
		if _, taken := h.methods[m.Name]; taken || !validMethod(m.Name) || m.Profile == "" || m.Handle == nil {
			return nil, errors.New("anp: method " + m.Name + " is incomplete or there twice")
		}
		h.methods[m.Name] = m
	}
	return h, nil
}

// response is a JSON-RPC response: exactly one of result and error.
type response struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      *string         `json:"id"` // null when the request's could not be read
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

// ServeHTTP answers 200 with a JSON-RPC response for whatever was posted as JSON, and 204 for notifications.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		http.Error(w, "Unsupported Media Type", http.StatusUnsupportedMediaType)
		return
	}
	raw, err := io.ReadAll(io.LimitReader(r.Body, MaxRequestBytes+1))
	if err != nil {
		http.Error(w, "Bad Request", http.StatusBadRequest)
		return
	}
	q, err := ParseRequest(raw)
	var out outcome
	switch {
	case q.Notification && q.Method != "":
		w.WriteHeader(http.StatusNoContent) // no method here is a notification's, and none is answered
		return
	case err != nil:
		out.err = asError(err)
	default:
		out = h.answer(r.Context(), q)
	}
	resp := response{JSONRPC: "2.0", Result: out.result}
	if q.ID != "" {
		resp.ID = &q.ID
	}
	if out.err != nil {
		h.log(r, q, out.err)
		resp.Result, resp.Error = nil, out.err.wire()
	}
	body, err := canon.Marshal(resp)
	if err != nil {
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // the caller's loss
}

func (h *handler) log(r *http.Request, q *Request, e *Error) {
	level := slog.LevelInfo
	if e.Code == InternalError {
		level = slog.LevelError
	}
	h.cfg.Logger.Log(r.Context(), level, "anp request refused", "method", q.Method, "sender", q.Meta.SenderDID, "code", int(e.Code), "err", e)
}

// answer decides in the order: is there such a method, is it spoken to in the right way, who is it, was it done before.
func (h *handler) answer(ctx context.Context, q *Request) outcome {
	m, ok := h.methods[q.Method]
	if !ok {
		return outcome{err: &Error{Code: MethodNotFound}}
	}
	if err := h.admissible(m, q); err != nil {
		return outcome{err: err}
	}
	call := Call{Method: q.Method, Meta: q.Meta, Body: q.Body}
	if q.Auth == nil {
		if !m.Anonymous {
			return outcome{err: Refuse(Unauthorized, "an origin proof is required")}
		}
		return h.handle(ctx, m, call) // whatever sender_did says
	}
	return h.once(ctx, m, call, q)
}

// once does an operation whose sender has proved itself once, and answers repetitions with what came of it.
func (h *handler) once(ctx context.Context, m Method, call Call, q *Request) outcome {
	if q.Auth.Scheme != httpsig.OriginScheme {
		return outcome{err: Refuse(Unauthorized, "the auth scheme is not %s", httpsig.OriginScheme)}
	}
	if q.Meta.SenderDID == "" || q.Meta.Target == nil {
		return outcome{err: Refuse(InvalidParamsShape, "an origin proof needs meta.sender_did and meta.target")}
	}
	scope := Scope{Sender: q.Meta.SenderDID, Target: q.Meta.Target.Kind + " " + q.Meta.Target.DID, Method: q.Method, OperationID: q.Meta.OperationID}
	meaning, exact, err := q.digests()
	if err != nil {
		return outcome{err: asError(err)}
	}
	if op := h.ops.find(scope); q.Meta.OperationID != "" && op != nil && op.proof.Equal(exact) {
		return op.wait(ctx) // the very request that was verified before
	}
	caller, err := h.cfg.Verifier.VerifyOrigin(ctx, httpsig.OriginRequest{Method: q.Method, Meta: q.meta, Body: q.Body}, q.Auth.OriginProof)
	if err != nil {
		e := asError(err)
		if errors.Is(err, httpsig.InvalidNonce) {
			e.Details["nonce"] = h.cfg.Verifier.Challenge() // for a new proof
		}
		return outcome{err: e}
	}
	if caller.DID.String() != q.Meta.SenderDID {
		return outcome{err: Refuse(Unauthorized, "the proof is not by sender_did")}
	}
	call.Sender = &caller
	if q.Meta.OperationID == "" { // an anonymous method, called by somebody who proved who it is
		return h.handle(ctx, m, call)
	}
	op, first, refusal := h.ops.begin(scope, meaning, exact)
	switch {
	case refusal != nil:
		return outcome{err: refusal}
	case first:
		var out outcome
		defer func() {
			if out.result == nil && out.err == nil { // a panic: let those who wait go
				out.err = &Error{Code: InternalError}
			}
			h.ops.end(op, out)
		}()
		out = h.handle(ctx, m, call)
		return out
	case !op.meaning.Equal(meaning):
		return outcome{err: Refuse(IdempotencyConflict, "this operation_id stands for another request")}
	}
	return op.wait(ctx)
}

func (h *handler) handle(ctx context.Context, m Method, c Call) outcome {
	v, err := m.Handle(ctx, c)
	if err != nil {
		return outcome{err: asError(err)}
	}
	result, err := canon.Marshal(v)
	if err != nil {
		return outcome{err: asError(err)}
	}
	return outcome{result: result}
}

// admissible checks everything about a request that needs no look-up.
func (h *handler) admissible(m Method, q *Request) *Error {
	meta := &q.Meta
	switch {
	case meta.Profile == "":
		return Refuse(InvalidParamsShape, "meta.profile is required")
	case meta.Profile != m.Profile:
		return Refuse(UnsupportedProfile, "%s is a method of %s", m.Name, m.Profile)
	case meta.SecurityProfile == "":
		return Refuse(InvalidParamsShape, "meta.security_profile is required")
	case meta.SecurityProfile != TransportProtected:
		return Refuse(UnsupportedSecurityProfile, "only %s is spoken here", TransportProtected)
	case meta.SenderDeviceID != "" || meta.RecipientDeviceID != "":
		return Refuse(InvalidParamsShape, "device selectors have no meaning in %s", m.Profile)
	case meta.ContentType != "" && meta.ContentType != "application/json":
		return Refuse(UnsupportedContentType, "only application/json is spoken here")
	case !m.Anonymous && meta.SenderDID == "":
		return Refuse(InvalidParamsShape, "meta.sender_did is required")
	case !m.Anonymous && meta.OperationID == "":
		return Refuse(InvalidParamsShape, "meta.operation_id is required")
	}
	return h.addressed(m, meta.Target)
}

// addressed checks that the target is the method's kind of target, and here.
func (h *handler) addressed(m Method, t *Target) *Error {
	if t == nil {
		if m.Target == EndpointLocal {
			return nil
		}
		return Refuse(InvalidTargetBinding, "meta.target is required")
	}
	switch {
	case t.Kind == "service" && m.Target != AgentAddressed:
		if t.DID == h.cfg.Service.String() {
			return nil
		}
	case t.Kind == "agent" && m.Target != ServiceScoped:
		asked, err := did.Parse(t.DID)
		if err != nil || h.cfg.Agents == nil {
			break
		}
		switch current, ok := h.cfg.Agents(asked); {
		case ok && current == asked:
			return nil
		case ok:
			e := Refuse(DIDSuperseded, "the agent has another DID now")
			e.Details = map[string]string{"requested_did": asked.String(), "current_did": current.String()}
			return e
		}
	default:
		return Refuse(InvalidTargetBinding, "the method is not for a target of this kind")
	}
	return Refuse(TargetNotFound, "")
}

// digests of what decides what the operation does, and of the whole request with its proof. The first leaves out what a
// retry may change: when it was made, how it is traced, and the proof.
func (q *Request) digests() (meaning, exact canon.Digest, err error) {
	meta := q.Meta
	meta.CreatedAt, meta.TraceID, meta.ANPVersion = "", "", ""
	decided, err := canon.Marshal(struct {
		Meta Meta            `json:"meta"`
		Body json.RawMessage `json:"body"`
	}{meta, q.Body})
	if err != nil {
		return meaning, exact, err
	}
	whole, err := canon.Marshal(struct {
		Meta json.RawMessage `json:"meta"`
		Body json.RawMessage `json:"body"`
		Auth *Auth           `json:"auth"`
	}{q.meta, q.Body, q.Auth})
	if err != nil {
		return meaning, exact, err
	}
	return canon.Hash("treaty anp operation v1", decided), canon.Hash("treaty anp request v1", whole), nil
}

// Capabilities is the result of anp.get_capabilities (P1 section 8.2.2).
type Capabilities struct {
	ServiceDID       string            `json:"service_did"`
	Profiles         []string          `json:"supported_profiles"`
	SecurityProfiles []string          `json:"supported_security_profiles"`
	Limits           map[string]string `json:"limits"`
	ContentTypes     []string          `json:"supported_content_types"`
	Methods          []string          `json:"supported_methods"`
	Treaty           any               `json:"x_treaty,omitempty"`
}

// capabilities is anp.get_capabilities: anonymous, endpoint-local, with an empty body.
func (h *handler) capabilities() Method {
	profiles, methods := []string{CoreProfile, DiscoveryProfile}, []string{"anp.get_capabilities"}
	known := map[string]bool{CoreProfile: true, DiscoveryProfile: true}
	for _, m := range h.cfg.Methods {
		methods = append(methods, m.Name)
		if !known[m.Profile] {
			known[m.Profile] = true
			profiles = append(profiles, m.Profile)
		}
	}
	answer := Capabilities{
		ServiceDID: h.cfg.Service.String(), Profiles: profiles, SecurityProfiles: []string{TransportProtected},
		Limits:       map[string]string{"max_request_bytes": strconv.Itoa(MaxRequestBytes)},
		ContentTypes: []string{"application/json"}, Methods: methods,
	}
	return Method{
		Name: "anp.get_capabilities", Profile: CoreProfile, Target: EndpointLocal, Anonymous: true,
		Handle: func(_ context.Context, c Call) (any, error) {
			if string(c.Body) != "{}" {
				return nil, Refuse(InvalidParamsShape, "anp.get_capabilities takes an empty body")
			}
			answer := answer
			if h.cfg.Speaks != nil {
				answer.Treaty = h.cfg.Speaks()
			}
			return answer, nil
		},
	}
}
