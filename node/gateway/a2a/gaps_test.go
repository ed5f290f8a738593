// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv/taskstore"

	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/wellknown"
)

func callerContext(p *party) context.Context {
	return httpsig.WithCaller(context.Background(), httpsig.Caller{DID: p.id})
}

func updateRequest(s *taskstore.StoredTask) *taskstore.UpdateRequest {
	return &taskstore.UpdateRequest{Task: s.Task, PrevVersion: s.Version}
}

var (
	declared = http.Header{"A2A-Extensions": {wellknown.ExtensionURI}}

	envelopeJSON = fmt.Sprintf(`{"messageId":"m","role":"ROLE_USER","extensions":[%q],"metadata":{%q:"x"},"parts":[{"raw":"eyJhIjoxfQ==","mediaType":%q}]}`,
		wellknown.ExtensionURI, wellknown.ExtensionURI, wellknown.EnvelopeMediaType)
	questionJSON = `{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hello"}]}`
)

// sendBody wraps a message for the binding of the target.
func sendBody(target, message string) string {
	if strings.HasPrefix(target, "/a2a/v1/") {
		return `{"message":` + message + `}`
	}
	return rpc("SendMessage", `{"message":`+message+`}`)
}

func rpc(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, params)
}

// outcome reads the A2A error of an answer: JSON-RPC's code, or ErrorInfo's reason; "" for none.
func outcome(t *testing.T, body []byte) (reason, text string) {
	t.Helper()
	var answer struct {
		Error *struct {
			Message string           `json:"message"`
			Data    []map[string]any `json:"data"`
			Details []map[string]any `json:"details"`
		} `json:"error"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if answer.Error == nil {
		return "", ""
	}
	for _, d := range append(answer.Error.Data, answer.Error.Details...) {
		if d["@type"] == "type.googleapis.com/google.rpc.ErrorInfo" && d["domain"] == "a2a-protocol.org" {
			reason, _ = d["reason"].(string)
		}
	}
	return reason, answer.Error.Message
}

// Everything that the library leaves open, on both bindings.
func TestGaps(t *testing.T) {
	const rest = "/a2a/v1/message:send"
	big := strings.Repeat(" ", DefaultMaxBody+1)
	deep := strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000)
	message := func(change func(m map[string]any)) string {
		var m map[string]any
		if err := json.Unmarshal([]byte(envelopeJSON), &m); err != nil {
			t.Fatal(err)
		}
		change(m)
		return string(must(json.Marshal(m)))
	}
	otherPart := map[string]any{"text": "hello"}

	b := newBench(t)
	for _, test := range []struct {
		name    string
		caller  *party
		message string // wrapped for both bindings
		header  http.Header
		want    string // reason, "" for success
	}{
		{"an envelope", &buyer, envelopeJSON, declared, ""},
		{"a question", nil, questionJSON, nil, ""},
		{"a question of a signed caller", &buyer, questionJSON, nil, ""},

		{"extensions in one header, with a comma", &buyer, envelopeJSON, http.Header{"A2A-Extensions": {"https://example.com/x, " + wellknown.ExtensionURI}}, ""},
		{"extensions in two headers", &buyer, envelopeJSON, http.Header{"A2A-Extensions": {"https://example.com/x", wellknown.ExtensionURI}}, ""},
		{"extension not declared", &buyer, envelopeJSON, nil, "EXTENSION_SUPPORT_REQUIRED"},
		{"extension of another version", &buyer, envelopeJSON, http.Header{"A2A-Extensions": {strings.TrimSuffix(wellknown.ExtensionURI, "1") + "2"}}, "EXTENSION_SUPPORT_REQUIRED"},
		{"extension not named in the message", &buyer, message(func(m map[string]any) { delete(m, "extensions") }), declared, "EXTENSION_SUPPORT_REQUIRED"},
		{"extension named, no envelope", &buyer, message(func(m map[string]any) { m["parts"] = []any{otherPart} }), declared, "INVALID_PARAMS"},
		{"envelope and another part", &buyer, message(func(m map[string]any) { m["parts"] = append(m["parts"].([]any), otherPart) }), declared, "INVALID_PARAMS"},
		{"two envelopes", &buyer, message(func(m map[string]any) { m["parts"] = append(m["parts"].([]any), m["parts"].([]any)...) }), declared, "INVALID_PARAMS"},
		{"envelope as text", &buyer, message(func(m map[string]any) {
			m["parts"] = []any{map[string]any{"text": "{}", "mediaType": wellknown.EnvelopeMediaType}}
		}), declared, "INVALID_PARAMS"},
		{"empty envelope", &buyer, message(func(m map[string]any) {
			m["parts"] = []any{map[string]any{"raw": "", "mediaType": wellknown.EnvelopeMediaType}}
		}), declared, "INVALID_PARAMS"},
		{"envelope of an anonymous caller", nil, envelopeJSON, declared, "UNAUTHENTICATED"},

		{"version 99.0", nil, questionJSON, http.Header{"A2A-Version": {"99.0"}}, "VERSION_NOT_SUPPORTED"},
		{"version 0.3", nil, questionJSON, http.Header{"A2A-Version": {"0.3"}}, "VERSION_NOT_SUPPORTED"},
		{"no version is 0.3", nil, questionJSON, http.Header{"A2A-Version": nil}, "VERSION_NOT_SUPPORTED"},
		{"two versions", nil, questionJSON, http.Header{"A2A-Version": {"1.0", "1.0"}}, "VERSION_NOT_SUPPORTED"},
		{"version 1.0x", nil, questionJSON, http.Header{"A2A-Version": {"1.0x"}}, "VERSION_NOT_SUPPORTED"},
		{"version with patch", nil, questionJSON, http.Header{"A2A-Version": {"1.0.3"}}, ""},

		{"no content type", nil, questionJSON, http.Header{"Content-Type": nil}, "CONTENT_TYPE_NOT_SUPPORTED"},
		{"text/plain", nil, questionJSON, http.Header{"Content-Type": {"text/plain"}}, "CONTENT_TYPE_NOT_SUPPORTED"},
		{"other charset", nil, questionJSON, http.Header{"Content-Type": {"application/json; charset=utf-16"}}, "CONTENT_TYPE_NOT_SUPPORTED"},
		{"charset named", nil, questionJSON, http.Header{"Content-Type": {"application/json; charset=UTF-8"}}, ""},
		{"two content types", nil, questionJSON, http.Header{"Content-Type": {"application/json", "text/plain"}}, "CONTENT_TYPE_NOT_SUPPORTED"},

		{"duplicate member", nil, strings.Replace(questionJSON, `"role"`, `"messageId":"n","role"`, 1), nil, "INVALID_REQUEST"},
		{"case variant", nil, strings.Replace(questionJSON, `"role"`, `"MESSAGEID":"n","role"`, 1), nil, "INVALID_REQUEST"},
		{"case variant by folding", nil, strings.Replace(questionJSON, `"role"`, `"me\u017f\u017fageId":"n","role"`, 1), nil, "INVALID_REQUEST"},
		{"case variant in a part", nil, strings.Replace(questionJSON, `"text"`, `"Raw":"","text"`, 1), nil, "INVALID_REQUEST"},
		{"case variants are free in metadata", nil, strings.Replace(questionJSON, `"role"`, `"metadata":{"MESSAGEID":"n"},"role"`, 1), nil, ""},
		{"unknown members are ignored", nil, strings.Replace(questionJSON, `"role"`, `"later":{"x":[1]},"role"`, 1), nil, ""},
		{"names of the protobuf definition", nil, strings.Replace(questionJSON, "messageId", "message_id", 1), nil, ""},
		{"one member under both names", nil, strings.Replace(questionJSON, `"role"`, `"message_id":"n","role"`, 1), nil, "INVALID_REQUEST"},
		{"one member under both names, in an unknown one", nil, strings.Replace(questionJSON, `"role"`, `"later":{"task_id":"a","taskId":"b"},"role"`, 1), nil, "INVALID_REQUEST"},
		{"duplicate in metadata", nil, strings.Replace(questionJSON, `"role"`, `"metadata":{"a":1,"a":2},"role"`, 1), nil, "INVALID_REQUEST"},
		{"number beyond float64", nil, strings.Replace(questionJSON, `"role"`, `"metadata":{"a":9007199254740993},"role"`, 1), nil, "INVALID_REQUEST"},
		{"too deep", nil, strings.Replace(questionJSON, `"role"`, `"metadata":`+deep+`,"role"`, 1), nil, "INVALID_REQUEST"},
		{"invalid UTF-8", nil, strings.Replace(questionJSON, "hello", "\xff", 1), nil, "PARSE_ERROR"},
		{"broken JSON", nil, `{"messageId"`, nil, "PARSE_ERROR"},

		{"no messageId", nil, `{"role":"ROLE_USER","parts":[{"text":"x"}]}`, nil, "INVALID_PARAMS"},
		{"long messageId", nil, `{"messageId":"` + strings.Repeat("x", 257) + `","role":"ROLE_USER","parts":[{"text":"x"}]}`, nil, "INVALID_PARAMS"},
		{"no role", nil, `{"messageId":"m","parts":[{"text":"x"}]}`, nil, "INVALID_PARAMS"},
		{"agent's role", nil, `{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]}`, nil, "INVALID_PARAMS"},
		{"no parts", nil, `{"messageId":"m","role":"ROLE_USER","parts":[]}`, nil, "INVALID_PARAMS"},
		{"null part", nil, `{"messageId":"m","role":"ROLE_USER","parts":[null]}`, nil, "INVALID_PARAMS"},
		{"null message", nil, `null`, nil, "INVALID_PARAMS"},
		{"too many parts", nil, `{"messageId":"m","role":"ROLE_USER","parts":[` + strings.Repeat(`{"text":"x"},`, maxParts) + `{"text":"x"}]}`, nil, "INVALID_PARAMS"},
		{"question as a file", nil, `{"messageId":"m","role":"ROLE_USER","parts":[{"url":"https://example.com/x"}]}`, nil, "CONTENT_TYPE_NOT_SUPPORTED"},
		{"question about another's task", nil, `{"messageId":"m","role":"ROLE_USER","taskId":"t","parts":[{"text":"x"}]}`, nil, "TASK_NOT_FOUND"},
	} {
		for _, target := range []string{"/a2a", "/a2a/", rest, rest + "/"} {
			t.Run(test.name+" "+target, func(t *testing.T) {
				b.received = nil
				w := b.ask(test.caller, "POST", target, sendBody(target, test.message), test.header)
				reason, text := outcome(t, w.Body.Bytes())
				if reason != test.want || (test.want == "") != strings.Contains(w.Body.String(), `"task"`) {
					t.Fatalf("got %q, want %q: %s", reason, test.want, w.Body)
				}
				if (reason == "") != (w.Code == 200) && strings.HasPrefix(target, "/a2a/v1") || test.header["Content-Type"] != nil && reason != "" && w.Code != 200 && w.Code != 415 {
					t.Errorf("status %d", w.Code)
				}
				if w.Code == http.StatusUnauthorized && (w.Header().Get("WWW-Authenticate") == "" || w.Header().Get("Accept-Signature") == "") {
					t.Errorf("401 without a challenge: %v", w.Header())
				}
				for _, leak := range []string{"Go ", "json:", "struct", "a2a.", ".go"} {
					if strings.Contains(text, leak) {
						t.Errorf("error text %q names internals", text)
					}
				}
				if moved := len(b.received) > 0; moved != (test.want == "" && test.message == envelopeJSON) {
					t.Errorf("negotiator was reached: %v", moved)
				}
				if echoed := w.Header().Get("A2A-Extensions"); (echoed == wellknown.ExtensionURI) != (len(b.received) > 0) {
					t.Errorf("activated extensions %q", echoed)
				}
			})
		}
	}

	for _, test := range []struct {
		name, method, target, body string
		header                     http.Header
		status                     int
		want                       string
	}{
		{"rpc: too large", "POST", "/a2a", big, nil, 413, "INVALID_REQUEST"},
		{"rest: too large", "POST", rest, big, nil, 413, "INVALID_REQUEST"},
		{"rpc: GET", "GET", "/a2a", "", nil, 405, "METHOD_NOT_FOUND"},
		{"rpc: empty body", "POST", "/a2a", "", http.Header{"Content-Type": {"application/json"}}, 200, "PARSE_ERROR"},
		{"rpc: batch", "POST", "/a2a", "[" + rpc("SendMessage", "{}") + "]", nil, 200, "INVALID_REQUEST"},
		{"rpc: case variant of method", "POST", "/a2a", `{"jsonrpc":"2.0","id":1,"method":"GetTask","Method":"ListTasks","params":{}}`, nil, 200, "INVALID_REQUEST"},
		{"rpc: version of JSON-RPC", "POST", "/a2a", `{"jsonrpc":"1.0","id":1,"method":"GetTask","params":{}}`, nil, 200, "INVALID_REQUEST"},
		{"rpc: object as id", "POST", "/a2a", `{"jsonrpc":"2.0","id":{},"method":"GetTask","params":{}}`, nil, 200, "INVALID_REQUEST"},
		{"rpc: unknown method", "POST", "/a2a", rpc("DropTables", "{}"), nil, 200, "METHOD_NOT_FOUND"},
		{"rpc: method of 0.3", "POST", "/a2a", rpc("message/send", "{}"), nil, 200, "METHOD_NOT_FOUND"},
		{"rpc: no params", "POST", "/a2a", `{"jsonrpc":"2.0","id":1,"method":"GetTask"}`, nil, 200, "PARSE_ERROR"},
		{"rpc: params of the wrong type", "POST", "/a2a", rpc("GetTask", `{"id":5}`), nil, 200, "INVALID_PARAMS"},
		{"rpc: no id of a task", "POST", "/a2a", rpc("GetTask", `{}`), nil, 200, "TASK_NOT_FOUND"},
		{"rpc: push configuration", "POST", "/a2a", rpc("CreateTaskPushNotificationConfig", `{"taskId":"t","url":"http://169.254.169.254/"}`), nil, 200, "PUSH_NOTIFICATION_NOT_SUPPORTED"},
		{"rpc: push in a message", "POST", "/a2a", rpc("SendMessage", `{"message":`+questionJSON+`,"configuration":{"taskPushNotificationConfig":{"url":"http://169.254.169.254/"}}}`), nil, 200, "PUSH_NOTIFICATION_NOT_SUPPORTED"},
		{"rpc: extended card", "POST", "/a2a", rpc("GetExtendedAgentCard", `{}`), nil, 200, "UNSUPPORTED_OPERATION"},
		{"rpc: stream of nothing", "POST", "/a2a", rpc("SubscribeToTask", `{"id":"x"}`), nil, 200, "TASK_NOT_FOUND"},
		{"rpc: streamed message without parts", "POST", "/a2a", rpc("SendStreamingMessage", `{"message":{"messageId":"m","role":"ROLE_USER"}}`), nil, 200, "INVALID_PARAMS"},
		{"rest: a2a+json", "POST", rest, sendBody(rest, questionJSON), http.Header{"Content-Type": {"application/a2a+json"}}, 200, ""},
		{"rest: version in the query", "GET", "/a2a/v1/tasks/x?A2A-Version=1.0", "", http.Header{"A2A-Version": nil}, 404, "TASK_NOT_FOUND"},
		{"rest: unknown path", "GET", "/a2a/v1/tables", "", nil, 404, "METHOD_NOT_FOUND"},
		{"rest: wrong method", "DELETE", "/a2a/v1/tasks", "", nil, 405, "METHOD_NOT_FOUND"},
		{"rest: double slash", "GET", "/a2a/v1//tasks", "", nil, 404, "METHOD_NOT_FOUND"},
		{"rest: dots", "GET", "/a2a/v1/x/../tasks", "", nil, 404, "METHOD_NOT_FOUND"},
		{"rest: encoded slash", "GET", "/a2a/v1/tasks/a%2Fb", "", nil, 404, "METHOD_NOT_FOUND"},
		{"rest: other place", "GET", "/a2a/v2/tasks", "", nil, 404, "METHOD_NOT_FOUND"},
		{"rest: stream of nothing", "POST", "/a2a/v1/tasks/x:subscribe", "", nil, 404, "TASK_NOT_FOUND"},
		{"rest: cancel nothing", "POST", "/a2a/v1/tasks/x:cancel", "", nil, 404, "TASK_NOT_FOUND"},
		{"rest: action that is none", "POST", "/a2a/v1/tasks/x:sell", "", nil, 400, "INVALID_REQUEST"},
		{"rest: push configurations", "GET", "/a2a/v1/tasks/x/pushNotificationConfigs", "", nil, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED"},
		{"rest: extended card", "GET", "/a2a/v1/extendedAgentCard", "", nil, 400, "UNSUPPORTED_OPERATION"},
		{"rest: negative history", "GET", "/a2a/v1/tasks/x?historyLength=-1", "", nil, 400, "INVALID_PARAMS"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := b.ask(nil, test.method, test.target, test.body, test.header)
			reason, text := outcome(t, w.Body.Bytes())
			if w.Code != test.status || reason != test.want {
				t.Errorf("got %d %q, want %d %q: %s", w.Code, reason, test.status, test.want, w.Body)
			}
			if ct := w.Header().Get("Content-Type"); ct != "application/json" {
				t.Errorf("content type %q", ct)
			}
			if strings.Contains(text, "Go ") || strings.Contains(text, "json:") {
				t.Errorf("error text %q names internals", text)
			}
		})
	}
}

// A JSON-RPC error answers the request it belongs to.
func TestErrorsKeepTheID(t *testing.T) {
	b := newBench(t)
	for body, header := range map[string]http.Header{
		rpc("Nothing", "{}"):          nil,
		rpc("GetTask", `{"id":5}`):    nil,
		rpc("SendMessage", `{"x":1}`): {"A2A-Version": {"9.9"}},
	} {
		w := b.ask(nil, "POST", "/a2a", body, header)
		if !strings.Contains(w.Body.String(), `"id":7`) {
			t.Errorf("%s: %s", body, w.Body)
		}
	}
}

// A negotiator's reply that cannot be a task is our fault, and says nothing to the peer.
func TestBadReplyIsInternal(t *testing.T) {
	for _, r := range []Reply{{}, {TaskID: "t", ContextID: "c", State: "secret"}, {TaskID: "t", State: Working}} {
		if task, err := render(r); err == nil {
			t.Errorf("%+v rendered as %v", r, task)
		}
	}
}

// Members come to the library under the names it knows; what is the sender's own stays as it is.
func TestProtoNames(t *testing.T) {
	for in, want := range map[string]string{
		`{"id":1,"params":{"history_length":0,"context_id":"a_b","page_token":"x_y"}}`: `{"id":1,"params":{"historyLength":0,"contextId":"a_b","pageToken":"x_y"}}`,
		`{"message":{"metadata":{"message_id":1},"parts":[{"data":{"task_id":[1]}}]}}`: `{"message":{"metadata":{"message_id":1},"parts":[{"data":{"task_id":[1]}}]}}`,
		`{"message":{"message_id":"m","metadata":{"task_id":{"a_b":1e2}},"a_b":"é"}}`:  `{"message":{"messageId":"m","metadata":{"task_id":{"a_b":1e2}},"a_b":"é"}}`,
		`{"history__length":1,"_":2,"history_length_":3,"message_Id":4}`:               `{"history__length":1,"_":2,"history_length_":3,"message_Id":4}`,
	} {
		body, _, err := checkJSON([]byte(in), DefaultMaxBody)
		if got := strings.TrimSpace(string(body)); err != nil || got != want {
			t.Errorf("%s\n got %s (%v)\nwant %s", in, got, err, want)
		}
	}
}

// What checkJSON passes means the same to the library's folding decoder as to an exact one.
func FuzzCheckJSON(f *testing.F) {
	f.Add([]byte(sendBody("/a2a", envelopeJSON)))
	f.Add([]byte(`{"params":{"message":{"messageId":"a","MESSAGEID":"b"}}}`))
	f.Add([]byte(`{"params":{"message":{"me\u017fsageId":"b"}}}`))
	f.Add([]byte(`{"params":{"message":{"message_id":"a","metadata":{"message_id":[{}]},"parts":[{"text":"message_id"}]}}}`))
	f.Add([]byte(`{"params":{"message":{"message_id":"a","messageId":"b"}}}`))
	f.Add([]byte(`{"params":{"message":{"messageId":"a","metadata":{"MessageID":1}}},"ID":3}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		data, _, err := checkJSON(data, DefaultMaxBody)
		if err != nil {
			return
		}
		var folded struct {
			Params struct {
				Message sdk.Message `json:"message"`
			} `json:"params"`
		}
		if json.Unmarshal(data, &folded) != nil {
			return
		}
		var exact map[string]json.RawMessage
		for _, name := range []string{"params", "message", "messageId"} {
			exact = nil
			if json.Unmarshal(data, &exact) != nil || exact[name] == nil {
				if folded.Params.Message.ID != "" {
					t.Fatalf("%q is not there, and messageId is %q", name, folded.Params.Message.ID)
				}
				return
			}
			data = exact[name]
		}
		var id string
		if json.Unmarshal(data, &id) == nil && id != folded.Params.Message.ID {
			t.Fatalf("messageId is %q, the library reads %q", id, folded.Params.Message.ID)
		}
	})
}
