// SPDX-License-Identifier: Apache-2.0

// Package delegation hands a question on to other agents, waits for all of them, and merges what they say (A2A's follow-up work
// over several hops).
//
// What it guarantees: every branch ends, with an answer, an error or the end of the time; depth and fan-out are bounded; no agent is
// asked twice on one way, so that circles end; when the question is taken back, so is every branch that is still under way; and
// what becomes of the whole when a branch fails is said by the policy that came with the question, never left to chance.
//
// What it does not do: it does not judge answers. An answer is the words of the agent that stands beside it.
package delegation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Bounds.
const (
	MaxDepth  = 3        // hops
	MaxFanOut = 8        // agents that one agent asks at once
	MaxVia    = MaxDepth // agents that a question has come through
	MaxText   = 16 << 10 // bytes of a question, and of one agent's words
	MaxSkill  = 128      // bytes
)

// OnFailure says what becomes of the whole when a branch fails.
type OnFailure string

// The policies.
const (
	Fail    OnFailure = "fail"    // the whole fails, and the other branches are taken back
	Partial OnFailure = "partial" // the whole is what the others said, with the failure beside it; it fails when all do
)

// Question is what is handed on. Its JSON form travels in the metadata of an A2A message; the text is the message's.
type Question struct {
	Text      string    `json:"-"`
	Skill     string    `json:"skill"`     // id or tag of a skill that an asked agent's card must list; "" for any agent
	Depth     int       `json:"depth"`     // hops that are left; 0: answer yourself
	Via       []string  `json:"via"`       // DIDs that it has come through, the first asker first
	OnFailure OnFailure `json:"onFailure"` // Fail or Partial
}

// ErrInvalid: the question cannot be handed on as it is.
var ErrInvalid = errors.New("delegation: invalid question")

// Validate checks every bound.
func (q *Question) Validate() error {
	switch {
	case q.Text == "" || len(q.Text) > MaxText:
		return fmt.Errorf("%w: the text has 1 to %d bytes", ErrInvalid, MaxText)
	case len(q.Skill) > MaxSkill:
		return fmt.Errorf("%w: the skill's name has at most %d bytes", ErrInvalid, MaxSkill)
	case q.Depth < 0 || q.Depth > MaxDepth:
		return fmt.Errorf("%w: the depth is 0 to %d", ErrInvalid, MaxDepth)
	case len(q.Via) > MaxVia:
		return fmt.Errorf("%w: it has come through more than %d agents", ErrInvalid, MaxVia)
	case q.OnFailure != Fail && q.OnFailure != Partial:
		return fmt.Errorf("%w: onFailure is %q or %q", ErrInvalid, Fail, Partial)
	}
	return nil
}

// Outcome of one agent.
type Outcome string

// The outcomes.
const (
	Answered Outcome = "answered"
	Failed   Outcome = "failed"
	Skipped  Outcome = "skipped"  // it has no such skill, or was asked already on this way
	Canceled Outcome = "canceled" // taken back
)

// Answer is what one agent said, and what those said that it asked.
type Answer struct {
	Agent    string          `json:"agent"` // DID
	Outcome  Outcome         `json:"outcome"`
	Text     string          `json:"text,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"`
	Error    string          `json:"error,omitempty"`
	Branches []Answer        `json:"branches,omitempty"`
}

// ErrSkipped is what an Ask returns for an agent that is not to be asked: it lacks the skill.
var ErrSkipped = errors.New("delegation: the agent has no such skill")

// ErrFailed: a branch failed under Fail, or all did.
var ErrFailed = errors.New("delegation: a branch failed")

// Ask puts a question to one agent and waits for its answer. When ctx ends before, it takes the question back.
type Ask func(ctx context.Context, agent string, q Question) (Answer, error)

// Run asks the agents at once and waits for all of them. self is the DID of who asks. The answers are in the order of the agents; one
// that is on the question's way already, is self or stands there twice is skipped, and so are those beyond MaxFanOut. With the
// error ErrFailed the answers say which branch it was.
func Run(ctx context.Context, self string, q Question, agents []string, ask Ask) ([]Answer, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	if q.Depth < 1 {
		return nil, fmt.Errorf("%w: no hop is left", ErrInvalid)
	}
	next := q
	next.Depth--
	next.Via = append(slices.Clone(q.Via), self)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make([]Answer, len(agents))
	var wg sync.WaitGroup
	asked := 0
	for i, agent := range agents {
		answers[i] = Answer{Agent: agent, Outcome: Skipped}
		switch {
		case slices.Contains(next.Via, agent) || slices.Contains(agents[:i], agent):
			answers[i].Error = "it has been asked already"
			continue
		case asked == MaxFanOut || len(next.Via) > MaxVia:
			answers[i].Error = fmt.Sprintf("at most %d agents are asked at once, over %d hops", MaxFanOut, MaxDepth)
			continue
		}
		asked++
		wg.Go(func() {
			answers[i] = one(ctx, agent, next, ask)
			if answers[i].Outcome == Failed && q.OnFailure == Fail {
				cancel()
			}
		})
	}
	wg.Wait()
	return answers, verdict(q.OnFailure, answers)
}

func one(ctx context.Context, agent string, q Question, ask Ask) Answer {
	a, err := ask(ctx, agent, q)
	a.Agent = agent // whoever answers does not choose its name
	switch {
	case errors.Is(err, ErrSkipped):
		return Answer{Agent: agent, Outcome: Skipped, Error: "it has no such skill"}
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return Answer{Agent: agent, Outcome: Canceled}
	case err != nil:
		a.Outcome, a.Error = Failed, err.Error()
	default:
		a.Outcome = Answered
	}
	return a
}

// verdict applies the policy.
func verdict(policy OnFailure, answers []Answer) error {
	failed, answered := 0, 0
	first := ""
	for _, a := range answers {
		switch a.Outcome {
		case Answered:
			answered++
		case Failed, Canceled:
			failed++
			if a.Outcome == Failed && first == "" {
				first = a.Agent + ": " + a.Error
			}
		}
	}
	if failed > 0 && (policy == Fail || answered == 0) {
		if first == "" {
			return fmt.Errorf("%w: taken back", ErrFailed)
		}
		return fmt.Errorf("%w: %s", ErrFailed, first)
	}
	return nil
}
