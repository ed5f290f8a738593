// SPDX-License-Identifier: Apache-2.0

package trino

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
)

// Dialect is how Trino spells statements. Texts are compared by their code points. Instants are read in UTC without a zone.
type Dialect struct {
	source.Common
	casts map[string]string // columns that are read through a cast
}

var _ source.Dialect = Dialect{}

// Name implements [source.Dialect].
func (Dialect) Name() string { return "trino" }

// Column implements [source.Dialect].
func (d Dialect) Column(name string, t dataset.Type) string {
	x := source.Alias + "." + d.Ident(name)
	if t.Kind == dataset.TimestampTZ {
		return "CAST(" + x + " AT TIME ZONE 'UTC' AS timestamp(6))"
	}
	if cast := d.casts[name]; cast != "" {
		return "CAST(" + x + " AS " + cast + ")"
	}
	return x
}

// Param implements [source.Dialect].
func (Dialect) Param(_ int, t dataset.Type) string {
	switch t.Kind {
	case dataset.DecimalKind:
		return fmt.Sprintf("CAST(? AS decimal(%d,%d))", t.Precision, t.Scale)
	case dataset.Date:
		return "CAST(? AS date)"
	case dataset.Timestamp, dataset.TimestampTZ:
		return "CAST(? AS timestamp(6))"
	default:
		return "?"
	}
}

// literal writes an argument. There is one escape in a text, the doubled quote, and none in the others.
func literal(arg any) (string, error) {
	switch v := arg.(type) {
	case string:
		return text(v), nil
	case int64:
		return "BIGINT '" + strconv.FormatInt(v, 10) + "'", nil
	case float64:
		return "DOUBLE '" + strconv.FormatFloat(v, 'g', -1, 64) + "'", nil
	case bool:
		return strconv.FormatBool(v), nil
	}
	return "", fmt.Errorf("trino: an argument of type %T", arg)
}

func text(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// prepared makes one request of a statement and its arguments: the statement is prepared, the arguments are bound to it and
// can therefore not become a part of it.
func prepared(st source.Statement) (string, error) {
	if len(st.Args) == 0 {
		return st.SQL, nil
	}
	args := make([]string, len(st.Args))
	for i, a := range st.Args {
		var err error
		if args[i], err = literal(a); err != nil {
			return "", err
		}
	}
	return "EXECUTE IMMEDIATE " + text(st.SQL) + " USING " + strings.Join(args, ", "), nil
}

// Double implements [source.Dialect].
func (Dialect) Double(x string) string { return "CAST(" + x + " AS double)" }

// Sum implements [source.Dialect].
func (Dialect) Sum(x string, t dataset.Type) string {
	switch t.Kind {
	case dataset.Double:
		return "sum(" + x + " ORDER BY " + x + ")"
	case dataset.Integer:
		return "sum(CAST(" + x + " AS decimal(38,0)))"
	default:
		return "sum(" + x + ")"
	}
}

// Quantile implements [source.Dialect]. Trino has approximate percentiles only: this one sorts the group's values in memory.
func (Dialect) Quantile(x, p string, desc bool, _ dataset.Type) string {
	place := "CAST(ceil(" + p + " * count(" + x + ")) AS bigint)"
	if desc {
		place = "count(" + x + ") + 1 - " + place
	}
	return "element_at(array_sort(array_agg(" + x + ") FILTER (WHERE " + x + " IS NOT NULL)), " + place + ")"
}

// Stddev implements [source.Dialect].
func (d Dialect) Stddev(x string, _ dataset.Type) string {
	return "stddev_samp(" + d.Double(x) + " ORDER BY " + d.Double(x) + ")"
}

// Truncate implements [source.Dialect].
func (Dialect) Truncate(unit, x string, _ dataset.Type) string {
	return "date_trunc('" + unit + "', " + x + ")"
}

// Limit implements [source.Dialect].
func (Dialect) Limit(limit, offset int) string {
	if offset > 0 {
		return fmt.Sprintf("OFFSET %d LIMIT %d", offset, limit)
	}
	return fmt.Sprintf("LIMIT %d", limit)
}
