// SPDX-License-Identifier: Apache-2.0

// Package fetch builds the HTTP client for addresses that a peer has named: DID
// documents, agent cards, message endpoints, data planes. Whoever controls such
// an address must not be able to point the client at the operator's own network,
// to tie it up, or to fill its memory.
//
// A client from [NewClient], and a transport from [NewTransport], guarantee:
//
//   - HTTPS only, TLS 1.2 or later. The certificate must carry the host as a
//     dNSName; a common name counts for nothing.
//   - The host is a DNS name, never an IP address in any notation; no user
//     information; only allowed ports; the Host header is the URL's.
//   - A name whose answer contains a private, loopback, link-local, shared,
//     multicast, documentation, translated (NAT64, 6to4, Teredo) or otherwise
//     not globally routed address is refused. What is dialled is the very address
//     that was checked, and it is checked once more on the socket, so an answer
//     that changes in between gains nothing. [Config.Hosts] is the only exception.
//   - Proxies named by the environment are ignored; cookies are not kept.
//   - Redirects are followed only where configured, only for GET and HEAD, only
//     within one origin, and only a bounded number of times.
//   - Response headers, body and total time are bounded. Compressed responses
//     are refused, so the bound on the body is a bound on what is read.
//
// What it does not do: it does not know NAT64 prefixes that a network chose for
// itself (name them in [Config.DenyAddresses]), it does not check certificate
// revocation, and it does not limit how often a host is called (package resolver
// does, for documents).
//
// Error texts may name addresses inside the operator's network. They are for the
// operator; do not return them to the peer.
package fetch

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"
)

// Defaults for the zero fields of [Config].
const (
	DefaultTimeout   = 10 * time.Second
	DefaultMaxBody   = 1 << 20
	DefaultMaxHeader = 32 << 10
	DefaultPort      = 443
)

// Errors to branch on. They are wrapped; use errors.Is.
var (
	ErrForbiddenURL     = errors.New("URL not allowed")        // scheme, host form, user information, port
	ErrForbiddenAddress = errors.New("address not allowed")    // the name leads to an address that is not public
	ErrRedirect         = errors.New("redirect not followed")  // another origin, a downgrade, a loop, too many, or none allowed
	ErrTooLarge         = errors.New("response too large")     // body beyond its bound
	ErrEncoding         = errors.New("response is compressed") // a Content-Encoding, though none was asked for
)

// StatusError is what [Get] returns for an answer other than 200.
type StatusError struct{ Status int }

func (e *StatusError) Error() string {
	return fmt.Sprintf("HTTP status %d %s", e.Status, http.StatusText(e.Status))
}

// Lookup resolves a host (a DNS name without a trailing dot) to addresses.
type Lookup func(ctx context.Context, host string) ([]netip.Addr, error)

// Config says how a client is built. The zero value is the strictest useful
// client: public addresses, port 443, no redirects, 10 seconds, 1 MiB.
type Config struct {
	// Hosts maps "host:port" to the "host:port" that is dialled instead, and
	// permits that address whatever it is. It changes nothing else: the URL, the
	// Host header, the name in the certificate and the allowed ports stay as they
	// are. Keys are lower case.
	Hosts map[string]string
	// RootCAs are the trusted authorities; nil means the system's.
	RootCAs *x509.CertPool
	// Timeout bounds one exchange from the first look-up to the last byte of the
	// body, redirects included. Zero means 10 seconds; a negative value means no
	// limit and is for streams, which the caller's context must bound.
	Timeout time.Duration
	// MaxBody bounds the response body in bytes; zero means 1 MiB.
	MaxBody int64
	// MaxHeader bounds the response headers in bytes; zero means 32 KiB.
	MaxHeader int64
	// AllowedPorts are the ports that a URL may name; empty means 443 only.
	AllowedPorts []int
	// MaxRedirects is how many redirects a client follows for GET and HEAD within
	// one origin. Zero means none, which is what a client that signs its requests
	// wants. It has no effect on NewTransport, which never follows any.
	MaxRedirects int
	// DenyAddresses are refused beside the addresses that are always refused.
	DenyAddresses []netip.Prefix
	// Lookup resolves names; nil means the system's resolver. DNSOverHTTPS makes
	// another.
	Lookup Lookup
}

// Validate reports what in the configuration could never work.
func (c Config) Validate() error {
	for from, to := range c.Hosts {
		for _, hostport := range []string{from, to} {
			if err := checkHostPort(hostport); err != nil {
				return fmt.Errorf("fetch: hosts: %q: %w", hostport, err)
			}
		}
	}
	for _, p := range c.AllowedPorts {
		if p < 1 || p > 65535 {
			return fmt.Errorf("fetch: allowed port %d is not between 1 and 65535", p)
		}
	}
	if c.MaxBody < 0 || c.MaxHeader < 0 || c.MaxRedirects < 0 {
		return errors.New("fetch: a limit is negative")
	}
	return nil
}

