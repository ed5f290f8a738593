// SPDX-License-Identifier: Apache-2.0

package odcs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataset"
)

// dataset takes one object of the schema.
func (im *importer) dataset(where string, n *yaml.Node) {
	o, ok := im.object(where, n)
	if !ok {
		return
	}
	id := im.text(where, o, "name")
	if !validID(id) {
		im.unmapped(where, n, "the name %s cannot be a dataset id here: letters, digits, -, _ and ., at most %d", contract.Echo(id), contract.MaxDataset)
		return
	}
	where = "schema." + id
	if _, twice := im.out.Datasets[id]; twice {
		im.problem(where, n, "there are two objects of this name")
		return
	}
	if t := im.text(where, o, "logicalType"); t != "" && t != "object" {
		im.unmapped(where, n, "logicalType %s at the top: only tables and other objects with properties are datasets", contract.Echo(t))
		return
	}
	d := dataset.Dataset{Description: oneText(im.text(where, o, "description")), Columns: map[string]dataset.Column{}}
	if len(d.Description) > contract.MaxText {
		im.unmapped(where+".description", o.values["description"], "has %d bytes; at most %d are published", len(d.Description), contract.MaxText)
		return
	}
	for i, e := range im.list(where, o, "properties") {
		im.column(fmt.Sprintf("%s.properties[%d]", where, i), where, e, &d)
	}
	custom := im.custom(where, o)
	d.Path, d.Subject = custom[PropertyPath], custom[PropertySubject]
	if d.Path == "" {
		im.note(where, n, "the contract does not say where the data is: set path (or the source) in datasets.yaml")
	}
	if _, there := d.Columns[d.Subject]; d.Subject != "" && !there {
		im.unmapped(where, n, "customProperties: %s names %s, which is not among the columns", PropertySubject, contract.Echo(d.Subject))
		d.Subject = ""
	}
	if len(d.Columns) == 0 {
		im.unmapped(where, n, "no column of it maps")
		return
	}
	if len(d.Columns) > dataset.MaxColumns {
		im.unmapped(where, n, "has %d columns, at most %d", len(d.Columns), dataset.MaxColumns)
		return
	}
	im.out.Datasets[id] = d
}

// validID says whether a schema of this name could be published.
func validID(id string) bool {
	_, err := contract.NewSchema(id, "", []contract.Column{{Name: "a", Type: "text"}})
	return err == nil
}

// oneText is a description as it is published: YAML's folded texts end with a line break.
func oneText(s string) string { return strings.Join(strings.Fields(s), " ") }

// custom reads customProperties whose values are text.
func (im *importer) custom(where string, o object) map[string]string {
	out := map[string]string{}
	for _, e := range im.list(where, o, "customProperties") {
		if p, ok := im.object(where+".customProperties", e); ok {
			if v := p.values["value"]; v != nil && v.Kind == yaml.ScalarNode {
				out[im.text(where, p, "property")] = v.Value
			}
		}
	}
	return out
}

// column takes one property of an object.
func (im *importer) column(where, parent string, n *yaml.Node, d *dataset.Dataset) {
	o, ok := im.object(where, n)
	if !ok {
		return
	}
	name := im.text(where, o, "physicalName") // what the data calls it
	if name == "" {
		name = im.text(where, o, "name")
	}
	if !dataset.ValidName(name) {
		im.unmapped(where, n, "the name %s cannot be a column here: printable, at most %d bytes, no spaces around it", contract.Echo(name), contract.MaxName)
		return
	}
	where = parent + "." + name
	for have := range d.Columns {
		if strings.EqualFold(have, name) {
			im.problem(where, n, "there are two columns of this name, upper and lower case apart")
			return
		}
	}
	typ, why := im.columnType(where, o)
	if why != "" {
		im.unmapped(where, n, "%s", why)
		return
	}
	class := im.class(where, o)
	d.Columns[name] = dataset.Column{Type: typ, Class: class}
}

var (
	exact       = regexp.MustCompile(`^(?:DECIMAL|NUMERIC|NUMBER|DEC)\s*\(\s*(\d{1,2})\s*(?:,\s*(\d{1,2})\s*)?\)$`)
	approximate = []string{"DOUBLE", "DOUBLE PRECISION", "FLOAT", "FLOAT4", "FLOAT8", "FLOAT64", "FLOAT32", "REAL"}
	integers    = []string{"INT", "INTEGER", "BIGINT", "SMALLINT", "TINYINT", "INT2", "INT4", "INT8", "INT64", "INT32", "LONG"}
	texts       = regexp.MustCompile(`^(?:VARCHAR|CHAR|CHARACTER|CHARACTER VARYING|NVARCHAR|TEXT|STRING|VARCHAR2|BPCHAR|UUID)(?:\s*\(\s*\d+\s*\))?$`)
	zoned       = []string{"TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_TZ", "TIMESTAMP_LTZ", "DATETIMEOFFSET"}
	unzoned     = []string{"TIMESTAMP", "DATETIME", "DATETIME2", "TIMESTAMP WITHOUT TIME ZONE", "TIMESTAMP_NTZ"}
)

