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
	BudgetExhausted  Code = "BUDGET_EXHAUSTED" // of calls or rows
	RateLimited      Code = "RATE_LIMITED"     // the text says after how many seconds to try again
	PrivacyExhausted Code = "PRIVACY_BUDGET_EXHAUSTED"
	GroupTooSmall    Code = "GROUP_TOO_SMALL"
)

// Codes returns every code.
func Codes() []Code {
	return []Code{
		InvalidQuery, UnknownColumn, NoContract, ContractRevoked, ContractExpired, ScopeDenied,
		PurposeMismatch, ApprovalRequired, BudgetExhausted, RateLimited, PrivacyExhausted, GroupTooSmall,
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

	WindowCalls  int64 // of these, in the window of the contract's rate that now lies in
	Rows         int64 // rows reserved before this call
	MicroEpsilon int64 // millionths of epsilon reserved before this call

	// Buyer is the DID that was verified to stand for the contract's buyer now, itself or its successor; "": only itself.
	Buyer string
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
//	SCOPE_DENIED, (INVALID_QUERY), PURPOSE_MISMATCH, APPROVAL_REQUIRED, BUDGET_EXHAUSTED,
//	RATE_LIMITED, PRIVACY_BUDGET_EXHAUSTED
//
// Every column that a request uses, in an aggregate, a group, a filter or an
// order, must be published and granted, for that use where the contract tells
// uses apart; every operation must be granted. The
// contract's row filter is not applied here: whoever builds the query joins it
// to the request's filters with AND.
//
// To the buyer a refusal names the contract, what it grants and the purpose of
// record. Anybody else gets only its own words back.
func Evaluate(req Request, schema *Schema, c *Contract, u Usage, now time.Time) Decision {
	party := c != nil && c.ID == req.ContractID && req.Caller != "" && (c.Parties.Buyer == req.Caller || u.Buyer == req.Caller)
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
	if d, ok := c.left(&req, u, now); !ok {
		return d
	}
	return Decision{Allowed: true}
}

// left decides by what earlier calls have used.
func (c *Contract) left(r *Request, u Usage, now time.Time) (Decision, bool) {
	switch {
	case u.Calls < 0 || u.Calls >= c.CallBudget:
		return Refusal(BudgetExhausted, c, "all "+strconv.FormatInt(c.CallBudget, 10)+" calls are used"), false
	case r.Rows() && (u.Rows < 0 || u.Rows > c.Rows.RowBudget-int64(r.Limit)):
		return Refusal(BudgetExhausted, c, c.rowsLeft(u.Rows)), false
	case !c.Rate.IsZero() && (u.WindowCalls < 0 || u.WindowCalls >= c.Rate.Calls):
		return c.RateRefusal(now), false
	case c.Noise != nil && !c.Noise.affords(u.MicroEpsilon):
		return c.PrivacyRefusal(), false
	}
	return Decision{}, true
}

func (c *Contract) rowsLeft(used int64) string {
	left := max(0, c.Rows.RowBudget-max(used, 0))
	return strconv.FormatInt(left, 10) + " of " + strconv.FormatInt(c.Rows.RowBudget, 10) + " rows are left, fewer than the limit asks for"
}

// RowRefusal refuses a call for more rows than are left.
func (c *Contract) RowRefusal(used int64) Decision {
	return Refusal(BudgetExhausted, c, c.rowsLeft(used))
}

// RateRefusal refuses a call that is one too many at now, and says when the
// next window begins.
func (c *Contract) RateRefusal(now time.Time) Decision {
	wait := c.Rate.Window(now).Add(time.Duration(c.Rate.Seconds) * time.Second).Sub(now)
	seconds := int64((wait + time.Second - 1) / time.Second)
	return Refusal(RateLimited, c, "the contract allows "+c.Rate.String()+"; retry after "+strconv.FormatInt(seconds, 10)+" s")
}

// PrivacyRefusal refuses a call that the privacy budget cannot pay.
func (c *Contract) PrivacyRefusal() Decision {
	return Refusal(PrivacyExhausted, c, "the privacy budget of "+c.Noise.EpsilonTotal+" is used up; each query takes "+c.Noise.EpsilonPerQuery)
}

// Window is the beginning of the window that now lies in. The zero Rate has
// none.
func (r Rate) Window(now time.Time) time.Time {
	if r.Seconds < 1 {
		return time.Time{}
	}
	at := now.Unix()
	return time.Unix(at-((at%r.Seconds)+r.Seconds)%r.Seconds, 0).UTC()
}

// affords says whether one more query fits.
func (n *Noise) affords(used int64) bool {
	per, ok1 := MicroEpsilon(n.EpsilonPerQuery)
	total, ok2 := MicroEpsilon(n.EpsilonTotal)
	return ok1 && ok2 && used >= 0 && used <= total-per
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

// granted checks columns, their uses, and operations.
func (c *Contract) granted(r *Request, schema *Schema, used *columns) (Decision, bool) {
	if r.Rows() && c.Rows.IsZero() {
		return Refusal(ScopeDenied, c, "rows are not granted, only aggregates"), false
	}
	for i, at := range used.at[:used.n] {
		if at == noColumn {
			continue
		}
		name := schema.Columns[at].Name
		if !c.grantsColumn(name, int(at)) {
			return Refusal(ScopeDenied, c, "column "+Echo(name)+" is not granted"), false
		}
		if why := c.refusesUse(name, int(at), used.use[i]); why != "" {
			return Refusal(ScopeDenied, c, "column "+Echo(name)+" is not granted "+why), false
		}
	}
	for i := range r.Aggregates {
		a := &r.Aggregates[i]
		if !slices.Contains(c.Operations, a.Op) {
			return Refusal(ScopeDenied, c, "operation "+Echo(a.Op)+" is not granted"), false
		}
		if at := used.at[i]; at != noColumn && c.refusesOperation(a.Column, int(at), a.Op) {
			return Refusal(ScopeDenied, c, "operation "+Echo(a.Op)+" is not granted on column "+Echo(a.Column)), false
		}
	}
	if c.Noise != nil {
		if why := c.refusesNoise(r); why != "" {
			return Refusal(ScopeDenied, c, why), false
		}
	}
	return Decision{}, true
}

// refusesUse says for what a granted column is not granted; "" if it is.
func (s *Scope) refusesUse(name string, near int, u use) string {
	if u == useNone || len(s.ColumnGrants) == 0 && u != useRead {
		return ""
	}
	g := s.columnGrant(name, near)
	if g == nil {
		if u == useRead {
			return "for reading"
		}
		return ""
	}
	word := useWords[u]
	if slices.Contains(g.Uses, word) {
		return ""
	}
	return "for the use " + word
}

// refusesOperation says whether a column's own grant, or the lack of one, keeps
// an operation of the scope from it.
func (s *Scope) refusesOperation(name string, near int, op string) bool {
	if len(s.ColumnGrants) == 0 {
		return false
	}
	if g := s.columnGrant(name, near); g != nil {
		return !slices.Contains(g.Operations, op)
	}
	return ReleasesValue(op)
}

// columnGrant finds a column's own grant, beginning where it would stand.
func (s *Scope) columnGrant(name string, near int) *ColumnGrant {
	near = min(near, len(s.ColumnGrants)-1)
	for i := near; i >= 0; i-- {
		if sameName(s.ColumnGrants[i].Column, name) {
			return &s.ColumnGrants[i]
		}
	}
	for i := near + 1; i < len(s.ColumnGrants); i++ {
		if sameName(s.ColumnGrants[i].Column, name) {
			return &s.ColumnGrants[i]
		}
	}
	return nil
}

// refusesNoise says what cannot be asked where counts and sums get noise: what
// would depend on the exact numbers.
func (s *Scope) refusesNoise(r *Request) string {
	if len(r.Having) > 0 {
		return "having would depend on exact numbers, and the contract wants noise"
	}
	for i := range r.OrderBy {
		if r.isOutput(r.OrderBy[i].By) {
			return "order by an aggregate would depend on exact numbers, and the contract wants noise"
		}
	}
	for i := range r.Aggregates {
		a := &r.Aggregates[i]
		if !Noisy(a.Op) {
			return "operation " + Echo(a.Op) + " cannot be given noise"
		}
		if a.Op == OpSum {
			if _, ok := s.Noise.Bound(a.Column); !ok {
				return "sum of " + Echo(a.Column) + " is not granted: the contract's noise has no bounds for it"
			}
		}
	}
	return ""
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
	dates := used.at[len(r.Aggregates)+len(r.GroupBy):]
	for i := range r.GroupByDate {
		g, col := &r.GroupByDate[i], &schema.Columns[dates[i]]
		if t, ok := ParseType(col.Type); !ok || !t.Dated() || g.Unit == UnitHour && t.Kind == KindDate {
			return "group by " + g.Unit + " cannot be applied to " + Echo(g.Column) + ", which is " + Echo(col.Type)
		}
	}
	for i := range r.OrderBy {
		if by := r.OrderBy[i].By; r.Rows() && !slices.Contains(r.Select, by) {
			return "order by " + Echo(by) + ": want a selected column"
		} else if !r.Rows() && !r.isOutput(by) && !slices.Contains(r.GroupBy, by) {
			return "order by " + Echo(by) + ": want a group-by column or the name of an aggregate"
		}
	}
	next := len(r.Aggregates) + len(r.GroupBy) + len(r.GroupByDate)
	for i := range r.Filters {
		if why := r.Filters[i].checkType(schema.Columns[used.at[next]].Type); why != nil {
			return "the filter on " + Echo(r.Filters[i].Column) + ": " + why.Error()
		}
		next++
	}
	if why := r.Where.fits(schema, used, &next); why != "" {
		return why
	}
	for i := range r.Having {
		if why := r.havingFits(&r.Having[i], schema, used); why != "" {
			return "having " + Echo(r.Having[i].Column) + ": " + why
		}
	}
	return ""
}

func (r *Request) havingFits(h *Condition, schema *Schema, used *columns) string {
	for i := range r.Aggregates {
		var buf nameBuf
		if string(r.Aggregates[i].appendName(buf[:0])) != h.Column {
			continue
		}
		var col Type
		if at := used.at[i]; at != noColumn {
			col, _ = ParseType(schema.Columns[at].Type)
		}
		if why := h.fitsType(CompareType(r.Aggregates[i].Op, col)); why != nil {
			return why.Error()
		}
		return ""
	}
	return "want the name of an aggregate"
}

// CompareType is the type in which having compares an aggregate's result over a
// column of type t. Averages, medians and standard deviations are compared in
// double precision.
func CompareType(op string, t Type) Type {
	switch op {
	case OpCount, OpCountDistinct:
		return Type{Kind: KindInteger}
	case OpSum:
		if t.Kind != KindDouble {
			return Type{Kind: KindDecimal, Precision: 38, Scale: t.Scale}
		}
	case OpMin, OpMax, OpPercentile:
		return t
	}
	return Type{Kind: KindDouble}
}

// use is what a request does with a column.
type use uint8

const (
	useNone use = iota // orders by it: it is grouped or selected as well
	useRead            // selects it
	useFilter
	useGroup
	useAggregate
)

var useWords = [...]string{useRead: UseRead, useFilter: UseFilter, useGroup: UseGroup, useAggregate: UseAggregate}

// columns are the places in the schema of the columns that a request uses, in
// the order aggregates, groups, date groups, filters, where, orders, selected;
// noColumn where it uses none: a count of rows, and an order by an output's
// name. The arrays make looking each name up once possible without allocation.
type columns struct {
	n   int
	at  [maxUsed]int16
	use [maxUsed]use
}

const (
	noColumn = -1
	maxUsed  = MaxAggregates + MaxGroupBy + MaxConditions + MaxOrderBy + MaxSelect
)

// resolve looks every column up, and returns the first that is not published.
// The request's shape has been checked, so that all fit.
func (u *columns) resolve(r *Request, schema *Schema) (unknown string, ok bool) {
	for i := range r.Aggregates {
		if name := r.Aggregates[i].Column; name == "" {
			u.skip()
		} else if !u.add(name, useAggregate, schema) {
			return name, false
		}
	}
	for _, name := range r.GroupBy {
		if !u.add(name, useGroup, schema) {
			return name, false
		}
	}
	for i := range r.GroupByDate {
		if name := r.GroupByDate[i].Column; !u.add(name, useGroup, schema) {
			return name, false
		}
	}
	for i := range r.Filters {
		if name := r.Filters[i].Column; !u.add(name, useFilter, schema) {
			return name, false
		}
	}
	if name, ok := r.Where.resolve(u, schema); !ok {
		return name, false
	}
	for i := range r.OrderBy {
		if name := r.OrderBy[i].By; r.isOutput(name) {
			u.skip()
		} else if !u.add(name, useNone, schema) {
			return name, false
		}
	}
	for _, name := range r.Select {
		if !u.add(name, useRead, schema) {
			return name, false
		}
	}
	return "", true
}

func (u *columns) skip() {
	u.at[u.n] = noColumn
	u.n++
}

func (u *columns) add(name string, to use, schema *Schema) bool {
	i := schema.index(name)
	// A place is kept in 16 bits; a valid schema has at most MaxColumns.
	if i < 0 || i >= MaxColumns {
		return false
	}
	u.at[u.n], u.use[u.n] = int16(i), to //nolint:gosec // bounded above
	u.n++
	return true
}

// isOutput says whether an order names an aggregate or a date group, exactly.
func (r *Request) isOutput(by string) bool {
	var buf nameBuf
	for i := range r.Aggregates {
		if string(r.Aggregates[i].appendName(buf[:0])) == by {
			return true
		}
	}
	for i := range r.GroupByDate {
		if string(r.GroupByDate[i].appendName(buf[:0])) == by {
			return true
		}
	}
	return false
}
