// SPDX-License-Identifier: Apache-2.0

package did

import (
	"context"
	"crypto/ed25519"
	"fmt"

	"github.com/lestrrat-go/jwx/v2/jwa"
	"github.com/lestrrat-go/jwx/v2/jws"

	"github.com/treaty-node/treaty/did/canon"
)

// The JOSE library (jwx) accepts much that must not be accepted here: unprotected key ids, duplicate members,
// padding, several serialisations, high-S signatures. So everything is checked on the received bytes in this
// file, and the library sees a signing input, a signature of the right length and a validated key. It is not
// used elsewhere, and for ES256K not at all: that is decred's.

// maxHeader bounds a protected header, in bytes of base64url.
const maxHeader = 2048

// JWS is a JSON Web Signature in the flattened JSON serialisation (RFC 7515 section 7.2.2), with exactly the
// members payload, protected and signature, and a protected header of exactly alg, kid and typ.
type JWS struct {
	Alg     string // EdDSA, ES256K or ES256
	KeyID   string // absolute key id
	Type    string // "typ"
	Payload []byte // decoded

	input     []byte // protected '.' payload, as received
	signature []byte
}

type flattened struct {
	Payload   string `json:"payload"`
	Protected string `json:"protected"`
	Signature string `json:"signature"`
}

type protectedHeader struct {
	Alg string `json:"alg"`
	Kid string `json:"kid"`
	Typ string `json:"typ"`
}

// SignJWS signs the payload and returns the flattened JSON, in canonical form.
func SignJWS(ctx context.Context, payload []byte, typ string, s Signer) ([]byte, error) {
	if _, _, err := SplitKeyID(s.KeyID()); err != nil {
		return nil, err
	}
	if typ == "" || len(payload) == 0 {
		return nil, fmt.Errorf("%w: no typ or no payload", ErrJWS)
	}
	header := protectedHeader{Alg: s.PublicKey().Algorithm(), Kid: s.KeyID(), Typ: typ}
	protected, signature, err := signInput(ctx, header, payload, s)
	if err != nil {
		return nil, err
	}
	return canon.Marshal(flattened{b64.EncodeToString(payload), protected, signature})
}

// signInput signs protected '.' payload and returns protected and signature in base64url.
func signInput(ctx context.Context, header any, payload []byte, s Signer) (protected, signature string, err error) {
	encoded, err := canon.Marshal(header)
	if err != nil {
		return "", "", err
	}
	protected = b64.EncodeToString(encoded)
	if len(protected) > maxHeader {
		return "", "", fmt.Errorf("%w: header too large", ErrJWS)
	}
	sig, err := s.Sign(ctx, signingInput(protected, b64.EncodeToString(payload)))
	if err != nil {
		return "", "", err
	}
	return protected, b64.EncodeToString(sig), nil
}

func signingInput(protected, payload string) []byte {
	return append(append(append(make([]byte, 0, len(protected)+1+len(payload)), protected...), '.'), payload...)
}

// ParseJWS parses at most maxBytes of a signature object in the one form that [SignJWS] writes, white space and
// the order of members aside: base64url is canonical and unpadded, the algorithm one of three, kid an absolute
// key id. It does not verify anything: see [JWS.Verify].
func ParseJWS(data []byte, maxBytes int) (*JWS, error) {
	var f flattened
	if err := canon.Unmarshal(data, &f, canon.Limits{MaxBytes: maxBytes, MaxDepth: 1}); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrJWS, err)
	}
	header, err := parseHeader(f.Protected)
	if err != nil {
		return nil, err
	}
	var h protectedHeader
	if err := canon.Unmarshal(header, &h, canon.Limits{MaxDepth: 1}); err != nil {
		return nil, fmt.Errorf("%w: protected header: %w", ErrJWS, err)
	}
	switch h.Alg {
	case "EdDSA", "ES256K", "ES256":
	default:
		return nil, fmt.Errorf("%w: alg", ErrJWS)
	}
	if _, _, err := SplitKeyID(h.Kid); err != nil {
		return nil, fmt.Errorf("%w: kid: %w", ErrJWS, err)
	}
	if h.Typ == "" {
		return nil, fmt.Errorf("%w: no typ", ErrJWS)
	}
	j := &JWS{Alg: h.Alg, KeyID: h.Kid, Type: h.Typ, input: signingInput(f.Protected, f.Payload)}
	if j.Payload, err = decodeB64(f.Payload); err != nil || len(j.Payload) == 0 {
		return nil, fmt.Errorf("%w: payload", ErrJWS)
	}
	if j.signature, err = decodeSignature(f.Signature); err != nil {
		return nil, err
	}
	return j, nil
}

