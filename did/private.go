// SPDX-License-Identifier: Apache-2.0

package did

import (
	"context"
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/asn1"
	"errors"
	"fmt"
	"io"
	"math/big"

	"github.com/cloudflare/circl/kem/xwing"
	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	k1ecdsa "github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
)

// SeedSize is the size of the secret of every key type, in bytes: the Ed25519 seed (RFC 8032 section 5.1.5),
// the X25519 scalar (RFC 7748), the X-Wing decapsulation key, the ECDSA scalar in big-endian.
const SeedSize = 32

// PrivateKey is a private key. Formatting, logging or encoding it, by itself or inside of something else, shows
// the type and the thumbprint at most, never the secret; only [PrivateKey.Seed] gives that away. The zero value
// is no key.
type PrivateKey struct {
	// A function, because package fmt calls no methods of values in unexported fields: it would go on to print
	// a struct, and with some verbs what a pointer points to, but of a function only the address.
	get func() *secret
}

type secret struct {
	seed   [SeedSize]byte
	public PublicKey
	ed     ed25519.PrivateKey
	k1     *secp256k1.PrivateKey
	p256   *ecdsa.PrivateKey
}

// GenerateKey makes a key from the system's random source.
func GenerateKey(typ KeyType) (PrivateKey, error) {
	for {
		var seed [SeedSize]byte
		if _, err := rand.Read(seed[:]); err != nil {
			return PrivateKey{}, fmt.Errorf("did: generating a key: %w", err)
		}
		k, err := NewPrivateKey(typ, seed[:])
		if errors.Is(err, errScalar) {
			continue // below one in 2^32 for P-256, below one in 2^127 for secp256k1
		}
		return k, err
	}
}

var errScalar = fmt.Errorf("%w: scalar out of range", ErrKey)

// NewPrivateKey makes a key from its secret of [SeedSize] bytes, which is copied.
func NewPrivateKey(typ KeyType, seed []byte) (PrivateKey, error) {
	if len(seed) != SeedSize {
		return PrivateKey{}, fmt.Errorf("%w: secret of %d bytes", ErrKey, len(seed))
	}
	s := &secret{seed: [SeedSize]byte(seed)}
	var public []byte
	switch typ {
	case Ed25519:
		s.ed = ed25519.NewKeyFromSeed(seed)
		public = s.ed.Public().(ed25519.PublicKey) //nolint:forcetypeassert // documented
	case X25519:
		k, err := ecdh.X25519().NewPrivateKey(seed)
		if err != nil {
			return PrivateKey{}, fmt.Errorf("%w: X25519 scalar", ErrKey)
		}
		public = k.PublicKey().Bytes()
	case XWing:
		_, pub := xwing.DeriveKeyPair(seed)
		public = make([]byte, xwing.PublicKeySize)
		pub.Pack(public)
	case Secp256k1:
		var scalar secp256k1.ModNScalar
		if overflow := scalar.SetByteSlice(seed); overflow || scalar.IsZero() {
			return PrivateKey{}, errScalar
		}
		s.k1 = secp256k1.NewPrivateKey(&scalar)
		public = s.k1.PubKey().SerializeCompressed()
	case P256:
		k, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), seed)
		if err != nil {
			return PrivateKey{}, errScalar
		}
		s.p256 = k
		if public, err = k.PublicKey.Bytes(); err != nil {
			return PrivateKey{}, fmt.Errorf("%w: %w", ErrKey, err)
		}
	default:
		return PrivateKey{}, fmt.Errorf("%w: %q", ErrKeyType, typ)
	}
	var err error
	if s.public, err = NewPublicKey(typ, public); err != nil {
		return PrivateKey{}, err
	}
	return PrivateKey{func() *secret { return s }}, nil
}

// IsZero reports whether k is the zero value.
func (k PrivateKey) IsZero() bool { return k.get == nil }

// Public returns the public key, zero for the zero value.
func (k PrivateKey) Public() PublicKey {
	if k.get == nil {
		return PublicKey{}
	}
	return k.get().public
}

