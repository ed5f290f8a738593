// SPDX-License-Identifier: Apache-2.0

package query

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
)

// MaxShapes is how many shapes of one buyer on one dataset are remembered.
const MaxShapes = 32

// Shape is what a grouped query shows people by: its rows and its groups, and nothing of what was computed over them. Two
// queries of one shape show the same groups of people.
type Shape struct {
	RowFilter   []contract.Condition `json:"rowFilter"` // the contract's
	Filters     []contract.Condition `json:"filters"`
	Where       *contract.Filter     `json:"where,omitempty"`
	GroupBy     []string             `json:"groupBy"`
	GroupByDate []contract.DateGroup `json:"groupByDate,omitempty"`
	MinGroup    int                  `json:"minGroup"`
}

// ShapeOf is the shape of a request under a contract's row filter.
func ShapeOf(r *contract.Request, rowFilter []contract.Condition, minGroup int) Shape {
	s := Shape{
		RowFilter: append([]contract.Condition{}, rowFilter...), Filters: append([]contract.Condition{}, r.Filters...), Where: r.Where,
		GroupBy: append([]string{}, r.GroupBy...), GroupByDate: slices.Clone(r.GroupByDate), MinGroup: minGroup,
	}
	slices.Sort(s.GroupBy)
	slices.SortFunc(s.GroupByDate, func(a, b contract.DateGroup) int { return strings.Compare(a.Name(), b.Name()) })
	return s
}

// Marshal returns the canonical JSON and its digest.
func (s Shape) Marshal() ([]byte, canon.Digest, error) {
	b, err := canon.Marshal(s)
	return b, canon.Sum(b), err
}

// ParseShape reads what Marshal wrote.
func ParseShape(data []byte) (Shape, error) {
	var s Shape
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("%w: a remembered shape: %w", ErrInvalid, err)
	}
	return s, nil
}

// Overlap makes the statement that says whether two shapes of one dataset can be subtracted from each other to single people
// out: within the groups that both have in common, how many cells are there in which one shows between 1 and minimum-1 people
// that the other does not. Its one cell is that number, see [Close]. A person counts as shown where a group with it has the
// minimum size, so that what one of them withheld counts as well. A group need not be made by the same columns in both: one of a
// shape is also held against what comes closest to it of the other's groups together, so that a filter for what the other groups
// by, for some of its groups, or for some of them and a person more is no way around.
//
// What it does not see: sums and differences of three and more answers, and persons who differ by a null in an aggregated
// column only.
func Overlap(spec Spec, a, b Shape) (source.Statement, error) {
	o, err := newBuilder(spec)
	if err != nil {
		return source.Statement{}, err
	}
	sql, err := o.overlap(a, b)
	if err != nil {
		return source.Statement{}, err
	}
	return source.Statement{Dataset: spec.Request.Dataset, SQL: sql, Args: o.args, Types: []dataset.Type{{Kind: dataset.Integer}}, MaxRows: 1}, nil
}

// Close says what the statement of Overlap found. Errors match ErrRows.
func Close(rows source.Rows) (bool, error) {
	if len(rows) != 1 || len(rows[0]) != 1 {
		return false, ErrRows
	}
	n, ok := rows[0][0].(int64)
	if !ok {
		return false, ErrRows
	}
	return n > 0, nil
}

