// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/node/delegation"
	"github.com/treaty-node/treaty/node/internal/clock"
)

// DelegationURI names the extension that lets a plain question be handed on: its parameters stand in the message's metadata under
// this name. An agent that does not know it answers by itself, which is what somebody who asks in depth 0 wants.
const DelegationURI = "https://github.com/treaty-node/treaty/ext/delegation/v1"

const (
	maxDelegationTree = 512 << 10
	askEvery          = 250 * time.Millisecond
	takeBack          = 5 * time.Second // for telling an agent that its answer is not wanted any more
)

var errDelegation = refuse(sdk.ErrInvalidParams, "message.metadata: "+DelegationURI+" wants {skill, depth (0 to 3), via, onFailure (fail or partial)} and text of at most 16 KiB")

// delegated reads what a message asks to be handed on, nil when nothing.
func delegated(m *sdk.Message) (*delegation.Question, error) {
	raw, ok := m.Metadata[DelegationURI]
	if !ok || !slices.Contains(m.Extensions, DelegationURI) {
		return nil, nil
	}
	bytes, err := json.Marshal(raw)
	if err != nil {
		return nil, errDelegation
	}
	q := new(delegation.Question)
	if err := canon.Unmarshal(bytes, q, canon.Limits{MaxBytes: 8 << 10, MaxDepth: 4}); err != nil {
		return nil, errDelegation
	}
	for _, id := range q.Via {
		if _, err := did.Parse(id); err != nil {
			return nil, errDelegation
		}
	}
	q.Text = text(m.Parts)
	if q.Validate() != nil {
		return nil, errDelegation
	}
	return q, nil
}

func text(parts sdk.ContentParts) string {
	var b strings.Builder
	for _, p := range parts {
		if p != nil {
			b.WriteString(p.Text())
		}
	}
	return b.String()
}

// handOn executes a question that is to be handed on: a working task, what everybody said as one artifact, and how it ended.
func (a *answerer) handOn(ctx context.Context, exec *a2asrv.ExecutorContext, q delegation.Question) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) {
		own, err := a.describe(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		task := sdk.NewSubmittedTask(exec, exec.Message)
		task.Status.Timestamp = timestamp(a.now())
		if !yield(task, nil) || !yield(a.status(exec, sdk.TaskStateWorking, ""), nil) {
			return
		}
		caller, _ := httpsig.CallerFrom(ctx)
		branches, err := a.delegate(ctx, caller.DID, q)
		if ctx.Err() != nil { // taken back; the library has told
			return
		}
		if err != nil && !errors.Is(err, delegation.ErrFailed) {
			yield(nil, err)
			return
		}
		part, partErr := dataPart(delegation.Answer{Outcome: delegation.Answered, Text: own.Text, Data: own.Data, Branches: branches})
		if partErr != nil {
			yield(nil, partErr)
			return
		}
		artifact := sdk.NewArtifactEvent(exec, part)
		artifact.Artifact.Name, artifact.LastChunk = "what the agents say", true
		if !yield(artifact, nil) {
			return
		}
		if err != nil {
			yield(a.status(exec, sdk.TaskStateFailed, err.Error()), nil)
			return
		}
		yield(a.status(exec, sdk.TaskStateCompleted, ""), nil)
	}
}

func (a *answerer) status(exec *a2asrv.ExecutorContext, state sdk.TaskState, why string) sdk.Event {
	var m *sdk.Message
	if why != "" {
		m = sdk.NewMessageForTask(sdk.MessageRoleAgent, exec, sdk.NewTextPart(why))
	}
	e := sdk.NewStatusUpdateEvent(exec, state, m)
	e.Status.Timestamp = timestamp(a.now())
	return e
}

func dataPart(v any) (*sdk.Part, error) {
	raw, err := canon.Marshal(v)
	if err != nil {
		return nil, err
	}
	var data map[string]any
	if err := json.Unmarshal(raw, &data); err != nil {
		return nil, err
	}
	part := sdk.NewDataPart(data)
	part.MediaType = "application/json"
	return part, nil
}

