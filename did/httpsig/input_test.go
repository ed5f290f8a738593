// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
)

const goodInput = `sig1=("@method" "@target-uri" "@authority" "content-digest");created=1788768000;expires=1788768060;nonce="n";keyid="did:web:a.example#k"`

func TestParseSignatureInput(t *testing.T) {
	in, err := ParseSignatureInput([]string{goodInput})
	if err != nil {
		t.Fatal(err)
	}
	want := &Input{
		Label:      "sig1",
		Components: []Component{{Name: "@method"}, {Name: "@target-uri"}, {Name: "@authority"}, {Name: "content-digest"}},
		Created:    time.Unix(1788768000, 0).UTC(),
		Expires:    time.Unix(1788768060, 0).UTC(),
		Nonce:      "n",
		KeyID:      "did:web:a.example#k",
		params:     strings.TrimPrefix(goodInput, "sig1="),
	}
	if !reflect.DeepEqual(in, want) {
		t.Errorf("got %+v\nwant %+v", in, want)
	}
}

// A form that a parser may accept is signed in the form that serializers
// produce (RFC 8941 section 4.1, RFC 9421 section 2.3).
func TestParseSignatureInputSerializes(t *testing.T) {
	for input, want := range map[string]string{
		`a=()`:                                    `()`,
		`a=( "@method"  "x" )`:                    `("@method" "x")`,
		`a=("x");created=007`:                     `("x");created=7`,
		`a=("x"); created=7;  keyid="k"`:          `("x");created=7;keyid="k"`,
		`a=("x");nonce="a\"b\\c"`:                 `("x");nonce="a\"b\\c"`,
		`a=("x");f=?1;g=?0;h=1.50;i=tok;j=:YQ==:`: `("x");f;g=?0;h=1.5;i=tok;j=:YQ==:`,
		` a=("x");tag="t" `:                       `("x");tag="t"`,
		`a=("@query-param";name="p")`:             `("@query-param";name="p")`,
	} {
		in, err := ParseSignatureInput([]string{input})
		if err != nil || in.params != want {
			t.Errorf("%s: %v, %v, want %s", input, in, err, want)
		}
	}
}

func TestParseSignatureInputRefuses(t *testing.T) {
	long := strings.Repeat("x", 2000)
	many := strings.Builder{}
	for c := range 'z' - 'a' + 1 {
		many.WriteString(` "a` + string('a'+c) + `" "b` + string('a'+c) + `"`)
	}
	for name, lines := range map[string][]string{
		"nothing":                     nil,
		"an empty field":              {""},
		"no list":                     {`sig1=1`},
		"a flag":                      {`sig1`},
		"trailing comma":              {`sig1=();created=1,`},
		"trailing garbage":            {`sig1=();created=1 x`},
		"unterminated list":           {`sig1=("@method"`},
		"unterminated string":         {`sig1=("@method`},
		"components without space":    {`sig1=("@method""@path")`},
		"components with tab":         {"sig1=(\"@method\"\t\"@path\")"},
		"upper case label":            {`Sig1=()`},
		"two signatures":              {`sig1=(), sig2=()`},
		"two signatures on two lines": {`sig1=()`, `sig2=()`},
		"a repeated label":            {`sig1=("a"), sig1=("b")`},
		"a label repeated on lines":   {`sig1=()`, `sig1=()`},
		"a repeated parameter":        {`sig1=();created=1;created=2`},
		"a repeated unknown one":      {`sig1=();a=1;a=2`},
		"a repeated component":        {`sig1=("@method" "@method")`},
		"a repeated query parameter":  {`sig1=("@query-param";name="a" "@query-param";name="a")`},
		"a repeated component name":   {`sig1=("@query-param";name="a";name="b")`},
		"a token as component":        {`sig1=(date)`},
		"an empty component":          {`sig1=("")`},
		"an upper case field":         {`sig1=("Date")`},
		"a field with a space":        {`sig1=("da te")`},
		"an unknown derived one":      {`sig1=("@unknown")`},
		"a response component":        {`sig1=("@status")`},
		"signature parameters":        {`sig1=("@signature-params")`},
		"query-param without name":    {`sig1=("@query-param")`},
		"method with a name":          {`sig1=("@method";name="x")`},
		"a field with a name":         {`sig1=("date";name="x")`},
		"component parameter sf":      {`sig1=("date";sf)`},
		"component parameter bs":      {`sig1=("date";bs)`},
		"component parameter key":     {`sig1=("date";key="a")`},
		"component parameter req":     {`sig1=("@method";req)`},
		"component parameter tr":      {`sig1=("date";tr)`},
		"created as a string":         {`sig1=();created="1"`},
		"created as a decimal":        {`sig1=();created=1.0`},
		"negative created":            {`sig1=();created=-1`},
		"created of 15 digits":        {`sig1=();created=999999999999999`},
		"created as a flag":           {`sig1=();created`},
		"expires as a token":          {`sig1=();expires=never`},
		"nonce as an integer":         {`sig1=();nonce=1`},
		"nonce as bytes":              {`sig1=();nonce=:YQ==:`},
		"keyid as a token":            {`sig1=();keyid=k`},
		"alg as a token":              {`sig1=();alg=ed25519`},
		"tag as an integer":           {`sig1=();tag=1`},
		"a date of RFC 9651":          {`sig1=();a=@1`},
		"a display string":            {`sig1=();a=%"b"`},
		"a repetition behind one":     {`sig1=();a=%"\";b=1;b=2;c="`},
		"non-ASCII":                   {`sig1=();nonce="é"`},
		"a control character":         {"sig1=();nonce=\"\x01\""},
		"a long nonce":                {`sig1=();nonce="` + long[:maxNonceBytes+1] + `"`},
		"a long keyid":                {`sig1=();keyid="` + long[:maxKeyIDBytes+1] + `"`},
		"a long field":                {`sig1=();a="` + strings.Repeat(long, 5) + `"`},
		"many components":             {`sig1=(` + many.String()[1:] + `)`},
	} {
		if in, err := ParseSignatureInput(lines); !errors.Is(err, ErrInput) {
			t.Errorf("%s: %+v, %v, want ErrInput", name, in, err)
		}
	}
}

