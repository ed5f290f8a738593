// SPDX-License-Identifier: Apache-2.0

//go:build interop

// Package interop runs other people's implementations of ANP and A2A against this one, for
// real: two processes, TLS on loopback. `make test-interop` prepares the peers and says where
// their interpreters and modules are.
//
// Every row of the table states what is expected. Where the two do not work together, or
// where the peer accepts what it should refuse, the row says why; it fails when that changes,
// in either direction. docs/interop.md holds the tables (go test -args -update writes it).
package interop

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/httpsig"
)

var update = flag.Bool("update", false, "write the tables of docs/interop.md")

const (
	toUs   = "Python SDK → Treaty"
	fromUs = "Treaty → Python SDK"
)

// Reasons for rows that are not plain successes.
const (
	highS     = "The SDK leaves the half in which S lies to chance. ES256K is low-S here, both ways, so every second secp256k1 signature is refused unless requests with high S are switched on; documents never are."
	proof2019 = "The SDK's plain_legacy profile proves the document with EcdsaSecp256k1Signature2019, by a key that is not in assertionMethod. ANP-03 knows neither; published without that proof the document is accepted."
	port443   = "The SDK signs @target-uri and @authority as they were typed, here with the default port. RFC 9421 section 2.2.3 drops it."
	escapes   = "The SDK signs the URL as it was typed and sends it as its HTTP library rewrites it, here with %2F in the query turned into a slash."
	origin2   = "SDK defect: with default options it signs one random nonce and sends another; its own verifier refuses that too."
	webLegacy = "SDK defect: its legacy verification is for did:wba and raises for anything else."
	noCover   = "SDK defect: coverage is not enforced. A signature over @method alone is accepted for any target."
	addBody   = "SDK defect: Content-Digest has to be right, but need not be covered. Whoever is on the path adds both to a request that was signed without content."
	dead      = "SDK defect: a deactivated document authenticates."
	malleable = "SDK defect: ECDSA signatures are accepted with high S, so a second valid signature can be made from the first."
	burnt     = "SDK defect: the legacy header's nonce is recorded before its signature is checked, so a stranger who guesses or sees a nonce can spend it."
	strict    = "Refused, as intended: the legacy header is accepted only where it is switched on."
)

func TestPythonSDK(t *testing.T) {
	w := newWorld(t)
	for _, profile := range []string{"e1", "e1 port", "k1", "bare", "bare secp256k1", "did:web"} {
		w.pythonToUs(t, profile)
	}
	w.pythonOddities(t)
	for _, profile := range []string{"e1", "e1 sdk", "e1 w3c", "e1 port", "k1", "bare", "bare secp256k1", "did:web"} {
		w.usToPython(t, profile)
	}
	w.pythonDefects(t)
	w.report(t, 100)
}

// call is a command for the peer.
type call map[string]any

// fetch lets the SDK's client make a request and returns what our server saw.
func (w *world) fetch(t *testing.T, c call) string {
	t.Helper()
	w.trace.reset()
	c["op"], c["method"] = "fetch", cmp.Or(c["method"], any("GET"))
	var reply struct {
		Status int
		Text   string
	}
	if err := w.peer.do(c, &reply); err != nil {
		return err.Error()
	}
	return w.trace.String()
}

