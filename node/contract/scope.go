// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"slices"
	"strconv"
)

// The operations, each a grant of its own. stddev (of a sample) and percentile
// (the nearest rank) came with version 3.
const (
	OpAvg           = "avg"
	OpSum           = "sum"
	OpMin           = "min"
	OpMax           = "max"
	OpCount         = "count"
	OpCountDistinct = "count_distinct"
	OpMedian        = "median"
	OpStddev        = "stddev"
	OpPercentile    = "percentile"
)

// Operations returns the operations of version 1 in the order documents list
// them.
func Operations() []string {
	return []string{OpAvg, OpSum, OpMin, OpMax, OpCount, OpCountDistinct, OpMedian}
}

// AllOperations returns the operations of every version in the order documents
// list them.
func AllOperations() []string { return append(Operations(), OpStddev, OpPercentile) }

func knownOperation(op string) bool {
	switch op {
	case OpAvg, OpSum, OpMin, OpMax, OpCount, OpCountDistinct, OpMedian:
		return true
	}
	return laterOperation(op)
}

// laterOperation says whether op came with version 3.
func laterOperation(op string) bool { return op == OpStddev || op == OpPercentile }

// OperationFits says whether an operation can be applied to a column of type t:
// avg, sum, median and stddev need numbers, percentile numbers, dates or
// timestamps, min and max an order.
func OperationFits(op string, t Type) bool {
	switch op {
	case OpAvg, OpSum, OpMedian, OpStddev:
		return t.Numeric()
	case OpPercentile:
		return t.Numeric() || t.Dated()
	case OpMin, OpMax:
		return t.Kind != KindBoolean && t.Kind != KindNone
	case OpCount, OpCountDistinct:
		return t.Kind != KindNone
	}
	return false
}

// Scope is what a buyer asks for and what a contract grants.
type Scope struct {
	Dataset       string      `json:"dataset"`
	Columns       []string    `json:"columns"`    // may be used anywhere in a query
	Operations    []string    `json:"operations"` // aggregate functions
	RowFilter     []Condition `json:"rowFilter"`  // only rows where all hold; may be empty
	Purpose       string      `json:"purpose"`    // one line of text, compared exactly
	RetentionDays int         `json:"retentionDays"`
	MinGroupSize  int         `json:"minGroupSize"` // distinct subjects a group must have, at least 1
	CallBudget    int64       `json:"callBudget"`   // calls over the whole validity, at least 1

	Rate               Rate          `json:"rate,omitzero"`                // version 2; absent: no limit
	ColumnGrants       []ColumnGrant `json:"columnGrants,omitempty"`       // version 3; at most one for each of Columns
	Rows               RowGrant      `json:"rows,omitzero"`                // version 3; absent: no rows
	RetentionStatement string        `json:"retentionStatement,omitempty"` // version 3; what the buyer promises beside the days
	Noise              *Noise        `json:"noise,omitempty"`              // version 3; absent: none
	Amends             Reference     `json:"amends,omitzero"`              // version 3; the contract that this one replaces
}

// Validate checks every field's form and bounds. Whether columns exist is a
// question for a schema, see UnknownColumn.
func (s *Scope) Validate() error {
	if err := checkDataset(s.Dataset); err != nil {
		return err
	}
	if err := checkNames("columns", s.Columns, MaxColumns); err != nil {
		return err
	}
	if len(s.Operations) == 0 {
		return invalid("operations", "want at least one")
	}
	for i, op := range s.Operations {
		field := "operations[" + strconv.Itoa(i) + "]"
		if !knownOperation(op) {
			return invalid(field, "unknown operation "+Echo(op))
		}
		if slices.Contains(s.Operations[:i], op) {
			return invalid(field, Echo(op)+" is there twice")
		}
	}
	if err := checkRowFilter(s.RowFilter); err != nil {
		return err
	}
	if err := checkPurpose(s.Purpose); err != nil {
		return err
	}
	if s.RetentionDays < 0 || s.RetentionDays > MaxRetention {
		return invalid("retentionDays", "want 0 to "+strconv.Itoa(MaxRetention))
	}
	if s.MinGroupSize < 1 || s.MinGroupSize > MaxMinGroupSize {
		return invalid("minGroupSize", "want 1 to "+strconv.Itoa(MaxMinGroupSize))
	}
	if s.CallBudget < 1 || s.CallBudget > MaxCallBudget {
		return invalid("callBudget", "want 1 to "+strconv.Itoa(MaxCallBudget))
	}
	return s.validateTerms()
}

