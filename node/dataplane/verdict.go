// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/succession"
)

// facts are what the store says about a contract, read in one transaction.
type facts struct {
	store.Standing

	found bool
	// From when somebody else may have had the caller's key, or the one that activated the contract, by their own word; zero: never. What the store says
	// of a succession takes away, and never gives.
	callerLost, vendorLost time.Time
}

// reader is the part of the store that a decision reads.
type reader interface {
	GetStanding(id string) (store.Standing, error)
	GetSuccession(old string) (store.Succession, error)
}

// lost is from when somebody else may have had the key of a DID.
func lost(tx reader, id string) (time.Time, error) {
	step, err := tx.GetSuccession(id)
	if errors.Is(err, store.ErrNotFound) {
		return time.Time{}, nil
	}
	return step.CompromisedSince, err
}

// readFacts reads them in a transaction that began after floor was read, see [seen.floor].
func (s *Service) readFacts(tx reader, id string, caller did.DID, floor uint64) (f facts, err error) {
	f.Standing, err = tx.GetStanding(id)
	if errors.Is(err, store.ErrNotFound) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	f.found = true
	if err := s.seen.hold(&f, floor); err != nil {
		return f, err
	}
	if !f.Compromises {
		return f, nil
	}
	if f.callerLost, err = lost(tx, caller.String()); err != nil {
		return f, err
	}
	if a, parseErr := contract.ParseActivation(f.Contract.Activation); parseErr == nil {
		// By the vendor, under the DID that it had by then.
		signer, _, _ := did.SplitKeyID(a.Proof.VerificationMethod) // whatever it is, it has no succession
		f.vendorLost, err = lost(tx, signer.String())
	}
	return f, err
}

// verdict is what was found about one record, for one caller's document.
type verdict struct {
	contract *contract.Contract // nil when the record is not to be believed
	digest   canon.Digest
	state    contract.State
	note     string // why contract is nil, for the log
	buyer    bool   // the caller is the contract's buyer, or its verified successor
}

var (
	errRecord = errors.New("the record and the contract in it differ")
	errVendor = errors.New("the contract's vendor is not served here")
	errPlane  = errors.New("the contract names another data plane")
	errRole   = errors.New("the contract is not one in which this company sells")
	errLost   = errors.New("somebody else may have had the vendor's key when it was activated")
)

// judge says what a stored contract is worth to this caller. Whatever is wrong with it ends in a verdict without a contract, so
// that an altered store and an invented contract look like no contract. The error is a fault: documents that are needed to tell
// cannot be had at the moment.
func (s *Service) judge(ctx context.Context, f facts, caller httpsig.Caller) (*verdict, error) {
	switch {
	case !f.found:
		return &verdict{note: "no such contract"}, nil
	case !f.callerLost.IsZero():
		return &verdict{note: "the caller's DID has a successor, and somebody else may have its key"}, nil
	}
	v, err := s.look(ctx, f, caller, nil)
	if err != nil || v.contract == nil || v.buyer {
		return v, err
	}
	line, err := s.successor(ctx, v.contract.Parties.Buyer, caller.DID)
	switch {
	case errors.Is(err, succession.ErrRefused):
		return &verdict{contract: v.contract, digest: v.digest, note: err.Error()}, nil
	case err != nil || line == nil:
		return v, err
	}
	return s.look(ctx, f, caller, line)
}

// successor is the verified line from a contract's party to a DID that claims to stand for it now, nil for one that does not.
func (s *Service) successor(ctx context.Context, party string, id did.DID) (*did.Line, error) {
	old, err := did.Parse(party)
	if err != nil || s.opts.Lines == nil || old == id || !did.SameSubject(old, id) {
		return nil, nil //nolint:nilerr,nilnil // nobody's successor
	}
	line, err := s.opts.Lines.Stands(ctx, old, id)
	if err != nil {
		return nil, fmt.Errorf("the succession from %s: %w", old, err)
	}
	return line, nil
}

// look is judge from the verdicts that are remembered. buyer is the line in which the caller follows the contract's buyer, nil
// when only the buyer itself counts.
func (s *Service) look(ctx context.Context, f facts, caller httpsig.Caller, buyer *did.Line) (*verdict, error) {
	key := s.verdictKey(f, caller, buyer)
	if v, ok := s.verdicts.Get(key); ok {
		return v, nil
	}
	v := &verdict{}
	err := s.verify(ctx, v, f, caller, buyer)
	var away *resolver.Error
	if errors.As(err, &away) && away.Temporary() && !errors.Is(err, succession.ErrRefused) {
		return nil, err
	}
	if err != nil {
		v = &verdict{note: "the stored contract was not accepted: " + err.Error()}
	}
	s.verdicts.Add(key, v)
	return v, nil
}

