// SPDX-License-Identifier: Apache-2.0

package canon

import (
	"bytes"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// scan applies the rules that the JSON library lacks: size, depth and numbers. It allocates nothing and reads
// every byte at most twice. It presumes nothing about the syntax, which the library checks afterwards; where
// the syntax is wrong, what scan takes for a string or a number may be something else, and that is harmless.
func scan(data []byte, lim Limits) error {
	if len(data) > lim.MaxBytes {
		return &Error{Kind: ErrTooLarge}
	}
	depth := 0
	for i := 0; i < len(data); {
		switch c := data[i]; {
		case c == '"':
			i = skipString(data, i+1)
		case c == '{' || c == '[':
			if depth++; depth > lim.MaxDepth {
				return &Error{Kind: ErrTooDeep}
			}
			i++
		case c == '}' || c == ']':
			depth--
			i++
		case c == '-' || '0' <= c && c <= '9':
			end := skipNumber(data, i)
			if !survives(data[i:end]) {
				return &Error{Kind: ErrNumber, Path: pathAt(data, i)}
			}
			i = end
		default:
			i++
		}
	}
	return nil
}

// skipString returns the index after the quote that closes the string whose contents begin at i.
func skipString(data []byte, i int) int {
	for {
		n := bytes.IndexByte(data[i:], '"')
		if n < 0 {
			return len(data)
		}
		end := i + n
		// The quote is escaped if an odd number of backslashes precedes it.
		slashes := 0
		for end-slashes > i && data[end-slashes-1] == '\\' {
			slashes++
		}
		i = end + 1
		if slashes%2 == 0 {
			return i
		}
	}
}

func skipNumber(data []byte, i int) int {
	for i < len(data) {
		switch c := data[i]; {
		case '0' <= c && c <= '9', c == '-', c == '+', c == '.', c == 'e', c == 'E':
			i++
		default:
			return i
		}
	}
	return i
}

// survives reports whether the number keeps its value in canonical form, as the package comment defines that.
func survives(num []byte) bool {
	digits := num
	if digits[0] == '-' {
		digits = digits[1:]
	}
	if plainInteger(digits) {
		return digits[0] != '0' || len(digits) == len(num) // all but -0
	}
	return survivesSlow(string(num))
}

// plainInteger reports whether b is at most 15 digits, which a double always holds.
func plainInteger(b []byte) bool {
	if len(b) == 0 || len(b) > 15 {
		return false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

func survivesSlow(num string) bool {
	f, err := strconv.ParseFloat(num, 64)
	if err != nil {
		// Out of range, or no number at all; for the latter the library reports the syntax.
		return !validNumber(num)
	}
	digits, exp := decimal(num)
	if digits == "" { // zero
		return num[0] != '-'
	}
	if f == 0 { // underflow
		return false
	}
	if exp >= 0 { // an integer, digits × 10^exp
		canonDigits, canonExp := decimal(strconv.FormatFloat(f, 'e', -1, 64))
		return digits == canonDigits && exp == canonExp
	}
	return len(digits) <= 17 && f != math.Trunc(f)
}

// decimal splits a number that ParseFloat accepts into its significant digits, without leading or trailing
// zeros, and a power of ten. Its sign is dropped. Zero has no digits.
func decimal(num string) (digits string, exp int) {
	num = strings.TrimPrefix(num, "-")
	mantissa := num
	if i := strings.IndexAny(num, "eE"); i >= 0 {
		// The range was checked by ParseFloat, except for zero, whose exponent does not matter.
		exp, _ = strconv.Atoi(num[i+1:])
		mantissa = num[:i]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	exp -= len(fraction)
	trimmed := strings.TrimRight(digits, "0")
	exp += len(digits) - len(trimmed)
	return trimmed, exp
}

func validNumber(num string) bool {
	return jsontext.Value(num).IsValid()
}

// wellFormed applies the library's rules: grammar, UTF-8, duplicate names, one value.
func wellFormed(data []byte) error {
	var d jsontext.Decoder
	d.Reset(bytes.NewBuffer(data)) // a *bytes.Buffer is decoded in place
	if _, err := d.ReadValue(); err != nil {
		return translate(eof(err))
	}
	if _, err := d.ReadToken(); err != io.EOF { //nolint:errorlint // documented to be returned bare
		return &Error{Kind: ErrSyntax}
	}
	return nil
}

func eof(err error) error {
	if err == io.EOF { //nolint:errorlint // documented to be returned bare
		return io.ErrUnexpectedEOF
	}
	return err
}

// pathAt returns the JSON pointer of the value at the offset, as far as it can be told.
func pathAt(data []byte, offset int) string {
	d := jsontext.NewDecoder(bytes.NewBuffer(data))
	for d.InputOffset() <= int64(offset) {
		if _, err := d.ReadToken(); err != nil {
			break
		}
	}
	return string(d.StackPointer())
}
