// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/wellknown"
)

// An envelope that any decoding and encoding again would change.
var awkward = []byte("{\"b\":9007199254740993, \"a\" : \"<\\u00e9>\", \"x\":1.0,\"\xc3\xa9\":\"\\/\"}\n")

func TestEnvelopeTravelsAsBytes(t *testing.T) {
	for _, binding := range bindings {
		t.Run(binding, func(t *testing.T) {
			b := newBench(t)
			reply := append([]byte("reply to "), awkward...)
			b.answer = func(caller did.DID, _ []byte) (Reply, error) {
				if caller != buyer.id {
					t.Errorf("caller %s", caller)
				}
				return Reply{TaskID: "task-1", ContextID: "ctx-1", State: InputRequired, Envelope: reply, Updated: start}, nil
			}
			got, err := b.client(t, &buyer, binding).SendEnvelope(t.Context(), "ctx-1", "", awkward)
			if err != nil {
				t.Fatal(err)
			}
			if len(b.received) != 1 || !bytes.Equal(b.received[0], awkward) {
				t.Errorf("received %q", b.received)
			}
			if !bytes.Equal(got.Envelope, reply) || got.Artifact || got.State != InputRequired || got.TaskID != "task-1" || !got.Updated.Equal(start) {
				t.Errorf("reply %+v", got)
			}
		})
	}
}

func TestEveryStateRoundTrips(t *testing.T) {
	for _, binding := range bindings {
		b := newBench(t)
		c := b.client(t, &buyer, binding)
		for _, want := range []Reply{
			{TaskID: "1", ContextID: "c", State: Working, Updated: start},
			{TaskID: "2", ContextID: "c", State: InputRequired, Envelope: []byte("e"), Updated: start},
			{TaskID: "3", ContextID: "c", State: Completed, Envelope: []byte("contract"), Artifact: true, Updated: start},
			{TaskID: "4", ContextID: "c", State: Rejected, Envelope: []byte("e"), Updated: start},
			{TaskID: "5", ContextID: "c", State: Failed, Updated: start},
			{TaskID: "6", ContextID: "c", State: Canceled, Envelope: []byte("e"), Updated: start},
		} {
			b.answer = func(did.DID, []byte) (Reply, error) { return want, nil }
			sent, err := c.SendEnvelope(t.Context(), "", "", []byte("x"))
			if err != nil {
				t.Fatalf("%s: %v", want.State, err)
			}
			looked, err := c.Lookup(t.Context(), want.TaskID)
			if err != nil {
				t.Fatalf("%s: %v", want.State, err)
			}
			for _, got := range []Reply{sent, looked} {
				if got.State != want.State || got.Artifact != want.Artifact || !bytes.Equal(got.Envelope, want.Envelope) {
					t.Errorf("%s over %s: %+v", want.State, binding, got)
				}
			}
		}
	}
}

// N3: refusals reach the peer with their code, on both bindings.
func TestRefusalsReachTheClient(t *testing.T) {
	for _, binding := range bindings {
		b := newBench(t)
		c := b.client(t, &buyer, binding)
		for _, code := range envelope.Codes() {
			b.answer = func(did.DID, []byte) (Reply, error) {
				return Reply{}, errors.Join(errors.New("secret"), envelope.Refuse(code, "because %s", "<so>"))
			}
			_, err := c.SendEnvelope(t.Context(), "", "", []byte("x"))
			var r *envelope.Refusal
			if !errors.As(err, &r) || r.Code != code || r.Reason != "because <so>" {
				t.Errorf("%s over %s: %#v", code, binding, err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", code, err)
			}
		}
	}
}

func TestRefusalOnTheWire(t *testing.T) {
	b := newBench(t)
	b.answer = func(did.DID, []byte) (Reply, error) { return Reply{}, envelope.Refuse(envelope.CodeOutOfTurn, "wait") }
	for target, details := range map[string]string{"/a2a": "error.data", "/a2a/v1/message:send": "error.details"} {
		w := b.ask(&buyer, "POST", target, sendBody(target, envelopeJSON), declared)
		var answer map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatal(err)
		}
		list, _ := answer["error"].(map[string]any)[strings.TrimPrefix(details, "error.")].([]any)
		found := 0
		for _, d := range list {
			d := d.(map[string]any)
			if d["reason"] == "OUT_OF_TURN" && d["domain"] == wellknown.ExtensionURI && d["retryable"] == "false" {
				found++
			}
			if meta, ok := d["metadata"].(map[string]any); ok && meta["treatyReason"] == "OUT_OF_TURN" && d["domain"] == "a2a-protocol.org" {
				found++
			}
		}
		if found != 2 {
			t.Errorf("%s: %s", target, w.Body)
		}
	}
}

