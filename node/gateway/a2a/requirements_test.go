// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/wellknown"
)

// object is a JSON object as a client that knows no type of ours reads it.
type object = map[string]any

// wireClient speaks one binding with plain HTTP bodies and the gateway of a node behind it.
type wireClient struct {
	*pushBench
	t       *testing.T
	binding string
	n       int
}

// answerOnWire is what came back: the result, or the error with its reason.
type answerOnWire struct {
	status int
	header http.Header
	result object
	fault  object
	reason string
	events []object // of a stream
}

// routes are the operations on HTTP+JSON: method and path, in which {x} is a parameter.
var routes = map[string][2]string{
	"SendMessage": {"POST", "/message:send"}, "SendStreamingMessage": {"POST", "/message:stream"},
	"GetTask": {"GET", "/tasks/{id}"}, "ListTasks": {"GET", "/tasks"}, "CancelTask": {"POST", "/tasks/{id}:cancel"}, "SubscribeToTask": {"POST", "/tasks/{id}:subscribe"},
	"CreateTaskPushNotificationConfig": {"POST", "/tasks/{taskId}/pushNotificationConfigs"}, "GetTaskPushNotificationConfig": {"GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"},
	"ListTaskPushNotificationConfigs": {"GET", "/tasks/{taskId}/pushNotificationConfigs"}, "DeleteTaskPushNotificationConfig": {"DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"},
	"GetExtendedAgentCard": {"GET", "/extendedAgentCard"},
}

// call runs an operation as the caller.
func (c *wireClient) call(caller *party, operation string, params object, header http.Header) answerOnWire {
	c.t.Helper()
	method, target, body := "POST", "/a2a", rpc(operation, marshal(params))
	if c.binding == wellknown.BindingHTTPJSON {
		route := routes[operation]
		method, target, body = route[0], "/a2a/v1"+route[1], ""
		query, rest := url.Values{}, object{}
		for name, value := range params {
			if place := "{" + name + "}"; strings.Contains(target, place) {
				target = strings.Replace(target, place, fmt.Sprint(value), 1)
			} else {
				query.Set(name, fmt.Sprint(value))
				rest[name] = value
			}
		}
		if method == "POST" && len(rest) > 0 {
			body = marshal(rest)
		} else if len(query) > 0 {
			target += "?" + query.Encode()
		}
	}
	w := c.ask(caller, method, target, body, header)
	a := answerOnWire{status: w.Code, header: w.Header()}
	if strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
		lines := bufio.NewScanner(w.Body)
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				a.events = append(a.events, c.unwrap([]byte(data)))
			}
		}
		return a
	}
	raw := bytes.TrimSpace(w.Body.Bytes())
	if len(raw) == 0 {
		return a
	}
	a.reason, _ = outcome(c.t, raw)
	var whole object
	if err := json.Unmarshal(raw, &whole); err != nil {
		c.t.Fatalf("%v: %s", err, raw)
	}
	a.fault, _ = whole["error"].(object)
	if a.fault == nil {
		a.result = c.unwrap(raw)
	}
	return a
}

func (c *wireClient) unwrap(raw []byte) object {
	var v object
	if err := json.Unmarshal(raw, &v); err != nil {
		c.t.Fatalf("%v: %s", err, raw)
	}
	if c.binding == wellknown.BindingJSONRPC {
		if v["jsonrpc"] != "2.0" || v["id"] != 7.0 {
			c.t.Errorf("no answer to the request: %s", raw)
		}
		v, _ = v["result"].(object)
	}
	return v
}

func marshal(v any) string { return string(must(json.Marshal(v))) }

// message of one of the TCK's scenarios; members are added or replaced.
func (c *wireClient) message(scenario string, members object) object {
	c.n++
	m := object{"messageId": fmt.Sprintf("%s-%d", scenario, c.n), "role": "ROLE_USER", "parts": []object{{"text": scenario}}}
	for name, value := range members {
		m[name] = value
	}
	return object{"message": m}
}

