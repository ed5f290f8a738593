// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/ledger"
)

// Status of a check.
type Status string

// The statuses. Absent is for what a bundle may leave out; it counts as neither.
const (
	OK     Status = "ok"
	Failed Status = "failed"
	Absent Status = "absent"
	// Suspect is for what holds, and was signed when somebody else may have had the key. A bundle with it is not ok.
	Suspect Status = "suspect"
)

// Check is one thing that was looked at.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail,omitempty"` // why it failed, or what was found; may quote the bundle
}

// Report says what a bundle shows. The facts are only worth something when OK says so.
type Report struct {
	Contract    string       `json:"contract"` // id
	Digest      canon.Digest `json:"digest"`
	Buyer       string       `json:"buyer"`
	Vendor      string       `json:"vendor"`
	Node        string       `json:"node"` // who compiled the bundle
	ActivatedAt string       `json:"activatedAt"`
	Messages    int          `json:"messages"`
	Disclosed   int          `json:"disclosed"` // messages whose content is shown
	Checks      []Check      `json:"checks"`
}

// OK says whether checks were made, none failed and nothing is suspect. The zero report is not ok.
func (r *Report) OK() bool {
	for _, c := range r.Checks {
		if c.Status == Failed || c.Status == Suspect {
			return false
		}
	}
	return len(r.Checks) > 0
}

// VerifyBundle checks a bundle. The error, which wraps [ErrBundle], is for what cannot be read as one; everything that does
// not hold is in the report, and all checks are made even after one failed. known are documents that the caller has from
// elsewhere: a DID without a fingerprint is believed in the bundle only where its document is one of them.
func VerifyBundle(data []byte, known ...*did.Document) (Report, error) {
	b, err := Parse(data)
	if err != nil {
		return Report{}, err
	}
	v := verifier{b: b, known: known, documents: map[did.DID][]*did.Document{}, bodies: map[canon.Digest][]byte{}}
	v.report.Node = b.Node
	v.contract()
	v.parties()
	v.lines()
	v.envelopes()
	v.disclosures()
	v.agreement()
	v.transcript()
	v.proofs()
	v.statements()
	v.log()
	v.end()
	v.suspect()
	v.signature()
	return v.report, nil
}

type verifier struct {
	b      *Bundle
	known  []*did.Document
	report Report

	c             *contract.Contract // nil when there is none to speak of
	digest        canon.Digest
	activation    *contract.Activation
	at            time.Time // of the activation: the time the documents are judged for
	buyer, vendor did.DID
	// buyers and vendors are the parties' lines, from before the contract to after it; nil where the documents give none.
	buyers, vendors *did.Line
	documents       map[did.DID][]*did.Document // verified
	chain           []*envelope.Envelope        // verified, in order; nil when it does not hold
	bodies          map[canon.Digest][]byte     // what is known of the messages' content
}

// add records a check.
func (v *verifier) add(name string, err error, found string, args ...any) {
	c := Check{Name: name, Status: OK, Detail: fmt.Sprintf(found, args...)}
	if err != nil {
		c.Status, c.Detail = Failed, err.Error()
	}
	v.report.Checks = append(v.report.Checks, c)
}

func (v *verifier) absent(name, why string) {
	v.report.Checks = append(v.report.Checks, Check{Name: name, Status: Absent, Detail: why})
}

var (
	errNoContract = errors.New("there is no valid contract to hold it against")
	errNoChain    = errors.New("the messages do not hold")
)

