// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/delegation"
	"github.com/treaty-node/treaty/node/store"
)

// State is what a peer may know of where a negotiation stands.
type State string

// The states of negotiation tasks.
const (
	InputRequired State = "input-required" // it is the caller's turn
	Working       State = "working"        // it is ours, or a person's
	Completed     State = "completed"      // there is a contract
	Rejected      State = "rejected"       // one side said no
	Failed        State = "failed"
	Canceled      State = "canceled" // withdrawn
)

// Terminal says whether the state is final.
func (s State) Terminal() bool {
	return s == Completed || s == Rejected || s == Failed || s == Canceled
}

var states = map[State]sdk.TaskState{
	InputRequired: sdk.TaskStateInputRequired,
	Working:       sdk.TaskStateWorking,
	Completed:     sdk.TaskStateCompleted,
	Rejected:      sdk.TaskStateRejected,
	Failed:        sdk.TaskStateFailed,
	Canceled:      sdk.TaskStateCanceled,
}

// Reply is a negotiation as its counterparty sees it.
type Reply struct {
	TaskID, ContextID string
	State             State
	Envelope          []byte // the last envelope for the caller; nil when there is none yet
	Artifact          bool   // the envelope is the final, sealed contract
	Updated           time.Time
}

// ErrNotFound is what a [Negotiator] answers when the caller has no such task.
var ErrNotFound = errors.New("a2a: no such task")

// ListFilter selects negotiations of one caller, newest first.
type ListFilter struct {
	ContextID string // "" for all
	Limit     int    // at least 1
}

// Negotiator is the negotiation behind the gateway. It is safe for concurrent use.
type Negotiator interface {
	// Receive takes one envelope from the caller, byte for byte. When it returns without error the effect and the reply are
	// durable, and the same bytes again give the same reply. A refusal is an *envelope.Refusal, possibly wrapped; it changed
	// nothing that matters to the peer. The bytes must not be kept.
	Receive(ctx context.Context, caller did.DID, envelope []byte) (Reply, error)
	// Lookup finds the caller's task; ErrNotFound for everybody else's.
	Lookup(ctx context.Context, caller did.DID, taskID string) (Reply, error)
	// List returns the caller's negotiations ordered by Updated, newest first.
	List(ctx context.Context, caller did.DID, filter ListFilter) ([]Reply, error)
}

// TaskStore keeps the answers to plain questions of verified callers. [StoreTasks] makes one of a store.Store. Owner checks
// are the store's: another owner's task is store.ErrNotFound.
type TaskStore interface {
	PutTask(ctx context.Context, t store.Task, expect int64) error
	GetTask(ctx context.Context, owner, id string) (store.Task, error)
	ListTasks(ctx context.Context, f store.TaskFilter) ([]store.Task, error)
}

// Answer says what can be negotiated here, for people and for programs. Everything in it is public.
type Answer struct {
	Text string
	Data json.RawMessage // a JSON object, or nil
}

// Config sets up the gateway's server.
type Config struct {
	Negotiator Negotiator
	Tasks      TaskStore
	Describe   func(ctx context.Context) (Answer, error) // answers plain questions; see [DescribeNegotiation]
	Push       *Push                                     // nil: push notifications are not supported
	// Extended makes the agent card for one verified caller, signed; nil: there is none. See [wellknown.BuildCard].
	Extended func(ctx context.Context, caller did.DID) ([]byte, error)
	// Delegate hands a verified caller's question on to other agents and waits for them; nil: every question is answered here.
	Delegate func(ctx context.Context, caller did.DID, q delegation.Question) ([]delegation.Answer, error)
	Legacy   bool // clients of A2A 0.3 may ask plain questions, over JSON-RPC
	Now      func() time.Time
	Logger   *slog.Logger  // nil: nothing is logged. Internal errors go here, never to the peer
	MaxBody  int           // bytes of a request body; 0 = 1 MiB
	Timeout  time.Duration // of one request, streams included; 0 = 60 s
	Poll     time.Duration // how often a subscribed task is looked at; 0 = 1 s
}

// Defaults and bounds.
const (
	DefaultMaxBody = 1 << 20
	DefaultTimeout = 60 * time.Second
	DefaultPoll    = time.Second

	cancelTries   = 10
	cancelEvery   = 20 * time.Millisecond
	inactivity    = time.Minute // an execution without an event ends after
	maxListed     = 1000        // tasks of each kind that a listing looks at
	maxAnonymous  = 1024        // answers to anonymous callers that are kept
	maxID         = 256         // bytes of a peer's message, context or task id
	maxParts      = 32
	maxExtensions = 32
	maxFollowers  = 128 // streams that wait for a task to change; more get it as it stands
)

func (c Config) withDefaults() (Config, error) {
	if c.Negotiator == nil || c.Tasks == nil || c.Describe == nil || c.Now == nil {
		return c, fmt.Errorf("a2a: Negotiator, Tasks, Describe and Now are needed")
	}
	if c.MaxBody == 0 {
		c.MaxBody = DefaultMaxBody
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if p := c.Push; p != nil && (p.Store == nil || p.Client == nil || p.CheckURL == nil) {
		return c, fmt.Errorf("a2a: Push needs Store, Client and CheckURL")
	}
	if c.Poll == 0 {
		c.Poll = DefaultPoll
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}
