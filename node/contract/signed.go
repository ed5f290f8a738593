// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// checkProofForm checks what can be known without a key: the only values that
// version 1 has, and bounds.
func checkProofForm(p *did.Proof) error {
	switch {
	case p.Type != "DataIntegrityProof":
		return invalid("type", "want DataIntegrityProof")
	case p.Cryptosuite == "" || len(p.Cryptosuite) > MaxName:
		return invalid("cryptosuite", "is missing or too long")
	case p.ProofPurpose != string(did.AssertionMethod):
		return invalid("proofPurpose", "want assertionMethod")
	case len(p.VerificationMethod) > maxKeyID:
		return invalid("verificationMethod", "is too long")
	case len(p.ProofValue) < 2 || len(p.ProofValue) > maxProofValue || p.ProofValue[0] != 'z':
		return invalid("proofValue", "want base58btc in multibase, at most 256 characters")
	}
	if _, err := ParseTime(p.Created); err != nil {
		return within("created", err)
	}
	return nil
}

// keyOf says whether a key id belongs to a DID.
func keyOf(keyID, id string) bool {
	rest, ok := strings.CutPrefix(keyID, id)
	return ok && len(rest) > 1 && rest[0] == '#'
}

// verifyBinding verifies a proof by the document's binding key and returns when
// it says it was created. DIDs without a fingerprint have no binding key; for
// did:web and bare domains, which contract only where trust policy lets them, a
// key in assertionMethod of the pinned document stands in. Path DIDs without a
// fingerprint never contract.
func verifyBinding(object []byte, p *did.Proof, doc *did.Document) (time.Time, error) {
	switch doc.ID().Profile() {
	case did.ProfileE1, did.ProfileK1:
		kid, err := doc.BindingKeyID()
		if err != nil {
			return time.Time{}, fmt.Errorf("%w: %w", ErrProof, err)
		}
		if p.VerificationMethod != kid {
			return time.Time{}, fmt.Errorf("%w: by %s, which is not the binding key", ErrProof, Echo(p.VerificationMethod))
		}
	case did.ProfileWeb, did.ProfileBare:
	default:
		return time.Time{}, fmt.Errorf("%w: %s has no binding key", ErrProof, Echo(doc.ID().String()))
	}
	return verifyAssertion(object, p, doc)
}

// verifyAssertion verifies a proof by any key in the document's assertionMethod
// that is not a recovery key: those sign successions and nothing else.
func verifyAssertion(object []byte, p *did.Proof, doc *did.Document) (time.Time, error) {
	if err := checkProofForm(p); err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", ErrProof, err)
	}
	if !keyOf(p.VerificationMethod, doc.ID().String()) {
		return time.Time{}, fmt.Errorf("%w: by %s, which is not the signer's", ErrProof, Echo(p.VerificationMethod))
	}
	if doc.In(p.VerificationMethod, did.Recovery) {
		return time.Time{}, fmt.Errorf("%w: by a recovery key", ErrProof)
	}
	created, err := ParseTime(p.Created)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", ErrProof, err)
	}
	key, err := doc.KeyFor(p.VerificationMethod, did.AssertionMethod, created)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", ErrProof, err)
	}
	if err := did.VerifyObject(object, *p, key); err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", ErrProof, err)
	}
	return created, nil
}

// statement is a document with one proof of its own.
type statement interface {
	unsigned() any // a copy without the proof
	proof() *did.Proof
	check() error // everything but the proof
}

func parseStatement(data []byte, s statement) error {
	if err := Decode(data, s); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	return within("proof", checkProofForm(s.proof()))
}

func signStatement(ctx context.Context, s statement, signer did.Signer, at string) error {
	if err := s.check(); err != nil {
		return err
	}
	created, err := ParseTime(at)
	if err != nil {
		return err
	}
	b, err := canon.Marshal(s.unsigned())
	if err != nil {
		return err
	}
	p, err := did.SignObject(ctx, b, signer, created)
	if err != nil {
		return err
	}
	*s.proof() = p
	return nil
}

// statementObject checks a statement and returns the bytes its proof covers.
func statementObject(s statement) ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	return canon.Marshal(s.unsigned())
}
