// SPDX-License-Identifier: Apache-2.0

// Package odcs reads and writes data contracts of the Open Data Contract Standard (ODCS), version 3.
//
// Guarantees
//
//   - [Import] either gives datasets that a node takes as they are, or says of everything that does not map where it stands and
//     why. It guesses no type, no class and no name.
//   - What it read and has no use for is listed, so that nobody believes a section to be in force that is not.
//   - [Export] writes documents that the standard's JSON Schema accepts and that [Import] reads back to the same columns,
//     types, classes and descriptions.
//   - Input is bounded in size, depth and number of nodes, aliases counted as often as they are used.
//
// What it does not do: quality rules, prices, teams, service levels and servers of the standard have no counterpart here. An
// exported contract tells people and catalogues what was agreed; what is enforced is the signed contract.
package odcs

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataset"
)

// Bounds of an imported document.
const (
	MaxBytes    = 4 << 20
	maxDepth    = 24
	maxNodes    = 200_000
	maxProblems = 200
)

// ErrDocument is wrapped by every error about an imported document.
var ErrDocument = errors.New("odcs: not importable")

// Names of custom properties that this package writes and reads back.
const (
	PropertySubject = "treatySubject"
	PropertyPath    = "treatyPath"
)

// Finding is one thing in the document that is not as a node needs it.
type Finding struct {
	Where string `json:"where"` // such as schema.orders.properties.email
	Line  int    `json:"line"`
	Text  string `json:"text"`
}

func (f Finding) String() string { return fmt.Sprintf("line %d: %s: %s", f.Line, f.Where, f.Text) }

// Options of Import.
type Options struct {
	// Skip leaves out columns and objects that do not map, instead of refusing the document.
	Skip bool
}

// Result is what Import made of a document.
type Result struct {
	ID, Name, Version, Status string
	Datasets                  dataset.Config
	Skipped                   []Finding // with Options.Skip: left out
	Notes                     []Finding // taken, and to be looked at
	Unused                    []string  // top-level sections that have no counterpart here
}

// Unmapped is the error of a document of which something does not map. It wraps ErrDocument.
type Unmapped struct{ Problems []Finding }

func (e *Unmapped) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return ErrDocument.Error() + ":\n  " + strings.Join(lines, "\n  ")
}

// Unwrap makes errors.Is(err, ErrDocument) true.
func (e *Unmapped) Unwrap() error { return ErrDocument }

// unused are sections of the standard that say nothing to a node.
var unused = map[string]bool{
	"servers": true, "price": true, "team": true, "roles": true, "slaProperties": true, "slaDefaultElement": true, "support": true,
	"authoritativeDefinitions": true, "customProperties": true, "tags": true, "tenant": true, "dataProduct": true, "domain": true,
	"description": true, "contractCreatedTs": true, "context": true, "variables": true,
}

// Import reads a data contract. An error matches ErrDocument; it is an *Unmapped when the document could be read.
func Import(data []byte, o Options) (*Result, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("%w: larger than %d bytes", ErrDocument, MaxBytes)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	im := &importer{opts: o, left: maxNodes, out: &Result{Datasets: dataset.Config{}}}
	if err := im.bounded(&doc, 0); err != nil {
		return nil, err
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, fmt.Errorf("%w: there is no document in it", ErrDocument)
	}
	im.document(resolve(doc.Content[0]))
	if len(im.problems) == 0 && len(im.out.Datasets) == 0 {
		im.problem("schema", doc.Content[0], "no dataset remains")
	}
	if len(im.problems) > 0 {
		return nil, &Unmapped{im.problems}
	}
	if err := im.out.Datasets.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	return im.out, nil
}

type importer struct {
	opts     Options
	left     int // nodes that may still be visited
	out      *Result
	problems []Finding
}

