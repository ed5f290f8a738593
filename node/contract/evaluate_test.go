// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/treaty-node/treaty/node/contract"
)

func text(s string) contract.Value { return contract.TextValue(s) }

// ask is a request that the world's contract allows.
func (w world) ask(c *contract.Contract) contract.Request {
	return contract.Request{
		ContractID: c.ID, Caller: w.buyer.id, Purpose: c.Purpose, Dataset: "orders",
		Aggregates: []contract.Aggregate{{Op: "avg", Column: "order_value", As: "average"}, {Op: "count"}},
		GroupBy:    []string{"region"},
		Filters:    []contract.Condition{{Column: "order_date", Op: ">=", Value: text("2025-07-01")}, {Column: "gift", Op: "=", Value: contract.BoolValue(true)}},
		OrderBy:    []contract.Order{{By: "average", Desc: true}, {By: "region"}},
		Limit:      100,
	}
}

var inForce = contract.Usage{State: contract.InForce}

func TestInvariant7_TheZeroValueDenies(t *testing.T) {
	var d contract.Decision
	if d.Allowed || d.String() != "denied" {
		t.Errorf("%v", d)
	}
	w := newWorld(t)
	c := w.proven(t)
	if d := contract.Evaluate(w.ask(c), w.schema, c, contract.Usage{}, now); d.Allowed || d.Code != contract.NoContract {
		t.Errorf("nothing is known about the contract: %v", d)
	}
	if d := contract.Evaluate(contract.Request{}, nil, nil, contract.Usage{}, time.Time{}); d.Allowed {
		t.Errorf("nothing at all: %v", d)
	}
	if d := contract.Evaluate(contract.Request{Aggregates: []contract.Aggregate{{Op: "count"}}}, w.schema, &contract.Contract{}, inForce, now); d.Allowed {
		t.Errorf("empty names match empty names: %v", d)
	}
}

