// SPDX-License-Identifier: Apache-2.0

package did

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/treaty-node/treaty/did/canon"
)

// Verification method types that this package reads.
const (
	TypeMultikey     = "Multikey"
	TypeJSONWebKey   = "JsonWebKey2020"
	TypeEd25519v2018 = "Ed25519VerificationKey2018"
	TypeEd25519v2020 = "Ed25519VerificationKey2020"
	TypeSecp256k1    = "EcdsaSecp256k1VerificationKey2019"
	TypeSecp256r1    = "EcdsaSecp256r1VerificationKey2019"
	TypeX25519v2019  = "X25519KeyAgreementKey2019"
	TypeX25519v2020  = "X25519KeyAgreementKey2020"
	TypeJSONWebKeyV1 = "JsonWebKey" // the name in the Controlled Identifiers recommendation; what X-Wing keys are published as
)

// VerificationMethod is a key in a document.
type VerificationMethod struct {
	ID         string // absolute: <did>#<fragment>
	Type       string
	Controller string
	// Key is the zero value if the type, or the kind of key in it, is unknown to this package. Such methods are
	// carried and can never be used.
	Key     PublicKey
	Expires time.Time // member "expires"; zero: none
	Revoked time.Time // member "revoked"; zero: none
}

// usableAt returns nil if the key may be used at the time.
func (m *VerificationMethod) usableAt(at time.Time) error {
	if !m.Expires.IsZero() && !at.Before(m.Expires) {
		return fmt.Errorf("%w: %s at %s", ErrKeyExpired, m.ID, m.Expires.Format(time.RFC3339))
	}
	if !m.Revoked.IsZero() && !at.Before(m.Revoked) {
		return fmt.Errorf("%w: %s revoked at %s", ErrKeyExpired, m.ID, m.Revoked.Format(time.RFC3339))
	}
	return nil
}

type methodJSON struct {
	ID         string         `json:"id"`
	Type       string         `json:"type"`
	Controller string         `json:"controller"`
	Multibase  string         `json:"publicKeyMultibase"`
	Base58     string         `json:"publicKeyBase58"`
	JWK        jsontext.Value `json:"publicKeyJwk"`
	Expires    string         `json:"expires"`
	Revoked    string         `json:"revoked"`
}

// method resolves a verification method against the document's DID.
func (j *methodJSON) method(id DID) (VerificationMethod, error) {
	m := VerificationMethod{ID: absolute(id, j.ID), Type: j.Type, Controller: j.Controller}
	owner, _, err := SplitKeyID(m.ID)
	if err != nil {
		return m, fmt.Errorf("%w: verification method: %w", ErrDocument, err)
	}
	if owner != id {
		return m, fmt.Errorf("%w: verification method %s of another DID", ErrDocument, m.ID)
	}
	if m.Type == "" || m.Controller == "" {
		return m, fmt.Errorf("%w: verification method %s without type or controller", ErrDocument, m.ID)
	}
	if m.Expires, err = parseTime(j.Expires); err == nil {
		m.Revoked, err = parseTime(j.Revoked)
	}
	if err != nil {
		return m, fmt.Errorf("%w: verification method %s: %w", ErrDocument, m.ID, err)
	}
	if m.Key, err = j.key(); err != nil {
		return m, fmt.Errorf("%w: verification method %s: %w", ErrDocument, m.ID, err)
	}
	return m, nil
}

// key decodes the key material by the method's type. Private members in it, and a second key beside the first,
// are errors; an unknown type or kind of key gives the zero key.
func (j *methodJSON) key() (PublicKey, error) {
	forms := 0
	for _, present := range []bool{j.Multibase != "", j.Base58 != "", len(j.JWK) > 0} {
		if present {
			forms++
		}
	}
	if forms > 1 {
		return PublicKey{}, fmt.Errorf("%w: more than one key in a method", ErrKey)
	}
	switch j.Type {
	case TypeMultikey:
		return j.multikey("")
	case TypeJSONWebKey, TypeJSONWebKeyV1:
		return j.jwk("")
	case TypeEd25519v2018, TypeEd25519v2020:
		return j.any(Ed25519)
	case TypeX25519v2019, TypeX25519v2020:
		return j.any(X25519)
	case TypeSecp256k1:
		return j.any(Secp256k1)
	case TypeSecp256r1:
		return j.any(P256)
	default:
		return PublicKey{}, nil
	}
}

