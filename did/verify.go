// SPDX-License-Identifier: Apache-2.0

package did

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/treaty-node/treaty/did/canon"
)

// Dialect is a way of writing the proof of a DID document. All sign SHA-256(JCS(options)) ‖ SHA-256(JCS(document without
// proof)).
type Dialect string

const (
	// DialectSpec is ANP's specification: proofValue in multibase; the options are the proof without proofValue
	// and with the document's @context.
	DialectSpec Dialect = "spec"
	// DialectSDK is what the official SDKs write: proofValue in base64url; the options are the proof without
	// proofValue. For secp256k1 proofs it is also what the specification says.
	DialectSDK Dialect = "sdk"
	// DialectW3C is W3C vc-di-eddsa: as the specification, and the @context also stands in the proof.
	DialectW3C Dialect = "w3c"
)

// Verification says how a document was found valid.
type Verification struct {
	Profile    Profile
	Dialect    Dialect   // "" if the document has no proof and its profile needs none
	ProofKeyID string    // absolute id of the key that made the proof, "" without one
	Created    time.Time // when the proof says it was made, zero without one
}

// maxProofSkew is how far ahead of the verifier's clock a proof may be.
const maxProofSkew = 5 * time.Minute

// proofParts is what a document's proof consists of, taken apart once when the document is parsed.
type proofParts struct {
	present  bool
	document object // without proof
	options  object // the proof without proofValue
	context  []byte // the document's @context
	proof    documentProof
	created  time.Time
	expires  time.Time
}

type documentProof struct {
	Type               string         `json:"type"`
	Cryptosuite        string         `json:"cryptosuite"`
	VerificationMethod string         `json:"verificationMethod"`
	ProofPurpose       string         `json:"proofPurpose"`
	Created            string         `json:"created"`
	Expires            string         `json:"expires"`
	ProofValue         string         `json:"proofValue"`
	Context            jsontext.Value `json:"@context"`
}

func splitProof(canonical []byte) (proofParts, error) {
	var p proofParts
	doc, err := splitObject(canonical)
	if err != nil {
		return p, err
	}
	raw := doc.find("proof")
	if raw == nil {
		return p, nil
	}
	proof, err := splitObject(raw)
	if err != nil {
		return p, fmt.Errorf("%w: %w", ErrProof, err) // a set or chain of proofs is no document proof
	}
	if err := canon.UnmarshalOpen(raw, &p.proof, documentLimits); err != nil {
		return p, fmt.Errorf("%w: %w", ErrProof, err)
	}
	if p.created, err = parseTime(p.proof.Created); err == nil {
		p.expires, err = parseTime(p.proof.Expires)
	}
	if err != nil {
		return p, fmt.Errorf("%w: %w", ErrProof, err)
	}
	p.present = true
	p.document = doc.without("proof")
	p.options = proof.without("proofValue")
	p.context = doc.find("@context")
	return p, nil
}

// Verify checks that the document is bound to its DID and that its proof, over all of it, is valid:
//
//   - e1_: a key in authentication has the thumbprint in the DID, and it made the proof, in any of the three
//     dialects.
//   - k1_: the same with secp256k1, but a document without proof passes (ANP-03 appendix A.5).
//   - bare domains, paths without fingerprint, and did:web: nothing binds the key; a proof is optional and,
//     if there is one, must be valid and by a key in assertionMethod.
//
// A proof created more than five minutes after now, or expired, is refused. That an older proof does not replace a newer
// one, and that a deactivated document is not used, is up to the caller.
func (d *Document) Verify(now time.Time) (Verification, error) {
	v := Verification{Profile: d.id.Profile()}
	var binding VerificationMethod
	if v.Profile == ProfileE1 || v.Profile == ProfileK1 {
		var err error
		if binding, err = d.binding(); err != nil {
			return Verification{}, err
		}
		if v.Profile == ProfileE1 && binding.Type != TypeMultikey { // ANP-03 section 2.2.2
			return Verification{}, fmt.Errorf("%w: the binding key is not a Multikey", ErrBinding)
		}
	}
	p := &d.parts
	if !p.present {
		if v.Profile == ProfileE1 {
			return Verification{}, ErrNoProof
		}
		return v, nil
	}
	keyID := absolute(d.id, p.proof.VerificationMethod)
	if binding.ID != "" && keyID != binding.ID {
		return Verification{}, fmt.Errorf("%w: not by the binding key", ErrProof)
	}
	key, err := d.KeyFor(keyID, AssertionMethod, now)
	if err != nil {
		return Verification{}, fmt.Errorf("%w: %w", ErrProof, err)
	}
	if v.Dialect, err = p.verify(key, now); err != nil {
		return Verification{}, err
	}
	v.ProofKeyID, v.Created = keyID, p.created
	return v, nil
}

