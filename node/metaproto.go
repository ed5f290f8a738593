// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/envelope"
)

// Metaproto says what this node takes when two nodes agree on how to talk. Every list is a preference, best first, and a floor:
// what is not in it is never accepted. The best of each is what this node proposes; what else it could live with shows when the
// peer counters.
type Metaproto struct {
	// ContractSchemas are versions of the contract document.
	ContractSchemas []string `yaml:"contract_schemas,omitempty"`
	// Encodings of payloads: json.
	Encodings []string `yaml:"encodings,omitempty"`
	// HPKESuites that payloads are sealed with: x-wing, x25519.
	HPKESuites []string `yaml:"hpke_suites,omitempty"`
	// SessionKeys: fresh (payloads are sealed to keys that are destroyed when the conversation ends), none.
	SessionKeys []string `yaml:"session_keys,omitempty"`
	// Transports: a2a-jsonrpc, a2a-http+json.
	Transports []string `yaml:"transports,omitempty"`
	// DataPlanes: mcp-2025-11-25, mcp-2025-06-18.
	DataPlanes []string `yaml:"data_planes,omitempty"`
	// Approvals that a contract may need: none.
	Approvals []string `yaml:"approvals,omitempty"`
	// MaxOffers is the most offers this node wants to see in one negotiation, 1 to 16.
	MaxOffers int `yaml:"max_offers,omitempty"`
	// MaxMessageBytes of one envelope, 65536 to 262144. The peer may ask for less, down to 65536.
	MaxMessageBytes int `yaml:"max_message_bytes,omitempty"`
	// Agreement is how long an agreement lasts, 5m to 168h. The peer may ask for less.
	Agreement time.Duration `yaml:"agreement,omitempty"`
	// TimeLimit is how long the rounds may take, 1s to 1h.
	TimeLimit time.Duration `yaml:"time_limit,omitempty"`
}

// Bounds of what an agreement says, whatever is configured.
const (
	leastMessageBytes = 64 << 10
	mostMessageBytes  = envelope.MaxBytes
	leastAgreement    = 5 * time.Minute
	mostAgreement     = 7 * 24 * time.Hour
)

// suiteNames are short for the suites' own names, which are long.
var suiteNames = map[string]hpke.Suite{"x-wing": hpke.SuiteXWing, "x25519": hpke.SuiteX25519}

// spokenVersions are the contract schemas that this build knows, newest first.
func spokenVersions() (out []string) {
	for _, v := range slices.Backward(contract.Versions()) {
		out = append(out, strconv.Itoa(v))
	}
	return out
}

// metaTerm is one list with what this build speaks: the default, and all that can stand in it.
type metaTerm struct {
	name   string
	list   *[]string
	speaks []string
}

func (m *Metaproto) terms() []metaTerm {
	return []metaTerm{
		{"contract_schemas", &m.ContractSchemas, spokenVersions()},
		{"encodings", &m.Encodings, []string{metaproto.EncodingJSON}},
		{"hpke_suites", &m.HPKESuites, []string{"x-wing", "x25519"}},
		{"session_keys", &m.SessionKeys, []string{metaproto.SessionKeysFresh, metaproto.SessionKeysNone}},
		{"transports", &m.Transports, []string{metaproto.TransportJSONRPC, metaproto.TransportHTTPJSON}},
		{"data_planes", &m.DataPlanes, []string{metaproto.DataPlane20251125, metaproto.DataPlane20250618}},
		{"approvals", &m.Approvals, []string{metaproto.ApprovalNone}},
	}
}

func (m *Metaproto) defaults() {
	for _, t := range m.terms() {
		if len(*t.list) == 0 {
			*t.list = t.speaks
		}
	}
	setDefault(&m.MaxOffers, 4)
	setDefault(&m.MaxMessageBytes, mostMessageBytes)
	setDefault(&m.Agreement, 24*time.Hour)
	setDefault(&m.TimeLimit, 2*time.Minute)
}

func (m *Metaproto) validate() error {
	for _, t := range m.terms() {
		for i, v := range *t.list {
			if !slices.Contains(t.speaks, v) || slices.Contains((*t.list)[:i], v) {
				return fmt.Errorf("metaproto.%s: %q is there twice, or not among %v, which this version speaks", t.name, v, t.speaks)
			}
		}
	}
	switch {
	case m.MaxOffers < 1 || m.MaxOffers > 16:
		return fmt.Errorf("metaproto.max_offers: %d is not between 1 and 16", m.MaxOffers)
	case m.MaxMessageBytes < leastMessageBytes || m.MaxMessageBytes > mostMessageBytes:
		return fmt.Errorf("metaproto.max_message_bytes: %d is not between %d and %d", m.MaxMessageBytes, leastMessageBytes, mostMessageBytes)
	case m.Agreement < leastAgreement || m.Agreement > mostAgreement || m.Agreement%time.Second != 0:
		return fmt.Errorf("metaproto.agreement: %s is not between %s and %s in whole seconds", m.Agreement, leastAgreement, mostAgreement)
	case m.TimeLimit < time.Second || m.TimeLimit > time.Hour:
		return fmt.Errorf("metaproto.time_limit: %s is not between 1s and 1h", m.TimeLimit)
	}
	return nil
}

// MetaPolicy is what this node prefers and what it puts up with when two nodes agree on how to talk.
func (c *Config) MetaPolicy() metaproto.Policy {
	m := &c.Metaproto
	limits := metaproto.Limits{
		MaxOffers: m.MaxOffers, MaxRounds: m.MaxOffers, MaxMessageBytes: m.MaxMessageBytes, AgreementSeconds: int(m.Agreement / time.Second),
	}
	most := limits
	most.MaxRounds, most.AgreementSeconds = max(m.MaxOffers, 8), int(mostAgreement/time.Second)
	suites := make([]hpke.Suite, 0, len(m.HPKESuites))
	for _, name := range m.HPKESuites {
		suites = append(suites, suiteNames[name])
	}
	return metaproto.Policy{
		// One candidate opens the rounds: what this node likes best. What else it could live with shows when the peer counters.
		Preferences: []metaproto.Candidate{{
			ContractSchema: m.ContractSchemas[0], Encoding: m.Encodings[0], HPKESuite: suites[0], SessionKeys: m.SessionKeys[0],
			Transport: m.Transports[0], DataPlane: m.DataPlanes[0], Approval: m.Approvals[0], Limits: limits,
		}},
		Floor: metaproto.Floor{
			ContractSchemas: m.ContractSchemas, Encodings: m.Encodings, HPKESuites: suites, SessionKeys: m.SessionKeys,
			Transports: m.Transports, DataPlanes: m.DataPlanes, Approvals: m.Approvals,
			LimitsMin: metaproto.Limits{MaxOffers: 1, MaxRounds: 1, MaxMessageBytes: leastMessageBytes, AgreementSeconds: int(leastAgreement / time.Second)},
			LimitsMax: most,
		},
		TimeLimit: m.TimeLimit,
	}
}
