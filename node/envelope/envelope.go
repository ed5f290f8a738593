// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/hpke"
)

// Names on the wire.
const (
	// TokenType is the typ of the protected header.
	TokenType = "treaty-envelope+json"
	// MediaType is the media type of an envelope in an A2A part.
	MediaType = "application/vnd.treaty.envelope+json"
	// ContractMediaType is that of a contract in force.
	ContractMediaType = "application/vnd.treaty.contract+json"
	// ReceiptMediaType is that of a receipt of the data plane.
	ReceiptMediaType = "application/vnd.treaty.receipt+json"
	// EvidenceMediaType is that of an evidence bundle.
	EvidenceMediaType = "application/vnd.treaty.evidence+json"
	// ExtensionURI names the A2A extension that carries envelopes.
	ExtensionURI = "https://github.com/treaty-node/treaty/ext/negotiation/v1"
	// Protocol is the protocol label that sealing is bound to.
	Protocol = "treaty-envelope"
	// Version is the member v.
	Version = 1
)

// Bounds.
const (
	// MaxBytes is the default limit for a whole envelope.
	MaxBytes = 256 << 10
	// MaxLifetime bounds expiresAt - createdAt.
	MaxLifetime = 24 * time.Hour
	// DefaultLifetime is what Build uses for a draft without one.
	DefaultLifetime = 10 * time.Minute
	// MaxSeq bounds the messages of a conversation.
	MaxSeq = 1 << 20
	// SaltSize is the size of a body's salt in bytes.
	SaltSize = 32

	maxDepth      = 24 // of payload and body
	minIDBytes    = 16 // 128 bits
	maxIDBytes    = 64
	timeLayout    = "2006-01-02T15:04:05Z"
	bodyLabel     = "treaty body v1"
	firstPrevName = "treaty first prev v1"
)

// Type is the clear type of a message. What exactly is meant is in the body.
type Type string

// The types.
const (
	TypeMetaproto   Type = "metaproto"   // a round of package metaproto
	TypeNegotiation Type = "negotiation" // propose, counter, accept, reject, request, withdraw
	TypeContract    Type = "contract"    // drafts, proofs, the activated contract
	TypeNotice      Type = "notice"      // a message outside of any conversation, and its answer: package notice
	TypeMoved       Type = "moved"       // a party goes on under another DID
)

// Salt keeps a body from being guessed from its digest.
type Salt [SaltSize]byte

// MarshalText returns base64url without padding.
func (s Salt) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, s[:]), nil
}

// UnmarshalText is strict: 32 bytes, canonical.
func (s *Salt) UnmarshalText(text []byte) error {
	b, ok := decode64(string(text))
	if !ok || len(b) != SaltSize {
		return errors.New("a salt is 32 bytes in base64url without padding")
	}
	copy(s[:], b)
	return nil
}

// Clear is a body that travels unsealed.
type Clear struct {
	Body json.RawMessage `json:"body"`
	Salt Salt            `json:"salt"`
}

// sealedBody is the plaintext of a sealed one. from, to and contextId repeat
// the header, so that a ciphertext that was moved shows.
type sealedBody struct {
	Body      json.RawMessage `json:"body"`
	ContextID string          `json:"contextId"`
	From      did.DID         `json:"from"`
	Salt      Salt            `json:"salt"`
	To        did.DID         `json:"to"`
}

// Header is the clear part of an envelope.
type Header struct {
	Version    int          `json:"v"`
	Type       Type         `json:"type"`
	From       did.DID      `json:"from"`
	To         did.DID      `json:"to"`
	ContextID  string       `json:"contextId"` // 128 bits or more, base64url
	Seq        int64        `json:"seq"`       // 1, 2, 3, … over both sides
	MessageID  string       `json:"messageId"` // as contextId
	CreatedAt  string       `json:"createdAt"` // RFC 3339, UTC, to the second
	ExpiresAt  string       `json:"expiresAt"`
	Prev       canon.Digest `json:"prev"`
	Agreement  canon.Digest `json:"agreement,omitzero"`
	BodyDigest canon.Digest `json:"bodyDigest"`
}

// Created returns CreatedAt; zero if it cannot be read, which [Parse] excludes.
func (h Header) Created() time.Time { t, _ := parseTime(h.CreatedAt); return t }

// Expires returns ExpiresAt likewise.
func (h Header) Expires() time.Time { t, _ := parseTime(h.ExpiresAt); return t }

type payload struct {
	Header
	Body   *Clear       `json:"body,omitzero"`
	Sealed *hpke.Sealed `json:"sealed,omitzero"`
}

// Envelope is a message as it was built or parsed. It does not change, except
// that it remembers that its signature was verified.
type Envelope struct {
	Header
	Body   *Clear       // exactly one of Body and Sealed is there
	Sealed *hpke.Sealed //

	raw      []byte
	jws      *did.JWS
	digest   canon.Digest
	signer   did.DID
	verified bool
}

// Raw returns the bytes of the envelope. They must not be modified.
func (e *Envelope) Raw() []byte { return e.raw }

// Digest is SHA-256(protected '.' payload), what prev and deduplication go by.
func (e *Envelope) Digest() canon.Digest { return e.digest }

// KeyID is the kid of the protected header.
func (e *Envelope) KeyID() string { return e.jws.KeyID }

// Signer is the DID of KeyID.
func (e *Envelope) Signer() did.DID { return e.signer }

// Verified says whether the signature has been verified.
func (e *Envelope) Verified() bool { return e.verified }

// aad returns the associated data of the sealed body: the payload without it.
// Of a parsed message it is cut out of the payload, of one that is being built
// it is encoded; the bytes are the same.
func (e *Envelope) aad() ([]byte, error) {
	if e.jws != nil {
		if aad, ok := cutSealed(e.jws.Payload); ok {
			return aad, nil
		}
	}
	return canon.Marshal(e.Header)
}

