// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	maxDNSMessage = 64<<10 - 1 // RFC 8484, section 6
	maxAliases    = 8          // CNAMEs followed within one answer
	dnsMediaType  = "application/dns-message"
)

// DNSOverHTTPS returns a Lookup that asks the server at endpoint (an https URL
// such as "https://dns.example/dns-query", without a query) by RFC 8484, so that
// the network in between neither sees nor changes which domains are asked for.
// The client is one from [NewClient] with the system's Lookup, by which the
// server itself is found. The answers are judged like any other: nothing here
// makes an address more trusted.
func DNSOverHTTPS(client *http.Client, endpoint string) (Lookup, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("fetch: DNS over HTTPS: %q is not an https URL without a query", endpoint)
	}
	return func(ctx context.Context, host string) ([]netip.Addr, error) {
		var addrs []netip.Addr
		var errs []error
		for _, typ := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA} {
			found, err := askDNS(ctx, client, endpoint, host, typ)
			addrs, errs = append(addrs, found...), append(errs, err)
		}
		if len(addrs) > 0 {
			return addrs, nil // one family is enough
		}
		return nil, errors.Join(errs...)
	}, nil
}

func askDNS(ctx context.Context, client *http.Client, endpoint, host string, typ dnsmessage.Type) ([]netip.Addr, error) {
	name, err := dnsmessage.NewName(strings.ToLower(host) + ".")
	if err != nil {
		return nil, fmt.Errorf("DNS name %.80q: %w", host, err)
	}
	question := dnsmessage.Question{Name: name, Type: typ, Class: dnsmessage.ClassINET}
	// The id is 0: TLS tells one's answer from another's (RFC 8484, section 4.1).
	query, err := (&dnsmessage.Message{
		Header:    dnsmessage.Header{RecursionDesired: true},
		Questions: []dnsmessage.Question{question},
	}).Pack()
	if err != nil {
		return nil, fmt.Errorf("packing a DNS query: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"?dns="+base64.RawURLEncoding.EncodeToString(query), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", dnsMediaType)
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("DNS over HTTPS: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != dnsMediaType {
		return nil, fmt.Errorf("DNS over HTTPS: %w, content type %.40q", &StatusError{Status: resp.StatusCode}, resp.Header.Get("Content-Type"))
	}
	answer, err := io.ReadAll(&bounded{body: resp.Body, left: maxDNSMessage})
	if err != nil {
		return nil, fmt.Errorf("DNS over HTTPS: %w", err)
	}
	addrs, err := parseDNS(answer, question)
	if err != nil {
		return nil, fmt.Errorf("DNS over HTTPS: %s of %q: %w", typ, host, err)
	}
	return addrs, nil
}

// parseDNS reads the addresses that answer the question, by its name or by
// aliases that start from it. Records of other names are not looked at: they
// would be somebody else's word.
func parseDNS(answer []byte, question dnsmessage.Question) ([]netip.Addr, error) {
	var p dnsmessage.Parser
	header, err := p.Start(answer)
	if err != nil {
		return nil, err
	}
	asked, err := p.AllQuestions()
	switch {
	case err != nil:
		return nil, err
	case !header.Response || header.Truncated || len(asked) != 1 || !sameQuestion(asked[0], question):
		return nil, errors.New("not an answer to the question")
	case header.RCode != dnsmessage.RCodeSuccess:
		return nil, fmt.Errorf("the server says %v", header.RCode)
	}
	aliases, addrs := map[string]string{}, map[string][]netip.Addr{}
	for {
		h, err := p.AnswerHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			break
		}
		if err != nil {
			return nil, err
		}
		owner := strings.ToLower(h.Name.String())
		switch {
		case h.Class == dnsmessage.ClassINET && h.Type == dnsmessage.TypeCNAME:
			r, err := p.CNAMEResource()
			if err != nil {
				return nil, err
			}
			aliases[owner] = strings.ToLower(r.CNAME.String())
		case h.Class == dnsmessage.ClassINET && h.Type == question.Type && h.Type == dnsmessage.TypeA:
			r, err := p.AResource()
			if err != nil {
				return nil, err
			}
			addrs[owner] = append(addrs[owner], netip.AddrFrom4(r.A))
		case h.Class == dnsmessage.ClassINET && h.Type == question.Type && h.Type == dnsmessage.TypeAAAA:
			r, err := p.AAAAResource()
			if err != nil {
				return nil, err
			}
			addrs[owner] = append(addrs[owner], netip.AddrFrom16(r.AAAA))
		default:
			if err := p.SkipAnswer(); err != nil {
				return nil, err
			}
		}
	}
	name := strings.ToLower(question.Name.String())
	for range maxAliases {
		next, ok := aliases[name]
		if !ok {
			break
		}
		name = next
	}
	return addrs[name], nil
}

func sameQuestion(a, b dnsmessage.Question) bool {
	return a.Type == b.Type && a.Class == b.Class && strings.EqualFold(a.Name.String(), b.Name.String())
}
