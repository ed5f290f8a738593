// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"

	"github.com/treaty-node/treaty/wellknown"
)

// A client of A2A 0.3 reads its card, asks, and reads the task again.
func TestLegacyClient(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Legacy = true })
	doc := must(LegacyDocument(b.card.Raw()))
	card := must(a2av0.NewAgentCardParser()(doc.Body))
	if doc.Path != wellknown.PathLegacyCard || strings.Contains(string(doc.Body), "signatures") || len(card.SupportedInterfaces) != 1 || card.SupportedInterfaces[0].ProtocolVersion != "0.3.0" {
		t.Fatalf("%s", doc.Body)
	}
	for _, caller := range []*party{nil, &buyer} {
		client := must(a2aclient.NewFromCard(t.Context(), card, a2av0.WithJSONRPCTransport(a2av0.JSONRPCTransportConfig{Client: b.as(caller)})))
		result, err := client.SendMessage(t.Context(), &sdk.SendMessageRequest{Message: sdk.NewMessage(sdk.MessageRoleUser, sdk.NewTextPart("what can be negotiated?"))})
		if err != nil {
			t.Fatal(err)
		}
		task, ok := result.(*sdk.Task)
		if !ok || task.Status.State != sdk.TaskStateCompleted || !strings.Contains(task.Artifacts[0].Parts[0].Text(), "orders") {
			t.Fatalf("%#v", result)
		}
		again, err := client.GetTask(t.Context(), &sdk.GetTaskRequest{ID: task.ID})
		if err != nil || again.ID != task.ID {
			t.Fatalf("%v %v", again, err)
		}
	}
}

// What 0.3 has no words for is refused in its words, and negotiation is spoken in 1.0 only.
func TestLegacyRefusals(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Legacy = true })
	old := http.Header{"A2A-Version": nil}
	message := func(part string) string {
		return `{"message":{"kind":"message","messageId":"m","role":"user","parts":[` + part + `]}}`
	}
	text := message(`{"kind":"text","text":"hello"}`)
	for _, c := range []struct {
		name, body string
		header     http.Header
		code       int
	}{
		{"method of 1.0", rpc("SendMessage", text), old, -32601},
		{"method of 0.3 under 1.0", rpc("message/send", text), nil, -32601},
		{"no such task", rpc("tasks/get", `{"id":"x"}`), old, -32001},
		{"push", rpc("tasks/pushNotificationConfig/set", `{"taskId":"x","pushNotificationConfig":{"url":"https://127.0.0.1/"}}`), old, -32003},
		{"envelope", rpc("message/send", message(`{"kind":"file","file":{"bytes":"e30=","mimeType":"`+wellknown.EnvelopeMediaType+`"}}`)), old, -32008},
		{"version 0.30", rpc("message/send", text), http.Header{"A2A-Version": {"0.30"}}, -32009},
		{"two versions", rpc("message/send", text), http.Header{"A2A-Version": {"0.3", "1.0"}}, -32009},
		{"fine", rpc("message/send", text), http.Header{"A2A-Version": {"0.3.0"}}, 0},
	} {
		w := b.ask(&buyer, "POST", "/a2a", c.body, c.header)
		var answer struct{ Error struct{ Code int } }
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Error.Code != c.code {
			t.Errorf("%s: got %d, want %d: %s", c.name, answer.Error.Code, c.code, w.Body)
		}
	}
	if len(b.received) > 0 {
		t.Error("an envelope arrived over 0.3")
	}
}
