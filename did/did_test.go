// SPDX-License-Identifier: Apache-2.0

package did_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/treaty-node/treaty/did"
)

const fp = "TzEBgIcHmLjwuFomfsQSV6cifXvw-DW5MpIl4Q2I6ik"

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		in, host   string
		port       int
		path       []string
		profile    did.Profile
		stable, at string // stable subject ("" for the DID itself), document URL
	}{
		{"did:wba:example.com", "example.com", 0, nil, did.ProfileBare, "", "https://example.com/.well-known/did.json"},
		{"did:wba:example.com%3A8443", "example.com", 8443, nil, did.ProfileBare, "", "https://example.com:8443/.well-known/did.json"},
		{
			"did:wba:example.com:user:alice:e1_" + fp, "example.com", 0, []string{"user", "alice", "e1_" + fp}, did.ProfileE1,
			"did:wba:example.com:user:alice", "https://example.com/user/alice/e1_" + fp + "/did.json",
		},
		{
			"did:wba:h.example%3A8443:a:b:k1_" + fp, "h.example", 8443, []string{"a", "b", "k1_" + fp}, did.ProfileK1,
			"did:wba:h.example%3A8443:a:b", "https://h.example:8443/a/b/k1_" + fp + "/did.json",
		},
		{"did:wba:didhost.cc:chata", "didhost.cc", 0, []string{"chata"}, did.ProfilePath, "", "https://didhost.cc/chata/did.json"},
		{"did:wba:a.b:E1_x", "a.b", 0, []string{"E1_x"}, did.ProfilePath, "", "https://a.b/E1_x/did.json"},
		{"did:wba:a.b:e1_" + fp + ":x", "a.b", 0, []string{"e1_" + fp, "x"}, did.ProfilePath, "", "https://a.b/e1_" + fp + "/x/did.json"},
		{"did:wba:xn--bcher-kva.example:...", "xn--bcher-kva.example", 0, []string{"..."}, did.ProfilePath, "", "https://xn--bcher-kva.example/.../did.json"},
		{"did:web:w3c-ccg.github.io", "w3c-ccg.github.io", 0, nil, did.ProfileWeb, "", "https://w3c-ccg.github.io/.well-known/did.json"},
		{"did:web:example.com%3A3000:user:alice", "example.com", 3000, []string{"user", "alice"}, did.ProfileWeb, "", "https://example.com:3000/user/alice/did.json"},
		{"did:web:example.com:user:e1_" + fp, "example.com", 0, []string{"user", "e1_" + fp}, did.ProfileWeb, "", "https://example.com/user/e1_" + fp + "/did.json"},
		{"did:web:0x7f.1.example", "0x7f.1.example", 0, nil, did.ProfileWeb, "", "https://0x7f.1.example/.well-known/did.json"},
	} {
		d, err := did.Parse(tc.in)
		if err != nil {
			t.Errorf("%s: %v", tc.in, err)
			continue
		}
		domain, fingerprint, stable := tc.host, "", tc.stable
		if tc.port != 0 {
			domain = fmt.Sprintf("%s:%d", tc.host, tc.port)
		}
		if tc.profile == did.ProfileE1 || tc.profile == did.ProfileK1 {
			fingerprint = fp
		}
		if stable == "" {
			stable = tc.in
		}
		if d.String() != tc.in || d.Method() != tc.in[4:7] || d.Host() != tc.host || d.Port() != tc.port || d.Domain() != domain ||
			!slices.Equal(d.Path(), tc.path) || d.Profile() != tc.profile || d.Fingerprint() != fingerprint ||
			d.StableSubject() != stable || d.DocumentURL() != tc.at || d.IsZero() {
			t.Errorf("%s: %q %q %d %q %q %q %q %q %q", tc.in, d.Method(), d.Host(), d.Port(), d.Domain(), d.Path(), d.Profile(),
				d.Fingerprint(), d.StableSubject(), d.DocumentURL())
		}
		if again := mustParse(t, tc.in); again != d {
			t.Errorf("%s: two parses are not equal", tc.in)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, in := range []string{
		"", "did", "did:", "did:wba", "did:wba:", "did:wba::", "did:wba:example.com:", "did:wba:example.com::a", "did:wba::a",
		"DID:wba:example.com", " did:wba:example.com", "did:wba:example.com ", "did:wba:example.com\n",
		// Hosts.
		"did:wba:Example.com", "did:wba:exämple.com", "did:wba:localhost", "did:wba:example.com.", "did:wba:.example.com", "did:wba:a..b",
		"did:wba:-a.example", "did:wba:a-.example", "did:wba:a_b.example", "did:wba:*.example.com", "did:wba:a b.example",
		"did:wba:" + strings.Repeat("a", 64) + ".example", "did:wba:" + strings.Repeat("a.", 130) + "example",
		// IP addresses, in every notation that something takes for one.
		"did:wba:127.0.0.1", "did:wba:127.1", "did:wba:10.0.0.1%3A443", "did:wba:2130706433", "did:wba:0x7f000001", "did:wba:0x7f.0x1",
		"did:wba:127.0.0.0x", "did:wba:0177.0.0.01", "did:wba:[::1]", "did:wba:%5B::1%5D", "did:wba:::1", "did:wba:fe80%3A%3A1", "did:wba:1.2.3.4:user",
		"did:web:127.0.0.1", "did:web:169.254.169.254:latest",
		// Userinfo, query, fragment, traversal, other percent-encodings.
		"did:wba:user%40example.com", "did:wba:user@example.com", "did:wba:example.com%40evil.example", "did:wba:example.com%2Fevil",
		"did:wba:example.com?x=y", "did:wba:example.com:a?x", "did:wba:example.com#key", "did:wba:example.com/path", "did:wba:example.com:a/b",
		"did:wba:example.com:..", "did:wba:example.com:.", "did:wba:example.com:a:..:b", "did:wba:example.com:%2e%2e", "did:wba:example.com:%2E",
		"did:wba:example.com:a%20b", "did:wba:example.com:a%3Ab", "did:wba:example.com:ä", "did:wba:example.com:a\\b", "did:wba:example.com:a\x00",
		"did:web:example.com:a%2Fb", "did:web:example.com%3A80%3A80",
		// Ports.
		"did:wba:example.com%3a8443", "did:wba:example.com:8443:", "did:wba:example.com%3A", "did:wba:example.com%3A0", "did:wba:example.com%3A080",
		"did:wba:example.com%3A65536", "did:wba:example.com%3A+80", "did:wba:example.com%3A-1", "did:wba:example.com%3Ahttps", "did:wba:%3A80",
		"did:wba:example.com%3A8_0",
		// Fingerprints.
		"did:wba:example.com:e1_" + fp, "did:wba:example.com:k1_" + fp, "did:wba:example.com:a:e1_", "did:wba:example.com:a:e1_" + fp[1:],
		"did:wba:example.com:a:e1_" + fp + "A", "did:wba:example.com:a:e1_" + fp[:42] + "l", "did:wba:example.com:a:e1_" + fp[:42] + ".",
		"did:wba:example.com:a:e1_fixture", "did:wba:example.com:a:k1_" + fp[1:],
		"did:wba:example.com:" + strings.Repeat("a", 512),
	} {
		if d, err := did.Parse(in); !errors.Is(err, did.ErrSyntax) || !d.IsZero() {
			t.Errorf("%q: %v, %v", in, d, err)
		}
	}
	for _, in := range []string{"did:key:z6Mk", "did:wbb:example.com", "did:WBA:example.com", "did:ethr:0x0"} {
		if _, err := did.Parse(in); !errors.Is(err, did.ErrMethod) {
			t.Errorf("%q: %v", in, err)
		}
	}
}

// anyDID draws a valid DID from the grammar.
func anyDID(t *rapid.T) string {
	label := rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?`)
	host := strings.Join(rapid.SliceOfN(label, 1, 3).Draw(t, "labels"), ".") + "." + rapid.StringMatching(`[a-z]([a-z0-9-]{0,5}[a-z])`).Draw(t, "tld")
	s := "did:" + rapid.SampledFrom([]string{"wba", "web"}).Draw(t, "method") + ":" + host
	if rapid.Bool().Draw(t, "hasPort") {
		s += fmt.Sprintf("%%3A%d", rapid.IntRange(1, 65535).Draw(t, "port"))
	}
	path := rapid.SliceOfN(rapid.StringMatching(`[A-Za-z0-9_-][A-Za-z0-9._-]{0,9}`).Filter(func(s string) bool {
		return !strings.HasPrefix(s, "e1_") && !strings.HasPrefix(s, "k1_")
	}), 0, 4).Draw(t, "path")
	if len(path) > 0 && rapid.Bool().Draw(t, "bound") {
		path = append(path, rapid.SampledFrom([]string{"e1_", "k1_"}).Draw(t, "prefix")+fp)
	}
	return strings.Join(append([]string{s}, path...), ":")
}

// didOf is the inverse of DocumentURL.
func didOf(method, documentURL string) (string, error) {
	u, err := url.Parse(documentURL)
	if err != nil {
		return "", err
	}
	path, ok := strings.CutSuffix(u.EscapedPath(), "/did.json")
	if !ok || u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("not a document's URL: %s", documentURL)
	}
	s := "did:" + method + ":" + strings.ReplaceAll(u.Host, ":", "%3A")
	if path != "/.well-known" {
		s += strings.ReplaceAll(path, "/", ":")
	}
	return s, nil
}

func TestDIDAndURLAreInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyDID(t)
		d, err := did.Parse(s)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		back, err := didOf(d.Method(), d.DocumentURL())
		if err != nil || back != s {
			t.Fatalf("%s → %s → %s, %v", s, d.DocumentURL(), back, err)
		}
		u, err := url.Parse(d.DocumentURL())
		if err != nil || u.Host != d.Domain() || u.Hostname() != d.Host() {
			t.Fatalf("%s: URL %v, domain %s, %v", s, u, d.Domain(), err)
		}
	})
}

func TestDIDText(t *testing.T) {
	var v struct{ DID did.DID }
	const s = "did:wba:example.com:user:alice:e1_" + fp
	if err := json.Unmarshal([]byte(`{"DID":"`+s+`"}`), &v); err != nil || v.DID != mustParse(t, s) {
		t.Errorf("%v, %v", v.DID, err)
	}
	if out, err := json.Marshal(v); err != nil || string(out) != `{"DID":"`+s+`"}` {
		t.Errorf("%s, %v", out, err)
	}
	if err := json.Unmarshal([]byte(`{"DID":"did:wba:127.0.0.1"}`), &v); !errors.Is(err, did.ErrSyntax) {
		t.Errorf("a bad DID was decoded: %v", err)
	}
	var zero did.DID
	if !zero.IsZero() || zero.String() != "" || zero.Method() != "" || zero.Host() != "" || zero.Path() != nil || zero.DocumentURL() != "" ||
		zero.Profile() != "" || zero.Fingerprint() != "" || zero.StableSubject() != "" || zero.Domain() != "" {
		t.Error("the zero DID names something")
	}
}

func TestSplitKeyID(t *testing.T) {
	d, fragment, err := did.SplitKeyID("did:wba:example.com#key-1")
	if err != nil || d.String() != "did:wba:example.com" || fragment != "key-1" {
		t.Errorf("%v, %q, %v", d, fragment, err)
	}
	for _, bad := range []string{
		"", "#key-1", "did:wba:example.com", "did:wba:example.com#", "did:wba:example.com#a#b", "did:wba:example.com#a b", "did:wba:example.com#\"",
		"did:wba:example.com#a\n", "did:wba:example.com#a%20b", "did:wba:example.com?x#a", "did:wba:example.com/x#a", "did:wba:127.0.0.1#a",
		"did:key:z6Mk#z6Mk", "did:wba:example.com#" + strings.Repeat("a", 257),
	} {
		if _, _, err := did.SplitKeyID(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// FuzzParseDID: what parses has one spelling, a URL that leads nowhere else, and no IP address for a host.
func FuzzParseDID(f *testing.F) {
	for _, s := range []string{
		"did:wba:example.com", "did:wba:example.com%3A8443:a:b:e1_" + fp, "did:web:example.com:user", "did:wba:127.0.0.1", "did:wba:a.b:..:c",
		"did:wba:u%40h.example", "did:wba:0x7f.1", "did:wba:h.example:a:k1_" + fp,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := did.Parse(s)
		if err != nil {
			if !d.IsZero() {
				t.Fatal("an error with a DID")
			}
			return
		}
		if d.String() != s {
			t.Fatalf("%q is spelt %q", s, d)
		}
		back, err := didOf(d.Method(), d.DocumentURL())
		if err != nil || back != s {
			t.Fatalf("%q → %q → %q, %v", s, d.DocumentURL(), back, err)
		}
		u, err := url.Parse(d.DocumentURL())
		if err != nil || u.Host != d.Domain() || u.JoinPath().Path != u.Path {
			t.Fatalf("%q: %v, %v", s, u, err)
		}
		host := d.Host()
		if last := host[strings.LastIndexByte(host, '.')+1:]; strings.Trim(last, "0123456789") == "" || host != strings.ToLower(host) {
			t.Fatalf("%q: host %q", s, host)
		}
	})
}
