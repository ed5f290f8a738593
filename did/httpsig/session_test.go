// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// lobby is a stage with a service behind Sessions, called without a network.
type lobby struct {
	*stage
	sessions *Sessions
	seen     string // what the handler saw: "caller …", "token …", "legacy …", "anonymous"
}

func newLobby(t *testing.T, o SessionOptions, edit func(*Options)) *lobby {
	t.Helper()
	l := &lobby{stage: newStage(t, "wba", "web")}
	l.options.MaxBody = 1000
	if edit != nil {
		edit(l.options)
	}
	l.start(t)
	l.restart(t, o)
	return l
}

func (l *lobby) restart(t *testing.T, o SessionOptions) {
	t.Helper()
	var err error
	if l.sessions, err = NewSessions(l.verifier, o); err != nil {
		t.Fatal(err)
	}
}

func (l *lobby) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	caller, signed := CallerFrom(r.Context())
	session, weaker := SessionFrom(r.Context())
	switch {
	case signed && weaker:
		l.seen = "both"
	case signed:
		l.seen = "caller " + caller.DID.String()
	case weaker:
		l.seen = string(session.Scheme) + " " + session.DID.String()
	default:
		l.seen = "anonymous"
	}
	if _, err := io.ReadAll(r.Body); err != nil {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	}
}

func (l *lobby) serve(r *http.Request) *httptest.ResponseRecorder {
	l.seen = "nobody"
	w := httptest.NewRecorder()
	l.sessions.Middleware(l).ServeHTTP(w, r)
	return w
}

func (l *lobby) signed(t *testing.T, nonce string) *http.Request {
	t.Helper()
	r := httptest.NewRequest("GET", l.origin+"/a", nil)
	o := SignOptions{Created: l.now, Nonce: nonce}
	if err := SignRequest(t.Context(), r, nil, fixtureSigner(t, l.callerName, l.caller, "root"), o); err != nil {
		t.Fatal(err)
	}
	return r
}

func (l *lobby) authorized(values ...string) *http.Request {
	r := httptest.NewRequest("GET", l.origin+"/a", nil)
	r.Header["Authorization"] = values
	return r
}

func (l *lobby) token(t *testing.T) string {
	t.Helper()
	w := l.serve(l.signed(t, ""))
	token, ok := ParseAuthenticationInfo(w.Header())
	if w.Code != 200 || !ok || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Authorization") != "" {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	return token.Value
}

func (l *lobby) legacy(t *testing.T, host, nonce string) string {
	t.Helper()
	s, err := LegacyAuthorization(t.Context(), host, fixtureSigner(t, l.callerName, l.caller, "root"), SignOptions{Created: l.now, Nonce: nonce})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (l *lobby) host() string { return strings.TrimPrefix(l.origin, "https://") }

func codeOf(w *httptest.ResponseRecorder) Code {
	var reply struct {
		Code  any  `json:"code"`
		Error Code `json:"error"`
	}
	json.Unmarshal(w.Body.Bytes(), &reply)
	if s, ok := reply.Code.(string); ok {
		return Code(s)
	}
	return reply.Error
}

// refused checks that a request is refused with code, and that no handler ran.
func (l *lobby) refused(t *testing.T, name string, r *http.Request, code Code) {
	t.Helper()
	used := l.nonces.used.Load()
	w := l.serve(r)
	if got := codeOf(w); got != code || w.Code != codes[code].status || l.seen != "nobody" || w.Header().Get("Authentication-Info") != "" {
		t.Errorf("%s: %d %s, handler saw %s; want %s", name, w.Code, w.Body, l.seen, code)
	}
	if code != InvalidNonce && l.nonces.used.Load() != used {
		t.Errorf("%s: a nonce was recorded", name)
	}
}

func TestToken(t *testing.T) {
	l := newLobby(t, SessionOptions{Tokens: true, TokenLifetime: time.Hour}, nil)
	w := l.serve(l.signed(t, ""))
	info := w.Header().Get("Authentication-Info")
	if l.seen != "caller "+l.caller || !strings.HasPrefix(info, `access_token="`) || !strings.HasSuffix(info, `", token_type="Bearer", expires_in=3600`) {
		t.Fatalf("saw %s, Authentication-Info: %s", l.seen, info)
	}
	token := l.token(t)
	for _, scheme := range []string{"Bearer ", "bearer ", "BEARER  "} {
		w := l.serve(l.authorized(scheme + token))
		if w.Code != 200 || l.seen != "token "+l.caller || w.Header().Get("Authentication-Info") != "" {
			t.Errorf("%q: %d, saw %s", scheme, w.Code, l.seen)
		}
	}
	r := l.authorized("Bearer " + token)
	r.Body = io.NopCloser(strings.NewReader(strings.Repeat("x", 1001)))
	if w := l.serve(r); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("content over the bound: %d", w.Code)
	}
	l.now = l.now.Add(time.Hour - time.Second)
	if l.serve(l.authorized("Bearer " + token)); l.seen != "token "+l.caller {
		t.Errorf("in its last second: saw %s", l.seen)
	}
	l.now = l.now.Add(time.Second)
	l.refused(t, "expired", l.authorized("Bearer "+token), InvalidAccessToken)
}

