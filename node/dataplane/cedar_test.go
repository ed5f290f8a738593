// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/node/cedar"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/datatools"
)

func withCedar(t *testing.T, f *fixture, rules string) {
	t.Helper()
	var err error
	if f.opts.Ceiling.Cedar, err = cedar.Parse("policy.cedar", []byte("@id(\"default\") permit (principal, action, resource);\n"+rules)); err != nil {
		t.Fatal(err)
	}
	f.rebuild(t)
}

// TestCeiling_Cedar: a policy of the data plane stands above the contract, names itself, and no source is asked.
func TestCeiling_Cedar(t *testing.T) {
	f := newFixture(t)
	others := `@id("not-to-others") forbid (principal, action, resource) unless { principal in Domain::"` + cedar.Domain(f.buyer.id()) + `" };`
	withCedar(t, f, `@id("no-averages-of-value") forbid (principal, action == Action::"avg", resource == Column::"orders.order_value");`+others)
	_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input())
	r := refused(t, err, contract.ScopeDenied)
	if !strings.Contains(r.Error(), "no-averages-of-value") || f.usage(t) != 0 {
		t.Errorf("%v, %d calls counted", r, f.usage(t))
	}
	withCedar(t, f, others)
	if _, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input()); err != nil {
		t.Errorf("what no rule forbids: %v", err)
	}

	withCedar(t, f, `@id("own-row-filters-count") forbid (principal, action == Action::"group", resource in Class::"`+f.opts.Datasets["orders"].Columns["region"].Class+`");`)
	_, err = f.svc.Query(t.Context(), f.buyer.caller(), f.input())
	refused(t, err, contract.ScopeDenied)

	f.opts.Ceiling.Cedar, err = cedar.Parse("policy.cedar", []byte(`permit (principal, action, resource == Column::"orders.regoin");`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(f.opts); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "regoin") {
		t.Errorf("a misspelt column: %v", err)
	}
}

// TestExplain: each use has the rule that decides it.
func TestExplain(t *testing.T) {
	f := newFixture(t)
	withCedar(t, f, `@id("no-averages-of-value") forbid (principal, action == Action::"avg", resource == Column::"orders.order_value");`)
	req := f.input(func(in *datatools.QueryInput) { in.GroupBy = []string{"region", "customer_email"} }).Request(f.buyer.id())
	steps := f.opts.Ceiling.Explain(f.opts.Datasets, &req, f.contract)
	want := map[string]string{`avg of "order_value"`: "cedar:no-averages-of-value", `group of "region"`: "cedar:default", `group of "customer_email"`: "ceiling"}
	for what, rule := range want {
		found := false
		for _, s := range steps {
			found = found || strings.HasPrefix(s.Text, what) && s.Rule == rule && s.Allowed == (rule == "cedar:default")
		}
		if !found {
			t.Errorf("%s by %s is not in %+v", what, rule, steps)
		}
	}
}

// BenchmarkRevocationToRefusal is the time from the commit of a revocation to the first refusal, receipt and all, by a caller
// that asks again and again.
func BenchmarkRevocationToRefusal(b *testing.B) {
	f := newFixture(b, func(o *contract.Offer) { o.CallBudget = contract.MaxCallBudget })
	for i := range b.N {
		b.StopTimer()
		f.contract = f.agree(b, fmt.Sprintf("accept %d", i), func(o *contract.Offer) { o.CallBudget = contract.MaxCallBudget })
		f.put(b, f.contract, "in_force")
		if _, err := f.svc.Query(b.Context(), f.buyer.caller(), f.input()); err != nil {
			b.Fatal(err)
		}
		f.revoke(b)
		b.StartTimer()
		_, err := f.svc.Query(b.Context(), f.buyer.caller(), f.input())
		refused(b, err, contract.ContractRevoked)
	}
}