func TestC10_Evaluate(t *testing.T) {
	w := newWorld(t)
	c := w.proven(t)
	if d := contract.Evaluate(w.ask(c), w.schema, c, inForce, now); !d.Allowed || d.Code != "" || d.Text != "" {
		t.Fatalf("an ordinary request: %v", d)
	}
	type call struct {
		req    contract.Request
		schema *contract.Schema
		c      *contract.Contract
		use    contract.Usage
		now    time.Time
	}
	many := func(n int) []contract.Condition {
		return slices.Repeat([]contract.Condition{{Column: "region", Op: "is_not_null"}}, n)
	}
	for name, tc := range map[string]struct {
		change func(*call)
		code   contract.Code
		says   string
	}{
		"unknown aggregate column":     {func(k *call) { k.req.Aggregates[0].Column = "secret" }, contract.UnknownColumn, `"secret"`},
		"unknown group column":         {func(k *call) { k.req.GroupBy[0] = "secret" }, contract.UnknownColumn, `"secret"`},
		"unknown filter column":        {func(k *call) { k.req.Filters[0].Column = "secret" }, contract.UnknownColumn, `"secret"`},
		"unknown order column":         {func(k *call) { k.req.OrderBy[0].By = "secret" }, contract.UnknownColumn, `"secret"`},
		"column of another case":       {func(k *call) { k.req.GroupBy[0] = "Region" }, contract.UnknownColumn, `there is "region"`},
		"look-alike column":            {func(k *call) { k.req.GroupBy[0] = "regi\u043en" }, contract.UnknownColumn, "not in the published schema"},
		"white space":                  {func(k *call) { k.req.GroupBy[0] = "region " }, contract.UnknownColumn, "not in the published schema"},
		"empty group column":           {func(k *call) { k.req.GroupBy[0] = "" }, contract.UnknownColumn, `""`},
		"SQL for a column":             {func(k *call) { k.req.GroupBy[0] = `region"; DROP TABLE orders; --` }, contract.UnknownColumn, "DROP TABLE"},
		"no contract":                  {func(k *call) { k.c = nil }, contract.NoContract, k0(c)},
		"another contract":             {func(k *call) { k.req.ContractID = "ctr_other" }, contract.NoContract, `"ctr_other"`},
		"no caller":                    {func(k *call) { k.req.Caller = "" }, contract.NoContract, k0(c)},
		"the vendor":                   {func(k *call) { k.req.Caller = w.vendor.id }, contract.NoContract, k0(c)},
		"not yet activated":            {func(k *call) { k.use.State = contract.AwaitingActivation }, contract.NoContract, "activation is missing"},
		"unknown state":                {func(k *call) { k.use.State = "superseded" }, contract.NoContract, "not in force"},
		"other version":                {func(k *call) { k.c.Version = 4 }, contract.NoContract, "cannot be enforced"},
		"not yet valid":                {func(k *call) { k.now = now.Add(-time.Second) }, contract.NoContract, "not in force before"},
		"unreadable validity":          {func(k *call) { k.c.ValidFrom = "soon" }, contract.NoContract, "not in force before"},
		"revoked":                      {func(k *call) { k.use.Revoked = true }, contract.ContractRevoked, "revoked"},
		"revoked by state":             {func(k *call) { k.use.State = contract.Revoked }, contract.ContractRevoked, "revoked"},
		"in the second after the end":  {func(k *call) { k.now = time.Date(2027, 2, 28, 12, 0, 0, 0, time.UTC) }, contract.ContractExpired, "2027-02-28T12:00:00Z"},
		"unreadable end":               {func(k *call) { k.c.ValidUntil = "never" }, contract.ContractExpired, "ended"},
		"other dataset":                {func(k *call) { k.req.Dataset = "staff" }, contract.ScopeDenied, `"staff" is not granted`},
		"dataset is gone":              {func(k *call) { k.schema = nil }, contract.ScopeDenied, "not served"},
		"aggregate column not granted": {func(k *call) { k.req.Aggregates[1].Column = "customer_email" }, contract.ScopeDenied, `"customer_email" is not granted`},
		"group column not granted":     {func(k *call) { k.req.GroupBy[0] = "order_id" }, contract.ScopeDenied, `"order_id"`},
		"filter column not granted":    {func(k *call) { k.req.Filters[0] = contract.Condition{Column: "customer_email", Op: "is_null"} }, contract.ScopeDenied, `"customer_email"`},
		"order column not granted":     {func(k *call) { k.req.OrderBy[0].By = "customer_email" }, contract.ScopeDenied, `"customer_email"`},
		"operation not granted":        {func(k *call) { k.req.Aggregates[0].Op = "median" }, contract.ScopeDenied, `"median" is not granted`},
		"min is a grant of its own":    {func(k *call) { k.req.Aggregates[0].Op = "min" }, contract.ScopeDenied, `"min"`},
		"row filter's column is gone":  {func(k *call) { k.schema.Columns = slices.Delete(k.schema.Columns, 2, 3); k.req.Filters = nil }, contract.ScopeDenied, "no longer fits"},
		"row filter's type changed":    {func(k *call) { k.schema.Columns[5].Type = "text"; k.req.Filters = nil }, contract.ScopeDenied, "no longer fits"},
		"avg of text":                  {func(k *call) { k.req.Aggregates[0].Column = "region" }, contract.InvalidQuery, "cannot be applied"},
		"order by what is not grouped": {func(k *call) { k.req.OrderBy[1].By = "order_value" }, contract.InvalidQuery, "order by"},
		"filter of the wrong type":     {func(k *call) { k.req.Filters[0].Value = text("July") }, contract.InvalidQuery, "YYYY-MM-DD"},
		"other purpose":                {func(k *call) { k.req.Purpose = "resale" }, contract.PurposeMismatch, `"resale"`},
		"purpose of another case":      {func(k *call) { k.req.Purpose = "Quarterly market report" }, contract.PurposeMismatch, "purpose of record"},
		"approval missing":             {func(k *call) { k.use.State = contract.AwaitingApproval }, contract.ApprovalRequired, "approval"},
		"budget used":                  {func(k *call) { k.use.Calls = 100 }, contract.BudgetExhausted, "100 calls"},
		"impossible count":             {func(k *call) { k.use.Calls = -1 }, contract.BudgetExhausted, "calls"},
		"no aggregate":                 {func(k *call) { k.req.Aggregates = nil }, contract.InvalidQuery, "no aggregate"},
		"17 aggregates":                {func(k *call) { k.req.Aggregates = make([]contract.Aggregate, 17) }, contract.InvalidQuery, "16"},
		"9 groups":                     {func(k *call) { k.req.GroupBy = make([]string, 9) }, contract.InvalidQuery, "8"},
		"65 filters":                   {func(k *call) { k.req.Filters = many(65) }, contract.InvalidQuery, "64"},
		"1000 filters":                 {func(k *call) { k.req.Filters = many(1000) }, contract.InvalidQuery, "64"},
		"many orders":                  {func(k *call) { k.req.OrderBy = make([]contract.Order, 25) }, contract.InvalidQuery, "24"},
		"limit":                        {func(k *call) { k.req.Limit = 10_001 }, contract.InvalidQuery, "10000"},
		"negative limit":               {func(k *call) { k.req.Limit = -1 }, contract.InvalidQuery, "10000"},
		"unknown operation":            {func(k *call) { k.req.Aggregates[0].Op = "string_agg" }, contract.InvalidQuery, "string_agg"},
		"sum of nothing":               {func(k *call) { k.req.Aggregates[0] = contract.Aggregate{Op: "sum"} }, contract.InvalidQuery, "needs a column"},
		"alias with a quote":           {func(k *call) { k.req.Aggregates[0].As = `a"b` }, contract.InvalidQuery, "alias"},
		"long alias":                   {func(k *call) { k.req.Aggregates[0].As = strings.Repeat("a", 65) }, contract.InvalidQuery, "alias"},
		"same alias, other case":       {func(k *call) { k.req.Aggregates[1].As = "AVERAGE" }, contract.InvalidQuery, "two aggregates"},
		"alias of a group":             {func(k *call) { k.req.Aggregates[0].As = "Region" }, contract.InvalidQuery, "group-by column"},
		"group twice":                  {func(k *call) { k.req.GroupBy = []string{"region", "region"} }, contract.InvalidQuery, "twice"},
		"order twice":                  {func(k *call) { k.req.OrderBy[1].By = "average" }, contract.InvalidQuery, "twice"},
		"unknown operator":             {func(k *call) { k.req.Filters[0].Op = "like" }, contract.InvalidQuery, "operator"},
		"long contract id":             {func(k *call) { k.req.ContractID = strings.Repeat("x", 65) }, contract.InvalidQuery, "contract id"},
		"long purpose":                 {func(k *call) { k.req.Purpose = strings.Repeat("x", 501) }, contract.InvalidQuery, "purpose"},
		"long dataset":                 {func(k *call) { k.req.Dataset = strings.Repeat("x", 65) }, contract.InvalidQuery, "dataset"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.proven(t)
			k := call{w.ask(c), w.schema, c, inForce, now}
			tc.change(&k)
			d := contract.Evaluate(k.req, k.schema, k.c, k.use, k.now)
			if d.Allowed || d.Code != tc.code {
				t.Fatalf("got %v, want %s", d, tc.code)
			}
			if !strings.Contains(d.Text, tc.says) {
				t.Errorf("%q does not say %q", d.Text, tc.says)
			}
			if !strings.HasSuffix(d.Text, "Nothing was read.") {
				t.Errorf("%q does not say that nothing was read", d.Text)
			}
			if k.c != nil && k.req.Caller == w.buyer.id && k.req.ContractID == c.ID {
				for _, part := range []string{c.ID, `"order_value"`, "avg, count", `purpose of record: "quarterly market report"`} {
					if !strings.Contains(d.Text, part) {
						t.Errorf("to the party, %q does not say %s", d.Text, part)
					}
				}
			}
		})
	}
}

