// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strconv"
	"strings"

	"github.com/treaty-node/treaty/node/contract"
)

// ClassRule limits what columns of one class may be granted for.
type ClassRule struct {
	Uses       []string // of contract.Uses; reading only where it is named
	Operations []string // nil: those of the dataset
}

// usesWithoutRule are what a column of a class without a rule may be granted for.
func usesWithoutRule() []string {
	return []string{contract.UseFilter, contract.UseGroup, contract.UseAggregate}
}

func rateTo(dst *contract.Rate) func(node) error {
	return func(n node) error {
		return n.fields(handlers{
			"calls":   int64To(&dst.Calls, 1, contract.MaxCallBudget),
			"seconds": int64To(&dst.Seconds, 1, contract.MaxRateSeconds),
		}, "calls", "seconds")
	}
}

func classesTo(dst *map[string]ClassRule) func(node) error {
	return func(n node) error {
		out := map[string]ClassRule{}
		err := n.each(func(class string, n node) error {
			rule := ClassRule{Uses: usesWithoutRule()}
			err := n.fields(handlers{
				"uses": func(v node) error {
					list, err := v.texts()
					if err != nil {
						return err
					}
					for _, u := range list {
						if !slices.Contains(contract.Uses(), u) {
							return v.fail("unknown use %s; known are %s", contract.Echo(u), strings.Join(contract.Uses(), ", "))
						}
					}
					rule.Uses = list
					return nil
				},
				"operations": operationsTo(&rule.Operations),
			})
			out[class] = rule
			return err
		})
		*dst = out
		return err
	}
}

func noiseTo(dst **contract.Noise) func(node) error {
	return func(n node) error {
		noise := &contract.Noise{Bounds: []contract.Bound{}}
		epsilon := func(dst *string) func(node) error {
			return func(v node) error {
				s, err := v.value()
				if err != nil {
					return err
				}
				if *dst, _ = s.Text(); *dst == "" {
					return v.fail("want a number")
				}
				if _, ok := contract.MicroEpsilon(*dst); !ok {
					return v.fail("want a number from 0.000001 to 1000")
				}
				return nil
			}
		}
		err := n.fields(handlers{
			"epsilon_per_query": epsilon(&noise.EpsilonPerQuery),
			"epsilon_total":     epsilon(&noise.EpsilonTotal),
			"bounds": func(v node) error {
				return v.each(func(column string, v node) error {
					b := contract.Bound{Column: column}
					number := func(dst *string) func(node) error {
						return func(v node) error {
							s, err := v.value()
							*dst, _ = s.Text()
							return err
						}
					}
					err := v.fields(handlers{"low": number(&b.Low), "high": number(&b.High)}, "low", "high")
					noise.Bounds = append(noise.Bounds, b)
					return err
				})
			},
		}, "epsilon_per_query", "epsilon_total")
		if err != nil {
			return err
		}
		*dst = noise
		return nil
	}
}

// laterTerms narrows what contracts after version 1 hold. It returns why there can be no offer, or "".
func (n *narrowing) laterTerms(granted *contract.Scope) string {
	if why := n.versionShort(); why != "" {
		return why
	}
	var why string
	if granted.Rate, why = n.rate(); why != "" || n.terms.Version < contract.Version3 {
		return why
	}
	if why = n.grants(granted); why != "" {
		return why
	}
	n.rows(granted)
	if granted.RetentionStatement, why = n.statement(); why != "" {
		return why
	}
	granted.Noise = n.noise(granted)
	granted.Amends = n.ask.Amends
	if err := granted.CheckTerms(n.terms.Schema); err != nil {
		return "the data plane could not enforce it: " + strings.TrimPrefix(err.Error(), "contract: ")
	}
	return ""
}

// versionShort says that the policy wants terms which the agreed version does not have: without them it would grant more.
func (n *narrowing) versionShort() string {
	needs := contract.Version1
	switch {
	case n.rules.Noise != nil || n.rules.RetentionStatement != "":
		needs = contract.Version3
	case !n.rules.Rate.IsZero():
		needs = contract.Version2
	}
	if why := n.ask.CheckVersion(max(n.terms.Version, contract.Version1)); why != nil {
		return strings.TrimPrefix(why.Error(), "contract: ")
	}
	if needs > max(n.terms.Version, contract.Version1) {
		return "the vendor offers this dataset only under contract schema version " + strconv.Itoa(needs) + " and later"
	}
	return ""
}

// classRefused says that a column's class is granted for some uses only, which a contract before version 3 cannot say.
func (n *narrowing) classRefused(name string) (rule, why string) {
	if n.terms.Version >= contract.Version3 {
		return "", ""
	}
	class := n.terms.Classes[name]
	r, ok := n.rules.Classes[class]
	if ok && (!covers(r.Uses, usesWithoutRule()) || r.Operations != nil) {
		return "classes", "columns of class " + contract.Echo(class) + " are granted for some uses only, which needs contract schema version 3"
	}
	return "", ""
}