func checkNames(field string, names []string, limit int) error {
	if len(names) == 0 || len(names) > limit {
		return invalid(field, "want 1 to "+strconv.Itoa(limit))
	}
	seen := make(map[string]bool, len(names))
	for i, n := range names {
		f := field + "[" + strconv.Itoa(i) + "]"
		if err := checkName(f, n); err != nil {
			return err
		}
		if seen[n] {
			return invalid(f, Echo(n)+" is there twice")
		}
		seen[n] = true
	}
	return nil
}

func checkRowFilter(conds []Condition) error {
	if conds == nil {
		return invalid("rowFilter", "want a list, which may be empty")
	}
	if len(conds) > MaxConditions {
		return invalid("rowFilter", "want at most "+strconv.Itoa(MaxConditions)+" conditions")
	}
	for i := range conds {
		field := "rowFilter[" + strconv.Itoa(i) + "]"
		if err := checkName(field+".column", conds[i].Column); err != nil {
			return err
		}
		if err := conds[i].checkForm(); err != nil {
			return invalid(field, err.Error())
		}
		for j := range i {
			if conds[i].Equal(conds[j]) {
				return invalid(field, "is there twice")
			}
		}
	}
	return nil
}

func checkPurpose(s string) error {
	if s == "" || len(s) > MaxPurpose {
		return invalid("purpose", "want 1 to "+strconv.Itoa(MaxPurpose)+" bytes")
	}
	if !printable(s) || s[0] == ' ' || s[len(s)-1] == ' ' {
		return invalid("purpose", "want one line of printable text without spaces around it")
	}
	return nil
}

// UnknownColumn returns the first column that the scope uses, in its columns or
// its row filter, and that the schema does not publish.
func (s *Scope) UnknownColumn(schema *Schema) (name string, found bool) {
	for _, n := range s.Columns {
		if _, ok := schema.Column(n); !ok {
			return n, true
		}
	}
	for i := range s.RowFilter {
		if _, ok := schema.Column(s.RowFilter[i].Column); !ok {
			return s.RowFilter[i].Column, true
		}
	}
	return "", false
}

// Clone returns a copy that shares no memory, with empty lists instead of nil
// ones.
func (s Scope) Clone() Scope {
	s.Columns = append([]string{}, s.Columns...)
	s.Operations = append([]string{}, s.Operations...)
	s.RowFilter = cloneConditions(s.RowFilter)
	return s.cloneTerms()
}

func cloneConditions(in []Condition) []Condition {
	out := append([]Condition{}, in...)
	for i := range out {
		out[i].Values = slices.Clone(out[i].Values)
	}
	return out
}

// Within says whether s grants nothing that o does not: the same dataset and
// purpose, no other column or operation, every condition of o's row filter, no
// longer retention, no smaller groups, no larger budget, and so for the terms of
// later versions: no higher rate, no further use of a column, no more rows, no
// less noise, the same statement and the same contract amended. Two row filters are
// compared condition by condition, so a filter that is narrower only in meaning
// counts as wider.
func (s *Scope) Within(o *Scope) bool {
	if s.Dataset != o.Dataset || s.Purpose != o.Purpose ||
		s.RetentionDays > o.RetentionDays || s.MinGroupSize < o.MinGroupSize || s.CallBudget > o.CallBudget {
		return false
	}
	for _, n := range s.Columns {
		if !slices.Contains(o.Columns, n) {
			return false
		}
	}
	for _, op := range s.Operations {
		if !slices.Contains(o.Operations, op) {
			return false
		}
	}
	for i := range o.RowFilter {
		if !s.HasCondition(o.RowFilter[i]) {
			return false
		}
	}
	return s.termsWithin(o)
}

// HasCondition says whether the row filter has exactly this condition.
func (s *Scope) HasCondition(c Condition) bool {
	for i := range s.RowFilter {
		if s.RowFilter[i].Equal(c) {
			return true
		}
	}
	return false
}
