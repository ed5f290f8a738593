// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/treaty-node/treaty/did/canon"
)

// The versions of the contract schema. A version has every term of those before
// it; a document that does not use a term is written without it, so that a
// version 1 document is what it always was.
//
//	1  dataset, columns, operations, rowFilter, purpose, retentionDays, minGroupSize, callBudget
//	2  and rate
//	3  and columnGrants, rows, retentionStatement, noise, amends; the operations stddev and
//	   percentile, and the operator prefix in a row filter
const (
	Version1 = 1
	Version2 = 2
	Version3 = 3
)

// Versions returns the versions of the contract schema that this package reads,
// builds and decides under, in ascending order.
func Versions() []int { return []int{Version1, Version2, Version3} }

// ParseVersion reads a version as the meta-protocol writes it, such as "2".
func ParseVersion(s string) (int, bool) {
	for _, v := range Versions() {
		if strconv.Itoa(v) == s {
			return v, true
		}
	}
	return 0, false
}

// Rate is how many calls may be made in a window of time (version 2). Windows
// are counted from 1970 in steps of Seconds, so that both sides know where one
// ends.
type Rate struct {
	Calls   int64 `json:"calls"`   // 1 to MaxCallBudget
	Seconds int64 `json:"seconds"` // 1 to MaxRateSeconds
}

// IsZero says whether there is no limit.
func (r Rate) IsZero() bool { return r == Rate{} }

// String is for people, such as "10 calls in 60 s"; empty for no limit.
func (r Rate) String() string {
	if r.IsZero() {
		return ""
	}
	return strconv.FormatInt(r.Calls, 10) + " calls in " + strconv.FormatInt(r.Seconds, 10) + " s"
}

func (r Rate) validate() error {
	switch {
	case r.IsZero():
		return nil
	case r.Calls < 1 || r.Calls > MaxCallBudget:
		return invalid("calls", "want 1 to "+strconv.Itoa(MaxCallBudget))
	case r.Seconds < 1 || r.Seconds > MaxRateSeconds:
		return invalid("seconds", "want 1 to "+strconv.Itoa(MaxRateSeconds))
	}
	return nil
}

// within: no more calls in any time that holds whole windows of both.
func (r Rate) within(o Rate) bool {
	switch {
	case o.IsZero():
		return true
	case r.IsZero():
		return false
	}
	return o.Seconds > 0 && r.Seconds >= o.Seconds && r.Seconds%o.Seconds == 0 && r.Calls <= o.Calls
}

// The uses of a column (version 3).
const (
	UseRead      = "read"      // as a column of select_records
	UseFilter    = "filter"    // in filters
	UseGroup     = "group"     // in group_by
	UseAggregate = "aggregate" // in an aggregate
)

// Uses returns the uses in the order documents list them.
func Uses() []string { return []string{UseRead, UseFilter, UseGroup, UseAggregate} }

// ColumnGrant says what one column may be used for (version 3). In a scope that
// has such grants, a column without one may be filtered, grouped and aggregated
// with every operation of the scope that releases no single value, and never be
// read.
type ColumnGrant struct {
	Column     string   `json:"column"`
	Uses       []string `json:"uses"`       // at least one
	Operations []string `json:"operations"` // of the scope; empty unless it may be aggregated
}

// ReleasesValue says whether an operation's result is, or may be, a value of one
// row: min, max, median and percentile. Where a scope has column grants, each
// must be named in a column's own.
func ReleasesValue(op string) bool {
	return op == OpMin || op == OpMax || op == OpMedian || op == OpPercentile
}

// RowGrant lets the buyer read rows with select_records (version 3).
type RowGrant struct {
	RowBudget int64 `json:"rowBudget"` // rows over the whole validity, 1 to MaxRowBudget
}

// IsZero says whether no rows are granted.
func (r RowGrant) IsZero() bool { return r == RowGrant{} }

// Noise asks the data plane to add Laplace noise to counts and sums (version
// 3). Its unit of protection is one row. Numbers are decimals as strings.
type Noise struct {
	EpsilonPerQuery string  `json:"epsilonPerQuery"` // greater than 0, at most 6 digits after the point
	EpsilonTotal    string  `json:"epsilonTotal"`    // over the whole validity, at least EpsilonPerQuery
	Bounds          []Bound `json:"bounds"`          // of the columns that may be summed; may be empty
}