func covers(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

func both(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !slices.Contains(b, s) })
}

// rate is the tightest that is within all of ask, draft and policy.
func (n *narrowing) rate() (contract.Rate, string) {
	got, ok := n.ask.Rate, true
	for _, other := range []contract.Rate{n.draft.Rate, n.rules.Rate} {
		if got, ok = tighter(got, other); !ok {
			return got, "the rate asked for and the vendor's have no window in common"
		}
	}
	if got != n.ask.Rate {
		rule, why := "rate", "the policy's limit is "+n.rules.Rate.String()
		if got != n.rules.Rate {
			rule, why = ruleDecider, "the vendor offers no more"
		}
		n.remove("rate", n.ask.Rate.String(), got.String(), rule, why)
	}
	return got, ""
}

// tighter is a rate that is within both.
func tighter(a, b contract.Rate) (contract.Rate, bool) {
	switch {
	case b.IsZero() || a == b:
		return a, true
	case a.IsZero():
		return b, true
	}
	x, y := a.Seconds, b.Seconds
	for y != 0 {
		x, y = y, x%y
	}
	out := contract.Rate{Calls: min(a.Calls, b.Calls), Seconds: a.Seconds / x * b.Seconds}
	return out, out.Seconds <= contract.MaxRateSeconds
}

// grants gives each column the uses and operations that ask, draft and the rule of its class have in common. Where that is what
// a scope without column grants says anyway, there are none.
func (n *narrowing) grants(granted *contract.Scope) string {
	needed := len(n.ask.ColumnGrants) > 0
	list, from := make([]contract.ColumnGrant, 0, len(granted.Columns)), make([]string, 0, len(granted.Columns))
	for _, name := range granted.Columns {
		asked, _ := n.ask.Grant(name)
		drafted, _ := n.draft.Grant(name)
		rule, ok := n.rules.Classes[n.terms.Classes[name]]
		if !ok {
			rule.Uses = usesWithoutRule()
		}
		g := contract.ColumnGrant{Column: name, Uses: both(both(asked.Uses, drafted.Uses), rule.Uses), Operations: both(asked.Operations, granted.Operations)}
		g.Operations = both(g.Operations, drafted.Operations)
		if rule.Operations != nil {
			g.Operations = both(g.Operations, rule.Operations)
		}
		if !slices.Contains(g.Uses, contract.UseAggregate) {
			g.Operations = []string{}
		}
		if len(g.Operations) == 0 {
			g.Uses = withoutAggregate(g.Uses)
		}
		from, list = append(from, grantText(asked.Uses, both(asked.Operations, granted.Operations))), append(list, g)
		needed = needed || from[len(from)-1] != grantText(g.Uses, g.Operations)
	}
	kept, grants := granted.Columns[:0:0], list[:0]
	for i, g := range list {
		rule, why := "classes", "columns of class "+contract.Echo(n.terms.Classes[g.Column])+" are granted for these uses only"
		if needed && !n.applies(g) {
			// Where columns have grants of their own, aggregates of a column to whose type none of them applies are none.
			if from[i] == grantText(g.Uses, g.Operations) {
				rule, why = "operations", "no operation of the offer applies to the column's type"
			}
			g.Uses, g.Operations = withoutAggregate(g.Uses), []string{}
		}
		if len(g.Uses) == 0 {
			n.remove("column", g.Column, "", "classes", "nothing of what was asked may be done with columns of its class")
			continue
		}
		if to := grantText(g.Uses, g.Operations); from[i] != to {
			n.remove("columnGrant", g.Column+": "+from[i], g.Column+": "+to, rule, why)
		}
		kept, grants = append(kept, g.Column), append(grants, g)
	}
	if granted.Columns = kept; len(kept) == 0 {
		return "no column remains"
	}
	if needed {
		granted.ColumnGrants = grants
	}
	return ""
}

// applies says whether any operation granted on a column applies to its type; a column without operations needs none.
func (n *narrowing) applies(g contract.ColumnGrant) bool {
	col, _ := n.terms.Schema.Column(g.Column)
	t, _ := contract.ParseType(col.Type)
	return len(g.Operations) == 0 || slices.ContainsFunc(g.Operations, func(op string) bool { return contract.OperationFits(op, t) })
}

func withoutAggregate(uses []string) []string {
	return slices.DeleteFunc(slices.Clone(uses), func(u string) bool { return u == contract.UseAggregate })
}

func grantText(uses, operations []string) string {
	s := strings.Join(uses, ", ")
	if len(operations) > 0 {
		s += " (" + strings.Join(operations, ", ") + ")"
	}
	return s
}

