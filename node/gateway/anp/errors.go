// SPDX-License-Identifier: Apache-2.0

package anp

import (
	"errors"
	"fmt"

	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/did/resolver"
)

// Code is a number in a JSON-RPC error: JSON-RPC's own below zero, ANP's from 1000 (P1 section 10.3).
type Code int

// JSON-RPC's own errors (P1 section 10.1).
const (
	ParseError     Code = -32700
	InvalidRequest Code = -32600
	MethodNotFound Code = -32601
	InvalidParams  Code = -32602
	InternalError  Code = -32603
)

// ANP's errors (P1 section 10.3). 1015 to 1018 belong to overlays that address devices, 1019 to 1021 to DID transitions.
const (
	InvalidRequestID           Code = 1000
	UnsupportedProfile         Code = 1001
	UnsupportedSecurityProfile Code = 1002
	InvalidParamsShape         Code = 1003
	BatchNotSupported          Code = 1004
	Unauthorized               Code = 1005
	Forbidden                  Code = 1006
	TargetNotFound             Code = 1007
	IdempotencyConflict        Code = 1008
	UnsupportedContentType     Code = 1009
	DeliveryRejected           Code = 1010
	RateLimited                Code = 1011
	TemporarilyUnavailable     Code = 1012
	InvalidSecurityBinding     Code = 1013
	InvalidTargetBinding       Code = 1014
	DeviceBindingRequired      Code = 1015
	DeviceBindingInvalid       Code = 1016
	DeviceNotEligible          Code = 1017
	DeviceStateChanged         Code = 1018
	DIDSuperseded              Code = 1019
	DIDTransitionInvalid       Code = 1020
	DIDTransitionConflict      Code = 1021
)

// Errors of anp.negotiate (ANP-06 section 11).
const (
	NegotiationRejected         Code = 1600
	NoMatchingInterface         Code = 1601
	UnsupportedNegotiationMode  Code = 1602
	UnsupportedCandidateProfile Code = 1603
	UnsupportedCandidateSecPro  Code = 1604 // security profile
	UnsupportedCandidateContent Code = 1605 // content type
	MoreInformationRequired     Code = 1606
	AuthorizationRequired       Code = 1607
	NegotiationExpired          Code = 1608
)

// codes holds every code: its name on the wire, its message, and whether the very same request may succeed later.
var codes = map[Code]struct {
	name      string
	message   string
	retryable bool
}{
	ParseError:                 {"", "Parse error", false},
	InvalidRequest:             {"", "Invalid Request", false},
	MethodNotFound:             {"", "Method not found", false},
	InvalidParams:              {"", "Invalid params", false},
	InternalError:              {"", "Internal error", true},
	InvalidRequestID:           {"anp.invalid_request_id", "Invalid request id", false},
	UnsupportedProfile:         {"anp.unsupported_profile", "Unsupported profile", false},
	UnsupportedSecurityProfile: {"anp.unsupported_security_profile", "Unsupported security profile", false},
	InvalidParamsShape:         {"anp.invalid_params_shape", "Invalid params shape", false},
	BatchNotSupported:          {"anp.batch_not_supported", "Batch not supported", false},
	Unauthorized:               {"anp.unauthorized", "Unauthorized", false},
	Forbidden:                  {"anp.forbidden", "Forbidden", false},
	TargetNotFound:             {"anp.target_not_found", "Target not found", false},
	IdempotencyConflict:        {"anp.idempotency_conflict", "Idempotency conflict", false},
	UnsupportedContentType:     {"anp.unsupported_content_type", "Unsupported content type", false},
	DeliveryRejected:           {"anp.delivery_rejected", "Delivery rejected", false},
	RateLimited:                {"anp.rate_limited", "Rate limited", true},
	TemporarilyUnavailable:     {"anp.temporarily_unavailable", "Temporarily unavailable", true},
	InvalidSecurityBinding:     {"anp.invalid_security_binding", "Invalid security binding", false},
	InvalidTargetBinding:       {"anp.invalid_target_binding", "Invalid target binding", false},
	DeviceBindingRequired:      {"anp.device_binding_required", "Device binding required", false},
	DeviceBindingInvalid:       {"anp.device_binding_invalid", "Device binding invalid", false},
	DeviceNotEligible:          {"anp.device_not_eligible", "Device not eligible", false},
	DeviceStateChanged:         {"anp.device_state_changed", "Device state changed", false},
	DIDSuperseded:              {"anp.did_superseded", "DID superseded", false},
	DIDTransitionInvalid:       {"anp.did_transition_invalid", "DID transition invalid", false},
	DIDTransitionConflict:      {"anp.did_transition_conflict", "DID transition conflict", false},

	NegotiationRejected:         {"meta.negotiation_rejected", "Negotiation rejected", false},
	NoMatchingInterface:         {"meta.no_matching_interface", "No matching interface", false},
	UnsupportedNegotiationMode:  {"meta.unsupported_negotiation_mode", "Unsupported negotiation mode", false},
	UnsupportedCandidateProfile: {"meta.unsupported_candidate_profile", "Unsupported candidate profile", false},
	UnsupportedCandidateSecPro:  {"meta.unsupported_security_profile", "Unsupported security profile", false},
	UnsupportedCandidateContent: {"meta.unsupported_content_type", "Unsupported content type", false},
	MoreInformationRequired:     {"meta.more_information_required", "More information required", false},
	AuthorizationRequired:       {"meta.authorization_required", "Authorization required", false},
	NegotiationExpired:          {"meta.negotiation_expired", "Negotiation expired", false},
}

