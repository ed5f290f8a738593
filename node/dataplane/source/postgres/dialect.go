// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
)

// Dialect is how PostgreSQL 14 and later spell statements. Texts are compared by their bytes whatever the database's collation.
type Dialect struct {
	source.Common
	casts map[string]string // columns that are read through a cast
}

var _ source.Dialect = Dialect{}

// Name implements [source.Dialect].
func (Dialect) Name() string { return "postgres" }

// Column implements [source.Dialect].
func (d Dialect) Column(name string, t dataset.Type) string {
	x := source.Alias + "." + d.Ident(name)
	if cast := d.casts[name]; cast != "" {
		x = "CAST(" + x + " AS " + cast + ")"
	}
	if t.Kind == dataset.Text {
		x = "(" + x + ` COLLATE "C")`
	}
	return x
}

// types are the names of the parameters' types. An instant without a zone is read in the session's, which is UTC.
func typeName(t dataset.Type) string {
	switch t.Kind {
	case dataset.Integer:
		return "bigint"
	case dataset.DecimalKind:
		return fmt.Sprintf("numeric(%d,%d)", t.Precision, t.Scale)
	case dataset.Double:
		return "double precision"
	case dataset.Boolean:
		return "boolean"
	case dataset.Date:
		return "date"
	case dataset.Timestamp:
		return "timestamp"
	case dataset.TimestampTZ:
		return "timestamptz"
	default:
		return "text"
	}
}

// Param implements [source.Dialect].
func (Dialect) Param(n int, t dataset.Type) string {
	return "CAST($" + strconv.Itoa(n) + " AS " + typeName(t) + ")"
}

// Arg implements [source.Dialect]. PostgreSQL has no text with a NUL in it.
func (d Dialect) Arg(text string, t dataset.Type) (any, error) {
	if strings.ContainsRune(text, 0) {
		return nil, fmt.Errorf("a text with NUL")
	}
	return d.Common.Arg(text, t)
}

// Double implements [source.Dialect].
func (Dialect) Double(x string) string { return "CAST(" + x + " AS double precision)" }

// Sum implements [source.Dialect].
func (Dialect) Sum(x string, t dataset.Type) string {
	if t.Kind == dataset.Double {
		return "sum(" + x + " ORDER BY " + x + ")"
	}
	return "sum(" + x + ")"
}

// Quantile implements [source.Dialect].
func (Dialect) Quantile(x, p string, desc bool, _ dataset.Type) string {
	return "percentile_disc(" + p + ") WITHIN GROUP (ORDER BY " + x + source.Order(desc) + ")"
}

// Stddev implements [source.Dialect].
func (d Dialect) Stddev(x string, _ dataset.Type) string {
	return "stddev_samp(" + d.Double(x) + " ORDER BY " + d.Double(x) + ")"
}

// Truncate implements [source.Dialect].
func (Dialect) Truncate(unit, x string, t dataset.Type) string {
	if t.Kind == dataset.Date {
		return "CAST(date_trunc('" + unit + "', CAST(" + x + " AS timestamp)) AS date)"
	}
	return "date_trunc('" + unit + "', " + x + ")"
}