func TestInternalErrorsStayHere(t *testing.T) {
	var log bytes.Buffer
	for _, binding := range bindings {
		b := newBench(t, func(c *Config) {
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			c.Describe = func(context.Context) (Answer, error) { return Answer{}, errors.New("secret path /var/lib") }
		})
		b.answer = func(did.DID, []byte) (Reply, error) { return Reply{}, errors.New("secret table missing") }
		_, err := b.client(t, &buyer, binding).SendEnvelope(t.Context(), "", "", []byte("x"))
		var p *PeerError
		if !errors.As(err, &p) || !errors.Is(err, sdk.ErrInternalError) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", binding, err)
		}
		_, err = b.stock(t, nil, binding).SendMessage(t.Context(), question())
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", binding, err)
		}
		b.answer = func(did.DID, []byte) (Reply, error) { panic("secret panic") }
		_, err = b.client(t, &buyer, binding).SendEnvelope(t.Context(), "", "", []byte("x"))
		if !errors.As(err, &p) && !errors.As(err, new(*TransportError)) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", binding, err)
		}
	}
	for _, want := range []string{"secret table missing", "secret path", "secret panic"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q was not logged", want)
		}
	}
}

func TestOwnerCheck(t *testing.T) {
	for _, binding := range bindings {
		b := newBench(t)
		if _, err := b.client(t, &buyer, binding).SendEnvelope(t.Context(), "", "", []byte("x")); err != nil {
			t.Fatal(err)
		}
		own, err := b.stock(t, &buyer, binding).SendMessage(t.Context(), question())
		if err != nil {
			t.Fatal(err)
		}
		answer := own.(*sdk.Task).ID
		for name, who := range map[string]*party{"stranger": &stranger, "anonymous": nil} {
			other := b.stock(t, who, binding)
			for _, id := range []sdk.TaskID{"task-1", answer, "nothing"} {
				if _, err := other.GetTask(t.Context(), &sdk.GetTaskRequest{ID: id}); !errors.Is(err, sdk.ErrTaskNotFound) {
					t.Errorf("%s gets %s: %v", name, id, err)
				}
				if _, err := other.CancelTask(t.Context(), &sdk.CancelTaskRequest{ID: id}); !errors.Is(err, sdk.ErrTaskNotFound) {
					t.Errorf("%s cancels %s: %v", name, id, err)
				}
				follow := question()
				follow.Message.TaskID = id
				if _, err := other.SendMessage(t.Context(), follow); !errors.Is(err, sdk.ErrTaskNotFound) {
					t.Errorf("%s continues %s: %v", name, id, err)
				}
			}
		}
		if list, err := b.stock(t, &stranger, binding).ListTasks(t.Context(), &sdk.ListTasksRequest{}); err != nil || len(list.Tasks) != 0 {
			t.Errorf("stranger lists %v, %v", list, err)
		}
		if _, err := b.stock(t, nil, binding).ListTasks(t.Context(), &sdk.ListTasksRequest{}); !errors.Is(err, sdk.ErrUnauthenticated) {
			t.Errorf("anonymous lists: %v", err)
		}
		list, err := b.stock(t, &buyer, binding).ListTasks(t.Context(), &sdk.ListTasksRequest{})
		if err != nil || list.TotalSize != 2 {
			t.Errorf("buyer lists %v, %v", list, err)
		}
	}
}

