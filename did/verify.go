// SPDX-License-Identifier: Apache-2.0

package did

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/treaty-node/treaty/did/canon"
)

// Dialect is a way of writing the proof of a DID document. All sign SHA-256(JCS(options)) ‖
// SHA-256(JCS(document without proof)).
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

// proofParts is what a document's proof consists of, found once when the document is parsed.
type proofParts struct {
	present    bool
	start, end int    // the document's canonical form without [start:end] is the document without proof
	options    object // the proof without proofValue
	context    []byte // the document's @context, nil if it has none
	value      string // proofValue
	method     string // verificationMethod, as written
	suite      string // cryptosuite, "" if type or proofPurpose are not what they have to be
	created    time.Time
	expires    time.Time
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
	i := doc.index("proof")
	if i < 0 {
		return p, nil
	}
	proof, err := splitObject(doc[i].value)
	if err != nil {
		return p, fmt.Errorf("%w: %w", ErrProof, err) // a set or chain of proofs is no document proof
	}
	var j documentProof
	if err := canon.UnmarshalOpen(doc[i].value, &j, documentLimits); err != nil {
		return p, fmt.Errorf("%w: %w", ErrProof, err)
	}
	if p.created, err = parseTime(j.Created); err == nil {
		p.expires, err = parseTime(j.Expires)
	}
	if err != nil {
		return p, fmt.Errorf("%w: %w", ErrProof, err)
	}
	p.present = true
	p.start, p.end = doc.cut(i)
	p.options = proof.without("proofValue")
	p.context = doc.find("@context")
	p.value, p.method = j.ProofValue, j.VerificationMethod
	if j.Type == proofType && j.ProofPurpose == proofPurpose {
		p.suite = j.Cryptosuite
	}
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
// A proof created more than five minutes after now, or expired, is refused. That an older proof does not
// replace a newer one, and that a deactivated document is not used, is up to the caller.
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
	keyID := absolute(d.id, p.method)
	if binding.ID != "" && keyID != binding.ID {
		return Verification{}, fmt.Errorf("%w: not by the binding key", ErrProof)
	}
	key, err := d.KeyFor(keyID, AssertionMethod, now)
	if err != nil {
		return Verification{}, fmt.Errorf("%w: %w", ErrProof, err)
	}
	if v.Dialect, err = d.verifyProof(key, now); err != nil {
		return Verification{}, err
	}
	v.ProofKeyID, v.Created = keyID, p.created
	return v, nil
}

// VerifyRecovery checks the document's proof by a recovery key that an earlier, pinned version of it lists in
// recovery and assertionMethod: how a subject that lost its binding key deactivates a DID. Only a deactivated
// document can be proved so.
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
	keyID := absolute(d.id, p.method)
	key, err := pinned.KeyFor(keyID, Recovery, now)
	if err != nil {
		return Verification{}, fmt.Errorf("%w: %w", ErrProof, err)
	}
	if !pinned.In(keyID, AssertionMethod) {
		return Verification{}, fmt.Errorf("%w: %w: %s", ErrProof, ErrRelationship, keyID)
	}
	dialect, err := d.verifyProof(key, now)
	if err != nil {
		return Verification{}, err
	}
	return Verification{Profile: d.id.Profile(), Dialect: dialect, ProofKeyID: keyID, Created: p.created}, nil
}

// verifyProof checks form, time and signature of the proof.
func (d *Document) verifyProof(key PublicKey, now time.Time) (Dialect, error) {
	p := &d.parts
	suite, err := suiteOf(key)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrProof, err)
	}
	if p.suite != suite {
		return "", fmt.Errorf("%w: not %s for %s", ErrProof, suite, proofPurpose)
	}
	if p.created.IsZero() {
		return "", fmt.Errorf("%w: no time of creation", ErrProof)
	}
	if p.created.After(now.Add(maxProofSkew)) {
		return "", fmt.Errorf("%w: created %s", ErrProofTime, formatTime(p.created))
	}
	if !p.expires.IsZero() && !now.Before(p.expires) {
		return "", fmt.Errorf("%w: expired %s", ErrProofTime, formatTime(p.expires))
	}
	document := hash(d.canonical[:p.start], d.canonical[p.end:])
	err = fmt.Errorf("%w: proofValue", ErrProof)
	// 64 bytes are 86 characters of base64url, which may begin with a "z" too, and up to 89 of multibase, of
	// which one in many thousands has just 86: where both readings are possible, both are tried.
	for _, dialect := range []Dialect{DialectSDK, DialectSpec, DialectW3C} {
		sig, ok := decodeProofValue(p.value, dialect)
		if !ok {
			continue
		}
		options, ok := optionsFor(dialect, p.options, p.context)
		if !ok {
			continue
		}
		if err = key.Verify(hashes(hash(options.join()), document), sig); err == nil {
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

// optionsFor returns what is hashed beside the document, false if the proof cannot be of the dialect. A context
// in the proof must be the document's: vc-di-eddsa would let it be a prefix and leave the rest unsigned.
func optionsFor(dialect Dialect, options object, context []byte) (object, bool) {
	inProof := options.find("@context")
	switch dialect {
	case DialectSDK:
		return options, inProof == nil
	case DialectW3C:
		return options, inProof != nil && bytes.Equal(inProof, context)
	case DialectSpec:
		if context == nil {
			return options, inProof == nil
		}
		return options.with("@context", context), inProof == nil
	}
	return nil, false
}

// SignDocument adds a proof to an unsigned DID document and returns the canonical form of the result. created
// is cut to whole seconds. With a secp256k1 key the proof is as ANP-03 appendix A.5 has it whatever the
// dialect.
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
	proof, err := splitObject(encoded)
	if err != nil {
		return nil, err
	}
	context := doc.find("@context")
	if d == DialectW3C && context != nil {
		proof = proof.with("@context", context)
	}
	options, ok := optionsFor(d, proof, context)
	if !ok {
		return nil, fmt.Errorf("%w: dialect %q", ErrProof, d)
	}
	sig, err := s.Sign(ctx, hashes(hash(options.join()), hash(canonical)))
	if err != nil {
		return nil, err
	}
	value := encodeMultibase(sig)
	if d == DialectSDK {
		value = b64.EncodeToString(sig)
	}
	proof = proof.with("proofValue", []byte(`"`+value+`"`))
	signed := doc.with("proof", proof.join()).join()
	if len(signed) > MaxDocumentBytes {
		return nil, fmt.Errorf("%w: larger than %d bytes", ErrDocument, MaxDocumentBytes)
	}
	return signed, nil
}
