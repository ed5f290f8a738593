// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"fmt"
	"net/http"

	"github.com/treaty-node/treaty/did"
)

// Code is the public error code of a refused request. It is itself an error, so
// that errors.Is(err, [InvalidNonce]) holds for an *Error of that code.
type Code string

// Error codes of ANP-02 section 3.2.4.1. DIDSuperseded is ANP-03's; Unavailable
// is ours, for a service that can record no further nonce.
const (
	InvalidRequest            Code = "invalid_request"
	InvalidNonce              Code = "invalid_nonce"
	InvalidTimestamp          Code = "invalid_timestamp"
	InvalidDID                Code = "invalid_did"
	InvalidSignature          Code = "invalid_signature"
	InvalidVerificationMethod Code = "invalid_verification_method"
	InvalidContentDigest      Code = "invalid_content_digest"
	InvalidAccessToken        Code = "invalid_access_token"
	ForbiddenDID              Code = "forbidden_did"
	DIDSuperseded             Code = "did_superseded"
	Unavailable               Code = "temporarily_unavailable"
)

// codes holds every code, its HTTP status and the description used where the
// place that refuses has nothing better to say.
var codes = map[Code]struct {
	status int
	text   string
}{
	InvalidRequest:            {http.StatusUnauthorized, "The request carries no valid signature fields."},
	InvalidNonce:              {http.StatusUnauthorized, "The nonce is missing, was used before, or is not one of this service. Sign again with a new one."},
	InvalidTimestamp:          {http.StatusUnauthorized, "The signature is outside its time window."},
	InvalidDID:                {http.StatusUnauthorized, "The DID is malformed or its document cannot be verified."},
	InvalidSignature:          {http.StatusUnauthorized, "Signature verification failed."},
	InvalidVerificationMethod: {http.StatusUnauthorized, "The key is not an authentication key of the DID document."},
	InvalidContentDigest:      {http.StatusUnauthorized, "Content-Digest does not match the content."},
	InvalidAccessToken:        {http.StatusUnauthorized, "Access tokens are not accepted here."},
	ForbiddenDID:              {http.StatusForbidden, "The DID may not use this service."},
	DIDSuperseded:             {http.StatusConflict, "The DID has a successor."},
	Unavailable:               {http.StatusServiceUnavailable, "The request cannot be accepted now. Try again later."},
}

// Error implements the error interface.
func (c Code) Error() string { return string(c) }

// Error is a refused request. Its exported fields are public: they are what the
// caller is told. The cause, if any, is for the operator (see Unwrap).
type Error struct {
	Code        Code
	Status      int    // HTTP status
	Description string // fixed text, never a peer's words

	// Of a superseded DID (ANP-03): the DID the caller used, and its successor
	// as the old document names it.
	Requested, Current did.DID

	cause error
}

func (e *Error) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("httpsig: %s: %s (%v)", e.Code, e.Description, e.cause)
	}
	return fmt.Sprintf("httpsig: %s: %s", e.Code, e.Description)
}

// Unwrap returns the cause. It is not meant for the caller: it may name
// addresses and internals.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is the error's code.
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == e.Code
}

// refuse makes an Error. An empty text means the code's own.
func refuse(code Code, text string, cause error) *Error {
	def := codes[code]
	if text == "" {
		text = def.text
	}
	return &Error{Code: code, Status: def.status, Description: text, cause: cause}
}
