// SPDX-License-Identifier: Apache-2.0

package csvimport

import (
	"fmt"
	"slices"
	"strings"

	"github.com/treaty-node/treaty/node/dataset"
)

// column collects what the values of one column are, over the whole file.
type column struct {
	name     string
	declared dataset.Type // zero: not declared

	classes     class
	values      int64 // neither null nor empty text
	nulls       int64
	empty       tally // quoted empty fields
	typed       int64 // values that are no text
	whole       int   // most digits before the point
	scale       int   // most digits after it
	beyond64    bool  // an integer outside int64
	misfit      tally // values that the declared type cannot hold
	firstText   int   // line of the first value that is text
	zeros       tally // leading zeros
	dayOrMonth  tally // 1/2/2025 and the like
	dayFirst    bool  // one with a first part over 12
	monthFirst  bool  // one with a second part over 12
	formatted   tally // thousands separators, decimal commas, currency signs
	missing     tally // NULL, NA and the like
	spaced      tally // typed but for spaces around
	oddDecimals tally // numbers that no decimal holds
}

// see takes one field into account.
func (c *column) see(line int, v string, quoted bool, set *settings) {
	if set.trim && !quoted {
		v = strings.TrimSpace(v)
	}
	if v == "" && quoted {
		c.empty.add(line, 1)
		if !set.emptyNull {
			return
		}
	}
	if set.null(v, quoted) {
		c.nulls++
		return
	}
	c.values++
	if c.declared.Kind != 0 {
		if _, ok := set.convert(v, quoted, c.declared); !ok {
			c.misfit.add(line, 1)
		}
	}
	cl, d := set.classify(v)
	c.classes |= cl
	if cl != text_ {
		c.typed++
	}
	switch cl {
	case integer, decimal:
		c.whole = max(c.whole, d.Digits()-d.Scale)
		c.scale = max(c.scale, d.Scale)
		c.beyond64 = c.beyond64 || (cl == integer && !d.Unscaled.IsInt64())
	case text_:
		c.seeText(line, v, set)
	}
}

var missingWords = []string{"null", "na", "n/a", "#n/a", "nan", "none", "nil", "-", "--", `\n`, "?", "inf", "-inf", "infinity"}

// seeText looks for the reasons why a value is text where another type may have been meant.
func (c *column) seeText(line int, v string, set *settings) {
	if c.firstText == 0 {
		c.firstText = line
	}
	trimmed := strings.TrimSpace(v)
	switch first, second, like := dayMonth(v); {
	case like:
		c.dayOrMonth.add(line, 1)
		c.dayFirst = c.dayFirst || first > 12
		c.monthFirst = c.monthFirst || second > 12
	case leadingZero(v) && digitsOnly(v):
		c.zeros.add(line, 1)
	case slices.Contains(missingWords, strings.ToLower(trimmed)):
		c.missing.add(line, 1)
	case trimmed != v && trimmed != "":
		if cl, _ := set.classify(trimmed); cl != text_ {
			c.spaced.add(line, 1)
		}
	case digitsOnly(strings.Replace(strings.TrimPrefix(v, "-"), ".", "", 1)) && !leadingZero(v):
		c.oddDecimals.add(line, 1)
	case formattedNumber(v):
		c.formatted.add(line, 1)
	}
}

