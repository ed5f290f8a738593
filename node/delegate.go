// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/delegation"
	"github.com/treaty-node/treaty/node/gateway/a2a"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/wellknown"
)

// Delegation says how plain questions are handed on to other agents.
type Delegation struct {
	// Agents are the DIDs or domains that are asked when a question names none.
	Agents []string `yaml:"agents,omitempty"`
	// Serve lets callers that trust policy admits have their questions handed on to Agents. Without it only this node's own
	// operator asks others.
	Serve bool `yaml:"serve,omitempty"`
	// Timeout bounds one question with all its hops (default 20s, at most 50s).
	Timeout time.Duration `yaml:"timeout,omitempty"`
}

const (
	defaultDelegation = 20 * time.Second
	maxDelegation     = 50 * time.Second // within the time that one A2A request may take
	maxDelegations    = 4                // questions of others that are under way at once
)

var errBusy = errors.New("this agent hands on as many questions as it can at the moment; ask again later")

// Ask hands the operator's question on.
func (n *Node) Ask(ctx context.Context, req httpapi.AskRequest) ([]delegation.Answer, error) {
	if req.Depth == 0 {
		req.Depth = 1
	}
	if req.OnFailure == "" {
		req.OnFailure = delegation.Partial
	}
	agents := req.Agents
	if len(agents) == 0 {
		agents = n.cfg.Delegation.Agents
	}
	if len(agents) == 0 {
		return nil, &httpapi.Error{Kind: httpapi.KindUsage, Message: "nobody to ask", Hint: "name agents with --peer, or list them under delegation.agents in " + ConfigFile}
	}
	q := delegation.Question{Text: req.Text, Skill: req.Skill, Depth: req.Depth, Via: []string{}, OnFailure: req.OnFailure}
	answers, err := n.handOn(ctx, "", q, agents, n.askAgent)
	switch {
	case errors.Is(err, delegation.ErrInvalid):
		return nil, &httpapi.Error{Kind: httpapi.KindUsage, Message: err.Error()}
	case errors.Is(err, delegation.ErrFailed):
		return nil, &httpapi.Error{Kind: httpapi.KindUnreachable, Code: "DELEGATION", Message: err.Error(), Hint: "with --on-failure partial the other answers count; `treaty doctor --peer …` says what is wrong with one"}
	}
	return answers, err
}

// delegate hands a caller's question on. It is what the A2A gateway calls, nil when this node does not serve it.
func (n *Node) delegate() func(context.Context, did.DID, delegation.Question) ([]delegation.Answer, error) {
	if !n.cfg.Delegation.Serve || len(n.cfg.Delegation.Agents) == 0 {
		return nil
	}
	slots := make(chan struct{}, maxDelegations)
	return func(ctx context.Context, caller did.DID, q delegation.Question) ([]delegation.Answer, error) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			return nil, errors.Join(delegation.ErrFailed, errBusy)
		}
		return n.handOn(ctx, caller.String(), q, n.cfg.Delegation.Agents, n.askForOthers)
	}
}

// handOn asks agents and records whom it asked for whom, and what became of it. What they said is the asker's, and not in the log.
func (n *Node) handOn(ctx context.Context, from string, q delegation.Question, agents []string, ask delegation.Ask) ([]delegation.Answer, error) {
	timeout := n.cfg.Delegation.Timeout
	if timeout == 0 {
		timeout = defaultDelegation
	}
	limited, cancel := context.WithTimeout(ctx, min(timeout, maxDelegation))
	defer cancel()
	ids, err := n.findAll(limited, agents)
	if err != nil {
		return nil, err
	}
	answers, err := delegation.Run(limited, n.self().String(), q, ids, ask)
	if answers == nil {
		return nil, err
	}
	event := ledger.Delegation{From: from, Question: canon.Sum([]byte(q.Text)), Skill: q.Skill, Depth: q.Depth, Agents: ids, Outcomes: make([]string, len(answers))}
	for i, a := range answers {
		event.Outcomes[i] = string(a.Outcome)
	}
	if recordErr := n.record(context.WithoutCancel(ctx), ledger.Entry{Type: ledger.QuestionDelegated, Peer: from, Data: event}); recordErr != nil {
		return nil, recordErr
	}
	return answers, err
}

// findAll turns DIDs and domains into DIDs. A domain that cannot be looked up is a failure of its own branch, not of the whole.
func (n *Node) findAll(ctx context.Context, targets []string) (ids []string, err error) {
	for _, target := range targets {
		found, err := n.find(ctx, target)
		var usage *httpapi.Error
		if errors.As(err, &usage) && usage.Kind == httpapi.KindUsage {
			return nil, err
		}
		if err != nil {
			ids = append(ids, target) // asking it says why not
			continue
		}
		for _, id := range found {
			if !slices.Contains(ids, id.String()) {
				ids = append(ids, id.String())
			}
		}
	}
	return ids, nil
}

// askAgent implements [delegation.Ask]: whoever is asked is verified first, and its card must list the skill.
func (n *Node) askAgent(ctx context.Context, agent string, q delegation.Question) (delegation.Answer, error) {
	found, err := n.find(ctx, agent)
	if err != nil {
		return delegation.Answer{}, err
	}
	peer, err := n.connect(ctx, found[0])
	if err != nil {
		return delegation.Answer{}, err
	}
	if !peer.offers(q.Skill) {
		return delegation.Answer{}, delegation.ErrSkipped
	}
	client, err := a2a.NewClient(a2a.ClientConfig{Card: peer.card, HTTP: n.signed, Timeout: n.cfg.Limits.PeerTimeout})
	if err != nil {
		return delegation.Answer{}, err
	}
	return client.Ask(ctx, q)
}

// askForOthers tells a caller what became of its question, and not how this node reaches its agents.
func (n *Node) askForOthers(ctx context.Context, agent string, q delegation.Question) (delegation.Answer, error) {
	answer, err := n.askAgent(ctx, agent, q)
	var own *httpapi.Error
	var transport *a2a.TransportError
	switch {
	case errors.As(err, &own):
		n.log.Info("a question was not handed on", "agent", agent, "err", err)
		return answer, errors.New("the agent could not be asked (" + string(own.Kind) + ")")
	case errors.As(err, &transport):
		n.log.Info("a question was not handed on", "agent", agent, "err", err)
		return answer, errors.New("the agent could not be reached")
	}
	return answer, err
}

// offers says whether the agent's card lists a skill by its id or one of its tags.
func (p *peer) offers(skill string) bool {
	return skill == "" || slices.ContainsFunc(p.card.Skills, func(s wellknown.Skill) bool { return s.ID == skill || slices.Contains(s.Tags, skill) })
}