func (c *wireClient) send(scenario string, members object) object {
	c.t.Helper()
	a := c.call(&buyer, "SendMessage", c.message(scenario, members), nil)
	task, _ := a.result["task"].(object)
	if task == nil {
		c.t.Fatalf("%s: no task: %+v", scenario, a)
	}
	return task
}

func state(task object) any {
	status, _ := task["status"].(object)
	return status["state"]
}

func (c *wireClient) get(id any, more object) object {
	c.t.Helper()
	params := object{"id": id}
	for name, value := range more {
		params[name] = value
	}
	return c.call(&buyer, "GetTask", params, nil).result
}

func (c *wireClient) want(what string, ok bool, got any) {
	c.t.Helper()
	if !ok {
		c.t.Errorf("%s: %+v", what, got)
	}
}

func (c *wireClient) refused(a answerOnWire, reason string) {
	c.t.Helper()
	c.want("refused as "+reason, a.reason == reason, a)
}

const nobodys = "no-such-task"

// requirements are those of A2A that its TCK tests over both bindings, each under the TCK's name.
var requirements = []struct {
	id   string
	test func(c *wireClient)
}{
	{"CORE-SEND-001", func(c *wireClient) {
		c.send("tck-complete-task", nil)
		a := c.call(&buyer, "SendMessage", c.message("tck-message-response", nil), nil)
		m, _ := a.result["message"].(object)
		c.want("a message", m["role"] == "ROLE_AGENT", a)
	}},
	{"CORE-SEND-002", func(c *wireClient) {
		done := c.send("tck-complete-task", nil)
		c.refused(c.call(&buyer, "SendMessage", c.message("tck-complete-task", object{"taskId": done["id"]}), nil), "UNSUPPORTED_OPERATION")
	}},
	{"CORE-SEND-003", func(c *wireClient) {
		c.refused(c.call(&buyer, "SendMessage", c.message("x", object{"parts": []object{{"raw": "AAAA", "mediaType": "application/x-unknown"}}}), nil), "CONTENT_TYPE_NOT_SUPPORTED")
	}},
	{"CORE-STREAM-001", func(c *wireClient) {
		a := c.call(&buyer, "SendStreamingMessage", c.message("tck-stream-001", nil), nil)
		c.want("a stream", a.status == 200 && len(a.events) > 0, a)
	}},
	{"CORE-STREAM-002", func(c *wireClient) {
		a := c.call(&buyer, "SendStreamingMessage", c.message("tck-message-response", nil), nil)
		c.want("one message", len(a.events) == 1 && a.events[0]["message"] != nil, a.events)
	}},
	{"CORE-STREAM-003", func(c *wireClient) {
		a := c.call(&buyer, "SendStreamingMessage", c.message("tck-stream-003", nil), nil)
		task, _ := a.events[0]["task"].(object)
		c.want("begins with a final task", task != nil && state(task) == "TASK_STATE_COMPLETED", a.events)
	}},
	{"CORE-GET-001", func(c *wireClient) {
		task := c.send("tck-input-required", nil)
		c.want("input required", state(c.get(task["id"], nil)) == "TASK_STATE_INPUT_REQUIRED", task)
	}},
	{"CORE-GET-002", func(c *wireClient) {
		c.refused(c.call(&buyer, "GetTask", object{"id": nobodys}, nil), "TASK_NOT_FOUND")
	}},
	{"CORE-LIST-001", func(c *wireClient) {
		task := c.send("tck-complete-task", nil)
		c.want("the caller's", len(c.list(&buyer, object{"contextId": task["contextId"]})) == 1, task)
		c.want("nobody else's", len(c.list(&stranger, object{})) == 0, task)
		c.refused(c.call(nil, "ListTasks", object{}, nil), "UNAUTHENTICATED")
	}},
	{"CORE-LIST-002", func(c *wireClient) {
		context := c.three()
		var ids []any
		token := ""
		for range 3 {
			a := c.call(&buyer, "ListTasks", object{"contextId": context, "pageSize": 1, "pageToken": token}, nil)
			page, _ := a.result["tasks"].([]any)
			c.want("a page of one", len(page) == 1 && a.result["pageSize"] == 1.0 && a.result["totalSize"] == 3.0, a)
			ids = append(ids, page[0].(object)["id"])
			token, _ = a.result["nextPageToken"].(string)
		}
		c.want("every task once", ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2] && token == "", ids)
		c.refused(c.call(&buyer, "ListTasks", object{"pageToken": "*"}, nil), "INVALID_PARAMS")
	}},
	{"CORE-LIST-003", func(c *wireClient) {
		last := ""
		for _, task := range c.list(&buyer, object{"contextId": c.three()}) {
			at := task["status"].(object)["timestamp"].(string)
			c.want("newest first", last == "" || at <= last, at)
			last = at
		}
	}},
	{"CORE-LIST-004", func(c *wireClient) {
		a := c.call(&buyer, "ListTasks", object{"contextId": c.three()}, nil)
		token, there := a.result["nextPageToken"]
		c.want("an empty token", there && token == "", a.result)
	}},
	{"CORE-LIST-005", func(c *wireClient) {
		context := c.send("tck-artifact-text", nil)["contextId"]
		c.want("without artifacts", c.list(&buyer, object{"contextId": context})[0]["artifacts"] == nil, nil)
		c.want("with artifacts", c.list(&buyer, object{"contextId": context, "includeArtifacts": true})[0]["artifacts"] != nil, nil)
	}},
	{"CORE-CANCEL-001", func(c *wireClient) {
		task := c.send("tck-input-required", nil)
		a := c.call(&buyer, "CancelTask", object{"id": task["id"]}, nil)
		c.want("canceled", state(a.result) == "TASK_STATE_CANCELED" && a.result["id"] == task["id"], a)
	}},
	{"CORE-CANCEL-002", func(c *wireClient) {
		c.refused(c.call(&buyer, "CancelTask", object{"id": c.send("tck-complete-task", nil)["id"]}, nil), "TASK_NOT_CANCELABLE")
	}},
	{"CORE-CANCEL-003", func(c *wireClient) {
		c.refused(c.call(&buyer, "CancelTask", object{"id": nobodys}, nil), "TASK_NOT_FOUND")
	}},
	{"CORE-EXECUTION-MODE-001", func(c *wireClient) {
		c.want("waits for the end", state(c.send("tck-stream-mode", nil)) == "TASK_STATE_COMPLETED", nil)
		c.want("or for an interruption", state(c.send("tck-input-required", nil)) == "TASK_STATE_INPUT_REQUIRED", nil)
	}},
	{"CORE-EXECUTION-MODE-002", func(c *wireClient) {
		params := c.message("tck-stream-mode", nil)
		params["configuration"] = object{"returnImmediately": true}
		task, _ := c.call(&buyer, "SendMessage", params, nil).result["task"].(object)
		c.want("a task that is not final", task != nil && state(task) != "TASK_STATE_COMPLETED", task)
	}},
	{"CORE-ERR-001", func(c *wireClient) {
		a := c.call(&buyer, "SendMessage", object{"message": object{"messageId": "m", "role": "ROLE_USER", "parts": []object{}}}, nil)
		text, _ := a.fault["message"].(string)
		c.want("says what to do", a.reason == "INVALID_PARAMS" && strings.Contains(text, "message.parts"), a)
	}},
	{"CORE-ERR-002", func(c *wireClient) {
		for _, bad := range []object{{"messageId": ""}, {"role": "ROLE_AGENT"}, {"role": "user"}, {"parts": []object{{}}}, {"messageId": strings.Repeat("x", maxID+1)}} {
			c.want("refused", c.call(&buyer, "SendMessage", c.message("tck-complete-task", bad), nil).fault != nil, bad)
		}
	}},
	{"CORE-MULTI-001a", func(c *wireClient) { c.want("made", c.send("tck-complete-task", nil)["contextId"] != "", nil) }},
	{"CORE-MULTI-002", func(c *wireClient) {
		c.want("kept", c.send("tck-complete-task", object{"contextId": "chosen-1"})["contextId"] == "chosen-1", nil)
	}},
	{"CORE-MULTI-002a", func(c *wireClient) {
		c.refused(c.call(&buyer, "SendMessage", c.message("tck-complete-task", object{"contextId": strings.Repeat("x", maxID+1)}), nil), "INVALID_PARAMS")
	}},
	{"CORE-MULTI-003", func(c *wireClient) {
		c.want("two ids", c.send("tck-complete-task", nil)["id"] != c.send("tck-complete-task", nil)["id"], nil)
	}},
	{"CORE-MULTI-004", func(c *wireClient) {
		c.refused(c.call(&buyer, "SendMessage", c.message("tck-complete-task", object{"taskId": nobodys}), nil), "TASK_NOT_FOUND")
	}},
	{"CORE-MULTI-005", func(c *wireClient) {
		task := c.send("tck-input-required", nil)
		c.want("its context", c.send("tck-complete-task", object{"taskId": task["id"]})["contextId"] == task["contextId"], task)
	}},
	{"CORE-MULTI-006", func(c *wireClient) {
		task := c.send("tck-input-required", nil)
		c.want("refused", c.call(&buyer, "SendMessage", c.message("tck-complete-task", object{"taskId": task["id"], "contextId": "another"}), nil).fault != nil, task)
	}},
	{"CORE-HIST-001", func(c *wireClient) {
		c.want("none", c.get(c.send("tck-complete-task", nil)["id"], object{"historyLength": 0})["history"] == nil, nil)
	}},
	{"CORE-HIST-002", func(c *wireClient) {
		task := c.turns()
		for n := range 3 {
			history, _ := c.get(task["id"], object{"historyLength": n})["history"].([]any)
			c.want(fmt.Sprint("at most ", n), len(history) <= n, history)
		}
	}},
	{"CORE-HIST-003", func(c *wireClient) {
		params := c.message("tck-complete-task", nil)
		params["configuration"] = object{"historyLength": 0}
		task, _ := c.call(&buyer, "SendMessage", params, nil).result["task"].(object)
		c.want("none", task != nil && task["history"] == nil, task)
	}},
	{"CORE-HIST-005", func(c *wireClient) {
		history, _ := c.get(c.turns()["id"], nil)["history"].([]any)
		last := -1
		for _, m := range history {
			var n int
			_, err := fmt.Sscanf(m.(object)["messageId"].(string), "tck-input-required-%d", &n)
			c.want("in order", err == nil && n > last, history)
			last = n
		}
		c.want("three of them", len(history) == 3, history)
	}},
	{"CORE-HIST-006", func(c *wireClient) {
		history, _ := c.get(c.turns()["id"], nil)["history"].([]any)
		part := history[0].(object)["parts"].([]any)[0].(object)
		c.want("as sent", part["text"] == "tck-input-required", history)
	}},
	{"CORE-CAP-004", func(c *wireClient) {
		envelope := object{"messageId": "m", "role": "ROLE_USER", "parts": []object{{"raw": "e30=", "mediaType": wellknown.EnvelopeMediaType}}}
		c.refused(c.call(&buyer, "SendMessage", object{"message": envelope}, nil), "EXTENSION_SUPPORT_REQUIRED")
	}},
	{"DM-TASK-001", func(c *wireClient) {
		task := c.send("tck-complete-task", nil)
		c.want("id and status", task["id"] != "" && task["status"] != nil, task)
	}},
	{"DM-TASK-002", func(c *wireClient) {
		for scenario, want := range map[string]string{"tck-complete-task": "COMPLETED", "tck-reject-task": "REJECTED", "tck-input-required": "INPUT_REQUIRED"} {
			c.want(scenario, state(c.send(scenario, nil)) == "TASK_STATE_"+want, want)
		}
	}},
	{"DM-MSG-001", func(c *wireClient) {
		m, _ := c.call(&buyer, "SendMessage", c.message("tck-message-response", nil), nil).result["message"].(object)
		c.want("id, role, parts", m["messageId"] != "" && m["role"] != nil && m["parts"] != nil, m)
	}},
	{"DM-PART-001", func(c *wireClient) {
		for _, scenario := range []string{"tck-artifact-text", "tck-artifact-file", "tck-artifact-file-url", "tck-artifact-data"} {
			part := artifact(c.send(scenario, nil))["parts"].([]any)[0].(object)
			n := 0
			for _, kind := range []string{"text", "raw", "url", "data"} {
				if _, ok := part[kind]; ok {
					n++
				}
			}
			c.want(scenario, n == 1, part)
		}
	}},
	{"DM-ART-001", func(c *wireClient) {
		a := artifact(c.send("tck-artifact-text", nil))
		c.want("id and parts", a["artifactId"] != "" && a["parts"] != nil, a)
	}},
	{"DM-STATUS-001", func(c *wireClient) { c.want("a state", state(c.send("tck-complete-task", nil)) != nil, nil) }},
	{"DM-SERIAL-001", func(c *wireClient) {
		text := marshal(c.send("tck-artifact-file", nil))
		c.want("camelCase", strings.Contains(text, `"contextId"`) && strings.Contains(text, `"artifactId"`) && !regexp.MustCompile(`"[a-z]+_[a-z]+":`).MatchString(text), text)
	}},
	{"DM-SERIAL-003", func(c *wireClient) {
		at, _ := c.send("tck-complete-task", nil)["status"].(object)["timestamp"].(string)
		_, err := time.Parse(time.RFC3339Nano, at)
		c.want("UTC", err == nil && strings.HasSuffix(at, "Z"), at)
	}},
	{"DM-SERIAL-004", func(c *wireClient) {
		for _, member := range []string{"messageId", "role", "parts"} {
			params := c.message("tck-complete-task", nil)
			delete(params["message"].(object), member)
			c.want("without "+member, c.call(&buyer, "SendMessage", params, nil).fault != nil, params)
		}
	}},
	{"DM-SERIAL-005", func(c *wireClient) {
		c.want("ignored", c.send("tck-complete-task", object{"somethingNew": object{"a": 1}})["id"] != nil, nil)
	}},
	{"STREAM-SUB-001", func(c *wireClient) {
		task := c.send("tck-input-required", nil)
		done := make(chan answerOnWire)
		go func() { done <- c.call(&buyer, "SubscribeToTask", object{"id": task["id"]}, nil) }()
		time.Sleep(10 * time.Millisecond) // the first event is the task, whichever comes first
		c.call(&buyer, "CancelTask", object{"id": task["id"]}, nil)
		a := <-done
		if a.reason == "" { // the subscription came before the end: STREAM-SUB-002 too
			first, _ := a.events[0]["task"].(object)
			last, _ := a.events[len(a.events)-1]["statusUpdate"].(object)
			c.want("begins with the task and ends with it", first["id"] == task["id"] && (len(a.events) == 1 || state(last) == "TASK_STATE_CANCELED"), a.events)
		} else {
			c.refused(a, "UNSUPPORTED_OPERATION")
		}
	}},
	{"STREAM-SUB-003", func(c *wireClient) {
		c.refused(c.call(&buyer, "SubscribeToTask", object{"id": c.send("tck-complete-task", nil)["id"]}, nil), "UNSUPPORTED_OPERATION")
	}},
	{"STREAM-SUB-004", func(c *wireClient) {
		c.refused(c.call(&buyer, "SubscribeToTask", object{"id": nobodys}, nil), "TASK_NOT_FOUND")
	}},
	{"PUSH-CREATE-001", func(c *wireClient) {
		a := c.push("a")
		c.want("made", a.result["id"] == "a" && a.result["url"] == "https://hooks.example.com/", a)
	}},
	{"PUSH-CREATE-002", func(c *wireClient) {
		made := c.push("a").result
		c.notify(c.t)
		c.want("still there", c.call(&buyer, "GetTaskPushNotificationConfig", object{"taskId": made["taskId"], "id": "a"}, nil).result["id"] == "a", made)
	}},
	{"PUSH-GET-001", func(c *wireClient) {
		made := c.push("a").result
		got := c.call(&buyer, "GetTaskPushNotificationConfig", object{"taskId": made["taskId"], "id": "a"}, nil).result
		c.want("the same", marshal(got) == marshal(made), got)
	}},
	{"PUSH-GET-002", func(c *wireClient) {
		made := c.push("a").result
		c.refused(c.call(&buyer, "GetTaskPushNotificationConfig", object{"taskId": made["taskId"], "id": "other"}, nil), "TASK_NOT_FOUND")
	}},
	{"PUSH-LIST-001", func(c *wireClient) {
		made := c.push("a").result
		c.call(&buyer, "CreateTaskPushNotificationConfig", object{"taskId": made["taskId"], "id": "b", "url": "https://hooks.example.com/"}, nil)
		list, _ := c.call(&buyer, "ListTaskPushNotificationConfigs", object{"taskId": made["taskId"]}, nil).result["configs"].([]any)
		c.want("both", len(list) == 2, list)
	}},
	{"PUSH-DEL-001", func(c *wireClient) {
		made := c.push("a").result
		params := object{"taskId": made["taskId"], "id": "a"}
		c.want("gone", c.call(&buyer, "DeleteTaskPushNotificationConfig", params, nil).fault == nil && c.call(&buyer, "GetTaskPushNotificationConfig", params, nil).fault != nil, made)
		c.want("twice", c.call(&buyer, "DeleteTaskPushNotificationConfig", params, nil).fault == nil, "PUSH-DEL-002")
	}},
	{"PUSH-DELIVER-001", func(c *wireClient) {
		params := c.message("tck-complete-task", nil)
		params["configuration"] = object{"taskPushNotificationConfig": object{"url": "https://hooks.example.com/", "token": "t-1", "authentication": object{"scheme": "Bearer", "credentials": "c-1"}}}
		before := len(c.got)
		task, _ := c.call(&buyer, "SendMessage", params, nil).result["task"].(object)
		c.notify(c.t)
		c.want("delivered (PUSH-DELIVER-002)", len(c.got) == before+1, c.bodies)
		request, body := c.got[before], object{}
		c.want("a StreamResponse (PUSH-DELIVER-003)", json.Unmarshal([]byte(c.bodies[before]), &body) == nil && body["task"].(object)["id"] == task["id"], c.bodies)
		c.want("authenticated", request.Header.Get("Authorization") == "Bearer c-1" && request.Header.Get("A2A-Notification-Token") == "t-1", request.Header)
	}},
	{"CARD-EXT-001", func(c *wireClient) {
		c.refused(c.call(nil, "GetExtendedAgentCard", object{}, nil), "UNSUPPORTED_OPERATION")
	}},
	{"AUTH-SCOPE-003", func(c *wireClient) {
		task := c.send("tck-input-required", nil)
		for _, operation := range []string{"GetTask", "CancelTask", "SubscribeToTask"} {
			theirs, nothing := c.call(&stranger, operation, object{"id": task["id"]}, nil), c.call(&stranger, operation, object{"id": nobodys}, nil)
			c.want(operation+" tells nothing", theirs.reason == "TASK_NOT_FOUND" && marshal(theirs.fault["message"]) == marshal(nothing.fault["message"]), theirs)
		}
	}},
	{"AUTH-INTASK-002", func(c *wireClient) { // with -001 and -003: a task, in that state, that says why
		task := c.send("auth-required", nil)
		why, _ := task["status"].(object)["message"].(object)
		c.want("a task that waits for authorization and says so", state(task) == "TASK_STATE_AUTH_REQUIRED" && strings.Contains(marshal(why), "sign in"), task)
	}},
	{"CORE-FOLLOW-UP", func(c *wireClient) { // A2A section 3.4.3: a final task is followed by another one in its context
		first := c.send("tck-complete-task", nil)
		next := c.send("tck-complete-task", object{"contextId": first["contextId"], "referenceTaskIds": []any{first["id"]}})
		c.want("another task in the same context", next["id"] != first["id"] && next["contextId"] == first["contextId"], next)
		c.want("both are listed", len(c.list(&buyer, object{"contextId": first["contextId"]})) == 2, next)
	}},
	{"VER-SERVER-002", func(c *wireClient) {
		for _, version := range []string{"99.0", "2.0", "1", "x"} {
			c.refused(c.call(&buyer, "GetTask", object{"id": nobodys}, http.Header{"A2A-Version": {version}}), "VERSION_NOT_SUPPORTED")
		}
	}},
	{"VER-SERVER-003", func(c *wireClient) { // no version is 0.3, which is not on here
		c.refused(c.call(&buyer, "GetTask", object{"id": nobodys}, http.Header{"A2A-Version": nil}), "VERSION_NOT_SUPPORTED")
	}},
	{"VER-CLIENT-002", func(c *wireClient) {
		c.refused(c.call(&buyer, "GetTask", object{"id": nobodys}, http.Header{"A2A-Version": {"1.0.3"}}), "TASK_NOT_FOUND")
	}},
	{"SVC-001", func(c *wireClient) { // JSONRPC-FMT-002, HTTP_JSON-SVC-001
		a := c.call(&buyer, "GetTask", object{"id": c.send("tck-complete-task", nil)["id"]}, nil)
		c.want("application/json", a.header.Get("Content-Type") == "application/json", a.header)
	}},
	{"ERR-001", func(c *wireClient) { // JSONRPC-ERR-001, -002, -003, HTTP_JSON-ERR-001, -002, -STATUS-001
		a := c.call(&buyer, "GetTask", object{"id": nobodys}, nil)
		code, status, details := -32001.0, 200, "data"
		if c.binding == wellknown.BindingHTTPJSON {
			code, status, details = 404, 404, "details"
			c.want("AIP-193", a.fault["status"] == "NOT_FOUND", a)
		}
		c.want("code, status and ErrorInfo", a.fault["code"] == code && a.status == status && a.fault[details] != nil, a)
	}},
}

