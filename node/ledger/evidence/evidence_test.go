// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/ledger"
)

var update = flag.Bool("update", false, "rewrite golden files")

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

type party struct {
	id     did.DID
	signer did.Signer // with the binding key
	talks  did.Signer // signs its messages; nil: signer does
	kex    did.PrivateKey
	kexID  string
	doc    []byte
}

func (p party) messages() did.Signer {
	if p.talks != nil {
		return p.talks
	}
	return p.signer
}

func newParty(t testing.TB, name string, seed byte) party {
	t.Helper()
	key := func(typ did.KeyType, n byte) did.PrivateKey {
		k, err := did.NewPrivateKey(typ, bytes.Repeat([]byte{seed + n}, 32))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	sign := key(did.Ed25519, 0)
	p := party{kex: key(did.X25519, 1)}
	var err error
	if p.id, err = did.Parse("did:wba:" + name + ".test:agents:steward:e1_" + sign.Public().Thumbprint()); err != nil {
		t.Fatal(err)
	}
	p.kexID = did.KeyID(p.id, "kex", p.kex.Public())
	if p.signer, err = did.NewSigner(did.KeyID(p.id, "signing", sign.Public()), sign); err != nil {
		t.Fatal(err)
	}
	unsigned, err := did.BuildDocument(did.DocumentSpec{
		ID: p.id, Binding: did.MethodSpec{Key: sign.Public()}, KeyAgreement: []did.MethodSpec{{Key: p.kex.Public()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if p.doc, err = did.SignDocument(t.Context(), unsigned, p.signer, start.Add(-time.Hour), did.DialectSpec); err != nil {
		t.Fatal(err)
	}
	return p
}

// deal is a whole run: rounds, proposal, offer, accept, proofs, activation, and the vendor's log of it among others.
type deal struct {
	t             testing.TB
	buyer, vendor party
	in            Input
	prev          canon.Digest
	head          ledger.Head
}

func (d *deal) send(from, to party, typ envelope.Type, agreement canon.Digest, body any) *envelope.Envelope {
	d.t.Helper()
	raw, err := canon.Marshal(body)
	if err != nil {
		d.t.Fatal(err)
	}
	n := len(d.in.Messages)
	if n == 0 {
		d.prev = envelope.FirstPrev(from.id, to.id, d.in.ContextID)
	}
	var seal *envelope.SealTo
	if typ != envelope.TypeMetaproto {
		seal = &envelope.SealTo{Suite: hpke.SuiteX25519, RecipientKID: to.kexID, Key: to.kex.Public()}
	}
	e, opened, err := envelope.Build(d.t.Context(), envelope.Draft{
		Type: typ, To: to.id, ContextID: d.in.ContextID, Seq: int64(n + 1), CreatedAt: start.Add(time.Duration(n) * time.Second),
		Prev: d.prev, Agreement: agreement, Body: raw,
	}, from.messages(), seal)
	if err != nil {
		d.t.Fatal(err)
	}
	d.in.Messages = append(d.in.Messages, Message{Raw: e.Raw(), Salt: opened.Salt[:], Body: opened.Body})
	d.prev = e.Digest()
	return e
}

func (d *deal) log(e ledger.Entry) {
	d.t.Helper()
	ev, err := ledger.Next(d.head, d.in.Node, "node", start, e)
	if err != nil {
		d.t.Fatal(err)
	}
	d.in.Events = append(d.in.Events, ev)
	d.head = ev.Head()
}

func (d *deal) about(typ string, data any) {
	d.log(ledger.Entry{Type: typ, Context: d.in.ContextID, Peer: d.buyer.id.String(), Data: data})
}

func (d *deal) elsewhere() {
	d.log(ledger.Entry{Type: ledger.ProposalReceived, Context: "another negotiation", Peer: "did:wba:secret.test:e1_S", Data: ledger.Proposal{}})
}

func newDeal(t testing.TB) *deal { t.Helper(); return newDealWith(t, func(*party) {}) }

// newDealWith is a deal with a buyer that change has made.
func newDealWith(t testing.TB, change func(*party)) *deal {
	t.Helper()
	d := &deal{t: t, buyer: newParty(t, "buyercorp", 10), vendor: newParty(t, "vendorcorp", 20)}
	change(&d.buyer)
	d.in = Input{Node: d.vendor.id.String(), ContextID: envelope.NewID(), Documents: [][]byte{d.buyer.doc, d.vendor.doc}}
	d.head = ledger.Genesis(d.in.Node)
	d.elsewhere()
	d.in.Events, d.in.From = nil, d.head // the log is longer than what is compiled from
	d.elsewhere()

	agreement := d.rounds()
	offer := d.offer()
	offerDigest, err := offer.Digest()
	if err != nil {
		t.Fatal(err)
	}
	d.send(d.buyer, d.vendor, envelope.TypeNegotiation, agreement, map[string]any{"from": d.buyer.id, "intent": "propose", "scope": offer.Scope, "rationale": ""})
	d.about(ledger.ProposalReceived, ledger.Proposal{Columns: []string{"region"}})
	d.send(d.vendor, d.buyer, envelope.TypeNegotiation, agreement, map[string]any{"from": d.vendor.id, "intent": "counter", "offer": offer, "rationale": ""})
	d.elsewhere()
	accept := d.send(d.buyer, d.vendor, envelope.TypeNegotiation, agreement, map[string]any{"from": d.buyer.id, "intent": "accept", "offerDigest": offerDigest, "rationale": ""})

	c, err := contract.Build(offer, contract.Parties{Buyer: d.buyer.id.String(), Vendor: d.vendor.id.String()}, agreement, accept.Digest())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []party{d.buyer, d.vendor} {
		if _, err := c.Prove(t.Context(), p.signer, start.Add(10*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	a, err := contract.Activate(t.Context(), c, start.Add(11*time.Second), d.head.Hash, d.vendor.signer)
	if err != nil {
		t.Fatal(err)
	}
	d.send(d.vendor, d.buyer, envelope.TypeContract, agreement, map[string]any{"from": d.vendor.id, "step": "active", "contract": c, "activation": a})
	digest, err := c.Digest()
	if err != nil {
		t.Fatal(err)
	}
	d.log(ledger.Entry{Type: ledger.ContractActivated, Context: d.in.ContextID, Contract: c.ID, Data: ledger.Activated{Digest: digest, ActivatedAt: a.ActivatedAt}})
	d.elsewhere()
	if d.in.Contract, err = c.Marshal(); err != nil {
		t.Fatal(err)
	}
	if d.in.Activation, err = a.Marshal(); err != nil {
		t.Fatal(err)
	}
	d.in.ContractID = c.ID
	return d
}

// rounds runs the real meta-protocol.
func (d *deal) rounds() canon.Digest {
	d.t.Helper()
	policy := metaproto.DefaultPolicy()
	side := func(role metaproto.Role, self, peer party) metaproto.State {
		s, err := metaproto.New(metaproto.Config{
			Role: role, ContextID: d.in.ContextID, Self: self.id, Peer: peer.id, SigningKID: self.messages().KeyID(), KeyAgreementKID: self.kexID,
		}, policy, start)
		if err != nil {
			d.t.Fatal(err)
		}
		return s
	}
	step := func(s metaproto.State, e metaproto.Event) (metaproto.State, *metaproto.Message) {
		s, m, err := metaproto.Step(s, e, policy, start)
		if err != nil {
			d.t.Fatal(err)
		}
		return s, m
	}
	i, m := step(side(metaproto.Initiator, d.buyer, d.vendor), metaproto.Begin{})
	r := side(metaproto.Responder, d.vendor, d.buyer)
	for m != nil {
		d.send(d.buyer, d.vendor, envelope.TypeMetaproto, canon.Digest{}, m)
		if r, m = step(r, metaproto.Receive{Message: *m, SignerKID: d.buyer.messages().KeyID()}); m == nil {
			break
		}
		d.send(d.vendor, d.buyer, envelope.TypeMetaproto, canon.Digest{}, m)
		i, m = step(i, metaproto.Receive{Message: *m, SignerKID: d.vendor.messages().KeyID()})
	}
	a, ok := i.Concluded()
	if !ok {
		d.t.Fatal("no agreement")
	}
	var err error
	if d.in.Agreement, err = a.Canonical(); err != nil {
		d.t.Fatal(err)
	}
	d.about(ledger.MetaprotoAgreed, ledger.Agreement{Digest: a.Digest()})
	return a.Digest()
}

func (d *deal) offer() *contract.Offer {
	plane := newParty(d.t, "data.vendorcorp", 30)
	return &contract.Offer{
		Type: contract.OfferType,
		Scope: contract.Scope{
			Dataset: "orders", Columns: []string{"region", "order_value"}, Operations: []string{"avg", "count"},
			RowFilter: []contract.Condition{}, Purpose: "quarterly market report", RetentionDays: 30, MinGroupSize: 5, CallBudget: 100,
		},
		ValidFrom: "2026-11-30T12:00:00Z", ValidUntil: "2027-02-28T12:00:00Z", AcceptBy: "2026-11-30T12:15:00Z", ExpiresAt: "2026-11-30T12:10:00Z",
		DataPlane:    contract.DataPlane{DID: plane.id.String(), URL: "https://data.vendorcorp.test/mcp"},
		SchemaDigest: canon.Sum([]byte("schema")), Removed: []contract.Removal{},
	}
}

func (d *deal) build(signer did.Signer) []byte {
	d.t.Helper()
	data, err := Build(d.t.Context(), d.in, signer, start.Add(time.Minute))
	if err != nil {
		d.t.Fatal(err)
	}
	return data
}

func verify(t testing.TB, data []byte) Report {
	t.Helper()
	r, err := VerifyBundle(data)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func status(r Report, name string) Status {
	for _, c := range r.Checks {
		if c.Name == name {
			return c.Status
		}
	}
	return "none of this name"
}

func TestWholeBundle(t *testing.T) {
	d := newDeal(t)
	data := d.build(d.vendor.signer)
	r := verify(t, data)
	if !r.OK() {
		t.Fatalf("%+v", r.Checks)
	}
	for _, c := range r.Checks {
		if c.Status != OK {
			t.Errorf("%s: %s, %s", c.Name, c.Status, c.Detail)
		}
	}
	n := len(d.in.Messages)
	if r.Contract != d.in.ContractID || r.Buyer != d.buyer.id.String() || r.Vendor != d.vendor.id.String() || r.Node != d.in.Node ||
		r.ActivatedAt != "2026-11-30T12:00:11Z" || r.Messages != n || r.Disclosed != n || r.Digest.IsZero() {
		t.Errorf("%+v", r)
	}
	// Nothing of others is in it.
	for _, s := range []string{"secret.test", "another negotiation"} {
		if bytes.Contains(data, []byte(s)) {
			t.Errorf("shows %s", s)
		}
	}
	b, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Events) != 4 || b.Events[2].Redacted == nil {
		t.Errorf("%d events, %+v", len(b.Events), b.Events)
	}
	// Its form does not matter, its content does.
	var indented bytes.Buffer
	if err := json.Indent(&indented, data, "", "  "); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, indented.Bytes()); !r.OK() {
		t.Errorf("indented: %+v", r.Checks)
	}
}

// TestPartialBundle: what may be left out is said to be absent, and the rest still holds.
func TestPartialBundle(t *testing.T) {
	const fromOffer = "contract is what the accepted offer leads to"
	for name, c := range map[string]struct {
		change func(*deal)
		absent string
	}{
		"no disclosures": {func(d *deal) {
			for i := range d.in.Messages {
				d.in.Messages[i].Body = nil
			}
		}, fromOffer},
		"offer undisclosed":  {func(d *deal) { d.in.Messages[len(d.in.Messages)-3].Body = nil }, fromOffer},
		"accept undisclosed": {func(d *deal) { d.in.Messages[len(d.in.Messages)-2].Body = nil }, fromOffer},
		"no agreement":       {func(d *deal) { d.in.Agreement = nil }, "agreement on how to talk follows from the rounds"},
		"no events":          {func(d *deal) { d.in.Events = nil }, "event log tells of the activation"},
		"unsigned":           {func(*deal) {}, "bundle is signed by who compiled it"},
		"the buyer's": {func(d *deal) {
			d.in.Node, d.in.Events, d.in.From = d.buyer.id.String(), nil, ledger.Genesis(d.buyer.id.String())
		}, "event log tells of the activation"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDeal(t)
			c.change(d)
			r := verify(t, d.build(nil))
			if !r.OK() || status(r, c.absent) != Absent {
				t.Errorf("%+v", r.Checks)
			}
		})
	}
}

// TestChangedBundle changes one thing at a time: the check that is about it fails.
func TestChangedBundle(t *testing.T) {
	good := newDeal(t)
	bundle := good.build(good.vendor.signer)
	other := newDeal(t) // the same parties, another conversation
	otherBundle, err := Parse(other.build(nil))
	if err != nil {
		t.Fatal(err)
	}
	replace := func(raw json.RawMessage, from, to string) json.RawMessage {
		if !bytes.Contains(raw, []byte(from)) {
			t.Fatalf("%s is not in %s", from, raw)
		}
		return bytes.Replace(raw, []byte(from), []byte(to), 1)
	}
	const (
		chain       = "messages are signed and chained"
		disclosures = "disclosed contents are what was signed"
		proofs      = "both parties' proofs"
		activation  = "vendor activated in time"
		segment     = "event log segment"
		transcript  = "contract names the buyer's accept in these messages"
		fromOffer   = "contract is what the accepted offer leads to"
		rounds      = "agreement on how to talk follows from the rounds"
		signature   = "bundle is signed by who compiled it"
		told        = "event log tells of the activation"
	)
	for name, c := range map[string]struct {
		change func(*Bundle)
		failed string
	}{
		"contract altered":        {func(b *Bundle) { b.Contract = replace(b.Contract, `"callBudget":100`, `"callBudget":900`) }, proofs},
		"contract altered, offer": {func(b *Bundle) { b.Contract = replace(b.Contract, `"callBudget":100`, `"callBudget":900`) }, fromOffer},
		"contract of another":     {func(b *Bundle) { b.Contract = otherBundle.Contract }, transcript},
		"contract is text":        {func(b *Bundle) { b.Contract = json.RawMessage(`"x"`) }, "contract is well formed"},
		"contract missing":        {func(b *Bundle) { b.Contract = nil }, "contract is well formed"},
		"one proof only": {func(b *Bundle) {
			c, err := contract.Parse(b.Contract)
			if err != nil {
				t.Fatal(err)
			}
			c.Proofs = c.Proofs[:1]
			if b.Contract, err = c.Marshal(); err != nil {
				t.Fatal(err)
			}
		}, proofs},
		"activation altered":    {func(b *Bundle) { b.Activation = replace(b.Activation, "12:00:11Z", "12:00:12Z") }, activation},
		"activation late":       {func(b *Bundle) { b.Activation = replace(b.Activation, "2026-11-30T12:00:11Z", "2026-11-30T13:00:11Z") }, activation},
		"activation of another": {func(b *Bundle) { b.Activation = otherBundle.Activation }, activation},
		"activation missing":    {func(b *Bundle) { b.Activation = nil }, "activation is well formed"},
		"no documents":          {func(b *Bundle) { b.Documents = nil }, "buyer's document"},
		"document altered": {func(b *Bundle) {
			b.Documents[1] = strings.Replace(b.Documents[1], `"type":"Multikey"`, `"type":"Multikez"`, 1)
		}, "document 2"},
		"vendor's missing":   {func(b *Bundle) { b.Documents = b.Documents[:1] }, "vendor's document"},
		"no messages":        {func(b *Bundle) { b.Envelopes = nil }, chain},
		"first message gone": {func(b *Bundle) { b.Envelopes = b.Envelopes[1:] }, chain},
		"message gone":       {func(b *Bundle) { b.Envelopes = slices.Delete(b.Envelopes, 2, 3) }, chain},
		"messages swapped":   {func(b *Bundle) { b.Envelopes[1], b.Envelopes[3] = b.Envelopes[3], b.Envelopes[1] }, chain},
		"message of another": {func(b *Bundle) { b.Envelopes[3] = otherBundle.Envelopes[3] }, chain},
		"message altered": {func(b *Bundle) {
			e := map[string]string{}
			if err := json.Unmarshal(b.Envelopes[0], &e); err != nil {
				t.Fatal(err)
			}
			sig, err := base64.RawURLEncoding.DecodeString(e["signature"])
			if err != nil {
				t.Fatal(err)
			}
			sig[0] ^= 1
			e["signature"] = base64.RawURLEncoding.EncodeToString(sig)
			if b.Envelopes[0], err = json.Marshal(e); err != nil {
				t.Fatal(err)
			}
		}, chain},
		"messages end before the accept": {func(b *Bundle) { b.Envelopes, b.Disclosures = b.Envelopes[:3], nil }, transcript},
		"disclosure altered":             {func(b *Bundle) { b.Disclosures[0].Body = replace(b.Disclosures[0].Body, "report", "summary") }, disclosures},
		"salt altered":                   {func(b *Bundle) { b.Disclosures[0].Salt[0] ^= 1 }, disclosures},
		"disclosure of nothing":          {func(b *Bundle) { b.Disclosures[0].Envelope[0] ^= 1 }, disclosures},
		"disclosed twice":                {func(b *Bundle) { b.Disclosures = append(b.Disclosures, b.Disclosures[0]) }, disclosures},
		"agreement altered":              {func(b *Bundle) { b.Agreement = replace(b.Agreement, "concludedAt", "concludedat") }, rounds},
		"agreement of another":           {func(b *Bundle) { b.Agreement = otherBundle.Agreement }, rounds},
		"event altered":                  {func(b *Bundle) { b.Events[0].Event.Process = "other" }, segment},
		"event dropped":                  {func(b *Bundle) { b.Events = slices.Delete(b.Events, 1, 2) }, segment},
		"redacted dropped":               {func(b *Bundle) { b.Events = slices.Delete(b.Events, 2, 3) }, segment},
		"event log cut":                  {func(b *Bundle) { b.Events = b.Events[:3] }, segment},
		"head moved":                     {func(b *Bundle) { b.Head.Hash[0] ^= 1 }, segment},
		"log of another node":            {func(b *Bundle) { b.Node = good.buyer.id.String() }, segment},
		"wrong genesis":                  {func(b *Bundle) { b.From.Seq = 0 }, segment},
		"cut before the activation":      {func(b *Bundle) { b.Events, b.Head = b.Events[:2], b.Events[1].Event.Head() }, told},
		"signature of others":            {func(b *Bundle) { b.Proof.VerificationMethod = good.buyer.signer.KeyID() }, signature},
		"anything at all":                {func(b *Bundle) { b.Documents = append(b.Documents, b.Documents[0]) }, signature},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := Parse(bundle)
			if err != nil {
				t.Fatal(err)
			}
			c.change(b)
			data, err := canon.Marshal(b)
			if err != nil {
				t.Fatal(err)
			}
			r := verify(t, data)
			if r.OK() || status(r, c.failed) != Failed {
				t.Errorf("%s: %s\n%+v", c.failed, status(r, c.failed), r.Checks)
			}
		})
	}
}

// TestActivationNamesAHeadOfTheLog: a vendor that rewrote its log after it signed the activation is found out.
func TestActivationNamesAHeadOfTheLog(t *testing.T) {
	d := newDeal(t)
	events := d.in.Events
	d.in.Events, d.head = nil, d.in.From
	d.about(ledger.MessageRefused, ledger.MessageRefusal{Code: "INTERNAL"}) // invented afterwards
	for _, e := range events {
		d.log(ledger.Entry{Type: e.Type, Context: e.Context, Contract: e.Contract, Peer: e.Peer, Data: e.Data})
	}
	r := verify(t, d.build(d.vendor.signer))
	if status(r, "event log segment") != OK || status(r, "event log tells of the activation") != Failed {
		t.Errorf("%+v", r.Checks)
	}
}

func TestAcceptOfAnEarlierOffer(t *testing.T) {
	v := verifier{}
	offer := newDeal(t).offer()
	if err := v.follows("counter", canon.Digest{}, offer); err == nil {
		t.Error("not an accept")
	}
	if err := v.follows("accept", canon.Sum([]byte("an earlier one")), offer); err == nil {
		t.Error("another offer's digest")
	}
}

func TestParseRefuses(t *testing.T) {
	good := newDeal(t).build(nil)
	edit := func(f func(map[string]any)) []byte {
		m := map[string]any{}
		if err := json.Unmarshal(good, &m); err != nil {
			t.Fatal(err)
		}
		f(m)
		out, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	many := func(n int) []any { return make([]any, n) }
	for name, data := range map[string][]byte{
		"empty":             nil,
		"array":             []byte("[]"),
		"type":              edit(func(m map[string]any) { m["type"] = "TreatyContract" }),
		"version":           edit(func(m map[string]any) { m["version"] = 2 }),
		"unknown member":    edit(func(m map[string]any) { m["more"] = 1 }),
		"case":              edit(func(m map[string]any) { m["Node"] = "x" }),
		"twice":             append([]byte(`{"type":"TreatyEvidence",`), good[1:]...),
		"many documents":    edit(func(m map[string]any) { m["documents"] = slices.Repeat([]string{"x"}, MaxDocuments+1) }),
		"many envelopes":    edit(func(m map[string]any) { m["envelopes"] = many(MaxEnvelopes + 1) }),
		"many events":       edit(func(m map[string]any) { m["events"] = many(MaxEvents + 1) }),
		"large":             bytes.Repeat([]byte(" "), MaxBytes+1),
		"deep":              []byte(strings.Repeat(`{"contract":`, 100)),
		"digest of nothing": edit(func(m map[string]any) { m["head"] = map[string]any{"seq": 1, "hash": "x"} }),
	} {
		if _, err := VerifyBundle(data); !errors.Is(err, ErrBundle) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var zero Report
	if zero.OK() {
		t.Error("the zero report is ok")
	}
	// A bundle with nothing in it is a bundle that shows nothing.
	r := verify(t, []byte(`{"type":"TreatyEvidence","version":1}`))
	if r.OK() {
		t.Errorf("%+v", r)
	}
}

func TestBuildRefuses(t *testing.T) {
	for name, change := range map[string]func(*Input){
		"no envelope":    func(in *Input) { in.Messages[0].Raw = []byte("{}") },
		"short salt":     func(in *Input) { in.Messages[len(in.Messages)-1].Salt = []byte("x") },
		"broken event":   func(in *Input) { in.Events[3].Data = json.RawMessage("{") },
		"many documents": func(in *Input) { in.Documents = slices.Repeat(in.Documents, MaxDocuments) },
		"no JSON":        func(in *Input) { in.Contract = []byte("{") },
	} {
		d := newDeal(t)
		change(&d.in)
		if _, err := Build(t.Context(), d.in, nil, start); !errors.Is(err, ErrBundle) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGolden keeps a bundle of this version verifiable.
func TestGolden(t *testing.T) {
	const path = "testdata/bundle.json"
	if *update {
		d := newDeal(t)
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, d.build(d.vendor.signer), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if r := verify(t, data); !r.OK() {
		t.Errorf("%+v", r.Checks)
	}
}

// FuzzVerifyBundle starts from whole bundles of 30 KB: run it with -fuzzminimizetime 1x, or minimising takes all the time.
func FuzzVerifyBundle(f *testing.F) {
	d := newDeal(f)
	f.Add(d.build(nil))
	f.Add(d.build(d.vendor.signer))
	f.Add([]byte(`{"type":"TreatyEvidence","version":1}`))
	f.Add([]byte(`{"type":"TreatyEvidence","version":1,"events":[{}],"envelopes":[{}],"contract":{},"activation":{},"documents":["{}"],"proof":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := VerifyBundle(data)
		if err != nil {
			if !errors.Is(err, ErrBundle) {
				t.Errorf("%v", err)
			}
			return
		}
		if r.OK() && (r.Contract == "" || r.ActivatedAt == "" || r.Messages == 0) {
			t.Errorf("ok with nothing in it: %+v", r)
		}
	})
}

func BenchmarkVerifyBundle(b *testing.B) {
	d := newDeal(b)
	data := d.build(d.vendor.signer)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if r := verify(b, data); !r.OK() {
			b.Fatal("not ok")
		}
	}
}