func parseHeader(protected string) ([]byte, error) {
	if len(protected) > maxHeader {
		return nil, fmt.Errorf("%w: protected header too large", ErrJWS)
	}
	header, err := decodeB64(protected)
	if err != nil || len(header) == 0 {
		return nil, fmt.Errorf("%w: protected header", ErrJWS)
	}
	return header, nil
}

func decodeSignature(s string) ([]byte, error) {
	sig, err := decodeB64(s)
	if err != nil || len(sig) != signatureSize {
		return nil, fmt.Errorf("%w: signature", ErrJWS)
	}
	return sig, nil
}

// SigningInput returns what was signed, protected '.' payload, as received. The caller must not modify it.
func (j *JWS) SigningInput() []byte { return j.input }

// Verify checks the signature. The key must be of the type that the header's alg names; the caller has looked
// it up by KeyID. It returns [ErrKeyType] or [ErrBadSignature].
func (j *JWS) Verify(key PublicKey) error {
	return verifyInput(j.Alg, j.input, j.signature, key)
}

func verifyInput(alg string, input, signature []byte, key PublicKey) error {
	if alg == "" || alg != key.Algorithm() {
		return fmt.Errorf("%w: alg %q with a key of type %q", ErrKeyType, clip(alg), key.Type())
	}
	var public any
	switch key.Type() {
	case Ed25519:
		public = ed25519.PublicKey(key.raw)
	case P256:
		public = key.p256
	case Secp256k1, X25519, XWing:
		return key.Verify(input, signature)
	}
	v, err := jws.NewVerifier(jwa.SignatureAlgorithm(alg))
	if err != nil {
		return fmt.Errorf("did: %w", err)
	}
	if v.Verify(input, signature, public) != nil {
		return ErrBadSignature
	}
	return nil
}

// SignDetached signs a payload that travels by itself, as A2A agent cards do (RFC 7515 appendix F). The
// protected header is alg, kid and the given members, which may not be these two. Both results are base64url.
func SignDetached(ctx context.Context, payload []byte, header map[string]string, s Signer) (protected, signature string, err error) {
	full := map[string]string{"alg": s.PublicKey().Algorithm(), "kid": s.KeyID()}
	for name, value := range header {
		if _, taken := full[name]; taken || forbiddenInDetached[name] {
			return "", "", fmt.Errorf("%w: header member %q", ErrJWS, name)
		}
		full[name] = value
	}
	return signInput(ctx, full, payload, s)
}

// forbiddenInDetached are header members that would change what is verified, or bring a key along.
var forbiddenInDetached = map[string]bool{"crit": true, "b64": true, "jwk": true, "x5c": true}

// VerifyDetached checks a detached signature of the payload with the key and returns the protected header. Its
// alg must be the key's. A header with crit, b64, or a key of its own (jwk, x5c) is refused. That the header's
// kid, or jku, leads to this key is the caller's to check.
func VerifyDetached(payload []byte, protected, signature string, key PublicKey) (header map[string]any, err error) {
	header, err = DetachedHeader(protected)
	if err != nil {
		return nil, err
	}
	sig, err := decodeSignature(signature)
	if err != nil {
		return nil, err
	}
	alg, _ := header["alg"].(string)
	if err := verifyInput(alg, signingInput(protected, b64.EncodeToString(payload)), sig, key); err != nil {
		return nil, err
	}
	return header, nil
}

// DetachedHeader parses the protected header of a detached signature without verifying anything, so that the
// key can be found.
func DetachedHeader(protected string) (map[string]any, error) {
	raw, err := parseHeader(protected)
	if err != nil {
		return nil, err
	}
	var header map[string]any
	if err := canon.Unmarshal(raw, &header, canon.Limits{MaxDepth: 4}); err != nil {
		return nil, fmt.Errorf("%w: protected header: %w", ErrJWS, err)
	}
	for name := range header {
		if forbiddenInDetached[name] {
			return nil, fmt.Errorf("%w: header member %q", ErrJWS, name)
		}
	}
	return header, nil
}