// contract reads contract and activation; what they claim is the frame of everything else.
func (v *verifier) contract() {
	c, err := contract.Parse(v.b.Contract)
	if err == nil {
		v.digest, err = c.Digest()
	}
	if err == nil {
		v.buyer, err = did.Parse(c.Parties.Buyer)
	}
	if err == nil {
		v.vendor, err = did.Parse(c.Parties.Vendor)
	}
	if err == nil {
		v.c = c
		v.report.Contract, v.report.Digest = c.ID, v.digest
		v.report.Buyer, v.report.Vendor = c.Parties.Buyer, c.Parties.Vendor
	}
	found := v.report.Contract
	if err == nil && !c.Amends.IsZero() {
		found += ", instead of " + c.Amends.ID + " of digest " + c.Amends.Digest.String()
	}
	v.add("contract is well formed", err, "%s", found)

	a, err := contract.ParseActivation(v.b.Activation)
	if err == nil {
		v.at, err = contract.ParseTime(a.ActivatedAt)
	}
	if err == nil {
		v.activation = a
		v.report.ActivatedAt = a.ActivatedAt
	}
	v.add("activation is well formed", err, "%s", v.report.ActivatedAt)
}

// errUnbound: whoever compiled the bundle can have written the document.
var errUnbound = errors.New("nothing in it binds its keys to the DID; get the document from the domain itself, and verify with that")

// parties verifies the documents as of the activation, or as of their own proof where that is later: proof, binding to the
// DID, keys in one role only. A later version is by the same binding key, and what was signed before was signed by it.
func (v *verifier) parties() {
	for i, text := range v.b.Documents {
		doc, err := did.ParseDocument([]byte(text))
		recovered := false
		if err == nil {
			at := v.at
			if created := doc.ProofCreated(); created.After(at) {
				at = created
			}
			if _, err = doc.Verify(at); err != nil && doc.Deactivated() {
				err = v.recovered(doc, at)
				recovered = err == nil
			}
		}
		if err == nil && !recovered && !doc.Bound() && !slices.ContainsFunc(v.known, func(k *did.Document) bool { return k.Hash().Equal(doc.Hash()) }) {
			err = fmt.Errorf("%s: %w", doc.ID(), errUnbound)
		}
		if err == nil && !recovered {
			err = doc.CheckRoles()
		}
		if err != nil {
			v.add(fmt.Sprintf("document %d", i+1), err, "")
			continue
		}
		v.documents[doc.ID()] = append(v.documents[doc.ID()], doc)
		v.add(fmt.Sprintf("document %d", i+1), nil, "%s: binding and proof hold", doc.ID())
	}
	for _, who := range []struct {
		name string
		id   did.DID
	}{{"buyer", v.buyer}, {"vendor", v.vendor}} {
		var err error
		if v.c == nil {
			err = errNoContract
		} else if len(v.documents[who.id]) == 0 {
			err = errors.New("no valid document of it is here")
		}
		v.add(who.name+"'s document", err, "%s", who.id)
	}
}

// with tries f with each version of id's document that is here.
func (v *verifier) with(id did.DID, f func(*did.Document) error) error {
	err := errors.New("no valid document of the signer is here")
	active, _ := v.versions(id)
	for _, doc := range v.documents[id] {
		if active != nil && doc.Deactivated() {
			continue // what was in force is here
		}
		if err = f(doc); err == nil {
			return nil
		}
	}
	return err
}

// envelopes verifies that the messages are one conversation of the two parties, each signed, nothing missing.
func (v *verifier) envelopes() {
	v.report.Messages = len(v.b.Envelopes)
	chain, err := v.readChain()
	if err == nil {
		v.chain = chain
	}
	v.add("messages are signed and chained", err, "%d, from the first on", len(chain))
}

func (v *verifier) readChain() ([]*envelope.Envelope, error) {
	switch {
	case v.c == nil:
		return nil, errNoContract
	case len(v.b.Envelopes) == 0:
		return nil, errors.New("there are none")
	}
	chain := make([]*envelope.Envelope, 0, len(v.b.Envelopes))
	var prev canon.Digest
	for i, raw := range v.b.Envelopes {
		e, err := envelope.Parse(raw, 0)
		if err == nil {
			err = v.with(e.From, func(doc *did.Document) error { return e.VerifyWith(doc, e.Created()) })
		}
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i+1, err)
		}
		if i == 0 {
			prev = envelope.FirstPrev(e.From, e.To, e.ContextID)
		}
		switch {
		case v.inUse(e.From, e.Created()) != nil:
			err = v.inUse(e.From, e.Created())
		case !(v.isBuyer(e.From) && v.isVendor(e.To)) && !(v.isVendor(e.From) && v.isBuyer(e.To)):
			err = fmt.Errorf("is from %s to %s, who are not the parties", e.From, e.To)
		case e.Seq != int64(i+1):
			err = fmt.Errorf("has seq %d", e.Seq)
		case i > 0 && e.ContextID != chain[0].ContextID:
			err = errors.New("belongs to another conversation")
		case !e.Prev.Equal(prev):
			err = errors.New("does not follow the one before it")
		case !e.Agreement.IsZero() && !e.Agreement.Equal(v.c.Agreement):
			err = errors.New("names another agreement than the contract")
		}
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i+1, err)
		}
		chain, prev = append(chain, e), e.Digest()
	}
	return chain, nil
}