func digitsOnly(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// dayMonth reports d/m/y or m/d/y with / . or - between.
func dayMonth(v string) (first, second int, ok bool) {
	if len(v) < 6 || len(v) > 10 {
		return 0, 0, false
	}
	sep := strings.IndexAny(v, "/.-")
	if sep < 1 || sep > 2 {
		return 0, 0, false
	}
	parts := strings.Split(v, v[sep:sep+1])
	if len(parts) != 3 || len(parts[1]) > 2 || (len(parts[2]) != 2 && len(parts[2]) != 4) {
		return 0, 0, false
	}
	for _, p := range parts {
		if !digitsOnly(p) {
			return 0, 0, false
		}
	}
	number := func(s string) int {
		n := 0
		for i := range len(s) {
			n = n*10 + int(s[i]-'0')
		}
		return n
	}
	first, second = number(parts[0]), number(parts[1])
	return first, second, first >= 1 && second >= 1 && first <= 31 && second <= 31 && (first <= 12 || second <= 12)
}

// formattedNumber reports a number with a currency sign, thousands separators or a decimal comma.
func formattedNumber(v string) bool {
	v = strings.Trim(v, "$€£¥ \u00a0\u202f()+-%")
	for _, code := range []string{"EUR", "USD", "GBP", "CHF", "JPY"} {
		v = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(v, code), code))
	}
	if v == "" || v[0] < '0' || v[0] > '9' {
		return false
	}
	return strings.Trim(v, "0123456789.,' \u00a0\u202f’") == ""
}

// finish settles the type and reports what the operator should know.
func (c *column) finish(r *Report, set *settings) {
	found := c.found()
	emptyBlocks := c.empty.n > 0 && !set.emptyNull && found.Kind != dataset.Text && c.values > 0
	if emptyBlocks {
		found = dataset.Type{Kind: dataset.Text}
	}
	add := func(level Level, code string, t tally, text string) {
		r.add(Finding{Level: level, Code: code, Line: t.line, Count: t.n, Column: c.name, Text: text})
	}
	if c.empty.n > 0 && c.nulls > 0 && !set.emptyNull {
		add(Warning, "null_and_empty", c.empty, "both empty fields (null) and quoted empty fields (empty text) occur and are kept apart; set csv.quoted_empty: null if they mean the same")
	}
	if c.declared.Kind != 0 {
		c.finishDeclared(r, set, found, add)
		return
	}
	if emptyBlocks {
		add(Warning, "quoted_empty", c.empty, "kept as text because of quoted empty fields; set csv.quoted_empty: null if they mean null")
	}
	c.explain(found, add)
	r.Columns = append(r.Columns, ColumnReport{Name: c.name, Type: found, TypeName: dataset.TypeName(found), Nulls: c.nulls, EmptyTexts: c.emptyTexts(set)})
}

func (c *column) emptyTexts(set *settings) int64 {
	if set.emptyNull {
		return 0
	}
	return c.empty.n
}

// finishDeclared holds the values against the operator's type.
func (c *column) finishDeclared(r *Report, set *settings, found dataset.Type, add func(Level, string, tally, string)) {
	misfit := c.misfit
	if c.declared.Kind != dataset.Text && c.empty.n > 0 && !set.emptyNull {
		add(Error, "quoted_empty", c.empty, fmt.Sprintf("quoted empty fields are text and the column is declared %s; set csv.quoted_empty: null if they mean null", dataset.TypeName(c.declared)))
	}
	if misfit.n > 0 {
		text := fmt.Sprintf("%s not fit the declared type %s; found: %s", does(misfit.n), dataset.TypeName(c.declared), dataset.TypeName(found))
		if c.dayOrMonth.n > 0 && c.declared.Kind == dataset.Date {
			text += "; dates are not written as YYYY-MM-DD: set csv.date_format"
		}
		if c.formatted.n > 0 && c.declared.Numeric() {
			text += "; numbers carry separators or signs: set csv.decimal_separator and csv.thousands_separator"
		}
		if c.missing.n > 0 {
			text += "; words that stand for a missing value occur: list them in csv.nulls"
		}
		add(Error, "type_mismatch", misfit, text)
	}
	if c.declared.Kind == dataset.Double {
		add(Warning, "double", tally{}, "double is inexact: prefer decimal(p,s) for amounts")
	}
	r.Columns = append(r.Columns, ColumnReport{Name: c.name, Type: c.declared, TypeName: dataset.TypeName(c.declared), Nulls: c.nulls, EmptyTexts: c.emptyTexts(set)})
}

func does(n int64) string {
	if n == 1 {
		return "1 value does"
	}
	return plural(n, "value") + " do"
}

