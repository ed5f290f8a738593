// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"slices"
	"strconv"
	"time"
)

// Code names a refusal. Codes are part of the wire format.
type Code string

// The codes, in the order in which Evaluate looks for them. InvalidQuery comes
// first for a malformed request, and once more after ScopeDenied for one that
// does not fit the types of the columns it may use. GroupTooSmall is decided
// inside the query.
const (
	InvalidQuery     Code = "INVALID_QUERY"
	UnknownColumn    Code = "UNKNOWN_COLUMN"
	NoContract       Code = "NO_CONTRACT"
	ContractRevoked  Code = "CONTRACT_REVOKED"
	ContractExpired  Code = "CONTRACT_EXPIRED"
	ScopeDenied      Code = "SCOPE_DENIED"
	PurposeMismatch  Code = "PURPOSE_MISMATCH"
	ApprovalRequired Code = "APPROVAL_REQUIRED"
	BudgetExhausted  Code = "BUDGET_EXHAUSTED"
	GroupTooSmall    Code = "GROUP_TOO_SMALL"
)

// Codes returns every code.
func Codes() []Code {
	return []Code{
		InvalidQuery, UnknownColumn, NoContract, ContractRevoked, ContractExpired, ScopeDenied,
		PurposeMismatch, ApprovalRequired, BudgetExhausted, GroupTooSmall,
	}
}

// Known says whether c is a code of this version.
func (c Code) Known() bool { return slices.Contains(Codes(), c) }

// State is where a contract stands. The zero State is not in force.
type State string

// The states.
const (
	AwaitingApproval   State = "awaiting_approval"
	AwaitingActivation State = "awaiting_activation"
	InForce            State = "in_force"
	Revoked            State = "revoked"
)

// Usage are the facts about a contract that its text does not hold. The caller
// establishes them before it asks: State is InForce only for a contract whose
// two proofs and activation it has verified.
type Usage struct {
	State   State
	Revoked bool  // a revocation is on record
	Calls   int64 // calls reserved before this one
}

// Decision is Evaluate's answer. The zero Decision denies.
type Decision struct {
	Allowed bool
	Code    Code   // why not; empty when allowed
	Text    string // for the caller, bounded and printable; empty when allowed
	Note    string // for the own log only: what a stranger is not told
}

// String returns "CODE: text", the form in which a refusal reaches the caller.
func (d Decision) String() string {
	switch {
	case d.Allowed:
		return "allowed"
	case d.Code == "":
		return "denied"
	}
	return string(d.Code) + ": " + d.Text
}

// Evaluate decides whether a request may run. It is pure, reads nothing, and
// does not allocate when the answer is yes. schema is what the dataset that the
// request names publishes now, nil if there is none; c is the contract that the
// request names, nil if there is none; both are valid. The order of refusals is
// part of the wire format:
//
//	INVALID_QUERY, UNKNOWN_COLUMN, NO_CONTRACT, CONTRACT_REVOKED, CONTRACT_EXPIRED,
//	SCOPE_DENIED, (INVALID_QUERY), PURPOSE_MISMATCH, APPROVAL_REQUIRED, BUDGET_EXHAUSTED
//
// Every column that a request uses, in an aggregate, a group, a filter or an
// order, must be published and granted; every operation must be granted. The
// contract's row filter is not applied here: whoever builds the query joins it
// to the request's filters with AND.
//
// To the buyer a refusal names the contract, what it grants and the purpose of
// record. Anybody else gets only its own words back.
func Evaluate(req Request, schema *Schema, c *Contract, u Usage, now time.Time) Decision {
	party := c != nil && c.ID == req.ContractID && req.Caller != "" && c.Parties.Buyer == req.Caller
	ours := c
	if !party {
		ours = nil
	}
	if why := req.shape(); why != "" {
		return Refusal(InvalidQuery, ours, why)
	}
	published := schema != nil && schema.Dataset == req.Dataset
	var used columns
	if published {
		if name, ok := used.resolve(&req, schema); !ok {
			return Refusal(UnknownColumn, ours, unknownText(name, schema, party))
		}
	}
	if !party {
		return strangerRefusal(c, req.ContractID, req.Caller)
	}
	if d, ok := c.standing(u, now); !ok {
		return d
	}
	if req.Dataset != c.Dataset {
		return Refusal(ScopeDenied, c, "dataset "+Echo(req.Dataset)+" is not granted")
	}
	if !published {
		return Refusal(ScopeDenied, c, "dataset "+Echo(req.Dataset)+" is not served here")
	}
	if d, ok := c.granted(&req, schema, &used); !ok {
		return d
	}
	for i := range c.RowFilter {
		// A filter that cannot be applied must not be left out.
		if why, _ := checkCondition(schema, &c.RowFilter[i]); why != nil {
			return Refusal(ScopeDenied, c, "the contract's row filter on "+Echo(c.RowFilter[i].Column)+" no longer fits the published schema")
		}
	}
	if why := req.fits(schema, &used); why != "" {
		return Refusal(InvalidQuery, c, why)
	}
	if req.Purpose != c.Purpose {
		return Refusal(PurposeMismatch, c, "the purpose "+Echo(req.Purpose)+" is not the purpose of record")
	}
	if u.State == AwaitingApproval {
		return Refusal(ApprovalRequired, c, "an approval is missing")
	}
	if u.Calls < 0 || u.Calls >= c.CallBudget {
		return Refusal(BudgetExhausted, c, "all "+strconv.FormatInt(c.CallBudget, 10)+" calls are used")
	}
	return Decision{Allowed: true}
}