// Bound is the range to which a column's values are cut before they are summed.
type Bound struct {
	Column string `json:"column"`
	Low    string `json:"low"`
	High   string `json:"high"` // not less than Low; not both zero
}

// Bound finds a column's bounds.
func (n *Noise) Bound(column string) (Bound, bool) {
	for _, b := range n.Bounds {
		if b.Column == column {
			return b, true
		}
	}
	return Bound{}, false
}

// Reference names another contract.
type Reference struct {
	ID     string       `json:"id"`
	Digest canon.Digest `json:"digest"`
}

// IsZero says whether it names none.
func (r Reference) IsZero() bool { return r == Reference{} }

// Needs is the lowest version whose documents can hold the scope.
func (s *Scope) Needs() int {
	if len(s.ColumnGrants) > 0 || !s.Rows.IsZero() || s.RetentionStatement != "" || s.Noise != nil || !s.Amends.IsZero() {
		return Version3
	}
	for _, op := range s.Operations {
		if laterOperation(op) {
			return Version3
		}
	}
	for i := range s.RowFilter {
		if s.RowFilter[i].Op == OpPrefix {
			return Version3
		}
	}
	if !s.Rate.IsZero() {
		return Version2
	}
	return Version1
}

// CheckVersion says whether a document of the given version can hold the scope.
// A term that the version does not have is refused, never dropped.
func (s *Scope) CheckVersion(version int) error {
	if version < Version1 || version > Version3 {
		return invalid("version", "want 1 to "+strconv.Itoa(Version3))
	}
	if n := s.Needs(); n > version {
		return invalid("version", "the terms need contract schema version "+strconv.Itoa(n)+", and this is version "+strconv.Itoa(version))
	}
	return nil
}

// MicroEpsilon reads a privacy parameter in millionths, 1 to MaxMicroEpsilon:
// plain decimal notation without superfluous zeros before the point, at most
// six digits after it.
func MicroEpsilon(s string) (int64, bool) {
	whole, frac, point := strings.Cut(s, ".")
	if !digits(whole) || len(whole) > 4 || len(whole) > 1 && whole[0] == '0' || point && (!digits(frac) || len(frac) > 6) {
		return 0, false
	}
	n, err := strconv.ParseInt(whole+frac+strings.Repeat("0", 6-len(frac)), 10, 64)
	return n, err == nil && n >= 1 && n <= MaxMicroEpsilon
}

func (s *Scope) validateTerms() error {
	if err := s.Rate.validate(); err != nil {
		return within("rate", err)
	}
	if err := s.validateGrants(); err != nil {
		return err
	}
	if !s.Rows.IsZero() {
		if s.Rows.RowBudget < 1 || s.Rows.RowBudget > MaxRowBudget {
			return invalid("rows.rowBudget", "want 1 to "+strconv.Itoa(MaxRowBudget))
		}
		if len(s.Readable()) == 0 {
			return invalid("rows", "no column may be read; columnGrants name those that may")
		}
	}
	if err := checkText("retentionStatement", s.RetentionStatement, MaxText); err != nil {
		return err
	}
	if s.Noise != nil {
		if err := s.validateNoise(); err != nil {
			return within("noise", err)
		}
	}
	if !s.Amends.IsZero() {
		if err := checkID("id", s.Amends.ID); err != nil {
			return within("amends", err)
		}
		if s.Amends.Digest.IsZero() {
			return invalid("amends.digest", "is zero")
		}
	}
	return nil
}

