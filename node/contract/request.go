// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"strconv"

	"github.com/treaty-node/treaty/did/canon"
)

// QueryType is the type member of a request's canonical form.
const QueryType = "TreatyQuery"

// Aggregate is one output column: an operation over a column. Column is empty
// for count only, which then counts rows.
type Aggregate struct {
	Op     string `json:"op"`
	Column string `json:"column"`
	As     string `json:"as"` // alias; empty: op, or op_column
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

// Order sorts by a group-by column or by an aggregate's name.
type Order struct {
	By   string `json:"by"`
	Desc bool   `json:"desc"`
}

// Request is one query as the data plane received it. Caller is the verified
// DID of whoever signed the call, never a member of the call.
type Request struct {
	ContractID string      `json:"contractId"`
	Caller     string      `json:"-"`
	Purpose    string      `json:"purpose"`
	Dataset    string      `json:"dataset"`
	Aggregates []Aggregate `json:"aggregates"`
	GroupBy    []string    `json:"groupBy"`
	Filters    []Condition `json:"filters"` // all must hold
	OrderBy    []Order     `json:"orderBy"`
	Limit      int         `json:"limit"` // 0: as many as MaxLimit
}

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
	case len(r.Aggregates) == 0:
		return "there is no aggregate; rows themselves are not granted by contracts of version 1"
	case len(r.Aggregates) > MaxAggregates:
		return "more than " + strconv.Itoa(MaxAggregates) + " aggregates"
	case len(r.GroupBy) > MaxGroupBy:
		return "more than " + strconv.Itoa(MaxGroupBy) + " group-by columns"
	case len(r.Filters) > MaxConditions:
		return "more than " + strconv.Itoa(MaxConditions) + " filters"
	case len(r.OrderBy) > MaxOrderBy:
		return "more than " + strconv.Itoa(MaxOrderBy) + " order-by terms"
	case r.Limit < 0 || r.Limit > MaxLimit:
		return "the limit is not within 0 to " + strconv.Itoa(MaxLimit)
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