// Ask puts a plain question to the peer and waits for its answer; with a depth above 0 the peer is asked to hand it on. When ctx ends
// before, the question is taken back. Errors: *PeerError, *TransportError, the context's, or that the peer's task did not complete.
func (c *Client) Ask(ctx context.Context, q delegation.Question) (delegation.Answer, error) {
	part := sdk.NewTextPart(q.Text)
	part.MediaType = "text/plain"
	m := sdk.NewMessage(sdk.MessageRoleUser, part)
	if q.Depth > 0 {
		via := make([]any, len(q.Via))
		for i, id := range q.Via {
			via[i] = id
		}
		m.Extensions = []string{DelegationURI}
		m.Metadata = map[string]any{DelegationURI: map[string]any{"skill": q.Skill, "depth": q.Depth, "via": via, "onFailure": string(q.OnFailure)}}
	}
	// A question whose task is not known cannot be taken back, so the first answer, which is to come at once, is waited for.
	sending, done := context.WithCancel(context.WithoutCancel(ctx))
	defer done()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(takeBack, done) })
	defer stop()
	result, err := c.client.SendMessage(sending, &sdk.SendMessageRequest{Message: m, Config: &sdk.SendMessageConfig{ReturnImmediately: true}})
	if err != nil {
		return delegation.Answer{}, translate(err)
	}
	task, ok := result.(*sdk.Task)
	if said, isMessage := result.(*sdk.Message); isMessage {
		return answerOf(said.Parts)
	}
	for ok && !task.Status.State.Terminal() {
		if err := clock.Sleep(ctx, askEvery); err != nil {
			c.takeBack(ctx, task.ID)
			return delegation.Answer{}, err
		}
		next, err := c.client.GetTask(ctx, &sdk.GetTaskRequest{ID: task.ID})
		if ctx.Err() != nil {
			continue
		}
		if err != nil {
			return delegation.Answer{}, translate(err)
		}
		if next.ID != task.ID {
			return delegation.Answer{}, &TransportError{Err: fmt.Errorf("%w: another task", ErrBadAnswer)}
		}
		task = next
	}
	if !ok {
		return delegation.Answer{}, &TransportError{Err: fmt.Errorf("%w: neither a task nor a message", ErrBadAnswer)}
	}
	var parts sdk.ContentParts
	for _, artifact := range task.Artifacts {
		if artifact != nil {
			parts = append(parts, artifact.Parts...)
		}
	}
	answer, err := answerOf(parts)
	if err == nil && task.Status.State != sdk.TaskStateCompleted {
		why := ""
		if task.Status.Message != nil {
			why = ": " + clean(text(task.Status.Message.Parts))
		}
		err = fmt.Errorf("the agent's task ended as %s%s", clean(string(task.Status.State)), why)
	}
	return answer, err
}

func (c *Client) takeBack(ctx context.Context, id sdk.TaskID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBack)
	defer cancel()
	_, _ = c.client.CancelTask(ctx, &sdk.CancelTaskRequest{ID: id}) // whether it can is the peer's affair
}

// answerOf reads what an agent said: text, and data, which may be an answer with branches of its own.
func answerOf(parts sdk.ContentParts) (delegation.Answer, error) {
	var a delegation.Answer
	for _, p := range parts {
		if p == nil || p.Data() == nil {
			continue
		}
		raw, err := json.Marshal(p.Data())
		if err != nil || len(raw) > maxDelegationTree {
			return a, &TransportError{Err: fmt.Errorf("%w: its data", ErrBadAnswer)}
		}
		var tree delegation.Answer
		if canon.Unmarshal(raw, &tree, canon.Limits{MaxBytes: maxDelegationTree, MaxDepth: maxDepth}) == nil && tree.Outcome != "" {
			a = tree
			break
		}
		a.Data = raw
	}
	if a.Text == "" {
		a.Text = text(parts)
	}
	return bounded(a, delegation.MaxDepth), nil
}

// bounded cuts what others wrote to size.
func bounded(a delegation.Answer, depth int) delegation.Answer {
	if len(a.Text) > delegation.MaxText {
		a.Text = strings.ToValidUTF8(a.Text[:delegation.MaxText], "") + "…"
	}
	a.Error = clean(a.Error)
	if depth == 0 || len(a.Branches) > 2*delegation.MaxFanOut {
		a.Branches = nil
	}
	for i := range a.Branches {
		a.Branches[i] = bounded(a.Branches[i], depth-1)
	}
	return a
}
