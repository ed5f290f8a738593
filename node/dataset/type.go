// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"errors"
	"fmt"

	"github.com/treaty-node/treaty/node/contract"
)

// Type is a column's type, as contracts and schemas know it. Values are comparable.
type Type = contract.Type

// The kinds of types that a dataset can have.
const (
	Text        = contract.KindText
	Integer     = contract.KindInteger
	DecimalKind = contract.KindDecimal
	Double      = contract.KindDouble
	Boolean     = contract.KindBoolean
	Date        = contract.KindDate
	Timestamp   = contract.KindTimestamp   // microseconds, no zone
	TimestampTZ = contract.KindTimestampTZ // microseconds, an instant, kept in UTC
)

// MaxPrecision is the largest number of digits a decimal column can have.
const MaxPrecision = 38

// ErrType reports a type name that is none.
var ErrType = errors.New("unknown column type")

var kindNames = map[contract.Kind]string{
	Text: "text", Integer: "integer", Double: "double", Boolean: "boolean",
	Date: "date", Timestamp: "timestamp", TimestampTZ: "timestamptz",
}

// TypeName writes a type in the form that [ParseType] reads.
func TypeName(t Type) string {
	if t.Kind == DecimalKind {
		return contract.DecimalType(t.Precision, t.Scale)
	}
	return kindNames[t.Kind]
}

// ParseType reads a type name: text, integer, decimal(p,s), double, boolean, date, timestamp or timestamptz, in exactly
// this spelling.
func ParseType(s string) (Type, error) {
	t, ok := contract.ParseType(s)
	if !ok || TypeName(t) == "" {
		return Type{}, fmt.Errorf("%w %q (text, integer, decimal(p,s) with p up to 38, double, boolean, date, timestamp, timestamptz)", ErrType, s)
	}
	return t, nil
}