// Name is the anp_code, "" for JSON-RPC's own codes.
func (c Code) Name() string { return codes[c].name }

// Retryable says whether the same request may succeed later.
func (c Code) Retryable() bool { return codes[c].retryable }

// Error is a refused request. Reason and Details go to the caller: they hold nothing that is ours alone to know.
type Error struct {
	Code    Code
	Reason  string
	Details map[string]string
	cause   error
}

func (e *Error) Error() string {
	text := fmt.Sprintf("anp: %d %s", int(e.Code), codes[e.Code].message)
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	if e.cause != nil {
		text += fmt.Sprintf(" (%v)", e.cause)
	}
	return text
}

// Unwrap is the cause, which is for the operator.
func (e *Error) Unwrap() error { return e.cause }

// Refuse makes an Error.
func Refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Reason: fmt.Sprintf(format, args...)}
}

// rpcError is an Error on the wire (P1 section 10.2).
type rpcError struct {
	Code    Code      `json:"code"`
	Message string    `json:"message"`
	Data    errorData `json:"data"`
}

type errorData struct {
	Name      string            `json:"anp_code,omitempty"`
	Retryable bool              `json:"retryable"`
	Details   map[string]string `json:"details,omitempty"`
}

func (e *Error) wire() *rpcError {
	def := codes[e.Code]
	out := &rpcError{Code: e.Code, Message: def.message, Data: errorData{Name: def.name, Retryable: def.retryable, Details: map[string]string{}}}
	if e.Reason != "" {
		out.Data.Details["reason"] = e.Reason
	}
	for k, v := range e.Details {
		out.Data.Details[k] = v
	}
	return out
}

// asError classes what a method or a verification returned. What is not an *Error is internal and not told.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	var sig *httpsig.Error
	if errors.As(err, &sig) {
		out := &Error{Code: Unauthorized, Reason: sig.Description, Details: map[string]string{"code": string(sig.Code)}, cause: err}
		switch {
		case errors.Is(err, resolver.CodeSuccessorChanged), errors.Is(err, resolver.CodeTransitionConflict):
			out.Code = DIDTransitionConflict
			return out
		case errors.Is(err, resolver.CodeTransitionInvalid), errors.Is(err, resolver.CodeReactivated):
			out.Code = DIDTransitionInvalid
			return out
		}
		switch sig.Code {
		case httpsig.ForbiddenDID:
			out.Code = Forbidden
		case httpsig.DIDSuperseded:
			out.Code = DIDSuperseded
			out.Details = map[string]string{"requested_did": sig.Requested.String(), "current_did": sig.Current.String()}
		case httpsig.Unavailable:
			if out.Code = TemporarilyUnavailable; errors.Is(err, httpsig.ErrNonceQuota) {
				out.Code = RateLimited
			}
		}
		return out
	}
	return &Error{Code: InternalError, cause: err}
}
