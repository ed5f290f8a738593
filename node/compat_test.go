// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/did/resolver/fetch"
	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/internal/devca"
	"github.com/treaty-node/treaty/wellknown"
)

// TestCompat_WeakerSchemesOnlyAsk: tokens and the legacy header are off unless switched on, and then they ask questions. A message
// that negotiates is refused to both, as it is to strangers.
func TestCompat_WeakerSchemesOnlyAsk(t *testing.T) {
	const question = `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hello"}]}}`
	envelope := fmt.Sprintf(`{"message":{"messageId":"m","role":"ROLE_USER","extensions":[%q],"parts":[{"raw":"eyJhIjoxfQ==","mediaType":%q}]}}`,
		wellknown.ExtensionURI, wellknown.EnvelopeMediaType)

	buyerDir, vendorDir := initPair(t, nil)
	buyerCfg, vendorCfg := must[*node.Config](t)(node.LoadConfig(buyerDir)), must[*node.Config](t)(node.LoadConfig(vendorDir))
	ca := must[*devca.CA](t)(devca.Load(filepath.Join(filepath.Dir(buyerDir), "ca")))
	key := must[did.PrivateKey](t)(did.GenerateKey(did.Ed25519))
	id := must[did.DID](t)(did.Parse("did:wba:buyercorp.test:agents:analyst:e1_" + key.Public().Thumbprint()))
	signer := must[did.Signer](t)(did.NewSigner(did.KeyID(id, "signing", key.Public()), key))
	unsigned := must[[]byte](t)(did.BuildDocument(did.DocumentSpec{ID: id, Binding: did.MethodSpec{Key: key.Public()}}))
	document := must[[]byte](t)(did.SignDocument(t.Context(), unsigned, signer, time.Now(), did.DialectSpec))
	listenTLS(t, buyerCfg.Listen, must[tls.Certificate](t)(ca.Issue(devca.Leaf{Names: []string{"buyercorp.test"}})), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if "https://buyercorp.test"+r.URL.Path != id.DocumentURL() {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(document)
	}))
	guarded := fetch.NewTransport(fetch.Config{Hosts: vendorCfg.Hosts, RootCAs: ca.Pool()})
	signing := &httpsig.Transport{Base: guarded, Signer: func() did.Signer { return signer }}

	post := func(over http.RoundTripper, body, authorization string) (*http.Response, string) {
		t.Helper()
		r := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodPost, "https://vendorcorp.test/a2a/v1/message:send", strings.NewReader(body)))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("A2A-Version", "1.0")
		r.Header.Set("A2A-Extensions", wellknown.ExtensionURI)
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		resp := must[*http.Response](t)(over.RoundTrip(r))
		defer resp.Body.Close()
		return resp, string(must[[]byte](t)(io.ReadAll(resp.Body)))
	}
	legacy := func(nonce string) string {
		return must[string](t)(httpsig.LegacyAuthorization(t.Context(), "vendorcorp.test", signer, httpsig.SignOptions{Created: time.Now(), Nonce: nonce}))
	}

	vendor := start(t, vendorDir)
	if resp, body := post(signing, question, ""); resp.StatusCode != http.StatusOK || resp.Header.Get("Authentication-Info") != "" {
		t.Fatalf("off: %d %s, Authentication-Info %q", resp.StatusCode, body, resp.Header.Get("Authentication-Info"))
	}
	vendor.stop(t)

	config := filepath.Join(vendorDir, node.ConfigFile)
	text := must[[]byte](t)(os.ReadFile(config))
	if err := os.WriteFile(config, append(text, "\ncompat: {access_tokens: true, legacy_header: true}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, vendorDir)
	resp, body := post(signing, question, "")
	token, ok := httpsig.ParseAuthenticationInfo(resp.Header)
	if resp.StatusCode != http.StatusOK || !ok {
		t.Fatalf("signed: %d %s, Authentication-Info %q", resp.StatusCode, body, resp.Header.Get("Authentication-Info"))
	}
	bearer := "Bearer " + token.Value
	if resp, body := post(guarded, question, bearer); resp.StatusCode != http.StatusOK {
		t.Errorf("question with a token: %d %s", resp.StatusCode, body)
	}
	if resp, body := post(guarded, question, bearer+"x"); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "invalid_access_token") {
		t.Errorf("question with a bad token: %d %s", resp.StatusCode, body)
	}
	// Right after its start the node wants a nonce of its own.
	challenged := func() string {
		t.Helper()
		resp, body := post(guarded, question, legacy(""))
		c, ok := httpsig.ParseChallenge(resp.Header)
		if !ok || c.Code != httpsig.InvalidNonce {
			t.Fatalf("legacy header after a restart: %d %s", resp.StatusCode, body)
		}
		return legacy(c.Nonce)
	}
	if resp, body := post(guarded, question, challenged()); resp.StatusCode != http.StatusOK {
		t.Errorf("question with the legacy header: %d %s", resp.StatusCode, body)
	}
	for name, authorization := range map[string]string{"anonymous": "", "token": bearer, "legacy header": challenged()} {
		if resp, body := post(guarded, envelope, authorization); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "UNAUTHENTICATED") {
			t.Errorf("negotiation, %s: %d %s", name, resp.StatusCode, body)
		}
	}
	if _, body := post(signing, envelope, ""); strings.Contains(body, "UNAUTHENTICATED") {
		t.Errorf("negotiation, signed: %s", body)
	}
}
