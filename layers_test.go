// SPDX-License-Identifier: Apache-2.0

// Package treaty_test holds the rules that no single package can keep: what may import what.
package treaty_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/treaty-node/treaty"

// layers is the design's table from top to bottom: a package may import, directly or not, only packages of its own row or of
// rows above it. A package that no row names fails the test, so that a new one gets its place here.
var layers = [][]string{
	{"testvectors"},
	{"did/canon"},
	{"did"},
	{"did/httpsig"},
	{"did/resolver/fetch", "did/resolver/internal/tlstest"},
	{"did/resolver", "did/resolver/pinstest"},
	{"hpke"},
	{"metaproto"},
	{"wellknown"},
	{"node/internal/...", "node/harden", "node/signer/..."},
	{"node/envelope"},
	{"node/contract"},
	{"node/dataset/...", "node/datatools", "node/mcphttp", "node/cedar"},
	{"node/ledger/..."},
	{"node/store/..."},
	{"node/succession", "node/notice", "node/drill", "node/delegation"},
	{"node/lifecycle"},
	{"node/negotiation/..."},
	{"node/gateway/..."},
	{"node/dataplane/..."},
	{"node/httpapi"},
	{"node"},
	{"cmd/..."},
	{"tools/..."},
}

// never are edges that the order of the rows alone would allow.
var never = []struct{ from, to, why string }{
	{"node/dataplane/...", "node/negotiation/...", "the data plane cannot be negotiated with"},
	{"node/dataplane/...", "node/gateway/...", "the data plane cannot be negotiated with"},
	{"node", "node/dataplane/...", "the node never serves data"},
	{"cmd/treaty-dataplane/...", "node/negotiation/...", "the data plane cannot be negotiated with"},
	{"did/...", "node/...", "did is a library that others import"},
	{"hpke", "node/...", "hpke is a library that others import"},
	{"metaproto", "node/...", "metaproto is a library that others import"},
	{"wellknown", "node/...", "wellknown is a library that others import"},
}

// pure packages dial nothing, and read no clock and no disk of their own.
var pure = []string{"did/canon", "did", "hpke", "metaproto", "node/envelope", "node/contract", "node/ledger", "node/negotiation/policy", "node/negotiation/message"}

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
	CgoFiles   []string
}

func packages(t *testing.T, args ...string) []pkg {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Deps,CgoFiles", "-deps=false"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 15 {
		t.Fatalf("go list found %d packages", len(all))
	}
	return all
}

func match(pattern, path string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == base || strings.HasPrefix(path, base+"/")
	}
	return path == pattern
}

func layerOf(path string) int {
	return slices.IndexFunc(layers, func(row []string) bool {
		return slices.ContainsFunc(row, func(p string) bool { return match(p, path) })
	})
}

// TestLayers checks the order of the rows and the forbidden edges over transitive imports.
func TestLayers(t *testing.T) {
	for _, p := range packages(t, "./...") {
		path := strings.TrimPrefix(p.ImportPath, module+"/")
		if path == module {
			continue // this package: tests only
		}
		own := layerOf(path)
		if own < 0 {
			t.Errorf("%s stands in no layer: give it a row in layers_test.go", path)
			continue
		}
		for _, d := range p.Deps {
			dep, ok := strings.CutPrefix(d, module+"/")
			if !ok {
				continue
			}
			if l := layerOf(dep); l > own {
				t.Errorf("%s imports %s, which stands below it", path, dep)
			}
			for _, n := range never {
				if match(n.from, path) && match(n.to, dep) {
					t.Errorf("%s imports %s: %s", path, dep, n.why)
				}
			}
		}
	}
}

// TestPurePackages: no sockets, no HTTP, no files, no SQL in the pure cores.
func TestPurePackages(t *testing.T) {
	forbidden := []string{"net", "net/http", "os", "os/exec", "database/sql", "log", "log/slog"}
	for _, p := range packages(t, "./...") {
		path := strings.TrimPrefix(p.ImportPath, module+"/")
		if !slices.Contains(pure, path) {
			continue
		}
		for _, imp := range p.Imports {
			if slices.Contains(forbidden, imp) {
				t.Errorf("%s is pure and imports %s", path, imp)
			}
		}
	}
}

// TestCgoPlaces: cmd/treaty is one static binary; DuckDB lives in cmd/treaty-dataplane and PKCS#11 in cmd/treaty-signer, and
// nowhere else.
func TestCgoPlaces(t *testing.T) {
	places := map[string]string{"github.com/duckdb/": "cmd/treaty-dataplane/...", "github.com/miekg/pkcs11": "cmd/treaty-signer/..."}
	for _, p := range packages(t, "./...") {
		path := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, d := range p.Deps {
			for what, where := range places {
				if strings.HasPrefix(d, what) && !match(where, path) {
					t.Errorf("%s brings in %s", path, d)
				}
			}
		}
	}
}
