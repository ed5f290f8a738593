// SPDX-License-Identifier: Apache-2.0

package metaproto

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/treaty-node/treaty/hpke"
)

// Bounds of a policy.
const (
	// MaxRounds is how many messages both sides together exchange at most.
	MaxRounds = 10
	// MaxCandidates bounds a list of candidates.
	MaxCandidates = 32
	// DefaultTimeLimit applies where a policy sets none.
	DefaultTimeLimit = 2 * time.Minute
	// MaxTimeLimit bounds what a policy may set.
	MaxTimeLimit = 24 * time.Hour
)

// Policy is what one side wants and what it puts up with.
//
// A side opens with Preferences. It accepts, of a list, the candidate that
// comes first in its Preferences, and after those the one whose values come
// first in the floor's lists, term by term; ties go to the peer's order. Where
// the list holds nothing that the floor allows, it counters: for every term
// with the peer's value where the floor allows one, and with each of its own
// values where not, so that one counter shows all it could live with.
type Policy struct {
	Preferences []Candidate // best first; each allowed by the floor
	Floor       Floor
	MaxRounds   int           // 2 to 10 messages of both sides together; 0: MaxRounds
	TimeLimit   time.Duration // until the rounds must have ended; 0: DefaultTimeLimit
}

// Floor is what a side accepts at all: for each term the allowed values, best
// first, and for each limit a range. A term without values allows nothing.
type Floor struct {
	ContractSchemas []string     `json:"contractSchemas"`
	Encodings       []string     `json:"encodings"`
	HPKESuites      []hpke.Suite `json:"hpkeSuites"`
	SessionKeys     []string     `json:"sessionKeys"`
	Transports      []string     `json:"transports"`
	DataPlanes      []string     `json:"dataPlanes"`
	Approvals       []string     `json:"approvals"`
	LimitsMin       Limits       `json:"limitsMin"`
	LimitsMax       Limits       `json:"limitsMax"`
}

func (f *Floor) lists() [numTerms][]string {
	suites := make([]string, len(f.HPKESuites))
	for i, s := range f.HPKESuites {
		suites[i] = string(s)
	}
	return [...][]string{
		f.ContractSchemas, f.Encodings, suites, f.SessionKeys, f.Transports, f.DataPlanes, f.Approvals,
	}
}

// ErrBelowFloor says that a candidate is not acceptable.
var ErrBelowFloor = errors.New("metaproto: below the floor")

// Allows returns nil if the floor allows c, or an error that wraps
// [ErrBelowFloor] and names the term.
func (f Floor) Allows(c Candidate) error {
	lists := f.lists()
	for t, v := range c.values() {
		if !slices.Contains(lists[t], v) {
			return fmt.Errorf("%w: %s %q", ErrBelowFloor, termNames[t], v)
		}
	}
	lo, hi := f.LimitsMin.fields(), f.LimitsMax.fields()
	for i, p := range c.Limits.fields() {
		if *p < *lo[i] || *p > *hi[i] {
			return fmt.Errorf("%w: limits.%s %d is outside %d to %d", ErrBelowFloor, limitNames[i], *p, *lo[i], *hi[i])
		}
	}
	return nil
}

// Validate says whether the policy can be used: preferences that the floor
// allows, numbers in range, lists short enough for one counter-proposal.
func (p Policy) Validate() error {
	if n := len(p.Preferences); n < 1 || n > MaxCandidates {
		return fmt.Errorf("metaproto: policy: %d preferences, want 1 to %d", n, MaxCandidates)
	}
	shown := 1
	lists := p.Floor.lists()
	for t, list := range lists {
		if len(list) == 0 {
			return fmt.Errorf("metaproto: policy: the floor allows no %s", termNames[t])
		}
		for i, v := range list {
			if !isToken(v) || slices.Contains(list[:i], v) {
				return fmt.Errorf("metaproto: policy: floor: %s %q is repeated or no token", termNames[t], v)
			}
		}
		shown += len(list) - 1
	}
	if shown > MaxCandidates {
		return fmt.Errorf("metaproto: policy: the floor names too many values")
	}
	for i, c := range p.Preferences {
		if err := c.check(); err != nil {
			return fmt.Errorf("metaproto: policy: preference %d: %w", i+1, err)
		}
		if err := p.Floor.Allows(c); err != nil {
			return fmt.Errorf("metaproto: policy: preference %d: %w", i+1, err)
		}
	}
	if r := p.MaxRounds; r != 0 && (r < 2 || r > MaxRounds) {
		return fmt.Errorf("metaproto: policy: maxRounds %d, want 2 to %d", r, MaxRounds)
	}
	if p.TimeLimit < 0 || p.TimeLimit > MaxTimeLimit {
		return fmt.Errorf("metaproto: policy: timeLimit %s, want up to %s", p.TimeLimit, MaxTimeLimit)
	}
	return nil
}

