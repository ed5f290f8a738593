// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/store"
)

// facts are what the store says about a contract, read in one transaction.
type facts struct {
	record  store.ContractRecord
	found   bool
	revoked bool
	epoch   uint64
	calls   int64
	drawn   store.Drawn
}

// reader is the part of the store that a decision reads.
type reader interface {
	GetContract(id string) (store.ContractRecord, error)
	Revoked(id string) (bool, error)
	RevocationEpoch() (uint64, error)
	GetUsage(id string) (int64, error)
	GetDrawn(id string) (store.Drawn, error)
}

func readFacts(tx reader, id string) (f facts, err error) {
	f.record, err = tx.GetContract(id)
	if errors.Is(err, store.ErrNotFound) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	f.found = true
	if f.revoked, err = tx.Revoked(id); err != nil {
		return f, err
	}
	if f.epoch, err = tx.RevocationEpoch(); err != nil {
		return f, err
	}
	if f.calls, err = tx.GetUsage(id); err != nil {
		return f, err
	}
	f.drawn, err = tx.GetDrawn(id)
	return f, err
}

// verdict is what was found about one record, for one caller's document.
type verdict struct {
	contract *contract.Contract // nil when the record is not to be believed
	digest   canon.Digest
	state    contract.State
	note     string // why contract is nil, for the log
}

var (
	errRecord = errors.New("the record and the contract in it differ")
	errVendor = errors.New("the contract's vendor is not served here")
	errPlane  = errors.New("the contract names another data plane")
	errRole   = errors.New("the contract is not one in which this company sells")
)

// judge says what a stored contract is worth to this caller. It never fails: whatever is wrong ends in a verdict without a
// contract, so that an altered store and an invented contract look like no contract.
func (s *Service) judge(f facts, caller httpsig.Caller) *verdict {
	if !f.found {
		return &verdict{note: "no such contract"}
	}
	key := s.verdictKey(f, caller)
	if v, ok := s.verdicts.Get(key); ok {
		return v
	}
	v := &verdict{}
	if err := s.verify(v, f.record, caller); err != nil {
		v = &verdict{note: "the stored contract was not accepted: " + err.Error()}
	}
	s.verdicts.Add(key, v)
	return v
}

// verdictKey covers everything that verify looks at, and the revocation epoch.
func (s *Service) verdictKey(f facts, caller httpsig.Caller) canon.Digest {
	sum := canon.Sum(f.record.Bytes)
	act := canon.Sum(f.record.Activation)
	doc := caller.Document.Hash()
	var epoch [8]byte
	binary.BigEndian.PutUint64(epoch[:], f.epoch)
	return canon.Hash("treaty data plane verdict v1", sum[:], act[:], f.record.Digest[:], doc[:], epoch[:],
		[]byte(f.record.ID+"\x00"+f.record.Role+"\x00"+f.record.State+"\x00"+caller.DID.String()))
}

// verify fills v from a record. For a caller that is not the buyer it only parses: Evaluate then refuses, and the log learns
// whose contract it was.
func (s *Service) verify(v *verdict, rec store.ContractRecord, caller httpsig.Caller) error {
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
	vendor, ok := s.vendors[c.Parties.Vendor]
	if !ok {
		return errVendor
	}
	if c.Parties.DataPlane.DID != s.id {
		return errPlane
	}
	v.contract, v.digest = c, d
	if caller.DID.String() != c.Parties.Buyer {
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
		if err := c.VerifyProofs(caller.Document, vendor); err != nil {
			return err
		}
		a, err := contract.ParseActivation(rec.Activation)
		if err != nil {
			return fmt.Errorf("activation: %w", err)
		}
		if err := a.Verify(c, vendor); err != nil {
			return fmt.Errorf("activation: %w", err)
		}
		v.state = contract.InForce
	}
	return nil
}

// usage are the facts that Evaluate asks for.
func (s *Service) usage(f facts, v *verdict) contract.Usage {
	u := contract.Usage{State: v.state, Revoked: f.revoked, Calls: f.calls, Rows: f.drawn.Rows, MicroEpsilon: f.drawn.Epsilon}
	if v.contract != nil && f.drawn.Window >= v.contract.Rate.Window(s.opts.Now()).Unix() {
		u.WindowCalls = f.drawn.WindowCalls
	}
	if v.contract != nil && f.calls >= s.opts.Ceiling.budget(v.contract.CallBudget) {
		u.Calls = max(u.Calls, v.contract.CallBudget) // used up by the ceiling's count
	}
	return u
}