// standing decides what does not depend on the query.
func (c *Contract) standing(u Usage, now time.Time) (Decision, bool) {
	if c.CheckVersion(c.Version) != nil {
		return Refusal(NoContract, c, "the contract has terms that cannot be enforced here"), false
	}
	if u.Revoked || u.State == Revoked {
		return Refusal(ContractRevoked, c, "the contract was revoked"), false
	}
	if u.State != InForce && u.State != AwaitingApproval {
		return Refusal(NoContract, c, "the contract is not in force: its activation is missing"), false
	}
	from, err := ParseTime(c.ValidFrom)
	if err != nil || now.Before(from) {
		return Refusal(NoContract, c, "the contract is not in force before "+Echo(c.ValidFrom)), false
	}
	until, err := ParseTime(c.ValidUntil)
	if err != nil || !now.Before(until) {
		return Refusal(ContractExpired, c, "the contract ended at "+Echo(c.ValidUntil)), false
	}
	return Decision{}, true
}

// granted checks columns, operations and what the order may name.
func (c *Contract) granted(r *Request, schema *Schema, used *columns) (Decision, bool) {
	for _, at := range used.at[:used.n] {
		if at == noColumn {
			continue
		}
		if name := schema.Columns[at].Name; !c.grantsColumn(name, int(at)) {
			return Refusal(ScopeDenied, c, "column "+Echo(name)+" is not granted"), false
		}
	}
	for i := range r.Aggregates {
		if !slices.Contains(c.Operations, r.Aggregates[i].Op) {
			return Refusal(ScopeDenied, c, "operation "+Echo(r.Aggregates[i].Op)+" is not granted"), false
		}
	}
	return Decision{}, true
}

// grantsColumn looks for a name, beginning where it stands if the grant lists
// columns in the schema's order.
func (s *Scope) grantsColumn(name string, near int) bool {
	near = min(near, len(s.Columns)-1)
	for i := near; i >= 0; i-- {
		if sameName(s.Columns[i], name) {
			return true
		}
	}
	for i := near + 1; i < len(s.Columns); i++ {
		if sameName(s.Columns[i], name) {
			return true
		}
	}
	return false
}

// fits checks the request against the columns' types, once all it names is
// known to be granted.
func (r *Request) fits(schema *Schema, used *columns) string {
	for i := range r.Aggregates {
		at := used.at[i]
		if at == noColumn {
			continue
		}
		a, col := &r.Aggregates[i], &schema.Columns[at]
		if t, ok := ParseType(col.Type); !ok || !OperationFits(a.Op, t) {
			return a.Op + " cannot be applied to " + Echo(a.Column) + ", which is " + Echo(col.Type)
		}
	}
	for i := range r.OrderBy {
		if by := r.OrderBy[i].By; !r.isOutput(by) && !slices.Contains(r.GroupBy, by) {
			return "order by " + Echo(by) + ": want a group-by column or the name of an aggregate"
		}
	}
	filters := used.at[len(r.Aggregates)+len(r.GroupBy):]
	for i := range r.Filters {
		if why := r.Filters[i].checkType(schema.Columns[filters[i]].Type); why != nil {
			return "the filter on " + Echo(r.Filters[i].Column) + ": " + why.Error()
		}
	}
	return ""
}

// columns are the places in the schema of the columns that a request uses, in
// the order aggregates, groups, filters, orders; noColumn where it uses none: a
// count of rows, and an order by an aggregate's name. The array makes looking
// each name up once possible without allocation.
type columns struct {
	n  int
	at [MaxAggregates + MaxGroupBy + MaxConditions + MaxOrderBy]int16
}

const noColumn = -1

// resolve looks every column up, and returns the first that is not published.
// The request's shape has been checked, so that all fit.
func (u *columns) resolve(r *Request, schema *Schema) (unknown string, ok bool) {
	for i := range r.Aggregates {
		if name := r.Aggregates[i].Column; name == "" {
			u.skip()
		} else if !u.add(name, schema) {
			return name, false
		}
	}
	for _, name := range r.GroupBy {
		if !u.add(name, schema) {
			return name, false
		}
	}
	for i := range r.Filters {
		if name := r.Filters[i].Column; !u.add(name, schema) {
			return name, false
		}
	}
	for i := range r.OrderBy {
		if name := r.OrderBy[i].By; r.isOutput(name) {
			u.skip()
		} else if !u.add(name, schema) {
			return name, false
		}
	}
	return "", true
}

func (u *columns) skip() {
	u.at[u.n] = noColumn
	u.n++
}

func (u *columns) add(name string, schema *Schema) bool {
	i := schema.index(name)
	// A place is kept in 16 bits; a valid schema has at most MaxColumns.
	if i < 0 || i >= MaxColumns {
		return false
	}
	u.at[u.n] = int16(i) //nolint:gosec // bounded above
	u.n++
	return true
}

// isOutput says whether an order names an aggregate, exactly.
func (r *Request) isOutput(by string) bool {
	for i := range r.Aggregates {
		var buf nameBuf
		if string(r.Aggregates[i].appendName(buf[:0])) == by {
			return true
		}
	}
	return false
}