func (s *Scope) validateGrants() error {
	if len(s.ColumnGrants) > MaxColumns {
		return invalid("columnGrants", "want at most "+strconv.Itoa(MaxColumns))
	}
	seen := make(map[string]bool, len(s.ColumnGrants))
	granted := make(map[string]bool, len(s.Columns))
	for _, n := range s.Columns {
		granted[n] = true
	}
	for i := range s.ColumnGrants {
		g, field := &s.ColumnGrants[i], "columnGrants["+strconv.Itoa(i)+"]"
		switch {
		case !granted[g.Column]:
			return invalid(field+".column", Echo(g.Column)+" is not among the columns")
		case seen[g.Column]:
			return invalid(field+".column", Echo(g.Column)+" is there twice")
		case len(g.Uses) == 0:
			return invalid(field+".uses", "want at least one")
		case g.Operations == nil:
			return invalid(field+".operations", "want a list, which may be empty")
		case slices.Contains(g.Uses, UseAggregate) == (len(g.Operations) == 0):
			return invalid(field+".operations", "want at least one with the use aggregate, and none without it")
		}
		seen[g.Column] = true
		for j, u := range g.Uses {
			if !slices.Contains(Uses(), u) || slices.Contains(g.Uses[:j], u) {
				return invalid(field+".uses", Echo(u)+" is unknown or there twice")
			}
		}
		for j, op := range g.Operations {
			if !slices.Contains(s.Operations, op) || slices.Contains(g.Operations[:j], op) {
				return invalid(field+".operations", Echo(op)+" is not an operation of the scope, or there twice")
			}
		}
	}
	return nil
}

func (s *Scope) validateNoise() error {
	n := s.Noise
	per, ok := MicroEpsilon(n.EpsilonPerQuery)
	if !ok {
		return invalid("epsilonPerQuery", "want a decimal from 0.000001 to 1000 as a string, such as \"0.1\"")
	}
	total, ok := MicroEpsilon(n.EpsilonTotal)
	if !ok || total < per {
		return invalid("epsilonTotal", "want a decimal up to 1000 as a string, at least epsilonPerQuery")
	}
	if !s.Rows.IsZero() {
		return invalid("rows", "rows cannot be granted where counts and sums get noise")
	}
	if n.Bounds == nil || len(n.Bounds) > MaxColumns {
		return invalid("bounds", "want a list of at most "+strconv.Itoa(MaxColumns))
	}
	for _, op := range s.Operations {
		if !Noisy(op) {
			return invalid("operations", op+" cannot be given noise; only count, count_distinct and sum can")
		}
	}
	for i, b := range n.Bounds {
		field := "bounds[" + strconv.Itoa(i) + "]"
		if !slices.Contains(s.Columns, b.Column) {
			return invalid(field+".column", Echo(b.Column)+" is not among the columns")
		}
		if first, _ := n.Bound(b.Column); first != b {
			return invalid(field+".column", Echo(b.Column)+" is there twice")
		}
		low, ok1 := boundNumber(b.Low)
		high, ok2 := boundNumber(b.High)
		if !ok1 || !ok2 || low.Cmp(high) > 0 || low.Sign() == 0 && high.Sign() == 0 {
			return invalid(field, "want low and high as decimals of at most 18 digits, low not above high, not both zero")
		}
	}
	return nil
}

// Noisy says whether noise can be added to an operation's result.
func Noisy(op string) bool { return op == OpCount || op == OpCountDistinct || op == OpSum }

