// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/negotiation/message"
	"github.com/treaty-node/treaty/node/negotiation/policy"
)

var errTooLarge = errors.New("decider: the question is too large for a model")

var (
	vendorIntents = []string{string(message.Counter), string(message.Reject)}
	buyerIntents  = []string{string(message.Accept), string(message.Counter), string(message.Reject)}
)

// Vendor implements [negotiation.Drafter].
type Vendor struct {
	Model  *Model
	Schema func(dataset string) *contract.Schema // as published
}

// Admit implements [negotiation.Drafter]: there is a call left for the peer.
func (v Vendor) Admit(peer did.DID, now time.Time) error { return v.Model.budget.has(peer, now) }

// Draft implements [negotiation.Drafter].
func (v Vendor) Draft(ctx context.Context, ask negotiation.Ask, most *contract.Offer) (negotiation.Wish, error) {
	p, err := vendorPrompt(ask, most, v.Schema(ask.Scope.Dataset))
	if err != nil {
		return negotiation.Wish{}, err
	}
	var a answer
	err = v.Model.ask(ctx, question{ask.Peer, ask.ContextID, p, form(vendorIntents), func(text string) (err error) {
		a, err = parseAnswer(text, vendorIntents)
		return err
	}})
	if err != nil {
		return negotiation.Wish{}, err
	}
	return negotiation.Wish{Declined: a.Intent != string(message.Counter), Scope: a.Scope.contract()}, nil
}

// Buyer implements [negotiation.Adviser].
type Buyer struct{ Model *Model }

// Advise implements [negotiation.Adviser].
func (b Buyer) Advise(ctx context.Context, q negotiation.Standing) (policy.Advice, error) {
	p, err := buyerPrompt(q)
	if err != nil {
		return policy.Advice{}, err
	}
	var a answer
	err = b.Model.ask(ctx, question{q.Peer, q.ContextID, p, form(buyerIntents), func(text string) (err error) {
		a, err = parseAnswer(text, buyerIntents)
		return err
	}})
	return policy.Advice{Action: policy.Action(a.Intent), Scope: a.Scope.contract()}, err
}

// Reader implements [negotiation.Reader]. It reads values that our own floor allows, and nothing else.
type Reader struct {
	Model  *Model
	Policy func() metaproto.Policy
}

// readTime bounds a reading: somebody waits for the round's answer.
const readTime = 8 * time.Second

// Read implements [negotiation.Reader].
func (r Reader) Read(ctx context.Context, peer did.DID, contextID, text string) ([]metaproto.Candidate, error) {
	p := r.Policy()
	all := known(&p.Floor)
	words, err := readerPrompt(text, all)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	var read reading
	shape := closed(object{"values": object{"type": "array", "items": object{"type": "string", "enum": all}}})
	err = r.Model.ask(ctx, question{peer, contextID, words, shape, func(text string) error {
		read = reading{}
		if err := exactly(text, &read); err != nil {
			return err
		}
		if len(read.Values) > len(all) {
			return errors.New("values: more than are known")
		}
		return nil
	}})
	if err != nil {
		return nil, err
	}
	// One candidate says it all: the first value of each kind that was named, and our own preference for the rest.
	c := p.Preferences[0]
	first := func(allowed []string, dst *string) {
		for _, v := range read.Values {
			if slices.Contains(allowed, v) {
				*dst = v
				return
			}
		}
	}
	first(p.Floor.Transports, &c.Transport)
	first(p.Floor.DataPlanes, &c.DataPlane)
	suites := make([]string, 0, len(p.Floor.HPKESuites))
	for _, s := range p.Floor.HPKESuites {
		suites = append(suites, string(s))
	}
	suite := string(c.HPKESuite)
	first(suites, &suite)
	c.HPKESuite = hpke.Suite(suite)
	return []metaproto.Candidate{c}, nil
}
