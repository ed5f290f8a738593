// SPDX-License-Identifier: Apache-2.0

package odcs

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataset"
)

// APIVersion is the version of the standard that Export writes.
const APIVersion = "v3.1.0"

// Header is what a data contract says of itself. All fields but Domain are needed.
type Header struct {
	ID, Name, Version string
	Status            string // proposed, draft, active, deprecated or retired
	Domain            string
}

type document struct {
	APIVersion string       `yaml:"apiVersion"`
	Kind       string       `yaml:"kind"`
	ID         string       `yaml:"id"`
	Name       string       `yaml:"name"`
	Version    string       `yaml:"version"`
	Status     string       `yaml:"status"`
	Domain     string       `yaml:"domain,omitempty"`
	About      *description `yaml:"description,omitempty"`
	Schema     []table      `yaml:"schema"`
	SLA        []sla        `yaml:"slaProperties,omitempty"`
	Custom     []custom     `yaml:"customProperties,omitempty"`
}

type description struct {
	Purpose     string `yaml:"purpose,omitempty"`
	Limitations string `yaml:"limitations,omitempty"`
	Usage       string `yaml:"usage,omitempty"`
}

type table struct {
	Name         string     `yaml:"name"`
	LogicalType  string     `yaml:"logicalType"`
	PhysicalType string     `yaml:"physicalType"`
	Description  string     `yaml:"description,omitempty"`
	Custom       []custom   `yaml:"customProperties,omitempty"`
	Properties   []property `yaml:"properties"`
}

type property struct {
	Name           string   `yaml:"name"`
	LogicalType    string   `yaml:"logicalType,omitempty"`
	Options        *options `yaml:"logicalTypeOptions,omitempty"`
	PhysicalType   string   `yaml:"physicalType,omitempty"`
	Classification string   `yaml:"classification,omitempty"`
	Tags           []string `yaml:"tags,omitempty"`
}

type options struct {
	Timezone bool `yaml:"timezone"`
}

type custom struct {
	Property string `yaml:"property"`
	Value    any    `yaml:"value"`
}

type sla struct {
	Property string `yaml:"property"`
	Value    any    `yaml:"value"`
	Unit     string `yaml:"unit,omitempty"`
	Element  string `yaml:"element,omitempty"`
}

// Export writes datasets as a data contract. Of a dataset's source only its path is in it.
func Export(h Header, sets dataset.Config) ([]byte, error) {
	d := newDocument(h)
	for _, id := range slices.Sorted(maps.Keys(sets)) {
		set := sets[id]
		t := table{Name: id, LogicalType: "object", PhysicalType: "table", Description: set.Description}
		if set.Path != "" {
			t.Custom = append(t.Custom, custom{PropertyPath, set.Path})
		}
		if set.Subject != "" {
			t.Custom = append(t.Custom, custom{PropertySubject, set.Subject})
		}
		for _, name := range set.ColumnNames() {
			p, err := column(name, set.Columns[name].Type, set.Columns[name].Class)
			if err != nil {
				return nil, fmt.Errorf("odcs: datasets.%s: %w", id, err)
			}
			t.Properties = append(t.Properties, p)
		}
		d.Schema = append(d.Schema, t)
	}
	return yaml.Marshal(d)
}

func newDocument(h Header) document {
	return document{APIVersion: APIVersion, Kind: "DataContract", ID: h.ID, Name: h.Name, Version: h.Version, Status: h.Status, Domain: h.Domain}
}

func column(name, typ, class string) (property, error) {
	p := property{Name: name, Classification: class}
	if class == dataset.ClassPII {
		p.Tags = []string{dataset.ClassPII}
	}
	if typ == "" {
		return p, nil // not known here
	}
	t, err := dataset.ParseType(typ)
	if err != nil {
		return p, fmt.Errorf("%s: %w", name, err)
	}
	switch t.Kind {
	case dataset.Text:
		p.LogicalType, p.PhysicalType = "string", "TEXT"
	case dataset.Integer:
		p.LogicalType, p.PhysicalType = "integer", "BIGINT"
	case dataset.DecimalKind:
		p.LogicalType, p.PhysicalType = "number", strings.ToUpper(typ)
	case dataset.Double:
		p.LogicalType, p.PhysicalType = "number", "DOUBLE"
	case dataset.Boolean:
		p.LogicalType, p.PhysicalType = "boolean", "BOOLEAN"
	case dataset.Date:
		p.LogicalType, p.PhysicalType = "date", "DATE"
	case dataset.Timestamp:
		p.LogicalType, p.PhysicalType, p.Options = "timestamp", "TIMESTAMP", &options{false}
	case dataset.TimestampTZ:
		p.LogicalType, p.PhysicalType, p.Options = "timestamp", "TIMESTAMP WITH TIME ZONE", &options{true}
	default:
		return p, fmt.Errorf("%s: type %s has no counterpart in the standard", name, typ)
	}
	return p, nil
}

// Contract writes an agreed contract as a data contract: what was granted, on which terms, between whom. schema is the
// published schema that the contract names, nil when it is not at hand: the columns then have no types.
func Contract(c *contract.Contract, state string, schema *contract.Schema) ([]byte, error) {
	digest, err := c.Digest()
	if err != nil {
		return nil, err
	}
	status := map[string]string{"in_force": "active", "revoked": "retired", "void": "retired"}[state]
	if status == "" {
		status = "proposed"
	}
	d := newDocument(Header{ID: c.ID, Name: c.Dataset, Version: "1.0.0", Status: status})
	d.About = &description{Purpose: c.Purpose, Limitations: limitations(c), Usage: "Queries at " + c.Parties.DataPlane.URL + ", as the signed contract allows them"}
	t := table{Name: c.Dataset, LogicalType: "object", PhysicalType: "table"}
	if schema != nil {
		t.Description = schema.Description
	}
	for _, name := range c.Columns {
		typ := ""
		if schema != nil {
			if col, ok := schema.Column(name); ok {
				typ = col.Type
			}
		}
		p, err := column(name, typ, "")
		if err != nil {
			return nil, err
		}
		t.Properties = append(t.Properties, p)
	}
	d.Schema = []table{t}
	d.SLA = []sla{
		{Property: "retention", Value: c.RetentionDays, Unit: "d", Element: c.Dataset},
		{Property: "generalAvailability", Value: c.ValidFrom},
		{Property: "endOfLife", Value: c.ValidUntil},
	}
	d.Custom = append(d.Custom, []custom{
		{"treatyContract", c.ID}, {"treatyContractDigest", digest.String()}, {"treatyState", state}, {"treatyBuyer", c.Parties.Buyer}, {"treatyVendor", c.Parties.Vendor},
		{"treatyDataPlane", c.Parties.DataPlane.DID}, {"treatyOperations", strings.Join(c.Operations, " ")}, {"treatyMinGroupSize", c.MinGroupSize}, {"treatyCallBudget", c.CallBudget},
		{"treatySchemaDigest", c.SchemaDigest.String()},
	}...)
	return yaml.Marshal(d)
}

func limitations(c *contract.Contract) string {
	lines := []string{"Groups of at least " + strconv.Itoa(c.MinGroupSize) + "; " + strconv.FormatInt(c.CallBudget, 10) + " calls"}
	for i := range c.RowFilter {
		lines = append(lines, "only rows where "+c.RowFilter[i].String())
	}
	return strings.Join(lines, "; ")
}
