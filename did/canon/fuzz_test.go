// SPDX-License-Identifier: Apache-2.0

package canon

import (
	"bytes"
	"io/fs"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"

	"github.com/treaty-node/treaty/testvectors"
)

// FuzzCanonicalize holds Canonicalize to these properties: what it accepts, the oracle canonicalises to the
// same bytes; the result is a fixed point and keeps within limits; and the fast path says yes to nothing but
// canonical form.
func FuzzCanonicalize(f *testing.F) {
	inputs, err := fs.ReadDir(testvectors.FS(), "rfc8785/input")
	if err != nil || len(inputs) == 0 {
		f.Fatalf("%d vectors, %v", len(inputs), err)
	}
	for _, in := range inputs {
		data, err := testvectors.Read("rfc8785/input/" + in.Name())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, s := range []string{
		`{"a":1,"a":2}`, `{"b":[1e30,-0],"a":{"\u0061":"\ud83d\ude00"}}`, `[9007199254740993]`, `[1.7976931348623159e308]`,
		"{\"\U0001F600\":1,\"\ufb33\":2}", `"\b\f\n\r\t\u0001\u001f\"\\/"`, `{"\"":1,"\\":2,"a":3}`, `[0.000001,1e-7,1e21,1e20]`,
		strings.Repeat("[", 40) + strings.Repeat("]", 40), `{"a":"\u007f` + "\u2028\u00e9" + `"}`,
	} {
		f.Add([]byte(s))
	}
	lim := Limits{MaxBytes: 1 << 16}.withDefaults()
	f.Fuzz(func(t *testing.T, data []byte) {
		canonical, err := Canonicalize(data, lim)
		if checkErr := Check(data, lim); (checkErr == nil) != (err == nil) {
			t.Fatalf("Canonicalize: %v, Check: %v", err, checkErr)
		}
		if err != nil {
			return
		}
		again, err := Canonicalize(canonical, Limits{MaxBytes: len(canonical)})
		if err != nil || !bytes.Equal(again, canonical) {
			t.Fatalf("not a fixed point: %q, %q, %v", canonical, again, err)
		}
		// Also holds the fast path to its word: where it says yes, canonical is data itself.
		slow, err := canonicalizeSlow(data)
		if err != nil || !bytes.Equal(slow, canonical) {
			t.Fatalf("the two ways differ: %q, %q, %v", canonical, slow, err)
		}
		// The oracle takes objects and arrays only, reads numbers with strconv, and does not look at the rest
		// as closely.
		wrapped := append(append([]byte("["), data...), ']')
		oracle, err := jcs.Transform(wrapped)
		if err != nil {
			t.Fatalf("the oracle refuses %q: %v", data, err)
		}
		if !bytes.Equal(oracle[1:len(oracle)-1], canonical) {
			t.Fatalf("oracle %q, ours %q", oracle, canonical)
		}
	})
}

func TestFastPathKnowsCanonicalForm(t *testing.T) {
	outputs, err := fs.ReadDir(testvectors.FS(), "rfc8785/output")
	if err != nil || len(outputs) == 0 {
		t.Fatalf("%d vectors, %v", len(outputs), err)
	}
	for _, out := range outputs {
		data, err := testvectors.Read("rfc8785/output/" + out.Name())
		if err != nil {
			t.Fatal(err)
		}
		// Names with escapes are left to the slow path.
		if want := out.Name() != "weird.json" && out.Name() != "structures.json"; isCanonical(data, Limits{}.withDefaults()) != want {
			t.Errorf("%s: want %v", out.Name(), want)
		}
	}
}
