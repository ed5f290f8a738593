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

// caseVariants walks data, which has been decoded into a value of type t, and reports the first member that no
// field names exactly but some field names in another case.
func caseVariants(data []byte, t reflect.Type) error {
	p := planFor(t)
	if p == nil {
		return nil
	}
	return p.walk(jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true)))
}

// plan says which members of a value have a known name. A nil plan says that nothing below is decoded by name:
// scalars, free-form values, types that decode themselves.
type plan struct {
	fields map[string]*plan // of a struct
	elem   *plan            // of a map, slice or array
}

// walk consumes one value.
func (p *plan) walk(d *jsontext.Decoder) error {
	kind := d.PeekKind()
	if p == nil || kind != '{' && kind != '[' || kind == '[' && p.fields != nil {
		return wrapped(d.SkipValue())
	}
	if _, err := d.ReadToken(); err != nil {
		return translate(err)
	}
	for d.PeekKind() != '}' && d.PeekKind() != ']' {
		next := p.elem
		if kind == '{' {
			name, err := d.ReadToken()
			if err != nil {
				return translate(err)
			}
			if p.fields != nil {
				var ok bool
				if next, ok = p.member(name.String()); !ok {
					return &Error{Kind: ErrCaseVariant, Path: string(d.StackPointer())}
				}
			}
		}
		if err := next.walk(d); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return wrapped(err)
}

// member returns the plan of the named member, nil if it is unknown; and false if the name is a variant of a
// known one.
func (p *plan) member(name string) (*plan, bool) {
	if next, ok := p.fields[name]; ok {
		return next, true
	}
	for known := range p.fields {
		if strings.EqualFold(known, name) {
			return nil, false
		}
	}
	return nil, true
}

func wrapped(err error) error {
	if err != nil {
		return translate(err)
	}
	return nil
}

// plans holds plans by reflect.Type: what a type knows never changes.
var plans sync.Map

func planFor(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan) //nolint:forcetypeassert // only plans are stored
	}
	p := compile(t, map[reflect.Type]*plan{})
	plans.Store(t, p)
	return p
}

// compile makes the plan of a type. Types refer to themselves, so done holds those that are being worked on
// too.
func compile(t reflect.Type, done map[reflect.Type]*plan) *plan {
	if t == nil {
		return nil
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if p, ok := done[t]; ok {
		return p
	}
	if opaque(t) {
		return nil
	}
	p := new(plan)
	switch t.Kind() {
	case reflect.Struct:
		done[t] = p
		p.fields = map[string]*plan{}
		collect(t, p.fields, done)
	case reflect.Map, reflect.Slice, reflect.Array:
		done[t] = p
		if p.elem = compile(t.Elem(), done); p.elem == nil {
			done[t] = nil
			return nil
		}
	default:
		return nil
	}
	return p
}

// collect adds the fields of a struct type, as the library names them.
func collect(t reflect.Type, into map[string]*plan, done map[reflect.Type]*plan) {
	for i := range t.NumField() {
		sf := t.Field(i)
		tag := sf.Tag.Get("json")
		if tag == "-" || !sf.IsExported() && !sf.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		inner := sf.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		embedded := sf.Anonymous && name == "" || hasOption(options, "embed")
		if embedded && inner.Kind() == reflect.Struct {
			collect(inner, into, done)
			continue
		}
		if embedded || !sf.IsExported() {
			continue
		}
		if name == "" {
			name = sf.Name
		}
		if _, taken := into[name]; !taken {
			into[name] = compile(sf.Type, done)
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

// opaque reports whether values of t decode themselves.
func opaque(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) ||
		p.Implements(reflect.TypeFor[json.UnmarshalerFrom]()) ||
		p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}
