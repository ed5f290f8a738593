// SPDX-License-Identifier: Apache-2.0

package notice

import (
	"context"
	"fmt"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/node/envelope"
)

// Probe is a notice in its envelope that is not in the outbox: a drill seals one before a rotation and sends it after, or to a key
// that nobody should seal to any more.
type Probe struct {
	env  *envelope.Envelope
	kind string
}

// NewProbe seals a notice to one key of a document, whatever other keys there are. The document may be an older one than the peer
// publishes now; whoever calls has verified it.
func (s *Service) NewProbe(ctx context.Context, to *did.Document, kid, contextID, kind string, data any) (*Probe, error) {
	m, ok := to.Method(kid)
	if !ok || !to.In(kid, did.KeyAgreement) || m.Key.Type() != Suite.KeyType() {
		return nil, fmt.Errorf("%w: %s is no key-agreement key of %s", hpke.ErrKey, kid, to.ID())
	}
	text, err := canonical(data)
	if err != nil {
		return nil, err
	}
	body, err := canonical(Notice{Type: BodyType, Kind: kind, Data: text})
	if err != nil {
		return nil, err
	}
	env, _, err := s.sealTo(ctx, envelope.Draft{
		To: to.ID(), ContextID: contextID, Seq: 1, Prev: envelope.FirstPrev(s.self(), to.ID(), contextID), CreatedAt: s.cfg.Now(), Body: body,
	}, kid, m.Key)
	return &Probe{env, kind}, err
}

// SendProbe delivers a probe once, over the route to the node via, and returns the signed answer, of whichever DID the recipient
// has now. A refusal is an *envelope.Refusal.
func (s *Service) SendProbe(ctx context.Context, p *Probe, via did.DID) (Answer, error) {
	route, err := s.cfg.Connect(ctx, via)
	if err != nil {
		return Answer{}, err
	}
	raw, err := route.Deliver(ctx, p.env.ContextID, p.env.Raw())
	if err != nil {
		return Answer{}, err
	}
	env, err := envelope.Parse(raw, 0)
	if err != nil {
		return Answer{}, err
	}
	from := p.env.To
	if env.From != from && did.SameSubject(env.From, from) && s.cfg.Successor != nil {
		from = s.cfg.Successor(ctx, from)
	}
	doc, err := s.cfg.Resolver.Resolve(ctx, from)
	if err != nil {
		return Answer{}, err
	}
	opened, err := s.verified(ctx, p.env, doc, env)
	if err != nil {
		return Answer{}, err
	}
	a, err := ParseAnswer(opened.Body)
	if err == nil && a.Kind != p.kind {
		err = malformed("an answer of another kind")
	}
	if err != nil {
		return Answer{}, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return *a, nil
}
