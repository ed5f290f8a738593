// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/ledger"
)

// statements verifies what was signed about the contract after it came into force.
func (v *verifier) statements() {
	for i, raw := range v.b.Statements {
		kind, found, err := v.statement(raw)
		v.add(fmt.Sprintf("statement %d, %s", i+1, kind), err, "%s", found)
	}
}

// statement verifies one document and says what it states.
func (v *verifier) statement(raw json.RawMessage) (kind, found string, err error) {
	var probe struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &probe); err != nil {
		return "unknown", "", err
	}
	if v.c == nil {
		return "unknown", "", errNoContract
	}
	switch probe.Type {
	case contract.RevocationType:
		r, err := contract.ParseRevocation(raw)
		if err != nil {
			return "revocation", "", err
		}
		return "revocation", fmt.Sprintf("revoked by %s at %s: %s", r.By, r.RevokedAt, contract.Echo(r.Reason)), v.signedBy(r.By, v.isParty, r.About(v.c), r.VerifySignature)
	case contract.DeletionType:
		d, err := contract.ParseDeletion(raw)
		if err != nil {
			return "deletion", "", err
		}
		return "deletion", fmt.Sprintf("%d results deleted by %s at %s", len(d.Deleted), d.By, d.DeletedAt), v.signedBy(d.By, v.isBuyer, d.About(v.c), d.VerifySignature)
	case contract.AcknowledgementType:
		a, err := contract.ParseAcknowledgement(raw)
		if err != nil {
			return "acknowledgement", "", err
		}
		verify := func(doc *did.Document) error { return a.Verify(v.c.ID, a.Statement, doc) }
		return "acknowledgement", fmt.Sprintf("by %s at %s: %s", a.By, a.At, a.Outcome), v.signedBy(a.By, v.isParty, v.acknowledges(a), verify)
	}
	return "unknown", "", fmt.Errorf("is of type %.80q, which nobody states about a contract", probe.Type)
}

func (v *verifier) isParty(id did.DID) bool { return v.isBuyer(id) || v.isVendor(id) }

// signedBy checks who signed, what the statement is about, and the signature by one of the documents here.
func (v *verifier) signedBy(by string, may func(did.DID) bool, about error, verify func(*did.Document) error) error {
	id, err := did.Parse(by)
	switch {
	case err != nil:
		return err
	case !may(id):
		return fmt.Errorf("by %s, who could not say that", id)
	case about != nil:
		return about
	}
	return v.with(id, verify)
}

// acknowledges finds the statement of the other party that an acknowledgement names.
func (v *verifier) acknowledges(a *contract.Acknowledgement) error {
	for _, raw := range v.b.Statements {
		var st struct {
			By string `json:"by"`
		}
		text, err := canon.Canonicalize(raw, canon.Limits{MaxBytes: MaxBytes, MaxDepth: maxDepth})
		if err != nil || !canon.Sum(text).Equal(a.Statement) || json.Unmarshal(raw, &st) != nil {
			continue
		}
		if st.By == a.By {
			return errors.New("acknowledges a statement of its own")
		}
		return nil
	}
	return errors.New("what it acknowledges is not here")
}

// end holds the log against the revocation: whoever's log tells of it, no call is answered after it.
func (v *verifier) end() {
	const name = "no call is answered after the revocation"
	var ended uint64
	for _, l := range v.b.Events {
		e := l.Event
		if e == nil || v.c == nil || e.Contract != v.c.ID {
			continue
		}
		switch e.Type {
		case ledger.ContractRevoked:
			var r ledger.Revocation
			if err := e.Decode(&r); err != nil {
				v.add(name, err, "")
				return
			}
			if r.Effective && ended == 0 {
				if err := v.stated(r.Statement); err != nil {
					v.add(name, fmt.Errorf("event %d: %w", e.Seq, err), "")
					return
				}
				ended = e.Seq
			}
		case ledger.CallAnswered:
			if ended > 0 {
				v.add(name, fmt.Errorf("event %d tells of a revocation, and event %d of an answer", ended, e.Seq), "")
				return
			}
		}
	}
	if ended > 0 {
		v.add(name, nil, "revoked at event %d", ended)
	}
}

// stated says whether the statement with this digest is here.
func (v *verifier) stated(d canon.Digest) error {
	for _, raw := range v.b.Statements {
		if text, err := canon.Canonicalize(raw, canon.Limits{MaxBytes: MaxBytes, MaxDepth: maxDepth}); err == nil && canon.Sum(text).Equal(d) {
			return nil
		}
	}
	return errors.New("the revocation that it tells of is not here")
}
