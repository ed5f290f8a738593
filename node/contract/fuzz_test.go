// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"bytes"
	"testing"

	"github.com/treaty-node/treaty/did/canon"
)

// FuzzParseContract feeds every document parser: what one accepts must encode to
// the canonical form of the input, and no other parser may accept it.
func FuzzParseContract(f *testing.F) {
	docs := documents(f)
	for _, d := range docs {
		f.Add(d.bytes)
		f.Add(bytes.Replace(d.bytes, []byte(`"type"`), []byte(`"Type"`), 1))
		f.Add(d.bytes[:len(d.bytes)/2])
	}
	f.Add([]byte(`{}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		accepted := ""
		for _, d := range docs {
			out, err := d.parse(data)
			if err != nil {
				continue
			}
			if accepted != "" {
				t.Fatalf("both a %s and a %s", accepted, d.name)
			}
			accepted = d.name
			in, err := canon.Canonicalize(data, canon.Limits{})
			if err != nil || !bytes.Equal(in, out) {
				t.Fatalf("%v\n in %s\nout %s", err, in, out)
			}
		}
	})
}
