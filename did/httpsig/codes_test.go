// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"
)

type brokenNonces struct{}

func (brokenNonces) Use(context.Context, string, string, time.Time) (bool, error) {
	return false, errUnreachable
}

// Every error code of ANP-02 section 3.2.4.1, and the two beside them, reaches a
// client that provokes it, with the status and the challenge that go with it.
func TestEveryCode(t *testing.T) {
	replace := func(field, from, to string) func(*testing.T, *lobby, *http.Request) {
		return func(t *testing.T, _ *lobby, r *http.Request) {
			old := r.Header.Get(field)
			if !strings.Contains(old, from) {
				t.Fatalf("no %s in %s", from, old)
			}
			r.Header.Set(field, strings.Replace(old, from, to, 1))
		}
	}
	resign := func(body []byte, age time.Duration) func(*testing.T, *lobby, *http.Request) {
		return func(t *testing.T, l *lobby, r *http.Request) {
			o := SignOptions{Created: l.now.Add(-age)}
			if err := SignRequest(t.Context(), r, body, fixtureSigner(t, l.callerName, l.caller, "root"), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	cases := map[Code]func(*testing.T, *lobby, *http.Request){
		InvalidRequest:            func(_ *testing.T, _ *lobby, r *http.Request) { r.Header = http.Header{} },
		InvalidNonce:              replace("Signature-Input", ";nonce=", ";nonsense="),
		InvalidTimestamp:          resign(nil, 2*time.Minute),
		InvalidDID:                replace("Signature-Input", "identity-wba", "unknown"),
		InvalidSignature:          replace("Signature-Input", `;nonce="`, `;nonce="x`),
		InvalidVerificationMethod: replace("Signature-Input", `#root"`, `#toor"`),
		InvalidContentDigest:      resign([]byte("not what is sent"), 0),
		InvalidAccessToken:        func(_ *testing.T, _ *lobby, r *http.Request) { r.Header = http.Header{"Authorization": {"Bearer x"}} },
		ForbiddenDID:              replace("Signature-Input", "identity-wba", "denied"),
		DIDSuperseded: func(t *testing.T, l *lobby, _ *http.Request) {
			raw := string(l.docs.byDID[l.caller].Raw())
			raw = strings.Replace(raw, "{", `{"deactivated":true,"successorDid":"`+l.caller+`",`, 1)
			l.docs.byDID[l.caller] = parseDocument(t, []byte(raw))
		},
		Unavailable: func(t *testing.T, l *lobby, _ *http.Request) {
			l.options.Nonces = brokenNonces{}
			l.start(t)
			l.restart(t, SessionOptions{Tokens: true})
		},
	}
	for code, def := range codes {
		provoke, ok := cases[code]
		if !ok {
			t.Errorf("%s: no case", code)
			continue
		}
		l := newLobby(t, SessionOptions{Tokens: true, Legacy: true}, nil)
		r := l.signed(t, "")
		provoke(t, l, r)
		w := l.serve(r)
		c, challenged := ParseChallenge(w.Header())
		if got := codeOf(w); w.Code != def.status || l.seen != "nobody" || got != code {
			t.Errorf("%s: %d %s, saw %s", code, w.Code, w.Body, l.seen)
		}
		if challenged != (def.status == http.StatusUnauthorized) || challenged && (c.Code != code || c.Nonce == "") {
			t.Errorf("%s: challenge %+v", code, c)
		}
	}
}
