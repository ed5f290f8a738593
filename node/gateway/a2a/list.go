// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/treaty-node/treaty/node/store"
)

// Sizes of a page of tasks (A2A section 3.1.4). A page with artifacts is shorter: an envelope can be large.
const (
	defaultPage      = 50
	maxPage          = 100
	maxArtifactsPage = 20
)

// ListTasks implements a2asrv.RequestHandler: the caller's negotiations and answers, newest first. It looks at the newest 1000
// of each. Anonymous callers have nothing to list.
func (g *gateway) ListTasks(ctx context.Context, req *sdk.ListTasksRequest) (*sdk.ListTasksResponse, error) {
	begin(ctx)
	result, err := g.list(ctx, req)
	return result, g.toPeer(ctx, err)
}

func (g *gateway) list(ctx context.Context, req *sdk.ListTasksRequest) (*sdk.ListTasksResponse, error) {
	caller := callerDID(ctx)
	if caller.IsZero() {
		return nil, errNoCaller
	}
	size := cmp.Or(req.PageSize, defaultPage)
	switch {
	case size < 1 || size > maxPage:
		return nil, refuse(sdk.ErrInvalidParams, "pageSize must be between 1 and 100")
	case req.HistoryLength != nil && *req.HistoryLength < 0:
		return nil, refuse(sdk.ErrInvalidParams, "historyLength must not be negative")
	case len(req.ContextID) > maxID || len(req.PageToken) > 2*maxID:
		return nil, refuse(sdk.ErrInvalidParams, "contextId or pageToken is too long")
	case req.Status != sdk.TaskStateUnspecified && !slices.Contains(taskStates, req.Status):
		return nil, refuse(sdk.ErrInvalidParams, "status is no task state")
	}
	after, afterID, err := parsePageToken(req.PageToken)
	if err != nil {
		return nil, err
	}
	if req.IncludeArtifacts {
		size = min(size, maxArtifactsPage)
	}

	tasks, err := g.all(ctx, req.ContextID)
	if err != nil {
		return nil, err
	}
	tasks = slices.DeleteFunc(tasks, func(t *sdk.Task) bool {
		return req.Status != sdk.TaskStateUnspecified && t.Status.State != req.Status ||
			req.StatusTimestampAfter != nil && updated(t).Before(*req.StatusTimestampAfter)
	})
	slices.SortFunc(tasks, func(a, b *sdk.Task) int {
		return cmp.Or(updated(b).Compare(updated(a)), strings.Compare(string(b.ID), string(a.ID)))
	})
	out := &sdk.ListTasksResponse{Tasks: []*sdk.Task{}, TotalSize: len(tasks), PageSize: size}
	if req.PageToken != "" {
		tasks = slices.DeleteFunc(tasks, func(t *sdk.Task) bool {
			return cmp.Or(updated(t).Compare(after), strings.Compare(string(t.ID), afterID)) >= 0
		})
	}
	if len(tasks) > size {
		tasks = tasks[:size]
		last := tasks[size-1]
		out.NextPageToken = pageToken(updated(last), string(last.ID))
	}
	for _, t := range tasks {
		trimHistory(t, req.HistoryLength)
		if !req.IncludeArtifacts {
			t.Artifacts, t.Status.Message = nil, nil // envelopes are outputs, wherever they stand
		}
		out.Tasks = append(out.Tasks, t)
	}
	return out, nil
}

// all gathers the caller's tasks of both kinds.
func (g *gateway) all(ctx context.Context, contextID string) ([]*sdk.Task, error) {
	replies, err := g.cfg.Negotiator.List(ctx, callerDID(ctx), ListFilter{ContextID: contextID, Limit: maxListed})
	if err != nil {
		return nil, err
	}
	var tasks []*sdk.Task
	for _, r := range replies {
		task, err := render(r)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, task)
	}
	owner := ownerOf(ctx)
	records, err := g.cfg.Tasks.ListTasks(ctx, store.TaskFilter{Owner: owner, ContextID: contextID, Limit: maxListed})
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if r.Owner != owner {
			continue
		}
		stored, err := decode(r)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, stored.Task)
	}
	return tasks, nil
}

var taskStates = []sdk.TaskState{
	sdk.TaskStateSubmitted, sdk.TaskStateWorking, sdk.TaskStateCompleted, sdk.TaskStateFailed, sdk.TaskStateCanceled,
	sdk.TaskStateInputRequired, sdk.TaskStateRejected, sdk.TaskStateAuthRequired,
}

func updated(t *sdk.Task) time.Time {
	if t.Status.Timestamp == nil {
		return time.Time{}
	}
	return *t.Status.Timestamp
}

// A page token is where the last page ended: time and id of its last task.

func pageToken(at time.Time, id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(at.UTC().Format(time.RFC3339Nano) + "|" + id))
}

func parsePageToken(token string) (time.Time, string, error) {
	if token == "" {
		return time.Time{}, "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	at, id, ok := strings.Cut(string(raw), "|")
	t, terr := time.Parse(time.RFC3339Nano, at)
	if err != nil || !ok || terr != nil {
		return time.Time{}, "", refuse(sdk.ErrInvalidParams, "pageToken is not one of this agent's")
	}
	return t, id, nil
}
