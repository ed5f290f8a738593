// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/treaty-node/treaty/node/contract"
)

// ErrFile is matched by every error about a policy or needs file.
var ErrFile = errors.New("policy: file refused")

// FileError says where a file is wrong. It matches ErrFile.
type FileError struct {
	Line int    // 1 for the first; 0 when the file as a whole is wrong
	Key  string // path of the key, such as "datasets.orders.retention_days"
	Why  string
}

func (e *FileError) Error() string {
	var b strings.Builder
	b.WriteString("policy: ")
	if e.Line > 0 {
		b.WriteString("line " + strconv.Itoa(e.Line) + ": ")
	}
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	return b.String() + e.Why
}

// Unwrap makes errors.Is(err, ErrFile) true.
func (e *FileError) Unwrap() error { return ErrFile }

// maxFile bounds a policy file's size in bytes.
const maxFile = 1 << 20

// node is a YAML node and the path that leads to it.
type node struct {
	*yaml.Node
	path string
}

func (n node) fail(format string, args ...any) error {
	return &FileError{Line: n.Line, Key: n.path, Why: fmt.Sprintf(format, args...)}
}

// load reads one YAML document.
func load(data []byte) (node, error) {
	if len(data) > maxFile {
		return node{}, &FileError{Why: "is larger than 1 MiB"}
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return node{}, &FileError{Why: "is empty"}
	} else if err != nil {
		return node{}, &FileError{Why: strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return node{}, &FileError{Why: "has more than one document"}
	}
	return node{Node: doc.Content[0]}, nil
}

type handlers map[string]func(node) error

// fields calls a handler for each key of a mapping. Keys without a handler and
// repeated keys are errors; so is the absence of a required one.
func (n node) fields(h handlers, required ...string) error {
	seen := map[string]bool{}
	err := n.each(func(key string, value node) error {
		f, ok := h[key]
		if !ok {
			known := make([]string, 0, len(h))
			for k := range h {
				known = append(known, k)
			}
			sort.Strings(known)
			return value.fail("unknown key; known are %s", strings.Join(known, ", "))
		}
		seen[key] = true
		return f(value)
	})
	if err != nil {
		return err
	}
	for _, k := range required {
		if !seen[k] {
			return n.fail("the key %s is missing", k)
		}
	}
	return nil
}

// each calls f for each key of a mapping, in the file's order.
func (n node) each(f func(key string, value node) error) error {
	if n.Kind != yaml.MappingNode {
		return n.fail("want a mapping of keys and values")
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		at := node{k, n.path}
		if k.Kind != yaml.ScalarNode || k.Tag == "!!merge" {
			return at.fail("want a plain key")
		}
		if seen[k.Value] {
			return at.fail("the key %s is there twice", contract.Echo(k.Value))
		}
		seen[k.Value] = true
		path := k.Value
		if n.path != "" {
			path = n.path + "." + k.Value
		}
		// A key's own line is where an editor should land.
		v := *n.Content[i+1]
		if v.Line > k.Line && v.Kind == yaml.ScalarNode {
			v.Line = k.Line
		}
		if err := f(k.Value, node{&v, path}); err != nil {
			return err
		}
	}
	return nil
}

func (n node) items() ([]node, error) {
	if n.Kind != yaml.SequenceNode {
		return nil, n.fail("want a list")
	}
	out := make([]node, len(n.Content))
	for i, c := range n.Content {
		out[i] = node{c, n.path + "[" + strconv.Itoa(i) + "]"}
	}
	return out, nil
}

func (n node) text() (string, error) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		return "", n.fail("want text (put it in quotes)")
	}
	return n.Value, nil
}

func (n node) texts() ([]string, error) {
	items, err := n.items()
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(items))
	for _, it := range items {
		s, err := it.text()
		if err != nil {
			return nil, err
		}
		if slices.Contains(out, s) {
			return nil, it.fail("%s is there twice", contract.Echo(s))
		}
		out = append(out, s)
	}
	return out, nil
}

func (n node) integer(low, high int64) (int64, error) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" {
		return 0, n.fail("want a whole number")
	}
	v, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil || v < low || v > high {
		return 0, n.fail("want a whole number from %d to %d, have %s", low, high, contract.Echo(n.Value))
	}
	return v, nil
}

// Setters for fields.

func intTo(dst *int, low, high int) func(node) error {
	return func(n node) error {
		v, err := n.integer(int64(low), int64(high))
		if err == nil {
			*dst = int(v) // within an int: low and high are
		}
		return err
	}
}

func int64To(dst *int64, low, high int64) func(node) error {
	return func(n node) (err error) {
		v, err := n.integer(low, high)
		if err == nil {
			*dst = v
		}
		return err
	}
}

func textTo(dst *string, limit int) func(node) error {
	return func(n node) error {
		s, err := n.text()
		if err != nil {
			return err
		}
		if len(s) > limit {
			return n.fail("is longer than %d bytes", limit)
		}
		*dst = s
		return nil
	}
}

func textsTo(dst *[]string, limit int) func(node) error {
	return func(n node) error {
		list, err := n.texts()
		if err != nil {
			return err
		}
		if len(list) > limit {
			return n.fail("has more than %d entries", limit)
		}
		*dst = list
		return nil
	}
}

func operationsTo(dst *[]string) func(node) error {
	return func(n node) error {
		list, err := n.texts()
		if err != nil {
			return err
		}
		known := contract.AllOperations()
		for _, op := range list {
			if !slices.Contains(known, op) {
				return n.fail("unknown operation %s; known are %s", contract.Echo(op), strings.Join(known, ", "))
			}
		}
		*dst = list
		return nil
	}
}

func versionOne(n node) error {
	_, err := n.integer(1, 1)
	return err
}

// conditionsTo reads a row filter. Numbers and dates may stand without quotes:
// their text is taken as written, never converted.
func conditionsTo(dst *[]contract.Condition) func(node) error {
	return func(n node) error {
		items, err := n.items()
		if err != nil {
			return err
		}
		if len(items) > contract.MaxConditions {
			return n.fail("has more than %d conditions", contract.MaxConditions)
		}
		out := make([]contract.Condition, 0, len(items))
		for _, it := range items {
			var c contract.Condition
			err := it.fields(handlers{
				"column": textTo(&c.Column, contract.MaxName),
				"op":     textTo(&c.Op, 16),
				"value": func(v node) (err error) {
					c.Value, err = v.value()
					return err
				},
				"values": func(v node) error {
					list, err := v.items()
					if err != nil {
						return err
					}
					for _, e := range list {
						x, err := e.value()
						if err != nil {
							return err
						}
						c.Values = append(c.Values, x)
					}
					return nil
				},
			}, "column", "op")
			if err != nil {
				return err
			}
			out = append(out, c)
		}
		*dst = out
		return nil
	}
}

func (n node) value() (contract.Value, error) {
	if n.Kind == yaml.ScalarNode {
		switch n.Tag {
		case "!!str", "!!int", "!!float", "!!timestamp":
			return contract.TextValue(n.Value), nil
		case "!!bool":
			if n.Value == "true" || n.Value == "false" {
				return contract.BoolValue(n.Value == "true"), nil
			}
		}
	}
	return contract.Value{}, n.fail("want a text, a number, a date, true or false")
}

const maxSeconds = math.MaxInt32