// stock is the library's client as anybody would make it.
func (b *bench) stock(tb testing.TB, who *party, binding string) *a2aclient.Client {
	tb.Helper()
	hc := b.as(who)
	iface := must(b.card.Interface(binding))
	c, err := a2aclient.NewFromEndpoints(tb.Context(), []*sdk.AgentInterface{sdk.NewAgentInterface(iface.URL, sdk.TransportProtocol(binding))},
		a2aclient.WithJSONRPCTransport(hc), a2aclient.WithRESTTransport(hc))
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func question() *sdk.SendMessageRequest {
	return &sdk.SendMessageRequest{Message: sdk.NewMessage(sdk.MessageRoleUser, sdk.NewTextPart("What can be negotiated here?"))}
}

func TestStockClient(t *testing.T) {
	for _, binding := range bindings {
		for name, who := range map[string]*party{"anonymous": nil, "signed": &buyer} {
			t.Run(binding+" "+name, func(t *testing.T) {
				b := newBench(t)
				c := b.stock(t, who, binding)
				result, err := c.SendMessage(t.Context(), question())
				if err != nil {
					t.Fatal(err)
				}
				task := result.(*sdk.Task)
				if task.Status.State != sdk.TaskStateCompleted || len(task.Artifacts) != 1 || !strings.Contains(task.Artifacts[0].Parts[0].Text(), "orders (region text)") {
					t.Errorf("answer %+v", task)
				}
				data, _ := task.Artifacts[0].Parts[1].Data().(map[string]any)
				if data["agent"] != vendor.id.String() {
					t.Errorf("data %v", data)
				}
				again, err := c.GetTask(t.Context(), &sdk.GetTaskRequest{ID: task.ID})
				if err != nil || again.ID != task.ID {
					t.Fatalf("get: %v", err)
				}
				if kept := len(again.History) > 0; kept != (who != nil) {
					t.Errorf("the question is kept: %v", kept)
				}
				if _, err := c.CancelTask(t.Context(), &sdk.CancelTaskRequest{ID: task.ID}); !errors.Is(err, sdk.ErrTaskNotCancelable) {
					t.Errorf("cancel: %v", err)
				}
				follow := question()
				follow.Message.TaskID = task.ID
				if _, err := c.SendMessage(t.Context(), follow); !errors.Is(err, sdk.ErrUnsupportedOperation) {
					t.Errorf("follow-up to a final task: %v", err)
				}
				follow = question()
				follow.Message.ContextID = task.ContextID
				next, err := c.SendMessage(t.Context(), follow)
				if err != nil || next.(*sdk.Task).ContextID != task.ContextID || next.(*sdk.Task).ID == task.ID {
					t.Errorf("next task in the context: %v, %v", next, err)
				}
				events := 0
				for event, err := range c.SendStreamingMessage(t.Context(), question()) {
					if err != nil {
						t.Fatal(err)
					}
					if streamed, ok := event.(*sdk.Task); !ok || streamed.Status.State != sdk.TaskStateCompleted {
						t.Errorf("streamed %T", event)
					}
					events++
				}
				if events != 1 {
					t.Errorf("%d events", events)
				}
			})
		}
	}
}

// Streaming works for negotiation tasks: the task, and the end.
func TestStreamNegotiation(t *testing.T) {
	for _, binding := range bindings {
		b := newBench(t, func(c *Config) { c.Poll = time.Millisecond })
		c := b.stock(t, &buyer, binding)
		ctx := withExtension(t.Context())
		for event, err := range c.SendStreamingMessage(ctx, &sdk.SendMessageRequest{Message: envelopeMessage(sdk.MessageRoleUser, awkward)}) {
			if err != nil {
				t.Fatal(err)
			}
			if task, ok := event.(*sdk.Task); !ok || string(task.Status.Message.Parts[0].Raw()) != `{"reply":1}` {
				t.Errorf("event %+v", event)
			}
		}
		if len(b.received) != 1 || !bytes.Equal(b.received[0], awkward) {
			t.Errorf("received %q", b.received)
		}
		for event, err := range c.SubscribeToTask(ctx, &sdk.SubscribeToTaskRequest{ID: "task-1"}) {
			if err != nil || event.(*sdk.Task).ID != "task-1" {
				t.Errorf("subscribe: %v, %v", event, err)
			}
			break
		}
		if _, err := c.CancelTask(ctx, &sdk.CancelTaskRequest{ID: "task-1"}); !errors.Is(err, sdk.ErrTaskNotCancelable) || !strings.Contains(err.Error(), "withdraw") {
			t.Errorf("cancel: %v", err)
		}
		follow := question()
		follow.Message.TaskID = "task-1"
		if _, err := c.SendMessage(ctx, follow); !errors.Is(err, sdk.ErrInvalidParams) {
			t.Errorf("a question to a negotiation: %v", err)
		}
	}
}

// A subscription follows the task: first as it stands, then what becomes of it, and it ends when the task has.
func TestSubscriptionFollows(t *testing.T) {
	for _, binding := range bindings {
		b := newBench(t, func(c *Config) { c.Poll = time.Millisecond })
		c := b.stock(t, &buyer, binding)
		set := func(r Reply) {
			b.mu.Lock()
			defer b.mu.Unlock()
			r.TaskID, r.ContextID = "task-1", "ctx-1"
			b.replies[buyer.id] = []Reply{r}
		}
		set(Reply{State: InputRequired, Envelope: []byte("1"), Updated: start})
		var seen []string
		for event, err := range c.SubscribeToTask(withExtension(t.Context()), &sdk.SubscribeToTaskRequest{ID: "task-1"}) {
			switch e := event.(type) {
			case *sdk.Task:
				seen = append(seen, "task "+string(e.Status.State)+" "+string(e.Status.Message.Parts[0].Raw()))
				set(Reply{State: InputRequired, Envelope: []byte("2"), Updated: start}) // in the same millisecond
			case *sdk.TaskArtifactUpdateEvent:
				seen = append(seen, "artifact "+string(e.Artifact.Parts[0].Raw()))
			case *sdk.TaskStatusUpdateEvent:
				got := "status " + string(e.Status.State)
				if e.Status.Message != nil {
					got += " " + string(e.Status.Message.Parts[0].Raw())
				}
				seen = append(seen, got)
				set(Reply{State: Completed, Envelope: []byte("3"), Artifact: true, Updated: start.Add(time.Second)})
			default:
				t.Fatalf("event %+v, %v", event, err)
			}
		}
		want := []string{"task TASK_STATE_INPUT_REQUIRED 1", "status TASK_STATE_INPUT_REQUIRED 2", "artifact 3", "status TASK_STATE_COMPLETED"}
		if !slices.Equal(seen, want) {
			t.Errorf("%s: %q", binding, seen)
		}
	}
}

// With too many followers already, a subscription is the task as it stands. One that nothing happens to ends with the request.
func TestSubscriptionsAreBounded(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Poll, c.Timeout = time.Millisecond, 20*time.Millisecond })
	b.replies[buyer.id] = []Reply{{TaskID: "task-1", ContextID: "ctx-1", State: InputRequired, Envelope: []byte("1"), Updated: start}}
	for range 2 {
		w := b.ask(&buyer, "POST", "/a2a/v1/tasks/task-1:subscribe", "", nil)
		if n := strings.Count(w.Body.String(), "data:"); w.Code != 200 || n != 1 {
			t.Fatalf("%d, %d events: %s", w.Code, n, w.Body)
		}
	}
	g := &gateway{cfg: Config{Poll: time.Hour}}
	g.followers.Store(maxFollowers)
	g.follow(t.Context(), &sdk.Task{}, func(sdk.Event, error) bool { t.Error("an event"); return false })
	if n := g.followers.Load(); n != maxFollowers {
		t.Errorf("%d followers", n)
	}
}

