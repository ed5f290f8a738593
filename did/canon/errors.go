// SPDX-License-Identifier: Apache-2.0

package canon

import (
	"errors"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The kinds of refusal. Every error of this package that concerns its input is an [*Error] whose Kind is one of
// these, so that errors.Is finds it.
var (
	// ErrSyntax: not one well-formed JSON value in UTF-8.
	ErrSyntax = errors.New("malformed JSON")
	// ErrTooLarge: more bytes than Limits.MaxBytes.
	ErrTooLarge = errors.New("JSON too large")
	// ErrTooDeep: more nesting than Limits.MaxDepth.
	ErrTooDeep = errors.New("JSON nested too deeply")
	// ErrDuplicateMember: a name occurs twice in one object.
	ErrDuplicateMember = errors.New("duplicate JSON member")
	// ErrUnknownMember: a closed object has a member that its type does not know.
	ErrUnknownMember = errors.New("unknown JSON member")
	// ErrCaseVariant: a member differs only by case from a known one.
	ErrCaseVariant = errors.New("JSON member with wrong case")
	// ErrNumber: a number that RFC 8785 canonicalisation would change.
	ErrNumber = errors.New("JSON number does not survive canonicalisation")
	// ErrNotCanonical: acceptable, but not in canonical form.
	ErrNotCanonical = errors.New("JSON not in canonical form")
	// ErrType: a value is of another JSON type, or of another form, than its target.
	ErrType = errors.New("JSON value of wrong type")
)

// Error says what was refused and where.
type Error struct {
	Kind error  // one of the Err… variables
	Path string // JSON pointer (RFC 6901) of the culprit or its container; "" is the root
	err  error  // what the target's own decoding method said, if it was that
}

// Error quotes no values of the input, only the pointer, unless a decoding method of the target does.
func (e *Error) Error() string {
	s := "canon: " + e.Kind.Error()
	if e.Path != "" {
		s += " at " + strconv.Quote(clip(e.Path, 256))
	}
	if e.err != nil {
		s += ": " + e.err.Error()
	}
	return s
}

// Unwrap returns the kind and, for ErrType, the error of a decoding method.
func (e *Error) Unwrap() []error {
	if e.err != nil {
		return []error{e.Kind, e.err}
	}
	return []error{e.Kind}
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

// translate maps an error of the JSON library to an *Error.
func translate(err error) error {
	if own, ok := errors.AsType[*Error](err); ok {
		return own // a decoding method of the target that uses this package
	}
	if sem, ok := errors.AsType[*json.SemanticError](err); ok {
		if errors.Is(sem.Err, json.ErrUnknownName) {
			return &Error{Kind: ErrUnknownMember, Path: string(sem.JSONPointer)}
		}
		return &Error{Kind: ErrType, Path: string(sem.JSONPointer), err: methodError(sem)}
	}
	if syn, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		kind := ErrSyntax
		if errors.Is(syn.Err, jsontext.ErrDuplicateName) {
			kind = ErrDuplicateMember
		}
		return &Error{Kind: kind, Path: string(syn.JSONPointer)}
	}
	return &Error{Kind: ErrSyntax}
}

// methodError returns what an UnmarshalText or UnmarshalJSON method reported. The library's own reasons are
// left out: they may quote the input.
func methodError(sem *json.SemanticError) error {
	switch sem.Err.(type) {
	case nil, *strconv.NumError, *time.ParseError:
		return nil
	}
	if errors.Is(sem.Err, strconv.ErrRange) || errors.Is(sem.Err, strconv.ErrSyntax) {
		return nil
	}
	return sem.Err
}
