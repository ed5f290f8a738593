// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/treaty-node/treaty/did"
)

// Scheme says how the DID behind a [Session] was authenticated.
type Scheme string

// The two schemes that do not sign the request itself.
const (
	SchemeToken  Scheme = "token"  // a bearer token that this service issued after a signed request
	SchemeLegacy Scheme = "legacy" // Authorization: DIDWba …, signed over host, nonce and time only
)

// Session is the DID behind a request that is not itself signed. It is no
// [Caller] and cannot be made one: whoever has the token, or sees the header
// first, decides on method, target and content. Use it to answer questions,
// never for anything that binds the DID.
type Session struct {
	DID      did.DID
	KeyID    string // of the authentication key that was used, and is still valid
	Document *did.Document
	Scheme   Scheme
	Expires  time.Time // when token or header cease to be accepted
}

// SessionOptions says which weaker schemes are accepted. Both are off unless
// switched on here.
type SessionOptions struct {
	// Tokens issues a bearer token in the answer to a signed request, and accepts
	// it afterwards (ANP-02 section 3.2.3).
	Tokens bool
	// TokenLifetime is 1 minute to 1 hour; default 15 minutes.
	TokenLifetime time.Duration
	// TokenKey authenticates tokens, at least 32 octets; replicas share one. By
	// default it is random, so that a restart revokes every token.
	TokenKey []byte

	// Legacy accepts Authorization: DIDWba …, which the signature fields have
	// replaced.
	Legacy bool
	// LegacyLifetime is how old its timestamp may be: 1 second to the verifier's
	// MaxLifetime; default 60 s.
	LegacyLifetime time.Duration
}

// Sessions lets in, beside signed requests, those that carry a bearer token or
// the legacy header. It is a type of its own, and what it lets in so has a
// [Session] in its context and no [Caller]: a handler that asks for the caller
// can never be reached by a token, whatever middleware stands before it.
type Sessions struct {
	v      *Verifier
	o      SessionOptions
	tokens tokenBox
	hosts  []string // of the origins, without ports: what the legacy header is addressed to
}

// NewSessions returns the middleware for v's service. Tokens are issued for
// v's realm, and only if all its origins are https.
func NewSessions(v *Verifier, o SessionOptions) (*Sessions, error) {
	if v == nil || !o.Tokens && !o.Legacy {
		return nil, errors.New("httpsig: Sessions needs a verifier, and Tokens or Legacy")
	}
	if o.TokenLifetime == 0 {
		o.TokenLifetime = 15 * time.Minute
	}
	if o.LegacyLifetime == 0 {
		o.LegacyLifetime = min(DefaultLifetime, v.opts.MaxLifetime)
	}
	if o.TokenLifetime < time.Minute || o.TokenLifetime > maxTokenLifetime ||
		o.LegacyLifetime < time.Second || o.LegacyLifetime > v.opts.MaxLifetime {
		return nil, errors.New("httpsig: TokenLifetime or LegacyLifetime out of range")
	}
	if o.TokenKey == nil {
		o.TokenKey = make([]byte, 32)
		rand.Read(o.TokenKey) // never fails
	}
	if len(o.TokenKey) < 32 {
		return nil, errors.New("httpsig: TokenKey is shorter than 32 octets")
	}
	s := &Sessions{v: v, o: o, tokens: tokenBox{key: o.TokenKey, audience: v.opts.Realm}}
	for _, origin := range v.opts.Origins {
		u, err := url.Parse(origin)
		if err != nil {
			return nil, err
		}
		if o.Tokens && u.Scheme != "https" {
			return nil, errors.New("httpsig: tokens are issued over https only")
		}
		s.hosts = append(s.hosts, u.Hostname())
	}
	return s, nil
}

type sessionKey struct{}

// SessionFrom returns the session of the request that ctx belongs to. It is
// false for signed requests, which have a [Caller], and for anonymous ones.
func SessionFrom(ctx context.Context) (Session, bool) {
	s, ok := ctx.Value(sessionKey{}).(Session)
	return s, ok
}

