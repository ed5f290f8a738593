// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
)

// scenarioAgent behaves as A2A's TCK wants it, by the prefix of the message's id (its scenarios/*.feature). It stands in the
// place of the answers to plain questions, to show that the gateway carries more than those.
type scenarioAgent struct{}

// Execute implements a2asrv.AgentExecutor.
func (scenarioAgent) Execute(ctx context.Context, exec *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) {
		id := exec.Message.ID
		is := func(prefix string) bool { return strings.HasPrefix(id, prefix) }
		if is("tck-message-response") {
			yield(sdk.NewMessage(sdk.MessageRoleAgent, sdk.NewTextPart("Direct message response")), nil)
			return
		}
		send := func(e sdk.Event) bool { return yield(e, nil) }
		status := func(s sdk.TaskState, m *sdk.Message) bool { return send(sdk.NewStatusUpdateEvent(exec, s, m)) }
		artifact := func(parts ...*sdk.Part) bool { return send(sdk.NewArtifactEvent(exec, parts...)) }
		if exec.StoredTask == nil && !send(sdk.NewSubmittedTask(exec, exec.Message)) {
			return
		}
		file := sdk.NewRawPart([]byte("file content"))
		if is("tck-artifact-file-url") {
			file = sdk.NewFileURLPart("https://example.com/output.txt", "text/plain")
		}
		file.Filename, file.MediaType = "output.txt", "text/plain"

		working := func() bool { return status(sdk.TaskStateWorking, nil) }
		ok := true
		switch {
		case is("tck-input-required"):
			status(sdk.TaskStateInputRequired, nil)
			return
		case is("auth-required"):
			status(sdk.TaskStateAuthRequired, sdk.NewMessageForTask(sdk.MessageRoleAgent, exec, sdk.NewTextPart("sign in at the bank first")))
			return
		case is("tck-reject-task"):
			status(sdk.TaskStateRejected, sdk.NewMessageForTask(sdk.MessageRoleAgent, exec, sdk.NewTextPart("rejected")))
			return
		case is("tck-artifact-text"):
			ok = artifact(sdk.NewTextPart("Generated text content"))
		case is("tck-artifact-file"):
			ok = artifact(file)
		case is("tck-artifact-data"):
			ok = artifact(sdk.NewDataPart(map[string]any{"key": "value", "count": 42}))
		case is("tck-stream-artifact-file"):
			ok = working() && artifact(file)
		case is("tck-stream-artifact-chunked"):
			first := sdk.NewArtifactEvent(exec, sdk.NewTextPart("chunk-1 "))
			last := sdk.NewArtifactUpdateEvent(exec, first.Artifact.ID, sdk.NewTextPart("chunk-2"))
			last.LastChunk = true
			ok = working() && send(first) && send(last)
		case is("tck-stream-002"):
		case is("tck-stream-"):
			ok = working() && artifact(sdk.NewTextPart("Streamed text content"))
		case is("test-resubscribe-message-id"):
			if ok = working(); ok {
				select {
				case <-time.After(4 * time.Second):
				case <-ctx.Done():
				}
			}
		}
		if ok {
			status(sdk.TaskStateCompleted, sdk.NewMessageForTask(sdk.MessageRoleAgent, exec, sdk.NewTextPart("Hello from TCK")))
		}
	}
}

// Cancel implements a2asrv.AgentExecutor.
func (scenarioAgent) Cancel(_ context.Context, exec *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) {
		yield(sdk.NewStatusUpdateEvent(exec, sdk.TaskStateCanceled, nil), nil)
	}
}

