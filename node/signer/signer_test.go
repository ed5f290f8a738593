// SPDX-License-Identifier: Apache-2.0

package signer_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/node/signer"
)

// newKey makes a key in memory, with the id that its role and holder give it.
func newKey(t testing.TB, role string) did.Signer {
	t.Helper()
	k, err := did.GenerateKey(did.Ed25519)
	if err != nil {
		t.Fatal(err)
	}
	id, err := did.Parse("did:wba:buyercorp.test:agents:steward:e1_" + k.Public().Thumbprint())
	if err != nil {
		t.Fatal(err)
	}
	s, err := did.NewSigner(did.KeyID(id, role, k.Public()), k)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// faulty wraps a key and does what a bad token does.
type faulty struct {
	did.Signer
	sign func(ctx context.Context, message []byte) ([]byte, error)
}

func (f faulty) Sign(ctx context.Context, message []byte) ([]byte, error) {
	return f.sign(ctx, message)
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
	err error
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

var base64url = base64.RawURLEncoding

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// socketPath is short enough for a Unix socket.
func socketPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sig")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// serve runs a server at path and returns what stops it.
func serve(t testing.TB, path string, audit io.Writer, keys ...signer.Key) (stop func()) {
	t.Helper()
	s, err := signer.New(signer.Options{Keys: keys, Audit: audit, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l, err := signer.Listen(ctx, path, -1)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// TestSigner_EveryFormThatTheProjectSigns signs with the project's own code through the socket.
func TestSigner_EveryFormThatTheProjectSigns(t *testing.T) {
	key, path, audit := newKey(t, "signing"), socketPath(t), &lockedBuffer{}
	serve(t, path, audit, signer.Key{Role: "signing", Signer: key})
	client := signer.NewClient(path)
	list, err := client.Keys(t.Context())
	if err != nil || len(list) != 1 || list[0].KID != key.KeyID() || list[0].Role != "signing" || !list[0].Public.Equal(key.PublicKey()) {
		t.Fatalf("keys: %+v, %v", list, err)
	}
	s, err := client.Signer(t.Context(), key.KeyID(), key.PublicKey())
	if err != nil {
		t.Fatal(err)
	}

	envelope, err := did.SignJWS(t.Context(), []byte(`{"a":1}`), "treaty-envelope+json", s)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := did.ParseJWS(envelope, 1<<20)
	if err != nil || parsed.Verify(key.PublicKey()) != nil {
		t.Fatalf("envelope: %v", err)
	}
	proof, err := did.SignObject(t.Context(), []byte(`{"secretTerm":"x"}`), s, noon)
	if err != nil || did.VerifyObject([]byte(`{"secretTerm":"x"}`), proof, key.PublicKey()) != nil {
		t.Fatalf("object: %v", err)
	}
	r, err := http.NewRequest(http.MethodPost, "https://vendorcorp.test/a2a?x=%22;keyid=%22", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	if err := httpsig.SignRequest(t.Context(), r, []byte("body"), s, httpsig.SignOptions{Created: noon}); err != nil {
		t.Fatal(err)
	}

	lines := strings.Split(strings.TrimSpace(audit.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("audit log:\n%s", audit)
	}
	for i, want := range []signer.Form{signer.FormJWS, signer.FormObject, signer.FormHTTP} {
		var rec signer.Record
		if err := json.Unmarshal([]byte(lines[i]), &rec); err != nil || rec.Outcome != "signed" || rec.Form != want || rec.KID != key.KeyID() ||
			rec.Digest == nil || rec.Time != "2026-11-30T12:00:00.000Z" {
			t.Errorf("audit line %d: %s (%v)", i, lines[i], err)
		}
	}
	for _, content := range []string{"secretTerm", b64(`{"a":1}`), "vendorcorp"} {
		if strings.Contains(audit.String(), content) {
			t.Errorf("the audit log holds content:\n%s", audit)
		}
	}
}

// TestSigner_RefusesOtherForms: what is not one of the three forms, or names another key, is not signed, and the refusal is
// in the audit log.
func TestSigner_RefusesOtherForms(t *testing.T) {
	key, other := newKey(t, "signing"), newKey(t, "signing")
	kid := key.KeyID()
	header := func(text string) string { return b64(text) }
	base := func(last string) string { return "\"@method\": GET\n\"@target-uri\": https://a.test/\n" + last }
	for name, tc := range map[string]struct {
		message string
		want    error
	}{
		"request":                  {base(`"@signature-params": ("@method" "@target-uri");created=1;keyid="` + kid + `"`), nil},
		"request, other key":       {base(`"@signature-params": ("@method");keyid="` + other.KeyID() + `"`), signer.ErrForm},
		"request, prefix of key":   {base(`"@signature-params": ("@method");keyid="` + kid + `x"`), signer.ErrForm},
		"request, two keyids":      {base(`"@signature-params": ("@method");keyid="` + kid + `";keyid="` + other.KeyID() + `"`), signer.ErrForm},
		"request, key in nonce":    {base(`"@signature-params": ("@method");nonce="keyid=` + kid + `"`), signer.ErrForm},
		"request, no key":          {base(`"@signature-params": ("@method");created=1`), signer.ErrForm},
		"request, no parameters":   {base(`"content-digest": sha-256=:x:`), signer.ErrForm},
		"response":                 {"\"@status\": 200\n\"@signature-params\": (\"@status\");keyid=\"" + kid + "\"", signer.ErrForm},
		"request, stray line":      {"\"@method\": GET\nanything\n\"@signature-params\": ();keyid=\"" + kid + "\"", signer.ErrForm},
		"jws":                      {header(`{"alg":"EdDSA","kid":"`+kid+`","typ":"x"}`) + ".e30", nil},
		"jws, other key":           {header(`{"alg":"EdDSA","kid":"`+other.KeyID()+`"}`) + ".e30", signer.ErrForm},
		"jws, kid twice":           {header(`{"alg":"EdDSA","kid":"`+other.KeyID()+`","kid":"`+kid+`"}`) + ".e30", signer.ErrForm},
		"jws, KID":                 {header(`{"alg":"EdDSA","KID":"`+kid+`"}`) + ".e30", signer.ErrForm},
		"jws, no algorithm":        {header(`{"kid":"`+kid+`"}`) + ".e30", signer.ErrForm},
		"jws, payload not base64":  {header(`{"alg":"EdDSA","kid":"`+kid+`"}`) + ".e3=", signer.ErrForm},
		"jws, three parts":         {header(`{"alg":"EdDSA","kid":"`+kid+`"}`) + ".e30.e30", signer.ErrForm},
		"jws, header too large":    {header(`{"alg":"EdDSA","kid":"`+kid+`","x":"`+strings.Repeat("x", 9000)+`"}`) + ".e30", signer.ErrForm},
		"two digests":              {strings.Repeat("d", 64), nil},
		"one digest":               {strings.Repeat("d", 32), signer.ErrForm},
		"text":                     {"I owe you a million", signer.ErrForm},
		"certificate request, DER": {"\x30\x82\x01\x00", signer.ErrForm},
		"the token's own probe":    {"treaty-signer probe v1: this signature says nothing", signer.ErrForm},
	} {
		_, err := signer.FormOf(kid, []byte(tc.message))
		if !errors.Is(err, tc.want) || (tc.want == nil) != (err == nil) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
		// And at the server, whatever the client thinks.
		path, audit := socketPath(t), &lockedBuffer{}
		stop := serve(t, path, audit, signer.Key{Role: "signing", Signer: key})
		status, _ := post(t, path, fmt.Sprintf(`{"kid":%q,"message":%q}`, kid, b64(tc.message)))
		stop()
		wantStatus, wantLine := http.StatusOK, `"outcome":"signed"`
		if tc.want != nil {
			wantStatus, wantLine = http.StatusForbidden, `"outcome":"form"`
		}
		if status != wantStatus || !strings.Contains(audit.String(), wantLine) || strings.Count(audit.String(), "\n") != 1 {
			t.Errorf("%s: status %d, audit %s", name, status, audit)
		}
	}
}

func b64(s string) string { return base64url.EncodeToString([]byte(s)) }

// post sends a raw request to the server.
func post(t testing.TB, path, body string) (int, string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}}
	resp, err := c.Post("http://signer/v1/sign", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// TestSigner_BadRequests: nothing malformed is signed, and none of it reaches the audit log as if a key had been used.
func TestSigner_BadRequests(t *testing.T) {
	key, path, audit := newKey(t, "signing"), socketPath(t), &lockedBuffer{}
	serve(t, path, audit, signer.Key{Role: "signing", Signer: key})
	kid := key.KeyID()
	object := b64(strings.Repeat("d", 64))
	for name, tc := range map[string]struct {
		body   string
		status int
	}{
		"not JSON":        {"kid", http.StatusBadRequest},
		"empty":           {"", http.StatusBadRequest},
		"unknown member":  {fmt.Sprintf(`{"kid":%q,"message":%q,"force":true}`, kid, object), http.StatusBadRequest},
		"member twice":    {fmt.Sprintf(`{"kid":%q,"kid":%q,"message":%q}`, kid, kid, object), http.StatusBadRequest},
		"case":            {fmt.Sprintf(`{"KID":%q,"message":%q}`, kid, object), http.StatusBadRequest},
		"padded":          {fmt.Sprintf(`{"kid":%q,"message":%q}`, kid, object+"=="), http.StatusBadRequest},
		"no message":      {fmt.Sprintf(`{"kid":%q,"message":""}`, kid), http.StatusBadRequest},
		"no kid":          {fmt.Sprintf(`{"kid":"","message":%q}`, object), http.StatusBadRequest},
		"long kid":        {fmt.Sprintf(`{"kid":%q,"message":%q}`, strings.Repeat("k", 2000), object), http.StatusBadRequest},
		"unknown key":     {fmt.Sprintf(`{"kid":%q,"message":%q}`, kid+"x", object), http.StatusNotFound},
		"too large":       {fmt.Sprintf(`{"kid":%q,"message":%q}`, kid, strings.Repeat("A", 2<<20)), http.StatusBadRequest},
		"message too big": {fmt.Sprintf(`{"kid":%q,"message":%q}`, kid, b64(strings.Repeat("A", signer.MaxMessage+1))), http.StatusBadRequest},
	} {
		if status, body := post(t, path, tc.body); status != tc.status || !strings.Contains(body, `"code"`) || len(body) > 400 {
			t.Errorf("%s: %d %.500s", name, status, body)
		}
	}
	if audit.String() != "" {
		t.Errorf("audit log:\n%s", audit)
	}
}

// TestSigner_NoAuditNoSignature: a full disk stops signing.
func TestSigner_NoAuditNoSignature(t *testing.T) {
	key, path, audit := newKey(t, "signing"), socketPath(t), &lockedBuffer{err: errors.New("disk full")}
	serve(t, path, audit, signer.Key{Role: "signing", Signer: key})
	s, err := signer.NewClient(path).Signer(t.Context(), key.KeyID(), did.PublicKey{})
	if err != nil {
		t.Fatal(err)
	}
	if sig, err := s.Sign(t.Context(), make([]byte, 64)); !errors.Is(err, did.ErrSignerUnavailable) || sig != nil || strings.Contains(err.Error(), "disk") {
		t.Fatalf("signed %x, %v", sig, err)
	}
}

// TestSigner_BadToken: a token that fails, hangs or signs with another key gives no signature.
func TestSigner_BadToken(t *testing.T) {
	key, other := newKey(t, "signing"), newKey(t, "signing")
	for name, sign := range map[string]func(context.Context, []byte) ([]byte, error){
		"fails":       func(context.Context, []byte) ([]byte, error) { return nil, errors.New("CKR_DEVICE_ERROR at 0xdead") },
		"another key": other.Sign,
		"garbage":     func(context.Context, []byte) ([]byte, error) { return []byte("signature"), nil },
	} {
		path := socketPath(t)
		stop := serve(t, path, io.Discard, signer.Key{Role: "signing", Signer: faulty{key, sign}})
		s, err := signer.NewClient(path).Signer(t.Context(), key.KeyID(), did.PublicKey{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Sign(t.Context(), make([]byte, 64)); !errors.Is(err, did.ErrSignerUnavailable) || strings.Contains(err.Error(), "0xdead") {
			t.Errorf("%s: %v", name, err)
		}
		stop()
	}
}

// TestClient_AwayAndBack: no signer is an error to wait on; the same client goes on when it is back.
func TestClient_AwayAndBack(t *testing.T) {
	key, path := newKey(t, "signing"), socketPath(t)
	client := signer.NewClient(path)
	if _, err := client.Keys(t.Context()); !errors.Is(err, did.ErrSignerUnavailable) || !strings.Contains(err.Error(), path) {
		t.Fatalf("nothing there: %v", err)
	}
	stop := serve(t, path, io.Discard, signer.Key{Role: "signing", Signer: key})
	s, err := client.Signer(t.Context(), key.KeyID(), key.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := s.Sign(t.Context(), make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
		stop()
		if _, err := s.Sign(t.Context(), make([]byte, 64)); !errors.Is(err, did.ErrSignerUnavailable) {
			t.Fatalf("away: %v", err)
		}
		stop = serve(t, path, io.Discard, signer.Key{Role: "signing", Signer: key})
		if _, err := s.Sign(t.Context(), make([]byte, 64)); err != nil {
			t.Fatalf("back: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Sign(ctx, make([]byte, 64)); !errors.Is(err, context.Canceled) || errors.Is(err, did.ErrSignerUnavailable) {
		t.Errorf("given up: %v", err)
	}
}

// TestClient_WrongKey: another key under the document's id is refused at once, and a signature by one later.
func TestClient_WrongKey(t *testing.T) {
	key, other, path := newKey(t, "signing"), newKey(t, "signing"), socketPath(t)
	stop := serve(t, path, io.Discard, signer.Key{Role: "signing", Signer: key})
	client := signer.NewClient(path)
	if _, err := client.Signer(t.Context(), key.KeyID(), other.PublicKey()); !errors.Is(err, signer.ErrWrongKey) {
		t.Errorf("another public key: %v", err)
	}
	if _, err := client.Signer(t.Context(), other.KeyID(), other.PublicKey()); !errors.Is(err, signer.ErrUnknownKey) {
		t.Errorf("unknown: %v", err)
	}
	s, err := client.Signer(t.Context(), key.KeyID(), key.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	stop()
	// An impostor at the same socket, that answers whatever it likes.
	answers := []string{
		`{"signature":"` + b64(strings.Repeat("s", 64)) + `"}`, `{"signature":""}`, `{"signature":"AA","more":1}`, `[]`, ``,
		`{"signature":"` + strings.Repeat("A", 300<<10) + `"}`,
	}
	for _, answer := range answers {
		l, err := signer.Listen(t.Context(), path, -1)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }), ReadHeaderTimeout: time.Second}
		go func() { _ = server.Serve(l) }()
		if sig, err := s.Sign(t.Context(), make([]byte, 64)); err == nil || sig != nil || !errors.Is(err, signer.ErrWrongKey) && !errors.Is(err, signer.ErrProtocol) {
			t.Errorf("%.40q: %x, %v", answer, sig, err)
		}
		server.Close()
	}
}

// TestSocket_Modes: 0600 from the start; a socket for everybody, a file and a second signer are refused.
func TestSocket_Modes(t *testing.T) {
	key, path := newKey(t, "signing"), socketPath(t)
	stop := serve(t, path, io.Discard, signer.Key{Role: "signing", Signer: key})
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if _, err := signer.Listen(t.Context(), path, -1); !errors.Is(err, signer.ErrSocket) {
		t.Errorf("a second signer: %v", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := signer.NewClient(path).Keys(t.Context()); !errors.Is(err, signer.ErrSocket) || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("open to everybody: %v", err)
	}
	stop()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := signer.NewClient(path).Keys(t.Context()); !errors.Is(err, signer.ErrSocket) {
		t.Errorf("a file: %v", err)
	}
	if _, err := signer.Listen(t.Context(), path, -1); !errors.Is(err, signer.ErrSocket) {
		t.Errorf("listening on a file: %v", err)
	}
	if _, err := signer.Listen(t.Context(), "/tmp/"+strings.Repeat("x", 200), -1); !errors.Is(err, signer.ErrSocket) {
		t.Errorf("a long path: %v", err)
	}
	group := socketPath(t)
	l, err := signer.Listen(t.Context(), group, os.Getgid())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if info, err := os.Lstat(group); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("for a group: %v, %v", info.Mode(), err)
	}
}

// TestNew_RolesAndIDs: keys of people, recovery keys and keys under another's id are not served.
func TestNew_RolesAndIDs(t *testing.T) {
	signing, human, service := newKey(t, "signing"), newKey(t, "human"), newKey(t, "service")
	for name, tc := range map[string]struct {
		keys []signer.Key
		ok   bool
	}{
		"signing":    {[]signer.Key{{Role: "signing", Signer: signing}}, true},
		"two":        {[]signer.Key{{Role: "signing", Signer: signing}, {Role: "service", Signer: service}}, true},
		"human":      {[]signer.Key{{Role: "human", Signer: human}}, false},
		"disguised":  {[]signer.Key{{Role: "signing", Signer: human}}, false},
		"none":       {nil, false},
		"twice":      {[]signer.Key{{Role: "signing", Signer: signing}, {Role: "signing", Signer: signing}}, false},
		"another id": {[]signer.Key{{Role: "signing", Signer: renamed{signing, service.KeyID()}}}, false},
	} {
		_, err := signer.New(signer.Options{Keys: tc.keys, Audit: io.Discard, Now: time.Now})
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type renamed struct {
	did.Signer
	kid string
}

func (r renamed) KeyID() string { return r.kid }

// TestSigner_Concurrent: many callers at once, each with its own signature.
func TestSigner_Concurrent(t *testing.T) {
	key, path, audit := newKey(t, "signing"), socketPath(t), &lockedBuffer{}
	serve(t, path, audit, signer.Key{Role: "signing", Signer: key})
	s, err := signer.NewClient(path).Signer(t.Context(), key.KeyID(), key.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			message := bytes.Repeat([]byte{byte(i)}, 64)
			if sig, err := s.Sign(t.Context(), message); err != nil || key.PublicKey().Verify(message, sig) != nil {
				t.Errorf("%d: %v", i, err)
			}
			if !strings.Contains(audit.String(), canon.Sum(message).String()) {
				t.Errorf("%d: released before it was in the audit log", i)
			}
		})
	}
	wg.Wait()
	if n := strings.Count(audit.String(), "\n"); n != 100 {
		t.Errorf("%d audit lines", n)
	}
}