// Every way in which a token can be wrong has the one code.
func TestTokenRefused(t *testing.T) {
	l := newLobby(t, SessionOptions{Tokens: true}, nil)
	token := l.token(t)
	claims, tag, _ := strings.Cut(token, ".")
	forge := func(key []byte, audience string, edit func(*tokenClaims)) string {
		c := tokenClaims{Audience: audience, KeyID: l.caller + "#root", Issued: l.now.Unix(), Expires: l.now.Unix() + 60}
		edit(&c)
		return tokenBox{key: key, audience: audience}.seal(c)
	}
	key := l.sessions.o.TokenKey
	same := func(*tokenClaims) {}
	for name, bad := range map[string]string{
		"empty": "", "dot": ".", "no tag": claims + ".", "no claims": "." + tag, "three parts": token + ".x",
		"short tag": token[:len(token)-4], "padded": token + "=", "too long": strings.Repeat("a", maxTokenBytes+1),
		"another tag":      claims + "." + base64.RawURLEncoding.EncodeToString(make([]byte, 32)),
		"another key":      forge(make([]byte, 32), l.host(), same),
		"empty key":        forge(nil, l.host(), same),
		"another audience": forge(key, "other.example", same),
		"from the future":  forge(key, l.host(), func(c *tokenClaims) { c.Issued += 60; c.Expires += 60 }),
		"too long a life":  forge(key, l.host(), func(c *tokenClaims) { c.Expires += 3600 }),
		"no DID":           forge(key, l.host(), func(c *tokenClaims) { c.KeyID = "root" }),
		"a challenge":      l.verifier.challenges.issue(l.now),
		"a JWT with none":  "eyJhbGciOiJub25lIn0." + claims + ".",
	} {
		l.refused(t, name, l.authorized("Bearer "+bad), InvalidAccessToken)
	}
	open, err := canon.Marshal(map[string]any{"aud": l.host(), "exp": l.now.Unix() + 60, "iat": l.now.Unix(), "kid": l.caller + "#root", "sub": "did:web:x"})
	if err != nil {
		t.Fatal(err)
	}
	enc := base64.RawURLEncoding
	l.refused(t, "unknown claim", l.authorized("Bearer "+enc.EncodeToString(open)+"."+enc.EncodeToString(l.sessions.tokens.tag(open))), InvalidAccessToken)
	if l.serve(l.authorized("Bearer " + forge(key, l.host(), same))); l.seen != "token "+l.caller {
		t.Errorf("the forger's control case is refused: saw %s", l.seen)
	}

	l.refused(t, "two tokens", l.authorized("Bearer "+token, "Bearer "+token), InvalidAccessToken)
	r := l.signed(t, "")
	r.Header.Set("Authorization", "Bearer "+token)
	l.refused(t, "signature and token", r, InvalidRequest)
}

// What happens to a DID after its token was issued counts.
func TestTokenRevoked(t *testing.T) {
	var denied did.DID
	l := newLobby(t, SessionOptions{Tokens: true}, func(o *Options) {
		o.Admit = func(id did.DID) error {
			if id == denied {
				return errUnreachable
			}
			return nil
		}
	})
	token := l.token(t)
	denied = parseDID(t, l.caller)
	l.refused(t, "denied meanwhile", l.authorized("Bearer "+token), ForbiddenDID)
	denied = did.DID{}

	doc := l.docs.byDID[l.caller]
	edit := func(f func(map[string]any)) {
		var m map[string]any
		if err := json.Unmarshal(doc.Raw(), &m); err != nil {
			t.Fatal(err)
		}
		f(m)
		raw, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		l.docs.byDID[l.caller] = parseDocument(t, raw)
	}
	edit(func(m map[string]any) { m["deactivated"] = true })
	l.refused(t, "deactivated meanwhile", l.authorized("Bearer "+token), InvalidDID)
	edit(func(m map[string]any) { delete(m, "authentication") })
	l.refused(t, "key withdrawn meanwhile", l.authorized("Bearer "+token), InvalidVerificationMethod)
	delete(l.docs.byDID, l.caller)
	l.refused(t, "document gone", l.authorized("Bearer "+token), InvalidDID)
	l.docs.byDID[l.caller] = doc
	if l.serve(l.authorized("Bearer " + token)); l.seen != "token "+l.caller {
		t.Errorf("as it was: saw %s", l.seen)
	}
	l.restart(t, SessionOptions{Tokens: true})
	l.refused(t, "after a restart", l.authorized("Bearer "+token), InvalidAccessToken)
}

