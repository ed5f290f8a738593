// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/delegation"
	"github.com/treaty-node/treaty/wellknown"
)

// DescribeNegotiation answers plain questions from the parameters that the agent card publishes.
func DescribeNegotiation(n *wellknown.Negotiation, origin string) (Answer, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "I am %s.", n.Agent)
	if len(n.Schemas) == 0 {
		b.WriteString(" I publish no data; I negotiate for data as a buyer.")
	} else {
		b.WriteString(" A data contract can be negotiated with me over:\n")
		for _, s := range n.Schemas {
			columns := make([]string, len(s.Columns))
			for i, c := range s.Columns {
				columns[i] = c.Name + " " + c.Type
			}
			fmt.Fprintf(&b, "- %s (%s)", s.Dataset, strings.Join(columns, ", "))
			if s.Description != "" {
				b.WriteString(": " + s.Description)
			}
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "To negotiate, declare the A2A extension %s, sign every request with a key of your DID (RFC 9421), and send envelopes of type %s to %s. Anything else is answered with this text.",
			wellknown.ExtensionURI, wellknown.EnvelopeMediaType, origin+wellknown.PathJSONRPC)
	}
	data, err := canon.Marshal(n)
	if err != nil {
		return Answer{}, fmt.Errorf("a2a: describe: %w", err)
	}
	return Answer{Text: b.String(), Data: data}, nil
}

// answerer executes plain questions: one event, a completed task, so that there is one write.
type answerer struct {
	describe func(context.Context) (Answer, error)
	delegate func(context.Context, did.DID, delegation.Question) ([]delegation.Answer, error) // nil: nothing is handed on
	now      func() time.Time
}

var _ a2asrv.AgentExecutor = (*answerer)(nil)

// Execute implements a2asrv.AgentExecutor.
func (a *answerer) Execute(ctx context.Context, exec *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	if a.delegate != nil && ownerOf(ctx) != "" {
		if q, err := delegated(exec.Message); err == nil && q != nil && q.Depth > 0 {
			return a.handOn(ctx, exec, *q)
		}
	}
	return func(yield func(sdk.Event, error) bool) {
		answer, err := a.describe(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		parts := sdk.ContentParts{sdk.NewTextPart(answer.Text)}
		parts[0].MediaType = "text/plain"
		if answer.Data != nil {
			var data map[string]any
			if err := json.Unmarshal(answer.Data, &data); err != nil {
				yield(nil, fmt.Errorf("answer: %w", err))
				return
			}
			part := sdk.NewDataPart(data)
			part.MediaType = "application/json"
			parts = append(parts, part)
		}
		yield(&sdk.Task{
			ID: exec.TaskID, ContextID: exec.ContextID,
			Status:    sdk.TaskStatus{State: sdk.TaskStateCompleted, Timestamp: timestamp(a.now())},
			History:   []*sdk.Message{exec.Message},
			Artifacts: []*sdk.Artifact{{ID: "answer", Name: "what can be negotiated", Parts: parts}},
		}, nil)
	}
}

// Cancel implements a2asrv.AgentExecutor. What can be taken back is a question that was handed on: when the task is final, the library
// ends the context in which the branches are asked.
func (a *answerer) Cancel(_ context.Context, exec *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) { yield(a.status(exec, sdk.TaskStateCanceled, ""), nil) }
}
