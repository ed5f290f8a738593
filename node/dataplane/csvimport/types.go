// SPDX-License-Identifier: Apache-2.0

package csvimport

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/treaty-node/treaty/node/dataset"
)

// class is what one value looks like. The classes of a column's values are collected in a bit set.
type class uint16

const (
	integer   class = 1 << iota
	decimal         // digits with a point, or an exponent that keeps it exact
	floating        // a number beyond 38 digits or a far exponent
	boolean         // true, false in any case
	date            // YYYY-MM-DD, or csv.date_format
	stamp           // date and time
	stampZone       // date, time and zone
	text_           // anything else
)

// settings is a compiled dataset.CSV.
type settings struct {
	delim     byte
	layout    string // Go layout of csv.date_format
	separated bool   // the layout has separators, so that it cannot match a plain number
	decimal   string
	thousands string
	nulls     []string
	emptyNull bool
	trim      bool
}

func compile(o dataset.CSV) (*settings, error) {
	s := &settings{decimal: o.Decimal, thousands: o.Thousands, nulls: o.Nulls, emptyNull: o.QuotedEmpty == "null", trim: o.Trim}
	switch {
	case o.Delimiter == "tab":
		s.delim = '\t'
	case len(o.Delimiter) == 1 && !strings.ContainsAny(o.Delimiter, "\"\r\n") && o.Delimiter[0] < 0x80:
		s.delim = o.Delimiter[0]
	case o.Delimiter != "":
		return nil, errors.New(`csv.delimiter: one ASCII character, or "tab"`)
	}
	if o.DateFormat != "" {
		l := o.DateFormat
		for _, p := range [][2]string{{"YYYY", "2006"}, {"MM", "01"}, {"DD", "02"}} {
			if strings.Count(l, p[0]) != 1 {
				return nil, errors.New("csv.date_format: YYYY, MM and DD once each, such as DD/MM/YYYY or YYYYMMDD")
			}
			l = strings.Replace(l, p[0], p[1], 1)
		}
		rest := strings.NewReplacer("YYYY", "", "MM", "", "DD", "").Replace(o.DateFormat)
		if strings.Trim(rest, "/.- ") != "" {
			return nil, errors.New("csv.date_format: only / . - and space may stand between YYYY, MM and DD")
		}
		s.separated = rest != ""
		if s.separated { // one digit is enough where a separator follows
			l = strings.NewReplacer("01", "1", "02", "2").Replace(l)
		}
		s.layout = l
	}
	if _, err := lookup(o.Encoding); err != nil {
		return nil, err
	}
	return s, nil
}

// number rewrites configured separators to the plain form; ok is false when the value breaks them.
func (s *settings) number(v string) (string, bool) {
	if s.thousands == "" && (s.decimal == "" || s.decimal == ".") {
		return v, true
	}
	point := s.decimal
	if point == "" {
		point = "."
	}
	whole, frac, hasFrac := strings.Cut(v, point)
	if strings.Contains(frac, point) || (s.thousands != "" && strings.Contains(frac, s.thousands)) || strings.Contains(frac, ".") {
		return v, false
	}
	if s.thousands != "" && strings.Contains(whole, s.thousands) {
		groups := strings.Split(strings.TrimPrefix(whole, "-"), s.thousands)
		for i, g := range groups {
			if (i > 0 && len(g) != 3) || (i == 0 && (g == "" || len(g) > 3)) {
				return v, false
			}
		}
		whole = strings.ReplaceAll(whole, s.thousands, "")
	}
	if strings.Contains(whole, ".") {
		return v, false
	}
	if hasFrac {
		return whole + "." + frac, true
	}
	return whole, true
}

// classify says what an unescaped, non-empty value looks like; for decimals it also returns the number.
func (s *settings) classify(v string) (class, dataset.Decimal) {
	if v == "" {
		return text_, dataset.Decimal{}
	}
	switch c := v[0]; {
	case c == 't' || c == 'T' || c == 'f' || c == 'F':
		if strings.EqualFold(v, "true") || strings.EqualFold(v, "false") {
			return boolean, dataset.Decimal{}
		}
		return text_, dataset.Decimal{}
	case c != '-' && c != '.' && c != ',' && (c < '0' || c > '9'):
		return text_, dataset.Decimal{}
	}
	if s.layout != "" && s.separated {
		if _, ok := s.date(v); ok {
			return date, dataset.Decimal{}
		}
	}
	if len(v) >= 10 && v[4] == '-' && v[7] == '-' {
		if len(v) == 10 {
			if _, ok := isoDate(v); ok {
				return date, dataset.Decimal{}
			}
		} else if _, zone, ok := isoStamp(v); ok && zone {
			return stampZone, dataset.Decimal{}
		} else if ok {
			return stamp, dataset.Decimal{}
		}
		return text_, dataset.Decimal{}
	}
	n, ok := s.number(v)
	if !ok || leadingZero(n) {
		return text_, dataset.Decimal{}
	}
	d, err := dataset.ParseDecimal(n)
	switch {
	case err != nil:
		return text_, dataset.Decimal{}
	case d.Scale > dataset.MaxPrecision || d.Digits() > dataset.MaxPrecision || strings.ContainsAny(n, "eE") && d.Digits() > dataset.MaxPrecision:
		if f, err := strconv.ParseFloat(n, 64); err == nil && !math.IsInf(f, 0) && strings.ContainsAny(n, "eE") {
			return floating, d
		}
		return text_, dataset.Decimal{} // exact digits that no numeric type holds
	case strings.ContainsAny(n, ".eE"):
		return decimal, d
	}
	return integer, d
}

