// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// Bounds on what a peer may send. A DID URL has at most a few hundred octets;
// a nonce of 128 bits has 22.
const (
	maxFieldBytes = 8 << 10 // one structured field, all its lines together
	maxComponents = 32      // covered components
	maxKeyIDBytes = 1 << 10
	maxNonceBytes = 256
)

// ErrInput is wrapped by the errors of [ParseSignatureInput].
var ErrInput = errors.New("httpsig: malformed Signature-Input")

// Component identifies one covered part of a message (RFC 9421 section 2).
type Component struct {
	Name  string // lower-case field name, or a derived component such as "@method"
	Param string // the name parameter of "@query-param", otherwise empty
}

// Input is one signature's entry of a Signature-Input field (RFC 9421
// section 4.1). Absent parameters have zero values.
type Input struct {
	Label      string
	Components []Component
	Created    time.Time
	Expires    time.Time
	Nonce      string
	KeyID      string
	Alg        string
	Tag        string

	// params is the value of "@signature-params": the inner list with all its
	// parameters, known or not, in the order in which they came.
	params string
}

// Covers reports whether the component called name is covered.
func (in *Input) Covers(name string) bool {
	for i := range in.Components {
		if in.Components[i].Name == name {
			return true
		}
	}
	return false
}

// ParseSignatureInput parses the lines of a Signature-Input field that holds
// exactly one signature. Parameters may come in any order and unknown ones are
// kept, since the signature covers them. Refused are several signatures,
// repeated labels, parameters or components, and component parameters other
// than the name of "@query-param".
func ParseSignatureInput(lines []string) (*Input, error) {
	in := new(Input)
	if err := parseInput(in, lines); err != nil {
		return nil, err
	}
	return in, nil
}

func parseInput(in *Input, lines []string) error {
	if fieldBytes(lines) > maxFieldBytes {
		return fmt.Errorf("%w: longer than %d octets", ErrInput, maxFieldBytes)
	}
	in.Components = make([]Component, 0, 4)
	if len(lines) != 1 || !parseCanonical(in, lines[0]) {
		// Whatever the fast path did not take is decided here, so that it needs
		// to know the plain form only.
		*in = Input{Components: in.Components[:0]}
		if err := parseGeneral(in, lines); err != nil {
			return fmt.Errorf("%w: %w", ErrInput, err)
		}
	}
	if err := in.check(); err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	return nil
}

// check holds the rules that both ways of parsing share.
func (in *Input) check() error {
	if len(in.Components) > maxComponents {
		return errors.New("too many components")
	}
	if len(in.KeyID) > maxKeyIDBytes {
		return errors.New("keyid too long")
	}
	if len(in.Nonce) > maxNonceBytes {
		return errors.New("nonce too long")
	}
	for i, c := range in.Components {
		if !validComponent(c) {
			return fmt.Errorf("unsupported component %q", c.Name)
		}
		for _, earlier := range in.Components[:i] { // RFC 9421 section 2: each at most once
			if c == earlier {
				return fmt.Errorf("component %q is repeated", c.Name)
			}
		}
	}
	return nil
}

func validComponent(c Component) bool {
	switch c.Name {
	case "@method", "@target-uri", "@authority", "@scheme", "@request-target", "@path", "@query":
		return c.Param == ""
	case "@query-param":
		return c.Param != ""
	case "":
		return false
	}
	if c.Param != "" {
		return false
	}
	for i := 0; i < len(c.Name); i++ { // RFC 9110 token, lower case
		if b := c.Name[i]; !isLower(b) && !isDigit(b) && strings.IndexByte("!#$%&'*+-.^_`|~", b) < 0 {
			return false
		}
	}
	return true
}

// parseCanonical takes the form that serializers produce (RFC 8941
// section 4.1) with known parameters in any order, and reports whether it did.
// What it takes, parseGeneral takes with the same result.
func parseCanonical(in *Input, s string) bool {
	label, rest, ok := strings.Cut(s, "=(")
	if !ok || !validKey(label) {
		return false
	}
	in.Label = label
	in.params = s[len(label)+1:]

	for !strings.HasPrefix(rest, ")") {
		if len(in.Components) > 0 {
			if !strings.HasPrefix(rest, " ") {
				return false
			}
			rest = rest[1:]
		}
		var name string
		if name, rest, ok = cutString(rest); !ok {
			return false
		}
		in.Components = append(in.Components, Component{Name: name})
	}
	rest = rest[1:]

	var seen [6]bool
	for rest != "" {
		key, value, ok := strings.Cut(rest, "=")
		if !ok {
			return false
		}
		var slot int
		var text *string
		var moment *time.Time
		switch key {
		case ";created":
			slot, moment = 0, &in.Created
		case ";expires":
			slot, moment = 1, &in.Expires
		case ";nonce":
			slot, text = 2, &in.Nonce
		case ";keyid":
			slot, text = 3, &in.KeyID
		case ";alg":
			slot, text = 4, &in.Alg
		case ";tag":
			slot, text = 5, &in.Tag
		default:
			return false
		}
		if seen[slot] {
			return false
		}
		seen[slot] = true
		if text != nil {
			*text, rest, ok = cutString(value)
		} else {
			*moment, rest, ok = cutTime(value)
		}
		if !ok {
			return false
		}
	}
	return true
}

