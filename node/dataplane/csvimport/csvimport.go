// SPDX-License-Identifier: Apache-2.0

// Package csvimport turns any CSV file into typed rows, or says precisely why not.
//
// Guarantees
//
//   - Nothing is guessed in silence. A type is what fits every value of the whole file; whatever can be read in two ways
//     (a date like 01/02/2025, two delimiters, a row of another length, an encoding other than UTF-8) is reported, and stays
//     text or stops the import until the operator's configuration ([dataset.CSV]) settles it.
//   - Numbers are exact: money becomes decimal, never floating point; digits with leading zeros stay text.
//   - An unquoted empty field is null and a quoted empty field is the empty text.
//   - A report names lines and columns and never quotes a value: values are the data that is being protected.
//   - The rows that are loaded are the bytes that were inspected: a file that changes in between is refused ([ErrChanged]).
//   - Memory does not grow with the file.
//
// It does not repair: no rows are padded, no characters replaced, no separators stripped unless told so.
package csvimport

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/dataset"
)

var (
	// ErrChanged: the file is not the one that was inspected.
	ErrChanged = errors.New("csvimport: the file changed after it was inspected")
	// ErrReport: the report has errors, so nothing is loaded.
	ErrReport = errors.New("csvimport: the file cannot be imported as it is")
	// ErrColumn: a column that the file does not have.
	ErrColumn = errors.New("csvimport: no such column")
)

// Bounds on one file. A file beyond them is reported, not read on.
const (
	MaxFieldBytes = 1 << 20
	MaxFields     = dataset.MaxColumns
	maxLines      = 20 // lines listed for one kind of finding; the rest are counted
)

// Level says what a finding does to the import.
type Level string

// The levels. An error stops the import.
const (
	Error   Level = "error"
	Warning Level = "warning"
	Info    Level = "info"
)

// Finding is one thing the operator should know. It never contains a value of the file.
type Finding struct {
	Level  Level  `json:"level"`
	Code   string `json:"code"`             // stable word, such as ragged_row
	Line   int    `json:"line,omitempty"`   // first line concerned, 1-based; 0 for none
	Column string `json:"column,omitempty"` // name from the header
	Count  int64  `json:"count,omitempty"`  // values or rows concerned
	Text   string `json:"text"`             // what it is and what to do
}

// ColumnReport is what was found in one column.
type ColumnReport struct {
	Name       string       `json:"name"`
	Type       dataset.Type `json:"-"`
	TypeName   string       `json:"type"`
	Nulls      int64        `json:"nulls"`       // unquoted empty fields and configured null words
	EmptyTexts int64        `json:"empty_texts"` // quoted empty fields
}

// Report is the outcome of an inspection.
type Report struct {
	Digest    canon.Digest   `json:"digest"` // SHA-256 of the file
	Bytes     int64          `json:"bytes"`
	Encoding  string         `json:"encoding"`
	Delimiter string         `json:"delimiter"`
	Rows      int64          `json:"rows"` // without the header and without skipped rows
	Columns   []ColumnReport `json:"columns"`
	Findings  []Finding      `json:"findings"`

	opts  Options
	delim byte
	skip  int // physical records before the data: a sep= line, the header
	lone  bool
}

// OK reports whether the file can be loaded.
func (r *Report) OK() bool {
	for _, f := range r.Findings {
		if f.Level == Error {
			return false
		}
	}
	return true
}

// Err is nil when the file can be loaded, and otherwise wraps [ErrReport] with the first error's text.
func (r *Report) Err() error {
	for _, f := range r.Findings {
		if f.Level != Error {
			continue
		}
		where := ""
		if f.Line > 0 {
			where = fmt.Sprintf("line %d: ", f.Line)
		}
		if f.Column != "" {
			where += fmt.Sprintf("column %q: ", f.Column)
		}
		return fmt.Errorf("%w: %s%s", ErrReport, where, f.Text)
	}
	return nil
}

func (r *Report) add(f Finding) { r.Findings = append(r.Findings, f) }

// Options settles what a file leaves open.
type Options struct {
	CSV dataset.CSV
	// Declared gives the types that the operator configured; a value that does not fit is an error. Columns that are not
	// declared get the type found.
	Declared map[string]dataset.Type
}

// OptionsFor returns the options for a configured dataset.
func OptionsFor(d dataset.Dataset) Options {
	o := Options{CSV: d.CSV, Declared: make(map[string]dataset.Type, len(d.Columns))}
	for _, name := range d.ColumnNames() {
		if t, ok := d.ColumnType(name); ok {
			o.Declared[name] = t
		}
	}
	return o
}

// Inspect reads the whole of src, several times, from its beginning. The error is about reading only: what is wrong with the
// file is in the report.
func Inspect(ctx context.Context, src io.ReadSeeker, o Options) (*Report, error) {
	rep := &Report{opts: o}
	set, err := compile(o.CSV)
	if err != nil {
		rep.add(Finding{Level: Error, Code: "configuration", Text: err.Error()})
		return rep, nil
	}
	ok, err := rep.checkBytes(ctx, src)
	if err != nil || !ok {
		return rep, err
	}
	if ok, err = rep.findDelimiter(ctx, src, set); err != nil || !ok {
		return rep, err
	}
	return rep, rep.findTypes(ctx, src, set)
}

// Load reads src again and calls fn with the values of the named columns, row by row, in the file's order. A value is nil,
// string, int64, [dataset.Decimal], float64, bool or time.Time (UTC), as the column's type in the report says. The slice is
// reused for the next row. fn's error ends the reading and is returned.
//
// When Load returns an error, including [ErrChanged] at the end, the rows handed out so far must not be used.
func (r *Report) Load(ctx context.Context, src io.ReadSeeker, columns []string, fn func(row []any) error) error {
	if err := r.Err(); err != nil {
		return err
	}
	set, err := compile(r.opts.CSV)
	if err != nil {
		return err
	}
	index := make([]int, len(columns))
	for i, name := range columns {
		index[i] = -1
		for j, c := range r.Columns {
			if c.Name == name {
				index[i] = j
			}
		}
		if index[i] < 0 {
			return fmt.Errorf("%w: %q", ErrColumn, name)
		}
	}
	in, err := openText(ctx, src, r.opts.CSV.Encoding)
	if err != nil {
		return err
	}
	rd := newReader(in, r.delim, r.lone)
	row := make([]any, len(columns))
	seen := 0
	for {
		rec, err := rd.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return readError(err, ErrChanged)
		}
		if seen++; seen <= r.skip || rec.blank() {
			continue
		}
		if len(rec.fields) != len(r.Columns) {
			if r.opts.CSV.RaggedRows == "skip" {
				continue
			}
			return ErrChanged
		}
		for i, j := range index {
			v, ok := set.convert(rec.text(j), rec.fields[j].quoted, r.Columns[j].Type)
			if !ok {
				return ErrChanged
			}
			row[i] = v
		}
		if err := fn(row); err != nil {
			return err
		}
	}
	if sum, n := in.sum(); sum != r.Digest || n != r.Bytes {
		return ErrChanged
	}
	return nil
}

// readError passes reading and cancellation errors on, and answers a change of the file's structure with changed.
func readError(err, changed error) error {
	var s *structureError
	if errors.As(err, &s) {
		return changed
	}
	return err
}