// k0 is how a refusal shows the contract id that the caller sent.
func k0(c *contract.Contract) string { return `"` + c.ID + `"` }

// TestC10_OrderOfRefusals starts with a request that is wrong in every way and
// mends one at a time.
func TestC10_OrderOfRefusals(t *testing.T) {
	w := newWorld(t)
	c := w.proven(t)
	req := w.ask(c)
	req.Limit = -1
	req.GroupBy = []string{"secret", "customer_email"}
	req.OrderBy = nil
	req.Caller = "did:wba:stranger.test"
	req.Purpose = "resale"
	req.Filters[0].Value = text("July")
	use := contract.Usage{State: contract.AwaitingApproval, Revoked: true, Calls: 100}
	at := now.AddDate(1, 0, 0)
	for _, step := range []struct {
		code contract.Code
		mend func()
	}{
		{contract.InvalidQuery, func() { req.Limit = 0 }},
		{contract.UnknownColumn, func() { req.GroupBy = req.GroupBy[1:] }},
		{contract.NoContract, func() { req.Caller = w.buyer.id }},
		{contract.ContractRevoked, func() { use.Revoked = false }},
		{contract.ContractExpired, func() { at = now }},
		{contract.ScopeDenied, func() { req.GroupBy = []string{"region"} }},
		{contract.InvalidQuery, func() { req.Filters[0].Value = text("2025-07-01") }},
		{contract.PurposeMismatch, func() { req.Purpose = c.Purpose }},
		{contract.ApprovalRequired, func() { use.State = contract.InForce }},
		{contract.BudgetExhausted, func() { use.Calls = 99 }},
	} {
		if d := contract.Evaluate(req, w.schema, c, use, at); d.Allowed || d.Code != step.code {
			t.Fatalf("got %v, want %s", d, step.code)
		}
		step.mend()
	}
	if d := contract.Evaluate(req, w.schema, c, use, at); !d.Allowed {
		t.Fatalf("all is mended: %v", d)
	}
}