// Middleware lets signed requests and sessions through to next. A signed request
// has a [Caller] in its context, and its answer carries a token if those are
// issued. The content of a session's request is bounded by Options.MaxBody and
// not read ahead.
func (s *Sessions) Middleware(next http.Handler) http.Handler { return s.handler(next, false) }

// Optional is Middleware that lets anonymous requests through as well. What
// carries credentials is verified, and refused if that fails.
func (s *Sessions) Optional(next http.Handler) http.Handler { return s.handler(next, true) }

func (s *Sessions) handler(next http.Handler, anonymous bool) http.Handler {
	signed := next
	if s.o.Tokens {
		signed = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			caller, _ := CallerFrom(r.Context())
			w.Header().Set("Authentication-Info", s.issue(caller))
			w.Header().Set("Cache-Control", "no-store")
			next.ServeHTTP(w, r)
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, value := credentials(r.Header)
		switch hasSignature := len(r.Header["Signature"]) > 0 || len(r.Header["Signature-Input"]) > 0; {
		case hasSignature && scheme != "":
			s.v.WriteError(w, refuse(InvalidRequest, "The request carries more than one kind of credentials.", nil))
		case hasSignature:
			s.v.serve(w, r, signed)
		case scheme == "" && anonymous:
			next.ServeHTTP(w, r)
		default:
			session, err := s.session(r.Context(), scheme, value)
			if err != nil {
				s.v.WriteError(w, err)
				return
			}
			r = r.WithContext(context.WithValue(r.Context(), sessionKey{}, session))
			if r.Body != nil {
				r.Body = http.MaxBytesReader(w, r.Body, s.v.opts.MaxBody)
			}
			next.ServeHTTP(w, r)
		}
	})
}

func (s *Sessions) session(ctx context.Context, scheme, value string) (Session, error) {
	switch {
	case scheme == bearerScheme && s.o.Tokens:
		return s.verifyToken(ctx, value)
	case scheme == legacyScheme && s.o.Legacy:
		return s.verifyLegacy(ctx, value)
	}
	return Session{}, unsigned(scheme)
}

const (
	bearerScheme = "bearer"
	legacyScheme = "didwba"
)

// credentials returns the scheme, in lower case, and the value of Authorization
// if it is one of those that concern this package. Two of them are not two
// chances: what follows the first is malformed.
func credentials(h http.Header) (scheme, value string) {
	for _, line := range h["Authorization"] {
		name, rest, _ := strings.Cut(strings.Trim(line, " \t"), " ")
		if name = strings.ToLower(name); name == bearerScheme || name == legacyScheme {
			if scheme != "" {
				return scheme, ""
			}
			scheme, value = name, strings.TrimLeft(rest, " \t")
		}
	}
	return scheme, value
}

// unsigned refuses a request without signature fields and says what may be done
// about the credentials that it has instead. A client that keeps a token for
// the whole domain is told so where only signatures count, and signs.
func unsigned(scheme string) *Error {
	switch scheme {
	case bearerScheme:
		return refuse(InvalidAccessToken, "Access tokens are not accepted here. Sign the request.", nil)
	case legacyScheme:
		return refuse(InvalidRequest, "The DIDWba authorization header is not accepted here. Sign the request with Signature-Input and Signature.", nil)
	}
	return refuse(InvalidRequest, "The request is not signed.", nil)
}

// standing checks that the DID may still use this service and that its document
// still lists the key for authentication.
func (s *Sessions) standing(ctx context.Context, c *claim) (*did.Document, did.PublicKey, error) {
	if s.v.opts.Admit != nil {
		if err := s.v.opts.Admit(c.id); err != nil {
			return nil, did.PublicKey{}, passOr(err, ForbiddenDID)
		}
	}
	doc, err := s.v.opts.Resolver.Resolve(ctx, c.id)
	if err != nil {
		return nil, did.PublicKey{}, passOr(err, InvalidDID)
	}
	key, err := authenticationKey(doc, c)
	return doc, key, err
}
