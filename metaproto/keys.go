// SPDX-License-Identifier: Apache-2.0

package metaproto

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/hpke"
)

// SuiteKey is what payloads to a party can be sealed to under one suite: a key
// of its document, and perhaps a fresh key for this conversation alone.
type SuiteKey struct {
	Suite   hpke.Suite `json:"suite"`
	KID     string     `json:"kid"`               // of the party's document
	Session string     `json:"session,omitempty"` // public session key of the suite's type, base64url without padding
}

// Bounds of keys in a message.
const (
	maxKeys    = 4
	maxKID     = 1024
	maxSession = 4096 // characters; an X-Wing key takes 1622
)

// NewSuiteKey joins a document's key and a session key, which may be zero: none.
func NewSuiteKey(suite hpke.Suite, kid string, session did.PublicKey) SuiteKey {
	k := SuiteKey{Suite: suite, KID: kid}
	if !session.IsZero() {
		k.Session = base64.RawURLEncoding.EncodeToString(session.Bytes())
	}
	return k
}

func keyFor(keys []SuiteKey, suite hpke.Suite) (SuiteKey, bool) {
	i := slices.IndexFunc(keys, func(k SuiteKey) bool { return k.Suite == suite })
	if i < 0 {
		return SuiteKey{}, false
	}
	return keys[i], true
}

// parseSessionKey reads a session key of a suite that is supported here.
func parseSessionKey(suite hpke.Suite, text string) (did.PublicKey, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || base64.RawURLEncoding.EncodeToString(b) != text {
		return did.PublicKey{}, errors.New("session key is not base64url without padding")
	}
	return did.NewPublicKey(suite.KeyType(), b)
}

func checkKeys(keys []SuiteKey) error {
	if len(keys) > maxKeys {
		return fmt.Errorf("more than %d keys", maxKeys)
	}
	for i, k := range keys {
		switch {
		case !isToken(string(k.Suite)):
			return fmt.Errorf("key %d: suite is no short token", i+1)
		case slices.ContainsFunc(keys[:i], func(o SuiteKey) bool { return o.Suite == k.Suite }):
			return fmt.Errorf("key %d: a second one for the suite", i+1)
		case k.KID == "" || len(k.KID) > maxKID:
			return fmt.Errorf("key %d: kid is missing or too long", i+1)
		case len(k.Session) > maxSession:
			return fmt.Errorf("key %d: session key is too long", i+1)
		case k.Session == "" || k.Suite.KeyType() == "": // none, or of a suite that will not be chosen here
			continue
		}
		if _, err := parseSessionKey(k.Suite, k.Session); err != nil {
			return fmt.Errorf("key %d: %w", i+1, err)
		}
	}
	return nil
}

func (c *Config) checkKeys() error {
	if err := checkKeys(c.Keys); err != nil {
		return err
	}
	for _, k := range c.Keys {
		if !keyOf(c.Self, k.KID) || k.Suite.KeyType() == "" {
			return errors.New("a key of another DID, or for an unknown suite")
		}
	}
	if k, ok := keyFor(c.Keys, hpke.SuiteX25519); len(c.Keys) > 0 && (!ok || k.KID != c.KeyAgreementKID) {
		return errors.New("the X25519 key is missing, or is another one")
	}
	return nil
}

// ownKeys are the keys that a side has: without a list, the one X25519 key that
// everybody must have.
func ownKeys(keys []SuiteKey, x25519 string) []SuiteKey {
	if len(keys) == 0 && x25519 != "" {
		return []SuiteKey{{Suite: hpke.SuiteX25519, KID: x25519}}
	}
	return keys
}

// allows says whether a party with these keys can talk as c says.
func allows(keys []SuiteKey, c Candidate) bool {
	k, ok := keyFor(keys, c.HPKESuite)
	return ok && (c.SessionKeys != SessionKeysFresh || k.Session != "")
}

// within is the policy without what a side with these keys cannot do. In the
// preferences, what is left first takes the place of what is not there.
func (p Policy) within(keys []SuiteKey) Policy {
	p.Floor.HPKESuites = slices.DeleteFunc(slices.Clone(p.Floor.HPKESuites), func(s hpke.Suite) bool { _, ok := keyFor(keys, s); return !ok })
	if slices.ContainsFunc(keys, func(k SuiteKey) bool { return k.Session == "" }) {
		p.Floor.SessionKeys = slices.DeleteFunc(slices.Clone(p.Floor.SessionKeys), func(v string) bool { return v == SessionKeysFresh })
	}
	if len(p.Floor.HPKESuites) == 0 || len(p.Floor.SessionKeys) == 0 {
		return p // Validate says so
	}
	var list []Candidate
	for _, c := range p.Preferences {
		if !slices.Contains(p.Floor.HPKESuites, c.HPKESuite) {
			c.HPKESuite = p.Floor.HPKESuites[0]
		}
		if !slices.Contains(p.Floor.SessionKeys, c.SessionKeys) {
			c.SessionKeys = p.Floor.SessionKeys[0]
		}
		if !slices.ContainsFunc(list, c.Equal) {
			list = append(list, c)
		}
	}
	p.Preferences = list
	return p
}

// tell puts our keys into a message, unless the peer knows them: all of them, or
// only that of one suite where the suite is settled.
func (s *State) tell(m *Message, settled hpke.Suite) {
	m.KeyAgreementKID = s.Self.KeyAgreementKID
	if s.KeysSent || len(s.Keys) == 0 {
		return
	}
	if settled == "" {
		m.Keys, s.KeysSent = s.Keys, true
		return
	}
	if k, ok := keyFor(s.Keys, settled); ok && (k.Suite != hpke.SuiteX25519 || k.Session != "") {
		m.Keys = []SuiteKey{k}
	}
}

// told notes the peer's keys. It returns false where they are not the peer's, or
// not those that it named before.
func (s *State) told(m Message) bool {
	if m.KeyAgreementKID == "" {
		return true
	}
	if !keyOf(s.Peer.DID, m.KeyAgreementKID) || s.Peer.KeyAgreementKID != "" && s.Peer.KeyAgreementKID != m.KeyAgreementKID {
		return false
	}
	first := s.Peer.KeyAgreementKID == ""
	s.Peer.KeyAgreementKID = m.KeyAgreementKID
	for _, k := range m.Keys {
		known, ok := keyFor(s.PeerKeys, k.Suite)
		if !keyOf(s.Peer.DID, k.KID) || ok && known != k || !ok && !first {
			return false
		}
		if !ok {
			s.PeerKeys = append(s.PeerKeys, k)
		}
	}
	if _, ok := keyFor(s.PeerKeys, hpke.SuiteX25519); first && !ok {
		s.PeerKeys = append(s.PeerKeys, SuiteKey{Suite: hpke.SuiteX25519, KID: m.KeyAgreementKID})
	}
	return true
}

// sealable says whether both sides have what talking as c says takes.
func (s *State) sealable(c Candidate) bool {
	return allows(ownKeys(s.Keys, s.Self.KeyAgreementKID), c) && allows(s.PeerKeys, c)
}

// agreed is a party with the keys that the candidate selects.
func agreed(p Party, keys []SuiteKey, c Candidate) Party {
	k, _ := keyFor(ownKeys(keys, p.KeyAgreementKID), c.HPKESuite)
	p.KeyAgreementKID = k.KID
	if c.SessionKeys == SessionKeysFresh {
		p.SessionKey = k.Session
	}
	return p
}
