// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
)

func TestParseAuthenticationInfo(t *testing.T) {
	for line, want := range map[string]AccessToken{
		`access_token="a.b-c_d", token_type="Bearer", expires_in=3600`:  {"a.b-c_d", time.Hour},
		`Token_Type=bearer,access_token=a==`:                            {"a==", 0},
		`access_token="a", token_type="Bearer", expires_in=60, scope=x`: {"a", time.Minute},
	} {
		if got, ok := ParseAuthenticationInfo(http.Header{"Authentication-Info": {line}}); !ok || got != want {
			t.Errorf("%s: %+v, %v", line, got, ok)
		}
	}
	for _, lines := range [][]string{
		nil, {""}, {`access_token="a"`}, {`access_token="a", token_type="DPoP"`}, {`token_type="Bearer"`},
		{`access_token="a b", token_type="Bearer"`}, {`access_token="", token_type="Bearer"`}, {`access_token="=", token_type="Bearer"`},
		{`access_token="a", access_token="b", token_type="Bearer"`}, {`access_token="a", token_type="Bearer", expires_in=-1`},
		{`access_token="a", token_type="Bearer`}, {`access_token="a\` + "\r\n" + `", token_type="Bearer"`},
		{`access_token="` + strings.Repeat("a", maxTokenBytes+1) + `", token_type="Bearer"`},
		{`access_token="a", token_type="Bearer"`, `access_token="b", token_type="Bearer"`},
	} {
		if got, ok := ParseAuthenticationInfo(http.Header{"Authentication-Info": lines}); ok {
			t.Errorf("%q: %+v", lines, got)
		}
	}
	if _, ok := ParseAuthenticationInfo(http.Header{"Authorization": {"Bearer a"}}); ok {
		t.Error("a token out of an Authorization response header")
	}
}

// A Transport with Tokens signs once, sends the token afterwards, and signs
// again when it is refused or has expired; without Tokens it always signs.
func TestTransportTokens(t *testing.T) {
	l := newLobby(t, SessionOptions{Tokens: true}, nil)
	var seen []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.seen = "refused"
		l.sessions.Middleware(l).ServeHTTP(w, r)
		kind, _, _ := strings.Cut(l.seen, " ")
		seen = append(seen, kind)
	}))
	defer server.Close()
	l.options.Origins = []string{server.URL}
	l.start(t)
	l.restart(t, SessionOptions{Tokens: true})

	signer := fixtureSigner(t, l.callerName, l.caller, "root")
	transport := &Transport{Base: server.Client().Transport, Signer: func() did.Signer { return signer }, Now: func() time.Time { return l.now }, Tokens: true}
	call := func(what string, want ...string) {
		t.Helper()
		seen = nil
		if status, body, _ := post(t, &http.Client{Transport: transport}, server.URL+"/a", strings.NewReader("hello")); status != 200 {
			t.Errorf("%s: %d %s", what, status, body)
		}
		if strings.Join(seen, " ") != strings.Join(want, " ") {
			t.Errorf("%s: server saw %v, want %v", what, seen, want)
		}
	}
	call("first", "caller")
	call("second", "token")
	call("third", "token")
	l.now = l.now.Add(15 * time.Minute)
	call("after expiry", "caller")
	call("with a new one", "token")
	l.restart(t, SessionOptions{Tokens: true})
	call("after the server's restart", "refused", "caller")
	call("with a new one", "token")
	transport.Tokens = false
	call("switched off", "caller")

	plain := httptest.NewRequest("GET", "http://a.example/", nil)
	if holder(plain, "k") == holder(httptest.NewRequest("GET", "https://b.example/", nil), "k") {
		t.Error("one token for two origins")
	}
}

func TestHeldTokensBounds(t *testing.T) {
	var h heldTokens
	now := fixedTime
	for i := range maxHeld + 10 {
		h.put(strings.Repeat("x", i+1), AccessToken{Value: "t"}, now)
	}
	if len(h.m) != maxHeld {
		t.Errorf("%d tokens kept", len(h.m))
	}
	h.put("x", AccessToken{Value: "u", Lifetime: 1000 * time.Hour}, now)
	if h.get("x", now.Add(time.Hour-1)) != "u" || h.get("x", now.Add(time.Hour)) != "" {
		t.Error("kept for longer than an hour, or not at all")
	}
	if h.drop("xx", "another"); h.get("xx", now) != "t" {
		t.Error("dropped another token than the refused one")
	}
}

func FuzzParseAuthenticationInfo(f *testing.F) {
	f.Add(`access_token="abc.def", token_type="Bearer", expires_in=3600`)
	f.Add(`access_token=a,token_type=bearer`)
	f.Add(`access_token="a\"b", token_type="Bearer"`)
	f.Fuzz(func(t *testing.T, line string) {
		token, ok := ParseAuthenticationInfo(http.Header{"Authentication-Info": {line}})
		if ok != (token.Value != "") || ok && (!token68(token.Value) || token.Lifetime < 0) {
			t.Errorf("%q: %+v, %v", line, token, ok)
		}
	})
}
