// SPDX-License-Identifier: Apache-2.0

package hpke

import (
	"context"
	"crypto/mlkem"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	circl "github.com/cloudflare/circl/hpke"
	"github.com/cloudflare/circl/kem"

	"github.com/treaty-node/treaty/did"
)

// Suite names a KEM, a KDF and an AEAD (RFC 9180 section 7).
type Suite string

const (
	// SuiteX25519 must be supported by every party.
	SuiteX25519 Suite = "DHKEM-X25519-HKDF-SHA256/HKDF-SHA256/ChaCha20Poly1305"
	// SuiteXWing keeps its secrets also from somebody who records today and has a quantum computer later, for as long as
	// either X25519 or ML-KEM-768 holds.
	SuiteXWing Suite = "X-Wing/HKDF-SHA256/ChaCha20Poly1305"
)

// Sizes in bytes.
const (
	// MaxPlaintext bounds what [Seal] seals and an [Opener] opens.
	MaxPlaintext = 1 << 20
	// Overhead is what sealing adds to the ciphertext: the AEAD tag.
	Overhead = 16

	mlkemEncSize = mlkem.CiphertextSize768 // the first part of an X-Wing encapsulation; an X25519 key follows
)

// Reasons to branch on. Errors of this package wrap exactly one of them.
var (
	ErrSuite      = errors.New("hpke: suite not supported or not the agreed one")
	ErrContext    = errors.New("hpke: context names no two DIDs with a key each")
	ErrRecipient  = errors.New("hpke: sealed to another key than the agreed one")
	ErrUnknownKey = errors.New("hpke: no such private key here")
	ErrRetired    = errors.New("hpke: the key has been retired") // by an [Opener] that retires keys
	ErrKey        = errors.New("hpke: key not usable with the suite")
	ErrEncoding   = errors.New("hpke: not base64url without padding of the right size")
	ErrTooLarge   = errors.New("hpke: larger than the limit")
	ErrOpen       = errors.New("hpke: does not open")
)

// Sealed is a sealed payload as it stands in JSON. Enc and Ciphertext are
// base64url without padding.
type Sealed struct {
	Suite        Suite  `json:"suite"`
	RecipientKID string `json:"recipientKid"`
	Enc          string `json:"enc"`
	Ciphertext   string `json:"ciphertext"`
}

// Context is what a sealed payload is bound to. All members are required.
type Context struct {
	Protocol     string  // what kind of message is sealed, e.g. "treaty-envelope"
	Version      int     // version of that kind, at least 1
	From, To     did.DID // who sealed it, for whom
	SenderKID    string  // the key that signs the message, a key id of From
	RecipientKID string  // the key it is sealed to, a key id of To
}

// infoLabel separates this use of HPKE from every other.
const infoLabel = "treaty hpke info v1"

// Info returns the info parameter of RFC 9180 section 5.1: the label
// "treaty hpke info v1", a zero byte, the version as 32 bits, then Protocol,
// From, To, SenderKID and RecipientKID, each after its length as 32 bits. All
// integers are big-endian. No two contexts have the same info.
func (c Context) Info() []byte {
	parts := [...]string{c.Protocol, c.From.String(), c.To.String(), c.SenderKID, c.RecipientKID}
	n := len(infoLabel) + 5 + 4*len(parts)
	for _, p := range parts {
		n += len(p)
	}
	b := make([]byte, 0, n)
	b = append(b, infoLabel...)
	b = append(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(c.Version)) //nolint:gosec // check bounds it
	for _, p := range parts {
		b = binary.BigEndian.AppendUint32(b, uint32(len(p))) //nolint:gosec // DIDs and key ids are short
		b = append(b, p...)
	}
	return b
}

// maxName bounds the strings in a context; DIDs are far shorter.
const maxName = 4096

func (c Context) check() error {
	ok := c.Protocol != "" && len(c.Protocol) <= maxName &&
		c.Version >= 1 && c.Version <= 1<<16 &&
		!c.From.IsZero() && !c.To.IsZero() &&
		keyOf(c.From, c.SenderKID) && keyOf(c.To, c.RecipientKID)
	if !ok {
		return ErrContext
	}
	return nil
}

func keyOf(id did.DID, kid string) bool {
	fragment, ok := strings.CutPrefix(kid, id.String()+"#")
	return ok && fragment != "" && len(kid) <= maxName
}

// KeyType returns the type of key the suite seals to, or "" for a suite that
// is not supported.
func (s Suite) KeyType() did.KeyType {
	switch s {
	case SuiteX25519:
		return did.X25519
	case SuiteXWing:
		return did.XWing
	}
	return ""
}