func (w *world) pythonToUs(t *testing.T, profile string) {
	id := w.peer.DIDs[profile]
	row := func(feature, want, got string) { w.row(toUs, profile, feature, want, got, "") }

	result, err := w.resolver.ResolveResult(t.Context(), must(did.Parse(id)))
	got, want := fmt.Sprint(err), "verified, proof in dialect sdk"
	if profile == "bare secp256k1" || profile == "did:web" {
		want = "accepted without proof"
	}
	if err == nil {
		got = "verified, proof in dialect " + string(result.Verification.Dialect)
		if result.Verification.Dialect == "" {
			got = "accepted without proof"
		}
	}
	row("DID document", want, got)

	as := func(mode, path string, more ...any) call {
		c := call{"as": profile, "mode": mode, "s": "low", "url": ourOrigin + path}
		for i := 0; i < len(more); i += 2 {
			c[more[i].(string)] = more[i+1]
		}
		return c
	}
	const signed, legacy = "http_signatures", "legacy_didwba"
	body := map[string]any{"order": "12345", "note": "größer"}
	row("signed GET", "signature 200", w.fetch(t, as(signed, "/strict?a=b&c=d")))
	row("signed POST", "signature 200", w.fetch(t, as(signed, "/strict", "method", "POST", "body", body)))
	row("challenge with nonce", "signature 401 invalid_nonce, signature 200", w.fetch(t, as(signed, "/challenged", "method", "POST", "body", body)))

	var made struct{ Headers map[string]string }
	c := as(signed, "/strict")
	c["op"], c["method"] = "headers", "GET"
	got = ""
	if err := w.peer.do(c, &made); err != nil {
		got = err.Error()
	} else {
		got = w.send(t, "GET", ourOrigin+"/strict", made.Headers, nil) + ", " + w.send(t, "GET", ourOrigin+"/strict", made.Headers, nil)
	}
	row("repetition is refused", "200, 401 invalid_nonce", got)

	row("token issue and use", "signature 200; bearer 200", w.fetch(t, as(signed, "/session"))+"; "+w.fetch(t, as(signed, "/session")))
	row("token where only signatures count, then signature", "bearer 401 invalid_access_token, signature 200", w.fetch(t, as(signed, "/strict")))
	first := w.fetch(t, as(signed, "/session"))
	w.restartSessions(t)
	row("token after our restart", "signature 200; bearer 401 invalid_access_token, signature 200", first+"; "+w.fetch(t, as(signed, "/session")))

	row("legacy header", "legacy 200", w.fetch(t, as(legacy, "/session")))
	w.row(toUs, profile, "legacy header where it is off", "legacy 401 invalid_request, legacy 401 invalid_request", w.fetch(t, as(legacy, "/strict")), strict)

	row("JSON carriage", "200", w.pythonCarriage(t, profile))
	row("origin proof (P1)", "200", w.pythonOrigin(t, profile, true, true))
	row("origin proof without expires", "200", w.pythonOrigin(t, profile, true, false))
}

func (w *world) pythonCarriage(t *testing.T, profile string) string {
	payload := map[string]any{"b": 1, "a": "größer"}
	var made struct {
		Auth httpsig.Auth `json:"auth"`
	}
	url := ourOrigin + "/json"
	for { // the SDK's secp256k1 S is a matter of chance
		err := w.peer.do(call{"op": "carriage", "as": profile, "method": "POST", "url": url, "payload": payload, "created": time.Now().Unix()}, &made)
		if err != nil {
			return err.Error()
		}
		if low(made.Auth.Signature) || !secp256k1(profile) {
			break
		}
	}
	content := must(json.Marshal(map[string]any{"auth": made.Auth, "payload": payload}))
	return w.send(t, "POST", url, nil, content)
}

func (w *world) pythonOrigin(t *testing.T, profile string, explicit, expires bool) string {
	request := originRequest(w.peer.DIDs[profile], w.ours["e1"].id.String())
	var made struct {
		Auth httpsig.Auth `json:"auth"`
	}
	for {
		err := w.peer.do(call{"op": "origin", "as": profile, "request": request, "explicit": explicit, "expires": expires, "created": time.Now().Unix()}, &made)
		if err != nil {
			return err.Error()
		}
		if low(made.Auth.Signature) || !secp256k1(profile) {
			break
		}
	}
	content := must(json.Marshal(map[string]any{"request": request, "auth": made.Auth}))
	got := w.send(t, "POST", ourOrigin+"/origin", nil, content)
	if err := w.peer.do(call{"op": "verify_origin", "request": request, "auth": made.Auth}, nil); err != nil {
		got += ", and refused by the SDK itself"
	}
	return got
}

// pythonOddities are the cases in which the two do not get along.
func (w *world) pythonOddities(t *testing.T) {
	c := call{"as": "k1", "s": "high", "url": ourOrigin + "/strict", "fresh": true}
	w.row(toUs, "k1", "signature with high S", "signature 401 invalid_signature, signature 401 invalid_signature", w.fetch(t, c), highS)
	c["url"] = ourOrigin + "/lenient"
	w.row(toUs, "k1", "signature with high S, switched on", "signature 200", w.fetch(t, c), "")
	for _, odd := range []struct{ name, profile, feature, note string }{
		{"k1 high-S", "k1", "DID document, proof with high S", highS},
		{"bare 2019 proof", "bare secp256k1", "DID document, proof of 2019", proof2019},
	} {
		got := "accepted"
		if _, err := w.resolver.Resolve(t.Context(), must(did.Parse(w.peer.DIDs[odd.name]))); err != nil {
			got = "refused"
		}
		w.row(toUs, odd.profile, odd.feature, "refused", got, odd.note)
	}
	url := strings.Replace(ourOrigin, ".test", ".test:443", 1) + "/strict"
	w.row(toUs, "e1", "URL that names port 443", "signature 401 invalid_signature, signature 401 invalid_signature",
		w.fetch(t, call{"as": "e1", "url": url, "fresh": true}), port443)
	url = ourOrigin + "/strict?a=%2F"
	w.row(toUs, "e1", "URL that is rewritten on sending", "signature 401 invalid_signature, signature 401 invalid_signature",
		w.fetch(t, call{"as": "e1", "url": url, "fresh": true}), escapes)
	w.row(toUs, "e1", "origin proof, default options", "401 invalid_signature, and refused by the SDK itself", w.pythonOrigin(t, "e1", false, false), origin2)
}