// disclosures compares plaintexts with what was signed.
func (v *verifier) disclosures() {
	err := v.readDisclosures()
	v.report.Disclosed = len(v.bodies)
	v.add("disclosed contents are what was signed", err, "%d of %d messages", len(v.bodies), len(v.chain))
}

func (v *verifier) readDisclosures() error {
	if v.chain == nil {
		return errNoChain
	}
	sealed := map[canon.Digest]*envelope.Envelope{}
	for _, e := range v.chain {
		if e.Sealed != nil {
			sealed[e.Digest()] = e
			continue
		}
		if !envelope.BodyDigest(e.Body.Salt, e.Body.Body).Equal(e.BodyDigest) {
			return fmt.Errorf("message %d: bodyDigest is of another content", e.Seq)
		}
		v.bodies[e.Digest()] = e.Body.Body
	}
	for i, d := range v.b.Disclosures {
		e := sealed[d.Envelope]
		if e == nil || v.bodies[d.Envelope] != nil {
			return fmt.Errorf("disclosure %d: is of no sealed message here, or the second of one", i+1)
		}
		body, err := canon.Canonicalize(d.Body, canon.Limits{MaxBytes: envelope.MaxBytes, MaxDepth: maxDepth})
		if err != nil {
			return fmt.Errorf("disclosure %d: %w", i+1, err)
		}
		if !envelope.BodyDigest(d.Salt, body).Equal(e.BodyDigest) {
			return fmt.Errorf("disclosure %d: message %d has another content", i+1, e.Seq)
		}
		v.bodies[d.Envelope] = body
	}
	return nil
}

// agreement follows the contract's agreement back to the signed rounds.
func (v *verifier) agreement() {
	const name = "agreement on how to talk follows from the rounds"
	if v.b.Agreement == nil {
		v.absent(name, "the bundle leaves it out")
		return
	}
	a, err := v.readAgreement()
	v.add(name, err, "%d rounds", len(a.Rounds))
}

func (v *verifier) readAgreement() (a metaproto.Agreement, err error) {
	if v.chain == nil {
		return a, errNoChain
	}
	if err := canon.Unmarshal(v.b.Agreement, &a, canon.Limits{MaxBytes: envelope.MaxBytes, MaxDepth: maxDepth}); err != nil {
		return a, err
	}
	switch first := v.chain[0]; {
	case !a.Digest().Equal(v.c.Agreement):
		return a, errors.New("the contract names another one")
	case a.Type != metaproto.AgreementType:
		return a, errors.New("type is not " + metaproto.AgreementType)
	case a.Initiator.DID != first.From || a.Responder.DID != first.To:
		return a, errors.New("it is between others")
	case a.ContextID != first.ContextID:
		return a, errors.New("it was concluded in another conversation, which is not here")
	case len(a.Rounds) == 0 || len(a.Rounds) > len(v.chain):
		return a, fmt.Errorf("it names %d rounds", len(a.Rounds))
	}
	for i, want := range a.Rounds {
		kind, body, _ := v.said(v.chain[i])
		m, err := metaproto.ParseMessage(body)
		if err != nil || kind != envelope.TypeMetaproto {
			return a, fmt.Errorf("message %d is no round", i+1)
		}
		if !m.Digest().Equal(want) {
			return a, fmt.Errorf("round %d was another", i+1)
		}
	}
	return a, nil
}

