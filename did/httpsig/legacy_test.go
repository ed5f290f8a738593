// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
)

// The statement is built here by hand, since that is what other implementations
// agree on.
func handmade(t *testing.T, s did.Signer, version, host, nonce, timestamp string) string {
	t.Helper()
	id, fragment, _ := strings.Cut(s.KeyID(), "#")
	statement := fmt.Sprintf(`{"aud":"%s","did":"%s","nonce":"%s","timestamp":"%s"}`, host, id, nonce, timestamp)
	if version == "1.0" {
		statement = fmt.Sprintf(`{"did":"%s","nonce":"%s","service":"%s","timestamp":"%s"}`, id, nonce, host, timestamp)
	}
	sum := sha256.Sum256([]byte(statement))
	sig, err := s.Sign(context.Background(), sum[:]) // ECDSA hashes once more
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`DIDWba v="%s", did="%s", nonce="%s", timestamp="%s", verification_method="%s", signature="%s"`,
		version, id, nonce, timestamp, fragment, base64.RawURLEncoding.EncodeToString(sig))
}

func TestLegacyAccepted(t *testing.T) {
	l := newLobby(t, SessionOptions{Legacy: true}, func(o *Options) { o.Origins = append(o.Origins, "https://Second.example:8443") })
	ed := fixtureSigner(t, l.callerName, l.caller, "root")
	k1, raw := k1Document(t)
	k1ID, _, _ := strings.Cut(k1.KeyID(), "#")
	l.docs.byDID[k1ID] = parseDocument(t, raw)
	stamp := l.now.UTC().Format(time.RFC3339)
	for name, test := range map[string]struct{ value, did string }{
		"Ed25519":       {handmade(t, ed, "1.1", l.host(), "n1", stamp), l.caller},
		"secp256k1":     {handmade(t, k1, "1.1", l.host(), "n1", stamp), k1ID},
		"service":       {handmade(t, ed, "1.0", l.host(), "n2", stamp), l.caller},
		"second origin": {handmade(t, ed, "1.1", "second.example", "n3", stamp), l.caller},
		"fraction":      {handmade(t, ed, "1.1", l.host(), "n4", l.now.UTC().Format("2006-01-02T15:04:05.000000Z")), l.caller},
		"oldest":        {handmade(t, ed, "1.1", l.host(), "n5", l.now.UTC().Add(-90*time.Second).Format(time.RFC3339)), l.caller},
		"newest":        {handmade(t, ed, "1.1", l.host(), "n6", l.now.UTC().Add(30*time.Second).Format(time.RFC3339)), l.caller},
		"ours":          {l.legacy(t, l.host(), ""), l.caller},
		"challenge":     {l.legacy(t, l.host(), l.verifier.challenges.issue(l.now)), l.caller},
	} {
		if w := l.serve(l.authorized(test.value)); w.Code != 200 || l.seen != "legacy "+test.did {
			t.Errorf("%s: %d %s, saw %s", name, w.Code, w.Body, l.seen)
		}
		l.refused(t, name+", repeated", l.authorized(test.value), InvalidNonce)
	}
	if got, want := l.legacy(t, strings.ToUpper(l.host()), "n"), handmade(t, ed, "1.1", l.host(), "n", stamp); got != want {
		t.Errorf("ours %s\nwant %s", got, want)
	}
}

