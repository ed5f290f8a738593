// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/negotiation/policy"
)

var update = flag.Bool("update", false, "write golden files")

var now = time.Date(2026, 11, 30, 12, 0, 0, 900, time.UTC)

func file(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func vendor(tb testing.TB) *policy.Vendor {
	tb.Helper()
	v, err := policy.ParseVendor(file(tb, "vendor.yaml"))
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

func needs(tb testing.TB) *policy.Needs {
	tb.Helper()
	n, err := policy.ParseNeeds(file(tb, "needs.yaml"))
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func terms(tb testing.TB) policy.Terms {
	tb.Helper()
	s, err := contract.NewSchema("orders", "", []contract.Column{
		{Name: "region", Type: "text"}, {Name: "order_id", Type: "integer"}, {Name: "order_date", Type: "date"},
		{Name: "order_value", Type: "decimal(10,2)"}, {Name: "customer_name", Type: "text"}, {Name: "customer_email", Type: "text"},
		{Name: "margin", Type: "double"}, {Name: "test_order", Type: "boolean"},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return policy.Terms{
		Schema: s,
		Classes: map[string]string{
			"region": "public", "order_id": "internal", "order_date": "public", "order_value": "commercial",
			"customer_name": "pii", "customer_email": "pii", "margin": "secret", // test_order has none
		},
		DataPlane: contract.DataPlane{DID: "did:wba:data.vendorcorp.test", URL: "https://data.vendorcorp.test/mcp"},
		Now:       now,
	}
}

func ask(tb testing.TB) contract.Scope {
	tb.Helper()
	s, ok := needs(tb).Ask(0)
	if !ok {
		tb.Fatal("no ask")
	}
	return s
}

func TestC6_DecideNarrowsAndExplains(t *testing.T) {
	a := ask(t)
	out := vendor(t).Decide(a, terms(t), 0)
	if out.Rejected() {
		t.Fatalf("%s: %s", out.Code, out.Reason)
	}
	o := out.Offer
	want := contract.Scope{
		Dataset: "orders", Columns: []string{"region", "order_value", "order_date"}, Operations: []string{"avg", "count"},
		RowFilter: []contract.Condition{
			{Column: "order_date", Op: ">=", Value: contract.TextValue("2024-01-01")},
			{Column: "test_order", Op: "=", Value: contract.BoolValue(false)},
		},
		Purpose: "quarterly market report", RetentionDays: 90, MinGroupSize: 5, CallBudget: 50,
	}
	if d := cmp.Diff(want, o.Scope, cmp.AllowUnexported(contract.Value{})); d != "" {
		t.Errorf("scope:\n%s", d)
	}
	times := []string{o.ValidFrom, o.ExpiresAt, o.AcceptBy, o.ValidUntil}
	if d := cmp.Diff([]string{"2026-11-30T12:00:00Z", "2026-11-30T12:10:00Z", "2026-11-30T12:15:00Z", "2026-12-30T12:00:00Z"}, times); d != "" {
		t.Errorf("times:\n%s", d)
	}
	lines := strings.Join(policy.Explain(a, o.Scope, o.Removed), "\n") + "\n"
	path := filepath.Join("testdata", "explained.txt")
	if *update {
		if err := os.WriteFile(path, []byte(lines), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(file(t, "explained.txt")); got != lines {
		t.Errorf("explanation:\n got %s\nwant %s", lines, got)
	}
	if len(policy.Explain(o.Scope, o.Scope, o.Removed)) != 0 {
		t.Error("nothing differs, yet something is explained")
	}
	again := vendor(t).Decide(o.Scope, terms(t), 1)
	if again.Rejected() || len(again.Offer.Removed) != 0 || !again.Offer.Scope.Within(&o.Scope) {
		t.Errorf("an ask that equals the offer is offered as it is: %+v", again)
	}
}

// Where a class rule gives columns grants of their own, a column to whose type no operation applies comes without aggregates: it
// does not cost the whole offer.
func TestC4_ClassRuleBesideTextColumn(t *testing.T) {
	v, err := policy.ParseVendor([]byte("version: 1\ndatasets:\n  orders:\n    purposes: any\n    operations: [avg]\n    retention_days: 30\n" +
		"    classes: {public: {uses: [filter, group, aggregate]}, commercial: {uses: [aggregate]}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	a, tm := ask(t), terms(t)
	a.Columns, a.Operations, a.RowFilter = []string{"region", "order_value"}, []string{"avg"}, []contract.Condition{}
	tm.Version, tm.Classes = contract.Version3, map[string]string{"region": "public", "order_value": "commercial"}
	out := v.Decide(a, tm, 0)
	if out.Rejected() {
		t.Fatalf("%s: %s", out.Code, out.Reason)
	}
	for name, want := range map[string][]string{"region": {"filter", "group"}, "order_value": {"aggregate"}} {
		if g, ok := out.Offer.Grant(name); !ok || !slices.Equal(g.Uses, want) {
			t.Errorf("%s: %+v, want %v", name, g, want)
		}
	}
	if !slices.ContainsFunc(out.Offer.Removed, func(r contract.Removal) bool {
		return r.What == "columnGrant" && r.Rule == "operations" && strings.HasPrefix(r.Asked, "region")
	}) {
		t.Errorf("unexplained: %+v", out.Offer.Removed)
	}
}

func TestC4_VendorRejects(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(s *contract.Scope, t *policy.Terms)
		offers int
		code   string
		says   string
	}{
		"unknown column": {func(s *contract.Scope, _ *policy.Terms) { s.Columns[0] = "Region" }, 0, policy.CodeUnknownColumn, `"Region"`},
		"unknown column, before anything else": {func(s *contract.Scope, _ *policy.Terms) {
			s.Columns, s.Purpose, s.Operations, s.RetentionDays = append(s.Columns, "salary"), "", nil, -1
		}, 99, policy.CodeUnknownColumn, `"salary"`},
		"unknown filter column": {func(s *contract.Scope, _ *policy.Terms) {
			s.RowFilter = []contract.Condition{{Column: "salary", Op: "is_null"}}
		}, 0, policy.CodeUnknownColumn, `"salary"`},
		"unknown dataset":     {func(s *contract.Scope, _ *policy.Terms) { s.Dataset = "staff" }, 0, policy.CodeUnknownDataset, `"staff"`},
		"no schema":           {func(_ *contract.Scope, t *policy.Terms) { t.Schema = nil }, 0, policy.CodeUnknownDataset, `"orders"`},
		"malformed":           {func(s *contract.Scope, _ *policy.Terms) { s.CallBudget = 0 }, 0, policy.CodeMalformed, "callBudget"},
		"purpose not allowed": {func(s *contract.Scope, _ *policy.Terms) { s.Purpose = "resale" }, 0, policy.CodePurpose, `"academic research"`},
		"filter on PII": {func(s *contract.Scope, _ *policy.Terms) {
			s.RowFilter = []contract.Condition{{Column: "customer_email", Op: "=", Value: contract.TextValue("a@b.test")}}
		}, 0, policy.CodeRowFilter, "never leave"},
		"filter on what has no class": {func(s *contract.Scope, _ *policy.Terms) {
			s.RowFilter = []contract.Condition{{Column: "test_order", Op: "=", Value: contract.BoolValue(true)}}
		}, 0, policy.CodeRowFilter, "no class"},
		"filter of the wrong type": {func(s *contract.Scope, _ *policy.Terms) {
			s.RowFilter = []contract.Condition{{Column: "order_date", Op: "=", Value: contract.TextValue("July")}}
		}, 0, policy.CodeRowFilter, "YYYY-MM-DD"},
		"only PII":          {func(s *contract.Scope, _ *policy.Terms) { s.Columns = []string{"customer_email", "customer_name"} }, 0, policy.CodeNothingLeft, "no column remains"},
		"only no class":     {func(s *contract.Scope, _ *policy.Terms) { s.Columns = []string{"test_order"} }, 0, policy.CodeNothingLeft, "has no class"},
		"no classes at all": {func(_ *contract.Scope, t *policy.Terms) { t.Classes = nil }, 0, policy.CodeNothingLeft, "no column remains"},
		"no operation left": {func(s *contract.Scope, _ *policy.Terms) { s.Operations = []string{"max", "median"} }, 0, policy.CodeNothingLeft, "no operation remains"},
		"avg of text only": {func(s *contract.Scope, _ *policy.Terms) {
			s.Columns, s.Operations = []string{"region"}, []string{"avg"}
		}, 0, policy.CodeNothingLeft, "none of the remaining operations"},
		"too many rounds": {func(*contract.Scope, *policy.Terms) {}, 4, policy.CodeTooManyRounds, "as many offers"},
		"no data plane":   {func(_ *contract.Scope, t *policy.Terms) { t.DataPlane = contract.DataPlane{} }, 0, policy.CodeDeciderFailed, "invalid"},
		"policy's filter does not fit": {func(_ *contract.Scope, t *policy.Terms) {
			t.Schema.Columns[7].Type = "text"
		}, 0, policy.CodeDeciderFailed, "does not fit"},
	} {
		t.Run(name, func(t *testing.T) {
			a, tm := ask(t), terms(t)
			tc.change(&a, &tm)
			out := vendor(t).Decide(a, tm, tc.offers)
			if !out.Rejected() || out.Code != tc.code || !strings.Contains(out.Reason, tc.says) {
				t.Errorf("got %s: %q (offer %v), want %s: …%s…", out.Code, out.Reason, out.Offer != nil, tc.code, tc.says)
			}
			if len(out.Reason) > contract.MaxText {
				t.Errorf("the reason has %d bytes", len(out.Reason))
			}
		})
	}
	v := vendor(t)
	v.Datasets = nil
	if out := v.Decide(ask(t), terms(t), 0); out.Code != policy.CodeNotOffered {
		t.Errorf("no entry in the policy: %+v", out)
	}
	var zero policy.Outcome
	if !zero.Rejected() {
		t.Error("the zero outcome must be a rejection")
	}
}

// TestInvariant5_CodeNarrowsAfterAnyDecider plays a decider that grants too much,
// or nonsense.
func TestInvariant5_CodeNarrowsAfterAnyDecider(t *testing.T) {
	a := ask(t)
	v, tm := vendor(t), terms(t)
	draft := a.Clone()
	draft.Dataset, draft.Purpose = "staff", "anything at all"
	draft.Columns = []string{"customer_email", "region", "order_value", "order_id", "test_order", "x\"; DROP TABLE orders"}
	draft.Operations = []string{"avg", "sum", "max", "eval"}
	draft.RetentionDays, draft.MinGroupSize, draft.CallBudget = 100_000, -5, 1<<40
	out := v.Narrow(a, draft, tm)
	if out.Rejected() {
		t.Fatalf("%s: %s", out.Code, out.Reason)
	}
	o := out.Offer.Scope
	if !slices.Equal(o.Columns, []string{"region", "order_value"}) || !slices.Equal(o.Operations, []string{"avg"}) ||
		o.RetentionDays != 90 || o.MinGroupSize != 5 || o.CallBudget != 50 || o.Purpose != a.Purpose || o.Dataset != "orders" {
		t.Errorf("offered %+v", o)
	}
	var over []string
	for _, r := range out.Overruled {
		over = append(over, policy.RemovalLine(r))
	}
	log := strings.Join(over, "\n")
	for _, part := range []string{`"customer_email": removed`, `order_id`, `DROP TABLE`, `"sum`, `"max"`, `"eval`, "100000", "1099511627776", "minGroupSize: asked -5, offered 5", "anything at all"} {
		if !strings.Contains(log, part) {
			t.Errorf("the log does not say %s:\n%s", part, log)
		}
	}
	// A decider may be stricter than the policy, and the offer says so.
	draft = a.Clone()
	draft.Columns, draft.Operations = []string{"region", "order_value"}, []string{"avg"}
	draft.RetentionDays, draft.MinGroupSize, draft.CallBudget = 7, 20, 3
	draft.RowFilter = []contract.Condition{{Column: "region", Op: "is_not_null"}}
	out = v.Narrow(a, draft, tm)
	if out.Rejected() || out.Offer.RetentionDays != 7 || out.Offer.MinGroupSize != 20 || out.Offer.CallBudget != 3 || !out.Offer.HasCondition(draft.RowFilter[0]) {
		t.Fatalf("%+v", out)
	}
	for _, line := range policy.Explain(a, out.Offer.Scope, out.Offer.Removed) {
		if !strings.Contains(line, "rule ") {
			t.Errorf("unexplained: %s", line)
		}
	}
	if len(out.Overruled) != 0 {
		t.Errorf("nothing was overruled: %v", out.Overruled)
	}
	// A restriction that cannot be applied is not left out in silence.
	draft.RowFilter = []contract.Condition{{Column: "customer_email", Op: "is_not_null"}}
	if out = v.Narrow(a, draft, tm); out.Code != policy.CodeDeciderFailed {
		t.Errorf("%+v", out)
	}
	if out = v.Narrow(a, contract.Scope{}, tm); out.Code != policy.CodeNothingLeft {
		t.Errorf("an empty draft: %+v", out)
	}
	// The ask's own row filter stays, even if the draft drops it.
	a.RowFilter = []contract.Condition{{Column: "region", Op: "=", Value: contract.TextValue("north")}}
	draft = a.Clone()
	draft.RowFilter = nil
	if out = v.Narrow(a, draft, tm); out.Rejected() || !out.Offer.HasCondition(a.RowFilter[0]) ||
		!slices.ContainsFunc(out.Overruled, func(r contract.Removal) bool { return r.What == "rowFilter" && r.Rule == "not_asked" }) {
		t.Errorf("%+v", out)
	}
}

func TestC7_BuyerDecides(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(r *policy.Received)
		action policy.Action
		code   string
		says   string
	}{
		"good enough":     {func(*policy.Received) {}, policy.Accept, "", ""},
		"optional gone":   {func(r *policy.Received) { r.Offer.Columns = r.Offer.Columns[:2] }, policy.Accept, "", ""},
		"exactly the ask": {func(r *policy.Received) { r.Offer.Scope = r.Ask.Clone() }, policy.Accept, "", ""},
		"required gone":   {func(r *policy.Received) { r.Offer.Columns = r.Offer.Columns[:1] }, policy.Counter, "", `column "order_value" is required`},
		"operation gone":  {func(r *policy.Received) { r.Offer.Operations = []string{"count"} }, policy.Counter, "", "avg is required"},
		"too short":       {func(r *policy.Received) { r.Offer.RetentionDays = 29 }, policy.Counter, "", "29 days"},
		"too few calls":   {func(r *policy.Received) { r.Offer.CallBudget = 4 }, policy.Counter, "", "4 calls"},
		"large groups":    {func(r *policy.Received) { r.Offer.MinGroupSize = 11 }, policy.Counter, "", "at least 11"},
		"nothing left to ask": {func(r *policy.Received) { r.Offer.Operations, r.Asks = []string{"avg"}, 2 },
			policy.Reject, policy.CodeNeedsNotMet, "count is required"},
		"wider column":    {func(r *policy.Received) { r.Offer.Columns = append(r.Offer.Columns, "customer_name") }, policy.Reject, policy.CodeOfferWider, `"customer_name": added`},
		"wider operation": {func(r *policy.Received) { r.Offer.Operations = append(r.Offer.Operations, "sum") }, policy.Reject, policy.CodeOfferWider, `"sum": added`},
		"longer":          {func(r *policy.Received) { r.Offer.RetentionDays = 366 }, policy.Reject, policy.CodeOfferWider, "asked 365, offered 366"},
		"other purpose":   {func(r *policy.Received) { r.Offer.Purpose = "resale" }, policy.Reject, policy.CodeOfferWider, "resale"},
		"filter dropped": {func(r *policy.Received) {
			r.Ask.RowFilter = []contract.Condition{{Column: "region", Op: "is_not_null"}}
		}, policy.Reject, policy.CodeOfferWider, "is gone"},
		"expired":        {func(r *policy.Received) { r.Now = now.Add(time.Hour) }, policy.Reject, policy.CodeOfferExpired, "2026-11-30T12:10:00Z"},
		"another schema": {func(r *policy.Received) { r.Schema = canon.Sum(nil) }, policy.Reject, policy.CodeSchemaChanged, "schema"},
		"schema unknown": {func(r *policy.Received) { r.Schema = canon.Digest{} }, policy.Accept, "", ""},
		"invalid":        {func(r *policy.Received) { r.Offer.DataPlane.URL = "http://x.test" }, policy.Reject, policy.CodeMalformed, "https"},
		"none":           {func(r *policy.Received) { r.Offer = nil }, policy.Reject, policy.CodeMalformed, "no offer"},
	} {
		t.Run(name, func(t *testing.T) {
			n, a := needs(t), ask(t)
			offer := vendor(t).Decide(a, terms(t), 0).Offer
			r := policy.Received{Offer: offer, Ask: a, Asks: 1, Schema: offer.SchemaDigest, Now: now}
			tc.change(&r)
			got := n.DecideOffer(r)
			if got.Action != tc.action || got.Code != tc.code || !strings.Contains(got.Reason, tc.says) {
				t.Fatalf("got %+v, want %s %s …%s…", got, tc.action, tc.code, tc.says)
			}
			switch got.Action {
			case policy.Accept:
				if d, err := r.Offer.Digest(); err != nil || got.Digest != d || got.Scope != nil {
					t.Errorf("accepts %v", got.Digest)
				}
			case policy.Counter:
				if next, _ := n.Ask(1); !got.Digest.IsZero() || !cmp.Equal(*got.Scope, next, cmp.AllowUnexported(contract.Value{})) {
					t.Errorf("counters with %+v", got.Scope)
				}
			case policy.Reject:
				if !got.Digest.IsZero() || got.Scope != nil {
					t.Errorf("a rejection carries more: %+v", got)
				}
			}
		})
	}
}

func TestC4_NeedsAreCheckedBeforeSending(t *testing.T) {
	n, s := needs(t), terms(t).Schema
	if err := n.Check(0, s); err != nil {
		t.Error(err)
	}
	s.Columns = slices.Delete(s.Columns, 5, 6) // customer_email
	if err := n.Check(0, s); !errors.Is(err, contract.ErrUnknownColumn) {
		t.Errorf("unknown column: %v", err)
	}
	if err := n.Check(1, s); err != nil {
		t.Errorf("the alternative needs no such column: %v", err)
	}
	if n.Check(2, s) == nil || n.Check(0, nil) == nil {
		t.Error("no such ask, or no such dataset, is an error")
	}
	n.RowFilter = []contract.Condition{{Column: "order_value", Op: "=", Value: contract.TextValue("cheap")}}
	s = terms(t).Schema
	if err := n.Check(0, s); !errors.Is(err, contract.ErrInvalid) {
		t.Errorf("a filter of the wrong type: %v", err)
	}
}

func TestFilesNameTheLine(t *testing.T) {
	rules := "version: 1\ndatasets:\n  orders:\n    purposes: any\n    operations: [avg]\n"
	for name, tc := range map[string]struct{ text, says string }{
		"empty":             {"", "is empty"},
		"not a mapping":     {"- a\n", "line 1"},
		"syntax":            {"version: 1\ndatasets: [\n", "line"},
		"two documents":     {rules + "---\n" + rules, "more than one document"},
		"unknown key":       {rules + "    retention: 90\n", "line 6: datasets.orders.retention: unknown key; known are accept_by_seconds"},
		"unknown top key":   {rules + "vendors: {}\n", "line 6: vendors: unknown key"},
		"other case":        {"Version: 1\n", "line 1: Version: unknown key"},
		"duplicate key":     {rules + "    operations: [sum]\n", `line 6: datasets.orders: the key "operations" is there twice`},
		"duplicate dataset": {rules + "  orders: {purposes: any, operations: [avg]}\n", `the key "orders" is there twice`},
		"missing version":   {"datasets: {}\n", "the key version is missing"},
		"version 2":         {"version: 2\ndatasets: {}\n", "line 1: version"},
		"missing purposes":  {"version: 1\ndatasets:\n  orders:\n    operations: [avg]\n", "the key purposes is missing"},
		"text for a number": {rules + "    retention_days: \"90\"\n", "line 6: datasets.orders.retention_days: want a whole number"},
		"hex":               {rules + "    retention_days: 0x10\n", "line 6"},
		"negative":          {rules + "    retention_days: -1\n", "line 6: datasets.orders.retention_days: want a whole number from 0 to 36500"},
		"group of zero":     {rules + "    min_group_size: 0\n", "line 6"},
		"too large":         {rules + "    call_budget: 99999999999999999999\n", "line 6"},
		"unknown operation": {"version: 1\ndatasets:\n  orders:\n    purposes: any\n    operations: [mode]\n", `line 5: datasets.orders.operations: unknown operation "mode"`},
		"operation twice":   {"version: 1\ndatasets:\n  orders:\n    purposes: any\n    operations: [avg, avg]\n", "is there twice"},
		"number in a list":  {"version: 1\ndatasets:\n  orders:\n    purposes: [1]\n    operations: [avg]\n", "line 4"},
		"purposes: some":    {"version: 1\ndatasets:\n  orders:\n    purposes: some\n    operations: [avg]\n", "the word any"},
		"alias":             {"version: 1\ndatasets:\n  a: &x {purposes: any, operations: [avg]}\n  b: *x\n", "line 4"},
		"merge key":         {"version: 1\ndatasets:\n  a: &x {purposes: any, operations: [avg]}\n  b: {<<: *x}\n", "line 4"},
		"null":              {rules + "    never:\n", "line 6: datasets.orders.never: want a list"},
		"condition key":     {rules + "    row_filter: [{column: a, op: \"=\", val: 1}]\n", "line 6: datasets.orders.row_filter[0].val: unknown key"},
		"condition value":   {rules + "    row_filter: [{column: a, op: \"=\", value: [1]}]\n", "line 6"},
		"times too long":    {rules + "    validity_days: 1\n    offer_ttl_seconds: 90000\n", "beyond validity_days"},
		"huge":              {"#" + strings.Repeat("x", 1<<20), "larger than"},
	} {
		v, err := policy.ParseVendor([]byte(tc.text))
		if !errors.Is(err, policy.ErrFile) || v != nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want …%s…", name, err, tc.says)
		}
	}
	base := "version: 1\ndataset: d\ncolumns: [a]\noperations: [avg]\n"
	for name, tc := range map[string]struct{ text, says string }{
		"missing purpose":      {base, "the key purpose is missing"},
		"unknown key":          {base + "purpose: p\npurposes: [p]\n", "line 6: purposes: unknown key"},
		"unknown in columns":   {"version: 1\ndataset: d\ncolumns: {needed: [a]}\noperations: [avg]\npurpose: p\n", "line 3: columns.needed: unknown key"},
		"minimum above wanted": {base + "purpose: p\nretention_days: {wanted: 1, minimum: 2}\n", "minimum is more than wanted"},
		"budget the same":      {base + "purpose: p\ncall_budget: {wanted: 1, minimum: 2}\n", "minimum is more than wanted"},
		"column twice":         {"version: 1\ndataset: d\ncolumns: {required: [a], optional: [a]}\noperations: [avg]\npurpose: p\n", "is there twice"},
		"no column":            {"version: 1\ndataset: d\ncolumns: []\noperations: [avg]\npurpose: p\n", "columns"},
		"nested alternatives":  {base + "purpose: p\nalternatives: [{alternatives: []}]\n", "line 6: alternatives[0].alternatives: unknown key"},
		"bad alternative":      {base + "purpose: p\nalternatives: [{purpose: \"\"}]\n", "line 6"},
		"many alternatives":    {base + "purpose: p\nalternatives: [" + strings.Repeat("{},", 21) + "]\n", "more than 20"},
		"bad condition":        {base + "purpose: p\nrow_filter: [{column: a, op: like, value: x}]\n", "operator"},
	} {
		n, err := policy.ParseNeeds([]byte(tc.text))
		if !errors.Is(err, policy.ErrFile) || n != nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("needs, %s: got %v, want …%s…", name, err, tc.says)
		}
	}
}

func TestVendorDefaults(t *testing.T) {
	v, err := policy.ParseVendor([]byte("version: 1\ndatasets:\n  orders: {purposes: any, operations: [avg], never: [secret]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := policy.Rules{
		Never: []string{"secret", "pii"}, AnyPurpose: true, Operations: []string{"avg"}, RetentionDays: 90, MinGroupSize: 5, CallBudget: 1000,
		ValidityDays: 90, OfferTTL: 10 * time.Minute, AcceptWithin: 5 * time.Minute, RowFilter: []contract.Condition{},
	}
	if d := cmp.Diff(want, v.Datasets["orders"]); d != "" {
		t.Error(d)
	}
}

func TestExplainIsPrintable(t *testing.T) {
	a, o := ask(t), ask(t)
	o.Columns = o.Columns[1:]
	lines := policy.Explain(a, o, []contract.Removal{{What: "column", Asked: "region", Rule: "x\x1b[2J", Why: "line\nbreak"}})
	if len(lines) != 1 || strings.ContainsAny(lines[0], "\x1b\n") || !strings.Contains(lines[0], `"region": removed`) {
		t.Errorf("%q", lines)
	}
}

// FuzzParseFiles: a file is accepted or refused with ErrFile, never worse, and
// what it leads to is valid.
func FuzzParseFiles(f *testing.F) {
	f.Add(file(f, "vendor.yaml"))
	f.Add(file(f, "needs.yaml"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("? {a: b}\n: c"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := policy.ParseVendor(data); err != nil && !errors.Is(err, policy.ErrFile) {
			t.Fatal(err)
		}
		n, err := policy.ParseNeeds(data)
		if err != nil {
			if !errors.Is(err, policy.ErrFile) {
				t.Fatal(err)
			}
			return
		}
		for i := 0; ; i++ {
			a, ok := n.Ask(i)
			if !ok {
				break
			}
			if err := a.Validate(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
