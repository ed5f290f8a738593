// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/testvectors"
)

// The bases and signatures of RFC 9421 appendix B. The algorithms that the
// profile does not use are verified with the standard library, so that every
// base is known to be the one that was signed.
func TestRFC9421AppendixB(t *testing.T) {
	file, err := testvectors.Load[struct {
		Keys    map[string]struct{ PEM, Secret string }
		Vectors []struct {
			Section string
			Message *struct { // null: a response
				Method, TargetURI string
				Header            http.Header
			}
			SignatureInput, Signature string
			Base                      []string
			Valid                     bool
		}
	}]("rfc9421/appendix-b.json")
	if err != nil || len(file.Vectors) != 12 {
		t.Fatalf("%d vectors, want 12 (%v)", len(file.Vectors), err)
	}
	for _, v := range file.Vectors {
		t.Run(v.Section, func(t *testing.T) {
			base := []byte(strings.Join(v.Base, "\n"))
			in, err := ParseSignatureInput([]string{v.SignatureInput})
			if v.Message == nil {
				if err == nil {
					t.Error("@status is taken for a component of requests")
				}
				in = &Input{Label: "sig-b24", KeyID: "test-key-ecc-p256"}
			} else {
				if err != nil {
					t.Fatal(err)
				}
				m := &Message{Method: v.Message.Method, TargetURI: v.Message.TargetURI, Header: v.Message.Header}
				got, err := in.AppendBase(nil, m)
				if err != nil || string(got) != string(base) {
					t.Fatalf("base\n%s (%v)\nwant\n%s", got, err, base)
				}
			}
			sig, err := parseSignature([]string{v.Signature}, in.Label)
			if err != nil {
				t.Fatal(err)
			}
			key := file.Keys[in.KeyID]
			if got := verifyRFC(t, key.PEM, key.Secret, base, sig); got != v.Valid {
				t.Fatalf("signature valid: %v, want %v", got, v.Valid)
			}
		})
	}
}

