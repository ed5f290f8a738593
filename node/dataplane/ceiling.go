// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"fmt"
	"slices"

	"github.com/treaty-node/treaty/node/cedar"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataset"
)

// Ceiling is the operator's own policy: what no contract can lift. Its zero value still refuses columns without a class.
type Ceiling struct {
	// Classes of columns that never leave, such as pii.
	DenyClasses []string `yaml:"deny_classes,omitempty"`
	// Columns that never leave, by dataset.
	DenyColumns map[string][]string `yaml:"deny_columns,omitempty"`
	// Smallest group that is released; a contract may ask for more.
	MinGroupSize int `yaml:"min_group_size,omitempty"`
	// Most calls under one contract; 0: as many as the contract says.
	MaxCalls int64 `yaml:"max_calls,omitempty"`
	// Whether rows may leave at all, where a contract grants them.
	AllowRows bool `yaml:"allow_rows,omitempty"`
	// Most rows under one contract; 0: as many as the contract says.
	MaxRows int64 `yaml:"max_rows,omitempty"`
	// Most millionths of epsilon under one contract are those of this decimal; empty: as many as the contract says.
	MaxEpsilon string `yaml:"max_epsilon,omitempty"`
	// Cedar are policies that every use of a column must pass as well; nil: none.
	Cedar *cedar.Policy `yaml:"-"`
}

// check refuses a ceiling that names what is not there: a misspelt name would protect nothing.
func (c *Ceiling) check(datasets dataset.Config) error {
	if c.MinGroupSize < 0 || c.MaxCalls < 0 || c.MaxRows < 0 {
		return fmt.Errorf("%w: ceiling: negative limit", ErrOptions)
	}
	if _, ok := contract.MicroEpsilon(c.MaxEpsilon); c.MaxEpsilon != "" && !ok {
		return fmt.Errorf("%w: ceiling.max_epsilon: want a decimal such as \"1.5\"", ErrOptions)
	}
	for id, columns := range c.DenyColumns {
		d, ok := datasets[id]
		if !ok {
			return fmt.Errorf("%w: ceiling.deny_columns: there is no dataset %q", ErrOptions, id)
		}
		for _, name := range columns {
			if _, ok := d.Columns[name]; !ok {
				return fmt.Errorf("%w: ceiling.deny_columns.%s: there is no column %q", ErrOptions, id, name)
			}
		}
	}
	if c.Cedar != nil {
		for _, f := range c.Cedar.Check(datasets) {
			return fmt.Errorf("%w: cedar: %s", ErrOptions, f)
		}
	}
	return nil
}

// minGroup is the group size in force under a contract.
func (c *Ceiling) minGroup(granted int) int { return max(granted, c.MinGroupSize, 1) }

// budget is the number of calls in force under a contract.
func (c *Ceiling) budget(granted int64) int64 {
	if c.MaxCalls > 0 {
		return min(granted, c.MaxCalls)
	}
	return granted
}

// rows is the number of rows in force under a contract.
func (c *Ceiling) rows(granted int64) int64 {
	switch {
	case !c.AllowRows:
		return 0
	case c.MaxRows > 0:
		return min(granted, c.MaxRows)
	}
	return granted
}

// epsilon is the privacy budget in force under a contract, in millionths.
func (c *Ceiling) epsilon(granted string) int64 {
	n, ok := contract.MicroEpsilon(granted)
	if !ok {
		return 0
	}
	if most, ok := contract.MicroEpsilon(c.MaxEpsilon); ok {
		return min(n, most)
	}
	return n
}

// why says why a column never leaves, and "" when it may.
func (c *Ceiling) why(d dataset.Dataset, id, name string) string {
	class := d.Columns[name].Class
	switch {
	case slices.Contains(c.DenyColumns[id], name):
		return "column " + contract.Echo(name) + " never leaves this data plane"
	case class == "":
		return "column " + contract.Echo(name) + " has no class and cannot be granted"
	case slices.Contains(c.DenyClasses, class):
		return "column " + contract.Echo(name) + " is of class " + contract.Echo(class) + ", which never leaves this data plane"
	}
	return ""
}

// refuses holds every column that the request and the contract's row filter use against the ceiling. A row filter counts,
// because what it lets through tells about the column.
func (c *Ceiling) refuses(d dataset.Dataset, req *contract.Request, rowFilter []contract.Condition) string {
	if req.Rows() && !c.AllowRows {
		return "rows never leave this data plane"
	}
	names := make([]string, 0, 16)
	for _, u := range req.ColumnUses() {
		names = append(names, u.Column)
	}
	for _, f := range rowFilter {
		names = append(names, f.Column)
	}
	for _, name := range names {
		if why := c.why(d, req.Dataset, name); why != "" {
			return why
		}
	}
	return ""
}
