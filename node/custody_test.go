// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/keystore"
	"github.com/treaty-node/treaty/node/negotiation"
)

// opens says whether a node opens on the folder, and closes it again.
func opens(t *testing.T, dir string, o node.Options) error {
	t.Helper()
	o.Process = "treaty"
	n, err := node.Open(t.Context(), dir, o)
	if err != nil {
		return err
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	return nil
}

// keyFiles are the node's own key files, unsealed.
func keyFiles(t *testing.T, dir string) map[keystore.Role][]keystore.Key {
	t.Helper()
	unlock := must[*keystore.Identity](t)(keystore.ReadIdentityFile(filepath.Join(dir, "unlock.age-identity")))
	return must[map[keystore.Role][]keystore.Key](t)(keystore.LoadDir(filepath.Join(dir, node.KeysDir), unlock))
}

// TestUnlock_EveryWay makes a node whose keys are sealed in each way, starts it, and takes the way away.
func TestUnlock_EveryWay(t *testing.T) {
	const passphrase = "correct horse battery"
	prompt := func(answer string) func(string) (string, error) {
		return func(string) (string, error) { return answer, nil }
	}
	out := filepath.Join(t.TempDir(), "private")
	if err := os.Mkdir(out, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(out, "pass")
	if err := os.WriteFile(file, []byte(passphrase+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		init   func(*node.InitOptions)
		open   node.Options
		config string
		spoil  func(dir string) node.Options
		want   string
	}{
		"identity": {
			func(*node.InitOptions) {}, node.Options{}, `identity: "unlock.age-identity"`,
			func(dir string) node.Options {
				os.Remove(filepath.Join(dir, "unlock.age-identity"))
				return node.Options{}
			}, "unlock.age-identity",
		},
		"credential": {
			func(o *node.InitOptions) {
				o.UnlockCredential, o.IdentityOut = "treaty-keys", filepath.Join(out, "treaty-keys")
			},
			node.Options{}, `credential: "treaty-keys"`,
			func(string) node.Options { os.Unsetenv(keystore.CredentialsEnv); return node.Options{} }, "LoadCredential=treaty-keys",
		},
		"passphrase": {
			func(o *node.InitOptions) { o.UnlockPassphrase = passphrase }, node.Options{Prompt: prompt(passphrase)}, "passphrase: prompt",
			func(string) node.Options { return node.Options{Prompt: prompt("wrong horse")} }, "cannot be unsealed",
		},
		"passphrase, no terminal": {
			func(o *node.InitOptions) { o.UnlockPassphrase = passphrase }, node.Options{Prompt: prompt(passphrase)}, "passphrase: prompt",
			func(string) node.Options { return node.Options{} }, "no terminal",
		},
		"passphrase file": {
			func(o *node.InitOptions) { o.UnlockPassphraseFile = file }, node.Options{}, "passphrase_file: ",
			func(string) node.Options { os.Chmod(file, 0o644); return node.Options{} }, "chmod 600 " + file,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(keystore.CredentialsEnv, out)
			dir, _ := initPair(t, func(b, _ *node.InitOptions) { tc.init(b) })
			text, err := os.ReadFile(filepath.Join(dir, node.ConfigFile))
			if err != nil || !strings.Contains(string(text), tc.config) || strings.Contains(string(text), passphrase) {
				t.Fatalf("configuration (%v):\n%s", err, text)
			}
			if _, err := os.Stat(filepath.Join(dir, "unlock.age-identity")); (err == nil) != (name == "identity") {
				t.Errorf("an identity file in the folder: %v", err)
			}
			if err := opens(t, dir, tc.open); err != nil {
				t.Fatal(err)
			}
			err = opens(t, dir, tc.spoil(dir))
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "horse") || httpapi.AsError(err).Kind != httpapi.KindUsage {
				t.Errorf("spoilt: %v", err)
			}
		})
	}
}

// TestInit_UnlockOptions: ways that do not fit together make nothing.
func TestInit_UnlockOptions(t *testing.T) {
	for name, change := range map[string]func(*node.InitOptions){
		"":                     func(*node.InitOptions) {}, // nothing is wrong
		"two ways":             func(o *node.InitOptions) { o.UnlockPassphrase, o.UnlockPassphraseFile = "a", "b" },
		"credential, no place": func(o *node.InitOptions) { o.UnlockCredential = "treaty-keys" },
		"credential within":    func(o *node.InitOptions) { o.UnlockCredential, o.IdentityOut = "x", filepath.Join(o.Dir, "x") },
		"credential as a path": func(o *node.InitOptions) { o.UnlockCredential, o.IdentityOut = "../x", o.HumanKeyOut+".id" },
		"passphrase file gone": func(o *node.InitOptions) { o.UnlockPassphraseFile = o.Dir + "-none" },
		"socket, no kid":       func(o *node.InitOptions) { o.SignerSocket = "s" },
		"kid, no socket":       func(o *node.InitOptions) { o.SignerKID = "did:wba:buyercorp.test#signing-x" },
		"secp256k1 in a token": func(o *node.InitOptions) { o.SignerSocket, o.SignerKID, o.Profile = "s", "k", "k1" },
		"nobody at the socket": func(o *node.InitOptions) { o.SignerSocket, o.SignerKID = o.Dir+"-none", "k" },
	} {
		dir := t.TempDir()
		o := node.InitOptions{
			Dir: filepath.Join(dir, "n"), Domain: "buyercorp.test", Listen: "127.0.0.1:0", DevCA: filepath.Join(dir, "ca"),
			HumanKeyOut: filepath.Join(dir, "off", "h"), RecoveryKeyOut: filepath.Join(dir, "off", "r"), Passphrase: "a passphrase for tests", WorkFactor: 10,
		}
		change(&o)
		if _, err := node.Init(t.Context(), o); (err == nil) != (name == "") {
			t.Errorf("%q: %v", name, err)
		}
		if name == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(o.Dir, node.ConfigFile)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: left a configuration", name)
		}
	}
}

