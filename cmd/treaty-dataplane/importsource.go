// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/cmd/treaty-dataplane/internal/duck"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/server"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
)

// sourceReport is what import prints with --json about a source that is no CSV file.
type sourceReport struct {
	Kind       string         `json:"kind"`
	OK         bool           `json:"ok"` // every configured column is there with its type
	Files      int            `json:"files,omitempty"`
	Rows       int64          `json:"rows"` // -1: not counted
	Columns    []sourceColumn `json:"columns"`
	Suggestion string         `json:"suggestion,omitempty"` // columns, as YAML
}

type sourceColumn struct {
	Name   string `json:"name"`
	Native string `json:"native"`         // the source's name for the type
	Type   string `json:"type,omitempty"` // none: it cannot be published as it is
	Advice string `json:"advice,omitempty"`
}

// importSource looks at a source and, when columns are configured, holds them against it.
func (c *cli) importSource(cmd *cobra.Command, d dataset.Dataset, dir string, path func(string) string) error {
	var rep *source.Report
	var err error
	if d.KindOf() == dataset.ParquetFiles {
		var e *duck.Engine
		if e, err = duck.Open(cmd.Context(), duck.Limits{}, nil); err != nil {
			return failure(err)
		}
		defer func() { _ = e.Close() }() // nothing was loaded
		rep, _, err = e.InspectParquet(cmd.Context(), d.Path, dir)
	} else {
		rep, err = server.Inspect(cmd.Context(), d, dir, path)
	}
	if err != nil && !errors.Is(err, server.ErrConfig) {
		return &exitError{exitImport, err}
	}
	if err != nil {
		return failure(err)
	}
	out := sourceReport{Kind: rep.Kind, OK: true, Files: rep.Files, Rows: rep.Rows, Columns: []sourceColumn{}}
	var fit error
	if len(d.Columns) > 0 && d.KindOf() != dataset.SQLite { // which was checked by its values
		_, fit = source.Fit(d, rep.Columns)
		out.OK = fit == nil
	}
	for _, f := range rep.Columns {
		col := sourceColumn{Name: f.Name, Native: f.Native, Advice: f.Advice}
		if f.Advice == "" {
			col.Type = dataset.TypeName(f.Type)
		}
		out.Columns = append(out.Columns, col)
	}
	if len(d.Columns) == 0 {
		out.Suggestion = "columns:\n"
		for _, col := range out.Columns {
			if col.Type != "" {
				out.Suggestion += fmt.Sprintf("  %s: {type: %q}\n", strconv.Quote(col.Name), col.Type)
			}
		}
	}
	if err := c.print(out, func(w io.Writer) { printSource(w, out) }); err != nil {
		return failure(err)
	}
	if fit != nil {
		return &exitError{exitImport, fit}
	}
	return nil
}

func printSource(w io.Writer, r sourceReport) {
	fmt.Fprintf(w, "%s: ", r.Kind)
	if r.Files > 0 {
		fmt.Fprintf(w, "%d files, ", r.Files)
	}
	if r.Rows < 0 {
		fmt.Fprintln(w, "rows not counted")
	} else {
		fmt.Fprintf(w, "%d rows\n", r.Rows)
	}
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "COLUMN\tTYPE\tIN THE SOURCE\t")
	for _, c := range r.Columns {
		typ := c.Type
		if typ == "" {
			typ = "-"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", contract.Echo(c.Name), typ, contract.Echo(c.Native), c.Advice)
	}
	_ = tw.Flush() // to the terminal
	if r.Suggestion != "" {
		fmt.Fprintf(w, "\nColumns for the configuration; give every column that may be granted a class:\n\n%s", r.Suggestion)
	}
}