func (c *wireClient) list(caller *party, params object) (tasks []object) {
	c.t.Helper()
	a := c.call(caller, "ListTasks", params, nil)
	list, ok := a.result["tasks"].([]any)
	c.want("a list", ok, a)
	for _, task := range list {
		tasks = append(tasks, task.(object))
	}
	return tasks
}

// three tasks in one context; turns of one task; a task with a push configuration; a task's one artifact.

func (c *wireClient) three() any {
	c.n++
	context := fmt.Sprint("context-", c.n)
	for range 3 {
		c.send("tck-complete-task", object{"contextId": context})
	}
	return context
}

func (c *wireClient) turns() object {
	task := c.send("tck-input-required", nil)
	for range 2 {
		c.send("tck-input-required", object{"taskId": task["id"]})
	}
	return task
}

func (c *wireClient) push(id string) answerOnWire {
	return c.call(&buyer, "CreateTaskPushNotificationConfig", object{"taskId": c.send("tck-input-required", nil)["id"], "id": id, "url": "https://hooks.example.com/"}, nil)
}

func artifact(task object) object { return task["artifacts"].([]any)[0].(object) }

// TestRequirements runs what A2A's TCK runs, requirement by requirement, without its checkout.
func TestRequirements(t *testing.T) {
	for _, binding := range bindings {
		p := newPushBench(t)
		cfg := must(p.bench.config.withDefaults())
		cfg.Poll = time.Millisecond
		p.bench.handler = must(newServer(cfg, scenarioAgent{}))
		for _, r := range requirements {
			t.Run(r.id+" "+binding, func(t *testing.T) { r.test(&wireClient{pushBench: p, t: t, binding: binding}) })
		}
	}
}

// The page says of each requirement where it is tested; what it names is here.
func TestRequirementsAreListed(t *testing.T) {
	page := string(must(os.ReadFile("../../../docs/tck.md")))
	var ids []string
	for _, r := range requirements {
		ids = append(ids, r.id)
		if !strings.Contains(page, "`"+r.id+"`") {
			t.Errorf("docs/tck.md does not name %s", r.id)
		}
	}
	_, listed, _ := strings.Cut(page, "## The requirements as tests of our own")
	for _, m := range regexp.MustCompile("`([A-Z_]+-[A-Z0-9-]+[a-z]?)`").FindAllStringSubmatch(listed, -1) {
		if !slices.Contains(ids, m[1]) {
			t.Errorf("docs/tck.md names %s, which TestRequirements does not run", m[1])
		}
	}
}
