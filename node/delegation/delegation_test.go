// SPDX-License-Identifier: Apache-2.0

package delegation

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

func question() Question { return Question{Text: "what?", Depth: 1, OnFailure: Partial} }

func says(_ context.Context, agent string, _ Question) (Answer, error) {
	switch {
	case strings.HasPrefix(agent, "bad"):
		return Answer{Text: "half"}, errors.New("out of order")
	case strings.HasPrefix(agent, "other"):
		return Answer{}, ErrSkipped
	}
	return Answer{Agent: "somebody else", Text: "I am " + agent}, nil
}

func outcomes(answers []Answer) (out []Outcome) {
	for _, a := range answers {
		out = append(out, a.Outcome)
	}
	return out
}

func TestPolicies(t *testing.T) {
	for _, c := range []struct {
		policy OnFailure
		agents []string
		want   []Outcome
		fails  bool
	}{
		{Partial, []string{"a", "b"}, []Outcome{Answered, Answered}, false},
		{Partial, []string{"a", "bad"}, []Outcome{Answered, Failed}, false},
		{Partial, []string{"bad1", "bad2"}, []Outcome{Failed, Failed}, true},
		{Partial, []string{"other"}, []Outcome{Skipped}, false},
		{Partial, nil, nil, false},
		{Fail, []string{"a", "other"}, []Outcome{Answered, Skipped}, false},
		{Partial, []string{"a", "a", "self", "root"}, []Outcome{Answered, Skipped, Skipped, Skipped}, false},
	} {
		q := question()
		q.OnFailure, q.Via = c.policy, []string{"root"}
		got, err := Run(t.Context(), "self", q, c.agents, says)
		if !slices.Equal(outcomes(got), c.want) || (err != nil) != c.fails || err != nil && !errors.Is(err, ErrFailed) {
			t.Errorf("%s %v: %+v, %v", c.policy, c.agents, got, err)
		}
		for i, a := range got {
			if a.Agent != c.agents[i] {
				t.Errorf("%s speaks as %s", c.agents[i], a.Agent)
			}
		}
	}
}

// A failure under Fail takes the other branches back, and they end.
func TestFailTakesBack(t *testing.T) {
	q := question()
	q.OnFailure = Fail
	got, err := Run(t.Context(), "self", q, []string{"slow", "bad"}, func(ctx context.Context, agent string, q Question) (Answer, error) {
		if agent == "slow" {
			<-ctx.Done()
			return Answer{}, ctx.Err()
		}
		return says(ctx, agent, q)
	})
	if !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "bad: out of order") || !slices.Equal(outcomes(got), []Outcome{Canceled, Failed}) {
		t.Errorf("%+v %v", got, err)
	}
}

// When the question is taken back, every branch is; when only its time is over, the branches failed.
func TestCancellationTravels(t *testing.T) {
	wait := func(ctx context.Context, _ string, _ Question) (Answer, error) {
		<-ctx.Done()
		return Answer{}, ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := Run(ctx, "self", question(), []string{"a", "b"}, wait)
	if !errors.Is(err, ErrFailed) || !slices.Equal(outcomes(got), []Outcome{Canceled, Canceled}) {
		t.Errorf("%+v %v", got, err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 1)
	defer cancel()
	got, err = Run(ctx, "self", question(), []string{"a"}, wait)
	if !errors.Is(err, ErrFailed) || !slices.Equal(outcomes(got), []Outcome{Failed}) {
		t.Errorf("%+v %v", got, err)
	}
}

// However the agents point at each other, the whole ends, within the depth, and asks nobody twice on one way.
func TestCirclesEnd(t *testing.T) {
	all := []string{"a", "b", "c", "d", "e"}
	var asked atomic.Int64
	var ask func(self string) Ask
	ask = func(self string) Ask {
		return func(ctx context.Context, agent string, q Question) (Answer, error) {
			asked.Add(1)
			if len(q.Via) > MaxVia || slices.Contains(q.Via, agent) || q.Via[len(q.Via)-1] != self {
				t.Errorf("%s is asked on the way %v", agent, q.Via)
			}
			if q.Depth == 0 {
				return Answer{Text: agent}, nil
			}
			branches, err := Run(ctx, agent, q, all, ask(agent))
			return Answer{Text: agent, Branches: branches}, err
		}
	}
	q := question()
	q.Depth = MaxDepth
	if _, err := Run(t.Context(), "a", q, all, ask("a")); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n != 4+4*3+4*3*2 {
		t.Errorf("asked %d times", n)
	}
}

func TestBounds(t *testing.T) {
	many := make([]string, MaxFanOut+3)
	for i := range many {
		many[i] = fmt.Sprint("agent ", i)
	}
	got, err := Run(t.Context(), "self", question(), many, says)
	skipped := 0
	for _, a := range got {
		if a.Outcome == Skipped {
			skipped++
		}
	}
	if err != nil || skipped != 3 {
		t.Errorf("%d skipped, %v", skipped, err)
	}
	for name, change := range map[string]func(*Question){
		"no text":   func(q *Question) { q.Text = "" },
		"long text": func(q *Question) { q.Text = strings.Repeat("x", MaxText+1) },
		"skill":     func(q *Question) { q.Skill = strings.Repeat("x", MaxSkill+1) },
		"depth":     func(q *Question) { q.Depth = MaxDepth + 1 },
		"no depth":  func(q *Question) { q.Depth = 0 },
		"below":     func(q *Question) { q.Depth = -1 },
		"via":       func(q *Question) { q.Via = many },
		"policy":    func(q *Question) { q.OnFailure = "" },
	} {
		q := question()
		change(&q)
		if got, err := Run(t.Context(), "self", q, many, says); !errors.Is(err, ErrInvalid) || got != nil {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
	q := question()
	before := q
	_, _ = Run(t.Context(), "self", q, many, says)
	if !reflect.DeepEqual(q, before) {
		t.Error("the question was changed")
	}
}