// boundNumber reads a decimal of at most 18 digits.
func boundNumber(s string) (*big.Rat, bool) {
	body := strings.TrimPrefix(s, "-")
	whole, frac, point := strings.Cut(body, ".")
	if !digits(whole) || point && !digits(frac) || len(whole)+len(frac) > 18 || len(whole) > 1 && whole[0] == '0' {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

// Grant is what the scope lets a column be used for. The second result is false
// for a column that is not granted at all.
func (s *Scope) Grant(column string) (ColumnGrant, bool) {
	for i := range s.ColumnGrants {
		if s.ColumnGrants[i].Column == column {
			return s.ColumnGrants[i], true
		}
	}
	if !slices.Contains(s.Columns, column) {
		return ColumnGrant{}, false
	}
	g := ColumnGrant{Column: column, Uses: []string{UseFilter, UseGroup, UseAggregate}, Operations: []string{}}
	for _, op := range s.Operations {
		if len(s.ColumnGrants) == 0 || !ReleasesValue(op) {
			g.Operations = append(g.Operations, op)
		}
	}
	return g, true
}

// Readable returns the columns that select_records may return, in the scope's
// order.
func (s *Scope) Readable() []string {
	var out []string
	for _, n := range s.Columns {
		for i := range s.ColumnGrants {
			if g := &s.ColumnGrants[i]; g.Column == n && slices.Contains(g.Uses, UseRead) {
				out = append(out, n)
			}
		}
	}
	return out
}

// termsWithin is the part of Within that is about terms of later versions.
func (s *Scope) termsWithin(o *Scope) bool {
	if !s.Rate.within(o.Rate) || s.Rows.RowBudget > o.Rows.RowBudget || s.Amends != o.Amends {
		return false
	}
	if o.RetentionStatement != "" && s.RetentionStatement != o.RetentionStatement {
		return false
	}
	if !s.Noise.within(o.Noise) {
		return false
	}
	for _, n := range s.Columns {
		mine, _ := s.Grant(n)
		theirs, ok := o.Grant(n)
		if !ok || !subset(mine.Uses, theirs.Uses) || !subset(mine.Operations, theirs.Operations) {
			return false
		}
	}
	return true
}

// within: at least the noise of o. Bounds may be tighter; a column that o lets
// be summed without bounds of its own cannot be summed at all.
func (n *Noise) within(o *Noise) bool {
	if o == nil {
		return true
	}
	if n == nil {
		return false
	}
	mine, ok1 := MicroEpsilon(n.EpsilonPerQuery)
	theirs, ok2 := MicroEpsilon(o.EpsilonPerQuery)
	mineAll, ok3 := MicroEpsilon(n.EpsilonTotal)
	theirsAll, ok4 := MicroEpsilon(o.EpsilonTotal)
	if !ok1 || !ok2 || !ok3 || !ok4 || mine > theirs || mineAll > theirsAll {
		return false
	}
	for _, b := range n.Bounds {
		if _, ok := o.Bound(b.Column); !ok {
			return false
		}
	}
	return true
}

func subset(a, b []string) bool {
	for _, s := range a {
		if !slices.Contains(b, s) {
			return false
		}
	}
	return true
}

func (s Scope) cloneTerms() Scope {
	if len(s.ColumnGrants) > 0 {
		s.ColumnGrants = slices.Clone(s.ColumnGrants)
		for i := range s.ColumnGrants {
			g := &s.ColumnGrants[i]
			g.Uses, g.Operations = append([]string{}, g.Uses...), append([]string{}, g.Operations...)
		}
	}
	if s.Noise != nil {
		n := *s.Noise
		n.Bounds = append([]Bound{}, n.Bounds...)
		s.Noise = &n
	}
	return s
}

// CheckTerms says whether a data plane can enforce the scope's terms over a
// published schema: columns and row filter are there and fit, every operation
// granted on a column of its own applies to its type, and noise is bounded in
// the column's own digits. What cannot be enforced must not be offered. Errors
// match ErrInvalid.
func (s *Scope) CheckTerms(schema *Schema) error {
	if name, found := s.UnknownColumn(schema); found {
		return invalid("columns", Echo(name)+" is not published")
	}
	for i := range s.RowFilter {
		if err := CheckCondition(schema, s.RowFilter[i]); err != nil {
			return err
		}
	}
	kind := func(name string) Type {
		col, _ := schema.Column(name)
		t, _ := ParseType(col.Type)
		return t
	}
	for i := range s.ColumnGrants {
		g := &s.ColumnGrants[i]
		if len(g.Operations) > 0 && !slices.ContainsFunc(g.Operations, func(op string) bool { return OperationFits(op, kind(g.Column)) }) {
			return invalid("columnGrants", "no operation granted on "+Echo(g.Column)+" applies to its type")
		}
	}
	if s.Noise == nil {
		return nil
	}
	for _, b := range s.Noise.Bounds {
		t := kind(b.Column)
		if t.Kind != KindInteger && t.Kind != KindDecimal {
			return invalid("noise.bounds", "sums over "+Echo(b.Column)+" cannot be given noise: it is neither an integer nor a decimal")
		}
		for _, v := range []string{b.Low, b.High} {
			if _, frac, _ := strings.Cut(v, "."); len(strings.TrimRight(frac, "0")) > t.Scale {
				return invalid("noise.bounds", "a bound of "+Echo(b.Column)+" has more digits than the column")
			}
		}
	}
	return nil
}