// TestInit_FindsItself: with a development CA there is no DNS, and the node's own name must lead to it, or the doctor cannot
// look at it from outside.
func TestInit_FindsItself(t *testing.T) {
	for listen, want := range map[string]string{":18443": "127.0.0.1:18443", "0.0.0.0:18443": "127.0.0.1:18443", "127.0.0.1:18443": "127.0.0.1:18443", "127.0.0.1:0": ""} {
		dir := t.TempDir()
		o := node.InitOptions{
			Dir: filepath.Join(dir, "n"), Domain: "buyercorp.test", Listen: listen, DevCA: filepath.Join(dir, "ca"),
			HumanKeyOut: filepath.Join(dir, "off", "h"), RecoveryKeyOut: filepath.Join(dir, "off", "r"), Passphrase: "a passphrase for tests", WorkFactor: 10,
		}
		if _, err := node.Init(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		cfg, err := node.LoadConfig(o.Dir)
		if err != nil || cfg.Hosts["buyercorp.test:443"] != want {
			t.Errorf("%s: %v, %v", listen, cfg.Hosts, err)
		}
	}
}

// TestStart_FileModes: what holds keys and is open to others stops the node, with the command that mends it.
func TestStart_FileModes(t *testing.T) {
	dir, _ := initPair(t, nil)
	files, err := filepath.Glob(filepath.Join(dir, node.KeysDir, "*.age"))
	if err != nil || len(files) != 4 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, tc := range []struct {
		path        string
		right, open os.FileMode
	}{
		{filepath.Join(dir, node.KeysDir), 0o700, 0o750}, {filepath.Join(dir, node.KeysDir), 0o700, 0o701},
		{filepath.Join(dir, "unlock.age-identity"), 0o600, 0o640}, {files[0], 0o600, 0o604}, {files[2], 0o600, 0o660},
	} {
		if err := os.Chmod(tc.path, tc.open); err != nil {
			t.Fatal(err)
		}
		err := opens(t, dir, node.Options{})
		if !strings.Contains(errText(err), fmt.Sprintf("run chmod %o %s", tc.right, tc.path)) {
			t.Errorf("%s with mode %04o: %v", tc.path, tc.open, err)
		}
		if err := os.Chmod(tc.path, tc.right); err != nil {
			t.Fatal(err)
		}
	}
	if err := opens(t, dir, node.Options{}); err != nil {
		t.Fatal(err)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestKeys_List: role, place and state of every key, and no secret.
func TestKeys_List(t *testing.T) {
	dir, _ := initPair(t, nil)
	files := keyFiles(t, dir)
	binding, kex := files[keystore.Signing][0], files[keystore.Kex][0]
	if kex.Private.Public().Type() != did.X25519 { // the other is the X-Wing key; which comes first is chance
		kex = files[keystore.Kex][1]
	}
	id, _, err := did.SplitKeyID(binding.KID)
	if err != nil {
		t.Fatal(err)
	}
	public := func(typ did.KeyType) did.PublicKey {
		return must[did.PrivateKey](t)(did.GenerateKey(typ)).Public()
	}
	now := time.Now().Truncate(time.Second)
	// As after a rotation: a key that goes, one that has gone, keys that are kept elsewhere, and a file that nobody publishes.
	spare := must[did.PrivateKey](t)(did.GenerateKey(did.X25519))
	unlock := must[*keystore.Identity](t)(keystore.ReadIdentityFile(filepath.Join(dir, "unlock.age-identity")))
	must[string](t)(keystore.Save(filepath.Join(dir, node.KeysDir), keystore.Key{
		Role: keystore.Kex, KID: did.KeyID(id, "kex", spare.Public()), Created: now, Private: spare,
	}, unlock.Recipient()))
	publish(t, dir, "agent.json", did.DocumentSpec{
		ID: id, Binding: did.MethodSpec{ID: binding.KID, Key: binding.Private.Public()},
		Signing:      []did.MethodSpec{{Key: public(did.Ed25519), Expires: now.Add(time.Hour)}},
		KeyAgreement: []did.MethodSpec{{ID: kex.KID, Key: kex.Private.Public()}, {Key: public(did.X25519), Expires: now.Add(-time.Hour)}},
		Human:        []did.MethodSpec{{Key: public(did.Ed25519)}}, Recovery: []did.MethodSpec{{Key: public(did.Ed25519)}},
	}, binding.Private, now)

	// Not running yet: a running node takes the expired key out of the document.
	n := must[*node.Node](t)(node.Open(t.Context(), dir, node.Options{Process: "treaty"}))
	list := must[[]httpapi.Key](t)(n.Keys(t.Context()))
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	start(t, dir)
	var got []string
	for _, k := range list {
		got = append(got, k.Role+" "+string(k.State)+" "+string(k.Location))
		if k.KID == "" || len(k.Thumbprint) != 43 || k.Type == "" {
			t.Errorf("%+v", k)
		}
		if k.Location == httpapi.KeyInFile {
			if _, err := os.Stat(filepath.Join(dir, k.Where)); err != nil || k.Created == "" {
				t.Errorf("%+v: %v", k, err)
			}
		}
		if k.State == httpapi.KeyRetiring && k.Expires != now.Add(time.Hour).UTC().Format(time.RFC3339) {
			t.Errorf("%+v", k)
		}
	}
	want := []string{
		"signing active file", "signing retiring missing", "kex active file", "kex expired missing", "kex unpublished file", "kex unpublished file",
		"service active file", "human active offline", "recovery active offline",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var raw []byte
	if err := httpapi.NewAdminClient(dir).Get(t.Context(), "/keys", &raw); err != nil || !strings.Contains(string(raw), binding.KID) {
		t.Fatalf("admin interface: %s %v", raw, err)
	}
	for _, role := range files {
		for _, k := range role {
			seed := b64url(k.Private.Seed())
			if strings.Contains(string(raw), seed) {
				t.Errorf("invariant 10: the seed of %s is listed", k.KID)
			}
		}
	}
	if strings.Contains(string(raw), "AGE-SECRET") {
		t.Error("invariant 10: the identity is listed")
	}
}

// mixed is a node's own document with its binding key in humanAuthorization too, properly proved.
func mixed(t *testing.T, dir string) []byte {
	t.Helper()
	binding := keyFiles(t, dir)[keystore.Signing][0]
	raw := must[[]byte](t)(os.ReadFile(filepath.Join(dir, node.DocumentsDir, "agent.json")))
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	delete(m, "proof")
	m["humanAuthorization"] = append(m["humanAuthorization"].([]any), binding.KID)
	unsigned := must[[]byte](t)(canon.Marshal(m))
	signer := must[did.Signer](t)(did.NewSigner(binding.KID, binding.Private))
	out := must[[]byte](t)(did.SignDocument(t.Context(), unsigned, signer, time.Now().Add(-time.Second), did.DialectSpec))
	doc := must[*did.Document](t)(did.ParseDocument(out))
	if _, err := doc.Verify(time.Now()); err != nil { // nothing else is wrong with it
		t.Fatal(err)
	}
	return out
}

// TestMixedRoles_OwnDocument: a node does not start on a document that gives one key two roles.
func TestMixedRoles_OwnDocument(t *testing.T) {
	dir, _ := initPair(t, nil)
	raw := mixed(t, dir)
	if err := os.WriteFile(filepath.Join(dir, node.DocumentsDir, "agent.json"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := opens(t, dir, node.Options{}); !strings.Contains(errText(err), did.ErrMixedRoles.Error()) || !strings.Contains(errText(err), "agent.json") {
		t.Fatalf("opened: %v", err)
	}
}

// front stands before a node's public listener at addr, and publishes another document in place of the node's own.
func front(t *testing.T, dir, addr, behind string, document []byte) {
	t.Helper()
	cert := must[tls.Certificate](t)(tls.LoadX509KeyPair(filepath.Join(dir, "tls", "cert.pem"), filepath.Join(dir, "tls", "key.pem")))
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "https", Host: behind})
			r.Out.Host = r.In.Host
		},
		Transport: insecure(),
	}
	listenTLS(t, addr, cert, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/did.json") && strings.Contains(r.URL.Path, "e1_") {
			w.Header().Set("Content-Type", "application/did+json")
			_, _ = w.Write(document)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
}

// TestMixedRoles_TheirDocument: neither as buyer nor as vendor does a node contract with a party whose document gives one
// key two roles; it resolves all the same.
func TestMixedRoles_TheirDocument(t *testing.T) {
	for _, side := range []string{"vendor", "buyer"} {
		t.Run(side, func(t *testing.T) {
			addr := freePort(t)
			var behind string
			buyerDir, vendorDir := initPair(t, func(b, v *node.InitOptions) {
				// What the mixing side's domain leads to, for the other side, is the front.
				other, bad := b, v
				if side == "buyer" {
					other, bad = v, b
				}
				hosts := map[string]string{}
				for k, a := range other.Hosts {
					hosts[k] = a
				}
				behind = bad.Listen
				hosts[bad.Domain+":443"] = addr
				other.Hosts = hosts
			})
			bad := vendorDir
			if side == "buyer" {
				bad = buyerDir
			}
			front(t, bad, addr, behind, mixed(t, bad))
			vendor, buyer := start(t, vendorDir), start(t, buyerDir)
			good, badID := buyer, vendor.Status().DID
			if side == "buyer" {
				good, badID = vendor, buyer.Status().DID
			}
			list, err := good.Resolve(t.Context(), badID)
			if err != nil || len(list) != 1 || list[0].MayContract || !strings.Contains(list[0].Reason, "role") {
				t.Fatalf("resolve: %+v, %v", list, err)
			}
			n, err := buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: "vendorcorp.test"})
			if side == "vendor" {
				if e := httpapi.AsError(err); err == nil || e.Kind != httpapi.KindRefused || e.Code != "NOT_TRUSTED" || !strings.Contains(e.Message, "mixes key roles") {
					t.Fatalf("negotiate: %v", err)
				}
			} else {
				if err != nil {
					t.Fatal(err)
				}
				if n = buyer.wait(t, n.ContextID); n.Phase == string(negotiation.PhaseInForce) || n.Code != "NOT_TRUSTED" {
					t.Fatalf("phase %s, %s %s", n.Phase, n.Code, n.Reason)
				}
			}
			if got := must[[]httpapi.Contract](t)(vendor.Contracts(t.Context())); len(got) != 0 {
				t.Errorf("contracts: %+v", got)
			}
			if got := must[[]httpapi.Negotiation](t)(vendor.Negotiations(t.Context())); len(got) != 0 {
				t.Errorf("the vendor keeps %+v", got)
			}
		})
	}
}

func b64url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// insecure reaches a test's own node by its address.
func insecure() *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} //nolint:gosec // a test's own server
}
