// SPDX-License-Identifier: Apache-2.0

package odcs_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataset"
	"github.com/treaty-node/treaty/node/dataset/odcs"
	"github.com/treaty-node/treaty/node/dataset/sample"
	"github.com/treaty-node/treaty/testvectors"
)

const head = "apiVersion: v3.1.0\nkind: DataContract\nid: a\nname: n\nversion: 1.0.0\nstatus: active\n"

func vector(t testing.TB, name string) []byte {
	t.Helper()
	data, err := testvectors.Read("odcs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// valid holds a document against the standard's own JSON Schema.
func valid(t *testing.T, doc []byte) {
	t.Helper()
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(vector(t, "odcs-json-schema-v3.1.0.json")))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("odcs.json", schema); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("odcs.json")
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := yaml.Unmarshal(doc, &v); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(v); err != nil {
		t.Errorf("%v\n%s", err, doc)
	}
}

// What is exported is a document of the standard, and imports to the same.
func TestRoundTrip(t *testing.T) {
	sets, err := dataset.ParseConfig([]byte(sample.Config))
	if err != nil {
		t.Fatal(err)
	}
	sets["every_type"] = dataset.Dataset{
		Path: "data/every type.csv", Description: "One column of each type", Subject: "who",
		Columns: map[string]dataset.Column{
			"who": {Type: "text", Class: "pii"}, "n": {Type: "integer", Class: "public"}, "d": {Type: "decimal(38,0)", Class: "internal"}, "m": {Type: "decimal(10,2)"},
			"x": {Type: "double", Class: "a-b_c"}, "b": {Type: "boolean", Class: "public"}, "day": {Type: "date", Class: "public"},
			"at": {Type: "timestamp", Class: "public"}, "atz": {Type: "timestamptz", Class: "public"},
		},
	}
	doc, err := odcs.Export(odcs.Header{ID: "urn:treaty:x", Name: "Orders", Version: "1.0.0", Status: "active", Domain: "sales"}, sets)
	if err != nil {
		t.Fatal(err)
	}
	valid(t, doc)
	got, err := odcs.Import(doc, odcs.Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, doc)
	}
	if !reflect.DeepEqual(got.Datasets, sets) {
		t.Errorf("got  %+v\nwant %+v", got.Datasets, sets)
	}
	if got.ID != "urn:treaty:x" || got.Name != "Orders" || got.Status != "active" {
		t.Errorf("header %+v", got)
	}
}

// The standard's own examples.
func TestImportExamples(t *testing.T) {
	r, err := odcs.Import(vector(t, "all-data-types.odcs.yaml"), odcs.Options{Skip: true})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"account_id": "text", "txn_ref_date": "date", "txn_timestamp": "timestamp", "txn_timestamp_tz": "timestamptz", "amount": "double", "age": "integer", "is_open": "boolean",
	}
	columns := r.Datasets["transactions_tbl"].Columns
	if len(columns) != len(want) {
		t.Errorf("columns %+v", columns)
	}
	for name, typ := range want {
		if columns[name].Type != typ {
			t.Errorf("%s is %q, want %s", name, columns[name].Type, typ)
		}
	}
	if len(r.Skipped) != 3 { // a time, an array, an object
		t.Errorf("skipped %v", r.Skipped)
	}
	_, err = odcs.Import(vector(t, "all-data-types.odcs.yaml"), odcs.Options{})
	var un *odcs.Unmapped
	if !errors.As(err, &un) || len(un.Problems) != 3 || un.Problems[0].Line == 0 || !strings.Contains(err.Error(), "schema.transactions_tbl.txn_time") {
		t.Errorf("err = %v", err)
	}

	full, err := odcs.Import(vector(t, "full-example.odcs.yaml"), odcs.Options{Skip: true})
	if err != nil {
		t.Fatal(err)
	}
	if c := full.Datasets["tbl"].Columns["txn_ref_dt"]; c.Type != "date" || c.Class != "public" { // by the name that the data has
		t.Errorf("%+v", full.Datasets)
	}
	if len(full.Unused) == 0 {
		t.Error("servers, team, price and service levels are not said to be unused")
	}
	if _, err := odcs.Import(vector(t, "all-schema-types.odcs.yaml"), odcs.Options{Skip: true}); err != nil {
		t.Error(err)
	}
	if _, err := odcs.Import(vector(t, "table-column.odcs.yaml"), odcs.Options{}); err != nil {
		t.Error(err)
	}
}

