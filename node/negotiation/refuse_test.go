// SPDX-License-Identifier: Apache-2.0

package negotiation_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/negotiation/message"
)

// bad is a message that must be refused, and change nothing.
type bad struct {
	name   string
	want   envelope.Code
	raw    []byte
	caller *party // nil: the buyer
}

// refuseAll sends each and holds the vendor's store against what it was.
func (p *puppet) refuseAll(t *testing.T, list []bad) {
	t.Helper()
	w := p.w
	for _, b := range list {
		t.Run(b.name, func(t *testing.T) {
			before, refusals := w.vendor.dump(t), w.vendor.count(t, ledger.MessageRefused)
			caller := b.caller
			if caller == nil {
				caller = w.buyer
			}
			res, err := w.vendor.svc.Receive(t.Context(), caller.id, b.raw)
			if got := envelope.CodeOf(err); got != b.want {
				t.Errorf("got %q (%v), want %s", got, err, b.want)
			}
			if res.Reply != nil {
				t.Error("there is a reply")
			}
			if after := w.vendor.dump(t); after != before {
				t.Errorf("the state changed:\n%s\n%s", before, after)
			}
			if n := w.vendor.count(t, ledger.MessageRefused); n != refusals+1 {
				t.Errorf("%d refusals were logged", n-refusals)
			}
		})
		w.Advance(4 * time.Second) // stay below the bound on logged refusals
	}
}