// cutString splits a string without escapes off the front of s.
func cutString(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		return "", s, false
	}
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return s[1:i], s[i+1:], true
		case c == '\\' || c < 0x20 || c > 0x7e:
			return "", s, false
		}
	}
	return "", s, false
}

// cutTime splits an integer in canonical form, of at most 12 digits (the year
// 33658), off the front of s.
func cutTime(s string) (value time.Time, rest string, ok bool) {
	var seconds int64
	i := 0
	for ; i < len(s) && isDigit(s[i]); i++ {
		seconds = seconds*10 + int64(s[i]-'0')
		if i == 12 {
			return time.Time{}, s, false
		}
	}
	if i == 0 || s[0] == '0' && i > 1 || i < len(s) && s[i] != ';' {
		return time.Time{}, s, false
	}
	return time.Unix(seconds, 0).UTC(), s[i:], true
}

// parseGeneral takes every form that RFC 8941 allows.
func parseGeneral(in *Input, lines []string) error {
	dict, err := parseDictionary(lines)
	if err != nil {
		return err
	}
	names := dict.Names()
	if len(names) != 1 {
		return fmt.Errorf("%d signatures, want one", len(names))
	}
	in.Label = names[0]
	member, _ := dict.Get(in.Label)
	list, ok := member.(httpsfv.InnerList)
	if !ok {
		return errors.New("not an inner list")
	}
	if in.params, err = httpsfv.Marshal(httpsfv.List{list}); err != nil {
		return err
	}
	for _, item := range list.Items {
		c := Component{}
		if c.Name, ok = item.Value.(string); !ok {
			return errors.New("component is not a string")
		}
		for _, key := range item.Params.Names() {
			value, _ := item.Params.Get(key)
			if c.Param, ok = value.(string); !ok || key != "name" {
				return fmt.Errorf("unsupported component parameter %q", key)
			}
		}
		in.Components = append(in.Components, c)
	}
	for _, key := range list.Params.Names() {
		value, _ := list.Params.Get(key)
		switch key {
		case "created", "expires":
			seconds, isInt := value.(int64)
			if ok = isInt && seconds >= 0 && seconds < 1e12; ok && key == "created" {
				in.Created = time.Unix(seconds, 0).UTC()
			} else if ok {
				in.Expires = time.Unix(seconds, 0).UTC()
			}
		case "nonce":
			in.Nonce, ok = value.(string)
		case "keyid":
			in.KeyID, ok = value.(string)
		case "alg":
			in.Alg, ok = value.(string)
		case "tag":
			in.Tag, ok = value.(string)
		}
		if !ok {
			return fmt.Errorf("parameter %s has the wrong type", key)
		}
	}
	return nil
}

// parseDictionary parses a structured dictionary as RFC 8941 has it, without
// repeated members or parameters. The library keeps the last of several, so the
// separators are counted and compared with what it kept.
func parseDictionary(lines []string) (*httpsfv.Dictionary, error) {
	if fieldBytes(lines) > maxFieldBytes {
		return nil, fmt.Errorf("longer than %d octets", maxFieldBytes)
	}
	dict, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil {
		return nil, err
	}
	members, params := 0, 0
	count := func(value any, p *httpsfv.Params) error {
		if !rfc8941(value) {
			return errors.New("type is not of RFC 8941")
		}
		for _, key := range p.Names() {
			if v, _ := p.Get(key); !rfc8941(v) {
				return errors.New("type is not of RFC 8941")
			}
			params++
		}
		return nil
	}
	for _, name := range dict.Names() {
		members++
		switch m, _ := dict.Get(name); m := m.(type) {
		case httpsfv.Item:
			err = errors.Join(err, count(m.Value, m.Params))
		case httpsfv.InnerList:
			err = errors.Join(err, count(nil, m.Params))
			for _, item := range m.Items {
				err = errors.Join(err, count(item.Value, item.Params))
			}
		}
	}
	if err != nil {
		return nil, err
	}
	commas, semicolons := separators(lines)
	if members > 0 && commas+1 != members || semicolons != params {
		return nil, errors.New("repeated member or parameter")
	}
	return dict, nil
}

func rfc8941(value any) bool {
	switch value.(type) {
	case nil, bool, int64, float64, string, []byte, httpsfv.Token:
		return true
	}
	return false // RFC 9651 added dates and display strings
}

// separators counts the commas and semicolons outside strings; between the
// lines of a field stands a comma.
func separators(lines []string) (commas, semicolons int) {
	quoted := false
	for n, line := range lines {
		if n > 0 && !quoted {
			commas++
		}
		for i := 0; i < len(line); i++ {
			switch c := line[i]; {
			case quoted && c == '\\':
				i++
			case c == '"':
				quoted = !quoted
			case quoted:
			case c == ',':
				commas++
			case c == ';':
				semicolons++
			}
		}
	}
	return commas, semicolons
}

func fieldBytes(lines []string) int {
	n := 0
	for _, line := range lines {
		n += len(line) + 2
	}
	return n
}

// validKey reports whether s is a key of RFC 8941 section 3.1.2.
func validKey(s string) bool {
	if s == "" || !isLower(s[0]) && s[0] != '*' {
		return false
	}
	for i := 1; i < len(s); i++ {
		if c := s[i]; !isLower(c) && !isDigit(c) && strings.IndexByte("_-.*", c) < 0 {
			return false
		}
	}
	return true
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }
