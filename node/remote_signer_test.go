// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/keystore"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/signer"
	"github.com/treaty-node/treaty/node/signer/softhsmtest"
)

// tokenSigner is a treaty-signer process with keys in a real token.
type tokenSigner struct {
	hsm    softhsmtest.Token
	binary string
	mu     sync.Mutex
	cmd    *exec.Cmd
	kids   map[string]string // domain → key id
}

// newTokenSigner makes one binding key for each domain inside a token, and starts a signer for them.
func newTokenSigner(t *testing.T, binary string, domains ...string) *tokenSigner {
	t.Helper()
	s := &tokenSigner{hsm: softhsmtest.New(t), binary: binary, kids: map[string]string{}}
	s.hsm.Configure(t, "  []\n")
	var lines strings.Builder
	for _, domain := range domains {
		out, err := exec.Command(s.binary, "--dir", s.hsm.Dir, "generate", "--label", domain, "--subject", "did:wba:"+domain+":agents:steward", "--json").Output()
		var g struct {
			KID string `json:"kid"`
		}
		if err == nil {
			err = json.Unmarshal(out, &g)
		}
		if err != nil {
			t.Fatalf("generate: %v: %s", err, out)
		}
		s.kids[domain] = g.KID
		fmt.Fprintf(&lines, "  - {kid: %q, role: signing, label: %q}\n", g.KID, domain)
	}
	s.hsm.Configure(t, lines.String())
	s.start(t)
	t.Cleanup(s.kill)
	return s
}

func (s *tokenSigner) socket() string { return filepath.Join(s.hsm.Dir, "signer.sock") }

func (s *tokenSigner) start(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cmd = exec.Command(s.binary, "--dir", s.hsm.Dir, "serve")
	var stderr bytes.Buffer
	s.cmd.Stderr = &stderr
	out := must[io.ReadCloser](t)(s.cmd.StdoutPipe())
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "ready: ") {
		_ = s.cmd.Wait()
		t.Fatalf("%q %v: %s", line, err, &stderr)
	}
}

// kill is SIGKILL: nothing is tidied up.
func (s *tokenSigner) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// line is a way to the signer that counts signatures and has the signer killed instead of passing one on.
type line struct {
	path   string
	signer *tokenSigner
	mu     sync.Mutex
	left   int // signatures until the kill; negative: never
	signed int
	killed chan struct{}
}

func newLine(t *testing.T, s *tokenSigner) *line {
	t.Helper()
	dir := must[string](t)(os.MkdirTemp("", "line"))
	t.Cleanup(func() { os.RemoveAll(dir) })
	l := &line{path: filepath.Join(dir, "s"), signer: s, left: -1}
	listener := must[net.Listener](t)(signer.Listen(t.Context(), l.path, -1))
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "signer" },
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", s.socket())
		}},
		// As if the socket's other end had gone.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.count(r)
		proxy.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return l
}

func (l *line) count(r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Method != http.MethodPost {
		return
	}
	l.signed++
	if l.left == 0 {
		l.signer.kill()
		close(l.killed)
	}
	if l.left >= 0 {
		l.left--
	}
}

// killAfter arranges that n more signatures are passed on and then the signer dies.
func (l *line) killAfter(n int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.killed = n, make(chan struct{})
	return l.killed
}

func await(t *testing.T, killed <-chan struct{}) {
	t.Helper()
	select {
	case <-killed:
	case <-time.After(30 * time.Second):
		t.Fatal("nobody asked for that signature")
	}
}

// asked waits for a signature that is asked for, or for the end without it.
func asked(killed <-chan struct{}, ended func() bool) bool {
	for {
		select {
		case <-killed:
			return true
		case <-time.After(50 * time.Millisecond):
			if ended() {
				return false
			}
		}
	}
}

func (l *line) reset() (signed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	signed, l.signed, l.left = l.signed, 0, -1
	return signed
}

// TestRemoteSigner runs nodes with a real treaty-signer and a real token.
func TestRemoteSigner(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "treaty-signer")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/treaty-node/treaty/cmd/treaty-signer").CombinedOutput(); err != nil {
		t.Fatalf("building treaty-signer: %v: %s", err, out)
	}
	t.Run("killed before every signature", func(t *testing.T) { killedBeforeEverySignature(t, binary) })
	t.Run("down", func(t *testing.T) { signerDown(t, binary) })
}