// found is the narrowest type that fits every value; text when there is none, or no value at all.
func (c *column) found() dataset.Type {
	fits := func(allowed class) bool { return c.classes != 0 && c.classes&^allowed == 0 }
	switch {
	case fits(integer) && !c.beyond64:
		return dataset.Type{Kind: dataset.Integer}
	case fits(integer|decimal) && max(c.whole, 0)+c.scale <= dataset.MaxPrecision:
		return dataset.Type{Kind: dataset.DecimalKind, Precision: max(max(c.whole, 0)+c.scale, 1), Scale: c.scale}
	case fits(integer|decimal|floating) && c.classes&floating != 0:
		return dataset.Type{Kind: dataset.Double}
	case fits(boolean):
		return dataset.Type{Kind: dataset.Boolean}
	case fits(date):
		return dataset.Type{Kind: dataset.Date}
	case fits(stamp):
		return dataset.Type{Kind: dataset.Timestamp}
	case fits(stampZone):
		return dataset.Type{Kind: dataset.TimestampTZ}
	}
	return dataset.Type{Kind: dataset.Text}
}

// explain reports why a column that was not declared has the type it has.
func (c *column) explain(found dataset.Type, add func(Level, string, tally, string)) {
	if c.values == 0 {
		add(Warning, "empty_column", tally{}, "no values: kept as text; declare its type")
		return
	}
	switch found.Kind {
	case dataset.Double:
		add(Warning, "double", tally{}, "numbers with exponents beyond 38 digits: taken as double, which is inexact")
		return
	case dataset.DecimalKind:
		if c.beyond64 {
			add(Info, "big_integer", tally{}, "integers beyond 64 bits: taken as "+dataset.TypeName(found))
		}
		return
	case dataset.Text:
	default:
		return
	}
	switch {
	case c.dayOrMonth.n == c.values && c.dayFirst && c.monthFirst:
		add(Warning, "ambiguous_date", c.dayOrMonth, "dates in two orders: kept as text, no one date format reads them all")
	case c.dayOrMonth.n == c.values && c.dayFirst:
		add(Warning, "date_format", c.dayOrMonth, "dates that only fit day before month: kept as text; set csv.date_format, such as DD/MM/YYYY")
	case c.dayOrMonth.n == c.values && c.monthFirst:
		add(Warning, "date_format", c.dayOrMonth, "dates that only fit month before day: kept as text; set csv.date_format, such as MM/DD/YYYY")
	case c.dayOrMonth.n == c.values:
		add(Warning, "ambiguous_date", c.dayOrMonth, "dates that can be read as day/month or month/day: kept as text; set csv.date_format")
	case c.zeros.n > 0 && c.zeros.n+c.typed == c.values:
		add(Info, "leading_zeros", c.zeros, "digits with leading zeros (codes, not numbers): kept as text")
	case c.formatted.n > 0 && c.formatted.n+c.typed == c.values:
		add(Warning, "number_format", c.formatted, "numbers with separators or currency signs: kept as text; set csv.decimal_separator and csv.thousands_separator if they are numbers")
	case c.missing.n > 0 && c.missing.n+c.typed == c.values:
		add(Warning, "missing_words", c.missing, "kept as text only because of words that stand for a missing value; list them in csv.nulls")
	case c.spaced.n > 0 && c.spaced.n+c.typed == c.values:
		add(Warning, "spaces", c.spaced, "kept as text because of spaces around values; set csv.trim: true")
	case c.oddDecimals.n > 0 && c.oddDecimals.n+c.typed == c.values:
		add(Warning, "too_many_digits", c.oddDecimals, "numbers of more than 38 digits: kept as text")
	case c.classes&text_ == 0:
		add(Warning, "mixed_types", tally{n: c.values}, "values of several types (dates with and without time or zone, numbers among them): kept as text")
	case c.typed*2 >= c.values:
		add(Warning, "late_text", tally{c.values - c.typed, c.firstText}, fmt.Sprintf("kept as text: %s typed, the first that is not stands on this line", of(c.typed, c.values)))
	}
}

func of(n, all int64) string { return fmt.Sprintf("%d of %d values are", n, all) }