// columnType maps logicalType, physicalType and logicalTypeOptions to a type, or says why there is none.
func (im *importer) columnType(where string, o object) (typ, why string) {
	logical := im.text(where, o, "logicalType")
	physical := strings.ToUpper(strings.Join(strings.Fields(im.text(where, o, "physicalType")), " "))
	options := object{values: map[string]*yaml.Node{}}
	if n, ok := o.values["logicalTypeOptions"]; ok && n.Tag != "!!null" {
		if options, ok = im.object(where+".logicalTypeOptions", n); !ok {
			return "", "its logicalTypeOptions cannot be read"
		}
	}
	switch logical {
	case "string":
		return "text", ""
	case "integer":
		return "integer", ""
	case "boolean":
		return "boolean", ""
	case "date":
		return "date", ""
	case "timestamp":
		if im.text(where, options, "timezone") == "true" || slices.Contains(zoned, physical) {
			return "timestamptz", ""
		}
		return "timestamp", ""
	case "number":
		return number(physical, im.text(where, options, "format"))
	case "":
		return fromPhysical(physical)
	case "time", "object", "array", "map":
		return "", "logicalType " + logical + " has no counterpart: a column is a text, number, boolean, date or timestamp"
	}
	return "", "logicalType " + contract.Echo(logical) + " is not of the standard"
}

func number(physical, format string) (typ, why string) {
	switch {
	case exact.MatchString(physical):
		return decimal(physical)
	case slices.Contains(approximate, physical), physical == "" && (format == "f32" || format == "f64"):
		return "double", ""
	case slices.Contains(integers, physical):
		return "integer", ""
	}
	return "", "a number whose physicalType is " + contract.Echo(physical) + " is neither exact nor approximate: write DECIMAL(p,s) or DOUBLE"
}

func decimal(physical string) (typ, why string) {
	m := exact.FindStringSubmatch(physical)
	scale := strings.TrimLeft(m[2], "0")
	if scale == "" {
		scale = "0"
	}
	typ = "decimal(" + strings.TrimLeft(m[1], "0") + "," + scale + ")"
	if _, err := dataset.ParseType(typ); err != nil {
		return "", "physicalType " + contract.Echo(physical) + ": at most 38 digits, of which the scale is a part"
	}
	return typ, ""
}

// fromPhysical maps a column that has no logical type: only what means one thing in every engine.
func fromPhysical(physical string) (typ, why string) {
	switch {
	case texts.MatchString(physical):
		return "text", ""
	case slices.Contains(integers, physical):
		return "integer", ""
	case exact.MatchString(physical):
		return decimal(physical)
	case slices.Contains(approximate, physical):
		return "double", ""
	case slices.Contains([]string{"BOOLEAN", "BOOL"}, physical):
		return "boolean", ""
	case physical == "DATE":
		return "date", ""
	case slices.Contains(zoned, physical):
		return "timestamptz", ""
	case slices.Contains(unzoned, physical):
		return "timestamp", ""
	case physical == "":
		return "", "it has neither a logicalType nor a physicalType"
	}
	return "", "physicalType " + contract.Echo(physical) + " without a logicalType could mean several things"
}

// personal are tags and classifications that say a column identifies a person.
var personal = []string{"pii", "personal", "personal-data", "personal_data", "personaldata", "gdpr-personal", "sensitive-pii"}

// class is a column's class: pii when anything says so, or else the classification in the spelling of classes.
func (im *importer) class(where string, o object) string {
	given := im.text(where, o, "classification")
	class := spell(given)
	if slices.Contains(personal, class) {
		return dataset.ClassPII
	}
	for _, tag := range im.list(where, o, "tags") {
		if tag.Kind == yaml.ScalarNode && slices.Contains(personal, spell(tag.Value)) {
			return dataset.ClassPII
		}
	}
	if v := im.custom(where, o); v["pii"] == "true" || v["isPii"] == "true" {
		return dataset.ClassPII
	}
	switch {
	case given == "":
		im.note(where, o.node, "it has no classification: the column is published and cannot be granted until somebody gives it a class")
	case class == "":
		im.note(where, o.node, "the classification %s cannot be a class (letters, digits, - and _): the column has none and cannot be granted", contract.Echo(given))
	case class != given:
		im.note(where, o.node, "the classification %s became class %s", contract.Echo(given), class)
	}
	return class
}

// spell brings a classification into the form of a class; "" when it has none.
func spell(s string) string {
	s = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(s)), " ", "-")
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' {
			return ""
		}
	}
	if len(s) > contract.MaxName {
		return ""
	}
	return s
}