func TestC10_AStrangerLearnsNothing(t *testing.T) {
	w := newWorld(t)
	c := w.proven(t)
	req := w.ask(c)
	req.Caller = w.plane.id
	there := contract.Evaluate(req, w.schema, c, inForce, now)
	gone := contract.Evaluate(req, w.schema, nil, contract.Usage{}, now)
	if there.Text != gone.Text || there.Code != contract.NoContract || gone.Code != contract.NoContract {
		t.Errorf("the answers differ:\n%v\n%v", there, gone)
	}
	if want := `you have no contract "` + c.ID + `" here. Nothing was read.`; there.Text != want {
		t.Errorf("got %q, want %q", there.Text, want)
	}
	if !strings.Contains(there.Note, w.buyer.id[:20]) {
		t.Errorf("the log does not learn whose contract it was: %q", there.Note)
	}
	for _, u := range []contract.Usage{{}, {Revoked: true}, {State: contract.AwaitingApproval}, {State: contract.InForce, Calls: 1000}} {
		for _, at := range []time.Time{now, now.AddDate(10, 0, 0)} {
			if d := contract.Evaluate(req, w.schema, c, u, at); d.Text != gone.Text {
				t.Errorf("the contract's standing shows: %q", d.Text)
			}
		}
	}
	req.GroupBy = []string{"Region"}
	if d := contract.Evaluate(req, w.schema, c, inForce, now); d.Code != contract.UnknownColumn || strings.Contains(d.Text, c.ID) || strings.Contains(d.Text, `"region"`) || strings.Contains(d.Text, c.Purpose) {
		t.Errorf("an unknown column tells a stranger more: %v", d)
	}
}

func TestGroupTooSmallReleasesNothing(t *testing.T) {
	c := newWorld(t).proven(t)
	d := contract.Refusal(contract.GroupTooSmall, c, "no group has 5 distinct subjects")
	if d.Allowed || !strings.HasSuffix(d.Text, "Nothing was released.") || !strings.Contains(d.Text, c.ID) {
		t.Errorf("%v", d)
	}
}

// TestInvariant5_TextsAreBoundedAndPrintable sends arbitrary strings everywhere.
func TestInvariant5_TextsAreBoundedAndPrintable(t *testing.T) {
	w := newWorld(t)
	c := w.proven(t)
	rapid.Check(t, func(t *rapid.T) {
		str := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
			"\x1b[2J", "a\x00b", "\u202egnp.exe", "\xff\xfe", strings.Repeat("x", 100_000), strings.Repeat("ü", 500), "region", "customer_email",
		}))
		req := w.ask(c)
		req.GroupBy = []string{str.Draw(t, "group")}
		req.Aggregates[0].Op = rapid.OneOf(rapid.Just("avg"), str).Draw(t, "op")
		req.Aggregates[0].Column = str.Draw(t, "column")
		req.Aggregates[0].As = str.Draw(t, "as")
		req.Filters[0].Column = str.Draw(t, "filter")
		req.Filters[0].Op = rapid.OneOf(rapid.Just("="), str).Draw(t, "operator")
		req.Filters[0].Value = text(str.Draw(t, "value"))
		req.OrderBy[0].By = str.Draw(t, "order")
		req.Purpose = rapid.OneOf(rapid.Just(c.Purpose), str).Draw(t, "purpose")
		req.Dataset = rapid.OneOf(rapid.Just("orders"), str).Draw(t, "dataset")
		req.ContractID = rapid.OneOf(rapid.Just(c.ID), str).Draw(t, "contract")
		d := contract.Evaluate(req, w.schema, c, inForce, now)
		if len(d.Text) > 4096 || !utf8.ValidString(d.Text) {
			t.Fatalf("%d bytes of text: %q", len(d.Text), d.Text)
		}
		for _, r := range d.Text {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q has %U", d.Text, r)
			}
		}
	})
}

