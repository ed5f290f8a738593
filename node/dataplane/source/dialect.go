// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/treaty-node/treaty/node/dataset"
)

// Dialect is how one engine spells what statements are built from. Every string that goes in is SQL which the same dialect or
// the builder wrote, but for the names of Ident and Column, which are quoted, and the unit and p, which are checked. Words of a
// caller never come here: they travel as arguments.
//
// The same request gives the same numbers in every dialect: texts are compared by their UTF-8 bytes, sums over integers and
// decimals are exact or an error, sums over doubles add in ascending order, and instants are in UTC.
type Dialect interface {
	// Name is the engine's: duckdb, postgres, sqlite, trino.
	Name() string
	// Ident writes a delimited identifier: nothing in a name can end it.
	Ident(name string) string
	// Column reads a column of the table, which a statement calls [Alias], as a value of its type.
	Column(name string, t dataset.Type) string
	// Param is the parameter for the n-th argument (from 1, in the order of the text), with the column's type.
	Param(n int, t dataset.Type) string
	// Arg gives a value, as contracts write it, the Go type that the parameter takes: string, int64, float64 or bool.
	Arg(text string, t dataset.Type) (any, error)
	// Double is an expression in double precision; for ordering only.
	Double(x string) string
	// Sum adds the values of a group: exact for integers and decimals, in ascending order for doubles. Null when there is none.
	Sum(x string, t dataset.Type) string
	// Quantile is the value at place ceil(p·n) of a group's n values in ascending order, or in descending order. p is a
	// decimal literal between 0 and 1: see [CheckFraction].
	Quantile(x, p string, desc bool, t dataset.Type) string
	// Stddev is the sample standard deviation, a double, over the values in ascending order.
	Stddev(x string, t dataset.Type) string
	// Truncate cuts a date or timestamp to the start of its unit, one of [Units]. The type stays; weeks begin on Monday.
	Truncate(unit, x string, t dataset.Type) string
	// Prefix is true when the text x begins with the text p.
	Prefix(x, p string) string
	// Limit is the end of a statement that shows at most limit rows after the first offset ones; an offset of 0 is left out.
	Limit(limit, offset int) string
}

// Units are what a date or timestamp can be truncated to; a date to a day and longer units only.
func Units() []string { return []string{"year", "quarter", "month", "week", "day", "hour", "minute"} }

// CheckFraction reports whether p may be a fraction of [Dialect.Quantile]: "0." and one to six digits, not all zero.
func CheckFraction(p string) bool {
	digits, ok := strings.CutPrefix(p, "0.")
	if !ok || digits == "" || len(digits) > 6 || strings.Trim(digits, "0") == "" {
		return false
	}
	return strings.Trim(digits, "0123456789") == ""
}

// Alias is what a statement calls its table. Columns are read through it, so that no name of a column can be taken for one
// that the statement gave to an expression.
const Alias = "t"

// Common is what most engines spell alike.
type Common struct{}

// Ident implements [Dialect]: an identifier as SQL:2016 5.2 has it.
func (Common) Ident(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// Arg implements [Dialect] for engines that read dates, timestamps and decimals from text.
func (Common) Arg(text string, t dataset.Type) (any, error) {
	switch t.Kind {
	case dataset.Text, dataset.DecimalKind, dataset.Date:
		return text, nil
	case dataset.Integer:
		return strconv.ParseInt(text, 10, 64)
	case dataset.Double:
		return strconv.ParseFloat(text, 64)
	case dataset.Boolean:
		return strconv.ParseBool(text)
	case dataset.Timestamp, dataset.TimestampTZ:
		return strings.Replace(strings.TrimSuffix(text, "Z"), "T", " ", 1), nil
	default:
		return nil, fmt.Errorf("no value of type %s", dataset.TypeName(t))
	}
}

// Prefix implements [Dialect].
func (Common) Prefix(x, p string) string { return "starts_with(" + x + ", " + p + ")" }

// Limit implements [Dialect].
func (Common) Limit(limit, offset int) string {
	if offset > 0 {
		return fmt.Sprintf("LIMIT %d OFFSET %d", limit, offset)
	}
	return fmt.Sprintf("LIMIT %d", limit)
}

// Order is the direction of an ORDER BY.
func Order(desc bool) string {
	if desc {
		return " DESC"
	}
	return ""
}

// SumType is the type of a sum over a column of type t.
func SumType(t dataset.Type) dataset.Type {
	if t.Kind == dataset.Double {
		return t
	}
	return dataset.Type{Kind: dataset.DecimalKind, Precision: dataset.MaxPrecision, Scale: t.Scale}
}

// DuckDB is the dialect of DuckDB.
type DuckDB struct{ Common }

var _ Dialect = DuckDB{}

// Name implements [Dialect].
func (DuckDB) Name() string { return "duckdb" }

// Column implements [Dialect].
func (d DuckDB) Column(name string, _ dataset.Type) string { return Alias + "." + d.Ident(name) }

// Param implements [Dialect]. Instants are kept in UTC without a zone, so that no setting matters.
func (DuckDB) Param(_ int, t dataset.Type) string {
	switch t.Kind {
	case dataset.DecimalKind:
		return fmt.Sprintf("CAST(? AS DECIMAL(%d,%d))", t.Precision, t.Scale)
	case dataset.Date:
		return "CAST(? AS DATE)"
	case dataset.Timestamp, dataset.TimestampTZ:
		return "CAST(? AS TIMESTAMP)"
	default:
		return "?"
	}
}

// Double implements [Dialect].
func (DuckDB) Double(x string) string { return "CAST(" + x + " AS DOUBLE)" }

// Sum implements [Dialect].
func (DuckDB) Sum(x string, t dataset.Type) string {
	if t.Kind == dataset.Double {
		return "list_sum(list_sort(list(" + x + ") FILTER (WHERE " + x + " IS NOT NULL)))"
	}
	return "sum(" + x + ")"
}

// Quantile implements [Dialect].
func (DuckDB) Quantile(x, p string, desc bool, _ dataset.Type) string {
	return "quantile_disc(" + x + ", " + p + " ORDER BY " + x + Order(desc) + ")"
}

// Stddev implements [Dialect].
func (d DuckDB) Stddev(x string, _ dataset.Type) string {
	return "list_stddev_samp(list_sort(list(" + d.Double(x) + ") FILTER (WHERE " + x + " IS NOT NULL)))"
}

// Truncate implements [Dialect].
func (DuckDB) Truncate(unit, x string, t dataset.Type) string {
	if t.Kind == dataset.Date {
		return "CAST(date_trunc('" + unit + "', " + x + ") AS DATE)"
	}
	return "date_trunc('" + unit + "', " + x + ")"
}