// FuzzParseSignatureInput checks that the fast way takes nothing that the
// general way does not take with the same result, and that what is accepted
// serializes to itself.
func FuzzParseSignatureInput(f *testing.F) {
	for _, seed := range []string{
		goodInput, `sig1=()`, `a=("x");created=1;expires=2;alg="ed25519";tag="t"`, `a=( "x" );b`, `a=("x" "y";name="z"),b=()`,
		`a=("@query-param";name="p\"q");created=12;x=:YQ==:;y=?0;z=1.5`, `*=();nonce="";keyid="\\"`, `a=();created=01`, `a=("x")   `,
	} {
		f.Add(seed, "")
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, line, second string) {
		lines := []string{line}
		if second != "" {
			lines = append(lines, second)
		}
		in, err := ParseSignatureInput(lines)

		fast, general := &Input{Components: []Component{}}, &Input{Components: []Component{}}
		fastTook := len(lines) == 1 && parseCanonical(fast, line)
		generalErr := parseGeneral(general, lines)
		if fastTook && generalErr != nil {
			t.Fatalf("only the fast way takes %q: %v", line, generalErr)
		}
		if fastTook && !reflect.DeepEqual(fast, general) {
			t.Fatalf("%q\nfast    %+v\ngeneral %+v", line, fast, general)
		}
		if err != nil {
			return
		}
		again, err := ParseSignatureInput([]string{in.Label + "=" + in.params})
		if err != nil || again.params != in.params || !reflect.DeepEqual(again.Components, in.Components) {
			t.Fatalf("%q serializes to %q, which is read as %+v, %v", lines, in.params, again, err)
		}
		if dict, err := httpsfv.UnmarshalDictionary(lines); err != nil || len(dict.Names()) != 1 {
			t.Fatalf("accepted %q, which is no dictionary of one member: %v", lines, err)
		}
	})
}

func FuzzSignatureAndDigestFields(f *testing.F) {
	f.Add("sig1=:AAAA:", "sig1")
	f.Add(ContentDigest(nil), "sha-256")
	f.Add(`sig1=:AAAA:;a=1, sha-256=:AA==:`, "sig1")
	f.Fuzz(func(t *testing.T, line, label string) {
		if !validKey(label) {
			return // labels come from a parsed Signature-Input
		}
		if sig, err := parseSignature([]string{line}, label); err == nil {
			item := httpsfv.NewItem(sig)
			dict := httpsfv.NewDictionary()
			dict.Add(label, item)
			canonical, err := httpsfv.Marshal(dict)
			if err != nil {
				t.Fatalf("%q has label %q, which cannot be written: %v", line, label, err)
			}
			if _, err := parseSignature([]string{canonical}, label); err != nil {
				t.Fatalf("%q is taken, %q is not: %v", line, canonical, err)
			}
		}
		if CheckContentDigest([]string{line}, []byte(label)) == nil && !strings.Contains(line, "sha-256=:") {
			t.Fatalf("%q was taken for a digest", line)
		}
	})
}

func FuzzParseChallenge(f *testing.F) {
	f.Add(`realm="h", error="invalid_nonce", error_description="x", nonce="abc"`)
	f.Add(`error=invalid_nonce,nonce=a`)
	f.Add(`error="a\"b"`)
	f.Fuzz(func(t *testing.T, s string) {
		c, ok := parseChallenge(s)
		if ok && (c.Code == "" || c.Nonce != "" && !printable(c.Nonce, maxNonceBytes)) {
			t.Fatalf("%q gives %+v", s, c)
		}
	})
}