// transcript follows the contract back to the buyer's accept and, where both are disclosed, to the offer it names.
func (v *verifier) transcript() {
	const name, fromOffer = "contract names the buyer's accept in these messages", "contract is what the accepted offer leads to"
	at, err := v.findAccept()
	if err != nil {
		v.add(name, err, "")
		v.absent(fromOffer, "the accept was not found")
		return
	}
	v.add(name, nil, "message %d", v.chain[at].Seq)

	// The members of negotiation messages that matter here; who may send what is the business of the negotiation.
	type terms struct {
		Intent      string          `json:"intent"`
		Offer       *contract.Offer `json:"offer"`
		OfferDigest canon.Digest    `json:"offerDigest"`
	}
	read := func(e *envelope.Envelope) (t terms, known bool) {
		_, body, known := v.said(e)
		return t, known && canon.UnmarshalOpen(body, &t, canon.Limits{MaxBytes: envelope.MaxBytes, MaxDepth: maxDepth}) == nil
	}
	accept, known := read(v.chain[at])
	if !known {
		v.absent(fromOffer, "the accept is not disclosed")
		return
	}
	for i := at - 1; i >= 0; i-- {
		e := v.chain[i]
		if !v.isVendor(e.From) || e.Type != envelope.TypeNegotiation && e.Type != envelope.TypeMoved {
			continue
		}
		t, known := read(e)
		if !known {
			v.absent(fromOffer, "the last offer is not disclosed")
			return
		}
		if t.Offer == nil {
			continue
		}
		v.add(fromOffer, v.follows(accept.Intent, accept.OfferDigest, t.Offer), "offer in message %d", e.Seq)
		return
	}
	v.add(fromOffer, errors.New("no offer of the vendor stands before the accept"), "")
}

func (v *verifier) findAccept() (int, error) {
	if v.chain == nil {
		return 0, errNoChain
	}
	for i, e := range v.chain {
		if !e.Digest().Equal(v.c.Transcript) {
			continue
		}
		if !v.isBuyer(e.From) || e.Type != envelope.TypeNegotiation && e.Type != envelope.TypeMoved {
			return 0, fmt.Errorf("message %d is not one of the buyer's negotiation", e.Seq)
		}
		return i, nil
	}
	return 0, errors.New("no message here has the transcript digest that the contract names")
}

// follows builds the contract as both parties did.
func (v *verifier) follows(intent string, accepted canon.Digest, offer *contract.Offer) error {
	if intent != "accept" {
		return fmt.Errorf("the message is not an accept but %.40q", intent)
	}
	d, err := offer.Digest()
	if err != nil {
		return err
	}
	if !d.Equal(accepted) {
		return errors.New("another offer than the last one was accepted")
	}
	built, err := contract.Build(offer, v.c.Parties, v.c.Agreement, v.c.Transcript)
	if err != nil {
		return err
	}
	want, err := built.Canonical()
	if err != nil {
		return err
	}
	got, err := v.c.Canonical()
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return errors.New("the contract says something else")
	}
	return nil
}

// proofs verifies both parties' proofs and the activation.
func (v *verifier) proofs() {
	proofs, active := errNoContract, errNoContract
	if v.c != nil {
		proofs = v.versionsOf(v.buyers, v.buyer, func(buyer *did.Line) error {
			return v.versionsOf(v.vendors, v.vendor, func(vendor *did.Line) error { return v.c.VerifyProofsOf(buyer, vendor) })
		})
		if v.activation == nil {
			active = errors.New("there is no valid activation")
		} else {
			active = v.versionsOf(v.vendors, v.vendor, func(vendor *did.Line) error { return v.activation.VerifyOf(v.c, vendor) })
		}
	}
	v.add("both parties' proofs", proofs, "by their binding keys")
	v.add("vendor activated in time", active, "%s", v.report.ActivatedAt)
}

