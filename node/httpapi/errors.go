// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/treaty-node/treaty/did"
)

// Kind classes an error of the admin interface. The command line turns it into an exit code, the admin listener into a
// status; both tables stand in this file and nowhere else.
type Kind string

// Kinds of errors.
const (
	KindInternal     Kind = "internal"     // something that should not happen
	KindUsage        Kind = "usage"        // the request or the configuration is wrong
	KindRefused      Kind = "refused"      // a decision: by policy here, or by the counterparty
	KindNotFound     Kind = "not_found"    // no such negotiation, contract, dataset
	KindUnreachable  Kind = "unreachable"  // a transport fault: nobody decided anything
	KindVerification Kind = "verification" // a document, signature, proof or chain does not hold
)

// CodeSigner: the node's own signer does not answer.
const CodeSigner = "SIGNER_UNAVAILABLE"

// Error is what the admin interface answers when it does not do what was asked.
type Error struct {
	Kind    Kind   `json:"kind"`
	Code    string `json:"code,omitempty"` // machine-readable, e.g. SCOPE_DENIED
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // what to do next
}

func (e *Error) Error() string {
	s := e.Message
	if e.Code != "" {
		s = e.Code + ": " + s
	}
	if e.Hint != "" {
		s += "\n  " + e.Hint
	}
	return s
}

// Status is the one switch from kinds to HTTP statuses.
func (k Kind) Status() int {
	switch k {
	case KindUsage:
		return http.StatusBadRequest
	case KindRefused:
		return http.StatusForbidden
	case KindNotFound:
		return http.StatusNotFound
	case KindUnreachable:
		return http.StatusBadGateway
	case KindVerification:
		return http.StatusUnprocessableEntity
	case KindInternal:
	}
	return http.StatusInternalServerError
}

// ExitCode is what the command line exits with (documented in docs/cli.md).
func (k Kind) ExitCode() int {
	switch k {
	case KindUsage:
		return 2
	case KindRefused:
		return 3
	case KindNotFound:
		return 4
	case KindUnreachable:
		return 5
	case KindVerification:
		return 6
	case KindInternal:
	}
	return 1
}

// WriteJSON writes v with the status.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the caller went away
}

// WriteError writes err; anything that is not an *Error becomes an internal one.
func WriteError(w http.ResponseWriter, err error) {
	e := AsError(err)
	WriteJSON(w, e.Kind.Status(), e)
}

// AsError returns the *Error in err's chain, or wraps err as internal.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, did.ErrSignerUnavailable) {
		return &Error{Kind: KindUnreachable, Code: CodeSigner, Message: err.Error(), Hint: "nothing was signed; start treaty-signer (or unlock its token) and try again"}
	}
	return &Error{Kind: KindInternal, Message: err.Error()}
}