// The states, turns and contents of tasks that plain questions do not have.
func TestScenarios(t *testing.T) {
	for _, binding := range bindings {
		t.Run(binding, func(t *testing.T) {
			b := newBenchWith(t, scenarioAgent{}, func(c *Config) { c.Poll = time.Millisecond })
			c := b.stock(t, &buyer, binding)
			n := 0
			message := func(scenario string, task sdk.TaskID) *sdk.SendMessageRequest {
				m := sdk.NewMessage(sdk.MessageRoleUser, sdk.NewTextPart("go on"))
				n++
				m.ID, m.TaskID = scenario+"-"+strings.Repeat("x", n), task
				return &sdk.SendMessageRequest{Message: m}
			}
			send := func(scenario string, task sdk.TaskID) *sdk.Task {
				t.Helper()
				result, err := c.SendMessage(t.Context(), message(scenario, task))
				got, ok := result.(*sdk.Task)
				if err != nil || !ok {
					t.Fatalf("%s: %T, %v", scenario, result, err)
				}
				return got
			}

			for scenario, want := range map[string]sdk.TaskState{
				"tck-complete-task": sdk.TaskStateCompleted, "tck-input-required": sdk.TaskStateInputRequired, "tck-reject-task": sdk.TaskStateRejected,
			} {
				if got := send(scenario, "").Status.State; got != want {
					t.Errorf("%s: %s", scenario, got)
				}
			}
			if result, err := c.SendMessage(t.Context(), message("tck-message-response", "")); err != nil || result.(*sdk.Message).Parts[0].Text() != "Direct message response" {
				t.Errorf("message: %+v, %v", result, err)
			}
			for scenario, check := range map[string]func(p *sdk.Part) bool{
				"tck-artifact-text": func(p *sdk.Part) bool { return p.Text() == "Generated text content" },
				"tck-artifact-file": func(p *sdk.Part) bool { return string(p.Raw()) == "file content" && p.Filename == "output.txt" },
				"tck-artifact-file-url": func(p *sdk.Part) bool {
					return p.URL() == "https://example.com/output.txt" && p.MediaType == "text/plain"
				},
				"tck-artifact-data": func(p *sdk.Part) bool { return p.Data().(map[string]any)["count"] == 42.0 },
			} {
				sent := send(scenario, "")
				got, err := c.GetTask(t.Context(), &sdk.GetTaskRequest{ID: sent.ID})
				if err != nil || len(got.Artifacts) != 1 || !check(got.Artifacts[0].Parts[0]) {
					t.Errorf("%s: %+v, %v", scenario, got, err)
				}
			}

			// Turns of one task, and how much of them is told.
			task := send("tck-input-required", "")
			for range 2 {
				if next := send("tck-input-required", task.ID); next.ID != task.ID || next.ContextID != task.ContextID {
					t.Errorf("a turn is of task %s in %s", next.ID, next.ContextID)
				}
			}
			for length := range 3 {
				if got, err := c.GetTask(t.Context(), &sdk.GetTaskRequest{ID: task.ID, HistoryLength: &length}); err != nil || len(got.History) != length {
					t.Errorf("history %d: %+v, %v", length, got, err)
				}
			}
			elsewhere := message("tck-complete-task", task.ID)
			elsewhere.Message.ContextID = "another context"
			if _, err := c.SendMessage(t.Context(), elsewhere); err == nil {
				t.Error("a turn of another context was taken")
			}

			// A subscription sees what another request does, and ends with the task.
			var last sdk.TaskState
			for event, err := range c.SubscribeToTask(t.Context(), &sdk.SubscribeToTaskRequest{ID: task.ID}) {
				switch e := event.(type) {
				case *sdk.Task:
					send("tck-complete-task", task.ID)
				case *sdk.TaskStatusUpdateEvent:
					last = e.Status.State
				default:
					t.Fatalf("event %+v, %v", event, err)
				}
			}
			if last != sdk.TaskStateCompleted {
				t.Errorf("the subscription ended with %q", last)
			}

			// Final is final, by whatever way it was reached.
			canceled := send("tck-input-required", "")
			if got, err := c.CancelTask(t.Context(), &sdk.CancelTaskRequest{ID: canceled.ID}); err != nil || got.Status.State != sdk.TaskStateCanceled {
				t.Errorf("cancel: %+v, %v", got, err)
			}
			for _, id := range []sdk.TaskID{task.ID, canceled.ID} {
				if _, err := c.CancelTask(t.Context(), &sdk.CancelTaskRequest{ID: id}); !errors.Is(err, sdk.ErrTaskNotCancelable) {
					t.Errorf("cancel a final task: %v", err)
				}
				if _, err := c.SendMessage(t.Context(), message("tck-complete-task", id)); !errors.Is(err, sdk.ErrUnsupportedOperation) {
					t.Errorf("a turn of a final task: %v", err)
				}
				for _, err := range c.SubscribeToTask(t.Context(), &sdk.SubscribeToTaskRequest{ID: id}) {
					if !errors.Is(err, sdk.ErrUnsupportedOperation) {
						t.Errorf("subscribe to a final task: %v", err)
					}
				}
			}
		})
	}
}