// envelopeLevel are the bad forms of the good message that next would make.
func (p *puppet) envelopeLevel(t *testing.T, typ envelope.Type, body []byte) []bad {
	t.Helper()
	w, me := p.w, p.me
	draft := func() envelope.Draft { return p.next(typ, body) }
	good := p.sign(draft(), me.binding)
	with := func(change func(*envelope.Draft)) []byte {
		d := draft()
		change(&d)
		return p.sign(d, me.binding)
	}
	re := func(change func(map[string]any)) []byte { return resign(t, good, me.binding, change) }
	jws := func(change func(map[string]string)) []byte {
		var m map[string]string
		fatal(t, json.Unmarshal(good, &m))
		change(m)
		out, err := json.Marshal(m)
		fatal(t, err)
		return out
	}
	payload := func(b []byte) []byte {
		out, err := did.SignJWS(t.Context(), b, envelope.TokenType, me.binding)
		fatal(t, err)
		return out
	}
	var clear struct{ Payload string }
	fatal(t, json.Unmarshal(good, &clear))
	plain, err := base64.RawURLEncoding.DecodeString(clear.Payload)
	fatal(t, err)
	// Only a withdrawal may come out of turn, and only in a negotiation message: for others it shows before they are opened.
	late, taken := envelope.CodeOutOfOrder, envelope.CodeReplayed
	if typ == envelope.TypeNegotiation {
		late, taken = envelope.CodeOutOfTurn, envelope.CodeOutOfTurn
	}
	list := []bad{
		{name: "empty", want: envelope.CodeMalformed},
		{name: "not JSON", want: envelope.CodeMalformed, raw: []byte("hello")},
		{name: "unsigned", want: envelope.CodeMalformed, raw: jws(func(m map[string]string) { delete(m, "signature") })},
		{name: "empty signature", want: envelope.CodeMalformed, raw: jws(func(m map[string]string) { m["signature"] = "" })},
		{name: "wrongly signed", want: envelope.CodeBadSignature, raw: breakSignature(t, good)},
		{name: "padded", want: envelope.CodeMalformed, raw: jws(func(m map[string]string) { m["signature"] += "==" })},
		{name: "another member", want: envelope.CodeMalformed, raw: jws(func(m map[string]string) { m["header"] = "x" })},
		{name: "second payload", want: envelope.CodeMalformed, raw: append([]byte(`{"payload":"e30",`), good[1:]...)},
		{name: "compact form", want: envelope.CodeMalformed, raw: jwsCompact(t, good)},
		{name: "truncated", want: envelope.CodeMalformed, raw: good[:len(good)/2]},
		{name: "trailing data", want: envelope.CodeMalformed, raw: append(bytes.Clone(good), "{}"...)},
		{name: "10 MB", want: envelope.CodeTooLarge, raw: bytes.Repeat([]byte("a"), 10<<20)},
		{name: "10 000 deep", want: envelope.CodeMalformed, raw: payload([]byte(strings.Repeat("[", 10000) + strings.Repeat("]", 10000)))},
		{name: "duplicate member", want: envelope.CodeMalformed, raw: payload(append([]byte(`{"agreement":"x",`), plain[1:]...))},
		{name: "unknown member", want: envelope.CodeMalformed, raw: re(func(m map[string]any) { m["zzz"] = 1 })},
		{name: "case variant", want: envelope.CodeMalformed, raw: re(func(m map[string]any) { m["Seq"] = m["seq"]; delete(m, "seq") })},
		{name: "another version", want: envelope.CodeVersionMismatch, raw: re(func(m map[string]any) { m["v"] = 2 })},
		{name: "from is not the signer", want: envelope.CodeWrongSender, raw: re(func(m map[string]any) { m["from"] = w.third.id.String() })},
		{name: "from is the recipient", want: envelope.CodeMalformed, raw: re(func(m map[string]any) { m["from"] = w.vendor.id.String() })},
		{name: "the caller is not the signer", want: envelope.CodeWrongSender, raw: good, caller: w.third},
		{name: "signed by another for the sender", want: envelope.CodeWrongSender, raw: resign(t, good, w.third.binding, func(map[string]any) {}), caller: w.third},
		{name: "for somebody else", want: envelope.CodeWrongRecipient, raw: re(func(m map[string]any) { m["to"] = w.third.id.String() })},
		{name: "by the recovery key", want: envelope.CodeBadSignature, raw: p.sign(draft(), me.recovery)},
		{name: "by the human key", want: envelope.CodeBadSignature, raw: p.sign(draft(), me.human)},
		{name: "by another key than agreed", want: envelope.CodeAgreementMismatch, raw: p.sign(draft(), me.second)},
		{name: "future-dated", want: envelope.CodeNotYetValid, raw: with(func(d *envelope.Draft) { d.CreatedAt = w.Now().Add(time.Hour) })},
		{name: "a later one first", want: late, raw: with(func(d *envelope.Draft) { d.Seq += 2 })},
		{name: "our own place", want: taken, raw: with(func(d *envelope.Draft) { d.Seq-- })},
		{name: "another prev", want: envelope.CodeOutOfOrder, raw: with(func(d *envelope.Draft) { d.Prev = canon.Sum([]byte("x")) })},
		{name: "an earlier prev", want: envelope.CodeOutOfOrder, raw: with(func(d *envelope.Draft) { d.Prev = envelope.FirstPrev(me.id, w.vendor.id, p.ctx) })},
		{name: "no agreement named", want: envelope.CodeNoAgreement, raw: re(func(m map[string]any) { delete(m, "agreement") })},
		{name: "another agreement", want: envelope.CodeAgreementMismatch, raw: with(func(d *envelope.Draft) { d.Agreement = canon.Sum([]byte("x")) })},
		{name: "a notice", want: envelope.CodeUnexpectedType, raw: with(func(d *envelope.Draft) { d.Type = envelope.TypeNotice })},
		{name: "an unknown type", want: envelope.CodeUnexpectedType, raw: re(func(m map[string]any) { m["type"] = "order" })},
		{name: "sealed to another key", want: envelope.CodeSuiteMismatch, raw: func() []byte {
			env, _, err := envelope.Build(t.Context(), draft(), me.binding, &envelope.SealTo{Suite: p.sealTo().Suite, RecipientKID: w.vendor.id.String() + "#kex-other", Key: w.third.kex.Public()})
			fatal(t, err)
			return env.Raw()
		}()},
		{name: "content that does not open", want: envelope.CodeCannotOpen, raw: re(func(m map[string]any) {
			sealed := m["sealed"].(map[string]any)
			text := []byte(sealed["ciphertext"].(string))
			if text[5]++; text[5] != 'B' {
				text[5] = 'A'
			}
			sealed["ciphertext"] = string(text)
		})},
		{name: "sealed for another header", want: envelope.CodeCannotOpen, raw: re(func(m map[string]any) { m["messageId"] = envelope.NewID() })},
		{name: "the rounds again", want: envelope.CodeUnexpectedType, raw: p.sign(p.next(envelope.TypeMetaproto,
			[]byte(`{"action":"protocolNegotiation","candidateProtocols":"","modificationSummary":"","sequenceId":4,"status":"rejected"}`)), me.binding)},
		{name: "another conversation", want: envelope.CodeNoAgreement, raw: with(func(d *envelope.Draft) { d.ContextID = envelope.NewID() })},
		{name: "an outsider in this conversation", want: envelope.CodeNoAgreement, raw: p.sign(draft(), w.third.binding), caller: w.third},
	}
	if typ != envelope.TypeContract { // a proof that is too late is answered with a signed rejection
		list = append(list, bad{name: "expired", want: envelope.CodeExpired, raw: with(func(d *envelope.Draft) {
			d.CreatedAt, d.Lifetime = w.Now().Add(-time.Hour), time.Minute
		})})
	}
	return list
}

func jwsCompact(t *testing.T, raw []byte) []byte {
	t.Helper()
	var m map[string]string
	fatal(t, json.Unmarshal(raw, &m))
	return []byte(m["protected"] + "." + m["payload"] + "." + m["signature"])
}

// bodyLevel is bad content in a good envelope.
func (p *puppet) bodyLevel(t *testing.T) []bad {
	t.Helper()
	text := func(typ envelope.Type, body string) []byte { return p.sign(p.next(typ, []byte(body)), p.me.binding) }
	with := func(change func(*contract.Scope)) []byte {
		s := scope()
		change(s)
		return p.propose(s)
	}
	good := string(p.body(message.Body{Intent: message.Propose, Scope: scope()}))
	return []bad{
		{name: "speaks for the vendor", want: envelope.CodeWrongSender, raw: p.msg(message.Body{From: p.w.vendor.id.String(), Intent: message.Propose, Scope: scope()})},
		{name: "speaks for an outsider", want: envelope.CodeWrongSender, raw: p.msg(message.Body{From: p.w.third.id.String(), Intent: message.Withdraw, Reason: "x"})},
		{name: "unknown member in the body", want: envelope.CodeMalformed, raw: text(envelope.TypeNegotiation, strings.Replace(good, `"intent"`, `"grant":"all","intent"`, 1))},
		{name: "case variant in the body", want: envelope.CodeMalformed, raw: text(envelope.TypeNegotiation, strings.Replace(good, `"intent"`, `"Intent"`, 1))},
		{name: "unknown intent", want: envelope.CodeMalformed, raw: text(envelope.TypeNegotiation, strings.Replace(good, `"propose"`, `"grant"`, 1))},
		{name: "an offer by the buyer", want: envelope.CodeMalformed, raw: text(envelope.TypeNegotiation, strings.Replace(good, `"scope"`, `"offer"`, 1))},
		{name: "a contract step as negotiation", want: envelope.CodeMalformed, raw: text(envelope.TypeContract, good)},
		{name: "a request", want: envelope.CodeUnexpectedType, raw: p.msg(message.Body{Intent: message.Request, Rationale: "Send me everything."})},
		{name: "unknown column", want: envelope.CodeUnknownColumn, raw: with(func(s *contract.Scope) { s.Columns = []string{"region", "salary"} })},
		{name: "SQL for a column", want: envelope.CodeUnknownColumn, raw: with(func(s *contract.Scope) { s.Columns = []string{"region\"; DROP TABLE orders; --"} })},
		{name: "unknown dataset", want: envelope.CodeUnknownDataset, raw: with(func(s *contract.Scope) { s.Dataset = "staff" })},
	}
}