func verifyRFC(t *testing.T, pemKey, secret string, base, sig []byte) bool {
	t.Helper()
	if secret != "" {
		key, err := base64.StdEncoding.DecodeString(secret)
		if err != nil {
			t.Fatal(err)
		}
		mac := hmac.New(sha256.New, key)
		mac.Write(base)
		return hmac.Equal(mac.Sum(nil), sig)
	}
	block, _ := pem.Decode([]byte(pemKey))
	if block == nil {
		t.Fatal("no key")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	switch key := parsed.(type) {
	case *rsa.PublicKey:
		sum := sha512.Sum512(base)
		return rsa.VerifyPSS(key, crypto.SHA512, sum[:], sig, nil) == nil
	case *ecdsa.PublicKey:
		raw, err := key.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		compressed := append([]byte{2 + raw[64]&1}, raw[1:33]...)
		public, err := did.NewPublicKey(did.P256, compressed)
		if err != nil {
			t.Fatal(err)
		}
		return public.Verify(base, sig) == nil
	case ed25519.PublicKey:
		public, err := did.NewPublicKey(did.Ed25519, key)
		if err != nil {
			t.Fatal(err)
		}
		return public.Verify(base, sig) == nil
	}
	t.Fatalf("key type %T", parsed)
	return false
}

// The component examples of RFC 9421 section 2.
func TestComponents(t *testing.T) {
	const query = "?var=this%20is%20a%20big%0Amultiline%20value&bar=with+plus+whitespace&fa%C3%A7ade%22%3A%20=something"
	header := http.Header{
		"Host":            {"www.example.com"},
		"X-Ows-Header":    {"  Leading and trailing whitespace.   "},
		"X-Empty-Header":  {""},
		"Cache-Control":   {"max-age=60", "   must-revalidate"},
		"X-Broken-Header": {"a\nb"},
	}
	for _, test := range []struct{ uri, component, want string }{
		{"https://www.example.com/path?param=value", `"@target-uri"`, "https://www.example.com/path?param=value"},
		{"https://www.example.com/path?param=value", `"@authority"`, "www.example.com"},
		{"https://WWW.Example.COM:443/path", `"@authority"`, "www.example.com"},
		{"http://www.example.com:80", `"@authority"`, "www.example.com"},
		{"https://www.example.com:8443/path", `"@authority"`, "www.example.com:8443"},
		{"https://www.example.com:80/path", `"@authority"`, "www.example.com:80"},
		{"https://[2001:DB8::1]:443/path", `"@authority"`, "[2001:db8::1]"},
		{"https://www.example.com/path?param=value", `"@scheme"`, "https"},
		{"HTTP://www.example.com/", `"@scheme"`, "http"},
		{"https://www.example.com/path?param=value", `"@request-target"`, "/path?param=value"},
		{"https://www.example.com/path?", `"@request-target"`, "/path?"},
		{"https://www.example.com/path?param=value", `"@path"`, "/path"},
		{"https://www.example.com", `"@path"`, "/"},
		{"https://www.example.com?a=b", `"@path"`, "/"},
		{"https://www.example.com/a%2Fb/%e4/../c", `"@path"`, "/a%2Fb/%e4/../c"},
		{"https://www.example.com/path?param=value&foo=bar&baz=bat%2Dman", `"@query"`, "?param=value&foo=bar&baz=bat%2Dman"},
		{"https://www.example.com/path?queryString", `"@query"`, "?queryString"},
		{"https://www.example.com/path", `"@query"`, "?"},
		{"https://www.example.com/path?param=value&foo=bar&baz=batman&qux=", `"@query-param";name="baz"`, "batman"},
		{"https://www.example.com/path?param=value&foo=bar&baz=batman&qux=", `"@query-param";name="qux"`, ""},
		{"https://www.example.com/parameters" + query, `"@query-param";name="var"`, "this%20is%20a%20big%0Amultiline%20value"},
		{"https://www.example.com/parameters" + query, `"@query-param";name="bar"`, "with%20plus%20whitespace"},
		{"https://www.example.com/parameters" + query, `"@query-param";name="fa%C3%A7ade%22%3A%20"`, "something"},
		{"https://www.example.com/", `"x-ows-header"`, "Leading and trailing whitespace."},
		{"https://www.example.com/", `"x-empty-header"`, ""},
		{"https://www.example.com/", `"cache-control"`, "max-age=60, must-revalidate"},

		{"https://www.example.com/?a=1&a=2", `"@query-param";name="a"`, "error"},
		{"https://www.example.com/?a=1", `"@query-param";name="b"`, "error"},
		{"https://www.example.com/?a=1", `"@query-param";name="%zz"`, "error"},
		{"https://www.example.com/?a=%zz", `"@query-param";name="a"`, "error"},
		{"https://www.example.com/", `"x-absent"`, "error"},
		{"https://www.example.com/", `"x-broken-header"`, "error"},
	} {
		in, err := ParseSignatureInput([]string{"sig1=(" + test.component + ")"})
		if err != nil {
			t.Fatalf("%s: %v", test.component, err)
		}
		got, err := in.AppendBase(nil, &Message{Method: "GET", TargetURI: test.uri, Header: header})
		if test.want == "error" {
			if !errors.Is(err, ErrComponent) {
				t.Errorf("%s of %s: error %v, want ErrComponent", test.component, test.uri, err)
			}
			continue
		}
		want := test.component + ": " + test.want + "\n\"@signature-params\": (" + test.component + ")"
		if err != nil || string(got) != want {
			t.Errorf("%s of %s:\n%s, %v\nwant\n%s", test.component, test.uri, got, err, want)
		}
	}
}

// RFC 9530 appendix B and section 2.
func TestContentDigest(t *testing.T) {
	type digest struct{ Section, Content, ContentDigest string }
	vectors, err := testvectors.List[digest]("rfc9530/digests.json", "digests")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		if got := ContentDigest([]byte(v.Content)); got != v.ContentDigest {
			t.Errorf("%s: ContentDigest(%q) = %s, want %s", v.Section, v.Content, got, v.ContentDigest)
		}
		if err := CheckContentDigest([]string{v.ContentDigest}, []byte(v.Content)); err != nil {
			t.Errorf("%s: %v", v.Section, err)
		}
	}
	body := []byte("{\"hello\": \"world\"}\n")
	malformed, err := testvectors.List[digest]("rfc9530/digests.json", "malformed")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range malformed {
		if err := CheckContentDigest([]string{v.ContentDigest}, body); !errors.Is(err, ErrDigest) {
			t.Errorf("%s: %v, want ErrDigest", v.Section, err)
		}
	}
	const (
		full  = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:"
		empty = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"
		long  = "sha-512=:YMAam51Jz/jOATT6/zvHrLVgOYTGFy1d6GJiOHTohq4yP+pgk4vf2aCsyRZOtw8MjkM7iw7yZ/WkppmM44T3qg==:"
	)
	for _, test := range []struct {
		name  string
		lines []string
		ok    bool
	}{
		{"plain", []string{full}, true},
		{"with another algorithm", []string{long + ", " + full}, true},
		{"on two lines", []string{long, full}, true},
		{"with a parameter", []string{full + ";a=1"}, true},
		{"with an unknown algorithm", []string{`unixsum=:AAA=:,` + full}, true},
		{"of other content", []string{empty}, false},
		{"none", nil, false},
		{"empty field", []string{""}, false},
		{"without sha-256", []string{long}, false},
		{"twice", []string{full, full}, false},
		{"twice, the right one last", []string{empty + ", " + full}, false},
		{"as a string", []string{`sha-256="RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg="`}, false},
		{"as an inner list", []string{`sha-256=(:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:)`}, false},
		{"truncated", []string{"sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8Fa:"}, false},
		{"upper case name", []string{"SHA" + full[3:]}, false},
		{"trailing comma", []string{full + ","}, false},
		{"too long", []string{full + strings.Repeat(", a", maxFieldBytes)}, false},
	} {
		if err := CheckContentDigest(test.lines, body); (err == nil) != test.ok || err != nil && !errors.Is(err, ErrDigest) {
			t.Errorf("%s: %v, want ok %v", test.name, err, test.ok)
		}
	}
}