// TestInvariant7_AllowedMeansGranted compares Evaluate with the plain statement
// of the rule.
func TestInvariant7_AllowedMeansGranted(t *testing.T) {
	w := newWorld(t)
	names := []string{"region", "order_id", "order_date", "order_value", "customer_email", "gift", "created", "secret"}
	base := w.build(t)
	both := [2]int{}
	rapid.Check(t, func(t *rapid.T) {
		bare := *base
		c := &bare
		c.Columns = rapid.SliceOfNDistinct(rapid.SampledFrom(names[:7]), 1, 7, rapid.ID[string]).Draw(t, "columns")
		c.Operations = rapid.SliceOfNDistinct(rapid.SampledFrom(contract.Operations()), 1, 7, rapid.ID[string]).Draw(t, "operations")
		req := contract.Request{ContractID: c.ID, Caller: w.buyer.id, Purpose: c.Purpose, Dataset: "orders"}
		// Every second request stays within the grant, or hardly any would be allowed.
		col, op := rapid.SampledFrom(names), rapid.SampledFrom(contract.Operations())
		if rapid.Bool().Draw(t, "within") {
			col, op = rapid.SampledFrom(c.Columns), rapid.SampledFrom(c.Operations)
		}
		used := map[string]bool{}
		for i := range rapid.IntRange(1, 3).Draw(t, "aggregates") {
			a := contract.Aggregate{Op: op.Draw(t, "op"), Column: col.Draw(t, "column"), As: fmt.Sprint("a", i)}
			req.Aggregates = append(req.Aggregates, a)
			used[a.Column] = true
		}
		req.GroupBy = rapid.SliceOfNDistinct(col, 0, min(2, len(c.Columns)), rapid.ID[string]).Draw(t, "groups")
		for _, g := range req.GroupBy {
			used[g] = true
		}
		if rapid.Bool().Draw(t, "filter") {
			f := contract.Condition{Column: col.Draw(t, "filter column"), Op: "is_not_null"}
			req.Filters, used[f.Column] = []contract.Condition{f}, true
		}
		if rapid.Bool().Draw(t, "order") {
			o := contract.Order{By: rapid.OneOf(col, rapid.SampledFrom(append(req.GroupBy, "order_id"))).Draw(t, "order column")}
			req.OrderBy, used[o.By] = []contract.Order{o}, true
		}
		granted := true
		for name := range used {
			granted = granted && slices.Contains(c.Columns, name)
		}
		fits := true
		for _, a := range req.Aggregates {
			granted = granted && slices.Contains(c.Operations, a.Op)
			pub, _ := w.schema.Column(a.Column)
			ty, _ := contract.ParseType(pub.Type)
			fits = fits && contract.OperationFits(a.Op, ty)
		}
		for _, o := range req.OrderBy {
			fits = fits && slices.Contains(req.GroupBy, o.By)
		}
		d := contract.Evaluate(req, w.schema, c, inForce, now)
		switch {
		case used["secret"] && d.Code != contract.UnknownColumn,
			!used["secret"] && !granted && d.Code != contract.ScopeDenied,
			granted && !fits && d.Code != contract.InvalidQuery,
			granted && fits != d.Allowed:
			t.Fatalf("granted %v, fits %v, used %v: %v", granted, fits, used, d)
		}
		if d.Allowed {
			both[0]++
		} else {
			both[1]++
		}
	})
	t.Logf("%d allowed, %d denied", both[0], both[1])
	if both[0] == 0 || both[1] == 0 {
		t.Errorf("only one answer was seen: %v", both)
	}
}