// leadingZero reports digits that would be lost in a number: 007, but not 0, 0.5 or -0.
func leadingZero(v string) bool {
	v = strings.TrimPrefix(v, "-")
	return len(v) > 1 && v[0] == '0' && v[1] >= '0' && v[1] <= '9'
}

// date reads csv.date_format or ISO 8601.
func (s *settings) date(v string) (time.Time, bool) {
	if s.layout != "" {
		if t, err := time.Parse(s.layout, v); err == nil && t.Year() >= 1 {
			return t, true
		}
	}
	return isoDate(v)
}

func isoDate(v string) (time.Time, bool) {
	t, err := time.Parse(time.DateOnly, v)
	return t, err == nil && t.Year() >= 1
}

// isoStamp reads YYYY-MM-DD, T or a space, HH:MM[:SS[.ffffff]], and optionally Z, ±hh:mm, ±hhmm or ±hh. More than six digits
// of a second's fraction are no timestamp, because they would be lost.
func isoStamp(v string) (t time.Time, zone, ok bool) {
	if len(v) < 16 || len(v) > 40 || (v[10] != 'T' && v[10] != ' ') {
		return t, false, false
	}
	clock, offset := v[11:], ""
	if i := strings.IndexAny(clock, "Z+-"); i >= 0 {
		clock, offset = clock[:i], clock[i:]
	}
	if i := strings.IndexByte(clock, '.'); i >= 0 && (i != 8 || len(clock)-i-1 < 1 || len(clock)-i-1 > 6) {
		return t, false, false
	}
	layout := "2006-01-02 15:04"
	if len(clock) > 5 {
		layout += ":05"
	}
	switch {
	case offset == "" || offset == "Z":
	case len(offset) == 6:
		layout += "-07:00"
	case len(offset) == 5:
		layout += "-0700"
	case len(offset) == 3:
		layout += "-07"
	default:
		return t, false, false
	}
	if offset == "Z" {
		v = v[:len(v)-1]
	}
	t, err := time.Parse(layout, v[:10]+" "+v[11:])
	return t.UTC(), offset != "", err == nil && t.Year() >= 1 && t.UTC().Year() >= 1 && t.UTC().Year() <= 9999
}

// null reports whether a field means null.
func (s *settings) null(v string, quoted bool) bool {
	if v == "" {
		return !quoted || s.emptyNull
	}
	return !quoted && len(s.nulls) > 0 && slices.Contains(s.nulls, v)
}

// convert returns the value of a field under a type; false when it does not fit.
func (s *settings) convert(v string, quoted bool, t dataset.Type) (any, bool) {
	if s.trim && !quoted {
		v = strings.TrimSpace(v)
	}
	if s.null(v, quoted) {
		return nil, true
	}
	if t.Kind == dataset.Text {
		return v, true
	}
	c, d := s.classify(v)
	switch t.Kind {
	case dataset.Integer:
		if c&(integer|decimal) == 0 {
			return nil, false
		}
		if whole, ok := d.Rescale(0); ok && whole.Unscaled.IsInt64() {
			return whole.Unscaled.Int64(), true
		}
	case dataset.DecimalKind:
		if c&(integer|decimal) == 0 {
			return nil, false
		}
		if x, ok := d.Rescale(t.Scale); ok && x.Digits() <= t.Precision {
			return x, true
		}
	case dataset.Double:
		if c&(integer|decimal|floating) == 0 {
			return nil, false
		}
		n, _ := s.number(v)
		f, err := strconv.ParseFloat(n, 64)
		return f, err == nil && !math.IsInf(f, 0)
	case dataset.Boolean:
		return c == boolean && strings.EqualFold(v, "true"), c == boolean
	case dataset.Date:
		x, ok := s.date(v)
		return x, ok
	case dataset.Timestamp:
		if x, zone, ok := isoStamp(v); ok && !zone {
			return x, true
		}
	case dataset.TimestampTZ:
		if x, zone, ok := isoStamp(v); ok && zone {
			return x, true
		}
	}
	return nil, false
}

func sortFindings(fs []Finding) {
	rank := map[Level]int{Error: 0, Warning: 1, Info: 2}
	slices.SortStableFunc(fs, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank[a.Level], rank[b.Level]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// plural writes a count with its noun.
func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