// log verifies the segment and that it tells of this contract.
func (v *verifier) log() {
	head, err := ledger.VerifyLinks(v.b.From, v.b.Events)
	if err == nil && head != v.b.Head {
		err = fmt.Errorf("%w: it does not end at the head that the bundle names", ledger.ErrChain)
	}
	if err == nil && v.b.From.Seq == 0 && v.b.From != ledger.Genesis(v.b.Node) {
		err = fmt.Errorf("%w: it does not begin at the genesis of %s", ledger.ErrChain, v.b.Node)
	}
	shown := 0
	for _, l := range v.b.Events {
		if l.Event == nil {
			continue
		}
		if shown++; l.Event.Node != v.b.Node && err == nil {
			err = fmt.Errorf("event %d is from the log of %.200q", l.Event.Seq, l.Event.Node)
		}
	}
	v.add("event log segment", err, "%d events, %d shown, to %d", len(v.b.Events), shown, v.b.Head.Seq)
	const name = "event log tells of the activation"
	if err != nil {
		v.add(name, errors.New("the segment does not hold"), "")
		return
	}
	if len(v.b.Events) == 0 {
		v.absent(name, "no events are here")
		return
	}
	seq, err := v.activationEvent()
	v.add(name, err, "event %d", seq)
}

// activationEvent finds the event of the activation and, in the vendor's own log, holds it against the head that the
// activation signed.
func (v *verifier) activationEvent() (uint64, error) {
	if v.c == nil || v.activation == nil {
		return 0, errNoContract
	}
	node, err := did.Parse(v.b.Node)
	if err != nil || !v.isBuyer(node) && !v.isVendor(node) {
		return 0, errors.New("it is the log of neither party")
	}
	at, signed := v.b.From.Hash, v.b.From.Hash.Equal(v.activation.LogHead)
	for _, l := range v.b.Events {
		e := l.Event
		if e != nil && e.Type == ledger.ContractActivated && e.Contract == v.c.ID {
			var d ledger.Activated
			if err := e.Decode(&d); err != nil {
				return 0, err
			}
			if !d.Digest.Equal(v.digest) || d.ActivatedAt != v.activation.ActivatedAt {
				return 0, fmt.Errorf("event %d tells of another contract or time", e.Seq)
			}
			if v.isVendor(node) && !signed {
				return 0, fmt.Errorf("the head that the activation names does not stand before event %d", e.Seq)
			}
			return e.Seq, nil
		}
		at = l.After(at)
		signed = signed || at.Equal(v.activation.LogHead)
	}
	return 0, errors.New("no event tells of it")
}

// signature verifies the compiler's own proof.
func (v *verifier) signature() {
	const name = "bundle is signed by who compiled it"
	if v.b.Proof == nil {
		v.absent(name, "it has no proof")
		return
	}
	v.add(name, v.readSignature(), "%s", v.b.Node)
}

func (v *verifier) readSignature() error {
	node, err := did.Parse(v.b.Node)
	if err != nil {
		return err
	}
	created, err := time.Parse(time.RFC3339, v.b.Proof.Created)
	if err != nil {
		return errors.New("created is not a time")
	}
	bare := *v.b
	bare.Proof = nil
	object, err := canon.Marshal(bare)
	if err != nil {
		return err
	}
	kid := v.b.Proof.VerificationMethod
	signer, _, err := did.SplitKeyID(kid)
	switch {
	case err != nil:
		return err
	case signer != node && !(v.isBuyer(node) && v.isBuyer(signer)) && !(v.isVendor(node) && v.isVendor(signer)):
		return fmt.Errorf("by %s, who is not %s", signer, node)
	}
	if err := v.inUse(signer, created); err != nil {
		return err
	}
	return v.with(signer, func(doc *did.Document) error {
		if doc.In(kid, did.Recovery) {
			return errors.New("by a recovery key")
		}
		key, err := doc.KeyFor(kid, did.AssertionMethod, created)
		if err != nil {
			return err
		}
		return did.VerifyObject(object, *v.b.Proof, key)
	})
}