func TestImportTypesAndClasses(t *testing.T) {
	for name, tt := range map[string]struct{ property, typ, class string }{
		"exact":              {"{name: c, logicalType: number, physicalType: 'numeric(12, 3)'}", "decimal(12,3)", ""},
		"exact no scale":     {"{name: c, logicalType: number, physicalType: NUMBER(9)}", "decimal(9,0)", ""},
		"double":             {"{name: c, logicalType: number, physicalType: double precision}", "double", ""},
		"by format":          {"{name: c, logicalType: number, logicalTypeOptions: {format: f64}}", "double", ""},
		"physical only":      {"{name: c, physicalType: 'varchar(40)'}", "text", ""},
		"zoned":              {"{name: c, logicalType: timestamp, physicalType: timestamp with time zone}", "timestamptz", ""},
		"classification":     {"{name: c, logicalType: string, classification: Highly Restricted}", "text", "highly-restricted"},
		"pii by tag":         {"{name: c, logicalType: string, classification: public, tags: [finance, PII]}", "text", "pii"},
		"pii by class":       {"{name: c, logicalType: string, classification: Personal Data}", "text", "pii"},
		"pii by property":    {"{name: c, logicalType: string, customProperties: [{property: pii, value: true}]}", "text", "pii"},
		"no class from junk": {"{name: c, logicalType: string, classification: 'geheim!'}", "text", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := odcs.Import([]byte(head+"schema: [{name: o, properties: ["+tt.property+"]}]\n"), odcs.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if c := r.Datasets["o"].Columns["c"]; c.Type != tt.typ || c.Class != tt.class {
				t.Errorf("got %+v", c)
			}
		})
	}
}

func TestImportRefuses(t *testing.T) {
	object := func(p string) string { return head + "schema: [{name: o, properties: [" + p + "]}]\n" }
	for name, tt := range map[string]struct{ doc, says string }{
		"nothing":         {"", "no document"},
		"no YAML":         {"a: [", "odcs"},
		"a list":          {"[]", "want a mapping"},
		"another kind":    {strings.Replace(head, "DataContract", "Other", 1), "want DataContract"},
		"version 2":       {"apiVersion: v2.2.2\nkind: DataContract\n", "want v3.x"},
		"no schema":       {head, "there is none"},
		"schema no list":  {head + "schema: {a: 1}\n", "want a list"},
		"duplicate key":   {head + "id: b\nschema: []\n", "twice"},
		"duplicate later": {object("{name: c, name: d, logicalType: string}"), "twice"},
		"bad dataset id":  {head + "schema: [{name: 'o o', properties: []}]\n", "dataset id"},
		"two datasets":    {head + "schema: [{name: o, properties: [{name: c, logicalType: string}]}, {name: o, properties: []}]\n", "two objects"},
		"no columns":      {object(""), "no column"},
		"case twins":      {object("{name: c, logicalType: string}, {name: C, logicalType: string}"), "upper and lower case"},
		"no type":         {object("{name: c}"), "neither a logicalType nor a physicalType"},
		"plain number":    {object("{name: c, logicalType: number}"), "neither exact nor approximate"},
		"too many digits": {object("{name: c, logicalType: number, physicalType: 'DECIMAL(39,2)'}"), "38"},
		"scale too large": {object("{name: c, logicalType: number, physicalType: 'DECIMAL(3,9)'}"), "scale"},
		"a time":          {object("{name: c, logicalType: time}"), "no counterpart"},
		"nested":          {object("{name: c, logicalType: object, properties: []}"), "no counterpart"},
		"look-alike name": {object("{name: \"a\\u200bb\", logicalType: string}"), "cannot be a column"},
		"subject missing": {head + "schema: [{name: o, customProperties: [{property: treatySubject, value: x}], properties: [{name: c, logicalType: string}]}]\n", "not among the columns"},
		"alias bomb": {head + "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" +
			"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n", "nodes"},
		"too deep":  {head + "a: " + strings.Repeat("[", 40) + strings.Repeat("]", 40) + "\n", "too deep"},
		"too large": {head + "# " + strings.Repeat("x", odcs.MaxBytes), "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := odcs.Import([]byte(tt.doc), odcs.Options{})
			if !errors.Is(err, odcs.ErrDocument) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("err = %v, want one that says %q", err, tt.says)
			}
		})
	}
}

