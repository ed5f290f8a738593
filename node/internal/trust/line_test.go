// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"strings"
	"testing"

	"github.com/treaty-node/treaty/did"
)

func TestLine(t *testing.T) {
	const subject = "did:wba:vendorcorp.example:agents:steward:e1_"
	name := func(c string) string { return subject + strings.Repeat(c, 43) }
	a, b, c := id(t, name("A")), id(t, name("E")), id(t, name("I"))
	other := id(t, "did:wba:vendorcorp.example:agents:other:e1_"+strings.Repeat("A", 43))
	allowA := Policy{Allow: patterns(t, name("A"))}
	for _, tc := range []struct {
		name string
		p    Policy
		line []did.DID
		want Rule
	}{
		{"itself", allowA, []did.DID{a}, ""},
		{"its successor", allowA, []did.DID{a, b}, ""},
		{"and the next", allowA, []did.DID{a, b, c}, ""},
		{"the subject alone is nothing", allowA, []did.DID{b}, RuleFirstContact},
		{"what came before an allowed one", allowA, []did.DID{c, a}, ""},
		{"nobody", allowA, nil, RuleIdentifier},
		{"a denied one's successor", Policy{FirstContact: Open, Deny: patterns(t, name("A"))}, []did.DID{a, b}, RuleDeny},
		{"a denied successor", Policy{Allow: patterns(t, name("A")), Deny: patterns(t, name("E"))}, []did.DID{a, b}, RuleDeny},
		{"by domain", Policy{Allow: patterns(t, "vendorcorp.example")}, []did.DID{a, b}, ""},
	} {
		if got := rule(t, tc.p.AdmitLine(tc.line)); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	if rule(t, allowA.Admit(b)) != RuleFirstContact || rule(t, allowA.AdmitClaim(b)) != "" || rule(t, allowA.AdmitClaim(other)) != RuleFirstContact {
		t.Error("a claim may be looked at, and no more")
	}
	if old, ok := allowA.Claimed(b); !ok || old != a {
		t.Errorf("claims %s, %v", old, ok)
	}
	if _, ok := allowA.Claimed(a); ok {
		t.Error("a DID does not claim itself")
	}
	for _, s := range []struct {
		succession, a did.Assurance
		want          bool
	}{
		{"", did.AssuranceVerified, true}, {"", did.AssuranceRecoveryVerified, true}, {"", did.AssuranceProviderAsserted, false}, {"", "", false},
		{did.AssuranceVerified, did.AssuranceVerified, true}, {did.AssuranceVerified, did.AssuranceRecoveryVerified, false},
		{did.AssuranceRecoveryVerified, did.AssuranceRecoveryVerified, true}, {did.AssuranceRecoveryVerified, did.AssuranceUnverified, false},
	} {
		if got := (Policy{Succession: s.succession}).AcceptsSuccession(s.a); got != s.want {
			t.Errorf("%q accepts %q: %v", s.succession, s.a, got)
		}
	}
	if (Policy{Succession: "provider_asserted"}).Validate() == nil {
		t.Error("that moves nothing")
	}
}