// rows are the least of what is asked, drafted and allowed, where a column may be read.
func (n *narrowing) rows(granted *contract.Scope) {
	asked := n.ask.Rows.RowBudget
	if asked == 0 {
		return
	}
	got := min(asked, n.draft.Rows.RowBudget, n.rules.RowBudget)
	rule, why := "row_budget", "the policy's limit is "+strconv.FormatInt(n.rules.RowBudget, 10)
	if n.draft.Rows.RowBudget < min(asked, n.rules.RowBudget) {
		rule, why = ruleDecider, "the vendor offers no more"
	}
	if len(granted.Readable()) == 0 {
		got, rule, why = 0, "classes", "no column may be read"
	}
	if n.rules.Noise != nil || n.ask.Noise != nil || n.draft.Noise != nil {
		got, rule, why = 0, "noise", "there are no rows where numbers get noise"
	}
	granted.Rows.RowBudget = max(got, 0)
	if granted.Rows.RowBudget != asked {
		n.remove("rowBudget", strconv.FormatInt(asked, 10), strconv.FormatInt(granted.Rows.RowBudget, 10), rule, why)
	}
}

// statement is the policy's, or else what was asked or drafted.
func (n *narrowing) statement() (text, why string) {
	text = n.ask.RetentionStatement
	for _, other := range []string{n.rules.RetentionStatement, n.draft.RetentionStatement} {
		switch {
		case other == "" || other == text:
		case text == "":
			text = other
			n.remove("retentionStatement", "", text, "retention_statement", "the vendor wants it promised")
		default:
			return text, "the retention statement asked for is not the vendor's"
		}
	}
	return text, ""
}

// noise is the most of what ask, draft and policy want, bounded as all of them bound it.
func (n *narrowing) noise(granted *contract.Scope) *contract.Noise {
	var got *contract.Noise
	for _, other := range []*contract.Noise{n.ask.Noise, n.draft.Noise, n.rules.Noise} {
		got = noisier(got, other)
	}
	if got == nil {
		return nil
	}
	got.Bounds = slices.DeleteFunc(got.Bounds, func(b contract.Bound) bool { return !slices.Contains(granted.Columns, b.Column) })
	if from, to := noiseText(n.ask.Noise), noiseText(got); from != to {
		n.remove("noise", from, to, "noise", "the vendor adds noise to counts and sums")
	}
	return got
}

func noiseText(n *contract.Noise) string {
	if n == nil {
		return ""
	}
	s := "epsilon " + n.EpsilonPerQuery + " a query, " + n.EpsilonTotal + " in all"
	for _, b := range n.Bounds {
		s += ", " + contract.Echo(b.Column) + " from " + b.Low + " to " + b.High
	}
	return clip(s)
}

// noisier has the smaller epsilons, and the bounds that both have; of two for one column the second's.
func noisier(a, b *contract.Noise) *contract.Noise {
	switch {
	case b == nil:
		return a
	case a == nil:
		out := *b
		out.Bounds = slices.Clone(b.Bounds)
		return &out
	}
	less := func(x, y string) string {
		p, _ := contract.MicroEpsilon(x)
		if q, _ := contract.MicroEpsilon(y); q < p {
			return y
		}
		return x
	}
	out := &contract.Noise{
		EpsilonPerQuery: less(a.EpsilonPerQuery, b.EpsilonPerQuery), EpsilonTotal: less(a.EpsilonTotal, b.EpsilonTotal), Bounds: []contract.Bound{},
	}
	for _, bound := range b.Bounds {
		if _, ok := a.Bound(bound.Column); ok {
			out.Bounds = append(out.Bounds, bound)
		}
	}
	return out
}

// NoiseNeeds says what noise a buyer can live with. The zero value: none.
type NoiseNeeds struct {
	Accepted   bool
	MinEpsilon int64 // millionths, of each query
}

// In is the needs as they are asked for under a version of the contract schema: what it has no word for is not asked for, and
// missing if it is required.
func (n *Needs) In(version int) *Needs {
	out := *n
	out.version = max(version, contract.Version1)
	out.Alternatives = slices.Clone(n.Alternatives)
	for i := range out.Alternatives {
		out.Alternatives[i].version = out.version
	}
	return &out
}

// withTerms adds what contracts of version 3 hold to an ask, and takes out of it what those before it do not.
func (n *Needs) withTerms(s contract.Scope) contract.Scope {
	s.ColumnGrants, s.Rows, s.Amends = nil, contract.RowGrant{}, contract.Reference{}
	if n.version != 0 && n.version < contract.Version3 {
		s.Operations = both(s.Operations, contract.Operations())
		return s
	}
	s.Amends = n.amends
	read := both(n.Read, s.Columns)
	if len(read) == 0 {
		return s
	}
	for _, name := range s.Columns {
		g := contract.ColumnGrant{Column: name, Uses: usesWithoutRule(), Operations: slices.Clone(s.Operations)}
		if slices.Contains(read, name) {
			g.Uses = append(g.Uses, contract.UseRead)
		}
		s.ColumnGrants = append(s.ColumnGrants, g)
	}
	s.Rows.RowBudget = n.RowsWanted
	return s
}

