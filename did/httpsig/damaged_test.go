// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
)

// request is a request under construction: what is signed, then what is sent.
type request struct {
	t *testing.T
	*stage

	method, target string // what the server receives; target in origin or absolute form
	host           string
	body           []byte
	header         http.Header

	signer             did.Signer
	signedURI          string // what the sender takes for @target-uri
	signedMethod       string
	components, params string // of Signature-Input, in the order given
}

// stage is the world of one case: server, caller, documents, clock.
type stage struct {
	origin        string // of the server, under its DID's domain
	caller        string // DID
	callerName    string
	docs          *documents
	nonces        *countingNonces
	options       *Options
	now           time.Time
	verifier      *Verifier
	otherVerifier *Verifier // another service
}

const testBody = `{"action":"create","orderId":"12345"}`

func newStage(t *testing.T, callerMethod, serverMethod string) *stage {
	t.Helper()
	ids := identities(t)
	s := &stage{docs: fixtureDocuments(t), callerName: "alice-" + callerMethod, now: fixedTime.Add(time.Second)}
	s.caller = ids[s.callerName].DID
	s.origin = "https://" + parseDID(t, ids["service-"+serverMethod].DID).Host()
	s.nonces = newNonces(func() time.Time { return s.now })
	s.options = &Options{
		Origins: []string{s.origin}, Resolver: s.docs, Nonces: s.nonces, Now: func() time.Time { return s.now },
		Admit: func(id did.DID) error {
			if strings.HasPrefix(id.Host(), "denied.") {
				return errors.New("denied by policy line 7")
			}
			return nil
		},
	}
	return s
}

// start makes the verifiers; options are final.
func (s *stage) start(t *testing.T) {
	t.Helper()
	var err error
	if s.verifier, err = NewVerifier(*s.options); err != nil {
		t.Fatal(err)
	}
	other := *s.options
	if s.otherVerifier, err = NewVerifier(other); err != nil {
		t.Fatal(err)
	}
}

// newRequest returns a request that would be accepted.
func (s *stage) newRequest(t *testing.T, nonce string) *request {
	t.Helper()
	r := &request{
		t: t, stage: s,
		method: "POST", target: "/orders?x=1&y=%2F", host: strings.TrimPrefix(s.origin, "https://"),
		body: []byte(testBody), header: http.Header{"Content-Type": {"application/json"}},
		signer:       fixtureSigner(t, s.callerName, s.caller, "root"),
		signedURI:    s.origin + "/orders?x=1&y=%2F",
		signedMethod: "POST",
		components:   `"@method" "@target-uri" "@authority" "content-digest"`,
	}
	r.params = fmt.Sprintf(`;created=%d;expires=%d;nonce="%s";keyid="%s"`, fixedTime.Unix(), fixedTime.Unix()+60, nonce, r.signer.KeyID())
	r.header.Set("Content-Digest", ContentDigest(r.body))
	return r
}

// sign sets the signature fields. What cannot be parsed is signed as a base of
// nothing but the parameters: it must be refused without looking at that.
func (r *request) sign() {
	r.t.Helper()
	input := "sig1=(" + r.components + ")" + r.params
	base := []byte(`"@signature-params": (` + r.components + ")" + r.params)
	if in, err := ParseSignatureInput([]string{input}); err == nil {
		m := &Message{Method: r.signedMethod, TargetURI: r.signedURI, Header: r.header}
		if b, err := in.AppendBase(nil, m); err == nil {
			base = b
		}
	}
	r.header.Set("Signature-Input", input)
	r.header.Set("Signature", "sig1=:"+rawSign(r.t, r.signer, base)+":")
}

// http returns the request as net/http gives it to a server.
func (r *request) http() *http.Request {
	out := httptest.NewRequest(r.method, "/", strings.NewReader(string(r.body)))
	out.RequestURI, out.Host, out.Header = r.target, r.host, r.header
	return out
}

func (r *request) without(param string) {
	start := strings.Index(r.params, ";"+param+"=")
	end := strings.Index(r.params[start+1:], ";")
	if end < 0 {
		r.params = r.params[:start]
	} else {
		r.params = r.params[:start] + r.params[start+1+end:]
	}
}