// VerifyRecovery checks the document's proof by a recovery key that an earlier, pinned version of it lists in
// recovery and assertionMethod: how a subject that lost its binding key deactivates a DID. Only a
// deactivated document can be proved so.
func (d *Document) VerifyRecovery(pinned *Document, now time.Time) (Verification, error) {
	p := &d.parts
	switch {
	case pinned == nil || pinned.id != d.id:
		return Verification{}, fmt.Errorf("%w: no earlier version of this document", ErrProof)
	case !d.deactivated:
		return Verification{}, fmt.Errorf("%w: a recovery key only deactivates", ErrProof)
	case !p.present:
		return Verification{}, ErrNoProof
	}
	keyID := absolute(d.id, p.proof.VerificationMethod)
	key, err := pinned.KeyFor(keyID, Recovery, now)
	if err != nil {
		return Verification{}, fmt.Errorf("%w: %w", ErrProof, err)
	}
	if !pinned.In(keyID, AssertionMethod) {
		return Verification{}, fmt.Errorf("%w: %w: %s", ErrProof, ErrRelationship, keyID)
	}
	dialect, err := p.verify(key, now)
	if err != nil {
		return Verification{}, err
	}
	return Verification{Profile: d.id.Profile(), Dialect: dialect, ProofKeyID: keyID, Created: p.created}, nil
}

// verify checks form, time and signature of the proof.
func (p *proofParts) verify(key PublicKey, now time.Time) (Dialect, error) {
	suite, err := suiteOf(key)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrProof, err)
	}
	if p.proof.Type != proofType || p.proof.Cryptosuite != suite || p.proof.ProofPurpose != proofPurpose {
		return "", fmt.Errorf("%w: not %s for %s", ErrProof, suite, proofPurpose)
	}
	if p.created.IsZero() {
		return "", fmt.Errorf("%w: no time of creation", ErrProof)
	}
	if p.created.After(now.Add(maxProofSkew)) {
		return "", fmt.Errorf("%w: created %s", ErrProofTime, p.proof.Created)
	}
	if !p.expires.IsZero() && !now.Before(p.expires) {
		return "", fmt.Errorf("%w: expired %s", ErrProofTime, p.proof.Expires)
	}
	document := sha256.Sum256(p.document.join())
	err = fmt.Errorf("%w: proofValue", ErrProof)
	// 64 bytes are 86 characters of base64url, which may begin with a "z" too, and up to 89 of multibase, of
	// which one in many thousands has just 86: where both readings are possible, both are tried.
	for _, dialect := range []Dialect{DialectSDK, DialectSpec, DialectW3C} {
		sig, ok := decodeProofValue(p.proof.ProofValue, dialect)
		if !ok {
			continue
		}
		options, ok := p.optionsFor(dialect)
		if !ok {
			continue
		}
		if err = key.Verify(hashes(sha256.Sum256(options.join()), document), sig); err == nil {
			return dialect, nil
		}
		err = fmt.Errorf("%w: %w", ErrProof, err)
	}
	return "", err
}

func decodeProofValue(value string, dialect Dialect) ([]byte, bool) {
	decode := decodeMultibase
	if dialect == DialectSDK {
		decode = decodeB64
	}
	sig, err := decode(value)
	return sig, err == nil && len(sig) == signatureSize
}

// optionsFor returns what is hashed beside the document, false if the proof cannot be of the dialect. A context in the
// proof must be the document's: vc-di-eddsa would let it be a prefix and leave the
// rest unsigned.
func (p *proofParts) optionsFor(dialect Dialect) (object, bool) {
	inProof := p.options.find("@context")
	switch dialect {
	case DialectSDK:
		return p.options, inProof == nil
	case DialectW3C:
		return p.options, inProof != nil && equalJSON(inProof, p.context)
	case DialectSpec:
		if p.context == nil {
			return p.options, inProof == nil
		}
		return p.options.with("@context", p.context), inProof == nil
	}
	return nil, false
}

// SignDocument adds a proof to an unsigned DID document and returns the canonical form of the
// result. created is cut to whole seconds. With a secp256k1 key the proof is as ANP-03 appendix A.5 has it whatever
// the dialect.
func SignDocument(ctx context.Context, unsigned []byte, s Signer, created time.Time, d Dialect) ([]byte, error) {
	suite, err := suiteOf(s.PublicKey())
	if err != nil {
		return nil, err
	}
	if suite == suiteK1 {
		d = DialectSDK
	}
	canonical, err := canon.Canonicalize(unsigned, documentLimits)
	if err != nil {
		return nil, err
	}
	doc, err := splitObject(canonical)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	if doc.find("proof") != nil {
		return nil, fmt.Errorf("%w: the document has a proof already", ErrDocument)
	}
	encoded, err := canon.Marshal(map[string]string{
		"type": proofType, "cryptosuite": suite, "created": formatTime(created),
		"verificationMethod": s.KeyID(), "proofPurpose": proofPurpose,
	})
	if err != nil {
		return nil, err
	}
	p := proofParts{document: doc, context: doc.find("@context")}
	if p.options, err = splitObject(encoded); err != nil {
		return nil, err
	}
	if d == DialectW3C && p.context != nil {
		p.options = p.options.with("@context", p.context)
	}
	options, ok := p.optionsFor(d)
	if !ok {
		return nil, fmt.Errorf("%w: dialect %q", ErrProof, d)
	}
	sig, err := s.Sign(ctx, hashes(sha256.Sum256(options.join()), sha256.Sum256(canonical)))
	if err != nil {
		return nil, err
	}
	value := encodeMultibase(sig)
	if d == DialectSDK {
		value = b64.EncodeToString(sig)
	}
	proof := p.options.with("proofValue", []byte(`"`+value+`"`)).join()
	signed := doc.with("proof", proof).join()
	if len(signed) > MaxDocumentBytes {
		return nil, fmt.Errorf("%w: larger than %d bytes", ErrDocument, MaxDocumentBytes)
	}
	return signed, nil
}