func (b *builder) overlap(first, second Shape) (string, error) {
	subject := b.spec.Subject
	if subject != "" {
		if _, err := b.column(subject); err != nil {
			return "", err
		}
	}
	from := b.spec.From + " AS " + source.Alias
	var q strings.Builder
	var joins, flags []string
	for i, s := range []Shape{first, second} {
		name := string(rune('a' + i))
		groups, err := b.groups(s)
		if err != nil {
			return "", err
		}
		rows, err := b.shown(s)
		if err != nil {
			return "", err
		}
		number := "max(1)" // of the group, the same wherever the engine works it out again: groups differ in their keys. SQLite wants an aggregate
		if len(groups) > 0 {
			number = "row_number() OVER (ORDER BY " + strings.Join(groups, ", ") + ")"
		}
		q.WriteString([]string{"WITH ", ", "}[i] + name + " AS (SELECT " + number + " AS one")
		on := []string{"1 = 1"}
		for j, g := range groups {
			fmt.Fprintf(&q, ", %s AS k%d", g, j)
			on = append(on, fmt.Sprintf("%s IS NOT DISTINCT FROM %s.k%d", g, name, j)) // nulls are a group
		}
		fmt.Fprintf(&q, " FROM %s WHERE %s", from, rows)
		if len(groups) > 0 {
			q.WriteString(" GROUP BY " + strings.Join(groups, ", "))
		}
		fmt.Fprintf(&q, " HAVING %s >= %d)", b.subjects(""), max(s.MinGroup, 1))
		joins = append(joins, fmt.Sprintf(" LEFT JOIN %s ON %s", name, strings.Join(on, " AND ")))
	}
	q.WriteString(", flags AS (SELECT ")
	common := commonGroups(first, second)
	keys, err := b.groups(common)
	if err != nil {
		return "", err
	}
	var by []string
	for i, k := range keys {
		fmt.Fprintf(&q, "%s AS g%d, ", k, i)
		by = append(by, fmt.Sprintf("g%d", i))
	}
	who := "1"
	if subject != "" {
		who = b.sql(subject)
	}
	for i, s := range []Shape{first, second} {
		rows, err := b.shown(s) // again, in the place that it has in the text
		if err != nil {
			return "", err
		}
		flags = append(flags, fmt.Sprintf("CASE WHEN %s THEN %c.one END AS in%d", rows, 'a'+i, i))
	}
	fmt.Fprintf(&q, "%s AS who, %s FROM %s%s)", who, strings.Join(flags, ", "), from, strings.Join(joins, ""))
	distinct, people := "", "sum(n)"
	if subject != "" {
		distinct, people = "DISTINCT ", "count(DISTINCT who)"
	}
	least := max(first.MinGroup, second.MinGroup, 1) - 1
	fmt.Fprintf(&q, ", bits AS (SELECT in0, in1, who, count(*) AS n FROM flags WHERE in0 IS NOT NULL OR in1 IS NOT NULL GROUP BY in0, in1, who)"+
		", pairs AS (SELECT in0, in1, %s AS n FROM bits WHERE in0 IS NOT NULL AND in1 IS NOT NULL GROUP BY in0, in1)", people)
	count := func(x, y int) string {
		return fmt.Sprintf("count(%sCASE WHEN in%d IS NOT NULL AND in%d IS NULL THEN who END)", distinct, x, y)
	}
	with0, near0 := near(0, 1, people, least)
	with1, near1 := near(1, 0, people, least)
	q.WriteString(with0 + with1)
	fmt.Fprintf(&q, " SELECT (SELECT count(*) FROM (SELECT %s AS x, %s AS y FROM flags", count(0, 1), count(1, 0))
	if len(by) > 0 {
		q.WriteString(" GROUP BY " + strings.Join(by, ", "))
	}
	fmt.Fprintf(&q, ") AS cells WHERE x BETWEEN 1 AND %d OR y BETWEEN 1 AND %d) + %s + %s", least, least, near0, near1)
	return q.String(), nil
}

// near counts the groups of shape x that differ by 1 to least people from those groups of shape y together that have more people in
// them than beside them: of all that can be put together from groups of y, that is what comes closest. Groups of x are left out
// first that a single one of y keeps further away: they would be most of the work. It returns table expressions and the number.
func near(x, y int, people string, least int) (with, count string) {
	with = fmt.Sprintf(", size%[2]d AS (SELECT in%[2]d AS h, %[3]s AS n FROM bits WHERE in%[2]d IS NOT NULL GROUP BY in%[2]d)"+
		", part%[1]d AS (SELECT p.in%[1]d AS g, p.in%[2]d AS h, p.n AS common, s.n - p.n AS rest FROM pairs AS p JOIN size%[2]d AS s ON s.h = p.in%[2]d)"+
		", cand%[1]d AS (SELECT g FROM part%[1]d GROUP BY g "+
		"HAVING max(CASE WHEN common >= rest THEN 1 ELSE 0 END) = 1 AND max(CASE WHEN common >= rest THEN rest ELSE common END) <= %[4]d)"+
		", incl%[1]d AS (SELECT p.g, p.h FROM cand%[1]d AS c JOIN part%[1]d AS p ON p.g = c.g WHERE p.common >= p.rest)", x, y, people, least)
	count = fmt.Sprintf("(SELECT count(*) FROM (SELECT g FROM ("+
		"SELECT c.g, b.who, b.n FROM cand%[1]d AS c JOIN bits AS b ON b.in%[1]d = c.g LEFT JOIN incl%[1]d AS i ON i.g = c.g AND i.h = b.in%[2]d WHERE i.g IS NULL UNION ALL "+
		"SELECT i.g, b.who, b.n FROM incl%[1]d AS i JOIN bits AS b ON b.in%[2]d = i.h WHERE b.in%[1]d IS NULL OR b.in%[1]d <> i.g"+
		") AS u GROUP BY g HAVING %[3]s BETWEEN 1 AND %[4]d) AS v%[1]d)", x, y, people, least)
	return with, count
}

// shown writes the rows that a shape looks at.
func (b *builder) shown(s Shape) (string, error) {
	return b.used(s.RowFilter, &contract.Request{Filters: s.Filters, Where: s.Where})
}

func (b *builder) groups(s Shape) ([]string, error) {
	var out []string
	for _, name := range s.GroupBy {
		if _, err := b.column(name); err != nil {
			return nil, err
		}
		out = append(out, b.sql(name))
	}
	for _, g := range s.GroupByDate {
		sql, _, err := b.date(g)
		if err != nil {
			return nil, err
		}
		out = append(out, sql)
	}
	return out, nil
}

func commonGroups(a, b Shape) (both Shape) {
	for _, name := range a.GroupBy {
		if slices.Contains(b.GroupBy, name) {
			both.GroupBy = append(both.GroupBy, name)
		}
	}
	for _, g := range a.GroupByDate {
		if slices.Contains(b.GroupByDate, g) {
			both.GroupByDate = append(both.GroupByDate, g)
		}
	}
	return both
}
