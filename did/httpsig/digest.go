// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"

	"github.com/dunglas/httpsfv"
)

// ErrDigest means that a Content-Digest field does not match the content, or
// holds no sha-256 digest.
var ErrDigest = errors.New("httpsig: content digest does not match")

const digestFieldBytes = len("sha-256=::") + 44

// ContentDigest returns the Content-Digest field value of body: its SHA-256
// (RFC 9530 section 2).
func ContentDigest(body []byte) string {
	var buf [digestFieldBytes]byte
	return string(appendDigest(buf[:0], body))
}

func appendDigest(dst, body []byte) []byte {
	sum := sha256.Sum256(body)
	return appendSum(dst, &sum)
}

func appendSum(dst []byte, sum *[sha256.Size]byte) []byte {
	dst = append(dst, "sha-256=:"...)
	dst = base64.StdEncoding.AppendEncode(dst, sum[:])
	return append(dst, ':')
}

// CheckContentDigest checks the lines of a Content-Digest field against body.
// A sha-256 digest must be among them; digests by other algorithms are ignored,
// as RFC 9530 section 2 allows. All errors match [ErrDigest].
func CheckContentDigest(lines []string, body []byte) error {
	sum := sha256.Sum256(body)
	var buf [digestFieldBytes]byte
	want := appendSum(buf[:0], &sum)
	if len(lines) == 1 && subtle.ConstantTimeCompare([]byte(lines[0]), want) == 1 {
		return nil
	}
	dict, err := parseDictionary(lines)
	if err != nil {
		return errors.Join(ErrDigest, err)
	}
	member, _ := dict.Get("sha-256")
	item, _ := member.(httpsfv.Item)
	got, _ := item.Value.([]byte)
	if subtle.ConstantTimeCompare(got, sum[:]) != 1 {
		return ErrDigest
	}
	return nil
}
