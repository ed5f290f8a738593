// SPDX-License-Identifier: Apache-2.0

package did

import (
	"encoding/json"
	"fmt"
)

// rawJSON is a value in canonical form, spliced as it is.
type rawJSON = json.RawMessage

// member is a member of a canonical object: slices of the object's bytes.
type member struct {
	name  []byte // between the quotes, still escaped
	value []byte
	whole []byte // "name":value
}

// object is a canonical object taken apart one level deep, so that members can be left out and put in by
// copying bytes instead of encoding again.
type object []member

// splitObject takes canonical JSON apart. In canonical form there is no white space, and nothing outside of
// strings needs to be understood but brackets and commas.
func splitObject(canonical []byte) (object, error) {
	if len(canonical) < 2 || canonical[0] != '{' {
		return nil, fmt.Errorf("not a JSON object")
	}
	var o object
	body := canonical[1 : len(canonical)-1]
	for len(body) > 0 {
		nameEnd := stringEnd(body, 0)
		end := valueEnd(body, nameEnd+1) // past the colon
		o = append(o, member{body[1 : nameEnd-1], body[nameEnd+1 : end], body[:end]})
		body = body[min(end+1, len(body)):] // past the comma
	}
	return o, nil
}

// stringEnd returns the index after the string that begins at i.
func stringEnd(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// valueEnd returns the index after the value that begins at i: of the comma, or the end.
func valueEnd(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = stringEnd(b, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

// index returns the position of the member, -1 if there is none. The name needs no escaping.
func (o object) index(name string) int {
	for i := range o {
		if string(o[i].name) == name {
			return i
		}
	}
	return -1
}

// cut returns which bytes of the object's canonical form to leave out, to leave out the member: it and one
// comma.
func (o object) cut(i int) (start, end int) {
	start = 1
	for _, m := range o[:i] {
		start += len(m.whole) + 1
	}
	end = start + len(o[i].whole)
	switch {
	case i < len(o)-1:
		end++
	case i > 0:
		start--
	}
	return start, end
}

// find returns the value of the member, nil if there is none.
func (o object) find(name string) []byte {
	if i := o.index(name); i >= 0 {
		return o[i].value
	}
	return nil
}

// join returns the object of the members, which must be in canonical order.
func (o object) join() []byte {
	n := 2
	for _, m := range o {
		n += len(m.whole) + 1
	}
	out := append(make([]byte, 0, n), '{')
	for i, m := range o {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, m.whole...)
	}
	return append(out, '}')
}

// without returns the object with the member left out.
func (o object) without(name string) object {
	rest := make(object, 0, len(o))
	for _, m := range o {
		if string(m.name) != name {
			rest = append(rest, m)
		}
	}
	return rest
}

// with returns the object with a member put in, which it does not have yet. The name must be ASCII without
// characters that need escaping; canonical order is by UTF-16 code units (RFC 8785 section 3.2.3).
func (o object) with(name string, value []byte) object {
	at := 0
	for at < len(o) && asciiBefore(o[at].name, name) {
		at++
	}
	whole := append(append(append([]byte(`"`), name...), `":`...), value...)
	out := make(object, 0, len(o)+1)
	out = append(out, o[:at]...)
	out = append(out, member{[]byte(name), value, whole})
	return append(out, o[at:]...)
}

// asciiBefore reports whether the escaped name sorts before the ASCII name. An escape stands for a control
// character, a quote or a backslash: it is decoded just as far as the comparison needs.
func asciiBefore(escaped []byte, name string) bool {
	for i := range len(name) {
		if len(escaped) == 0 {
			return true
		}
		c, n := escaped[0], 1
		if c == '\\' {
			switch escaped[1] {
			case '"', '\\':
				c, n = escaped[1], 2
			default: // a control character sorts before every letter of name
				return true
			}
		}
		if c != name[i] {
			return c < name[i] // bytes from 0x80 belong to characters after ASCII
		}
		escaped = escaped[n:]
	}
	return false
}
