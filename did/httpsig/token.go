// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

const (
	tokenLabel       = "treaty access token v1\x00"
	maxTokenLifetime = time.Hour
	maxTokenBytes    = 4096
)

// tokenClaims is what a token says: base64url(canonical JSON) "." base64url(
// HMAC-SHA-256(key, label ‖ canonical JSON)). It is opaque to clients.
type tokenClaims struct {
	Audience string `json:"aud"`
	Expires  int64  `json:"exp"` // seconds since 1970
	Issued   int64  `json:"iat"`
	KeyID    string `json:"kid"` // DID URL of the key that signed for it
}

type tokenBox struct {
	key      []byte
	audience string
}

func (b tokenBox) tag(claims []byte) []byte {
	mac := hmac.New(sha256.New, b.key)
	mac.Write([]byte(tokenLabel))
	mac.Write(claims)
	return mac.Sum(nil)
}

func (b tokenBox) seal(c tokenClaims) string {
	claims, err := canon.Marshal(c)
	if err != nil {
		panic("httpsig: token claims: " + err.Error()) // strings and small integers
	}
	enc := base64.RawURLEncoding
	return enc.EncodeToString(claims) + "." + enc.EncodeToString(b.tag(claims))
}

var errToken = errors.New("httpsig: not a token of this service")

// open returns the claims of a token. Nothing of it is interpreted before its
// tag was found good.
func (b tokenBox) open(token string) (tokenClaims, error) {
	if len(token) > maxTokenBytes {
		return tokenClaims{}, errToken
	}
	first, second, _ := strings.Cut(token, ".")
	enc := base64.RawURLEncoding.Strict()
	claims, err1 := enc.DecodeString(first)
	tag, err2 := enc.DecodeString(second)
	if err1 != nil || err2 != nil || !hmac.Equal(tag, b.tag(claims)) {
		return tokenClaims{}, errToken
	}
	var c tokenClaims
	if err := canon.Unmarshal(claims, &c, canon.Limits{}); err != nil {
		return tokenClaims{}, errToken
	}
	if c.Audience != b.audience {
		return tokenClaims{}, errToken
	}
	return c, nil
}

// issue returns the value of Authentication-Info for the caller of a signed
// request (ANP-02 section 3.2.3).
func (s *Sessions) issue(caller Caller) string {
	now := s.v.opts.Now()
	token := s.tokens.seal(tokenClaims{
		Audience: s.tokens.audience, KeyID: caller.KeyID,
		Issued: now.Unix(), Expires: now.Add(s.o.TokenLifetime).Unix(),
	})
	return fmt.Sprintf(`access_token="%s", token_type="Bearer", expires_in=%d`, token, int64(s.o.TokenLifetime/time.Second))
}

// verifyToken accepts a token while it lasts, its DID is admitted, and the key
// that signed for it is an authentication key of the DID's active document.
func (s *Sessions) verifyToken(ctx context.Context, token string) (Session, error) {
	c, err := s.tokens.open(token)
	if err != nil {
		return Session{}, refuse(InvalidAccessToken, "The access token is not valid here. Sign the request.", err)
	}
	now := s.v.opts.Now()
	issued, expires := time.Unix(c.Issued, 0), time.Unix(c.Expires, 0)
	// The clocks of replicas that share a key may differ.
	if !now.Before(expires) || issued.After(now.Add(s.v.opts.Skew)) || expires.Sub(issued) > maxTokenLifetime {
		return Session{}, refuse(InvalidAccessToken, "The access token has expired. Sign the request.", nil)
	}
	id, _, err := did.SplitKeyID(c.KeyID)
	if err != nil {
		return Session{}, refuse(InvalidAccessToken, "The access token is not valid here. Sign the request.", err)
	}
	doc, _, err := s.standing(ctx, &claim{id: id, in: Input{KeyID: c.KeyID}, now: now})
	if err != nil {
		return Session{}, err
	}
	return Session{DID: id, KeyID: c.KeyID, Document: doc, Scheme: SchemeToken, Expires: expires}, nil
}
