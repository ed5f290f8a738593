// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"
)

// variations of a good request that must be accepted. Each is signed by its
// edit.
var accepted = []struct {
	name    string
	configs func(o *Options)
	edit    func(r *request)
}{
	{name: "as our sender signs", edit: (*request).sign},
	{name: "minimum coverage", edit: covering(`"@method" "@target-uri" "content-digest"`)},
	{name: "components in another order", edit: covering(`"content-digest" "@authority" "@target-uri" "@method"`)},
	{name: "more components", edit: covering(`"@method" "@target-uri" "@scheme" "@path" "@query" "@request-target" "content-digest" "content-type" "@query-param";name="x"`)},
	{name: "no body", edit: func(r *request) { bodyless(r); r.sign() }},
	{name: "no body, digest of nothing", edit: before(func(r *request) {
		r.body = nil
		r.header.Set("Content-Digest", ContentDigest(nil))
	})},
	{name: "unknown parameters", edit: params(`;x="y";z=?0;a=1.5;b=tok;c=:AAAA:;d`)},
	{name: "tag", edit: params(`;tag="anp"`)},
	{name: "alg of the key", edit: params(`;alg="ed25519"`)},
	{name: "several digests", edit: before(func(r *request) {
		r.header["Content-Digest"] = []string{"unixsum=:AAA=:", ContentDigest(r.body)}
	})},
	{name: "additional authentication key", edit: before(func(r *request) {
		r.signer = fixtureSigner(r.t, r.callerName, r.caller, "auth-jwk")
		r.keyid(r.caller, "auth-jwk")
	})},
	{name: "k1_ binding key", edit: func(r *request) {
		binding, _ := r.asK1()
		r.signBy(binding)
	}},
	{name: "k1_ with alg", edit: func(r *request) {
		binding, _ := r.asK1()
		r.params += `;alg="ES256K"`
		r.signBy(binding)
	}},
	{name: "another label", edit: after(func(r *request) {
		for _, name := range []string{"Signature", "Signature-Input"} {
			r.header.Set(name, "anp-2"+strings.TrimPrefix(r.header.Get(name), "sig1"))
		}
	})},
	{name: "spaces that parsers allow", edit: after(func(r *request) {
		r.header.Set("Signature-Input", strings.NewReplacer(`("`, `(  "`, `" "`, `"  "`, ";", ";  ").Replace(r.header.Get("Signature-Input")))
	})},
	{name: "absolute form", edit: after(func(r *request) { r.target = r.signedURI })},
	{name: "absolute form in upper case with the default port", edit: after(func(r *request) {
		r.target = "HTTPS://" + strings.ToUpper(strings.TrimPrefix(r.origin, "https://")) + ":443/orders?x=1&y=%2F"
	})},
	{name: "Host of the inside", edit: after(func(r *request) { r.host = "127.0.0.1:18443" })},
	{name: "Host of somebody else", edit: after(func(r *request) { r.host = "evil.example" })},
	{name: "uncovered field added", edit: after(func(r *request) { r.header.Set("X-Forwarded-For", "10.0.0.1") })},
	{name: "third origin of four", configs: func(o *Options) {
		o.Origins = []string{"https://a.example", "https://b.example:8443", "HTTPS://" + strings.ToUpper(o.Origins[0][8:]) + ":443/", "http://c.example"}
	}, edit: after(func(r *request) { r.host = "a.example" })},
	{name: "clock 30 s behind", edit: created(31, 60)},
	{name: "expired within the skew", edit: created(-89, 60)},
	{name: "longest lifetime", edit: created(-200, 300)},
	{name: "created long after the start", configs: func(o *Options) { o.NotBefore = fixedTime.Add(-30 * time.Second) }, edit: (*request).sign},
	{name: "challenge right after the start", configs: func(o *Options) { o.NotBefore = fixedTime.Add(900 * time.Millisecond) }, edit: before(func(r *request) {
		r.set("nonce", `"`+r.verifier.challenges.issue(r.now)+`"`)
	})},
	{name: "challenge where it is required", configs: func(o *Options) { o.RequireChallenge = true }, edit: before(func(r *request) {
		r.set("nonce", `"`+r.verifier.challenges.issue(r.now.Add(-time.Minute))+`"`)
	})},
	{name: "challenge of a replica", configs: func(o *Options) {
		o.RequireChallenge, o.ChallengeKey = true, []byte("thirty-two octets shared by both")
	}, edit: before(func(r *request) { r.set("nonce", `"`+r.otherVerifier.challenges.issue(r.now)+`"`) })},
	{name: "without nonce where that is allowed", configs: func(o *Options) { o.NonceOptional = true }, edit: without("nonce")},
}