func (w *world) usToPython(t *testing.T, profile string) {
	own := w.ours[profile]
	row := func(feature, want, got string) { w.row(fromUs, profile, feature, want, got, "") }

	var resolved struct{ ID string }
	got := "verified"
	if err := w.peer.do(call{"op": "resolve", "did": own.id.String()}, &resolved); err != nil {
		got = err.Error()
	}
	row("DID document", "verified", got)

	client, sent := w.client(own, false)
	do := func(method, path string, body []byte) string {
		sent.reset()
		r := must(http.NewRequestWithContext(t.Context(), method, peerOrigin+path, bytes.NewReader(body)))
		resp, err := client.Do(r)
		if err != nil {
			return err.Error()
		}
		resp.Body.Close()
		return sent.String()
	}
	body := []byte(`{"note":"größer"}`)
	row("signed GET", "signature 200", do("GET", "/verify?a=b&c=%2F", nil))
	row("signed POST", "signature 200", do("POST", "/verify", body))
	row("challenge with nonce", "signature 401 invalid_nonce, signature 200", do("POST", "/challenged", body))

	headers := w.signed(t, own, "GET", peerOrigin+"/verify", nil)
	row("repetition is refused", "200, 401 invalid_nonce", w.send(t, "GET", peerOrigin+"/verify", headers, nil)+", "+w.send(t, "GET", peerOrigin+"/verify", headers, nil))

	client, sent = w.client(own, true)
	row("token issue and use", "signature 200; bearer 200", do("GET", "/verify", nil)+"; "+do("GET", "/verify", nil))

	if strings.HasPrefix(own.id.String(), "did:web:") {
		w.row(fromUs, profile, "legacy header", "500", w.legacy(t, own), webLegacy)
	} else {
		row("legacy header", "200", w.legacy(t, own))
	}

	payload := json.RawMessage(`{"a":"größer","b":1}`)
	content := must(httpsig.SignJSON(t.Context(), "POST", peerOrigin+"/json", payload, own.signer, httpsig.SignOptions{Created: time.Now()}))
	var carried struct {
		Auth httpsig.Auth `json:"auth"`
	}
	if err := json.Unmarshal(content, &carried); err != nil {
		t.Fatal(err)
	}
	got = "verified"
	if err := w.peer.do(call{"op": "verify_carriage", "did": own.id.String(), "method": "POST", "url": peerOrigin + "/json", "payload": payload, "auth": carried.Auth}, nil); err != nil {
		got = err.Error()
	}
	row("JSON carriage", "verified", got)

	request := originRequest(own.id.String(), w.peer.DIDs["e1"])
	proof := must(httpsig.SignOrigin(t.Context(), request, own.signer, httpsig.SignOptions{Created: time.Now()}))
	got = "verified"
	if err := w.peer.do(call{"op": "verify_origin", "request": request, "auth": proof}, nil); err != nil {
		got = err.Error()
	}
	row("origin proof (P1)", "verified", got)
}

// legacy sends the legacy header to the SDK's verifier.
func (w *world) legacy(t *testing.T, own *identity) string {
	value := must(httpsig.LegacyAuthorization(t.Context(), "peer.interop.test", own.signer, httpsig.SignOptions{Created: time.Now()}))
	return w.send(t, "GET", peerOrigin+"/verify", map[string]string{"Authorization": value}, nil)
}