func (r *request) set(param, value string) {
	r.without(param)
	r.params += ";" + param + "=" + value
}

func (r *request) keyid(id, fragment string) { r.set("keyid", `"`+id+"#"+fragment+`"`) }

// document replaces the caller's document after edit has changed it.
func (r *request) document(edit func(doc map[string]any)) {
	r.t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(r.docs.byDID[r.caller].Raw(), &doc); err != nil {
		r.t.Fatal(err)
	}
	edit(doc)
	raw, err := json.Marshal(doc)
	if err != nil {
		r.t.Fatal(err)
	}
	r.docs.byDID[r.caller] = parseDocument(r.t, raw)
}

// asK1 makes the caller a k1_ DID and returns the signers for its binding key
// and for another key that the document lists for authentication.
func (r *request) asK1() (binding, added did.Signer) {
	r.t.Helper()
	binding, raw := k1Document(r.t)
	doc := parseDocument(r.t, raw)
	r.caller = doc.ID().String()
	r.docs.byDID[r.caller] = doc
	return binding, newSigner(r.t, r.caller+"#added", did.Secp256k1, k1Seed(8))
}

func (r *request) signBy(s did.Signer) {
	r.signer = s
	r.set("keyid", `"`+s.KeyID()+`"`)
	r.sign()
}

// secp256k1 group order, to make the other form of a signature.
var secp256k1Order, _ = new(big.Int).SetString("FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141", 16)

// damage is one case: how the request differs from a good one, and what the
// caller is told.
type damage struct {
	name    string
	configs func(o *Options) // before the service starts
	edit    func(r *request) // makes the whole request, including sign where it fits
	code    Code
	fetches bool // the document was needed to find out
}

// before edits what is signed; after edits what is sent.
func before(edit func(r *request)) func(*request) { return func(r *request) { edit(r); r.sign() } }
func after(edit func(r *request)) func(*request)  { return func(r *request) { r.sign(); edit(r) } }

func header(name string, values ...string) func(*request) {
	return after(func(r *request) { r.header[name] = values })
}

func params(p string) func(*request) { return before(func(r *request) { r.params += p }) }

func covering(components string) func(*request) {
	return before(func(r *request) { r.components = components })
}

func setting(param, value string) func(*request) {
	return before(func(r *request) { r.set(param, value) })
}

func without(param string) func(*request) { return before(func(r *request) { r.without(param) }) }

func bodyless(r *request) {
	r.body = nil
	r.components = `"@method" "@target-uri" "@authority"`
	r.header.Del("Content-Digest")
}

func created(seconds, lifetime int64) func(*request) {
	return before(func(r *request) {
		r.set("created", fmt.Sprint(fixedTime.Unix()+seconds))
		r.set("expires", fmt.Sprint(fixedTime.Unix()+seconds+lifetime))
	})
}