// killedBeforeEverySignature: both companies' binding keys are in a PKCS#11 token. They contract, and for every signature
// that either makes on the way, the signer is killed just before it: nothing comes into force without that
// signature, nobody gives up, and all goes on when the signer is back.
func killedBeforeEverySignature(t *testing.T, binary string) {
	t.Helper()
	s := newTokenSigner(t, binary, "buyercorp.test", "vendorcorp.test")
	lines := map[string]*line{"buyer": newLine(t, s), "vendor": newLine(t, s)}
	buyerDir, vendorDir := initPair(t, func(b, v *node.InitOptions) {
		b.SignerSocket, b.SignerKID = lines["buyer"].path, s.kids["buyercorp.test"]
		v.SignerSocket, v.SignerKID = lines["vendor"].path, s.kids["vendorcorp.test"]
	})
	for _, dir := range []string{buyerDir, vendorDir} {
		if keys := keyFiles(t, dir); len(keys[keystore.Signing]) != 0 || len(keys[keystore.Kex]) != 2 {
			t.Fatalf("key files in %s: %v", dir, keys)
		}
	}
	vendor, buyer := start(t, vendorDir), start(t, buyerDir)
	if !strings.HasPrefix(s.kids["buyercorp.test"], buyer.Status().DID+"#signing-") {
		t.Fatalf("%s is not the identity of %s", buyer.Status().DID, s.kids["buyercorp.test"])
	}
	for _, k := range must[[]httpapi.Key](t)(buyer.Keys(t.Context())) {
		if (k.Role == "signing") != (k.Location == httpapi.KeyInToken) || k.Role == "signing" && (k.State != httpapi.KeyActive || k.Where != lines["buyer"].path) {
			t.Errorf("keys: %+v", k)
		}
	}

	negotiate := func() string {
		t.Helper()
		n, err := buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: "vendorcorp.test"})
		if err != nil {
			t.Fatal(err)
		}
		return n.ContextID
	}
	finish := func(id string) httpapi.Negotiation {
		t.Helper()
		n := buyer.wait(t, id)
		if n.Phase != string(negotiation.PhaseInForce) {
			buyer.dump(t)
			vendor.dump(t)
			t.Fatalf("phase %s: %s %s", n.Phase, n.Code, n.Reason)
		}
		return n
	}
	lines["buyer"].reset()
	lines["vendor"].reset()
	n := finish(negotiate())
	rec := must[httpapi.Contract](t)(vendor.Contract(t.Context(), n.ContractID))
	c := must[*contract.Contract](t)(contract.Parse(rec.Contract))
	for _, p := range c.Proofs {
		if p.VerificationMethod != s.kids["buyercorp.test"] && p.VerificationMethod != s.kids["vendorcorp.test"] {
			t.Errorf("a proof by %s", p.VerificationMethod)
		}
	}
	total := map[string]int{"buyer": lines["buyer"].reset(), "vendor": lines["vendor"].reset()}
	least := map[string]int{"buyer": 6, "vendor": 4}
	if total["buyer"] < least["buyer"] || total["vendor"] < least["vendor"] {
		t.Fatalf("signatures of one negotiation: %v", total)
	}

	for _, side := range []string{"buyer", "vendor"} {
		for i := range total[side] {
			killed := lines[side].killAfter(i)
			got, err := buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: "vendorcorp.test"})
			if err != nil { // the first envelope could not be signed: clearly said, and nothing was begun
				e := httpapi.AsError(err)
				if side != "buyer" || e.Kind != httpapi.KindUnreachable || e.Code != httpapi.CodeSigner || !strings.Contains(e.Message, lines[side].path) {
					t.Fatalf("%s %d: %v", side, i, err)
				}
				await(t, killed)
				s.start(t)
				lines[side].reset()
				finish(negotiate())
				continue
			}
			if i >= least[side] && !asked(killed, func() bool {
				return must[httpapi.Negotiation](t)(buyer.Negotiation(t.Context(), got.ContextID)).Phase == string(negotiation.PhaseInForce)
			}) {
				lines[side].reset() // the first negotiation had to send something twice
				break
			}
			await(t, killed)
			if now := must[httpapi.Negotiation](t)(buyer.Negotiation(t.Context(), got.ContextID)); negotiation.Phase(now.Phase).Terminal() {
				t.Fatalf("%s %d: ended as %s without a signer: %s", side, i, now.Phase, now.Reason)
			}
			s.start(t)
			n := finish(got.ContextID)
			v := must[httpapi.Negotiation](t)(vendor.Negotiation(t.Context(), n.ContextID))
			if v.Phase != string(negotiation.PhaseInForce) || v.ContractID != n.ContractID {
				t.Fatalf("%s %d: the vendor sees %s", side, i, v.Phase)
			}
			lines[side].reset()
		}
	}
	audit := string(must[[]byte](t)(os.ReadFile(filepath.Join(s.hsm.Dir, "audit.log"))))
	for _, form := range []signer.Form{signer.FormHTTP, signer.FormJWS, signer.FormObject} {
		if !strings.Contains(audit, `"form":"`+string(form)+`"`) {
			t.Errorf("no %s in the audit log", form)
		}
	}
	if strings.Contains(audit, "order_value") || strings.Contains(audit, `"outcome":"form"`) {
		t.Error("the audit log shows content, or refusals of what the node signs")
	}
}

