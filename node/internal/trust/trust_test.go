// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/treaty-node/treaty/did"
	"go.yaml.in/yaml/v3"
)

const thumb = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

func id(t *testing.T, s string) did.DID {
	t.Helper()
	d, err := did.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func patterns(t *testing.T, texts ...string) []Pattern {
	t.Helper()
	var out []Pattern
	for _, s := range texts {
		p, err := ParsePattern(s)
		if err != nil {
			t.Fatal(err)
		}
		if p.String() != s {
			t.Fatalf("pattern %q prints as %q", s, p)
		}
		out = append(out, p)
	}
	return out
}

// rule is the rule of a refusal, "" for none.
func rule(t *testing.T, err error) Rule {
	t.Helper()
	if err == nil {
		return ""
	}
	var r *Refusal
	if !errors.As(err, &r) || !errors.Is(err, ErrNotTrusted) || !strings.Contains(err.Error(), "not trusted") {
		t.Fatalf("%v is no *Refusal", err)
	}
	return r.Rule
}

func TestAdmit(t *testing.T) {
	const steward = "did:wba:vendorcorp.example:agents:steward:e1_" + thumb
	cases := []struct {
		name        string
		first       FirstContact
		allow, deny []string
		methods     []string
		did         string
		want        Rule
	}{
		{name: "the zero policy denies", did: steward, want: RuleFirstContact},
		{name: "closed denies", first: Closed, did: steward, want: RuleFirstContact},
		{name: "a misspelt policy denies", first: "OPEN", did: steward, want: RuleFirstContact},
		{name: "open admits", first: Open, did: steward},
		{name: "by DID", allow: []string{steward}, did: steward},
		{name: "another DID of the domain", allow: []string{"did:wba:vendorcorp.example"}, did: steward, want: RuleFirstContact},
		{name: "by domain", allow: []string{"vendorcorp.example"}, did: steward},
		{name: "by domain, did:web", allow: []string{"vendorcorp.example"}, did: "did:web:vendorcorp.example"},
		{name: "a domain is not its subdomains", allow: []string{"vendorcorp.example"}, did: "did:wba:data.vendorcorp.example", want: RuleFirstContact},
		{name: "a domain is not a suffix", allow: []string{"corp.example"}, did: steward, want: RuleFirstContact},
		{name: "by wildcard", allow: []string{"*.vendorcorp.example"}, did: "did:wba:data.vendorcorp.example"},
		{name: "by wildcard, deeper", allow: []string{"*.vendorcorp.example"}, did: "did:wba:a.b.vendorcorp.example"},
		{name: "by wildcard of a top level", allow: []string{"*.example"}, did: steward},
		{name: "a wildcard does not cover its domain", allow: []string{"*.vendorcorp.example"}, did: steward, want: RuleFirstContact},
		{name: "a wildcard is not a suffix", allow: []string{"*.corp.example"}, did: steward, want: RuleFirstContact},
		{name: "allowing a domain allows its default port", allow: []string{"vendorcorp.example"}, did: "did:wba:vendorcorp.example%3A443"},
		{name: "and no other", allow: []string{"vendorcorp.example"}, did: "did:wba:vendorcorp.example%3A8443", want: RuleFirstContact},
		{name: "a port allowed by name", allow: []string{"vendorcorp.example:8443"}, did: "did:wba:vendorcorp.example%3A8443"},
		{name: "which is not the default port", allow: []string{"vendorcorp.example:8443"}, did: steward, want: RuleFirstContact},
		{name: "denying a domain denies every port", first: Open, deny: []string{"vendorcorp.example"}, did: "did:wba:vendorcorp.example%3A8443", want: RuleDeny},
		{name: "denying a DID denies the other method's over the same document", first: Open, deny: []string{"did:wba:vendorcorp.example:agents:a"}, did: "did:web:vendorcorp.example:agents:a", want: RuleDeny},
		{name: "and the other way round", first: Open, deny: []string{"did:web:vendorcorp.example"}, did: "did:wba:vendorcorp.example", want: RuleDeny},
		{name: "allowing one does not", allow: []string{"did:wba:vendorcorp.example"}, did: "did:web:vendorcorp.example", want: RuleFirstContact},
		{name: "denying a port denies that one", first: Open, deny: []string{"vendorcorp.example:8443"}, did: "did:wba:vendorcorp.example%3A8443", want: RuleDeny},
		{name: "and no other", first: Open, deny: []string{"vendorcorp.example:8443"}, did: steward},
		{name: "deny beats allow", allow: []string{"vendorcorp.example"}, deny: []string{steward}, did: steward, want: RuleDeny},
		{name: "deny beats the same allow", allow: []string{steward}, deny: []string{steward}, did: steward, want: RuleDeny},
		{name: "a wide deny beats a narrow allow", allow: []string{steward}, deny: []string{"*.example"}, did: steward, want: RuleDeny},
		{name: "deny beats open", first: Open, deny: []string{"vendorcorp.example"}, did: steward, want: RuleDeny},
		{name: "deny of another", first: Open, deny: []string{"evil.example"}, did: steward},
		{name: "method not admitted", first: Open, methods: []string{"wba"}, did: "did:web:vendorcorp.example", want: RuleMethod},
		{name: "method not admitted though allowed", allow: []string{"did:web:vendorcorp.example"}, methods: []string{"wba"}, did: "did:web:vendorcorp.example", want: RuleMethod},
		{name: "method admitted", first: Open, methods: []string{"web"}, did: "did:web:vendorcorp.example"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := Policy{FirstContact: c.first, Allow: patterns(t, c.allow...), Deny: patterns(t, c.deny...), Methods: c.methods}
			if got := rule(t, p.Admit(id(t, c.did))); got != c.want {
				t.Errorf("refused by %q, want %q", got, c.want)
			}
			if got := rule(t, NewLive(p).Admit(id(t, c.did))); got != c.want {
				t.Errorf("live policy: refused by %q, want %q", got, c.want)
			}
		})
	}
	if got := rule(t, Policy{FirstContact: Open}.Admit(did.DID{})); got != RuleIdentifier {
		t.Errorf("no DID: refused by %q", got)
	}
}

