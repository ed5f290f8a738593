// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/errordetails"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/wellknown"
)

// public is an error whose text was written for the peer.
type public struct{ err *sdk.Error }

func (p *public) Error() string { return p.err.Error() }
func (p *public) Unwrap() error { return p.err }

func refuse(kind error, text string) error { return &public{sdk.NewError(kind, text)} }

var (
	errNotOneEnvelope = refuse(sdk.ErrInvalidParams, "a negotiation message is exactly one raw part of type "+wellknown.EnvelopeMediaType)
	errNoCaller       = refuse(sdk.ErrUnauthenticated, "sign the request with an authentication key of your DID (RFC 9421)")
	errNoExtension    = refuse(sdk.ErrExtensionSupportRequired, "declare "+wellknown.ExtensionURI+" in A2A-Extensions and in message.extensions")
	errNotCancelable  = refuse(sdk.ErrTaskNotCancelable, "a negotiation ends by an envelope: send withdraw")
	errEnvelopesOnly  = refuse(sdk.ErrInvalidParams, "this task is a negotiation and is moved by envelopes only")
	errTerminal       = refuse(sdk.ErrUnsupportedOperation, "the task is in a final state")
	errVersion        = refuse(sdk.ErrVersionNotSupported, "this interface speaks A2A 1.0: send A2A-Version: 1.0")
	errContentType    = refuse(sdk.ErrUnsupportedContentType, "the request body must be application/json in UTF-8")
	errMethod         = refuse(sdk.ErrMethodNotFound, "no such operation")
)

// wire is how A2A's errors look on the two bindings (A2A section 5.4 and 9.5).
var wire = []struct {
	err    error
	rpc    int
	status int
	grpc   string
}{
	{sdk.ErrParseError, -32700, http.StatusBadRequest, "INVALID_ARGUMENT"},
	{sdk.ErrInvalidRequest, -32600, http.StatusBadRequest, "INVALID_ARGUMENT"},
	{sdk.ErrMethodNotFound, -32601, http.StatusNotFound, "NOT_FOUND"},
	{sdk.ErrInvalidParams, -32602, http.StatusBadRequest, "INVALID_ARGUMENT"},
	{sdk.ErrTaskNotFound, -32001, http.StatusNotFound, "NOT_FOUND"},
	{sdk.ErrTaskNotCancelable, -32002, http.StatusBadRequest, "FAILED_PRECONDITION"},
	{sdk.ErrPushNotificationNotSupported, -32003, http.StatusBadRequest, "FAILED_PRECONDITION"},
	{sdk.ErrUnsupportedOperation, -32004, http.StatusBadRequest, "FAILED_PRECONDITION"},
	{sdk.ErrUnsupportedContentType, -32005, http.StatusBadRequest, "INVALID_ARGUMENT"},
	{sdk.ErrExtendedCardNotConfigured, -32007, http.StatusBadRequest, "FAILED_PRECONDITION"},
	{sdk.ErrExtensionSupportRequired, -32008, http.StatusBadRequest, "FAILED_PRECONDITION"},
	{sdk.ErrVersionNotSupported, -32009, http.StatusBadRequest, "FAILED_PRECONDITION"},
	{sdk.ErrUnauthenticated, -31401, http.StatusUnauthorized, "UNAUTHENTICATED"},
	{sdk.ErrUnauthorized, -31403, http.StatusForbidden, "PERMISSION_DENIED"},
	{sdk.ErrInternalError, -32603, http.StatusInternalServerError, "INTERNAL"},
}

// toPeer turns any error into one that may leave: refusals with their code, errors written for the peer as they are, A2A's
// own by their name, everything else as an internal error whose text is logged here.
func (g *gateway) toPeer(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var refusal *envelope.Refusal
	if errors.As(err, &refusal) {
		return refusalToPeer(refusal)
	}
	var p *public
	if errors.As(err, &p) {
		return p.err
	}
	if errors.Is(err, ErrNotFound) {
		return sdk.NewError(sdk.ErrTaskNotFound, sdk.ErrTaskNotFound.Error())
	}
	for _, w := range wire {
		if errors.Is(err, w.err) && w.err != sdk.ErrInternalError {
			return sdk.NewError(w.err, w.err.Error())
		}
	}
	g.cfg.Logger.ErrorContext(ctx, "a2a request failed", "error", err)
	return sdk.NewError(sdk.ErrInternalError, sdk.ErrInternalError.Error())
}

// writeError answers a request that the library never saw.
func writeError(w http.ResponseWriter, binding string, id []byte, status int, err error) {
	kind, rpc, httpStatus, grpc := sdk.ErrInternalError, -32603, http.StatusInternalServerError, "INTERNAL"
	text := sdk.ErrInternalError.Error()
	for _, row := range wire {
		if errors.Is(err, row.err) {
			kind, rpc, httpStatus, grpc, text = row.err, row.rpc, row.status, row.grpc, row.err.Error()
			break
		}
	}
	var p *public
	if errors.As(err, &p) {
		text = p.Error()
	}
	details := []*errordetails.Typed{errordetails.NewErrorInfo(sdk.ErrorReason(kind), sdk.ProtocolDomain, nil)}
	var body any
	if binding == wellknown.BindingJSONRPC {
		if id == nil {
			id = []byte("null")
		}
		httpStatus = http.StatusOK
		body = map[string]any{
			"jsonrpc": "2.0", "id": json.RawMessage(id),
			"error": map[string]any{"code": rpc, "message": text, "data": details},
		}
	} else {
		if status != 0 {
			httpStatus = status
		}
		body = map[string]any{"error": map[string]any{"code": httpStatus, "status": grpc, "message": text, "details": details}}
	}
	if status != 0 {
		httpStatus = status
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(httpStatus)
	_ = json.NewEncoder(w).Encode(body)
}

// jsonError says what is wrong with a body in A2A's words.
func jsonError(err error) (status int, refusal error) {
	switch {
	case errors.Is(err, canon.ErrTooLarge):
		return http.StatusRequestEntityTooLarge, refuse(sdk.ErrInvalidRequest, "the request is too large")
	case errors.Is(err, canon.ErrDuplicateMember):
		return 0, refuse(sdk.ErrInvalidRequest, "the request has a member twice")
	case errors.Is(err, canon.ErrCaseVariant):
		return 0, refuse(sdk.ErrInvalidRequest, "the request has a member that differs from one of A2A only by case")
	case errors.Is(err, canon.ErrTooDeep):
		return 0, refuse(sdk.ErrInvalidRequest, "the request is nested too deeply")
	case errors.Is(err, canon.ErrNumber):
		return 0, refuse(sdk.ErrInvalidRequest, "the request has a number that cannot be carried exactly")
	case errors.Is(err, canon.ErrType):
		return 0, refuse(sdk.ErrInvalidRequest, "the request must be one JSON object")
	}
	return 0, refuse(sdk.ErrParseError, "the request is not valid JSON")
}
