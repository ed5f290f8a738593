// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/did/resolver/fetch"
	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/wellknown"
)

const (
	python     = "A2A Python SDK → Treaty"
	javascript = "A2A JavaScript SDK → Treaty"
	question   = "What can I negotiate for here?"
)

// Reasons for rows that are not plain successes.
const (
	twice     = "SDK defect: what it decodes a card to is decoded once more when it is verified, which loses the security schemes. The card as fetched verifies."
	noES256K  = "jose, on which the SDK relies, has no ES256K: it cannot verify what a secp256k1 key signed."
	empty     = "SDK defect: section 8.4.1 keeps required fields that are empty; the SDK leaves them out of what it signs, not of what it publishes. Treaty's own cards have none."
	strangers = "Refused, as intended: strangers have no list of tasks, are sent nothing and do not negotiate."
)

const datasets = `
orders:
  path: orders.csv
  description: Orders of 2025.
  columns:
    region: {type: text, class: business}
    order_value: {type: "decimal(10,2)", class: business}
`

const policy = `
version: 1
datasets:
  orders: {purposes: any, operations: [avg, count], retention_days: 90, min_group_size: 5, call_budget: 50}
`

// stock is a stock A2A client.
type stock struct {
	*peer
	*table
	direction, binding string
}

// TestA2AClients lets the stock clients of A2A talk to nodes: find them, verify their cards, ask them. Nothing in them knows
// of Treaty, so they are strangers; then the same clients stand behind a proxy that signs what passes.
func TestA2AClients(t *testing.T) {
	folder := t.TempDir()
	w, roots, hosts := newSide(t, folder)
	keys := map[string]any{}
	for _, host := range nodeHosts {
		startNode(t, folder, host, hosts, roots, keys)
	}
	proxied := maps.Clone(hosts)
	proxied[nodeHosts[0]+":443"] = startProxy(t, folder, nodeHosts[0], &httpsig.Transport{
		Base:   fetch.NewTransport(fetch.Config{Hosts: hosts, RootCAs: roots}),
		Signer: func() did.Signer { return w.ours["e1"].signer },
	})
	results := &table{name: "a2a", peers: map[string]string{}}
	for _, client := range []struct{ direction, name, program, script string }{
		{javascript, "@a2a-js/sdk", os.Getenv("INTEROP_NODE"), "a2a_client.mjs"},
		{python, "a2a-sdk", os.Getenv("INTEROP_PYTHON"), "a2a_client.py"},
	} {
		run := func(hosts map[string]string) *peer {
			return start(t, filepath.Join(folder, "ca.pem"), map[string]any{"hosts": hosts, "keys": keys}, client.program, client.script)
		}
		stranger, signing := run(hosts), run(proxied)
		results.peers[client.direction] = client.name + " " + stranger.Version
		for _, binding := range []string{wellknown.BindingJSONRPC, wellknown.BindingHTTPJSON} {
			(&stock{stranger, results, client.direction, binding}).ask()
			(&stock{signing, results, client.direction, binding}).askSigned()
		}
	}
	results.report(t, 60)
}

