// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"unicode/utf8"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

const (
	// MaxMessage is the most that is signed at once, in bytes: what an envelope of the largest size makes, and room.
	MaxMessage = 1 << 20
	// MaxKeys is the most keys that one signer offers.
	MaxKeys = 64

	maxKID      = 1024
	maxSignBody = MaxMessage/3*4 + 4 + 2*maxKID
	maxAnswer   = 256 << 10
	pathKeys    = "/v1/keys"
	pathSign    = "/v1/sign"
)

var (
	// ErrProtocol: a request or an answer that does not have the protocol's form.
	ErrProtocol = errors.New("signer: malformed message")
	// ErrUnknownKey: the signer does not have this key.
	ErrUnknownKey = errors.New("signer: no such key")
	// ErrForm: the message is none that this signer signs.
	ErrForm = errors.New("signer: not a message that is signed with this key")
	// ErrWrongKey: the signer has another key under this id.
	ErrWrongKey = errors.New("signer: another key")
	// ErrSocket: what stands at the socket's path is not a socket, or is open to everybody.
	ErrSocket = errors.New("signer: socket")
)

// KeyInfo is what is public about a key.
type KeyInfo struct {
	KID    string
	Role   string
	Public did.PublicKey
}

var b64 = base64.RawURLEncoding.Strict()

type keyJSON struct {
	KID       string      `json:"kid"`
	Role      string      `json:"role"`
	Type      did.KeyType `json:"type"`
	PublicKey string      `json:"publicKey"`
}

type keysJSON struct {
	Keys []keyJSON `json:"keys"`
}

type signJSON struct {
	KID     string `json:"kid"`
	Message string `json:"message"`
}

type signedJSON struct {
	Signature string `json:"signature"`
}

type errorJSON struct {
	Code    code   `json:"code"`
	Message string `json:"message"`
}

// code is why the signer did not sign.
type code string

const (
	codeMalformed   code = "malformed"
	codeUnknownKey  code = "unknown_key"
	codeForm        code = "form"
	codeBusy        code = "busy"
	codeUnavailable code = "unavailable"
)

// statuses is the one table of codes. A code that is not in it does not exist.
var statuses = map[code]struct {
	status int
	err    error
}{
	codeMalformed:   {http.StatusBadRequest, ErrProtocol},
	codeUnknownKey:  {http.StatusNotFound, ErrUnknownKey},
	codeForm:        {http.StatusForbidden, ErrForm},
	codeBusy:        {http.StatusTooManyRequests, did.ErrSignerUnavailable},
	codeUnavailable: {http.StatusServiceUnavailable, did.ErrSignerUnavailable},
}

func parseSign(data []byte) (kid string, message []byte, err error) {
	var r signJSON
	if err := canon.Unmarshal(data, &r, canon.Limits{MaxBytes: maxSignBody, MaxDepth: 2}); err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if len(r.KID) == 0 || len(r.KID) > maxKID {
		return "", nil, fmt.Errorf("%w: kid", ErrProtocol)
	}
	message, err = b64.DecodeString(r.Message)
	if err != nil || len(message) == 0 || len(message) > MaxMessage {
		return "", nil, fmt.Errorf("%w: message is not 1 to %d bytes in base64url", ErrProtocol, MaxMessage)
	}
	return r.KID, message, nil
}

func parseKeys(data []byte) ([]KeyInfo, error) {
	var r keysJSON
	if err := canon.Unmarshal(data, &r, canon.Limits{MaxBytes: maxAnswer, MaxDepth: 4}); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if len(r.Keys) > MaxKeys {
		return nil, fmt.Errorf("%w: %d keys", ErrProtocol, len(r.Keys))
	}
	var out []KeyInfo
	for _, k := range r.Keys {
		raw, err := b64.DecodeString(k.PublicKey)
		if err != nil {
			return nil, fmt.Errorf("%w: public key", ErrProtocol)
		}
		public, err := did.NewPublicKey(k.Type, raw)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
		}
		if err := checkKID(k.KID, k.Role, public); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
		}
		out = append(out, KeyInfo{k.KID, k.Role, public})
	}
	return out, nil
}

func parseSigned(data []byte) ([]byte, error) {
	var r signedJSON
	if err := canon.Unmarshal(data, &r, canon.Limits{MaxBytes: maxAnswer, MaxDepth: 2}); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	sig, err := b64.DecodeString(r.Signature)
	if err != nil {
		return nil, fmt.Errorf("%w: signature", ErrProtocol)
	}
	return sig, nil
}

// parseError turns an answer that is not 200 into an error to branch on.
func parseError(data []byte) error {
	const maxText = 300
	var r errorJSON
	if err := canon.Unmarshal(data, &r, canon.Limits{MaxBytes: maxAnswer, MaxDepth: 2}); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	known, ok := statuses[r.Code]
	if !ok || len(r.Message) > maxText || !utf8.ValidString(r.Message) {
		return fmt.Errorf("%w: error", ErrProtocol)
	}
	return fmt.Errorf("%w: the signer says %q", known.err, r.Message)
}

// roles that a key in an online signer can have. Keys of people and recovery keys stay offline.
var roles = map[string]bool{"signing": true, "service": true, "receipt": true}

// checkKID says whether id, role and key belong together.
func checkKID(kid, role string, key did.PublicKey) error {
	if !roles[role] {
		return fmt.Errorf("role %.20q is not one that a signer's key can have (signing, service, receipt)", role)
	}
	if len(kid) > maxKID {
		return errors.New("the key id is too long")
	}
	id, _, err := did.SplitKeyID(kid)
	if err != nil {
		return err
	}
	if key.Algorithm() == "" {
		return fmt.Errorf("%w: %s cannot sign", did.ErrKeyType, key.Type())
	}
	if want := did.KeyID(id, role, key); kid != want {
		return fmt.Errorf("%w: the id of this key is %s, not %s", ErrWrongKey, want, kid)
	}
	return nil
}
