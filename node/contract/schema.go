// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/treaty-node/treaty/did/canon"
)

// SchemaType is the type member of a published schema.
const SchemaType = "TreatySchema"

// Kind is the family of a column type.
type Kind uint8

// The kinds. The zero Kind is no type at all.
const (
	KindNone        Kind = iota
	KindText             // "text": any Unicode string
	KindInteger          // "integer": 64 bit, signed
	KindDecimal          // "decimal(p,s)": exact, 1 ≤ p ≤ 38, 0 ≤ s ≤ p
	KindDouble           // "double": IEEE 754 binary64
	KindBoolean          // "boolean"
	KindDate             // "date": years 0001 to 9999
	KindTime             // "time": time of day without a zone
	KindTimestamp        // "timestamp": without a zone
	KindTimestampTZ      // "timestamptz": a point in time
)

// Type is a parsed column type. Precision and Scale belong to KindDecimal.
type Type struct {
	Kind             Kind
	Precision, Scale int
}

// ParseType reads a column type as schemas write it. There is one spelling of
// each: "decimal(10,2)" has no spaces.
func ParseType(s string) (Type, bool) {
	switch s {
	case "text":
		return Type{Kind: KindText}, true
	case "integer":
		return Type{Kind: KindInteger}, true
	case "double":
		return Type{Kind: KindDouble}, true
	case "boolean":
		return Type{Kind: KindBoolean}, true
	case "date":
		return Type{Kind: KindDate}, true
	case "time":
		return Type{Kind: KindTime}, true
	case "timestamp":
		return Type{Kind: KindTimestamp}, true
	case "timestamptz":
		return Type{Kind: KindTimestampTZ}, true
	}
	in, ok := strings.CutPrefix(s, "decimal(")
	if !ok {
		return Type{}, false
	}
	in, ok = strings.CutSuffix(in, ")")
	if !ok {
		return Type{}, false
	}
	ps, ss, ok := strings.Cut(in, ",")
	if !ok {
		return Type{}, false
	}
	p, okP := smallNumber(ps)
	c, okS := smallNumber(ss)
	if !okP || !okS || p < 1 || p > 38 || c > p {
		return Type{}, false
	}
	return Type{Kind: KindDecimal, Precision: p, Scale: c}, true
}

// smallNumber reads 0 to 99 in its shortest form.
func smallNumber(s string) (int, bool) {
	if len(s) == 0 || len(s) > 2 || (len(s) == 2 && s[0] == '0') || !digits(s) {
		return 0, false
	}
	n := 0
	for i := range len(s) {
		n = n*10 + int(s[i]-'0')
	}
	return n, true
}

// DecimalType is the type of an exact number of at most precision digits, scale
// of them after the point.
func DecimalType(precision, scale int) string {
	return "decimal(" + strconv.Itoa(precision) + "," + strconv.Itoa(scale) + ")"
}

// Numeric says whether sums and averages make sense.
func (t Type) Numeric() bool {
	return t.Kind == KindInteger || t.Kind == KindDecimal || t.Kind == KindDouble
}

// Dated says whether the type is a date or a timestamp.
func (t Type) Dated() bool {
	return t.Kind == KindDate || t.Kind == KindTimestamp || t.Kind == KindTimestampTZ
}

// Column is one published column: a name and a type, never a value.
type Column struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// Schema is what a dataset publishes about itself.
type Schema struct {
	Type        string   `json:"type"` // SchemaType
	Dataset     string   `json:"dataset"`
	Description string   `json:"description"` // plain text, may be empty
	Columns     []Column `json:"columns"`
}

// NewSchema builds and validates a schema.
func NewSchema(dataset, description string, columns []Column) (*Schema, error) {
	s := &Schema{Type: SchemaType, Dataset: dataset, Description: description, Columns: append([]Column{}, columns...)}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return s, nil
}

