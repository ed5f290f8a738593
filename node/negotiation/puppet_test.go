// SPDX-License-Identifier: Apache-2.0

package negotiation_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/negotiation/message"
)

// puppet is a buyer whose every byte the test decides: it keeps the protocol until it is told not to.
type puppet struct {
	w        *world
	tb       testing.TB
	me       *party
	ctx      string
	ses      negotiation.Session // for the rounds only
	seq      int64
	head     canon.Digest
	offer    *contract.Offer
	contract *contract.Contract
	last     []byte // sent
}

func (w *world) puppet(me *party) *puppet {
	w.tb.Helper()
	id := envelope.NewID()
	meta, err := metaproto.New(metaproto.Config{
		Role: metaproto.Initiator, ContextID: id, Self: me.id, Peer: w.vendor.id, SigningKID: me.binding.KeyID(), KeyAgreementKID: me.kexID,
	}, metaproto.DefaultPolicy(), w.Now())
	fatal(w.tb, err)
	return &puppet{
		w: w, tb: w.tb, me: me, ctx: id, head: envelope.FirstPrev(me.id, w.vendor.id, id),
		ses: negotiation.NewSession(message.Buyer, me.id, w.vendor.id, id, meta, w.Now(), deadline),
	}
}

// next is the draft of the next message in order.
func (p *puppet) next(t envelope.Type, body []byte) envelope.Draft {
	d := envelope.Draft{Type: t, To: p.w.vendor.id, ContextID: p.ctx, Seq: p.seq + 1, CreatedAt: p.w.Now(), Prev: p.head, Body: body}
	if t != envelope.TypeMetaproto {
		d.Agreement = p.ses.AgreementDigest()
	}
	return d
}

func (p *puppet) sealTo() *envelope.SealTo {
	return &envelope.SealTo{Suite: hpke.SuiteX25519, RecipientKID: p.w.vendor.kexID, Key: p.w.vendor.kex.Public()}
}

func (p *puppet) sign(d envelope.Draft, by did.Signer) []byte {
	p.tb.Helper()
	seal := p.sealTo()
	if d.Type == envelope.TypeMetaproto {
		seal = nil
	}
	env, _, err := envelope.Build(context.Background(), d, by, seal)
	fatal(p.tb, err)
	return env.Raw()
}

func (p *puppet) msg(b message.Body) []byte {
	p.tb.Helper()
	return p.sign(p.next(envelope.TypeNegotiation, p.body(b)), p.me.binding)
}

func (p *puppet) body(b message.Body) []byte {
	p.tb.Helper()
	if b.From == "" {
		b.From = p.me.id.String()
	}
	data, err := canon.Marshal(b)
	fatal(p.tb, err)
	return data
}

func (p *puppet) step(s message.Step) []byte {
	p.tb.Helper()
	if s.From == "" {
		s.From = p.me.id.String()
	}
	data, err := canon.Marshal(s)
	fatal(p.tb, err)
	return p.sign(p.next(envelope.TypeContract, data), p.me.binding)
}

func (p *puppet) receive(raw []byte) (negotiation.Result, error) {
	return p.w.vendor.svc.Receive(context.Background(), p.me.id, raw)
}

// say delivers a message that is accepted, and returns the content of the answer.
func (p *puppet) say(raw []byte) envelope.Opened {
	p.tb.Helper()
	res, err := p.receive(raw)
	fatal(p.tb, err)
	p.last = raw
	if res.Reply == nil {
		return envelope.Opened{}
	}
	return p.open(res.Reply)
}

// open verifies a reply of the vendor and makes it the last message.
func (p *puppet) open(raw []byte) envelope.Opened {
	p.tb.Helper()
	env, err := envelope.Parse(raw, 0)
	fatal(p.tb, err)
	fatal(p.tb, env.VerifyWith(p.w.vendor.doc, p.w.Now()))
	opened, err := envelope.Open(context.Background(), env, hpke.NewKeyring(map[string]did.PrivateKey{p.me.kexID: p.me.kex}),
		envelope.OpenWith{Suite: hpke.SuiteX25519, RecipientKID: p.me.kexID})
	fatal(p.tb, err)
	p.seq, p.head = env.Seq, env.Digest()
	return opened
}

