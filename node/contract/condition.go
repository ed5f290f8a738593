// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// The operators of a condition.
const (
	OpEqual        = "="
	OpNotEqual     = "!="
	OpLess         = "<"
	OpLessEqual    = "<="
	OpGreater      = ">"
	OpGreaterEqual = ">="
	OpIn           = "in"      // Values: 1 to MaxValues
	OpBetween      = "between" // Values: exactly 2, both included
	OpIsNull       = "is_null" // no value
	OpIsNotNull    = "is_not_null"
	OpPrefix       = "prefix" // of a text; version 3 in a row filter
)

// Value is a string or a boolean. Numbers, dates and times are strings, so that
// no decoder can change them on the way. The zero Value is no value.
type Value struct {
	kind valueKind
	text string
}

type valueKind uint8

const (
	valueNone valueKind = iota
	valueText
	valueTrue
	valueFalse
)

// TextValue is a text, a number, a date or a time, in the column type's syntax.
func TextValue(s string) Value { return Value{kind: valueText, text: s} }

// BoolValue is true or false.
func BoolValue(b bool) Value {
	if b {
		return Value{kind: valueTrue}
	}
	return Value{kind: valueFalse}
}

// IsZero says whether there is no value.
func (v Value) IsZero() bool { return v.kind == valueNone }

// Text returns the string and whether v is one.
func (v Value) Text() (string, bool) { return v.text, v.kind == valueText }

// Bool returns the boolean and whether v is one.
func (v Value) Bool() (value, ok bool) {
	return v.kind == valueTrue, v.kind == valueTrue || v.kind == valueFalse
}

// String is for people: escaped and cut.
func (v Value) String() string {
	switch v.kind {
	case valueText:
		return Echo(v.text)
	case valueTrue:
		return "true"
	case valueFalse:
		return "false"
	case valueNone:
	}
	return "none"
}

// Condition is one comparison of a column with constants; a filter is a list of
// them that must all hold. Value and Values exclude each other, see the
// operators.
type Condition struct {
	Column string  `json:"column"`
	Op     string  `json:"op"`
	Value  Value   `json:"value,omitzero"`
	Values []Value `json:"values,omitempty"`
}

// String is for people: one bounded line.
func (c Condition) String() string {
	s := Echo(c.Column) + " " + printableOp(c.Op)
	switch {
	case !c.Value.IsZero():
		s += " " + c.Value.String()
	case len(c.Values) > 0:
		shown := make([]string, 0, 4)
		for _, v := range c.Values[:min(4, len(c.Values))] {
			shown = append(shown, v.String())
		}
		s += " (" + strings.Join(shown, ", ")
		if n := len(c.Values) - len(shown); n > 0 {
			s += " and " + strconv.Itoa(n) + " more"
		}
		s += ")"
	}
	return s
}

func printableOp(op string) string {
	if operands(op) < 0 {
		return Echo(op)
	}
	return op
}

// Equal compares everything.
func (c Condition) Equal(o Condition) bool {
	if c.Column != o.Column || c.Op != o.Op || c.Value != o.Value || len(c.Values) != len(o.Values) {
		return false
	}
	for i := range c.Values {
		if c.Values[i] != o.Values[i] {
			return false
		}
	}
	return true
}

// operands says how an operator takes its values: 0 none, 1 Value, 2 two
// Values, 3 a list, -1 unknown operator.
func operands(op string) int {
	switch op {
	case OpIsNull, OpIsNotNull:
		return 0
	case OpEqual, OpNotEqual, OpLess, OpLessEqual, OpGreater, OpGreaterEqual, OpPrefix:
		return 1
	case OpBetween:
		return 2
	case OpIn:
		return 3
	}
	return -1
}

var (
	errOp      = errors.New("unknown operator; known are = != < <= > >= in between is_null is_not_null prefix")
	errOne     = errors.New("this operator takes exactly one value")
	errNone    = errors.New("this operator takes no value")
	errTwo     = errors.New("between takes exactly two values")
	errList    = errors.New("in takes 1 to 256 values")
	errLong    = errors.New("a value is longer than 1024 bytes")
	errBool    = errors.New("want true or false")
	errString  = errors.New("want a string (numbers and dates are strings too)")
	errUTF8    = errors.New("not UTF-8, or has a NUL")
	errInt     = errors.New("want a 64-bit integer as a string, such as \"42\"")
	errDecimal = errors.New("want a decimal that the column's precision and scale can hold, as a string, such as \"12.50\"")
	errDouble  = errors.New("want a finite number as a string")
	errDate    = errors.New("want a date as YYYY-MM-DD")
	errTime    = errors.New("want a time as HH:MM:SS, with at most six decimals")
	errStamp   = errors.New("want a timestamp as YYYY-MM-DDTHH:MM:SS, without a zone, with at most six decimals")
	errStampTZ = errors.New("want a timestamp in UTC as YYYY-MM-DDTHH:MM:SSZ, with at most six decimals")
	errPrefix  = errors.New("prefix applies to texts, and takes one that is not empty")
	errOrder   = errors.New("booleans have no order")
)

// checkForm checks what does not need a schema: operator, number of values,
// sizes. It does not allocate.
func (c *Condition) checkForm() error {
	n := operands(c.Op)
	switch {
	case n < 0:
		return errOp
	case n == 0 && (!c.Value.IsZero() || len(c.Values) > 0):
		return errNone
	case n == 1 && (c.Value.IsZero() || len(c.Values) > 0):
		return errOne
	case n == 2 && (!c.Value.IsZero() || len(c.Values) != 2):
		return errTwo
	case n == 3 && (!c.Value.IsZero() || len(c.Values) == 0 || len(c.Values) > MaxValues):
		return errList
	}
	if len(c.Value.text) > MaxValue {
		return errLong
	}
	for i := range c.Values {
		if c.Values[i].IsZero() {
			return errString
		}
		if len(c.Values[i].text) > MaxValue {
			return errLong
		}
	}
	return nil
}

