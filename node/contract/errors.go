// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

var (
	// ErrInvalid is matched by every error about a document's form or content.
	ErrInvalid = errors.New("contract: invalid document")
	// ErrUnknownColumn is matched when a condition names a column that the
	// schema does not publish.
	ErrUnknownColumn = errors.New("contract: unknown column")
	// ErrProof is matched by every error about a missing, misplaced or wrong
	// proof.
	ErrProof = errors.New("contract: proof refused")
	// ErrLate is matched when a contract was activated after its acceptBy.
	ErrLate = errors.New("contract: activated too late")
	// ErrMismatch is matched when a signed statement is about another contract.
	ErrMismatch = errors.New("contract: not about this contract")
)

// FieldError says which field of a document is wrong and why. It matches
// ErrInvalid.
type FieldError struct {
	Field string // path within the document, such as "scope.columns[2]"
	Why   string
}

func (e *FieldError) Error() string { return "contract: " + e.Field + ": " + e.Why }

// Unwrap makes errors.Is(err, ErrInvalid) true.
func (e *FieldError) Unwrap() error { return ErrInvalid }

func invalid(field, why string) error { return &FieldError{Field: field, Why: why} }

func within(field string, err error) error {
	var fe *FieldError
	if errors.As(err, &fe) {
		return &FieldError{Field: field + "." + fe.Field, Why: fe.Why}
	}
	return err
}

// echoRunes bounds how much of a peer's word comes back in a text.
const echoRunes = 64

// Echo returns s quoted for a text that a person or a peer reads: at most 64
// runes, with control, format and invalid characters escaped.
func Echo(s string) string {
	if len(s) <= echoRunes {
		return strconv.Quote(s)
	}
	n := 0
	for i := range s {
		if n == echoRunes {
			// Cutting at a rune start keeps the piece valid.
			return strconv.Quote(s[:i]) + "…"
		}
		n++
	}
	return strconv.Quote(s)
}

// listed joins at most limit quoted names and counts the rest.
func listed(names []string, limit int) string {
	if len(names) == 0 {
		return "none"
	}
	var b strings.Builder
	for i, n := range names {
		if i == limit {
			b.WriteString(" and " + strconv.Itoa(len(names)-limit) + " more")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(Echo(n))
	}
	return b.String()
}

func validUTF8(s string) bool { return utf8.ValidString(s) }
