// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"fmt"

	"github.com/treaty-node/treaty/node/contract"
)

// Schema returns what is published about a dataset: id, description, and its columns in ascending order of name.
func (c Config) Schema(id string) (*contract.Schema, error) {
	d, ok := c[id]
	if !ok {
		return nil, fmt.Errorf("%w: there is no dataset %q", ErrConfig, id)
	}
	columns := make([]contract.Column, 0, len(d.Columns))
	for _, name := range d.ColumnNames() {
		columns = append(columns, contract.Column{Name: name, Type: d.Columns[name].Type})
	}
	s, err := contract.NewSchema(id, d.Description, columns)
	if err != nil {
		return nil, fmt.Errorf("%w: datasets.%s: %w", ErrConfig, id, err)
	}
	return s, nil
}