// startProxy stands for a node under its name, signs requests and hands them on. It returns its address.
func startProxy(t *testing.T, folder, host string, over http.RoundTripper) string {
	server := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Transport: over,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "https", Host: host})
		},
	})
	server.TLS = &tls.Config{Certificates: []tls.Certificate{must(tls.LoadX509KeyPair(filepath.Join(folder, "server.pem"), filepath.Join(folder, "server-key.pem")))}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// startNode runs a vendor's node, adds its address to hosts and the key of its card to keys.
func startNode(t *testing.T, folder, host string, hosts map[string]string, roots *x509.CertPool, keys map[string]any) {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	hosts[host+":443"] = l.Addr().String()
	l.Close()
	write := func(name, text string) string {
		path := filepath.Join(folder, host+"-"+name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	profile := "e1"
	if strings.Contains(host, "k1") {
		profile = "k1"
	}
	dir := filepath.Join(folder, host)
	made := must(node.Init(t.Context(), node.InitOptions{
		Dir: dir, Domain: host, Listen: hosts[host+":443"], Hosts: hosts, Allow: []string{ourHost}, Profile: profile,
		Cert: filepath.Join(folder, "server.pem"), Key: filepath.Join(folder, "server-key.pem"), CA: filepath.Join(folder, "ca.pem"),
		HumanKeyOut: filepath.Join(folder, "offline", host+"-human.age"), RecoveryKeyOut: filepath.Join(folder, "offline", host+"-recovery.age"),
		Passphrase: "a passphrase for tests", WorkFactor: 10, Datasets: write("datasets.yaml", datasets), Policy: write("policy.yaml", policy),
		DataPlane: node.DataPlane{DID: "did:wba:data." + host, URL: "https://data." + host + "/mcp"},
	}))
	config := filepath.Join(dir, node.ConfigFile)
	if err := os.WriteFile(config, append(must(os.ReadFile(config)), "\ncompat: {a2a_0_3: true}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	n := must(node.Open(t.Context(), dir, node.Options{Process: "treaty"}))
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- n.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("node %s: %v", host, err)
		}
	})
	raw, _, err := fetch.Get(t.Context(), fetch.NewClient(fetch.Config{Hosts: hosts, RootCAs: roots}), made.Document, 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range must(did.ParseDocument(raw)).Methods() {
		keys[m.ID] = m.Key.JWK()
	}
}

// taskJSON and eventJSON are what is read of the SDKs' renderings.
type taskJSON struct {
	ID, ContextID string
	Status        struct{ State string }
	History       []any
	Artifacts     []struct {
		Parts []struct {
			Text string
			Data struct {
				Agent   string
				Schemas []struct {
					Dataset string
					Columns []struct{ Name, Type string }
				}
			}
		}
	}
}

type eventJSON struct{ Task *taskJSON }

// told says what an answer told.
func told(task *taskJSON) string {
	if task == nil {
		return "no task"
	}
	var text, data string
	for _, a := range task.Artifacts {
		for _, p := range a.Parts {
			text += p.Text
			for _, s := range p.Data.Schemas {
				data += " " + s.Dataset
				for _, c := range s.Columns {
					data += ", " + c.Name + " " + c.Type
				}
			}
		}
	}
	if !strings.Contains(text, "A data contract can be negotiated with me over:\n- orders (order_value decimal(10,2), region text): Orders of 2025.") {
		data += ", not told in words"
	}
	return task.Status.State + data
}

const answer = "TASK_STATE_COMPLETED orders, order_value decimal(10,2), region text"

// do runs a command and describes what came back, or says which error the SDK made of it.
func (s *stock) do(c call, into any, describe func() string) string {
	c["binding"], c["origin"] = s.binding, cmp.Or(c["origin"], any("https://"+nodeHosts[0]))
	err := s.peer.do(c, &struct{ Result any }{into})
	switch {
	case err == nil:
		return describe()
	case strings.Contains(err.Error(), "sign the request with"), strings.Contains(err.Error(), "HTTP Error 401"): // A2A has no name for it
		return "asked to sign"
	case strings.HasSuffix(c["op"].(string), "card"):
		return err.Error()
	}
	name, _, _ := strings.Cut(err.Error(), ":") // the rest is the SDK's wording
	return name
}

func (s *stock) see(feature, want, got, note string) {
	s.row(s.direction, s.binding, feature, want, got, note)
}

// send asks a question and says what the answer told, and the task's id.
func (s *stock) send(more call) (got, id string) {
	var events []eventJSON
	c := call{"op": "send", "text": question}
	maps.Copy(c, more)
	id = "none"
	got = s.do(c, &events, func() string {
		if len(events) != 1 || events[0].Task == nil {
			return fmt.Sprintf("%d events", len(events))
		}
		id = events[0].Task.ID
		return told(events[0].Task)
	})
	return got, id
}

// ask is what a stranger can do.
func (s *stock) ask() {
	var card struct {
		Skills              []any
		SupportedInterfaces []struct{ ProtocolBinding, ProtocolVersion string }
	}
	verified := func() string { return "verified" }
	s.see("agent card", "2 skills, 2 interfaces, A2A 1.0", s.do(call{"op": "card"}, &card, func() string {
		return fmt.Sprintf("%d skills, %d interfaces, A2A %s", len(card.Skills), len(card.SupportedInterfaces), card.SupportedInterfaces[0].ProtocolVersion)
	}), "")
	s.see("agent card: signature", "verified", s.do(call{"op": "card", "verify": true}, &card, verified), "")
	invalid := map[string]string{javascript: "Error: No valid signatures found on agent card.", python: "InvalidSignaturesError: No valid signature found"}[s.direction]
	want, note := "verified", ""
	if s.direction == javascript {
		want, note = invalid, twice
	}
	s.see("agent card: signature, once decoded", want, s.do(call{"op": "card", "verify": true, "decoded": true}, &card, verified), note)
	if s.direction == javascript {
		want, note = invalid, noES256K
	}
	s.see("agent card: signature of a k1 identity", want, s.do(call{"op": "card", "origin": "https://" + nodeHosts[1], "verify": true}, &card, verified), note)
	s.see("agent card: changed, so refused", invalid, s.do(call{"op": "card", "verify": true, "forge": true}, &card, verified), "")

	s.see("agent card: signed by the SDK, verified here", "verified", s.signCard(nil), "")
	want, note = "verified", "" // Python does not publish it either
	if s.direction == javascript {
		want, note = wellknown.ErrBadSignature.Error()+": "+did.ErrBadSignature.Error(), empty
	}
	s.see("agent card: signed by the SDK, with an empty description", want, s.signCard(call{"description": ""}), note)

	got, _ := s.send(call{"streaming": true})
	s.see("plain question, streamed", answer, got, "")
	got, id := s.send(nil)
	s.see("plain question", answer, got, "")
	var task taskJSON
	s.see("get the task", answer, s.do(call{"op": "get", "id": id}, &task, func() string { return told(&task) }), "")
	accepted := func() string { return "accepted" }
	for _, r := range []struct{ feature, want, op, id string }{
		{"get a task that does not exist", "TaskNotFoundError", "get", "no-such-task"},
		{"cancel a finished task", "TaskNotCancelableError", "cancel", id},
		{"subscribe to a finished task", "UnsupportedOperationError", "subscribe", id},
		{"push notifications", "asked to sign", "push", id},
		{"extended card", "asked to sign", "extended", ""},
		{"list tasks", "asked to sign", "list", ""},
	} {
		note := ""
		if r.want == "asked to sign" {
			note = strangers
		}
		s.see(r.feature, r.want, s.do(call{"op": r.op, "id": r.id}, &json.RawMessage{}, accepted), note)
	}
	if s.direction == javascript && s.binding == wellknown.BindingJSONRPC {
		var task taskJSON
		s.see("SDK 0.3.14, of A2A 0.3: plain question, get the task", strings.Replace(answer, "TASK_STATE_COMPLETED", "completed", 1), s.do(call{"op": "old", "text": question}, &task, func() string { return told(&task) }), "")
	}
	got, _ = s.send(envelope())
	s.see("an envelope", "asked to sign", got, strangers)
	bare := envelope()
	delete(bare, "extension")
	got, _ = s.send(bare)
	s.see("an envelope without the extension", "ExtensionSupportRequiredError", got, "")
}

// askSigned is what a known caller can do besides.
func (s *stock) askSigned() {
	got, id := s.send(nil)
	s.see("signed: plain question", answer, got, "")
	var listed struct{ Tasks []*taskJSON }
	s.see("signed: list tasks", answer, s.do(call{"op": "list"}, &listed, func() string {
		for _, t := range listed.Tasks {
			if t.ID == id {
				return told(t)
			}
		}
		return fmt.Sprintf("%d tasks, not its own", len(listed.Tasks))
	}), "")
	var task taskJSON
	for length, want := range []string{"0 messages", "1 messages"} {
		s.see(fmt.Sprintf("signed: get the task with history %d", length), want,
			s.do(call{"op": "get", "id": id, "history": length}, &task, func() string { return fmt.Sprintf("%d messages", len(task.History)) }), "")
	}
	s.askMore(id)
}

// askMore is what the optional parts of A2A give a known caller.
func (s *stock) askMore(id string) {
	var config struct{ ID, TaskID, URL string }
	s.see("signed: push notifications", "https://hook.test/ for the task", s.do(call{"op": "push", "id": id}, &config, func() string {
		if config.ID == "" || config.TaskID != id {
			return fmt.Sprintf("%+v", config)
		}
		return config.URL + " for the task"
	}), "")
	var card struct{ Skills []any }
	s.see("signed: extended card", "2 skills", s.do(call{"op": "extended"}, &card, func() string { return fmt.Sprintf("%d skills", len(card.Skills)) }), "")
}

// signCard lets the SDK sign a card and verifies it.
func (s *stock) signCard(change call) string {
	key := must(did.GenerateKey(did.Ed25519))
	id := must(did.Parse("did:wba:" + ourHost + ":agents:other:e1_" + key.Public().Thumbprint()))
	kid := did.KeyID(id, "signing", key.Public())
	document := must(did.ParseDocument(must(did.BuildDocument(did.DocumentSpec{ID: id, Binding: did.MethodSpec{Key: key.Public()}}))))
	jwk := call{"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": kid, "x": base64.RawURLEncoding.EncodeToString(key.Public().Bytes()), "d": base64.RawURLEncoding.EncodeToString(key.Seed())}
	var card map[string]any
	if err := json.Unmarshal([]byte(otherCard), &card); err != nil {
		return err.Error()
	}
	maps.Copy(card, change)
	var signed json.RawMessage
	return s.do(call{"op": "sign", "card": card, "jwk": jwk}, &signed, func() string {
		if _, err := wellknown.VerifyCard(signed, document, time.Now()); err != nil {
			return err.Error()
		}
		return "verified"
	})
}

// otherCard is the card of an agent that knows nothing of Treaty, with what canonical forms differ over: numbers, characters
// outside ASCII, defaults.
const otherCard = `{
	"name": "Größe <&>", "description": "Another agent.", "version": "1.0", "provider": {"organization": "Other", "url": "https://other.example"},
	"supportedInterfaces": [{"url": "https://other.example/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
	"capabilities": {"streaming": true, "pushNotifications": false, "extensions": [{"uri": "https://other.example/x", "params": {"max": 10, "share": 0.25, "big": 1e21, "list": [true, "\u20ac"]}}]},
	"securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
	"defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
	"skills": [{"id": "talk", "name": "Talk", "description": "Talks.", "tags": ["talk"]}]
}`

// envelope is a message that wants to negotiate.
func envelope() call {
	return call{"text": `{"a":1}`, "extension": wellknown.ExtensionURI, "mediaType": wellknown.EnvelopeMediaType}
}