func TestContract(t *testing.T) {
	schema, err := contract.NewSchema("orders", "Orders", []contract.Column{{Name: "region", Type: "text"}, {Name: "order_value", Type: "decimal(10,2)"}})
	if err != nil {
		t.Fatal(err)
	}
	digest, err := schema.Digest()
	if err != nil {
		t.Fatal(err)
	}
	c := &contract.Contract{
		Type: contract.DocumentType, Version: 1, ID: contract.ID(canon.Sum(nil)),
		Parties:      contract.Parties{Buyer: "did:wba:b.test", Vendor: "did:wba:v.test", DataPlane: contract.DataPlane{DID: "did:wba:d.test", URL: "https://d.test/mcp"}},
		SchemaDigest: digest,
		Scope: contract.Scope{
			Dataset: "orders", Columns: []string{"region", "order_value"}, Operations: []string{"avg"}, RowFilter: []contract.Condition{},
			Purpose: "Pricing: \"yes\" # no", RetentionDays: 30, MinGroupSize: 5, CallBudget: 10,
		},
		ValidFrom: "2026-12-01T00:00:00Z", ValidUntil: "2027-01-01T00:00:00Z", AcceptBy: "2026-12-01T01:00:00Z",
		Agreement: canon.Sum(nil), Transcript: canon.Sum(nil), Approvals: []contract.Approval{},
	}
	for _, s := range []*contract.Schema{schema, nil} {
		doc, err := odcs.Contract(c, "in_force", s)
		if err != nil {
			t.Fatal(err)
		}
		valid(t, doc)
		var back struct {
			Status      string
			Description struct{ Purpose string }
		}
		if err := yaml.Unmarshal(doc, &back); err != nil || back.Status != "active" || back.Description.Purpose != c.Purpose {
			t.Errorf("%v %+v", err, back)
		}
	}
}

func FuzzImport(f *testing.F) {
	for _, name := range []string{"table-column.odcs.yaml", "full-example.odcs.yaml", "all-schema-types.odcs.yaml"} {
		f.Add(vector(f, name))
	}
	f.Add([]byte(head + "schema: [{name: o, properties: [{name: c, logicalType: number, physicalType: 'DECIMAL(0,0)'}]}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, skip := range []bool{false, true} {
			r, err := odcs.Import(data, odcs.Options{Skip: skip})
			if err != nil {
				if !errors.Is(err, odcs.ErrDocument) {
					t.Fatal(err)
				}
				continue
			}
			doc, err := odcs.Export(odcs.Header{ID: "a", Name: "n", Version: "1", Status: "active"}, r.Datasets)
			if err != nil {
				t.Fatal(err)
			}
			again, err := odcs.Import(doc, odcs.Options{})
			if err != nil {
				t.Fatalf("%v\n%s", err, doc)
			}
			if !reflect.DeepEqual(again.Datasets, r.Datasets) {
				t.Fatalf("%+v\n%+v", again.Datasets, r.Datasets)
			}
		}
	})
}
