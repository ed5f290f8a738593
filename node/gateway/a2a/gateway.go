// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/wellknown"
)

// gateway gives A2A requests their meaning: envelopes and the tasks they move are the negotiator's, everything else is a plain
// question, which the library's own handler executes.
type gateway struct {
	cfg   Config
	plain a2asrv.RequestHandler
	tasks *plainTasks

	followers atomic.Int64
}

var _ a2asrv.RequestHandler = (*gateway)(nil)

// begin marks the request as decoded.
func begin(ctx context.Context) *call {
	c := callFrom(ctx)
	c.reached.Store(true)
	return c
}

// SendMessage implements a2asrv.RequestHandler.
func (g *gateway) SendMessage(ctx context.Context, req *sdk.SendMessageRequest) (sdk.SendMessageResult, error) {
	c := begin(ctx)
	bytes, err := classify(c, req)
	if err != nil {
		return nil, g.toPeer(ctx, err)
	}
	var push *sdk.PushConfig
	if req.Config != nil {
		push, req.Config.PushConfig = req.Config.PushConfig, nil // ours to keep, not the library's
	}
	if push != nil { // before anything happens for which the caller would not be told
		if _, err = g.owner(ctx); err == nil {
			err = g.cfg.Push.checkPush(push)
		}
		if err != nil {
			return nil, g.toPeer(ctx, err)
		}
	}
	if bytes != nil {
		task, err := g.receive(ctx, c, bytes)
		if err == nil {
			err = g.pushAfter(ctx, push, task)
		}
		if err != nil {
			return nil, g.toPeer(ctx, err)
		}
		return task, nil
	}
	if err := g.checkQuestion(ctx, req.Message); err != nil {
		return nil, g.toPeer(ctx, err)
	}
	result, err := g.plain.SendMessage(ctx, req)
	if err != nil {
		return nil, g.toPeer(ctx, err)
	}
	if err := g.pushAfter(ctx, push, result); err != nil {
		return nil, g.toPeer(ctx, err)
	}
	if task, ok := result.(*sdk.Task); ok && req.Config != nil {
		trimHistory(task, req.Config.HistoryLength)
	}
	return result, nil
}

// SendStreamingMessage implements a2asrv.RequestHandler. The stream is the task, and ends.
func (g *gateway) SendStreamingMessage(ctx context.Context, req *sdk.SendMessageRequest) iter.Seq2[sdk.Event, error] {
	return g.stream(ctx, func(yield func(sdk.Event, error) bool) {
		result, err := g.SendMessage(ctx, req)
		if err != nil {
			yield(nil, err)
			return
		}
		yield(result, nil)
	})
}

// SubscribeToTask implements a2asrv.RequestHandler. The stream is the task as it stands and then what becomes of it.
func (g *gateway) SubscribeToTask(ctx context.Context, req *sdk.SubscribeToTaskRequest) iter.Seq2[sdk.Event, error] {
	return g.stream(ctx, func(yield func(sdk.Event, error) bool) {
		task, err := g.find(ctx, req.ID)
		if err == nil && task.Status.State.Terminal() {
			err = errTerminal
		}
		if err != nil {
			yield(nil, g.toPeer(ctx, err))
			return
		}
		if yield(task, nil) {
			g.follow(ctx, task, yield)
		}
	})
}

// follow reports changes of a task until it is final, the caller leaves or the request's time is over. When there are too
// many followers already it ends at once: the caller has the task as it stands, and can ask again.
func (g *gateway) follow(ctx context.Context, task *sdk.Task, yield func(sdk.Event, error) bool) {
	if g.followers.Add(1) > maxFollowers {
		g.followers.Add(-1)
		return
	}
	defer g.followers.Add(-1)
	tick := time.NewTicker(g.cfg.Poll)
	defer tick.Stop()
	for !task.Status.State.Terminal() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		next, err := g.find(ctx, task.ID)
		if err != nil {
			yield(nil, g.toPeer(ctx, err))
			return
		}
		if next.Status.State == task.Status.State && updated(next).Equal(updated(task)) && messageID(next) == messageID(task) && len(next.Artifacts) == len(task.Artifacts) {
			continue
		}
		for _, a := range next.Artifacts[min(len(task.Artifacts), len(next.Artifacts)):] {
			if !yield(&sdk.TaskArtifactUpdateEvent{TaskID: next.ID, ContextID: next.ContextID, Artifact: a, LastChunk: true}, nil) {
				return
			}
		}
		if !yield(&sdk.TaskStatusUpdateEvent{TaskID: next.ID, ContextID: next.ContextID, Status: next.Status}, nil) {
			return
		}
		task = next
	}
}