// cutSealed removes the member sealed from a payload that [Parse] accepted. In
// canonical JSON neither mark below can lie within a string, where quotes are
// escaped; the sealed object holds strings only; and "seq" follows "sealed" in
// the order of names.
func cutSealed(payload []byte) ([]byte, bool) {
	i := bytes.Index(payload, []byte(`,"sealed":{`))
	if i < 0 {
		return nil, false
	}
	n := bytes.Index(payload[i:], []byte(`"},"seq":`))
	if n < 0 {
		return nil, false
	}
	return slices.Concat(payload[:i], payload[i+n+len(`"}`):]), true
}

// sealContext is what the sealed body is bound to beside the header.
func (e *Envelope) sealContext(senderKID, recipientKID string) hpke.Context {
	return hpke.Context{
		Protocol: Protocol, Version: Version, From: e.From, To: e.To,
		SenderKID: senderKID, RecipientKID: recipientKID,
	}
}

// Opened is the content of an envelope.
type Opened struct {
	Body []byte // canonical JSON
	Salt Salt
}

// BodyDigest is canon.Hash of salt and canonical body under the label
// "treaty body v1". Whoever is given both can compare it with an envelope.
func BodyDigest(salt Salt, body []byte) canon.Digest { return canon.Hash(bodyLabel, salt[:], body) }

// FirstPrev is the prev of a conversation's first message. initiator is the DID
// that sends it; both sides compute the same.
func FirstPrev(initiator, responder did.DID, contextID string) canon.Digest {
	names, err := canon.Marshal([]string{initiator.String(), responder.String(), contextID})
	if err != nil {
		// Not UTF-8: no message can name such a context.
		return canon.Digest{}
	}
	return canon.Hash(firstPrevName, names)
}

// NewID returns a contextId or messageId: 144 bits from crypto/rand, of which one in 64 is drawn again, so that no id begins
// with a dash and is taken for an option where a person names it on a command line.
func NewID() string {
	var b [newIDBytes]byte
	for {
		_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
		if id := base64.RawURLEncoding.EncodeToString(b[:]); id[0] != '-' {
			return id
		}
	}
}

// newIDBytes is more than minIDBytes, so that what is left of the choice is well above 128 bits.
const newIDBytes = 18

// ValidID says whether s can be a contextId or messageId: 16 to 64 bytes in
// base64url without padding.
func ValidID(s string) bool {
	if len(s) > base64.RawURLEncoding.EncodedLen(maxIDBytes) {
		return false
	}
	b, ok := decode64(s)
	return ok && len(b) >= minIDBytes
}

var strict64 = base64.RawURLEncoding.Strict()

// decode64 also refuses the line breaks that encoding/base64 skips.
func decode64(s string) ([]byte, bool) {
	b, err := strict64.DecodeString(s)
	return b, err == nil && base64.RawURLEncoding.EncodedLen(len(b)) == len(s)
}

func parseTime(s string) (time.Time, bool) {
	t, err := time.Parse(timeLayout, s)
	return t, err == nil && t.Format(timeLayout) == s
}

// rules says how a type travels.
func (e *Envelope) rules() error {
	inClear, agreed := e.Body != nil, !e.Agreement.IsZero()
	switch e.Type {
	case TypeMetaproto:
		if !inClear {
			return Refuse(CodeMalformed, "a metaproto message travels in the clear")
		}
		if agreed {
			return Refuse(CodeMalformed, "a metaproto message names no agreement")
		}
	case TypeNegotiation, TypeContract:
		if inClear {
			return Refuse(CodeMalformed, "a %s message is sealed", e.Type)
		}
		if !agreed {
			return Refuse(CodeNoAgreement, "a %s message names its agreement", e.Type)
		}
	case TypeNotice:
		// One that is sealed names no agreement: it is sealed with the suite that everybody has, see package notice.
	case TypeMoved:
		if !inClear && !agreed {
			return Refuse(CodeNoAgreement, "a sealed message names its agreement")
		}
	default:
		return Refuse(CodeUnexpectedType, "unknown message type")
	}
	return nil
}

// checkHeader holds what [Parse] demands of a header and [Build] of its own.
func (e *Envelope) checkHeader() error {
	created, ok1 := parseTime(e.CreatedAt)
	expires, ok2 := parseTime(e.ExpiresAt)
	switch {
	case e.Version != Version:
		return Refuse(CodeVersionMismatch, "envelope version %d, want %d", e.Version, Version)
	case e.From.IsZero() || e.To.IsZero() || e.From == e.To:
		return Refuse(CodeMalformed, "from and to are two DIDs")
	case !ValidID(e.ContextID):
		return Refuse(CodeMalformed, "contextId is not 128 bits or more of base64url")
	case !ValidID(e.MessageID):
		return Refuse(CodeMalformed, "messageId is not 128 bits or more of base64url")
	case e.Seq < 1 || e.Seq > MaxSeq:
		return Refuse(CodeMalformed, "seq is outside 1 to %d", MaxSeq)
	case !ok1 || !ok2:
		return Refuse(CodeMalformed, "createdAt and expiresAt are RFC 3339 in UTC, to the second")
	case !expires.After(created) || expires.Sub(created) > MaxLifetime:
		return Refuse(CodeMalformed, "a message lives for up to %s", MaxLifetime)
	case e.Prev.IsZero() || e.BodyDigest.IsZero():
		return Refuse(CodeMalformed, "prev and bodyDigest are required")
	case (e.Body == nil) == (e.Sealed == nil):
		return Refuse(CodeMalformed, "exactly one of body and sealed is required")
	}
	return e.rules()
}
