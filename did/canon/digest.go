// SPDX-License-Identifier: Apache-2.0

package canon

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"strings"
)

// Digest is a SHA-256 digest. Its text and JSON form is "sha-256:" followed by 43 characters of base64url
// without padding.
type Digest [sha256.Size]byte

const digestPrefix = "sha-256:"

// ErrDigest is returned for text that is not a digest in its one valid form.
var ErrDigest = errors.New("canon: malformed digest")

// b64 is unpadded base64url that refuses stray trailing bits, so that a digest has exactly one spelling.
var b64 = base64.RawURLEncoding.Strict()

// ParseDigest parses the text form and nothing else.
func ParseDigest(s string) (Digest, error) {
	rest, ok := strings.CutPrefix(s, digestPrefix)
	// The decoder skips line breaks; the length alone does not exclude them.
	if !ok || len(rest) != b64.EncodedLen(sha256.Size) || strings.ContainsAny(rest, "\r\n") {
		return Digest{}, ErrDigest
	}
	var d Digest
	if n, err := b64.Decode(d[:], []byte(rest)); err != nil || n != len(d) {
		return Digest{}, ErrDigest
	}
	return d, nil
}

// String returns the text form.
func (d Digest) String() string { return digestPrefix + b64.EncodeToString(d[:]) }

// IsZero reports whether d is the zero value, which is no digest of anything.
func (d Digest) IsZero() bool { return d == Digest{} }

// Equal compares in constant time.
func (d Digest) Equal(other Digest) bool {
	return subtle.ConstantTimeCompare(d[:], other[:]) == 1
}

// MarshalText implements [encoding.TextMarshaler].
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]; it is [ParseDigest].
func (d *Digest) UnmarshalText(text []byte) error {
	parsed, err := ParseDigest(string(text))
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}

// Sum returns the SHA-256 digest of data.
func Sum(data []byte) Digest { return sha256.Sum256(data) }

// Hash returns SHA-256(label ‖ 0x00 ‖ parts…). The label, which must not contain a zero byte, separates the
// uses of the hash. The parts are not framed: at most the last may vary in length, or two lists of parts could
// give one digest.
func Hash(label string, parts ...[]byte) Digest {
	h := sha256.New()
	h.Write(append([]byte(label), 0))
	for _, p := range parts {
		h.Write(p)
	}
	var d Digest
	h.Sum(d[:0])
	return d
}