// Suites returns the supported suites, best first.
func Suites() []Suite { return []Suite{SuiteXWing, SuiteX25519} }

// kemOf returns the KEM of keys of a type.
func kemOf(typ did.KeyType) (circl.KEM, bool) {
	switch typ {
	case did.X25519:
		return circl.KEM_X25519_HKDF_SHA256, true
	case did.XWing:
		return circl.KEM_XWING, true
	case did.Ed25519, did.Secp256k1, did.P256:
	}
	return 0, false
}

func (s Suite) algorithms() (circl.Suite, kem.Scheme, error) {
	k, ok := kemOf(s.KeyType())
	if !ok {
		return circl.Suite{}, nil, fmt.Errorf("%w: %q", ErrSuite, clip(string(s)))
	}
	return circl.NewSuite(k, circl.KDF_HKDF_SHA256, circl.AEAD_ChaCha20Poly1305), k.Scheme(), nil
}

// encSize is Nenc of the suite's KEM, 0 for a suite that is not supported.
func (s Suite) encSize() int {
	switch s {
	case SuiteX25519:
		return 32
	case SuiteXWing:
		return mlkemEncSize + 32
	}
	return 0
}

// Seal seals plaintext to recipient, the public key that c.RecipientKID names.
// aad is authenticated and not contained in the result. The suite is the
// agreed one. Randomness comes from crypto/rand.
func Seal(suite Suite, recipient did.PublicKey, c Context, aad, plaintext []byte) (Sealed, error) {
	if err := c.check(); err != nil {
		return Sealed{}, err
	}
	if len(plaintext) > MaxPlaintext {
		return Sealed{}, fmt.Errorf("%w: plaintext of %d bytes", ErrTooLarge, len(plaintext))
	}
	enc, sealer, err := newSealer(rand.Reader, suite, recipient, c.Info())
	if err != nil {
		return Sealed{}, err
	}
	ct, err := sealer.Seal(plaintext, aad)
	if err != nil {
		return Sealed{}, fmt.Errorf("hpke: seal: %w", err)
	}
	return Sealed{
		Suite:        suite,
		RecipientKID: c.RecipientKID,
		Enc:          base64.RawURLEncoding.EncodeToString(enc),
		Ciphertext:   base64.RawURLEncoding.EncodeToString(ct),
	}, nil
}

// newSealer is SetupBaseS (RFC 9180 section 5.1.1). random supplies the
// ephemeral key's seed (ikmE of the RFC's test vectors).
func newSealer(random io.Reader, suite Suite, recipient did.PublicKey, info []byte) ([]byte, circl.Sealer, error) {
	algs, scheme, err := suite.algorithms()
	if err != nil {
		return nil, nil, err
	}
	if err := checkKey(suite, recipient); err != nil {
		return nil, nil, err
	}
	pk, err := scheme.UnmarshalBinaryPublicKey(recipient.Bytes())
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	sender, err := algs.NewSender(pk, info)
	if err != nil {
		return nil, nil, fmt.Errorf("hpke: sender: %w", err)
	}
	enc, sealer, err := sender.Setup(random)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return enc, sealer, nil
}

// checkKey says whether the suite can seal to key. A [did.PublicKey] that
// exists is canonical and of full order already.
func checkKey(suite Suite, key did.PublicKey) error {
	if want := suite.KeyType(); want == "" || key.Type() != want {
		return fmt.Errorf("%w: a %q key", ErrKey, key.Type())
	}
	return nil
}

// Opener opens payloads sealed to keys it holds. suite and c are what was
// agreed; s is what arrived. It returns an error that wraps one of this
// package's, and never tells by it more than what could be read off s, except
// for [ErrOpen], which stands for every cryptographic failure.
type Opener interface {
	Open(ctx context.Context, suite Suite, s Sealed, c Context, aad []byte) ([]byte, error)
}

// Keyring is an [Opener] that holds private keys in memory. It is safe for
// concurrent use and does not change.
type Keyring struct{ keys map[string]ringKey }

type ringKey struct {
	typ did.KeyType
	key kem.PrivateKey
}

var _ Opener = (*Keyring)(nil)

