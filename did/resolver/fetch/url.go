// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// CheckURL reports whether a client would call u at all: https, a DNS name for a
// host, no user information, an allowed port (none given: 443 only). It looks
// nothing up. The error wraps ErrForbiddenURL.
func CheckURL(u *url.URL, allowedPorts ...int) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrForbiddenURL}, args...)...)
	}
	switch {
	case u == nil || u.Host == "" || u.Opaque != "":
		return refuse("no host")
	case u.Scheme != "https":
		return refuse("scheme %.20q, only https is called", u.Scheme)
	case u.User != nil:
		return refuse("user information in front of the host")
	}
	if err := checkName(u.Hostname()); err != nil {
		return refuse("host %.80q: %w", u.Hostname(), err)
	}
	port, err := portOf(u)
	if err != nil {
		return refuse("%w", err)
	}
	if len(allowedPorts) == 0 {
		allowedPorts = []int{DefaultPort}
	}
	if !slices.Contains(allowedPorts, port) {
		return refuse("port %d is not allowed", port)
	}
	return nil
}

func portOf(u *url.URL) (int, error) {
	text := u.Port()
	if text == "" {
		// "host:" is a second spelling of "host"; one is enough.
		if strings.HasSuffix(u.Host, ":") {
			return 0, errors.New("empty port")
		}
		return DefaultPort, nil
	}
	return parsePort(text)
}

func parsePort(text string) (int, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 || strconv.FormatUint(port, 10) != text {
		return 0, fmt.Errorf("port %.20q", text)
	}
	return int(port), nil
}

// checkName accepts host names as RFC 1123, section 2.1 writes them, without a
// trailing dot, and refuses what some library would read as an IPv4 address: a
// last label of digits, or a hexadecimal number (the WHATWG URL standard calls
// it "ends in a number"). IPv6 fails on its colons.
func checkName(host string) error {
	if host == "" || len(host) > 253 {
		return errors.New("length")
	}
	var last string
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return errors.New("empty or overlong label")
		}
		if label[0] == '-' || label[len(label)-1] == '-' {
			return errors.New("label begins or ends with a hyphen")
		}
		for i := range len(label) {
			if c := label[i]; !isDigit(c) && !isLetter(c) && c != '-' {
				return errors.New("not a DNS name")
			}
		}
		last = label
	}
	digits := strings.TrimLeft(last, "0123456789")
	if digits == "" {
		return errors.New("an IP address")
	}
	if rest, hex := strings.CutPrefix(strings.ToLower(last), "0x"); hex && strings.Trim(rest, "0123456789abcdef") == "" {
		return errors.New("an IP address")
	}
	return nil
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func checkHostPort(hostport string) error {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return err
	}
	if host == "" {
		return errors.New("no host")
	}
	if hostport != strings.ToLower(hostport) {
		return errors.New("not in lower case")
	}
	_, err = parsePort(port)
	return err
}

// origin is scheme, host and port in one spelling (RFC 6454, section 4).
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" && u.Scheme == "https" {
		port = strconv.Itoa(DefaultPort)
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// redirectRule follows at most limit redirects within the first request's origin.
func redirectRule(limit int) func(*http.Request, []*http.Request) error {
	return func(next *http.Request, via []*http.Request) error {
		first := via[0]
		switch {
		case first.Method != http.MethodGet && first.Method != http.MethodHead:
			// 307 would send the body, and perhaps a signature, a second time.
			return fmt.Errorf("%w: the request was a %s", ErrRedirect, first.Method)
		case origin(next.URL) != origin(first.URL):
			return fmt.Errorf("%w: leads to %.200q, another origin", ErrRedirect, origin(next.URL))
		case len(via) > limit:
			return fmt.Errorf("%w: more than %d", ErrRedirect, limit)
		}
		for _, earlier := range via {
			if earlier.URL.String() == next.URL.String() {
				return fmt.Errorf("%w: it leads back to a URL already asked", ErrRedirect)
			}
		}
		return nil
	}
}
