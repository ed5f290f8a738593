// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv/taskstore"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/node/store"
)

// StoreTasks keeps tasks in a store, each call in one transaction.
func StoreTasks(s store.Store) TaskStore { return storeTasks{s} }

type storeTasks struct{ s store.Store }

func (t storeTasks) PutTask(ctx context.Context, task store.Task, expect int64) error {
	return t.s.Update(ctx, func(tx store.Tx) error { return tx.PutTask(task, expect) })
}

func (t storeTasks) GetTask(ctx context.Context, owner, id string) (task store.Task, err error) {
	err = t.s.View(ctx, func(tx store.Tx) error {
		task, err = tx.GetTask(owner, id)
		return err
	})
	return task, err
}

func (t storeTasks) ListTasks(ctx context.Context, f store.TaskFilter) (tasks []store.Task, err error) {
	err = t.s.View(ctx, func(tx store.Tx) error {
		tasks, err = tx.ListTasks(f)
		return err
	})
	return tasks, err
}

// plainTasks is the library's task store over a TaskStore. The owner of a task is the DID that signed the request; answers to
// anonymous callers go to a bounded memory instead, so that strangers cannot fill the disk, and without the question, so that
// they hold nothing but public facts.
//
// Questions that make a task larger than maxKept are not kept with it. The store bounds how many tasks there are.
type plainTasks struct {
	tasks     TaskStore
	anonymous *lru.Cache[string, store.Task]
	now       func() time.Time
}

const maxKept = 64 << 10

var _ taskstore.Store = (*plainTasks)(nil)

func newPlainTasks(tasks TaskStore, now func() time.Time) (*plainTasks, error) {
	cache, err := lru.New[string, store.Task](maxAnonymous)
	return &plainTasks{tasks: tasks, anonymous: cache, now: now}, err
}

// ownerOf is the caller's DID, "" for anonymous callers.
func ownerOf(ctx context.Context) string {
	if caller, ok := httpsig.CallerFrom(ctx); ok {
		return caller.DID.String()
	}
	return ""
}

func (p *plainTasks) put(ctx context.Context, task *sdk.Task, expect int64) (taskstore.TaskVersion, error) {
	owner := ownerOf(ctx)
	kept := *task
	if owner == "" {
		kept.History = nil
	}
	bytes, err := json.Marshal(&kept)
	if err != nil {
		return taskstore.TaskVersionMissing, fmt.Errorf("encode task: %w", err)
	}
	if asked := task.History; owner != "" && len(asked) > 0 && len(bytes) > maxKept { // a question need not be kept to be answered
		kept.History = nil
		if bytes, err = json.Marshal(&kept); err != nil {
			return taskstore.TaskVersionMissing, fmt.Errorf("encode task: %w", err)
		}
	}
	record := store.Task{
		ID: string(task.ID), Owner: owner, ContextID: task.ContextID,
		Version: expect + 1, Bytes: bytes, Updated: p.now(),
	}
	if owner == "" {
		p.anonymous.Add(record.ID, record)
		return taskstore.TaskVersion(record.Version), nil
	}
	if err := p.tasks.PutTask(ctx, record, expect); err != nil {
		return taskstore.TaskVersionMissing, err
	}
	return taskstore.TaskVersion(record.Version), nil
}

func (p *plainTasks) record(ctx context.Context, id string) (store.Task, error) {
	owner := ownerOf(ctx)
	if owner == "" {
		record, ok := p.anonymous.Get(id)
		if !ok {
			return store.Task{}, sdk.ErrTaskNotFound
		}
		return record, nil
	}
	record, err := p.tasks.GetTask(ctx, owner, id)
	if errors.Is(err, store.ErrNotFound) || (err == nil && record.Owner != owner) {
		return store.Task{}, sdk.ErrTaskNotFound
	}
	return record, err
}

// Create implements taskstore.Store.
func (p *plainTasks) Create(ctx context.Context, task *sdk.Task) (taskstore.TaskVersion, error) {
	version, err := p.put(ctx, task, 0)
	if errors.Is(err, store.ErrConflict) {
		err = taskstore.ErrTaskAlreadyExists
	}
	return version, err
}

// Update implements taskstore.Store. A task in a terminal state is not changed.
func (p *plainTasks) Update(ctx context.Context, req *taskstore.UpdateRequest) (taskstore.TaskVersion, error) {
	stored, err := p.Get(ctx, req.Task.ID)
	if err != nil {
		return taskstore.TaskVersionMissing, err
	}
	if stored.Task.Status.State.Terminal() {
		return taskstore.TaskVersionMissing, sdk.ErrUnsupportedOperation
	}
	if req.PrevVersion != taskstore.TaskVersionMissing && req.PrevVersion != stored.Version {
		return taskstore.TaskVersionMissing, taskstore.ErrConcurrentModification
	}
	version, err := p.put(ctx, req.Task, int64(stored.Version))
	if errors.Is(err, store.ErrConflict) {
		err = taskstore.ErrConcurrentModification
	}
	return version, err
}

// Get implements taskstore.Store.
func (p *plainTasks) Get(ctx context.Context, id sdk.TaskID) (*taskstore.StoredTask, error) {
	record, err := p.record(ctx, string(id))
	if err != nil {
		return nil, err
	}
	return decode(record)
}

func decode(record store.Task) (*taskstore.StoredTask, error) {
	var task sdk.Task
	if err := json.Unmarshal(record.Bytes, &task); err != nil {
		return nil, fmt.Errorf("stored task %s: %w", record.ID, err)
	}
	return &taskstore.StoredTask{Task: &task, Version: taskstore.TaskVersion(record.Version), User: record.Owner}, nil
}

// List implements taskstore.Store for the library, which never asks: listing is the gateway's, over both kinds of task.
func (p *plainTasks) List(context.Context, *sdk.ListTasksRequest) (*sdk.ListTasksResponse, error) {
	return nil, sdk.ErrUnsupportedOperation
}