func messageID(t *sdk.Task) string {
	if t.Status.Message == nil {
		return ""
	}
	return t.Status.Message.ID
}

// stream marks the request as decoded and notes when its first item is an error.
func (g *gateway) stream(ctx context.Context, items iter.Seq2[sdk.Event, error]) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) {
		c := begin(ctx)
		first := true
		for event, err := range items {
			if first && err != nil {
				c.failedFirst.Store(true)
			}
			first = false
			if !yield(event, err) {
				return
			}
		}
	}
}

// GetTask implements a2asrv.RequestHandler.
func (g *gateway) GetTask(ctx context.Context, req *sdk.GetTaskRequest) (*sdk.Task, error) {
	begin(ctx)
	if req.HistoryLength != nil && *req.HistoryLength < 0 {
		return nil, g.toPeer(ctx, sdk.ErrInvalidParams)
	}
	task, err := g.find(ctx, req.ID)
	if err != nil {
		return nil, g.toPeer(ctx, err)
	}
	trimHistory(task, req.HistoryLength)
	return task, nil
}

// CancelTask implements a2asrv.RequestHandler. Only envelopes end a negotiation, and an answer is complete once it exists.
func (g *gateway) CancelTask(ctx context.Context, req *sdk.CancelTaskRequest) (*sdk.Task, error) {
	begin(ctx)
	if _, err := g.lookup(ctx, req.ID); err == nil {
		return nil, g.toPeer(ctx, errNotCancelable)
	} else if !errors.Is(err, ErrNotFound) {
		return nil, g.toPeer(ctx, err)
	}
	task, err := g.find(ctx, req.ID)
	if err != nil {
		return nil, g.toPeer(ctx, err)
	}
	// While an execution that has just paused is cleaned up, the library takes the task for one that cannot be canceled.
	for try := 0; ; try++ {
		if task.Status.State.Terminal() {
			return nil, g.toPeer(ctx, sdk.ErrTaskNotCancelable)
		}
		canceled, err := g.plain.CancelTask(ctx, req)
		if !errors.Is(err, sdk.ErrTaskNotCancelable) || try == cancelTries {
			return canceled, g.toPeer(ctx, err)
		}
		if clock.Sleep(ctx, cancelEvery) != nil {
			return nil, g.toPeer(ctx, err)
		}
		if task, err = g.find(ctx, req.ID); err != nil {
			return nil, g.toPeer(ctx, err)
		}
	}
}

// GetExtendedAgentCard implements a2asrv.RequestHandler.
func (g *gateway) GetExtendedAgentCard(ctx context.Context, _ *sdk.GetExtendedAgentCardRequest) (*sdk.AgentCard, error) {
	begin(ctx)
	if g.cfg.Extended == nil {
		return nil, g.toPeer(ctx, sdk.ErrUnsupportedOperation)
	}
	caller, ok := httpsig.CallerFrom(ctx)
	if !ok {
		return nil, g.toPeer(ctx, errNoCaller)
	}
	raw, err := g.cfg.Extended(ctx, caller.DID)
	if err != nil {
		return nil, g.toPeer(ctx, err)
	}
	// The library encodes it again. A card's signature is over its canonical form, which survives that.
	card := new(sdk.AgentCard)
	if err := json.Unmarshal(raw, card); err != nil {
		return nil, g.toPeer(ctx, fmt.Errorf("extended agent card: %w", err))
	}
	return card, nil
}