func (n *Needs) checkTerms(at node) error {
	switch {
	case n.RowsMinimum > n.RowsWanted:
		return at.fail("row_budget: minimum is more than wanted")
	case (len(n.Read) > 0) != (n.RowsWanted > 0):
		return at.fail("read and row_budget go together")
	case !covers(n.Columns.all(), n.Read):
		return at.fail("read: every column must be among columns")
	}
	return nil
}

func (n *Needs) termHandlers() handlers {
	return handlers{
		"min_rate": rateTo(&n.MinRate),
		"read":     textsTo(&n.Read, contract.MaxSelect),
		"row_budget": func(v node) error {
			return v.fields(handlers{
				"wanted":  int64To(&n.RowsWanted, 1, contract.MaxRowBudget),
				"minimum": int64To(&n.RowsMinimum, 0, contract.MaxRowBudget),
			}, "wanted")
		},
		"retention_statements": textsTo(&n.Statements, 64),
		"noise": func(v node) error {
			n.Noise = NoiseNeeds{Accepted: true}
			return v.fields(handlers{
				"min_epsilon": func(v node) error {
					s, err := v.value()
					if err != nil {
						return err
					}
					text, _ := s.Text()
					var ok bool
					if n.Noise.MinEpsilon, ok = contract.MicroEpsilon(text); !ok {
						return v.fail("want a number from 0.000001 to 1000")
					}
					return nil
				},
			}, "min_epsilon")
		},
	}
}

// unmetTerms lists which of the needs about terms of later versions an offer does not meet.
func (n *Needs) unmetTerms(s *contract.Scope) (out []string) {
	if r := s.Rate; !r.IsZero() && !n.MinRate.IsZero() && float64(r.Calls)/float64(r.Seconds) < float64(n.MinRate.Calls)/float64(n.MinRate.Seconds) {
		out = append(out, r.String()+" are fewer than "+n.MinRate.String()+" (rule min_rate)")
	}
	for _, name := range n.Columns.Required {
		asked, granted := n.withTerms(n.base()), *s
		want, _ := asked.Grant(name)
		have, ok := granted.Grant(name)
		if ok && !covers(have.Uses, want.Uses) {
			out = append(out, "column "+contract.Echo(name)+" is needed for "+strings.Join(want.Uses, ", ")+" and would come for "+strings.Join(have.Uses, ", ")+
				" only, which does where it is among columns.optional (rule columns)")
		}
	}
	if s.Rows.RowBudget < n.RowsMinimum {
		out = append(out, strconv.FormatInt(s.Rows.RowBudget, 10)+" rows are fewer than "+strconv.FormatInt(n.RowsMinimum, 10)+" (rule row_budget.minimum)")
	}
	if t := s.RetentionStatement; t != "" && !slices.Contains(n.Statements, t) {
		out = append(out, "the retention statement "+contract.Echo(t)+" is not one that may be promised (rule retention_statements)")
	}
	if s.Noise != nil {
		if e, ok := contract.MicroEpsilon(s.Noise.EpsilonPerQuery); !n.Noise.Accepted || !ok || e < n.Noise.MinEpsilon {
			out = append(out, "numbers would have noise of epsilon "+plain(s.Noise.EpsilonPerQuery)+" and noise.min_epsilon of the needs does not take that (rule noise)")
		}
	}
	return out
}

// diffTerms lists the differences in terms of later versions, as Diff does.
func diffTerms(asked, offered *contract.Scope, add func(what, a, o string)) {
	add("rate", asked.Rate.String(), offered.Rate.String())
	for _, name := range offered.Columns {
		a, ok := asked.Grant(name)
		o, _ := offered.Grant(name)
		if ok && len(asked.ColumnGrants)+len(offered.ColumnGrants) > 0 {
			add("columnGrant", name+": "+grantText(a.Uses, both(a.Operations, offered.Operations)), name+": "+grantText(o.Uses, o.Operations))
		}
	}
	add("rowBudget", strconv.FormatInt(asked.Rows.RowBudget, 10), strconv.FormatInt(offered.Rows.RowBudget, 10))
	add("retentionStatement", asked.RetentionStatement, offered.RetentionStatement)
	add("noise", noiseText(asked.Noise), noiseText(offered.Noise))
	add("amends", asked.Amends.ID, offered.Amends.ID)
}