// damages is every way in which a request can be wrong. SDK marks what other
// implementations have let through.
var damages = []damage{
	// Signature fields that are missing or malformed. Nothing is fetched.
	{name: "unsigned", edit: func(*request) {}, code: InvalidRequest},
	{name: "Signature-Input only", edit: after(func(r *request) { r.header.Del("Signature") }), code: InvalidRequest},
	{name: "Signature only", edit: after(func(r *request) { r.header.Del("Signature-Input") }), code: InvalidRequest},
	{name: "empty Signature-Input", edit: header("Signature-Input", ""), code: InvalidRequest},
	{name: "empty Signature", edit: header("Signature", ""), code: InvalidRequest},
	{name: "garbage in Signature-Input", edit: header("Signature-Input", "\x00\xff;;;((("), code: InvalidRequest},
	{name: "Signature-Input is an item", edit: header("Signature-Input", "sig1=1"), code: InvalidRequest},
	{name: "Signature-Input of 9 KiB", edit: params(`;x="` + strings.Repeat("a", 9<<10) + `"`), code: InvalidRequest},
	{name: "Signature of 9 KiB", edit: header("Signature", "sig1=:"+strings.Repeat("AAAA", 9<<8)+":"), code: InvalidRequest},
	{name: "two signatures", edit: after(func(r *request) {
		r.header.Add("Signature-Input", strings.Replace(r.header.Get("Signature-Input"), "sig1", "sig2", 1))
		r.header.Add("Signature", strings.Replace(r.header.Get("Signature"), "sig1", "sig2", 1))
	}), code: InvalidRequest},
	{name: "two in Signature-Input", edit: after(func(r *request) { r.header.Add("Signature-Input", "sig2=()") }), code: InvalidRequest},
	{name: "two in Signature", edit: after(func(r *request) { r.header.Add("Signature", "sig2=:AAAA:") }), code: InvalidRequest},
	{name: "label repeated on another line", edit: after(func(r *request) {
		r.header["Signature-Input"] = []string{"sig1=()", r.header.Get("Signature-Input")}
	}), code: InvalidRequest},
	{name: "label repeated in one line", edit: after(func(r *request) {
		r.header.Set("Signature-Input", "sig1=(), "+r.header.Get("Signature-Input"))
	}), code: InvalidRequest},
	{name: "label repeated in Signature", edit: after(func(r *request) {
		r.header.Set("Signature", "sig1=:AAAA:, "+r.header.Get("Signature"))
	}), code: InvalidRequest},
	{name: "labels differ", edit: after(func(r *request) {
		r.header.Set("Signature", strings.Replace(r.header.Get("Signature"), "sig1", "sig2", 1))
	}), code: InvalidRequest},
	{name: "signature as a string", edit: header("Signature", `sig1="AAAA"`), code: InvalidRequest},
	{name: "signature as a list", edit: header("Signature", `sig1=(:AAAA:)`), code: InvalidRequest},
	{name: "signature in broken base64", edit: header("Signature", `sig1=:A*A:`), code: InvalidRequest},

	// Parameters.
	{name: "created missing", edit: without("created"), code: InvalidRequest},
	{name: "expires missing", edit: without("expires"), code: InvalidRequest},
	{name: "keyid missing", edit: without("keyid"), code: InvalidRequest},
	{name: "keyid empty", edit: setting("keyid", `""`), code: InvalidRequest},
	{name: "created as a string", edit: setting("created", `"1788768000"`), code: InvalidRequest},
	{name: "created as a decimal", edit: setting("created", "1788768000.0"), code: InvalidRequest},
	{name: "created negative", edit: setting("created", "-1"), code: InvalidRequest},
	{name: "created beyond all time", edit: setting("created", "999999999999999"), code: InvalidRequest},
	{name: "expires as a token", edit: setting("expires", "never"), code: InvalidRequest},
	{name: "nonce as an integer", edit: setting("nonce", "1"), code: InvalidRequest},
	{name: "nonce of 257 octets", edit: setting("nonce", `"`+strings.Repeat("n", 257)+`"`), code: InvalidRequest},
	{name: "keyid of 2 KiB", edit: setting("keyid", `"did:web:`+strings.Repeat("a", 2048)+`#k"`), code: InvalidRequest},
	{name: "repeated created", edit: params(";created=1788768000"), code: InvalidRequest},
	{name: "repeated nonce parameter", edit: params(`;nonce="m"`), code: InvalidRequest},
	{name: "repeated keyid", edit: params(`;keyid="did:web:evil.example#k"`), code: InvalidRequest},
	{name: "repeated unknown parameter", edit: params(";x=1;x=2"), code: InvalidRequest},
	{name: "alg none", edit: params(`;alg="none"`), code: InvalidRequest},
	{name: "alg hmac-sha256", edit: params(`;alg="hmac-sha256"`), code: InvalidRequest},
	{name: "alg rsa-pss-sha512", edit: params(`;alg="rsa-pss-sha512"`), code: InvalidRequest},
	{name: "alg EdDSA in the name of JOSE", edit: params(`;alg="EdDSA"`), code: InvalidRequest},
	{name: "alg of another key type", edit: params(`;alg="ES256K"`), code: InvalidSignature, fetches: true},

	// Coverage. SDK: none of it was enforced.
	{name: "SDK: covers content-type alone", edit: covering(`"content-type"`), code: InvalidRequest},
	{name: "covers nothing", edit: covering(``), code: InvalidRequest},
	{name: "@method not covered", edit: covering(`"@target-uri" "@authority" "content-digest"`), code: InvalidRequest},
	{name: "@target-uri not covered", edit: covering(`"@method" "@authority" "content-digest"`), code: InvalidRequest},
	{name: "@path instead of @target-uri", edit: covering(`"@method" "@path" "content-digest"`), code: InvalidRequest},
	{name: "content-digest not covered", edit: covering(`"@method" "@target-uri" "@authority"`), code: InvalidRequest},
	{name: "SDK: body added to a body-less signature", edit: func(r *request) {
		bodyless(r)
		r.sign()
		r.body = []byte(testBody)
	}, code: InvalidRequest},
	{name: "SDK: body and digest added to a body-less signature", edit: func(r *request) {
		bodyless(r)
		r.sign()
		r.body = []byte(testBody)
		r.header.Set("Content-Digest", ContentDigest(r.body))
	}, code: InvalidRequest},
	{name: "digest covered but absent", edit: after(func(r *request) { r.header.Del("Content-Digest") }), code: InvalidRequest},
	{name: "covered field absent", edit: after(func(r *request) {
		r.components += ` "x-tenant"`
		r.header.Set("X-Tenant", "a")
		r.sign()
		r.header.Del("X-Tenant")
	}), code: InvalidRequest},
	{name: "component repeated", edit: covering(`"@method" "@method" "@target-uri" "content-digest"`), code: InvalidRequest},
	{name: "component in upper case", edit: covering(`"@method" "@target-uri" "Content-Digest"`), code: InvalidRequest},
	{name: "unknown derived component", edit: covering(`"@method" "@target-uri" "@tenant" "content-digest"`), code: InvalidRequest},
	{name: "@status in a request", edit: covering(`"@method" "@target-uri" "@status" "content-digest"`), code: InvalidRequest},
	{name: "@signature-params covered", edit: covering(`"@method" "@target-uri" "@signature-params" "content-digest"`), code: InvalidRequest},
	{name: "@method of the request a response answers", edit: covering(`"@method";req "@target-uri" "content-digest"`), code: InvalidRequest},
	{name: "content-digest in another form", edit: covering(`"@method" "@target-uri" "content-digest";bs`), code: InvalidRequest},
	{name: "one member of content-digest", edit: covering(`"@method" "@target-uri" "content-digest";key="sha-256"`), code: InvalidRequest},
	{name: "content-digest of a trailer", edit: covering(`"@method" "@target-uri" "content-digest";tr`), code: InvalidRequest},
	{name: "ambiguous query parameter covered", edit: func(r *request) {
		r.target, r.signedURI = "/orders?x=1&x=2", r.origin+"/orders?x=1&x=2"
		r.components += ` "@query-param";name="x"`
		r.sign()
	}, code: InvalidRequest},
	{name: "forty components", edit: before(func(r *request) {
		for i := range 40 {
			name := fmt.Sprintf("x-%d", i)
			r.header.Set(name, "a")
			r.components += ` "` + name + `"`
		}
	}), code: InvalidRequest},

	// Time.
	{name: "SDK: expired", edit: created(-92, 60), code: InvalidTimestamp},
	{name: "from the future", edit: created(32, 60), code: InvalidTimestamp},
	{name: "lifetime too long", edit: created(0, 301), code: InvalidTimestamp},
	{name: "expires with created", edit: created(0, 0), code: InvalidTimestamp},
	{name: "expires before created", edit: created(0, -1), code: InvalidTimestamp},
	{name: "old, with a long lifetime", edit: created(-3600, 3660), code: InvalidTimestamp},
	{name: "from the year 33000", edit: created(979e9, 60), code: InvalidTimestamp},
	{name: "sent before the service started", configs: func(o *Options) { o.NotBefore = fixedTime.Add(500 * time.Millisecond) }, edit: (*request).sign, code: InvalidNonce},
	{name: "perhaps seen before the service started", configs: func(o *Options) { o.NotBefore = fixedTime.Add(-29 * time.Second) }, edit: (*request).sign, code: InvalidNonce},

	// Nonces.
	{name: "nonce missing", edit: without("nonce"), code: InvalidNonce},
	{name: "nonce empty", edit: setting("nonce", `""`), code: InvalidNonce},
	{name: "own nonce where a challenge is required", configs: func(o *Options) { o.RequireChallenge = true }, edit: (*request).sign, code: InvalidNonce},
	{name: "challenge of another server", configs: func(o *Options) { o.RequireChallenge = true }, edit: before(func(r *request) {
		r.set("nonce", `"`+r.otherVerifier.challenges.issue(r.now)+`"`)
	}), code: InvalidNonce},
	{name: "altered challenge", configs: func(o *Options) { o.RequireChallenge = true }, edit: before(func(r *request) {
		nonce := []byte(r.verifier.challenges.issue(r.now))
		nonce[20] ^= 1
		r.set("nonce", `"`+string(nonce)+`"`)
	}), code: InvalidNonce},
	{name: "stale challenge", configs: func(o *Options) { o.RequireChallenge = true }, edit: before(func(r *request) {
		r.set("nonce", `"`+r.verifier.challenges.issue(r.now.Add(-challengeLife-time.Second))+`"`)
	}), code: InvalidNonce},
	{name: "challenge from before the start", configs: func(o *Options) { o.NotBefore = fixedTime }, edit: before(func(r *request) {
		r.set("nonce", `"`+r.verifier.challenges.issue(fixedTime.Add(-time.Second))+`"`)
	}), code: InvalidNonce},

	// The DID. Nothing is fetched for one that is malformed or not admitted.
	{name: "keyid is no DID", edit: setting("keyid", `"key-1"`), code: InvalidDID},
	{name: "keyid without fragment", edit: before(func(r *request) { r.set("keyid", `"`+r.caller+`"`) }), code: InvalidDID},
	{name: "keyid with empty fragment", edit: before(func(r *request) { r.keyid(r.caller, "") }), code: InvalidDID},
	{name: "keyid is only a fragment", edit: setting("keyid", `"#root"`), code: InvalidDID},
	{name: "other DID method", edit: setting("keyid", `"did:key:z6MkoHgciEnM1XCKwYmF4fdsDyukxwpXtyihKaCw8jD3YhEg#k"`), code: InvalidDID},
	{name: "DID of an address", edit: setting("keyid", `"did:web:127.0.0.1#k"`), code: InvalidDID},
	{name: "DID with a port on an address", edit: setting("keyid", `"did:wba:10.0.0.1%3A8443:a#k"`), code: InvalidDID},
	{name: "SDK: userinfo in the DID", edit: setting("keyid", `"did:web:good.example%40evil.example#k"`), code: InvalidDID},
	{name: "SDK: .. in the DID", edit: setting("keyid", `"did:web:good.example:..:evil#k"`), code: InvalidDID},
	{name: "SDK: ? in the DID", edit: setting("keyid", `"did:web:good.example?a=b#k"`), code: InvalidDID},
	{name: "/ in the DID", edit: setting("keyid", `"did:web:good.example/evil#k"`), code: InvalidDID},
	{name: "denied by policy", edit: setting("keyid", `"did:web:denied.example#k"`), code: ForbiddenDID},
	{name: "document cannot be fetched", edit: setting("keyid", `"did:web:gone.example#k"`), code: InvalidDID, fetches: true},
	{name: "SDK: document of another DID", edit: before(func(r *request) {
		r.docs.byDID["did:web:other.example"] = r.docs.byDID[r.caller]
		r.keyid("did:web:other.example", "root")
	}), code: InvalidDID, fetches: true},
	{name: "SDK: deactivated document", edit: before(func(r *request) {
		r.document(func(d map[string]any) { d["deactivated"] = true })
	}), code: InvalidDID, fetches: true},
	{name: "superseded DID", edit: before(func(r *request) {
		r.document(func(d map[string]any) {
			d["deactivated"] = true
			d["successorDid"] = r.caller[:strings.LastIndex(r.caller, ":")] + ":e1_b8XJsb3PGSZJ_VB9WMw3OkBvsxpN3I2BVKEpWVdgKcA"
			if !strings.Contains(r.caller, "wba") {
				d["successorDid"] = r.caller + "2"
			}
		})
	}), code: DIDSuperseded, fetches: true},

	// The key.
	{name: "unknown key", edit: before(func(r *request) { r.keyid(r.caller, "nobody") }), code: InvalidVerificationMethod, fetches: true},
	{name: "assertion-only key", edit: before(func(r *request) {
		r.signer = fixtureSigner(r.t, r.callerName, r.caller, "assertion-only")
		r.keyid(r.caller, "assertion-only")
	}), code: InvalidVerificationMethod, fetches: true},
	{name: "key no longer listed for authentication", edit: before(func(r *request) {
		r.document(func(d map[string]any) { d["authentication"] = []string{r.caller + "#auth-jwk"} })
	}), code: InvalidVerificationMethod, fetches: true},
	{name: "expired key", edit: before(func(r *request) {
		r.document(func(d map[string]any) {
			d["verificationMethod"].([]any)[0].(map[string]any)["expires"] = "2026-09-01T00:00:00Z"
		})
	}), code: InvalidVerificationMethod, fetches: true},
	{name: "SDK: X25519 key listed for authentication", edit: before(func(r *request) {
		r.document(func(d map[string]any) {
			key, err := did.NewPrivateKey(did.X25519, []byte("an X25519 test key of 32 octets!"))
			if err != nil {
				r.t.Fatal(err)
			}
			d["verificationMethod"] = append(d["verificationMethod"].([]any), map[string]any{
				"id": r.caller + "#kex", "type": "Multikey", "controller": r.caller, "publicKeyMultibase": key.Public().Multibase(),
			})
			d["authentication"] = []string{r.caller + "#kex"}
		})
		r.keyid(r.caller, "kex")
	}), code: InvalidVerificationMethod, fetches: true},
	{name: "SDK: key added to a k1_ document by its host", edit: func(r *request) {
		_, added := r.asK1()
		r.signBy(added)
	}, code: InvalidVerificationMethod, fetches: true},

	// The content.
	{name: "body changed", edit: after(func(r *request) { r.body[2] ^= 1 }), code: InvalidContentDigest},
	{name: "body truncated", edit: after(func(r *request) { r.body = r.body[:10] }), code: InvalidContentDigest},
	{name: "body removed", edit: after(func(r *request) { r.body = nil }), code: InvalidContentDigest},
	{name: "body extended", edit: after(func(r *request) { r.body = append(r.body, ' ') }), code: InvalidContentDigest},
	{name: "digest of something, no body", edit: before(func(r *request) { r.body = nil }), code: InvalidContentDigest},
	{name: "digest by sha-512 only", edit: before(func(r *request) {
		r.header.Set("Content-Digest", "sha-512=:z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==:")
	}), code: InvalidContentDigest},
	{name: "digest by md5 only", edit: before(func(r *request) { r.header.Set("Content-Digest", "md5=:1B2M2Y8AsgTpgAmY7PhCfg==:") }), code: InvalidContentDigest},
	{name: "malformed digest", edit: before(func(r *request) { r.header.Set("Content-Digest", "sha-256=abc;;") }), code: InvalidContentDigest},
	{name: "digest twice", edit: before(func(r *request) { r.header.Add("Content-Digest", ContentDigest(r.body)) }), code: InvalidContentDigest},
	{name: "body and digest changed", edit: after(func(r *request) {
		r.body = []byte(`{"action":"delete"}`)
		r.header.Set("Content-Digest", ContentDigest(r.body))
	}), code: InvalidSignature, fetches: true},

	// The target.
	{name: "other method", edit: after(func(r *request) { r.method = "PUT" }), code: InvalidSignature, fetches: true},
	{name: "method in lower case", edit: before(func(r *request) { r.signedMethod = "post" }), code: InvalidSignature, fetches: true},
	{name: "other path", edit: after(func(r *request) { r.target = "/admin?x=1&y=%2F" }), code: InvalidSignature, fetches: true},
	{name: "other query", edit: after(func(r *request) { r.target = "/orders?x=2&y=%2F" }), code: InvalidSignature, fetches: true},
	{name: "query decoded", edit: after(func(r *request) { r.target = "/orders?x=1&y=/" }), code: InvalidSignature, fetches: true},
	{name: "query added", edit: after(func(r *request) { r.target += "&z=1" }), code: InvalidSignature, fetches: true},
	{name: "signed for another host", edit: before(func(r *request) { r.signedURI = "https://other.example/orders?x=1&y=%2F" }), code: InvalidSignature, fetches: true},
	{name: "signed for another host, which Host names", edit: before(func(r *request) {
		r.signedURI, r.host = "https://other.example/orders?x=1&y=%2F", "other.example"
	}), code: InvalidSignature, fetches: true},
	{name: "signed for another port", edit: before(func(r *request) { r.signedURI = r.origin + ":8443/orders?x=1&y=%2F" }), code: InvalidSignature, fetches: true},
	{name: "signed for http", edit: before(func(r *request) { r.signedURI = "http" + r.signedURI[5:] }), code: InvalidSignature, fetches: true},
	{name: "absolute form of another host", edit: func(r *request) {
		r.target, r.signedURI = "https://other.example/orders", "https://other.example/orders"
		r.sign()
	}, code: InvalidRequest},
	{name: "absolute form without TLS", edit: func(r *request) {
		r.target = "http" + r.signedURI[5:]
		r.sign()
	}, code: InvalidRequest},
	{name: "asterisk form", edit: after(func(r *request) { r.target = "*" }), code: InvalidRequest},
	{name: "authority form", edit: after(func(r *request) { r.target = r.host + ":443" }), code: InvalidRequest},
	{name: "fragment in the target", edit: after(func(r *request) { r.target += "#x" }), code: InvalidRequest},
	{name: "line break in the target", edit: after(func(r *request) { r.target += "\n\"x\": y" }), code: InvalidRequest},

	// The signature.
	{name: "signature altered", edit: after(func(r *request) {
		s := []byte(r.header.Get("Signature"))
		s[20] = "AB"[(s[20]-'A')&1^1]
		r.header.Set("Signature", string(s))
	}), code: InvalidSignature, fetches: true},
	{name: "signature of 63 octets", edit: header("Signature", "sig1=:"+strings.Repeat("AAAA", 21)+":"), code: InvalidSignature},
	{name: "signature of 65 octets", edit: header("Signature", "sig1=:"+strings.Repeat("AAAA", 21)+"AAA=:"), code: InvalidSignature},
	{name: "signature of no octets", edit: header("Signature", "sig1=::"), code: InvalidSignature},
	{name: "signature of zeros", edit: header("Signature", "sig1=:"+strings.Repeat("AAAA", 21)+"AA==:"), code: InvalidSignature, fetches: true},
	{name: "signed by another key of the document", edit: before(func(r *request) {
		r.signer = fixtureSigner(r.t, r.callerName, r.caller, "auth-jwk")
	}), code: InvalidSignature, fetches: true},
	{name: "signed by a stranger", edit: before(func(r *request) { r.signer = fixtureSigner(r.t, "mallory", r.caller, "root") }), code: InvalidSignature, fetches: true},
	{name: "keyid exchanged after signing", edit: after(func(r *request) {
		r.header.Set("Signature-Input", strings.Replace(r.header.Get("Signature-Input"), "#root", "#auth-jwk", 1))
	}), code: InvalidSignature, fetches: true},
	{name: "parameters reordered after signing", edit: after(func(r *request) {
		r.header.Set("Signature-Input", strings.Replace(r.header.Get("Signature-Input"), `;created=1788768000;expires=1788768060`, `;expires=1788768060;created=1788768000`, 1))
	}), code: InvalidSignature, fetches: true},
	{name: "components reordered after signing", edit: after(func(r *request) {
		r.header.Set("Signature-Input", strings.Replace(r.header.Get("Signature-Input"), `"@method" "@target-uri"`, `"@target-uri" "@method"`, 1))
	}), code: InvalidSignature, fetches: true},
	{name: "unknown parameter added after signing", edit: after(func(r *request) {
		r.header.Set("Signature-Input", r.header.Get("Signature-Input")+`;x="y"`)
	}), code: InvalidSignature, fetches: true},
	{name: "unknown parameter removed after signing", edit: func(r *request) {
		r.params += `;x="y"`
		r.sign()
		r.header.Set("Signature-Input", strings.TrimSuffix(r.header.Get("Signature-Input"), `;x="y"`))
	}, code: InvalidSignature, fetches: true},
	{name: "expires extended after signing", edit: after(func(r *request) {
		r.header.Set("Signature-Input", strings.Replace(r.header.Get("Signature-Input"), "8060", "8090", 1))
	}), code: InvalidSignature, fetches: true},
	{name: "nonce exchanged after signing", edit: after(func(r *request) {
		r.header.Set("Signature-Input", strings.Replace(r.header.Get("Signature-Input"), `nonce="`, `nonce="x`, 1))
	}), code: InvalidSignature, fetches: true},
	{name: "covered field changed", edit: func(r *request) {
		r.components += ` "content-type"`
		r.sign()
		r.header.Set("Content-Type", "text/plain")
	}, code: InvalidSignature, fetches: true},
	{name: "covered field doubled", edit: func(r *request) {
		r.components += ` "content-type"`
		r.sign()
		r.header.Add("Content-Type", "application/json")
	}, code: InvalidSignature, fetches: true},
	{name: "SDK: high S of a k1_ key", edit: func(r *request) {
		binding, _ := r.asK1()
		r.signBy(binding)
		sig, err := parseSignature(r.header["Signature"], "sig1")
		if err != nil {
			r.t.Fatal(err)
		}
		s := new(big.Int).SetBytes(sig[32:])
		s.Sub(secp256k1Order, s).FillBytes(sig[32:])
		r.header.Set("Signature", "sig1=:"+base64.StdEncoding.EncodeToString(sig)+":")
	}, code: InvalidSignature, fetches: true},
	{name: "ed25519 claimed for a k1_ key", edit: func(r *request) {
		binding, _ := r.asK1()
		r.params += `;alg="ed25519"`
		r.signBy(binding)
	}, code: InvalidSignature, fetches: true},
}

