// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/treaty-node/treaty/did"
)

// ErrPattern is returned for text that is not a pattern.
var ErrPattern = errors.New("trust: malformed pattern")

const wildcard = "*."

// Pattern names whom a rule is about: one DID ("did:wba:vendorcorp.example:…"),
// every DID of a domain ("vendorcorp.example", "vendorcorp.example:8443"), or
// every DID of the domains below one ("*.vendorcorp.example", which does not
// cover vendorcorp.example itself).
//
// A domain without a port is narrow when it allows and wide when it denies: it
// allows port 443 only, since other ports of a host may be other people's, and
// denies every port.
//
// Patterns are comparable; the zero value matches nothing.
type Pattern struct {
	id     did.DID
	domain domain
	below  bool // domain stands for the domains below it
}

// ParsePattern parses the text form. Errors wrap ErrPattern.
func ParsePattern(s string) (Pattern, error) {
	if strings.HasPrefix(s, "did:") {
		id, err := did.Parse(s)
		if err != nil {
			return Pattern{}, fmt.Errorf("%w: %w", ErrPattern, err)
		}
		return Pattern{id: id}, nil
	}
	name, below := strings.CutPrefix(s, wildcard)
	if below {
		// What stands below a domain has one label more: that lets *.test be a
		// pattern, though test alone is no domain a DID can have.
		name = "x." + name
	}
	d, err := parseDomain(name)
	if err != nil {
		return Pattern{}, fmt.Errorf("%w: %.80q is not a DID, a domain or *.domain", ErrPattern, s)
	}
	if below {
		d.host = d.host[len("x."):]
	}
	return Pattern{domain: d, below: below}, nil
}

// String returns the text that ParsePattern reads, "" for the zero value.
func (p Pattern) String() string {
	switch {
	case !p.id.IsZero():
		return p.id.String()
	case p.below:
		return wildcard + p.domain.String()
	default:
		return p.domain.String()
	}
}

// MarshalText returns the text form.
func (p Pattern) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is ParsePattern.
func (p *Pattern) UnmarshalText(text []byte) error {
	parsed, err := ParsePattern(string(text))
	if err != nil {
		return err
	}
	*p = parsed
	return nil
}

func (p Pattern) allows(id did.DID) bool {
	if !p.id.IsZero() {
		return p.id == id
	}
	return p.coversAllowed(domainOf(id))
}

// denies takes two DIDs with one document for the same subject: did:wba and did:web of one path are.
func (p Pattern) denies(id did.DID) bool {
	if !p.id.IsZero() {
		return p.id == id || p.id.DocumentURL() == id.DocumentURL()
	}
	return p.coversDenied(domainOf(id))
}

func (p Pattern) coversAllowed(d domain) bool {
	return p.coversHost(d.host) && p.domain.port == d.port
}

func (p Pattern) coversDenied(d domain) bool {
	return p.coversHost(d.host) && (p.domain.port == 0 || p.domain.port == d.port)
}

func (p Pattern) coversHost(host string) bool {
	if p.domain.host == "" {
		return false // a pattern for one DID, or none
	}
	if p.below {
		return strings.HasSuffix(host, "."+p.domain.host)
	}
	return host == p.domain.host
}

// domain is a host with its port, 0 for the default one.
type domain struct {
	host string
	port int
}

func (d domain) String() string {
	if d.port == 0 {
		return d.host
	}
	return d.host + ":" + strconv.Itoa(d.port)
}

func domainOf(id did.DID) domain {
	d := domain{host: id.Host(), port: id.Port()}
	if d.port == 443 {
		d.port = 0
	}
	return d
}

// parseDomain leaves it to package did what a domain is: what can stand in a DID.
func parseDomain(s string) (domain, error) {
	host, port, named := strings.Cut(s, ":")
	// A colon or a percent sign more would end the domain early, inside the DID.
	if strings.Contains(host, "%") || strings.ContainsAny(port, ":%") {
		return domain{}, ErrPattern
	}
	text := "did:web:" + host
	if named {
		text += "%3A" + port
	}
	id, err := did.Parse(text)
	if err != nil {
		return domain{}, fmt.Errorf("%w: %w", ErrPattern, err)
	}
	return domainOf(id), nil
}
