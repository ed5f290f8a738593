// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"errors"
	"strings"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/wellknown"
)

// A refusal travels as an A2A error of the nearest kind. One of its details is a google.protobuf.Struct
//
//	{"reason": <code>, "domain": <extension URI>, "text": <reason>, "retryable": "true" | "false"}
//
// and the ErrorInfo that A2A asks for carries the code in its metadata as treatyReason. (The library writes the reason and
// domain of ErrorInfo itself, and clients built on it drop one of another domain.)
const (
	detailReason    = "reason"
	detailDomain    = "domain"
	detailText      = "text"
	detailRetryable = "retryable"
	metaReason      = "treatyReason"
)

// maxRefusalText bounds what is kept of a peer's words.
const maxRefusalText = 512

func refusalToPeer(r *envelope.Refusal) *sdk.Error {
	kind := sdk.ErrInvalidRequest
	switch r.Code {
	case envelope.CodeInternal, envelope.CodeUnavailable:
		kind = sdk.ErrInternalError
	case envelope.CodeNotTrusted, envelope.CodeWrongSender:
		kind = sdk.ErrUnauthorized
	case envelope.CodeConversationEnded:
		kind = sdk.ErrUnsupportedOperation
	}
	retryable := "false"
	if r.Code.Retryable() {
		retryable = "true"
	}
	return sdk.NewError(kind, r.Error()).
		WithErrorInfoMeta(map[string]string{metaReason: string(r.Code)}).
		WithDetails(map[string]any{
			detailReason: string(r.Code), detailDomain: wellknown.ExtensionURI,
			detailText: r.Reason, detailRetryable: retryable,
		})
}

// refusalFrom reads a peer's refusal back; nil when the error is none. A code that is not in our table is kept: it is for the
// log, and never retryable.
func refusalFrom(err error) *envelope.Refusal {
	var e *sdk.Error
	if !errors.As(err, &e) || e.Details[detailDomain] != wellknown.ExtensionURI {
		return nil
	}
	code, _ := e.Details[detailReason].(string)
	if code == "" || len(code) > 32 || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != "" {
		return nil
	}
	text, _ := e.Details[detailText].(string)
	return &envelope.Refusal{Code: envelope.Code(code), Reason: clean(text)}
}

// clean makes a peer's words fit for a log line: bounded, valid UTF-8, no control characters.
func clean(s string) string {
	if len(s) > maxRefusalText {
		s = s[:maxRefusalText]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}
