// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func dnsName(t testing.TB, s string) dnsmessage.Name {
	t.Helper()
	n, err := dnsmessage.NewName(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func record(t testing.TB, owner string, body dnsmessage.ResourceBody) dnsmessage.Resource {
	t.Helper()
	return dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsName(t, owner), Class: dnsmessage.ClassINET}, Body: body}
}

func a(addr string) *dnsmessage.AResource {
	return &dnsmessage.AResource{A: netip.MustParseAddr(addr).As4()}
}

func aaaa(addr string) *dnsmessage.AAAAResource {
	return &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr(addr).As16()}
}

// dnsWorld is a DNS-over-HTTPS server that answers with the records of the type
// asked for; edit may spoil the answer.
func dnsWorld(t *testing.T, records []dnsmessage.Resource, edit func(*dnsmessage.Message)) (*world, Lookup) {
	t.Helper()
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		raw, err := base64.RawURLEncoding.DecodeString(r.URL.Query().Get("dns"))
		var m dnsmessage.Message
		if err != nil || m.Unpack(raw) != nil || m.ID != 0 || r.Header.Get("Accept") != dnsMediaType {
			t.Errorf("query %q of %q", r.URL, r.Header)
		}
		m.Response = true
		for _, rec := range records {
			typ := dnsmessage.TypeCNAME
			switch rec.Body.(type) {
			case *dnsmessage.AResource:
				typ = dnsmessage.TypeA
			case *dnsmessage.AAAAResource:
				typ = dnsmessage.TypeAAAA
			}
			if typ == m.Questions[0].Type || typ == dnsmessage.TypeCNAME {
				m.Answers = append(m.Answers, rec)
			}
		}
		if edit != nil {
			edit(&m)
		}
		packed, err := m.Pack()
		if err != nil {
			t.Error(err)
		}
		rw.Header().Set("Content-Type", dnsMediaType)
		_, _ = rw.Write(packed)
	})
	lookup, err := DNSOverHTTPS(NewClient(w.cfg), "https://"+host+"/dns-query")
	if err != nil {
		t.Fatal(err)
	}
	return w, lookup
}

func TestDNSOverHTTPS(t *testing.T) {
	both := []dnsmessage.Resource{record(t, "a.example.", a("93.184.216.34")), record(t, "a.example.", aaaa("2606:2800:220:1::1"))}
	for _, c := range []struct {
		name    string
		records []dnsmessage.Resource
		edit    func(*dnsmessage.Message)
		want    string // addresses, or part of the error
		fails   bool
	}{
		{name: "both families", records: both, want: "93.184.216.34 2606:2800:220:1::1"},
		{name: "one family", records: both[:1], want: "93.184.216.34"},
		{name: "none", want: ""},
		{name: "alias", records: []dnsmessage.Resource{
			record(t, "A.Example.", &dnsmessage.CNAMEResource{CNAME: dnsName(t, "b.example.")}), record(t, "B.example.", a("93.184.216.34")),
		}, want: "93.184.216.34"},
		{name: "somebody else's address", records: []dnsmessage.Resource{record(t, "b.example.", a("93.184.216.34"))}, want: ""},
		{name: "aliases in a circle", records: []dnsmessage.Resource{
			record(t, "a.example.", &dnsmessage.CNAMEResource{CNAME: dnsName(t, "b.example.")}),
			record(t, "b.example.", &dnsmessage.CNAMEResource{CNAME: dnsName(t, "a.example.")}),
		}, want: ""},
		{name: "failure", edit: func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeServerFailure }, want: "ServerFailure", fails: true},
		{name: "another question", records: both, edit: func(m *dnsmessage.Message) { m.Questions[0].Name = dnsName(t, "b.example.") }, want: "not an answer", fails: true},
		{name: "no question", records: both, edit: func(m *dnsmessage.Message) { m.Questions = nil }, want: "not an answer", fails: true},
		{name: "a query", records: both, edit: func(m *dnsmessage.Message) { m.Response = false }, want: "not an answer", fails: true},
		{name: "truncated", records: both, edit: func(m *dnsmessage.Message) { m.Truncated = true }, want: "not an answer", fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, lookup := dnsWorld(t, c.records, c.edit)
			addrs, err := lookup(t.Context(), "a.example")
			var got []string
			for _, addr := range addrs {
				got = append(got, addr.String())
			}
			switch {
			case c.fails && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, %v; want an error with %q", got, err, c.want)
			case !c.fails && (err != nil || !slices.Equal(got, strings.Fields(c.want))):
				t.Errorf("got %v, %v; want %s", got, err, c.want)
			}
		})
	}
}

// What comes over HTTPS is judged like any other answer.
func TestDNSOverHTTPSAnswersAreJudged(t *testing.T) {
	w, lookup := dnsWorld(t, []dnsmessage.Resource{record(t, "a.example.", a("169.254.169.254"))}, nil)
	w.cfg.Lookup = lookup
	if _, err := w.get(t, "https://a.example/"); !errors.Is(err, ErrForbiddenAddress) {
		t.Errorf("got %v, want ErrForbiddenAddress", err)
	}
}

func TestDNSOverHTTPSFaults(t *testing.T) {
	for _, endpoint := range []string{"http://dns.example/q", "https:///q", "https://dns.example/q?x", "https://dns.example/q#x", "::", ""} {
		if _, err := DNSOverHTTPS(http.DefaultClient, endpoint); err == nil {
			t.Errorf("%q was taken for a server", endpoint)
		}
	}
	for name, h := range map[string]http.HandlerFunc{
		"status":       func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusBadGateway) },
		"content type": say("x"),
		"garbage": func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", dnsMediaType)
			_, _ = rw.Write([]byte("x"))
		},
		"too large": func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", dnsMediaType)
			_, _ = rw.Write(make([]byte, maxDNSMessage+1))
		},
	} {
		w := newWorld(t, h)
		lookup, err := DNSOverHTTPS(NewClient(w.cfg), "https://"+host+"/dns-query")
		if err != nil {
			t.Fatal(err)
		}
		if addrs, err := lookup(t.Context(), "a.example"); err == nil {
			t.Errorf("%s: %v", name, addrs)
		}
	}
	w, _ := dnsWorld(t, nil, nil)
	lookup, _ := DNSOverHTTPS(NewClient(w.cfg), "https://"+host+"/dns-query")
	if _, err := lookup(t.Context(), strings.Repeat("a", 300)); err == nil {
		t.Error("an overlong name was asked for")
	}
}

func FuzzParseDNS(f *testing.F) {
	q := dnsmessage.Question{Name: dnsName(f, "a.example."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}
	for _, answers := range [][]dnsmessage.Resource{nil, {record(f, "a.example.", a("93.184.216.34"))}, {record(f, "a.example.", &dnsmessage.CNAMEResource{CNAME: q.Name})}} {
		m := dnsmessage.Message{Header: dnsmessage.Header{Response: true}, Questions: []dnsmessage.Question{q}, Answers: answers}
		packed, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		addrs, err := parseDNS(answer, q)
		for _, addr := range addrs {
			if err != nil || !addr.Is4() {
				t.Errorf("%v, %v for a question about IPv4", addr, err)
			}
		}
	})
}
