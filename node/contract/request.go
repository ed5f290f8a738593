// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"strconv"
	"strings"

	"github.com/treaty-node/treaty/did/canon"
)

// QueryType is the type member of a request's canonical form.
const QueryType = "TreatyQuery"

// Aggregate is one output column: an operation over a column. Column is empty
// for count only, which then counts rows.
type Aggregate struct {
	Op     string `json:"op"`
	Column string `json:"column"`
	As     string `json:"as"`          // alias; empty: op, or op_column
	P      string `json:"p,omitempty"` // of percentile, and of nothing else: "0." and one to six digits, such as "0.95"
}

// Name is the name of the output column.
func (a Aggregate) Name() string {
	if a.As != "" {
		return a.As
	}
	if a.Column == "" {
		return a.Op
	}
	return a.Op + "_" + a.Column
}

// appendName is Name without allocation when dst is large enough.
func (a *Aggregate) appendName(dst []byte) []byte {
	if a.As != "" {
		return append(dst, a.As...)
	}
	dst = append(dst, a.Op...)
	if a.Column != "" {
		dst = append(dst, '_')
		dst = append(dst, a.Column...)
	}
	return dst
}

// The units of a DateGroup. Weeks begin on Monday; instants are cut in UTC.
const (
	UnitYear    = "year"
	UnitQuarter = "quarter"
	UnitMonth   = "month"
	UnitWeek    = "week"
	UnitDay     = "day"
	UnitHour    = "hour" // of timestamps only
)

// Units returns the units, the longest first.
func Units() []string {
	return []string{UnitYear, UnitQuarter, UnitMonth, UnitWeek, UnitDay, UnitHour}
}

func knownUnit(s string) bool {
	switch s {
	case UnitYear, UnitQuarter, UnitMonth, UnitWeek, UnitDay, UnitHour:
		return true
	}
	return false
}

// DateGroup groups by a date or timestamp, cut to the beginning of a unit.
type DateGroup struct {
	Column string `json:"column"`
	Unit   string `json:"unit"` // one of Units
}

// Name is the name of the output column: column_unit.
func (g DateGroup) Name() string { return g.Column + "_" + g.Unit }

func (g *DateGroup) appendName(dst []byte) []byte {
	dst = append(dst, g.Column...)
	dst = append(dst, '_')
	return append(dst, g.Unit...)
}

// Order sorts by a group-by column, by a DateGroup's name, by an aggregate's
// name, or by a selected column.
type Order struct {
	By   string `json:"by"`
	Desc bool   `json:"desc"`
}

// Request is one query as the data plane received it. Caller is the verified
// DID of whoever signed the call, never a member of the call. It asks either
// for aggregates, grouped or not, or for rows (Select).
type Request struct {
	ContractID string      `json:"contractId"`
	Caller     string      `json:"-"`
	Purpose    string      `json:"purpose"`
	Dataset    string      `json:"dataset"`
	Aggregates []Aggregate `json:"aggregates"`
	GroupBy    []string    `json:"groupBy"`
	Filters    []Condition `json:"filters"` // all must hold
	OrderBy    []Order     `json:"orderBy"`
	Limit      int         `json:"limit"` // 0: as many as MaxLimit; rows want 1 or more

	GroupByDate []DateGroup `json:"groupByDate,omitempty"` // after GroupBy
	Where       *Filter     `json:"where,omitempty"`       // must hold beside Filters
	Having      []Condition `json:"having,omitempty"`      // on aggregates, by name; all must hold
	Offset      int         `json:"offset,omitzero"`       // rows of the answer to leave out first, at most MaxOffset
	Select      []string    `json:"select,omitempty"`      // columns of the rows to return
}

// Rows says whether the request asks for rows rather than aggregates.
func (r *Request) Rows() bool { return len(r.Select) > 0 }

// Digest identifies what was asked: the SHA-256 of the canonical JSON of the
// request with type QueryType, without the caller. Both sides can compute it.
func (r *Request) Digest() (canon.Digest, error) {
	return digestOf(&struct {
		Type string `json:"type"`
		Request
	}{QueryType, *r})
}

