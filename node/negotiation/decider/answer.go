// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/negotiation/message"
)

// ErrAnswer is matched when the model gave no usable answer, twice.
var ErrAnswer = errors.New("decider: the model gave no usable answer")

// answer is what a model says. Every member is always there.
type answer struct {
	Intent    string `json:"intent"`
	Scope     scope  `json:"scope"`
	Rationale string `json:"rationale"` // for the operator's record; nobody else gets it
}

// scope is what the model may have a say in.
type scope struct {
	Columns       []string `json:"columns"`
	Operations    []string `json:"operations"`
	RetentionDays int      `json:"retention_days"`
	MinGroupSize  int      `json:"min_group_size"`
	CallBudget    int64    `json:"call_budget"`
}

const (
	maxAnswer     = 64 << 10 // bytes
	maxOperations = 32
)

// exactly decodes data into v when it is one JSON object of v's form: every member there, none beside, none null.
func exactly(data string, v any) error {
	limits := canon.Limits{MaxBytes: maxAnswer, MaxDepth: 8}
	have, err := canon.Canonicalize([]byte(data), limits)
	if err != nil {
		return err
	}
	if err := canon.Unmarshal(have, v, limits); err != nil {
		return err
	}
	again, err := canon.Marshal(v)
	if err != nil {
		return err
	}
	if !bytes.Equal(have, again) {
		return errors.New("a key is missing or null")
	}
	return nil
}

// parseAnswer reads an answer that may have one of these intents.
func parseAnswer(text string, intents []string) (answer, error) {
	var a answer
	if err := exactly(text, &a); err != nil {
		return answer{}, err
	}
	s := &a.Scope
	switch {
	case !slices.Contains(intents, a.Intent):
		return answer{}, fmt.Errorf("intent: %s is none of %q", contract.Echo(a.Intent), intents)
	case utf8.RuneCountInString(a.Rationale) > message.MaxRationale:
		return answer{}, fmt.Errorf("rationale: more than %d characters", message.MaxRationale)
	case len(s.Columns) > contract.MaxColumns || slices.ContainsFunc(s.Columns, func(c string) bool { return len(c) > contract.MaxName }):
		return answer{}, errors.New("scope.columns: too many, or a name that is too long")
	case len(s.Operations) > maxOperations || slices.ContainsFunc(s.Operations, func(o string) bool { return len(o) > contract.MaxName }):
		return answer{}, errors.New("scope.operations: too many, or a name that is too long")
	case s.RetentionDays < 0 || s.RetentionDays > contract.MaxRetention:
		return answer{}, fmt.Errorf("scope.retention_days: not between 0 and %d", contract.MaxRetention)
	case s.MinGroupSize < 1 || s.MinGroupSize > contract.MaxMinGroupSize:
		return answer{}, fmt.Errorf("scope.min_group_size: not between 1 and %d", contract.MaxMinGroupSize)
	case s.CallBudget < 1 || s.CallBudget > contract.MaxCallBudget:
		return answer{}, fmt.Errorf("scope.call_budget: not between 1 and %d", contract.MaxCallBudget)
	}
	return a, nil
}

func (s *scope) contract() contract.Scope {
	return contract.Scope{
		Columns: s.Columns, Operations: s.Operations, RetentionDays: s.RetentionDays, MinGroupSize: s.MinGroupSize, CallBudget: s.CallBudget,
	}
}

func scopeOf(s *contract.Scope) scope {
	return scope{Columns: s.Columns, Operations: s.Operations, RetentionDays: s.RetentionDays, MinGroupSize: s.MinGroupSize, CallBudget: s.CallBudget}
}

type object = map[string]any

// form is the JSON schema of an answer, as endpoints with structured output want it: every member required, none beside.
func form(intents []string) object {
	texts := object{"type": "array", "items": object{"type": "string"}}
	return closed(object{
		"intent": object{"type": "string", "enum": intents},
		"scope": closed(object{
			"columns": texts, "operations": texts,
			"retention_days": object{"type": "integer"}, "min_group_size": object{"type": "integer"}, "call_budget": object{"type": "integer"},
		}),
		"rationale": object{"type": "string"},
	})
}

func closed(members object) object {
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	return object{"type": "object", "properties": members, "required": names, "additionalProperties": false}
}