func (p Policy) maxRounds() int {
	if p.MaxRounds == 0 {
		return MaxRounds
	}
	return p.MaxRounds
}

func (p Policy) timeLimit() time.Duration {
	if p.TimeLimit == 0 {
		return DefaultTimeLimit
	}
	return p.TimeLimit
}

// Choose returns the candidate of the list that suits this side best, or false
// if the floor allows none. It is deterministic.
func (p Policy) Choose(list []Candidate) (Candidate, bool) {
	lists := p.Floor.lists()
	var best Candidate
	var bestRank []int
	for _, c := range list {
		if p.Floor.Allows(c) != nil {
			continue
		}
		pref := slices.IndexFunc(p.Preferences, c.Equal)
		if pref < 0 {
			pref = len(p.Preferences)
		}
		rank := []int{pref}
		for t, v := range c.values() {
			rank = append(rank, slices.Index(lists[t], v))
		}
		if bestRank == nil || slices.Compare(rank, bestRank) < 0 {
			best, bestRank = c, rank
		}
	}
	return best, bestRank != nil
}

// opening is the first list of this side.
func (p Policy) opening() []Candidate { return label(nil, p.Preferences) }

// counter answers a list that holds nothing acceptable, see [Policy]. Values that
// were read from text come first, and take no other value of ours away.
func (p Policy) counter(peer, read []Candidate) []Candidate {
	lists := p.Floor.lists()
	limits := p.Preferences[0].Limits
	var options [numTerms][]string
	for t, allowed := range lists {
		options[t] = allowed
		named := func(list []Candidate) int {
			return slices.IndexFunc(allowed, func(v string) bool {
				return slices.ContainsFunc(list, func(c Candidate) bool { return c.values()[t] == v })
			})
		}
		if i := named(peer); i >= 0 {
			options[t] = allowed[i : i+1]
		} else if i := named(read); i > 0 {
			options[t] = slices.Concat(allowed[i:i+1], allowed[:i], allowed[i+1:])
		}
	}
	if len(peer) > 0 {
		// The point of our range that is nearest to the peer's value lies in
		// the peer's range, if the two ranges meet at all.
		limits = peer[0].Limits
		lo, hi := p.Floor.LimitsMin.fields(), p.Floor.LimitsMax.fields()
		for i, v := range limits.fields() {
			*v = min(max(*v, *lo[i]), *hi[i])
		}
	}
	var base [numTerms]string
	for t := range options {
		base[t] = options[t][0]
	}
	list := []Candidate{candidateOf(base, limits)}
	for t := range options {
		for _, v := range options[t][1:] {
			other := base
			other[t] = v
			list = append(list, candidateOf(other, limits))
		}
	}
	return label(list, p.Preferences)
}

// label joins two lists without repetition, bounded, and numbers the result.
func label(lists ...[]Candidate) []Candidate {
	var out []Candidate
	for _, c := range slices.Concat(lists...) {
		if len(out) < MaxCandidates && !slices.ContainsFunc(out, c.Equal) {
			c.ID = fmt.Sprintf("c%d", len(out)+1)
			out = append(out, c)
		}
	}
	return out
}

// DefaultPolicy is everything this release speaks, the newest first. A side
// without keys for all of it proposes and accepts what its keys allow.
func DefaultPolicy() Policy {
	limits := Limits{MaxOffers: 16, MaxRounds: 16, MaxMessageBytes: 256 << 10, AgreementSeconds: 24 * 60 * 60}
	p := Policy{
		Floor: Floor{
			ContractSchemas: []string{ContractSchemaV3, ContractSchemaV2, ContractSchemaV1},
			Encodings:       []string{EncodingJSON},
			HPKESuites:      hpke.Suites(),
			SessionKeys:     []string{SessionKeysFresh, SessionKeysNone},
			Transports:      []string{TransportJSONRPC, TransportHTTPJSON},
			DataPlanes:      []string{DataPlane20260728, DataPlane20251125},
			Approvals:       []string{ApprovalNone},
			LimitsMin:       Limits{MaxOffers: 1, MaxRounds: 1, MaxMessageBytes: 64 << 10, AgreementSeconds: 10 * 60},
			LimitsMax:       Limits{MaxOffers: 64, MaxRounds: 64, MaxMessageBytes: 1 << 20, AgreementSeconds: 7 * 24 * 60 * 60},
		},
	}
	for _, transport := range p.Floor.Transports {
		for _, plane := range p.Floor.DataPlanes {
			p.Preferences = append(p.Preferences, Candidate{
				ContractSchema: ContractSchemaV3, Encoding: EncodingJSON, HPKESuite: hpke.SuiteXWing,
				SessionKeys: SessionKeysFresh, Transport: transport, DataPlane: plane, Approval: ApprovalNone,
				Limits: limits,
			})
		}
	}
	return p
}