// any decodes the key of a type that implies its kind, in whichever form it is.
func (j *methodJSON) any(want KeyType) (PublicKey, error) {
	switch {
	case j.Multibase != "":
		return j.multikey(want)
	case j.Base58 != "":
		b, err := decodeMultibase("z" + j.Base58)
		if err != nil {
			return PublicKey{}, fmt.Errorf("%w: publicKeyBase58", ErrKey)
		}
		return NewPublicKey(want, b)
	case len(j.JWK) > 0:
		return j.jwk(want)
	default:
		return PublicKey{}, fmt.Errorf("%w: no key", ErrKey)
	}
}

// multikey decodes publicKeyMultibase. With want, the multicodec must be that of the type, or may be missing:
// the 2018 and 2019 suites, and the example of ANP-03 section 2.5, encode the bare key. The two cannot be
// confused: with its code a key is longer.
func (j *methodJSON) multikey(want KeyType) (PublicKey, error) {
	if want == "" && len(j.Multibase) > maxMultibase {
		return PublicKey{}, nil // a post-quantum or hybrid key
	}
	b, err := decodeMultibase(j.Multibase)
	if err != nil {
		return PublicKey{}, fmt.Errorf("%w: publicKeyMultibase", ErrKey)
	}
	if want != "" && len(b) == rawSize(want) {
		return NewPublicKey(want, b)
	}
	typ, key, ok := parseMultikey(b)
	if !ok && want == "" {
		return PublicKey{}, nil // a kind of key unknown here
	}
	if !ok || want != "" && typ != want {
		return PublicKey{}, fmt.Errorf("%w: multicodec does not fit the method's type", ErrKey)
	}
	if len(key) != rawSize(typ) { // Multikey holds compressed points only
		return PublicKey{}, fmt.Errorf("%w: %s key of %d bytes", ErrKey, typ, len(key))
	}
	return NewPublicKey(typ, key)
}

func rawSize(t KeyType) int {
	if t == Ed25519 || t == X25519 {
		return 32
	}
	return 33
}

func (j *methodJSON) jwk(want KeyType) (PublicKey, error) {
	var jwk struct {
		JWK
		D    *string `json:"d"`    // private
		Priv *string `json:"priv"` // private, of AKP
		K    *string `json:"k"`    // symmetric
		Use  string  `json:"use"`
	}
	if len(j.JWK) == 0 {
		return PublicKey{}, fmt.Errorf("%w: no publicKeyJwk", ErrKey)
	}
	if err := canon.UnmarshalOpen(j.JWK, &jwk, documentLimits); err != nil {
		return PublicKey{}, fmt.Errorf("%w: publicKeyJwk: %w", ErrKey, err)
	}
	if jwk.D != nil || jwk.Priv != nil || jwk.K != nil {
		return PublicKey{}, fmt.Errorf("%w: secret in publicKeyJwk", ErrKey)
	}
	typ := KeyType(jwk.Curve)
	if jwk.KeyType == jwkAKP {
		typ = KeyType(jwk.JWK.Algorithm)
	} else {
		jwk.JWK.Algorithm, jwk.JWK.Public = "", "" // other keys have it too, for information
	}
	if want == "" {
		switch typ {
		case Ed25519, X25519, Secp256k1, P256, XWing:
		default:
			return PublicKey{}, nil // a kind of key unknown here
		}
	} else if typ != want {
		return PublicKey{}, fmt.Errorf("%w: curve does not fit the method's type", ErrKey)
	}
	return jwk.PublicKey()
}

// absolute expands a relative DID URL, "#fragment", against the document's DID.
func absolute(id DID, ref string) string {
	if len(ref) > 0 && ref[0] == '#' {
		return id.String() + ref
	}
	return ref
}

// parseTime parses an XML Schema dateTimeStamp, as far as RFC 3339 has it too. Empty is none.
func parseTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || len(s) > 40 {
		return time.Time{}, fmt.Errorf("not an RFC 3339 time")
	}
	return t.UTC(), nil
}
