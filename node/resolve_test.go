// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/ledger"
)

// publish replaces one of the documents in a node's folder.
func publish(t *testing.T, dir, name string, spec did.DocumentSpec, key did.PrivateKey, created time.Time) {
	t.Helper()
	signer, err := did.NewSigner(spec.Binding.ID, key)
	if err != nil {
		t.Fatal(err)
	}
	unsigned, err := did.BuildDocument(spec)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := did.SignDocument(t.Context(), unsigned, signer, created, did.DialectSpec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, node.DocumentsDir, name), raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// edit changes a node's configuration as its operator would.
func edit(t *testing.T, dir, old, text string) {
	t.Helper()
	path := filepath.Join(dir, node.ConfigFile)
	data, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(data), old) {
		t.Fatalf("%s has no %q (%v)", path, old, err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), old, text, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestResolve_ChangedKeysAreHeldUntilConfirmed replaces the key of a bare-domain DID, which nothing but the web server
// vouches for.
func TestResolve_ChangedKeysAreHeldUntilConfirmed(t *testing.T) {
	buyerDir, vendorDir := initPair(t, nil)
	const id = "did:wba:vendorcorp.test"
	vendor, buyer := start(t, vendorDir), start(t, buyerDir)
	if _, err := buyer.Resolve(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	vendor.stop(t)
	buyer.stop(t) // forgets its cache, not its pins
	key, err := did.GenerateKey(did.Ed25519)
	if err != nil {
		t.Fatal(err)
	}
	bare, err := did.Parse(id)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, vendorDir, "service.json", did.DocumentSpec{ID: bare, Binding: did.MethodSpec{ID: did.KeyID(bare, "service", key.Public()), Key: key.Public()}}, key, time.Now().Add(2*time.Second))
	start(t, vendorDir)
	buyer = start(t, buyerDir)

	var e *httpapi.Error
	if _, err := buyer.Resolve(t.Context(), id); !errors.As(err, &e) || e.Code != "KEY_CHANGED" || !strings.Contains(e.Hint, "treaty resolve --confirm sha-256:") {
		t.Fatalf("a changed key: %v", err)
	}
	h, err := buyer.History(t.Context(), id)
	if err != nil || len(h.Versions) != 2 || h.Versions[0].State != "accepted" || h.Versions[1].State != "held" || h.Versions[1].Keys[0].Thumbprint != key.Public().Thumbprint() {
		t.Fatalf("history %+v (%v)", h, err)
	}
	if _, err := buyer.Confirm(t.Context(), httpapi.ConfirmRequest{DID: id, Hash: h.Versions[0].Hash.String()}); kind(err) != httpapi.KindNotFound {
		t.Errorf("confirming a version that is not held: %v", err)
	}
	after, err := buyer.Confirm(t.Context(), httpapi.ConfirmRequest{DID: id, Hash: h.Versions[1].Hash.String()})
	if err != nil || len(after.Versions) != 2 || after.Versions[1].State != "accepted" {
		t.Fatalf("confirmed: %+v (%v)", after, err)
	}
	if _, err := buyer.Resolve(t.Context(), id); err != nil {
		t.Errorf("after the confirmation: %v", err)
	}
	events, err := buyer.Events(t.Context(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	confirmed := 0
	for _, ev := range events {
		if ev.Type == ledger.KeyConfirmed {
			confirmed++
		}
	}
	if confirmed != 1 {
		t.Errorf("%d confirmations in the log", confirmed)
	}
}

func TestResolve_KeyChangesAcceptedByConfigurationAreReported(t *testing.T) {
	buyerDir, vendorDir := initPair(t, nil)
	edit(t, buyerDir, "trust:", "resolver: {accept_key_changes: true}\ntrust:")
	const id = "did:wba:vendorcorp.test"
	vendor, buyer := start(t, vendorDir), start(t, buyerDir)
	if _, err := buyer.Resolve(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	vendor.stop(t)
	buyer.stop(t)
	key, err := did.GenerateKey(did.Ed25519)
	if err != nil {
		t.Fatal(err)
	}
	bare, _ := did.Parse(id)
	publish(t, vendorDir, "service.json", did.DocumentSpec{ID: bare, Binding: did.MethodSpec{ID: did.KeyID(bare, "service", key.Public()), Key: key.Public()}}, key, time.Now().Add(2*time.Second))
	start(t, vendorDir)
	buyer = start(t, buyerDir)
	r, err := buyer.Resolve(t.Context(), id)
	if err != nil || !r[0].KeyChanged {
		t.Fatalf("%+v (%v)", r, err)
	}
}

func TestConfig_DNSOverHTTPS(t *testing.T) {
	buyerDir, _ := initPair(t, nil)
	edit(t, buyerDir, "trust:", "resolver: {dns_over_https: \"https://dns.example/dns-query\"}\ntrust:")
	cfg, err := node.LoadConfig(buyerDir)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := cfg.FetchConfig(buyerDir)
	if err != nil || guard.Lookup == nil {
		t.Fatalf("no look-up over HTTPS (%v)", err)
	}
	edit(t, buyerDir, "https://dns.example/dns-query", "http://dns.example/dns-query")
	if _, err := node.Open(t.Context(), buyerDir, node.Options{Process: "treaty"}); kind(err) != httpapi.KindUsage || !strings.Contains(err.Error(), "dns_over_https") {
		t.Errorf("a resolver without TLS: %v", err)
	}
}
