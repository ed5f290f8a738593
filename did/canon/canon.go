// SPDX-License-Identifier: Apache-2.0

package canon

import (
	"math"
	"reflect"

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

// Check reports whether data is acceptable, as the package comment says. It
// does not ask for canonical form.
func Check(data []byte, lim Limits) error {
	if err := scan(data, lim.withDefaults()); err != nil {
		return err
	}
	return wellFormed(data)
}

// Canonicalize checks data and returns its canonical form as RFC 8785
// defines it. The result never aliases data. On data that is canonical already
// it costs little more than reading it once.
func Canonicalize(data []byte, lim Limits) ([]byte, error) {
	if err := scan(data, lim.withDefaults()); err != nil {
		return nil, err
	}
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
// github.com/go-json-experiment/json: names are case-sensitive, a nil slice is
// [] and a nil map {}, omitzero omits Go's zero values and omitempty only
// empty strings, arrays and objects (never a number or false). It refuses numbers and nesting that [Check] with
// default depth would refuse.
func Marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return Canonicalize(data, Limits{MaxBytes: math.MaxInt})
}

// Unmarshal decodes a closed object: data must pass [Check], and every member of
// every object that is decoded into a Go struct must be known to it by its
// exact name ([ErrUnknownMember], or [ErrCaseVariant]). v must be a non-nil
// pointer; after an error its contents are unspecified.
func Unmarshal(data []byte, v any, lim Limits) error {
	if err := scan(data, lim.withDefaults()); err != nil {
		return err
	}
	err := json.Unmarshal(data, v, json.RejectUnknownMembers(true))
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

// UnmarshalOpen decodes an object that others may extend: as [Unmarshal], but
// members that no struct field names are ignored. One that differs from
// a known member only by case is refused with [ErrCaseVariant].
func UnmarshalOpen(data []byte, v any, lim Limits) error {
	if err := scan(data, lim.withDefaults()); err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return translate(err)
	}
	return caseVariants(data, reflect.TypeOf(v))
}
