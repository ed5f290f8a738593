// SPDX-License-Identifier: Apache-2.0

package datatools

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/did/canon"
)

// goodOutput is an answer whose receipt is about its result; its signature is somebody else's.
func goodOutput(tb testing.TB) []byte {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "contract", "testdata", "receipt.json"))
	if err != nil {
		tb.Fatal(err)
	}
	result := []byte(`{"columns":[{"name":"region","type":"text"},{"name":"avg","type":"decimal(14,6)"}],"rows":[["North","15.250000"],[null,"6.500000"]],"total_rows":9,"used_rows":4}`)
	digest, err := ResultDigest(result)
	if err != nil {
		tb.Fatal(err)
	}
	var receipt map[string]any
	if err := json.Unmarshal(raw, &receipt); err != nil {
		tb.Fatal(err)
	}
	receipt["resultDigest"], receipt["rows"], receipt["usedRows"], receipt["totalRows"] = digest, 2, 4, 9
	text, err := canon.Marshal(receipt)
	if err != nil {
		tb.Fatal(err)
	}
	out, err := json.Marshal(QueryOutput{Result: result, Receipt: text})
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func TestParseOutput(t *testing.T) {
	good := string(goodOutput(t))
	for name, c := range map[string]struct {
		old, with string
		ok        bool
	}{
		"as sent":             {"", "", true},
		"in other words":      {`"total_rows":9,"used_rows":4`, "\"used_rows\" : 4,\n\"total_rows\": 9", true},
		"another value":       {"15.250000", "15.250001", false},
		"a row less":          {`["North","15.250000"],`, "", false},
		"other rows used":     {`"used_rows":4`, `"used_rows":5`, false},
		"receipt of another":  {`"usedRows":4`, `"usedRows":5`, false},
		"unknown member":      {`"used_rows":4`, `"used_rows":4,"note":1`, false},
		"duplicate member":    {`"used_rows":4`, `"used_rows":4,"used_rows":4`, false},
		"case variant":        {`"used_rows"`, `"Used_rows"`, false},
		"no receipt":          {`{"receipt":`, `{"receipts":`, false},
		"a member of its own": {`{"receipt"`, `{"sql":"x","receipt"`, false},
	} {
		text := strings.Replace(good, c.old, c.with, 1)
		if c.old != "" && text == good {
			t.Fatalf("%s: %q is not in %s", name, c.old, good)
		}
		res, rcp, err := ParseOutput([]byte(text))
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if c.ok && (len(res.Rows) != 2 || res.UsedRows != 4 || rcp.TotalRows != 9) {
			t.Errorf("%s: %+v, %+v", name, res, rcp)
		}
	}
}

// What a data plane answers is read as one thing, however it is written.
func FuzzParseOutput(f *testing.F) {
	f.Add(goodOutput(f))
	f.Add([]byte(`{"result":{"columns":[],"rows":[],"used_rows":0,"total_rows":0},"receipt":{}}`))
	f.Add([]byte(`{"result":null,"receipt":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		res, rcp, err := ParseOutput(data)
		if err != nil {
			return
		}
		canonical, err := canon.Canonicalize(data, resultLimits)
		if err != nil {
			t.Fatalf("read, and not strict JSON: %v", err)
		}
		again, rcpAgain, err := ParseOutput(canonical)
		if err != nil || !reflect.DeepEqual(again, res) || !reflect.DeepEqual(rcpAgain, rcp) {
			t.Fatalf("%v\n%+v\n%+v", err, res, again)
		}
	})
}