// opening is the first round.
func (p *puppet) opening() []byte {
	p.tb.Helper()
	next, fx, err := p.ses.Begin(metaproto.DefaultPolicy(), p.w.Now())
	fatal(p.tb, err)
	p.ses = next
	return p.sign(p.next(envelope.TypeMetaproto, fx.Reply.Body), p.me.binding)
}

// agree goes through the rounds.
func (p *puppet) agree() *puppet {
	p.tb.Helper()
	raw := p.opening()
	for p.ses.Agreement() == nil {
		o := p.say(raw)
		next, fx, err := p.ses.Round(o.Body, p.w.vendor.binding.KeyID(), nil, metaproto.DefaultPolicy(), p.w.Now())
		fatal(p.tb, err)
		if p.ses = next; fx.Reply != nil {
			raw = p.sign(p.next(envelope.TypeMetaproto, fx.Reply.Body), p.me.binding)
		}
	}
	return p
}

func scope() *contract.Scope {
	return &contract.Scope{
		Dataset: "orders", Columns: []string{"region", "order_value", "customer_email"}, Operations: []string{"avg"}, RowFilter: []contract.Condition{},
		Purpose: "Regional pricing review", RetentionDays: 365, MinGroupSize: 1, CallBudget: 10,
	}
}

func (p *puppet) propose(s *contract.Scope) []byte {
	p.tb.Helper()
	return p.msg(message.Body{Intent: message.Propose, Scope: s})
}

// ask leads to an offer.
func (p *puppet) ask() *puppet {
	p.tb.Helper()
	b, err := message.Parse(p.say(p.propose(scope())).Body, message.Vendor)
	fatal(p.tb, err)
	if b.Intent != message.Counter {
		p.tb.Fatalf("%s %s", b.Code, b.Reason)
	}
	p.offer = b.Offer
	return p
}

func (p *puppet) accept(digest canon.Digest) []byte {
	p.tb.Helper()
	return p.msg(message.Body{Intent: message.Accept, OfferDigest: digest})
}

func digestOf(tb testing.TB, d interface{ Digest() (canon.Digest, error) }) canon.Digest {
	tb.Helper()
	sum, err := d.Digest()
	fatal(tb, err)
	return sum
}

// take accepts the standing offer.
func (p *puppet) take() *puppet {
	p.tb.Helper()
	st, err := message.ParseStep(p.say(p.accept(digestOf(p.tb, p.offer))).Body, message.Vendor)
	fatal(p.tb, err)
	p.contract = st.Contract
	return p
}

// proof is the buyer's proof, by any signer, over any contract.
func (p *puppet) proof(c *contract.Contract, by did.Signer) []byte {
	p.tb.Helper()
	object, err := c.Canonical()
	fatal(p.tb, err)
	proof, err := did.SignObject(context.Background(), object, by, p.w.Now())
	fatal(p.tb, err)
	return p.step(message.Step{Step: message.Proof, Digest: digestOf(p.tb, c), Proof: &proof})
}

// rejected says with which code the vendor's signed rejection ends.
func rejected(tb testing.TB, o envelope.Opened) string {
	tb.Helper()
	b, err := message.Parse(o.Body, message.Vendor)
	fatal(tb, err)
	if b.Intent != message.Reject {
		tb.Fatalf("the vendor said %s", b.Intent)
	}
	return b.Code
}

// resign changes the payload of an envelope and signs it anew.
func resign(tb testing.TB, raw []byte, by did.Signer, change func(map[string]any)) []byte {
	tb.Helper()
	var jws struct{ Payload string }
	fatal(tb, json.Unmarshal(raw, &jws))
	payload, err := base64.RawURLEncoding.DecodeString(jws.Payload)
	fatal(tb, err)
	var m map[string]any
	fatal(tb, json.Unmarshal(payload, &m))
	change(m)
	payload, err = canon.Marshal(m)
	fatal(tb, err)
	out, err := did.SignJWS(context.Background(), payload, envelope.TokenType, by)
	fatal(tb, err)
	return out
}

// breakSignature flips one bit of it.
func breakSignature(tb testing.TB, raw []byte) []byte {
	tb.Helper()
	var jws map[string]string
	fatal(tb, json.Unmarshal(raw, &jws))
	sig, err := base64.RawURLEncoding.DecodeString(jws["signature"])
	fatal(tb, err)
	sig[10] ^= 1
	jws["signature"] = base64.RawURLEncoding.EncodeToString(sig)
	out, err := json.Marshal(jws)
	fatal(tb, err)
	return out
}
