// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// A challenge is a nonce that this service issued and can recognise without
// having kept it: base64url(seconds(8) ‖ random(12) ‖ HMAC-SHA-256(key, label ‖
// seconds ‖ random)[:16]). That it is used once only is the nonce store's work.
const (
	challengeLabel = "treaty request challenge v1\x00"
	challengeClear = 8 + 12
	challengeBytes = challengeClear + 16
	challengeLife  = 5 * time.Minute
)

type challenger struct{ key []byte }

func (c challenger) issue(now time.Time) string {
	raw := make([]byte, challengeClear, challengeBytes)
	binary.BigEndian.PutUint64(raw, uint64(now.Unix()))
	rand.Read(raw[8:]) // never fails
	return base64.RawURLEncoding.EncodeToString(append(raw, c.tag(raw)...))
}

// issued returns when nonce was issued; ok is false if this service did not.
func (c challenger) issued(nonce string) (at time.Time, ok bool) {
	if len(nonce) != base64.RawURLEncoding.EncodedLen(challengeBytes) {
		return time.Time{}, false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(nonce)
	if err != nil || !hmac.Equal(raw[challengeClear:], c.tag(raw[:challengeClear])) {
		return time.Time{}, false
	}
	return time.Unix(int64(binary.BigEndian.Uint64(raw)), 0), true
}

func (c challenger) tag(clear []byte) []byte {
	mac := hmac.New(sha256.New, c.key)
	mac.Write([]byte(challengeLabel))
	mac.Write(clear)
	return mac.Sum(nil)[:challengeBytes-challengeClear]
}

// Challenge returns a nonce that this service recognises as its own, for a
// transport that hands it to callers in its own way; [Verifier.WriteError] does
// so for HTTP.
func (v *Verifier) Challenge() string { return v.challenges.issue(v.opts.Now()) }