func TestListTasks(t *testing.T) {
	b := newBench(t)
	for i, state := range []State{InputRequired, Working, Completed, Rejected, Canceled} {
		b.replies[buyer.id] = append(b.replies[buyer.id], Reply{
			TaskID: "n" + string(rune('0'+i)), ContextID: "ctx-" + string(rune('0'+i%2)), State: state,
			Envelope: []byte("e"), Artifact: state == Completed, Updated: start.Add(-time.Duration(i) * time.Minute),
		})
	}
	list := func(query string) (ids string, answer sdk.ListTasksResponse, status int) {
		w := b.ask(&buyer, "GET", "/a2a/v1/tasks"+query, "", nil)
		_ = json.Unmarshal(w.Body.Bytes(), &answer)
		for _, task := range answer.Tasks {
			ids += string(task.ID) + " "
		}
		return strings.TrimSpace(ids), answer, w.Code
	}
	for query, want := range map[string]string{
		"":                             "n0 n1 n2 n3 n4",
		"?contextId=ctx-1":             "n1 n3",
		"?status=TASK_STATE_COMPLETED": "n2",
		"?contextId=none":              "",
		"?pageSize=2":                  "n0 n1",
		"?statusTimestampAfter=" + url.QueryEscape(start.Add(-time.Minute).Format(time.RFC3339)): "n0 n1",
	} {
		if ids, _, status := list(query); ids != want || status != 200 {
			t.Errorf("%s: %q, %d", query, ids, status)
		}
	}
	var all []string
	token := ""
	for range 5 {
		ids, answer, _ := list("?pageSize=2&pageToken=" + token)
		all = append(all, ids)
		if answer.TotalSize != 5 {
			t.Errorf("total %d", answer.TotalSize)
		}
		if token = answer.NextPageToken; token == "" {
			break
		}
	}
	if strings.Join(all, "|") != "n0 n1|n2 n3|n4" {
		t.Errorf("pages %v", all)
	}
	if _, answer, _ := list("?status=TASK_STATE_COMPLETED"); answer.Tasks[0].Artifacts != nil {
		t.Error("artifacts without being asked for")
	}
	if _, answer, _ := list("?status=TASK_STATE_COMPLETED&includeArtifacts=true"); len(answer.Tasks[0].Artifacts) != 1 {
		t.Error("no artifacts")
	}
	for _, query := range []string{"?pageSize=101", "?pageSize=-1", "?pageSize=x", "?status=done", "?pageToken=!", "?pageToken=" + base64.RawURLEncoding.EncodeToString([]byte("x")), "?historyLength=-1", "?contextId=" + strings.Repeat("x", 300)} {
		if _, _, status := list(query); status != http.StatusBadRequest {
			t.Errorf("%s: %d", query, status)
		}
	}
	// An empty list is a list.
	if w := b.ask(&stranger, "GET", "/a2a/v1/tasks", "", nil); !strings.Contains(w.Body.String(), `"tasks":[]`) || !strings.Contains(w.Body.String(), `"nextPageToken":""`) {
		t.Errorf("empty list: %s", w.Body)
	}
}

// Invariant 13: a stored task in a final state is not changed.
func TestInvariant13_StoredTaskIsFinal(t *testing.T) {
	b := newBench(t)
	tasks := must(newPlainTasks(b.config.Tasks, now))
	result := must(b.stock(t, &buyer, wellknown.BindingJSONRPC).SendMessage(t.Context(), question()))
	ctx := callerContext(&buyer)
	stored := must(tasks.Get(ctx, result.(*sdk.Task).ID))
	stored.Task.Status.State = sdk.TaskStateWorking
	if _, err := tasks.Update(ctx, updateRequest(stored)); !errors.Is(err, sdk.ErrUnsupportedOperation) {
		t.Errorf("update: %v", err)
	}
	if _, err := tasks.Create(ctx, stored.Task); err == nil {
		t.Error("created again")
	}
	if _, err := b.config.Tasks.GetTask(ctx, stranger.id.String(), string(stored.Task.ID)); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another owner: %v", err)
	}
}