// shape checks bounds and form, which need neither schema nor contract. It
// returns "" or what is wrong.
func (r *Request) shape() string {
	switch {
	case len(r.ContractID) > MaxID:
		return "the contract id is too long"
	case len(r.Purpose) > MaxPurpose:
		return "the purpose is longer than " + strconv.Itoa(MaxPurpose) + " bytes"
	case len(r.Dataset) > MaxDataset:
		return "the dataset's name is too long"
	case len(r.Aggregates) == 0 && !r.Rows():
		return "there is no aggregate; rows are asked for with select_records, where a contract grants them"
	case len(r.Aggregates) > MaxAggregates:
		return "more than " + strconv.Itoa(MaxAggregates) + " aggregates"
	case len(r.GroupBy) > MaxGroupBy || len(r.GroupBy)+len(r.GroupByDate) > MaxGroupBy:
		return "more than " + strconv.Itoa(MaxGroupBy) + " group-by columns"
	case len(r.Filters) > MaxConditions:
		return "more than " + strconv.Itoa(MaxConditions) + " filters"
	case len(r.Having) > MaxConditions:
		return "more than " + strconv.Itoa(MaxConditions) + " conditions in having"
	case len(r.OrderBy) > MaxOrderBy:
		return "more than " + strconv.Itoa(MaxOrderBy) + " order-by terms"
	case r.Limit < 0 || r.Limit > MaxLimit:
		return "the limit is not within 0 to " + strconv.Itoa(MaxLimit)
	case r.Offset < 0 || r.Offset > MaxOffset:
		return "the offset is not within 0 to " + strconv.Itoa(MaxOffset)
	}
	if r.Rows() {
		if why := r.rowShape(); why != "" {
			return why
		}
	}
	for i := range r.Aggregates {
		if why := r.Aggregates[i].shape(); why != "" {
			return why
		}
		for j := range i {
			if r.Aggregates[i].sameName(&r.Aggregates[j]) {
				return "two aggregates have the name " + Echo(r.Aggregates[i].Name()) + "; give one another alias"
			}
		}
		for _, g := range r.GroupBy {
			if r.Aggregates[i].named(g) {
				return "an aggregate has the name of the group-by column " + Echo(g) + "; give it another alias"
			}
		}
	}
	for i, g := range r.GroupBy {
		for _, h := range r.GroupBy[:i] {
			if g == h {
				return "group by " + Echo(g) + " is there twice"
			}
		}
	}
	if why := r.dateShape(); why != "" {
		return why
	}
	for i := range r.OrderBy {
		for j := range i {
			if r.OrderBy[i].By == r.OrderBy[j].By {
				return "order by " + Echo(r.OrderBy[i].By) + " is there twice"
			}
		}
	}
	for i := range r.Filters {
		if err := r.Filters[i].checkForm(); err != nil {
			return "the filter on " + Echo(r.Filters[i].Column) + ": " + err.Error()
		}
	}
	if r.Where != nil {
		leaves := len(r.Filters)
		if why := r.Where.shape(1, &leaves); why != "" {
			return why
		}
	}
	for i := range r.Having {
		if err := r.Having[i].checkForm(); err != nil {
			return "having " + Echo(r.Having[i].Column) + ": " + err.Error()
		}
	}
	return ""
}

// rowShape checks what only a request for rows has.
func (r *Request) rowShape() string {
	switch {
	case len(r.Aggregates) > 0 || len(r.GroupBy) > 0 || len(r.GroupByDate) > 0 || len(r.Having) > 0:
		return "rows have no aggregates, groups and having"
	case len(r.Select) > MaxSelect:
		return "more than " + strconv.Itoa(MaxSelect) + " columns"
	case r.Limit < 1:
		return "rows want a limit: so many are taken out of the row budget, and what did not come is put back"
	}
	for i, name := range r.Select {
		for _, other := range r.Select[:i] {
			if name == other {
				return "column " + Echo(name) + " is there twice"
			}
		}
	}
	return ""
}

// dateShape checks units, and that no two outputs have one name.
func (r *Request) dateShape() string {
	for i := range r.GroupByDate {
		g := &r.GroupByDate[i]
		if !knownUnit(g.Unit) {
			return "unknown unit " + Echo(g.Unit) + "; known are year quarter month week day hour"
		}
		if len(g.Column) > MaxName {
			return "a group-by column's name is too long"
		}
		var buf nameBuf
		name := g.appendName(buf[:0])
		for j := range i {
			if *g == r.GroupByDate[j] {
				return "group by " + Echo(g.Column) + " and " + g.Unit + " is there twice"
			}
		}
		for _, other := range r.GroupBy {
			if equalFoldASCII(name, other) {
				return "the group by " + Echo(g.Column) + " and " + g.Unit + " would have the name of another"
			}
		}
		for j := range r.Aggregates {
			var other nameBuf
			if equalFoldASCII(name, r.Aggregates[j].appendName(other[:0])) {
				return "an aggregate has the name of a date group; give it another alias"
			}
		}
	}
	return ""
}

func (a *Aggregate) shape() string {
	switch {
	case !knownOperation(a.Op):
		return "unknown operation " + Echo(a.Op)
	case a.Column == "" && a.Op != OpCount:
		return a.Op + " needs a column"
	case len(a.As) > MaxAlias:
		return "an alias is longer than " + strconv.Itoa(MaxAlias) + " bytes"
	case (a.Op == OpPercentile) != (a.P != ""):
		return "p belongs to percentile, which wants one, such as 0.95"
	case a.P != "" && !fraction(a.P):
		return "p wants 0. and one to six digits, not all zero: " + Echo(a.P)
	}
	for i := range len(a.As) {
		c := a.As[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return "an alias wants letters, digits and '_', a letter or '_' first: " + Echo(a.As)
		}
	}
	return ""
}

// fraction accepts what lies between 0 and 1 in its plain form.
func fraction(p string) bool {
	rest, ok := strings.CutPrefix(p, "0.")
	return ok && digits(rest) && len(rest) <= 6 && strings.Trim(rest, "0") != ""
}

// nameBuf holds any output name whose column could be published.
type nameBuf [len(OpCountDistinct) + 1 + MaxName]byte

// named compares the output's name. Case is ignored: engines may fold it.
func (a *Aggregate) named(s string) bool {
	var buf nameBuf
	return equalFoldASCII(a.appendName(buf[:0]), s)
}

func (a *Aggregate) sameName(b *Aggregate) bool {
	var x, y nameBuf
	return equalFoldASCII(a.appendName(x[:0]), b.appendName(y[:0]))
}

// equalFoldASCII compares, ignoring the case of ASCII letters.
func equalFoldASCII[B []byte | string](a []byte, b B) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
