// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did/resolver/internal/tlstest"
)

const host = "vendorcorp.test"

// proxied counts connections to the proxy that the environment of every test in
// this package names.
var proxied atomic.Int64

func TestMain(m *testing.M) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			proxied.Add(1)
			_ = conn.Close()
		}
	}()
	// Before anything else: net/http reads these once.
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "HTTP_PROXY", "http_proxy"} {
		if err := os.Setenv(name, "http://"+ln.Addr().String()); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// world is one server with a good certificate and a client that is mapped to it.
type world struct {
	ca   *tlstest.CA
	addr string
	cfg  Config
}

func newWorld(t *testing.T, h http.HandlerFunc) *world {
	t.Helper()
	ca := tlstest.NewCA(t)
	addr := tlstest.Serve(t, ca.Cert(t, host), h)
	return &world{ca: ca, addr: addr, cfg: Config{RootCAs: ca.Pool(), Hosts: map[string]string{host + ":443": addr}}}
}

func (w *world) get(t *testing.T, url string) ([]byte, error) {
	t.Helper()
	client := NewClient(w.cfg)
	defer client.CloseIdleConnections()
	data, _, err := Get(t.Context(), client, url, 1<<20)
	return data, err
}

func say(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func TestHostsMapOnlyChangesTheDial(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", r.Host, r.TLS.ServerName)
	})
	got, err := w.get(t, "https://"+host+"/did.json")
	if want := host + " " + host; err != nil || string(got) != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if got, err := w.get(t, "https://VendorCorp.TEST/did.json"); err != nil {
		t.Errorf("upper case: %q, %v", got, err)
	}
}

func TestWithoutMappingLoopbackIsRefused(t *testing.T) {
	var hits atomic.Int64
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	_, port, _ := net.SplitHostPort(w.addr)
	n, _ := strconv.Atoi(port)
	w.cfg.Hosts = nil
	w.cfg.AllowedPorts = []int{n}
	w.cfg.Lookup = answers(t, "127.0.0.1")
	if _, err := w.get(t, "https://"+net.JoinHostPort(host, port)+"/"); !errors.Is(err, ErrForbiddenAddress) {
		t.Errorf("got %v, want ErrForbiddenAddress", err)
	}
	if hits.Load() != 0 {
		t.Error("the server was reached")
	}
}

func TestProxiesOfTheEnvironmentAreIgnored(t *testing.T) {
	w := newWorld(t, say("direct"))
	if got, err := w.get(t, "https://"+host+"/"); err != nil || string(got) != "direct" {
		t.Errorf("got %q, %v", got, err)
	}
	if n := proxied.Load(); n != 0 {
		t.Errorf("%d connections went to the proxy", n)
	}
}

func TestURLs(t *testing.T) {
	cases := []struct {
		name, url string
		ports     []int
		ok        bool
	}{
		{"plain", "https://vendorcorp.example/did.json", nil, true},
		{"default port spelled out", "https://vendorcorp.example:443/", nil, true},
		{"allowed port", "https://vendorcorp.example:8443/", []int{443, 8443}, true},
		{"punycode", "https://xn--bcher-kva.example/", nil, true},
		{"other port", "https://vendorcorp.example:8443/", nil, false},
		{"default port not in the list", "https://vendorcorp.example/", []int{8443}, false},
		{"port zero", "https://vendorcorp.example:0/", []int{0}, false},
		{"port with leading zero", "https://vendorcorp.example:0443/", nil, false},
		{"empty port", "https://vendorcorp.example:/", nil, false},
		{"http", "http://vendorcorp.example/", []int{80, 443}, false},
		{"file", "file:///etc/passwd", nil, false},
		{"gopher", "gopher://vendorcorp.example/", nil, false},
		{"user information", "https://bank.example@evil.example/", nil, false},
		{"user information with password", "https://a:b@vendorcorp.example/", nil, false},
		{"empty user information", "https://@vendorcorp.example/", nil, false},
		{"IPv4", "https://127.0.0.1/", nil, false},
		{"public IPv4", "https://93.184.216.34/", nil, false},
		{"IPv4 as one number", "https://2130706433/", nil, false},
		{"IPv4 short", "https://127.1/", nil, false},
		{"IPv4 in hexadecimal", "https://0x7f.0.0.0x1/", nil, false},
		{"IPv4 as one hexadecimal number", "https://0x7f000001/", nil, false},
		{"IPv4 in octal", "https://0177.0.0.01/", nil, false},
		{"IPv6", "https://[::1]/", nil, false},
		{"IPv6 with zone", "https://[fe80::1%25eth0]/", nil, false},
		{"IPv4-mapped IPv6", "https://[::ffff:127.0.0.1]/", nil, false},
		{"trailing dot", "https://vendorcorp.example./", nil, false},
		{"two dots", "https://vendorcorp..example/", nil, false},
		{"full-width dots", "https://127。0。0。1/", nil, false},
		{"non-ASCII name", "https://bücher.example/", nil, false},
		{"underscore", "https://a_b.example/", nil, false},
		{"hyphen first", "https://-a.example/", nil, false},
		{"overlong label", "https://" + strings.Repeat("a", 64) + ".example/", nil, false},
		{"overlong name", "https://" + strings.Repeat("abcdefg.", 32) + "example/", nil, false},
		{"no host", "https:///did.json", nil, false},
		{"opaque", "https:vendorcorp.example", nil, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			u, err := url.Parse(c.url)
			if err != nil {
				t.Fatalf("the case does not parse: %v", err)
			}
			err = CheckURL(u, c.ports...)
			if (err == nil) != c.ok || (err != nil && !errors.Is(err, ErrForbiddenURL)) {
				t.Errorf("CheckURL(%q) = %v, want ok = %v", c.url, err, c.ok)
			}
		})
	}
	// The encoded forms do not even parse as a host, and Get says so.
	client := NewClient(Config{})
	for _, raw := range []string{"https://bank.example%40evil.example/", "https://a.example%2fb/", "https://a b.example/", "https://a.example\\@b/"} {
		if _, _, err := Get(t.Context(), client, raw, 1); !errors.Is(err, ErrForbiddenURL) {
			t.Errorf("Get(%q): %v, want ErrForbiddenURL", raw, err)
		}
	}
	if err := CheckURL(nil); !errors.Is(err, ErrForbiddenURL) {
		t.Errorf("CheckURL(nil) = %v", err)
	}
}

func TestHostHeaderMustBeTheURLs(t *testing.T) {
	client := NewClient(Config{})
	for name, edit := range map[string]func(*http.Request){
		"other host": func(r *http.Request) { r.Host = "internal.example" },
		"CONNECT":    func(r *http.Request) { r.Method = http.MethodConnect },
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://vendorcorp.example/", nil)
		if err != nil {
			t.Fatal(err)
		}
		edit(req)
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if !errors.Is(err, ErrForbiddenURL) {
			t.Errorf("%s: %v, want ErrForbiddenURL", name, err)
		}
	}
}

func TestRedirects(t *testing.T) {
	var elsewhere atomic.Int64
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		target := map[string]string{
			"/same":       "/end",
			"/same-port":  "https://" + host + ":443/end",
			"/other":      "https://evil.test/end",
			"/sub":        "https://sub." + host + "/end",
			"/port":       "https://" + host + ":8443/end",
			"/downgrade":  "http://" + host + "/end",
			"/downgrade2": "http://" + host + ":443/end",
			"/inner":      "https://127.0.0.1/end",
			"/userinfo":   "https://x@" + host + "/end",
			"/script":     "javascript:alert(1)",
			"/loop":       "/loop",
			"/loop-a":     "/loop-b",
			"/loop-b":     "/loop-a",
			"/chain1":     "/chain2",
			"/chain2":     "/chain3",
			"/chain3":     "/chain4",
			"/chain4":     "/end",
			"/far":        "https://evil.test/" + strings.Repeat("x", 8000),
		}[r.URL.Path]
		if target == "" {
			_, _ = io.WriteString(rw, "end")
			return
		}
		rw.Header().Set("Location", target)
		rw.WriteHeader(http.StatusFound)
	})
	evil := tlstest.Serve(t, w.ca.Cert(t, "evil.test"), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	for name, addr := range map[string]string{"evil.test:443": evil, "sub." + host + ":443": evil, host + ":8443": evil, host + ":80": evil} {
		w.cfg.Hosts[name] = addr
	}
	w.cfg.AllowedPorts = []int{443, 8443, 80}
	for path, want := range map[string]map[int]error{
		"/same":       {0: ErrRedirect, 3: nil},
		"/same-port":  {0: ErrRedirect, 3: nil},
		"/other":      {3: ErrRedirect},
		"/sub":        {3: ErrRedirect},
		"/port":       {3: ErrRedirect},
		"/downgrade":  {3: ErrRedirect},
		"/downgrade2": {3: ErrRedirect},
		"/inner":      {3: ErrRedirect},
		"/userinfo":   {3: ErrForbiddenURL},
		"/script":     {3: ErrRedirect},
		"/loop":       {3: ErrRedirect, 1000: ErrRedirect},
		"/loop-a":     {3: ErrRedirect, 1000: ErrRedirect},
		"/chain1":     {3: ErrRedirect, 4: nil},
		"/far":        {3: ErrRedirect},
	} {
		for limit, want := range want {
			w.cfg.MaxRedirects = limit
			got, err := w.get(t, "https://"+host+path)
			if !errors.Is(err, want) || (want == nil && string(got) != "end") {
				t.Errorf("%s with %d redirects: %q, %v; want %v", path, limit, got, err, want)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("%s: an error text of %d bytes is the peer's to choose", path, len(err.Error()))
			}
		}
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("another origin was called %d times", n)
	}
}

func TestPostIsNeverRedirected(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		var posts, others atomic.Int64
		w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/again" {
				others.Add(1)
				return
			}
			posts.Add(1)
			http.Redirect(rw, r, "/again", status)
		})
		w.cfg.MaxRedirects = 5
		resp, err := NewClient(w.cfg).Post("https://"+host+"/", "text/plain", strings.NewReader("signed"))
		if err == nil {
			_ = resp.Body.Close()
		}
		if !errors.Is(err, ErrRedirect) || posts.Load() != 1 || others.Load() != 0 {
			t.Errorf("%d: %v, %d posts, %d after the redirect", status, err, posts.Load(), others.Load())
		}
	}
}

func TestCertificates(t *testing.T) {
	ca, stranger := tlstest.NewCA(t), tlstest.NewCA(t)
	cases := []struct {
		name string
		cert tls.Certificate
		ok   bool
	}{
		{"good", ca.Cert(t, host), true},
		{"wildcard", ca.Cert(t, "*.test"), true},
		{"common name only", ca.Cert(t, host, func(c *x509.Certificate) {
			c.DNSNames, c.Subject = nil, pkix.Name{CommonName: host}
		}), false},
		{"common name beside another dNSName", ca.Cert(t, "other.test", func(c *x509.Certificate) {
			c.Subject = pkix.Name{CommonName: host}
		}), false},
		{"the dialled IP address", ca.Cert(t, host, func(c *x509.Certificate) {
			c.DNSNames, c.IPAddresses = nil, []net.IP{net.IPv4(127, 0, 0, 1)}
		}), false},
		{"URI", ca.Cert(t, host, func(c *x509.Certificate) {
			c.DNSNames, c.URIs = nil, []*url.URL{{Scheme: "https", Host: host}}
		}), false},
		{"wrong name", ca.Cert(t, "evil.test"), false},
		{"parent domain", ca.Cert(t, "test"), false},
		{"expired", ca.Cert(t, host, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) }), false},
		{"not yet valid", ca.Cert(t, host, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }), false},
		{"for clients only", ca.Cert(t, host, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}), false},
		{"unknown authority", stranger.Cert(t, host), false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var hits atomic.Int64
			addr := tlstest.Serve(t, c.cert, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
			w := &world{cfg: Config{RootCAs: ca.Pool(), Hosts: map[string]string{host + ":443": addr}}}
			_, err := w.get(t, "https://"+host+"/")
			var bad *tls.CertificateVerificationError
			if c.ok != (err == nil) || (!c.ok && !errors.As(err, &bad)) {
				t.Errorf("got %v, want ok = %v", err, c.ok)
			}
			if !c.ok && hits.Load() != 0 {
				t.Error("a request was sent to a server that was not verified")
			}
		})
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	ca := tlstest.NewCA(t)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{ca.Cert(t, host)},
		MinVersion:   tls.VersionTLS10, MaxVersion: tls.VersionTLS11,
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: say("old"), ReadHeaderTimeout: time.Second, ErrorLog: discard()}
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close() })
	w := &world{cfg: Config{RootCAs: ca.Pool(), Hosts: map[string]string{host + ":443": ln.Addr().String()}}}
	if _, err := w.get(t, "https://"+host+"/"); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("got %v, want a refusal of the protocol version", err)
	}
}

func TestBodyBound(t *testing.T) {
	const limit = 64 << 10
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		size, _ := strconv.Atoi(r.URL.Query().Get("n"))
		if r.URL.Query().Has("chunked") {
			rw.(http.Flusher).Flush()
		} else {
			rw.Header().Set("Content-Length", strconv.Itoa(size))
		}
		_, _ = rw.Write(bytes.Repeat([]byte{'x'}, size))
	})
	for _, mode := range []string{"", "&chunked"} {
		for n, want := range map[int]error{0: nil, limit - 1: nil, limit: nil, limit + 1: ErrTooLarge, 4 * limit: ErrTooLarge} {
			// Both the argument of Get and the client's own bound hold.
			for name, bound := range map[string]struct{ client, get int64 }{"get": {1 << 30, limit}, "client": {limit, 1 << 30}} {
				w.cfg.MaxBody = bound.client
				data, _, err := Get(t.Context(), NewClient(w.cfg), fmt.Sprintf("https://%s/?n=%d%s", host, n, mode), bound.get)
				if !errors.Is(err, want) || (want == nil && len(data) != n) {
					t.Errorf("%d bytes%s, bound by %s: %d bytes, %v; want %v", n, mode, name, len(data), err, want)
				}
			}
		}
	}
}

