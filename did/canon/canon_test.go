// SPDX-License-Identifier: Apache-2.0

package canon_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/testvectors"
)

func TestRFC8785Files(t *testing.T) {
	inputs, err := fs.ReadDir(testvectors.FS(), "rfc8785/input")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("%d vectors, %v", len(inputs), err)
	}
	for _, f := range inputs {
		t.Run(f.Name(), func(t *testing.T) {
			input, err := testvectors.Read("rfc8785/input/" + f.Name())
			if err != nil {
				t.Fatal(err)
			}
			want, err := testvectors.Read("rfc8785/output/" + f.Name())
			if err != nil {
				t.Fatal(err)
			}
			got, err := canon.Canonicalize(input, canon.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if err := canon.CheckCanonical(want, canon.Limits{}); err != nil {
				t.Errorf("the vector's output: %v", err)
			}
		})
	}
}

func TestRFC8785Numbers(t *testing.T) {
	type number struct{ IEEE754, JSON string }
	numbers, err := testvectors.List[number]("rfc8785/numbers.json", "numbers")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range numbers {
		bits, err := strconv.ParseUint(n.IEEE754, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		f := math.Float64frombits(bits)
		if f == 0 && math.Signbit(f) {
			continue // the one row that is refused: see TestNumbers
		}
		got, err := canon.Marshal(f)
		if err != nil || string(got) != n.JSON {
			t.Errorf("%s: %s, %v; want %s", n.IEEE754, got, err, n.JSON)
		}
		if err := canon.CheckCanonical([]byte(n.JSON), canon.Limits{}); err != nil {
			t.Errorf("%s: %v", n.JSON, err)
		}
	}
	refused, err := testvectors.List[string]("rfc8785/numbers.json", "refused")
	if err != nil {
		t.Fatal(err)
	}
	for _, hex := range refused {
		bits, err := strconv.ParseUint(hex, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := canon.Marshal(math.Float64frombits(bits)); err == nil {
			t.Errorf("%s was encoded as %s", hex, got)
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"0", "0"}, {"0.0", "0"}, {"0e5", "0"}, {"-1", "-1"}, {"10", "10"}, {"1.50", "1.5"}, {"1e2", "100"}, {"1E30", "1e+30"},
		{"1.5e3", "1500"}, {"1500e-3", "1.5"}, {"1500e-2", "15"}, {"0.1", "0.1"}, {"999999999999999", "999999999999999"},
		{"9007199254740991", "9007199254740991"}, {"9007199254740992", "9007199254740992"}, {"9007199254740994", "9007199254740994"},
		{"333333333.33333329", "333333333.3333333"}, {"1.7976931348623157e308", "1.7976931348623157e+308"}, {"5e-324", "5e-324"},
		{"0.10000000000000001", "0.1"}, {"100000000000000000000", "100000000000000000000"}, {"1e21", "1e+21"},
		{"123456789012345680000", "123456789012345680000"},
		// Refused: want is empty.
		{"-0", ""}, {"-0.0", ""}, {"-0e7", ""}, {"-0E-7", ""},
		{"9007199254740993", ""}, {"-9007199254740993", ""}, {"9007199254740993.0", ""}, {"900719925474099300e-2", ""},
		{"12345678901234567890", ""}, {"123456789012345678901234567890", ""},
		{"1e400", ""}, {"-1e400", ""}, {"1e-400", ""}, {"1e99999999999999999999", ""}, {"1e-99999999999999999999", ""},
		{"0.100000000000000000001", ""}, {"3.0000000000000001", ""}, {"1.7976931348623159e308", ""},
		{strings.Repeat("9", 400), ""}, {"0." + strings.Repeat("3", 400), ""},
	} {
		for _, wrap := range []string{"%s", " %s ", `{"a":[%s]}`, `[1, %s]`} {
			in := fmt.Sprintf(wrap, tc.in)
			got, err := canon.Canonicalize([]byte(in), canon.Limits{})
			if tc.want == "" {
				if !errors.Is(err, canon.ErrNumber) {
					t.Errorf("%s: got %s, %v; want ErrNumber", clip(in), got, err)
				}
				continue
			}
			want := strings.ReplaceAll(fmt.Sprintf(wrap, tc.want), " ", "")
			if err != nil || string(got) != want {
				t.Errorf("%s: got %s, %v; want %s", in, got, err, want)
			}
		}
	}
}

func clip(s string) string { return s[:min(len(s), 60)] }

// refused is the table of input that is wrong whatever it is decoded into.
var refused = []struct {
	name, in string
	kind     error
	path     string
}{
	{"empty", "", canon.ErrSyntax, ""},
	{"white space", " \n", canon.ErrSyntax, ""},
	{"byte order mark", "\ufeff{}", canon.ErrSyntax, ""},
	{"trailing value", `{} {}`, canon.ErrSyntax, ""},
	{"trailing comma", `{"a":1,}`, canon.ErrSyntax, ""},
	{"trailing garbage", `{}x`, canon.ErrSyntax, ""},
	{"trailing zero byte", "{}\x00", canon.ErrSyntax, ""},
	{"unterminated object", `{"a":1`, canon.ErrSyntax, ""},
	{"unterminated string", `"a`, canon.ErrSyntax, ""},
	{"unterminated escape", `"a\`, canon.ErrSyntax, ""},
	{"comment", `{/**/}`, canon.ErrSyntax, ""},
	{"single quotes", `{'a':1}`, canon.ErrSyntax, ""},
	{"bare name", `{a:1}`, canon.ErrSyntax, ""},
	{"leading zero", `01`, canon.ErrSyntax, ""},
	{"leading plus", `+1`, canon.ErrSyntax, ""},
	{"bare fraction", `.5`, canon.ErrSyntax, ""},
	{"NaN", `NaN`, canon.ErrSyntax, ""},
	{"minus alone", `-`, canon.ErrSyntax, ""},
	{"control character", "\"\x01\"", canon.ErrSyntax, ""},
	{"newline in string", "\"\n\"", canon.ErrSyntax, ""},
	{"invalid UTF-8", "\"\xff\"", canon.ErrSyntax, ""},
	{"overlong UTF-8", "\"\xc0\xaf\"", canon.ErrSyntax, ""},
	{"UTF-8 surrogate", "\"\xed\xa0\x80\"", canon.ErrSyntax, ""},
	{"lone high surrogate", `"\ud800"`, canon.ErrSyntax, ""},
	{"lone low surrogate", `"\udc00"`, canon.ErrSyntax, ""},
	{"reversed surrogates", `"\udc00\ud800"`, canon.ErrSyntax, ""},
	{"lone surrogate in a name", `{"\ud83d":1}`, canon.ErrSyntax, ""},
	{"duplicate", `{"a":1,"a":1}`, canon.ErrDuplicateMember, "/a"},
	{"duplicate by escape", `{"a":1,"\u0061":2}`, canon.ErrDuplicateMember, "/a"},
	{"duplicate deep down", `{"x":[{"b":{"a":1,"a":2}}]}`, canon.ErrDuplicateMember, "/x/0/b/a"},
	{"duplicate of an empty name", `{"":1,"":2}`, canon.ErrDuplicateMember, "/"},
	{"number deep down", `{"x":[0,{"b":-0}]}`, canon.ErrNumber, "/x/1/b"},
}

func TestRefused(t *testing.T) {
	for _, tc := range refused {
		t.Run(tc.name, func(t *testing.T) {
			var v any
			_, err := canon.Canonicalize([]byte(tc.in), canon.Limits{})
			for verb, err := range map[string]error{
				"Canonicalize":  err,
				"Check":         canon.Check([]byte(tc.in), canon.Limits{}),
				"Unmarshal":     canon.Unmarshal([]byte(tc.in), &v, canon.Limits{}),
				"UnmarshalOpen": canon.UnmarshalOpen([]byte(tc.in), &v, canon.Limits{}),
			} {
				if !errors.Is(err, tc.kind) {
					t.Errorf("%s: %v, want %v", verb, err, tc.kind)
				}
				e, ok := errors.AsType[*canon.Error](err)
				if !ok || tc.path != "" && e.Path != tc.path {
					t.Errorf("%s: path of %v, want %q", verb, err, tc.path)
				}
			}
		})
	}
}

func TestInvariant11_SizeAndDepthAreRefusedCheaply(t *testing.T) {
	deep := func(n int) []byte {
		return []byte(strings.Repeat(`{"a":[`, n/2) + "1" + strings.Repeat("]}", n/2))
	}
	for _, tc := range []struct {
		name string
		data []byte
		kind error
	}{
		{"10 MB body", bytes.Repeat([]byte(`"12345678",`), 1<<20), canon.ErrTooLarge},
		{"10 000 deep", deep(10_000), canon.ErrTooDeep},
		{"10 000 open brackets", bytes.Repeat([]byte("["), 10_000), canon.ErrTooDeep},
		{"one too deep", deep(canon.DefaultMaxDepth + 2), canon.ErrTooDeep},
		{"one too large", append([]byte(`"`), make([]byte, canon.DefaultMaxBytes)...), canon.ErrTooLarge},
	} {
		var v any
		var err error
		allocs := testing.AllocsPerRun(1, func() { _, err = canon.Canonicalize(tc.data, canon.Limits{}) })
		if !errors.Is(err, tc.kind) || allocs > 3 {
			t.Errorf("%s: %v with %v allocations", tc.name, err, allocs)
		}
		if err := canon.Unmarshal(tc.data, &v, canon.Limits{}); !errors.Is(err, tc.kind) || v != nil {
			t.Errorf("%s: Unmarshal: %v", tc.name, err)
		}
	}
	if err := canon.Check(deep(canon.DefaultMaxDepth), canon.Limits{}); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if err := canon.Check([]byte(`[[]]`), canon.Limits{MaxDepth: 1}); !errors.Is(err, canon.ErrTooDeep) {
		t.Errorf("caller's depth: %v", err)
	}
	if err := canon.Check([]byte(`[ [] ]`), canon.Limits{MaxDepth: 2, MaxBytes: 6}); err != nil {
		t.Errorf("at the caller's limits: %v", err)
	}
	if err := canon.Check([]byte(`[ [] ] `), canon.Limits{MaxDepth: 2, MaxBytes: 6}); !errors.Is(err, canon.ErrTooLarge) {
		t.Errorf("caller's size: %v", err)
	}
}

func TestBracketsInStringsAreNotDepth(t *testing.T) {
	for _, in := range []string{
		`"` + strings.Repeat("[{", 100) + `"`,
		`"\\` + strings.Repeat("[", 100) + `"`,
		`"\"` + strings.Repeat("[", 100) + `"`,
		`{"\\\"` + strings.Repeat("{", 100) + `":"-0"}`,
		`"1e400, -0 and 9007199254740993 are text"`,
	} {
		if err := canon.Check([]byte(in), canon.Limits{MaxDepth: 1}); err != nil {
			t.Errorf("%s: %v", clip(in), err)
		}
	}
}

func TestCanonicalizeNeverAliases(t *testing.T) {
	for _, in := range []string{`{"a":"b"}`, `{ "a" : "b" }`} {
		data := []byte(in)
		out, err := canon.Canonicalize(data, canon.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		clear(data)
		if string(out) != `{"a":"b"}` {
			t.Errorf("%s: the result changed with the input: %s", in, out)
		}
	}
}

func TestCheckCanonical(t *testing.T) {
	for in, want := range map[string]error{
		`{"a":1,"b":[true,null,"é"]}`: nil,
		`{"b":1,"a":1}`:               canon.ErrNotCanonical,
		`{"a":1.0}`:                   canon.ErrNotCanonical,
		`{"a": 1}`:                    canon.ErrNotCanonical,
		`"\u0061"`:                    canon.ErrNotCanonical,
		`"\/"`:                        canon.ErrNotCanonical,
		`"\u000A"`:                    canon.ErrNotCanonical,
		`"\u000a"`:                    canon.ErrNotCanonical,
		`"\n\u000b\u001f"`:            nil,
		`"\u001F"`:                    canon.ErrNotCanonical,
		`{"a":1,"a":1}`:               canon.ErrDuplicateMember,
		`[-0]`:                        canon.ErrNumber,
		`{`:                           canon.ErrSyntax,
		// Names sort by UTF-16 code units, not by code points: U+1F600 is D83D DE00.
		"{\"\U0001F600\":1,\"\ufb33\":2}": nil,
		"{\"\ufb33\":2,\"\U0001F600\":1}": canon.ErrNotCanonical,
		`{"\"":1,"a":2}`:                  nil,
		`{"a":2,"\"":1}`:                  canon.ErrNotCanonical,
	} {
		if err := canon.CheckCanonical([]byte(in), canon.Limits{}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", in, err, want)
		}
	}
}

type closedType struct {
	Purpose string           `json:"purpose"`
	Inner   inner            `json:"inner"`
	List    []inner          `json:"list"`
	ByName  map[string]inner `json:"byName"`
	Raw     jsontext.Value   `json:"raw"`
	When    time.Time        `json:"when"`
	Sum     canon.Digest     `json:"sum"`
	Self    *closedType      `json:"self"`
	embedded
	Hidden string `json:"-"`
}

type inner struct {
	Kid string `json:"kid"`
}

type embedded struct {
	From string `json:"from"`
}

func TestUnmarshalMembers(t *testing.T) {
	for _, tc := range []struct {
		name, in     string
		closed, open error
		path         string
	}{
		{"known", `{"purpose":"x","from":"y","inner":{"kid":"1"},"list":[{"kid":"2"}],"byName":{"Kid":{"kid":"3"}}}`, nil, nil, ""},
		{"nothing", `{}`, nil, nil, ""},
		{"unknown", `{"other":1}`, canon.ErrUnknownMember, nil, "/other"},
		{"unknown deep down", `{"list":[{},{"x":1}]}`, canon.ErrUnknownMember, nil, "/list/1/x"},
		{"case variant", `{"Purpose":"x"}`, canon.ErrCaseVariant, canon.ErrCaseVariant, "/Purpose"},
		{"case variant beside the known", `{"purpose":"x","PURPOSE":"y"}`, canon.ErrCaseVariant, canon.ErrCaseVariant, "/PURPOSE"},
		{"case variant of an embedded field", `{"FROM":"x"}`, canon.ErrCaseVariant, canon.ErrCaseVariant, "/FROM"},
		{"case variant in an object", `{"inner":{"KID":"x"}}`, canon.ErrCaseVariant, canon.ErrCaseVariant, "/inner/KID"},
		{"case variant in a list", `{"list":[{"kid":"x"},{"Kid":"x"}]}`, canon.ErrCaseVariant, canon.ErrCaseVariant, "/list/1/Kid"},
		{"case variant in a map's element", `{"byName":{"a":{"kId":"x"}}}`, canon.ErrCaseVariant, canon.ErrCaseVariant, "/byName/a/kId"},
		{"case variant behind a pointer", `{"self":{"self":{"pUrpose":"x"}}}`, canon.ErrCaseVariant, canon.ErrCaseVariant, "/self/self/pUrpose"},
		{"case variant by Unicode folding", "{\"\u017felf\":{}}", canon.ErrCaseVariant, canon.ErrCaseVariant, "/\u017felf"},
		{"raw contents are free", `{"raw":{"Purpose":1,"purpose":2}}`, nil, nil, ""},
		{"hidden field", `{"Hidden":"x"}`, canon.ErrUnknownMember, nil, "/Hidden"},
		{"Go name of a field", `{"ByName":{}}`, canon.ErrCaseVariant, canon.ErrCaseVariant, "/ByName"},
		{"wrong type", `{"purpose":1}`, canon.ErrType, canon.ErrType, "/purpose"},
		{"wrong type deep down", `{"list":{"kid":1}}`, canon.ErrType, canon.ErrType, "/list"},
		{"bad digest", `{"sum":"sha-256:x"}`, canon.ErrType, canon.ErrType, "/sum"},
		{"bad digest says so", `{"sum":"sha-256:x"}`, canon.ErrDigest, canon.ErrDigest, "/sum"},
		{"bad time", `{"when":"yesterday"}`, canon.ErrType, canon.ErrType, "/when"},
		{"array for an object", `[]`, canon.ErrType, canon.ErrType, ""},
		{"duplicate of a known one", `{"purpose":"x","purpose":"x"}`, canon.ErrDuplicateMember, canon.ErrDuplicateMember, "/purpose"},
		{"duplicate of an unknown one", `{"z":1,"z":1}`, nil, canon.ErrDuplicateMember, "/z"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, spaced := range []bool{false, true} {
				in := tc.in
				if spaced { // past the fast path
					in = " " + in + "\n"
				}
				var v closedType
				err := canon.UnmarshalOpen([]byte(in), &v, canon.Limits{})
				check(t, "UnmarshalOpen", err, tc.open, tc.path)
				v = closedType{}
				err = canon.Unmarshal([]byte(in), &v, canon.Limits{})
				if tc.closed == nil && tc.open != nil { // refused either way, for one of two reasons
					if err == nil {
						t.Error("Unmarshal accepted it")
					}
					continue
				}
				check(t, "Unmarshal", err, tc.closed, tc.path)
			}
		})
	}
}

func check(t *testing.T, verb string, err, want error, path string) {
	t.Helper()
	if !errors.Is(err, want) || want == nil && err != nil {
		t.Errorf("%s: %v, want %v", verb, err, want)
		return
	}
	if e, ok := errors.AsType[*canon.Error](err); want != nil && (!ok || e.Path != path) {
		t.Errorf("%s: %v, want path %q", verb, err, path)
	}
}

func TestErrorsQuoteNoValues(t *testing.T) {
	const secret = "hunter2"
	for _, in := range []string{
		`{"purpose":{"x":"` + secret + `"}}`, `{"when":"` + secret + `"}`, `{"list":"` + secret + `"}`,
		`{"inner":["` + secret + `"]}`, `{"purpose":"` + secret, `"` + secret + "\x00\"", `{"when":"2026-` + secret + `"}`,
	} {
		var v closedType
		err := canon.Unmarshal([]byte(in), &v, canon.Limits{})
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestMarshal(t *testing.T) {
	got, err := canon.Marshal(map[string]any{
		"z": 1, "a": []string(nil), "m": map[string]int(nil), "\U0001F600": 1, "\ufb33": 2, "h": "<&>\u2028", "sum": canon.Sum(nil),
	})
	const want = `{"a":[],"h":"<&>` + "\u2028" + `","m":{},"sum":"sha-256:47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU","z":1,` +
		"\"\U0001F600\":1,\"\ufb33\":2}"
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
	for name, v := range map[string]any{
		"2^53+1": int64(1<<53 + 1), "infinity": math.Inf(1), "minus zero": math.Copysign(0, -1), "invalid UTF-8": "\xff", "channel": make(chan int),
	} {
		if got, err := canon.Marshal(v); err == nil {
			t.Errorf("%s was encoded as %s", name, got)
		}
	}
}
