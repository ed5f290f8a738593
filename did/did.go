// SPDX-License-Identifier: Apache-2.0

package did

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// Profile tells how a DID is bound to keys.
type Profile string

const (
	// ProfileE1 is a did:wba path DID whose last segment is "e1_" and the RFC 7638 thumbprint of its Ed25519
	// binding key (ANP-03 section 2.2.1).
	ProfileE1 Profile = "e1"
	// ProfileK1 is the same with "k1_" and secp256k1 (ANP-03 appendix A).
	ProfileK1 Profile = "k1"
	// ProfileBare is did:wba with a domain only: bound to whoever controls the domain.
	ProfileBare Profile = "bare"
	// ProfilePath is a did:wba path DID without a fingerprint, as written before ANP-03 1.1. It is parsed so
	// that it can be named; nothing binds it to a key.
	ProfilePath Profile = "path"
	// ProfileWeb is a did:web DID, with or without path.
	ProfileWeb Profile = "web"
)

const (
	maxDID         = 512 // bytes of a DID; a host alone has up to 253
	maxFragment    = 256
	fingerprintLen = 43 // base64url of 32 bytes
)

// DID is a did:wba or did:web identifier. The zero value is no identifier. Values can be compared with ==: an
// identifier has one spelling, because those that would need normalisation are refused.
type DID struct {
	s                string
	hostEnd, pathPos int // s[8:hostEnd] is the host; s[pathPos:] the path with colons, or empty
	port             int
	profile          Profile
}

const prefixLen = len("did:wba:") // and of "did:web:"

// Parse parses a DID strictly: host in lower case, a fully qualified domain name and no IP address in any
// notation; port as %3A and 1 to 65535; path segments of letters, digits, "-", "_" and ".", none of them "." or
// "..". Nothing else can be percent-encoded, so that there is no userinfo, query, or second spelling. A last
// segment that begins with e1_ or k1_ must continue with a thumbprint and follow at least one other segment.
func Parse(s string) (DID, error) {
	if len(s) > maxDID {
		return DID{}, fmt.Errorf("%w: longer than %d bytes", ErrSyntax, maxDID)
	}
	if len(s) < prefixLen || s[:4] != "did:" {
		return DID{}, fmt.Errorf("%w: %q", ErrSyntax, s)
	}
	d := DID{s: s}
	switch s[4:prefixLen] {
	case "wba:":
		d.profile = ProfilePath
	case "web:":
		d.profile = ProfileWeb
	default:
		return DID{}, fmt.Errorf("%w: %q", ErrMethod, s)
	}
	domain, path, hasPath := strings.Cut(s[prefixLen:], ":")
	host, port, hasPort := strings.Cut(domain, "%3A")
	if err := checkHost(host); err != nil {
		return DID{}, fmt.Errorf("%w: %q: %s", ErrSyntax, s, err)
	}
	d.hostEnd = prefixLen + len(host)
	d.pathPos = len(s)
	if hasPort {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '0' || port[0] == '+' {
			return DID{}, fmt.Errorf("%w: %q: bad port", ErrSyntax, s)
		}
		d.port = int(n)
	}
	if hasPath {
		d.pathPos = len(s) - len(path)
		for segment := range strings.SplitSeq(path, ":") {
			if !validSegment(segment) {
				return DID{}, fmt.Errorf("%w: %q: bad path", ErrSyntax, s)
			}
		}
	}
	if d.profile == ProfileWeb {
		return d, nil
	}
	profile, err := wbaProfile(path)
	if err != nil {
		return DID{}, fmt.Errorf("%w: %q: %s", ErrSyntax, s, err)
	}
	d.profile = profile
	return d, nil
}

type syntaxReason string

func (r syntaxReason) Error() string { return string(r) }

func wbaProfile(path string) (Profile, error) {
	if path == "" {
		return ProfileBare, nil
	}
	i := strings.LastIndexByte(path, ':')
	last := path[i+1:]
	var profile Profile
	switch {
	case strings.HasPrefix(last, "e1_"):
		profile = ProfileE1
	case strings.HasPrefix(last, "k1_"):
		profile = ProfileK1
	default:
		return ProfilePath, nil
	}
	fingerprint := last[3:]
	if len(fingerprint) != fingerprintLen {
		return "", syntaxReason("bad fingerprint")
	}
	if _, err := base64.RawURLEncoding.Strict().DecodeString(fingerprint); err != nil {
		return "", syntaxReason("bad fingerprint")
	}
	if i < 0 {
		return "", syntaxReason("no path before the fingerprint") // 1*(":" path-segment) in the ABNF
	}
	return profile, nil
}