// ConditionError says which condition cannot be applied and why. It matches
// ErrInvalid, and ErrUnknownColumn when the column is not published.
type ConditionError struct {
	Column  string
	Unknown bool
	Why     string
}

func (e *ConditionError) Error() string {
	return "contract: condition on " + Echo(e.Column) + ": " + e.Why
}

// Is reports the sentinels that the error matches.
func (e *ConditionError) Is(target error) bool {
	return target == ErrInvalid || e.Unknown && target == ErrUnknownColumn
}

// CheckCondition checks a condition against the published schema: the column is
// there, the operator fits, the number of values is right, and every value is
// written as the column's type wants it. Values are only ever parameters; the
// check is there so that an engine's own conversions never decide.
func CheckCondition(s *Schema, c Condition) error {
	if why, known := checkCondition(s, &c); why != nil {
		return &ConditionError{Column: c.Column, Unknown: !known, Why: why.Error()}
	}
	return nil
}

var (
	errUnpublished = errors.New("the column is not in the published schema")
	errType        = errors.New("the column's type is unknown")
)

// checkCondition is CheckCondition without allocation.
func checkCondition(s *Schema, c *Condition) (why error, known bool) {
	col, ok := s.Column(c.Column)
	if !ok {
		return errUnpublished, false
	}
	return c.checkType(col.Type), true
}

// checkType checks the condition's form and its values' syntax against a column
// type. It does not allocate.
func (c *Condition) checkType(typ string) error {
	if err := c.checkForm(); err != nil {
		return err
	}
	t, ok := ParseType(typ)
	if !ok {
		return errType
	}
	return c.fitsType(t)
}

// fitsType is checkType for a condition whose form has been checked.
func (c *Condition) fitsType(t Type) error {
	if t.Kind == KindBoolean {
		switch c.Op {
		case OpLess, OpLessEqual, OpGreater, OpGreaterEqual, OpBetween:
			return errOrder
		}
	}
	if c.Op == OpPrefix && (t.Kind != KindText || c.Value.text == "") {
		return errPrefix
	}
	if !c.Value.IsZero() {
		if err := t.checkValue(c.Value); err != nil {
			return err
		}
	}
	for _, v := range c.Values {
		if err := t.checkValue(v); err != nil {
			return err
		}
	}
	return nil
}

// checkValue checks one value's syntax against the type.
func (t Type) checkValue(v Value) error {
	if t.Kind == KindBoolean {
		if _, ok := v.Bool(); !ok {
			return errBool
		}
		return nil
	}
	s, ok := v.Text()
	if !ok {
		return errString
	}
	switch t.Kind {
	case KindText:
		if !validUTF8(s) || strings.IndexByte(s, 0) >= 0 {
			return errUTF8
		}
	case KindInteger:
		if !plainInteger(s) {
			return errInt
		}
	case KindDecimal:
		if !t.fits(s) {
			return errDecimal
		}
	case KindDouble:
		if !plainDouble(s) {
			return errDouble
		}
	case KindDate:
		if len(s) != 10 || !isTime("2006-01-02", s) {
			return errDate
		}
	case KindTime:
		if main, ok := cutFraction(s); !ok || len(main) != 8 || !isTime("15:04:05", main) {
			return errTime
		}
	case KindTimestamp:
		if main, ok := cutFraction(s); !ok || len(main) != 19 || !isTime("2006-01-02T15:04:05", main) {
			return errStamp
		}
	case KindTimestampTZ:
		body, z := strings.CutSuffix(s, "Z")
		if main, ok := cutFraction(body); !z || !ok || len(main) != 19 || !isTime("2006-01-02T15:04:05", main) {
			return errStampTZ
		}
	case KindNone, KindBoolean:
		return errType
	}
	return nil
}

// plainInteger accepts the shortest form of a signed 64-bit integer.
func plainInteger(s string) bool {
	body := strings.TrimPrefix(s, "-")
	if !digits(body) || len(body) > 19 || body[0] == '0' && len(s) > 1 {
		return false
	}
	// Parsing decides the range; ParseInt allocates only in its error.
	_, err := strconv.ParseInt(s, 10, 64)
	return err == nil
}

// fits accepts digits with an optional sign and fraction, within precision and
// scale, without superfluous leading zeros.
func (t Type) fits(s string) bool {
	whole, frac, point := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	if !digits(whole) || point && !digits(frac) || len(whole) > 1 && whole[0] == '0' {
		return false
	}
	n := len(whole)
	if whole == "0" {
		n = 0
	}
	return n <= t.Precision-t.Scale && len(frac) <= t.Scale
}

// plainDouble accepts decimal notation with an optional exponent: no hex, no
// underscores, no names, nothing that overflows.
func plainDouble(s string) bool {
	if s == "" || len(s) > 40 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E' {
			return false
		}
	}
	if s[0] == '+' || s[0] == '.' {
		return false
	}
	f, err := strconv.ParseFloat(s, 64)
	return err == nil && !math.IsInf(f, 0)
}

// cutFraction splits off a fraction of one to six digits.
func cutFraction(s string) (main string, ok bool) {
	main, frac, point := strings.Cut(s, ".")
	return main, !point || digits(frac) && len(frac) <= 6
}

// isTime parses s by layout; year 0000 is refused, engines disagree about it.
// The standard library accepts a comma for the fraction's point, which the
// callers' length checks exclude.
func isTime(layout, s string) bool {
	t, err := time.Parse(layout, s)
	return err == nil && (len(layout) < 10 || t.Year() >= 1)
}