// NewKeyring returns a keyring of the given keys by key id. Keys of a type
// that no suite uses are known by their id and refused with [ErrKey].
func NewKeyring(keys map[string]did.PrivateKey) *Keyring {
	r := &Keyring{keys: make(map[string]ringKey, len(keys))}
	for kid, k := range keys {
		entry := ringKey{typ: k.Public().Type()}
		if alg, ok := kemOf(entry.typ); ok {
			if sk, err := alg.Scheme().UnmarshalBinaryPrivateKey(k.Seed()); err == nil {
				// The library computes the public half on first use, without
				// a lock; done here, concurrent opens only read it.
				sk.Public()
				entry.key = sk
			}
		}
		r.keys[kid] = entry
	}
	return r
}

// String never shows a key.
func (r *Keyring) String() string { return fmt.Sprintf("hpke.Keyring(%d keys)", len(r.keys)) }

// GoString never shows a key.
func (r *Keyring) GoString() string { return r.String() }

// Format never shows a key, whatever the verb.
func (r *Keyring) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, r.String()) }

// Open implements [Opener].
func (r *Keyring) Open(ctx context.Context, suite Suite, s Sealed, c Context, aad []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	enc, ct, err := s.decode(suite, c.RecipientKID)
	if err != nil {
		return nil, err
	}
	k, ok := r.keys[c.RecipientKID]
	if !ok {
		return nil, ErrUnknownKey
	}
	if k.key == nil || k.typ != suite.KeyType() {
		return nil, fmt.Errorf("%w: a %q key", ErrKey, k.typ)
	}
	opener, err := newOpener(suite, k.key, enc, c.Info())
	if err != nil {
		return nil, err
	}
	pt, err := opener.Open(ct, aad)
	if err != nil {
		return nil, ErrOpen
	}
	return pt, nil
}

// newOpener is SetupBaseR (RFC 9180 section 5.1.1).
func newOpener(suite Suite, key kem.PrivateKey, enc, info []byte) (circl.Opener, error) {
	algs, _, err := suite.algorithms()
	if err != nil {
		return nil, err
	}
	// RFC 9180 section 7.1.4 wants an all-zero shared secret refused. Low
	// order is refused here already, and so are the non-canonical encodings
	// that X25519 itself would reduce: an encapsulated key has one encoding.
	// The X25519 half of an X-Wing encapsulation is held to the same.
	if len(enc) != suite.encSize() {
		return nil, ErrOpen
	}
	if _, err := did.NewPublicKey(did.X25519, enc[len(enc)-32:]); err != nil {
		return nil, fmt.Errorf("%w: encapsulated key", ErrKey)
	}
	receiver, err := algs.NewReceiver(key, info)
	if err != nil {
		return nil, ErrOpen
	}
	opener, err := receiver.Setup(enc)
	if err != nil {
		return nil, ErrOpen
	}
	return opener, nil
}

// Check says whether s is well formed and of the given suite and recipient,
// without opening it.
func (s Sealed) Check(suite Suite, recipientKID string) error {
	_, _, err := s.decode(suite, recipientKID)
	return err
}

func (s Sealed) decode(suite Suite, recipientKID string) (enc, ct []byte, err error) {
	if suite.KeyType() == "" || s.Suite != suite {
		return nil, nil, fmt.Errorf("%w: %q", ErrSuite, clip(string(s.Suite)))
	}
	if s.RecipientKID != recipientKID {
		return nil, nil, ErrRecipient
	}
	if len(s.Ciphertext) > base64.RawURLEncoding.EncodedLen(MaxPlaintext+Overhead) {
		return nil, nil, fmt.Errorf("%w: ciphertext of %d characters", ErrTooLarge, len(s.Ciphertext))
	}
	if len(s.Enc) != base64.RawURLEncoding.EncodedLen(suite.encSize()) {
		return nil, nil, fmt.Errorf("%w: enc", ErrEncoding)
	}
	if enc, err = decodeBase64(s.Enc); err != nil {
		return nil, nil, fmt.Errorf("%w: enc", ErrEncoding)
	}
	if ct, err = decodeBase64(s.Ciphertext); err != nil || len(ct) < Overhead {
		return nil, nil, fmt.Errorf("%w: ciphertext", ErrEncoding)
	}
	return enc, ct, nil
}

var strict64 = base64.RawURLEncoding.Strict()

// decodeBase64 also refuses the line breaks that encoding/base64 skips.
func decodeBase64(s string) ([]byte, error) {
	b, err := strict64.DecodeString(s)
	if err != nil {
		return nil, err
	}
	if base64.RawURLEncoding.EncodedLen(len(b)) != len(s) {
		return nil, ErrEncoding
	}
	return b, nil
}

// clip bounds what an error repeats of a peer's words.
func clip(s string) string {
	const limit = 80
	if len(s) > limit {
		return s[:limit] + "…"
	}
	return s
}