// bounded walks the tree as the importer will, so that an alias that refers to an alias, and so on, ends.
func (im *importer) bounded(n *yaml.Node, depth int) error {
	if im.left--; im.left < 0 || depth > maxDepth {
		return fmt.Errorf("%w: line %d: too deep, or more than %d nodes", ErrDocument, n.Line, maxNodes)
	}
	if n.Kind == yaml.AliasNode {
		return im.bounded(n.Alias, depth+1)
	}
	for _, c := range n.Content {
		if err := im.bounded(c, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func (im *importer) problem(where string, n *yaml.Node, format string, args ...any) {
	if len(im.problems) < maxProblems {
		im.problems = append(im.problems, Finding{where, n.Line, fmt.Sprintf(format, args...)})
	}
}

func (im *importer) note(where string, n *yaml.Node, format string, args ...any) {
	im.out.Notes = append(im.out.Notes, Finding{where, n.Line, fmt.Sprintf(format, args...)})
}

// unmapped is a problem, or with Options.Skip the reason why something is left out.
func (im *importer) unmapped(where string, n *yaml.Node, format string, args ...any) {
	if !im.opts.Skip {
		im.problem(where, n, format, args...)
		return
	}
	if len(im.out.Skipped) < maxProblems {
		im.out.Skipped = append(im.out.Skipped, Finding{where, n.Line, fmt.Sprintf(format, args...)})
	}
}

// object is a mapping's members, in order.
type object struct {
	node   *yaml.Node
	keys   []string
	values map[string]*yaml.Node
}

// object reads a mapping; a key that is there twice is a problem.
func (im *importer) object(where string, n *yaml.Node) (object, bool) {
	o := object{node: n, values: map[string]*yaml.Node{}}
	if n.Kind != yaml.MappingNode {
		im.problem(where, n, "want a mapping")
		return o, false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value
		if _, twice := o.values[key]; twice {
			im.problem(where, n.Content[i], "key %s is there twice", contract.Echo(key))
			return o, false
		}
		o.keys = append(o.keys, key)
		o.values[key] = resolve(n.Content[i+1])
	}
	return o, true
}

// text is a scalar member as text, "" when it is absent or null.
func (im *importer) text(where string, o object, key string) string {
	n, ok := o.values[key]
	if !ok || n.Tag == "!!null" {
		return ""
	}
	if n.Kind != yaml.ScalarNode {
		im.problem(where+"."+key, n, "want text")
		return ""
	}
	return n.Value
}

// list is a sequence member, nil when it is absent or null.
func (im *importer) list(where string, o object, key string) []*yaml.Node {
	n, ok := o.values[key]
	if !ok || n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		im.problem(where+"."+key, n, "want a list")
		return nil
	}
	out := make([]*yaml.Node, 0, len(n.Content))
	for _, c := range n.Content {
		out = append(out, resolve(c))
	}
	return out
}

func (im *importer) document(n *yaml.Node) {
	o, ok := im.object("document", n)
	if !ok {
		return
	}
	if kind := im.text("document", o, "kind"); kind != "DataContract" {
		im.problem("kind", n, "is %s; want DataContract", contract.Echo(kind))
	}
	if v := im.text("document", o, "apiVersion"); !strings.HasPrefix(v, "v3.") {
		im.problem("apiVersion", n, "is %s; want v3.x (version 2 of the standard has tables and columns of another form: convert it first)", contract.Echo(v))
	}
	r := im.out
	r.ID, r.Name = im.text("document", o, "id"), im.text("document", o, "name")
	r.Version, r.Status = im.text("document", o, "version"), im.text("document", o, "status")
	if len(im.problems) > 0 {
		return
	}
	known := map[string]bool{"kind": true, "apiVersion": true, "id": true, "name": true, "version": true, "status": true, "schema": true}
	for _, key := range o.keys {
		switch {
		case unused[key]:
			r.Unused = append(r.Unused, key)
		case !known[key]:
			im.note(contract.Echo(key), o.values[key], "is no section of the standard that this program knows; it was not looked at")
		}
	}
	list := im.list("document", o, "schema")
	if len(list) == 0 && len(im.problems) == 0 {
		im.problem("schema", n, "there is none: a contract without objects describes no dataset")
	}
	for i, e := range list {
		im.dataset(fmt.Sprintf("schema[%d]", i), e)
	}
}