// checkHost accepts fully qualified domain names (RFC 1123 section 2.1) in lower case.
func checkHost(host string) error {
	if len(host) > 253 {
		return syntaxReason("host too long")
	}
	labels := 0
	var last string
	for label := range strings.SplitSeq(host, ".") {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return syntaxReason("bad host")
		}
		for i := range len(label) {
			if c := label[i]; !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-') {
				return syntaxReason("bad host")
			}
		}
		labels++
		last = label
	}
	if labels < 2 {
		return syntaxReason("host is not a fully qualified domain name")
	}
	// A name whose last label is a number is taken for an IPv4 address somewhere: 127.1, 0x7f.0x1 (RFC 1123
	// section 2.1; URL Standard, "ends in a number").
	if numericLabel(last) {
		return syntaxReason("host is an IP address")
	}
	return nil
}

func numericLabel(label string) bool {
	digits, hex := strings.CutPrefix(label, "0x")
	for i := range len(digits) {
		c := digits[i]
		if !('0' <= c && c <= '9' || hex && 'a' <= c && c <= 'f') {
			return false
		}
	}
	return true
}

func validSegment(s string) bool {
	if s == "" || s == "." || s == ".." {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !(isAlnum(c) || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// SplitKeyID splits an absolute key id, <did>#<fragment>. The fragment is not empty and of letters, digits and
// -._~:=+ only, so that it can stand in any header unescaped.
func SplitKeyID(keyid string) (DID, string, error) {
	id, fragment, ok := strings.Cut(keyid, "#")
	if !ok || !validFragment(fragment) {
		return DID{}, "", fmt.Errorf("%w: bad key id %q", ErrSyntax, clip(keyid))
	}
	d, err := Parse(id)
	if err != nil {
		return DID{}, "", err
	}
	return d, fragment, nil
}

func validFragment(s string) bool {
	if s == "" || len(s) > maxFragment {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlnum(c) && strings.IndexByte("-._~:=+", c) < 0 {
			return false
		}
	}
	return true
}

func clip(s string) string {
	if len(s) > maxDID+maxFragment {
		return s[:maxDID+maxFragment] + "…"
	}
	return s
}

// String returns the DID, "" for the zero value.
func (d DID) String() string { return d.s }

// IsZero reports whether d is the zero value.
func (d DID) IsZero() bool { return d.s == "" }

// Method returns "wba" or "web", "" for the zero value.
func (d DID) Method() string {
	if d.IsZero() {
		return ""
	}
	return d.s[4:7]
}

// Host returns the domain name without port.
func (d DID) Host() string {
	if d.IsZero() {
		return ""
	}
	return d.s[prefixLen:d.hostEnd]
}

// Port returns the port that the DID names, 0 if it names none (which means 443).
func (d DID) Port() int { return d.port }

// Domain returns the authority as a URL writes it: host, or host:port if the DID names a port.
func (d DID) Domain() string {
	if d.port == 0 {
		return d.Host()
	}
	return d.Host() + ":" + strconv.Itoa(d.port)
}

// Path returns the path segments, nil if there are none. A fingerprint is the last of them.
func (d DID) Path() []string {
	if d.pathPos >= len(d.s) {
		return nil
	}
	return strings.Split(d.s[d.pathPos:], ":")
}

// Profile returns how the DID is bound to keys, "" for the zero value.
func (d DID) Profile() Profile { return d.profile }

// Fingerprint returns the RFC 7638 thumbprint that an e1_ or k1_ DID carries, 43 characters without the prefix;
// "" for other profiles.
func (d DID) Fingerprint() string {
	if d.profile != ProfileE1 && d.profile != ProfileK1 {
		return ""
	}
	return d.s[len(d.s)-fingerprintLen:]
}

// StableSubject returns what stays when the binding key of an e1_ or k1_ DID changes: the DID without its last
// segment. For other profiles it is the DID.
func (d DID) StableSubject() string {
	if d.Fingerprint() == "" {
		return d.s
	}
	return d.s[:len(d.s)-fingerprintLen-len(":e1_")]
}

// DocumentURL returns the https URL of the DID document (ANP-03 section 2.6, did:web "Read").
func (d DID) DocumentURL() string {
	if d.IsZero() {
		return ""
	}
	if d.pathPos >= len(d.s) {
		return "https://" + d.Domain() + "/.well-known/did.json"
	}
	return "https://" + d.Domain() + "/" + strings.ReplaceAll(d.s[d.pathPos:], ":", "/") + "/did.json"
}

// MarshalText implements [encoding.TextMarshaler].
func (d DID) MarshalText() ([]byte, error) { return []byte(d.s), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]; it is [Parse].
func (d *DID) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}
