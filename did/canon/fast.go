// SPDX-License-Identifier: Apache-2.0

package canon

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Most of what this module reads it has written itself, or a peer of the same kind has: canonical already. fast
// recognises that in one pass and without allocating, several times faster than to decode and encode.
//
// It is a second reading of RFC 8785 beside the library's, so it only ever says yes or "not known": if it says
// yes, the library's canonical form is the input itself. A fuzz target holds it to that.
type fast struct {
	data     []byte
	pos      int
	maxDepth int
}

// isCanonical reports whether data surely is acceptable and in canonical form. False means nothing.
func isCanonical(data []byte, lim Limits) bool {
	if len(data) > lim.MaxBytes {
		return false
	}
	f := fast{data: data, maxDepth: lim.MaxDepth}
	return f.value(0) && f.pos == len(data)
}

func (f *fast) value(depth int) bool {
	if f.pos == len(f.data) {
		return false
	}
	switch c := f.data[f.pos]; c {
	case '"':
		_, ok := f.string()
		return ok
	case '{':
		return depth < f.maxDepth && f.object(depth+1)
	case '[':
		return depth < f.maxDepth && f.array(depth+1)
	case 't':
		return f.literal("true")
	case 'f':
		return f.literal("false")
	case 'n':
		return f.literal("null")
	default:
		return f.number()
	}
}

func (f *fast) object(depth int) bool {
	f.pos++
	if f.accept('}') {
		return true
	}
	var last []byte
	for first := true; ; first = false {
		if f.pos == len(f.data) || f.data[f.pos] != '"' {
			return false
		}
		name, ok := f.string()
		if !ok || !first && !before(last, name) || !f.accept(':') || !f.value(depth) {
			return false
		}
		last = name
		if !f.accept(',') {
			return f.accept('}')
		}
	}
}

func (f *fast) array(depth int) bool {
	f.pos++
	if f.accept(']') {
		return true
	}
	for f.value(depth) {
		if !f.accept(',') {
			return f.accept(']')
		}
	}
	return false
}

func (f *fast) accept(c byte) bool {
	if f.pos < len(f.data) && f.data[f.pos] == c {
		f.pos++
		return true
	}
	return false
}

func (f *fast) literal(s string) bool {
	if !bytes.HasPrefix(f.data[f.pos:], []byte(s)) {
		return false
	}
	f.pos += len(s)
	return true
}

// string consumes a string in canonical form (RFC 8785 section 3.2.2.2) and returns what is between its quotes.
func (f *fast) string() ([]byte, bool) {
	data, start := f.data, f.pos+1
	for i := start; i < len(data); {
		// Eight bytes at a time, as long as none of them ends the string or needs a look.
		for i+8 <= len(data) && plain(binary.LittleEndian.Uint64(data[i:])) {
			i += 8
		}
		if i == len(data) {
			return nil, false
		}
		switch c := data[i]; {
		case c == '"':
			f.pos = i + 1
			return data[start:i], true
		case c == '\\':
			n := escape(data[i:])
			if n == 0 {
				return nil, false
			}
			i += n
		case c < ' ':
			return nil, false
		case c < utf8.RuneSelf:
			i++
		default:
			r, n := utf8.DecodeRune(data[i:])
			if r == utf8.RuneError && n == 1 {
				return nil, false
			}
			i += n
		}
	}
	return nil, false
}

// plain reports whether all eight bytes are ASCII from space upwards, no quote and no backslash.
func plain(w uint64) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	quote, slash := w^(ones*'"'), w^(ones*'\\')
	// A byte with its top bit clear borrows in the subtraction only if it is less than what is subtracted.
	return (w|(w-ones*' ')|(quote-ones)|(slash-ones))&tops == 0
}

// escape returns the length of the canonical escape sequence that b begins with, 0 if it is none: the short
// form where there is one, \u00 and lower-case digits for other control characters.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		const digits = "0123456789abcdef"
		if len(b) < 6 || string(b[2:4]) != "00" || b[4] != '0' && b[4] != '1' {
			return 0
		}
		low := bytes.IndexByte([]byte(digits), b[5])
		if low < 0 || b[4] == '0' && bytes.IndexByte([]byte("89acd"), b[5]) >= 0 { // \b \t \n \f \r
			return 0
		}
		return 6
	}
	return 0
}

// number consumes a number in canonical form (RFC 8785 section 3.2.2.3). Such a number survives
// canonicalisation.
func (f *fast) number() bool {
	end := skipNumber(f.data, f.pos)
	num := f.data[f.pos:end]
	digits := bytes.TrimPrefix(num, []byte("-"))
	f.pos = end
	if plainInteger(digits) {
		return digits[0] != '0' || len(num) == 1
	}
	if len(num) > 32 { // longer than any canonical number
		return false
	}
	v, err := strconv.ParseFloat(string(num), 64)
	return err == nil && v != 0 && bytes.Equal(jsontext.AppendFloat(nil, v, 64), num)
}

// before reports whether name a sorts before name b by UTF-16 code units (RFC 8785 section 3.2.3). The names
// are still escaped; where that matters the answer is false.
func before(a, b []byte) bool {
	if bytes.IndexByte(a, '\\') >= 0 || bytes.IndexByte(b, '\\') >= 0 {
		return false
	}
	// UTF-8 sorts as UTF-16 does below U+D800, which is to say without lead bytes from 0xed.
	if c := bytes.Compare(a, b); !slices.ContainsFunc(a, isHigh) && !slices.ContainsFunc(b, isHigh) {
		return c < 0
	}
	return slices.CompareFunc(utf16.Encode([]rune(string(a))), utf16.Encode([]rune(string(b))), cmp.Compare[uint16]) < 0
}

func isHigh(c byte) bool { return c >= 0xed }