func TestLegacyRefused(t *testing.T) {
	l := newLobby(t, SessionOptions{Legacy: true}, nil)
	s := fixtureSigner(t, l.callerName, l.caller, "root")
	stamp := l.now.UTC().Format(time.RFC3339)
	make := func(edit func(string) string) string { return edit(handmade(t, s, "1.1", l.host(), "n", stamp)) }
	swap := func(from, to string) string {
		return make(func(h string) string { return strings.Replace(h, from, to, 1) })
	}
	at := func(d time.Duration) string {
		return handmade(t, s, "1.1", l.host(), "n", l.now.UTC().Add(d).Format(time.RFC3339))
	}
	k1, raw := k1Document(t)
	k1ID, _, _ := strings.Cut(k1.KeyID(), "#")
	l.docs.byDID[k1ID] = parseDocument(t, raw)
	added := newSigner(t, k1ID+"#added", did.Secp256k1, k1Seed(8))
	long := strings.Repeat("n", maxNonceBytes+1)
	for name, test := range map[string]struct {
		value string
		code  Code
	}{
		"no parameters":           {"DIDWba", InvalidRequest},
		"broken off":              {make(func(h string) string { return h[:len(h)-1] }), InvalidRequest},
		"a parameter missing":     {swap(`v="1.1", `, ""), InvalidRequest},
		"a parameter twice":       {make(func(h string) string { return h + `, v="1.1"` }), InvalidRequest},
		"a parameter too many":    {make(func(h string) string { return h + `, aud="x"` }), InvalidRequest},
		"an empty parameter":      {swap(`nonce="n"`, `nonce=""`), InvalidRequest},
		"another version":         {swap(`v="1.1"`, `v="2"`), InvalidRequest},
		"too long":                {make(func(h string) string { return h + strings.Repeat(",", maxFieldBytes) }), InvalidRequest},
		"version changed":         {swap(`v="1.1"`, `v="1.0"`), InvalidSignature},
		"nonce changed":           {swap(`nonce="n"`, `nonce="m"`), InvalidSignature},
		"long nonce":              {handmade(t, s, "1.1", l.host(), long, stamp), InvalidNonce},
		"another host":            {handmade(t, s, "1.1", "other.example", "n", stamp), InvalidSignature},
		"host with port":          {handmade(t, s, "1.1", l.host()+":443", "n", stamp), InvalidSignature},
		"signature in base64":     {make(func(h string) string { return h[:len(h)-3] + `+/"` }), InvalidSignature},
		"signature cut":           {make(func(h string) string { return h[:len(h)-5] + `"` }), InvalidSignature},
		"too old":                 {at(-91 * time.Second), InvalidTimestamp},
		"from the future":         {at(31 * time.Second), InvalidTimestamp},
		"no zone":                 {handmade(t, s, "1.1", l.host(), "n", strings.TrimSuffix(stamp, "Z")), InvalidTimestamp},
		"another zone":            {handmade(t, s, "1.1", l.host(), "n", strings.TrimSuffix(stamp, "Z")+"+00:00"), InvalidTimestamp},
		"no DID":                  {swap(`did="did:`, `did="urn:`), InvalidDID},
		"DID in another case":     {swap(`did="did:wba`, `did="did:WBA`), InvalidDID},
		"fragment in the DID":     {swap(`", nonce`, `#x", nonce`), InvalidDID},
		"unknown DID":             {swap("identity-wba.example", "unknown.example"), InvalidDID},
		"denied DID":              {swap("identity-wba.example", "denied.example"), ForbiddenDID},
		"unknown key":             {swap(`method="root"`, `method="toor"`), InvalidVerificationMethod},
		"key added by a k1_ host": {handmade(t, added, "1.1", l.host(), "n", stamp), InvalidVerificationMethod},
	} {
		l.refused(t, name, l.authorized(test.value), test.code)
	}
	value := l.legacy(t, l.host(), "n")
	l.refused(t, "two headers", l.authorized(value, value), InvalidRequest)
	r := l.signed(t, "n")
	r.Header.Set("Authorization", value)
	l.refused(t, "signature and header", r, InvalidRequest)

	// One nonce serves once, whatever carries it.
	if w := l.serve(l.signed(t, "n")); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	l.refused(t, "nonce of a signed request", l.authorized(value), InvalidNonce)
}

// After a restart without its nonces the service wants its own.
func TestLegacyAfterRestart(t *testing.T) {
	l := newLobby(t, SessionOptions{Legacy: true}, func(o *Options) { o.NotBefore = fixedTime })
	w := l.serve(l.authorized(l.legacy(t, l.host(), "n")))
	c, ok := ParseChallenge(w.Header())
	if !ok || c.Code != InvalidNonce {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	if w := l.serve(l.authorized(l.legacy(t, l.host(), c.Nonce))); w.Code != 200 {
		t.Errorf("with the challenge: %d %s", w.Code, w.Body)
	}
}

func TestLegacyAuthorization(t *testing.T) {
	l := newLobby(t, SessionOptions{Legacy: true}, nil)
	s := fixtureSigner(t, l.callerName, l.caller, "root")
	good := SignOptions{Created: l.now}
	for name, bad := range map[string]struct {
		host string
		o    SignOptions
		s    did.Signer
	}{
		"no time": {"a.example", SignOptions{}, s}, "port": {"a.example:1", good, s}, "no host": {"", good, s},
		"nonce that cannot be quoted": {"a.example", SignOptions{Created: l.now, Nonce: `a"b`}, s},
	} {
		if got, err := LegacyAuthorization(t.Context(), bad.host, bad.s, bad.o); err == nil {
			t.Errorf("%s: %s", name, got)
		}
	}
	if _, err := LegacyAuthorization(t.Context(), "a.example", brokenSigner{s}, good); !errors.Is(err, errUnreachable) {
		t.Errorf("a signer that fails: %v", err)
	}
}

func FuzzLegacy(f *testing.F) {
	f.Add(`v="1.1", did="did:wba:a.example", nonce="n", timestamp="2026-09-07T08:00:00Z", verification_method="k", signature="c2ln"`)
	f.Add(`v=1.1,did=did:web:a.example,nonce="\"",timestamp=t,verification_method=k,signature=s`)
	f.Add(`v="1.0"`)
	f.Fuzz(func(t *testing.T, s string) {
		h, err := parseLegacy(s)
		if err != nil {
			return
		}
		if h.v != "1.0" && h.v != "1.1" || h.did == "" || h.nonce == "" || h.timestamp == "" || h.method == "" || h.signature == "" {
			t.Errorf("%q: %+v", s, h)
		}
	})
}
