// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/did/resolver/fetch"
	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/gateway/anp"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/devca"
)

// negotiate asks the node which way to take, and checks its signed answer as any caller would.
func negotiate(t *testing.T, client *http.Client, vendor *company, id did.DID, signer did.Signer, nonce string) {
	t.Helper()
	target := must[did.DID](t)(did.Parse(vendor.Status().DID))
	body := []byte(`{"intent":{"name":"data.contract","intentTags":["data.contract"]},"callerCapabilities":{"supportedSecurityProfiles":["transport-protected"]}}`)
	call := func(nonce string) (result json.RawMessage, retry string) {
		q := must[[]byte](t)(anp.NewNegotiate(t.Context(), signer, target, "neg-"+nonce, body, httpsig.SignOptions{Created: time.Now(), Nonce: nonce}))
		resp := must[*http.Response](t)(client.Post("https://vendorcorp.test/anp", "application/json", bytes.NewReader(q)))
		defer resp.Body.Close()
		var a struct {
			Result json.RawMessage
			Error  struct {
				Code int
				Data struct{ Details map[string]string }
			}
		}
		if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
			t.Fatal(err)
		}
		if retry = a.Error.Data.Details["nonce"]; a.Error.Code != 0 && retry == "" {
			t.Fatalf("anp.negotiate: %+v", a.Error)
		}
		return a.Result, retry
	}
	result, retry := call(nonce)
	if retry != "" { // this nonce was used
		result, _ = call(retry)
	}
	raw, _, err := fetch.Get(t.Context(), client, target.DocumentURL(), did.MaxDocumentBytes)
	if err != nil {
		t.Fatal(err)
	}
	r, err := anp.CheckResult(result, must[*did.Document](t)(did.ParseDocument(raw)), id, body, time.Now())
	if err != nil || r.Status != anp.StatusAccepted || r.Selected.Capability != "cap.data.contract" || !strings.HasPrefix(r.Selected.URL, "https://vendorcorp.test/a2a") {
		t.Errorf("anp.negotiate: %+v, %v", r, err)
	}
}

type anpAnswer struct {
	ID     string           `json:"id"`
	Result anp.Capabilities `json:"result"`
	Error  *struct {
		Code int `json:"code"`
		Data struct {
			Details map[string]string `json:"details"`
		} `json:"data"`
	} `json:"error"`
}

