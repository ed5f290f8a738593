// SPDX-License-Identifier: Apache-2.0

package cedar_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/node/cedar"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataset"
)

const policies = `
// Everything that the other rules allow.
@id("default")
permit (principal, action, resource);

@id("no-people")
forbid (principal, action, resource) when { resource.class == "pii" };

@id("value-average-only")
forbid (principal, action, resource == Column::"orders.order_value")
unless { action in [Action::"avg", Action::"count"] };

@id("rival")
forbid (principal in Domain::"rival.example", action, resource in Dataset::"orders");

@id("long-keepers-by-region-only")
forbid (principal, action == Action::"group", resource)
when { context.retentionDays > 30 && resource.name != "region" };

@id("old-acquaintance")
forbid (principal in Company::"did:wba:old.example:e1_A", action in Action::"aggregate", resource) when { context.purpose like "Resale*" };
`

var sets = dataset.Config{"orders": {Columns: map[string]dataset.Column{
	"region": {Type: "text", Class: "public"}, "order_date": {Type: "date", Class: "public"}, "order_value": {Type: "decimal(10,2)", Class: "commercial"},
	"customer_email": {Type: "text", Class: "pii"}, "note": {Type: "text"},
}}}

func parse(t testing.TB, text string) *cedar.Policy {
	t.Helper()
	p, err := cedar.Parse("test.cedar", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDecide(t *testing.T) {
	p := parse(t, policies)
	buyer := cedar.Company{DID: "did:wba:buyer.example:e1_B", Domain: "buyer.example"}
	moved := cedar.Company{DID: "did:wba:new.example:e1_C", Domain: "new.example", Lineage: []string{"did:wba:old.example:e1_A", "did:wba:new.example:e1_C"}}
	fled := cedar.Company{DID: "did:wba:new.example:e1_C", Domain: "new.example", Lineage: []string{"did:wba:rival.example:e1_R", "did:wba:new.example:e1_C"}}
	column := func(name string) cedar.Column {
		return cedar.Column{Dataset: "orders", Name: name, Class: sets["orders"].Columns[name].Class}
	}
	for _, tt := range []struct {
		who         cedar.Company
		use, column string
		terms       cedar.Terms
		allowed     bool
		rule        string
	}{
		{buyer, cedar.Group, "region", cedar.Terms{}, true, "default"},
		{fled, cedar.Group, "region", cedar.Terms{}, false, "rival"},
		{buyer, "count", "customer_email", cedar.Terms{}, false, "no-people"},
		{buyer, cedar.Read, "customer_email", cedar.Terms{}, false, "no-people"},
		{buyer, "avg", "order_value", cedar.Terms{}, true, "default"},
		{buyer, "max", "order_value", cedar.Terms{}, false, "value-average-only"},
		{buyer, cedar.Filter, "order_value", cedar.Terms{}, false, "value-average-only"},
		{cedar.Company{DID: "did:wba:rival.example:e1_R", Domain: "rival.example"}, cedar.Group, "region", cedar.Terms{}, false, "rival"},
		{buyer, cedar.Group, "order_date", cedar.Terms{RetentionDays: 31}, false, "long-keepers-by-region-only"},
		{buyer, cedar.Group, "order_date", cedar.Terms{RetentionDays: 30}, true, "default"},
		{moved, "count", "region", cedar.Terms{Purpose: "Resale of leads"}, false, "old-acquaintance"},
		{moved, cedar.Filter, "region", cedar.Terms{Purpose: "Resale of leads"}, true, "default"},
		{buyer, "count", "region", cedar.Terms{Purpose: "Resale of leads"}, true, "default"},
	} {
		r := p.Decide(tt.who, tt.use, column(tt.column), tt.terms)
		if r.Allowed != tt.allowed || r.Rule != tt.rule || r.Line == 0 {
			t.Errorf("%s %s of %s: %+v, want %t by %s", tt.who.DID, tt.use, tt.column, r, tt.allowed, tt.rule)
		}
	}
	if r := parse(t, `permit (principal, action == Action::"avg", resource);`).Decide(buyer, "sum", column("region"), cedar.Terms{}); r.Allowed || r.Name() != "cedar:no-permit" {
		t.Errorf("without a permit: %+v", r)
	}
	var none *cedar.Policy
	if r := none.Decide(buyer, "sum", column("region"), cedar.Terms{}); !r.Allowed {
		t.Errorf("without a policy: %+v", r)
	}
	// One forbid outweighs every permit, and what fails denies.
	if r := parse(t, "@id(\"p\") permit (principal, action, resource);\n@id(\"overflow\") forbid (principal, action, resource) when { context.retentionDays * 9223372036854775807 > 1 };").
		Decide(buyer, "sum", column("region"), cedar.Terms{RetentionDays: 90}); r.Allowed || r.Rule != "overflow" || r.Line != 2 {
		t.Errorf("an error: %+v", r)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, tt := range map[string]struct{ text, says string }{
		"empty":             {"// nothing\n", "no policy"},
		"syntax":            {"permit (principal, action, resource);\nforbid (principal action, resource);", "2:"},
		"unknown attribute": {"permit (principal, action, resource);\npermit (principal, action, resource) when { resource.klass == \"pii\" };", "test.cedar:2"},
		"unknown action":    {"permit (principal, action == Action::\"average\", resource);", "test.cedar:1"},
		"unknown type":      {"permit (principal, action, resource == Table::\"orders\");", "test.cedar:1"},
		"wrong type":        {"permit (principal, action, resource) when { context.retentionDays == \"30\" };", "test.cedar:1"},
		"two of one id":     {"@id(\"a\") permit (principal, action, resource);\n@id(\"a\") forbid (principal, action, resource);", "two policies"},
		"id unprintable":    {"@id(\"a\\u{7}b\") permit (principal, action, resource);", "printable"},
		"too large":         {strings.Repeat(" ", cedar.MaxBytes+1), "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := cedar.Parse("test.cedar", []byte(tt.text))
			if !errors.Is(err, cedar.ErrPolicy) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("err = %v, want one that says %q", err, tt.says)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	if f := parse(t, policies).Check(sets); len(f) != 0 {
		t.Errorf("findings %v", f)
	}
	got := parse(t, `permit (principal, action, resource);
forbid (principal, action, resource == Column::"orders.custmer_email");
forbid (principal, action, resource in Class::"secrets");
forbid (principal, action, resource in Dataset::"order");
forbid (principal, action, resource) when { resource.class == "piii" };
forbid (principal, action, resource) when { ["commercial", "comercial"].contains(resource.class) };
forbid (principal, action, resource) unless { resource.name != "order_val" || resource.dataset == "returns" };
forbid (principal in Domain::"anybody.example", action, resource) when { context.purpose == "Anything" };
`).Check(sets)
	var lines []string
	for _, f := range got {
		lines = append(lines, fmt.Sprintf("%d %s", f.Line, f.Text))
	}
	slices.Sort(lines)
	want := []string{
		`2 there is no column "orders.custmer_email"`, `3 there is no class "secrets"`, `4 there is no dataset "order"`,
		`5 no column has the class "piii"`, `6 no column has the class "comercial"`,
		`7 no column has the dataset "returns"`, `7 no column has the name "order_val"`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got\n%s", strings.Join(lines, "\n"))
	}
}

func TestNarrow(t *testing.T) {
	schema, err := sets.Schema("orders")
	if err != nil {
		t.Fatal(err)
	}
	classes := map[string]string{}
	for name, c := range sets["orders"].Columns {
		classes[name] = c.Class
	}
	q := cedar.Question{Who: cedar.Company{DID: "did:wba:buyer.example:e1_B", Domain: "buyer.example"}, Schema: schema, Classes: classes}
	scope := contract.Scope{
		Dataset: "orders", Columns: []string{"region", "order_value", "customer_email", "order_date"}, Operations: []string{"avg", "sum", "count", "max"},
		RowFilter: []contract.Condition{}, Purpose: "Pricing", RetentionDays: 30, MinGroupSize: 5, CallBudget: 1,
	}
	// Without grants per use, a column stands for all of them: order_value may only be averaged and counted, so it goes.
	s, removed := parse(t, policies).Narrow(scope, q)
	if !slices.Equal(s.Columns, []string{"region", "order_date"}) || !slices.Equal(s.Operations, []string{"avg", "count", "max"}) {
		t.Errorf("columns %v, operations %v", s.Columns, s.Operations)
	}
	var rules []string
	for _, r := range removed {
		rules = append(rules, r.What+" "+r.Asked+" "+r.Rule)
	}
	if want := []string{"operation sum cedar:value-average-only", "column order_value cedar:value-average-only", "column customer_email cedar:no-people"}; !slices.Equal(rules, want) {
		t.Errorf("removed %q", rules)
	}
	if len(scope.Columns) != 4 || len(scope.Operations) != 4 {
		t.Error("what was asked was changed")
	}
	// With a grant of its own, it keeps what is permitted.
	scope.ColumnGrants = []contract.ColumnGrant{{Column: "order_value", Uses: []string{"filter", "aggregate"}, Operations: []string{"avg", "sum", "max"}}}
	s, removed = parse(t, policies).Narrow(scope, q)
	if len(s.ColumnGrants) != 1 || !slices.Equal(s.ColumnGrants[0].Uses, []string{"aggregate"}) || !slices.Equal(s.ColumnGrants[0].Operations, []string{"avg"}) {
		t.Errorf("grants %+v, removed %+v", s.ColumnGrants, removed)
	}
	if !s.Within(&scope) || s.Validate() != nil {
		t.Errorf("not a narrower scope: %v", s.Validate())
	}
	// A dataset that a company may not use at all.
	q.Who = cedar.Company{DID: "did:wba:rival.example:e1_R", Domain: "rival.example"}
	if s, _ := parse(t, policies).Narrow(scope, q); len(s.Columns) != 0 || len(s.Operations) != 0 || len(s.ColumnGrants) != 0 {
		t.Errorf("%+v", s)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(policies))
	f.Add([]byte(`@id("x") permit (principal, action, resource) when { ["a"].contains(resource.class) };`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := cedar.Parse("f", data)
		if err != nil {
			return
		}
		p.Check(sets)
		p.Decide(cedar.Company{DID: "did:wba:b.example", Domain: "b.example"}, "avg", cedar.Column{Dataset: "orders", Name: "region", Class: "public"}, cedar.Terms{Purpose: "x"})
	})
}

func BenchmarkDecide(b *testing.B) {
	p := parse(b, policies)
	who := cedar.Company{DID: "did:wba:buyer.example:e1_B", Domain: "buyer.example"}
	for b.Loop() {
		p.Decide(who, "avg", cedar.Column{Dataset: "orders", Name: "order_value", Class: "commercial"}, cedar.Terms{Purpose: "Pricing", RetentionDays: 30})
	}
}