func TestMayContract(t *testing.T) {
	dids := map[did.Profile]string{
		did.ProfileE1:   "did:wba:a.example:x:e1_" + thumb,
		did.ProfileK1:   "did:wba:a.example:x:k1_" + thumb,
		did.ProfileBare: "did:wba:a.example",
		did.ProfilePath: "did:wba:a.example:x",
		did.ProfileWeb:  "did:web:a.example",
	}
	for name, c := range map[string]struct {
		list []did.Profile
		want map[did.Profile]bool
	}{
		"default":        {nil, map[did.Profile]bool{did.ProfileE1: true, did.ProfileK1: true}},
		"e1 only":        {[]did.Profile{did.ProfileE1}, map[did.Profile]bool{did.ProfileE1: true}},
		"bare and web":   {[]did.Profile{did.ProfileBare, did.ProfileWeb}, map[did.Profile]bool{did.ProfileBare: true, did.ProfileWeb: true}},
		"path all alike": {[]did.Profile{did.ProfilePath}, nil},
	} {
		for profile, text := range dids {
			d := id(t, text)
			if d.Profile() != profile {
				t.Fatalf("%s has profile %s", text, d.Profile())
			}
			p := Policy{FirstContact: Open, ContractProfiles: c.list}
			want := Rule("")
			if !c.want[profile] {
				want = RuleProfile
			}
			if got := rule(t, p.MayContract(d)); got != want {
				t.Errorf("%s: %s refused by %q, want %q", name, profile, got, want)
			}
		}
	}
	if got := rule(t, Policy{}.MayContract(id(t, dids[did.ProfileE1]))); got != RuleFirstContact {
		t.Errorf("the zero policy contracts (refused by %q)", got)
	}
}

func TestAdmitDomain(t *testing.T) {
	for _, c := range []struct {
		name        string
		first       FirstContact
		allow, deny []string
		domain      string
		want        Rule
	}{
		{name: "zero", domain: "vendorcorp.example", want: RuleFirstContact},
		{name: "open", first: Open, domain: "vendorcorp.example"},
		{name: "by domain", allow: []string{"vendorcorp.example"}, domain: "vendorcorp.example"},
		{name: "by DID", allow: []string{"did:wba:vendorcorp.example:agents:e1_" + thumb}, domain: "vendorcorp.example"},
		{name: "by DID with port", allow: []string{"did:wba:vendorcorp.example%3A8443"}, domain: "vendorcorp.example:8443"},
		{name: "DID with another port", allow: []string{"did:wba:vendorcorp.example%3A8443"}, domain: "vendorcorp.example", want: RuleFirstContact},
		{name: "by wildcard", allow: []string{"*.test"}, domain: "vendorcorp.test"},
		{name: "denied", first: Open, deny: []string{"vendorcorp.example"}, domain: "vendorcorp.example:8443", want: RuleDeny},
		{name: "a denied DID does not close its domain", first: Open, deny: []string{"did:wba:vendorcorp.example"}, domain: "vendorcorp.example"},
		{name: "IP address", first: Open, domain: "127.0.0.1", want: RuleIdentifier},
		{name: "URL", first: Open, domain: "https://vendorcorp.example", want: RuleIdentifier},
		{name: "path", first: Open, domain: "vendorcorp.example:443:x", want: RuleIdentifier},
		{name: "userinfo", first: Open, domain: "a%40b.example", want: RuleIdentifier},
		{name: "empty", first: Open, domain: "", want: RuleIdentifier},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Policy{FirstContact: c.first, Allow: patterns(t, c.allow...), Deny: patterns(t, c.deny...)}
			if got := rule(t, p.AdmitDomain(c.domain)); got != c.want {
				t.Errorf("refused by %q, want %q", got, c.want)
			}
		})
	}
}