// signerDown: what needs a signature fails closed and says so; the rest, and readiness, say what is missing; then
// all is well again.
func signerDown(t *testing.T, binary string) {
	t.Helper()
	s := newTokenSigner(t, binary, "buyercorp.test")
	var addr string
	buyerDir, vendorDir := initPair(t, func(b, _ *node.InitOptions) {
		b.SignerSocket, b.SignerKID, addr = s.socket(), s.kids["buyercorp.test"], b.Listen
	})
	vendor, buyer := start(t, vendorDir), start(t, buyerDir)
	ready := func() string {
		c := http.Client{Transport: insecure()}
		resp := must[*http.Response](t)(c.Get("https://" + addr + "/readyz"))
		defer resp.Body.Close()
		return fmt.Sprintf("%d %s", resp.StatusCode, must[[]byte](t)(io.ReadAll(resp.Body)))
	}
	if got := ready(); !strings.HasPrefix(got, "200 ") {
		t.Errorf("readyz: %s", got)
	}
	s.kill()
	_, err := buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: "vendorcorp.test"})
	if e := httpapi.AsError(err); err == nil || e.Code != httpapi.CodeSigner || e.Kind != httpapi.KindUnreachable || !errors.Is(err, did.ErrSignerUnavailable) || !strings.Contains(e.Hint, "treaty-signer") {
		t.Errorf("negotiate: %v", err)
	}
	if list := must[[]httpapi.Negotiation](t)(buyer.Negotiations(t.Context())); len(list) != 0 {
		t.Errorf("begun: %+v", list)
	}
	if list := must[[]httpapi.Negotiation](t)(vendor.Negotiations(t.Context())); len(list) != 0 {
		t.Errorf("the vendor heard of it: %+v", list)
	}
	if d := must[httpapi.Diagnosis](t)(buyer.Doctor(t.Context(), httpapi.DoctorRequest{})); !slices.Equal(statuses(d, httpapi.CheckFail), []string{"signer"}) || d.WouldContract {
		explain(t, d)
		t.Errorf("doctor: %q", statuses(d, httpapi.CheckFail))
	}
	if got := ready(); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, `"signer"`) || strings.Contains(got, s.socket()) {
		t.Errorf("readyz: %s", got)
	}
	if keys := must[[]httpapi.Key](t)(buyer.Keys(t.Context())); len(keys) == 0 { // needs no signature
		t.Error("no keys")
	}
	if _, err := buyer.Rotate(t.Context(), httpapi.RotateRequest{Kind: httpapi.RotateKeyAgreement}); err == nil || httpapi.AsError(err).Code != httpapi.CodeSigner {
		t.Errorf("rotate: %v", err)
	}
	if files := keyFiles(t, buyerDir)[keystore.Kex]; len(files) != 2 {
		t.Errorf("the rotation that was not signed left a key: %v", files)
	}
	s.start(t)
	rotate(t, buyer.Node, httpapi.RotateKeyAgreement)
	rotate(t, buyer.Node, httpapi.RotateSigning)
	if got := ready(); !strings.HasPrefix(got, "200 ") {
		t.Errorf("readyz, back: %s", got)
	}
	if d := must[httpapi.Diagnosis](t)(buyer.Doctor(t.Context(), httpapi.DoctorRequest{})); !slices.Contains(statuses(d, httpapi.CheckOK), "signer") || !d.WouldContract {
		explain(t, d)
		t.Error("doctor, back")
	}
	n := must[httpapi.Negotiation](t)(buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: "vendorcorp.test"}))
	if n = buyer.wait(t, n.ContextID); n.Phase != string(negotiation.PhaseInForce) {
		t.Errorf("phase %s: %s", n.Phase, n.Reason)
	}
}

// inProcess serves keys that are in memory.
func inProcess(t *testing.T, keys ...signer.Key) string {
	t.Helper()
	dir := must[string](t)(os.MkdirTemp("", "sig"))
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	srv := must[*signer.Server](t)(signer.New(signer.Options{Keys: keys, Audit: io.Discard, Now: time.Now}))
	l := must[net.Listener](t)(signer.Listen(t.Context(), path, -1))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return path
}

