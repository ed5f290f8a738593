// SPDX-License-Identifier: Apache-2.0

// Package dataset says what a dataset is: its columns, their types and classes, and the file they come from. A vendor's node
// publishes the schema made from it, and the data plane loads the file against it.
//
// Guarantees
//
//   - The published schema carries the dataset's id and description and the columns' names and types, and never a value.
//   - It depends on the configuration's content only, not on the order in which it is written, so that a node and a data
//     plane that hold separate copies publish the same digest.
//   - An unknown key in the configuration is an error, and so is a column without a type.
//
// A column without a class is published and cannot be granted: nobody has said yet what it is. The package reads no files
// and has no clock.
package dataset

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/treaty-node/treaty/node/contract"
)

// ClassPII is the class of columns that identify a person. Policies know it by this name; all other classes are the
// operator's own words.
const ClassPII = "pii"

// ErrConfig reports a dataset configuration that cannot be used; the error says where and why.
var ErrConfig = errors.New("dataset: configuration")

// MaxColumns is the largest number of columns of a dataset.
const MaxColumns = contract.MaxColumns

// Column describes one column.
type Column struct {
	Type  string `yaml:"type" json:"type"`                       // see [ParseType]
	Class string `yaml:"class,omitempty" json:"class,omitempty"` // empty: cannot be granted
}

// Dataset is one dataset as configured. The map's key is its id.
type Dataset struct {
	Path        string            `yaml:"path,omitempty" json:"path,omitempty"` // file, folder or pattern, relative to the folder of the file that lists it
	Source      *Source           `yaml:"source,omitempty" json:"source,omitempty"`
	Description string            `yaml:"description" json:"description"`
	Subject     string            `yaml:"subject,omitempty" json:"subject,omitempty"` // column that counts people; empty: every row is one
	Columns     map[string]Column `yaml:"columns" json:"columns"`
	CSV         CSV               `yaml:"csv,omitempty" json:"csv,omitzero"`
}

// CSV settles what a CSV file leaves open. Every field is optional; without it the import reports what it cannot decide.
type CSV struct {
	Encoding    string   `yaml:"encoding,omitempty" json:"encoding,omitempty"`                       // name of the file's encoding; default UTF-8
	Delimiter   string   `yaml:"delimiter,omitempty" json:"delimiter,omitempty"`                     // one character, or "tab"; default detected
	Header      []string `yaml:"header,omitempty" json:"header,omitempty"`                           // names that replace the header row
	NoHeader    bool     `yaml:"no_header,omitempty" json:"no_header,omitempty"`                     // the file has no header row; Header is then required
	DateFormat  string   `yaml:"date_format,omitempty" json:"date_format,omitempty"`                 // such as DD/MM/YYYY
	Decimal     string   `yaml:"decimal_separator,omitempty" json:"decimal_separator,omitempty"`     // "." (default) or ","
	Thousands   string   `yaml:"thousands_separator,omitempty" json:"thousands_separator,omitempty"` // none by default
	Nulls       []string `yaml:"nulls,omitempty" json:"nulls,omitempty"`                             // unquoted words that mean null, such as NA
	QuotedEmpty string   `yaml:"quoted_empty,omitempty" json:"quoted_empty,omitempty"`               // "text" (default) or "null": what "" means
	RaggedRows  string   `yaml:"ragged_rows,omitempty" json:"ragged_rows,omitempty"`                 // "error" (default) or "skip"
	Trim        bool     `yaml:"trim,omitempty" json:"trim,omitempty"`                               // cut spaces around unquoted values
}

// Config is the datasets section of a configuration: id to dataset.
type Config map[string]Dataset

// ParseConfig reads a YAML mapping of dataset ids and validates it. Unknown and duplicate keys are errors.
func ParseConfig(data []byte) (Config, error) {
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	dec.KnownFields(true)
	var c Config
	if err := dec.Decode(&c); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return c, c.Validate()
}

// Validate checks every dataset; errors name the dataset and column, in order of id.
func (c Config) Validate() error {
	for _, id := range slices.Sorted(maps.Keys(c)) {
		if err := c[id].validate(); err != nil {
			return fmt.Errorf("%w: datasets.%s%w", ErrConfig, id, err)
		}
		if _, err := c.Schema(id); err != nil {
			return err
		}
	}
	return nil
}

func (d Dataset) validate() error {
	if len(d.Columns) == 0 {
		return errors.New(".columns: at least one column is needed (treaty-dataplane import FILE prints them)")
	}
	for _, name := range d.ColumnNames() {
		col := d.Columns[name]
		if _, err := ParseType(col.Type); err != nil {
			return fmt.Errorf(".columns.%s.type: %w", name, err)
		}
		if !validClass(col.Class) {
			return fmt.Errorf(".columns.%s.class: %q: lower-case letters, digits, - and _ only", name, col.Class)
		}
	}
	if _, ok := d.Columns[d.Subject]; d.Subject != "" && !ok {
		return fmt.Errorf(".subject: %q is not among the columns", d.Subject)
	}
	if err := d.ValidateSource(); err != nil {
		return err
	}
	return d.CSV.validate()
}

func (o CSV) validate() error {
	if o.Delimiter != "" && o.Delimiter != "tab" && utf8.RuneCountInString(o.Delimiter) != 1 {
		return errors.New(`.csv.delimiter: one character, or "tab"`)
	}
	if !slices.Contains([]string{"", ".", ","}, o.Decimal) {
		return errors.New(`.csv.decimal_separator: "." or ","`)
	}
	if o.Thousands != "" && (utf8.RuneCountInString(o.Thousands) != 1 || o.Thousands == o.Decimal || (o.Decimal == "" && o.Thousands == ".")) {
		return errors.New(".csv.thousands_separator: one character, not the decimal separator")
	}
	if !slices.Contains([]string{"", "text", "null"}, o.QuotedEmpty) {
		return errors.New(`.csv.quoted_empty: "text" or "null"`)
	}
	if !slices.Contains([]string{"", "error", "skip"}, o.RaggedRows) {
		return errors.New(`.csv.ragged_rows: "error" or "skip"`)
	}
	if o.NoHeader && len(o.Header) == 0 {
		return errors.New(".csv.header: needed when there is no header row")
	}
	return nil
}

// ColumnNames returns the column names in ascending order of bytes.
func (d Dataset) ColumnNames() []string { return slices.Sorted(maps.Keys(d.Columns)) }

// ColumnType returns the type of a column, and false when there is no such column.
func (d Dataset) ColumnType(name string) (Type, bool) {
	col, ok := d.Columns[name]
	if !ok {
		return Type{}, false
	}
	t, err := ParseType(col.Type)
	return t, err == nil
}

// ValidName reports whether s can name a column: see [contract.CheckColumnName].
func ValidName(s string) bool { return contract.CheckColumnName(s) == nil }

func validClass(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return len(s) <= contract.MaxName
}