// Every variation is accepted once, with the right caller, and then refused as
// a repetition, whatever else is sent beside it.
func TestAcceptedRequests(t *testing.T) {
	for _, pair := range [][2]string{{"wba", "web"}, {"web", "wba"}} {
		for _, a := range accepted {
			t.Run(pair[0]+"→"+pair[1]+"/"+a.name, func(t *testing.T) {
				s := newStage(t, pair[0], pair[1])
				if a.configs != nil {
					a.configs(s.options)
				}
				s.start(t)
				r := s.newRequest(t, "nonce-1")
				a.edit(r)
				caller, err := s.verifier.Verify(context.Background(), r.http(), r.body)
				if err != nil {
					t.Fatal(err)
				}
				if caller.DID.String() != r.caller || !strings.HasPrefix(caller.KeyID, r.caller+"#") || caller.Document != s.docs.byDID[r.caller] {
					t.Errorf("caller %+v", caller)
				}
				if _, err := s.verifier.Verify(context.Background(), r.http(), r.body); !isCode(err, InvalidNonce) {
					t.Errorf("repetition: %v, want invalid_nonce", err)
				}
				if n := s.nonces.Len(); n != 1 {
					t.Errorf("%d nonces are live, want 1", n)
				}
			})
		}
	}
}

// All 24 orders of the four parameters, and the fast and the general way of
// parsing agree on them.
func TestParameterOrders(t *testing.T) {
	s := newStage(t, "wba", "web")
	s.start(t)
	n := 0
	var permute func(done, rest []string)
	permute = func(done, rest []string) {
		if len(rest) == 0 {
			n++
			r := s.newRequest(t, "unused")
			r.params = strings.Replace(strings.Join(done, ""), "unused", "n"+strings.Repeat("o", n), 1)
			r.sign()
			if _, err := s.verifier.Verify(context.Background(), r.http(), r.body); err != nil {
				t.Errorf("%s: %v", r.params, err)
			}
			return
		}
		for i := range rest {
			others := append(append([]string{}, rest[:i]...), rest[i+1:]...)
			permute(append(append([]string{}, done...), rest[i]), others)
		}
	}
	var parts []string
	for p := range strings.SplitSeq(s.newRequest(t, "unused").params[1:], ";") {
		parts = append(parts, ";"+p)
	}
	permute(nil, parts)
	if n != 24 {
		t.Fatalf("%d orders, want 24", n)
	}
}

// A nonce belongs to a key: the same nonce is refused under a new signature,
// and accepted from another key.
func TestNonceIsPerKey(t *testing.T) {
	s := newStage(t, "wba", "web")
	s.start(t)
	send := func(fragment string, seconds int64) error {
		r := s.newRequest(t, "same")
		r.signer = fixtureSigner(t, s.callerName, s.caller, fragment)
		r.keyid(s.caller, fragment)
		created(seconds, 60)(r)
		_, err := s.verifier.Verify(context.Background(), r.http(), r.body)
		return err
	}
	if err := send("root", 0); err != nil {
		t.Fatal(err)
	}
	if err := send("root", 1); !isCode(err, InvalidNonce) {
		t.Errorf("same nonce, new signature: %v, want invalid_nonce", err)
	}
	if err := send("auth-jwk", 0); err != nil {
		t.Errorf("same nonce, other key: %v", err)
	}
}

// A request is refused as a repetition until it is refused as expired: the
// nonce outlives the request.
func TestNonceOutlivesRequest(t *testing.T) {
	s := newStage(t, "web", "web")
	s.start(t)
	r := s.newRequest(t, "n")
	r.sign()
	if _, err := s.verifier.Verify(context.Background(), r.http(), r.body); err != nil {
		t.Fatal(err)
	}
	for second := range 200 {
		s.now = fixedTime.Add(time.Duration(second) * time.Second)
		_, err := s.verifier.Verify(context.Background(), r.http(), r.body)
		want := InvalidNonce
		if second > 90 {
			want = InvalidTimestamp
		}
		if !isCode(err, want) {
			t.Fatalf("after %d s: %v, want %s", second, err, want)
		}
	}
}

// A challenge is good once, and cannot be used again while it is valid.
func TestChallengeOnce(t *testing.T) {
	s := newStage(t, "web", "wba")
	s.options.RequireChallenge = true
	s.start(t)
	nonce := s.verifier.challenges.issue(s.now)
	for second := range int64(400) {
		s.now = fixedTime.Add(time.Duration(second) * time.Second)
		r := s.newRequest(t, nonce)
		created(second, 10)(r)
		_, err := s.verifier.Verify(context.Background(), r.http(), r.body)
		if (err == nil) != (second == 0) || err != nil && !isCode(err, InvalidNonce) {
			t.Fatalf("after %d s: %v", second, err)
		}
	}
}