// verdictKey covers everything that verify looks at, and the revocation epoch.
func (s *Service) verdictKey(f facts, caller httpsig.Caller, buyer *did.Line) canon.Digest {
	sum := canon.Sum(f.Contract.Bytes)
	act := canon.Sum(f.Contract.Activation)
	doc := caller.Document.Hash()
	var epoch [8]byte
	binary.BigEndian.PutUint64(epoch[:], f.Epoch)
	var lines []byte
	for _, st := range buyer.Stations() {
		d := st.Keys().Hash()
		lines = append(lines, d[:]...)
		if st.Gone != nil {
			d = st.Gone.Hash()
			lines = append(lines, d[:]...)
		}
	}
	line := canon.Sum(lines)
	lost := canon.Sum([]byte(f.vendorLost.UTC().Format(time.RFC3339Nano)))
	return canon.Hash("treaty data plane verdict v2", sum[:], act[:], f.Contract.Digest[:], doc[:], epoch[:], line[:], lost[:],
		[]byte(f.Contract.ID+"\x00"+f.Contract.Role+"\x00"+f.Contract.State+"\x00"+caller.DID.String()))
}

// verify fills v from a record. For a caller that is not the buyer it only parses: Evaluate then refuses, and the log learns
// whose contract it was.
func (s *Service) verify(ctx context.Context, v *verdict, f facts, caller httpsig.Caller, buyer *did.Line) error {
	rec := f.Contract
	c, err := contract.Parse(rec.Bytes)
	if err != nil {
		return err
	}
	d, err := c.Digest()
	if err != nil {
		return err
	}
	if c.ID != rec.ID || !d.Equal(rec.Digest) {
		return errRecord
	}
	if rec.Role != "vendor" {
		return errRole
	}
	known := s.vendorOf(c.Parties.Vendor)
	if known == nil {
		return errVendor
	}
	if c.Parties.DataPlane.DID != s.id {
		return errPlane
	}
	v.contract, v.digest = c, d
	if caller.DID.String() == c.Parties.Buyer {
		buyer = did.Alone(caller.Document)
	}
	if v.buyer = buyer.Moves(); !v.buyer {
		return nil
	}
	switch rec.State {
	case store.AwaitingApproval:
		v.state = contract.AwaitingApproval
	case store.AwaitingActivation:
		v.state = contract.AwaitingActivation
	case store.Revoked:
		v.state = contract.Revoked
	case store.InForce:
		a, err := contract.ParseActivation(rec.Activation)
		if err != nil {
			return fmt.Errorf("activation: %w", err)
		}
		vendor, err := s.vendorLine(ctx, known, c, a)
		if err != nil {
			return err
		}
		if err := c.VerifyProofsOf(buyer, vendor); err != nil {
			return err
		}
		if err := a.VerifyOf(c, vendor); err != nil {
			return fmt.Errorf("activation: %w", err)
		}
		if at, err := contract.ParseTime(a.ActivatedAt); err != nil || !f.vendorLost.IsZero() && !at.Before(f.vendorLost) {
			return errLost
		}
		v.state = contract.InForce
	}
	return nil
}

// vendorOf is this process's own copy of the document of a contract's vendor, or of the DID before it: one that it claims to
// follow. nil when no vendor that is served here has that subject.
func (s *Service) vendorOf(party string) *did.Document {
	if doc := s.vendors[party]; doc != nil || s.opts.Lines == nil {
		return doc
	}
	id, err := did.Parse(party)
	if err != nil {
		return nil
	}
	for _, doc := range s.vendors {
		if did.SameSubject(doc.ID(), id) {
			return doc
		}
	}
	return nil
}

// vendorLine is the line of the contract's vendor, from the DID that is known here. Documents are asked for only where the
// contract has anything by a successor: what a vendor signed before it moved needs nobody's answer today.
func (s *Service) vendorLine(ctx context.Context, known *did.Document, c *contract.Contract, a *contract.Activation) (*did.Line, error) {
	id := known.ID().String()
	by := func(p did.Proof) string {
		d, _, _ := did.SplitKeyID(p.VerificationMethod) // whatever it is, it is not the known one
		return d.String()
	}
	if c.Parties.Vendor == id && c.Complete() && by(c.Proofs[1]) == id && by(a.Proof) == id || s.opts.Lines == nil {
		return did.Alone(known), nil
	}
	line, err := s.opts.Lines.Follow(ctx, known.ID())
	if err != nil {
		return nil, fmt.Errorf("the succession from %s: %w", id, err)
	}
	return line, nil
}

// usage are the facts that Evaluate asks for.
func (s *Service) usage(f facts, v *verdict, caller string) contract.Usage {
	u := contract.Usage{State: v.state, Revoked: f.Revoked, Calls: f.Calls, Rows: f.Drawn.Rows, MicroEpsilon: f.Drawn.Epsilon}
	if v.buyer {
		u.Buyer = caller
	}
	if v.contract != nil && f.Drawn.Window >= v.contract.Rate.Window(s.opts.Now()).Unix() {
		u.WindowCalls = f.Drawn.WindowCalls
	}
	if v.contract == nil {
		return u
	}
	// Where the ceiling is lower, the difference is used up from the beginning.
	if f.Calls >= s.opts.Ceiling.budget(v.contract.CallBudget) {
		u.Calls = max(u.Calls, v.contract.CallBudget)
	}
	if rows := v.contract.Rows.RowBudget; s.opts.Ceiling.AllowRows { // else they are refused anyway
		u.Rows += rows - s.opts.Ceiling.rows(rows)
	}
	if n := v.contract.Noise; n != nil {
		total, _ := contract.MicroEpsilon(n.EpsilonTotal)
		u.MicroEpsilon += total - s.opts.Ceiling.epsilon(n.EpsilonTotal)
	}
	return u
}