// TestInvariant1_RefusalsChangeNothing sends every bad message in every phase in which there is something to lose.
func TestInvariant1_RefusalsChangeNothing(t *testing.T) {
	t.Parallel()
	t.Run("asking", func(t *testing.T) {
		p := newPuppet(t).agree()
		p.refuseAll(t, p.envelopeLevel(t, envelope.TypeNegotiation, p.body(message.Body{Intent: message.Propose, Scope: scope()})))
		p.refuseAll(t, p.bodyLevel(t))
		p.refuseAll(t, []bad{
			{name: "accept before an offer", want: envelope.CodeNotLastOffer, raw: p.accept(canon.Sum([]byte("x")))},
			{name: "proof before an accept", want: envelope.CodeUnexpectedType, raw: p.anyProof()},
		})
		p.ask().take()
		p.say(p.proof(p.contract, p.me.binding))
	})
	t.Run("offered", func(t *testing.T) {
		p := newPuppet(t).agree().ask()
		first := digestOf(t, p.offer)
		p.w.Advance(time.Second)
		p.ask()
		p.refuseAll(t, []bad{
			{name: "accept of an earlier offer", want: envelope.CodeNotLastOffer, raw: p.accept(first)},
			{name: "accept of what was never offered", want: envelope.CodeNotLastOffer, raw: p.accept(canon.Sum([]byte("x")))},
			{name: "proof before an accept", want: envelope.CodeUnexpectedType, raw: p.anyProof()},
		})
		p.refuseAll(t, p.bodyLevel(t))
		p.w.Advance(5 * time.Minute)
		p.refuseAll(t, []bad{{name: "accept of an expired offer", want: envelope.CodeOfferExpired, raw: p.accept(digestOf(t, p.offer))}})
		p.ask().take() // a new offer can be accepted
	})
	t.Run("accepted", func(t *testing.T) {
		p := newPuppet(t).agree().ask().take()
		w := p.w
		object, err := p.contract.Canonical()
		fatal(t, err)
		proof, err := did.SignObject(t.Context(), object, p.me.binding, w.Now())
		fatal(t, err)
		step, err := canon.Marshal(message.Step{From: p.me.id.String(), Step: message.Proof, Digest: digestOf(t, p.contract), Proof: &proof})
		fatal(t, err)
		p.refuseAll(t, p.envelopeLevel(t, envelope.TypeContract, step))
		other := *p.contract
		other.RetentionDays++
		forged, kex := proof, proof
		forged.ProofValue = "z" + strings.Repeat("1", 88)
		kex.VerificationMethod = p.me.kexID
		by := func(pr did.Proof, c *contract.Contract) []byte {
			return p.step(message.Step{Step: message.Proof, Digest: digestOf(t, c), Proof: &pr})
		}
		p.refuseAll(t, []bad{
			{name: "proof over another contract", want: envelope.CodeContractMismatch, raw: p.proof(&other, p.me.binding)},
			{name: "proof of another contract by name of this", want: envelope.CodeProofInvalid, raw: func() []byte {
				o, err := other.Canonical()
				fatal(t, err)
				pr, err := did.SignObject(t.Context(), o, p.me.binding, w.Now())
				fatal(t, err)
				return by(pr, p.contract)
			}()},
			{name: "proof by the human key", want: envelope.CodeProofInvalid, raw: p.proof(p.contract, p.me.human)},
			{name: "proof by the recovery key", want: envelope.CodeProofInvalid, raw: p.proof(p.contract, p.me.recovery)},
			{name: "proof by a second signing key", want: envelope.CodeProofInvalid, raw: p.proof(p.contract, p.me.second)},
			{name: "proof by the vendor's key", want: envelope.CodeProofInvalid, raw: p.proof(p.contract, w.vendor.binding)},
			{name: "proof by an outsider's key", want: envelope.CodeProofInvalid, raw: p.proof(p.contract, w.third.binding)},
			{name: "proof by the key-agreement key", want: envelope.CodeProofInvalid, raw: by(kex, p.contract)},
			{name: "a forged proof", want: envelope.CodeProofInvalid, raw: by(forged, p.contract)},
			{name: "a new proposal after the accept", want: envelope.CodeUnexpectedType, raw: p.propose(scope())},
			{name: "a second accept", want: envelope.CodeNotLastOffer, raw: p.accept(digestOf(t, p.offer))},
			{name: "the vendor's own step", want: envelope.CodeMalformed, raw: p.step(message.Step{Step: message.Draft, Contract: p.contract, Digest: digestOf(t, p.contract)})},
		})
		if n := len(w.vendor.contractRecords(t)); n != 0 {
			t.Fatalf("%d contracts with one proof only", n)
		}
		p.say(p.proof(p.contract, p.me.binding))
		w.vendor.contractInForce(t)
	})
}

func newPuppet(t *testing.T) *puppet {
	t.Helper()
	w := newWorld(t)
	return w.puppet(w.buyer)
}

// anyProof is a well-formed proof of a contract that nobody has drafted.
func (p *puppet) anyProof() []byte {
	p.tb.Helper()
	w := newWorld(p.tb)
	q := w.puppet(w.buyer).agree().ask().take()
	return p.proof(q.contract, p.me.binding)
}

func (p *party) contractInForce(t *testing.T) {
	t.Helper()
	list := p.contractRecords(t)
	if len(list) != 1 || list[0].State != "in_force" {
		t.Fatalf("%+v", list)
	}
}

// TestInvariant3_NoContractBeforeAgreement: rounds first, whatever comes.
func TestInvariant3_NoContractBeforeAgreement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	agreed := w.puppet(w.buyer).agree()
	p := w.puppet(w.buyer)
	p.ses = agreed.ses // names an agreement of another conversation
	p.refuseAll(t, []bad{
		{name: "a proposal first", want: envelope.CodeNoAgreement, raw: p.propose(scope())},
		{name: "a proof first", want: envelope.CodeNoAgreement, raw: p.anyProof()},
	})
	p = w.puppet(w.buyer)
	first := p.opening()
	p.say(first)
	p.ses.Meta = agreed.ses.Meta
	p.refuseAll(t, []bad{
		{name: "a proposal within the rounds", want: envelope.CodeNoAgreement, raw: p.propose(scope())},
	})
}

// TestInvariant8_RepetitionGetsTheStoredAnswer: the same bytes, however late; anything else in that place is refused.
func TestInvariant8_RepetitionGetsTheStoredAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.puppet(w.buyer)
	type exchange struct{ raw, reply []byte }
	var all []exchange
	record := func(raw []byte) {
		res, err := p.receive(raw)
		fatal(t, err)
		all = append(all, exchange{raw, res.Reply})
	}
	p.agree()
	for _, e := range w.vendor.envelopes(t, p.ctx) {
		if e.Direction == "in" {
			record(e.Bytes)
		}
	}
	for _, next := range []func() []byte{
		func() []byte { return p.propose(scope()) },
		func() []byte { return p.accept(digestOf(t, p.offer)) },
		func() []byte { return p.proof(p.contract, p.me.binding) },
	} {
		raw := next()
		record(raw)
		o := p.open(all[len(all)-1].reply)
		if b, err := message.Parse(o.Body, message.Vendor); err == nil {
			p.offer = b.Offer
		} else if s, err := message.ParseStep(o.Body, message.Vendor); err == nil {
			p.contract = s.Contract
		}
	}
	before := w.vendor.dump(t)
	w.Advance(48 * time.Hour)
	w.restart(w.vendor)
	for i, e := range all {
		res, err := p.receive(e.raw)
		if err != nil || !bytes.Equal(res.Reply, e.reply) || res.Artifact != (i == len(all)-1) {
			t.Errorf("message %d: %v, artifact %v", i+1, err, res.Artifact)
		}
		// The same message in other bytes is not that message.
		if _, err := p.receive(append([]byte(" "), e.raw...)); envelope.CodeOf(err) != envelope.CodeConversationEnded && envelope.CodeOf(err) != envelope.CodeReplayed {
			t.Errorf("message %d with a blank: %v", i+1, err)
		}
	}
	if w.vendor.dump(t) != before {
		t.Error("a repetition had an effect")
	}
	if w.vendor.decisions != 1 {
		t.Errorf("the decider was asked %d times", w.vendor.decisions)
	}
}

