// SPDX-License-Identifier: Apache-2.0

package treaty_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/metaproto"
	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/server"
	"github.com/treaty-node/treaty/node/dataset"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/ledger/evidence"
	"github.com/treaty-node/treaty/node/negotiation/policy"
	"github.com/treaty-node/treaty/node/notice"
	"github.com/treaty-node/treaty/node/signer"
)

const samples = "docs/samples"

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Every sample is read by the loader that reads an operator's file.
func TestSamplesLoad(t *testing.T) {
	cfg, err := node.LoadConfig(samples)
	if err != nil {
		t.Fatal(err)
	}
	sets, err := dataset.ParseConfig(read(t, filepath.Join(samples, cfg.Datasets)))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := policy.ParseVendor(read(t, filepath.Join(samples, cfg.Policy)))
	if err != nil {
		t.Fatal(err)
	}
	for id := range rules.Datasets {
		if _, ok := sets[id]; !ok {
			t.Errorf("policy.yaml: there is no dataset %q", id)
		}
	}
	needs, err := policy.ParseNeeds(read(t, filepath.Join(samples, cfg.Needs)))
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(needs.Alternatives) + 1 {
		schema, err := sets.Schema(needs.Dataset)
		if err != nil {
			t.Fatal(err)
		}
		if err := needs.Check(i, schema); err != nil {
			t.Errorf("needs.yaml, ask %d: %v", i, err)
		}
	}
	plane, err := server.Load(samples, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if plane.DID.String() != cfg.DataPlane.DID || plane.URL != cfg.DataPlane.URL {
		t.Errorf("the samples disagree about the data plane: %s at %s", plane.DID, plane.URL)
	}
	if _, err := signer.LoadConfig(samples); err != nil {
		t.Fatal(err)
	}
}

// The keys of each file are those that the loader takes, no more and no fewer, and the samples show them.
func TestConfigurationDocumented(t *testing.T) {
	page := string(read(t, "docs/configuration.md"))
	want := map[string][]string{
		"treaty.yaml":        structKeys(reflect.TypeFor[node.Config](), ""),
		"dataplane.yaml":     structKeys(reflect.TypeFor[server.File](), ""),
		"datasets.yaml":      structKeys(reflect.TypeFor[dataset.Config](), ""),
		"treaty-signer.yaml": structKeys(reflect.TypeFor[signer.Config](), ""),
		"policy.yaml":        policyKeys(t),
		"needs.yaml":         needsKeys(t),
	}
	// Ways to unseal a key exclude each other, so that a sample shows one of them.
	shownOnce := map[string]bool{"identity": true, "passphrase": true, "passphrase_file": true, "keys.identity": true, "keys.passphrase": true, "keys.passphrase_file": true, "pin.file": true}
	for file, keys := range want {
		_, section, ok := strings.Cut(page, "\n## "+file+"\n")
		if !ok {
			t.Errorf("docs/configuration.md has no section %s", file)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		var documented []string
		for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(section, -1) {
			documented = append(documented, m[1])
		}
		for _, k := range keys {
			if !slices.Contains(documented, k) {
				t.Errorf("docs/configuration.md: %s: the key %s is missing", file, k)
			}
		}
		for i, k := range documented {
			if !slices.Contains(keys, k) {
				t.Errorf("docs/configuration.md: %s: there is no key %s", file, k)
			}
			if slices.Contains(documented[:i], k) {
				t.Errorf("docs/configuration.md: %s: %s is there twice", file, k)
			}
		}
		sample := string(read(t, filepath.Join(samples, file)))
		for _, k := range keys {
			name := k[strings.LastIndexByte(k, '.')+1:]
			if !regexp.MustCompile(`(?m)(^|[\s{,-])`+name+`:`).MatchString(sample) && !shownOnce[k] && !inherited[file+" "+k] {
				t.Errorf("%s/%s does not show %s", samples, file, k)
			}
		}
	}
}

// inherited are keys that a sample leaves out because they say nothing there.
var inherited = map[string]bool{
	"dataplane.yaml ca": true, "dataplane.yaml trust.allow": true, "dataplane.yaml trust.methods": true, "dataplane.yaml trust.contract_profiles": true,
}

// structKeys lists the paths of yaml keys that a value of type t is decoded from.
func structKeys(t reflect.Type, prefix string) []string {
	var keys []string
	switch t.Kind() {
	case reflect.Pointer:
		return structKeys(t.Elem(), prefix)
	case reflect.Slice:
		if leaf(t.Elem()) {
			return []string{prefix}
		}
		return structKeys(t.Elem(), prefix+"[]")
	case reflect.Map:
		if leaf(t.Elem()) || t.Elem().Kind() == reflect.Slice {
			return []string{prefix}
		}
		name := "<name>"
		if prefix == "" {
			name = "<id>"
		}
		return structKeys(t.Elem(), strings.TrimPrefix(prefix+"."+name, "."))
	case reflect.Struct:
		if leaf(t) {
			return []string{prefix}
		}
	default:
		return []string{prefix}
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case strings.Contains(options, "inline"):
			keys = append(keys, structKeys(f.Type, prefix)...)
		case name != "" && name != "-":
			keys = append(keys, structKeys(f.Type, strings.TrimPrefix(prefix+"."+name, "."))...)
		}
	}
	return keys
}

// leaf says whether a type is one value in the file: no struct, or one that reads itself and names no keys.
func leaf(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return t.Kind() != reflect.Map && t.Kind() != reflect.Slice
	}
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("yaml") != "" {
			return false
		}
	}
	return true
}