func TestNewVerifier(t *testing.T) {
	good := Options{Origins: []string{"https://a.example"}, Resolver: &documents{}, Nonces: NewMemoryNonces(MemoryNonceOptions{})}
	if _, err := NewVerifier(good); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(o *Options){
		"no resolver":         func(o *Options) { o.Resolver = nil },
		"no nonces":           func(o *Options) { o.Nonces = nil },
		"no origin":           func(o *Options) { o.Origins = nil },
		"many origins":        func(o *Options) { o.Origins = make([]string, 9) },
		"origin with path":    func(o *Options) { o.Origins = []string{"https://a.example/x"} },
		"origin with query":   func(o *Options) { o.Origins = []string{"https://a.example?x"} },
		"origin with user":    func(o *Options) { o.Origins = []string{"https://u@a.example"} },
		"origin without host": func(o *Options) { o.Origins = []string{"https://"} },
		"origin as host":      func(o *Options) { o.Origins = []string{"a.example"} },
		"other scheme":        func(o *Options) { o.Origins = []string{"ftp://a.example"} },
		"SDK: empty secret":   func(o *Options) { o.ChallengeKey = []byte{} },
		"short secret":        func(o *Options) { o.ChallengeKey = make([]byte, 31) },
		"negative skew":       func(o *Options) { o.Skew = -1 },
		"negative lifetime":   func(o *Options) { o.MaxLifetime = -1 },
		"negative body":       func(o *Options) { o.MaxBody = -1 },
	} {
		o := good
		edit(&o)
		if _, err := NewVerifier(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// The sender's fields are exactly those that the SDKs' verifiers rebuild.
func TestSignRequest(t *testing.T) {
	const id = "did:web:identity-web.example:agent:alice-web"
	signer := fixtureSigner(t, "alice-web", id, "root")
	o := SignOptions{Created: fixedTime, Nonce: `a"\z`}
	r, err := http.NewRequest("", "https://API.Example:443/orders?q=%2f#top", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Digest", "stale")
	r.Header.Add("Signature", "stale")
	if err := SignRequest(context.Background(), r, nil, signer, o); err != nil {
		t.Fatal(err)
	}
	want := `sig1=("@method" "@target-uri" "@authority");created=1788768000;expires=1788768060;nonce="a\"\\z";keyid="` + id + `#root"`
	if got := r.Header["Signature-Input"]; len(got) != 1 || got[0] != want || r.Header["Content-Digest"] != nil || len(r.Header["Signature"]) != 1 {
		t.Errorf("header %v\nwant %s", r.Header, want)
	}
	base := "\"@method\": GET\n\"@target-uri\": https://api.example/orders?q=%2f\n\"@authority\": api.example\n\"@signature-params\": " + want[5:]
	if got := r.Header.Get("Signature"); got != "sig1=:"+rawSign(t, signer, []byte(base))+":" {
		t.Errorf("signature is not over\n%s", base)
	}
	if err := SignRequest(context.Background(), r, []byte("x"), signer, o); err != nil || r.Header.Get("Content-Digest") != ContentDigest([]byte("x")) {
		t.Errorf("with content: %v, %v", err, r.Header)
	}

	for name, edit := range map[string]func(r *http.Request, o *SignOptions){
		"no time":          func(_ *http.Request, o *SignOptions) { o.Created = time.Time{} },
		"short lifetime":   func(_ *http.Request, o *SignOptions) { o.Lifetime = time.Millisecond },
		"long lifetime":    func(_ *http.Request, o *SignOptions) { o.Lifetime = time.Hour },
		"control in nonce": func(_ *http.Request, o *SignOptions) { o.Nonce = "a\nb" },
		"long nonce":       func(_ *http.Request, o *SignOptions) { o.Nonce = strings.Repeat("n", 257) },
		"other scheme":     func(r *http.Request, _ *SignOptions) { r.URL.Scheme = "ftp" },
		"opaque URL":       func(r *http.Request, _ *SignOptions) { r.URL.Opaque = "//evil.example/" },
		"no host":          func(r *http.Request, _ *SignOptions) { r.URL.Host, r.Host = "", "" },
		"line break":       func(r *http.Request, _ *SignOptions) { r.Host = "a\r\nb" },
		"path in host":     func(r *http.Request, _ *SignOptions) { r.Host = "a.example/x" },
	} {
		r, o := r.Clone(context.Background()), o
		edit(r, &o)
		if err := SignRequest(context.Background(), r, nil, signer, o); err == nil {
			t.Errorf("%s: signed", name)
		}
	}
	first, second := newNonce(), newNonce()
	if first == second || len(first) != 22 {
		t.Errorf("nonces %q and %q", first, second)
	}
}
