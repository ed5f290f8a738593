// SPDX-License-Identifier: Apache-2.0

package csvimport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"

	"github.com/treaty-node/treaty/node/dataset"
)

// checkBytes is the first pass: digest, encoding, line ends. It reports false when reading on makes no sense.
func (r *Report) checkBytes(ctx context.Context, src io.ReadSeeker) (bool, error) {
	in, err := openText(ctx, src, r.opts.CSV.Encoding)
	if err != nil {
		r.add(Finding{Level: Error, Code: "encoding", Text: err.Error()})
		return false, nil
	}
	r.Encoding = strings.ToLower(r.opts.CSV.Encoding)
	if r.Encoding == "" || r.Encoding == "utf8" {
		r.Encoding = "utf-8"
	}
	c := scanText(in)
	if errors.Is(c.err, unicode.ErrMissingBOM) {
		r.add(Finding{Level: Error, Code: "encoding", Line: 1, Text: "no byte order mark: set csv.encoding to utf-16le or utf-16be"})
		return false, nil
	}
	if c.err != nil {
		return false, fmt.Errorf("csvimport: %w", c.err)
	}
	r.Digest, r.Bytes = in.sum()
	r.lone = c.lf == 0 && c.cr > 0
	converted := r.Encoding != "utf-8"
	switch {
	case c.chars == 0:
		r.add(Finding{Level: Error, Code: "empty_file", Text: "the file is empty"})
	case c.nul > 0 && !converted:
		r.add(Finding{Level: Error, Code: "encoding", Line: c.nulLine, Count: c.nul, Text: "the file holds NUL bytes: it is UTF-16 or no text; set csv.encoding (utf-16, utf-16le, utf-16be) if it is text"})
	case c.nul > 0:
		r.add(Finding{Level: Error, Code: "encoding", Line: c.nulLine, Count: c.nul, Text: "the text holds NUL characters: csv.encoding is wrong, or this is no text"})
	case c.invalid > 0:
		r.add(Finding{Level: Error, Code: "encoding", Line: c.invalidLine, Count: c.invalid, Text: "the file is not UTF-8; set csv.encoding to what it is (windows-1252 and iso-8859-1 are common, utf-16 when it comes from a spreadsheet)"})
	case c.replaced > 0 && converted:
		r.add(Finding{Level: Error, Code: "encoding", Line: c.replacedLine, Count: c.replaced, Text: "bytes that do not exist in the encoding given by csv.encoding"})
	default:
		if c.replaced > 0 {
			r.add(Finding{Level: Warning, Code: "replacement_character", Line: c.replacedLine, Count: c.replaced, Text: "the text holds replacement characters (U+FFFD): it was damaged by an earlier conversion"})
		}
		if r.lone {
			r.add(Finding{Level: Info, Code: "line_ends", Text: "lines end with CR only"})
		}
		return true, nil
	}
	return false, nil
}

// counts is what scanText finds.
type counts struct {
	chars, nul, invalid, replaced, lf, cr int64
	nulLine, invalidLine, replacedLine    int
	err                                   error
}

// scanText looks at every character.
func scanText(in io.Reader) counts {
	var c counts
	buf := make([]byte, 1<<16)
	have, line := 0, 1
	for {
		n, err := in.Read(buf[have:])
		have += n
		end := err != nil
		i := 0
		for i < have && (end || utf8.FullRune(buf[i:have])) {
			ru, size := utf8.DecodeRune(buf[i:have])
			c.chars++
			switch {
			case ru == '\n':
				c.lf++
				line++
			case ru == '\r':
				c.cr++
			case ru == 0:
				if c.nul++; c.nul == 1 {
					c.nulLine = line
				}
			case ru == utf8.RuneError && size == 1:
				if c.invalid++; c.invalid == 1 {
					c.invalidLine = line
				}
			case ru == utf8.RuneError:
				if c.replaced++; c.replaced == 1 {
					c.replacedLine = line
				}
			}
			i += size
		}
		have = copy(buf, buf[i:have])
		if end {
			if !errors.Is(err, io.EOF) {
				c.err = err
			}
			return c
		}
	}
}

// candidate is one delimiter tried over the whole file.
type candidate struct {
	delim  byte
	width  int   // fields of the first row
	rows   int64 // rows, blank lines apart
	ragged int64 // rows of another width
	fault  *structureError
}

var delimiters = []byte{',', ';', '\t', '|'}

func delimiterName(b byte) string {
	if b == '\t' {
		return "tab"
	}
	return string(b)
}

// findDelimiter is the second pass: every candidate over the whole file. One that splits every row alike wins; between
// several, the one with most columns, if there is one.
func (r *Report) findDelimiter(ctx context.Context, src io.ReadSeeker, set *settings) (bool, error) {
	if err := r.sepLine(ctx, src, set); err != nil {
		return false, err
	}
	if set.delim != 0 {
		r.delim, r.Delimiter = set.delim, delimiterName(set.delim)
		return true, nil
	}
	var best, second *candidate
	for _, d := range delimiters {
		c, err := r.try(ctx, src, d)
		if err != nil {
			return false, err
		}
		if c.width < 2 || c.fault != nil {
			continue
		}
		if better(c, best) {
			best, second = c, best
		} else if better(c, second) {
			second = c
		}
	}
	switch {
	case best == nil:
		// One column, or not CSV at all: read as comma separated, so that every fault is found and reported.
		best = &candidate{delim: ','}
	case second != nil && second.ragged == best.ragged && second.width == best.width:
		r.add(Finding{Level: Error, Code: "delimiter", Text: fmt.Sprintf("%s and %s both split every row into %d columns; set csv.delimiter", delimiterName(best.delim), delimiterName(second.delim), best.width)})
		return false, nil
	case second != nil && second.ragged == 0 && best.ragged == 0:
		r.add(Finding{Level: Warning, Code: "delimiter", Text: fmt.Sprintf("%s was taken as delimiter (%d columns); %s would also split every row alike (%d columns); set csv.delimiter to be sure", delimiterName(best.delim), best.width, delimiterName(second.delim), second.width)})
	}
	r.delim, r.Delimiter = best.delim, delimiterName(best.delim)
	return true, nil
}

// better orders candidates: consistent ones first, then by the share of rows that agree with the first, then by columns.
func better(a, b *candidate) bool {
	if b == nil {
		return true
	}
	if (a.ragged == 0) != (b.ragged == 0) {
		return a.ragged == 0
	}
	if x, y := a.ragged*b.rows, b.ragged*a.rows; x != y {
		return x < y
	}
	return a.width > b.width
}

func (r *Report) try(ctx context.Context, src io.ReadSeeker, d byte) (*candidate, error) {
	in, err := openText(ctx, src, r.opts.CSV.Encoding)
	if err != nil {
		return nil, err
	}
	c := &candidate{delim: d}
	rd := newReader(in, d, r.lone)
	for {
		rec, err := rd.next()
		switch {
		case err == io.EOF:
			return c, nil
		case errors.As(err, &c.fault):
			return c, nil
		case err != nil:
			return nil, fmt.Errorf("csvimport: %w", err)
		}
		if rec.blank() {
			continue
		}
		if c.rows++; c.rows == 1 {
			c.width = len(rec.fields)
		} else if len(rec.fields) != c.width {
			c.ragged++
		}
	}
}

// sepLine honours a first line "sep=;", which spreadsheets write.
func (r *Report) sepLine(ctx context.Context, src io.ReadSeeker, set *settings) error {
	in, err := openText(ctx, src, r.opts.CSV.Encoding)
	if err != nil {
		return err
	}
	head := make([]byte, 7)
	n, err := io.ReadFull(in, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("csvimport: %w", err)
	}
	rest, ok := strings.CutPrefix(string(head[:n]), "sep=")
	if !ok || len(rest) < 2 || (rest[1] != '\n' && rest[1] != '\r') {
		return nil
	}
	r.skip++
	if set.delim == 0 {
		set.delim = rest[0]
	}
	r.add(Finding{Level: Info, Code: "sep_line", Line: 1, Text: "the first line names the delimiter and is not data"})
	return nil
}

// findTypes is the third pass: header, row lengths, and the type of every column over all rows.
func (r *Report) findTypes(ctx context.Context, src io.ReadSeeker, set *settings) error {
	in, err := openText(ctx, src, r.opts.CSV.Encoding)
	if err != nil {
		return err
	}
	rd := newReader(in, r.delim, r.lone)
	var cols []*column
	var ragged, blank, bare tally
	headerRows := r.skip + 1
	if r.opts.CSV.NoHeader {
		headerRows = r.skip
		cols = r.header(r.opts.CSV.Header, nil, set)
	}
	for seen := 0; ; {
		rec, err := rd.next()
		if err == io.EOF {
			break
		}
		var s *structureError
		if errors.As(err, &s) {
			r.add(Finding{Level: Error, Code: s.code, Line: s.line, Text: s.text})
			break
		}
		if err != nil {
			return fmt.Errorf("csvimport: %w", err)
		}
		bare.add(rec.line, int64(rec.bare))
		seen++
		if seen <= r.skip {
			continue
		}
		if rec.blank() {
			blank.add(rec.line, 1)
			if seen == headerRows {
				headerRows++ // blank lines before the header
			}
			continue
		}
		if seen == headerRows {
			cols = r.header(r.opts.CSV.Header, rec, set)
			continue
		}
		if len(rec.fields) != len(cols) {
			ragged.add(rec.line, 1)
			if ragged.n <= maxLines {
				level, fate := Error, "set csv.delimiter, or csv.ragged_rows: skip to leave such rows out"
				if r.opts.CSV.RaggedRows == "skip" {
					level, fate = Warning, "the row is left out"
				}
				r.add(Finding{Level: level, Code: "ragged_row", Line: rec.line, Text: fmt.Sprintf("%d fields where the header has %d; %s", len(rec.fields), len(cols), fate)})
			}
			continue
		}
		r.Rows++
		for i, c := range cols {
			c.see(rec.line, rec.text(i), rec.fields[i].quoted, set)
		}
	}
	r.skip = headerRows
	if ragged.n > maxLines {
		level := Error
		if r.opts.CSV.RaggedRows == "skip" {
			level = Warning
		}
		r.add(Finding{Level: level, Code: "ragged_row", Count: ragged.n, Text: fmt.Sprintf("%d rows have another number of fields than the header; the first %d are listed", ragged.n, maxLines)})
	}
	if blank.n > 0 {
		r.add(Finding{Level: blankLevel(len(cols)), Code: "blank_line", Line: blank.line, Count: blank.n, Text: "blank lines are left out (write \"\" for an empty value)"})
	}
	if bare.n > 0 {
		r.add(Finding{Level: Warning, Code: "bare_quote", Line: bare.line, Count: bare.n, Text: "quotes inside unquoted fields are taken as they stand"})
	}
	if cols == nil {
		r.add(Finding{Level: Error, Code: "no_header", Text: "there is no header row"})
	} else if r.Rows == 0 {
		r.add(Finding{Level: Warning, Code: "no_rows", Text: "there are no rows"})
	}
	for _, c := range cols {
		c.finish(r, set)
	}
	for name := range r.opts.Declared {
		if !r.hasColumn(name) && cols != nil {
			r.add(Finding{Level: Error, Code: "missing_column", Column: name, Text: "the configuration has this column and the file has not"})
		}
	}
	sortFindings(r.Findings)
	return nil
}

// blankLevel: with one column a blank line may have been meant as a value.
func blankLevel(columns int) Level {
	if columns == 1 {
		return Warning
	}
	return Info
}

func (r *Report) hasColumn(name string) bool {
	for _, c := range r.Columns {
		if c.Name == name {
			return true
		}
	}
	return false
}

// tally counts something and remembers its first line.
type tally struct {
	n    int64
	line int
}

func (t *tally) add(line int, n int64) {
	if t.n == 0 && n > 0 {
		t.line = line
	}
	t.n += n
}

// header checks the names and makes the columns. rec is nil when the file has no header row.
func (r *Report) header(replace []string, rec *record, set *settings) []*column {
	var names []string
	line := 0
	if rec != nil {
		line = rec.line
		data := true
		for i := range rec.fields {
			name := rec.text(i)
			names = append(names, name)
			cl, _ := set.classify(name)
			data = data && cl != text_ && name != ""
		}
		if data && len(replace) == 0 {
			r.add(Finding{Level: Error, Code: "header_is_data", Line: line, Text: "every field of the first row is a number, date or boolean: this looks like data; set csv.header to the names (and csv.no_header: true if the row is data)"})
			names = nil
			for i := range rec.fields { // values must not show as names
				names = append(names, fmt.Sprintf("column %d", i+1))
			}
		}
		if len(replace) > 0 && len(replace) != len(names) {
			r.add(Finding{Level: Error, Code: "header_length", Line: line, Text: fmt.Sprintf("csv.header has %d names and the file's first row %d fields", len(replace), len(names))})
			replace = nil
		}
	}
	if len(replace) > 0 {
		names = replace
	}
	byName := map[string]int{}
	cols := make([]*column, len(names))
	for i, name := range names {
		if t := strings.TrimSpace(name); t != name {
			r.add(Finding{Level: Warning, Code: "header_space", Line: line, Column: t, Text: "white space around the name is cut off"})
			name = t
		}
		switch first, dup := byName[strings.ToLower(name)]; {
		case name == "":
			r.add(Finding{Level: Error, Code: "header_empty", Line: line, Text: fmt.Sprintf("column %d has no name; set csv.header", i+1)})
		case !dataset.ValidName(name):
			r.add(Finding{Level: Error, Code: "header_name", Line: line, Text: fmt.Sprintf("the name of column %d is too long or holds characters that cannot be shown; set csv.header", i+1)})
		case dup:
			r.add(Finding{Level: Error, Code: "header_duplicate", Line: line, Column: name, Text: fmt.Sprintf("columns %d and %d have the same name (case does not count); set csv.header", first+1, i+1)})
		default:
			byName[strings.ToLower(name)] = i
		}
		cols[i] = &column{name: name}
		if t, ok := r.opts.Declared[name]; ok {
			cols[i].declared = t
		}
	}
	return cols
}
