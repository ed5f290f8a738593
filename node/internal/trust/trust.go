// SPDX-License-Identifier: Apache-2.0

// Package trust holds the operator's decision about whom this node deals with.
// A [Policy] is a value and decides on the text of a DID or a domain alone, so
// that it can be asked before anything is fetched; a [Live] policy can be
// replaced while the node runs.
//
// What it guarantees: the zero value denies everything; deny beats allow; a
// refusal says which rule it came from.
//
// What it does not do: it verifies nothing. A DID that it admits is still only a
// claim until the document has been resolved and a signature checked.
package trust

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/treaty-node/treaty/did"
)

// ErrNotTrusted is what every refusal is, for errors.Is.
var ErrNotTrusted = errors.New("not trusted")

// Rule names why something was refused.
type Rule string

// The rules, in the order in which they are applied.
const (
	RuleIdentifier   Rule = "identifier"    // no identifier, or none that could be parsed
	RuleDeny         Rule = "deny"          // a deny pattern matches
	RuleMethod       Rule = "method"        // the DID method is not among Methods
	RuleFirstContact Rule = "first_contact" // closed, and no allow pattern matches
	RuleProfile      Rule = "profile"       // may talk, but not contract
)

// Refusal says who was refused and by which rule. It is an ErrNotTrusted.
type Refusal struct {
	Subject string  // the DID or domain
	Rule    Rule    // what refused it
	Pattern Pattern // the deny pattern, for RuleDeny
}

func (r *Refusal) Error() string {
	var why string
	switch r.Rule {
	case RuleIdentifier:
		why = "it is not an identifier"
	case RuleDeny:
		why = fmt.Sprintf("it is denied by %q", r.Pattern)
	case RuleMethod:
		why = "its DID method is not accepted"
	case RuleFirstContact:
		why = "first contact is closed and it is not on the allow list"
	case RuleProfile:
		why = "DIDs of its profile do not contract"
	}
	return fmt.Sprintf("%q is %v: %s", r.Subject, ErrNotTrusted, why)
}

// Is makes errors.Is(err, ErrNotTrusted) true.
func (r *Refusal) Is(target error) bool { return target == ErrNotTrusted }

// FirstContact says what happens to DIDs that no pattern names.
type FirstContact string

const (
	// Closed refuses them. The empty string means the same.
	Closed FirstContact = "closed"
	// Open admits them.
	Open FirstContact = "open"
)

// Policy is the operator's trust policy. It is a value: methods that change it
// return a new one.
type Policy struct {
	// FirstContact is closed unless it says open.
	FirstContact FirstContact `json:"first_contact" yaml:"first_contact"`
	// Allow names who is admitted while first contact is closed.
	Allow []Pattern `json:"allow,omitempty" yaml:"allow,omitempty"`
	// Deny names who is refused whatever else is said.
	Deny []Pattern `json:"deny,omitempty" yaml:"deny,omitempty"`
	// Methods are the DID methods admitted; empty means wba and web.
	Methods []string `json:"methods,omitempty" yaml:"methods,omitempty"`
	// ContractProfiles are the kinds of DID that may contract; empty means e1 and
	// k1. ProfilePath never may: nothing binds such a DID to a key.
	ContractProfiles []did.Profile `json:"contract_profiles,omitempty" yaml:"contract_profiles,omitempty"`
	// Succession is the least assurance with which a counterparty's move to another DID is followed: recovery_verified, which
	// is also what empty means, or verified.
	Succession did.Assurance `json:"succession,omitempty" yaml:"succession,omitempty"`
}

// Validate reports a policy that says something it cannot mean.
func (p Policy) Validate() error {
	switch p.FirstContact {
	case "", Closed, Open:
	default:
		return fmt.Errorf("trust: first_contact %q is neither closed nor open", p.FirstContact)
	}
	if slices.Contains(p.Allow, Pattern{}) || slices.Contains(p.Deny, Pattern{}) {
		return errors.New("trust: an empty pattern")
	}
	if err := p.checkSuccession(); err != nil {
		return err
	}
	for _, m := range p.Methods {
		if m != "wba" && m != "web" {
			return fmt.Errorf("trust: method %q is neither wba nor web", m)
		}
	}
	for _, profile := range p.ContractProfiles {
		switch profile {
		case did.ProfileE1, did.ProfileK1, did.ProfileBare, did.ProfileWeb:
		case did.ProfilePath:
			return errors.New("trust: path DIDs without a fingerprint never contract")
		default:
			return fmt.Errorf("trust: unknown profile %q", profile)
		}
	}
	return nil
}

