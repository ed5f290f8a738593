// SPDX-License-Identifier: Apache-2.0

package did

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/mlkem"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"math/big"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	k1ecdsa "github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
)

// KeyType names an algorithm family of keys.
type KeyType string

// The types of key that documents may hold and this package can use.
const (
	Ed25519   KeyType = "Ed25519"
	Secp256k1 KeyType = "secp256k1"
	P256      KeyType = "P-256"
	X25519    KeyType = "X25519"
	XWing     KeyType = "X-Wing" // ML-KEM-768 and X25519 together; draft-connolly-cfrg-xwing-kem
)

// XWingSize is the size of an X-Wing public key in bytes: an ML-KEM-768 encapsulation key (FIPS 203), then an X25519 key.
const XWingSize = mlkem.EncapsulationKeySize768 + 32

// Agreement reports whether keys of the type agree on secrets, and cannot sign.
func (t KeyType) Agreement() bool { return t == X25519 || t == XWing }

// PublicKey is a validated public key. The zero value is no key: it has no type and verifies nothing.
type PublicKey struct {
	typ KeyType
	// raw is never modified: 32 bytes for Ed25519 and X25519, XWingSize for X-Wing, the compressed point (SEC 1
	// section 2.3.3, 33 bytes) for the others.
	raw  []byte
	k1   *secp256k1.PublicKey
	p256 *ecdsa.PublicKey
}

// NewPublicKey checks and wraps a public key: 32 bytes for Ed25519 (RFC 8032) and X25519 (RFC 7748), [XWingSize] for
// X-Wing, a compressed or uncompressed point for secp256k1 and P-256. It refuses encodings that are not canonical, points
// that are not on the curve and points of small order. The bytes are copied.
func NewPublicKey(typ KeyType, key []byte) (PublicKey, error) {
	k := PublicKey{typ: typ}
	switch typ {
	case Ed25519:
		if err := checkEd25519(key); err != nil {
			return PublicKey{}, err
		}
		k.raw = append(k.raw, key...)
	case X25519:
		if err := checkX25519(key); err != nil {
			return PublicKey{}, err
		}
		k.raw = append(k.raw, key...)
	case XWing:
		if err := checkXWing(key); err != nil {
			return PublicKey{}, err
		}
		k.raw = append(k.raw, key...)
	case Secp256k1:
		if !pointForm(key) { // decred also takes the hybrid form
			return PublicKey{}, fmt.Errorf("%w: secp256k1 point", ErrKey)
		}
		pub, err := secp256k1.ParsePubKey(key)
		if err != nil {
			return PublicKey{}, fmt.Errorf("%w: secp256k1 point", ErrKey)
		}
		k.k1, k.raw = pub, pub.SerializeCompressed()
	case P256:
		pub, err := parseP256(key)
		if err != nil {
			return PublicKey{}, err
		}
		if k.raw, err = compressP256(pub); err != nil {
			return PublicKey{}, err
		}
		k.p256 = pub
	default:
		return PublicKey{}, fmt.Errorf("%w: %q", ErrKeyType, typ)
	}
	return k, nil
}

func pointForm(key []byte) bool {
	return len(key) == 33 && (key[0] == 2 || key[0] == 3) || len(key) == 65 && key[0] == 4
}

func parseP256(key []byte) (*ecdsa.PublicKey, error) {
	if !pointForm(key) {
		return nil, fmt.Errorf("%w: P-256 point", ErrKey)
	}
	if len(key) == 33 {
		x, y := elliptic.UnmarshalCompressed(elliptic.P256(), key)
		if x == nil {
			return nil, fmt.Errorf("%w: P-256 point", ErrKey)
		}
		key = make([]byte, 65)
		key[0] = 4
		x.FillBytes(key[1:33])
		y.FillBytes(key[33:])
	}
	pub, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), key)
	if err != nil {
		return nil, fmt.Errorf("%w: P-256 point", ErrKey)
	}
	return pub, nil
}

// compressP256 encodes a point as SEC 1 section 2.3.3 does: the parity of y, and x.
func compressP256(pub *ecdsa.PublicKey) ([]byte, error) {
	point, err := pub.Bytes()
	if err != nil {
		return nil, fmt.Errorf("%w: P-256 point", ErrKey)
	}
	return append([]byte{2 | point[64]&1}, point[1:33]...), nil
}

// Type returns the key's type, "" for the zero value.
func (k PublicKey) Type() KeyType { return k.typ }

// IsZero reports whether k is the zero value.
func (k PublicKey) IsZero() bool { return k.typ == "" }

// Bytes returns a copy of the key: 32 bytes for Ed25519 and X25519, [XWingSize] for X-Wing, the compressed point for the others.
func (k PublicKey) Bytes() []byte { return append([]byte(nil), k.raw...) }

// Equal reports whether both are the same key of the same type. Two zero values are not equal.
func (k PublicKey) Equal(other PublicKey) bool {
	return !k.IsZero() && k.typ == other.typ && subtle.ConstantTimeCompare(k.raw, other.raw) == 1
}

// Algorithm returns the JOSE name of the signature algorithm: EdDSA, ES256K or ES256; "" for X25519 and X-Wing.
func (k PublicKey) Algorithm() string {
	switch k.typ {
	case Ed25519:
		return "EdDSA"
	case Secp256k1:
		return "ES256K"
	case P256:
		return "ES256"
	case X25519, XWing:
	}
	return ""
}

// signatureSize is that of every algorithm here: R ‖ S.
const signatureSize = 64

// Verify checks a 64-byte signature of msg: Ed25519 (RFC 8032), or ECDSA with SHA-256 as R ‖ S, for secp256k1
// with low S only. It returns [ErrBadSignature], or [ErrKeyType] for a key that cannot sign.
func (k PublicKey) Verify(msg, sig []byte) error {
	if k.Algorithm() == "" {
		return fmt.Errorf("%w: %q cannot sign", ErrKeyType, k.typ)
	}
	if len(sig) != signatureSize || !k.verify(msg, sig) {
		return ErrBadSignature
	}
	return nil
}

func (k PublicKey) verify(msg, sig []byte) bool {
	switch k.typ {
	case Ed25519:
		return ed25519.Verify(k.raw, msg, sig)
	case Secp256k1:
		var r, s secp256k1.ModNScalar
		if r.SetByteSlice(sig[:32]) || s.SetByteSlice(sig[32:]) || r.IsZero() || s.IsZero() || s.IsOverHalfOrder() {
			return false
		}
		digest := sha256.Sum256(msg)
		return k1ecdsa.NewSignature(&r, &s).Verify(digest[:], k.k1)
	case P256:
		digest := sha256.Sum256(msg)
		r, s := new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:])
		return ecdsa.Verify(k.p256, digest[:], r, s)
	case X25519, XWing:
	}
	return false
}

// Thumbprint returns the RFC 7638 thumbprint: SHA-256, base64url, 43 characters. "" for the zero value.
func (k PublicKey) Thumbprint() string {
	if k.IsZero() {
		return ""
	}
	sum := sha256.Sum256(k.JWK().required())
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Multibase returns the Multikey form: "z", base58btc of multicodec prefix and key. "" for the zero value, and for X-Wing,
// which has no registered code.
func (k PublicKey) Multibase() string {
	if k.IsZero() || k.typ == XWing {
		return ""
	}
	return encodeMultibase(append(multicodecOf(k.typ), k.raw...))
}

// String names the key by type and thumbprint.
func (k PublicKey) String() string { return string(k.typ) + ":" + k.Thumbprint() }