// NewTransport returns a round tripper with every guarantee of the package.
// Wrap it to sign requests. It is safe for concurrent use; it has a
// CloseIdleConnections method, which http.Client calls.
func NewTransport(c Config) http.RoundTripper {
	g := &guard{
		ports:   slices.Clone(c.AllowedPorts),
		timeout: cmp.Or(c.Timeout, DefaultTimeout),
		maxBody: cmp.Or(c.MaxBody, DefaultMaxBody),
	}
	g.base = &http.Transport{
		Proxy:                  nil, // the environment does not decide where we connect
		DialContext:            newDialer(c).dial,
		TLSClientConfig:        &tls.Config{RootCAs: c.RootCAs, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: cmp.Or(c.MaxHeader, DefaultMaxHeader),
		TLSHandshakeTimeout:    DefaultTimeout,
		MaxIdleConns:           64,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        90 * time.Second,
	}
	return g
}

// NewClient returns a client over [NewTransport] that also holds the rules for
// redirects.
func NewClient(c Config) *http.Client {
	return &http.Client{
		Transport:     NewTransport(c),
		CheckRedirect: redirectRule(c.MaxRedirects),
		Timeout:       max(cmp.Or(c.Timeout, DefaultTimeout), 0),
	}
}

// Get fetches a JSON document of at most limit bytes. Any status but 200 is a
// [*StatusError]; a longer body is ErrTooLarge.
func Get(ctx context.Context, client *http.Client, rawURL string, limit int64) ([]byte, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, rawURL, http.NoBody)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrForbiddenURL, err)
	}
	req.Header.Set("Accept", "application/json, application/*;q=0.5")
	resp, err := client.Do(req)
	if err != nil {
		// The client's wrapper quotes the URL of the last hop, which is the peer's
		// text and may be as long as a header.
		var hop *url.Error
		if errors.As(err, &hop) {
			err = hop.Err
		}
		return nil, nil, fmt.Errorf("GET %s: %w", rawURL, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("GET %s: %w", rawURL, &StatusError{Status: resp.StatusCode})
	}
	data, err := io.ReadAll(&bounded{body: resp.Body, left: limit})
	if err != nil {
		return nil, nil, fmt.Errorf("GET %s: reading the answer: %w", rawURL, err)
	}
	return data, resp.Header, nil
}

// guard is the round tripper around http.Transport: what to check before a
// request leaves, and what to bound in its response.
type guard struct {
	base    *http.Transport
	ports   []int
	timeout time.Duration
	maxBody int64
}

// CloseIdleConnections closes the connections that no exchange uses.
func (g *guard) CloseIdleConnections() { g.base.CloseIdleConnections() }

func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := g.checkRequest(req); err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // the contract of http.RoundTripper
		}
		return nil, err
	}
	ctx, cancel := req.Context(), context.CancelFunc(func() {})
	if g.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, g.timeout)
	}
	req = req.Clone(ctx)
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := g.base.RoundTrip(req)
	if err != nil {
		cancel()
		return nil, err
	}
	if err := g.checkResponse(req, resp); err != nil {
		_ = resp.Body.Close()
		cancel()
		return nil, err
	}
	resp.Body = &bounded{body: resp.Body, left: g.maxBody, done: cancel}
	return resp, nil
}

func (g *guard) checkRequest(req *http.Request) error {
	if err := CheckURL(req.URL, g.ports...); err != nil {
		return err
	}
	if req.Method == http.MethodConnect {
		return fmt.Errorf("%w: method CONNECT", ErrForbiddenURL)
	}
	if req.Host != "" && req.Host != req.URL.Host {
		return fmt.Errorf("%w: Host header %q is not the URL's", ErrForbiddenURL, req.Host)
	}
	return nil
}

func (g *guard) checkResponse(req *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return errors.New("server switched protocols unasked")
	}
	for _, enc := range resp.Header.Values("Content-Encoding") {
		if enc != "" && enc != "identity" {
			return fmt.Errorf("%w (%.40q)", ErrEncoding, enc)
		}
	}
	if req.Method != http.MethodHead && resp.ContentLength > g.maxBody {
		return fmt.Errorf("%w: %d bytes announced, %d allowed", ErrTooLarge, resp.ContentLength, g.maxBody)
	}
	return nil
}

// bounded passes at most left bytes and fails on the next one, so that a body of
// exactly the bound is whole and a longer one is never taken for whole.
type bounded struct {
	body io.ReadCloser
	left int64
	over bool
	done context.CancelFunc
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.over {
		return 0, ErrTooLarge
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.body.Read(p)
	if int64(n) > b.left {
		n, b.left, b.over = int(b.left), 0, true
		return n, ErrTooLarge
	}
	b.left -= int64(n)
	return n, err
}

func (b *bounded) Close() error {
	err := b.body.Close()
	if b.done != nil {
		b.done()
	}
	return err
}