// Admit reports whether this node deals with id at all. The error is a *Refusal.
func (p Policy) Admit(id did.DID) error {
	if id.IsZero() {
		return &Refusal{Rule: RuleIdentifier}
	}
	for _, pattern := range p.Deny {
		if pattern.denies(id) {
			return &Refusal{Subject: id.String(), Rule: RuleDeny, Pattern: pattern}
		}
	}
	if !p.methodAdmitted(id.Method()) {
		return &Refusal{Subject: id.String(), Rule: RuleMethod}
	}
	if p.FirstContact == Open {
		return nil
	}
	for _, pattern := range p.Allow {
		if pattern.allows(id) {
			return nil
		}
	}
	return &Refusal{Subject: id.String(), Rule: RuleFirstContact}
}

// MayContract reports whether this node enters into contracts with id: Admit,
// and a profile that contracts. The error is a *Refusal.
func (p Policy) MayContract(id did.DID) error {
	if err := p.Admit(id); err != nil {
		return err
	}
	if !p.Contracts(id.Profile()) {
		return &Refusal{Subject: id.String(), Rule: RuleProfile}
	}
	return nil
}

// AdmitDomain reports whether this node may ask domain ("host" or "host:port")
// which agents it has. While first contact is closed, a domain is admitted by a
// pattern for it or by an allowed DID under it. Each DID found there still has to
// pass Admit. The error is a *Refusal.
func (p Policy) AdmitDomain(domain string) error {
	d, err := parseDomain(domain)
	if err != nil {
		return &Refusal{Subject: domain, Rule: RuleIdentifier}
	}
	for _, pattern := range p.Deny {
		if pattern.coversDenied(d) {
			return &Refusal{Subject: domain, Rule: RuleDeny, Pattern: pattern}
		}
	}
	if p.FirstContact == Open {
		return nil
	}
	for _, pattern := range p.Allow {
		if pattern.coversAllowed(d) || domainOf(pattern.id) == d {
			return nil
		}
	}
	return &Refusal{Subject: domain, Rule: RuleFirstContact}
}

func (p Policy) methodAdmitted(method string) bool {
	if len(p.Methods) == 0 {
		return method == "wba" || method == "web"
	}
	return slices.Contains(p.Methods, method)
}

// Contracts reports whether DIDs of the profile may contract at all.
func (p Policy) Contracts(profile did.Profile) bool {
	switch {
	case profile == did.ProfilePath:
		return false
	case len(p.ContractProfiles) == 0:
		return profile == did.ProfileE1 || profile == did.ProfileK1
	default:
		return slices.Contains(p.ContractProfiles, profile)
	}
}

// Allowing returns the policy with pattern allowed, and no longer denied by the
// same pattern. A wider deny pattern still beats it.
func (p Policy) Allowing(pattern Pattern) Policy {
	p.Allow, p.Deny = append(without(p.Allow, pattern), pattern), without(p.Deny, pattern)
	return p
}

// Denying returns the policy with pattern denied, and no longer allowed by the
// same pattern.
func (p Policy) Denying(pattern Pattern) Policy {
	p.Allow, p.Deny = without(p.Allow, pattern), append(without(p.Deny, pattern), pattern)
	return p
}

func without(list []Pattern, pattern Pattern) []Pattern {
	return slices.DeleteFunc(slices.Clone(list), func(p Pattern) bool { return p == pattern })
}

// Live is a policy that can be replaced while others ask it. The zero value
// denies everything. Do not copy it.
type Live struct{ p atomic.Pointer[Policy] }

// NewLive returns a Live that holds p.
func NewLive(p Policy) *Live {
	l := &Live{}
	l.Store(p)
	return l
}

// Store replaces the policy. Questions asked after it returns see p.
func (l *Live) Store(p Policy) {
	p.Allow, p.Deny = slices.Clone(p.Allow), slices.Clone(p.Deny)
	p.Methods, p.ContractProfiles = slices.Clone(p.Methods), slices.Clone(p.ContractProfiles)
	l.p.Store(&p)
}

// Load returns the policy now in force. Its lists must not be changed.
func (l *Live) Load() Policy {
	if p := l.p.Load(); p != nil {
		return *p
	}
	return Policy{}
}

// Admit is Policy.Admit of the policy now in force.
func (l *Live) Admit(id did.DID) error { return l.Load().Admit(id) }

// MayContract is Policy.MayContract of the policy now in force.
func (l *Live) MayContract(id did.DID) error { return l.Load().MayContract(id) }

// AdmitDomain is Policy.AdmitDomain of the policy now in force.
func (l *Live) AdmitDomain(domain string) error { return l.Load().AdmitDomain(domain) }