func TestParsePatternRefuses(t *testing.T) {
	for _, s := range []string{
		"", "*", "*.", "*.*", "**.example", "a.*.example", "*vendorcorp.example", "Vendorcorp.example", "127.0.0.1",
		"*.127.0.0.1", "[::1]", "vendorcorp.example:0", "vendorcorp.example:x", "vendorcorp.example:443:8443",
		"vendorcorp.example%3A8443", "vendorcorp.example/agents", "https://vendorcorp.example", "did:key:z6Mk",
		"did:wba:", "did:wba:vendorcorp.example:*", "a@vendorcorp.example", "vendorcorp.example.", " vendorcorp.example", "ven\ndor.example",
	} {
		if p, err := ParsePattern(s); !errors.Is(err, ErrPattern) {
			t.Errorf("%q was parsed as %v (%v)", s, p, err)
		}
	}
}

func FuzzParsePattern(f *testing.F) {
	for _, s := range []string{"vendorcorp.example", "*.vendorcorp.example:8443", "did:wba:vendorcorp.example", "*.x", "a:443"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePattern(s)
		if err != nil {
			return
		}
		again, err := ParsePattern(p.String())
		if err != nil || again != p {
			t.Errorf("%q prints as %q, which parses to %v, %v", s, p, again, err)
		}
	})
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		p  Policy
		ok bool
	}{
		"zero":            {Policy{}, true},
		"full":            {Policy{FirstContact: Open, Methods: []string{"wba"}, ContractProfiles: []did.Profile{did.ProfileWeb}, Allow: patterns(t, "a.example")}, true},
		"first contact":   {Policy{FirstContact: "ask"}, false},
		"method":          {Policy{Methods: []string{"key"}}, false},
		"profile":         {Policy{ContractProfiles: []did.Profile{"e2"}}, false},
		"path profile":    {Policy{ContractProfiles: []did.Profile{did.ProfilePath}}, false},
		"empty allowance": {Policy{Allow: []Pattern{{}}}, false},
		"empty denial":    {Policy{Deny: []Pattern{{}}}, false},
	} {
		if err := c.p.Validate(); (err == nil) != c.ok {
			t.Errorf("%s: %v, want ok = %v", name, err, c.ok)
		}
	}
}

func TestPolicyText(t *testing.T) {
	const text = `first_contact: closed
allow:
    - vendorcorp.example
    - '*.partner.example'
deny:
    - did:wba:evil.example
`
	var p Policy
	if err := yaml.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	if out, err := yaml.Marshal(p); err != nil || string(out) != text {
		t.Errorf("YAML came back as %s (%v)", out, err)
	}
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var q Policy
	if err := json.Unmarshal(data, &q); err != nil || len(q.Allow) != 2 || q.Allow[1] != p.Allow[1] || q.Deny[0] != p.Deny[0] {
		t.Errorf("JSON %s came back as %+v (%v)", data, q, err)
	}
	if err := yaml.Unmarshal([]byte("allow: ['*']"), &p); !errors.Is(err, ErrPattern) {
		t.Errorf("a malformed pattern in YAML: %v", err)
	}
}

func TestAllowingAndDenying(t *testing.T) {
	a := patterns(t, "a.example")[0]
	d := id(t, "did:wba:a.example")
	base := Policy{}
	allowed := base.Allowing(a).Allowing(a)
	if allowed.Admit(d) != nil || len(allowed.Allow) != 1 {
		t.Errorf("allowing twice: %+v", allowed)
	}
	denied := allowed.Denying(a)
	if rule(t, denied.Admit(d)) != RuleDeny || len(denied.Allow) != 0 {
		t.Errorf("denying what was allowed: %+v", denied)
	}
	if denied.Allowing(a).Admit(d) != nil {
		t.Error("allowing what was denied by the same pattern")
	}
	if len(base.Allow) != 0 || allowed.Admit(d) != nil {
		t.Error("a policy was changed by a method")
	}
}

func TestLiveIsReplacedWhileAsked(t *testing.T) {
	var live Live
	d := id(t, "did:wba:a.example")
	if rule(t, live.Admit(d)) != RuleFirstContact || rule(t, live.MayContract(d)) != RuleFirstContact || rule(t, live.AdmitDomain("a.example")) != RuleFirstContact {
		t.Error("the zero Live admits")
	}
	p := Policy{Allow: patterns(t, "a.example")}
	live.Store(p)
	p.Allow[0] = Pattern{} // the caller's list is the caller's
	if err := live.Admit(d); err != nil {
		t.Errorf("after Store: %v", err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				live.Store(Policy{FirstContact: Open})
				_ = live.Admit(d)
			}
		})
	}
	wg.Wait()
	if err := live.AdmitDomain("b.example"); err != nil {
		t.Errorf("after the last Store: %v", err)
	}
}
