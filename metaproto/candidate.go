// SPDX-License-Identifier: Apache-2.0

package metaproto

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/hpke"
)

// Values of the terms that this release speaks. A peer may name others; they
// parse, and no floor of ours allows them.
const (
	ContractSchemaV1  = "1"
	ContractSchemaV2  = "2" // adds rate
	ContractSchemaV3  = "3" // adds column grants, rows, retention statement, noise, amends
	EncodingJSON      = "json"
	SessionKeysNone   = "none"  // payloads are sealed to the keys in the documents
	SessionKeysFresh  = "fresh" // payloads are sealed to keys made for the conversation
	TransportJSONRPC  = "a2a-jsonrpc"
	TransportHTTPJSON = "a2a-http+json"
	DataPlane20260728 = "mcp-2026-07-28"
	DataPlane20251125 = "mcp-2025-11-25"
	DataPlane20250618 = "mcp-2025-06-18"
	ApprovalNone      = "none"
)

// Candidate is one complete way to talk.
type Candidate struct {
	// ID is the proposer's label within its list, or "". It has no meaning
	// beyond the list and is no part of what is agreed.
	ID             string     `json:"id,omitempty"`
	ContractSchema string     `json:"contractSchema"` // version of the contract document
	Encoding       string     `json:"encoding"`       // of negotiation payloads
	HPKESuite      hpke.Suite `json:"hpkeSuite"`
	SessionKeys    string     `json:"sessionKeys"` // what kind of key payloads are sealed to
	Transport      string     `json:"transport"`
	DataPlane      string     `json:"dataPlane"` // protocol and its version
	Approval       string     `json:"approval"`  // whose approval a contract needs
	Limits         Limits     `json:"limits"`
}

// Limits bound the conversation that follows. All are at least 1.
type Limits struct {
	MaxOffers        int `json:"maxOffers"`        // offers the responder makes, at most 1000
	MaxRounds        int `json:"maxRounds"`        // proposals the initiator makes, at most 1000
	MaxMessageBytes  int `json:"maxMessageBytes"`  // of one envelope, at most 1 MiB
	AgreementSeconds int `json:"agreementSeconds"` // how long the agreement lasts, at most 30 days
}

const (
	maxValue            = 96 // bytes of one term's value
	maxCount            = 1000
	maxMessageSize      = 1 << 20
	maxAgreementSeconds = 30 * 24 * 60 * 60
)

// numLimits is how many limits there are.
const numLimits = 4

func (l *Limits) fields() [numLimits]*int {
	return [...]*int{&l.MaxOffers, &l.MaxRounds, &l.MaxMessageBytes, &l.AgreementSeconds}
}

var (
	limitNames  = [...]string{"maxOffers", "maxRounds", "maxMessageBytes", "agreementSeconds"}
	limitMaxima = [...]int{maxCount, maxCount, maxMessageSize, maxAgreementSeconds}
)

// Lifetime is AgreementSeconds as a duration.
func (l Limits) Lifetime() time.Duration { return time.Duration(l.AgreementSeconds) * time.Second }

// term is a dimension that is chosen from a list of names.
type term int

const (
	termContractSchema term = iota
	termEncoding
	termSuite
	termSessionKeys
	termTransport
	termDataPlane
	termApproval
	numTerms
)

var termNames = [numTerms]string{
	"contractSchema", "encoding", "hpkeSuite", "sessionKeys", "transport", "dataPlane", "approval",
}

func (c Candidate) values() [numTerms]string {
	return [...]string{
		c.ContractSchema, c.Encoding, string(c.HPKESuite), c.SessionKeys, c.Transport, c.DataPlane, c.Approval,
	}
}

func candidateOf(v [numTerms]string, l Limits) Candidate {
	return Candidate{
		ContractSchema: v[termContractSchema], Encoding: v[termEncoding], HPKESuite: hpke.Suite(v[termSuite]),
		SessionKeys: v[termSessionKeys], Transport: v[termTransport], DataPlane: v[termDataPlane],
		Approval: v[termApproval], Limits: l,
	}
}

// Terms returns c without its label: what is compared and agreed.
func (c Candidate) Terms() Candidate {
	c.ID = ""
	return c
}

// Equal says whether the two propose the same; labels do not count.
func (c Candidate) Equal(o Candidate) bool { return c.Terms() == o.Terms() }

var errCandidate = errors.New("candidate")

func (c Candidate) check() error {
	if c.ID != "" && !isToken(c.ID) {
		return fmt.Errorf("%w: id is no short token", errCandidate)
	}
	for t, v := range c.values() {
		if !isToken(v) {
			return fmt.Errorf("%w: %s is no short token", errCandidate, termNames[t])
		}
	}
	for i, p := range c.Limits.fields() {
		if *p < 1 || *p > limitMaxima[i] {
			return fmt.Errorf("%w: limits.%s is outside 1 to %d", errCandidate, limitNames[i], limitMaxima[i])
		}
	}
	return nil
}

// isToken: 1 to maxValue printable ASCII bytes without space, quote, comma,
// backslash or angle brackets, so that a value can stand in a log line or page.
func isToken(s string) bool {
	if s == "" || len(s) > maxValue {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || strings.IndexByte("\"'\\,<>&`", c) >= 0 {
			return false
		}
	}
	return true
}

// Describe puts a list into plain language, for people and models. It is a
// function of the list alone.
func Describe(list []Candidate) string {
	if len(list) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("In order of preference: ")
	for i, c := range list {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "(%d) %s", i+1, c.Describe())
	}
	b.WriteByte('.')
	return b.String()
}

// Describe puts one candidate into plain language.
func (c Candidate) Describe() string {
	return fmt.Sprintf("contract schema %s in %s, sealed with %s (session keys: %s), over %s, data through %s, approval: %s, "+
		"at most %d offers and %d proposals, messages up to %d bytes, valid for %s",
		c.ContractSchema, c.Encoding, c.HPKESuite, c.SessionKeys, c.Transport, c.DataPlane, c.Approval,
		c.Limits.MaxOffers, c.Limits.MaxRounds, c.Limits.MaxMessageBytes, c.Limits.Lifetime())
}

// ParseCandidates reads a list of candidates strictly: 1 to [MaxCandidates], closed objects, every value in range. Errors wrap
// [ErrMessage].
func ParseCandidates(data []byte) ([]Candidate, error) {
	var list []Candidate
	if err := canon.Unmarshal(data, &list, messageLimits); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	if len(list) < 1 || len(list) > MaxCandidates {
		return nil, fmt.Errorf("%w: %d candidates", ErrMessage, len(list))
	}
	for i, c := range list {
		if err := c.check(); err != nil {
			return nil, fmt.Errorf("%w: candidate %d: %w", ErrMessage, i+1, err)
		}
	}
	return list, nil
}
