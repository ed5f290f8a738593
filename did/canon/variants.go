// SPDX-License-Identifier: Apache-2.0

package canon

import (
	"bytes"
	"encoding"
	"reflect"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// caseVariants walks data, which has been decoded into a value of type t, and reports
// the first member that no field names exactly but some field names in another case.
func caseVariants(data []byte, t reflect.Type) error {
	if !hasStruct(t, nil) {
		return nil
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true))
	return walk(d, t)
}

// walk consumes one value.
func walk(d *jsontext.Decoder, t reflect.Type) error {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var elem func(name string) (reflect.Type, bool)
	switch kind := d.PeekKind(); {
	case t == nil || opaque(t):
	case kind == '{' && t.Kind() == reflect.Struct:
		elem = fieldsOf(t).match
	case kind == '{' && t.Kind() == reflect.Map,
		kind == '[' && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array):
		elem = func(string) (reflect.Type, bool) { return t.Elem(), true }
	}
	if elem == nil {
		return skip(d)
	}
	open, err := d.ReadToken()
	if err != nil {
		return translate(err)
	}
	for d.PeekKind() != '}' && d.PeekKind() != ']' {
		name := ""
		if open.Kind() == '{' {
			tok, err := d.ReadToken()
			if err != nil {
				return translate(err)
			}
			name = tok.String()
		}
		next, ok := elem(name)
		if !ok {
			return &Error{Kind: ErrCaseVariant, Path: string(d.StackPointer())}
		}
		if err := walk(d, next); err != nil {
			return err
		}
	}
	_, err = d.ReadToken()
	if err != nil {
		return translate(err)
	}
	return nil
}

func skip(d *jsontext.Decoder) error {
	if err := d.SkipValue(); err != nil {
		return translate(err)
	}
	return nil
}

// opaque reports whether values of t decode themselves.
func opaque(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) ||
		p.Implements(reflect.TypeFor[json.UnmarshalerFrom]()) ||
		p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// hasStruct reports whether a value of type t can hold a struct that is decoded by fields.
func hasStruct(t reflect.Type, seen []reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		return !opaque(t)
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		for _, s := range seen {
			if s == t {
				return false
			}
		}
		return !opaque(t) && hasStruct(t.Elem(), append(seen, t))
	default:
		return false
	}
}

// fields are the members a struct type knows.
type fields map[string]reflect.Type

// match returns the type of the named member, nil if it is unknown; and false if
// the name is a variant of a known one.
func (f fields) match(name string) (reflect.Type, bool) {
	if t, ok := f[name]; ok {
		return t, true
	}
	for known := range f {
		if strings.EqualFold(known, name) {
			return nil, false
		}
	}
	return nil, true
}

// fieldCache holds fields by reflect.Type: what a type knows never changes.
var fieldCache sync.Map

func fieldsOf(t reflect.Type) fields {
	if f, ok := fieldCache.Load(t); ok {
		return f.(fields) //nolint:forcetypeassert // only fields are stored
	}
	f := fields{}
	collect(t, f)
	fieldCache.Store(t, f)
	return f
}

func collect(t reflect.Type, into fields) {
	for i := range t.NumField() {
		sf := t.Field(i)
		tag := sf.Tag.Get("json")
		if tag == "-" || (!sf.IsExported() && !sf.Anonymous) {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		inner := sf.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		inlined := sf.Anonymous && name == "" || hasOption(options, "embed")
		if inlined && inner.Kind() == reflect.Struct {
			collect(inner, into)
			continue
		}
		if inlined || !sf.IsExported() {
			continue
		}
		if name == "" {
			name = sf.Name
		}
		if _, taken := into[name]; !taken {
			into[name] = sf.Type
		}
	}
}

func hasOption(options, name string) bool {
	for o := range strings.SplitSeq(options, ",") {
		if o == name {
			return true
		}
	}
	return false
}