// Nothing but a signature makes a Caller: neither a Verifier's middleware nor a
// handler behind Sessions ever takes a token or the legacy header for one.
func TestSessionIsNoCaller(t *testing.T) {
	l := newLobby(t, SessionOptions{Tokens: true, Legacy: true}, nil)
	token := l.token(t)
	for name, test := range map[string]struct {
		value string
		code  Code
	}{
		"token":  {"Bearer " + token, InvalidAccessToken},
		"legacy": {l.legacy(t, l.host(), ""), InvalidRequest},
	} {
		for kind, wrap := range map[string]func(http.Handler) http.Handler{"Middleware": l.verifier.Middleware, "Optional": l.verifier.Optional} {
			l.seen = "nobody"
			w := httptest.NewRecorder()
			wrap(l).ServeHTTP(w, l.authorized(test.value))
			if kind == "Middleware" && (codeOf(w) != test.code || l.seen != "nobody") || kind == "Optional" && l.seen != "anonymous" {
				t.Errorf("%s, %s: %d, saw %s", kind, name, w.Code, l.seen)
			}
		}
		if l.serve(l.authorized(test.value)); l.seen != name+" "+l.caller {
			t.Errorf("%s: saw %s", name, l.seen)
		}
	}
	// Off is off, each by itself.
	l.restart(t, SessionOptions{Legacy: true})
	l.refused(t, "token, not switched on", l.authorized("Bearer "+token), InvalidAccessToken)
	if w := l.serve(l.signed(t, "")); w.Header().Get("Authentication-Info") != "" {
		t.Error("a token was issued")
	}
	l.restart(t, SessionOptions{Tokens: true})
	l.refused(t, "legacy, not switched on", l.authorized(l.legacy(t, l.host(), "")), InvalidRequest)
}

func TestSessionsOptional(t *testing.T) {
	l := newLobby(t, SessionOptions{Tokens: true}, nil)
	for value, want := range map[string]string{"": "anonymous", "Basic YTpi": "anonymous", "Bearer x": "nobody", "DIDWba x": "nobody"} {
		l.seen = "nobody"
		w := httptest.NewRecorder()
		l.sessions.Optional(l).ServeHTTP(w, l.authorized(value))
		if l.seen != want || (want == "nobody") != (w.Code == 401) {
			t.Errorf("%q: %d, saw %s", value, w.Code, l.seen)
		}
	}
	l.refused(t, "another scheme where credentials are needed", l.authorized("Basic YTpi"), InvalidRequest)
	l.refused(t, "none where credentials are needed", l.authorized(), InvalidRequest)
}

func TestNewSessions(t *testing.T) {
	l := newLobby(t, SessionOptions{Tokens: true}, nil)
	plain := *l.options
	plain.Origins = []string{"http://a.example"}
	insecure, err := NewVerifier(plain)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]struct {
		v *Verifier
		o SessionOptions
	}{
		"nothing on":      {l.verifier, SessionOptions{}},
		"no verifier":     {nil, SessionOptions{Tokens: true}},
		"plain http":      {insecure, SessionOptions{Tokens: true}},
		"empty key":       {l.verifier, SessionOptions{Tokens: true, TokenKey: []byte{}}},
		"short key":       {l.verifier, SessionOptions{Tokens: true, TokenKey: make([]byte, 31)}},
		"long tokens":     {l.verifier, SessionOptions{Tokens: true, TokenLifetime: time.Hour + 1}},
		"negative tokens": {l.verifier, SessionOptions{Tokens: true, TokenLifetime: -1}},
		"long legacy":     {l.verifier, SessionOptions{Legacy: true, LegacyLifetime: 301 * time.Second}},
	} {
		if _, err := NewSessions(bad.v, bad.o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := NewSessions(insecure, SessionOptions{Legacy: true}); err != nil {
		t.Error(err)
	}
	other := newLobby(t, SessionOptions{Tokens: true}, nil)
	if string(l.sessions.o.TokenKey) == string(other.sessions.o.TokenKey) || len(l.sessions.o.TokenKey) < 32 {
		t.Error("keys are not random")
	}
}
