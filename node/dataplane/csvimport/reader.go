// SPDX-License-Identifier: Apache-2.0

package csvimport

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"

	"github.com/treaty-node/treaty/did/canon"
)

// field is one field of a record: a range of the record's bytes, and whether it was written in quotes.
type field struct {
	start, end int
	quoted     bool
}

// record is one parsed record. It is valid until the next one is read.
type record struct {
	line   int // where it begins
	buf    []byte
	fields []field
	bare   int // quotes inside unquoted fields, taken literally
}

func (r *record) text(i int) string { return string(r.buf[r.fields[i].start:r.fields[i].end]) }

// blank reports an empty line.
func (r *record) blank() bool {
	return len(r.fields) == 1 && !r.fields[0].quoted && r.fields[0].start == r.fields[0].end
}

// structureError is a file that is no CSV under the delimiter in use.
type structureError struct {
	line int
	code string
	text string
}

func (e *structureError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.text) }

// reader splits text into records (RFC 4180): fields separated by one byte, quoted fields may hold separators, line ends and
// doubled quotes. Records end with LF or CRLF, or with a lone CR when the file has no LF at all.
type reader struct {
	in    *bufio.Reader
	delim byte
	lone  bool // lone CR ends a record
	line  int  // line of the next byte
	rec   record
}

func newReader(in io.Reader, delim byte, lone bool) *reader {
	return &reader{in: bufio.NewReaderSize(in, 1<<16), delim: delim, lone: lone, line: 1}
}

// next returns the next record, or io.EOF.
func (r *reader) next() (*record, error) {
	rec := &r.rec
	rec.buf, rec.fields, rec.line, rec.bare = rec.buf[:0], rec.fields[:0], r.line, 0
	if _, err := r.in.Peek(1); err != nil {
		return nil, err
	}
	for {
		last, err := r.field(rec)
		if err != nil {
			return nil, err
		}
		if last {
			return rec, nil
		}
		if len(rec.fields) > MaxFields {
			return nil, &structureError{r.line, "too_many_fields", fmt.Sprintf("more than %d fields in one row", MaxFields)}
		}
	}
}

// field reads one field and reports whether it ended the record.
func (r *reader) field(rec *record) (last bool, err error) {
	f := field{start: len(rec.buf)}
	opened := r.line
	inQuotes := false
	for first := true; ; first = false {
		c, err := r.in.ReadByte()
		if err == io.EOF {
			if inQuotes {
				return false, &structureError{opened, "unclosed_quote", "a quoted field begins here and never ends"}
			}
			f.end = len(rec.buf)
			rec.fields = append(rec.fields, f)
			return true, nil
		}
		if err != nil {
			return false, err
		}
		switch {
		case inQuotes && c == '"':
			if p, _ := r.in.Peek(1); len(p) == 1 && p[0] == '"' {
				_, _ = r.in.Discard(1) // peeked
				rec.buf = append(rec.buf, '"')
				continue
			}
			inQuotes = false
			continue
		case inQuotes:
			if c == '\n' || (c == '\r' && r.lone) {
				r.line++
			}
		case c == '"' && first:
			f.quoted, inQuotes = true, true
			continue
		case c == r.delim:
			f.end = len(rec.buf)
			rec.fields = append(rec.fields, f)
			return false, nil
		case c == '\n' || (c == '\r' && (r.lone || r.followedByLF())):
			if c == '\r' && !r.lone {
				_, _ = r.in.Discard(1) // the LF, peeked
			}
			r.line++
			f.end = len(rec.buf)
			rec.fields = append(rec.fields, f)
			return true, nil
		case f.quoted:
			return false, &structureError{r.line, "text_after_quote", "text follows a closing quote: quotes inside a quoted field must be doubled"}
		case c == '"':
			rec.bare++
		}
		rec.buf = append(rec.buf, c)
		if len(rec.buf)-f.start > MaxFieldBytes {
			return false, &structureError{opened, "field_too_long", fmt.Sprintf("a field is longer than %d bytes (a quote that was never closed?)", MaxFieldBytes)}
		}
	}
}

func (r *reader) followedByLF() bool {
	p, _ := r.in.Peek(1)
	return len(p) == 1 && p[0] == '\n'
}

// text is a file as UTF-8 without a byte order mark. It hashes the raw bytes as they pass and ends when ctx does.
type text struct {
	ctx  context.Context //nolint:containedctx // lives for one pass over the file
	src  io.Reader
	hash hash.Hash
	n    int64
	out  io.Reader
}

// openText begins a pass over src.
func openText(ctx context.Context, src io.ReadSeeker, name string) (*text, error) {
	if _, err := src.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("csvimport: %w", err)
	}
	enc, err := lookup(name)
	if err != nil {
		return nil, err
	}
	t := &text{ctx: ctx, src: src, hash: sha256.New()}
	raw := bufio.NewReaderSize(rawReader{t}, 1<<16)
	if enc != nil {
		raw = bufio.NewReader(enc.NewDecoder().Reader(raw))
	}
	if p, _ := raw.Peek(3); string(p) == bom {
		_, _ = raw.Discard(3) // peeked
	}
	t.out = raw
	return t, nil
}

const bom = "\xef\xbb\xbf"

func (t *text) Read(p []byte) (int, error) { return t.out.Read(p) }

// sum is the digest and number of the bytes read. Call it at the end of the text.
func (t *text) sum() (canon.Digest, int64) {
	var d canon.Digest
	t.hash.Sum(d[:0])
	return d, t.n
}

type rawReader struct{ t *text }

func (r rawReader) Read(p []byte) (int, error) {
	if err := r.t.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.t.src.Read(p)
	r.t.hash.Write(p[:n])
	r.t.n += int64(n)
	return n, err
}

// lookup finds an encoding by name; nil is UTF-8.
func lookup(name string) (encoding.Encoding, error) {
	switch strings.ToLower(name) {
	case "", "utf-8", "utf8":
		return nil, nil //nolint:nilnil // nil is UTF-8
	case "utf-16":
		return unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM), nil
	}
	enc, err := htmlindex.Get(name)
	if err != nil {
		return nil, fmt.Errorf("csv.encoding: %q is not known (utf-8, utf-16, utf-16le, utf-16be, windows-1252, iso-8859-1, iso-8859-15, shift_jis, …)", name)
	}
	return enc, nil
}