var known = regexp.MustCompile(`unknown key; known are (.*)$`)

// knownKeys asks a parser which keys it knows in a place: it says so when it is given one that it does not know.
func knownKeys(t *testing.T, parse func([]byte) error, file string) []string {
	t.Helper()
	err := parse([]byte(file))
	if !errors.Is(err, policy.ErrFile) {
		t.Fatalf("%s: %v", file, err)
	}
	m := known.FindStringSubmatch(err.Error())
	if m == nil {
		t.Fatalf("%s: %v", file, err)
	}
	return strings.Split(m[1], ", ")
}

func policyKeys(t *testing.T) []string {
	parse := func(b []byte) error { _, err := policy.ParseVendor(b); return err }
	keys := knownKeys(t, parse, "version: 1\nx: 1\n")
	for _, k := range knownKeys(t, parse, "version: 1\ndatasets: {o: {x: 1}}\n") {
		keys = append(keys, "datasets.<id>."+k)
	}
	for path, file := range map[string]string{
		"row_filter[].": "row_filter: [{x: 1}]", "rate.": "rate: {x: 1}", "classes.<class>.": "classes: {c: {x: 1}}", "noise.": "noise: {x: 1}", "noise.bounds.<column>.": "noise: {bounds: {c: {x: 1}}}",
	} {
		for _, k := range knownKeys(t, parse, "version: 1\ndatasets: {o: {"+file+"}}\n") {
			keys = append(keys, "datasets.<id>."+path+k)
		}
	}
	// These are nothing but their parts.
	return slices.DeleteFunc(keys, func(k string) bool {
		return k == "datasets.<id>.rate" || k == "datasets.<id>.classes" || k == "datasets.<id>.noise" || k == "datasets.<id>.noise.bounds"
	})
}

func needsKeys(t *testing.T) []string {
	parse := func(b []byte) error { _, err := policy.ParseNeeds(b); return err }
	top := knownKeys(t, parse, "x: 1\n")
	below := map[string]string{
		"columns": "columns: {x: 1}\n", "operations": "operations: {x: 1}\n", "retention_days": "retention_days: {x: 1}\n",
		"call_budget": "call_budget: {x: 1}\n", "row_filter": "row_filter: [{x: 1}]\n", "validity_days": "validity_days: {x: 1}\n",
		"min_rate": "min_rate: {x: 1}\n", "row_budget": "row_budget: {x: 1}\n", "noise": "noise: {x: 1}\n",
	}
	keys := slices.Clone(top)
	for _, k := range slices.Sorted(maps.Keys(below)) {
		if !slices.Contains(top, k) {
			t.Fatalf("there is no key %s", k)
		}
		dot := "."
		if k == "row_filter" {
			dot = "[]."
		}
		for _, s := range knownKeys(t, parse, below[k]) {
			keys = append(keys, k+dot+s)
		}
	}
	// These are nothing but their parts.
	return slices.DeleteFunc(keys, func(k string) bool {
		return slices.Contains([]string{"retention_days", "call_budget", "validity_days", "min_rate", "row_budget", "noise"}, k)
	})
}