// Seed returns a copy of the secret, for storing it sealed; nil for the zero value.
func (k PrivateKey) Seed() []byte {
	if k.get == nil {
		return nil
	}
	return append([]byte(nil), k.get().seed[:]...)
}

// String returns the type and the thumbprint of the public key.
func (k PrivateKey) String() string { return "PrivateKey(" + k.Public().String() + ")" }

// GoString is [PrivateKey.String].
func (k PrivateKey) GoString() string { return k.String() }

// Format writes [PrivateKey.String] whatever the verb.
func (k PrivateKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// MarshalText fails: a private key has no form in which it could be encoded by accident. Through it
// encoding/json and others fail too.
func (k PrivateKey) MarshalText() ([]byte, error) {
	return nil, fmt.Errorf("%w: a private key is not encoded", ErrKey)
}

// MarshalJSON fails as [PrivateKey.MarshalText] does.
func (k PrivateKey) MarshalJSON() ([]byte, error) { return k.MarshalText() }

// sign signs as [PublicKey.Verify] verifies. ECDSA is deterministic (RFC 6979).
func (k PrivateKey) sign(message []byte) ([]byte, error) {
	if k.get == nil {
		return nil, fmt.Errorf("%w: no key", ErrKeyType)
	}
	switch s := k.get(); s.public.typ {
	case Ed25519:
		return ed25519.Sign(s.ed, message), nil
	case Secp256k1:
		digest := sha256.Sum256(message)
		sig := k1ecdsa.Sign(s.k1, digest[:]) // low S
		r, v := sig.R(), sig.S()
		out := make([]byte, signatureSize)
		r.PutBytesUnchecked(out[:32])
		v.PutBytesUnchecked(out[32:])
		return out, nil
	case P256:
		digest := sha256.Sum256(message)
		der, err := s.p256.Sign(nil, digest[:], crypto.SHA256)
		if err != nil {
			return nil, fmt.Errorf("did: signing: %w", err)
		}
		var rs struct{ R, S *big.Int }
		if _, err := asn1.Unmarshal(der, &rs); err != nil {
			return nil, fmt.Errorf("did: signing: %w", err)
		}
		out := make([]byte, signatureSize)
		rs.R.FillBytes(out[:32])
		rs.S.FillBytes(out[32:])
		return out, nil
	case X25519, XWing:
	}
	return nil, fmt.Errorf("%w: %q cannot sign", ErrKeyType, k.Public().typ)
}

// Signer signs with one key. Implementations are safe for concurrent use. The key may be in another process:
// ctx bounds the wait, and [ErrSignerUnavailable] says that trying again later makes sense.
type Signer interface {
	// KeyID returns the absolute id of the verification method, <did>#<fragment>.
	KeyID() string
	// PublicKey returns the key that verifies what Sign returns.
	PublicKey() PublicKey
	// Sign returns the 64-byte signature of message, as [PublicKey.Verify] wants it.
	Sign(ctx context.Context, message []byte) ([]byte, error)
}

// NewSigner returns a [Signer] with a key in memory. keyid must be an absolute key id and k able to sign.
func NewSigner(keyid string, k PrivateKey) (Signer, error) {
	if _, _, err := SplitKeyID(keyid); err != nil {
		return nil, err
	}
	if k.Public().Algorithm() == "" {
		return nil, fmt.Errorf("%w: %q cannot sign", ErrKeyType, k.Public().Type())
	}
	return &memorySigner{keyid, k}, nil
}

type memorySigner struct {
	keyid string
	key   PrivateKey
}

func (s *memorySigner) KeyID() string        { return s.keyid }
func (s *memorySigner) PublicKey() PublicKey { return s.key.Public() }
func (s *memorySigner) String() string       { return s.keyid }

func (s *memorySigner) Sign(ctx context.Context, message []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.key.sign(message)
}

// KeyID returns the id that this module gives its keys: <did>#<role>-<first 8 characters of the thumbprint>.
func KeyID(id DID, role string, key PublicKey) string {
	thumbprint := key.Thumbprint()
	return id.String() + "#" + role + "-" + thumbprint[:min(8, len(thumbprint))]
}