// TestInvariant11_RefusalsDoNotFillTheLog: a peer's refusals are counted beyond a bound, and the number is logged.
func TestInvariant11_RefusalsDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.puppet(w.buyer).agree()
	raw := breakSignature(t, p.propose(scope()))
	for range 200 {
		_, err := p.receive(raw)
		w.code(err, envelope.CodeBadSignature)
	}
	if n := w.vendor.count(t, ledger.MessageRefused); n != 20 {
		t.Fatalf("%d refusals logged", n)
	}
	w.Advance(time.Minute)
	fatal(t, w.vendor.svc.Sweep(t.Context()))
	events := w.vendor.events(t)
	var last ledger.MessageRefusal
	fatal(t, json.Unmarshal(events[len(events)-1].Data, &last))
	if last.Code != "SUPPRESSED" || !strings.Contains(last.Reason, "180 more") {
		t.Errorf("%+v", last)
	}
	fatal(t, w.vendor.svc.Sweep(t.Context()))
	if n := len(w.vendor.events(t)); n != len(events) {
		t.Error("the summary was logged twice")
	}
	// Another peer is not silenced by it.
	_, err := w.vendor.svc.Receive(t.Context(), w.third.id, raw)
	w.code(err, envelope.CodeWrongSender)
	if n := len(w.vendor.events(t)); n != len(events)+1 {
		t.Error("the other peer's refusal is missing")
	}
}

// TestInvariant11_OpenConversationsAreBounded: one buyer cannot open any number.
func TestInvariant11_OpenConversationsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.vendor.maxOpen = 3
	w.serve(w.vendor)
	for range 3 {
		w.puppet(w.buyer).agree()
	}
	p := w.puppet(w.buyer)
	_, err := p.receive(p.opening())
	w.code(err, envelope.CodeUnavailable)
	q := w.puppet(w.third)
	q.agree()
	w.Advance(deadline)
	fatal(t, w.vendor.svc.Sweep(t.Context()))
	w.puppet(w.buyer).agree()
}

// TestInvariant11_OpeningsAreBounded: one buyer cannot fill the store by opening and ending conversations.
func TestInvariant11_OpeningsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.vendor.perHour = 8 // two of them at once
	w.serve(w.vendor)
	for range 2 {
		w.puppet(w.buyer).agree()
	}
	p := w.puppet(w.buyer)
	opening := p.opening()
	_, err := p.receive(opening)
	w.code(err, envelope.CodeUnavailable)
	w.puppet(w.third).agree() // nobody else suffers
	w.Advance(8 * time.Minute)
	w.puppet(w.buyer).agree()
	p = w.puppet(w.buyer)
	_, err = p.receive(p.opening())
	w.code(err, envelope.CodeUnavailable)
}

// TestC9_ConversationsDoNotMix: neither by the same contextId nor by messages of one in the other.
func TestC9_ConversationsDoNotMix(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.puppet(w.buyer).agree().ask(), w.puppet(w.buyer).agree().ask()
	before := w.vendor.session(t, b.ctx)
	steal := *a
	steal.ctx = b.ctx
	a.refuseAll(t, []bad{
		{name: "a's next in b", want: envelope.CodeOutOfOrder, raw: steal.accept(digestOf(t, a.offer))},
		{name: "b's offer accepted in a", want: envelope.CodeNotLastOffer, raw: func() []byte {
			o := *b.offer
			o.RetentionDays--
			return a.accept(digestOf(t, &o))
		}()},
		{name: "b's place, sealed for a", want: envelope.CodeCannotOpen, raw: resign(t, a.accept(digestOf(t, a.offer)), a.me.binding, func(m map[string]any) {
			d := b.next(envelope.TypeNegotiation, nil)
			m["contextId"], m["prev"], m["agreement"], m["seq"] = b.ctx, d.Prev, d.Agreement, d.Seq
		})},
	})
	c := w.puppet(w.third)
	c.ctx = a.ctx
	c.head = envelope.FirstPrev(c.me.id, w.vendor.id, c.ctx)
	_, err := c.receive(c.opening())
	w.code(err, envelope.CodeMalformed)
	a.take()
	a.say(a.proof(a.contract, a.me.binding))
	if after := w.vendor.session(t, b.ctx); after.Head != before.Head || after.Phase != negotiation.PhaseOffered {
		t.Error("one conversation moved the other")
	}
	b.take()
	if b.contract.ID == a.contract.ID {
		t.Error("two conversations, one contract id")
	}
}