// A ceiling that names a dataset or column which is not there protects nothing; the sample's must be right.
func TestSampleCeiling(t *testing.T) {
	plane, err := server.Load(samples, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for id, columns := range plane.Ceiling.DenyColumns {
		for _, name := range columns {
			if _, ok := plane.Sets[id].Columns[name]; !ok {
				t.Errorf("ceiling.deny_columns.%s: there is no column %q", id, name)
			}
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)?(#[^)\s]+)?\)`)

// Links between the pages lead somewhere.
func TestDocumentationLinks(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("docs/decisions/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(append(pages, more...), "README.md", "CONTRIBUTING.md")
	for _, page := range pages {
		for _, m := range link.FindAllStringSubmatch(string(read(t, page)), -1) {
			target := page
			if m[1] != "" {
				if strings.Contains(m[1], "://") {
					continue
				}
				target = filepath.Join(filepath.Dir(page), m[1])
				if _, err := os.Stat(target); err != nil {
					t.Errorf("%s: %s leads nowhere", page, m[0])
					continue
				}
			}
			if m[2] != "" && !slices.Contains(anchors(string(read(t, target))), m[2][1:]) {
				t.Errorf("%s: %s leads to no heading", page, m[0])
			}
		}
	}
}

var heading = regexp.MustCompile(`(?m)^#+ (.*)$`)

// anchors are the ids that a Markdown page's headings get.
func anchors(page string) []string {
	var out []string
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		out = append(out, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
				return r
			}
			return -1
		}, strings.ToLower(m[1])))
	}
	return out
}

// What the protocol page says of labels, codes and examples is what the code and the golden files say.
func TestProtocolDocumented(t *testing.T) {
	page := string(read(t, "docs/protocol.md"))
	must := []string{
		envelope.ExtensionURI, envelope.MediaType, envelope.ContractMediaType, envelope.ReceiptMediaType, envelope.EvidenceMediaType, envelope.TokenType, string(hpke.SuiteX25519), contract.DocumentType, contract.OfferType,
		contract.ActivationType, contract.RevocationType, contract.DeletionType, contract.AcknowledgementType, contract.ReceiptType, contract.QueryType, metaproto.AgreementType, evidence.Type,
		notice.BodyType, notice.AnswerType, notice.CodeUnknownKind, datatools.MetaReceipt, datatools.QueryRecords, datatools.DescribeContract, datatools.ListDatasets,
	}
	for _, c := range envelope.Codes() {
		must = append(must, string(c))
	}
	for _, c := range contract.Codes() {
		must = append(must, string(c))
	}
	// Labels of what travels. Elsewhere they are a process's own business, as this one is.
	local := []string{"treaty metaproto proposal v1"}
	for _, file := range goFiles(t, false, "did", "hpke", "metaproto", "node/envelope", "node/contract", "node/ledger") {
		for _, m := range regexp.MustCompile(`"(treaty [a-z ]+ v[0-9]+)"`).FindAllStringSubmatch(string(read(t, file)), -1) {
			if !slices.Contains(local, m[1]) {
				must = append(must, m[1])
			}
		}
	}
	for line := range strings.Lines(string(read(t, "node/contract/testdata/digests.txt"))) {
		if name, digest, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "schema" {
			must = append(must, digest)
		}
	}
	golden, err := contract.Parse(read(t, "node/contract/testdata/contract.json"))
	if err != nil {
		t.Fatal(err)
	}
	must = append(must, golden.ID, golden.Transcript.String())
	for _, s := range must {
		if !strings.Contains(page, s) {
			t.Errorf("docs/protocol.md does not mention %s", s)
		}
	}
}

// Tests that the security page names for an invariant exist, and every invariant has one.
func TestInvariantsDocumented(t *testing.T) {
	exist := map[string]bool{}
	for _, file := range goFiles(t, true, "cmd", "did", "hpke", "metaproto", "node", "wellknown") {
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(read(t, file)), -1) {
			exist[m[1]] = true
		}
	}
	_, section, ok := strings.Cut(string(read(t, "docs/security.md")), "\n## Invariants\n")
	if !ok {
		t.Fatal("docs/security.md has no section Invariants")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	items := regexp.MustCompile(`(?m)^(\d+)\. `).Split(section, -1)
	if len(items) != 16 {
		t.Fatalf("%d invariants", len(items)-1)
	}
	for i, item := range items[1:] {
		prefix, found := fmt.Sprintf("TestInvariant%d", i+1), false
		for _, m := range regexp.MustCompile("`((?:Test)?[A-Za-z0-9]*_[A-Za-z0-9]+)`").FindAllStringSubmatch(item, -1) {
			name := m[1]
			if name[0] == '_' {
				name = prefix + name
			}
			if !strings.HasPrefix(name, "Test") {
				continue
			}
			found = found || strings.HasPrefix(name, prefix+"_")
			if !exist[name] {
				t.Errorf("docs/security.md, invariant %d: there is no %s", i+1, name)
			}
		}
		if !found {
			t.Errorf("docs/security.md names no test of invariant %d", i+1)
		}
	}
}

// goFiles lists the Go files below some folders: tests, or everything else.
func goFiles(t *testing.T, tests bool, dirs ...string) []string {
	t.Helper()
	var out []string
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && strings.HasSuffix(path, "_test.go") == tests {
				out = append(out, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(out) == 0 {
		t.Fatal("no files")
	}
	return out
}