// TestANP_EndpointOfARealNode calls /anp over TLS: anonymously, with origin proofs by a DID that the node has to resolve, and
// after the operator has denied it.
func TestANP_EndpointOfARealNode(t *testing.T) {
	buyerDir, vendorDir := initPair(t, nil)
	buyerCfg, vendorCfg := must[*node.Config](t)(node.LoadConfig(buyerDir)), must[*node.Config](t)(node.LoadConfig(vendorDir))
	ca := must[*devca.CA](t)(devca.Load(filepath.Join(filepath.Dir(buyerDir), "ca")))
	vendor := start(t, vendorDir)
	client := fetch.NewClient(fetch.Config{Hosts: vendorCfg.Hosts, RootCAs: ca.Pool()})

	// The caller: a DID of buyercorp.test, served by nothing but a web server.
	key := must[did.PrivateKey](t)(did.GenerateKey(did.Secp256k1))
	id := must[did.DID](t)(did.Parse("did:wba:buyercorp.test:agents:analyst:k1_" + key.Public().Thumbprint()))
	signer := must[did.Signer](t)(did.NewSigner(did.KeyID(id, "signing", key.Public()), key))
	unsigned := must[[]byte](t)(did.BuildDocument(did.DocumentSpec{ID: id, Binding: did.MethodSpec{ID: signer.KeyID(), Key: key.Public()}}))
	raw := must[[]byte](t)(did.SignDocument(t.Context(), unsigned, signer, time.Now(), did.DialectSpec))
	listenTLS(t, buyerCfg.Listen, must[tls.Certificate](t)(ca.Issue(devca.Leaf{Names: []string{"buyercorp.test"}})), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if "https://buyercorp.test"+r.URL.Path != id.DocumentURL() {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(raw)
	}))

	docs := must[[]httpapi.ResolveResult](t)(vendor.Resolve(t.Context(), id.String()))
	if docs[0].Profile != "k1" {
		t.Fatalf("%+v", docs[0])
	}
	send := func(q map[string]any) anpAnswer {
		t.Helper()
		body := must[[]byte](t)(json.Marshal(q))
		resp := must[*http.Response](t)(client.Post("https://vendorcorp.test/anp", "application/json", bytes.NewReader(body)))
		defer resp.Body.Close()
		var a anpAnswer
		if data := must[[]byte](t)(io.ReadAll(resp.Body)); resp.StatusCode != http.StatusOK || json.Unmarshal(data, &a) != nil {
			t.Fatalf("status %d: %s", resp.StatusCode, data)
		}
		return a
	}
	nonce := ""
	request := func(operation string) map[string]any {
		meta := map[string]any{"profile": anp.CoreProfile, "security_profile": anp.TransportProtected}
		params := map[string]any{"meta": meta, "body": map[string]any{}}
		if operation != "" {
			meta["sender_did"], meta["operation_id"], meta["target"] = id.String(), operation, map[string]string{"kind": "agent", "did": vendor.Status().DID}
			proof := must[httpsig.Auth](t)(httpsig.SignOrigin(t.Context(), httpsig.OriginRequest{
				Method: "anp.get_capabilities", Meta: must[[]byte](t)(json.Marshal(meta)), Body: []byte("{}"),
			}, signer, httpsig.SignOptions{Created: time.Now(), Nonce: nonce}))
			params["auth"] = map[string]any{"scheme": httpsig.OriginScheme, "origin_proof": proof}
		}
		return map[string]any{"jsonrpc": "2.0", "id": "1", "method": "anp.get_capabilities", "params": params}
	}

	a := send(request(""))
	if a.Error != nil || a.ID != "1" || a.Result.ServiceDID != "did:wba:vendorcorp.test" || !slices.Contains(a.Result.Profiles, anp.CoreProfile) {
		t.Errorf("anonymous: %+v", a)
	}
	if told, ok := a.Result.Treaty.(map[string]any); !ok || told["agent"] != vendor.Status().DID {
		t.Errorf("what the node speaks: %+v", a.Result.Treaty)
	}
	// The node has just started and does not know which nonces were used before: it gives one of its own.
	first := request("op-1")
	if a = send(first); a.Error == nil || a.Error.Code != 1005 || a.Error.Data.Details["nonce"] == "" {
		t.Fatalf("proved with an own nonce right after the start: %+v", a)
	}
	nonce = a.Error.Data.Details["nonce"]
	first = request("op-1")
	if a = send(first); a.Error != nil {
		t.Fatalf("proved: %+v", a.Error)
	}
	if a := send(first); a.Error != nil {
		t.Errorf("repeated: %+v", a.Error)
	}
	negotiate(t, client, vendor, id, signer, nonce)
	vendor.change(t, httpapi.TrustDeny, "buyercorp.test")
	if a := send(request("op-2")); a.Error == nil || a.Error.Code != 1006 {
		t.Errorf("a denied sender: %+v", a)
	}

	doc, _, err := fetch.Get(t.Context(), client, must[did.DID](t)(did.Parse(vendor.Status().DID)).DocumentURL(), did.MaxDocumentBytes)
	if err != nil {
		t.Fatal(err)
	}
	services := must[*did.Document](t)(did.ParseDocument(doc)).Services("ANPMessageService")
	if len(services) != 1 || services[0].Endpoint != "https://vendorcorp.test/anp" || services[0].ServiceDID != "did:wba:vendorcorp.test" {
		t.Errorf("services %+v", services)
	}
}
