// SPDX-License-Identifier: Apache-2.0

package did

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/treaty-node/treaty/did/canon"
)

// What stands in the members of a proof.
const (
	proofType    = "DataIntegrityProof"
	suiteEdDSA   = "eddsa-jcs-2022"                  // W3C vc-di-eddsa section 3.3
	suiteK1      = "didwba-jcs-ecdsa-secp256k1-2025" // ANP-03 appendix A.5
	proofPurpose = string(AssertionMethod)
)

// suiteOf returns the cryptosuite that a key makes proofs with.
func suiteOf(k PublicKey) (string, error) {
	switch k.Type() {
	case Ed25519:
		return suiteEdDSA, nil
	case Secp256k1:
		return suiteK1, nil
	case P256, X25519, XWing:
	}
	return "", fmt.Errorf("%w: no proofs with %q", ErrKeyType, k.Type())
}

// Proof is a Data Integrity proof of an object (not of a DID document, see [SignDocument]).
type Proof struct {
	// The members are in canonical order, as those of proofOptions.
	Created            string `json:"created"` // RFC 3339, UTC, whole seconds
	Cryptosuite        string `json:"cryptosuite"`
	ProofPurpose       string `json:"proofPurpose"` // "assertionMethod"
	ProofValue         string `json:"proofValue"`   // multibase base58btc of 64 bytes
	Type               string `json:"type"`
	VerificationMethod string `json:"verificationMethod"` // absolute key id
}

// CreatedAt returns the time that the proof claims for itself, an error if it is not RFC 3339 in UTC with whole
// seconds.
func (p Proof) CreatedAt() (time.Time, error) {
	t, err := time.Parse(time.RFC3339, p.Created)
	if err != nil || formatTime(t) != p.Created {
		return time.Time{}, fmt.Errorf("%w: created is not an RFC 3339 time in UTC", ErrProof)
	}
	return t, nil
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// SignObject proves an object: eddsa-jcs-2022, or its secp256k1 sibling for such a key, with purpose
// assertionMethod. The object is JSON without its proofs; it is canonicalised first. The context of an object
// that has one is covered twice, as ANP wants it.
func SignObject(ctx context.Context, object []byte, s Signer, created time.Time) (Proof, error) {
	suite, err := suiteOf(s.PublicKey())
	if err != nil {
		return Proof{}, err
	}
	p := Proof{
		Type: proofType, Cryptosuite: suite, VerificationMethod: s.KeyID(),
		ProofPurpose: proofPurpose, Created: formatTime(created),
	}
	options, canonical, err := p.covered(object)
	if err != nil {
		return Proof{}, err
	}
	sig, err := s.Sign(ctx, hashes(hash(options), hash(canonical)))
	if err != nil {
		return Proof{}, err
	}
	p.ProofValue = encodeMultibase(sig)
	return p, nil
}

// VerifyObject checks a proof over the object, which is JSON without its proofs, with the key. The caller has
// looked the key up by p.VerificationMethod and knows that it may be used; times are the caller's concern too.
// It returns [ErrProof] or [ErrBadSignature].
func VerifyObject(object []byte, p Proof, key PublicKey) error {
	suite, err := suiteOf(key)
	if err != nil {
		return err
	}
	if p.Type != proofType || p.Cryptosuite != suite || p.ProofPurpose != proofPurpose {
		return fmt.Errorf("%w: not %s for %s", ErrProof, suite, proofPurpose)
	}
	if _, err := p.CreatedAt(); err != nil {
		return err
	}
	sig, err := decodeMultibase(p.ProofValue)
	if err != nil || len(sig) != signatureSize {
		return fmt.Errorf("%w: proofValue", ErrProof)
	}
	options, canonical, err := p.covered(object)
	if err != nil {
		return err
	}
	return key.Verify(hashes(hash(options), hash(canonical)), sig)
}

// proofOptions is a proof without its value. The members are in canonical order, which saves sorting them.
type proofOptions struct {
	Context            rawJSON `json:"@context,omitzero"`
	Created            string  `json:"created"`
	Cryptosuite        string  `json:"cryptosuite"`
	ProofPurpose       string  `json:"proofPurpose"`
	Type               string  `json:"type"`
	VerificationMethod string  `json:"verificationMethod"`
}

// covered returns the canonical forms that a proof of the object hashes and signs.
func (p Proof) covered(object []byte) (options, canonical []byte, err error) {
	if canonical, err = canon.Canonicalize(object, canon.Limits{}); err != nil {
		return nil, nil, err
	}
	o, err := splitObject(canonical)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrProof, err)
	}
	if o.find("proof") != nil || o.find("proofs") != nil {
		return nil, nil, fmt.Errorf("%w: the object still has its proofs", ErrProof)
	}
	options, err = canon.Marshal(proofOptions{
		o.find("@context"), p.Created, p.Cryptosuite, p.ProofPurpose, p.Type, p.VerificationMethod,
	})
	return options, canonical, err
}

// hash returns the SHA-256 digest of the parts, one after the other.
func hash(parts ...[]byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	h.Sum(sum[:0])
	return sum
}

// hashes returns what a proof signs.
func hashes(options, document [sha256.Size]byte) []byte {
	return append(options[:], document[:]...)
}