// classify checks a message's form and returns its envelope, nil when it is a plain question.
func classify(c *call, req *sdk.SendMessageRequest) ([]byte, error) {
	if req == nil || req.Message == nil {
		return nil, refuse(sdk.ErrInvalidParams, "message is required")
	}
	m := req.Message
	switch {
	case m.ID == "" || len(m.ID) > maxID:
		return nil, refuse(sdk.ErrInvalidParams, "message.messageId is required, at most 256 bytes")
	case len(m.ContextID) > maxID || len(m.TaskID) > maxID:
		return nil, refuse(sdk.ErrInvalidParams, "message.contextId and message.taskId have at most 256 bytes")
	case m.Role != sdk.MessageRoleUser:
		return nil, refuse(sdk.ErrInvalidParams, "message.role must be ROLE_USER")
	case len(m.Parts) == 0 || len(m.Parts) > maxParts || slices.Contains(m.Parts, nil):
		return nil, refuse(sdk.ErrInvalidParams, "message.parts is required, at most 32 parts")
	case req.Config != nil && req.Config.HistoryLength != nil && *req.Config.HistoryLength < 0:
		return nil, refuse(sdk.ErrInvalidParams, "configuration.historyLength must not be negative")
	}
	named := slices.Contains(m.Extensions, wellknown.ExtensionURI)
	bytes, err := envelopeIn(m.Parts)
	switch {
	case err != nil:
		return nil, err
	case bytes == nil && named:
		return nil, errNotOneEnvelope
	case bytes != nil && !(named && c.extension):
		return nil, errNoExtension
	}
	return bytes, nil
}

// receive hands an envelope to the negotiator.
func (g *gateway) receive(ctx context.Context, c *call, bytes []byte) (*sdk.Task, error) {
	caller, ok := httpsig.CallerFrom(ctx)
	if !ok {
		return nil, errNoCaller
	}
	c.activated.Store(true)
	reply, err := g.cfg.Negotiator.Receive(ctx, caller.DID, bytes)
	if err != nil {
		return nil, err
	}
	return render(reply)
}

// checkQuestion holds a plain message to text, and a follow-up to a task that can take one.
func (g *gateway) checkQuestion(ctx context.Context, m *sdk.Message) error {
	for _, p := range m.Parts {
		if _, ok := p.Content.(sdk.Text); !ok {
			return refuse(sdk.ErrUnsupportedContentType, "plain questions are text/plain")
		}
	}
	q, err := delegated(m)
	if err != nil {
		return err
	}
	if q != nil && len(q.Via) > 0 && q.Via[len(q.Via)-1] != ownerOf(ctx) { // nobody speaks for somebody else
		return errDelegation
	}
	if m.TaskID == "" {
		return nil
	}
	if reply, err := g.lookup(ctx, m.TaskID); err == nil {
		if reply.State.Terminal() {
			return errTerminal
		}
		return errEnvelopesOnly
	} else if !errors.Is(err, ErrNotFound) {
		return err
	}
	stored, err := g.tasks.Get(ctx, m.TaskID)
	if err != nil {
		return err
	}
	if stored.Task.Status.State.Terminal() {
		return errTerminal
	}
	return nil
}

// lookup finds the caller's negotiation; ErrNotFound for anonymous callers.
func (g *gateway) lookup(ctx context.Context, id sdk.TaskID) (Reply, error) {
	caller, ok := httpsig.CallerFrom(ctx)
	if !ok || id == "" || len(id) > maxID {
		return Reply{}, ErrNotFound
	}
	return g.cfg.Negotiator.Lookup(ctx, caller.DID, string(id))
}

// find renders the caller's task of either kind.
func (g *gateway) find(ctx context.Context, id sdk.TaskID) (*sdk.Task, error) {
	reply, err := g.lookup(ctx, id)
	if err == nil {
		c := callFrom(ctx)
		c.activated.Store(c.extension)
		return render(reply)
	}
	if !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	if id == "" || len(id) > maxID {
		return nil, sdk.ErrTaskNotFound
	}
	stored, err := g.tasks.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return stored.Task, nil
}

// trimHistory applies historyLength (A2A section 3.2.4).
func trimHistory(task *sdk.Task, length *int) {
	if length == nil || *length < 0 || *length >= len(task.History) {
		return
	}
	task.History = task.History[len(task.History)-*length:]
	if *length == 0 {
		task.History = nil
	}
}

// callerDID is the verified caller, or the zero DID.
func callerDID(ctx context.Context) did.DID {
	caller, _ := httpsig.CallerFrom(ctx)
	return caller.DID
}
