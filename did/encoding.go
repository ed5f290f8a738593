// SPDX-License-Identifier: Apache-2.0

package did

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/mr-tron/base58"

	"github.com/treaty-node/treaty/did/canon"
)

// b64 is canonical base64url without padding. Its decoder skips line breaks, so use decodeB64.
var b64 = base64.RawURLEncoding.Strict()

func decodeB64(s string) ([]byte, error) {
	if strings.IndexByte(s, '\r') >= 0 || strings.IndexByte(s, '\n') >= 0 {
		return nil, errors.New("line break in base64url")
	}
	return b64.DecodeString(s)
}

// maxMultibase bounds base58, which decodes in quadratic time. The longest key or signature here takes 90.
const maxMultibase = 128

func encodeMultibase(b []byte) string { return "z" + base58.FastBase58Encoding(b) }

// decodeMultibase decodes base58btc with its prefix "z", and nothing else.
func decodeMultibase(s string) ([]byte, error) {
	if len(s) < 2 || len(s) > maxMultibase || s[0] != 'z' {
		return nil, fmt.Errorf("not multibase base58btc")
	}
	b, err := base58.FastBase58Decoding(s[1:])
	if err != nil || encodeMultibase(b) != s {
		return nil, fmt.Errorf("not multibase base58btc")
	}
	return b, nil
}

// Multicodec codes of public keys (https://github.com/multiformats/multicodec).
const (
	codecSecp256k1 = 0xe7
	codecX25519    = 0xec
	codecEd25519   = 0xed
	codecP256      = 0x1200
)

// multicodecOf returns the code as unsigned varint.
func multicodecOf(t KeyType) []byte {
	var code uint64
	switch t {
	case Ed25519:
		code = codecEd25519
	case Secp256k1:
		code = codecSecp256k1
	case P256:
		code = codecP256
	case X25519:
		code = codecX25519
	case XWing: // none is registered
	}
	return binary.AppendUvarint(nil, code)
}

// parseMultikey splits multicodec and key. ok is false if the code is not one of a key type that this package
// knows.
func parseMultikey(b []byte) (typ KeyType, key []byte, ok bool) {
	for _, t := range []KeyType{Ed25519, X25519, Secp256k1, P256} {
		if rest, found := strings.CutPrefix(string(b), string(multicodecOf(t))); found {
			return t, []byte(rest), true
		}
	}
	return "", nil, false
}

// JWK is a public key as JSON Web Key (RFC 7517, RFC 8037, RFC 8812). It has the members that RFC 7638 requires
// for the thumbprint and no others. An X-Wing key is of key type AKP, whose members are alg and pub: the type that JOSE
// has for keys of post-quantum algorithms.
type JWK struct {
	KeyType   string `json:"kty"`
	Curve     string `json:"crv,omitempty"`
	X         string `json:"x,omitempty"`
	Y         string `json:"y,omitempty"`
	Algorithm string `json:"alg,omitempty"` // of AKP only
	Public    string `json:"pub,omitempty"` // of AKP only
}

// jwkAKP is the key type of X-Wing keys.
const jwkAKP = "AKP"

// JWK returns the key as JWK, zero for the zero value.
func (k PublicKey) JWK() JWK {
	j := JWK{KeyType: "EC", Curve: string(k.typ)}
	var point []byte
	switch k.typ {
	case Ed25519, X25519:
		return JWK{KeyType: "OKP", Curve: string(k.typ), X: b64.EncodeToString(k.raw)}
	case XWing:
		return JWK{KeyType: jwkAKP, Algorithm: string(k.typ), Public: b64.EncodeToString(k.raw)}
	case Secp256k1:
		point = k.k1.SerializeUncompressed()
	case P256:
		point, _ = k.p256.Bytes() // fails for points off the curve only
	default:
		return JWK{}
	}
	j.X, j.Y = b64.EncodeToString(point[1:33]), b64.EncodeToString(point[33:])
	return j
}

// PublicKey returns the key that the JWK describes. Coordinates are of full length (RFC 7518 section 6.2.1.2)
// in canonical base64url.
func (j JWK) PublicKey() (PublicKey, error) {
	if j.KeyType == jwkAKP {
		return j.akp()
	}
	x, err := decodeB64(j.X)
	if err != nil || len(x) != 32 {
		return PublicKey{}, fmt.Errorf("%w: JWK member x", ErrKey)
	}
	switch typ := KeyType(j.Curve); typ {
	case Ed25519, X25519:
		if j.KeyType != "OKP" || j.Y != "" {
			return PublicKey{}, fmt.Errorf("%w: JWK with curve %s", ErrKey, typ)
		}
		return NewPublicKey(typ, x)
	case Secp256k1, P256:
		y, err := decodeB64(j.Y)
		if j.KeyType != "EC" || err != nil || len(y) != 32 {
			return PublicKey{}, fmt.Errorf("%w: JWK with curve %s", ErrKey, typ)
		}
		return NewPublicKey(typ, append(append([]byte{4}, x...), y...))
	default:
		return PublicKey{}, fmt.Errorf("%w: JWK of another curve", ErrKeyType)
	}
}

func (j JWK) akp() (PublicKey, error) {
	if j.Algorithm != string(XWing) {
		return PublicKey{}, fmt.Errorf("%w: JWK of another algorithm", ErrKeyType)
	}
	if len(j.Public) != b64.EncodedLen(XWingSize) || j.Curve != "" || j.X != "" || j.Y != "" {
		return PublicKey{}, fmt.Errorf("%w: JWK with algorithm %s", ErrKey, XWing)
	}
	pub, err := decodeB64(j.Public)
	if err != nil {
		return PublicKey{}, fmt.Errorf("%w: JWK member pub", ErrKey)
	}
	return NewPublicKey(XWing, pub)
}

// required is the input of the thumbprint (RFC 7638 section 3.1). No value needs escaping.
func (j JWK) required() []byte {
	if j.KeyType == jwkAKP {
		return []byte(`{"alg":"` + j.Algorithm + `","kty":"` + j.KeyType + `","pub":"` + j.Public + `"}`)
	}
	s := `{"crv":"` + j.Curve + `","kty":"` + j.KeyType + `","x":"` + j.X + `"`
	if j.Y != "" {
		s += `,"y":"` + j.Y + `"`
	}
	return []byte(s + "}")
}

// limits of documents, and of the objects in them.
var documentLimits = canon.Limits{MaxBytes: MaxDocumentBytes, MaxDepth: 16}
