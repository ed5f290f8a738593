// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/resolver/fetch"
)

// Code says why a DID was not resolved. A Code is an error, so that
// errors.Is(err, resolver.CodeRollback) works on what Resolve returns.
type Code string

// The codes. Those of the first group refuse before anything is fetched.
const (
	CodeNotAdmitted Code = "not_admitted" // the trust policy says no
	CodeBudget      Code = "budget"       // too many look-ups of unknown DIDs

	CodeForbiddenURL     Code = "forbidden_url"     // for example a port that is not allowed
	CodeForbiddenAddress Code = "forbidden_address" // the domain leads to an address that is not public
	CodeUnreachable      Code = "unreachable"       // no connection, or a status that says nothing about the document
	CodeTimeout          Code = "timeout"           // the time limit passed
	CodeCertificate      Code = "certificate"       // the server could not prove its name
	CodeRedirect         Code = "redirect"          // to another origin, or without end
	CodeNotFound         Code = "not_found"         // 404 or 410

	CodeBadDocument Code = "bad_document" // too large, compressed, or malformed
	CodeIDMismatch  Code = "id_mismatch"  // the document is of another DID
	CodeBadProof    Code = "bad_proof"    // binding or proof missing or wrong

	CodeRollback         Code = "rollback"          // older than the pin, of its age but different, or from the future
	CodeReactivated      Code = "reactivated"       // was deactivated, now claims not to be
	CodeKeyChanged       Code = "key_changed"       // held until Confirm
	CodeSuccessorChanged Code = "successor_changed" // was deactivated in favour of another; held until Confirm
	CodeDeactivated      Code = "deactivated"       // verified, and no longer in use

	// ANP's messaging profile P1, section 10.3, has these as 1020 and 1021;
	// CodeSuccessorChanged is a 1021 too.
	CodeTransitionInvalid  Code = "transition_invalid"  // from Walk: a step breaks a rule, or there are too many
	CodeTransitionConflict Code = "transition_conflict" // the steps lead in a circle, or away from what a recovery key has signed

	CodeStore    Code = "store"    // the pin store failed
	CodeCanceled Code = "canceled" // the caller's context ended
)

// ErrDeactivated is CodeDeactivated, which callers branch on most.
const ErrDeactivated = CodeDeactivated

func (c Code) Error() string { return "resolver: " + string(c) }

// Error is what Resolve and its siblings return.
type Error struct {
	Code Code
	DID  did.DID
	Err  error // the cause; may be nil

	// Document and Successor are set with CodeDeactivated: the verified document
	// and the DID that it names as the one that follows, which may be zero.
	Document  *did.Document
	Successor did.DID

	// Hash is the version that waits for Confirm, with CodeKeyChanged and
	// CodeSuccessorChanged.
	Hash canon.Digest

	// Conflict is set with CodeSuccessorChanged, and with CodeTransitionConflict
	// where two successors are meant and not a circle.
	Conflict *did.Conflict
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("resolving %s: %s", e.DID, string(e.Code))
	}
	return fmt.Sprintf("resolving %s: %s: %v", e.DID, string(e.Code), e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is compares with a Code.
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == e.Code
}

// Temporary reports whether the same look-up may succeed later without anybody
// changing a document, a policy or a pin.
func (e *Error) Temporary() bool {
	switch e.Code {
	case CodeBudget, CodeUnreachable, CodeTimeout, CodeStore, CodeCanceled:
		return true
	default:
		return false
	}
}

// remembered returns the error for the cache of failures: its cause as a text of
// bounded length, since the original may hold on to a peer's certificates.
func (e *Error) remembered() *Error {
	const most = 512
	c := *e
	if c.Err != nil {
		text := c.Err.Error()
		c.Err = errors.New(text[:min(len(text), most)])
	}
	return &c
}

// fetchCode names what went wrong in fetch.Get.
func fetchCode(err error) Code {
	var (
		status      *fetch.StatusError
		certificate *tls.CertificateVerificationError
		timeout     interface{ Timeout() bool }
	)
	switch {
	case errors.As(err, &status):
		if status.Status == http.StatusNotFound || status.Status == http.StatusGone {
			return CodeNotFound
		}
		return CodeUnreachable
	case errors.Is(err, fetch.ErrForbiddenURL):
		return CodeForbiddenURL
	case errors.Is(err, fetch.ErrForbiddenAddress):
		return CodeForbiddenAddress
	case errors.Is(err, fetch.ErrRedirect):
		return CodeRedirect
	case errors.Is(err, fetch.ErrTooLarge), errors.Is(err, fetch.ErrEncoding):
		return CodeBadDocument
	case errors.As(err, &certificate):
		return CodeCertificate
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return CodeTimeout
	default:
		return CodeUnreachable
	}
}
