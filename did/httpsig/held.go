// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// AccessToken is what a server issues in Authentication-Info.
type AccessToken struct {
	Value    string
	Lifetime time.Duration // expires_in; zero if the server does not say
}

// ParseAuthenticationInfo returns the bearer token of a response, if there is
// one that is well formed (ANP-02 section 3.2.3). An Authorization header in a
// response is no token, whatever some servers think.
func ParseAuthenticationInfo(h http.Header) (AccessToken, bool) {
	lines := h["Authentication-Info"]
	if len(lines) != 1 || len(lines[0]) > maxFieldBytes {
		return AccessToken{}, false
	}
	var t AccessToken
	kind := ""
	ok := eachParam(lines[0], func(name, value string) bool {
		switch name {
		case "access_token":
			if t.Value != "" || !token68(value) {
				return false
			}
			t.Value = value
		case "token_type":
			kind = value
		case "expires_in":
			seconds, err := strconv.ParseUint(value, 10, 31)
			if err != nil {
				return false
			}
			t.Lifetime = time.Duration(seconds) * time.Second
		}
		return true
	})
	if !ok || t.Value == "" || !strings.EqualFold(kind, "Bearer") {
		return AccessToken{}, false
	}
	return t, true
}

// token68 is the form of credentials in RFC 9110 section 11.2.
func token68(s string) bool {
	s = strings.TrimRight(s, "=")
	for i := 0; i < len(s); i++ {
		if c := s[i] | 0x20; !(isDigit(s[i]) || 'a' <= c && c <= 'z' || strings.IndexByte("-._~+/", s[i]) >= 0) {
			return false
		}
	}
	return s != "" && len(s) <= maxTokenBytes
}

// maxHeld bounds the servers whose tokens are kept; beyond it requests are signed.
const maxHeld = 256

// heldTokens keeps one token per origin and key.
type heldTokens struct {
	mu sync.Mutex
	m  map[string]heldToken
}

type heldToken struct {
	value   string
	expires time.Time
}

func holder(r *http.Request, keyid string) string {
	return normalAuthority("https", r.URL.Host) + " " + keyid
}

func (t *heldTokens) get(key string, now time.Time) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	held, ok := t.m[key]
	if ok && !now.Before(held.expires) {
		delete(t.m, key)
		return ""
	}
	return held.value
}

func (t *heldTokens) put(key string, token AccessToken, now time.Time) {
	lifetime := min(token.Lifetime, maxTokenLifetime)
	if lifetime <= 0 {
		lifetime = time.Minute
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.m == nil {
		t.m = make(map[string]heldToken)
	}
	if _, known := t.m[key]; !known && len(t.m) >= maxHeld {
		return
	}
	t.m[key] = heldToken{token.Value, now.Add(lifetime)}
}

func (t *heldTokens) drop(key, value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.m[key].value == value {
		delete(t.m, key)
	}
}
