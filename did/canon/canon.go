// SPDX-License-Identifier: Apache-2.0

package canon

import (
	"bytes"
	"math"
	"reflect"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The limits that apply where a Limits field is zero.
const (
	DefaultMaxBytes = 1 << 20
	DefaultMaxDepth = 32
)

// Limits bound the input. A zero field stands for its default.
type Limits struct {
	MaxBytes int // bytes of input
	MaxDepth int // objects and arrays open at once; a scalar has depth 0
}

func (l Limits) withDefaults() Limits {
	if l.MaxBytes == 0 {
		l.MaxBytes = DefaultMaxBytes
	}
	if l.MaxDepth == 0 {
		l.MaxDepth = DefaultMaxDepth
	}
	return l
}

// Check reports whether data is acceptable, as the package comment says. It does not ask for canonical form.
func Check(data []byte, lim Limits) error {
	lim = lim.withDefaults()
	if isCanonical(data, lim) {
		return nil
	}
	if err := scan(data, lim); err != nil {
		return err
	}
	return wellFormed(data)
}

// CheckCanonical is [Check], and data must be in canonical form: anything else that is acceptable is refused
// with [ErrNotCanonical].
func CheckCanonical(data []byte, lim Limits) error {
	if isCanonical(data, lim.withDefaults()) {
		return nil
	}
	canonical, err := Canonicalize(data, lim)
	if err != nil {
		return err
	}
	if !bytes.Equal(canonical, data) {
		return &Error{Kind: ErrNotCanonical}
	}
	return nil
}

// Canonicalize checks data and returns its canonical form as RFC 8785 defines it. The result never aliases
// data. On data that is canonical already it costs little more than reading it once.
func Canonicalize(data []byte, lim Limits) ([]byte, error) {
	lim = lim.withDefaults()
	if isCanonical(data, lim) {
		return slices.Clone(data), nil
	}
	if err := scan(data, lim); err != nil {
		return nil, err
	}
	return canonicalizeSlow(data)
}

// canonicalizeSlow leaves it to the library, which also checks all that scan does not.
func canonicalizeSlow(data []byte) ([]byte, error) {
	out, err := jsontext.AppendFormat(make([]byte, 0, len(data)), data,
		jsontext.CanonicalizeRawInts(true),
		jsontext.CanonicalizeRawFloats(true),
		jsontext.ReorderRawObjects(true))
	if err != nil {
		return nil, translate(err)
	}
	return out, nil
}

// Marshal encodes v and returns the canonical form. Struct tags mean what they mean to
// github.com/go-json-experiment/json: names are case-sensitive, a nil slice is [] and a nil map {}, omitzero
// omits Go's zero values and omitempty only empty strings, arrays and objects (never a number or false). It
// refuses numbers and nesting that [Check] with default depth would refuse.
func Marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	lim := Limits{MaxBytes: math.MaxInt}
	if isCanonical(data, lim.withDefaults()) {
		return data, nil
	}
	return Canonicalize(data, lim)
}

// Unmarshal decodes a closed object: data must pass [Check], and every member of every object that is decoded
// into a Go struct must be known to it by its exact name ([ErrUnknownMember], or [ErrCaseVariant]). v must be a
// non-nil pointer; after an error its contents are unspecified.
func Unmarshal(data []byte, v any, lim Limits) error {
	checked, err := precheck(data, lim.withDefaults())
	if err != nil {
		return err
	}
	err = json.Unmarshal(data, v, json.RejectUnknownMembers(true), checked)
	if err == nil {
		return nil
	}
	err = translate(err)
	if e, ok := err.(*Error); ok && e.Kind == ErrUnknownMember { //nolint:errorlint // translate returns it bare
		if variant := caseVariants(data, reflect.TypeOf(v)); variant != nil {
			return variant
		}
	}
	return err
}

// UnmarshalOpen decodes an object that others may extend: as [Unmarshal], but members that no struct field
// names are ignored. One that differs from a known member only by case is refused with [ErrCaseVariant].
func UnmarshalOpen(data []byte, v any, lim Limits) error {
	checked, err := precheck(data, lim.withDefaults())
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v, checked); err != nil {
		return translate(err)
	}
	return caseVariants(data, reflect.TypeOf(v))
}

// precheck applies the rules that the library lacks, and tells it to omit those of its own that are known to
// hold.
func precheck(data []byte, lim Limits) (json.Options, error) {
	if isCanonical(data, lim) {
		return jsontext.AllowDuplicateNames(true), nil // there are none
	}
	return jsontext.AllowDuplicateNames(false), scan(data, lim)
}
