// SPDX-License-Identifier: Apache-2.0

package sqlitefile

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
)

// Dialect is how SQLite spells statements. A column is read through a function that checks every value and gives it one form:
// decimals count their last digit, dates are days and timestamps microseconds since 1970, booleans are 0 and 1. All of them are
// 64-bit integers, which SQLite compares and orders exactly.
type Dialect struct{ source.Common }

var _ source.Dialect = Dialect{}

// MaxPrecision is how many digits a decimal can have here: what fits 64 bits.
const MaxPrecision = 18

// Name implements [source.Dialect].
func (Dialect) Name() string { return "sqlite" }

// Column implements [source.Dialect].
func (d Dialect) Column(name string, t dataset.Type) string {
	x := source.Alias + "." + d.Ident(name)
	switch t.Kind {
	case dataset.Integer:
		return "treaty_integer(" + x + ")"
	case dataset.DecimalKind:
		return fmt.Sprintf("treaty_decimal(%s, %d, %d)", x, t.Precision, t.Scale)
	case dataset.Double:
		return "treaty_double(" + x + ")"
	case dataset.Boolean:
		return "treaty_boolean(" + x + ")"
	case dataset.Date:
		return "treaty_date(" + x + ")"
	case dataset.Timestamp:
		return "treaty_timestamp(" + x + ")"
	case dataset.TimestampTZ:
		return "treaty_instant(" + x + ")"
	default:
		return "treaty_text(" + x + ")" // which also forgets a collation of the column's
	}
}

// Param implements [source.Dialect].
func (Dialect) Param(n int, _ dataset.Type) string { return "?" + strconv.Itoa(n) }

// Arg implements [source.Dialect].
func (d Dialect) Arg(text string, t dataset.Type) (any, error) {
	switch t.Kind {
	case dataset.DecimalKind:
		return units(text, t.Scale)
	case dataset.Boolean:
		b, err := strconv.ParseBool(text)
		if b {
			return int64(1), err
		}
		return int64(0), err
	case dataset.Date:
		return days(text)
	case dataset.Timestamp, dataset.TimestampTZ:
		return micros(strings.TrimSuffix(text, "Z"))
	default:
		return d.Common.Arg(text, t)
	}
}

// Double implements [source.Dialect].
func (Dialect) Double(x string) string { return "CAST(" + x + " AS REAL)" }

// Sum implements [source.Dialect]. A sum that leaves 64 bits is out of range.
func (Dialect) Sum(x string, t dataset.Type) string {
	if t.Kind == dataset.Double {
		return "treaty_dsum(" + x + ")"
	}
	return "treaty_sum(" + x + ")"
}

// Quantile implements [source.Dialect].
func (Dialect) Quantile(x, p string, desc bool, _ dataset.Type) string {
	order := "0"
	if desc {
		order = "1"
	}
	return "treaty_quantile(" + x + ", '" + p + "', " + order + ")"
}

// Stddev implements [source.Dialect].
func (d Dialect) Stddev(x string, t dataset.Type) string {
	scale := 0
	if t.Kind == dataset.DecimalKind {
		scale = t.Scale
	}
	return fmt.Sprintf("treaty_stddev(%s, %d)", x, scale)
}

// Truncate implements [source.Dialect].
func (Dialect) Truncate(unit, x string, t dataset.Type) string {
	if t.Kind == dataset.Date {
		return "treaty_trunc_date('" + unit + "', " + x + ")"
	}
	return "treaty_trunc_time('" + unit + "', " + x + ")"
}

// Prefix implements [source.Dialect].
func (Dialect) Prefix(x, p string) string { return "treaty_prefix(" + x + ", " + p + ")" }

// units is a decimal text as a number of its last digits.
func units(text string, scale int) (int64, error) {
	d, err := dataset.ParseDecimal(text)
	if err != nil {
		return 0, errValue
	}
	d, ok := d.Rescale(scale)
	if !ok || !d.Unscaled.IsInt64() {
		return 0, errValue
	}
	return d.Unscaled.Int64(), nil
}

const day = 24 * time.Hour / time.Microsecond // in microseconds

// days reads YYYY-MM-DD.
func days(text string) (int64, error) {
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return 0, errValue
	}
	return floor(t.UnixMicro(), int64(day)), nil
}

// micros reads a timestamp without a zone, with T or a space, and at most six digits of a second.
func micros(text string) (int64, error) {
	if _, frac, _ := strings.Cut(text, "."); len(frac) > 6 {
		return 0, errValue
	}
	t, err := time.Parse("2006-01-02T15:04:05", strings.Replace(text, " ", "T", 1))
	if err != nil {
		return 0, errValue
	}
	return t.UnixMicro(), nil
}

// instant reads a timestamp with a zone.
func instant(text string) (int64, error) {
	if _, frac, _ := strings.Cut(text, "."); len(strings.TrimRight(frac, "Z+-:0123456789")) > 0 || digits(frac) > 6 {
		return 0, errValue
	}
	text = strings.Replace(text, " ", "T", 1)
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05Z07"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UnixMicro(), nil
		}
	}
	return 0, errValue
}

func digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}

// floor divides towards minus infinity.
func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// truncate cuts microseconds since 1970 to a unit; weeks begin on Monday.
func truncate(unit string, us int64) (int64, error) {
	t := time.UnixMicro(us).UTC()
	y, m, d := t.Date()
	switch unit {
	case "year":
		m, d = time.January, 1
	case "quarter":
		m, d = (m-1)/3*3+1, 1
	case "month":
		d = 1
	case "week":
		d -= (int(t.Weekday()) + 6) % 7
	case "day":
	case "hour":
		return floor(us, int64(time.Hour/time.Microsecond)) * int64(time.Hour/time.Microsecond), nil
	case "minute":
		return floor(us, int64(time.Minute/time.Microsecond)) * int64(time.Minute/time.Microsecond), nil
	default:
		return 0, errValue
	}
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC).UnixMicro(), nil
}

// place is ceil(p·n), p a fraction as [source.CheckFraction] has it.
func place(p string, n int64) (int64, error) {
	if !source.CheckFraction(p) {
		return 0, errValue
	}
	frac := strings.TrimPrefix(p, "0.")
	num, err := strconv.ParseInt(frac, 10, 64)
	if err != nil || n > math.MaxInt64/1_000_000 {
		return 0, errValue
	}
	den := int64(math.Pow10(len(frac)))
	return (num*n + den - 1) / den, nil
}
