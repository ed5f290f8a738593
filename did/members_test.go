// SPDX-License-Identifier: Apache-2.0

package did

import (
	"bytes"
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/treaty-node/treaty/did/canon"
)

// Splicing canonical bytes gives what encoding the changed object would give.
func TestSplicingIsEncoding(t *testing.T) {
	name := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"@context", "@", "@contex", "@contexts", "?", "A", "proof", "proofs", "proo", "\x01", "\n@", "@\n", "\"", "\\", "@\\", "é", "\U0001F600", "",
	}))
	value := rapid.OneOf(
		rapid.Map(rapid.String(), func(s string) any { return s }),
		rapid.SampledFrom([]any{nil, true, 1.5, "a\"b\\,}{][", []any{}, map[string]any{"}": "{"}, []any{"]", map[string]any{",": []any{1.0}}}}),
	)
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.MapOf(name, value).Draw(t, "object")
		encode := func(m map[string]any) []byte {
			out, err := canon.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		canonical := encode(m)
		o, err := splitObject(canonical)
		if err != nil || len(o) != len(m) || !bytes.Equal(o.join(), canonical) {
			t.Fatalf("%s: %s, %v", canonical, o.join(), err)
		}
		for i, member := range o {
			var name string
			if err := json.Unmarshal(append(append([]byte{'"'}, member.name...), '"'), &name); err != nil {
				t.Fatal(err)
			}
			rest := map[string]any{}
			for n, v := range m {
				if n != name {
					rest[n] = v
				}
			}
			start, end := o.cut(i)
			if got := append(bytes.Clone(canonical[:start]), canonical[end:]...); !bytes.Equal(got, encode(rest)) {
				t.Fatalf("without %q: %s, want %s", name, got, encode(rest))
			}
			if !bytes.Equal(member.value, encodeValue(t, m[name])) {
				t.Fatalf("value of %q: %s", name, member.value)
			}
		}
		for _, name := range []string{"@context", "proof", "proofValue"} {
			rest := o.without(name)
			more := map[string]any{name: "new"}
			for n, v := range m {
				if n != name {
					more[n] = v
				}
			}
			if got := rest.with(name, []byte(`"new"`)).join(); !bytes.Equal(got, encode(more)) {
				t.Fatalf("with %q: %s, want %s", name, got, encode(more))
			}
		}
	})
}

func encodeValue(t *rapid.T, v any) []byte {
	out, err := canon.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
