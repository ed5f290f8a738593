// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/treaty-node/treaty/did"
)

// Errors of Transport.
var (
	// ErrRedirect means that a redirect to another origin was not followed: a
	// server could otherwise have us sign requests to third parties.
	ErrRedirect = errors.New("httpsig: redirect to another origin")
	// ErrBodyTooLarge means that a request's content exceeds Transport.MaxBody.
	ErrBodyTooLarge = errors.New("httpsig: request content too large to sign")
)

// Transport is an http.RoundTripper that signs every request. The content is
// read into memory, up to MaxBody. A redirect within the origin is signed anew;
// one to another origin is refused. When the server answers invalid_nonce with a
// challenge, the request is signed with that and sent once more. A Transport is
// safe for concurrent use and must not be copied after its first request.
type Transport struct {
	Base   http.RoundTripper // required: the project's guarded transport
	Signer func() did.Signer // asked for each request, so that keys can rotate
	Now    func() time.Time  // default time.Now

	Lifetime time.Duration // default 60 s
	MaxBody  int64         // default 4 MiB

	// Tokens keeps the bearer tokens that https servers issue and sends them
	// instead of signatures, to the origin that issued them, until they expire or
	// are refused. Off by default: such a request binds its sender to nothing, and
	// whoever sees the token can make others.
	Tokens bool

	held heldTokens
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := t.readBody(r)
	if err != nil {
		return nil, err
	}
	if t.Base == nil || t.Signer == nil {
		return nil, errors.New("httpsig: Transport needs Base and Signer")
	}
	// net/http sets Response on a request that a redirect has caused.
	if via := r.Response; via != nil && (via.Request == nil || via.Request.URL == nil || !sameOrigin(via.Request, r)) {
		return nil, fmt.Errorf("%w: %s", ErrRedirect, r.URL.Redacted())
	}
	if !t.Tokens || r.URL.Scheme != "https" {
		return t.signed(r, body)
	}
	key := holder(r, t.Signer().KeyID())
	if token := t.held.get(key, t.now()); token != "" {
		out := outgoing(r, body)
		out.Header["Authorization"] = []string{"Bearer " + token}
		resp, err := t.Base.RoundTrip(out)
		if err != nil || resp.StatusCode != http.StatusUnauthorized {
			return resp, err
		}
		discard(resp)
		t.held.drop(key, token)
	}
	resp, err := t.signed(r, body)
	if err == nil && resp.StatusCode < 400 {
		if token, ok := ParseAuthenticationInfo(resp.Header); ok {
			t.held.put(key, token, t.now())
		}
	}
	return resp, err
}

// signed sends the request with a signature, and once more if it is challenged.
func (t *Transport) signed(r *http.Request, body []byte) (*http.Response, error) {
	resp, err := t.send(r, body, "")
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	c, ok := ParseChallenge(resp.Header)
	if !ok || c.Code != InvalidNonce || c.Nonce == "" {
		return resp, nil
	}
	discard(resp)
	return t.send(r, body, c.Nonce)
}

func (t *Transport) send(r *http.Request, body []byte, nonce string) (*http.Response, error) {
	out := outgoing(r, body)
	o := SignOptions{Created: t.now(), Lifetime: t.Lifetime, Nonce: nonce}
	if err := SignRequest(r.Context(), out, body, t.Signer(), o); err != nil {
		return nil, err
	}
	return t.Base.RoundTrip(out)
}

func (t *Transport) now() time.Time {
	if t.Now == nil {
		return time.Now()
	}
	return t.Now()
}

// discard reads what is left, so that the connection can be used again.
func discard(resp *http.Response) {
	io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	resp.Body.Close()
}

// outgoing returns the request with its content read: a RoundTripper does not
// change the request it is given.
func outgoing(r *http.Request, body []byte) *http.Request {
	out := r.Clone(r.Context())
	if out.Header == nil {
		out.Header = make(http.Header)
	}
	out.Body, out.GetBody, out.ContentLength = http.NoBody, nil, int64(len(body))
	if len(body) > 0 {
		open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		out.Body, _ = open()
		out.GetBody = open
	}
	out.TransferEncoding, out.Trailer = nil, nil
	return out
}

// readBody reads and closes the content; an http.RoundTripper closes it always.
func (t *Transport) readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	defer r.Body.Close()
	limit := t.MaxBody
	if limit <= 0 {
		limit = DefaultMaxBody
	}
	if r.ContentLength > limit {
		return nil, fmt.Errorf("%w: %d octets", ErrBodyTooLarge, r.ContentLength)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("httpsig: reading request content: %w", err)
	}
	if int64(len(body)) > limit {
		return nil, fmt.Errorf("%w: over %d octets", ErrBodyTooLarge, limit)
	}
	return body, nil
}

func sameOrigin(a, b *http.Request) bool {
	return strings.EqualFold(a.URL.Scheme, b.URL.Scheme) &&
		normalAuthority(a.URL.Scheme, a.URL.Host) == normalAuthority(b.URL.Scheme, b.URL.Host)
}

// Challenge is what a refusing server says in WWW-Authenticate: DIDWba.
type Challenge struct {
	Code        Code
	Description string
	Realm       string
	Nonce       string // to sign the next attempt with, if not empty
}

// ParseChallenge returns the DIDWba challenge of a response, if there is one
// that is well formed (RFC 9110 section 11.6.1; parameters as quoted strings or
// tokens). The values are the server's words: they may hold anything printable.
func ParseChallenge(h http.Header) (Challenge, bool) {
	for _, line := range h["Www-Authenticate"] {
		scheme, rest, _ := strings.Cut(strings.TrimLeft(line, " \t"), " ")
		if strings.EqualFold(scheme, "DIDWba") && len(line) <= maxFieldBytes {
			return parseChallenge(rest)
		}
	}
	return Challenge{}, false
}

func parseChallenge(s string) (c Challenge, ok bool) {
	ok = eachParam(s, func(name, value string) bool {
		switch name {
		case "error":
			c.Code = Code(value)
		case "error_description":
			c.Description = value
		case "realm":
			c.Realm = value
		case "nonce":
			if !printable(value, maxNonceBytes) {
				return false
			}
			c.Nonce = value
		}
		return true
	})
	if !ok {
		return Challenge{}, false
	}
	return c, c.Code != ""
}

// eachParam calls f with every auth-param of s (RFC 9110 section 11.2), names in
// lower case, until f returns false. It is false then, and if s is malformed.
func eachParam(s string, f func(name, value string) bool) (ok bool) {
	for s = strings.TrimLeft(s, " \t"); s != ""; s = strings.TrimLeft(s, " \t,") {
		name, rest, found := strings.Cut(s, "=")
		if !found {
			return false
		}
		var value string
		if strings.HasPrefix(rest, `"`) {
			if value, s, ok = cutQuoted(rest); !ok {
				return false
			}
		} else if end := strings.IndexAny(rest, ", \t"); end >= 0 {
			value, s = rest[:end], rest[end:]
		} else {
			value, s = rest, ""
		}
		if !f(strings.ToLower(strings.TrimSpace(name)), value) {
			return false
		}
	}
	return true
}

// cutQuoted splits a quoted-string of RFC 9110 section 5.6.4 off the front of s.
func cutQuoted(s string) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), s[i+1:], true
		case c < 0x20 || c > 0x7e:
			return "", "", false
		case c == '\\':
			if i++; i == len(s) || s[i] < 0x20 || s[i] > 0x7e {
				return "", "", false
			}
			fallthrough
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", false
}
