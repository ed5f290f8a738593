// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"fmt"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/wellknown"
)

// summary stands in metadata beside every envelope. It is constant: what an envelope says is for its recipient alone.
const summary = "Treaty negotiation envelope, signed and sealed"

// contractArtifact is the id of the artifact that holds the finished contract.
const contractArtifact sdk.ArtifactID = "contract"

func envelopePart(envelope []byte) *sdk.Part {
	part := sdk.NewRawPart(envelope)
	part.MediaType = wellknown.EnvelopeMediaType
	return part
}

// envelopeMessage wraps an envelope. Its id follows from the bytes, so that a retry is recognisably the same message.
func envelopeMessage(role sdk.MessageRole, envelope []byte) *sdk.Message {
	return &sdk.Message{
		ID:         "envelope-" + canon.Sum(envelope).String()[len("sha-256:"):],
		Role:       role,
		Parts:      sdk.ContentParts{envelopePart(envelope)},
		Extensions: []string{wellknown.ExtensionURI},
		Metadata:   map[string]any{wellknown.ExtensionURI: summary},
	}
}

// render makes the A2A task of a negotiation.
func render(r Reply) (*sdk.Task, error) {
	state, ok := states[r.State]
	if !ok || r.TaskID == "" || r.ContextID == "" {
		return nil, fmt.Errorf("a2a: negotiator's reply has state %q, task %q, context %q", r.State, r.TaskID, r.ContextID)
	}
	task := &sdk.Task{
		ID: sdk.TaskID(r.TaskID), ContextID: r.ContextID,
		Status: sdk.TaskStatus{State: state, Timestamp: timestamp(r.Updated)},
	}
	switch {
	case len(r.Envelope) == 0:
	case r.Artifact:
		task.Artifacts = []*sdk.Artifact{{
			ID: contractArtifact, Name: "contract",
			Description: "The data contract in force, signed and sealed.",
			Extensions:  []string{wellknown.ExtensionURI},
			Metadata:    map[string]any{wellknown.ExtensionURI: summary},
			Parts:       sdk.ContentParts{envelopePart(r.Envelope)},
		}}
	default:
		msg := envelopeMessage(sdk.MessageRoleAgent, r.Envelope)
		msg.TaskID, msg.ContextID = task.ID, task.ContextID
		task.Status.Message = msg
	}
	return task, nil
}

// timestamp is UTC in milliseconds (A2A section 5.6.1).
func timestamp(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Millisecond)
	return &t
}

// envelopeIn returns the one envelope among parts, nil when there is none, an error when there is more beside it.
func envelopeIn(parts sdk.ContentParts) ([]byte, error) {
	found := false
	for _, p := range parts {
		if p != nil && p.MediaType == wellknown.EnvelopeMediaType {
			found = true
		}
	}
	if !found {
		return nil, nil
	}
	if len(parts) != 1 || len(parts[0].Raw()) == 0 {
		return nil, errNotOneEnvelope
	}
	return parts[0].Raw(), nil
}
