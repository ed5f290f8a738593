// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// ErrComponent is wrapped when a covered component cannot be taken from the
// message: the field is absent, or the query parameter is absent or ambiguous.
var ErrComponent = errors.New("httpsig: component not available")

// Message is what a request signature can cover. Transports other than HTTP map
// their own notions onto it (ANP-02 section 4, P1 appendix A.4).
type Message struct {
	Method    string      // case is kept
	TargetURI string      // absolute, as @target-uri has it (RFC 9421 section 2.2.2)
	Header    http.Header // canonical keys, as net/http has them
}

// AppendBase appends the signature base of RFC 9421 section 2.5 to dst.
func (in *Input) AppendBase(dst []byte, m *Message) ([]byte, error) {
	for i := range in.Components {
		c := &in.Components[i]
		dst = append(dst, '"')
		dst = append(dst, c.Name...)
		dst = append(dst, '"')
		if c.Param != "" {
			dst = append(dst, `;name=`...)
			dst = appendString(dst, c.Param)
		}
		dst = append(dst, ": "...)
		start := len(dst)
		var err error
		if dst, err = m.appendComponent(dst, c); err != nil {
			return nil, err
		}
		// RFC 9421 section 2.5, step 2.9: a value with a line break would be
		// read as another component.
		for _, b := range dst[start:] {
			if b == '\n' || b == '\r' {
				return nil, fmt.Errorf("%w: %s holds a line break", ErrComponent, c.Name)
			}
		}
		dst = append(dst, '\n')
	}
	dst = append(dst, `"@signature-params": `...)
	return append(dst, in.params...), nil
}

// appendComponent appends the value of c (RFC 9421 sections 2.1 and 2.2).
func (m *Message) appendComponent(dst []byte, c *Component) ([]byte, error) {
	switch c.Name {
	case "@method":
		return append(dst, m.Method...), nil
	case "@target-uri":
		return append(dst, m.TargetURI...), nil
	case "content-digest":
		return m.appendField(dst, "Content-Digest")
	}
	if c.Name[0] != '@' {
		return m.appendField(dst, http.CanonicalHeaderKey(c.Name))
	}
	scheme, authority, path, query, hasQuery := splitURI(m.TargetURI)
	switch c.Name {
	case "@authority":
		return append(dst, normalAuthority(scheme, authority)...), nil
	case "@scheme":
		return append(dst, strings.ToLower(scheme)...), nil
	case "@path":
		return append(dst, path...), nil
	case "@query":
		return append(append(dst, '?'), query...), nil
	case "@request-target":
		dst = append(dst, path...)
		if hasQuery {
			dst = append(append(dst, '?'), query...)
		}
		return dst, nil
	case "@query-param":
		return appendQueryParam(dst, query, c.Param)
	}
	return nil, fmt.Errorf("%w: %s", ErrComponent, c.Name)
}

func (m *Message) appendField(dst []byte, key string) ([]byte, error) {
	values, ok := m.Header[key]
	if !ok || len(values) == 0 {
		return nil, fmt.Errorf("%w: field %s is absent", ErrComponent, key)
	}
	for i, v := range values {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(dst, strings.Trim(v, " \t")...)
	}
	return dst, nil
}

// splitURI splits an absolute URI without touching any escape in it. An empty
// path is "/" (RFC 9110 section 4.2.3).
func splitURI(uri string) (scheme, authority, path, query string, hasQuery bool) {
	scheme, rest, _ := strings.Cut(uri, "://")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	} else {
		authority = rest
	}
	path, _, _ = strings.Cut(path, "#")
	path, query, hasQuery = strings.Cut(path, "?")
	if path == "" {
		path = "/"
	}
	return scheme, authority, path, query, hasQuery
}

// normalAuthority is @authority: lower case, without the scheme's default port
// (RFC 9421 section 2.2.3).
func normalAuthority(scheme, authority string) string {
	authority = strings.ToLower(authority)
	switch {
	case strings.EqualFold(scheme, "https"):
		authority = strings.TrimSuffix(authority, ":443")
	case strings.EqualFold(scheme, "http"):
		authority = strings.TrimSuffix(authority, ":80")
	}
	return strings.TrimSuffix(authority, ":")
}

// appendQueryParam appends the value of the one query parameter called name
// (RFC 9421 section 2.2.8). Name and value are decoded as forms are and encoded
// again; a name that occurs twice is ambiguous and refused.
func appendQueryParam(dst []byte, query, name string) ([]byte, error) {
	want, err := url.PathUnescape(name)
	if err != nil {
		return nil, fmt.Errorf("%w: @query-param %q", ErrComponent, name)
	}
	found := false
	for pair := range strings.SplitSeq(query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		if key, err = url.QueryUnescape(key); err != nil || key != want {
			continue
		}
		if value, err = url.QueryUnescape(value); err != nil || found {
			return nil, fmt.Errorf("%w: @query-param %q", ErrComponent, name)
		}
		found = true
		for i := 0; i < len(value); i++ {
			c := value[i]
			if isLower(c) || isDigit(c) || 'A' <= c && c <= 'Z' || strings.IndexByte("*-._", c) >= 0 {
				dst = append(dst, c)
			} else {
				dst = append(dst, '%', hexDigits[c>>4], hexDigits[c&15])
			}
		}
	}
	if !found {
		return nil, fmt.Errorf("%w: @query-param %q is absent", ErrComponent, name)
	}
	return dst, nil
}

const hexDigits = "0123456789ABCDEF"

// appendString appends s as a string of RFC 8941 section 4.1.6.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); i++ {
		if s[i] == '"' || s[i] == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, s[i])
	}
	return append(dst, '"')
}