// TestRemoteSigner_StartRefuses: a node does not start with a signer that is away, lacks the binding key or has another one,
// is open to everybody, or while a copy of the key lies in a file.
func TestRemoteSigner_StartRefuses(t *testing.T) {
	dir, _ := initPair(t, nil)
	binding := keyFiles(t, dir)[keystore.Signing][0]
	file := filepath.Join(dir, node.KeysDir, binding.FileName())
	own := must[did.Signer](t)(did.NewSigner(binding.KID, binding.Private))
	otherKey := must[did.PrivateKey](t)(did.GenerateKey(did.Ed25519))
	id := must[did.DID](t)(did.Parse("did:wba:buyercorp.test:agents:steward:e1_" + otherKey.Public().Thumbprint()))
	other := must[did.Signer](t)(did.NewSigner(did.KeyID(id, "signing", otherKey.Public()), otherKey))

	right := inProcess(t, signer.Key{Role: "signing", Signer: own})
	open := inProcess(t, signer.Key{Role: "signing", Signer: own})
	if err := os.Chmod(open, 0o666); err != nil {
		t.Fatal(err)
	}
	liar := filepath.Join(filepath.Dir(open), "liar") // says that another key has the binding key's id
	l := must[net.Listener](t)(signer.Listen(t.Context(), liar, -1))
	srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"keys":[{"kid":%q,"role":"signing","type":"Ed25519","publicKey":%q}]}`, binding.KID, b64url(otherKey.Public().Bytes()))
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })

	config := filepath.Join(dir, node.ConfigFile)
	plain := must[[]byte](t)(os.ReadFile(config))
	for _, tc := range []struct {
		name, socket string
		fileStays    bool
		want         string
	}{
		{"a copy in a file", right, true, "take the file away"},
		{"away", filepath.Join(dir, "none"), false, "is treaty-signer running?"},
		{"another key only", inProcess(t, signer.Key{Role: "signing", Signer: other}), false, "no such key"},
		{"another key under its id", liar, false, "another key"},
		{"open to everybody", open, false, "chmod 600"},
		{"no socket named", "", false, "keys.signer.socket"},
		{"as it should be", right, false, ""},
	} {
		if err := os.WriteFile(config, bytes.Replace(plain, []byte(`identity"}`), fmt.Appendf(nil, `identity", signer: {socket: %q}}`, tc.socket), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		away := file + ".away"
		if !tc.fileStays {
			away = filepath.Join(t.TempDir(), "key.age")
			if err := os.Rename(file, away); err != nil {
				t.Fatal(err)
			}
		}
		err := opens(t, dir, node.Options{})
		if (err == nil) != (tc.want == "") || !strings.Contains(errText(err), tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
		// Whatever supervises the node starts it again when its signer was away, and only then.
		kind := httpapi.KindUsage
		if tc.name == "away" {
			kind = httpapi.KindUnreachable
		}
		if err != nil && httpapi.AsError(err).Kind != kind {
			t.Errorf("%s: kind %s", tc.name, httpapi.AsError(err).Kind)
		}
		if !tc.fileStays {
			if err := os.Rename(away, file); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestInit_SignerKey: an identity is only made for an Ed25519 signing key under the id that it gives itself.
func TestInit_SignerKey(t *testing.T) {
	key := must[did.PrivateKey](t)(did.GenerateKey(did.Ed25519))
	k1 := must[did.PrivateKey](t)(did.GenerateKey(did.Secp256k1))
	named := func(subject, role string, k did.PrivateKey) signer.Key {
		id := must[did.DID](t)(did.Parse(subject))
		return signer.Key{Role: role, Signer: must[did.Signer](t)(did.NewSigner(did.KeyID(id, role, k.Public()), k))}
	}
	e1 := ":e1_" + key.Public().Thumbprint()
	for name, tc := range map[string]struct {
		key  signer.Key
		want string
	}{
		"right":          {named("did:wba:buyercorp.test:agents:steward"+e1, "signing", key), ""},
		"other domain":   {named("did:wba:vendorcorp.test:agents:steward"+e1, "signing", key), "so its id is did:wba:buyercorp.test"},
		"other path":     {named("did:wba:buyercorp.test:agents:other"+e1, "signing", key), "so its id is"},
		"service key":    {named("did:wba:buyercorp.test", "service", key), "role signing"},
		"secp256k1":      {named("did:wba:buyercorp.test", "signing", k1), "Ed25519"},
		"no fingerprint": {named("did:wba:buyercorp.test", "signing", key), "so its id is"},
	} {
		dir := t.TempDir()
		socket := inProcess(t, tc.key)
		_, err := node.Init(t.Context(), node.InitOptions{
			Dir: filepath.Join(dir, "n"), Domain: "buyercorp.test", Listen: "127.0.0.1:0", DevCA: filepath.Join(dir, "ca"),
			HumanKeyOut: filepath.Join(dir, "off", "h"), RecoveryKeyOut: filepath.Join(dir, "off", "r"), Passphrase: "a passphrase for tests", WorkFactor: 10,
			SignerSocket: socket, SignerKID: tc.key.Signer.KeyID(),
		})
		if (err == nil) != (tc.want == "") || !strings.Contains(errText(err), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