// pythonDefects shows what the SDK's verifier lets through. Ours refuses each; those are
// cases of did/httpsig's own tests.
func (w *world) pythonDefects(t *testing.T) {
	row := func(profile, feature, want, got, note string) { w.row(fromUs, profile, feature, want, got, note) }
	e1, url := w.ours["e1"], peerOrigin+"/verify"

	headers := w.signed(t, e1, "POST", url, nil)
	added := []byte(`{"amount":"1000000"}`)
	headers["Content-Digest"] = httpsig.ContentDigest(added)
	row("e1", "content added on the way", "200", w.send(t, "POST", url, headers, added), addBody)

	params := fmt.Sprintf(`("@method");created=%d;expires=%d;nonce="n%d";keyid="%s"`, time.Now().Unix(), time.Now().Unix()+60, time.Now().UnixNano(), e1.signer.KeyID())
	sig := must(e1.signer.Sign(t.Context(), []byte("\"@method\": GET\n\"@signature-params\": "+params)))
	headers = map[string]string{"Signature-Input": "sig1=" + params, "Signature": "sig1=:" + base64.StdEncoding.EncodeToString(sig) + ":"}
	row("e1", "signature over @method alone", "200", w.send(t, "GET", url, headers, nil), noCover)

	row("e1", "deactivated document", "200", w.send(t, "GET", url, w.signed(t, w.ours["e1 deactivated"], "GET", url, nil), nil), dead)

	headers = w.signed(t, w.ours["k1"], "GET", url, nil)
	headers["Signature"] = flipS(headers["Signature"])
	row("k1", "signature with high S", "200", w.send(t, "GET", url, headers, nil), malleable)

	value := must(httpsig.LegacyAuthorization(t.Context(), "peer.interop.test", e1.signer, httpsig.SignOptions{Created: time.Now()}))
	at := strings.Index(value, `signature="`) + len(`signature="`)
	forged := value[:at] + strings.Repeat("A", 86) + `"`
	got := w.send(t, "GET", url, map[string]string{"Authorization": forged}, nil) + ", " + w.send(t, "GET", url, map[string]string{"Authorization": value}, nil)
	row("e1", "legacy nonce spent by a forgery", "403 invalid_signature, 401 invalid_nonce", got, burnt)
}

func originRequest(from, to string) httpsig.OriginRequest {
	meta := must(canon.Marshal(map[string]any{"sender_did": from, "target": map[string]string{"kind": "agent", "did": to}, "operation_id": "op-1"}))
	return httpsig.OriginRequest{Method: "anp.negotiate", Meta: meta, Body: json.RawMessage(`{"b":1,"a":"größer"}`)}
}

// signed returns the header fields of a signed request.
func (w *world) signed(t *testing.T, own *identity, method, url string, body []byte) map[string]string {
	r := must(http.NewRequest(method, url, nil))
	if err := httpsig.SignRequest(t.Context(), r, body, own.signer, httpsig.SignOptions{Created: time.Now()}); err != nil {
		t.Fatal(err)
	}
	headers := map[string]string{}
	for name, values := range r.Header {
		headers[name] = values[0]
	}
	return headers
}

// send makes a request with exactly these fields, through the guarded transport.
func (w *world) send(t *testing.T, method, url string, headers map[string]string, body []byte) string {
	r := must(http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body)))
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	resp, err := w.guarded.RoundTrip(r)
	if err != nil {
		return err.Error()
	}
	resp.Body.Close()
	return outcome(resp.StatusCode, resp.Header)
}

// outcome is a status, and the error code if there is one.
func outcome(status int, h http.Header) string {
	if c, ok := httpsig.ParseChallenge(h); ok {
		return fmt.Sprintf("%d %s", status, c.Code)
	}
	return fmt.Sprint(status)
}

func secp256k1(profile string) bool {
	return profile == "k1" || profile == "bare secp256k1" || profile == "did:web"
}

var order, _ = new(big.Int).SetString("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141", 16)

func signatureBytes(field string) []byte {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(field[strings.Index(field, "=:")+2:], ":"))
	if err != nil || len(raw) != 64 {
		panic("not a signature: " + field)
	}
	return raw
}

func low(field string) bool {
	s := new(big.Int).SetBytes(signatureBytes(field)[32:])
	return s.Lsh(s, 1).Cmp(order) < 0
}

// flipS makes the other valid signature out of one.
func flipS(field string) string {
	raw := signatureBytes(field)
	s := new(big.Int).SetBytes(raw[32:])
	s.Sub(order, s).FillBytes(raw[32:])
	return "sig1=:" + base64.StdEncoding.EncodeToString(raw) + ":"
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("INTEROP_PYTHON") == "" {
		fmt.Fprintln(os.Stderr, "INTEROP_PYTHON is not set: run `make test-interop`, which installs the peer")
		os.Exit(1)
	}
	os.Exit(m.Run())
}