func TestCheckCondition(t *testing.T) {
	schema, err := contract.NewSchema("d", "", []contract.Column{
		{Name: "t", Type: "text"}, {Name: "i", Type: "integer"}, {Name: "d", Type: "decimal(5,2)"}, {Name: "f", Type: "double"},
		{Name: "b", Type: "boolean"}, {Name: "day", Type: "date"}, {Name: "clock", Type: "time"},
		{Name: "ts", Type: "timestamp"}, {Name: "tz", Type: "timestamptz"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for column, values := range map[string]struct{ good, bad []string }{
		"t":     {[]string{"", "x'; DROP TABLE d; --", "Ünïcode 🙂", "a\nb"}, []string{"a\x00b", "\xff"}},
		"i":     {[]string{"0", "-1", "9223372036854775807", "-9223372036854775808"}, []string{"", "-", "-0", "007", "+1", "1.0", "1e3", "9223372036854775808", "0x10", "1_000", " 1", "NaN", "١"}},
		"d":     {[]string{"0", "0.5", "-999.99", "123.4", "0.00"}, []string{"", ".5", "5.", "1000", "1.234", "1e2", "01.5", "NaN", "Infinity", "--1", "1,5", "1.-5"}},
		"f":     {[]string{"0", "-1.5", "1e300", "2.5E-3", "9007199254740993"}, []string{"", "NaN", "Inf", "-Infinity", "1e400", "0x1p3", "1_0", "+1", ".5", "1 ", "1e", strings.Repeat("1", 41)}},
		"day":   {[]string{"2025-07-01", "0001-01-01", "9999-12-31", "2024-02-29"}, []string{"", "2025-7-1", "2025-02-29", "0000-01-01", "10000-01-01", "01/07/2025", "2025-07-01T00:00:00Z"}},
		"clock": {[]string{"00:00:00", "23:59:59.123456"}, []string{"24:00:00", "1:00:00", "12:00", "12:00:00.1234567", "12:00:00.", "12:00:00,5", "12:00:60"}},
		"ts":    {[]string{"2025-07-01T12:00:00", "2025-07-01T12:00:00.5"}, []string{"2025-07-01T12:00:00Z", "2025-07-01 12:00:00", "2025-07-01", "0000-01-01T00:00:00", "2025-07-01T12:00:00,5"}},
		"tz":    {[]string{"2025-07-01T12:00:00Z", "2025-07-01T12:00:00.000001Z"}, []string{"2025-07-01T12:00:00", "2025-07-01T12:00:00+02:00", "2025-07-01T12:00:00z", "Z"}},
	} {
		for _, v := range values.good {
			if err := contract.CheckCondition(schema, contract.Condition{Column: column, Op: "=", Value: text(v)}); err != nil {
				t.Errorf("%s = %q: %v", column, v, err)
			}
		}
		for _, v := range values.bad {
			err := contract.CheckCondition(schema, contract.Condition{Column: column, Op: "=", Value: text(v)})
			if !errors.Is(err, contract.ErrInvalid) || errors.Is(err, contract.ErrUnknownColumn) {
				t.Errorf("%s = %q: got %v, want ErrInvalid", column, v, err)
			}
			err = contract.CheckCondition(schema, contract.Condition{Column: column, Op: "in", Values: []contract.Value{text(values.good[0]), text(v)}})
			if !errors.Is(err, contract.ErrInvalid) {
				t.Errorf("%s in (…, %q): got %v, want ErrInvalid", column, v, err)
			}
		}
		if err := contract.CheckCondition(schema, contract.Condition{Column: column, Op: "=", Value: contract.BoolValue(true)}); !errors.Is(err, contract.ErrInvalid) {
			t.Errorf("%s = true: %v", column, err)
		}
	}
	yes := contract.BoolValue(true)
	for name, c := range map[string]contract.Condition{
		"boolean as text":      {Column: "b", Op: "=", Value: text("true")},
		"order of booleans":    {Column: "b", Op: "<", Value: yes},
		"range of booleans":    {Column: "b", Op: "between", Values: []contract.Value{yes, yes}},
		"null with a value":    {Column: "t", Op: "is_null", Value: text("x")},
		"in without values":    {Column: "t", Op: "in"},
		"in with too many":     {Column: "t", Op: "in", Values: slices.Repeat([]contract.Value{text("x")}, 257)},
		"in with an empty one": {Column: "t", Op: "in", Values: []contract.Value{{}}},
		"between three":        {Column: "t", Op: "between", Values: []contract.Value{text("a"), text("b"), text("c")}},
		"no operator":          {Column: "t", Value: text("x")},
		"long":                 {Column: "t", Op: "=", Value: text(strings.Repeat("x", 1025))},
	} {
		if err := contract.CheckCondition(schema, c); !errors.Is(err, contract.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := contract.CheckCondition(schema, contract.Condition{Column: "b", Op: "in", Values: []contract.Value{yes}}); err != nil {
		t.Error(err)
	}
	for _, s := range []*contract.Schema{schema, nil} {
		if err := contract.CheckCondition(s, contract.Condition{Column: "T", Op: "is_null"}); !errors.Is(err, contract.ErrUnknownColumn) {
			t.Errorf("unknown column: %v", err)
		}
	}
}

func TestRequestDigest(t *testing.T) {
	w := newWorld(t)
	c := w.proven(t)
	digest := func(r contract.Request) string {
		d, err := r.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d.String()
	}
	req := w.ask(c)
	base := digest(req)
	golden(t, "query.txt", []byte(base))
	other := req
	other.Caller = w.vendor.id
	if digest(other) != base {
		t.Error("the caller is not part of what was asked")
	}
	other.Limit++
	if digest(other) == base {
		t.Error("another limit is another query")
	}
	none, empty := contract.Request{}, contract.Request{GroupBy: []string{}, Filters: []contract.Condition{}}
	if digest(none) != digest(empty) {
		t.Error("no list and an empty list are the same query")
	}
}

// wide is a contract with 40 columns and a request that uses many of them.
func wide(tb testing.TB) (world, *contract.Contract, contract.Request) {
	w := newWorld(tb)
	var columns []contract.Column
	var names []string
	for i := range 40 {
		columns = append(columns, contract.Column{Name: fmt.Sprintf("measured_value_%02d", i), Type: "decimal(18,4)"})
		names = append(names, columns[i].Name)
	}
	var err error
	if w.schema, err = contract.NewSchema("orders", "", columns); err != nil {
		tb.Fatal(err)
	}
	w.offer.Columns, w.offer.Operations = names, contract.Operations()
	w.offer.RowFilter = []contract.Condition{{Column: names[39], Op: ">=", Value: text("0.5")}}
	c := w.build(tb)
	return w, c, contract.Request{
		ContractID: c.ID, Caller: w.buyer.id, Purpose: c.Purpose, Dataset: "orders",
		Aggregates: []contract.Aggregate{{Op: "avg", Column: names[39]}, {Op: "count_distinct", Column: names[38]}, {Op: "count"}},
		GroupBy:    []string{names[37], names[36]},
		Filters:    []contract.Condition{{Column: names[35], Op: "between", Values: []contract.Value{text("1.5"), text("99.25")}}, {Column: names[34], Op: "is_not_null"}},
		OrderBy:    []contract.Order{{By: "avg_" + names[39], Desc: true}, {By: names[37]}}, Limit: 10,
	}
}

func TestEvaluateDoesNotAllocateWhenItAllows(t *testing.T) {
	w, c, req := wide(t)
	if d := contract.Evaluate(req, w.schema, c, inForce, now); !d.Allowed {
		t.Fatal(d)
	}
	if n := testing.AllocsPerRun(100, func() { contract.Evaluate(req, w.schema, c, inForce, now) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	// All types of values, too.
	w2 := newWorld(t)
	c2 := w2.proven(t)
	req2 := w2.ask(c2)
	if n := testing.AllocsPerRun(100, func() { contract.Evaluate(req2, w2.schema, c2, inForce, now) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkEvaluate(b *testing.B) {
	w, c, req := wide(b)
	b.ReportAllocs()
	for b.Loop() {
		if !contract.Evaluate(req, w.schema, c, inForce, now).Allowed {
			b.Fatal("denied")
		}
	}
}

func BenchmarkVerifyProofs(b *testing.B) {
	w := newWorld(b)
	c := w.proven(b)
	for b.Loop() {
		if err := c.VerifyProofs(w.buyer.doc, w.vendor.doc); err != nil {
			b.Fatal(err)
		}
	}
}