// TestDamagedRequests runs the table for each pair of caller's and server's DID
// method. A refused request has no side effect: its nonce is not recorded, and
// a document is fetched only where that was needed.
func TestDamagedRequests(t *testing.T) {
	if len(damages) < 80 {
		t.Fatalf("%d cases, want at least 80", len(damages))
	}
	for _, pair := range [][2]string{{"wba", "wba"}, {"wba", "web"}, {"web", "wba"}, {"web", "web"}} {
		for _, d := range damages {
			t.Run(pair[0]+"→"+pair[1]+"/"+d.name, func(t *testing.T) {
				s := newStage(t, pair[0], pair[1])
				if d.configs != nil {
					d.configs(s.options)
				}
				s.start(t)
				r := s.newRequest(t, "nonce-1")
				d.edit(r)
				_, err := s.verifier.Verify(context.Background(), r.http(), r.body)
				var e *Error
				if !errors.As(err, &e) || e.Code != d.code {
					t.Fatalf("%v, want %s", err, d.code)
				}
				if want := codes[d.code].status; e.Status != want {
					t.Errorf("status %d, want %d", e.Status, want)
				}
				if got := s.docs.calls.Load() > 0; got != d.fetches {
					t.Errorf("document fetched: %v, want %v", got, d.fetches)
				}
				if n := s.nonces.used.Load(); n != 0 {
					t.Errorf("%d nonces recorded", n)
				}
				checkPublic(t, e)
			})
		}
	}
}

// checkPublic checks that the caller is told fixed words only.
func checkPublic(t *testing.T, e *Error) {
	t.Helper()
	for _, secret := range []string{"10.0.0.1", "policy line", "tcp", "did:", "goroutine"} {
		if strings.Contains(e.Description, secret) {
			t.Errorf("description %q tells %q", e.Description, secret)
		}
	}
}