// ParseSchema reads a schema. Errors match ErrInvalid.
func ParseSchema(data []byte) (*Schema, error) {
	s := new(Schema)
	if err := Decode(data, s); err != nil {
		return nil, err
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return s, nil
}

// Canonical returns the schema's canonical JSON.
func (s *Schema) Canonical() ([]byte, error) { return canon.Marshal(s) }

// Digest is the SHA-256 of the canonical JSON.
func (s *Schema) Digest() (canon.Digest, error) { return digestOf(s) }

// Column finds a column by its exact name. Another case, another normal form or
// a look-alike letter is another name.
func (s *Schema) Column(name string) (Column, bool) {
	if i := s.index(name); i >= 0 {
		return s.Columns[i], true
	}
	return Column{}, false
}

// index is where a column stands, -1 if it is not there.
func (s *Schema) index(name string) int {
	if s == nil {
		return -1
	}
	for i := range s.Columns {
		if sameName(s.Columns[i].Name, name) {
			return i
		}
	}
	return -1
}

// sameName is a == b. Names of one dataset often have a length and a beginning
// in common; looking at the last byte first spares most calls of the comparison.
func sameName(a, b string) bool {
	return len(a) == len(b) && (len(a) == 0 || a[len(a)-1] == b[len(b)-1]) && a == b
}

// Validate checks every field. Column names that differ only by case are
// refused: engines that fold case could not tell them apart.
func (s *Schema) Validate() error {
	if s.Type != SchemaType {
		return invalid("type", "want "+SchemaType)
	}
	if err := checkDataset(s.Dataset); err != nil {
		return err
	}
	if err := checkText("description", s.Description, MaxText); err != nil {
		return err
	}
	if len(s.Columns) == 0 || len(s.Columns) > MaxColumns {
		return invalid("columns", "want 1 to "+strconv.Itoa(MaxColumns))
	}
	seen := make(map[string]bool, len(s.Columns))
	for i, c := range s.Columns {
		field := "columns[" + strconv.Itoa(i) + "]"
		if err := checkName(field+".name", c.Name); err != nil {
			return err
		}
		if _, ok := ParseType(c.Type); !ok {
			return invalid(field+".type", "unknown type "+Echo(c.Type))
		}
		key := foldName(c.Name)
		if seen[key] {
			return invalid(field+".name", "the name "+Echo(c.Name)+" is there twice (case is ignored here)")
		}
		seen[key] = true
	}
	return nil
}

// foldName maps names that simple case folding makes equal to one key.
func foldName(s string) string {
	return strings.Map(func(r rune) rune {
		low := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			low = min(low, f)
		}
		return low
	}, s)
}

func checkDataset(s string) error {
	if s == "" || len(s) > MaxDataset {
		return invalid("dataset", "want 1 to "+strconv.Itoa(MaxDataset)+" characters")
	}
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return invalid("dataset", "want letters, digits, '.', '_' and '-', a letter or digit first")
		}
	}
	return nil
}

// CheckColumnName says whether a column may be published under this name:
// printable, without spaces around it, at most MaxName bytes.
func CheckColumnName(name string) error { return checkName("name", name) }

func checkName(field, s string) error {
	if s == "" || len(s) > MaxName {
		return invalid(field, "want 1 to "+strconv.Itoa(MaxName)+" bytes")
	}
	if !printable(s) || s[0] == ' ' || s[len(s)-1] == ' ' {
		return invalid(field, "want printable characters without spaces around them, have "+Echo(s))
	}
	return nil
}

// printable says whether s is valid UTF-8 of letters, marks, numbers,
// punctuation, symbols and the ASCII space: no control characters, no
// invisible ones, no direction overrides.
func printable(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return validUTF8(s)
}

// checkText bounds a text that may have line breaks and tabs but no other
// control characters.
func checkText(field, s string, limit int) error {
	if len(s) > limit {
		return invalid(field, "want at most "+strconv.Itoa(limit)+" bytes")
	}
	for _, r := range s {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return invalid(field, "has control or invisible characters")
		}
	}
	if !validUTF8(s) {
		return invalid(field, "is not UTF-8")
	}
	return nil
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

func digestOf(v any) (canon.Digest, error) {
	b, err := canon.Marshal(v)
	if err != nil {
		return canon.Digest{}, err
	}
	return canon.Sum(b), nil
}