func TestGzipBombIsRefusedUnread(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = z.Write(make([]byte, 4<<20))
	_ = z.Close()
	for _, enc := range []string{"gzip", "deflate", "br", "zstd", "identity, gzip"} {
		w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Accept-Encoding"); got != "identity" {
				t.Errorf("Accept-Encoding: %q", got)
			}
			rw.Header().Set("Content-Encoding", enc)
			_, _ = rw.Write(bomb.Bytes())
		})
		if _, err := w.get(t, "https://"+host+"/"); !errors.Is(err, ErrEncoding) {
			t.Errorf("%s: %v, want ErrEncoding", enc, err)
		}
	}
}

func TestHeaderBound(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("X-Long", strings.Repeat("x", 100_000))
	})
	if _, err := w.get(t, "https://"+host+"/"); err == nil {
		t.Error("100 kB of headers were read")
	}
}

func TestTimeLimits(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connects, then says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-r.Context().Done():
				return
			case <-tick.C:
				if r.URL.Path == "/body" { // a byte now and then, for ever
					_, _ = rw.Write([]byte{' '})
					rw.(http.Flusher).Flush()
				}
			}
		}
	})
	w.cfg.Timeout = 150 * time.Millisecond
	w.cfg.MaxBody = 1 << 30
	w.cfg.Hosts["silent.test:443"] = silent.Addr().String()
	w.cfg.Lookup = nil
	for _, target := range []string{"https://" + host + "/body", "https://" + host + "/headers", "https://silent.test/"} {
		if _, err := w.get(t, target); !isTimeout(err) {
			t.Errorf("%s: %v, want a time-out", target, err)
		}
		// The transport alone holds the limit too: a signing client wraps it.
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		resp, err := NewTransport(w.cfg).RoundTrip(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		if !isTimeout(err) {
			t.Errorf("%s through the transport: %v, want a time-out", target, err)
		}
	}
}

func TestNegativeTimeoutIsForStreams(t *testing.T) {
	w := newWorld(t, say("x"))
	w.cfg.Timeout = -1
	if c := NewClient(w.cfg); c.Timeout != 0 {
		t.Errorf("client.Timeout = %v", c.Timeout)
	}
	if got, err := w.get(t, "https://"+host+"/"); err != nil || string(got) != "x" {
		t.Errorf("got %q, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Get(ctx, NewClient(w.cfg), "https://"+host+"/", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestSwitchingProtocolsIsRefused(t *testing.T) {
	ca := tlstest.NewCA(t)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{ca.Cert(t, host)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
	}()
	w := &world{cfg: Config{RootCAs: ca.Pool(), Hosts: map[string]string{host + ":443": ln.Addr().String()}}}
	if got, err := w.get(t, "https://"+host+"/"); err == nil {
		t.Errorf("got %q from a connection that speaks another protocol", got)
	}
}

func TestStatusError(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusTeapot) })
	_, err := w.get(t, "https://"+host+"/")
	var status *StatusError
	if !errors.As(err, &status) || status.Status != http.StatusTeapot {
		t.Errorf("got %v, want a StatusError of 418", err)
	}
}

func TestRequestBodyIsClosedOnRefusal(t *testing.T) {
	body := &closeCounter{Reader: strings.NewReader("x")}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://vendorcorp.example/", body)
	resp, err := NewTransport(Config{}).RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	if !errors.Is(err, ErrForbiddenURL) || body.closed != 1 {
		t.Errorf("%v, closed %d times", err, body.closed)
	}
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		cfg Config
		ok  bool
	}{
		"zero":            {Config{}, true},
		"mapping":         {Config{Hosts: map[string]string{"vendorcorp.test:443": "127.0.0.1:18443"}}, true},
		"mapping to name": {Config{Hosts: map[string]string{"vendorcorp.test:443": "vendor:18443"}}, true},
		"no port":         {Config{Hosts: map[string]string{"vendorcorp.test": "127.0.0.1:18443"}}, false},
		"no target port":  {Config{Hosts: map[string]string{"vendorcorp.test:443": "127.0.0.1"}}, false},
		"upper case":      {Config{Hosts: map[string]string{"VendorCorp.test:443": "127.0.0.1:1"}}, false},
		"bad port":        {Config{Hosts: map[string]string{"vendorcorp.test:99999": "127.0.0.1:1"}}, false},
		"no name":         {Config{Hosts: map[string]string{":443": "127.0.0.1:1"}}, false},
		"allowed port":    {Config{AllowedPorts: []int{0}}, false},
		"negative":        {Config{MaxBody: -1}, false},
	} {
		if err := c.cfg.Validate(); (err == nil) != c.ok {
			t.Errorf("%s: %v, want ok = %v", name, err, c.ok)
		}
	}
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

type closeCounter struct {
	io.Reader
	closed int
}

func (c *closeCounter) Close() error { c.closed++; return nil }
